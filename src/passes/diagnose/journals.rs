//! The journals of nodes.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::timeout;

use super::fetched::{Fetched, NotFetched};
use crate::cluster::{ClusterConfig, Role};
use crate::local::ssh;
use crate::passes::simulated::refuse_simulated;
use crate::state::home::ClusterDir;
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

/// The journals of nodes as files.
pub async fn journals<'a>(
    config: &ClusterConfig,
    dir: &ClusterDir,
    nodes: impl Iterator<Item = &'a NodeAddress>,
) -> Vec<Fetched> {
    let asked = nodes.map(async |node| {
        let why = match timeout(LIMIT, journal(config, dir, node)).await {
            Ok(Ok(text)) => return Ok((format!("journals/{}.txt", node.name), text)),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no response within {} s", LIMIT.as_secs()),
        };
        Err(NotFetched::new(format!("journal of {}", node.name), why))
    });
    join_all(asked).await
}

async fn journal(config: &ClusterConfig, dir: &ClusterDir, node: &NodeAddress) -> anyhow::Result<Vec<u8>> {
    let id = config.cluster_domain();
    refuse_simulated(id.as_str(), config.backend_of(&node.name), node.ip)?;
    let connection = ssh::Node::of(dir, &id, node).connect().await?;
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
