//! The parameter file: the table that pass one harvests and pass two, the checks and later runs live on.
//!
//! YAML that a person can read and edit; keys are kcli's where kcli has one.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use fs_err as fs;
use ipnetwork::Ipv4Network;
use serde::{Deserialize, Serialize};

use crate::cluster::{ClusterId, Harvest, Lease, Mac, NodeName, Role, Vip};
use crate::home;

/// Version of the file's layout.
const VERSION: u32 = 1;

/// All addresses of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    v: u32,
    /// Which program wrote it.
    written_by: String,
    pub cluster: String,
    pub domain: String,
    pub backend: String,
    pub network: String,
    /// Tells networks of equal names apart; two clusters of one identity share addresses and VRIDs.
    pub network_identity: String,
    pub machine_network: Ipv4Network,
    pub gateway: Option<Ipv4Addr>,
    /// Name servers that DHCP offers on the network.
    pub resolvers: Vec<Ipv4Addr>,
    /// How the table came about.
    pub harvest: Harvest,
    pub api_ip: Ipv4Addr,
    pub api_mac: Mac,
    pub ingress_ip: Ipv4Addr,
    pub ingress_mac: Mac,
    /// VRRP id of `api_ip`, 1–255.
    pub virtual_router_id: u8,
    /// VRRP id of `ingress_ip`.
    pub ingress_virtual_router_id: u8,
    pub nodes: Vec<NodeAddress>,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeAddress {
    pub name: NodeName,
    pub role: Role,
    pub mac: Mac,
    pub ip: Ipv4Addr,
}

/// What is wrong with a parameter file.
#[derive(Debug, thiserror::Error)]
pub enum ParametersError {
    #[error("cannot read the parameter file {}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("the parameter file {} is not understood", path.display())]
    Syntax {
        path: PathBuf,
        source: Box<serde_saphyr::Error>,
    },
    #[error("the parameter file {} has version {v}, written by {written_by}; this program knows version {VERSION}", path.display())]
    Version { path: PathBuf, v: u32, written_by: String },
    #[error("the parameter file {}: {problem}", path.display())]
    Content { path: PathBuf, problem: String },
}

impl Parameters {
    /// The table of a finished harvest; `leases` hold every node and both VIPs.
    #[expect(
        clippy::too_many_arguments,
        reason = "one call site, each argument a line of the file"
    )]
    pub fn new(
        cluster: &str,
        domain: &str,
        backend: &str,
        network: &str,
        facts: &crate::backend::NetworkFacts,
        machine_network: Ipv4Network,
        harvest: Harvest,
        vips: [Lease; 2],
        virtual_router_ids: [u8; 2],
        nodes: Vec<NodeAddress>,
    ) -> Self {
        let [api, ingress] = vips;
        let [virtual_router_id, ingress_virtual_router_id] = virtual_router_ids;
        Self {
            v: VERSION,
            written_by: concat!("ocpdeploy ", env!("CARGO_PKG_VERSION")).to_owned(),
            cluster: cluster.to_owned(),
            domain: domain.to_owned(),
            backend: backend.to_owned(),
            network: network.to_owned(),
            network_identity: facts.identity.clone(),
            machine_network,
            gateway: facts.gateway,
            resolvers: facts.resolvers.clone(),
            harvest,
            api_ip: api.ip,
            api_mac: api.mac,
            ingress_ip: ingress.ip,
            ingress_mac: ingress.mac,
            virtual_router_id,
            ingress_virtual_router_id,
            nodes,
        }
    }

    /// Reads and checks a parameter file. `None` when there is none.
    pub fn read(path: &Path) -> Result<Option<Self>, ParametersError> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, path).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ParametersError::Io {
                path: path.to_owned(),
                source,
            }),
        }
    }

    fn parse(text: &str, path: &Path) -> Result<Self, ParametersError> {
        #[derive(Deserialize)]
        struct Head {
            v: u32,
            #[serde(default)]
            written_by: String,
        }
        let syntax = |source| ParametersError::Syntax {
            path: path.to_owned(),
            source: Box::new(source),
        };
        // The version is judged first: a newer layout's unknown keys are not the reader's business.
        let head: Head = serde_saphyr::from_str(text).map_err(syntax)?;
        if head.v != VERSION {
            return Err(ParametersError::Version {
                path: path.to_owned(),
                v: head.v,
                written_by: head.written_by,
            });
        }
        let parameters: Self = serde_saphyr::from_str(text).map_err(syntax)?;
        match parameters.problem() {
            Some(problem) => Err(ParametersError::Content {
                path: path.to_owned(),
                problem,
            }),
            None => Ok(parameters),
        }
    }

    /// Writes the file whole or not at all, mode 0600.
    pub fn write(&self, path: &Path) -> Result<(), ParametersError> {
        let io = |source| ParametersError::Io {
            path: path.to_owned(),
            source,
        };
        home::write_private(path, self.to_yaml().map_err(io)?.as_bytes()).map_err(io)
    }

    /// The file's text.
    pub fn to_yaml(&self) -> std::io::Result<String> {
        let body = serde_saphyr::to_string(self).map_err(std::io::Error::other)?;
        Ok(format!(
            "# Addresses of cluster {}, from pass one. `ocpdeploy harvest` makes it anew.\n{body}",
            self.id()
        ))
    }

    pub fn id(&self) -> ClusterId {
        ClusterId::new(&self.cluster, &self.domain)
    }

    pub fn node(&self, name: &NodeName) -> Option<&NodeAddress> {
        self.nodes.iter().find(|node| &node.name == name)
    }

    pub fn vip(&self, vip: Vip) -> Lease {
        let (ip, mac) = match vip {
            Vip::Api => (self.api_ip, self.api_mac),
            Vip::Ingress => (self.ingress_ip, self.ingress_mac),
        };
        Lease {
            name: NodeName::vip(vip),
            mac,
            ip,
        }
    }

    /// Every address of the cluster: VIPs first, then nodes.
    pub fn leases(&self) -> Vec<Lease> {
        let nodes = self.nodes.iter().map(|n| Lease {
            name: n.name.clone(),
            mac: n.mac,
            ip: n.ip,
        });
        Vip::ALL.into_iter().map(|vip| self.vip(vip)).chain(nodes).collect()
    }

    /// The first thing that a hand's edit may have broken.
    fn problem(&self) -> Option<String> {
        let leases = self.leases();
        for (index, lease) in leases.iter().enumerate() {
            for other in &leases[..index] {
                if other.name == lease.name {
                    return Some(format!("{} appears twice", lease.name));
                }
                if other.ip == lease.ip && !(is_vip(&other.name) && is_vip(&lease.name)) {
                    return Some(format!(
                        "{} and {} have the same address {}",
                        other.name, lease.name, lease.ip
                    ));
                }
                if other.mac == lease.mac && !(is_vip(&other.name) && is_vip(&lease.name)) {
                    return Some(format!(
                        "{} and {} have the same MAC {}",
                        other.name, lease.name, lease.mac
                    ));
                }
            }
            if !self.machine_network.contains(lease.ip) {
                return Some(format!(
                    "{} of {} is outside {}",
                    lease.ip, lease.name, self.machine_network
                ));
            }
            if !lease.mac.is_unicast() {
                return Some(format!("{} of {} is not a unicast MAC", lease.mac, lease.name));
            }
        }
        if self.virtual_router_id == 0 || self.ingress_virtual_router_id == 0 {
            return Some("a VRRP id is 1 to 255".to_owned());
        }
        None
    }
}

/// Both VIPs may be one address, as kcli allows.
fn is_vip(name: &NodeName) -> bool {
    Vip::ALL.into_iter().any(|vip| *name == NodeName::vip(vip))
}
