//! `ocpdeploy dns`.

use anyhow::Result;
use similar::TextDiff;

use super::output::print;
use super::saved_settings;
use super::session::Session;
use crate::cli::{Again, Dns, DnsApply, DnsHow, DnsRemove, DnsTarget, DnsVerb};
use crate::cluster::{self, ClusterId};
use crate::failure::{CommandError, Kind};
use crate::local::client_dns::{self, Change, Computer, How};
use crate::passes::refuse_simulated_table;
use crate::state::home::ClusterDir;
use crate::state::inventory::{InventoryError, Known};

pub fn run(session: &Session, command: &Dns) -> Result<()> {
    match &command.verb {
        DnsVerb::Apply(command) => apply(session, command),
        DnsVerb::Remove(command) => remove(session, command),
        DnsVerb::Show(command) => show(session, &command.target),
    }
}

fn apply(session: &Session, command: &DnsApply) -> Result<()> {
    let (known, parameters) = session.harvested(command.target.cluster.as_deref())?;
    let computer = Computer::new(&command.target.root);
    let how = match command.how {
        DnsHow::Hosts => How::Hosts,
        DnsHow::NetworkManager => How::NetworkManager,
        DnsHow::Resolved => How::Resolved,
    };
    if how == How::Hosts {
        for rival in computer.rivals(&known.id())? {
            tracing::warn!("{rival}: this line was not written by ocpdeploy and may take precedence");
        }
    }
    if how == How::Resolved {
        refuse_without_servers(session, &known)?;
    }
    // Another folder in place of `/` is not this computer's resolver.
    if !command.dry_run && computer.is_this() {
        refuse_simulated_table(&known, &parameters)?;
    }
    if command.dry_run {
        computer.check(how)?;
        return print(&difference(&computer.plan(&parameters, how)?));
    }
    let change = client_dns::apply(&computer, &session.home.cluster(&known.name), &parameters, how)?;
    print(&match change.is_none() {
        true => format!(
            "{} already has the names of cluster {}\n",
            change.path.display(),
            known.id()
        ),
        false => format!(
            "added the names of cluster {1} to {0}\n",
            change.path.display(),
            known.id()
        ),
    })
}

/// With `dns=user` no master answers queries. Without readable settings that is not known.
fn refuse_without_servers(session: &Session, known: &Known) -> Result<()> {
    let Ok(recalled) = saved_settings::load(session, &known.name, &Again { env: None }, None) else {
        return Ok(());
    };
    if recalled.config.dns != cluster::Dns::User {
        return Ok(());
    }
    let text = format!(
        "the masters of cluster {} answer no queries: it has dns=user",
        known.id()
    );
    Err(CommandError::new(Kind::Settings, text)
        .hint("your own DNS has the names; for this computer alone use --how hosts")
        .into())
}

fn remove(session: &Session, command: &DnsRemove) -> Result<()> {
    let (id, dir) = whose(session, &command.target)?;
    let computer = Computer::new(&command.target.root);
    if command.dry_run {
        let mut text = String::new();
        for how in client_dns::places(dir.as_ref())? {
            text += &difference(&computer.plan_removal(&id, how)?);
        }
        return print(&text);
    }
    let changes = client_dns::remove(&computer, dir.as_ref(), &id)?;
    if changes.is_empty() {
        return print(&format!("the local resolver has no names of cluster {id}\n"));
    }
    let line = |change: &Change| format!("removed the names of cluster {id} from {}\n", change.path.display());
    print(&changes.iter().map(line).collect::<String>())
}

fn show(session: &Session, target: &DnsTarget) -> Result<()> {
    let (known, parameters) = session.harvested(target.cluster.as_deref())?;
    let computer = Computer::new(&target.root);
    let how = client_dns::applied(&session.home.cluster(&known.name))?;
    let change = computer.plan(&parameters, how.unwrap_or(How::Hosts))?;
    let (path, id) = (change.path.display(), known.id());
    print(&match (how, change.is_none()) {
        (_, true) => format!("{path} has the names of cluster {id}\n"),
        (Some(_), false) => format!(
            "{path} has outdated names of cluster {id}; `ocpdeploy dns apply` would change:\n{}",
            difference(&change)
        ),
        (None, false) => format!(
            "the local resolver is not configured for cluster {id}; `ocpdeploy dns apply` would change {path}:\n{}",
            difference(&change)
        ),
    })
}

/// The cluster's id, and its folder if there is one. A name with dots is an id: nothing may be known of it any more.
fn whose(session: &Session, target: &DnsTarget) -> Result<(ClusterId, Option<ClusterDir>)> {
    let id = target.cluster.as_deref().and_then(|name| name.split_once('.'));
    let name = match id {
        Some((name, _)) => name.to_owned(),
        None => session.cluster_name(target.cluster.as_deref())?,
    };
    let dir = session.home.cluster(&name);
    let known = Known::read(&dir)?.map(|known| known.id());
    match (id.map(|(name, domain)| ClusterId::new(name, domain)), known) {
        (Some(id), known) => {
            let dir = (known.as_ref() == Some(&id)).then_some(dir);
            Ok((id, dir))
        }
        (None, Some(known)) => Ok((known, Some(dir))),
        (None, None) => Err(InventoryError::Unknown { cluster: name }.into()),
    }
}

/// What would change, as `diff -u` shows it.
fn difference(change: &Change) -> String {
    let path = change.path.display().to_string();
    if change.is_none() {
        return format!("no changes needed in {path}\n");
    }
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (before, after) = (text(&change.before), text(&change.after));
    TextDiff::from_lines(&before, &after)
        .unified_diff()
        .context_radius(1)
        .header(&path, &path)
        .to_string()
}
