//! `ocpdeploy plan`.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Error, Result};
use tokio::time::timeout;

use super::output::print_result;
use super::platform::connect_for;
use super::saved_settings;
use super::session::{Session, warn};
use crate::backend::Capabilities;
use crate::cli;
use crate::cluster::ClusterConfig;
use crate::passes;
use crate::plan::Change;
use crate::plan::changes::{self, There};
use crate::plan::mismatch::mismatch;
use crate::plan::preview::{self, ExpectedPhase, ExpectedTime, Plan};
use crate::report;
use crate::state::durations::{self, Estimate, Kind, Phase};
use crate::state::inventory::{self, Known};
use crate::state::journal::{self, BOOTSTRAP_REMOVED, Entry, INSTALLED, is_done};
use crate::state::parameters::Parameters;

/// Limit for the comparison with the platform: a plan must not wait longer for it.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn run(session: &Session, command: &cli::Plan) -> Result<()> {
    let sources = saved_settings::sources(session, &command.source)?;
    // Manifests contain the credentials.
    let loaded = match command.write_manifests {
        Some(_) => session.load_settings(&sources)?,
        None => session.load_without_credentials(&sources)?,
    };
    warn(&sources, &loaded);
    for problem in &loaded.missing {
        let help = problem.help.iter().map(|help| format!("; {help}"));
        tracing::warn!("`deploy` would fail: {}{}", problem.message, help.collect::<String>());
    }
    let config = loaded.config;
    let parameters = Parameters::read(&session.home.cluster(&config.name).parameters())?;
    if let Some(what) = parameters.as_ref().and_then(|known| mismatch(&config, known)) {
        tracing::warn!("`deploy` would fail: the parameter file does not match the settings: {what}");
    }
    let taken: BTreeSet<_> = inventory::clusters(&session.home)?
        .iter()
        .filter_map(|cluster| cluster.parameters.as_ref())
        .filter(|parameters| parameters.cluster_domain() != config.cluster_domain())
        .flat_map(|parameters| parameters.leases())
        .map(|lease| lease.mac)
        .collect();
    #[cfg(not(feature = "kubevirt"))]
    if command.write_manifests.is_some() {
        crate::backend::connect::require("kubevirt")?;
    }
    #[cfg(feature = "kubevirt")]
    if let Some(folder) = &command.write_manifests {
        let macs = crate::plan::machines::macs(&config, &taken);
        let written = super::manifests::write(session, &config, parameters.as_ref(), &macs, folder)?;
        tracing::info!(
            "wrote {} to {}",
            crate::printable::count(written, "manifest"),
            folder.display()
        );
    }
    let mut plan = preview::plan(&config, parameters.as_ref(), &taken);
    let journal = journal::read(&session.home.cluster(&config.name).journal())?;
    plan.expected = expected(session, &config, &journal, &plan);
    if !command.offline {
        match compare(session, &config, &journal, &plan, parameters.as_ref()) {
            Ok(changes) => plan.changes = Some(changes),
            Err(error) => tracing::warn!("not compared with the platform: {error:#}"),
        }
    }
    print_result(&command.output, &plan, || report::plan::text(&plan))
}

/// Compares with the cluster's objects on its platforms.
fn compare(
    session: &Session,
    config: &ClusterConfig,
    journal: &[Entry],
    plan: &Plan,
    parameters: Option<&Parameters>,
) -> Result<Vec<Change>> {
    // Querying a simulated platform would create its file.
    let is_simulated = Capabilities::of(&config.backend).simulated;
    if is_simulated && config.backend.files().iter().any(|(_, path)| !path.exists()) {
        return Ok(changes::changes(plan, &[], &There::default()));
    }
    let known = Known::read(&session.home.cluster(&config.name))?;
    if let Some(known) = &known {
        passes::refuse_other_cluster(config, known)?;
    }
    session.finish_or_stop(async {
        let asked = async {
            let backend = connect_for(config).await?;
            for other in passes::other_deployments(&backend, config).await? {
                tracing::warn!("`deploy` would fail: {}", other.text);
            }
            let machines = backend.list_machines(&config.id()).await?;
            let reserved = backend.list_reservations(&config.id()).await?.into_iter();
            let reservations: Vec<_> = reserved.map(|reserved| reserved.assignment).collect();
            Ok::<_, Error>((machines, reservations))
        };
        let limit = timeout(PATIENCE, asked).await;
        let (machines, reservations) = limit.context("the platform does not answer within 20 s")??;
        let there = There {
            machines: &machines,
            reservations: &reservations,
            reserves: Capabilities::of(&config.backend).reserves_addresses,
            sizes: known.as_ref().map(|known| &known.sizes),
            bootstrapped: is_done(journal, BOOTSTRAP_REMOVED),
            installed: is_done(journal, INSTALLED),
            env_file: config.env_file.as_deref(),
            nodes: parameters
                .iter()
                .flat_map(|table| &table.nodes)
                .map(|node| &node.name)
                .collect(),
        };
        let table = parameters.map(Parameters::leases).unwrap_or_default();
        Ok(changes::changes(plan, &table, &there))
    })
}

/// How long the deployment takes, unless the cluster is installed.
fn expected(session: &Session, config: &ClusterConfig, journal: &[Entry], plan: &Plan) -> Option<ExpectedTime> {
    if is_done(journal, INSTALLED) {
        return None;
    }
    let estimate = Estimate::of(&durations::read(&session.home), Kind::of(config));
    let with_pass_one = !plan.pass_one.is_empty();
    // A phase that takes less than a second is not shown as 0.
    let seconds = |time: Duration| (time + Duration::from_millis(500)).as_secs().max(1);
    let phase = |phase: Phase| {
        Some(ExpectedPhase {
            phase: phase.to_string(),
            seconds: estimate.seconds(phase)?,
            best_seconds: seconds(estimate.best(phase)?),
        })
    };
    let due = |phase: &Phase| with_pass_one || *phase != Phase::PassOne;
    Some(ExpectedTime {
        seconds: seconds(estimate.total(with_pass_one)?),
        deployments: estimate.deployments,
        source: estimate.source()?,
        phases: Phase::ALL.into_iter().filter(due).filter_map(phase).collect(),
    })
}
