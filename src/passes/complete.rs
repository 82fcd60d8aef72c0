//! An installed cluster: `deploy` verifies it and changes nothing.

use crate::cluster::{ClusterConfig, Role};
use crate::plan::machines;
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
            workers: None,
        });
    }
    let (workers, mut what) = (workers(config, table), others(config, cluster, table));
    let only = workers.is_some() && what.is_empty();
    what.extend(workers);
    match what.is_empty() {
        true => Ok(()),
        false => Err(PassError::Complete {
            cluster: name,
            what: what.join("; "),
            // A cluster's routers run on its workers: one must remain.
            workers: only.then(|| config.workers.max(1)),
        }),
    }
}

fn workers(config: &ClusterConfig, table: &Parameters) -> Option<String> {
    let has = table.of_role(Role::Worker).count();
    (has != config.workers).then(|| format!("it has {}, the settings say {}", count(has, "worker"), config.workers))
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
    let as_many = ClusterConfig {
        masters: has,
        workers: table.of_role(Role::Worker).count(),
        ..config.clone()
    };
    what.extend(machines::mismatch(&as_many, table));
    let sizes = cluster.known.sizes.as_ref();
    for (nodes, has, wanted) in sizes.into_iter().flat_map(|sizes| {
        [
            ("masters", &sizes.master, &config.master_size),
            ("workers", &sizes.worker, &config.worker_size),
        ]
    }) {
        if has != wanted {
            what.push(format!("its {nodes} have {has}, the settings say {wanted}"));
        }
    }
    what
}
