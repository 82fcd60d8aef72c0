//! `ocpdeploy dns`.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use similar::TextDiff;

use super::output::print_result;
use super::saved_settings::{self, Counts};
use super::session::Session;
use crate::cli::{Again, Dns, DnsApply, DnsHow, DnsRemove, DnsTarget, DnsVerb};
use crate::cluster::{self, ClusterDomain};
use crate::error::{ErrorKind, OperationError};
use crate::local::client_dns::{self, Change, Computer, How};
use crate::local::reach;
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
    let parameters = reach::seen_from_here(session.without_removed(parameters)?);
    let computer = Computer::new(&command.target.root);
    let how = match command.how {
        DnsHow::Hosts => How::Hosts,
        DnsHow::NetworkManager => How::NetworkManager,
        DnsHow::Resolved => How::Resolved,
    };
    if how == How::Hosts {
        for rival in computer.rivals(&known.cluster_domain())? {
            tracing::warn!("{rival}: this line was not written by ocpdeploy and may take precedence");
        }
    }
    if how == How::Resolved {
        refuse_without_servers(session, &known)?;
    }
    // With another root directory, this computer's resolver is not changed.
    if !command.dry_run && computer.is_this() {
        refuse_simulated_table(&known, &parameters)?;
    }
    let change = match command.dry_run {
        true => {
            computer.check(how)?;
            computer.plan(&parameters, how)?
        }
        false => client_dns::apply(&computer, &session.home.cluster(&known.name), &parameters, how)?,
    };
    let path = change.path.display();
    let id = known.cluster_domain();
    let resolver = Resolver::new(&id, command.dry_run, std::slice::from_ref(&change));
    print_result(&command.target.output, &resolver, || {
        match (command.dry_run, change.is_none()) {
            (true, _) => difference(&change),
            (false, true) => format!("{path} already has the names of cluster {id}\n"),
            (false, false) => format!("added the names of cluster {id} to {path}\n"),
        }
    })
}

/// With `dns=user`, the masters answer no queries. If the settings cannot be read, this is not known.
fn refuse_without_servers(session: &Session, known: &Known) -> Result<()> {
    let Ok(recalled) = saved_settings::load(session, &known.name, &Again { env: None }, &Counts::default()) else {
        return Ok(());
    };
    if recalled.config.dns != cluster::Dns::User {
        return Ok(());
    }
    let text = format!(
        "the masters of cluster {} answer no queries: it has dns=user",
        known.cluster_domain()
    );
    Err(OperationError::new(ErrorKind::Settings, text)
        .hint("your own DNS resolves the names; for this computer only, use --how hosts")
        .into())
}

fn remove(session: &Session, command: &DnsRemove) -> Result<()> {
    let (id, dir) = whose(session, &command.target)?;
    let computer = Computer::new(&command.target.root);
    let changes = match command.dry_run {
        true => {
            let places = client_dns::places(dir.as_ref())?.into_iter();
            places
                .map(|how| computer.plan_removal(&id, how))
                .collect::<Result<Vec<_>, _>>()?
        }
        false => client_dns::remove(&computer, dir.as_ref(), &id)?,
    };
    let line = |change: &Change| format!("removed the names of cluster {id} from {}\n", change.path.display());
    let resolver = Resolver::new(&id, command.dry_run, &changes);
    print_result(&command.target.output, &resolver, || {
        match (command.dry_run, changes.is_empty()) {
            (true, _) => changes.iter().map(difference).collect(),
            (false, true) => format!("the local resolver has no names of cluster {id}\n"),
            (false, false) => changes.iter().map(line).collect(),
        }
    })
}

fn show(session: &Session, target: &DnsTarget) -> Result<()> {
    let (known, parameters) = session.harvested(target.cluster.as_deref())?;
    let parameters = reach::seen_from_here(session.without_removed(parameters)?);
    let computer = Computer::new(&target.root);
    let how = client_dns::applied(&session.home.cluster(&known.name))?;
    let change = computer.plan(&parameters, how.unwrap_or(How::Hosts))?;
    let path = change.path.display();
    let id = known.cluster_domain();
    let resolver = Resolver::new(&id, true, std::slice::from_ref(&change));
    print_result(&target.output, &resolver, || match (how, change.is_none()) {
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

/// The cluster's id, and its directory if it exists. A name with dots is an id, whose cluster may have no record.
fn whose(session: &Session, target: &DnsTarget) -> Result<(ClusterDomain, Option<ClusterDir>)> {
    let id = target.cluster.as_deref().and_then(|name| name.split_once('.'));
    let name = match id {
        Some((name, _)) => name.to_owned(),
        None => session.cluster_name(target.cluster.as_deref())?,
    };
    let dir = session.home.cluster(&name);
    let known = Known::read(&dir)?.map(|known| known.cluster_domain());
    match (id.map(|(name, domain)| ClusterDomain::new(name, domain)), known) {
        (Some(id), known) => {
            let dir = (known.as_ref() == Some(&id)).then_some(dir);
            Ok((id, dir))
        }
        (None, Some(known)) => Ok((known, Some(dir))),
        (None, None) => Err(InventoryError::Unknown { cluster: name }.into()),
    }
}

/// The changes to the local resolver, made or planned.
#[derive(Serialize)]
struct Resolver<'a> {
    #[serde(flatten, serialize_with = "ClusterDomain::as_keys")]
    cluster: &'a ClusterDomain,
    dry_run: bool,
    files: Vec<ResolverFile<'a>>,
}

#[derive(Serialize)]
struct ResolverFile<'a> {
    path: &'a Path,
    changed: bool,
    difference: String,
}

impl<'a> Resolver<'a> {
    fn new(cluster: &'a ClusterDomain, dry_run: bool, changes: &'a [Change]) -> Self {
        let file = |change: &'a Change| ResolverFile {
            path: &change.path,
            changed: !change.is_none(),
            difference: match change.is_none() {
                true => String::new(),
                false => difference(change),
            },
        };
        Self {
            cluster,
            dry_run,
            files: changes.iter().map(file).collect(),
        }
    }
}

/// The planned changes, as `diff -u` shows them.
fn difference(change: &Change) -> String {
    let path = change.path.display().to_string();
    if change.is_none() {
        return format!("no changes needed in {path}\n");
    }
    let before = change.before.as_deref().unwrap_or_default();
    let after = change.after.as_deref().unwrap_or_default();
    TextDiff::from_lines(before, after)
        .unified_diff()
        .context_radius(1)
        .header(&path, &path)
        .to_string()
}
