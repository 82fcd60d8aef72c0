//! From a configuration, and later the address table, to the machines of each pass. Pure.

pub mod address_ranges;
pub mod addresses;
pub mod changes;
pub mod connections;
pub mod egress;
pub mod harvest;
pub mod machines;
pub mod mismatch;
pub mod node_report;
pub mod node_settings;
pub mod preview;

use serde::Serialize;

use crate::cluster::MachineName;

/// What happens to an object of the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    Create,
    Keep,
    /// Differs from the plan, and stays as it is; see the reason.
    Differs,
    Delete,
    /// A machine is shut down.
    Stop,
}

/// What happens to one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    pub action: Action,
    pub object: &'static str,
    pub name: String,
    pub why: Option<String>,
}

impl Change {
    pub fn of_machine(action: Action, name: &MachineName, why: Option<String>) -> Self {
        Self {
            action,
            object: "machine",
            name: name.to_string(),
            why,
        }
    }

    /// A machine that is deleted with all its disks.
    pub fn loss(name: &MachineName, why: &str) -> Self {
        Self::of_machine(Action::Delete, name, Some(format!("{why}; all its disks are lost")))
    }
}
