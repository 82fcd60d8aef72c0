//! Typical hosts of users: bridges with another DHCP server, a firewall that drops forwarded packets, a
//! pool that virtlogd cannot write to.
//!
//! `tests/lab/test.sh` runs these in the lab's network namespace.

#![cfg(feature = "libvirt")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ocpdeploy::state::journal;
use ocpdeploy::state::parameters::NodeAddress;

use super::two_passes::{Lab, succeeded};

/// A network namespace at the end of a cable.
struct Outside {
    namespace: String,
    near: String,
    pid_file: PathBuf,
}

impl Outside {
    /// `near` is the device at our end, `far` the address at the other end, with its prefix length.
    fn new(near: &str, far: &str, folder: &std::path::Path) -> Self {
        let outside = Self {
            namespace: format!("{near}-outside"),
            near: near.to_owned(),
            pid_file: folder.join(format!("{near}.pid")),
        };
        let name = &outside.namespace;
        run("ip", &format!("netns add {name}"));
        lay_cable(near, "outside0", name);
        run("ip", &format!("-n {name} link set lo up"));
        run("ip", &format!("-n {name} address add {far} dev outside0"));
        outside
    }

    /// A DHCP server whose leases the guests' host does not know.
    fn serve_dhcp(&self, range: &str) {
        let (name, pid_file) = (&self.namespace, self.pid_file.display());
        let leases = self.pid_file.with_extension("leases");
        let options = "--no-resolv --no-hosts --port=0 --interface=outside0 --bind-interfaces";
        let leases = leases.display();
        run(
            "ip",
            &format!(
                "netns exec {name} dnsmasq {options} --dhcp-range={range} --dhcp-leasefile={leases} --pid-file={pid_file}"
            ),
        );
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        if let Ok(pid) = std::fs::read_to_string(&self.pid_file) {
            let _ = Command::new("kill").arg(pid.trim()).status();
        }
        // The namespace is removed later than its name.
        let _ = Command::new("ip").args(["link", "delete", &self.near]).status();
        let _ = Command::new("ip").args(["netns", "delete", &self.namespace]).status();
    }
}

/// Runs a command at the end of a test, also after a failure.
pub(super) struct Finally(pub(super) &'static str, pub(super) String);

impl Drop for Finally {
    fn drop(&mut self) {
        let _ = Command::new(self.0).args(self.1.split_whitespace()).status();
    }
}

/// A cable from here to another network namespace, up at both ends.
#[track_caller]
pub(super) fn lay_cable(near: &str, far: &str, namespace: &str) {
    let ends = format!("link add {near} type veth peer name {far} netns {namespace}");
    run("ip", &ends);
    run("ip", &format!("link set {near} up"));
    run("ip", &format!("-n {namespace} link set {far} up"));
}

#[track_caller]
pub(super) fn run(program: &str, arguments: &str) {
    let status = Command::new(program)
        .args(arguments.split_whitespace())
        .status()
        .unwrap();
    assert!(status.success(), "{program} {arguments}");
}

pub(super) fn change_env(lab: &Lab, cluster: &str, change: impl FnOnce(String) -> String) {
    let path = lab.env(cluster);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, change(text)).unwrap();
}

/// Notes when each DHCPACK passes a device.
pub(super) struct Acks {
    listener: Child,
    file: PathBuf,
}

impl Acks {
    pub(super) fn on(device: &str, folder: &Path) -> Self {
        // A frame's UDP source port 67, BOOTP reply, first option "message type 5".
        const LISTEN: &str = "import socket, sys, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind((sys.argv[1], 0))
while True:
    p = s.recv(2048)
    if p[23:24] == bytes([17]) and p[34:36] == bytes([0, 67]) and p[282:285] == bytes([53, 1, 5]):
        print(time.time(), p[70:76].hex(':'), flush=True)
";
        let file = folder.join("acks");
        let listener = Command::new("python3")
            .args(["-c", LISTEN, device])
            .stdout(std::fs::File::create(&file).unwrap())
            .spawn()
            .unwrap();
        Self { listener, file }
    }

    /// Prints the time from a machine's DHCPACK until its address was known; `pass_two` is the method of pass two.
    pub(super) fn print_figures(&self, lab: &Lab, cluster: &str, pass_two: Option<&str>) {
        let text = std::fs::read_to_string(&self.file).unwrap();
        let acks: Vec<(f64, &str)> = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(time, mac)| (time.parse().unwrap(), mac))
            .collect();
        let leases = lab.parameters(cluster).unwrap().leases();
        let mut figures: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for entry in journal::read(&lab.home().cluster(cluster).journal()).unwrap() {
            let known = entry.time.as_microsecond() as f64 / 1e6;
            let mut words = entry.step.split('/');
            let (way, node) = match (words.next(), words.next(), words.next(), words.next()) {
                (Some("pass-one"), Some("leases"), Some(node), None) => {
                    (entry.output[1].as_str().unwrap_or_default().to_owned(), node)
                }
                (Some("pass-two"), Some("create"), Some(node), Some("address")) if let Some(way) = pass_two => {
                    (way.to_owned(), node)
                }
                _ => continue,
            };
            let lease = leases.iter().find(|lease| lease.name.as_str() == node).unwrap();
            let mut before = acks
                .iter()
                .filter(|(time, mac)| *mac == lease.mac.to_string() && *time <= known);
            if let Some((ack, _)) = before.next_back() {
                figures.entry(way).or_default().push(known - ack);
            }
        }
        for (way, seconds) in figures {
            let shown: Vec<_> = seconds.iter().map(|seconds| format!("{seconds:.1}")).collect();
            println!("seconds from DHCPACK to known address, {way}: {}", shown.join(" "));
        }
    }
}

impl Drop for Acks {
    fn drop(&mut self) {
        let _ = self.listener.kill();
        let _ = self.listener.wait();
    }
}

/// A rehearsal on a bridge whose DHCP server libvirt does not know; returns the output.
fn rehearse_on_bridge(name: &str, subnet: &str, host_has_address: bool, more: &str) -> String {
    let lab = Lab::new();
    let (bridge, cable) = (format!("br-{name}"), format!("{name}0"));
    run("ip", &format!("link add {bridge} type bridge"));
    let _bridge = Finally("ip", format!("link delete {bridge}"));
    run("ip", &format!("link set {bridge} up"));
    if host_has_address {
        run("ip", &format!("address add {subnet}.2/24 dev {bridge}"));
    }
    let outside = Outside::new(&cable, &format!("{subnet}.1/24"), lab.folder.path());
    run("ip", &format!("link set {cable} master {bridge}"));
    outside.serve_dhcp(&format!("{subnet}.50,{subnet}.99,1h"));
    let acks = Acks::on(&cable, lab.folder.path());

    let cluster = lab.cluster(name, 1, 0);
    change_env(&lab, &cluster, |text| {
        format!("{text}network=bridge:{bridge}\nmachine_network={subnet}.0/24\n{more}")
    });
    let command = if host_has_address { "deploy" } else { "harvest" };
    let env = lab.env(&cluster);
    let output = lab
        .start(&[command, env.to_str().unwrap(), "--rehearse"])
        .wait_with_output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let table = lab.parameters(&cluster).expect("a table");
    for lease in table.leases() {
        assert!(lease.ip.to_string().starts_with(subnet), "{lease:?}");
    }
    // The table names the evidence for each. With an address on the bridge, libvirt may report it from the ARP table.
    let is_platform = |node: &NodeAddress| node.evidence.is_none();
    assert!(
        host_has_address || !table.nodes.iter().any(is_platform),
        "{:?}",
        table.nodes
    );
    acks.print_figures(&lab, &cluster, Some("planned_address"));
    lab.destroy(&cluster);
    assert!(
        lab.virsh(&["list", "--all", "--name"])
            .lines()
            .all(|name| !name.starts_with(&cluster))
    );
    said
}

#[test]
#[ignore = "needs the lab"]
fn guests_on_a_bridge_are_found_by_this_computer() {
    let said = rehearse_on_bridge("found", "192.168.77", true, "");
    assert!(
        said.contains("found on the network") || said.contains("read from its serial console"),
        "{said}"
    );
}

/// The host has no address on the bridge, so only the guests' consoles have their addresses.
#[test]
#[ignore = "needs the lab"]
fn guests_on_a_bridge_without_this_computer_report_their_address_on_the_console() {
    let said = rehearse_on_bridge("heard", "192.168.78", false, "");
    assert!(said.contains("read from its serial console"), "{said}");
    assert!(!said.contains("found on the network"), "{said}");
}

#[test]
#[ignore = "needs the lab"]
fn a_firewall_that_drops_forwarded_packets_stops_pass_one() {
    let lab = Lab::new();
    let outside = Outside::new("egress0", "10.98.0.2/24", lab.folder.path());
    run("ip", "address add 10.98.0.1/24 dev egress0");
    let namespace = &outside.namespace;
    run(
        "ip",
        &format!("netns exec {namespace} ip route add default via 10.98.0.1"),
    );
    let mut registry = Command::new("ip")
        .args(["netns", "exec", namespace, "python3", "-m", "http.server", "5000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // As on a host with Docker: forwarded packets are dropped, whatever other tables accept.
    run("nft", "add table ip dockerlike");
    let _table = Finally("nft", "delete table ip dockerlike".to_owned());
    run(
        "nft",
        "add chain ip dockerlike forward { type filter hook forward priority 0 ; policy accept ; }",
    );
    run("nft", "add rule ip dockerlike forward ip daddr 10.98.0.2 drop");

    let cluster = lab.cluster("egress", 1, 0);
    change_env(&lab, &cluster, |text| {
        format!("{text}registry_mirrors=10.98.0.2:5000/ocp=10.98.0.2:5000/ocp\n")
    });
    let output = lab.start_deploy(&cluster).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("cannot reach 10.98.0.2:5000"), "{said}");
    assert!(said.contains("nft list ruleset"), "{said}");

    run("nft", "flush chain ip dockerlike forward");
    succeeded(lab.start_deploy(&cluster));
    lab.destroy(&cluster);
    registry.kill().unwrap();
    registry.wait().unwrap();
}

/// A pool that virtlogd cannot write to, as with SELinux on Fedora.
struct PoolWithoutLogs {
    name: String,
    folder: tempfile::TempDir,
    _mount: Finally,
    _pool: Finally,
}

impl PoolWithoutLogs {
    fn new() -> Self {
        let (name, folder) = (format!("ro{}", std::process::id()), tempfile::tempdir().unwrap());
        let path = folder.path().display();
        // QEMU's user must reach it.
        run("chmod", &format!("755 {path}"));
        run(
            "virsh",
            &format!("-q -c qemu:///system pool-create-as {name} dir --target {path}"),
        );
        let pool = Finally("virsh", format!("-q -c qemu:///system pool-destroy {name}"));
        // `ip netns exec` gave each daemon a mount namespace of its own.
        let named = std::env::var("OCPDEPLOY_LAB").map_or(String::new(), |name| format!("-{name}"));
        let virtlogd = std::fs::read_to_string(format!("/run/ocpdeploy-lab{named}/virtlogd.pid")).unwrap();
        let in_virtlogd = |command: &str| format!("-t {} -m {command}", virtlogd.trim());
        run("nsenter", &in_virtlogd(&format!("mount --bind {path} {path}")));
        let mount = Finally("nsenter", in_virtlogd(&format!("umount {path}")));
        run("nsenter", &in_virtlogd(&format!("mount -o remount,ro,bind {path}")));
        Self {
            name,
            _mount: mount,
            _pool: pool,
            folder,
        }
    }
}

/// The guests' addresses are known only from console output that is read live.
#[test]
#[ignore = "needs the lab"]
fn a_machine_whose_console_cannot_be_logged_starts_and_its_console_is_read() {
    let pool = PoolWithoutLogs::new();
    let said = rehearse_on_bridge(
        "nolog",
        "192.168.79",
        false,
        &format!("libvirt_storage_pool={}\n", pool.name),
    );
    assert!(said.contains("cannot write the log of the serial console"), "{said}");
    assert!(said.contains("read from its serial console"), "{said}");
    assert_eq!(std::fs::read_dir(pool.folder.path()).unwrap().count(), 0);
}
