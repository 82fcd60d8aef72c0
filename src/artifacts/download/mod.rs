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
    #[error("the server refuses {url}: {status}")]
    Refused { url: String, status: u16 },
    #[error("cannot download {url}: {why}")]
    Unreachable { url: String, why: String, tries: u32 },
    #[error("{url} ends after {found} bytes, and the server said {said}")]
    Short { url: String, said: u64, found: u64 },
    #[error("{what} of {url} is not the published one: expected sha256 {expected}, found {found}")]
    WrongSum {
        url: String,
        /// `the sum`, `the sum of the content`.
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
    #[error("{url} is too large for what it should be")]
    TooLong { url: String },
    #[error("cache {} is not safe to use: {why}", path.display())]
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
                "is the version right, and does the mirror have it? settings version, mirror, image_mirror".to_owned()
            }
            Self::Refused { status: 401 | 403, .. } => {
                "the server wants a login or a proxy stands before it; a mirror of your own needs none".to_owned()
            }
            Self::Refused { .. } | Self::Short { .. } => {
                "the server is at fault; try later, or another mirror".to_owned()
            }
            Self::Unreachable { .. } => {
                "what came so far is kept, the same command goes on from there; https_proxy in the environment is \
                 obeyed, and mirrors are named by the settings mirror and image_mirror"
                    .to_owned()
            }
            Self::WrongSum { .. } | Self::Damaged { .. } => {
                "nothing of it is kept; a mirror or proxy changed the file, or serves another one by that name"
                    .to_owned()
            }
            Self::Disk { source, .. } if is_full(source) => {
                "free some space (`ocpdeploy image prune`), or set cache to a folder on another disk".to_owned()
            }
            Self::Disk { .. } => "set cache to a folder that you may write".to_owned(),
            Self::Unsafe { path, .. } => format!(
                "set cache to a folder of your own; `chmod go-w {0}` keeps yours to you, `chmod 1777 {0}` shares it",
                path.display()
            ),
            Self::TooLong { .. } => "is the mirror's URL right?".to_owned(),
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

/// As `bytes`, but gives up at a moment; `told` is called before each try.
pub async fn bytes_until(
    url: &str,
    patience: Patience,
    until: Instant,
    told: impl Fn(),
) -> Result<Vec<u8>, DownloadError> {
    Client::new(patience)?.bytes_until(url, Some(until), told).await
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
                    info!(target: PROGRESS, "download {url}: begun anew, its parts do not fit together");
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
    let mut pairs = vec![("the sum", &artifact.sha256, Some(&sums.packed))];
    let content = sums.content.as_ref().ok().map(|content| &content.sha256);
    pairs.push(("the sum of the content", &artifact.content_sha256, content));
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
