//! Errors of installers.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::cluster::NodeName;

/// Why an installer failed.
#[derive(Debug, thiserror::Error)]
pub enum InstallerError {
    #[error("cannot find openshift-install {place}")]
    NotFound { place: String },
    #[error("{} is openshift-install {version}, but version={wanted}", path.display())]
    OtherVersion {
        /// Or the URL of a mirror's folder.
        path: PathBuf,
        version: String,
        wanted: String,
    },
    #[error("{url} has no openshift-install and client for this computer")]
    NotListed { url: String },
    #[error("{url} lists no stable release of {wanted}")]
    NoOkd { wanted: String, url: String },
    #[error("cannot verify {url}: it is neither signed nor pinned")]
    Unsigned { url: String },
    #[error("cannot verify signature {url}: {why}")]
    Signature { url: String, why: String },
    #[error("cannot verify release {image}: {url}: {why}")]
    ReleaseSignature { image: String, url: String, why: String },
    #[error("cannot trust {url}: plain http does not protect against modification")]
    PlainHttp { url: String },
    #[error("{url} has sha256 {found}, which differs from mirror_sha256")]
    NotPinned { url: String, found: String },
    #[error("cannot use public key {path}: {why}")]
    Key { path: String, why: String },
    #[error("cannot unpack archive {name}: {why}")]
    Archive { name: String, why: String },
    #[error("{0}")]
    Unsupported(String),
    #[error("cannot run {}", path.display())]
    NotRun { path: PathBuf, source: io::Error },
    #[error("{operation} failed with {status}{}", indented(tail))]
    Failed {
        operation: String,
        /// `exit status: 1`, `signal: 9 (SIGKILL)`.
        status: String,
        /// The last lines it wrote, secrets masked.
        tail: Vec<String>,
        log: PathBuf,
    },
    #[error("{operation} timed out after {} s and was stopped{}", after.as_secs(), indented(tail))]
    TooLong {
        operation: String,
        after: Duration,
        tail: Vec<String>,
        log: PathBuf,
    },
    #[error("cannot find oc next to openshift-install or in PATH")]
    NoOc,
    #[error("cannot read the images of release {image}: {why}")]
    Payload {
        image: String,
        why: String,
        /// Each registry rejected the pull secret.
        denied: bool,
    },
    #[error("{}", problems.join("; "))]
    Fips { problems: Vec<String> },
    #[error("openshift-install did not create {}", path.display())]
    NoAsset { path: PathBuf },
    #[error("manifest {} would replace the installer's own {name}", path.display())]
    Manifest { path: PathBuf, name: String },
    #[error("no report within {} s from:{}", after.as_secs(), indented(silent))]
    Silent { silent: Vec<String>, after: Duration },
    #[error("{node} differs from its planned configuration:{}", indented(differences))]
    Differs { node: NodeName, differences: Vec<String> },
}

impl InstallerError {
    /// What a user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound { .. } => Some(
                "set version=stable (or 4.19, okd, …) in the env file to download it; or get it from \
                 https://mirror.openshift.com/pub/openshift-v4/clients/ocp/ (OKD: the releases of \
                 github.com/okd-project/okd) and put it in PATH, or set installer=PATH"
                    .to_owned(),
            ),
            Self::OtherVersion { .. } => Some("remove one of the settings version, installer and mirror".to_owned()),
            Self::NotListed { .. } => {
                Some("set mirror to the directory that contains ocp/, or OKD's releases".to_owned())
            }
            Self::NoOkd { .. } => Some(
                "set version to a release of https://github.com/okd-project/okd/releases, or version=okd".to_owned(),
            ),
            Self::Unsigned { url } | Self::PlainHttp { url } => Some(format!(
                "use a mirror with https and sha256sum.txt.gpg, or pin this one with mirror_sha256=$(curl -s {url} | \
                 sha256sum); mirror_insecure=true runs its programs without verification"
            )),
            Self::Signature { .. } => Some(
                "no program of this mirror was run; if it signs with its own key, set mirror_key=FILE to the public key"
                    .to_owned(),
            ),
            Self::ReleaseSignature { .. } => Some(
                "nothing was created; if the release is signed with your own key, set mirror_key=FILE to the public key"
                    .to_owned(),
            ),
            Self::NotPinned { .. } => {
                Some("the list has changed since it was pinned; review it before you update mirror_sha256".to_owned())
            }
            Self::Key { .. } => Some("create the file for mirror_key with `gpg --export --armor KEY`".to_owned()),
            Self::Archive { .. } => Some("the mirror's archive is not one of openshift-install; use another mirror".to_owned()),
            Self::Unsupported(_) => Some("change the setting, or choose another version".to_owned()),
            Self::NotRun { .. } => {
                Some("check that it is an executable for this computer: run `openshift-install version`".to_owned())
            }
            Self::Failed { operation, log, .. } if operation.starts_with("openshift-install create") => Some(format!(
                "correct the settings or manifests that it rejects, then run the same command again; its output is in {}",
                log.display()
            )),
            Self::Failed { log, .. } | Self::TooLong { log, .. } => Some(format!(
                "its output is in {}; to resume, run the same command again",
                log.display()
            )),
            Self::NoOc => Some(
                "download openshift-client from the same place as openshift-install, and put it in PATH or next to openshift-install"
                    .to_owned(),
            ),
            Self::Payload { denied: true, .. } => Some(
                "download the pull secret again; for a mirror, add its credentials to the pull secret".to_owned(),
            ),
            Self::Payload { .. } => Some(
                "check that this computer reaches the registry; to use a mirror, set registry_mirrors, and ca for its \
                 certificate, or OPENSHIFT_INSTALL_RELEASE_IMAGE_OVERRIDE in the environment"
                    .to_owned(),
            ),
            Self::Fips { .. } => Some(
                "on RHEL 9 in FIPS mode, download openshift-install-rhel9-amd64.tar.gz from the mirror and set installer \
                 to the openshift-install-fips in it; OPENSHIFT_INSTALL_SKIP_HOSTCRYPT_VALIDATION=1 skips this check"
                    .to_owned(),
            ),
            Self::Manifest { .. } => Some(
                "rename your manifest; if it is for the same object, remove it: the installer rejects two manifests for \
                 one object"
                    .to_owned(),
            ),
            Self::Silent { .. } => {
                Some("the machines are kept; check their consoles, then run the same command again".to_owned())
            }
            Self::NoAsset { .. } | Self::Differs { .. } => None,
        }
    }

    /// Whether registries rejected the pull secret.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Payload { denied: true, .. })
    }

    /// Whether a wait timed out.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::TooLong { .. } | Self::Silent { .. })
    }
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n  {line}")).collect()
}
