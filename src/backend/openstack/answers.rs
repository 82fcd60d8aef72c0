//! Responses of services: read up to a size limit, checked, with errors in one form.

use reqwest::header::HeaderMap;
use reqwest::{Response, StatusCode};
use serde_json::Value;

use super::auth::AuthConfigError;
use super::wire;
use crate::backend::{BackendError, BackendErrorKind};
use crate::backoff::asked_pause;
use crate::http_limits::{self, innermost};

impl From<AuthConfigError> for BackendError {
    fn from(error: AuthConfigError) -> Self {
        BackendError::new(BackendErrorKind::Denied, error.message).hint(error.hint)
    }
}

/// Reads a response of at most `largest` bytes.
pub(super) async fn read(
    url: &str,
    response: Response,
    largest: usize,
) -> Result<(StatusCode, HeaderMap, Vec<u8>), BackendError> {
    let (status, headers) = (response.status(), response.headers().clone());
    let body = http_limits::read(response, largest)
        .await
        .map_err(|error| BackendError::unread(host(url), &error))?;
    Ok((status, headers, body))
}

/// The body of a successful response, or the error of any other.
pub(super) fn checked(status: StatusCode, headers: &HeaderMap, body: Vec<u8>) -> Result<Vec<u8>, BackendError> {
    if status.is_success() {
        return Ok(body);
    }
    let fault = wire::fault(&body);
    let request = headers.get("x-openstack-request-id").and_then(|id| id.to_str().ok());
    let message = match request {
        Some(request) => format!("{fault} (HTTP {}, {request})", status.as_u16()),
        None => format!("{fault} (HTTP {})", status.as_u16()),
    };
    let mut failure = BackendError::new(wire::kind_of(status.as_u16(), &fault), message);
    failure.code = Some(status.as_u16().into());
    failure.pause = asked_pause(status, headers);
    Err(failure)
}

/// The JSON of a response; an empty one is `null`.
pub(super) fn parse(body: &[u8]) -> Result<Value, BackendError> {
    match body.is_empty() {
        true => Ok(Value::Null),
        false => http_limits::json(body).map_err(|error| {
            BackendError::new(BackendErrorKind::Rejected, error.to_string())
                .hint("the response may come from a proxy: check the URL and the proxy settings")
        }),
    }
}

/// The error of a request without a response.
pub(super) fn unreachable(url: &str, error: &reqwest::Error) -> BackendError {
    let why = innermost(error);
    let kind = match error.is_timeout() {
        true => BackendErrorKind::Timeout,
        false => BackendErrorKind::Unreachable,
    };
    let failure = BackendError::new(kind, format!("{}: {why}", host(url)));
    match is_of_certificate(error) {
        true => failure
            .hint("set `cacert` in clouds.yaml (or OS_CACERT) to the PEM file of the CA that signed its certificate"),
        false => failure,
    }
}

/// Whether a certificate was not trusted.
pub(super) fn is_of_certificate(error: &reqwest::Error) -> bool {
    let why = innermost(error);
    why.contains("certificate") || why.contains("UnknownIssuer")
}

/// Scheme, host and port, because the path may contain a secret.
pub(super) fn host(url: &str) -> &str {
    let from = url.find("://").map_or(0, |at| at + 3);
    url[from..].find('/').map_or(url, |at| &url[..from + at])
}
