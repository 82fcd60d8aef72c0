//! The types of snapshots.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::cluster::{MachineName, text_type};

/// A snapshot of a cluster: that of each of its machines has the same name and time.
///
/// The time distinguishes the snapshots of two attempts, between which the machines may have run.
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
    /// Whether it can be restored. Otherwise the platform is still creating it, or has failed.
    pub is_complete: bool,
}

/// The name of a snapshot: a DNS label of at most 40 characters, which fits into the names of every platform.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SnapshotName(String);

impl SnapshotName {
    const LONGEST: usize = 40;

    fn is_valid(text: &str) -> bool {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_label = text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-');
        is_label && (1..=Self::LONGEST).contains(&text.len())
    }
}

text_type!(
    SnapshotName,
    SnapshotName::is_valid,
    "a snapshot's name: 1 to 40 lowercase letters, digits and `-`, e.g. before-update"
);

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
