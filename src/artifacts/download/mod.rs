//! Downloads: one pass from a URL to a verified file in the cache.
//!
//! Bytes are hashed as they arrive, decompressed, and the output is hashed again. They are stored in a partial file
//! until both checksums match; then one rename publishes the file. Another process can resume a partial file, and two
//! processes that need the same file wait for each other.

mod cache;
mod entry;
mod error;
mod partial;
mod pipeline;
mod retry;
mod sums;
mod transfer;
mod trust;

use std::time::Instant;

use tracing::info;

pub use cache::{Cache, Pruned, lock};
pub use entry::Cached;
pub use error::DownloadError;
pub use pipeline::{Space, beginning};
pub use retry::RetryPolicy;
pub use trust::Trust;

use crate::PROGRESS;
use crate::artifacts::catalogue::Artifact;
use error::shown;
use sums::Sums;
use transfer::{Client, Transfer};

/// As `bytes`, but with a deadline.
pub async fn bytes_until(url: &str, retries: RetryPolicy, until: Instant) -> Result<Vec<u8>, DownloadError> {
    Client::new(retries)?.bytes_until(url, Some(until)).await
}

/// Downloads a short text, such as a checksum list.
pub async fn text(url: &str, retries: RetryPolicy) -> Result<String, DownloadError> {
    Ok(String::from_utf8_lossy(&bytes(url, retries).await?).into_owned())
}

/// Downloads a short file.
pub async fn bytes(url: &str, retries: RetryPolicy) -> Result<Vec<u8>, DownloadError> {
    Client::new(retries)?.bytes(url).await
}

impl Cache {
    /// The content of an artifact, from the cache or its URL; known checksums are verified.
    pub async fn fetch(&self, artifact: &Artifact) -> Result<Cached, DownloadError> {
        if let Some(found) = self.find(artifact) {
            return Ok(found);
        }
        let partial = self.partial(artifact).await?;
        // Another process may have completed it meanwhile.
        if let Some(found) = self.find(artifact) {
            partial.discard()?;
            return Ok(found);
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
                Ok(sums) => {
                    info!(target: PROGRESS, item = artifact.file_name(), state = "downloaded", done = true);
                    return partial.finish(artifact, &sums);
                }
                Err(error @ (DownloadError::WrongSum { .. } | DownloadError::Damaged { .. })) => {
                    partial.clear()?;
                    // Its parts may be from different versions.
                    if !(stitched && attempt == 1) {
                        return Err(error);
                    }
                    info!(target: PROGRESS, "download {url}: restarting, the parts do not match");
                    attempt += 1;
                }
                Err(error) => {
                    // The next attempt decompresses the stored download again.
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
            // The checksum is empty if the data was not read to its end.
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
