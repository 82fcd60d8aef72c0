//! The platforms, and the settings of each.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnetwork::{IpNetwork, Ipv4Network};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::names::Role;

/// The accelerator of libvirt's machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VirtType {
    /// KVM if libvirt offers it, otherwise emulation.
    Auto,
    Kvm,
    /// Emulation (TCG): slow, works everywhere.
    Qemu,
}

/// How the host caches the disks of libvirt's machines (libvirt/libvirt: `docs/formatdomain.rst`, attribute `cache`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskCache {
    /// The hypervisor's default.
    #[default]
    Default,
    /// No cache.
    None,
    /// Writes stay in memory, and requests to flush them are ignored.
    Unsafe,
}

/// Settings of the libvirt backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibvirtConfig {
    /// A libvirt connection URI, e.g. `qemu:///system` or `qemu+ssh://user@host/system`.
    pub uri: String,
    /// The storage pool for all volumes.
    pub pool: String,
    pub virt_type: VirtType,
    pub disk_cache: DiskCache,
}

impl LibvirtConfig {
    /// Whether the host is this computer: local URIs, such as `qemu:///system`, contain no host.
    pub fn is_local(&self) -> bool {
        self.uri.contains(":///")
    }
}

/// The location of OpenStack servers' disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OsBoot {
    /// On the host, with the flavor's size.
    Image,
    /// In block storage, with the size of the settings.
    Volume,
}

/// Where OpenStack stores a config that exceeds Nova's limit, such as a bootstrap's, until its machine has fetched it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OsIgnition {
    /// Glance, or Swift if Glance rejects it.
    Auto,
    /// In a private image, fetched with a token.
    Glance,
    /// In an object, fetched with a temporary URL.
    Swift,
}

/// OpenStack's flavors by name or id; if not set, the smallest that is large enough.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsFlavors {
    pub bootstrap: Option<String>,
    pub master: Option<String>,
    pub arbiter: Option<String>,
    pub worker: Option<String>,
    pub helper: Option<String>,
    /// By the name of the pool.
    pub pools: BTreeMap<String, String>,
}

impl OsFlavors {
    /// The flavor of a role's machines, or of those in a pool.
    pub fn of(&self, role: Role, pool: Option<&str>) -> Option<&str> {
        match role {
            Role::Bootstrap => self.bootstrap.as_deref(),
            Role::Master => self.master.as_deref(),
            Role::Arbiter => self.arbiter.as_deref(),
            Role::Worker => match pool {
                Some(pool) => self.pools.get(pool).map(String::as_str),
                None => self.worker.as_deref(),
            },
            Role::Helper => self.helper.as_deref(),
        }
    }
}

/// Settings of Octavia's load balancers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsBalancers {
    /// E.g. `amphora` or `ovn`; the cloud's default if not set.
    pub provider: Option<String>,
}

/// Settings of the OpenStack backend; credentials are in clouds.yaml or `OS_*`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenStackConfig {
    /// A cloud of clouds.yaml.
    pub cloud: Option<String>,
    pub region: Option<String>,
    pub boot: OsBoot,
    /// Whether machines have volumes: to boot from, or extra disks.
    #[serde(default = "yes")]
    pub volumes: bool,
    /// Type of created volumes; the cloud's default if not set.
    pub volume_type: Option<String>,
    /// Availability zones of the servers, separated by commas.
    pub zone: Option<String>,
    /// Availability zones of the volumes, separated by commas: one, or as many as for servers.
    pub volume_zone: Option<String>,
    /// Time limit for the creation of a volume.
    pub volume_timeout: Duration,
    pub affinity: Affinity,
    pub flavors: OsFlavors,
    /// Selects the subnet of the nodes; by default one with DHCP.
    pub machine_network: Option<IpNetwork>,
    /// The network for floating IPs; without it none are created.
    pub external_network: Option<String>,
    /// Existing floating IPs of the project.
    pub api_floating_ip: Option<Ipv4Addr>,
    pub ingress_floating_ip: Option<Ipv4Addr>,
    /// With `lb=platform`: the VIPs are load balancers of Octavia.
    pub balancers: Option<OsBalancers>,
    pub ignition: OsIgnition,
    /// Glance itself downloads images given by URL.
    pub image_import: bool,
    /// Networks with access to SSH and node ports, besides the machine network and this computer.
    pub admit: Vec<IpNetwork>,
    /// The address of this computer behind NAT, as the cloud sees it.
    pub client_ip: Option<IpAddr>,
    /// The nodes are a rehearsal's guests, which listen on port 8080.
    pub rehearsal: bool,
    /// Services may have no TLS: see `os_insecure`.
    pub insecure: Insecure,
}

/// For records of earlier versions: what is unknown may be used.
fn yes() -> bool {
    true
}

/// Settings of the simulated platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimConfig {
    /// The file with the platform's state.
    pub state: PathBuf,
}

/// Settings of the KubeVirt backend. No credentials: these are in the kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubevirtConfig {
    /// `None`: the one that `kubectl` uses, or the service account of the pod that this program runs in.
    pub kubeconfig: Option<PathBuf>,
    /// `None`: the kubeconfig's current context.
    pub context: Option<String>,
    /// `None`: the context's namespace.
    pub namespace: Option<String>,
    /// `None`: the default storage class.
    pub storage_class: Option<String>,
    /// The access mode of all volumes; `None`: that of the storage class's StorageProfile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_mode: Option<AccessMode>,
    /// The volume mode of all volumes; `None`: that of the storage class's StorageProfile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_mode: Option<VolumeMode>,
    /// The URL of CDI's upload proxy, if this user cannot read it from CDI.
    pub upload_proxy: Option<String>,
    /// A PEM file of the CA of the upload proxy's certificate.
    pub upload_ca: Option<PathBuf>,
    /// Masters run on different hosts, and so do workers.
    pub affinity: Affinity,
    /// What happens to machines whose host is drained.
    #[serde(default)]
    pub eviction: Eviction,
    /// Creates a missing namespace, and deletes it with its last cluster.
    pub makes_namespace: bool,
    /// With `network=pod`: the machines use the pod network.
    pub pods: Option<PodNetwork>,
    /// The API server's identity is not verified: see `kubevirt_insecure`.
    pub insecure: Insecure,
}

/// Whether a server may have no TLS or an unverified certificate. It does not identify a platform: configurations that
/// differ only in it are equal.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Insecure(pub bool);

impl PartialEq for Insecure {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Insecure {}

/// How hosts can use a volume; Kubernetes' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessMode {
    ReadWriteOnce,
    /// Required to move a running machine to another host.
    ReadWriteMany,
}

/// What a volume is to its pod; Kubernetes' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeMode {
    Filesystem,
    Block,
}

/// What happens to a machine that is evicted from its host; KubeVirt's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Eviction {
    /// It moves to another host while it runs if its disks allow that, otherwise it is shut down.
    #[default]
    LiveMigrateIfPossible,
    /// The eviction of a machine that cannot move is denied.
    LiveMigrate,
    /// It is shut down.
    None,
}

/// How Services for the virtual IPs are exposed outside of the platform.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expose {
    /// The first of the others that the platform supports.
    #[default]
    Auto,
    LoadBalancer,
    NodePort,
    ClusterIp,
}

/// Which Routes expose the cluster's ingress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Routes {
    /// One for all names if the platform's routers allow it, otherwise one for each name.
    #[default]
    Auto,
    Wildcard,
    Names,
    Off,
}

/// Settings of the pod network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodNetwork {
    pub expose: Expose,
    /// An address of the platform's nodes, for node ports.
    pub node_address: Option<Ipv4Addr>,
    /// The ranges of the platform's pods.
    pub pod_networks: Vec<Ipv4Network>,
    /// Networks outside of the pods that may connect to api and ingress.
    pub admit: Vec<Ipv4Network>,
    pub routes: Routes,
    /// Hosts below `apps` that have a Route of their own.
    pub route_names: Vec<String>,
}

/// A password. It is never displayed or stored, and configurations that differ only in it are equal.
#[derive(Clone, Debug, Default)]
pub struct Password(pub Option<SecretString>);

impl PartialEq for Password {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Password {}

/// Whether masters, and workers, run on different hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Affinity {
    /// If there are enough hosts.
    #[default]
    Soft,
    /// Always; a machine without a host of its own does not start.
    Hard,
    Off,
}

/// Settings of the oVirt backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OvirtConfig {
    /// The engine without `/api`, e.g. `https://engine.example.com/ovirt-engine`.
    pub url: String,
    /// With its profile, e.g. `admin@internal`.
    pub user: String,
    #[serde(skip)]
    pub password: Password,
    /// The password's file, so that later commands can read it.
    pub password_file: Option<PathBuf>,
    /// PEM file of the only trusted CA; the system's CAs if not set.
    pub ca: Option<PathBuf>,
    pub cluster: String,
    /// For images and empty disks; the only one of the data center if not set.
    pub storage_domain: Option<String>,
    /// For networks with several profiles.
    pub vnic_profile: Option<String>,
    pub affinity: Affinity,
    /// Names of the only hosts for machines; all hosts of the cluster if not set.
    pub hosts: Vec<String>,
    /// Affinity label of workers: they run on the hosts with this label.
    pub worker_label: Option<String>,
    /// Disks are full copies of the template's disk instead of layers on top of it.
    pub clone: bool,
}

/// What the settings of all platforms provide.
pub trait PlatformConfig {
    /// The name used in env files, parameter files and messages.
    const NAME: &'static str;

    /// The platform's location, as the parts of a message, without settings of machines.
    fn location(&self) -> Vec<String>;

    fn name(&self) -> &'static str {
        Self::NAME
    }
}

impl PlatformConfig for LibvirtConfig {
    const NAME: &'static str = "libvirt";

    fn location(&self) -> Vec<String> {
        vec![self.uri.clone(), format!("pool {}", self.pool)]
    }
}

impl PlatformConfig for KubevirtConfig {
    const NAME: &'static str = "kubevirt";

    fn location(&self) -> Vec<String> {
        let path = self.kubeconfig.as_ref().map(|path| path.display().to_string());
        let context = self.context.as_ref().map(|name| format!("context {name}"));
        let namespace = self.namespace.as_ref().map(|name| format!("namespace {name}"));
        [path, context, namespace].into_iter().flatten().collect()
    }
}

impl PlatformConfig for OpenStackConfig {
    const NAME: &'static str = "openstack";

    fn location(&self) -> Vec<String> {
        let cloud = self.cloud.as_ref().map(|name| format!("cloud {name}"));
        let region = self.region.as_ref().map(|name| format!("region {name}"));
        cloud.into_iter().chain(region).collect()
    }
}

impl PlatformConfig for OvirtConfig {
    const NAME: &'static str = "ovirt";

    fn location(&self) -> Vec<String> {
        vec![self.url.clone(), format!("cluster {}", self.cluster)]
    }
}

impl PlatformConfig for SimConfig {
    const NAME: &'static str = "sim";

    fn location(&self) -> Vec<String> {
        vec![self.state.display().to_string()]
    }
}

/// The selected platform and its settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendConfig {
    Libvirt(LibvirtConfig),
    Kubevirt(KubevirtConfig),
    OpenStack(OpenStackConfig),
    Ovirt(OvirtConfig),
    Sim(SimConfig),
}

/// The only `match` of all platforms: evaluates an expression with the settings of the chosen one. Requires
/// `BackendConfig` in scope.
macro_rules! on_platform {
    ($backend:expr, $config:ident => $value:expr) => {
        match $backend {
            BackendConfig::Libvirt($config) => $value,
            BackendConfig::Kubevirt($config) => $value,
            BackendConfig::OpenStack($config) => $value,
            BackendConfig::Ovirt($config) => $value,
            BackendConfig::Sim($config) => $value,
        }
    };
}
pub(crate) use on_platform;

impl BackendConfig {
    /// The platform's name and location, e.g. `libvirt qemu:///system, pool default`.
    pub fn place(&self) -> String {
        let location = on_platform!(self, config => config.location());
        format!("{} {}", self.name(), location.join(", ")).trim_end().to_owned()
    }

    pub fn name(&self) -> &'static str {
        on_platform!(self, config => config.name())
    }

    /// The files on this computer that a connection requires, with their settings.
    pub fn files(&self) -> Vec<(&'static str, &Path)> {
        let files = match self {
            Self::Kubevirt(config) => vec![
                ("kubevirt_kubeconfig", &config.kubeconfig),
                ("kubevirt_upload_ca", &config.upload_ca),
            ],
            Self::Ovirt(config) => vec![("ovirt_password_file", &config.password_file), ("ovirt_ca", &config.ca)],
            Self::Sim(config) => return vec![("sim_state", &config.state)],
            Self::Libvirt(_) | Self::OpenStack(_) => Vec::new(),
        };
        let files = files.into_iter();
        files
            .filter_map(|(setting, path)| Some((setting, path.as_deref()?)))
            .collect()
    }

    /// Where the platform's credentials are, which no record contains.
    pub fn credentials(&self) -> &'static str {
        match self {
            Self::Libvirt(_) => "this user's access to libvirt_uri, such as an SSH key",
            Self::Kubevirt(_) => "the kubeconfig of the setting kubevirt_kubeconfig, or KUBECONFIG",
            Self::OpenStack(_) => "clouds.yaml with the cloud of os_cloud, or the variables OS_*",
            Self::Ovirt(_) => "ovirt_password_file, or the variable OCPDEPLOY_OVIRT_PASSWORD",
            Self::Sim(_) => "none",
        }
    }

    /// Whether masters, and workers, run on different hosts.
    pub fn affinity(&self) -> Affinity {
        match self {
            Self::Kubevirt(config) => config.affinity,
            Self::OpenStack(config) => config.affinity,
            Self::Ovirt(config) => config.affinity,
            Self::Libvirt(_) | Self::Sim(_) => Affinity::default(),
        }
    }

    /// Settings of the pod network, if machines use it.
    pub fn pod_network(&self) -> Option<&PodNetwork> {
        match self {
            Self::Kubevirt(config) => config.pods.as_ref(),
            _ => None,
        }
    }

    /// Networks with access to the nodes, from `os_admit`.
    pub fn admitted(&self) -> &[IpNetwork] {
        match self {
            Self::OpenStack(config) => &config.admit,
            _ => &[],
        }
    }

    /// Whether the platform drops packets from addresses that it has not reserved.
    pub fn drops_unreserved(&self) -> bool {
        matches!(self, Self::OpenStack(_))
    }

    /// Whether the setting `machine_network` is required: oVirt's API has no subnets.
    pub fn requires_machine_network(&self) -> bool {
        matches!(self, Self::Ovirt(_))
    }
}

/// The workers' own platform, on the same machine network as the others'.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkersOn {
    pub backend: BackendConfig,
    /// The machine network's name there.
    pub network: String,
    /// The pools whose nodes are there, and `worker` for the workers outside of pools; empty: all workers.
    pub only: Vec<String>,
}

impl WorkersOn {
    /// Whether the workers of a pool, or those outside of pools, are there.
    pub fn has(&self, pool: Option<&str>) -> bool {
        let name = pool.unwrap_or("worker");
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// Which machines are there, e.g. `workers` or `gpu, infra`.
    pub fn machines(&self) -> String {
        match self.only.is_empty() {
            true => "workers".to_owned(),
            false => self.only.join(", "),
        }
    }

    /// The platform's name; with its location if the other machines' platform has the same name.
    pub fn name_beside(&self, others: &BackendConfig) -> String {
        match self.backend.name() == others.name() {
            true => {
                let location = on_platform!(&self.backend, config => config.location());
                format!(
                    "{} {}",
                    self.backend.name(),
                    location.first().map_or("", String::as_str)
                )
            }
            false => self.backend.name().to_owned(),
        }
    }
}

/// The platforms of a cluster, e.g. `ovirt, workers on kubevirt`.
pub fn platform_names(backend: &BackendConfig, workers: Option<&WorkersOn>) -> String {
    match workers {
        Some(workers) => {
            let (machines, there) = (workers.machines(), workers.name_beside(backend));
            format!("{}, {machines} on {there}", backend.name())
        }
        None => backend.name().to_owned(),
    }
}

/// The role that stands for a machine's platform where these differ: `worker` for that of `workers`, otherwise `master`.
pub fn place_of(role: Role, pool: Option<&str>, workers: Option<&WorkersOn>) -> Role {
    match workers {
        Some(workers) if role == Role::Worker && workers.has(pool) => Role::Worker,
        _ => Role::Master,
    }
}

/// The backend of the machines at a place.
pub fn backend_of<'a>(place: Role, all: &'a BackendConfig, workers: Option<&'a WorkersOn>) -> &'a BackendConfig {
    match (workers, place) {
        (Some(workers), Role::Worker) => &workers.backend,
        _ => all,
    }
}
