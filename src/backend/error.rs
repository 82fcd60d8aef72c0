//! The error of all backends.

use std::fmt;
use std::time::Duration;

/// An operation on a platform failed.
#[derive(Debug, thiserror::Error)]
#[error("{operation}: {kind}")]
pub struct BackendError {
    pub kind: BackendErrorKind,
    /// The operation and its object, e.g. `create machine lab-master-0`.
    pub operation: String,
    /// The platform's message.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
    /// Replaces the hint of the kind if the backend has a better one.
    pub hint: Option<String>,
    /// The platform requested this pause before the next attempt.
    pub pause: Option<Duration>,
}

impl BackendError {
    pub fn new(kind: BackendErrorKind, operation: impl Into<String>) -> Self {
        Self {
            kind,
            operation: operation.into(),
            source: None,
            hint: None,
            pause: None,
        }
    }

    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn pause(mut self, pause: Duration) -> Self {
        self.pause = Some(pause);
        self
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
                "objects that are not owned by this cluster are never changed: delete the object or choose another name"
            }
            Self::Quota => "free resources, or set smaller sizes or fewer workers",
            Self::TooLarge => "reduce the size of the Ignition config",
            Self::Rejected => "see the platform's message above",
            Self::Timeout => "run the same command again; it continues where it stopped",
            Self::NotBuiltIn => "build ocpdeploy with it: `cargo install --locked --path .`",
            // Only libvirt has one. Fedora's package: libvirt/libvirt: libvirt.spec.in, `%files libs`.
            Self::NoLibrary => "install it: `sudo apt install libvirt0` or `sudo dnf install libvirt-libs`",
        }
    }
}
