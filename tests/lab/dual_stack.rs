//! Two address families on a network of libvirt, with and without a bond.
//!
//! `tests/lab/test.sh` runs this in the lab's network namespace.

#![cfg(feature = "libvirt")]

use std::process::Command;

use super::hosts::{Finally, change_env};
use super::two_passes::{Lab, succeeded};

/// The nodes' interface is a bond, to which `ocpdeploy` adds the second address.
const BOND: &str = "interfaces:
- name: bond0
  type: bond
  link-aggregation: {mode: active-backup, options: {miimon: '100'}, port: [nic0, nic1]}
  ipv4: {enabled: true}
";

/// The answer of the network's DNS server, one line for each record.
fn resolved(name: &str, kind: &str) -> String {
    let output = Command::new("dig")
        .args(["+short", "+time=2", "@192.168.144.1", name, kind])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

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
    std::fs::write(lab.folder.path().join("bond.yaml"), BOND).unwrap();
    change_env(&lab, &cluster, |text| {
        text + &format!(
            "network={NETWORK}\nextra_networks={NETWORK}\nmachine_network=192.168.144.0/24,fd00:144::/64\n\
             network_config=\"worker:bond.yaml\"\n"
        )
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
    // The network's DNS server has a record of each family for each name.
    let mut leases = table.leases();
    leases.retain(|lease| lease.name.as_str() != "bootstrap");
    let named = leases.into_iter().map(|lease| {
        let ipv6 = ipv6.address_of(&lease.name, lease.ip).to_string();
        // It has no wildcards.
        let name = match lease.name.as_str() {
            "ingress" => "console-openshift-console.apps",
            name => name,
        };
        (table.cluster_domain().fqdn(name), lease.ip.to_string(), ipv6)
    });
    let named: Vec<_> = named.collect();
    for (name, ip, ipv6) in &named {
        assert_eq!(resolved(name, "A"), format!("{ip}\n"), "{name}");
        assert_eq!(resolved(name, "AAAA"), format!("{ipv6}\n"), "{name}");
    }
    lab.destroy(&cluster);
    assert_eq!(lab.domains(&cluster), [""; 0]);
    for (name, ..) in &named {
        assert_eq!([resolved(name, "A"), resolved(name, "AAAA")], ["", ""], "{name}");
    }
}
