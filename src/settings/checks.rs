//! Checks of numbers and of settings together, before anything is created.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::parse::{LONGEST_NAME, dns_label};
use super::values::Values;
use crate::backend::Capabilities;
use crate::cluster::limits::{SERVICE_PREFIX, join_network_problem, ovn_networks};
use crate::cluster::{
    AddressRange, BackendConfig, ClusterDomain, ClusterNetworks, Dhcp, Dns, GivenAddresses, Harvest, Lb, MachineName,
    NodeName, Pool, Role, Wanted, overlap, reserved_as, unsupported_release,
};
use crate::printable::count;

pub(super) const MOST_MACHINES: u64 = 1000;

/// Reads the cluster's name and base domain.
pub(super) fn names(values: &mut Values<'_>) -> Option<(String, String)> {
    let required = [
        ("cluster", "set the cluster name, such as `cluster=lab`"),
        ("domain", "set the base domain, such as `domain=example.com`"),
    ];
    for (name, help) in required {
        if values.value(name).is_none() {
            values.missing(name, help);
        }
    }
    let cluster = values.read("cluster", dns_label);
    let domain = values.read("domain", |text| {
        text.split('.').map(dns_label).collect::<Result<Vec<_>, _>>()
    });
    let cluster = cluster?;
    let longest_machine = MachineName::of_harvest(&cluster, Role::Bootstrap, 0);
    if longest_machine.as_str().len() > LONGEST_NAME {
        let most = LONGEST_NAME - (longest_machine.as_str().len() - cluster.len());
        values.problem(
            &["cluster"],
            format!("`cluster` is too long: {} characters", cluster.len()),
            &format!("use at most {most} characters, because a machine name would be {longest_machine}"),
        );
        return None;
    }
    let domain = domain?.join(".");
    let longest_host = ClusterDomain::new(&cluster, &domain).fqdn(NodeName::node(Role::Worker, 100).as_str());
    if longest_host.len() > LONGEST_NAME {
        values.problem(
            &["domain", "cluster"],
            format!(
                "`cluster` and `domain` are too long by {} characters",
                longest_host.len() - LONGEST_NAME
            ),
            &format!("a node name has at most {LONGEST_NAME} characters, and one would be {longest_host}"),
        );
        return None;
    }
    Some((cluster, domain))
}

/// Reads the number of masters and whether there is an arbiter, which is the third member of etcd beside two masters.
///
/// The documentation of OpenShift allows one arbiter and two masters (openshift/openshift-docs:
/// `modules/upi-install-config-local-arbiter-node.adoc`).
pub(super) fn masters(values: &mut Values<'_>) -> Option<(usize, bool)> {
    const HINT: &str = "use 1, 3 or 5 masters, or `masters=2` with `arbiter=1`, for the quorum of etcd";
    let masters = bounded(values, "masters", 0, MOST_MACHINES);
    let arbiters = bounded(values, "arbiter", 0, 1);
    let (masters, has_arbiter) = (masters?, arbiters? == 1);
    match (masters, has_arbiter) {
        (0, _) => values.problem(&["masters"], "a cluster requires at least one master", HINT),
        (2, true) => {}
        (_, true) => values.problem(
            &["arbiter", "masters"],
            format!("an arbiter requires two masters, not {masters}"),
            "set `masters=2`, or remove `arbiter`",
        ),
        (2, false) => values.problem(&["masters"], "two masters are less fault-tolerant than one", HINT),
        (4, false) => values.warn("masters", "four masters tolerate no more failures than three"),
        (1 | 3 | 5, false) => {}
        _ => values.warn("masters", "more than five masters make etcd slower"),
    }
    Some((usize::try_from(masters).ok()?, has_arbiter))
}

/// The requested release, if it is known before a mirror is queried.
pub(super) fn release(
    values: &mut Values<'_>,
    version: Option<&Wanted>,
    masters: Option<(usize, bool)>,
    backend: Option<&BackendConfig>,
    networks: Option<&ClusterNetworks>,
    has_ipv6: bool,
) {
    let release = version.and_then(Wanted::release);
    if let (Some(release), Some((masters, arbiter)), Some(backend), Some(networks)) =
        (release, masters, backend, networks)
        && let Some(unsupported) = unsupported_release(release, masters, arbiter, backend, networks, has_ipv6)
    {
        values.problem(unsupported.settings, unsupported.why, unsupported.hint);
    }
}

pub(super) fn workers(values: &mut Values<'_>) -> Option<usize> {
    usize::try_from(bounded(values, "workers", 0, MOST_MACHINES)?).ok()
}

/// A number between two limits.
pub(super) fn bounded(values: &mut Values<'_>, name: &'static str, least: u64, most: u64) -> Option<u64> {
    let number = values.number(name)?;
    if (least..=most).contains(&number) {
        return Some(number);
    }
    let unit = values.unit(name);
    let message = format!("`{name}`: {number}{unit} is not between {least} and {most}{unit}");
    values.problem(&[name], message, "");
    None
}

/// Prefix length of a node's subnet of the pod network.
pub(super) fn host_prefix(values: &mut Values<'_>, cluster_network: Option<IpNetwork>) -> Option<u8> {
    let longest = match cluster_network {
        Some(IpNetwork::V6(_)) => 64,
        _ => 30,
    };
    let prefix = bounded(values, "cluster_host_prefix", 1, longest)?;
    if let Some(network) = cluster_network.filter(|network| prefix <= u64::from(network.prefix())) {
        values.problem(
            &["cluster_host_prefix", "cluster_network"],
            format!("`cluster_host_prefix`: /{prefix} is not a subnet of {network}"),
            "set the prefix length of the subnet that each node gets; it must be longer than that of cluster_network",
        );
        return None;
    }
    u8::try_from(prefix).ok()
}

/// The number of nodes without the bootstrap.
pub(super) fn count_nodes(masters: Option<(usize, bool)>, workers: Option<usize>, pools: &[Pool]) -> Option<usize> {
    let (masters, has_arbiter) = masters?;
    Some(masters + usize::from(has_arbiter) + workers? + pools.iter().map(|pool| pool.nodes).sum::<usize>())
}

/// Checks that the pod network has a subnet for every node.
pub(super) fn room_for_nodes(values: &mut Values<'_>, networks: Option<&ClusterNetworks>, nodes: Option<usize>) {
    let (Some(networks), Some(nodes)) = (networks, nodes) else {
        return;
    };
    let bits = u32::from(networks.host_prefix - networks.cluster_network.prefix());
    let subnets = 1usize.checked_shl(bits).unwrap_or(usize::MAX);
    if nodes > subnets {
        values.problem(
            &["cluster_network", "cluster_host_prefix", "workers", "pools", "masters"],
            format!(
                "{} has {} of /{}, too few for {}",
                networks.cluster_network,
                count(subnets, "subnet"),
                networks.host_prefix,
                count(nodes, "node")
            ),
            "use a larger network or a longer prefix",
        );
    }
}

/// Checks that networks do not overlap, that addresses are in the machine network, and that none is used twice.
pub(super) fn addresses(
    values: &mut Values<'_>,
    given: Option<&GivenAddresses>,
    pools: &[Pool],
    networks: Option<&ClusterNetworks>,
) {
    let mut known = Vec::new();
    if let Some(networks) = networks {
        known.push(("cluster_network", networks.cluster_network));
        known.push(("service_network", networks.service_network));
        known.extend(
            networks
                .ovn_join_network
                .map(|network| ("ovn_join_network", network.into())),
        );
        let network = networks.service_network;
        if network.is_ipv4() && network.prefix() < SERVICE_PREFIX.0 {
            let message = format!("`service_network`: {network} is too large");
            let help = format!("use a prefix of at least /{}; /16 is usual", SERVICE_PREFIX.0);
            values.problem(&["service_network"], message, &help);
        }
    }
    if let Some(machine_network) = given.and_then(|given| given.machine_network) {
        known.push(("machine_network", machine_network));
    }
    for (index, (name, network)) in known.iter().enumerate() {
        for (other_name, other) in &known[..index] {
            if overlap(*network, *other) {
                values.problem(
                    &[*name, *other_name],
                    format!("`{name}` {network} and `{other_name}` {other} overlap"),
                    "",
                );
            }
        }
    }
    let Some(given) = given else {
        return;
    };
    let of_pools = pools.iter().flat_map(|pool| &pool.ips);
    let mut addresses = given_ips(given);
    addresses.extend(of_pools.map(|ip| ("pool_ips", *ip)));
    for (name, ip) in &addresses {
        for (network_name, network) in &known {
            let inside = network.contains(*ip);
            if *network_name != "machine_network" && inside {
                values.problem(
                    &[*name, *network_name],
                    format!("`{name}`: {ip} is in `{network_name}` {network}"),
                    "",
                );
            } else if *network_name == "machine_network" && !inside && !is_local(*ip) {
                values.problem(
                    &[*name, *network_name],
                    format!("`{name}`: {ip} is outside {network}"),
                    "",
                );
            } else if let Some(what) = reserved_as(*network, *ip) {
                let message = format!("`{name}`: {ip} is {what} of {network}");
                values.problem(&[*name, *network_name], message, "");
            }
        }
    }
    // Only the two VIPs may share an address.
    let both_vips = |a: &str, b: &str| [a, b] == ["api_ip", "ingress_ip"];
    no_doubles(values, &addresses, both_vips);
    name_servers(values, given, &addresses, &known);
    let bootstrap = given.bootstrap_mac.iter().map(|mac| ("bootstrap_mac", *mac));
    let masters = given.master_macs.iter().map(|mac| ("master_macs", *mac));
    let arbiter = given.arbiter_mac.iter().map(|mac| ("arbiter_mac", *mac));
    let workers = given.worker_macs.iter().map(|mac| ("worker_macs", *mac));
    let pools = pools.iter().flat_map(|pool| &pool.macs);
    let pools = pools.map(|mac| ("pool_macs", *mac));
    let all = bootstrap.chain(masters).chain(arbiter).chain(workers).chain(pools);
    no_doubles(values, &all.collect::<Vec<_>>(), |_, _| false);
}

/// Checks the network that replaces the join network of OVN-Kubernetes.
pub(super) fn join_network(values: &mut Values<'_>, networks: &ClusterNetworks) {
    const NAME: &str = "ovn_join_network";
    let Some(join) = networks.ovn_join_network else { return };
    if networks.network_type != "OVNKubernetes" {
        let message = format!("{NAME} has no effect with network_type={}", networks.network_type);
        values.problem(&[NAME, "network_type"], message, "remove it");
    }
    // openshift/cluster-network-operator: `pkg/network/ovn_kubernetes.go`, `validateOVNKubernetesSubnets`.
    if networks.is_ipv6_only() {
        let message = format!("`{NAME}`: {join} is an IPv4 network, and the pods have none");
        values.problem(&[NAME, "cluster_network"], message, "remove it");
    }
    let others = ovn_networks(join.into(), Some(join), (u32::MAX, 0)).filter(|(own, _)| own.name != "join");
    for (own, range) in others {
        let message = format!(
            "`{NAME}`: {join} overlaps with {range}, the {} network of OVN-Kubernetes",
            own.name
        );
        values.problem(&[NAME], message, "");
    }
    if let IpNetwork::V4(pods) = networks.cluster_network
        && let Some(problem) = join_network_problem(join, [(pods, networks.host_prefix)].into_iter())
    {
        let help = "use a larger network, such as a /16";
        values.problem(&[NAME, "cluster_network"], format!("`{NAME}`: {problem}"), help);
    }
}

/// Checks that no name server is in a network inside the cluster or a node. A router or load balancer may be one.
fn name_servers(
    values: &mut Values<'_>,
    given: &GivenAddresses,
    addresses: &[(&'static str, IpAddr)],
    networks: &[(&'static str, IpNetwork)],
) {
    const NAME: &str = "name_servers";
    for ip in &given.name_servers {
        let inner = networks.iter().filter(|(name, _)| *name != "machine_network");
        for (name, network) in inner.filter(|(_, network)| network.contains(*ip)) {
            let message = format!("`{NAME}`: {ip} is in `{name}` {network}");
            values.problem(&[NAME, *name], message, "");
        }
    }
    let is_of_node = |name: &str| !["gateway", "api_ip", "ingress_ip"].contains(&name);
    let mut all: Vec<_> = addresses.iter().filter(|(name, _)| is_of_node(name)).copied().collect();
    all.extend(given.name_servers.iter().map(|ip| (NAME, *ip)));
    // The nodes' own addresses are already compared.
    no_doubles(values, &all, |_, name| name != NAME);
}

/// Checks that the machine network has an address for every machine: the nodes and the bootstrap.
pub(super) fn room_for_machines(values: &mut Values<'_>, given: Option<&GivenAddresses>, nodes: Option<usize>) {
    let network = given.and_then(|given| given.machine_network);
    let (Some(network), Some(machines)) = (network, nodes.map(|nodes| nodes + 1)) else {
        return;
    };
    let usable = network
        .iter()
        .filter(|ip| reserved_as(network, *ip).is_none())
        .take(machines)
        .count();
    if machines > usable {
        let message = format!("`machine_network`: {network} has {usable} addresses, too few for {machines} machines");
        let help = "set the whole subnet of the nodes, including the bootstrap machine";
        values.problem(&["machine_network"], message, help);
    }
}

/// Reads the load balancer, and checks that it is available and what the user's own services require.
pub(super) fn lb(
    values: &mut Values<'_>,
    backend: Option<&BackendConfig>,
    given: Option<&GivenAddresses>,
    harvest: Option<Harvest>,
    dhcp: Option<Dhcp>,
) -> Option<Lb> {
    let lb = values.choice("lb");
    if let (Some(Lb::Platform), Some(backend)) = (lb, backend)
        && !Capabilities::of(backend).load_balancers
    {
        let network = values.text("network").unwrap_or_default();
        let message = format!("backend={} has no load balancers on network {network}", backend.name());
        let help = "use lb=keepalived or lb=user; lb=platform requires backend=openstack, or backend=kubevirt with network=pod";
        values.problem(&["lb"], message, help);
    }
    let has_vips = given.is_none_or(|given| given.api_ip.is_some() && given.ingress_ip.is_some());
    if lb == Some(Lb::User) && !has_vips {
        values.problem(
            &["lb"],
            "lb=user requires `api_ip` and `ingress_ip`",
            "set them to the addresses of your load balancer",
        );
    }
    if dhcp == Some(Dhcp::User) && harvest == Some(Harvest::Reserve) {
        values.problem(
            &["dhcp", "harvest"],
            "dhcp=user and harvest=reserve cannot be combined",
            "use harvest=boot to get addresses from your DHCP server, or harvest=static to set them in this file",
        );
    }
    lb
}

/// Reads `dns`. With a DNS server on the nodes, `ocpdeploy-resolver` sets their search domains; with dns=user, their
/// connection does.
///
/// OVN-Kubernetes takes over the search domains of a static connection only (openshift/machine-config-operator:
/// templates/common/_base/files/configure-ovs-network.yaml, `convert_to_bridge`).
pub(super) fn dns(values: &mut Values<'_>, search: Option<&[String]>, dhcp: Option<Dhcp>) -> Option<Dns> {
    let dns = values.choice("dns");
    let has_search = search.is_some_and(|domains| !domains.is_empty());
    if has_search && dns == Some(Dns::User) && matches!(dhcp, Some(Dhcp::Platform | Dhcp::User)) {
        values.problem(
            &["dns_search", "dns"],
            "dns_search and dns=user cannot be combined where nodes get their addresses by DHCP",
            "set the domains on the DHCP server (option 119) and remove dns_search, or use dns=dnsmasq",
        );
    }
    dns
}

/// Whether an address is link-local. A router may have no other IPv6 address.
fn is_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

pub(super) fn given_ips(given: &GivenAddresses) -> Vec<(&'static str, IpAddr)> {
    let gateway = given.gateway.iter().map(|ip| ("gateway", *ip));
    let api = given.api_ip.iter().map(|ip| ("api_ip", *ip));
    let ingress = given.ingress_ip.iter().map(|ip| ("ingress_ip", *ip));
    let bootstrap = given.bootstrap_ip.iter().map(|ip| ("bootstrap_ip", *ip));
    let masters = given.master_ips.iter().map(|ip| ("master_ips", *ip));
    let arbiter = given.arbiter_ip.iter().map(|ip| ("arbiter_ip", *ip));
    let workers = given.worker_ips.iter().map(|ip| ("worker_ips", *ip));
    gateway
        .chain(api)
        .chain(ingress)
        .chain(bootstrap)
        .chain(masters)
        .chain(arbiter)
        .chain(workers)
        .collect()
}

fn no_doubles<T: Ord + Copy + std::fmt::Display>(
    values: &mut Values<'_>,
    items: &[(&'static str, T)],
    allowed: impl Fn(&str, &str) -> bool,
) {
    let mut first: BTreeMap<T, &'static str> = BTreeMap::new();
    for (name, item) in items {
        match first.get(item) {
            Some(other) if allowed(other, name) => {}
            Some(other) if other == name => {
                values.problem(&[*name], format!("{item} is listed twice in `{name}`"), "");
            }
            Some(other) => {
                values.problem(
                    &[*name, *other],
                    format!("{item} is used in both `{other}` and `{name}`"),
                    "",
                );
            }
            None => {
                first.insert(*item, name);
            }
        }
    }
}

/// Checks that each list has an entry for every machine. `harvest=static` requires all addresses.
pub(super) fn counts(
    values: &mut Values<'_>,
    given: Option<&GivenAddresses>,
    address_ranges: Option<&[AddressRange]>,
    harvest: Option<Harvest>,
    masters: Option<(usize, bool)>,
    workers: Option<usize>,
    pools: &[Pool],
) {
    let Some(given) = given else {
        return;
    };
    let (masters, arbiter) = masters.unzip();
    for (name, is_given) in [
        ("arbiter_mac", given.arbiter_mac.is_some()),
        ("arbiter_ip", given.arbiter_ip.is_some()),
    ] {
        if is_given && arbiter == Some(false) {
            let message = format!("`{name}` is set, but the cluster has no arbiter");
            values.problem(&[name], message, "remove it, or set `masters=2` and `arbiter=1`");
        }
    }
    let lists = [
        ("master_macs", given.master_macs.len(), "masters", masters),
        ("master_ips", given.master_ips.len(), "masters", masters),
        ("worker_macs", given.worker_macs.len(), "workers", workers),
        ("worker_ips", given.worker_ips.len(), "workers", workers),
    ];
    for (list, length, machines, wanted) in lists {
        if let Some(wanted) = wanted.filter(|wanted| length != 0 && length != *wanted) {
            let machine = machines.trim_end_matches('s');
            let message = format!("`{list}` has {} for {}", count(length, "entry"), count(wanted, machine));
            values.problem(&[list, machines], message, "list one for each, or none");
        }
    }
    // `address_ranges` provides the others.
    if harvest != Some(Harvest::Static) || address_ranges.is_none_or(|ranges| !ranges.is_empty()) {
        return;
    }
    let missing: Vec<&str> = [
        ("api_ip", given.api_ip.is_none()),
        ("ingress_ip", given.ingress_ip.is_none()),
        ("bootstrap_ip", given.bootstrap_ip.is_none()),
        ("master_ips", given.master_ips.is_empty() && masters != Some(0)),
        ("arbiter_ip", given.arbiter_ip.is_none() && arbiter == Some(true)),
        ("worker_ips", given.worker_ips.is_empty() && workers != Some(0)),
        ("pool_ips", pools.iter().any(|pool| pool.ips.len() < pool.nodes)),
    ]
    .into_iter()
    .filter_map(|(name, missing)| missing.then_some(name))
    .collect();
    if !missing.is_empty() {
        values.problem(
            &["harvest"],
            format!("harvest=static requires all addresses; not set: {}", missing.join(", ")),
            "set them, or `address_ranges` from which they are chosen",
        );
    }
}
