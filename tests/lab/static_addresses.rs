//! `dhcp=none` on a network of libvirt without a DHCP server.
//!
//! `tests/lab/test.sh` runs this in the lab's network namespace.

#![cfg(feature = "libvirt")]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

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
    /// `third` is the third byte of its addresses.
    pub(super) fn new(lab: &'l Lab, name: &'static str, third: u8) -> Self {
        Self::of(
            lab,
            name,
            &format!("<ip address='192.168.{third}.1' netmask='255.255.255.0'/>"),
        )
    }

    /// A network with this element `ip`.
    pub(super) fn of(lab: &'l Lab, name: &'static str, ip: &str) -> Self {
        let path = lab.folder.path().join(format!("{name}.xml"));
        let xml = format!("<network><name>{name}</name><bridge name='{name}'/><forward/>{ip}</network>");
        std::fs::write(&path, xml).unwrap();
        lab.virsh(&["net-create", path.to_str().unwrap()]);
        let requests = DhcpRequests::on(name, lab.folder.path());
        Self { name, lab, requests }
    }

    /// No node has requested an address so far.
    #[track_caller]
    pub(super) fn assert_silent(&mut self) {
        self.requests.assert_silent();
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

    #[track_caller]
    fn assert_silent(&mut self) {
        let is_listening = self.listener.try_wait().unwrap().is_none();
        assert!(is_listening, "it does not listen");
        assert_eq!(std::fs::read_to_string(&self.file).unwrap(), "");
    }

    /// Stops it before its device is deleted.
    fn stop(&mut self) {
        let _ = self.listener.kill();
        let _ = self.listener.wait();
    }
}

/// Guests without IPv4 report their addresses and answer there; libvirt provides the network's gateway and DNS server.
#[test]
#[ignore = "needs the lab"]
fn a_rehearsal_without_ipv4() {
    let lab = Lab::new();
    let ip = "<ip family='ipv6' address='fd00:145::1' prefix='64'/>";
    let mut network = WithoutDhcp::of(&lab, "ocpd-ipv6", ip);
    let cluster = lab.cluster("six", 1, 1);
    change_env(&lab, &cluster, |text| {
        text + "network=ocpd-ipv6\ndhcp=none\nmachine_network=fd00:145::/64\n\
                address_ranges=fd00:145::10-fd00:145::29\n"
    });
    let told = succeeded(lab.start_deploy(&cluster));
    let table = lab.parameters(&cluster).unwrap();
    assert_eq!(table.gateway.map(|ip| ip.to_string()).as_deref(), Some("fd00:145::1"));
    let ips: Vec<_> = table.leases().iter().map(|lease| lease.ip.to_string()).collect();
    let expected: Vec<_> = (0x10..0x15).map(|last| format!("fd00:145::{last:x}")).collect();
    assert_eq!(ips, expected);
    assert!(
        ips[2..].iter().all(|ip| told.contains(ip)),
        "each guest has reported its address: {told}"
    );
    succeeded(lab.start(&["verify", &cluster]));
    succeeded(lab.start(&["scale", &cluster, "--workers", "2"]));
    let table = lab.parameters(&cluster).unwrap();
    let added = table.nodes.iter().find(|node| node.name.as_str() == "worker-1");
    assert_eq!(added.map(|node| node.ip.to_string()).as_deref(), Some("fd00:145::15"));
    network.assert_silent();
    lab.destroy(&cluster);
    assert_eq!(lab.domains(&cluster), [""; 0]);
}

/// As `nodes_on_a_network_without_dhcp_ask_for_no_address`, on a VLAN of a bond, with addresses of a pool.
#[test]
#[ignore = "needs the lab"]
fn a_rehearsal_on_a_vlan_of_a_bond() {
    let lab = Lab::new();
    let mut network = Vlan::new(&lab, "ocpd-tagged", 100, "192.168.143.1/24");
    let cluster = lab.cluster("tagged", 3, 2);
    std::fs::write(lab.folder.path().join("bond.yaml"), VLAN_OF_A_BOND).unwrap();
    change_env(&lab, &cluster, |text| {
        text + "network=ocpd-tagged\nextra_networks=ocpd-tagged\nnetwork_config=bond.yaml\ndhcp=none\n\
                machine_network=192.168.143.0/24\ngateway=192.168.143.1\nname_servers=192.168.143.1\n\
                address_ranges=192.168.143.10-192.168.143.29\n"
    });
    let told = succeeded(lab.start_deploy(&cluster));
    let table = lab.parameters(&cluster).unwrap();
    let nodes: Vec<_> = table.nodes.iter().map(|node| node.ip.to_string()).collect();
    let expected: Vec<_> = (12..18).map(|last| format!("192.168.143.{last}")).collect();
    assert_eq!(nodes, expected, "the virtual IPs are 10 and 11");
    assert!(
        nodes.iter().all(|ip| told.contains(ip)),
        "each guest has reported its address: {told}"
    );
    network.assert_silent();
    lab.destroy(&cluster);
    assert_eq!(lab.domains(&cluster), [""; 0]);
}

pub(super) const VLAN_OF_A_BOND: &str = "interfaces:
- name: bond0
  type: bond
  link-aggregation: {mode: active-backup, options: {miimon: '100'}, port: [nic0, nic1]}
- name: bond0.100
  type: vlan
  vlan: {base-iface: bond0, id: 100}
  ipv4: {enabled: true}
";

/// A network of this lab's libvirt without an address of this computer, DHCP or DNS. This computer is the
/// gateway on one of its VLANs.
pub(super) struct Vlan<'l> {
    name: &'static str,
    lab: &'l Lab,
    relay: Child,
    requests: DhcpRequests,
}

impl<'l> Vlan<'l> {
    pub(super) fn new(lab: &'l Lab, name: &'static str, number: u16, gateway: &str) -> Self {
        // The kernel of a build machine may not support VLANs: two devices, one in the network and one for the gateway.
        const RELAY: &str = "import fcntl, os, select, struct, sys
def tap(name):
    fd = os.open('/dev/net/tun', os.O_RDWR)
    fcntl.ioctl(fd, 0x400454ca, struct.pack('16sH22x', name.encode(), 0x1002))
    return fd
trunk, access, tag = tap(sys.argv[1]), tap(sys.argv[2]), struct.pack('!HH', 0x8100, int(sys.argv[3]))
print('ready', flush=True)
while True:
    for fd in select.select([trunk, access], [], [])[0]:
        frame = os.read(fd, 65535)
        if fd == access:
            os.write(trunk, frame[:12] + tag + frame[12:])
        elif frame[12:14] == tag[:2] and (frame[14] & 15, frame[15]) == (tag[2] & 15, tag[3]):
            os.write(access, frame[:12] + frame[16:])
";
        let path = lab.folder.path().join(format!("{name}.xml"));
        let xml = format!("<network><name>{name}</name><bridge name='{name}' stp='off'/></network>");
        std::fs::write(&path, xml).unwrap();
        lab.virsh(&["net-create", path.to_str().unwrap()]);
        let (trunk, access) = (format!("{name}-t"), format!("{name}-a"));
        let mut relay = Command::new("python3")
            .args(["-c", RELAY, &trunk, &access, &number.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 5];
        relay.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        for line in [
            format!("link set {trunk} master {name} up"),
            format!("addr add {gateway} dev {access}"),
            format!("link set {access} up"),
        ] {
            let done = Command::new("ip").args(line.split(' ')).status().unwrap();
            assert!(done.success(), "ip {line}");
        }
        let requests = DhcpRequests::on(name, lab.folder.path());
        Self {
            name,
            lab,
            relay,
            requests,
        }
    }

    #[track_caller]
    pub(super) fn assert_silent(&mut self) {
        self.requests.assert_silent();
    }
}

impl Drop for Vlan<'_> {
    fn drop(&mut self) {
        self.requests.stop();
        let _ = self.relay.kill();
        let _ = self.relay.wait();
        Finally("virsh", format!("-q -c {} net-destroy {}", self.lab.uri, self.name));
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
