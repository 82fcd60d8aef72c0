//! `ocpdeploy node`: one node and its machine.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::args::{Again, Drain, OneCluster, OneNode, Output, node_name};

/// Show a node, log in to it, use its console, or recreate it
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy node show worker-1            # of the only cluster
  ocpdeploy node ssh lab master-0
  ocpdeploy node console worker-1 --follow
  ocpdeploy node replace lab worker-1")]
pub struct Node {
    #[command(subcommand)]
    pub verb: NodeVerb,
}

#[derive(Debug, Subcommand)]
pub enum NodeVerb {
    Show(NodeShow),
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
#[command(
    allow_missing_positional = true,
    after_long_help = "\
Examples:
  ocpdeploy node replace worker-1
  ocpdeploy node replace lab worker-1 --force   # its kubelet is down"
)]
pub struct NodeReplace {
    #[command(flatten)]
    pub node: OneNode,
    #[command(flatten)]
    pub again: Again,
    #[command(flatten)]
    pub drain: Drain,
    #[command(flatten)]
    pub output: Output,
}

/// Log in to a node as user core, or run a command there
///
/// Runs ssh with your agent and configuration. Host keys of the nodes are kept in the
/// cluster's directory. With a command, ssh never prompts, and ocpdeploy returns the
/// command's output and exit code.
#[derive(Debug, Args)]
#[command(
    override_usage = "ocpdeploy node ssh [OPTIONS] [CLUSTER] <NODE> [-- <COMMAND>...]",
    after_long_help = "\
Examples:
  ocpdeploy node ssh master-0
  ocpdeploy node ssh worker-1 --key ~/.ssh/lab -- journalctl -b -u kubelet"
)]
pub struct NodeSsh {
    /// Node, e.g. master-0, after its cluster [default: from ./env.sh, or the only cluster]
    // clap knows no optional argument before a required one where a command follows.
    #[arg(required = true, num_args = 1..=2, value_names = ["CLUSTER", "NODE"], value_parser = node_name)]
    node: Vec<String>,
    /// Private key [default: ssh's default]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub key: Option<PathBuf>,
    /// Command to run instead of a shell
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

impl NodeSsh {
    pub fn node(&self) -> OneNode {
        let mut names = self.node.iter().rev().cloned();
        OneNode {
            node: names.next().unwrap_or_default(),
            of: OneCluster { cluster: names.next() },
        }
    }
}

/// Show the last lines of a node's serial console, or attach to it
#[derive(Debug, Args)]
#[command(
    allow_missing_positional = true,
    after_long_help = "\
Examples:
  ocpdeploy node console bootstrap
  ocpdeploy node console worker-1 --follow          # until Ctrl-C
  ocpdeploy node console worker-1 --interactive     # until Ctrl-]"
)]
pub struct NodeConsole {
    #[command(flatten)]
    pub node: OneNode,
    /// Continue with new output
    #[arg(short, long)]
    pub follow: bool,
    /// Attach to the console and send input to it [libvirt, KubeVirt]
    #[arg(short, long, conflicts_with = "follow")]
    pub interactive: bool,
}

/// Show a node's machine: placement, state and hardware
///
/// The same format on every platform, followed by the platform's own description,
/// such as libvirt's domain XML. Leaves out the machine's first-boot configuration.
#[derive(Debug, Args)]
#[command(
    allow_missing_positional = true,
    after_long_help = "\
Examples:
  ocpdeploy node show master-0
  ocpdeploy node show lab worker-1 --format json"
)]
pub struct NodeShow {
    #[command(flatten)]
    pub node: OneNode,
    #[command(flatten)]
    pub output: Output,
}
