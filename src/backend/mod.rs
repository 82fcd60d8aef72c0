//! What a platform must do for us, and the values that pass between it and the rest.
//!
//! A backend knows how to talk to its platform and nothing else: it may wait for what one call began, but order, fan-out,
//! retry (`retry.rs`) and the passes are never in here. To add one:
//!
//! 1. a folder here, which implements `Backend` and says its `Capabilities`,
//! 2. an arm in each match of `connect.rs`,
//! 3. its settings: a variant of `BackendConfig` in `cluster/platform.rs`, and what `settings/` reads for it,
//! 4. a line in `tests/it/contract.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use async_trait::async_trait;
use ipnetwork::Ipv4Network;
use serde::{Deserialize, Serialize};

use crate::cluster::{AddressAssignment, ClusterId, Mac, MachineName, NodeName, Pass, Role, Size};
use crate::digest::sha256;

mod capabilities;
pub mod connect;
mod error;
mod facets;
mod failure;
mod filters;
mod findings;
pub mod kubevirt;
#[cfg(feature = "libvirt")]
pub mod libvirt;
pub mod openstack;
pub mod ovirt;
pub mod placement;
mod plain_http;
pub mod retry;
pub mod sim;

pub use self::capabilities::{Capabilities, Carrier};
pub use self::error::{BackendError, BackendErrorKind};
pub use self::facets::{
    BalancedVip, Choice, Console, Description, Diagnostics, Discovery, Form, LoadBalancer, LoadBalancers,
    PlatformChoices, SerialConsole, SettingChoices,
};
pub use self::findings::{Finding, Verdict};

/// A platform on which machines can be made.
///
/// Everything made carries the cluster's id on the platform itself; nothing without it is ever changed.
/// Every method may be called again after a crash at any point and then completes what was begun.
///
/// What only some platforms can do is a facet of its own, as in the cloud providers of Kubernetes
/// (kubernetes/cloud-provider: cloud.go, `Interface`).
// Every caller is in this crate and runs on one task, so nothing here needs to be `Send`.
#[async_trait(?Send)]
pub trait Backend {
    /// For machines of one role: the roles may be on several platforms.
    fn capabilities(&self, role: Role) -> Capabilities;

    /// Looks at reach, rights, versions, networks, storage and quota; makes nothing.
    async fn preflight(&self, needs: &Requirements) -> Result<Vec<Finding>, BackendError>;

    /// Reads what the platform tells about a network. Fields it cannot tell are empty.
    async fn look_at_network(&self, network: &str) -> Result<NetworkFacts, BackendError>;

    /// Brings an image for machines of one role onto the platform, or finds the one with the same digest there.
    ///
    /// Clusters share it: it stays until `delete_remaining` was called for the last cluster that asked for it.
    async fn ensure_image(
        &self,
        role: Role,
        cluster: &ClusterId,
        image: &ImageRequest,
    ) -> Result<ImageHandle, BackendError>;

    /// Creates and starts a machine, or adopts the one there when cluster and fingerprint are the same.
    ///
    /// A machine of this name that is different or not ours is `Conflict`, and is left alone.
    async fn create_machine(&self, spec: &MachineSpec) -> Result<Action<Machine>, BackendError>;

    /// All machines of a cluster in one bulk look, with the addresses known now.
    async fn list_machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError>;

    /// Deletes a machine and all that was made for it alone. Absent is success; not ours is `Conflict`.
    async fn delete_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError>;

    /// Starts a machine that is off; one that runs is `Unchanged`, an absent one `NotFound`, not ours `Conflict`.
    async fn start_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError>;

    /// Stops a machine and does not wait for it; one that is off is `Unchanged`, an absent one `NotFound`, not ours `Conflict`.
    async fn stop_machine(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError>;

    /// Makes the platform keep an address for a MAC, and answer for `dns_names` where it can.
    ///
    /// Repeating it is success. An address, MAC or name that something else holds is `Conflict`.
    async fn reserve_address(&self, hold: &AddressReservation) -> Result<ReservationState, BackendError>;

    /// What `reserve_address` made for this cluster and is still there.
    async fn list_reservations(&self, cluster: &ClusterId) -> Result<Vec<AddressAssignment>, BackendError>;

    /// Gives back the one address that `reserve_address` holds for exactly this cluster, node, MAC and IP, its names too.
    ///
    /// Absent is `Unchanged`, and so is an entry that somebody else made.
    async fn release_address(&self, hold: &AddressReservation) -> Result<Action<()>, BackendError>;

    /// Undoes `reserve_address` for this cluster, and removes what else is tagged with it and is not a machine.
    async fn delete_remaining(&self, cluster: &ClusterId) -> Result<(), BackendError>;

    /// All that is tagged with this cluster, machines included; what `destroy --dry-run` prints.
    async fn list_owned(&self, cluster: &ClusterId) -> Result<Vec<Owned>, BackendError>;

    /// All clusters of which anything is tagged here, as far as this user sees; whoever made them.
    async fn list_clusters(&self) -> Result<BTreeSet<ClusterId>, BackendError>;

    /// Where consoles of machines of this role are kept or can be attached to.
    fn serial_console(&self, _: Role) -> Option<&dyn SerialConsole> {
        None
    }

    /// Where networks may have load balancers of the platform's own.
    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        None
    }

    /// Where settings can be chosen from what there is.
    fn discovery(&self) -> Option<&dyn Discovery> {
        None
    }

    /// Where the platform of machines of this role tells more of them and of itself than deploying needs.
    fn diagnostics(&self, _: Role) -> Option<&dyn Diagnostics> {
        None
    }
}

impl dyn Backend + '_ {
    /// What holds whichever role a machine has: the slower pace, and what all platforms can do.
    pub fn common_capabilities(&self) -> Capabilities {
        let (masters, workers) = (self.capabilities(Role::Master), self.capabilities(Role::Worker));
        Capabilities {
            concurrency: masters.concurrency.min(workers.concurrency),
            poll_interval: masters.poll_interval.max(workers.poll_interval),
            guests_answer: masters.guests_answer && workers.guests_answer,
            agent_reports: masters.agent_reports || workers.agent_reports,
            ..masters
        }
    }
}

/// What a deployment is going to ask of the platform; input of `preflight`.
#[derive(Clone, Debug, Default)]
pub struct Requirements {
    pub networks: Vec<String>,
    /// Machines of pass two, by name; none of these names may be taken by a stranger.
    pub machines: Vec<(MachineName, Vec<Mac>)>,
    pub cluster: Option<ClusterId>,
    /// Most memory needed at one time, MiB: the larger of the two passes.
    pub memory_mib: u64,
    pub cpus_per_machine: u32,
    /// Sum of all disks if they were full, GiB.
    pub disk_gib: u64,
    /// Names of the platform's own images that the machines are made from.
    pub templates: Vec<String>,
    /// The networks inside the cluster, which hide whatever outside has the same addresses.
    pub inner_networks: Vec<Ipv4Network>,
    /// What each machine is to have, for platforms that sell fixed sizes.
    pub sizes: Vec<(Pass, Role, Size)>,
    /// What is asked of the workers' own platform; nothing of it is counted above.
    pub workers: Option<Box<Requirements>>,
}

/// What the platform tells about a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkFacts {
    /// Identifies the network among all that this computer deploys on, e.g. a URI and a UUID.
    pub identity: String,
    pub cidr: Option<Ipv4Network>,
    pub gateway: Option<Ipv4Addr>,
    /// First and last address of each DHCP range.
    pub dhcp_ranges: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Reservations and leases now, of anybody.
    pub taken: BTreeMap<Ipv4Addr, Option<Mac>>,
    /// Name servers the network offers its machines.
    pub resolvers: Vec<Ipv4Addr>,
    /// Whether the platform's DNS answers names given to `reserve_address`.
    pub answers_dns: bool,
    /// Where nodes do not reach each other at their own addresses: `<machine>.<peer_domain>` leads to where they do.
    #[serde(default)]
    pub peer_domain: Option<String>,
}

/// An image to be brought onto the platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageRequest {
    /// A local qcow2 file; `sha256` of its bytes, hex, is its identity on every platform.
    File { path: PathBuf, sha256: String, bytes: u64 },
    /// Something the platform already has.
    Platform(String),
}

/// An image as the platform knows it (volume path, template id, …).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ImageHandle(pub String);

/// One NIC of a machine to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    pub network: String,
    pub mac: Mac,
}

/// What a machine is told at its first boot.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Payload {
    /// cloud-init's NoCloud documents, for CentOS.
    CloudInit {
        user_data: String,
        meta_data: String,
        network_config: String,
    },
    /// A whole Ignition config, for CoreOS; holds secrets.
    Ignition(Vec<u8>),
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Payload::CloudInit { .. } => f.write_str("CloudInit(..)"),
            Payload::Ignition(config) => write!(f, "Ignition({} bytes)", config.len()),
        }
    }
}

/// A machine to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineSpec {
    pub cluster: ClusterId,
    pub name: MachineName,
    pub node: NodeName,
    pub role: Role,
    pub pass: Pass,
    pub cpus: u32,
    pub memory_mib: u64,
    pub disk_gib: u64,
    pub extra_disks_gib: Vec<u64>,
    pub image: ImageHandle,
    pub nics: Vec<Nic>,
    pub payload: Payload,
    pub autostart: bool,
}

impl MachineSpec {
    /// Names this exact spec, secrets included, without telling them: hex of 16 bytes of sha256.
    pub fn fingerprint(&self) -> String {
        // A struct of strings and numbers always has a JSON form.
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        sha256(bytes)[..32].to_owned()
    }
}

/// Whether a call changed something or found it done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<T> {
    Done(T),
    Unchanged(T),
}

impl<T> Action<T> {
    pub fn into_inner(self) -> T {
        match self {
            Action::Done(value) | Action::Unchanged(value) => value,
        }
    }
}

/// How a machine is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The guest is asked to shut down, as by its power button, and may take its time or not listen.
    Ask,
    /// Its power is taken; what it had not written is lost.
    Force,
}

/// A machine as the platform shows it now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    pub name: MachineName,
    pub node: NodeName,
    pub role: Role,
    pub pass: Pass,
    /// Of the spec it was made from.
    pub fingerprint: String,
    pub power: Power,
    pub nics: Vec<SeenNic>,
}

/// The power state of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Power {
    Building,
    Running,
    Off,
    /// With the platform's reason.
    Paused(String),
    /// With the platform's reason.
    Broken(String),
}

/// A NIC as seen from outside, with all addresses the platform reports for its MAC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenNic {
    pub network: String,
    pub mac: Mac,
    pub addresses: Vec<Ipv4Addr>,
}

/// An address to be kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressReservation {
    pub cluster: ClusterId,
    pub network: String,
    pub lease: AddressAssignment,
    /// Fully qualified names that should lead to the address.
    pub dns_names: Vec<String>,
}

/// Who keeps an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReservationState {
    /// A reservation, a port, a Service.
    ByPlatform,
    /// The DHCP server will probably give the address again, but nothing keeps it.
    #[serde(alias = "byluck")]
    Unreserved,
    /// The user's DHCP server, which was told by the user; the platform was not asked.
    ByUser,
}

/// One thing on the platform that belongs to a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Owned {
    /// The platform's word: `domain`, `volume`, `dhcp host`, `dns host`, …
    pub kind: String,
    pub name: String,
}
