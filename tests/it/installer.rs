//! How this program runs openshift-install: with a strict fake, and with the rehearsal's replacement.

use crate::support::cluster;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ocpdeploy::cluster::{ClusterConfig, InstallerChoice, Mcs, NodeName, NodeSpec, RegistryMirror, Role};
use ocpdeploy::digest::sha512;
use ocpdeploy::failure::explain;
use ocpdeploy::ignition::contents::{self, Contents};
use ocpdeploy::ignition::origins::{Layer, merge_layers};
use ocpdeploy::ignition::unpack::unpack;
use ocpdeploy::node::config::NodeConfigs;
use ocpdeploy::node::host::HostParts;
use ocpdeploy::node::services::{IMAGES, Manifest};
use ocpdeploy::openshift::installer::{Assets, Installer, WaitContext};
use ocpdeploy::state::home::{ClusterDir, Home, write_private};
use ocpdeploy::state::parameters::Parameters;
use serde_json::{Value, json};

/// A cluster's folder, and the fake installer with its records.
struct Bench {
    folder: tempfile::TempDir,
    config: ClusterConfig,
    parameters: Parameters,
    dir: ClusterDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = Home::new(folder.path().join("home")).cluster("lab");
        dir.create().unwrap();
        let fake = folder.path().join("openshift-install");
        symlink(
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/openshift-install"),
            &fake,
        )
        .unwrap();
        let oc = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/oc");
        symlink(oc, folder.path().join("oc")).unwrap();
        let mut config = cluster::config();
        config.installer = InstallerChoice::OpenshiftInstall(Some(fake));
        config.pull_secret = r#"{"auths":{"a.example.com":{"auth":"Zm9vOmJhcg=="}}}"#.into();
        Self {
            parameters: cluster::parameters(&config, Ipv4Addr::new(192, 168, 122, 10)),
            config,
            dir,
            folder,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The user's folder of manifests, with one manifest.
    fn manifests(&mut self, name: &str, content: &str) -> PathBuf {
        let manifests = self.path("manifests");
        fs::create_dir(&manifests).unwrap();
        fs::write(manifests.join(name), content).unwrap();
        self.config.manifests = Some(manifests.clone());
        manifests
    }

    fn make(&self) -> anyhow::Result<Assets> {
        let installer = Installer::choose(&self.config)?;
        let ours = [Manifest {
            path: "openshift/99_ocpdeploy-x.yaml".to_owned(),
            content: "kind: X\n".to_owned(),
        }];
        run(installer.make_assets(&self.config, &self.parameters, &ours, &self.dir))
    }

    fn record(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path(name)).unwrap()).unwrap()
    }

    fn wait(&self, guests_answer: bool) -> WaitContext<'_> {
        WaitContext {
            config: &self.config,
            parameters: &self.parameters,
            dir: &self.dir,
            guests_answer,
        }
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(future)
}

/// All files and folders below a folder, with their modes.
fn modes(folder: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        found.push((entry.path(), entry.metadata().unwrap().permissions().mode() & 0o777));
        if entry.file_type().unwrap().is_dir() {
            found.extend(modes(&entry.path()));
        }
    }
    found
}

#[test]
fn the_images_of_the_release_are_queried_with_the_pull_secret() {
    let mut bench = Bench::new();
    let installer = Installer::choose(&bench.config).unwrap();
    let release = run(installer.release(&bench.config)).unwrap();
    assert_eq!(release.version, (4, 19));
    assert_eq!(release.images.len(), IMAGES.len());
    for name in IMAGES {
        let image = format!("registry.example.com/ocp/art@sha256:{name}");
        assert_eq!(release.images.get(name), Some(&image));
    }

    bench.config.pull_secret = r#"{"auths":{"b.example.com":{"auth":"Zm9vOmJhcg=="}}}"#.into();
    let error = explain(&run(installer.release(&bench.config)).unwrap_err());
    assert_eq!(error.kind.exit_code(), 4);
    let text = format!("{error:?}");
    assert!(text.contains("registry.example.com/ocp/release@sha256:4190"), "{text}");
    assert!(text.contains("unauthorized") && !text.contains("Zm9v"), "{text}");
    assert!(text.contains("download the pull secret again"), "{text}");
}

#[test]
fn the_release_is_queried_from_the_mirrors_with_their_certificate() {
    const HERE: &str = "mirror.example.com/ocp/release@sha256:4190";
    let mut bench = Bench::new();
    fs::write(bench.path("oc.images"), HERE).unwrap();
    bench.config.ca = Some("-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n".to_owned());
    bench.config.registry_mirrors = vec![RegistryMirror {
        source: "registry.example.com".to_owned(),
        mirrors: vec!["gone.example.com".to_owned(), "mirror.example.com".to_owned()],
    }];
    let installer = Installer::choose(&bench.config).unwrap();
    let release = run(installer.release(&bench.config)).unwrap();
    assert_eq!(release.images.len(), IMAGES.len());
    let seen = fs::read_to_string(bench.path("oc.seen")).unwrap();
    let seen: Vec<Value> = seen.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(seen[0]["image"], "gone.example.com/ocp/release@sha256:4190");
    assert_eq!(seen[1]["image"], HERE);
    assert_eq!(seen.len(), 2);
    let certificates = seen[1]["certificates"].as_str().unwrap();
    assert!(
        certificates.ends_with(bench.config.ca.as_deref().unwrap()),
        "{certificates}"
    );
    // Public registries stay trusted if this computer trusts any.
    let public = fs::read_to_string("/etc/ssl/certs/ca-certificates.crt").unwrap_or_default();
    assert!(certificates.starts_with(&public), "{certificates}");

    fs::write(bench.path("oc.images"), "none").unwrap();
    let error = explain(&run(installer.release(&bench.config)).unwrap_err());
    let text = error.render(false);
    for registry in ["gone.example.com", "mirror.example.com", "registry.example.com"] {
        let line = format!("{registry}/ocp/release: error: unable to read image");
        assert!(text.contains(&line), "{text}");
    }
    assert!(
        text.contains("set registry_mirrors") && !text.contains("pull secret"),
        "{text}"
    );
}

#[test]
fn the_installers_input_follows_the_settings() {
    let mut bench = Bench::new();
    // Characters that are special in YAML, in a shell or in a format string.
    let nasty = "{\"auths\": {\"a\": {\"auth\": \"%s 100%\", \"email\": \"it's \\\"q\\\" \u{85} \u{2028} # $HOME `id` {{ x }}\"}}}\n\n - x: y\n";
    bench.config.pull_secret = nasty.into();
    bench.config.ca = Some("-----BEGIN CERTIFICATE-----\nMII: #\n-----END CERTIFICATE-----\n".to_owned());
    bench.config.ssh_keys.push("ssh-rsa AAAA \"second\" # key".to_owned());
    bench.config.workers = 0;
    let assets = bench.make().unwrap();

    let given = bench.record("install-config.json");
    assert_eq!(given["pullSecret"], nasty);
    assert_eq!(given["additionalTrustBundle"], bench.config.ca.clone().unwrap());
    assert_eq!(given["sshKey"], bench.config.ssh_keys.join("\n"));
    assert_eq!(
        (&given["metadata"]["name"], &given["baseDomain"]),
        (&json!("lab"), &json!("example.com"))
    );
    assert_eq!(
        (&given["controlPlane"]["replicas"], &given["compute"][0]["replicas"]),
        (&json!(3), &json!(0))
    );
    assert_eq!(
        given["networking"]["machineNetwork"],
        json!([{"cidr": "192.168.122.0/24"}])
    );
    assert_eq!(given["platform"], json!({"none": {}}));

    for call in ["create-manifests.seen", "create-ignition-configs.seen"] {
        let seen = bench.record(call);
        for sandbox in ["cmdline", "environ"] {
            let text = seen[sandbox].as_str().unwrap();
            assert!(!text.contains("100%") && !text.contains("auths"), "{call}: {sandbox}");
        }
        assert!(seen["cmdline"].as_str().unwrap().contains("--dir"), "{seen}");
    }

    assert_eq!(assets.bootstrap, bench.dir.installer().join("bootstrap.ign"));
    for role in [Role::Bootstrap, Role::Master, Role::Worker] {
        let file: Value = serde_json::from_slice(&assets.read(role).unwrap()).unwrap();
        let source = file.pointer("/ignition/config/merge/0/source").and_then(Value::as_str);
        match role {
            Role::Bootstrap => assert!(file["storage"]["files"].as_array().unwrap().len() > 90),
            _ => assert!(source.unwrap().ends_with(&format!("/config/{role}"))),
        }
    }
    let now = jiff::Timestamp::now();
    assert_eq!(assets.age_hours(now), 0);
    assert_eq!(assets.age_hours(now + jiff::SignedDuration::from_mins(20 * 60 + 1)), 20);
    for (path, mode) in modes(bench.dir.path()) {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, expected, "{}", path.display());
    }
    assert!(!bench.dir.path().join("installer.partial").exists());
}

/// With the real program, if `OCPDEPLOY_TEST_INSTALLER` names one: it accepts our install-config and manifests, and our
/// code accepts its files. No network is required.
#[test]
fn the_real_installer_accepts_our_input_and_we_accept_its_output() {
    let Some(program) = std::env::var_os("OCPDEPLOY_TEST_INSTALLER").map(PathBuf::from) else {
        let text = "left out: the real openshift-install, since OCPDEPLOY_TEST_INSTALLER names none";
        writeln!(std::io::stderr(), "{text}").unwrap();
        return;
    };
    let mut bench = Bench::new();
    // It requires an `oc` next to it, which this test does not use.
    symlink(program.canonicalize().unwrap(), bench.path("real")).unwrap();
    bench.config.mcs = Mcs::Tls;
    bench.config.installer = InstallerChoice::OpenshiftInstall(Some(bench.path("real")));
    for (masters, workers) in [(1, 0), (3, 0), (3, 2)] {
        (bench.config.masters, bench.config.workers) = (masters, workers);
        bench.parameters = cluster::parameters(&bench.config, Ipv4Addr::new(192, 168, 122, 10));
        let installer = Installer::choose(&bench.config).unwrap();
        let name = "99_ocpdeploy-test.yaml";
        let manifest = Manifest {
            path: format!("openshift/{name}"),
            content: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ocpdeploy-test\n  namespace: default\n"
                .to_owned(),
        };
        let assets = run(installer.make_assets(&bench.config, &bench.parameters, &[manifest], &bench.dir)).unwrap();
        let files = [Role::Bootstrap, Role::Master, Role::Worker].map(|role| (role, assets.read(role).unwrap()));
        let bootstrap: Value = serde_json::from_slice(&files[0].1).unwrap();
        let carried = bootstrap["storage"]["files"].as_array().unwrap().iter();
        let paths: Vec<_> = carried.filter_map(|file| file["path"].as_str()).collect();
        assert!(
            paths.contains(&format!("/opt/openshift/openshift/{name}").as_str()),
            "{paths:?}"
        );
        let services = HostParts::default();
        let all = NodeConfigs::new(&bench.config, &bench.parameters, &files.into(), &[], &services).unwrap();
        for node in bench.config.nodes() {
            all.node_config(&node.name, node.role).unwrap();
        }
        let server = all.server(Role::Master).unwrap();
        assert_eq!(
            (server.host.as_str(), server.path.as_str()),
            ("api-int.lab.example.com", "/config/master")
        );
        assert!(!server.authorities.is_empty());
        assert!(bench.dir.installer().join("auth/kubeconfig").is_file());
    }
}

#[test]
fn two_manifests_for_one_object_are_rejected_with_their_names() {
    let mut bench = Bench::new();
    bench.manifests(
        "99-mine.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cluster-config-v1, namespace: kube-system}\n",
    );
    let text = explain(&bench.make().unwrap_err()).render(false);
    assert!(
        text.contains("multiple manifests for group  kind ConfigMap namespace kube-system name cluster-config-v1: manifests/cluster-config.yaml, openshift/99-mine.yaml"),
        "{text}"
    );
    assert!(
        text.contains("hint: correct the settings or manifests that it rejects"),
        "{text}"
    );
    assert!(!text.contains("to resume"), "{text}");
    // It has the pull secret.
    assert!(!bench.dir.path().join("installer.partial").exists());
}

#[test]
fn the_users_manifests_are_added_and_replace_nothing() {
    const MINE: &str = "apiVersion: v1\nkind: Mine\nmetadata: {name: a}\n";
    let mut bench = Bench::new();
    let manifests = bench.manifests("99-mine.yaml", MINE);
    fs::write(manifests.join("README.md"), "not one").unwrap();
    bench.make().unwrap();
    let found = bench.record("openshift.json");
    assert_eq!(found["99-mine.yaml"], MINE);
    assert_eq!(found["99_ocpdeploy-x.yaml"], "kind: X\n", "our manifest is there, too");
    assert_eq!(found.as_object().unwrap().len(), 3, "{found}");

    let name = "99_openshift-machineconfig_99-master-ssh.yaml";
    fs::write(manifests.join(name), MINE.replace("Mine", "Other")).unwrap();
    for choice in [bench.config.installer.clone(), InstallerChoice::Rehearsal] {
        bench.config.installer = choice;
        let error = bench.make().unwrap_err().to_string();
        let path = manifests.join(name).display().to_string();
        assert_eq!(
            error,
            format!("manifest {path} would replace the installer's own {name}")
        );
    }
}

#[test]
fn a_failure_shows_the_last_lines_and_leaves_no_partial_files() {
    let bench = Bench::new();
    fs::write(bench.path("fail"), "").unwrap();
    let error = bench.make().unwrap_err();
    let failure = explain(&error);
    assert_eq!(failure.kind.exit_code(), 4);
    let text = failure.render(false);
    assert!(
        text.contains("openshift-install create ignition-configs failed with exit status: 4\n  line 21\n"),
        "{text}"
    );
    assert!(
        text.contains("\n  line 29\n  registry a.example.com refused ****\n"),
        "{text}"
    );
    assert!(!text.contains("line 20\n"), "{text}");
    let log = fs::read_to_string(bench.dir.log().join("openshift-install-create-ignition-configs.log")).unwrap();
    assert_eq!(log.lines().count(), 31, "{log}");
    assert!(!log.contains("Zm9vOmJhcg"), "{log}");
    assert!(!bench.dir.installer().exists());

    // The next run ignores the files that the failed one left.
    fs::remove_file(bench.path("fail")).unwrap();
    bench.make().unwrap();
}

#[test]
fn missing_files_are_named() {
    let bench = Bench::new();
    fs::write(bench.path("no-worker"), "").unwrap();
    let error = bench.make().unwrap_err().to_string();
    assert!(
        error.starts_with("openshift-install did not create ") && error.ends_with("worker.ign"),
        "{error}"
    );
    assert!(!bench.dir.installer().exists());
}

#[test]
fn new_files_keep_the_old_ones_beside_them() {
    let bench = Bench::new();
    bench.make().unwrap();
    write_private(&bench.dir.installer().join("auth/kubeconfig"), b"of the first").unwrap();
    bench.make().unwrap();
    let old = bench.dir.path().join("installer.old/auth/kubeconfig");
    assert_eq!(fs::read(old).unwrap(), b"of the first");
    assert!(!bench.dir.installer().join("auth/kubeconfig").exists());
    bench.make().unwrap();
}

#[test]
fn a_missing_installer_is_reported_with_a_hint() {
    let mut bench = Bench::new();
    let plain = bench.path("plain");
    fs::write(&plain, "not a program").unwrap();
    for path in [bench.path("absent"), plain] {
        bench.config.installer = InstallerChoice::OpenshiftInstall(Some(path.clone()));
        let failure = explain(&Installer::choose(&bench.config).unwrap_err());
        assert_eq!(failure.kind.exit_code(), 4);
        assert_eq!(
            failure.chain,
            [format!("cannot find openshift-install at {}", path.display())]
        );
        assert!(failure.hints[0].contains("https://mirror.openshift.com"), "{failure}");
    }
    let alone = bench.path("folder/openshift-install");
    fs::create_dir(alone.parent().unwrap()).unwrap();
    symlink("/bin/true", &alone).unwrap();
    bench.config.installer = InstallerChoice::OpenshiftInstall(Some(alone));
    let failure = explain(&Installer::choose(&bench.config).unwrap_err());
    assert_eq!(failure.kind.exit_code(), 4);
    assert_eq!(failure.chain, ["cannot find oc next to openshift-install or in PATH"]);
}

#[test]
fn the_version_is_the_installers_own() {
    let mut bench = Bench::new();
    let version = |bench: &Bench| run(Installer::choose(&bench.config).unwrap().version());
    assert_eq!(version(&bench).unwrap(), "4.19.0");
    let silent = bench.path("silent");
    symlink("/bin/false", &silent).unwrap();
    bench.config.installer = InstallerChoice::OpenshiftInstall(Some(silent.clone()));
    let error = version(&bench).unwrap_err().to_string();
    assert_eq!(error, format!("{} version reports no version", silent.display()));
}

#[test]
fn a_wait_without_the_installers_kubeconfig_is_an_error() {
    let bench = Bench::new();
    bench.make().unwrap();
    let installer = Installer::choose(&bench.config).unwrap();
    let failure = explain(&run(installer.wait_for_bootstrap(&bench.wait(true))).unwrap_err());
    assert_eq!(failure.kind.exit_code(), 4);
    let text = failure.render(false);
    assert!(
        text.contains("cannot use kubeconfig ") && text.contains("installer/auth/kubeconfig"),
        "{text}"
    );
}

/// A rehearsal with guests on the loopback, and each node's Ignition config.
fn rehearsal(network: u8) -> Bench {
    let mut bench = Bench::new();
    bench.config.installer = InstallerChoice::Rehearsal;
    bench.parameters = cluster::parameters(&bench.config, Ipv4Addr::new(127, 86, network, 10));
    let assets = bench.make().unwrap();
    let roles = [Role::Bootstrap, Role::Master, Role::Worker];
    let files = roles.map(|role| (role, assets.read(role).unwrap())).into();
    let all = NodeConfigs::new(&bench.config, &bench.parameters, &files, &[], &HostParts::default()).unwrap();
    for NodeSpec { name: node, role, .. } in bench.config.nodes() {
        let config = all.node_config(&node, role).unwrap();
        write_private(&bench.dir.ignition(node.as_str()), &config).unwrap();
    }
    bench
}

/// The report of a guest that matches its config.
fn report(bench: &Bench, node: &NodeName) -> Value {
    let planned = bench.parameters.node(node).unwrap();
    let config = fs::read(bench.dir.ignition(node.as_str())).unwrap();
    let unpacked = unpack("node", &serde_json::from_slice(&config).unwrap()).unwrap();
    let layers: Vec<Layer> = served(bench, planned.role).into_iter().chain(unpacked.layers).collect();
    let whole = merge_layers(&layers).unwrap();
    let list = |sandbox: &str| {
        whole
            .pointer(sandbox)
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let hash = |text: &Value| text.as_str().map(sha512);
    let file = |file: &Value| {
        let Ok(Contents::Bytes(bytes)) = contents::of(&file["contents"]) else {
            return json!({"path": file["path"], "mode": "0644", "sha512": "of what was there, and more"});
        };
        json!({"path": file["path"], "mode": format!("{:04o}", file["mode"].as_u64().unwrap()), "sha512": sha512(bytes)})
    };
    let unit = |unit: &Value| {
        let dropins = unit["dropins"].as_array().into_iter().flatten();
        let dropins: BTreeMap<_, _> = dropins
            .map(|dropin| (dropin["name"].as_str().unwrap(), hash(&dropin["contents"])))
            .collect();
        let on_disk = unit["enabled"]
            .as_bool()
            .map(|enabled| if enabled { "enabled" } else { "disabled" });
        json!({"name": unit["name"], "on_disk": on_disk, "sha512": hash(&unit["contents"]), "dropins": dropins})
    };
    let user = |user: &Value| {
        let keys = user["sshAuthorizedKeys"].as_array().into_iter().flatten();
        json!({"name": user["name"], "key_sha512": keys.map(hash).collect::<Vec<_>>()})
    };
    let files: Vec<_> = list("/storage/files").iter().map(file).collect();
    let units: Vec<_> = list("/systemd/units").iter().map(unit).collect();
    let users: Vec<_> = list("/passwd/users").iter().map(user).collect();
    json!({
        "hostname": format!("{node}.lab.example.com"), "mac": planned.mac, "ip": planned.ip, "ipv6": "",
        "config_sha512": sha512(&config), "config_bytes": config.len(), "ignition": "ok",
        "files": files, "units": units, "users": users,
    })
}

/// The config that the bootstrap machine serves to nodes of a role.
fn served(bench: &Bench, role: Role) -> Option<Layer> {
    let bootstrap = fs::read(bench.dir.installer().join("bootstrap.ign")).unwrap();
    let bootstrap: Value = serde_json::from_slice(&bootstrap).unwrap();
    let path = format!("/opt/openshift-rehearsal/mcs/config/{role}");
    let mut files = bootstrap["storage"]["files"].as_array().unwrap().iter();
    let file = files.find(|file| file["path"] == path.as_str())?;
    let Ok(Contents::Bytes(bytes)) = contents::of(&file["contents"]) else {
        panic!("{path} is empty");
    };
    let (origin, config) = (path, serde_json::from_slice(&bytes).unwrap());
    Some(Layer { origin, config })
}

/// Answers `GET /report.json` on a node's address; the first `busy` connections are closed without an answer.
fn serve(ip: IpAddr, report: &Value, busy: usize) {
    answer(ip, 8080, "/report.json", report, busy);
}

fn answer(ip: IpAddr, port: u16, path: &str, body: &Value, busy: usize) {
    let listener = TcpListener::bind((ip, port)).unwrap();
    let (body, line) = (body.to_string(), format!("GET {path} HTTP/1.1\r\n"));
    std::thread::spawn(move || {
        for (count, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            if count < busy {
                continue;
            }
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap();
            let status = match request[..length].starts_with(line.as_bytes()) {
                true => "200 OK",
                false => "404 Not Found",
            };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all((head + &body).as_bytes()).unwrap();
        }
    });
}

#[test]
fn guests_are_polled_until_each_has_answered() {
    let bench = rehearsal(2);
    for (busy, node) in bench.config.nodes().into_iter().enumerate() {
        let address = bench.parameters.node(&node.name).unwrap();
        serve(address.ip, &report(&bench, &node.name), busy % 3);
    }
    let installer = Installer::choose(&bench.config).unwrap();
    let first = run(installer.wait_for_bootstrap(&bench.wait(true))).unwrap();
    let names: Vec<_> = first.iter().map(|report| report.node.to_string()).collect();
    assert_eq!(names, ["bootstrap", "master-0", "master-1", "master-2"]);
    // Another host has the api VIP; at first it does not answer.
    answer(bench.parameters.api_ip, 22624, "/config/worker", &json!({}), 2);
    let second = run(installer.wait_for_install(&bench.wait(true))).unwrap();
    let names: Vec<_> = second.iter().map(|report| report.node.to_string()).collect();
    assert_eq!(names, ["worker-0", "worker-1"]);
    for node in first.iter().chain(&second) {
        assert!(node.checked, "{}", node.node);
        let planned = bench.parameters.node(&node.node).unwrap();
        assert_eq!((node.mac, node.ip, node.role), (planned.mac, planned.ip, planned.role));
        let config = fs::read(bench.dir.ignition(node.node.as_str())).unwrap();
        assert_eq!(
            (&node.config_sha512, node.ignition_bytes),
            (&sha512(&config), config.len())
        );
        assert_eq!(node.hostname, format!("{}.lab.example.com", node.node));
    }
}

#[test]
fn a_guest_that_differs_from_its_config_is_an_error() {
    let bench = rehearsal(3);
    for NodeSpec { name: node, .. } in bench.config.nodes() {
        let mut report = report(&bench, &node);
        if node.as_str() == "master-1" {
            report["hostname"] = json!("localhost");
            // One from its own config, and one from the machine config server.
            for path in ["/etc/default/nodeip-configuration", "/etc/kubernetes/kubelet.conf"] {
                let mut files = report["files"].as_array_mut().unwrap().iter_mut();
                files.find(|file| file["path"] == path).unwrap()["mode"] = json!("0600");
            }
            report["users"][0]["key_sha512"] = json!([]);
        }
        serve(bench.parameters.node(&node).unwrap().ip, &report, 0);
    }
    let installer = Installer::choose(&bench.config).unwrap();
    let failure = explain(&run(installer.wait_for_bootstrap(&bench.wait(true))).unwrap_err());
    assert_eq!(failure.kind.exit_code(), 5);
    assert_eq!(
        failure.chain,
        ["master-1 differs from its planned configuration:\
          \n  its host name is localhost, expected master-1.lab.example.com\
          \n  mode of /etc/kubernetes/kubelet.conf is 0600, expected 0644\
          \n  mode of /etc/default/nodeip-configuration is 0600, expected 0644\
          \n  ssh key 1 of user core is absent, expected present"]
    );
}

#[test]
fn guests_that_do_not_answer_are_named() {
    let mut bench = rehearsal(4);
    bench.config.timeouts.bootstrap = Duration::from_secs(2);
    for NodeSpec { name: node, .. } in bench.config.nodes() {
        if node.as_str() != "master-2" && node.as_str() != "bootstrap" {
            serve(bench.parameters.node(&node).unwrap().ip, &report(&bench, &node), 0);
        }
    }
    let installer = Installer::choose(&bench.config).unwrap();
    let failure = explain(&run(installer.wait_for_bootstrap(&bench.wait(true))).unwrap_err());
    assert_eq!(failure.kind.exit_code(), 6);
    let text = &failure.chain[0];
    assert!(
        text.contains("no report within 2 s from:\n  bootstrap at http://127.86.4.11:8080/report.json: "),
        "{text}"
    );
    assert!(
        text.contains("\n  master-2 at http://127.86.4.14:8080/report.json: Connection refused"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 3, "{text}");
}

#[test]
fn a_platform_without_guests_is_not_polled() {
    let bench = rehearsal(5);
    let installer = Installer::choose(&bench.config).unwrap();
    let reports = run(installer.wait_for_bootstrap(&bench.wait(false))).unwrap();
    assert_eq!(reports.len(), 4);
    assert!(reports.iter().all(|report| !report.checked));
}
