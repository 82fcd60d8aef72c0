//! Updates the static pods of an installed cluster to the release that it runs now.
//!
//! The machine config operator knows nothing of our static pods, so that they keep the images of the installed release
//! until their MachineConfigs change.

use anyhow::{Context, Result};
use kube::api::DynamicObject;
use tracing::info;

use super::error::PassError;
use super::join::Reach;
use super::run::{Run, on_installed};
use super::services::{RenewedRelease, Services};
use crate::PROGRESS;
use crate::backend::Backend;
use crate::cluster::ClusterConfig;
use crate::node::services::{self, Manifest};
use crate::openshift::api::ClusterApi;
use crate::openshift::installer::Installer;
use crate::openshift::releases::{ClusterRelease, Releases};
use crate::state::home::Home;
use crate::state::parameters::Parameters;

/// The label that assigns a MachineConfig to a pool.
const ROLE: &str = "machineconfiguration.openshift.io/role";

/// The result of a renewal.
#[derive(Clone, Debug)]
pub struct Renewed {
    pub release: ClusterRelease,
    /// With `lb` and `dns` of the user or of the host, there are no static pods.
    pub has_pods: bool,
    /// Roles whose MachineConfigs changed.
    pub roles: Vec<String>,
    /// Each of their nodes reboots: the release has no disruption policies.
    pub reboots: bool,
}

/// Renders the manifests of an installed cluster from the release that it runs, and applies them.
pub async fn renew(
    backend: &dyn Backend,
    config: &ClusterConfig,
    home: &Home,
    installed_workers: usize,
) -> Result<Renewed> {
    on_installed(backend, config, home, "renew", async |run| {
        run.renew_release(installed_workers).await
    })
    .await
}

impl Run<'_> {
    async fn renew_release(&self, installed_workers: usize) -> Result<Renewed> {
        let cluster = || self.config.name.clone();
        let table = self.installed()?;
        self.refuse_other_settings(&table)?;
        let Reach::Api(api) = self.reach(&table).await? else {
            return Err(PassError::NoRelease { cluster: cluster() }.into());
        };
        let version = api.cluster_version().await?;
        let releases = version.as_ref().and_then(Releases::of);
        let Releases {
            current, updating_to, ..
        } = releases.ok_or(PassError::NoRelease { cluster: cluster() })?;
        if let Some(to) = updating_to {
            let (cluster, to) = (cluster(), to.version);
            return Err(PassError::Updating { cluster, to }.into());
        }
        let images = match RenewedRelease::read(&self.journal)? {
            Some(last) if last.of == current => last.images,
            _ => {
                info!(target: PROGRESS, step = "release", "{}: reading its images", current.version);
                let installer = Installer::obtain(self.config, &self.dir).await?;
                installer
                    .release_at(&current.image, current.verified, self.config)
                    .await?
            }
        };
        let mut services = self.services(&table)?;
        services.release = images.clone();
        let has_policies = current.has_disruption_policies();
        let files = services::static_pods(&services.input(self, &table))?;
        let has_pods = !files.is_empty();
        if has_policies && has_pods {
            api.apply(object(&services::disruption_policy(&files))?).await?;
            let cluster = self.cluster(&api, &table);
            cluster.disruption_policy(&files, self.config.timeouts.install).await?;
        }
        let roles = self.apply_manifests(&api, &table, &services, installed_workers).await?;
        // Not before: an interrupted renewal is repeated.
        let of = current.clone();
        RenewedRelease { of, images }.record(&self.journal).await?;
        let reboots = !roles.is_empty() && !has_policies;
        Ok(Renewed {
            release: current,
            has_pods,
            roles,
            reboots,
        })
    }

    /// Applies the manifests of all nodes, and of the routers if they are on workers; returns the roles whose
    /// MachineConfigs changed.
    pub(super) async fn apply_manifests(
        &self,
        api: &ClusterApi,
        table: &Parameters,
        services: &Services,
        installed_workers: usize,
    ) -> Result<Vec<String>> {
        let input = services::Input {
            config: &self.with_routers(installed_workers),
            ..services.input(self, table)
        };
        let mut changed = Vec::new();
        for manifest in services::manifests(&input)? {
            let object = object(&manifest)?;
            let kind = object.types.as_ref().map(|types| types.kind.as_str());
            let is_of_nodes = kind == Some("MachineConfig");
            if !is_of_nodes && (kind != Some("IngressController") || installed_workers == 0) {
                continue;
            }
            let labels = object.metadata.labels.as_ref();
            let role = labels.and_then(|labels| labels.get(ROLE).cloned());
            if api.apply(object).await? {
                info!(target: PROGRESS, step = "tables", "{} is updated", manifest.path);
                changed.extend(role);
            }
        }
        Ok(changed)
    }
}

/// The YAML that ocpdeploy writes is JSON.
fn object(manifest: &Manifest) -> Result<DynamicObject> {
    serde_json::from_str(&manifest.content).with_context(|| format!("read {}", manifest.path))
}
