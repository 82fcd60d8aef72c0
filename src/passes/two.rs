//! The steps of pass two: the installer's files, one config for each node, the machines, and the waits.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{PassError, Run, fragments};
use crate::PROGRESS;
use crate::backend::{Backend, Held, ImageHandle, Machine, Payload};
use crate::cluster::{MachineName, NodeName, Role};
use crate::digest::sha512;
use crate::harvest::{Seen, Watch, judge};
use crate::home;
use crate::host::HostParts;
use crate::ignition::budget::{self, Fitted};
use crate::ignition::node::{Fragment, NodeConfigs};
use crate::installer::{self, Assets, Installer, NodeReport, WaitContext};
use crate::machines::{self, MacTable, Planned};
use crate::parameters::Parameters;
use crate::services::{self, Release};

/// The step that writes every node's Ignition config.
const MERGE: &str = "merge";

impl<B: Backend> Run<'_, B> {
    /// The release to be installed; asked before anything is made, since its registry may refuse.
    pub(super) async fn release(&self, installer: &Installer) -> Result<Release> {
        let version = installer.version().await?;
        let ask = async {
            info!(target: PROGRESS, step = "release", "{version}: asking for its images");
            installer.release(self.config, self.dir.path()).await
        };
        self.journal
            .step("release", &(&self.config.installer, &version), ask)
            .await
    }

    /// The installer's files; made after pass one, since the certificates in them last 24 hours.
    pub(super) async fn assets(&self, installer: &Installer, services: &services::Input<'_>) -> Result<Assets> {
        let parameters = services.parameters;
        let ours = services::manifests(services)?;
        let make = async {
            let version = installer.version().await?;
            info!(target: PROGRESS, step = "assets", "installer {version} makes manifests and Ignition configs");
            installer.make_assets(self.config, parameters, &ours, &self.dir).await
        };
        let users = installer::manifests_digest(self.config)?;
        let input = (self.config.asset_fingerprint(), users, &ours, parameters);
        self.journal.step("assets", &input, make).await
    }

    /// One Ignition config for each node: the installer's, the user's and ours, in a form that fits the carrier.
    pub(super) async fn node_configs(
        &self,
        services: &services::Input<'_>,
        assets: &Assets,
    ) -> Result<BTreeMap<NodeName, NodeConfig>> {
        let parameters = services.parameters;
        let fragments = fragments::read(self.config)?;
        let bootstrap = services::parts(services, Role::Bootstrap)?;
        let prints = fragments::fingerprints(&fragments);
        let input = (assets, parameters, self.config.mcs, prints, &bootstrap);
        // What the user changed since is merged anew. A machine that has its config by then says so itself.
        if self.journal.is_outdated(MERGE, &input)? {
            self.journal.forget(MERGE)?;
        }
        let merge = || async { self.merge(parameters, assets, &fragments, &bootstrap) };
        let configs = self.journal.step(MERGE, &input, merge()).await?;
        if self.are_written(&configs) {
            return Ok(configs);
        }
        self.journal.forget(MERGE)?;
        self.journal.step(MERGE, &input, merge()).await
    }

    fn merge(
        &self,
        parameters: &Parameters,
        assets: &Assets,
        fragments: &[Fragment],
        bootstrap: &HostParts,
    ) -> Result<BTreeMap<NodeName, NodeConfig>> {
        let mut installer = BTreeMap::new();
        for (_, role) in self.config.nodes() {
            if let Entry::Vacant(entry) = installer.entry(role) {
                entry.insert(assets.read(role)?);
            }
        }
        let all = NodeConfigs::new(self.config, parameters, &installer, fragments, bootstrap)?;
        for warning in &all.warnings {
            warn!(target: PROGRESS, step = "merge", "{warning}");
        }
        let carrier = self.backend.limits().carrier;
        let mut configs = BTreeMap::new();
        for (node, role) in self.config.nodes() {
            let bytes = all
                .node_config(&node, role)
                .with_context(|| format!("merge the Ignition config of {node}"))?;
            let Fitted { bytes, packed } = budget::fit(&carrier, bytes).map_err(|too_large| PassError::TooLarge {
                node: node.clone(),
                too_large,
            })?;
            if packed {
                info!(target: PROGRESS, step = "merge", "{node}: packed, so that {} carries it", carrier.name);
            }
            if bytes.len() > budget::LARGE {
                warn!(target: PROGRESS, step = "merge", "{node}: {} bytes, which {} carries slowly", bytes.len(), carrier.name);
            }
            home::write_private_unsynced(&self.dir.ignition(node.as_str()), &bytes)?;
            let sha512 = sha512(&bytes);
            let bytes = bytes.len();
            configs.insert(node, NodeConfig { sha512, bytes, packed });
        }
        home::write_private(&self.dir.ignition_layers(), &serde_json::to_vec(&all.kept_layers()?)?)?;
        Ok(configs)
    }

    /// Whether the configs are on disk as the journal knows them; nothing else makes sure that they outlive a crash.
    fn are_written(&self, configs: &BTreeMap<NodeName, NodeConfig>) -> bool {
        configs.iter().all(|(node, config)| {
            let written = fs_err::read(self.dir.ignition(node.as_str()));
            written.is_ok_and(|bytes| sha512(bytes) == config.sha512)
        })
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
    /// It is in the packed form.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) packed: bool,
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
        let why = match held.get(&plan.node) {
            Some(Held::ByPlatform) => {
                "the platform's reservation was not honoured; another DHCP server may answer first"
            }
            Some(Held::ByUser) => "your DHCP server gave another; `ocpdeploy export dhcp` writes what it needs to know",
            Some(Held::ByLuck) | None => "nobody holds the address, and the DHCP server gave another",
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
