//! The journals of all reachable nodes, for the bundle.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::timeout;
use tracing::info;

use crate::PROGRESS;
use crate::cluster::Role;
use crate::local::ssh;
use crate::openshift::installer::WaitContext;
use crate::passes::simulated::refuse_simulated;
use crate::state::parameters::NodeAddress;

/// Limit for one node: the login and its journal.
const LIMIT: Duration = Duration::from_secs(60);

/// The newest lines of a node's journal.
const MOST_LINES: &str = "--lines=20000";
const MOST: u64 = 8 << 20;

/// Units of the bootstrap and of all other nodes, besides those of `ocpdeploy`
/// (openshift/installer: `data/data/bootstrap/files/usr/local/bin/installer-gather.sh`, `installer-masters-gather.sh`).
const BOOTSTRAP: [&str; 6] = [
    "release-image",
    "crio-configure",
    "bootkube",
    "kubelet",
    "crio",
    "approve-csr",
];
const NODE: [&str; 4] = [
    "kubelet",
    "crio",
    "machine-config-daemon-firstboot",
    "machine-config-daemon-host",
];
const OURS: &str = "ocpdeploy-*";

/// Journals as files of the bundle. Unreachable nodes are logged and skipped; a removed bootstrap is still in the
/// table.
pub async fn journals(wait: &WaitContext<'_>, bootstrap_is_there: bool) -> Vec<(String, Vec<u8>)> {
    let is_there = |node: &&NodeAddress| bootstrap_is_there || node.role != Role::Bootstrap;
    let nodes = wait.parameters.nodes.iter().filter(is_there);
    let asked = nodes.map(async |node| {
        let why = match timeout(LIMIT, journal(wait, node)).await {
            Ok(Ok(text)) => return Some((format!("journals/{}.txt", node.name), text)),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no response within {} s", LIMIT.as_secs()),
        };
        info!(target: PROGRESS, step = "gather", "no journal of {}: {why}", node.name);
        None
    });
    join_all(asked).await.into_iter().flatten().collect()
}

async fn journal(wait: &WaitContext<'_>, node: &NodeAddress) -> anyhow::Result<Vec<u8>> {
    let id = wait.config.cluster_domain();
    refuse_simulated(id.as_str(), wait.config.backend_of(&node.name), node.ip)?;
    let connection = ssh::Node::of(wait.dir, &id, node).connect().await?;
    let units: &[&str] = match node.role {
        Role::Bootstrap => &BOOTSTRAP,
        _ => &NODE,
    };
    let mut command = connection.command("journalctl");
    command.args(["--boot", "--no-pager", "--output=short-iso", MOST_LINES]);
    for unit in units.iter().chain([&OURS]) {
        command.args(["--unit", unit]);
    }
    let text = ssh::output(command, MOST).await?;
    connection.close().await?;
    Ok(text)
}
