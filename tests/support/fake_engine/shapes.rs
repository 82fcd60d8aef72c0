//! The elements that a request may have: all others are rejected, as in the engine.

use super::xml::Node;

/// The type of a leaf of a request.
#[derive(Clone, Copy)]
pub enum Leaf {
    Text,
    Flag,
    Number,
    One(&'static [&'static str]),
    /// An element that refers to another by id.
    Ref,
    /// As `Ref`; without an id it refers to none.
    RefOrNone,
}

use Leaf::{Flag, Number, One, Ref, RefOrNone, Text};

pub type Shape = &'static [(&'static str, Leaf)];

pub const VM: Shape = &[
    ("cluster", Ref),
    ("cluster/name", Text),
    ("comment", Text),
    ("console/enabled", Flag),
    ("cpu/topology/cores", Number),
    ("cpu/topology/sockets", Number),
    ("cpu/topology/threads", Number),
    ("delete_protected", Flag),
    ("description", Text),
    ("disk_attachments/disk_attachment/disk", Ref),
    ("disk_attachments/disk_attachment/disk/format", One(&["cow", "raw"])),
    ("disk_attachments/disk_attachment/disk/sparse", Flag),
    (
        "disk_attachments/disk_attachment/disk/storage_domains/storage_domain",
        Ref,
    ),
    ("high_availability/enabled", Flag),
    ("high_availability/priority", Number),
    ("initialization/authorized_ssh_keys", Text),
    ("initialization/custom_script", Text),
    ("initialization/dns_search", Text),
    ("initialization/dns_servers", Text),
    ("initialization/host_name", Text),
    ("initialization/nic_configurations", Text),
    ("initialization/root_password", Text),
    ("initialization/user_name", Text),
    ("memory", Number),
    ("memory_policy/guaranteed", Number),
    ("name", Text),
    ("os/boot/devices/device", One(&["cdrom", "hd", "network"])),
    ("os/type", Text),
    (
        "placement_policy/affinity",
        One(&["migratable", "pinned", "user_migratable"]),
    ),
    ("placement_policy/hosts/host", Ref),
    ("placement_policy/hosts/host/name", Text),
    ("quota", RefOrNone),
    ("start_paused", Flag),
    ("stateless", Flag),
    ("template", Ref),
    ("template/name", Text),
    ("type", One(&["desktop", "server", "high_performance"])),
];

pub const NIC: Shape = &[
    ("interface", One(&["e1000", "e1000e", "rtl8139", "virtio"])),
    ("mac/address", Text),
    ("name", Text),
    ("vnic_profile", Ref),
];

pub const DISK: Shape = &[
    ("alias", Text),
    ("content_type", One(&["data", "iso"])),
    ("description", Text),
    ("format", One(&["cow", "raw"])),
    ("initial_size", Number),
    ("name", Text),
    ("provisioned_size", Number),
    ("sparse", Flag),
    ("storage_domains/storage_domain", Ref),
    ("storage_domains/storage_domain/name", Text),
];

pub const ATTACHMENT: Shape = &[
    ("active", Flag),
    ("bootable", Flag),
    ("disk", Ref),
    ("disk/content_type", One(&["data", "iso"])),
    ("disk/description", Text),
    ("disk/format", One(&["cow", "raw"])),
    ("disk/initial_size", Number),
    ("disk/name", Text),
    ("disk/provisioned_size", Number),
    ("disk/sparse", Flag),
    ("disk/storage_domains/storage_domain", Ref),
    ("disk/storage_domains/storage_domain/name", Text),
    ("interface", One(&["ide", "sata", "virtio", "virtio_scsi"])),
];

pub const TRANSFER: Shape = &[
    ("direction", One(&["download", "upload"])),
    ("disk", Ref),
    ("format", One(&["cow", "raw"])),
    ("image", Ref),
    ("inactivity_timeout", Number),
    ("timeout_policy", One(&["cancel", "legacy", "pause"])),
];

pub const SNAPSHOT: Shape = &[("description", Text), ("persist_memorystate", Flag)];

pub const TEMPLATE: Shape = &[
    ("cluster", Ref),
    ("cluster/name", Text),
    ("comment", Text),
    ("description", Text),
    ("name", Text),
    ("vm", Ref),
    ("vm/name", Text),
];

pub const TAG: Shape = &[("description", Text), ("name", Text)];

pub const AFFINITY_GROUP: Shape = &[
    ("description", Text),
    ("enforcing", Flag),
    ("name", Text),
    ("positive", Flag),
    ("vms/vm", Ref),
    ("vms_rule/enabled", Flag),
    ("vms_rule/enforcing", Flag),
    ("vms_rule/positive", Flag),
];

/// `<vm id="…"/>` as a member of a group or label.
pub const MEMBER: Shape = &[];

pub const ACTION: Shape = &[
    ("async", Flag),
    ("force", Flag),
    ("restore_memory", Flag),
    ("use_cloud_init", Flag),
    ("use_ignition", Flag),
    ("use_initialization", Flag),
    ("reason", Text),
    ("vm/placement_policy/hosts/host", Ref),
    ("vm/initialization/authorized_ssh_keys", Text),
    ("vm/initialization/custom_script", Text),
    ("vm/initialization/host_name", Text),
    ("vm/initialization/root_password", Text),
    ("vm/initialization/user_name", Text),
];

/// All shapes, by their element.
pub const ALL: &[(&str, Shape)] = &[
    ("vm", VM),
    ("nic", NIC),
    ("disk", DISK),
    ("disk_attachment", ATTACHMENT),
    ("image_transfer", TRANSFER),
    ("snapshot", SNAPSHOT),
    ("template", TEMPLATE),
    ("tag", TAG),
    ("affinity_group", AFFINITY_GROUP),
    ("action", ACTION),
];

/// Elements that not every engine supports, with the first version (oVirt/ovirt-engine-api-model: `@since`).
const SINCE: &[(&str, [u32; 3])] = &[
    ("has_implicit_affinity_group", [4, 3, 6]),
    ("vm_labels", [4, 3, 6]),
    ("host_labels", [4, 3, 6]),
    ("use_ignition", [4, 4, 0]),
    ("shallow", [4, 4, 3]),
    ("timeout_policy", [4, 4, 5]),
    ("broken", [4, 4, 8]),
];

/// An element of a request that is newer than the engine.
pub fn newer(request: &Node, version: [u32; 3]) -> Option<&'static str> {
    let known = SINCE
        .iter()
        .find(|(name, since)| *name == request.name && *since > version);
    let below = || request.nodes.iter().find_map(|child| newer(child, version));
    known.map(|(name, _)| *name).or_else(below)
}

/// An answer as an engine of this version gives it.
pub fn of_version(mut answer: Node, version: [u32; 3]) -> Node {
    let knows = |child: &Node| {
        SINCE
            .iter()
            .all(|(name, since)| *name != child.name || *since <= version)
    };
    answer.nodes.retain(knows);
    answer.nodes = answer
        .nodes
        .into_iter()
        .map(|child| of_version(child, version))
        .collect();
    answer
}

/// The first element of a request that the engine does not know.
pub fn unknown(request: &Node, shape: Shape) -> Option<String> {
    request
        .nodes
        .iter()
        .find_map(|child| unknown_in(child, &child.name, shape))
}

fn unknown_in(element: &Node, path: &str, shape: Shape) -> Option<String> {
    let leaf = shape.iter().find(|(known, _)| *known == path).map(|(_, leaf)| *leaf);
    let leads_on = shape
        .iter()
        .any(|(known, _)| known.starts_with(path) && known[path.len()..].starts_with('/'));
    let fits = match leaf {
        Some(Text) => true,
        Some(Flag) => ["true", "false"].contains(&element.text.as_str()),
        Some(Number) => element.text.parse::<u64>().is_ok(),
        Some(One(known)) => known.contains(&element.text.as_str()),
        Some(Ref) => element.id.is_some() || leads_on,
        Some(RefOrNone) => true,
        None => leads_on && element.text.is_empty(),
    };
    if !fits || (element.id.is_some() && !matches!(leaf, Some(Ref | RefOrNone))) {
        return Some(path.to_owned());
    }
    let below = |child: &Node| unknown_in(child, &format!("{path}/{}", child.name), shape);
    element.nodes.iter().find_map(below)
}
