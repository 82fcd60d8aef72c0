//! Reads HTTP responses with limits on size and time, so that an endless response neither fills the memory nor blocks
//! the run.

use std::time::Duration;

use reqwest::Response;
use serde::de::DeserializeOwned;

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

/// A limit on the time of a request. Tests that wait for it shorten it: in debug builds a second lasts
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
    #[error("the response is larger than {} KiB", .0 >> 10)]
    Large(usize),
    #[error("the response was not complete after {} s", .0.as_secs())]
    Slow(Duration),
    #[error("the response was cut off: {0}")]
    Cut(String),
    #[error("the response is not the expected JSON: {0}")]
    Json(serde_json::Error),
}

/// Reads a response of at most `largest` bytes. For an error response, the beginning is sufficient.
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
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| CapError::Cut(innermost(&error)))?
        {
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
        // An incomplete error response is returned, because its status matters more than the rest of its text.
        _ if is_error => Ok(bytes),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(CapError::Slow(limit)),
    }
}

/// Parses a JSON document. serde_json rejects more than 128 levels (serde-rs/json: `src/de.rs`, `remaining_depth`).
pub fn json<T: DeserializeOwned>(text: &[u8]) -> Result<T, CapError> {
    serde_json::from_slice(text).map_err(CapError::Json)
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
    fn an_endless_response_is_read_up_to_the_limit() {
        let read = |status, limit| run(read_within(answer(status, endless()), limit, LONG));
        assert!(matches!(read(200, 95), Err(CapError::Large(95))));
        // Only the beginning of an error is read.
        assert_eq!(read(500, LARGEST).unwrap().len(), ERROR);
        let whole = run(read_within(answer(200, endless().take(3)), 30, LONG));
        assert_eq!(whole.unwrap().len(), 30);
    }

    #[test]
    fn a_response_with_too_large_a_content_length_is_rejected() {
        let response = http::Response::builder()
            .body(reqwest::Body::from("x".repeat(100)))
            .unwrap();
        assert!(matches!(
            run(read_within(response.into(), 99, LONG)),
            Err(CapError::Large(99))
        ));
    }

    #[test]
    fn a_slow_response_times_out() {
        let trickle = || endless().take(2).chain(stream::pending());
        let limit = Duration::from_millis(50);
        let slow = run(read_within(answer(200, trickle()), 1000, limit));
        assert!(matches!(slow, Err(CapError::Slow(_))));
        let error = run(read_within(answer(503, trickle()), 1000, limit)).unwrap();
        assert_eq!(error.len(), 20);
    }

    #[test]
    fn a_document_of_too_many_levels_is_rejected() {
        let deep = "[".repeat(100_000);
        assert!(matches!(
            json::<serde_json::Value>(deep.as_bytes()),
            Err(CapError::Json(_))
        ));
        assert_eq!(json::<serde_json::Value>(br#"{"a": [1]}"#).unwrap()["a"][0], 1);
    }

    #[test]
    fn the_text_of_a_server_becomes_one_short_line() {
        assert_eq!(words(" a\n\n b\tc ", 10), "a b c");
        assert_eq!(words(&"x".repeat(1 << 20), 5), "xxxxx…");
    }
}
