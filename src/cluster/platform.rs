//! The platforms that machines are made on, and the settings of each.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use ipnetwork::Ipv4Network;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::names::Role;

/// Which accelerator libvirt's machines use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VirtType {
    /// KVM where libvirt offers it, else emulation.
    Auto,
    Kvm,
    /// Emulation (TCG): slow, works everywhere.
    Qemu,
}

/// What the libvirt backend needs to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibvirtConfig {
    /// A libvirt connection URI, e.g. `qemu:///system` or `qemu+ssh://user@host/system`.
    pub uri: String,
    /// The storage pool for all volumes.
    pub pool: String,
    pub virt_type: VirtType,
}

/// Where the disks of OpenStack's servers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OsBoot {
    /// On the host, as large as the flavor says.
    Image,
    /// In block storage, as large as the settings say.
    Volume,
}

/// Where OpenStack keeps a bootstrap's config, which is too large for Nova, until the bootstrap has fetched it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OsIgnition {
    /// Glance, and Swift where Glance refuses it.
    #[default]
    Auto,
    /// In a private image, fetched with a token.
    Glance,
    /// In an object, fetched by an address that ends.
    Swift,
}

/// OpenStack's flavors by name or id; the smallest that is large enough where none is named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsFlavors {
    pub bootstrap: Option<String>,
    pub master: Option<String>,
    pub worker: Option<String>,
    pub helper: Option<String>,
}

impl OsFlavors {
    pub fn of(&self, role: Role) -> Option<&str> {
        match role {
            Role::Bootstrap => self.bootstrap.as_deref(),
            Role::Master => self.master.as_deref(),
            Role::Worker => self.worker.as_deref(),
            Role::Helper => self.helper.as_deref(),
        }
    }
}

/// What the OpenStack backend needs to know; who signs in stands in clouds.yaml or in `OS_*`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenStackConfig {
    /// A cloud of clouds.yaml.
    pub cloud: Option<String>,
    pub region: Option<String>,
    pub boot: OsBoot,
    /// Of the volumes that are made; the cloud's default without it.
    pub volume_type: Option<String>,
    /// Availability zone of the servers.
    pub zone: Option<String>,
    pub affinity: Affinity,
    pub flavors: OsFlavors,
    /// The network on which floating IPs are made; none are without it.
    pub external_network: Option<String>,
    /// Floating IPs that the project has already.
    pub api_floating_ip: Option<Ipv4Addr>,
    pub ingress_floating_ip: Option<Ipv4Addr>,
    #[serde(default)]
    pub ignition: OsIgnition,
    /// Glance itself fetches images that are given by URL.
    #[serde(default)]
    pub image_import: bool,
}

/// What the pretend platform needs to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimConfig {
    /// The file that holds the pretend platform.
    pub state: PathBuf,
}

/// What the KubeVirt backend needs to know. No credential: those stay in the kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubevirtConfig {
    /// `None`: what `kubectl` would use, or the pod that this runs in.
    pub kubeconfig: Option<PathBuf>,
    /// `None`: the kubeconfig's current one.
    pub context: Option<String>,
    /// `None`: the context's.
    pub namespace: Option<String>,
    /// `None`: the default one.
    pub storage_class: Option<String>,
    /// The URL of CDI's upload proxy, where CDI does not tell it to this user.
    pub upload_proxy: Option<String>,
    /// A PEM file of what signed the upload proxy's certificate.
    pub upload_ca: Option<PathBuf>,
    /// Masters keep away from each other's hosts, and so do workers.
    #[serde(default)]
    pub affinity: Affinity,
    /// Makes the namespace where it is not there, and removes it with its last cluster.
    #[serde(default)]
    pub makes_namespace: bool,
    /// With `network=pod`: the machines are on the pods' own network.
    #[serde(default)]
    pub pods: Option<PodNetwork>,
    /// The API server is asked although nobody vouches for it: see `kubevirt_insecure`.
    #[serde(default)]
    pub insecure: Insecure,
}

/// Whether a server is asked without TLS, or whoever it is. It says how a platform is reached, not which it is:
/// configurations that differ in it alone are the same.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Insecure(pub bool);

impl PartialEq for Insecure {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Insecure {}

/// How Services for the virtual IPs are seen from outside of the platform.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Expose {
    /// The first of the others that the platform offers.
    #[default]
    Auto,
    LoadBalancer,
    NodePort,
    ClusterIp,
}

/// Which Routes lead to the cluster's ingress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Routes {
    /// One for all names where the platform's routers allow it, else one for each name.
    #[default]
    Auto,
    Wildcard,
    Names,
    Off,
}

/// What is to be known of the pods' own network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodNetwork {
    pub expose: Expose,
    /// An address of the platform's nodes, where node ports are reached.
    pub node_address: Option<Ipv4Addr>,
    /// The ranges of the platform's pods.
    pub pod_networks: Vec<Ipv4Network>,
    /// Who from outside of the pods may come in to api and ingress.
    pub admit: Vec<Ipv4Network>,
    pub routes: Routes,
    /// Hosts beneath `apps`, where each has a Route of its own.
    pub route_names: Vec<String>,
}

/// A password. It is shown and stored nowhere, and configurations that differ in it alone are the same.
#[derive(Clone, Debug, Default)]
pub struct Password(pub Option<SecretString>);

impl PartialEq for Password {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Password {}

/// Whether masters, and workers, keep away from each other's hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Affinity {
    /// Where there are hosts enough.
    #[default]
    Soft,
    /// Always; a machine that finds no host of its own does not start.
    Hard,
    Off,
}

/// How an oVirt engine hands Ignition to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OvirtIgnition {
    /// As this engine's version can, from 4.3.4.
    Auto,
    /// By the custom property `ignitiondata` and a hook on the hosts, for older engines.
    Hook,
}

/// What the oVirt backend needs to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OvirtConfig {
    /// The engine without `/api`, e.g. `https://engine.example.com/ovirt-engine`.
    pub url: String,
    /// With its profile, e.g. `admin@internal`.
    pub user: String,
    #[serde(skip)]
    pub password: Password,
    /// Where the password was read, so that it is found again.
    pub password_file: Option<PathBuf>,
    /// PEM file of the only CA to be trusted; the system's CAs without it.
    pub ca: Option<PathBuf>,
    pub cluster: String,
    /// For images and empty disks; the only one of the data center without it.
    pub storage_domain: Option<String>,
    /// For networks that have several.
    pub vnic_profile: Option<String>,
    pub affinity: Affinity,
    /// Names of the only hosts for machines; all of the cluster without.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Affinity label of workers: they run on the hosts that bear it.
    #[serde(default)]
    pub worker_label: Option<String>,
    /// Disks are copies of the template's, rather than layers upon it.
    pub clone: bool,
    pub ignition: OvirtIgnition,
}

/// What the settings of every platform have.
pub trait PlatformConfig {
    /// The name used in env files, parameter files and messages.
    const NAME: &'static str;

    /// Where the platform is, as the parts of a message. Settings of the machines are left out.
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

/// The chosen platform and its settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendConfig {
    Libvirt(LibvirtConfig),
    Kubevirt(KubevirtConfig),
    OpenStack(OpenStackConfig),
    Ovirt(OvirtConfig),
    Sim(SimConfig),
}

/// The one match of all platforms: evaluates an expression with the settings of the chosen one. Requires
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
    /// The platform's name and where it is, e.g. `libvirt qemu:///system, pool default`.
    pub fn place(&self) -> String {
        let location = on_platform!(self, config => config.location());
        format!("{} {}", self.name(), location.join(", ")).trim_end().to_owned()
    }

    pub fn name(&self) -> &'static str {
        on_platform!(self, config => config.name())
    }
}

/// A platform of the workers' own, on the same machine network as the platform of all others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkersOn {
    pub backend: BackendConfig,
    /// The machine network's name there.
    pub network: String,
}

/// Names the platforms of a cluster, e.g. `ovirt, workers on kubevirt`.
pub fn platform_names(backend: &BackendConfig, workers: Option<&WorkersOn>) -> String {
    match workers {
        Some(workers) => format!("{}, workers on {}", backend.name(), workers.backend.name()),
        None => backend.name().to_owned(),
    }
}

/// The backend that machines of a role are made on.
pub fn backend_of<'a>(role: Role, all: &'a BackendConfig, workers: Option<&'a WorkersOn>) -> &'a BackendConfig {
    match (workers, role) {
        (Some(workers), Role::Worker) => &workers.backend,
        _ => all,
    }
}
