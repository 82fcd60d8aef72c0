//! The settings of a deployed cluster, from the sources that are recorded in its directory.
//!
//! Only the sources are recorded, so later changes to the env file take effect. Secrets are left out: flags cannot
//! contain any, and of a variable that is one, only the name is stored.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::session::{Session, this_command_with};
use crate::cli::{Again, Source};
use crate::cluster::{ClusterConfig, Role};
use crate::error::{ErrorKind, OperationError};
use crate::settings::{self, Loaded, Sources};
use crate::state::home::{Home, write_private};

/// Version of the file's layout.
const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    v: u32,
    /// Absolute path; only a rehearsal may have none.
    env: Option<PathBuf>,
    current_dir: PathBuf,
    flags: BTreeMap<String, String>,
    /// The settings in the environment, by their variables' names; `***` in place of a secret.
    environment: BTreeMap<String, String>,
    rehearse: bool,
    /// The number of workers at the installation.
    workers: usize,
}

/// Records the sources of a deployment's settings.
pub(super) fn keep(session: &Session, source: &Source, config: &ClusterConfig) -> Result<()> {
    let Sources {
        env_file,
        environment,
        flags,
        current_dir,
        rehearse,
        ..
    } = session.sources(source)?;
    let storable = |(variable, value): (String, String)| {
        let name = variable.strip_prefix(settings::ENVIRONMENT)?.to_ascii_lowercase();
        settings::variables::find(&name)?;
        let value = settings::storable(&name, &value).to_owned();
        Some((variable, value))
    };
    let kept = Kept {
        v: VERSION,
        env: env_file.map(|(path, _)| current_dir.join(path)),
        environment: environment.into_iter().filter_map(storable).collect(),
        flags,
        current_dir,
        rehearse,
        workers: config.all_workers(),
    };
    let path = session.home.cluster(&config.name).settings();
    let text = serde_json::to_vec_pretty(&kept)?;
    match fs_err::read(&path) {
        Ok(before) if before == text => Ok(()),
        _ => write_private(&path, &text).context("save the origin of the settings"),
    }
}

/// The env file of a cluster's deployment.
pub(super) fn env_file(home: &Home, cluster: &str) -> Result<Option<PathBuf>> {
    Ok(read(home, cluster)?.and_then(|kept| kept.env))
}

/// The settings of a deployed cluster.
pub(super) struct Recalled {
    pub config: ClusterConfig,
    /// The number of workers at the installation.
    pub installed_workers: usize,
}

/// The new numbers of workers; those not given do not change.
#[derive(Debug, Default)]
pub(super) struct Counts<'a> {
    pub workers: Option<usize>,
    pub pools: &'a [(String, usize)],
}

/// Reads a cluster's settings from the sources of its deployment or from another env file, with new numbers of workers.
pub(super) fn load(session: &Session, cluster: &str, again: &Again, counts: &Counts<'_>) -> Result<Recalled> {
    let (recalled, warnings) = recall(session, cluster, again, counts)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(recalled)
}

/// Reads a cluster's settings from the sources of its deployment, without warnings.
pub(super) fn load_quietly(session: &Session, cluster: &str) -> Result<Recalled> {
    Ok(recall(session, cluster, &Again::default(), &Counts::default())?.0)
}

fn recall(session: &Session, cluster: &str, again: &Again, counts: &Counts<'_>) -> Result<(Recalled, Vec<String>)> {
    let known = session.known(cluster)?;
    let kept = read(&session.home, cluster)?;
    let used = kept.as_ref().filter(|_| again.env.is_none());
    let source = Source {
        env: again.env.clone().or(used.and_then(|kept| kept.env.clone())),
        rehearse: known.rehearsal,
        ..Source::default()
    };
    let mut sources = match used {
        Some(Kept { env: None, .. }) => session.flags(&source)?,
        _ => session.sources_with_hint(&source, &this_command_with("--env ./env.sh"))?,
    };
    if let Some(kept) = used {
        sources.current_dir.clone_from(&kept.current_dir);
        sources.flags.clone_from(&kept.flags);
        let (mut environment, left_out): (BTreeMap<_, _>, BTreeMap<_, _>) = kept
            .environment
            .clone()
            .into_iter()
            .partition(|(_, value)| !settings::is_left_out(value));
        environment.extend(sources.environment);
        sources.environment = environment;
        if !left_out.is_empty() {
            // By now, the env file or another variable may have the secret.
            let given = settings::given(&sources)?;
            let is_missing = |(variable, _): &(String, String)| {
                let name = variable.trim_start_matches(settings::ENVIRONMENT).to_ascii_lowercase();
                settings::variables::find(&name).is_some_and(|setting| !given.contains(setting.name))
            };
            sources.environment.extend(left_out.into_iter().filter(is_missing));
        }
    }
    // The numbers of workers are those of the address table, because the env file may be outdated.
    let table = session.harvested(Some(cluster))?.1;
    let in_table = |pool: Option<&str>| {
        let workers = table.of_role(Role::Worker);
        workers.filter(|node| node.name.pool() == pool).count()
    };
    let workers = counts.workers.unwrap_or_else(|| in_table(None));
    sources.flags.insert("workers".to_owned(), workers.to_string());
    let pools = settings::load_pools(&sources)?;
    if let Some((name, _)) = counts
        .pools
        .iter()
        .find(|(name, _)| pools.iter().all(|(pool, _)| pool != name))
    {
        let text = format!("the settings of cluster {cluster} have no pool {name}");
        let hint = format!("add it to `pools` in the env file, such as `pools={name}:1`");
        return Err(OperationError::new(ErrorKind::Settings, text).hint(hint).into());
    }
    let nodes_of = |name: &str| {
        let wanted = counts.pools.iter().rfind(|(pool, _)| pool == name);
        wanted.map_or_else(|| in_table(Some(name)), |(_, nodes)| *nodes)
    };
    let pools = pools.iter().map(|(name, _)| (name.as_str(), nodes_of(name)));
    let pools = settings::pools_text(pools);
    if !pools.is_empty() {
        sources.flags.insert("pools".to_owned(), pools);
    }
    let Loaded { config, warnings, .. } = session.load_settings(&sources)?;
    if config.id() != known.id() {
        let text = format!("the settings describe cluster {}, not {}", config.id(), known.id());
        let hint = "set its env file with --env";
        return Err(OperationError::new(ErrorKind::Settings, text).hint(hint).into());
    }
    let recalled = Recalled {
        config,
        installed_workers: kept.map_or_else(|| table.of_role(Role::Worker).count(), |kept| kept.workers),
    };
    Ok((recalled, warnings))
}

fn read(home: &Home, cluster: &str) -> Result<Option<Kept>> {
    #[derive(Deserialize)]
    struct Head {
        v: u32,
    }
    let path = home.cluster(cluster).settings();
    let text = match fs_err::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let faulty = |why: String| not_understood(&path, &why);
    let head: Head = serde_json::from_slice(&text).map_err(|error| faulty(error.to_string()))?;
    if head.v != VERSION {
        return Err(faulty(format!("unsupported version {}, expected {VERSION}", head.v)).into());
    }
    let kept = serde_json::from_slice(&text).map_err(|error| faulty(error.to_string()))?;
    Ok(Some(kept))
}

fn not_understood(path: &Path, why: &str) -> OperationError {
    OperationError::new(ErrorKind::Settings, format!("cannot parse {}: {why}", path.display()))
        .hint("remove this file, then set the cluster's env file with --env")
}
