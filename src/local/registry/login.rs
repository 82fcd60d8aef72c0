//! Checks whether a registry program can log in to an upstream registry. If it cannot, it starts, but each pull fails.

use std::time::Duration;

use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};
use reqwest::{Certificate, Client, StatusCode, Url, redirect};

use super::error::RegistryError;
use super::files::{Credentials, Upstream};
use super::process::Program;
use crate::state::registry_cache::{CacheDir, CachedRegistry};

const ANSWER: Duration = Duration::from_secs(15);

/// Fails if the upstream registry rejects the credentials, or requires a way to log in that the program does not have.
/// An unreachable registry is no failure: the program starts offline.
///
/// Before version 3 the program logs in by token only (distribution/distribution: `registry/proxy/proxyregistry.go`).
pub async fn check(
    program: &Program,
    dir: &CacheDir,
    registry: &CachedRegistry,
    upstream: &Upstream,
) -> Result<(), RegistryError> {
    let fault = |why: String| RegistryError::NoLogin {
        upstream: registry.upstream.clone(),
        why,
    };
    let Some(login) = asked(dir, upstream).await else {
        return Ok(());
    };
    match login {
        Login::NotRequired | Login::Accepted => Ok(()),
        Login::Basic if !program.logs_in_by_token_only() => Ok(()),
        Login::Basic => Err(fault(format!(
            "it requires HTTP Basic authentication, and {} {} logs in by token only",
            program.path.display(),
            program.version
        ))),
        Login::Rejected => Err(fault(match upstream.credentials {
            Some(_) => "it rejects the credentials of the pull secret".to_owned(),
            None => "it requires credentials, and the pull secret has none for it".to_owned(),
        })),
    }
}

enum Login {
    NotRequired,
    Accepted,
    /// Accepted by HTTP Basic authentication.
    Basic,
    Rejected,
}

/// How the registry responds to the credentials; `None` if it cannot be reached.
async fn asked(dir: &CacheDir, upstream: &Upstream) -> Option<Login> {
    let client = Client::builder().connect_timeout(ANSWER).timeout(ANSWER);
    // A redirected request would contain the credentials.
    let mut client = client.redirect(redirect::Policy::none());
    if let Ok(pem) = fs_err::read(dir.upstream_authorities()) {
        client = client.tls_certs_merge(Certificate::from_pem_bundle(&pem).ok()?);
    }
    let client = client.build().ok()?;
    let status = async |url: Url, credentials: Option<&Credentials>| {
        let request = client.get(url);
        let request = match credentials {
            Some(Credentials { username, password }) => request.basic_auth(username, Some(password)),
            None => request,
        };
        request.send().await.ok()
    };
    let root = Url::parse(&format!("{}/v2/", upstream.remoteurl)).ok()?;
    let first = status(root.clone(), None).await?;
    if first.status() != StatusCode::UNAUTHORIZED {
        return Some(Login::NotRequired);
    }
    let credentials = upstream.credentials.as_ref();
    if let Some(server) = token_server(first.headers()) {
        let answer = status(server, credentials).await?;
        let is_rejected = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&answer.status());
        // An anonymous token may be enough for what is pulled.
        return Some(match is_rejected && credentials.is_some() {
            true => Login::Rejected,
            false => Login::Accepted,
        });
    }
    let answer = status(root, credentials).await?;
    Some(match answer.status() {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Login::Rejected,
        _ => Login::Basic,
    })
}

/// The URL of the token server (distribution/distribution: `docs/content/spec/auth/token.md`).
fn token_server(headers: &HeaderMap) -> Option<Url> {
    let challenges = headers.get_all(WWW_AUTHENTICATE).into_iter();
    let challenge = challenges.filter_map(|value| value.to_str().ok()).find_map(|value| {
        let (scheme, parameters) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(parameters)
    })?;
    let parameter = |name: &str| {
        let (_, rest) = challenge.split_once(&format!("{name}=\""))?;
        rest.split('"').next()
    };
    let mut url = Url::parse(parameter("realm")?)
        .ok()
        .filter(|url| url.scheme() == "https")?;
    if let Some(service) = parameter("service") {
        url.query_pairs_mut().append_pair("service", service);
    }
    Some(url)
}
