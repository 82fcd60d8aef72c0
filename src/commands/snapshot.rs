//! `ocpdeploy snapshot`.

use anyhow::Result;

use super::confirm::{self, Loss};
use super::output::print_result;
use super::platform::connect_known;
use super::session::Session;
use crate::backend::Snapshot;
use crate::backend::platforms::Platforms;
use crate::cli::{
    OneSnapshot, SnapshotCommand, SnapshotDelete, SnapshotList, SnapshotRestore, SnapshotSave, SnapshotVerb,
};
use crate::cluster::MachineName;
use crate::error::{ErrorKind, OperationError};
use crate::passes::snapshot::{self, Found, SaveOptions};
use crate::report::snapshots::{DeletedSnapshot, RestoredSnapshot, SavedSnapshot, SnapshotList as List};
use crate::state::inventory::Known;

pub fn run(session: &Session, command: &SnapshotCommand) -> Result<()> {
    match &command.verb {
        SnapshotVerb::Save(command) => save(session, command),
        SnapshotVerb::List(command) => list(session, command),
        SnapshotVerb::Restore(command) => restore(session, command),
        SnapshotVerb::Delete(command) => delete(session, command),
    }
}

/// The cluster of a snapshot. A single name of a cluster is not taken for that of a snapshot.
fn cluster(session: &Session, snapshot: &OneSnapshot) -> Result<Known> {
    let name = snapshot.name.as_str();
    if snapshot.of.cluster.is_none() && Known::read(&session.home.cluster(name))?.is_some() {
        let text = format!("{name} is a cluster, and the name of the snapshot is missing");
        let hint =
            format!("give both, the cluster first: CLUSTER NAME; `ocpdeploy snapshot list {name}` shows its snapshots");
        return Err(OperationError::new(ErrorKind::Usage, text).hint(hint).into());
    }
    session.cluster(&snapshot.of)
}

fn save(session: &Session, command: &SnapshotSave) -> Result<()> {
    let known = cluster(session, &command.snapshot)?;
    let options = SaveOptions {
        stop_limit: command.stop_timeout,
        power_off: command.power_off,
        backup: !command.no_backup,
        stay_off: command.stay_off,
        start_limit: command.timeout,
    };
    let saved = on_platform(session, &known, async |backend| {
        snapshot::save(backend, &known, &session.home, &command.snapshot.name, options).await
    })?;
    let saved = SavedSnapshot::new(known.cluster_domain(), saved);
    print_result(&command.output, &saved, || saved.text())
}

fn list(session: &Session, command: &SnapshotList) -> Result<()> {
    let known = session.cluster(&command.of)?;
    let found = session.finish_or_stop(async {
        let backend = connect_known(&known).await?;
        snapshot::list(&backend, &known, &session.home).await
    })?;
    let list = List::new(known.cluster_domain(), found);
    print_result(&command.output, &list, || list.text())
}

fn restore(session: &Session, command: &SnapshotRestore) -> Result<()> {
    let known = cluster(session, &command.snapshot)?;
    let id = known.id();
    let name = &command.snapshot.name;
    let confirmed = |snapshot: &Snapshot, machines: &[MachineName]| {
        let machines: Vec<&str> = machines.iter().map(MachineName::as_str).collect();
        let text = format!(
            "the disks of {} will be restored from snapshot {name}; all changes since {:.0} will be lost\n",
            machines.join(", "),
            snapshot.taken
        );
        Loss {
            operation: &format!("restore {id} from snapshot {name}"),
            cluster: &id,
            text: &text,
            hint: &hint(&command.snapshot, &known),
            canceled: "nothing was changed",
            typed: None,
        }
        .confirm(&command.confirmation)
    };
    let restored = on_platform(session, &known, async |backend| {
        snapshot::restore(backend, &known, &session.home, name, command.timeout, confirmed).await
    })?;
    let restored = RestoredSnapshot::new(known.cluster_domain(), restored, known.rehearsal);
    print_result(&command.output, &restored, || restored.text())
}

fn delete(session: &Session, command: &SnapshotDelete) -> Result<()> {
    let known = cluster(session, &command.snapshot)?;
    let id = known.id();
    let name = &command.snapshot.name;
    let confirmed = |found: &[Found]| {
        let saved = found.iter().map(|found| format!("{:.0}", found.snapshot.taken));
        let saved: Vec<String> = saved.collect();
        let text = match saved.is_empty() {
            true => format!("what is left of snapshot {name} will be deleted, with its etcd backup\n"),
            false => {
                let saved = saved.join(" and ");
                format!("snapshot {name}, saved at {saved}, will be deleted, with its etcd backup\n")
            }
        };
        Loss {
            operation: &format!("delete snapshot {name} of {id}"),
            cluster: &id,
            text: &text,
            hint: &hint(&command.snapshot, &known),
            canceled: "nothing was changed",
            typed: None,
        }
        .confirm(&command.confirmation)
    };
    on_platform(session, &known, async |backend| {
        snapshot::delete(backend, &known, &session.home, name, confirmed).await
    })?;
    let deleted = DeletedSnapshot {
        cluster: known.cluster_domain(),
        name: name.clone(),
    };
    print_result(&command.output, &deleted, || deleted.text())
}

/// How to run the command on this snapshot without a prompt.
fn hint(snapshot: &OneSnapshot, known: &Known) -> String {
    let unnamed = snapshot.of.cluster.is_none().then_some(known.name.as_str());
    confirm::hint(&["--yes"], unnamed, Some(snapshot.name.as_str()))
}

/// Connects, and runs `work` until it ends or a signal arrives.
fn on_platform<T>(session: &Session, known: &Known, work: impl AsyncFnOnce(&Platforms) -> Result<T>) -> Result<T> {
    session.progress.log_to(&session.home.cluster(&known.name));
    session.finish_or_stop(async {
        let backend = connect_known(known).await?;
        work(&backend).await
    })
}
