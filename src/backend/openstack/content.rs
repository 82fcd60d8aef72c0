//! A bootstrap's config where the machine fetches it, for Nova's user data has no room for it.

use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::OpenStack;
use super::auth::Service::Image as GLANCE;
use super::images::CONTENT;
use super::session::Failure;
use super::wire::{TAG, text};
use crate::backend::{BackendErrorKind, MachineSpec};
use crate::cluster::{ClusterId, MachineName};
use crate::digest::sha512;
use crate::ignition::budget::{Stub, stub};
use crate::ignition::version;

impl OpenStack {
    /// Puts a config into a private image and returns a small config that fetches it with our token.
    ///
    /// Whoever serves other bytes stops the boot. The token ends by itself; the image goes with the machine.
    pub(super) async fn put_content(&self, spec: &MachineSpec, config: &[u8]) -> Result<Vec<u8>, Failure> {
        let rejected = |words: String| Failure::new(BackendErrorKind::Rejected, words);
        let document: Value = serde_json::from_slice(config)
            .map_err(|error| rejected(format!("the config of {} is not JSON: {error}", spec.name)))?;
        let version = version(&document).map_err(|error| rejected(error.to_string()))?;
        // What a cut try left may be half.
        self.delete_content(&spec.cluster, Some(&spec.name)).await?;
        let image = json!({
            "name": format!("{}-ignition", spec.name),
            "disk_format": "raw",
            "container_format": "bare",
            "visibility": "private",
            "tags": [TAG, spec.cluster],
            CONTENT: spec.name,
        });
        let made = self.session.post(GLANCE, "/images", &image).await?;
        let id = text(&made, "id");
        self.send_image(id, config.to_vec()).await?;
        let token = self.session.new_token().await?;
        let url = format!("{}/images/{id}/file", self.session.public_endpoint(GLANCE).await?);
        let stub = stub(&Stub {
            version,
            url: &url,
            headers: &[("X-Auth-Token", token.value.expose_secret())],
            sha512: &sha512(config),
            gzip: false,
            ca: self.session.ca.as_deref(),
        });
        Ok(stub
            .map_err(|error| rejected(error.to_string()))?
            .to_string()
            .into_bytes())
    }

    /// Deletes the contents of one machine, or of all of a cluster's.
    pub(super) async fn delete_content(
        &self,
        cluster: &ClusterId,
        name: Option<&MachineName>,
    ) -> Result<bool, Failure> {
        let mut changed = false;
        for image in self.images_of(cluster).await? {
            let fetched_by = image[CONTENT].as_str();
            if fetched_by.is_some_and(|machine| name.is_none_or(|name| name.as_str() == machine)) {
                changed |= self
                    .session
                    .delete(GLANCE, &format!("/images/{}", text(&image, "id")))
                    .await?;
            }
        }
        Ok(changed)
    }
}
