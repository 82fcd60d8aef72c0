//! What the pretend platform refuses, and in which words.

use std::collections::BTreeSet;
use std::io::Read;
use std::net::Ipv4Addr;
use std::path::Path;

use fs_err as fs;
use sha2::{Digest, Sha256};

use super::dhcp::{Network, Reservation};
use super::world::{SimMachine, World};
use crate::backend::filters::matching;
use crate::backend::{AddressReservation, BackendErrorKind, Capabilities, Finding, MachineSpec, Payload, Requirements};
use crate::cluster::{AddressAssignment, ClusterId, Mac, MachineName};
use crate::digest::hex;

/// Why the platform says no.
pub(super) struct Refusal {
    pub kind: BackendErrorKind,
    pub words: String,
}

pub(super) fn refuse<T>(kind: BackendErrorKind, words: impl Into<String>) -> Result<T, Refusal> {
    let words = words.into();
    Err(Refusal { kind, words })
}

pub(super) fn network_of<'a>(world: &'a World, name: &str) -> Result<&'a Network, Refusal> {
    match world.networks.get(name) {
        Some(network) => Ok(network),
        None => refuse(BackendErrorKind::NotFound, format!("no network {name}")),
    }
}

/// A machine of this cluster; one of anybody else is a refusal.
pub(super) fn find_machine<'a>(
    world: &'a World,
    cluster: &ClusterId,
    name: &MachineName,
) -> Result<Option<&'a SimMachine>, Refusal> {
    match world.machines.get(name) {
        Some(machine) if machine.cluster != *cluster => refuse(
            BackendErrorKind::Conflict,
            format!("machine {name} belongs to cluster {}", machine.cluster),
        ),
        None if world.foreign_machines.contains_key(name) => refuse(
            BackendErrorKind::Conflict,
            format!("machine {name} belongs to no cluster"),
        ),
        found => Ok(found),
    }
}

/// The machines of a cluster, out of what the platform lists for it.
pub(super) fn machines_of<'a>(world: &'a World, cluster: &ClusterId) -> Vec<(&'a MachineName, &'a SimMachine)> {
    let is_ours = |(_, machine): &(&MachineName, &SimMachine)| machine.cluster == *cluster;
    let listed = world.machines.iter().filter(|machine| world.lists(is_ours(machine)));
    matching(
        "the pretend platform",
        &format!("machines of {cluster}"),
        listed.collect(),
        is_ours,
    )
}

/// As `machines_of`, the images that a cluster has asked for, each with all its clusters.
pub(super) fn images_of<'a>(world: &'a World, cluster: &ClusterId) -> Vec<(&'a String, &'a BTreeSet<ClusterId>)> {
    let is_ours = |(_, users): &(&String, &BTreeSet<ClusterId>)| users.contains(cluster);
    let listed = world.uploads.iter().filter(|image| world.lists(is_ours(image)));
    matching(
        "the pretend platform",
        &format!("images of {cluster}"),
        listed.collect(),
        is_ours,
    )
}

/// As `machines_of`, the reservations of a cluster, each with its network.
pub(super) fn held<'a>(world: &'a World, cluster: &ClusterId) -> Vec<(&'a String, &'a Ipv4Addr, &'a Reservation)> {
    let is_ours = |(_, _, kept): &(&String, &Ipv4Addr, &Reservation)| kept.cluster.as_ref() == Some(cluster);
    let of_network = |(name, network): (&'a String, &'a Network)| {
        let all = network.reservations.iter();
        all.map(move |(ip, kept)| (name, ip, kept))
    };
    let listed = world.networks.iter().flat_map(of_network);
    let listed = listed.filter(|kept| world.lists(is_ours(kept)));
    matching(
        "the pretend platform",
        &format!("reservations of {cluster}"),
        listed.collect(),
        is_ours,
    )
}

/// The machine that runs with this MAC now.
fn bearer_of(world: &World, mac: Mac) -> Option<&MachineName> {
    let ours = world
        .machines
        .iter()
        .find(|(_, machine)| machine.nics.iter().any(|nic| nic.mac == mac))
        .map(|(name, _)| name);
    let strange = || {
        world
            .foreign_machines
            .iter()
            .find(|(_, stranger)| stranger.macs.contains(&mac))
    };
    ours.or_else(|| strange().map(|(name, _)| name))
}

pub(super) fn check_spec(world: &World, limits: &Capabilities, spec: &MachineSpec) -> Result<(), Refusal> {
    use BackendErrorKind::{Conflict, NotFound, Quota, Rejected, TooLarge};
    let name = spec.name.as_str();
    if world.foreign_machines.contains_key(&spec.name) {
        return refuse(Conflict, format!("machine {name} belongs to no cluster"));
    }
    if name.is_empty() || name.len() > 63 {
        return refuse(
            Rejected,
            format!("a machine's name has 1 to 63 characters, `{name}` has {}", name.len()),
        );
    }
    if !name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    {
        return refuse(Rejected, format!("`{name}` is not a machine's name"));
    }
    if spec.cpus == 0 || spec.memory_mib == 0 || spec.disk_gib == 0 {
        return refuse(Rejected, "a machine needs a CPU, memory and a disk");
    }
    if !world.images.contains(&spec.image.0) && !world.uploads.contains_key(&spec.image.0) {
        return refuse(NotFound, format!("no image {}", spec.image.0));
    }
    if spec.nics.is_empty() {
        return refuse(Rejected, "a machine needs a NIC");
    }
    let mut macs = BTreeSet::new();
    for nic in &spec.nics {
        network_of(world, &nic.network)?;
        if !nic.mac.is_unicast() {
            return refuse(Rejected, format!("{} is not a unicast MAC", nic.mac));
        }
        if !macs.insert(nic.mac) {
            return refuse(Rejected, format!("two NICs have MAC {}", nic.mac));
        }
        if let Some(bearer) = bearer_of(world, nic.mac) {
            return refuse(Conflict, format!("MAC {} is in use by machine {bearer}", nic.mac));
        }
    }
    if let (Payload::Ignition(config), Some(most)) = (&spec.payload, limits.carrier.room())
        && config.len() > most
    {
        return refuse(
            TooLarge,
            format!("{} bytes of Ignition, at most {most} fit", config.len()),
        );
    }
    if let Some(most) = world.limits.memory_mib {
        let free = most.saturating_sub(world.machines.values().map(|machine| machine.memory_mib).sum());
        if spec.memory_mib > free {
            return refuse(
                Quota,
                format!("{} MiB of memory asked, {free} MiB are free", spec.memory_mib),
            );
        }
    }
    Ok(())
}

pub(super) fn check_hold(network: &Network, hold: &AddressReservation) -> Result<(), Refusal> {
    use BackendErrorKind::{Conflict, Rejected};
    let AddressAssignment { name, mac, ip } = &hold.lease;
    if !mac.is_unicast() {
        return refuse(Rejected, format!("{mac} is not a unicast MAC"));
    }
    let cidr = network.cidr;
    if !cidr.contains(*ip) || [cidr.network(), cidr.broadcast(), network.gateway].contains(ip) {
        return refuse(Rejected, format!("{ip} is no address for a machine of {cidr}"));
    }
    let same = |kept: &Reservation| kept.cluster.as_ref() == Some(&hold.cluster) && kept.name == *name;
    for (kept_ip, kept) in network.reservations.iter() {
        let owner = match &kept.cluster {
            Some(cluster) => format!("{} of cluster {cluster}", kept.name),
            None => kept.name.to_string(),
        };
        if same(kept) && kept.mac == *mac && kept_ip == ip {
            continue;
        }
        if kept_ip == ip {
            return refuse(Conflict, format!("address {ip} is held for {owner}"));
        }
        if kept.mac == *mac {
            return refuse(Conflict, format!("MAC {mac} holds {kept_ip} for {owner}"));
        }
        if same(kept) {
            return refuse(Conflict, format!("{owner} holds {kept_ip} already"));
        }
        if let Some(taken) = hold.dns_names.iter().find(|wanted| kept.dns_names.contains(*wanted)) {
            return refuse(Conflict, format!("the name {taken} leads to {owner}"));
        }
    }
    match network.leases.get(ip) {
        Some(lease) if lease.mac != *mac => refuse(Conflict, format!("address {ip} is leased to {}", lease.mac)),
        _ => Ok(()),
    }
}

/// Reads the file as an upload would, and compares it with its description.
pub(super) fn check_image(path: &Path, sha256: &str, bytes: u64) -> Result<(), Refusal> {
    let cannot = |error: std::io::Error| Refusal {
        kind: BackendErrorKind::Rejected,
        words: error.to_string(),
    };
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
        let words = format!("the file has {length} bytes and sha256 {found}, expected {bytes} and {sha256}");
        return refuse(BackendErrorKind::Rejected, words);
    }
    Ok(())
}

pub(super) fn preflight(world: &World, needs: &Requirements) -> Vec<Finding> {
    let fail = |text: String, hint: &str| Finding {
        hint: Some(hint.to_owned()),
        ..Finding::fail(text)
    };
    let mut findings = Vec::new();
    let macs: BTreeSet<Mac> = needs
        .machines
        .iter()
        .flat_map(|(_, macs)| macs.iter().copied())
        .collect();
    for name in &needs.networks {
        let Some(network) = world.networks.get(name) else {
            let known: Vec<&str> = world.networks.keys().map(String::as_str).collect();
            let hint = match known.is_empty() {
                true => "the platform has no network".to_owned(),
                false => format!("the platform has {}", known.join(", ")),
            };
            findings.push(fail(format!("network {name} does not exist"), &hint));
            continue;
        };
        let known = network.leases.values().map(|lease| lease.mac);
        let known: BTreeSet<Mac> = known
            .chain(network.reservations.values().map(|kept| kept.mac))
            .collect();
        let (wanted, free) = (macs.difference(&known).count(), network.free_count());
        findings.push(match wanted <= free {
            true => Finding::ok(format!(
                "network {name} is {}, DHCP from {} to {}, {free} addresses free",
                network.cidr, network.dhcp_from, network.dhcp_to
            )),
            false => fail(
                format!("network {name} has {free} free DHCP addresses, {wanted} are needed"),
                "widen the DHCP range or deploy fewer machines",
            ),
        });
    }
    let ours = |name: &MachineName| {
        let machine = world.machines.get(name);
        machine.is_some_and(|machine| Some(&machine.cluster) == needs.cluster.as_ref())
    };
    let mut taken = Vec::new();
    for (name, macs) in &needs.machines {
        if (world.machines.contains_key(name) && !ours(name)) || world.foreign_machines.contains_key(name) {
            taken.push(fail(
                format!("machine {name} exists and does not belong to this cluster"),
                BackendErrorKind::Conflict.hint(),
            ));
        }
        for mac in macs {
            if let Some(bearer) = bearer_of(world, *mac).filter(|bearer| !ours(bearer)) {
                let text = format!("MAC {mac} of {name} is in use by machine {bearer}");
                taken.push(fail(text, BackendErrorKind::Conflict.hint()));
            }
        }
    }
    if taken.is_empty() && !needs.machines.is_empty() {
        taken.push(Finding::ok(
            "names and MACs of all machines are free or ours".to_owned(),
        ));
    }
    findings.extend(taken);
    if let Some(most) = world.limits.memory_mib {
        let others = world
            .machines
            .values()
            .filter(|machine| Some(&machine.cluster) != needs.cluster.as_ref());
        let free = most.saturating_sub(others.map(|machine| machine.memory_mib).sum());
        let text = format!("{} MiB of memory needed, {free} MiB free", needs.memory_mib);
        findings.push(match needs.memory_mib <= free {
            true => Finding::ok(text),
            false => fail(text, BackendErrorKind::Quota.hint()),
        });
    }
    findings
}
