//! The steps of pass two: the installer's files, one config for each node, the machines, and the waits.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tracing::info;

use super::{PassError, Run};
use crate::PROGRESS;
use crate::backend::{Backend, Held, ImageHandle, Machine, Payload};
use crate::cluster::{MachineName, NodeName, Role};
use crate::digest::sha512;
use crate::harvest::{Seen, Watch, judge};
use crate::home;
use crate::ignition;
use crate::installer::{Assets, Installer, NodeReport, WaitContext};
use crate::machines::{self, MacTable, Planned};
use crate::parameters::Parameters;

impl<B: Backend> Run<'_, B> {
    /// The installer's files; made after pass one, since the certificates in them last 24 hours.
    pub(super) async fn assets(&self, installer: &Installer, parameters: &Parameters) -> Result<Assets> {
        let make = async {
            let version = installer.version().await?;
            info!(target: PROGRESS, step = "assets", "installer {version} makes manifests and Ignition configs");
            installer.make_assets(self.config, parameters, &self.dir).await
        };
        self.journal
            .step("assets", &(self.config.asset_fingerprint(), parameters), make)
            .await
    }

    /// One Ignition config for each node: the installer's and our overlay, measured against the carrier.
    pub(super) async fn node_configs(
        &self,
        parameters: &Parameters,
        assets: &Assets,
    ) -> Result<BTreeMap<NodeName, NodeConfig>> {
        let merge = async {
            let limits = self.backend.limits();
            let mut configs = BTreeMap::new();
            for (node, role) in self.config.nodes() {
                let base = assets.read(role)?;
                let bytes = ignition::node_config(&base, self.config, parameters, &node, role)
                    .with_context(|| format!("merge the Ignition config of {node}"))?;
                if let Some(limit) = limits.carrier.room().filter(|limit| bytes.len() > *limit) {
                    let too_large = PassError::TooLarge {
                        node,
                        bytes: bytes.len(),
                        carrier: limits.carrier.name,
                        limit,
                    };
                    return Err(too_large.into());
                }
                let path = self.dir.ignition(node.as_str());
                home::write_private(&path, &bytes)?;
                configs.insert(
                    node,
                    NodeConfig {
                        sha512: sha512(&bytes),
                        bytes: bytes.len(),
                    },
                );
            }
            Ok(configs)
        };
        self.journal.step("merge", &(assets, parameters), merge).await
    }

    /// Pass two: the cluster's machines with the MACs of the table.
    pub(super) async fn pass_two(
        &self,
        parameters: &Parameters,
        configs: &BTreeMap<NodeName, NodeConfig>,
        image: &ImageHandle,
    ) -> Result<()> {
        let planned = self.planned_nodes(parameters);
        info!(target: PROGRESS, step = "pass two", total = planned.len(), "{} machines", planned.len());
        stream::iter(&planned)
            .map(|machine| self.create_node(machine, configs.get(&machine.node), image))
            .buffer_unordered(self.backend.limits().concurrency)
            .try_collect::<Vec<()>>()
            .await?;
        Ok(())
    }

    fn planned_nodes(&self, parameters: &Parameters) -> Vec<Planned> {
        machines::pass_two(self.config, &MacTable::new(), Some(parameters))
    }

    async fn create_node(&self, machine: &Planned, config: Option<&NodeConfig>, image: &ImageHandle) -> Result<()> {
        let create = async {
            info!(target: PROGRESS, machine = %machine.name, state = "creating");
            let path = self.dir.ignition(machine.node.as_str());
            let ignition = fs_err::read(&path)?;
            let spec = machine.spec(self.config, image, Payload::Ignition(ignition));
            self.backend.create_machine(&spec).await?;
            Ok(())
        };
        self.journal
            .step(
                &format!("pass-two/create/{}", machine.node),
                &(machine, config, image),
                create,
            )
            .await?;
        info!(target: PROGRESS, machine = %machine.name, state = "booting");
        Ok(())
    }

    /// Compares each node's address with the table: same MAC, same address is a hope until it was seen.
    pub(super) async fn compare_addresses(
        &self,
        parameters: &Parameters,
        held: &BTreeMap<NodeName, Held>,
    ) -> Result<()> {
        let mut planned = self.planned_nodes(parameters);
        if self.journal.done_at("bootstrap-removed").is_some() {
            planned.retain(|machine| machine.role != Role::Bootstrap);
        }
        let begun = Instant::now();
        let mut watch = Watch::new(None);
        loop {
            let machines = self.backend.list_machines(&self.config.id()).await?;
            for change in watch.look(&planned, &machines) {
                info!(target: PROGRESS, machine = %change.name, state = "address", done = change.stable, "{change}");
            }
            if let Some(moved) = planned.iter().find_map(|plan| moved(plan, &watch, &machines, held)) {
                return Err(moved.into());
            }
            if watch.is_complete(&planned) {
                return Ok(());
            }
            let (waited, limit) = (begun.elapsed(), self.config.timeouts.address);
            if let Some(error) = self.in_vain(&watch, &planned, waited, limit).await {
                return Err(error.into());
            }
            tokio::time::sleep(self.backend.limits().poll_interval).await;
        }
    }

    pub(super) async fn bootstrap_complete(
        &self,
        installer: &Installer,
        wait: &WaitContext<'_>,
        assets: &Assets,
    ) -> Result<Vec<NodeReport>> {
        if self.journal.done_at("bootstrap-complete").is_none() {
            let hours = assets.age_hours(jiff::Timestamp::now());
            if hours >= 20 {
                return Err(PassError::StaleAssets { hours }.into());
            }
        }
        info!(target: PROGRESS, step = "bootstrap", "waiting for bootstrap-complete");
        self.journal
            .step("bootstrap-complete", &(), installer.wait_for_bootstrap(wait))
            .await
    }

    pub(super) async fn remove_bootstrap(&self) -> Result<()> {
        let name = MachineName::of_node(&self.config.name, &NodeName::bootstrap());
        let remove = async {
            self.backend.delete_machine(&self.config.id(), &name).await?;
            info!(target: PROGRESS, machine = %name, state = "removed", done = true);
            Ok(())
        };
        self.journal.step("bootstrap-removed", &(), remove).await
    }

    pub(super) async fn install_complete(
        &self,
        installer: &Installer,
        wait: &WaitContext<'_>,
    ) -> Result<Vec<NodeReport>> {
        info!(target: PROGRESS, step = "install", "waiting for install-complete");
        self.journal
            .step("install-complete", &(), installer.wait_for_install(wait))
            .await
    }
}

/// A node's config as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeConfig {
    pub(super) sha512: String,
    pub(super) bytes: usize,
}

/// Whether a machine has settled on another address than planned, and why that may be.
fn moved(plan: &Planned, watch: &Watch, machines: &[Machine], held: &BTreeMap<NodeName, Held>) -> Option<PassError> {
    let planned = plan.ip?;
    let error = |seen: String, why| PassError::Moved {
        machine: plan.name.clone(),
        planned,
        seen,
        why,
    };
    if let Some(seen) = watch.address(&plan.name) {
        let by_platform = held.get(&plan.node) == Some(&Held::ByPlatform);
        let why = match by_platform {
            true => "the platform's reservation was not honoured; another DHCP server may answer first",
            false => "nobody holds the address, and the DHCP server gave another",
        };
        return (seen != planned).then(|| error(seen.to_string(), why));
    }
    let machine = machines.iter().find(|machine| machine.name == plan.name)?;
    match judge(Some(machine), plan.mac()?, None) {
        Seen::Several(all) if !all.contains(&planned) => {
            let all: Vec<_> = all.iter().map(Ipv4Addr::to_string).collect();
            Some(error(
                all.join(" and "),
                "its DHCP client sent more than one client-id, so it got more than one lease",
            ))
        }
        _ => None,
    }
}
