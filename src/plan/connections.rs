//! The connections of all nodes with a file of `network_config`.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use crate::backend::Nic;
use crate::cluster::{ClusterConfig, Dhcp, Mac, NetworkConfig, NodeName, beside};
use crate::node::host::HostFile;
use crate::node::network_config::{
    self, AddressFamily, Addressing, ConnectionTarget, Ipv6Address, NetworkConfigDocument, NetworkConfigFault,
    StaticAddress,
};
use crate::plan::machines;
use crate::plan::node_settings::StaticIpv6;
use crate::state::parameters::{NodeAddress, Parameters};

/// A file of `network_config` that is invalid for a node.
#[derive(Debug)]
pub struct ConnectionsError<'a> {
    pub file: &'a NetworkConfig,
    pub fault: NetworkConfigFault,
}

impl ConnectionsError<'_> {
    /// The file, with line and column if they are known.
    pub fn place(&self) -> String {
        let path = self.file.path.display();
        let span = self.fault.span.as_ref();
        let Some(before) = span.and_then(|span| self.file.text.get(..span.start)) else {
            return path.to_string();
        };
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!("{path}:{line}:{column}")
    }
}

impl fmt::Display for ConnectionsError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place(), self.fault.message)
    }
}

/// The files of each node's connections. Without a table, static addresses are not compared.
pub fn connections<'a>(
    config: &'a ClusterConfig,
    table: Option<&Parameters>,
) -> Result<BTreeMap<NodeName, Vec<HostFile>>, ConnectionsError<'a>> {
    if config.network_config.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut documents = Vec::new();
    for file in &config.network_config {
        let document = NetworkConfigDocument::read(&file.text).map_err(|fault| ConnectionsError { file, fault })?;
        documents.push((file, document));
    }
    let macs = machines::macs(config, &Default::default());
    let mut all = BTreeMap::new();
    for machine in machines::pass_two(config, &macs, table) {
        let Some(file) = config.network_config_of(&machine.node) else {
            continue;
        };
        let Some((_, document)) = documents.iter().find(|(other, _)| std::ptr::eq(*other, file)) else {
            continue;
        };
        let files = of_node(config, table, (&machine.node, machine.ip), &machine.nics, document);
        let files = files.map_err(|fault| ConnectionsError { file, fault })?;
        all.insert(machine.node, files);
    }
    Ok(all)
}

/// The files of an external node's connections; `None` without a file for it. `macs` are those of its NICs.
pub fn of_external<'a>(
    config: &'a ClusterConfig,
    table: &Parameters,
    node: &NodeAddress,
    macs: &[Mac],
) -> Result<Option<Vec<HostFile>>, ConnectionsError<'a>> {
    let Some(file) = config.network_config_of(&node.name) else {
        return Ok(None);
    };
    let network = &table.network;
    let nics: Vec<_> = macs
        .iter()
        .map(|mac| Nic {
            network: network.clone(),
            mac: *mac,
        })
        .collect();
    let node = (&node.name, Some(node.ip));
    let files = NetworkConfigDocument::read(&file.text)
        .and_then(|document| of_node(config, Some(table), node, &nics, &document));
    files.map(Some).map_err(|fault| ConnectionsError { file, fault })
}

fn of_node(
    config: &ClusterConfig,
    table: Option<&Parameters>,
    (node, ip): (&NodeName, Option<IpAddr>),
    nics: &[Nic],
    document: &NetworkConfigDocument,
) -> Result<Vec<HostFile>, NetworkConfigFault> {
    let addressing = match (config.dhcp, table, ip) {
        (Dhcp::Platform | Dhcp::User, ..) => Addressing::Dhcp,
        (Dhcp::None, Some(table), Some(ip)) => Addressing::Static(StaticAddress {
            ip,
            prefix: table.machine_network.prefix(),
            gateway: table.gateway,
            name_servers: &table.resolvers,
            search: &config.dns_search,
        }),
        (Dhcp::None, ..) => addresses_of_settings(config, ip),
    };
    let second = |of: StaticIpv6| Ipv6Address {
        ip: ip.map(|ip| beside(of.machine_network, ip)),
        prefix: of.machine_network.prefix(),
        gateway: of.gateway,
    };
    let target = ConnectionTarget {
        node,
        nics,
        addressing,
        ipv6: StaticIpv6::of(config, table).map(second),
        mtu: config.mtu,
        has_ovn_kubernetes: config.networks.network_type == "OVNKubernetes",
    };
    network_config::connections(document, &target)
}

/// The addresses that the env file sets; the platform may know the others.
fn addresses_of_settings(config: &ClusterConfig, ip: Option<IpAddr>) -> Addressing<'_> {
    match (ip, config.given.machine_network) {
        (Some(ip), Some(network)) => Addressing::Static(StaticAddress {
            ip,
            prefix: network.prefix(),
            gateway: config.given.gateway,
            name_servers: &config.given.name_servers,
            search: &config.dns_search,
        }),
        _ if config.is_ipv6_only() => Addressing::Later(AddressFamily::Ipv6),
        _ => Addressing::Later(AddressFamily::Ipv4),
    }
}
