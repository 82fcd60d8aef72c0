//! The choices of a libvirt host for `ocpdeploy init`: networks and pools; and findings about the host.

use virt::connect::Connect;
use virt::sys;

use super::domain::HostPlatform;
use super::entries::NetworkDocument;
use super::ffi;
use super::session::{document, if_supported};
use crate::backend::error::if_exists;
use crate::backend::{BackendError, Choice, Finding, HostCapacity, PlatformChoices, SettingChoices};
use crate::cluster::{Architecture, LibvirtConfig, VirtType};
use crate::printable::{count, shell_word};
use crate::xml::{self, Element};

const GIB: u64 = 1 << 30;

pub(super) fn query(connect: &Connect, config: &LibvirtConfig) -> Result<PlatformChoices, BackendError> {
    let node = connect.node_info()?;
    Ok(PlatformChoices {
        seen: host(connect, config)?,
        host: Some(HostCapacity {
            memory_mib: node.memory / 1024,
            cpus: Some(node.cpus.into()),
        }),
        settings: vec![
            SettingChoices::new("network", networks(connect)?),
            SettingChoices::new("libvirt_storage_pool", pools(connect)?),
        ],
    })
}

fn host(connect: &Connect, config: &LibvirtConfig) -> Result<Vec<Finding>, BackendError> {
    let version = connect.lib_version()?;
    let (major, minor, patch) = (version / 1_000_000, version / 1_000 % 1_000, version % 1_000);
    let node = connect.node_info()?;
    let available = if_supported(ffi::available_memory(connect).map_err(BackendError::from))?;
    let available = available.map_or(String::new(), |kib| format!(", {} available", kib >> 10));
    let mut seen = vec![
        Finding::ok(format!(
            "connected to libvirt {major}.{minor}.{patch} at {}",
            config.uri
        )),
        Finding::ok(format!(
            "the host has {} and {} MiB of memory{available}",
            count(node.cpus, "CPU"),
            node.memory / 1024
        )),
    ];
    let capabilities = document(connect.capabilities())?;
    let arch = capabilities.text_of("host/cpu/arch").and_then(Architecture::in_name);
    seen.push(
        match HostPlatform::of(connect, arch.unwrap_or_default(), VirtType::Auto) {
            Ok(platform) if platform.domain_type == "qemu" => Finding::warn(
                "no KVM: emulated machines are too slow for an installation, but sufficient for a rehearsal".to_owned(),
            ),
            Ok(platform) => Finding::ok(format!("domain type {}", platform.domain_type)),
            Err(failure) => Finding::warn(failure.message),
        },
    );
    Ok(seen)
}

fn networks(connect: &Connect) -> Result<Vec<Choice>, BackendError> {
    let mut all = Vec::new();
    for network in connect.list_all_networks(0)? {
        // Deleted objects are skipped.
        let (Some(described), Some(active)) = (if_exists(network.xml_desc(0))?, if_exists(network.is_active())?) else {
            continue;
        };
        let described = xml::parse(&described)?;
        let read = NetworkDocument::read(&described);
        let choice = Choice::new(network.name()?, about_network(&described, &read));
        all.push(match (active, read.has_dhcp, &read.own) {
            (false, ..) => {
                let start = format!(
                    "not active: start it with `virsh net-start {}`",
                    shell_word(&choice.value)
                );
                choice.warn(start)
            }
            // A bridge of the host has another DHCP server. Networks of libvirt have no other one.
            (_, false, Some(_)) => choice.warn("no DHCP server"),
            _ => choice,
        });
    }
    all.sort_by(|a, b| a.value.cmp(&b.value));
    Ok(all)
}

fn about_network(described: &Element, read: &NetworkDocument) -> String {
    let bridge = described.find("bridge").and_then(|bridge| bridge.get("name"));
    let mut text = match (read.forward.as_deref(), bridge) {
        (Some("bridge"), Some(bridge)) => format!("bridge {bridge} of the host, external DHCP"),
        (Some(mode), _) => mode.to_owned(),
        (None, _) => "isolated".to_owned(),
    };
    if let Some(own) = read.own {
        text += &format!(" {}/{}", own.network(), own.prefix());
    }
    if let Some((first, last)) = read.ranges.first() {
        text += &format!(", DHCP {first} to {last}");
    }
    text
}

fn pools(connect: &Connect) -> Result<Vec<Choice>, BackendError> {
    let mut all = Vec::new();
    // Only active pools report their capacity.
    for pool in connect.list_all_storage_pools(sys::VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE)? {
        let described = document(pool.xml_desc(0))?;
        let kind = described.get("type").unwrap_or_default();
        let bytes = described
            .find("available")
            .and_then(|free| free.text.parse::<u64>().ok());
        let free = bytes.unwrap_or_default() / GIB;
        let path = described.find("target/path").map_or("", |path| path.text.as_str());
        let choice = Choice::new(pool.name()?, format!("{kind} {path}, {free} GiB free"));
        all.push(match super::preflight::FILE_POOLS.contains(&kind) {
            true => choice,
            false => choice.warn("changes the length of Ignition files"),
        });
    }
    all.sort_by(|a, b| a.value.cmp(&b.value));
    Ok(all)
}
