//! The hosts that may run machines.

use super::engine::{Ovirt, OvirtSite};
use super::wire::MIB;
use crate::backend::ownership::Ownership;
use crate::backend::{BackendError, BackendErrorKind, MachineSpec};
use crate::printable::count;
use crate::xml::Element;

/// A host of the oVirt cluster that the settings permit.
#[derive(Debug)]
pub(super) struct OvirtHost {
    pub id: String,
    name: String,
    status: String,
    /// Memory for a new machine, in MiB (oVirt/ovirt-engine-api-model: Host.max_scheduling_memory).
    memory_mib: u64,
    cpus: u32,
}

impl OvirtHost {
    fn read(host: &Element, threads_as_cores: bool) -> Option<Self> {
        let number = |path: &str| host.text_of(path).and_then(|text| text.parse::<u64>().ok());
        let part = |name: &str| number(&format!("cpu/topology/{name}")).unwrap_or(1);
        let threads = if threads_as_cores { part("threads") } else { 1 };
        let cpus = part("sockets") * part("cores") * threads;
        Some(Self {
            id: host.get("id")?.to_owned(),
            name: host.text_of("name").unwrap_or_default().to_owned(),
            status: host.text_of("status").unwrap_or_default().to_owned(),
            memory_mib: number("max_scheduling_memory").or(number("memory"))? / MIB,
            cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        })
    }

    /// The reason why it cannot run a machine of this size now.
    fn refuses(&self, cpus: u32, memory_mib: u64) -> Option<String> {
        let name = &self.name;
        match () {
            () if self.status != "up" => Some(format!("{name} is in status {}", self.status)),
            () if self.cpus < cpus => Some(format!("{name} has {}", count(self.cpus, "CPU"))),
            () if self.memory_mib < memory_mib => Some(format!("{name} has {} MiB free", self.memory_mib)),
            () => None,
        }
    }
}

/// The hosts that can run a machine of this size now, or the reasons why none can.
pub(super) fn able(hosts: &[OvirtHost], cpus: u32, memory_mib: u64) -> Result<Vec<&OvirtHost>, String> {
    let able: Vec<_> = hosts
        .iter()
        .filter(|host| host.refuses(cpus, memory_mib).is_none())
        .collect();
    if !able.is_empty() {
        return Ok(able);
    }
    let mut reasons: Vec<_> = hosts.iter().filter_map(|host| host.refuses(cpus, memory_mib)).collect();
    if reasons.is_empty() {
        reasons.push("the cluster has no hosts".to_owned());
    }
    Err(format!(
        "no host can run a machine of {} and {memory_mib} MiB: {}",
        count(cpus, "CPU"),
        reasons.join(", ")
    ))
}

impl Ovirt {
    /// The oVirt cluster's hosts. `None` if this user may not read them.
    pub(super) async fn hosts(&self, site: &OvirtSite) -> Result<Option<Vec<OvirtHost>>, BackendError> {
        let search = format!("cluster=\"{}\"", self.config.cluster);
        let is_of_cluster = |host: &Element| host.value("cluster", "id") == Some(site.cluster.as_str());
        let found = self.session.search("/hosts", &search, "", is_of_cluster).await;
        let Some(found) = self.if_permitted(found)? else {
            return Ok(None);
        };
        if found.is_empty() && self.session.is_filtered() {
            return Ok(None);
        }
        let read = |host: &Element| OvirtHost::read(host, site.threads_as_cores);
        let mut hosts: Vec<_> = found.iter().filter_map(read).collect();
        if let Some(unknown) = self
            .config
            .hosts
            .iter()
            .find(|name| !hosts.iter().any(|host| host.name == **name))
        {
            let words = format!("cluster {} has no host {unknown}", self.config.cluster);
            return Err(
                BackendError::new(BackendErrorKind::NotFound, words).hint("set ovirt_hosts to hosts of this cluster")
            );
        }
        if !self.config.hosts.is_empty() {
            hosts.retain(|host| self.config.hosts.contains(&host.name));
        }
        Ok(Some(hosts))
    }

    /// Checks that a host can run a machine, and returns the preferred host; `None`: the engine chooses.
    ///
    /// A machine that this process has seen running, and that is down now, is started on another host if possible.
    pub(super) async fn choose_host(
        &self,
        site: &OvirtSite,
        spec: &MachineSpec,
    ) -> Result<Option<String>, BackendError> {
        let Some(hosts) = self.hosts(site).await? else {
            return Ok(None);
        };
        let able = able(&hosts, spec.cpus, spec.memory_mib).map_err(|words| {
            BackendError::new(BackendErrorKind::Quota, words).hint("free memory on a host, or set smaller sizes")
        })?;
        let last = self.ran_on.lock().await.get(&spec.name).cloned();
        let other = last.and_then(|last| able.iter().find(|host| host.id != last));
        Ok(other.map(|host| host.id.clone()))
    }

    /// Records the hosts of running machines.
    pub(super) async fn note_hosts(&self, machines: &[(Element, Ownership)]) {
        let mut ran_on = self.ran_on.lock().await;
        for (vm, ownership) in machines {
            if let Some(host) = vm.value("host", "id") {
                ran_on.insert(ownership.machine.clone(), host.to_owned());
            }
        }
    }
}
