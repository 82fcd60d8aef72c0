//! Snapshots of machines on a fake oVirt engine: what it cannot save or restore, and requests whose answer is lost.

use crate::support::fake_engine::{self, FakeEngine, Fault, What, World};
use crate::support::ovirt_client::Client;
use crate::support::ovirt_sdk;
use jiff::Timestamp;
use ocpdeploy::backend::platforms::Platforms;
use ocpdeploy::backend::{Action, BackendErrorKind, Finding, PlatformError, Snapshot, Stop, Verdict};
use ocpdeploy::cluster::MachineName;

/// A machine with two disks that is off.
struct Lab {
    engine: FakeEngine,
    client: Client,
    name: MachineName,
}

fn snapshot(name: &str) -> Snapshot {
    let taken = Timestamp::from_millisecond(1_790_000_000_000).unwrap();
    Snapshot::new(name.parse().unwrap(), taken)
}

impl Lab {
    fn new() -> Self {
        let engine = FakeEngine::with(|world| world.tick = 3_000);
        let client = Client::of(&engine, |_| ());
        let spec = client.spec("lab");
        client.run(async |backend| {
            backend.create_machine(&spec).await.unwrap();
            let stopped = backend.stop_machine(&spec.cluster, &spec.name, Stop::Force).await;
            stopped.unwrap();
        });
        Self {
            engine,
            client,
            name: spec.name,
        }
    }

    /// Runs one command.
    fn run<T>(&self, work: impl AsyncFnOnce(&Platforms) -> T) -> T {
        self.client.run(work)
    }

    fn save(&self, one: &Snapshot) -> Result<Action<()>, PlatformError> {
        let cluster = self.client.spec("lab").cluster;
        self.run(async |backend| backend.save_snapshot(&cluster, &self.name, one).await)
    }

    fn revert(&self, one: &Snapshot) -> Result<(), PlatformError> {
        let cluster = self.client.spec("lab").cluster;
        self.run(async |backend| backend.revert_to_snapshot(&cluster, &self.name, one).await)
    }

    fn delete(&self, one: &Snapshot) -> Result<Action<()>, PlatformError> {
        let cluster = self.client.spec("lab").cluster;
        self.run(async |backend| backend.delete_snapshot(&cluster, &self.name, one).await)
    }

    /// Whether each of the cluster's snapshots is complete.
    fn list(&self) -> Vec<(String, bool)> {
        let cluster = self.client.spec("lab").cluster;
        let listed = self.run(async |backend| backend.list_snapshots(&cluster).await.unwrap());
        let shown = |one: ocpdeploy::backend::MachineSnapshot| (one.snapshot.name.to_string(), one.is_complete);
        listed.into_iter().map(shown).collect()
    }

    fn write_to_disks(&self, first: u8) {
        self.engine.edit(|world| {
            let disks = disks(world);
            for (number, disk) in (first..).zip(disks) {
                world.disk_mut(&disk).unwrap().data = [number].into();
            }
        });
    }

    fn disks(&self) -> Vec<Vec<u8>> {
        self.engine.look(|world| {
            let disks = disks(world).into_iter();
            disks.map(|disk| world.disk(&disk).unwrap().data.to_vec()).collect()
        })
    }
}

fn disks(world: &World) -> Vec<String> {
    let attachments = world.vms[0].disks.iter();
    attachments.map(|attachment| attachment.disk.clone()).collect()
}

#[track_caller]
fn is_refused<T: std::fmt::Debug>(outcome: Result<T, PlatformError>, kind: BackendErrorKind, words: &str) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), kind, "{error:?}");
    let cause = error.source.message;
    assert!(cause.contains(words), "{words}\n{cause}");
}

#[test]
fn all_disks_are_saved_and_restored_as_the_sdk_does_it() {
    let lab = Lab::new();
    let one = snapshot("one");
    lab.write_to_disks(10);
    assert_eq!(lab.save(&one).unwrap(), Action::Done(()));
    assert_eq!(lab.list(), [("one".to_owned(), true)]);
    for _ in 0..2 {
        lab.write_to_disks(90);
        lab.revert(&one).unwrap();
        assert_eq!(lab.disks(), [[10], [11]]);
    }
    assert_eq!(lab.delete(&one).unwrap(), Action::Done(()));
    assert_eq!(lab.disks(), [[10], [11]]);
    assert_eq!(lab.list(), []);
    ovirt_sdk::judge(&lab.engine, 20);
}

#[test]
fn a_request_whose_answer_is_lost_is_not_made_twice() {
    let lab = Lab::new();
    let one = snapshot("one");
    lab.write_to_disks(10);
    for what in [What::LostRequest, What::LostAnswer] {
        lab.engine
            .fault(Fault::on("POST", "/vms/*/snapshots").what(what.clone()));
        assert_eq!(
            lab.save(&one).unwrap_err().kind(),
            BackendErrorKind::Unreachable,
            "{what:?}"
        );
        lab.save(&one).unwrap();
        assert_eq!(lab.engine.look(|world| world.vms[0].snapshots.len()), 1, "{what:?}");
        for what in [What::LostRequest, What::LostAnswer] {
            lab.write_to_disks(90);
            lab.engine
                .fault(Fault::on("POST", "/vms/*/snapshots/*/restore").what(what.clone()));
            assert_eq!(
                lab.revert(&one).unwrap_err().kind(),
                BackendErrorKind::Unreachable,
                "{what:?}"
            );
            lab.revert(&one).unwrap();
            assert_eq!(lab.disks(), [[10], [11]], "{what:?}");
        }
        lab.engine
            .fault(Fault::on("DELETE", "/vms/*/snapshots/*").what(what.clone()));
        assert_eq!(
            lab.delete(&one).unwrap_err().kind(),
            BackendErrorKind::Unreachable,
            "{what:?}"
        );
        lab.delete(&one).unwrap();
        assert_eq!(lab.list(), [], "{what:?}");
    }
}

#[test]
fn an_engine_that_ends_between_preview_and_commit_is_asked_to_commit() {
    let lab = Lab::new();
    let one = snapshot("one");
    lab.write_to_disks(10);
    lab.save(&one).unwrap();
    lab.write_to_disks(90);
    lab.engine.edit(|world| world.ends_in_preview = true);
    lab.revert(&one).unwrap_err();
    // It can still be restored, and everything else fails.
    assert_eq!(lab.list(), [("one".to_owned(), true)]);
    is_refused(lab.save(&snapshot("two")), BackendErrorKind::Rejected, "previewing");
    lab.revert(&one).unwrap();
    assert_eq!(lab.disks(), [[10], [11]]);
    ovirt_sdk::judge(&lab.engine, 20);
}

/// The texts of findings that fail.
fn failures(found: Result<Vec<Finding>, PlatformError>) -> Vec<String> {
    let fails = |finding: &Finding| finding.verdict == Verdict::Fail;
    let found = found.unwrap().into_iter();
    found.filter(fails).map(|finding| finding.text).collect()
}

#[test]
fn what_the_engine_cannot_save_or_restore_is_reported_first() {
    let lab = Lab::new();
    let (cluster, names) = (lab.client.spec("lab").cluster, [lab.name.clone()]);
    let check = || failures(lab.run(async |backend| backend.check_snapshots(&cluster, &names).await));
    assert_eq!(check(), [""; 0]);
    lab.engine.edit(|world| {
        let disks = disks(world);
        world.shareable.push(disks[0].clone());
        world.disk_mut(&disks[1]).unwrap().status = "illegal".to_owned();
    });
    let found = check();
    assert!(
        found[0].contains("is shareable") && found[1].contains("status illegal"),
        "{found:?}"
    );
    lab.engine.edit(|world| {
        world.shareable.clear();
        let disk = disks(world)[1].clone();
        world.disk_mut(&disk).unwrap().status = "ok".to_owned();
    });
    let (one, two) = (snapshot("one"), snapshot("two"));
    lab.save(&one).unwrap();
    let restorable =
        |one: &Snapshot| failures(lab.run(async |backend| backend.check_restore(&cluster, &names, one).await));
    assert_eq!(restorable(&one), [""; 0]);
    lab.save(&two).unwrap();
    // A user's snapshot is still later.
    lab.engine.edit(|world| {
        let (id, created) = (world.new_id(), world.now);
        world.vms[0].snapshots.push(fake_engine::Snapshot {
            id,
            description: "mine".to_owned(),
            status: "ok".to_owned(),
            created,
            disks: Vec::new(),
            lost: Vec::new(),
        });
    });
    let found = restorable(&one);
    assert!(
        found[0].ends_with("oVirt would delete its later snapshots: two, mine"),
        "{found:?}"
    );
    is_refused(lab.revert(&two), BackendErrorKind::Rejected, "later snapshots: mine");
    assert_eq!(lab.engine.look(|world| world.vms[0].snapshots.len()), 3);
    lab.engine.edit(|world| drop(world.vms[0].snapshots.pop()));
    lab.revert(&two).unwrap();
    lab.engine
        .edit(|world| world.vms[0].snapshots[0].status = "in_preview".to_owned());
    let found = check();
    assert!(found[0].contains("snapshot one is in preview"), "{found:?}");
    assert!(restorable(&two)[0].contains("snapshot one is in preview"));
}

#[test]
fn a_snapshot_that_lost_a_disk_does_not_count() {
    let lab = Lab::new();
    let one = snapshot("one");
    lab.save(&one).unwrap();
    lab.engine.edit(|world| world.merges_fail = true);
    is_refused(
        lab.delete(&one),
        BackendErrorKind::Rejected,
        "could not delete snapshot one",
    );
    assert_eq!(lab.list(), [("one".to_owned(), false)]);
    is_refused(
        lab.revert(&one),
        BackendErrorKind::Rejected,
        "other disks than its snapshot",
    );
    lab.engine.edit(|world| world.merges_fail = false);
    assert_eq!(lab.delete(&one).unwrap(), Action::Done(()));
    assert_eq!(lab.list(), []);
    // A disk that the snapshot does not have would be detached from the machine.
    lab.save(&one).unwrap();
    lab.engine.edit(|world| {
        let id = world.new_id();
        let disk = world.disk(&disks(world)[1]).unwrap().clone();
        world.disks.push(fake_engine::Disk { id: id.clone(), ..disk });
        let attachment = world.vms[0].disks[1].clone();
        world.vms[0]
            .disks
            .push(fake_engine::Attachment { disk: id, ..attachment });
    });
    is_refused(
        lab.revert(&one),
        BackendErrorKind::Rejected,
        "other disks than its snapshot",
    );
    assert_eq!(lab.list(), [("one".to_owned(), true)]);
}
