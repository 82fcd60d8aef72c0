//! The lease of a virtual IP, renewed from the node that holds it, with a real DHCP server in a network namespace.
//!
//! Needs root; `tests/lab/test.sh` runs it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use crate::support::netns::{Node, Wire};
use crate::support::shape::{Made, Shape};
use crate::support::until::until;
use ocpdeploy::cluster::{AddressAssignment, Mac, NodeName, Vip};
use ocpdeploy::node::services::{Input, lease};

const SHAPE: Shape = Shape {
    masters: 3,
    workers: 0,
    one_vip: false,
    prefix: 24,
    use_br: false,
    masters_schedulable: false,
};

/// A wire with a DHCP server whose leases last two minutes, the least it has.
struct Lan {
    wire: Wire,
    folder: tempfile::TempDir,
}

impl Lan {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let wire = Wire::new("10.77.0.1/24");
        let leases = format!("--dhcp-leasefile={}", folder.path().join("leases").display());
        let server = [
            "dnsmasq",
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--port=0",
            "--interface=br0",
        ];
        let range = [
            "--bind-interfaces",
            "--dhcp-range=10.77.0.100,10.77.0.101,120s",
            "--log-dhcp",
            "--log-facility=-",
        ];
        let arguments: Vec<&str> = server.into_iter().chain(range).chain([leases.as_str()]).collect();
        wire.start(&arguments, &folder.path().join("server.log"));
        Self { wire, folder }
    }

    /// When the lease of a MAC ends, in seconds of Unix time, and its address.
    fn lease(&self, mac: Mac) -> Option<(u64, IpAddr)> {
        let text = fs::read_to_string(self.folder.path().join("leases")).ok()?;
        let words = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let found = words.into_iter().find(|words| words[1] == mac.to_string())?;
        Some((found[0].parse().unwrap(), found[2].parse().unwrap()))
    }

    fn requests(&self) -> usize {
        let log: PathBuf = self.folder.path().join("server.log");
        fs::read_to_string(log)
            .unwrap_or_default()
            .matches("DHCPREQUEST")
            .count()
    }

    fn node(&self, name: &str, last: u8) -> Node {
        Node::new(&self.wire, name, [10, 77, 0, last].into(), 24, self.folder.path())
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("server.log"));
            eprintln!("the DHCP server says:\n{}", log.unwrap_or_default());
        }
    }
}

#[test]
#[ignore = "needs the lab"]
fn the_node_that_holds_a_virtual_ip_renews_its_lease() {
    let lan = Lan::new();
    // As in pass one: a machine with the MAC of the virtual IP has requested an address, and is deleted.
    let mac = Mac([0x52, 0x54, 0x00, 0x0a, 0x0b, 0x0c]);
    let client_id = format!("0x3d:01{}", mac.to_string().replace(':', ""));
    let mut helper = lan.node("helper", 50);
    helper.sh(&format!("ip link set nic address {mac}"));
    let ask = format!("busybox udhcpc -i nic -f -n -q -t 10 -T 1 -x {client_id} -s /bin/true");
    helper.sh(&ask);
    let (first_end, ip) = lan.lease(mac).expect("the helper has a lease");
    helper.cut();

    let made = Made::new("lab", SHAPE, Ipv4Addr::new(10, 77, 0, 10));
    let leased = [AddressAssignment {
        name: NodeName::vip(Vip::Api),
        mac,
        ip,
    }];
    let input = Input {
        leased: &leased,
        ..made.input()
    };
    let nmcli = "#!/bin/sh\n[ \"$*\" = '-t -f DHCP4 device show nic' ] || exit 9\n\
                 echo 'DHCP4.OPTION[3]:dhcp_lease_time = 120'\necho 'DHCP4.OPTION[4]:dhcp_server_identifier = 10.77.0.1'\n";
    let nodes = [("master-0", 20), ("master-1", 21)].map(|(name, last)| {
        let node = lan.node(name, last);
        node.boot(&lease::parts(&input));
        node.sh(&format!(
            "cat >/usr/local/bin/nmcli <<'E'\n{nmcli}E\nchmod +x /usr/local/bin/nmcli"
        ));
        node
    });

    // No node has it, so no node renews the lease.
    let before = lan.requests();
    for node in &nodes {
        assert_eq!(node.sh("/usr/local/bin/ocpdeploy-renew-vips"), "");
    }
    assert_eq!(lan.requests(), before);

    // The holder's requests extend the lease; its MAC and address do not change.
    nodes[1].sh(&format!("ip address add {ip}/32 dev nic"));
    until(Duration::from_secs(20), "the lease ends later than before", || {
        let said = nodes[1].sh("/usr/local/bin/ocpdeploy-renew-vips");
        assert_eq!(said, format!("{ip}: sent a renewal request to 10.77.0.1\n"));
        lan.lease(mac).is_some_and(|(end, same)| same == ip && end > first_end)
    });

    // It moves with the virtual IP.
    nodes[1].sh(&format!("ip address delete {ip}/32 dev nic"));
    nodes[0].sh(&format!("ip address add {ip}/32 dev nic"));
    let (second_end, _) = lan.lease(mac).unwrap();
    until(Duration::from_secs(20), "the next holder renews it", || {
        nodes[0].sh("/usr/local/bin/ocpdeploy-renew-vips");
        lan.lease(mac).is_some_and(|(end, same)| same == ip && end > second_end)
    });
}

#[test]
#[ignore = "needs the lab"]
fn a_holder_without_a_dhcp_server_reports_it() {
    let lan = Lan::new();
    let made = Made::new("lab", SHAPE, Ipv4Addr::new(10, 77, 0, 10));
    let ip = IpAddr::from([10, 77, 0, 100]);
    let leased = [AddressAssignment {
        name: NodeName::vip(Vip::Api),
        mac: Mac([0x52, 0x54, 0, 1, 2, 3]),
        ip,
    }];
    let input = Input {
        leased: &leased,
        ..made.input()
    };
    let node = lan.node("master-0", 20);
    node.boot(&lease::parts(&input));
    node.sh("printf '#!/bin/sh\\n' >/usr/local/bin/nmcli; chmod +x /usr/local/bin/nmcli");
    node.sh(&format!("ip address add {ip}/32 dev nic"));
    let said = node.sh("/usr/local/bin/ocpdeploy-renew-vips 2>&1");
    assert_eq!(said, format!("{ip}: nic has no DHCP server; its lease will expire\n"));
}
