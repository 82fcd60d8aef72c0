//! Errors on the command line, in the same form as all other errors.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use clap::{Command, CommandFactory, Error};

use crate::cli::Cli;
use crate::failure::Failure;
use crate::printable::printable_line;

/// The arguments of this process; `help deploy` means `deploy --help`, `version` means `--version`.
pub fn arguments(all: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut all: Vec<OsString> = all.collect();
    match all.get(1).and_then(|first| first.to_str()) {
        Some("help") => {
            all.remove(1);
            all.push("--help".into());
        }
        Some("version") => all[1] = "--version".into(),
        _ => {}
    }
    all
}

/// Whether the command line ends at a command that requires a subcommand.
pub fn lacks_subcommand(error: &Error) -> bool {
    use clap::error::ErrorKind::{DisplayHelpOnMissingArgumentOrSubcommand, MissingSubcommand};
    // With a variable such as OCPDEPLOY_HOME it is the second one.
    matches!(
        error.kind(),
        DisplayHelpOnMissingArgumentOrSubcommand | MissingSubcommand
    )
}

/// The help of the command that these arguments name.
pub fn help(arguments: impl Iterator<Item = OsString>) -> String {
    fn of(command: &mut Command, arguments: &[OsString]) -> String {
        let is_subcommand = |argument: &OsString| command.find_subcommand(argument).is_some();
        let Some(at) = arguments.iter().position(is_subcommand) else {
            return command.render_help().to_string();
        };
        let (named, rest) = arguments.split_at(at + 1);
        let subcommand = named.last().and_then(|name| command.find_subcommand_mut(name));
        subcommand.map_or(String::new(), |subcommand| of(subcommand, rest))
    }
    let mut program = Cli::command();
    program.build();
    of(&mut program, &arguments.skip(1).collect::<Vec<_>>())
}

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
    // The texts of Rust's number parser (rust-lang/rust: `library/core/src/num/error.rs`).
    let what = what.strip_prefix("error: ").unwrap_or(what);
    let what = what
        .replace("invalid digit found in string", "expected a whole number")
        .replace("number too large to fit in target type", "the number is too large");
    let tips = parts
        .flat_map(str::lines)
        .filter_map(|line| line.trim().strip_prefix("tip: "))
        // No argument of this program begins with a hyphen.
        .filter(|tip| !tip.contains("as a value, use '--"));
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
