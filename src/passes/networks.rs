//! Networks that must not overlap: the machines', the cluster's, and the internal ones of OVN-Kubernetes before 4.19.
//!
//! Later installers compare the last ones themselves (`cluster::limits`).

use ipnetwork::IpNetwork;

use crate::backend::{Finding, NetworkFacts, Verdict};
use crate::cluster::limits::{OVN_CHECK, OvnNetwork, ovn_networks};
use crate::cluster::{ClusterConfig, major_minor, overlap};

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
    found
}

/// Overlaps with the networks of OVN-Kubernetes, in releases whose installer does not compare them.
///
/// The operator rejects a cluster or service network that overlaps with one (openshift/cluster-network-operator:
/// `pkg/network/ovn_kubernetes.go`, `validateOVNKubernetesSubnets`).
pub(super) fn of_ovn_kubernetes(config: &ClusterConfig, facts: &NetworkFacts, version: &str) -> Vec<Finding> {
    // A rehearsal has no installer that compares them.
    let release = match config.is_rehearsal() {
        true => Some(OVN_CHECK),
        false => major_minor(version).filter(|release| *release < OVN_CHECK),
    };
    let Some(release) = release.filter(|_| config.networks.network_type == "OVNKubernetes") else {
        return Vec::new();
    };
    let networks = &config.networks;
    let machines = config.given.machine_network.or(facts.cidr);
    let ipv6 = config.ipv6.as_ref();
    let all = [
        (format!("network {}", config.network), machines),
        ("cluster_network".to_owned(), Some(networks.cluster_network)),
        ("service_network".to_owned(), Some(networks.service_network)),
        (
            "machine_network".to_owned(),
            ipv6.map(|ipv6| ipv6.machine_network.into()),
        ),
        (
            "cluster_network".to_owned(),
            ipv6.map(|ipv6| ipv6.cluster_network.into()),
        ),
        (
            "service_network".to_owned(),
            ipv6.map(|ipv6| ipv6.service_network.into()),
        ),
    ];
    let mut found = Vec::new();
    for (name, network) in all.into_iter().filter_map(|(name, network)| Some((name, network?))) {
        for (own, range) in ovn_networks(network, networks.ovn_join_network, release) {
            found.push(of_ovn(config, &format!("{name} is {network}"), range, own));
        }
    }
    found
}

fn of_ovn(config: &ClusterConfig, what: &str, range: IpNetwork, own: &OvnNetwork) -> Finding {
    Finding {
        // A manifest of the user may have moved the network of OVN-Kubernetes.
        verdict: match config.manifests {
            Some(_) => Verdict::Warn,
            None => Verdict::Fail,
        },
        hint: Some(format!(
            "use another range. To move the network of OVN-Kubernetes instead, before 4.19 add a manifest for the \
             Network operator ({}) to the directory `manifests`; from 4.18, ovn_join_network moves its join network",
            own.field
        )),
        ..Finding::fail(format!(
            "{what}, which overlaps with {range}, the {} network of OVN-Kubernetes on every node",
            own.name
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
            let found = of_ovn_kubernetes(&config, &NetworkFacts::default(), "4.18.1");
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
            let mut found = findings(&config, &facts);
            found.extend(of_ovn_kubernetes(&config, &facts, "4.18.1"));
            let failed = found.iter().filter(|finding| finding.verdict == Verdict::Fail);
            let texts: Vec<_> = failed.map(|finding| finding.text.as_str()).collect();
            assert_eq!(texts, expected, "{machines} {cluster} {kind}");
        }
    }
}
