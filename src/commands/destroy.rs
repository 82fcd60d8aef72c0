//! `ocpdeploy destroy`.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::Result;

use super::{Session, connect, print};
use crate::backend::{Backend, Owned};
use crate::cli::{Destroy, Source};
use crate::client_dns::{self, Computer};
use crate::cluster::{BackendConfig, ClusterId, WorkersOn};
use crate::failure::{CommandError, Kind};
use crate::{passes, report};

pub fn run(session: &Session, command: &Destroy) -> Result<()> {
    let (cluster, backend, workers_on) = target(session, command)?;
    session.progress.log_to(&session.home.cluster(&command.cluster));
    session.finish_or_stop(async {
        let backend = connect(&backend, workers_on.as_ref()).await?;
        let mut owned = backend.list_owned(&cluster).await?;
        owned.extend(names_here(session, command, &cluster));
        if command.dry_run {
            return print(&report::owned(&cluster, &owned));
        }
        if !command.yes {
            confirm(&cluster, &owned)?;
        }
        forget_names(session, command, &cluster);
        passes::destroy(
            &backend,
            &cluster,
            &command.cluster,
            &session.home,
            command.keep_addresses,
        )
        .await?;
        print(&match command.keep_addresses {
            true => format!("cluster {cluster} is destroyed; its addresses are kept\n"),
            false => format!("cluster {cluster} is destroyed\n"),
        })
    })
}

/// What `ocpdeploy dns apply` told this computer, one line of a file each.
fn names_here(session: &Session, command: &Destroy, cluster: &ClusterId) -> Vec<Owned> {
    let dir = session.home.cluster(&command.cluster);
    // A file that cannot be read is told of when its lines are to go.
    let Ok(Some(how)) = client_dns::applied(&dir) else {
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
fn forget_names(session: &Session, command: &Destroy, cluster: &ClusterId) {
    let dir = session.home.cluster(&command.cluster);
    let forgotten = client_dns::applied(&dir).and_then(|how| match how {
        Some(_) => client_dns::remove(&Computer::new(&command.root), Some(&dir), cluster).map(|_| ()),
        None => Ok(()),
    });
    if let Err(error) = forgotten {
        tracing::warn!(
            "this computer still knows names of {cluster}: {error}; `sudo ocpdeploy dns remove {cluster}` takes them away"
        );
    }
}

/// The cluster's id and platform: from the env file where one is named, else as last used.
fn target(session: &Session, command: &Destroy) -> Result<(ClusterId, BackendConfig, Option<WorkersOn>)> {
    if let Some(env) = &command.env {
        let source = Source {
            env: Some(env.clone()),
            ..Source::default()
        };
        let found = session.load_whereabouts(&source)?;
        if found.cluster != command.cluster {
            let (env, name) = (env.display(), &found.cluster);
            let text = format!("{env} describes cluster {name}, not {}", command.cluster);
            return Err(CommandError::new(Kind::Usage, text).into());
        }
        let id = ClusterId::new(&found.cluster, &found.domain);
        return Ok((id, found.backend, found.workers_on));
    }
    let known = session.known(&command.cluster)?;
    Ok((known.id(), known.backend, known.workers_on))
}

/// Shows what would go and asks; anything but a yes is a no.
fn confirm(cluster: &ClusterId, owned: &[Owned]) -> Result<()> {
    if !std::io::stdin().is_terminal() {
        return Err(CommandError::new(
            Kind::Usage,
            format!("destroying {cluster} wants a yes, and there is nobody to ask"),
        )
        .hint("add --yes, or look first with --dry-run")
        .into());
    }
    let mut terminal = std::io::stderr().lock();
    write!(terminal, "{}destroy {cluster}? [y/N] ", report::owned(cluster, owned))?;
    terminal.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(CommandError::new(Kind::Usage, "nothing was destroyed").into()),
    }
}
