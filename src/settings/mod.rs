//! Converts env file, profile, environment and flags to one checked `ClusterConfig`.
//!
//! Precedence: flag, environment (`OCPDEPLOY_<NAME>`), env file, profile, default. All problems are reported at once,
//! each with its place. Files are read only through the functions in `Sources`.

mod access;
mod address_families;
mod address_ranges;
mod checks;
mod choices;
mod config;
mod entry;
pub mod envfile;
mod images;
mod layers;
mod network_config;
pub mod parse;
mod platforms;
mod pools;
mod problem;
pub mod profile;
mod registry_cache;
mod registry_mirrors;
mod sizes;
mod sources;
mod table;
mod values;
pub mod variables;
mod version_lock;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use secrecy::SecretString;

use crate::cluster::{BackendConfig, ClusterConfig, WorkersOn};

pub use parse::image_url;
pub use pools::pools_text;
pub use problem::{Problem, SettingsError};
pub use sources::Sources;
pub use values::ResolvedValue;
use values::{Finished, Values};
pub use values::{is_left_out, storable};
pub(crate) use variables::ENVIRONMENT;

/// Parsed and checked settings.
#[derive(Debug)]
pub struct Loaded {
    pub config: ClusterConfig,
    /// Every setting, in the order of the table.
    pub values: Vec<ResolvedValue>,
    /// Warnings with their places, one line each, starting in lower case.
    pub warnings: Vec<String>,
    /// Credentials that cannot be read: the configuration has placeholders, and cannot be deployed.
    pub missing: Vec<Problem>,
}

/// Reads and checks all settings. Changes nothing.
pub fn load(sources: &Sources<'_>) -> Result<Loaded, SettingsError> {
    let loaded = load_without_credentials(sources)?;
    match loaded.missing.is_empty() {
        true => Ok(loaded),
        false => Err(SettingsError {
            problems: loaded.missing,
        }),
    }
}

/// As `load`, but without an error if only credentials cannot be read.
pub fn load_without_credentials(sources: &Sources<'_>) -> Result<Loaded, SettingsError> {
    let mut values = Values::collect(sources)?;
    let config = config::build(&mut values);
    let Finished {
        values,
        warnings,
        problems,
    } = values.settled();
    match config {
        Some(config) if problems.iter().all(|problem| problem.has_placeholder) => Ok(Loaded {
            config,
            values,
            warnings,
            missing: problems,
        }),
        None if problems.is_empty() => unreachable!("a value is missing without a problem"),
        _ => Err(SettingsError { problems }),
    }
}

/// A cluster's identity and its platforms.
pub struct Whereabouts {
    pub cluster: String,
    pub domain: String,
    pub backend: BackendConfig,
    pub workers_on: Option<WorkersOn>,
    /// How long to retry calls to unresponsive platforms.
    pub platform_timeout: Duration,
}

/// Reads only the cluster's identity and its platforms: `destroy` also works on a computer without keys and images.
pub fn load_whereabouts(sources: &Sources<'_>) -> Result<Whereabouts, SettingsError> {
    let mut values = Values::collect(sources)?;
    let names = checks::names(&mut values);
    let backend = platforms::backend(&mut values);
    let workers_on = platforms::workers_on(&mut values, backend.as_ref());
    let timeout = config::platform_timeout(&mut values);
    values.finish()?;
    match (names, backend, workers_on, timeout) {
        (Some((cluster, domain)), Some(backend), Some(workers_on), Some(platform_timeout)) => Ok(Whereabouts {
            cluster,
            domain,
            backend,
            workers_on,
            platform_timeout,
        }),
        _ => unreachable!("a value is missing without a problem"),
    }
}

/// Reads only the platform and its connection.
pub fn load_platform(sources: &Sources<'_>) -> Result<BackendConfig, SettingsError> {
    let mut values = Values::collect(sources)?;
    let backend = platforms::backend(&mut values);
    values.finish()?;
    match backend {
        Some(backend) => Ok(backend),
        None => unreachable!("a value is missing without a problem"),
    }
}

/// Reads only what registries require: the pull secret, and the CA certificates.
pub fn load_registry_access(sources: &Sources<'_>) -> Result<(SecretString, Option<String>), SettingsError> {
    let mut values = Values::collect(sources)?;
    let secret = access::pull_secret(&mut values);
    let ca = access::ca(&mut values);
    values.finish()?;
    match (secret, ca) {
        (Some(secret), Some(ca)) => Ok((secret, ca)),
        _ => unreachable!("a value is missing without a problem"),
    }
}

/// Reads only the names of the pools, with the number of nodes of each.
pub fn load_pools(sources: &Sources<'_>) -> Result<Vec<(String, usize)>, SettingsError> {
    let mut values = Values::collect(sources)?;
    let pools = pools::counts(&mut values);
    values.finish()?;
    Ok(pools.unwrap_or_default())
}

/// The settings of the user: in the env file, in the environment or by a flag.
pub fn given(sources: &Sources<'_>) -> Result<BTreeSet<&'static str>, SettingsError> {
    let values = Values::collect(sources)?.values;
    let given = values.into_iter().filter(|(_, value)| value.is_given());
    Ok(given.map(|(name, _)| name).collect())
}

/// The settings of the env file by the names that it uses, with variables expanded; empty without one, or if it has
/// syntax errors.
pub fn of_env_file(sources: &Sources<'_>) -> BTreeMap<String, String> {
    let text = sources.env_file.as_ref().map_or("", |(_, text)| text);
    let assignments = envfile::parse(text, &|name| sources.variable(name)).unwrap_or_default();
    let settings = assignments.into_iter().filter(|it| !it.name.starts_with('_'));
    settings.map(|it| (it.name, it.value)).collect()
}

/// Every setting from the layers, unchecked.
pub fn resolve(sources: &Sources<'_>) -> Result<Vec<ResolvedValue>, SettingsError> {
    Ok(Values::collect(sources)?.finish()?.values)
}

/// As `resolve`, to show what is wrong: an error only if the env file has syntax errors.
pub fn resolve_in_spite_of_problems(sources: &Sources<'_>) -> Result<Vec<ResolvedValue>, SettingsError> {
    Ok(Values::collect(sources)?.settled().values)
}
