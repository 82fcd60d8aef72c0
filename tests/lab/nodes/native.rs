//! A control plane outside of the guests: etcd and Kubernetes run on this computer, and the nodes' static pods pass
//! connections on to them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use serde_json::Value;

use super::source;

/// Where the lab's guests reach this computer.
pub(super) const ADDRESS: &str = "192.168.122.1:7443";
/// How long the kubelets' certificates are valid, as in a cluster of a month.
const LONG_LIVED: &str = "720h";
const PROGRAMS: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// The programs by name; empty in a cluster whose masters run them.
pub(super) struct Native {
    folder: PathBuf,
    running: Arc<Mutex<BTreeMap<&'static str, Running>>>,
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ends the programs; the thread that restarts them may share them until this process has ended.
impl Drop for Native {
    fn drop(&mut self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Native {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            running: Arc::default(),
        }
    }

    /// Starts the programs whenever the installer has created certificates: an interrupted deployment may do so again.
    /// `address` is where nodes reach this computer; in a network without IPv4, it is not `ADDRESS`.
    pub(super) fn follow_installer(&self, address: &str) {
        let settings = serde_json::json!({ "native": address });
        std::fs::write(self.folder.join("settings.json"), settings.to_string()).unwrap();
        let (folder, running) = (self.folder.clone(), Arc::downgrade(&self.running));
        std::thread::spawn(move || restart_with_certificates(&folder, &running));
    }

    /// Restarts the signer of the kubelets' certificates.
    pub(super) fn sign_for(&self, duration: &str) {
        let name = "kube-controller-manager";
        let mut running = self.running.lock().unwrap();
        running.remove(name);
        running.insert(name, start(name, &self.folder, duration));
    }

    pub(super) fn sign_as_before(&self) {
        self.sign_for(LONG_LIVED);
    }
}

fn restart_with_certificates(folder: &Path, programs: &Weak<Mutex<BTreeMap<&'static str, Running>>>) {
    let mut known = String::new();
    while let Some(running) = programs.upgrade() {
        let now = std::fs::read_to_string(folder.join("root-ca.crt")).unwrap_or_default();
        if now != known && now.ends_with("-----END CERTIFICATE-----\n") {
            let mut running = running.lock().unwrap();
            running.clear();
            let _ = std::fs::remove_dir_all(folder.join("etcd"));
            running.extend(PROGRAMS.map(|name| (name, start(name, folder, LONG_LIVED))));
            known = now;
        }
        drop(running);
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Starts a program with the arguments of its static pod.
fn start(program: &str, folder: &Path, signing_duration: &str) -> Running {
    let pod = source(&format!(
        "tests/lab/nodes/release/all/opt/openshift/static-pods/{program}.json"
    ));
    let pod: Value = serde_json::from_slice(&std::fs::read(pod).unwrap()).unwrap();
    let (ip, port) = ADDRESS.split_once(':').unwrap();
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
            word.replace("@ip@", ip).replace("@signing_duration@", signing_duration)
        })
        .collect();
    let log = std::fs::File::create(format!("{folder}/{program}.log")).unwrap();
    let child = Command::new(source("target/kubernetes/bin").join(program))
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn();
    Running(child.unwrap())
}
