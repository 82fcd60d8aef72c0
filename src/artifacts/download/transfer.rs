//! Transfers one file, resuming when the connection breaks.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use reqwest::header::{self, HeaderMap};
use reqwest::{Response, StatusCode, redirect};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;
use tracing::{debug, info};

use super::cache::Cache;
use super::error::{DownloadError, shown};
use super::partial::{DownloadOrigin, Partial};
use super::pipeline::Pipeline;
use super::retry::RetryPolicy;
use super::sums::Sums;
use crate::PROGRESS;
use crate::artifacts::catalogue::Artifact;
use crate::backoff::asked_pause;
use crate::http_limits::innermost;
use crate::http_limits::{self, CapError};

/// A server without data for this time counts as unreachable.
const SILENCE: Duration = Duration::from_secs(60);
const CONNECT: Duration = Duration::from_secs(5);
/// A checksum list has a few kilobytes.
const LONGEST_TEXT: usize = 4 << 20;
/// How often progress is reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Why an attempt failed.
enum Broken {
    /// The next attempt may succeed.
    Retry {
        why: String,
        pause: Option<Duration>,
    },
    /// The stored bytes belong to another file, or the server cannot resume.
    Restart(String),
    Final(DownloadError),
    /// The pipeline stopped and has the reason.
    Stopped,
}

fn again(why: impl Into<String>) -> Broken {
    Broken::Retry {
        why: why.into(),
        pause: None,
    }
}

/// An HTTP client that rejects redirects from https to http.
pub(super) struct Client {
    client: reqwest::Client,
    retries: RetryPolicy,
}

impl Client {
    pub fn new(retries: RetryPolicy) -> Result<Self, DownloadError> {
        let policy = redirect::Policy::custom(|attempt| {
            let was_safe = attempt.previous().last().is_some_and(|url| url.scheme() == "https");
            if was_safe && attempt.url().scheme() != "https" {
                return attempt.error("a redirect from https to http");
            }
            match attempt.previous().len() {
                0..10 => attempt.follow(),
                _ => attempt.error("too many redirects"),
            }
        });
        let built = reqwest::Client::builder()
            .redirect(policy)
            // A query may contain credentials of a mirror, which other servers must not receive.
            .referer(false)
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .user_agent(concat!("ocpdeploy/", env!("CARGO_PKG_VERSION")))
            .build();
        match built {
            Ok(client) => Ok(Self { client, retries }),
            Err(error) => Err(DownloadError::Unreachable {
                url: "anything".to_owned(),
                why: words(&error),
                tries: 0,
            }),
        }
    }

    /// A complete short file.
    pub async fn bytes(&self, url: &str) -> Result<Vec<u8>, DownloadError> {
        self.bytes_until(url, None).await
    }

    /// A complete short file, with an optional deadline.
    pub async fn bytes_until(&self, url: &str, until: Option<Instant>) -> Result<Vec<u8>, DownloadError> {
        let (begun, mut tried) = (Instant::now(), 0);
        let left = || until.map(|until| until.saturating_duration_since(Instant::now()));
        loop {
            let outcome = match left() {
                None => self.try_bytes(url).await,
                Some(left) => match timeout(left, self.try_bytes(url)).await {
                    Ok(outcome) => outcome,
                    Err(_) => {
                        let why = format!("no answer within {} s", begun.elapsed().as_secs());
                        return Err(unreachable(url, why, tried + 1));
                    }
                },
            };
            let (why, pause) = match outcome {
                Ok(bytes) => return Ok(bytes),
                Err(Broken::Final(error)) => return Err(error),
                Err(Broken::Retry { why, pause }) => (why, pause),
                Err(Broken::Restart(why)) => (why, None),
                Err(Broken::Stopped) => (String::new(), None),
            };
            tried += 1;
            if tried >= self.retries.tries {
                return Err(unreachable(url, why, tried));
            }
            debug!("{}: {why}; retrying", shown(url));
            match left() {
                None => self.retries.pause(tried, pause).await,
                // The pause would exceed the remaining time.
                Some(left) if timeout(left, self.retries.pause(tried, pause)).await.is_err() => {
                    return Err(unreachable(url, why, tried));
                }
                Some(_) => {}
            }
        }
    }

    async fn try_bytes(&self, url: &str) -> Result<Vec<u8>, Broken> {
        let response = answer(url, self.client.get(url).send().await)?;
        http_limits::read(response, LONGEST_TEXT)
            .await
            .map_err(|error| match error {
                CapError::Large(_) => {
                    let url = shown(url).to_owned();
                    Broken::Final(DownloadError::TooLong { url })
                }
                CapError::Slow(_) => Broken::Final(unreachable(url, error.to_string(), 1)),
                error => again(error.to_string()),
            })
    }
}

fn unreachable(url: &str, why: String, tries: u32) -> DownloadError {
    let url = shown(url).to_owned();
    DownloadError::Unreachable { url, why, tries }
}

/// A successful response, or the meaning of a failure.
fn answer(url: &str, sent: reqwest::Result<Response>) -> Result<Response, Broken> {
    let response = sent.map_err(|error| {
        let why = words(&error);
        // Retrying does not change a certificate.
        let lasting = error.is_builder() || error.is_redirect() || why.contains("certificate");
        match lasting {
            true => Broken::Final(unreachable(url, why, 1)),
            false => again(why),
        }
    })?;
    let status = response.status();
    if status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE {
        return Ok(response);
    }
    if status.is_server_error() || [408, 425, 429].contains(&status.as_u16()) {
        return Err(Broken::Retry {
            why: format!("the server returned {status}"),
            pause: asked_pause(status, response.headers()),
        });
    }
    Err(Broken::Final(DownloadError::Refused {
        url: shown(url).to_owned(),
        status: status.as_u16(),
    }))
}

fn text_of(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// The innermost cause is the most specific; the outer ones repeat the URL.
fn words(error: &reqwest::Error) -> String {
    match innermost(error) {
        text if text.is_empty() => "connection lost".to_owned(),
        text if error.is_timeout() => format!("timed out ({text})"),
        text => text,
    }
}

/// The transfer of one file into the pipeline.
pub(super) struct Transfer<'a> {
    cache: &'a Cache,
    client: Client,
    artifact: &'a Artifact,
    partial: &'a Partial,
    pipeline: Option<Pipeline>,
    have: u64,
    /// The largest number of bytes reached so far.
    best: u64,
    reported: Instant,
    /// Its parts come from several requests.
    pub stitched: bool,
}

impl<'a> Transfer<'a> {
    pub fn new(cache: &'a Cache, artifact: &'a Artifact, partial: &'a Partial) -> Result<Self, DownloadError> {
        let pipeline = Pipeline::start(partial, artifact.is_packed(), || cache.space())?;
        let have = partial.have();
        Ok(Self {
            cache,
            client: Client::new(cache.retries)?,
            artifact,
            partial,
            pipeline: Some(pipeline),
            have,
            best: have,
            reported: Instant::now(),
            stitched: have > 0,
        })
    }

    /// Waits for the checksums of the data.
    pub async fn finish(self) -> Result<Sums, DownloadError> {
        match self.pipeline {
            Some(pipeline) => pipeline.finish().await,
            None => Err(unreachable(
                &self.artifact.url,
                "the transfer did not start".to_owned(),
                1,
            )),
        }
    }

    /// Feeds the pipeline until the file is complete.
    pub async fn run(&mut self) -> Result<(), DownloadError> {
        let url = shown(&self.artifact.url).to_owned();
        if let Some(path) = local_path(&self.artifact.url) {
            return self.copy(&path).await;
        }
        if self.have > 0 {
            info!(target: PROGRESS, "download {url}: resuming after {} MiB", self.have >> 20);
        }
        let mut tried = 0;
        loop {
            let outcome = self.attempt().await;
            if self.have > self.best {
                self.best = self.have;
                tried = 0;
            }
            let (why, pause) = match outcome {
                Ok(()) | Err(Broken::Stopped) => return Ok(()),
                Err(Broken::Final(error)) => return Err(error),
                Err(Broken::Retry { why, pause }) => (why, pause),
                Err(Broken::Restart(why)) => {
                    self.begin_anew().await?;
                    (format!("{why}; restarting"), None)
                }
            };
            tried += 1;
            if tried >= self.client.retries.tries {
                return Err(match self.partial.origin().total {
                    // The server responds, but never completes the file.
                    Some(said) if self.have > 0 && self.have < said && why.contains(ENDED) => DownloadError::Short {
                        url,
                        said,
                        found: self.have,
                    },
                    _ => unreachable(&url, why, tried),
                });
            }
            info!(target: PROGRESS, "download {url}: {why}; retrying at {} MiB", self.have >> 20);
            self.client.retries.pause(tried, pause).await;
        }
    }

    async fn begin_anew(&mut self) -> Result<(), DownloadError> {
        if let Some(pipeline) = self.pipeline.take() {
            // Its threads must have closed the files.
            drop(pipeline.finish().await);
        }
        self.partial.clear()?;
        self.stitched = false;
        self.have = 0;
        let space = || self.cache.space();
        self.pipeline = Some(Pipeline::start(self.partial, self.artifact.is_packed(), space)?);
        Ok(())
    }

    /// One request: for the whole file, or for its missing part.
    async fn attempt(&mut self) -> Result<(), Broken> {
        let mut origin = self.partial.origin();
        if self.have > 0 && origin.total == Some(self.have) {
            return Ok(());
        }
        let url = &self.artifact.url;
        let mut request = self.client.client.get(url).header(header::ACCEPT_ENCODING, "identity");
        if self.have > 0 {
            let has_sum = self.artifact.sha256.is_some() || self.artifact.content_sha256.is_some();
            match &origin.validator {
                Some(validator) => request = request.header(header::IF_RANGE, validator),
                // The checksum decides at the end.
                None if has_sum => {}
                None => {
                    return Err(Broken::Restart(
                        "the server sends no ETag or date to identify the file".to_owned(),
                    ));
                }
            }
            request = request.header(header::RANGE, format!("bytes={}-", self.have));
            self.stitched = true;
        }
        let response = answer(url, request.send().await)?;
        let status = response.status();
        let headers = response.headers();
        let range = text_of(headers, header::CONTENT_RANGE).and_then(range);
        match (status, self.have) {
            (StatusCode::RANGE_NOT_SATISFIABLE, 0) => {
                return Err(again("the server returned 416 to a request without a range"));
            }
            (StatusCode::RANGE_NOT_SATISFIABLE, have) => {
                return match range {
                    Some((_, Some(total))) if total == have => Ok(()),
                    Some((_, Some(total))) if total > have => Err(again(ENDED)),
                    _ => Err(Broken::Restart("the file has changed on the server".to_owned())),
                };
            }
            (StatusCode::PARTIAL_CONTENT, have) => {
                let same = range.is_some_and(|(start, total)| {
                    start == Some(have) && (total.is_none() || origin.total.is_none() || total == origin.total)
                });
                // The URL may lead to several servers, of which not all support If-Range.
                let now = validator(headers);
                if !same || (now.is_some() && now != origin.validator) {
                    return Err(Broken::Restart("the file has changed on the server".to_owned()));
                }
            }
            (_, 0) => {
                origin = DownloadOrigin {
                    validator: validator(headers),
                    total: response.content_length(),
                };
                self.partial.set_origin(&origin).map_err(Broken::Final)?;
            }
            (_, _) => {
                return Err(Broken::Restart(
                    "the server sent the whole file: it changed, or the server does not support ranges".to_owned(),
                ));
            }
        }
        self.receive(response, origin.total).await
    }

    async fn receive(&mut self, mut response: Response, total: Option<u64>) -> Result<(), Broken> {
        loop {
            let chunk = match response.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break,
                Err(error) => return Err(again(format!("{ENDED} ({})", words(&error)))),
            };
            self.have += chunk.len() as u64;
            if total.is_some_and(|total| self.have > total) {
                return Err(Broken::Restart(
                    "received more bytes than the server announced".to_owned(),
                ));
            }
            let Some(pipeline) = &self.pipeline else {
                return Err(Broken::Stopped);
            };
            if !pipeline.feed(chunk.into()).await {
                return Err(Broken::Stopped);
            }
            self.report(total);
        }
        match total {
            Some(total) if self.have < total => Err(again(ENDED)),
            _ => Ok(()),
        }
    }

    fn report(&mut self, total: Option<u64>) {
        if self.reported.elapsed() < REPORT_INTERVAL {
            return;
        }
        self.reported = Instant::now();
        let have = self.have >> 20;
        let text = match total {
            Some(total) => format!("{have} of {} MiB", total >> 20),
            None => format!("{have} MiB"),
        };
        info!(target: PROGRESS, item = self.artifact.file_name(), state = "downloading", "{text}");
    }

    /// A file of this computer.
    async fn copy(&mut self, path: &Path) -> Result<(), DownloadError> {
        let unreadable = |source| DownloadError::Local {
            path: path.to_owned(),
            source,
        };
        self.begin_anew().await?;
        let mut file = tokio::fs::File::open(path).await.map_err(unreadable)?;
        let total = file.metadata().await.map_err(unreadable)?.len();
        loop {
            let mut block = Vec::with_capacity(1 << 20);
            let count = (&mut file)
                .take(1 << 20)
                .read_to_end(&mut block)
                .await
                .map_err(unreadable)?;
            self.have += count as u64;
            let Some(pipeline) = &self.pipeline else { return Ok(()) };
            if count == 0 || !pipeline.feed(block).await {
                return Ok(());
            }
            self.report(Some(total));
        }
    }
}

const ENDED: &str = "the connection closed before the end of the file";

/// The path of a `file:` URL; the query, which identifies its state, is not part of it.
fn local_path(url: &str) -> Option<PathBuf> {
    let path = url.strip_prefix("file://")?;
    Some(PathBuf::from(path.split('?').next()?))
}

/// Identifies the state of the file for `If-Range`: a strong ETag, or a date.
fn validator(headers: &HeaderMap) -> Option<String> {
    let etag = text_of(headers, header::ETAG).filter(|tag| tag.starts_with('"'));
    etag.or_else(|| text_of(headers, header::LAST_MODIFIED))
        .map(str::to_owned)
}

/// First byte and total size from `bytes 5-9/10` or `bytes */10`.
fn range(text: &str) -> Option<(Option<u64>, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let start = range.split_once('-').and_then(|(start, _)| start.parse().ok());
    Some((start, total.parse().ok()))
}
