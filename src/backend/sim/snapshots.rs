//! Snapshots of simulated machines. A simulated disk is the number of times that its guest has booted from it.

use super::rules::{find_machine, reject};
use super::world::{SimMachine, SimSnapshot, World};
use crate::backend::{Action, BackendError, BackendErrorKind, Finding, Snapshot};
use crate::cluster::{ClusterId, MachineName};

impl SimSnapshot {
    fn is(&self, cluster: &ClusterId, snapshot: &Snapshot) -> bool {
        self.cluster.as_ref() == Some(cluster) && self.snapshot == *snapshot
    }
}

/// A machine of this cluster that is off.
fn off<'a>(world: &'a World, cluster: &ClusterId, name: &MachineName) -> Result<&'a SimMachine, BackendError> {
    match find_machine(world, cluster, name)? {
        None => reject(BackendErrorKind::NotFound, format!("no machine {name}")),
        Some(machine) if !machine.off => reject(
            BackendErrorKind::Rejected,
            format!("machine {name} is not switched off"),
        ),
        Some(machine) => Ok(machine),
    }
}

fn size(machine: &SimMachine) -> u64 {
    machine.disk_gib + machine.extra_disks_gib.iter().sum::<u64>()
}

pub fn check(world: &World, cluster: &ClusterId, names: &[MachineName]) -> Result<Finding, BackendError> {
    let mut needed = 0;
    for name in names {
        match find_machine(world, cluster, name)? {
            Some(machine) => needed += size(machine),
            None => return reject(BackendErrorKind::NotFound, format!("no machine {name}")),
        }
    }
    let with_snapshots = |machine: &SimMachine| size(machine) * (1 + machine.snapshots.len() as u64);
    let used: u64 = world.machines.values().map(with_snapshots).sum();
    let Some(free) = world.limits.disk_gib.map(|most| most.saturating_sub(used)) else {
        return Ok(Finding::ok("disks have no limit"));
    };
    let text = format!("{free} GiB of disk space free, the snapshot takes up to {needed} GiB");
    Ok(match free {
        0 => Finding::fail(text),
        _ if free < needed => Finding::warn(text),
        _ => Finding::ok(text),
    })
}

/// Creates a snapshot of a machine that is off.
pub fn save(
    world: &mut World,
    cluster: &ClusterId,
    name: &MachineName,
    snapshot: &Snapshot,
) -> Result<Action<()>, BackendError> {
    let machine = off(world, cluster, name)?;
    if machine.snapshots.iter().any(|there| there.is(cluster, snapshot)) {
        return Ok(Action::Unchanged(()));
    }
    let new = SimSnapshot {
        cluster: Some(cluster.clone()),
        snapshot: snapshot.clone(),
        disk: machine.disk,
    };
    if let Some(machine) = world.machines.get_mut(name) {
        machine.snapshots.push(new);
    }
    Ok(Action::Done(()))
}

/// Restores the disk of a machine that is off.
pub fn revert(
    world: &mut World,
    cluster: &ClusterId,
    name: &MachineName,
    snapshot: &Snapshot,
) -> Result<(), BackendError> {
    let machine = off(world, cluster, name)?;
    let Some(found) = machine.snapshots.iter().find(|there| there.is(cluster, snapshot)) else {
        let text = format!("machine {name} has no snapshot {}", snapshot.name);
        return reject(BackendErrorKind::NotFound, text);
    };
    let disk = found.disk;
    if let Some(machine) = world.machines.get_mut(name) {
        machine.disk = disk;
    }
    Ok(())
}

/// Deletes a snapshot of a machine in any state.
pub fn delete(
    world: &mut World,
    cluster: &ClusterId,
    name: &MachineName,
    snapshot: &Snapshot,
) -> Result<Action<()>, BackendError> {
    let machine = find_machine(world, cluster, name)?;
    if !machine.is_some_and(|machine| machine.snapshots.iter().any(|there| there.is(cluster, snapshot))) {
        return Ok(Action::Unchanged(()));
    }
    if let Some(machine) = world.machines.get_mut(name) {
        machine.snapshots.retain(|there| !there.is(cluster, snapshot));
    }
    Ok(Action::Done(()))
}
