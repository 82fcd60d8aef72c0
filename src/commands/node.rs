//! `ocpdeploy node`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use super::confirm::{self, Loss, with_dry_run};
use super::output::{print, print_result};
use super::platform::{connect_for, connect_known};
use super::saved_settings::{self, Counts};
use super::session::{Session, runtime};
use super::{console, external, machine, scale};
use crate::cli::{Node, NodeConsole, NodeReplace, NodeSsh, NodeVerb};
use crate::cluster::MachineName;
use crate::error::{ErrorKind, OperationError};
use crate::local::ssh::{self, SshError};
use crate::passes;
use crate::plan::Change;
use crate::printable::printable_console;
use crate::report::changes::{Preview, Replaced};

/// The pause between two queries of a console.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs a subcommand. The exit code of `node ssh` is that of the command on the node.
pub fn run(session: &Session, command: &Node) -> Result<ExitCode> {
    match &command.verb {
        NodeVerb::Show(command) => machine::show(session, command),
        NodeVerb::Replace(command) => replace(session, command),
        NodeVerb::JoinFile(command) => external::join_file(session, command),
        NodeVerb::Join(command) => external::join(session, command),
        NodeVerb::Remove(command) => external::remove(session, command),
        NodeVerb::Ssh(command) => return log_on(session, command),
        NodeVerb::Console(command) => show_console(session, command),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn replace(session: &Session, command: &NodeReplace) -> Result<()> {
    let cluster = session.cluster_name(command.node.of.cluster.as_deref())?;
    let recalled = saved_settings::load(session, &cluster, &command.again, &Counts::default())?;
    let config = &recalled.config;
    let node = command.node.node.clone();
    let drain = scale::drain(&command.drain);
    let id = config.id();
    let confirmed = |changes: &[Change]| {
        let preview = Preview::new(id.domain(), changes);
        if command.dry_run {
            return print_result(&command.output, &preview, || preview.text()).map(|()| false);
        }
        if preview.losses() == 0 {
            return Ok(true);
        }
        let unnamed = command.node.of.cluster.is_none().then_some(cluster.as_str());
        let loss = Loss {
            operation: &format!("replace {node} of {id}"),
            cluster: &id,
            text: &preview.text(),
            hint: &with_dry_run(&confirm::hint(&["--yes"], unnamed, Some(node.as_str()))),
            canceled: "nothing was changed",
            typed: None,
        };
        loss.confirm(&command.confirmation).map(|()| true)
    };
    session.progress.log_to(&session.home.cluster(&cluster));
    let node = session.finish_or_stop(async {
        let backend = connect_for(config).await?;
        passes::replace(&backend, config, &session.home, &node, drain, confirmed).await
    })?;
    let Some(node) = node else { return Ok(()) };
    recalled.keep(session)?;
    let replaced = Replaced {
        cluster: config.cluster_domain(),
        node,
    };
    print_result(&command.output, &replaced, || replaced.text())
}

/// Replaces this process by the user's ssh, or runs a command on the node.
fn log_on(session: &Session, command: &NodeSsh) -> Result<ExitCode> {
    let node = command.node()?;
    let (known, table) = session.harvested(Some(&session.cluster_of_node(&node)?))?;
    let node = session.node_of(&table, &node.node)?;
    passes::refuse_simulated(&known.name, known.backend_of(&node.name), node.ip)?;
    let dir = session.home.cluster(&known.name);
    let node = ssh::Node {
        key: command.key.as_deref(),
        ..ssh::Node::of(&dir, &table.cluster_domain(), node)
    };
    if let Some((program, arguments)) = command.command.split_first() {
        return runtime()?.block_on(run_on(&node, program, arguments));
    }
    // `exec` returns only if it failed.
    Err(no_ssh(&SshError::NotRun(node.shell().exec())).into())
}

/// Runs a command with this process's stdin, stdout and stderr. As with ssh, its words are joined and the node's shell
/// parses them.
async fn run_on(node: &ssh::Node<'_>, program: &OsString, arguments: &[OsString]) -> Result<ExitCode> {
    let connection = node.connect().await.map_err(|error| no_ssh(&error))?;
    let mut command = connection.raw_command(program);
    let ended = tokio::select! {
        ended = command.raw_args(arguments).status() => ended,
        _ = tokio::signal::ctrl_c() => Err(openssh::Error::Disconnected),
    };
    drop(command);
    // Its socket is removed in any case.
    let _ = connection.close().await;
    let status = ended
        .map_err(|error| OperationError::new(ErrorKind::Tool, format!("the command on {}: {error}", node.host)))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

fn no_ssh(error: &SshError) -> OperationError {
    let hint = match error {
        SshError::NotRun(_) => "install the OpenSSH client",
        _ => "a command runs without prompts; without a command, `ocpdeploy node ssh` can prompt for a passphrase",
    };
    OperationError::new(ErrorKind::Tool, error.to_string()).hint(hint)
}

fn show_console(session: &Session, command: &NodeConsole) -> Result<()> {
    let (known, node) = session.node(&command.node)?;
    let machine = MachineName::of_node(&known.name, &node);
    if command.interactive {
        return console::attach(&known, &machine);
    }
    session.finish_or_stop(async {
        let backend = connect_known(&known).await?;
        let keeps_none = || {
            OperationError::new(
                ErrorKind::Platform,
                format!("the platform keeps no console output of {machine}, or it is empty"),
            )
        };
        let id = known.id();
        let mut before = backend.console_tail(&id, &machine).await?.ok_or_else(keeps_none)?;
        print(&ended(&printable_console(&before)))?;
        if !command.follow {
            return Ok(());
        }
        loop {
            tokio::time::sleep(PAUSE).await;
            let now = backend.console_tail(&id, &machine).await?.unwrap_or_default();
            print(&ended(&printable_console(news(&before, &now))))?;
            before = now;
        }
    })
}

/// Adds a trailing line break, unless the text is empty.
fn ended(text: &str) -> String {
    match text.is_empty() || text.ends_with('\n') {
        true => text.to_owned(),
        false => format!("{text}\n"),
    }
}

/// The lines of a later console tail after the last lines of an earlier one.
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
    fn a_console_continues_after_its_last_known_line() {
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
