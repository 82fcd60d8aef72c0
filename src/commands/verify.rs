//! `ocpdeploy verify`.

use std::process::ExitCode;

use anyhow::Result;

use super::output::print_result;
use super::platform::connect_known;
use super::saved_settings;
use super::session::Session;
use crate::cli::Verify;
use crate::failure::DIFFERENT;
use crate::{passes, report};

pub fn run(session: &Session, command: &Verify) -> Result<ExitCode> {
    let known = session.cluster(&command.of)?;
    let verified = session.finish_or_stop(async {
        let backend = connect_known(&known).await?;
        let settings = || Ok(saved_settings::load_quietly(session, &known.name)?.config);
        passes::verify(&backend, &known, &session.home, settings, command.repair).await
    })?;
    print_result(&command.output, &verified, || report::verified(&verified))?;
    Ok(match verified.differences.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(DIFFERENT),
    })
}
