//! `ocpdeploy cache`.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use secrecy::ExposeSecret;

use super::output::print_result;
use super::saved_settings;
use super::session::{ENV_FILE, Session};
use crate::cli::{Cache, CacheDown, CachePrune, CacheStatus, CacheUp, CacheVerb, CacheWarm, Source};
use crate::cluster::limits;
use crate::error::{ErrorKind, OperationError};
use crate::local::registry::content::{self, Blob};
use crate::local::registry::login;
use crate::local::registry::warm::{Warmed, Warmer};
use crate::local::registry::{self, Program, RegistryDirectory, State, Upstream};
use crate::openshift::installer::Installer;
use crate::report::cache::{CacheReport, Pruned, RegistryReport, Stopped, warmed};
use crate::settings;
use crate::state::home::remove_folder;
use crate::state::registry_cache::{CacheDir, CachedRegistry, RegistryCache};

/// The namespaces of OpenShift's releases (openshift/oc: `pkg/cli/admin/release/mirror.go`) and OKD's (okd-project/okd:
/// `README.md`). Not the whole registry: some installers accept only names with a path as sources of mirrors
/// (openshift/installer: `pkg/types/validation/installconfig.go`).
const RELEASES: [&str; 2] = ["quay.io/openshift-release-dev", "quay.io/okd"];

const FIRST_PORT: u16 = 5443;

pub fn run(session: &Session, command: &Cache) -> Result<()> {
    let dir = CacheDir::of(&session.home);
    match &command.verb {
        CacheVerb::Up(command) => up(session, &dir, command),
        CacheVerb::Status(command) => status(session, &dir, command),
        CacheVerb::Warm(command) => warm(session, &dir, command),
        CacheVerb::Prune(command) => prune(&dir, command),
        CacheVerb::Down(command) => down(&dir, command),
    }
}

fn up(session: &Session, dir: &CacheDir, command: &CacheUp) -> Result<()> {
    let _lock = dir.lock()?;
    let known = dir.read()?.map(|_| own(dir)).transpose()?;
    let program = Program::find()?;
    let mut cache = wanted(dir, command, known.as_ref())?;
    let (upstreams, authorities) = upstreams(session, dir, command, &cache)?;
    // Later clusters use the cache only when all registries run; `cache down` must know those that already do.
    cache.enabled = false;
    registry::write_shared(dir, &cache, known.as_ref())?;
    dir.write(&cache)?;
    let restart = match authorities {
        Some(given) => registry::write_upstream_authorities(dir, given.as_deref())?,
        None => false,
    };
    session.finish_or_stop(async {
        for (registry, upstream) in cache.registries.iter().zip(&upstreams) {
            login::check(&program, dir, registry, upstream).await?;
            registry::start(&program, dir, &cache, registry, upstream, restart).await?;
        }
        cache.enabled = true;
        dir.write(&cache)?;
        let report = report(dir, &cache).await?;
        print_result(&command.output, &report, || report.text())
    })
}

/// The existing cache, updated by the command's options.
fn wanted(dir: &CacheDir, command: &CacheUp, known: Option<&RegistryCache>) -> Result<RegistryCache> {
    let mut cache = match known {
        Some(known) => known.clone(),
        None => {
            let address = command.address.map_or_else(registry::own_address, Ok)?;
            registry::new_cache(address, dir.storage())?
        }
    };
    cache.address = command.address.unwrap_or(cache.address);
    if let Some(storage) = &command.storage {
        cache.storage = std::path::absolute(storage).context("find the directory of the images")?;
    }
    let mut repositories = command.repositories.clone();
    if repositories.is_empty() && cache.registries.is_empty() {
        repositories = RELEASES.map(str::to_owned).to_vec();
    }
    for repository in repositories {
        let upstream = repository.split('/').next().unwrap_or_default().to_owned();
        let why = limits::repository(&repository).err();
        let has_registry = upstream.contains(['.', ':']) || upstream == "localhost";
        if let Some(why) = why.or((!has_registry).then_some("does not begin with the name of a registry")) {
            let text = format!("`{repository}` {why}");
            let hint = "write it without https://, such as registry.redhat.io/openshift4";
            return Err(OperationError::new(ErrorKind::Usage, text).hint(hint).into());
        }
        if let Some(registry) = cache
            .registries
            .iter_mut()
            .find(|registry| registry.upstream == upstream)
        {
            if !registry.repositories.contains(&repository) {
                registry.repositories.push(repository);
            }
            continue;
        }
        let highest = cache.registries.iter().map(|registry| registry.port).max();
        cache.registries.push(CachedRegistry {
            upstream,
            port: highest.map_or(FIRST_PORT, |port| port.saturating_add(1)),
            repositories: vec![repository],
        });
    }
    if let Some(first) = command.port {
        for (port, registry) in (first..=u16::MAX).zip(&mut cache.registries) {
            registry.port = port;
        }
    }
    Ok(cache)
}

/// The upstream of each registry, with the credentials of the pull secret if one was given or a registry is new; then
/// also the CA certificates of the settings.
fn upstreams(
    session: &Session,
    dir: &CacheDir,
    command: &CacheUp,
    cache: &RegistryCache,
) -> Result<(Vec<Upstream>, Option<Option<String>>)> {
    let configured = |registry: &CachedRegistry| registry::configured(dir, registry);
    if command.env.is_none() && command.sets.is_empty() {
        let all: Option<Vec<_>> = cache.registries.iter().map(configured).collect();
        if let Some(all) = all {
            return Ok((all, None));
        }
    }
    let source = Source {
        env: command.env.clone(),
        sets: command.sets.clone(),
        ..Source::default()
    };
    let sources = match command.env.is_some() || Path::new(ENV_FILE).exists() {
        true => session.sources(&source)?,
        false => session.flags(&source)?,
    };
    let (secret, ca) = settings::load_registry_access(&sources)?;
    let upstream = |registry: &CachedRegistry| {
        let credentials = registry::credentials(secret.expose_secret(), &registry.upstream)
            .or_else(|| configured(registry)?.credentials);
        if credentials.is_none() {
            tracing::warn!(
                "the pull secret has no credentials for {0}: requests to it are anonymous",
                registry.upstream
            );
        }
        Upstream::new(registry, credentials)
    };
    Ok((cache.registries.iter().map(upstream).collect(), Some(ca)))
}

/// The cache, or an error if there is none.
fn existing(dir: &CacheDir) -> Result<RegistryCache> {
    let cache = dir.read()?;
    Ok(cache.ok_or_else(|| {
        OperationError::new(ErrorKind::Usage, "there is no registry cache on this computer")
            .hint("`ocpdeploy cache up` creates one")
    })?)
}

/// The cache of this computer, or an error if it runs on another computer.
fn own(dir: &CacheDir) -> Result<RegistryCache> {
    let cache = existing(dir)?;
    if dir.is_own() {
        return Ok(cache);
    }
    let text = format!("the registry cache at {} is on another computer", cache.address);
    let hint = "run the command there; after `ocpdeploy cache down --delete` here, later clusters use no cache";
    Err(OperationError::new(ErrorKind::Usage, text).hint(hint).into())
}

fn status(session: &Session, dir: &CacheDir, command: &CacheStatus) -> Result<()> {
    let cache = existing(dir)?;
    let report = session.finish_or_stop(report(dir, &cache))?;
    print_result(&command.output, &report, || report.text())
}

async fn report(dir: &CacheDir, cache: &RegistryCache) -> Result<CacheReport> {
    let mut registries = Vec::new();
    let is_own = dir.is_own();
    for registry in &cache.registries {
        let blobs = match is_own {
            true => content::blobs(&storage(cache, registry))?,
            false => Vec::new(),
        };
        registries.push(RegistryReport {
            upstream: registry.upstream.clone(),
            endpoint: cache.endpoint(registry),
            state: match registry::state(dir, cache, registry).await {
                State::Running => "running",
                State::Offline => "offline",
                State::Remote => "remote",
                State::Silent => "no answer",
                State::Stopped => "stopped",
            },
            repositories: registry.repositories.clone(),
            blobs: blobs.len(),
            bytes: blobs.iter().map(|blob| blob.bytes).sum(),
            errors: RegistryDirectory(dir.registry(registry)).errors(),
        });
    }
    Ok(CacheReport {
        enabled: cache.enabled,
        storage: is_own.then(|| cache.storage.clone()),
        free: rustix::fs::statvfs(&cache.storage)
            .ok()
            .filter(|_| is_own)
            .map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize)),
        registries,
    })
}

/// The directory with a registry's content.
fn storage(cache: &RegistryCache, registry: &CachedRegistry) -> PathBuf {
    cache.storage.join(registry.folder_name())
}

fn warm(session: &Session, dir: &CacheDir, command: &CacheWarm) -> Result<()> {
    let cache = own(dir)?;
    let program = Program::find()?;
    let config = saved_settings::settings_of(session, &command.source)?.1.config;
    let result: Warmed = session.finish_or_stop(async {
        let installer = Installer::obtain(&config, &session.home.cluster(&config.name)).await?;
        let images = installer.payload(&config).await?;
        let warmer = Warmer {
            client: registry::client(dir)?,
            cache: &cache,
            architectures: config.boot_places().into_iter().map(|(_, arch)| arch).collect(),
            fetches_twice: program.fetches_twice(),
        };
        warmer.warm(&images).await
    })?;
    print_result(&command.output, &result, || warmed(&result))
}

fn prune(dir: &CacheDir, command: &CachePrune) -> Result<()> {
    let cache = own(dir)?;
    let _lock = dir.lock()?;
    let mut blobs: Vec<Blob> = Vec::new();
    let mut uploads = Vec::new();
    for registry in &cache.registries {
        let storage = storage(&cache, registry);
        blobs.extend(content::blobs(&storage)?);
        uploads.extend(content::stale_uploads(&storage, SystemTime::now())?);
    }
    let total: u64 = blobs.iter().map(|blob| blob.bytes).sum();
    let surplus = content::surplus(blobs, command.max);
    if !command.dry_run {
        surplus.iter().try_for_each(content::remove)?;
        uploads.iter().try_for_each(|upload| remove_folder(upload))?;
    }
    let freed: u64 = surplus.iter().map(|blob| blob.bytes).sum();
    let pruned = Pruned {
        dry_run: command.dry_run,
        blobs: surplus.len(),
        freed,
        incomplete: uploads.len(),
        remaining: total - freed,
    };
    print_result(&command.output, &pruned, || pruned.text())
}

fn down(dir: &CacheDir, command: &CacheDown) -> Result<()> {
    let mut cache = existing(dir)?;
    let _lock = dir.lock()?;
    cache.enabled = false;
    dir.write(&cache)?;
    let mut stopped = Vec::new();
    for registry in &cache.registries {
        if RegistryDirectory(dir.registry(registry)).stop()? {
            stopped.push(registry.upstream.clone());
        }
    }
    if command.delete {
        registry::delete(dir, &cache)?;
    }
    let stopped = Stopped {
        stopped,
        deleted: command.delete,
    };
    print_result(&command.output, &stopped, || stopped.text())
}
