//! The state file: the whole pretend platform as one JSON document, shared by any number of processes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt;
use serde::{Deserialize, Serialize};

use super::dhcp::Network;
use crate::cluster::{ClusterId, Mac, MachineName, NodeName, Pass, Role};

/// Version of the file's layout.
const VERSION: u32 = 1;

/// All that exists on the pretend platform, and what is scripted to go wrong there.
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
    pub networks: BTreeMap<String, Network>,
    /// Images that the platform's administrator offers.
    #[serde(default = "fresh_images")]
    pub images: BTreeSet<String>,
    /// Images brought from files, by `sha256:<hex>`, and the clusters that asked for them.
    #[serde(default)]
    pub uploads: BTreeMap<String, BTreeSet<ClusterId>>,
    #[serde(default)]
    pub machines: BTreeMap<MachineName, SimMachine>,
    /// Machines of other people.
    #[serde(default)]
    pub strangers: BTreeMap<MachineName, Stranger>,
}

/// How much the pretend platform can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SimLimits {
    pub concurrency: usize,
    pub carrier_bytes: usize,
    pub holds_addresses: bool,
    /// Memory of all machines together; unbounded when absent.
    pub memory_mib: Option<u64>,
}

impl Default for SimLimits {
    fn default() -> Self {
        Self {
            concurrency: 8,
            carrier_bytes: 8 << 20,
            holds_addresses: true,
            memory_mib: None,
        }
    }
}

/// What is slow and what goes wrong, as a person wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Script {
    /// From the creation of a machine to its DHCP question.
    pub boot_ms: u64,
    /// Duration of a call, half of it before the deed and half after.
    pub latency_ms: BTreeMap<Call, u64>,
    pub faults: Vec<Fault>,
    /// By machine name, so that each pass has its own.
    pub guests: BTreeMap<MachineName, Guest>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            boot_ms: 30,
            latency_ms: BTreeMap::new(),
            faults: Vec::new(),
            guests: BTreeMap::new(),
        }
    }
}

/// A method of the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Call {
    Preflight,
    LookAtNetwork,
    EnsureImage,
    CreateMachine,
    ListMachines,
    DeleteMachine,
    StartMachine,
    StopMachine,
    HoldAddress,
    ListHeld,
    ReleaseAddress,
    ReleaseAddresses,
    ListOwned,
    ConsoleTail,
}

/// One or several calls that fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fault {
    pub call: Call,
    /// Machine, node, network or cluster the call is about; any when absent.
    #[serde(default)]
    pub about: Option<String>,
    /// Which of the matching calls is the first to fail, from 1.
    #[serde(default = "one")]
    pub nth: u32,
    /// How many fail from there on.
    #[serde(default = "one")]
    pub times: u32,
    pub what: What,
    /// Matching calls so far.
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
    /// No answer, and nothing was done.
    TimeoutBefore,
    /// No answer, but it was done.
    TimeoutAfter,
}

/// How one guest behaves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Guest {
    /// Boots this much later than others.
    pub late_ms: u64,
    /// After so many of its starts it goes down by itself, in place of asking for an address.
    pub dies: u32,
    pub does: Option<Misdeed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Misdeed {
    /// Never gets an answer from DHCP.
    NoLease,
    /// Asks twice, with two client ids.
    SecondAddress,
    /// Another DHCP server on the wire is quicker: neither its reservation nor its lease counts.
    Moves,
    /// Hangs in its first instructions.
    Paused,
    /// Sits on a wire with other addresses.
    WrongNetwork,
    /// Does not shut down when it is asked to.
    Deaf,
}

/// A machine made through this backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SimMachine {
    pub cluster: ClusterId,
    pub node: NodeName,
    pub role: Role,
    pub pass: Pass,
    pub fingerprint: String,
    pub cpus: u32,
    pub memory_mib: u64,
    pub disk_gib: u64,
    pub extra_disks_gib: Vec<u64>,
    pub image: String,
    pub nics: Vec<SimNic>,
    pub payload: Delivered,
    pub autostart: bool,
    pub created_ms: u64,
    /// When it asks for its addresses.
    pub boots_ms: u64,
    #[serde(default)]
    pub off: bool,
    #[serde(default)]
    pub starts: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SimNic {
    pub network: String,
    pub mac: Mac,
    /// The client id its DHCP client sends.
    pub client: String,
    /// What it was given; empty until it has booted.
    pub addresses: Vec<Ipv4Addr>,
}

/// What reached the guest, without its content: a config holds secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Delivered {
    pub kind: String,
    pub bytes: usize,
    pub sha512: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Stranger {
    pub macs: BTreeSet<Mac>,
}

fn this_program() -> String {
    concat!("ocpdeploy ", env!("CARGO_PKG_VERSION")).to_owned()
}

fn fresh_networks() -> BTreeMap<String, Network> {
    BTreeMap::from([("default".to_owned(), Network::fresh())])
}

/// What a rehearsal asks for, so that one works on a platform that nobody has prepared.
fn fresh_images() -> BTreeSet<String> {
    BTreeSet::from(["coreos".to_owned(), "helper".to_owned()])
}

fn one() -> u32 {
    1
}

impl World {
    fn fresh() -> Self {
        Self {
            v: VERSION,
            written_by: this_program(),
            limits: SimLimits::default(),
            script: Script::default(),
            networks: fresh_networks(),
            images: fresh_images(),
            uploads: BTreeMap::new(),
            machines: BTreeMap::new(),
            strangers: BTreeMap::new(),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Head {
            v: u32,
            #[serde(default)]
            written_by: String,
        }
        let head: Head = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if head.v != VERSION {
            return Err(format!(
                "version {} written by `{}`; this program knows version {VERSION}",
                head.v, head.written_by
            ));
        }
        let world: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match world.networks.iter().find(|(_, network)| !network.is_sound()) {
            Some((name, _)) => Err(format!("network {name}: gateway and DHCP range must lie inside `cidr`")),
            None => Ok(world),
        }
    }

    /// Lets time pass: leases end, and guests that have booted by now ask for addresses, the earliest first.
    pub fn advance(&mut self, now_ms: u64) {
        for network in self.networks.values_mut() {
            network.forget_expired(now_ms);
        }
        let mut waiting: Vec<_> = self
            .machines
            .iter_mut()
            .filter(|(_, machine)| !machine.off && machine.boots_ms <= now_ms)
            .collect();
        waiting.sort_by_key(|(_, machine)| machine.boots_ms);
        for (name, machine) in waiting {
            let guest = self.script.guests.get(name).cloned().unwrap_or_default();
            if machine.starts <= guest.dies && machine.nics.iter().all(|nic| nic.addresses.is_empty()) {
                machine.off = true;
                continue;
            }
            let does = guest.does;
            for nic in machine.nics.iter_mut().filter(|nic| nic.addresses.is_empty()) {
                let Some(network) = self.networks.get_mut(&nic.network) else {
                    continue;
                };
                nic.addresses = match does {
                    Some(Misdeed::NoLease | Misdeed::Paused) => Vec::new(),
                    Some(Misdeed::WrongNetwork) => vec![Ipv4Addr::new(10, 255, nic.mac.0[4], nic.mac.0[5])],
                    Some(Misdeed::Moves) => network
                        .ask_elsewhere(nic.mac, &nic.client, now_ms)
                        .into_iter()
                        .collect(),
                    Some(Misdeed::SecondAddress) => ["initramfs", nic.client.as_str()]
                        .into_iter()
                        .filter_map(|client| network.ask(nic.mac, client, now_ms))
                        .collect(),
                    None | Some(Misdeed::Deaf) => network.ask(nic.mac, &nic.client, now_ms).into_iter().collect(),
                };
            }
        }
    }

    /// What is scripted to go wrong with this call; counts it.
    pub fn fault(&mut self, call: Call, about: &str) -> Option<What> {
        let mut hit = None;
        for fault in &mut self.script.faults {
            if fault.call == call && fault.about.as_deref().is_none_or(|wanted| wanted == about) {
                fault.seen += 1;
                if (fault.nth..fault.nth.saturating_add(fault.times)).contains(&fault.seen) {
                    hit = hit.or(Some(fault.what));
                }
            }
        }
        hit
    }
}

/// Where the state file is.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pub path: PathBuf,
}

/// Why the state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the state file {} is not understood: {problem}", path.display())]
    Content { path: PathBuf, problem: String },
}

impl Store {
    /// The world now; a fresh one where there is no file yet.
    pub fn read(&self) -> Result<World, StoreError> {
        match fs::read_to_string(&self.path) {
            Ok(text) => World::parse(&text).map_err(|problem| StoreError::Content {
                path: self.path.clone(),
                problem,
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(World::fresh()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads, changes and replaces the world while no other process does.
    pub fn update<T>(&self, change: impl FnOnce(&mut World) -> T) -> Result<T, StoreError> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| io::Error::new(error.kind(), format!("cannot make {}: {error}", folder.display())))?;
        let lock = private_file(&self.beside("lock"))?;
        // The kernel lets go of it when this process ends, however it ends.
        lock.file().lock()?;
        let before = self.read()?;
        let mut after = before.clone();
        let outcome = change(&mut after);
        if after != before || !self.path.exists() {
            self.replace(&after, folder)?;
        }
        Ok(outcome)
    }

    /// Under the lock; a crash leaves the old file or the new one, and at most one `.new` that the next write takes.
    fn replace(&self, world: &World, folder: &Path) -> Result<(), StoreError> {
        let new = self.beside("new");
        let mut text = serde_json::to_vec_pretty(world).map_err(io::Error::from)?;
        text.push(b'\n');
        let mut file = private_file(&new)?;
        file.set_len(0)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        Ok(fs::File::open(folder)?.sync_all()?)
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".");
        name.push(suffix);
        self.path.with_file_name(name)
    }
}

fn private_file(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
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
        assert_eq!(World::parse(r#"{"v": 1}"#), Ok(World::fresh()));
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
