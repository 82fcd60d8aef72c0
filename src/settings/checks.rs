//! What must be true of the values, alone and together, before anything is made.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnetwork::Ipv4Network;

use super::values::Values;
use crate::cluster::{ClusterId, ClusterNetworks, Dhcp, GivenAddresses, Harvest, Lb, Mac, MachineName, NodeName, Role};

/// Longest label of a DNS name, and longest name that a Kubernetes node can bear.
const LONGEST_NAME: usize = 63;
const MOST_MACHINES: u64 = 1000;

/// Cluster and base domain.
pub(super) fn names(values: &mut Values<'_>) -> Option<(String, String)> {
    let required = [
        ("cluster", "a name such as `cluster=lab`"),
        ("domain", "the base domain, such as `domain=example.com`"),
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
            format!("`cluster` has {} characters", cluster.len()),
            &format!("{most} fit, for machines are called {longest_machine}"),
        );
        return None;
    }
    let domain = domain?.join(".");
    let longest_host = ClusterId::new(&cluster, &domain).fqdn(NodeName::node(Role::Worker, 100).as_str());
    if longest_host.len() > LONGEST_NAME {
        values.problem(
            &["domain", "cluster"],
            format!(
                "`cluster` and `domain` are too long by {} characters",
                longest_host.len() - LONGEST_NAME
            ),
            &format!("a node's name has at most {LONGEST_NAME}, and one would be called {longest_host}"),
        );
        return None;
    }
    Some((cluster, domain))
}

/// The engine's address, without the `/api` that may end it.
pub(super) fn ovirt_url(text: &str) -> Result<String, String> {
    let plain = text.trim_end_matches('/');
    let plain = plain.strip_suffix("/api").unwrap_or(plain);
    let host = plain
        .strip_prefix("https://")
        .ok_or_else(|| format!("`{text}` does not begin with https://, and a password is never sent in clear"))?;
    let (host, path) = host.split_once('/').unwrap_or((host, "ovirt-engine"));
    if host.is_empty() || host.contains(['@', '?', '#', ' ']) || path.contains(['?', '#', ' ']) {
        return Err(format!(
            "`{text}` is not an address such as https://engine.example.com/ovirt-engine"
        ));
    }
    Ok(format!("https://{host}/{path}"))
}

fn dns_label(text: &str) -> Result<String, String> {
    let fits = !text.is_empty()
        && text.len() <= LONGEST_NAME
        && text
            .bytes()
            .all(|b| b == b'-' || b.is_ascii_lowercase() || b.is_ascii_digit())
        && !text.starts_with('-')
        && !text.ends_with('-');
    match fits {
        true => Ok(text.to_owned()),
        false if text.is_empty() => Err("a part of the name is empty".to_owned()),
        false => Err(format!(
            "`{text}` is not a DNS name: lower-case letters, digits and inner hyphens, at most {LONGEST_NAME}"
        )),
    }
}

pub(super) fn masters(values: &mut Values<'_>) -> Option<usize> {
    const HINT: &str = "etcd wants 1, 3 or 5";
    let masters = bounded(values, "masters", 0, MOST_MACHINES)?;
    match masters {
        0 => values.problem(&["masters"], "a cluster has at least one master", HINT),
        2 => values.problem(&["masters"], "two masters survive less than one", HINT),
        4 => values.warn("masters", "four masters survive no more losses than three"),
        1 | 3 | 5 => {}
        _ => values.warn("masters", "more than five masters make etcd slower, not safer"),
    }
    usize::try_from(masters).ok()
}

pub(super) fn workers(values: &mut Values<'_>) -> Option<usize> {
    usize::try_from(bounded(values, "workers", 0, MOST_MACHINES)?).ok()
}

pub(super) fn cpus(values: &mut Values<'_>, name: &'static str) -> Option<u32> {
    u32::try_from(bounded(values, name, 1, 512)?).ok()
}

/// MiB; the least is what a rehearsal's guest needs.
pub(super) fn memory(values: &mut Values<'_>, name: &'static str) -> Option<u64> {
    bounded(values, name, 128, 16 << 20)
}

/// GiB.
pub(super) fn disk(values: &mut Values<'_>, name: &'static str) -> Option<u64> {
    bounded(values, name, 1, 64 << 10)
}

pub(super) fn extra_disks(values: &mut Values<'_>) -> Option<Vec<u64>> {
    let sizes = values.numbers("extra_disks")?;
    if sizes.contains(&0) {
        values.problem(&["extra_disks"], "`extra_disks`: a disk has at least 1 GiB", "");
    }
    if sizes.len() > 16 {
        values.problem(
            &["extra_disks"],
            format!("`extra_disks`: {} disks are more than 16", sizes.len()),
            "",
        );
    }
    Some(sizes)
}

fn bounded(values: &mut Values<'_>, name: &'static str, least: u64, most: u64) -> Option<u64> {
    let number = values.number(name)?;
    if (least..=most).contains(&number) {
        return Some(number);
    }
    let unit = match super::variables::find(name).map(|variable| variable.kind) {
        Some(super::variables::Kind::Mib) => " MiB",
        Some(super::variables::Kind::Gib) => " GiB",
        _ => "",
    };
    values.problem(
        &[name],
        format!("`{name}`: {number}{unit} is not between {least} and {most}{unit}"),
        "",
    );
    None
}

/// Warns of sizes below what OpenShift's documentation asks of machines.
pub(super) fn sizes(values: &mut Values<'_>, workers: Option<usize>) {
    if values.sources.rehearse {
        return;
    }
    let mut least = vec![
        ("master_memory", 16384, " MiB"),
        ("bootstrap_memory", 16384, " MiB"),
        ("numcpus", 4, ""),
        ("bootstrap_numcpus", 4, ""),
        ("disk_size", 100, " GiB"),
    ];
    if workers.is_some_and(|workers| workers > 0) {
        least.push(("worker_memory", 8192, " MiB"));
    }
    for (name, least, unit) in least {
        let number = values.value(name).and_then(|value| value.text.parse::<u64>().ok());
        if let Some(number) = number.filter(|number| *number < least) {
            values.warn(
                name,
                &format!("{name}={number} is below the {least}{unit} that OpenShift asks for"),
            );
        }
    }
}

/// MACs that a NIC can bear.
pub(super) fn macs(values: &mut Values<'_>, name: &'static str) -> Option<Vec<Mac>> {
    values.list(name, |text| {
        let mac: Mac = text.parse()?;
        match mac.is_unicast() {
            true => Ok(mac),
            false => Err(format!(
                "`{text}` is not the MAC of one machine; its first byte must be even"
            )),
        }
    })
}

pub(super) fn virtual_router_id(text: &str) -> Result<u8, String> {
    text.parse()
        .ok()
        .filter(|id| *id > 0)
        .ok_or_else(|| format!("`{text}` is not between 1 and 255"))
}

/// The name of an object of Kubernetes (RFC 1123 subdomain).
pub(super) fn kube_name(text: &str) -> Result<String, String> {
    match text.len() <= 253 && text.split('.').all(|label| dns_label(label).is_ok()) {
        true => Ok(text.to_owned()),
        false => Err(format!("`{text}` is not a name in Kubernetes")),
    }
}

/// Where CDI takes uploads: a host, or an https URL.
pub(super) fn upload_proxy(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("https://").unwrap_or(text);
    match host.is_empty() || host.contains("://") || host.contains(['@', '?', '#']) {
        true => Err(format!("`{text}` is neither a host nor an https URL")),
        false => Ok(text.to_owned()),
    }
}

/// Whether an image is something that KubeVirt has or fetches itself.
pub(super) fn is_kubevirt_image(text: &str) -> bool {
    const KINDS: [&str; 5] = ["pvc:", "datasource:", "containerdisk:", "docker://", "import:"];
    KINDS.iter().any(|kind| text.starts_with(kind))
}

/// The name or address of a host.
pub(super) fn host(text: &str) -> Result<String, String> {
    let is_name = text.len() <= 253 && text.split('.').all(|label| dns_label(label).is_ok());
    match is_name || text.parse::<std::net::IpAddr>().is_ok() {
        true => Ok(text.to_owned()),
        false => Err(format!("`{text}` is neither a DNS name nor an address")),
    }
}

/// The URL of an image, perhaps with `#sha256=<hex>` at its end.
pub fn image_url(text: &str) -> Result<String, String> {
    let (url, sum) = text.split_once('#').unwrap_or((text, ""));
    let is_sum = |sum: &str| sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit());
    if !sum.is_empty() && !sum.strip_prefix("sha256=").is_some_and(is_sum) {
        return Err(format!("`#{sum}` is not #sha256= and 64 hexadecimal digits"));
    }
    http_url(url)?;
    match url.rsplit('/').next() {
        Some(name) if !name.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("`{text}` names no file")),
    }
}

/// A sha256, 64 hexadecimal digits, in lower case.
pub(super) fn sha256(text: &str) -> Result<String, String> {
    let text = text.split_whitespace().next().unwrap_or_default();
    match text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(format!("`{text}` is not a sha256, 64 hexadecimal digits")),
    }
}

/// The URL of a folder, without a / at its end.
pub(super) fn folder_url(text: &str) -> Result<String, String> {
    http_url(text)?;
    match text.contains(['?', '#']) {
        true => Err(format!("`{text}` is not the URL of a folder")),
        false => Ok(text.trim_end_matches('/').to_owned()),
    }
}

fn http_url(text: &str) -> Result<(), String> {
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"))
        .ok_or_else(|| format!("`{text}` is neither an http nor an https URL"))?;
    let host = rest.split('/').next().unwrap_or_default();
    // Not repeated: it may hold a password.
    if host.contains('@') {
        return Err("a password in a URL ends up in logs; use a mirror that needs none".to_owned());
    }
    match host.is_empty() || text.contains(char::is_whitespace) {
        true => Err(format!("`{text}` is not a URL")),
        false => Ok(()),
    }
}

/// The URL of a proxy, which may hold a password and is never repeated.
pub(super) fn proxy_url(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let host = host.map(|host| host.rsplit('@').next().unwrap_or_default());
    match host {
        Some(host) if !host.is_empty() && !text.contains(char::is_whitespace) => Ok(text.to_owned()),
        _ => Err("it is not a URL such as http://proxy.example.com:3128".to_owned()),
    }
}

/// What is reached without a proxy: `*`, a host, a domain with or without its dot, an address or a network.
pub(super) fn no_proxy(text: &str) -> Result<String, String> {
    let is_network = text.split_once('/').is_some_and(|(ip, prefix)| {
        ip.parse::<std::net::IpAddr>().is_ok() && prefix.parse::<u8>().is_ok_and(|p| p <= 128)
    });
    match text == "*" || is_network || host(text.strip_prefix('.').unwrap_or(text)).is_ok() {
        true => Ok(text.to_owned()),
        false => Err(format!("`{text}` is neither *, a host, a domain nor a network")),
    }
}

/// `None`, `vCurrent` or `v4.19` (openshift/api: config/v1/types_cluster_version.go).
pub(super) fn capability_set(text: &str) -> Result<String, String> {
    let is_version = text.strip_prefix('v').and_then(crate::cluster::major_minor).is_some();
    match is_version || ["None", "vCurrent"].contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "`{text}` is none of None, vCurrent and a version such as v4.19"
        )),
    }
}

pub(super) fn capability(text: &str) -> Result<String, String> {
    match !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        true => Ok(text.to_owned()),
        false => Err(format!("`{text}` is not the name of a capability, such as Console")),
    }
}

/// Prefix length of a node's part of the pod network.
pub(super) fn host_prefix(values: &mut Values<'_>, cluster_network: Option<Ipv4Network>) -> Option<u8> {
    let prefix = bounded(values, "cluster_host_prefix", 1, 30)?;
    if let Some(network) = cluster_network.filter(|network| prefix <= u64::from(network.prefix())) {
        values.problem(
            &["cluster_host_prefix", "cluster_network"],
            format!("`cluster_host_prefix`: /{prefix} is not a part of {network}"),
            "it is the prefix length of the part of the cluster network that one node gets",
        );
        return None;
    }
    u8::try_from(prefix).ok()
}

/// The pod network has a part for every node.
pub(super) fn room_for_nodes(
    values: &mut Values<'_>,
    networks: Option<&ClusterNetworks>,
    masters: Option<usize>,
    workers: Option<usize>,
) {
    let (Some(networks), Some(masters), Some(workers)) = (networks, masters, workers) else {
        return;
    };
    let parts = 1usize << (networks.host_prefix - networks.cluster_network.prefix());
    if masters + workers > parts {
        values.problem(
            &["cluster_network", "cluster_host_prefix", "workers", "masters"],
            format!(
                "{} has {parts} parts of /{}, too few for {} nodes",
                networks.cluster_network,
                networks.host_prefix,
                masters + workers
            ),
            "take a larger network or a longer prefix",
        );
    }
}

/// Networks do not overlap, addresses lie in the machine network, and none is given twice.
pub(super) fn addresses(values: &mut Values<'_>, given: Option<&GivenAddresses>, networks: Option<&ClusterNetworks>) {
    let mut known = Vec::new();
    if let Some(networks) = networks {
        known.push(("cluster_network", networks.cluster_network));
        known.push(("service_network", networks.service_network));
    }
    if let Some(machine_network) = given.and_then(|given| given.machine_network) {
        known.push(("machine_network", machine_network));
    }
    for (index, (name, network)) in known.iter().enumerate() {
        for (other_name, other) in &known[..index] {
            if network.contains(other.network()) || other.contains(network.network()) {
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
    let addresses = given_ips(given);
    for (name, ip) in &addresses {
        for (network_name, network) in &known {
            let inside = network.contains(*ip);
            if *network_name != "machine_network" && inside {
                values.problem(
                    &[*name, *network_name],
                    format!("`{name}`: {ip} is in `{network_name}` {network}"),
                    "",
                );
            } else if *network_name == "machine_network" && !inside {
                values.problem(
                    &[*name, *network_name],
                    format!("`{name}`: {ip} is outside {network}"),
                    "",
                );
            } else if inside && network.prefix() < 31 && (*ip == network.network() || *ip == network.broadcast()) {
                let message = format!("`{name}`: {ip} is the network or broadcast address of {network}");
                values.problem(&[*name, *network_name], message, "");
            }
        }
    }
    // Both VIPs may be one address; nothing else may be.
    let both_vips = |a: &str, b: &str| [a, b] == ["api_ip", "ingress_ip"];
    no_doubles(values, &addresses, both_vips);
    let bootstrap = given.bootstrap_mac.iter().map(|mac| ("bootstrap_mac", *mac));
    let masters = given.master_macs.iter().map(|mac| ("master_macs", *mac));
    let workers = given.worker_macs.iter().map(|mac| ("worker_macs", *mac));
    no_doubles(
        values,
        &bootstrap.chain(masters).chain(workers).collect::<Vec<_>>(),
        |_, _| false,
    );
}

/// What is the user's own needs what the user alone knows.
pub(super) fn own_services(
    values: &mut Values<'_>,
    given: Option<&GivenAddresses>,
    harvest: Option<Harvest>,
    lb: Option<Lb>,
    dhcp: Option<Dhcp>,
) {
    let vips = given.is_none_or(|given| given.api_ip.is_some() && given.ingress_ip.is_some());
    if lb == Some(Lb::User) && !vips {
        values.problem(
            &["lb"],
            "lb=user needs `api_ip` and `ingress_ip`",
            "they are the addresses of your load balancer",
        );
    }
    if dhcp == Some(Dhcp::User) && harvest == Some(Harvest::Reserve) {
        values.problem(
            &["dhcp", "harvest"],
            "dhcp=user and harvest=reserve contradict each other",
            "harvest=boot asks your DHCP server, harvest=static takes the addresses from this file",
        );
    }
}

fn given_ips(given: &GivenAddresses) -> Vec<(&'static str, Ipv4Addr)> {
    let api = given.api_ip.iter().map(|ip| ("api_ip", *ip));
    let ingress = given.ingress_ip.iter().map(|ip| ("ingress_ip", *ip));
    let bootstrap = given.bootstrap_ip.iter().map(|ip| ("bootstrap_ip", *ip));
    let masters = given.master_ips.iter().map(|ip| ("master_ips", *ip));
    let workers = given.worker_ips.iter().map(|ip| ("worker_ips", *ip));
    api.chain(ingress)
        .chain(bootstrap)
        .chain(masters)
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
                values.problem(&[*name], format!("{item} stands twice in `{name}`"), "");
            }
            Some(other) => {
                values.problem(&[*name, *other], format!("{item} is in `{other}` and in `{name}`"), "");
            }
            None => {
                first.insert(*item, name);
            }
        }
    }
}

/// Lists are as long as there are machines; `harvest=static` needs every address.
pub(super) fn counts(
    values: &mut Values<'_>,
    given: Option<&GivenAddresses>,
    harvest: Option<Harvest>,
    masters: Option<usize>,
    workers: Option<usize>,
) {
    let Some(given) = given else {
        return;
    };
    let lists = [
        ("master_macs", given.master_macs.len(), "masters", masters),
        ("master_ips", given.master_ips.len(), "masters", masters),
        ("worker_macs", given.worker_macs.len(), "workers", workers),
        ("worker_ips", given.worker_ips.len(), "workers", workers),
    ];
    for (list, length, machines, count) in lists {
        if let Some(count) = count.filter(|count| length != 0 && length != *count) {
            let message = format!("`{list}` has {length} entries for {count} {machines}");
            values.problem(&[list, machines], message, "give one for each, or none");
        }
    }
    if harvest != Some(Harvest::Static) {
        return;
    }
    let missing: Vec<&str> = [
        ("api_ip", given.api_ip.is_none()),
        ("ingress_ip", given.ingress_ip.is_none()),
        ("bootstrap_ip", given.bootstrap_ip.is_none()),
        ("master_ips", given.master_ips.is_empty() && masters != Some(0)),
        ("worker_ips", given.worker_ips.is_empty() && workers != Some(0)),
    ]
    .into_iter()
    .filter_map(|(name, missing)| missing.then_some(name))
    .collect();
    if !missing.is_empty() {
        values.problem(
            &["harvest"],
            format!(
                "harvest=static needs every address, and these are not set: {}",
                missing.join(", ")
            ),
            "",
        );
    }
}
