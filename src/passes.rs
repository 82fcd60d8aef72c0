//! The story: two passes, from a checked configuration to a cluster, in straight lines.
//!
//! Every line that changes something is a journal step or bears being done again, so that running the
//! same command after any interruption goes on where it stopped.

mod check;
mod chosen;
mod complete;
mod destroy;
mod error;
mod fragments;
mod half_way;
mod images;
mod inspect;
mod join;
mod launch;
mod one;
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
use crate::backend::{Backend, Held, NetworkFacts};
use crate::cluster::{ClusterConfig, Harvest, Lease, MachineName, Mcs, NodeName, Pass, Role, Vip, WorkersWhen};
use crate::harvest::{Seen, Watch};
use crate::home::{ClusterDir, Home};
use crate::installer::{Installer, NodeReport, WaitContext};
use crate::inventory::Known;
use crate::journal::{INSTALLED, Journal, RUN};
use crate::machines::{self, Planned};
use crate::parameters::{NodeAddress, Parameters};
use crate::printable::printable_console;
use crate::services;

pub use self::check::{Looked, check};
pub use self::chosen::{Chosen, Room};
pub use self::destroy::destroy;
pub use self::error::{Missing, PassError, Subject};
pub use self::half_way::{HalfWay, told};
pub use self::inspect::inspect;
pub use self::power::{StopOptions, start, stop};
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
    pub held: Held,
    /// sha512 of the Ignition config written for the node, hex.
    pub ignition_sha512: String,
    pub ignition_bytes: usize,
    pub report: NodeReport,
}

/// Deploys a cluster, or goes on with a deployment that was interrupted.
pub async fn deploy<B: Backend>(
    backend: &B,
    config: &ClusterConfig,
    home: &Home,
    options: DeployOptions,
) -> Result<Deployed> {
    let installer = Installer::obtain(config, &home.cluster(&config.name)).await?;
    let version = installer.version().await?;
    installer.check(config, &version)?;
    for (role, image) in [(Role::Master, &config.image), (Role::Worker, &config.worker_image)] {
        crate::images::check(image, &version, backend.limits_for(role).image_artifact)?;
    }
    let facts = check(backend, config, home, options).await?;
    let config = &check::settled(config, &facts, check::carrier(backend));
    let run = Run::begin(backend, config, home, &facts)?;
    installer.pin(config, &run.dir)?;
    run.journal.note(Chosen::STEP, &Chosen::of(backend, config, &version))?;
    let deployed = run.through(&installer, options).await;
    told(backend, &config.id(), "deploy", run.is_installed(), deployed).await
}

/// Does pass one alone and keeps its table.
pub async fn harvest<B: Backend>(
    backend: &B,
    config: &ClusterConfig,
    home: &Home,
    options: DeployOptions,
) -> Result<Parameters> {
    let facts = check(backend, config, home, options).await?;
    let run = Run::begin(backend, config, home, &facts)?;
    let pass_one = async {
        run.begin_again(options).await?;
        Ok(run.pass_one().await?.0)
    };
    told(backend, &config.id(), "harvest", false, pass_one.await).await
}

/// One run over one cluster: what every step needs.
struct Run<'a, B> {
    backend: &'a B,
    config: &'a ClusterConfig,
    home: &'a Home,
    facts: &'a NetworkFacts,
    dir: ClusterDir,
    journal: Journal,
}

impl<'a, B: Backend> Run<'a, B> {
    /// Takes the cluster's lock; from here on the cluster is known on this computer.
    fn begin(backend: &'a B, config: &'a ClusterConfig, home: &'a Home, facts: &'a NetworkFacts) -> Result<Self> {
        let dir = home.cluster(&config.name);
        let journal = Journal::open(&dir, &config.name)?;
        journal.note(RUN, &std::process::id())?;
        Known::of(config).write(&dir)?;
        Ok(Self {
            backend,
            config,
            home,
            facts,
            dir,
            journal,
        })
    }

    /// Both passes.
    async fn through(&self, installer: &Installer, options: DeployOptions) -> Result<Deployed> {
        self.begin_again(options).await?;
        self.refuse_scaled()?;
        let skipped_pass_one = self.dir.parameters().exists();
        let release = self.release(installer).await?;

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
        let mut configs = self.node_configs(&services, &assets, first).await?;
        self.pass_two(&parameters, &configs, &images).await?;
        if embeds {
            configs.extend(self.node_configs(&services, &assets, &[Role::Master]).await?);
            self.pass_two(&parameters, &configs, &images).await?;
        }
        self.compare_addresses(&parameters, &held, &configs, &images).await?;

        let wait = WaitContext {
            config: self.config,
            parameters: &parameters,
            dir: &self.dir,
            guests_answer: self.backend.limits().guests_answer,
        };
        let mut reports = self.bootstrap_complete(installer, &wait).await?;
        self.etcd_without_bootstrap(installer, &wait).await?;
        self.remove_bootstrap(&parameters).await?;
        if !first.contains(&Role::Worker) && self.config.workers > 0 {
            configs.extend(self.node_configs(&services, &assets, &[Role::Worker]).await?);
            self.pass_two(&parameters, &configs, &images).await?;
            self.compare_addresses(&parameters, &held, &configs, &images).await?;
        }
        reports.extend(self.install_complete(installer, &wait).await?);
        self.dir
            .remove_old_installer()
            .context("remove the installer's files of before")?;
        Ok(Deployed {
            rows: rows(&parameters, &held, &configs, reports),
            parameters,
            skipped_pass_one,
        })
    }

    /// Forgets pass one where that is wished.
    async fn begin_again(&self, options: DeployOptions) -> Result<()> {
        match options.harvest_again && self.dir.parameters().exists() {
            true => self.start_over().await,
            false => Ok(()),
        }
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

    /// Forgets pass one, so that it is done anew. Nothing of pass two may exist.
    ///
    /// The parameter file goes last: while it is there, a run that was cut comes here again.
    async fn start_over(&self) -> Result<()> {
        let id = self.config.id();
        let machines = self.backend.list_machines(&id).await?;
        if machines.iter().any(|machine| machine.pass == Pass::Two) {
            let cluster = self.config.name.clone();
            return Err(PassError::Running { cluster }.into());
        }
        self.journal.forget("")?;
        delete_machines(self.backend, &id, &machines).await?;
        self.backend.release_addresses(&id).await?;
        remove_file(&self.dir.parameters())
    }

    /// Pass one: the table of addresses, held by the platform where it can, and no machine left.
    async fn pass_one(&self) -> Result<(Parameters, BTreeMap<NodeName, Held>)> {
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
                let door = self.balanced(Vip::Api).await?.and_then(|balanced| balanced.door);
                self.write_parameters(leases, &heard, door)?
            }
        };
        let held = self.hold(&parameters).await?;
        self.sweep_pass_one().await?;
        Ok((parameters, held))
    }

    /// The end of a wait in vain: at once where a machine cannot recover, else when the time is over.
    async fn in_vain(
        &self,
        watch: &Watch,
        planned: &[Planned],
        waited: Duration,
        limit: Duration,
    ) -> Option<PassError> {
        let pass = planned.first()?.pass;
        let mut missing = watch.missing(planned);
        if self.backend.limits().agent_reports {
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
                0..3 => self.backend.console_tail(&self.config.id(), &name).await.ok().flatten(),
                _ => None,
            };
            let console = console.map(|text| printable_console(&text));
            explained.push(Missing { name, seen, console });
        }
        explained
    }
}

/// Virtual IPs that pass one's helpers leased and that nobody keeps.
fn leased_vips(config: &ClusterConfig, parameters: &Parameters, held: &BTreeMap<NodeName, Held>) -> Vec<Lease> {
    Vip::ALL
        .into_iter()
        .filter(|vip| config.harvest == Harvest::Boot && machines::given_vip(config, *vip).is_none())
        .map(|vip| parameters.vip(vip))
        .filter(|lease| held.get(&lease.name) == Some(&Held::ByLuck))
        .collect()
}

fn rows(
    parameters: &Parameters,
    held: &BTreeMap<NodeName, Held>,
    configs: &BTreeMap<NodeName, NodeConfig>,
    reports: Vec<NodeReport>,
) -> Vec<NodeRow> {
    let row = |planned: &NodeAddress| {
        let config = configs.get(&planned.name)?;
        Some(NodeRow {
            planned: planned.clone(),
            held: held.get(&planned.name).copied().unwrap_or(Held::ByLuck),
            ignition_sha512: config.sha512.clone(),
            ignition_bytes: config.bytes,
            report: reports.iter().find(|report| report.node == planned.name)?.clone(),
        })
    };
    parameters.nodes.iter().filter_map(row).collect()
}
