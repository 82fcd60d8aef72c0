//! From bytes to a verified file, on threads: hash and store, decompress, hash and write.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use super::error::{DownloadError, disk};
use super::partial::Partial;
use super::sums::{ContentSum, Sums};
use crate::digest::hex;

/// Size of a block passed between threads.
const BLOCK: usize = 256 << 10;
/// Number of blocks queued between two threads.
const DEPTH: usize = 16;
/// Written bytes after which a sync begins.
const SYNC: u64 = 64 << 20;
/// Free space that a download leaves on its disk.
const RESERVE: u64 = 256 << 20;
/// Written bytes after which the free space is checked.
const MEASURE: u64 = 16 << 20;

/// Limits the size of written data: a compressed image may expand to any number of zeros.
pub struct Space {
    largest: u64,
    written: u64,
    measured: u64,
}

impl Space {
    pub fn new(largest: u64) -> Self {
        Self {
            largest,
            written: 0,
            measured: 0,
        }
    }

    /// Called before `bytes` more are written to this file.
    ///
    /// # Errors
    /// `InvalidData` if the file would be too large, `StorageFull` if too little space would remain free.
    pub fn take(&mut self, file: &File, bytes: usize) -> io::Result<()> {
        self.written += bytes as u64;
        if self.written > self.largest {
            let why = format!("it is larger than {} MiB", self.largest >> 20);
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        if self.written - self.measured >= MEASURE {
            self.measured = self.written;
            let disk = rustix::fs::fstatvfs(file)?;
            if disk.f_bavail * disk.f_frsize < RESERVE {
                let why = format!("less than {} MiB would remain free on this disk", RESERVE >> 20);
                return Err(io::Error::new(io::ErrorKind::StorageFull, why));
            }
        }
        Ok(())
    }
}

/// Why a stage stopped.
enum Fault {
    Disk(PathBuf, io::Error),
    /// The data is invalid.
    Content(io::Error),
    /// A later stage stopped and has the reason.
    Later,
}

/// The threads of decompression.
struct Unpack {
    decompress: JoinHandle<Result<(), Fault>>,
    write: JoinHandle<Result<ContentSum, Fault>>,
}

/// The threads; if dropped without `finish`, they end and the partial file remains.
pub(super) struct Pipeline {
    input: mpsc::Sender<Vec<u8>>,
    keep: JoinHandle<Result<ContentSum, Fault>>,
    /// `None` if nothing is decompressed.
    unpack: Option<Unpack>,
    /// The content cannot be written: further data is useless.
    full: Arc<AtomicBool>,
}

impl Pipeline {
    /// Starts with the existing data of the partial file.
    pub fn start(partial: &Partial, unpack: bool, space: impl Fn() -> Space) -> Result<Self, DownloadError> {
        let path = partial.packed();
        let file = partial.open_packed()?;
        let full = Arc::new(AtomicBool::new(false));
        let (input, chunks) = mpsc::channel(DEPTH);
        let (mut forward, mut later) = (None, None);
        if unpack {
            let (sender, receiver) = sync_channel::<Vec<u8>>(DEPTH);
            let (blocks, written) = sync_channel::<Vec<u8>>(DEPTH);
            let (content, free) = (partial.content(), space());
            let out = partial.create_content()?;
            forward = Some(sender);
            let decompress = spawn("decompress", move || decompress(receiver, &blocks))?;
            let failed = Arc::clone(&full);
            let write = spawn("write", move || {
                let outcome = write(out, content, &written, free);
                // The rest of invalid data is still needed: its checksum shows the cause.
                failed.store(matches!(outcome, Err(Fault::Disk(..))), Ordering::Relaxed);
                outcome
            })?;
            later = Some(Unpack { decompress, write });
        }
        let free = space();
        let keep = spawn("keep", move || keep(file, path, chunks, forward, free))?;
        Ok(Self {
            input,
            keep,
            unpack: later,
            full,
        })
    }

    /// Passes the next bytes; false if a thread has stopped, which `finish` explains.
    pub async fn feed(&self, bytes: Vec<u8>) -> bool {
        self.input.send(bytes).await.is_ok() && !self.full.load(Ordering::Relaxed)
    }

    /// Waits until the last byte is written.
    pub async fn finish(self) -> Result<Sums, DownloadError> {
        let Self {
            input, keep, unpack, ..
        } = self;
        drop(input);
        let joined = tokio::task::spawn_blocking(move || {
            let kept = join(keep);
            let unpacked = unpack.map(|unpack| (join(unpack.decompress), join(unpack.write)));
            (kept, unpacked)
        });
        let stopped = || disk(Path::new("the cache"))(io::Error::other("a thread stopped"));
        let (kept, unpacked) = joined.await.map_err(|_| stopped())?;
        let content = match unpacked {
            None => None,
            Some((Err(Fault::Disk(path, source)), _) | (_, Err(Fault::Disk(path, source)))) => {
                return Err(DownloadError::Disk { path, source });
            }
            Some((Err(Fault::Content(error)), _) | (_, Err(Fault::Content(error)))) => Some(Err(error)),
            Some((_, Ok(content))) => Some(Ok(content)),
            Some((_, Err(_))) => Some(Err(io::Error::other("the decompressor stopped"))),
        };
        match kept {
            Ok(kept) => Ok(Sums {
                packed: kept.sha256.clone(),
                content: content.unwrap_or(Ok(kept)),
            }),
            Err(Fault::Disk(path, source)) => Err(DownloadError::Disk { path, source }),
            // Incomplete, so it has no checksum.
            Err(Fault::Content(error)) => Ok(Sums {
                packed: String::new(),
                content: Err(error),
            }),
            Err(Fault::Later) => Err(stopped()),
        }
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, DownloadError> {
    let thread = std::thread::Builder::new().name(format!("download-{name}"));
    thread.spawn(work).map_err(|source| DownloadError::Disk {
        path: PathBuf::from(name),
        source,
    })
}

fn join<T>(thread: JoinHandle<Result<T, Fault>>) -> Result<T, Fault> {
    thread.join().unwrap_or(Err(Fault::Later))
}

/// Hashes and stores incoming data after the stored data, and passes it on.
fn keep(
    mut file: File,
    path: PathBuf,
    mut chunks: mpsc::Receiver<Vec<u8>>,
    mut forward: Option<SyncSender<Vec<u8>>>,
    mut space: Space,
) -> Result<ContentSum, Fault> {
    let fault = |error| fault(&path, error);
    let is_content = forward.is_none();
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    let mut hand_on = |hash: &mut Sha256, block: Vec<u8>| {
        hash.update(&block);
        // A stopped decompressor has found damage; the checksum of all bytes shows the cause.
        if forward.as_ref().is_some_and(|next| next.send(block).is_err()) {
            forward = None;
        }
    };
    file.seek(SeekFrom::Start(0)).map_err(fault)?;
    loop {
        let mut block = Vec::with_capacity(BLOCK);
        if (&mut file).take(BLOCK as u64).read_to_end(&mut block).map_err(fault)? == 0 {
            break;
        }
        bytes += block.len() as u64;
        hand_on(&mut hash, block);
    }
    while let Some(block) = chunks.blocking_recv() {
        space.take(&file, block.len()).map_err(fault)?;
        file.write_all(&block).map_err(fault)?;
        bytes += block.len() as u64;
        hand_on(&mut hash, block);
    }
    if is_content {
        file.sync_all().map_err(fault)?;
    }
    let sha256 = hex(&hash.finalize());
    Ok(ContentSum { sha256, bytes })
}

/// Classifies an error of writing.
fn fault(path: &Path, error: io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::InvalidData => Fault::Content(error),
        _ => Fault::Disk(path.to_owned(), error),
    }
}

/// A compression format, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Gzip,
    Xz,
    Zstd,
    None,
}

impl Packing {
    fn of_bytes(start: &[u8]) -> Self {
        match start {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            _ => Self::None,
        }
    }

    /// The content of packed data.
    fn reader(self, input: impl BufRead + 'static) -> io::Result<Box<dyn Read>> {
        Ok(match self {
            Self::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(input)),
            Self::Xz => Box::new(liblzma::bufread::XzDecoder::new_multi_decoder(input)),
            Self::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(input)?),
            Self::None => Box::new(input),
        })
    }
}

/// The first bytes of a file, or of its content if `is_packed`; at most `most`.
pub fn beginning(path: &Path, is_packed: bool, most: u64) -> io::Result<Vec<u8>> {
    let mut input = BufReader::new(fs_err::File::open(path)?);
    let packing = match is_packed {
        true => Packing::of_bytes(input.fill_buf()?),
        false => Packing::None,
    };
    let mut bytes = Vec::new();
    packing.reader(input)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A channel of blocks as a reader.
struct Blocks {
    receiver: Receiver<Vec<u8>>,
    block: io::Cursor<Vec<u8>>,
}

impl Read for Blocks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.block.read(buffer)? {
                0 => match self.receiver.recv() {
                    Ok(block) => self.block = io::Cursor::new(block),
                    Err(_) => return Ok(0),
                },
                count => return Ok(count),
            }
        }
    }
}

fn decompress(receiver: Receiver<Vec<u8>>, out: &SyncSender<Vec<u8>>) -> Result<(), Fault> {
    let mut blocks = Blocks {
        receiver,
        block: io::Cursor::default(),
    };
    let mut start = Vec::new();
    (&mut blocks).take(6).read_to_end(&mut start).map_err(Fault::Content)?;
    let packing = Packing::of_bytes(&start);
    let input = BufReader::with_capacity(BLOCK, io::Cursor::new(start).chain(blocks));
    let mut reader = packing.reader(input).map_err(Fault::Content)?;
    loop {
        let mut block = vec![0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match reader.read(&mut block[filled..]).map_err(Fault::Content)? {
                0 => break,
                count => filled += count,
            }
        }
        if filled == 0 {
            return Ok(());
        }
        block.truncate(filled);
        out.send(block).map_err(|_| Fault::Later)?;
    }
}

fn write(mut out: File, path: PathBuf, blocks: &Receiver<Vec<u8>>, mut space: Space) -> Result<ContentSum, Fault> {
    let fault = |error| fault(&path, error);
    let (mut hash, mut bytes, mut synced) = (Sha256::new(), 0, 0);
    let sync = Sync::new(&out).map_err(fault)?;
    while let Ok(block) = blocks.recv() {
        space.take(&out, block.len()).map_err(fault)?;
        out.write_all(&block).map_err(fault)?;
        hash.update(&block);
        bytes += block.len() as u64;
        if bytes - synced >= SYNC {
            synced = bytes;
            sync.begin();
        }
    }
    sync.end().map_err(fault)?;
    let sha256 = hex(&hash.finalize());
    Ok(ContentSum { sha256, bytes })
}

/// Syncs written data concurrently, so that little is left at the end.
struct Sync {
    request: SyncSender<()>,
    thread: JoinHandle<io::Result<()>>,
}

impl Sync {
    fn new(file: &File) -> io::Result<Self> {
        let file = file.try_clone()?;
        let (request, requests) = sync_channel(1);
        let work = move || {
            while requests.recv().is_ok() {
                file.sync_data()?;
            }
            file.sync_all()
        };
        let thread = std::thread::Builder::new()
            .name("download-sync".to_owned())
            .spawn(work)?;
        Ok(Self { request, thread })
    }

    fn begin(&self) {
        // Full: it is already syncing.
        let _ = self.request.try_send(());
    }

    fn end(self) -> io::Result<()> {
        drop(self.request);
        self.thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a thread stopped")))
    }
}
