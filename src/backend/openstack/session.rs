//! One signed-in session: the token and its renewal, requests and retries.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use reqwest::header::HeaderMap;
use reqwest::{Body, Certificate, Client, Method, StatusCode, redirect};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::answers::{checked, parse, read, unreachable};
use super::auth::{Access, Service, Sources};
use super::wire;
use crate::backend::BackendErrorKind;
use crate::backend::failure::Failure;
use crate::backend::plain_http::is_plain_http;
use crate::backoff::{Backoff, asked_pause};
use crate::cluster::OpenStackConfig;
use crate::http_limits::{self, innermost};

/// Tokens live an hour by default; what starts now must end before its token does.
const EARLY: Duration = Duration::from_secs(300);
/// Pages of one list, and the bytes of all of them. A page has 1000 entries (openstack/nova: `nova/conf/api.py`,
/// `max_limit`), in Glance 25 (openstack/glance: `glance/common/config.py`, `limit_param_default`).
const PAGES: usize = 1000;
const LIST: usize = 2 * http_limits::LARGEST;
const LIST_TIME: Duration = Duration::from_secs(300);
/// How often a request is made before its fault is told.
const TRIES: u32 = 5;
/// The longest that one request is held back for pauses that services ask for. How long the user's patience lasts is not
/// known here: who waits longer is told the pause.
const HELD_BACK: Duration = Duration::from_secs(30);
/// The one microversion of Nova that is spoken: Stein's, of 2019. Tags at creation need 2.52, named policies of server
/// groups 2.64, types of volumes that Nova makes 2.67.
pub(super) const COMPUTE_VERSION: &str = "2.67";

/// What Keystone gave us.
#[derive(Clone)]
pub(super) struct Token {
    pub value: Arc<SecretString>,
    pub expires: Timestamp,
    pub project: Arc<str>,
    catalog: Arc<Value>,
}

/// A cloud, and a token that is renewed when its time comes.
pub(super) struct Session {
    http: Client,
    access: Access,
    token: Mutex<Option<Token>>,
    /// Services that were warned of, one bit each.
    warned: AtomicU8,
    /// PEM of who signs the services' certificates; machines need it too.
    pub ca: Option<String>,
}

/// One request.
struct Ask<'a> {
    method: Method,
    url: String,
    body: Option<&'a Value>,
    headers: &'a [(&'a str, &'a str)],
    /// Bytes of the largest answer.
    largest: usize,
}

impl Session {
    /// Reads how to sign in; the cloud is asked for nothing yet.
    pub fn open(config: &OpenStackConfig) -> Result<Self, Failure> {
        let sources = Sources::here();
        Self::with(Access::read(
            config.cloud.as_deref(),
            config.region.as_deref(),
            &sources,
        )?)
    }

    fn with(access: Access) -> Result<Self, Failure> {
        let mut http = Client::builder()
            .connect_timeout(Duration::from_secs(15))
            .read_timeout(Duration::from_secs(120))
            // A redirected request would carry the token along.
            .redirect(redirect::Policy::none());
        let ca = access.ca.as_deref().map(read_ca).transpose()?;
        if let Some((_, certificates)) = &ca {
            http = http.tls_certs_only(certificates.iter().cloned());
        }
        let http = http
            .build()
            .map_err(|error| Failure::new(BackendErrorKind::Unreachable, innermost(&error)))?;
        if is_plain_http(&access.auth_url) {
            let (name, url) = (&access.name, &access.auth_url);
            warn!("auth_url {url} of {name} is http: anybody on the way can read the password and change the answers");
        }
        Ok(Self {
            http,
            access,
            token: Mutex::new(None),
            warned: AtomicU8::new(0),
            ca: ca.map(|(pem, _)| pem),
        })
    }

    /// The cloud in a user's words.
    pub fn name(&self) -> &str {
        &self.access.name
    }

    pub fn auth_url(&self) -> &str {
        &self.access.auth_url
    }

    /// The `Date` of an answer, whatever else it says.
    pub async fn date(&self) -> Result<Option<String>, Failure> {
        let ask = Ask {
            method: Method::GET,
            url: self.access.auth_url.clone(),
            body: None,
            headers: &[],
            largest: http_limits::SMALL,
        };
        let (_, headers, _) = self.send(&ask, None, true).await?;
        Ok(headers
            .get("date")
            .and_then(|date| date.to_str().ok())
            .map(str::to_owned))
    }

    /// A token that lives for some minutes yet.
    pub async fn token(&self) -> Result<Token, Failure> {
        let mut held = self.token.lock().await;
        if let Some(token) = held.as_ref().filter(|token| lives(token)) {
            return Ok(token.clone());
        }
        let token = self.sign_in().await?;
        *held = Some(token.clone());
        Ok(token)
    }

    /// Forgets a token that a service refused, unless somebody else has renewed it already.
    async fn forget(&self, refused: &Token) {
        let mut held = self.token.lock().await;
        if held
            .as_ref()
            .is_some_and(|token| Arc::ptr_eq(&token.value, &refused.value))
        {
            *held = None;
        }
    }

    async fn sign_in(&self) -> Result<Token, Failure> {
        let url = format!("{}/auth/tokens", self.access.auth_url);
        let body = self.access.sign_in();
        let ask = Ask {
            method: Method::POST,
            url,
            body: Some(&body),
            headers: &[],
            largest: http_limits::SMALL,
        };
        // Signing in twice harms nobody.
        let (status, headers, body) = self.send(&ask, None, true).await?;
        if status == StatusCode::UNAUTHORIZED {
            let failure = Failure::new(
                BackendErrorKind::Denied,
                format!("{} does not let us in: {}", self.access.name, wire::fault(&body)),
            );
            return Err(failure.hint(format!(
                "check user, project and password of {}; application credentials and tokens expire",
                self.access.name
            )));
        }
        let body = checked(status, &headers, body)?;
        let odd = |what: &str| {
            let words = format!("the answer of {} has no {what}", self.access.auth_url);
            Failure::new(BackendErrorKind::Rejected, words).hint("auth_url must lead to Keystone, version 3")
        };
        let value = headers
            .get("x-subject-token")
            .and_then(|value| value.to_str().ok())
            .ok_or_else(|| odd("token"))?;
        let token = parse(&body)?;
        let token = &token["token"];
        let expires = token["expires_at"].as_str().and_then(|text| text.parse().ok());
        let project = token["project"]["id"].as_str().ok_or_else(|| odd("project"))?;
        Ok(Token {
            value: Arc::new(SecretString::from(value)),
            expires: expires.ok_or_else(|| odd("time of expiry"))?,
            project: project.into(),
            catalog: Arc::new(token["catalog"].clone()),
        })
    }

    /// A token with all of its time before it.
    pub async fn new_token(&self) -> Result<Token, Failure> {
        let mut held = self.token.lock().await;
        let token = self.sign_in().await?;
        *held = Some(token.clone());
        Ok(token)
    }

    /// Whether the catalog has the service.
    pub async fn has(&self, service: Service) -> Result<bool, Failure> {
        let token = self.token().await?;
        let interface = &self.access.interface;
        Ok(self.access.endpoint(service, interface, &token.catalog).is_some())
    }

    /// The address of a service, without a slash at its end.
    pub async fn endpoint(&self, service: Service) -> Result<String, Failure> {
        self.endpoint_of(service, &self.access.interface).await
    }

    /// The address of a service as machines reach it.
    pub async fn public_endpoint(&self, service: Service) -> Result<String, Failure> {
        self.endpoint_of(service, "public").await
    }

    async fn endpoint_of(&self, service: Service, interface: &str) -> Result<String, Failure> {
        let token = self.token().await?;
        let url = self
            .access
            .endpoint(service, interface, &token.catalog)
            .ok_or_else(|| {
                let region = match &self.access.region {
                    Some(region) => format!(" in region {region}"),
                    None => String::new(),
                };
                let (name, service) = (&self.access.name, service.name());
                let words = format!("the catalog of {name} has no {interface} endpoint of {service}{region}");
                Failure::new(BackendErrorKind::NotFound, words)
                    .hint("`openstack catalog list` shows what there is; see region_name and interface, or os_region")
            })?;
        let bit = 1 << service as u8;
        if is_plain_http(&url) && self.warned.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            let (name, service) = (&self.access.name, service.name());
            warn!(
                "the endpoint {url} of {service} in {name} is http: anybody on the way can read the token and change the \
                 answers"
            );
        }
        Ok(url)
    }

    pub async fn get(&self, service: Service, path: &str) -> Result<Value, Failure> {
        parse(&self.call(Method::GET, service, path, None).await?.1)
    }

    /// As `get`, where what is absent is no fault.
    pub async fn find(&self, service: Service, path: &str) -> Result<Option<Value>, Failure> {
        match self.get(service, path).await {
            Ok(value) => Ok(Some(value)),
            Err(failure) if failure.code == Some(404) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// All entries of a list, page after page.
    ///
    /// A link to the next page is asked for its marker only: our own request is made again with that marker. The token
    /// goes nowhere else, whatever host a link names.
    pub async fn list(&self, service: Service, path: &str, key: &str) -> Result<Vec<Value>, Failure> {
        let refused = |why: String| {
            let words = format!("the list of {key} of {}: {why}", service.name());
            Failure::new(BackendErrorKind::Rejected, words)
        };
        let (mut all, mut markers) = (Vec::new(), Vec::<String>::new());
        let begun = Instant::now();
        let (mut bytes, mut values) = (0, 0);
        loop {
            let page = match markers.last() {
                None => path.to_owned(),
                Some(marker) => wire::with_marker(path, marker),
            };
            let body = self.call(Method::GET, service, &page, None).await?.1;
            bytes += body.len();
            values += http_limits::values(&body);
            if bytes > LIST || values > http_limits::VALUES {
                return Err(refused("it is too long".to_owned()));
            }
            if begun.elapsed() > LIST_TIME {
                return Err(refused(format!("it is not complete after {} s", LIST_TIME.as_secs())));
            }
            let mut page = parse(&body)?;
            let marker = wire::next_marker(&page, key).map_err(refused)?;
            let Some(Value::Array(entries)) = page.get_mut(key).map(Value::take) else {
                let words = format!("the answer to {path} has no {key}");
                return Err(Failure::new(BackendErrorKind::Rejected, words));
            };
            let is_last = entries.is_empty();
            all.extend(entries);
            match marker.filter(|_| !is_last) {
                None => return Ok(all),
                Some(marker) if markers.contains(&marker) => {
                    return Err(refused("its pages go round in a circle".to_owned()));
                }
                Some(_) if markers.len() + 1 == PAGES => {
                    return Err(refused(format!("it has more than {PAGES} pages")));
                }
                Some(marker) => markers.push(marker),
            }
        }
    }

    pub async fn post(&self, service: Service, path: &str, body: &Value) -> Result<Value, Failure> {
        parse(&self.call(Method::POST, service, path, Some(body)).await?.1)
    }

    pub async fn put(&self, service: Service, path: &str, body: &Value) -> Result<Value, Failure> {
        parse(&self.call(Method::PUT, service, path, Some(body)).await?.1)
    }

    /// A `PUT` whose path says it all; services refuse a body there.
    pub async fn put_path(&self, service: Service, path: &str) -> Result<(), Failure> {
        self.call(Method::PUT, service, path, None).await.map(drop)
    }

    /// Whether something was deleted; what is absent is no fault.
    pub async fn delete(&self, service: Service, path: &str) -> Result<bool, Failure> {
        match self.call(Method::DELETE, service, path, None).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.code == Some(404) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Sends bytes, with headers of its own.
    pub async fn send_bytes(
        &self,
        service: Service,
        path: &str,
        body: impl Into<Body>,
        headers: &[(&str, &str)],
    ) -> Result<(), Failure> {
        let url = format!("{}{path}", self.endpoint(service).await?);
        let token = self.token().await?;
        let mut request = self.http.put(&url).header("X-Auth-Token", token.value.expose_secret());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request
            .body(body)
            .send()
            .await
            .map_err(|error| unreachable(&url, &error))?;
        let (status, headers, body) = read(&url, response, http_limits::SMALL).await?;
        checked(status, &headers, body).map(drop)
    }

    /// Whether an address gives something to whoever asks, as a machine does; `url` may hold a signature.
    pub async fn answers_anyone(&self, url: &str) -> Result<bool, Failure> {
        let ask = Ask {
            method: Method::HEAD,
            url: url.to_owned(),
            body: None,
            headers: &[],
            largest: http_limits::SMALL,
        };
        Ok(self.send(&ask, None, true).await?.0.is_success())
    }

    async fn call(
        &self,
        method: Method,
        service: Service,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(HeaderMap, Vec<u8>), Failure> {
        let url = format!("{}{path}", self.endpoint(service).await?);
        let version: &[(&str, &str)] = match service {
            Service::Compute => &[("X-OpenStack-Nova-API-Version", COMPUTE_VERSION)],
            _ => &[],
        };
        let repeatable = method != Method::POST;
        let ask = Ask {
            method,
            url,
            body,
            headers: version,
            largest: http_limits::LARGEST,
        };
        for may_renew in [true, false] {
            let token = self.token().await?;
            let (status, headers, body) = self.send(&ask, Some(&token), repeatable).await?;
            if status == StatusCode::UNAUTHORIZED && may_renew {
                self.forget(&token).await;
                continue;
            }
            let body = checked(status, &headers, body)?;
            return Ok((headers, body));
        }
        Err(Failure::new(BackendErrorKind::Denied, "a new token was refused too"))
    }

    /// Makes a request, again where that is safe: after an answer that asks for a pause, and otherwise when the
    /// request may be repeated.
    async fn send(
        &self,
        ask: &Ask<'_>,
        token: Option<&Token>,
        repeatable: bool,
    ) -> Result<(StatusCode, HeaderMap, Vec<u8>), Failure> {
        let (mut attempt, mut held_back) = (1, Duration::ZERO);
        let mut backoff = backoff();
        loop {
            let last = attempt == TRIES;
            let begun = Instant::now();
            let answer = self.send_once(ask, token).await;
            let pause = match &answer {
                Ok((status, headers, _)) => {
                    debug!(method = %ask.method, url = unsigned(&ask.url), status = status.as_u16(), ms = begun.elapsed().as_millis());
                    pause_after(*status, headers, repeatable, &mut backoff)
                }
                Err(failed) => {
                    debug!(method = %ask.method, url = unsigned(&ask.url), failed = %failed.failure.words);
                    // What was not sent at all can be sent again.
                    (!failed.lasts && (repeatable || !failed.sent)).then(|| backoff.pause(None))
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
        ask: &Ask<'_>,
        token: Option<&Token>,
    ) -> Result<(StatusCode, HeaderMap, Vec<u8>), Failed> {
        let mut request = self
            .http
            .request(ask.method.clone(), &ask.url)
            .header("Accept", "application/json");
        if let Some(token) = token {
            request = request.header("X-Auth-Token", token.value.expose_secret());
        }
        for (name, value) in ask.headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = ask.body {
            request = request.json(body);
        }
        let response = request.send().await.map_err(|error| Failed {
            sent: !error.is_connect(),
            lasts: false,
            failure: unreachable(&ask.url, &error),
        })?;
        read(&ask.url, response, ask.largest).await.map_err(|failure| Failed {
            sent: true,
            lasts: failure.kind != BackendErrorKind::Unreachable,
            failure,
        })
    }
}

/// A request without an answer.
struct Failed {
    /// The service may have done it.
    sent: bool,
    /// The answer is too large or too slow, and would be so again.
    lasts: bool,
    failure: Failure,
}

/// An address without the signature that is as good as a password.
fn unsigned(url: &str) -> &str {
    url.split("?temp_url_sig").next().unwrap_or(url)
}

fn lives(token: &Token) -> bool {
    let left = token.expires.duration_since(Timestamp::now());
    left.as_secs() > i64::try_from(EARLY.as_secs()).unwrap_or(i64::MAX)
}

/// How long to wait before another try; `None`: the answer stands.
fn pause_after(status: StatusCode, headers: &HeaderMap, repeatable: bool, backoff: &mut Backoff) -> Option<Duration> {
    match (status.as_u16(), asked_pause(status, headers)) {
        // The service has not begun.
        (_, Some(asked)) => Some(backoff.pause(Some(asked))),
        (429, None) => Some(backoff.pause(None)),
        (500 | 502 | 503 | 504, None) if repeatable => Some(backoff.pause(None)),
        _ => None,
    }
}

fn backoff() -> Backoff {
    Backoff::doubling(Duration::from_millis(500), Duration::from_secs(8))
}

fn read_ca(path: &Path) -> Result<(String, Vec<Certificate>), Failure> {
    let unusable = |why: String| {
        Failure::new(BackendErrorKind::Denied, format!("cacert {}: {why}", path.display()))
            .hint("it is the PEM file of who signed the services' certificates")
    };
    let pem = std::fs::read_to_string(path).map_err(|error| unusable(error.kind().to_string()))?;
    match Certificate::from_pem_bundle(pem.as_bytes()) {
        Ok(certificates) if !certificates.is_empty() => Ok((pem, certificates)),
        _ => Err(unusable("it holds no certificate".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_kept_here_or_told_to_who_has_more_patience() {
        // Status, Retry-After, whether the request may be repeated; the least and the longest pause, ms.
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
            let error = checked(status, &headers, Vec::new()).unwrap_err().during("look");
            let is_told = matches!(status.as_u16(), 429 | 503).then_some(asked).flatten();
            let told = is_told.map(|text| Duration::from_secs(text.parse().unwrap()));
            assert_eq!(error.pause, told, "{why}");
        }
    }
}
