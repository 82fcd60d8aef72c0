//! `ocpdeploy check`.

use std::process::ExitCode;

use anyhow::Result;

use super::output::print_result;
use super::platform::connect_for;
use super::saved_settings;
use super::session::Session;
use crate::backend::{self, Finding};
use crate::cli::Check;
use crate::error::ErrorKind;
use crate::failure;
use crate::passes::{self, CheckResult};
use crate::report;
use crate::settings::Problem;

pub fn run(session: &Session, command: &Check) -> Result<ExitCode> {
    let sources = saved_settings::sources(session, &command.source)?;
    let loaded = session.load_without_credentials(&sources)?;
    let config = &loaded.config;
    let mut looked = settings(loaded.warnings, &loaded.missing);
    looked.extend(session.finish_or_stop(async {
        Ok(match connect_for(config).await {
            Ok(backend) => passes::inspect(Ok(&backend), config, &session.home, finding_of).await,
            Err(error) => passes::inspect(Err(error.into()), config, &session.home, finding_of).await,
        })
    })?);
    let report = report::check::Checked {
        unverified: backend::connect::unverified(&config.backend),
        ..report::check::Checked::of(looked)
    };
    print_result(&command.output, &report, || report::check::text(&report))?;
    Ok(match report.failures {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(ErrorKind::Tool.exit_code()),
    })
}

fn settings(warnings: Vec<String>, missing: &[Problem]) -> Vec<CheckResult> {
    let fail = |problem: &Problem| {
        let finding = Finding::fail(problem.message.clone());
        problem
            .help
            .iter()
            .fold(finding, |finding, help| finding.hint(help.clone()))
    };
    let warnings = warnings.into_iter().map(Finding::warn);
    let mut found: Vec<_> = missing.iter().map(fail).chain(warnings).collect();
    if found.is_empty() {
        found.push(Finding::ok("all settings are valid"));
    }
    found.into_iter().map(CheckResult::at("settings")).collect()
}

/// An error as the result of a check.
fn finding_of(error: &anyhow::Error) -> Finding {
    let failure = failure::explain(error);
    let finding = Finding::fail(failure.chain.join(": "));
    match failure.hints.is_empty() {
        true => finding,
        false => finding.hint(failure.hints.join("; ")),
    }
}
