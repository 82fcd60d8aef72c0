//! Images: a local qcow2 file becomes a template that all clusters share. Its name contains the digest.
//!
//! The steps are disk, upload, a machine that is never started, template. That machine is created after the upload is
//! finalized, so its existence means that the disk is complete. Earlier steps are repeated after a crash.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::engine::Ovirt;
use super::session::{conflict, if_free, if_there, pauses, wait_for};
use super::upload::{IMAGE_MARK, Upload, image_disk, image_name, virtual_size};
use super::wire::id;
use super::wire::{self, Tag};
use crate::backend::failure::Failure;
use crate::backend::{BackendErrorKind, ImageHandle, ImageRequest, Owned};
use crate::cluster::ClusterId;
use crate::xml::Element;

const TEMPLATE: Duration = Duration::from_secs(3600);
/// An upload of another cluster without progress for so long is abandoned.
const STALLED: Duration = Duration::from_secs(60);
/// How often an upload is begun.
const UPLOADS: usize = 3;

/// The template of machines.
pub(super) struct Template {
    pub id: String,
    /// Ids of its disks.
    pub disks: Vec<String>,
}

/// Whether a machine, disk or template was created for the image of this name: it has the text of `Upload::mark`.
fn is_of_image(thing: &Element, field: &str, name: &str) -> bool {
    let mark = thing.text_of(field).and_then(|text| text.strip_prefix(IMAGE_MARK));
    let sha256 = mark.and_then(|text| text.split(',').next());
    sha256.is_some_and(|sha256| image_name(sha256) == name)
}

impl Ovirt {
    pub(super) async fn provide_image(
        &self,
        cluster: &ClusterId,
        image: &ImageRequest,
    ) -> Result<ImageHandle, Failure> {
        match image {
            ImageRequest::Platform(name) => {
                self.template(name).await?;
                Ok(ImageHandle(name.clone()))
            }
            ImageRequest::File { path, sha256, bytes } => {
                let upload = Upload::new(cluster, path, sha256, *bytes);
                // First, so that `destroy` finds an abandoned upload.
                let tagged = self.ensure_tag(cluster, Some(&upload.name)).await;
                if self.if_permitted(tagged)?.is_none() {
                    let words = "an upload to oVirt requires an administrator";
                    return Err(Failure::new(BackendErrorKind::Denied, words)
                        .hint("set image and helper_image to the names of existing templates"));
                }
                let mut begun = 0;
                while self.claim(&upload).await? && !self.make_template(&upload).await? {
                    begun += 1;
                    if begun == UPLOADS {
                        let words = format!("the upload was cancelled {UPLOADS} times");
                        return Err(Failure::new(BackendErrorKind::Rejected, words)
                            .hint("the engine's events contain the reason"));
                    }
                    self.discard_disk(&upload).await?;
                }
                self.template(&upload.name).await?;
                self.remove_scaffold(&upload.name).await?;
                Ok(ImageHandle(upload.name))
            }
        }
    }

    /// The newest version of a template, once it can be used.
    pub(super) async fn template(&self, name: &str) -> Result<Template, Failure> {
        let missing = || Failure::new(BackendErrorKind::NotFound, format!("there is no template {name}"));
        let template = wait_for("the template is still locked", TEMPLATE, async || {
            let template = self.find_template(name).await?.ok_or_else(missing)?;
            Ok((template.text_of("status") != Some("locked")).then_some(template))
        })
        .await?;
        let id = id(&template)?;
        let disks = self
            .session
            .get(&format!("/templates/{id}/diskattachments"), &[])
            .await?;
        let bootable = disks.iter().any(|disk| disk.text_of("bootable") == Some("true"));
        let disks: Vec<_> = disks
            .iter()
            .filter_map(|disk| disk.get("id"))
            .map(str::to_owned)
            .collect();
        if !bootable {
            let words = format!("template {name} has no bootable disk");
            return Err(Failure::new(BackendErrorKind::Rejected, words)
                .hint("choose a template of a cloud image, or a qcow2 file"));
        }
        Ok(Template { id, disks })
    }

    pub(super) async fn find_template(&self, name: &str) -> Result<Option<Element>, Failure> {
        let named = self.session.named("/templates", name).await?;
        let version = |template: &Element| {
            let number = template.text_of("version/version_number");
            number.and_then(|number| number.parse::<u32>().ok())
        };
        Ok(named.into_iter().max_by_key(version))
    }

    /// Whether this cluster creates the template. If another cluster does, waits for it as long as it makes progress.
    async fn claim(&self, image: &Upload<'_>) -> Result<bool, Failure> {
        let path = format!("/disks/{}", image.disk);
        let (mut before, mut since, mut backoff) = (None, Instant::now(), pauses());
        while self.find_template(&image.name).await?.is_none() {
            let Some(disk) = if_there(self.session.get(&path, &[]).await)? else {
                // The cluster that creates the disk creates the template.
                if self.add_image_disk(image).await? {
                    return Ok(true);
                }
                continue;
            };
            if disk.text_of("description") == Some(&*image.disk_mark()) {
                return Ok(true);
            }
            let transfer = self.transfer_of(&image.disk).await?;
            let field = |name: &str| transfer.as_ref()?.text_of(name).map(str::to_owned);
            let has_scaffold = self.scaffold(&image.name).await?.is_some();
            let status = disk.text_of("status").map(str::to_owned);
            let now = Some((field("phase"), field("transferred"), status, has_scaffold));
            if now != before {
                (before, since) = (now, Instant::now());
            } else if since.elapsed() > STALLED {
                tracing::info!(
                    "image {}: the upload of another cluster was abandoned and continues here",
                    image.path.display()
                );
                // A disk that is locked by its upload keeps its description, and so does each disk of an engine before
                // 4.4, where "the only field that can be updated is `qcow_version`" (oVirt/ovirt-engine-api-model:
                // `services/DiskService.java`, `Update`, before its `@since 4.4.0`). The next run waits again.
                if disk.text_of("status") == Some("ok") {
                    let ours = Element::new("disk").with("description", image.disk_mark());
                    if_free(self.session.put(&path, &ours).await)?;
                }
                return Ok(true);
            }
            sleep(backoff.pause(None)).await;
        }
        Ok(false)
    }

    /// `false`: another run created it.
    async fn add_image_disk(&self, image: &Upload<'_>) -> Result<bool, Failure> {
        let size = virtual_size(image.path).await?;
        let storage = self.storage_domain(self.site().await?).await?;
        let disk = wire::image_disk(
            &image.disk,
            &image.name,
            &image.disk_mark(),
            size,
            image.bytes,
            &storage,
        );
        Ok(if_free(self.session.post("/disks", &[], &disk).await)?.is_some())
    }

    /// After a cancelled upload the engine removes its disk, or leaves it illegal.
    async fn discard_disk(&self, image: &Upload<'_>) -> Result<(), Failure> {
        match self.disk_status(&image.disk).await?.as_deref() {
            None | Some("ok") => Ok(()),
            Some(_) => self.remove_disk(&image.disk).await,
        }
    }

    /// `false`: the upload was cancelled.
    async fn make_template(&self, image: &Upload<'_>) -> Result<bool, Failure> {
        let vm = match self.scaffold(&image.name).await? {
            Some(vm) => id(&vm)?,
            None => {
                if !self.upload(image).await? {
                    return Ok(false);
                }
                let vm = Element::new("vm")
                    .with("comment", image.mark())
                    .with("name", &image.name)
                    .child(Element::new("cluster").with("name", &self.config.cluster))
                    .child(Element::new("template").with("name", "Blank"));
                match if_free(self.session.post("/vms", &[], &vm).await)? {
                    Some(vm) => id(&vm)?,
                    None => return conflict(format!("machine name {} is in use", image.name)),
                }
            }
        };
        self.attach(&format!("/vms/{vm}/diskattachments"), &image.disk).await?;
        let template = Element::new("template")
            .with("description", image.mark())
            .with("name", &image.name)
            .child(wire::reference("vm", &vm));
        if_free(self.session.post("/templates", &[], &template).await)?;
        Ok(true)
    }

    /// Attaches the disk of an image. The engine creates a template also of a machine without a disk, so a conflict is an
    /// error unless the disk is attached already.
    async fn attach(&self, path: &str, disk: &str) -> Result<(), Failure> {
        let is_attached = async || {
            let attachments = self.session.get(path, &[]).await?;
            Ok::<_, Failure>(attachments.iter().any(|attachment| attachment.get("id") == Some(disk)))
        };
        if is_attached().await? {
            return Ok(());
        }
        match self.session.post(path, &[], &wire::attachment(disk, true)).await {
            Err(failure) if failure.kind == BackendErrorKind::Conflict && is_attached().await? => Ok(()),
            attached => attached.map(drop),
        }
    }

    /// The machine from which the template is created.
    async fn scaffold(&self, name: &str) -> Result<Option<Element>, Failure> {
        let named = self.session.named("/vms", name).await?.into_iter().next();
        match named {
            Some(vm) if !is_of_image(&vm, "comment", name) => {
                conflict(format!("machine {name} exists and was not created for this image"))
            }
            vm => Ok(vm),
        }
    }

    /// The template has a copy of the disk, so machine and disk are removed.
    async fn remove_scaffold(&self, name: &str) -> Result<(), Failure> {
        if let Some(vm) = self.scaffold(name).await? {
            self.remove_vm(&id(&vm)?).await?;
        }
        let disk = image_disk(name);
        match if_there(self.session.get(&format!("/disks/{disk}"), &[]).await)? {
            Some(there) if is_of_image(&there, "description", name) => self.remove_disk(&disk).await,
            _ => Ok(()),
        }
    }

    /// Creates the cluster's tag, or adds an image to it.
    pub(super) async fn ensure_tag(&self, cluster: &ClusterId, image: Option<&str>) -> Result<(), Failure> {
        let _one_at_a_time = self.tags.lock().await;
        let name = wire::tag_name(cluster);
        let named = |tag: &Element| tag.text_of("name") == Some(name.as_str());
        let find = async || {
            Ok::<_, Failure>(
                self.session
                    .get("/tags", &[])
                    .await?
                    .into_children()
                    .into_iter()
                    .find(named),
            )
        };
        let there = match find().await? {
            Some(there) => there,
            None => {
                let tag = Tag {
                    cluster: cluster.to_string(),
                    images: image.map(str::to_owned).into_iter().collect(),
                };
                if if_free(self.session.post("/tags", &[], &tag.element()).await)?.is_some() {
                    return Ok(());
                }
                // Another run of this cluster created it meanwhile.
                match find().await? {
                    Some(there) => there,
                    None => return conflict(format!("tag {name} cannot be created: its name is in use")),
                }
            }
        };
        let Some(mut tag) = Tag::read(&there).filter(|tag| tag.cluster == cluster.as_str()) else {
            return conflict(format!("tag {name} exists and is not of this cluster"));
        };
        if let Some(image) = image.filter(|image| !tag.images.contains(*image)) {
            tag.images.insert(image.to_owned());
            self.session
                .put(&format!("/tags/{}", id(&there)?), &tag.element())
                .await?;
        }
        Ok(())
    }

    /// For people: the comment defines the owner.
    pub(super) async fn tag_machine(&self, cluster: &ClusterId, vm: &str) -> Result<(), Failure> {
        if self.session.is_filtered() {
            return Ok(());
        }
        self.ensure_tag(cluster, None).await?;
        let (name, path) = (wire::tag_name(cluster), format!("/vms/{vm}/tags"));
        let there = self.session.get(&path, &[]).await?;
        if !there.iter().any(|tag| tag.text_of("name") == Some(name.as_str())) {
            if_free(
                self.session
                    .post(&path, &[], &Element::new("tag").with("name", name))
                    .await,
            )?;
        }
        Ok(())
    }

    pub(super) async fn owned_images(&self, cluster: &ClusterId) -> Result<Vec<Owned>, Failure> {
        let Some(tags) = self.if_permitted(self.session.get("/tags", &[]).await)? else {
            return Ok(Vec::new());
        };
        let ours = tags
            .iter()
            .filter_map(Tag::read)
            .filter(|tag| tag.cluster == cluster.as_str());
        Ok(ours
            .flat_map(|tag| tag.images)
            .map(|name| Owned {
                kind: "template".to_owned(),
                name,
            })
            .collect())
    }

    /// The clusters that have a tag.
    pub(super) async fn clusters_with_images(&self) -> Result<Vec<ClusterId>, Failure> {
        let tags = self.if_permitted(self.session.get("/tags", &[]).await)?;
        let tags = tags.iter().flat_map(Element::iter).filter_map(Tag::read);
        Ok(tags.filter_map(|tag| ClusterId::read(&tag.cluster)).collect())
    }

    /// Removes the cluster's tag, and the images that no other cluster uses.
    pub(super) async fn release_images(&self, cluster: &ClusterId) -> Result<(), Failure> {
        let _one_at_a_time = self.tags.lock().await;
        let Some(tags) = self.if_permitted(self.session.get("/tags", &[]).await)? else {
            return Ok(());
        };
        let all: Vec<_> = tags.iter().filter_map(|tag| Some((tag, Tag::read(tag)?))).collect();
        let (ours, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, tag)| tag.cluster == cluster.as_str());
        for (element, tag) in ours {
            for image in tag
                .images
                .iter()
                .filter(|image| !others.iter().any(|(_, other)| other.images.contains(*image)))
            {
                self.remove_image(image).await?;
            }
            self.session.delete(&format!("/tags/{}", id(element)?)).await?;
        }
        Ok(())
    }

    async fn remove_image(&self, name: &str) -> Result<(), Failure> {
        if let Some(transfer) = self.transfer_of(&image_disk(name)).await? {
            let path = format!("/imagetransfers/{}/cancel", id(&transfer)?);
            match self.session.post(&path, &[], &Element::new("action")).await {
                // It ended meanwhile.
                Err(failure) if [BackendErrorKind::Conflict, BackendErrorKind::NotFound].contains(&failure.kind) => {}
                cancelled => drop(cancelled?),
            }
        }
        self.remove_scaffold(name).await?;
        let template = self.find_template(name).await?;
        // Anyone with permission to write tags can add names to a tag.
        let Some(template) = template.filter(|template| is_of_image(template, "description", name)) else {
            return Ok(());
        };
        let path = format!("/templates/{}", id(&template)?);
        if let Err(failure) = self.session.delete(&path).await {
            if failure.kind != BackendErrorKind::Conflict {
                return Err(failure);
            }
            // Others created machines from it.
            tracing::warn!("template {name} is kept: {}", failure.message);
            return Ok(());
        }
        wait_for("the template is not removed", TEMPLATE, async || {
            Ok(if_there(self.session.get(&path, &[]).await)?.is_none().then_some(()))
        })
        .await
    }
}
