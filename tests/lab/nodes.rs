//! Clusters of real nodes on a real libvirt: Ignition, systemd, NetworkManager, containerd, kubelet, etcd and the
//! Kubernetes control plane. `tests/lab/nodes/README.md` says what of the release is played.

#![cfg(feature = "libvirt")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ocpdeploy::cluster::{NodeName, Role};
use ocpdeploy::digest::sha256;
use ocpdeploy::ignition::contents::{self, Contents};
use ocpdeploy::state::parameters::{NodeAddress, Parameters};
use serde_json::Value;

use super::two_passes::Lab;
use crate::support::fake_installer;

/// Where the lab's guests reach this computer, and the control plane of a cluster that has none in its guests.
const NATIVE: &str = "192.168.122.1:7443";

/// A cluster whose installer makes the release of `tests/lab/nodes/release`.
struct Nodes {
    lab: Lab,
    name: String,
    /// Its control plane outside of the guests.
    native: Arc<Mutex<Vec<Child>>>,
}

impl Nodes {
    fn new(masters: usize, workers: usize, settings: &str) -> Self {
        let lab = Lab::new();
        let folder = lab.folder.path();
        fake_installer::programs(folder);
        symlink(source("tests/lab/nodes/release"), folder.join("release")).unwrap();
        std::fs::copy(source("images/node/references"), folder.join("oc.tags")).unwrap();
        std::fs::write(folder.join("pull-secret.json"), fake_installer::PULL_SECRET).unwrap();
        let key = folder.join("key");
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&key)
            .status();
        assert!(made.unwrap().success());
        // One CPU each is faster than two where all are emulated: see the lab's README.
        let cpus = match settings.contains("numcpus") {
            true => "",
            false => "numcpus=1\nbootstrap_numcpus=1\n",
        };
        let name = format!("nodes{}", std::process::id());
        let images = source("target/images");
        let text = format!(
            "cluster={name}\ndomain=example.com\nbackend=libvirt\nlibvirt_uri={}\nvirt_type=qemu\n\
             masters={masters}\nworkers={workers}\n{}image={}/node.qcow2\nhelper_image={}/helper.qcow2\n\
             master_memory=3072\nbootstrap_memory=2560\nworker_memory=1536\nhelper_memory=192\n\
             bootstrap_timeout=40m\ninstall_timeout=40m\negress_check=false\n{cpus}{settings}",
            lab.uri,
            fake_installer::LINES,
            images.display(),
            images.display(),
        );
        std::fs::write(lab.env(&name), text).unwrap();
        let native = Arc::default();
        Self { lab, name, native }
    }

    /// Starts etcd and the control plane on this computer, as soon as the installer has made their certificates. The
    /// arguments are those of the static pods.
    fn with_native_control_plane(self) -> Self {
        let settings = serde_json::json!({ "native": NATIVE });
        std::fs::write(self.path("settings.json"), settings.to_string()).unwrap();
        let (folder, started) = (self.lab.folder.path().to_owned(), Arc::downgrade(&self.native));
        std::thread::spawn(move || {
            while !folder.join("root-ca.crt").exists() {
                std::thread::sleep(Duration::from_millis(200));
            }
            for program in ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
                if let Some(started) = started.upgrade() {
                    started.lock().unwrap().push(native(program, &folder));
                }
            }
        });
        self
    }

    fn deploy(&self) {
        self.run(&["deploy", self.lab.env(&self.name).to_str().unwrap()]);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.lab.folder.path().join(name)
    }

    /// Runs the program to a good end; what it prints becomes this test's output, with the times of its progress.
    #[track_caller]
    fn run(&self, arguments: &[&str]) -> String {
        let output = self.lab.start(arguments).wait_with_output().unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        println!("──── ocpdeploy {}\n{err}{out}", arguments.join(" "));
        assert!(output.status.success());
        out
    }

    fn table(&self) -> Parameters {
        self.lab.parameters(&self.name).expect("a parameter file")
    }

    /// Masters and workers.
    fn nodes(&self) -> Vec<NodeAddress> {
        let mut nodes = self.table().nodes;
        nodes.retain(|node| node.role != Role::Bootstrap);
        nodes
    }

    fn node(&self, name: &str) -> NodeAddress {
        let found = self.nodes().into_iter().find(|node| node.name.as_str() == name);
        found.unwrap_or_else(|| panic!("the table has no {name}"))
    }

    /// Runs a script on a node as root.
    fn try_on(&self, node: &NodeAddress, script: &str) -> Output {
        let mut child = Command::new("timeout")
            .args(["120", "ssh", "-q", "-i"])
            .arg(self.path("key"))
            .args([
                "-o",
                "StrictHostKeyChecking=no",
                "-o",
                "UserKnownHostsFile=/dev/null",
                "-o",
                "ConnectTimeout=10",
            ])
            .arg(format!("core@{}", node.ip))
            .arg("sudo bash -s")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// What a script prints that must succeed.
    #[track_caller]
    fn on(&self, node: &NodeAddress, script: &str) -> String {
        let output = self.try_on(node, script);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(
            output.status.success(),
            "{}: {script}: {}\n{out}{err}",
            node.name,
            output.status
        );
        out
    }

    /// The administrator's kubectl, with the kubeconfig of the deployment.
    fn kubectl(&self, arguments: &[&str]) -> Output {
        let kubeconfig = self.lab.home().cluster(&self.name).kubeconfig();
        let table = self.table();
        Command::new("timeout")
            .args(["60", "kubectl", "--kubeconfig"])
            .arg(kubeconfig)
            // This computer does not resolve the name.
            .arg(format!("--server=https://{}:6443", table.api_ip))
            .arg(format!("--tls-server-name={}", table.id().fqdn("api")))
            .args(arguments)
            .env("HOME", self.lab.folder.path())
            .output()
            .unwrap()
    }

    #[track_caller]
    fn get(&self, arguments: &[&str]) -> Value {
        let words = [&["get", "-o", "json"], arguments].concat();
        let output = self.kubectl(&words);
        assert!(output.status.success(), "kubectl {words:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// Starts a program of the control plane with the arguments of its static pod.
fn native(program: &str, folder: &Path) -> Child {
    let pod = source(&format!(
        "tests/lab/nodes/release/all/opt/openshift/static-pods/{program}.json"
    ));
    let pod: Value = serde_json::from_slice(&std::fs::read(pod).unwrap()).unwrap();
    let (ip, port) = NATIVE.split_once(':').unwrap();
    let (etc, folder) = ("/etc/kubernetes/", folder.display());
    let words = pod["spec"]["containers"][0]["command"].as_array().unwrap().iter();
    let words: Vec<String> = words
        .map(|word| {
            let word = word.as_str().unwrap();
            let word = word.replace(&format!("{etc}pki"), &format!("{folder}/tls"));
            let word = word.replace(etc, &format!("{folder}/"));
            let word = word.replace("/var/lib/etcd", &format!("{folder}/etcd"));
            let word = word.replace("--secure-port=6443", &format!("--secure-port={port}"));
            let word = word.replace("@cluster@", &format!("native=http://{ip}:2380"));
            let word = word.replace("@member@", "native").replace("@state@", "new");
            word.replace("@ip@", ip).replace("@signing_duration@", "720h")
        })
        .collect();
    let log = std::fs::File::create(format!("{folder}/{program}.log")).unwrap();
    Command::new(source("target/kubernetes/bin").join(program))
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// A test that failed shows what its nodes said.
impl Drop for Nodes {
    fn drop(&mut self) {
        for child in &mut *self.native.lock().unwrap() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if !std::thread::panicking() {
            return;
        }
        for node in self
            .lab
            .parameters(&self.name)
            .map(|table| table.nodes)
            .unwrap_or_default()
        {
            let units = "-u bootkube -u operators -u kubelet -u ocpdeploy-resolver -u ocpdeploy-dns";
            let script = format!(
                "systemctl --failed --no-legend; ip -4 -o addr; cat /etc/resolv.conf; journalctl -b --no-pager -q -n 60 {units}; \
                 tail -n 20 /var/log/pods/*/*/*.log"
            );
            let output = self.try_on(&node, &script);
            println!("──── {}\n{}{}", node.name, text(&output.stdout), text(&output.stderr));
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[track_caller]
fn until(what: &str, limit: Duration, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < limit, "{what}: not within {} s", limit.as_secs());
        std::thread::sleep(Duration::from_millis(500));
    }
    println!("{what}: after {:.1} s", begun.elapsed().as_secs_f64());
}

fn contents_of(file: &Value) -> Vec<u8> {
    match contents::of(&file["contents"]) {
        Ok(Contents::Bytes(bytes)) => bytes,
        _ => panic!("{file}"),
    }
}

/// What must hold on every node.
impl Nodes {
    /// All units came up, and in the order that they declare: names are resolved before the network counts as online,
    /// and the kubelet starts after that.
    fn check_units(&self, node: &NodeAddress) {
        let failed = self.on(node, "systemctl list-units --state=failed --plain --no-legend");
        assert_eq!(failed, "", "{}: failed units", node.name);
        let complaints = "journalctl -b -q --no-pager -t systemd | grep -iE 'ordering cycle|bad unit|ignoring|not be enabled' || true";
        assert_eq!(self.on(node, complaints), "", "{}", node.name);
        // The resolver runs again whenever the network changes: the first moments count.
        let moments = self.on(
            node,
            "first() { journalctl -b -q --no-pager -t systemd -o short-monotonic | grep -m 1 \"$1\" | tr -d '[' | awk '{ print $1 + 0 }'; }\n\
             first 'Finished ocpdeploy-resolver'\n\
             first 'Reached target network-online'\n\
             first 'Starting kubelet.service'\n",
        );
        let moments: Vec<f64> = moments.lines().map(|line| line.parse().unwrap()).collect();
        let is_in_order = moments.len() == 3 && moments.is_sorted();
        assert!(is_in_order, "{}: resolver, online, kubelet: {moments:?}", node.name);
    }

    /// The node resolves the cluster's names by itself, forwards and backwards, and no name that does not exist. Of the
    /// nodes, those of the installation: nobody rolls out the MachineConfigs that `scale` changes.
    fn check_names(&self, node: &NodeAddress) {
        let mut table = self.table();
        let served = self.served(node.role);
        let mut files = served["storage"]["files"].as_array().unwrap().iter();
        let records = files.find(|file| file["path"] == "/etc/ocpdeploy/dnsmasq.conf");
        let records = text(&contents_of(records.unwrap()));
        table.nodes.retain(|node| records.contains(&format!(",{}\n", node.ip)));
        let resolv = self.on(node, "cat /etc/resolv.conf");
        let first = resolv.lines().find_map(|line| line.strip_prefix("nameserver "));
        assert_eq!(first, Some(node.ip.to_string().as_str()), "{}: {resolv}", node.name);
        let id = table.id();
        let mut names: BTreeMap<String, String> = BTreeMap::from([
            (id.fqdn("api"), table.api_ip.to_string()),
            (id.fqdn("api-int"), table.api_ip.to_string()),
            (id.fqdn("console-openshift-console.apps"), table.ingress_ip.to_string()),
            (id.fqdn("anything.apps"), table.ingress_ip.to_string()),
        ]);
        names.extend(
            table
                .nodes
                .iter()
                .map(|node| (id.fqdn(node.name.as_str()), node.ip.to_string())),
        );
        let words: Vec<&str> = names.keys().map(String::as_str).collect();
        let script = format!(
            "for name in {}; do getent ahostsv4 $name | awk '$2 == \"STREAM\" {{ print $1 }}'; done",
            words.join(" ")
        );
        let found = self.on(node, &script);
        assert_eq!(
            found.lines().collect::<Vec<_>>(),
            names.values().collect::<Vec<_>>(),
            "{}: {words:?}",
            node.name
        );
        for other in &table.nodes {
            let name = self.on(node, &format!("getent hosts {} | awk '{{ print $2 }}'", other.ip));
            assert_eq!(name.trim(), id.fqdn(other.name.as_str()), "{}: PTR", node.name);
        }
        let unknown = self.try_on(node, &format!("getent hosts {}", id.fqdn("nobody")));
        assert_eq!(unknown.status.code(), Some(2), "{}: {unknown:?}", node.name);
    }

    /// What the machine config server serves to a role since the installation.
    fn served(&self, role: Role) -> Value {
        let config = std::fs::read(self.path(&format!("{role}.json"))).unwrap();
        serde_json::from_slice(&config).unwrap()
    }

    /// Files and units are as the cluster's MachineConfigs say: whatever differs makes the machine config daemon report the
    /// node as Degraded (openshift/machine-config-operator: `pkg/daemon/on_disk_validation.go`).
    fn check_machine_config(&self, node: &NodeAddress) {
        let config = self.served(node.role);
        let mut sums = String::new();
        for file in config["storage"]["files"].as_array().unwrap() {
            sums += &format!("{}  {}\n", sha256(contents_of(file)), file["path"].as_str().unwrap());
        }
        for unit in config["systemd"]["units"].as_array().unwrap() {
            let name = unit["name"].as_str().unwrap();
            if let Some(contents) = unit["contents"].as_str() {
                sums += &format!("{}  /etc/systemd/system/{name}\n", sha256(contents));
            }
            for dropin in unit["dropins"].as_array().into_iter().flatten() {
                let (file, contents) = (dropin["name"].as_str().unwrap(), dropin["contents"].as_str().unwrap());
                sums += &format!("{}  /etc/systemd/system/{name}.d/{file}\n", sha256(contents));
            }
        }
        assert!(sums.lines().count() > 20, "{sums}");
        self.on(node, &format!("sha256sum --check --quiet <<'END'\n{sums}END\n"));
    }

    /// The cluster knows the node by its own address, also if a virtual IP is beside it.
    fn check_object(&self, node: &NodeAddress) {
        let name = self.table().id().fqdn(node.name.as_str());
        let object = self.get(&["node", &name]);
        let internal: Vec<&Value> = object["status"]["addresses"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|address| address["type"] == "InternalIP")
            .map(|address| &address["address"])
            .collect();
        assert_eq!(internal, [node.ip.to_string().as_str()], "{name}");
    }

    /// Each virtual IP is on exactly one node, and its service answers there.
    fn check_virtual_ips(&self) {
        let table = self.table();
        for (ip, url) in [
            (table.api_ip, format!("https://{}:6443/readyz", table.api_ip)),
            (table.ingress_ip, format!("http://{}/", table.ingress_ip)),
        ] {
            let holders: Vec<NodeName> = self.holders(ip);
            assert_eq!(holders.len(), 1, "{ip}: {holders:?}");
            assert!(answers(&url), "{url}");
        }
    }

    fn holders(&self, ip: std::net::Ipv4Addr) -> Vec<NodeName> {
        let script = format!("ip -4 -o addr show to {ip}/32 | grep -q .");
        let nodes = self.nodes().into_iter();
        nodes
            .filter(|node| self.try_on(node, &script).status.success())
            .map(|node| node.name)
            .collect()
    }

    /// The bootstrap approves its masters' requests, this program all later ones.
    fn check_certificates(&self) {
        let (nodes, id) = (self.nodes(), self.table().id());
        let mut approvers: BTreeMap<(Role, String), usize> = BTreeMap::new();
        for request in self.get(&["csr"])["items"].as_array().unwrap() {
            let mut openssl = Command::new("openssl");
            openssl.args(["req", "-noout", "-subject", "-nameopt", "multiline"]);
            let subject = piped(&mut openssl, &base64(request["spec"]["request"].as_str().unwrap()));
            let node = nodes.iter().find(|node| subject.contains(&id.fqdn(node.name.as_str())));
            let node = node.unwrap_or_else(|| panic!("a request of nobody: {subject}"));
            let conditions = request["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let reason = conditions
                .first()
                .map_or("Pending", |condition| condition["reason"].as_str().unwrap());
            *approvers.entry((node.role, reason.to_owned())).or_default() += 1;
        }
        let workers = nodes.iter().filter(|node| node.role == Role::Worker).count();
        println!("requests: {approvers:?}");
        assert!(
            approvers[&(Role::Worker, "OcpdeployApproved".to_owned())] >= 2 * workers,
            "{approvers:?}"
        );
        assert!(
            !approvers.contains_key(&(Role::Worker, "KubectlApprove".to_owned())),
            "{approvers:?}"
        );
    }

    fn check_all(&self) {
        for node in self.nodes() {
            self.check_units(&node);
            self.check_names(&node);
            self.check_machine_config(&node);
            self.check_object(&node);
        }
        self.check_virtual_ips();
    }
}

/// A check of one node.
type Check = fn(&Nodes, &NodeAddress);

/// What breaks a node, how it is mended, and the check that must find it.
const FAULTS: [(&str, &str, &str, Check); 5] = [
    (
        "a second writer of resolv.conf",
        "cp /etc/resolv.conf /run/kept; echo nameserver 192.0.2.1 >/etc/resolv.conf",
        "cp /run/kept /etc/resolv.conf",
        Nodes::check_names,
    ),
    (
        "a node without its name server",
        "systemctl stop ocpdeploy-dns",
        "systemctl start ocpdeploy-dns",
        Nodes::check_names,
    ),
    (
        "a file of the cluster that something else wrote",
        "cp /etc/kubernetes/kubelet.conf /run/kept; echo >>/etc/kubernetes/kubelet.conf",
        "cp /run/kept /etc/kubernetes/kubelet.conf",
        Nodes::check_machine_config,
    ),
    (
        "a unit that failed",
        "systemd-run --quiet --unit=broken /bin/false; sleep 2",
        "systemctl reset-failed broken",
        Nodes::check_units,
    ),
    (
        "a virtual IP on a second node",
        "ip addr add $(awk '$1 == \"vip\" { print $2; exit }' /etc/ocpdeploy/resolver)/32 dev lo",
        "ip addr del $(awk '$1 == \"vip\" { print $2; exit }' /etc/ocpdeploy/resolver)/32 dev lo",
        |nodes, _| nodes.check_virtual_ips(),
    ),
];

impl Nodes {
    /// Each check finds what it is for.
    fn check_the_checks(&self, node: &NodeAddress) {
        for (what, fault, mend, check) in FAULTS {
            self.on(node, fault);
            let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(self, node)));
            self.on(node, mend);
            assert!(found.is_err(), "{what} is not found");
            println!("found: {what}");
            check(self, node);
        }
    }
}

/// The network plugin's bridge, and pods that are evicted.
impl Nodes {
    /// Moves the node's address to an Open vSwitch bridge, as OVN-Kubernetes does; the ingress VIP of the node follows.
    fn move_to_bridge(&self, node: &NodeAddress) {
        let table = self.table();
        assert!(
            self.holders(table.ingress_ip).contains(&node.name),
            "{} has no virtual IP",
            node.name
        );
        // In the background: the connection of this command breaks.
        self.on(node, "systemctl enable --now --no-block lab-configure-ovs.service 2>&1");
        let has = |ip| format!("ip -4 -o addr show dev br-ex | grep -qF ' {ip}/'");
        until("the address is on br-ex", LONG, || {
            self.try_on(node, &has(node.ip)).status.success()
        });
        until("the virtual IP follows", Duration::from_secs(60), || {
            self.try_on(node, &has(table.ingress_ip)).status.success()
        });
        assert_eq!(
            self.on(node, "ip -4 -o addr show | grep -c global"),
            "3\n",
            "address, virtual IP, pods' bridge"
        );
        assert!(answers(&format!("http://{}/", table.ingress_ip)));
        self.check_names(node);
        self.check_machine_config(node);
    }

    /// Reboots a node: it keeps its address and what it runs, and does not run Ignition again.
    fn reboot(&self, node: &NodeAddress) {
        let boot = || text(&self.try_on(node, "cat /proc/sys/kernel/random/boot_id").stdout);
        let before = boot();
        let _ = self.try_on(node, "systemctl reboot");
        until("rebooted", LONG, || !["", before.as_str()].contains(&boot().as_str()));
        assert!(!self.on(node, "cat /proc/cmdline").contains("ignition.firstboot"));
        let name = self.table().id().fqdn(node.name.as_str());
        until("Ready after the reboot", LONG, || {
            let object = self.get(&["node", &name]);
            object["status"]["nodeInfo"]["bootID"] == boot().trim() && self.is_ready(&object)
        });
        self.check_units(node);
        self.check_names(node);
        self.check_object(node);
    }

    fn is_ready(&self, object: &Value) -> bool {
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    }

    #[track_caller]
    fn apply(&self, object: &Value) {
        let path = self.path("object.json");
        std::fs::write(&path, object.to_string()).unwrap();
        let output = self.kubectl(&["apply", "-f", path.to_str().unwrap()]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }

    /// Two replicas on different nodes, one of which must always be there.
    fn with_busy_pods(&self) {
        let labels = serde_json::json!({"app": "busy"});
        self.apply(&serde_json::json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget", "metadata": {"name": "busy"},
             "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}},
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "busy"}, "spec": {
                "replicas": 2, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {
                    "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 2,
                    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
                        "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": labels}}],
                    "containers": [{"name": "busy", "image": "lab.invalid/tools:1", "imagePullPolicy": "IfNotPresent",
                        "command": ["/bin/sleep", "infinity"]}]}}}},
        ]}));
        until("busy pods are available", LONG, || self.available() == 2);
    }

    fn available(&self) -> u64 {
        let deployment = self.get(&["deployment", "busy"]);
        deployment["status"]["availableReplicas"].as_u64().unwrap_or_default()
    }
}

/// A boot, and what follows it, of an emulated guest on a busy computer.
const LONG: Duration = Duration::from_secs(900);

fn answers(url: &str) -> bool {
    let curl = Command::new("curl")
        .args(["-kfs", "--max-time", "5", "-o", "/dev/null", url])
        .status();
    curl.unwrap().success()
}

fn base64(encoded: &str) -> Vec<u8> {
    use ::base64::Engine;
    ::base64::engine::general_purpose::STANDARD.decode(encoded).unwrap()
}

fn piped(command: &mut Command, input: &[u8]) -> String {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    text(&child.wait_with_output().unwrap().stdout)
}

#[test]
#[ignore = "needs the lab"]
fn a_cluster_of_real_nodes_lives_from_both_passes_to_its_end() {
    let nodes = Nodes::new(1, 1, "").with_native_control_plane();
    nodes.deploy();
    nodes.check_all();
    nodes.check_certificates();
    assert_eq!(nodes.lab.domains(&nodes.name).len(), 2, "the bootstrap is left");
    let worker = nodes.node("worker-0");
    nodes.check_the_checks(&worker);
    nodes.move_to_bridge(&worker);
    nodes.run(&["verify", &nodes.name]);
    nodes.destroy();
}

#[test]
#[ignore = "needs the lab"]
fn real_nodes_join_leave_reboot_and_stop() {
    let nodes = Nodes::new(1, 1, "").with_native_control_plane();
    nodes.deploy();

    nodes.check_the_checks(&nodes.node("worker-0"));
    nodes.run(&["scale", &nodes.name, "--workers", "2"]);
    nodes.check_all();
    nodes.check_certificates();
    nodes.with_busy_pods();
    // The budget refuses evictions until the other pod is there again.
    nodes.run(&["scale", &nodes.name, "--workers", "1"]);
    until("both pods are on the other worker", LONG, || nodes.available() == 2);
    assert_eq!(nodes.lab.domains(&nodes.name).len(), 2);

    let worker = nodes.node("worker-0");
    nodes.move_to_bridge(&worker);
    nodes.reboot(&worker);
    nodes.run(&["stop", &nodes.name]);
    let running = nodes.lab.virsh(&["list", "--name"]);
    assert!(!running.contains(&nodes.name), "{running}");
    nodes.run(&["start", &nodes.name]);
    nodes.check_all();
    nodes.run(&["verify", &nodes.name]);
    nodes.destroy();
}

/// The control plane too is in the guests: the bootstrap's etcd gets members, the masters' API takes over.
#[test]
#[ignore = "needs the lab"]
fn the_masters_take_over_from_the_bootstrap() {
    let nodes = Nodes::new(1, 1, "bootstrap_numcpus=2\nnumcpus=2\n");
    nodes.deploy();
    nodes.check_all();
    nodes.check_certificates();
    nodes.destroy();
}

impl Nodes {
    fn destroy(&self) {
        self.run(&["destroy", &self.name, "--yes"]);
        assert_eq!(self.lab.inventory(&self.name), BTreeSet::new());
    }
}
