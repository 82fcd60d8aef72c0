//! One session with an engine: its token, requests and their repetition, and faults in words.
//!
//! Facts: oVirt/ovirt-engine: OAuthTokenServlet, EnforceAuthFilter, ErrorMessageHelper; oVirt/ovirt-engine-sdk.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use reqwest::header::{ACCEPT, ACCEPT_LANGUAGE, CONTENT_TYPE, DATE};
use reqwest::{Certificate, Client, Method, RequestBuilder, StatusCode, redirect};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::answers::{is_for_administrators, is_locked, read, read_text, read_token};
use super::wire;
use crate::backend::BackendErrorKind;
use crate::backend::failure::Failure;
use crate::backend::filters::matching;
use crate::backoff::{Backoff, asked_pause, time_of};
use crate::cluster::OvirtConfig;
use crate::digest::sha256;
use crate::http_limits::{self, innermost};
use crate::xml::Element;

/// Where the password of a cluster that was deployed earlier may stand.
const PASSWORD_VARIABLE: &str = "OCPDEPLOY_OVIRT_PASSWORD";

/// How long something that is locked is asked again; copying a large disk locks it for minutes.
const LOCKED: Duration = Duration::from_secs(300);

pub(super) fn conflict<T>(words: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::new(BackendErrorKind::Conflict, words))
}

/// Absence as a value.
pub(super) fn if_there<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(failure) if failure.kind == BackendErrorKind::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// A conflict as no news, for what is looked at again anyway.
pub(super) fn if_free<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(failure) if failure.kind == BackendErrorKind::Conflict => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// What came back, whatever it says.
struct Answer {
    status: StatusCode,
    text: String,
    /// The pause before another try.
    asked: Option<Duration>,
    /// When the engine answered, by its own clock.
    date: Option<SystemTime>,
}

#[derive(Debug)]
pub(super) struct Session {
    http: Client,
    /// Without `/api`.
    url: String,
    user: String,
    password: SecretString,
    token: Mutex<Option<SecretString>>,
    /// Begins every correlation id; the engine's events name them.
    correlation: String,
    requests: AtomicU32,
    /// The user is no administrator, and is shown what is theirs when that is all that is asked for.
    filtered: AtomicBool,
}

impl Session {
    /// Reads CA and password; the engine is asked for nothing yet.
    pub fn new(config: &OvirtConfig) -> Result<Self, Failure> {
        let mut http = Client::builder()
            .connect_timeout(Duration::from_secs(15))
            .timeout(Duration::from_secs(180))
            // A redirected request would carry the token along.
            .redirect(redirect::Policy::none());
        if let Some(path) = &config.ca {
            let unusable = |why: String| {
                Failure::new(
                    BackendErrorKind::Rejected,
                    format!("ovirt_ca {}: {why}", path.display()),
                )
                .hint("it is the PEM file of the engine's CA")
            };
            let pem = fs_err::read(path).map_err(|error| unusable(error.kind().to_string()))?;
            let certificates =
                Certificate::from_pem_bundle(&pem).map_err(|_| unusable("it is no PEM file".to_owned()))?;
            if certificates.is_empty() {
                return Err(unusable("it holds no certificate".to_owned()));
            }
            http = http.tls_certs_only(certificates);
        }
        let http = http
            .build()
            .map_err(|error| Failure::new(BackendErrorKind::Unreachable, innermost(&error)))?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = format!("{} {}", std::process::id(), now.unwrap_or_default().as_nanos());
        Ok(Self {
            http,
            url: config.url.clone(),
            user: config.user.clone(),
            password: password(config)?,
            token: Mutex::new(None),
            correlation: format!("ocpdeploy-{}", &sha256(seed)[..8]),
            requests: AtomicU32::new(0),
            filtered: AtomicBool::new(false),
        })
    }

    /// For image data, which goes past the engine.
    pub fn http(&self) -> &Client {
        &self.http
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether the engine has shown that this user is no administrator.
    pub fn is_filtered(&self) -> bool {
        self.filtered.load(Ordering::Relaxed)
    }

    /// Reads an entity or a collection.
    pub async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Element, Failure> {
        match self.send(&Method::GET, path, query, None).await {
            // Nothing was changed, so that a broken line may be tried again; not where a pause was asked for.
            Err(failure) if failure.kind == BackendErrorKind::Unreachable && failure.pause.is_none() => {
                self.send(&Method::GET, path, query, None).await
            }
            // Once: what is refused then is for administrators alone.
            Err(failure) if is_for_administrators(&failure.message) && !self.is_filtered() => {
                tracing::debug!("{} is no administrator", self.user);
                self.filtered.store(true, Ordering::Relaxed);
                self.send(&Method::GET, path, query, None).await
            }
            answer => answer,
        }
    }

    /// Entities that a search finds; letters count as they are. What the search says is compared here again.
    pub async fn search(
        &self,
        collection: &str,
        search: &str,
        follow: &str,
        is_asked_for: impl Fn(&Element) -> bool,
    ) -> Result<Vec<Element>, Failure> {
        let mut query = vec![("case_sensitive", "true"), ("search", search)];
        if !follow.is_empty() {
            query.push(("follow", follow));
        }
        let mut listed = self.get(collection, &query).await?.into_children();
        if self.is_filtered() {
            // Ordinary users are shown all that is theirs, whatever they search for: nothing to warn of.
            listed.retain(is_asked_for);
            return Ok(listed);
        }
        let request = format!("{collection}?search={search}");
        Ok(matching(&self.url, &request, listed, is_asked_for))
    }

    /// As `search`, for entities with exactly this name.
    pub async fn named(&self, collection: &str, name: &str) -> Result<Vec<Element>, Failure> {
        let is_named = |entity: &Element| entity.text_of("name") == Some(name);
        self.search(collection, &wire::named(name), "", is_named).await
    }

    pub async fn post(&self, path: &str, query: &[(&str, &str)], body: &Element) -> Result<Element, Failure> {
        self.change(&Method::POST, path, query, Some(body)).await
    }

    pub async fn put(&self, path: &str, body: &Element) -> Result<Element, Failure> {
        self.change(&Method::PUT, path, &[], Some(body)).await
    }

    /// Absent is success.
    pub async fn delete(&self, path: &str) -> Result<bool, Failure> {
        Ok(if_there(self.change(&Method::DELETE, path, &[], None).await)?.is_some())
    }

    /// A change, asked for again while the engine says that something is locked.
    async fn change(
        &self,
        method: &Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Element>,
    ) -> Result<Element, Failure> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let correlation = format!("{}-{number}", self.correlation);
        let query: Vec<_> = query
            .iter()
            .copied()
            .chain([("correlation_id", &*correlation)])
            .collect();
        let begun = Instant::now();
        let mut backoff = pauses();
        loop {
            let answer = self.send(method, path, &query, body).await;
            match answer {
                Err(failure) if is_locked(&failure.message) && begun.elapsed() < LOCKED => {
                    tracing::debug!(path, "{}", failure.message);
                }
                Err(failure) => {
                    let message = format!("{} (correlation id {correlation})", failure.message);
                    return Err(Failure { message, ..failure });
                }
                Ok(answer) => return Ok(answer),
            }
            sleep(backoff.pause(None)).await;
        }
    }

    /// One request; a token that has run out is replaced once, for the engine did nothing then.
    async fn send(
        &self,
        method: &Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Element>,
    ) -> Result<Element, Failure> {
        let token = self.token().await?;
        let mut answer = self.send_as(&token, method, path, query, body).await?;
        if answer.status == StatusCode::UNAUTHORIZED {
            self.forget(&token).await;
            let token = self.token().await?;
            answer = self.send_as(&token, method, path, query, body).await?;
        }
        read(answer.status, &answer.text).map_err(|failure| failure.pause(answer.asked))
    }

    async fn send_as(
        &self,
        token: &SecretString,
        method: &Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Element>,
    ) -> Result<Answer, Failure> {
        let mut request = self
            .http
            .request(method.clone(), format!("{}/api{path}", self.url))
            .bearer_auth(token.expose_secret())
            .header("Version", "4")
            .header(ACCEPT, "application/xml")
            // Faults are sentences, and some are told apart by their words.
            .header(ACCEPT_LANGUAGE, "en-US")
            .header(CONTENT_TYPE, "application/xml")
            .query(query);
        if self.is_filtered() {
            request = request.header("Filter", "true");
        }
        if let Some(body) = body {
            request = request.body(body.to_string());
        }
        self.answer(request, http_limits::LARGEST).await
    }

    async fn answer(&self, request: RequestBuilder, largest: usize) -> Result<Answer, Failure> {
        let answer = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = answer.status();
        let asked = asked_pause(status, answer.headers());
        let date = answer.headers().get(DATE).and_then(|date| time_of(date.to_str().ok()?));
        let text = read_text(&self.url, answer, largest).await?;
        Ok(Answer {
            status,
            text,
            asked,
            date,
        })
    }

    /// The engine's time, by an answer of it.
    pub async fn date(&self) -> Result<Option<SystemTime>, Failure> {
        let token = self.token().await?;
        Ok(self.send_as(&token, &Method::GET, "", &[], None).await?.date)
    }

    /// The token, asked for when there is none.
    async fn token(&self) -> Result<SecretString, Failure> {
        let mut kept = self.token.lock().await;
        if let Some(token) = &*kept {
            return Ok(token.clone());
        }
        let form = [
            ("grant_type", "password"),
            ("scope", "ovirt-app-api"),
            ("username", self.user.as_str()),
            ("password", self.password.expose_secret()),
        ];
        let request = self
            .http
            .post(format!("{}/sso/oauth/token", self.url))
            .header(ACCEPT, "application/json")
            .form(&form);
        let answer = self.answer(request, http_limits::SMALL).await?;
        let token = read_token(answer.status, &answer.text).map_err(|failure| Failure {
            message: format!("{} as {}: {}", self.url, self.user, failure.message),
            pause: answer.asked,
            ..failure
        })?;
        *kept = Some(token.clone());
        Ok(token)
    }

    /// Another task may have replaced it already.
    async fn forget(&self, token: &SecretString) {
        let mut kept = self.token.lock().await;
        if kept
            .as_ref()
            .is_some_and(|kept| kept.expose_secret() == token.expose_secret())
        {
            *kept = None;
        }
    }

    /// Says that the engine did not answer, without the URL's query.
    pub fn unreachable(&self, error: &reqwest::Error) -> Failure {
        unreachable(&self.url, error)
    }
}

/// Says that something at `url` did not answer.
pub(super) fn unreachable(url: &str, error: &reqwest::Error) -> Failure {
    let words = innermost(error);
    let kind = match error.is_timeout() && !error.is_connect() {
        true => BackendErrorKind::Timeout,
        false => BackendErrorKind::Unreachable,
    };
    let failure = Failure::new(kind, format!("{url}: {words}"));
    if words.contains("certificate") {
        return failure.hint("set ovirt_ca to the engine's CA, and use the name that is in its certificate");
    }
    failure
}

/// The password as given now, or where it was when the cluster was deployed.
fn password(config: &OvirtConfig) -> Result<SecretString, Failure> {
    if let Some(password) = &config.password.0 {
        return Ok(password.clone());
    }
    if let Ok(password) = std::env::var(PASSWORD_VARIABLE) {
        return Ok(password.into());
    }
    let denied = |words: String| {
        Failure::new(BackendErrorKind::Denied, words)
            .hint("set OCPDEPLOY_OVIRT_PASSWORD, or name the env file with --env")
    };
    let Some(path) = &config.password_file else {
        return Err(denied(format!("no password for {} is known", config.user)));
    };
    let text = fs_err::read_to_string(path).map_err(|error| denied(error.to_string()))?;
    Ok(text.trim_end_matches(['\n', '\r']).into())
}

/// Pauses between looks: short at first, for most things are quick.
pub(super) fn pauses() -> Backoff {
    Backoff::doubling(Duration::from_millis(125), Duration::from_secs(3))
}

/// Looks until `look` finds what it waits for.
pub(super) async fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let begun = Instant::now();
    let mut backoff = pauses();
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if begun.elapsed() > limit {
            let words = format!("{what} after {} s", limit.as_secs());
            return Err(Failure::new(BackendErrorKind::Timeout, words));
        }
        sleep(backoff.pause(None)).await;
    }
}
