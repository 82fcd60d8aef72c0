//! The settings of a deployed cluster, as they are recorded in its directory.
//!
//! Later commands use the recorded settings, and warn if the env file or a value has changed since. Secrets are left
//! out: flags cannot contain them, and for other secret settings only the name is recorded. The current env file may
//! have their values.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::session::{Session, this_command_with};
use crate::cli::{Again, Source, name_or_id};
use crate::cluster::{ClusterConfig, Role};
use crate::error::{ErrorKind, OperationError};
use crate::printable::{printable_line, shell_path, shell_word};
use crate::settings::{self, Loaded, ResolvedValue, Sources};
use crate::state::home::{ClusterDir, Home, write_private};
use crate::state::inventory::Known;
use crate::state::journal::{self, INSTALLED, is_done};
use crate::state::parameters::Parameters;

/// Version of the file's layout. Earlier ones have the former names of settings.
const VERSION: u32 = 3;

/// Settings that `scale` changes.
const COUNTS: [&str; 2] = ["workers", "pools"];

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    v: u32,
    /// Absolute path; only a rehearsal may have none.
    env: Option<PathBuf>,
    /// The settings of the env file, by the names that it uses, with variables expanded; `***` in place of a secret.
    file: Option<BTreeMap<String, String>>,
    current_dir: PathBuf,
    flags: BTreeMap<String, String>,
    /// The settings in the environment, by their variables' names; `***` in place of a secret.
    environment: BTreeMap<String, String>,
    rehearse: bool,
    /// The number of workers at the installation.
    workers: usize,
    /// Every setting with its value; `***` in place of a secret.
    values: BTreeMap<String, String>,
}

/// The record of a deployment's settings. Call it before anything is created: it fails if the record cannot be written.
pub(super) fn record(session: &Session, sources: &Sources<'_>, loaded: &Loaded) -> Result<Vec<u8>> {
    let storable = |(variable, value): (&String, &String)| {
        let name = variable.strip_prefix(settings::ENVIRONMENT)?.to_ascii_lowercase();
        settings::variables::find(&name)?;
        let value = settings::storable(&name, value).to_owned();
        Some((variable.clone(), value))
    };
    let env_file = sources.env_file.as_ref();
    let home = &sources.home;
    let paths = [home, &sources.current_dir]
        .into_iter()
        .chain(env_file.map(|(path, _)| path));
    if let Some(path) = paths.into_iter().find(|path| path.to_str().is_none()) {
        let text = format!("the path {} is not UTF-8, so it cannot be recorded", path.display());
        let hint = "use a directory with another name";
        return Err(OperationError::new(ErrorKind::Usage, text).hint(hint).into());
    }
    let name = &loaded.config.name;
    let installed = match is_done(&journal::read(&session.home.cluster(name).journal())?, INSTALLED) {
        true => read(&session.home, name)?,
        false => None,
    };
    let kept = Kept {
        v: VERSION,
        env: env_file.map(|(path, _)| sources.current_dir.join(path)),
        file: env_file.map(|_| storable_file(sources)),
        environment: sources.environment.iter().filter_map(storable).collect(),
        flags: sources.flags.clone(),
        current_dir: sources.current_dir.clone(),
        rehearse: sources.rehearse,
        workers: installed.map_or_else(|| loaded.config.all_workers(), |kept| kept.workers),
        values: loaded
            .values
            .iter()
            .map(|it| (it.name.clone(), it.value.clone()))
            .collect(),
    };
    Ok(serde_json::to_vec_pretty(&kept)?)
}

/// Writes the record of a deployment's settings, if it has changed.
pub(super) fn keep(dir: &ClusterDir, record: &[u8]) -> Result<()> {
    let path = dir.settings();
    match fs_err::read(&path) {
        Ok(before) if before == record => Ok(()),
        _ => write_private(&path, record).context("save the settings"),
    }
}

/// The settings of the env file, without secrets.
fn storable_file(sources: &Sources<'_>) -> BTreeMap<String, String> {
    let mut file = settings::of_env_file(sources);
    for (name, value) in &mut file {
        *value = settings::storable(name, value).to_owned();
    }
    file
}

/// The settings of a command and their sources; warnings go to the screen.
pub(super) fn settings_of(session: &Session, source: &Source) -> Result<(Sources<'static>, Loaded)> {
    let sources = sources(session, source)?;
    let loaded = session.load_from(&sources)?;
    Ok((sources, loaded))
}

/// The sources of a command's settings. ENV may name a cluster, whose recorded settings it means.
pub(super) fn sources(session: &Session, source: &Source) -> Result<Sources<'static>> {
    let Some(cluster) = named_cluster(session, source)? else {
        return session.sources(source);
    };
    let Some(kept) = read(&session.home, &cluster)? else {
        let text =
            format!("{cluster} is a cluster whose settings are not recorded, and there is no env file of this name");
        let hint = "give the env file of the cluster";
        return Err(OperationError::new(ErrorKind::Settings, text).hint(hint).into());
    };
    let known = session.known(&cluster)?;
    let counts = Counts {
        workers: source.workers,
        pools: &[],
    };
    let (mut sources, notes) = recalled_sources(session, &known, Some(&kept), &Again::default(), &counts)?;
    for note in notes {
        tracing::warn!("{note}");
    }
    sources.flags.extend(source.overrides());
    Ok(sources)
}

/// The cluster that ENV names, if it is not a file.
pub(super) fn named_cluster(session: &Session, source: &Source) -> Result<Option<String>> {
    let name = source.env.as_deref().filter(|env| !env.exists()).and_then(Path::to_str);
    let Some(name) = name.filter(|name| name_or_id(name).is_ok()) else {
        return Ok(None);
    };
    let cluster = session.cluster_name(Some(name))?;
    Ok(Known::read(&session.home.cluster(&cluster))?.map(|known| known.name))
}

/// The settings of a deployed cluster.
pub(super) struct Recalled {
    pub config: ClusterConfig,
    /// The number of workers at the installation.
    pub installed_workers: usize,
    /// The record of the settings that `--env` names: later commands use them, if this one succeeds.
    pub record: Option<Vec<u8>>,
}

impl Recalled {
    /// Makes the settings of `--env` the new record: the command has succeeded with them.
    pub(super) fn keep(&self, session: &Session) -> Result<()> {
        match &self.record {
            Some(record) => keep(&session.home.cluster(&self.config.name), record),
            None => Ok(()),
        }
    }
}

/// The new numbers of workers; those not given do not change.
#[derive(Debug, Default)]
pub(super) struct Counts<'a> {
    pub workers: Option<usize>,
    pub pools: &'a [(String, usize)],
}

/// Reads a cluster's settings from the sources of its deployment or from another env file, with new numbers of workers.
pub(super) fn load(session: &Session, cluster: &str, again: &Again, counts: &Counts<'_>) -> Result<Recalled> {
    let known = session.known(cluster)?;
    let kept = read(&session.home, cluster)?;
    let (sources, mut warnings) = recalled_sources(session, &known, kept.as_ref(), again, counts)?;
    let loaded = session.load_settings(&sources)?;
    if again.env.is_none() {
        warnings.extend(kept.iter().flat_map(|kept| kept.changes(&known.name, &loaded.values)));
    }
    let record = match &again.env {
        Some(_) => Some(record(session, &sources, &loaded)?),
        None => None,
    };
    warnings.extend(loaded.warnings);
    let config = loaded.config;
    if config.id() != known.id() {
        let text = format!("the settings describe cluster {}, not {}", config.id(), known.id());
        let hint = "set its env file with --env";
        return Err(OperationError::new(ErrorKind::Settings, text).hint(hint).into());
    }
    let in_table = || Ok::<_, anyhow::Error>(session.harvested(Some(cluster))?.1.of_role(Role::Worker).count());
    let installed_workers = match kept {
        Some(kept) => kept.workers,
        None => in_table()?,
    };
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(Recalled {
        config,
        installed_workers,
        record,
    })
}

/// The sources of a cluster's settings with these numbers of workers, and what differs from its deployment.
fn recalled_sources(
    session: &Session,
    known: &Known,
    kept: Option<&Kept>,
    again: &Again,
    counts: &Counts<'_>,
) -> Result<(Sources<'static>, Vec<String>)> {
    let cluster = known.name.as_str();
    let used = kept.filter(|_| again.env.is_none());
    let source = Source {
        env: again.env.clone().or(used.and_then(|kept| kept.env.clone())),
        rehearse: known.rehearsal,
        ..Source::default()
    };
    let mut notes = Vec::new();
    let mut sources = match used {
        Some(Kept { env: None, .. }) => session.flags(&source)?,
        Some(Kept {
            env: Some(path),
            file: Some(file),
            ..
        }) => {
            let now = session.sources(&source).ok();
            notes.extend(file_changes(cluster, path, file, now.as_ref()));
            let text = file_text(file, now.as_ref());
            Sources {
                env_file: Some((path.clone(), text)),
                ..now.map_or_else(|| session.flags(&source), Ok)?
            }
        }
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
    let Some(table) = Parameters::read(&session.home.cluster(cluster).parameters())? else {
        return Ok((sources, notes));
    };
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
        let hint = format!("add it to `pools` in an env file, such as `pools={name}:1`, and name the file with --env");
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
    Ok((sources, notes))
}

/// The recorded env file of a deployment, with the secrets of the current env file.
fn file_text(kept: &BTreeMap<String, String>, now: Option<&Sources<'_>>) -> String {
    let mut settings = kept.clone();
    let now = now.map(settings::of_env_file).unwrap_or_default();
    for (name, value) in now {
        let variable = settings::variables::find(&name).map(|variable| variable.name);
        if settings::is_left_out(settings::storable(&name, &value)) {
            settings.retain(|other, _| settings::variables::find(other).map(|it| it.name) != variable);
            settings.insert(name, value);
        }
    }
    let lines = settings
        .iter()
        .map(|(name, value)| format!("{name}={}\n", shell_word(value)));
    lines.collect()
}

/// How the env file differs from that of the deployment, except in the numbers of workers.
fn file_changes(
    cluster: &str,
    path: &Path,
    kept: &BTreeMap<String, String>,
    now: Option<&Sources<'_>>,
) -> Option<String> {
    let file = path.display();
    let Some(now) = now.map(storable_file) else {
        return Some(format!(
            "cannot read {file}: the settings that cluster {cluster} was deployed with are used"
        ));
    };
    let names: BTreeSet<&String> = kept.keys().chain(now.keys()).collect();
    let changed = names.into_iter().filter(|name| kept.get(*name) != now.get(*name));
    let changed: Vec<&str> = changed
        .map(String::as_str)
        .filter(|name| !COUNTS.contains(name))
        .collect();
    (!changed.is_empty()).then(|| {
        format!(
            "{file} has changed since cluster {cluster} was deployed ({}): its former settings are used, `--env {}` uses the \
             new ones",
            changed.join(", "),
            shell_path(path)
        )
    })
}

impl Kept {
    /// The settings whose value is no longer that of the deployment, except the numbers of workers.
    fn changes(&self, cluster: &str, values: &[ResolvedValue]) -> Vec<String> {
        let has_changed = |value: &&ResolvedValue| {
            let before = self.values.get(&value.name);
            before.is_some_and(|before| *before != value.value) && !COUNTS.contains(&value.name.as_str())
        };
        let shown = |text: &str| {
            if text.is_empty() {
                "not set".to_owned()
            } else {
                printable_line(text)
            }
        };
        let line = |value: &ResolvedValue| {
            let before = shown(self.values.get(&value.name).map_or("", String::as_str));
            let (now, origin) = (shown(&value.value), printable_line(&value.origin));
            format!(
                "{}: cluster {cluster} was deployed with {before}; now it is {now} ({origin})",
                value.name
            )
        };
        values.iter().filter(has_changed).map(line).collect()
    }
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
