//! Reads HTTP responses with limits on size, time and number of values, so that an endless response neither fills the
//! memory nor blocks the run.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use kube::client::{ClientBuilder, DynBody};
use reqwest::Response;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tower::BoxError;
use tower::util::MapResponseLayer;

/// Largest response in bytes. Nova's lists are the largest: pages of 1000 servers (openstack/nova:
/// `nova/conf/api.py`, `max_limit`), each of which may carry 64 KiB of user data
/// (`nova/api/openstack/compute/schemas/servers.py`, `user_data`).
pub const LARGEST: usize = 64 << 20;

/// Largest small response in bytes, such as a token with a catalog.
pub const SMALL: usize = 4 << 20;

/// Largest text of an error in bytes; the rest is not read.
const ERROR: usize = 64 << 10;

/// Limit from a response's headers to its last byte, even if bytes arrive continuously.
const COMPLETE: Duration = Duration::from_secs(60);

/// Responses that are larger than `SMALL` are read so many at a time, the others wait: a list of all kinds of things asks for
/// nine at once.
static LARGE_AT_ONCE: Semaphore = Semaphore::const_new(3);

/// Values in one JSON document. Each takes about 72 bytes of memory, and as few as 2 of the response.
pub const VALUES: usize = 1 << 20;

/// A limit on the time of a request. Tests that wait it out shorten it: in debug builds a second lasts
/// `OCPDEPLOY_TEST_SECOND` milliseconds.
pub fn time_limit(limit: Duration) -> Duration {
    let second = std::env::var("OCPDEPLOY_TEST_SECOND")
        .ok()
        .filter(|_| cfg!(debug_assertions));
    match second.and_then(|milliseconds| milliseconds.parse().ok()) {
        Some(milliseconds) => limit * milliseconds / 1000,
        None => limit,
    }
}

/// Why a response was not read.
#[derive(Debug, thiserror::Error)]
pub enum CapError {
    #[error("the answer is larger than {} KiB", .0 >> 10)]
    Large(usize),
    #[error("the answer has more than {0} values")]
    Values(usize),
    #[error("the answer was not complete after {} s", .0.as_secs())]
    Slow(Duration),
    #[error("the answer was cut off: {0}")]
    Cut(String),
    #[error("the answer is not what was asked for: {0}")]
    Json(serde_json::Error),
}

/// Reads a response of at most `largest` bytes. Of an error response the beginning is sufficient.
pub async fn read(response: Response, largest: usize) -> Result<Vec<u8>, CapError> {
    read_within(response, largest, time_limit(COMPLETE)).await
}

async fn read_within(mut response: Response, largest: usize, limit: Duration) -> Result<Vec<u8>, CapError> {
    let is_error = !response.status().is_success();
    let largest = if is_error { ERROR.min(largest) } else { largest };
    let announced = response.content_length().unwrap_or_default();
    if !is_error && announced > largest as u64 {
        return Err(CapError::Large(largest));
    }
    let mut bytes = Vec::new();
    let reading = async {
        let mut turn = None;
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| CapError::Cut(innermost(&error)))?
        {
            if turn.is_none() && bytes.len() + chunk.len() > SMALL {
                turn = LARGE_AT_ONCE.acquire().await.ok();
            }
            let room = largest - bytes.len();
            if chunk.len() > room {
                bytes.extend_from_slice(&chunk[..room]);
                return Err(CapError::Large(largest));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(())
    };
    match tokio::time::timeout(limit, reading).await {
        Ok(Ok(())) => Ok(bytes),
        // The status is more important than the rest of its explanation.
        _ if is_error => Ok(bytes),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(CapError::Slow(limit)),
    }
}

/// Parses a JSON document of at most `VALUES` values. serde_json itself rejects more than 128 levels
/// (serde-rs/json: `src/de.rs`, `remaining_depth`).
pub fn json<T: DeserializeOwned>(text: &[u8]) -> Result<T, CapError> {
    if values(text) > VALUES {
        return Err(CapError::Values(VALUES));
    }
    serde_json::from_slice(text).map_err(CapError::Json)
}

/// An upper bound of a JSON document's number of values: counts every opening or separating character outside of
/// strings.
pub fn values(text: &[u8]) -> usize {
    let (mut count, mut in_string, mut is_escaped) = (1, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' | b',' if !in_string => count += 1,
            _ => {}
        }
    }
    count
}

/// A Kubernetes client that aborts responses of more than `LARGEST` bytes.
pub fn kube_client(config: kube::Config) -> kube::Result<kube::Client> {
    let capped = MapResponseLayer::new(|response: http::Response<Box<DynBody>>| {
        let left = if response.status().is_success() { LARGEST } else { SMALL };
        response.map(|body| Capped { body, left })
    });
    Ok(ClientBuilder::try_from(config)?.with_layer(&capped).build())
}

/// A body that ends with an error after this number of bytes.
struct Capped {
    body: Box<DynBody>,
    left: usize,
}

impl Body for Capped {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            match self.left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                Some(left) => self.left = left,
                None => return Poll::Ready(Some(Err(CapError::Large(LARGEST).into()))),
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A server's text as one line of limited length.
pub fn words(text: &str, most: usize) -> String {
    // Only the beginning is processed.
    let beginning: String = text.chars().take(most * 4).collect();
    let mut words = beginning.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = words.char_indices().nth(most) {
        words.truncate(end);
        words.push('…');
    }
    words
}

/// The root cause: the errors around it repeat the URL, or only say "error sending request".
pub fn innermost(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => innermost(source),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, stream};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn answer(status: u16, chunks: impl futures::Stream<Item = &'static str> + Send + 'static) -> Response {
        let body = reqwest::Body::wrap_stream(chunks.map(Ok::<_, std::io::Error>));
        http::Response::builder().status(status).body(body).unwrap().into()
    }

    fn endless() -> impl futures::Stream<Item = &'static str> + Send {
        stream::repeat("0123456789")
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(work)
    }

    #[test]
    fn an_answer_that_does_not_end_is_given_up_at_its_limit() {
        let read = |status, limit| run(read_within(answer(status, endless()), limit, LONG));
        assert!(matches!(read(200, 95), Err(CapError::Large(95))));
        // Only the beginning of an error is read.
        assert_eq!(read(500, LARGEST).unwrap().len(), ERROR);
        let whole = run(read_within(answer(200, endless().take(3)), 30, LONG));
        assert_eq!(whole.unwrap().len(), 30);
    }

    #[test]
    fn an_answer_that_is_announced_as_too_large_is_not_begun() {
        let response = http::Response::builder()
            .body(reqwest::Body::from("x".repeat(100)))
            .unwrap();
        assert!(matches!(
            run(read_within(response.into(), 99, LONG)),
            Err(CapError::Large(99))
        ));
    }

    #[test]
    fn an_answer_that_trickles_is_given_up_in_time() {
        let trickle = || endless().take(2).chain(stream::pending());
        let limit = Duration::from_millis(50);
        let slow = run(read_within(answer(200, trickle()), 1000, limit));
        assert!(matches!(slow, Err(CapError::Slow(_))));
        let error = run(read_within(answer(503, trickle()), 1000, limit)).unwrap();
        assert_eq!(error.len(), 20);
    }

    #[test]
    fn large_answers_take_turns_and_small_ones_do_not_wait() {
        const MIB: &str = match std::str::from_utf8(&[b'x'; 1 << 20]) {
            Ok(text) => text,
            Err(_) => "",
        };
        let large = || stream::repeat(MIB).take((SMALL >> 20) + 1);
        let (soon, later) = (Duration::from_millis(100), Duration::from_millis(500));
        run(async {
            let open = (0..3).map(|_| read_within(answer(200, large().chain(stream::pending())), LARGEST, later));
            let begun = futures::future::join_all(open);
            let others = async {
                let waits = read_within(answer(200, large()), LARGEST, soon).await;
                assert!(matches!(waits, Err(CapError::Slow(_))));
                let small = read_within(answer(200, endless().take(3)), LARGEST, soon).await;
                assert_eq!(small.unwrap().len(), 30);
            };
            let (ended, ()) = futures::join!(begun, others);
            assert!(ended.iter().all(|one| matches!(one, Err(CapError::Slow(_)))));
            let whole = read_within(answer(200, large()), LARGEST, LONG).await;
            assert_eq!(whole.unwrap().len(), SMALL + MIB.len());
        });
    }

    #[test]
    fn a_document_of_too_many_values_is_not_built() {
        let bomb = |inner: &str| format!("[{}{inner}]", format!("{inner},").repeat(VALUES));
        for inner in ["{}", "[]", "0"] {
            let refused = json::<serde_json::Value>(bomb(inner).as_bytes());
            assert!(matches!(refused, Err(CapError::Values(_))), "{inner}");
        }
        let deep = "[".repeat(100_000);
        assert!(matches!(
            json::<serde_json::Value>(deep.as_bytes()),
            Err(CapError::Json(_))
        ));
        // The contents of strings do not count.
        assert_eq!(values(br#"{"a": "[{,\"[{,\\", "b": [1, {}]}"#), 6);
        assert_eq!(json::<serde_json::Value>(br#"{"a": [1]}"#).unwrap()["a"][0], 1);
    }

    #[test]
    fn words_are_few_and_on_one_line() {
        assert_eq!(words(" a\n\n b\tc ", 10), "a b c");
        assert_eq!(words(&"x".repeat(1 << 20), 5), "xxxxx…");
    }
}
