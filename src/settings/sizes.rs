//! The sizes of the machines.

use super::checks::bounded;
use super::parse::number;
use super::values::{Values, kind_of, read_all};
use crate::cluster::Size;

/// The sizes of the bootstrap, the masters, the arbiter, the workers outside of pools, and the machines of pass one.
pub(super) fn sizes(values: &mut Values<'_>) -> [Option<Size>; 5] {
    let extra_disks = disks(values, "extra_disks");
    let worker_extra_disks = match values.value("worker_extra_disks") {
        Some(_) => disks(values, "worker_extra_disks"),
        None => extra_disks.clone(),
    };
    let [master_cpus, master_disk, worker_cpus, worker_disk] = [
        ("master_numcpus", "numcpus"),
        ("master_disk_size", "disk_size"),
        ("worker_numcpus", "numcpus"),
        ("worker_disk_size", "disk_size"),
    ]
    .map(|(of_role, of_all)| match values.value(of_role) {
        Some(_) => of_role,
        None => of_all,
    });
    let none = Some(Vec::new());
    [
        (["bootstrap_numcpus", "bootstrap_memory", "disk_size"], none.clone()),
        ([master_cpus, "master_memory", master_disk], extra_disks),
        (["arbiter_numcpus", "arbiter_memory", "arbiter_disk_size"], none.clone()),
        ([worker_cpus, "worker_memory", worker_disk], worker_extra_disks),
        (["harvest_numcpus", "harvest_memory", "harvest_disk_size"], none),
    ]
    .map(|(names, extra_disks_gib)| size(values, names, extra_disks_gib))
}

/// The minimum of memory is what a rehearsal's guest needs.
fn size(
    values: &mut Values<'_>,
    [cpus, memory, disk]: [&'static str; 3],
    extra_disks_gib: Option<Vec<u64>>,
) -> Option<Size> {
    Some(read_all!(Size {
        cpus: bounded(values, cpus, 1, 512).and_then(|cpus| u32::try_from(cpus).ok()),
        memory_mib: bounded(values, memory, 128, 16 << 20),
        disk_gib: bounded(values, disk, 1, LARGEST_DISK),
        extra_disks_gib,
    }))
}

/// In GiB.
const LARGEST_DISK: u64 = 64 << 10;

fn disks(values: &mut Values<'_>, name: &'static str) -> Option<Vec<u64>> {
    let sizes = values.numbers(name)?;
    if sizes.contains(&0) {
        let message = format!("`{name}`: the minimum size of a disk is 1 GiB");
        values.problem(&[name], message, "");
    }
    if sizes.len() > 16 {
        let message = format!("`{name}`: {} disks are more than the maximum of 16", sizes.len());
        values.problem(&[name], message, "");
    }
    Some(sizes)
}

/// Warns about sizes below the minimum in OpenShift's documentation.
pub(super) fn warn_of_small(values: &mut Values<'_>, has_arbiter: bool, workers: Option<usize>) {
    if values.sources.rehearse {
        return;
    }
    let mut least = vec![
        ("master_memory", 16384, " MiB"),
        ("bootstrap_memory", 16384, " MiB"),
        ("numcpus", 4, ""),
        ("master_numcpus", 4, ""),
        ("bootstrap_numcpus", 4, ""),
        ("disk_size", 100, " GiB"),
        ("master_disk_size", 100, " GiB"),
        ("worker_disk_size", 100, " GiB"),
    ];
    if workers.is_some_and(|workers| workers > 0) {
        least.push(("worker_memory", 8192, " MiB"));
    }
    if has_arbiter {
        // openshift/openshift-docs: `modules/upi-install-config-local-arbiter-node.adoc`.
        least.extend([
            ("arbiter_memory", 8192, " MiB"),
            ("arbiter_numcpus", 2, ""),
            ("arbiter_disk_size", 50, " GiB"),
        ]);
    }
    for (name, least, unit) in least {
        let given = values
            .value(name)
            .and_then(|value| number(&value.text, kind_of(name)).ok());
        if let Some(given) = given.filter(|given| *given < least) {
            let message = format!("{name}={given} is below the minimum of OpenShift, {least}{unit}");
            values.warn(name, &message);
        }
    }
}
