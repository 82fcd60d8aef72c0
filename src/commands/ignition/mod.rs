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
use crate::ignition::check::Finding;
use crate::ignition::{document, place};
use crate::report::ignition::check::Remark;

/// More than any carrier takes by far; what is larger is not a config.
const MOST_BYTES: u64 = 16 << 20;

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
}

/// Why a file is no config, and where in it that is.
#[derive(Clone, Debug)]
struct Unreadable {
    place: Option<(usize, usize)>,
    text: String,
    hint: Option<&'static str>,
}

impl Unreadable {
    /// The failure of a command that needs this file.
    fn failure(self, name: &str) -> CommandError {
        let error = CommandError::new(Kind::Settings, format!("{}: {}", at(name, self.place), self.text));
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
        text,
        hint: None,
    })?;
    let config = document::parse(&bytes).map_err(|error| Unreadable {
        place: error.place,
        hint: error.hint(),
        text: error.reason,
    })?;
    Ok(Input {
        name: name(path),
        bytes,
        config,
    })
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = match is_stdin(path) {
        true if std::io::stdin().is_terminal() => return Err("a terminal is not a config; pipe one in".to_owned()),
        true => std::io::stdin().lock().take(MOST_BYTES + 1).read_to_end(&mut bytes),
        false => std::fs::File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes)),
    };
    match read {
        Ok(_) if bytes.len() as u64 > MOST_BYTES => Err(format!(
            "it is larger than {} MiB, which no config is",
            MOST_BYTES >> 20
        )),
        Ok(_) => Ok(bytes),
        Err(error) => Err(match error.kind() {
            ErrorKind::NotFound => "there is no such file".to_owned(),
            ErrorKind::IsADirectory => "it is a folder".to_owned(),
            ErrorKind::PermissionDenied => "this user may not read it".to_owned(),
            _ => error.to_string(),
        }),
    }
}

/// Reads all files, or tells of every one that is no config.
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

/// `FILE`, or `FILE:LINE:COLUMN`, as editors take it.
fn at(name: &str, place: Option<(usize, usize)>) -> String {
    match place {
        Some((line, column)) => format!("{name}:{line}:{column}"),
        None => name.to_owned(),
    }
}

impl Input {
    /// A finding with its place in the file.
    fn remark(&self, finding: Finding) -> Remark {
        let place = place::place(&self.bytes, &finding.path);
        Remark {
            severity: finding.severity,
            path: Some(finding.path),
            line: place.map(|place| place.0),
            column: place.map(|place| place.1),
            text: finding.text,
        }
    }
}
