//! The life of a simulated machine: creation, power, what the API returns, and its console.

use std::net::IpAddr;

use sha2::{Digest, Sha512};

use super::world::{Delivered, Misbehavior, SimMachine, SimNic, World};
use crate::backend::ownership::Ownership;
use crate::backend::{Machine, MachineSpec, Nic, Payload, Power};
use crate::cluster::{Mac, MachineName};
use crate::digest;

/// The machine boots and requests its addresses again.
pub(super) fn switch_on(world: &mut World, name: &MachineName, now_ms: u64) {
    let late_ms = world.script.guests.get(name).map_or(0, |guest| guest.late_ms);
    if let Some(machine) = world.machines.get_mut(name) {
        machine.off = false;
        machine.starts += 1;
        machine.disk += 1;
        machine.boots_ms = now_ms + world.script.boot_ms + late_ms;
    }
}

/// Its leases are no longer renewed.
pub(super) fn switch_off(world: &mut World, name: &MachineName, now_ms: u64) {
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

/// Whether the guest shuts down on request.
pub(super) fn reacts_to_shutdown(world: &World, name: &MachineName) -> bool {
    !matches!(misbehavior(world, name), Some(Misbehavior::Deaf | Misbehavior::Paused))
}

fn misbehavior(world: &World, name: &MachineName) -> Option<Misbehavior> {
    world.script.guests.get(name).and_then(|guest| guest.does)
}

/// A new machine, which is not in the world yet.
pub(super) fn create(world: &World, spec: &MachineSpec, now_ms: u64) -> SimMachine {
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
        creation: Some(spec.creation.clone()),
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
        disk: 1,
        snapshots: Vec::new(),
    }
}

/// CoreOS sends its MAC. CentOS sends a DUID unless cloud-init configures the MAC.
fn client_id(spec: &MachineSpec, mac: Mac) -> String {
    match &spec.payload {
        Payload::CloudInit { network_config, .. } if !network_config.contains("dhcp-identifier: mac") => {
            format!("ff:{}", &digest::sha256(spec.name.as_str())[..16])
        }
        _ => format!("01:{mac}"),
    }
}

/// What the platform stores of a machine's owner.
pub(super) fn ownership(name: &MachineName, machine: &SimMachine) -> Ownership {
    let nic = |nic: &SimNic| Nic {
        network: nic.network.clone(),
        mac: nic.mac,
    };
    Ownership {
        cluster: machine.cluster.clone(),
        machine: name.clone(),
        node: machine.node.clone(),
        role: machine.role,
        pass: machine.pass,
        fingerprint: machine.fingerprint.clone(),
        nics: machine.nics.iter().map(nic).collect(),
        creation: machine.creation.clone(),
    }
}

/// The machine as the platform's API returns it.
pub(super) fn view(world: &World, name: &MachineName, machine: &SimMachine) -> Machine {
    let power = match misbehavior(world, name) {
        _ if machine.off => Power::Off,
        Some(Misbehavior::Paused) => Power::Paused("the guest hangs: accelerator error".to_owned()),
        _ => Power::Running,
    };
    let addresses = |nic: &SimNic| (nic.mac, nic.addresses.iter().map(|ip| IpAddr::V4(*ip)).collect());
    ownership(name, machine).machine(power, &machine.nics.iter().map(addresses).collect())
}

/// The text of the serial console.
pub(super) fn console(machine: &Machine, booted: bool) -> String {
    let mut lines = vec![format!("[    0.000000] {} starts (simulated machine)", machine.name)];
    match &machine.power {
        Power::Off => lines.push("[    9.999999] reboot: Power down".to_owned()),
        Power::Paused(reason) => lines.push(format!("[    0.113207] {reason}")),
        _ if !booted => lines.push("[    0.482119] loading the kernel".to_owned()),
        _ => {
            for (index, nic) in machine.nics.iter().enumerate() {
                let got = match nic.addresses.as_slice() {
                    [] => "no DHCP response, retrying".to_owned(),
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
