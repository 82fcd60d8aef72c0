//! `ocpdeploy check`: all checks with their results, as a table and as JSON.

use crate::support::{mirror, sandbox};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::support::fake_cloud::{FakeCloud, PASSWORD};
use crate::support::fake_kubevirt::{FakeKubevirt, World};
use crate::support::mirror::Mirror;
use serde_json::{Value, json};

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f lab";

struct Sandbox(tempfile::TempDir);

impl Sandbox {
    /// A folder with an env file of these lines, a key and a pull secret.
    fn new(lines: &str) -> Self {
        let sandbox = Self(tempfile::tempdir().unwrap());
        let usual = "cluster=lab\ndomain=ocpdeploy.invalid\npub_key=key.pub\npull_secret=pull.json\n";
        sandbox.write("env.sh", &format!("{usual}{lines}\n"));
        sandbox.write("key.pub", KEY);
        sandbox.write(
            "pull.json",
            r#"{"auths":{"registry.example.com":{"auth":"bWU6Y2FuYXJ5"}}}"#,
        );
        sandbox
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn program(&self, name: &str, text: &str) {
        self.write(name, &format!("#!/bin/sh\n{text}\n"));
        std::fs::set_permissions(self.0.path().join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn check(&self, arguments: &[&str]) -> Output {
        self.run("check", arguments)
    }

    fn run(&self, command: &str, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_ocpdeploy"))
            .arg(command)
            .args(arguments)
            .env_clear()
            .env("HOME", self.0.path())
            .env("PATH", "/usr/bin:/bin")
            .env("OCPDEPLOY_HOME", self.0.path().join("state"))
            .current_dir(self.0.path())
            .output()
            .unwrap()
    }

    /// The table, without the parts that differ from run to run.
    #[track_caller]
    fn table(&self, arguments: &[&str], code: i32) -> String {
        let output = self.check(arguments);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{out}{err}");
        assert!(!out.contains("Y2FuYXJ5") && !out.contains(PASSWORD), "{out}");
        let folder = self.0.path().display().to_string();
        let mut stable = String::new();
        for line in out.replace(&folder, "FOLDER").lines() {
            // Values of the host, and ports.
            let cut = ["the host has ", "the platform's are ", "127.0.0.1:", "localhost:"].into_iter();
            let cut = cut.filter_map(|words| Some(line.find(words)? + words.len())).min();
            stable += &line[..cut.unwrap_or(line.len())];
            stable += if cut.is_some() { "…\n" } else { "\n" };
        }
        stable
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_rehearsal_on_the_simulated_platform_passes_all_checks() {
    let sandbox = Sandbox::new("backend=sim\nsim_state=sim.json\napi_ip=192.168.122.9");
    insta::assert_snapshot!("well", sandbox.table(&["--rehearse"], 0));
    let output = sandbox.check(&["--rehearse", "--format", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["v"], &report["failures"]), (&json!(1), &json!(0)));
    let looked = report["looked"].as_array().unwrap();
    assert!(
        looked
            .iter()
            .all(|one| one["check"].is_string() && one["text"].is_string()),
        "{report}"
    );
    assert!(
        looked
            .iter()
            .any(|one| one["verdict"] == "ok" && one["check"] == "addresses"),
        "{report}"
    );
}

#[test]
fn a_virtual_ip_in_use_is_reported() {
    let sandbox = Sandbox::new("backend=sim\nsim_state=sim.json\napi_ip=192.168.122.9");
    let lease = json!({"mac": "52:54:00:00:00:99", "client": "theirs", "since_ms": 0});
    let network = json!({
        "cidr": "192.168.122.0/24", "gateway": "192.168.122.1",
        "dhcp_from": "192.168.122.2", "dhcp_to": "192.168.122.254", "leases": {"192.168.122.9": lease},
    });
    sandbox.write(
        "sim.json",
        &json!({"v": 1, "networks": {"default": network}}).to_string(),
    );
    let table = sandbox.table(&["--rehearse"], 4);
    let addresses: Vec<_> = table
        .lines()
        .skip_while(|line| !line.contains(" addresses   "))
        .take(2)
        .collect();
    insta::assert_snapshot!("a_virtual_ip_that_is_taken", addresses.join("\n"));
}

#[test]
fn a_failed_check_does_not_hide_later_ones() {
    // Installer and image of another release, and a registry that is not in the pull secret.
    let sandbox = Sandbox::new(
        "backend=sim\nsim_state=sim.json\nnetwork=absent\ninstaller=./openshift-install\nimage=./rhcos-4.20.0-x86_64-qemu.x86_64.qcow2",
    );
    sandbox.write("rhcos-4.20.0-x86_64-qemu.x86_64.qcow2", "");
    sandbox.program(
        "openshift-install",
        "echo openshift-install 4.19.3\necho release image other.example.com/release:4.19.3",
    );
    sandbox.program("oc", "echo 'error: unauthorized: authentication required' >&2; exit 1");
    insta::assert_snapshot!("several", sandbox.table(&[], 4));
    let output = sandbox.check(&["--format", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["failures"], json!(3), "{report}");
}

#[test]
fn an_unreachable_platform_is_one_finding() {
    let sandbox = Sandbox::new(
        "backend=openstack\nos_cloud=lab\nversion=4.19.3\ninstaller_mirror=http://127.0.0.1:1\ninstaller_mirror_timeout=1s",
    );
    sandbox.write(
        "clouds.yaml",
        &format!(
            "clouds:\n  lab:\n    auth:\n      auth_url: http://127.0.0.1:1/v3\n      username: demo\n      \
             project_name: demo\n      password: {PASSWORD}\n"
        ),
    );
    insta::assert_snapshot!("out_of_reach", sandbox.table(&[], 4));
}

#[test]
fn a_pool_whose_latency_cannot_be_measured_is_a_warning() {
    let sandbox = Sandbox::new(
        "backend=libvirt\nlibvirt_uri=test:///default\nlibvirt_storage_pool=default-pool\nmasters=1\nworkers=0\nimages_dir=.",
    );
    sandbox.write("coreos.qcow2", "");
    sandbox.write("helper.qcow2", "");
    let table = sandbox.table(&["--rehearse"], 0);
    let wanted = "warn    etcd disk   cannot measure the write latency of /default-pool: ";
    assert!(table.lines().any(|line| line.starts_with(wanted)), "{table}");
}

#[test]
fn clocks_quotas_and_rights_of_the_platform_are_checked() {
    let mirror = Mirror::start();
    let sandbox = Sandbox::new(&format!(
        "backend=openstack\nos_cloud=lab\nnetwork=private\nimage=rhcos\nworkers=40\nversion=4.19.3\ninstaller_mirror_insecure=true\ninstaller_mirror={}",
        mirror.url("")
    ));
    let sums: String = ["openshift-install", "openshift-client"]
        .iter()
        .flat_map(|name| {
            ["-linux", "-linux-arm64"].map(|end| format!("{}  {name}{end}-4.19.3.tar.gz\n", "0".repeat(64)))
        })
        .collect();
    mirror.serve("/ocp/4.19.3/sha256sum.txt", mirror::Served::new(sums));
    let cloud = FakeCloud::start();
    sandbox.write(
        "clouds.yaml",
        &format!(
            "clouds:\n  lab:\n    region_name: one\n    auth:\n      auth_url: {}\n      username: demo\n      \
             project_name: demo\n      password: {PASSWORD}\n",
            cloud.auth_url()
        ),
    );
    insta::assert_snapshot!("openstack", sandbox.table(&[], 4));
    cloud.finish();

    let mut world = World::with_tenants(&["blue"]);
    world
        .users
        .get_mut("blue-token")
        .unwrap()
        .lacks
        .insert("create virtualmachines".to_owned());
    let server = FakeKubevirt::start(world);
    let sandbox = Sandbox::new(
        "backend=kubevirt\nkubevirt_kubeconfig=blue.kubeconfig\nnetwork=lan\nmachine_network=10.7.0.0/24\nimages_dir=.",
    );
    sandbox.write("coreos.qcow2", "");
    sandbox.write("helper.qcow2", "");
    server.kubeconfig(&sandbox.0.path().join("blue.kubeconfig"), "blue-token", "blue");
    insta::assert_snapshot!("kubevirt", sandbox.table(&["--rehearse"], 4));
    server.was_asked_well();
}

/// An environment in which a deployment cannot begin.
struct Faulty {
    name: &'static str,
    lines: String,
    rehearse: bool,
    /// The simulated platform's file.
    world: Value,
    files: Vec<(&'static str, String)>,
    /// Part of the finding's text.
    words: &'static str,
}

impl Faulty {
    /// A rehearsal on the usual network.
    fn rehearsal(name: &'static str, lines: &str, words: &'static str) -> Self {
        Self {
            name,
            lines: lines.to_owned(),
            rehearse: true,
            world: json!({}),
            files: vec![],
            words,
        }
    }

    /// A real installer's cluster, whose fake machines are on the loopback.
    fn real(name: &'static str, lines: &str, words: &'static str) -> Self {
        let mut lines = lines.to_owned();
        for (name, value) in [
            ("image", "coreos"),
            ("harvest_image", "helper"),
            ("installer", "./openshift-install"),
        ] {
            let given = lines.lines().any(|line| line.starts_with(&format!("{name}=")));
            let names_version = name == "installer" && lines.contains("version=");
            if !(given || names_version) {
                lines += &format!("\n{name}={value}");
            }
        }
        let network = network("127.96.0", json!({}));
        Self {
            rehearse: false,
            world: json!({"images": ["coreos", "helper"], "networks": {"default": network}}),
            ..Self::rehearsal(name, &lines, words)
        }
    }

    fn file(mut self, name: &'static str, text: impl Into<String>) -> Self {
        self.files.push((name, text.into()));
        self
    }

    fn on(mut self, world: Value) -> Self {
        self.world = world;
        self
    }

    fn sandbox(&self) -> Sandbox {
        let sandbox = Sandbox::new(&format!(
            "backend=sim\nsim_state=sim.json\nmasters=1\nworkers=1\n{}",
            self.lines
        ));
        let mut world = self.world.clone();
        world["v"] = json!(1);
        sandbox.write("sim.json", &world.to_string());
        sandbox.program(
            "openshift-install",
            "echo openshift-install 4.19.3\necho release image registry.example.com/release:4.19.3",
        );
        let release = json!({"metadata": {"version": "4.19.3"}, "references": {"spec": {"tags": []}}});
        sandbox.program("oc", &format!("echo '{release}'"));
        for (name, text) in &self.files {
            match text.strip_prefix("#!/bin/sh\n") {
                Some(script) => sandbox.program(name, script),
                None => sandbox.write(name, text),
            }
        }
        sandbox
    }
}

fn network(begin: &str, leases: Value) -> Value {
    json!({
        "cidr": format!("{begin}.0/24"), "gateway": format!("{begin}.1"),
        "dhcp_from": format!("{begin}.2"), "dhcp_to": format!("{begin}.254"), "leases": leases,
    })
}

/// An Ignition config that writes one file.
fn writes(path: &str) -> String {
    let file = json!({"path": path, "contents": {"source": "data:,x"}, "mode": 420});
    json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [file]}}).to_string()
}

/// Whose release has this architecture.
fn installer_for(arch: &str) -> String {
    format!(
        "#!/bin/sh\necho openshift-install 4.19.3\necho release image registry.example.com/release:4.19.3\n\
         echo release architecture {arch}"
    )
}

fn faulty(mirror: &Mirror) -> Vec<Faulty> {
    let lease = json!({"mac": "52:54:00:00:00:99", "client": "theirs", "since_ms": 0});
    let rehearsal = Faulty::rehearsal;
    let real = Faulty::real;
    let asked = |version: &str, mirror: &str| {
        format!("version={version}\ninstaller_mirror={mirror}\ninstaller_mirror_timeout=2s")
    };
    vec![
        rehearsal("no such network", "network=absent", "network absent does not exist"),
        rehearsal(
            "pods where the machines are",
            "cluster_network=192.168.0.0/16",
            "network default is 192.168.122.0/24, which overlaps with cluster_network 192.168.0.0/16",
        ),
        rehearsal(
            "services where the machines are",
            "service_network=192.168.122.128/25",
            "which overlaps with service_network 192.168.122.128/25",
        ),
        rehearsal(
            "machines in OVN-Kubernetes' join network",
            "",
            "which overlaps with 100.64.0.0/16, the join network of OVN-Kubernetes",
        )
        .on(json!({"networks": {"default": network("100.64.7", json!({}))}})),
        rehearsal("a virtual IP that is taken", "api_ip=192.168.122.9", "192.168.122.9")
            .on(json!({"networks": {"default": network("192.168.122", json!({"192.168.122.9": lease}))}})),
        rehearsal("a machine of this name", "", "lab-master-0")
            .on(json!({"foreign_machines": {"lab-master-0": {"macs": []}}})),
        rehearsal("a config that is no JSON", "ignition_extra=a.ign", "ignition_extra: ").file("a.ign", "files: []"),
        rehearsal(
            "a config that writes what ocpdeploy writes",
            "ignition_extra=a.ign",
            "conflict: file /etc/hostname is set by ignition_extra: FOLDER/a.ign and by ocpdeploy",
        )
        .file("a.ign", writes("/etc/hostname")),
        rehearsal(
            "a config that writes what ocpdeploy's MachineConfig writes",
            "ignition_extra=worker:a.ign",
            "conflict: file /usr/local/bin/ocpdeploy-resolver is set by MachineConfig 99-worker-ocpdeploy",
        )
        .file("a.ign", writes("/usr/local/bin/ocpdeploy-resolver")),
        rehearsal(
            "a config that writes what the machine config operator writes",
            "ignition_extra=worker:a.ign",
            "conflict: file /etc/kubernetes/kubelet.conf is set by the machine config operator of OpenShift 4.19 and by \
             ignition_extra: FOLDER/a.ign",
        )
        .file("a.ign", writes("/etc/kubernetes/kubelet.conf")),
        rehearsal(
            "a config that fetches another",
            "ignition_extra=a.ign",
            "a config from the network cannot be checked",
        )
        .file(
            "a.ign",
            json!({"ignition": {"version": "3.2.0", "config": {"merge": [{"source": "http://127.0.0.1:1/b.ign"}]}}})
                .to_string(),
        ),
        real(
            "a config that writes what the user's own manifest writes",
            "ignition_extra=master:a.ign\nmanifests=manifests",
            "conflict: file /etc/mine is set by MachineConfig 99-mine (openshift/mine.yaml) and by ignition_extra",
        )
        .file("a.ign", writes("/etc/mine"))
        .file(
            "manifests/mine.yaml",
            json!({
                "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
                "metadata": {"name": "99-mine", "labels": {"machineconfiguration.openshift.io/role": "master"}},
                "spec": {"config": serde_json::from_str::<Value>(&writes("/etc/mine")).unwrap()},
            })
            .to_string(),
        ),
        real(
            "a real cluster on pretend machines",
            "",
            "the simulated platform runs no machines, so a real cluster cannot be installed on it",
        )
        .on(json!({"images": ["coreos", "helper"]})),
        real(
            "a mirror that nobody serves",
            &asked("stable", "http://127.0.0.1:1"),
            "cannot download http://127.0.0.1:1/ocp/stable/sha256sum.txt",
        ),
        real(
            "a version that the mirror lacks",
            &asked("4.19.7", &mirror.url("")),
            "/ocp/4.19.7/sha256sum.txt: the server returned 404",
        ),
        real(
            "an installer of another version",
            "installer=./openshift-install\nversion=4.18.1",
            "openshift-install is openshift-install 4.19.3, but version=4.18.1",
        ),
        real(
            "an installer that is not one",
            "installer=./broken",
            "broken version reports no version",
        )
        .file("broken", "#!/bin/sh\nexit 1"),
        real(
            "an installer of a release whose API has no certificate requests of today",
            "installer=./old",
            "openshift-install is 4.5.41: OpenShift 4.5 is not supported: its API has no certificates.k8s.io/v1",
        )
        .file("old", "#!/bin/sh\necho openshift-install 4.5.41"),
        real(
            "a setting that the release does not know",
            "capabilities=vCurrent",
            "capabilities",
        )
        .file(
            "openshift-install",
            "#!/bin/sh\necho openshift-install 4.9.0\necho release image registry.example.com/release:4.9.0",
        ),
        real(
            "an image of a later release",
            "image=./rhcos-4.20.0-x86_64-qemu.x86_64.qcow2",
            "is the CoreOS of 4.20, and openshift-install is 4.19.3",
        )
        .file("rhcos-4.20.0-x86_64-qemu.x86_64.qcow2", ""),
        real(
            "an image of another platform",
            "image=./rhcos-4.19.0-x86_64-openstack.x86_64.qcow2",
            "is for openstack; this platform requires the image for qemu",
        )
        .file("rhcos-4.19.0-x86_64-openstack.x86_64.qcow2", ""),
        real(
            "an image of another architecture",
            "image=./rhcos-4.19.0-aarch64-qemu.aarch64.qcow2",
            "is for aarch64; the machines are x86_64",
        )
        .file("rhcos-4.19.0-aarch64-qemu.aarch64.qcow2", ""),
        real(
            "an installer of another architecture",
            "",
            "installs a release for aarch64, and the machines are x86_64",
        )
        .file("openshift-install", installer_for("arm64")),
        real(
            "a pool of another architecture than the release",
            "pools=arm:1\npool_arch=arm:aarch64",
            "installs a release for x86_64 only, and a pool has another architecture",
        )
        .file("openshift-install", installer_for("amd64")),
        real(
            "a release of another architecture",
            "arch=s390x",
            "openshift-install with registry.example.com/release:4.19.3 installs a release for aarch64, and the machines \
             are s390x",
        )
        .file(
            "oc",
            "#!/bin/sh\necho '{\"config\": {\"architecture\": \"arm64\"}, \"metadata\": {\"version\": \"4.19.3\"}, \
             \"references\": {\"spec\": {\"tags\": []}}}'",
        ),
        real(
            "a pull secret that the registry refuses",
            "",
            "unauthorized: authentication required",
        )
        .file(
            "oc",
            "#!/bin/sh\necho 'error: unauthorized: authentication required' >&2; exit 1",
        ),
    ]
}

/// The error of a deployment: each problem that was found, or the chain of causes as one.
fn refused(stderr: &str) -> Vec<String> {
    let message = stderr.find("error: ").map_or("", |at| &stderr[at + "error: ".len()..]);
    let message = message.split("\nhint: ").next().unwrap_or_default().trim_end();
    match message.split_once(" found before anything was created:\n") {
        Some((_, lines)) => lines.lines().map(|line| line.trim_start().to_owned()).collect(),
        None => vec![message.replace("\ncaused by: ", ": ")],
    }
}

#[test]
fn check_and_deploy_report_the_same_problems_in_the_same_words() {
    let mirror = Mirror::start();
    let all = faulty(&mirror);
    assert!(all.len() >= 12, "too few cases");
    for faulty in all {
        let sandbox = faulty.sandbox();
        let flags: &[&str] = if faulty.rehearse { &["--rehearse"] } else { &[] };
        let name = faulty.name;
        let checked = sandbox.check(&[&["--format", "json"], flags].concat());
        let report: Value =
            serde_json::from_slice(&checked.stdout).unwrap_or_else(|_| panic!("{name}: {}", text(&checked.stderr)));
        let folder = sandbox.0.path().display().to_string();
        let fails: Vec<String> = report["looked"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|looked| looked["verdict"] == "fail")
            .map(|looked| looked["text"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(checked.status.code(), Some(4), "{name}: {report:#}");
        let shown = fails.join("\n").replace(&folder, "FOLDER");
        assert!(shown.contains(faulty.words), "{name}: {shown}");

        let begun = Instant::now();
        let deployed = sandbox.run("deploy", flags);
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{name}: not detected in time"
        );
        let stderr = text(&deployed.stderr);
        assert!(!deployed.status.success(), "{name}");
        let refused = refused(&stderr);
        assert!(!refused.is_empty(), "{name}: {stderr}");
        for words in &refused {
            assert!(
                fails.contains(words),
                "{name}: deploy reports\n{words}\nand check\n{fails:#?}"
            );
        }
        let world = sandbox::pretend_platform(&sandbox.0.path().join("sim.json")).unwrap();
        assert!(
            world["machines"].as_object().is_none_or(|all| all.is_empty()),
            "{name}: {world:#}"
        );
        let table = sandbox.0.path().join("state/clusters/lab/parameters.yaml");
        assert!(!table.exists(), "{name}: pass one was started");
    }
}

#[test]
fn without_a_fault_check_passes_and_deploy_starts() {
    let sandbox = Faulty::rehearsal("well", "ignition_extra=a.ign", "")
        .file("a.ign", writes("/etc/mine"))
        .sandbox();
    let checked = sandbox.check(&["--rehearse"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stdout));
    let deployed = sandbox.run("deploy", &["--rehearse"]);
    assert_eq!(deployed.status.code(), Some(0), "{}", text(&deployed.stderr));
    // A real deployment gets as far as its installer, which is not a program.
    let sandbox = Faulty::real("real", "pools=arm:1\npool_arch=arm:aarch64", "")
        .file("openshift-install", installer_for("multi"))
        .sandbox();
    let checked = sandbox.check(&[]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stdout));
}

#[test]
fn the_platform_is_checked_before_the_mirror_is_queried() {
    let mirror = Mirror::start();
    let lines = format!("version=4.19.7\ninstaller_mirror={}\nnetwork=absent", mirror.url(""));
    let sandbox = Faulty::real("both", &lines, "").sandbox();
    let deployed = sandbox.run("deploy", &[]);
    let stderr = text(&deployed.stderr);
    assert!(stderr.contains("network absent does not exist"), "{stderr}");
    assert!(mirror.asked().is_empty(), "the mirror was queried: {stderr}");
    // The query is reported when it is sent, before the response.
    let sandbox = Faulty::real("mirror", &lines.replace("network=absent", ""), "").sandbox();
    let stderr = text(&sandbox.run("deploy", &[]).stderr);
    let asking = format!("looking up 4.19.7 at {}/ocp/4.19.7/sha256sum.txt", mirror.url(""));
    assert!(stderr.contains(&asking), "{stderr}");
}

#[test]
fn a_state_directory_in_a_git_work_tree_is_a_warning() {
    let sandbox = sandbox::Sandbox::new(json!({}));
    let pull_secret = r#"{"auths":{"registry.example.com":{"auth":"bWU6Y2FuYXJ5"}}}"#;
    std::fs::write(sandbox.path().join("pull.json"), pull_secret).unwrap();
    std::fs::write(sandbox.path().join("key.pub"), KEY).unwrap();
    sandbox.env("lab", "pub_key=key.pub\npull_secret=pull.json");
    let checked = |more: &[&str]| sandbox.run(&[&["check", "lab.sh"], more].concat()).stdout;
    let told = "is in the git work tree";
    assert!(!checked(&[]).contains(told));
    std::fs::create_dir(sandbox.path().join(".git")).unwrap();
    let warned = checked(&[]);
    let words = warned.split_whitespace().collect::<Vec<_>>().join(" ");
    let (home, tree) = (
        sandbox.home().root().display().to_string(),
        sandbox.path().display().to_string(),
    );
    for told in [
        &format!("warn state the state directory {home} {told} {tree}: "),
        "OCPDEPLOY_HOME",
    ] {
        assert!(words.contains(told), "no `{told}` in {words}");
    }
    // A rehearsal has no secrets.
    assert!(!checked(&["--rehearse"]).contains(told));
}
