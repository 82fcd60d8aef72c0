//! Rehearsals with guests of other architectures, which QEMU emulates, on a real libvirt.

#![cfg(feature = "libvirt")]

use std::fs;

use super::two_passes::{Lab, succeeded};

/// Both passes of a small cluster of an architecture. `images/build.sh` built its guests.
fn rehearsed(arch: &str) {
    let lab = Lab::new();
    let cluster = lab.cluster(arch, 1, 1);
    let env = lab.env(&cluster);
    let text = fs::read_to_string(&env).unwrap();
    fs::write(&env, format!("{text}arch={arch}\n")).unwrap();

    let table = succeeded(lab.start_deploy(&cluster));
    // Each guest reports its name, address, MAC and Ignition config from its own root.
    assert_eq!(table.matches(" yes ").count(), 3, "a guest is not as planned:\n{table}");
    let domains = lab.domains(&cluster);
    assert_eq!(domains.len(), 2, "{domains:?}");
    for domain in &domains {
        let xml = lab.virsh(&["dumpxml", domain]);
        assert!(xml.contains(&format!("<type arch='{arch}'")), "{xml}");
    }
    lab.destroy(&cluster);
    assert!(lab.inventory(&cluster).is_empty());
}

#[test]
#[ignore = "needs the lab"]
fn both_passes_on_aarch64() {
    rehearsed("aarch64");
}

#[test]
#[ignore = "needs the lab"]
fn both_passes_on_s390x() {
    rehearsed("s390x");
}

#[test]
#[ignore = "needs the lab"]
fn both_passes_on_ppc64le() {
    rehearsed("ppc64le");
}
