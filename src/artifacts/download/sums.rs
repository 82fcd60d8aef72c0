//! The checksums of a download.

use std::io;

/// The result of a download.
pub(super) struct Sums {
    /// SHA-256 of the downloaded bytes.
    pub packed: String,
    /// The decompressed content; the error is the decompressor's.
    pub content: io::Result<ContentSum>,
}

pub(super) struct ContentSum {
    pub sha256: String,
    pub bytes: u64,
}
