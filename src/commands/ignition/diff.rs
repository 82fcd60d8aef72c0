//! `ocpdeploy ignition diff`.

use std::process::ExitCode;

use anyhow::Result;

use super::input::{name, read, stdin_once};
use crate::cli::IgnitionDiff;
use crate::commands::output::print_result;
use crate::error::{ErrorKind, OperationError};
use crate::failure::DIFFERENT;
use crate::ignition::diff::diff;
use crate::ignition::version;
use crate::report::ignition::differences::{self, Differences};

pub fn run(command: &IgnitionDiff) -> Result<ExitCode> {
    stdin_once(&[command.old.clone(), command.new.clone()])?;
    let config = |path| read(path).map_err(|why| why.failure(&name(path)));
    let old = config(&command.old)?;
    let new = config(&command.new)?;
    if let (Ok(one), Ok(other)) = (version(&old.config), version(&new.config))
        && one.major != other.major
    {
        let text = format!(
            "cannot compare {}, which is Ignition {one}, with {}, which is Ignition {other}",
            old.name, new.name
        );
        return Err(OperationError::new(ErrorKind::Settings, text)
            .hint("compare configs of the same major version of the spec")
            .into());
    }
    let found = diff(&old.config, &new.config);
    print_result(&command.output, &Differences::of(&found, command.decode), || {
        differences::text(&found, command.decode)
    })?;
    Ok(match found.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(DIFFERENT),
    })
}
