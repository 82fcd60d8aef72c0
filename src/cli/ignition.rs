//! `ocpdeploy ignition`: merges, checks, shows and compares configs.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::args::{OneCluster, Output};

/// Merge, check, show and compare Ignition configs
///
/// Merges as Ignition does, entry by entry: files by path, units and users by name;
/// the last config takes precedence. Requires no cluster, platform or network; `show`
/// reads the directory of a cluster that was deployed from this computer.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy ignition check master.ign               # would a machine boot?
  ocpdeploy ignition merge master.ign mine.ign -o merged.ign
  ocpdeploy ignition diff master.ign merged.ign     # what changed?
  ocpdeploy ignition show master-0                  # the node's complete config")]
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

/// Merge configs; later configs take precedence
///
/// Checks each config and the result as Ignition does on the machine. If Ignition would
/// reject one, nothing is written. Configs of spec 2 (up to OpenShift 4.5) and of spec 3
/// cannot be mixed.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy ignition merge base.ign mine.ign                # to stdout
  ocpdeploy ignition merge base.ign site.ign mine.ign -o node.ign
  ocpdeploy ignition merge --pretty base.ign -              # second from stdin
  ocpdeploy ignition merge base.ign mine.ign -o base.ign    # overwrite an input

A file's `contents` are merged field by field: a child that sets only `source`
keeps the parent's `compression` and `verification`. Set `compression` to an
empty string in each of your files.")]
pub struct IgnitionMerge {
    /// Configs, lowest precedence first; - is stdin
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// Write to FILE with mode 0600 [default: stdout]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Indent the result
    #[arg(long)]
    pub pretty: bool,
}

/// Find what Ignition would reject or misread; exits with 3 on an error
///
/// An error is what Ignition rejects, or what it fails on when CoreOS boots: the machine
/// would stop in an emergency shell. A warning is what Ignition accepts but you probably
/// did not intend, such as mode 644, which JSON reads as decimal. Prints one line per
/// finding, with its location.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy ignition check master.ign worker.ign
  ocpdeploy ignition check --strict mine.ign            # fail on warnings, too
  ocpdeploy ignition check --format json mine.ign
  ocpdeploy ignition check -                            # from stdin

JSON: `files` with `file`, `ok`, `version`, `bytes`, and `findings` with
`severity` (error or warning), `path`, `line`, `column` and `text`.")]
pub struct IgnitionCheck {
    /// Configs; - is stdin
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// Spec that CoreOS reads: 2 for OpenShift 4.1 to 4.5, otherwise 3
    #[arg(long, value_name = "2|3", default_value = "3", value_parser = clap::value_parser!(u8).range(2..=3))]
    pub spec: u8,
    /// Fail on warnings, too
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    pub output: Output,
}

/// Show a node's config: files, units and users, with the origin of each
///
/// Unpacks and merges configs that are embedded in a pointer config. Lists what the
/// node fetches on its first boot, but does not fetch it. Shows contents, which may be
/// secret, only on request.
#[derive(Debug, Args)]
#[command(
    allow_missing_positional = true,
    after_long_help = "\
Examples:
  ocpdeploy ignition show master-0                      # of the only cluster
  ocpdeploy ignition show lab worker-1 --format json
  ocpdeploy ignition show bootstrap --decode            # with all contents
  ocpdeploy ignition show master-0 --file /etc/hostname
  ocpdeploy ignition show ./master.ign                  # any config"
)]
pub struct IgnitionShow {
    #[command(flatten)]
    pub of: OneCluster,
    /// Node, e.g. master-0, or config file: a path with a / or ending in .ign
    pub node: String,
    /// Also show the contents of files and units, which may be secret
    #[arg(long)]
    pub decode: bool,
    /// Print only the contents of this file of the node
    #[arg(long, value_name = "PATH", conflicts_with_all = ["decode", "format"])]
    pub file: Option<String>,
    #[command(flatten)]
    pub output: Output,
}

/// Compare the meaning of two configs; exits with 1 if they differ
///
/// Ignores the order of keys and entries, and how contents are encoded: base64, percent
/// encoding and gzip are decoded first. Compares an overlay in a pointer config as a
/// config. Shows contents, which may be secret, only on request.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy ignition diff before.ign after.ign
  ocpdeploy ignition diff --decode before.ign after.ign # with changed lines
  ocpdeploy ignition diff --format json before.ign -    # the second from stdin

JSON: `equal`, and `differences` with `path`, `change` (added, removed, changed,
contents or order), `old` and `new`.")]
pub struct IgnitionDiff {
    /// First config; - is stdin
    #[arg(value_name = "OLD", value_hint = ValueHint::FilePath)]
    pub old: PathBuf,
    /// Second config; - is stdin
    #[arg(value_name = "NEW", value_hint = ValueHint::FilePath)]
    pub new: PathBuf,
    /// Also show changed lines of contents, which may be secret
    #[arg(long)]
    pub decode: bool,
    #[command(flatten)]
    pub output: Output,
}
