//! oVirt and Red Hat Virtualization, by the engine's REST API of version 4.
//!
//! The comment of a machine and the description of a disk contain its cluster; the request that creates the object writes
//! them. A tag groups a cluster's machines for people and lists its images. oVirt knows only the addresses that a
//! guest's agent reports, and cannot reserve addresses.

mod affinity;
mod answers;
mod choices;
mod describe;
mod engine;
mod hosts;
mod images;
mod machines;
mod power;
mod rights;
mod session;
mod site;
mod snapshots;
mod upload;
mod wire;

use std::collections::BTreeSet;
use std::time::SystemTime;

use super::{
    Action, Backend, BackendError, Capabilities, Description, Finding, ImageHandle, ImageRequest, Machine,
    MachineSnapshot, MachineSpec, NetworkFacts, Owned, PlatformChoices, Requirements, Snapshot, Stop,
};
use crate::cluster::{ClusterId, MachineName};
use async_trait::async_trait;
pub use choices::{Ca, fetch_ca};
pub use engine::Ovirt;

/// The points that no test of this project can confirm, because they require a real engine. One line each, for a user
/// who deploys on one. The same list is in `docs/how-to/ovirt.md`.
pub const UNVERIFIED: [&str; 10] = [
    "`ocpdeploy check` names the engine's version and reports no failure",
    "as an ordinary user, `ocpdeploy check` warns that the user is not an administrator",
    "the upload ends, and the template ocpdeploy-image-... has status OK",
    "after Ctrl-C during the upload, the same command continues it",
    "machines of pass one report their addresses in the Administration Portal",
    "the console of a master shows Ignition with the config drive, and the node's host name",
    "the affinity groups ocpdeploy-CLUSTER-masters and -workers contain all masters and workers, on different hosts",
    "with ovirt_worker_label, workers run on the hosts of the label only",
    "`ocpdeploy destroy` during an upload leaves no disk, transfer, tag or affinity group",
    "after each command, the Administration Portal lists no active session of the user",
];

/// Reads a text as each kind of response, for `fuzz/`.
#[doc(hidden)]
pub fn read_answer(text: &str) -> Option<Machine> {
    let element = answers::read(reqwest::StatusCode::OK, text).ok()?;
    let _ = answers::read(reqwest::StatusCode::CONFLICT, text);
    let _ = answers::read_token(reqwest::StatusCode::OK, text);
    wire::ClusterTag::read(&element);
    wire::EngineVersion::read(&element);
    wire::without_payload(&element);
    wire::marked(&element.text);
    snapshots::read_description(&element.text);
    let addresses = wire::addresses(element.iter());
    Some(wire::machine(&element, wire::ownership(&element)?, &addresses))
}

#[async_trait(?Send)]
impl Backend for Ovirt {
    fn capabilities(&self) -> Capabilities {
        (&self.config).into()
    }

    async fn preflight(&self, needs: &Requirements) -> Result<Vec<Finding>, BackendError> {
        let mut findings = self.check_all(needs).await?;
        findings.push(
            Finding::warn("oVirt cannot reserve addresses: nodes keep theirs by renewing their leases")
                .hint("set api_ip and ingress_ip to addresses outside the DHCP range"),
        );
        Ok(findings)
    }

    async fn network_facts(&self, network: &str) -> Result<NetworkFacts, BackendError> {
        Ok(NetworkFacts {
            identity: self.network_identity(network).await?,
            ..NetworkFacts::default()
        })
    }

    async fn ensure_image(&self, cluster: &ClusterId, image: &ImageRequest) -> Result<ImageHandle, BackendError> {
        self.provide_image(cluster, image).await
    }

    async fn create_machine(&self, spec: &MachineSpec) -> Result<Action<Machine>, BackendError> {
        self.create(spec).await
    }

    async fn list_machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError> {
        self.machines(cluster).await
    }

    async fn delete_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        self.remove(cluster, name).await
    }

    async fn start_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        self.power_on(cluster, name).await
    }

    async fn stop_machine(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError> {
        self.power_off(cluster, name, how).await
    }

    async fn delete_remaining(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        affinity::remove(self, self.site().await?, cluster).await?;
        // Disks of existing machines are removed with them.
        if self.machines(cluster).await?.is_empty() {
            self.remove_disks(cluster, None).await?;
        }
        self.release_images(cluster).await
    }

    async fn list_owned(&self, cluster: &ClusterId) -> Result<Vec<Owned>, BackendError> {
        let mut owned = self.owned_machines(cluster).await?;
        let groups = affinity::groups(self, self.site().await?, cluster).await?;
        owned.extend(groups.into_iter().map(|(name, _)| Owned {
            kind: "affinity group".to_owned(),
            name,
        }));
        owned.extend(self.owned_images(cluster).await?);
        for saved in self.saved(cluster).await? {
            owned.push(Owned {
                kind: "snapshot".to_owned(),
                name: format!("{} {}", saved.machine, saved.snapshot.name),
            });
        }
        Ok(owned)
    }

    async fn list_clusters(&self) -> Result<BTreeSet<ClusterId>, BackendError> {
        let mut all = self.clusters_with_machines().await?;
        all.extend(affinity::clusters(self, self.site().await?).await?);
        all.extend(self.clusters_with_images().await?);
        Ok(all)
    }

    async fn choices(&self) -> Result<PlatformChoices, BackendError> {
        self.all_offers().await
    }

    async fn describe_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Description, BackendError> {
        self.describe(cluster, name).await
    }

    async fn server_time(&self) -> Result<Option<SystemTime>, BackendError> {
        self.time().await
    }

    async fn check_snapshots(&self, cluster: &ClusterId, names: &[MachineName]) -> Result<Vec<Finding>, BackendError> {
        self.check_disks(cluster, names).await
    }

    async fn save_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<Action<()>, BackendError> {
        self.save(cluster, name, snapshot).await
    }

    async fn list_snapshots(&self, cluster: &ClusterId) -> Result<Vec<MachineSnapshot>, BackendError> {
        self.saved(cluster).await
    }

    async fn check_restore(
        &self,
        cluster: &ClusterId,
        names: &[MachineName],
        snapshot: &Snapshot,
    ) -> Result<Vec<Finding>, BackendError> {
        self.check_later_snapshots(cluster, names, snapshot).await
    }

    async fn revert_to_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<(), BackendError> {
        self.revert(cluster, name, snapshot).await
    }

    async fn delete_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<Action<()>, BackendError> {
        self.remove_snapshot(cluster, name, snapshot).await
    }
}
