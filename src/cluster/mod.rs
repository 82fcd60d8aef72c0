//! Names, roles, sizes and the validated configuration of one cluster.
//!
//! More than 500 lines: the fields of the configuration with their documentation.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ipnetwork::IpNetwork;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use crate::digest::sha256;

pub mod capabilities;
mod ipv6;
mod names;
mod platform;
mod pools;
mod ranges;
mod registry_cache;
mod size;
mod version_lock;

pub use self::capabilities::Capabilities;
pub use self::ipv6::*;
pub use self::names::*;
pub use self::platform::*;
pub use self::pools::*;
pub use self::ranges::*;
pub use self::registry_cache::*;
pub use self::size::*;
pub use self::version_lock::*;

/// The sizes of each role's machines, and of each pool's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    pub bootstrap: Size,
    pub master: Size,
    /// Only if there is an arbiter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arbiter: Option<Size>,
    pub worker: Size,
    /// Missing in files of earlier versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<String, Size>,
}

impl Sizes {
    /// The size of a node's machine; `None` for throwaway ones.
    pub fn of(&self, node: &NodeName, role: Role) -> Option<&Size> {
        match role {
            Role::Bootstrap => Some(&self.bootstrap),
            Role::Master => Some(&self.master),
            Role::Arbiter => self.arbiter.as_ref(),
            Role::Worker => Some(
                node.pool()
                    .and_then(|pool| self.pools.get(pool))
                    .unwrap_or(&self.worker),
            ),
            Role::Helper => None,
        }
    }

    /// Takes the size of a node's machine, and of all like it, from the settings.
    pub fn update(&mut self, node: &NodeName, role: Role, config: &ClusterConfig) {
        let size = config.size_of(node, role).clone();
        match (role, node.pool()) {
            (Role::Bootstrap, _) => self.bootstrap = size,
            (Role::Master, _) => self.master = size,
            (Role::Arbiter, _) => self.arbiter = Some(size),
            (Role::Worker, None) => self.worker = size,
            (Role::Worker, Some(pool)) => {
                self.pools.insert(pool.to_owned(), size);
            }
            (Role::Helper, _) => {}
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

/// A file of `network_config`: the connections of nodes, as nmstate YAML.
#[derive(Clone, PartialEq, Eq)]
pub struct NetworkConfig {
    pub nodes: NodeSelector,
    /// As the user wrote it, for messages.
    pub path: PathBuf,
    /// May contain passwords, of 802.1X for example.
    pub text: String,
}

impl fmt::Debug for NetworkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {:?}", self.path.display(), self.nodes)
    }
}

/// All nodes, or some. A later variant is more specific.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeSelector {
    All,
    Role(Role),
    Node(NodeName),
}

impl NodeSelector {
    pub fn selects(&self, node: &NodeName) -> bool {
        match self {
            Self::All => true,
            Self::Role(role) => node.role() == *role,
            Self::Node(name) => name == node,
        }
    }
}

impl fmt::Display for NodeSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all nodes"),
            Self::Role(role) => role.fmt(f),
            Self::Node(name) => name.fmt(f),
        }
    }
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
    /// The newest stable OKD of this minor version.
    OkdMinor(u32, u32),
}

impl Wanted {
    /// Whether it is a release of OKD.
    pub fn is_okd(&self) -> bool {
        match self {
            Self::Okd | Self::OkdMinor(..) => true,
            Self::Exact(version) => version.contains("okd"),
            _ => false,
        }
    }

    /// Major and minor version, if known before a mirror is queried.
    pub fn release(&self) -> Option<(u32, u32)> {
        match self {
            Self::Minor(major, minor) | Self::OkdMinor(major, minor) => Some((*major, *minor)),
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
            Self::Minor(major, minor) => !is_okd && major_minor(version) == Some((*major, *minor)),
            Self::OkdMinor(major, minor) => is_okd && major_minor(version) == Some((*major, *minor)),
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
            Self::OkdMinor(major, minor) => write!(f, "okd-{major}.{minor}"),
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
        // SCOS is the only variant of OKD since 4.16.
        let okd = text.strip_prefix("okd-");
        if let Some(minor) = okd.map(|rest| rest.strip_prefix("scos-").unwrap_or(rest))
            && let Some((major @ 4..10, minor)) =
                major_minor(minor).filter(|found| minor == format!("{}.{}", found.0, found.1))
        {
            return Ok(Self::OkdMinor(major, minor));
        }
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
                "unknown version `{text}`: use stable, candidate, nightly, okd, a minor version such as 4.19 or okd-4.19, or a version such as 4.19.3"
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

/// Whether this release can be installed with so many masters, and with an arbiter.
///
/// * The API has `certificates.k8s.io/v1` since Kubernetes 1.19, which is OpenShift 4.6 (kubernetes/kubernetes:
///   `CHANGELOG/CHANGELOG-1.19.md`); no other version of certificate requests is supported here.
/// * etcd and the routers run with one replica since 4.8, by the topology in the Infrastructure resource
///   (openshift/installer: `pkg/asset/manifests/topologies.go`).
/// * OVN-Kubernetes has `gatewayConfig`, which the pod network requires, since 4.10 (openshift/api: pull request 1033);
///   before, the field is dropped without an error.
/// * Kubernetes enables two address families since 1.21, which is OpenShift 4.8 (kubernetes/website:
///   `content/en/docs/concepts/services-networking/dual-stack.md`).
/// * The installer accepts an arbiter on platform `none` since 4.22 (openshift/installer: pull request 10236;
///   openshift/openshift-docs: pull request 110815).
pub fn unsupported_release(
    (major, minor): (u32, u32),
    masters: usize,
    arbiter: bool,
    backend: &BackendConfig,
    networks: &ClusterNetworks,
    has_ipv6: bool,
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
    if has_ipv6 && (major, minor) < (4, 8) {
        return Some(UnsupportedRelease {
            why: format!("OpenShift {major}.{minor} does not support two address families"),
            hint: "use OpenShift 4.8 or later, or one IPv4 network",
            settings: &["version", "machine_network"],
        });
    }
    if arbiter && (major, minor) < (4, 22) {
        return Some(UnsupportedRelease {
            why: format!("OpenShift {major}.{minor} does not support an arbiter on platform none"),
            hint: "use OpenShift 4.22 or later, or 3 masters without an arbiter",
            settings: &["version", "arbiter"],
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

/// Addresses that the user has set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GivenAddresses {
    /// The network of the nodes; read from the platform if not set.
    pub machine_network: Option<IpNetwork>,
    /// The nodes' gateway and name servers, where no DHCP server provides them; read from the platform if not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub name_servers: Vec<IpAddr>,
    pub api_ip: Option<IpAddr>,
    pub ingress_ip: Option<IpAddr>,
    pub bootstrap_mac: Option<Mac>,
    pub bootstrap_ip: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arbiter_mac: Option<Mac>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arbiter_ip: Option<IpAddr>,
    /// By index; empty if not set.
    pub master_macs: Vec<Mac>,
    pub master_ips: Vec<IpAddr>,
    pub worker_macs: Vec<Mac>,
    pub worker_ips: Vec<IpAddr>,
    /// The api VIP's VRRP id; allocated if not set.
    pub virtual_router_id: Option<u8>,
}

/// The networks inside the cluster, as in install-config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterNetworks {
    /// `OVNKubernetes` or another plugin's name.
    pub network_type: String,
    pub cluster_network: IpNetwork,
    /// Prefix length of the part of `cluster_network` that one node gets.
    pub host_prefix: u8,
    pub service_network: IpNetwork,
}

impl ClusterNetworks {
    /// Whether IPv6 is their first family, and so their only one.
    pub fn is_ipv6_only(&self) -> bool {
        self.service_network.is_ipv6()
    }
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
    pub ip: IpAddr,
    /// By the port of the virtual IP; other ports are the same on both.
    #[serde(default)]
    pub ports: BTreeMap<u16, u16>,
}

impl ApiEndpoint {
    pub fn to(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, self.ports.get(&port).copied().unwrap_or(port))
    }
}

impl From<IpAddr> for ApiEndpoint {
    fn from(ip: IpAddr) -> Self {
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
    /// A third member of etcd beside two masters.
    pub arbiter: bool,
    /// Workers outside of the pools.
    pub workers: usize,
    pub pools: Vec<Pool>,
    pub bootstrap_size: Size,
    pub master_size: Size,
    pub arbiter_size: Size,
    pub worker_size: Size,
    /// Size of every pass-one machine.
    pub helper_size: Size,
    /// The network of every machine's first NIC, in both passes.
    pub network: String,
    pub extra_networks: Vec<String>,
    pub networks: ClusterNetworks,
    /// The second address family, if the cluster has two.
    pub ipv6: Option<Ipv6Settings>,
    pub image: ImageSource,
    pub helper_image: ImageSource,
    /// As `image` and `helper_image`, for the workers' platform.
    pub worker_image: ImageSource,
    pub worker_helper_image: ImageSource,
    pub given: GivenAddresses,
    /// Addresses to choose from: for the VIPs that are not given, and with `Harvest::Static` for the nodes.
    pub address_pool: Vec<AddressRange>,
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
    /// `mirrors`, `trusted` and `node_pull_secret` contain it.
    pub registry_cache: Option<NodeCache>,
    /// Pass one fails where its machines do not reach what images are pulled from.
    pub egress_check: bool,
    pub fips: bool,
    pub capabilities: Capabilities,
    /// Folder of the user's own manifests, which are added unchanged.
    pub manifests: Option<PathBuf>,
    /// Manifests of oc-mirror, added as those of the user.
    pub mirror_manifests: Vec<PathBuf>,
    /// The user's own Ignition configs; later ones override earlier ones.
    pub fragments: Vec<FragmentSource>,
    /// The nodes' connections, in place of those that CoreOS makes; of several for a node, the most specific one.
    pub network_config: Vec<NetworkConfig>,
    /// A bridge over the node's NIC, for virtual machines in the cluster.
    pub use_br: bool,
    /// User pods may run on masters even if there are workers.
    pub masters_schedulable: bool,
    /// Time servers in place of CoreOS's defaults; names or addresses.
    pub ntp_servers: Vec<String>,
    /// MTU of the NICs in the machine network; `None` for what the network offers.
    pub mtu: Option<u16>,
    /// DNS domains that nodes search, besides the cluster's own.
    pub dns_search: Vec<String>,
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

    /// All nodes in display order: bootstrap, masters, arbiter, workers, pools.
    pub fn nodes(&self) -> Vec<(NodeName, Role)> {
        let one = |role: Role| move |index: usize| (NodeName::node(role, index), role);
        let of_pool = |pool: &Pool| {
            let name = |index| (NodeName::of_pool(&pool.name, index), Role::Worker);
            (0..pool.nodes).map(name).collect::<Vec<_>>()
        };
        std::iter::once((NodeName::bootstrap(), Role::Bootstrap))
            .chain((0..self.masters).map(one(Role::Master)))
            .chain((0..usize::from(self.arbiter)).map(one(Role::Arbiter)))
            .chain((0..self.workers).map(one(Role::Worker)))
            .chain(self.pools.iter().flat_map(of_pool))
            .collect()
    }

    /// The roles of the members of etcd.
    pub fn etcd_roles(&self) -> &'static [Role] {
        match self.arbiter {
            true => &[Role::Master, Role::Arbiter],
            false => &[Role::Master],
        }
    }

    /// The roles of all nodes but the bootstrap. Workers may be added later, so they are always among them.
    pub fn node_roles(&self) -> impl Iterator<Item = Role> + use<> {
        self.etcd_roles().iter().copied().chain([Role::Worker])
    }

    /// The number of workers, those of the pools included.
    pub fn all_workers(&self) -> usize {
        self.workers + self.pools.iter().map(|pool| pool.nodes).sum::<usize>()
    }

    /// The pool of a node; `None` if it is in none.
    pub fn pool_of(&self, node: &NodeName) -> Option<&Pool> {
        let name = node.pool()?;
        self.pools.iter().find(|pool| pool.name == name)
    }

    /// The networks of a node's additional NICs.
    pub fn extra_networks_of(&self, node: &NodeName) -> &[String] {
        self.pool_of(node)
            .map_or(&self.extra_networks, |pool| &pool.extra_networks)
    }

    /// The same settings with as many workers, in each pool and outside, as there are among these nodes.
    pub fn with_workers_of<'a>(&self, nodes: impl Iterator<Item = &'a NodeName>) -> Self {
        let mut config = self.clone();
        config.workers = 0;
        config.pools.iter_mut().for_each(|pool| pool.nodes = 0);
        for node in nodes.filter(|node| node.role() == Role::Worker) {
            match node.pool() {
                None => config.workers += 1,
                Some(name) => {
                    let pool = config.pools.iter_mut().find(|pool| pool.name == name);
                    pool.into_iter().for_each(|pool| pool.nodes += 1);
                }
            }
        }
        config
    }

    /// The role that stands for the platform of a node's machine; see `place_of`.
    pub fn place_of(&self, node: &NodeName) -> Role {
        place_of(node.role(), node.pool(), self.workers_on.as_ref())
    }

    /// Whether any machine is on the workers' own platform.
    pub fn has_workers_elsewhere(&self) -> bool {
        self.nodes().iter().any(|(node, _)| self.place_of(node) == Role::Worker)
    }

    /// The backend of the machines at a place.
    pub fn backend_of(&self, place: Role) -> &BackendConfig {
        backend_of(place, &self.backend, self.workers_on.as_ref())
    }

    /// The name of the machine network at a place.
    pub fn network_of(&self, place: Role) -> &str {
        match (&self.workers_on, place) {
            (Some(workers), Role::Worker) => &workers.network,
            _ => &self.network,
        }
    }

    /// Roles whose nodes may run routers: workers; masters if there are none; both if user pods may run on both.
    pub fn router_roles(&self) -> Vec<Role> {
        let masters = (self.all_workers() == 0 || self.masters_schedulable).then_some(Role::Master);
        let workers = (self.all_workers() > 0).then_some(Role::Worker);
        masters.into_iter().chain(workers).collect()
    }

    /// Whether the taints of a node's pool, if it is in one, let routers run on it.
    pub fn admits_routers(&self, node: &NodeName) -> bool {
        !self.pool_of(node).is_some_and(Pool::repels_pods)
    }

    /// The number of workers that may run routers.
    pub fn router_workers(&self) -> usize {
        let admitting = self.pools.iter().filter(|pool| !pool.repels_pods());
        self.workers + admitting.map(|pool| pool.nodes).sum::<usize>()
    }

    /// The file with a node's connections.
    pub fn network_config_of(&self, node: &NodeName) -> Option<&NetworkConfig> {
        let selected = self.network_config.iter().filter(|file| file.nodes.selects(node));
        selected.max_by_key(|file| &file.nodes)
    }

    /// Whether the cluster has no IPv4.
    pub fn is_ipv6_only(&self) -> bool {
        self.networks.is_ipv6_only()
    }

    /// The bridge over each node's NIC, if requested; OVN-Kubernetes creates its own, `br-ex`.
    pub fn bridge(&self) -> Option<&'static str> {
        (self.use_br && self.networks.network_type != "OVNKubernetes").then_some("br-node")
    }

    /// A digest of all inputs of the installer's files except `manifests`, including secrets.
    pub fn asset_fingerprint(&self) -> String {
        let parts = (
            (
                &self.name,
                &self.domain,
                self.masters,
                self.all_workers(),
                &self.networks,
            ),
            (&self.ssh_keys, self.pull_secret.expose_secret(), &self.ca),
            (self.installer.without_path(), self.use_br, self.masters_schedulable),
            (&self.ntp_servers, self.registry, self.dns, self.lb),
            &self.dns_search,
            (
                self.proxy.http.as_ref().map(ExposeSecret::expose_secret),
                self.proxy.https.as_ref().map(ExposeSecret::expose_secret),
                &self.proxy.no_proxy,
                &self.registry_mirrors,
                (self.fips, &self.capabilities),
            ),
        );
        // A tuple of strings and numbers can always be serialized.
        let mut bytes = serde_json::to_vec(&parts).unwrap_or_default();
        // A cluster with one address family has the digest of earlier versions, and so has one without an arbiter.
        if let Some(ipv6) = &self.ipv6 {
            bytes.extend(serde_json::to_vec(ipv6).unwrap_or_default());
        }
        if self.arbiter {
            bytes.extend(b"arbiter");
        }
        sha256(bytes)
    }

    /// The mirrors of each source: those of `registry_mirrors`, then the cache.
    pub fn mirrors(&self) -> Vec<RegistryMirror> {
        let mut all = self.registry_mirrors.clone();
        if let Some(cache) = &self.registry_cache {
            cache.add_mirrors(&mut all);
        }
        all
    }

    /// PEM text of the certificates that the cluster trusts: those of `ca`, and that of the cache.
    pub fn trusted(&self) -> Option<String> {
        match (&self.ca, &self.registry_cache) {
            (ca, None) => ca.clone(),
            (None, Some(cache)) => Some(cache.ca.clone()),
            (Some(ca), Some(cache)) => Some(format!("{}\n{}", ca.trim_end(), cache.ca)),
        }
    }

    /// The pull secret of the nodes, with their credentials for the cache.
    pub fn node_pull_secret(&self) -> SecretString {
        match &self.registry_cache {
            Some(cache) => cache.add_credentials(&self.pull_secret),
            None => self.pull_secret.clone(),
        }
    }

    /// Whether it is a rehearsal: real machines, but no OpenShift.
    pub fn is_rehearsal(&self) -> bool {
        self.installer == InstallerChoice::Rehearsal
    }

    pub fn sizes(&self) -> Sizes {
        Sizes {
            bootstrap: self.bootstrap_size.clone(),
            master: self.master_size.clone(),
            arbiter: self.arbiter.then(|| self.arbiter_size.clone()),
            worker: self.worker_size.clone(),
            pools: self
                .pools
                .iter()
                .map(|pool| (pool.name.clone(), pool.size.clone()))
                .collect(),
        }
    }

    /// The size of a node's machine in pass two.
    pub fn size_of(&self, node: &NodeName, role: Role) -> &Size {
        match role {
            Role::Bootstrap => &self.bootstrap_size,
            Role::Master => &self.master_size,
            Role::Arbiter => &self.arbiter_size,
            Role::Worker => self.pool_of(node).map_or(&self.worker_size, |pool| &pool.size),
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
            arbiter: false,
            workers: 2,
            pools: vec![],
            bootstrap_size: size(8192),
            master_size: size(16384),
            arbiter_size: size(8192),
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
            ipv6: None,
            image: ImageSource::Platform("rhcos".to_owned()),
            helper_image: ImageSource::Platform("centos".to_owned()),
            worker_image: ImageSource::Platform("rhcos".to_owned()),
            worker_helper_image: ImageSource::Platform("centos".to_owned()),
            given: GivenAddresses::default(),
            address_pool: vec![],
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
            registry_cache: None,
            egress_check: true,
            fips: false,
            capabilities: Capabilities::default(),
            manifests: None,
            mirror_manifests: vec![],
            fragments: vec![],
            network_config: vec![],
            use_br: false,
            masters_schedulable: false,
            ntp_servers: vec![],
            mtu: None,
            dns_search: vec![],
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
            unsupported_release(release, masters, false, backend, networks, false).map(|found| found.settings)
        };
        assert_eq!(why((4, 5), 3, &sim, &networks), Some(&["version"][..]));
        assert_eq!(why((4, 6), 3, &sim, &networks), None);
        assert_eq!(why((4, 7), 1, &sim, &networks), Some(&["version", "masters"][..]));
        assert_eq!(why((4, 8), 1, &sim, &networks), None);
        assert_eq!(why((4, 9), 3, &pods, &networks), Some(&["version", "network"][..]));
        assert_eq!(why((4, 10), 3, &pods, &networks), None);
        networks.network_type = "OpenShiftSDN".to_owned();
        assert_eq!(why((4, 9), 3, &pods, &networks), None);
        let with_ipv6 =
            |release| unsupported_release(release, 3, false, &sim, &networks, true).map(|found| found.settings);
        assert_eq!(with_ipv6((4, 7)), Some(&["version", "machine_network"][..]));
        assert_eq!(with_ipv6((4, 8)), None);
        let with_arbiter =
            |release| unsupported_release(release, 2, true, &sim, &networks, false).map(|found| found.settings);
        assert_eq!(with_arbiter((4, 21)), Some(&["version", "arbiter"][..]));
        assert_eq!(with_arbiter((4, 22)), None);
    }

    #[test]
    fn a_release_is_wished_for_by_channel_or_version() {
        for (text, fits, not) in [
            ("stable", "4.19.3", "4.19.0-okd-scos.3"),
            ("okd", "4.19.0-okd-scos.3", "4.19.3"),
            ("4.19", "4.19.3", "4.1.9"),
            ("4.19", "4.19.3", "4.19.0-okd-scos.3"),
            ("okd-4.19", "4.19.0-okd-scos.3", "4.19.3"),
            ("okd-4.19", "4.19.0-okd-scos.3", "4.20.0-okd-scos.3"),
            ("4.20.0-rc.1", "4.20.0-rc.1", "4.20.0"),
        ] {
            let wanted: Wanted = text.parse().unwrap();
            assert_eq!(wanted.to_string(), text);
            assert!(wanted.fits(fits) && !wanted.fits(not), "{text}");
        }
        for bad in [
            "",
            "okd-",
            "okd-4",
            "okd-4.19.0",
            "okd-scos",
            "okd-4.19/..",
            "latest",
            "4",
            "3.11",
            "4.x",
            "4.19/..",
            "4.19..1",
            "v4.19.1",
            "4.19 ",
        ] {
            assert!(bad.parse::<Wanted>().is_err(), "{bad}");
        }
        assert_eq!("okd-scos-4.20".parse(), Ok(Wanted::OkdMinor(4, 20)));
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
