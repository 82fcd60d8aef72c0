//! One file for each subcommand; only this room prints.

pub mod config;
pub mod progress;

use crate::cli::Cli;

pub fn run(_cli: Cli) -> anyhow::Result<()> {
    Ok(())
}
