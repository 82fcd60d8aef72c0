//! `ocpdeploy node` and `ocpdeploy machine`: one node, or its machine on the platform.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::args::{Again, Drain, Output, cluster_name, node_name};

/// Recreate a node, log in to it, or use its console
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

/// Recreate a node with the same name, MAC and address, and an empty disk
///
/// Drains and removes the node, then creates it with a current pointer config from the
/// cluster. Replaces a master only if its etcd member has been removed and all other
/// members are voting members; then waits until the new master is a voting member.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy node replace worker-1
  ocpdeploy node replace worker-1 --cluster lab --force   # its kubelet is down")]
pub struct NodeReplace {
    /// Node, e.g. worker-1
    #[arg(value_parser = node_name)]
    pub node: String,
    /// Name of the cluster [default: from ./env.sh, or the only cluster]
    #[arg(long, value_name = "NAME", value_parser = cluster_name)]
    pub cluster: Option<String>,
    #[command(flatten)]
    pub again: Again,
    #[command(flatten)]
    pub drain: Drain,
}

/// Log in to a node as user core, or run a command there
///
/// Runs ssh with your agent and configuration. Host keys of the nodes are kept in the
/// cluster's directory. With a command, ssh never prompts, and ocpdeploy returns the
/// command's output and exit code.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy node ssh master-0
  ocpdeploy node ssh worker-1 --key ~/.ssh/lab -- journalctl -b -u kubelet")]
pub struct NodeSsh {
    /// Node, e.g. master-0
    #[arg(value_parser = node_name)]
    pub node: String,
    /// Name of the cluster [default: from ./env.sh, or the only cluster]
    #[arg(long, value_name = "NAME", value_parser = cluster_name)]
    pub cluster: Option<String>,
    /// Private key [default: ssh's default]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub key: Option<PathBuf>,
    /// Command to run instead of a shell
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Show the last lines of a node's serial console, or attach to it
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy node console bootstrap
  ocpdeploy node console worker-1 --follow          # until Ctrl-C
  ocpdeploy node console worker-1 --interactive     # until Ctrl-]")]
pub struct NodeConsole {
    /// Node, e.g. master-0
    #[arg(value_parser = node_name)]
    pub node: String,
    /// Name of the cluster [default: from ./env.sh, or the only cluster]
    #[arg(long, value_name = "NAME", value_parser = cluster_name)]
    pub cluster: Option<String>,
    /// Continue with new output
    #[arg(short, long)]
    pub follow: bool,
    /// Attach to the console and send input to it [libvirt, KubeVirt]
    #[arg(short, long, conflicts_with = "follow")]
    pub interactive: bool,
}

/// Show machines as the platform reports them
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

/// Show a node's machine: placement, state and hardware
///
/// The same format on every platform, followed by the platform's own description,
/// such as libvirt's domain XML. Leaves out the machine's first-boot configuration.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy machine show master-0
  ocpdeploy machine show worker-1 --cluster lab --output json")]
pub struct MachineShow {
    /// Node, e.g. master-0
    #[arg(value_parser = node_name)]
    pub node: String,
    /// Name of the cluster [default: from ./env.sh, or the only cluster]
    #[arg(long, value_name = "NAME", value_parser = cluster_name)]
    pub cluster: Option<String>,
    #[command(flatten)]
    pub output: Output,
}
