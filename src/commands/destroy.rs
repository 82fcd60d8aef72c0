//! `ocpdeploy destroy`.

use std::time::Duration;

use anyhow::{Error, Result};

use super::audit;
use super::confirm::Loss;
use super::output::print_result;
use super::platform::retry_limit;
use super::session::{Session, runtime};
use crate::backend::Owned;
use crate::backend::connect::connect;
use crate::backend::retry::DEFAULT_LIMIT;
use crate::cli::{Destroy, Source};
use crate::cluster::{BackendConfig, ClusterId, NodeName, WorkersOn};
use crate::failure::{CommandError, Kind};
use crate::local::client_dns::{self, Computer};
use crate::report::changes::Destroyed;
use crate::state::home::ClusterDir;
use crate::state::inventory::{self, Known};
use crate::state::parameters::Parameters;
use crate::{passes, report};

/// What is to be destroyed, and where.
struct Target {
    cluster: ClusterId,
    backend: BackendConfig,
    workers_on: Option<WorkersOn>,
    /// How long they may be silent.
    retry_limit: Duration,
    /// The cluster's name, as its folder is called.
    name: String,
    /// Its folder, where that is of this cluster and not of another one of its name.
    dir: Option<ClusterDir>,
}

pub fn run(session: &Session, command: &Destroy) -> Result<()> {
    let target = match command.from_backend {
        true => by_id(session, command)?,
        false => by_name(session, command)?,
    };
    let (cluster, dir) = (&target.cluster, target.dir.as_ref());
    if let Some(dir) = dir {
        session.progress.log_to(dir);
    }
    session.finish_or_stop(async {
        let backend = connect(&target.backend, target.workers_on.as_ref(), target.retry_limit).await?;
        let mut owned = backend.list_owned(cluster).await?;
        owned.extend(dir.map(|dir| names_here(dir, command, cluster)).unwrap_or_default());
        let table = dir.and_then(|dir| Parameters::read(&dir.parameters()).ok().flatten());
        let external: Vec<NodeName> = table
            .into_iter()
            .flat_map(|table| table.external)
            .map(|node| node.name)
            .collect();
        let destroyed = Destroyed {
            cluster,
            dry_run: command.dry_run,
            addresses_kept: command.keep_addresses,
            objects: &owned,
            external: &external,
        };
        if command.dry_run {
            return print_result(&command.output, &destroyed, || destroyed.text());
        }
        if !command.yes {
            let lost = Loss {
                operation: &format!("destroy {cluster}"),
                text: &report::owned(cluster, &owned),
                hint: "add --yes to confirm, or --dry-run to show what would be removed",
                canceled: "nothing was removed",
            };
            lost.confirm()?;
        }
        let begun = || {
            if let Some(dir) = dir {
                forget_names(dir, command, cluster);
            }
        };
        passes::destroy(&*backend, cluster, &target.name, dir, command.keep_addresses, begun).await?;
        print_result(&command.output, &destroyed, || destroyed.text())
    })
}

/// What `ocpdeploy dns apply` wrote on this computer, one line of a file each.
fn names_here(dir: &ClusterDir, command: &Destroy, cluster: &ClusterId) -> Vec<Owned> {
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

/// Undoes what `ocpdeploy dns apply` did. Machines are not kept because a file of this computer cannot be written.
fn forget_names(dir: &ClusterDir, command: &Destroy, cluster: &ClusterId) {
    let forgotten = client_dns::applied(dir).and_then(|how| match how {
        Some(_) => client_dns::remove(&Computer::new(&command.root), Some(dir), cluster).map(|_| ()),
        None => Ok(()),
    });
    if let Err(error) = forgotten {
        tracing::warn!(
            "cannot remove the names of {cluster} from the local resolver: {error}; run `sudo ocpdeploy dns remove {cluster}`"
        );
    }
}

/// A cluster as its env file describes it, where one is named, else as last used.
fn by_name(session: &Session, command: &Destroy) -> Result<Target> {
    let name = session.cluster_name(command.cluster.as_deref())?;
    let Some(env) = &command.env else {
        if name.contains('.') {
            let text = format!("no cluster {name} in the state directory");
            let hint = "give the name without the domain; NAME.DOMAIN requires --from-backend";
            return Err(CommandError::new(Kind::Usage, text).hint(hint).into());
        }
        let known = session.known(&name)?;
        return Ok(Target {
            cluster: known.id(),
            dir: Some(session.home.cluster(&name)),
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
        return Err(CommandError::new(Kind::Usage, text).hint(hint).into());
    }
    let cluster = ClusterId::new(&found.cluster, &found.domain);
    Ok(Target {
        dir: folder(session, &cluster, &found.backend, &name),
        cluster,
        name,
        backend: found.backend,
        workers_on: found.workers_on,
        retry_limit: found.platform_timeout,
    })
}

/// A cluster of which perhaps nothing is known here, on the one platform that has something of it.
fn by_id(session: &Session, command: &Destroy) -> Result<Target> {
    let id = command.cluster.as_deref().unwrap_or_default();
    let Some(cluster) = ClusterId::read(id) else {
        let text = format!("{id} has no domain; --from-backend requires NAME.DOMAIN");
        let hint = "`ocpdeploy audit` lists the clusters on the platforms";
        return Err(CommandError::new(Kind::Usage, text).hint(hint).into());
    };
    let clusters = inventory::clusters(&session.home)?;
    let runtime = runtime()?;
    let mut holders = Vec::new();
    let looked_at = audit::platforms(session, command.env.as_deref(), &clusters)?;
    for backend in &looked_at {
        let owned = runtime.block_on(async {
            Ok::<_, Error>(
                connect(backend, None, DEFAULT_LIMIT)
                    .await?
                    .list_owned(&cluster)
                    .await?,
            )
        });
        if !owned?.is_empty() {
            holders.push(backend);
        }
    }
    let known = clusters
        .iter()
        .map(|cluster| &cluster.known)
        .find(|known| known.id() == cluster);
    let places: Vec<String> = holders.iter().map(|backend| backend.place()).collect();
    if let Some(known) = known {
        let its: Vec<String> = known.all_platforms().map(BackendConfig::place).collect();
        // Nothing but what is known here anyway, workers elsewhere included.
        if places.iter().all(|place| its.contains(place)) && looked_at.iter().any(|it| its.contains(&it.place())) {
            let listed = looked_at.iter().find(|it| it.place() == known.backend.place());
            return Ok(Target {
                dir: Some(session.home.cluster(&known.name)),
                cluster,
                name: known.name.clone(),
                // The env file may tell the password, which is kept nowhere.
                backend: listed.unwrap_or(&known.backend).clone(),
                workers_on: known.workers_on.clone(),
                retry_limit: retry_limit(known),
            });
        }
    }
    let backend = match (holders.as_slice(), looked_at.first()) {
        ([one], _) => one,
        ([], Some(any)) => any,
        (several, _) => {
            let text = match several {
                [] => "no platform to search: the state directory has no clusters".to_owned(),
                _ => format!("several platforms have objects of {cluster}: {}", places.join("; ")),
            };
            return Err(CommandError::new(Kind::Usage, text)
                .hint("select the platform with --env ENV")
                .into());
        }
    };
    Ok(Target {
        name: cluster.as_str().split('.').next().unwrap_or_default().to_owned(),
        cluster,
        backend: (*backend).clone(),
        workers_on: None,
        retry_limit: DEFAULT_LIMIT,
        // A folder of this name is not known to be of this cluster.
        dir: None,
    })
}

/// The cluster's folder. That of another cluster of this name stays.
fn folder(session: &Session, cluster: &ClusterId, backend: &BackendConfig, name: &str) -> Option<ClusterDir> {
    let dir = session.home.cluster(name);
    match Known::read(&dir) {
        Ok(Some(known)) if known.id() != *cluster || known.backend.place() != backend.place() => {
            tracing::warn!(
                "the directory {} belongs to cluster {} on {}; keeping it",
                dir.path().display(),
                known.id(),
                known.backend.place()
            );
            None
        }
        // A folder that tells nothing was torn by a crash.
        _ => Some(dir),
    }
}
