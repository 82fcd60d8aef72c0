//! Responses over HTTP that were not received completely.

use super::{BackendError, BackendErrorKind};
use crate::http_limits::CapError;

impl BackendError {
    /// A response from `place` that was not received completely.
    pub(super) fn unread(place: &str, error: &CapError) -> Self {
        let kind = match error {
            CapError::Cut(_) => BackendErrorKind::Unreachable,
            CapError::Slow(_) => BackendErrorKind::Timeout,
            _ => BackendErrorKind::Rejected,
        };
        Self::new(kind, format!("{place}: {error}"))
    }
}
