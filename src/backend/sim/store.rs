//! The state file, which any number of processes share: the world as one JSON document, then a line for each change.
//!
//! A line is a merge patch (RFC 7396), so a call costs what it changes and not what there is. A torn last line counts
//! as never written. Lines are folded into the document when they have become many, and when nobody needs them any more.

use std::fs::Metadata;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt;

use super::world::{Change, World};

/// So much in lines is read again by each process before they are folded, however small the document is.
const FEW: u64 = 1 << 18;

/// Where the state file is, and what this process knows of it.
#[derive(Clone, Debug)]
pub(super) struct Store(Arc<File>);

#[derive(Debug)]
struct File {
    path: PathBuf,
    known: Mutex<Option<Known>>,
}

/// The world as the file had it up to a byte.
#[derive(Debug)]
struct Known {
    world: World,
    inode: u64,
    changed: (i64, i64),
    /// Length of the document, and of what was read.
    document: u64,
    end: u64,
    /// The document is what this program writes, so that a merge patch can say what changed.
    ours: bool,
    /// The bytes before `end`: where they are still the same, nobody has written the file anew by hand.
    last: Vec<u8>,
}

/// Why the state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the state file {} is not understood: {problem}", path.display())]
    Content { path: PathBuf, problem: String },
}

impl Store {
    pub fn new(path: PathBuf) -> Self {
        let known = Mutex::default();
        Self(Arc::new(File { path, known }))
    }

    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The world now; a fresh one where there is no file yet.
    pub fn read(&self) -> Result<World, StoreError> {
        Ok(self.0.read_all()?.map_or_else(World::fresh, |known| known.world))
    }

    /// Reads and changes the world while no other process does.
    pub fn update<T>(&self, change: impl FnOnce(&mut World) -> T) -> Result<T, StoreError> {
        let file = &self.0;
        let _lock = file.lock()?;
        let mut slot = file.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Not put back when anything fails: then the file is the truth.
        let known = match slot.take() {
            Some(known) => file.go_on(known)?,
            None => file.read_all()?,
        };
        let Some(mut known) = known else {
            let mut world = World::fresh();
            let outcome = change(&mut world);
            *slot = Some(file.replace(world)?);
            return Ok(outcome);
        };
        let outcome = change(&mut known.world);
        if let Some(change) = known.world.take_change() {
            if !known.ours || known.end - known.document > FEW.max(known.document) {
                known = file.replace(known.world)?;
            } else {
                file.append(&mut known, &change)?;
            }
        }
        *slot = Some(known);
        Ok(outcome)
    }
}

impl Drop for File {
    /// Leaves one document, for people and their tools; where that cannot be, the lines say the same.
    fn drop(&mut self) {
        let fold = || {
            let _lock = self.lock()?;
            match self.read_all()? {
                Some(known) if known.end > known.document => self.replace(known.world).map(drop),
                _ => Ok(()),
            }
        };
        if self.path.exists() {
            let _: Result<(), StoreError> = fold();
        }
    }
}

impl File {
    /// The kernel lets go of it when this process ends, however it ends.
    fn lock(&self) -> Result<fs::File, StoreError> {
        let folder = self.folder();
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| io::Error::new(error.kind(), format!("cannot make {}: {error}", folder.display())))?;
        let lock = private_file(&self.beside("lock"))?;
        lock.file().lock()?;
        Ok(lock)
    }

    /// The whole file; `None` where there is none.
    fn read_all(&self) -> Result<Option<Known>, StoreError> {
        let mut file = match fs::File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let (world, end) = World::parse(&text).map_err(|problem| self.content(problem))?;
        let lines = text[end..].trim_start();
        let document = &text.as_bytes()[..text.len() - lines.len()];
        let ours = document == written(&world)?;
        let mut known = Known::at(&file, world, document, ours)?;
        self.apply(&mut known, lines.as_bytes())?;
        Ok(Some(known))
    }

    /// What was written since; all of it where the file is another one.
    fn go_on(&self, mut known: Known) -> Result<Option<Known>, StoreError> {
        let Ok(mut file) = fs::File::open(&self.path) else {
            return self.read_all();
        };
        let now = file.file().metadata()?;
        let from = known.end - known.last.len() as u64;
        let mut last = vec![0; known.last.len()];
        let is_same = now.ino() == known.inode
            && (now.len() > known.end || changed(&now) == known.changed)
            && file.file().read_exact_at(&mut last, from).is_ok()
            && last == known.last;
        if !is_same {
            return self.read_all();
        }
        let mut lines = Vec::new();
        file.seek(SeekFrom::Start(known.end))?;
        file.read_to_end(&mut lines)?;
        known.changed = changed(&now);
        self.apply(&mut known, &lines)?;
        Ok(Some(known))
    }

    /// Makes the changes of all whole lines.
    fn apply(&self, known: &mut Known, lines: &[u8]) -> Result<(), StoreError> {
        for line in lines
            .split_inclusive(|byte| *byte == b'\n')
            .filter(|line| line.ends_with(b"\n"))
        {
            let change: Change = serde_json::from_slice(line).map_err(|error| self.content(error.to_string()))?;
            known.world.apply(change);
            known.end += line.len() as u64;
            known.remember(line);
        }
        Ok(())
    }

    /// Under the lock; a crash leaves a torn line at most, which the next write takes away.
    fn append(&self, known: &mut Known, change: &Change) -> Result<(), StoreError> {
        let mut line = serde_json::to_vec(change).map_err(io::Error::from)?;
        line.push(b'\n');
        let mut file = private_file(&self.path)?;
        file.set_len(known.end)?;
        file.seek(SeekFrom::Start(known.end))?;
        file.write_all(&line)?;
        file.sync_data()?;
        known.end += line.len() as u64;
        known.changed = changed(&file.file().metadata()?);
        known.remember(&line);
        Ok(())
    }

    /// Under the lock; a crash leaves the old file or the new one, and at most one `.new` that the next write takes.
    fn replace(&self, mut world: World) -> Result<Known, StoreError> {
        // All of it is written.
        world.take_change();
        let new = self.beside("new");
        let text = written(&world)?;
        let mut file = private_file(&new)?;
        file.set_len(0)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        fs::File::open(self.folder())?.sync_all()?;
        Known::at(&file, world, &text, true)
    }

    fn content(&self, problem: String) -> StoreError {
        let path = self.path.clone();
        StoreError::Content { path, problem }
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(".");
        name.push(suffix);
        self.path.with_file_name(name)
    }
}

impl Known {
    fn at(file: &fs::File, world: World, document: &[u8], ours: bool) -> Result<Self, StoreError> {
        let now = file.file().metadata()?;
        let mut known = Self {
            world,
            inode: now.ino(),
            changed: changed(&now),
            document: document.len() as u64,
            end: document.len() as u64,
            ours,
            last: Vec::new(),
        };
        known.remember(document);
        Ok(known)
    }

    /// Keeps the last of the bytes before `end`.
    fn remember(&mut self, bytes: &[u8]) {
        self.last = bytes[bytes.len().saturating_sub(64)..].to_vec();
    }
}

/// The document of a world.
fn written(world: &World) -> Result<Vec<u8>, StoreError> {
    let mut text = serde_json::to_vec_pretty(world).map_err(io::Error::from)?;
    text.push(b'\n');
    Ok(text)
}

/// When a file was written last.
fn changed(now: &Metadata) -> (i64, i64) {
    (now.mtime(), now.mtime_nsec())
}

fn private_file(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
}
