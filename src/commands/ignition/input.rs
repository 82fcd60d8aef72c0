//! Configs that the user names: files and stdin, with the positions of their findings.

use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;

use crate::error::{ErrorKind, OperationError};
use crate::ignition::check::{Finding, other_major};
use crate::ignition::{Major, document, place};
use crate::limited_file::{self, Patient};
use crate::report::ignition::check::Remark;

/// A config that the user named.
pub struct Input {
    /// As the user wrote it, or `stdin`.
    pub name: String,
    pub bytes: Vec<u8>,
    pub config: Value,
    /// Warnings about its text, for example a repeated key.
    warnings: Vec<Finding>,
}

/// Why a file is not a config, and the position of the error.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// Line and column.
    pub place: Option<(usize, usize)>,
    pub path: Option<String>,
    pub text: String,
    /// The line around the position, without values that may be secret.
    snippet: Option<String>,
    hint: Option<&'static str>,
}

impl Unreadable {
    /// The error of a command that requires this file.
    pub fn failure(self, name: &str) -> OperationError {
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
        let error = OperationError::new(ErrorKind::Settings, text);
        match self.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

/// Reads and parses one file; `-` is stdin.
pub fn read(path: &Path) -> Result<Input, Unreadable> {
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
    // One byte more than the limit shows that a file is too large.
    let most = document::MOST_BYTES as u64 + 1;
    let read = match is_stdin(path) {
        true if std::io::stdin().is_terminal() => {
            return Err("stdin is a terminal; pipe a config into this command".to_owned());
        }
        true => std::io::stdin().lock().take(most).read_to_end(&mut bytes),
        false => limited_file::open(path)
            .and_then(Patient::new)
            .and_then(|file| file.take(most).read_to_end(&mut bytes)),
    };
    match read {
        Ok(_) if bytes.len() > document::MOST_BYTES => Err(format!(
            "it is larger than {} MiB, the limit for a config",
            document::MOST_BYTES >> 20
        )),
        Ok(_) => Ok(bytes),
        Err(error) => Err(match error.kind() {
            io::ErrorKind::NotFound => "no such file".to_owned(),
            io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
            io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            _ => error.to_string(),
        }),
    }
}

/// Reads all files; the first one that is not a config is the error.
pub fn read_all(paths: &[PathBuf]) -> Result<Vec<Input>> {
    stdin_once(paths)?;
    let mut inputs = Vec::new();
    for path in paths {
        inputs.push(read(path).map_err(|why| why.failure(&name(path)))?);
    }
    Ok(inputs)
}

/// Whether a path means stdin.
pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// A path as it is printed.
pub fn name(path: &Path) -> String {
    match is_stdin(path) {
        true => "stdin".to_owned(),
        false => path.display().to_string(),
    }
}

/// Rejects a second `-`: stdin can be read only once.
pub fn stdin_once(paths: &[PathBuf]) -> Result<(), OperationError> {
    match paths.iter().filter(|path| is_stdin(path)).count() {
        0 | 1 => Ok(()),
        _ => Err(OperationError::new(ErrorKind::Usage, "stdin (-) can be read only once")),
    }
}

/// Maximum number of findings with a position. Each search begins at the start of the file, so more would be slow.
const MOST_PLACES: usize = 100;

impl Input {
    /// All findings of this config by itself, for a CoreOS that reads the `wanted` major version.
    pub fn findings(&self, wanted: Option<Major>, check: impl Fn(&Value) -> Vec<Finding>) -> Vec<Remark> {
        let mut findings = self.warnings.clone();
        findings.extend(wanted.and_then(|major| other_major(&self.config, major)));
        findings.extend(check(&self.config));
        self.remarks(findings)
    }

    /// Findings with their positions in the file.
    pub fn remarks(&self, findings: Vec<Finding>) -> Vec<Remark> {
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
