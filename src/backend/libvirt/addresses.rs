//! The addresses of machines: from libvirt's DHCP leases, or, where libvirt is not the DHCP server, from the guest agent
//! or the host's ARP table.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use virt::connect::Connect;
use virt::domain::Domain;
use virt::sys;

use super::attachment::Attachment;
use super::domain::TaggedDomain;
use super::ffi::DhcpLease;
use super::network;
use super::session::checked_text;
use crate::backend::error::if_exists;
use crate::backend::{BackendError, Nic, Power};
use crate::cluster::Mac;

/// Fails at once if no agent is connected, and does not taint the domain as a custom agent command does.
const AGENT: sys::virDomainInterfaceAddressesSource = sys::VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT;
/// Some versions of libvirt return an error for an empty table.
const ARP: sys::virDomainInterfaceAddressesSource = sys::VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_ARP;

type Addresses = BTreeMap<Mac, Vec<IpAddr>>;

/// All addresses of the machines' MACs, so that conflicts are detected: IPv4, or IPv6 of a machine without IPv4. Leases
/// from before the machine's start do not count.
pub(super) fn addresses(connect: &Connect, found: &[(Domain, TaggedDomain, Power)]) -> Result<Addresses, BackendError> {
    let mut addresses = Addresses::new();
    let mut learn = |mac: Mac, ip: IpAddr| {
        let known = addresses.entry(mac).or_default();
        if !known.contains(&ip) {
            known.push(ip);
        }
    };
    let mut served: HashMap<&str, bool> = HashMap::new();
    for nic in found.iter().flat_map(|(_, tagged, _)| &tagged.ownership.nics) {
        if served.contains_key(nic.network.as_str()) {
            continue;
        }
        if Attachment::read(&nic.network).device().is_some() {
            served.insert(&nic.network, false);
            continue;
        }
        // A deleted network has no leases.
        let network = if_exists(connect.lookup_network_by_name(checked_text("network name", &nic.network)?))?;
        let query = |network| {
            let leases = network::valid_leases(&network)?;
            let serves = !leases.is_empty() || network::has_dhcp(&network)?;
            Ok::<_, BackendError>((leases, serves))
        };
        // It may also be deleted before the query.
        let answer = if_exists(network.map(query).transpose())?.flatten();
        let (leases, serves) = answer.unwrap_or_default();
        let old = found.iter().map(|(_, tagged, _)| &tagged.old_leases);
        let shown = leases.iter().filter(|lease| !old.clone().any(|old| is_old(old, lease)));
        shown.for_each(|lease| learn(lease.mac, lease.ip.into()));
        served.insert(&nic.network, serves);
    }
    for (domain, tagged, power) in found {
        let unserved = tagged.ownership.nics.iter().any(|nic| !served[nic.network.as_str()]);
        if unserved && *power == Power::Running {
            for (mac, ip) in of_guest(domain) {
                learn(mac, ip);
            }
        }
    }
    for known in addresses.values_mut() {
        if known.iter().any(IpAddr::is_ipv4) {
            known.retain(IpAddr::is_ipv4);
        }
    }
    Ok(addresses)
}

/// The addresses that a guest's agent reports, or else those in the ARP table of the host.
fn of_guest(domain: &Domain) -> Vec<(Mac, IpAddr)> {
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

/// Whether an address can be used on a network, and not only within the guest or on one link.
fn is_of_network(ip: &IpAddr) -> bool {
    let is_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    !ip.is_loopback() && !is_local
}

/// The leases that exist before a machine with these NICs starts.
///
/// They do not prove that it has booted: the leases of pass one are still valid in pass two, and in the next deployment.
/// dnsmasq gives a lease a new expiry each time it confirms it, and libvirt records that (dnsmasq: src/lease.c,
/// `lease_set_expires`, and `do_script_run` with `OPT_LEASE_RO`; libvirt/libvirt: src/network/bridge_driver.c,
/// `--leasefile-ro`, and src/network/leaseshelper.c). The domain has them in its metadata, so that every later command
/// judges by the same start. A start by somebody else, such as `virsh start`, does not renew them.
pub(super) fn leases_before(connect: &Connect, nics: &[Nic]) -> Result<Vec<DhcpLease>, BackendError> {
    let mut before = Vec::new();
    for nic in nics
        .iter()
        .filter(|nic| Attachment::read(&nic.network).device().is_none())
    {
        let network = if_exists(connect.lookup_network_by_name(checked_text("network name", &nic.network)?))?;
        // If the network is missing, the start of the machine reports it.
        let leases = if_exists(network.map(|network| network::valid_leases(&network)).transpose())?;
        let leases = leases.flatten().unwrap_or_default().into_iter();
        before.extend(leases.filter(|lease| lease.mac == nic.mac));
    }
    Ok(before)
}

/// Whether a lease is one of those from before the start. An infinite lease never changes, so it counts as new.
fn is_old(old: &[DhcpLease], lease: &DhcpLease) -> bool {
    lease.expires != 0 && old.contains(lease)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_old_until_it_is_confirmed() {
        let mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
        let lease = |last, expires| DhcpLease {
            mac,
            ip: [192, 168, 122, last].into(),
            expires,
        };
        let old = [lease(2, 100), lease(5, 0)];
        assert!(is_old(&old, &lease(2, 100)));
        for (new, why) in [
            (lease(2, 101), "confirmed"),
            (lease(3, 100), "another address"),
            (lease(5, 0), "infinite"),
        ] {
            assert!(!is_old(&old, &new), "{why}");
        }
    }
}
