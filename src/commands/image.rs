//! `ocpdeploy image`.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use super::output::print_result;
use super::platform::connect_for;
use super::saved_settings;
use super::session::Session;
use crate::artifacts::catalogue::{self, HarvestImage};
use crate::artifacts::download::{Cache, Cached};
use crate::backend::platforms::Platforms;
use crate::backend::{Capabilities, ImageRequest};
use crate::cli::{DownloadsDir, Image, ImageList, ImagePayload, ImagePrune, ImagePull, ImagePush, ImageVerb};
use crate::cluster::{
    Architecture, BootImages, ClusterConfig, Downloads, Harvest, ImageSource, ReleaseArchitecture, Role,
};
use crate::error::{ErrorKind, OperationError};
use crate::openshift::installer::Installer;
use crate::passes;
use crate::passes::image_sources::Shop;
use crate::printable::printable_line;
use crate::report::changes::{PrunedImages, StoredImage, StoredImages};
use crate::settings;
use crate::state::home::ClusterDir;
use crate::state::inventory::Known;
use crate::state::journal;

pub fn run(session: &Session, command: &Image) -> Result<()> {
    match &command.verb {
        ImageVerb::List(command) => list(command),
        ImageVerb::Pull(command) => pull(session, command),
        ImageVerb::Push(command) => push(session, command),
        ImageVerb::Prune(command) => prune(command),
        ImageVerb::Payload(command) => payload(session, command),
    }
}

/// The cache of downloads without an env file: the flag or the variable `OCPDEPLOY_DOWNLOADS_DIR`, otherwise the XDG
/// cache directory.
fn cache(folder: &DownloadsDir) -> Result<Cache> {
    let place = match folder.downloads_dir.as_ref().filter(|dir| !dir.as_os_str().is_empty()) {
        Some(dir) => std::path::absolute(dir).context("find the directory of downloads")?,
        None => {
            let set = |name| {
                std::env::var_os(name)
                    .map(std::path::PathBuf::from)
                    .filter(|path| path.is_absolute())
            };
            let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
            base.map(|base| base.join("ocpdeploy")).ok_or_else(|| {
                OperationError::new(
                    ErrorKind::Usage,
                    "cannot determine the directory of downloads: HOME is not set",
                )
                .hint("use --downloads-dir DIR")
            })?
        }
    };
    Ok(Cache::new(place))
}

#[derive(Serialize)]
struct Lists {
    #[serde(rename = "helpers")]
    images: Vec<Listed>,
    cache: Vec<Cached>,
}

#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    image: HarvestImage,
    cached: bool,
}

fn list(command: &ImageList) -> Result<()> {
    let cache = cache(&command.folder)?.list();
    let listed = |image: &HarvestImage| Listed {
        cached: image.architectures.iter().any(|arch| {
            let url = image.url(*arch);
            let mut cached = cache.iter().map(|cached| catalogue::file_name(&cached.url));
            cached.any(|name| name == catalogue::file_name(&url))
        }),
        image: image.clone(),
    };
    let lists = Lists {
        images: catalogue::harvest_images().iter().map(listed).collect(),
        cache,
    };
    print_result(&command.output, &lists, || lists.text())
}

impl Lists {
    fn text(&self) -> String {
        let mut text = String::from("pass-one images:\n");
        for Listed { image, cached } in &self.images {
            let here = if *cached { "  (fetched)" } else { "" };
            text += &format!("  {:<16} {}{here}\n", image.name, image.about);
        }
        text += "\ncache:\n";
        for cached in &self.cache {
            let used = cached.used.strftime("%Y-%m-%d");
            text += &format!(
                "  {:>6} MiB  used {used}  {}\n",
                cached.bytes >> 20,
                printable_line(&cached.path.display().to_string())
            );
        }
        if self.cache.is_empty() {
            text += "  empty\n";
        }
        text
    }
}

fn pull(session: &Session, command: &ImagePull) -> Result<()> {
    if !command.images.is_empty() {
        // Without settings, `./env.sh` is not read: images can be downloaded before there is one.
        let (downloads, arch) = match command.source.env.is_some() || !command.source.overrides().is_empty() {
            true => {
                let config = config(session, command)?;
                (config.downloads, config.arch)
            }
            false => {
                let arch = Architecture::THIS_COMPUTER;
                let dir = cache(&command.folder)?.root().to_owned();
                (Downloads::from_publishers(dir, ReleaseArchitecture::Single(arch)), arch)
            }
        };
        let named = |text: &String| match text.contains("://") {
            true => settings::image_url(text).map(ImageSource::Url),
            false => Ok(ImageSource::Catalogue(text.clone())),
        };
        let sources: Vec<_> = command
            .images
            .iter()
            .map(named)
            .collect::<Result<_, _>>()
            .map_err(|why| {
                OperationError::new(ErrorKind::Usage, why)
                    .hint("use a name that `ocpdeploy image list` shows, or a URL")
            })?;
        let shop = Shop {
            downloads: &downloads,
            installer: None,
            arch,
            platform: "",
            fetched_there: false,
        };
        let pulled = session.finish_or_stop(pull_all(shop, &sources))?;
        return print_pulled(command, pulled);
    }
    let config = config(session, command)?;
    let dir = session.home.cluster(&config.name);
    let pulled = session.finish_or_stop(async {
        let installer = installer(&config, &dir).await?;
        let mut pulled = Vec::new();
        for place in config.boot_places() {
            let shop = Shop {
                downloads: &config.downloads,
                installer: installer.as_ref(),
                arch: place.1,
                platform: Capabilities::of(config.backend_at(place.0)).image_artifact,
                fetched_there: false,
            };
            pulled.extend(pull_all(shop, &wanted(&config, place)).await?);
        }
        Ok(pulled)
    })?;
    print_pulled(command, pulled)
}

/// The configuration, with the directory of downloads of the command line.
fn config(session: &Session, command: &ImagePull) -> Result<ClusterConfig> {
    let mut sources = session.sources(&command.source)?;
    if let Some(dir) = command
        .folder
        .downloads_dir
        .as_ref()
        .filter(|dir| !dir.as_os_str().is_empty())
    {
        sources
            .flags
            .insert("downloads_dir".to_owned(), dir.display().to_string());
    }
    Ok(session.load_from(&sources)?.config)
}

/// The path of each image.
fn print_pulled(command: &ImagePull, images: Vec<StoredImage>) -> Result<()> {
    let line = |image: &StoredImage| match (&image.path, &image.on_platform) {
        (Some(path), _) => printable_line(&path.display().to_string()) + "\n",
        (None, name) => {
            let name = name.as_deref().unwrap_or_default();
            format!("{} (on the platform)\n", printable_line(name))
        }
    };
    let stored = StoredImages { images };
    print_result(&command.output, &stored, || stored.images.iter().map(line).collect())
}

/// The boot images of the machines of one architecture on one platform.
fn wanted(config: &ClusterConfig, place: (Role, Architecture)) -> Vec<ImageSource> {
    let BootImages { coreos, harvest } = config.boot_images(place).clone();
    let harvest = (config.harvest == Harvest::Boot).then_some(harvest);
    std::iter::once(coreos).chain(harvest).collect()
}

/// The installer, if an image is that of the release.
async fn installer(config: &ClusterConfig, dir: &ClusterDir) -> Result<Option<Installer>> {
    let mut places = config.boot_places().into_iter();
    match places.any(|place| config.boot_images(place).coreos == ImageSource::Release) {
        true => Ok(Some(Installer::obtain(config, dir).await?)),
        false => Ok(None),
    }
}

async fn pull_all(shop: Shop<'_>, sources: &[ImageSource]) -> Result<Vec<StoredImage>> {
    let mut stored = Vec::new();
    for source in sources {
        let request = shop
            .request(source)
            .await
            .with_context(|| format!("get image {source}"))?;
        let (path, on_platform) = match request {
            ImageRequest::File { path, .. } => (Some(path), None),
            ImageRequest::Platform(name) => (None, Some(name)),
        };
        stored.push(StoredImage {
            image: source.to_string(),
            path,
            on_platform,
        });
    }
    Ok(stored)
}

fn push(session: &Session, command: &ImagePush) -> Result<()> {
    let config = saved_settings::settings_of(session, &command.source)?.1.config;
    let dir = session.home.cluster(&config.name);
    let images = session.finish_or_stop(async {
        let installer = installer(&config, &dir).await?;
        let backend = connect_for(&config).await?;
        record(&dir, &config)?;
        let pushed = push_all(&backend, &config, installer.as_ref()).await;
        passes::with_leftovers(&backend, &config.id(), "image push", true, pushed).await
    })?;
    let line = |image: &StoredImage| {
        let name = image.on_platform.as_deref().unwrap_or_default();
        printable_line(&format!("{}: {name}", image.image)) + "\n"
    };
    let stored = StoredImages { images };
    print_result(&command.output, &stored, || stored.images.iter().map(line).collect())
}

/// Writes the identity under which images are pushed: the deployment that uses them has the same.
fn record(dir: &ClusterDir, config: &ClusterConfig) -> Result<()> {
    dir.create().context("create the cluster's directory")?;
    let _lock = journal::lock(dir, &config.name)?;
    dir.sweep()
        .context("remove unfinished files from the cluster's directory")?;
    match Known::read(dir)? {
        Some(_) => Ok(()),
        None => Ok(Known::of(config).write(dir)?),
    }
}

async fn push_all(
    backend: &Platforms,
    config: &ClusterConfig,
    installer: Option<&Installer>,
) -> Result<Vec<StoredImage>> {
    let mut stored = Vec::new();
    for place in config.boot_places() {
        let capabilities = backend.capabilities(place.0);
        let shop = Shop {
            downloads: &config.downloads,
            installer,
            arch: place.1,
            platform: capabilities.image_artifact,
            fetched_there: capabilities.fetches_images,
        };
        for source in wanted(config, place) {
            let request = shop
                .request(&source)
                .await
                .with_context(|| format!("get image {source}"))?;
            let handle = backend.ensure_image(place.0, &config.id(), &request).await?;
            stored.push(StoredImage {
                image: source.to_string(),
                path: None,
                on_platform: Some(handle.0),
            });
        }
    }
    Ok(stored)
}

fn prune(command: &ImagePrune) -> Result<()> {
    let unused = Duration::from_secs(command.days.saturating_mul(24 * 3600));
    let gone = cache(&command.folder)?.prune(unused, command.dry_run)?;
    let pruned = PrunedImages {
        dry_run: command.dry_run,
        removed: gone,
    };
    print_result(&command.output, &pruned, || pruned.text())
}

fn payload(session: &Session, command: &ImagePayload) -> Result<()> {
    let config = saved_settings::settings_of(session, &command.source)?.1.config;
    let dir = session.home.cluster(&config.name);
    let release = session.finish_or_stop(async {
        let installer = Installer::obtain(&config, &dir).await?;
        installer.release(&config).await
    })?;
    print_result(&command.output, &release, || {
        let lines = release.images.values().map(|image| printable_line(image) + "\n");
        lines.collect()
    })
}
