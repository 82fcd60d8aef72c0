//! A session with a cloud: the token and its renewal, endpoints, and calls of services.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::io::AsyncRead;
use tokio::sync::Mutex;
use tracing::warn;

use super::auth::{CloudAccess, CloudSources, Service};
use super::transport::{ServiceRequest, Transport, checked, parse};
use super::wire;
use crate::backend::plain_http::is_plain_http;
use crate::backend::{BackendError, BackendErrorKind};
use crate::cluster::OpenStackConfig;
use crate::http_limits;

/// A token is renewed this long before it expires, so that a request ends before its token. A token that is valid for a
/// shorter time is renewed after half of it.
const EARLY: Duration = Duration::from_secs(300);
/// The limits of pages and bytes of one list. A page has 1000 entries (openstack/nova: `nova/conf/api.py`,
/// `max_limit`), in Glance 25 (openstack/glance: `glance/common/config.py`, `limit_param_default`).
const PAGES: usize = 1000;
const LIST: usize = 2 * http_limits::LARGEST;
const LIST_TIME: Duration = Duration::from_secs(300);
/// Allows plain http, for commands that read no env file.
const INSECURE_VARIABLE: &str = "OCPDEPLOY_OS_INSECURE";
/// The microversion of Nova: that of Rocky, 2018. Tags at creation require 2.52, extra specs of listed flavors 2.61, named
/// policies of server groups 2.64 (openstack/nova: `nova/api/openstack/rest_api_version_history.rst`).
pub(super) const COMPUTE_VERSION: &str = "2.64";

/// A token of Keystone with its scope and catalog.
#[derive(Clone)]
pub(super) struct Token {
    pub value: Arc<SecretString>,
    pub expires: Timestamp,
    renew: Timestamp,
    pub project: Arc<str>,
    pub roles: Arc<[String]>,
    catalog: Arc<Value>,
}

impl Token {
    /// The minutes for which it is valid.
    pub fn minutes_left(&self) -> i64 {
        self.expires.duration_since(Timestamp::now()).as_secs() / 60
    }
}

/// A cloud with a token that is renewed in time.
pub(super) struct OpenStackSession {
    transport: Transport,
    access: CloudAccess,
    token: Mutex<Option<Token>>,
    may_be_insecure: bool,
    /// The services about which the user was warned, one bit for each.
    warned: AtomicU8,
}

impl OpenStackSession {
    /// Reads the credentials. Sends no request.
    pub fn open(config: &OpenStackConfig) -> Result<Self, BackendError> {
        let sources = CloudSources::of_process();
        let access = CloudAccess::read(config.cloud.as_deref(), config.region.as_deref(), &sources)?;
        let may_be_insecure = config.insecure.0 || std::env::var(INSECURE_VARIABLE).is_ok_and(|value| value == "true");
        if is_plain_http(&access.auth_url) {
            let (name, url) = (&access.name, &access.auth_url);
            let insecure = format!(
                "auth_url {url} of {name} is http, so others on the network can read the password and change responses"
            );
            match may_be_insecure {
                true => warn!("{insecure}"),
                false => return Err(refused(insecure)),
            }
        }
        Ok(Self {
            transport: Transport::new(access.ca.as_deref())?,
            access,
            token: Mutex::new(None),
            may_be_insecure,
            warned: AtomicU8::new(0),
        })
    }

    /// The name of the cloud in messages.
    pub fn name(&self) -> &str {
        &self.access.name
    }

    /// Whether tokens are derived from a given one, and expire with it.
    pub fn has_only_a_token(&self) -> bool {
        self.access.has_only_a_token()
    }

    /// The CA certificates of the services in PEM, which machines need, too.
    pub fn ca(&self) -> Option<&str> {
        self.transport.ca()
    }

    /// Whether machines accept the certificate of a service.
    pub async fn machines_trust(&self, service: Service) -> Result<bool, BackendError> {
        self.transport
            .machines_trust(&self.public_endpoint(service).await?)
            .await
    }

    /// The `Date` header of a response.
    pub async fn date(&self) -> Result<Option<String>, BackendError> {
        let request = ServiceRequest {
            method: Method::GET,
            url: self.access.auth_url.clone(),
            body: None,
            headers: &[],
            largest: http_limits::SMALL,
        };
        let (_, headers, _) = self.transport.send(&request, None, true).await?;
        Ok(headers
            .get("date")
            .and_then(|date| date.to_str().ok())
            .map(str::to_owned))
    }

    /// A token that is valid for some minutes.
    pub async fn token(&self) -> Result<Token, BackendError> {
        let mut held = self.token.lock().await;
        if let Some(token) = held.as_ref().filter(|token| is_valid(token)) {
            return Ok(token.clone());
        }
        let token = self.sign_in().await?;
        *held = Some(token.clone());
        Ok(token)
    }

    /// Discards a token that a service rejected, unless it has been renewed already.
    async fn forget(&self, refused: &Token) {
        let mut held = self.token.lock().await;
        if held
            .as_ref()
            .is_some_and(|token| Arc::ptr_eq(&token.value, &refused.value))
        {
            *held = None;
        }
    }

    async fn sign_in(&self) -> Result<Token, BackendError> {
        let url = format!("{}/auth/tokens", self.access.auth_url);
        let body = self.access.sign_in();
        let request = ServiceRequest {
            method: Method::POST,
            url,
            body: Some(&body),
            headers: &[],
            largest: http_limits::SMALL,
        };
        // Signing in can be repeated.
        let (status, headers, body) = self.transport.send(&request, None, true).await?;
        if status == StatusCode::UNAUTHORIZED {
            let failure = BackendError::new(
                BackendErrorKind::Denied,
                format!("authentication to {} failed: {}", self.access.name, wire::fault(&body)),
            );
            return Err(failure.hint(format!(
                "check user, project and password of {}; application credentials and tokens expire",
                self.access.name
            )));
        }
        let body = checked(status, &headers, body)?;
        let missing = |what: &str| {
            let message = format!("the response of {} has no {what}", self.access.auth_url);
            BackendError::new(BackendErrorKind::Rejected, message)
                .hint("set auth_url to the URL of Keystone, version 3")
        };
        let value = headers
            .get("x-subject-token")
            .and_then(|value| value.to_str().ok())
            .ok_or_else(|| missing("token"))?;
        let token = parse(&body)?;
        let token = &token["token"];
        let expires = token["expires_at"].as_str().and_then(|text| text.parse().ok());
        let expires: Timestamp = expires.ok_or_else(|| missing("expiry time"))?;
        let early =
            (expires.duration_since(Timestamp::now()) / 2).min(SignedDuration::try_from(EARLY).unwrap_or_default());
        let roles = token["roles"].as_array().into_iter().flatten();
        let roles = roles.filter_map(|role| Some(role["name"].as_str()?.to_owned()));
        let project = token["project"]["id"].as_str().ok_or_else(|| missing("project"))?;
        Ok(Token {
            value: Arc::new(SecretString::from(value)),
            expires,
            renew: expires - early,
            project: project.into(),
            roles: roles.collect(),
            catalog: Arc::new(token["catalog"].clone()),
        })
    }

    /// A token for a machine. This session does not use it, so that it can be revoked.
    pub async fn separate_token(&self) -> Result<Token, BackendError> {
        self.sign_in().await
    }

    /// Makes a token invalid (openstack/keystone: `keystone/token/provider.py`, `revoke_token`: only this one, not those
    /// of the same credentials).
    pub async fn revoke(&self, token: &SecretString) -> Result<(), BackendError> {
        let ours = self.token().await?;
        let request = ServiceRequest {
            method: Method::DELETE,
            url: format!("{}/auth/tokens", self.access.auth_url),
            body: None,
            headers: &[("X-Subject-Token", token.expose_secret())],
            largest: http_limits::SMALL,
        };
        let (status, headers, body) = self.transport.send(&request, Some(&ours.value), true).await?;
        match status {
            // It has expired.
            StatusCode::NOT_FOUND => Ok(()),
            status => checked(status, &headers, body).map(drop),
        }
    }

    /// Whether the catalog has the service.
    pub async fn has(&self, service: Service) -> Result<bool, BackendError> {
        let token = self.token().await?;
        let interface = self.access.interface_of(service);
        Ok(self.access.endpoint(service, interface, &token.catalog).is_some())
    }

    /// The URL of a service, without a slash at its end.
    pub async fn endpoint(&self, service: Service) -> Result<String, BackendError> {
        self.endpoint_of(service, self.access.interface_of(service)).await
    }

    /// The URL of a service for machines.
    pub async fn public_endpoint(&self, service: Service) -> Result<String, BackendError> {
        self.endpoint_of(service, "public").await
    }

    async fn endpoint_of(&self, service: Service, interface: &str) -> Result<String, BackendError> {
        let token = self.token().await?;
        let regions = self.access.undecided_regions(service, interface, &token.catalog);
        if !regions.is_empty() {
            let regions: Vec<_> = regions.into_iter().collect();
            let (name, service) = (&self.access.name, service.name());
            let message = format!(
                "{name} has {service} in {} regions, and os_region is not set",
                regions.len()
            );
            return Err(BackendError::new(BackendErrorKind::Conflict, message)
                .hint(format!("set os_region to one of {}", regions.join(", "))));
        }
        let url = self
            .access
            .endpoint(service, interface, &token.catalog)
            .ok_or_else(|| {
                let region = match &self.access.region {
                    Some(region) => format!(" in region {region}"),
                    None => String::new(),
                };
                let (name, service) = (&self.access.name, service.name());
                let message = format!("the catalog of {name} has no {interface} endpoint of {service}{region}");
                BackendError::new(BackendErrorKind::NotFound, message)
                    .hint("list the endpoints with `openstack catalog list`, and check region_name and interface, or os_region")
            })?;
        if is_plain_http(&url) {
            let name = &self.access.name;
            let insecure = format!(
                "the endpoint {url} of {} in {name} is http, so others on the network can read the token and change \
                 responses",
                service.name()
            );
            if !self.may_be_insecure {
                return Err(refused(insecure));
            }
            let bit = 1 << service as u8;
            if self.warned.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
                warn!("{insecure}");
            }
        }
        Ok(url)
    }

    pub async fn get(&self, service: Service, path: &str) -> Result<Value, BackendError> {
        parse(&self.call(Method::GET, service, path, None).await?.1)
    }

    /// Like `get`; `None` if the object does not exist.
    pub async fn find(&self, service: Service, path: &str) -> Result<Option<Value>, BackendError> {
        if_answered(self.get(service, path).await)
    }

    /// A header of an object in the object store; `None` if it has no such header or does not exist.
    pub async fn header(&self, service: Service, path: &str, name: &str) -> Result<Option<String>, BackendError> {
        let response = if_answered(self.call(Method::HEAD, service, path, None).await)?;
        let value = response
            .as_ref()
            .and_then(|(headers, _)| headers.get(name)?.to_str().ok());
        Ok(value.map(str::to_owned))
    }

    /// All entries of a list, page after page.
    ///
    /// Only the marker of the link to the next page is used, in a repetition of the same request. So the token is never
    /// sent to another host.
    pub async fn list(&self, service: Service, path: &str, key: &str) -> Result<Vec<Value>, BackendError> {
        let refused = |why: String| {
            let message = format!("the list of {key} of {}: {why}", service.name());
            BackendError::new(BackendErrorKind::Rejected, message)
        };
        let (mut all, mut markers) = (Vec::new(), Vec::<String>::new());
        let begun = Instant::now();
        let mut bytes = 0;
        loop {
            let page = match markers.last() {
                None => path.to_owned(),
                Some(marker) => wire::with_marker(path, marker),
            };
            let body = self.call(Method::GET, service, &page, None).await?.1;
            bytes += body.len();
            if bytes > LIST {
                return Err(refused("too many bytes".to_owned()));
            }
            if begun.elapsed() > LIST_TIME {
                return Err(refused(format!("incomplete after {} s", LIST_TIME.as_secs())));
            }
            let mut page = parse(&body)?;
            let marker = wire::next_marker(&page, key).map_err(refused)?;
            let Some(Value::Array(entries)) = page.get_mut(key).map(Value::take) else {
                let message = format!("the response to {path} has no {key}");
                return Err(BackendError::new(BackendErrorKind::Rejected, message));
            };
            let is_last = entries.is_empty();
            all.extend(entries);
            match marker.filter(|_| !is_last) {
                None => return Ok(all),
                Some(marker) if markers.contains(&marker) => {
                    return Err(refused("a page refers to a former page".to_owned()));
                }
                Some(_) if markers.len() + 1 == PAGES => {
                    return Err(refused(format!("more than {PAGES} pages")));
                }
                Some(marker) => markers.push(marker),
            }
        }
    }

    pub async fn post(&self, service: Service, path: &str, body: &Value) -> Result<Value, BackendError> {
        parse(&self.call(Method::POST, service, path, Some(body)).await?.1)
    }

    /// A `POST` that changes nothing, so that it is repeated after a failure.
    pub async fn post_query(&self, service: Service, path: &str, body: &Value) -> Result<Value, BackendError> {
        parse(&self.send(Method::POST, service, path, Some(body), true).await?.1)
    }

    pub async fn put(&self, service: Service, path: &str, body: &Value) -> Result<Value, BackendError> {
        parse(&self.call(Method::PUT, service, path, Some(body)).await?.1)
    }

    /// A `PUT` without a body.
    pub async fn put_path(&self, service: Service, path: &str) -> Result<(), BackendError> {
        self.call(Method::PUT, service, path, None).await.map(drop)
    }

    /// Deletes an object. Returns whether it existed.
    pub async fn delete(&self, service: Service, path: &str) -> Result<bool, BackendError> {
        match self.call(Method::DELETE, service, path, None).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.code == Some(404) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Sends this number of bytes with the given headers.
    pub async fn send_bytes(
        &self,
        service: Service,
        path: &str,
        body: (impl AsyncRead + Send + Unpin + 'static, u64),
        headers: &[(&str, &str)],
    ) -> Result<(), BackendError> {
        let url = format!("{}{path}", self.endpoint(service).await?);
        let token = self.token().await?;
        let (status, headers, body) = self.transport.put_bytes(&url, &token.value, body, headers).await?;
        checked(status, &headers, body).map(drop)
    }

    /// Whether a URL can be fetched without a token, as machines do. It may contain a signature.
    pub async fn is_fetchable(&self, url: &str) -> Result<bool, BackendError> {
        let request = ServiceRequest {
            method: Method::HEAD,
            url: url.to_owned(),
            body: None,
            headers: &[],
            largest: http_limits::SMALL,
        };
        Ok(self.transport.send(&request, None, true).await?.0.is_success())
    }

    async fn call(
        &self,
        method: Method,
        service: Service,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(HeaderMap, Vec<u8>), BackendError> {
        let repeatable = method != Method::POST;
        self.send(method, service, path, body, repeatable).await
    }

    async fn send(
        &self,
        method: Method,
        service: Service,
        path: &str,
        body: Option<&Value>,
        repeatable: bool,
    ) -> Result<(HeaderMap, Vec<u8>), BackendError> {
        let url = format!("{}{path}", self.endpoint(service).await?);
        let version: &[(&str, &str)] = match service {
            Service::Compute => &[("X-OpenStack-Nova-API-Version", COMPUTE_VERSION)],
            _ => &[],
        };
        let request = ServiceRequest {
            method,
            url,
            body,
            headers: version,
            largest: http_limits::LARGEST,
        };
        for may_renew in [true, false] {
            let token = self.token().await?;
            let answer = self.transport.send(&request, Some(&token.value), repeatable).await;
            let (status, headers, body) = answer.map_err(|failure| BackendError {
                message: format!("{}: {}", service.name(), failure.message),
                ..failure
            })?;
            if status == StatusCode::UNAUTHORIZED && may_renew {
                self.forget(&token).await;
                continue;
            }
            let body = checked(status, &headers, body)?;
            return Ok((headers, body));
        }
        Err(BackendError::new(
            BackendErrorKind::Denied,
            "a new token was rejected, too",
        ))
    }
}

fn refused(why: String) -> BackendError {
    BackendError::new(BackendErrorKind::Denied, why).hint(format!(
        "ask the administrator of the cloud for https URLs, or accept the risk with os_insecure=true; for commands without \
         an env file {INSECURE_VARIABLE}=true"
    ))
}

fn is_valid(token: &Token) -> bool {
    Timestamp::now() < token.renew
}

/// `None` if the service responded that the object does not exist. A missing endpoint remains an error.
fn if_answered<T>(answer: Result<T, BackendError>) -> Result<Option<T>, BackendError> {
    match answer {
        Err(failure) if failure.code == Some(404) => Ok(None),
        answer => answer.map(Some),
    }
}
