//! Evaluates the platform's report of a machine's address; pure.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;

use crate::backend::{Machine, Power};
use crate::cluster::{Mac, MachineName, NodeName};
use crate::node::cloud_init::ADDRESS_LINE;
use crate::plan::machines::Planned;

/// The state of a machine that has started and has no address yet, as each has during its boot.
pub const BOOTING: &str = "booting, no address yet";

/// The observed address of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Address(IpAddr),
    NoLease,
    /// As `NoLease`, on platforms where a guest agent reports addresses.
    Silent,
    WrongNetwork(IpAddr, IpNetwork),
    Several(Vec<IpAddr>),
    NoSuchNic(Mac),
    Paused(String),
    Broken(String),
    Off,
    /// After this number of starts.
    Down(u32),
    Building,
    Waiting(String),
    Absent,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seen::Address(ip) => write!(f, "{ip}, seen once"),
            Seen::NoLease => f.write_str("is running, but has no DHCP lease"),
            Seen::Silent => f.write_str("is running, but its guest agent reports no address"),
            Seen::WrongNetwork(ip, network) => write!(f, "has {ip}, which is outside {network}"),
            Seen::Several(ips) => {
                let ips: Vec<_> = ips.iter().map(IpAddr::to_string).collect();
                write!(f, "has {} addresses: {}", ips.len(), ips.join(", "))
            }
            Seen::NoSuchNic(mac) => write!(f, "has no NIC {mac}"),
            Seen::Paused(reason) => write!(f, "is paused: {reason}"),
            Seen::Broken(reason) => write!(f, "is in error state: {reason}"),
            Seen::Off => f.write_str("is powered off"),
            Seen::Down(1) => f.write_str("shut down unexpectedly"),
            Seen::Down(starts) => write!(f, "shut down soon after each of {starts} starts"),
            Seen::Building => f.write_str("is still being created"),
            Seen::Waiting(reason) => write!(f, "has not started yet: {reason}"),
            Seen::Absent => f.write_str("does not exist on the platform"),
        }
    }
}

impl Seen {
    /// The same observation on a platform where guest agents report the addresses: no lease means a silent agent.
    pub fn reported(self, by_agents: bool) -> Self {
        match self {
            Seen::NoLease if by_agents => Seen::Silent,
            other => other,
        }
    }

    /// Whether waiting longer cannot help.
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Seen::Paused(_) | Seen::Broken(_) | Seen::NoSuchNic(_) | Seen::Absent
        )
    }
}

/// Evaluates one machine by its MAC, never by the order of NICs or names. Without a network, only IPv4 addresses count.
pub fn judge(machine: Option<&Machine>, mac: Mac, network: Option<IpNetwork>) -> Seen {
    let is_ipv6 = network.is_some_and(|network| network.is_ipv6());
    judge_family(machine, mac, is_ipv6, network)
}

/// As `judge`, for a machine with a planned address: it may be in any network.
pub fn judge_planned(machine: Option<&Machine>, mac: Mac, planned: IpAddr) -> Seen {
    judge_family(machine, mac, planned.is_ipv6(), None)
}

fn judge_family(machine: Option<&Machine>, mac: Mac, is_ipv6: bool, network: Option<IpNetwork>) -> Seen {
    let Some(machine) = machine else { return Seen::Absent };
    match &machine.power {
        Power::Paused(reason) => return Seen::Paused(reason.clone()),
        Power::Broken(reason) => return Seen::Broken(reason.clone()),
        Power::Off => return Seen::Off,
        Power::Building => return Seen::Building,
        Power::Waiting(reason) => return Seen::Waiting(reason.clone()),
        Power::Running => {}
    }
    let Some(nic) = machine.nics.iter().find(|nic| nic.mac == mac) else {
        return Seen::NoSuchNic(mac);
    };
    let mut addresses: Vec<IpAddr> = nic
        .addresses
        .iter()
        .copied()
        .filter(|ip| may_be_own(*ip, is_ipv6))
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    match (addresses.as_slice(), network) {
        ([], _) => Seen::NoLease,
        ([ip], Some(network)) if !network.contains(*ip) => Seen::WrongNetwork(*ip, network),
        ([ip], _) => Seen::Address(*ip),
        _ => Seen::Several(addresses),
    }
}

/// Whether an address may be the one in the machine network: it is of this family, and valid on more than one link.
fn may_be_own(ip: IpAddr, is_ipv6: bool) -> bool {
    match ip {
        IpAddr::V4(ip) => !is_ipv6 && !ip.is_link_local() && ip != Ipv4Addr::LOCALHOST,
        IpAddr::V6(ip) => is_ipv6 && !ip.is_unicast_link_local() && ip != Ipv6Addr::LOCALHOST,
    }
}

/// The address that a guest last wrote to its serial console, in a line with `cloud_init::ADDRESS_LINE`.
pub fn console_address(text: &str, mac: Mac) -> Option<IpAddr> {
    let mac = mac.to_string();
    text.lines().rev().find_map(|line| {
        let mut fields = line.split_once(ADDRESS_LINE)?.1.split_whitespace();
        (fields.next()? == mac).then(|| fields.next()?.parse().ok()).flatten()
    })
}

/// Observes machines until each has shown one address twice in a row.
pub struct Watch {
    network: Option<IpNetwork>,
    last: BTreeMap<MachineName, Seen>,
    stable: BTreeMap<MachineName, IpAddr>,
}

/// What changed for one machine between two queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressChange {
    pub name: MachineName,
    pub node: NodeName,
    pub seen: Seen,
    pub stable: bool,
}

impl AddressChange {
    /// The node's state in messages about progress.
    pub fn state(&self) -> &'static str {
        match &self.seen {
            Seen::Address(_) => "address",
            Seen::NoLease | Seen::Silent => "booting",
            Seen::Building | Seen::Waiting(_) | Seen::Absent => "creating",
            _ => "problem",
        }
    }
}

impl fmt::Display for AddressChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.seen {
            Seen::Address(ip) if self.stable => write!(f, "{ip}"),
            // While it boots, this is not a problem.
            Seen::NoLease => f.write_str(BOOTING),
            Seen::Silent => f.write_str("booting, its guest agent reports no address yet"),
            seen => write!(f, "{seen}"),
        }
    }
}

impl Watch {
    /// `network` must contain the addresses; `None` if the platform does not report it.
    pub fn new(network: Option<IpNetwork>) -> Self {
        Self {
            network,
            last: BTreeMap::new(),
            stable: BTreeMap::new(),
        }
    }

    /// Processes one bulk query and returns the changes.
    pub fn look(&mut self, planned: &[Planned], machines: &[Machine]) -> Vec<AddressChange> {
        let by_name: BTreeMap<_, _> = machines.iter().map(|machine| (&machine.name, machine)).collect();
        let mut changes = Vec::new();
        for plan in planned {
            let mac = plan.mac;
            let machine = by_name.get(&plan.name).copied();
            let seen = match (self.network, plan.ip) {
                (None, Some(ip)) => judge_planned(machine, mac, ip),
                (network, _) => judge(machine, mac, network),
            };
            let before = self.last.insert(plan.name.clone(), seen.clone());
            let was_stable = self.stable.contains_key(&plan.name);
            match (&seen, before == Some(seen.clone())) {
                (Seen::Address(ip), true) if !was_stable => {
                    self.stable.insert(plan.name.clone(), *ip);
                    changes.push(AddressChange {
                        name: plan.name.clone(),
                        node: plan.node.clone(),
                        seen,
                        stable: true,
                    });
                }
                (_, true) => {}
                (_, false) => {
                    // A changed address is no longer stable.
                    self.stable.remove(&plan.name);
                    changes.push(AddressChange {
                        name: plan.name.clone(),
                        node: plan.node.clone(),
                        seen,
                        stable: false,
                    });
                }
            }
        }
        changes
    }

    pub fn address(&self, name: &MachineName) -> Option<IpAddr> {
        self.stable.get(name).copied()
    }

    /// Whether an address was seen once and not yet again.
    pub fn is_confirming(&self) -> bool {
        let mut seen = self.last.iter();
        seen.any(|(name, seen)| matches!(seen, Seen::Address(_)) && !self.stable.contains_key(name))
    }

    pub fn is_complete(&self, planned: &[Planned]) -> bool {
        planned.iter().all(|plan| self.stable.contains_key(&plan.name))
    }

    /// Machines without a stable address, with the last observation of each.
    pub fn missing(&self, planned: &[Planned]) -> Vec<(MachineName, Seen)> {
        planned
            .iter()
            .filter(|plan| !self.stable.contains_key(&plan.name))
            .map(|plan| {
                (
                    plan.name.clone(),
                    self.last.get(&plan.name).cloned().unwrap_or(Seen::Absent),
                )
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Nic, SeenNic};
    use crate::cluster::{Architecture, Pass, Role, Size};

    /// A NIC's MAC and its addresses.
    type Nics<'a> = &'a [(Mac, &'a [[u8; 4]])];

    const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
    const OTHER: Mac = Mac([0x52, 0x54, 0, 0, 0, 2]);

    fn machine(power: Power, nics: Nics) -> Machine {
        Machine {
            creation: None,
            name: "lab-harvest-master-0".parse().unwrap(),
            node: NodeName::node(Role::Master, 0),
            role: Role::Master,
            pass: Pass::One,
            fingerprint: String::new(),
            power,
            nics: nics
                .iter()
                .map(|(mac, ips)| SeenNic {
                    network: "default".into(),
                    mac: *mac,
                    addresses: ips.iter().map(|ip| IpAddr::from(*ip)).collect(),
                })
                .collect(),
        }
    }

    fn planned() -> Vec<Planned> {
        let nics = vec![Nic {
            network: "default".into(),
            mac: MAC,
        }];
        vec![Planned {
            name: "lab-harvest-master-0".parse().unwrap(),
            node: NodeName::node(Role::Master, 0),
            role: Role::Master,
            place: Role::Master,
            pass: Pass::One,
            arch: Architecture::X86_64,
            size: Size {
                cpus: 1,
                memory_mib: 1,
                disk_gib: 1,
                extra_disks_gib: vec![],
            },
            nics,
            mac: MAC,
            ip: None,
            ipv6: None,
        }]
    }

    #[test]
    fn a_silent_guest_is_described_by_what_reports_addresses() {
        assert_eq!(Seen::NoLease.reported(false), Seen::NoLease);
        assert_eq!(Seen::NoLease.reported(true), Seen::Silent);
        assert_eq!(Seen::Off.reported(true), Seen::Off);
    }

    #[test]
    fn a_machine_is_judged_by_its_mac() {
        let network = Some("10.0.0.0/24".parse().unwrap());
        let run = |nics: Nics| judge(Some(&machine(Power::Running, nics)), MAC, network).to_string();
        let cases: &[(Nics, &str)] = &[
            (
                &[(OTHER, &[[10, 0, 0, 9]]), (MAC, &[[10, 0, 0, 5]])],
                "10.0.0.5, seen once",
            ),
            (&[(MAC, &[])], "is running, but has no DHCP lease"),
            (&[(MAC, &[[169, 254, 3, 4]])], "is running, but has no DHCP lease"),
            (
                &[(MAC, &[[192, 168, 1, 5]])],
                "has 192.168.1.5, which is outside 10.0.0.0/24",
            ),
            (
                &[(MAC, &[[10, 0, 0, 7], [10, 0, 0, 5], [10, 0, 0, 5]])],
                "has 2 addresses: 10.0.0.5, 10.0.0.7",
            ),
            (&[(OTHER, &[[10, 0, 0, 5]])], "has no NIC 52:54:00:00:00:01"),
        ];
        for (nics, want) in cases {
            assert_eq!(run(nics), *want);
        }
        assert_eq!(judge(None, MAC, network), Seen::Absent);
        assert_eq!(judge(Some(&machine(Power::Off, &[])), MAC, network), Seen::Off);
    }

    #[test]
    fn only_addresses_of_the_networks_family_count() {
        let mut running = machine(Power::Running, &[(MAC, &[[10, 0, 0, 5]])]);
        let more: [IpAddr; 2] = ["fe80::5054:ff:fe00:1", "fd00:1::5"].map(|ip| ip.parse().unwrap());
        running.nics[0].addresses.extend(more);
        for (network, address) in [
            (None, "10.0.0.5"),
            (Some("10.0.0.0/24"), "10.0.0.5"),
            (Some("fd00:1::/64"), "fd00:1::5"),
        ] {
            let network: Option<IpNetwork> = network.map(|network| network.parse().unwrap());
            let seen = judge(Some(&running), MAC, network);
            assert_eq!(seen, Seen::Address(address.parse().unwrap()), "{network:?}");
        }
    }

    #[test]
    fn a_machine_that_boots_is_not_reported_as_a_problem() {
        let change = |seen: Seen, stable: bool| {
            let change = AddressChange {
                name: "lab-master-0".parse().unwrap(),
                node: NodeName::node(Role::Master, 0),
                seen,
                stable,
            };
            (change.state(), change.to_string())
        };
        let ip = || Seen::Address([10, 0, 0, 5].into());
        for (seen, stable, state, text) in [
            (Seen::Absent, false, "creating", "does not exist on the platform"),
            (Seen::Building, false, "creating", "is still being created"),
            (
                Seen::Waiting("full".to_owned()),
                false,
                "creating",
                "has not started yet: full",
            ),
            (Seen::NoLease, false, "booting", "booting, no address yet"),
            (
                Seen::Silent,
                false,
                "booting",
                "booting, its guest agent reports no address yet",
            ),
            (ip(), false, "address", "10.0.0.5, seen once"),
            (ip(), true, "address", "10.0.0.5"),
            (Seen::Off, false, "problem", "is powered off"),
        ] {
            assert_eq!(change(seen, stable), (state, text.to_owned()));
        }
        // After the time limit, it is one.
        assert_eq!(Seen::NoLease.to_string(), "is running, but has no DHCP lease");
    }

    #[test]
    fn an_address_counts_after_two_equal_observations_in_a_row() {
        let planned = planned();
        let mut watch = Watch::new(None);
        let mut look = |ip: [u8; 4]| {
            watch.look(&planned, &[machine(Power::Running, &[(MAC, &[ip])])]);
            watch.address(&planned[0].name)
        };
        assert_eq!(look([10, 0, 0, 5]), None);
        assert_eq!(look([10, 0, 0, 6]), None, "it changed");
        assert_eq!(look([10, 0, 0, 6]), Some(IpAddr::from([10, 0, 0, 6])));
        assert_eq!(look([10, 0, 0, 7]), None, "no longer stable");
        assert!(!watch.is_complete(&planned));
        assert_eq!(watch.missing(&planned)[0].1, Seen::Address(IpAddr::from([10, 0, 0, 7])));
    }

    #[test]
    fn an_address_that_was_seen_once_must_be_confirmed() {
        let planned = planned();
        let mut watch = Watch::new(None);
        let mut look = |ips: &[[u8; 4]]| {
            watch.look(&planned, &[machine(Power::Running, &[(MAC, ips)])]);
            watch.is_confirming()
        };
        assert!(!look(&[]));
        assert!(look(&[[10, 0, 0, 5]]));
        assert!(!look(&[[10, 0, 0, 5]]), "it is confirmed");
        assert!(
            !look(&[[10, 0, 0, 5], [10, 0, 0, 6]]),
            "two addresses cannot be confirmed"
        );
    }

    #[test]
    fn an_address_is_read_from_a_console() {
        let text = "[1.2] rehearsal: ocpdeploy-address 52:54:00:00:00:01 10.0.0.4\n\
                    ocpdeploy-address 52:54:00:00:00:02 10.0.0.9\n\
                    ocpdeploy-address 52:54:00:00:00:01 10.0.0.5\nlogin: ";
        assert_eq!(console_address(text, MAC), Some(IpAddr::from([10, 0, 0, 5])));
        for cut in [
            "",
            "ocpdeploy-address",
            "ocpdeploy-address 52:54:00:00:00:01",
            "ocpdeploy-address 52:54:00:00:00:01 10.0.0.",
        ] {
            assert_eq!(console_address(cut, MAC), None, "{cut}");
        }
    }

    #[test]
    fn each_change_is_reported_once() {
        let planned = planned();
        let mut watch = Watch::new(None);
        let mut look = || {
            let changes = watch.look(&planned, &[machine(Power::Running, &[(MAC, &[[10, 0, 0, 5]])])]);
            changes.iter().map(AddressChange::to_string).collect::<Vec<_>>()
        };
        assert_eq!(look(), ["10.0.0.5, seen once"]);
        assert_eq!(look(), ["10.0.0.5"]);
        assert!(look().is_empty(), "nothing changed");
        assert!(watch.is_complete(&planned) && watch.missing(&planned).is_empty());
    }

    #[test]
    fn only_states_that_waiting_cannot_change_are_final() {
        let ip = IpAddr::from([10, 0, 0, 5]);
        for seen in [
            Seen::Paused("I/O error".to_owned()),
            Seen::Broken("no host".to_owned()),
            Seen::NoSuchNic(MAC),
            Seen::Absent,
        ] {
            assert!(seen.is_final(), "{seen}");
        }
        for seen in [
            Seen::Address(ip),
            Seen::NoLease,
            Seen::Silent,
            Seen::WrongNetwork(ip, "10.1.0.0/24".parse().unwrap()),
            Seen::Several(vec![ip]),
            Seen::Off,
            Seen::Down(2),
            Seen::Building,
        ] {
            assert!(!seen.is_final(), "{seen}");
        }
    }
}
