//! The trait that a platform implements, and its types.
//!
//! A backend is the client of one platform's API. It may wait for its own operations. Order, concurrency across
//! machines and retries (`retry.rs`) are not its task. To add a platform:
//!
//! 1. a folder here, which implements `Backend`, and its `Capabilities`,
//! 2. its arm in `connect.rs`, and its feature,
//! 3. its configuration in `cluster/platform.rs`: a struct, a variant of `BackendConfig`, and a line of `on_platform!`,
//!    and its settings: a group of the table, and a line in `settings/platforms/mod.rs`,
//! 4. a line in `tests/it/contract.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use async_trait::async_trait;
use ipnetwork::{IpNetwork, Ipv6Network};
use serde::{Deserialize, Serialize, Serializer};

use crate::cluster::{AddressAssignment, ClusterId, Dhcp, Mac, MachineName, NodeName, Pass, Role, Size};
use crate::digest::sha256;

mod action;
mod capabilities;
pub mod connect;
mod error;
mod facets;
mod failure;
mod filters;
mod findings;
#[cfg(feature = "kubevirt")]
pub mod kubevirt;
#[cfg(feature = "libvirt")]
pub mod libvirt;
#[cfg(feature = "openstack")]
pub mod openstack;
#[cfg(feature = "ovirt")]
pub mod ovirt;
pub mod placement;
mod plain_http;
pub mod retry;
pub mod sim;
mod snapshots;

pub use self::action::Action;
pub use self::capabilities::{Capabilities, Carrier};
pub use self::error::{BackendError, BackendErrorKind};
pub use self::facets::{
    BalancedVip, Choice, Console, Description, Diagnostics, Discovery, Form, LoadBalancer, LoadBalancers,
    PlatformChoices, Properties, SerialConsole, SettingChoices,
};
pub use self::findings::{Finding, Verdict};
pub use self::snapshots::{MachineSnapshot, Snapshot, SnapshotName, Snapshots};

/// A platform on which machines can be created.
///
/// Every created object has the cluster's id as a tag on the platform. Objects without it are never changed.
/// Every method can be called again after a crash at any point, and then completes the interrupted operation.
///
/// Optional abilities are facets, as in the cloud providers of Kubernetes (kubernetes/cloud-provider: cloud.go,
/// `Interface`).
// All callers are in this crate and run on one task, so nothing here has to be `Send`.
#[async_trait(?Send)]
pub trait Backend {
    /// The role that stands for the platform of a machine, and selects it below; see `place_of`.
    fn place(&self, machine: &MachineName) -> Role {
        machine.role()
    }

    /// The capabilities for machines of one role. The roles may be on different platforms.
    fn capabilities(&self, role: Role) -> Capabilities;

    /// Checks connection, permissions, versions, networks, storage and quotas. Changes nothing.
    async fn preflight(&self, requirements: &Requirements) -> Result<Vec<Finding>, BackendError>;

    /// What the platform knows about a network. Unknown fields are empty.
    async fn network_facts(&self, network: &str) -> Result<NetworkFacts, BackendError>;

    /// Uploads an image for machines of one role, or finds the existing one with the same digest.
    ///
    /// Clusters share images. An image is deleted by `delete_remaining` of the last cluster that uses it.
    async fn ensure_image(
        &self,
        role: Role,
        cluster: &ClusterId,
        image: &ImageRequest,
    ) -> Result<ImageHandle, BackendError>;

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

    /// Stops a machine and does not wait. A machine that is off is `Unchanged`, a missing one `NotFound`, one that is not
    /// owned by this cluster a `Conflict`.
    async fn stop_machine(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError>;

    /// Reserves an address for a MAC, and creates the DNS names if the platform supports it.
    ///
    /// An existing identical reservation is success. An address, MAC or name that is in use is a `Conflict`.
    async fn reserve_address(&self, reservation: &AddressReservation) -> Result<ReservationState, BackendError>;

    /// The existing reservations of this cluster.
    async fn list_reservations(&self, cluster: &ClusterId) -> Result<Vec<Reserved>, BackendError>;

    /// Deletes the reservation of exactly this cluster, node, MAC and IP, with its DNS names.
    ///
    /// A missing reservation is `Unchanged`, and so is one that is not owned by this cluster.
    async fn release_address(&self, reservation: &AddressReservation) -> Result<Action<()>, BackendError>;

    /// Deletes all reservations of this cluster, and all other tagged objects except machines.
    async fn delete_remaining(&self, cluster: &ClusterId) -> Result<(), BackendError>;

    /// Deletes the configs that machines of this cluster fetched at their first boot. All of them are up.
    async fn delete_fetched_configs(&self, _: &ClusterId) -> Result<(), BackendError> {
        Ok(())
    }

    /// All objects with the tag of this cluster, including machines: the output of `destroy --dry-run`.
    async fn list_owned(&self, cluster: &ClusterId) -> Result<Vec<Owned>, BackendError>;

    /// All clusters that have tagged objects which this user can see.
    async fn list_clusters(&self) -> Result<BTreeSet<ClusterId>, BackendError>;

    /// Serial consoles of machines of this role.
    fn serial_console(&self, _: Role) -> Option<&dyn SerialConsole> {
        None
    }

    /// Load balancers of the platform.
    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        None
    }

    /// The choices of settings that `ocpdeploy init` offers.
    fn discovery(&self) -> Option<&dyn Discovery> {
        None
    }

    /// Details of machines of this role and of their platform, for troubleshooting.
    fn diagnostics(&self, _: Role) -> Option<&dyn Diagnostics> {
        None
    }

    /// Snapshots of machines of this role.
    fn snapshots(&self, _: Role) -> Option<&dyn Snapshots> {
        None
    }
}

impl dyn Backend + '_ {
    /// Capabilities that are valid for all roles: the lower rate, and what all platforms support.
    pub fn common_capabilities(&self) -> Capabilities {
        let (masters, workers) = (self.capabilities(Role::Master), self.capabilities(Role::Worker));
        Capabilities {
            concurrency: masters.concurrency.min(workers.concurrency),
            poll_interval: masters.poll_interval.max(workers.poll_interval),
            leases_outlive_machines: masters.leases_outlive_machines && workers.leases_outlive_machines,
            guests_reachable: masters.guests_reachable && workers.guests_reachable,
            addresses_from_agent: masters.addresses_from_agent || workers.addresses_from_agent,
            snapshots: masters.snapshots.and(workers.snapshots),
            ..masters
        }
    }
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
    /// If nodes do not reach each other at their own addresses: `<machine>.<peer_domain>` resolves to an address where
    /// they do.
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
    File { path: PathBuf, sha256: String, bytes: u64 },
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
    pub cpus: u32,
    pub memory_mib: u64,
    pub disk_gib: u64,
    pub extra_disks_gib: Vec<u64>,
    pub image: ImageHandle,
    pub nics: Vec<Nic>,
    pub payload: Payload,
    pub autostart: bool,
    /// The second address family of the first NIC's network, in which nodes have static addresses.
    // Never changes in a cluster, and the payload contains the address.
    #[serde(skip)]
    pub ipv6: Option<Ipv6Network>,
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
    /// Its address in the second family, which platforms that filter addresses have to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Ipv6Addr>,
    /// Fully qualified DNS names of the address.
    pub dns_names: Vec<String>,
    /// Whether it will be reserved again, and its DNS records need not exist before. Conflicts with others are errors.
    #[serde(skip)]
    pub dns_later: bool,
    /// What its machine has to use besides, if it exists already and the platform filters addresses.
    #[serde(skip)]
    pub allowed: Vec<IpAddr>,
}

/// A reservation on the platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    pub assignment: AddressAssignment,
    /// Its addresses in the second family; `None` if the platform does not reserve those.
    pub ipv6: Option<Vec<Ipv6Addr>>,
    /// What its machine may use besides, such as VIPs; `None` if the platform does not filter addresses.
    pub allowed: Option<Vec<IpNetwork>>,
}

impl Reserved {
    /// Whether the platform reserves addresses of the second family, but not this one.
    pub fn lacks(&self, ipv6: Ipv6Addr) -> bool {
        self.ipv6.as_ref().is_some_and(|reserved| !reserved.contains(&ipv6))
    }

    /// Whether the platform drops the packets of its machine from a further address.
    pub fn forbids(&self, ip: IpAddr) -> bool {
        is_forbidden(self.allowed.as_deref(), ip)
    }
}

/// Whether a filter that allows these addresses drops packets from another; `None`: there is no filter.
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
    #[serde(alias = "byluck")]
    Unreserved,
    /// On the user's DHCP server, by the user.
    ByUser,
    /// In the node's own config: the network has no DHCP server.
    Static,
}

impl ReservationState {
    /// Where addresses are that the platform is not asked to reserve.
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
