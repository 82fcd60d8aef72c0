//! The addresses of machines: from libvirt's DHCP leases, or, where libvirt is not the DHCP server, from the guest agent
//! or the host's ARP table.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Mutex;

use virt::connect::Connect;
use virt::domain::Domain;
use virt::sys;

use super::attachment::Attachment;
use super::ffi::DhcpLease;
use super::network;
use super::session::{checked_text, lock};
use crate::backend::error::if_exists;
use crate::backend::ownership::Ownership;
use crate::backend::{BackendError, Nic, Power};
use crate::cluster::Mac;

/// Fails at once if no agent is connected, and does not taint the domain as a custom agent command does.
const AGENT: sys::virDomainInterfaceAddressesSource = sys::VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT;
/// Some versions of libvirt return an error for an empty table.
const ARP: sys::virDomainInterfaceAddressesSource = sys::VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_ARP;

type Addresses = BTreeMap<Mac, Vec<IpAddr>>;

/// All addresses of the machines' MACs, so that conflicts are detected: IPv4, or IPv6 of a machine without IPv4. Leases
/// from before the machine's start do not count.
pub(super) fn addresses(
    connect: &Connect,
    old: &OldLeases,
    found: &[(Domain, Ownership, Power)],
) -> Result<Addresses, BackendError> {
    let mut addresses = Addresses::new();
    let mut learn = |mac: Mac, ip: IpAddr| {
        let known = addresses.entry(mac).or_default();
        if !known.contains(&ip) {
            known.push(ip);
        }
    };
    let mut served: HashMap<&str, bool> = HashMap::new();
    for nic in found.iter().flat_map(|(_, ownership, _)| &ownership.nics) {
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
        let shown = leases.iter().filter(|lease| !old.contain(lease));
        shown.for_each(|lease| learn(lease.mac, lease.ip.into()));
        served.insert(&nic.network, serves);
    }
    for (domain, ownership, power) in found {
        let unserved = ownership.nics.iter().any(|nic| !served[nic.network.as_str()]);
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

/// The leases that existed when this process started a machine. They do not prove that it has booted.
///
/// The leases of pass one are still valid in pass two, and in the next deployment. dnsmasq gives a lease a new expiry
/// each time it confirms it, and libvirt records that (dnsmasq: src/lease.c, `lease_set_expires`, and `do_script_run` with
/// `OPT_LEASE_RO`; libvirt/libvirt: src/network/bridge_driver.c, `--leasefile-ro`, and src/network/leaseshelper.c).
#[derive(Default)]
pub(super) struct OldLeases(Mutex<HashMap<Mac, Vec<DhcpLease>>>);

impl OldLeases {
    /// Records the leases of a machine that is about to start.
    pub(super) fn note(&self, connect: &Connect, nics: &[Nic]) -> Result<(), BackendError> {
        for nic in nics
            .iter()
            .filter(|nic| Attachment::read(&nic.network).device().is_none())
        {
            let network = if_exists(connect.lookup_network_by_name(checked_text("network name", &nic.network)?))?;
            // If the network is missing, the start of the machine reports it.
            let leases = if_exists(network.map(|network| network::valid_leases(&network)).transpose())?;
            self.keep(nic.mac, leases.flatten().unwrap_or_default());
        }
        Ok(())
    }

    fn keep(&self, mac: Mac, mut leases: Vec<DhcpLease>) {
        leases.retain(|lease| lease.mac == mac);
        lock(&self.0).insert(mac, leases);
    }

    /// Whether a lease is one of these. An infinite lease never changes, so it counts as new.
    pub(super) fn contain(&self, lease: &DhcpLease) -> bool {
        let is_same = |old: &DhcpLease| old == lease && lease.expires != 0;
        lock(&self.0).get(&lease.mac).is_some_and(|old| old.iter().any(is_same))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_old_until_it_is_confirmed() {
        let mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
        let lease = |mac, last, expires| DhcpLease {
            mac,
            ip: [192, 168, 122, last].into(),
            expires,
        };
        let old = OldLeases::default();
        assert!(!old.contain(&lease(mac, 2, 100)), "nothing was started");
        let another = Mac([0x52, 0x54, 0, 0, 0, 2]);
        old.keep(mac, vec![lease(mac, 2, 100), lease(another, 4, 100), lease(mac, 5, 0)]);
        assert!(old.contain(&lease(mac, 2, 100)));
        for (new, why) in [
            (lease(mac, 2, 101), "confirmed"),
            (lease(mac, 3, 100), "another address"),
            (lease(another, 4, 100), "another machine"),
            (lease(mac, 5, 0), "infinite"),
        ] {
            assert!(!old.contain(&new), "{why}");
        }
        old.keep(mac, vec![lease(mac, 2, 200)]);
        assert!(
            old.contain(&lease(mac, 2, 200)) && !old.contain(&lease(mac, 2, 100)),
            "the next start"
        );
    }
}
