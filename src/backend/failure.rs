//! What every platform's refusals have in common, and the one place where the operation is added to them.

use std::fmt;
use std::time::Duration;

use super::error::{BackendError, BackendErrorKind};
use crate::http_limits::CapError;

/// What a platform, or the way to it, said instead of doing what it was asked; what that was is added by `during`.
#[derive(Debug)]
pub(super) struct Failure {
    pub kind: BackendErrorKind,
    /// The platform's words, or ours.
    pub words: String,
    pub hint: Option<String>,
    /// What the platform calls it: an HTTP status, or libvirt's number.
    pub code: Option<u32>,
    /// That the platform asked for; it has begun nothing.
    pub pause: Option<Duration>,
}

impl Failure {
    pub fn new(kind: BackendErrorKind, words: impl Into<String>) -> Self {
        Self {
            kind,
            words: words.into(),
            hint: None,
            code: None,
            pause: None,
        }
    }

    /// Of an answer of `place` that was not read to its end.
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
            ..BackendError::new(self.kind, operation).because(self.words)
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// Says what was being done.
pub(super) trait During<T> {
    fn during(self, operation: impl Into<String>) -> Result<T, BackendError>;
}

impl<T> During<T> for Result<T, Failure> {
    fn during(self, operation: impl Into<String>) -> Result<T, BackendError> {
        self.map_err(|failure| failure.during(operation))
    }
}
