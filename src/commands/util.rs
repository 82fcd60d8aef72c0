//! `ocpdeploy util`: completions and manual pages, made from the command line's own types.

use anyhow::{Context, Result};
use clap::CommandFactory;

use super::output::print_file;
use crate::cli::{Cli, Util, UtilMan, UtilVerb};

const NAME: &str = "ocpdeploy";

pub fn run(command: &Util) -> Result<()> {
    match &command.verb {
        UtilVerb::Completion(command) => {
            let mut script = Vec::new();
            clap_complete::generate(command.shell, &mut Cli::command(), NAME, &mut script);
            print_file(&script)
        }
        UtilVerb::Man(command) => manual(command),
    }
}

fn manual(command: &UtilMan) -> Result<()> {
    let folder = &command.folder;
    fs_err::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command(), folder).with_context(|| format!("write man pages to {}", folder.display()))
}
