//! `ocpdeploy util`: completions and manual pages.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

/// What makes this program at home on a computer
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy util completion bash
  ocpdeploy util man /usr/local/share/man/man1")]
pub struct Util {
    #[command(subcommand)]
    pub verb: UtilVerb,
}

#[derive(Debug, Subcommand)]
pub enum UtilVerb {
    Completion(UtilCompletion),
    Man(UtilMan),
}

/// Print what lets a shell complete this program's commands and flags
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy util completion bash    # into /etc/bash_completion.d/ocpdeploy
  ocpdeploy util completion fish    # into ~/.config/fish/completions/ocpdeploy.fish
  ocpdeploy util completion zsh     # into _ocpdeploy in a folder of $fpath")]
pub struct UtilCompletion {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// Write a manual page for each command into a folder
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy util man man1
  ocpdeploy util man /usr/local/share/man/man1")]
pub struct UtilMan {
    /// The folder; it is made where it is not there
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
}
