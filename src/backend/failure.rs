//! The error of a request to any platform, and the one place that adds the operation.

use std::fmt;
use std::time::Duration;

use super::error::{BackendError, BackendErrorKind};
use crate::http_limits::CapError;

/// Why a request to a platform failed. `during` adds the operation.
#[derive(Debug)]
pub(super) struct Failure {
    pub kind: BackendErrorKind,
    /// The platform's message, or ours.
    pub message: String,
    pub hint: Option<String>,
    /// The platform's error code: an HTTP status, or libvirt's error number.
    pub code: Option<u32>,
    /// The pause that the platform requested, for example by Retry-After. The operation was not started.
    pub pause: Option<Duration>,
}

impl Failure {
    pub fn new(kind: BackendErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
            code: None,
            pause: None,
        }
    }

    /// A response from `place` that was not received completely.
    pub fn unread(place: &str, error: &CapError) -> Self {
        let kind = match error {
            CapError::Cut(_) => BackendErrorKind::Unreachable,
            CapError::Slow(_) => BackendErrorKind::Timeout,
            _ => BackendErrorKind::Rejected,
        };
        Self::new(kind, format!("{place}: {error}"))
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn pause(mut self, asked: Option<Duration>) -> Self {
        self.pause = asked;
        self
    }

    pub fn during(self, operation: impl Into<String>) -> BackendError {
        BackendError {
            hint: self.hint,
            pause: self.pause,
            ..BackendError::new(self.kind, operation).because(self.message)
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Adds the operation to an error.
pub(super) trait During<T> {
    fn during(self, operation: impl Into<String>) -> Result<T, BackendError>;
}

impl<T> During<T> for Result<T, Failure> {
    fn during(self, operation: impl Into<String>) -> Result<T, BackendError> {
        self.map_err(|failure| failure.during(operation))
    }
}
