//! Reads one config from bytes that nobody has looked at yet.

use serde_json::Value;

/// Why bytes are not a config, and where.
///
/// The text never quotes the file: there are passwords and keys in it.
#[derive(Debug, thiserror::Error)]
#[error("line {line}, column {column}: {reason}")]
pub struct ParseError {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    pub reason: String,
}

impl ParseError {
    /// What a user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        None
    }
}

/// The config in `bytes`: one JSON object, of a version of the spec that this program knows.
pub fn parse(bytes: &[u8]) -> Result<Value, ParseError> {
    serde_json::from_slice(bytes).map_err(|error| ParseError {
        line: error.line(),
        column: error.column(),
        reason: "not JSON".to_owned(),
    })
}
