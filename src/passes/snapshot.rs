//! Snapshots of a cluster: all machines are off, then the platform saves the disks of each.
//!
//! The platform is the source of truth. The journal records only an interrupted command, and which nodes `stop`
//! cordoned before their disks were saved.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::backup;
use super::error::{names, refuse};
use super::partial_failure::with_leftovers;
use super::power::{Cordoned, InstalledCluster, RESTORE, REVERT, SAVE, StopOptions, is_off};
use super::simulated::refuse_simulated;
use crate::PROGRESS;
use crate::backend::platforms::Platforms;
use crate::backend::{Finding, PlatformError, Snapshot, SnapshotName, Verdict};
use crate::cluster::{MachineName, NodeName};
use crate::error::{ErrorKind, OperationError};
use crate::printable::count;
use crate::state::home::{Home, remove_folder};
use crate::state::inventory::Known;
use crate::state::journal::{Entry, Event, Step};
use crate::state::parameters::NodeAddress;

/// The journal's notes of snapshots, with the name below it.
const NOTES: &str = "snapshot";

/// The snapshots that the journal says were saved and not deleted.
pub fn recorded(entries: &[Entry]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in entries {
        match (
            entry.step.strip_prefix(NOTES).and_then(|rest| rest.strip_prefix('/')),
            entry.event,
        ) {
            (_, Event::Forgotten) => names.retain(|name| !Event::forgets(&entry.step, &format!("{NOTES}/{name}"))),
            (Some(name), _) => _ = names.insert(name.to_owned()),
            _ => {}
        }
    }
    names
}

/// Options of `snapshot save`.
#[derive(Clone, Copy, Debug)]
pub struct SaveOptions {
    /// Limit for the machines of one role to shut down.
    pub stop_limit: Duration,
    /// Power off machines that do not shut down in time.
    pub power_off: bool,
    /// Save etcd first, as `stop --backup` does.
    pub backup: bool,
    /// Do not start the cluster afterwards.
    pub stay_off: bool,
    /// Limit for the nodes to be Ready again.
    pub start_limit: Duration,
}

/// A snapshot that was just saved.
#[derive(Debug, Serialize, Deserialize)]
pub struct Saved {
    pub snapshot: Snapshot,
    /// Whether the cluster runs again.
    pub running: bool,
    /// The files of etcd's backup.
    pub backup: Vec<PathBuf>,
}

/// A snapshot of a cluster, as it is on the platform.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    #[serde(flatten)]
    pub snapshot: Snapshot,
    /// Nodes whose machines have no snapshot of this name and time: it cannot be restored.
    pub missing: Vec<NodeName>,
}

/// The last restoration: a note of the journal, for readers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    #[serde(flatten)]
    pub snapshot: Snapshot,
    pub at: Timestamp,
}

impl Restored {
    /// The note's name.
    pub const NOTE: &str = "restored";
}

/// Shuts a cluster down, saves the disks of all nodes, and starts it again if it was running.
pub async fn save(
    backend: &Platforms,
    known: &Known,
    home: &Home,
    name: &SnapshotName,
    options: SaveOptions,
) -> Result<Saved> {
    let cluster = InstalledCluster::open(backend, known, home)?;
    cluster.refuse_half_restored(None)?;
    let there = cluster.snapshots().await?;
    let complete = there.iter().find(|found| found.is(name) && found.missing.is_empty());
    let step = Step::named(format!("{SAVE}/{name}"));
    if complete.is_some() && !cluster.journal.was_begun(&format!("{}/", step.name())) {
        let cluster = &known.name;
        let text = format!("cluster {cluster} has a snapshot {name} already");
        let hint = format!("choose another name, or delete it first: `ocpdeploy snapshot delete {cluster} {name}`");
        return Err(OperationError::new(ErrorKind::Usage, text).hint(hint).into());
    }
    let is_on = !cluster.current_machines().await?.iter().all(is_off);
    if complete.is_none() {
        cluster.refuse_young(is_on, false).await?;
        report(backend.check_snapshots(&known.id(), &cluster.names()?).await?)?;
    }
    let work = cluster.journal.run(&step, async {
        // Recorded before anything is stopped: when the command is repeated, the cluster is off.
        let was_on = Step::named(format!("{}/was-on", step.name()));
        let was_on = cluster.journal.run(&was_on, async { Ok(is_on) }).await?;
        let mut backup = Vec::new();
        let snapshot = match complete {
            Some(found) => found.snapshot.clone(),
            None => {
                if is_on {
                    backup = cluster.back_up_for(name, options.backup).await?;
                    let stop = StopOptions {
                        limit: options.stop_limit,
                        force: false,
                        power_off: options.power_off,
                        backup: None,
                    };
                    cluster.off(stop).await?;
                    cluster.note_all_off()?;
                }
                cluster.take(name).await?
            }
        };
        let running = was_on && !options.stay_off;
        if running {
            cluster.on(options.start_limit).await?;
            cluster.note(Vec::new())?;
        }
        Ok(Saved {
            snapshot,
            running,
            backup,
        })
    });
    let saved = with_leftovers(backend, &known.id(), "snapshot save", true, work.await).await?;
    cluster.journal.forget(step.name())?;
    Ok(saved)
}

/// Fails if the platforms report a problem, before anything is stopped.
fn report(findings: Vec<Finding>) -> Result<()> {
    let mut failures = Vec::new();
    for finding in findings {
        match finding.verdict {
            Verdict::Fail => failures.push(finding),
            Verdict::Warn => warn!(target: PROGRESS, step = "checks", "{}", finding.text),
            Verdict::Ok => {}
        }
    }
    Ok(refuse(failures)?)
}

/// The snapshots of a cluster, the oldest first.
pub async fn list(backend: &Platforms, known: &Known, home: &Home) -> Result<Vec<Found>> {
    InstalledCluster::open(backend, known, home)?.snapshots().await
}

/// Powers the cluster off, reverts all disks to a snapshot, and starts it. All later changes are lost, so
/// `confirm` is called with the snapshot and the machines before anything is changed.
pub async fn restore(
    backend: &Platforms,
    known: &Known,
    home: &Home,
    name: &SnapshotName,
    limit: Duration,
    confirm: impl FnOnce(&Snapshot, &[MachineName]) -> Result<()>,
) -> Result<Restored> {
    let cluster = InstalledCluster::open(backend, known, home)?;
    cluster.refuse_half_restored(Some(name))?;
    let there = cluster.snapshots().await?;
    let named: Vec<&Found> = there.iter().filter(|found| found.is(name)).collect();
    let snapshot = match named.iter().find(|found| found.missing.is_empty()) {
        Some(complete) => complete.snapshot.clone(),
        None => return Err(cluster.no_snapshot(name, &there).into()),
    };
    cluster.current_machines().await?;
    let machines = cluster.names()?;
    report(backend.check_restore(&known.id(), &machines, &snapshot).await?)?;
    confirm(&snapshot, &machines)?;
    let step = Step::named(format!("{RESTORE}/{name}"));
    let revert = Step::named(format!("{REVERT}/{name}"));
    let work = cluster.journal.run(&step, async {
        let reverted = async {
            cluster.power_off().await?;
            cluster.note_all_off()?;
            cluster.revert(&snapshot).await
        };
        cluster.journal.run(&revert, reverted).await?;
        let saved: Option<Cordoned> = cluster.journal.output(&format!("{NOTES}/{name}"))?;
        cluster.journal.note(Cordoned::NOTE, &saved.unwrap_or_default())?;
        let restored = Restored {
            snapshot,
            at: Timestamp::now(),
        };
        cluster.journal.note(Restored::NOTE, &restored)?;
        // All disks are from the same time again, so `start` is possible.
        cluster.journal.forget(revert.name())?;
        cluster.on(limit).await?;
        cluster.note(Vec::new())?;
        Ok(restored)
    });
    let restored = with_leftovers(backend, &known.id(), "snapshot restore", true, work.await).await?;
    cluster.journal.forget(step.name())?;
    Ok(restored)
}

/// Deletes a snapshot, complete or not, with the backup of etcd that belongs to it.
///
/// Interrupted attempts may have left several snapshots of this name: `confirm` is called with all of them before
/// anything is deleted.
pub async fn delete(
    backend: &Platforms,
    known: &Known,
    home: &Home,
    name: &SnapshotName,
    confirm: impl FnOnce(&[Found]) -> Result<()>,
) -> Result<()> {
    let cluster = InstalledCluster::open(backend, known, home)?;
    cluster.refuse_half_restored(None)?;
    let there = cluster.snapshots().await?;
    let step = format!("{SAVE}/{name}");
    let folder = cluster.dir.snapshot(name.as_str());
    let (named, others): (Vec<Found>, Vec<Found>) = there.into_iter().partition(|found| found.is(name));
    if named.is_empty() && !cluster.journal.was_begun(&format!("{step}/")) && !folder.exists() {
        return Err(cluster.no_snapshot(name, &others).into());
    }
    confirm(&named)?;
    let work = async {
        cluster.delete_named(name).await?;
        remove_folder(&folder).with_context(|| format!("remove {}", folder.display()))?;
        for forgotten in [step, format!("{NOTES}/{name}")] {
            cluster.journal.forget(&forgotten)?;
        }
        Ok(())
    };
    with_leftovers(backend, &known.id(), "snapshot delete", true, work.await).await
}

impl Found {
    fn is(&self, name: &SnapshotName) -> bool {
        self.snapshot.name == *name
    }
}

impl InstalledCluster<'_> {
    /// The machines of the table's nodes, whose platforms must support snapshots.
    fn names(&self) -> Result<Vec<MachineName>, OperationError> {
        let cluster = &self.known.name;
        let name = |node: &NodeAddress| {
            let supported = self.backend.capabilities(self.known.place_of(&node.name)).snapshots;
            supported.map(|()| self.name_of(node)).map_err(|why| {
                let text = format!("cluster {cluster} cannot have snapshots: {why}");
                OperationError::new(ErrorKind::Tool, text).hint(format!(
                    "nothing was stopped; `ocpdeploy stop {cluster} --backup DIR` saves etcd"
                ))
            })
        };
        self.nodes().map(name).collect()
    }

    /// The cluster's snapshots, the oldest first. Those of machines that are not in the table count as deleted.
    async fn snapshots(&self) -> Result<Vec<Found>> {
        let mut sets: BTreeMap<(Timestamp, SnapshotName), BTreeSet<MachineName>> = BTreeMap::new();
        let names = self.names()?;
        let listed = self.backend.list_snapshots(&self.known.id()).await?;
        for found in listed.into_iter().filter(|found| names.contains(&found.machine)) {
            let complete = sets.entry((found.snapshot.taken, found.snapshot.name)).or_default();
            complete.extend(Some(found.machine).filter(|_| found.is_complete));
        }
        let found = sets.into_iter().map(|((taken, name), machines)| Found {
            snapshot: Snapshot { name, taken },
            missing: self
                .nodes()
                .filter(|node| !machines.contains(&self.name_of(node)))
                .map(|node| node.name.clone())
                .collect(),
        });
        Ok(found.collect())
    }

    fn no_snapshot(&self, name: &SnapshotName, there: &[Found]) -> OperationError {
        let cluster = &self.known.name;
        if let Some(found) = there.iter().find(|found| found.is(name)) {
            let text = format!(
                "snapshot {name} of cluster {cluster} cannot be restored: it has no disks of {}",
                names(&found.missing)
            );
            return OperationError::new(ErrorKind::Usage, text).hint(format!(
                "nodes that joined or were recreated after a snapshot are not in it; `ocpdeploy scale {cluster} --workers N` \
                 removes workers that joined later. If the snapshot is of no use, delete it: `ocpdeploy snapshot delete \
                 {cluster} {name}`"
            ));
        }
        let known: Vec<_> = there.iter().map(|found| &found.snapshot.name).collect();
        let others = match known.as_slice() {
            [] => String::new(),
            known => format!(", only {}", names(known)),
        };
        let text = format!("cluster {cluster} has no snapshot {name}{others}");
        OperationError::new(ErrorKind::Usage, text)
            .hint(format!("`ocpdeploy snapshot list {cluster}` shows its snapshots"))
    }

    /// Saves etcd in the snapshot's directory. A rehearsal and simulated machines have none.
    async fn back_up_for(&self, name: &SnapshotName, wanted: bool) -> Result<Vec<PathBuf>> {
        let is_simulated = refuse_simulated(&self.known.name, &self.known.backend, self.table.api_ip).is_err();
        if !wanted || self.known.rehearsal || is_simulated {
            return Ok(Vec::new());
        }
        let folder = self.dir.snapshot(name.as_str());
        // A backup of an interrupted attempt is older than the disks will be.
        remove_folder(&folder).with_context(|| format!("remove {}", folder.display()))?;
        let without = format!("snapshot save {} {name} --no-backup", self.known.name);
        backup::back_up(&self.dir, &self.table, &folder, &without).await
    }

    /// Saves the disks of all machines, which are off.
    async fn take(&self, name: &SnapshotName) -> Result<Snapshot> {
        // Snapshots of an interrupted attempt: the machines may have run since.
        self.delete_named(name).await?;
        let snapshot = Snapshot::new(name.clone(), Timestamp::now());
        let cordoned: Cordoned = self.journal.output(Cordoned::NOTE)?.unwrap_or_default();
        self.journal.note(&format!("{NOTES}/{name}"), &cordoned)?;
        let id = self.known.id();
        self.each(async |machine| {
            self.backend.save_snapshot(&id, machine, &snapshot).await?;
            info!(target: PROGRESS, step = "snapshot", node = machine.node_in(&self.known.name), state = "saved", done = true);
            Ok(())
        })
        .await?;
        let machines = self.machines().await?;
        let started = machines.iter().filter(|machine| !is_off(machine));
        let started: Vec<_> = started.map(|machine| &machine.name).collect();
        if started.is_empty() {
            return Ok(snapshot);
        }
        let number = count(started.len(), "machine");
        let text = format!("{number} started while the disks were saved: {}", names(&started));
        let hint = format!(
            "the snapshot is not consistent. Find out what starts the machines, for example high availability, and run \
             the same command again; `ocpdeploy status {}` shows them",
            self.known.name
        );
        Err(OperationError::new(ErrorKind::Platform, text).hint(hint).into())
    }

    async fn revert(&self, snapshot: &Snapshot) -> Result<()> {
        let id = self.known.id();
        self.each(async |machine| {
            self.backend.revert_to_snapshot(&id, machine, snapshot).await?;
            info!(target: PROGRESS, step = "snapshot", node = machine.node_in(&self.known.name), state = "restored", done = true);
            Ok(())
        })
        .await
    }

    /// Deletes the snapshots of this name, of any time.
    async fn delete_named(&self, name: &SnapshotName) -> Result<()> {
        let id = self.known.id();
        for found in self.snapshots().await?.iter().filter(|found| found.is(name)) {
            self.each(async |machine| {
                let deleted = self.backend.delete_snapshot(&id, machine, &found.snapshot).await;
                deleted.map(drop)
            })
            .await?;
        }
        Ok(())
    }

    /// Calls the platform for each machine, with its concurrency.
    async fn each(&self, call: impl AsyncFn(&MachineName) -> Result<(), PlatformError>) -> Result<()> {
        self.backend.concurrently(&self.names()?, call).await?;
        Ok(())
    }
}
