//! Snapshots of a cluster on the simulated platform with the binary, also with faults and kills.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::support::sandbox::{self, Outcome, Sandbox};
use serde_json::{Value, json};

const LAB: &str = "masters=3\nworkers=1\nimage=coreos\nharvest_image=helper";

const SAVE: &[&str] = &["snapshot", "save", "lab", "before"];
const RESTORE: &[&str] = &["snapshot", "restore", "lab", "before", "--yes"];
const DELETE: &[&str] = &["snapshot", "delete", "lab", "before", "--yes"];

fn lab() -> Sandbox {
    let sandbox = Sandbox::new(json!({}));
    sandbox.env("lab", LAB);
    sandbox.deploy("lab").succeeded();
    sandbox
}

/// A field of each machine.
fn of_each(sandbox: &Sandbox, field: &str) -> BTreeMap<String, Value> {
    let machines = sandbox.machines(Some("lab")).into_iter();
    machines.map(|(name, machine)| (name, machine[field].clone())).collect()
}

/// What a user does to the disks.
fn write_to_disks(sandbox: &Sandbox, content: u64) {
    sandbox.edit(|world| {
        for machine in world["machines"].as_object_mut().unwrap().values_mut() {
            machine["disk"] = json!(content);
        }
    });
}

/// The disks as they were when their machines were last off: each start writes to them.
fn disks_before_start(sandbox: &Sandbox) -> BTreeSet<u64> {
    let disks = of_each(sandbox, "disk");
    disks.values().map(|disk| disk.as_u64().unwrap() - 1).collect()
}

/// The names of the snapshots of each machine.
fn snapshots(sandbox: &Sandbox) -> BTreeMap<String, BTreeSet<String>> {
    let names = |kept: &Value| {
        let kept = kept.as_array().into_iter().flatten();
        kept.map(|one| one["snapshot"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let machines = of_each(sandbox, "snapshots").into_iter();
    machines.map(|(name, kept)| (name, names(&kept))).collect()
}

fn list(sandbox: &Sandbox) -> Vec<String> {
    let said = sandbox.run(&["snapshot", "list", "lab"]).succeeded().stdout;
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    // Without the time.
    let shown = |line: String| match line.split_once(" 20") {
        Some((name, rest)) => format!("{name} {}", rest.split_once(' ').unwrap().1),
        None => line,
    };
    said.lines().map(words).map(shown).collect()
}

#[track_caller]
fn refused(sandbox: &Sandbox, command: &[&str], code: i32, why: &str) -> Outcome {
    let before = (
        sandbox.state(),
        std::fs::read(sandbox.home().cluster("lab").journal()).unwrap(),
    );
    let outcome = sandbox.run(command);
    assert_eq!(outcome.code, Some(code), "{}", outcome.stderr);
    assert!(outcome.message().contains(why), "{why}\n{}", outcome.stderr);
    let after = (
        sandbox.state(),
        std::fs::read(sandbox.home().cluster("lab").journal()).unwrap(),
    );
    assert!(before == after, "{command:?} was rejected and changed something");
    outcome
}

#[test]
fn a_restored_cluster_has_its_disks_and_addresses_and_names_the_snapshot() {
    let sandbox = lab();
    let (addresses, kept) = (of_each(&sandbox, "nics"), sandbox.reservations(None));
    write_to_disks(&sandbox, 100);
    let saved = sandbox.run(SAVE).succeeded();
    assert!(
        saved
            .stdout
            .starts_with("snapshot before of cluster lab.example.com saved at "),
        "{}",
        saved.stdout
    );
    assert!(saved.stdout.contains("the cluster runs"), "{}", saved.stdout);
    assert!(of_each(&sandbox, "off").values().all(|off| *off == json!(false)));
    assert_eq!(list(&sandbox), ["NAME SAVED STATE", "before complete"]);
    let owned = sandbox.run(&["destroy", "lab", "--dry-run"]).succeeded().stdout;
    assert!(owned.contains("lab-worker-0 before"), "{owned}");

    write_to_disks(&sandbox, 7000);
    let restored = sandbox.run(RESTORE).succeeded();
    assert!(
        restored.stdout.contains("is restored from snapshot before of 20"),
        "{}",
        restored.stdout
    );
    assert_eq!(disks_before_start(&sandbox), [100].into());
    assert_eq!(of_each(&sandbox, "nics"), addresses);
    assert_eq!(sandbox.reservations(None), kept);
    sandbox.run(&["verify", "lab"]).succeeded();
    let status = sandbox.run(&["status", "lab"]).succeeded().stdout;
    assert!(status.contains("from snapshot before of 20"), "{status}");
    let listed = sandbox.run(&["list"]).succeeded().stdout;
    assert!(listed.contains("rehearsal, restored"), "{listed}");
    let page = sandbox.run(&["report", "lab", "-o", "-"]).succeeded().stdout;
    assert!(page.contains("from snapshot before of"), "the report does not say it");

    // It can be restored again, also after another one was saved, and deleted while it runs.
    sandbox.run(&["snapshot", "save", "lab", "later"]).succeeded();
    sandbox.run(RESTORE).succeeded();
    assert_eq!(disks_before_start(&sandbox), [100].into());
    assert_eq!(list(&sandbox).len(), 3);
    sandbox.run(DELETE).succeeded();
    assert_eq!(list(&sandbox), ["NAME SAVED STATE", "later complete"]);
    sandbox.run(&["destroy", "lab", "--yes"]).succeeded();
    assert_eq!(sandbox.machines(None), []);
}

#[test]
fn a_cluster_that_was_off_stays_off() {
    let sandbox = lab();
    sandbox.run(&["stop", "lab"]).succeeded();
    let off = |sandbox: &Sandbox| of_each(sandbox, "off").values().all(|off| *off == json!(true));
    let said = sandbox.run(SAVE).succeeded();
    assert!(
        said.stdout.contains("`ocpdeploy start lab` starts it"),
        "{}",
        said.stdout
    );
    assert!(off(&sandbox));
    sandbox.run(&["start", "lab"]).succeeded();
    sandbox
        .run(&["snapshot", "save", "lab", "friday", "--stay-off"])
        .succeeded();
    assert!(off(&sandbox));
    let status = sandbox.run(&["status", "lab"]).succeeded().stdout;
    assert!(status.contains("\noff     since 20"), "{status}");
}

#[test]
fn an_impossible_command_is_rejected_before_anything_is_stopped() {
    let sandbox = lab();
    let unknown = "has no snapshot before";
    refused(&sandbox, RESTORE, 2, unknown);
    refused(&sandbox, DELETE, 2, unknown);
    refused(&sandbox, &["snapshot", "save", "lab", "../x"], 2, "lowercase letters");

    // 4 disks of at least 1 GiB, and less than that is free.
    let size: u64 = of_each(&sandbox, "disk_gib")
        .values()
        .map(|gib| gib.as_u64().unwrap())
        .sum();
    sandbox.edit(|world| world["limits"] = json!({"disk_gib": size}));
    let full = refused(&sandbox, SAVE, 4, "0 GiB of disk space free");
    assert!(!full.stderr.contains("off"), "{}", full.stderr);
    sandbox.edit(|world| world["limits"] = json!({"disk_gib": size + 1}));
    let warned = sandbox.run(SAVE).succeeded();
    assert!(
        warned.stderr.contains(&format!(
            "1 GiB of disk space free, the snapshot takes up to {size} GiB"
        )),
        "{}",
        warned.stderr
    );
    refused(&sandbox, SAVE, 2, "has a snapshot before already");
    let asked = refused(&sandbox, &RESTORE[..4], 2, "stdin is not a terminal");
    assert!(asked.message().contains("--yes"), "{}", asked.stderr);

    // A node that is newer than the snapshot.
    sandbox.edit(|world| world["limits"] = json!({}));
    sandbox.run(&["scale", "lab", "--workers", "2"]).succeeded();
    refused(&sandbox, RESTORE, 2, "it has no disks of worker-1");
    assert_eq!(
        list(&sandbox),
        ["NAME SAVED STATE", "before cannot be restored: no disks of worker-1"]
    );
    sandbox.run(&["scale", "lab", "--workers", "1", "--yes"]).succeeded();
    sandbox.run(RESTORE).succeeded();
    sandbox
        .run(&["node", "replace", "lab", "worker-0", "--yes"])
        .succeeded();
    refused(&sandbox, RESTORE, 2, "it has no disks of worker-0");
}

#[test]
fn disks_of_different_times_are_not_started() {
    let sandbox = lab();
    write_to_disks(&sandbox, 100);
    sandbox.run(SAVE).succeeded();
    write_to_disks(&sandbox, 7000);
    let denied = json!({"call": "revert_to_snapshot", "about": "lab-master-1", "what": "denied"});
    sandbox.edit(|world| world["script"] = json!({"faults": [denied]}));
    let failed = sandbox.run(RESTORE);
    assert_eq!(failed.code, Some(5), "{}", failed.stderr);
    sandbox.edit(|world| world["script"] = json!({}));
    let why = "was interrupted: the disks of its nodes are from different times";
    for command in [&["start", "lab"][..], SAVE, DELETE] {
        let refused = refused(&sandbox, command, 4, why);
        assert!(
            refused.message().contains("`ocpdeploy snapshot restore lab before`"),
            "{}",
            refused.stderr
        );
    }
    let status = sandbox.run(&["status", "lab"]).succeeded().stdout;
    assert!(status.contains("failed at restore/before"), "{status}");
    sandbox.run(RESTORE).succeeded();
    assert_eq!(disks_before_start(&sandbox), [100].into());
    sandbox.run(&["stop", "lab"]).succeeded();
    sandbox.run(&["start", "lab"]).succeeded();
}

#[test]
fn disks_that_were_saved_by_an_interrupted_command_are_saved_again() {
    let sandbox = lab();
    write_to_disks(&sandbox, 100);
    let denied = json!({"call": "save_snapshot", "about": "lab-master-1", "what": "denied"});
    sandbox.edit(|world| world["script"] = json!({"faults": [denied]}));
    assert_eq!(sandbox.run(SAVE).code, Some(5));
    sandbox.edit(|world| world["script"] = json!({}));
    assert_ne!(snapshots(&sandbox).values().flatten().count(), 0, "none was saved");
    // It runs in between, so the disks that were saved are of another time.
    sandbox.run(&["start", "lab"]).succeeded();
    write_to_disks(&sandbox, 200);
    sandbox.run(SAVE).succeeded();
    write_to_disks(&sandbox, 7000);
    sandbox.run(RESTORE).succeeded();
    assert_eq!(disks_before_start(&sandbox), [200].into());
    assert!(snapshots(&sandbox).values().all(|names| names.len() == 1));
}

/// The commands on a snapshot, and the message that a killed command was already complete.
type Step = (&'static [&'static str], &'static str);

const LIFE: [Step; 3] = [
    (SAVE, "has a snapshot before already"),
    (RESTORE, "nothing"),
    (DELETE, "has no snapshot before"),
];

/// Whether a command has done everything, now or before it was killed.
#[track_caller]
fn is_done(outcome: &Outcome, (command, done): Step) -> bool {
    match outcome.code {
        Some(0) => true,
        Some(2) if outcome.message().contains(done) => true,
        None | Some(5..=7) => false,
        Some(_) => panic!("{command:?}: {}", outcome.stderr),
    }
}

#[test]
fn killed_at_any_moment_the_same_command_finishes() {
    let sandbox = lab();
    let slow = json!({"latency_ms": {"save_snapshot": 20, "revert_to_snapshot": 20, "delete_snapshot": 20,
        "list_snapshots": 4, "list_machines": 4, "stop_machine": 10, "start_machine": 10}, "boot_ms": 20});
    sandbox.edit(|world| world["script"] = slow);
    write_to_disks(&sandbox, 100);
    for step in LIFE {
        let mut lives = 0;
        loop {
            lives += 1;
            let (begun, mut child) = (Instant::now(), sandbox.start(step.0));
            let life = Duration::from_millis(15 * lives);
            while begun.elapsed() < life && child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            child.kill().unwrap();
            if is_done(&sandbox::outcome(child), step) {
                break;
            }
        }
        assert!(lives > 3, "{:?} was killed only {lives} times", step.0);
        assert!(of_each(&sandbox, "off").values().all(|off| *off == json!(false)));
        match step.0 {
            SAVE => {
                assert!(snapshots(&sandbox).values().all(|names| names.len() == 1));
                write_to_disks(&sandbox, 7000);
            }
            RESTORE => assert!(disks_before_start(&sandbox).iter().all(|disk| *disk < 200)),
            _ => assert_eq!(snapshots(&sandbox).values().flatten().count(), 0),
        }
    }
}

#[test]
fn whichever_call_fails_the_same_command_finishes() {
    let sandbox = lab();
    write_to_disks(&sandbox, 100);
    let calls = [
        "check_snapshots",
        "save_snapshot",
        "list_snapshots",
        "revert_to_snapshot",
        "delete_snapshot",
        "stop_machine",
    ];
    let faults = sandbox::each_fails_twice(&calls);
    sandbox.edit(|world| world["script"] = json!({"faults": faults}));
    for step in LIFE {
        while !is_done(&sandbox.run(step.0), step) {}
        match step.0 {
            SAVE => write_to_disks(&sandbox, 7000),
            RESTORE => assert!(disks_before_start(&sandbox).iter().all(|disk| *disk < 200)),
            _ => assert_eq!(snapshots(&sandbox).values().flatten().count(), 0),
        }
    }
    let state = sandbox.state();
    let hit = |fault: &&Value| fault["seen"].as_u64() >= fault["nth"].as_u64();
    let faults = state["script"]["faults"].as_array().unwrap();
    assert_eq!(faults.iter().filter(hit).count(), faults.len(), "{faults:?}");
}
