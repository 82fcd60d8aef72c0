//! One node made anew: same name, MAC and address, an empty disk.

use std::collections::BTreeSet;

use anyhow::Result;

use super::join::Reach;
use super::{PassError, Run, check, told};
use crate::backend::Backend;
use crate::cluster::{ClusterConfig, NodeName, Role};
use crate::cluster_api::ClusterApi;
use crate::drain::Drain;
use crate::home::Home;
use crate::parameters::{NodeAddress, Parameters};
use crate::wait::seen::Nodes;

/// Empties a node, deletes its machine, and makes it anew; or goes on with that.
pub async fn replace<B: Backend>(
    backend: &B,
    config: &ClusterConfig,
    home: &Home,
    name: &NodeName,
    drain: Drain,
) -> Result<NodeAddress> {
    let facts = check::look(backend, config).await?;
    let config = check::settled(config, &facts, check::carrier(backend));
    let run = Run::begin(backend, &config, home, &facts)?;
    told(
        backend,
        &config.id(),
        "node replace",
        true,
        run.make_anew(name, drain).await,
    )
    .await
}

impl<B: Backend> Run<'_, B> {
    async fn make_anew(&self, name: &NodeName, drain: Drain) -> Result<NodeAddress> {
        let table = self.installed()?;
        self.refuse_other_settings(&table)?;
        let node = node(&table, name)?;
        let reach = self.reach(&table).await?;

        // One that was removed by an earlier run of this command only has to come back.
        if !self.is_joining(name) {
            if let (Role::Master, Reach::Api(api)) = (node.role, &reach) {
                refuse_unsafe(api, &table, &node).await?;
            }
            self.leave(&reach, &node, drain).await?;
        }
        self.join(&reach, &table, std::slice::from_ref(&node)).await?;
        Ok(node)
    }
}

fn node(table: &Parameters, name: &NodeName) -> Result<NodeAddress, PassError> {
    let nodes = table.nodes.iter().filter(|node| node.role != Role::Bootstrap);
    let found = nodes.clone().find(|node| node.name == *name).cloned();
    found.ok_or_else(|| PassError::NoNode {
        cluster: table.cluster.clone(),
        node: name.clone(),
        known: nodes.map(|node| node.name.clone()).collect(),
    })
}

/// A master is replaced only when etcd does without it already and the others are well.
async fn refuse_unsafe(api: &ClusterApi, table: &Parameters, node: &NodeAddress) -> Result<()> {
    let unsafe_for = |why: String| PassError::UnsafeMaster {
        node: node.name.clone(),
        why,
    };
    let others: BTreeSet<_> = table
        .of_role(Role::Master)
        .filter(|master| master.name != node.name)
        .map(|master| master.name.clone())
        .collect();
    if others.len() < 2 {
        let why = "with fewer than two others etcd cannot agree on anything while it is away";
        return Err(unsafe_for(why.to_owned()).into());
    }
    let seen = Nodes::of(table, &api.nodes().await?);
    if !seen.are_ready(&others) {
        return Err(unsafe_for(format!(
            "the others must be well first: {}",
            seen.text("masters", &others)
        ))
        .into());
    }
    // cluster-etcd-operator keeps each member's address here (openshift/cluster-etcd-operator: etcdendpointscontroller).
    let Some(members) = api.config_map("openshift-etcd", "etcd-endpoints").await? else {
        return Err(unsafe_for("etcd does not tell who its members are".to_owned()).into());
    };
    let ip = node.ip.to_string();
    match members.data.unwrap_or_default().values().any(|member| *member == ip) {
        true => Err(unsafe_for(format!("{ip} still is a member of etcd")).into()),
        false => Ok(()),
    }
}
