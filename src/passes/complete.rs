//! An installed cluster: `deploy` verifies it and changes nothing.

use super::error::{is_or_are, names};
use super::options::DeployOptions;
use crate::backend::{Machine, Power};
use crate::cluster::{ClusterConfig, Pass, Role};
use crate::error::{ErrorKind, OperationError};
use crate::plan::mismatch::mismatch;
use crate::printable::count;
use crate::state::inventory::Cluster;
use crate::state::journal::{self, Entry, INSTALLED};
use crate::state::parameters::Parameters;

/// Rejects a deployment whose settings differ from the installed cluster.
///
/// Settings that only affect the installer's files are not compared here, but by their journal step.
pub(super) fn refuse_changes(
    config: &ClusterConfig,
    cluster: &Cluster,
    journal: &[Entry],
    options: DeployOptions<'_>,
) -> Result<(), OperationError> {
    if !journal::is_done(journal, INSTALLED) {
        return Ok(());
    }
    let name = &config.name;
    let Some(table) = &cluster.parameters else {
        return Ok(());
    };
    if options.harvest_again {
        let text = format!("cluster {name} is installed: its addresses are in use and cannot be harvested again");
        return Err(OperationError::new(ErrorKind::Usage, text).hint("omit `--harvest`"));
    }
    let workers = workers(config, table);
    let mut what = others(config, cluster, table);
    let only = !workers.is_empty() && what.is_empty();
    let scale: Vec<_> = workers.iter().map(|(_, option)| option.clone()).collect();
    what.extend(workers.into_iter().map(|(what, _)| what));
    match what.is_empty() {
        true => Ok(()),
        false => Err(differs(name, &what.join("; "), only.then(|| scale.join(" ")))),
    }
}

/// The error for settings that differ from an installed cluster. `scale` are the options of `ocpdeploy scale` if only
/// the number of workers differs.
pub(super) fn differs(cluster: &str, what: &str, scale: Option<String>) -> OperationError {
    let text = format!("cluster {cluster} is installed, and the settings differ from it: {what}");
    OperationError::new(ErrorKind::Usage, text).hint(match scale {
        Some(options) => format!("`ocpdeploy scale {cluster} {options}`"),
        None => format!(
            "restore the settings. `ocpdeploy scale {cluster} --workers N --pool POOL=N` changes the number of workers. New \
             sizes take effect when a node is recreated: `ocpdeploy node replace {cluster} NODE --env ENV`. The \
             number of masters, networks and addresses of an installed cluster cannot be changed"
        ),
    })
}

/// A stopped cluster is started in order by `start`, not by a command that waits for its addresses.
pub(super) fn refuse_switched_off(cluster: &str, machines: &[Machine]) -> Result<(), OperationError> {
    let off = |machine: &&Machine| machine.pass == Pass::Two && machine.power == Power::Off;
    let off: Vec<_> = machines.iter().filter(off).map(|machine| &machine.name).collect();
    if off.is_empty() {
        return Ok(());
    }
    let text = format!(
        "{} of cluster {cluster} {} switched off: {}",
        count(off.len(), "machine"),
        is_or_are(off.len()),
        names(&off)
    );
    let hint = format!("start the cluster with `ocpdeploy start {cluster}`");
    Err(OperationError::new(ErrorKind::Tool, text).hint(hint))
}

/// The differences in the number of workers, and the option of `scale` for each.
fn workers(config: &ClusterConfig, table: &Parameters) -> Vec<(String, String)> {
    let has = config.with_workers_of(table.nodes.iter().map(|node| &node.name));
    let mut differences = Vec::new();
    if has.workers != config.workers {
        let what = format!(
            "it has {}, the settings say {}",
            count(has.workers, "worker"),
            config.workers
        );
        // A cluster's routers run on its workers: one must remain.
        let least = usize::from(config.router_workers() == config.workers);
        differences.push((what, format!("--workers {}", config.workers.max(least))));
    }
    for (has, pool) in has.pools.iter().zip(&config.pools) {
        if has.nodes != pool.nodes {
            let name = &pool.name;
            let has = count(has.nodes, "node");
            let what = format!("its pool {name} has {has}, the settings say {}", pool.nodes);
            differences.push((what, format!("--pool {name}={}", pool.nodes)));
        }
    }
    differences
}

/// All differences except the number of workers.
fn others(config: &ClusterConfig, cluster: &Cluster, table: &Parameters) -> Vec<String> {
    let mut what = Vec::new();
    let has = table.of_role(Role::Master).count();
    if has != config.masters {
        what.push(format!(
            "it has {}, the settings say {}",
            count(has, "master"),
            config.masters
        ));
    }
    let has_arbiter = table.of_role(Role::Arbiter).next().is_some();
    if has_arbiter != config.arbiter {
        let words = |has| if has { "an arbiter" } else { "no arbiter" };
        what.push(format!(
            "it has {}, the settings say {}",
            words(has_arbiter),
            words(config.arbiter)
        ));
    }
    let as_many = ClusterConfig {
        masters: has,
        arbiter: has_arbiter,
        ..config.with_workers_of(table.nodes.iter().map(|node| &node.name))
    };
    what.extend(mismatch(&as_many, table));
    let sizes = &cluster.known.sizes;
    let of_roles = [
        ("masters have".to_owned(), &sizes.master, &config.master_size),
        ("workers have".to_owned(), &sizes.worker, &config.worker_size),
    ];
    let of_arbiter = sizes.arbiter.as_ref().filter(|_| config.arbiter);
    let of_arbiter = of_arbiter.map(|size| ("arbiter has".to_owned(), size, &config.arbiter_size));
    let of_pools = config.pools.iter().filter_map(|pool| {
        let words = format!("nodes of pool {} have", pool.name);
        Some((words, sizes.pools.get(&pool.name)?, &pool.size))
    });
    for (nodes, has, wanted) in of_roles.into_iter().chain(of_arbiter).chain(of_pools) {
        if has != wanted {
            what.push(format!("its {nodes} {has}, the settings say {wanted}"));
        }
    }
    what
}
