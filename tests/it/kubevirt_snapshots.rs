//! Snapshots of a cluster on the fake KubeVirt: saved, restored, rejected, and interrupted after each change.

use crate::support::cluster::cluster_id;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::support::fake_kubevirt::World;
use crate::support::kubevirt_sandbox::{Sandbox, documented};
use ocpdeploy::backend::platforms::Platforms;
use ocpdeploy::backend::{Backend, BackendErrorKind, Snapshot, SnapshotName};
use ocpdeploy::cluster::{MachineName, NodeName, Role};
use ocpdeploy::passes::snapshot::{self, SaveOptions};
use ocpdeploy::passes::{self, StopOptions};
use ocpdeploy::state::home::Home;
use ocpdeploy::state::inventory::Known;

const LIMIT: Duration = Duration::from_secs(30);
const MACHINES: [&str; 2] = ["lab-master-0", "lab-worker-0"];

/// A cluster whose worker has two disks.
fn lab() -> Sandbox {
    let sandbox = Sandbox::new(World::with_tenants(&["blue", "red"]));
    sandbox.server.with(|world| {
        let user = world.users.get_mut("blue-token").unwrap();
        user.edits.clear();
        user.more.extend(documented(&[0, 2], "blue"));
    });
    sandbox.env("lab", "masters=1\nworkers=1\nworker_extra_disks=1");
    sandbox.deploy("lab").unwrap();
    sandbox
}

fn before() -> SnapshotName {
    "before".parse().unwrap()
}

fn known(home: &Home) -> Known {
    Known::read(&home.cluster("lab")).unwrap().unwrap()
}

fn is_said(error: &anyhow::Error, text: &str) -> bool {
    format!("{error:#}").contains(text)
}

async fn save(backend: &Platforms, home: &Home) -> anyhow::Result<()> {
    let options = SaveOptions {
        stop_limit: LIMIT,
        power_off: false,
        backup: true,
        stay_off: false,
        start_limit: LIMIT,
    };
    match snapshot::save(backend, &known(home), home, &before(), options).await {
        // Interrupted at its very end.
        Err(error) if is_said(&error, "has a snapshot before already") => Ok(()),
        saved => saved.map(drop),
    }
}

async fn restore(backend: &Platforms, home: &Home) -> anyhow::Result<()> {
    let (known, name) = (known(home), before());
    let restored = snapshot::restore(backend, &known, home, &name, LIMIT, |_, _| Ok(())).await;
    restored.map(drop)
}

async fn delete(backend: &Platforms, home: &Home) -> anyhow::Result<()> {
    match snapshot::delete(backend, &known(home), home, &before(), |_| Ok(())).await {
        Err(error) if is_said(&error, "has no snapshot before") => Ok(()),
        deleted => deleted,
    }
}

/// The disks of all machines by machine and volume.
fn claims(world: &World) -> BTreeMap<String, (String, String)> {
    let mut claims = BTreeMap::new();
    for ((_, namespace, name), machine) in world.all("virtualmachines") {
        for volume in machine["spec"]["template"]["spec"]["volumes"].as_array().unwrap() {
            if let Some(claim) = volume["dataVolume"]["name"].as_str() {
                let disk = format!("{name} {}", volume["name"].as_str().unwrap());
                claims.insert(disk, (namespace.clone(), claim.to_owned()));
            }
        }
    }
    claims
}

/// Writes another number to each disk.
fn write_to_disks(sandbox: &Sandbox, first: u8) {
    sandbox.server.with(|world| {
        for (number, claim) in (first..).zip(claims(world).into_values()) {
            world.disks.insert(claim, number);
        }
    });
}

fn disks(sandbox: &Sandbox) -> Vec<u8> {
    sandbox
        .server
        .with(|world| claims(world).values().map(|claim| world.disks[claim]).collect())
}

fn names(sandbox: &Sandbox, plural: &str) -> BTreeSet<String> {
    sandbox
        .server
        .with(|world| world.names(plural, "blue").into_iter().collect())
}

/// Each machine runs, and there are no claims except those of present disks.
#[track_caller]
fn is_whole(sandbox: &Sandbox) {
    assert_eq!(
        names(sandbox, "virtualmachineinstances"),
        MACHINES.map(str::to_owned).into()
    );
    assert_eq!(names(sandbox, "virtualmachinerestores"), BTreeSet::new());
    let present: BTreeSet<String> = sandbox
        .server
        .with(|world| claims(world).into_values().map(|(_, claim)| claim).collect());
    let claims = names(sandbox, "persistentvolumeclaims");
    let of_machines = claims
        .into_iter()
        .filter(|claim| !claim.starts_with("ocpdeploy-image-"));
    assert_eq!(of_machines.collect::<BTreeSet<_>>(), present);
}

#[test]
fn a_restored_cluster_has_all_its_disks_and_addresses() {
    let sandbox = lab();
    let table = sandbox.parameters("lab");
    write_to_disks(&sandbox, 10);
    sandbox.far("lab", save).unwrap();
    is_whole(&sandbox);
    assert_eq!(names(&sandbox, "virtualmachinesnapshots").len(), 2);
    // The same disks each time, although each restoration creates new volumes.
    for _ in 0..2 {
        write_to_disks(&sandbox, 90);
        sandbox.far("lab", restore).unwrap();
        is_whole(&sandbox);
        assert_eq!(disks(&sandbox), [10, 11, 12]);
    }
    assert_eq!(sandbox.parameters("lab"), table);
    sandbox.far("lab", delete).unwrap();
    assert_eq!(names(&sandbox, "virtualmachinesnapshots"), BTreeSet::new());
    assert_eq!(disks(&sandbox), [10, 11, 12]);
    sandbox.destroy("lab");
    assert_eq!(sandbox.inventory("blue"), [""; 0]);
    sandbox.server.was_asked_well();
}

#[test]
fn what_kubevirt_cannot_save_is_rejected_before_anything_is_stopped() {
    type Change = fn(&mut World);
    let table: [(Change, Change, &str); 4] = [
        (
            |world| world.groups_absent = ["snapshot.kubevirt.io"].into(),
            |world| world.groups_absent.clear(),
            "does not serve snapshot.kubevirt.io/v1beta1",
        ),
        (
            |world| world.has_snapshots = false,
            |world| world.has_snapshots = true,
            "snapshot feature gate not enabled",
        ),
        (
            |world| world.without_snapshots = ["fast"].into(),
            |world| world.without_snapshots.clear(),
            "lab-worker-0: disk disk-1 cannot have snapshots: No VolumeSnapshotClass",
        ),
        (
            |world| lacks(world, true),
            |world| lacks(world, false),
            "create virtualmachinerestores.snapshot.kubevirt.io",
        ),
    ];
    fn lacks(world: &mut World, lacks: bool) {
        let user = world.users.get_mut("blue-token").unwrap();
        user.lacks.clear();
        if lacks {
            user.lacks.insert("create virtualmachinerestores".to_owned());
        }
    }
    let sandbox = lab();
    for (prepare, undo, expected) in table {
        sandbox.server.with(prepare);
        // The controllers report it after a moment.
        let begun = Instant::now();
        let changes = sandbox.server.with(|world| world.changes);
        let refused = loop {
            let output = sandbox.run(&["snapshot", "save", "lab", "before"]);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            if said.contains(expected) || begun.elapsed() > LIMIT {
                assert_eq!(output.status.code(), Some(4), "{said}");
                break said;
            }
        };
        assert!(refused.contains(expected), "{expected}\n{refused}");
        assert_eq!(sandbox.server.with(|world| world.changes), changes, "{expected}");
        sandbox.server.with(undo);
    }
    is_whole(&sandbox);
}

#[test]
fn a_snapshot_that_failed_does_not_count_and_is_taken_again() {
    let sandbox = lab();
    write_to_disks(&sandbox, 10);
    sandbox
        .server
        .with(|world| world.unsaved = Some(("disk-1", "no space left in the pool")));
    let failed = sandbox.far("lab", save).unwrap_err();
    assert!(is_said(&failed, "no space left in the pool"), "{failed:#}");
    let listed = sandbox.run(&["snapshot", "list", "lab"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("worker-0") && !listed.contains("complete"), "{listed}");
    let refused = sandbox.run(&["snapshot", "restore", "lab", "before", "--yes"]);
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.contains("it has no disks of worker-0"), "{refused}");
    sandbox.server.with(|world| world.unsaved = None);
    sandbox.far("lab", save).unwrap();
    assert_eq!(names(&sandbox, "virtualmachinesnapshots").len(), 2);
    is_whole(&sandbox);
}

#[test]
fn a_snapshot_without_a_disk_is_an_error_and_is_not_restored() {
    let sandbox = lab();
    let options = StopOptions {
        limit: LIMIT,
        force: true,
        power_off: false,
        backup: None,
    };
    let stop =
        async |backend: &Platforms, home: &Home| passes::stop(backend, &known(home), home, options, |_| Ok(true)).await;
    sandbox.far("lab", stop).unwrap();
    // KubeVirt alone knows it, and reports success.
    sandbox.server.with(|world| world.without_snapshots.insert("fast"));
    let id = cluster_id("lab", "example.com");
    let name = MachineName::of_node("lab", &NodeName::node(Role::Worker, 0));
    let one = Snapshot::new(before(), jiff::Timestamp::now());
    sandbox.on_backend(async |backend| {
        let saved = backend.save_snapshot(&id, &name, &one).await.unwrap_err();
        assert_eq!(saved.kind, BackendErrorKind::Rejected);
        let cause = saved.message;
        assert!(
            cause.contains("left out disks of lab-worker-0: root, disk-1"),
            "{cause}"
        );
        let listed = backend.list_snapshots(&id).await.unwrap();
        assert!(!listed[0].is_complete);
        let restored = backend.revert_to_snapshot(&id, &name, &one).await.unwrap_err();
        assert_eq!(restored.kind, BackendErrorKind::Rejected);
    });
    assert_eq!(names(&sandbox, "virtualmachinerestores"), BTreeSet::new());
}

/// A usual run takes samples; `OCPDEPLOY_CUTS=all` takes every change.
fn cuts(sandbox: &Sandbox, work: impl AsyncFnOnce(&Platforms, &Home) -> anyhow::Result<()>) -> Vec<usize> {
    let before = sandbox.server.with(|world| world.changes);
    sandbox.far("lab", work).unwrap();
    let count = sandbox.server.with(|world| world.changes) - before;
    assert!(count > 1, "{count}");
    let step = match std::env::var("OCPDEPLOY_CUTS").as_deref() {
        Ok("all") => 1,
        _ => count.div_ceil(4),
    };
    (1..=count).step_by(step).collect()
}

#[test]
fn a_command_that_is_cut_is_continued() {
    let sandbox = lab();
    write_to_disks(&sandbox, 10);
    for changes in cuts(&sandbox, save) {
        sandbox.far("lab", delete).unwrap();
        sandbox.cut_during("lab", changes, save);
        sandbox.far("lab", save).unwrap();
        is_whole(&sandbox);
        assert_eq!(
            names(&sandbox, "virtualmachinesnapshots").len(),
            2,
            "cut after change {changes}"
        );
    }
    for changes in cuts(&sandbox, restore) {
        write_to_disks(&sandbox, 90);
        sandbox.cut_during("lab", changes, restore);
        sandbox.far("lab", restore).unwrap();
        is_whole(&sandbox);
        assert_eq!(disks(&sandbox), [10, 11, 12], "cut after change {changes}");
    }
    for changes in cuts(&sandbox, delete) {
        sandbox.far("lab", save).unwrap();
        sandbox.cut_during("lab", changes, delete);
        sandbox.far("lab", delete).unwrap();
        assert_eq!(names(&sandbox, "virtualmachinesnapshots"), BTreeSet::new(), "{changes}");
    }
    sandbox.server.was_asked_well();
}

#[test]
fn a_cluster_is_destroyed_in_the_middle_of_a_snapshot() {
    for (changes, with_snapshot) in [(5, false), (8, true)] {
        let sandbox = lab();
        if with_snapshot {
            write_to_disks(&sandbox, 10);
            sandbox.far("lab", save).unwrap();
            assert!(sandbox.cut_during("lab", changes, restore));
        } else {
            assert!(sandbox.cut_during("lab", changes, save));
        }
        sandbox.destroy("lab");
        assert_eq!(sandbox.inventory("blue"), [""; 0]);
    }
}
