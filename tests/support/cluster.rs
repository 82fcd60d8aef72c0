//! A cluster for tests: settings of a rehearsal, and a table of addresses.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use ocpdeploy::backend::NetworkFacts;
use ocpdeploy::cluster::{
    AddressAssignment, ClusterConfig, ClusterDomain, ClusterId, Deployment, DeploymentId, Harvest, Mac, NodeName, Vip,
};
use ocpdeploy::settings::{self, Sources};
use ocpdeploy::state::home::Home;
use ocpdeploy::state::inventory::Known;
use ocpdeploy::state::parameters::{NodeAddress, Parameters};
use serde_json::Value;

/// The deployment of all clusters that tests create without the program's commands.
pub fn deployment() -> Deployment {
    Deployment {
        id: "x7k2pqrs".parse().unwrap(),
        creation: "anna@laptop 2026-11-28T09:12:13Z".parse().unwrap(),
    }
}

/// The objects of a cluster in a list of `kubectl get -o json`, as `kubectl get -o name` writes them.
pub fn names_of(list: &str, cluster: &str) -> Vec<String> {
    let list: Value = serde_json::from_str(list).unwrap();
    let items = list["items"].as_array().unwrap().iter();
    let is_its = |item: &&Value| {
        let tag = item["metadata"]["labels"]["ocpdeploy.io/cluster"].as_str();
        tag.is_some_and(|tag| tag.starts_with(&format!("{cluster}.example.com.")))
    };
    let name = |item: &Value| {
        let text = |value: &Value| value.as_str().unwrap().to_lowercase();
        let group = text(&item["apiVersion"])
            .split_once('/')
            .map(|(group, _)| format!(".{group}"));
        let (kind, name) = (text(&item["kind"]), text(&item["metadata"]["name"]));
        format!("{kind}{}/{name}", group.unwrap_or_default())
    };
    items.filter(is_its).map(name).collect()
}

/// A text without the ids of the deployments in the tags of this domain: they differ from run to run.
pub fn without_ids(text: &str, domain: &str) -> String {
    let begin = format!("{domain}.");
    let mut parts = text.split(&begin);
    let mut masked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let id = part.get(..8).is_some_and(|id| id.parse::<DeploymentId>().is_ok());
        masked += &match id {
            true => format!("{domain}{}", &part[8..]),
            false => format!("{domain}.{part}"),
        };
    }
    masked
}

/// The id of a cluster in a state directory.
pub fn id_of(home: &Home, cluster: &str) -> ClusterId {
    Known::read(&home.cluster(cluster)).unwrap().expect("a record").id()
}

/// The id of that deployment.
pub fn cluster_id(name: &str, domain: &str) -> ClusterId {
    ClusterId::new(ClusterDomain::new(name, domain), deployment().id)
}

/// 3 masters and 2 workers of `lab.example.com` on the simulated platform, in a rehearsal.
pub fn config() -> ClusterConfig {
    config_of("backend=sim\nmasters=3\nworkers=2\n")
}

/// `lab.example.com` with these lines of its env file, in a rehearsal.
pub fn config_of(lines: &str) -> ClusterConfig {
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvT2Wdq2dMbFf8hh+o/a4HZMBbqvP6vpsXfB4pMJ6Ma lab\n";
    let env_file = format!("cluster=lab\ndomain=example.com\npub_key=key.pub\n{lines}");
    let sources = Sources {
        env_file: Some((PathBuf::from("env.sh"), env_file)),
        environment: BTreeMap::new(),
        flags: BTreeMap::new(),
        current_dir: PathBuf::from("/test"),
        home: PathBuf::from("/test/home"),
        rehearse: true,
        allow_downgrade: false,
        deployment: deployment(),
        read_file: &|path| match path.ends_with("key.pub") {
            true => Ok(key.to_owned()),
            false => Err(io::ErrorKind::NotFound.into()),
        },
        is_file: &|path| {
            path.extension()
                .is_some_and(|extension| extension == "qcow2" || extension == "pub")
        },
        is_dir: &|_| true,
    };
    settings::load(&sources)
        .unwrap_or_else(|error| panic!("{error}"))
        .config
}

/// A table for `config` in the /24 of `api_ip`, or in its /16 if that is too small: VIPs at `api_ip` and .9, nodes from .11.
pub fn parameters(config: &ClusterConfig, api_ip: Ipv4Addr) -> Parameters {
    let [a, b, c, _] = api_ip.octets();
    let ip = |number: u16| {
        let [third, last] = number.to_be_bytes();
        Ipv4Addr::new(a, b, c + third, last)
    };
    let mac = |ip: Ipv4Addr| {
        let [_, _, third, last] = ip.octets();
        Mac([0x52, 0x54, 0, 0, third - c, last])
    };
    let lease = |vip, ip: Ipv4Addr| AddressAssignment {
        name: NodeName::vip(vip),
        mac: mac(ip),
        ip: ip.into(),
    };
    let nodes = config.nodes();
    let prefix = if nodes.len() > 240 { 16 } else { 24 };
    let nodes = nodes.into_iter().zip(11..).map(|(node, number)| NodeAddress {
        name: node.name,
        role: node.role,
        mac: mac(ip(number)),
        ip: ip(number).into(),
        evidence: None,
    });
    Parameters::new(
        &config.name,
        &config.domain,
        "sim",
        "default",
        &NetworkFacts::default(),
        format!("{}/{prefix}", ip(0)).parse().unwrap(),
        Harvest::Boot,
        [lease(Vip::Api, api_ip), lease(Vip::Ingress, ip(9))],
        [1, 2],
        nodes.collect(),
    )
}
