//! libvirt, local or remote, through its C library.
//!
//! All data, including images and Ignition, is sent over the connection, so a remote host requires only libvirt. All
//! state is on the host.

mod addresses;
mod attachment;
mod choices;
mod console;
mod domain;
mod entries;
mod ffi;
mod images;
mod machines;
mod network;
mod power;
mod preflight;
mod seed;
mod session;
mod snapshots;
mod storage;
mod volumes;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use virt::connect::Connect;

use self::domain::{HostPlatform, TaggedDomain, uuid_of};
use self::entries::NetworkEntry;
use self::machines::TagCache;
use self::session::{CallProgress, LibvirtSession, lock};
use self::storage::Storage;
use self::volumes::Volume;
use crate::backend::error::if_exists;
use crate::backend::{
    Action, AddressReservation, Backend, BackendError, BackendErrorKind, Capabilities, Console, Description, Finding,
    ImageHandle, ImageRequest, Machine, MachineSnapshot, MachineSpec, NetworkFacts, Owned, PlatformChoices,
    Requirements, ReservationState, Reserved, Snapshot, Stop,
};
use crate::cluster::{Architecture, ClusterId, LibvirtConfig, MachineName};

/// A connection to a libvirt host.
pub struct Libvirt {
    session: Arc<LibvirtSession>,
    tags: Arc<TagCache>,
    config: LibvirtConfig,
    /// Read when the first machine of an architecture is created, because the emulators of a host do not change.
    platforms: Arc<Mutex<HashMap<Architecture, HostPlatform>>>,
    /// Locks of machines that are being created or deleted.
    busy: Mutex<HashMap<MachineName, Arc<tokio::sync::Mutex<()>>>>,
    /// Held while an address is reserved. For each reservation, libvirt rebuilds the firewall of the running network,
    /// which takes up to a second and locks the network (libvirt/libvirt: src/network/bridge_driver.c, `networkUpdate`;
    /// one call has one reservation). Parallel reservations would delay other requests, and would not be faster.
    reserving: tokio::sync::Mutex<()>,
}

impl Libvirt {
    /// Connects. Sends no other request.
    pub async fn connect(config: &LibvirtConfig) -> Result<Self, BackendError> {
        reject_session(&config.uri)?;
        Ok(Self {
            session: Arc::new(LibvirtSession::open(&config.uri).await?),
            tags: Arc::default(),
            config: config.clone(),
            platforms: Arc::default(),
            busy: Mutex::default(),
            reserving: tokio::sync::Mutex::default(),
        })
    }

    /// Waits until no other call creates or deletes this machine.
    async fn lock_machine(&self, name: &MachineName) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = Arc::clone(lock(&self.busy).entry(name.clone()).or_default());
        turn.lock_owned().await
    }

    /// Like `call`, for one snapshot.
    async fn call_snapshot<T: Send + 'static>(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
        work: fn(&Connect, &ClusterId, &MachineName, &Snapshot) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        let _turn = self.lock_machine(name).await;
        let (cluster, name, snapshot) = (cluster.clone(), name.clone(), snapshot.clone());
        self.call(move |connect, _| work(connect, &cluster, &name, &snapshot))
            .await
    }

    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connect, &CallProgress) -> Result<T, BackendError> + Send + 'static,
    ) -> Result<T, BackendError> {
        self.session.call(work).await
    }

    /// Like `call`, for operations on the pool.
    async fn call_storage<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Storage, &Connect, &CallProgress) -> Result<T, BackendError> + Send + 'static,
    ) -> Result<T, BackendError> {
        let pool = self.config.pool.clone();
        let on_pool =
            move |connect: &Connect, progress: &CallProgress| work(&Storage::open(connect, &pool)?, connect, progress);
        self.call(on_pool).await
    }
}

/// Parses a text like the documents of libvirt, for `fuzz/`.
#[doc(hidden)]
pub fn read_answer(text: &str) -> Option<ClusterId> {
    Volume::read(text);
    let element = crate::xml::parse(text).ok()?;
    let network = entries::NetworkDocument::read(&element);
    let found = entries::clusters(&network);
    for cluster in &found {
        entries::of_cluster(&network, cluster);
    }
    TaggedDomain::read(&element).map(|ours| ours.ownership.cluster)
}

/// A session libvirt has neither bridges nor a DHCP server.
fn reject_session(uri: &str) -> Result<(), BackendError> {
    let path = uri.split('?').next().unwrap_or_default();
    match path.starts_with("qemu") && path.ends_with("/session") {
        true => Err(BackendError::new(
            BackendErrorKind::Rejected,
            "session connections are not supported: their machines share no network",
        )
        .hint("use qemu:///system")),
        false => Ok(()),
    }
}

#[async_trait(?Send)]
impl Backend for Libvirt {
    fn capabilities(&self) -> Capabilities {
        (&self.config).into()
    }

    async fn preflight(&self, needs: &Requirements) -> Result<Vec<Finding>, BackendError> {
        let (config, needs) = (self.config.clone(), needs.clone());
        self.call(move |connect, _| preflight::look(connect, &config, &needs))
            .await
    }

    async fn network_facts(&self, network: &str) -> Result<NetworkFacts, BackendError> {
        let network = network.to_owned();
        self.call(move |connect, _| network::look(connect, &network)).await
    }

    async fn ensure_image(&self, cluster: &ClusterId, image: &ImageRequest) -> Result<ImageHandle, BackendError> {
        let cluster = cluster.clone();
        match image.clone() {
            ImageRequest::Platform(name) => {
                let find = move |storage: &Storage, _: &Connect, _: &CallProgress| {
                    storage.base(&name).map(|_| ImageHandle(name))
                };
                self.call_storage(find).await
            }
            ImageRequest::File {
                path, sha256, bytes, ..
            } => {
                let ensure = move |storage: &Storage, _: &Connect, progress: &CallProgress| {
                    let (path, sha256) = (path.as_path(), sha256.as_str());
                    let image = images::ImageFile { path, sha256, bytes };
                    images::ensure(storage, &cluster, &image, progress).map(ImageHandle)
                };
                self.call_storage(ensure).await
            }
        }
    }

    async fn create_machine(&self, spec: &MachineSpec) -> Result<Action<Machine>, BackendError> {
        let (spec, virt_type, cache) = (spec.clone(), self.config.virt_type, self.config.disk_cache);
        let _turn = self.lock_machine(&spec.name).await;
        let platforms = Arc::clone(&self.platforms);
        let create = move |storage: &Storage, connect: &Connect, progress: &CallProgress| {
            let known = lock(&platforms).get(&spec.arch).cloned();
            let platform = match known {
                Some(platform) => platform,
                None => {
                    let chosen = HostPlatform::of(connect, spec.arch, virt_type)?;
                    lock(&platforms).insert(spec.arch, chosen.clone());
                    chosen
                }
            };
            machines::create(storage, connect, &platform, cache, &spec, progress)
        };
        self.call_storage(create).await
    }

    async fn list_machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError> {
        let cluster = cluster.clone();
        let tags = Arc::clone(&self.tags);
        self.call(move |connect, _| machines::list(connect, &tags, &cluster))
            .await
    }

    async fn delete_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        let (cluster, name) = (cluster.clone(), name.clone());
        let _turn = self.lock_machine(&name).await;
        self.call_storage(move |storage, connect, _| machines::delete(storage, connect, &cluster, &name))
            .await
    }

    async fn start_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        let (cluster, name) = (cluster.clone(), name.clone());
        let _turn = self.lock_machine(&name).await;
        self.call(move |connect, _| machines::start_again(connect, &cluster, &name))
            .await
    }

    async fn stop_machine(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError> {
        let (cluster, name) = (cluster.clone(), name.clone());
        let _turn = self.lock_machine(&name).await;
        self.call(move |connect, _| machines::stop(connect, &cluster, &name, how))
            .await
    }

    async fn reserve_address(&self, reservation: &AddressReservation) -> Result<ReservationState, BackendError> {
        let reservation = reservation.clone();
        let _turn = self.reserving.lock().await;
        self.call(move |connect, _| network::reserve(connect, &reservation))
            .await
    }

    async fn list_reservations(&self, cluster: &ClusterId) -> Result<Vec<Reserved>, BackendError> {
        let cluster = cluster.clone();
        self.call(move |connect, _| {
            let mut held = Vec::new();
            for network in connect.list_all_networks(0)? {
                held.extend(
                    network::reservations(&network, &cluster)?
                        .into_iter()
                        .map(Reserved::from),
                );
            }
            Ok(held)
        })
        .await
    }

    async fn release_address(&self, reservation: &AddressReservation) -> Result<Action<()>, BackendError> {
        let reservation = reservation.clone();
        self.call(move |connect, _| network::release(connect, &reservation))
            .await
    }

    async fn delete_remaining(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        let cluster = cluster.clone();
        self.call_storage(move |storage, connect, progress| {
            for network in connect.list_all_networks(0)? {
                network::delete_entries(&network, &cluster)?;
            }
            delete_orphaned_volumes(storage, connect, &cluster)?;
            images::release(storage, &cluster, progress)
        })
        .await
    }

    async fn list_owned(&self, cluster: &ClusterId) -> Result<Vec<Owned>, BackendError> {
        let cluster = cluster.clone();
        self.call_storage(move |storage, connect, _| owned(storage, connect, &cluster))
            .await
    }

    async fn list_clusters(&self) -> Result<BTreeSet<ClusterId>, BackendError> {
        self.call_storage(|storage, connect, _| clusters(storage, connect))
            .await
    }

    async fn console_tail(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<String>, BackendError> {
        let log = {
            let (cluster, name) = (cluster.clone(), name.clone());
            let read = move |storage: &Storage, connect: &Connect, _: &CallProgress| {
                console::read_log(storage, connect, &cluster, &name)
            };
            self.call_storage(read).await?
        };
        let text = match log {
            Some(text) => Some(text),
            // `machines::create` created it without a log.
            None => match self.attach_console(cluster, name).await {
                Ok(Some(console)) => Some(console::listen(console).await),
                Ok(None) | Err(_) => None,
            },
        };
        Ok(text.filter(|text| !text.is_empty()))
    }

    async fn attach_console(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<Console>, BackendError> {
        let (uri, cluster, name) = (self.config.uri.clone(), cluster.clone(), name.clone());
        self.call(move |_, _| console::open(&uri, &cluster, &name)).await
    }

    async fn choices(&self) -> Result<PlatformChoices, BackendError> {
        let config = self.config.clone();
        self.call(move |connect, _| choices::query(connect, &config)).await
    }

    async fn local_disk_dir(&self) -> Result<Option<PathBuf>, BackendError> {
        if !self.config.is_local() {
            return Ok(None);
        }
        let folder = |storage: &Storage, _: &Connect, _: &CallProgress| {
            let described = storage.describe()?;
            Ok(described.find("target/path").map(|path| PathBuf::from(&path.text)))
        };
        self.call_storage(folder).await
    }

    async fn describe_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Description, BackendError> {
        let (cluster, name) = (cluster.clone(), name.clone());
        self.call(move |connect, _| machines::describe(connect, &cluster, &name))
            .await
    }

    async fn check_snapshots(&self, cluster: &ClusterId, names: &[MachineName]) -> Result<Vec<Finding>, BackendError> {
        let (cluster, names, pool) = (cluster.clone(), names.to_vec(), self.config.pool.clone());
        self.call_storage(move |storage, connect, _| snapshots::check(storage, connect, &pool, &cluster, &names))
            .await
    }

    async fn save_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<Action<()>, BackendError> {
        self.call_snapshot(cluster, name, snapshot, snapshots::save).await
    }

    async fn list_snapshots(&self, cluster: &ClusterId) -> Result<Vec<MachineSnapshot>, BackendError> {
        let cluster = cluster.clone();
        self.call(move |connect, _| snapshots::list(connect, &cluster)).await
    }

    async fn revert_to_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<(), BackendError> {
        self.call_snapshot(cluster, name, snapshot, snapshots::revert).await
    }

    async fn delete_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<Action<()>, BackendError> {
        self.call_snapshot(cluster, name, snapshot, snapshots::delete).await
    }
}

/// Deletes volumes of machines without a domain: those of an interrupted creation, and full console logs.
fn delete_orphaned_volumes(storage: &Storage, connect: &Connect, cluster: &ClusterId) -> Result<(), BackendError> {
    // Files that virtlogd created are listed only after a refresh, which fails while a volume is being created.
    let _ = storage.refresh();
    for (name, volume) in storage.list()? {
        let Some(Volume::OfMachine { cluster: of, machine }) = Volume::read(&name) else {
            continue;
        };
        if of == *cluster && if_exists(connect.lookup_domain_by_uuid(uuid_of(cluster, &machine)))?.is_none() {
            storage::delete(&volume)?;
        }
    }
    Ok(())
}

fn owned(storage: &Storage, connect: &Connect, cluster: &ClusterId) -> Result<Vec<Owned>, BackendError> {
    let owned = |kind: &str, name: String| Owned {
        kind: kind.to_owned(),
        name,
    };
    let mut all = BTreeSet::new();
    for domain in connect.list_all_domains(0)? {
        let Some(described) = if_exists(domain.xml_desc(0))? else {
            continue;
        };
        if TaggedDomain::read(&crate::xml::parse(&described)?).is_some_and(|ours| ours.ownership.cluster == *cluster) {
            all.insert(owned("domain", domain.name()?));
        }
    }
    for MachineSnapshot { machine, snapshot, .. } in snapshots::list(connect, cluster)? {
        all.insert(owned("snapshot", format!("{machine} {}", snapshot.name)));
    }
    for (name, _) in storage.list()? {
        if Volume::read(&name).is_some_and(|volume| volume.owner() == Some(cluster)) {
            all.insert(owned("volume", name));
        }
    }
    for network in connect.list_all_networks(0)? {
        for entry in network::entries(&network, cluster)? {
            all.insert(match entry {
                NetworkEntry::Host(host) => owned("dhcp host", host.name),
                NetworkEntry::Record(record) => owned("dns host", record.names.join(" ")),
            });
        }
    }
    Ok(all.into_iter().collect())
}

fn clusters(storage: &Storage, connect: &Connect) -> Result<BTreeSet<ClusterId>, BackendError> {
    let mut all = BTreeSet::new();
    for domain in connect.list_all_domains(0)? {
        if let Some(described) = if_exists(domain.xml_desc(0))? {
            all.extend(TaggedDomain::read(&crate::xml::parse(&described)?).map(|ours| ours.ownership.cluster));
        }
    }
    for (name, _) in storage.list()? {
        all.extend(Volume::read(&name).and_then(|volume| volume.owner().cloned()));
    }
    for network in connect.list_all_networks(0)? {
        all.extend(network::clusters(&network)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_uris_are_rejected() {
        for uri in ["qemu:///session", "qemu+ssh://me@host/session?no_tty=1"] {
            assert!(reject_session(uri).is_err(), "{uri}");
        }
        for uri in ["qemu:///system", "qemu+ssh://me@session/system", "test:///default"] {
            assert!(reject_session(uri).is_ok(), "{uri}");
        }
    }
}
