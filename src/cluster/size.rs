//! The sizes of machines.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::names::{NodeName, Role};
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

/// The sizes of each role's and each pool's machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    pub bootstrap: Size,
    pub master: Size,
    /// Only if there is an arbiter.
    pub arbiter: Option<Size>,
    pub worker: Size,
    /// By the name of the pool.
    pub pools: BTreeMap<String, Size>,
}

impl Sizes {
    /// The size of a node's machine; `None` for machines of pass one.
    pub fn of(&self, node: &NodeName, role: Role) -> Option<&Size> {
        match role {
            Role::Bootstrap => Some(&self.bootstrap),
            Role::Master => Some(&self.master),
            Role::Arbiter => self.arbiter.as_ref(),
            Role::Worker => Some(
                node.pool()
                    .and_then(|pool| self.pools.get(pool))
                    .unwrap_or(&self.worker),
            ),
            Role::Helper => None,
        }
    }

    /// Sets the size of all machines with a node's role or pool.
    pub fn set(&mut self, node: &NodeName, size: Size) {
        match (node.role(), node.pool()) {
            (Role::Bootstrap, _) => self.bootstrap = size,
            (Role::Master, _) => self.master = size,
            (Role::Arbiter, _) => self.arbiter = Some(size),
            (Role::Worker, None) => self.worker = size,
            (Role::Worker, Some(pool)) => {
                self.pools.insert(pool.to_owned(), size);
            }
            (Role::Helper, _) => {}
        }
    }
}
