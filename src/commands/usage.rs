//! Errors on the command line, in the same form as all other errors.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Error};

use crate::cli::Cli;
use crate::failure::Failure;
use crate::printable::printable_line;

/// clap's message and tips, and the command that shows the help.
pub fn failure(mut error: Error, arguments: impl Iterator<Item = OsString>) -> Failure {
    // An argument may contain any text, including line breaks.
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) {
        let value = ContextValue::String(printable_line(value));
        error.insert(ContextKind::InvalidValue, value);
    }
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
