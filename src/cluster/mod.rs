//! Names, roles, sizes and the validated configuration of one cluster.
//!
//! More than 500 lines: the fields of the configuration with their documentation.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ipnetwork::Ipv4Network;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use crate::digest::sha256;
use crate::printable::count;

pub mod capabilities;
mod names;
mod platform;
mod version_lock;

pub use self::capabilities::Capabilities;
pub use self::names::*;
pub use self::platform::*;
pub use self::version_lock::*;

/// The size of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    pub cpus: u32,
    pub memory_mib: u64,
    pub disk_gib: u64,
    /// Sizes of additional, empty disks.
    pub extra_disks_gib: Vec<u64>,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cpus, memory, disk) = (count(self.cpus, "CPU"), self.memory_mib, self.disk_gib);
        write!(f, "{cpus}, {memory} MiB of memory, {disk} GiB of disk")?;
        self.extra_disks_gib
            .iter()
            .try_for_each(|disk| write!(f, " + {disk} GiB"))
    }
}

/// The sizes of each role's machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    pub bootstrap: Size,
    pub master: Size,
    pub worker: Size,
}

impl Sizes {
    /// The size of a role's machines; `None` for throwaway ones.
    pub fn of(&self, role: Role) -> Option<&Size> {
        match role {
            Role::Bootstrap => Some(&self.bootstrap),
            Role::Master => Some(&self.master),
            Role::Worker => Some(&self.worker),
            Role::Helper => None,
        }
    }

    /// Takes the size of a role's machines from the settings.
    pub fn update(&mut self, role: Role, config: &ClusterConfig) {
        let size = config.size_of(role).clone();
        match role {
            Role::Bootstrap => self.bootstrap = size,
            Role::Master => self.master = size,
            Role::Worker => self.worker = size,
            Role::Helper => {}
        }
    }
}

/// The source of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageSource {
    /// A file on this computer; uploaded once and identified by its digest.
    File(PathBuf),
    /// An existing volume, template or image of the platform.
    Platform(String),
    /// The CoreOS image of the release for the platform.
    Release,
    /// An image of the catalog, by name.
    Catalogue(String),
    /// An http(s) URL; a trailing `#sha256=<hex>` is the checksum of the decompressed content.
    Url(String),
}

impl fmt::Display for ImageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImageSource::File(path) => write!(f, "{}", path.display()),
            ImageSource::Release => f.write_str("CoreOS of the release"),
            ImageSource::Platform(text) | ImageSource::Catalogue(text) | ImageSource::Url(text) => f.write_str(text),
        }
    }
}

/// How pass one determines the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Harvest {
    /// Boots throwaway machines and finds their addresses by MAC.
    Boot,
    /// The platform allocates addresses without a boot.
    Reserve,
    /// The env file contains the table.
    Static,
}

impl fmt::Display for Harvest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Harvest::Boot => "boot",
            Harvest::Reserve => "reserve",
            Harvest::Static => "static",
        })
    }
}

/// How the address of a running machine became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    Platform,
    PlannedAddress,
    Network,
    Console,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Evidence::Platform => "reported by the platform",
            Evidence::PlannedAddress => "answers at the planned address",
            Evidence::Network => "found on the network by its MAC",
            Evidence::Console => "read from its serial console",
        })
    }
}

/// How masters and workers get their config from the machine config server.
///
/// Its certificate has only the name `api-int.<cluster>.<domain>`, so `tls` requires a network DNS that resolves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mcs {
    /// `tls` or `embed`, depending on the platform; see `resolve_mcs`. Never `http`.
    Auto,
    /// `https://api-int.<cluster>.<domain>:22623`, as the installer writes it.
    Tls,
    /// `http://<api_ip>:22624`: anyone on the network can read the secrets in a node's configuration, and can give the
    /// node another one, which it applies as root.
    Http,
    /// This program fetches the config from the API's virtual IP with verified TLS, and embeds it in the nodes'
    /// configs.
    Embed,
}

/// Bytes that a carrier must provide for a rendered config; real ones have 150 to 300 KB, some more.
const RENDERED: usize = 512 << 10;

impl Mcs {
    /// The effective mode of `Auto`: depends on whether the network's DNS resolves api-int, and on the carrier's limit
    /// in bytes, `None` for no limit.
    ///
    /// `None` if neither `tls` nor `embed` works: only the user may give up the integrity of the nodes' configuration.
    pub fn resolve_mcs(self, dns_knows: bool, limit: Option<usize>) -> Option<Self> {
        match self {
            Mcs::Auto if dns_knows => Some(Mcs::Tls),
            Mcs::Auto if limit.is_none_or(|limit| limit >= RENDERED) => Some(Mcs::Embed),
            Mcs::Auto => None,
            chosen => Some(chosen),
        }
    }
}

/// Where the user's own Ignition configs are, and for which nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FragmentSource {
    /// A file of `ignition_extra`; without a role it applies to all nodes.
    File { role: Option<Role>, path: PathBuf },
    /// The folder `nodes` of a profile: `<role>/*.ign`, and `all/*.ign` for all nodes.
    Folder { profile: String, path: PathBuf },
}

/// What creates the Ignition files and waits for the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InstallerChoice {
    /// The `openshift-install` at this path, or the one in PATH.
    OpenshiftInstall(Option<PathBuf>),
    /// The built-in fake of a rehearsal.
    Rehearsal,
}

impl InstallerChoice {
    /// The choice without the path: the same program at another path creates the same cluster.
    pub fn without_path(&self) -> Self {
        match self {
            Self::OpenshiftInstall(_) => Self::OpenshiftInstall(None),
            Self::Rehearsal => Self::Rehearsal,
        }
    }
}

/// The requested release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Wanted {
    /// The newest production release.
    Stable,
    /// The newest release candidate.
    Candidate,
    /// The newest development build.
    Nightly,
    /// The newest stable release of this minor version.
    Minor(u32, u32),
    /// Exactly this one, e.g. `4.19.3`.
    Exact(String),
    /// The newest OKD.
    Okd,
}

impl Wanted {
    /// Whether it is a release of OKD.
    pub fn is_okd(&self) -> bool {
        match self {
            Self::Okd => true,
            Self::Exact(version) => version.contains("okd"),
            _ => false,
        }
    }

    /// Major and minor version, if known before a mirror is queried.
    pub fn release(&self) -> Option<(u32, u32)> {
        match self {
            Self::Minor(major, minor) => Some((*major, *minor)),
            Self::Exact(version) => major_minor(version),
            _ => None,
        }
    }

    /// Whether a version matches; any version may have been the newest of a channel.
    pub fn fits(&self, version: &str) -> bool {
        let is_okd = version.contains("okd");
        match self {
            Self::Stable | Self::Candidate | Self::Nightly => !is_okd,
            Self::Okd => is_okd,
            Self::Minor(major, minor) => major_minor(version) == Some((*major, *minor)),
            Self::Exact(wanted) => wanted == version,
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stable => f.write_str("stable"),
            Self::Candidate => f.write_str("candidate"),
            Self::Nightly => f.write_str("nightly"),
            Self::Okd => f.write_str("okd"),
            Self::Minor(major, minor) => write!(f, "{major}.{minor}"),
            Self::Exact(version) => f.write_str(version),
        }
    }
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // It becomes part of URLs and folder names.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        match (text, major_minor(text)) {
            ("stable", _) => Ok(Self::Stable),
            ("candidate", _) => Ok(Self::Candidate),
            ("nightly", _) => Ok(Self::Nightly),
            ("okd", _) => Ok(Self::Okd),
            (_, Some((major @ 4..10, minor))) if text.chars().all(is_plain) && !text.contains("..") => {
                Ok(match text.matches('.').count() {
                    1 => Self::Minor(major, minor),
                    _ => Self::Exact(text.to_owned()),
                })
            }
            _ => Err(format!(
                "unknown version `{text}`: use stable, candidate, nightly, okd, a minor version such as 4.19, or a version such as 4.19.3"
            )),
        }
    }
}

/// Why a cluster of a release cannot be installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedRelease {
    pub why: String,
    pub hint: &'static str,
    /// The settings that decide it.
    pub settings: &'static [&'static str],
}

/// Whether this release can be installed with so many masters.
///
/// * The API has `certificates.k8s.io/v1` since Kubernetes 1.19, which is OpenShift 4.6 (kubernetes/kubernetes:
///   `CHANGELOG/CHANGELOG-1.19.md`); no other version of certificate requests is supported here.
/// * etcd and the routers run with one replica since 4.8, by the topology in the Infrastructure resource
///   (openshift/installer: `pkg/asset/manifests/topologies.go`).
/// * OVN-Kubernetes has `gatewayConfig`, which the pod network requires, since 4.10 (openshift/api: pull request 1033);
///   before, the field is dropped without an error.
pub fn unsupported_release(
    (major, minor): (u32, u32),
    masters: usize,
    backend: &BackendConfig,
    networks: &ClusterNetworks,
) -> Option<UnsupportedRelease> {
    if (major, minor) < (4, 6) {
        return Some(UnsupportedRelease {
            why: format!(
                "OpenShift {major}.{minor} is not supported: its API has no certificates.k8s.io/v1, \
                 so its nodes' certificates cannot be approved"
            ),
            hint: "use OpenShift 4.6 or later",
            settings: &["version"],
        });
    }
    let is_on_pods = matches!(backend, BackendConfig::Kubevirt(site) if site.pods.is_some());
    if is_on_pods && networks.network_type == "OVNKubernetes" && (major, minor) < (4, 10) {
        return Some(UnsupportedRelease {
            why: format!("OpenShift {major}.{minor} does not support network=pod: OVN-Kubernetes has no gatewayConfig"),
            hint: "use OpenShift 4.10 or later, or another network",
            settings: &["version", "network"],
        });
    }
    (masters == 1 && (major, minor) < (4, 8)).then(|| UnsupportedRelease {
        why: format!("OpenShift {major}.{minor} does not support a single master"),
        hint: "use 3 masters, or OpenShift 4.8 or later",
        settings: &["version", "masters"],
    })
}

/// Sources of openshift-install and images, and the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Downloads {
    /// The cache of all downloads, shared by clusters and, if its permissions allow it, by users.
    pub cache: PathBuf,
    /// The release to download; `None`: the available openshift-install.
    pub version: Option<Wanted>,
    /// Replaces the public mirror of openshift-install: the folder with `ocp/`, or OKD's releases.
    pub mirror: Option<String>,
    /// Public keys for the mirror's checksum lists, in place of the vendor's.
    pub mirror_key: Option<PathBuf>,
    /// SHA-256 of the expected checksum list, in place of a signature.
    pub mirror_sha256: Option<String>,
    /// Run programs of a mirror without a signature, or over plain http.
    pub mirror_insecure: bool,
    /// Where signatures of release images are, in place of the vendor's store.
    pub signature_store: Option<String>,
    /// How long an unresponsive mirror is retried.
    pub mirror_timeout: Duration,
    /// A folder with images by their file names, in place of their publishers.
    pub image_mirror: Option<String>,
}

/// How the nodes reach external networks.
#[derive(Clone, Debug, Default)]
pub struct Proxy {
    /// URLs, which may contain a password.
    pub http: Option<SecretString>,
    pub https: Option<SecretString>,
    /// Hosts, domains and networks that are reached directly, in addition to the cluster's own.
    pub no_proxy: Vec<String>,
}

/// An alternative location of a registry's images.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegistryMirror {
    pub source: String,
    /// In the order in which they are tried.
    pub mirrors: Vec<String>,
}

/// Addresses that the user has set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GivenAddresses {
    /// The network of the nodes; read from the platform if not set.
    pub machine_network: Option<Ipv4Network>,
    /// The nodes' gateway and name servers, where no DHCP server provides them; read from the platform if not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub name_servers: Vec<Ipv4Addr>,
    pub api_ip: Option<Ipv4Addr>,
    pub ingress_ip: Option<Ipv4Addr>,
    pub bootstrap_mac: Option<Mac>,
    pub bootstrap_ip: Option<Ipv4Addr>,
    /// By index; empty if not set.
    pub master_macs: Vec<Mac>,
    pub master_ips: Vec<Ipv4Addr>,
    pub worker_macs: Vec<Mac>,
    pub worker_ips: Vec<Ipv4Addr>,
    /// The api VIP's VRRP id; allocated if not set.
    pub virtual_router_id: Option<u8>,
}

/// The networks inside the cluster, as in install-config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterNetworks {
    /// `OVNKubernetes` or another plugin's name.
    pub network_type: String,
    pub cluster_network: Ipv4Network,
    /// Prefix length of the part of `cluster_network` that one node gets.
    pub host_prefix: u8,
    pub service_network: Ipv4Network,
}

/// Storage of the cluster's own image registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Registry {
    /// Its pod's folder; images are lost with the pod.
    EmptyDir,
    /// No registry until storage is configured.
    Removed,
}

/// What resolves the cluster's names on its nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dns {
    /// Each node's own dnsmasq, which CoreOS contains.
    Dnsmasq,
    /// The release's CoreDNS, as a static pod on each node.
    Coredns,
    /// The user's name servers; nothing is added to the nodes.
    User,
}

/// When the workers' machines are created.
///
/// By default at once: their addresses are then compared before the long wait, and they boot while the masters install.
/// Until then no server has their config; Ignition retries without a limit. Creating them later saves resources
/// meanwhile, such as memory on a small host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkersWhen {
    /// Together with all other machines.
    Now,
    /// When the control plane runs and the bootstrap machine is deleted.
    Ready,
}

/// What forwards requests for the VIPs to the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lb {
    /// keepalived and haproxy on the nodes.
    Keepalived,
    /// The user's load balancer, which has the VIPs; nothing is added to the nodes.
    User,
    /// The platform's own load balancers; nothing is added to the nodes.
    Platform,
}

/// Where this computer reaches the API's virtual IP: directly, or at ports of another address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiEndpoint {
    pub ip: Ipv4Addr,
    /// By the port of the virtual IP; other ports are the same on both.
    #[serde(default)]
    pub ports: BTreeMap<u16, u16>,
}

impl ApiEndpoint {
    pub fn to(&self, port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(self.ip, self.ports.get(&port).copied().unwrap_or(port))
    }
}

impl From<Ipv4Addr> for ApiEndpoint {
    fn from(ip: Ipv4Addr) -> Self {
        let ports = BTreeMap::new();
        Self { ip, ports }
    }
}

/// What reserves each address for its MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dhcp {
    /// The platform, if it can.
    Platform,
    /// The user's DHCP server; the platform is not used.
    User,
    /// Nothing: the network has no DHCP server, and each node's config has its address.
    None,
}

/// Limits of the waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Timeouts {
    pub harvest: Duration,
    /// Until each machine of pass two has its planned address.
    pub address: Duration,
    pub bootstrap: Duration,
    pub install: Duration,
    /// How long a platform that has answered before is retried.
    pub platform: Duration,
}

/// What happens to a machine that stops by itself during a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The time after its start in which it is restarted; later it stays off.
    pub limit: Duration,
    /// How often it is restarted.
    pub retries: u32,
}

/// All settings of a cluster; created and validated by `settings`.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    pub name: String,
    /// The base domain; the cluster's own names end in `<name>.<domain>`.
    pub domain: String,
    pub backend: BackendConfig,
    /// The platform's tenant, if tenants cannot see each other's machines on a network; otherwise empty. MACs depend on it.
    pub tenant: String,
    /// The workers' platform, if it differs from the others'.
    pub workers_on: Option<WorkersOn>,
    pub masters: usize,
    pub workers: usize,
    pub bootstrap_size: Size,
    pub master_size: Size,
    pub worker_size: Size,
    /// Size of every pass-one machine.
    pub helper_size: Size,
    /// The network of every machine's first NIC, in both passes.
    pub network: String,
    pub extra_networks: Vec<String>,
    pub networks: ClusterNetworks,
    pub image: ImageSource,
    pub helper_image: ImageSource,
    /// As `image` and `helper_image`, for the workers' platform.
    pub worker_image: ImageSource,
    pub worker_helper_image: ImageSource,
    pub given: GivenAddresses,
    pub harvest: Harvest,
    pub mcs: Mcs,
    pub installer: InstallerChoice,
    pub downloads: Downloads,
    /// What the lock file beside the env file requires.
    pub lock: Option<VersionLock>,
    /// OpenSSH public keys, one line each.
    pub ssh_keys: Vec<String>,
    /// One JSON object without surrounding white space.
    pub pull_secret: SecretString,
    /// PEM text, added to the cluster's trusted CAs.
    pub ca: Option<String>,
    pub proxy: Proxy,
    /// In the order of the setting.
    pub registry_mirrors: Vec<RegistryMirror>,
    /// Pass one fails where its machines do not reach what images are pulled from.
    pub egress_check: bool,
    pub fips: bool,
    pub capabilities: Capabilities,
    /// Folder of the user's own manifests, which are added unchanged.
    pub manifests: Option<PathBuf>,
    /// The user's own Ignition configs; later ones override earlier ones.
    pub fragments: Vec<FragmentSource>,
    /// A bridge over the node's NIC, for virtual machines in the cluster.
    pub use_br: bool,
    /// User pods may run on masters even if there are workers.
    pub masters_schedulable: bool,
    /// Time servers in place of CoreOS's defaults; names or addresses.
    pub ntp_servers: Vec<String>,
    pub registry: Registry,
    pub dns: Dns,
    pub lb: Lb,
    pub dhcp: Dhcp,
    /// Machines of pass two start together with their host.
    pub autostart: bool,
    pub workers_when: WorkersWhen,
    /// Keep the bootstrap machine after bootstrap-complete, for analysis.
    pub keep_bootstrap: bool,
    pub timeouts: Timeouts,
    pub launch: Launch,
}

impl ClusterConfig {
    pub fn id(&self) -> ClusterId {
        ClusterId::new(&self.name, &self.domain)
    }

    /// All nodes in display order: bootstrap, masters, workers.
    pub fn nodes(&self) -> Vec<(NodeName, Role)> {
        let one = |role: Role| move |index: usize| (NodeName::node(role, index), role);
        std::iter::once((NodeName::bootstrap(), Role::Bootstrap))
            .chain((0..self.masters).map(one(Role::Master)))
            .chain((0..self.workers).map(one(Role::Worker)))
            .collect()
    }

    /// The backend of a role's machines.
    pub fn backend_of(&self, role: Role) -> &BackendConfig {
        backend_of(role, &self.backend, self.workers_on.as_ref())
    }

    /// The name of a role's machine network.
    pub fn network_of(&self, role: Role) -> &str {
        match (&self.workers_on, role) {
            (Some(workers), Role::Worker) => &workers.network,
            _ => &self.network,
        }
    }

    /// Roles whose nodes may run routers: workers; masters if there are none; both if user pods may run on both.
    pub fn router_roles(&self) -> Vec<Role> {
        let masters = (self.workers == 0 || self.masters_schedulable).then_some(Role::Master);
        let workers = (self.workers > 0).then_some(Role::Worker);
        masters.into_iter().chain(workers).collect()
    }

    /// The bridge over each node's NIC, if requested; OVN-Kubernetes creates its own, `br-ex`.
    pub fn bridge(&self) -> Option<&'static str> {
        (self.use_br && self.networks.network_type != "OVNKubernetes").then_some("br-node")
    }

    /// A digest of all inputs of the installer's files except `manifests`, including secrets.
    pub fn asset_fingerprint(&self) -> String {
        let parts = (
            (&self.name, &self.domain, self.masters, self.workers, &self.networks),
            (&self.ssh_keys, self.pull_secret.expose_secret(), &self.ca),
            (self.installer.without_path(), self.use_br, self.masters_schedulable),
            (&self.ntp_servers, self.registry, self.dns, self.lb),
            (
                self.proxy.http.as_ref().map(ExposeSecret::expose_secret),
                self.proxy.https.as_ref().map(ExposeSecret::expose_secret),
                &self.proxy.no_proxy,
                &self.registry_mirrors,
                (self.fips, &self.capabilities),
            ),
        );
        // A tuple of strings and numbers can always be serialized.
        sha256(serde_json::to_vec(&parts).unwrap_or_default())
    }

    /// Whether it is a rehearsal: real machines, but no OpenShift.
    pub fn is_rehearsal(&self) -> bool {
        self.installer == InstallerChoice::Rehearsal
    }

    pub fn sizes(&self) -> Sizes {
        Sizes {
            bootstrap: self.bootstrap_size.clone(),
            master: self.master_size.clone(),
            worker: self.worker_size.clone(),
        }
    }

    pub fn size_of(&self, role: Role) -> &Size {
        match role {
            Role::Bootstrap => &self.bootstrap_size,
            Role::Master => &self.master_size,
            Role::Worker => &self.worker_size,
            Role::Helper => &self.helper_size,
        }
    }
}

#[cfg(test)]
impl ClusterConfig {
    /// A cluster of 3 masters and 2 workers on the simulated platform, for tests of pure modules.
    pub(crate) fn example() -> Self {
        let size = |memory_mib| Size {
            cpus: 4,
            memory_mib,
            disk_gib: 100,
            extra_disks_gib: vec![],
        };
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        let network = |text: &str| text.parse().expect("a network");
        Self {
            name: "lab".to_owned(),
            domain: "example.com".to_owned(),
            tenant: String::new(),
            backend: BackendConfig::Sim(SimConfig {
                state: PathBuf::from("sim.json"),
            }),
            workers_on: None,
            masters: 3,
            workers: 2,
            bootstrap_size: size(8192),
            master_size: size(16384),
            worker_size: size(8192),
            helper_size: Size {
                cpus: 1,
                memory_mib: 1024,
                disk_gib: 10,
                extra_disks_gib: vec![],
            },
            network: "default".to_owned(),
            extra_networks: vec![],
            networks: ClusterNetworks {
                network_type: "OVNKubernetes".to_owned(),
                cluster_network: network("10.128.0.0/14"),
                host_prefix: 23,
                service_network: network("172.30.0.0/16"),
            },
            image: ImageSource::Platform("rhcos".to_owned()),
            helper_image: ImageSource::Platform("centos".to_owned()),
            worker_image: ImageSource::Platform("rhcos".to_owned()),
            worker_helper_image: ImageSource::Platform("centos".to_owned()),
            given: GivenAddresses::default(),
            harvest: Harvest::Boot,
            mcs: Mcs::Tls,
            installer: InstallerChoice::Rehearsal,
            downloads: Downloads {
                cache: PathBuf::from("cache"),
                version: None,
                mirror: None,
                mirror_key: None,
                signature_store: None,
                mirror_sha256: None,
                mirror_insecure: false,
                mirror_timeout: Duration::from_secs(20),
                image_mirror: None,
            },
            lock: None,
            ssh_keys: vec!["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJZ lab".to_owned()],
            pull_secret: SecretString::from(r#"{"auths":{}}"#),
            ca: None,
            proxy: Proxy::default(),
            registry_mirrors: vec![],
            egress_check: true,
            fips: false,
            capabilities: Capabilities::default(),
            manifests: None,
            fragments: vec![],
            use_br: false,
            masters_schedulable: false,
            ntp_servers: vec![],
            registry: Registry::EmptyDir,
            dns: Dns::Dnsmasq,
            lb: Lb::Keepalived,
            dhcp: Dhcp::Platform,
            autostart: false,
            workers_when: WorkersWhen::Now,
            keep_bootstrap: false,
            timeouts: Timeouts {
                harvest: minutes(10),
                address: minutes(10),
                bootstrap: minutes(60),
                install: minutes(60),
                platform: minutes(2),
            },
            launch: Launch {
                limit: minutes(10),
                retries: 2,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_without_a_required_feature_are_not_supported() {
        let (mut networks, sim) = (ClusterConfig::example().networks, ClusterConfig::example().backend);
        let pods = BackendConfig::Kubevirt(KubevirtConfig {
            pods: Some(PodNetwork::default()),
            ..KubevirtConfig::default()
        });
        let why = |release, masters, backend: &BackendConfig, networks: &ClusterNetworks| {
            unsupported_release(release, masters, backend, networks).map(|found| found.settings)
        };
        assert_eq!(why((4, 5), 3, &sim, &networks), Some(&["version"][..]));
        assert_eq!(why((4, 6), 3, &sim, &networks), None);
        assert_eq!(why((4, 7), 1, &sim, &networks), Some(&["version", "masters"][..]));
        assert_eq!(why((4, 8), 1, &sim, &networks), None);
        assert_eq!(why((4, 9), 3, &pods, &networks), Some(&["version", "network"][..]));
        assert_eq!(why((4, 10), 3, &pods, &networks), None);
        networks.network_type = "OpenShiftSDN".to_owned();
        assert_eq!(why((4, 9), 3, &pods, &networks), None);
    }

    #[test]
    fn a_release_is_wished_for_by_channel_or_version() {
        for (text, fits, not) in [
            ("stable", "4.19.3", "4.19.0-okd-scos.3"),
            ("okd", "4.19.0-okd-scos.3", "4.19.3"),
            ("4.19", "4.19.3", "4.1.9"),
            ("4.20.0-rc.1", "4.20.0-rc.1", "4.20.0"),
        ] {
            let wanted: Wanted = text.parse().unwrap();
            assert_eq!(wanted.to_string(), text);
            assert!(wanted.fits(fits) && !wanted.fits(not), "{text}");
        }
        for bad in [
            "", "latest", "4", "3.11", "4.x", "4.19/..", "4.19..1", "v4.19.1", "4.19 ",
        ] {
            assert!(bad.parse::<Wanted>().is_err(), "{bad}");
        }
    }

    #[test]
    fn auto_is_a_way_to_the_mcs_that_is_authenticated_or_none() {
        let user_data = Some(49_149);
        for (wish, dns_knows, limit, expected) in [
            (Mcs::Auto, true, user_data, Some(Mcs::Tls)),
            (Mcs::Auto, true, None, Some(Mcs::Tls)),
            (Mcs::Auto, false, None, Some(Mcs::Embed)),
            (Mcs::Auto, false, Some(1 << 20), Some(Mcs::Embed)),
            (Mcs::Auto, false, user_data, None),
            (Mcs::Tls, false, None, Some(Mcs::Tls)),
            (Mcs::Http, true, None, Some(Mcs::Http)),
            (Mcs::Embed, true, user_data, Some(Mcs::Embed)),
        ] {
            assert_eq!(
                wish.resolve_mcs(dns_knows, limit),
                expected,
                "{wish:?} {dns_knows} {limit:?}"
            );
        }
    }
}
