//! The networks inside a cluster.

use ipnetwork::{IpNetwork, Ipv4Network};
use serde::Serialize;

/// The networks inside the cluster, as in install-config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterNetworks {
    /// `OVNKubernetes` or another plugin's name.
    pub network_type: String,
    pub cluster_network: IpNetwork,
    /// Prefix length of the part of `cluster_network` that one node gets.
    pub host_prefix: u8,
    pub service_network: IpNetwork,
    /// Replaces the IPv4 join network of OVN-Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ovn_join_network: Option<Ipv4Network>,
}

impl ClusterNetworks {
    /// Whether IPv6 is their first family, and so their only one.
    pub fn is_ipv6_only(&self) -> bool {
        self.service_network.is_ipv6()
    }
}
