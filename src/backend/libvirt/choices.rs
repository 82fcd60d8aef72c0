//! What a libvirt host has to choose from: networks and pools, and what the host itself is.

use virt::connect::Connect;
use virt::sys;

use super::domain::Platform;
use super::entries::Document;
use super::session::{document, if_supported};
use crate::backend::failure::Failure;
use crate::backend::{Choice, Finding, PlatformChoices, SettingChoices, Verdict};
use crate::cluster::{LibvirtConfig, VirtType};
use crate::xml::{self, Element};

const GIB: u64 = 1 << 30;

pub(super) fn look(connect: &Connect, config: &LibvirtConfig) -> Result<PlatformChoices, Failure> {
    Ok(PlatformChoices {
        seen: host(connect, config)?,
        settings: vec![
            SettingChoices::new("network", networks(connect)?),
            SettingChoices::new("pool", pools(connect)?),
        ],
    })
}

fn host(connect: &Connect, config: &LibvirtConfig) -> Result<Vec<Finding>, Failure> {
    let version = connect.lib_version()?;
    let (major, minor, patch) = (version / 1_000_000, version / 1_000 % 1_000, version % 1_000);
    let node = connect.node_info()?;
    let free = if_supported(connect.free_memory().map_err(Failure::from))?;
    let free = free.map_or(String::new(), |bytes| format!(", {} free now", bytes >> 20));
    let mut seen = vec![
        Finding::new(
            Verdict::Ok,
            format!("libvirt {major}.{minor}.{patch} answers at {}", config.uri),
        ),
        Finding::new(
            Verdict::Ok,
            format!(
                "the host has {} cpus and {} MiB of memory{free}",
                node.cpus,
                node.memory / 1024
            ),
        ),
    ];
    seen.push(
        match Platform::choose(&document(connect.capabilities())?, VirtType::Auto) {
            Ok(platform) if platform.domain_type == "qemu" => Finding::new(
                Verdict::Warn,
                "no KVM: machines are emulated, good for a rehearsal and too slow for an installation".to_owned(),
            ),
            Ok(platform) => Finding::new(Verdict::Ok, format!("machines are of type {}", platform.domain_type)),
            Err(failure) => Finding::new(Verdict::Warn, failure.words),
        },
    );
    Ok(seen)
}

fn networks(connect: &Connect) -> Result<Vec<Choice>, Failure> {
    let mut all = Vec::new();
    for network in connect.list_all_networks(0)? {
        let described = xml::parse(&network.xml_desc(0)?)?;
        let read = Document::read(&described);
        let choice = Choice::new(network.name()?, about_network(&described, &read));
        let active = network.is_active()?;
        all.push(match (active, read.has_dhcp, &read.own) {
            (false, ..) => {
                let start = format!("it is not active: virsh net-start {}", choice.value);
                choice.warn(start)
            }
            // On a bridge of the host another server answers; libvirt's own networks have nobody else.
            (_, false, Some(_)) => choice.warn("nobody answers to DHCP there"),
            _ => choice,
        });
    }
    all.sort_by(|a, b| a.value.cmp(&b.value));
    Ok(all)
}

fn about_network(described: &Element, read: &Document) -> String {
    let bridge = described.find("bridge").and_then(|bridge| bridge.get("name"));
    let mut words = match (read.forward.as_deref(), bridge) {
        (Some("bridge"), Some(bridge)) => format!("bridge {bridge} of the host, DHCP is not libvirt's"),
        (Some(mode), _) => mode.to_owned(),
        (None, _) => "isolated".to_owned(),
    };
    if let Some(own) = read.own {
        words += &format!(" {}/{}", own.network(), own.prefix());
    }
    if let Some((first, last)) = read.ranges.first() {
        words += &format!(", DHCP {first} to {last}");
    }
    words
}

fn pools(connect: &Connect) -> Result<Vec<Choice>, Failure> {
    let mut all = Vec::new();
    // Those that are not active cannot say what they hold.
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
            false => choice.warn("an Ignition file does not keep its length there"),
        });
    }
    all.sort_by(|a, b| a.value.cmp(&b.value));
    Ok(all)
}
