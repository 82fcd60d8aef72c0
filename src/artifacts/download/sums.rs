//! The sums of what was downloaded.

use std::io;

/// What came out.
pub(super) struct Sums {
    /// sha256 of the bytes as they came.
    pub packed: String,
    /// What they hold; the error is the decompressor's.
    pub content: io::Result<Content>,
}

pub(super) struct Content {
    pub sha256: String,
    pub bytes: u64,
}
