//! `ocpdeploy verify`.

use std::process::ExitCode;

use anyhow::Result;

use super::output::{print, print_json};
use super::platform::connect_known;
use super::session::Session;
use crate::cli::{Format, Verify};
use crate::failure::DIFFERENT;
use crate::{passes, report};

pub fn run(session: &Session, command: &Verify) -> Result<ExitCode> {
    let known = session.known(&session.cluster_name(command.cluster.as_deref())?)?;
    let verified = session.finish_or_stop(async {
        let backend = connect_known(&known).await?;
        passes::verify(&*backend, &known, &session.home, command.repair).await
    })?;
    match command.output.output {
        Format::Text => print(&report::verified(&verified))?,
        Format::Json => print_json(&verified)?,
    }
    Ok(match verified.differences.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(DIFFERENT),
    })
}
