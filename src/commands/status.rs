//! `ocpdeploy status`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Error, Result};
use jiff::Timestamp;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::output::{draw, print, print_result};
use super::platform::connect_known;
use super::session::{Session, runtime};
use super::terminal::{self, Canvas};
use crate::backend::Machine;
use crate::backend::platforms::Platforms;
use crate::cli::{Format, Status};
use crate::failure::DIFFERENT;
use crate::local::reach;
use crate::openshift::api::ClusterApi;
use crate::openshift::wait::clock::{Certificates, Clock};
use crate::passes::{refuse_simulated, with_answers};
use crate::report;
use crate::report::deployed::Access;
use crate::report::state::{Power, State};
use crate::report::status::{Status as ClusterStatus, StatusList, changes, made_at};
use crate::state::inventory::{self, Cluster, InventoryError};
use crate::state::journal;

/// Time limit for querying a cluster's API: most of the status does not need it.
const PATIENCE: Duration = Duration::from_secs(3);

/// The interval of `--watch`.
const PAUSE: Duration = Duration::from_secs(2);

/// The number of consecutive failures after which `--watch` gives up.
const FAILURES: usize = 5;

pub fn run(session: &Session, command: &Status) -> Result<ExitCode> {
    let mut eyes = Eyes::new(session)?;
    if command.watch {
        return watch(&mut eyes, command);
    }
    let (seen, failed) = eyes.look(&wanted(session, command)?)?;
    let list = StatusList::new(seen);
    print_result(&command.output, &list, || list.text(terminal::width()))?;
    failed.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// The named cluster, or all clusters.
fn wanted(session: &Session, command: &Status) -> Result<Vec<Cluster>> {
    let Some(name) = &command.cluster else {
        return Ok(inventory::clusters(&session.home)?);
    };
    let name = session.cluster_name(Some(name))?;
    let found = inventory::find(&session.home, &name)?;
    let unknown = || InventoryError::Unknown { cluster: name };
    Ok(vec![found.ok_or_else(unknown)?])
}

/// Queries clusters; connects to each platform once.
pub(super) struct Eyes<'a> {
    session: &'a Session,
    runtime: Runtime,
    platforms: BTreeMap<String, Platforms>,
}

impl<'a> Eyes<'a> {
    pub(super) fn new(session: &'a Session) -> Result<Self> {
        Ok(Self {
            session,
            runtime: runtime()?,
            platforms: BTreeMap::new(),
        })
    }

    /// Queries each cluster. A platform that fails does not hide the clusters on others.
    fn look(&mut self, clusters: &[Cluster]) -> Result<(Vec<ClusterStatus>, Option<Error>)> {
        let mut seen = Vec::new();
        let mut failed = None;
        for cluster in clusters {
            match self.machines(cluster) {
                Ok(machines) => seen.push(self.status(cluster, &machines)?),
                Err(error) => {
                    failed = failed.or(Some(
                        error.context(format!("get the status of cluster {}", cluster.known.name)),
                    ))
                }
            }
        }
        Ok((seen, failed))
    }

    /// Queries a cluster's machines.
    pub(super) fn machines(&mut self, cluster: &Cluster) -> Result<Vec<Machine>> {
        let known = &cluster.known;
        let platforms = &mut self.platforms;
        let looked = self.runtime.block_on(async {
            if !platforms.contains_key(&known.name) {
                let platform = connect_known(known).await?;
                platforms.insert(known.name.clone(), platform);
            }
            match platforms.get(&known.name) {
                Some(platform) => {
                    let machines = platform.list_machines(&known.id()).await?;
                    Ok(match &cluster.parameters {
                        Some(table) => with_answers(platform, table, machines).await,
                        None => machines,
                    })
                }
                None => Ok(Vec::new()),
            }
        });
        if looked.is_err() {
            platforms.remove(&known.name);
        }
        looked
    }

    /// The status that these machines imply; queries a running cluster for its certificates.
    pub(super) fn status(&self, cluster: &Cluster, machines: &[Machine]) -> Result<ClusterStatus> {
        let dir = self.session.home.cluster(&cluster.known.name);
        // First the lock: a process that ends in between has written its whole journal.
        let holder = journal::holder(&dir);
        let entries = journal::read(&dir.journal())?;
        let mut status = ClusterStatus::of(cluster, &entries, holder, machines);
        if let Some(made_at) = made_at(&entries).filter(|_| !cluster.known.rehearsal) {
            // A cluster that a process works on is busy, and a stopped one does not answer.
            let certificates = match (&status.process, status.progress.power) {
                (_, Some(Power::Stopped)) => journal::output(&entries, Certificates::NOTE),
                (Some(_), _) => None,
                _ => {
                    let asked = async { timeout(PATIENCE, certificates(self.session, cluster)).await };
                    self.runtime.block_on(asked).ok().flatten()
                }
            };
            let certificates = certificates.unwrap_or_default();
            status.certificates = Some(Clock::at(Timestamp::now(), made_at, certificates));
        }
        if !cluster.known.rehearsal && journal::is_done(&entries, journal::INSTALLED) {
            status.access = Some(Access::new(&cluster.known.cluster_domain(), &dir));
        }
        Ok(status)
    }
}

/// Repeats the query until no process works on the clusters; Ctrl-C ends it at any time.
fn watch(eyes: &mut Eyes<'_>, command: &Status) -> Result<ExitCode> {
    let mut canvas = Canvas::default();
    let mut before = None::<Vec<ClusterStatus>>;
    let mut failures = 0;
    loop {
        let clusters = match wanted(eyes.session, command) {
            // The cluster was destroyed in the meantime.
            Err(_) if before.is_some() => return Ok(ExitCode::SUCCESS),
            found => found?,
        };
        let (seen, failed) = eyes.look(&clusters)?;
        failures = if failed.is_some() { failures + 1 } else { 0 };
        match failed {
            Some(error) if failures >= FAILURES || before.is_none() => return Err(error),
            Some(error) => tracing::warn!("{error:#}"),
            None => {
                show(&mut canvas, before.as_deref(), &seen, command)?;
                if seen.iter().all(|status| status.process.is_none()) {
                    let is_incomplete =
                        |status: &ClusterStatus| matches!(status.progress.state, State::Failed | State::Interrupted);
                    return Ok(match seen.iter().any(is_incomplete) {
                        true => ExitCode::from(DIFFERENT),
                        false => ExitCode::SUCCESS,
                    });
                }
                before = Some(seen);
            }
        }
        sleep(PAUSE);
    }
}

/// Redraws the status on a terminal; otherwise prints the changes.
fn show(canvas: &mut Canvas, before: Option<&[ClusterStatus]>, now: &[ClusterStatus], command: &Status) -> Result<()> {
    let list = StatusList::new(now.to_vec());
    match (command.output.format, terminal::size(), before) {
        (Format::Json | Format::Yaml, _, Some(before)) if changes(before, now).is_empty() => Ok(()),
        (Format::Json, ..) => print(&report::json_line(&list)?),
        (Format::Yaml, ..) => print(&format!("---\n{}", report::yaml(&list)?)),
        (Format::Text, Some(size), _) => draw(canvas, &list.text(Some(size.0)), size),
        (Format::Text, None, None) => print(&list.text(None)),
        (Format::Text, None, Some(before)) => {
            let time = Timestamp::now();
            let lines = changes(before, now).into_iter();
            print(&lines.map(|line| format!("{time:.0} {line}\n")).collect::<String>())
        }
    }
}

/// The certificates of a running cluster.
async fn certificates(session: &Session, cluster: &Cluster) -> Option<Certificates> {
    let table = cluster.parameters.as_ref()?;
    refuse_simulated(&cluster.known.name, &cluster.known.backend, table.api_ip).ok()?;
    let endpoint = reach::api_endpoint(table);
    let kubeconfig = session.home.cluster(&cluster.known.name).kubeconfig();
    let api = ClusterApi::open(&kubeconfig, endpoint).await.ok()?;
    Some(Certificates::query(&api).await)
}
