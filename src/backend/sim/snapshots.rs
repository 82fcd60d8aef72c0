//! Snapshots of simulated machines. A simulated disk is the number of times that its guest has booted from it.

use async_trait::async_trait;

use super::Sim;
use super::rules::{Rejection, find_machine, reject, snapshots_of};
use super::world::{Call, SimMachine, SimSnapshot, World};
use crate::backend::{Action, BackendError, BackendErrorKind, Finding, MachineSnapshot, Snapshot, Snapshots, Verdict};
use crate::cluster::{ClusterId, MachineName};

impl SimSnapshot {
    fn is(&self, cluster: &ClusterId, snapshot: &Snapshot) -> bool {
        self.cluster.as_ref() == Some(cluster) && self.snapshot == *snapshot
    }
}

/// A machine of this cluster that is off.
fn off<'a>(world: &'a World, cluster: &ClusterId, name: &MachineName) -> Result<&'a SimMachine, Rejection> {
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

fn check(world: &World, cluster: &ClusterId, names: &[MachineName]) -> Result<Finding, Rejection> {
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
        0 => Finding::new(Verdict::Fail, text),
        _ if free < needed => Finding::new(Verdict::Warn, text),
        _ => Finding::ok(text),
    })
}

#[async_trait(?Send)]
impl Snapshots for Sim {
    async fn check_snapshots(&self, cluster: &ClusterId, names: &[MachineName]) -> Result<Vec<Finding>, BackendError> {
        let operation = format!("check the disks of cluster {cluster}");
        self.call(Call::CheckSnapshots, cluster.as_str(), operation, |world, _| {
            Ok(vec![check(world, cluster, names)?])
        })
        .await
    }

    async fn save_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<Action<()>, BackendError> {
        let operation = format!("save snapshot {} of machine {name}", snapshot.name);
        self.call(Call::SaveSnapshot, name.as_str(), operation, |world, _| {
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
        })
        .await
    }

    async fn list_snapshots(&self, cluster: &ClusterId) -> Result<Vec<MachineSnapshot>, BackendError> {
        let operation = format!("list the snapshots of cluster {cluster}");
        self.call(Call::ListSnapshots, cluster.as_str(), operation, |world, _| {
            Ok(snapshots_of(world, cluster))
        })
        .await
    }

    async fn revert_to_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<(), BackendError> {
        let operation = format!("restore snapshot {} of machine {name}", snapshot.name);
        self.call(Call::RevertToSnapshot, name.as_str(), operation, |world, _| {
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
        })
        .await
    }

    async fn delete_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<Action<()>, BackendError> {
        let operation = format!("delete snapshot {} of machine {name}", snapshot.name);
        self.call(Call::DeleteSnapshot, name.as_str(), operation, |world, _| {
            let machine = find_machine(world, cluster, name)?;
            if !machine.is_some_and(|machine| machine.snapshots.iter().any(|there| there.is(cluster, snapshot))) {
                return Ok(Action::Unchanged(()));
            }
            if let Some(machine) = world.machines.get_mut(name) {
                machine.snapshots.retain(|there| !there.is(cluster, snapshot));
            }
            Ok(Action::Done(()))
        })
        .await
    }
}
