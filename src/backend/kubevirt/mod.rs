//! KubeVirt: machines in one namespace of a Kubernetes or OpenShift cluster, with the rights of an ordinary user.
//!
//! The API server here is the platform's, never the one of the deployed cluster.

mod balancers;
mod choices;
mod compare;
mod console;
mod contents;
pub mod csi;
mod errors;
mod images;
mod kind;
mod kubeconfig;
mod labels;
mod look;
mod machines;
pub mod manifests;
mod namespace;
mod network;
mod objects;
mod pods;
mod preflight;
mod quotas;
mod release;
mod session;
mod snapshots;

use std::collections::BTreeSet;
use std::time::SystemTime;

use async_trait::async_trait;
use serde_json::Value;

pub use self::choices::contexts;
use self::images::LocalImage;
use self::kind::Kind;
use self::session::{Session, if_allowed};
use crate::backend::{
    Action, AddressReservation, Backend, BackendError, BalancedVip, Capabilities, Console, Description, Finding,
    ImageHandle, ImageRequest, LoadBalancer, Machine, MachineSnapshot, MachineSpec, NetworkFacts, Owned,
    PlatformChoices, Requirements, ReservationState, Reserved, Snapshot, Stop,
};
use crate::cluster::{ClusterId, KubevirtConfig, MachineName};

/// A namespace of a Kubernetes cluster with KubeVirt, accessed with a kubeconfig.
pub struct Kubevirt {
    session: Session,
    config: KubevirtConfig,
}

impl Kubevirt {
    /// Reads the kubeconfig and other files of the settings; sends no request.
    pub async fn connect(config: &KubevirtConfig) -> Result<Self, BackendError> {
        config.upload_ca.as_deref().map(images::upload_ca).transpose()?;
        Ok(Self {
            session: Session::open(config).await?,
            config: config.clone(),
        })
    }
}

/// Parses a text like an object of the API server, for `fuzz/`.
#[doc(hidden)]
pub fn read_answer(text: &str) -> Option<Machine> {
    let object: Value = serde_json::from_str(text).ok()?;
    labels::owner(&object);
    objects::users(&object);
    objects::volumes_of(&object);
    look::remains(&object);
    look::macs(&object);
    labels::is_going(&object);
    compare::quantity(&object);
    compare::difference(&object, &object);
    snapshots::read(&object);
    look::machine(&object, Some(&object))
}

/// Kinds that can have a cluster's label, in the order of deletion: first what acts on machines, then machines, then
/// the rest.
const OURS: [Kind; 11] = [
    Kind::Restore,
    Kind::Snapshot,
    Kind::Machine,
    Kind::Instance,
    Kind::DataVolume,
    Kind::Claim,
    Kind::Secret,
    Kind::Service,
    Kind::Policy,
    Kind::Route,
    Kind::ConfigMap,
];

#[async_trait(?Send)]
impl Backend for Kubevirt {
    fn capabilities(&self) -> Capabilities {
        (&self.config).into()
    }

    async fn preflight(&self, needs: &Requirements) -> Result<Vec<Finding>, BackendError> {
        preflight::preflight(&self.session, &self.config, needs).await
    }

    async fn network_facts(&self, network: &str) -> Result<NetworkFacts, BackendError> {
        network::look(&self.session, network).await
    }

    async fn ensure_image(&self, cluster: &ClusterId, image: &ImageRequest) -> Result<ImageHandle, BackendError> {
        self.make_namespace().await?;
        match image {
            ImageRequest::Platform(name) => images::find(&self.session, &self.config, cluster, name).await,
            ImageRequest::File {
                path, sha256, bytes, ..
            } => {
                let image = LocalImage {
                    path,
                    sha256,
                    bytes: *bytes,
                };
                images::upload(&self.session, &self.config, cluster, &image).await
            }
        }
    }

    async fn create_machine(&self, spec: &MachineSpec) -> Result<Action<Machine>, BackendError> {
        machines::create(&self.session, &self.config, spec).await
    }

    async fn list_machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError> {
        machines::list(&self.session, cluster).await
    }

    async fn delete_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        machines::delete(&self.session, cluster, name).await
    }

    async fn start_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        machines::start(&self.session, cluster, name).await
    }

    async fn stop_machine(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError> {
        machines::stop(&self.session, cluster, name, how).await
    }

    async fn reserve_address(&self, hold: &AddressReservation) -> Result<ReservationState, BackendError> {
        balancers::hold(&self.session, hold).await
    }

    async fn list_reservations(&self, cluster: &ClusterId) -> Result<Vec<Reserved>, BackendError> {
        let held = balancers::held(&self.session, cluster).await?;
        Ok(held.into_iter().map(Reserved::from).collect())
    }

    async fn release_address(&self, hold: &AddressReservation) -> Result<Action<()>, BackendError> {
        balancers::release(&self.session, hold).await
    }

    async fn delete_remaining(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        self.release(cluster).await
    }

    async fn list_owned(&self, cluster: &ClusterId) -> Result<Vec<Owned>, BackendError> {
        self.owned(cluster).await
    }

    async fn list_clusters(&self) -> Result<BTreeSet<ClusterId>, BackendError> {
        self.clusters().await
    }

    async fn console_tail(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<String>, BackendError> {
        machines::console(&self.session, cluster, name).await
    }

    async fn attach_console(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<Console>, BackendError> {
        console::open(&self.session, &self.config, cluster, name)
            .await
            .map(Some)
    }

    async fn ensure_load_balancer(&self, balancer: &LoadBalancer) -> Result<Option<BalancedVip>, BackendError> {
        self.make_namespace().await?;
        match &self.config.pods {
            Some(site) if balancer.network == objects::POD_NETWORK => {
                balancers::ensure(&self.session, site, balancer).await.map(Some)
            }
            _ => Ok(None),
        }
    }

    async fn choices(&self) -> Result<PlatformChoices, BackendError> {
        choices::all(&self.session, &self.config).await
    }

    async fn describe_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Description, BackendError> {
        machines::describe(&self.session, cluster, name).await
    }

    async fn server_time(&self) -> Result<Option<SystemTime>, BackendError> {
        choices::time(&self.session).await
    }

    async fn check_snapshots(&self, cluster: &ClusterId, names: &[MachineName]) -> Result<Vec<Finding>, BackendError> {
        snapshots::check(&self.session, cluster, names).await
    }

    async fn save_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<Action<()>, BackendError> {
        snapshots::save(&self.session, cluster, name, snapshot).await
    }

    async fn list_snapshots(&self, cluster: &ClusterId) -> Result<Vec<MachineSnapshot>, BackendError> {
        snapshots::list(&self.session, cluster).await
    }

    async fn revert_to_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<(), BackendError> {
        snapshots::revert(&self.session, cluster, name, snapshot).await
    }

    async fn delete_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<Action<()>, BackendError> {
        snapshots::delete(&self.session, cluster, name, snapshot).await
    }
}

impl Kubevirt {
    /// Called by the first operations of a deployment: images and load balancers.
    async fn make_namespace(&self) -> Result<(), BackendError> {
        match self.config.makes_namespace {
            true => namespace::make(&self.session).await,
            false => Ok(()),
        }
    }

    /// The API server and the namespace of the machines.
    pub fn place(&self) -> (&str, &str) {
        (&self.session.server, &self.session.namespace)
    }

    /// The size of an image; 0 for one whose size the platform does not show.
    pub async fn image_bytes(&self, image: &ImageHandle) -> Result<u64, BackendError> {
        match objects::Root::read(image) {
            Some(root) => images::size(&self.session, &root).await,
            None => Ok(0),
        }
    }

    /// The settings with the platform's choices for an existing cluster: its Routes, and the range of its pods.
    pub async fn resolve_config(&self, cluster: &ClusterId) -> Result<KubevirtConfig, BackendError> {
        let mut config = self.config.clone();
        if let Some(site) = &mut config.pods {
            balancers::settle(&self.session, cluster, site).await?;
        }
        Ok(config)
    }

    /// Deletes all objects except machines and their objects. The anchor is the last one, so that an interrupted
    /// release is repeated.
    async fn release(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        let selector = labels::of_cluster(cluster);
        let machines = self.session.list(Kind::Machine, &selector).await?;
        let theirs: BTreeSet<&str> = machines.iter().map(labels::name).collect();
        for kind in OURS
            .into_iter()
            .filter(|kind| !matches!(kind, Kind::Machine | Kind::ConfigMap))
        {
            let mut objects = self.session.of_kind(kind, &selector).await?;
            objects.retain(|object| {
                labels::label(object, labels::MACHINE).is_none_or(|machine| !theirs.contains(machine))
            });
            self.session.remove_all(kind, &objects).await?;
        }
        images::leave(&self.session, cluster).await?;
        if theirs.is_empty() {
            self.session.sweep(Kind::ConfigMap, &selector).await?;
            namespace::leave(&self.session).await?;
        }
        Ok(())
    }

    /// The clusters that own objects in the namespace.
    async fn clusters(&self) -> Result<BTreeSet<ClusterId>, BackendError> {
        let mut found = BTreeSet::new();
        for kind in OURS {
            let all = if_allowed(self.session.list_labels(kind, labels::CLUSTER).await)?;
            found.extend(all.iter().flatten().filter_map(labels::owner));
        }
        // Without this right the user has no images here. A namespace that does not exist yet has none either.
        let images = if_allowed(self.session.list(Kind::DataVolume, labels::IMAGE).await)?.unwrap_or_default();
        let images = images.iter().filter(|image| objects::is_image(image));
        found.extend(images.flat_map(objects::users));
        Ok(found)
    }

    /// The objects of this cluster. Controllers create a machine's instance, volumes and claims later, so a machine
    /// stands for its objects; only orphans are listed separately.
    async fn owned(&self, cluster: &ClusterId) -> Result<Vec<Owned>, BackendError> {
        let selector = labels::of_cluster(cluster);
        let mut found = BTreeSet::new();
        let mut add = |kind: Kind, name: &str| {
            let (kind, name) = (kind.word().to_owned(), name.to_owned());
            found.insert(Owned { kind, name });
        };
        let mut explained = BTreeSet::new();
        for kind in OURS {
            for object in self.session.of_kind(kind, &selector).await? {
                let name = labels::name(&object);
                if let Some(saved) = snapshots::read(&object) {
                    add(kind, &format!("{} {}", saved.machine, saved.snapshot.name));
                    continue;
                }
                match kind {
                    Kind::Machine => {
                        explained.insert((Kind::Instance, name.to_owned()));
                        for volume in objects::volumes_of(&object) {
                            add(Kind::DataVolume, &volume);
                            explained.insert((Kind::Claim, volume));
                        }
                    }
                    Kind::DataVolume => {
                        explained.insert((Kind::Claim, name.to_owned()));
                    }
                    _ => {}
                }
                if !explained.contains(&(kind, name.to_owned())) {
                    add(kind, name);
                }
            }
        }
        for image in images::used_by(&self.session, cluster).await? {
            add(Kind::DataVolume, labels::name(&image));
        }
        Ok(found.into_iter().collect())
    }
}
