//! Snapshots of machines. A disk's content is what was uploaded to it.
//!
//! Source: oVirt/ovirt-engine: CreateSnapshotForVmCommand, RemoveSnapshotCommand, TryBackToAllSnapshotsOfVmCommand,
//! RestoreAllSnapshotsCommand, BackendSnapshotResource.

use std::sync::Arc;

use super::faults::{Outcome, Refusal};
use super::http::Request;
use super::shapes;
use super::show::{API, reference, time};
use super::world::*;
use super::xml::{Node, node};

/// A snapshot of a user.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub id: String,
    pub description: String,
    /// `ok`, `locked` or `in_preview`.
    pub status: String,
    pub created: Instant,
    /// Ids and contents.
    pub disks: Vec<(String, Arc<[u8]>)>,
    /// Disks that were lost: their images are illegal.
    pub lost: Vec<String>,
}

impl World {
    fn snapshot(&self, vm: &str, id: &str) -> Outcome<&Snapshot> {
        super::check_guid(id)?;
        let mut snapshots = self.vm(vm)?.snapshots.iter();
        snapshots.find(|snapshot| snapshot.id == id).ok_or(Refusal::NotFound)
    }

    fn snapshot_mut(&mut self, vm: &str, id: &str) -> Option<&mut Snapshot> {
        let mut snapshots = self.vm_mut(vm)?.snapshots.iter_mut();
        snapshots.find(|snapshot| snapshot.id == id)
    }

    /// The snapshots of users, and the active one.
    pub fn show_snapshots(&self, vm: &str) -> Outcome<Node> {
        let vm = self.vm(vm)?;
        let active = Snapshot {
            // Any id of its own.
            id: format!("{}a", &vm.id[..vm.id.len() - 1]),
            description: "Active VM".to_owned(),
            status: if vm.status == "image_locked" { "locked" } else { "ok" }.to_owned(),
            created: vm.created,
            disks: Vec::new(),
            lost: Vec::new(),
        };
        let active = show(&vm.id, &active, "active");
        let all = vm.snapshots.iter().map(|snapshot| show(&vm.id, snapshot, "regular"));
        Ok(node("snapshots").add(active).all(all))
    }

    pub fn show_snapshot(&self, vm: &str, id: &str) -> Outcome<Node> {
        Ok(show(vm, self.snapshot(vm, id)?, "regular"))
    }

    pub fn show_snapshot_disks(&self, vm: &str, id: &str) -> Outcome<Node> {
        let snapshot = self.snapshot(vm, id)?;
        let shown = |id: &String| {
            let disk = self.find_disk(id)?;
            let status = if snapshot.lost.contains(id) { "illegal" } else { "ok" };
            Ok(self.show_disk(&Disk {
                status: status.to_owned(),
                ..disk.clone()
            }))
        };
        let disks: Vec<Node> = snapshot.disks.iter().map(|(id, _)| shown(id)).collect::<Outcome<_>>()?;
        Ok(node("disks").all(disks))
    }

    fn not_previewed(&self, vm: &Vm, operation: &str) -> Outcome<()> {
        match vm.snapshots.iter().any(|snapshot| snapshot.status == "in_preview") {
            true => Refusal::because("ACTION_TYPE_FAILED_VM_IN_PREVIEW", operation, &[]),
            false => Ok(()),
        }
    }

    fn snapshot_possible(&self, vm: &Vm, operation: &str) -> Outcome<()> {
        if vm.status == "image_locked" {
            return Refusal::because("ACTION_TYPE_FAILED_VM_IS_LOCKED", operation, &[]);
        }
        if vm.snapshots.iter().any(|snapshot| snapshot.status == "locked") {
            return Refusal::because("ACTION_TYPE_FAILED_VM_IS_DURING_SNAPSHOT", operation, &[]);
        }
        self.disks_unlocked(vm.disks.iter().map(|attachment| attachment.disk.as_str()), operation)
    }

    pub fn add_snapshot(&mut self, vm: &str, request: &Request) -> Outcome<Node> {
        let body = super::read(request, "snapshot", shapes::SNAPSHOT, "snapshots/methods/add")?;
        let vm = self.vm(vm)?.clone();
        let Some(description) = body.get("description") else {
            return Refusal::incomplete("Snapshot", "description", "add");
        };
        let operation = "create Snapshot";
        self.snapshot_possible(&vm, operation)?;
        self.not_previewed(&vm, operation)?;
        if !["down", "up", "paused"].contains(&vm.status.as_str()) {
            return Refusal::because(
                "ACTION_TYPE_FAILED_VM_IS_NOT_DOWN_OR_UP",
                operation,
                &[("VmName", &vm.name)],
            );
        }
        let content = |attachment: &Attachment| {
            let disk = self.find_disk(&attachment.disk)?;
            Ok((disk.id.clone(), disk.data.clone()))
        };
        let disks = vm.disks.iter().map(content).collect::<Outcome<_>>()?;
        let snapshot = Snapshot {
            id: self.new_id(),
            description,
            status: "locked".to_owned(),
            created: self.now,
            disks,
            lost: Vec::new(),
        };
        let was_down = vm.status == "down";
        if let Some(vm) = self.vm_mut(&vm.id) {
            vm.snapshots.push(snapshot.clone());
            if was_down {
                vm.status = "image_locked".to_owned();
            }
        }
        let time = self.times.snapshot;
        self.after(time, Effect::SnapshotOk(vm.id.clone(), snapshot.id.clone()));
        Ok(show(&vm.id, &snapshot, "regular"))
    }

    pub(super) fn snapshot_done(&mut self, vm: &str, id: &str) {
        if let Some(snapshot) = self.snapshot_mut(vm, id) {
            snapshot.status = "ok".to_owned();
        }
        self.happen(Effect::VmDown(vm.to_owned()));
    }

    pub fn remove_snapshot(&mut self, vm: &str, id: &str) -> Outcome<()> {
        let vm = self.vm(vm)?.clone();
        self.snapshot(&vm.id, id)?;
        let operation = "remove Snapshot";
        self.snapshot_possible(&vm, operation)?;
        self.not_previewed(&vm, operation)?;
        // oVirt/ovirt-engine: VMStatus.isQualifiedForSnapshotMerge.
        if !["down", "up", "powering_up", "paused", "reboot_in_progress"].contains(&vm.status.as_str()) {
            return Refusal::because(
                "ACTION_TYPE_FAILED_VM_IS_NOT_DOWN_OR_UP",
                operation,
                &[("VmName", &vm.name)],
            );
        }
        if let Some(snapshot) = self.snapshot_mut(&vm.id, id) {
            snapshot.status = "locked".to_owned();
        }
        let time = self.times.snapshot;
        self.after(time, Effect::SnapshotGone(vm.id.clone(), id.to_owned()));
        Ok(())
    }

    pub(super) fn snapshot_gone(&mut self, vm: &str, id: &str) {
        let fails = self.merges_fail;
        let Some(snapshot) = self.snapshot_mut(vm, id) else {
            return;
        };
        if fails {
            // Of its disks, the first was merged already.
            snapshot.status = "ok".to_owned();
            snapshot.lost = snapshot.disks.iter().take(1).map(|(disk, _)| disk.clone()).collect();
        } else if let Some(vm) = self.vm_mut(vm) {
            vm.snapshots.retain(|snapshot| snapshot.id != id);
        }
    }

    /// Preview and commit in one request, which waits for the first of them.
    pub fn restore_snapshot(&mut self, vm: &str, id: &str, request: &Request) -> Outcome<()> {
        super::read(request, "action", shapes::ACTION, "snapshot/methods/restore")?;
        let vm = self.vm(vm)?.clone();
        self.snapshot(&vm.id, id)?;
        let operation = "preview Snapshot";
        self.snapshot_possible(&vm, operation)?;
        self.not_previewed(&vm, operation)?;
        if vm.status != "down" {
            return Refusal::because("ACTION_TYPE_FAILED_VM_IS_NOT_DOWN", operation, &[]);
        }
        if let Some(snapshot) = self.snapshot_mut(&vm.id, id) {
            snapshot.status = "in_preview".to_owned();
        }
        if self.ends_in_preview {
            self.ends_in_preview = false;
            return Err(Refusal::Exception);
        }
        self.commit(&vm.id);
        Ok(())
    }

    pub fn commit_snapshot(&mut self, vm: &str, request: &Request) -> Outcome<()> {
        super::read(request, "action", shapes::ACTION, "vm/methods/commit_snapshot")?;
        let vm = self.vm(vm)?.clone();
        let operation = "revert to Snapshot";
        self.snapshot_possible(&vm, operation)?;
        if !vm.snapshots.iter().any(|snapshot| snapshot.status == "in_preview") {
            return Refusal::because("ACTION_TYPE_FAILED_VM_SNAPSHOT_NOT_IN_PREVIEW", operation, &[]);
        }
        if vm.status != "down" {
            return Refusal::because("ACTION_TYPE_FAILED_VM_IS_NOT_DOWN", operation, &[]);
        }
        self.commit(&vm.id);
        Ok(())
    }

    /// The snapshot has its status immediately, its disks later; all later snapshots are deleted.
    fn commit(&mut self, vm: &str) {
        let Some(vm) = self.vm_mut(vm) else { return };
        let (id, snapshots) = (vm.id.clone(), &mut vm.snapshots);
        let Some(restored) = snapshots.iter_mut().find(|snapshot| snapshot.status == "in_preview") else {
            return;
        };
        restored.status = "ok".to_owned();
        let restored = restored.clone();
        snapshots.retain(|snapshot| snapshot.created <= restored.created);
        vm.status = "image_locked".to_owned();
        vm.disks
            .retain(|attachment| restored.disks.iter().any(|(disk, _)| *disk == attachment.disk));
        let time = self.times.snapshot;
        self.after(time, Effect::Restored(id, restored.id));
    }

    pub(super) fn restored(&mut self, vm: &str, id: &str) {
        let disks = self.snapshot(vm, id).map(|snapshot| snapshot.disks.clone());
        for (id, content) in disks.unwrap_or_default() {
            if let Some(disk) = self.disk_mut(&id) {
                disk.data = content;
            }
        }
        self.happen(Effect::VmDown(vm.to_owned()));
    }
}

/// oVirt/ovirt-engine: SnapshotMapper.
fn show(vm: &str, snapshot: &Snapshot, kind: &str) -> Node {
    let path = format!("{API}/vms/{vm}/snapshots/{}", snapshot.id);
    let shown = node("snapshot")
        .href(path.clone())
        .id(&snapshot.id)
        .text("description", &snapshot.description)
        .text("date", time(snapshot.created))
        .text("persist_memorystate", false)
        .text("snapshot_status", &snapshot.status)
        .text("snapshot_type", kind)
        .add(reference("vm", "vms", vm));
    let links = ["cdroms", "disks", "nics"];
    links
        .iter()
        .fold(shown, |shown, link| shown.link(link, format!("{path}/{link}")))
}
