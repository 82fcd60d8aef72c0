//! One session with an engine: its token, its requests and their repetition.
//!
//! Facts: oVirt/ovirt-engine: OAuthTokenServlet, EnforceAuthFilter, ErrorMessageHelper; oVirt/ovirt-engine-sdk.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use reqwest::header::{ACCEPT, ACCEPT_LANGUAGE, CONTENT_TYPE, DATE};
use reqwest::{Certificate, Client, Method, RequestBuilder, StatusCode, redirect};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{Mutex, OnceCell};
use tokio::time::{Instant, sleep};

use super::answers::{MOST_WORDS, is_for_administrators, is_locked, read, read_text, read_token};
use super::wire;
use crate::backend::error::if_exists;
use crate::backend::filters::matching;
use crate::backend::{BackendError, BackendErrorKind, ca_file};
use crate::backoff::{Backoff, asked_pause, time_of};
use crate::cluster::OvirtConfig;
use crate::digest::sha256;
use crate::http_limits::{self, innermost};
use crate::limited_file;
use crate::xml::Element;

/// The variable with the password for a cluster that was deployed earlier.
const PASSWORD_VARIABLE: &str = "OCPDEPLOY_OVIRT_PASSWORD";

/// How long a request is repeated while its object is locked. Copying a large disk locks it for minutes.
const LOCKED: Duration = Duration::from_secs(300);

/// The limit of one request with its response, except uploads.
const ANSWER: Duration = Duration::from_secs(180);

/// Largest number of the engine's events that an error quotes.
const MOST_EVENTS: usize = 3;

/// How long the end of a session may take.
const LOGOUT: Duration = Duration::from_secs(3);

pub(super) fn conflict<T>(words: impl Into<String>) -> Result<T, BackendError> {
    Err(BackendError::new(BackendErrorKind::Conflict, words))
}

/// Whether the object's present state does not allow a request: HTTP 409 except locks and limits. The object may
/// already be in the requested state, because another run sent the same request, or its response was lost.
pub(super) fn is_conflict(failure: &BackendError) -> bool {
    let is_409 = failure.code == Some(StatusCode::CONFLICT.as_u16().into());
    failure.kind == BackendErrorKind::Conflict || (failure.kind == BackendErrorKind::Rejected && is_409)
}

/// `None` for a conflict, for callers that read the object again anyway.
pub(super) fn if_free<T>(answer: Result<T, BackendError>) -> Result<Option<T>, BackendError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(failure) if is_conflict(&failure) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// What a request created, or after a conflict what exists. If nothing exists, the engine had another reason.
pub(super) async fn or_existing<T>(
    created: Result<T, BackendError>,
    find: impl AsyncFnOnce() -> Result<Option<T>, BackendError>,
) -> Result<T, BackendError> {
    match created {
        Err(refused) if is_conflict(&refused) => find().await?.ok_or(refused),
        created => created,
    }
}

/// Any HTTP response.
struct Answer {
    status: StatusCode,
    text: String,
    /// The pause that it requests.
    asked: Option<Duration>,
    /// The engine's own time.
    date: Option<SystemTime>,
}

#[derive(Debug)]
pub(super) struct OvirtSession {
    http: Client,
    /// The only CAs to trust; the system's CAs without them.
    certificates: Option<Vec<Certificate>>,
    /// Without `/api`.
    url: String,
    user: String,
    password: SecretString,
    token: Mutex<Option<SecretString>>,
    /// Prefix of every correlation id; the engine's events contain them.
    correlation: String,
    requests: AtomicU32,
    /// Whether the user is not an administrator: see `is_filtered`.
    filtered: OnceCell<bool>,
}

impl OvirtSession {
    /// Reads CA and password. Sends no request yet.
    pub fn new(config: &OvirtConfig) -> Result<Self, BackendError> {
        let certificates = config.ca.as_ref();
        let certificates = certificates.map(|path| ca_file::read("ovirt_ca", path, "the engine's certificate"));
        let certificates = certificates.transpose()?.map(|(_, certificates)| certificates);
        let http = client(certificates.clone())
            .map_err(|error| BackendError::new(BackendErrorKind::Unreachable, innermost(&error)))?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = format!("{} {}", std::process::id(), now.unwrap_or_default().as_nanos());
        Ok(Self {
            http,
            certificates,
            url: config.url.clone(),
            user: config.user.clone(),
            password: password(config)?,
            token: Mutex::new(None),
            correlation: format!("ocpdeploy-{}", &sha256(seed)[..8]),
            requests: AtomicU32::new(0),
            filtered: OnceCell::new(),
        })
    }

    /// For image data, which is sent to a host.
    pub fn http(&self) -> &Client {
        &self.http
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether this user is not an administrator, and sees owned objects only. Known after the first request.
    pub fn is_filtered(&self) -> bool {
        self.filtered.get().copied().unwrap_or_default()
    }

    /// Sends a query that only administrators may send. Since 4.2 requests of ordinary users are filtered by default
    /// (oVirt/ovirt-engine: `ENGINE_API_FILTER_BY_DEFAULT`), so other requests do not show who is an administrator. A
    /// followed link that a user may not read is HTTP 500 (`LinkFollower.fetch`).
    async fn probe(&self) -> Result<bool, BackendError> {
        match self.request(&Method::GET, "/tags", &[], None).await {
            Err(failure) if is_for_administrators(&failure.message) => {
                tracing::debug!("{} is not an administrator", self.user);
                Ok(true)
            }
            answer => answer.map(|_| false),
        }
    }

    /// Reads an entity or a collection.
    pub async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Element, BackendError> {
        match self.send(&Method::GET, path, query, None).await {
            // Nothing was changed, so the request can be repeated, unless a pause was requested.
            Err(failure) if failure.kind == BackendErrorKind::Unreachable && failure.pause.is_none() => {
                self.send(&Method::GET, path, query, None).await
            }
            answer => answer,
        }
    }

    /// The first entity of a list that matches.
    pub async fn find(
        &self,
        path: &str,
        is_wanted: impl Fn(&Element) -> bool,
    ) -> Result<Option<Element>, BackendError> {
        Ok(self.get(path, &[]).await?.into_children().into_iter().find(is_wanted))
    }

    /// Entities that a case-sensitive search finds. Each is compared here again.
    pub async fn search(
        &self,
        collection: &str,
        search: &str,
        follow: &str,
        is_asked_for: impl Fn(&Element) -> bool,
    ) -> Result<Vec<Element>, BackendError> {
        let mut query = vec![("case_sensitive", "true"), ("search", search)];
        if !follow.is_empty() {
            query.push(("follow", follow));
        }
        let listed = self.get(collection, &query).await?.into_children();
        let request = format!("{collection}?search={search}");
        Ok(matching(&self.url, &request, listed, is_asked_for))
    }

    /// As `search`, for entities with exactly this name.
    pub async fn named(&self, collection: &str, name: &str) -> Result<Vec<Element>, BackendError> {
        let is_named = |entity: &Element| entity.text_of("name") == Some(name);
        self.search(collection, &wire::named(name), "", is_named).await
    }

    /// The error of an operation that failed after its response, with the errors that the engine has recorded in this run.
    ///
    /// Without them nothing says why: the object is removed or illegal (oVirt/ovirt-engine: `CommandBase.endWithFailure`).
    pub async fn failed(&self, what: &str) -> BackendError {
        let search = format!("correlation_id={}* and severity=error", self.correlation);
        let is_error_of_run = |event: &Element| {
            let correlation = event.text_of("correlation_id").unwrap_or_default();
            event.text_of("severity") == Some("error") && correlation.starts_with(&self.correlation)
        };
        // The failure itself is more important than a failure of this query.
        let events = self
            .search("/events", &search, "", is_error_of_run)
            .await
            .unwrap_or_default();
        let words = events.iter().filter_map(|event| event.text_of("description"));
        let why = words.take(MOST_EVENTS).collect::<Vec<_>>().join("; ");
        let why = match why.is_empty() {
            true => String::new(),
            false => format!("; the engine recorded: {}", http_limits::words(&why, MOST_WORDS)),
        };
        let words = format!("{what}: an operation failed after the engine had accepted it{why}");
        BackendError::new(BackendErrorKind::Rejected, words)
            .hint("the engine's events and its hosts' logs contain the reason: fix it, and run the same command again")
    }

    pub async fn post(&self, path: &str, query: &[(&str, &str)], body: &Element) -> Result<Element, BackendError> {
        self.change(&Method::POST, path, query, Some(body)).await
    }

    pub async fn put(&self, path: &str, body: &Element) -> Result<Element, BackendError> {
        self.change(&Method::PUT, path, &[], Some(body)).await
    }

    /// Whether the object existed.
    pub async fn delete(&self, path: &str) -> Result<bool, BackendError> {
        Ok(if_exists(self.change(&Method::DELETE, path, &[], None).await)?.is_some())
    }

    /// A change, repeated while its object is locked.
    async fn change(
        &self,
        method: &Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Element>,
    ) -> Result<Element, BackendError> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let correlation = format!("{}-{number}", self.correlation);
        let query: Vec<_> = query
            .iter()
            .copied()
            .chain([("correlation_id", &*correlation)])
            .collect();
        let begun = Instant::now();
        let mut backoff = pauses();
        let mut said = None;
        loop {
            let answer = self.send(method, path, &query, body).await;
            match answer {
                Err(failure) if is_locked(&failure.message) && begun.elapsed() < LOCKED => {
                    if said.as_ref() != Some(&failure.message) {
                        let limit = LOCKED.as_secs();
                        tracing::info!("the request is repeated for up to {limit} s: {}", failure.message);
                    }
                    said = Some(failure.message);
                }
                Err(failure) => {
                    let message = format!("{} (correlation id {correlation})", failure.message);
                    return Err(BackendError { message, ..failure });
                }
                Ok(answer) => return Ok(answer),
            }
            sleep(backoff.pause(None)).await;
        }
    }

    /// Sends one request, after determining whether this user is an administrator.
    async fn send(
        &self,
        method: &Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Element>,
    ) -> Result<Element, BackendError> {
        self.filtered.get_or_try_init(|| self.probe()).await?;
        self.request(method, path, query, body).await
    }

    /// Sends one request. After an expired token, for which the engine does nothing, it is sent again with a new one.
    async fn request(
        &self,
        method: &Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Element>,
    ) -> Result<Element, BackendError> {
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
    ) -> Result<Answer, BackendError> {
        let mut request = self
            .http
            .request(method.clone(), format!("{}/api{path}", self.url))
            .bearer_auth(token.expose_secret())
            .header("Version", "4")
            .header(ACCEPT, "application/xml")
            // Some rejections are recognized by their English text.
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

    async fn answer(&self, request: RequestBuilder, largest: usize) -> Result<Answer, BackendError> {
        let sent = request.timeout(ANSWER).send().await;
        let answer = sent.map_err(|error| self.unreachable(&error))?;
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

    /// The engine's time, from the header of a response.
    pub async fn date(&self) -> Result<Option<SystemTime>, BackendError> {
        let token = self.token().await?;
        Ok(self.send_as(&token, &Method::GET, "", &[], None).await?.date)
    }

    /// The token, requested if there is none.
    async fn token(&self) -> Result<SecretString, BackendError> {
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
        let token = read_token(answer.status, &answer.text).map_err(|failure| BackendError {
            message: format!("{} as {}: {}", self.url, self.user, failure.message),
            pause: answer.asked,
            ..failure
        })?;
        *kept = Some(token.clone());
        Ok(token)
    }

    /// Discards a token, unless another task has already replaced it.
    async fn forget(&self, token: &SecretString) {
        let mut kept = self.token.lock().await;
        if kept
            .as_ref()
            .is_some_and(|kept| kept.expose_secret() == token.expose_secret())
        {
            *kept = None;
        }
    }

    /// The error if the engine did not respond, without the query of the URL.
    pub fn unreachable(&self, error: &reqwest::Error) -> BackendError {
        unreachable(&self.url, error)
    }
}

/// Ends the session. Otherwise it counts against the engine's limit for 30 minutes (`UserSessionTimeOutInterval`).
impl Drop for OvirtSession {
    fn drop(&mut self) {
        let Some(token) = self.token.get_mut().take() else {
            return;
        };
        let url = format!("{}/services/sso-logout", self.url);
        let certificates = self.certificates.take();
        // Connections of this session's client belong to a runtime that may have ended.
        let logout = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .ok()?;
            let form = [("scope", "ovirt-app-api"), ("token", token.expose_secret())];
            let request = client(certificates)
                .ok()?
                .post(url)
                .timeout(LOGOUT)
                .header(ACCEPT, "application/json")
                .form(&form);
            // The request's timeout belongs to the runtime.
            runtime.block_on(async { request.send().await }).ok()
        });
        // Nothing depends on it.
        let _ = logout.join();
    }
}

/// A client without a limit of requests: uploads have their own.
pub(super) fn client(certificates: Option<Vec<Certificate>>) -> reqwest::Result<Client> {
    let client = Client::builder()
        .connect_timeout(Duration::from_secs(15))
        // A redirected request would contain the token.
        .redirect(redirect::Policy::none());
    match certificates {
        Some(certificates) => client.tls_certs_only(certificates).build(),
        None => client.build(),
    }
}

/// The error if the server at `url` did not respond.
pub(super) fn unreachable(url: &str, error: &reqwest::Error) -> BackendError {
    let words = innermost(error);
    let kind = match error.is_timeout() && !error.is_connect() {
        true => BackendErrorKind::Timeout,
        false => BackendErrorKind::Unreachable,
    };
    let failure = BackendError::new(kind, format!("{url}: {words}"));
    if words.contains("certificate") {
        return failure.hint(
            "set ovirt_ca to the engine's CA, and ovirt_url to the host name of its certificate; if another CA signed \
             that certificate, the file of ovirt_ca must contain both CAs",
        );
    }
    failure
}

/// The password of this command, else of the environment, else of the file that the deployment used.
fn password(config: &OvirtConfig) -> Result<SecretString, BackendError> {
    if let Some(password) = &config.password.0 {
        return Ok(password.clone());
    }
    if let Ok(password) = std::env::var(PASSWORD_VARIABLE) {
        return Ok(password.into());
    }
    let denied = |words: String| {
        BackendError::new(BackendErrorKind::Denied, words)
            .hint("set OCPDEPLOY_OVIRT_PASSWORD, or give the env file with --env")
    };
    let Some(path) = &config.password_file else {
        return Err(denied(format!("no password for {}", config.user)));
    };
    let text = limited_file::read_text(path);
    let text = text.map_err(|error| denied(format!("cannot read {}: {error}", path.display())))?;
    Ok(text.trim_end_matches(['\n', '\r']).into())
}

/// Pauses between polls, short at first.
pub(super) fn pauses() -> Backoff {
    Backoff::doubling(Duration::from_millis(125), Duration::from_secs(1))
}

/// Polls until `look` returns a value.
pub(super) async fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>, BackendError>,
) -> Result<T, BackendError> {
    let begun = Instant::now();
    let mut backoff = pauses();
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if begun.elapsed() > limit {
            let words = format!("{what} after {} s", limit.as_secs());
            return Err(BackendError::new(BackendErrorKind::Timeout, words));
        }
        sleep(backoff.pause(None)).await;
    }
}
