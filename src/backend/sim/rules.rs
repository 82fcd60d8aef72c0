//! What the simulated platform rejects, with its messages.

use std::collections::BTreeSet;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use fs_err as fs;
use sha2::{Digest, Sha256};

use super::dhcp::{Reservation, SimNetwork};
use super::machines;
use super::world::{SimMachine, SimSnapshot, World};
use crate::backend::filters::matching;
use crate::backend::ownership::Ownership;
use crate::backend::{
    AddressReservation, BackendError, BackendErrorKind, Capabilities, Finding, MachineSnapshot, MachineSpec, Payload,
    Requirements,
};
use crate::cluster::{AddressAssignment, ClusterId, Mac, MachineName};
use crate::digest::hex;
use crate::printable::count;

pub(super) fn reject<T>(kind: BackendErrorKind, message: impl Into<String>) -> Result<T, BackendError> {
    Err(BackendError::new(kind, message))
}

pub(super) fn network_of<'a>(world: &'a World, name: &str) -> Result<&'a SimNetwork, BackendError> {
    match world.networks.get(name) {
        Some(network) => Ok(network),
        None => reject(BackendErrorKind::NotFound, format!("no network {name}")),
    }
}

/// A machine of this cluster. A machine of another owner is rejected.
pub(super) fn find_machine<'a>(
    world: &'a World,
    cluster: &ClusterId,
    name: &MachineName,
) -> Result<Option<&'a SimMachine>, BackendError> {
    let found = world.machines.get(name);
    if found.is_some() || world.foreign_machines.contains_key(name.as_str()) {
        let ownership = found.map(|machine| machines::ownership(name, machine));
        Ownership::require(ownership, cluster, name)?;
    }
    Ok(found)
}

/// The machines of a cluster, filtered from the listing.
pub(super) fn machines_of<'a>(world: &'a World, cluster: &ClusterId) -> Vec<(&'a MachineName, &'a SimMachine)> {
    let is_ours = |(_, machine): &(&MachineName, &SimMachine)| machine.cluster == *cluster;
    let listed = world.machines.iter().filter(|machine| world.lists(is_ours(machine)));
    matching(
        "the simulated platform",
        &format!("machines of {cluster}"),
        listed.collect(),
        is_ours,
    )
}

/// The snapshots of a cluster's machines.
pub(super) fn snapshots_of(world: &World, cluster: &ClusterId) -> Vec<MachineSnapshot> {
    let mut all = Vec::new();
    for (name, machine) in machines_of(world, cluster) {
        let is_ours = |found: &&SimSnapshot| found.cluster.as_ref() == Some(cluster);
        all.extend(machine.snapshots.iter().filter(is_ours).map(|found| MachineSnapshot {
            machine: name.clone(),
            snapshot: found.snapshot.clone(),
            is_complete: true,
        }));
    }
    all.sort();
    all
}

/// Like `machines_of`, for the images of a cluster, each with all clusters that use it.
pub(super) fn images_of<'a>(world: &'a World, cluster: &ClusterId) -> Vec<(&'a String, &'a BTreeSet<ClusterId>)> {
    let is_ours = |(_, users): &(&String, &BTreeSet<ClusterId>)| users.contains(cluster);
    let listed = world.uploads.iter().filter(|image| world.lists(is_ours(image)));
    matching(
        "the simulated platform",
        &format!("images of {cluster}"),
        listed.collect(),
        is_ours,
    )
}

/// Like `machines_of`, for the reservations of a cluster, each with its network.
pub(super) fn reservations_of<'a>(
    world: &'a World,
    cluster: &ClusterId,
) -> Vec<(&'a String, &'a Ipv4Addr, &'a Reservation)> {
    let is_ours = |(_, _, entry): &(&String, &Ipv4Addr, &Reservation)| entry.cluster.as_ref() == Some(cluster);
    let of_network = |(name, network): (&'a String, &'a SimNetwork)| {
        let all = network.reservations.iter();
        all.map(move |(ip, entry)| (name, ip, entry))
    };
    let listed = world.networks.iter().flat_map(of_network);
    let listed = listed.filter(|entry| world.lists(is_ours(entry)));
    matching(
        "the simulated platform",
        &format!("reservations of {cluster}"),
        listed.collect(),
        is_ours,
    )
}

/// The machine that has this MAC.
fn owner_of(world: &World, mac: Mac) -> Option<&str> {
    let ours = world
        .machines
        .iter()
        .find(|(_, machine)| machine.nics.iter().any(|nic| nic.mac == mac))
        .map(|(name, _)| name.as_str());
    let foreign = || {
        world
            .foreign_machines
            .iter()
            .find(|(_, machine)| machine.macs.contains(&mac))
    };
    ours.or_else(|| foreign().map(|(name, _)| name.as_str()))
}

pub(super) fn check_spec(world: &World, limits: &Capabilities, spec: &MachineSpec) -> Result<(), BackendError> {
    use BackendErrorKind::{Conflict, NotFound, Quota, Rejected, TooLarge};
    if spec.cpus == 0 || spec.memory_mib == 0 || spec.disk_gib == 0 {
        return reject(Rejected, "a machine requires a CPU, memory and a disk");
    }
    if !world.images.contains(&spec.image.0) && !world.uploads.contains_key(&spec.image.0) {
        return reject(NotFound, format!("no image {}", spec.image.0));
    }
    if spec.nics.is_empty() {
        return reject(Rejected, "a machine requires a NIC");
    }
    let mut macs = BTreeSet::new();
    for nic in &spec.nics {
        network_of(world, &nic.network)?;
        if !nic.mac.is_unicast() {
            return reject(Rejected, format!("{} is not a unicast MAC", nic.mac));
        }
        if !macs.insert(nic.mac) {
            return reject(Rejected, format!("two NICs have MAC {}", nic.mac));
        }
        if let Some(owner) = owner_of(world, nic.mac) {
            return reject(Conflict, format!("MAC {} is in use by machine {owner}", nic.mac));
        }
    }
    if let (Payload::Ignition(config), Some(most)) = (&spec.payload, limits.carrier.max_config_bytes())
        && config.len() > most
    {
        return reject(
            TooLarge,
            format!("the Ignition config has {} bytes, the limit is {most}", config.len()),
        );
    }
    if let Some(most) = world.limits.memory_mib {
        let free = most.saturating_sub(world.machines.values().map(|machine| machine.memory_mib).sum());
        if spec.memory_mib > free {
            return reject(
                Quota,
                format!("{} MiB of memory requested, {free} MiB free", spec.memory_mib),
            );
        }
    }
    Ok(())
}

/// The address, if it can be reserved.
pub(super) fn check_reservation(
    network: &SimNetwork,
    reservation: &AddressReservation,
) -> Result<Ipv4Addr, BackendError> {
    use BackendErrorKind::{Conflict, Rejected};
    let AddressAssignment { name, mac, ip } = &reservation.assignment;
    if !mac.is_unicast() {
        return reject(Rejected, format!("{mac} is not a unicast MAC"));
    }
    let IpAddr::V4(ip) = ip else {
        return reject(Rejected, format!("{ip} is not an IPv4 address"));
    };
    let cidr = network.cidr;
    if !cidr.contains(*ip) || [cidr.network(), cidr.broadcast(), network.gateway].contains(ip) {
        return reject(Rejected, format!("{ip} is not a machine address of {cidr}"));
    }
    let same = |entry: &Reservation| entry.cluster.as_ref() == Some(&reservation.cluster) && entry.name == *name;
    for (reserved_ip, entry) in network.reservations.iter() {
        let owner = match &entry.cluster {
            Some(cluster) => format!("{} of cluster {cluster}", entry.name),
            None => entry.name.to_string(),
        };
        if same(entry) && entry.mac == *mac && reserved_ip == ip {
            continue;
        }
        if reserved_ip == ip {
            return reject(Conflict, format!("address {ip} is reserved for {owner}"));
        }
        if entry.mac == *mac {
            return reject(
                Conflict,
                format!("MAC {mac} has the reservation {reserved_ip} of {owner}"),
            );
        }
        if same(entry) {
            return reject(Conflict, format!("{owner} already has the reservation {reserved_ip}"));
        }
        if let Some(taken) = reservation
            .dns_names
            .iter()
            .find(|wanted| entry.dns_names.contains(*wanted))
        {
            return reject(Conflict, format!("the DNS name {taken} belongs to {owner}"));
        }
    }
    match network.leases.get(ip) {
        Some(lease) if lease.mac != *mac => reject(Conflict, format!("address {ip} is leased to {}", lease.mac)),
        _ => Ok(*ip),
    }
}

/// Reads the file like an upload, and compares its size and digest with the request.
pub(super) fn check_image(path: &Path, sha256: &str, bytes: u64) -> Result<(), BackendError> {
    let cannot = |error: std::io::Error| BackendError::new(BackendErrorKind::Rejected, error.to_string());
    let mut file = fs::File::open(path).map_err(cannot)?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    let mut length = 0;
    loop {
        match file.read(&mut buffer).map_err(cannot)? {
            0 => break,
            count => {
                digest.update(&buffer[..count]);
                length += count as u64;
            }
        }
    }
    let found = hex(&digest.finalize());
    if length != bytes || found != sha256 {
        let message = format!("the file has {length} bytes and sha256 {found}, expected {bytes} and {sha256}");
        return reject(BackendErrorKind::Rejected, message);
    }
    Ok(())
}

pub(super) fn preflight(world: &World, needs: &Requirements) -> Vec<Finding> {
    let fail = |text: String, hint: &str| Finding::fail(text).hint(hint);
    let mut findings = Vec::new();
    let macs: BTreeSet<Mac> = needs
        .machines
        .iter()
        .flat_map(|(_, macs)| macs.iter().copied())
        .chain(needs.vips.iter().map(|(_, mac)| *mac))
        .collect();
    for name in &needs.networks {
        let Some(network) = world.networks.get(name) else {
            let known: Vec<&str> = world.networks.keys().map(String::as_str).collect();
            let hint = match known.is_empty() {
                true => "there are no networks".to_owned(),
                false => format!("existing networks: {}", known.join(", ")),
            };
            findings.push(fail(format!("network {name} does not exist"), &hint));
            continue;
        };
        let known = network.leases.values().map(|lease| lease.mac);
        let known: BTreeSet<Mac> = known
            .chain(network.reservations.values().map(|entry| entry.mac))
            .collect();
        let (wanted, free) = (macs.difference(&known).count(), network.free_count());
        findings.push(match wanted <= free {
            true => Finding::ok(format!(
                "network {name} is {}, DHCP from {} to {}, {} free",
                network.cidr,
                network.dhcp_from,
                network.dhcp_to,
                count(free, "address")
            )),
            false => fail(
                format!(
                    "network {name} has {}, {wanted} required",
                    count(free, "free DHCP address")
                ),
                "widen the DHCP range or deploy fewer machines",
            ),
        });
    }
    let ours = |name: &str| {
        let mut machines = world.machines.iter();
        machines.any(|(known, machine)| known.as_str() == name && Some(&machine.cluster) == needs.cluster.as_ref())
    };
    let mut taken = Vec::new();
    for (name, macs) in &needs.machines {
        if (world.machines.contains_key(name) && !ours(name.as_str()))
            || world.foreign_machines.contains_key(name.as_str())
        {
            taken.push(fail(
                format!("machine {name} exists and belongs to another owner"),
                BackendErrorKind::Conflict.hint(),
            ));
        }
        for mac in macs {
            if let Some(owner) = owner_of(world, *mac).filter(|owner| !ours(owner)) {
                let text = format!("MAC {mac} of {name} is in use by machine {owner}");
                taken.push(fail(text, BackendErrorKind::Conflict.hint()));
            }
        }
    }
    if taken.is_empty() && !needs.machines.is_empty() {
        taken.push(Finding::ok("machine names and MACs are free".to_owned()));
    }
    findings.extend(taken);
    if let Some(most) = world.limits.memory_mib {
        let others = world
            .machines
            .values()
            .filter(|machine| Some(&machine.cluster) != needs.cluster.as_ref());
        let free = most.saturating_sub(others.map(|machine| machine.memory_mib).sum());
        let text = format!("{} MiB of memory required, {free} MiB free", needs.memory_mib);
        findings.push(match needs.memory_mib <= free {
            true => Finding::ok(text),
            false => fail(text, BackendErrorKind::Quota.hint()),
        });
    }
    findings
}
