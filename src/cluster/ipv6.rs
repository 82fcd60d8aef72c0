//! The second address family of a dual-stack cluster. IPv4 is the first family and identifies machines; the IPv6
//! address of a machine is derived from its IPv4 address.

use std::net::{IpAddr, Ipv6Addr};

use ipnetwork::Ipv6Network;
use serde::{Deserialize, Serialize};

use super::names::{NodeName, Vip};

/// The longest prefix of a machine network: the other bits contain an IPv4 address.
pub const LONGEST_IPV6_PREFIX: u8 = 96;

/// The prefix length of the subnet of `cluster_network` that each node gets: the only one that openshift/installer
/// accepts (`pkg/types/validation/installconfig.go`, `validateClusterNetwork`).
pub const IPV6_HOST_PREFIX: u8 = 64;

/// The IPv6 settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ipv6Settings {
    pub machine_network: Ipv6Network,
    pub cluster_network: Ipv6Network,
    pub service_network: Ipv6Network,
    /// Read from the platform if not set.
    pub gateway: Option<Ipv6Addr>,
    pub api_ip: Option<Ipv6Addr>,
    pub ingress_ip: Option<Ipv6Addr>,
}

impl Ipv6Settings {
    /// The VIP's address, if it is set.
    pub fn given_vip(&self, vip: Vip) -> Option<Ipv6Addr> {
        match vip {
            Vip::Api => self.api_ip,
            Vip::Ingress => self.ingress_ip,
        }
    }

    /// The address of a VIP with this IPv4 address.
    pub fn vip(&self, vip: Vip, ip: IpAddr) -> Ipv6Addr {
        self.given_vip(vip).unwrap_or_else(|| beside(self.machine_network, ip))
    }

    /// The address of a node or VIP with this IPv4 address.
    pub fn address_of(&self, name: &NodeName, ip: IpAddr) -> Ipv6Addr {
        match vip_named(name) {
            Some(vip) => self.vip(vip, ip),
            None => beside(self.machine_network, ip),
        }
    }

    /// The addresses of a cluster with these VIPs.
    pub fn table(&self, gateway: Ipv6Addr, [api, ingress]: [IpAddr; 2]) -> Ipv6Table {
        Ipv6Table {
            machine_network: self.machine_network,
            gateway,
            api_ip: self.vip(Vip::Api, api),
            ingress_ip: self.vip(Vip::Ingress, ingress),
        }
    }
}

/// The IPv6 addresses of a cluster that are not derived from its IPv4 addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ipv6Table {
    pub machine_network: Ipv6Network,
    pub gateway: Ipv6Addr,
    pub api_ip: Ipv6Addr,
    pub ingress_ip: Ipv6Addr,
}

impl Ipv6Table {
    pub fn vip(&self, vip: Vip) -> Ipv6Addr {
        match vip {
            Vip::Api => self.api_ip,
            Vip::Ingress => self.ingress_ip,
        }
    }

    /// The address of a node or VIP with this IPv4 address.
    pub fn address_of(&self, name: &NodeName, ip: IpAddr) -> Ipv6Addr {
        vip_named(name).map_or_else(|| self.beside(ip), |vip| self.vip(vip))
    }

    /// The address of the machine with this IPv4 address.
    pub fn beside(&self, ip: IpAddr) -> Ipv6Addr {
        beside(self.machine_network, ip)
    }
}

fn vip_named(name: &NodeName) -> Option<Vip> {
    Vip::ALL.into_iter().find(|vip| NodeName::vip(*vip) == *name)
}

/// The IPv6 address of the machine with this IPv4 address: the network's prefix, zeros, and the IPv4 address. An IPv6
/// address is returned unchanged.
pub fn beside(network: Ipv6Network, ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => Ipv6Addr::from_bits(network.network().to_bits() | u128::from(ip.to_bits())),
        IpAddr::V6(ip) => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_address_ends_in_the_ipv4_address() {
        for (network, expected) in [
            ("fd00:1::/64", "fd00:1::c0a8:7a0b"),
            ("2001:db8:1:2::/64", "2001:db8:1:2::c0a8:7a0b"),
            ("2001:db8::5:0:0/96", "2001:db8::5:c0a8:7a0b"),
        ] {
            let address = beside(network.parse().unwrap(), IpAddr::from([192, 168, 122, 11]));
            assert_eq!(address.to_string(), expected, "{network}");
        }
    }

    #[test]
    fn a_vip_has_its_own_address_if_one_is_set() {
        let settings = Ipv6Settings {
            machine_network: "fd00:1::/64".parse().unwrap(),
            cluster_network: "fd01::/48".parse().unwrap(),
            service_network: "fd02::/112".parse().unwrap(),
            gateway: None,
            api_ip: Some("fd00:1::10".parse().unwrap()),
            ingress_ip: None,
        };
        let ips = [5, 6].map(|number| IpAddr::from([10, 0, 0, number]));
        let table = settings.table("fe80::1".parse().unwrap(), ips);
        for (name, ip, expected) in [
            (NodeName::vip(Vip::Api), ips[0], "fd00:1::10"),
            (NodeName::vip(Vip::Ingress), ips[1], "fd00:1::a00:6"),
            (NodeName::bootstrap(), IpAddr::from([10, 0, 0, 7]), "fd00:1::a00:7"),
        ] {
            let addresses = [settings.address_of(&name, ip), table.address_of(&name, ip)];
            assert_eq!(addresses.map(|ip| ip.to_string()), [expected; 2], "{name}");
        }
    }
}
