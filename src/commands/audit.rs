//! `ocpdeploy audit`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use super::output::print_result;
use super::platform::retry_limit;
use super::session::{Session, runtime, this_command_with};
use crate::backend::connect::connect;
use crate::backend::platforms::DEFAULT_LIMIT;
use crate::cli::{Audit, Source};
use crate::cluster::BackendConfig;
use crate::error::{ErrorKind, OperationError};
use crate::failure::DIFFERENT;
use crate::passes::DeploymentOnPlatform;
use crate::printable::shell_path;
use crate::report::audit::{Audit as Report, Found, OnPlatform};
use crate::settings;
use crate::state::inventory::{self, Cluster};
use crate::state::journal;

pub fn run(session: &Session, command: &Audit) -> Result<ExitCode> {
    let env = command.env.as_deref();
    let clusters = inventory::clusters(&session.home)?;
    let runtime = runtime()?;
    let mut seen = Vec::new();
    let mut failed = None;
    for backend in platforms(session, env, &clusters)? {
        match runtime.block_on(look(session, env, &backend, &clusters)) {
            Ok(found) => seen.push(found),
            // The other platforms are still shown.
            Err(error) => failed = failed.or(Some(error.context(format!("list clusters on {}", backend.place())))),
        }
    }
    let audit = Report { platforms: seen };
    print_result(&command.output, &audit, || audit.text())?;
    match failed {
        Some(error) => Err(error),
        None if audit.is_clean() => Ok(ExitCode::SUCCESS),
        None => Ok(ExitCode::from(DIFFERENT)),
    }
}

/// The env file's platform; without an env file, those of `./env.sh`, if it exists, and of all clusters in the state
/// directory. If there is none, nothing can be said about any platform.
pub(super) fn platforms(session: &Session, env: Option<&Path>, clusters: &[Cluster]) -> Result<Vec<BackendConfig>> {
    let mut all = Vec::new();
    if env.is_some() || Path::new("env.sh").exists() {
        let source = Source {
            env: env.map(Path::to_owned),
            ..Source::default()
        };
        let sources = session.sources_with_hint(&source, &this_command_with("--env ./env.sh"))?;
        all.push(settings::load_platform(&sources)?);
    }
    if env.is_none() {
        let known = clusters.iter().map(|cluster| &cluster.known);
        all.extend(known.flat_map(|known| known.all_platforms().cloned()));
    }
    let mut places = Vec::new();
    all.retain(|backend| {
        let place = backend.place();
        let is_new = !places.contains(&place);
        places.push(place);
        is_new
    });
    if all.is_empty() {
        let text = "no platform to search: the state directory has no clusters";
        let hint = "select the platform with --env ENV";
        return Err(OperationError::new(ErrorKind::Usage, text).hint(hint).into());
    }
    Ok(all)
}

async fn look(
    session: &Session,
    env: Option<&Path>,
    backend: &BackendConfig,
    clusters: &[Cluster],
) -> Result<OnPlatform> {
    let place = backend.place();
    let word = env.map(shell_path);
    let platform = connect(backend, None, DEFAULT_LIMIT).await?;
    let is_here = |cluster: &&Cluster| cluster.known.all_platforms().any(|backend| backend.place() == place);
    let here: Vec<&Cluster> = clusters.iter().filter(is_here).collect();
    let mut found = Vec::new();
    for id in platform.list_clusters().await? {
        if !here.iter().any(|cluster| cluster.known.id() == id) {
            let owned = platform.list_owned(&id).await?;
            // A cluster that was just removed has no objects.
            if !owned.is_empty() {
                let deployment = DeploymentOnPlatform::read(&platform, id).await?;
                found.push(Found::unknown(deployment, owned, word.as_deref()));
            }
        }
    }
    // A cluster with workers on another platform is reported once, with its objects on both.
    for cluster in here
        .into_iter()
        .filter(|cluster| cluster.known.backend.place() == place)
    {
        let known = &cluster.known;
        let both = connect(backend, known.workers_on.as_ref(), retry_limit(known)).await?;
        let machines = both.list_machines(&known.id()).await?;
        let owned = both.list_owned(&known.id()).await?;
        let entries = journal::read(&session.home.cluster(&known.name).journal())?;
        found.push(Found::known(cluster, &entries, &machines, owned));
    }
    found.sort_by(|a, b| (&a.cluster, &a.id).cmp(&(&b.cluster, &b.id)));
    Ok(OnPlatform {
        platform: place,
        clusters: found,
    })
}
