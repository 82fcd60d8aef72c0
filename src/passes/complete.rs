//! An installed cluster: `deploy` verifies it and changes nothing.

use crate::cluster::{ClusterConfig, Role, Sizes};
use crate::plan::mismatch::mismatch;
use crate::printable::count;
use crate::state::inventory::Cluster;
use crate::state::journal::{self, Entry, INSTALLED};
use crate::state::parameters::Parameters;

use super::error::PassError;
use super::options::DeployOptions;

/// Rejects a deployment whose settings differ from the installed cluster.
///
/// Settings that only affect the installer's files are not compared here, but by their journal step.
pub(super) fn refuse_changes(
    config: &ClusterConfig,
    cluster: &Cluster,
    journal: &[Entry],
    options: DeployOptions,
) -> Result<(), PassError> {
    if !journal::is_done(journal, INSTALLED) {
        return Ok(());
    }
    let name = config.name.clone();
    if journal::is_done(journal, "scaled") {
        return Err(PassError::Scaled { cluster: name });
    }
    let Some(table) = &cluster.parameters else {
        return Ok(());
    };
    if options.harvest_again {
        let what = "its addresses are in use and cannot be harvested again".to_owned();
        return Err(PassError::Complete {
            cluster: name,
            what,
            scale: None,
        });
    }
    let (workers, mut what) = (workers(config, table), others(config, cluster, table));
    let only = !workers.is_empty() && what.is_empty();
    let scale: Vec<_> = workers.iter().map(|(_, option)| option.clone()).collect();
    what.extend(workers.into_iter().map(|(what, _)| what));
    match what.is_empty() {
        true => Ok(()),
        false => Err(PassError::Complete {
            cluster: name,
            what: what.join("; "),
            scale: only.then(|| scale.join(" ")),
        }),
    }
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
fn others<'a>(config: &'a ClusterConfig, cluster: &'a Cluster, table: &Parameters) -> Vec<String> {
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
        let (has, wanted) = (words(has_arbiter), words(config.arbiter));
        what.push(format!("it has {has}, the settings say {wanted}"));
    }
    let as_many = ClusterConfig {
        masters: has,
        arbiter: has_arbiter,
        ..config.with_workers_of(table.nodes.iter().map(|node| &node.name))
    };
    what.extend(mismatch(&as_many, table));
    let sizes = cluster.known.sizes.as_ref();
    let of_pools = |sizes: &'a Sizes| {
        let pools = config.pools.iter();
        pools.filter_map(|pool| {
            Some((
                format!("nodes of pool {} have", pool.name),
                sizes.pools.get(&pool.name)?,
                &pool.size,
            ))
        })
    };
    for (nodes, has, wanted) in sizes.into_iter().flat_map(|sizes| {
        let of_arbiter = sizes.arbiter.as_ref().filter(|_| config.arbiter);
        let of_arbiter = of_arbiter.map(|size| ("arbiter has".to_owned(), size, &config.arbiter_size));
        [
            ("masters have".to_owned(), &sizes.master, &config.master_size),
            ("workers have".to_owned(), &sizes.worker, &config.worker_size),
        ]
        .into_iter()
        .chain(of_arbiter)
        .chain(of_pools(sizes))
    }) {
        if has != wanted {
            what.push(format!("its {nodes} {has}, the settings say {wanted}"));
        }
    }
    what
}
