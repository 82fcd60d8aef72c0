//! Ignition: from the installer's file for a role to the config that one node gets.
//!
//! All of it works on JSON values, so that fields this program does not know survive, in their order.

use std::fmt;

use serde_json::Value;

use self::check::Finding;
use crate::cluster::Role;

pub mod check;
pub mod contents;
pub mod diff;
pub mod document;
pub mod merge;
pub mod origins;
pub mod place;
pub mod spec;
mod translate;
pub mod unpack;

/// The origin of the layer that this program itself adds.
pub const OURS: &str = "ocpdeploy";

/// A version of Ignition's spec, of major 2 or 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: Major,
    pub minor: u32,
    pub patch: u32,
}

/// The two languages; no document, merge or CoreOS mixes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Major {
    /// OpenShift 4.1 to 4.5.
    Two,
    /// OpenShift 4.6 and later.
    Three,
}

impl Major {
    /// The list in `ignition.config` of what is fetched and merged over the rest.
    pub fn merge_list(self) -> &'static str {
        match self {
            Major::Two => "append",
            Major::Three => "merge",
        }
    }
}

impl fmt::Display for Major {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Major::Two => "2",
            Major::Three => "3",
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// What is wrong with a config, or between two.
#[derive(Debug, thiserror::Error)]
pub enum IgnitionError {
    #[error("the config is not valid JSON")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Parse(#[from] document::ParseError),
    #[error("the config has no Ignition version at $.ignition.version")]
    NoVersion,
    #[error("unsupported Ignition version `{0}`: must be 2.x.y or 3.x.y")]
    Version(String),
    #[error("Ignition {ours} cannot be merged into Ignition {theirs}")]
    Majors { ours: Version, theirs: Version },
    #[error("{path} must be {wanted}")]
    Shape { path: String, wanted: &'static str },
    #[error("conflict: {what} is set by {one} and by {other}")]
    Conflict { what: String, one: String, other: String },
    #[error("{origin}: {source}")]
    In { origin: String, source: Box<IgnitionError> },
    #[error("{origin}{}", faults(findings))]
    Faulty { origin: String, findings: Vec<Finding> },
    #[error("Ignition {version} does not support {what}")]
    NotInVersion { what: &'static str, version: Version },
    #[error("no Ignition config from the installer for role {0}")]
    NoRole(Role),
    #[error("the pointer config has no URL of the machine config server, https://<host>:22623/config/<role>")]
    NoMcs,
}

impl IgnitionError {
    /// What a user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Conflict { one, other, .. } if one == OURS || other == OURS => {
                Some("remove it from your config: ocpdeploy sets it")
            }
            Self::Conflict { .. } => Some(
                "each file, unit and setting may be set only once; to change one of the installer or of a MachineConfig, add \
                 a MachineConfig to `manifests`",
            ),
            Self::In { source, .. } => source.hint(),
            Self::Parse(error) => error.hint(),
            Self::Majors { .. } => Some(
                "no CoreOS reads both Ignition 2 (OpenShift 4.1 to 4.5) and 3 (4.6 and later): \
                 use files of the same release",
            ),
            Self::NoMcs => Some("set `mcs=tls` to keep the installer's pointer config"),
            _ => None,
        }
    }
}

impl IgnitionError {
    /// Says whose config it is about.
    pub fn of(self, origin: &str) -> Self {
        Self::In {
            origin: origin.to_owned(),
            source: Box::new(self),
        }
    }
}

fn faults(findings: &[Finding]) -> String {
    match findings {
        [Finding { path, text, .. }] => format!(": {path}: {text}"),
        several => {
            let line = |Finding { path, text, .. }: &Finding| format!("\n  {path}: {text}");
            format!(
                " has {} faults:{}",
                several.len(),
                several.iter().map(line).collect::<String>()
            )
        }
    }
}

/// The version a config says it is written in.
pub fn version(config: &Value) -> Result<Version, IgnitionError> {
    let text = config
        .pointer("/ignition/version")
        .and_then(Value::as_str)
        .ok_or(IgnitionError::NoVersion)?;
    parse_version(text).ok_or_else(|| IgnitionError::Version(text.to_owned()))
}

fn parse_version(text: &str) -> Option<Version> {
    let mut parts = text.split('.').map(|part| {
        let plain = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| part.parse::<u32>().ok()).flatten()
    });
    let major = match parts.next()?? {
        2 => Major::Two,
        3 => Major::Three,
        _ => return None,
    };
    let version = Version {
        major,
        minor: parts.next()??,
        patch: parts.next()??,
    };
    parts.next().is_none().then_some(version)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_are_read_strictly() {
        let read = |text: &str| version(&json!({"ignition": {"version": text}})).map(|version| version.to_string());
        for good in ["2.2.0", "3.0.0", "3.2.0", "3.10.12"] {
            assert_eq!(read(good).unwrap(), good);
        }
        for bad in [
            "3.2",
            "3",
            "",
            "3.2.0.0",
            "4.0.0",
            "1.0.0",
            "3.2.x",
            "3.+2.0",
            "3.2.0-experimental",
            "3..0",
        ] {
            let error = read(bad).unwrap_err();
            assert!(
                matches!(error, IgnitionError::Version(ref text) if text == bad),
                "{bad}: {error}"
            );
        }
        for none in [
            json!({}),
            json!({"ignition": {}}),
            json!({"ignition": {"version": 3}}),
            json!([]),
            json!(null),
        ] {
            assert!(matches!(version(&none), Err(IgnitionError::NoVersion)), "{none}");
        }
    }
}
