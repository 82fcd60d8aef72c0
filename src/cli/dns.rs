//! `ocpdeploy dns`: what this computer knows of names.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::args::name_or_id;

/// Tell this computer a cluster's names, and take them away again
///
/// In /etc/hosts only lines between the cluster's own markers are ever touched. What was
/// done is noted, and `ocpdeploy destroy` undoes it.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy dns show lab
  sudo ocpdeploy --home ~/.local/share/ocpdeploy dns apply lab
  ocpdeploy dns apply lab --dry-run
  ocpdeploy dns remove lab")]
pub struct Dns {
    #[command(subcommand)]
    pub verb: DnsVerb,
}

#[derive(Debug, Subcommand)]
pub enum DnsVerb {
    Apply(DnsApply),
    Remove(DnsRemove),
    Show(DnsShow),
}

/// Tell this computer a cluster's names; needs root
///
/// hosts: lines in /etc/hosts, with the usual names beneath apps. networkmanager: for
/// the dnsmasq that NetworkManager runs, with every name. resolved: systemd-resolved asks
/// the cluster's masters, so names are known only while these run.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  sudo ocpdeploy --home ~/.local/share/ocpdeploy dns apply lab
  ocpdeploy dns apply lab --dry-run
  ocpdeploy dns apply --how networkmanager")]
pub struct DnsApply {
    #[command(flatten)]
    pub target: DnsTarget,
    /// Where the names are told
    #[arg(long, value_enum, default_value_t)]
    pub how: DnsHow,
    /// Show what would change; change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Take a cluster's names away from this computer; needs root
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy dns remove lab --dry-run
  ocpdeploy dns remove lab.example.com     # of a cluster whose folder is gone")]
pub struct DnsRemove {
    #[command(flatten)]
    pub target: DnsTarget,
    /// Show what would change; change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Show whether and how this computer was told a cluster's names
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy dns show
  ocpdeploy dns show lab")]
pub struct DnsShow {
    #[command(flatten)]
    pub target: DnsTarget,
}

#[derive(Debug, Args)]
pub struct DnsTarget {
    /// Name of the cluster [default: the one of ./env.sh, or the only one here]
    #[arg(value_parser = name_or_id)]
    pub cluster: Option<String>,
    /// A folder in place of /, for tests
    #[arg(long, value_name = "DIR", hide = true, default_value = "/")]
    pub root: PathBuf,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DnsHow {
    #[default]
    Hosts,
    #[value(name = "networkmanager")]
    NetworkManager,
    Resolved,
}
