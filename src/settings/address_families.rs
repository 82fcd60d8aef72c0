//! Address families: IPv4, IPv6, or both, where settings list one item of each.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::{IpNetwork, Ipv6Network};

use super::parse;
use super::values::{Layer, Values};
use crate::backend::Capabilities;
use crate::cluster::{
    BackendConfig, ClusterConfig, ClusterNetworks, Dhcp, GivenAddresses, IPV6_HOST_PREFIX, Ipv6Settings,
    LONGEST_IPV6_PREFIX, Lb, Vip, beside, overlap,
};
use crate::printable::count;

/// The setting that decides which families the cluster has.
const NAME: &str = "machine_network";

/// The networks in the cluster if they are not set: those of OpenShift's documentation (Assisted Installer for OpenShift
/// Container Platform, "Converting to dual-stack networking").
const WITH_BOTH: [(&str, &str); 2] = [
    ("cluster_network", "10.128.0.0/14,fd01::/48"),
    ("service_network", "172.30.0.0/16,fd02::/112"),
];

/// As above, without IPv4.
const WITH_IPV6: [(&str, &str); 2] = [("cluster_network", "fd01::/48"), ("service_network", "fd02::/112")];

/// The shortest prefix of an IPv6 service network (kubernetes/kubernetes:
/// `cmd/kube-apiserver/app/options/validation.go`, `validateClusterIPFlags`).
const SERVICE_PREFIX: u8 = 108;

/// Gives the networks in the cluster the families of the machine network. Call it before they are read.
pub(super) fn set_defaults(values: &mut Values<'_>) {
    let (defaults, why) = match networks(values, NAME) {
        Some((_, Some(_))) => (&WITH_BOTH[..], "two address families"),
        Some((IpNetwork::V6(_), None)) => (&WITH_IPV6[..], "IPv6 only"),
        Some((IpNetwork::V4(_), None)) | None => (&[][..], ""),
    };
    let is_default =
        |values: &mut Values<'_>, name| values.value(name).is_none_or(|value| value.layer == Layer::Default);
    for (name, text) in defaults {
        if is_default(values, name) {
            values.replace(name, why, (*text).to_owned());
        }
    }
    if matches!(networks(values, "cluster_network"), Some((IpNetwork::V6(_), _)))
        && is_default(values, "cluster_host_prefix")
    {
        values.replace("cluster_host_prefix", "IPv6 only", IPV6_HOST_PREFIX.to_string());
    }
}

/// The networks of a setting, unless it is wrong or not set.
fn networks(values: &mut Values<'_>, name: &'static str) -> Option<(IpNetwork, Option<Ipv6Network>)> {
    parse::networks(&values.value(name)?.text).ok()
}

/// Whether the machine network is an IPv6 one alone.
fn is_ipv6_only(values: &mut Values<'_>) -> bool {
    matches!(networks(values, NAME), Some((IpNetwork::V6(_), _)))
}

/// The gateway in the family of the machine network, the first one if there are two.
pub(super) fn first_gateway(values: &mut Values<'_>) -> Option<IpAddr> {
    let (ipv4, ipv6) = values.read("gateway", parse::gateways)?;
    match is_ipv6_only(values) {
        true => ipv6.map(IpAddr::V6).or(ipv4.map(IpAddr::V4)),
        false => ipv4.map(IpAddr::V4),
    }
}

/// The second item of a setting; `None` if the setting is wrong, which is a problem of its own.
fn second<T, U>(
    values: &mut Values<'_>,
    name: &'static str,
    parse: impl Fn(&str) -> Result<(U, Option<T>), String>,
) -> Option<Option<T>> {
    match values.value(name) {
        Some(value) => parse(&value.text).ok().map(|(_, second)| second),
        None => Some(None),
    }
}

/// The second family; `Some(None)` without one, `None` after a problem.
pub(super) fn read(values: &mut Values<'_>) -> Option<Option<Ipv6Settings>> {
    let machine_network = second(values, NAME, parse::networks)?;
    let cluster_network = second(values, "cluster_network", parse::networks)?;
    let service_network = second(values, "service_network", parse::networks)?;
    // Without IPv4 it is the first one.
    let gateway = match is_ipv6_only(values) {
        true => None,
        false => second(values, "gateway", parse::gateways)?,
    };
    let api_ip = second(values, "api_ip", parse::addresses)?;
    let ingress_ip = second(values, "ingress_ip", parse::addresses)?;
    let Some(machine_network) = machine_network else {
        let ipv6: [(&'static str, Option<&dyn Display>); 5] = [
            ("cluster_network", cluster_network.as_ref().map(|network| network as _)),
            ("service_network", service_network.as_ref().map(|network| network as _)),
            ("gateway", gateway.as_ref().map(|ip| ip as _)),
            ("api_ip", api_ip.as_ref().map(|ip| ip as _)),
            ("ingress_ip", ingress_ip.as_ref().map(|ip| ip as _)),
        ];
        for (name, ipv6) in ipv6 {
            if let Some(ipv6) = ipv6 {
                let message = format!("`{name}` has {ipv6}, but `{NAME}` has no IPv6 network");
                let help = format!("set two networks, such as `{NAME}=192.168.122.0/24,fd00:1::/64`, or remove {ipv6}");
                values.problem(&[name, NAME], message, &help);
            }
        }
        return Some(None);
    };
    for (name, network) in [
        ("cluster_network", cluster_network),
        ("service_network", service_network),
    ] {
        if network.is_none() {
            let message = format!("`{name}` has no IPv6 network, but `{NAME}` has {machine_network}");
            values.problem(
                &[name, NAME],
                message,
                "list an IPv4 and an IPv6 network, or leave it out",
            );
        }
    }
    let settings = Ipv6Settings {
        machine_network,
        cluster_network: cluster_network?,
        service_network: service_network?,
        gateway,
        api_ip,
        ingress_ip,
    };
    check_networks(values, &settings);
    check_addresses(values, &settings);
    Some(Some(settings))
}

/// The networks are large enough and do not overlap.
fn check_networks(values: &mut Values<'_>, settings: &Ipv6Settings) {
    let Ipv6Settings {
        machine_network,
        cluster_network,
        service_network,
        ..
    } = settings;
    if machine_network.prefix() > LONGEST_IPV6_PREFIX {
        values.problem(
            &[NAME],
            format!(
                "`{NAME}`: {machine_network} is too small: nodes have their IPv4 address in the last 32 bits of their IPv6 address"
            ),
            &format!("use a prefix of at most /{LONGEST_IPV6_PREFIX}; /64 is usual"),
        );
    }
    inner_prefixes(values, *cluster_network, *service_network);
    let all = [
        (NAME, *machine_network),
        ("cluster_network", *cluster_network),
        ("service_network", *service_network),
    ];
    for (index, (name, network)) in all.iter().enumerate() {
        for (other_name, other) in &all[..index] {
            if overlap(*network, *other) {
                values.problem(
                    &[*name, *other_name],
                    format!("`{name}` {network} and `{other_name}` {other} overlap"),
                    "",
                );
            }
        }
    }
}

/// The networks in the cluster have the sizes that OpenShift accepts.
fn inner_prefixes(values: &mut Values<'_>, cluster_network: Ipv6Network, service_network: Ipv6Network) {
    if cluster_network.prefix() > IPV6_HOST_PREFIX {
        values.problem(
            &["cluster_network"],
            format!("`cluster_network`: {cluster_network} is too small: each node gets a /{IPV6_HOST_PREFIX} of it"),
            "use a shorter prefix, such as fd01::/48",
        );
    }
    if service_network.prefix() < SERVICE_PREFIX {
        values.problem(
            &["service_network"],
            format!(
                "`service_network`: {service_network} is too large: Kubernetes allows at most 20 bits for services"
            ),
            &format!("use a prefix of at least /{SERVICE_PREFIX}, such as fd02::/112"),
        );
    }
}

/// The networks in the cluster are of the machine network's first family. IPv6 ones have the sizes that OpenShift accepts.
pub(super) fn first_family(values: &mut Values<'_>, given: &GivenAddresses, networks: &ClusterNetworks) {
    let is_ipv6 = given.machine_network.is_some_and(|network| network.is_ipv6());
    let mut is_right = true;
    for (name, network) in [
        ("cluster_network", networks.cluster_network),
        ("service_network", networks.service_network),
    ] {
        if network.is_ipv6() == is_ipv6 {
            continue;
        }
        is_right = false;
        let message = match given.machine_network {
            Some(machines) => format!("`{name}` {network} and `{NAME}` {machines} are of different address families"),
            None => format!("`{name}` {network} is an IPv6 network, but `{NAME}` is not set"),
        };
        let help = format!("set `{NAME}` to an IPv6 network such as fd00:1::/64, or leave out `{name}`");
        values.problem(&[name, NAME], message, &help);
    }
    if let (true, IpNetwork::V6(cluster_network), IpNetwork::V6(service_network)) =
        (is_right, networks.cluster_network, networks.service_network)
    {
        inner_prefixes(values, cluster_network, service_network);
        if networks.host_prefix != IPV6_HOST_PREFIX {
            let message = format!("`cluster_host_prefix`: OpenShift requires {IPV6_HOST_PREFIX} with IPv6");
            values.problem(&["cluster_host_prefix"], message, "remove it");
        }
    }
}

/// The virtual IPs and the gateway are addresses of the machine network.
fn check_addresses(values: &mut Values<'_>, settings: &Ipv6Settings) {
    let network = settings.machine_network;
    let all = [
        ("gateway", settings.gateway),
        ("api_ip", settings.api_ip),
        ("ingress_ip", settings.ingress_ip),
    ];
    for (name, ip) in all {
        let Some(ip) = ip.filter(|ip| !ip.is_unicast_link_local()) else {
            continue;
        };
        let what = if !network.contains(ip) {
            format!("is outside {network}")
        } else if ip == network.network() {
            // RFC 4291, section 2.6.1.
            format!("is the address of all routers of {network}")
        } else if name != "gateway" && settings.gateway == Some(ip) {
            "is the gateway".to_owned()
        } else {
            continue;
        };
        values.problem(&[name, NAME], format!("`{name}`: {ip} {what}"), "");
    }
}

/// Compares the second family with all other settings.
pub(super) fn check(values: &mut Values<'_>, config: &ClusterConfig) {
    if config.is_ipv6_only() {
        check_ipv6_only(values, config);
        return;
    }
    let Some(ipv6) = &config.ipv6 else {
        check_admitted(values, config);
        return;
    };
    for (name, backend) in backends(config) {
        if !Capabilities::of(backend).static_ipv6 {
            let message = format!("two address families are not supported on {}", backend.name());
            values.problem(&[NAME, name], message, "use one IPv4 network, or libvirt or OpenStack");
        }
        if config.dhcp == Dhcp::User && backend.drops_unreserved() {
            let message = format!("two address families on {} require dhcp=platform", backend.name());
            let help = "remove dhcp: the platform drops packets from addresses that it has not reserved";
            values.problem(&["dhcp", NAME], message, help);
        }
    }
    if config.networks.network_type != "OVNKubernetes" {
        let message = format!(
            "two address families are not supported with network_type={}",
            config.networks.network_type
        );
        let help = "remove network_type, or use one IPv4 network";
        values.problem(&[NAME, "network_type"], message, help);
    }
    if config.lb == Lb::Platform {
        let message = "two address families are not supported with lb=platform";
        let help = "remove lb, or use one IPv4 network";
        values.problem(&["lb", NAME], message, help);
    }
    if config.lb == Lb::User && (ipv6.api_ip.is_none() || ipv6.ingress_ip.is_none()) {
        let message = "lb=user requires the IPv6 addresses of `api_ip` and `ingress_ip`";
        let help = "set them to the addresses of your load balancer, such as `api_ip=192.168.122.10,fd00:1::10`";
        values.problem(&["lb", NAME], message, help);
    }
    // Without the bootstrap.
    let nodes = config.masters + usize::from(config.arbiter) + config.all_workers();
    let bits = IPV6_HOST_PREFIX.checked_sub(ipv6.cluster_network.prefix());
    let subnets = bits.map(|bits| 1usize.checked_shl(bits.into()).unwrap_or(usize::MAX));
    if let Some(subnets) = subnets.filter(|subnets| nodes > *subnets) {
        let message = format!(
            "{} has {} of /{IPV6_HOST_PREFIX}, too few for {}",
            ipv6.cluster_network,
            count(subnets, "subnet"),
            count(nodes, "node")
        );
        values.problem(&["cluster_network"], message, "use a shorter prefix, such as fd01::/48");
    }
    check_vips(values, config, ipv6);
}

/// The platforms of the machines, with their settings.
fn backends(config: &ClusterConfig) -> impl Iterator<Item = (&'static str, &BackendConfig)> {
    let workers_on = config
        .workers_on
        .iter()
        .map(|workers| ("worker_backend", &workers.backend));
    std::iter::once(("backend", &config.backend)).chain(workers_on)
}

/// Without IPv4, nodes must have static addresses, and their platform must pass their config without a network: this
/// program cannot learn addresses that DHCPv6 or router advertisements assign.
fn check_ipv6_only(values: &mut Values<'_>, config: &ClusterConfig) {
    for (name, backend) in backends(config) {
        let capabilities = Capabilities::of(backend);
        if !capabilities.static_ipv6 || capabilities.carrier.requires_network {
            let message = format!("an IPv6 network without IPv4 is not supported on {}", backend.name());
            values.problem(
                &[NAME, name],
                message,
                "use an IPv4 network, or both families, or libvirt",
            );
        }
    }
    if config.dhcp != Dhcp::None {
        let message = "an IPv6 network without IPv4 requires dhcp=none";
        let help = "set `dhcp=none`, and the addresses of all machines or `address_ranges`";
        values.problem(&["dhcp", NAME], message, help);
    }
    if config.networks.network_type != "OVNKubernetes" {
        let message = format!(
            "IPv6 is not supported with network_type={}",
            config.networks.network_type
        );
        values.problem(
            &[NAME, "network_type"],
            message,
            "remove network_type, or use an IPv4 network",
        );
    }
}

/// With one family, the security group has no rules of the second one.
fn check_admitted(values: &mut Values<'_>, config: &ClusterConfig) {
    for (_, backend) in backends(config) {
        if let Some(network) = backend.admitted().iter().find(|network| network.is_ipv6()) {
            let message = format!("`os_admit` has {network}, but `{NAME}` has no IPv6 network");
            let help = format!("remove it, or use two address families, such as `{NAME}=10.0.0.0/24,fd00:1::/64`");
            values.problem(&["os_admit"], message, &help);
        }
    }
}

/// No virtual IP is the address of a node, and both are one address in both families or in none.
fn check_vips(values: &mut Values<'_>, config: &ClusterConfig, ipv6: &Ipv6Settings) {
    let given = &config.given;
    let vips = [
        (Vip::Api, "api_ip", given.api_ip),
        (Vip::Ingress, "ingress_ip", given.ingress_ip),
    ];
    for (vip, name, own) in vips {
        let other = ipv6
            .given_vip(vip)
            .and_then(|ip| Some((ip, node_at(ipv6, given.machine_network?, ip)?)));
        if let Some((ip, node)) = other.filter(|(_, node)| own != Some(*node)) {
            let message = format!("`{name}`: {ip} is the IPv6 address of the machine with {node}");
            values.problem(&[name, NAME], message, "choose another address, or leave it out");
        }
    }
    let (Some(api), Some(ingress)) = (given.api_ip, given.ingress_ip) else {
        return;
    };
    if (api == ingress) != (ipv6.vip(Vip::Api, api) == ipv6.vip(Vip::Ingress, ingress)) {
        let message = "`api_ip` and `ingress_ip` are the same in one address family only";
        values.problem(
            &["api_ip", "ingress_ip"],
            message,
            "use one address for both in both families, or in none",
        );
    }
}

/// The IPv4 address of the machine that has this address.
fn node_at(ipv6: &Ipv6Settings, network: IpNetwork, ip: Ipv6Addr) -> Option<IpAddr> {
    let [.., a, b, c, d] = ip.octets();
    let node = IpAddr::from(Ipv4Addr::new(a, b, c, d));
    (network.contains(node) && beside(ipv6.machine_network, node) == ip).then_some(node)
}
