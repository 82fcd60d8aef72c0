//! `ocpdeploy destroy`.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::audit;
use super::confirm::{self, Loss, with_dry_run};
use super::output::{print, print_result};
use super::platform::retry_limit;
use super::session::{ENV_FILE, Session, runtime};
use crate::backend::Owned;
use crate::backend::connect::connect;
use crate::backend::platforms::DEFAULT_LIMIT;
use crate::cli::{Destroy, Source};
use crate::cluster::{BackendConfig, ClusterDomain, ClusterId, NodeName, WorkersOn};
use crate::error::{ErrorKind, OperationError};
use crate::local::client_dns::{self, Computer};
use crate::local::client_kubeconfig;
use crate::passes::{self, DeploymentOnPlatform};
use crate::printable::shell_path;
use crate::report;
use crate::report::changes::Destroyed;
use crate::state::home::ClusterDir;
use crate::state::inventory::{self, Known};
use crate::state::parameters::Parameters;

/// The cluster to destroy, and its platforms.
struct Target {
    cluster: ClusterId,
    backend: BackendConfig,
    workers_on: Option<WorkersOn>,
    /// How long to retry calls to unresponsive platforms.
    retry_limit: Duration,
    /// The cluster's name, which is also the name of its directory.
    name: String,
    /// Its directory; `None` if the directory of this name belongs to another cluster.
    dir: Option<ClusterDir>,
}

pub fn run(session: &Session, command: &Destroy) -> Result<()> {
    let target = match command.from_backend {
        true => by_id(session, command)?,
        false => Some(by_name(session, command)?),
    };
    let Some(target) = target else {
        let domain = command.cluster.as_deref().unwrap_or_default();
        return print(&format!("no objects of {domain} on the platform\n"));
    };
    let cluster = &target.cluster;
    let dir = target.dir.as_ref();
    let domain = cluster.domain();
    if let Some(dir) = dir {
        session.progress.log_to(dir);
    }
    session.finish_or_stop(async {
        let backend = connect(&target.backend, target.workers_on.as_ref(), target.retry_limit).await?;
        let mut owned = backend.list_owned(cluster).await?;
        owned.extend(dir.map(|dir| names_here(dir, command, domain)).unwrap_or_default());
        owned.extend(dir.map(contexts_here).unwrap_or_default());
        let table = dir.and_then(|dir| Parameters::read(&dir.parameters()).ok().flatten());
        let external: Vec<NodeName> = table
            .into_iter()
            .flat_map(|table| table.external)
            .map(|node| node.name)
            .collect();
        let destroyed = Destroyed {
            cluster: domain,
            id: cluster.deployment(),
            dry_run: command.dry_run,
            addresses_kept: command.keep_addresses,
            objects: &owned,
            external: &external,
        };
        if command.dry_run {
            return print_result(&command.output, &destroyed, || destroyed.text());
        }
        if !command.confirmation.yes {
            let of_others = match dir {
                Some(_) => String::new(),
                None => {
                    let deployment = DeploymentOnPlatform::read(&backend, cluster.clone()).await?;
                    let summary = deployment.summary();
                    format!("this computer has no record of {domain}, {summary}; it may be in use\n")
                }
            };
            let machines = backend.list_machines(cluster).await?;
            let objects = report::owned_briefly(domain, &owned, |name| {
                machines.iter().any(|machine| machine.name.as_str() == name)
            });
            let options = match (dir, &command.id) {
                (None, None) => vec!["--id", cluster.deployment().as_str(), "--yes"],
                _ => vec!["--yes"],
            };
            let unnamed = command.cluster.is_none().then_some(target.name.as_str());
            let hint = confirm::hint(&options, unnamed, None);
            let lost = Loss {
                operation: &format!("destroy {cluster}"),
                cluster,
                text: &(objects + "--dry-run shows all objects by name\n" + &of_others),
                hint: &with_dry_run(&hint),
                canceled: "nothing was removed",
                typed: dir.is_none().then_some(domain.as_str()),
            };
            lost.confirm(&command.confirmation)?;
        }
        let begun = || {
            if let Some(dir) = dir {
                forget_names(session, dir, command, domain);
                forget_contexts(dir);
            }
        };
        passes::destroy(&backend, cluster, &target.name, dir, command.keep_addresses, begun).await?;
        print_result(&command.output, &destroyed, || destroyed.text())
    })
}

/// The changes of `ocpdeploy dns apply` on this computer, one line for each file.
fn names_here(dir: &ClusterDir, command: &Destroy, cluster: &ClusterDomain) -> Vec<Owned> {
    // A file that cannot be read is reported when its lines are removed.
    let Ok(Some(how)) = client_dns::applied(dir) else {
        return Vec::new();
    };
    let Ok(change) = Computer::new(&command.root).plan_removal(cluster, how) else {
        return Vec::new();
    };
    let after = change.after.unwrap_or_default();
    let kept: Vec<&str> = after.lines().collect();
    let before = change.before.unwrap_or_default();
    let gone = before
        .lines()
        .filter(|line| !kept.contains(line) && !line.starts_with('#'));
    gone.map(|line| Owned {
        kind: "client dns".to_owned(),
        name: format!("{}: {line}", change.path.display()),
    })
    .collect()
}

/// Reverts `ocpdeploy dns apply`. If a file of this computer cannot be written, the machines are still removed.
fn forget_names(session: &Session, dir: &ClusterDir, command: &Destroy, cluster: &ClusterDomain) {
    let forgotten = client_dns::applied(dir).and_then(|how| match how {
        Some(_) => client_dns::remove(&Computer::new(&command.root), Some(dir), cluster).map(|_| ()),
        None => Ok(()),
    });
    if let Err(error) = forgotten {
        // sudo sets another HOME.
        let home = shell_path(session.home.root());
        tracing::warn!(
            "cannot remove the names of {cluster} from the local resolver: {error}; run `sudo ocpdeploy --home {home} dns \
             remove {cluster}`"
        );
    }
}

/// The contexts that `ocpdeploy kubeconfig --merge` added on this computer.
fn contexts_here(dir: &ClusterDir) -> Vec<Owned> {
    let kubeconfig = std::fs::read_to_string(dir.kubeconfig()).unwrap_or_default();
    // A file that cannot be read is reported when its context is removed.
    let contexts = client_kubeconfig::recorded(dir).unwrap_or_default().into_iter();
    let contexts = contexts.filter(|context| context.is_there(&kubeconfig));
    contexts
        .map(|context| Owned {
            kind: "client kubeconfig".to_owned(),
            name: format!("{}: context {}", context.file.display(), context.name),
        })
        .collect()
}

/// Removes these contexts. If a file of this computer cannot be written, the machines are still removed.
fn forget_contexts(dir: &ClusterDir) {
    let forget = || {
        let contexts = client_kubeconfig::recorded(dir)?;
        if contexts.is_empty() {
            return Ok(());
        }
        let kubeconfig = std::fs::read_to_string(dir.kubeconfig())?;
        for context in contexts {
            if let Err(error) = context.remove(&kubeconfig) {
                tracing::warn!("{error}; {}", error.hints.join("; "));
            }
        }
        anyhow::Ok(())
    };
    if let Err(error) = forget() {
        tracing::warn!("cannot remove the cluster's contexts from a kubeconfig: {error}");
    }
}

/// A cluster of the state directory; an env file may have a newer connection to its platform.
fn by_name(session: &Session, command: &Destroy) -> Result<Target> {
    let name = session.wanted_name(command.cluster.as_deref())?;
    if name.contains('.') {
        return Err(no_record(session, command, &name).into());
    }
    let dir = session.home.cluster(&name);
    let Some(env) = &command.env else {
        let known = Known::read(&dir)?;
        let known = known.ok_or_else(|| no_record(session, command, &name))?;
        return Ok(Target {
            cluster: known.id(),
            dir: Some(dir),
            name,
            retry_limit: retry_limit(&known),
            backend: known.backend,
            workers_on: known.workers_on,
        });
    };
    let source = Source {
        env: Some(env.clone()),
        ..Source::default()
    };
    let found = session.load_whereabouts(&source)?;
    if found.cluster != name {
        let text = format!("{} describes cluster {}, not {name}", env.display(), found.cluster);
        let hint =
            "to remove any NAME.DOMAIN that `ocpdeploy audit` shows on the env file's platform, use --from-backend";
        return Err(OperationError::new(ErrorKind::Usage, text).hint(hint).into());
    }
    let domain = ClusterDomain::new(&found.cluster, &found.domain);
    let known = Known::read(&dir)?.filter(|known| known.domain == found.domain);
    match known.filter(|known| known.backend.place() == found.backend.place()) {
        Some(known) => Ok(Target {
            cluster: known.id(),
            dir: Some(dir),
            name,
            backend: found.backend,
            workers_on: found.workers_on,
            retry_limit: found.platform_timeout,
        }),
        None => {
            let text = format!("no record of cluster {domain} on {}", found.backend.place());
            let hint = without_record(&domain, env);
            Err(OperationError::new(ErrorKind::Usage, text).hint(hint).into())
        }
    }
}

/// The error for a cluster without a record. The hint is the command that works, if the env file describes the cluster.
fn no_record(session: &Session, command: &Destroy, name: &str) -> OperationError {
    let text = format!("no cluster {name} in the state directory");
    let env = command.env.clone().unwrap_or_else(|| ENV_FILE.into());
    let described = || {
        let env = command.env.clone();
        let source = Source {
            env,
            ..Source::default()
        };
        let found = session.load_whereabouts(&source).ok()?;
        let domain = ClusterDomain::new(&found.cluster, &found.domain);
        [found.cluster.as_str(), domain.as_str()]
            .contains(&name)
            .then_some(domain)
    };
    OperationError::new(ErrorKind::Usage, text).hint(match described() {
        Some(domain) => without_record(&domain, &env),
        None => "`ocpdeploy list` shows the clusters in the state directory. `ocpdeploy audit --env ENV` shows \
                         those on the platform of an env file, with the command that removes one without its record"
            .to_owned(),
    })
}

fn without_record(domain: &ClusterDomain, env: &Path) -> String {
    let env = shell_path(env);
    format!("to remove a cluster without its record: `ocpdeploy destroy {domain} --from-backend --env {env}`")
}

/// A deployment that this computer may have no record of, on the only platform with objects of it; `None` if no
/// platform has any.
fn by_id(session: &Session, command: &Destroy) -> Result<Option<Target>> {
    let id = command.cluster.as_deref().unwrap_or_default();
    let Ok(domain) = id.parse::<ClusterDomain>() else {
        let text = format!("{id} has no domain; --from-backend requires NAME.DOMAIN");
        let hint = "`ocpdeploy audit` lists the clusters on the platforms";
        return Err(OperationError::new(ErrorKind::Usage, text).hint(hint).into());
    };
    let clusters = inventory::clusters(&session.home)?;
    let runtime = runtime()?;
    let mut found = Vec::new();
    let searched = audit::platforms(session, command.env.as_deref(), &clusters)?;
    for backend in &searched {
        let deployments = runtime.block_on(async {
            let platform = connect(backend, None, DEFAULT_LIMIT).await?;
            passes::deployments_of(&platform, &domain).await
        })?;
        found.extend(deployments.into_iter().map(|deployment| (backend, deployment)));
    }
    if let Some(wanted) = &command.id {
        let (chosen, others): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|(_, deployment)| deployment.id.deployment() == wanted);
        if chosen.is_empty() && !others.is_empty() {
            let others: Vec<String> = others.iter().map(|(_, deployment)| deployment.summary()).collect();
            let text = format!("no deployment of {domain} has id {wanted}; found {}", others.join("; "));
            return Err(OperationError::new(ErrorKind::Usage, text)
                .hint("correct --id, or leave it out to be prompted")
                .into());
        }
        found = chosen;
    }
    let known = clusters.iter().map(|cluster| &cluster.known);
    let mut known = known.filter(|known| known.cluster_domain() == domain);
    let mut ids: Vec<&ClusterId> = found.iter().map(|(_, deployment)| &deployment.id).collect();
    ids.sort_unstable();
    ids.dedup();
    let is_asked_for = |known: &&Known| match (ids.as_slice(), &command.id) {
        ([id], _) => known.id() == **id,
        ([], Some(id)) => known.deployment.id == *id,
        (ids, None) => ids.is_empty(),
        _ => false,
    };
    if let Some(known) = known.find(is_asked_for) {
        // The only deployment is the recorded one, whose record includes the workers' own platform.
        let listed = searched.iter().find(|it| it.place() == known.backend.place());
        return Ok(Some(Target {
            dir: Some(session.home.cluster(&known.name)),
            cluster: known.id(),
            name: known.name.clone(),
            // The env file may contain the password, which is not stored.
            backend: listed.unwrap_or(&known.backend).clone(),
            workers_on: known.workers_on.clone(),
            retry_limit: retry_limit(known),
        }));
    }
    let [(backend, deployment)] = found.as_slice() else {
        let place = |(backend, deployment): &(&BackendConfig, DeploymentOnPlatform)| {
            format!("{}: {}", backend.place(), deployment.summary())
        };
        let places: Vec<String> = found.iter().map(place).collect();
        let (text, hint) = match places.as_slice() {
            [] => return Ok(None),
            _ if ids.len() > 1 => (
                format!("there are several deployments of {domain}: {}", places.join("; ")),
                "select one with --id ID",
            ),
            _ => (
                format!("several platforms have objects of {domain}: {}", places.join("; ")),
                "select the platform with --env ENV",
            ),
        };
        return Err(OperationError::new(ErrorKind::Usage, text).hint(hint).into());
    };
    if command.confirmation.yes && command.id.is_none() {
        let text = format!("--yes requires --id for {domain}, of which this computer has no record");
        let hint = format!(
            "it has {}; without --yes, the command shows its objects and prompts",
            deployment.summary()
        );
        return Err(OperationError::new(ErrorKind::Usage, text).hint(hint).into());
    }
    Ok(Some(Target {
        name: domain.name().to_owned(),
        cluster: deployment.id.clone(),
        backend: (*backend).clone(),
        workers_on: None,
        retry_limit: DEFAULT_LIMIT,
        // A directory of this name belongs to another deployment.
        dir: None,
    }))
}
