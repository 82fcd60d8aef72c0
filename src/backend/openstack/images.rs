//! Images in Glance: brought once, shared by clusters, left by the last of them.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::fs::File;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::auth::Service::Image as GLANCE;
use super::cloud::OpenStack;
use super::cloud::PAUSE;
use super::listing::has_tags;
use super::ports::told;
use super::wire::{self, TAG, escape, query, text};
use crate::backend::failure::Failure;
use crate::backend::{BackendErrorKind, ImageHandle, ImageRequest};
use crate::cluster::ClusterId;

/// Property with the digest of the file that an image was made of.
const DIGEST: &str = "ocpdeploy_sha256";
/// Property with the address from which Glance fetched an image.
const SOURCE: &str = "ocpdeploy_url";
/// How long Glance may take to fetch an image.
const FETCHING: Duration = Duration::from_secs(3600);
/// Property of what is no system image, with the machine that fetches it.
pub(super) const CONTENT: &str = "ocpdeploy_content";

impl OpenStack {
    pub(super) async fn image(&self, cluster: &ClusterId, request: &ImageRequest) -> Result<ImageHandle, Failure> {
        match request {
            ImageRequest::Platform(url) if url.contains("://") => {
                let _alone = self.groups.lock().await;
                self.fetched_image(cluster, url).await
            }
            ImageRequest::Platform(name) => self.named_image(name).await,
            ImageRequest::File { path, sha256, .. } => {
                let _alone = self.groups.lock().await;
                match self.image_known_by(cluster, DIGEST, sha256).await? {
                    Some(id) => Ok(ImageHandle(id)),
                    None => self.upload(cluster, path, sha256).await,
                }
            }
        }
    }

    async fn named_image(&self, name: &str) -> Result<ImageHandle, Failure> {
        let mut found = self
            .session
            .list_where(GLANCE, "/images", &[("name", name)], "images")
            .await?;
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
                let failure = Failure::new(BackendErrorKind::NotFound, format!("there is no image {name}"));
                Err(failure.hint(format!("this project sees {}", told(&names))))
            }
            several => {
                let words = format!("{} images are called {name}", several.len());
                let failure = Failure::new(BackendErrorKind::Conflict, words);
                Err(failure.hint("name it by its id; `openstack image list` shows it"))
            }
        }
    }

    /// The image with this property, tagged with the cluster; what a cut upload of ours left is removed.
    async fn image_known_by(&self, cluster: &ClusterId, key: &str, value: &str) -> Result<Option<String>, Failure> {
        let path = query("/images", &[(key, value), ("tag", TAG), ("sort", "created_at:asc")]);
        let is_asked_for = |image: &Value| image[key] == value && has_tags(image, &[TAG]);
        let mut whole = None;
        for image in self
            .session
            .list_matching(GLANCE, &path, "images", is_asked_for)
            .await?
        {
            let (id, is_tagged) = (text(&image, "id"), has_tags(&image, &[cluster.as_str()]));
            match text(&image, "status") {
                "active" if whole.is_none() || is_tagged => whole = Some((id.to_owned(), is_tagged)),
                "active" | "deactivated" => {}
                _ if is_tagged => drop(self.session.delete(GLANCE, &format!("/images/{id}")).await?),
                _ => {}
            }
        }
        let Some((id, is_tagged)) = whole else { return Ok(None) };
        if !is_tagged {
            let path = format!("/images/{id}/tags/{}", escape(cluster.as_str()));
            match self.session.put_path(GLANCE, &path).await {
                // Its last cluster left it in this moment.
                Err(failure) if failure.code == Some(404) => return Ok(None),
                other => drop(other?),
            }
        }
        Ok(Some(id))
    }

    async fn upload(&self, cluster: &ClusterId, path: &Path, sha256: &str) -> Result<ImageHandle, Failure> {
        let unreadable =
            |error: std::io::Error| Failure::new(BackendErrorKind::NotFound, format!("{}: {error}", path.display()));
        let name = path.file_stem().map(|name| name.to_string_lossy()).unwrap_or_default();
        let name = format!("{name}-{}", sha256.get(..12).unwrap_or(sha256));
        let mut image = new_image(&name, "qcow2", cluster);
        image[DIGEST] = json!(sha256);
        let made = self.session.post(GLANCE, "/images", &image).await?;
        let id = text(&made, "id").to_owned();
        let file = File::open(path).await.map_err(unreadable)?;
        let sent = self.send_image(&id, file).await;
        if let Err(failure) = sent {
            // An image that is half there can be neither used nor filled.
            self.session.delete(GLANCE, &format!("/images/{id}")).await?;
            return Err(failure);
        }
        Ok(ImageHandle(id))
    }

    /// The image that Glance itself has fetched from a URL, or fetches now; its bytes never come here.
    async fn fetched_image(&self, cluster: &ClusterId, url: &str) -> Result<ImageHandle, Failure> {
        let source = Source::read(url)?;
        if source.sha512.is_none() {
            warn!(
                "nothing tells whether Glance fetches the right file from {}; #sha512=… behind it would",
                source.url
            );
        }
        if let Some(id) = self.image_known_by(cluster, SOURCE, source.url).await? {
            let image = self.session.get(GLANCE, &format!("/images/{id}")).await?;
            source.compare(&image)?;
            return Ok(ImageHandle(id));
        }
        let methods = self.session.find(GLANCE, "/info/import").await?.unwrap_or_default();
        let mut methods = methods["import-methods"]["value"].as_array().into_iter().flatten();
        if !methods.any(|method| method == "web-download") {
            return Err(
                Failure::new(BackendErrorKind::Denied, "this Glance fetches no images by itself")
                    .hint("leave os_image_import out; the image is then fetched here and uploaded"),
            );
        }
        let mut image = new_image(source.name, source.format, cluster);
        image[SOURCE] = json!(source.url);
        let made = self.session.post(GLANCE, "/images", &image).await?;
        let path = format!("/images/{}", text(&made, "id"));
        let fetched = async {
            let order = json!({"method": {"name": "web-download", "uri": source.url}});
            let ordered = self.session.post(GLANCE, &format!("{path}/import"), &order).await;
            ordered.map_err(|failure| match failure.code {
                Some(400) => failure.hint(
                    "the administrator says what Glance may fetch (import_filtering_opts); os_image_import=false fetches it here",
                ),
                _ => failure,
            })?;
            let image = self.wait_for_import(&path, source.url).await?;
            source.compare(&image)
        };
        match fetched.await {
            Ok(()) => Ok(ImageHandle(text(&made, "id").to_owned())),
            Err(failure) => {
                self.session.delete(GLANCE, &path).await?;
                Err(failure)
            }
        }
    }

    async fn wait_for_import(&self, path: &str, url: &str) -> Result<Value, Failure> {
        let begun = Instant::now();
        loop {
            let image = self.session.get(GLANCE, path).await?;
            if text(&image, "status") == "active" {
                return Ok(image);
            }
            // Older ones keep no tasks of an image.
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
                let failure = Failure::new(BackendErrorKind::Rejected, format!("Glance could not fetch {url}{why}"));
                return Err(
                    failure.hint("can the cloud reach it, on port 80 or 443? os_image_import=false fetches it here")
                );
            }
            if begun.elapsed() > FETCHING {
                let words = format!("Glance still fetches {url}: {}", text(&image, "status"));
                return Err(Failure::new(BackendErrorKind::Timeout, words));
            }
            sleep(PAUSE).await;
        }
    }

    /// Fills an image; it is active when this ends.
    pub(super) async fn send_image(&self, id: &str, body: impl Into<reqwest::Body>) -> Result<(), Failure> {
        let headers = [("Content-Type", "application/octet-stream")];
        self.session
            .send_bytes(GLANCE, &format!("/images/{id}/file"), body, &headers)
            .await?;
        check_active(&self.session.get(GLANCE, &format!("/images/{id}")).await?)
    }

    /// All images and contents with the cluster's tag.
    pub(super) async fn images_of(&self, cluster: &ClusterId) -> Result<Vec<Value>, Failure> {
        let path = query("/images", &[("tag", TAG), ("tag", cluster.as_str())]);
        let is_tagged = |image: &Value| has_tags(image, &[TAG, cluster.as_str()]);
        self.session.list_matching(GLANCE, &path, "images", is_tagged).await
    }

    /// Images of all clusters.
    pub(super) async fn images_of_any(&self) -> Result<Vec<Value>, Failure> {
        let path = query("/images", &[("tag", TAG)]);
        let is_tagged = |image: &Value| has_tags(image, &[TAG]);
        self.session.list_matching(GLANCE, &path, "images", is_tagged).await
    }

    /// Takes the cluster's tag off its images; those that nobody needs any more are deleted.
    pub(super) async fn leave_images(&self, cluster: &ClusterId) -> Result<(), Failure> {
        for image in self.images_of(cluster).await? {
            let path = format!("/images/{}", text(&image, "id"));
            let left = |image: &Value| image["tags"].as_array().map_or(0, Vec::len);
            // Beside ours and this cluster's each tag is another cluster's.
            if text(&image, "status") == "active" && image[CONTENT].is_null() && left(&image) > 2 {
                let tag = format!("{path}/tags/{}", escape(cluster.as_str()));
                self.session.delete(GLANCE, &tag).await?;
                let now = self.session.find(GLANCE, &path).await?;
                if now.is_none_or(|image| left(&image) > 1) {
                    continue;
                }
            }
            match self.session.delete(GLANCE, &path).await {
                // A server that is just going still has it.
                Err(failure) if failure.kind == BackendErrorKind::Conflict => return Err(failure),
                other => drop(other?),
            }
        }
        Ok(())
    }
}

/// What a new image of the cluster's says of itself.
fn new_image(name: &str, format: &str, cluster: &ClusterId) -> Value {
    json!({
        "name": name,
        "disk_format": format,
        "container_format": "bare",
        "visibility": "private",
        "tags": [TAG, cluster],
        "hw_disk_bus": "virtio",
        "hw_vif_model": "virtio",
        "hw_rng_model": "virtio",
    })
}

/// From where Glance is to fetch an image.
#[derive(Debug, PartialEq, Eq)]
struct Source<'a> {
    url: &'a str,
    /// Of the file.
    name: &'a str,
    format: &'static str,
    sha512: Option<String>,
}

impl<'a> Source<'a> {
    fn read(text: &'a str) -> Result<Self, Failure> {
        let (url, fragment) = text
            .split_once('#')
            .map_or((text, None), |(url, rest)| (url, Some(rest)));
        let path = url.split('?').next().unwrap_or(url);
        let name = path.rsplit('/').next().unwrap_or(path);
        let refused = |words: String| {
            Failure::new(BackendErrorKind::Rejected, words).hint("os_image_import=false fetches it here and uploads it")
        };
        let packed = [".gz", ".xz", ".bz2", ".zst"];
        if packed.iter().any(|end| name.ends_with(end)) {
            return Err(refused(format!("Glance does not unpack {name}")));
        }
        let sha512 = match fragment {
            None => None,
            Some(fragment) => match fragment.strip_prefix("sha512=") {
                Some(sum) if sum.len() == 128 => Some(sum.to_ascii_lowercase()),
                _ => {
                    let words =
                        format!("Glance tells the sha512 of what it fetched, and {url} has #{fragment} behind it");
                    return Err(refused(words));
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

    /// Refuses an image whose bytes are others.
    fn compare(&self, image: &Value) -> Result<(), Failure> {
        let Some(wanted) = &self.sha512 else { return Ok(()) };
        let has = text(image, "os_hash_value");
        if text(image, "os_hash_algo") == "sha512" && has == wanted.as_str() {
            return Ok(());
        }
        let words = format!(
            "what Glance fetched from {} has sha512 {has}, and {wanted} was asked for",
            self.url
        );
        Err(Failure::new(BackendErrorKind::Rejected, words)
            .hint("the file changed there, or the sum is of another file"))
    }
}

/// Refuses an image that no server can boot yet.
pub(super) fn check_active(image: &Value) -> Result<(), Failure> {
    let (name, status) = (text(image, "name"), text(image, "status"));
    let hint = match status {
        "active" => return Ok(()),
        "queued" => "its upload was never begun or broke off; delete it and upload it again",
        "saving" | "importing" | "uploading" => "its upload goes on; run the same command again when it is through",
        "deactivated" => "an administrator has closed it",
        _ => "choose another image",
    };
    let failure = Failure::new(BackendErrorKind::Rejected, format!("image {name} is {status}"));
    Err(failure.hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_read_from_a_url() {
        let sum = "AB".repeat(64);
        let url = format!("https://mirror.example.com/a/rhcos.qcow2?x=1#sha512={sum}");
        let source = Source::read(&url).unwrap();
        assert_eq!(source.url, "https://mirror.example.com/a/rhcos.qcow2?x=1");
        assert_eq!((source.name, source.format), ("rhcos.qcow2", "qcow2"));
        let lower = sum.to_lowercase();
        assert!(
            source
                .compare(&json!({"os_hash_algo": "sha512", "os_hash_value": lower}))
                .is_ok()
        );
        assert!(
            source
                .compare(&json!({"os_hash_algo": "sha256", "os_hash_value": lower}))
                .is_err()
        );
        assert!(
            source
                .compare(&json!({"os_hash_algo": "sha512", "os_hash_value": "00"}))
                .is_err()
        );
        for (url, words) in [
            (
                "https://mirror.example.com/rhcos.qcow2.gz",
                "Glance does not unpack rhcos.qcow2.gz",
            ),
            (
                "https://mirror.example.com/rhcos.qcow2#sha256=00",
                "Glance tells the sha512 of what it fetched",
            ),
        ] {
            let failure = Source::read(url).unwrap_err();
            assert!(failure.words.contains(words), "{}", failure.words);
        }
    }

    #[test]
    fn only_an_active_image_boots() {
        assert!(check_active(&json!({"name": "rhcos", "status": "active"})).is_ok());
        for status in ["queued", "saving", "importing", "deactivated", "pending_delete"] {
            let failure = check_active(&json!({"name": "rhcos", "status": status})).unwrap_err();
            assert_eq!(failure.words, format!("image rhcos is {status}"));
            assert!(failure.hint.is_some());
        }
    }
}
