//! Adding nodes to an installed cluster and removing them: common to `scale` and `replace`.
//!
//! The platform and the cluster are the source of truth: an existing machine is not created again, and a missing one is
//! not drained. The journal only stores which nodes are not Ready yet.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use tracing::info;

use super::error::{not_installed, preflight};
use super::fragments;
use super::run::Run;
use super::simulated::refuse_simulated;
use super::two::served_step;
use crate::PROGRESS;
use crate::backend::{Finding, Power, ReservationState};
use crate::cluster::{InstallerChoice, MachineName, Mcs, NodeName, Pass, Role};
use crate::error::{ErrorKind, OperationError};
use crate::local::{reach, ssh};
use crate::node::config::NodeConfigs;
use crate::node::services;
use crate::openshift::api::ClusterApi;
use crate::openshift::drain::{self, Drain};
use crate::openshift::installer::{Assets, Installer, Rehearsal};
use crate::plan::machines::{self, MacTable, Planned};
use crate::state::home;
use crate::state::journal::Step;
use crate::state::parameters::{NodeAddress, Parameters};

/// Where OpenShift stores the pointer configs of later nodes: the namespace, and the ends of the Secrets' names. The
/// machine config operator keeps the first Secret current.
const POINTERS: (&str, [&str; 2]) = ("openshift-machine-api", ["user-data-managed", "user-data"]);

/// The source of information about the cluster's nodes.
pub(super) enum Reach {
    Api(ClusterApi),
    /// There is no API: the guests report their own state.
    Rehearsal,
}

impl Run<'_> {
    /// The table of an installed cluster; an error for any other.
    pub(super) fn installed(&self) -> Result<Parameters> {
        let table = Parameters::read(&self.dir.parameters())?;
        let table = table.filter(|_| self.is_installed());
        Ok(table.ok_or_else(|| not_installed(&self.config.name))?)
    }

    /// Connects to the cluster's API.
    pub(super) async fn reach(&self, table: &Parameters) -> Result<Reach> {
        if self.config.installer == InstallerChoice::Rehearsal {
            info!(target: PROGRESS, step = "cluster", "a rehearsal has no API: no node is drained and no certificate is approved");
            return Ok(Reach::Rehearsal);
        }
        refuse_simulated(&self.config.name, &self.config.backend, table.api_ip)?;
        let api = ClusterApi::open(&self.dir.kubeconfig(), reach::api_endpoint(table)).await?;
        let version = api.version().await?;
        info!(target: PROGRESS, step = "cluster", "{} at {} answers: Kubernetes {version}", api.name(), api.address());
        Ok(Reach::Api(api))
    }

    /// Creates the missing machines and waits until these nodes are in the cluster.
    pub(super) async fn join(&self, reach: &Reach, table: &Parameters, nodes: &[NodeAddress]) -> Result<()> {
        let machines = self.backend.list_machines(&self.config.id()).await?;
        let is_there = |node: &NodeName| {
            let mut machines = machines.iter();
            machines.any(|machine| machine.pass == Pass::Two && machine.node == *node)
        };
        let mut lacking = BTreeSet::new();
        let mut joining = BTreeSet::new();
        for NodeAddress { name, role, .. } in nodes {
            if !is_there(name) {
                if !self.is_joining(name) {
                    self.journal.forget(&format!("join/{name}"))?;
                    self.journal.mark(&Step::named(format!("join/{name}/begun"))).await?;
                }
                lacking.insert((name.clone(), *role));
            }
            if self.is_joining(name) {
                joining.insert(name.clone());
            }
        }
        let held = self.hold_for(nodes, &joining).await?;
        self.make_later(reach, table, &lacking).await?;
        if !joining.is_empty() {
            let mut planned = self.later(table);
            planned.retain(|machine| joining.contains(&machine.node));
            let images = self.node_images_again().await?;
            self.settle(&planned, &held, &images).await?;
            let ready = Box::pin(self.become_ready(reach, table, &joining));
            self.while_running(&planned, &images, ready).await?;
            self.backend.delete_fetched_configs(&self.config.id()).await?;
        }
        for node in &joining {
            self.journal.mark(&Step::named(format!("join/{node}/ready"))).await?;
        }
        Ok(())
    }

    /// Whether the journal records a machine for the node since the installation that is not Ready yet.
    pub(super) fn is_joining(&self, node: &NodeName) -> bool {
        let done = |step: &str| self.journal.done_at(&format!("join/{node}/{step}")).is_some();
        done("begun") && !done("ready")
    }

    fn later(&self, table: &Parameters) -> Vec<Planned> {
        machines::pass_two(self.config, &MacTable::new(), Some(table))
    }

    async fn hold_for(
        &self,
        nodes: &[NodeAddress],
        joining: &BTreeSet<NodeName>,
    ) -> Result<BTreeMap<NodeName, ReservationState>> {
        let mut held = BTreeMap::new();
        for node in nodes.iter().filter(|node| joining.contains(&node.name)) {
            let hold = self.hold_of(&node.lease());
            let by = match ReservationState::without_platform(self.config.dhcp) {
                Some(state) => state,
                None => self.backend.reserve_address(&hold).await?,
            };
            held.insert(node.name.clone(), by);
        }
        Ok(held)
    }

    /// Creates machines with the cluster's current pointer: the installer's own may name a CA that was replaced.
    async fn make_later(&self, reach: &Reach, table: &Parameters, lacking: &BTreeSet<(NodeName, Role)>) -> Result<()> {
        if lacking.is_empty() {
            return Ok(());
        }
        let images = self.node_images_again().await?;
        let roles: BTreeSet<Role> = lacking.iter().map(|(_, role)| *role).collect();
        let all = self.later_configs(reach, table, &roles).await?;
        if let Reach::Api(api) = reach {
            // An existing node must not request a first certificate.
            for (node, _) in lacking {
                api.delete_node(&table.cluster_domain().fqdn(node.as_str())).await?;
            }
        }
        let fitted = self.fit(&all, |node, role| lacking.contains(&(node.clone(), role)))?;
        let configs = self.write_configs(&all, &fitted, |_| true)?;
        let planned = self.planned_nodes(table, &configs);
        let make = async |machine: &Planned| self.make(machine, &images).await;
        self.backend.concurrently(&planned, make).await.map(drop)
    }

    /// The configs of later nodes of these roles.
    pub(super) async fn later_configs<'c>(
        &'c self,
        reach: &Reach,
        table: &'c Parameters,
        roles: &BTreeSet<Role>,
    ) -> Result<NodeConfigs<'c>> {
        let assets = self.pointers(reach, roles).await?;
        let services = self.services(table)?;
        let bootstrap = services::parts(&services.input(self, table), Role::Bootstrap)?;
        let fragments = fragments::read(self.config)?;
        let mut all = self.layers(table, &assets, &fragments, &bootstrap)?;
        if self.config.mcs == Mcs::Embed {
            for role in roles {
                self.journal.forget(&served_step(*role))?;
                let served = self.served(&all, *role, table).await?;
                all.serve(*role, &served)?;
            }
        }
        Ok(all)
    }

    /// The pointer of later nodes of a role, as the cluster has it now; `None` in a rehearsal.
    pub(super) async fn pointer(&self, reach: &Reach, role: Role) -> Result<Option<Vec<u8>>> {
        let Reach::Api(api) = reach else { return Ok(None) };
        let (namespace, kinds) = POINTERS;
        for kind in kinds {
            let secret = api.secret(namespace, &format!("{role}-{kind}")).await?;
            if let Some(pointer) = secret.and_then(|secret| secret.data?.remove("userData")) {
                return Ok(Some(pointer.0));
            }
        }
        let text = format!(
            "the cluster has no pointer for a later {role}: neither Secret {role}-user-data-managed nor {role}-user-data \
             is in openshift-machine-api"
        );
        let hint = "`oc -n openshift-machine-api get secrets` lists the existing secrets";
        Err(OperationError::new(ErrorKind::Platform, text).hint(hint).into())
    }

    /// Rejects an operation that needs the installer's files, before anything is created.
    pub(super) fn require_assets(&self) -> Result<()> {
        match self.journal.done_at("assets") {
            Some(_) => Ok(()),
            None => Err(self.without_assets().into()),
        }
    }

    fn without_assets(&self) -> OperationError {
        let text = format!(
            "the record of cluster {} has no installer's files, because it was adopted",
            self.config.name
        );
        let hint = "import the exported record of the deployment: `ocpdeploy state import FILE --replace`";
        preflight(vec![Finding::fail(text).hint(hint)])
    }

    /// The installer's files, with the cluster's current pointers of these roles.
    async fn pointers(&self, reach: &Reach, roles: &BTreeSet<Role>) -> Result<Assets> {
        let assets: Assets = self.journal.output("assets")?.ok_or_else(|| self.without_assets())?;
        let mut assets = assets.moved_to(&self.dir);
        for role in roles {
            let Some(pointer) = self.pointer(reach, *role).await? else {
                continue;
            };
            let path = self.dir.pointer(&role.to_string());
            home::write_private(&path, &pointer)?;
            match role {
                Role::Master => assets.master = path,
                Role::Arbiter => assets.arbiter = Some(path),
                _ => assets.worker = path,
            }
        }
        Ok(assets)
    }

    async fn become_ready(&self, reach: &Reach, table: &Parameters, joining: &BTreeSet<NodeName>) -> Result<()> {
        let limit = self.config.timeouts.install;
        match reach {
            Reach::Api(api) => {
                let cluster = self.cluster(api, table);
                cluster.nodes_ready(joining, limit).await?;
                let members = table.etcd_members().filter(|node| joining.contains(&node.name));
                let members: Vec<NodeAddress> = members.cloned().collect();
                if members.is_empty() {
                    return Ok(());
                }
                // Until they are voting members, etcd must not lose another one.
                Ok(cluster.etcd_members(&members, limit).await?)
            }
            Reach::Rehearsal => self.ask_guests(table, joining).await,
        }
    }

    /// Compares the guests of a rehearsal with the table.
    pub(super) async fn ask_guests(&self, table: &Parameters, nodes: &BTreeSet<NodeName>) -> Result<()> {
        let mut table = table.clone();
        table.nodes.retain(|node| nodes.contains(&node.name));
        let wait = self.wait_context(&table);
        let installer = Installer::Rehearsal(Rehearsal);
        if table.etcd_members().next().is_some() {
            installer.wait_for_bootstrap(&wait).await?;
        }
        installer.wait_for_install(&wait).await?;
        Ok(())
    }

    /// Drains a node and removes it from the cluster and the platform; its address stays reserved.
    pub(super) async fn leave(&self, reach: &Reach, node: &NodeAddress, how: Drain) -> Result<()> {
        let id = self.config.id();
        let machine = MachineName::of_node(&self.config.name, &node.name);
        let host = id.domain().fqdn(node.name.as_str());
        let machines = self.backend.list_machines(&id).await?;
        // A missing machine cannot be drained.
        let seen = machines.iter().find(|seen| seen.name == machine);
        if let (Reach::Api(api), Some(seen)) = (reach, seen) {
            info!(target: PROGRESS, step = "drain", node = %node.name, state = "draining");
            drain::drain(api, &host, seen.power == Power::Off, how).await?;
        }
        // First the machine: a running kubelet would register its node again.
        self.backend.delete_machine(&id, &machine).await?;
        if let Reach::Api(api) = reach {
            api.delete_node(&host).await?;
        }
        ssh::forget(&self.dir, &host)?;
        info!(target: PROGRESS, step = "drain", node = %node.name, state = "removed", done = true);
        Ok(())
    }
}
