//! A network of Neutron.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};
use serde_json::Value;

use super::wire::text;
use crate::backend::{BackendError, BackendErrorKind};

/// A network with its subnets.
#[derive(Debug)]
pub(super) struct NeutronNetwork {
    pub id: String,
    pub name: String,
    pub project: String,
    pub is_external: bool,
    /// Whether ports are filtered. Otherwise there are neither security groups nor address pairs.
    pub port_security: bool,
    pub mtu: Option<u16>,
    /// That of the nodes first.
    pub subnets: Vec<Subnet>,
    pub ipv6_subnets: Vec<Ipv6Subnet>,
}

/// An IPv4 subnet.
#[derive(Debug)]
pub(super) struct Subnet {
    pub id: String,
    pub cidr: Ipv4Network,
    pub gateway: Option<Ipv4Addr>,
    pub dhcp: bool,
    pub pools: Vec<(Ipv4Addr, Ipv4Addr)>,
    pub resolvers: Vec<Ipv4Addr>,
}

impl Subnet {
    pub fn read(subnet: &Value) -> Option<Self> {
        let pool = |pool: &Value| Some((text(pool, "start").parse().ok()?, text(pool, "end").parse().ok()?));
        let list = |key: &str| subnet[key].as_array().into_iter().flatten();
        Some(Self {
            id: text(subnet, "id").to_owned(),
            cidr: text(subnet, "cidr").parse().ok()?,
            gateway: text(subnet, "gateway_ip").parse().ok(),
            dhcp: subnet["enable_dhcp"] == true,
            pools: list("allocation_pools").filter_map(pool).collect(),
            resolvers: list("dns_nameservers")
                .filter_map(|ip| ip.as_str()?.parse().ok())
                .collect(),
        })
    }
}

#[derive(Debug)]
pub(super) struct Ipv6Subnet {
    pub id: String,
    pub cidr: Ipv6Network,
    pub gateway: Option<Ipv6Addr>,
    /// Whether Neutron gives each port the address of its MAC, and no other one (openstack/neutron:
    /// `neutron/db/ipam_pluggable_backend.py`, `_get_auto_address_ips` and `_test_fixed_ips_for_port`).
    pub is_automatic: bool,
}

impl Ipv6Subnet {
    pub fn read(subnet: &Value) -> Option<Self> {
        // openstack/neutron: neutron/common/ipv6_utils.py, is_auto_address_subnet.
        let is_automatic = |mode| matches!(text(subnet, mode), "slaac" | "dhcpv6-stateless");
        Some(Self {
            id: text(subnet, "id").to_owned(),
            cidr: text(subnet, "cidr").parse().ok()?,
            gateway: text(subnet, "gateway_ip").parse().ok(),
            is_automatic: is_automatic("ipv6_address_mode") || is_automatic("ipv6_ra_mode"),
        })
    }
}

impl NeutronNetwork {
    /// The subnet of the nodes.
    pub fn main(&self) -> Option<&Subnet> {
        self.subnets.first()
    }

    pub fn subnet_of(&self, ip: IpAddr) -> Result<&Subnet, BackendError> {
        self.subnets
            .iter()
            .find(|subnet| IpNetwork::V4(subnet.cidr).contains(ip))
            .ok_or_else(|| {
                let cidrs = self.subnets.iter().map(|subnet| subnet.cidr.to_string());
                self.has_no_subnet(&ip, cidrs.collect())
            })
    }

    pub fn ipv6_subnet_of(&self, ip: Ipv6Addr) -> Result<&Ipv6Subnet, BackendError> {
        let mut subnets = self.ipv6_subnets.iter();
        subnets.find(|subnet| subnet.cidr.contains(ip)).ok_or_else(|| {
            let cidrs = self.ipv6_subnets.iter().map(|subnet| subnet.cidr.to_string());
            self.has_no_subnet(&ip, cidrs.collect())
        })
    }

    fn has_no_subnet(&self, ip: &dyn Display, cidrs: Vec<String>) -> BackendError {
        let cidrs = cidrs.join(", ");
        let message = format!("{ip} is not in a subnet of network {}: {cidrs}", self.name);
        BackendError::new(BackendErrorKind::Rejected, message)
    }
}
