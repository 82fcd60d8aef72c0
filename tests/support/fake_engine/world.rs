//! The state of the engine: entities, the clock, and pending events.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::faults::Fault;
use super::guests::{Boot, Dhcp, Guest};
use super::http::Request;
use super::imageio::Daemon;

pub use super::entities::*;

pub const GIB: u64 = 1 << 30;
pub const BLANK: &str = "00000000-0000-0000-0000-000000000000";

/// Milliseconds since the engine's start; the clock advances with each request and by `advance`, never by itself.
pub type Instant = u64;

/// The whole state. Tests may read and change it directly.
pub struct World {
    pub now: Instant,
    /// How much time each request of the API takes.
    pub tick: Instant,
    next: u64,
    timers: Vec<(Instant, u64, Effect)>,
    pub times: Times,

    /// E.g. 4.5.7: determines the supported requests, see `of_version`.
    pub version: [u32; 3],
    pub password: String,
    /// Each token and when it was used last.
    pub tokens: BTreeMap<String, Instant>,
    /// Whether the user has an administrator's role; others get only filtered answers.
    pub is_administrator: bool,
    /// `ENGINE_API_FILTER_BY_DEFAULT`, "true" since 4.2: ordinary users are filtered unless a request says otherwise.
    pub filters_by_default: bool,
    /// Searches find everything, as a platform that is not the engine might.
    pub ignores_filters: bool,
    /// Commands without a lock see the state at their arrival, see `Seen`.
    pub races: bool,
    pub seen: Option<Seen>,
    /// Snapshots cannot be merged: their deletion fails.
    pub merges_fail: bool,
    /// Copies of disks fail after the engine has accepted the machine or template.
    pub copies_fail: bool,
    /// The engine ends once, between preview and commit of a snapshot.
    pub ends_in_preview: bool,
    /// Ids of disks that several machines may have.
    pub shareable: Vec<String>,

    pub data_centers: Vec<DataCenter>,
    pub clusters: Vec<Cluster>,
    pub hosts: Vec<Host>,
    pub storage_domains: Vec<StorageDomain>,
    pub networks: Vec<Network>,
    pub filters: Vec<Named>,
    pub profiles: Vec<Profile>,
    pub mac_pools: Vec<MacPool>,
    pub permissions: Vec<Permission>,
    pub templates: Vec<Template>,
    pub vms: Vec<Vm>,
    pub disks: Vec<Disk>,
    pub tags: Vec<Named>,
    pub affinity_groups: Vec<AffinityGroup>,
    pub affinity_labels: Vec<AffinityLabel>,
    pub events: Vec<Event>,
    pub transfers: Vec<Transfer>,

    /// The behavior of guests by MAC, in lower case; `Guest::default()` for all others.
    pub guests: BTreeMap<String, Guest>,
    pub dhcp: Dhcp,
    /// All starts of machines, in order, with their guests' configuration.
    pub boots: Vec<Boot>,
    /// Whether images that tests upload have an agent; see `guests.rs`.
    pub uploaded_agent: Agent,

    pub faults: Vec<Fault>,
    pub requests: Vec<Request>,
    /// Unknown requests: each of them fails the test.
    pub surprises: Vec<String>,
    /// Where image data goes: to the engine itself, or to a real daemon.
    pub imageio: Option<Daemon>,
    /// `https://127.0.0.1:PORT`
    pub origin: String,
    /// The address of hosts in transfers, if it cannot be reached.
    pub direct_origin: Option<String>,
    pub ca_pem: String,
}

/// The state when a request arrived: a command without a lock does not see later changes.
#[derive(Clone, Debug)]
pub struct Seen {
    pub groups: Vec<AffinityGroup>,
    pub labels: Vec<AffinityLabel>,
}

/// In milliseconds of the engine's clock.
// Assumed: how long operations take, and how long a guest takes to be up.
pub struct Times {
    pub disk: Instant,
    pub clone: Instant,
    pub template: Instant,
    pub disk_removal: Instant,
    pub launch: Instant,
    pub up_with_agent: Instant,
    pub up_without_agent: Instant,
    pub power_off: Instant,
    pub shutdown: Instant,
    pub snapshot: Instant,
    pub transfer: Instant,
    /// How long a finished transfer is still shown.
    pub transfer_shown: Instant,
    pub session: Instant,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            disk: 3_000,
            clone: 10_000,
            template: 5_000,
            disk_removal: 5_000,
            launch: 2_000,
            up_with_agent: 10_000,
            up_without_agent: 60_000,
            power_off: 2_000,
            shutdown: 8_000,
            snapshot: 4_000,
            transfer: 3_000,
            transfer_shown: 10_000,
            session: 30 * 60_000,
        }
    }
}

/// A pending event.
#[derive(Clone, Debug)]
pub enum Effect {
    DiskOk(String),
    DiskGone(String),
    VmDown(String),
    VmGone(String),
    TemplateOk {
        template: String,
        vm: String,
    },
    /// With the number of the boot, because the machine may be restarted by then.
    PoweringUp(String, usize),
    Up(String, usize),
    Off(String, usize),
    /// A machine and its snapshot.
    SnapshotOk(String, String),
    SnapshotGone(String, String),
    Restored(String, String),
    Transferring(String),
    TransferFinished(String),
    /// The next phase of a transfer that was cancelled or failed.
    TransferCleanup(String),
    TransferGone(String),
}

impl World {
    /// Sets the engine's version, and its clusters to the newest compatibility version.
    pub fn of_version(&mut self, version: [u32; 3]) {
        self.version = version;
        // oVirt/ovirt-engine: `Version.java`; 4.5 has 4.7.
        let compatibility = match version {
            [4, 3, _] => [4, 3],
            [4, 4, ..3] => [4, 4],
            [4, 4, ..6] => [4, 5],
            [4, 4, _] => [4, 6],
            _ => [4, 7],
        };
        self.clusters
            .iter_mut()
            .for_each(|cluster| cluster.version = compatibility);
    }

    /// The state that a request without a lock sees; `None` for all others.
    ///
    /// Affinity groups and labels are read, changed and written whole (oVirt/ovirt-engine: AddAffinityGroupCommand,
    /// EditAffinityGroupCommand and UpdateLabelCommand have no `getExclusiveLocks`).
    pub fn sees(&self, request: &Request) -> Option<Seen> {
        let changes = ["/affinitygroups", "/affinitylabels/"]
            .iter()
            .any(|part| request.path.contains(part));
        (self.races && request.method == "POST" && changes).then(|| Seen {
            groups: self.affinity_groups.clone(),
            labels: self.affinity_labels.clone(),
        })
    }

    /// Whether one of the user's roles allows it on one of these, or on the whole system.
    pub fn may(&self, permit: &str, on: &[&str]) -> bool {
        let counts = |on_it: &Option<(&str, String)>| on_it.as_ref().is_none_or(|(_, id)| on.contains(&id.as_str()));
        let mut roles = self.permissions.iter().filter(|permission| counts(&permission.on));
        roles.any(|permission| super::around::permits_of(&permission.role).contains(&permit))
    }

    /// Whether a disk is being removed.
    pub fn is_going(&self, disk: &str) -> bool {
        let goes = |effect: &Effect| matches!(effect, Effect::DiskGone(id) if id == disk);
        self.timers.iter().any(|(_, _, effect)| goes(effect))
    }

    /// Reports that an operation has failed.
    pub fn log_error(&mut self, request: &Request, description: String) {
        let event = Event {
            id: self.new_id(),
            severity: "error",
            correlation_id: request.query.get("correlation_id").cloned().unwrap_or_default(),
            description,
            at: self.now,
        };
        self.events.push(event);
    }

    /// An id in the engine's form, the same in each run.
    pub fn new_id(&mut self) -> String {
        self.next += 1;
        format!(
            "{:08x}-0000-4000-8000-{:012x}",
            self.next.wrapping_mul(0x9e37_79b1) as u32,
            self.next
        )
    }

    pub fn after(&mut self, time: Instant, effect: Effect) {
        self.next += 1;
        self.timers.push((self.now + time, self.next, effect));
    }

    /// Advances the clock and processes due events in order.
    pub fn advance(&mut self, time: Instant) {
        let until = self.now + time;
        loop {
            self.idle_transfers();
            let due = self.timers.iter().enumerate().filter(|(_, timer)| timer.0 <= until);
            let Some((index, _)) = due.min_by_key(|(_, timer)| (timer.0, timer.1)) else {
                break;
            };
            let (at, _, effect) = self.timers.remove(index);
            self.now = self.now.max(at);
            self.happen(effect);
        }
        self.now = until;
        self.idle_transfers();
    }

    pub(super) fn happen(&mut self, effect: Effect) {
        match effect {
            Effect::DiskOk(id) => {
                if let Some(disk) = self
                    .disks
                    .iter_mut()
                    .find(|disk| disk.id == id && disk.status == "locked")
                {
                    disk.status = "ok".to_owned();
                }
            }
            Effect::DiskGone(id) => self.disks.retain(|disk| disk.id != id),
            // oVirt/ovirt-engine: AddVmCommand.endWithFailure.
            Effect::VmGone(id) => {
                let vms = self.vms.extract_if(.., |vm| vm.id == id);
                let disks: Vec<_> = vms.flat_map(|vm| vm.disks).collect();
                self.disks.retain(|disk| disks.iter().all(|lost| lost.disk != disk.id));
            }
            Effect::VmDown(id) => {
                if let Some(vm) = self
                    .vms
                    .iter_mut()
                    .find(|vm| vm.id == id && vm.status == "image_locked")
                {
                    vm.status = "down".to_owned();
                    vm.is_busy = false;
                }
            }
            Effect::TemplateOk { template, vm } => {
                if self.copies_fail {
                    // oVirt/ovirt-engine: AddVmTemplateCommand.endWithFailure.
                    self.templates.retain(|known| known.id != template);
                    self.disks.retain(|disk| disk.template.as_ref() != Some(&template));
                } else if let Some(template) = by_id_mut(&mut self.templates, &template) {
                    template.status = "ok".to_owned();
                }
                self.happen(Effect::VmDown(vm));
            }
            Effect::PoweringUp(id, boot) => {
                if let Some(vm) = self.booting(&id, boot) {
                    let status = if vm.shape.starts_paused {
                        "paused"
                    } else {
                        "powering_up"
                    };
                    vm.status = status.to_owned();
                    vm.is_busy = false;
                }
            }
            Effect::Up(id, boot) => {
                if let Some(vm) = self.booting(&id, boot) {
                    vm.status = "up".to_owned();
                    vm.is_initialized = true;
                }
            }
            Effect::Off(id, boot) => {
                if let Some(vm) = self.vms.iter_mut().find(|vm| vm.id == id && vm.boot == Some(boot)) {
                    vm.status = "down".to_owned();
                    vm.host = None;
                    vm.is_busy = false;
                }
            }
            Effect::SnapshotOk(vm, id) => self.snapshot_done(&vm, &id),
            Effect::SnapshotGone(vm, id) => self.snapshot_gone(&vm, &id),
            Effect::Restored(vm, id) => self.restored(&vm, &id),
            Effect::Transferring(id) => self.transfer_began(&id),
            Effect::TransferFinished(id) => self.transfer_finished(&id),
            Effect::TransferCleanup(id) => self.transfer_cleanup(&id),
            Effect::TransferGone(id) => self.transfers.retain(|transfer| transfer.id != id),
        }
    }

    fn booting(&mut self, id: &str, boot: usize) -> Option<&mut Vm> {
        let starts = ["wait_for_launch", "powering_up"];
        self.vms
            .iter_mut()
            .find(|vm| vm.id == id && vm.boot == Some(boot) && starts.contains(&vm.status.as_str()))
    }

    pub fn vm_mut(&mut self, id: &str) -> Option<&mut Vm> {
        by_id_mut(&mut self.vms, id)
    }

    pub fn disk(&self, id: &str) -> Option<&Disk> {
        by_id(&self.disks, id)
    }

    pub fn disk_mut(&mut self, id: &str) -> Option<&mut Disk> {
        by_id_mut(&mut self.disks, id)
    }

    pub fn vm_named(&self, name: &str) -> Option<&Vm> {
        self.vms.iter().find(|vm| vm.name == name)
    }

    pub fn data_center_of(&self, cluster: &str) -> &str {
        let cluster = by_id(&self.clusters, cluster);
        cluster.map_or("", |cluster| cluster.data_center.as_str())
    }

    /// The behavior of the guest with a MAC.
    pub fn guest(&self, mac: &str) -> Guest {
        self.guests.get(mac).cloned().unwrap_or_default()
    }

    pub(super) fn empty() -> Self {
        Self {
            now: 0,
            tick: 1_000,
            next: 0,
            timers: Vec::new(),
            times: Times::default(),
            version: [4, 5, 7],
            password: String::new(),
            tokens: BTreeMap::new(),
            is_administrator: true,
            filters_by_default: true,
            ignores_filters: false,
            races: true,
            seen: None,
            merges_fail: false,
            copies_fail: false,
            ends_in_preview: false,
            shareable: Vec::new(),
            data_centers: Vec::new(),
            clusters: Vec::new(),
            hosts: Vec::new(),
            storage_domains: Vec::new(),
            networks: Vec::new(),
            filters: Vec::new(),
            profiles: Vec::new(),
            mac_pools: Vec::new(),
            permissions: Vec::new(),
            templates: Vec::new(),
            vms: Vec::new(),
            disks: Vec::new(),
            tags: Vec::new(),
            affinity_groups: Vec::new(),
            affinity_labels: Vec::new(),
            events: Vec::new(),
            transfers: Vec::new(),
            guests: BTreeMap::new(),
            dhcp: Dhcp::from(Ipv4Addr::new(192, 168, 99, 50)),
            boots: Vec::new(),
            uploaded_agent: Agent::ByCloudInit,
            faults: Vec::new(),
            requests: Vec::new(),
            surprises: Vec::new(),
            imageio: None,
            origin: String::new(),
            direct_origin: None,
            ca_pem: String::new(),
        }
    }
}
