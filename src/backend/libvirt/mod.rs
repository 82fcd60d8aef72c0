//! libvirt, local or remote, through its C library.
//!
//! Everything goes over the connection, images and Ignition included, so that a remote host needs nothing but
//! libvirt. Nothing is remembered here that libvirt itself does not hold.

mod attachment;
mod choices;
mod console;
mod domain;
mod entries;
mod guest;
mod images;
mod leases;
mod machines;
mod network;
mod preflight;
mod seed;
mod session;
mod storage;
mod volumes;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use virt::connect::Connect;

use self::domain::{OwnershipTag, Platform, uuid_of};
use self::entries::Entry;
use self::machines::Known;
use self::session::{Pulse, Session, document, if_there, lock};
use self::storage::Storage;
use self::volumes::Volume;
use crate::backend::failure::{During, Failure};
use crate::backend::{
    Action, AddressReservation, Backend, BackendError, BackendErrorKind, Capabilities, Console, Description,
    Diagnostics, Discovery, Finding, ImageHandle, ImageRequest, Machine, MachineSpec, NetworkFacts, Owned,
    PlatformChoices, Requirements, ReservationState, SerialConsole, Stop,
};
use crate::cluster::{AddressAssignment, ClusterId, LibvirtConfig, MachineName, Role};

/// A libvirt host, connected.
pub struct Libvirt {
    session: Arc<Session>,
    known: Arc<Known>,
    config: LibvirtConfig,
    /// Chosen at the first machine; a host does not change its emulators under way.
    platform: Arc<OnceLock<Platform>>,
    /// Machines that are being made or deleted: one call at a time for each.
    busy: Mutex<HashMap<MachineName, Arc<tokio::sync::Mutex<()>>>>,
}

impl Libvirt {
    /// Connects; nothing else is looked at yet.
    pub async fn connect(config: &LibvirtConfig) -> Result<Self, BackendError> {
        refuse_session(&config.uri).during(format!("connect to {}", config.uri))?;
        Ok(Self {
            session: Arc::new(Session::open(&config.uri).await?),
            known: Arc::default(),
            config: config.clone(),
            platform: Arc::default(),
            busy: Mutex::default(),
        })
    }

    async fn alone_with(&self, name: &MachineName) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = Arc::clone(lock(&self.busy).entry(name.clone()).or_default());
        turn.lock_owned().await
    }

    async fn call<T: Send + 'static>(
        &self,
        operation: String,
        work: impl FnOnce(&Connect, &Pulse) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, BackendError> {
        self.session.call(operation, work).await
    }

    /// As `call`, for work on the pool.
    async fn call_storage<T: Send + 'static>(
        &self,
        operation: String,
        work: impl FnOnce(&Storage, &Connect, &Pulse) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, BackendError> {
        let pool = self.config.pool.clone();
        let on_pool = move |connect: &Connect, pulse: &Pulse| work(&Storage::open(connect, &pool)?, connect, pulse);
        self.call(operation, on_pool).await
    }
}

/// Reads a text as libvirt's documents are read, for `fuzz/`.
#[doc(hidden)]
pub fn read_answer(text: &str) -> Option<ClusterId> {
    Volume::read(text);
    let element = crate::xml::parse(text).ok()?;
    let network = entries::Document::read(&element);
    let found = entries::clusters(&network);
    for cluster in &found {
        entries::of_cluster(&network, cluster);
    }
    OwnershipTag::read(&element).map(|ours| ours.cluster)
}

/// The session libvirt has neither bridges nor a DHCP server.
fn refuse_session(uri: &str) -> Result<(), Failure> {
    let path = uri.split('?').next().unwrap_or_default();
    match path.starts_with("qemu") && path.ends_with("/session") {
        true => Err(Failure::new(
            BackendErrorKind::Rejected,
            "machines of a session libvirt share no network",
        )
        .hint("use qemu:///system")),
        false => Ok(()),
    }
}

#[async_trait(?Send)]
impl Backend for Libvirt {
    fn capabilities(&self, _: Role) -> Capabilities {
        (&self.config).into()
    }

    async fn preflight(&self, needs: &Requirements) -> Result<Vec<Finding>, BackendError> {
        let (config, needs) = (self.config.clone(), needs.clone());
        let operation = format!("look at libvirt at {}", config.uri);
        self.call(operation, move |connect, _| preflight::look(connect, &config, &needs))
            .await
    }

    async fn look_at_network(&self, network: &str) -> Result<NetworkFacts, BackendError> {
        let (operation, network) = (format!("look at network {network}"), network.to_owned());
        self.call(operation, move |connect, _| network::look(connect, &network))
            .await
    }

    async fn ensure_image(
        &self,
        _: Role,
        cluster: &ClusterId,
        image: &ImageRequest,
    ) -> Result<ImageHandle, BackendError> {
        let cluster = cluster.clone();
        match image.clone() {
            ImageRequest::Platform(name) => {
                let operation = format!("find image {name}");
                let find =
                    move |storage: &Storage, _: &Connect, _: &Pulse| storage.base(&name).map(|_| ImageHandle(name));
                self.call_storage(operation, find).await
            }
            ImageRequest::File { path, sha256, bytes } => {
                let operation = format!("upload image {}", path.display());
                let ensure = move |storage: &Storage, _: &Connect, pulse: &Pulse| {
                    let (path, sha256) = (path.as_path(), sha256.as_str());
                    let image = images::LocalImage { path, sha256, bytes };
                    images::ensure(storage, &cluster, &image, pulse).map(ImageHandle)
                };
                self.call_storage(operation, ensure).await
            }
        }
    }

    async fn create_machine(&self, spec: &MachineSpec) -> Result<Action<Machine>, BackendError> {
        let (spec, virt_type) = (spec.clone(), self.config.virt_type);
        let operation = format!("create machine {}", spec.name);
        let _turn = self.alone_with(&spec.name).await;
        let platform = Arc::clone(&self.platform);
        let create = move |storage: &Storage, connect: &Connect, pulse: &Pulse| {
            let platform = match platform.get() {
                Some(platform) => platform,
                None => {
                    let chosen = Platform::choose(&document(connect.capabilities())?, virt_type)?;
                    platform.get_or_init(|| chosen)
                }
            };
            machines::create(storage, connect, platform, &spec, pulse)
        };
        self.call_storage(operation, create).await
    }

    async fn list_machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError> {
        let (cluster, known) = (cluster.clone(), Arc::clone(&self.known));
        let operation = format!("list the machines of cluster {cluster}");
        self.call(operation, move |connect, _| machines::list(connect, &known, &cluster))
            .await
    }

    async fn delete_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        let (cluster, name) = (cluster.clone(), name.clone());
        let operation = format!("delete machine {name}");
        let _turn = self.alone_with(&name).await;
        self.call_storage(operation, move |storage, connect, _| {
            machines::delete(storage, connect, &cluster, &name)
        })
        .await
    }

    async fn start_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        let (cluster, name) = (cluster.clone(), name.clone());
        let operation = format!("start machine {name}");
        let _turn = self.alone_with(&name).await;
        self.call(operation, move |connect, _| {
            machines::start_again(connect, &cluster, &name)
        })
        .await
    }

    async fn stop_machine(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError> {
        let (cluster, name) = (cluster.clone(), name.clone());
        let operation = format!("stop machine {name}");
        let _turn = self.alone_with(&name).await;
        self.call(operation, move |connect, _| {
            machines::stop(connect, &cluster, &name, how)
        })
        .await
    }

    async fn reserve_address(&self, hold: &AddressReservation) -> Result<ReservationState, BackendError> {
        let hold = hold.clone();
        let AddressAssignment { name, ip, .. } = &hold.lease;
        let operation = format!("hold address {ip} for {name} on network {}", hold.network);
        self.call(operation, move |connect, _| network::hold(connect, &hold))
            .await
    }

    async fn list_reservations(&self, cluster: &ClusterId) -> Result<Vec<AddressAssignment>, BackendError> {
        let cluster = cluster.clone();
        let operation = format!("list the addresses held for cluster {cluster}");
        self.call(operation, move |connect, _| {
            let mut held = Vec::new();
            for network in connect.list_all_networks(0)? {
                held.extend(network::held(&network, &cluster)?);
            }
            Ok(held)
        })
        .await
    }

    async fn release_address(&self, hold: &AddressReservation) -> Result<Action<()>, BackendError> {
        let hold = hold.clone();
        let AddressAssignment { name, ip, .. } = &hold.lease;
        let operation = format!("release address {ip} of {name} on network {}", hold.network);
        self.call(operation, move |connect, _| network::release_one(connect, &hold))
            .await
    }

    async fn delete_remaining(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        let cluster = cluster.clone();
        let operation = format!("release what cluster {cluster} holds");
        self.call_storage(operation, move |storage, connect, pulse| {
            for network in connect.list_all_networks(0)? {
                network::release(&network, &cluster)?;
            }
            sweep(storage, connect, &cluster)?;
            images::leave(storage, &cluster, pulse)
        })
        .await
    }

    async fn list_owned(&self, cluster: &ClusterId) -> Result<Vec<Owned>, BackendError> {
        let cluster = cluster.clone();
        let operation = format!("list what belongs to cluster {cluster}");
        self.call_storage(operation, move |storage, connect, _| owned(storage, connect, &cluster))
            .await
    }

    async fn list_clusters(&self) -> Result<BTreeSet<ClusterId>, BackendError> {
        let operation = format!("list the clusters at {}", self.config.uri);
        self.call_storage(operation, |storage, connect, _| clusters(storage, connect))
            .await
    }

    fn serial_console(&self, _: Role) -> Option<&dyn SerialConsole> {
        Some(self)
    }

    fn discovery(&self) -> Option<&dyn Discovery> {
        Some(self)
    }

    fn diagnostics(&self, _: Role) -> Option<&dyn Diagnostics> {
        Some(self)
    }
}

#[async_trait(?Send)]
impl SerialConsole for Libvirt {
    async fn tail(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<String>, BackendError> {
        let (cluster, name) = (cluster.clone(), name.clone());
        let operation = format!("read the console of machine {name}");
        self.call_storage(operation, move |storage, connect, _| {
            machines::console_tail(storage, connect, &cluster, &name)
        })
        .await
    }

    async fn attach(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<Console>, BackendError> {
        let (uri, cluster, name) = (self.config.uri.clone(), cluster.clone(), name.clone());
        let operation = format!("open the console of machine {name}");
        self.call(operation, move |_, _| console::open(&uri, &cluster, &name))
            .await
    }
}

#[async_trait(?Send)]
impl Discovery for Libvirt {
    async fn choices(&self) -> Result<PlatformChoices, BackendError> {
        let config = self.config.clone();
        let operation = format!("look at libvirt at {}", config.uri);
        self.call(operation, move |connect, _| choices::look(connect, &config))
            .await
    }
}

#[async_trait(?Send)]
impl Diagnostics for Libvirt {
    async fn local_disk_dir(&self) -> Result<Option<PathBuf>, BackendError> {
        // `qemu:///system` names no host, and so does no other local one.
        if !self.config.uri.contains(":///") {
            return Ok(None);
        }
        let operation = format!("look at pool {}", self.config.pool);
        let folder = |storage: &Storage, _: &Connect, _: &Pulse| {
            let described = storage.describe()?;
            Ok(described.find("target/path").map(|path| PathBuf::from(&path.text)))
        };
        self.call_storage(operation, folder).await
    }

    async fn describe_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Description, BackendError> {
        let (cluster, name) = (cluster.clone(), name.clone());
        let operation = format!("describe machine {name}");
        self.call(operation, move |connect, _| {
            machines::describe(connect, &cluster, &name)
        })
        .await
    }
}

/// Deletes volumes of machines that have no domain: left by a cut creation, or console logs that grew full.
fn sweep(storage: &Storage, connect: &Connect, cluster: &ClusterId) -> Result<(), Failure> {
    // Only a refresh shows files that virtlogd made; it is refused while someone makes a volume.
    let _ = storage.refresh();
    for (name, volume) in storage.list()? {
        let Some(Volume::OfMachine { cluster: of, machine }) = Volume::read(&name) else {
            continue;
        };
        if of == *cluster && if_there(connect.lookup_domain_by_uuid(uuid_of(cluster, &machine)))?.is_none() {
            storage::delete(&volume)?;
        }
    }
    Ok(())
}

fn owned(storage: &Storage, connect: &Connect, cluster: &ClusterId) -> Result<Vec<Owned>, Failure> {
    let owned = |kind: &str, name: String| Owned {
        kind: kind.to_owned(),
        name,
    };
    let mut all = BTreeSet::new();
    for domain in connect.list_all_domains(0)? {
        let Some(described) = if_there(domain.xml_desc(0))? else {
            continue;
        };
        if OwnershipTag::read(&crate::xml::parse(&described)?).is_some_and(|ours| ours.cluster == *cluster) {
            all.insert(owned("domain", domain.name()?));
        }
    }
    for (name, _) in storage.list()? {
        if Volume::read(&name).is_some_and(|volume| volume.owner() == Some(cluster)) {
            all.insert(owned("volume", name));
        }
    }
    for network in connect.list_all_networks(0)? {
        for entry in network::entries(&network, cluster)? {
            all.insert(match entry {
                Entry::Host(host) => owned("dhcp host", host.name),
                Entry::Record(record) => owned("dns host", record.names.join(" ")),
            });
        }
    }
    Ok(all.into_iter().collect())
}

fn clusters(storage: &Storage, connect: &Connect) -> Result<BTreeSet<ClusterId>, Failure> {
    let mut all = BTreeSet::new();
    for domain in connect.list_all_domains(0)? {
        if let Some(described) = if_there(domain.xml_desc(0))? {
            all.extend(OwnershipTag::read(&crate::xml::parse(&described)?).map(|ours| ours.cluster));
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
    fn a_session_libvirt_is_refused() {
        for uri in ["qemu:///session", "qemu+ssh://me@host/session?no_tty=1"] {
            assert!(refuse_session(uri).is_err(), "{uri}");
        }
        for uri in ["qemu:///system", "qemu+ssh://me@session/system", "test:///default"] {
            assert!(refuse_session(uri).is_ok(), "{uri}");
        }
    }
}
