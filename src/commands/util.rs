//! `ocpdeploy util`: completions and man pages, generated from the types of the command line.

use anyhow::{Context, Result};
use clap::CommandFactory;

use super::completion;
use super::output::print_file;
use crate::cli::{Cli, Util, UtilMan, UtilVerb};

pub fn run(command: &Util) -> Result<()> {
    match &command.verb {
        UtilVerb::Completion(command) => print_file(&completion::script(command.shell)?),
        UtilVerb::Man(command) => manual(command),
    }
}

fn manual(command: &UtilMan) -> Result<()> {
    let folder = &command.folder;
    fs_err::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command(), folder).with_context(|| format!("write man pages to {}", folder.display()))
}
