//! What openshift-install accepts as networks.

use ipnetwork::{IpNetwork, Ipv4Network};
use serde_json::{Value, json};

use super::field::{list, text};
use crate::cluster::overlap;

/// The shortest prefixes of a service network, of IPv4 and of IPv6.
pub const SERVICE_PREFIX: (u8, u8) = (12, 108);
/// First release that compares networks with those of OVN-Kubernetes.
pub const OVN_CHECK: (u32, u32) = (4, 19);
/// First release with `networking.ovnKubernetesConfig`.
pub const JOIN_FIELD: (u32, u32) = (4, 18);

/// The lists of `networking`.
const LISTS: [&str; 3] = ["machineNetwork", "clusterNetwork", "serviceNetwork"];

/// A network that OVN-Kubernetes uses on every node by default.
pub struct OvnNetwork {
    pub name: &'static str,
    pub range: &'static str,
    /// Below `ovnKubernetesConfig` of the Network operator.
    pub field: &'static str,
    since: (u32, u32),
    until: (u32, u32),
}

/// The IPv4 join network, the only one with a field in the install-config.
const JOIN: &str = "ipv4.internalJoinSubnet";

const OPEN: (u32, u32) = (u32::MAX, 0);

/// Source: openshift/cluster-network-operator, `pkg/network/ovn_kubernetes.go` of release-4.12 to release-4.23
/// (7c93f33c7, 2026-08-21), `defaultV4InternalSubnet`, `defaultV4TransitSwitchSubnet`, `defaultV4MasqueradeSubnet` and
/// those of IPv6. Before 4.14 there is no transit network.
const OVN_NETWORKS: [OvnNetwork; 8] = [
    ovn("join", "100.64.0.0/16", JOIN, (4, 1), OPEN),
    ovn(
        "transit",
        "100.88.0.0/16",
        "ipv4.internalTransitSwitchSubnet",
        (4, 14),
        OPEN,
    ),
    ovn(
        "masquerade",
        "169.254.169.0/29",
        "gatewayConfig.ipv4.internalMasqueradeSubnet",
        (4, 1),
        (4, 16),
    ),
    ovn(
        "masquerade",
        "169.254.0.0/17",
        "gatewayConfig.ipv4.internalMasqueradeSubnet",
        (4, 17),
        OPEN,
    ),
    ovn("join", "fd98::/64", "ipv6.internalJoinSubnet", (4, 1), OPEN),
    ovn(
        "transit",
        "fd97::/64",
        "ipv6.internalTransitSwitchSubnet",
        (4, 14),
        OPEN,
    ),
    ovn(
        "masquerade",
        "fd69::/125",
        "gatewayConfig.ipv6.internalMasqueradeSubnet",
        (4, 1),
        (4, 16),
    ),
    ovn(
        "masquerade",
        "fd69::/112",
        "gatewayConfig.ipv6.internalMasqueradeSubnet",
        (4, 17),
        OPEN,
    ),
];

const fn ovn(
    name: &'static str,
    range: &'static str,
    field: &'static str,
    since: (u32, u32),
    until: (u32, u32),
) -> OvnNetwork {
    OvnNetwork {
        name,
        range,
        field,
        since,
        until,
    }
}

/// The networks of OVN-Kubernetes in a release that one of the cluster's overlaps with. `join` replaces its IPv4 join
/// network.
pub fn ovn_networks(
    network: IpNetwork,
    join: Option<Ipv4Network>,
    release: (u32, u32),
) -> impl Iterator<Item = (&'static OvnNetwork, IpNetwork)> {
    let of_release = OVN_NETWORKS
        .iter()
        .filter(move |own| (own.since..=own.until).contains(&release));
    of_release.filter_map(move |own| {
        let range = match join.filter(|_| own.field == JOIN) {
            Some(join) => IpNetwork::V4(join),
            None => own.range.parse().ok()?,
        };
        overlap(network, range).then_some((own, range))
    })
}

/// The networks of a list.
pub(super) fn of<'a>(install_config: &'a Value, name: &str) -> impl Iterator<Item = IpNetwork> + use<'a> {
    let items = list(install_config, &format!("/networking/{name}"));
    items.filter_map(|item| item.as_str().or_else(|| item.get("cidr")?.as_str())?.parse().ok())
}

pub(super) fn join(install_config: &Value) -> Option<Ipv4Network> {
    text(
        install_config,
        "/networking/ovnKubernetesConfig/ipv4/internalJoinSubnet",
    )
    .parse()
    .ok()
}

fn is_ovn_kubernetes(install_config: &Value) -> bool {
    text(install_config, "/networking/networkType").eq_ignore_ascii_case("OVNKubernetes")
}

pub(super) fn overlaps(install_config: &Value, _: (u32, u32)) -> Vec<String> {
    let mut found = Vec::new();
    let mut known: Vec<(&str, IpNetwork)> = Vec::new();
    for name in LISTS {
        for network in of(install_config, name) {
            if network.ip() != network.network() || network.ip().is_unspecified() {
                found.push(format!("{name}: {network} is not the address of a network"));
            }
            let others = known.iter().filter(|(_, other)| overlap(network, *other));
            found.extend(
                others.map(|(other_name, other)| format!("{name}: {network} overlaps with {other_name} {other}")),
            );
            known.push((name, network));
        }
        if of(install_config, name).next().is_none() {
            found.push(format!("it requires {name}"));
        }
    }
    found
}

pub(super) fn host_prefix(install_config: &Value, _: (u32, u32)) -> Vec<String> {
    let mut found = Vec::new();
    for item in list(install_config, "/networking/clusterNetwork") {
        let network = item
            .get("cidr")
            .and_then(Value::as_str)
            .and_then(|cidr| cidr.parse::<IpNetwork>().ok());
        let prefix = item.get("hostPrefix").and_then(Value::as_u64).unwrap_or_default();
        let Some(network) = network.filter(|_| prefix != 0 || is_ovn_kubernetes(install_config)) else {
            continue;
        };
        if prefix < u64::from(network.prefix()) {
            found.push(format!("a node's /{prefix} is larger than {network}"));
        } else if network.is_ipv6() && prefix != 64 {
            found.push(format!("a node's subnet of {network} is a /64, not a /{prefix}"));
        }
    }
    found
}

pub(super) fn service_prefix(install_config: &Value, _: (u32, u32)) -> Vec<String> {
    let is_large = |network: &IpNetwork| {
        let (ipv4, ipv6) = SERVICE_PREFIX;
        network.prefix() < if network.is_ipv4() { ipv4 } else { ipv6 }
    };
    let large = of(install_config, "serviceNetwork").filter(is_large);
    large.map(|network| format!("{network} is too large")).collect()
}

/// Networks in the default IPv4 join network; `join_network` compares with one that is set.
pub(super) fn in_join_network(install_config: &Value, release: (u32, u32)) -> Vec<String> {
    match join(install_config) {
        Some(_) => Vec::new(),
        None => in_ovn_kubernetes(install_config, release, |own| own.field == JOIN),
    }
}

pub(super) fn in_other_networks(install_config: &Value, release: (u32, u32)) -> Vec<String> {
    in_ovn_kubernetes(install_config, release, |own| own.field != JOIN)
}

fn in_ovn_kubernetes(install_config: &Value, release: (u32, u32), wanted: impl Fn(&OvnNetwork) -> bool) -> Vec<String> {
    if !is_ovn_kubernetes(install_config) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for name in LISTS {
        for network in of(install_config, name) {
            let own = ovn_networks(network, None, release).filter(|(own, _)| wanted(own));
            found.extend(own.map(|(own, range)| {
                format!(
                    "{name}: {network} overlaps with {range}, the {} network of OVN-Kubernetes",
                    own.name
                )
            }));
        }
    }
    found
}

pub(super) fn without_join_field(install_config: &Value, release: (u32, u32)) -> Vec<String> {
    let Some(given) = install_config.pointer("/networking/ovnKubernetesConfig") else {
        return Vec::new();
    };
    if release < JOIN_FIELD {
        return vec![format!("it has no such field before {}.{}", JOIN_FIELD.0, JOIN_FIELD.1)];
    }
    match *given == json!({"ipv4": {"internalJoinSubnet": text(given, "/ipv4/internalJoinSubnet")}}) {
        true => Vec::new(),
        false => vec!["its only field is ipv4.internalJoinSubnet".to_owned()],
    }
}

pub(super) fn join_network(install_config: &Value, _: (u32, u32)) -> Vec<String> {
    let Some(join) = join(install_config) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    if !is_ovn_kubernetes(install_config) {
        found.push("only OVN-Kubernetes has a join network".to_owned());
    }
    if join.ip() != join.network() || join.ip().is_unspecified() {
        found.push(format!("{join} is not the address of a network"));
    }
    for name in LISTS {
        let others = of(install_config, name).filter(|network| overlap(IpNetwork::V4(join), *network));
        found.extend(others.map(|network| format!("{join} overlaps with {name} {network}")));
    }
    let items = list(install_config, "/networking/clusterNetwork");
    let pods = items.filter_map(|item| {
        let network: Ipv4Network = item.get("cidr")?.as_str()?.parse().ok()?;
        let prefix = u8::try_from(item.get("hostPrefix")?.as_u64()?).ok()?;
        Some((network, prefix))
    });
    found.extend(join_network_problem(join, pods));
    found
}

/// Why a join network is too small: it needs an address for each node that the pod networks have a subnet for, and three
/// more (`isV4NodeSubnetLargeEnough`).
pub fn join_network_problem(join: Ipv4Network, pods: impl Iterator<Item = (Ipv4Network, u8)>) -> Option<String> {
    let nodes: u64 = pods
        .map(|(network, prefix)| 1u64 << prefix.saturating_sub(network.prefix()).min(32))
        .sum();
    let addresses = 1u64 << (32 - join.prefix().min(32));
    (nodes + 3 >= addresses).then(|| format!("{join} is too small: clusterNetwork has subnets for {nodes} nodes"))
}
