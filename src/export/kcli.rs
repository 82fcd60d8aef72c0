//! The cluster as a parameter file for `kcli create cluster openshift`.

use serde_json::{Value, json};

use crate::cluster::{NodeName, Role, Sizes};
use crate::state::parameters::Parameters;
use crate::templates::yaml;

/// Names, sizes, addresses and MACs under kcli's own names (karmab/kcli, `kvirt/cluster/openshift/kcli_default.yml`).
///
/// kcli calls masters `ctlplane`; a machine's MAC is a rule of `vmrules`, whose key is a pattern for its name.
pub fn parameter_file(parameters: &Parameters, sizes: &Sizes) -> String {
    let id = parameters.cluster_domain();
    let count = |role| parameters.nodes.iter().filter(|node| node.role == role).count();
    let mut lines = vec![
        ("cluster", json!(parameters.cluster)),
        ("domain", json!(parameters.domain)),
        ("network", json!(parameters.network)),
        ("machine_cidr", json!(parameters.machine_network)),
        ("ctlplanes", json!(count(Role::Master))),
        ("workers", json!(count(Role::Worker))),
        ("bootstrap_numcpus", json!(sizes.bootstrap.cpus)),
        ("bootstrap_memory", json!(sizes.bootstrap.memory_mib)),
        ("ctlplane_numcpus", json!(sizes.master.cpus)),
        ("ctlplane_memory", json!(sizes.master.memory_mib)),
        ("worker_numcpus", json!(sizes.worker.cpus)),
        ("worker_memory", json!(sizes.worker.memory_mib)),
        ("disk_size", json!(sizes.master.disk_gib)),
        ("extra_ctlplane_disks", json!(sizes.master.extra_disks_gib)),
        ("extra_worker_disks", json!(sizes.worker.extra_disks_gib)),
        ("api_ip", json!(parameters.api_ip)),
        ("ingress_ip", json!(parameters.ingress_ip)),
        ("virtual_router_id", json!(parameters.virtual_router_id)),
    ];
    lines.extend(parameters.external_vips.api.map(|ip| ("public_api_ip", json!(ip))));
    if let Some(size) = &sizes.arbiter {
        lines.extend([
            ("arbiters", json!(count(Role::Arbiter))),
            ("arbiter_numcpus", json!(size.cpus)),
            ("arbiter_memory", json!(size.memory_mib)),
            ("arbiter_disk_size", json!(size.disk_gib)),
        ]);
    }
    if let Some(bootstrap) = parameters.node(&NodeName::bootstrap()) {
        lines.push(("bootstrap_mac", json!(bootstrap.mac)));
    }
    let mut text = format!("# Cluster {id}, for `kcli create cluster openshift --paramfile FILE`.\n");
    for (name, value) in lines {
        text += &format!("{name}: {}\n", one_line(&value));
    }
    text += "vmrules:\n";
    for (role, word) in [
        (Role::Master, "ctlplane"),
        (Role::Arbiter, "arbiter"),
        (Role::Worker, "worker"),
    ] {
        let nodes = parameters.nodes.iter().filter(|node| node.role == role);
        for (index, node) in nodes.enumerate() {
            let pattern = json!(format!("{}-{word}-{index}$", parameters.cluster));
            let nets = json!([{"name": parameters.network, "mac": node.mac}]);
            text += &format!("- {}: {{\"nets\": {}}}\n", one_line(&pattern), one_line(&nets));
        }
    }
    text
}

fn one_line(value: &Value) -> String {
    yaml(value).split('\n').map(str::trim_start).collect()
}
