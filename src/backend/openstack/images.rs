//! Images in Glance: uploaded once, shared by clusters, deleted with the last of them.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::fs::File;
use tokio::io::AsyncRead;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::auth::Service::Image as GLANCE;
use super::cloud::OpenStack;
use super::cloud::PAUSE;
use super::listing::has_tags;
use super::wire::{self, TAG, escape, query, some_of, text};
use crate::backend::{BackendError, BackendErrorKind, ImageHandle, ImageRequest};
use crate::cluster::{Architecture, ClusterId};
use crate::digest;

/// The property with the digest of the uploaded file.
const DIGEST: &str = "ocpdeploy_sha256";
/// The property with the URL from which Glance downloaded an image.
const SOURCE: &str = "ocpdeploy_url";
/// How long Glance may take to download an image.
const FETCHING: Duration = Duration::from_secs(3600);
/// The property of stored configs, with the machine that fetches it.
pub(super) const CONTENT: &str = "ocpdeploy_content";

impl OpenStack {
    pub(super) async fn image(&self, cluster: &ClusterId, request: &ImageRequest) -> Result<ImageHandle, BackendError> {
        match request {
            ImageRequest::Platform(url) if url.contains("://") => {
                let _alone = self.groups.lock().await;
                self.imported_image(cluster, url).await
            }
            ImageRequest::Platform(name) => self.named_image(name).await,
            ImageRequest::File { path, sha256, arch, .. } => {
                let _alone = self.groups.lock().await;
                match self.image_known_by(cluster, DIGEST, sha256, Some(path)).await? {
                    Some(id) => Ok(ImageHandle(id)),
                    None => self.upload(cluster, path, sha256, *arch).await,
                }
            }
        }
    }

    async fn named_image(&self, name: &str) -> Result<ImageHandle, BackendError> {
        let mut found = self.session.list_named(GLANCE, "/images", name, "images").await?;
        if found.is_empty() {
            found.extend(self.session.find(GLANCE, &format!("/images/{}", escape(name))).await?);
        }
        match found.as_slice() {
            [image] => {
                check_active(image)?;
                Ok(ImageHandle(text(image, "id").to_owned()))
            }
            [] => {
                let active = [("status", "active")];
                let all = self.session.list_where(GLANCE, "/images", &active, "images").await?;
                let names: Vec<_> = all.iter().map(|image| text(image, "name")).collect();
                let failure = BackendError::new(BackendErrorKind::NotFound, format!("image {name} does not exist"));
                Err(failure.hint(format!("existing images: {}", some_of(&names))))
            }
            several => {
                let message = format!("{} images have the name {name}", several.len());
                let failure = BackendError::new(BackendErrorKind::Conflict, message);
                Err(failure.hint("set the id of the image: list the ids with `openstack image list`"))
            }
        }
    }

    /// The project's image with this property and the bytes of the file, after adding the tag of the cluster. Remains of
    /// interrupted uploads are deleted.
    async fn image_known_by(
        &self,
        cluster: &ClusterId,
        key: &str,
        value: &str,
        file: Option<&Path>,
    ) -> Result<Option<String>, BackendError> {
        let path = query("/images", &[(key, value), ("tag", TAG), ("sort", "created_at:asc")]);
        let is_asked_for = |image: &Value| image[key] == value && has_tags(image, &[TAG]);
        let mut whole = None;
        for image in self.session.list_own(GLANCE, &path, "images", is_asked_for).await? {
            let (id, is_tagged) = (text(&image, "id"), has_tags(&image, &[cluster.tag()]));
            match text(&image, "status") {
                "active" if (whole.is_none() || is_tagged) && has_bytes_of(file, &image).await? => {
                    whole = Some((id.to_owned(), is_tagged));
                }
                "active" | "deactivated" => {}
                _ if is_tagged => drop(self.session.delete(GLANCE, &format!("/images/{id}")).await?),
                _ => {}
            }
        }
        let Some((id, is_tagged)) = whole else { return Ok(None) };
        if !is_tagged {
            let path = format!("/images/{id}/tags/{}", escape(cluster.tag()));
            match self.session.put_path(GLANCE, &path).await {
                // Its last cluster has released it.
                Err(failure) if failure.code == Some(404) => return Ok(None),
                other => drop(other?),
            }
        }
        Ok(Some(id))
    }

    async fn upload(
        &self,
        cluster: &ClusterId,
        path: &Path,
        sha256: &str,
        arch: Architecture,
    ) -> Result<ImageHandle, BackendError> {
        let unreadable = |error| BackendError::unreadable(path, &error);
        let name = path.file_stem().map(|name| name.to_string_lossy()).unwrap_or_default();
        let name = format!("{name}-{}", sha256.get(..12).unwrap_or(sha256));
        let mut image = new_image(&name, "qcow2", cluster, Some(arch));
        image[DIGEST] = json!(sha256);
        let file = File::open(path).await.map_err(unreadable)?;
        let bytes = file.metadata().await.map_err(unreadable)?.len();
        let created = self.session.post(GLANCE, "/images", &image).await?;
        let id = text(&created, "id").to_owned();
        let sent = self.send_image(&id, (file, bytes)).await;
        if let Err(failure) = sent {
            // An incomplete image can neither be used nor completed.
            self.session.delete(GLANCE, &format!("/images/{id}")).await?;
            return Err(failure);
        }
        Ok(ImageHandle(id))
    }

    /// The image that Glance has downloaded from a URL, or downloads now. Its bytes do not pass through this computer.
    async fn imported_image(&self, cluster: &ClusterId, url: &str) -> Result<ImageHandle, BackendError> {
        let source = Source::read(url)?;
        if source.sha512.is_none() {
            warn!(
                "the download of {} by Glance is not verified: append #sha512=… to the URL",
                source.url
            );
        }
        if let Some(id) = self.image_known_by(cluster, SOURCE, source.url, None).await? {
            let image = self.session.get(GLANCE, &format!("/images/{id}")).await?;
            source.compare(&image)?;
            return Ok(ImageHandle(id));
        }
        let methods = self.session.find(GLANCE, "/info/import").await?.unwrap_or_default();
        let mut methods = methods["import-methods"]["value"].as_array().into_iter().flatten();
        if !methods.any(|method| method == "web-download") {
            return Err(
                BackendError::new(BackendErrorKind::Denied, "this Glance does not support downloads")
                    .hint("remove os_image_import to download the image here and upload it"),
            );
        }
        let mut image = new_image(source.name, source.format, cluster, Architecture::in_name(source.name));
        image[SOURCE] = json!(source.url);
        let created = self.session.post(GLANCE, "/images", &image).await?;
        let path = format!("/images/{}", text(&created, "id"));
        let fetched = async {
            let order = json!({"method": {"name": "web-download", "uri": source.url}});
            let ordered = self.session.post(GLANCE, &format!("{path}/import"), &order).await;
            ordered.map_err(|failure| match failure.code {
                Some(400) => failure.hint(
                    "allow the URL in import_filtering_opts of Glance, or set os_image_import=false to download the image here",
                ),
                _ => failure,
            })?;
            let image = self.wait_for_import(&path, source.url).await?;
            source.compare(&image)
        };
        match fetched.await {
            Ok(()) => Ok(ImageHandle(text(&created, "id").to_owned())),
            Err(failure) => {
                self.session.delete(GLANCE, &path).await?;
                Err(failure)
            }
        }
    }

    async fn wait_for_import(&self, path: &str, url: &str) -> Result<Value, BackendError> {
        let begun = Instant::now();
        loop {
            let image = self.session.get(GLANCE, path).await?;
            if text(&image, "status") == "active" {
                return Ok(image);
            }
            // Older versions have no tasks.
            let tasks = self
                .session
                .find(GLANCE, &format!("{path}/tasks"))
                .await?
                .unwrap_or_default();
            let mut tasks = tasks["tasks"].as_array().into_iter().flatten();
            let failed = tasks.find(|task| task["status"] == "failure");
            if failed.is_some() || !text(&image, "os_glance_failed_import").is_empty() {
                let why = failed.map(|task| text(task, "message")).filter(|why| !why.is_empty());
                let why = why
                    .map(|why| format!(": {}", wire::fault(why.as_bytes())))
                    .unwrap_or_default();
                let failure = BackendError::new(
                    BackendErrorKind::Rejected,
                    format!("Glance could not download {url}{why}"),
                );
                return Err(
                    failure.hint("check whether the cloud can reach the URL on port 80 or 443, or set os_image_import=false to download the image here")
                );
            }
            if begun.elapsed() > FETCHING {
                let message = format!("Glance is still downloading {url}: {}", text(&image, "status"));
                return Err(BackendError::new(BackendErrorKind::Timeout, message));
            }
            sleep(PAUSE).await;
        }
    }

    /// Uploads the bytes of an image, which is active afterwards.
    pub(super) async fn send_image(
        &self,
        id: &str,
        body: (impl AsyncRead + Send + Unpin + 'static, u64),
    ) -> Result<(), BackendError> {
        let headers = [("Content-Type", "application/octet-stream")];
        self.session
            .send_bytes(GLANCE, &format!("/images/{id}/file"), body, &headers)
            .await?;
        check_active(&self.session.get(GLANCE, &format!("/images/{id}")).await?)
    }

    /// All images and stored configs with the tag of the cluster.
    pub(super) async fn images_of(&self, cluster: &ClusterId) -> Result<Vec<Value>, BackendError> {
        let path = query("/images", &[("tag", TAG), ("tag", cluster.tag())]);
        let is_tagged = |image: &Value| has_tags(image, &[TAG, cluster.tag()]);
        self.session.list_own(GLANCE, &path, "images", is_tagged).await
    }

    /// Images and stored configs of all clusters.
    pub(super) async fn images_of_any(&self) -> Result<Vec<Value>, BackendError> {
        let path = query("/images", &[("tag", TAG)]);
        let is_tagged = |image: &Value| has_tags(image, &[TAG]);
        self.session.list_own(GLANCE, &path, "images", is_tagged).await
    }

    /// Removes the tag of the cluster from its images, and deletes those without other users.
    pub(super) async fn release_images(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        for image in self.images_of(cluster).await? {
            let path = format!("/images/{}", text(&image, "id"));
            let left = |image: &Value| image["tags"].as_array().map_or(0, Vec::len);
            // Each tag except these two belongs to another cluster.
            if text(&image, "status") == "active" && image[CONTENT].is_null() && left(&image) > 2 {
                let tag = format!("{path}/tags/{}", escape(cluster.tag()));
                self.session.delete(GLANCE, &tag).await?;
                let now = self.session.find(GLANCE, &path).await?;
                if now.is_none_or(|image| left(&image) > 1) {
                    continue;
                }
            }
            match self.session.delete(GLANCE, &path).await {
                // A server that is being deleted still uses it.
                Err(failure) if failure.kind == BackendErrorKind::Conflict => return Err(failure),
                other => drop(other?),
            }
        }
        Ok(())
    }
}

/// Whether an uploaded image has the bytes of the file: its properties alone do not prove that.
async fn has_bytes_of(file: Option<&Path>, image: &Value) -> Result<bool, BackendError> {
    let Some(path) = file else { return Ok(true) };
    let (opened, algorithm) = (path.to_owned(), text(image, "os_hash_algo").to_owned());
    let read = move || {
        let file = std::fs::File::open(opened)?;
        match algorithm.as_str() {
            // An administrator can choose it (openstack/glance: `glance/common/config.py`, `hashing_algorithm`).
            "sha256" => digest::sha256_of(file),
            _ => digest::sha512_of(file),
        }
    };
    let read = tokio::task::spawn_blocking(read).await.map_err(io::Error::other);
    let digest = read.flatten().map_err(|error| BackendError::unreadable(path, &error))?;
    let is_same = digest == text(image, "os_hash_value");
    if !is_same {
        let (id, algorithm, path) = (text(image, "id"), text(image, "os_hash_algo"), path.display());
        warn!("image {id} is not used: its {algorithm} digest is not that of {path}, which is uploaded again");
    }
    Ok(is_same)
}

/// The properties of a new image of the cluster. Nova starts servers only on hosts that support the architecture, and
/// selects machine type and firmware by it (openstack/nova: `nova/scheduler/filters/image_props_filter.py`,
/// `nova/virt/libvirt/utils.py`, `get_machine_type`; names: `nova/objects/fields.py`).
fn new_image(name: &str, format: &str, cluster: &ClusterId, arch: Option<Architecture>) -> Value {
    let mut image = json!({
        "name": name,
        "disk_format": format,
        "container_format": "bare",
        "visibility": "private",
        "tags": [TAG, cluster.tag()],
        "hw_disk_bus": "virtio",
        "hw_vif_model": "virtio",
        "hw_rng_model": "virtio",
    });
    if let Some(arch) = arch {
        image["hw_architecture"] = json!(arch);
    }
    // An administrator may have set another default for the machine type.
    if arch == Some(Architecture::Aarch64) {
        image["hw_machine_type"] = json!("virt");
        image["hw_firmware_type"] = json!("uefi");
    }
    image
}

/// A URL from which Glance downloads an image.
#[derive(Debug, PartialEq, Eq)]
struct Source<'a> {
    url: &'a str,
    /// The digest of the file.
    name: &'a str,
    format: &'static str,
    sha512: Option<String>,
}

impl<'a> Source<'a> {
    fn read(text: &'a str) -> Result<Self, BackendError> {
        let (url, fragment) = text
            .split_once('#')
            .map_or((text, None), |(url, rest)| (url, Some(rest)));
        let path = url.split('?').next().unwrap_or(url);
        let name = path.rsplit('/').next().unwrap_or(path);
        let refused = |message: String| {
            BackendError::new(BackendErrorKind::Rejected, message)
                .hint("set os_image_import=false to download the image here and upload it")
        };
        let packed = [".gz", ".xz", ".bz2", ".zst"];
        if packed.iter().any(|end| name.ends_with(end)) {
            return Err(refused(format!("Glance cannot decompress {name}")));
        }
        let sha512 = match fragment {
            None => None,
            Some(fragment) => match fragment.strip_prefix("sha512=") {
                Some(sum) if sum.len() == 128 => Some(sum.to_ascii_lowercase()),
                _ => {
                    let message = format!("{url} must end in #sha512=…, not #{fragment}: Glance reports only sha512");
                    return Err(refused(message));
                }
            },
        };
        let format = if name.ends_with(".raw") { "raw" } else { "qcow2" };
        Ok(Self {
            url,
            name,
            format,
            sha512,
        })
    }

    /// Rejects an image with another digest.
    fn compare(&self, image: &Value) -> Result<(), BackendError> {
        let Some(wanted) = &self.sha512 else { return Ok(()) };
        let has = text(image, "os_hash_value");
        if text(image, "os_hash_algo") == "sha512" && has == wanted.as_str() {
            return Ok(());
        }
        // The digest is that of the converted image (openstack/glance: `glance/async_/flows/plugins/image_conversion.py`).
        let format = text(image, "disk_format");
        if format != self.format {
            let message = format!(
                "Glance converted {} from {} to {format}, so that its digest cannot be compared",
                self.url, self.format
            );
            return Err(BackendError::new(BackendErrorKind::Rejected, message)
                .hint("set os_image_import=false to download the image here and upload it"));
        }
        let message = format!(
            "the file that Glance downloaded from {} has sha512 {has}, expected {wanted}",
            self.url
        );
        Err(BackendError::new(BackendErrorKind::Rejected, message)
            .hint("check the digest in the URL; the file may have changed"))
    }
}

/// Rejects an image that servers cannot boot.
pub(super) fn check_active(image: &Value) -> Result<(), BackendError> {
    let (name, status) = (text(image, "name"), text(image, "status"));
    let hint = match status {
        "active" => return Ok(()),
        "queued" => "its upload was not started or was interrupted: delete the image and upload it again",
        "saving" | "importing" | "uploading" => {
            "its upload is in progress: run the same command again when it is complete"
        }
        "deactivated" => "an administrator deactivated it: choose another image",
        _ => "choose another image",
    };
    let failure = BackendError::new(BackendErrorKind::Rejected, format!("image {name} is {status}"));
    Err(failure.hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_image_has_the_architecture_of_its_machines() {
        let cluster = ClusterId::read("lab.example.com.x7k2pqrs").unwrap();
        for (arch, expected) in [
            (None, [json!(null), json!(null)]),
            (Some(Architecture::X86_64), [json!("x86_64"), json!(null)]),
            (Some(Architecture::S390x), [json!("s390x"), json!(null)]),
            (Some(Architecture::Aarch64), [json!("aarch64"), json!("uefi")]),
        ] {
            let image = new_image("rhcos", "qcow2", &cluster, arch);
            assert_eq!(
                ["hw_architecture", "hw_firmware_type"].map(|key| image[key].clone()),
                expected
            );
        }
    }

    #[test]
    fn a_source_is_read_from_a_url() {
        let sum = "AB".repeat(64);
        let url = format!("https://mirror.example.com/a/rhcos.qcow2?x=1#sha512={sum}");
        let source = Source::read(&url).unwrap();
        assert_eq!(source.url, "https://mirror.example.com/a/rhcos.qcow2?x=1");
        assert_eq!((source.name, source.format), ("rhcos.qcow2", "qcow2"));
        let lower = sum.to_lowercase();
        for (algorithm, value, format, message) in [
            ("sha512", lower.as_str(), "qcow2", None),
            ("sha256", &lower, "qcow2", Some("has sha512")),
            ("sha512", "00", "qcow2", Some("has sha512 00, expected")),
            ("sha512", "00", "raw", Some("from qcow2 to raw")),
        ] {
            let image = json!({"os_hash_algo": algorithm, "os_hash_value": value, "disk_format": format});
            let refused = source.compare(&image).err().map(|failure| failure.message);
            let is_expected = match (&refused, message) {
                (Some(refused), Some(message)) => refused.contains(message),
                (refused, message) => refused.is_none() && message.is_none(),
            };
            assert!(is_expected, "{image}: {refused:?}");
        }
        for (url, message) in [
            (
                "https://mirror.example.com/rhcos.qcow2.gz",
                "Glance cannot decompress rhcos.qcow2.gz",
            ),
            (
                "https://mirror.example.com/rhcos.qcow2#sha256=00",
                "Glance reports only sha512",
            ),
        ] {
            let failure = Source::read(url).unwrap_err();
            assert!(failure.message.contains(message), "{}", failure.message);
        }
    }

    #[test]
    fn only_an_active_image_boots() {
        assert!(check_active(&json!({"name": "rhcos", "status": "active"})).is_ok());
        for status in ["queued", "saving", "importing", "deactivated", "pending_delete"] {
            let failure = check_active(&json!({"name": "rhcos", "status": status})).unwrap_err();
            assert_eq!(failure.message, format!("image rhcos is {status}"));
            assert!(failure.hint.is_some());
        }
    }
}
