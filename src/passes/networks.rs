//! Networks that must not overlap: the machines', the cluster's, and the internal ones of OVN-Kubernetes.

use ipnetwork::IpNetwork;

use crate::backend::{Finding, NetworkFacts, Verdict};
use crate::cluster::{ClusterConfig, overlap};

/// OVN-Kubernetes uses these on every node by default: `(name, range, field of the Network operator)`.
///
/// Source: openshift/cluster-network-operator: pkg/network/ovn_kubernetes.go, `defaultV4InternalSubnet`,
/// `defaultV4TransitSwitchSubnet`, `defaultV4MasqueradeSubnet` and those of IPv6; `validateOVNKubernetesSubnets`
/// rejects a cluster or service network that overlaps with one of them.
const OVN_KUBERNETES: [(&str, &str, &str); 6] = [
    ("join", "100.64.0.0/16", "ipv4.internalJoinSubnet"),
    ("transit", "100.88.0.0/16", "ipv4.internalTransitSwitchSubnet"),
    (
        "masquerade",
        "169.254.169.0/29",
        "gatewayConfig.ipv4.internalMasqueradeSubnet",
    ),
    ("join", "fd98::/64", "ipv6.internalJoinSubnet"),
    ("transit", "fd97::/64", "ipv6.internalTransitSwitchSubnet"),
    (
        "masquerade",
        "fd69::/125",
        "gatewayConfig.ipv6.internalMasqueradeSubnet",
    ),
];

/// The overlaps. `settings` has already compared the networks of the env file with each other.
pub(super) fn findings(config: &ClusterConfig, facts: &NetworkFacts) -> Vec<Finding> {
    let inner = [
        ("cluster_network", config.networks.cluster_network),
        ("service_network", config.networks.service_network),
    ];
    // The setting is more exact than a platform's whole range.
    let machines = config.given.machine_network.or(facts.cidr);
    let mut found = Vec::new();
    for (name, range) in inner {
        if let Some(machines) = machines.filter(|machines| overlap(*machines, range)) {
            found.push(
                Finding::fail(format!(
                    "network {} is {machines}, which overlaps with {name} {range}",
                    config.network
                ))
                .hint(format!("set {name} to a range that the machines do not use")),
            );
        }
    }
    if config.networks.network_type != "OVNKubernetes" {
        return found;
    }
    let second = config.ipv6.iter().flat_map(|ipv6| {
        [
            ("machine_network", ipv6.machine_network),
            ("cluster_network", ipv6.cluster_network),
            ("service_network", ipv6.service_network),
        ]
    });
    let second = second.map(|(name, network)| (name.to_owned(), IpNetwork::V6(network)));
    let all: Vec<_> = machines
        .map(|machines| (format!("network {}", config.network), machines))
        .into_iter()
        .chain(inner.map(|(name, network)| (name.to_owned(), network)))
        .chain(second)
        .collect();
    for (own, range, field) in OVN_KUBERNETES {
        let Ok(range) = range.parse::<IpNetwork>() else {
            continue;
        };
        for (name, other) in all.iter().filter(|(_, other)| overlap(*other, range)) {
            found.push(of_ovn(config, &format!("{name} is {other}"), range, own, field));
        }
    }
    found
}

fn of_ovn(config: &ClusterConfig, what: &str, range: IpNetwork, own: &str, field: &str) -> Finding {
    Finding {
        // One of the user's manifests may have moved it.
        verdict: match config.manifests {
            Some(_) => Verdict::Warn,
            None => Verdict::Fail,
        },
        hint: Some(format!(
            "use another range, or move that of OVN-Kubernetes with a manifest for the Network operator ({field}) in \
             the folder `manifests`"
        )),
        ..Finding::fail(format!(
            "{what}, which overlaps with {range}, the {own} network of OVN-Kubernetes on every node"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Ipv6Settings;

    #[test]
    fn ipv6_ranges_of_ovn_kubernetes_are_reported() {
        for (cluster, expected) in [
            ("fd01::/48", None),
            (
                "fd98::/48",
                Some(
                    "cluster_network is fd98::/48, which overlaps with fd98::/64, the join network of OVN-Kubernetes \
                     on every node",
                ),
            ),
        ] {
            let mut config = ClusterConfig::example();
            config.ipv6 = Some(Ipv6Settings {
                machine_network: "fd00:1::/64".parse().unwrap(),
                cluster_network: cluster.parse().unwrap(),
                service_network: "fd02::/112".parse().unwrap(),
                gateway: None,
                api_ip: None,
                ingress_ip: None,
            });
            let found = findings(&config, &NetworkFacts::default());
            let texts: Vec<_> = found.iter().map(|finding| finding.text.as_str()).collect();
            assert_eq!(texts, Vec::from_iter(expected));
        }
    }

    #[test]
    fn overlapping_ranges_are_reported_with_both_names() {
        for (machines, cluster, kind, manifests, expected) in [
            ("192.168.122.0/24", "10.128.0.0/14", "OVNKubernetes", false, vec![]),
            (
                "10.130.0.0/24",
                "10.128.0.0/14",
                "OpenShiftSDN",
                false,
                vec!["network lan is 10.130.0.0/24, which overlaps with cluster_network 10.128.0.0/14"],
            ),
            (
                "172.16.0.0/12",
                "10.128.0.0/14",
                "OVNKubernetes",
                false,
                vec!["network lan is 172.16.0.0/12, which overlaps with service_network 172.30.0.0/16"],
            ),
            (
                "100.64.7.0/24",
                "10.128.0.0/14",
                "OVNKubernetes",
                false,
                vec![
                    "network lan is 100.64.7.0/24, which overlaps with 100.64.0.0/16, the join network of \
                     OVN-Kubernetes on every node",
                ],
            ),
            ("100.64.7.0/24", "10.128.0.0/14", "OpenShiftSDN", false, vec![]),
            ("100.64.7.0/24", "10.128.0.0/14", "OVNKubernetes", true, vec![]),
            (
                "192.168.122.0/24",
                "100.80.0.0/12",
                "OVNKubernetes",
                false,
                vec![
                    "cluster_network is 100.80.0.0/12, which overlaps with 100.88.0.0/16, the transit network of \
                      OVN-Kubernetes on every node",
                ],
            ),
        ] {
            let mut config = ClusterConfig::example();
            config.network = "lan".to_owned();
            config.networks.cluster_network = cluster.parse().unwrap();
            config.networks.network_type = kind.to_owned();
            config.manifests = manifests.then(|| "manifests".into());
            let facts = NetworkFacts {
                cidr: Some(machines.parse().unwrap()),
                ..NetworkFacts::default()
            };
            let failed = findings(&config, &facts);
            let failed = failed.iter().filter(|finding| finding.verdict == Verdict::Fail);
            let texts: Vec<_> = failed.map(|finding| finding.text.as_str()).collect();
            assert_eq!(texts, expected, "{machines} {cluster} {kind}");
        }
    }
}
