//! A file in the cache and its metadata.

use std::path::PathBuf;

use jiff::Timestamp;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::state::dir::Dir;

pub(super) const VERSION: u32 = 1;

pub(super) const ABOUT: &str = "about.json";

/// `about.json` has a few hundred bytes.
pub(super) const LONGEST_ABOUT: u64 = 64 << 10;

/// A complete file of the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cached {
    pub path: PathBuf,
    /// Of its content, in hex.
    pub sha256: String,
    pub bytes: u64,
    /// Its source.
    pub url: String,
    pub fetched: Timestamp,
    /// When it was last used.
    pub used: Timestamp,
}

/// The metadata of a file in the cache.
#[derive(Deserialize, Serialize)]
pub(super) struct CacheMetadata {
    pub v: u32,
    pub url: String,
    pub file: String,
    pub sha256: String,
    /// Of the downloaded bytes.
    pub packed_sha256: String,
    pub bytes: u64,
    pub fetched: Timestamp,
}

/// The directory of a complete file, with its metadata.
pub(super) struct CacheEntry {
    pub folder: Dir,
    pub about: CacheMetadata,
}

impl CacheEntry {
    /// The entry of this digest, if it is complete and no other user can change it.
    pub fn open(files: &Dir, digest: &str) -> Option<Self> {
        let folder = files.look_ours(digest).ok()?;
        let about: CacheMetadata = serde_json::from_slice(&folder.read(ABOUT, LONGEST_ABOUT).ok()?).ok()?;
        let file = folder.file(&about.file, OFlags::RDONLY).ok()?;
        let fits = about.v == VERSION && about.sha256 == digest && file.metadata().ok()?.len() == about.bytes;
        fits.then_some(Self { folder, about })
    }

    pub fn cached(self) -> Option<Cached> {
        let used = self
            .folder
            .file(ABOUT, OFlags::RDONLY)
            .ok()?
            .metadata()
            .ok()?
            .modified()
            .ok()?;
        Some(Cached {
            path: self.folder.join(&self.about.file),
            sha256: self.about.sha256,
            bytes: self.about.bytes,
            url: self.about.url,
            fetched: self.about.fetched,
            used: Timestamp::try_from(used).ok()?,
        })
    }
}
