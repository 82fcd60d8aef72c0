//! The installer's files, the user's fragments and our overlay, merged, and applied by Debian's Ignition.

use crate::support::cluster;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Instant;

use ocpdeploy::cluster::{ClusterConfig, Mcs, NodeName, NodeSpec, Role};
use ocpdeploy::digest::sha512;
use ocpdeploy::ignition::contents::data_url;
use ocpdeploy::ignition::merge::merge;
use ocpdeploy::ignition::origins::merge_layers;
use ocpdeploy::ignition::stub::{Stub, stub};
use ocpdeploy::ignition::unpack::unpack;
use ocpdeploy::ignition::version;
use ocpdeploy::node::budget;
use ocpdeploy::node::config::{Fragment, NodeConfigs};
use ocpdeploy::node::host::HostParts;
use ocpdeploy::state::home::{Home, write_private_unsynced};
use ocpdeploy::state::parameters::Parameters;
use serde_json::{Value, json};

use crate::support::engine::{Root, Server, json_of, validate};
use crate::support::installer_files::{KEY, bootstrap, file, pointer, unit};

/// The machine config server's config of a role, with entries of each kind.
fn served() -> Value {
    json!({
        "ignition": {"version": "3.2.0"},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [KEY]}]},
        "storage": {"files": [
            file("/etc/kubernetes/kubelet.conf", "0644", "1600"),
            file("/usr/local/bin/configure-ovs.sh", "0755", "3000"),
            file("/etc/crio/crio.conf.d/00-default", "0600", "700"),
        ]},
        "systemd": {"units": [
            unit("kubelet.service", "enabled", "1200", &["10-mco-default-env.conf"]),
            unit("crio.service", "-", "0", &["10-mco-default-env.conf"]),
            {"name": "docker.socket", "mask": true},
        ]},
    })
}

/// The user's fragments: every kind of entry, in addition to those of other layers.
fn fragments() -> Vec<Fragment> {
    let packed =
        json!({"source": format!("data:;base64,{}", base64(&budget::gzip(b"packed\n"))), "compression": "gzip"});
    let first = json!({
        "ignition": {"version": "3.1.0"},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAQQ== mine"]}]},
        "storage": {"files": [
            {"path": "/etc/mine/first", "mode": 384, "contents": {"source": "data:,first%0A"}},
            {"path": "/etc/mine/packed", "contents": packed},
        ]},
        "systemd": {"units": [
            {"name": "mine.service", "enabled": true, "contents": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"},
            {"name": "kubelet.service", "dropins": [{"name": "90-mine.conf", "contents": "[Service]\nNice=1\n"}]},
        ]},
    });
    let second = json!({
        "ignition": {"version": "3.1.0"},
        "storage": {"files": [{"path": "/etc/mine/first", "mode": 420, "append": [{"source": "data:,second%0A"}]}]},
    });
    [("first.ign", first), ("second.ign", second)]
        .map(|(name, config)| Fragment {
            origin: format!("ignition_extra: {name}"),
            role: None,
            content: config.to_string().into_bytes(),
        })
        .into()
}

fn base64(bytes: &[u8]) -> String {
    data_url(bytes).split_once(',').unwrap().1.to_owned()
}

/// The complete content of a config, with its compressed parts merged.
fn held(config: &[u8]) -> Value {
    merge_layers(&unpack("node.ign", &json_of(config)).unwrap().layers).unwrap()
}

struct Cluster {
    config: ClusterConfig,
    parameters: Parameters,
}

impl Cluster {
    fn new(api_ip: Ipv4Addr) -> Self {
        let config = cluster::config();
        assert_eq!(config.mcs, Mcs::Http);
        let parameters = cluster::parameters(&config, api_ip);
        Self { config, parameters }
    }

    fn installer_file(&self, role: Role, version: &str) -> Vec<u8> {
        let file = match role {
            Role::Bootstrap => bootstrap(version),
            role => pointer(role, version),
        };
        file.to_string().into_bytes()
    }

    /// The config of a role's first node, with the user's fragments.
    fn node(&self, role: Role, version: &str) -> Vec<u8> {
        let files = BTreeMap::from([(role, self.installer_file(role, version))]);
        let all = NodeConfigs::new(
            &self.config,
            &self.parameters,
            &files,
            &fragments(),
            &HostParts::default(),
        )
        .unwrap();
        all.node_config(&NodeName::node(role, 0), role).unwrap()
    }
}

const NOBODY: Ipv4Addr = Ipv4Addr::new(192, 168, 122, 10);

#[test]
fn a_node_has_what_its_layers_specify() {
    let api_ip = Ipv4Addr::new(127, 86, 2, 10);
    let served = served();
    let serves = BTreeMap::from([("/config/worker".to_owned(), served.to_string().into_bytes())]);
    let server = Server::start((api_ip, 22624), serves);
    let config = Cluster::new(api_ip).node(Role::Worker, "3.2.0");
    let predicted = merge(&served, &held(&config)).unwrap();

    let root = Root::new();
    root.apply(&config);
    assert_eq!(root.compare(&predicted), 7);
    assert_eq!(server.asked()[0], "GET /config/worker HTTP/1.1");
    // Not only by our own prediction.
    assert_eq!(root.read("/etc/mine/first"), b"first\nsecond\n");
    assert_eq!(root.mode("/etc/mine/first"), 0o644);
    assert_eq!(root.read("/etc/mine/packed"), b"packed\n");
    assert_eq!(root.read("/etc/hostname"), b"worker-0.lab.example.com\n");
    for dropin in ["10-mco-default-env.conf", "90-mine.conf"] {
        assert!(
            root.path(&format!("/etc/systemd/system/kubelet.service.d/{dropin}"))
                .exists()
        );
    }
    let keys = String::from_utf8(root.read("/home/core/.ssh/authorized_keys.d/ignition")).unwrap();
    assert_eq!(keys.matches("ssh-").count(), 2, "{keys}");
}

#[test]
fn a_realistic_bootstrap_config_has_the_same_result_compressed_or_not() {
    let config = Cluster::new(NOBODY).node(Role::Bootstrap, "3.2.0");
    let packed = budget::pack(&config).unwrap();
    assert!(packed.len() < config.len() / 2, "{} of {}", packed.len(), config.len());
    for bytes in [&config, &packed] {
        let root = Root::new();
        root.apply(bytes);
        assert_eq!(root.compare(&json_of(&config)), 103);
        // The image's groups of user core are in a base config, which a compressed config must not replace.
        assert_eq!(
            root.read("/etc/motd").split(|byte| *byte == b'\n').next(),
            Some(&b"before"[..])
        );
    }
}

#[test]
fn a_stub_accepts_only_the_config_with_its_digest() {
    let config = Cluster::new(NOBODY).node(Role::Bootstrap, "3.2.0");
    let ip = Ipv4Addr::new(127, 86, 2, 20);
    let serves = BTreeMap::from([
        ("/whole".to_owned(), config.clone()),
        ("/packed".to_owned(), budget::gzip(&config)),
        // One more space, which changes only the hash.
        ("/other".to_owned(), [&config[..], b" "].concat()),
    ]);
    let server = Server::start((ip, 8081), serves);
    let right = sha512(&config);
    let stub = |path: &str, gzip| {
        let url = format!("http://{ip}:8081{path}");
        let version = version(&json_of(&config)).unwrap();
        let headers = &[("X-Auth-Token", "let-me-in")][..];
        let stub = stub(&Stub {
            version,
            url: &url,
            headers,
            sha512: &right,
            gzip,
            ca: None,
        })
        .unwrap();
        validate(stub.to_string().as_bytes());
        stub.to_string().into_bytes()
    };
    for (path, gzip) in [("/whole", false), ("/packed", true)] {
        let root = Root::new();
        root.apply(&stub(path, gzip));
        assert_eq!(root.compare(&json_of(&config)), 103, "{path}");
    }
    let root = Root::new();
    let log = root.try_apply(&stub("/other", false)).unwrap_err();
    assert!(log.contains("hash verification failed"), "{log}");
    assert!(!root.path("/etc/hostname").exists());
    for head in server.heads() {
        assert!(head.iter().any(|line| line == "X-Auth-Token: let-me-in"), "{head:?}");
    }
}

#[test]
fn the_validator_accepts_every_form_in_every_version_it_knows() {
    let cluster = Cluster::new(NOBODY);
    for version in ["3.1.0", "3.2.0", "3.3.0"] {
        for role in [Role::Bootstrap, Role::Master, Role::Worker] {
            let config = cluster.node(role, version);
            validate(&config);
            validate(&budget::pack(&config).unwrap());
            let held = held(&config);
            assert_eq!(held["ignition"]["version"], version);
            validate(held.to_string().as_bytes());
        }
    }
}

#[test]
fn five_hundred_nodes_are_merged_checked_and_written_in_a_second() {
    let mut cluster = Cluster::new(Ipv4Addr::new(10, 0, 0, 10));
    cluster.config.workers = 500 - 1 - cluster.config.masters;
    let folder = tempfile::tempdir().unwrap();
    let dir = Home::new(folder.path()).cluster("lab");
    let roles = [Role::Bootstrap, Role::Master, Role::Worker];
    let files = roles.map(|role| (role, cluster.installer_file(role, "3.2.0"))).into();
    let begun = Instant::now();
    let all = NodeConfigs::new(
        &cluster.config,
        &cluster.parameters,
        &files,
        &fragments(),
        &HostParts::default(),
    )
    .unwrap();
    for NodeSpec { name: node, role, .. } in cluster.config.nodes() {
        let config = all.node_config(&node, role).unwrap();
        write_private_unsynced(&dir.ignition(node.as_str()), &config).unwrap();
    }
    let kept = serde_json::to_vec(&all.kept_layers().unwrap()).unwrap();
    write_private_unsynced(&dir.ignition_layers(), &kept).unwrap();
    let took = begun.elapsed();
    eprintln!("500 nodes: {} ms", took.as_millis());
    // Unoptimized code takes many times as long.
    let limit = if cfg!(debug_assertions) { 40 } else { 1 };
    assert!(took.as_secs() < limit, "{took:?}");
    assert_eq!(std::fs::read_dir(dir.ignition_folder()).unwrap().count(), 501);
}
