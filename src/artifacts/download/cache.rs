//! The download cache of one user: files are stored by digest, programs by how they were verified.
//!
//! Only this user owns the directory and can write to it, so no other user can change or replace a verified file.
//!
//! `files/<digest>/` contains one file and `about.json`, and appears by one rename. `partial/` contains incomplete
//! files, one directory and one lock each. `lists/` contains the checksum lists of pass-one images.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fs_err as fs;
use rustix::fs::OFlags;
use serde::Serialize;
use tracing::info;

use super::entry::{ABOUT, CacheEntry, CacheMetadata, Cached};
use super::error::{DownloadError, disk, shown};
use super::partial::Partial;
use super::pipeline::Space;
use super::retry::RetryPolicy;
use super::trust::Trust;
use crate::PROGRESS;
use crate::artifacts::catalogue::Artifact;
use crate::cluster::{Architecture, ReleaseArchitecture};
use crate::digest::sha256;
use crate::state::dir::{self, Dir};
use crate::state::home::{create_private_dir, write_private};

/// The directory of complete files.
const FILES: &str = "files";
/// The directory of incomplete downloads.
const PARTIAL: &str = "partial";
/// The directory of all releases' programs, for other architectures than x86_64 with the architecture in its name.
const INSTALLERS: &str = "installers";
/// The directory of checksum lists.
const LISTS: &str = "lists";

/// Pause between two attempts to get a lock.
const LOOK: Duration = Duration::from_millis(100);

/// Largest checksum list in bytes; a download has the same limit.
const LONGEST_LIST: u64 = 4 << 20;

/// Default limit of a file in bytes; the largest file that CoreOS publishes has 16 GiB.
const LARGEST: u64 = 64 << 30;

/// The directory of all downloads.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
    pub(super) retries: RetryPolicy,
    largest: u64,
    /// The name of the directory of the releases' programs.
    installers: String,
}

/// What was or would be removed from the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pruned {
    pub path: PathBuf,
    pub bytes: u64,
}

impl Cache {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            retries: RetryPolicy::default(),
            largest: LARGEST,
            installers: INSTALLERS.to_owned(),
        }
    }

    /// The same cache, with the programs of releases of another architecture: of each, a version has its own.
    pub fn of_release(mut self, arch: ReleaseArchitecture) -> Self {
        if arch != ReleaseArchitecture::Single(Architecture::X86_64) {
            self.installers = format!("{INSTALLERS}-{arch}");
        }
        self
    }

    /// Sets the number of attempts and their pauses.
    pub fn with_retries(self, retries: RetryPolicy) -> Self {
        Self { retries, ..self }
    }

    /// Sets the largest file in bytes, compressed or uncompressed.
    pub fn with_largest(self, largest: u64) -> Self {
        Self { largest, ..self }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The number of attempts of a download and their pauses.
    pub fn retries(&self) -> RetryPolicy {
        self.retries
    }

    /// Finds an artifact by its known checksums; without checksums, by its URL if that is a `file:` URL.
    pub fn find(&self, artifact: &Artifact) -> Option<Cached> {
        let by_url = artifact.url.starts_with("file:") && artifact.sha256.is_none();
        let fits = |about: &CacheMetadata| match (&artifact.content_sha256, &artifact.sha256) {
            (Some(content), _) => about.sha256 == *content,
            (None, Some(packed)) if artifact.is_packed() => about.packed_sha256 == *packed,
            (None, Some(whole)) => about.sha256 == *whole,
            (None, None) => by_url && about.url == artifact.url,
        };
        let files = self.existing_place(FILES)?;
        let names = match &artifact.content_sha256 {
            Some(content) => vec![content.clone()],
            None => digests(&files),
        };
        let mut entries = names.iter().filter_map(|name| CacheEntry::open(&files, name));
        let entry = entries.find(|entry| fits(&entry.about))?;
        // The modification time is the time of the last use.
        let touched = entry.folder.file(ABOUT, OFlags::RDONLY);
        drop(touched.and_then(|file| file.set_modified(SystemTime::now())));
        entry.cached()
    }

    /// All complete files, most recently used first.
    pub fn list(&self) -> Vec<Cached> {
        let Some(files) = self.existing_place(FILES) else {
            return Vec::new();
        };
        let one = |name: &String| CacheEntry::open(&files, name)?.cached();
        let mut all: Vec<Cached> = digests(&files).iter().filter_map(one).collect();
        all.sort_by_key(|cached| std::cmp::Reverse(cached.used));
        all
    }

    /// The cache's directory; created if missing.
    fn root_folder(&self) -> Result<Dir, DownloadError> {
        create_private_dir(&self.root).map_err(disk(&self.root))?;
        let missing = || disk(&self.root)(io::ErrorKind::NotFound.into());
        self.existing()?.ok_or_else(missing)
    }

    /// The cache's directory, `None` if it is missing.
    fn existing(&self) -> Result<Option<Dir>, DownloadError> {
        let root = match Dir::open(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(disk(&self.root))?,
        };
        let judged = root.judge(|owner| owner == dir::me());
        judged.map_err(|why| DownloadError::Unsafe {
            path: self.root.clone(),
            why,
        })?;
        Ok(Some(root))
    }

    /// The directory of this name in the cache, if it exists.
    fn existing_place(&self, name: &str) -> Option<Dir> {
        self.existing().ok()??.look_ours(name).ok()
    }

    /// The directory of this name in the cache; created if missing.
    fn place(&self, name: &str) -> Result<Dir, DownloadError> {
        let root = self.root_folder()?;
        root.folder(name).map_err(disk(&root.join(name)))
    }

    /// Limits of a download's size.
    pub(super) fn space(&self) -> Space {
        Space::new(self.largest)
    }

    /// The directory of an incomplete artifact, locked by this process.
    pub(super) async fn partial(&self, artifact: &Artifact) -> Result<Partial, DownloadError> {
        let key = sha256(format!(
            "{}\n{}\n{}",
            artifact.url,
            artifact.sha256.as_deref().unwrap_or_default(),
            artifact.content_sha256.as_deref().unwrap_or_default()
        ));
        let key = key[..32].to_owned();
        let (files, all) = (self.place(FILES)?, self.place(PARTIAL)?);
        let lock = lock(&all, &format!("{key}.lock"), shown(&artifact.url)).await?;
        let folder = all.folder(&key).map_err(disk(&all.join(&key)))?;
        Ok(Partial {
            folder,
            all,
            key,
            files,
            _lock: lock,
        })
    }

    /// The directory of the releases' programs that were downloaded with this trust; created if missing.
    pub fn programs(&self, trust: &Trust) -> Result<Dir, DownloadError> {
        let (all, name) = (self.place(&self.installers)?, trust.folder_name());
        all.folder(&name).map_err(disk(&all.join(&name)))
    }

    /// The directory of the releases' programs that were downloaded with this trust, if it exists.
    pub fn existing_programs(&self, trust: &Trust) -> Option<Dir> {
        self.existing_place(&self.installers)?
            .look_ours(trust.folder_name())
            .ok()
    }

    /// The checksum list that was last stored for exactly this URL, after a file in it had been downloaded.
    pub fn kept_list(&self, url: &str) -> Option<String> {
        let list = self.existing_place(LISTS)?.read(sha256(url), LONGEST_LIST).ok()?;
        String::from_utf8(list).ok()
    }

    /// Stores a checksum list for runs that cannot reach its URL.
    pub fn keep_list(&self, url: &str, list: &str) -> Result<(), DownloadError> {
        let path = self.place(LISTS)?.join(sha256(url));
        write_private(&path, list.as_bytes()).map_err(disk(&path))
    }

    /// Removes one file that is no longer needed.
    pub fn forget(&self, cached: &Cached) {
        drop(self.existing_place(FILES).map(|files| files.remove(&cached.sha256)));
    }

    /// Removes files that were not used for this time, and incomplete downloads that no process works on.
    pub fn prune(&self, unused: Duration, dry_run: bool) -> Result<Vec<Pruned>, DownloadError> {
        let mut gone = Vec::new();
        let old = |time: SystemTime| time.elapsed().is_ok_and(|age| age >= unused);
        let Some(root) = self.existing()? else { return Ok(gone) };
        if let Ok(files) = root.look_ours(FILES) {
            for name in digests(&files) {
                let about = files.look(&name).and_then(|folder| folder.file(ABOUT, OFlags::RDONLY));
                let used = about.and_then(|file| file.metadata()?.modified());
                // Without `about.json` it is incomplete.
                if used.map_or(true, old) {
                    gone.push(remove(&files, &name, dry_run)?);
                }
            }
        }
        let Ok(partial) = root.look_ours(PARTIAL) else {
            return Ok(gone);
        };
        for name in partial.names().map_err(disk(partial.path()))? {
            let Some(key) = name.to_str().filter(|_| partial.look(&name).is_ok()) else {
                continue;
            };
            let lock = format!("{key}.lock");
            let Ok(file) = partial.file(&lock, OFlags::RDWR | OFlags::CREATE) else {
                continue;
            };
            let used = fs::metadata(partial.join(key)).and_then(|data| data.modified());
            if file.try_lock().is_ok() && used.map_or(true, old) {
                gone.push(remove(&partial, key, dry_run)?);
                if !dry_run {
                    // The lock's file is removed while it is locked: a waiting process checks whether it still exists.
                    drop(partial.remove(&lock));
                }
            }
        }
        Ok(gone)
    }
}

/// The names of all complete files.
fn digests(files: &Dir) -> Vec<String> {
    let names = files.names().unwrap_or_default().into_iter();
    names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.len() == 64)
        .collect()
}

/// Removes a directory of plain files.
fn remove(parent: &Dir, name: &str, dry_run: bool) -> Result<Pruned, DownloadError> {
    let path = parent.join(name);
    let sizes = fs::read_dir(&path).into_iter().flatten().flatten();
    let bytes = sizes
        .filter_map(|entry| Some(entry.metadata().ok()?.blocks() * 512))
        .sum();
    if !dry_run {
        parent.remove(name).map_err(disk(&path))?;
    }
    Ok(Pruned { path, bytes })
}

/// Acquires a lock, waiting for its holder. Only this user can open its file.
pub async fn lock(folder: &Dir, name: &str, what: &str) -> Result<File, DownloadError> {
    let path = folder.join(name);
    let mut is_announced = false;
    loop {
        let file = folder.file(name, OFlags::RDWR | OFlags::CREATE).map_err(disk(&path))?;
        match file.try_lock() {
            Ok(()) => {
                // The previous holder may have removed it; then a newer file is the lock.
                let ours = file.metadata().map_err(disk(&path))?.ino();
                if folder.inode(name).is_ok_and(|there| there == ours) {
                    return Ok(file);
                }
            }
            Err(std::fs::TryLockError::WouldBlock) => {
                if !is_announced {
                    info!(target: PROGRESS, "another process is working on {what}; waiting for it");
                    is_announced = true;
                }
                tokio::time::sleep(LOOK).await;
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(disk(&path)(error)),
        }
    }
}
