//! Our Ignition configs before the judges: Debian's own engine applies them to a folder, its validator reads them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ocpdeploy::cluster::{Mcs, NodeName, Role};
use ocpdeploy::home::Home;
use ocpdeploy::ignition::node::{Fragment, NodeConfigs};
use ocpdeploy::ignition::overlay;
use ocpdeploy::installer::{Assets, Installer};
use serde_json::{Value, json};

#[path = "support/cluster.rs"]
mod cluster;

const ENGINE: &str = "/usr/lib/dracut/modules.d/30ignition/ignition";
const MISSING: &str = "this test needs Debian's Ignition: apt-get install --no-install-recommends ignition";

/// A root with nothing in it but what the engine asks for. `core` is root there, so that the engine's user can write.
struct Root {
    folder: tempfile::TempDir,
}

impl Root {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = Self { folder };
        for (path, text) in [
            (
                "root/etc/passwd",
                "root:x:0:0:root:/root:/bin/sh\ncore:x:0:0::/home/core:/bin/sh\n",
            ),
            ("root/etc/group", "root:x:0:\n"),
            ("root/etc/shadow", "root:*:18000::::::\ncore:*:18000::::::\n"),
            ("root/etc/motd", "before\n"),
            ("root/etc/selinux/config", "SELINUXTYPE=targeted\n"),
            ("root/etc/selinux/targeted/contexts/files/file_contexts", ""),
            ("bin/setfiles", "#!/bin/sh\ncat >/dev/null\n"),
        ] {
            let path = root.folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let setfiles = root.folder.path().join("bin/setfiles");
        fs::set_permissions(setfiles, fs::Permissions::from_mode(0o755)).unwrap();
        root
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join("root").join(path.trim_start_matches('/'))
    }

    fn read(&self, path: &str) -> Vec<u8> {
        fs::read(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn mode(&self, path: &str) -> u32 {
        fs::metadata(self.path(path)).unwrap().permissions().mode() & 0o7777
    }

    /// Runs all stages as CoreOS's first boot does.
    fn apply(&self, config: &[u8]) {
        assert!(Path::new(ENGINE).exists(), "{MISSING}");
        let work = self.folder.path();
        fs::write(work.join("node.ign"), config).unwrap();
        // The engine changes owners and keeps its state in /run: it is root, and sees a /run of its own.
        let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
        let own_run = "mount -t tmpfs tmpfs /run && exec \"$0\" \"$@\"";
        for stage in ["fetch-offline", "fetch", "files"] {
            let mut command = Command::new("unshare");
            if !is_root {
                command.arg("--map-root-user");
            }
            command.args(["--mount", "sh", "-c", own_run, ENGINE]);
            let output = command
                .args(["--platform", "file", "--log-to-stdout", "--stage", stage])
                .args(["--root".as_ref(), work.join("root").as_os_str()])
                .args(["--config-cache".as_ref(), work.join("cache.json").as_os_str()])
                .args(["--neednet".as_ref(), work.join("neednet").as_os_str()])
                .env("IGNITION_CONFIG_FILE", work.join("node.ign"))
                .env(
                    "PATH",
                    format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", work.join("bin").display()),
                )
                .output()
                .unwrap();
            let log = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "stage {stage}:\n{log}");
        }
    }
}

/// A machine config server on the loopback: paths to configs, and what was asked.
struct McsServer {
    asked: Arc<Mutex<Vec<String>>>,
}

impl McsServer {
    fn start(ip: Ipv4Addr, configs: BTreeMap<String, Vec<u8>>) -> Self {
        let listener = TcpListener::bind((ip, 22624)).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let lines: Vec<String> = BufReader::new(&stream)
                    .lines()
                    .map_while(Result::ok)
                    .take_while(|line| !line.is_empty())
                    .collect();
                let path = lines[0].split(' ').nth(1).unwrap().to_owned();
                let (status, body) = match configs.get(&path) {
                    Some(config) => ("200 OK", &config[..]),
                    None => ("404 Not Found", &b""[..]),
                };
                log.lock().unwrap().push(lines[0].clone());
                write!(
                    stream,
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                )
                .unwrap();
                stream.write_all(body).unwrap();
            }
        });
        Self { asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// The stand-in installer's files for the test cluster.
struct Made {
    config: ocpdeploy::cluster::ClusterConfig,
    parameters: ocpdeploy::parameters::Parameters,
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
            .block_on(installer.make_assets(&config, &parameters, &dir))
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

    /// The config of a role's first node, made from this installer's file.
    fn node_from(&self, role: Role, file: Vec<u8>) -> Vec<u8> {
        let files = BTreeMap::from([(role, file)]);
        let all = NodeConfigs::new(&self.config, &self.parameters, &files, &self.fragments).unwrap();
        all.node_config(&NodeName::node(role, 0), role).unwrap()
    }

    /// What the bootstrap guest would serve for a role.
    fn served(&self, role: Role) -> Value {
        let bootstrap = json_of(&self.installer_file(Role::Bootstrap));
        let path = format!("/opt/openshift-rehearsal/mcs/config/{role}");
        let files = bootstrap["storage"]["files"].as_array().unwrap();
        let file = files.iter().find(|file| file["path"] == path.as_str()).unwrap();
        json_of(&content(&file["contents"]))
    }
}

fn json_of(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// The bytes behind a resource's data URL.
fn content(resource: &Value) -> Vec<u8> {
    let url = resource["source"].as_str().unwrap();
    let base64 = url.strip_prefix("data:text/plain;charset=utf-8;base64,").unwrap();
    STANDARD.decode(base64).unwrap()
}

#[test]
fn the_overlay_wins_over_what_the_mcs_serves() {
    // An address of its own on the loopback, so that the port cannot be taken by another test.
    let api_ip = Ipv4Addr::new(127, 86, 1, 10);
    let made = Made::new(api_ip);
    let mut served = made.served(Role::Master);
    // The server claims paths of ours, with traps: content that is compressed, and another mode.
    for path in ["/etc/hostname", "/etc/default/nodeip-configuration"] {
        let gzip = "data:;base64,H4sIAAAAAAACAytKLUstKk7lAgDF9K6xCAAAAA==";
        let file =
            json!({"path": path, "overwrite": true, "mode": 384, "contents": {"source": gzip, "compression": "gzip"}});
        served["storage"]["files"].as_array_mut().unwrap().push(file);
    }
    let server = McsServer::start(
        api_ip,
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
    // And all else that the server gives arrives.
    for file in served["storage"]["files"].as_array().unwrap().iter().take(4) {
        let path = file["path"].as_str().unwrap();
        assert_eq!(node.read(path), content(&file["contents"]), "{path}");
        assert_eq!(u64::from(node.mode(path)), file["mode"].as_u64().unwrap(), "{path}");
    }
    let unit = String::from_utf8(node.read("/etc/systemd/system/kubelet.service")).unwrap();
    assert!(unit.contains("ExecStart="), "{unit}");

    // The pointer alone gets the server's: without the overlay this test would see it.
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
fn with_tls_the_installers_entry_is_as_it_was() {
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
    let files = config["storage"]["files"].as_array().unwrap();
    assert!(files.len() > 110, "{}", files.len());
    for file in files {
        let path = file["path"].as_str().unwrap();
        let expected = match file["append"].as_array() {
            Some(appended) => [b"before\n".to_vec(), content(&appended[0])].concat(),
            None => content(&file["contents"]),
        };
        assert_eq!(root.read(path), expected, "{path}");
        assert_eq!(u64::from(root.mode(path)), file["mode"].as_u64().unwrap(), "{path}");
    }
    let presets = String::from_utf8(root.read("/etc/systemd/system-preset/20-ignition.preset")).unwrap();
    for unit in config["systemd"]["units"].as_array().unwrap() {
        let name = unit["name"].as_str().unwrap();
        if let Some(text) = unit["contents"].as_str() {
            assert_eq!(
                root.read(&format!("/etc/systemd/system/{name}")),
                text.as_bytes(),
                "{name}"
            );
        }
        for dropin in unit["dropins"].as_array().into_iter().flatten() {
            let path = format!("/etc/systemd/system/{name}.d/{}", dropin["name"].as_str().unwrap());
            assert_eq!(root.read(&path), dropin["contents"].as_str().unwrap().as_bytes());
        }
        let enabled = presets.lines().any(|line| line == format!("enable {name}"));
        assert_eq!(enabled, unit["enabled"] == true, "{name}");
    }
    for ours in overlay::own_parts(&made.config, &made.parameters, &NodeName::bootstrap()).files {
        assert_eq!(root.read(&ours.path), ours.content.as_bytes());
    }
    assert_eq!(root.read("/opt/openshift-rehearsal/vips"), b"192.168.122.10\n");
}

/// Fails unless Debian's validator takes the config without a word.
fn validate(config: &[u8]) {
    let mut child = Command::new("ignition-validate")
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect(MISSING);
    // It may stop reading at the first fault.
    let _ = child.stdin.take().unwrap().write_all(config);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(!said.to_lowercase().contains("error"), "{said}");
}

#[test]
fn the_validator_accepts_all_we_write() {
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
fn the_stand_in_is_as_large_as_the_real_one() {
    let made = Made::new(Ipv4Addr::new(192, 168, 122, 10));
    for (role, real) in [
        (Role::Bootstrap, 290_598.0),
        (Role::Master, 1_717.0),
        (Role::Worker, 1_717.0),
    ] {
        let size = made.installer_file(role).len() as f64;
        // The bootstrap guest also carries what it is to serve.
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
