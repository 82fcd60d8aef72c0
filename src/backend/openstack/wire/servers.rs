//! Servers, their volumes and server groups.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use super::common::{TAG, cluster_of_tag, tag_text, text};
use super::flavors::Flavor;
use crate::backend::ownership::Ownership;
use crate::backend::{Machine, MachineSpec, Nic, Power};
use crate::cluster::{ClusterId, Mac, MachineName, OsBoot, Pass, Role};

const CLUSTER: &str = "ocpdeploy.cluster";
const NODE: &str = "ocpdeploy.node";
const ROLE: &str = "ocpdeploy.role";
const PASS: &str = "ocpdeploy.pass";
const FINGERPRINT: &str = "ocpdeploy.fingerprint";
const CREATION: &str = "ocpdeploy.creation";
const NIC: &str = "ocpdeploy.nic.";

/// The metadata of a server.
fn metadata(spec: &MachineSpec) -> Value {
    let mut metadata = json!({
        CLUSTER: spec.cluster,
        NODE: spec.node,
        ROLE: spec.role,
        PASS: spec.pass,
        FINGERPRINT: spec.fingerprint(),
        CREATION: spec.creation,
    });
    for (index, Nic { network, mac }) in spec.nics.iter().enumerate() {
        metadata[format!("{NIC}{index}")] = json!(format!("{mac} {network}"));
    }
    metadata
}

/// The ownership of a server; `None` if this program did not create it.
pub fn ownership(server: &Value) -> Option<Ownership> {
    let metadata = &server["metadata"];
    let nic = |index: usize| {
        let (mac, network) = metadata[format!("{NIC}{index}")].as_str()?.split_once(' ')?;
        let (mac, network) = (mac.parse().ok()?, network.to_owned());
        Some(Nic { network, mac })
    };
    Some(Ownership {
        cluster: cluster_of(server)?,
        machine: text(server, "name").parse().ok()?,
        node: text(metadata, NODE).parse().ok()?,
        role: text(metadata, ROLE).parse().ok()?,
        pass: text(metadata, PASS).parse().ok()?,
        fingerprint: text(metadata, FINGERPRINT).to_owned(),
        nics: (0..).map_while(nic).collect(),
        creation: text(metadata, CREATION).parse().ok(),
    })
}

/// The cluster in the metadata of a server or volume.
pub fn cluster_of(object: &Value) -> Option<ClusterId> {
    serde_json::from_value(object["metadata"][CLUSTER].clone()).ok()
}

/// A server as a machine; `None` if it has no tag or is deleted.
pub fn machine(server: &Value) -> Option<Machine> {
    let power = power(server)?;
    let addresses = match power {
        Power::Building => BTreeMap::new(),
        _ => addresses(server),
    };
    Some(ownership(server)?.machine(power, &addresses))
}

/// A server without its payload, which administrators can read and which contains secrets.
pub fn without_payload(mut server: Value) -> Value {
    if let Some(fields) = server.as_object_mut() {
        fields.retain(|key, _| !key.contains("user_data") && key != "adminPass");
    }
    server
}

pub fn power(server: &Value) -> Option<Power> {
    Some(match text(server, "status") {
        // VERIFY_RESIZE: an administrator has migrated it, and not confirmed this yet.
        "ACTIVE" | "REBOOT" | "HARD_REBOOT" | "PASSWORD" | "MIGRATING" | "VERIFY_RESIZE" => Power::Running,
        "SHUTOFF" if text(server, "OS-EXT-STS:task_state") == "powering-on" => Power::Building,
        "SHUTOFF" | "SHELVED" | "SHELVED_OFFLOADED" => Power::Off,
        "PAUSED" => Power::Paused("paused by a user".to_owned()),
        "SUSPENDED" => Power::Paused("suspended by a user".to_owned()),
        "RESCUE" => Power::Paused("rescue mode".to_owned()),
        "ERROR" => {
            let fault = server["fault"]["message"].as_str().unwrap_or("no reason from Nova");
            Power::Broken(fault.trim_end_matches('.').to_owned())
        }
        "UNKNOWN" => Power::Broken("Nova does not know its state".to_owned()),
        "DELETED" | "SOFT_DELETED" => return None,
        _ => Power::Building,
    })
}

/// Whether a server has never run: Nova sets this time when it has started it (openstack/nova: `nova/compute/manager.py`,
/// `_build_and_run_instance`; `nova/api/openstack/compute/views/servers.py`, `_get_server_usage`).
pub fn never_ran(server: &Value) -> bool {
    server.get("OS-SRV-USG:launched_at").is_some_and(Value::is_null)
}

/// The action that starts a server that is off. Nova starts no shelved one (openstack/nova: `nova/compute/api.py`,
/// `start`: only `vm_states.STOPPED`; `nova/api/openstack/compute/shelve.py`, `unshelve`).
pub fn start(server: &Value) -> Value {
    match text(server, "status").starts_with("SHELVED") {
        true => json!({"unshelve": null}),
        false => json!({"os-start": null}),
    }
}

/// The IPv4 addresses.
fn addresses(server: &Value) -> BTreeMap<Mac, Vec<IpAddr>> {
    let mut found = BTreeMap::<Mac, Vec<IpAddr>>::new();
    let networks = server["addresses"].as_object().into_iter().flatten();
    for address in networks.filter_map(|(_, list)| list.as_array()).flatten() {
        let mac = text(address, "OS-EXT-IPS-MAC:mac_addr").parse();
        if let (Ok(mac), Ok(ip)) = (mac, text(address, "addr").parse::<Ipv4Addr>())
            && address["OS-EXT-IPS:type"] != "floating"
        {
            found.entry(mac).or_default().push(IpAddr::V4(ip));
        }
    }
    found
}

/// The parts of a new server in addition to its spec.
pub struct Parts<'a> {
    pub flavor: &'a Flavor,
    /// One for each NIC, in order.
    pub ports: &'a [String],
    /// Base64.
    pub user_data: &'a str,
    pub boot: OsBoot,
    /// The boot volume, if any, and the extra disks. Empty without block storage: then extra disks are ephemeral disks of
    /// the flavor.
    pub volumes: &'a [String],
    pub zone: Option<&'a str>,
    pub group: Option<&'a str>,
}

/// The body of `POST /servers`.
pub fn server(spec: &MachineSpec, parts: &Parts<'_>) -> Value {
    let ports: Vec<_> = parts.ports.iter().map(|id| json!({"port": id})).collect();
    let mut server = json!({
        "name": spec.name,
        "flavorRef": parts.flavor.id,
        "networks": ports,
        // The metadata service may be unreachable. Ignition reads both sources.
        "config_drive": true,
        "metadata": metadata(spec),
        "tags": [TAG, spec.cluster],
    });
    if !parts.user_data.is_empty() {
        server["user_data"] = json!(parts.user_data);
    }
    if let Some(zone) = parts.zone {
        server["availability_zone"] = json!(zone);
    }
    let mut devices = Vec::new();
    if parts.boot == OsBoot::Image {
        server["imageRef"] = json!(spec.image);
        devices.push(json!({
            "boot_index": 0,
            "source_type": "image",
            "uuid": spec.image,
            "destination_type": "local",
            "delete_on_termination": true,
        }));
    }
    for volume in parts.volumes {
        devices.push(json!({
            // Only the first device is bootable.
            "boot_index": if devices.is_empty() { 0 } else { -1 },
            "source_type": "volume",
            "uuid": volume,
            "destination_type": "volume",
            "delete_on_termination": true,
        }));
    }
    if parts.volumes.is_empty() {
        devices.extend(spec.extra_disks_gib.iter().map(|gib| {
            json!({
                "boot_index": -1,
                "source_type": "blank",
                "destination_type": "local",
                "volume_size": gib,
                "delete_on_termination": true,
            })
        }));
    }
    if devices.len() > 1 || parts.boot == OsBoot::Volume {
        server["block_device_mapping_v2"] = json!(devices);
    }
    let mut body = json!({"server": server});
    if let Some(group) = parts.group {
        body["os:scheduler_hints"] = json!({"group": group});
    }
    body
}

/// The name of a volume of a machine. The boot volume, if any, is number 0.
pub fn volume_of(machine: &MachineName, index: usize) -> String {
    format!("{machine}:disk{index}")
}

/// The machine in the name of a volume or port.
pub fn machine_of(name: &str) -> Option<&str> {
    Some(name.rsplit_once(':')?.0)
}

/// The body of `POST /volumes`. Volumes that Nova creates have no name, and cannot be found again.
pub fn volume(
    spec: &MachineSpec,
    index: usize,
    gib: u64,
    image: Option<&str>,
    kind: Option<&str>,
    zones: Option<&str>,
) -> Value {
    let mut volume = json!({
        "name": volume_of(&spec.name, index),
        "description": tag_text(&spec.cluster),
        "size": gib,
        "metadata": {CLUSTER: spec.cluster},
    });
    if let Some(image) = image {
        volume["imageRef"] = json!(image);
    }
    if let Some(kind) = kind {
        volume["volume_type"] = json!(kind);
    }
    if let Some(zone) = zone_of(spec, zones) {
        volume["availability_zone"] = json!(zone);
    }
    json!({"volume": volume})
}

/// Why a flavor cannot boot an image; `None` if it can. With a boot volume only the memory counts.
pub fn too_small(flavor: &Flavor, disk_gib: u64, image: &Value) -> Option<String> {
    const GIB: u64 = 1 << 30;
    let number = |key: &str| image[key].as_u64().unwrap_or_default();
    let disk = number("min_disk").max(number("virtual_size").div_ceil(GIB));
    let pairs = [
        (flavor.memory_mib, number("min_ram"), "MiB of memory"),
        (disk_gib, disk, "GiB of disk"),
    ];
    let short = pairs.iter().find(|(has, wanted, _)| has < wanted);
    short.map(|(has, wanted, what)| {
        let (flavor, image) = (&flavor.name, text(image, "name"));
        format!("image {image} requires {wanted} {what}, a machine of flavor {flavor} has {has}")
    })
}

/// The zone of a machine, from a list with commas: masters use the zones in turn, and so do workers. The arbiter comes
/// after two masters.
pub fn zone_of<'a>(spec: &MachineSpec, zones: Option<&'a str>) -> Option<&'a str> {
    let zones: Vec<_> = zones?
        .split(',')
        .map(str::trim)
        .filter(|zone| !zone.is_empty())
        .collect();
    let before = if spec.role == Role::Arbiter { 2 } else { 0 };
    let turn = before + spec.node.number().unwrap_or_default();
    zones.get(turn % zones.len().max(1)).copied()
}

/// The name of the server group of a node; `None` if it has none. A quota limits the members of a group.
pub fn group_name(spec: &MachineSpec, members: usize) -> Option<String> {
    let tag = tag_text(&spec.cluster);
    match spec.role {
        _ if spec.pass == Pass::One => None,
        Role::Master | Role::Arbiter => Some(format!("{tag} masters")),
        Role::Worker => Some(format!(
            "{tag} workers {}",
            spec.node.number().unwrap_or_default() / members.max(1)
        )),
        Role::Bootstrap | Role::Helper => None,
    }
}

/// The cluster of a server group; `None` if `group_name` creates no such names.
pub fn group_of(name: &str) -> Option<ClusterId> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (tag, last) = name.rsplit_once(' ')?;
    match tag.strip_suffix(" workers") {
        Some(tag) if is_number(last) => cluster_of_tag(tag),
        None if last == "masters" => cluster_of_tag(tag),
        _ => None,
    }
}
