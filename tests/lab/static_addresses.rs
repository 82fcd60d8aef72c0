//! `dhcp=none` on a network of libvirt without a DHCP server.
//!
//! `tests/lab/test.sh` runs this in the lab's network namespace.

#![cfg(feature = "libvirt")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use ocpdeploy::cluster::Role;

use super::hosts::{Finally, change_env};
use super::two_passes::{Lab, succeeded};

/// A network of this lab's libvirt that has a gateway and a DNS server, but no DHCP server.
pub(super) struct WithoutDhcp<'l> {
    pub(super) name: &'static str,
    lab: &'l Lab,
    requests: DhcpRequests,
}

impl<'l> WithoutDhcp<'l> {
    /// `third` is the third number of its addresses.
    pub(super) fn new(lab: &'l Lab, name: &'static str, third: u8) -> Self {
        let path = lab.folder.path().join(format!("{name}.xml"));
        let xml = format!(
            "<network><name>{name}</name><bridge name='{name}'/><forward/>\
             <ip address='192.168.{third}.1' netmask='255.255.255.0'/></network>"
        );
        std::fs::write(&path, xml).unwrap();
        lab.virsh(&["net-create", path.to_str().unwrap()]);
        let requests = DhcpRequests::on(name, lab.folder.path());
        Self { name, lab, requests }
    }

    /// No node has asked for an address so far.
    #[track_caller]
    pub(super) fn assert_silent(&mut self) {
        let is_listening = self.requests.listener.try_wait().unwrap().is_none();
        assert!(is_listening, "nobody listens");
        assert_eq!(std::fs::read_to_string(&self.requests.file).unwrap(), "");
    }
}

impl Drop for WithoutDhcp<'_> {
    fn drop(&mut self) {
        self.requests.stop();
        Finally("virsh", format!("-q -c {} net-destroy {}", self.lab.uri, self.name));
    }
}

/// Notes each message to a DHCP server, of IPv4, that passes a device.
struct DhcpRequests {
    listener: Child,
    file: PathBuf,
}

impl DhcpRequests {
    fn on(device: &str, folder: &Path) -> Self {
        // A frame's UDP destination port.
        const LISTEN: &str = "import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind((sys.argv[1], 0))
while True:
    p = s.recv(2048)
    if p[12:14] == bytes([8, 0]) and p[23:24] == bytes([17]) and p[36:38] == bytes([0, 67]):
        print(p[6:12].hex(':'), flush=True)
";
        let file = folder.join("requests");
        let listener = Command::new("python3")
            .args(["-c", LISTEN, device])
            .stdout(std::fs::File::create(&file).unwrap())
            .spawn()
            .unwrap();
        Self { listener, file }
    }

    /// Before its device goes.
    fn stop(&mut self) {
        let _ = self.listener.kill();
        let _ = self.listener.wait();
    }
}

#[test]
#[ignore = "needs the lab"]
fn nodes_on_a_network_without_dhcp_ask_for_no_address() {
    let lab = Lab::new();
    let mut network = WithoutDhcp::new(&lab, "ocpd-static", 140);
    // The emulated guests of the larger one take four minutes.
    let is_long = std::env::var("LAB_TESTS").is_ok_and(|which| which == "all");
    let (masters, workers) = if is_long { (3, 2) } else { (1, 1) };
    let cluster = lab.cluster("static", masters, workers);
    let addresses = |first: usize, count: usize| {
        let all = (first..first + count).map(|last| format!("192.168.140.{last}"));
        all.collect::<Vec<_>>().join(",")
    };
    change_env(&lab, &cluster, |text| {
        text + &format!(
            "network={}\ndhcp=none\napi_ip=192.168.140.10\ningress_ip=192.168.140.11\nbootstrap_ip=192.168.140.20\n\
             master_ips={}\nworker_ips={}\n",
            network.name,
            addresses(21, masters),
            addresses(31, workers),
        )
    });
    let told = succeeded(lab.start_deploy(&cluster));
    assert!(!told.contains("harvest-"), "{told}");
    let table = lab.parameters(&cluster).unwrap();
    let workers: Vec<_> = table.of_role(Role::Worker).map(|node| node.ip.to_string()).collect();
    assert_eq!(workers.join(","), addresses(31, workers.len()));
    assert!(told.contains(&workers[0]), "the guest has reported its address: {told}");
    network.assert_silent();
    lab.destroy(&cluster);
    assert_eq!(lab.domains(&cluster), [""; 0]);
}
