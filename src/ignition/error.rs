//! What may be wrong with configs.

use super::document;
use super::finding::Finding;
use super::version::Version;
use crate::cluster::Role;

/// The origin of the layer that this program itself adds.
pub const OURS: &str = "ocpdeploy";

/// What is wrong with a config, or between two.
#[derive(Debug, thiserror::Error)]
pub enum IgnitionError {
    #[error("the config is not JSON")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Parse(#[from] document::ParseError),
    #[error("the config has no Ignition version at $.ignition.version")]
    NoVersion,
    #[error("Ignition version `{0}` is not one of 2.x.y and 3.x.y")]
    Version(String),
    #[error("Ignition {ours} cannot be merged into Ignition {theirs}")]
    Majors { ours: Version, theirs: Version },
    #[error("{path} is not {wanted}")]
    Shape { path: String, wanted: &'static str },
    #[error("{what} is written by {one} and by {other}")]
    Conflict { what: String, one: String, other: String },
    #[error("{origin}: {source}")]
    In { origin: String, source: Box<IgnitionError> },
    #[error("{origin}{}", faults(findings))]
    Faulty { origin: String, findings: Vec<Finding> },
    #[error("Ignition {version} has no {what}")]
    NotInVersion { what: &'static str, version: Version },
    #[error("there is no installer's file for role {0}")]
    NoRole(Role),
    #[error("the pointer has no entry of the machine config server, https://<host>:22623/config/<role>")]
    NoMcs,
}

impl IgnitionError {
    /// What a user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Conflict { one, other, .. } if one == OURS || other == OURS => {
                Some("ocpdeploy needs it as it writes it: take it out of what is yours")
            }
            Self::Conflict { .. } => Some(
                "each file, unit and setting has one writer; what the installer or a MachineConfig writes is changed by \
                 a MachineConfig of yours in `manifests`",
            ),
            Self::In { source, .. } => source.hint(),
            Self::Parse(error) => error.hint(),
            Self::Majors { .. } => Some(
                "Ignition 2 (OpenShift 4.1 to 4.5) and 3 (4.6 and later) are two languages, and no CoreOS reads both: \
                 take files of one release",
            ),
            Self::NoMcs => Some("`mcs=tls` leaves the installer's pointer as it is"),
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
