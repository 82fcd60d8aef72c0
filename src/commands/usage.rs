//! Mistakes on the command line, in the form of all other errors.

use std::ffi::OsString;

use clap::{CommandFactory, Error};

use crate::cli::Cli;
use crate::failure::Failure;

/// clap's message and tips, and the command whose help to read.
pub fn failure(error: &Error, arguments: impl Iterator<Item = OsString>) -> Failure {
    let text = error.render().to_string();
    let mut parts = text.split("\n\n");
    let what = parts.next().unwrap_or_default();
    let what = what.strip_prefix("error: ").unwrap_or(what).to_owned();
    let tips = parts
        .flat_map(str::lines)
        .filter_map(|line| line.trim().strip_prefix("tip: "));
    let help = format!("`{} --help` shows the arguments", command(arguments));
    Failure::of_usage(what, tips.map(str::to_owned).chain([help]).collect())
}

/// The names of command and subcommands among the arguments.
fn command(arguments: impl Iterator<Item = OsString>) -> String {
    let program = Cli::command();
    let mut command = &program;
    let mut names = vec!["ocpdeploy"];
    for argument in arguments.skip(1) {
        if let Some(subcommand) = command.find_subcommand(&argument) {
            command = subcommand;
            names.push(subcommand.get_name());
        }
    }
    names.join(" ")
}
