//! The images of the machines, on each of the cluster's platforms.

use anyhow::{Context, Result};
use serde::Serialize;
use tracing::info;

use super::run::Run;
use super::version_lock;
use crate::PROGRESS;
use crate::backend::{ImageHandle, ImageRequest};
use crate::cluster::{ImageSource, Role};
use crate::openshift::installer::Installer;
use crate::passes::image_sources::Shop;

/// The handles of one kind of image, one per platform: see `place_of`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Handles {
    all: ImageHandle,
    /// On the workers' own platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    workers: Option<ImageHandle>,
}

impl Handles {
    pub(super) fn at(&self, place: Role) -> &ImageHandle {
        match (&self.workers, place) {
            (Some(workers), Role::Worker) => workers,
            _ => &self.all,
        }
    }
}

/// Whether an image is downloaded to this computer first, and then stays the same for its cluster.
fn is_fetched(source: &ImageSource) -> bool {
    !matches!(source, ImageSource::File(_) | ImageSource::Platform(_))
}

impl Run<'_> {
    /// The CoreOS images.
    pub(super) async fn node_images(&self, installer: &Installer) -> Result<Handles> {
        let [all, workers] = [&self.config.image, &self.config.worker_image];
        self.images("pass-two", [all, workers], Some(installer)).await
    }

    /// The images of pass one's machines.
    pub(super) async fn helper_images(&self, workflow: &str) -> Result<Handles> {
        let [all, workers] = [&self.config.helper_image, &self.config.worker_helper_image];
        self.images(workflow, [all, workers], None).await
    }

    async fn images(
        &self,
        workflow: &str,
        sources: [&ImageSource; 2],
        installer: Option<&Installer>,
    ) -> Result<Handles> {
        let [all, workers] = sources;
        let step = format!("{workflow}/image");
        let all = self.image(&step, Role::Master, all, installer);
        let workers = async {
            if !self.config.has_workers_elsewhere() {
                return Ok(None);
            }
            let step = format!("{workflow}/worker-image");
            self.image(&step, Role::Worker, workers, installer).await.map(Some)
        };
        let (all, workers) = futures::try_join!(all, workers)?;
        Ok(Handles { all, workers })
    }

    /// Rejects node images that differ from those of earlier runs.
    pub(super) async fn judge_node_images(&self, installer: &Installer) -> Result<()> {
        let sources = [&self.config.image, &self.config.worker_image];
        self.judge_images("pass-two", sources, Some(installer)).await.map(drop)
    }

    /// As `judge_node_images`; returns the helper images if the platform has all of them already.
    pub(super) async fn judge_helper_images(&self, workflow: &str) -> Result<Option<Handles>> {
        let sources = [&self.config.helper_image, &self.config.worker_helper_image];
        self.judge_images(workflow, sources, None).await
    }

    async fn judge_images(
        &self,
        workflow: &str,
        sources: [&ImageSource; 2],
        installer: Option<&Installer>,
    ) -> Result<Option<Handles>> {
        let mut all = Vec::new();
        let workers = Some(Role::Worker).filter(|_| self.config.has_workers_elsewhere());
        for ((role, step), source) in [(Some(Role::Master), "image"), (workers, "worker-image")]
            .into_iter()
            .zip(sources)
        {
            let Some(role) = role else { continue };
            let step = format!("{workflow}/{step}");
            if is_fetched(source) {
                self.journal.judge(&format!("{step}/fetch"), source)?;
            } else if self.journal.done_at(&step).is_some() {
                self.journal
                    .judge(&step, &self.shop(role, installer).request(source).await?)?;
            }
            all.push(self.journal.output::<ImageHandle>(&step)?);
        }
        let mut all = all
            .into_iter()
            .collect::<Option<Vec<_>>>()
            .unwrap_or_default()
            .into_iter();
        Ok(all.next().map(|first| Handles {
            all: first,
            workers: all.next(),
        }))
    }

    async fn image(
        &self,
        step: &str,
        role: Role,
        source: &ImageSource,
        installer: Option<&Installer>,
    ) -> Result<ImageHandle> {
        let request = self
            .request(step, role, source, installer)
            .await
            .with_context(|| format!("get image {source}"))?;
        if let Some(lock) = &self.config.lock {
            version_lock::keep_image(lock, step, &request)?;
        }
        let ensure = async {
            // Not a step of its own: it runs concurrently with pass one.
            info!(target: PROGRESS, "image {source}");
            let id = self.config.id();
            Ok(self.backend.ensure_image(role, &id, &request).await?)
        };
        let handle = self.journal.step(step, &request, ensure).await?;
        if installer.is_some() {
            self.journal
                .note(&version_lock::content_note(step), &version_lock::content(&request))?;
        }
        Ok(handle)
    }

    /// The request to the platform; a downloaded image stays the same when the command is repeated.
    async fn request(
        &self,
        step: &str,
        role: Role,
        source: &ImageSource,
        installer: Option<&Installer>,
    ) -> Result<ImageRequest> {
        let shop = self.shop(role, installer);
        if !is_fetched(source) {
            return shop.request(source).await;
        }
        let fetch = format!("{step}/fetch");
        let fetched = self.journal.step(&fetch, source, shop.request(source)).await?;
        match &fetched {
            // Pruned from the cache before it was uploaded.
            ImageRequest::File { path, .. } if !path.exists() && self.journal.done_at(step).is_none() => {
                self.journal.forget(&fetch)?;
                self.journal.step(&fetch, source, shop.request(source)).await
            }
            _ => Ok(fetched),
        }
    }

    /// Makes sure that pass one can boot its machines again; records no step.
    pub(super) async fn helper_images_again(&self) -> Result<()> {
        let sources = [&self.config.helper_image, &self.config.worker_helper_image];
        let workers = Some(Role::Worker).filter(|_| self.config.has_workers_elsewhere());
        for (role, source) in [Some(Role::Master), workers].into_iter().zip(sources) {
            let Some(role) = role else { continue };
            let request = self.shop(role, None).request(source).await;
            let request = request.with_context(|| format!("get image {source}"))?;
            self.backend.ensure_image(role, &self.config.id(), &request).await?;
        }
        Ok(())
    }

    /// The images of the first nodes: newer ones may belong to another release.
    pub(super) async fn node_images_again(&self) -> Result<Handles> {
        let all = self.again("pass-two/image", Role::Master, &self.config.image).await?;
        let workers = match self.config.workers_on {
            Some(_) => Some(
                self.again("pass-two/worker-image", Role::Worker, &self.config.worker_image)
                    .await?,
            ),
            None => None,
        };
        Ok(Handles { all, workers })
    }

    async fn again(&self, step: &str, role: Role, source: &ImageSource) -> Result<ImageHandle> {
        let request = match self.journal.output(&format!("{step}/fetch"))? {
            Some(fetched) => fetched,
            None => self.shop(role, None).request(source).await?,
        };
        let id = self.config.id();
        Ok(self.backend.ensure_image(role, &id, &request).await?)
    }

    fn shop<'s>(&'s self, role: Role, installer: Option<&'s Installer>) -> Shop<'s> {
        let capabilities = self.backend.capabilities(role);
        Shop {
            downloads: &self.config.downloads,
            installer,
            platform: capabilities.image_artifact,
            fetched_there: capabilities.fetches_images,
        }
    }
}
