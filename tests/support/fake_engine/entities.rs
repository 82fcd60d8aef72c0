//! The things that an engine manages.

use std::sync::Arc;

use super::snapshots::Snapshot;
use super::world::Instant;

/// What is found by its id or name.
pub trait Entity {
    fn id(&self) -> &str;
    fn name(&self) -> &str;
}

macro_rules! entities {
    ($($entity:ty),*) => {
        $(impl Entity for $entity {
            fn id(&self) -> &str {
                &self.id
            }
            fn name(&self) -> &str {
                &self.name
            }
        })*
    };
}

entities!(
    AffinityGroup,
    AffinityLabel,
    Cluster,
    DataCenter,
    Disk,
    Host,
    MacPool,
    Named,
    Network,
    Nic,
    Profile
);
entities!(StorageDomain, Template, Vm);

pub fn by_id<'a, T: Entity>(all: &'a [T], id: &str) -> Option<&'a T> {
    all.iter().find(|one| one.id() == id)
}

pub fn by_id_mut<'a, T: Entity>(all: &'a mut [T], id: &str) -> Option<&'a mut T> {
    all.iter_mut().find(|one| one.id() == id)
}

pub fn by_name<'a, T: Entity>(all: &'a [T], name: &str) -> Option<&'a T> {
    all.iter().find(|one| one.name() == name)
}

/// The id of a named object in a fresh site.
pub fn id_of<T: Entity>(all: &[T], name: &str) -> String {
    by_name(all, name).map_or(String::new(), |one| one.id().to_owned())
}

#[derive(Clone, Debug)]
pub struct Named {
    pub id: String,
    pub name: String,
    pub description: String,
}

#[derive(Clone, Debug)]
pub struct DataCenter {
    pub id: String,
    pub name: String,
    pub mac_pool: String,
}

#[derive(Clone, Debug)]
pub struct Cluster {
    pub id: String,
    pub name: String,
    pub data_center: String,
    pub mac_pool: String,
    pub cpu_type: String,
    pub version: [u32; 2],
    pub threads_as_cores: bool,
}

#[derive(Clone, Debug)]
pub struct Host {
    pub id: String,
    pub name: String,
    pub cluster: String,
    pub address: String,
    /// `up`, `maintenance` …
    pub status: String,
    pub memory: u64,
}

#[derive(Clone, Debug)]
pub struct StorageDomain {
    pub id: String,
    pub name: String,
    pub data_center: String,
    /// `data` or `iso`.
    pub kind: String,
    pub status: String,
    pub available: u64,
    pub used: u64,
}

#[derive(Clone, Debug)]
pub struct Network {
    pub id: String,
    pub name: String,
    pub data_center: String,
}

#[derive(Clone, Debug)]
pub struct Profile {
    pub id: String,
    pub name: String,
    pub network: String,
    pub filter: Option<String>,
}

#[derive(Clone, Debug)]
pub struct MacPool {
    pub id: String,
    pub name: String,
    /// First and last.
    pub range: ([u8; 6], [u8; 6]),
    pub allow_duplicates: bool,
}

/// What the engine reports about an operation.
#[derive(Clone, Debug)]
pub struct Event {
    pub id: String,
    pub severity: &'static str,
    pub correlation_id: String,
    pub description: String,
    pub at: Instant,
}

/// A role that this engine's user has on something.
#[derive(Clone, Debug)]
pub struct Permission {
    pub id: String,
    pub role: String,
    /// E.g. `("cluster", id)`; `None` is the whole system.
    pub on: Option<(&'static str, String)>,
}

/// Whether an image's guest reports its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agent {
    Installed,
    /// If its cloud-init config installs `qemu-guest-agent`.
    ByCloudInit,
    Never,
}

#[derive(Clone, Debug)]
pub struct Template {
    pub id: String,
    pub name: String,
    /// 1 of a base template. Its versions have its name.
    pub version: u64,
    pub description: String,
    pub comment: String,
    pub cluster: String,
    pub status: String,
    pub shape: Hardware,
    pub nics: Vec<Nic>,
    pub disks: Vec<Attachment>,
    pub init: Option<Init>,
    pub agent: Agent,
    pub created: Instant,
}

/// The properties that machines inherit from a template.
#[derive(Clone, Debug)]
pub struct Hardware {
    pub memory: u64,
    pub guaranteed: u64,
    pub cores: u64,
    pub sockets: u64,
    pub threads: u64,
    pub os_type: String,
    pub boot: Vec<String>,
    pub kind: String,
    pub is_stateless: bool,
    pub is_delete_protected: bool,
    pub starts_paused: bool,
    /// Id.
    pub quota: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Nic {
    pub id: String,
    pub name: String,
    pub interface: String,
    pub mac: String,
    pub profile: Option<String>,
    pub linked: bool,
    pub plugged: bool,
}

/// Its id is the disk's.
#[derive(Clone, Debug)]
pub struct Attachment {
    pub disk: String,
    pub interface: String,
    pub bootable: bool,
    pub active: bool,
}

/// The first-boot configuration of a machine. Empty texts count as none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Init {
    pub custom_script: Option<String>,
    pub host_name: Option<String>,
    pub user_name: Option<String>,
    pub root_password: Option<String>,
    pub authorized_ssh_keys: Option<String>,
    pub dns_search: Option<String>,
    pub dns_servers: Option<String>,
    /// Static addresses.
    pub networks: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Vm {
    pub id: String,
    pub name: String,
    pub comment: String,
    pub description: String,
    pub cluster: String,
    pub template: String,
    pub is_clone: bool,
    pub shape: Hardware,
    pub init: Option<Init>,
    pub is_highly_available: bool,
    pub priority: u64,
    /// Hosts it is pinned to, and `migratable`, `user_migratable` or `pinned`.
    pub pinned: Vec<String>,
    pub affinity: String,
    pub status: String,
    /// It was up once, so it gets a payload only on request.
    pub is_initialized: bool,
    /// An operation on it is running, so others are rejected.
    pub is_busy: bool,
    pub nics: Vec<Nic>,
    pub disks: Vec<Attachment>,
    pub snapshots: Vec<Snapshot>,
    pub tags: Vec<String>,
    pub host: Option<String>,
    pub created: Instant,
    /// The place of its last start in `boots`.
    pub boot: Option<usize>,
    pub agent: Agent,
}

impl Vm {
    /// A machine of a template, switched off, without NICs and disks.
    pub fn new(id: String, name: &str, cluster: String, template: &Template, now: Instant) -> Self {
        Self {
            id,
            name: name.to_owned(),
            comment: String::new(),
            description: String::new(),
            cluster,
            template: template.id.clone(),
            is_clone: false,
            shape: template.shape.clone(),
            init: template.init.clone(),
            is_highly_available: false,
            priority: 0,
            pinned: Vec::new(),
            affinity: "migratable".to_owned(),
            status: "down".to_owned(),
            is_initialized: false,
            is_busy: false,
            nics: Vec::new(),
            disks: Vec::new(),
            snapshots: Vec::new(),
            tags: Vec::new(),
            host: None,
            created: now,
            boot: None,
            agent: template.agent,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Disk {
    pub id: String,
    pub name: String,
    pub description: String,
    pub format: String,
    pub content_type: String,
    pub provisioned_size: u64,
    pub initial_size: u64,
    pub sparse: bool,
    pub storage_domain: String,
    pub status: String,
    /// The template it belongs to.
    pub template: Option<String>,
    /// What was uploaded. Disks are cloned to answer each request.
    pub data: Arc<[u8]>,
}

#[derive(Clone, Debug, Default)]
pub struct AffinityGroup {
    pub id: String,
    pub name: String,
    pub description: String,
    pub cluster: String,
    pub enabled: bool,
    pub positive: bool,
    pub enforcing: bool,
    pub vms: Vec<String>,
    /// Machines and hosts by their labels, and the rule between them.
    pub vm_labels: Vec<String>,
    pub host_labels: Vec<String>,
    pub hosts_rule: HostsRule,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct HostsRule {
    pub enabled: bool,
    pub positive: bool,
    pub enforcing: bool,
}

#[derive(Clone, Debug)]
pub struct AffinityLabel {
    pub id: String,
    pub name: String,
    /// Whether it is an affinity group of its own in clusters of compatibility 4.3.
    pub is_implicit: bool,
    pub vms: Vec<String>,
    pub hosts: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Transfer {
    pub id: String,
    pub disk: String,
    pub phase: String,
    pub direction: String,
    pub format: String,
    /// The ticket that authorizes requests for the data.
    pub ticket: String,
    pub inactivity_timeout: Instant,
    /// `legacy`, `cancel` or `pause`.
    pub timeout_policy: String,
    pub last_active: Instant,
    pub data: Vec<u8>,
}
