//! Who owns a machine: what a platform stores with it, and the one decision about machines of others.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{BackendError, BackendErrorKind, Machine, MachineSpec, Nic, Power, SeenNic};
use crate::cluster::{ClusterId, Creation, Mac, MachineName, NodeName, Pass, Role};

/// The owner of a machine and what it was created from. The request that creates the machine stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ownership {
    pub cluster: ClusterId,
    pub machine: MachineName,
    pub node: NodeName,
    pub role: Role,
    pub pass: Pass,
    /// The fingerprint of its spec.
    pub fingerprint: String,
    /// In the order of the spec.
    pub nics: Vec<Nic>,
    /// `None` if it cannot be read: no decision depends on it.
    #[serde(default)]
    pub creation: Option<Creation>,
}

impl Ownership {
    pub fn of(spec: &MachineSpec) -> Self {
        Self {
            cluster: spec.cluster.clone(),
            machine: spec.name.clone(),
            node: spec.node.clone(),
            role: spec.role,
            pass: spec.pass,
            fingerprint: spec.fingerprint(),
            nics: spec.nics.clone(),
            creation: Some(spec.creation.clone()),
        }
    }

    /// The ownership of an existing machine of this name, if it was created from this spec. Otherwise it is a conflict.
    pub fn adopt(found: Option<Self>, spec: &MachineSpec) -> Result<Self, BackendError> {
        let found = Self::require(found, &spec.cluster, &spec.name)?;
        match found.fingerprint == spec.fingerprint() {
            true => Ok(found),
            false => Err(conflict(format!(
                "machine {} of this cluster has other settings",
                spec.name
            ))),
        }
    }

    /// The ownership of an existing machine of this name, if it belongs to this deployment. Otherwise it is a conflict.
    pub fn require(found: Option<Self>, cluster: &ClusterId, name: &MachineName) -> Result<Self, BackendError> {
        match found {
            Some(found) if found.cluster == *cluster => Ok(found),
            Some(other) => Err(conflict(format!("machine {name} belongs to {}", other.owner(cluster)))),
            None => Err(conflict(format!("machine {name} exists and belongs to another owner"))),
        }
    }

    /// The owner as part of a message to another owner.
    fn owner(&self, reader: &ClusterId) -> String {
        let (domain, id) = (self.cluster.domain(), self.cluster.deployment());
        let which = match domain == reader.domain() {
            true => format!("another deployment of cluster {domain}, with id {id}"),
            false => format!("cluster {domain} with id {id}"),
        };
        match &self.creation {
            Some(creation) => format!("{which}, begun by {creation}"),
            None => which,
        }
    }

    /// The machine, with the addresses that the platform reports for its MACs.
    pub fn machine(self, power: Power, addresses: &BTreeMap<Mac, Vec<IpAddr>>) -> Machine {
        let nic = |nic: Nic| SeenNic {
            addresses: addresses.get(&nic.mac).cloned().unwrap_or_default(),
            network: nic.network,
            mac: nic.mac,
        };
        Machine {
            name: self.machine,
            node: self.node,
            role: self.role,
            pass: self.pass,
            fingerprint: self.fingerprint,
            power,
            nics: self.nics.into_iter().map(nic).collect(),
            creation: self.creation,
        }
    }
}

/// An object that belongs to another owner, or differs from what is to be created.
pub(super) fn conflict(message: impl Into<String>) -> BackendError {
    BackendError::new(BackendErrorKind::Conflict, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{ImageHandle, Payload};
    use crate::cluster::Architecture;

    fn spec(tag: &str) -> MachineSpec {
        MachineSpec {
            cluster: ClusterId::read(tag).unwrap(),
            name: "lab-master-0".parse().unwrap(),
            node: NodeName::node(Role::Master, 0),
            role: Role::Master,
            pass: Pass::Two,
            arch: Architecture::X86_64,
            cpus: 4,
            memory_mib: 1,
            disk_gib: 1,
            extra_disks_gib: vec![],
            image: ImageHandle("rhcos".to_owned()),
            nics: vec![],
            payload: Payload::Ignition(vec![]),
            autostart: false,
            ipv6: None,
            creation: "anna@laptop 2026-11-28T09:12:13Z".parse().unwrap(),
        }
    }

    #[test]
    fn only_a_machine_of_this_deployment_and_spec_is_adopted() {
        let ours = spec("lab.example.com.x7k2pqrs");
        let larger = MachineSpec {
            cpus: 8,
            ..ours.clone()
        };
        let begun = "begun by anna@laptop 2026-11-28T09:12:13Z";
        for (found, conflict) in [
            (Some(Ownership::of(&ours)), None),
            (
                Some(Ownership::of(&larger)),
                Some("machine lab-master-0 of this cluster has other settings".to_owned()),
            ),
            (
                Some(Ownership::of(&spec("lab.example.com.zzzzzzzz"))),
                Some(format!(
                    "machine lab-master-0 belongs to another deployment of cluster lab.example.com, with id zzzzzzzz, {begun}"
                )),
            ),
            (
                Some(Ownership::of(&spec("lab.example.org.x7k2pqrs"))),
                Some(format!(
                    "machine lab-master-0 belongs to cluster lab.example.org with id x7k2pqrs, {begun}"
                )),
            ),
            (
                None,
                Some("machine lab-master-0 exists and belongs to another owner".to_owned()),
            ),
        ] {
            let judged = Ownership::adopt(found, &ours).err();
            assert!(
                judged
                    .as_ref()
                    .is_none_or(|failure| failure.kind == BackendErrorKind::Conflict)
            );
            assert_eq!(judged.map(|failure| failure.message), conflict);
        }
    }
}
