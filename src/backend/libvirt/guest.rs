//! Addresses if libvirt is not the DHCP server: reported by the guest agent, else from the ARP table of the host.

use std::net::IpAddr;

use virt::domain::Domain;
use virt::sys;

use crate::cluster::Mac;

/// Fails at once if no agent is connected, and does not taint the domain as a custom agent command does.
const AGENT: sys::virDomainInterfaceAddressesSource = sys::VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT;
/// Some versions of libvirt return an error for an empty table.
const ARP: sys::virDomainInterfaceAddressesSource = sys::VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_ARP;

pub(super) fn addresses(domain: &Domain) -> Vec<(Mac, IpAddr)> {
    let interfaces = [AGENT, ARP]
        .into_iter()
        .find_map(|source| domain.interface_addresses(source, 0).ok())
        .unwrap_or_default();
    let mut found = Vec::new();
    for interface in interfaces {
        let Some(Ok(mac)) = interface.hwaddr.map(|mac| mac.parse::<Mac>()) else {
            continue;
        };
        let ips = interface.addrs.iter().filter_map(|address| address.addr.parse().ok());
        found.extend(ips.filter(is_of_network).map(|ip| (mac, ip)));
    }
    found
}

/// Whether an address may be one of a network, and not of the guest or a link alone.
fn is_of_network(ip: &IpAddr) -> bool {
    let is_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    !ip.is_loopback() && !is_local
}
