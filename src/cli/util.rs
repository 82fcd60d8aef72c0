//! `ocpdeploy util`: completions and man pages.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

/// Shell completions and man pages
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

/// Print the completion script of a shell
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy util completion bash  # /etc/bash_completion.d/ocpdeploy
  ocpdeploy util completion fish  # ~/.config/fish/completions/ocpdeploy.fish
  ocpdeploy util completion zsh   # _ocpdeploy in a directory of $fpath")]
pub struct UtilCompletion {
    /// Shell
    pub shell: clap_complete::Shell,
}

/// Write a man page for each command
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ocpdeploy util man man1
  ocpdeploy util man /usr/local/share/man/man1")]
pub struct UtilMan {
    /// Directory to write to; created if it does not exist
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
}
