//! The steps of pass two: the installer's files, one config for each node, the machines, and the waits.
//!
//! More than 500 lines: all steps of one pass, in the order in which they run.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tracing::{info, warn};

use super::error::network_config;
use super::fragments;
use super::guest_addresses::GuestAddresses;
use super::image_sources;
use super::images::Handles;
use super::launch::Launches;
use super::run::Run;
use crate::PROGRESS;
use crate::backend::{Machine, MachineSpec, Payload, ReservationState};
use crate::cluster::{Dhcp, InstallerChoice, MachineName, Mcs, NodeName, NodeSpec, Pass, Role};
use crate::digest::sha512;
use crate::error::{ErrorKind, OperationError};
use crate::local::reach;
use crate::node::budget::{self, Fitted};
use crate::node::config::{Fragment, NodeConfigs, for_coreos};
use crate::node::host::HostParts;
use crate::node::pointer::Server;
use crate::node::services::{self, Release};
use crate::openshift::installer::{self, Assets, Installer, NodeReport, WaitContext};
use crate::openshift::mcs::{self, Limits};
use crate::openshift::wait::{WaitError, clock};
use crate::passes::diagnose;
use crate::plan::connections::connections;
use crate::plan::harvest::{BOOTING, Seen, Watch, judge_planned};
use crate::plan::machines::{self, MacTable, Planned};
use crate::printable::count;
use crate::state::durations::Phase;
use crate::state::home;
use crate::state::journal::{BOOTSTRAP_REMOVED, INSTALLED, Step};
use crate::state::parameters::Parameters;

/// The step that writes the nodes' Ignition configs.
const MERGE: &str = "merge";

/// The note with the address that a machine of a workflow has shown.
fn address_note(workflow: &str, node: &NodeName) -> String {
    format!("{workflow}/{node}/address")
}

/// The step that queries the machine config server.
pub(super) fn served_step(role: Role) -> String {
    format!("mcs/{role}")
}

/// The step that creates a machine.
fn create_step(machine: &Planned, config: Option<&NodeConfig>, images: &Handles) -> Result<Step> {
    let input = (machine, config, images.of(machine));
    Step::new(format!("pass-two/create/{}", machine.node), &input)
}

impl Run<'_> {
    /// The first step of a deployment: it records the release.
    pub(super) async fn release_step(&self, installer: &Installer) -> Result<Step> {
        Step::new(
            "release",
            &(self.config.installer.without_path(), installer.version().await?),
        )
    }

    /// The release to install: that of earlier runs, otherwise from its registry. Nothing is written, because the
    /// registry may reject the request.
    pub(super) async fn ask_release(&self, installer: &Installer) -> Result<Release> {
        if !self.journal.is_outdated(&self.release_step(installer).await?)
            && let Some(release) = self.journal.output("release")?
        {
            return Ok(release);
        }
        info!(target: PROGRESS, step = "release", "{}: reading its images", installer.version().await?);
        installer.release(self.config).await
    }

    /// What the installer waits for.
    pub(super) fn wait_context<'a>(&'a self, table: &'a Parameters) -> WaitContext<'a> {
        WaitContext {
            config: self.config,
            parameters: table,
            dir: &self.dir,
            guests_answer: self.backend.common_capabilities().guests_reachable,
        }
    }

    /// Creates the installer's files after pass one, because their certificates are valid for 24 hours.
    pub(super) async fn assets(&self, installer: &Installer, services: &services::Input<'_>) -> Result<Assets> {
        let parameters = services.parameters;
        let ours = services::manifests(services)?;
        let users = installer::manifests_digest(self.config)?;
        let input = (self.config.asset_fingerprint(), users, &ours, parameters);
        let step = Step::new("assets", &input)?;
        let make = || async {
            let version = installer.version().await?;
            info!(target: PROGRESS, step = "assets", "installer {version} creates manifests and Ignition configs");
            installer.make_assets(self.config, parameters, &ours, &self.dir).await
        };
        let assets = self.journal.run(&step, make()).await?.moved_to(&self.dir);
        let hours = assets.age_hours(Timestamp::now());
        // A bootstrapped cluster renews its certificates.
        if hours < clock::STALE_HOURS || self.journal.done_at("bootstrap-complete").is_some() {
            return Ok(assets);
        }
        let machines = self.backend.list_machines(&self.config.id()).await?;
        if machines.iter().any(|machine| machine.pass == Pass::Two) {
            let text = format!(
                "the installer's files are {hours} hours old; their certificates are valid for 24 hours, and machines \
                 were created with them"
            );
            let hint = format!(
                "the cluster is not installed and cannot be any more: `ocpdeploy destroy {} --keep-addresses`, then \
                 deploy again: this creates new files and keeps the addresses",
                self.config.name
            );
            return Err(OperationError::new(ErrorKind::Tool, text).hint(hint).into());
        }
        info!(target: PROGRESS, step = "assets", "the files are {hours} hours old; no machine uses them, so they are created again");
        for forgotten in ["pass-two/create", MERGE, "mcs", "assets"] {
            self.journal.forget(forgotten)?;
        }
        self.journal.run(&step, make()).await
    }

    /// One Ignition config for each node of these roles: the installer's, the user's and ocpdeploy's, in a form that
    /// fits the carrier.
    pub(super) async fn node_configs(
        &self,
        services: &services::Input<'_>,
        assets: &Assets,
        roles: &[Role],
        images: &Handles,
    ) -> Result<BTreeMap<NodeName, NodeConfig>> {
        let parameters = services.parameters;
        let fragments = fragments::read(self.config)?;
        let bootstrap = services::parts(services, Role::Bootstrap)?;
        let mut all = self.layers(parameters, assets, &fragments, &bootstrap)?;
        let mut asked = BTreeMap::new();
        for role in self.config.node_roles() {
            // Files embedded in the configs of an earlier role must still be reported.
            if self.config.mcs == Mcs::Embed && (roles.contains(&role) || self.is_served(role)) {
                let served = self.served(&all, role, parameters).await?;
                all.serve(role, &served)?;
                asked.insert(role, sha512(&served));
            }
        }
        let name = match roles {
            [role] => format!("{MERGE}/{role}"),
            _ => MERGE.to_owned(),
        };
        let prints = fragments::fingerprints(self.config, &fragments);
        let input = (assets, parameters, self.config.mcs, prints, &bootstrap, &asked, roles);
        let step = Step::new(name, &input)?;
        let wanted = |_: &NodeName, role| roles.contains(&role);
        let mut fitted = None;
        if let Some(configs) = self.journal.output::<BTreeMap<NodeName, NodeConfig>>(step.name())? {
            if !self.journal.is_outdated(&step) && self.are_written(&configs) {
                return Ok(configs);
            }
            // Changes of the user are merged again, unless a machine already has its config.
            let now = self.fit(&all, wanted)?;
            let configs = now
                .iter()
                .map(|(node, fitted)| (node.clone(), NodeConfig::of(fitted)))
                .collect();
            self.judge_machines(&self.planned_nodes(parameters, &configs), &configs, images)?;
            self.journal.forget(step.name())?;
            fitted = Some(now);
        }
        let merge = async {
            let fitted = fitted.map_or_else(|| self.fit(&all, wanted), Ok)?;
            self.write_configs(&all, &fitted, |node| !self.came_later(node))
        };
        self.journal.run(&step, merge).await
    }

    pub(super) fn layers<'c>(
        &'c self,
        parameters: &'c Parameters,
        assets: &Assets,
        fragments: &[Fragment],
        bootstrap: &HostParts,
    ) -> Result<NodeConfigs<'c>> {
        let mut installer = BTreeMap::new();
        let external = parameters.external.iter().map(|node| node.role);
        for role in self.config.nodes().iter().map(|node| node.role).chain(external) {
            if let Entry::Vacant(entry) = installer.entry(role) {
                entry.insert(assets.read(role)?);
            }
        }
        let connections = connections(self.config, Some(parameters)).map_err(network_config)?;
        let release = self.installed_release()?.version;
        let (fragments, _) = for_coreos(fragments, |role| image_sources::newest_spec(self.config, role, release))?;
        let all = NodeConfigs::new(self.config, parameters, &installer, &fragments, bootstrap)?;
        Ok(all.with_connections(connections))
    }

    fn is_served(&self, role: Role) -> bool {
        self.journal.done_at(&served_step(role)).is_some()
    }

    /// The machine config server's config of a role; queried once, because it may change and machines must not.
    pub(super) async fn served(&self, all: &NodeConfigs<'_>, role: Role, parameters: &Parameters) -> Result<Vec<u8>> {
        let mut server = all.server(role)?;
        if self.config.is_rehearsal() {
            server = server.of_rehearsal();
        }
        let endpoint = reach::api_endpoint(parameters).to(server.port);
        let port = endpoint.port();
        let at_endpoint = Server { port, ..server.clone() };
        let api_ip = parameters.api_ip;
        let path = self.dir.served(&role.to_string());
        let input = (&server.path, sha512(server.authorities.concat()), api_ip);
        let version = image_sources::newest_spec(self.config, role, self.installed_release()?.version);
        let limits = Limits::new(self.config.timeouts.bootstrap);
        let step = Step::new(served_step(role), &input)?;
        let ask = || async {
            info!(target: PROGRESS, step = "mcs", "fetching the {role} config from the machine config server at {endpoint}");
            let served = mcs::fetch(&at_endpoint, endpoint.ip(), version, limits).await?;
            home::write_private(&path, &served)?;
            Ok(sha512(&served))
        };
        if self.journal.is_outdated(&step) {
            self.journal.forget(step.name())?;
        }
        let hash = self.journal.run(&step, ask()).await?;
        match fs_err::read(&path) {
            Ok(served) if sha512(&served) == hash => return Ok(served),
            _ => self.journal.forget(step.name())?,
        }
        self.journal.run(&step, ask()).await?;
        Ok(fs_err::read(&path)?)
    }

    /// Merges the configs of the requested nodes, in a form that fits their carriers.
    pub(super) fn fit(
        &self,
        all: &NodeConfigs<'_>,
        wanted: impl Fn(&NodeName, Role) -> bool,
    ) -> Result<BTreeMap<NodeName, Fitted>> {
        let mut configs = BTreeMap::new();
        let nodes = self.config.nodes().into_iter();
        for NodeSpec {
            name: node,
            role,
            place,
            ..
        } in nodes.filter(|node| wanted(&node.name, node.role))
        {
            let bytes = all
                .node_config(&node, role)
                .with_context(|| format!("merge the Ignition config of {node}"))?;
            let carrier = self.backend.capabilities(place).carrier;
            let fitted = match budget::fit(&carrier, bytes.clone()) {
                Ok(fitted) => fitted,
                Err(_) if carrier.fetches => Fitted { bytes, packed: false },
                Err(too_large) => return Err(fragments::too_large(&node, &too_large).into()),
            };
            if fitted.packed {
                info!(target: PROGRESS, step = "merge", "{node}: compressed to fit {}", carrier.name);
            }
            if fitted.bytes.len() > budget::LARGE {
                warn!(target: PROGRESS, step = "merge", "{node}: {} bytes, which is slow with {}", fitted.bytes.len(), carrier.name);
            }
            configs.insert(node, fitted);
        }
        Ok(configs)
    }

    /// Whether a node's machine was recreated after the installation: the config on disk belongs to the later machine.
    fn came_later(&self, node: &NodeName) -> bool {
        self.journal.done_at(&format!("join/{node}/begun")).is_some()
    }

    /// Writes the configs of the requested nodes, and the layers of all of them.
    pub(super) fn write_configs(
        &self,
        all: &NodeConfigs<'_>,
        fitted: &BTreeMap<NodeName, Fitted>,
        wanted: impl Fn(&NodeName) -> bool,
    ) -> Result<BTreeMap<NodeName, NodeConfig>> {
        for warning in &all.warnings {
            warn!(target: PROGRESS, step = "merge", "{warning}");
        }
        let mut configs = BTreeMap::new();
        for (node, fitted) in fitted {
            if wanted(node) {
                home::write_private_unsynced(&self.dir.ignition(node.as_str()), &fitted.bytes)?;
            }
            configs.insert(node.clone(), NodeConfig::of(fitted));
        }
        home::write_private(&self.dir.ignition_layers(), &serde_json::to_vec(&all.kept_layers()?)?)?;
        Ok(configs)
    }

    /// Whether the configs on disk match the journal; they are not synced, so a crash may lose them.
    fn are_written(&self, configs: &BTreeMap<NodeName, NodeConfig>) -> bool {
        let mut first = configs.iter().filter(|(node, _)| !self.came_later(node));
        first.all(|(node, config)| {
            let written = fs_err::read(self.dir.ignition(node.as_str()));
            written.is_ok_and(|bytes| sha512(bytes) == config.sha512)
        })
    }

    /// Pass two: creates the machines of these configs, with the MACs of the table.
    pub(super) async fn pass_two(
        &self,
        parameters: &Parameters,
        configs: &BTreeMap<NodeName, NodeConfig>,
        images: &Handles,
    ) -> Result<()> {
        let planned = self.planned_nodes(parameters, configs);
        self.judge_machines(&planned, configs, images)?;
        // Others are created later, while the cluster is already waited for.
        let is_all = planned.iter().any(|machine| machine.role == Role::Bootstrap);
        let about = self.estimate.seconds(Phase::PassTwo).filter(|_| is_all);
        let total = planned.len();
        info!(target: PROGRESS, step = "pass two", total, estimate = about, estimate_source = self.estimate.source(),
            "creating {}", count(total, "machine"));
        let create = async |machine: &Planned| self.create_node(machine, configs.get(&machine.node), images).await;
        self.backend.concurrently(&planned, create).await.map(drop)
    }

    /// Rejects settings that differ from those of existing machines, before more are created.
    fn judge_machines(
        &self,
        planned: &[Planned],
        configs: &BTreeMap<NodeName, NodeConfig>,
        images: &Handles,
    ) -> Result<()> {
        for machine in planned {
            let step = create_step(machine, configs.get(&machine.node), images)?;
            self.journal.judge(&step)?;
        }
        Ok(())
    }

    pub(super) fn planned_nodes(
        &self,
        parameters: &Parameters,
        configs: &BTreeMap<NodeName, NodeConfig>,
    ) -> Vec<Planned> {
        let mut planned = machines::pass_two(self.config, &MacTable::new(), Some(parameters));
        planned.retain(|machine| configs.contains_key(&machine.node));
        planned
    }

    /// Creates a machine. One that a former run created may since have failed or have been deleted before it ever ran:
    /// then it is created again.
    async fn create_node(&self, machine: &Planned, config: Option<&NodeConfig>, images: &Handles) -> Result<()> {
        let step = create_step(machine, config, images)?;
        let was_seen = self
            .journal
            .done_at(&address_note("pass-two/create", &machine.node))
            .is_some();
        if self.journal.done_at(step.name()).is_some() && !was_seen {
            self.journal.forget(step.name())?;
        }
        self.journal.run(&step, self.make(machine, images)).await?;
        info!(target: PROGRESS, step = "pass two", node = %machine.node, state = "booting", "{BOOTING}");
        Ok(())
    }

    /// Creates a machine with its node's config.
    pub(super) async fn make(&self, machine: &Planned, images: &Handles) -> Result<()> {
        info!(target: PROGRESS, step = "pass two", node = %machine.node, state = "creating");
        self.record_size(machine)?;
        self.backend.create_machine(&self.node_spec(machine, images)?).await?;
        Ok(())
    }

    pub(super) fn node_spec(&self, machine: &Planned, images: &Handles) -> Result<MachineSpec> {
        let ignition = fs_err::read(self.dir.ignition(machine.node.as_str()))?;
        Ok(machine.spec(self.config, images.of(machine), Payload::Ignition(ignition)))
    }

    /// Compares each node's address with the table: the same MAC does not guarantee the same address.
    pub(super) async fn compare_addresses(
        &self,
        parameters: &Parameters,
        held: &BTreeMap<NodeName, ReservationState>,
        configs: &BTreeMap<NodeName, NodeConfig>,
        images: &Handles,
    ) -> Result<()> {
        self.settle(&self.remaining_nodes(parameters, configs), held, images)
            .await
    }

    /// The machines that must exist: after bootstrap-complete without the bootstrap, even if the run that removed it
    /// was killed before it recorded this.
    pub(super) fn remaining_nodes(
        &self,
        parameters: &Parameters,
        configs: &BTreeMap<NodeName, NodeConfig>,
    ) -> Vec<Planned> {
        let mut planned = self.planned_nodes(parameters, configs);
        if self.journal.done_at("bootstrap-complete").is_some() {
            planned.retain(|machine| machine.role != Role::Bootstrap);
        }
        planned
    }

    /// Waits until each of these machines has shown its planned address twice.
    pub(super) async fn settle(
        &self,
        planned: &[Planned],
        held: &BTreeMap<NodeName, ReservationState>,
        images: &Handles,
    ) -> Result<()> {
        let begun = Instant::now();
        info!(target: PROGRESS, step = "pass two", total = planned.len());
        let mut watch = Watch::new(None);
        let mut launches = Launches::default();
        let mut guests = GuestAddresses::new(self.machine_network().ok(), self.virtual_ips()?);
        loop {
            let queried = Instant::now();
            let mut machines = self.backend.list_machines(&self.config.id()).await?;
            let query = queried.elapsed();
            let spec = |machine: &Planned| self.node_spec(machine, images);
            self.start_again(&mut launches, planned, &machines, spec).await?;
            guests.complete(self, planned, &mut machines).await;
            for change in watch.look(planned, &machines) {
                info!(target: PROGRESS, step = "pass two", node = %change.node, state = change.state(), done = change.stable, "{change}");
                let plan = planned.iter().find(|plan| change.stable && plan.name == change.name);
                if let Some((plan, ip)) = plan.zip(watch.address(&change.name)) {
                    let workflow = match self.is_joining(&plan.node) {
                        true => "join",
                        false => "pass-two/create",
                    };
                    self.journal.note(&address_note(workflow, &plan.node), &ip)?;
                }
            }
            if let Some(moved) = planned.iter().find_map(|plan| moved(plan, &watch, &machines, held)) {
                return Err(self.subject().moved(moved).into());
            }
            if watch.is_complete(planned) {
                return Ok(());
            }
            let limit = self.config.timeouts.address;
            if let Some(error) = self.wait_failure(&watch, planned, begun.elapsed(), limit).await {
                return Err(error.into());
            }
            tokio::time::sleep(self.pause(&watch, query)).await;
        }
    }

    pub(super) async fn bootstrap_complete(
        &self,
        installer: &Installer,
        wait: &WaitContext<'_>,
    ) -> Result<Vec<NodeReport>> {
        info!(target: PROGRESS, step = "bootstrap-complete", estimate = self.estimate.seconds(Phase::Bootstrap),
            estimate_source = self.estimate.source(), "waiting for the control plane");
        let step = Step::named("bootstrap-complete");
        match self.journal.run(&step, installer.wait_for_bootstrap(wait)).await {
            Err(error) => Err(self.explained(installer, wait, true, error).await),
            waited => waited,
        }
    }

    /// Waits until the bootstrap is no longer a member of etcd, even if a run starts after bootstrap-complete.
    ///
    /// Also waits if the machine is kept: a later run that removes it cannot check this.
    pub(super) async fn etcd_without_bootstrap(&self, installer: &Installer, wait: &WaitContext<'_>) -> Result<()> {
        if self.config.installer == InstallerChoice::Rehearsal || self.journal.done_at(BOOTSTRAP_REMOVED).is_some() {
            return Ok(());
        }
        info!(target: PROGRESS, step = "bootstrap-member-removed", "waiting until the etcd operator has removed the bootstrap from etcd");
        let step = Step::named("bootstrap-member-removed");
        match self.journal.run(&step, installer.wait_for_etcd(wait)).await {
            Err(error) => Err(self.explained(installer, wait, true, error).await),
            waited => waited,
        }
    }

    /// Adds the probable causes to a failed wait.
    async fn explained(
        &self,
        installer: &Installer,
        wait: &WaitContext<'_>,
        bootstrap_is_there: bool,
        error: anyhow::Error,
    ) -> anyhow::Error {
        match error.downcast::<WaitError>() {
            Ok(error) => diagnose::explain(self.backend, installer, wait, bootstrap_is_there, error)
                .await
                .into(),
            Err(error) => error,
        }
    }

    /// Removes the bootstrap machine and releases its address, after bootstrap-complete.
    pub(super) async fn remove_bootstrap(&self, parameters: &Parameters) -> Result<()> {
        let node = NodeName::bootstrap();
        let name = MachineName::of_node(&self.config.name, &node);
        if self.config.keep_bootstrap && self.journal.done_at(BOOTSTRAP_REMOVED).is_none() {
            info!(target: PROGRESS, step = "bootstrap-complete", %node, state = "kept");
            return Ok(());
        }
        let remove = async {
            self.backend.delete_machine(&self.config.id(), &name).await?;
            let lease = parameters.leases().into_iter().find(|lease| lease.name == node);
            if let Some(lease) = lease.filter(|_| self.config.dhcp == Dhcp::Platform) {
                self.backend.release_address(&self.hold_of(&lease)).await?;
            }
            info!(target: PROGRESS, step = "bootstrap-complete", %node, state = "removed");
            Ok(())
        };
        self.journal.run(&Step::named(BOOTSTRAP_REMOVED), remove).await
    }

    pub(super) async fn install_complete(
        &self,
        installer: &Installer,
        wait: &WaitContext<'_>,
    ) -> Result<Vec<NodeReport>> {
        info!(target: PROGRESS, step = "install-complete", estimate = self.estimate.seconds(Phase::Install),
            estimate_source = self.estimate.source(), "waiting for the cluster operators");
        let work = async {
            let reports = installer.wait_for_install(wait).await?;
            if !self.config.is_rehearsal() {
                let api = wait.api().await?;
                let cluster = self.cluster(&api, wait.parameters);
                let limit = self.config.timeouts.install;
                cluster.trust_routers(&self.dir.kubeconfig(), limit).await?;
                self.make_config_pools(&api).await?;
            }
            Ok(reports)
        };
        let reports = match self.journal.run(&Step::named(INSTALLED), work).await {
            Err(error) => return Err(self.explained(installer, wait, false, error).await),
            Ok(reports) => reports,
        };
        self.backend.delete_fetched_configs(&self.config.id()).await?;
        Ok(reports)
    }
}

/// A node's written config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeConfig {
    pub(super) sha512: String,
    pub(super) bytes: usize,
    /// The config is compressed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) packed: bool,
}

impl NodeConfig {
    fn of(fitted: &Fitted) -> Self {
        Self {
            sha512: sha512(&fitted.bytes),
            bytes: fitted.bytes.len(),
            packed: fitted.packed,
        }
    }
}

/// The message if a machine permanently has another address than planned: which address, and why.
fn moved(
    plan: &Planned,
    watch: &Watch,
    machines: &[Machine],
    held: &BTreeMap<NodeName, ReservationState>,
) -> Option<String> {
    let planned = plan.ip?;
    let text = |seen: &str, why: &str| {
        format!(
            "pass two: {} has address {seen}, planned is {planned}: {why}",
            plan.name
        )
    };
    if let Some(seen) = watch.address(&plan.name) {
        let why = match held.get(&plan.node) {
            Some(ReservationState::ByPlatform) => {
                "the platform's reservation was not honoured; another DHCP server may answer first"
            }
            Some(ReservationState::ByUser) => {
                "your DHCP server assigned another; `ocpdeploy export dhcp` writes its configuration"
            }
            Some(ReservationState::Static) => "its config has the planned one, so something else assigned another",
            Some(ReservationState::Unreserved) | None => {
                "the address is not reserved, and the DHCP server assigned another"
            }
        };
        return (seen != planned).then(|| text(&seen.to_string(), why));
    }
    let machine = machines.iter().find(|machine| machine.name == plan.name)?;
    match judge_planned(Some(machine), plan.mac, planned) {
        Seen::Several(all) if !all.contains(&planned) => {
            let all: Vec<_> = all.iter().map(IpAddr::to_string).collect();
            Some(text(
                &all.join(" and "),
                "its DHCP client sent more than one client-id, so it got more than one lease",
            ))
        }
        _ => None,
    }
}
