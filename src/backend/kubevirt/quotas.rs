//! Checks that the namespace's quotas and limits suffice for the machines, before anything is created.

use std::collections::BTreeSet;

use serde_json::Value;

use super::compare::quantity;
use super::kind::Kind;
use super::labels;
use super::session::{Session, if_allowed};
use crate::backend::findings::Findings;
use crate::backend::{BackendError, Requirements, Verdict};
use crate::cluster::{Pass, Size};
use crate::printable::count;

/// Quantities are counted in thousandths.
const MIB: u128 = 1000 << 20;
const GIB: u128 = MIB << 10;

/// What the pod of a machine requests besides the guest's memory, in MiB.
///
/// KubeVirt adds 220 MiB for its own processes, 8 MiB for each CPU and for the I/O thread, 32 MiB for the display and a
/// 512th of the memory for page tables (kubevirt/kubevirt: `pkg/virt-controller/services/renderresources.go`,
/// `GetMemoryOverhead`, with the constants of `template.go`), and 35 MB for the console's log (`serialconsolelog.go`).
fn overhead_mib(size: &Size) -> u64 {
    220 + 8 * u64::from(size.cpus) + 8 + 32 + size.memory_mib / 512 + 34
}

/// What machines use of a namespace's quota, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wanted {
    machines: u128,
    memory: u128,
    cpus: u128,
    volumes: u128,
    disk: u128,
}

impl Wanted {
    /// The larger of both passes, without machines that exist already: a quota counts those itself.
    fn of(needs: &Requirements, existing: &BTreeSet<&str>) -> Self {
        let pass = |pass: Pass| {
            let machines = needs.machines.iter().zip(&needs.sizes);
            let missing = machines.filter(|((name, _), (of, ..))| *of == pass && !existing.contains(name.as_str()));
            missing.fold(Self::default(), |sum, (_, (_, _, size))| sum.and(size))
        };
        let (one, two) = (pass(Pass::One), pass(Pass::Two));
        Self {
            machines: one.machines.max(two.machines),
            memory: one.memory.max(two.memory),
            cpus: one.cpus.max(two.cpus),
            volumes: one.volumes.max(two.volumes),
            disk: one.disk.max(two.disk),
        }
    }

    fn and(self, size: &Size) -> Self {
        let volumes = 1 + size.extra_disks_gib.len() as u128;
        let gib = size.disk_gib + size.extra_disks_gib.iter().sum::<u64>();
        Self {
            machines: self.machines + 1000,
            memory: self.memory + u128::from(size.memory_mib + overhead_mib(size)) * MIB,
            // A tenth of each CPU by default: `cpuAllocationRatio` in kubevirt/kubevirt: pkg/virt-config/configuration.go.
            cpus: self.cpus + u128::from(size.cpus) * 100,
            volumes: self.volumes + volumes * 1000,
            disk: self.disk + u128::from(gib) * GIB,
        }
    }
}

/// The part of a quota's resource that is not used, in thousandths.
fn left(quota: &Value, resource: &str) -> Option<u128> {
    let hard = quantity(&quota["status"]["hard"][resource]).or_else(|| quantity(&quota["spec"]["hard"][resource]))?;
    let used = quantity(&quota["status"]["used"][resource]).unwrap_or(0);
    Some(hard.saturating_sub(used))
}

/// The resources of which a quota leaves too little, as text: what it leaves and what is required.
fn shortages(quota: &Value, wanted: Wanted) -> Vec<String> {
    let limited = [
        ("requests.memory", wanted.memory, MIB, " MiB of memory"),
        ("limits.memory", wanted.memory, MIB, " MiB of memory"),
        ("memory", wanted.memory, MIB, " MiB of memory"),
        ("requests.cpu", wanted.cpus, 1, "m of CPU"),
        ("cpu", wanted.cpus, 1, "m of CPU"),
        ("requests.storage", wanted.disk, GIB, " GiB of disk"),
        ("persistentvolumeclaims", wanted.volumes, 1000, " volume claims"),
        ("pods", wanted.machines, 1000, " pods"),
        ("count/pods", wanted.machines, 1000, " pods"),
        ("count/virtualmachines.kubevirt.io", wanted.machines, 1000, " machines"),
        (
            "count/virtualmachineinstances.kubevirt.io",
            wanted.machines,
            1000,
            " machine instances",
        ),
    ];
    let short = limited.iter().filter_map(|(resource, wanted, unit, what)| {
        let left = left(quota, resource).filter(|left| left < wanted)?;
        let (left, wanted) = (left / unit, wanted.div_ceil(*unit));
        Some(format!("{left}{what} ({resource}), {wanted} required"))
    });
    short.collect()
}

pub(super) async fn check(
    session: &Session,
    needs: &Requirements,
    findings: &mut Findings,
) -> Result<(), BackendError> {
    if let Some(quotas) = if_allowed(session.list(Kind::Quota, "").await)? {
        let machines = match &needs.cluster {
            Some(cluster) => session.list(Kind::Machine, &labels::of_cluster(cluster)).await?,
            None => Vec::new(),
        };
        let wanted = Wanted::of(needs, &machines.iter().map(labels::name).collect());
        let mut suffice = !quotas.is_empty();
        for quota in &quotas {
            for shortage in shortages(quota, wanted) {
                suffice = false;
                let (name, namespace) = (labels::name(quota), &session.namespace);
                findings.fail(
                    format!("quota {name} of namespace {namespace} leaves {shortage}"),
                    "reduce sizes or the number of nodes, or ask for a larger quota; `ocpdeploy plan` lists the sizes",
                );
            }
        }
        if suffice {
            findings.ok(format!("the quotas of namespace {} suffice", session.namespace));
        }
    }
    let ranges = if_allowed(session.list(Kind::LimitRange, "").await)?.unwrap_or_default();
    let limits = ranges
        .iter()
        .flat_map(|range| range["spec"]["limits"].as_array().into_iter().flatten());
    let limits = limits.filter(|limit| limit["type"] == "Container" || limit["type"] == "Pod");
    let largest = needs
        .sizes
        .iter()
        .map(|(_, _, size)| size.memory_mib + overhead_mib(size))
        .max();
    let largest = u128::from(largest.unwrap_or(0)) * MIB;
    for limit in limits {
        if let Some(most) = quantity(&limit["max"]["memory"]).filter(|most| *most < largest) {
            findings.fail(
                format!(
                    "a pod in namespace {} can have {} MiB of memory, a machine requires {}",
                    session.namespace,
                    most / MIB,
                    largest / MIB
                ),
                "reduce the sizes, or ask for a larger LimitRange",
            );
        }
        let most = quantity(&limit["max"]["cpu"]).filter(|most| *most < u128::from(needs.cpus_per_machine) * 1000);
        if let Some(most) = most {
            let text = format!(
                "a pod in namespace {} can have {}, a machine requires {}",
                session.namespace,
                count(most / 1000, "CPU"),
                needs.cpus_per_machine
            );
            let hint = "KubeVirt requests a tenth of them unless they are dedicated";
            findings.add(Verdict::Warn, text, Some(hint));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::Role;

    fn size(cpus: u32, memory_mib: u64) -> Size {
        Size {
            cpus,
            memory_mib,
            disk_gib: 120,
            extra_disks_gib: vec![10],
        }
    }

    #[test]
    fn a_pod_requires_more_than_its_guest() {
        // KubeVirt's own test: 2 GiB and two CPUs have 280 MiB; the console's log is a container beside it.
        assert_eq!(overhead_mib(&size(2, 2048)), 280 + 34);
        assert_eq!(overhead_mib(&size(4, 16384)), 324 + 34);
    }

    #[test]
    fn existing_machines_are_not_counted_twice() {
        let machine = |name: &str| (name.parse().unwrap(), vec![]);
        let needs = Requirements {
            machines: vec![
                machine("lab-harvest-master-0"),
                machine("lab-master-0"),
                machine("lab-master-1"),
            ],
            sizes: vec![
                (Pass::One, Role::Master, size(1, 512)),
                (Pass::Two, Role::Master, size(4, 16384)),
                (Pass::Two, Role::Master, size(4, 16384)),
            ],
            ..Requirements::default()
        };
        let all = Wanted::of(&needs, &BTreeSet::new());
        let rest = Wanted::of(&needs, &BTreeSet::from(["lab-master-0"]));
        assert_eq!((all.machines, rest.machines), (2000, 1000));
        assert_eq!((all.volumes, all.cpus), (4000, 800));
        assert_eq!(all.memory, rest.memory * 2);
        let quota = json!({"status": {"hard": {"requests.memory": "33Gi", "pods": "3"}, "used": {"pods": "2"}}});
        assert_eq!(shortages(&quota, rest), [""; 0]);
        assert_eq!(
            shortages(&quota, all),
            ["1 pods (pods), 2 required"],
            "33 GiB suffice for two pods of 16 GiB and 358 MiB"
        );
        let quota = json!({"spec": {"hard": {"requests.memory": "32Gi"}}});
        assert_eq!(
            shortages(&quota, all),
            ["32768 MiB of memory (requests.memory), 33484 required"]
        );
    }
}
