//! The content of requests and responses; pure.
//!
//! Elements are in the order of oVirt's SDK (oVirt/ovirt-engine-sdk); the engine accepts any order.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use crate::backend::BackendErrorKind;
use crate::backend::ownership::Ownership;
use crate::backend::{BackendError, Machine, MachineSpec, Payload, Power};
use crate::cluster::{ClusterId, Mac, MachineName};
use crate::digest::sha256;
use crate::xml::Element;

pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

/// The prefix of this program's comments, descriptions and names.
const MARK: &str = "ocpdeploy-";

/// Longest name of a tag, in characters.
const LONGEST_TAG: usize = 50;

/// How an engine passes Ignition to a machine (oVirt/ovirt-engine: RunVmCommand, IgnitionHandler, CloudInitHandler).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IgnitionMethod {
    /// 4.4 and later: the system type of CoreOS, and `use_ignition`. With another type the engine silently passes nothing.
    Ignition,
    /// 4.3.4 and later: a `custom_script` that is Ignition goes through cloud-init's channel unchanged.
    CustomScript,
}

/// The first word of each comment and description of a cluster's objects. A search appends `*`.
pub(super) fn mark(cluster: &ClusterId) -> String {
    format!("{MARK}{}", cluster.tag())
}

/// The cluster whose tag a description begins with.
pub(super) fn marked(description: &str) -> Option<ClusterId> {
    ClusterId::read(description.split(' ').next()?.strip_prefix(MARK)?)
}

/// A search for the objects of all clusters, and the same condition as a function.
pub(super) fn marked_any(field: &str) -> (String, impl Fn(&Element) -> bool) {
    (format!("{field}={MARK}*"), begins(field, MARK.to_owned()))
}

/// Whether a field begins with a text, as in a search that ends in `*`.
pub(super) fn begins(field: &str, text: String) -> impl Fn(&Element) -> bool {
    move |entity| entity.text_of(field).is_some_and(|value| value.starts_with(&text))
}

/// The machine of a disk of this cluster, from the disk's description.
pub(super) fn marked_machine<'a>(cluster: &ClusterId, description: &'a str) -> Option<&'a str> {
    let (first, machine) = description.split_once(' ')?;
    (first == mark(cluster)).then_some(machine)
}

/// The description of a disk of a machine.
pub(super) fn disk_mark(cluster: &ClusterId, machine: &MachineName) -> String {
    format!("{} {machine}", mark(cluster))
}

/// The tag of a cluster.
pub(super) fn tag_name(cluster: &ClusterId) -> String {
    let name = mark(cluster);
    match name.len() <= LONGEST_TAG {
        true => name,
        false => format!("{MARK}{}", &sha256(cluster.tag())[..LONGEST_TAG - MARK.len()]),
    }
}

/// The affinity group of a cluster's masters, or of its workers.
pub(super) fn affinity_name(cluster: &ClusterId, kind: &str) -> String {
    format!("{}-{kind}", mark(cluster))
}

/// A search by name. Names of this program have neither quotes nor wildcards; others find nothing.
pub(super) fn named(name: &str) -> String {
    format!("name=\"{}\"", name.replace(['"', '*', '\'', ';'], ""))
}

/// A machine's comment, with its ownership. The request that creates the machine writes it.
fn comment(ownership: &Ownership) -> String {
    // Strings and numbers always have a JSON form.
    let json = serde_json::to_string(ownership).unwrap_or_default();
    format!("{} {json}", mark(&ownership.cluster))
}

/// The ownership of a machine; `None` for one that this program did not create.
pub(super) fn ownership(vm: &Element) -> Option<Ownership> {
    let (first, json) = vm.text_of("comment")?.split_once(' ')?;
    let ownership: Ownership = serde_json::from_str(json).ok()?;
    (first == mark(&ownership.cluster)).then_some(ownership)
}

/// A reference by id.
pub(super) fn reference(name: &str, id: &str) -> Element {
    Element::new(name).attr("id", id)
}

/// `POST /vms` for a machine with its payload. `None`: the payload is not text, which no engine accepts.
///
/// What the request does not set is the template's (oVirt/ovirt-engine: `VmMapper.map(VmTemplate, VmStatic, Version)`). Delete
/// protection, statelessness and "start in pause mode" would break a node, and another quota could be used up or forbidden.
pub(super) fn vm(spec: &MachineSpec, way: IgnitionMethod, cluster: &str, template: &str) -> Option<Element> {
    let bytes = spec.memory_mib * MIB;
    let topology = Element::new("topology")
        .with("cores", spec.cpus)
        .with("sockets", 1)
        .with("threads", 1);
    let mut vm = Element::new("vm")
        .with("comment", comment(&Ownership::of(spec)))
        .child(Element::new("console").with("enabled", true))
        .child(Element::new("cpu").child(topology))
        .with("delete_protected", false);
    let initialization = initialization(script(&spec.payload)?);
    if spec.autostart {
        // After the loss of a host the engine restarts machines by priority; its own levels are 1, 50 and 100.
        let priority = if spec.role.has_etcd() { 100 } else { 50 };
        vm = vm.child(
            Element::new("high_availability")
                .with("enabled", true)
                .with("priority", priority),
        );
    }
    vm = vm.child(initialization);
    let boot = Element::new("boot").child(Element::new("devices").with("device", "hd"));
    Some(
        vm.with("memory", bytes)
            .child(Element::new("memory_policy").with("guaranteed", bytes))
            .with("name", &spec.name)
            .child(Element::new("os").child(boot).with("type", os_type(spec, way)))
            .with("start_paused", false)
            .with("stateless", false)
            .with("type", "server")
            .child(Element::new("cluster").with("name", cluster))
            // Without an id it is the user's first quota (oVirt/ovirt-engine: `VmBaseMapper`, `QuotaManager.getFirstQuotaForUser`).
            .child(Element::new("quota"))
            .child(reference("template", template)),
    )
}

/// The initial run with this script only: the engine merges it into the template's, whose static addresses, name and user
/// every machine would have (oVirt/ovirt-engine: `InitializationMapper.map(Initialization, VmInit)`, which takes an empty
/// element as an empty value; `CloudInitHandler` and `IgnitionHandler` skip empty values).
fn initialization(script: String) -> Element {
    Element::new("initialization")
        .with("authorized_ssh_keys", "")
        .with("custom_script", script)
        .with("dns_search", "")
        .with("dns_servers", "")
        .with("host_name", "")
        .child(Element::new("nic_configurations"))
        .with("user_name", "")
}

/// The system type for which the engine passes the payload.
pub(super) fn os_type(spec: &MachineSpec, way: IgnitionMethod) -> &'static str {
    match (&spec.payload, way) {
        (Payload::Ignition(_), IgnitionMethod::Ignition) => "rhcos_x64",
        (Payload::CloudInit { .. }, IgnitionMethod::Ignition) => "rhel_8x64",
        (_, IgnitionMethod::CustomScript) => "rhel_7x64",
    }
}

/// The payload as `custom_script`. The engine prepends its own cloud-init keys, so there is no header. The NIC of such a
/// machine uses DHCP by default.
fn script(payload: &Payload) -> Option<String> {
    match payload {
        Payload::Ignition(config) => String::from_utf8(config.clone()).ok(),
        Payload::CloudInit { user_data, .. } => Some(
            user_data
                .strip_prefix("#cloud-config\n")
                .unwrap_or(user_data)
                .to_owned(),
        ),
    }
}

/// `POST /vms/{id}/start`. The kind of payload is always given, because the engine's default can be none.
pub(super) fn start(spec: &MachineSpec, way: IgnitionMethod, host: Option<&str>) -> Element {
    let action = Element::new("action");
    let action = match (&spec.payload, way) {
        (Payload::Ignition(_), IgnitionMethod::Ignition) => action.with("use_ignition", true),
        _ => action.with("use_cloud_init", true),
    };
    match host {
        Some(host) => action.child(Element::new("vm").child(on_hosts([host]))),
        None => action,
    }
}

/// The hosts that may run a machine, by id.
pub(super) fn on_hosts<'a>(hosts: impl IntoIterator<Item = &'a str>) -> Element {
    let hosts = hosts.into_iter().map(|id| reference("host", id));
    Element::new("placement_policy").child(Element::new("hosts").children(hosts))
}

/// A NIC of a machine, to create or update.
pub(super) fn nic(index: usize, mac: Mac, profile: &str) -> Element {
    Element::new("nic")
        .with("interface", "virtio")
        .child(Element::new("mac").with("address", mac))
        .with("name", nic_name(index))
        .child(reference("vnic_profile", profile))
}

fn nic_name(index: usize) -> String {
    format!("nic{}", index + 1)
}

/// Whether a NIC has the values of `nic`.
pub(super) fn nic_is(nic: &Element, mac: Mac, profile: &str) -> bool {
    nic.text_of("mac/address").and_then(|text| text.parse().ok()) == Some(mac)
        && nic.value("vnic_profile", "id") == Some(profile)
}

/// An empty disk of a machine. The client chooses its id.
pub(super) fn empty_disk(id: &str, name: &str, description: &str, bytes: u64, storage_domain: &str) -> Element {
    disk(id, name, bytes, storage_domain).child(Element::new("description").text(description))
}

/// A disk for an uploaded image.
pub(super) fn image_disk(
    id: &str,
    name: &str,
    description: &str,
    bytes: u64,
    file: u64,
    storage_domain: &str,
) -> Element {
    disk(id, name, bytes, storage_domain)
        .with("content_type", "data")
        .with("description", description)
        .with("initial_size", file)
}

fn disk(id: &str, name: &str, bytes: u64, storage_domain: &str) -> Element {
    reference("disk", id)
        .with("format", "cow")
        .with("name", name)
        .with("provisioned_size", bytes)
        .with("sparse", true)
        .child(Element::new("storage_domains").child(reference("storage_domain", storage_domain)))
}

/// The attachment of a disk to a machine.
pub(super) fn attachment(disk: &str, bootable: bool) -> Element {
    Element::new("disk_attachment")
        .with("active", true)
        .with("bootable", bootable)
        .with("interface", "virtio_scsi")
        .child(reference("disk", disk))
}

/// An upload of an unchanged qcow2 file.
pub(super) fn upload(disk: &str, engine: EngineVersion) -> Element {
    let transfer = Element::new("image_transfer")
        .with("direction", "upload")
        .with("format", "cow")
        .with("inactivity_timeout", 120);
    // Older engines reject the element; they pause an idle upload, and it is resumed.
    let transfer = match engine >= TIMEOUT_POLICY {
        true => transfer.with("timeout_policy", "cancel"),
        false => transfer,
    };
    transfer.child(reference("disk", disk))
}

/// A machine of the engine, with the addresses that its agent reports.
pub(super) fn machine(vm: &Element, ownership: Ownership, reported: &[(Mac, Ipv4Addr)]) -> Machine {
    let mut addresses = BTreeMap::<Mac, Vec<IpAddr>>::new();
    for (mac, ip) in reported {
        addresses.entry(*mac).or_default().push(IpAddr::V4(*ip));
    }
    let power = power(vm.text_of("status").unwrap_or_default(), vm.text_of("status_detail"));
    ownership.machine(power, &addresses)
}

/// oVirt/ovirt-engine-api-model: VmStatus.
fn power(status: &str, detail: Option<&str>) -> Power {
    match status {
        "down" => Power::Off,
        "wait_for_launch" | "powering_up" | "up" | "reboot_in_progress" | "migrating" | "powering_down"
        | "saving_state" | "restoring_state" => Power::Running,
        "paused" => Power::Paused(detail.unwrap_or("the engine gives no reason").to_owned()),
        "suspended" => Power::Paused("suspended".to_owned()),
        _ => Power::Building,
    }
}

/// The addresses that a guest's agent reports, by MAC, without those that are not reachable from outside.
pub(super) fn addresses<'a>(devices: impl IntoIterator<Item = &'a Element>) -> Vec<(Mac, Ipv4Addr)> {
    let mut found = Vec::new();
    for device in devices {
        let Some(mac) = device.text_of("mac/address").and_then(|text| text.parse::<Mac>().ok()) else {
            continue;
        };
        for ip in device.all("ips/ip") {
            let address = ip.text_of("address").and_then(|text| text.parse::<Ipv4Addr>().ok());
            if let Some(address) = address.filter(|ip| !ip.is_loopback() && !ip.is_link_local() && !ip.is_unspecified())
                && !found.contains(&(mac, address))
            {
                found.push((mac, address));
            }
        }
    }
    found
}

/// A machine without its payload, which contains secrets.
pub(super) fn without_payload(vm: &Element) -> Element {
    let mut shown = Element::new(&vm.name);
    for (name, value) in vm.attributes() {
        shown = shown.attr(name, value);
    }
    let is_secret =
        |child: &&Element| ["initialization", "custom_properties", "payloads"].contains(&child.name.as_str());
    shown.children(vm.iter().filter(|child| !is_secret(child)).cloned())
}

/// The description of a cluster's tag: the shared objects that the cluster uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClusterTag {
    pub cluster: ClusterId,
    /// Id of the data center with the images; not in tags of older versions of this program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_center: Option<String>,
    /// Names of images.
    pub images: BTreeSet<String>,
}

impl ClusterTag {
    /// `None` for a tag of others: name and description must be of one cluster.
    pub fn read(tag: &Element) -> Option<Self> {
        let read: Self = serde_json::from_str(tag.text_of("description")?).ok()?;
        let name = tag_name(&read.cluster);
        (tag.text_of("name") == Some(name.as_str())).then_some(read)
    }

    pub fn element(&self) -> Element {
        let description = serde_json::to_string(self).unwrap_or_default();
        Element::new("tag")
            .with("description", description)
            .with("name", tag_name(&self.cluster))
    }
}

/// The first engine that knows `timeout_policy` (oVirt/ovirt-engine-api-model: `types/ImageTransfer.java`, `@since`).
const TIMEOUT_POLICY: EngineVersion = EngineVersion(4, 4, 5);

/// An engine's version, e.g. 4.5.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EngineVersion(pub u32, pub u32, pub u32);

impl EngineVersion {
    /// From the response to `GET /api`.
    pub fn read(api: &Element) -> Option<Self> {
        let version = api.find("product_info/version")?;
        let part = |name| version.text_of(name)?.parse().ok();
        Some(Self(part("major")?, part("minor")?, part("build").unwrap_or(0)))
    }

    /// How it passes Ignition. `None`: not at all.
    pub fn way(self) -> Option<IgnitionMethod> {
        match self {
            _ if self >= Self(4, 4, 0) => Some(IgnitionMethod::Ignition),
            _ if self >= Self(4, 3, 4) => Some(IgnitionMethod::CustomScript),
            _ => None,
        }
    }
}

impl std::fmt::Display for EngineVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

pub(super) fn id(element: &Element) -> Result<String, BackendError> {
    let missing = || {
        let words = format!("the engine returned a {} without an id", element.name);
        BackendError::new(BackendErrorKind::Rejected, words)
    };
    element.get("id").map(str::to_owned).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xml;

    /// Those of oVirt/ovirt-engine-api-model, by the name of their file.
    fn document(file: &str) -> Element {
        let documents = include_str!("../../../tests/fixtures/ovirt-examples.txt").split("\n# ");
        let mut named = documents.filter_map(|part| part.split_once('\n'));
        let (_, text) = named
            .find(|(path, _)| path.ends_with(&format!("/{file}.java")))
            .unwrap();
        xml::parse(text).unwrap()
    }

    #[test]
    fn upstreams_documents_are_read() {
        assert_eq!(
            EngineVersion::read(&document("SystemService")),
            Some(EngineVersion(4, 0, 4))
        );
        let cluster = document("ClusterService");
        let compatibility = ["major", "minor"].map(|part| cluster.text_of(&format!("version/{part}")));
        assert_eq!(compatibility, [Some("4"), Some("0")]);
        assert_eq!(cluster.text_of("threads_as_cores"), Some("false"));
        assert_eq!(cluster.value("data_center", "id"), Some("111"));
        assert_eq!(document("DataCenterService").value("mac_pool", "id"), Some("456"));
        let pool = document("MacPoolService");
        let ranges = pool.all("ranges/range");
        assert_eq!(ranges.iter().filter_map(|range| range.text_of("from")).count(), 2);
        let profile = document("VnicProfilesService");
        let ids = ["network", "network_filter"].map(|name| profile.value(name, "id"));
        assert_eq!(ids, [Some("456"), Some("789")]);
        assert_eq!(document("NetworkService").value("data_center", "id"), Some("456"));
        let names = |file: &str| -> Vec<String> {
            let names = document(file).into_children().into_iter();
            names
                .filter_map(|entity| entity.text_of("name").map(str::to_owned))
                .collect()
        };
        assert_eq!(names("PermitsService"), ["change_vm_cd", "connect_to_vm"]);
        assert_eq!(names("NetworkFiltersService").len(), 3);
        let permissions = document("AssignedPermissionsService");
        assert!(
            permissions
                .iter()
                .all(|permission| permission.value("role", "id") == Some("789"))
        );
        assert!(
            document("TagsService")
                .iter()
                .all(|tag| ClusterTag::read(tag).is_none())
        );
        let events = document("EventsService");
        let correlated = events.iter().filter_map(|event| event.text_of("correlation_id"));
        assert_eq!(correlated.collect::<Vec<_>>(), ["1e892ea9", "1fbd81f4"]);
        let attachment = document("DiskAttachmentService");
        assert_eq!(
            (attachment.text_of("bootable"), id(&attachment).unwrap()),
            (Some("true"), "456".to_owned())
        );
    }
}
