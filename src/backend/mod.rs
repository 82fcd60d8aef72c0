//! The trait that a platform implements, and its types.
//!
//! A backend is the client of one platform's API. It may wait for its own operations. Its callers decide about order
//! and concurrency across machines; `platforms.rs` repeats calls and adds the operation to errors. To add a platform:
//!
//! 1. a directory here, which implements `Backend`, and its `Capabilities`,
//! 2. its arm in `connect.rs`, and its feature,
//! 3. its configuration in `cluster/platform.rs`: a struct, a variant of `BackendConfig`, and a line of `on_platform!`,
//!    and its settings: a group of the table, and a line in `settings/platforms/mod.rs`,
//! 4. a line in `tests/it/contract.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::time::SystemTime;

use async_trait::async_trait;
use ipnetwork::{IpNetwork, Ipv6Network};
use serde::{Deserialize, Serialize, Serializer};

use crate::cluster::{
    AddressAssignment, Architecture, ClusterId, Creation, Dhcp, ExternalVips, Mac, MachineName, NodeName, Pass, Role,
    Size, Vip,
};
use crate::digest::sha256;

mod action;
#[cfg(any(feature = "kubevirt", feature = "openstack", feature = "ovirt"))]
mod ca_file;
mod capabilities;
pub mod connect;
mod error;
mod filters;
mod findings;
#[cfg(feature = "kubevirt")]
pub mod kubevirt;
#[cfg(feature = "libvirt")]
pub mod libvirt;
#[cfg(feature = "openstack")]
pub mod openstack;
mod optional;
#[cfg(feature = "ovirt")]
pub mod ovirt;
mod ownership;
mod plain_http;
pub mod platforms;
mod response;
pub mod sim;
mod snapshots;

pub use self::action::Action;
pub use self::capabilities::{Capabilities, Carrier};
pub use self::error::{BackendError, BackendErrorKind, PlatformError};
pub use self::findings::{Finding, Verdict};
pub use self::optional::{
    BalancedVip, Choice, Console, Description, Form, HostCapacity, LoadBalancer, PlatformChoices, Properties,
    SettingChoices,
};
pub use self::snapshots::{MachineSnapshot, Snapshot, SnapshotName};

/// A platform on which machines can be created.
///
/// Every created object has the cluster's id as a tag on the platform. Objects without it are never changed.
/// Every method can be called again after a crash at any point, and then completes the interrupted operation.
///
/// Methods with a default body are optional: it returns what a platform without the feature returns.
// All callers are in this crate and run on one task, so nothing here has to be `Send`.
#[async_trait(?Send)]
pub trait Backend {
    /// The capabilities. They may differ from those of the configuration.
    fn capabilities(&self) -> Capabilities;

    /// Checks connection, permissions, versions, networks, storage and quotas. Changes nothing.
    async fn preflight(&self, requirements: &Requirements) -> Result<Vec<Finding>, BackendError>;

    /// What the platform knows about a network. Unknown fields are empty.
    async fn network_facts(&self, network: &str) -> Result<NetworkFacts, BackendError>;

    /// Uploads an image, or finds the existing one with the same digest.
    ///
    /// Clusters share images. An image is deleted by `delete_remaining` of the last cluster that uses it.
    async fn ensure_image(&self, cluster: &ClusterId, image: &ImageRequest) -> Result<ImageHandle, BackendError>;

    /// Creates and starts a machine, or adopts an existing one of the same cluster and fingerprint.
    ///
    /// A machine of this name that is different or not owned by this cluster is a `Conflict`, and is not changed.
    async fn create_machine(&self, spec: &MachineSpec) -> Result<Action<Machine>, BackendError>;

    /// All machines of a cluster with their present addresses, in one query.
    async fn list_machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError>;

    /// Deletes a machine and all objects that only it uses. A missing machine is success; one that is not owned by this
    /// cluster is a `Conflict`.
    async fn delete_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError>;

    /// Starts a machine that is off. A running machine is `Unchanged`, a missing one `NotFound`, one that is not owned by
    /// this cluster a `Conflict`.
    async fn start_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError>;

    /// Stops a machine. `Stop::Graceful` does not wait until it is off. A machine that is off is `Unchanged`, a missing
    /// one `NotFound`, one that is not owned by this cluster a `Conflict`.
    async fn stop_machine(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError>;

    /// Reserves an address for a MAC, and creates the DNS names if the platform supports it.
    ///
    /// An existing identical reservation is success. An address, MAC or name that is in use is a `Conflict`.
    async fn reserve_address(&self, _: &AddressReservation) -> Result<ReservationState, BackendError> {
        Ok(ReservationState::Unreserved)
    }

    /// The existing reservations of this cluster.
    async fn list_reservations(&self, _: &ClusterId) -> Result<Vec<Reserved>, BackendError> {
        Ok(Vec::new())
    }

    /// Deletes the reservation of exactly this cluster, node, MAC and IP, with its DNS names.
    ///
    /// A missing reservation is `Unchanged`, and so is one that is not owned by this cluster.
    async fn release_address(&self, _: &AddressReservation) -> Result<Action<()>, BackendError> {
        Ok(Action::Unchanged(()))
    }

    /// Deletes all reservations of this cluster, and all other tagged objects except machines.
    async fn delete_remaining(&self, cluster: &ClusterId) -> Result<(), BackendError>;

    /// Deletes the configs that machines of this cluster fetched at their first boot. Called when all of them are up.
    async fn delete_fetched_configs(&self, _: &ClusterId) -> Result<(), BackendError> {
        Ok(())
    }

    /// All objects with the tag of this cluster, including machines: the output of `destroy --dry-run`.
    async fn list_owned(&self, cluster: &ClusterId) -> Result<Vec<Owned>, BackendError>;

    /// All clusters that have tagged objects which this user can see.
    async fn list_clusters(&self) -> Result<BTreeSet<ClusterId>, BackendError>;

    /// The last lines of the serial console of a machine; `None` if the platform does not store them.
    async fn console_tail(&self, _: &ClusterId, _: &MachineName) -> Result<Option<String>, BackendError> {
        Ok(None)
    }

    /// Attaches to the serial console of a running machine. `None` if the platform has none, or only stores lines.
    async fn attach_console(&self, _: &ClusterId, _: &MachineName) -> Result<Option<Console>, BackendError> {
        Ok(None)
    }

    /// Creates the load balancer of a VIP, or changes an existing one to this state. `None` if the network has no load
    /// balancers.
    async fn ensure_load_balancer(&self, _: &LoadBalancer) -> Result<Option<BalancedVip>, BackendError> {
        Ok(None)
    }

    /// Where computers outside of the machine network reach these VIPs, by the settings. Missing addresses are created, if
    /// `create`; they lead to a VIP when it has been reserved, or has its load balancer.
    async fn external_vips(&self, _: &ClusterId, _: &[Vip], _create: bool) -> Result<ExternalVips, BackendError> {
        Ok(ExternalVips::default())
    }

    /// The choices of `ocpdeploy init` for settings that refer to objects of the platform. Changes nothing.
    async fn choices(&self) -> Result<PlatformChoices, BackendError>;

    /// The platform's description of a machine, without its payload. A missing machine is `NotFound`, one that is not
    /// owned by this cluster a `Conflict`.
    async fn describe_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Description, BackendError>;

    /// The platform's time, from one of its responses; `None` if responses have no time.
    async fn server_time(&self) -> Result<Option<SystemTime>, BackendError> {
        Ok(None)
    }

    /// The directory on this computer that contains the disks, if they are on this computer.
    async fn local_disk_dir(&self) -> Result<Option<PathBuf>, BackendError> {
        Ok(None)
    }

    /// What prevents snapshots of these machines, or may do so later: kinds of disks, space. Changes nothing.
    ///
    /// A snapshot has all disks of a machine that is off. The platform stores the cluster's tag, the name and the time with
    /// it. Snapshots without the tag are never changed. `delete_machine` deletes those of its machine; where they are part
    /// of its disks, also those without the tag.
    async fn check_snapshots(&self, _: &ClusterId, _: &[MachineName]) -> Result<Vec<Finding>, BackendError> {
        Err(no_snapshots())
    }

    /// Creates a snapshot of a machine that is off; an existing one is `Unchanged`. A machine that is not off is
    /// `Rejected`, a missing one `NotFound`, one that is not owned by this cluster a `Conflict`.
    async fn save_snapshot(&self, _: &ClusterId, _: &MachineName, _: &Snapshot) -> Result<Action<()>, BackendError> {
        Err(no_snapshots())
    }

    /// All snapshots of machines of this cluster.
    async fn list_snapshots(&self, _: &ClusterId) -> Result<Vec<MachineSnapshot>, BackendError> {
        Ok(Vec::new())
    }

    /// What prevents the restoration of these machines. Changes nothing.
    async fn check_restore(
        &self,
        _: &ClusterId,
        _: &[MachineName],
        _: &Snapshot,
    ) -> Result<Vec<Finding>, BackendError> {
        Ok(Vec::new())
    }

    /// Restores the disks of a machine that is off. Later snapshots are kept. Errors are those of
    /// `save_snapshot`; a missing snapshot is `NotFound`, and one that `check_restore` fails is `Rejected`.
    async fn revert_to_snapshot(&self, _: &ClusterId, _: &MachineName, _: &Snapshot) -> Result<(), BackendError> {
        Err(no_snapshots())
    }

    /// Deletes a snapshot, complete or not, of a machine in any state. Its disks are not changed. A missing snapshot
    /// or machine is `Unchanged`, a machine that is not owned by this cluster a `Conflict`.
    async fn delete_snapshot(&self, _: &ClusterId, _: &MachineName, _: &Snapshot) -> Result<Action<()>, BackendError> {
        Err(no_snapshots())
    }
}

/// Callers read `Capabilities::snapshots` first.
fn no_snapshots() -> BackendError {
    BackendError::new(BackendErrorKind::Rejected, "the platform has no snapshots")
}

/// What a deployment requires of the platform; the input of `preflight`.
#[derive(Clone, Debug, Default)]
pub struct Requirements {
    pub networks: Vec<String>,
    /// Machines of both passes with their MACs. Names and MACs must be free or owned by this cluster.
    pub machines: Vec<(MachineName, Vec<Mac>)>,
    /// Virtual IPs that are reserved in the DHCP range without a machine.
    pub vips: Vec<(NodeName, Mac)>,
    pub cluster: Option<ClusterId>,
    /// The architectures of the machines.
    pub architectures: BTreeSet<Architecture>,
    /// The largest amount of memory in use at one time, in MiB: that of the larger pass.
    pub memory_mib: u64,
    pub cpus_per_machine: u32,
    /// The total size of all disks, in GiB.
    pub disk_gib: u64,
    /// Names of the platform's own images that the machines are made from.
    pub templates: Vec<String>,
    /// The second address family of the first network, in which nodes have static addresses.
    pub ipv6: Option<Ipv6Network>,
    /// The networks inside the cluster. Nodes cannot reach anything outside that has the same addresses.
    pub inner_networks: Vec<IpNetwork>,
    /// Whether machines start with their host.
    pub autostart: bool,
    /// The load balancers of the platform.
    pub balancers: Vec<LoadBalancer>,
    /// The size of each machine, in the order of `machines`.
    pub sizes: Vec<(Pass, Role, Size)>,
    /// The requirements of the workers' own platform, which are not included above.
    pub workers: Option<Box<Requirements>>,
}

/// What the platform knows about a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkFacts {
    /// A unique name among all networks that this computer uses, e.g. a URI and a UUID.
    pub identity: String,
    pub cidr: Option<IpNetwork>,
    pub gateway: Option<IpAddr>,
    /// First and last address of each DHCP range.
    pub dhcp_ranges: Vec<(IpAddr, IpAddr)>,
    /// All present reservations and leases, of any owner.
    pub taken: BTreeMap<IpAddr, Option<Mac>>,
    /// The name servers that the network offers to its machines.
    pub resolvers: Vec<IpAddr>,
    /// The largest packet that the network carries; `None` if the platform does not report it.
    #[serde(default)]
    pub mtu: Option<u16>,
    /// Whether the platform's DNS server resolves the names of `reserve_address`.
    pub answers_dns: bool,
    /// Set if nodes cannot reach each other at their own addresses: `<machine>.<peer_domain>` resolves to one that they
    /// can reach.
    #[serde(default)]
    pub peer_domain: Option<String>,
    /// The network's IPv6 addresses, as far as the platform knows them. OpenStack may have several subnets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ipv6: Vec<Ipv6Facts>,
}

impl NetworkFacts {
    /// The facts of a cluster that has only this IPv6 network.
    pub fn of_ipv6(mut self, network: Ipv6Network) -> Self {
        let known = std::mem::take(&mut self.ipv6).into_iter();
        let (gateway, taken, resolvers) = match known.into_iter().find(|known| known.cidr == network) {
            Some(known) => (known.gateway, known.taken, known.resolvers),
            None => (None, BTreeMap::new(), Vec::new()),
        };
        Self {
            cidr: Some(network.into()),
            gateway: gateway.map(IpAddr::V6),
            dhcp_ranges: Vec::new(),
            taken: taken.into_iter().map(|(ip, mac)| (ip.into(), mac)).collect(),
            resolvers: resolvers.into_iter().map(IpAddr::V6).collect(),
            ..self
        }
    }
}

/// A network's IPv6 addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ipv6Facts {
    pub cidr: Ipv6Network,
    pub gateway: Option<Ipv6Addr>,
    /// As `NetworkFacts::taken`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub taken: BTreeMap<Ipv6Addr, Option<Mac>>,
    /// As `NetworkFacts::resolvers`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resolvers: Vec<Ipv6Addr>,
}

/// An image that machines boot from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageRequest {
    /// A local qcow2 file. Its identity on every platform is `sha256`, the digest of its bytes in hex.
    File {
        path: PathBuf,
        sha256: String,
        bytes: u64,
        #[serde(default, skip_serializing_if = "Architecture::is_default")]
        arch: Architecture,
    },
    /// The name of an image on the platform.
    Platform(String),
}

/// The platform's reference to an image: a volume path, a template id, …
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ImageHandle(pub String);

/// A NIC of a new machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    pub network: String,
    pub mac: Mac,
}

/// The configuration of a machine's first boot.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Payload {
    /// cloud-init's NoCloud documents, for CentOS.
    CloudInit {
        user_data: String,
        meta_data: String,
        network_config: String,
    },
    /// A complete Ignition config, for CoreOS. Contains secrets.
    Ignition(#[serde(serialize_with = "as_text")] Vec<u8>),
}

/// Much faster than a list of numbers, and a config is text.
fn as_text<S: Serializer>(config: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&String::from_utf8_lossy(config))
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Payload::CloudInit { .. } => f.write_str("CloudInit(..)"),
            Payload::Ignition(config) => write!(f, "Ignition({} bytes)", config.len()),
        }
    }
}

/// The specification of a new machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MachineSpec {
    pub cluster: ClusterId,
    pub name: MachineName,
    pub node: NodeName,
    pub role: Role,
    pub pass: Pass,
    #[serde(skip_serializing_if = "Architecture::is_default")]
    pub arch: Architecture,
    pub cpus: u32,
    pub memory_mib: u64,
    pub disk_gib: u64,
    pub extra_disks_gib: Vec<u64>,
    pub image: ImageHandle,
    pub nics: Vec<Nic>,
    pub payload: Payload,
    pub autostart: bool,
    /// The second address family of the first NIC's network, in which nodes have static addresses.
    // Not part of the fingerprint: it never changes in a cluster, and the payload contains the address.
    #[serde(skip)]
    pub ipv6: Option<Ipv6Network>,
    /// Stored with the machine; the same for all of a deployment.
    #[serde(skip)]
    pub creation: Creation,
}

impl MachineSpec {
    /// A digest of this spec including its secrets: 16 bytes of sha256 in hex.
    pub fn fingerprint(&self) -> String {
        // A struct of strings and numbers can always be serialized.
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        sha256(bytes)[..32].to_owned()
    }
}

/// How a machine is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Requests a shutdown, like the power button. The guest may take long or ignore it.
    Graceful,
    /// Switches off. Unwritten data is lost.
    Force,
}

/// The present state of a machine on the platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    pub name: MachineName,
    pub node: NodeName,
    pub role: Role,
    pub pass: Pass,
    /// The fingerprint of its spec.
    pub fingerprint: String,
    pub power: Power,
    pub nics: Vec<SeenNic>,
    /// Who began its deployment, and when, as stored with the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation: Option<Creation>,
}

/// The power state of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Power {
    Building,
    /// Not started yet, and the platform tries again; with its reason.
    Waiting(String),
    Running,
    Off,
    /// With the platform's reason.
    Paused(String),
    /// With the platform's reason.
    Broken(String),
}

/// A NIC with all addresses that the platform reports for its MAC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenNic {
    pub network: String,
    pub mac: Mac,
    pub addresses: Vec<IpAddr>,
}

/// A request to reserve an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressReservation {
    pub cluster: ClusterId,
    pub network: String,
    pub assignment: AddressAssignment,
    /// Its address in the second family. Platforms that filter addresses require it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Ipv6Addr>,
    /// Fully qualified DNS names of the address.
    pub dns_names: Vec<String>,
    /// Whether the DNS records may be created later, when the address is reserved again. A conflict is an error anyway.
    #[serde(skip)]
    pub dns_later: bool,
    /// Further addresses of its machine, if the reservation exists already and the platform filters addresses.
    #[serde(skip)]
    pub allowed: Vec<IpAddr>,
}

/// A reservation on the platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    pub assignment: AddressAssignment,
    /// Its addresses in the second family; `None` if the platform does not reserve those.
    pub ipv6: Option<Vec<Ipv6Addr>>,
    /// Further addresses that its machine may use, such as VIPs; `None` if the platform does not filter addresses.
    pub allowed: Option<Vec<IpNetwork>>,
}

impl Reserved {
    /// Whether the platform reserves addresses of the second family, but not this one.
    pub fn lacks(&self, ipv6: Ipv6Addr) -> bool {
        self.ipv6.as_ref().is_some_and(|reserved| !reserved.contains(&ipv6))
    }

    /// Whether the platform drops packets that its machine sends from this further address.
    pub fn forbids(&self, ip: IpAddr) -> bool {
        is_forbidden(self.allowed.as_deref(), ip)
    }
}

/// Whether a filter that allows these addresses drops packets from `ip`; `None`: there is no filter.
fn is_forbidden(allowed: Option<&[IpNetwork]>, ip: IpAddr) -> bool {
    allowed.is_some_and(|allowed| !allowed.iter().any(|network| network.contains(ip)))
}

impl From<AddressAssignment> for Reserved {
    fn from(assignment: AddressAssignment) -> Self {
        Self {
            assignment,
            ipv6: None,
            allowed: None,
        }
    }
}

/// Where an address is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReservationState {
    /// On the platform: a DHCP reservation, a port, a Service.
    ByPlatform,
    /// Nowhere. The DHCP server will probably assign the same address again.
    Unreserved,
    /// On the user's DHCP server, by the user.
    ByUser,
    /// In the node's own config: the network has no DHCP server.
    Static,
}

impl ReservationState {
    /// Where addresses are reserved if the platform does not reserve them; `None` if it does.
    pub fn without_platform(dhcp: Dhcp) -> Option<Self> {
        match dhcp {
            Dhcp::Platform => None,
            Dhcp::User => Some(Self::ByUser),
            Dhcp::None => Some(Self::Static),
        }
    }
}

/// An object on the platform that is owned by a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Owned {
    /// The platform's name for such objects: `domain`, `volume`, `dhcp host`, `dns host`, …
    pub kind: String,
    pub name: String,
}
