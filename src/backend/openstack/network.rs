//! A network of Neutron.

use std::net::Ipv4Addr;

use ipnetwork::Ipv4Network;
use serde_json::Value;

use super::wire::text;
use crate::backend::BackendErrorKind;
use crate::backend::failure::Failure;

/// A network with its IPv4 subnets.
#[derive(Debug)]
pub(super) struct Network {
    pub id: String,
    pub name: String,
    pub project: String,
    pub is_external: bool,
    /// Whether ports are filtered. Otherwise there are neither security groups nor address pairs.
    pub port_security: bool,
    pub subnets: Vec<Subnet>,
}

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

impl Network {
    /// The subnet of the nodes: preferably one with DHCP.
    pub fn main(&self) -> Option<&Subnet> {
        self.subnets.iter().find(|subnet| subnet.dhcp).or(self.subnets.first())
    }

    pub fn subnet_of(&self, ip: Ipv4Addr) -> Result<&Subnet, Failure> {
        self.subnets
            .iter()
            .find(|subnet| subnet.cidr.contains(ip))
            .ok_or_else(|| {
                let ranges: Vec<_> = self.subnets.iter().map(|subnet| subnet.cidr.to_string()).collect();
                let message = format!(
                    "{ip} is not in a subnet of network {}: {}",
                    self.name,
                    ranges.join(", ")
                );
                Failure::new(BackendErrorKind::Rejected, message)
            })
    }
}
