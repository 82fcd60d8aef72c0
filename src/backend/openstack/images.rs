//! Images in Glance: brought once, shared by clusters, left by the last of them.

use std::path::Path;

use serde_json::{Value, json};
use tokio::fs::File;

use super::OpenStack;
use super::auth::Service::Image as GLANCE;
use super::ports::told;
use super::session::Failure;
use super::wire::{TAG, escape, query, text};
use crate::backend::{BackendErrorKind, ImageHandle, ImageRequest};
use crate::cluster::ClusterId;

/// Property with the digest of the file that an image was made of.
const DIGEST: &str = "ocpdeploy_sha256";
/// Property of what is no system image, with the machine that fetches it.
pub(super) const CONTENT: &str = "ocpdeploy_content";

impl OpenStack {
    pub(super) async fn image(&self, cluster: &ClusterId, request: &ImageRequest) -> Result<ImageHandle, Failure> {
        match request {
            ImageRequest::Platform(name) => self.named_image(name).await,
            ImageRequest::File { path, sha256, .. } => {
                let _alone = self.groups.lock().await;
                match self.image_of_file(cluster, sha256).await? {
                    Some(id) => Ok(ImageHandle(id)),
                    None => self.upload(cluster, path, sha256).await,
                }
            }
        }
    }

    async fn named_image(&self, name: &str) -> Result<ImageHandle, Failure> {
        let mut found = self
            .session
            .list(GLANCE, &query("/images", &[("name", name)]), "images")
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
                let all = self.session.list(GLANCE, "/images?status=active", "images").await?;
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

    /// The image of a file of this digest, tagged with the cluster; what a cut upload of ours left is removed.
    async fn image_of_file(&self, cluster: &ClusterId, sha256: &str) -> Result<Option<String>, Failure> {
        let path = query("/images", &[(DIGEST, sha256), ("tag", TAG), ("sort", "created_at:asc")]);
        let mut whole = None;
        for image in self.session.list(GLANCE, &path, "images").await? {
            let (id, is_tagged) = (text(&image, "id"), has_tag(&image, cluster.as_str()));
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
                Err(failure) if failure.status == Some(404) => return Ok(None),
                other => drop(other?),
            }
        }
        Ok(Some(id))
    }

    async fn upload(&self, cluster: &ClusterId, path: &Path, sha256: &str) -> Result<ImageHandle, Failure> {
        let unreadable =
            |error: std::io::Error| Failure::new(BackendErrorKind::NotFound, format!("{}: {error}", path.display()));
        let name = path.file_stem().map(|name| name.to_string_lossy()).unwrap_or_default();
        let image = json!({
            "name": format!("{name}-{}", sha256.get(..12).unwrap_or(sha256)),
            "disk_format": "qcow2",
            "container_format": "bare",
            "visibility": "private",
            "tags": [TAG, cluster],
            DIGEST: sha256,
            "hw_disk_bus": "virtio",
            "hw_vif_model": "virtio",
            "hw_rng_model": "virtio",
        });
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
        self.session.list(GLANCE, &path, "images").await
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

fn has_tag(image: &Value, tag: &str) -> bool {
    image["tags"]
        .as_array()
        .is_some_and(|tags| tags.iter().any(|other| other == tag))
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
    fn only_an_active_image_boots() {
        assert!(check_active(&json!({"name": "rhcos", "status": "active"})).is_ok());
        for status in ["queued", "saving", "importing", "deactivated", "pending_delete"] {
            let failure = check_active(&json!({"name": "rhcos", "status": status})).unwrap_err();
            assert_eq!(failure.words, format!("image rhcos is {status}"));
            assert!(failure.hint.is_some());
        }
    }
}
