//! The state of the simulated platform as one value, and how time and the script change it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::dhcp::{Reservation, SimLease, SimNetwork};
use super::noted::{Changes, Noted};
use crate::backend::Snapshot;
use crate::cluster::{ClusterId, Creation, Mac, MachineName, NodeName, Pass, Role};

/// Version of the file format.
const VERSION: u32 = 1;

/// All objects on the simulated platform, its limits, and the scripted faults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct World {
    v: u32,
    #[serde(default = "this_program")]
    written_by: String,
    #[serde(default)]
    pub limits: SimLimits,
    #[serde(default)]
    pub script: Script,
    #[serde(default = "fresh_networks")]
    pub networks: BTreeMap<String, SimNetwork>,
    /// Images that the platform's administrator offers.
    #[serde(default = "fresh_images")]
    pub images: BTreeSet<String>,
    /// Uploaded images, by `sha256:<hex>`, and the clusters that use them.
    #[serde(default)]
    pub uploads: Noted<String, BTreeSet<ClusterId>>,
    #[serde(default)]
    pub machines: Noted<MachineName, SimMachine>,
    /// Machines that were not created by this program.
    #[serde(default)]
    pub foreign_machines: BTreeMap<String, ForeignMachine>,
    /// A scripted fault counted a call since the last `take_change`.
    #[serde(skip)]
    counted: bool,
}

/// The changes of one call. As JSON, a merge patch (RFC 7396) of the world.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WorldChange {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    machines: Changes<MachineName, SimMachine>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    uploads: Changes<String, BTreeSet<ClusterId>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    networks: BTreeMap<String, NetworkChange>,
    #[serde(skip_serializing_if = "Option::is_none")]
    script: Option<ScriptChange>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct NetworkChange {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    leases: Changes<Ipv4Addr, SimLease>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    reservations: Changes<Ipv4Addr, Reservation>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptChange {
    faults: Vec<ScriptedFault>,
}

/// The limits of the simulated platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SimLimits {
    pub concurrency: usize,
    pub carrier_bytes: usize,
    pub reserves_addresses: bool,
    /// `false`: as libvirt on another host, where addresses are reserved after they are known.
    pub host_is_here: bool,
    /// The pause between two queries of all machines.
    pub poll_interval_ms: u64,
    /// Total memory of all machines; unlimited if not set.
    pub memory_mib: Option<u64>,
    /// Total size of all disks and their snapshots; unlimited if not set. Only snapshots are checked.
    pub disk_gib: Option<u64>,
}

impl Default for SimLimits {
    fn default() -> Self {
        Self {
            concurrency: 8,
            carrier_bytes: 8 << 20,
            reserves_addresses: true,
            host_is_here: true,
            poll_interval_ms: 20,
            memory_mib: None,
            disk_gib: None,
        }
    }
}

/// Delays, faults and misbehaving guests, as written by the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Script {
    /// Time from the creation of a machine to its DHCP request.
    pub boot_ms: u64,
    /// Duration of a call; half of it before the operation, half of it after.
    pub latency_ms: BTreeMap<Call, u64>,
    pub faults: Vec<ScriptedFault>,
    /// By machine name, so that each pass has its own guests.
    pub guests: BTreeMap<MachineName, Guest>,
    /// Listings ignore filters and return all objects.
    pub ignores_filters: bool,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            boot_ms: 30,
            latency_ms: BTreeMap::new(),
            faults: Vec::new(),
            guests: BTreeMap::new(),
            ignores_filters: false,
        }
    }
}

/// A method of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Call {
    Preflight,
    NetworkFacts,
    EnsureImage,
    CreateMachine,
    ListMachines,
    DeleteMachine,
    StartMachine,
    StopMachine,
    ReserveAddress,
    ListReservations,
    ReleaseAddress,
    DeleteRemaining,
    ListOwned,
    ConsoleTail,
    CheckSnapshots,
    SaveSnapshot,
    ListSnapshots,
    RevertToSnapshot,
    DeleteSnapshot,
}

/// One or several calls that fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptedFault {
    pub call: Call,
    /// The machine, node, network or cluster of the call; any if not set.
    #[serde(default)]
    pub about: Option<String>,
    /// The first of the matching calls that fails, counted from 1.
    #[serde(default = "one")]
    pub nth: u32,
    /// The number of calls that fail.
    #[serde(default = "one")]
    pub times: u32,
    pub what: What,
    /// The number of matching calls so far.
    #[serde(default)]
    pub seen: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    Unreachable,
    Denied,
    Quota,
    Rejected,
    /// No response, and the operation was not performed.
    TimeoutBefore,
    /// No response, but the operation was performed.
    TimeoutAfter,
}

/// How one guest behaves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Guest {
    /// Additional boot time.
    pub late_ms: u64,
    /// At this many first starts, the guest shuts down instead of requesting an address.
    pub dies: u32,
    pub does: Option<Misbehavior>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Misbehavior {
    /// Never gets a DHCP response.
    NoLease,
    /// Requests two addresses, with two client ids.
    SecondAddress,
    /// Another DHCP server in the network responds first, so reservation and lease have no effect.
    Moves,
    /// The guest hangs when it starts.
    Paused,
    /// Is connected to a network with other addresses.
    WrongNetwork,
    /// Ignores the request to shut down.
    Deaf,
}

/// A machine that was created by this backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SimMachine {
    pub cluster: ClusterId,
    pub node: NodeName,
    pub role: Role,
    pub pass: Pass,
    pub fingerprint: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation: Option<Creation>,
    pub cpus: u32,
    pub memory_mib: u64,
    pub disk_gib: u64,
    pub extra_disks_gib: Vec<u64>,
    pub image: String,
    pub nics: Vec<SimNic>,
    pub payload: Delivered,
    pub autostart: bool,
    pub created_ms: u64,
    /// When it requests its addresses.
    pub boots_ms: u64,
    #[serde(default)]
    pub off: bool,
    #[serde(default)]
    pub starts: u32,
    /// The content of its disks: how often the guest has booted from them.
    #[serde(default)]
    pub disk: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub snapshots: Vec<SimSnapshot>,
}

/// A snapshot of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SimSnapshot {
    /// The tag; none if a user has created it on the platform.
    #[serde(default)]
    pub cluster: Option<ClusterId>,
    pub snapshot: Snapshot,
    pub disk: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SimNic {
    pub network: String,
    pub mac: Mac,
    /// The client id of its DHCP client.
    pub client: String,
    /// The leased addresses; empty until it has booted.
    pub addresses: Vec<Ipv4Addr>,
}

/// The payload without its content, because a config contains secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Delivered {
    pub kind: String,
    pub bytes: usize,
    pub sha512: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ForeignMachine {
    pub macs: BTreeSet<Mac>,
}

fn this_program() -> String {
    concat!("ocpdeploy ", env!("CARGO_PKG_VERSION")).to_owned()
}

fn fresh_networks() -> BTreeMap<String, SimNetwork> {
    BTreeMap::from([("default".to_owned(), SimNetwork::fresh())])
}

/// The images of a rehearsal, so that it works on a new platform.
fn fresh_images() -> BTreeSet<String> {
    BTreeSet::from(["coreos".to_owned(), "helper".to_owned()])
}

/// The first JSON document of a text, and where it ends.
fn first<T: for<'de> Deserialize<'de>>(text: &str) -> Result<(T, usize), String> {
    let mut documents = serde_json::Deserializer::from_str(text).into_iter();
    match documents.next() {
        Some(Ok(document)) => Ok((document, documents.byte_offset())),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("the file is empty".to_owned()),
    }
}

fn one() -> u32 {
    1
}

impl World {
    pub fn fresh() -> Self {
        Self {
            v: VERSION,
            written_by: this_program(),
            limits: SimLimits::default(),
            script: Script::default(),
            networks: fresh_networks(),
            images: fresh_images(),
            uploads: Noted::default(),
            machines: Noted::default(),
            foreign_machines: BTreeMap::new(),
            counted: false,
        }
    }

    /// Parses the world at the beginning of a text, and returns where it ends.
    pub fn parse(text: &str) -> Result<(Self, usize), String> {
        #[derive(Deserialize)]
        struct Head {
            v: u32,
            #[serde(default)]
            written_by: String,
        }
        let (head, _) = first::<Head>(text)?;
        if head.v != VERSION {
            return Err(format!(
                "version {} written by `{}`; this program supports version {VERSION}",
                head.v, head.written_by
            ));
        }
        let (world, end) = first::<Self>(text)?;
        match world.networks.iter().find(|(_, network)| !network.is_sound()) {
            Some((name, _)) => Err(format!("network {name}: gateway and DHCP range must be inside `cidr`")),
            None => Ok((world, end)),
        }
    }

    /// The changes since the last call, if any.
    pub fn take_change(&mut self) -> Option<WorldChange> {
        let network = |(name, network): (&String, &mut SimNetwork)| {
            let change = NetworkChange {
                leases: network.leases.take_changes(),
                reservations: network.reservations.take_changes(),
            };
            (change != NetworkChange::default()).then(|| (name.clone(), change))
        };
        let change = WorldChange {
            machines: self.machines.take_changes(),
            uploads: self.uploads.take_changes(),
            networks: self.networks.iter_mut().filter_map(network).collect(),
            script: std::mem::take(&mut self.counted).then(|| ScriptChange {
                faults: self.script.faults.clone(),
            }),
        };
        (change != WorldChange::default()).then_some(change)
    }

    /// Applies a change that was read from the file.
    pub fn apply(&mut self, change: WorldChange) {
        self.machines.apply(change.machines);
        self.uploads.apply(change.uploads);
        for (name, change) in change.networks {
            if let Some(network) = self.networks.get_mut(&name) {
                network.leases.apply(change.leases);
                network.reservations.apply(change.reservations);
            }
        }
        if let Some(script) = change.script {
            self.script.faults = script.faults;
        }
    }

    /// Advances the time: leases expire, and guests that have booted by now request addresses, the earliest first.
    pub fn advance(&mut self, now_ms: u64) {
        for network in self.networks.values_mut() {
            network.forget_expired(now_ms);
        }
        let is_waiting = |machine: &SimMachine| {
            let without = machine.nics.iter().any(|nic| nic.addresses.is_empty());
            without && !machine.off && machine.boots_ms <= now_ms
        };
        let waiting = self.machines.iter().filter(|(_, machine)| is_waiting(machine));
        let mut waiting: Vec<_> = waiting
            .map(|(name, machine)| (machine.boots_ms, name.clone()))
            .collect();
        waiting.sort();
        for (_, name) in waiting {
            let guest = self.script.guests.get(&name).cloned().unwrap_or_default();
            let Some(machine) = self.machines.get(&name) else {
                continue;
            };
            let dies = machine.starts <= guest.dies && machine.nics.iter().all(|nic| nic.addresses.is_empty());
            let mut nics = machine.nics.clone();
            for nic in nics.iter_mut().filter(|nic| nic.addresses.is_empty() && !dies) {
                let Some(network) = self.networks.get_mut(&nic.network) else {
                    continue;
                };
                nic.addresses = match guest.does {
                    Some(Misbehavior::NoLease | Misbehavior::Paused) => Vec::new(),
                    Some(Misbehavior::WrongNetwork) => vec![Ipv4Addr::new(10, 255, nic.mac.0[4], nic.mac.0[5])],
                    Some(Misbehavior::Moves) => network
                        .request_elsewhere(nic.mac, &nic.client, now_ms)
                        .into_iter()
                        .collect(),
                    Some(Misbehavior::SecondAddress) => ["initramfs", nic.client.as_str()]
                        .into_iter()
                        .filter_map(|client| network.request(nic.mac, client, now_ms))
                        .collect(),
                    None | Some(Misbehavior::Deaf) => {
                        network.request(nic.mac, &nic.client, now_ms).into_iter().collect()
                    }
                };
            }
            if (dies || nics != machine.nics)
                && let Some(machine) = self.machines.get_mut(&name)
            {
                (machine.off, machine.nics) = (dies, nics);
            }
        }
    }

    /// Whether a listing contains an object, given whether it matches the filter.
    pub fn lists(&self, matches: bool) -> bool {
        matches || self.script.ignores_filters
    }

    /// The scripted fault of this call, if any. Counts the call.
    pub fn fault(&mut self, call: Call, about: &str) -> Option<What> {
        let mut hit = None;
        for fault in &mut self.script.faults {
            if fault.call == call && fault.about.as_deref().is_none_or(|wanted| wanted == about) {
                fault.seen += 1;
                self.counted = true;
                if (fault.nth..fault.nth.saturating_add(fault.times)).contains(&fault.seen) {
                    hit = hit.or(Some(fault.what));
                }
            }
        }
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_hits_its_nth_matching_call_and_counts_them() {
        let mut world = World::fresh();
        world.script.faults = serde_json::from_str(
            r#"[{"call": "create_machine", "about": "lab-master-1", "nth": 2, "times": 2, "what": "quota"}]"#,
        )
        .unwrap();
        let mut ask = |call, about| world.fault(call, about);
        assert_eq!(ask(Call::CreateMachine, "lab-master-0"), None);
        assert_eq!(ask(Call::DeleteMachine, "lab-master-1"), None);
        let hits: Vec<_> = (0..4)
            .map(|_| ask(Call::CreateMachine, "lab-master-1").is_some())
            .collect();
        assert_eq!(hits, [false, true, true, false]);
        assert_eq!(world.script.faults[0].seen, 4);
    }

    #[test]
    fn a_state_file_is_read_strictly() {
        assert_eq!(World::parse("{\"v\": 1}\n"), Ok((World::fresh(), 8)));
        for (text, part) in [
            ("{", "EOF"),
            (r#"{"v": 2, "written_by": "ocpdeploy 9"}"#, "`ocpdeploy 9`"),
            (r#"{"v": 1, "machine": {}}"#, "unknown field `machine`"),
            (
                r#"{"v": 1, "script": {"faults": [{"call": "make_tea", "what": "denied"}]}}"#,
                "make_tea",
            ),
            (
                r#"{"v": 1, "networks": {"n": {"cidr": "10.0.0.0/24", "gateway": "10.0.1.1",
                    "dhcp_from": "10.0.0.2", "dhcp_to": "10.0.0.9"}}}"#,
                "network n",
            ),
        ] {
            let error = World::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
