//! Adds or removes workers: the addresses of new ones are harvested first, and removed ones are drained first.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use tracing::warn;

use super::error::PassError;
use super::join::Reach;
use super::one::hold_of;
use super::run::{Run, on_installed};
use crate::PROGRESS;
use crate::backend::{Backend, Finding, Verdict};
use crate::cluster::{ClusterConfig, Dhcp, Harvest, NodeName, Role};
use crate::openshift::drain::Drain;
use crate::plan::machines;
use crate::state::home::Home;
use crate::state::inventory;
use crate::state::parameters::{NodeAddress, Parameters};

/// Options of `scale`.
#[derive(Clone, Copy, Debug)]
pub struct ScaleOptions {
    pub drain: Drain,
    /// How many workers it was installed with: without any, its routers run on the masters and stay there.
    pub installed_workers: usize,
}

/// The result of scaling a cluster.
#[derive(Clone, Debug)]
pub struct Scaled {
    pub table: Parameters,
    pub added: Vec<NodeName>,
    pub removed: Vec<NodeName>,
    /// Roles whose nodes the machine config operator updates now, one after the other.
    pub renewed: Vec<String>,
    /// The cluster has no API.
    pub is_rehearsal: bool,
}

/// Scales an installed cluster to the number of workers in its settings, or continues with that.
pub async fn scale(
    backend: &dyn Backend,
    config: &ClusterConfig,
    home: &Home,
    options: ScaleOptions,
) -> Result<Scaled> {
    if config.workers == 0 && options.installed_workers > 0 {
        let cluster = config.name.clone();
        return Err(PassError::LastWorker { cluster }.into());
    }
    on_installed(backend, config, home, "scale", async |run| {
        run.bring_to_size(options).await
    })
    .await
}

impl Run<'_> {
    async fn bring_to_size(&self, options: ScaleOptions) -> Result<Scaled> {
        let before = self.installed()?;
        self.refuse_other_settings(&before)?;
        let reach = self.reach(&before).await?;

        if before.of_role(Role::Worker).count() < self.config.workers {
            self.pointer(&reach, Role::Worker).await?;
        }

        let mut removed = Vec::new();
        while let Some(last) = self.surplus()? {
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
        let renewed = self.renew(&reach, &table, options.installed_workers).await?;
        self.journal.forget("scaled")?;
        self.journal
            .step("scaled", &self.config.workers, async { Ok(()) })
            .await?;
        Ok(Scaled {
            added: workers
                .into_iter()
                .map(|worker| worker.name)
                .filter(|name| before.node(name).is_none())
                .collect(),
            removed,
            table,
            renewed,
            is_rehearsal: matches!(reach, Reach::Rehearsal),
        })
    }

    /// Rejects any change except the number of workers.
    pub(super) fn refuse_other_settings(&self, table: &Parameters) -> Result<()> {
        let as_it_is = ClusterConfig {
            workers: table.of_role(Role::Worker).count(),
            ..self.config.clone()
        };
        match machines::mismatch(&as_it_is, table) {
            Some(what) => Err(PassError::Complete {
                cluster: self.config.name.clone(),
                what,
                workers: None,
            }
            .into()),
            None => Ok(()),
        }
    }

    fn table(&self) -> Result<Parameters> {
        Parameters::read(&self.dir.parameters())?.context("the parameter file does not exist")
    }

    /// The worker with the highest number, while there are too many.
    fn surplus(&self) -> Result<Option<NodeAddress>> {
        let table = self.table()?;
        let mut workers: Vec<_> = table.of_role(Role::Worker).collect();
        Ok(match workers.len() > self.config.workers {
            true => workers.pop().cloned(),
            false => None,
        })
    }

    /// Removes a worker from the cluster, the platform and the table, in this order.
    async fn remove(&self, reach: &Reach, node: &NodeAddress, drain: Drain) -> Result<()> {
        self.leave(reach, node, drain).await?;
        let hold = hold_of(&self.config.id(), &self.config.network, &node.lease());
        if self.config.dhcp == Dhcp::Platform {
            self.backend.release_address(&hold).await?;
        }
        super::destroy::remove_file(&self.dir.ignition(node.name.as_str()))?;
        self.journal.forget(&format!("join/{}", node.name))?;
        self.journal.forget(&format!("pass-two/create/{}", node.name))?;
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
            one = machines::pass_one(self.config, &self.only_new(&macs, before));
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
        match findings.is_empty() {
            true => Ok(()),
            false => Err(PassError::Preflight { findings }.into()),
        }
    }

    fn only_new(&self, macs: &machines::MacTable, table: &Parameters) -> machines::MacTable {
        let nodes: Vec<_> = self.config.nodes();
        let is_new = |node: &NodeName| nodes.iter().any(|(name, _)| name == node) && table.node(node).is_none();
        macs.iter()
            .filter(|(node, _)| is_new(node))
            .map(|(node, mac)| (node.clone(), *mac))
            .collect()
    }

    /// Pass one for the new nodes only; they are added to the table at once.
    async fn harvest_new(&self) -> Result<Parameters> {
        let table = self.table()?;
        let choose = async {
            let clusters = inventory::clusters(self.home)?;
            let mut taken = inventory::neighbours(&clusters, &self.facts.identity, &self.config.id()).macs;
            taken.extend(table.leases().iter().map(|lease| lease.mac));
            Ok(self.only_new(&machines::macs(self.config, &taken), &table))
        };
        let missing: Vec<_> = self
            .config
            .nodes()
            .into_iter()
            .filter(|(node, _)| table.node(node).is_none())
            .collect();
        let table = if missing.is_empty() {
            table
        } else {
            // An earlier attempt for another number of workers cannot be reused.
            if self.journal.is_outdated("scale/macs", &missing)? {
                self.journal.forget("scale")?;
            }
            let macs = self.journal.step("scale/macs", &missing, choose).await?;
            let leases = match self.config.harvest {
                Harvest::Boot => self.boot_and_look("scale", &macs).await?,
                Harvest::Reserve => self.reserve("scale", &macs).await?,
                Harvest::Static => machines::static_leases(self.config, &macs),
            };
            let mut leases: BTreeMap<_, _> = leases.into_iter().map(|lease| (lease.name.clone(), lease)).collect();
            let mut new = Vec::new();
            for (name, role) in missing {
                if let Some(lease) = leases.remove(&name) {
                    new.push(self.node_address("scale", role, &lease));
                }
            }
            self.append(new)?
        };
        self.delete_throwaway_machines().await?;
        self.journal.forget("scale")?;
        Ok(table)
    }

    fn append(&self, new: Vec<NodeAddress>) -> Result<Parameters> {
        let _allocation = inventory::allocate(self.home)?;
        let clusters = inventory::clusters(self.home)?;
        let neighbours = inventory::neighbours(&clusters, &self.facts.identity, &self.config.id());
        let mut table = self.table()?;
        table.nodes.extend(new);
        let findings: Vec<_> = neighbours.clashes(&table).into_iter().map(Finding::fail).collect();
        if !findings.is_empty() {
            return Err(PassError::Preflight { findings }.into());
        }
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
    async fn balance_routers(&self, table: &Parameters, installed_workers: usize) -> Result<()> {
        self.balance(&self.with_routers(installed_workers), table).await
    }

    /// Updates the manifests that name the cluster's workers; returns the roles whose manifests changed.
    async fn renew(&self, reach: &Reach, table: &Parameters, installed_workers: usize) -> Result<Vec<String>> {
        let Reach::Api(api) = reach else { return Ok(Vec::new()) };
        let services = self.services(table)?;
        let renewed = self.apply_manifests(api, table, &services, installed_workers).await?;
        if !renewed.is_empty() {
            let roles = renewed.join(" and ");
            warn!(target: PROGRESS, step = "tables",
                "the machine config operator updates the {roles} nodes now, one after the other, with a reboot of each");
        }
        Ok(renewed)
    }
}
