//! Machines: made from a template, changed, started, stopped and removed.

use super::faults::{Outcome, Refusal};
use super::guests::Boot;
use super::http::Request;
use super::shapes;
use super::show::Follow;
use super::world::*;
use super::xml::Node;

pub const FOLLOWED: &[&str] = &[
    "nics",
    "disk_attachments",
    "disk_attachments.disk",
    "reported_devices",
    "tags",
    "affinity_labels",
];
pub const SEARCHED: &[&str] = &[
    "name",
    "comment",
    "description",
    "tag",
    "cluster",
    "datacenter",
    "status",
    "id",
    "template",
    "os",
    "host",
];

/// `MaxVmNameLength` of a fresh engine.
const LONGEST_NAME: usize = 64;

impl World {
    pub fn vm(&self, id: &str) -> Outcome<&Vm> {
        super::check_guid(id)?;
        by_id(&self.vms, id).ok_or(Refusal::NotFound)
    }

    pub fn vm_fields(&self, vm: &Vm) -> super::search::Fields {
        let named = |id: &str| by_id(&self.clusters, id).map(|cluster| cluster.name.clone());
        let data_center = self.data_center_of(&vm.cluster);
        let data_center = by_id(&self.data_centers, data_center);
        let template = by_id(&self.templates, &vm.template);
        let mut fields = vec![
            ("name", vm.name.clone()),
            ("comment", vm.comment.clone()),
            ("description", vm.description.clone()),
            ("status", vm.status.clone()),
            ("id", vm.id.clone()),
            ("os", vm.shape.os_type.clone()),
            ("cluster", named(&vm.cluster).unwrap_or_default()),
            (
                "datacenter",
                data_center.map(|center| center.name.clone()).unwrap_or_default(),
            ),
            (
                "template",
                template.map(|template| template.name.clone()).unwrap_or_default(),
            ),
            ("host", vm.host.clone().unwrap_or_default()),
        ];
        let tags = self.tags.iter().filter(|tag| vm.tags.contains(&tag.id));
        fields.extend(tags.map(|tag| ("tag", tag.name.clone())));
        fields
    }

    pub fn add_vm(&mut self, request: &Request) -> Outcome<(Node, bool)> {
        let body = super::read(request, "vm", shapes::VM, "vms/methods/add")?;
        let Some(name) = body.get("name").filter(|name| !name.is_empty()) else {
            return Refusal::incomplete("Vm", "name", "add");
        };
        let (Some(cluster), Some(template)) = (body.at("cluster"), body.at("template")) else {
            let lacks = if body.at("cluster").is_none() {
                "cluster.id|name"
            } else {
                "template.id|name"
            };
            return Refusal::incomplete("Vm", lacks, "add");
        };
        let by = |node: &Node, id: &str, name: &str| match (&node.id, node.get("name")) {
            (Some(wanted), _) => wanted == id,
            (None, Some(wanted)) => wanted == name,
            (None, None) => false,
        };
        let cluster = self
            .clusters
            .iter()
            .find(|known| by(cluster, &known.id, &known.name))
            .ok_or(Refusal::NotFound)?;
        let (cluster, data_center) = (cluster.id.clone(), cluster.data_center.clone());
        let template = self.templates.iter().find(|known| by(template, &known.id, &known.name));
        let template = template.ok_or(Refusal::NotFound)?.clone();
        check_name(&name, "add VM")?;
        let is_same_place = |vm: &&Vm| self.data_center_of(&vm.cluster) == data_center;
        if self.vms.iter().filter(is_same_place).any(|vm| vm.name == name) {
            return Refusal::because("ACTION_TYPE_FAILED_NAME_ALREADY_USED", "add VM", &[]);
        }
        // oVirt/ovirt-engine: AddVmCommand.isTemplateInValidDc; Blank is in all data centers.
        if template.id != BLANK && self.data_center_of(&template.cluster) != data_center {
            return Refusal::because("ACTION_TYPE_FAILED_TEMPLATE_NOT_EXISTS_IN_CURRENT_DC", "add VM", &[]);
        }
        if template.status != "ok" {
            return Refusal::because("VM_TEMPLATE_IMAGE_IS_LOCKED", "add VM", &[]);
        }
        // oVirt/ovirt-engine: AddVmCommand.getPermissionCheckSubjects; a template's parents are data center and system.
        let may = |on: &str| self.may("create_vm", &[on, &data_center]);
        if !(self.is_administrator || may(&cluster) && may(&template.id)) {
            return Refusal::because("USER_NOT_AUTHORIZED_TO_PERFORM_ACTION", "", &[]);
        }
        let is_clone = request.query.get("clone").is_some_and(|value| value == "true");
        let targets = self.clone_targets(&body, &template, is_clone)?;
        let id = self.new_id();
        let mut vm = Vm {
            is_clone,
            status: "image_locked".to_owned(),
            is_busy: true,
            ..Vm::new(id.clone(), &name, cluster, &template, self.now)
        };
        self.change_vm(&mut vm, &body)?;
        for nic in &template.nics {
            let mac = self.free_mac(&vm.cluster, &vm.nics)?;
            let nic = Nic {
                id: self.new_id(),
                mac,
                ..nic.clone()
            };
            vm.nics.push(nic);
        }
        for attachment in &template.disks {
            let source = self.disk(&attachment.disk).ok_or(Refusal::NotFound)?.clone();
            let target = targets
                .iter()
                .find(|(disk, _)| *disk == source.id)
                .map(|(_, domain)| domain.clone());
            let domain = target.unwrap_or(source.storage_domain.clone());
            let bytes = if is_clone { source.provisioned_size } else { GIB };
            self.take_space(&domain, bytes, "add VM")?;
            let disk = Disk {
                id: self.new_id(),
                template: None,
                storage_domain: domain,
                status: "locked".to_owned(),
                data: [].into(),
                ..source
            };
            vm.disks.push(Attachment {
                disk: disk.id.clone(),
                ..attachment.clone()
            });
            let time = if is_clone { self.times.clone } else { self.times.disk };
            self.after(time, Effect::DiskOk(disk.id.clone()));
            self.disks.push(disk);
        }
        let is_async = !vm.disks.is_empty();
        let time = match (is_async, is_clone) {
            (false, _) => 0,
            (true, true) => self.times.clone,
            (true, false) => self.times.disk,
        };
        match is_async {
            true if self.copies_fail => {
                // oVirt/ovirt-engine: USER_ADD_VM_FINISHED_FAILURE of `AuditLogMessages.properties`.
                self.log_error(request, format!("Failed to complete VM {name} creation."));
                self.after(time, Effect::VmGone(id));
            }
            true => self.after(time, Effect::VmDown(id)),
            false => {
                vm.status = "down".to_owned();
                vm.is_busy = false;
            }
        }
        self.vms.push(vm.clone());
        Ok((self.show_vm(&vm, &Follow::default()), is_async))
    }

    /// The storage domains of a clone's disks, by the template's disk.
    fn clone_targets(&self, body: &Node, template: &Template, is_clone: bool) -> Outcome<Vec<(String, String)>> {
        let Some(attachments) = body.at("disk_attachments") else {
            return Ok(Vec::new());
        };
        let mut targets = Vec::new();
        for attachment in &attachments.nodes {
            let Some(disk) = attachment.at("disk") else { continue };
            let id = disk.id.clone().unwrap_or_default();
            if !template.disks.iter().any(|known| known.disk == id) {
                return Err(Refusal::NotFound);
            }
            let Some(domain) = disk.at("storage_domains/storage_domain") else {
                continue;
            };
            let domain = self.storage_domain(domain)?;
            let source = self.disk(&id).map(|disk| disk.storage_domain.clone());
            if !is_clone && source.as_ref() != Some(&domain) {
                let code = "ACTION_TYPE_FAILED_TEMPLATE_NOT_FOUND_ON_DESTINATION_DOMAIN";
                return Refusal::because(code, "add VM", &[]);
            }
            targets.push((id, domain));
        }
        Ok(targets)
    }

    /// What add and update have in common.
    fn change_vm(&self, vm: &mut Vm, body: &Node) -> Outcome<()> {
        let words = |path: &str, into: &mut String| body.get(path).into_iter().for_each(|text| *into = text);
        let number = |path: &str, into: &mut u64| body.number(path).into_iter().for_each(|value| *into = value);
        words("comment", &mut vm.comment);
        words("description", &mut vm.description);
        let guaranteed_given = body.number("memory_policy/guaranteed");
        number("memory", &mut vm.shape.memory);
        vm.shape.guaranteed = guaranteed_given.unwrap_or(vm.shape.guaranteed.min(vm.shape.memory));
        number("cpu/topology/cores", &mut vm.shape.cores);
        number("cpu/topology/sockets", &mut vm.shape.sockets);
        number("cpu/topology/threads", &mut vm.shape.threads);
        words("type", &mut vm.shape.kind);
        if let Some(name) = body.get("os/type") {
            // oVirt/ovirt-engine: OsRepositoryImpl.getOsIdByUniqueName.
            let is_known = self.systems().iter().any(|(_, known)| *known == name);
            vm.shape.os_type = if is_known { name } else { "other".to_owned() };
        }
        if let Some(devices) = body.at("os/boot/devices") {
            vm.shape.boot = devices.nodes.iter().map(|device| device.text.clone()).collect();
        }
        // oVirt/ovirt-engine: InitializationMapper.map(Initialization, VmInit).
        if let Some(init) = body.at("initialization") {
            vm.init.get_or_insert_default().merge(init);
        }
        // oVirt/ovirt-engine: VmBaseMapper.mapVmBaseModelToEntity.
        let flag = |path: &str, into: &mut bool| body.get(path).into_iter().for_each(|text| *into = text == "true");
        flag("delete_protected", &mut vm.shape.is_delete_protected);
        flag("start_paused", &mut vm.shape.starts_paused);
        flag("stateless", &mut vm.shape.is_stateless);
        if let Some(quota) = body.at("quota") {
            vm.shape.quota.clone_from(&quota.id);
        }
        if body.at("high_availability/enabled").is_some() {
            vm.is_highly_available = body.is_true("high_availability/enabled");
        }
        number("high_availability/priority", &mut vm.priority);
        words("placement_policy/affinity", &mut vm.affinity);
        if let Some(hosts) = body.at("placement_policy/hosts") {
            let known = |host: &Node| {
                let by = |known: &&Host| {
                    Some(&known.id) == host.id.as_ref() || Some(&known.name) == host.get("name").as_ref()
                };
                self.hosts
                    .iter()
                    .find(by)
                    .map(|host| host.id.clone())
                    .ok_or(Refusal::NotFound)
            };
            let hosts = hosts.nodes.iter().map(known).collect::<Outcome<_>>()?;
            // These settings of an ordinary user are ignored without an error.
            if self.is_administrator {
                vm.pinned = hosts;
            }
        }
        Ok(())
    }

    pub fn update_vm(&mut self, id: &str, request: &Request) -> Outcome<Node> {
        let body = super::read(request, "vm", shapes::VM, "vm/methods/update")?;
        let mut vm = self.vm(id)?.clone();
        not_busy(&vm, "edit VM")?;
        if vm.status == "image_locked" {
            return Refusal::because("ACTION_TYPE_FAILED_VM_IS_LOCKED", "edit VM", &[]);
        }
        self.change_vm(&mut vm, &body)?;
        if let Some(known) = self.vm_mut(id) {
            known.clone_from(&vm);
        }
        Ok(self.show_vm(&vm, &Follow::default()))
    }

    pub fn remove_vm(&mut self, id: &str, request: &Request) -> Outcome<()> {
        let vm = self.vm(id)?.clone();
        let is = |flag: &str| request.query.get(flag).is_some_and(|value| value == "true");
        not_busy(&vm, "remove VM")?;
        // oVirt/ovirt-engine: RemoveVmCommand.validate.
        if vm.shape.is_delete_protected {
            return Refusal::because("ACTION_TYPE_FAILED_DELETE_PROTECTION_ENABLED", "remove VM", &[]);
        }
        if vm.status == "image_locked" && !is("force") {
            return Refusal::because("ACTION_TYPE_FAILED_VM_IS_LOCKED", "remove VM", &[]);
        }
        if !["down", "image_illegal", "image_locked", "unassigned"].contains(&vm.status.as_str()) {
            return Refusal::because("ACTION_TYPE_FAILED_VM_IS_RUNNING", "remove VM", &[]);
        }
        self.disks_unlocked(vm.disks.iter().map(|attachment| attachment.disk.as_str()), "remove VM")?;
        self.vms.retain(|known| known.id != id);
        for group in &mut self.affinity_groups {
            group.vms.retain(|member| member != id);
        }
        for label in &mut self.affinity_labels {
            label.vms.retain(|member| member != id);
        }
        for attachment in &vm.disks {
            self.lose_disk(&attachment.disk);
        }
        Ok(())
    }

    pub fn start_vm(&mut self, id: &str, request: &Request) -> Outcome<()> {
        let action = super::read(request, "action", shapes::ACTION, "vm/methods/start")?;
        let vm = self.vm(id)?.clone();
        if vm.status == "image_locked" {
            return Refusal::because("ACTION_TYPE_FAILED_VM_IS_LOCKED", "run VM", &[]);
        }
        not_busy(&vm, "run VM")?;
        if vm.status != "down" {
            return Refusal::because("ACTION_TYPE_FAILED_VM_IS_RUNNING", "run VM", &[]);
        }
        // oVirt/ovirt-engine: RunVmValidator.
        if vm.shape.is_stateless && vm.is_highly_available {
            return Refusal::because("VM_CANNOT_RUN_STATELESS_HA", "run VM", &[]);
        }
        self.disks_unlocked(vm.disks.iter().map(|attachment| attachment.disk.as_str()), "run VM")?;
        if !vm.disks.iter().any(|attachment| attachment.active) && !vm.shape.boot.contains(&"network".to_owned()) {
            return Refusal::because("VM_CANNOT_RUN_FROM_DISK_WITHOUT_DISK", "run VM", &[]);
        }
        let given = self.given(&vm, &action)?;
        let destination = action
            .at("vm/placement_policy/hosts/host")
            .and_then(|host| host.id.clone());
        let host = self.schedule(&vm, destination.as_deref())?;
        let boot = self.boots.len();
        self.boots.push(Boot {
            vm: id.to_owned(),
            name: vm.name.clone(),
            at: self.now,
            host: host.clone(),
            os_type: vm.shape.os_type.clone(),
            macs: vm.nics.iter().map(|nic| nic.mac.clone()).collect(),
            given,
        });
        if let Some(vm) = self.vm_mut(id) {
            vm.status = "wait_for_launch".to_owned();
            vm.is_busy = true;
            vm.boot = Some(boot);
            vm.host = Some(host);
        }
        let started = Vm {
            boot: Some(boot),
            ..vm.clone()
        };
        let up = match self.has_agent(&started) {
            true => self.times.up_with_agent,
            false => self.times.up_without_agent,
        };
        let launch = self.times.launch;
        self.after(launch, Effect::PoweringUp(id.to_owned(), boot));
        self.after(up, Effect::Up(id.to_owned(), boot));
        let starts = self.boots.iter().filter(|boot| boot.vm == id).count();
        let dies = vm.nics.iter().find_map(|nic| self.guest(&nic.mac).dies);
        if let Some((_, after)) = dies.filter(|(times, _)| starts <= *times) {
            self.after(after, Effect::Off(id.to_owned(), boot));
        }
        Ok(())
    }

    /// The host with the fewest machines, of those that affinity and memory allow.
    fn schedule(&self, vm: &Vm, destination: Option<&str>) -> Outcome<String> {
        // oVirt/ovirt-engine: `FeatureSupported.isImplicitAffinityGroupSupported`,
        // `AffinityRulesUtils.affinityGroupsFromLabels`: labels alone count below 4.4 only, and only implicit ones.
        let allows_implicit = self.cluster(&vm.cluster)?.version < [4, 4];
        let labels: Vec<_> = self
            .affinity_labels
            .iter()
            .filter(|label| label.vms.contains(&vm.id))
            .collect();
        let leads = |group: &&AffinityGroup| {
            let rule = group.hosts_rule;
            let is_labelled = labels.iter().any(|label| group.vm_labels.contains(&label.id));
            rule.enabled && rule.positive && rule.enforcing && (is_labelled || group.vms.contains(&vm.id))
        };
        let rules: Vec<_> = self.affinity_groups.iter().filter(leads).collect();
        let has = |host: &Host, ids: &[String]| {
            let mut with = self.affinity_labels.iter().filter(|label| ids.contains(&label.id));
            with.any(|label| label.hosts.contains(&host.id))
        };
        let running = |host: &Host| {
            self.vms
                .iter()
                .filter(|vm| vm.host.as_ref() == Some(&host.name))
                .collect::<Vec<_>>()
        };
        let fits = |host: &&Host| {
            let used: u64 = running(host).iter().map(|vm| vm.shape.guaranteed).sum();
            host.cluster == vm.cluster
                && host.status == "up"
                && used + vm.shape.guaranteed <= host.memory
                && (vm.pinned.is_empty() || vm.pinned.contains(&host.id))
                && destination.is_none_or(|wanted| wanted == host.id)
                && labels
                    .iter()
                    .filter(|label| allows_implicit && label.is_implicit)
                    .all(|label| label.hosts.contains(&host.id))
                && rules.iter().all(|group| has(host, &group.host_labels))
        };
        let groups = || {
            self.affinity_groups
                .iter()
                .filter(|group| group.enabled && !group.positive && group.vms.contains(&vm.id))
        };
        let clash = |host: &Host, is_hard: bool| {
            let mut groups = groups().filter(|group| !is_hard || group.enforcing);
            groups.any(|group| running(host).iter().any(|other| group.vms.contains(&other.id)))
        };
        // oVirt/ovirt-engine: SchedulingManager.schedule.
        if !self
            .hosts
            .iter()
            .any(|host| host.cluster == vm.cluster && host.status == "up")
        {
            return Refusal::because("SCHEDULING_NO_HOSTS", "run VM", &[]);
        }
        let mut hosts: Vec<_> = self
            .hosts
            .iter()
            .filter(fits)
            .filter(|host| !clash(host, true))
            .collect();
        // Assumed: of several suitable hosts, a machine runs on the one with the fewest machines.
        hosts.sort_by_key(|host| (clash(host, false), running(host).len()));
        match hosts.first() {
            Some(host) => Ok(host.name.clone()),
            None => Refusal::because("SCHEDULING_ALL_HOSTS_FILTERED_OUT", "run VM", &[]),
        }
    }

    /// `stop` switches the power off, `shutdown` asks the guest.
    pub fn stop_vm(&mut self, id: &str, is_asked: bool, request: &Request) -> Outcome<()> {
        super::read(request, "action", shapes::ACTION, "vm/methods/stop")?;
        let vm = self.vm(id)?.clone();
        let operation = if is_asked { "shutdown VM" } else { "stop VM" };
        // oVirt/ovirt-engine: StopVmCommandBase.shouldSkipCommandExecution.
        if vm.status == "down" {
            return Ok(());
        }
        let runs = ["image_locked", "image_illegal", "unassigned"]
            .iter()
            .all(|status| vm.status != *status);
        let Some(boot) = vm.boot.filter(|_| runs) else {
            return Refusal::because("ACTION_TYPE_FAILED_VM_IS_NOT_RUNNING", operation, &[]);
        };
        if is_asked && vm.status == "wait_for_launch" {
            return Refusal::because("ACTION_TYPE_FAILED_OBJECT_LOCKED", operation, &[]);
        }
        let is_deaf = vm.nics.iter().any(|nic| self.guest(&nic.mac).ignores_shutdown);
        let time = if is_asked {
            self.times.shutdown
        } else {
            self.times.power_off
        };
        if !(is_asked && is_deaf) {
            self.after(time, Effect::Off(id.to_owned(), boot));
        }
        if let Some(vm) = self.vm_mut(id) {
            vm.status = "powering_down".to_owned();
            vm.is_busy = false;
        }
        Ok(())
    }
}

fn check_name(name: &str, operation: &str) -> Outcome<()> {
    if name.chars().count() > LONGEST_NAME {
        return Refusal::because("ACTION_TYPE_FAILED_NAME_LENGTH_IS_TOO_LONG", operation, &[]);
    }
    let fits = |character: char| character.is_alphanumeric() || "._-".contains(character);
    match name.chars().all(fits) {
        true => Ok(()),
        false => Refusal::because("ACTION_TYPE_FAILED_NAME_MAY_NOT_CONTAIN_SPECIAL_CHARS", operation, &[]),
    }
}

fn not_busy(vm: &Vm, operation: &str) -> Outcome<()> {
    match vm.is_busy && vm.status != "image_locked" {
        true => Refusal::because("ACTION_TYPE_FAILED_OBJECT_LOCKED", operation, &[]),
        false => Ok(()),
    }
}
