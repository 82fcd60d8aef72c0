//! `ocpdeploy node`.

use std::os::unix::process::CommandExt;
use std::time::Duration;

use anyhow::Result;

use super::{Session, connect_for, connect_known, console, print, saved_settings, scale};
use crate::backend::Backend;
use crate::cli::{Node, NodeConsole, NodeReplace, NodeSsh, NodeVerb};
use crate::cluster::{MachineName, NodeName};
use crate::failure::{CommandError, Kind};
use crate::local::ssh;
use crate::local::subprocess;
use crate::passes::{self, PassError};
use crate::printable::printable_console;

/// Between two looks at a console.
const PAUSE: Duration = Duration::from_secs(1);

pub fn run(session: &Session, command: &Node) -> Result<()> {
    match &command.verb {
        NodeVerb::Replace(command) => replace(session, command),
        NodeVerb::Ssh(command) => log_on(session, command),
        NodeVerb::Console(command) => show_console(session, command),
    }
}

fn replace(session: &Session, command: &NodeReplace) -> Result<()> {
    let cluster = session.cluster_name(command.cluster.as_deref())?;
    let config = saved_settings::load(session, &cluster, &command.again, None)?.config;
    let (node, drain) = (NodeName::from_platform(&command.node), scale::drain(&command.drain));
    session.progress.log_to(&session.home.cluster(&cluster));
    let node = session.finish_or_stop(async {
        let backend = connect_for(&config).await?;
        passes::replace(&backend, &config, &session.home, &node, drain).await
    })?;
    print(&format!(
        "{} of cluster {} recreated with {} and {}\n",
        node.name,
        config.id(),
        node.mac,
        node.ip
    ))
}

/// Becomes the user's own ssh.
fn log_on(session: &Session, command: &NodeSsh) -> Result<()> {
    let (known, table) = session.harvested(command.cluster.as_deref())?;
    let name = NodeName::from_platform(&command.node);
    let node = table.node(&name).ok_or_else(|| PassError::NoNode {
        cluster: known.name.clone(),
        node: name.clone(),
        known: table.nodes.iter().map(|node| node.name.clone()).collect(),
    })?;
    passes::refuse_pretend(&known.name, known.backend_of(node.role), node.ip)?;
    let host = table.id().fqdn(name.as_str());
    let dir = session.home.cluster(&known.name);
    let asked = subprocess::command("ssh").args(["-G", &ssh::target(node.ip)]).output();
    let own_timeout = asked.is_ok_and(|asked| ssh::has_connect_timeout(&String::from_utf8_lossy(&asked.stdout)));
    let key = command.key.as_deref();
    let arguments = ssh::arguments(&dir, &host, node.ip, key, own_timeout, &command.command);
    // It returns only when it failed.
    let error = subprocess::command("ssh").args(arguments).exec();
    let hint = "install the OpenSSH client";
    Err(CommandError::new(Kind::Tool, format!("cannot run ssh: {error}"))
        .hint(hint)
        .into())
}

fn show_console(session: &Session, command: &NodeConsole) -> Result<()> {
    let known = session.known(&session.cluster_name(command.cluster.as_deref())?)?;
    let machine = MachineName::of_node(&known.name, &NodeName::from_platform(&command.node));
    if command.interactive {
        return console::attach(&known, &machine);
    }
    session.finish_or_stop(async {
        let backend = connect_known(&known).await?;
        let mut before = backend.console_tail(&known.id(), &machine).await?.ok_or_else(|| {
            CommandError::new(
                Kind::Platform,
                format!("the platform keeps no console output of {machine}, or it is empty"),
            )
        })?;
        print(&ended(&printable_console(&before)))?;
        if !command.follow {
            return Ok(());
        }
        loop {
            tokio::time::sleep(PAUSE).await;
            let now = backend.console_tail(&known.id(), &machine).await?.unwrap_or_default();
            print(&ended(&printable_console(news(&before, &now))))?;
            before = now;
        }
    })
}

/// With a new line at its end, unless it is empty.
fn ended(text: &str) -> String {
    match text.is_empty() || text.ends_with('\n') {
        true => text.to_owned(),
        false => format!("{text}\n"),
    }
}

/// What a later tail of a console has after the lines that an earlier one ended with.
fn news<'a>(before: &str, now: &'a str) -> &'a str {
    let before: Vec<&str> = before.lines().collect();
    let lines: Vec<&str> = now.lines().collect();
    let known = (0..=lines.len().min(before.len())).rev();
    let known = known
        .into_iter()
        .find(|count| before.ends_with(&lines[..*count]))
        .unwrap_or(0);
    match lines.get(known) {
        Some(first) => &now[first.as_ptr() as usize - now.as_ptr() as usize..],
        None => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_console_goes_on_after_its_last_known_line() {
        for (before, now, more) in [
            ("", "a\nb\n", "a\nb\n"),
            ("a\nb", "a\nb", ""),
            ("a\nb", "b\nc\nd", "c\nd"),
            ("a\nb", "a\nb\nb", "b"),
            ("a\nb", "x\ny", "x\ny"),
            ("a", "", ""),
        ] {
            assert_eq!(news(before, now), more, "{before:?} {now:?}");
        }
    }
}
