//! The simulated platform: dry runs without a hypervisor, and the tests.
//!
//! Its state is one file (`world.rs`, `store.rs`), which several processes can use at the same time. It rejects what a
//! real platform rejects (`rules.rs`). No machine runs: some milliseconds after its creation a machine requests its
//! addresses from the simulated DHCP server (`dhcp.rs`). The file's `script` defines delays, faults and misbehaving
//! guests.
//!
//! This file has more than 500 lines because it is one implementation of the trait.

mod dhcp;
mod machines;
mod noted;
mod rules;
mod snapshots;
mod store;
#[cfg(test)]
mod tests;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;

use super::ownership::Ownership;
use super::{
    Action, AddressReservation, Backend, BackendError, BackendErrorKind, Capabilities, Carrier, Choice, Description,
    Finding, Form, HostCapacity, ImageHandle, ImageRequest, Machine, MachineSnapshot, MachineSpec, NetworkFacts, Owned,
    PlatformChoices, Requirements, ReservationState, Reserved, SettingChoices, Snapshot, Stop,
};
use crate::cluster::{AddressAssignment, ClusterId, MachineName, SimConfig};
use dhcp::Reservation;
use rules::{
    check_image, check_reservation, check_spec, find_machine, images_of, machines_of, network_of, preflight, reject,
    reservations_of, snapshots_of,
};
use store::{Store, StoreError};
use world::{Call, What, World};

/// The simulated platform.
#[derive(Clone, Debug)]
pub struct Sim {
    store: Store,
    // Both are read once, because a platform does not change them while it is in use.
    capabilities: Capabilities,
    latency_ms: BTreeMap<Call, u64>,
}

impl Sim {
    /// Opens the simulated platform of this file. A missing file is a new platform. Nothing is written.
    pub fn open(config: &SimConfig) -> Result<Sim, BackendError> {
        let path = std::path::absolute(&config.state)
            .map_err(|error| BackendError::new(BackendErrorKind::Unreachable, error.to_string()))?;
        let store = Store::new(path);
        let world = store.read()?;
        Ok(Sim {
            store,
            capabilities: Capabilities {
                concurrency: world.limits.concurrency.max(1),
                carrier: Carrier {
                    limit: Some(world.limits.carrier_bytes),
                    compress_above: None,
                    ..Carrier::FW_CFG
                },
                reserves_addresses: world.limits.reserves_addresses,
                host_is_here: world.limits.host_is_here,
                poll_interval: Duration::from_millis(world.limits.poll_interval_ms),
                ..config.into()
            },
            latency_ms: world.script.latency_ms,
        })
    }

    /// One call to the platform: `work` on the present state, with the scripted latency and faults.
    ///
    /// `work` must complete all checks before it changes anything.
    async fn call<T>(
        &self,
        call: Call,
        about: &str,
        work: impl FnOnce(&mut World, u64) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        use BackendErrorKind::{Denied, Quota, Rejected, Timeout, Unreachable};
        let half = Duration::from_millis(self.latency_ms.get(&call).copied().unwrap_or(0) / 2);
        if !half.is_zero() {
            tokio::time::sleep(half).await;
        }
        let outcome = self.store.update(|world| {
            let now = now_ms();
            world.advance(now);
            let scripted = |kind| reject(kind, "scripted in the state file");
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
            Ok(Err(rejection)) => Err(rejection),
            Err(error) => Err(error.into()),
        }
    }
}

impl From<StoreError> for BackendError {
    fn from(error: StoreError) -> Self {
        let (kind, hint) = match &error {
            StoreError::Io(_) => (
                BackendErrorKind::Unreachable,
                "the simulated platform is a file: check its directory and permissions",
            ),
            StoreError::Content { .. } => (
                BackendErrorKind::Rejected,
                "correct the file, or remove it to start with a new simulated platform",
            ),
        };
        Self::new(kind, error.to_string()).hint(hint)
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
            reserves_addresses: true,
            leases_outlive_machines: true,
            host_is_here: true,
            simulated: true,
            guests_reachable: false,
            addresses_from_agent: false,
            image_artifact: "qemu",
            fetches_images: false,
            load_balancers: false,
            static_ipv6: true,
            console_tail: true,
            snapshots: Ok(()),
        }
    }
}

#[async_trait(?Send)]
impl Backend for Sim {
    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    async fn preflight(&self, needs: &Requirements) -> Result<Vec<Finding>, BackendError> {
        let about = needs
            .cluster
            .as_ref()
            .map(|cluster| cluster.domain().as_str())
            .unwrap_or_default();
        let mut findings = vec![Finding::ok(format!(
            "simulated platform {} is usable",
            self.store.path().display()
        ))];
        findings.extend(
            self.call(Call::Preflight, about, |world, _| Ok(preflight(world, needs)))
                .await?,
        );
        Ok(findings)
    }

    async fn network_facts(&self, network: &str) -> Result<NetworkFacts, BackendError> {
        self.call(Call::NetworkFacts, network, |world, _| {
            let found = network_of(world, network)?;
            let reserved = found
                .reservations
                .iter()
                .map(|(ip, entry)| (IpAddr::V4(*ip), Some(entry.mac)));
            let leased = found
                .leases
                .iter()
                .map(|(ip, lease)| (IpAddr::V4(*ip), Some(lease.mac)));
            Ok(NetworkFacts {
                identity: format!("sim:{}#{network}", self.store.path().display()),
                cidr: Some(found.cidr.into()),
                gateway: Some(found.gateway.into()),
                dhcp_ranges: vec![(found.dhcp_from.into(), found.dhcp_to.into())],
                taken: leased.chain(reserved).collect(),
                resolvers: vec![found.gateway.into()],
                mtu: Some(1500),
                answers_dns: true,
                peer_domain: None,
                ipv6: found.ipv6.clone().into_iter().collect(),
            })
        })
        .await
    }

    async fn ensure_image(&self, cluster: &ClusterId, image: &ImageRequest) -> Result<ImageHandle, BackendError> {
        match image {
            ImageRequest::Platform(name) => {
                self.call(Call::EnsureImage, name, |world, _| match world.images.contains(name) {
                    true => Ok(ImageHandle(name.clone())),
                    false => reject(BackendErrorKind::NotFound, format!("no image {name}")),
                })
                .await
            }
            ImageRequest::File {
                path, sha256, bytes, ..
            } => {
                let handle = format!("sha256:{sha256}");
                self.call(Call::EnsureImage, &handle, |world, _| {
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
        self.call(Call::CreateMachine, name.as_str(), |world, now| {
            if let Some(there) = find_machine(world, &spec.cluster, name)? {
                Ownership::adopt(Some(machines::ownership(name, there)), spec)?;
                return match there.off {
                    true => {
                        machines::switch_on(world, name, now);
                        Ok(Action::Done(machines::view(world, name, &world.machines[name])))
                    }
                    false => Ok(Action::Unchanged(machines::view(world, name, there))),
                };
            }
            check_spec(world, &self.capabilities, spec)?;
            let machine = machines::create(world, spec, now);
            let action = Action::Done(machines::view(world, name, &machine));
            world.machines.insert(name.clone(), machine);
            Ok(action)
        })
        .await
    }

    async fn list_machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError> {
        self.call(Call::ListMachines, cluster.domain().as_str(), |world, _| {
            let ours = machines_of(world, cluster).into_iter();
            Ok(ours
                .map(|(name, machine)| machines::view(world, name, machine))
                .collect())
        })
        .await
    }

    async fn delete_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        self.call(Call::DeleteMachine, name.as_str(), |world, now| {
            if find_machine(world, cluster, name)?.is_none() {
                return Ok(Action::Unchanged(()));
            }
            machines::switch_off(world, name, now);
            world.machines.remove(name);
            Ok(Action::Done(()))
        })
        .await
    }

    async fn start_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        self.call(Call::StartMachine, name.as_str(), |world, now| {
            match find_machine(world, cluster, name)? {
                None => reject(BackendErrorKind::NotFound, format!("no machine {name}")),
                Some(machine) if !machine.off => Ok(Action::Unchanged(())),
                Some(_) => {
                    machines::switch_on(world, name, now);
                    Ok(Action::Done(()))
                }
            }
        })
        .await
    }

    async fn stop_machine(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError> {
        self.call(Call::StopMachine, name.as_str(), |world, now| {
            match find_machine(world, cluster, name)? {
                None => reject(BackendErrorKind::NotFound, format!("no machine {name}")),
                Some(machine) if machine.off => Ok(Action::Unchanged(())),
                Some(_) => {
                    let reacts = machines::reacts_to_shutdown(world, name);
                    if reacts || how == Stop::Force {
                        machines::switch_off(world, name, now);
                    }
                    Ok(Action::Done(()))
                }
            }
        })
        .await
    }

    async fn reserve_address(&self, reservation: &AddressReservation) -> Result<ReservationState, BackendError> {
        let name = &reservation.assignment.name;
        self.call(Call::ReserveAddress, name.as_str(), |world, _| {
            let Some(network) = world.networks.get_mut(&reservation.network) else {
                return reject(
                    BackendErrorKind::NotFound,
                    format!("no network {}", reservation.network),
                );
            };
            if !self.capabilities.reserves_addresses {
                return Ok(ReservationState::Unreserved);
            }
            let ip = check_reservation(network, reservation)?;
            let old = network.reservations.get(&ip);
            let dns_names = match reservation.dns_later {
                true => old.map(|old| old.dns_names.clone()).unwrap_or_default(),
                false => reservation.dns_names.iter().cloned().collect(),
            };
            let entry = Reservation {
                mac: reservation.assignment.mac,
                name: name.clone(),
                cluster: Some(reservation.cluster.clone()),
                dns_names,
            };
            if old != Some(&entry) {
                network.reservations.insert(ip, entry);
            }
            Ok(ReservationState::ByPlatform)
        })
        .await
    }

    async fn list_reservations(&self, cluster: &ClusterId) -> Result<Vec<Reserved>, BackendError> {
        self.call(Call::ListReservations, cluster.domain().as_str(), |world, _| {
            Ok(reservations_of(world, cluster)
                .into_iter()
                .map(|(_, ip, entry)| AddressAssignment {
                    name: entry.name.clone(),
                    mac: entry.mac,
                    ip: IpAddr::V4(*ip),
                })
                .map(Reserved::from)
                .collect())
        })
        .await
    }

    async fn release_address(&self, reservation: &AddressReservation) -> Result<Action<()>, BackendError> {
        let AddressAssignment { name, mac, ip } = &reservation.assignment;
        self.call(Call::ReleaseAddress, name.as_str(), |world, _| {
            let Some(network) = world.networks.get_mut(&reservation.network) else {
                return reject(
                    BackendErrorKind::NotFound,
                    format!("no network {}", reservation.network),
                );
            };
            let is_it = |entry: &Reservation| {
                entry.cluster.as_ref() == Some(&reservation.cluster) && entry.name == *name && entry.mac == *mac
            };
            match ip {
                IpAddr::V4(ip) if network.reservations.get(ip).is_some_and(is_it) => {
                    network.reservations.remove(ip);
                    Ok(Action::Done(()))
                }
                _ => Ok(Action::Unchanged(())),
            }
        })
        .await
    }

    async fn delete_remaining(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        self.call(Call::DeleteRemaining, cluster.domain().as_str(), |world, _| {
            let ours = reservations_of(world, cluster).into_iter();
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
        self.call(Call::ListOwned, cluster.domain().as_str(), |world, _| {
            let object = |kind: &str, name: String| Owned {
                kind: kind.to_owned(),
                name,
            };
            let machines = machines_of(world, cluster).into_iter();
            let mut owned: Vec<Owned> = machines.map(|(name, _)| object("machine", name.to_string())).collect();
            let snapshots = snapshots_of(world, cluster).into_iter();
            owned.extend(
                snapshots.map(|found| object("snapshot", format!("{} {}", found.machine, found.snapshot.name))),
            );
            let images = images_of(world, cluster).into_iter();
            owned.extend(images.map(|(name, _)| object("image", name.clone())));
            for (_, ip, entry) in reservations_of(world, cluster) {
                owned.push(object("dhcp host", format!("{} {ip}", entry.name)));
                owned.extend(entry.dns_names.iter().map(|name| object("dns host", name.clone())));
            }
            Ok(owned)
        })
        .await
    }

    async fn list_clusters(&self) -> Result<BTreeSet<ClusterId>, BackendError> {
        self.call(Call::ListOwned, "", |world, _| {
            let machines = world.machines.values().map(|machine| &machine.cluster);
            let images = world.uploads.values().flatten();
            let entry = world
                .networks
                .values()
                .flat_map(|network| network.reservations.values());
            let entry = entry.filter_map(|entry| entry.cluster.as_ref());
            Ok(machines.chain(images).chain(entry).cloned().collect())
        })
        .await
    }

    async fn console_tail(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<String>, BackendError> {
        self.call(Call::ConsoleTail, name.as_str(), |world, now| {
            match find_machine(world, cluster, name)? {
                Some(machine) => Ok(Some(machines::console(
                    &machines::view(world, name, machine),
                    machine.boots_ms <= now,
                ))),
                None => reject(BackendErrorKind::NotFound, format!("no machine {name}")),
            }
        })
        .await
    }

    async fn choices(&self) -> Result<PlatformChoices, BackendError> {
        let world = self.store.read()?;
        let networks = world.networks.iter().map(|(name, network)| {
            let (from, to) = (network.dhcp_from, network.dhcp_to);
            Choice::new(name, format!("{}, DHCP {from} to {to}", network.cidr))
        });
        let seen = Finding::ok(format!("simulated platform {} is usable", self.store.path().display()));
        Ok(PlatformChoices {
            seen: vec![seen],
            settings: vec![SettingChoices::new("network", networks.collect())],
            host: world
                .limits
                .memory_mib
                .map(|memory_mib| HostCapacity { memory_mib, cpus: None }),
        })
    }

    async fn describe_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Description, BackendError> {
        self.call(Call::ListMachines, name.as_str(), |world, now| {
            let Some(machine) = find_machine(world, cluster, name)? else {
                return reject(BackendErrorKind::NotFound, format!("no machine {name}"));
            };
            let status = match (machine.off, machine.boots_ms <= now) {
                (true, _) => "off",
                (false, true) => "running",
                (false, false) => "booting",
            };
            // The payload is stored as a length and a digest only.
            let text = serde_json::to_string_pretty(machine).unwrap_or_default();
            Ok(Description {
                scheduling: [("autostart".to_owned(), machine.autostart.into())].into(),
                dynamic: [
                    ("status".to_owned(), status.into()),
                    ("starts".to_owned(), machine.starts.into()),
                ]
                .into(),
                form: Some(Form {
                    name: "JSON of the simulated platform",
                    text: text + "\n",
                }),
            })
        })
        .await
    }

    async fn check_snapshots(&self, cluster: &ClusterId, names: &[MachineName]) -> Result<Vec<Finding>, BackendError> {
        let about = cluster.domain().as_str();
        self.call(Call::CheckSnapshots, about, |world, _| {
            Ok(vec![snapshots::check(world, cluster, names)?])
        })
        .await
    }

    async fn save_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<Action<()>, BackendError> {
        self.call(Call::SaveSnapshot, name.as_str(), |world, _| {
            snapshots::save(world, cluster, name, snapshot)
        })
        .await
    }

    async fn list_snapshots(&self, cluster: &ClusterId) -> Result<Vec<MachineSnapshot>, BackendError> {
        let about = cluster.domain().as_str();
        self.call(Call::ListSnapshots, about, |world, _| Ok(snapshots_of(world, cluster)))
            .await
    }

    async fn revert_to_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<(), BackendError> {
        self.call(Call::RevertToSnapshot, name.as_str(), |world, _| {
            snapshots::revert(world, cluster, name, snapshot)
        })
        .await
    }

    async fn delete_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<Action<()>, BackendError> {
        self.call(Call::DeleteSnapshot, name.as_str(), |world, _| {
            snapshots::delete(world, cluster, name, snapshot)
        })
        .await
    }
}
