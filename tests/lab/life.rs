//! The commands of `docs/how-to/day-two.md` on one cluster: real guests on a real libvirt, and a
//! fake API at their VIP.
//!
//! The guests of a rehearsal play CoreOS, a strict fake plays openshift-install, and this process is the cluster's API
//! and its machine config server, on the api VIP: a node exists while its guest answers.

#![cfg(feature = "libvirt")]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ocpdeploy::cluster::{NodeName, Role};
use ocpdeploy::state::home::Home;
use ocpdeploy::state::parameters::Parameters;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::json;

use crate::support::fake_kube::authority::Authority;
use crate::support::fake_kube::server::FakeKube;
use crate::support::fake_kube::world::{MACHINE_CONFIGS, NODES, PODS, SIGNERS, World};

const DOMAIN: &str = "example.com";

/// A state folder, the fakes, and a cluster with a unique name.
struct Lab {
    folder: tempfile::TempDir,
    cluster: String,
    uri: String,
}

impl Lab {
    fn new() -> Self {
        let lab = Self {
            folder: tempfile::tempdir().unwrap(),
            cluster: format!("life{}", std::process::id()),
            uri: std::env::var("OCPDEPLOY_LAB_URI").expect("OCPDEPLOY_LAB_URI names the libvirt to test on"),
        };
        let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
        for tool in ["openshift-install", "oc"] {
            symlink(sources.join("tests/fixtures").join(tool), lab.path(tool)).unwrap();
        }
        let images = sources.join("target/images");
        let text = format!(
            "cluster={}\ndomain={DOMAIN}\nbackend=libvirt\nlibvirt_uri={}\nlibvirt_virt_type=qemu\nmasters=1\nworkers=1\nmcs=http\n\
             installer={}\nimage={}\nharvest_image={}\nharvest_memory=192\nbootstrap_memory=192\nmaster_memory=192\n\
             worker_memory=192\nnumcpus=1\nbootstrap_numcpus=1\negress_check=false\ndisk_size=1\nharvest_disk_size=1\npull_secret={}\npub_key={}\n",
            lab.cluster,
            lab.uri,
            lab.path("openshift-install").display(),
            images.join("coreos.qcow2").display(),
            images.join("helper.qcow2").display(),
            lab.path("pull-secret").display(),
            lab.path("key.pub").display(),
        );
        std::fs::write(lab.path("lab.sh"), text).unwrap();
        let secret = r#"{"auths":{"a.example.com":{"auth":"Zm9vOmJhcg=="}}}"#;
        std::fs::write(lab.path("pull-secret"), secret).unwrap();
        let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvT2Wdq2dMbFf8hh+o/a4HZMBbqvP6vpsXfB4pMJ6Ma lab\n";
        std::fs::write(lab.path("key.pub"), key).unwrap();
        lab
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn home(&self) -> Home {
        Home::new(self.path("home"))
    }

    fn table(&self) -> Parameters {
        Parameters::read(&self.home().cluster(&self.cluster).parameters())
            .unwrap()
            .unwrap()
    }

    fn workers(&self) -> Vec<String> {
        self.table()
            .of_role(Role::Worker)
            .map(|node| node.name.to_string())
            .collect()
    }

    /// Runs a line of the page: its `lab` is this cluster.
    fn run(&self, line: &str) -> Output {
        let words = line
            .split_whitespace()
            .skip(1)
            .take_while(|word| !word.starts_with('#'));
        let words: Vec<_> = words
            .map(|word| if word == "lab" { self.cluster.as_str() } else { word })
            .collect();
        let output = Command::new(env!("CARGO_BIN_EXE_ocpdeploy"))
            .args(&words)
            .env("OCPDEPLOY_HOME", self.home().root())
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let _ = writeln!(
            std::io::stderr(),
            "$ {line}\n{}",
            String::from_utf8_lossy(&output.stdout)
        );
        output
    }

    #[track_caller]
    fn succeeds(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(
            output.status.success(),
            "{line}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn is_refused(&self, line: &str, code: i32, words: &str) {
        let output = self.run(line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}\n{said}");
        assert!(said.contains(words), "{line}\n{said}");
    }

    /// The command, which begins with `verb`, asks for a confirmation.
    #[track_caller]
    fn succeeds_only_with_yes(&self, line: &str, verb: &str) {
        self.is_refused(line, 2, "--yes");
        self.succeeds(&line.replace(verb, &format!("{verb} --yes")));
    }

    fn virsh(&self, arguments: &[&str]) -> String {
        let output = Command::new("virsh")
            .args(["-q", "-c", &self.uri])
            .args(arguments)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// The cluster's domains that are in a state.
    fn domains(&self, state: &str) -> Vec<String> {
        let all = self.virsh(&["list", state, "--name"]);
        let prefix = format!("{}-", self.cluster);
        let mut names: Vec<_> = all
            .split_whitespace()
            .filter_map(|name| name.strip_prefix(&prefix))
            .map(str::to_owned)
            .collect();
        names.sort();
        names
    }

    /// All objects of the host that contain the cluster's name.
    fn inventory(&self) -> Vec<String> {
        self.virsh(&["pool-refresh", "default"]);
        let all = self.domains("--all").join("\n")
            + &self.virsh(&["vol-list", "default"])
            + &self.virsh(&["net-dumpxml", "default"]);
        all.lines()
            .filter(|line| line.contains(&self.cluster))
            .map(str::to_owned)
            .collect()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // If it was already destroyed, nothing remains.
        self.run("ocpdeploy destroy lab --yes --env lab.sh");
    }
}

/// A process that runs next to the test until it is dropped.
struct Beside {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Beside {
    fn new(mut work: impl FnMut() + Send + 'static) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let seen = ends.clone();
        let run = move || {
            while !seen.load(Ordering::Relaxed) {
                work();
                sleep(Duration::from_millis(100));
            }
        };
        let thread = Some(spawn(run));
        Self { ends, thread }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The api VIP on the host's side of the guests' network.
struct OnBridge(IpAddr);

impl OnBridge {
    fn new(ip: IpAddr) -> Self {
        assert!(Self::ip("add", ip), "{ip} can be added to virbr0");
        Self(ip)
    }

    fn ip(operation: &str, ip: IpAddr) -> bool {
        let arguments = ["address", operation, &format!("{ip}/32"), "dev", "virbr0"];
        Command::new("ip").args(arguments).status().unwrap().success()
    }
}

impl Drop for OnBridge {
    fn drop(&mut self) {
        Self::ip("delete", self.0);
    }
}

/// A machine config server that serves one file for any role.
fn machine_config_server(vip: IpAddr) -> Beside {
    let listener = TcpListener::bind((vip, 22624)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let config = json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [
        {"path": "/etc/served", "mode": 420, "contents": {"compression": "", "source": "data:,served"}}]}})
    .to_string();
    Beside::new(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            stream.set_nonblocking(false).unwrap();
            let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
            let _ = stream.read(&mut [0; 4096]);
            let (bytes, head) = (
                config.len(),
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n",
            );
            let _ = write!(stream, "{head}Content-Length: {bytes}\r\n\r\n{config}");
        }
    })
}

/// A Secret with a signer that lives for as many days.
fn signer(days: u8) -> serde_json::Value {
    let mut params = CertificateParams::default();
    params.not_before = date_time_ymd(2026, 11, 1);
    params.not_after = date_time_ymd(2026, 11, 1 + days);
    let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
    json!({"apiVersion": "v1", "kind": "Secret", "data": {"tls.crt": STANDARD.encode(certificate)},
        "metadata": {"name": "csr-signer", "namespace": "openshift-kube-controller-manager-operator"}})
}

/// The commands of the page, in their order.
fn commands() -> Vec<String> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/how-to/day-two.md")).unwrap();
    let block = page.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    block
        .lines()
        .filter(|line| line.starts_with("ocpdeploy "))
        .map(str::to_owned)
        .collect()
}

#[test]
#[ignore = "needs the lab"]
fn all_commands_of_the_day_two_page_work() {
    let lab = Lab::new();
    let authority = Authority::new();
    let host = |name: &str| format!("{name}.{}.{DOMAIN}", lab.cluster);
    let server = format!("https://{}:6443", host("api"));
    std::fs::write(lab.path("kubeconfig"), authority.kubeconfig(&lab.cluster, &server)).unwrap();
    lab.succeeds("ocpdeploy harvest lab.sh");

    // The cluster's API starts at the VIP; its nodes exist while their guests answer.
    let table = lab.table();
    let _vip = OnBridge::new(table.api_ip);
    let _mcs = machine_config_server(table.api_ip);
    let alive = Arc::new(Mutex::new(BTreeSet::<NodeName>::new()));
    let mut world = World::new(table.clone()).hostile();
    let seen = alive.clone();
    world.present = Some(Box::new(move |node| seen.lock().unwrap().contains(node)));
    let certificate = authority.server(&host("api"), |_| {});
    let kube = FakeKube::start(world, SocketAddr::from((table.api_ip, 6443)), &authority, &certificate);
    let (world, path) = (kube.world.clone(), lab.home().cluster(&lab.cluster).parameters());
    let _look = Beside::new(move || {
        let Ok(Some(table)) = Parameters::read(&path) else {
            return;
        };
        for node in &table.nodes {
            let guest = SocketAddr::from((node.ip, 8080));
            let answers = TcpStream::connect_timeout(&guest, Duration::from_millis(300)).is_ok();
            let mut alive = alive.lock().unwrap();
            match answers {
                true => alive.insert(node.name.clone()),
                false => alive.remove(&node.name),
            };
        }
        world.lock().unwrap().learn(table);
    });

    for line in commands() {
        let verbs: Vec<&str> = line
            .split_whitespace()
            .skip(1)
            .take_while(|word| !word.starts_with('#'))
            .collect();
        match verbs.as_slice() {
            ["deploy", ..] => {
                let said = lab.succeeds(&line);
                assert!(said.contains(" is installed\n"), "{said}");
                assert_eq!(lab.domains("--state-running"), ["master-0", "worker-0"]);
            }
            ["scale", _, "--workers", count] => {
                // A pod that can be evicted from any node.
                kube.with(|world| {
                    world.put(PODS, json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": host("worker-1"), "containers": []},
                        "metadata": {"name": "app", "namespace": "shop", "ownerReferences":
                            [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app", "uid": "1", "controller": true}]}}));
                });
                match lab.workers().len() > count.parse::<usize>().unwrap() {
                    true => lab.succeeds_only_with_yes(&line, "ocpdeploy scale"),
                    false => drop(lab.succeeds(&line)),
                }
                let workers: Vec<_> = (0..count.parse().unwrap())
                    .map(|index| format!("worker-{index}"))
                    .collect();
                assert_eq!(lab.workers(), workers);
                let running = [&["master-0".to_owned()], &workers[..]].concat();
                assert_eq!(lab.domains("--state-running"), running);
                let nodes: Vec<_> = running.iter().map(|node| host(node)).collect();
                let joined = kube.with(|world| nodes.iter().filter(|node| world.get(NODES, node).is_some()).count());
                assert_eq!(joined, nodes.len());
                assert_eq!(
                    kube.with(|world| world.get(NODES, &host("worker-2")).is_some()),
                    workers.len() > 2
                );
                assert!(kube.with(|world| world.get(MACHINE_CONFIGS, "99-worker-ocpdeploy").is_some()));
            }
            ["stop", ..] => {
                lab.is_refused(&line, 4, "must not be stopped yet");
                kube.with(|world| {
                    world.put(SIGNERS, signer(28));
                    world.certificates_ended = true;
                });
                lab.succeeds(&line);
                assert_eq!(lab.domains("--state-running"), [""; 0]);
            }
            ["start", ..] => {
                lab.succeeds(&line);
                assert_eq!(lab.domains("--state-shutoff"), [""; 0]);
                let again = kube.with(|world| world.approved.iter().filter(|name| name.contains("-again-")).count());
                assert_eq!(again, lab.workers().len() + 1, "each node got a new certificate");
            }
            ["snapshot", "save", ..] => {
                // The guests have no SSH server, which an etcd backup requires.
                lab.succeeds(&line.replace("snapshot save", "snapshot save --no-backup"));
                assert_eq!(lab.domains("--state-shutoff"), [""; 0]);
            }
            ["snapshot", "restore", ..] => {
                lab.succeeds_only_with_yes(&line, "snapshot restore");
                assert_eq!(lab.domains("--state-shutoff"), [""; 0]);
            }
            ["node", "ssh" | "console", ..] => drop(lab.run(&line)),
            ["node", "replace", ..] => lab.succeeds_only_with_yes(&line, "node replace"),
            ["destroy", ..] => {
                lab.succeeds(&line);
                assert_eq!(lab.inventory(), [""; 0]);
            }
            _ => drop(lab.succeeds(&line)),
        }
    }
    let world = kube.finish();
    assert_eq!(
        world.wrongly_approved(),
        [""; 0],
        "a request was approved that should not be"
    );
    for line in [
        "scale lab --workers 3",
        "stop lab",
        "start lab",
        "verify lab",
        "destroy lab",
    ] {
        let is_shown = commands().iter().any(|shown| shown.contains(line));
        assert!(is_shown, "the page does not show `{line}`");
    }
}
