//! Adds or removes workers, in pools and outside of them: the addresses of new ones are harvested first, and removed
//! ones are drained first.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, Result};
use serde::Serialize;
use tracing::warn;

use super::complete;
use super::error::{ranges_exhausted, refuse};
use super::join::Reach;
use super::renew::Rollout;
use super::run::{Run, on_installed};
use crate::PROGRESS;
use crate::backend::platforms::Platforms;
use crate::backend::{Finding, Verdict};
use crate::cluster::{AddressAssignment, ClusterConfig, ClusterDomain, Dhcp, Harvest, MachineName, NodeName, Role};
use crate::error::{ErrorKind, OperationError};
use crate::openshift::drain::Drain;
use crate::openshift::releases::Releases;
use crate::plan::address_ranges;
use crate::plan::machines::{self, MacTable, VipSource};
use crate::plan::mismatch::mismatch;
use crate::plan::{Action, Change};
use crate::state::home::Home;
use crate::state::inventory;
use crate::state::journal::{SCALED, Step};
use crate::state::parameters::{NodeAddress, Parameters};

/// Options of `scale`.
#[derive(Clone, Copy, Debug)]
pub struct ScaleOptions {
    pub drain: Drain,
    /// Number of workers at the installation: without any, the routers run on the masters and stay there.
    pub installed_workers: usize,
}

/// The result of scaling a cluster.
#[derive(Clone, Debug, Serialize)]
pub struct Scaled {
    pub cluster: ClusterDomain,
    pub rehearsal: bool,
    /// The number of workers, in pools and outside of them.
    pub workers: usize,
    /// The number of nodes of each pool.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<String, usize>,
    pub added: Vec<NodeName>,
    pub removed: Vec<NodeName>,
    #[serde(flatten)]
    pub rollout: Rollout,
}

/// Scales an installed cluster to the numbers of workers in its settings, or continues an interrupted scaling.
///
/// The disks of removed workers are lost, so `confirm` is called with the changes before the first one. If it returns
/// false, nothing is changed, and there is no result.
pub async fn scale(
    backend: &Platforms,
    config: &ClusterConfig,
    home: &Home,
    options: ScaleOptions,
    confirm: impl FnOnce(&[Change]) -> Result<bool>,
) -> Result<Option<Scaled>> {
    if config.router_workers() == 0 && options.installed_workers > 0 {
        let cluster = &config.name;
        let text = format!(
            "cluster {cluster} was installed with workers, and its routers run on them: one worker must remain"
        );
        let hint = format!("`ocpdeploy scale {cluster} --workers 1`");
        return Err(OperationError::new(ErrorKind::Usage, text).hint(hint).into());
    }
    on_installed(backend, config, home, "scale", async |run| {
        run.bring_to_size(options, confirm).await
    })
    .await
}

impl Run<'_> {
    async fn bring_to_size(
        &self,
        options: ScaleOptions,
        confirm: impl FnOnce(&[Change]) -> Result<bool>,
    ) -> Result<Option<Scaled>> {
        let before = self.installed()?;
        self.refuse_other_settings(&before)?;
        self.refuse_external_names(&before)?;
        let reach = self.reach(&before).await?;

        if !self.missing(&before).is_empty() {
            self.require_assets()?;
            self.pointer(&reach, Role::Worker).await?;
        }

        if !confirm(&self.changes_to(&before))? {
            return Ok(None);
        }
        let mut removed = Vec::new();
        while let Some(last) = self.surplus(&self.table()?).pop() {
            let mut without = self.table()?;
            without.nodes.retain(|node| node.name != last.name);
            self.balance_routers(&without, options.installed_workers).await?;
            self.remove(&reach, &last, options.drain).await?;
            removed.push(last.name);
        }
        self.check_new(&before).await?;
        let table = self.harvest_new().await?;
        let workers: Vec<_> = table.of_role(Role::Worker).cloned().collect();
        self.join(&reach, &table, &workers).await?;
        self.balance_routers(&table, options.installed_workers).await?;
        let rollout = self.renew(&reach, &table, options.installed_workers).await?;
        let mut pools = BTreeMap::new();
        for pool in workers.iter().filter_map(|worker| worker.name.pool()) {
            *pools.entry(pool.to_owned()).or_default() += 1;
        }
        let names = workers.iter().map(|worker| &worker.name);
        Ok(Some(Scaled {
            cluster: table.cluster_domain(),
            rehearsal: matches!(reach, Reach::Rehearsal),
            workers: workers.len(),
            pools,
            added: names.filter(|name| before.node(name).is_none()).cloned().collect(),
            removed,
            rollout,
        }))
    }

    /// The machines that are deleted, in their order, and then those that are created.
    fn changes_to(&self, table: &Parameters) -> Vec<Change> {
        let machine = |node: &NodeName| MachineName::of_node(&self.config.name, node);
        let surplus = self.surplus(table).into_iter().rev();
        let deleted = surplus.map(|node| Change::loss(&machine(&node.name), "its node is drained first"));
        let missing = self.missing(table).into_iter();
        let created = missing.map(|(node, _)| Change::of_machine(Action::Create, &machine(&node), None));
        deleted.chain(created).collect()
    }

    /// Records that the cluster has other nodes than it was installed with, before its table does.
    pub(super) async fn record_scaled(&self) -> Result<()> {
        match self.journal.done_at(SCALED) {
            Some(_) => Ok(()),
            None => self.journal.mark(&Step::named(SCALED)).await,
        }
    }

    /// Rejects any change except the numbers of workers.
    pub(super) fn refuse_other_settings(&self, table: &Parameters) -> Result<()> {
        let as_it_is = self.config.with_workers_of(table.nodes.iter().map(|node| &node.name));
        match mismatch(&as_it_is, table) {
            Some(what) => Err(complete::differs(&self.config.name, &what, None).into()),
            None => Ok(()),
        }
    }

    /// Rejects a number of workers if one of them would have the name of an external node.
    fn refuse_external_names(&self, table: &Parameters) -> Result<(), OperationError> {
        let nodes = self.config.nodes().into_iter().map(|node| node.name);
        match nodes.into_iter().find(|node| table.is_external(node)) {
            Some(node) => {
                let text = format!("{node}: an external node of the cluster has this name");
                let hint = format!("remove it first: `ocpdeploy node remove {} {node}`", table.cluster);
                Err(OperationError::new(ErrorKind::Usage, text).hint(hint))
            }
            None => Ok(()),
        }
    }

    fn table(&self) -> Result<Parameters> {
        Parameters::read(&self.dir.parameters())?.context("the parameter file does not exist")
    }

    /// The workers that the settings do not have. Of a pool, or of the workers outside of pools, the last one has the
    /// highest number.
    fn surplus(&self, table: &Parameters) -> Vec<NodeAddress> {
        let wanted = self.config.nodes();
        let is_surplus = |node: &&NodeAddress| wanted.iter().all(|wanted| wanted.name != node.name);
        table.of_role(Role::Worker).filter(is_surplus).cloned().collect()
    }

    /// Removes a worker from the cluster, the platform and the table, in this order.
    async fn remove(&self, reach: &Reach, node: &NodeAddress, drain: Drain) -> Result<()> {
        self.leave(reach, node, drain).await?;
        let hold = self.hold_of(&node.lease());
        if self.config.dhcp == Dhcp::Platform {
            self.backend.release_address(&hold).await?;
        }
        super::destroy::remove_file(&self.dir.ignition(node.name.as_str()))?;
        self.journal.forget(&format!("join/{}", node.name))?;
        self.journal.forget(&format!("pass-two/create/{}", node.name))?;
        self.record_scaled().await?;
        let _allocation = inventory::allocate(self.home)?;
        let mut table = self.table()?;
        table.nodes.retain(|other| other.name != node.name);
        Ok(table.write(&self.dir.parameters())?)
    }

    /// Checks all new machines before any of them is created.
    async fn check_new(&self, before: &Parameters) -> Result<()> {
        let is_new = |node: &NodeName| before.node(node).is_none();
        let mut macs = machines::macs(self.config, &Default::default());
        macs.retain(|node, _| is_new(node) && *node != NodeName::bootstrap());
        let mut one = Vec::new();
        if self.config.harvest == Harvest::Boot {
            one = machines::pass_one(self.config, &self.only_new(macs.clone(), before), VipSource::Leased);
        }
        let mut two = machines::pass_two(self.config, &macs, Some(before));
        two.retain(|machine| is_new(&machine.node));
        if two.is_empty() {
            return Ok(());
        }
        let mut findings = self
            .backend
            .preflight(&machines::needs(self.config, &one, &two))
            .await?;
        findings.retain(|finding| finding.verdict == Verdict::Fail);
        Ok(refuse(findings)?)
    }

    /// The nodes of the settings that the table lacks.
    fn missing(&self, table: &Parameters) -> Vec<(NodeName, Role)> {
        let nodes = self.config.nodes().into_iter();
        let missing = nodes.filter(|node| table.node(&node.name).is_none());
        missing.map(|node| (node.name, node.role)).collect()
    }

    fn only_new(&self, mut macs: MacTable, table: &Parameters) -> MacTable {
        let missing = self.missing(table);
        macs.retain(|name, _| missing.iter().any(|(node, _)| node == name));
        macs
    }

    /// Pass one for the new nodes only; they are added to the table at once.
    async fn harvest_new(&self) -> Result<Parameters> {
        let table = self.table()?;
        let choose = async {
            let mut taken = self.neighbours()?.macs;
            taken.extend(table.all_leases().iter().map(|lease| lease.mac));
            Ok(self.only_new(machines::macs(self.config, &taken), &table))
        };
        let missing = self.missing(&table);
        let table = if missing.is_empty() {
            table
        } else {
            // An earlier attempt for other numbers of workers cannot be reused.
            let step = Step::new("scale/macs", &missing)?;
            if self.journal.is_outdated(&step) {
                self.journal.forget("scale")?;
            }
            let macs = self.journal.run(&step, choose).await?;
            let leases = self.leases("scale", &macs).await?;
            let free = self.free_in_ranges(missing.len(), Some(&table)).await?;
            self.record_scaled().await?;
            self.append(missing, leases, (&macs, &free))?
        };
        self.delete_throwaway_machines().await?;
        self.journal.forget("scale")?;
        Ok(table)
    }

    fn append(
        &self,
        missing: Vec<(NodeName, Role)>,
        mut leases: Vec<AddressAssignment>,
        (macs, free): (&MacTable, &[IpAddr]),
    ) -> Result<Parameters> {
        let _allocation = inventory::allocate(self.home)?;
        let neighbours = self.neighbours()?;
        address_ranges::fill(self.config, macs, free, &neighbours.addresses, &mut leases)
            .map_err(|node| ranges_exhausted(self.config, &node))?;
        let mut leases: BTreeMap<_, _> = leases.into_iter().map(|lease| (lease.name.clone(), lease)).collect();
        let mut table = self.table()?;
        for (name, role) in missing {
            if let Some(lease) = leases.remove(&name) {
                table.nodes.push(self.node_address("scale", role, &lease)?);
            }
        }
        refuse(neighbours.clashes(&table).into_iter().map(Finding::fail).collect())?;
        table.write(&self.dir.parameters())?;
        Ok(table)
    }

    /// The configuration with its routers where they are: on the masters if it was installed without workers.
    pub(super) fn with_routers(&self, installed_workers: usize) -> ClusterConfig {
        ClusterConfig {
            masters_schedulable: self.config.masters_schedulable || installed_workers == 0,
            ..self.config.clone()
        }
    }

    /// Changes the platform's load balancers to this table, with the routers where they are.
    pub(super) async fn balance_routers(&self, table: &Parameters, installed_workers: usize) -> Result<()> {
        self.balance(&self.with_routers(installed_workers), table).await
    }

    /// Updates the labels and taints of pools, and the manifests that name the cluster's workers.
    pub(super) async fn renew(&self, reach: &Reach, table: &Parameters, installed_workers: usize) -> Result<Rollout> {
        let Reach::Api(api) = reach else {
            return Ok(Rollout::default());
        };
        if !self.config.pools.is_empty() {
            let limit = self.config.timeouts.install;
            self.cluster(api, table).pools_labeled(limit).await?;
            self.make_config_pools(api).await?;
        }
        let services = self.services(table)?;
        let releases = api.cluster_version().await?.as_ref().and_then(Releases::of);
        let release = releases.as_ref().map(|releases| &releases.current);
        let rollout = self
            .apply_manifests(api, table, &services, installed_workers, release)
            .await?;
        if rollout.reboots {
            let roles = rollout.roles.join(" and ");
            warn!(target: PROGRESS, step = "tables",
                "the machine config operator updates the {roles} nodes now, one after the other, with a reboot of each");
        }
        Ok(rollout)
    }
}
