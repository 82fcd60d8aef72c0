//! The parameter file: the address table, written by pass one and used by pass two, the checks and later runs.
//!
//! Editable YAML; keys are the same as kcli's if kcli has them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use fs_err as fs;
use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use crate::cluster::{
    AddressAssignment, ApiEndpoint, ClusterDomain, Evidence, ExternalVips, Harvest, Ipv6Table, LONGEST_IPV6_PREFIX,
    Mac, NodeName, Role, Vip,
};
use crate::state::home;

/// Version of the file's format.
const VERSION: u32 = 1;

/// All addresses of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    v: u32,
    /// The version of the program that wrote it.
    written_by: String,
    pub cluster: String,
    pub domain: String,
    pub backend: String,
    pub network: String,
    /// Distinguishes networks with the same name; two clusters with the same identity share addresses and VRIDs.
    pub network_identity: String,
    /// The part of the MACs that differs between tenants of a platform; empty on a platform without tenants.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tenant: String,
    pub machine_network: IpNetwork,
    pub gateway: Option<IpAddr>,
    /// Name servers that DHCP provides on the network.
    pub resolvers: Vec<IpAddr>,
    /// Set if nodes cannot reach each other at the addresses below: `<machine>.<peer_domain>` resolves to reachable
    /// ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_domain: Option<String>,
    /// How the addresses were determined.
    pub harvest: Harvest,
    /// Where this computer reaches `api_ip`, if not at that address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_endpoint: Option<ApiEndpoint>,
    pub api_ip: IpAddr,
    pub api_mac: Mac,
    pub ingress_ip: IpAddr,
    pub ingress_mac: Mac,
    /// Where computers outside of the machine network reach the VIPs.
    #[serde(default, skip_serializing_if = "ExternalVips::is_empty")]
    pub external_vips: ExternalVips,
    /// VRRP id of `api_ip`, 1–255.
    pub virtual_router_id: u8,
    /// VRRP id of `ingress_ip`.
    pub ingress_virtual_router_id: u8,
    /// The password of the cluster's keepalived instances; `None` with another load balancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrrp_password: Option<VrrpPassword>,
    /// The second address family, if the cluster has two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Ipv6Table>,
    pub nodes: Vec<NodeAddress>,
    /// Workers whose machines are not created, started, stopped or deleted by this program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub external: Vec<NodeAddress>,
}

/// The password in VRRP advertisements, which are not encrypted: it separates clusters, but stops no attacker.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VrrpPassword(String);

impl VrrpPassword {
    /// Eight characters, keepalived's maximum, from as many random bytes.
    pub fn from_random(bytes: [u8; 8]) -> Self {
        const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
        Self(
            bytes
                .map(|byte| char::from(LETTERS[usize::from(byte % 32)]))
                .iter()
                .collect(),
        )
    }

    pub fn expose(&self) -> &str {
        &self.0
    }

    /// keepalived would truncate others or parse them differently.
    fn is_fit(&self) -> bool {
        (1..=8).contains(&self.0.len()) && self.0.bytes().all(|byte| byte.is_ascii_alphanumeric())
    }
}

impl fmt::Debug for VrrpPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeAddress {
    pub name: NodeName,
    pub role: Role,
    pub mac: Mac,
    pub ip: IpAddr,
    /// How pass one learnt the address, if the platform did not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
}

impl NodeAddress {
    pub fn new(role: Role, lease: AddressAssignment) -> Self {
        let AddressAssignment { name, mac, ip } = lease;
        Self {
            name,
            role,
            mac,
            ip,
            evidence: None,
        }
    }

    pub fn lease(&self) -> AddressAssignment {
        AddressAssignment {
            name: self.name.clone(),
            mac: self.mac,
            ip: self.ip,
        }
    }
}

/// What is wrong with a parameter file.
#[derive(Debug, thiserror::Error)]
pub enum ParametersError {
    #[error("cannot read the parameter file {}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("cannot parse the parameter file {}", path.display())]
    Syntax {
        path: PathBuf,
        source: Box<serde_saphyr::Error>,
    },
    #[error("the parameter file {} has unsupported version {v}, written by {written_by}; expected {VERSION}", path.display())]
    Version { path: PathBuf, v: u32, written_by: String },
    #[error("the parameter file {}: {problem}", path.display())]
    Content { path: PathBuf, problem: String },
}

impl Parameters {
    /// The VRRP id that announces a VIP; if both VIPs are one address, it is the api's.
    pub fn router_id(&self, vip: Vip) -> u8 {
        match vip {
            Vip::Ingress if self.ingress_ip != self.api_ip => self.ingress_virtual_router_id,
            Vip::Api | Vip::Ingress => self.virtual_router_id,
        }
    }

    /// The table of a completed harvest; `leases` contains every node and both VIPs.
    #[expect(
        clippy::too_many_arguments,
        reason = "one call site, each argument is a line of the file"
    )]
    pub fn new(
        cluster: &str,
        domain: &str,
        backend: &str,
        network: &str,
        facts: &crate::backend::NetworkFacts,
        machine_network: IpNetwork,
        harvest: Harvest,
        vips: [AddressAssignment; 2],
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
            tenant: String::new(),
            machine_network,
            gateway: facts.gateway,
            resolvers: facts.resolvers.clone(),
            peer_domain: facts.peer_domain.clone(),
            harvest,
            api_endpoint: None,
            api_ip: api.ip,
            api_mac: api.mac,
            ingress_ip: ingress.ip,
            ingress_mac: ingress.mac,
            external_vips: ExternalVips::default(),
            virtual_router_id,
            ingress_virtual_router_id,
            vrrp_password: None,
            ipv6: None,
            nodes,
            external: Vec::new(),
        }
    }

    /// Reads and validates a parameter file. `None` if it does not exist.
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

    /// Parses a table; `path` is for errors.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ParametersError> {
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
        // The version is checked first: a newer format may have unknown keys.
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

    /// Writes the file atomically with mode 0600, unless `read` would reject it.
    pub fn write(&self, path: &Path) -> Result<(), ParametersError> {
        if let Some(problem) = self.problem() {
            return Err(ParametersError::Content {
                path: path.to_owned(),
                problem,
            });
        }
        let io = |source| ParametersError::Io {
            path: path.to_owned(),
            source,
        };
        home::write_private(path, self.to_yaml().map_err(io)?.as_bytes()).map_err(io)
    }

    /// The file's text.
    pub fn to_yaml(&self) -> std::io::Result<String> {
        // Quoted everywhere: YAML 1.1 parses a plain 52:54:00:12:34:56 as a number of base 60.
        let options = serde_saphyr::ser_options! { quote_all: true };
        let body = serde_saphyr::to_string_with_options(self, options).map_err(std::io::Error::other)?;
        Ok(format!(
            "# Addresses of cluster {}, from pass one. To create it again: `ocpdeploy deploy --harvest`.\n{body}",
            self.cluster_domain()
        ))
    }

    pub fn cluster_domain(&self) -> ClusterDomain {
        ClusterDomain::new(&self.cluster, &self.domain)
    }

    /// All nodes, external ones last.
    pub fn all_nodes(&self) -> impl Iterator<Item = &NodeAddress> {
        self.nodes.iter().chain(&self.external)
    }

    /// A node, external ones included.
    pub fn node(&self, name: &NodeName) -> Option<&NodeAddress> {
        self.all_nodes().find(|node| &node.name == name)
    }

    /// Whether a node's machine is not managed by this program.
    pub fn is_external(&self, name: &NodeName) -> bool {
        self.external.iter().any(|node| &node.name == name)
    }

    /// The nodes of a role with managed machines, in the order of the file.
    pub fn of_role(&self, role: Role) -> impl Iterator<Item = &NodeAddress> {
        self.nodes.iter().filter(move |node| node.role == role)
    }

    /// The nodes with etcd: masters, and the arbiter.
    pub fn etcd_members(&self) -> impl Iterator<Item = &NodeAddress> {
        self.nodes.iter().filter(|node| node.role.has_etcd())
    }

    /// Where computers outside of the machine network reach the API. For this computer see `local::reach`.
    pub fn api_endpoint(&self) -> ApiEndpoint {
        let external = self.external_vips.api.map(ApiEndpoint::from);
        let endpoint = self.api_endpoint.clone().or(external);
        endpoint.unwrap_or_else(|| self.api_ip.into())
    }

    pub fn vip(&self, vip: Vip) -> AddressAssignment {
        let (ip, mac) = match vip {
            Vip::Api => (self.api_ip, self.api_mac),
            Vip::Ingress => (self.ingress_ip, self.ingress_mac),
        };
        AddressAssignment {
            name: NodeName::vip(vip),
            mac,
            ip,
        }
    }

    /// Every address that this program assigns: VIPs first, then nodes.
    pub fn leases(&self) -> Vec<AddressAssignment> {
        let nodes = self.nodes.iter().map(NodeAddress::lease);
        Vip::ALL.into_iter().map(|vip| self.vip(vip)).chain(nodes).collect()
    }

    /// Every address of the cluster: as `leases`, then those of external nodes.
    pub fn all_leases(&self) -> Vec<AddressAssignment> {
        let mut leases = self.leases();
        leases.extend(self.external.iter().map(NodeAddress::lease));
        leases
    }

    /// All addresses of the machine with this address: with two address families also its IPv6 address.
    pub fn both(&self, ip: IpAddr) -> Vec<IpAddr> {
        let ipv6 = self.ipv6.as_ref().map(|ipv6| IpAddr::V6(ipv6.beside(ip)));
        std::iter::once(ip).chain(ipv6).collect()
    }

    /// As `both`, for a VIP.
    pub fn vip_addresses(&self, vip: Vip) -> Vec<IpAddr> {
        let ipv6 = self.ipv6.as_ref().map(|ipv6| IpAddr::V6(ipv6.vip(vip)));
        std::iter::once(self.vip(vip).ip).chain(ipv6).collect()
    }

    /// As `vip_addresses`, for computers outside of the machine network.
    pub fn client_addresses(&self, vip: Vip) -> Vec<IpAddr> {
        let mut all = self.vip_addresses(vip);
        if let Some(external) = self.external_vips.of(vip) {
            all.retain(|ip| ip.is_ipv4() != external.is_ipv4());
            all.insert(0, external);
        }
        all
    }

    /// Every address of the second family: VIPs first, then nodes.
    pub fn ipv6_addresses(&self) -> Vec<(NodeName, Ipv6Addr)> {
        let Some(ipv6) = &self.ipv6 else { return Vec::new() };
        let vips = Vip::ALL.into_iter().map(|vip| (NodeName::vip(vip), ipv6.vip(vip)));
        let nodes = self.all_nodes().map(|node| (node.name.clone(), ipv6.beside(node.ip)));
        vips.chain(nodes).collect()
    }

    /// As `problem`, for the second address family.
    fn ipv6_problem(&self) -> Option<String> {
        let ipv6 = self.ipv6.as_ref()?;
        if ipv6.machine_network.prefix() > LONGEST_IPV6_PREFIX {
            return Some(format!(
                "the prefix of {} is longer than /{LONGEST_IPV6_PREFIX}",
                ipv6.machine_network
            ));
        }
        let all = self.ipv6_addresses();
        for (index, (name, ip)) in all.iter().enumerate() {
            if !ipv6.machine_network.contains(*ip) {
                return Some(format!("{ip} of {name} is outside {}", ipv6.machine_network));
            }
            let others = all[..index].iter();
            let mut same = others.filter(|(other, same)| same == ip && !(is_vip(other) && is_vip(name)));
            if let Some((other, _)) = same.next() {
                return Some(format!("{other} and {name} have the same address {ip}"));
            }
        }
        ((ipv6.api_ip == ipv6.ingress_ip) != (self.api_ip == self.ingress_ip))
            .then(|| "api and ingress have the same address in one address family only".to_owned())
    }

    /// The first error that a manual change may have caused.
    fn problem(&self) -> Option<String> {
        if let Err(problem) = ClusterDomain::checked(&self.cluster, &self.domain) {
            return Some(problem);
        }
        if let Some(node) = self.external.iter().find(|node| node.role != Role::Worker) {
            return Some(format!(
                "the external node {} is a {}, not a worker",
                node.name, node.role
            ));
        }
        let leases = self.all_leases();
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
            // A load balancer of the platform may be on another network.
            let is_elsewhere = self.peer_domain.is_some() && is_vip(&lease.name);
            if !self.machine_network.contains(lease.ip) && !is_elsewhere {
                return Some(format!(
                    "{} of {} is outside {}",
                    lease.ip, lease.name, self.machine_network
                ));
            }
            if !lease.mac.is_unicast() {
                return Some(format!("{} of {} is not a unicast MAC address", lease.mac, lease.name));
            }
        }
        if self.virtual_router_id == 0 || self.ingress_virtual_router_id == 0 {
            return Some("a VRRP id must be 1 to 255".to_owned());
        }
        if self.vrrp_password.as_ref().is_some_and(|password| !password.is_fit()) {
            return Some("vrrp_password must be 1 to 8 letters and digits".to_owned());
        }
        self.ipv6_problem()
    }
}

/// Both VIPs may be the same address, as in kcli.
fn is_vip(name: &NodeName) -> bool {
    Vip::ALL.into_iter().any(|vip| *name == NodeName::vip(vip))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::backend::NetworkFacts;
    use crate::cluster::ClusterConfig;
    use crate::plan::machines;

    /// The table of the example cluster: nodes from .11, VIPs .10 and .9.
    pub(crate) fn example() -> Parameters {
        let config = ClusterConfig::example();
        let macs = machines::macs(&config, &Default::default());
        let ip = |last| IpAddr::from([192, 168, 122, last]);
        let vip = |vip, last| AddressAssignment {
            name: NodeName::vip(vip),
            mac: macs[&NodeName::vip(vip)],
            ip: ip(last),
        };
        let nodes = config.nodes().into_iter().zip(11..);
        let nodes = nodes.map(|(node, last)| NodeAddress {
            mac: macs[&node.name],
            ip: ip(last),
            name: node.name,
            role: node.role,
            evidence: None,
        });
        let facts = NetworkFacts {
            identity: "sim/default".to_owned(),
            gateway: Some(ip(1)),
            resolvers: vec![ip(1)],
            ..NetworkFacts::default()
        };
        let network = IpNetwork::new(ip(0), 24).unwrap();
        let vips = [vip(Vip::Api, 10), vip(Vip::Ingress, 9)];
        let nodes = nodes.collect();
        Parameters::new(
            "lab",
            "example.com",
            "sim",
            "default",
            &facts,
            network,
            Harvest::Boot,
            vips,
            [10, 9],
            nodes,
        )
    }

    #[test]
    fn the_file_reads_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("parameters.yaml");
        assert_eq!(Parameters::read(&path).unwrap(), None);
        example().write(&path).unwrap();
        assert_eq!(Parameters::read(&path).unwrap(), Some(example()));
        insta::assert_snapshot!(std::fs::read_to_string(&path).unwrap());
    }

    #[test]
    fn an_external_node_is_a_worker_with_an_address_of_its_own() {
        let row = NodeAddress {
            name: NodeName::of_pool("metal", 0),
            role: Role::Worker,
            mac: Mac([2, 0, 0, 0, 0, 1]),
            ip: IpAddr::from([192, 168, 122, 99]),
            evidence: None,
        };
        let read = |row: NodeAddress| {
            let table = Parameters {
                external: vec![row],
                ..example()
            };
            Parameters::parse(&table.to_yaml().unwrap(), Path::new("p.yaml")).map_err(|error| error.to_string())
        };
        let table = read(row.clone()).unwrap();
        assert_eq!(table.node(&row.name), Some(&row));
        assert!(table.is_external(&row.name) && !table.is_external(&table.nodes[0].name));
        assert!(table.leases().iter().all(|lease| lease.name != row.name));
        assert!(table.of_role(Role::Worker).all(|node| node.name != row.name));
        let change = |change: fn(&mut NodeAddress)| {
            let mut row = row.clone();
            change(&mut row);
            read(row).unwrap_err()
        };
        for (error, words) in [
            (
                change(|row| row.role = Role::Master),
                "metal-0 is a master, not a worker",
            ),
            (change(|row| row.ip = example().nodes[0].ip), "have the same address"),
            (change(|row| row.mac = example().nodes[0].mac), "have the same MAC"),
            (change(|row| row.ip = [127, 0, 0, 1].into()), "is outside"),
            (
                change(|row| row.name = NodeName::node(Role::Worker, 0)),
                "appears twice",
            ),
        ] {
            assert!(error.contains(words), "{words}: {error}");
        }
    }

    #[test]
    fn the_vrrp_password_is_kept_and_never_shown() {
        let password = VrrpPassword::from_random([0, 31, 32, 255, 5, 6, 7, 8]);
        assert_eq!(password.expose(), "a9a9fghi");
        let parameters = Parameters {
            vrrp_password: Some(password),
            ..example()
        };
        assert!(!format!("{parameters:?}").contains("a9a9"), "{parameters:?}");
        let text = parameters.to_yaml().unwrap();
        assert_eq!(Parameters::parse(&text, Path::new("p.yaml")).unwrap(), parameters);
        for wrong in ["", "too long!", "123456789", "a b", "a#b", "{}"] {
            let text = text.replace("a9a9fghi", wrong);
            let error = Parameters::parse(&text, Path::new("p.yaml")).unwrap_err();
            assert_eq!(
                error.to_string(),
                "the parameter file p.yaml: vrrp_password must be 1 to 8 letters and digits"
            );
        }
    }

    #[test]
    fn an_editing_mistake_is_reported() {
        let good = example().to_yaml().unwrap();
        let cases = [
            ("v: 1", "v: 2", "has unsupported version 2, written by ocpdeploy"),
            (
                "api_ip: '192.168.122.10'",
                "api_ip: '192.168.122.12'",
                "api and master-0 have the same address 192.168.122.12",
            ),
            (
                "api_ip: '192.168.122.10'",
                "api_ip: '192.168.123.10'",
                "192.168.123.10 of api is outside 192.168.122.0/24",
            ),
            ("api_ip: '192.168.122.10'", "api_ip: '192.168.122.999'", "cannot parse"),
            (
                "virtual_router_id: 10",
                "virtual_router_id: 0",
                "a VRRP id must be 1 to 255",
            ),
            ("resolvers:", "resolver:", "cannot parse"),
            ("name: 'master-1'", "name: 'master-0'", "master-0 appears twice"),
        ];
        for (from, to, words) in cases {
            assert!(good.contains(from), "{from} is in the file:\n{good}");
            let error = Parameters::parse(&good.replacen(from, to, 1), Path::new("p.yaml")).unwrap_err();
            assert!(error.to_string().contains(words), "{to}: {error}");
        }
    }

    #[test]
    fn each_vip_has_a_router_id_unless_both_are_one_address() {
        let mut table = example();
        assert_eq!(Vip::ALL.map(|vip| table.router_id(vip)), [10, 9]);
        table.ingress_ip = table.api_ip;
        assert_eq!(Vip::ALL.map(|vip| table.router_id(vip)), [10, 10]);
    }

    #[test]
    fn etcd_is_on_the_masters_and_the_arbiter() {
        let mut table = example();
        table
            .nodes
            .retain(|node| node.role != Role::Master || node.name == NodeName::node(Role::Master, 0));
        table.nodes.push(NodeAddress {
            name: NodeName::node(Role::Arbiter, 0),
            role: Role::Arbiter,
            ..table.nodes[0].clone()
        });
        let members: Vec<_> = table.etcd_members().map(|node| node.name.as_str()).collect();
        assert_eq!(members, ["master-0", "arbiter-0"]);
    }

    #[test]
    fn addresses_and_macs_are_unique_but_both_vips_may_share_them() {
        let problem = |change: fn(&mut Parameters)| {
            let mut table = example();
            change(&mut table);
            table.problem()
        };
        assert_eq!(
            problem(|table| (table.ingress_ip, table.ingress_mac) = (table.api_ip, table.api_mac)),
            None
        );
        for (change, words) in [
            (
                (|table| table.nodes[1].mac = table.nodes[0].mac) as fn(&mut Parameters),
                "bootstrap and master-0 have the same MAC 52:54:00:",
            ),
            (
                |table| table.nodes[0].mac = table.api_mac,
                "api and bootstrap have the same MAC 52:54:00:",
            ),
            (
                |table| table.nodes[1].ip = table.nodes[0].ip,
                "bootstrap and master-0 have the same address 192.168.122.11",
            ),
            (
                |table| table.nodes[0].mac = Mac([0xff; 6]),
                "ff:ff:ff:ff:ff:ff of bootstrap is not a unicast MAC address",
            ),
            (|table| table.virtual_router_id = 0, "a VRRP id must be 1 to 255"),
            (
                |table| table.ingress_virtual_router_id = 0,
                "a VRRP id must be 1 to 255",
            ),
        ] {
            let problem = problem(change).unwrap_or_default();
            assert!(problem.starts_with(words), "{problem:?} is not {words}");
        }
    }

    #[test]
    fn ipv6_addresses_are_derived_from_ipv4_ones_and_unique() {
        let mut table = example();
        let ipv6 = |api: &str, ingress: &str| {
            Some(Ipv6Table {
                machine_network: "fd00:1::/64".parse().unwrap(),
                gateway: "fe80::1".parse().unwrap(),
                api_ip: api.parse().unwrap(),
                ingress_ip: ingress.parse().unwrap(),
            })
        };
        assert_eq!(table.both(table.nodes[0].ip).len(), 1);
        assert_eq!(table.vip_addresses(Vip::Api), [table.api_ip]);
        table.ipv6 = ipv6("fd00:1::10", "fd00:1::9");
        let ingress = table.vip_addresses(Vip::Ingress);
        assert_eq!(ingress, [table.ingress_ip, "fd00:1::9".parse().unwrap()]);
        let mut seen_outside = table.clone();
        let floating = IpAddr::from([203, 0, 113, 7]);
        seen_outside.external_vips.api = Some(floating);
        let api = seen_outside.client_addresses(Vip::Api);
        assert_eq!(api, [floating, "fd00:1::10".parse().unwrap()]);
        assert_eq!(seen_outside.client_addresses(Vip::Ingress), ingress);
        let both: Vec<_> = table.both(table.nodes[0].ip).iter().map(IpAddr::to_string).collect();
        assert_eq!(both, ["192.168.122.11", "fd00:1::c0a8:7a0b"]);
        let text = table.to_yaml().unwrap();
        assert_eq!(Parameters::parse(&text, Path::new("p.yaml")).unwrap(), table);
        for (api, ingress, words) in [
            ("fd00:2::10", "fd00:1::9", "fd00:2::10 of api is outside fd00:1::/64"),
            (
                "fd00:1::c0a8:7a0c",
                "fd00:1::9",
                "api and master-0 have the same address",
            ),
            ("fd00:1::10", "fd00:1::10", "in one address family only"),
        ] {
            table.ipv6 = ipv6(api, ingress);
            let problem = table.problem().unwrap_or_default();
            assert!(problem.contains(words), "{problem:?} is not {words}");
        }
        table.ipv6 = ipv6("fd00:1::10", "fd00:1::10");
        (table.ingress_ip, table.ingress_mac) = (table.api_ip, table.api_mac);
        assert_eq!(table.problem(), None);
        for (network, problem) in [
            ("fd00:1::/96", None),
            ("fd00:1::/97", Some("the prefix of fd00:1::/97 is longer than /96")),
        ] {
            table.ipv6.as_mut().unwrap().machine_network = network.parse().unwrap();
            assert_eq!(table.problem().as_deref(), problem);
        }
    }

    #[test]
    fn only_vips_of_a_platform_s_load_balancer_may_be_outside_the_machine_network() {
        let outside = IpAddr::from([10, 96, 0, 1]);
        let mut table = example();
        table.api_ip = outside;
        assert!(table.problem().is_some());
        table.peer_domain = Some("peers.lab.svc".to_owned());
        assert_eq!(table.problem(), None);
        table.nodes[0].ip = outside;
        table.api_ip = example().api_ip;
        assert_eq!(
            table.problem().as_deref(),
            Some("10.96.0.1 of bootstrap is outside 192.168.122.0/24")
        );
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_a_missing_one() {
        let folder = tempfile::tempdir().unwrap();
        let error = Parameters::read(folder.path()).unwrap_err();
        assert!(matches!(error, ParametersError::Io { .. }), "{error}");
    }

    #[test]
    fn an_invalid_table_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("parameters.yaml");
        let table = Parameters {
            virtual_router_id: 0,
            ..example()
        };
        assert!(table.write(&path).is_err());
        assert_eq!(Parameters::read(&path).unwrap(), None);
    }

    #[test]
    fn nodes_are_found_by_name_and_by_role() {
        let table = example();
        let found = |index| table.node(&NodeName::node(Role::Master, index)).map(|node| node.ip);
        assert_eq!(found(1), Some(IpAddr::from([192, 168, 122, 13])));
        assert_eq!(found(3), None);
        let workers: Vec<_> = table.of_role(Role::Worker).map(|node| node.name.as_str()).collect();
        assert_eq!(workers, ["worker-0", "worker-1"]);
    }
}
