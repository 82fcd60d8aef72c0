//! Volumes of machines. They are created before the server, with a name and the cluster's id, so that all can be found.

use futures::future::try_join_all;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::auth::Service::Volume as CINDER;
use super::cloud::OpenStack;
use super::cloud::PAUSE;
use super::servers::CHANGE_TIMEOUT;
use super::wire::{self, text};
use crate::backend::{BackendError, BackendErrorKind, MachineSpec};
use crate::cluster::{ClusterId, MachineName, OsBoot};

/// The statuses in which Cinder deletes a volume (openstack/cinder: `cinder/volume/api.py`, `delete`).
const DELETABLE: [&str; 5] = [
    "available",
    "error",
    "error_restoring",
    "error_extending",
    "error_managing",
];
/// How often Cinder may reject the deletion of a volume in one of them: its status may just have changed.
const REFUSALS: u32 = 10;

impl OpenStack {
    /// Creates the volumes of a new machine, the boot volume first, and waits until they are available.
    pub(super) async fn volumes_for(&self, spec: &MachineSpec) -> Result<Vec<String>, BackendError> {
        let boots = self.config.boot == OsBoot::Volume;
        let mut wanted = Vec::new();
        wanted.extend(boots.then_some((0, spec.disk_gib, Some(spec.image.0.as_str()))));
        let extra = spec.extra_disks_gib.iter().zip(1..);
        wanted.extend(extra.map(|(gib, index)| (index, *gib, None)));
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let there = self.volumes_of(&spec.cluster).await?;
        let each = wanted.into_iter().map(async |(index, gib, image)| {
            let name = wire::volume_of(&spec.name, index);
            let created = there.iter().find(|volume| volume["name"] == name.as_str());
            // A volume of an interrupted attempt may be incomplete.
            if let Some(volume) = created {
                self.delete_volume(text(volume, "id")).await?;
            }
            self.create_volume(spec, index, gib, image).await
        });
        try_join_all(each).await
    }

    async fn create_volume(
        &self,
        spec: &MachineSpec,
        index: usize,
        gib: u64,
        image: Option<&str>,
    ) -> Result<String, BackendError> {
        let (kind, zones) = (self.config.volume_type.as_deref(), self.config.volume_zone.as_deref());
        let body = wire::volume(spec, index, gib, image, kind, zones);
        let created = self.session.post(CINDER, "/volumes", &body).await?;
        let id = text(&created["volume"], "id").to_owned();
        let begun = Instant::now();
        loop {
            let answer = self.session.get(CINDER, &format!("/volumes/{id}")).await?;
            let (name, status) = (text(&answer["volume"], "name"), text(&answer["volume"], "status"));
            match status {
                "available" => return Ok(id),
                _ if status.starts_with("error") => {
                    let message = format!("volume {name} of {gib} GiB has status {status}");
                    let hint = "see `openstack volume message list`; the image may be larger than the volume";
                    return Err(BackendError::new(BackendErrorKind::Rejected, message).hint(hint));
                }
                _ if begun.elapsed() > self.config.volume_timeout => {
                    let limit = self.config.volume_timeout.as_secs();
                    let message = format!("volume {name} is still {status} after {limit} s");
                    return Err(BackendError::new(BackendErrorKind::Timeout, message)
                        .hint("set os_volume_timeout to a longer time if the cloud copies images slowly"));
                }
                _ => sleep(PAUSE).await,
            }
        }
    }

    /// All volumes of the cluster.
    pub(super) async fn volumes_of(&self, cluster: &ClusterId) -> Result<Vec<Value>, BackendError> {
        let mut volumes = self.all_volumes().await?;
        volumes.retain(|volume| wire::cluster_of(volume).as_ref() == Some(cluster));
        Ok(volumes)
    }

    /// All volumes of the project; none without block storage.
    pub(super) async fn all_volumes(&self) -> Result<Vec<Value>, BackendError> {
        if !self.session.has(CINDER).await? {
            return Ok(Vec::new());
        }
        let listed = self.session.list_own(CINDER, "/volumes/detail", "volumes", |_| true);
        Ok(self.if_used(CINDER, listed).await?.unwrap_or_default())
    }

    /// Deletes the volumes of one machine, or of all machines of a cluster that are not in `servers`.
    pub(super) async fn delete_volumes(
        &self,
        cluster: &ClusterId,
        name: Option<&MachineName>,
        servers: &[Value],
    ) -> Result<bool, BackendError> {
        let mut changed = false;
        for volume in self.volumes_of(cluster).await? {
            let of = wire::machine_of(text(&volume, "name")).unwrap_or_default();
            let is_meant = match name {
                Some(name) => name.as_str() == of,
                None => !servers.iter().any(|server| server["name"] == of),
            };
            if is_meant {
                changed |= self.delete_volume(text(&volume, "id")).await?;
            }
        }
        Ok(changed)
    }

    /// Deletes a volume and waits until it is deleted. A volume that was just detached is busy for a while.
    async fn delete_volume(&self, id: &str) -> Result<bool, BackendError> {
        let path = format!("/volumes/{id}");
        let begun = Instant::now();
        let (mut changed, mut refusals) = (false, 0);
        while let Some(answer) = self.session.find(CINDER, &path).await? {
            let (name, status) = (text(&answer["volume"], "name"), text(&answer["volume"], "status"));
            if begun.elapsed() > CHANGE_TIMEOUT {
                let message = format!("volume {name} is still {status}");
                return Err(BackendError::new(BackendErrorKind::Timeout, message));
            }
            if status == "error_deleting" {
                let message = format!("Cinder could not delete volume {name}: its status is {status}");
                return Err(BackendError::new(BackendErrorKind::Rejected, message).hint(format!(
                    "ask the administrator of the cloud to delete it: `openstack volume delete --force {id}`"
                )));
            }
            if DELETABLE.contains(&status) {
                changed |= match self.session.delete(CINDER, &path).await {
                    Err(failure) if matches!(failure.code, Some(400 | 409)) => {
                        refusals += 1;
                        if refusals == REFUSALS {
                            let id = format!("`openstack volume snapshot list --volume {id}`");
                            return Err(failure.hint(format!("delete the snapshots of volume {name}: {id} lists them")));
                        }
                        false
                    }
                    deleted => deleted?,
                };
            }
            sleep(PAUSE).await;
        }
        Ok(changed)
    }
}
