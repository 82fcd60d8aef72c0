//! NICs with their MACs, disks and how they are attached.

use super::faults::{Outcome, Refusal};
use super::http::Request;
use super::shapes;
use super::world::*;
use super::xml::Node;

/// A storage domain with less free space than this stores nothing more.
const CRITICAL: u64 = 5 * GIB;

impl World {
    pub fn add_nic(&mut self, vm: &str, request: &Request) -> Outcome<Node> {
        let body = super::read(request, "nic", shapes::NIC, "vm_nics/methods/add")?;
        let vm = self.vm(vm)?.clone();
        let Some(name) = body.get("name").filter(|name| !name.is_empty()) else {
            return Refusal::incomplete("Nic", "name", "add");
        };
        if vm.nics.iter().any(|nic| nic.name == name) {
            return Refusal::because("NETWORK_INTERFACE_NAME_ALREADY_IN_USE", "add Interface", &[]);
        }
        let nic = Nic {
            id: self.new_id(),
            name,
            interface: body.get("interface").unwrap_or("virtio".to_owned()),
            mac: match body.get("mac/address") {
                Some(mac) => self.checked_mac(&mac, &vm, None)?,
                None => self.free_mac(&vm.cluster, &[])?,
            },
            profile: self.profile_of(&body)?,
            linked: true,
            plugged: true,
        };
        if let Some(vm) = self.vm_mut(&vm.id) {
            vm.nics.push(nic.clone());
        }
        Ok(self.show_nic("vms", &vm.id, &nic))
    }

    pub fn update_nic(&mut self, vm: &str, id: &str, request: &Request) -> Outcome<Node> {
        let body = super::read(request, "nic", shapes::NIC, "vm_nic/methods/update")?;
        let vm = self.vm(vm)?.clone();
        let mut nic = by_id(&vm.nics, id).ok_or(Refusal::NotFound)?.clone();
        if let Some(mac) = body.get("mac/address").filter(|mac| *mac != nic.mac) {
            if vm.status != "down" && nic.plugged {
                return Refusal::because("CANNOT_PERFORM_HOT_UPDATE", "edit Interface", &[]);
            }
            nic.mac = self.checked_mac(&mac, &vm, Some(id))?;
        }
        if body.at("vnic_profile").is_some() {
            nic.profile = self.profile_of(&body)?;
        }
        nic.interface = body.get("interface").unwrap_or(nic.interface);
        nic.name = body.get("name").unwrap_or(nic.name);
        if let Some(known) = self
            .vm_mut(&vm.id)
            .and_then(|vm| vm.nics.iter_mut().find(|nic| nic.id == id))
        {
            known.clone_from(&nic);
        }
        Ok(self.show_nic("vms", &vm.id, &nic))
    }

    pub fn remove_nic(&mut self, vm: &str, id: &str) -> Outcome<()> {
        let vm = self.vm(vm)?.clone();
        let nic = by_id(&vm.nics, id).ok_or(Refusal::NotFound)?;
        if vm.status != "down" && vm.status != "image_locked" && nic.plugged {
            return Refusal::because(
                "ACTION_TYPE_FAILED_CANNOT_REMOVE_ACTIVE_DEVICE",
                "remove Interface",
                &[],
            );
        }
        if let Some(vm) = self.vm_mut(&vm.id) {
            vm.nics.retain(|nic| nic.id != id);
        }
        Ok(())
    }

    fn profile_of(&self, body: &Node) -> Outcome<Option<String>> {
        let Some(wanted) = body.at("vnic_profile") else {
            return Ok(None);
        };
        // Names repeat, so that the engine goes by id.
        let known = self
            .profiles
            .iter()
            .any(|profile| Some(&profile.id) == wanted.id.as_ref());
        match known {
            true => Ok(wanted.id.clone()),
            false => Refusal::because("ACTION_TYPE_FAILED_VNIC_PROFILE_NOT_EXISTS", "add Interface", &[]),
        }
    }

    fn mac_pool(&self, cluster: &str) -> Option<&MacPool> {
        let cluster = by_id(&self.clusters, cluster)?;
        by_id(&self.mac_pools, &cluster.mac_pool)
    }

    /// Who has a MAC, in the clusters that share a pool.
    fn holder_of(&self, mac: &str, cluster: &str) -> Option<(&Vm, &Nic)> {
        let pool = self.mac_pool(cluster).map(|pool| &pool.id);
        let shares = |vm: &&Vm| self.mac_pool(&vm.cluster).map(|pool| &pool.id) == pool;
        let nics = self
            .vms
            .iter()
            .filter(shares)
            .flat_map(|vm| vm.nics.iter().map(move |nic| (vm, nic)));
        nics.into_iter().find(|(_, nic)| nic.mac == mac)
    }

    fn checked_mac(&self, mac: &str, vm: &Vm, nic: Option<&str>) -> Outcome<String> {
        let mac = mac.to_lowercase();
        let bytes: Vec<_> = mac
            .split(':')
            .filter_map(|byte| u8::from_str_radix(byte, 16).ok())
            .collect();
        let is_unicast = bytes.first().is_some_and(|first| first % 2 == 0) && bytes.iter().any(|byte| *byte != 0);
        if bytes.len() != 6 || mac.len() != 17 || !is_unicast {
            let values = [("IfaceName", "nic1"), ("MacAddress", mac.as_str())];
            return Refusal::because(
                "ACTION_TYPE_FAILED_NETWORK_INTERFACE_MAC_INVALID",
                "add Interface",
                &values,
            );
        }
        if self.mac_pool(&vm.cluster).is_some_and(|pool| pool.allow_duplicates) {
            return Ok(mac);
        }
        match self
            .holder_of(&mac, &vm.cluster)
            .filter(|(_, known)| Some(known.id.as_str()) != nic)
        {
            Some((other, _)) => {
                let values = [("MacAddress", mac.as_str()), ("VmName", &other.name)];
                Refusal::because("NETWORK_MAC_ADDRESS_IN_USE", "add Interface", &values)
            }
            None => Ok(mac),
        }
    }

    /// A MAC of the pool that no machine and none of these NICs has.
    pub fn free_mac(&self, cluster: &str, besides: &[Nic]) -> Outcome<String> {
        let number = |bytes: [u8; 6]| bytes.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        let text = |mac: u64| {
            mac.to_be_bytes()[2..]
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect::<Vec<_>>()
                .join(":")
        };
        let Some(pool) = self.mac_pool(cluster) else {
            return Err(Refusal::NotFound);
        };
        let mut all = (number(pool.range.0)..=number(pool.range.1)).map(text);
        match all.find(|mac| self.holder_of(mac, cluster).is_none() && besides.iter().all(|nic| nic.mac != *mac)) {
            Some(mac) => Ok(mac),
            None => Refusal::because("MAC_POOL_NOT_ENOUGH_MAC_ADDRESSES", "add Interface", &[]),
        }
    }

    /// By id or name; data domains only.
    pub fn storage_domain(&self, wanted: &Node) -> Outcome<String> {
        let by = |known: &&StorageDomain| match (&wanted.id, wanted.get("name")) {
            (Some(id), _) => *id == known.id,
            (None, Some(name)) => name == known.name,
            (None, None) => false,
        };
        let domain = self.storage_domains.iter().find(by).ok_or(Refusal::NotFound)?;
        if domain.kind != "data" {
            return Refusal::because(
                "ACTION_TYPE_FAILED_STORAGE_DOMAIN_TYPE_ILLEGAL",
                "add Virtual Disk",
                &[],
            );
        }
        match domain.status.as_str() {
            "active" => Ok(domain.id.clone()),
            status => {
                let status = status[..1].to_uppercase() + &status[1..];
                let code = "ACTION_TYPE_FAILED_STORAGE_DOMAIN_STATUS_ILLEGAL2";
                Refusal::because(code, "add Virtual Disk", &[("status", &status)])
            }
        }
    }

    // Assumed: how much space a new disk or a copy takes at once.
    pub fn take_space(&mut self, domain: &str, bytes: u64, operation: &str) -> Outcome<()> {
        let Some(domain) = by_id_mut(&mut self.storage_domains, domain) else {
            return Err(Refusal::NotFound);
        };
        if domain.available < bytes + CRITICAL {
            let values = [("storageName", domain.name.as_str())];
            return Refusal::because(
                "ACTION_TYPE_FAILED_DISK_SPACE_LOW_ON_STORAGE_DOMAIN",
                operation,
                &values,
            );
        }
        domain.available -= bytes;
        domain.used += bytes;
        Ok(())
    }

    /// Rejects an operation while one of these is locked.
    pub fn disks_unlocked<'a>(&self, ids: impl Iterator<Item = &'a str>, operation: &str) -> Outcome<()> {
        let disks: Vec<_> = ids.filter_map(|id| self.disk(id)).collect();
        // Locks come before all other checks (oVirt/ovirt-engine: TransferDiskImageCommand, RemoveDiskCommand,
        // `getExclusiveLocks`); a transfer's lasts until its last phase (`updateEntityFinalPhase`).
        for disk in &disks {
            let code = match () {
                () if self.is_going(&disk.id) => "ACTION_TYPE_FAILED_DISK_IS_BEING_REMOVED",
                () if self.is_transferred(&disk.id) => "ACTION_TYPE_FAILED_DISK_IS_BEING_TRANSFERRED",
                () => continue,
            };
            return Refusal::because(code, operation, &[("DiskName", &disk.name)]);
        }
        let named = |status: &str| {
            let names = disks
                .iter()
                .filter(|disk| disk.status == status)
                .map(|disk| disk.name.as_str());
            names.collect::<Vec<_>>().join(", ")
        };
        let (locked, illegal) = (named("locked"), named("illegal"));
        if !locked.is_empty() {
            return Refusal::because(
                "ACTION_TYPE_FAILED_DISKS_LOCKED",
                operation,
                &[("diskAliases", &locked)],
            );
        }
        match illegal.as_str() {
            "" => Ok(()),
            _ if operation.starts_with("remove") => Ok(()),
            names => Refusal::because("ACTION_TYPE_FAILED_DISKS_ILLEGAL", operation, &[("diskAliases", names)]),
        }
    }

    pub fn find_disk(&self, id: &str) -> Outcome<&Disk> {
        super::check_guid(id)?;
        self.disk(id).ok_or(Refusal::NotFound)
    }

    pub fn disk_fields(&self, disk: &Disk) -> super::search::Fields {
        let mut fields = vec![
            ("alias", disk.name.clone()),
            ("name", disk.name.clone()),
            ("id", disk.id.clone()),
            ("description", disk.description.clone()),
            ("status", disk.status.clone()),
        ];
        let domain = by_id(&self.storage_domains, &disk.storage_domain);
        fields.extend(domain.map(|domain| ("storage.name", domain.name.clone())));
        let has = |vm: &&Vm| vm.disks.iter().any(|attachment| attachment.disk == disk.id);
        fields.extend(self.vms.iter().filter(has).map(|vm| ("vm_names", vm.name.clone())));
        fields
    }

    pub fn add_disk(&mut self, request: &Request) -> Outcome<Node> {
        let body = super::read(request, "disk", shapes::DISK, "disks/methods/add")?;
        let disk = self.make_disk(&body)?;
        Ok(self.show_disk(&disk))
    }

    fn make_disk(&mut self, body: &Node) -> Outcome<Disk> {
        let Some(provisioned_size) = body.number("provisioned_size") else {
            return Refusal::incomplete("Disk", "provisionedSize", "add");
        };
        let Some(format) = body.get("format") else {
            return Refusal::incomplete("Disk", "format", "add");
        };
        let Some(domain) = body.at("storage_domains/storage_domain").or(body.at("storage_domain")) else {
            return Refusal::incomplete("Disk", "storageDomains.id|name", "add");
        };
        let storage_domain = self.storage_domain(domain)?;
        let id = match &body.id {
            Some(id) => {
                super::check_guid(id)?;
                if let Some(other) = self.disk(id) {
                    let values = [("diskID", id.as_str()), ("diskAlias", &other.name)];
                    return Refusal::because("ACTION_TYPE_FAILED_DISK_ALREADY_EXISTS", "add Virtual Disk", &values);
                }
                id.clone()
            }
            None => self.new_id(),
        };
        let name = body.get("name").or(body.get("alias")).unwrap_or_default();
        let sparse = body.get("sparse").map_or(format == "cow", |text| text == "true");
        if format == "cow" && !sparse {
            let values = [
                ("volumeFormat", "COW"),
                ("volumeType", "Preallocated"),
                ("backup", "None"),
            ];
            return Refusal::because(
                "ACTION_TYPE_FAILED_DISK_CONFIGURATION_NOT_SUPPORTED",
                "add Virtual Disk",
                &values,
            );
        }
        let initial_size = body.number("initial_size").unwrap_or(0);
        let bytes = if sparse {
            initial_size.max(GIB)
        } else {
            provisioned_size
        };
        self.take_space(&storage_domain, bytes, "add Virtual Disk")?;
        let disk = Disk {
            id: id.clone(),
            name: name.clone(),
            description: body.get("description").unwrap_or_default(),
            format,
            content_type: body.get("content_type").unwrap_or("data".to_owned()),
            // oVirt/vdsm: lib/vdsm/storage/volume.py, `Volume.create`; oVirt/ovirt-engine:
            // BaseImagesCommand.endSuccessfully takes its size over.
            provisioned_size: provisioned_size.next_multiple_of(4096),
            initial_size,
            sparse,
            storage_domain,
            status: "locked".to_owned(),
            template: None,
            data: [].into(),
        };
        self.disks.push(disk.clone());
        let time = self.times.disk;
        self.after(time, Effect::DiskOk(id));
        Ok(disk)
    }

    pub fn update_disk(&mut self, id: &str, request: &Request) -> Outcome<Node> {
        let body = super::read(request, "disk", shapes::DISK, "disk/methods/update")?;
        let disk = self.find_disk(id)?.clone();
        self.disks_unlocked([id].into_iter(), "edit Virtual Disk")?;
        if self.version < [4, 4, 0] {
            // "The only field that can be updated is `qcow_version`" (oVirt/ovirt-engine-api-model: DiskService.Update).
            // Assumed: an engine before 4.4 ignores another field, and does not reject it.
            return Ok(self.show_disk(&disk));
        }
        // Since 4.4 it is UpdateDisk, as of an attachment, and grows disks as well.
        let wanted = body.number("provisioned_size").unwrap_or(disk.provisioned_size);
        if wanted < disk.provisioned_size {
            return Refusal::because(
                "ACTION_TYPE_FAILED_REQUESTED_DISK_SIZE_IS_TOO_SMALL",
                "edit Virtual Disk",
                &[],
            );
        }
        if wanted > disk.provisioned_size {
            let time = self.times.disk;
            self.after(time, Effect::DiskOk(id.to_owned()));
        }
        let Some(known) = self.disk_mut(id) else {
            return Err(Refusal::NotFound);
        };
        if wanted > known.provisioned_size {
            (known.provisioned_size, known.status) = (wanted, "locked".to_owned());
        }
        known.name = body.get("name").unwrap_or(disk.name);
        known.description = body.get("description").unwrap_or(disk.description);
        let known = known.clone();
        Ok(self.show_disk(&known))
    }

    pub fn remove_disk(&mut self, id: &str) -> Outcome<()> {
        let disk = self.find_disk(id)?.clone();
        if disk.template.is_some() {
            let code = "ACTION_TYPE_FAILED_CANT_DELETE_TEMPLATE_DISK_WITHOUT_SPECIFYING_DOMAIN";
            return Refusal::because(code, "remove Virtual Disk", &[]);
        }
        self.disks_unlocked([id].into_iter(), "remove Virtual Disk")?;
        let holds = |vm: &&Vm| {
            vm.disks
                .iter()
                .any(|attachment| attachment.disk == id && attachment.active)
        };
        if self.vms.iter().filter(holds).any(|vm| vm.status != "down") {
            return Refusal::because("ACTION_TYPE_FAILED_VM_IS_NOT_DOWN", "remove Virtual Disk", &[]);
        }
        for vm in &mut self.vms {
            vm.disks.retain(|attachment| attachment.disk != id);
        }
        self.lose_disk(id);
        Ok(())
    }

    /// Locks the disk, and later deletes it and frees its space.
    pub fn lose_disk(&mut self, id: &str) {
        let Some(disk) = self.disk_mut(id) else { return };
        disk.status = "locked".to_owned();
        let (domain, bytes) = (disk.storage_domain.clone(), disk.initial_size.max(GIB));
        if let Some(domain) = by_id_mut(&mut self.storage_domains, &domain) {
            domain.available += bytes;
            domain.used = domain.used.saturating_sub(bytes);
        }
        let time = self.times.disk_removal;
        self.after(time, Effect::DiskGone(id.to_owned()));
    }

    pub fn attach_disk(&mut self, vm: &str, request: &Request) -> Outcome<(Node, bool)> {
        let body = super::read(
            request,
            "disk_attachment",
            shapes::ATTACHMENT,
            "disk_attachments/methods/add",
        )?;
        let vm = self.vm(vm)?.clone();
        let (Some(interface), Some(_), Some(wanted)) = (body.get("interface"), body.get("bootable"), body.at("disk"))
        else {
            return Refusal::incomplete("DiskAttachment", "bootable, interface, disk", "add");
        };
        if vm.status == "image_locked" {
            return Refusal::because("ACTION_TYPE_FAILED_VM_IS_LOCKED", "attach Virtual Disk", &[]);
        }
        let known = wanted
            .id
            .as_deref()
            .and_then(|id| self.disk(id))
            .map(|disk| disk.id.clone());
        let is_new = known.is_none();
        if is_new && wanted.at("provisioned_size").is_none() {
            return Err(Refusal::NotFound);
        }
        let bootable = body.is_true("bootable");
        if bootable && vm.disks.iter().any(|attachment| attachment.bootable) {
            let other = vm.disks.iter().find(|attachment| attachment.bootable);
            let other = other.and_then(|attachment| self.disk(&attachment.disk));
            let values = [
                ("DiskName", other.map_or("", |disk| disk.name.as_str())),
                ("VmName", &vm.name),
            ];
            return Refusal::because("ACTION_TYPE_FAILED_DISK_BOOT_IN_USE", "attach Virtual Disk", &values);
        }
        let disk = match known {
            Some(id) => {
                self.disks_unlocked([id.as_str()].into_iter(), "attach Virtual Disk")?;
                if self
                    .vms
                    .iter()
                    .any(|vm| vm.disks.iter().any(|attachment| attachment.disk == id))
                {
                    let code = "ACTION_TYPE_FAILED_NOT_SHAREABLE_DISK_ALREADY_ATTACHED";
                    return Refusal::because(code, "attach Virtual Disk", &[]);
                }
                id
            }
            None => self.make_disk(wanted)?.id,
        };
        let attachment = Attachment {
            disk,
            interface,
            bootable,
            active: body.get("active").is_none_or(|text| text == "true"),
        };
        let shown = self.show_attachment(&format!("vms/{}", vm.id), &attachment, false);
        if let Some(vm) = self.vm_mut(&vm.id) {
            vm.disks.push(attachment);
        }
        Ok((shown, is_new))
    }

    /// Of a machine's attachments, or a template's.
    pub fn attachment(&self, owner: &str, disks: &[Attachment], id: &str) -> Outcome<Node> {
        let attachment = disks
            .iter()
            .find(|attachment| attachment.disk == id)
            .ok_or(Refusal::NotFound)?;
        Ok(self.show_attachment(owner, attachment, false))
    }

    pub fn update_attachment(&mut self, vm: &str, id: &str, request: &Request) -> Outcome<Node> {
        let body = super::read(
            request,
            "disk_attachment",
            shapes::ATTACHMENT,
            "disk_attachment/methods/update",
        )?;
        let vm = self.vm(vm)?.clone();
        let mut attachment = vm
            .disks
            .iter()
            .find(|attachment| attachment.disk == id)
            .ok_or(Refusal::NotFound)?
            .clone();
        if vm.status == "image_locked" {
            return Refusal::because("ACTION_TYPE_FAILED_VM_IS_LOCKED", "edit Virtual Disk", &[]);
        }
        self.disks_unlocked([id].into_iter(), "edit Virtual Disk")?;
        attachment.interface = body.get("interface").unwrap_or(attachment.interface);
        attachment.bootable = body.get("bootable").map_or(attachment.bootable, |text| text == "true");
        attachment.active = body.get("active").map_or(attachment.active, |text| text == "true");
        let disk = self.find_disk(id)?.clone();
        let (is, wanted) = (disk.provisioned_size, body.number("disk/provisioned_size"));
        if wanted.is_some_and(|wanted| wanted < is) {
            return Refusal::because(
                "ACTION_TYPE_FAILED_REQUESTED_DISK_SIZE_IS_TOO_SMALL",
                "edit Virtual Disk",
                &[],
            );
        }
        let grows = wanted.filter(|wanted| *wanted > is);
        let time = self.times.disk;
        if let Some(known) = self.disk_mut(id) {
            known.name = body.get("disk/name").unwrap_or(disk.name.clone());
            known.description = body.get("disk/description").unwrap_or(disk.description);
            if let Some(size) = grows {
                known.provisioned_size = size;
                known.status = "locked".to_owned();
            }
        }
        if grows.is_some() {
            self.after(time, Effect::DiskOk(id.to_owned()));
        }
        let sandbox = self
            .vm_mut(&vm.id)
            .and_then(|vm| vm.disks.iter_mut().find(|known| known.disk == id));
        if let Some(known) = sandbox {
            known.clone_from(&attachment);
        }
        Ok(self.show_attachment(&format!("vms/{}", vm.id), &attachment, false))
    }
}
