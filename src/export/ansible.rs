//! The cluster's machines as an Ansible inventory and playbook, for users who create the machines on oVirt themselves.
//!
//! Modules and arguments: oVirt/ovirt-ansible-collection, `plugins/modules/ovirt_vm.py`, `ovirt_nic.py` and
//! `ovirt_disk.py`.

use serde_json::{Map, Value, json};

use crate::cluster::{Affinity, BackendConfig, MachineName, OvirtConfig, Role, Size};
use crate::state::inventory::Known;
use crate::state::parameters::Parameters;
use crate::templates::yaml;

/// A playbook that creates every machine of the inventory; its header lists the requirements.
pub fn playbook() -> &'static str {
    include_str!("templates/playbook.yaml")
}

/// Every machine with MAC, address and size, and the settings of the cluster. `ignition` is the directory of the nodes'
/// configs.
///
/// The playbook has no settings of its own, because variables of a play override those of an inventory.
pub fn inventory(parameters: &Parameters, known: &Known, ignition: &str) -> String {
    let sizes = &known.sizes;
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
        let networks = pool.and_then(|pool| known.pool_networks.get(pool));
        let networks = networks.unwrap_or(&known.extra_networks).iter().enumerate();
        let nics = networks.map(|(index, network)| json!({"name": format!("nic{}", index + 2), "network": network}));
        json!({
            "hosts": hosts,
            "vars": {
                "cpus": size.cpus,
                "memory_mib": size.memory_mib,
                "disk_gib": size.disk_gib,
                "extra_disks_gib": size.extra_disks_gib,
                "extra_nics": nics.collect::<Vec<_>>(),
                "high_availability": known.autostart && role != Role::Bootstrap,
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
            "vars": settings(parameters, known, ignition),
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

/// The settings of the env file that concern oVirt. Settings without a value are left out.
fn settings(parameters: &Parameters, known: &Known, ignition: &str) -> Value {
    let affinity = known.backend.affinity();
    let mut settings = json!({
        // Else Ansible searches for an interpreter, which may not have the SDK.
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
        "cluster_id": parameters.cluster_domain(),
        "ignition_directory": ignition,
        "ovirt_template": "rhcos",
        "ovirt_cluster": "Default",
        "ovirt_clone": false,
        "ovirt_network": parameters.network,
        "apart": affinity != Affinity::Off,
        "masters_apart_always": affinity == Affinity::Hard,
    });
    let BackendConfig::Ovirt(OvirtConfig {
        cluster,
        storage_domain,
        vnic_profile,
        hosts,
        worker_label,
        clone,
        ..
    }) = &known.backend
    else {
        return settings;
    };
    settings["ovirt_cluster"] = json!(cluster);
    settings["ovirt_clone"] = json!(clone);
    for (name, value) in [
        ("ovirt_storage_domain", storage_domain),
        ("ovirt_vnic_profile", vnic_profile),
        ("ovirt_worker_label", worker_label),
    ] {
        if let Some(value) = value {
            settings[name] = json!(value);
        }
    }
    if !hosts.is_empty() {
        settings["ovirt_hosts"] = json!(hosts);
    }
    settings
}
