//! A cluster to test with: settings as a rehearsal reads them, and a table of addresses.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use ocpdeploy::backend::NetworkFacts;
use ocpdeploy::cluster::{AddressAssignment, ClusterConfig, Harvest, Mac, NodeName, Vip};
use ocpdeploy::settings::{self, Sources};
use ocpdeploy::state::parameters::{NodeAddress, Parameters};

/// 3 masters and 2 workers of `lab.example.com` on the pretend platform, in a rehearsal.
pub fn config() -> ClusterConfig {
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvT2Wdq2dMbFf8hh+o/a4HZMBbqvP6vpsXfB4pMJ6Ma lab\n";
    let env_file = "cluster=lab\ndomain=example.com\nbackend=sim\nmasters=3\nworkers=2\npub_key=key.pub\n";
    let sources = Sources {
        env_file: Some((PathBuf::from("env.sh"), env_file.to_owned())),
        environment: BTreeMap::new(),
        flags: BTreeMap::new(),
        current_dir: PathBuf::from("/test"),
        home: PathBuf::from("/test/home"),
        rehearse: true,
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
    let nodes = nodes.into_iter().zip(11..).map(|((name, role), number)| NodeAddress {
        name,
        role,
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
