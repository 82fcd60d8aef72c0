//! Two address families on a network of libvirt.
//!
//! `tests/lab/test.sh` runs this in the lab's network namespace.

#![cfg(feature = "libvirt")]

use std::process::Command;

use super::hosts::{Finally, change_env};
use super::two_passes::{Lab, succeeded};

/// The program compares the addresses that each guest reports with the table.
#[test]
#[ignore = "needs the lab"]
fn each_guest_reports_both_addresses_and_answers_at_both() {
    const NETWORK: &str = "ocpd-dual";
    let lab = Lab::new();
    let path = lab.folder.path().join("network.xml");
    let xml = format!(
        "<network><name>{NETWORK}</name><bridge name='{NETWORK}'/><forward/>\
         <ip address='192.168.144.1' netmask='255.255.255.0'>\
         <dhcp><range start='192.168.144.100' end='192.168.144.200'/></dhcp></ip>\
         <ip family='ipv6' address='fd00:144::1' prefix='64'/></network>"
    );
    std::fs::write(&path, xml).unwrap();
    lab.virsh(&["net-create", path.to_str().unwrap()]);
    let _network = Finally("virsh", format!("-q -c {} net-destroy {NETWORK}", lab.uri));
    let cluster = lab.cluster("dual", 1, 1);
    change_env(&lab, &cluster, |text| {
        text + &format!("network={NETWORK}\nmachine_network=192.168.144.0/24,fd00:144::/64\n")
    });
    succeeded(lab.start_deploy(&cluster));
    let table = lab.parameters(&cluster).unwrap();
    let ipv6 = table.ipv6.as_ref().unwrap();
    assert_eq!(ipv6.gateway.to_string(), "fd00:144::1", "libvirt's own");
    for node in table.nodes.iter().filter(|node| node.name.as_str() != "bootstrap") {
        let url = format!("http://[{}]:8080/report.json", ipv6.beside(node.ip));
        let output = Command::new("curl")
            .args(["-fsg", "--max-time", "10", &url])
            .output()
            .unwrap();
        let report = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(report.contains(&format!("\"{}\"", node.ip)), "{}: {report}", node.name);
    }
    lab.destroy(&cluster);
    assert_eq!(lab.domains(&cluster), [""; 0]);
}
