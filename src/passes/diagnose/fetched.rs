//! What was fetched for a bundle or an archive of logs, and what was not.

use crate::printable::printable_line;

/// A file by its name.
pub type File = (String, Vec<u8>);

pub type Fetched = Result<File, NotFetched>;

/// What could not be fetched, and why.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct NotFetched {
    pub what: String,
    why: String,
}

impl NotFetched {
    pub fn new(what: impl Into<String>, why: impl ToString) -> Self {
        Self {
            what: what.into(),
            why: printable_line(&why.to_string()),
        }
    }
}
