//! What comes back from a service: read up to a limit, judged, and faults in one form.

use reqwest::header::HeaderMap;
use reqwest::{Response, StatusCode};
use serde_json::Value;

use super::auth::Unclear;
use super::wire;
use crate::backend::BackendErrorKind;
use crate::backend::failure::Failure;
use crate::backoff::asked_pause;
use crate::http_limits::{self, innermost};

impl From<Unclear> for Failure {
    fn from(unclear: Unclear) -> Self {
        Failure::new(BackendErrorKind::Denied, unclear.words).hint(unclear.hint)
    }
}

/// Reads an answer of `url`, of at most so many bytes.
pub(super) async fn read(
    url: &str,
    response: Response,
    largest: usize,
) -> Result<(StatusCode, HeaderMap, Vec<u8>), Failure> {
    let (status, headers) = (response.status(), response.headers().clone());
    let body = http_limits::read(response, largest)
        .await
        .map_err(|error| Failure::unread(host(url), &error))?;
    Ok((status, headers, body))
}

/// The body of a success, or the fault of anything else.
pub(super) fn checked(status: StatusCode, headers: &HeaderMap, body: Vec<u8>) -> Result<Vec<u8>, Failure> {
    if status.is_success() {
        return Ok(body);
    }
    let fault = wire::fault(&body);
    let request = headers.get("x-openstack-request-id").and_then(|id| id.to_str().ok());
    let words = match request {
        Some(request) => format!("{fault} (HTTP {}, {request})", status.as_u16()),
        None => format!("{fault} (HTTP {})", status.as_u16()),
    };
    let mut failure = Failure::new(wire::kind_of(status.as_u16(), &fault), words);
    failure.code = Some(status.as_u16().into());
    failure.pause = asked_pause(status, headers);
    Err(failure)
}

/// The JSON of an answer; nothing at all is `null`.
pub(super) fn parse(body: &[u8]) -> Result<Value, Failure> {
    match body.is_empty() {
        true => Ok(Value::Null),
        false => http_limits::json(body).map_err(|error| {
            Failure::new(BackendErrorKind::Rejected, error.to_string())
                .hint("a proxy on the way may have answered in its stead")
        }),
    }
}

/// Says that something at `url` did not answer.
pub(super) fn unreachable(url: &str, error: &reqwest::Error) -> Failure {
    let why = innermost(error);
    let kind = match error.is_timeout() {
        true => BackendErrorKind::Timeout,
        false => BackendErrorKind::Unreachable,
    };
    let failure = Failure::new(kind, format!("{}: {why}", host(url)));
    match why.contains("certificate") || why.contains("UnknownIssuer") {
        true => {
            failure.hint("set `cacert` in clouds.yaml (or OS_CACERT) to the PEM file of who signed its certificate")
        }
        false => failure,
    }
}

/// Scheme, host and port: a path may hold what nobody else should read.
fn host(url: &str) -> &str {
    let from = url.find("://").map_or(0, |at| at + 3);
    url[from..].find('/').map_or(url, |at| &url[..from + at])
}
