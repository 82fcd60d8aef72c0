//! The promises about snapshots. A platform without them says why.

use jiff::Timestamp;
use ocpdeploy::backend::platforms::Platforms;
use ocpdeploy::backend::{Action, BackendErrorKind, MachineSnapshot, Snapshot, Stop, Verdict};
use ocpdeploy::cluster::{MachineName, NodeName, Role};

use super::{Ground, Stage, refused};

/// The platform, if it supports snapshots by its capabilities; otherwise it must reject them.
async fn with_snapshots<G: Ground>(stage: &Stage<G>) -> Option<&Platforms> {
    let backend = stage.backend();
    if backend.capabilities(Role::Worker).snapshots.is_ok() {
        return Some(backend);
    }
    let owner = stage.cluster();
    let name = MachineName::of_node(&owner.name, &NodeName::node(Role::Worker, 0));
    let checked = backend.check_snapshots(&owner.id, &[name]).await;
    refused(checked, BackendErrorKind::Rejected, "the platform has no snapshots");
    None
}

fn snapshot(name: &str, millisecond: i64) -> Snapshot {
    let taken = Timestamp::from_millisecond(1_790_000_000_000 + millisecond).unwrap();
    Snapshot::new(name.parse().unwrap(), taken)
}

fn of(machine: &MachineName, snapshot: &Snapshot) -> MachineSnapshot {
    MachineSnapshot {
        machine: machine.clone(),
        snapshot: snapshot.clone(),
        is_complete: true,
    }
}

pub async fn snapshots_are_saved_listed_and_deleted<G: Ground>(stage: &Stage<G>) {
    let Some(backend) = with_snapshots(stage).await else {
        return;
    };
    let owner = stage.cluster();
    let spec = stage.create(&owner, 0).await;
    let other = stage.create(&owner, 1).await;
    // One name that starts another, and one name at two times.
    let saved = [snapshot("a", 1), snapshot("a", 2), snapshot("a-b", 1)];
    for name in [&spec.name, &other.name] {
        backend.stop_machine(&owner.id, name, Stop::Force).await.unwrap();
    }
    let checked = backend
        .check_snapshots(&owner.id, &[spec.name.clone(), other.name.clone()])
        .await;
    assert!(!checked.unwrap().is_empty(), "a check reports its findings");
    for one in &saved {
        let first = backend.save_snapshot(&owner.id, &spec.name, one).await.unwrap();
        assert_eq!(first, Action::Done(()), "{one:?}");
        let again = backend.save_snapshot(&owner.id, &spec.name, one).await.unwrap();
        assert_eq!(again, Action::Unchanged(()), "{one:?}");
    }
    backend.save_snapshot(&owner.id, &other.name, &saved[0]).await.unwrap();
    let mut expected: Vec<_> = saved.iter().map(|one| of(&spec.name, one)).collect();
    expected.push(of(&other.name, &saved[0]));
    expected.sort();
    assert_eq!(backend.list_snapshots(&owner.id).await.unwrap(), expected);
    let owned = backend.list_owned(&owner.id).await.unwrap();
    assert!(
        owned
            .iter()
            .any(|thing| thing.name.contains(spec.name.as_str()) && thing.name.ends_with(" a-b")),
        "{owned:?}"
    );
    // In any state, and exactly the one of this time.
    backend.start_machine(&owner.id, &spec.name).await.unwrap();
    for action in [Action::Done(()), Action::Unchanged(())] {
        let deleted = backend.delete_snapshot(&owner.id, &spec.name, &saved[0]).await.unwrap();
        assert_eq!(deleted, action);
    }
    expected.retain(|one| *one != of(&spec.name, &saved[0]));
    assert_eq!(backend.list_snapshots(&owner.id).await.unwrap(), expected);
    // The rest is deleted with the machines.
    for name in [&spec.name, &other.name] {
        backend.delete_machine(&owner.id, name).await.unwrap();
    }
    assert_eq!(backend.list_snapshots(&owner.id).await.unwrap(), []);
    backend.delete_remaining(&owner.id).await.unwrap();
    stage.owns_nothing(&owner).await;
    let gone = backend.delete_snapshot(&owner.id, &spec.name, &saved[1]).await.unwrap();
    assert_eq!(gone, Action::Unchanged(()));
}

pub async fn a_machine_is_reverted_to_what_it_was<G: Ground>(stage: &Stage<G>) {
    let Some(backend) = with_snapshots(stage).await else {
        return;
    };
    let owner = stage.cluster();
    let spec = stage.create(&owner, 0).await;
    let before = backend.list_machines(&owner.id).await.unwrap();
    backend.stop_machine(&owner.id, &spec.name, Stop::Force).await.unwrap();
    let (first, second) = (snapshot("first", 1), snapshot("second", 2));
    let ground = &stage.ground;
    ground.write_disk(&spec.name, 1);
    let earlier = ground.read_disk(&spec.name);
    backend.save_snapshot(&owner.id, &spec.name, &first).await.unwrap();
    ground.write_disk(&spec.name, 2);
    let later = ground.read_disk(&spec.name);
    backend.save_snapshot(&owner.id, &spec.name, &second).await.unwrap();
    assert_eq!(earlier.is_some(), earlier != later);
    // Back and forth, and twice: later snapshots stay.
    for (snapshot, content) in [
        (&first, &earlier),
        (&first, &earlier),
        (&second, &later),
        (&first, &earlier),
    ] {
        ground.write_disk(&spec.name, 3);
        let checked = backend
            .check_restore(&owner.id, std::slice::from_ref(&spec.name), snapshot)
            .await;
        if checked.unwrap().iter().any(|finding| finding.verdict == Verdict::Fail) {
            // The platform would delete the later one.
            let refused_to = backend.revert_to_snapshot(&owner.id, &spec.name, snapshot).await;
            refused(refused_to, BackendErrorKind::Rejected, spec.name.as_str());
            assert_eq!(backend.list_snapshots(&owner.id).await.unwrap().len(), 2);
            continue;
        }
        backend
            .revert_to_snapshot(&owner.id, &spec.name, snapshot)
            .await
            .unwrap();
        assert_eq!(ground.read_disk(&spec.name), *content, "{snapshot:?}");
    }
    assert!(
        backend
            .list_snapshots(&owner.id)
            .await
            .unwrap()
            .iter()
            .all(|saved| saved.is_complete)
    );
    backend.delete_snapshot(&owner.id, &spec.name, &second).await.unwrap();
    ground.write_disk(&spec.name, 3);
    backend.revert_to_snapshot(&owner.id, &spec.name, &first).await.unwrap();
    let missing = backend
        .revert_to_snapshot(&owner.id, &spec.name, &snapshot("first", 3))
        .await;
    refused(missing, BackendErrorKind::NotFound, spec.name.as_str());
    // Deleting a snapshot does not change the disk.
    backend.delete_snapshot(&owner.id, &spec.name, &first).await.unwrap();
    assert_eq!(ground.read_disk(&spec.name), earlier);
    backend.start_machine(&owner.id, &spec.name).await.unwrap();
    let after = backend.list_machines(&owner.id).await.unwrap();
    assert_eq!(after[0].fingerprint, before[0].fingerprint);
    assert_eq!(after[0].nics[0].mac, before[0].nics[0].mac);
}

pub async fn snapshots_are_of_machines_of_this_cluster_that_are_off<G: Ground>(stage: &Stage<G>) {
    let Some(backend) = with_snapshots(stage).await else {
        return;
    };
    let (owner, other) = (stage.cluster(), stage.other_cluster());
    let spec = stage.create(&owner, 0).await;
    let absent = MachineName::of_node(&owner.name, &NodeName::bootstrap());
    let unowned = MachineName::of_node(&owner.name, &NodeName::node(Role::Worker, 7));
    stage.put_unowned(&unowned);
    let one = snapshot("one", 1);
    for (cluster, name, kind) in [
        (&owner.id, &spec.name, BackendErrorKind::Rejected),
        (&other.id, &spec.name, BackendErrorKind::Conflict),
        (&owner.id, &unowned, BackendErrorKind::Conflict),
        (&owner.id, &absent, BackendErrorKind::NotFound),
    ] {
        refused(backend.save_snapshot(cluster, name, &one).await, kind, name.as_str());
        refused(
            backend.revert_to_snapshot(cluster, name, &one).await,
            kind,
            name.as_str(),
        );
        if kind == BackendErrorKind::Conflict {
            refused(backend.delete_snapshot(cluster, name, &one).await, kind, name.as_str());
        }
    }
    backend.stop_machine(&owner.id, &spec.name, Stop::Force).await.unwrap();
    backend.save_snapshot(&owner.id, &spec.name, &one).await.unwrap();
    assert_eq!(backend.list_snapshots(&other.id).await.unwrap(), []);
    // A user's snapshot of this machine: only the tag counts, however similar the name is.
    stage.ground.put_foreign_snapshot(&spec.name, &snapshot("two", 2));
    let both = stage.ground.count_snapshots(&spec.name);
    assert_eq!(backend.list_snapshots(&owner.id).await.unwrap(), [of(&spec.name, &one)]);
    let foreign = backend
        .delete_snapshot(&owner.id, &spec.name, &snapshot("two", 2))
        .await;
    assert!(!matches!(foreign, Ok(Action::Done(()))), "{foreign:?}");
    assert_eq!(stage.ground.count_snapshots(&spec.name), both);
}
