//! Our Ignition configs, applied to a folder by Debian's Ignition and checked by its validator.

use crate::support::cluster;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ocpdeploy::cluster::{Mcs, NodeName, Role};
use ocpdeploy::ignition::check;
use ocpdeploy::node::config::{Fragment, NodeConfigs};
use ocpdeploy::node::host::HostParts;
use ocpdeploy::node::overlay;
use ocpdeploy::openshift::installer::{Assets, Installer};
use ocpdeploy::state::home::Home;
use serde_json::{Value, json};

use crate::support::engine::{Root, Server, content, json_of, validate};

/// The fake installer's files for the test cluster.
struct Made {
    config: ocpdeploy::cluster::ClusterConfig,
    parameters: ocpdeploy::state::parameters::Parameters,
    assets: Assets,
    fragments: Vec<Fragment>,
    _home: tempfile::TempDir,
}

impl Made {
    fn new(api_ip: Ipv4Addr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = Home::new(folder.path()).cluster("lab");
        dir.create().unwrap();
        let config = cluster::config();
        let parameters = cluster::parameters(&config, api_ip);
        let installer = Installer::choose(&config).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let assets = runtime
            .block_on(installer.make_assets(&config, &parameters, &[], &dir))
            .unwrap();
        Self {
            config,
            parameters,
            assets,
            fragments: Vec::new(),
            _home: folder,
        }
    }

    fn installer_file(&self, role: Role) -> Vec<u8> {
        self.assets.read(role).unwrap()
    }

    fn node(&self, role: Role) -> Vec<u8> {
        self.node_from(role, self.installer_file(role))
    }

    /// The config of a role's first node, based on this file of the installer.
    fn node_from(&self, role: Role, file: Vec<u8>) -> Vec<u8> {
        let files = BTreeMap::from([(role, file)]);
        let all = NodeConfigs::new(
            &self.config,
            &self.parameters,
            &files,
            &self.fragments,
            &HostParts::default(),
        )
        .unwrap();
        all.node_config(&NodeName::node(role, 0), role).unwrap()
    }

    /// The config of a role's first node with the role's served config embedded.
    fn node_with(&self, role: Role, served: &Value) -> Vec<u8> {
        let files = BTreeMap::from([(role, self.installer_file(role))]);
        let services = HostParts::default();
        let mut config = self.config.clone();
        config.mcs = Mcs::Tls;
        let mut all = NodeConfigs::new(&config, &self.parameters, &files, &self.fragments, &services).unwrap();
        all.serve(role, served.to_string().as_bytes()).unwrap();
        all.node_config(&NodeName::node(role, 0), role).unwrap()
    }

    /// The config that the bootstrap guest serves for a role.
    fn served(&self, role: Role) -> Value {
        let bootstrap = json_of(&self.installer_file(Role::Bootstrap));
        let path = format!("/opt/openshift-rehearsal/mcs/config/{role}");
        let files = bootstrap["storage"]["files"].as_array().unwrap();
        let file = files.iter().find(|file| file["path"] == path.as_str()).unwrap();
        json_of(&content(&file["contents"]))
    }
}

#[test]
fn the_overlay_overrides_what_the_mcs_serves() {
    // A separate loopback address, so that no other test uses the port.
    let api_ip = Ipv4Addr::new(127, 86, 1, 10);
    let made = Made::new(api_ip);
    let mut served = made.served(Role::Master);
    // The server also sets paths of ours, with compressed content and another mode.
    for path in ["/etc/hostname", "/etc/default/nodeip-configuration"] {
        let gzip = "data:;base64,H4sIAAAAAAACAytKLUstKk7lAgDF9K6xCAAAAA==";
        let file =
            json!({"path": path, "overwrite": true, "mode": 384, "contents": {"source": gzip, "compression": "gzip"}});
        served["storage"]["files"].as_array_mut().unwrap().push(file);
    }
    let server = Server::start(
        (api_ip, 22624),
        BTreeMap::from([("/config/master".to_owned(), served.to_string().into_bytes())]),
    );

    let node = Root::new();
    node.apply(&made.node(Role::Master));
    assert_eq!(node.read("/etc/hostname"), b"master-0.lab.example.com\n");
    assert_eq!(node.mode("/etc/hostname"), 0o644);
    assert_eq!(
        node.read("/etc/default/nodeip-configuration"),
        b"KUBELET_NODEIP_HINT=127.86.1.10\nNODEIP_HINT=127.86.1.10\n"
    );
    assert_eq!(node.mode("/etc/default/nodeip-configuration"), 0o644);
    let keys = String::from_utf8(node.read("/home/core/.ssh/authorized_keys.d/ignition")).unwrap();
    assert_eq!(keys.matches("ssh-ed25519").count(), 1, "{keys}");
    // All other files of the server are written.
    for file in served["storage"]["files"].as_array().unwrap().iter().take(4) {
        let path = file["path"].as_str().unwrap();
        assert_eq!(node.read(path), content(&file["contents"]), "{path}");
        assert_eq!(u64::from(node.mode(path)), file["mode"].as_u64().unwrap(), "{path}");
    }
    let unit = String::from_utf8(node.read("/etc/systemd/system/kubelet.service")).unwrap();
    assert!(unit.contains("ExecStart="), "{unit}");

    // The bare pointer config gets the server's files, so the test above can detect a missing overlay.
    let mut bare = json_of(&made.node(Role::Master));
    bare["ignition"]["config"]["merge"].as_array_mut().unwrap().pop();
    let other = Root::new();
    other.apply(bare.to_string().as_bytes());
    assert_eq!(other.read("/etc/hostname"), b"reverse\n");
    assert_eq!(other.mode("/etc/hostname"), 0o600);
    assert!(
        server.asked().iter().all(|line| line == "GET /config/master HTTP/1.1"),
        "{:?}",
        server.asked()
    );
    assert!(server.asked().len() >= 2, "{:?}", server.asked());
}

#[test]
fn what_fails_at_the_first_boot_is_an_error_of_the_check() {
    let root = || {
        let root = Root::new();
        std::fs::create_dir_all(root.path("/var/opt")).unwrap();
        std::os::unix::fs::symlink("var/opt", root.path("/opt")).unwrap();
        std::fs::write(root.path("/etc/chrony.conf"), "the image's\n").unwrap();
        root
    };
    let files = |files: Value| json!({"ignition": {"version": "3.2.0"}, "storage": {"files": files}});
    let authority = |pem: &str| {
        let source = format!("data:;base64,{}", STANDARD.encode(pem));
        json!({"ignition": {"version": "3.2.0", "security": {"tls": {"certificateAuthorities": [{"source": source}]}}}})
    };
    let pem = include_str!("../fixtures/ca-one.pem").trim_end();
    let hash = |text: &str| format!("sha256-{}", ocpdeploy::digest::sha256(text));
    let source = || json!({"source": "data:,a"});
    for (config, fails) in [
        (
            files(json!([{"path": "/etc/a", "contents": {"source": "data:,a", "verification": {"hash": hash("a")}}}])),
            false,
        ),
        (
            files(json!([{"path": "/etc/a", "contents": {"source": "data:,a", "verification": {"hash": hash("b")}}}])),
            true,
        ),
        (
            files(json!([{"path": "/etc/a", "contents": {"source": "data:,a", "compression": "gzip"}}])),
            true,
        ),
        (
            files(json!([{"path": "/etc/a", "contents": source()}, {"path": "/etc/a/b", "contents": source()}])),
            true,
        ),
        (files(json!([{"path": "/opt/a", "contents": source()}])), false),
        (files(json!([{"path": "/opt", "contents": source()}])), true),
        (files(json!([{"path": "/etc/chrony.conf", "contents": source()}])), true),
        (
            files(json!([{"path": "/etc/chrony.conf", "overwrite": true, "contents": source()}])),
            false,
        ),
        (
            files(json!([{"path": "/etc/chrony.conf", "append": [source()]}])),
            false,
        ),
        (files(json!([{"path": "/etc/chrony.conf", "mode": 420}])), false),
        (authority(&format!("{pem}\n")), false),
        (authority(&format!("our root\n{pem}")), false),
        (authority(&format!("{pem}\n\n")), true),
        (authority(&format!("{pem}\nour root\n")), true),
        (authority("MIIB"), true),
    ] {
        let applied = root().try_apply(config.to_string().as_bytes());
        assert_eq!(applied.is_err(), fails, "{config}: {applied:?}");
        let findings = check::check_first_boot(&config);
        assert_eq!(check::is_refused(&findings), fails, "{config}: {findings:?}");
    }
}

#[test]
fn an_embedded_config_has_the_same_result_as_a_served_one() {
    let api_ip = Ipv4Addr::new(127, 86, 1, 11);
    let mut made = Made::new(api_ip);
    let fragment = json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [
        {"path": "/etc/mine", "mode": 420, "contents": {"source": "data:,mine", "compression": ""}}]}});
    made.fragments.push(Fragment {
        origin: "mine".to_owned(),
        role: None,
        content: fragment.to_string().into_bytes(),
    });
    let roles = [Role::Master, Role::Worker];
    let served = |role| (format!("/config/{role}"), made.served(role).to_string().into_bytes());
    let server = Server::start((api_ip, 22624), roles.map(served).into());
    for role in roles {
        let mut fetched = Root::new().merged(&made.node(role)).unwrap();
        let asked = server.asked().len();
        assert!(asked > 0);
        let whole = made.node_with(role, &made.served(role));
        validate(&whole);
        let mut within = Root::new().merged(&whole).unwrap();
        assert_eq!(server.asked().len(), asked, "{role}: an embedded config is not fetched");
        // The engine keeps the list of fetched configs in the config.
        for config in [&mut fetched, &mut within] {
            config["ignition"]["config"] = json!({});
        }
        assert_eq!(within, fetched);
        let root = Root::new();
        root.apply(&whole);
        assert!(root.compare(&json_of(&whole)) > 2, "files of three layers");
    }
}

#[test]
fn with_tls_the_installers_entry_is_unchanged() {
    let mut made = Made::new(Ipv4Addr::new(192, 168, 122, 10));
    made.config.mcs = Mcs::Tls;
    for role in [Role::Master, Role::Worker] {
        let before = json_of(&made.installer_file(role));
        let mut after = json_of(&made.node(role));
        validate(after.to_string().as_bytes());
        let ours = after["ignition"]["config"]["merge"]
            .as_array_mut()
            .unwrap()
            .pop()
            .unwrap();
        assert_eq!(after.to_string(), before.to_string());
        assert_eq!(
            before["ignition"]["config"]["merge"][0]["source"],
            format!("https://api-int.lab.example.com:22623/config/{role}")
        );
        validate(&content(&ours));
    }
}

#[test]
fn the_bootstrap_config_is_applied_whole() {
    let made = Made::new(Ipv4Addr::new(192, 168, 122, 10));
    let config = json_of(&made.node(Role::Bootstrap));
    let root = Root::new();
    root.apply(config.to_string().as_bytes());
    assert!(root.compare(&config) > 110);
    for ours in overlay::own_parts(&made.config, &made.parameters, &NodeName::bootstrap(), None).files {
        assert_eq!(root.read(&ours.path), ours.content.as_bytes());
    }
    assert_eq!(root.read("/opt/openshift-rehearsal/vips"), b"192.168.122.10\n");
}

#[test]
fn the_validator_accepts_every_config_we_write() {
    let made = Made::new(Ipv4Addr::new(192, 168, 122, 10));
    for role in [Role::Bootstrap, Role::Master, Role::Worker] {
        validate(&made.installer_file(role));
        validate(&made.node(role));
    }
    for role in [Role::Master, Role::Worker] {
        validate(made.served(role).to_string().as_bytes());
    }
    for version in ["3.0.0", "3.1.0", "3.3.0"] {
        let mut pointer = json_of(&made.installer_file(Role::Worker));
        pointer["ignition"]["version"] = json!(version);
        let merged = made.node_from(Role::Worker, pointer.to_string().into_bytes());
        validate(&merged);
        let merged = json_of(&merged);
        let ours = content(&merged["ignition"]["config"]["merge"][1]);
        assert_eq!(json_of(&ours)["ignition"]["version"], version);
        validate(&ours);
    }
}

#[test]
fn the_fake_installers_files_have_the_size_of_real_ones() {
    let made = Made::new(Ipv4Addr::new(192, 168, 122, 10));
    for (role, real) in [
        (Role::Bootstrap, 290_598.0),
        (Role::Master, 1_717.0),
        (Role::Worker, 1_717.0),
    ] {
        let size = made.installer_file(role).len() as f64;
        // The bootstrap guest's config also has the configs that it serves.
        let most = if role == Role::Bootstrap { 1.15 } else { 1.05 };
        assert!(
            size > 0.95 * real && size < most * real,
            "{role}: {size} bytes, a real one has {real}"
        );
    }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let (one, two) = (
        Made::new(Ipv4Addr::new(10, 0, 0, 10)),
        Made::new(Ipv4Addr::new(10, 0, 0, 10)),
    );
    for role in [Role::Bootstrap, Role::Master, Role::Worker] {
        assert_eq!(one.node(role), two.node(role), "{role}");
        assert!(!one.node(role).contains(&b'\n'), "{role}: not minified");
    }
}

#[test]
fn spec_2_pointers_get_an_appended_overlay() {
    let made = Made::new(Ipv4Addr::new(192, 168, 122, 10));
    let url = "https://api-int.lab.example.com:22623/config/master";
    let pointer = json!({
        "ignition": {
            "config": {"append": [{"source": url, "verification": {}}]},
            "security": {"tls": {}}, "timeouts": {}, "version": "2.2.0",
        },
        "networkd": {}, "passwd": {}, "storage": {}, "systemd": {},
    });
    let mut merged = json_of(&made.node_from(Role::Master, pointer.to_string().into_bytes()));
    let entries = merged["ignition"]["config"]["append"].as_array_mut().unwrap();
    let ours = json_of(&content(&entries.pop().unwrap()));
    assert_eq!(entries[0]["source"], "http://192.168.122.10:22624/config/master");
    assert_eq!(ours["ignition"], json!({"version": "2.2.0"}));
    for file in ours["storage"]["files"].as_array().unwrap() {
        assert_eq!(
            (&file["filesystem"], &file["mode"]),
            (&json!("root"), &json!(420)),
            "{file}"
        );
    }
    assert_eq!(ours["storage"]["files"][0]["path"], "/etc/hostname");
    assert_eq!(
        content(&ours["storage"]["files"][0]["contents"]),
        b"master-0.lab.example.com\n"
    );
    let mut expected = pointer;
    expected["ignition"]["config"]["append"][0]["source"] = json!("http://192.168.122.10:22624/config/master");
    assert_eq!(merged.to_string(), expected.to_string());
}
