//! The nodes' network configuration besides their addresses, as far as the settings determine it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use ipnetwork::{IpNetwork, Ipv6Network};
use serde::Serialize;

use crate::cluster::{ClusterConfig, Dhcp, NodeName, NodeSpec};
use crate::state::parameters::Parameters;

/// The same for all nodes, except for `connections`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NodeSettings {
    /// With `dhcp=none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub static_network: Option<StaticNetwork>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<NodeMtu>,
    /// Besides the cluster's own domain.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns_search: Vec<String>,
    /// With two address families.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<StaticIpv6>,
    /// Replace CoreOS's defaults.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ntp_servers: Vec<String>,
    /// `http` and `https`, without their URLs, which may contain passwords.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub proxies: Vec<&'static str>,
    /// Files of `network_config`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub connections: BTreeMap<NodeName, PathBuf>,
}

/// The requirements of static addresses; values that the settings lack are queried from the platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StaticNetwork {
    pub machine_network: Option<IpNetwork>,
    pub gateway: Option<IpAddr>,
    pub name_servers: Vec<IpAddr>,
}

/// The MTU of the machine network, and what is left of it for pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NodeMtu {
    pub node: u16,
    /// `None` for other network plugins.
    pub pods: Option<u16>,
}

impl NodeMtu {
    /// The network operator queries one node's MTU and subtracts the header of the overlay: 100 bytes for Geneve with
    /// options (openshift/cluster-network-operator: pkg/network/ovn_kubernetes.go, `getOVNEncapOverhead`), 50 for VXLAN
    /// (pkg/network/openshift_sdn.go).
    fn of(config: &ClusterConfig) -> Option<Self> {
        let node = config.mtu?;
        let header = match config.networks.network_type.as_str() {
            "OVNKubernetes" => Some(100),
            "OpenShiftSDN" => Some(50),
            _ => None,
        };
        let pods = header.and_then(|header| node.checked_sub(header));
        Some(Self { node, pods })
    }
}

/// The network of the nodes' IPv6 addresses; a gateway that the settings lack is queried from the platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StaticIpv6 {
    pub machine_network: Ipv6Network,
    pub gateway: Option<Ipv6Addr>,
}

impl StaticIpv6 {
    pub(super) fn of(config: &ClusterConfig, table: Option<&Parameters>) -> Option<Self> {
        match table {
            Some(table) => table.ipv6.as_ref().map(|ipv6| Self {
                machine_network: ipv6.machine_network,
                gateway: Some(ipv6.gateway),
            }),
            None => config.ipv6.as_ref().map(|ipv6| Self {
                machine_network: ipv6.machine_network,
                gateway: ipv6.gateway,
            }),
        }
    }
}

impl NodeSettings {
    pub fn new(config: &ClusterConfig, table: Option<&Parameters>) -> Self {
        let given = &config.given;
        let is_static = config.dhcp == Dhcp::None;
        let static_network = is_static.then(|| match table {
            Some(table) => StaticNetwork {
                machine_network: Some(table.machine_network),
                gateway: table.gateway,
                name_servers: table.resolvers.clone(),
            },
            None => StaticNetwork {
                machine_network: given.machine_network,
                gateway: given.gateway,
                name_servers: given.name_servers.clone(),
            },
        });
        let proxies = [("http", &config.proxy.http), ("https", &config.proxy.https)];
        let file = |node: NodeSpec<'_>| {
            let path = config.network_config_of(&node.name)?.path.clone();
            Some((node.name, path))
        };
        Self {
            static_network,
            mtu: NodeMtu::of(config),
            dns_search: config.dns_search.clone(),
            ipv6: StaticIpv6::of(config, table),
            ntp_servers: config.ntp_servers.clone(),
            proxies: proxies
                .into_iter()
                .filter_map(|(name, url)| url.as_ref().map(|_| name))
                .collect(),
            connections: config.nodes().into_iter().filter_map(file).collect(),
        }
    }

    /// One line for each.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(network) = &self.static_network {
            let mut line = "static addresses".to_owned();
            if let Some(range) = network.machine_network {
                line += &format!(" in {range}");
            }
            if let Some(gateway) = network.gateway {
                line += &format!(", gateway {gateway}");
            }
            if !network.name_servers.is_empty() {
                let servers: Vec<_> = network.name_servers.iter().map(IpAddr::to_string).collect();
                line += &format!(", name servers {}", servers.join(" and "));
            }
            lines.push(line);
        }
        if let Some(ipv6) = &self.ipv6 {
            let gateway = ipv6.gateway.map(|ip| format!(", gateway {ip}")).unwrap_or_default();
            let network = ipv6.machine_network;
            lines.push(format!(
                "static IPv6 addresses in {network}{gateway}, ending in the IPv4 address"
            ));
        }
        let mut files = BTreeMap::<_, Vec<&str>>::new();
        for (node, path) in &self.connections {
            files.entry(path).or_default().push(node.as_str());
        }
        for (path, nodes) in files {
            lines.push(format!("connections of {}: {}", nodes.join(", "), path.display()));
        }
        if let Some(mtu) = &self.mtu {
            let pods = mtu.pods.map(|pods| format!(", pods {pods}")).unwrap_or_default();
            lines.push(format!("MTU {}{pods}", mtu.node));
        }
        if !self.dns_search.is_empty() {
            lines.push(format!("DNS search domains {}", self.dns_search.join(", ")));
        }
        if !self.ntp_servers.is_empty() {
            lines.push(format!("NTP servers {}", self.ntp_servers.join(", ")));
        }
        if !self.proxies.is_empty() {
            lines.push(format!("proxies for {}", self.proxies.join(" and ")));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{NetworkConfig, NodeSelector, Role};

    #[test]
    fn settings_are_listed_without_passwords() {
        let mut config = ClusterConfig::example();
        assert_eq!(NodeSettings::new(&config, None).lines(), [""; 0]);
        config.dhcp = Dhcp::None;
        config.given.machine_network = Some("10.0.0.0/24".parse().unwrap());
        config.given.name_servers = vec![IpAddr::from([10, 0, 0, 2]), IpAddr::from([10, 0, 0, 3])];
        config.mtu = Some(9000);
        config.dns_search = vec!["example.net".to_owned(), "example.org".to_owned()];
        config.ntp_servers = vec!["ntp.example.com".to_owned()];
        config.proxy.http = Some("http://u:hunter2@proxy:3128".into());
        for (nodes, name) in [
            (NodeSelector::Role(Role::Worker), "worker.yaml"),
            (NodeSelector::Node(NodeName::node(Role::Worker, 0)), "first.yaml"),
        ] {
            config.network_config.push(NetworkConfig {
                nodes,
                path: name.into(),
                text: String::new(),
            });
        }
        assert_eq!(
            NodeSettings::new(&config, None).lines(),
            [
                "static addresses in 10.0.0.0/24, name servers 10.0.0.2 and 10.0.0.3",
                "connections of worker-0: first.yaml",
                "connections of worker-1: worker.yaml",
                "MTU 9000, pods 8900",
                "DNS search domains example.net, example.org",
                "NTP servers ntp.example.com",
                "proxies for http",
            ]
        );
        // The table of an existing cluster counts.
        let table = crate::state::parameters::tests::example();
        let network = NodeSettings::new(&config, Some(&table)).static_network.unwrap();
        assert_eq!(network.machine_network, Some(table.machine_network));
    }
}
