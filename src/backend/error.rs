//! Why a platform did not do what it was asked.

use std::fmt;
use std::time::Duration;

/// Why a platform did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("{operation}: {kind}")]
pub struct BackendError {
    pub kind: BackendErrorKind,
    /// What was being done to what, e.g. `create machine lab-master-0`.
    pub operation: String,
    /// The platform's own words.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
    /// Replaces the kind's hint where the backend knows better.
    pub hint: Option<String>,
    /// The platform asked for this pause before the same call again.
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
}

impl fmt::Display for BackendErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "the platform cannot be reached",
            Self::Denied => "the platform denies it",
            Self::NotFound => "not found on the platform",
            Self::Conflict => "something else is in the way",
            Self::Quota => "a quota or resource is used up",
            Self::TooLarge => "too large for the platform",
            Self::Rejected => "the platform rejects it",
            Self::Timeout => "the platform did not answer in time",
            Self::NotBuiltIn => "not included in this build",
        })
    }
}

impl BackendErrorKind {
    /// What a user can do about it.
    pub fn hint(self) -> &'static str {
        match self {
            Self::Unreachable => {
                "check the address, the network and that the service runs, then run the same command again"
            }
            Self::Denied => "check the credentials and the rights of this user",
            Self::NotFound => "check the name; `ocpdeploy plan` shows what is asked of the platform",
            Self::Conflict => {
                "nothing that is not tagged with this cluster is touched; remove it or choose another name"
            }
            Self::Quota => "free something, or ask for less with smaller sizes or fewer workers",
            Self::TooLarge => "make the overlay smaller",
            Self::Rejected => "the platform's own words are above",
            Self::Timeout => "run the same command again; it continues where it stopped",
            Self::NotBuiltIn => "build ocpdeploy with it: `cargo install --locked --path .`",
        }
    }
}
