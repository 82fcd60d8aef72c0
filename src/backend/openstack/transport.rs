//! HTTP requests to the services, with retries; responses read up to a size limit, and errors in one form.

use std::path::Path;
use std::time::{Duration, Instant};

use reqwest::header::HeaderMap;
use reqwest::{Certificate, Client, Method, Response, StatusCode, redirect};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::io::AsyncRead;
use tokio::time::sleep;
use tracing::debug;

use super::wire;
use crate::backend::{BackendError, BackendErrorKind, ca_file};
use crate::backoff::{Backoff, asked_pause};
use crate::http_limits::{self, innermost};
use crate::http_upload::{self, UploadError, UploadLimits};

/// How often a request is sent before its error is returned.
const TRIES: u32 = 5;
/// The limit of one request with its response, except uploads.
const ANSWER: Duration = Duration::from_secs(180);
/// The limit of the request that shows a server's certificate.
const HANDSHAKE: Duration = Duration::from_secs(15);
/// The longest sum of pauses for one request. A longer requested pause is returned with the error, because the limit of
/// the user is not known here.
const HELD_BACK: Duration = Duration::from_secs(30);

/// A request to a service.
pub(super) struct ServiceRequest<'a> {
    pub method: Method,
    pub url: String,
    pub body: Option<&'a Value>,
    pub headers: &'a [(&'a str, &'a str)],
    /// The size limit of the response, in bytes.
    pub largest: usize,
}

/// An HTTP client that trusts the configured CAs.
pub(super) struct Transport {
    http: Client,
    ca: Option<String>,
    answer: Duration,
    uploads: UploadLimits,
}

impl Transport {
    /// `ca` is the path of a PEM file; without it, the system's CAs are trusted.
    pub fn new(ca: Option<&Path>) -> Result<Self, BackendError> {
        let mut http = Client::builder()
            .connect_timeout(Duration::from_secs(15))
            // A redirected request would contain the token.
            .redirect(redirect::Policy::none());
        let signed = "the certificates of the services";
        let ca = ca.map(|path| ca_file::read("cacert", path, signed)).transpose()?;
        if let Some((_, certificates)) = &ca {
            http = http.tls_certs_only(certificates.iter().cloned());
        }
        let http = http
            .build()
            .map_err(|error| BackendError::new(BackendErrorKind::Unreachable, innermost(&error)))?;
        Ok(Self {
            http,
            ca: ca.map(|(pem, _)| pem),
            answer: ANSWER,
            uploads: UploadLimits::default(),
        })
    }

    /// The trusted CA certificates in PEM.
    pub fn ca(&self) -> Option<&str> {
        self.ca.as_deref()
    }

    /// Whether machines accept the certificate at this URL: they trust public CAs, and that of `cacert`.
    ///
    /// The public CAs are Mozilla's, which CoreOS has, too. A URL that does not respond counts as accepted.
    pub async fn machines_trust(&self, url: &str) -> Result<bool, BackendError> {
        if self.ca.is_some() || !url.starts_with("https://") {
            return Ok(true);
        }
        let public = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
        let client = public
            .map(|der| Certificate::from_der(der))
            .collect::<Result<Vec<_>, _>>()
            .and_then(|public| {
                let client = Client::builder().timeout(HANDSHAKE).redirect(redirect::Policy::none());
                client.tls_certs_only(public).build()
            })
            .map_err(|error| BackendError::new(BackendErrorKind::Unreachable, innermost(&error)))?;
        let answer = client.get(host(url)).send().await;
        Ok(!answer.is_err_and(|error| is_of_certificate(&error)))
    }

    /// Sends a request. It is repeated after a response that requests a pause, and after other errors if `repeatable`.
    pub async fn send(
        &self,
        request: &ServiceRequest<'_>,
        token: Option<&SecretString>,
        repeatable: bool,
    ) -> Result<(StatusCode, HeaderMap, Vec<u8>), BackendError> {
        let (mut attempt, mut held_back) = (1, Duration::ZERO);
        let mut backoff = backoff();
        loop {
            let last = attempt == TRIES;
            let begun = Instant::now();
            let answer = self.send_once(request, token).await;
            let pause = match &answer {
                Ok((status, headers, _)) => {
                    debug!(method = %request.method, url = without_signature(&request.url), status = status.as_u16(), ms = begun.elapsed().as_millis());
                    pause_after(*status, headers, repeatable, &mut backoff)
                }
                Err(failed) => {
                    debug!(method = %request.method, url = without_signature(&request.url), failed = %failed.failure.message);
                    // A request that was not sent can always be repeated.
                    (!failed.is_final && (repeatable || !failed.sent)).then(|| backoff.pause(None))
                }
            };
            match pause.filter(|pause| !last && held_back.saturating_add(*pause) <= HELD_BACK) {
                Some(pause) => {
                    held_back += pause;
                    sleep(pause).await;
                }
                None => return answer.map_err(|failed| failed.failure),
            }
            attempt += 1;
        }
    }

    async fn send_once(
        &self,
        request: &ServiceRequest<'_>,
        token: Option<&SecretString>,
    ) -> Result<(StatusCode, HeaderMap, Vec<u8>), Failed> {
        let mut builder = self
            .http
            .request(request.method.clone(), &request.url)
            .timeout(self.answer)
            .header("Accept", "application/json");
        if let Some(token) = token {
            builder = builder.header("X-Auth-Token", token.expose_secret());
        }
        for (name, value) in request.headers {
            builder = builder.header(*name, *value);
        }
        if let Some(body) = request.body {
            builder = builder.json(body);
        }
        let response = builder.send().await.map_err(|error| Failed {
            sent: !error.is_connect(),
            is_final: false,
            failure: unreachable(&request.url, &error),
        })?;
        read(&request.url, response, request.largest)
            .await
            .map_err(|failure| Failed {
                sent: true,
                is_final: failure.kind != BackendErrorKind::Unreachable,
                failure,
            })
    }

    /// Sends bytes once with a token.
    pub async fn put_bytes(
        &self,
        url: &str,
        token: &SecretString,
        (body, bytes): (impl AsyncRead + Send + Unpin + 'static, u64),
        headers: &[(&str, &str)],
    ) -> Result<(StatusCode, HeaderMap, Vec<u8>), BackendError> {
        let mut request = self.http.put(url).header("X-Auth-Token", token.expose_secret());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = http_upload::send(request, body, bytes, self.uploads)
            .await
            .map_err(|error| match error {
                UploadError::File(error) => BackendError::new(BackendErrorKind::LocalFile, error.to_string()),
                UploadError::Http(error) => unreachable(url, &error),
                error => BackendError::new(BackendErrorKind::Timeout, format!("{}: {error}", host(url))),
            })?;
        read(url, response, http_limits::SMALL).await
    }
}

/// A request without a complete response.
struct Failed {
    /// The service may have performed it.
    sent: bool,
    /// Repeating it is useless: the response is too large or too slow.
    is_final: bool,
    failure: BackendError,
}

/// A URL without its signature, which is a secret.
fn without_signature(url: &str) -> &str {
    url.split("?temp_url_sig").next().unwrap_or(url)
}

/// The pause before the next attempt; `None`: the response is final.
fn pause_after(status: StatusCode, headers: &HeaderMap, repeatable: bool, backoff: &mut Backoff) -> Option<Duration> {
    match (status.as_u16(), asked_pause(status, headers)) {
        // The service has not started the operation.
        (_, Some(asked)) => Some(backoff.pause(Some(asked))),
        (429, None) => Some(backoff.pause(None)),
        (500 | 502 | 503 | 504, None) if repeatable => Some(backoff.pause(None)),
        _ => None,
    }
}

fn backoff() -> Backoff {
    Backoff::doubling(Duration::from_millis(500), Duration::from_secs(8))
}

/// Reads a response of at most `largest` bytes.
async fn read(url: &str, response: Response, largest: usize) -> Result<(StatusCode, HeaderMap, Vec<u8>), BackendError> {
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
fn unreachable(url: &str, error: &reqwest::Error) -> BackendError {
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
fn is_of_certificate(error: &reqwest::Error) -> bool {
    let why = innermost(error);
    why.contains("certificate") || why.contains("UnknownIssuer")
}

/// Scheme, host and port, because the path may contain a secret.
fn host(url: &str) -> &str {
    let from = url.find("://").map_or(0, |at| at + 3);
    url[from..].find('/').map_or(url, |at| &url[..from + at])
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::sync::Arc;

    use super::*;
    use crate::http_upload::slow_server::{BYTES, Behavior, LIMIT, LIMITS, run, start};

    #[test]
    fn an_upload_may_take_longer_than_any_other_request() {
        let mut transport = Transport::new(None).unwrap();
        (transport.answer, transport.uploads) = (LIMIT, LIMITS);
        let upload = |behavior| {
            let body = (Cursor::new(vec![7; BYTES]), BYTES as u64);
            run(transport.put_bytes(&start(behavior), &"token".into(), body, &[]))
        };
        assert_eq!(upload(Behavior::Slow).unwrap().0, 200);
        let failure = upload(Behavior::Stops).unwrap_err();
        assert_eq!(failure.kind, BackendErrorKind::Timeout);
        assert!(failure.message.contains("stopped reading"), "{}", failure.message);
        // Any other request has its own limit.
        let request = ServiceRequest {
            method: Method::GET,
            url: start(Behavior::Silent),
            body: None,
            headers: &[],
            largest: http_limits::SMALL,
        };
        let failed = run(transport.send_once(&request, None)).err().unwrap();
        assert_eq!(failed.failure.kind, BackendErrorKind::Timeout);
    }

    #[test]
    fn machines_trust_public_cas_and_that_of_cacert() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        std::fs::write(&ca, made.cert.pem()).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        run(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("https://localhost:{}/v2", listener.local_addr().unwrap().port());
            let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let _ = acceptor.accept(stream).await;
                }
            });
            assert!(!Transport::new(None).unwrap().machines_trust(&url).await.unwrap());
            assert!(Transport::new(Some(&ca)).unwrap().machines_trust(&url).await.unwrap());
            // A URL that does not respond counts as trusted.
            let unused = "https://localhost:1/v2";
            assert!(Transport::new(None).unwrap().machines_trust(unused).await.unwrap());
        });
    }

    #[test]
    fn a_requested_pause_is_kept_or_returned_with_the_error() {
        // Status, Retry-After, whether the request is repeatable; the shortest and the longest pause in ms.
        for (status, asked, repeatable, expected) in [
            (429, Some("3"), false, Some((3_000, 3_000))),
            (429, None, false, Some((250, 500))),
            (503, Some("40"), false, Some((40_000, 40_000))),
            (503, Some("0"), false, Some((250, 500))),
            (503, None, true, Some((250, 500))),
            (503, None, false, None),
            (500, None, true, Some((250, 500))),
            (500, Some("3"), false, None),
            (409, Some("3"), true, None),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let asked_of = |text: &str| (reqwest::header::RETRY_AFTER, text.parse().unwrap());
            let headers = HeaderMap::from_iter(asked.map(asked_of));
            let why = format!("{status} {asked:?} {repeatable}");
            match (pause_after(status, &headers, repeatable, &mut backoff()), expected) {
                (Some(pause), Some((least, most))) => {
                    let bounds = Duration::from_millis(least)..=Duration::from_millis(most);
                    assert!(bounds.contains(&pause), "{why}: {pause:?}");
                }
                (pause, expected) => assert_eq!(pause.is_some(), expected.is_some(), "{why}"),
            }
            let error = checked(status, &headers, Vec::new()).unwrap_err();
            let has_pause = matches!(status.as_u16(), 429 | 503).then_some(asked).flatten();
            let expected_pause = has_pause.map(|text| Duration::from_secs(text.parse().unwrap()));
            assert_eq!(error.pause, expected_pause, "{why}");
        }
    }
}
