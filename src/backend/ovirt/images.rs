//! Images: a local qcow2 becomes a template that all clusters share, named by its digest.
//!
//! The way is disk, upload, a machine that is never started, template. That machine is made only after the upload was
//! finalized, so that its existence says that the disk is whole; all before is done again after a crash.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::engine::Ovirt;
use super::session::{conflict, if_free, if_there, pauses, wait_for};
use super::upload::{IMAGE_MARK, LocalImage, Upload, image_disk, image_name};
use super::wire::id;
use super::wire::{self, Tag};
use crate::backend::failure::Failure;
use crate::backend::{BackendErrorKind, ImageHandle, ImageRequest, Owned};
use crate::cluster::ClusterId;
use crate::xml::Element;

const TEMPLATE: Duration = Duration::from_secs(3600);
/// An image that another cluster brings and that has not come on for so long is given up by its bringer.
const STALLED: Duration = Duration::from_secs(60);

/// What machines are made from.
pub(super) struct Template {
    pub id: String,
    /// Ids of its disks.
    pub disks: Vec<String>,
}

/// Whether machine, disk or template were made for the image of this name, as `Upload::mark` says there.
fn is_of_image(thing: &Element, field: &str, name: &str) -> bool {
    let mark = thing.text_of(field).and_then(|text| text.strip_prefix(IMAGE_MARK));
    let sha256 = mark.and_then(|text| text.split(',').next());
    sha256.is_some_and(|sha256| image_name(sha256) == name)
}

impl Ovirt {
    pub(super) async fn bring_image(&self, cluster: &ClusterId, image: &ImageRequest) -> Result<ImageHandle, Failure> {
        match image {
            ImageRequest::Platform(name) => {
                self.template(name).await?;
                Ok(ImageHandle(name.clone()))
            }
            ImageRequest::File { path, sha256, bytes } => {
                let upload = Upload::new(cluster, path, sha256, *bytes);
                // First, so that an upload that is given up is found by `destroy`.
                let tagged = self.ensure_tag(cluster, Some(&upload.name)).await;
                if self.shown_to_users(tagged)?.is_none() {
                    let words = "bringing an image to oVirt takes an administrator's role";
                    return Err(Failure::new(BackendErrorKind::Denied, words)
                        .hint("name templates that are there: image, helper_image"));
                }
                if self.claim(&upload).await? {
                    self.make_template(&upload).await?;
                }
                self.template(&upload.name).await?;
                self.remove_scaffold(&upload.name).await?;
                Ok(ImageHandle(upload.name))
            }
        }
    }

    /// A template by its name, the newest version of it, once it can be used.
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
            let words = format!("template {name} has no disk to boot from");
            return Err(Failure::new(BackendErrorKind::Rejected, words)
                .hint("name a template of a cloud image, or a qcow2 file"));
        }
        Ok(Template { id, disks })
    }

    async fn find_template(&self, name: &str) -> Result<Option<Element>, Failure> {
        let named = self.session.named("/templates", name).await?;
        let version = |template: &Element| {
            let number = template.text_of("version/version_number");
            number.and_then(|number| number.parse::<u32>().ok())
        };
        Ok(named.into_iter().max_by_key(version))
    }

    /// Whether it is for this cluster to make the template. One that another cluster makes is waited for, as long as it comes on.
    async fn claim(&self, image: &Upload<'_>) -> Result<bool, Failure> {
        let path = format!("/disks/{}", image.disk);
        let (mut before, mut since, mut backoff) = (None, Instant::now(), pauses());
        while self.find_template(&image.name).await?.is_none() {
            let Some(disk) = if_there(self.session.get(&path, &[]).await)? else {
                // Whoever makes the disk has it.
                if self.add_image_disk(image).await? {
                    return Ok(true);
                }
                continue;
            };
            if disk.text_of("description") == Some(&*image.disk_mark()) {
                return Ok(true);
            }
            let transfer = self.transfer_of(&image.disk).await?;
            let word = |name: &str| {
                transfer
                    .as_ref()
                    .and_then(|transfer| transfer.text_of(name))
                    .map(str::to_owned)
            };
            let has_scaffold = self.scaffold(&image.name).await?.is_some();
            let status = disk.text_of("status").map(str::to_owned);
            let now = Some((word("phase"), word("transferred"), status, has_scaffold));
            if now != before {
                (before, since) = (now, Instant::now());
            } else if since.elapsed() > STALLED {
                tracing::info!(
                    "image {}: its upload for another cluster has stopped and goes on here",
                    image.path.display()
                );
                // An upload that was begun locks it, and then it keeps the mark of whoever began.
                if disk.text_of("status") == Some("ok") {
                    let ours = Element::new("disk").with("description", image.disk_mark());
                    self.session.put(&path, &ours).await?;
                }
                return Ok(true);
            }
            sleep(backoff.pause(None)).await;
        }
        Ok(false)
    }

    /// `false`: another was quicker.
    async fn add_image_disk(&self, image: &Upload<'_>) -> Result<bool, Failure> {
        let size = LocalImage::open(image).await?.virtual_size;
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

    async fn make_template(&self, image: &Upload<'_>) -> Result<(), Failure> {
        let vm = match self.scaffold(&image.name).await? {
            Some(vm) => id(&vm)?,
            None => {
                self.upload(image).await?;
                let vm = Element::new("vm")
                    .with("comment", image.mark())
                    .with("name", &image.name)
                    .child(Element::new("cluster").with("name", &self.config.cluster))
                    .child(Element::new("template").with("name", "Blank"));
                match if_free(self.session.post("/vms", &[], &vm).await)? {
                    Some(vm) => id(&vm)?,
                    None => return conflict(format!("the name {} is taken by a machine", image.name)),
                }
            }
        };
        let attach = wire::attachment(&image.disk, true);
        if_free(
            self.session
                .post(&format!("/vms/{vm}/diskattachments"), &[], &attach)
                .await,
        )?;
        let template = Element::new("template")
            .with("description", image.mark())
            .with("name", &image.name)
            .child(wire::reference("vm", &vm));
        if_free(self.session.post("/templates", &[], &template).await)?;
        Ok(())
    }

    /// The machine from which a template is made.
    async fn scaffold(&self, name: &str) -> Result<Option<Element>, Failure> {
        let named = self.session.named("/vms", name).await?.into_iter().next();
        match named {
            Some(vm) if !is_of_image(&vm, "comment", name) => {
                conflict(format!("machine {name} has a name of ours and is a stranger's"))
            }
            vm => Ok(vm),
        }
    }

    /// The template has a copy of the disk.
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

    /// The cluster's tag, with an image added to what it uses.
    pub(super) async fn ensure_tag(&self, cluster: &ClusterId, image: Option<&str>) -> Result<(), Failure> {
        let _one_at_a_time = self.tags.lock().await;
        let tags = self.session.get("/tags", &[]).await?;
        let name = wire::tag_name(cluster);
        let Some(there) = tags.iter().find(|tag| tag.text_of("name") == Some(name.as_str())) else {
            let tag = Tag {
                cluster: cluster.to_string(),
                images: image.map(str::to_owned).into_iter().collect(),
            };
            return self.session.post("/tags", &[], &tag.element()).await.map(drop);
        };
        let Some(mut tag) = Tag::read(there).filter(|tag| tag.cluster == cluster.as_str()) else {
            return conflict(format!("tag {name} is a stranger's"));
        };
        if let Some(image) = image.filter(|image| !tag.images.contains(*image)) {
            tag.images.insert(image.to_owned());
            self.session
                .put(&format!("/tags/{}", id(there)?), &tag.element())
                .await?;
        }
        Ok(())
    }

    /// For people: the comment is what counts.
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
        let Some(tags) = self.shown_to_users(self.session.get("/tags", &[]).await)? else {
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

    /// The clusters that have a tag, with images or without.
    pub(super) async fn clusters_with_images(&self) -> Result<Vec<ClusterId>, Failure> {
        let tags = self.shown_to_users(self.session.get("/tags", &[]).await)?;
        let tags = tags.iter().flat_map(Element::iter).filter_map(Tag::read);
        Ok(tags.filter_map(|tag| ClusterId::read(&tag.cluster)).collect())
    }

    /// Removes the cluster's tag, and the images that no other cluster's names.
    pub(super) async fn release_images(&self, cluster: &ClusterId) -> Result<(), Failure> {
        let _one_at_a_time = self.tags.lock().await;
        let Some(tags) = self.shown_to_users(self.session.get("/tags", &[]).await)? else {
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
                // It ended by itself.
                Err(failure) if [BackendErrorKind::Conflict, BackendErrorKind::NotFound].contains(&failure.kind) => {}
                cancelled => drop(cancelled?),
            }
        }
        self.remove_scaffold(name).await?;
        let template = self.find_template(name).await?;
        // A tag names images, and is written by whoever may write tags.
        let Some(template) = template.filter(|template| is_of_image(template, "description", name)) else {
            return Ok(());
        };
        let path = format!("/templates/{}", id(&template)?);
        if let Err(failure) = self.session.delete(&path).await {
            if failure.kind != BackendErrorKind::Conflict {
                return Err(failure);
            }
            // Somebody else made machines from it.
            tracing::warn!("template {name} stays: {}", failure.message);
            return Ok(());
        }
        wait_for("the template is still there", TEMPLATE, async || {
            Ok(if_there(self.session.get(&path, &[]).await)?.is_none().then_some(()))
        })
        .await
    }
}
