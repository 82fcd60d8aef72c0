//! Shell completion: for each completion, the shell calls this program, which knows clusters, nodes and settings.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Arg, Command, CommandFactory};
use clap_complete::env::Shells;
use clap_complete::{ArgValueCompleter, CompleteEnv, CompletionCandidate, Shell};

use super::session;
use crate::artifacts::catalogue;
use crate::cli::Cli;
use crate::passes::snapshot;
use crate::settings::profile;
use crate::settings::variables::{self, Kind, VARIABLES};
use crate::state::home::Home;
use crate::state::inventory::{self, Cluster};
use crate::state::journal;

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
    // The cluster may be left out before a node or a snapshot.
    let has = |id: &str| command.get_arguments().any(|arg| arg.get_id() == id);
    let is_before_node = has("node") || has("nodes");
    let is_before_snapshot = has("name") && command.get_name() != "save";
    let add = |arg: Arg| match arg.get_id().as_str() {
        "cluster" if is_before_node && arg.is_positional() => arg.add(names(nodes)),
        "cluster" if is_before_snapshot && arg.is_positional() => arg.add(names(snapshots)),
        "cluster" => arg.add(ArgValueCompleter::new(|start: &OsStr| candidates(start, clusters()))),
        "node" => arg.add(names(nodes)),
        "nodes" => arg.add(ArgValueCompleter::new(|start: &OsStr| {
            candidates(start, of_cluster(nodes))
        })),
        "name" if is_before_snapshot => arg.add(names(snapshots)),
        "pools" => arg.add(ArgValueCompleter::new(|start: &OsStr| {
            candidates(start, of_cluster(pools))
        })),
        "images" => arg.add(ArgValueCompleter::new(|start: &OsStr| {
            candidates(
                start,
                catalogue::harvest_images().iter().map(|image| image.name.clone()),
            )
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

/// Names of the cluster on the command line; without one, all clusters, and its names if there is only one.
fn names(of: fn(&Cluster) -> Vec<String>) -> ArgValueCompleter {
    ArgValueCompleter::new(move |start: &OsStr| {
        let names = of_cluster(of);
        match named_cluster(&inventory()) {
            Some(_) => candidates(start, names),
            None => candidates(start, clusters().into_iter().chain(names)),
        }
    })
}

/// Names of the cluster on the command line, or without one, of the only cluster.
fn of_cluster(of: fn(&Cluster) -> Vec<String>) -> Vec<String> {
    let all = inventory();
    let only = all.first().filter(|_| all.len() == 1);
    named_cluster(&all).or(only).map(of).unwrap_or_default()
}

fn named_cluster(all: &[Cluster]) -> Option<&Cluster> {
    let words = words();
    all.iter().find(|cluster| words.contains(&cluster.known.name))
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

/// The state directory; `--home` may be on the command line.
fn home() -> Option<Home> {
    let words = words();
    let at = words.iter().position(|word| word == "--home");
    let separate = at.and_then(|at| words.get(at + 1)).map(String::as_str);
    let given = separate.or(words.iter().find_map(|word| word.strip_prefix("--home=")));
    let variable = std::env::var_os("OCPDEPLOY_HOME");
    session::home(given.map(Path::new).or(variable.as_deref().map(Path::new))).ok()
}

/// The clusters in the state directory; none if it cannot be read.
fn inventory() -> Vec<Cluster> {
    home()
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

/// `POOL=` for each pool that has nodes.
fn pools(cluster: &Cluster) -> Vec<String> {
    let nodes = cluster.parameters.iter().flat_map(|table| &table.nodes);
    let pools: BTreeSet<&str> = nodes.filter_map(|node| node.name.pool()).collect();
    pools.into_iter().map(|pool| format!("{pool}=")).collect()
}

fn snapshots(cluster: &Cluster) -> Vec<String> {
    let entries = home().and_then(|home| journal::read(&home.cluster(&cluster.known.name).journal()).ok());
    snapshot::recorded(&entries.unwrap_or_default()).into_iter().collect()
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
