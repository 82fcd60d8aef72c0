//! Ranges of addresses of either family.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use serde::Serialize;

/// The addresses from the first to the last, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AddressRange {
    pub first: IpAddr,
    pub last: IpAddr,
}

impl AddressRange {
    pub fn contains(&self, ip: IpAddr) -> bool {
        (self.first..=self.last).contains(&ip)
    }

    pub fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let (ipv4, ipv6) = match (self.first, self.last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => (Some(first.to_bits()..=last.to_bits()), None),
            (IpAddr::V6(first), IpAddr::V6(last)) => (None, Some(first.to_bits()..=last.to_bits())),
            _ => (None, None),
        };
        let ipv4 = ipv4.into_iter().flatten().map(Ipv4Addr::from_bits).map(IpAddr::V4);
        let ipv6 = ipv6.into_iter().flatten().map(Ipv6Addr::from_bits).map(IpAddr::V6);
        ipv4.chain(ipv6)
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => self.first.fmt(f),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

/// Whether two networks have common addresses.
pub fn overlap(one: impl Into<IpNetwork>, other: impl Into<IpNetwork>) -> bool {
    let (one, other) = (one.into(), other.into());
    one.contains(other.network()) || other.contains(one.network())
}

/// Why no machine can have an address of its network; `None` if one can.
pub fn reserved_as(network: IpNetwork, ip: IpAddr) -> Option<&'static str> {
    match network {
        IpNetwork::V4(ipv4) if ipv4.prefix() < 31 => {
            (ip == ipv4.network() || ip == ipv4.broadcast()).then_some("the network or broadcast address")
        }
        // RFC 4291, section 2.6.1; a /127 has two routers and no such address (RFC 6164).
        IpNetwork::V6(ipv6) if ipv6.prefix() < 127 => (ip == ipv6.network()).then_some("the address of all routers"),
        IpNetwork::V4(_) | IpNetwork::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_includes_its_first_and_last_address() {
        for (first, last, all) in [
            (
                "10.0.0.254",
                "10.0.1.1",
                &["10.0.0.254", "10.0.0.255", "10.0.1.0", "10.0.1.1"][..],
            ),
            ("fd00::fffe", "fd00::1:0", &["fd00::fffe", "fd00::ffff", "fd00::1:0"]),
            ("255.255.255.255", "255.255.255.255", &["255.255.255.255"]),
            ("10.0.0.1", "fd00::1", &[]),
        ] {
            let range = AddressRange {
                first: first.parse().unwrap(),
                last: last.parse().unwrap(),
            };
            let found: Vec<String> = range.iter().map(|ip| ip.to_string()).collect();
            assert_eq!(found, all, "{range}");
        }
    }

    #[test]
    fn no_machine_has_the_first_address_nor_the_last_ipv4_address() {
        for (network, reserved, usable) in [
            (
                "10.0.0.0/24",
                &["10.0.0.0", "10.0.0.255"][..],
                &["10.0.0.1", "fd00::"][..],
            ),
            ("10.0.0.0/31", &[], &["10.0.0.0", "10.0.0.1"]),
            (
                "fd00::/64",
                &["fd00::"],
                &["fd00::1", "fd00::ffff:ffff:ffff:ffff", "10.0.0.0"],
            ),
            ("fd00::/127", &[], &["fd00::", "fd00::1"]),
        ] {
            let network: IpNetwork = network.parse().unwrap();
            let is_reserved = |ip: &&str| reserved_as(network, ip.parse().unwrap()).is_some();
            assert!(reserved.iter().all(is_reserved), "{network}");
            assert!(!usable.iter().any(is_reserved), "{network}");
        }
    }
}
