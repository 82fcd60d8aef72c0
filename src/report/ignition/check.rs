//! The findings in configs: one line for each finding, and for each config without any.

use std::fmt::Write;

use serde::Serialize;
use serde_json::Value;

use crate::ignition::check::Severity;
use crate::printable::printable_line;

/// Several configs, in the order of the arguments.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    pub files: Vec<CheckedFile>,
}

#[derive(Clone, Debug, Serialize)]
pub struct CheckedFile {
    pub file: String,
    pub ok: bool,
    /// `None` if the file is not a config.
    #[serde(flatten)]
    pub sizes: Option<Sizes>,
    pub findings: Vec<Remark>,
}

/// The number of entries of a config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sizes {
    pub version: String,
    pub bytes: usize,
    pub files: usize,
    pub units: usize,
    pub users: usize,
}

/// A finding with its position in the file.
#[derive(Clone, Debug, Serialize)]
pub struct Remark {
    pub severity: Severity,
    /// `None` if the file is not a config.
    pub path: Option<String>,
    /// Counted from 1.
    pub line: Option<usize>,
    /// Counted from 1.
    pub column: Option<usize>,
    pub text: String,
}

impl Checked {
    /// `FILE:LINE:COLUMN: error at PATH: TEXT`, or `FILE: ok, …`.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for file in &self.files {
            for finding in &file.findings {
                text += &finding.line(&file.file);
                text.push('\n');
            }
            if let (true, true, Some(sizes)) = (file.ok, file.findings.is_empty(), &file.sizes) {
                text += &format!("{}: ok, {}\n", printable_line(&file.file), sizes.text());
            }
        }
        text
    }
}

impl Sizes {
    pub fn of(config: &Value, bytes: usize) -> Self {
        let count = |list| config.pointer(list).and_then(Value::as_array).map_or(0, Vec::len);
        let version = config.pointer("/ignition/version").and_then(Value::as_str);
        Self {
            version: version.unwrap_or("?").to_owned(),
            bytes,
            files: count("/storage/files"),
            units: count("/systemd/units"),
            users: count("/passwd/users"),
        }
    }

    fn text(&self) -> String {
        let Self {
            version,
            bytes,
            files,
            units,
            users,
        } = self;
        let mut text = format!("Ignition {version}, {bytes} bytes");
        for (count, one) in [(files, "file"), (units, "unit"), (users, "user")] {
            match count {
                0 => {}
                1 => text += &format!(", 1 {one}"),
                // Writing to a String cannot fail.
                _ => drop(write!(text, ", {count} {one}s")),
            }
        }
        text
    }
}

impl Remark {
    /// The finding as one line, with its position in the format that editors read.
    pub fn line(&self, file: &str) -> String {
        let place = match (self.line, self.column) {
            (Some(line), Some(column)) => format!("{file}:{line}:{column}"),
            _ => file.to_owned(),
        };
        let severity = severity(self.severity);
        let path = self.path.iter().map(|path| format!(" at {path}")).collect::<String>();
        printable_line(&format!("{place}: {severity}{path}: {}", self.text))
    }
}

/// The name of a severity.
fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_finding_is_one_line() {
        let config =
            json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [{}, {}]}, "systemd": {"units": [{}]}});
        let file = |file: &str, ok, sizes, findings| CheckedFile {
            file: file.to_owned(),
            ok,
            sizes,
            findings,
        };
        let remark = |severity, path: Option<&str>, place: Option<(usize, usize)>, text: &str| Remark {
            severity,
            path: path.map(str::to_owned),
            line: place.map(|place| place.0),
            column: place.map(|place| place.1),
            text: text.to_owned(),
        };
        let checked = Checked {
            files: vec![
                file("good.ign", true, Some(Sizes::of(&config, 99)), vec![]),
                file(
                    "bad.ign",
                    false,
                    Some(Sizes::of(&config, 99)),
                    vec![
                        remark(Severity::Error, Some("$.storage.files.0"), Some((3, 4)), "a\nb"),
                        remark(Severity::Warning, Some("$.x"), None, "unknown field"),
                    ],
                ),
                file(
                    "text.ign",
                    false,
                    None,
                    vec![remark(Severity::Error, None, None, "it is a directory")],
                ),
            ],
        };
        insta::assert_snapshot!(checked.text(), @r"
        good.ign: ok, Ignition 3.2.0, 99 bytes, 2 files, 1 unit
        bad.ign:3:4: error at $.storage.files.0: a\nb
        bad.ign: warning at $.x: unknown field
        text.ign: error: it is a directory
        ");
    }
}
