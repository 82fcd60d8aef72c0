//! `ocpdeploy ignition check`.

use std::process::ExitCode;

use anyhow::Result;

use super::input::{Input, name, read, stdin_once};
use crate::cli::IgnitionCheck;
use crate::commands::output::print_result;
use crate::error::{ErrorKind, OperationError};
use crate::ignition::Major;
use crate::ignition::check::{Severity, check_first_boot};
use crate::report::ignition::check::{Checked, CheckedFile, Remark, Sizes};

pub fn run(command: &IgnitionCheck) -> Result<ExitCode> {
    let major = match command.spec {
        2 => Major::Two,
        _ => Major::Three,
    };
    stdin_once(&command.files)?;
    let files = command.files.iter().map(|path| match read(path) {
        Ok(input) => judged(&input, major, command.strict),
        Err(why) => CheckedFile {
            file: name(path),
            ok: false,
            sizes: None,
            findings: vec![Remark {
                severity: Severity::Error,
                path: why.path,
                line: why.place.map(|place| place.0),
                column: why.place.map(|place| place.1),
                text: why.text,
            }],
        },
    });
    let checked = Checked { files: files.collect() };
    print_result(&command.output, &checked, || checked.text())?;
    match checked.files.iter().filter(|file| !file.ok).count() {
        0 => Ok(ExitCode::SUCCESS),
        bad => {
            let text = format!("{bad} of {} configs failed the check", checked.files.len());
            Err(OperationError::new(ErrorKind::Settings, text).into())
        }
    }
}

fn judged(input: &Input, major: Major, strict: bool) -> CheckedFile {
    let findings = input.findings(Some(major), check_first_boot);
    CheckedFile {
        file: input.name.clone(),
        ok: !findings
            .iter()
            .any(|finding| strict || finding.severity == Severity::Error),
        sizes: Some(Sizes::of(&input.config, input.bytes.len())),
        findings,
    }
}
