//! Shell completion: for each completion, the shell calls this program, which knows clusters, nodes and settings.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Arg, Command, CommandFactory};
use clap_complete::env::Shells;
use clap_complete::{ArgValueCompleter, CompleteEnv, CompletionCandidate, Shell};

use super::session;
use crate::artifacts::catalogue;
use crate::cli::Cli;
use crate::settings::profile;
use crate::settings::variables::{self, Kind, VARIABLES};
use crate::state::inventory::{self, Cluster};

const NAME: &str = "ocpdeploy";

/// The shell's script sets it to the shell's name.
const VARIABLE: &str = "OCPDEPLOY_COMPLETE";

/// If the shell requests completions, prints them and ends the process.
pub fn answer() {
    CompleteEnv::with_factory(|| with_values(Cli::command()))
        .var(VARIABLE)
        .complete();
}

/// The completion script of a shell.
pub(super) fn script(shell: Shell) -> Result<Vec<u8>> {
    let shells = Shells::builtins();
    let name = shell.to_string();
    let completer = shells
        .completer(&name)
        .with_context(|| format!("no completion for {name}"))?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, NAME, NAME, NAME, &mut script)?;
    Ok(script)
}

/// Adds completions that depend on this computer. An argument has the same name in all commands.
fn with_values(command: Command) -> Command {
    // The cluster may be left out before a node.
    let is_before_node = command.get_arguments().any(|arg| arg.get_id() == "node");
    let add = |arg: Arg| match arg.get_id().as_str() {
        "cluster" if is_before_node && arg.is_positional() => arg.add(ArgValueCompleter::new(names)),
        "cluster" => arg.add(ArgValueCompleter::new(|start: &OsStr| candidates(start, clusters()))),
        "node" => arg.add(ArgValueCompleter::new(names)),
        "images" => arg.add(ArgValueCompleter::new(|start: &OsStr| {
            candidates(start, catalogue::helpers().iter().map(|helper| helper.name.clone()))
        })),
        "sets" => arg.add(ArgValueCompleter::new(|start: &OsStr| candidates(start, settings()))),
        "profile" => arg.add(ArgValueCompleter::new(|start: &OsStr| candidates(start, profiles()))),
        "backend" => arg.add(ArgValueCompleter::new(|start: &OsStr| {
            candidates(start, choices("backend"))
        })),
        _ => arg,
    };
    command.mut_args(add).mut_subcommands(with_values)
}

/// The nodes of the cluster on the command line; without one, all clusters, and the nodes if there is only one.
fn names(start: &OsStr) -> Vec<CompletionCandidate> {
    let words = words();
    let all = inventory();
    let is_named = |cluster: &&Cluster| words.contains(&cluster.known.name);
    candidates(
        start,
        match all.iter().find(is_named) {
            Some(cluster) => nodes(cluster),
            None => {
                let nodes = all.first().filter(|_| all.len() == 1).map(nodes).unwrap_or_default();
                clusters().into_iter().chain(nodes).collect()
            }
        },
    )
}

/// The words before the one to complete: the shell's script passes the line after `--`, and the position.
fn words() -> Vec<String> {
    let line = std::env::args_os().skip_while(|word| word != "--").skip(1);
    let at = std::env::var("_CLAP_COMPLETE_INDEX")
        .ok()
        .and_then(|at| at.parse().ok());
    let words = line.take(at.unwrap_or(usize::MAX));
    words.map(|word| word.to_string_lossy().into_owned()).collect()
}

fn candidates(start: &OsStr, names: impl IntoIterator<Item = String>) -> Vec<CompletionCandidate> {
    let start = start.to_string_lossy();
    let names = names.into_iter().filter(|name| name.starts_with(&*start));
    names.map(CompletionCandidate::new).collect()
}

/// The clusters in the state directory; none if it cannot be read.
fn inventory() -> Vec<Cluster> {
    let words = words();
    let at = words.iter().position(|word| word == "--home");
    let separate = at.and_then(|at| words.get(at + 1)).map(String::as_str);
    let given = separate.or(words.iter().find_map(|word| word.strip_prefix("--home=")));
    let variable = std::env::var_os("OCPDEPLOY_HOME");
    let home = session::home(given.map(Path::new).or(variable.as_deref().map(Path::new)));
    home.ok()
        .and_then(|home| inventory::clusters(&home).ok())
        .unwrap_or_default()
}

fn clusters() -> Vec<String> {
    inventory().into_iter().map(|cluster| cluster.known.name).collect()
}

fn nodes(cluster: &Cluster) -> Vec<String> {
    let tables = cluster.parameters.iter();
    let nodes = tables.flat_map(|table| table.nodes.iter().chain(&table.external));
    nodes.map(|node| node.name.to_string()).collect()
}

fn profiles() -> Vec<String> {
    profile::SHIPPED.iter().map(|(name, _)| (*name).to_owned()).collect()
}

/// The values of a setting with few values.
fn choices(setting: &str) -> Vec<String> {
    let values: &[&str] = match variables::find(setting).map(|variable| variable.kind) {
        Some(Kind::Choice(choices)) => choices(),
        Some(Kind::Switch) => &["true", "false"],
        _ => &[],
    };
    values.iter().map(|value| (*value).to_owned()).collect()
}

/// `NAME=VALUE` of settings with few values, otherwise `NAME=`.
fn settings() -> Vec<String> {
    let of = |name: &str| match choices(name).as_slice() {
        [] if name == "profile" => profiles().iter().map(|value| format!("{name}={value}")).collect(),
        [] => vec![format!("{name}=")],
        values => values.iter().map(|value| format!("{name}={value}")).collect(),
    };
    VARIABLES.iter().flat_map(|variable| of(variable.name)).collect()
}
