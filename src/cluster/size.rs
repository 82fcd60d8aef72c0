//! The size of a machine.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::printable::count;

/// The size of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    pub cpus: u32,
    pub memory_mib: u64,
    pub disk_gib: u64,
    /// Sizes of additional, empty disks.
    pub extra_disks_gib: Vec<u64>,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cpus, memory, disk) = (count(self.cpus, "CPU"), self.memory_mib, self.disk_gib);
        write!(f, "{cpus}, {memory} MiB of memory, {disk} GiB of disk")?;
        self.extra_disks_gib
            .iter()
            .try_for_each(|disk| write!(f, " + {disk} GiB"))
    }
}
