//! Updates the static pods of an installed cluster to the release that it runs now.
//!
//! The machine config operator does not update the static pods of ocpdeploy, so they keep the images of the installed
//! release until their MachineConfigs change.

use anyhow::{Context, Result};
use kube::api::DynamicObject;
use serde::Serialize;
use tracing::info;

use super::join::Reach;
use super::run::{Run, on_installed};
use super::services::{RenewedRelease, Services};
use crate::PROGRESS;
use crate::backend::platforms::Platforms;
use crate::cluster::{ClusterConfig, ClusterDomain, Role};
use crate::error::{ErrorKind, OperationError};
use crate::node::services::{self, Manifest};
use crate::openshift::api::ClusterApi;
use crate::openshift::installer::Installer;
use crate::openshift::releases::{ClusterRelease, Releases};
use crate::state::home::Home;
use crate::state::parameters::Parameters;

/// The label that assigns a MachineConfig to a pool.
const ROLE: &str = "machineconfiguration.openshift.io/role";

/// The result of a renewal.
#[derive(Clone, Debug, Serialize)]
pub struct Renewed {
    pub cluster: ClusterDomain,
    /// The release of the static pods. With `lb` and `dns` of the user or of the host, there are none.
    pub version: Option<String>,
    #[serde(flatten)]
    pub rollout: Rollout,
}

/// The nodes that the machine config operator updates now, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rollout {
    /// Roles and pools whose configs changed.
    #[serde(rename = "updating")]
    pub roles: Vec<String>,
    /// Whether each of these nodes reboots.
    pub reboots: bool,
}

/// Renders the manifests of an installed cluster from the release that it runs, and applies them.
pub async fn renew(
    backend: &Platforms,
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
        let cluster = &self.config.name;
        let no_release = || {
            let text = format!("cluster {cluster} has no release to renew its static pods from");
            OperationError::new(ErrorKind::Tool, text).hint(
                "`oc get clusterversion version -o yaml` shows the releases of a cluster in status.history; a rehearsal \
                 has none",
            )
        };
        let table = self.installed()?;
        self.refuse_other_settings(&table)?;
        let Reach::Api(api) = self.reach(&table).await? else {
            return Err(no_release().into());
        };
        let version = api.cluster_version().await?;
        let releases = version.as_ref().and_then(Releases::of);
        let Releases {
            current, updating_to, ..
        } = releases.ok_or_else(no_release)?;
        if let Some(to) = updating_to {
            let text = format!("cluster {cluster} is being updated to {}", to.version);
            let hint = format!(
                "`oc get clusterversion` shows the progress; when the update is complete, run `ocpdeploy renew {cluster}`"
            );
            return Err(OperationError::new(ErrorKind::Tool, text).hint(hint).into());
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
        let has_pods = services::has_static_pods(&services.input(self, &table))?;
        let rollout = self
            .apply_manifests(&api, &table, &services, installed_workers, Some(&current))
            .await?;
        let version = has_pods.then(|| current.version.clone());
        // Recorded last, so that an interrupted renewal is repeated.
        RenewedRelease { of: current, images }.record(&self.journal).await?;
        Ok(Renewed {
            cluster: table.cluster_domain(),
            version,
            rollout,
        })
    }

    /// Applies the manifests of all nodes, and of the routers if they are on workers.
    ///
    /// First, if the release supports them, it applies node disruption policies for the files that need no reboot.
    pub(super) async fn apply_manifests(
        &self,
        api: &ClusterApi,
        table: &Parameters,
        services: &Services,
        installed_workers: usize,
        release: Option<&ClusterRelease>,
    ) -> Result<Rollout> {
        let input = services::Input {
            config: &self.with_routers(installed_workers),
            ..services.input(self, table)
        };
        let has_policies = release.is_some_and(ClusterRelease::has_disruption_policies);
        if let Some(policy) = services::disruption_policy(&input)?.filter(|_| has_policies) {
            api.apply(object(&policy)?).await?;
            let limit = self.config.timeouts.install;
            let policies = services::disruption_policies();
            self.cluster(api, table).disruption_policies(&policies, limit).await?;
        }
        let mut rollout = Rollout::default();
        for manifest in services::manifests(&input)? {
            let object = object(&manifest)?;
            let kind = object.types.as_ref().map(|types| types.kind.as_str());
            let is_of_nodes = kind == Some("MachineConfig");
            if !is_of_nodes && (kind != Some("IngressController") || installed_workers == 0) {
                continue;
            }
            let labels = object.metadata.labels.as_ref();
            let role = labels.and_then(|labels| labels.get(ROLE).cloned());
            let applied = api.apply(object).await?;
            if !applied.is_change() {
                continue;
            }
            info!(target: PROGRESS, step = "tables", "{} is updated", manifest.path);
            if let Some(role) = role {
                let after = &applied.after.data["spec"];
                let before = applied.before.as_ref().map(|before| &before.data["spec"]);
                rollout.reboots |= !has_policies || before.is_none_or(|before| services::needs_reboot(before, after));
                rollout.roles.push(role);
            }
        }
        if rollout.roles.iter().any(|role| *role == Role::Worker.to_string()) {
            rollout.roles.extend(self.config_pools().map(|pool| pool.name.clone()));
        }
        Ok(rollout)
    }
}

/// The YAML that ocpdeploy writes is JSON.
fn object(manifest: &Manifest) -> Result<DynamicObject> {
    serde_json::from_str(&manifest.content).with_context(|| format!("read {}", manifest.path))
}
