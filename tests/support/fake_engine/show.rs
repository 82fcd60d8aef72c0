//! Entities as the engine shows them.

use std::collections::BTreeSet;

use super::faults::{Outcome, Refusal};
use super::world::*;
use super::xml::{Node, node};

pub const API: &str = "/ovirt-engine/api";
/// Below a NIC.
pub const NIC_PARAMETERS: &str = "networkfilterparameters";

/// Links to follow in an answer, e.g. `disk_attachments.disk`.
#[derive(Clone, Debug, Default)]
pub struct Follow(BTreeSet<String>);

impl Follow {
    /// A link that leads to what the user is not shown is an exception (oVirt/ovirt-engine: `LinkFollower.fetch`).
    pub fn read(text: Option<&String>, known: &[&str], is_administrator: bool) -> Outcome<Self> {
        let mut links = BTreeSet::new();
        for path in text
            .map_or("", String::as_str)
            .split(',')
            .map(str::trim)
            .filter(|path| !path.is_empty())
        {
            if !known.contains(&path) {
                return Err(Refusal::Unknown);
            }
            if !is_administrator && ["network_filter", "tags"].contains(&path) {
                return Err(Refusal::Exception);
            }
            // Links on the path are followed, too.
            for (at, _) in path.match_indices('.') {
                links.insert(path[..at].to_owned());
            }
            links.insert(path.to_owned());
        }
        Ok(Self(links))
    }

    pub fn has(&self, path: &str) -> bool {
        self.0.contains(path)
    }
}

/// Ids only (oVirt/ovirt-engine: BackendAffinityLabelHelper.makeHostLink and makeVmLink).
pub fn show_members(name: &str, one: &str, ids: &[String]) -> Node {
    node(name).all(ids.iter().map(|id| reference(one, name, id)))
}

pub fn entity(name: &str, collection: &str, id: &str) -> Node {
    node(name).href(format!("{API}/{collection}/{id}")).id(id)
}

/// `<cluster href="…" id="…"/>` within another.
pub fn reference(name: &str, collection: &str, id: &str) -> Node {
    entity(name, collection, id)
}

/// A time stamp: 2026-01-05T08:00:00.000Z plus the clock.
pub fn time(at: Instant) -> String {
    let begin = jiff::Timestamp::from_second(1_767_600_000).unwrap();
    let now = begin + std::time::Duration::from_millis(at);
    format!("{now:.3}")
}

/// oVirt/ovirt-engine: VmBaseMapper.
fn hardware(shown: Node, shape: &Hardware) -> Node {
    let topology = node("topology")
        .text("cores", shape.cores)
        .text("sockets", shape.sockets)
        .text("threads", shape.threads);
    let devices = node("devices").all(shape.boot.iter().map(|device| {
        let mut leaf = node("device");
        leaf.text.clone_from(device);
        leaf
    }));
    shown
        .add(node("cpu").text("architecture", "x86_64").add(topology))
        .text("memory", shape.memory)
        .add(
            node("memory_policy")
                .text("guaranteed", shape.guaranteed)
                .text("max", shape.memory * 4),
        )
        .add(node("os").add(node("boot").add(devices)).text("type", &shape.os_type))
        .text("type", &shape.kind)
        .text("delete_protected", shape.is_delete_protected)
        .text("start_paused", shape.starts_paused)
        .text("stateless", shape.is_stateless)
        .all(shape.quota.iter().map(|quota| node("quota").id(quota)))
}

impl World {
    /// oVirt/ovirt-engine: VmMapper, and BackendVmsResource.removeRestrictedInfo for users.
    pub fn show_vm(&mut self, vm: &Vm, follow: &Follow) -> Node {
        let id = &vm.id;
        let mut shown = hardware(entity("vm", "vms", id).text("name", &vm.name), &vm.shape)
            .text("comment", &vm.comment)
            .text("description", &vm.description)
            .text("creation_time", time(vm.created))
            .add(
                node("high_availability")
                    .text("enabled", vm.is_highly_available)
                    .text("priority", vm.priority),
            )
            .all(self.is_administrator.then(|| {
                node("placement_policy")
                    .text("affinity", &vm.affinity)
                    .add(node("hosts").all(vm.pinned.iter().map(|host| reference("host", "hosts", host))))
            }))
            .text("origin", "ovirt")
            .text("status", &vm.status)
            .text("next_run_configuration_exists", false)
            .add(reference("cluster", "clusters", &vm.cluster))
            .add(reference(
                "template",
                "templates",
                if vm.is_clone { BLANK } else { &vm.template },
            ))
            .add(reference("original_template", "templates", &vm.template));
        if let Some(host) = vm.host.as_ref().filter(|_| self.is_administrator) {
            let host = self
                .hosts
                .iter()
                .find(|known| known.name == *host)
                .map(|host| host.id.clone());
            shown = shown.all(host.map(|id| reference("host", "hosts", &id)));
        }
        if let Some(boot) = vm.boot {
            shown = shown.text("start_time", time(self.boots[boot].at));
        }
        if let Some(init) = &vm.init {
            shown = shown.add(init.show());
        }
        let attachments = follow.has("disk_attachments.disk");
        for (name, path) in [
            ("nics", "nics"),
            ("disk_attachments", "diskattachments"),
            ("reported_devices", "reporteddevices"),
            ("tags", "tags"),
            ("affinity_labels", "affinitylabels"),
        ] {
            shown = match name {
                _ if !follow.has(name) => shown.link(path, format!("{API}/vms/{id}/{path}")),
                "nics" => shown.add(self.show_nics(vm)),
                "disk_attachments" => shown.add(self.show_attachments(&format!("vms/{id}"), &vm.disks, attachments)),
                "reported_devices" => shown.add(self.show_reported(vm)),
                "tags" => shown.add(self.show_tags_of(vm)),
                _ => shown.add(self.show_labels_of(vm)),
            };
        }
        shown
    }

    /// oVirt/ovirt-engine: BackendVmNicsResource.
    pub fn show_nics(&self, vm: &Vm) -> Node {
        node("nics").all(vm.nics.iter().map(|nic| self.show_nic("vms", &vm.id, nic)))
    }

    /// oVirt/ovirt-engine: NicMapper.
    pub fn show_nic(&self, collection: &str, owner: &str, nic: &Nic) -> Node {
        let owner_name = collection.trim_end_matches('s');
        let mut shown = node("nic")
            .href(format!("{API}/{collection}/{owner}/nics/{}", nic.id))
            .id(&nic.id)
            .text("name", &nic.name)
            .text("interface", &nic.interface)
            .text("linked", nic.linked)
            .text("plugged", nic.plugged);
        if !nic.mac.is_empty() {
            shown = shown.add(node("mac").text("address", &nic.mac));
        }
        if let Some(profile) = &nic.profile {
            shown = shown.add(reference("vnic_profile", "vnicprofiles", profile));
        }
        let shown = shown.add(reference(owner_name, collection, owner));
        match collection {
            "vms" => shown.link(
                NIC_PARAMETERS,
                format!("{API}/vms/{owner}/nics/{}/{NIC_PARAMETERS}", nic.id),
            ),
            _ => shown,
        }
    }

    /// oVirt/ovirt-engine: BackendDiskAttachmentsResource.
    pub fn show_attachments(&self, owner: &str, disks: &[Attachment], with_disk: bool) -> Node {
        let show = |attachment| self.show_attachment(owner, attachment, with_disk);
        node("disk_attachments").all(disks.iter().map(show))
    }

    /// oVirt/ovirt-engine: DiskAttachmentMapper.
    pub fn show_attachment(&self, owner: &str, attachment: &Attachment, with_disk: bool) -> Node {
        let disk = match self.disk(&attachment.disk).filter(|_| with_disk) {
            Some(disk) => self.show_disk(disk),
            None => reference("disk", "disks", &attachment.disk),
        };
        let (collection, id) = owner.split_once('/').unwrap_or((owner, ""));
        node("disk_attachment")
            .href(format!("{API}/{owner}/diskattachments/{}", attachment.disk))
            .id(&attachment.disk)
            .text("active", attachment.active)
            .text("bootable", attachment.bootable)
            .text("interface", &attachment.interface)
            .text("pass_discard", false)
            .add(disk)
            .add(reference(collection.trim_end_matches('s'), collection, id))
    }

    // Assumed: which devices and addresses an agent reports, among others a bridge of containers.
    /// The agent's devices: ours, and a bridge of containers that has nothing to do with the network (oVirt/ovirt-engine:
    /// ReportedDeviceMapper).
    pub fn show_reported(&mut self, vm: &Vm) -> Node {
        let mut all = node("reported_devices");
        let reported = self.reported(vm);
        let bridge = reported
            .first()
            .map(|_| ("02:42:ac:11:00:01".to_owned(), "172.17.0.1".parse().unwrap()));
        let names = (0..).map(|number| format!("eth{number}"));
        let devices = reported.into_iter().zip(names).collect::<Vec<_>>();
        for ((mac, address), name) in bridge
            .map(|bridge| (bridge, "docker0".to_owned()))
            .into_iter()
            .chain(devices)
        {
            let virtual_ip = self.guest(&mac).virtual_ip;
            let ip = |address: String, version| node("ip").text("address", address).text("version", version);
            let id = format!("{:0>8}-0000-4000-8000-{}", name.len(), mac.replace(':', ""));
            all = all.add(
                node("reported_device")
                    .href(format!("{API}/vms/{}/reporteddevices/{id}", vm.id))
                    .id(&id)
                    .text("name", name)
                    .text("description", "guest reported data")
                    .text("type", "network")
                    .add(
                        node("ips")
                            .add(ip("fe80::5054:ff:fe00:1".to_owned(), "v6"))
                            .add(ip(address.to_string(), "v4"))
                            .all(virtual_ip.map(|address| ip(address.to_string(), "v4"))),
                    )
                    .add(node("mac").text("address", mac))
                    .add(reference("vm", "vms", &vm.id)),
            );
        }
        all
    }

    /// oVirt/ovirt-engine: AbstractBackendAssignedTagsResource.
    pub fn show_tags_of(&self, vm: &Vm) -> Node {
        let of = self.tags.iter().filter(|tag| vm.tags.contains(&tag.id));
        node("tags").all(of.map(|tag| {
            let shown = self.show_tag(tag).add(reference("vm", "vms", &vm.id));
            shown.href(format!("{API}/vms/{}/tags/{}", vm.id, tag.id))
        }))
    }

    /// oVirt/ovirt-engine: BackendAssignedAffinityLabelsResource.
    fn show_labels_of(&self, vm: &Vm) -> Node {
        let of = self.affinity_labels.iter().filter(|label| label.vms.contains(&vm.id));
        node("affinity_labels").all(of.map(|label| self.show_label(label, &Follow::default())))
    }

    /// oVirt/ovirt-engine: TagMapper.
    pub fn show_tag(&self, tag: &Named) -> Node {
        entity("tag", "tags", &tag.id)
            .text("name", &tag.name)
            .text("description", &tag.description)
    }

    /// oVirt/ovirt-engine: DiskMapper.
    pub fn show_disk(&self, disk: &Disk) -> Node {
        let is_bootable = self
            .vms
            .iter()
            .flat_map(|vm| &vm.disks)
            .any(|attachment| attachment.disk == disk.id && attachment.bootable);
        let image = format!("{}1", &disk.id[..disk.id.len() - 1]);
        entity("disk", "disks", &disk.id)
            .text("name", &disk.name)
            .text("alias", &disk.name)
            .text("description", &disk.description)
            .text("actual_size", disk.initial_size.max(196_608))
            .text("total_size", disk.initial_size.max(196_608))
            .text("provisioned_size", disk.provisioned_size)
            .text("content_type", &disk.content_type)
            .text("format", &disk.format)
            .text("image_id", image)
            .text("propagate_errors", false)
            .text("shareable", self.shareable.contains(&disk.id))
            .text("sparse", disk.sparse)
            .text("status", &disk.status)
            .text("storage_type", "image")
            .text("wipe_after_delete", false)
            .text("bootable", is_bootable)
            .add(node("storage_domains").add(reference("storage_domain", "storagedomains", &disk.storage_domain)))
    }

    /// oVirt/ovirt-engine: TemplateMapper.
    pub fn show_template(&self, template: &Template, follow: &Follow) -> Node {
        let id = &template.id;
        let mut shown = hardware(
            entity("template", "templates", id).text("name", &template.name),
            &template.shape,
        )
        .text("comment", &template.comment)
        .text("description", &template.description)
        .text("creation_time", time(template.created))
        .text("status", &template.status)
        .add(
            node("version")
                .text("version_name", "base version")
                .text("version_number", template.version)
                .add(reference("base_template", "templates", id)),
        );
        shown = shown.all(template.init.as_ref().map(Init::show));
        if !template.cluster.is_empty() {
            shown = shown.add(reference("cluster", "clusters", &template.cluster));
        }
        let owner = format!("templates/{id}");
        shown = match follow.has("nics") {
            true => shown.add(node("nics").all(template.nics.iter().map(|nic| self.show_nic("templates", id, nic)))),
            false => shown.link("nics", format!("{API}/{owner}/nics")),
        };
        match follow.has("disk_attachments") {
            true => {
                let with_disk = follow.has("disk_attachments.disk");
                shown.add(self.show_attachments(&owner, &template.disks, with_disk))
            }
            false => shown.link("diskattachments", format!("{API}/{owner}/diskattachments")),
        }
    }

    /// oVirt/ovirt-engine: AffinityGroupMapper.
    pub fn show_group(&self, group: &AffinityGroup) -> Node {
        let labels = |name: &str, ids: &[String]| {
            node(name).all(ids.iter().map(|id| reference("affinity_label", "affinitylabels", id)))
        };
        let path = format!("{API}/clusters/{}/affinitygroups/{}", group.cluster, group.id);
        let rule = node("vms_rule")
            .text("enabled", group.enabled)
            .text("enforcing", group.enforcing)
            .text("positive", group.positive);
        node("affinity_group")
            .href(path.clone())
            .id(&group.id)
            .text("name", &group.name)
            .text("description", &group.description)
            .text("broken", self.is_broken(group))
            .text("enforcing", group.enforcing)
            .text("positive", group.positive)
            .text("priority", "0.0")
            .add(
                node("hosts_rule")
                    .text("enabled", group.hosts_rule.enabled)
                    .text("enforcing", group.hosts_rule.enforcing)
                    .text("positive", group.hosts_rule.positive),
            )
            .add(labels("vm_labels", &group.vm_labels))
            .add(labels("host_labels", &group.host_labels))
            .add(rule)
            .add(node("vms").all(group.vms.iter().map(|vm| reference("vm", "vms", vm))))
            .add(node("hosts"))
            .add(reference("cluster", "clusters", &group.cluster))
            .link("vms", format!("{path}/vms"))
    }

    /// Two machines that run on one host although they should not.
    fn is_broken(&self, group: &AffinityGroup) -> bool {
        let running = self
            .vms
            .iter()
            .filter(|vm| group.vms.contains(&vm.id))
            .filter_map(|vm| vm.host.as_ref());
        let hosts: Vec<_> = running.collect();
        let distinct: BTreeSet<_> = hosts.iter().collect();
        group.enabled && !group.positive && distinct.len() < hosts.len()
    }

    /// With links to its members only (oVirt/ovirt-engine: AffinityLabelMapper, BackendAffinityLabelsResource.list).
    pub fn show_label(&self, label: &AffinityLabel, follow: &Follow) -> Node {
        let shown = entity("affinity_label", "affinitylabels", &label.id)
            .text("name", &label.name)
            .text("read_only", false)
            .text("has_implicit_affinity_group", label.is_implicit);
        let members = [("hosts", "host", &label.hosts), ("vms", "vm", &label.vms)];
        members
            .into_iter()
            .fold(shown, |shown, (name, one, ids)| match follow.has(name) {
                true => shown.add(show_members(name, one, ids)),
                false => shown.link(name, format!("{API}/affinitylabels/{}/{name}", label.id)),
            })
    }

    /// oVirt/ovirt-engine: ImageTransferMapper.
    pub fn show_transfer(&self, transfer: &Transfer) -> Node {
        let shown = entity("image_transfer", "imagetransfers", &transfer.id)
            .text("active", false)
            .text("direction", &transfer.direction)
            .text("format", &transfer.format)
            .text("inactivity_timeout", transfer.inactivity_timeout / 1000)
            .text("phase", &transfer.phase)
            .text("shallow", false)
            .text("timeout_policy", &transfer.timeout_policy)
            .text("transferred", self.received(transfer))
            // Shown so, whatever it was asked with.
            .add(node("image").id(&transfer.disk))
            .all(self.hosts.first().map(|host| reference("host", "hosts", &host.id)));
        if !["transferring", "paused_user"].contains(&transfer.phase.as_str()) {
            return shown;
        }
        let ticket = &transfer.ticket;
        let direct = self
            .imageio
            .as_ref()
            .map_or(self.origin.clone(), |daemon| daemon.origin.clone());
        let direct = self.direct_origin.clone().unwrap_or(direct);
        shown
            .text("transfer_url", format!("{direct}/images/{ticket}"))
            .text("proxy_url", format!("{}/proxied/images/{ticket}", self.origin))
    }
}
