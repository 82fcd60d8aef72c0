//! `ocpdeploy dns`: a cluster's names in the local resolver.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::args::{Output, name_or_id};

/// Add or remove a cluster's names in the local resolver
///
/// In /etc/hosts, changes only the lines between the cluster's markers. Records its
/// changes, and `ocpdeploy destroy` reverts them.
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

/// Add a cluster's names to the local resolver; requires root
///
/// hosts adds lines to /etc/hosts, with the common names under apps. networkmanager
/// configures NetworkManager's dnsmasq, which resolves all names under apps. resolved
/// makes systemd-resolved (258 or later) query the cluster's masters for its names and
/// no others; they resolve only while the masters run. resolved does not support
/// dns=user.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  sudo ocpdeploy --home ~/.local/share/ocpdeploy dns apply lab
  ocpdeploy dns apply lab --dry-run
  ocpdeploy dns apply --how networkmanager")]
pub struct DnsApply {
    #[command(flatten)]
    pub target: DnsTarget,
    /// Resolver to configure
    #[arg(long, value_enum, default_value_t)]
    pub how: DnsHow,
    /// Show what would change, without changing it
    #[arg(long)]
    pub dry_run: bool,
}

/// Remove a cluster's names from the local resolver; requires root
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy dns remove lab --dry-run
  ocpdeploy dns remove lab.example.com     # the cluster's directory is lost")]
pub struct DnsRemove {
    #[command(flatten)]
    pub target: DnsTarget,
    /// Show what would change, without changing it
    #[arg(long)]
    pub dry_run: bool,
}

/// Show whether and how the local resolver is configured for a cluster
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
    /// Name of the cluster [default: from ./env.sh, or the only cluster]
    #[arg(value_parser = name_or_id)]
    pub cluster: Option<String>,
    #[command(flatten)]
    pub output: Output,
    /// Root directory, for tests
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
