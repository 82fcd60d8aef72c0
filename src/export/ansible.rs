//! The cluster's machines as an Ansible inventory and playbook, for users who create the machines on oVirt themselves.
//!
//! Modules and arguments: oVirt/ovirt-ansible-collection, `plugins/modules/ovirt_vm.py` and `ovirt_disk.py`.

use serde_json::{Map, Value, json};

use crate::cluster::{Affinity, MachineName, Role, Size, Sizes};
use crate::state::parameters::Parameters;
use crate::templates::yaml;

/// A playbook that creates every machine of the inventory; its header lists the requirements.
pub fn playbook() -> &'static str {
    include_str!("templates/playbook.yaml")
}

/// Every machine with MAC, address and size. `ignition` is the directory of the nodes' configs.
///
/// All but the bootstrap are highly available; `affinity` determines whether masters, and the arbiter, run on different
/// hosts.
pub fn inventory(parameters: &Parameters, sizes: &Sizes, ignition: &str, affinity: Affinity) -> String {
    let group = |role: Role, pool: Option<&str>, size: &Size| {
        let hosts: Map<String, Value> = parameters
            .nodes
            .iter()
            .filter(|node| node.role == role && node.name.pool() == pool)
            .map(|node| {
                let machine = MachineName::of_node(&parameters.cluster, &node.name);
                (
                    machine.to_string(),
                    json!({"node": node.name, "mac": node.mac, "ip": node.ip}),
                )
            })
            .collect();
        json!({
            "hosts": hosts,
            "vars": {
                "cpus": size.cpus,
                "memory_mib": size.memory_mib,
                "disk_gib": size.disk_gib,
                "extra_disks_gib": size.extra_disks_gib,
                "high_availability": role != Role::Bootstrap,
            },
        })
    };
    let mut masters = group(Role::Master, None, &sizes.master);
    if let Some(size) = &sizes.arbiter {
        masters["children"]["arbiter"] = group(Role::Arbiter, None, size);
    }
    let mut workers = group(Role::Worker, None, &sizes.worker);
    for (pool, size) in &sizes.pools {
        workers["children"][pool] = group(Role::Worker, Some(pool), size);
    }
    let inventory = json!({
        "all": {
            "vars": {
                "cluster_id": parameters.cluster_domain(),
                "ignition_directory": ignition,
                "ovirt_vnic_profile": parameters.network,
                "masters_apart": affinity != Affinity::Off,
                "masters_apart_always": affinity == Affinity::Hard,
            },
            "children": {
                "bootstrap": group(Role::Bootstrap, None, &sizes.bootstrap),
                "masters": masters,
                "workers": workers,
            },
        },
    });
    format!(
        "# Machines of cluster {}, for the playbook from `ocpdeploy export ansible`.\n{}\n",
        parameters.cluster_domain(),
        yaml(&inventory)
    )
}
