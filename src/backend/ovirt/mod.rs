//! oVirt and Red Hat Virtualization, by the engine's REST API of version 4.
//!
//! The comment of a machine and the description of a disk contain its cluster; the request that creates the object writes
//! them. A tag groups a cluster's machines for people and lists its images. oVirt has no addresses: they are what a
//! guest's agent reports, and oVirt cannot reserve them.

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
mod unverified;
mod upload;
mod wire;

use std::collections::BTreeSet;
use std::time::SystemTime;

use super::{
    Action, AddressReservation, Backend, BackendError, Capabilities, Description, Diagnostics, Discovery, Finding,
    ImageHandle, ImageRequest, Machine, MachineSnapshot, MachineSpec, NetworkFacts, Owned, PlatformChoices,
    Requirements, ReservationState, Reserved, Snapshot, Snapshots, Stop, Verdict,
};
use crate::backend::failure::{During, Failure};
use crate::cluster::{ClusterId, MachineName, Role};
use async_trait::async_trait;
pub use choices::{Ca, fetch_ca};
pub use engine::Ovirt;
pub use unverified::UNVERIFIED;

impl Ovirt {
    async fn release(&self, cluster: &ClusterId) -> Result<(), Failure> {
        affinity::remove(self, self.site().await?, cluster).await?;
        // Disks of existing machines are removed with them.
        if self.machines(cluster).await?.is_empty() {
            self.remove_disks(cluster, None).await?;
        }
        self.release_images(cluster).await
    }

    async fn owned(&self, cluster: &ClusterId) -> Result<Vec<Owned>, Failure> {
        let mut owned = self.owned_machines(cluster).await?;
        if affinity::exists(self, self.site().await?, cluster).await? {
            owned.push(Owned {
                kind: "affinity group".to_owned(),
                name: wire::affinity_name(cluster),
            });
        }
        owned.extend(self.owned_images(cluster).await?);
        for saved in self.saved(cluster).await? {
            owned.push(Owned {
                kind: "snapshot".to_owned(),
                name: format!("{} {}", saved.machine, saved.snapshot.name),
            });
        }
        Ok(owned)
    }

    async fn clusters(&self) -> Result<BTreeSet<ClusterId>, Failure> {
        let mut all = self.clusters_with_machines().await?;
        all.extend(affinity::clusters(self, self.site().await?).await?);
        all.extend(self.clusters_with_images().await?);
        Ok(all)
    }
}

/// Reads a text as each kind of response, for `fuzz/`.
#[doc(hidden)]
pub fn read_answer(text: &str) -> Option<Machine> {
    let element = answers::read(reqwest::StatusCode::OK, text).ok()?;
    let _ = answers::read(reqwest::StatusCode::CONFLICT, text);
    let _ = answers::read_token(reqwest::StatusCode::OK, text);
    wire::Tag::read(&element);
    wire::Version::read(&element);
    wire::without_payload(&element);
    wire::marked(&element.text);
    snapshots::read_description(&element.text);
    let addresses = wire::addresses(element.iter());
    wire::machine(&element, &wire::OwnershipTag::read(&element)?, &addresses)
}

#[async_trait(?Send)]
impl Backend for Ovirt {
    fn capabilities(&self, _: Role) -> Capabilities {
        (&self.config).into()
    }

    async fn preflight(&self, needs: &Requirements) -> Result<Vec<Finding>, BackendError> {
        let operation = format!("check oVirt at {}", self.session.url());
        let mut findings = self.check_all(needs).await.during(operation)?;
        findings.push(Finding {
            verdict: Verdict::Warn,
            text: "oVirt cannot reserve addresses: nodes keep theirs by renewing their leases".to_owned(),
            hint: Some("set api_ip and ingress_ip to addresses outside the DHCP range".to_owned()),
        });
        Ok(findings)
    }

    async fn network_facts(&self, network: &str) -> Result<NetworkFacts, BackendError> {
        let identity = self.network_identity(network).await;
        Ok(NetworkFacts {
            identity: identity.during(format!("read network {network}"))?,
            ..NetworkFacts::default()
        })
    }

    async fn ensure_image(
        &self,
        _: Role,
        cluster: &ClusterId,
        image: &ImageRequest,
    ) -> Result<ImageHandle, BackendError> {
        let operation = match image {
            ImageRequest::File { path, .. } => format!("upload image {}", path.display()),
            ImageRequest::Platform(name) => format!("find template {name}"),
        };
        self.provide_image(cluster, image).await.during(operation)
    }

    async fn create_machine(&self, spec: &MachineSpec) -> Result<Action<Machine>, BackendError> {
        let made = self.create(spec).await;
        made.during(format!("create machine {}", spec.name))
    }

    async fn list_machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError> {
        let machines = self.machines(cluster).await;
        machines.during(format!("list the machines of cluster {cluster}"))
    }

    async fn delete_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        let removed = self.remove(cluster, name).await;
        removed.during(format!("delete machine {name}"))
    }

    async fn start_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        let started = self.power_on(cluster, name).await;
        started.during(format!("start machine {name}"))
    }

    async fn stop_machine(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError> {
        let stopped = self.power_off(cluster, name, how).await;
        stopped.during(format!("stop machine {name}"))
    }

    async fn reserve_address(&self, _: &AddressReservation) -> Result<ReservationState, BackendError> {
        Ok(ReservationState::Unreserved)
    }

    async fn list_reservations(&self, _: &ClusterId) -> Result<Vec<Reserved>, BackendError> {
        Ok(Vec::new())
    }

    async fn release_address(&self, _: &AddressReservation) -> Result<Action<()>, BackendError> {
        Ok(Action::Unchanged(()))
    }

    async fn delete_remaining(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        let released = self.release(cluster).await;
        released.during(format!("delete the remaining objects of cluster {cluster}"))
    }

    async fn list_owned(&self, cluster: &ClusterId) -> Result<Vec<Owned>, BackendError> {
        let owned = self.owned(cluster).await;
        owned.during(format!("list the objects of cluster {cluster}"))
    }

    async fn list_clusters(&self) -> Result<BTreeSet<ClusterId>, BackendError> {
        let found = self.clusters().await;
        found.during(format!("list the clusters at {}", self.session.url()))
    }

    fn discovery(&self) -> Option<&dyn Discovery> {
        Some(self)
    }

    fn diagnostics(&self, _: Role) -> Option<&dyn Diagnostics> {
        Some(self)
    }

    fn snapshots(&self, _: Role) -> Option<&dyn Snapshots> {
        Some(self)
    }
}

#[async_trait(?Send)]
impl Snapshots for Ovirt {
    async fn check_snapshots(&self, cluster: &ClusterId, names: &[MachineName]) -> Result<Vec<Finding>, BackendError> {
        let checked = self.check_disks(cluster, names).await;
        checked.during(format!("check the disks of cluster {cluster}"))
    }

    async fn save_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<Action<()>, BackendError> {
        let saved = self.save(cluster, name, snapshot).await;
        saved.during(format!("save snapshot {} of machine {name}", snapshot.name))
    }

    async fn list_snapshots(&self, cluster: &ClusterId) -> Result<Vec<MachineSnapshot>, BackendError> {
        let listed = self.saved(cluster).await;
        listed.during(format!("list the snapshots of cluster {cluster}"))
    }

    async fn check_restore(
        &self,
        cluster: &ClusterId,
        names: &[MachineName],
        snapshot: &Snapshot,
    ) -> Result<Vec<Finding>, BackendError> {
        let checked = self.check_later_snapshots(cluster, names, snapshot).await;
        checked.during(format!("check the snapshots of cluster {cluster}"))
    }

    async fn revert_to_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<(), BackendError> {
        let reverted = self.revert(cluster, name, snapshot).await;
        reverted.during(format!("restore snapshot {} of machine {name}", snapshot.name))
    }

    async fn delete_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<Action<()>, BackendError> {
        let deleted = self.remove_snapshot(cluster, name, snapshot).await;
        deleted.during(format!("delete snapshot {} of machine {name}", snapshot.name))
    }
}

#[async_trait(?Send)]
impl Discovery for Ovirt {
    async fn choices(&self) -> Result<PlatformChoices, BackendError> {
        let operation = format!("read the choices of oVirt at {}", self.session.url());
        self.all_offers().await.during(operation)
    }
}

#[async_trait(?Send)]
impl Diagnostics for Ovirt {
    async fn server_time(&self) -> Result<Option<SystemTime>, BackendError> {
        let operation = format!("read the time of {}", self.session.url());
        self.time().await.during(operation)
    }

    async fn describe_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Description, BackendError> {
        let described = self.describe(cluster, name).await;
        described.during(format!("describe machine {name}"))
    }
}
