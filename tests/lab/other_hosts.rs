//! Other libvirt hosts than the lab's: over SSH, only for workers, after a power failure, for users without root.
//!
//! Each host is a named lab (`OCPDEPLOY_LAB`) with its own daemons, folders, host name and networks.

#![cfg(feature = "libvirt")]

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::hosts::{Acks, change_env, lay_cable, run};
use super::two_passes::{Lab, succeeded};
use crate::support::sshd::make_key;

/// A libvirt host in a separate namespace, at the end of a cable. Created before its `Lab`, so that a failed test can
/// destroy its clusters on it.
struct Host {
    name: String,
    ssh: Option<Ssh>,
}

/// A real sshd on the host, and the files of its client.
struct Ssh {
    folder: PathBuf,
    server: Child,
}

/// The addresses of the cable to the host.
const NEAR: &str = "10.97.0.1/30";
const FAR: &str = "10.97.0.2";

/// A routed network of the host, so that its guests can be reached from here.
const ROUTED: &str = "<network><name>routed</name><bridge name='virbr9'/><forward mode='route'/>\
    <ip address='192.168.131.1' netmask='255.255.255.0'><dhcp>\
    <range start='192.168.131.2' end='192.168.131.254'/></dhcp></ip></network>";

impl Host {
    fn new(purpose: &str) -> Self {
        let name = format!("{purpose}{}", std::process::id());
        let host = Self { name, ssh: None };
        host.lab_sh(&["up"]);
        host
    }

    fn namespace(&self) -> String {
        format!("ocpdeploy-lab-{}", self.name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/lab.sh");
        let mut command = Command::new(script);
        command.args(arguments).env("OCPDEPLOY_LAB", &self.name);
        command
    }

    #[track_caller]
    fn lab_sh(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn virsh(&self, arguments: &[&str]) -> String {
        self.lab_sh(&[&["exec", "virsh", "-q"], arguments].concat())
    }

    /// The domains and volumes of any cluster.
    fn remains(&self) -> String {
        self.virsh(&["pool-refresh", "default"]);
        self.virsh(&["list", "--all", "--name"]).trim().to_owned() + self.virsh(&["vol-list", "default"]).trim()
    }

    fn connect_cable(&self) {
        let near = format!("c{}", std::process::id());
        let namespace = self.namespace();
        lay_cable(&near, "cable", &namespace);
        run("ip", &format!("address add {NEAR} dev {near}"));
        run("ip", &format!("-n {namespace} address add {FAR}/30 dev cable"));
        run("ip", &format!("route add 192.168.131.0/24 via {FAR}"));
    }

    /// Starts sshd with a new host key; it accepts one key.
    fn serve_ssh(&mut self, folder: &Path) {
        let folder = folder.join("ssh");
        if !folder.exists() {
            std::fs::create_dir(&folder).unwrap();
            for key in ["host_key", "id_ed25519"] {
                make_key(&folder.join(key));
            }
            let public = |key: &str| std::fs::read_to_string(folder.join(key).with_extension("pub")).unwrap();
            std::fs::write(folder.join("authorized_keys"), public("id_ed25519")).unwrap();
            let at = folder.display();
            let config = format!(
                "HostKey {at}/host_key\nAuthorizedKeysFile {at}/authorized_keys\nStrictModes no\nUsePAM no\n\
                 PidFile none\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n"
            );
            std::fs::write(folder.join("sshd_config"), config).unwrap();
        }
        std::fs::create_dir_all("/run/sshd").unwrap();
        let config = folder.join("sshd_config").display().to_string();
        let server = self
            .command(&["exec", "/usr/sbin/sshd", "-D", "-e", "-f", &config])
            .stderr(std::fs::File::create(folder.join("sshd.log")).unwrap())
            .spawn()
            .unwrap();
        self.ssh = Some(Ssh { folder, server });
        within(20, "sshd answers", || std::net::TcpStream::connect((FAR, 22)).is_ok());
    }

    /// Puts this host's keys into the user's known_hosts, or removes them.
    fn be_known_to(&self, lab: &mut Lab, known: bool) {
        let folder = &self.ssh.as_ref().unwrap().folder;
        let key = std::fs::read_to_string(folder.join("host_key.pub")).unwrap();
        let line = if known { format!("{FAR} {key}") } else { String::new() };
        std::fs::write(folder.join("known_hosts"), line).unwrap();
        let mount = format!(
            "mkdir -p -m 700 ~/.ssh && mount --bind {} ~/.ssh && exec \"$@\"",
            folder.display()
        );
        lab.around = ["unshare", "--mount", "sh", "-c", &mount, "sh"]
            .map(str::to_owned)
            .into();
    }

    /// Ends everything on the host at once, and boots it again.
    fn lose_power(&mut self) {
        self.lab_sh(&["crash"]);
        if let Some(mut ssh) = self.ssh.take() {
            ssh.server.wait().unwrap();
        }
        self.lab_sh(&["up"]);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for what in ["crash", "down"] {
            let _ = self.command(&[what]).stdout(Stdio::null()).status();
        }
        if let Some(ssh) = &mut self.ssh {
            let _ = ssh.server.wait();
        }
    }
}

/// `qemu+ssh` to the other end of the cable.
fn over_ssh() -> String {
    format!("qemu+ssh://root@{FAR}/system?no_tty=1")
}

#[track_caller]
fn within(seconds: u64, what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(
            begun.elapsed() < Duration::from_secs(seconds),
            "not within {seconds} s: {what}"
        );
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Exit code and output.
fn outcome(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code(), said.into_owned())
}

/// Attaches to a console on a terminal, and detaches; returns the output.
fn attach_and_leave(lab: &Lab, node: &str, cluster: &str) -> String {
    let mut words = lab.around.clone();
    words.push(env!("CARGO_BIN_EXE_ocpdeploy").to_owned());
    let quoted: Vec<String> = words
        .iter()
        .map(|word| format!("'{}'", word.replace('\'', r"'\''")))
        .collect();
    let line = format!("{} node console {cluster} {node} --interactive", quoted.join(" "));
    let mut child = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .env("OCPDEPLOY_HOME", lab.folder.path().join("home"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut seen = String::new();
    let mut screen = child.stdout.take().unwrap();
    let mut bytes = [0; 4096];
    while !seen.contains("attached to the console") {
        let count = screen.read(&mut bytes).unwrap();
        assert!(count > 0, "{seen}");
        seen += &String::from_utf8_lossy(&bytes[..count]);
    }
    child.stdin.take().unwrap().write_all(b"\r\x1d").unwrap();
    screen.read_to_string(&mut seen).unwrap();
    assert!(child.wait().unwrap().success(), "{seen}");
    seen
}

#[test]
#[ignore = "needs the lab"]
fn a_host_over_ssh_and_after_a_power_failure() {
    let mut host = Host::new("ssh");
    let mut lab = Lab::new();
    host.connect_cable();
    host.serve_ssh(lab.folder.path());
    let routed = lab.folder.path().join("routed.xml");
    std::fs::write(&routed, ROUTED).unwrap();
    host.virsh(&["net-define", routed.to_str().unwrap()]);
    host.virsh(&["net-autostart", "routed"]);
    host.virsh(&["net-start", "routed"]);
    host.virsh(&["pool-autostart", "default"]);

    lab.uri = over_ssh();
    let cluster = lab.cluster("ssh", 1, 0);
    change_env(&lab, &cluster, |text| format!("{text}network=routed\nautostart=true\n"));
    host.be_known_to(&mut lab, false);
    let (code, said) = outcome(lab.start_deploy(&cluster));
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("Host key verification failed"), "{said}");
    assert!(said.contains(&format!("`ssh root@{FAR}`")), "{said}");

    host.be_known_to(&mut lab, true);
    let begun = Instant::now();
    let table = succeeded(lab.start_deploy(&cluster));
    println!("rehearsal over qemu+ssh: {} s", begun.elapsed().as_secs());
    assert_eq!(table.matches(" yes ").count(), 2, "a guest is not as planned:\n{table}");
    let lines = succeeded(lab.start(&["node", "console", &cluster, "master-0"]));
    assert!(!lines.trim().is_empty(), "the console has no lines");
    attach_and_leave(&lab, "master-0", &cluster);

    let begun = Instant::now();
    host.lose_power();
    host.connect_cable();
    host.serve_ssh(lab.folder.path());
    within(120, "verify is green after the power failure", || {
        outcome(lab.start(&["verify", &cluster])).0 == Some(0)
    });
    let master = lab
        .parameters(&cluster)
        .unwrap()
        .nodes
        .into_iter()
        .find(|node| node.name.as_str() == "master-0");
    let (ip, port) = (master.unwrap().ip, 8080);
    within(120, "its guest answers", || {
        std::net::TcpStream::connect((ip, port)).is_ok()
    });
    println!("power failure to a guest that answers: {} s", begun.elapsed().as_secs());
    let status = succeeded(lab.start(&["status", &cluster]));
    assert!(status.contains("running"), "{status}");
    lab.destroy(&cluster);
    assert_eq!(host.remains(), "");
}

impl Host {
    /// Connects a new bridge of the host, without an address, to a bridge on this side.
    fn share(&self, near_bridge: &str, bridge: &str) {
        let near = format!("s{}", std::process::id());
        let namespace = self.namespace();
        lay_cable(&near, "shared", &namespace);
        run("ip", &format!("link set {near} master {near_bridge}"));
        run("ip", &format!("-n {namespace} link add {bridge} type bridge"));
        run("ip", &format!("-n {namespace} link set {bridge} up"));
        run("ip", &format!("-n {namespace} link set shared master {bridge}"));
    }

    /// Runs the program on the host, as a user with these groups.
    fn log_in(&self, lab: &mut Lab, groups: &str) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/lab.sh");
        let (script, name) = (script.display().to_string(), format!("OCPDEPLOY_LAB={}", self.name));
        let home = format!("HOME={}", lab.folder.path().display());
        let user = ["setpriv", "--reuid=nobody", "--regid=nogroup", groups, "env", &home];
        lab.around = [&["env", &name, &script, "exec"], &user[..]]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect();
    }
}

/// As with kcli: the masters on one host, the workers on another, on one network.
#[test]
#[ignore = "needs the lab"]
fn workers_on_a_second_host() {
    let mut host = Host::new("two");
    let mut lab = Lab::new();
    host.connect_cable();
    host.serve_ssh(lab.folder.path());
    host.be_known_to(&mut lab, true);
    host.share("virbr0", "br-w");

    let cluster = lab.cluster("two", 1, 1);
    let env = lab.env(&cluster).display().to_string();
    let elsewhere = format!("libvirt_worker_uri={}", over_ssh());
    change_env(&lab, &cluster, |text| {
        format!("{text}{elsewhere}\nworker_network=default\n")
    });
    // Each host has a network of this name, with a DHCP server of its own.
    let (code, said) = outcome(lab.start_deploy(&cluster));
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("these are two networks"), "{said}");
    assert_eq!((host.remains().as_str(), lab.domains(&cluster).len()), ("", 0));

    change_env(&lab, &cluster, |text| {
        text.replace("worker_network=default", "worker_network=bridge:br-w")
    });
    let checked = succeeded(lab.start(&["check", &env, "--rehearse"]));
    assert!(checked.contains("br-w"), "{checked}");
    let acks = Acks::on("virbr0", lab.folder.path());
    let begun = Instant::now();
    let table = succeeded(lab.start_deploy(&cluster));
    println!("rehearsal on two hosts: {} s", begun.elapsed().as_secs());
    assert_eq!(table.matches(" yes ").count(), 3, "a guest is not as planned:\n{table}");
    assert_eq!(lab.domains(&cluster), [format!("{cluster}-master-0")]);
    assert_eq!(host.virsh(&["list", "--name"]).trim(), format!("{cluster}-worker-0"));
    // The first host serves the network's DHCP, also for guests of the second.
    let worker = &lab
        .parameters(&cluster)
        .unwrap()
        .leases()
        .into_iter()
        .find(|lease| lease.name.as_str() == "worker-0");
    let mac = worker.as_ref().unwrap().mac.to_string();
    assert!(lab.virsh(&["net-dumpxml", "default"]).contains(&mac));

    acks.print_figures(&lab, &cluster, None);

    let status = succeeded(lab.start(&["status", &cluster]));
    assert!(
        status.contains(&format!("workers on libvirt {}", over_ssh())),
        "{status}"
    );
    let (code, said) = outcome(lab.start(&["verify", &cluster]));
    assert_eq!(code, Some(0), "{said}");
    let lines = succeeded(lab.start(&["node", "console", &cluster, "worker-0"]));
    assert!(!lines.trim().is_empty(), "the console has no lines");
    lab.destroy(&cluster);
    assert_eq!((host.remains().as_str(), lab.domains(&cluster).len()), ("", 0));
    assert!(!lab.virsh(&["net-dumpxml", "default"]).contains(&cluster));
}

#[test]
#[ignore = "needs the lab"]
fn users_without_root() {
    let host = Host::new("user");
    let mut lab = Lab::new();
    lab.uri = "qemu:///system".to_owned();
    let cluster = lab.cluster("user", 1, 0);
    let env = lab.env(&cluster).display().to_string();
    run("chown", &format!("-R nobody: {}", lab.folder.path().display()));

    host.log_in(&mut lab, "--clear-groups");
    let (code, said) = outcome(lab.start_deploy(&cluster));
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("add this user to the group `libvirt`"), "{said}");
    assert_eq!(host.remains(), "");
    assert_eq!(lab.parameters(&cluster), None);

    host.log_in(&mut lab, "--groups=libvirt");
    let (_, checked) = outcome(lab.start(&["check", &env, "--rehearse"]));
    assert!(checked.contains("as a user who may write there"), "{checked}");
    let begun = Instant::now();
    let (code, said) = outcome(lab.start_deploy(&cluster));
    println!(
        "rehearsal as a user of the group libvirt: {} s",
        begun.elapsed().as_secs()
    );
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said.matches(" yes ").count(), 2, "a guest is not as planned:\n{said}");
    assert!(
        said.contains("VRRP ids in use cannot be detected without root"),
        "{said}"
    );
    let lines = succeeded(lab.start(&["node", "console", &cluster, "master-0"]));
    assert!(!lines.trim().is_empty(), "the console has no lines");
    attach_and_leave(&lab, "master-0", &cluster);
    let (code, said) = outcome(lab.start(&["verify", &cluster]));
    assert_eq!(code, Some(0), "{said}");
    lab.destroy(&cluster);
    assert_eq!(host.remains(), "");
}

#[test]
#[ignore = "needs the lab"]
fn a_network_that_goes_away_in_the_middle() {
    let host = Host::new("net");
    let mut lab = Lab::new();
    lab.uri = "qemu:///system".to_owned();
    let cluster = lab.cluster("net", 1, 0);
    run("chown", &format!("-R nobody: {}", lab.folder.path().display()));
    host.log_in(&mut lab, "--groups=libvirt");
    let deploy = lab.start_deploy(&cluster);
    within(60, "pass one has machines", || {
        host.virsh(&["list", "--name"]).matches("-harvest-").count() == 2
    });
    within(60, "both nodes and both virtual IPs are reserved", || {
        host.virsh(&["net-dumpxml", "default"]).matches("<host mac=").count() == 4
    });
    // An undefined network exists until it is stopped.
    host.virsh(&["net-undefine", "default"]);
    host.virsh(&["net-destroy", "default"]);
    let begun = Instant::now();
    let (code, said) = outcome(deploy);
    println!("a deleted network is noticed after {} s", begun.elapsed().as_secs());
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("network `default` does not exist"), "{said}");
    assert!(said.contains(&format!("`ocpdeploy destroy {cluster}`")), "{said}");
    lab.destroy(&cluster);
    assert_eq!(host.remains(), "");
}
