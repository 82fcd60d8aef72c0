//! Facts about a network, and the entries that are added to it and removed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use ipnetwork::{IpNetwork, Ipv6Network};
use virt::connect::Connect;
use virt::network::Network;
use virt::sys;

use super::attachment::{self, Attachment};
use super::entries::{
    self, DhcpHost, DnsRecord, NetworkDocument, NetworkEntry, check_address, node_of, of_cluster, of_reservation,
    tag_of,
};
use super::ffi::{self, DhcpLease};
use super::session::{checked_text, if_supported};
use crate::backend::error::if_exists;
use crate::backend::{
    Action, AddressReservation, BackendError, BackendErrorKind, Ipv6Facts, NetworkFacts, ReservationState,
};
use crate::cluster::{AddressAssignment, ClusterId, Mac};
use crate::printable::shell_word;
use crate::xml::{self, Element};

const ADD: sys::virNetworkUpdateCommand = sys::VIR_NETWORK_UPDATE_COMMAND_ADD_LAST;
const DELETE: sys::virNetworkUpdateCommand = sys::VIR_NETWORK_UPDATE_COMMAND_DELETE;
const HOSTS: sys::virNetworkUpdateSection = sys::VIR_NETWORK_SECTION_IP_DHCP_HOST;
const RECORDS: sys::virNetworkUpdateSection = sys::VIR_NETWORK_SECTION_DNS_HOST;

pub(super) fn find(connect: &Connect, name: &str) -> Result<Network, BackendError> {
    if let Some(network) = if_exists(connect.lookup_network_by_name(checked_text("network name", name)?))? {
        return Ok(network);
    }
    let failure = BackendError::new(BackendErrorKind::NotFound, format!("network `{name}` does not exist"));
    // In kcli a bridge of the host is given by its name alone.
    Err(match attachment::host_has(connect, name)? {
        Some(true) => failure.hint(format!(
            "the host has a device of this name: set network=bridge:{name} for a Linux bridge, network=ovs:{name} for Open \
             vSwitch, network=macvtap:{name} for a NIC"
        )),
        _ => failure.hint(
            "set `network` to an existing one: list them with `virsh net-list --all`; or to a bridge: network=bridge:br0",
        ),
    })
}

fn live(network: &Network) -> Result<NetworkDocument, BackendError> {
    Ok(NetworkDocument::read(&xml::parse(&network.xml_desc(0)?)?))
}

/// Leases that have not expired; none if libvirt is not the DHCP server.
pub(super) fn valid_leases(network: &Network) -> Result<Vec<DhcpLease>, BackendError> {
    Ok(if_supported(ffi::dhcp_leases(network).map_err(BackendError::from))?.unwrap_or_default())
}

/// Whether libvirt's DHCP server serves the network.
pub(super) fn has_dhcp(network: &Network) -> Result<bool, BackendError> {
    Ok(live(network)?.has_dhcp)
}

pub(super) fn look(connect: &Connect, name: &str) -> Result<NetworkFacts, BackendError> {
    if let Some(device) = Attachment::read(name).device() {
        attachment::require_device(connect, device)?;
        // libvirt has no facts about the network behind it.
        return Ok(NetworkFacts {
            identity: format!("libvirt:{}:{name}", connect.hostname()?),
            ..NetworkFacts::default()
        });
    }
    let network = find(connect, name)?;
    if !network.is_active()? {
        let failure = BackendError::new(BackendErrorKind::NotFound, format!("network {name} is not active"));
        return Err(failure.hint(format!("start it: `virsh net-start {}`", shell_word(name))));
    }
    let document = live(&network)?;
    let reserved = document.hosts.iter().filter_map(|host| Some((host.ip?, host.mac)));
    let leased = valid_leases(&network)?
        .into_iter()
        .map(|lease| (lease.ip, Some(lease.mac)));
    let taken = leased.chain(reserved).map(|(ip, mac)| (IpAddr::V4(ip), mac));
    let own = document.own.map(|block| IpAddr::V4(block.ip()));
    Ok(NetworkFacts {
        identity: format!("libvirt:{}:{}", connect.hostname()?, network.uuid()?),
        cidr: document
            .own
            .and_then(|block| IpNetwork::new(block.network().into(), block.prefix()).ok()),
        // An isolated network has an address on the host but no route.
        gateway: own.filter(|_| document.forward.is_some()),
        dhcp_ranges: document
            .ranges
            .iter()
            .map(|(first, last)| ((*first).into(), (*last).into()))
            .collect(),
        taken: taken.collect(),
        resolvers: own.filter(|_| document.has_dns).into_iter().collect(),
        mtu: document.mtu,
        answers_dns: document.has_dns,
        peer_domain: None,
        ipv6: Vec::from_iter(document.ipv6.and_then(|block| {
            Some(Ipv6Facts {
                cidr: Ipv6Network::new(block.network(), block.prefix()).ok()?,
                gateway: Some(block.ip()).filter(|_| document.forward.is_some()),
                taken: BTreeMap::new(),
                resolvers: Some(block.ip()).filter(|_| document.has_dns).into_iter().collect(),
            })
        })),
    })
}

pub(super) fn reserve(connect: &Connect, reservation: &AddressReservation) -> Result<ReservationState, BackendError> {
    if Attachment::read(&reservation.network).device().is_some() {
        return Ok(ReservationState::Unreserved);
    }
    let network = find(connect, &reservation.network)?;
    let document = live(&network)?;
    if !document.has_dhcp {
        return Ok(ReservationState::Unreserved);
    }
    let AddressAssignment { name, mac, ip } = &reservation.assignment;
    // A client of DHCPv6 is identified by a DUID, not by its MAC.
    let IpAddr::V4(ip) = ip else {
        return Ok(ReservationState::Unreserved);
    };
    check_address(&document, *mac, *ip)?;
    refuse_leased(&network, *mac, *ip)?;
    let tag = tag_of(&reservation.cluster, name);
    let host = DhcpHost {
        mac: Some(*mac),
        ip: Some(*ip),
        name: tag.clone(),
    };
    let mut names = Vec::new();
    for dns_name in &reservation.dns_names {
        let dns_name = checked_text("DNS name", dns_name)?;
        if !names.iter().any(|name| name == dns_name) {
            names.push(dns_name.to_owned());
        }
    }
    names.push(tag);
    let record = |ip: IpAddr| DnsRecord {
        ip: ip.to_string(),
        names: names.clone(),
    };
    let mut entries = vec![NetworkEntry::Host(host)];
    if !reservation.dns_names.is_empty() && document.has_dns {
        let addresses = [Some(IpAddr::V4(*ip)), reservation.ipv6.map(IpAddr::V6)];
        entries.extend(addresses.into_iter().flatten().map(record).map(NetworkEntry::Record));
    }
    create_entries(&network, &entries, reservation.dns_later)?;
    // The server may have leased it just before the reservation. From now on it does not.
    if let Err(leased) = refuse_leased(&network, *mac, *ip) {
        remove(&network, |document| of_reservation(document, reservation))?;
        return Err(leased);
    }
    Ok(ReservationState::ByPlatform)
}

/// Rejects an address that is leased to another MAC.
fn refuse_leased(network: &Network, mac: Mac, ip: Ipv4Addr) -> Result<(), BackendError> {
    let leases = valid_leases(network)?;
    match leases.into_iter().find(|lease| lease.ip == ip && lease.mac != mac) {
        Some(other) => {
            let message = format!("address {ip} is leased to {}", other.mac);
            Err(BackendError::new(BackendErrorKind::Conflict, message))
        }
        None => Ok(()),
    }
}

/// The existing documents: a running network has one, a persistent network another.
fn documents(network: &Network) -> Result<Vec<(sys::virNetworkUpdateFlags, NetworkDocument)>, BackendError> {
    let mut documents = Vec::new();
    if network.is_active()? {
        documents.push((sys::VIR_NETWORK_UPDATE_AFFECT_LIVE, live(network)?));
    }
    if network.is_persistent()? {
        let inactive = network
            .xml_desc(sys::VIR_NETWORK_XML_INACTIVE)
            .map_err(BackendError::from);
        if let Some(inactive) = if_supported(inactive)? {
            let document = NetworkDocument::read(&xml::parse(&inactive)?);
            documents.push((sys::VIR_NETWORK_UPDATE_AFFECT_CONFIG, document));
        }
    }
    Ok(documents)
}

/// Nothing for a network that was deleted since it was listed.
fn unless_gone<T: Default>(answer: Result<T, BackendError>) -> Result<T, BackendError> {
    match answer {
        Err(failure) if failure.kind == BackendErrorKind::NotFound => Ok(T::default()),
        answer => answer,
    }
}

/// Creates all entries where they are missing, or none. With `dns_later`, records are only checked.
///
/// libvirt rejects an entry that conflicts with one that was created after the query. Then the query is repeated.
fn create_entries(network: &Network, entries: &[NetworkEntry], dns_later: bool) -> Result<(), BackendError> {
    let mut refused = None;
    for _ in 0..3 {
        let mut lacking: Vec<_> = entries.iter().map(|entry| (entry, 0)).collect();
        for (flag, document) in documents(network)? {
            for (entry, flags) in &mut lacking {
                let lacks = match entry {
                    NetworkEntry::Host(host) => document.lacks_host(host),
                    NetworkEntry::Record(record) => document.lacks_record(record),
                };
                let lacks = lacks.map_err(|holder| BackendError::new(BackendErrorKind::Conflict, holder))?;
                if lacks && !(dns_later && matches!(entry, NetworkEntry::Record(_))) {
                    *flags |= flag;
                }
            }
        }
        let mut created = Vec::new();
        let failed = lacking.into_iter().find_map(|(entry, flags)| {
            let failure = add(network, entry, flags).err();
            created.push((entry, flags));
            failure
        });
        let Some(failure) = failed else { return Ok(()) };
        // The last one failed.
        created.pop();
        for (entry, flags) in created {
            delete(network, entry, flags)?;
        }
        refused = Some(failure);
    }
    refused.map_or(Ok(()), Err)
}

fn add(network: &Network, entry: &NetworkEntry, flags: sys::virNetworkUpdateFlags) -> Result<(), BackendError> {
    let (section, element) = match entry {
        NetworkEntry::Host(host) => (HOSTS, host.to_xml()),
        NetworkEntry::Record(record) => (RECORDS, record.to_xml()),
    };
    update(network, ADD, section, &element, flags)
}

/// A record is deleted by its address, which is unique. With names, libvirt looks for a record that has the address or
/// one of the names: the same node's in the other address family, or a user's (libvirt/libvirt:
/// src/conf/network_conf.c, `virNetworkDefUpdateDNSHost`).
fn delete(network: &Network, entry: &NetworkEntry, flags: sys::virNetworkUpdateFlags) -> Result<(), BackendError> {
    let (section, element) = match entry {
        NetworkEntry::Host(host) => (HOSTS, host.to_xml()),
        NetworkEntry::Record(record) => (RECORDS, Element::new("host").attr("ip", &record.ip)),
    };
    update(network, DELETE, section, &element, flags)
}

fn update(
    network: &Network,
    command: sys::virNetworkUpdateCommand,
    section: sys::virNetworkUpdateSection,
    entry: &Element,
    flags: sys::virNetworkUpdateFlags,
) -> Result<(), BackendError> {
    // Without a flag, libvirt changes the running network.
    if flags == 0 {
        return Ok(());
    }
    Ok(network.update(command, section, -1, &entry.to_string(), flags)?)
}

/// The entries of exactly this cluster on one network, in the running or the persistent configuration.
pub(super) fn entries(network: &Network, cluster: &ClusterId) -> Result<Vec<NetworkEntry>, BackendError> {
    let mut entries = Vec::new();
    for (_, document) in unless_gone(documents(network))? {
        for entry in of_cluster(&document, cluster) {
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
    }
    Ok(entries)
}

/// The clusters that have entries.
pub(super) fn clusters(network: &Network) -> Result<BTreeSet<ClusterId>, BackendError> {
    Ok(unless_gone(documents(network))?
        .iter()
        .flat_map(|(_, document)| entries::clusters(document))
        .collect())
}

/// The reservations of exactly this cluster.
pub(super) fn reservations(network: &Network, cluster: &ClusterId) -> Result<Vec<AddressAssignment>, BackendError> {
    let lease = |entry| match entry {
        NetworkEntry::Host(host) => Some(AddressAssignment {
            name: node_of(cluster, &host.name)?.parse().ok()?,
            mac: host.mac?,
            ip: IpAddr::V4(host.ip?),
        }),
        NetworkEntry::Record(_) => None,
    };
    Ok(entries(network, cluster)?.into_iter().filter_map(lease).collect())
}

/// Deletes all entries of exactly this cluster.
pub(super) fn delete_entries(network: &Network, cluster: &ClusterId) -> Result<(), BackendError> {
    unless_gone(remove(network, |document| of_cluster(document, cluster))).map(drop)
}

/// Deletes the entries of exactly this reservation.
pub(super) fn release(connect: &Connect, reservation: &AddressReservation) -> Result<Action<()>, BackendError> {
    if Attachment::read(&reservation.network).device().is_some() {
        return Ok(Action::Unchanged(()));
    }
    let network = find(connect, &reservation.network)?;
    Ok(
        match remove(&network, |document| of_reservation(document, reservation))? {
            true => Action::Done(()),
            false => Action::Unchanged(()),
        },
    )
}

/// Deletes the chosen entries of each document. Returns whether there were any.
fn remove(network: &Network, choose: impl Fn(&NetworkDocument) -> Vec<NetworkEntry>) -> Result<bool, BackendError> {
    let mut removed = false;
    for (flag, document) in documents(network)? {
        for entry in choose(&document) {
            delete(network, &entry, flag)?;
            removed = true;
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::super::session::open_test_driver;
    use super::*;

    #[test]
    fn names_have_a_record_in_each_family_and_a_users_record_stays() {
        let connect = open_test_driver();
        let network = find(&connect, "default").unwrap();
        let cluster = ClusterId::read("lab.example.com.x7k2pqrs").unwrap();
        let record = |ip: &str, names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            NetworkEntry::Record(DnsRecord {
                ip: ip.to_owned(),
                names,
            })
        };
        let records = || -> Vec<NetworkEntry> {
            let document = live(&network).unwrap();
            document.records.into_iter().map(NetworkEntry::Record).collect()
        };
        let of_user = record("192.168.122.99", &["api.lab.example.com"]);
        let names = ["api-int.lab.example.com", "api.lab.example.com.x7k2pqrs.ocpdeploy"];
        let ours = ["192.168.122.10", "fd00:1::c0a8:7a0a"].map(|ip| record(ip, &names));
        add(&network, &of_user, sys::VIR_NETWORK_UPDATE_AFFECT_LIVE).unwrap();
        create_entries(&network, &ours, true).unwrap();
        assert_eq!(records(), std::slice::from_ref(&of_user), "later");
        for _ in 0..2 {
            create_entries(&network, &ours, false).unwrap();
            assert_eq!(records(), [std::slice::from_ref(&of_user), &ours[..]].concat());
        }
        // Neither record may belong to another owner.
        for (taken, words) in [
            (
                record("fd00:1::c0a8:7a0a", &["a"]),
                "already resolves to fd00:1::c0a8:7a0a",
            ),
            (record("fd00:1::9", &names), "already resolves to fd00:1::c0a8:7a0a"),
        ] {
            let free = record("192.168.122.11", &["b"]);
            for later in [true, false] {
                let failure = create_entries(&network, &[free.clone(), taken.clone()], later).unwrap_err();
                assert!(failure.to_string().contains(words), "{failure}");
            }
            assert_eq!(records().len(), 3, "none is created");
        }
        delete_entries(&network, &cluster).unwrap();
        assert_eq!(records(), [of_user]);
    }

    #[test]
    fn a_network_that_is_deleted_while_networks_are_listed_has_no_entries() {
        let connect = open_test_driver();
        let cluster = ClusterId::read("lab.example.com.x7k2pqrs").unwrap();
        let listed = connect.list_all_networks(0).unwrap();
        assert_eq!(listed.len(), 1);
        assert!(reservations(&listed[0], &cluster).unwrap().is_empty());
        let same = connect.list_all_networks(0).unwrap();
        same[0].destroy().unwrap();
        same[0].undefine().unwrap();
        assert!(documents(&listed[0]).is_err(), "it is gone");
        assert_eq!(reservations(&listed[0], &cluster).unwrap(), []);
        assert_eq!(clusters(&listed[0]).unwrap(), BTreeSet::new());
        delete_entries(&listed[0], &cluster).unwrap();
    }
}
