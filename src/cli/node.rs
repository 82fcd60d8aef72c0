//! `ocpdeploy node` and `ocpdeploy machine`: one node, or what the platform has of it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::args::{Again, Drain, Output, cluster_name};

/// Make a node anew, log on to it, or read its console
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy node replace worker-1
  ocpdeploy node ssh master-0
  ocpdeploy node console worker-1 --follow")]
pub struct Node {
    #[command(subcommand)]
    pub verb: NodeVerb,
}

#[derive(Debug, Subcommand)]
pub enum NodeVerb {
    Replace(NodeReplace),
    Ssh(NodeSsh),
    Console(NodeConsole),
}

/// Make a node anew: same name, MAC and address, an empty disk
///
/// It is emptied and removed, then made with a pointer that the cluster gives now. A
/// master is replaced only when its member was removed from etcd and all others are
/// voting members; the command ends when the new master is one, too.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy node replace worker-1
  ocpdeploy node replace worker-1 --cluster lab --force   # its kubelet is dead")]
pub struct NodeReplace {
    /// The node, e.g. worker-1
    pub node: String,
    /// Name of the cluster [default: the one of ./env.sh, or the only one here]
    #[arg(long, value_name = "NAME", value_parser = cluster_name)]
    pub cluster: Option<String>,
    #[command(flatten)]
    pub again: Again,
    #[command(flatten)]
    pub drain: Drain,
}

/// Log in to a node as user core, or run a command there
///
/// Your own ssh is used, with your agent and settings; the keys by which it knows the
/// nodes are kept in the cluster's folder. A command never asks for a password; its
/// output and exit code are handed on.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy node ssh master-0
  ocpdeploy node ssh worker-1 --key ~/.ssh/lab -- journalctl -b -u kubelet")]
pub struct NodeSsh {
    /// The node, e.g. master-0
    pub node: String,
    /// Name of the cluster [default: the one of ./env.sh, or the only one here]
    #[arg(long, value_name = "NAME", value_parser = cluster_name)]
    pub cluster: Option<String>,
    /// The private key [default: as ssh finds it]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub key: Option<PathBuf>,
    /// What to run there instead of a shell
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Show the last lines of a node's serial console, or sit down at it
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy node console bootstrap
  ocpdeploy node console worker-1 --follow          # until Ctrl-C
  ocpdeploy node console worker-1 --interactive     # until Ctrl-]")]
pub struct NodeConsole {
    /// The node, e.g. master-0
    pub node: String,
    /// Name of the cluster [default: the one of ./env.sh, or the only one here]
    #[arg(long, value_name = "NAME", value_parser = cluster_name)]
    pub cluster: Option<String>,
    /// Go on with what comes
    #[arg(short, long)]
    pub follow: bool,
    /// Sit down at it: what is typed goes to the node [libvirt, KubeVirt]
    #[arg(short, long, conflicts_with = "follow")]
    pub interactive: bool,
}

/// Machines as the platform has them
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy machine show master-0
  ocpdeploy machine show bootstrap --output json")]
pub struct Machine {
    #[command(subcommand)]
    pub verb: MachineVerb,
}

#[derive(Debug, Subcommand)]
pub enum MachineVerb {
    Show(MachineShow),
}

/// Show a node's machine: where it may run, what it does, how it is made
///
/// The same on every platform, and the platform's own description at its end: domain
/// XML or oVirt's. What the machine is told at its first boot is left out.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy machine show master-0
  ocpdeploy machine show worker-1 --cluster lab --output json")]
pub struct MachineShow {
    /// The node, e.g. master-0
    pub node: String,
    /// Name of the cluster [default: the one of ./env.sh, or the only one here]
    #[arg(long, value_name = "NAME", value_parser = cluster_name)]
    pub cluster: Option<String>,
    #[command(flatten)]
    pub output: Output,
}
