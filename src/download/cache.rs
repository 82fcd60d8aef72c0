//! The folder of what was downloaded: named by its digest, shared by clusters and, where it may be written, by users.
//!
//! `<digest>/` holds one file and `about.json`, and appears by one rename. `partial/` holds what is not whole yet, one
//! folder and one lock each. New folders are as open to others as the cache's own folder is.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fs_err as fs;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tracing::{info, warn};

use super::pipeline::Sums;
use super::transfer::Patience;
use super::{DownloadError, LOOK, disk, shown};
use crate::PROGRESS;
use crate::catalogue::Artifact;
use crate::digest::{hex, sha256};

const VERSION: u32 = 1;
const ABOUT: &str = "about.json";

/// The folder of all downloads.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
    pub(super) patience: Patience,
}

/// A whole file of the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cached {
    pub path: PathBuf,
    /// Of its content, hex.
    pub sha256: String,
    pub bytes: u64,
    /// Where it came from.
    pub url: String,
    pub fetched: Timestamp,
    /// When it was last asked for.
    pub used: Timestamp,
}

/// What is beside a file in the cache.
#[derive(Deserialize, Serialize)]
struct About {
    v: u32,
    url: String,
    file: String,
    sha256: String,
    /// Of the bytes that came over the network.
    packed_sha256: String,
    bytes: u64,
    fetched: Timestamp,
}

/// What was removed from the cache, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pruned {
    pub path: PathBuf,
    pub bytes: u64,
}

impl Cache {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            patience: Patience::default(),
        }
    }

    /// Tries as often, with such pauses.
    pub fn with_patience(self, patience: Patience) -> Self {
        Self { patience, ..self }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// How often and with which pauses a download is tried.
    pub fn patience(&self) -> Patience {
        self.patience
    }

    /// What is here of an artifact, by the sums that are known; with none, by its URL where that is a file's.
    pub fn find(&self, artifact: &Artifact) -> Option<Cached> {
        let by_url = artifact.url.starts_with("file:") && artifact.sha256.is_none();
        let fits = |about: &About| match (&artifact.content_sha256, &artifact.sha256) {
            (Some(content), _) => about.sha256 == *content,
            (None, Some(packed)) if artifact.is_packed() => about.packed_sha256 == *packed,
            (None, Some(whole)) => about.sha256 == *whole,
            (None, None) => by_url && about.url == artifact.url,
        };
        let name = match &artifact.content_sha256 {
            Some(content) => vec![content.clone()],
            None => self.digests(),
        };
        let (folder, about) = name
            .iter()
            .find_map(|name| self.about(name).filter(|(_, about)| fits(about)))?;
        // Its time says when it was last used; that of a file of somebody else cannot be set.
        let touched = File::open(folder.join(ABOUT)).and_then(|file| file.set_modified(SystemTime::now()));
        drop(touched);
        cached(&folder, about)
    }

    /// All whole files, by the time of their last use, the last first.
    pub fn list(&self) -> Vec<Cached> {
        let names = self.digests();
        let one = |name: &String| self.about(name).and_then(|(folder, about)| cached(&folder, about));
        let mut all: Vec<Cached> = names.iter().filter_map(one).collect();
        all.sort_by_key(|cached| std::cmp::Reverse(cached.used));
        all
    }

    fn digests(&self) -> Vec<String> {
        let names = fs::read_dir(self.folder()).into_iter().flatten().flatten();
        let mut names: Vec<String> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.retain(|name| name.len() == 64);
        names.sort();
        names
    }

    fn folder(&self) -> PathBuf {
        self.root.join("files")
    }

    /// What is told of a whole file, when it may be trusted.
    fn about(&self, digest: &str) -> Option<(PathBuf, About)> {
        let folder = self.folder().join(digest);
        let about: About = serde_json::from_slice(&fs::read(folder.join(ABOUT)).ok()?).ok()?;
        let path = folder.join(&about.file);
        let data = fs::metadata(&path).ok()?;
        let is_name = !about.file.contains('/');
        if !is_name || about.v != VERSION || about.sha256 != digest || data.len() != about.bytes {
            return None;
        }
        // Bytes that another user wrote are what their name says, or they are not taken.
        if !is_trusted(data.uid()) && digest_of(&path).ok()? != digest {
            warn!("{} is not what its name says, and is left alone", path.display());
            return None;
        }
        Some((folder, about))
    }

    /// The place of an artifact while it is not whole, for this process alone.
    pub(super) async fn partial(&self, artifact: &Artifact) -> Result<Partial, DownloadError> {
        let key = sha256(format!(
            "{}\n{}\n{}",
            artifact.url,
            artifact.sha256.as_deref().unwrap_or_default(),
            artifact.content_sha256.as_deref().unwrap_or_default()
        ));
        let folder = self.root.join("partial").join(&key[..32]);
        let mode = self.prepare()?;
        let lock = lock(&folder.with_extension("lock"), mode, shown(&artifact.url)).await?;
        make_folder(&folder, mode)?;
        Ok(Partial {
            folder,
            files: self.folder(),
            mode,
            _lock: lock,
        })
    }

    /// Makes the folders, and tells how open they are.
    fn prepare(&self) -> Result<u32, DownloadError> {
        std::fs::create_dir_all(&self.root).map_err(disk(&self.root))?;
        let data = std::fs::metadata(&self.root).map_err(disk(&self.root))?;
        let mode = data.permissions().mode() & 0o2777;
        for folder in [self.folder(), self.root.join("partial")] {
            make_folder(&folder, mode)?;
        }
        Ok(mode)
    }

    /// A folder of this cache for something else than files by digest, made where it is not there, and its mode.
    pub fn place(&self, name: &str) -> Result<(PathBuf, u32), DownloadError> {
        let mode = self.prepare()?;
        let folder = self.root.join(name);
        make_folder(&folder, mode)?;
        Ok((folder, mode))
    }

    /// Removes one file that is not needed any more; that of another user may stay.
    pub fn forget(&self, cached: &Cached) {
        drop(remove(&self.folder().join(&cached.sha256), false));
    }

    /// Removes files not used for so long, and what is left of broken downloads that no process is at.
    pub fn prune(&self, unused: Duration, dry_run: bool) -> Result<Vec<Pruned>, DownloadError> {
        let mut gone = Vec::new();
        let old = |time: SystemTime| time.elapsed().is_ok_and(|age| age >= unused);
        for name in self.digests() {
            let folder = self.folder().join(name);
            let used = fs::metadata(folder.join(ABOUT)).and_then(|data| data.modified());
            // Without a word about it, it is nobody's.
            if used.map_or(true, old) {
                gone.push(remove(&folder, dry_run)?);
            }
        }
        let partial = self.root.join("partial");
        for entry in fs::read_dir(&partial).into_iter().flatten().flatten() {
            let folder = entry.path();
            if !folder.is_dir() {
                continue;
            }
            let path = folder.with_extension("lock");
            let Ok(file) = File::options().write(true).create(true).truncate(false).open(&path) else {
                continue;
            };
            let used = fs::metadata(&folder).and_then(|data| data.modified());
            if file.try_lock().is_ok() && used.map_or(true, old) {
                gone.push(remove(&folder, dry_run)?);
                if !dry_run {
                    // While it is locked: who waits for it looks whether it is still there.
                    let _ = fs::remove_file(&path);
                }
            }
        }
        Ok(gone)
    }
}

fn remove(folder: &Path, dry_run: bool) -> Result<Pruned, DownloadError> {
    let sizes = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = sizes
        .filter_map(|entry| Some(entry.metadata().ok()?.blocks() * 512))
        .sum();
    if !dry_run {
        std::fs::remove_dir_all(folder).map_err(disk(folder))?;
    }
    let path = folder.to_owned();
    Ok(Pruned { path, bytes })
}

fn cached(folder: &Path, about: About) -> Option<Cached> {
    let used = fs::metadata(folder.join(ABOUT)).ok()?.modified().ok()?;
    Some(Cached {
        path: folder.join(about.file),
        sha256: about.sha256,
        bytes: about.bytes,
        url: about.url,
        fetched: about.fetched,
        used: Timestamp::try_from(used).ok()?,
    })
}

/// Whether what this user wrote may be taken as it is.
pub fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == rustix::process::geteuid().as_raw()
}

/// sha256 of a file, read whole.
pub fn digest_of(path: &Path) -> io::Result<String> {
    let mut file = fs::File::open(path)?;
    let mut hash = Sha256::new();
    io::copy(&mut file, &mut HashWriter(&mut hash))?;
    Ok(hex(&hash.finalize()))
}

struct HashWriter<'a>(&'a mut Sha256);

impl Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn make_folder(folder: &Path, mode: u32) -> Result<(), DownloadError> {
    match std::fs::create_dir(folder) {
        // The umask took something away.
        Ok(()) => set_mode(folder, mode).map_err(disk(folder)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(disk(folder)(error)),
    }
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

/// Takes a lock, and waits for who has it.
pub async fn lock(path: &Path, mode: u32, what: &str) -> Result<File, DownloadError> {
    let mut told = false;
    loop {
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(mode & 0o666)
            .open(path)
            .map_err(disk(path))?;
        match file.try_lock() {
            Ok(()) => {
                // The one that had it may have removed it; then a newer one is the lock.
                let (ours, there) = (file.metadata().map_err(disk(path))?, fs::metadata(path));
                if there.is_ok_and(|there| there.ino() == ours.ino()) {
                    // The umask took something away; a file of another user has its mode already.
                    let _ = set_mode(path, mode & 0o666);
                    return Ok(file);
                }
            }
            Err(std::fs::TryLockError::WouldBlock) => {
                if !told {
                    info!(target: PROGRESS, "another process is at {what}; waiting for it");
                    told = true;
                }
                tokio::time::sleep(LOOK).await;
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(disk(path)(error)),
        }
    }
}

/// What a server said of a file when its download began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Origin {
    /// A strong ETag, or else the time of the last change.
    pub validator: Option<String>,
    /// Of the whole file.
    pub total: Option<u64>,
}

/// A download that is not whole yet; the lock ends with it, or with its process.
pub(super) struct Partial {
    folder: PathBuf,
    files: PathBuf,
    mode: u32,
    _lock: File,
}

impl Partial {
    /// The bytes as they came.
    pub fn packed(&self) -> PathBuf {
        self.folder.join("packed")
    }

    /// What they hold.
    pub fn content(&self) -> PathBuf {
        self.folder.join("content")
    }

    fn origin_path(&self) -> PathBuf {
        self.folder.join("origin.json")
    }

    /// Bytes that are here already.
    pub fn have(&self) -> u64 {
        fs::metadata(self.packed()).map(|data| data.len()).unwrap_or_default()
    }

    pub fn origin(&self) -> Origin {
        let text = fs::read(self.origin_path()).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Before the first byte, so that bytes of an unknown origin are never gone on with.
    pub fn set_origin(&self, origin: &Origin) -> Result<(), DownloadError> {
        let path = self.origin_path();
        let text = serde_json::to_vec(origin).unwrap_or_default();
        std::fs::write(&path, text).map_err(disk(&path))
    }

    pub fn open_packed(&self) -> Result<File, DownloadError> {
        let path = self.packed();
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        options.mode(self.mode & 0o666).open(&path).map_err(disk(&path))
    }

    /// It is not needed any more.
    pub fn discard(self) -> Result<(), DownloadError> {
        std::fs::remove_dir_all(&self.folder).map_err(disk(&self.folder))
    }

    /// Begins anew.
    pub fn clear(&self) -> Result<(), DownloadError> {
        for path in [self.packed(), self.content(), self.origin_path()] {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(disk(&path)(error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Shows the whole file under its name; what it was made of is gone then.
    pub fn finish(self, artifact: &Artifact, sums: &Sums) -> Result<Cached, DownloadError> {
        let Ok(content) = &sums.content else {
            return Err(disk(&self.folder)(io::Error::other("the content is not known")));
        };
        let whole = self.folder.join("whole");
        drop(std::fs::remove_dir_all(&whole));
        make_folder(&whole, self.mode)?;
        let about = About {
            v: VERSION,
            url: shown(&artifact.url).to_owned(),
            file: artifact.content_name().to_owned(),
            sha256: content.sha256.clone(),
            packed_sha256: sums.packed.clone(),
            bytes: content.bytes,
            fetched: Timestamp::now(),
        };
        let place = if artifact.is_packed() {
            self.content()
        } else {
            self.packed()
        };
        let file = whole.join(&about.file);
        std::fs::rename(&place, &file).map_err(disk(&file))?;
        // Nobody writes it any more.
        set_mode(&file, self.mode & 0o444).map_err(disk(&file))?;
        let path = whole.join(ABOUT);
        let write = || {
            let mut file = File::create(&path)?;
            file.write_all(&serde_json::to_vec(&about).map_err(io::Error::other)?)?;
            file.sync_all()?;
            File::open(&whole)?.sync_all()
        };
        write().map_err(disk(&path))?;
        let target = self.files.join(&about.sha256);
        match std::fs::rename(&whole, &target) {
            Ok(()) => File::open(&self.files)
                .and_then(|folder| folder.sync_all())
                .map_err(disk(&self.files))?,
            // The same content under another URL, or a damaged one.
            Err(_) if target.exists() => self.replace(&whole, &target, &about)?,
            Err(error) => return Err(disk(&target)(error)),
        }
        std::fs::remove_dir_all(&self.folder).map_err(disk(&self.folder))?;
        cached(&target, about).ok_or_else(|| disk(&target)(io::Error::other("it is gone again")))
    }

    /// What is there under this digest gives way: it may have another name, or be damaged.
    fn replace(&self, whole: &Path, target: &Path, about: &About) -> Result<(), DownloadError> {
        let old = self.folder.join("old");
        drop(std::fs::remove_dir_all(&old));
        std::fs::rename(target, &old).map_err(disk(target))?;
        std::fs::rename(whole, target).map_err(disk(target))?;
        info!("{} was there already and is replaced", about.sha256);
        Ok(())
    }
}
