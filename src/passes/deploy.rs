//! `deploy` and `harvest`: both passes.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Serialize;
use tracing::{info, warn};

use super::check;
use super::complete;
use super::deployments;
use super::destroy::{delete_machines, remove_file};
use super::effective_settings::EffectiveSettings;
use super::error::names;
use super::guest_addresses::with_answers;
use super::one;
use super::options::DeployOptions;
use super::run::Run;
use super::services::Services;
use super::two::NodeConfig;
use super::version_lock;
use crate::PROGRESS;
use crate::backend::ReservationState;
use crate::backend::platforms::Platforms;
use crate::cluster::{ClusterConfig, Harvest, MachineName, Mcs, NodeName, Pass, Role, WorkersWhen};
use crate::digest::sha512;
use crate::error::{ErrorKind, OperationError};
use crate::openshift::installer::{Installer, NodeReport};
use crate::plan::address_ranges;
use crate::plan::harvest::{Seen, judge_planned};
use crate::plan::machines::MacTable;
use crate::state::home::{Home, write_private};
use crate::state::journal::{self, INSTALLED, Journal, SCALED};
use crate::state::parameters::{NodeAddress, Parameters};

/// A successful deployment.
#[derive(Clone, Debug, Serialize)]
pub struct Deployed {
    pub parameters: Parameters,
    /// Pass one was skipped because the parameter file existed.
    pub skipped_pass_one: bool,
    /// One for each node, bootstrap first.
    pub rows: Vec<NodeRow>,
}

/// A node's planned address of pass one and its observed address of pass two.
#[derive(Clone, Debug, Serialize)]
pub struct NodeRow {
    pub planned: NodeAddress,
    pub held: ReservationState,
    /// SHA-512 of the Ignition config written for the node, in hex.
    pub ignition_sha512: String,
    pub ignition_bytes: usize,
    pub report: NodeReport,
}

/// Deploys a cluster, or continues an interrupted deployment.
pub async fn deploy(
    backend: &Platforms,
    config: &ClusterConfig,
    home: &Home,
    options: DeployOptions<'_>,
) -> Result<Deployed> {
    // All checks come before the first download, which comes before the first machine.
    let (facts, seen) = check::check(backend, config, home, options).await?;
    if let Some(deployed) = as_scaled(backend, config, home).await? {
        return Ok(deployed);
    }
    let choice = check::check_installer(backend, config, home, &facts, &seen).await?;
    let version = choice.version().to_owned();
    let installer = choice.obtain(&config.downloads).await?;
    let release_image = installer.release_image().await;
    if let (Some(lock), Some(image)) = (&config.lock, &release_image) {
        version_lock::keep_release(lock, image)?;
    }
    let config = &check::with_mcs(backend, config, &facts)?;
    let run = Run::begin(backend, config, home, &facts).await?;
    let (pinned, of, dir) = (installer.clone(), config.clone(), run.dir.clone());
    run.journal.at_first_line(move || Ok(pinned.pin(&of, &dir)?));
    run.keep_settings(options);
    run.journal.note_at_first_line(
        EffectiveSettings::STEP,
        &EffectiveSettings::of(backend, config, &version, release_image),
    )?;
    let deployed = run.through(&installer, options).await;
    run.with_leftovers("deploy", deployed).await
}

/// A cluster that was scaled or adopted since its installation: the steps of the deployment do not describe its nodes,
/// so their machines are compared with its table. `None` for any other cluster.
async fn as_scaled(backend: &Platforms, config: &ClusterConfig, home: &Home) -> Result<Option<Deployed>> {
    let dir = home.cluster(&config.name);
    let Some(table) = Parameters::read(&dir.parameters())? else {
        return Ok(None);
    };
    let steps = journal::read(&dir.journal())?;
    if !journal::is_done(&steps, INSTALLED) || !journal::is_done(&steps, SCALED) {
        return Ok(None);
    }
    // No other process changes its nodes meanwhile.
    let _lock = Journal::open(&dir, &config.name)?;
    let id = config.id();
    let machines = with_answers(backend, &table, backend.list_machines(&id).await?).await;
    deployments::require_current(&table, &machines)?;
    complete::refuse_switched_off(&config.name, &machines)?;
    let reserved = backend.list_reservations(&id).await?;
    let mut rows = Vec::new();
    let mut missing = Vec::new();
    for node in table.nodes.iter().filter(|node| node.role != Role::Bootstrap) {
        let mut of_node = machines.iter();
        let machine = of_node.find(|machine| machine.pass == Pass::Two && machine.node == node.name);
        let ip = match judge_planned(machine, node.mac, node.ip) {
            Seen::Address(ip) => ip,
            Seen::Several(all) if all.contains(&node.ip) => node.ip,
            Seen::Absent => {
                missing.push(&node.name);
                continue;
            }
            other => {
                let other = other.reported(backend.common_capabilities().addresses_from_agent);
                warn!(target: PROGRESS, "{} {other}", MachineName::of_node(&config.name, &node.name));
                continue;
            }
        };
        // An adopted cluster has no configs.
        let written = fs_err::read(dir.ignition(node.name.as_str())).unwrap_or_default();
        let sha512 = if written.is_empty() {
            String::new()
        } else {
            sha512(&written)
        };
        let is_reserved = reserved.iter().any(|reserved| reserved.assignment == node.lease());
        rows.push(NodeRow {
            planned: node.clone(),
            held: match is_reserved {
                true => ReservationState::ByPlatform,
                false => ReservationState::without_platform(config.dhcp).unwrap_or(ReservationState::Unreserved),
            },
            ignition_sha512: sha512.clone(),
            ignition_bytes: written.len(),
            report: NodeReport {
                node: node.name.clone(),
                role: node.role,
                mac: node.mac,
                ip,
                ipv6: table.ipv6.as_ref().map(|ipv6| ipv6.beside(node.ip)),
                hostname: id.domain().fqdn(node.name.as_str()),
                config_sha512: sha512,
                ignition_bytes: written.len(),
                checked: false,
            },
        });
    }
    if let Some(first) = missing.first() {
        let cluster = &config.name;
        let text = format!(
            "cluster {cluster} is installed, and the platform has no machine for {}",
            names(&missing)
        );
        let hint = format!("`ocpdeploy node replace {cluster} {first}` creates it again");
        return Err(OperationError::new(ErrorKind::Platform, text).hint(hint).into());
    }
    Ok(Some(Deployed {
        parameters: table,
        skipped_pass_one: true,
        rows,
    }))
}

/// Runs only pass one and keeps its table.
pub async fn harvest(
    backend: &Platforms,
    config: &ClusterConfig,
    home: &Home,
    options: DeployOptions<'_>,
) -> Result<Parameters> {
    let (facts, _) = check::check(backend, config, home, options).await?;
    let run = Run::begin(backend, config, home, &facts).await?;
    run.keep_settings(options);
    let pass_one = async {
        match run.starts_over(options).await? {
            true => run.start_over().await?,
            false => run.judge_pass_one().await?,
        }
        let parameters = run.harvested().await?;
        run.complete_pass_one(&parameters).await?;
        Ok(parameters)
    };
    run.with_leftovers("harvest", pass_one.await).await
}

impl Run<'_> {
    /// The settings are recorded before anything is created.
    fn keep_settings(&self, options: DeployOptions<'_>) {
        if let Some(settings) = options.settings.map(<[u8]>::to_vec) {
            let dir = self.dir.clone();
            self.journal
                .at_first_line(move || Ok(write_private(&dir.settings(), &settings)?));
        }
    }

    /// Runs both passes.
    async fn through(&self, installer: &Installer, options: DeployOptions<'_>) -> Result<Deployed> {
        let starts_over = self.starts_over(options).await?;
        let release = match starts_over {
            true => {
                let release = self.ask_release(installer).await?;
                self.start_over().await?;
                release
            }
            false => {
                self.refuse_switched_off().await?;
                self.judge(installer).await?;
                self.ask_release(installer).await?
            }
        };
        let skipped_pass_one = self.dir.parameters().exists();
        let step = self.release_step(installer).await?;
        self.journal.run(&step, async { Ok(release.clone()) }).await?;

        let prepare = async {
            let parameters = self.harvested().await?;
            let leased = self.unreserved_vips(&parameters).await?;
            let services = Services { release, leased };
            let input = services.input(self, &parameters);
            // The installer requires only the table. Pass one is completed even if the installer fails.
            let (held, assets) = futures::join!(self.complete_pass_one(&parameters), self.assets(installer, &input));
            Ok::<_, anyhow::Error>((held?, assets?, services, parameters))
        };
        // The node image is usually the longest upload; it does not depend on the addresses.
        let ((held, assets, services, parameters), images) = futures::try_join!(prepare, self.node_images(installer))?;
        let services = services.input(self, &parameters);
        self.balance(self.config, &parameters).await?;
        // Nodes that query the machine config server themselves may be created at once; for the others it must run
        // first.
        let embeds = self.config.mcs == Mcs::Embed;
        let mut first = vec![Role::Bootstrap];
        if !embeds {
            first.extend(self.config.etcd_roles());
            first.extend((self.config.workers_when == WorkersWhen::Now).then_some(Role::Worker));
        }
        let mut configs = self.node_configs(&services, &assets, &first, &images).await?;
        self.pass_two(&parameters, &configs, &images).await?;
        if embeds {
            for role in self.config.etcd_roles() {
                configs.extend(self.node_configs(&services, &assets, &[*role], &images).await?);
            }
            self.pass_two(&parameters, &configs, &images).await?;
        }
        self.compare_addresses(&parameters, &held, &configs, &images).await?;

        let wait = self.wait_context(&parameters);
        let nodes = self.remaining_nodes(&parameters, &configs);
        let bootstrap = Box::pin(self.bootstrap_complete(installer, &wait));
        let mut reports = self.while_running(&nodes, &images, bootstrap).await?;
        self.etcd_without_bootstrap(installer, &wait).await?;
        // The API and the machine config server of the bootstrap no longer run.
        self.balance(self.config, &parameters).await?;
        self.remove_bootstrap(&parameters).await?;
        if !first.contains(&Role::Worker) && self.config.all_workers() > 0 {
            configs.extend(self.node_configs(&services, &assets, &[Role::Worker], &images).await?);
            self.pass_two(&parameters, &configs, &images).await?;
            self.compare_addresses(&parameters, &held, &configs, &images).await?;
        }
        let nodes = self.remaining_nodes(&parameters, &configs);
        let install = Box::pin(self.install_complete(installer, &wait));
        reports.extend(self.while_running(&nodes, &images, install).await?);
        self.dir
            .remove_old_installer()
            .context("remove the previous installer's files")?;
        self.dir
            .sweep()
            .context("remove unfinished files from the cluster's directory")?;
        self.record()?;
        self.record_durations();
        Ok(Deployed {
            rows: rows(&parameters, &held, &configs, reports),
            parameters,
            skipped_pass_one,
        })
    }

    /// Rejects settings that contradict completed steps of an earlier run, before anything is written. Later steps are
    /// compared when they are reached: if all steps before them are complete, nothing is written until then.
    async fn judge(&self, installer: &Installer) -> Result<()> {
        self.journal.judge(&self.release_step(installer).await?)?;
        self.judge_node_images(installer).await?;
        self.judge_pass_one().await
    }

    async fn judge_pass_one(&self) -> Result<()> {
        if let Some(table) = Parameters::read(&self.dir.parameters())? {
            return self.judge_held(&table);
        }
        self.journal.judge(&self.macs_step()?)?;
        let macs: Option<MacTable> = self.journal.output(one::MACS)?;
        match macs.filter(|_| self.config.harvest == Harvest::Boot) {
            Some(macs) => self.judge_boot("pass-one", &macs).await,
            None => Ok(()),
        }
    }

    /// Whether pass one is to be discarded. Nothing of pass two may exist.
    async fn starts_over(&self, options: DeployOptions<'_>) -> Result<bool> {
        if !options.harvest_again || !self.dir.parameters().exists() {
            return Ok(false);
        }
        let machines = self.backend.list_machines(&self.config.id()).await?;
        if machines.iter().any(|machine| machine.pass == Pass::Two) {
            let cluster = &self.config.name;
            let text = format!("cluster {cluster} has machines of pass two, so pass one cannot be repeated");
            let hint = format!(
                "`ocpdeploy deploy` without `--harvest` continues with its addresses. The cluster is not installed yet: \
                 `ocpdeploy destroy {cluster}` and then `ocpdeploy deploy` start over"
            );
            return Err(OperationError::new(ErrorKind::Usage, text).hint(hint).into());
        }
        Ok(true)
    }

    /// Discards pass one, so that it is repeated. Everything that may still be rejected comes first.
    ///
    /// The parameter file is removed last: while it exists, an interrupted run returns here.
    async fn start_over(&self) -> Result<()> {
        let id = self.config.id();
        if self.config.harvest == Harvest::Boot {
            self.harvest_images_again().await?;
        }
        let machines = self.backend.list_machines(&id).await?;
        self.journal.forget("")?;
        delete_machines(self.backend, &id, &machines).await?;
        self.backend.delete_remaining(&id).await?;
        remove_file(&self.dir.parameters())
    }

    /// The address table of pass one. Its machines still exist.
    async fn harvested(&self) -> Result<Parameters> {
        if let Some(parameters) = Parameters::read(&self.dir.parameters())? {
            info!(target: PROGRESS, step = "pass one", "skipped, the addresses are known");
            return Ok(parameters);
        }
        let macs = self.macs().await?;
        let leases = self.leases("pass-one", &macs);
        let (mut leases, heard) = futures::try_join!(leases, self.listen_for_routers())?;
        let free = self
            .free_in_ranges(address_ranges::names(self.config).len(), None)
            .await?;
        let endpoint = self.balanced_vips(&mut leases, &macs).await?;
        let external = self.external_vips(&leases).await?;
        self.write_parameters(leases, (&macs, &free), &heard, (endpoint, external))
    }

    /// Reserves the table's addresses where the platform supports it, and deletes the machines of pass one.
    async fn complete_pass_one(&self, parameters: &Parameters) -> Result<BTreeMap<NodeName, ReservationState>> {
        if self.backend.common_capabilities().leases_outlive_machines {
            // Each is completed even if the other one fails.
            let (held, swept) = futures::join!(self.hold(parameters, &[]), self.sweep_pass_one());
            return held.and_then(|held| swept.map(|()| held));
        }
        let held = self.hold(parameters, &self.throwaway().await?).await?;
        self.sweep_pass_one().await?;
        Ok(held)
    }
}

fn rows(
    parameters: &Parameters,
    held: &BTreeMap<NodeName, ReservationState>,
    configs: &BTreeMap<NodeName, NodeConfig>,
    reports: Vec<NodeReport>,
) -> Vec<NodeRow> {
    let row = |planned: &NodeAddress| {
        let config = configs.get(&planned.name)?;
        Some(NodeRow {
            planned: planned.clone(),
            held: held.get(&planned.name).copied().unwrap_or(ReservationState::Unreserved),
            ignition_sha512: config.sha512.clone(),
            ignition_bytes: config.bytes,
            report: reports.iter().find(|report| report.node == planned.name)?.clone(),
        })
    };
    parameters.nodes.iter().filter_map(row).collect()
}
