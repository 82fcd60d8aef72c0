//! `ocpdeploy ignition`: configs merged, checked, shown and compared.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::args::{Output, cluster_name};

/// Merge, check, show and compare Ignition configs
///
/// The merge is Ignition's own, entry by entry: files by path, units and users by
/// name, and what the last config says wins. No cluster, platform or network is needed,
/// except that `show` reads the folder of a cluster that was deployed from here.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy ignition check master.ign               # would a machine boot with it?
  ocpdeploy ignition merge master.ign mine.ign -o merged.ign
  ocpdeploy ignition diff master.ign merged.ign     # what did it change?
  ocpdeploy ignition show master-0                  # what a node really gets")]
pub struct Ignition {
    #[command(subcommand)]
    pub verb: IgnitionVerb,
}

#[derive(Debug, Subcommand)]
pub enum IgnitionVerb {
    Merge(IgnitionMerge),
    Check(IgnitionCheck),
    Show(IgnitionShow),
    Diff(IgnitionDiff),
}

/// Merge configs; each one wins over those before it
///
/// Each config is checked alone and the result as a whole, the way Ignition does on
/// the machine. Where one is refused, nothing is written. Configs of spec 2 (up to
/// OpenShift 4.5) and of spec 3 are different languages and cannot be mixed.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy ignition merge base.ign mine.ign                # to stdout
  ocpdeploy ignition merge base.ign site.ign mine.ign -o node.ign
  ocpdeploy ignition merge --pretty base.ign -              # the last from stdin
  ocpdeploy ignition merge base.ign mine.ign -o base.ign    # replaced as a whole

A file's `contents` are merged field by field: a child that sets only `source`
keeps the parent's `compression` and `verification`. Set `compression` to an empty
text in every file of yours.")]
pub struct IgnitionMerge {
    /// Configs, the lowest first; - is stdin
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// Write here, readable by you alone, instead of to stdout
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Indent the result
    #[arg(long)]
    pub pretty: bool,
}

/// Tell what Ignition would refuse or misread; exit code 3 if it would not boot
///
/// An error is what Ignition refuses: the machine would stop in an emergency shell.
/// A warning is what it takes without doing what it looks like, e.g. mode 644 without
/// its leading 0, which is another number in JSON. One line a finding, with its place.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy ignition check master.ign worker.ign
  ocpdeploy ignition check --strict mine.ign            # warnings count as well
  ocpdeploy ignition check --output json mine.ign
  ocpdeploy ignition check -                            # from stdin

JSON: `files` with `file`, `ok`, `version`, `bytes`, and `findings` with `severity`
(error or warning), `path`, `line`, `column` and `text`.")]
pub struct IgnitionCheck {
    /// Configs; - is stdin
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// Major version that the CoreOS reads: 2 for OpenShift 4.1 to 4.5, else 3
    #[arg(long, value_name = "2|3", default_value = "3", value_parser = clap::value_parser!(u8).range(2..=3))]
    pub spec: u8,
    /// Fail on warnings, too
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    pub output: Output,
}

/// Show a node's config: files, units and users, and where each comes from
///
/// Our part of a pointer lies packed within it; here it is unpacked and merged. What
/// the node fetches on its first boot is named and not fetched. Contents, which may be
/// secret, are shown only on demand.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy ignition show master-0                      # of the only cluster here
  ocpdeploy ignition show worker-1 --cluster lab --output json
  ocpdeploy ignition show bootstrap --decode            # with all contents
  ocpdeploy ignition show master-0 --file /etc/hostname
  ocpdeploy ignition show ./master.ign                  # any config")]
pub struct IgnitionShow {
    /// A node, e.g. master-0, or a config: a path with a / or ending in .ign
    pub node: String,
    /// Name of the cluster [default: the one of ./env.sh, or the only one here]
    #[arg(long, value_name = "NAME", value_parser = cluster_name)]
    pub cluster: Option<String>,
    /// Show the contents of files and units as well; they may be secret
    #[arg(long)]
    pub decode: bool,
    /// Print what is in this file of the node, and nothing else
    #[arg(long, value_name = "PATH", conflicts_with_all = ["decode", "output"])]
    pub file: Option<String>,
    #[command(flatten)]
    pub output: Output,
}

/// Compare what two configs ask for; exit code 1 if they differ
///
/// The order of keys and entries does not count, nor how contents are packed: base64,
/// percent signs and gzip are undone first. An overlay within a pointer is compared as a
/// config. Contents, which may be secret, are shown only on demand.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy ignition diff before.ign after.ign
  ocpdeploy ignition diff --decode before.ign after.ign # with changed lines
  ocpdeploy ignition diff --output json before.ign -    # the second from stdin

JSON: `equal`, and `differences` with `path`, `change` (added, removed, changed,
contents or order), `old` and `new`.")]
pub struct IgnitionDiff {
    /// The first config; - is stdin
    #[arg(value_name = "OLD", value_hint = ValueHint::FilePath)]
    pub old: PathBuf,
    /// The second config; - is stdin
    #[arg(value_name = "NEW", value_hint = ValueHint::FilePath)]
    pub new: PathBuf,
    /// Show changed lines of contents as well; they may be secret
    #[arg(long)]
    pub decode: bool,
    #[command(flatten)]
    pub output: Output,
}
