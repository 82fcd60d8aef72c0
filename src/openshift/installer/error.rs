//! What may go wrong with an installer.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::cluster::NodeName;

/// Why an installer did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum InstallerError {
    #[error("no openshift-install {place}")]
    NotFound { place: String },
    #[error("{} is openshift-install {version}, and version={wanted}", path.display())]
    OtherVersion {
        /// Or the URL of a mirror's folder.
        path: PathBuf,
        version: String,
        wanted: String,
    },
    #[error("{url} lists no openshift-install and client for this computer")]
    NotListed { url: String },
    #[error("{url} is neither signed nor pinned, so nothing tells whose programs it lists")]
    Unsigned { url: String },
    #[error("signature {url} is not accepted: {why}")]
    Signature { url: String, why: String },
    #[error("{url} comes over plain http, where anybody on the way can change it")]
    PlainHttp { url: String },
    #[error("{url} has sha256 {found}, which is not mirror_sha256")]
    NotPinned { url: String, found: String },
    #[error("public key {path} cannot be used: {why}")]
    Key { path: String, why: String },
    #[error("archive {name} is refused: {why}")]
    Archive { name: String, why: String },
    #[error("{0}")]
    Unsupported(String),
    #[error("cannot run {}", path.display())]
    NotRun { path: PathBuf, source: io::Error },
    #[error("{operation} ended with {status}{}", indented(tail))]
    Failed {
        operation: String,
        /// `exit status: 1`, `signal: 9 (SIGKILL)`.
        status: String,
        /// The last lines it wrote, secrets masked.
        tail: Vec<String>,
        log: PathBuf,
    },
    #[error("{operation} did not end within {} s and was stopped{}", after.as_secs(), indented(tail))]
    TooLong {
        operation: String,
        after: Duration,
        tail: Vec<String>,
        log: PathBuf,
    },
    #[error("no oc beside openshift-install and in PATH")]
    NoOc,
    #[error("ask for the images of release {image}: {why}")]
    Payload { image: String, why: String },
    #[error("openshift-install wrote no {}", path.display())]
    NoAsset { path: PathBuf },
    #[error("manifest {} would replace the installer's own {name}", path.display())]
    Manifest { path: PathBuf, name: String },
    #[error("no report within {} s from:{}", after.as_secs(), indented(silent))]
    Silent { silent: Vec<String>, after: Duration },
    #[error("{node} is not as it should be:{}", indented(differences))]
    Differs { node: NodeName, differences: Vec<String> },
}

impl InstallerError {
    /// What a user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound { .. } => Some(
                "version=stable (or 4.19, okd, …) in the env file fetches it; or get it from \
                 https://mirror.openshift.com/pub/openshift-v4/clients/ocp/ (OKD: the releases of \
                 github.com/okd-project/okd) and put it into PATH, or name it: installer=PATH"
                    .to_owned(),
            ),
            Self::OtherVersion { .. } => Some("leave out one of the settings version, installer and mirror".to_owned()),
            Self::NotListed { .. } => {
                Some("is the setting mirror the folder that holds ocp/, or OKD's releases?".to_owned())
            }
            Self::Unsigned { url } | Self::PlainHttp { url } => Some(format!(
                "use a mirror with https and sha256sum.txt.gpg, or pin this one: mirror_sha256=$(curl -s {url} | \
                 sha256sum); mirror_insecure=true runs its programs unchecked"
            )),
            Self::Signature { .. } => Some(
                "nothing of this mirror was run; if it signs with a key of its own, mirror_key=FILE names the public key"
                    .to_owned(),
            ),
            Self::NotPinned { .. } => {
                Some("the list has changed since it was pinned: compare it before you set mirror_sha256 anew".to_owned())
            }
            Self::Key { .. } => Some("mirror_key is a file as `gpg --export --armor KEY` writes it".to_owned()),
            Self::Archive { .. } => Some("the mirror serves something else than openshift-install".to_owned()),
            Self::Unsupported(_) => Some("change the setting, or choose another version".to_owned()),
            Self::NotRun { .. } => {
                Some("is it an executable for this computer? `openshift-install version` tells".to_owned())
            }
            Self::Failed { log, .. } | Self::TooLong { log, .. } => Some(format!(
                "all it wrote is in {}; the same command goes on from here",
                log.display()
            )),
            Self::NoOc => Some(
                "it comes with openshift-install, as openshift-client; put it into PATH or beside openshift-install"
                    .to_owned(),
            ),
            Self::Payload { .. } => Some(
                "is the registry reached from this computer, and does the pull secret open it? a mirror is named by \
                 OPENSHIFT_INSTALL_RELEASE_IMAGE_OVERRIDE"
                    .to_owned(),
            ),
            Self::Manifest { .. } => Some("give it another name; the later name wins".to_owned()),
            Self::Silent { .. } => {
                Some("the machines are kept: look at their consoles, then run the same command again".to_owned())
            }
            Self::NoAsset { .. } | Self::Differs { .. } => None,
        }
    }

    /// Something was waited for too long.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::TooLong { .. } | Self::Silent { .. })
    }
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n  {line}")).collect()
}
