//! A cluster of the lab and its clients: the program, ssh to its nodes, kubectl.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ocpdeploy::cluster::Role;
use ocpdeploy::state::parameters::{NodeAddress, Parameters};
use serde_json::Value;

use super::super::two_passes::Lab;
use super::native::{self, Native};
use super::{source, text, until};
use crate::support::fake_installer;

/// A cluster whose installer uses the release in `tests/lab/nodes/release`.
pub(super) struct Nodes {
    pub(super) lab: Lab,
    pub(super) name: String,
    /// Its control plane outside of the guests.
    pub(super) native: Native,
    /// The ssh-agent with the key to the nodes, as in a user's session.
    agent: Child,
}

impl Nodes {
    pub(super) fn new(masters: usize, workers: usize, settings: &str) -> Self {
        let mut lab = Lab::new();
        let folder = lab.folder.path().to_owned();
        let folder = folder.as_path();
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
            "cluster={name}\ndomain=example.com\nbackend=libvirt\nlibvirt_uri={}\nlibvirt_virt_type=qemu\n\
             masters={masters}\nworkers={workers}\n{}image={}/node.qcow2\nharvest_image={}/helper.qcow2\n\
             master_memory=3072\nbootstrap_memory=2560\nworker_memory=1536\nharvest_memory=192\n\
             bootstrap_timeout=40m\ninstall_timeout=40m\negress_check=false\n{cpus}{settings}",
            lab.uri,
            fake_installer::LINES,
            images.display(),
            images.display(),
        );
        std::fs::write(lab.env(&name), text).unwrap();
        let agent = start_agent(&folder.join("agent"), &key);
        lab.around = vec![
            "env".to_owned(),
            format!("SSH_AUTH_SOCK={}", folder.join("agent").display()),
        ];
        let native = Native::new(folder);
        Self {
            lab,
            name,
            native,
            agent,
        }
    }

    pub(super) fn deploy(&self) {
        let begun = Instant::now();
        self.run(&["deploy", self.lab.env(&self.name).to_str().unwrap()]);
        eprintln!("deployed within {:.0} s", begun.elapsed().as_secs_f64());
    }

    /// Destroys the cluster except its addresses, and deploys it again, without pass one.
    pub(super) fn deploy_again(&self) {
        let table = self.table();
        self.run(&["destroy", &self.name, "--yes", "--keep-addresses"]);
        assert_eq!(self.lab.domains(&self.name), Vec::<String>::new());
        let begun = Instant::now();
        let env = self.lab.env(&self.name);
        let report = self.run(&["deploy", env.to_str().unwrap(), "--format", "json"]);
        eprintln!("deployed again within {:.0} s", begun.elapsed().as_secs_f64());
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["pass_one_skipped"], true);
        assert_eq!(self.table().nodes, table.nodes);
    }

    /// With its control plane on this computer.
    pub(super) fn with_native_control_plane(self) -> Self {
        self.with_native_control_plane_at(native::ADDRESS)
    }

    /// As `with_native_control_plane`, where nodes reach this computer at another address.
    pub(super) fn with_native_control_plane_at(self, address: &str) -> Self {
        self.native.follow_installer(address);
        self
    }

    /// Kills a deployment within this many seconds, unless it ends before.
    pub(super) fn kill_a_deployment(&self, seconds: u64) {
        let moment = RandomState::new().build_hasher().finish() % (seconds * 1000);
        let env = self.lab.env(&self.name);
        let mut child = self.lab.start(&["deploy", env.to_str().unwrap()]);
        std::thread::sleep(Duration::from_millis(moment));
        let _ = child.kill();
        let output = child.wait_with_output().unwrap();
        let err = text(&output.stderr);
        let last = err.lines().last().unwrap_or_default();
        eprintln!("killed after {:.1} s: {last}", moment as f64 / 1000.0);
    }

    pub(super) fn destroy(&self) {
        self.run(&["destroy", &self.name, "--yes"]);
        assert_eq!(self.lab.inventory(&self.name), BTreeSet::new());
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.lab.folder.path().join(name)
    }

    /// Runs the program, which must succeed; its output becomes this test's output, with time stamps.
    #[track_caller]
    pub(super) fn run(&self, arguments: &[&str]) -> String {
        let output = self.lab.start(arguments).wait_with_output().unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        eprintln!("──── ocpdeploy {}\n{err}{out}", arguments.join(" "));
        assert!(output.status.success());
        out
    }

    pub(super) fn table(&self) -> Parameters {
        self.lab.parameters(&self.name).expect("a parameter file")
    }

    /// Masters and workers.
    pub(super) fn nodes(&self) -> Vec<NodeAddress> {
        let mut nodes = self.table().nodes;
        nodes.retain(|node| node.role != Role::Bootstrap);
        nodes
    }

    pub(super) fn node(&self, name: &str) -> NodeAddress {
        let found = self.nodes().into_iter().find(|node| node.name.as_str() == name);
        found.unwrap_or_else(|| panic!("the table has no {name}"))
    }

    /// `ssh` to a node, with one shared connection: an emulated guest takes many seconds to accept another one.
    fn ssh(&self, node: &NodeAddress) -> Command {
        let mut ssh = Command::new("timeout");
        ssh.args(["120", "ssh", "-q", "-i"])
            .arg(self.path("key"))
            .arg("-o")
            .arg(format!("ControlPath={}", self.path("ssh-%h").display()));
        for option in [
            "ControlMaster=auto",
            "ControlPersist=60",
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "ConnectTimeout=10",
            // A guest that was switched off does not end its connections.
            "ServerAliveInterval=10",
        ] {
            ssh.args(["-o", option]);
        }
        ssh.arg(format!("core@{}", node.ip));
        ssh
    }

    /// Runs a script on a node as root.
    pub(super) fn try_on(&self, node: &NodeAddress, script: &str) -> Output {
        let mut child = self
            .ssh(node)
            .arg("sudo bash -s")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// The output of a script, which must succeed.
    #[track_caller]
    pub(super) fn on(&self, node: &NodeAddress, script: &str) -> String {
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

    /// Prints the journals of the nodes after a failure.
    fn show_journals(&self) {
        let table = self.lab.parameters(&self.name);
        for node in table.map(|table| table.nodes).unwrap_or_default() {
            let units = "-u bootkube -u operators -u kubelet -u ocpdeploy-resolver -u ocpdeploy-dns";
            let script = format!(
                "systemctl --failed --no-legend; ip -o addr; cat /etc/resolv.conf; journalctl -b --no-pager -q -n 60 {units}; \
                 tail -n 20 /var/log/pods/*/*/*.log"
            );
            let output = self.try_on(&node, &script);
            eprintln!("──── {}\n{}{}", node.name, text(&output.stdout), text(&output.stderr));
        }
    }

    /// The administrator's kubectl, with the kubeconfig of the deployment.
    pub(super) fn kubectl(&self, arguments: &[&str]) -> Output {
        let kubeconfig = self.lab.home().cluster(&self.name).kubeconfig();
        let table = self.table();
        Command::new("timeout")
            .args(["60", "kubectl", "--kubeconfig"])
            .arg(kubeconfig)
            // This computer does not resolve the name.
            .arg(format!("--server=https://{}", SocketAddr::new(table.api_ip, 6443)))
            .arg(format!("--tls-server-name={}", table.cluster_domain().fqdn("api")))
            .args(arguments)
            .env("HOME", self.lab.folder.path())
            .output()
            .unwrap()
    }

    #[track_caller]
    pub(super) fn get(&self, arguments: &[&str]) -> Value {
        let words = [&["get", "-o", "json"], arguments].concat();
        let output = self.kubectl(&words);
        assert!(output.status.success(), "kubectl {words:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// An ssh-agent at this socket, with this key.
fn start_agent(socket: &Path, key: &Path) -> Child {
    let child = Command::new("ssh-agent")
        .arg("-D")
        .arg("-a")
        .arg(socket)
        .stdout(Stdio::null())
        .spawn();
    let child = child.unwrap();
    until("the agent has the key", Duration::from_secs(30), || {
        let mut add = Command::new("ssh-add");
        add.arg("-q")
            .arg(key)
            .env("SSH_AUTH_SOCK", socket)
            .stderr(Stdio::null());
        add.status().unwrap().success()
    });
    child
}

impl Drop for Nodes {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.show_journals();
        }
        let _ = self.agent.kill();
        let _ = self.agent.wait();
        // Also connections to guests that have ended.
        let files = std::fs::read_dir(self.lab.folder.path());
        for file in files.into_iter().flatten().flatten() {
            if file.file_name().as_encoded_bytes().starts_with(b"ssh-") {
                let socket = format!("ControlPath={}", file.path().display());
                let mut exit = Command::new("ssh");
                let _ = exit.args(["-q", "-O", "exit", "-o", &socket, "node"]).status();
            }
        }
    }
}
