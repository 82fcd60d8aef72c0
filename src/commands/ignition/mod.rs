//! `ocpdeploy ignition`: one file a verb.

mod check;
mod diff;
mod merge;
mod show;

use std::io::{ErrorKind, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::Value;

use crate::cli::{Global, Ignition, IgnitionVerb};
use crate::failure::{CommandError, Kind};
use crate::ignition::check::{Finding, check, other_major};
use crate::ignition::{Major, document, place};
use crate::report::ignition::check::Remark;

pub fn run(global: &Global, command: &Ignition) -> Result<ExitCode> {
    match &command.verb {
        IgnitionVerb::Merge(command) => merge::run(global, command),
        IgnitionVerb::Check(command) => check::run(command),
        IgnitionVerb::Show(command) => show::run(global, command),
        IgnitionVerb::Diff(command) => diff::run(command),
    }
}

/// A config as it was given.
struct Input {
    /// As the user wrote it, or `stdin`.
    name: String,
    bytes: Vec<u8>,
    config: Value,
    /// What is odd about the text.
    warnings: Vec<Finding>,
}

/// Why a file is no config, and where in it that is.
#[derive(Clone, Debug)]
struct Unreadable {
    /// Line and column.
    place: Option<(usize, usize)>,
    path: Option<String>,
    text: String,
    /// The line around the place, without what may be secret.
    snippet: Option<String>,
    hint: Option<&'static str>,
}

impl Unreadable {
    /// The failure of a command that needs this file.
    fn failure(self, name: &str) -> CommandError {
        let place = self.place.map(|(line, column)| format!(":{line}:{column}"));
        let path = self.path.map(|path| format!("{path}: "));
        let snippet = self.snippet.iter().flat_map(|snippet| snippet.lines());
        let snippet: String = snippet.map(|line| format!("\n    {line}")).collect();
        let text = format!(
            "{name}{}: {}{}{snippet}",
            place.unwrap_or_default(),
            path.unwrap_or_default(),
            self.text
        );
        let error = CommandError::new(Kind::Settings, text);
        match self.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

/// Reads and parses one file; `-` is stdin.
fn read(path: &Path) -> Result<Input, Unreadable> {
    let bytes = read_bytes(path).map_err(|text| Unreadable {
        place: None,
        path: None,
        text,
        snippet: None,
        hint: None,
    })?;
    match document::read(&bytes) {
        Ok(document) => Ok(Input {
            name: name(path),
            bytes,
            config: document.config,
            warnings: document.warnings,
        }),
        Err(error) => Err(Unreadable {
            hint: error.hint(),
            place: error.place,
            path: error.path,
            text: error.reason,
            snippet: error.snippet,
        }),
    }
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    // One byte more tells that there is more.
    let most = document::MOST_BYTES as u64 + 1;
    let read = match is_stdin(path) {
        true if std::io::stdin().is_terminal() => {
            return Err("stdin is a terminal; pipe a config into this command".to_owned());
        }
        true => std::io::stdin().lock().take(most).read_to_end(&mut bytes),
        false => std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)),
    };
    match read {
        Ok(_) if bytes.len() > document::MOST_BYTES => Err(format!(
            "it is larger than {} MiB, the limit for a config",
            document::MOST_BYTES >> 20
        )),
        Ok(_) => Ok(bytes),
        Err(error) => Err(match error.kind() {
            ErrorKind::NotFound => "no such file".to_owned(),
            ErrorKind::IsADirectory => "it is a directory".to_owned(),
            ErrorKind::PermissionDenied => "permission denied".to_owned(),
            _ => error.to_string(),
        }),
    }
}

/// Reads all files, or tells of the first that is no config.
fn read_all(paths: &[PathBuf]) -> Result<Vec<Input>> {
    stdin_once(paths)?;
    let mut inputs = Vec::new();
    for path in paths {
        inputs.push(read(path).map_err(|why| why.failure(&name(path)))?);
    }
    Ok(inputs)
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn name(path: &Path) -> String {
    match is_stdin(path) {
        true => "stdin".to_owned(),
        false => path.display().to_string(),
    }
}

/// What was read from stdin is gone.
fn stdin_once(paths: &[PathBuf]) -> Result<(), CommandError> {
    match paths.iter().filter(|path| is_stdin(path)).count() {
        0 | 1 => Ok(()),
        _ => Err(CommandError::new(Kind::Usage, "stdin (-) can be read only once")),
    }
}

/// Each place is looked for from the start of the file; a config with more findings than this has one fault.
const MOST_PLACES: usize = 100;

impl Input {
    /// All that is to say of this config alone, for a CoreOS that reads this major version where one is named.
    fn findings(&self, wanted: Option<Major>) -> Vec<Remark> {
        let mut findings = self.warnings.clone();
        findings.extend(wanted.and_then(|major| other_major(&self.config, major)));
        findings.extend(check(&self.config));
        self.remarks(findings)
    }

    /// Findings with their places in the file.
    fn remarks(&self, findings: Vec<Finding>) -> Vec<Remark> {
        let remark = |(index, finding): (usize, Finding)| {
            let place = match index < MOST_PLACES {
                true => place::place(&self.bytes, &finding.path),
                false => None,
            };
            Remark {
                severity: finding.severity,
                path: Some(finding.path),
                line: place.map(|place| place.0),
                column: place.map(|place| place.1),
                text: finding.text,
            }
        };
        findings.into_iter().enumerate().map(remark).collect()
    }
}
