//! Chooses and validates MACs, virtual IPs and VRIDs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use ipnetwork::IpNetwork;
use sha2::{Digest, Sha256};

use crate::backend::{Ipv6Facts, NetworkFacts};
use crate::cluster::{AddressRange, ClusterConfig, ClusterDomain, Ipv6Settings, Ipv6Table, Mac, Vip, reserved_as};
use crate::state::parameters::Parameters;

/// The maximum number of addresses from which one is chosen.
const MOST: usize = 65_536;

/// Derives the MAC of a NIC from its tenant, cluster and name, avoiding those in use.
///
/// Chosen before pass one, so that a platform cannot assign it to another machine between the passes, and a run after a
/// crash uses the same one. `52:54:00` is QEMU's locally administered prefix.
pub fn derive_mac(tenant: &str, cluster: &ClusterDomain, nic: &str, taken: &BTreeSet<Mac>) -> Mac {
    // A platform without tenants adds nothing to the digest.
    let tenant = if tenant.is_empty() {
        String::new()
    } else {
        format!("{tenant}/")
    };
    let mut salt = 0u32;
    loop {
        let digest = Sha256::digest(format!("{tenant}{cluster}/{nic}/{salt}"));
        let mac = Mac([0x52, 0x54, 0x00, digest[0], digest[1], digest[2]]);
        if !taken.contains(&mac) || salt == u32::MAX {
            return mac;
        }
        salt += 1;
    }
}

/// Chooses the VRRP ids of the api and ingress VIPs: the preferred one, by default the VIP's last octet, otherwise the
/// next free one.
///
/// `None` if all of 1–255 are used on this network.
pub fn virtual_router_ids([api, ingress]: [u8; 2], taken: &BTreeSet<u8>) -> Option<[u8; 2]> {
    let api = next_free_id(api, taken)?;
    let mut taken = taken.clone();
    taken.insert(api);
    let ingress = next_free_id(ingress, &taken)?;
    Some([api, ingress])
}

/// The preferred id of a VIP: its last octet, which differs between the VIPs of a /24. In larger networks it may be 0,
/// which is not an id, or 255, which is reserved for manual settings.
pub fn preferred_router_id(vip: IpAddr) -> u8 {
    let last = match vip {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(ip) => ip.octets()[15],
    };
    match last {
        0 | 255 => 1,
        last => last,
    }
}

fn next_free_id(wish: u8, taken: &BTreeSet<u8>) -> Option<u8> {
    let wish = wish.max(1);
    (wish..=255).chain(1..wish).find(|id| !taken.contains(id))
}

/// Addresses of other clusters on the same network: address -> owner, e.g. `api of cluster prod`.
pub type Others = BTreeMap<IpAddr, String>;

/// Why `ip` cannot be this VIP, or `None` if it can.
///
/// A harvested or reserved VIP is `held`: it may be in a DHCP range.
pub fn vip_problem(vip: Vip, ip: IpAddr, facts: &NetworkFacts, held: bool, others: &Others) -> Option<String> {
    if let Some(who) = others.get(&ip) {
        return Some(format!("{vip}_ip {ip} is already used by {who}"));
    }
    if let Some(network) = facts.cidr {
        if !network.contains(ip) {
            return Some(format!("{vip}_ip {ip} is outside the machine network {network}"));
        }
        if let Some(what) = reserved_as(network, ip) {
            return Some(format!("{vip}_ip {ip} is {what} of {network}"));
        }
    }
    if facts.gateway == Some(ip) {
        return Some(format!("{vip}_ip {ip} is the gateway"));
    }
    let range = facts
        .dhcp_ranges
        .iter()
        .find(|(first, last)| (*first..=*last).contains(&ip));
    match range {
        Some((first, last)) if !held => Some(format!(
            "{vip}_ip {ip} is in the DHCP range {first}–{last}, so another machine may get it"
        )),
        _ => None,
    }
}

/// The owner of a VIP's given address according to leases and reservations, unless it is one of the cluster's `own`
/// MACs.
pub fn vip_taken(vip: Vip, ip: IpAddr, facts: &NetworkFacts, own: &BTreeSet<Mac>) -> Option<String> {
    match facts.taken.get(&ip)? {
        Some(mac) if own.contains(mac) => None,
        Some(mac) => Some(format!("{vip}_ip {ip} is already reserved on the network for {mac}")),
        None => Some(format!("{vip}_ip {ip} is already reserved on the network")),
    }
}

/// Why an external node cannot have this address, or `None` if it can. Only its own MAC may have a reservation for it.
pub fn external_problem(
    ip: IpAddr,
    mac: Mac,
    table: &Parameters,
    facts: &NetworkFacts,
    others: &Others,
) -> Option<String> {
    let network = table.machine_network;
    let own = table.all_leases();
    if let Some(who) = others.get(&ip) {
        return Some(format!("{ip} is already used by {who}"));
    }
    if let Some(lease) = own.iter().find(|lease| lease.ip == ip || lease.mac == mac) {
        return Some(format!("{} has {} and {}", lease.name, lease.mac, lease.ip));
    }
    if !network.contains(ip) {
        return Some(format!("{ip} is outside the machine network {network}"));
    }
    if let Some(what) = reserved_as(network, ip) {
        return Some(format!("{ip} is {what} of {network}"));
    }
    if table.gateway == Some(ip) || table.resolvers.contains(&ip) {
        return Some(format!("{ip} is the gateway or a name server"));
    }
    if !mac.is_unicast() {
        return Some(format!("{mac} is not a unicast MAC address"));
    }
    match facts.taken.get(&ip) {
        Some(Some(other)) if *other == mac => None,
        Some(_) => Some(format!("{ip} is reserved on the network for another machine")),
        None => None,
    }
}

/// The second address family of a cluster with these VIPs; its gateway is known after the checks.
pub fn ipv6_table(config: &ClusterConfig, facts: &NetworkFacts, vips: [IpAddr; 2]) -> Option<Ipv6Table> {
    let ipv6 = config.ipv6.as_ref()?;
    Some(ipv6.table(ipv6_gateway(ipv6, facts)?, vips))
}

/// What the platform knows about the second address family.
fn ipv6_facts<'a>(ipv6: &Ipv6Settings, facts: &'a NetworkFacts) -> Option<&'a Ipv6Facts> {
    facts.ipv6.iter().find(|known| known.cidr == ipv6.machine_network)
}

/// The IPv6 gateway of the settings, otherwise that of the platform.
pub fn ipv6_gateway(ipv6: &Ipv6Settings, facts: &NetworkFacts) -> Option<Ipv6Addr> {
    ipv6.gateway.or_else(|| ipv6_facts(ipv6, facts)?.gateway)
}

/// Why the network cannot have this second address family, and a hint.
pub fn ipv6_problem(config: &ClusterConfig, facts: &NetworkFacts) -> Option<(String, String)> {
    let ipv6 = config.ipv6.as_ref()?;
    let network = &config.network;
    if !facts.ipv6.is_empty() && ipv6_facts(ipv6, facts).is_none() {
        let known: Vec<_> = facts.ipv6.iter().map(|known| known.cidr.to_string()).collect();
        let known = known.join(" or ");
        return Some((
            format!(
                "the IPv6 network of {network} is {known}, but machine_network has {}",
                ipv6.machine_network
            ),
            format!("set the IPv6 network in machine_network to {known}"),
        ));
    }
    let gateway = ipv6_gateway(ipv6, facts);
    if gateway.is_none() {
        return Some((
            format!("network {network} has no IPv6 gateway that the platform knows"),
            "set it, such as gateway=fe80::1; a network of libvirt has one with `<ip family='ipv6' address='fd00:1::1' \
             prefix='64'/>`, a subnet of OpenStack with `openstack subnet set --gateway`"
                .to_owned(),
        ));
    }
    let vip = Vip::ALL
        .into_iter()
        .find(|vip| ipv6.given_vip(*vip).is_some_and(|ip| Some(ip) == gateway))?;
    Some((
        format!("{vip}_ip has the IPv6 gateway of network {network}"),
        "choose another address".to_owned(),
    ))
}

/// The VIPs with a given IPv6 address that is reserved on the network, and not for a MAC of `own`.
pub fn ipv6_vips_taken<'a>(
    config: &'a ClusterConfig,
    facts: &'a NetworkFacts,
    own: &'a BTreeSet<Mac>,
) -> impl Iterator<Item = (Vip, Ipv6Addr)> + 'a {
    Vip::ALL.into_iter().filter_map(|vip| {
        let ipv6 = config.ipv6.as_ref()?;
        let ip = ipv6.given_vip(vip)?;
        let owner = ipv6_facts(ipv6, facts)?.taken.get(&ip)?;
        (!owner.is_some_and(|mac| own.contains(&mac))).then_some((vip, ip))
    })
}

/// Free addresses that may be reserved without a choice of the user, lowest first: those that the platform itself
/// assigns, or all of a network without DHCP ranges. Other addresses may belong to devices that the platform does not
/// know, such as routers and machines with static addresses.
pub fn free_addresses(network: IpNetwork, facts: &NetworkFacts, others: &Others) -> BTreeSet<IpAddr> {
    let is_free = |ip: &IpAddr| {
        network.contains(*ip)
            && reserved_as(network, *ip).is_none()
            && facts.gateway != Some(*ip)
            && !facts.taken.contains_key(ip)
            && !others.contains_key(ip)
    };
    let ranges = facts.dhcp_ranges.iter();
    let assigned = ranges.flat_map(|(first, last)| {
        AddressRange {
            first: *first,
            last: *last,
        }
        .iter()
    });
    // A /16 has enough addresses; larger networks are not searched to their end.
    match facts.dhcp_ranges.is_empty() {
        true => network.iter().take(MOST).filter(is_free).collect(),
        false => assigned.take(MOST).filter(is_free).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::parameters::tests::example;

    fn facts() -> NetworkFacts {
        NetworkFacts {
            identity: "n".into(),
            cidr: Some("10.0.0.0/28".parse().unwrap()),
            gateway: Some(IpAddr::from([10, 0, 0, 1])),
            dhcp_ranges: vec![(IpAddr::from([10, 0, 0, 8]), IpAddr::from([10, 0, 0, 14]))],
            taken: [(IpAddr::from([10, 0, 0, 3]), None)].into(),
            resolvers: vec![],
            mtu: None,
            answers_dns: true,
            peer_domain: None,
            ipv6: Vec::new(),
        }
    }

    fn ipv6(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    fn second_family(gateway: Option<&str>) -> Ipv6Settings {
        Ipv6Settings {
            machine_network: "fd00:1::/64".parse().unwrap(),
            cluster_network: "fd01::/48".parse().unwrap(),
            service_network: "fd02::/112".parse().unwrap(),
            gateway: gateway.map(ipv6),
            api_ip: None,
            ingress_ip: None,
        }
    }

    /// A platform that knows this second network, whose gateway is fd00:1::1.
    fn knows(cidr: &str) -> NetworkFacts {
        let second = Ipv6Facts {
            cidr: cidr.parse().unwrap(),
            gateway: Some(ipv6("fd00:1::1")),
            taken: BTreeMap::new(),
            resolvers: Vec::new(),
        };
        NetworkFacts {
            ipv6: vec![second],
            ..facts()
        }
    }

    fn with(second: Ipv6Settings) -> ClusterConfig {
        ClusterConfig {
            ipv6: Some(second),
            ..ClusterConfig::example()
        }
    }

    #[test]
    fn an_ipv6_gateway_that_is_set_is_used_whatever_the_platform_reports() {
        let (bridge, other, same) = (facts(), knows("fd00:2::/64"), knows("fd00:1::/64"));
        for (facts, found) in [(&bridge, None), (&other, None), (&same, Some("fd00:1::1"))] {
            for (given, expected) in [(Some("fe80::1"), Some("fe80::1")), (None, found)] {
                let settings = second_family(given);
                assert_eq!(ipv6_gateway(&settings, facts), expected.map(ipv6), "{facts:?}");
                let vips = [IpAddr::from([10, 0, 0, 10]), IpAddr::from([10, 0, 0, 9])];
                let table = ipv6_table(&with(settings), facts, vips);
                assert_eq!(table.map(|table| table.gateway), expected.map(ipv6), "{facts:?}");
            }
        }
    }

    #[test]
    fn a_second_family_must_be_the_networks_and_have_its_own_gateway() {
        let (bridge, other, same) = (facts(), knows("fd00:2::/64"), knows("fd00:1::/64"));
        let vips = |api: Option<&str>, ingress: Option<&str>| Ipv6Settings {
            api_ip: api.map(ipv6),
            ingress_ip: ingress.map(ipv6),
            ..second_family(None)
        };
        let other_words = Some("is fd00:2::/64, but machine_network has fd00:1::/64");
        for (settings, facts, words) in [
            (second_family(Some("fe80::1")), &bridge, None),
            (second_family(None), &bridge, Some("no IPv6 gateway")),
            (second_family(Some("fe80::1")), &other, other_words),
            (second_family(None), &same, None),
            (vips(Some("fd00:1::5"), Some("fd00:1::6")), &same, None),
            (
                vips(Some("fd00:1::1"), None),
                &same,
                Some("api_ip has the IPv6 gateway"),
            ),
            (
                vips(None, Some("fd00:1::1")),
                &same,
                Some("ingress_ip has the IPv6 gateway"),
            ),
        ] {
            let problem = ipv6_problem(&with(settings), facts).map(|(problem, _)| problem);
            let says_so = |problem: &String| words.is_some_and(|words| problem.contains(words));
            assert!(
                problem.as_ref().map_or(words.is_none(), says_so),
                "{words:?}: {problem:?}"
            );
        }
        assert_eq!(ipv6_problem(&ClusterConfig::example(), &other), None, "one family");
    }

    #[test]
    fn an_ipv6_vip_that_is_set_may_be_reserved_only_for_this_cluster() {
        let (ours, theirs) = (Mac([0x52, 0x54, 0, 0, 0, 1]), Mac([0x52, 0x54, 0, 0, 0, 2]));
        let api = ipv6("fd00:1::5");
        let config = with(Ipv6Settings {
            api_ip: Some(api),
            ..second_family(None)
        });
        for (owner, is_taken) in [
            (None, false),
            (Some(None), true),
            (Some(Some(theirs)), true),
            (Some(Some(ours)), false),
        ] {
            let mut facts = knows("fd00:1::/64");
            facts.ipv6[0].taken.extend(owner.map(|owner| (api, owner)));
            let own = [ours].into();
            let taken: Vec<_> = ipv6_vips_taken(&config, &facts, &own).collect();
            assert_eq!(taken, Vec::from_iter(is_taken.then_some((Vip::Api, api))), "{owner:?}");
        }
    }

    #[test]
    fn an_external_node_needs_a_free_address_and_a_free_mac() {
        let ip = |last| IpAddr::from([192, 168, 122, last]);
        let [own, theirs] = [1, 2].map(|last| Mac([2, 0, 0, 0, 0, last]));
        let mut table = example();
        table.resolvers = vec![ip(2)];
        let facts = NetworkFacts {
            taken: [(ip(50), Some(own)), (ip(51), Some(theirs)), (ip(52), None)].into(),
            ..facts()
        };
        let others: Others = [(ip(60), "api of cluster prod".to_owned())].into();
        let problem = |ip, mac| external_problem(ip, mac, &table, &facts, &others);
        for free in [ip(99), ip(50)] {
            assert_eq!(problem(free, own), None, "{free}");
        }
        let (bootstrap, elsewhere) = (&table.nodes[0], IpAddr::from([192, 168, 123, 99]));
        for (ip, mac, words) in [
            (ip(60), own, "already used by api of cluster prod"),
            (bootstrap.ip, own, "bootstrap has"),
            (ip(99), bootstrap.mac, "bootstrap has"),
            (elsewhere, own, "outside the machine network 192.168.122.0/24"),
            (ip(255), own, "the network or broadcast address of 192.168.122.0/24"),
            (ip(1), own, "the gateway or a name server"),
            (ip(2), own, "the gateway or a name server"),
            (ip(99), Mac([0xff; 6]), "not a unicast MAC address"),
            (ip(51), own, "reserved on the network for another machine"),
            (ip(52), own, "reserved on the network for another machine"),
        ] {
            let problem = problem(ip, mac).unwrap_or_default();
            assert!(problem.contains(words), "{ip} {mac}: {problem:?} is not {words}");
        }
    }

    #[test]
    fn macs_are_stable_and_local_and_avoid_used_ones() {
        let lab = ClusterDomain::new("lab", "example.com");
        let none = BTreeSet::new();
        let first = derive_mac("", &lab, "master-0", &none);
        assert_eq!(first, derive_mac("", &lab, "master-0", &none));
        assert_ne!(first, derive_mac("https://kube#blue", &lab, "master-0", &none));
        assert_eq!(first.0[..3], [0x52, 0x54, 0x00]);
        let second = derive_mac("", &lab, "master-0", &[first].into());
        assert_ne!(first, second);
        assert_ne!(
            first,
            derive_mac("", &ClusterDomain::new("lab2", "example.com"), "master-0", &none)
        );
    }

    #[test]
    fn vrids_follow_the_last_octet_and_stay_in_1_to_255() {
        let cases: &[(u8, u8, &[u8], [u8; 2])] = &[
            (10, 20, &[], [10, 20]),
            (10, 20, &[10], [11, 20]),
            (10, 11, &[10], [11, 12]),
            (0, 0, &[], [1, 2]),
            (255, 255, &[], [255, 1]),
            (255, 254, &[255, 1], [2, 254]),
            (254, 254, &[], [254, 255]),
        ];
        for (api, ingress, taken, want) in cases {
            let taken = taken.iter().copied().collect();
            assert_eq!(
                virtual_router_ids([*api, *ingress], &taken),
                Some(*want),
                "{api} {ingress} {taken:?}"
            );
        }
        assert_eq!(
            virtual_router_ids([9, 9], &(1..=254).collect()),
            None,
            "one id is not enough for two VIPs"
        );
    }

    #[test]
    fn the_preferred_vrid_is_the_last_octet_except_0_and_255() {
        for (vip, id) in [
            ([192, 168, 122, 10], 10),
            ([10, 0, 0, 254], 254),
            ([10, 0, 1, 0], 1),
            ([10, 0, 0, 255], 1),
        ] {
            assert_eq!(preferred_router_id(vip.into()), id, "{vip:?}");
        }
        for (vip, id) in [("fd00::1:a", 10), ("fd00::100", 1), ("fd00::ff", 1)] {
            assert_eq!(preferred_router_id(vip.parse().unwrap()), id, "{vip}");
        }
    }

    #[test]
    fn a_vip_must_be_free_and_in_the_network() {
        let others: Others = [(IpAddr::from([10, 0, 0, 5]), "api of cluster prod".to_owned())].into();
        let problem = |last: u8, held| vip_problem(Vip::Api, IpAddr::from([10, 0, 0, last]), &facts(), held, &others);
        assert_eq!(problem(4, false), None);
        assert_eq!(problem(9, true), None, "a reservation inside the range is fine");
        for (last, words) in [
            (5, "prod"),
            (0, "network"),
            (15, "broadcast"),
            (1, "gateway"),
            (9, "DHCP range"),
            (20, "outside"),
        ] {
            let text = problem(last, false).unwrap_or_default();
            assert!(text.contains(words), "{last}: {text}");
        }
    }

    #[test]
    fn a_vip_that_is_set_may_be_reserved_only_for_this_cluster() {
        let (ours, theirs) = (Mac([0x52, 0x54, 0, 0, 0, 1]), Mac([0x52, 0x54, 0, 0, 0, 2]));
        let ip = |last| IpAddr::from([10, 0, 0, last]);
        let facts = NetworkFacts {
            taken: [(ip(3), None), (ip(4), Some(theirs)), (ip(5), Some(ours))].into(),
            ..facts()
        };
        for (last, words) in [
            (2, None),
            (3, Some("reserved on the network")),
            (4, Some("for 52:54:00:00:00:02")),
            (5, None),
        ] {
            let text = vip_taken(Vip::Api, ip(last), &facts, &[ours].into());
            let ends_so = |text: &String| words.is_some_and(|words| text.ends_with(words));
            assert!(text.as_ref().map_or(words.is_none(), ends_so), "{last}: {text:?}");
        }
    }

    #[test]
    fn a_free_address_is_one_of_the_dhcp_ranges_if_the_network_has_some() {
        let facts = facts();
        let in_two = NetworkFacts {
            dhcp_ranges: [(2, 4), (12, 15)]
                .map(|(first, last)| (IpAddr::from([10, 0, 0, first]), IpAddr::from([10, 0, 0, last])))
                .into(),
            ..facts.clone()
        };
        let without = NetworkFacts {
            dhcp_ranges: Vec::new(),
            ..facts.clone()
        };
        let others = Others::from([(IpAddr::from([10, 0, 0, 9]), "api of cluster prod".to_owned())]);
        for (facts, expected) in [
            (&facts, &[8, 10, 11, 12, 13, 14][..]),
            (&in_two, &[2, 4, 12, 13, 14]),
            (&without, &[2, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14]),
        ] {
            let free = free_addresses("10.0.0.0/28".parse().unwrap(), facts, &others);
            let expected = expected.iter().map(|last| IpAddr::from([10, 0, 0, *last]));
            assert_eq!(free, expected.collect(), "{:?}", facts.dhcp_ranges);
        }
    }
}
