//! Snapshots of a cluster of real guests on a real libvirt: saved, changed, restored, deleted and destroyed.

#![cfg(feature = "libvirt")]

use std::collections::BTreeSet;
use std::process::Command;

use super::two_passes::{Lab, succeeded};

impl Lab {
    /// The path of a machine's disk.
    fn disk(&self, domain: &str) -> String {
        let listed = self.virsh(&["domblklist", domain]);
        let line = listed.lines().find(|line| line.contains("vda")).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    }

    fn snapshots(&self, domain: &str) -> BTreeSet<String> {
        let names = self.virsh(&["snapshot-list", domain, "--name"]);
        names.split_whitespace().map(str::to_owned).collect()
    }
}

/// Runs a program on this computer, which has the disks.
#[track_caller]
fn output(words: &[&str]) -> String {
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {err}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "needs the lab"]
fn a_broken_disk_is_restored_with_its_cluster() {
    let lab = Lab::new();
    let cluster = lab.cluster("snap", 1, 1);
    succeeded(lab.start_deploy(&cluster));
    let table = lab.parameters(&cluster).unwrap();
    let nodes = ["master-0", "worker-0"].map(|node| format!("{cluster}-{node}"));
    let run = |arguments: &[&str]| succeeded(lab.start(arguments));

    let saved = run(&["snapshot", "save", &cluster, "before"]);
    assert!(saved.contains("the cluster runs"), "{saved}");
    let [master, worker] = &nodes;
    lab.virsh(&["destroy", worker]);
    // The disk is not readable any more.
    let disk = lab.disk(worker);
    let wipe = ["qemu-io", "-f", "qcow2", "-c", "write -P 255 0 64M", &disk];
    output(&wipe);
    let broken = ["qemu-io", "-r", "-f", "qcow2", "-c", "read -P 255 0 64M", &disk];
    assert!(!output(&broken).contains("verification failed"));

    // A user's own snapshot of our machine does not belong to the cluster.
    lab.virsh(&["snapshot-create-as", worker, "mine", "a test"]);
    let listed = run(&["snapshot", "list", &cluster]);
    assert!(!listed.contains("mine") && listed.contains("complete"), "{listed}");
    let restored = run(&["snapshot", "restore", &cluster, "before", "--yes"]);
    assert!(restored.contains("with the addresses it had"), "{restored}");
    assert_eq!(lab.parameters(&cluster).unwrap(), table);
    run(&["verify", &cluster]);
    let status = run(&["status", &cluster]);
    assert!(status.contains("from snapshot before of"), "{status}");
    // It has booted from the restored disk.
    let console = run(&["node", "console", &cluster, "worker-0"]);
    assert!(!console.is_empty());

    run(&["snapshot", "delete", &cluster, "before", "--yes"]);
    assert_eq!(lab.snapshots(master), BTreeSet::new());
    assert_eq!(lab.snapshots(worker), ["mine".to_owned()].into());
    run(&["snapshot", "save", &cluster, "last", "--stay-off", "--power-off"]);
    assert_eq!(lab.snapshots(master).len(), 1);
    // Off, with snapshots of both kinds.
    lab.destroy(&cluster);
    assert_eq!(lab.inventory(&cluster), BTreeSet::new());
}
