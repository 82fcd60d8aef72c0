//! Deletes exactly the objects that carry a cluster's tag.

use anyhow::{Context, Result};
use tracing::info;

use super::partial_failure::with_leftovers;
use crate::PROGRESS;
use crate::backend::platforms::Platforms;
use crate::backend::{Machine, Owned, PlatformError};
use crate::cluster::ClusterId;
use crate::error::{ErrorKind, OperationError};
use crate::printable::count;
use crate::state::home::ClusterDir;
use crate::state::journal;

/// How often everything is deleted: the platform may complete a request of a killed run after the first listing.
const ROUNDS: usize = 3;

/// Deletes exactly the objects with the cluster's tag, and the cluster's directory in the state directory, if it
/// exists.
///
/// With `keep_addresses` the parameter file and the reservations stay for the next deployment. `begun` is called when
/// all checks have passed.
pub async fn destroy(
    backend: &Platforms,
    cluster: &ClusterId,
    name: &str,
    dir: Option<&ClusterDir>,
    keep_addresses: bool,
    begun: impl FnOnce(),
) -> Result<()> {
    let dir = dir.filter(|dir| dir.exists());
    let _lock = dir.map(|dir| journal::lock(dir, name)).transpose()?;
    let machines = backend.list_machines(cluster).await?;
    begun();
    let gone = remove_all(backend, cluster, dir, keep_addresses, machines);
    with_leftovers(backend, cluster, "destroy", false, gone.await).await
}

async fn remove_all(
    backend: &Platforms,
    cluster: &ClusterId,
    dir: Option<&ClusterDir>,
    keep_addresses: bool,
    mut machines: Vec<Machine>,
) -> Result<()> {
    let mut left = Vec::new();
    for _ in 0..ROUNDS {
        delete_machines(backend, cluster, &machines).await?;
        if keep_addresses {
            let emptied = dir.map_or(Ok(()), ClusterDir::remove_all_but_addresses);
            return emptied.context("empty the cluster's directory");
        }
        backend.delete_remaining(cluster).await?;
        left = backend.list_owned(cluster).await?;
        if left.is_empty() {
            let removed = dir.map_or(Ok(()), ClusterDir::remove);
            return removed.context("remove the cluster's directory");
        }
        machines = backend.list_machines(cluster).await?;
    }
    Err(leftovers(&left).into())
}

fn leftovers(left: &[Owned]) -> OperationError {
    let lines: String = left
        .iter()
        .map(|owned| format!("\n  {} {}", owned.kind, owned.name))
        .collect();
    let text = format!("{} could not be deleted:{lines}", count(left.len(), "object"));
    OperationError::new(ErrorKind::Platform, text)
        .hint("run the same command again; the platform's log may show the cause")
}

pub(super) async fn delete_machines(backend: &Platforms, cluster: &ClusterId, machines: &[Machine]) -> Result<()> {
    let total = machines.len();
    if total > 0 {
        info!(target: PROGRESS, step = "delete", total, "deleting {}", count(total, "machine"));
    }
    let delete = async |machine: &Machine| {
        backend.delete_machine(cluster, &machine.name).await?;
        info!(target: PROGRESS, step = "delete", node = %machine.node, state = "deleted", done = true);
        Ok::<_, PlatformError>(())
    };
    backend.concurrently(machines, delete).await?;
    let left = backend.list_machines(cluster).await?.into_iter();
    let left: Vec<_> = left
        .filter(|machine| machines.iter().any(|deleted| deleted.name == machine.name))
        .map(|machine| Owned {
            kind: "machine".to_owned(),
            name: machine.name.to_string(),
        })
        .collect();
    if left.is_empty() {
        Ok(())
    } else {
        Err(leftovers(&left).into())
    }
}

pub(super) fn remove_file(path: &std::path::Path) -> Result<()> {
    match fs_err::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
