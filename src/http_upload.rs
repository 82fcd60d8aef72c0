//! Uploads of any duration: a server may read slowly, but not stop.
//!
//! reqwest's `read_timeout` begins with the request, and sent bytes do not extend it (seanmonstar/reqwest:
//! `src/async_impl/client.rs`, `PendingRequest::poll`; issue 2784). So clients that upload must be built without it and
//! without a total `timeout`.

use std::io;
use std::time::Duration;

use futures::stream;
use hyper::body::Bytes;
use reqwest::header::CONTENT_LENGTH;
use reqwest::{Body, RequestBuilder, Response};
use tokio::io::{AsyncRead, AsyncReadExt, BufReader};
use tokio::sync::watch;
use tokio::time::timeout;

/// The size of the parts that are counted as progress.
const PART: usize = 64 << 10;

/// How much of a file is read at once. Another thread reads it, at a fixed cost for each read.
const READ: usize = 1 << 20;

/// How long to wait for a server that receives an upload.
#[derive(Clone, Copy, Debug)]
pub struct UploadLimits {
    /// Without progress of the body.
    pub stalled: Duration,
    /// From the last byte to the response: the server may convert or copy what it received.
    pub answer: Duration,
}

impl Default for UploadLimits {
    fn default() -> Self {
        Self {
            stalled: Duration::from_secs(120),
            answer: Duration::from_secs(20 * 60),
        }
    }
}

/// Why an upload has no response.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error("the server stopped reading the upload: no progress within {} s", .0.as_secs())]
    Stalled(Duration),
    #[error("no response within {} s after the upload", .0.as_secs())]
    NoAnswer(Duration),
    /// The body could not be read to its end.
    #[error(transparent)]
    File(io::Error),
    #[error(transparent)]
    Http(reqwest::Error),
}

impl From<reqwest::Error> for UploadError {
    fn from(error: reqwest::Error) -> Self {
        let mut cause = std::error::Error::source(&error);
        while let Some(inner) = cause {
            if let Some(Unreadable(error)) = inner.downcast_ref() {
                return Self::File(io::Error::new(error.kind(), error.to_string()));
            }
            cause = inner.source();
        }
        Self::Http(error)
    }
}

/// Marks a failure to read the body. reqwest reports it like a failure of the connection.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Unreadable(#[from] io::Error);

/// Sends a request with a body of `bytes` bytes, and returns the response's head.
pub async fn send(
    request: RequestBuilder,
    body: impl AsyncRead + Send + Unpin + 'static,
    bytes: u64,
    limits: UploadLimits,
) -> Result<Response, UploadError> {
    let (progress, mut moved) = watch::channel(());
    let body = BufReader::with_capacity(READ, body).take(bytes);
    let parts = stream::try_unfold((body, progress), async |(mut body, progress)| {
        // The connection has taken the part before this one.
        progress.send_replace(());
        if body.limit() == 0 {
            return Ok(None);
        }
        let mut part = Vec::with_capacity(PART);
        if body.read_buf(&mut part).await? == 0 {
            let shorter = "the file became shorter during the upload";
            return Err(Unreadable(io::Error::new(io::ErrorKind::UnexpectedEof, shorter)));
        }
        Ok(Some((Bytes::from(part), (body, progress))))
    });
    let request = request.header(CONTENT_LENGTH, bytes).body(Body::wrap_stream(parts));
    let sending = request.send();
    tokio::pin!(sending);
    loop {
        tokio::select! {
            biased;
            response = &mut sending => return Ok(response?),
            moved = timeout(limits.stalled, moved.changed()) => match moved {
                Ok(Ok(())) => {}
                // The body was sent and dropped.
                Ok(Err(_)) => break,
                Err(_) => return Err(UploadError::Stalled(limits.stalled)),
            },
        }
    }
    match timeout(limits.answer, sending).await {
        Ok(response) => Ok(response?),
        Err(_) => Err(UploadError::NoAnswer(limits.answer)),
    }
}

/// A server for the tests of each platform's upload.
#[cfg(test)]
pub mod slow_server {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::thread;
    use std::time::Duration;

    use super::UploadLimits;

    /// Much larger than the socket buffers of both sides, from which the server reads after the last part was sent.
    pub const BYTES: usize = 64 << 20;
    const PARTS: u32 = 64;
    /// Shorter than an upload to a slow server takes.
    pub const LIMIT: Duration = Duration::from_secs(1);
    pub const LIMITS: UploadLimits = UploadLimits {
        stalled: LIMIT,
        answer: LIMIT,
    };

    /// What the server does with its only request.
    #[derive(Clone, Copy, Debug)]
    pub enum Behavior {
        /// Reads the body in three times the limit.
        Slow,
        /// Stops in the middle of the body.
        Stops,
        /// Reads the body and does not respond.
        Silent,
    }

    /// The URL of a server for one request. It responds with 200 to a complete body of announced length.
    pub fn start(behavior: Behavior) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let mut length = None;
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                match line.trim_end().to_ascii_lowercase().split_once(": ") {
                    Some(("content-length", value)) => length = Some(value.parse::<usize>().unwrap()),
                    Some(_) => {}
                    None if line.trim_end().is_empty() => break,
                    None => {}
                }
            }
            let mut part = vec![0; BYTES / PARTS as usize];
            for number in 0..length.unwrap_or(0) / part.len() {
                match behavior {
                    Behavior::Slow => thread::sleep(LIMIT * 3 / PARTS),
                    Behavior::Stops if number == 4 => thread::sleep(LIMIT * 60),
                    Behavior::Stops | Behavior::Silent => {}
                }
                stream.read_exact(&mut part).unwrap();
            }
            if let Behavior::Silent = behavior {
                thread::sleep(LIMIT * 60);
            }
            let status = if length == Some(BYTES) {
                "200 OK"
            } else {
                "411 Length Required"
            };
            write!(stream.get_mut(), "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").unwrap();
        });
        url
    }

    /// Runs one platform's upload.
    pub fn run<T>(work: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(work)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::slow_server::{BYTES, Behavior, LIMIT, LIMITS, run, start};
    use super::*;

    fn upload(behavior: Behavior, has: usize) -> Result<Response, UploadError> {
        let request = reqwest::Client::new().put(start(behavior));
        run(send(request, Cursor::new(vec![7; has]), BYTES as u64, LIMITS))
    }

    #[test]
    fn a_server_that_reads_slowly_gets_everything() {
        let begun = std::time::Instant::now();
        assert_eq!(upload(Behavior::Slow, BYTES).unwrap().status(), 200);
        assert!(begun.elapsed() > 2 * LIMIT, "the server was not slow");
    }

    #[test]
    fn a_server_that_stops_reading_or_does_not_respond_times_out() {
        assert!(matches!(upload(Behavior::Stops, BYTES), Err(UploadError::Stalled(_))));
        assert!(matches!(upload(Behavior::Silent, BYTES), Err(UploadError::NoAnswer(_))));
    }

    #[test]
    fn a_file_that_became_shorter_is_not_uploaded() {
        let error = upload(Behavior::Silent, BYTES - 1).unwrap_err();
        let UploadError::File(error) = error else {
            panic!("{error}")
        };
        assert_eq!(error.to_string(), "the file became shorter during the upload");
    }
}
