//! Recreates one node with the same name, MAC and address, and an empty disk.

use anyhow::Result;

use super::error::not_among;
use super::join::Reach;
use super::run::{Run, on_installed};
use crate::backend::platforms::Platforms;
use crate::cluster::{ClusterConfig, MachineName, NodeName, Pass, Role};
use crate::error::{ErrorKind, OperationError};
use crate::openshift::api::ClusterApi;
use crate::openshift::drain::Drain;
use crate::openshift::wait;
use crate::openshift::wait::seen::{Nodes, is_etcd_member};
use crate::plan::{Action, Change};
use crate::state::home::Home;
use crate::state::parameters::{NodeAddress, Parameters};

/// Drains a node, deletes its machine and creates it again, or continues an interrupted replacement.
///
/// The machine's disks are lost, so `confirm` is called with the changes before the first one. If it returns false,
/// nothing is changed, and there is no result.
pub async fn replace(
    backend: &Platforms,
    config: &ClusterConfig,
    home: &Home,
    name: &NodeName,
    drain: Drain,
    confirm: impl FnOnce(&[Change]) -> Result<bool>,
) -> Result<Option<NodeAddress>> {
    on_installed(backend, config, home, "node replace", async |run| {
        run.recreate(name, drain, confirm).await
    })
    .await
}

impl Run<'_> {
    async fn recreate(
        &self,
        name: &NodeName,
        drain: Drain,
        confirm: impl FnOnce(&[Change]) -> Result<bool>,
    ) -> Result<Option<NodeAddress>> {
        let table = self.installed()?;
        self.refuse_other_settings(&table)?;
        let node = node(&table, name)?;
        let reach = self.reach(&table).await?;

        let machine = MachineName::of_node(&self.config.name, name);
        let loss = Change::loss(&machine, "its node is drained first");
        let created = Change::of_machine(Action::Create, &machine, Some("with empty disks".to_owned()));
        if self.is_coming(&reach, &table, name).await? {
            // Its disks are lost already.
            if !confirm(&[created])? {
                return Ok(None);
            }
        } else {
            if let (true, Reach::Api(api)) = (node.role.has_etcd(), &reach) {
                refuse_unsafe(api, &table, &node).await?;
            }
            // The new machine needs the pointer: without it the old machine is kept.
            self.require_assets()?;
            self.pointer(&reach, node.role).await?;
            if !confirm(&[loss, created])? {
                return Ok(None);
            }
            self.node_images_again().await?;
            self.leave(&reach, &node, drain).await?;
        }
        self.join(&reach, &table, std::slice::from_ref(&node)).await?;
        Ok(Some(node))
    }

    /// Whether an earlier run has already removed the node, so that it only has to be created.
    ///
    /// An existing machine whose node is not Ready does not count: it is replaced on request.
    async fn is_coming(&self, reach: &Reach, table: &Parameters, name: &NodeName) -> Result<bool> {
        if !self.is_joining(name) {
            return Ok(false);
        }
        let Reach::Api(api) = reach else { return Ok(true) };
        let machines = self.backend.list_machines(&self.config.id()).await?;
        let mut machines = machines.iter();
        let is_there = machines.any(|machine| machine.pass == Pass::Two && machine.node == *name);
        let wanted = [name.clone()].into();
        Ok(!is_there || Nodes::of(table, &api.nodes().await?).are_ready(&wanted))
    }
}

fn node(table: &Parameters, name: &NodeName) -> Result<NodeAddress, OperationError> {
    let cluster = &table.cluster;
    if table.is_external(name) {
        let text = format!("{name}: it is an external node, whose machine ocpdeploy cannot recreate");
        return Err(OperationError::new(ErrorKind::Usage, text).hint(format!(
            "install its machine again with a file of `ocpdeploy node join-file {cluster} {name}`, then run \
             `ocpdeploy node join {cluster} {name}`"
        )));
    }
    let nodes = table.nodes.iter().filter(|node| node.role != Role::Bootstrap);
    let found = nodes.clone().find(|node| node.name == *name).cloned();
    found.ok_or_else(|| not_among(cluster, name, nodes))
}

/// Rejects replacing a master or the arbiter unless etcd no longer has its member and the others are healthy.
async fn refuse_unsafe(api: &ClusterApi, table: &Parameters, node: &NodeAddress) -> Result<()> {
    let refused = |why: &str| {
        let text = format!("{} cannot be replaced now: {why}", node.name);
        OperationError::new(ErrorKind::Tool, text)
    };
    // Removing a member is never suggested while the other members are in doubt.
    let unsafe_for = |why: &str| {
        refused(why).hint(
            "the cluster needs two other nodes that are Ready and voting members of etcd. `oc get nodes` and `oc -n \
             openshift-etcd get configmap etcd-endpoints -o yaml` show them; repair these first, and remove no member",
        )
    };
    let others: Vec<NodeAddress> = table
        .etcd_members()
        .filter(|member| member.name != node.name)
        .cloned()
        .collect();
    if others.len() < 2 {
        return Err(unsafe_for("etcd has no quorum with fewer than two other members").into());
    }
    let names = others.iter().map(|member| member.name.clone()).collect();
    let seen = Nodes::of(table, &api.nodes().await?);
    if !seen.are_ready(&names) {
        let nodes = seen.text("nodes", &names);
        return Err(unsafe_for(&format!("the other members of etcd must be healthy first: {nodes}")).into());
    }
    let cluster = wait::Cluster { api, table, pools: &[] };
    if let Some(lack) = cluster.etcd_lacks(&others).await? {
        return Err(unsafe_for(&lack).into());
    }
    let endpoints = api.etcd_endpoints().await?;
    match endpoints.is_some_and(|endpoints| is_etcd_member(&endpoints, node)) {
        true => Err(refused(&format!("{} still is a member of etcd", node.ip))
            .hint(
                "the other members are healthy: switch the machine off, then remove its member from etcd as described in \
                 OpenShift's documentation (\"replacing an unhealthy etcd member\": `oc -n openshift-etcd rsh` into the \
                 etcd pod of another master, `etcdctl member list`, `etcdctl member remove ID`), and run the same command \
                 again",
            )
            .into()),
        false => Ok(()),
    }
}
