//! `ocpdeploy snapshot`: snapshots of a cluster.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::args::{Confirmation, OneCluster, Output, duration};
use crate::backend::SnapshotName;

/// Save all disks of a cluster, and restore them later
///
/// The platform saves the disks while all machines are off. Supported on libvirt, oVirt
/// and KubeVirt. A restored cluster has its earlier state and its addresses.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy snapshot save lab before-update
  ocpdeploy snapshot list lab
  ocpdeploy snapshot restore lab before-update
  ocpdeploy snapshot delete lab before-update")]
pub struct SnapshotCommand {
    #[command(subcommand)]
    pub verb: SnapshotVerb,
}

#[derive(Debug, Subcommand)]
pub enum SnapshotVerb {
    Save(SnapshotSave),
    List(SnapshotList),
    Restore(SnapshotRestore),
    Delete(SnapshotDelete),
}

/// One snapshot of a cluster.
#[derive(Debug, Args)]
pub struct OneSnapshot {
    #[command(flatten)]
    pub of: OneCluster,
    /// Name of the snapshot, e.g. before-update
    pub name: SnapshotName,
}

/// Stop the cluster, save all disks, and start it again
///
/// Saves etcd over SSH first, in the cluster's directory. Refuses while the cluster
/// still uses the installer's certificates, as `ocpdeploy stop` does. A cluster that
/// is off stays off.
#[derive(Debug, Args)]
#[command(
    allow_missing_positional = true,
    after_long_help = "\
Examples:
  ocpdeploy snapshot save before-update            # of the only cluster
  ocpdeploy snapshot save lab before-update --power-off
  ocpdeploy snapshot save lab friday --stay-off"
)]
pub struct SnapshotSave {
    #[command(flatten)]
    pub snapshot: OneSnapshot,
    /// Do not start the cluster afterwards
    #[arg(long)]
    pub stay_off: bool,
    /// Do not save etcd first
    #[arg(long)]
    pub no_backup: bool,
    /// Power off machines that do not shut down in time
    #[arg(long)]
    pub power_off: bool,
    /// Time limit for the machines of each role to shut down
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    pub stop_timeout: Duration,
    /// Time limit for the nodes to be Ready again
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = duration)]
    pub timeout: Duration,
    #[command(flatten)]
    pub output: Output,
}

/// Show the snapshots of a cluster
///
/// A snapshot without the disks of a node cannot be restored: the node joined or was
/// recreated later, or saving was interrupted.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy snapshot list lab
  ocpdeploy snapshot list lab --format json")]
pub struct SnapshotList {
    #[command(flatten)]
    pub of: OneCluster,
    #[command(flatten)]
    pub output: Output,
}

/// Restore all disks from a snapshot, and start the cluster
///
/// Powers the machines off; all changes since the snapshot are lost. Starts the cluster
/// as `ocpdeploy start` does, with the addresses of the parameter file.
#[derive(Debug, Args)]
#[command(
    allow_missing_positional = true,
    after_long_help = "\
Examples:
  ocpdeploy snapshot restore lab before-update        # prompts for confirmation
  ocpdeploy snapshot restore lab before-update --yes"
)]
pub struct SnapshotRestore {
    #[command(flatten)]
    pub snapshot: OneSnapshot,
    #[command(flatten)]
    pub confirmation: Confirmation,
    /// Time limit for the nodes to be Ready again
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = duration)]
    pub timeout: Duration,
    #[command(flatten)]
    pub output: Output,
}

/// Delete a snapshot; the cluster stays as it is
///
/// Prompts for confirmation. Also deletes the etcd backup that belongs to the snapshot.
#[derive(Debug, Args)]
#[command(
    allow_missing_positional = true,
    after_long_help = "\
Examples:
  ocpdeploy snapshot delete before-update     # of the only cluster; prompts
  ocpdeploy snapshot delete lab before-update --yes"
)]
pub struct SnapshotDelete {
    #[command(flatten)]
    pub snapshot: OneSnapshot,
    #[command(flatten)]
    pub confirmation: Confirmation,
    #[command(flatten)]
    pub output: Output,
}
