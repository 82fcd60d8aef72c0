//! What is looked at before anything is made.

use std::collections::BTreeMap;

use virt::connect::Connect;

use super::attachment::{self, Attachment};
use super::domain::{OwnershipTag, Platform};
use super::network;
use super::session::{document, if_supported, if_there};
use super::storage::Storage;
use crate::backend::failure::Failure;
use crate::backend::findings::Findings;
use crate::backend::{Finding, Requirements, Verdict};
use crate::cluster::{LibvirtConfig, Mac, VirtType};

const GIB: u64 = 1 << 30;
/// The first libvirt that can hand a file to a machine as fw_cfg, in libvirt's own reckoning.
const OLDEST: u32 = 6_005_000;
/// Kinds of pool in which a volume is a file of exactly its length.
pub(super) const FILE_POOLS: [&str; 3] = ["dir", "fs", "netfs"];

impl Findings {
    /// What is missing or shut counts as a finding; a lost connection does not.
    fn failure(&mut self, failure: Failure) -> Result<(), Failure> {
        use crate::backend::BackendErrorKind::{NotFound, Rejected};
        match failure.kind {
            NotFound | Rejected => {
                self.add(Verdict::Fail, failure.words, failure.hint.as_deref());
                Ok(())
            }
            _ => Err(failure),
        }
    }
}

pub(super) fn look(connect: &Connect, config: &LibvirtConfig, needs: &Requirements) -> Result<Vec<Finding>, Failure> {
    let mut findings = Findings(Vec::new());
    version(connect, config, &mut findings)?;
    accelerator(connect, config.virt_type, &mut findings)?;
    match Storage::open(connect, &config.pool) {
        Ok(storage) => space(&storage, &config.pool, needs, &mut findings)?,
        Err(failure) => findings.failure(failure)?,
    }
    for name in &needs.networks {
        let attachment = Attachment::read(name);
        if let Some(device) = attachment.device() {
            match attachment::require_device(connect, device) {
                Err(failure) => findings.failure(failure)?,
                Ok(()) => findings.0.push(attachment::finding(attachment, device)),
            }
            continue;
        }
        match network::find(connect, name) {
            Err(failure) => findings.failure(failure)?,
            Ok(network) if network.is_active()? => {
                findings.ok(format!("network {name} is active"));
                if needs.autostart && network.is_persistent()? && !network.autostart()? {
                    let hint = format!("virsh net-autostart {name}");
                    let text = format!("network {name} does not start with its host, so autostart=true has no effect");
                    findings.add(Verdict::Warn, text, Some(&hint));
                }
            }
            Ok(_) => {
                let hint = format!("virsh net-start {name}");
                findings.add(Verdict::Fail, format!("network {name} is not active"), Some(&hint));
            }
        }
    }
    memory(connect, needs, &mut findings)?;
    name_conflicts(connect, needs, &mut findings)?;
    Ok(findings.0)
}

fn version(connect: &Connect, config: &LibvirtConfig, findings: &mut Findings) -> Result<(), Failure> {
    let version = connect.lib_version()?;
    let shown = format!(
        "{}.{}.{}",
        version / 1_000_000,
        version / 1_000 % 1_000,
        version % 1_000
    );
    if version < OLDEST {
        let text = format!(
            "libvirt {shown} at {} is too old to hand Ignition to a machine",
            config.uri
        );
        findings.add(Verdict::Fail, text, Some("6.5 is the oldest that can"));
    } else {
        findings.ok(format!("libvirt {shown} answers at {}", config.uri));
    }
    Ok(())
}

fn accelerator(connect: &Connect, virt_type: VirtType, findings: &mut Findings) -> Result<(), Failure> {
    match Platform::choose(&document(connect.capabilities())?, virt_type) {
        Err(failure) => findings.failure(failure)?,
        Ok(platform) if platform.domain_type == "qemu" => {
            let hint = match virt_type {
                VirtType::Qemu => "virt_type=auto uses KVM where it is offered",
                _ => "load the kernel module kvm_intel or kvm_amd, and allow virtualization in the firmware",
            };
            let text = "machines are emulated, which is slow: good for a rehearsal, too slow for an installation";
            findings.add(Verdict::Warn, text, Some(hint));
        }
        Ok(platform) => findings.ok(format!("machines of type {}", platform.domain_type)),
    }
    Ok(())
}

fn space(storage: &Storage, pool: &str, needs: &Requirements, findings: &mut Findings) -> Result<(), Failure> {
    let described = storage.describe()?;
    let kind = described.get("type").unwrap_or_default();
    if !FILE_POOLS.contains(&kind) {
        let text = format!("pool {pool} is of type {kind}, where an Ignition file does not keep its length");
        let hint = format!("set `pool` to one of type {}", FILE_POOLS.join(", "));
        findings.add(Verdict::Fail, text, Some(&hint));
    }
    let bytes = |path: &str| {
        described
            .find(path)
            .and_then(|element| element.text.parse::<u64>().ok())
    };
    let free = bytes("available").unwrap_or(0) / GIB;
    let text = format!(
        "pool {pool} has {free} GiB free, {} GiB wanted if all disks were full",
        needs.disk_gib
    );
    match free {
        0 => findings.add(Verdict::Fail, text, Some("free some space or choose another pool")),
        // Disks grow as they are written, and seldom to their end.
        _ if free < needs.disk_gib => findings.add(Verdict::Warn, text, None),
        _ => findings.ok(text),
    }
    Ok(())
}

fn memory(connect: &Connect, needs: &Requirements, findings: &mut Findings) -> Result<(), Failure> {
    let host = connect.node_info()?;
    let total = host.memory / 1024;
    let free = if_supported(connect.free_memory().map_err(Failure::from))?.map(|bytes| bytes >> 20);
    let wanted = needs.memory_mib;
    if wanted > total {
        let text = format!("the host has {total} MiB of memory, {wanted} MiB wanted");
        findings.add(Verdict::Fail, text, Some("ask for less memory or fewer nodes"));
    } else if free.is_some_and(|free| free < wanted) {
        // Memory that holds files does not count as free, and is given back when wanted.
        let text = format!(
            "the host has {} MiB of memory free now, {wanted} MiB wanted",
            free.unwrap_or(0)
        );
        findings.add(Verdict::Warn, text, Some("stop what is not needed there"));
    } else {
        findings.ok(format!("the host has {total} MiB of memory, {wanted} MiB wanted"));
    }
    if needs.cpus_per_machine > host.cpus {
        let text = format!(
            "the host has {} cpus, one machine wants {}",
            host.cpus, needs.cpus_per_machine
        );
        findings.add(Verdict::Warn, text, None);
    }
    Ok(())
}

/// Names and MACs that domains of others have.
fn name_conflicts(connect: &Connect, needs: &Requirements, findings: &mut Findings) -> Result<(), Failure> {
    let mut wanted: BTreeMap<Mac, &str> = BTreeMap::new();
    for (name, macs) in &needs.machines {
        wanted.extend(macs.iter().map(|mac| (*mac, name.as_str())));
    }
    let mut clash = false;
    for domain in connect.list_all_domains(0)? {
        let Some(xml) = if_there(domain.xml_desc(0))? else {
            continue;
        };
        let described = crate::xml::parse(&xml)?;
        let ours = OwnershipTag::read(&described);
        if ours.is_some_and(|ours| needs.cluster.as_ref() == Some(&ours.cluster)) {
            continue;
        }
        let name = domain.name()?;
        if needs.machines.iter().any(|(machine, _)| machine.as_str() == name) {
            clash = true;
            let text = format!("a domain {name} that is not of this cluster is there");
            findings.add(Verdict::Fail, text, Some("choose another cluster name, or remove it"));
        }
        for interface in described.all("devices/interface/mac") {
            let mac = interface.get("address").and_then(|mac| mac.parse::<Mac>().ok());
            if let Some((mac, machine)) = mac.and_then(|mac| wanted.get(&mac).map(|machine| (mac, machine))) {
                clash = true;
                let text = format!("domain {name} already has the MAC {mac} of {machine}");
                findings.add(Verdict::Fail, text, Some("give other MACs, or remove it"));
            }
        }
    }
    if !clash {
        findings.ok("no name or MAC is taken by a stranger");
    }
    Ok(())
}
