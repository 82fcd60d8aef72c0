//! Names, roles, sizes and the validated configuration of one cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnetwork::IpNetwork;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use crate::digest::sha256;

mod architecture;
pub mod capabilities;
mod choices;
#[cfg(test)]
mod example;
mod identity;
mod ipv6;
pub mod limits;
mod names;
mod networks;
mod node_config;
mod platform;
mod pools;
mod ranges;
mod registry_cache;
mod release;
mod size;
mod text_type;
mod version_lock;

pub use self::architecture::{Architecture, ReleaseArchitecture};
pub use self::capabilities::Capabilities;
pub use self::choices::*;
pub use self::identity::*;
pub use self::ipv6::*;
pub use self::names::*;
pub use self::networks::*;
pub use self::node_config::*;
pub use self::platform::*;
pub use self::pools::*;
pub use self::ranges::*;
pub use self::registry_cache::*;
pub use self::release::*;
pub use self::size::*;
pub(crate) use self::text_type::text_type;
pub use self::version_lock::*;

/// Sources of openshift-install and images, and the directory of what was downloaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Downloads {
    /// The directory of this user's downloads, shared by clusters.
    pub dir: PathBuf,
    /// The release to download; `None`: the available openshift-install.
    pub version: Option<Wanted>,
    /// Of the release.
    pub arch: ReleaseArchitecture,
    /// Replaces the public mirror of openshift-install: the directory with `ocp/`, or OKD's releases.
    pub installer_mirror: Option<String>,
    /// Public keys that verify the mirror's checksum lists, in place of the vendor's.
    pub installer_mirror_key: Option<PathBuf>,
    /// SHA-256 of the expected checksum list, in place of a signature.
    pub installer_mirror_sha256: Option<String>,
    /// Run programs of a mirror without a signature, or over plain http.
    pub installer_mirror_insecure: bool,
    /// Accept a release that is older than the one that the channel in `version` selected before.
    pub allow_downgrade: bool,
    /// The store of release image signatures, in place of the vendor's.
    pub signature_store: Option<String>,
    /// How long to retry an unresponsive mirror.
    pub installer_mirror_timeout: Duration,
    /// A directory with images by their file names, in place of their publishers.
    pub image_mirror: Option<String>,
}

impl Downloads {
    /// From the publishers, without a release to download.
    pub fn from_publishers(dir: PathBuf, arch: ReleaseArchitecture) -> Self {
        Self {
            dir,
            version: None,
            arch,
            installer_mirror: None,
            installer_mirror_key: None,
            installer_mirror_sha256: None,
            installer_mirror_insecure: false,
            allow_downgrade: false,
            signature_store: None,
            // The setting's default.
            installer_mirror_timeout: Duration::from_secs(20),
            image_mirror: None,
        }
    }
}

/// The images of machines of both passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootImages {
    pub coreos: ImageSource,
    /// Boots in pass one.
    pub harvest: ImageSource,
}

/// The proxies of the nodes.
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
    pub gateway: Option<IpAddr>,
    pub name_servers: Vec<IpAddr>,
    pub api_ip: Option<IpAddr>,
    pub ingress_ip: Option<IpAddr>,
    pub bootstrap_mac: Option<Mac>,
    pub bootstrap_ip: Option<IpAddr>,
    pub arbiter_mac: Option<Mac>,
    pub arbiter_ip: Option<IpAddr>,
    /// By index; empty if not set.
    pub master_macs: Vec<Mac>,
    pub master_ips: Vec<IpAddr>,
    pub worker_macs: Vec<Mac>,
    pub worker_ips: Vec<IpAddr>,
    /// The api VIP's VRRP id; allocated if not set.
    pub api_virtual_router_id: Option<u8>,
}

impl GivenAddresses {
    pub fn vip(&self, vip: Vip) -> Option<IpAddr> {
        match vip {
            Vip::Api => self.api_ip,
            Vip::Ingress => self.ingress_ip,
        }
    }
}

/// How this computer reaches the API's virtual IP: directly, or through ports of another address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiEndpoint {
    pub ip: IpAddr,
    /// By the port of the virtual IP; all other ports are the same on both.
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

/// Where computers outside of the machine network reach the VIPs, if they have other addresses there: floating IPs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExternalVips {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<IpAddr>,
}

impl ExternalVips {
    pub fn of(&self, vip: Vip) -> Option<IpAddr> {
        match vip {
            Vip::Api => self.api,
            Vip::Ingress => self.ingress,
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Time limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Timeouts {
    pub harvest: Duration,
    /// Until each machine of pass two has its planned address.
    pub address: Duration,
    pub bootstrap: Duration,
    pub install: Duration,
    /// How long to retry a platform that has responded before.
    pub platform: Duration,
}

/// Restarts of a machine that stops unexpectedly during a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// For how long after its start a machine is restarted; later it stays off.
    pub limit: Duration,
    /// Maximum number of restarts.
    pub retries: u32,
}

/// All settings of a cluster; created and validated by `settings`.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    pub name: String,
    /// The base domain; the cluster's own names end in `<name>.<domain>`.
    pub domain: String,
    pub deployment: Deployment,
    /// Of all machines, except those of pools with another one.
    pub arch: Architecture,
    /// The env file, for commands in hints.
    pub env_file: Option<PathBuf>,
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
    pub harvest_size: Size,
    /// The network of every machine's first NIC, in both passes.
    pub network: String,
    pub extra_networks: Vec<String>,
    pub networks: ClusterNetworks,
    /// The second address family, if the cluster has two.
    pub ipv6: Option<Ipv6Settings>,
    pub images: BootImages,
    /// On the workers' own platform.
    pub worker_images: BootImages,
    /// Of pools with another architecture, on every platform.
    pub foreign_images: BTreeMap<Architecture, BootImages>,
    pub given: GivenAddresses,
    /// Addresses to choose from: for VIPs that are not set, and with `Harvest::Static` also for the nodes.
    pub address_ranges: Vec<AddressRange>,
    pub harvest: Harvest,
    pub mcs: Mcs,
    pub installer: InstallerChoice,
    pub downloads: Downloads,
    /// The versions that the lock file beside the env file requires.
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
    /// Pass one fails if its machines cannot reach the sources of images.
    pub egress_check: bool,
    pub fips: bool,
    pub capabilities: Capabilities,
    /// Directory of the user's own manifests, which are added unchanged.
    pub manifests: Option<PathBuf>,
    /// Manifests of oc-mirror, added as those of the user.
    pub mirror_manifests: Vec<PathBuf>,
    /// The user's own Ignition configs; later ones override earlier ones.
    pub fragments: Vec<FragmentSource>,
    /// The nodes' connections, in place of those that CoreOS creates; a node uses the most specific file.
    pub network_config: Vec<NetworkConfig>,
    /// A bridge over the node's NIC, for virtual machines in the cluster.
    pub use_br: bool,
    /// User pods may run on masters even if there are workers.
    pub masters_schedulable: bool,
    /// Time servers in place of CoreOS's defaults; names or addresses.
    pub ntp_servers: Vec<String>,
    /// MTU of the NICs in the machine network; `None` for the MTU that the network offers.
    pub mtu: Option<u16>,
    /// DNS search domains of the nodes, besides the cluster's own.
    pub dns_search: Vec<String>,
    pub registry: Registry,
    pub dns: Dns,
    pub lb: Lb,
    pub dhcp: Dhcp,
    /// Machines of pass two start when their host starts.
    pub autostart: bool,
    pub workers_when: WorkersWhen,
    /// Keep the bootstrap machine after bootstrap-complete, for analysis.
    pub keep_bootstrap: bool,
    pub timeouts: Timeouts,
    pub launch: Launch,
}

impl ClusterConfig {
    pub fn id(&self) -> ClusterId {
        ClusterId::new(self.cluster_domain(), self.deployment.id.clone())
    }

    pub fn cluster_domain(&self) -> ClusterDomain {
        ClusterDomain::new(&self.name, &self.domain)
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
                self.arbiter,
                self.all_workers(),
                &self.networks,
                &self.ipv6,
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
        let mut inputs = serde_json::to_vec(&parts).unwrap_or_default();
        if !self.arch.is_default() {
            inputs.extend_from_slice(self.arch.as_str().as_bytes());
        }
        sha256(inputs)
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

    /// Whether the cluster is a rehearsal: real machines, but no OpenShift.
    pub fn is_rehearsal(&self) -> bool {
        self.installer == InstallerChoice::Rehearsal
    }
}

/// A node, with all settings for its machine.
#[derive(Clone, Debug)]
pub struct NodeSpec<'c> {
    pub name: NodeName,
    pub role: Role,
    /// The role that stands for the platform of its machine; see `place_of`.
    pub place: Role,
    pub arch: Architecture,
    /// In pass two.
    pub size: &'c Size,
    /// The name of the machine network on its platform.
    pub network: &'c str,
    /// The networks of its additional NICs.
    pub extra_networks: &'c [String],
    /// If the env file sets them.
    pub mac: Option<Mac>,
    pub ip: Option<IpAddr>,
}

impl ClusterConfig {
    /// All nodes in display order: bootstrap, masters, arbiter, workers, pools.
    pub fn nodes(&self) -> Vec<NodeSpec<'_>> {
        let of_role = |role, count| (0..count).map(move |index| NodeName::node(role, index));
        let pools = self.pools.iter();
        let of_pools = pools.flat_map(|pool| (0..pool.nodes).map(move |index| NodeName::of_pool(&pool.name, index)));
        std::iter::once(NodeName::bootstrap())
            .chain(of_role(Role::Master, self.masters))
            .chain(of_role(Role::Arbiter, usize::from(self.arbiter)))
            .chain(of_role(Role::Worker, self.workers))
            .chain(of_pools)
            .map(|name| self.node(name))
            .collect()
    }

    /// The node of this name, even if the cluster does not have it.
    pub fn node(&self, name: NodeName) -> NodeSpec<'_> {
        let role = name.role();
        let pool = self.pool_of(&name);
        let given = &self.given;
        let (size, macs, ips): (_, &[Mac], &[IpAddr]) = match (pool, role) {
            (Some(pool), _) => (&pool.size, &pool.macs, &pool.ips),
            (None, Role::Bootstrap) => (
                &self.bootstrap_size,
                given.bootstrap_mac.as_slice(),
                given.bootstrap_ip.as_slice(),
            ),
            (None, Role::Master) => (&self.master_size, &given.master_macs, &given.master_ips),
            (None, Role::Arbiter) => (
                &self.arbiter_size,
                given.arbiter_mac.as_slice(),
                given.arbiter_ip.as_slice(),
            ),
            (None, Role::Worker | Role::Helper) => (&self.worker_size, &given.worker_macs, &given.worker_ips),
        };
        let place = self.place_of(&name);
        let network = match (&self.workers_on, place) {
            (Some(workers), Role::Worker) => &workers.network,
            _ => &self.network,
        };
        let number = match role {
            Role::Bootstrap => Some(0),
            _ => name.number(),
        };
        NodeSpec {
            name,
            role,
            place,
            arch: pool.map_or(self.arch, |pool| pool.arch),
            size,
            network,
            extra_networks: pool.map_or(&self.extra_networks, |pool| &pool.extra_networks),
            mac: number.and_then(|number| macs.get(number)).copied(),
            ip: number.and_then(|number| ips.get(number)).copied(),
        }
    }

    /// The roles of the members of etcd.
    pub fn etcd_roles(&self) -> &'static [Role] {
        match self.arbiter {
            true => &[Role::Master, Role::Arbiter],
            false => &[Role::Master],
        }
    }

    /// The roles of all nodes but the bootstrap. They always include `worker`, because workers may be added later.
    pub fn node_roles(&self) -> impl Iterator<Item = Role> + use<> {
        self.etcd_roles().iter().copied().chain([Role::Worker])
    }

    /// The number of workers, including those of the pools.
    pub fn all_workers(&self) -> usize {
        self.workers + self.pools.iter().map(|pool| pool.nodes).sum::<usize>()
    }

    /// The pool of a node; `None` if it is in none.
    fn pool_of(&self, node: &NodeName) -> Option<&Pool> {
        let name = node.pool()?;
        self.pools.iter().find(|pool| pool.name == name)
    }

    /// The same settings, with the numbers of workers, in and outside of pools, that these nodes have.
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

    /// Whether the workers' own platform has any machine.
    pub fn has_workers_elsewhere(&self) -> bool {
        self.nodes().iter().any(|node| node.place == Role::Worker)
    }

    /// The platforms (see `place_of`) and architectures of all machines: each needs its own images.
    pub fn boot_places(&self) -> BTreeSet<(Role, Architecture)> {
        let nodes = self.nodes().into_iter().map(|node| (node.place, node.arch));
        nodes.chain([(Role::Master, self.arch)]).collect()
    }

    /// The images of machines.
    pub fn boot_images(&self, (place, arch): (Role, Architecture)) -> &BootImages {
        match (self.foreign_images.get(&arch), place) {
            (Some(foreign), _) => foreign,
            (None, Role::Worker) => &self.worker_images,
            (None, _) => &self.images,
        }
    }

    /// The backend of the machines at a place.
    pub fn backend_at(&self, place: Role) -> &BackendConfig {
        backend_of(place, &self.backend, self.workers_on.as_ref())
    }

    /// The backend of a node's machine.
    pub fn backend_of(&self, node: &NodeName) -> &BackendConfig {
        self.backend_at(self.place_of(node))
    }

    /// Roles whose nodes may run routers: workers; masters if there are none; both if user pods may run on both.
    pub fn router_roles(&self) -> Vec<Role> {
        let masters = (self.all_workers() == 0 || self.masters_schedulable).then_some(Role::Master);
        let workers = (self.all_workers() > 0).then_some(Role::Worker);
        masters.into_iter().chain(workers).collect()
    }

    /// Whether routers can run on a node: it is in no pool, or its pool has no taint that prevents them.
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
}
