//! Images: a local qcow2 file becomes a template that all clusters share. Its name contains the digest.
//!
//! Names and ids that come from a digest can be computed by anyone, so an object is used or deleted only with the mark of
//! its image. `compare_disk` describes what the mark proves.
//!
//! The steps are disk, upload, a machine that is never started, template. That machine is created after the upload is
//! finalized, so its existence means that the disk is complete. Earlier steps are repeated after a crash.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::engine::Ovirt;
use super::session::{conflict, if_free, is_conflict, or_existing, pauses, wait_for};
use super::upload::{IMAGE_MARK, ImageUpload, image_disk, image_name, is_image_name, virtual_size};
use super::wire::id;
use super::wire::{self, ClusterTag};
use crate::backend::error::if_exists;
use crate::backend::{BackendError, BackendErrorKind, ImageHandle, ImageRequest, Owned};
use crate::cluster::ClusterId;
use crate::printable::count;
use crate::xml::Element;

const TEMPLATE: Duration = Duration::from_secs(3600);
/// An upload of another cluster is abandoned after this time without progress.
const STALLED: Duration = Duration::from_secs(60);
/// How often an upload is started.
const UPLOADS: usize = 3;
/// vdsm rounds the size of a new disk up to this (oVirt/vdsm: lib/vdsm/storage/volume.py, `Volume.create`), and the engine
/// adopts that size (oVirt/ovirt-engine: `BaseImagesCommand.endSuccessfully`).
const DISK_BLOCK: u64 = 4096;

/// The template of machines.
pub(super) struct Template {
    pub id: String,
    /// Ids of its disks.
    pub disks: Vec<String>,
}

/// Whether a machine, disk or template was created for the image of this name: it has the text of `ImageUpload::mark`.
fn is_of_image(thing: &Element, field: &str, name: &str) -> bool {
    let mark = thing.text_of(field).and_then(|text| text.strip_prefix(IMAGE_MARK));
    let sha256 = mark.and_then(|text| text.split(',').next());
    sha256.is_some_and(|sha256| image_name(sha256) == name)
}

fn version(template: &Element) -> Option<u32> {
    template.text_of("version/version_number")?.parse().ok()
}

/// The template that was created for the image of this name, of all templates of this name.
///
/// It is the first version: this program adds none, and others can (oVirt/ovirt-engine:
/// `AddVmTemplateCommand.getPermissionCheckSubjects` requires a role on the data center, none on the template).
fn of_image(named: Vec<Element>, name: &str) -> Option<Element> {
    let ours = named
        .into_iter()
        .filter(|template| is_of_image(template, "description", name));
    ours.min_by_key(version)
}

/// The error for a template that has the name of an image, but was not uploaded for it.
fn not_uploaded(template: &Element, why: &str) -> BackendError {
    let text = |field: &str| template.text_of(field).unwrap_or_default();
    let id = template.get("id").unwrap_or_default();
    let words = format!(
        "template {} (id {id}, created {}) {why}",
        text("name"),
        text("creation_time")
    );
    BackendError::new(BackendErrorKind::Conflict, words).hint(
        "any user who may create templates can have created it: delete it, or rename it and set image or harvest_image to its new \
         name",
    )
}

impl Ovirt {
    pub(super) async fn provide_image(
        &self,
        cluster: &ClusterId,
        image: &ImageRequest,
    ) -> Result<ImageHandle, BackendError> {
        match image {
            ImageRequest::Platform(name) => {
                self.template(name).await?;
                Ok(ImageHandle(name.clone()))
            }
            ImageRequest::File {
                path, sha256, bytes, ..
            } => {
                let data_center = &self.site().await?.data_center;
                let upload = ImageUpload::new(cluster, data_center, path, sha256, *bytes);
                // Before the tag, because `destroy` treats a tagged template with our mark as ours. While a template is
                // locked, it lacks disks.
                if let Some(template) = self.find_template(&upload.name).await?
                    && template.text_of("status") != Some("locked")
                    && !self.session.is_filtered()
                {
                    if_exists(self.compare_disk(&template, &upload).await)?;
                }
                // Before the upload, so that `destroy` finds an abandoned one.
                let tagged = self.ensure_tag(cluster, Some(&upload.name)).await;
                if self.if_permitted(tagged)?.is_none() {
                    let words = "an upload to oVirt requires an administrator";
                    return Err(BackendError::new(BackendErrorKind::Denied, words)
                        .hint("set image and harvest_image to the names of existing templates"));
                }
                let mut begun = 0;
                while self.claim(&upload).await? && !self.make_template(&upload).await? {
                    begun += 1;
                    if begun == UPLOADS {
                        let words = format!("the upload was cancelled {UPLOADS} times");
                        return Err(BackendError::new(BackendErrorKind::Rejected, words)
                            .hint("the engine's events contain the reason"));
                    }
                    self.discard_disk(&upload).await?;
                }
                let template = self.usable_template(&upload.name).await?;
                self.compare_disk(&template, &upload).await?;
                if let Some((words, _)) = self.layers_elsewhere(&template).await? {
                    tracing::warn!("{words}");
                }
                self.remove_scaffold(&upload.name).await?;
                Ok(ImageHandle(upload.name))
            }
        }
    }

    /// A template by its name, once it can be used.
    pub(super) async fn template(&self, name: &str) -> Result<Template, BackendError> {
        let id = id(&self.usable_template(name).await?)?;
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
            return Err(BackendError::new(BackendErrorKind::Rejected, words)
                .hint("choose a template of a cloud image, or a qcow2 file"));
        }
        Ok(Template { id, disks })
    }

    async fn usable_template(&self, name: &str) -> Result<Element, BackendError> {
        let mut was_locked = false;
        let template = wait_for("the template is still locked", TEMPLATE, async || {
            let template = self.find_template(name).await?;
            let is_locked = template.as_ref().and_then(|template| template.text_of("status")) == Some("locked");
            was_locked |= is_locked;
            Ok((!is_locked).then_some(template))
        })
        .await?;
        match template {
            Some(template) if template.text_of("status") == Some("illegal") => Err(self
                .session
                .failed(&format!("template {name} has status illegal"))
                .await),
            Some(template) => Ok(template),
            // oVirt/ovirt-engine: `AddVmTemplateCommand.endWithFailure` removes it.
            None if was_locked => Err(self
                .session
                .failed(&format!("the engine removed template {name}"))
                .await),
            None => Err(BackendError::new(
                BackendErrorKind::NotFound,
                format!("template {name} does not exist"),
            )),
        }
    }

    /// The newest version of a template. With the name of an image, its upload; any other one is a conflict.
    pub(super) async fn find_template(&self, name: &str) -> Result<Option<Element>, BackendError> {
        let named = self.named_here("/templates", name).await?;
        if !is_image_name(name) {
            return Ok(named.into_iter().max_by_key(version));
        }
        let other = named.first().cloned();
        match (of_image(named, name), other) {
            (None, Some(other)) => Err(not_uploaded(&other, "was not uploaded by this program")),
            (ours, _) => Ok(ours),
        }
    }

    async fn template_disks(&self, template: &Element) -> Result<Vec<Element>, BackendError> {
        let path = format!("/templates/{}/diskattachments", id(template)?);
        let attachments = self.session.get(&path, &[("follow", "disk")]).await?;
        let disks = attachments.iter().filter_map(|attachment| attachment.find("disk"));
        Ok(disks.cloned().collect())
    }

    /// A warning if disks of the template's machines are layers on another storage domain than `ovirt_storage_domain`, and
    /// that domain.
    pub(super) async fn layers_elsewhere(&self, template: &Element) -> Result<Option<(String, Element)>, BackendError> {
        let wanted = self.config.storage_domain.as_ref().filter(|_| !self.config.clone);
        // Other users may not read the disks of a template.
        let Some(wanted) = wanted.filter(|_| !self.session.is_filtered()) else {
            return Ok(None);
        };
        let disks = self.template_disks(template).await?;
        let on: BTreeSet<_> = disks
            .iter()
            .flat_map(|disk| disk.all("storage_domains/storage_domain"))
            .filter_map(|domain| domain.get("id"))
            .collect();
        let is_elsewhere = |domain: &Element| {
            let is_on = domain.get("id").is_some_and(|id| on.contains(id));
            is_on && domain.text_of("name") != Some(wanted)
        };
        let domains = self.domains(self.site().await?).await?;
        Ok(domains.into_iter().find(is_elsewhere).map(|domain| {
            let name = |element: &Element| element.text_of("name").unwrap_or_default().to_owned();
            let words = format!(
                "machines of template {} get disks on its storage domain {}, not on {wanted}",
                name(template),
                name(&domain)
            );
            (words, domain)
        }))
    }

    /// Compares the only disk of an image's template with the file. Another one is a conflict.
    ///
    /// A template's disk has description and size of the disk that it was copied from (oVirt/ovirt-engine:
    /// `CreateAllTemplateDisksCommand.buildCreateImageTemplateCommandParameters`). Its actual size depends on the storage.
    ///
    /// This excludes other templates, not forged ones: the creator of a template chooses all of these texts. The
    /// content cannot be compared. The API has no digest of a disk (oVirt/ovirt-engine-api-model: `types/Disk.java`).
    /// ovirt-imageio computes one, of the blocks that a guest sees, only within a transfer, and reads the whole disk
    /// for it (oVirt/ovirt-imageio: ovirt_imageio/_internal/handlers/checksum.py).
    async fn compare_disk(&self, template: &Element, image: &ImageUpload<'_>) -> Result<(), BackendError> {
        let disks = self.template_disks(template).await?;
        let why = match disks.as_slice() {
            [disk] if !is_of_image(disk, "description", &image.name) => {
                "has a disk that was not uploaded by this program".to_owned()
            }
            // A downloaded file can be removed from the cache after its upload.
            [_] if !image.path.exists() => return Ok(()),
            [disk] => {
                let size = disk
                    .text_of("provisioned_size")
                    .and_then(|size| size.parse::<u64>().ok());
                let (size, wanted) = (size.unwrap_or_default(), virtual_size(image.path).await?);
                if size.div_ceil(DISK_BLOCK) == wanted.div_ceil(DISK_BLOCK) {
                    return Ok(());
                }
                format!(
                    "has a disk of {size} bytes, and image {} has {wanted}",
                    image.path.display()
                )
            }
            disks => format!("has {}, and an image has one", count(disks.len(), "disk")),
        };
        Err(not_uploaded(template, &why))
    }

    /// Whether this cluster creates the template. If another cluster does, waits for it as long as it makes progress.
    async fn claim(&self, image: &ImageUpload<'_>) -> Result<bool, BackendError> {
        let path = format!("/disks/{}", image.disk);
        let (mut before, mut since, mut backoff) = (None, Instant::now(), pauses());
        let find = async || if_exists(self.session.get(&path, &[]).await);
        while self.find_template(&image.name).await?.is_none() {
            // The cluster that creates the disk creates the template.
            let disk = match find().await? {
                Some(disk) => disk,
                None => or_existing(self.add_image_disk(image).await, find).await?,
            };
            if !is_of_image(&disk, "description", &image.name) {
                return conflict(format!("disk {} exists and was not created for this image", image.disk));
            }
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

    async fn add_image_disk(&self, image: &ImageUpload<'_>) -> Result<Element, BackendError> {
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
        self.session.post("/disks", &[], &disk).await
    }

    /// After a cancelled upload the engine removes its disk, or leaves it illegal.
    async fn discard_disk(&self, image: &ImageUpload<'_>) -> Result<(), BackendError> {
        match self.disk_status(&image.disk).await?.as_deref() {
            None | Some("ok") => Ok(()),
            Some(_) => self.remove_disk(&image.disk).await,
        }
    }

    /// `false`: the upload was cancelled.
    async fn make_template(&self, image: &ImageUpload<'_>) -> Result<bool, BackendError> {
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
                let added = self.session.post("/vms", &[], &vm).await;
                id(&or_existing(added, async || self.scaffold(&image.name).await).await?)?
            }
        };
        self.attach(&format!("/vms/{vm}/diskattachments"), &image.disk, true)
            .await?;
        let template = Element::new("template")
            .with("description", image.mark())
            .with("name", &image.name)
            .child(wire::reference("vm", &vm));
        let created = self.session.post("/templates", &[], &template).await;
        or_existing(created, async || self.find_template(&image.name).await).await?;
        Ok(true)
    }

    /// Attaches a disk to a machine, unless it is attached. The engine would also start a machine that lacks the disk,
    /// or create a template from it.
    pub(super) async fn attach(&self, path: &str, disk: &str, bootable: bool) -> Result<(), BackendError> {
        let is_its = |attachment: &Element| attachment.get("id") == Some(disk);
        let find = async || self.session.find(path, is_its).await;
        if find().await?.is_none() {
            let attached = self.session.post(path, &[], &wire::attachment(disk, bootable)).await;
            or_existing(attached, find).await?;
        }
        Ok(())
    }

    /// The machine from which the template is created. Another one of its name is a conflict.
    async fn scaffold(&self, name: &str) -> Result<Option<Element>, BackendError> {
        let named = self.named_here("/vms", name).await?.into_iter().next();
        match named {
            Some(vm) if !is_of_image(&vm, "comment", name) => {
                conflict(format!("machine {name} exists and was not created for this image"))
            }
            vm => Ok(vm),
        }
    }

    /// The template has a copy of the disk, so machine and disk are removed.
    async fn remove_scaffold(&self, name: &str) -> Result<(), BackendError> {
        // A machine of another owner is kept.
        if let Some(vm) = if_free(self.scaffold(name).await)?.flatten() {
            self.remove_vm(&id(&vm)?).await?;
        }
        match self.uploaded_disk(name).await? {
            Some(disk) => self.remove_disk(&disk).await,
            None => Ok(()),
        }
    }

    /// The id of the disk that was uploaded for an image.
    async fn uploaded_disk(&self, name: &str) -> Result<Option<String>, BackendError> {
        let id = image_disk(&self.site().await?.data_center, name);
        let disk = if_exists(self.session.get(&format!("/disks/{id}"), &[]).await)?;
        Ok(disk.filter(|disk| is_of_image(disk, "description", name)).map(|_| id))
    }

    /// Creates the cluster's tag, or adds an image to it.
    pub(super) async fn ensure_tag(&self, cluster: &ClusterId, image: Option<&str>) -> Result<(), BackendError> {
        let _one_at_a_time = self.tags.lock().await;
        let name = wire::tag_name(cluster);
        let named = |tag: &Element| tag.text_of("name") == Some(name.as_str());
        let find = async || self.session.find("/tags", named).await;
        let there = match find().await? {
            Some(there) => there,
            None => {
                let tag = ClusterTag {
                    cluster: cluster.clone(),
                    data_center: Some(self.site().await?.data_center.clone()),
                    images: image.map(str::to_owned).into_iter().collect(),
                };
                or_existing(self.session.post("/tags", &[], &tag.element()).await, find).await?
            }
        };
        let Some(mut tag) = ClusterTag::read(&there).filter(|tag| tag.cluster == *cluster) else {
            return conflict(format!("tag {name} exists and is not owned by this cluster"));
        };
        if let Some(image) = image.filter(|image| !tag.images.contains(*image)) {
            tag.images.insert(image.to_owned());
            self.session
                .put(&format!("/tags/{}", id(&there)?), &tag.element())
                .await?;
        }
        Ok(())
    }

    /// Adds the cluster's tag to a machine, only for people: the comment defines the owner. Without the permit
    /// `tag_management`, an administrator's machines have no tags.
    pub(super) async fn tag_machine(&self, cluster: &ClusterId, vm: &str) -> Result<(), BackendError> {
        if self.session.is_filtered() {
            return Ok(());
        }
        let tagged = async {
            self.ensure_tag(cluster, None).await?;
            let (name, path) = (wire::tag_name(cluster), format!("/vms/{vm}/tags"));
            let there = self.session.get(&path, &[]).await?;
            if !there.iter().any(|tag| tag.text_of("name") == Some(name.as_str())) {
                let tag = Element::new("tag").with("name", name);
                self.session.post(&path, &[], &tag).await?;
            }
            Ok::<_, BackendError>(())
        };
        match tagged.await {
            Err(failure) if failure.kind == BackendErrorKind::Denied => {
                tracing::info!("the machine gets no oVirt tag: {}", failure.message);
                Ok(())
            }
            tagged => tagged,
        }
    }

    pub(super) async fn owned_images(&self, cluster: &ClusterId) -> Result<Vec<Owned>, BackendError> {
        let Some(tags) = self.if_permitted(self.session.get("/tags", &[]).await)? else {
            return Ok(Vec::new());
        };
        let ours = tags
            .iter()
            .filter_map(ClusterTag::read)
            .filter(|tag| tag.cluster == *cluster);
        Ok(ours
            .flat_map(|tag| tag.images)
            .map(|name| Owned {
                kind: "template".to_owned(),
                name,
            })
            .collect())
    }

    /// The clusters that have a tag.
    pub(super) async fn clusters_with_images(&self) -> Result<Vec<ClusterId>, BackendError> {
        let tags = self.if_permitted(self.session.get("/tags", &[]).await)?;
        let tags = tags.iter().flat_map(Element::iter).filter_map(ClusterTag::read);
        Ok(tags.map(|tag| tag.cluster).collect())
    }

    /// Removes the cluster's tag, and the images that no other cluster uses.
    pub(super) async fn release_images(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        let _one_at_a_time = self.tags.lock().await;
        let Some(tags) = self.if_permitted(self.session.get("/tags", &[]).await)? else {
            return Ok(());
        };
        let all: Vec<_> = tags
            .iter()
            .filter_map(|tag| Some((tag, ClusterTag::read(tag)?)))
            .collect();
        let (ours, mut others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, tag)| tag.cluster == *cluster);
        let data_center = &self.site().await?.data_center;
        others.retain(|(_, other)| other.data_center.as_ref().is_none_or(|id| id == data_center));
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

    async fn remove_image(&self, name: &str) -> Result<(), BackendError> {
        if let Some(disk) = self.uploaded_disk(name).await?
            && let Some(transfer) = self.transfer_of(&disk).await?
        {
            let path = format!("/imagetransfers/{}/cancel", id(&transfer)?);
            match self.session.post(&path, &[], &Element::new("action")).await {
                // It has ended.
                Err(failure) if is_conflict(&failure) || failure.kind == BackendErrorKind::NotFound => {}
                cancelled => drop(cancelled?),
            }
        }
        self.remove_scaffold(name).await?;
        // Anyone with permission to write tags can add names to a tag.
        let Some(template) = of_image(self.named_here("/templates", name).await?, name) else {
            return Ok(());
        };
        let path = format!("/templates/{}", id(&template)?);
        if let Err(failure) = self.session.delete(&path).await {
            if !is_conflict(&failure) {
                return Err(failure);
            }
            // Others created machines from it.
            tracing::warn!("template {name} is kept: {}", failure.message);
            return Ok(());
        }
        wait_for("the template is not removed", TEMPLATE, async || {
            Ok(if_exists(self.session.get(&path, &[]).await)?.is_none().then_some(()))
        })
        .await
    }
}
