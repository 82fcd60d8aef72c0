//! Responses over HTTP: parts of them, and those that were not received completely.

use serde_json::Value;

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

/// The part of a response at a JSON pointer; null if there is none. Indexing panics if the server sent a list instead.
pub(super) fn part(mut response: Value, pointer: &str) -> Value {
    response.pointer_mut(pointer).map(Value::take).unwrap_or_default()
}
