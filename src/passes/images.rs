//! The images of the machines, on each of the cluster's platforms.

use anyhow::{Context, Result};
use futures::future::try_join_all;
use serde::Serialize;
use tracing::info;

use super::run::Run;
use super::version_lock;
use crate::PROGRESS;
use crate::backend::{ImageHandle, ImageRequest};
use crate::cluster::{Architecture, BootImages, ImageSource, Role};
use crate::openshift::installer::Installer;
use crate::passes::image_sources::Shop;
use crate::plan::machines::Planned;
use crate::state::journal::Step;

/// One value for each platform and architecture with machines: see `ClusterConfig::boot_images`. Journals contain its form.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PerPlatform<T> {
    all: T,
    /// On the workers' own platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    workers: Option<T>,
    /// For pools of another architecture.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    foreign: Vec<(Role, Architecture, T)>,
}

/// The handles of one kind of image.
pub(super) type Handles = PerPlatform<ImageHandle>;

impl<T> PerPlatform<T> {
    pub(super) fn of(&self, machine: &Planned) -> &T {
        let mut foreign = self.foreign.iter();
        match foreign.find(|(place, arch, _)| (*place, *arch) == (machine.place, machine.arch)) {
            Some((.., foreign)) => foreign,
            None => match (&self.workers, machine.place) {
                (Some(workers), Role::Worker) => workers,
                _ => &self.all,
            },
        }
    }

    async fn try_map<U>(&self, work: impl AsyncFn(&T) -> Result<U>) -> Result<PerPlatform<U>> {
        let workers = async {
            match &self.workers {
                Some(workers) => work(workers).await.map(Some),
                None => Ok(None),
            }
        };
        let foreign = self.foreign.iter();
        let foreign = try_join_all(foreign.map(async |(place, arch, value)| Ok((*place, *arch, work(value).await?))));
        let (all, workers, foreign) = futures::try_join!(work(&self.all), workers, foreign)?;
        Ok(PerPlatform { all, workers, foreign })
    }
}

impl<T> PerPlatform<Option<T>> {
    /// All values, or `None` if one is missing.
    fn transpose(self) -> Option<PerPlatform<T>> {
        let foreign = self.foreign.into_iter();
        Some(PerPlatform {
            all: self.all?,
            workers: match self.workers {
                Some(workers) => Some(workers?),
                None => None,
            },
            foreign: foreign
                .map(|(place, arch, value)| Some((place, arch, value?)))
                .collect::<Option<_>>()?,
        })
    }
}

/// An image that one platform needs.
struct NeededImage<'i> {
    /// The name of the step that makes it available on the platform.
    step: String,
    place: Role,
    arch: Architecture,
    source: &'i ImageSource,
    /// For node images.
    installer: Option<&'i Installer>,
}

impl NeededImage<'_> {
    /// Whether the image is downloaded to this computer first. Repeated commands use the same download.
    fn is_fetched(&self) -> bool {
        !matches!(self.source, ImageSource::File(_) | ImageSource::Platform(_))
    }

    fn fetch_step(&self) -> Result<Step> {
        Step::new(format!("{}/fetch", self.step), self.source)
    }

    fn ensure_step(&self, request: &ImageRequest) -> Result<Step> {
        Step::new(&self.step, request)
    }
}

impl Run<'_> {
    /// The CoreOS images.
    pub(super) async fn node_images(&self, installer: &Installer) -> Result<Handles> {
        let images = self.images_of_nodes(Some(installer));
        images.try_map(async |image| self.image(image).await).await
    }

    /// The images of pass one's machines.
    pub(super) async fn harvest_images(&self, workflow: &str) -> Result<Handles> {
        let images = self.images_of_harvest(workflow);
        images.try_map(async |image| self.image(image).await).await
    }

    fn images_of_nodes<'i>(&'i self, installer: Option<&'i Installer>) -> PerPlatform<NeededImage<'i>> {
        self.needed_images("pass-two", |images| &images.coreos, installer)
    }

    fn images_of_harvest(&self, workflow: &str) -> PerPlatform<NeededImage<'_>> {
        self.needed_images(workflow, |images| &images.harvest, None)
    }

    fn needed_images<'i>(
        &'i self,
        workflow: &str,
        source: impl Fn(&'i BootImages) -> &'i ImageSource,
        installer: Option<&'i Installer>,
    ) -> PerPlatform<NeededImage<'i>> {
        let ours = self.config.arch;
        let image = |(place, arch)| {
            let of_workers = if place == Role::Worker { "worker-" } else { "" };
            let of_arch = if arch == ours {
                String::new()
            } else {
                format!("-{arch}")
            };
            NeededImage {
                step: format!("{workflow}/{of_workers}image{of_arch}"),
                place,
                arch,
                source: source(self.config.boot_images((place, arch))),
                installer,
            }
        };
        let mut places = self.config.boot_places();
        places.remove(&(Role::Master, ours));
        PerPlatform {
            all: image((Role::Master, ours)),
            workers: places.take(&(Role::Worker, ours)).map(image),
            foreign: places
                .into_iter()
                .map(|(place, arch)| (place, arch, image((place, arch))))
                .collect(),
        }
    }

    /// Rejects node images that differ from those of earlier runs.
    pub(super) async fn judge_node_images(&self, installer: &Installer) -> Result<()> {
        self.judge_images(self.images_of_nodes(Some(installer))).await.map(drop)
    }

    /// As `judge_node_images`; returns the pass-one images if the platform has all of them already.
    pub(super) async fn judge_harvest_images(&self, workflow: &str) -> Result<Option<Handles>> {
        self.judge_images(self.images_of_harvest(workflow)).await
    }

    async fn judge_images(&self, images: PerPlatform<NeededImage<'_>>) -> Result<Option<Handles>> {
        let judged = images.try_map(async |image| {
            if image.is_fetched() {
                self.journal.judge(&image.fetch_step()?)?;
            } else if self.journal.done_at(&image.step).is_some() {
                let request = self.shop(image).request(image.source).await?;
                self.journal.judge(&image.ensure_step(&request)?)?;
            }
            self.journal.output::<ImageHandle>(&image.step)
        });
        Ok(judged.await?.transpose())
    }

    async fn image(&self, image: &NeededImage<'_>) -> Result<ImageHandle> {
        let request = self
            .request(image)
            .await
            .with_context(|| format!("get image {}", image.source))?;
        if let Some(lock) = &self.config.lock {
            version_lock::keep_image(lock, &image.step, &request)?;
        }
        let ensure = async {
            // Not a step of its own: it runs concurrently with pass one.
            info!(target: PROGRESS, "image {}", image.source);
            self.ensure(image, &request).await
        };
        let handle = self.journal.run(&image.ensure_step(&request)?, ensure).await?;
        if image.installer.is_some() {
            let note = version_lock::content_note(&image.step);
            self.journal.note(&note, &version_lock::content(&request))?;
        }
        Ok(handle)
    }

    /// The request to the platform; a downloaded image stays the same when the command is repeated.
    async fn request(&self, image: &NeededImage<'_>) -> Result<ImageRequest> {
        let shop = self.shop(image);
        if !image.is_fetched() {
            return shop.request(image.source).await;
        }
        let fetch = image.fetch_step()?;
        let fetched = self.journal.run(&fetch, shop.request(image.source)).await?;
        match &fetched {
            // Pruned from the cache before it was uploaded.
            ImageRequest::File { path, .. } if !path.exists() && self.journal.done_at(&image.step).is_none() => {
                self.journal.forget(fetch.name())?;
                self.journal.run(&fetch, shop.request(image.source)).await
            }
            _ => Ok(fetched),
        }
    }

    /// Makes sure that pass one can boot its machines again; records no step.
    pub(super) async fn harvest_images_again(&self) -> Result<()> {
        let images = self.images_of_harvest("pass-one");
        let ensured = images.try_map(async |image| {
            let request = self.shop(image).request(image.source).await;
            let request = request.with_context(|| format!("get image {}", image.source))?;
            self.ensure(image, &request).await
        });
        ensured.await.map(drop)
    }

    /// The images of the first nodes: newer ones may belong to another release.
    pub(super) async fn node_images_again(&self) -> Result<Handles> {
        let images = self.images_of_nodes(None);
        let ensured = images.try_map(async |image| {
            let request = match self.journal.output(image.fetch_step()?.name())? {
                Some(fetched) => fetched,
                None => self.shop(image).request(image.source).await?,
            };
            self.ensure(image, &request).await
        });
        ensured.await
    }

    async fn ensure(&self, image: &NeededImage<'_>, request: &ImageRequest) -> Result<ImageHandle> {
        let id = self.config.id();
        Ok(self.backend.ensure_image(image.place, &id, request).await?)
    }

    fn shop<'s>(&'s self, image: &NeededImage<'s>) -> Shop<'s> {
        let capabilities = self.backend.capabilities(image.place);
        Shop {
            downloads: &self.config.downloads,
            installer: image.installer,
            arch: image.arch,
            platform: capabilities.image_artifact,
            fetched_there: capabilities.fetches_images,
        }
    }
}
