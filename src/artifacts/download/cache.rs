//! The download cache: files named by digest, shared by clusters and, if its permissions allow it, by users.
//!
//! A cache that only this user can write to is used directly. In one that others can write to as well (`chmod 1777`),
//! each user has an own folder, named by the user id: another user's file is copied from there, and its digest is
//! verified during the copy. So no other user can change or replace a verified file.
//!
//! `files/<digest>/` contains one file and `about.json`, and appears by one rename. `partial/` contains incomplete
//! files, one folder and one lock each.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fs_err as fs;
use rustix::fs::OFlags;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tracing::{debug, info};

use super::entry::{ABOUT, About, Cached, Entry};
use super::error::{DownloadError, disk, shown};
use super::partial::Partial;
use super::pipeline::Space;
use super::retry::RetryPolicy;
use super::sums::{Content, Sums};
use crate::PROGRESS;
use crate::artifacts::catalogue::Artifact;
use crate::digest::{hex, sha256};
use crate::state::dir::{self, Dir, Writers};

/// Pause between two attempts to get a lock.
const LOOK: Duration = Duration::from_millis(100);

/// CoreOS's largest published file has 16 GiB.
const LARGEST: u64 = 64 << 30;

/// The folder of all downloads.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
    pub(super) retries: RetryPolicy,
    largest: u64,
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
        }
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

    /// Finds an artifact by its known checksums; without any, by its URL if that is a local file's.
    pub fn find(&self, artifact: &Artifact) -> Option<Cached> {
        let by_url = artifact.url.starts_with("file:") && artifact.sha256.is_none();
        let fits = |about: &About| match (&artifact.content_sha256, &artifact.sha256) {
            (Some(content), _) => about.sha256 == *content,
            (None, Some(packed)) if artifact.is_packed() => about.packed_sha256 == *packed,
            (None, Some(whole)) => about.sha256 == *whole,
            (None, None) => by_url && about.url == artifact.url,
        };
        let files = self.files()?;
        let names = match &artifact.content_sha256 {
            Some(content) => vec![content.clone()],
            None => digests(&files),
        };
        let mut entries = names.iter().filter_map(|name| Entry::ours(&files, name));
        let entry = entries.find(|entry| fits(&entry.about))?;
        // The modification time is the time of the last use.
        let touched = entry.folder.file(ABOUT, OFlags::RDONLY);
        drop(touched.and_then(|file| file.set_modified(SystemTime::now())));
        entry.cached()
    }

    /// All complete files, most recently used first.
    pub fn list(&self) -> Vec<Cached> {
        let Some(files) = self.files() else { return Vec::new() };
        let one = |name: &String| Entry::ours(&files, name)?.cached();
        let mut all: Vec<Cached> = digests(&files).iter().filter_map(one).collect();
        all.sort_by_key(|cached| std::cmp::Reverse(cached.used));
        all
    }

    /// This user's folder; created if missing.
    fn own(&self) -> Result<Dir, DownloadError> {
        let mut make = std::fs::DirBuilder::new();
        make.recursive(true).mode(0o755);
        make.create(&self.root).map_err(disk(&self.root))?;
        let root = Dir::open(&self.root).map_err(disk(&self.root))?;
        match root.writers().map_err(disk(&self.root))? {
            Writers::OnlyUs if root.owner().map_err(disk(&self.root))? == dir::me() => Ok(root),
            Writers::OnlyUs | Writers::OwnEntries => {
                let name = dir::me().to_string();
                root.folder(&name).map_err(disk(&root.join(&name)))
            }
            Writers::Anybody(why) => Err(DownloadError::Unsafe {
                path: self.root.clone(),
                why,
            }),
        }
    }

    /// This user's folder, if it exists.
    fn existing(&self) -> Option<Dir> {
        let root = Dir::open(&self.root).ok()?;
        match root.writers().ok()? {
            Writers::OnlyUs if root.owner().ok()? == dir::me() => Some(root),
            Writers::OnlyUs | Writers::OwnEntries => root.look_ours(dir::me().to_string()).ok(),
            Writers::Anybody(_) => None,
        }
    }

    fn files(&self) -> Option<Dir> {
        self.existing()?.look_ours("files").ok()
    }

    /// Other users' possible copies of an artifact, by name and length. They are not trusted: a copy must have the
    /// digest that the artifact has according to this user's own source.
    fn of_others(&self, artifact: &Artifact) -> Vec<(PathBuf, File, u64)> {
        let wanted = match (&artifact.content_sha256, &artifact.sha256) {
            (Some(content), _) => content,
            (None, Some(whole)) if !artifact.is_packed() => whole,
            _ => return Vec::new(),
        };
        let Ok(root) = Dir::open(&self.root) else {
            return Vec::new();
        };
        let is_user = |name: &str| name.bytes().all(|b| b.is_ascii_digit()) && name != dir::me().to_string();
        let names = root.names().unwrap_or_default();
        let users = names
            .iter()
            .filter_map(|name| name.to_str())
            .filter(|name| is_user(name));
        let stores = users.filter_map(|name| root.look(name).ok());
        stores
            .filter_map(|store| Entry::open(&store.look("files").ok()?, wanted))
            .filter(|entry| entry.about.bytes <= self.largest)
            .map(|entry| (entry.path(), entry.file, entry.about.bytes))
            .collect()
    }

    /// Copies an artifact from another user of the cache. `None`: no user has it.
    pub(super) async fn copy(&self, artifact: &Artifact, partial: &Partial) -> Option<Sums> {
        for (path, file, bytes) in self.of_others(artifact) {
            let space = self.space();
            let out = partial.create_content().ok()?;
            let copied = tokio::task::spawn_blocking(move || copy(file.take(bytes), out, space)).await;
            let wanted = artifact.content_sha256.as_ref().or(artifact.sha256.as_ref());
            match copied.map_err(io::Error::other).flatten() {
                Ok(content) if Some(&content.sha256) == wanted => {
                    info!(target: PROGRESS, "copied to the cache and verified: {}", path.display());
                    let packed = artifact.sha256.clone().unwrap_or_else(|| content.sha256.clone());
                    return Some(Sums {
                        packed,
                        content: Ok(content),
                    });
                }
                Ok(_) => info!(
                    "the digest of {} does not match its file name; ignoring it",
                    path.display()
                ),
                Err(error) => debug!("cannot copy {}: {error}", path.display()),
            }
            drop(partial.discard_content());
        }
        None
    }

    /// Limits of a download's size.
    pub(super) fn space(&self) -> Space {
        Space::new(self.largest)
    }

    /// The folder of an incomplete artifact, locked by this process.
    pub(super) async fn partial(&self, artifact: &Artifact) -> Result<Partial, DownloadError> {
        let key = sha256(format!(
            "{}\n{}\n{}",
            artifact.url,
            artifact.sha256.as_deref().unwrap_or_default(),
            artifact.content_sha256.as_deref().unwrap_or_default()
        ));
        let key = key[..32].to_owned();
        let (files, all) = (self.place("files")?, self.place("partial")?);
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

    /// A folder of this cache that only this user writes to; created if missing.
    pub fn place(&self, name: &str) -> Result<Dir, DownloadError> {
        let own = self.own()?;
        own.folder(name).map_err(disk(&own.join(name)))
    }

    /// Folders of this name that belong to this user or root: their contents may be run.
    pub fn trusted_places(&self, name: &str) -> Vec<Dir> {
        let of_root = || Dir::open(&self.root).ok()?.look_ours("0").ok();
        let stores = [self.existing(), of_root()];
        stores
            .into_iter()
            .flatten()
            .filter_map(|store| store.look_ours(name).ok())
            .collect()
    }

    /// Removes one file that is no longer needed.
    pub fn forget(&self, cached: &Cached) {
        drop(self.files().map(|files| files.remove(&cached.sha256)));
    }

    /// Removes files that were not used for this time, and incomplete downloads that no process works on.
    pub fn prune(&self, unused: Duration, dry_run: bool) -> Result<Vec<Pruned>, DownloadError> {
        let mut gone = Vec::new();
        let old = |time: SystemTime| time.elapsed().is_ok_and(|age| age >= unused);
        let Some(own) = self.existing() else { return Ok(gone) };
        if let Ok(files) = own.look_ours("files") {
            for name in digests(&files) {
                let about = files.look(&name).and_then(|folder| folder.file(ABOUT, OFlags::RDONLY));
                let used = about.and_then(|file| file.metadata()?.modified());
                // Without `about.json` it is incomplete.
                if used.map_or(true, old) {
                    gone.push(remove(&files, &name, dry_run)?);
                }
            }
        }
        let Ok(partial) = own.look_ours("partial") else {
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
                    // While it is locked: a waiting process checks whether it still exists.
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

/// Removes a folder of plain files.
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

fn copy(mut from: impl Read, mut to: File, mut space: Space) -> io::Result<Content> {
    let (mut hash, mut bytes, mut block) = (Sha256::new(), 0, vec![0; 1 << 20]);
    loop {
        let count = from.read(&mut block)?;
        if count == 0 {
            break;
        }
        space.take(&to, count)?;
        to.write_all(&block[..count])?;
        hash.update(&block[..count]);
        bytes += count as u64;
    }
    to.sync_all()?;
    let sha256 = hex(&hash.finalize());
    Ok(Content { sha256, bytes })
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
