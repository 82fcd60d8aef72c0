//! The simulated network and its DHCP server, which assigns addresses like dnsmasq. Pure: the time is an argument.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ipnetwork::Ipv4Network;
use serde::{Deserialize, Serialize};

use super::noted::Noted;
use crate::backend::Ipv6Facts;
use crate::cluster::{ClusterId, Mac, NodeName};

/// A network in the state file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SimNetwork {
    pub cidr: Ipv4Network,
    pub gateway: Ipv4Addr,
    pub dhcp_from: Ipv4Addr,
    pub dhcp_to: Ipv4Addr,
    #[serde(default = "an_hour")]
    pub lease_seconds: u64,
    /// Addresses that are in use without the DHCP server's knowledge.
    #[serde(default)]
    pub squatters: BTreeSet<Ipv4Addr>,
    #[serde(default)]
    pub reservations: Noted<Ipv4Addr, Reservation>,
    #[serde(default)]
    pub leases: Noted<Ipv4Addr, SimLease>,
    /// Its second address family, without a DHCP server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Ipv6Facts>,
}

/// An address that is reserved for a MAC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reservation {
    pub mac: Mac,
    pub name: NodeName,
    /// `None`: created by the network's administrator.
    #[serde(default)]
    pub cluster: Option<ClusterId>,
    #[serde(default)]
    pub dns_names: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SimLease {
    pub mac: Mac,
    /// DHCP option 61.
    pub client: String,
    pub since_ms: u64,
    /// When it expires; `None` while its machine runs and renews it.
    #[serde(default)]
    pub until_ms: Option<u64>,
}

fn an_hour() -> u64 {
    3600
}

impl SimNetwork {
    /// The default NAT network of libvirt.
    pub fn fresh() -> Self {
        let address = |last| Ipv4Addr::new(192, 168, 122, last);
        Self {
            cidr: Ipv4Network::new_checked(address(0), 24).unwrap_or(Ipv4Network::from(address(0))),
            gateway: address(1),
            dhcp_from: address(2),
            dhcp_to: address(254),
            lease_seconds: an_hour(),
            squatters: BTreeSet::new(),
            reservations: Noted::default(),
            leases: Noted::default(),
            ipv6: None,
        }
    }

    /// Whether gateway and range are addresses of this network.
    pub fn is_sound(&self) -> bool {
        let inside = [self.gateway, self.dhcp_from, self.dhcp_to];
        inside.into_iter().all(|ip| self.cidr.contains(ip)) && self.dhcp_from <= self.dhcp_to
    }

    /// Leases an address to a client: its reservation, else its present lease, else a free address near the hash of its
    /// MAC.
    ///
    /// `None` if no address is free.
    pub fn request(&mut self, mac: Mac, client: &str, now_ms: u64) -> Option<Ipv4Addr> {
        self.forget_expired(now_ms);
        let known = self.lease_of(mac, client);
        let ip = self
            .reserved_for(mac)
            .filter(|ip| self.leases.get(ip).is_none_or(|lease| lease.mac == mac))
            // The client detects the conflict by ARP and declines the address.
            .filter(|ip| !self.squatters.contains(ip))
            .or_else(|| known.filter(|ip| self.is_available_to(*ip, mac)))
            .or_else(|| self.free_address(mac))?;
        // A client has one lease at a time.
        if let Some(old) = known {
            self.leases.remove(&old);
        }
        Some(self.lease(ip, mac, client, now_ms))
    }

    /// Leases a free address that is not the reserved one, like a second DHCP server in the same network.
    pub fn request_elsewhere(&mut self, mac: Mac, client: &str, now_ms: u64) -> Option<Ipv4Addr> {
        let reserved = self.reserved_for(mac);
        let known: Vec<Ipv4Addr> = self.leases_of(mac).collect();
        let ip = self
            .candidates(mac)
            .find(|ip| self.is_free(*ip) && Some(*ip) != reserved && !known.contains(ip))?;
        Some(self.lease(ip, mac, client, now_ms))
    }

    /// A lease that is renewed while its machine runs.
    fn lease(&mut self, ip: Ipv4Addr, mac: Mac, client: &str, now_ms: u64) -> Ipv4Addr {
        let (client, since_ms, until_ms) = (client.to_owned(), now_ms, None);
        self.leases.insert(
            ip,
            SimLease {
                mac,
                client,
                since_ms,
                until_ms,
            },
        );
        ip
    }

    /// A machine stopped: its leases expire one lease time after the last renewal. Clients renew at half of that time.
    pub fn stop_renewing(&mut self, mac: Mac, now_ms: u64) {
        let whole = self.lease_seconds.max(1) * 1000;
        for ip in Vec::from_iter(self.leases_of(mac)) {
            let Some(lease) = self.leases.get_mut(&ip) else {
                continue;
            };
            let renewals = now_ms.saturating_sub(lease.since_ms) / (whole / 2);
            lease.until_ms = lease.until_ms.or(Some(lease.since_ms + renewals * (whole / 2) + whole));
        }
    }

    pub fn forget_expired(&mut self, now_ms: u64) {
        self.leases
            .retain(|_, lease| lease.until_ms.is_none_or(|until| until > now_ms));
    }

    /// The number of addresses that a new client can get.
    pub fn free_count(&self) -> usize {
        self.range().filter(|ip| self.is_free(*ip)).count()
    }

    /// As in dnsmasq, one MAC with two client ids is two clients.
    fn lease_of(&self, mac: Mac, client: &str) -> Option<Ipv4Addr> {
        let same = |lease: &SimLease| lease.client == client && lease.mac == mac;
        self.leases.iter().find(|(_, lease)| same(lease)).map(|(ip, _)| *ip)
    }

    fn leases_of(&self, mac: Mac) -> impl Iterator<Item = Ipv4Addr> {
        self.leases
            .iter()
            .filter(move |(_, lease)| lease.mac == mac)
            .map(|(ip, _)| *ip)
    }

    fn reserved_for(&self, mac: Mac) -> Option<Ipv4Addr> {
        self.reservations
            .iter()
            .find(|(_, entry)| entry.mac == mac)
            .map(|(ip, _)| *ip)
    }

    fn is_available_to(&self, ip: Ipv4Addr, mac: Mac) -> bool {
        !self.squatters.contains(&ip) && self.reservations.get(&ip).is_none_or(|entry| entry.mac == mac)
    }

    fn free_address(&self, mac: Mac) -> Option<Ipv4Addr> {
        self.candidates(mac).find(|ip| self.is_free(*ip))
    }

    fn is_free(&self, ip: Ipv4Addr) -> bool {
        ip != self.gateway
            && !self.squatters.contains(&ip)
            && !self.reservations.contains_key(&ip)
            && !self.leases.contains_key(&ip)
    }

    /// All addresses of the range once, beginning at the hash of the MAC.
    fn candidates(&self, mac: Mac) -> impl Iterator<Item = Ipv4Addr> + use<> {
        let (first, last) = (u32::from(self.dhcp_from), u32::from(self.dhcp_to));
        let count = u64::from(last.saturating_sub(first)) + 1;
        let begin = u64::from(hash(mac)) % count;
        (0..count).map(move |step| {
            let offset = u32::try_from((begin + step) % count).unwrap_or(0);
            Ipv4Addr::from(first + offset)
        })
    }

    fn range(&self) -> impl Iterator<Item = Ipv4Addr> + use<> {
        (u32::from(self.dhcp_from)..=u32::from(self.dhcp_to)).map(Ipv4Addr::from)
    }
}

/// The sdbm hash, which spreads MACs that differ only in their last byte.
fn hash(mac: Mac) -> u32 {
    mac.0.iter().fold(0u32, |hash, byte| {
        u32::from(*byte)
            .wrapping_add(hash << 6)
            .wrapping_add(hash << 16)
            .wrapping_sub(hash)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Role;

    const HOUR: u64 = 3_600_000;

    fn mac(last: u8) -> Mac {
        Mac([0x52, 0x54, 0, 0, 0, last])
    }

    fn ip(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(192, 168, 122, last)
    }

    /// `fresh` with the range .10 to .(9 + size).
    fn small(size: u8) -> SimNetwork {
        SimNetwork {
            dhcp_from: ip(10),
            dhcp_to: ip(9 + size),
            ..SimNetwork::fresh()
        }
    }

    fn reserve(network: &mut SimNetwork, last: u8, mac: Mac) {
        let entry = Reservation {
            mac,
            name: NodeName::node(Role::Worker, usize::from(last)),
            cluster: None,
            dns_names: BTreeSet::new(),
        };
        network.reservations.insert(ip(last), entry);
    }

    /// A step of a test.
    enum Event {
        Asks(u8, &'static str),
        Gone(u8),
        Later(u64),
        Reserve(u8, u8),
        Squat(u8),
    }
    use Event::*;

    /// Applies the events to a range of `size` addresses and returns the last byte of each leased address.
    fn play(size: u8, events: &[Event]) -> (Vec<Option<u8>>, SimNetwork) {
        let mut network = small(size);
        let mut now = 1_000_000;
        let mut answers = Vec::new();
        for event in events {
            match *event {
                Asks(who, client) => answers.push(network.request(mac(who), client, now).map(|ip| ip.octets()[3])),
                Gone(who) => network.stop_renewing(mac(who), now),
                Later(ms) => now += ms,
                Reserve(last, who) => reserve(&mut network, last, mac(who)),
                Squat(last) => {
                    network.squatters.insert(ip(last));
                }
            }
        }
        (answers, network)
    }

    #[test]
    fn a_lease_is_sticky_for_mac_and_client_id() {
        let (answers, _) = play(
            50,
            &[
                Asks(1, "a"),
                Asks(2, "b"),
                Gone(1),
                Asks(3, "c"),
                Later(HOUR - 1),
                Asks(1, "a"),
            ],
        );
        assert_eq!(answers[0], answers[3]);
        assert_ne!(answers[0], answers[1]);
    }

    #[test]
    fn an_expired_lease_is_free_for_others() {
        let (answers, _) = play(
            1,
            &[
                Asks(1, "a"),
                Gone(1),
                Later(HOUR - 1),
                Asks(2, "b"),
                Later(1),
                Asks(2, "b"),
            ],
        );
        assert_eq!(answers, [Some(10), None, Some(10)]);
    }

    #[test]
    fn a_lease_is_renewed_while_its_machine_runs_and_lasts_at_least_half_a_lease_time_longer() {
        let (answers, _) = play(1, &[Asks(1, "a"), Later(10 * HOUR), Asks(2, "b")]);
        assert_eq!(answers, [Some(10), None], "a lease in use never ends");
        let gone = |later| {
            play(
                1,
                &[Asks(1, "a"), Later(HOUR * 9 / 4), Gone(1), Later(later), Asks(2, "b")],
            )
            .0[1]
        };
        assert_eq!(gone(HOUR * 3 / 4 - 1), None);
        assert_eq!(gone(HOUR * 3 / 4), Some(10));
    }

    #[test]
    fn a_reservation_wins_over_a_lease_and_over_the_client_id() {
        let (answers, network) = play(
            20,
            &[Asks(1, "duid"), Reserve(99, 1), Asks(1, "duid"), Asks(1, "01:mac")],
        );
        assert_ne!(answers[0], Some(99));
        assert_eq!(answers[1..], [Some(99), Some(99)]);
        assert_eq!(network.leases.len(), 1, "the first lease was removed");
    }

    #[test]
    fn a_reserved_address_is_never_leased_to_another_client() {
        let (answers, _) = play(2, &[Reserve(10, 9), Reserve(11, 8), Asks(1, "a")]);
        assert_eq!(answers, [None]);
        let (answers, _) = play(1, &[Asks(1, "a"), Reserve(10, 9), Asks(1, "a")]);
        assert_eq!(answers, [Some(10), None], "not even to its previous client");
    }

    #[test]
    fn a_reserved_address_that_another_still_leases_is_not_used() {
        let (answers, _) = play(
            2,
            &[
                Asks(1, "a"),
                Asks(2, "b"),
                Gone(2),
                Reserve(10, 2),
                Reserve(11, 2),
                Asks(2, "b"),
            ],
        );
        assert_eq!(answers[1], answers[2]);
        assert_ne!(answers[0], answers[2]);
    }

    #[test]
    fn an_address_in_use_is_skipped_and_declined_as_a_reservation() {
        let (answers, _) = play(2, &[Squat(10), Asks(1, "a"), Asks(2, "b")]);
        assert_eq!(answers, [Some(11), None]);
        let (answers, _) = play(2, &[Reserve(10, 1), Squat(10), Asks(1, "a")]);
        assert_eq!(answers, [Some(11)]);
        let (answers, _) = play(2, &[Asks(1, "a"), Squat(10), Squat(11), Asks(1, "a")]);
        assert_eq!(answers[1], None);
    }

    #[test]
    fn every_address_is_leased_once() {
        let events: Vec<Event> = (1..=6).map(|who| Asks(who, "same client id, other MACs")).collect();
        let (answers, network) = play(5, &events);
        let mut given: Vec<u8> = answers.iter().copied().flatten().collect();
        given.sort_unstable();
        assert_eq!(given, [10, 11, 12, 13, 14]);
        assert_eq!(answers[5], None);
        assert_eq!(network.free_count(), 0);
    }

    #[test]
    fn a_second_client_id_gets_a_second_address() {
        let (answers, network) = play(20, &[Asks(1, "duid"), Asks(1, "01:mac"), Asks(1, "duid")]);
        assert_ne!(answers[0], answers[1]);
        assert_eq!(answers[0], answers[2]);
        assert_eq!(network.leases_of(mac(1)).count(), 2);
    }

    #[test]
    fn another_server_leases_neither_the_reserved_nor_the_leased_address() {
        let mut network = small(3);
        reserve(&mut network, 10, mac(1));
        assert_eq!(network.request(mac(1), "a", 0), Some(ip(10)));
        let elsewhere = network.request_elsewhere(mac(1), "a", 0);
        assert!(elsewhere == Some(ip(11)) || elsewhere == Some(ip(12)), "{elsewhere:?}");
    }

    #[test]
    fn the_address_of_the_gateway_is_never_leased() {
        let mut network = small(1);
        network.gateway = ip(10);
        assert_eq!(network.request(mac(1), "a", 0), None);
    }
}
