//! Clusters of many shapes, and the files their nodes get.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use ipnetwork::Ipv6Network;
use ocpdeploy::cluster::{ClusterConfig, Dhcp, Ipv6Table, Role, beside};
use ocpdeploy::node::host::HostParts;
use ocpdeploy::node::services::{IMAGES, Input, Release, haproxy, keepalived};
use ocpdeploy::state::parameters::{Parameters, VrrpPassword};

use super::cluster;

/// The properties of a cluster that determine its services.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub masters: usize,
    pub workers: usize,
    /// `api_ip` and `ingress_ip` are one.
    pub one_vip: bool,
    /// Prefix length of the machine network.
    pub prefix: u8,
    /// The node's address is on a bridge over its NIC.
    pub use_br: bool,
    pub masters_schedulable: bool,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}-prefix-{}", self.masters, self.workers, self.prefix)?;
        for (set, word) in [
            (self.one_vip, "one-vip"),
            (self.use_br, "bridge"),
            (self.masters_schedulable, "schedulable"),
        ] {
            if set {
                write!(f, "-{word}")?;
            }
        }
        Ok(())
    }
}

/// A cluster of a shape, with its table.
pub struct Made {
    pub config: ClusterConfig,
    pub parameters: Parameters,
    pub release: Release,
}

impl Made {
    /// Cluster `name` with the addresses from `first` on: the VIPs, then the nodes.
    pub fn new(name: &str, shape: Shape, first: Ipv4Addr) -> Self {
        let mut config = cluster::config();
        config.name = name.to_owned();
        config.masters = shape.masters;
        // Two masters must have one.
        config.arbiter = shape.masters == 2;
        config.workers = shape.workers;
        config.use_br = shape.use_br;
        config.masters_schedulable = shape.masters_schedulable;
        let mut parameters = cluster::parameters(&config, first);
        let ip = |index: usize| IpAddr::V4(Ipv4Addr::from(u32::from(first) + u32::try_from(index).unwrap()));
        parameters.machine_network = format!("{first}/{}", shape.prefix).parse().unwrap();
        parameters.ingress_ip = if shape.one_vip { first.into() } else { ip(1) };
        let [.., id] = first.octets();
        parameters.virtual_router_id = id;
        parameters.ingress_virtual_router_id = id + 1;
        parameters.vrrp_password = Some(VrrpPassword::from_random([id; 8]));
        for (index, node) in parameters.nodes.iter_mut().enumerate() {
            node.ip = ip(index + 2);
        }
        let image = |name: &&str| {
            let reference = format!("registry.example.com/release/{name}@sha256:{}", "0".repeat(64));
            ((*name).to_owned(), reference)
        };
        let release = Release {
            version: (4, 19),
            images: IMAGES.iter().map(image).collect(),
        };
        Self {
            config,
            parameters,
            release,
        }
    }

    /// The same cluster with a second address family.
    pub fn with_ipv6(mut self) -> Self {
        add_ipv6(&mut self.parameters);
        self
    }

    /// The same cluster without IPv4.
    pub fn of_ipv6(mut self) -> Self {
        remove_ipv4(&mut self.parameters);
        self.config.dhcp = Dhcp::None;
        self.config.networks.cluster_network = "fd01::/48".parse().unwrap();
        self.config.networks.host_prefix = 64;
        self.config.networks.service_network = "fd02::/112".parse().unwrap();
        self
    }

    pub fn input(&self) -> Input<'_> {
        Input {
            config: &self.config,
            parameters: &self.parameters,
            release: &self.release,
            leased: &[],
        }
    }

    /// What all nodes of a role get from keepalived and haproxy.
    pub fn parts(&self, role: Role) -> HostParts {
        let input = self.input();
        let mut parts = keepalived::parts(&input, role).unwrap();
        parts.extend(haproxy::parts(&input, role).unwrap());
        parts
    }
}

/// Gives a table a second address family: nodes in fd00:1::/64, VIPs in addition to their IPv4 addresses.
pub fn add_ipv6(parameters: &mut Parameters) {
    let machine_network = "fd00:1::/64".parse().unwrap();
    parameters.ipv6 = Some(Ipv6Table {
        machine_network,
        gateway: "fd00:1::1".parse().unwrap(),
        api_ip: beside(machine_network, parameters.api_ip),
        ingress_ip: beside(machine_network, parameters.ingress_ip),
    });
}

/// Removes IPv4 from a table: each address is the one that it would have in the second family.
pub fn remove_ipv4(parameters: &mut Parameters) {
    let network: Ipv6Network = "fd00:1::/64".parse().unwrap();
    for ip in [&mut parameters.api_ip, &mut parameters.ingress_ip] {
        *ip = beside(network, *ip).into();
    }
    for node in &mut parameters.nodes {
        node.ip = beside(network, node.ip).into();
    }
    parameters.machine_network = network.into();
    parameters.gateway = Some("fd00:1::1".parse().unwrap());
    parameters.resolvers = vec!["fd00:1::1".parse().unwrap()];
}
