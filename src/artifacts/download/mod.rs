//! Downloads: one pass from a URL to a verified file in the cache.
//!
//! Bytes are hashed as they come, decompressed, and what comes out is hashed again. They lie in a partial file until
//! both sums are right; then one rename shows the whole. A partial file is gone on with, also by another process, and
//! two processes that want the same wait for one another.

mod cache;
mod partial;
mod pipeline;
mod transfer;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tracing::info;

pub use cache::{Cache, Cached, Pruned, digest_of, lock};
pub use pipeline::Space;
pub use transfer::Patience;

use crate::PROGRESS;
use crate::artifacts::catalogue::Artifact;
use pipeline::Sums;
use transfer::{Client, Transfer};

/// Why a download did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    #[error("cannot download {url}: the server returned {status}")]
    Refused { url: String, status: u16 },
    #[error("cannot download {url}: {why}")]
    Unreachable { url: String, why: String, tries: u32 },
    #[error("cannot download {url}: received {found} bytes, but the server announced {said}")]
    Short { url: String, said: u64, found: u64 },
    #[error("checksum mismatch for {url}: {what} has sha256 {found}, expected {expected}")]
    WrongSum {
        url: String,
        /// `the download`, `the decompressed content`.
        what: &'static str,
        expected: String,
        found: String,
    },
    #[error("cannot decompress {url}: {source}")]
    Damaged { url: String, source: io::Error },
    #[error("cannot write {}: {source}", path.display())]
    Disk { path: PathBuf, source: io::Error },
    #[error("cannot read {}: {source}", path.display())]
    Local { path: PathBuf, source: io::Error },
    #[error("cannot download {url}: the file is larger than allowed")]
    TooLong { url: String },
    #[error("cache directory {} is not safe: {why}", path.display())]
    Unsafe { path: PathBuf, why: String },
}

impl DownloadError {
    /// The server has no such file.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Refused { status: 404 | 410, .. })
    }

    /// What a user can do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Refused { status: 404 | 410, .. } => {
                "check the version, and that the mirror has it (settings: version, mirror, image_mirror)".to_owned()
            }
            Self::Refused { status: 401 | 403, .. } => {
                "the server or a proxy requires authentication; use a mirror that does not (settings: mirror, image_mirror)".to_owned()
            }
            Self::Refused { .. } | Self::Short { .. } => {
                "the server failed; try again later, or set another mirror".to_owned()
            }
            Self::Unreachable { .. } => {
                "the partial download is kept; to resume, run the same command again. Set https_proxy in the environment to use \
                 a proxy, or the settings mirror and image_mirror to use a mirror"
                    .to_owned()
            }
            Self::WrongSum { .. } | Self::Damaged { .. } => {
                "the download was deleted; the mirror or a proxy serves a modified file or another file under this name"
                    .to_owned()
            }
            Self::Disk { source, .. } if is_full(source) => {
                "free some space (`ocpdeploy image prune`), or set cache to a directory on another disk".to_owned()
            }
            Self::Disk { .. } => "set cache to a directory that you can write to".to_owned(),
            Self::Unsafe { path, .. } => format!(
                "set cache to a directory that you own; `chmod go-w {0}` makes it private, `chmod 1777 {0}` shares it",
                path.display()
            ),
            Self::TooLong { .. } => "check the mirror's URL".to_owned(),
            Self::Local { .. } => return None,
        })
    }
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// A URL as it may be shown: without what follows `?`, where keys to it may stand. In that of a file it is its state.
fn shown(url: &str) -> &str {
    match url.starts_with("file:") {
        true => url,
        false => url.split('?').next().unwrap_or(url),
    }
}

/// As `bytes`, but gives up at a moment; `before_try` is called before each try.
pub async fn bytes_until(
    url: &str,
    patience: Patience,
    until: Instant,
    before_try: impl Fn(),
) -> Result<Vec<u8>, DownloadError> {
    Client::new(patience)?.bytes_until(url, Some(until), before_try).await
}

/// Fetches a short text, such as a list of sums.
pub async fn text(url: &str, patience: Patience) -> Result<String, DownloadError> {
    Ok(String::from_utf8_lossy(&bytes(url, patience).await?).into_owned())
}

/// Fetches a short file as it is.
pub async fn bytes(url: &str, patience: Patience) -> Result<Vec<u8>, DownloadError> {
    Client::new(patience)?.bytes(url).await
}

impl Cache {
    /// The content of an artifact, from the cache or else from its URL; both sums, where they are known, are right.
    pub async fn fetch(&self, artifact: &Artifact) -> Result<Cached, DownloadError> {
        if let Some(found) = self.find(artifact) {
            return Ok(found);
        }
        let partial = self.partial(artifact).await?;
        // Another process may have come to the end of it meanwhile.
        if let Some(found) = self.find(artifact) {
            partial.discard()?;
            return Ok(found);
        }
        if let Some(sums) = self.copy(artifact, &partial).await {
            return partial.finish(artifact, &sums);
        }
        let url = shown(&artifact.url);
        info!(target: PROGRESS, "download {url}");
        let mut attempt = 1;
        loop {
            let mut transfer = Transfer::new(self, artifact, &partial)?;
            let ran = transfer.run().await;
            let stitched = transfer.stitched;
            let outcome = match ran {
                Ok(()) => transfer.finish().await,
                Err(error) => Err(error),
            };
            let checked = outcome.and_then(|sums| check(artifact, sums));
            match checked {
                Ok(sums) => return partial.finish(artifact, &sums),
                Err(error @ (DownloadError::WrongSum { .. } | DownloadError::Damaged { .. })) => {
                    partial.clear()?;
                    // Its parts may be of two files.
                    if !(stitched && attempt == 1) {
                        return Err(error);
                    }
                    info!(target: PROGRESS, "download {url}: restarting, the parts do not match");
                    attempt += 1;
                }
                Err(error) => {
                    // It is made anew from what came.
                    partial.discard_content()?;
                    return Err(error);
                }
            }
        }
    }
}

fn check(artifact: &Artifact, sums: Sums) -> Result<Sums, DownloadError> {
    let url = || shown(&artifact.url).to_owned();
    let mut pairs = vec![("the download", &artifact.sha256, Some(&sums.packed))];
    let content = sums.content.as_ref().ok().map(|content| &content.sha256);
    pairs.push(("the decompressed content", &artifact.content_sha256, content));
    for (what, expected, found) in pairs {
        if let (Some(expected), Some(found)) = (expected, found)
            && expected != found
            // Empty: it was not taken to its end.
            && !found.is_empty()
        {
            return Err(DownloadError::WrongSum {
                url: url(),
                what,
                expected: expected.clone(),
                found: found.clone(),
            });
        }
    }
    match sums.content {
        Ok(_) => Ok(sums),
        Err(source) => Err(DownloadError::Damaged { url: url(), source }),
    }
}

fn disk(path: &Path) -> impl Fn(io::Error) -> DownloadError + '_ {
    move |source| DownloadError::Disk {
        path: path.to_owned(),
        source,
    }
}

/// How long a look at a lock may be apart from the next.
const LOOK: Duration = Duration::from_millis(100);
