//! Machines: created in steps that can be repeated, listed in bulk, and removed with their disks.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::affinity;
use super::engine::{Ovirt, OvirtSite};
use super::rights::TEMPLATE_HINT;
use super::session::{conflict, is_conflict, or_existing, wait_for};
use super::wire::id;
use super::wire::{self, GIB};
use crate::backend::error::if_exists;
use crate::backend::ownership::Ownership;
use crate::backend::{Action, BackendError, BackendErrorKind, Machine, MachineSpec, Owned};
use crate::cluster::{Affinity, ClusterId, MachineName, Pass, Role};
use crate::xml::Element;

/// A copied disk of 100 GiB takes minutes.
pub(super) const DISKS: Duration = Duration::from_secs(1800);
/// How long a conflict about a disk may last, except a lock.
const DISK_CONFLICT: Duration = Duration::from_secs(60);
pub(super) const POWER_OFF: Duration = Duration::from_secs(180);

impl Ovirt {
    pub(super) async fn create(&self, spec: &MachineSpec) -> Result<Action<Machine>, BackendError> {
        let site = self.site().await?;
        // Everything that can be missing is read before anything is created.
        let profiles = self
            .profiles(site, spec.nics.iter().map(|nic| nic.network.as_str()))
            .await?;
        let (vm, ours) = match self.find_vm(&spec.name).await? {
            Some(vm) => (vm, false),
            None => (self.add_vm(site, spec).await?, true),
        };
        let ownership = Ownership::adopt(wire::ownership(&vm), spec)?;
        let id = id(&vm)?;
        let Some(vm) = if_exists(self.unlocked(&id).await)? else {
            return Err(self
                .session
                .failed(&format!("the engine removed machine {}", spec.name))
                .await);
        };
        let mut changed = ours;
        match vm.text_of("status") {
            Some("down") => {
                self.complete(site, spec, &id, &vm, &profiles).await?;
                changed |= self.start(spec, site, &id).await?;
            }
            Some("image_illegal") => {
                let words = format!("the disks of machine {} have status illegal", spec.name);
                return Err(self.session.failed(&words).await);
            }
            // Before 4.4.8 another run can have overwritten the list of members since.
            _ => self.place(site, spec, &id).await?,
        }
        let vm = self.session.get(&format!("/vms/{id}"), &[]).await?;
        let machine = wire::machine(&vm, ownership, &[]);
        Ok(if changed {
            Action::Done(machine)
        } else {
            Action::Unchanged(machine)
        })
    }

    pub(super) async fn find_vm(&self, name: &MachineName) -> Result<Option<Element>, BackendError> {
        Ok(self.named_here("/vms", name.as_str()).await?.into_iter().next())
    }

    async fn add_vm(&self, site: &OvirtSite, spec: &MachineSpec) -> Result<Element, BackendError> {
        let template = self.template(&spec.image.0).await?;
        let body = wire::vm(spec, site.way, &self.config.cluster, &template.id).ok_or_else(|| {
            BackendError::new(
                BackendErrorKind::Rejected,
                "the Ignition config is not UTF-8 text, which oVirt requires",
            )
        })?;
        let body = self.placed(site, &template, body).await?;
        let clone = if self.config.clone { "true" } else { "false" };
        let added = self.session.post("/vms", &[("clone", clone)], &body).await;
        let added = or_existing(added, async || self.find_vm(&spec.name).await).await;
        added.map_err(|failure| match failure.kind {
            // The machine that has the name was not found.
            BackendErrorKind::Conflict => BackendError {
                message: format!(
                    "machine name {} is in use by an object that this user cannot read: {}",
                    spec.name, failure.message
                ),
                ..failure
            },
            BackendErrorKind::Denied if failure.message.contains("Quota") => failure.hint(
                "the quota of the template, or the user's first quota, applies: an administrator adds the user to its \
                 consumers",
            ),
            BackendErrorKind::Denied => failure.hint(TEMPLATE_HINT),
            _ => failure,
        })
    }

    /// Waits until no operation locks the machine's disks.
    pub(super) async fn unlocked(&self, id: &str) -> Result<Element, BackendError> {
        wait_for("the machine's disks are still locked", DISKS, async || {
            let vm = self.session.get(&format!("/vms/{id}"), &[]).await?;
            Ok((vm.text_of("status") != Some("image_locked")).then_some(vm))
        })
        .await
    }

    /// Completes a machine that is down. Each step first reads what exists.
    async fn complete(
        &self,
        site: &OvirtSite,
        spec: &MachineSpec,
        id: &str,
        vm: &Element,
        profiles: &[String],
    ) -> Result<(), BackendError> {
        let wanted = wire::os_type(spec, site.way);
        let is = vm.text_of("os/type").unwrap_or_default();
        if is != wanted {
            let words = format!("its system type is {is}, and the engine passes the payload only with {wanted}");
            return Err(BackendError::new(BackendErrorKind::Rejected, words));
        }
        self.nics(spec, id, profiles).await?;
        self.system_disk(spec, id).await?;
        self.extra_disks(site, spec, id).await?;
        self.tag_machine(&spec.cluster, id).await?;
        self.place(site, spec, id).await
    }

    /// Adds a node to its affinity group and label.
    async fn place(&self, site: &OvirtSite, spec: &MachineSpec, id: &str) -> Result<(), BackendError> {
        let kind = match spec.role {
            _ if spec.pass != Pass::Two => return Ok(()),
            role if role.has_etcd() => affinity::MASTERS,
            Role::Worker => affinity::WORKERS,
            _ => return Ok(()),
        };
        if self.config.affinity != Affinity::Off {
            affinity::join(self, site, &spec.cluster, kind, id).await?;
        }
        if let Some(label) = self.config.worker_label.as_ref().filter(|_| spec.role == Role::Worker) {
            affinity::label(self, site, label, id).await?;
        }
        Ok(())
    }

    /// A template can have NICs: they are updated, and surplus ones are removed.
    async fn nics(&self, spec: &MachineSpec, id: &str, profiles: &[String]) -> Result<(), BackendError> {
        let path = format!("/vms/{id}/nics");
        let mut there = self.session.get(&path, &[]).await?.into_children();
        there.sort_by(|a, b| a.text_of("name").cmp(&b.text_of("name")));
        let wanted: Vec<_> = spec.nics.iter().zip(profiles).collect();
        for surplus in there.iter().skip(wanted.len()) {
            self.session.delete(&format!("{path}/{}", self::id(surplus)?)).await?;
        }
        for (index, (nic, profile)) in wanted.into_iter().enumerate() {
            let body = wire::nic(index, nic.mac, profile);
            match there.get(index) {
                Some(is) if wire::nic_is(is, nic.mac, profile) => {}
                Some(other) => {
                    self.session.put(&format!("{path}/{}", self::id(other)?), &body).await?;
                }
                None => self.add_nic(&path, &body).await?,
            }
        }
        Ok(())
    }

    async fn add_nic(&self, path: &str, body: &Element) -> Result<(), BackendError> {
        let mac = body.text_of("mac/address");
        let has_it = |nic: &Element| nic.text_of("mac/address") == mac;
        let find = async || self.session.find(path, has_it).await;
        let added = or_existing(self.session.post(path, &[], body).await, find).await;
        added.map(drop).map_err(|failure| match failure.kind {
            BackendErrorKind::Conflict => failure.hint("a MAC belongs to one machine at a time: remove the other machine or its snapshot, or choose other MACs"),
            _ => failure,
        })
    }

    /// Sets the size of the template's disk, and its description, by which it is found without its machine.
    async fn system_disk(&self, spec: &MachineSpec, id: &str) -> Result<(), BackendError> {
        let path = format!("/vms/{id}/diskattachments");
        let attachments = self.session.get(&path, &[("follow", "disk")]).await?;
        let system = attachments
            .iter()
            .find(|attachment| attachment.text_of("bootable") == Some("true"))
            .ok_or_else(|| BackendError::new(BackendErrorKind::Rejected, "it has no bootable disk"))?;
        let size = system
            .text_of("disk/provisioned_size")
            .and_then(|size| size.parse::<u64>().ok());
        let (wanted, mark) = (spec.disk_gib * GIB, wire::disk_mark(&spec.cluster, &spec.name));
        let grows = size.is_none_or(|size| size < wanted);
        let is_marked = system.text_of("disk/description") == Some(mark.as_str());
        if is_marked && !grows {
            return Ok(());
        }
        let mut disk = Element::new("disk").with("description", mark);
        if grows {
            disk = disk.with("provisioned_size", wanted);
        }
        let disk_id = self::id(system)?;
        let body = Element::new("disk_attachment").child(disk);
        self.session.put(&format!("{path}/{disk_id}"), &body).await?;
        self.disk_ready(&disk_id).await
    }

    async fn extra_disks(&self, site: &OvirtSite, spec: &MachineSpec, id: &str) -> Result<(), BackendError> {
        if spec.extra_disks_gib.is_empty() {
            return Ok(());
        }
        let storage = self.storage_domain(site).await?;
        let path = format!("/vms/{id}/diskattachments");
        let there = self.session.get(&path, &[]).await?;
        for (index, gib) in spec.extra_disks_gib.iter().enumerate() {
            let disk = extra_disk_id(spec, index);
            if there
                .iter()
                .any(|attachment| attachment.get("id") == Some(disk.as_str()))
            {
                continue;
            }
            let mark = wire::disk_mark(&spec.cluster, &spec.name);
            let name = format!("{}-extra-{index}", spec.name);
            let body = wire::empty_disk(&disk, &name, &mark, gib * GIB, &storage);
            let find = async || if_exists(self.session.get(&format!("/disks/{disk}"), &[]).await);
            let there = match find().await? {
                Some(there) => there,
                None => or_existing(self.session.post("/disks", &[], &body).await, find).await?,
            };
            if there.text_of("description") != Some(mark.as_str()) {
                return conflict(format!(
                    "disk {disk} exists and does not belong to machine {}",
                    spec.name
                ));
            }
            self.disk_ready(&disk).await?;
            self.attach(&path, &disk, false).await?;
        }
        Ok(())
    }

    /// Waits until a disk can be used.
    pub(super) async fn disk_ready(&self, id: &str) -> Result<(), BackendError> {
        match self.disk_status(id).await?.as_deref() {
            None => Err(self.session.failed(&format!("the engine removed disk {id}")).await),
            Some("illegal") => Err(self.session.failed(&format!("disk {id} has status illegal")).await),
            Some(_) => Ok(()),
        }
    }

    /// The status of a disk once it is not locked. `None` if it does not exist.
    pub(super) async fn disk_status(&self, id: &str) -> Result<Option<String>, BackendError> {
        wait_for("the disk is still locked", DISKS, async || {
            let disk = if_exists(self.session.get(&format!("/disks/{id}"), &[]).await)?;
            let status = disk.as_ref().and_then(|disk| disk.text_of("status"));
            Ok((status != Some("locked")).then(|| status.map(str::to_owned)))
        })
        .await
    }

    /// Whether this call started it.
    async fn start(&self, spec: &MachineSpec, site: &OvirtSite, id: &str) -> Result<bool, BackendError> {
        let path = format!("/vms/{id}/start");
        let host = self.choose_host(site, spec).await?;
        let action = wire::start(spec, site.way, host.as_deref());
        let mut started = self.session.post(&path, &[], &action).await;
        let is_rejected = |failure: &BackendError| is_conflict(failure) || failure.kind == BackendErrorKind::Denied;
        if host.is_some() && started.as_ref().is_err_and(is_rejected) {
            // Affinity can exclude that host, and to choose one requires `edit_admin_vm_properties`
            // (oVirt/ovirt-engine: `RunVmOnceCommand.getPermissionCheckSubjects`).
            started = self.session.post(&path, &[], &wire::start(spec, site.way, None)).await;
        }
        let refused = match started {
            Err(failure) if is_conflict(&failure) => failure,
            started => return started.map(|_| true),
        };
        let vm = self.session.get(&format!("/vms/{id}"), &[]).await?;
        match vm.text_of("status") {
            Some("down") => Err(refused),
            _ => Ok(false),
        }
    }

    /// All machines of a cluster in one query. Older engines require one more for each running machine.
    pub(super) async fn machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError> {
        let mut machines = Vec::new();
        let vms = self.vms_of(cluster, "reported_devices").await?;
        self.note_hosts(&vms).await;
        for (vm, ours) in vms {
            let devices = match vm.find("reported_devices") {
                Some(devices) => Some(devices.clone()),
                // Older engines do not follow this link.
                None if vm.text_of("status") == Some("up") => if_exists(
                    self.session
                        .get(&format!("/vms/{}/reporteddevices", id(&vm)?), &[])
                        .await,
                )?,
                None => None,
            };
            let addresses = devices
                .map(|devices| wire::addresses(devices.iter()))
                .unwrap_or_default();
            machines.push(wire::machine(&vm, ours, &addresses));
        }
        machines.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(machines)
    }

    pub(super) async fn vms_of(
        &self,
        cluster: &ClusterId,
        follow: &str,
    ) -> Result<Vec<(Element, Ownership)>, BackendError> {
        let search = format!("comment={}*", wire::mark(cluster));
        let begins = wire::begins("comment", wire::mark(cluster));
        let found = self.session.search("/vms", &search, follow, begins).await?;
        let ours = |vm: Element| wire::ownership(&vm).map(|ours| (vm, ours));
        Ok(found
            .into_iter()
            .filter_map(ours)
            .filter(|(_, ours)| ours.cluster == *cluster)
            .collect())
    }

    pub(super) async fn remove(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        let mut changed = false;
        if let Some(vm) = self.find_vm(name).await? {
            Ownership::require(wire::ownership(&vm), cluster, name)?;
            changed = self.remove_vm(&id(&vm)?).await?;
        }
        // The engine removes the machine at once and its disks later, or not at all after a failure.
        changed |= self.remove_disks(cluster, Some(name)).await?;
        Ok(if changed {
            Action::Done(())
        } else {
            Action::Unchanged(())
        })
    }

    /// Powers a machine off and removes it. The engine removes its disks later.
    pub(super) async fn remove_vm(&self, id: &str) -> Result<bool, BackendError> {
        let Some(vm) = if_exists(self.unlocked(id).await)? else {
            return Ok(false);
        };
        // oVirt/ovirt-engine: `RemoveVmCommand.validate`; it refuses to stop machines in these states.
        if !matches!(vm.text_of("status"), Some("down" | "image_illegal" | "unassigned")) {
            self.force_off(id).await?;
        }
        self.session.delete(&format!("/vms/{id}")).await
    }

    /// Removes the disks of a cluster, or of one machine, and waits until they do not exist.
    pub(super) async fn remove_disks(
        &self,
        cluster: &ClusterId,
        machine: Option<&MachineName>,
    ) -> Result<bool, BackendError> {
        let disks = self.disks_of(cluster).await?;
        let its = |(_, of): &(Element, String)| machine.is_none_or(|machine| machine.as_str() == of);
        let ids = disks.iter().filter(|disk| its(disk)).map(|(disk, _)| id(disk));
        let ids = ids.collect::<Result<Vec<_>, _>>()?;
        for id in &ids {
            self.remove_disk(id).await?;
        }
        Ok(!ids.is_empty())
    }

    /// Removes a disk and waits until it does not exist.
    ///
    /// Another operation can be the reason of a conflict and remove the disk itself, so the disk is read again.
    pub(super) async fn remove_disk(&self, id: &str) -> Result<(), BackendError> {
        let path = format!("/disks/{id}");
        let mut conflict_since = None;
        wait_for("the disk is not removed", DISKS, async || {
            let Some(disk) = if_exists(self.session.get(&path, &[]).await)? else {
                return Ok(Some(()));
            };
            // The removal of a locked disk, or the creation, is in progress.
            if disk.text_of("status") == Some("locked") {
                return Ok(None);
            }
            match self.session.delete(&path).await {
                Err(failure) if is_conflict(&failure) => {
                    match conflict_since.get_or_insert_with(Instant::now).elapsed() < DISK_CONFLICT {
                        true => Ok(None),
                        false => Err(failure),
                    }
                }
                deleted => deleted.map(|_| None),
            }
        })
        .await
    }

    /// Disks of a cluster, with the machine of each.
    async fn disks_of(&self, cluster: &ClusterId) -> Result<Vec<(Element, String)>, BackendError> {
        let search = format!("description={}*", wire::mark(cluster));
        let begins = wire::begins("description", wire::mark(cluster));
        let found = self.session.search("/disks", &search, "", begins).await?;
        let marked = |disk: Element| {
            let of = wire::marked_machine(cluster, disk.text_of("description")?)?.to_owned();
            Some((disk, of))
        };
        Ok(found.into_iter().filter_map(marked).collect())
    }

    /// The clusters that have machines or disks.
    pub(super) async fn clusters_with_machines(&self) -> Result<BTreeSet<ClusterId>, BackendError> {
        let (search, begins) = wire::marked_any("comment");
        let vms = self.session.search("/vms", &search, "", begins).await?;
        let (search, begins) = wire::marked_any("description");
        let disks = self.session.search("/disks", &search, "", begins).await?;
        let of_disk = |disk: &Element| {
            let (mark, _) = disk.text_of("description")?.split_once(' ')?;
            wire::marked(mark)
        };
        let of_vms = vms.iter().filter_map(|vm| Some(wire::ownership(vm)?.cluster));
        Ok(of_vms.chain(disks.iter().filter_map(of_disk)).collect())
    }

    pub(super) async fn owned_machines(&self, cluster: &ClusterId) -> Result<Vec<Owned>, BackendError> {
        let thing = |kind: &str, element: &Element| Owned {
            kind: kind.to_owned(),
            name: element.text_of("name").unwrap_or_default().to_owned(),
        };
        let vms = self.vms_of(cluster, "").await?;
        let mut owned: Vec<_> = vms.iter().map(|(vm, _)| thing("vm", vm)).collect();
        for (disk, machine) in self.disks_of(cluster).await? {
            // Disks of one template have one name.
            let name = match disk.text_of("name") {
                Some(name) if name.starts_with(&machine) => name.to_owned(),
                name => format!("{machine} {}", name.unwrap_or_default()),
            };
            owned.push(Owned {
                kind: "disk".to_owned(),
                name,
            });
        }
        Ok(owned)
    }
}

/// The same in every run, so that a lost response leaves no second disk.
fn extra_disk_id(spec: &MachineSpec, index: usize) -> String {
    let name = format!("{}/{}/{}/{index}", spec.cluster.tag(), spec.name, spec.fingerprint());
    Uuid::new_v5(&Uuid::NAMESPACE_URL, name.as_bytes()).to_string()
}
