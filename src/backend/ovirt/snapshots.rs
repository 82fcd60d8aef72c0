//! Snapshots of machines that are down, by the engine.
//!
//! The engine restores by "preview" and "commit", and a commit deletes all later snapshots of the machine
//! (oVirt/ovirt-engine: `BackendSnapshotResource.restore`, `RestoreAllSnapshotsCommand.prepareToDeletePreviewBranch`). So
//! only the latest snapshot is restored, and no snapshot is deleted without a request.
//!
//! The only field for a tag is the description of a snapshot, which cannot be changed later.

use jiff::Timestamp;

use super::engine::Ovirt;
use super::machines::DISKS;
use super::session::{conflict, wait_for};
use super::wire::{self, id};
use crate::backend::error::if_exists;
use crate::backend::findings::Findings;
use crate::backend::ownership::Ownership;
use crate::backend::{Action, BackendError, BackendErrorKind, Finding, MachineSnapshot, Snapshot, SnapshotName};
use crate::cluster::{ClusterId, MachineName, Pass};
use crate::xml::Element;

/// The states of a machine whose snapshots can be deleted (oVirt/ovirt-engine: `VMStatus.isQualifiedForSnapshotMerge`).
const MERGES: [&str; 5] = ["down", "up", "powering_up", "paused", "reboot_in_progress"];

/// The description of a snapshot with so many disks: `ocpdeploy-<cluster> snapshot <name> <milliseconds> <disks>`.
///
/// The engine deletes disks from a snapshot one by one, and keeps the rest of a snapshot if one cannot be deleted
/// (oVirt/ovirt-engine: `RemoveSnapshotCommand.endVmCommand`).
fn description(cluster: &ClusterId, snapshot: &Snapshot, disks: usize) -> String {
    let (mark, taken) = (wire::mark(cluster), snapshot.taken.as_millisecond());
    format!("{mark} snapshot {} {taken} {disks}", snapshot.name)
}

/// The cluster, the snapshot and the number of disks of a description.
pub(super) fn read_description(text: &str) -> Option<(ClusterId, Snapshot, usize)> {
    let cluster = wire::marked(text)?;
    let parts: Vec<&str> = text.split(' ').collect();
    let [_, "snapshot", name, taken, disks] = parts.as_slice() else {
        return None;
    };
    let name: SnapshotName = name.parse().ok()?;
    let taken = Timestamp::from_millisecond(taken.parse().ok()?).ok()?;
    Some((cluster, Snapshot::new(name, taken), disks.parse().ok()?))
}

/// A snapshot that was created by a user or by this program.
struct Saved {
    id: String,
    description: String,
    /// `ok`, `locked`, `in_preview`; oVirt/ovirt-engine-api-model: `SnapshotStatus`.
    status: String,
    /// The engine's time.
    created: Option<Timestamp>,
}

impl Saved {
    /// `None` for the present state, which the engine lists as a snapshot of another type.
    fn read(element: &Element) -> Result<Option<Self>, BackendError> {
        if element.text_of("snapshot_type") != Some("regular") {
            return Ok(None);
        }
        let text = |name: &str| element.text_of(name).unwrap_or_default().to_owned();
        Ok(Some(Self {
            id: id(element)?,
            description: text("description"),
            status: text("snapshot_status"),
            created: text("date").parse().ok(),
        }))
    }

    /// The snapshot and its number of disks, if the cluster owns it.
    fn of(&self, cluster: &ClusterId) -> Option<(Snapshot, usize)> {
        let (owner, snapshot, disks) = read_description(&self.description)?;
        (owner == *cluster).then_some((snapshot, disks))
    }

    fn is(&self, cluster: &ClusterId, snapshot: &Snapshot) -> bool {
        self.of(cluster).is_some_and(|(of, _)| of == *snapshot)
    }
}

/// Why the engine cannot restore a snapshot without losing others.
fn problem(all: &[Saved], saved: &Saved) -> Option<String> {
    let is_later = |other: &&Saved| other.id != saved.id && other.created >= saved.created;
    let later: Vec<&str> = all.iter().filter(is_later).map(name_of).collect();
    if !later.is_empty() {
        return Some(format!("oVirt would delete its later snapshots: {}", later.join(", ")));
    }
    let previewed = all
        .iter()
        .find(|other| other.id != saved.id && other.status == "in_preview");
    previewed.map(|other| format!("its snapshot {} is in preview", name_of(other)))
}

/// The name that `snapshot list` or the engine's portal shows.
fn name_of(saved: &Saved) -> &str {
    match read_description(&saved.description) {
        Some(_) => saved.description.split(' ').nth(2).unwrap_or_default(),
        None => &saved.description,
    }
}

impl Ovirt {
    /// The snapshots of a machine, of any owner.
    async fn snapshots_of(&self, vm: &str) -> Result<Vec<Saved>, BackendError> {
        let listed = self.session.get(&format!("/vms/{vm}/snapshots"), &[]).await?;
        let read = listed.iter().map(Saved::read).collect::<Result<Vec<_>, _>>()?;
        Ok(read.into_iter().flatten().collect())
    }

    /// The number of disks that a snapshot has. Those that were lost are `illegal` (oVirt/ovirt-engine:
    /// `SnapshotVmConfigurationHelper.markImagesIllegalIfNotInDb`).
    async fn disks_in(&self, vm: &str, saved: &Saved) -> Result<usize, BackendError> {
        let path = format!("/vms/{vm}/snapshots/{}/disks", saved.id);
        let disks = self.session.get(&path, &[]).await?;
        Ok(disks
            .iter()
            .filter(|disk| disk.text_of("status") != Some("illegal"))
            .count())
    }

    /// The id of a machine of this cluster that is down.
    async fn down(&self, cluster: &ClusterId, name: &MachineName) -> Result<String, BackendError> {
        let (id, _) = self.known(cluster, name).await?;
        match self.unlocked(&id).await?.text_of("status") {
            Some("down") => Ok(id),
            _ => Err(BackendError::new(
                BackendErrorKind::Rejected,
                format!("machine {name} is not switched off"),
            )),
        }
    }

    pub(super) async fn check_disks(
        &self,
        cluster: &ClusterId,
        names: &[MachineName],
    ) -> Result<Vec<Finding>, BackendError> {
        let mut findings = Findings(Vec::new());
        for name in names {
            let (vm, _) = self.known(cluster, name).await?;
            let path = format!("/vms/{vm}/diskattachments");
            for attachment in self.session.get(&path, &[("follow", "disk")]).await?.iter() {
                let text = |field: &str| attachment.text_of(field).unwrap_or_default();
                let why = match (text("disk/storage_type"), text("disk/shareable"), text("disk/status")) {
                    (_, "true", _) => "is shareable, so snapshots do not include it",
                    ("image" | "", _, "illegal") => "has status illegal",
                    ("image" | "", ..) => continue,
                    _ => "is not an image of a storage domain, so snapshots do not include it",
                };
                findings.fail(format!("{name}: disk {} {why}", text("disk/name")), "");
            }
            for saved in self
                .snapshots_of(&vm)
                .await?
                .iter()
                .filter(|saved| saved.status == "in_preview")
            {
                let hint = "commit or undo the preview in the engine's portal";
                findings.fail(format!("{name}: its snapshot {} is in preview", name_of(saved)), hint);
            }
        }
        if findings.0.is_empty() {
            findings.ok("all disks are images of storage domains, which have snapshots");
        }
        Ok(findings.0)
    }

    pub(super) async fn save(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<Action<()>, BackendError> {
        let vm = self.down(cluster, name).await?;
        let there = self.snapshots_of(&vm).await?;
        let is_there = there.iter().any(|saved| saved.is(cluster, snapshot));
        if !is_there {
            let path = format!("/vms/{vm}/diskattachments");
            let disks = self.session.get(&path, &[]).await?.iter().count();
            let body = Element::new("snapshot")
                .with("description", description(cluster, snapshot, disks))
                .with("persist_memorystate", "false");
            self.session.post(&format!("/vms/{vm}/snapshots"), &[], &body).await?;
        }
        let (saved, disks) = wait_for("the snapshot is still locked", DISKS, async || {
            let saved = self.owned_snapshot(&vm, cluster, name, snapshot).await?;
            Ok((saved.0.status != "locked").then_some(saved))
        })
        .await?;
        self.unlocked(&vm).await?;
        match self.disks_in(&vm, &saved).await? == disks {
            true if is_there => Ok(Action::Unchanged(())),
            true => Ok(Action::Done(())),
            false => Err(BackendError::new(
                BackendErrorKind::Rejected,
                format!("the snapshot of machine {name} does not have all of its disks"),
            )),
        }
    }

    /// The cluster's snapshot of a machine, and its number of disks.
    async fn owned_snapshot(
        &self,
        vm: &str,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<(Saved, usize), BackendError> {
        let all = self.snapshots_of(vm).await?.into_iter();
        let mut owned = all.filter_map(|saved| Some((saved.of(cluster)?, saved)));
        match owned.find(|((of, _), _)| of == snapshot) {
            Some(((_, disks), saved)) => Ok((saved, disks)),
            None => Err(BackendError::new(
                BackendErrorKind::NotFound,
                format!("machine {name} has no snapshot {}", snapshot.name),
            )),
        }
    }

    /// All snapshots of a cluster's machines.
    pub(super) async fn saved(&self, cluster: &ClusterId) -> Result<Vec<MachineSnapshot>, BackendError> {
        let mut all = Vec::new();
        for (vm, ours) in self.vms_of(cluster, "").await? {
            if ours.pass == Pass::One {
                continue;
            }
            let vm_id = id(&vm)?;
            // The machine may have been deleted since it was listed.
            let listed = if_exists(self.snapshots_of(&vm_id).await)?.unwrap_or_default();
            for saved in listed {
                let Some((snapshot, disks)) = saved.of(cluster) else {
                    continue;
                };
                // A restoration that was interrupted in the middle can be completed.
                let is_usable = matches!(saved.status.as_str(), "ok" | "in_preview");
                all.push(MachineSnapshot {
                    machine: ours.machine.clone(),
                    snapshot,
                    is_complete: is_usable && self.disks_in(&vm_id, &saved).await? == disks,
                });
            }
        }
        all.sort();
        Ok(all)
    }

    pub(super) async fn check_later_snapshots(
        &self,
        cluster: &ClusterId,
        names: &[MachineName],
        snapshot: &Snapshot,
    ) -> Result<Vec<Finding>, BackendError> {
        let mut findings = Findings(Vec::new());
        for name in names {
            let (vm, _) = self.known(cluster, name).await?;
            let all = self.snapshots_of(&vm).await?;
            let saved = all.iter().find(|saved| saved.is(cluster, snapshot));
            if let Some(problem) = saved.and_then(|saved| problem(&all, saved)) {
                findings.fail(format!("{name}: {problem}"), "delete these snapshots first");
            }
        }
        Ok(findings.0)
    }

    pub(super) async fn revert(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<(), BackendError> {
        let vm = self.down(cluster, name).await?;
        let (saved, disks) = self.owned_snapshot(&vm, cluster, name, snapshot).await?;
        if let Some(problem) = problem(&self.snapshots_of(&vm).await?, &saved) {
            return Err(BackendError::new(
                BackendErrorKind::Rejected,
                format!("machine {name}: {problem}"),
            ));
        }
        let present = self.session.get(&format!("/vms/{vm}/diskattachments"), &[]).await?;
        // Disks that a snapshot lacks are detached, or deleted.
        if self.disks_in(&vm, &saved).await? != disks || present.iter().count() != disks {
            let words = format!("machine {name} has other disks than its snapshot {}", snapshot.name);
            return Err(BackendError::new(BackendErrorKind::Rejected, words));
        }
        if saved.status != "in_preview" {
            let action = Element::new("action").with("restore_memory", "false");
            let path = format!("/vms/{vm}/snapshots/{}/restore", saved.id);
            self.session.post(&path, &[], &action).await?;
        }
        wait_for("the disks are still locked", DISKS, async || {
            self.unlocked(&vm).await?;
            let all = self.snapshots_of(&vm).await?;
            match all.iter().find(|other| other.id == saved.id) {
                Some(saved) if saved.status == "ok" => Ok(Some(())),
                // The engine ended between preview and commit.
                Some(saved) if saved.status == "in_preview" => {
                    let commit = format!("/vms/{vm}/commitsnapshot");
                    self.session.post(&commit, &[], &Element::new("action")).await?;
                    Ok(None)
                }
                Some(_) => Ok(None),
                None => conflict(format!("snapshot {} was deleted by another client", snapshot.name)),
            }
        })
        .await?;
        for attachment in present.iter() {
            self.disk_ready(&id(attachment)?).await?;
        }
        Ok(())
    }

    pub(super) async fn remove_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<Action<()>, BackendError> {
        let Some(vm) = self.find_vm(name).await? else {
            return Ok(Action::Unchanged(()));
        };
        Ownership::require(wire::ownership(&vm), cluster, name)?;
        let vm = id(&vm)?;
        let mut saved = self.snapshots_of(&vm).await?.into_iter();
        let Some(saved) = saved.find(|saved| saved.is(cluster, snapshot)) else {
            return Ok(Action::Unchanged(()));
        };
        wait_for("the machine is neither running nor off", DISKS, async || {
            let (_, status) = self.known(cluster, name).await?;
            Ok(MERGES.contains(&status.as_str()).then_some(()))
        })
        .await?;
        let path = format!("/vms/{vm}/snapshots/{}", saved.id);
        self.session.delete(&path).await?;
        let mut was_locked = false;
        wait_for("the snapshot is not deleted", DISKS, async || {
            let Some(there) = if_exists(self.session.get(&path, &[]).await)? else {
                return Ok(Some(()));
            };
            match there.text_of("snapshot_status") {
                Some("locked") => {
                    was_locked = true;
                    Ok(None)
                }
                // oVirt/ovirt-engine: `RemoveSnapshotCommand.endVmCommand`.
                _ if was_locked => Err(BackendError::new(
                    BackendErrorKind::Rejected,
                    format!(
                        "the engine could not delete snapshot {} of machine {name}",
                        snapshot.name
                    ),
                )
                .hint("the engine's events say which disk failed; run the same command again")),
                _ => Ok(None),
            }
        })
        .await?;
        self.unlocked(&vm).await?;
        Ok(Action::Done(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(name: &str) -> Snapshot {
        let taken = Timestamp::from_millisecond(1_790_000_000_123).unwrap();
        Snapshot::new(name.parse().unwrap(), taken)
    }

    #[test]
    fn a_description_is_read_back_and_others_are_ignored() {
        let cluster = ClusterId::read("lab.example.com.x7k2pqrs").unwrap();
        for name in ["a", "before-update"] {
            let text = description(&cluster, &snapshot(name), 2);
            assert_eq!(read_description(&text), Some((cluster.clone(), snapshot(name), 2)));
        }
        for other in [
            "before",
            "ocpdeploy-lab.example.com.x7k2pqrs",
            "ocpdeploy-lab.example.com.x7k2pqrs lab-worker-0",
            "ocpdeploy-lab.example.com.x7k2pqrs snapshot before",
            "ocpdeploy-lab.example.com.x7k2pqrs snapshot before 1790000000123",
            "ocpdeploy-lab.example.com.x7k2pqrs snapshot Before 1790000000123 2",
            "ocpdeploy-lab.example.com.x7k2pqrs snapshot before 1790000000123 2 3",
            "my ocpdeploy-lab.example.com.x7k2pqrs snapshot before 1790000000123 2",
        ] {
            assert_eq!(read_description(other), None, "{other}");
        }
    }

    #[test]
    fn only_the_latest_snapshot_is_restored() {
        let saved = |id: &str, at: &str, status: &str| Saved {
            id: id.to_owned(),
            description: format!("ocpdeploy-lab.example.com.x7k2pqrs snapshot {id} 1790000000123 2"),
            status: status.to_owned(),
            created: at.parse().ok(),
        };
        // Engines in other time zones.
        let all = |status| {
            [
                saved("first", "2026-11-24T10:00:00.000+01:00", status),
                saved("second", "2026-11-24T09:30:00.000Z", "ok"),
            ]
        };
        let ok = all("ok");
        let refused = problem(&ok, &ok[0]).unwrap();
        assert!(refused.ends_with("later snapshots: second"), "{refused}");
        assert_eq!(problem(&ok, &ok[1]), None);
        let previewed = all("in_preview");
        let refused = problem(&previewed, &previewed[1]).unwrap();
        assert!(refused.contains("first is in preview"), "{refused}");
    }
}
