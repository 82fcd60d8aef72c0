//! Images: transfers of their data, and templates created from machines.

use super::faults::{Outcome, Refusal};
use super::http::{Answer, Request};
use super::shapes;
use super::show::Follow;
use super::world::*;
use super::xml::Node;

pub const TEMPLATE_FOLLOWED: &[&str] = &["nics", "disk_attachments", "disk_attachments.disk"];

impl World {
    pub fn template(&self, id: &str) -> Outcome<&Template> {
        super::check_guid(id)?;
        by_id(&self.templates, id).ok_or(Refusal::NotFound)
    }

    pub fn template_fields(&self, template: &Template) -> super::search::Fields {
        let cluster = by_id(&self.clusters, &template.cluster);
        let data_center = self.data_center_of(&template.cluster);
        let data_center = by_id(&self.data_centers, data_center);
        let vms = self.vms.iter().filter(|vm| vm.template == template.id);
        let mut fields = vec![
            ("name", template.name.clone()),
            ("description", template.description.clone()),
            ("comment", template.comment.clone()),
            ("id", template.id.clone()),
            ("status", template.status.clone()),
            (
                "cluster",
                cluster.map(|cluster| cluster.name.clone()).unwrap_or_default(),
            ),
        ];
        fields.extend(data_center.map(|center| ("datacenter", center.name.clone())));
        fields.extend(vms.map(|vm| ("vm.name", vm.name.clone())));
        fields
    }

    pub fn add_template(&mut self, request: &Request) -> Outcome<Node> {
        let body = super::read(request, "template", shapes::TEMPLATE, "templates/methods/add")?;
        let Some(name) = body.get("name") else {
            return Refusal::incomplete("Template", "name", "add");
        };
        let named = |vm: &Node| {
            vm.id
                .clone()
                .or_else(|| Some(self.vm_named(&vm.get("name")?)?.id.clone()))
        };
        let Some(vm) = body.at("vm").and_then(named) else {
            return Refusal::incomplete("Template", "vm.id|name", "add");
        };
        let vm = self.vm(&vm)?.clone();
        // oVirt/ovirt-engine: AddVmTemplateCommand.validate.
        if vm.status != "down" {
            return Refusal::because("VMT_CANNOT_CREATE_TEMPLATE_FROM_DOWN_VM", "add Template", &[]);
        }
        let is_here = |template: &&Template| {
            self.data_center_of(&template.cluster) == self.data_center_of(&vm.cluster) || template.id == BLANK
        };
        if self
            .templates
            .iter()
            .filter(is_here)
            .any(|template| template.name == name)
        {
            return Refusal::because("ACTION_TYPE_FAILED_NAME_ALREADY_USED", "add Template", &[]);
        }
        self.disks_unlocked(
            vm.disks.iter().map(|attachment| attachment.disk.as_str()),
            "add Template",
        )?;
        let id = self.new_id();
        let mut disks = Vec::new();
        for attachment in &vm.disks {
            let source = self.find_disk(&attachment.disk)?.clone();
            self.take_space(&source.storage_domain, source.initial_size.max(GIB), "add Template")?;
            let disk = Disk {
                id: self.new_id(),
                template: Some(id.clone()),
                status: "locked".to_owned(),
                ..source
            };
            disks.push(Attachment {
                disk: disk.id.clone(),
                ..attachment.clone()
            });
            let time = self.times.template;
            self.after(time, Effect::DiskOk(disk.id.clone()));
            self.disks.push(disk);
        }
        let template = Template {
            id: id.clone(),
            name: name.clone(),
            version: 1,
            description: body.get("description").unwrap_or_default(),
            comment: body.get("comment").unwrap_or_default(),
            cluster: vm.cluster.clone(),
            status: "locked".to_owned(),
            shape: vm.shape.clone(),
            nics: vm
                .nics
                .iter()
                .map(|nic| Nic {
                    mac: String::new(),
                    ..nic.clone()
                })
                .collect(),
            disks,
            init: vm.init.clone(),
            agent: self.uploaded_agent,
            created: self.now,
        };
        self.templates.push(template.clone());
        if self.copies_fail {
            // oVirt/ovirt-engine: USER_ADD_VM_TEMPLATE_FINISHED_FAILURE of `AuditLogMessages.properties`.
            let words = format!("Failed to complete creation of Template {name} from VM {}.", vm.name);
            self.log_error(request, words);
        }
        if let Some(vm) = self.vm_mut(&vm.id) {
            vm.status = "image_locked".to_owned();
            vm.is_busy = true;
        }
        let time = self.times.template;
        self.after(
            time,
            Effect::TemplateOk {
                template: id,
                vm: vm.id,
            },
        );
        Ok(self.show_template(&template, &Follow::default()))
    }

    pub fn remove_template(&mut self, id: &str) -> Outcome<()> {
        let template = self.template(id)?.clone();
        if template.id == BLANK {
            return Refusal::because("VMT_CANNOT_REMOVE_BLANK_TEMPLATE", "remove Template", &[]);
        }
        if template.status == "locked" {
            return Refusal::because("VM_TEMPLATE_IMAGE_IS_LOCKED", "remove Template", &[]);
        }
        // oVirt/ovirt-engine: AddVmCommand.getSharedLocks, for as long as disks are being made.
        if let Some(vm) = self
            .vms
            .iter()
            .find(|vm| vm.template == id && vm.status == "image_locked")
        {
            let values = [("VmName", vm.name.as_str())];
            return Refusal::because(
                "ACTION_TYPE_FAILED_TEMPLATE_IS_USED_FOR_CREATE_VM",
                "remove Template",
                &values,
            );
        }
        let thin = |vm: &&Vm| vm.template == id && !vm.is_clone;
        let users: Vec<_> = self.vms.iter().filter(thin).map(|vm| vm.name.as_str()).collect();
        if !users.is_empty() {
            let values = [("vmsList", &*users.join(", "))];
            return Refusal::because("VMT_CANNOT_REMOVE_DETECTED_DERIVED_VM", "remove Template", &values);
        }
        self.templates.retain(|known| known.id != id);
        for attachment in &template.disks {
            self.lose_disk(&attachment.disk);
        }
        Ok(())
    }

    pub fn transfer(&self, id: &str) -> Outcome<&Transfer> {
        super::check_guid(id)?;
        self.transfers
            .iter()
            .find(|transfer| transfer.id == id)
            .ok_or(Refusal::NotFound)
    }

    pub fn add_transfer(&mut self, request: &Request) -> Outcome<Node> {
        let body = super::read(
            request,
            "image_transfer",
            shapes::TRANSFER,
            "image_transfers/methods/add",
        )?;
        let Some(disk) = body.at("disk").or(body.at("image")).and_then(|disk| disk.id.clone()) else {
            return Refusal::incomplete("ImageTransfer", "image|disk|snapshot", "add");
        };
        let known = self.find_disk(&disk)?.clone();
        self.disks_unlocked([disk.as_str()].into_iter(), "transfer Virtual Disk")?;
        if self
            .vms
            .iter()
            .any(|vm| vm.status != "down" && vm.disks.iter().any(|attachment| attachment.disk == disk))
        {
            return Refusal::because("ACTION_TYPE_FAILED_VM_IS_NOT_DOWN", "transfer Virtual Disk", &[]);
        }
        let (id, ticket) = (self.new_id(), self.new_id());
        let transfer = Transfer {
            id: id.clone(),
            disk: disk.clone(),
            phase: "initializing".to_owned(),
            direction: body.get("direction").unwrap_or("upload".to_owned()),
            format: body.get("format").unwrap_or(known.format),
            ticket,
            inactivity_timeout: body.number("inactivity_timeout").unwrap_or(60) * 1000,
            timeout_policy: body.get("timeout_policy").unwrap_or("legacy".to_owned()),
            last_active: self.now,
            data: Vec::new(),
        };
        self.transfers.push(transfer.clone());
        if let Some(disk) = self.disk_mut(&disk) {
            disk.status = "locked".to_owned();
        }
        let time = self.times.transfer;
        self.after(time, Effect::Transferring(id));
        Ok(self.show_transfer(&transfer))
    }

    pub(super) fn transfer_began(&mut self, id: &str) {
        let now = self.now;
        let Some(transfer) = self.transfers.iter_mut().find(|transfer| transfer.id == id) else {
            return;
        };
        if !["initializing", "resuming"].contains(&transfer.phase.as_str()) {
            return;
        }
        transfer.phase = "transferring".to_owned();
        transfer.last_active = now;
        let transfer = transfer.clone();
        let size = self.disk(&transfer.disk).map_or(0, |disk| disk.provisioned_size);
        let opened = self.imageio.as_ref().map(|daemon| daemon.open(&transfer.ticket, size));
        if let Some(Err(_)) = opened {
            // As the engine does when no host's daemon answers.
            self.set_phase(id, "paused_system");
        }
    }

    fn set_phase(&mut self, id: &str, phase: &str) {
        if let Some(transfer) = self.transfers.iter_mut().find(|transfer| transfer.id == id) {
            transfer.phase = phase.to_owned();
        }
    }

    pub fn act_on_transfer(&mut self, id: &str, act: &str, request: &Request) -> Outcome<()> {
        super::read(request, "action", shapes::ACTION, "image_transfer/methods/finalize")?;
        super::check_guid(id)?;
        let transfer = self.transfers.iter().find(|transfer| transfer.id == id);
        // oVirt/ovirt-engine: TransferImageStatusCommand succeeds without a transfer, and whatever ImageTransferUpdater
        // does.
        let Some(transfer) = transfer.cloned() else {
            return Ok(());
        };
        let (time, phase) = (self.times.transfer, transfer.phase.as_str());
        match (act, phase) {
            ("finalize", "transferring" | "paused_user" | "paused_system") => {
                self.close_ticket(&transfer.ticket);
                self.set_phase(id, "finalizing_success");
                self.after(time, Effect::TransferFinished(id.to_owned()));
                Ok(())
            }
            ("cancel", phase) if !is_over(phase) && !phase.starts_with("finalizing") => {
                self.close_ticket(&transfer.ticket);
                self.set_phase(id, "cancelled_user");
                self.after(time, Effect::TransferCleanup(id.to_owned()));
                Ok(())
            }
            ("resume", "paused_user" | "paused_system") => {
                self.set_phase(id, "resuming");
                self.after(time, Effect::Transferring(id.to_owned()));
                Ok(())
            }
            ("resume", _) => Refusal::because(
                "ACTION_TYPE_FAILED_CANNOT_RESUME_IMAGE_TRANSFER",
                "transfer Virtual Disk",
                &[],
            ),
            _ => Ok(()),
        }
    }

    fn close_ticket(&self, ticket: &str) {
        if let Some(daemon) = &self.imageio {
            daemon.close(ticket);
        }
    }

    /// The number of bytes received so far.
    pub fn received(&self, transfer: &Transfer) -> u64 {
        match &self.imageio {
            Some(daemon) => daemon.received(&transfer.ticket),
            None => transfer.data.len() as u64,
        }
    }

    pub(super) fn transfer_finished(&mut self, id: &str) {
        let Some(transfer) = self.transfers.iter().find(|transfer| transfer.id == id).cloned() else {
            return;
        };
        let data = match &self.imageio {
            Some(daemon) => daemon.read(&transfer.ticket),
            None => transfer.data.clone(),
        };
        let Some(disk) = self.disk_mut(&transfer.disk) else {
            return;
        };
        // The engine verifies the volume: a qcow2 of another size, or data that are no qcow2, are illegal.
        let is_good = match transfer.format.as_str() {
            "cow" => qcow2_size(&data).is_some_and(|size| size <= disk.provisioned_size),
            _ => data.len() as u64 <= disk.provisioned_size,
        };
        disk.initial_size = data.len() as u64;
        disk.data = data.into();
        if !is_good {
            self.set_phase(id, "finalizing_failure");
            return self.transfer_cleanup(id);
        }
        disk.status = "ok".to_owned();
        self.set_phase(id, "finished_success");
        let shown = self.times.transfer_shown;
        self.after(shown, Effect::TransferGone(id.to_owned()));
    }

    /// One phase after the other, each for some time; for one of them the disk is illegal, and only then it is removed
    /// (oVirt/ovirt-engine: TransferDiskImageCommand, `handleCancelledUser`, `cleanup` and `endWithFailure`).
    pub(super) fn transfer_cleanup(&mut self, id: &str) {
        let Some(transfer) = self.transfers.iter().find(|transfer| transfer.id == id).cloned() else {
            return;
        };
        let is_illegal = self.disk(&transfer.disk).is_none_or(|disk| disk.status == "illegal");
        let next = match transfer.phase.as_str() {
            "cancelled_user" => "finalizing_cleanup",
            "cancelled_system" => "finalizing_failure",
            "finalizing_cleanup" => "finished_cleanup",
            "finalizing_failure" if !is_illegal => "finalizing_failure",
            _ => "finished_failure",
        };
        if transfer.phase.starts_with("finalizing")
            && let Some(disk) = self.disk_mut(&transfer.disk)
        {
            disk.status = "illegal".to_owned();
        }
        self.set_phase(id, next);
        if next == "finished_failure" {
            self.lose_disk(&transfer.disk);
            let shown = self.times.transfer_shown;
            return self.after(shown, Effect::TransferGone(id.to_owned()));
        }
        let time = self.times.transfer;
        self.after(time, Effect::TransferCleanup(id.to_owned()));
    }

    /// Whether a transfer has the disk's lock.
    pub fn is_transferred(&self, disk: &str) -> bool {
        let ends = ["finished_success", "finished_failure"];
        let mut of = self.transfers.iter().filter(|transfer| transfer.disk == disk);
        of.any(|transfer| !ends.contains(&transfer.phase.as_str()))
    }

    /// Pauses or cancels a transfer without an active client.
    pub(super) fn idle_transfers(&mut self) {
        let now = self.now;
        let active: Vec<_> = self
            .transfers
            .iter()
            .filter(|transfer| transfer.phase == "transferring")
            .cloned()
            .collect();
        for transfer in active {
            let moved = self
                .imageio
                .as_ref()
                .is_some_and(|daemon| daemon.moved(&transfer.ticket));
            if moved {
                self.transfers
                    .iter_mut()
                    .filter(|known| known.id == transfer.id)
                    .for_each(|known| known.last_active = now);
            } else if now - transfer.last_active > transfer.inactivity_timeout {
                self.close_ticket(&transfer.ticket);
                match transfer.timeout_policy.as_str() {
                    "cancel" => {
                        self.set_phase(&transfer.id, "cancelled_system");
                        self.after(0, Effect::TransferCleanup(transfer.id));
                    }
                    _ => self.set_phase(&transfer.id, "paused_system"),
                }
            }
        }
    }

    /// Plays the image daemon (oVirt/ovirt-imageio: auth.py, errors.py, handlers/images.py).
    pub fn image_data(&mut self, ticket: &str, request: &Request) -> Answer {
        let now = self.now;
        let open = |transfer: &&mut Transfer| transfer.ticket == ticket && transfer.phase == "transferring";
        let Some(transfer) = self.transfers.iter_mut().find(open) else {
            return Answer::new(
                403,
                "text/plain",
                format!("You are not allowed to access this resource: No such ticket {ticket}\n"),
            );
        };
        transfer.last_active = now;
        let size = by_id(&self.disks, &transfer.disk).map_or(0, |disk| disk.provisioned_size);
        match request.method.as_str() {
            "OPTIONS" => Answer::new(
                200,
                "application/json",
                r#"{"features": ["checksum", "extents", "flush", "zero"], "max_readers": 1, "max_writers": 1, "unix_socket": null}"#,
            ),
            "PUT" => {
                if !request.headers.contains_key("content-length") {
                    return Answer::new(400, "text/plain", "Content-Length header is required\n");
                }
                let Some(at) = start_of_range(request) else {
                    return Answer::new(416, "text/plain", "Requested range not satisfiable\n");
                };
                let end = at + request.body.len();
                if end as u64 > size {
                    return Answer::new(416, "text/plain", "Requested range not satisfiable\n");
                }
                let len = transfer.data.len().max(end);
                transfer.data.resize(len, 0);
                transfer.data[at..end].copy_from_slice(&request.body);
                Answer::new(200, "", "")
            }
            _ => Answer::new(405, "text/plain", "Invalid method\n"),
        }
    }
}

/// The first byte's place in `bytes 0-99/*`; the range is as long as the body.
fn start_of_range(request: &Request) -> Option<usize> {
    let Some(range) = request.headers.get("content-range") else {
        return Some(0);
    };
    let (first, last) = range.strip_prefix("bytes ")?.split_once('/')?.0.split_once('-')?;
    let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
    (last + 1 == first + request.body.len()).then_some(first)
}

fn is_over(phase: &str) -> bool {
    phase.starts_with("finished") || phase.starts_with("cancelled")
}

/// The size that a guest sees (qemu: docs/interop/qcow2.txt).
fn qcow2_size(data: &[u8]) -> Option<u64> {
    let header = data.get(..32).filter(|header| header.starts_with(b"QFI\xfb"))?;
    header[24..32].try_into().ok().map(u64::from_be_bytes)
}
