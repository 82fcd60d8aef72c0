//! Compares the settings with what each node reports over SSH.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt};
use tokio::time::timeout;

use crate::cluster::{ClusterConfig, NodeName, Role};
use crate::local::ssh;
use crate::passes::simulated::refuse_simulated;
use crate::plan::node_report;
use crate::state::home::ClusterDir;
use crate::state::parameters::{NodeAddress, Parameters};

/// Limit for one node.
const LIMIT: Duration = Duration::from_secs(60);

/// Number of nodes that are queried at once.
const AT_ONCE: usize = 16;

/// Largest size of a report in bytes; a normal one has a few KB.
const MOST: u64 = 1 << 20;

/// The differences of all nodes as texts, and the nodes that could not be compared.
pub(super) async fn compare(
    dir: &ClusterDir,
    table: &Parameters,
    config: &ClusterConfig,
) -> (Vec<(NodeName, String)>, Option<String>) {
    let nodes = table.nodes.iter().filter(|node| node.role != Role::Bootstrap);
    let asked = nodes.map(async |node| (node, of_node(dir, table, config, node).await));
    let mut differences = Vec::new();
    let mut refusals = Vec::new();
    let mut answers = stream::iter(asked).buffered(AT_ONCE);
    while let Some((node, answer)) = answers.next().await {
        match answer {
            Ok(texts) => differences.extend(texts.into_iter().map(|text| (node.name.clone(), text))),
            Err(error) => refusals.push(format!("{}: {error:#}", node.name)),
        }
    }
    let others = refusals.len().saturating_sub(1);
    let left_out = refusals.into_iter().next().map(|first| match others {
        0 => format!("settings of {first}"),
        others => format!("settings of {} nodes, such as {first}", others + 1),
    });
    (differences, left_out)
}

async fn of_node(
    dir: &ClusterDir,
    table: &Parameters,
    config: &ClusterConfig,
    node: &NodeAddress,
) -> Result<Vec<String>> {
    refuse_simulated(&table.cluster, config.backend_of(&node.name), node.ip)?;
    let report = match timeout(LIMIT, report(dir, table, node)).await {
        Ok(report) => report?,
        Err(_) => anyhow::bail!("no report within {} s", LIMIT.as_secs()),
    };
    node_report::differences(config, table, node, &report).map_err(anyhow::Error::msg)
}

async fn report(dir: &ClusterDir, table: &Parameters, node: &NodeAddress) -> Result<String> {
    let session = ssh::Node::of(dir, &table.cluster_domain(), node).connect().await?;
    let mut command = session.command("sudo");
    command.args(["-n", "sh", "-c", node_report::SCRIPT]);
    let bytes = ssh::output(command, MOST + 1).await?;
    // Its socket is removed even if this fails.
    let _ = session.close().await;
    ensure!(
        bytes.len() as u64 <= MOST,
        "the report is longer than {} KB",
        MOST >> 10
    );
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
