//! What is sent to the services and what is read out of their answers; values in, values out.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::Ipv4Addr;

use ipnetwork::Ipv4Network;
use serde_json::{Value, json};

use crate::backend::{BackendErrorKind, Machine, MachineSpec, Nic, Power, SeenNic};
use crate::cluster::{ClusterId, Mac, MachineName, NodeName, OsBoot, Pass, Role, Vip};
use crate::http_limits;

/// The longest words of a service that are repeated.
const MOST_WORDS: usize = 300;

/// Says in words what went wrong; each service wraps its faults in another way.
pub(super) fn fault(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    // Keystone, Nova, Neutron and Cinder: an object whose only key is the kind; Glance: words, maybe in HTML.
    let inner = json.as_object().and_then(|object| object.values().next());
    let message = inner.and_then(|inner| inner["message"].as_str().or(inner.as_str()));
    let words = without_tags(message.unwrap_or(&text));
    // Nova repeats a value that it does not like, and user data holds secrets.
    let words = words.split(" Value: ").next().unwrap_or_default();
    let words = http_limits::words(words, MOST_WORDS);
    match words.trim_end_matches('.') {
        "" => "no reason was given".to_owned(),
        words => words.to_owned(),
    }
}

/// Glance and proxies speak HTML, also within JSON.
fn without_tags(html: &str) -> String {
    let mut words = String::new();
    let mut within = false;
    for c in html.chars() {
        match c {
            '<' => within = true,
            '>' => {
                within = false;
                words.push(' ');
            }
            _ if !within => words.push(c),
            _ => {}
        }
    }
    words
}

/// What kind of refusal a status and its words are.
pub(super) fn kind_of(status: u16, fault: &str) -> BackendErrorKind {
    let is_quota = ["uota", "xceeded"].iter().all(|part| fault.contains(part)) || fault.contains("OverQuota");
    match status {
        _ if is_quota && matches!(status, 403 | 409 | 413) => BackendErrorKind::Quota,
        401 | 403 => BackendErrorKind::Denied,
        404 => BackendErrorKind::NotFound,
        409 => BackendErrorKind::Conflict,
        413 => BackendErrorKind::Quota,
        408 | 429 | 504 => BackendErrorKind::Timeout,
        502 | 503 => BackendErrorKind::Unreachable,
        _ => BackendErrorKind::Rejected,
    }
}

/// The marker in the link to the next page of a list: `<key>_links` of Nova, Neutron and Cinder, `next` of Glance.
///
/// All four make the link of the request itself and set `marker` in it (openstack/nova:
/// `nova/api/openstack/common.py`, `_get_next_link`; openstack/neutron: `neutron/api/api_common.py`, `get_next_link`;
/// openstack/cinder: `cinder/api/common.py`, `_get_next_link`; openstack/glance: `glance/api/v2/images.py`, `index`), so
/// that the rest of it tells nothing new. Its scheme and host are wrong behind many proxies.
pub(super) fn next_marker(page: &Value, key: &str) -> Result<Option<String>, String> {
    let links = page[format!("{key}_links")].as_array();
    let next = links.into_iter().flatten().find(|link| link["rel"] == "next");
    let Some(next) = next.map(|link| &link["href"]).unwrap_or(&page["next"]).as_str() else {
        return Ok(None);
    };
    let query = next.split_once('?').map_or("", |(_, query)| query);
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    match pairs.find(|(name, _)| *name == "marker") {
        // It stays escaped as it is, and may not lead out of its place.
        Some((_, marker)) if !marker.is_empty() && marker.bytes().all(is_query) => Ok(Some(marker.to_owned())),
        _ => Err("the link to its next page has no marker".to_owned()),
    }
}

/// What urlencode leaves of a value (python/cpython: `Lib/urllib/parse.py`, `quote_plus`).
fn is_query(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~+%".contains(&byte)
}

/// A path that asks for what comes after a marker, which is escaped already.
pub(super) fn with_marker(path: &str, marker: &str) -> String {
    let sign = if path.contains('?') { '&' } else { '?' };
    format!("{path}{sign}marker={marker}")
}

/// A path with a query.
pub(super) fn query(path: &str, pairs: &[(&str, &str)]) -> String {
    let mut text = path.to_owned();
    for (index, (name, value)) in pairs.iter().enumerate() {
        text.push(if index == 0 { '?' } else { '&' });
        text.push_str(name);
        text.push('=');
        text.push_str(&escape(value));
    }
    text
}

/// A text as a part of an address.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => escaped.push(char::from(byte)),
            _ => {
                // A string takes everything.
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
    }
    escaped
}

pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Description of whatever belongs to a cluster, and name of what has no description.
pub(super) fn mark(cluster: &ClusterId) -> String {
    format!("ocpdeploy {cluster}")
}

/// The cluster whose mark a description is.
pub(super) fn marked(description: &str) -> Option<ClusterId> {
    ClusterId::read(description.strip_prefix("ocpdeploy ")?)
}

/// Tag of whatever is ours, beside a tag with the cluster's id.
pub(super) const TAG: &str = "ocpdeploy";

// Ports.

/// A port as Neutron shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Port {
    pub id: String,
    pub name: String,
    pub description: String,
    pub network: String,
    pub mac: Option<Mac>,
    pub ips: Vec<Ipv4Addr>,
    /// The server that has it; empty: none.
    pub device: String,
    pub device_owner: String,
    pub groups: Vec<String>,
    pub pairs: Vec<String>,
}

impl Port {
    pub fn read(port: &Value) -> Self {
        let list = |key: &str| port[key].as_array().into_iter().flatten();
        let ip = |address: &Value| address["ip_address"].as_str()?.parse().ok();
        Self {
            id: text(port, "id").to_owned(),
            name: text(port, "name").to_owned(),
            description: text(port, "description").to_owned(),
            network: text(port, "network_id").to_owned(),
            mac: text(port, "mac_address").parse().ok(),
            ips: list("fixed_ips").filter_map(ip).collect(),
            device: text(port, "device_id").to_owned(),
            device_owner: text(port, "device_owner").to_owned(),
            groups: list("security_groups")
                .filter_map(|id| Some(id.as_str()?.to_owned()))
                .collect(),
            pairs: list("allowed_address_pairs")
                .filter_map(|pair| Some(pair["ip_address"].as_str()?.to_owned()))
                .collect(),
        }
    }

    pub fn is_of(&self, cluster: &ClusterId) -> bool {
        self.description == mark(cluster)
    }

    /// The node or VIP for which it keeps its address; `None`: it was made for one machine and goes with it.
    pub fn held_for(&self, cluster: &ClusterId) -> Option<NodeName> {
        let host = cluster.host_of(&self.name)?;
        serde_json::from_value(json!(host)).ok()
    }
}

/// Name of a port that goes with its machine. No host name has a colon.
pub(super) fn port_of(machine: &MachineName, index: usize) -> String {
    format!("{machine}:{index}")
}

/// The addresses of VIPs that a node of this role may answer for.
pub(super) fn pairs_of(role: Role, cluster: &ClusterId, ports: &[Port]) -> Vec<Ipv4Addr> {
    let vips: &[Vip] = match role {
        Role::Bootstrap | Role::Master => &Vip::ALL,
        Role::Worker => &[Vip::Ingress],
        Role::Helper => &[],
    };
    let of_vip = |vip: &Vip| {
        let name = NodeName::vip(*vip);
        ports
            .iter()
            .filter(move |port| port.held_for(cluster).as_ref() == Some(&name))
    };
    vips.iter()
        .flat_map(of_vip)
        .flat_map(|port| &port.ips)
        .copied()
        .collect()
}

/// The rules of a cluster's security group, without its id.
///
/// Neutron counts the addresses that a port may answer for as its own, so a rule for the group's members covers the VIPs.
///
/// What the machine config server tells is secret, and a floating IP leads to it: it answers the machine network and
/// `us`, the computer that puts its configs into the nodes' and asks the guests of a rehearsal.
pub(super) fn rules(group: &str, network: Option<Ipv4Network>, us: Option<Ipv4Addr>) -> Vec<Value> {
    let rule = |protocol: Option<&str>, ports: Option<(u16, u16)>| {
        let mut rule = json!({"direction": "ingress", "ethertype": "IPv4", "security_group_id": group});
        if let Some(protocol) = protocol {
            rule["protocol"] = json!(protocol);
        }
        if let Some((first, last)) = ports {
            rule["port_range_min"] = json!(first);
            rule["port_range_max"] = json!(last);
        }
        rule
    };
    // Between the nodes everything: etcd, kubelet, the network plugin, and VRRP.
    let mut among = rule(None, None);
    among["remote_group_id"] = json!(group);
    let mut rules = vec![among];
    let us = us.filter(|us| network.is_none_or(|network| !network.contains(*us)));
    let prefixes = [network, us.map(Ipv4Network::from)];
    for prefix in prefixes.into_iter().flatten() {
        let mut served = vec![rule(Some("tcp"), Some((22_623, 22_624)))];
        if Some(prefix) == network {
            served.push(rule(Some("112"), None));
        }
        for mut rule in served {
            rule["remote_ip_prefix"] = json!(prefix.to_string());
            rules.push(rule);
        }
    }
    rules.push(rule(Some("icmp"), None));
    // SSH, routers, API, node ports; on 8080 the guests of a rehearsal tell their report, and no node listens there.
    for (first, last) in [
        (22, 22),
        (80, 80),
        (443, 443),
        (6443, 6443),
        (8080, 8080),
        (30_000, 32_767),
    ] {
        rules.push(rule(Some("tcp"), Some((first, last))));
    }
    rules.push(rule(Some("udp"), Some((30_000, 32_767))));
    rules
}

/// Whether a rule that is there is the one that is wanted.
pub(super) fn same_rule(there: &Value, wanted: &Value) -> bool {
    let keys = [
        "direction",
        "ethertype",
        "protocol",
        "port_range_min",
        "port_range_max",
        "remote_group_id",
        "remote_ip_prefix",
    ];
    let is_vrrp = |rule: &Value| rule["protocol"] == "112" || rule["protocol"] == "vrrp";
    keys.iter()
        .all(|key| there[*key] == wanted[*key] || *key == "protocol" && is_vrrp(there) && is_vrrp(wanted))
}

// Servers.

const CLUSTER: &str = "ocpdeploy.cluster";
const NODE: &str = "ocpdeploy.node";
const ROLE: &str = "ocpdeploy.role";
const PASS: &str = "ocpdeploy.pass";
const FINGERPRINT: &str = "ocpdeploy.fingerprint";
const NIC: &str = "ocpdeploy.nic.";

/// What a server of ours says of itself.
fn metadata(spec: &MachineSpec) -> Value {
    let mut metadata = json!({
        CLUSTER: spec.cluster,
        NODE: spec.node,
        ROLE: spec.role,
        PASS: spec.pass,
        FINGERPRINT: spec.fingerprint(),
    });
    for (index, Nic { network, mac }) in spec.nics.iter().enumerate() {
        metadata[format!("{NIC}{index}")] = json!(format!("{mac} {network}"));
    }
    metadata
}

/// The cluster to which a server or volume belongs, by its own words.
pub(super) fn cluster_of(thing: &Value) -> Option<ClusterId> {
    serde_json::from_value(thing["metadata"][CLUSTER].clone()).ok()
}

/// A server as a machine; `None`: it is not ours, or on its way out.
pub(super) fn machine(server: &Value) -> Option<Machine> {
    let metadata = &server["metadata"];
    cluster_of(server)?;
    let read = |key: &str| metadata[key].clone();
    let power = power(server)?;
    let addresses = match power {
        Power::Building => BTreeMap::new(),
        _ => addresses(server),
    };
    let nic = |index: usize| {
        let (mac, network) = metadata[format!("{NIC}{index}")].as_str()?.split_once(' ')?;
        let mac = mac.parse().ok()?;
        Some(SeenNic {
            network: network.to_owned(),
            addresses: addresses.get(&mac).cloned().unwrap_or_default(),
            mac,
        })
    };
    Some(Machine {
        name: serde_json::from_value(server["name"].clone()).ok()?,
        node: serde_json::from_value(read(NODE)).ok()?,
        role: serde_json::from_value(read(ROLE)).ok()?,
        pass: serde_json::from_value(read(PASS)).ok()?,
        fingerprint: text(metadata, FINGERPRINT).to_owned(),
        power,
        nics: (0..).map_while(nic).collect(),
    })
}

/// A server without what it was told at its first boot: administrators are shown that, and it holds secrets.
pub(super) fn without_payload(mut server: Value) -> Value {
    if let Some(fields) = server.as_object_mut() {
        fields.retain(|key, _| !key.contains("user_data") && key != "adminPass");
    }
    server
}

pub(super) fn power(server: &Value) -> Option<Power> {
    Some(match text(server, "status") {
        "ACTIVE" | "REBOOT" | "HARD_REBOOT" | "PASSWORD" | "MIGRATING" => Power::Running,
        "SHUTOFF" if text(server, "OS-EXT-STS:task_state") == "powering-on" => Power::Building,
        "SHUTOFF" | "SHELVED" | "SHELVED_OFFLOADED" => Power::Off,
        "PAUSED" => Power::Paused("somebody paused it".to_owned()),
        "SUSPENDED" => Power::Paused("somebody suspended it".to_owned()),
        "RESCUE" => Power::Paused("it is in rescue mode".to_owned()),
        "ERROR" => {
            let fault = server["fault"]["message"].as_str().unwrap_or("Nova gives no reason");
            Power::Broken(fault.trim_end_matches('.').to_owned())
        }
        "DELETED" | "SOFT_DELETED" => return None,
        _ => Power::Building,
    })
}

fn addresses(server: &Value) -> BTreeMap<Mac, Vec<Ipv4Addr>> {
    let mut found = BTreeMap::<Mac, Vec<Ipv4Addr>>::new();
    let networks = server["addresses"].as_object().into_iter().flatten();
    for address in networks.filter_map(|(_, list)| list.as_array()).flatten() {
        let mac = text(address, "OS-EXT-IPS-MAC:mac_addr").parse();
        if let (Ok(mac), Ok(ip)) = (mac, text(address, "addr").parse())
            && address["OS-EXT-IPS:type"] != "floating"
        {
            found.entry(mac).or_default().push(ip);
        }
    }
    found
}

/// What a new server is made of, beside its spec.
pub(super) struct Parts<'a> {
    pub flavor: &'a Flavor,
    /// One for each NIC, in order.
    pub ports: &'a [String],
    /// Base64.
    pub user_data: &'a str,
    pub boot: OsBoot,
    /// The first disk where that is one, and the extra disks; none where there is no service that makes volumes, and
    /// extra disks are the flavor's own.
    pub volumes: &'a [String],
    pub zone: Option<&'a str>,
    pub group: Option<&'a str>,
}

/// The body of `POST /servers`.
pub(super) fn server(spec: &MachineSpec, parts: &Parts<'_>) -> Value {
    let ports: Vec<_> = parts.ports.iter().map(|id| json!({"port": id})).collect();
    let mut server = json!({
        "name": spec.name,
        "flavorRef": parts.flavor.id,
        "networks": ports,
        // The metadata service may be out of reach, and Ignition looks in both places.
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
            // The first device boots, the others do not.
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

/// Name of a volume of a machine; the disk it boots from, if that is one, is number 0.
pub(super) fn volume_of(machine: &MachineName, index: usize) -> String {
    format!("{machine}:disk{index}")
}

/// The machine of a volume's or port's name.
pub(super) fn machine_of(name: &str) -> Option<&str> {
    Some(name.rsplit_once(':')?.0)
}

/// The body of `POST /volumes`. Nova would make one without a name, and what has none cannot be found again.
pub(super) fn volume(spec: &MachineSpec, index: usize, gib: u64, image: Option<&str>, kind: Option<&str>) -> Value {
    let mut volume = json!({
        "name": volume_of(&spec.name, index),
        "description": mark(&spec.cluster),
        "size": gib,
        "metadata": {CLUSTER: spec.cluster},
    });
    if let Some(image) = image {
        volume["imageRef"] = json!(image);
    }
    if let Some(kind) = kind {
        volume["volume_type"] = json!(kind);
    }
    json!({"volume": volume})
}

/// Why a flavor cannot boot an image; `None`: it can. With its disk in a volume only the memory counts.
pub(super) fn too_small(flavor: &Flavor, disk_gib: u64, image: &Value) -> Option<String> {
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
        format!("image {image} needs {wanted} {what}, and a machine of flavor {flavor} has {has}")
    })
}

/// Name of the server group of a node; `None`: it needs none. Members of a group are few by quota.
pub(super) fn group_name(spec: &MachineSpec, members: usize) -> Option<String> {
    let mark = mark(&spec.cluster);
    match spec.role {
        _ if spec.pass == Pass::One => None,
        Role::Master => Some(format!("{mark} masters")),
        Role::Worker => {
            let number = spec
                .node
                .as_str()
                .rsplit('-')
                .next()
                .and_then(|n| n.parse::<usize>().ok());
            Some(format!(
                "{mark} workers {}",
                number.unwrap_or_default() / members.max(1)
            ))
        }
        Role::Bootstrap | Role::Helper => None,
    }
}

/// The cluster of a server group whose whole name is one that `group_name` gives.
pub(super) fn group_of(name: &str) -> Option<ClusterId> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (mark, last) = name.rsplit_once(' ')?;
    match mark.strip_suffix(" workers") {
        Some(mark) if is_number(last) => marked(mark),
        None if last == "masters" => marked(mark),
        _ => None,
    }
}

// Flavors.

/// A size that the cloud offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flavor {
    pub id: String,
    pub name: String,
    pub cpus: u64,
    pub memory_mib: u64,
    pub disk_gib: u64,
    pub ephemeral_gib: u64,
}

impl Flavor {
    pub fn read(flavor: &Value) -> Self {
        let number = |key: &str| flavor[key].as_u64().unwrap_or_default();
        Self {
            id: text(flavor, "id").to_owned(),
            name: text(flavor, "name").to_owned(),
            cpus: number("vcpus"),
            memory_mib: number("ram"),
            disk_gib: number("disk"),
            ephemeral_gib: number("OS-FLV-EXT-DATA:ephemeral"),
        }
    }
}

/// What a machine needs of a flavor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub cpus: u64,
    pub memory_mib: u64,
    /// 0 where the disk is a volume.
    pub disk_gib: u64,
    pub ephemeral_gib: u64,
}

impl Wanted {
    pub fn of(
        cpus: u32,
        memory_mib: u64,
        disk_gib: u64,
        extra_disks_gib: &[u64],
        boot: OsBoot,
        has_volumes: bool,
    ) -> Self {
        Self {
            cpus: cpus.into(),
            memory_mib,
            disk_gib: match boot {
                OsBoot::Image => disk_gib,
                OsBoot::Volume => 0,
            },
            ephemeral_gib: match has_volumes {
                true => 0,
                false => extra_disks_gib.iter().sum(),
            },
        }
    }

    /// What a flavor has too little of, in words.
    pub fn lacks(&self, flavor: &Flavor) -> Option<String> {
        let pairs = [
            (flavor.cpus, self.cpus, "CPUs"),
            (flavor.memory_mib, self.memory_mib, "MiB of memory"),
            (flavor.disk_gib, self.disk_gib, "GiB of disk"),
            (flavor.ephemeral_gib, self.ephemeral_gib, "GiB of ephemeral disks"),
        ];
        let short = pairs.iter().filter(|(has, wanted, _)| has < wanted);
        let words: Vec<_> = short
            .map(|(has, wanted, what)| format!("{has} of {wanted} {what}"))
            .collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// The smallest flavor that has enough; `Err`: why there is none.
    pub fn choose<'a>(&self, flavors: &'a [Flavor]) -> Result<&'a Flavor, String> {
        let size = |flavor: &&Flavor| (flavor.memory_mib, flavor.cpus, flavor.disk_gib, flavor.ephemeral_gib);
        let fitting = flavors.iter().filter(|flavor| self.lacks(flavor).is_none());
        fitting.min_by_key(size).ok_or_else(|| {
            let near = flavors.iter().max_by_key(size);
            let near =
                near.and_then(|flavor| Some(format!("; the largest, {}, has {}", flavor.name, self.lacks(flavor)?)));
            let Self { cpus, memory_mib, .. } = self;
            let mut words = format!("no flavor has {cpus} CPUs, {memory_mib} MiB");
            if self.disk_gib > 0 {
                let _ = write!(words, ", {} GiB of disk", self.disk_gib);
            }
            if self.ephemeral_gib > 0 {
                let _ = write!(words, ", {} GiB of ephemeral disks", self.ephemeral_gib);
            }
            words + &near.unwrap_or_default()
        })
    }

    /// The flavor of this name or id.
    pub fn named<'a>(&self, name: &str, flavors: &'a [Flavor]) -> Result<&'a Flavor, String> {
        let named = flavors.iter().find(|flavor| flavor.id == name || flavor.name == name);
        let flavor = named.ok_or_else(|| format!("there is no flavor {name}"))?;
        // CPUs and memory of a flavor that was named are the user's choice; a disk too small does not boot.
        let disks = Self {
            cpus: 0,
            memory_mib: 0,
            ..*self
        };
        match disks.lacks(flavor) {
            Some(short) => Err(format!("flavor {name} has {short}")),
            None => Ok(flavor),
        }
    }
}

#[cfg(test)]
mod tests;
