//! Downloads: one pass from a URL to a verified file in the cache.
//!
//! Bytes are hashed as they come, decompressed, and what comes out is hashed again. They lie in a partial file until
//! both sums are right; then one rename shows the whole. A partial file is gone on with, also by another process, and
//! two processes that want the same wait for one another.

mod cache;
mod entry;
mod error;
mod partial;
mod patience;
mod pipeline;
mod sums;
mod transfer;

use std::time::Instant;

use tracing::info;

pub use cache::{Cache, Pruned, digest_of, lock};
pub use entry::Cached;
pub use error::DownloadError;
pub use patience::Patience;
pub use pipeline::Space;

use crate::PROGRESS;
use crate::artifacts::catalogue::Artifact;
use error::shown;
use sums::Sums;
use transfer::{Client, Transfer};

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
