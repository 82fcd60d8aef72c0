//! Errors of configs.

use super::document;
use super::finding::Finding;
use super::version::Version;
use crate::cluster::Role;

/// The origin of the layer that this program adds.
pub const OURS: &str = "ocpdeploy";

/// What is wrong with a config, or between two configs.
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
    #[error(
        "{origin} is Ignition {version}, and the CoreOS of its nodes reads {newest} at most{}",
        faults(findings)
    )]
    NewerThanCoreOs {
        origin: String,
        version: Version,
        newest: Version,
        /// What `newest` does not have.
        findings: Vec<Finding>,
    },
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
                "each file, unit and setting may be set only once; to change one of the installer or of a \
                 MachineConfig, add a MachineConfig to `manifests`",
            ),
            Self::In { source, .. } => source.hint(),
            Self::Parse(error) => error.hint(),
            Self::Majors { .. } => Some(
                "no CoreOS reads both Ignition 2 (OpenShift 4.1 to 4.5) and 3 (4.6 and later): \
                 use files of the same release",
            ),
            Self::NewerThanCoreOs { .. } => {
                Some("use only what the older version has, or a release of OpenShift whose CoreOS reads the newer one")
            }
            Self::NoMcs => Some("set `mcs=tls` to keep the installer's pointer config"),
            _ => None,
        }
    }
}

impl IgnitionError {
    /// Adds the config's origin.
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
            let lines: String = several.iter().map(line).collect();
            format!(", {} faults:{lines}", several.len())
        }
    }
}
