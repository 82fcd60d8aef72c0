//! Checks before a deployment.

use std::collections::BTreeMap;

use virt::connect::Connect;
use virt::sys;

use super::attachment::{self, Attachment};
use super::domain::{HostPlatform, TaggedDomain};
use super::ffi;
use super::network;
use super::session::if_supported;
use super::storage::Storage;
use crate::backend::error::if_exists;
use crate::backend::findings::Findings;
use crate::backend::{BackendError, Finding, Requirements, Verdict};
use crate::cluster::{Architecture, LibvirtConfig, Mac, VirtType};
use crate::printable::{count, shell_word};

const GIB: u64 = 1 << 30;
/// The first libvirt that supports fw_cfg files, as libvirt encodes versions.
const OLDEST: u32 = 6_005_000;
/// x86-64-v3 is x86-64-v2, which is Nehalem, and these (x86-64 psABI, "Micro-Architecture Levels"; LZCNT is `abm`).
const X86_64_V3: &str = "<cpu><arch>x86_64</arch><model>Nehalem</model><feature name='avx'/><feature name='avx2'/>\
    <feature name='bmi1'/><feature name='bmi2'/><feature name='f16c'/><feature name='fma'/><feature name='abm'/>\
    <feature name='movbe'/><feature name='xsave'/></cpu>";
/// Types of pools whose volumes are files of exactly the given length.
pub(super) const FILE_POOLS: [&str; 3] = ["dir", "fs", "netfs"];

impl Findings {
    /// Adds a failure as a finding. A lost connection remains an error.
    fn failure(&mut self, failure: BackendError) -> Result<(), BackendError> {
        use crate::backend::BackendErrorKind::{NotFound, Rejected};
        match failure.kind {
            NotFound | Rejected => {
                self.add(Verdict::Fail, failure.message, failure.hint.as_deref());
                Ok(())
            }
            _ => Err(failure),
        }
    }
}

pub(super) fn look(
    connect: &Connect,
    config: &LibvirtConfig,
    requirements: &Requirements,
) -> Result<Vec<Finding>, BackendError> {
    let mut findings = Findings(Vec::new());
    version(connect, config, &mut findings)?;
    for arch in &requirements.architectures {
        accelerator(connect, *arch, config.virt_type, &mut findings)?;
    }
    match Storage::open(connect, &config.pool) {
        Ok(storage) => space(&storage, &config.pool, requirements, &mut findings)?,
        Err(failure) => findings.failure(failure)?,
    }
    for name in &requirements.networks {
        let attachment = Attachment::read(name);
        if let Some(device) = attachment.device() {
            match attachment::require_device(connect, device) {
                Err(failure) => findings.failure(failure)?,
                Ok(()) => findings.0.push(attachment::finding(attachment, device)),
            }
            continue;
        }
        let word = shell_word(name);
        match network::find(connect, name) {
            Err(failure) => findings.failure(failure)?,
            Ok(network) if network.is_active()? => {
                findings.ok(format!("network {name} is active"));
                if !network.is_persistent()? {
                    let hint = format!("virsh net-dumpxml {word} >net.xml && virsh net-define net.xml");
                    let text = format!("network {name} is transient: it and its reservations are lost when it stops");
                    findings.add(Verdict::Warn, text, Some(&hint));
                } else if requirements.autostart && !network.autostart()? {
                    let hint = format!("virsh net-autostart {word}");
                    let text = format!("network {name} does not start with its host, so autostart=true has no effect");
                    findings.add(Verdict::Warn, text, Some(&hint));
                }
            }
            Ok(_) => {
                let hint = format!("virsh net-start {word}");
                findings.add(Verdict::Fail, format!("network {name} is not active"), Some(&hint));
            }
        }
    }
    memory(connect, requirements, &mut findings)?;
    name_conflicts(connect, requirements, &mut findings)?;
    Ok(findings.0)
}

fn version(connect: &Connect, config: &LibvirtConfig, findings: &mut Findings) -> Result<(), BackendError> {
    let version = connect.lib_version()?;
    let shown = format!(
        "{}.{}.{}",
        version / 1_000_000,
        version / 1_000 % 1_000,
        version % 1_000
    );
    if version < OLDEST {
        let text = format!("libvirt {shown} at {} does not support Ignition by fw_cfg", config.uri);
        findings.add(Verdict::Fail, text, Some("upgrade libvirt to 6.5 or later"));
    } else {
        findings.ok(format!("connected to libvirt {shown} at {}", config.uri));
    }
    Ok(())
}

fn accelerator(
    connect: &Connect,
    arch: Architecture,
    virt_type: VirtType,
    findings: &mut Findings,
) -> Result<(), BackendError> {
    match HostPlatform::of(connect, arch, virt_type) {
        Err(failure) => findings.failure(failure)?,
        Ok(platform) if platform.is_foreign => {
            let text = format!(
                "the host emulates {arch}: its machines are too slow for an installation, but sufficient for a rehearsal"
            );
            findings.add(
                Verdict::Warn,
                text,
                Some(&format!("use a host of architecture {arch} with KVM")),
            );
        }
        Ok(platform) if platform.domain_type == "qemu" => {
            let hint = match virt_type {
                VirtType::Qemu => "set libvirt_virt_type=auto to use KVM",
                _ => {
                    "load the kernel module of KVM, on x86_64 kvm_intel or kvm_amd, and enable virtualization in the firmware"
                }
            };
            let text = "no KVM: emulated machines are too slow for an installation, but sufficient for a rehearsal";
            findings.add(Verdict::Warn, text, Some(hint));
        }
        Ok(platform) => {
            findings.ok(format!("domain type {}", platform.domain_type));
            // Machines have the CPU of the host.
            if platform.domain_type == "kvm" && arch == Architecture::X86_64 && !is_x86_64_v3(connect)? {
                let text = "the host's CPU is older than x86-64-v3: images of RHEL 10 and CentOS Stream 10 do not boot";
                findings.add(
                    Verdict::Warn,
                    text,
                    Some("use images of RHEL 9 and harvest_image=centos9stream"),
                );
            }
        }
    }
    Ok(())
}

/// Whether the host's CPU has the instructions of x86-64-v3, which RHEL 10 requires. True if libvirt does not know.
fn is_x86_64_v3(connect: &Connect) -> Result<bool, BackendError> {
    let compared = if_supported(connect.compare_cpu(X86_64_V3, 0).map_err(BackendError::from))?;
    Ok(compared != Some(sys::VIR_CPU_COMPARE_INCOMPATIBLE))
}

fn space(
    storage: &Storage,
    pool: &str,
    requirements: &Requirements,
    findings: &mut Findings,
) -> Result<(), BackendError> {
    let described = storage.describe()?;
    let kind = described.get("type").unwrap_or_default();
    if !FILE_POOLS.contains(&kind) {
        let text = format!("pool {pool} has type {kind}, which changes the length of Ignition files");
        let hint = format!("set `libvirt_storage_pool` to a pool of type {}", FILE_POOLS.join(", "));
        findings.add(Verdict::Fail, text, Some(&hint));
    }
    let bytes = |path: &str| {
        described
            .find(path)
            .and_then(|element| element.text.parse::<u64>().ok())
    };
    let free = bytes("available").unwrap_or(0) / GIB;
    let text = format!(
        "pool {pool} has {free} GiB free, the disks require up to {} GiB",
        requirements.disk_gib
    );
    match free {
        0 => findings.add(
            Verdict::Fail,
            text,
            Some("free space in the pool or set another `libvirt_storage_pool`"),
        ),
        // Disks grow when they are written, and are rarely full.
        _ if free < requirements.disk_gib => findings.add(Verdict::Warn, text, None),
        _ => findings.ok(text),
    }
    Ok(())
}

fn memory(connect: &Connect, requirements: &Requirements, findings: &mut Findings) -> Result<(), BackendError> {
    let host = connect.node_info()?;
    let total = host.memory / 1024;
    let available = if_supported(ffi::available_memory(connect).map_err(BackendError::from))?.map(|kib| kib >> 10);
    let wanted = requirements.memory_mib;
    if wanted > total {
        let text = format!("the host has {total} MiB of memory, {wanted} MiB required");
        findings.add(Verdict::Fail, text, Some("set less memory or fewer nodes"));
    } else if let Some(available) = available.filter(|available| *available < wanted) {
        let text = format!("the host has {available} MiB of available memory, {wanted} MiB required");
        findings.add(
            Verdict::Warn,
            text,
            Some("stop other machines or processes on the host"),
        );
    } else {
        findings.ok(format!("the host has {total} MiB of memory, {wanted} MiB required"));
    }
    if requirements.cpus_per_machine > host.cpus {
        let text = format!(
            "the host has {}, the largest machine requires {}",
            count(host.cpus, "CPU"),
            requirements.cpus_per_machine
        );
        findings.add(Verdict::Warn, text, None);
    }
    Ok(())
}

/// Names and MACs that are in use by domains of other owners.
fn name_conflicts(connect: &Connect, requirements: &Requirements, findings: &mut Findings) -> Result<(), BackendError> {
    let mut wanted: BTreeMap<Mac, &str> = BTreeMap::new();
    for (name, macs) in &requirements.machines {
        wanted.extend(macs.iter().map(|mac| (*mac, name.as_str())));
    }
    wanted.extend(requirements.vips.iter().map(|(name, mac)| (*mac, name.as_str())));
    let mut clash = false;
    for domain in connect.list_all_domains(0)? {
        let Some(xml) = if_exists(domain.xml_desc(0))? else {
            continue;
        };
        let described = crate::xml::parse(&xml)?;
        let ours = TaggedDomain::read(&described);
        if ours.is_some_and(|ours| requirements.cluster.as_ref() == Some(&ours.ownership.cluster)) {
            continue;
        }
        let name = domain.name()?;
        if requirements
            .machines
            .iter()
            .any(|(machine, _)| machine.as_str() == name)
        {
            clash = true;
            let text = format!("domain {name} exists and is not owned by this cluster");
            findings.add(Verdict::Fail, text, Some("choose another cluster name"));
        }
        for interface in described.all("devices/interface/mac") {
            let mac = interface.get("address").and_then(|mac| mac.parse::<Mac>().ok());
            if let Some((mac, machine)) = mac.and_then(|mac| wanted.get(&mac).map(|machine| (mac, machine))) {
                clash = true;
                let text = format!("MAC {mac} of {machine} is in use by domain {name}");
                findings.add(Verdict::Fail, text, Some("set other MACs or delete the domain"));
            }
        }
    }
    if !clash {
        findings.ok("machine names and MACs are free");
    }
    Ok(())
}
