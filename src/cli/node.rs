//! `ocpdeploy node`: one node and its machine.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::args::{Again, Confirmation, Drain, OneCluster, OneNode, Output, name_or_id, node_name};
use crate::cluster::Mac;
use crate::error::{ErrorKind, OperationError};

/// Show a node, log in to it, use its console, recreate it, or let other machines join
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy node show worker-1            # of the only cluster
  ocpdeploy node ssh lab master-0
  ocpdeploy node console worker-1 --follow
  ocpdeploy node replace lab worker-1
  ocpdeploy node join lab metal-0         # a machine of another platform")]
pub struct Node {
    #[command(subcommand)]
    pub verb: NodeVerb,
}

#[derive(Debug, Subcommand)]
pub enum NodeVerb {
    Show(NodeShow),
    Replace(NodeReplace),
    JoinFile(NodeJoinFile),
    Join(NodeJoin),
    Remove(NodeRemove),
    Ssh(NodeSsh),
    Console(NodeConsole),
}

/// Recreate a node with the same name, MAC and address, and an empty disk
///
/// Drains and removes the node, then creates it with a current pointer config from the
/// cluster. Prompts for confirmation, because all disks of the machine are deleted.
/// Replaces a master only if its etcd member has been removed and all other members are
/// voting members; then waits until the new master is a voting member.
#[derive(Debug, Args)]
#[command(
    allow_missing_positional = true,
    after_long_help = "\
Examples:
  ocpdeploy node replace worker-1               # prompts for confirmation
  ocpdeploy node replace lab worker-1 --yes
  ocpdeploy node replace lab worker-1 --force   # its kubelet is down"
)]
pub struct NodeReplace {
    #[command(flatten)]
    pub node: OneNode,
    /// Show which machine would be deleted and created again, without a change
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub confirmation: Confirmation,
    #[command(flatten)]
    pub again: Again,
    #[command(flatten)]
    pub drain: Drain,
    #[command(flatten)]
    pub output: Output,
}

/// Write the Ignition config of a machine that ocpdeploy did not create, such as bare metal
///
/// The machine becomes an external node: a worker that ocpdeploy never creates, starts,
/// stops or deletes. Its address is recorded with those of the other nodes. Name it
/// metal-0 or similar; the name of a node in pool gpu begins with gpu, such as gpu-100.
/// Repeat the command to write the file again, without --mac and --ip.
///
/// With --iso, also makes an ISO that installs CoreOS with this config. Requires
/// coreos-installer; without it, prints the command.
#[derive(Debug, Args)]
#[command(
    allow_missing_positional = true,
    after_long_help = "\
Examples:
  ocpdeploy node join-file metal-0 --mac 52:54:00:12:34:56 --ip 10.0.0.40
  ocpdeploy node join-file lab metal-0 --mac 52:54:00:12:34:56  # address_ranges
  ocpdeploy node join-file lab metal-0 --iso rhcos-live.iso --device /dev/sda"
)]
pub struct NodeJoinFile {
    #[command(flatten)]
    pub node: OneNode,
    /// MAC address of the NIC in the machine network; repeat it for nic1 and further NICs of network_config
    #[arg(long)]
    pub mac: Vec<Mac>,
    /// Address in the machine network [default: from address_ranges, with harvest=static]
    #[arg(long)]
    pub ip: Option<IpAddr>,
    /// Write the Ignition config to FILE [default: CLUSTER-NODE.ign]
    #[arg(short = 'o', long = "output", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// Live ISO of CoreOS; the new ISO is written beside FILE, with extension iso
    #[arg(long, value_name = "BASE.iso", requires = "device", value_hint = ValueHint::FilePath)]
    pub iso: Option<PathBuf>,
    /// Disk of the machine that the ISO overwrites without a prompt, e.g. /dev/sda
    #[arg(long)]
    pub device: Option<String>,
    #[command(flatten)]
    pub again: Again,
    #[command(flatten)]
    pub output: Output,
}

/// Wait until an external node is Ready, and approve its certificates meanwhile
///
/// Run it when the machine boots for the first time, and again if its certificate expired
/// while it was off. Afterwards the other nodes' DNS and load balancing know the node.
#[derive(Debug, Args)]
#[command(
    allow_missing_positional = true,
    after_long_help = "\
Examples:
  ocpdeploy node join metal-0
  ocpdeploy node join lab metal-0"
)]
pub struct NodeJoin {
    #[command(flatten)]
    pub node: OneNode,
    #[command(flatten)]
    pub again: Again,
    #[command(flatten)]
    pub output: Output,
}

/// Drain an external node and remove it from the cluster
///
/// Its machine is not touched: switch it off, and wipe its disk.
#[derive(Debug, Args)]
#[command(
    allow_missing_positional = true,
    after_long_help = "\
Examples:
  ocpdeploy node remove metal-0
  ocpdeploy node remove lab metal-0 --force    # its kubelet is down"
)]
pub struct NodeRemove {
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
    // Both names are one argument: clap does not support an optional argument before a required one if a command
    // follows.
    #[arg(required = true, num_args = 1..=2, value_names = ["CLUSTER", "NODE"], value_parser = name_or_id)]
    node: Vec<String>,
    /// Private key [default: ssh's default]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub key: Option<PathBuf>,
    /// Command to run instead of a shell
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

impl NodeSsh {
    /// An error if the node's name cannot be one.
    pub fn node(&self) -> Result<OneNode, OperationError> {
        let (node, cluster) = match self.node.as_slice() {
            [cluster, node] => (node, Some(cluster.clone())),
            [node] => (node, None),
            _ => unreachable!("clap accepts one or two names"),
        };
        let invalid = |why| OperationError::new(ErrorKind::Usage, format!("invalid node {node}: {why}"));
        Ok(OneNode {
            node: node_name(node).map_err(invalid)?,
            of: OneCluster { cluster },
        })
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
