//! The clusters in the state directory, and the addresses and ids that each uses on its network.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use fs_err::os::unix::fs::OpenOptionsExt;
use fs_err::{File, OpenOptions};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::cluster::{
    BackendConfig, ClusterConfig, ClusterDomain, ClusterId, Creation, Deployment, DeploymentId, Ipv6Table, Mac,
    NodeName, Role, Sizes, Vip, WorkersOn, backend_of, place_of, platform_names,
};
use crate::state::dir::NO_LINK;
use crate::state::home::{ClusterDir, Home, create_state_dir, write_private};
use crate::state::journal::host_name;
use crate::state::parameters::{Parameters, ParametersError};

/// Version of `cluster.json`.
const VERSION: u32 = 2;

/// The data to find a cluster on its platform without its env file; contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    v: u32,
    pub name: String,
    pub domain: String,
    pub deployment: Deployment,
    pub backend: BackendConfig,
    /// The workers' own platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers_on: Option<WorkersOn>,
    /// Whether it is a rehearsal.
    pub rehearsal: bool,
    /// The sizes of the last machines created for each role, or the planned ones if there are none.
    pub sizes: Sizes,
    /// How long its platforms may be unresponsive, in seconds.
    pub platform_timeout: u64,
    /// Networks of the nodes' additional NICs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_networks: Vec<String>,
    /// Those of a pool's nodes, if they have others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pool_networks: BTreeMap<String, Vec<String>>,
    /// Whether machines start with their host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub autostart: bool,
}

/// The identity of a new deployment: random, and begun now by this user on this computer.
pub fn new_deployment() -> io::Result<Deployment> {
    let user = ["USER", "LOGNAME"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|user| !user.is_empty());
    let user = user.unwrap_or_else(|| {
        let users = fs_err::read_to_string("/etc/passwd").unwrap_or_default();
        user_name(rustix::process::geteuid().as_raw(), &users)
    });
    Ok(Deployment {
        id: DeploymentId::from_random(getrandom::u64().map_err(io::Error::other)?),
        creation: Creation::new(&user, &host_name(), Timestamp::now()),
    })
}

/// The name of a user by the content of `/etc/passwd`; the id of one who is not in it.
fn user_name(id: u32, users: &str) -> String {
    let id = id.to_string();
    // passwd(5): name:password:UID:...
    let entries = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let name = entries
        .filter(|entry| entry.get(2) == Some(&id.as_str()))
        .find_map(|entry| entry.first().copied());
    name.map_or(id.clone(), str::to_owned)
}

/// Errors of the inventory.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    #[error("cannot read or write {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("cannot parse {}", path.display())]
    Syntax { path: PathBuf, source: serde_json::Error },
    #[error("{} has unsupported version {v}, expected {VERSION}", path.display())]
    Version { path: PathBuf, v: u32 },
    #[error("{}: {problem}", path.display())]
    Content { path: PathBuf, problem: String },
    #[error("no cluster {cluster} in the state directory")]
    Unknown { cluster: String },
    #[error(transparent)]
    Parameters(#[from] ParametersError),
}

impl Known {
    pub fn of(config: &ClusterConfig) -> Self {
        Self {
            v: VERSION,
            name: config.name.clone(),
            domain: config.domain.clone(),
            deployment: config.deployment.clone(),
            backend: config.backend.clone(),
            workers_on: config.workers_on.clone(),
            rehearsal: config.is_rehearsal(),
            sizes: config.sizes(),
            platform_timeout: config.timeouts.platform.as_secs(),
            extra_networks: config.extra_networks.clone(),
            pool_networks: config
                .pools
                .iter()
                .filter(|pool| pool.extra_networks != config.extra_networks)
                .map(|pool| (pool.name.clone(), pool.extra_networks.clone()))
                .collect(),
            autostart: config.autostart,
        }
    }

    pub fn id(&self) -> ClusterId {
        ClusterId::new(self.cluster_domain(), self.deployment.id.clone())
    }

    pub fn cluster_domain(&self) -> ClusterDomain {
        ClusterDomain::new(&self.name, &self.domain)
    }

    /// The role that stands for the platform of a node's machine; see `place_of`.
    pub fn place_of(&self, node: &NodeName) -> Role {
        place_of(node.role(), node.pool(), self.workers_on.as_ref())
    }

    /// The backend of a node's machine.
    pub fn backend_of(&self, node: &NodeName) -> &BackendConfig {
        backend_of(self.place_of(node), &self.backend, self.workers_on.as_ref())
    }

    /// All platforms: the main one, and the workers' own if they have one.
    pub fn all_platforms(&self) -> impl Iterator<Item = &BackendConfig> {
        std::iter::once(&self.backend).chain(self.workers_on.iter().map(|workers| &workers.backend))
    }

    /// E.g. `ovirt, workers on kubevirt`.
    pub fn platforms(&self) -> String {
        platform_names(&self.backend, self.workers_on.as_ref())
    }

    /// Writes `cluster.json` unless it already says the same.
    pub fn write(&self, dir: &ClusterDir) -> Result<(), InventoryError> {
        let path = dir.known();
        if Self::read(dir)?.as_ref() == Some(self) {
            return Ok(());
        }
        let text = serde_json::to_vec_pretty(self).map_err(|source| InventoryError::Syntax {
            path: path.clone(),
            source,
        })?;
        write_private(&path, &text).map_err(|source| InventoryError::Io { path, source })
    }

    /// `None` if the directory or the file does not exist.
    pub fn read(dir: &ClusterDir) -> Result<Option<Self>, InventoryError> {
        #[derive(Deserialize)]
        struct Head {
            v: u32,
        }
        let path = dir.known();
        let text = match fs_err::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(InventoryError::Io { path, source }),
        };
        let syntax = |source| InventoryError::Syntax {
            path: path.clone(),
            source,
        };
        let head: Head = serde_json::from_slice(&text).map_err(syntax)?;
        if head.v != VERSION {
            return Err(InventoryError::Version { path, v: head.v });
        }
        let known: Self = serde_json::from_slice(&text).map_err(syntax)?;
        // Name and domain become part of paths, files and commands, including commands that root runs.
        match ClusterDomain::checked(&known.name, &known.domain) {
            Ok(_) => Ok(Some(known)),
            Err(problem) => Err(InventoryError::Content { path, problem }),
        }
    }
}

/// A cluster with the contents of its directory.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub known: Known,
    /// `None` before the end of pass one.
    pub parameters: Option<Parameters>,
}

/// All clusters in the state directory, by name.
pub fn clusters(home: &Home) -> Result<Vec<Cluster>, InventoryError> {
    let names = home.cluster_names().map_err(|source| InventoryError::Io {
        path: home.clusters(),
        source,
    })?;
    let mut clusters = Vec::new();
    for name in names {
        clusters.extend(find(home, &name)?);
    }
    Ok(clusters)
}

/// One cluster by name; `None` if its directory does not identify it.
pub fn find(home: &Home, name: &str) -> Result<Option<Cluster>, InventoryError> {
    let dir = home.cluster(name);
    let Some(known) = Known::read(&dir)? else {
        return Ok(None);
    };
    Ok(Some(Cluster {
        known,
        parameters: Parameters::read(&dir.parameters())?,
    }))
}

/// The addresses, ids and MACs of all clusters but one on one network.
#[derive(Clone, Debug, Default)]
pub struct Neighbours {
    /// Address of either family -> owner, e.g. `api of cluster prod`.
    pub addresses: BTreeMap<IpAddr, String>,
    pub macs: BTreeSet<Mac>,
    pub virtual_router_ids: BTreeMap<u8, String>,
}

impl Neighbours {
    /// The addresses and VRRP ids of a table that another cluster uses, too: the table was edited or copied.
    pub fn clashes(&self, parameters: &Parameters) -> Vec<String> {
        let addresses = parameters.all_leases().into_iter().filter_map(|lease| {
            let owner = self.addresses.get(&lease.ip)?;
            Some(format!("{} {} is already used by {owner}", lease.name, lease.ip))
        });
        let ids = [
            ("virtual_router_id", parameters.virtual_router_id),
            ("ingress_virtual_router_id", parameters.ingress_virtual_router_id),
        ];
        let ids = ids.into_iter().filter_map(|(name, id)| {
            let owner = self.virtual_router_ids.get(&id)?;
            Some(format!("{name} {id} is already used by {owner}"))
        });
        let ipv6 = parameters.ipv6.iter().flat_map(|ipv6| self.ipv6_clashes(ipv6));
        addresses.chain(ipv6).chain(ids).collect()
    }

    /// The IPv6 addresses of VIPs that another cluster has. Those of nodes differ if their IPv4 addresses do.
    pub fn ipv6_clashes(&self, ipv6: &Ipv6Table) -> Vec<String> {
        let clash = |vip: Vip| {
            let owner = self.addresses.get(&ipv6.vip(vip).into())?;
            Some(format!("{vip}_ip {} is already used by {owner}", ipv6.vip(vip)))
        };
        Vip::ALL.into_iter().filter_map(clash).collect()
    }
}

/// Collects the addresses, ids and MACs of a network's clusters, except cluster `me`.
///
/// MACs are collected from all networks: two of them may share a link.
pub fn neighbours(clusters: &[Cluster], network_identity: &str, me: &ClusterDomain) -> Neighbours {
    let mut found = Neighbours::default();
    for parameters in clusters.iter().filter_map(|cluster| cluster.parameters.as_ref()) {
        if parameters.cluster_domain() == *me {
            continue;
        }
        let leases = parameters.all_leases();
        found.macs.extend(leases.iter().map(|lease| lease.mac));
        if parameters.network_identity != network_identity {
            continue;
        }
        for lease in leases {
            found
                .addresses
                .insert(lease.ip, format!("{} of cluster {}", lease.name, parameters.cluster));
        }
        for (name, ip) in parameters.ipv6_addresses() {
            let owner = format!("{name} of cluster {}", parameters.cluster);
            found.addresses.insert(ip.into(), owner);
        }
        for (vip, id) in Vip::ALL
            .into_iter()
            .zip([parameters.virtual_router_id, parameters.ingress_virtual_router_id])
        {
            found
                .virtual_router_ids
                .insert(id, format!("{vip} of cluster {}", parameters.cluster));
        }
    }
    found
}

/// Held while addresses and VRIDs are chosen and written, so that concurrent runs do not choose the same ones.
pub struct Allocation {
    _file: File,
}

/// Waits for the allocation lock, which is held for milliseconds.
pub fn allocate(home: &Home) -> Result<Allocation, InventoryError> {
    let path = home.root().join("inventory.lock");
    let io = |source| InventoryError::Io {
        path: path.clone(),
        source,
    };
    create_state_dir(home.root()).map_err(io)?;
    let file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(NO_LINK)
        .open(&path)
        .map_err(io)?;
    file.file().lock().map_err(io)?;
    Ok(Allocation { _file: file })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::parameters;

    fn cluster(name: &str, network_identity: &str) -> Cluster {
        let mut parameters = parameters::tests::example();
        parameters.cluster = name.to_owned();
        parameters.network_identity = network_identity.to_owned();
        let known = Known {
            name: name.to_owned(),
            ..Known::of(&ClusterConfig::example())
        };
        Cluster {
            known,
            parameters: Some(parameters),
        }
    }

    #[test]
    fn a_user_has_the_name_from_the_user_database_or_else_the_id() {
        const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n";
        for (id, name) in [(0, "root"), (1000, "ann"), (100, "100")] {
            assert_eq!(user_name(id, USERS), name);
        }
    }

    #[test]
    fn addresses_count_on_the_same_network_and_macs_everywhere() {
        let clusters = [cluster("lab", "a"), cluster("prod", "a"), cluster("far", "b")];
        let lab = clusters[0].known.cluster_domain();
        let found = neighbours(&clusters, "a", &lab);
        let api = "192.168.122.10".parse().unwrap();
        assert_eq!(
            found.addresses.get(&api).map(String::as_str),
            Some("api of cluster prod")
        );
        assert_eq!(
            found.virtual_router_ids.get(&10).map(String::as_str),
            Some("api of cluster prod")
        );
        assert_eq!(found.addresses.len(), 8, "two VIPs and six nodes");
        assert_eq!(
            neighbours(&clusters[..1], "a", &lab).macs.len(),
            0,
            "those of the cluster itself do not count"
        );
        assert_eq!(neighbours(&clusters[2..], "a", &lab).macs.len(), 8);
        assert_eq!(neighbours(&clusters[2..], "a", &lab).addresses.len(), 0);
    }

    #[test]
    fn an_edited_table_is_compared_with_the_other_clusters() {
        let clusters = [cluster("lab", "a"), cluster("prod", "a")];
        let mut mine = parameters::tests::example();
        mine.api_ip = "192.168.122.111".parse().unwrap();
        mine.ingress_ip = mine.api_ip;
        mine.nodes.clear();
        mine.virtual_router_id = 111;
        mine.ingress_virtual_router_id = 10;
        let found = neighbours(&clusters, "a", &clusters[0].known.cluster_domain());
        assert_eq!(
            found.clashes(&mine),
            ["ingress_virtual_router_id 10 is already used by api of cluster prod"]
        );
        mine.api_ip = "192.168.122.10".parse().unwrap();
        assert_eq!(
            found.clashes(&mine)[0],
            "api 192.168.122.10 is already used by api of cluster prod"
        );
        assert_eq!(Neighbours::default().clashes(&mine), Vec::<String>::new());
    }

    #[test]
    fn a_recorded_cluster_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::new(folder.path());
        assert!(find(&home, "lab").unwrap().is_none());
        let known = Known::of(&ClusterConfig::example());
        known.write(&home.cluster("lab")).unwrap();
        let found = clusters(&home).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].known, known);
        assert!(found[0].parameters.is_none());
    }
}
