//! The state file, which processes share: the world as one JSON document, then one line for each change.
//!
//! A line is a merge patch (RFC 7396), so the cost of a call depends on its changes and not on the size of the world.
//! An incomplete last line is ignored. The lines are merged into the document when there are many, and when the last
//! user closes the file.

use std::fs::Metadata;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt;

use super::world::{World, WorldChange};

/// Lines are merged into the document only when they have more bytes than this.
const MERGE_THRESHOLD: u64 = 1 << 18;

/// The state file, with what this process has read of it.
#[derive(Clone, Debug)]
pub(super) struct Store(Arc<File>);

#[derive(Debug)]
struct File {
    path: PathBuf,
    known: Mutex<Option<Known>>,
}

/// The content of the file up to byte `end`.
#[derive(Debug)]
struct Known {
    world: World,
    inode: u64,
    modified: (i64, i64),
    /// The length of the document, and of document and lines.
    document: u64,
    end: u64,
    /// The document is exactly as this program writes it. Otherwise lines cannot be appended.
    is_canonical: bool,
    /// The bytes before `end`. If they are unchanged, the file was not edited by hand.
    last: Vec<u8>,
}

/// Why the state file is unusable.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the state file {} is invalid: {problem}", path.display())]
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

    /// The present world; a new one if there is no file.
    pub fn read(&self) -> Result<World, StoreError> {
        Ok(self.0.read_all()?.map_or_else(World::fresh, |known| known.world))
    }

    /// Reads and changes the world under the lock.
    pub fn update<T>(&self, change: impl FnOnce(&mut World) -> T) -> Result<T, StoreError> {
        let file = &self.0;
        let _lock = file.lock()?;
        let mut slot = file.known.lock().unwrap_or_else(PoisonError::into_inner);
        // After an error it stays empty: the next call reads the file again.
        let known = match slot.take() {
            Some(known) => file.read_new_lines(known)?,
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
            if !known.is_canonical || known.end - known.document > MERGE_THRESHOLD.max(known.document) {
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
    /// Merges the lines into one document that other tools can read. An error is ignored, since the lines are valid.
    fn drop(&mut self) {
        let merge_lines = || {
            let _lock = self.lock()?;
            match self.read_all()? {
                Some(known) if known.end > known.document => self.replace(known.world).map(drop),
                _ => Ok(()),
            }
        };
        if self.path.exists() {
            let _: Result<(), StoreError> = merge_lines();
        }
    }
}

impl File {
    /// The kernel releases the lock when the process ends.
    fn lock(&self) -> Result<fs::File, StoreError> {
        let folder = self.folder();
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|error| io::Error::new(error.kind(), format!("cannot create {}: {error}", folder.display())))?;
        let lock = private_file(&self.beside("lock"))?;
        lock.file().lock()?;
        Ok(lock)
    }

    /// Reads the whole file; `None` if there is none.
    fn read_all(&self) -> Result<Option<Known>, StoreError> {
        if self.path.metadata().is_ok_and(|file| !file.is_file()) {
            return Err(self.content("it is not a regular file".to_owned()));
        }
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
        let is_canonical = document == document_of(&world)?;
        let mut known = Known::at(&file, world, document, is_canonical)?;
        self.apply(&mut known, lines.as_bytes())?;
        Ok(Some(known))
    }

    /// Reads the lines that were written since; the whole file if it was replaced.
    fn read_new_lines(&self, mut known: Known) -> Result<Option<Known>, StoreError> {
        let Ok(mut file) = fs::File::open(&self.path) else {
            return self.read_all();
        };
        let now = file.file().metadata()?;
        let from = known.end - known.last.len() as u64;
        let mut last = vec![0; known.last.len()];
        let is_same = now.ino() == known.inode
            && (now.len() > known.end || modified(&now) == known.modified)
            && file.file().read_exact_at(&mut last, from).is_ok()
            && last == known.last;
        if !is_same {
            return self.read_all();
        }
        let mut lines = Vec::new();
        file.seek(SeekFrom::Start(known.end))?;
        file.read_to_end(&mut lines)?;
        known.modified = modified(&now);
        self.apply(&mut known, &lines)?;
        Ok(Some(known))
    }

    /// Applies the changes of all complete lines.
    fn apply(&self, known: &mut Known, lines: &[u8]) -> Result<(), StoreError> {
        for line in lines
            .split_inclusive(|byte| *byte == b'\n')
            .filter(|line| line.ends_with(b"\n"))
        {
            let change: WorldChange = serde_json::from_slice(line).map_err(|error| self.content(error.to_string()))?;
            known.world.apply(change);
            known.end += line.len() as u64;
            known.remember(line);
        }
        Ok(())
    }

    /// Requires the lock. A crash leaves an incomplete line at most, which the next write removes.
    fn append(&self, known: &mut Known, change: &WorldChange) -> Result<(), StoreError> {
        let mut line = serde_json::to_vec(change).map_err(io::Error::from)?;
        line.push(b'\n');
        let mut file = private_file(&self.path)?;
        file.set_len(known.end)?;
        file.seek(SeekFrom::Start(known.end))?;
        file.write_all(&line)?;
        file.sync_data()?;
        known.end += line.len() as u64;
        known.modified = modified(&file.file().metadata()?);
        known.remember(&line);
        Ok(())
    }

    /// Requires the lock. A crash leaves the old or the new file, and possibly a `.new` file, which the next write uses.
    fn replace(&self, mut world: World) -> Result<Known, StoreError> {
        // The whole world is written, so its recorded changes are obsolete.
        world.take_change();
        let new = self.beside("new");
        let text = document_of(&world)?;
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
    fn at(file: &fs::File, world: World, document: &[u8], is_canonical: bool) -> Result<Self, StoreError> {
        let now = file.file().metadata()?;
        let mut known = Self {
            world,
            inode: now.ino(),
            modified: modified(&now),
            document: document.len() as u64,
            end: document.len() as u64,
            is_canonical,
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
fn document_of(world: &World) -> Result<Vec<u8>, StoreError> {
    let mut text = serde_json::to_vec_pretty(world).map_err(io::Error::from)?;
    text.push(b'\n');
    Ok(text)
}

/// When the file was last modified.
fn modified(now: &Metadata) -> (i64, i64) {
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
