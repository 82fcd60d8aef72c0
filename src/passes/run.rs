//! One run on a cluster: its lock, its record, and the context of its errors.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;

use super::check;
use super::complete;
use super::deployments;
use super::error::{Missing, Subject};
use super::partial_failure::with_leftovers;
use crate::backend::platforms::Platforms;
use crate::backend::{NetworkFacts, ReservationState};
use crate::cluster::{AddressAssignment, ClusterConfig, Harvest, MachineName, NodeName, Role, Sizes, Vip};
use crate::error::OperationError;
use crate::plan::harvest::{Seen, Watch};
use crate::plan::machines::{self, Planned};
use crate::printable::printable_console;
use crate::state::durations::{self, Deployment, Estimate, Kind};
use crate::state::home::{ClusterDir, Home};
use crate::state::inventory::{self, Known, Neighbours};
use crate::state::journal::{self, FAILED, INSTALLED, Journal, RUN};
use crate::state::parameters::Parameters;

/// The longest pause before a new address is queried again.
const CONFIRMATION: Duration = Duration::from_millis(250);

/// One run on a cluster: the inputs of every step.
pub(super) struct Run<'a> {
    pub(super) backend: &'a Platforms,
    pub(super) config: &'a ClusterConfig,
    pub(super) home: &'a Home,
    pub(super) facts: &'a NetworkFacts,
    pub(super) dir: ClusterDir,
    pub(super) journal: Journal,
    /// How long the phases of earlier deployments took.
    pub(super) estimate: Estimate,
    /// The content of `cluster.json` from the journal's first line on.
    pub(super) known: Known,
}

/// Runs an operation on an installed cluster, with the cluster's lock; the error of a failure names the existing
/// objects.
pub(super) async fn on_installed<T>(
    backend: &Platforms,
    config: &ClusterConfig,
    home: &Home,
    operation: &'static str,
    work: impl AsyncFnOnce(&Run<'_>) -> Result<T>,
) -> Result<T> {
    deployments::refuse_others(backend, config).await?;
    let facts = check::look(backend, config).await?;
    let config = check::with_mcs(backend, config, &facts)?;
    let run = Run::begin(backend, &config, home, &facts).await?;
    if run.is_installed() {
        deployments::require_current(&run.installed()?, &backend.list_machines(&config.id()).await?)?;
    }
    let outcome = work(&run).await;
    run.note_failure(&outcome);
    with_leftovers(backend, &config.id(), operation, true, outcome).await
}

impl<'a> Run<'a> {
    /// Acquires the cluster's lock. The cluster's record is written with the journal's first line of this run.
    pub(super) async fn begin(
        backend: &'a Platforms,
        config: &'a ClusterConfig,
        home: &'a Home,
        facts: &'a NetworkFacts,
    ) -> Result<Self> {
        let dir = home.cluster(&config.name);
        let journal = Journal::open(&dir, &config.name)?;
        let mut known = Known::of(config);
        // Checked again, now that the lock is held.
        if let Some(before) = Known::read(&dir)? {
            // On the same platform other settings may have changed, e.g. a CA file or the flavor of later machines.
            let mut there = before.clone();
            if there.backend.place() == config.backend.place() {
                there.backend = config.backend.clone();
            }
            check::refuse_other_cluster(config, &there)?;
            check::refuse_other_kind(backend, config, &before, &journal::read(&dir.journal())?).await?;
            known.sizes = sizes(config, before.sizes, &journal);
        }
        let (record, to) = (known.clone(), dir.clone());
        journal.at_first_line(move || Ok(record.write(&to)?));
        // In a container each run has the same process id.
        journal.note_at_first_line(RUN, &(std::process::id(), Timestamp::now()))?;
        Ok(Self {
            backend,
            config,
            home,
            facts,
            dir,
            journal,
            estimate: Estimate::of(&durations::read(home), Kind::of(config)),
            known,
        })
    }

    /// What other clusters have: their addresses, ids and MACs.
    pub(super) fn neighbours(&self) -> Result<Neighbours> {
        let clusters = inventory::clusters(self.home)?;
        Ok(inventory::neighbours(
            &clusters,
            &self.facts.identity,
            &self.config.cluster_domain(),
        ))
    }

    /// As `partial_failure::with_leftovers`; an error before the operation has begun is returned unchanged.
    pub(super) async fn with_leftovers<T>(&self, operation: &'static str, outcome: Result<T>) -> Result<T> {
        self.note_failure(&outcome);
        match self.journal.is_begun() {
            true => with_leftovers(self.backend, &self.config.id(), operation, self.is_installed(), outcome).await,
            false => outcome,
        }
    }

    /// Records that this run failed, for commands that show the cluster's state later.
    fn note_failure<T>(&self, outcome: &Result<T>) {
        let Err(error) = outcome else { return };
        if self.journal.is_begun()
            && let Err(unwritten) = self.journal.note(FAILED, &(Timestamp::now(), format!("{error:#}")))
        {
            tracing::debug!("the failure was not recorded: {unwritten:#}");
        }
    }

    /// Writes the cluster's settings, after they were validated.
    pub(super) fn record(&self) -> Result<()> {
        let mut known = self.known.clone();
        if let Some(before) = Known::read(&self.dir)? {
            known.sizes = before.sizes;
        }
        Ok(known.write(&self.dir)?)
    }

    /// Records how long this deployment took. It is complete, whether this succeeds or not.
    pub(super) fn record_durations(&self) {
        let record = || {
            let Some(installed) = self.journal.done_at(INSTALLED) else {
                return Ok(());
            };
            let deployment = Deployment {
                cluster: self.config.id().to_string(),
                installed,
                backend: self.config.backend.name().to_owned(),
                rehearsal: self.config.is_rehearsal(),
                nodes: Kind::of(self.config).nodes,
                phases: durations::phases(&journal::read(&self.dir.journal())?),
            };
            durations::record(self.home, deployment)
        };
        if let Err(error) = record() {
            tracing::debug!("the durations of this deployment were not recorded: {error:#}");
        }
    }

    /// Records the size of a node's machine, which is about to be created.
    pub(super) fn record_size(&self, machine: &Planned) -> Result<()> {
        let mut known = Known::read(&self.dir)?.unwrap_or_else(|| self.known.clone());
        known.sizes.set(&machine.node, machine.size.clone());
        Ok(known.write(&self.dir)?)
    }

    pub(super) async fn refuse_switched_off(&self) -> Result<()> {
        if !self.is_installed() {
            return Ok(());
        }
        let machines = self.backend.list_machines(&self.config.id()).await?;
        Ok(complete::refuse_switched_off(&self.config.name, &machines)?)
    }

    /// The error of a failed wait: at once if a machine cannot recover, otherwise after the time limit.
    pub(super) async fn wait_failure(
        &self,
        watch: &Watch,
        planned: &[Planned],
        waited: Duration,
        limit: Duration,
    ) -> Option<OperationError> {
        let pass = planned.first()?.pass;
        let by_agents = self.backend.common_capabilities().addresses_from_agent;
        let missing = watch.missing(planned).into_iter();
        let missing = missing.map(|(name, seen)| (name, seen.reported(by_agents)));
        let (hopeless, slow): (Vec<_>, Vec<_>) = missing.partition(|(_, seen)| seen.is_final());
        if !hopeless.is_empty() {
            let machines = self.with_consoles(hopeless).await;
            return Some(self.subject().hopeless(pass, &machines));
        }
        if waited < limit {
            return None;
        }
        let missing = self.with_consoles(slow).await;
        Some(self.subject().late(pass, planned.len(), waited, &missing))
    }

    /// The virtual IPs that are known: those of the table, before it is written those that are set.
    pub(super) fn virtual_ips(&self) -> Result<Vec<IpAddr>> {
        Ok(match Parameters::read(&self.dir.parameters())? {
            Some(table) => vec![table.api_ip, table.ingress_ip],
            None => {
                let all = Vip::ALL.into_iter();
                all.filter_map(|vip| self.config.given.vip(vip)).collect()
            }
        })
    }

    /// The pause until the next query of all machines: short if it only has to confirm an address.
    pub(super) fn pause(&self, watch: &Watch, query: Duration) -> Duration {
        let interval = self.backend.common_capabilities().pause_after(query);
        match watch.is_confirming() {
            true => interval.min(CONFIRMATION),
            false => interval,
        }
    }

    pub(super) fn is_installed(&self) -> bool {
        self.journal.done_at(INSTALLED).is_some()
    }

    /// The cluster that an error of this run is about.
    pub(super) fn subject(&self) -> Subject<'_> {
        Subject {
            cluster: &self.config.name,
            is_installed: self.is_installed(),
        }
    }

    /// Adds the last lines of the consoles of the first few machines.
    pub(super) async fn with_consoles(&self, machines: Vec<(MachineName, Seen)>) -> Vec<Missing> {
        let mut explained = Vec::new();
        for (index, (name, seen)) in machines.into_iter().enumerate() {
            let console = match index {
                0..3 => {
                    let console = self.backend.console_tail(&self.config.id(), &name).await;
                    console.ok().flatten()
                }
                _ => None,
            };
            let console = console.map(|text| printable_console(&text));
            explained.push(Missing { name, seen, console });
        }
        explained
    }
}

/// The sizes of a cluster's machines: for a role or pool with existing machines their sizes, otherwise the planned
/// ones.
fn sizes(config: &ClusterConfig, mut sizes: Sizes, journal: &Journal) -> Sizes {
    let roles = std::iter::once(Role::Bootstrap).chain(config.node_roles());
    let roles = roles.map(|role| NodeName::node(role, 0));
    let pools = config.pools.iter().map(|pool| NodeName::of_pool(&pool.name, 0));
    for first in roles.chain(pools).map(|name| config.node(name)) {
        let like_it = first.name.as_str().trim_end_matches('0');
        let had = ["pass-two/create", "join"]
            .iter()
            .any(|steps| journal.was_begun(&format!("{steps}/{like_it}")));
        if !had {
            sizes.set(&first.name, first.size.clone());
        }
    }
    sizes
}

/// Virtual IPs that pass one's helpers leased and that are not reserved.
pub(super) fn leased_vips(
    config: &ClusterConfig,
    parameters: &Parameters,
    held: &BTreeMap<NodeName, ReservationState>,
) -> Vec<AddressAssignment> {
    Vip::ALL
        .into_iter()
        .filter(|vip| config.harvest == Harvest::Boot && machines::is_harvested(config, *vip))
        .map(|vip| parameters.vip(vip))
        .filter(|lease| held.get(&lease.name) == Some(&ReservationState::Unreserved))
        .collect()
}
