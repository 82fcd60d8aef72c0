//! The error of all backends, and of the operations that they belong to.

use std::path::Path;
use std::time::Duration;
use std::{fmt, io};

/// Why a request to a platform failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct BackendError {
    pub kind: BackendErrorKind,
    /// The platform's message, or ours.
    pub message: String,
    /// Replaces the hint of the kind if the backend has a better one.
    pub hint: Option<String>,
    /// The platform's error code: an HTTP status, or libvirt's error number.
    pub code: Option<u32>,
    /// The pause that the platform requested, for example by Retry-After. The operation was not started.
    pub pause: Option<Duration>,
}

impl BackendError {
    pub fn new(kind: BackendErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
            code: None,
            pause: None,
        }
    }

    /// A file on this computer cannot be read.
    pub fn unreadable(path: &Path, error: &io::Error) -> Self {
        let message = format!("cannot read {}: {error}", path.display());
        Self::new(BackendErrorKind::LocalFile, message)
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn pause(mut self, requested: Option<Duration>) -> Self {
        self.pause = requested;
        self
    }

    /// Adds the operation and its object, e.g. `create machine lab-master-0`.
    pub fn during(self, operation: impl Into<String>) -> PlatformError {
        PlatformError {
            operation: operation.into(),
            source: self,
        }
    }
}

/// An operation on the platforms of a cluster failed.
#[derive(Debug, thiserror::Error)]
#[error("{operation}: {}", source.kind)]
pub struct PlatformError {
    /// The operation and its object, e.g. `create machine lab-master-0`.
    pub operation: String,
    pub source: BackendError,
}

impl PlatformError {
    pub fn kind(&self) -> BackendErrorKind {
        self.source.kind
    }
}

/// `None` if the object does not exist, or was deleted meanwhile.
pub(super) fn if_exists<T>(answer: Result<T, impl Into<BackendError>>) -> Result<Option<T>, BackendError> {
    match answer.map_err(Into::into) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind == BackendErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendErrorKind {
    Unreachable,
    Denied,
    NotFound,
    Conflict,
    Quota,
    TooLarge,
    Rejected,
    Timeout,
    /// A file on this computer is missing, not readable or has another content.
    LocalFile,
    /// This build of the program does not include the backend.
    NotBuiltIn,
    /// The backend's library is not installed on this computer.
    NoLibrary,
}

impl fmt::Display for BackendErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "the platform is unreachable",
            Self::Denied => "permission denied",
            Self::NotFound => "not found on the platform",
            Self::Conflict => "conflict with an existing object",
            Self::Quota => "a quota or resource is exhausted",
            Self::TooLarge => "too large for the platform",
            Self::Rejected => "rejected by the platform",
            Self::Timeout => "the platform did not respond in time",
            Self::LocalFile => "a file on this computer cannot be used",
            Self::NotBuiltIn => "not included in this build",
            Self::NoLibrary => "a library is missing on this computer",
        })
    }
}

impl BackendErrorKind {
    /// What the user can do.
    pub fn hint(self) -> &'static str {
        match self {
            Self::Unreachable => {
                "check the address, the network, and whether the service runs, then run the same command again"
            }
            Self::Denied => "check the credentials and the permissions of this user",
            Self::NotFound => "check the name; `ocpdeploy plan` shows what would be created",
            Self::Conflict => {
                "objects of other owners are never changed: choose another name, or find the owner with `ocpdeploy audit`"
            }
            Self::Quota => "free resources, or set smaller sizes or fewer workers",
            Self::TooLarge => "reduce the size of the Ignition config",
            Self::Rejected => "see the platform's message above",
            Self::Timeout => "run the same command again; it continues where it stopped",
            Self::LocalFile => "check the file, then run the same command again",
            Self::NotBuiltIn => "build ocpdeploy with it: `cargo install --locked --path .`",
            // Only libvirt has one. Fedora's package: libvirt/libvirt: libvirt.spec.in, `%files libs`.
            Self::NoLibrary => "install it: `sudo apt install libvirt0` or `sudo dnf install libvirt-libs`",
        }
    }
}
