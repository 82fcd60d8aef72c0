//! The registry cache: one process of distribution's registry for each upstream registry, on this computer.

pub mod content;
mod error;
mod files;
pub mod login;
mod process;
pub mod warm;

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fs_err as fs;
use reqwest::{Certificate, Client, StatusCode};
use tokio::time::sleep;

pub use self::error::RegistryError;
pub use self::files::{Credentials, Upstream, credentials};
pub use self::process::{Program, RegistryDirectory};
use crate::state::home::{create_private_dir, remove_folder, write_private};
use crate::state::registry_cache::{CacheDir, CachedRegistry, RegistryCache, USER};

/// A registry queries its upstream first, which takes half a minute if a network drops the packets.
const START: Duration = Duration::from_secs(45);

/// Limit for one small response from this computer.
const ANSWER: Duration = Duration::from_secs(5);

/// The same while a registry starts: shorter, because the registry soon ends if another program uses its port.
const FIRST_ANSWER: Duration = Duration::from_millis(500);

/// The state of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    /// It serves only stored content: its upstream was unreachable when it started.
    Offline,
    /// It runs on another computer.
    Remote,
    /// The process runs, but does not answer.
    Silent,
    Stopped,
}

/// The address by which this computer reaches other networks. Sends nothing.
pub fn own_address() -> Result<Ipv4Addr, RegistryError> {
    // An address for documentation (RFC 5737): it is routed like any other.
    let found = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9))?;
        socket.local_addr()
    });
    match found.map_err(RegistryError::NoAddress)?.ip() {
        std::net::IpAddr::V4(address) if !address.is_unspecified() => Ok(address),
        other => Err(RegistryError::NoAddress(io::Error::other(format!(
            "{other} is not a usable IPv4 address"
        )))),
    }
}

/// A new cache, not yet running.
pub fn new_cache(address: Ipv4Addr, storage: PathBuf) -> io::Result<RegistryCache> {
    Ok(RegistryCache::new(address, storage, files::password()?))
}

/// An HTTP client for the cache. It trusts only the CA of the cache.
pub fn client(dir: &CacheDir) -> Result<Client> {
    let pem = fs::read(dir.authority())?;
    let certificates = Certificate::from_pem_bundle(&pem).context("read the certificate of the registry cache")?;
    let client = Client::builder().tls_certs_only(certificates).no_proxy();
    client.build().context("create an HTTP client")
}

/// Writes the files that all registries share; the certificate only if its address changes.
pub fn write_shared(dir: &CacheDir, cache: &RegistryCache, known: Option<&RegistryCache>) -> Result<()> {
    let is_current = known.is_some_and(|known| known.address == cache.address);
    if !is_current || !dir.authority().exists() {
        files::write_certificates(dir, cache.address)?;
    }
    if known.is_none_or(|known| known.password != cache.password) || !dir.users().exists() {
        files::write_users(dir, &cache.password)?;
    }
    create_private_dir(&cache.storage)?;
    Ok(())
}

/// Writes the authorities of the upstream registries, and returns whether they have changed. Each process reads them
/// when it starts.
pub fn write_upstream_authorities(dir: &CacheDir, authorities: Option<&str>) -> Result<bool> {
    let path = dir.upstream_authorities();
    let known = fs::read_to_string(&path).ok();
    if known.as_deref() == authorities {
        return Ok(false);
    }
    match (authorities, path.parent()) {
        (Some(authorities), Some(folder)) => {
            create_private_dir(folder)?;
            write_private(&path, authorities.as_bytes())?;
        }
        (_, Some(folder)) => remove_folder(folder)?,
        (_, None) => {}
    }
    Ok(true)
}

/// The upstream that a registry was configured with, and its credentials.
pub fn configured(dir: &CacheDir, registry: &CachedRegistry) -> Option<Upstream> {
    let text = fs::read_to_string(RegistryDirectory(dir.registry(registry)).configuration()).ok()?;
    Upstream::of(&text)
}

/// Starts a registry. One that runs online and answers is left running, unless its settings have changed or `restart`
/// is set. If its upstream cannot be reached, it starts offline.
pub async fn start(
    program: &Program,
    dir: &CacheDir,
    cache: &RegistryCache,
    registry: &CachedRegistry,
    upstream: &Upstream,
    restart: bool,
) -> Result<State> {
    let folder = RegistryDirectory(dir.registry(registry));
    create_private_dir(&folder.0)?;
    create_private_dir(&cache.storage.join(registry.folder_name()))?;
    let online = files::configuration(dir, cache, registry, Some(upstream)).to_string();
    let is_current = !restart && fs::read_to_string(folder.configuration()).is_ok_and(|text| text == online);
    let client = client(dir)?;
    if is_current
        && folder.runs_with().as_ref() == Some(&folder.configuration())
        && answers(&client, cache, registry, ANSWER).await
    {
        return Ok(State::Running);
    }
    folder.stop()?;
    write_private(&folder.configuration(), online.as_bytes())?;
    if start_with(program, &client, &folder, folder.configuration(), cache, registry).await? {
        return Ok(State::Running);
    }
    let why = folder.errors().pop();
    let offline = files::configuration(dir, cache, registry, None).to_string();
    write_private(&folder.offline_configuration(), offline.as_bytes())?;
    if start_with(
        program,
        &client,
        &folder,
        folder.offline_configuration(),
        cache,
        registry,
    )
    .await?
    {
        let why = why.unwrap_or_else(|| "no answer".to_owned());
        tracing::warn!(
            "{} cannot be reached: {why}; its cache serves only what it has until `ocpdeploy cache up` runs again",
            registry.upstream
        );
        return Ok(State::Offline);
    }
    folder.stop()?;
    let why = folder.errors().pop().or(why);
    Err(RegistryError::NotStarted {
        upstream: registry.upstream.clone(),
        why: why.unwrap_or_else(|| format!("no answer at {}", cache.endpoint(registry))),
    }
    .into())
}

/// Starts the process; `false` if it has ended, or has not answered in time and was stopped.
async fn start_with(
    program: &Program,
    client: &Client,
    folder: &RegistryDirectory,
    configuration: PathBuf,
    cache: &RegistryCache,
    registry: &CachedRegistry,
) -> Result<bool> {
    let mut child = program
        .start(folder, &configuration, &cache.storage)
        .with_context(|| format!("start {}", program.path.display()))?;
    let begun = Instant::now();
    while begun.elapsed() < START {
        if child.try_wait()?.is_some() {
            return Ok(false);
        }
        if answers(client, cache, registry, FIRST_ANSWER).await {
            return Ok(true);
        }
        sleep(Duration::from_millis(50)).await;
    }
    folder.stop()?;
    Ok(false)
}

/// Whether this registry answers: another one has neither its certificate nor its password.
async fn answers(client: &Client, cache: &RegistryCache, registry: &CachedRegistry, limit: Duration) -> bool {
    let url = format!("https://{}/v2/", cache.endpoint(registry));
    let request = client.get(url).basic_auth(USER, Some(&cache.password)).timeout(limit);
    request
        .send()
        .await
        .is_ok_and(|answer| answer.status() == StatusCode::OK)
}

/// Determines the state of a registry.
pub async fn state(dir: &CacheDir, cache: &RegistryCache, registry: &CachedRegistry) -> State {
    let folder = RegistryDirectory(dir.registry(registry));
    let configuration = folder.runs_with();
    if configuration.is_none() && dir.is_own() {
        return State::Stopped;
    }
    let answers = match client(dir) {
        Ok(client) => answers(&client, cache, registry, ANSWER).await,
        Err(_) => false,
    };
    match (answers, configuration) {
        (false, _) => State::Silent,
        (true, None) => State::Remote,
        (true, Some(path)) if path == folder.offline_configuration() => State::Offline,
        (true, Some(_)) => State::Running,
    }
}

/// Removes the cache's files, and its content below the storage directory. Its processes must have ended.
pub fn delete(dir: &CacheDir, cache: &RegistryCache) -> Result<()> {
    // The paths of another computer's cache do not exist on this one.
    if dir.is_own() {
        for registry in &cache.registries {
            remove_folder(&cache.storage.join(registry.folder_name()))?;
            remove_folder(&dir.registry(registry))?;
        }
        // Empty unless it also has other contents.
        let _ = fs::remove_dir(&cache.storage);
    }
    remove_folder(dir.path())?;
    Ok(())
}
