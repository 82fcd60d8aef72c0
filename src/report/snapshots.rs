//! Snapshots of a cluster.

use serde::Serialize;

use super::{row, table};
use crate::backend::{Snapshot, SnapshotName};
use crate::cluster::{ClusterDomain, NodeName};
use crate::passes::snapshot::{Found, Restored, Saved};
use crate::printable::printable_line;

/// A snapshot that was saved.
#[derive(Debug, Serialize)]
pub struct SavedSnapshot {
    #[serde(flatten, serialize_with = "ClusterDomain::as_keys")]
    cluster: ClusterDomain,
    #[serde(flatten)]
    saved: Saved,
}

impl SavedSnapshot {
    pub fn new(cluster: ClusterDomain, saved: Saved) -> Self {
        Self { cluster, saved }
    }

    pub fn text(&self) -> String {
        let Saved {
            snapshot: Snapshot { name, taken },
            running,
            backup,
        } = &self.saved;
        let cluster = &self.cluster;
        let mut text = format!("snapshot {name} of cluster {cluster} saved at {taken:.0}\n");
        for file in backup {
            text += &format!("etcd: {}\n", printable_line(&file.display().to_string()));
        }
        text + &match running {
            true => "the cluster runs, with the addresses it had\n".to_owned(),
            false => format!("the cluster is off; `ocpdeploy start {}` starts it\n", cluster.name()),
        }
    }
}

/// The snapshots of a cluster, the oldest first.
#[derive(Debug, Serialize)]
pub struct SnapshotList {
    #[serde(flatten, serialize_with = "ClusterDomain::as_keys")]
    cluster: ClusterDomain,
    snapshots: Vec<Found>,
}

impl SnapshotList {
    pub fn new(cluster: ClusterDomain, snapshots: Vec<Found>) -> Self {
        Self { cluster, snapshots }
    }

    pub fn text(&self) -> String {
        if self.snapshots.is_empty() {
            return format!("no snapshots of cluster {}\n", self.cluster);
        }
        let head = row([&"NAME", &"SAVED", &"STATE"]);
        let rows = self.snapshots.iter().map(|entry| {
            let missing: Vec<&str> = entry.missing.iter().map(NodeName::as_str).collect();
            let state = match missing.is_empty() {
                true => "complete".to_owned(),
                false => format!("cannot be restored: no disks of {}", missing.join(", ")),
            };
            row([&entry.snapshot.name, &format!("{:.0}", entry.snapshot.taken), &state])
        });
        table(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
    }
}

/// A cluster that was restored.
#[derive(Debug, Serialize)]
pub struct RestoredSnapshot {
    #[serde(flatten, serialize_with = "ClusterDomain::as_keys")]
    cluster: ClusterDomain,
    #[serde(flatten)]
    restored: Restored,
    rehearsal: bool,
}

impl RestoredSnapshot {
    pub fn new(cluster: ClusterDomain, restored: Restored, rehearsal: bool) -> Self {
        Self {
            cluster,
            restored,
            rehearsal,
        }
    }

    pub fn text(&self) -> String {
        let Snapshot { name, taken } = &self.restored.snapshot;
        let ready = if self.rehearsal {
            ""
        } else {
            ", and its nodes are Ready"
        };
        format!(
            "cluster {} is restored from snapshot {name} of {taken:.0}, with the addresses it had{ready}\n",
            self.cluster
        )
    }
}

/// A snapshot that was deleted.
#[derive(Debug, Serialize)]
pub struct DeletedSnapshot {
    #[serde(flatten, serialize_with = "ClusterDomain::as_keys")]
    pub cluster: ClusterDomain,
    pub name: SnapshotName,
}

impl DeletedSnapshot {
    pub fn text(&self) -> String {
        format!("snapshot {} of cluster {} deleted\n", self.name, self.cluster)
    }
}

/// What a restored cluster says about itself.
pub fn restored_text(restored: &Restored) -> String {
    let Snapshot { name, taken } = &restored.snapshot;
    format!("restored at {:.0} from snapshot {name} of {taken:.0}", restored.at)
}
