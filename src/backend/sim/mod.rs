//! A pretend platform: a dry run for users with no hypervisor, and the ground of the tests.
//!
//! All of it is one file (layout in `world.rs` and `store.rs`) that any number of processes may use at once.
//! It refuses whatever a real platform refuses. Nothing runs in it: a machine "boots" by asking the
//! pretend network's DHCP server (`dhcp.rs`) for addresses some milliseconds after it was made.
//! What is slow and what goes wrong is written into the file's `script`.

mod choices;
mod dhcp;
mod noted;
mod rules;
mod store;
#[cfg(test)]
mod tests;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use sha2::{Digest, Sha512};

use super::{
    Action, AddressReservation, Backend, BackendError, BackendErrorKind, Capabilities, Carrier, Description,
    Diagnostics, Discovery, Finding, Form, ImageHandle, ImageRequest, Machine, MachineSpec, NetworkFacts, Owned,
    Payload, PlatformChoices, Power, Requirements, ReservationState, SeenNic, SerialConsole, Stop, Verdict,
};
use crate::cluster::{AddressAssignment, ClusterId, Mac, MachineName, Role, SimConfig};
use crate::digest;
use dhcp::Reservation;
use rules::{
    Refusal, check_hold, check_image, check_spec, find_machine, held, images_of, machines_of, network_of, preflight,
    refuse,
};
use store::{Store, StoreError};
use world::{Call, Delivered, Misdeed, SimMachine, SimNic, What, World};

/// The pretend platform.
#[derive(Clone, Debug)]
pub struct Sim {
    store: Store,
    // Both are read once: a platform does not change them while it is in use.
    limits: Capabilities,
    latency_ms: BTreeMap<Call, u64>,
}

impl Sim {
    /// Opens the pretend platform of this file. A missing file is a fresh platform; nothing is written yet.
    pub fn open(config: &SimConfig) -> Result<Sim, BackendError> {
        let operation = format!("open the pretend platform {}", config.state.display());
        let path = std::path::absolute(&config.state)
            .map_err(|error| BackendError::new(BackendErrorKind::Unreachable, &operation).because(error))?;
        let store = Store::new(path);
        let world = store.read().map_err(|error| unusable(operation, error))?;
        Ok(Sim {
            store,
            limits: Capabilities {
                concurrency: world.limits.concurrency.max(1),
                carrier: Carrier {
                    limit: Some(world.limits.carrier_bytes),
                    compress_above: None,
                    ..Carrier::FW_CFG
                },
                holds_addresses: world.limits.holds_addresses,
                ..config.into()
            },
            latency_ms: world.script.latency_ms,
        })
    }

    /// One call to the platform: scripted latency and faults around `work`, which sees the world as of now.
    ///
    /// `work` must refuse before it changes anything.
    async fn call<T>(
        &self,
        call: Call,
        about: &str,
        operation: String,
        work: impl FnOnce(&mut World, u64) -> Result<T, Refusal>,
    ) -> Result<T, BackendError> {
        use BackendErrorKind::{Denied, Quota, Rejected, Timeout, Unreachable};
        let half = Duration::from_millis(self.latency_ms.get(&call).copied().unwrap_or(0) / 2);
        if !half.is_zero() {
            tokio::time::sleep(half).await;
        }
        let outcome = self.store.update(|world| {
            let now = now_ms();
            world.advance(now);
            let scripted = |kind| refuse(kind, "scripted in the state file");
            match world.fault(call, about) {
                None => work(world, now),
                Some(What::TimeoutAfter) => work(world, now).and_then(|_| scripted(Timeout)),
                Some(What::TimeoutBefore) => scripted(Timeout),
                Some(What::Unreachable) => scripted(Unreachable),
                Some(What::Denied) => scripted(Denied),
                Some(What::Quota) => scripted(Quota),
                Some(What::Rejected) => scripted(Rejected),
            }
        });
        if !half.is_zero() {
            tokio::time::sleep(half).await;
        }
        match outcome {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(refusal)) => Err(BackendError::new(refusal.kind, operation).because(refusal.words)),
            Err(error) => Err(unusable(operation, error)),
        }
    }
}

fn unusable(operation: String, error: StoreError) -> BackendError {
    match &error {
        StoreError::Io(_) => BackendError::new(BackendErrorKind::Unreachable, operation)
            .because(error)
            .hint("the pretend platform is a file; check its folder and rights"),
        StoreError::Content { .. } => BackendError::new(BackendErrorKind::Rejected, operation)
            .because(error)
            .hint("correct the file, or remove it for a fresh pretend platform"),
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl From<&SimConfig> for Capabilities {
    fn from(_: &SimConfig) -> Self {
        Self {
            concurrency: 8,
            poll_interval: Duration::from_millis(20),
            // Tests and users read the files of a simulated node as they are.
            carrier: Carrier {
                compress_above: None,
                ..Carrier::FW_CFG
            },
            holds_addresses: true,
            pretend: true,
            guests_answer: false,
            agent_reports: false,
            image_artifact: "qemu",
            fetches_images: false,
        }
    }
}

#[async_trait(?Send)]
impl Backend for Sim {
    fn capabilities(&self, _: Role) -> Capabilities {
        self.limits.clone()
    }

    async fn preflight(&self, needs: &Requirements) -> Result<Vec<Finding>, BackendError> {
        let about = needs.cluster.as_ref().map(ClusterId::as_str).unwrap_or_default();
        let operation = format!("look at the pretend platform {}", self.store.path().display());
        let mut findings = vec![Finding {
            verdict: Verdict::Ok,
            text: format!("pretend platform {} can be used", self.store.path().display()),
            hint: None,
        }];
        findings.extend(
            self.call(Call::Preflight, about, operation, |world, _| {
                Ok(preflight(world, needs))
            })
            .await?,
        );
        Ok(findings)
    }

    async fn look_at_network(&self, network: &str) -> Result<NetworkFacts, BackendError> {
        let operation = format!("look at network {network}");
        self.call(Call::LookAtNetwork, network, operation, |world, _| {
            let found = network_of(world, network)?;
            let reserved = found.reservations.iter().map(|(ip, kept)| (*ip, Some(kept.mac)));
            let leased = found.leases.iter().map(|(ip, lease)| (*ip, Some(lease.mac)));
            Ok(NetworkFacts {
                identity: format!("sim:{}#{network}", self.store.path().display()),
                cidr: Some(found.cidr),
                gateway: Some(found.gateway),
                dhcp_ranges: vec![(found.dhcp_from, found.dhcp_to)],
                taken: leased.chain(reserved).collect(),
                resolvers: vec![found.gateway],
                answers_dns: true,
                peer_domain: None,
            })
        })
        .await
    }

    async fn ensure_image(
        &self,
        _: Role,
        cluster: &ClusterId,
        image: &ImageRequest,
    ) -> Result<ImageHandle, BackendError> {
        match image {
            ImageRequest::Platform(name) => {
                let operation = format!("find image {name}");
                self.call(Call::EnsureImage, name, operation, |world, _| {
                    match world.images.contains(name) {
                        true => Ok(ImageHandle(name.clone())),
                        false => refuse(BackendErrorKind::NotFound, format!("no image {name}")),
                    }
                })
                .await
            }
            ImageRequest::File { path, sha256, bytes } => {
                let operation = format!("upload image {}", path.display());
                let handle = format!("sha256:{sha256}");
                self.call(Call::EnsureImage, &handle, operation, |world, _| {
                    if !world.uploads.contains_key(&handle) {
                        check_image(path, sha256, *bytes)?;
                    }
                    let mut users = world.uploads.get(&handle).cloned().unwrap_or_default();
                    if users.insert(cluster.clone()) {
                        world.uploads.insert(handle.clone(), users);
                    }
                    Ok(ImageHandle(handle.clone()))
                })
                .await
            }
        }
    }

    async fn create_machine(&self, spec: &MachineSpec) -> Result<Action<Machine>, BackendError> {
        let name = &spec.name;
        self.call(
            Call::CreateMachine,
            name.as_str(),
            format!("create machine {name}"),
            |world, now| {
                if let Some(there) = world.machines.get(name) {
                    return match there.cluster == spec.cluster && there.fingerprint == spec.fingerprint() {
                        true if there.off => {
                            switch_on(world, name, now);
                            Ok(Action::Done(seen(world, name, &world.machines[name])))
                        }
                        true => Ok(Action::Unchanged(seen(world, name, there))),
                        false => refuse(
                            BackendErrorKind::Conflict,
                            format!("machine {name} of cluster {} has other settings", there.cluster),
                        ),
                    };
                }
                check_spec(world, &self.limits, spec)?;
                let machine = newborn(world, spec, now);
                let action = Action::Done(seen(world, name, &machine));
                world.machines.insert(name.clone(), machine);
                Ok(action)
            },
        )
        .await
    }

    async fn list_machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError> {
        let operation = format!("list the machines of cluster {cluster}");
        self.call(Call::ListMachines, cluster.as_str(), operation, |world, _| {
            let ours = machines_of(world, cluster).into_iter();
            Ok(ours.map(|(name, machine)| seen(world, name, machine)).collect())
        })
        .await
    }

    async fn delete_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        let operation = format!("delete machine {name}");
        self.call(Call::DeleteMachine, name.as_str(), operation, |world, now| {
            if find_machine(world, cluster, name)?.is_none() {
                return Ok(Action::Unchanged(()));
            }
            switch_off(world, name, now);
            world.machines.remove(name);
            Ok(Action::Done(()))
        })
        .await
    }

    async fn start_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        let operation = format!("start machine {name}");
        self.call(
            Call::StartMachine,
            name.as_str(),
            operation,
            |world, now| match find_machine(world, cluster, name)? {
                None => refuse(BackendErrorKind::NotFound, format!("no machine {name}")),
                Some(machine) if !machine.off => Ok(Action::Unchanged(())),
                Some(_) => {
                    switch_on(world, name, now);
                    Ok(Action::Done(()))
                }
            },
        )
        .await
    }

    async fn stop_machine(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError> {
        let operation = format!("stop machine {name}");
        self.call(
            Call::StopMachine,
            name.as_str(),
            operation,
            |world, now| match find_machine(world, cluster, name)? {
                None => refuse(BackendErrorKind::NotFound, format!("no machine {name}")),
                Some(machine) if machine.off => Ok(Action::Unchanged(())),
                Some(_) => {
                    let listens = !matches!(misdeed(world, name), Some(Misdeed::Deaf | Misdeed::Paused));
                    if listens || how == Stop::Force {
                        switch_off(world, name, now);
                    }
                    Ok(Action::Done(()))
                }
            },
        )
        .await
    }

    async fn reserve_address(&self, hold: &AddressReservation) -> Result<ReservationState, BackendError> {
        let AddressAssignment { name, ip, .. } = &hold.lease;
        let operation = format!("hold address {ip} for {name} on network {}", hold.network);
        self.call(Call::HoldAddress, name.as_str(), operation, |world, _| {
            let Some(network) = world.networks.get_mut(&hold.network) else {
                return refuse(BackendErrorKind::NotFound, format!("no network {}", hold.network));
            };
            if !self.limits.holds_addresses {
                return Ok(ReservationState::Unreserved);
            }
            check_hold(network, hold)?;
            let kept = Reservation {
                mac: hold.lease.mac,
                name: name.clone(),
                cluster: Some(hold.cluster.clone()),
                dns_names: hold.dns_names.iter().cloned().collect(),
            };
            if network.reservations.get(ip) != Some(&kept) {
                network.reservations.insert(*ip, kept);
            }
            Ok(ReservationState::ByPlatform)
        })
        .await
    }

    async fn list_reservations(&self, cluster: &ClusterId) -> Result<Vec<AddressAssignment>, BackendError> {
        let operation = format!("list the addresses held for cluster {cluster}");
        self.call(Call::ListHeld, cluster.as_str(), operation, |world, _| {
            Ok(held(world, cluster)
                .into_iter()
                .map(|(_, ip, kept)| AddressAssignment {
                    name: kept.name.clone(),
                    mac: kept.mac,
                    ip: *ip,
                })
                .collect())
        })
        .await
    }

    async fn release_address(&self, hold: &AddressReservation) -> Result<Action<()>, BackendError> {
        let AddressAssignment { name, mac, ip } = &hold.lease;
        let operation = format!("release address {ip} of {name} on network {}", hold.network);
        self.call(Call::ReleaseAddress, name.as_str(), operation, |world, _| {
            let Some(network) = world.networks.get_mut(&hold.network) else {
                return refuse(BackendErrorKind::NotFound, format!("no network {}", hold.network));
            };
            let is_it = |kept: &Reservation| {
                kept.cluster.as_ref() == Some(&hold.cluster) && kept.name == *name && kept.mac == *mac
            };
            match network.reservations.get(ip).is_some_and(is_it) {
                true => {
                    network.reservations.remove(ip);
                    Ok(Action::Done(()))
                }
                false => Ok(Action::Unchanged(())),
            }
        })
        .await
    }

    async fn delete_remaining(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        let operation = format!("release the addresses of cluster {cluster}");
        self.call(Call::ReleaseAddresses, cluster.as_str(), operation, |world, _| {
            let ours = held(world, cluster).into_iter();
            let ours: Vec<_> = ours.map(|(network, ip, _)| (network.clone(), *ip)).collect();
            for (network, ip) in ours {
                if let Some(network) = world.networks.get_mut(&network) {
                    network.reservations.remove(&ip);
                }
            }
            let images = images_of(world, cluster).into_iter();
            let images: Vec<_> = images.map(|(image, users)| (image.clone(), users.clone())).collect();
            for (image, mut users) in images {
                users.remove(cluster);
                match users.is_empty() {
                    true => world.uploads.remove(&image),
                    false => world.uploads.insert(image, users),
                }
            }
            Ok(())
        })
        .await
    }

    async fn list_owned(&self, cluster: &ClusterId) -> Result<Vec<Owned>, BackendError> {
        let operation = format!("list what belongs to cluster {cluster}");
        self.call(Call::ListOwned, cluster.as_str(), operation, |world, _| {
            let thing = |kind: &str, name: String| Owned {
                kind: kind.to_owned(),
                name,
            };
            let machines = machines_of(world, cluster).into_iter();
            let mut owned: Vec<Owned> = machines.map(|(name, _)| thing("machine", name.to_string())).collect();
            let images = images_of(world, cluster).into_iter();
            owned.extend(images.map(|(name, _)| thing("image", name.clone())));
            for (_, ip, kept) in held(world, cluster) {
                owned.push(thing("dhcp host", format!("{} {ip}", kept.name)));
                owned.extend(kept.dns_names.iter().map(|name| thing("dns host", name.clone())));
            }
            Ok(owned)
        })
        .await
    }

    async fn list_clusters(&self) -> Result<BTreeSet<ClusterId>, BackendError> {
        let operation = "list the clusters on the pretend platform".to_owned();
        self.call(Call::ListOwned, "", operation, |world, _| {
            let machines = world.machines.values().map(|machine| &machine.cluster);
            let images = world.uploads.values().flatten();
            let kept = world
                .networks
                .values()
                .flat_map(|network| network.reservations.values());
            let kept = kept.filter_map(|kept| kept.cluster.as_ref());
            Ok(machines.chain(images).chain(kept).cloned().collect())
        })
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
impl SerialConsole for Sim {
    async fn tail(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<String>, BackendError> {
        let operation = format!("read the console of machine {name}");
        self.call(
            Call::ConsoleTail,
            name.as_str(),
            operation,
            |world, now| match find_machine(world, cluster, name)? {
                Some(machine) => Ok(Some(console(&seen(world, name, machine), machine.boots_ms <= now))),
                None => refuse(BackendErrorKind::NotFound, format!("no machine {name}")),
            },
        )
        .await
    }
}

#[async_trait(?Send)]
impl Discovery for Sim {
    async fn choices(&self) -> Result<PlatformChoices, BackendError> {
        let operation = format!("look at the pretend platform {}", self.store.path().display());
        let world = self.store.read().map_err(|error| unusable(operation, error))?;
        Ok(choices::of(&world, self.store.path()))
    }
}

#[async_trait(?Send)]
impl Diagnostics for Sim {
    async fn describe_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Description, BackendError> {
        let operation = format!("describe machine {name}");
        self.call(Call::ListMachines, name.as_str(), operation, |world, now| {
            let Some(machine) = find_machine(world, cluster, name)? else {
                return refuse(BackendErrorKind::NotFound, format!("no machine {name}"));
            };
            let status = match (machine.off, machine.boots_ms <= now) {
                (true, _) => "off",
                (false, true) => "running",
                (false, false) => "booting",
            };
            let words = |pairs: &[(&str, String)]| {
                let owned = pairs.iter().map(|(key, text)| ((*key).to_owned(), text.clone()));
                owned.collect::<BTreeMap<_, _>>()
            };
            // What it was told is there as a length and a digest only.
            let text = serde_json::to_string_pretty(machine).unwrap_or_default();
            Ok(Description {
                scheduling: words(&[("autostart", machine.autostart.to_string())]),
                dynamic: words(&[("status", status.to_owned()), ("starts", machine.starts.to_string())]),
                form: Some(Form {
                    name: "pretend platform's JSON",
                    text: text + "\n",
                }),
            })
        })
        .await
    }
}

/// It boots anew, and asks for its addresses again.
fn switch_on(world: &mut World, name: &MachineName, now_ms: u64) {
    let late_ms = world.script.guests.get(name).map_or(0, |guest| guest.late_ms);
    if let Some(machine) = world.machines.get_mut(name) {
        machine.off = false;
        machine.starts += 1;
        machine.boots_ms = now_ms + world.script.boot_ms + late_ms;
    }
}

/// Its leases are renewed no more.
fn switch_off(world: &mut World, name: &MachineName, now_ms: u64) {
    let Some(machine) = world.machines.get_mut(name) else {
        return;
    };
    machine.off = true;
    for nic in &mut machine.nics {
        nic.addresses.clear();
        if let Some(network) = world.networks.get_mut(&nic.network) {
            network.stop_renewing(nic.mac, now_ms);
        }
    }
}

fn misdeed(world: &World, name: &MachineName) -> Option<Misdeed> {
    world.script.guests.get(name).and_then(|guest| guest.does)
}

fn newborn(world: &World, spec: &MachineSpec, now_ms: u64) -> SimMachine {
    let (kind, parts): (_, Vec<&[u8]>) = match &spec.payload {
        Payload::Ignition(config) => ("ignition", vec![config]),
        Payload::CloudInit {
            user_data,
            meta_data,
            network_config,
        } => {
            let documents = [user_data, meta_data, network_config];
            ("cloudinit", documents.map(|document| document.as_bytes()).to_vec())
        }
    };
    let mut sha512 = Sha512::new();
    parts.iter().for_each(|part| sha512.update(part));
    let late_ms = world.script.guests.get(&spec.name).map_or(0, |guest| guest.late_ms);
    SimMachine {
        cluster: spec.cluster.clone(),
        node: spec.node.clone(),
        role: spec.role,
        pass: spec.pass,
        fingerprint: spec.fingerprint(),
        cpus: spec.cpus,
        memory_mib: spec.memory_mib,
        disk_gib: spec.disk_gib,
        extra_disks_gib: spec.extra_disks_gib.clone(),
        image: spec.image.0.clone(),
        nics: spec
            .nics
            .iter()
            .map(|nic| SimNic {
                network: nic.network.clone(),
                mac: nic.mac,
                client: client_id(spec, nic.mac),
                addresses: Vec::new(),
            })
            .collect(),
        payload: Delivered {
            kind: kind.to_owned(),
            bytes: parts.iter().map(|part| part.len()).sum(),
            sha512: digest::hex(&sha512.finalize()),
        },
        autostart: spec.autostart,
        created_ms: now_ms,
        boots_ms: now_ms + world.script.boot_ms + late_ms,
        off: false,
        starts: 1,
    }
}

/// CoreOS sends its MAC; CentOS a DUID of its own unless cloud-init tells it to send the MAC.
fn client_id(spec: &MachineSpec, mac: Mac) -> String {
    match &spec.payload {
        Payload::CloudInit { network_config, .. } if !network_config.contains("dhcp-identifier: mac") => {
            format!("ff:{}", &digest::sha256(spec.name.as_str())[..16])
        }
        _ => format!("01:{mac}"),
    }
}

/// The machine as a look from outside shows it.
fn seen(world: &World, name: &MachineName, machine: &SimMachine) -> Machine {
    Machine {
        name: name.clone(),
        node: machine.node.clone(),
        role: machine.role,
        pass: machine.pass,
        fingerprint: machine.fingerprint.clone(),
        power: match misdeed(world, name) {
            _ if machine.off => Power::Off,
            Some(Misdeed::Paused) => Power::Paused("the guest hangs: accelerator error".to_owned()),
            _ => Power::Running,
        },
        nics: machine
            .nics
            .iter()
            .map(|nic| SeenNic {
                network: nic.network.clone(),
                mac: nic.mac,
                addresses: nic.addresses.clone(),
            })
            .collect(),
    }
}

fn console(machine: &Machine, booted: bool) -> String {
    let mut lines = vec![format!("[    0.000000] {} starts (pretend machine)", machine.name)];
    match &machine.power {
        Power::Off => lines.push("[    9.999999] reboot: Power down".to_owned()),
        Power::Paused(reason) => lines.push(format!("[    0.113207] {reason}")),
        _ if !booted => lines.push("[    0.482119] loading the kernel".to_owned()),
        _ => {
            for (index, nic) in machine.nics.iter().enumerate() {
                let got = match nic.addresses.as_slice() {
                    [] => "no DHCP answer, trying again".to_owned(),
                    addresses => addresses
                        .iter()
                        .map(|ip| format!("dhcp4 address={ip}"))
                        .collect::<Vec<_>>()
                        .join(", "),
                };
                lines.push(format!(
                    "[    2.{index:06}] eth{index} {} on {}: {got}",
                    nic.mac, nic.network
                ));
            }
            if machine.nics.iter().any(|nic| !nic.addresses.is_empty()) {
                lines.push(format!("{} login:", machine.node));
            }
        }
    }
    lines.join("\n") + "\n"
}
