//! An incomplete download, and how it becomes a file of the cache.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use jiff::Timestamp;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use tracing::info;

use super::entry::{ABOUT, CacheEntry, CacheMetadata, Cached, LONGEST_ABOUT, VERSION};
use super::error::{DownloadError, disk, shown};
use super::sums::Sums;
use crate::artifacts::catalogue::Artifact;
use crate::state::dir::{self, Dir};

/// The server's description of a file when its download began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct DownloadOrigin {
    /// A strong ETag, otherwise the time of the last change.
    pub validator: Option<String>,
    /// Size of the whole file.
    pub total: Option<u64>,
}

/// An incomplete download; the lock ends with it, or with its process.
pub(super) struct Partial {
    pub folder: Dir,
    /// The directory that contains it, and its name there.
    pub all: Dir,
    pub key: String,
    pub files: Dir,
    pub _lock: File,
}

/// The downloaded bytes.
const PACKED: &str = "packed";
/// The decompressed content.
const CONTENT: &str = "content";
const ORIGIN: &str = "origin.json";
/// The directory that will be published.
const WHOLE: &str = "whole";

impl Partial {
    /// Path of the downloaded bytes.
    pub fn packed(&self) -> PathBuf {
        self.folder.join(PACKED)
    }

    /// Path of the decompressed content.
    pub fn content(&self) -> PathBuf {
        self.folder.join(CONTENT)
    }

    /// Number of bytes downloaded so far.
    pub fn have(&self) -> u64 {
        let file = self.folder.file(PACKED, OFlags::RDONLY);
        file.and_then(|file| Ok(file.metadata()?.len())).unwrap_or_default()
    }

    pub fn origin(&self) -> DownloadOrigin {
        let text = self.folder.read(ORIGIN, LONGEST_ABOUT).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Written before the first byte, so that bytes of unknown origin are never continued.
    pub fn set_origin(&self, origin: &DownloadOrigin) -> Result<(), DownloadError> {
        let text = serde_json::to_vec(origin).unwrap_or_default();
        let file = self.folder.create(ORIGIN);
        file.and_then(|mut file| file.write_all(&text))
            .map_err(disk(&self.folder.join(ORIGIN)))
    }

    pub fn open_packed(&self) -> Result<File, DownloadError> {
        let file = self.folder.file(PACKED, OFlags::RDWR | OFlags::CREATE);
        file.map_err(disk(&self.packed()))
    }

    pub fn create_content(&self) -> Result<File, DownloadError> {
        self.folder.create(CONTENT).map_err(disk(&self.content()))
    }

    pub fn discard_content(&self) -> Result<(), DownloadError> {
        self.folder.remove(CONTENT).map_err(disk(&self.content()))
    }

    /// Removes it.
    pub fn discard(self) -> Result<(), DownloadError> {
        self.all.remove(&self.key).map_err(disk(self.folder.path()))
    }

    /// Removes its contents, to start over.
    pub fn clear(&self) -> Result<(), DownloadError> {
        for name in [PACKED, CONTENT, ORIGIN] {
            self.folder.remove(name).map_err(disk(&self.folder.join(name)))?;
        }
        Ok(())
    }

    /// Publishes the complete file under its name and removes the partial one.
    pub fn finish(self, artifact: &Artifact, sums: &Sums) -> Result<Cached, DownloadError> {
        let target = self.files.path().to_owned();
        let content = sums.content.as_ref();
        let content = content.map_err(|_| disk(&target)(io::Error::other("the digest is not known")))?;
        let about = CacheMetadata {
            v: VERSION,
            url: shown(&artifact.url).to_owned(),
            file: artifact.content_name().to_owned(),
            sha256: content.sha256.clone(),
            packed_sha256: sums.packed.clone(),
            bytes: content.bytes,
            fetched: Timestamp::now(),
        };
        let digest = about.sha256.clone();
        let target = self.files.join(&digest);
        self.show(&about).map_err(disk(&target))?;
        let entry = CacheEntry::open(&self.files, &digest).and_then(CacheEntry::cached);
        entry.ok_or_else(|| disk(&target)(io::Error::other("it was removed again")))
    }

    fn show(&self, about: &CacheMetadata) -> io::Result<()> {
        let whole = self.folder.fresh(WHOLE)?;
        let made = if self.folder.has(CONTENT) { CONTENT } else { PACKED };
        self.folder.rename(made, &whole, &about.file)?;
        // It is no longer modified.
        dir::set_mode(&whole.file(&about.file, OFlags::RDONLY)?, 0o444)?;
        let mut file = whole.file(ABOUT, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        file.write_all(&serde_json::to_vec(about).map_err(io::Error::other)?)?;
        dir::set_mode(&file, 0o644)?;
        file.sync_all()?;
        whole.sync()?;
        if self.files.has(&about.sha256) {
            // An existing entry with this digest is replaced: it may have another name, or be damaged.
            self.folder.remove("old")?;
            self.files.rename(&about.sha256, &self.folder, "old")?;
            info!("replacing existing {}", about.sha256);
        }
        self.folder.rename(WHOLE, &self.files, &about.sha256)?;
        self.files.sync()?;
        self.all.remove(&self.key)
    }
}
