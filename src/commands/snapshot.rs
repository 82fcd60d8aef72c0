//! `ocpdeploy snapshot`.

use anyhow::Result;

use super::confirm::Loss;
use super::output::print_result;
use super::platform::connect_known;
use super::session::Session;
use crate::backend::Snapshot;
use crate::backend::platforms::Platforms;
use crate::cli::{SnapshotCommand, SnapshotDelete, SnapshotList, SnapshotRestore, SnapshotSave, SnapshotVerb};
use crate::passes::snapshot::{self, SaveOptions};
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

fn save(session: &Session, command: &SnapshotSave) -> Result<()> {
    let known = session.cluster(&command.snapshot.of)?;
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
    let known = session.cluster(&command.snapshot.of)?;
    let confirmed = |snapshot: &Snapshot| match command.yes {
        true => Ok(()),
        false => Loss {
            operation: &format!("restore cluster {}", known.cluster_domain()),
            text: &format!("all changes since {:.0} will be lost\n", snapshot.taken),
            hint: "add --yes to confirm; all changes since the snapshot will be lost",
            canceled: "nothing was changed",
            typed: None,
        }
        .confirm(),
    };
    let restored = on_platform(session, &known, async |backend| {
        let name = &command.snapshot.name;
        snapshot::restore(backend, &known, &session.home, name, command.timeout, confirmed).await
    })?;
    let restored = RestoredSnapshot::new(known.cluster_domain(), restored, known.rehearsal);
    print_result(&command.output, &restored, || restored.text())
}

fn delete(session: &Session, command: &SnapshotDelete) -> Result<()> {
    let known = session.cluster(&command.snapshot.of)?;
    on_platform(session, &known, async |backend| {
        snapshot::delete(backend, &known, &session.home, &command.snapshot.name).await
    })?;
    let deleted = DeletedSnapshot {
        cluster: known.cluster_domain(),
        name: command.snapshot.name.clone(),
    };
    print_result(&command.output, &deleted, || deleted.text())
}

/// Connects, and runs `work` until it ends or a signal arrives.
fn on_platform<T>(session: &Session, known: &Known, work: impl AsyncFnOnce(&Platforms) -> Result<T>) -> Result<T> {
    session.progress.log_to(&session.home.cluster(&known.name));
    session.finish_or_stop(async {
        let backend = connect_known(known).await?;
        work(&backend).await
    })
}
