//! Fills the cache with images before a cluster pulls them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures::stream::{self, StreamExt, TryStreamExt};
use reqwest::Client;
use reqwest::header::ACCEPT;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use tracing::info;

use super::{RegistryError, content};
use crate::PROGRESS;
use crate::cluster::Architecture;
use crate::digest::sha256;
use crate::http_limits::{self, SMALL, innermost, words};
use crate::state::registry_cache::{CachedRegistry, RegistryCache, USER};

/// Layers that are fetched concurrently: as many as by a node.
const AT_ONCE: usize = 4;

/// The kinds of manifests (opencontainers/image-spec: `manifest.md`, `image-index.md`; distribution/distribution:
/// `docs/content/spec/manifest-v2-2.md`).
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
                         application/vnd.docker.distribution.manifest.v2+json, \
                         application/vnd.docker.distribution.manifest.list.v2+json";

/// Time limit for a layer: a minute, and its size at 64 KiB/s.
fn limit(bytes: u64) -> Duration {
    Duration::from_secs(60 + (bytes >> 16))
}

/// The result of filling the cache.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Warmed {
    pub images: usize,
    /// Images that no repository of the cache contains.
    pub skipped: usize,
    pub layers: usize,
    /// In bytes, of all layers.
    pub total: u64,
    /// In bytes, of the layers that the cache did not have.
    pub fetched: u64,
}

/// The references in a manifest or an index.
#[derive(Deserialize)]
struct Manifest {
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Vec<Descriptor>,
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: String,
    #[serde(default)]
    size: u64,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    architecture: String,
}

/// Pulls through the cache, as nodes do.
pub struct Warmer<'a> {
    pub client: Client,
    pub cache: &'a RegistryCache,
    /// Of the nodes: the images of others are not fetched.
    pub architectures: BTreeSet<Architecture>,
    /// The registry fetches a layer completely even if no client reads it, so it is not read here.
    pub fetches_twice: bool,
}

/// An error of one request, with the image or layer.
fn not_pulled(registry: &CachedRegistry, repository: &str, digest: &str, error: &anyhow::Error) -> RegistryError {
    RegistryError::NotPulled {
        image: format!("{}/{repository}@{digest}", registry.upstream),
        why: innermost(&**error),
    }
}

/// A layer, or a configuration: repository and digest.
type Layer<'a> = (&'a CachedRegistry, String, String);

impl Warmer<'_> {
    /// Pulls images by digest through the cache; layers that it has are skipped.
    pub async fn warm(&self, images: &[String]) -> Result<Warmed> {
        let mut warmed = Warmed::default();
        let mut manifests = Vec::new();
        for image in images {
            match self.place(image) {
                Some(place) => manifests.push(place),
                None => warmed.skipped += 1,
            }
        }
        warmed.images = manifests.len();
        info!(target: PROGRESS, step = "cache", "reading the manifests of {} images", manifests.len());
        let listed = manifests.into_iter().map(|(registry, repository, digest)| async move {
            let layers = self.layers(registry, &repository, &digest).await;
            layers.map_err(|error| not_pulled(registry, &repository, &digest, &error))
        });
        let listed: Vec<_> = stream::iter(listed).buffer_unordered(AT_ONCE).try_collect().await?;
        let mut layers = BTreeMap::new();
        for ((registry, repository, digest), size) in listed.into_iter().flatten() {
            layers.insert((registry.upstream.as_str(), repository, digest), (registry, size));
        }
        warmed.layers = layers.len();
        warmed.total = layers.values().map(|(_, size)| size).sum();
        let count = layers.len();
        let fetches = layers
            .into_iter()
            .map(|((_, repository, digest), (registry, size))| async move {
                let fetched = self.fetch(registry, &repository, &digest, size).await;
                let fetched = fetched.map_err(|error| not_pulled(registry, &repository, &digest, &error))?;
                Ok::<_, RegistryError>(if fetched { size } else { 0 })
            });
        let mut fetches = stream::iter(fetches).buffer_unordered(AT_ONCE);
        let (mut done, mut told) = (0, Instant::now());
        while let Some(fetched) = fetches.next().await {
            warmed.fetched += fetched?;
            done += 1;
            if told.elapsed() >= Duration::from_secs(10) {
                let mib = warmed.fetched >> 20;
                info!(target: PROGRESS, step = "cache", "{done} of {count} layers, {mib} MiB fetched");
                told = Instant::now();
            }
        }
        Ok(warmed)
    }

    /// The registry, the repository and the digest of an image, if the cache contains it.
    fn place(&self, image: &str) -> Option<Layer<'_>> {
        let (name, digest) = image.split_once('@')?;
        let contains = |source: &String| {
            let rest = name.strip_prefix(source.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let registry = self
            .cache
            .registries
            .iter()
            .find(|registry| registry.repositories.iter().any(contains))?;
        let repository = registry.path_of(name).strip_prefix('/')?;
        Some((registry, repository.to_owned(), digest.to_owned()))
    }

    /// The layers of an image with their sizes; of an index, those for the nodes' architectures.
    async fn layers<'b>(
        &self,
        registry: &'b CachedRegistry,
        repository: &str,
        digest: &str,
    ) -> Result<Vec<(Layer<'b>, u64)>> {
        let mut layers = Vec::new();
        let mut manifests = vec![(digest.to_owned(), true)];
        while let Some((digest, may_be_index)) = manifests.pop() {
            let answer = self.get(registry, repository, "manifests", &digest).await?;
            let text = http_limits::read(answer, SMALL).await?;
            if format!("sha256:{}", sha256(&text)) != digest {
                bail!("the manifest has a different digest");
            }
            let manifest: Manifest = http_limits::json(&text)?;
            let fits = |platform: &Platform| {
                let mut wanted = self.architectures.iter();
                wanted.any(|arch| arch.go() == platform.architecture)
            };
            if may_be_index {
                let fitting = manifest
                    .manifests
                    .into_iter()
                    .filter(|one| one.platform.as_ref().is_none_or(fits));
                manifests.extend(fitting.map(|one| (one.digest, false)));
            }
            for layer in manifest.config.into_iter().chain(manifest.layers) {
                layers.push(((registry, repository.to_owned(), layer.digest), layer.size));
            }
        }
        Ok(layers)
    }

    /// Fetches a layer; `false` if the cache already has it.
    async fn fetch(&self, registry: &CachedRegistry, repository: &str, digest: &str, size: u64) -> Result<bool> {
        let storage = self.cache.storage.join(registry.folder_name());
        let has = || content::has(&storage, repository, digest);
        if has() {
            return Ok(false);
        }
        let begun = Instant::now();
        let mut answer = self.get(registry, repository, "blobs", digest).await?;
        if !self.fetches_twice {
            while answer.chunk().await?.is_some() {}
        }
        drop(answer);
        while !has() {
            if begun.elapsed() > limit(size) {
                bail!("the cache has not stored it; `ocpdeploy cache status` shows why");
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(true)
    }

    async fn get(
        &self,
        registry: &CachedRegistry,
        repository: &str,
        kind: &str,
        digest: &str,
    ) -> Result<reqwest::Response> {
        let url = format!(
            "https://{}/v2/{repository}/{kind}/{digest}",
            self.cache.endpoint(registry)
        );
        let request = self.client.get(url).header(ACCEPT, MANIFESTS);
        let answer = request.basic_auth(USER, Some(&self.cache.password)).send().await?;
        let status = answer.status();
        if !status.is_success() {
            let text = http_limits::read(answer, SMALL).await.unwrap_or_default();
            bail!("{status}: {}", words(&String::from_utf8_lossy(&text), 300));
        }
        Ok(answer)
    }
}
