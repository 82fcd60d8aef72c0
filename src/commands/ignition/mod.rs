//! `ocpdeploy ignition`: one file for each verb.

mod check;
mod diff;
mod input;
mod merge;
mod show;

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{Global, Ignition, IgnitionVerb};

pub fn run(global: &Global, command: &Ignition) -> Result<ExitCode> {
    match &command.verb {
        IgnitionVerb::Merge(command) => merge::run(global, command),
        IgnitionVerb::Check(command) => check::run(command),
        IgnitionVerb::Show(command) => show::run(global, command),
        IgnitionVerb::Diff(command) => diff::run(command),
    }
}
