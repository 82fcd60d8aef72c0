//! Snapshots of machines that are off: the facet and its types.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::action::Action;
use super::error::BackendError;
use super::findings::Finding;
use crate::cluster::{ClusterId, MachineName};

/// Snapshots of all disks of machines that are off.
///
/// The platform stores the cluster's tag, the name and the time with each. Snapshots without the tag are never changed.
/// `delete_machine` deletes those of its machine; where they are part of its disks, also those without the tag.
#[async_trait(?Send)]
pub trait Snapshots {
    /// What prevents snapshots of these machines, or may do so later: kinds of disks, space. Changes nothing.
    async fn check_snapshots(&self, cluster: &ClusterId, names: &[MachineName]) -> Result<Vec<Finding>, BackendError>;

    /// Creates a snapshot of a machine that is off; an existing one is `Unchanged`. A machine that is not off is
    /// `Rejected`, a missing one `NotFound`, one that is not owned by this cluster a `Conflict`.
    async fn save_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<Action<()>, BackendError>;

    /// All snapshots of machines of this cluster.
    async fn list_snapshots(&self, cluster: &ClusterId) -> Result<Vec<MachineSnapshot>, BackendError>;

    /// What prevents the restoration of these machines. Changes nothing.
    async fn check_restore(
        &self,
        _: &ClusterId,
        _: &[MachineName],
        _: &Snapshot,
    ) -> Result<Vec<Finding>, BackendError> {
        Ok(Vec::new())
    }

    /// Gives the disks of a machine that is off the content that they had; later snapshots stay. Errors are those of
    /// `save_snapshot`; a missing snapshot is `NotFound`, and one that `check_restore` fails is `Rejected`.
    async fn revert_to_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<(), BackendError>;

    /// Deletes a snapshot, complete or not, of a machine in any state; its disks stay as they are. A missing snapshot
    /// or machine is `Unchanged`, a machine that is not owned by this cluster a `Conflict`.
    async fn delete_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<Action<()>, BackendError>;
}

/// A snapshot of a cluster: that of each of its machines has the same name and time.
///
/// The time tells the snapshots of two attempts apart, between which the machines may have run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Snapshot {
    pub name: SnapshotName,
    /// In whole milliseconds.
    pub taken: Timestamp,
}

impl Snapshot {
    pub fn new(name: SnapshotName, taken: Timestamp) -> Self {
        let whole = Timestamp::from_millisecond(taken.as_millisecond());
        Self {
            name,
            taken: whole.unwrap_or(taken),
        }
    }
}

/// The snapshot of one machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MachineSnapshot {
    pub machine: MachineName,
    pub snapshot: Snapshot,
    /// Whether it can be restored: the platform may still create it, or may have failed.
    pub is_complete: bool,
}

/// The name of a snapshot: a DNS label of at most 40 characters, which fits into the names of every platform.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SnapshotName(String);

impl SnapshotName {
    const LONGEST: usize = 40;

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SnapshotName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_label = text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-');
        match is_label && (1..=Self::LONGEST).contains(&text.len()) {
            true => Ok(Self(text.to_owned())),
            false => Err(format!(
                "a snapshot's name has 1 to {} lowercase letters, digits and `-`, e.g. before-update",
                Self::LONGEST
            )),
        }
    }
}

impl TryFrom<String> for SnapshotName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<SnapshotName> for String {
    fn from(name: SnapshotName) -> Self {
        name.0
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_short_label() {
        let longest = "a".repeat(SnapshotName::LONGEST);
        for good in ["a", "before-update", "4-20-1", longest.as_str()] {
            assert_eq!(good.parse::<SnapshotName>().unwrap().as_str(), good);
        }
        let too_long = format!("{longest}a");
        for bad in ["", "-a", "a-", "A", "a_b", "a.b", "a b", "ä", "../a", too_long.as_str()] {
            assert!(bad.parse::<SnapshotName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_time_has_whole_milliseconds() {
        let taken: Timestamp = "2026-11-24T08:00:00.123456789Z".parse().unwrap();
        let snapshot = Snapshot::new("a".parse().unwrap(), taken);
        assert_eq!(snapshot.taken.to_string(), "2026-11-24T08:00:00.123Z");
    }
}
