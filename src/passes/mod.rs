//! The story: two passes, from a checked configuration to a cluster, in straight lines.
//!
//! Every line that changes something is a journal step or bears being done again, so that running the
//! same command after any interruption goes on where it stopped.

mod check;
mod clock;
mod complete;
mod destroy;
pub mod diagnose;
mod effective_settings;
mod error;
mod fragments;
pub mod image_sources;
mod images;
mod inspect;
mod join;
mod launch;
mod networks;
mod one;
mod ours;
mod partial_failure;
mod power;
mod pretend;
mod replace;
mod scale;
mod two;
mod verify;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use tracing::info;

use self::destroy::{delete_machines, remove_file};
use self::two::NodeConfig;
use crate::PROGRESS;
use crate::backend::{Backend, Machine, NetworkFacts, Power, ReservationState};
use crate::cluster::{
    AddressAssignment, ClusterConfig, Harvest, MachineName, Mcs, NodeName, Pass, Role, Sizes, Vip, WorkersWhen,
};
use crate::node::services;
use crate::openshift::installer::{Installer, NodeReport, WaitContext};
use crate::plan::harvest::{Seen, Watch};
use crate::plan::machines::{self, MacTable, Planned};
use crate::printable::printable_console;
use crate::state::home::{ClusterDir, Home};
use crate::state::inventory::Known;
use crate::state::journal::{self, INSTALLED, Journal, RUN};
use crate::state::parameters::{NodeAddress, Parameters};

pub use self::check::CheckResult;
pub use self::destroy::destroy;
pub use self::effective_settings::{CarrierLimit, EffectiveSettings};
pub use self::error::{Missing, PassError, Subject};
pub use self::inspect::inspect;
pub use self::partial_failure::{PartialFailure, with_leftovers};
pub use self::power::{StopOptions, SwitchedOff, start, stop};
pub use self::pretend::{refuse_pretend, refuse_pretend_table};
pub use self::replace::replace;
pub use self::scale::{ScaleOptions, Scaled, scale};
pub use self::verify::{Difference, Verified, verify};

/// How a deployment is to be done.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeployOptions {
    /// Forget the parameter file and harvest anew.
    pub harvest_again: bool,
}

/// A deployment that ended well.
#[derive(Clone, Debug, Serialize)]
pub struct Deployed {
    pub parameters: Parameters,
    /// Pass one was not needed: the parameter file was there.
    pub skipped_pass_one: bool,
    /// One for each node, bootstrap first.
    pub rows: Vec<NodeRow>,
}

/// What was planned for a node in pass one and found in pass two.
#[derive(Clone, Debug, Serialize)]
pub struct NodeRow {
    pub planned: NodeAddress,
    pub held: ReservationState,
    /// sha512 of the Ignition config written for the node, hex.
    pub ignition_sha512: String,
    pub ignition_bytes: usize,
    pub report: NodeReport,
}

/// Deploys a cluster, or goes on with a deployment that was interrupted.
pub async fn deploy(
    backend: &dyn Backend,
    config: &ClusterConfig,
    home: &Home,
    options: DeployOptions,
) -> Result<Deployed> {
    // All that is decidable comes before the first download, which comes before the first machine.
    let (facts, seen) = check::check(backend, config, home, options).await?;
    let choice = check::check_installer(backend, config, home, &facts, &seen).await?;
    let version = choice.version().to_owned();
    let installer = choice.obtain(&config.downloads).await?;
    let config = &check::with_mcs(backend, config, &facts)?;
    let run = Run::begin(backend, config, home, &facts).await?;
    let (pinned, of, dir) = (installer.clone(), config.clone(), run.dir.clone());
    run.journal.at_first_line(move || Ok(pinned.pin(&of, &dir)?));
    run.journal.note_at_first_line(
        EffectiveSettings::STEP,
        &EffectiveSettings::of(backend, config, &version),
    )?;
    let deployed = run.through(&installer, options).await;
    run.with_leftovers("deploy", deployed).await
}

/// Does pass one alone and keeps its table.
pub async fn harvest(
    backend: &dyn Backend,
    config: &ClusterConfig,
    home: &Home,
    options: DeployOptions,
) -> Result<Parameters> {
    let (facts, _) = check::check(backend, config, home, options).await?;
    let run = Run::begin(backend, config, home, &facts).await?;
    let pass_one = async {
        match run.starts_over(options).await? {
            true => run.start_over().await?,
            false => run.judge_pass_one().await?,
        }
        Ok(run.pass_one().await?.0)
    };
    run.with_leftovers("harvest", pass_one.await).await
}

/// One run over one cluster: what every step needs.
struct Run<'a> {
    backend: &'a dyn Backend,
    config: &'a ClusterConfig,
    home: &'a Home,
    facts: &'a NetworkFacts,
    dir: ClusterDir,
    journal: Journal,
    /// As `cluster.json` says it from the journal's first line on.
    known: Known,
}

impl<'a> Run<'a> {
    /// Takes the cluster's lock. What is recorded of the cluster is written with the journal's first line of this run.
    async fn begin(
        backend: &'a dyn Backend,
        config: &'a ClusterConfig,
        home: &'a Home,
        facts: &'a NetworkFacts,
    ) -> Result<Self> {
        let dir = home.cluster(&config.name);
        let journal = Journal::open(&dir, &config.name)?;
        let mut known = Known::of(config);
        // Looked at again, now that nobody else can change it.
        if let Some(before) = Known::read(&dir)? {
            // Of the same place other things may have changed, e.g. a CA file or the flavor of machines to be made.
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
        journal.note_at_first_line(RUN, &std::process::id())?;
        Ok(Self {
            backend,
            config,
            home,
            facts,
            dir,
            journal,
            known,
        })
    }

    /// As `with_leftovers`, of what was begun: a refusal before that stays as it is.
    async fn with_leftovers<T>(&self, operation: &'static str, outcome: Result<T>) -> Result<T> {
        match self.journal.is_begun() {
            true => with_leftovers(self.backend, &self.config.id(), operation, self.is_installed(), outcome).await,
            false => outcome,
        }
    }

    /// Both passes.
    async fn through(&self, installer: &Installer, options: DeployOptions) -> Result<Deployed> {
        let starts_over = self.starts_over(options).await?;
        let release = match starts_over {
            true => {
                let release = self.ask_release(installer).await?;
                self.start_over().await?;
                release
            }
            false => {
                self.refuse_scaled()?;
                self.refuse_switched_off().await?;
                self.judge(installer).await?;
                self.ask_release(installer).await?
            }
        };
        let skipped_pass_one = self.dir.parameters().exists();
        self.keep_release(installer, &release).await?;

        // The node image is usually the longest upload; it does not need to wait for the addresses.
        let ((parameters, held), images) = futures::try_join!(self.pass_one(), self.node_images(installer))?;
        let services = services::Input {
            config: self.config,
            parameters: &parameters,
            release: &release,
            leased: &leased_vips(self.config, &parameters, &held),
        };
        let assets = self.assets(installer, &services).await?;
        // Nodes that ask the machine config server themselves may be made at once; for the others it is asked when it runs.
        let embeds = self.config.mcs == Mcs::Embed;
        let first: &[Role] = match self.config.workers_when {
            _ if embeds => &[Role::Bootstrap],
            WorkersWhen::Now => &[Role::Bootstrap, Role::Master, Role::Worker],
            WorkersWhen::Ready => &[Role::Bootstrap, Role::Master],
        };
        let mut configs = self.node_configs(&services, &assets, first, &images).await?;
        self.pass_two(&parameters, &configs, &images).await?;
        if embeds {
            configs.extend(self.node_configs(&services, &assets, &[Role::Master], &images).await?);
            self.pass_two(&parameters, &configs, &images).await?;
        }
        self.compare_addresses(&parameters, &held, &configs, &images).await?;

        let wait = WaitContext {
            config: self.config,
            parameters: &parameters,
            dir: &self.dir,
            guests_answer: self.backend.common_capabilities().guests_answer,
        };
        let mut reports = self.bootstrap_complete(installer, &wait).await?;
        self.etcd_without_bootstrap(installer, &wait).await?;
        self.remove_bootstrap(&parameters).await?;
        if !first.contains(&Role::Worker) && self.config.workers > 0 {
            configs.extend(self.node_configs(&services, &assets, &[Role::Worker], &images).await?);
            self.pass_two(&parameters, &configs, &images).await?;
            self.compare_addresses(&parameters, &held, &configs, &images).await?;
        }
        reports.extend(self.install_complete(installer, &wait).await?);
        self.dir
            .remove_old_installer()
            .context("remove the installer's files of before")?;
        self.dir
            .sweep()
            .context("remove unfinished files from the cluster's folder")?;
        self.record()?;
        Ok(Deployed {
            rows: rows(&parameters, &held, &configs, reports),
            parameters,
            skipped_pass_one,
        })
    }

    /// Writes what the settings say of the cluster, now that all of it is known to be so.
    fn record(&self) -> Result<()> {
        let mut known = self.known.clone();
        if let Some(Known { sizes: Some(sizes), .. }) = Known::read(&self.dir)? {
            known.sizes = Some(sizes);
        }
        Ok(known.write(&self.dir)?)
    }

    /// Records how large the machines of a role are from now on: one of them is about to be made.
    fn record_size(&self, role: Role) -> Result<()> {
        let mut known = Known::read(&self.dir)?.unwrap_or_else(|| self.known.clone());
        let mut sizes = known.sizes.take().unwrap_or_else(|| self.config.sizes());
        if let Some(size) = sizes.of(role) {
            size.clone_from(self.config.size_of(role));
        }
        known.sizes = Some(sizes);
        Ok(known.write(&self.dir)?)
    }

    /// The steps of a deployment know nothing of nodes that came or went since.
    fn refuse_scaled(&self) -> Result<(), PassError> {
        match self.journal.done_at("scaled") {
            Some(_) => Err(PassError::Scaled {
                cluster: self.config.name.clone(),
            }),
            None => Ok(()),
        }
    }

    /// A cluster at rest is started by `start`, in order, and not by whoever waits for its addresses.
    async fn refuse_switched_off(&self) -> Result<()> {
        if !self.is_installed() {
            return Ok(());
        }
        let machines = self.backend.list_machines(&self.config.id()).await?;
        let off = |machine: &Machine| machine.pass == Pass::Two && machine.power == Power::Off;
        let off: Vec<_> = machines.into_iter().filter(off).map(|machine| machine.name).collect();
        match off.is_empty() {
            true => Ok(()),
            false => Err(PassError::SwitchedOff {
                cluster: self.config.name.clone(),
                machines: off,
            }
            .into()),
        }
    }

    /// Refuses what an earlier run did with other settings, before anything is written. Steps that come later are judged
    /// when they are reached: until then nothing is written where the steps before them were done.
    async fn judge(&self, installer: &Installer) -> Result<()> {
        let version = installer.version().await?;
        self.journal.judge("release", &self.release_input(&version))?;
        self.judge_node_images(installer).await?;
        self.judge_pass_one().await
    }

    async fn judge_pass_one(&self) -> Result<()> {
        if let Some(table) = Parameters::read(&self.dir.parameters())? {
            return self.judge_held(&table);
        }
        self.judge_macs()?;
        let macs: Option<MacTable> = self.journal.output(one::MACS)?;
        match macs.filter(|_| self.config.harvest == Harvest::Boot) {
            Some(macs) => self.judge_boot("pass-one", &macs).await,
            None => Ok(()),
        }
    }

    /// Whether pass one is to be forgotten. Nothing of pass two may exist.
    async fn starts_over(&self, options: DeployOptions) -> Result<bool> {
        if !options.harvest_again || !self.dir.parameters().exists() {
            return Ok(false);
        }
        let machines = self.backend.list_machines(&self.config.id()).await?;
        if machines.iter().any(|machine| machine.pass == Pass::Two) {
            let cluster = self.config.name.clone();
            return Err(PassError::Running { cluster }.into());
        }
        Ok(true)
    }

    /// Forgets pass one, so that it is done anew; first comes what may still refuse.
    ///
    /// The parameter file goes last: while it is there, a run that was cut comes here again.
    async fn start_over(&self) -> Result<()> {
        let id = self.config.id();
        if self.config.harvest == Harvest::Boot {
            self.helper_images_again().await?;
        }
        let machines = self.backend.list_machines(&id).await?;
        self.journal.forget("")?;
        delete_machines(self.backend, &id, &machines).await?;
        self.backend.delete_remaining(&id).await?;
        remove_file(&self.dir.parameters())
    }

    /// Pass one: the table of addresses, held by the platform where it can, and no machine left.
    async fn pass_one(&self) -> Result<(Parameters, BTreeMap<NodeName, ReservationState>)> {
        let parameters = match Parameters::read(&self.dir.parameters())? {
            Some(parameters) => {
                info!(target: PROGRESS, step = "pass one", "skipped, the addresses are known");
                parameters
            }
            None => {
                let macs = self.macs().await?;
                let leases = async {
                    Ok(match self.config.harvest {
                        Harvest::Boot => self.boot_and_look("pass-one", &macs).await?,
                        Harvest::Reserve => self.reserve("pass-one", &macs).await?,
                        Harvest::Static => machines::static_leases(self.config, &macs),
                    })
                };
                let (leases, heard) = futures::try_join!(leases, self.listen_for_routers())?;
                let endpoint = self.balanced(Vip::Api).await?.and_then(|balanced| balanced.endpoint);
                self.write_parameters(leases, &heard, endpoint)?
            }
        };
        let held = self.hold(&parameters).await?;
        self.sweep_pass_one().await?;
        Ok((parameters, held))
    }

    /// The end of a wait in vain: at once where a machine cannot recover, else when the time is over.
    async fn wait_failure(
        &self,
        watch: &Watch,
        planned: &[Planned],
        waited: Duration,
        limit: Duration,
    ) -> Option<PassError> {
        let pass = planned.first()?.pass;
        let mut missing = watch.missing(planned);
        if self.backend.common_capabilities().agent_reports {
            let unheard = missing.iter_mut().filter(|(_, seen)| *seen == Seen::NoLease);
            unheard.for_each(|(_, seen)| *seen = Seen::Silent);
        }
        let (hopeless, slow): (Vec<_>, Vec<_>) = missing.into_iter().partition(|(_, seen)| seen.is_final());
        if !hopeless.is_empty() {
            let machines = self.with_consoles(hopeless).await;
            let of = self.subject();
            return Some(PassError::Hopeless { of, pass, machines });
        }
        if waited < limit {
            return None;
        }
        let (total, missing) = (planned.len(), self.with_consoles(slow).await);
        Some(PassError::Addresses {
            of: self.subject(),
            pass,
            total,
            waited,
            missing,
        })
    }

    fn is_installed(&self) -> bool {
        self.journal.done_at(INSTALLED).is_some()
    }

    /// What an error of this run is about.
    fn subject(&self) -> Subject {
        Subject {
            cluster: self.config.name.clone(),
            installed: self.is_installed(),
        }
    }

    /// Adds the last lines of the consoles of the first few machines.
    async fn with_consoles(&self, machines: Vec<(MachineName, Seen)>) -> Vec<Missing> {
        let mut explained = Vec::new();
        for (index, (name, seen)) in machines.into_iter().enumerate() {
            let console = match index {
                0..3 => match self.backend.serial_console(name.role()) {
                    Some(console) => console.tail(&self.config.id(), &name).await.ok().flatten(),
                    None => None,
                },
                _ => None,
            };
            let console = console.map(|text| printable_console(&text));
            explained.push(Missing { name, seen, console });
        }
        explained
    }
}

/// How large a cluster's machines are: of a role that had machines before as they were made, else as planned now.
fn sizes(config: &ClusterConfig, before: Option<Sizes>, journal: &Journal) -> Option<Sizes> {
    let mut sizes = before?;
    for role in [Role::Bootstrap, Role::Master, Role::Worker] {
        let had = ["pass-two/create", "join"]
            .iter()
            .any(|steps| journal.was_begun(&format!("{steps}/{role}")));
        if let (false, Some(size)) = (had, sizes.of(role)) {
            size.clone_from(config.size_of(role));
        }
    }
    Some(sizes)
}

/// Virtual IPs that pass one's helpers leased and that nobody keeps.
fn leased_vips(
    config: &ClusterConfig,
    parameters: &Parameters,
    held: &BTreeMap<NodeName, ReservationState>,
) -> Vec<AddressAssignment> {
    Vip::ALL
        .into_iter()
        .filter(|vip| config.harvest == Harvest::Boot && machines::given_vip(config, *vip).is_none())
        .map(|vip| parameters.vip(vip))
        .filter(|lease| held.get(&lease.name) == Some(&ReservationState::Unreserved))
        .collect()
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
