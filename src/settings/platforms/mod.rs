//! Settings of the platforms, one file each.

mod kubevirt;
mod libvirt;
mod openstack;
mod ovirt;
mod static_addresses;

pub(super) use kubevirt::on_pods;
pub(super) use static_addresses::dhcp;

use super::choices::choices;
use super::parse;
use super::sources::Sources;
use super::values::Values;
use crate::cluster::{Architecture, BackendConfig, Pool, SimConfig, WorkersOn};

/// Reads the platform, and sets its defaults for other settings.
pub(super) fn backend(values: &mut Values<'_>) -> Option<BackendConfig> {
    let backend = read(values, "backend", false)?;
    match backend {
        BackendConfig::Ovirt(_) => {
            values.replace_default("network", "backend ovirt", "ovirtmgmt");
            // An agent that starts more than 120 s after its machine is found within 300 s, and on 4.3 its addresses
            // within 120 s more (oVirt/vdsm: lib/vdsm/common/config.py.in, `qga_initial_info_interval`,
            // `qga_info_period`, `qga_sysinfo_period`).
            values.replace_default("harvest_timeout", "backend ovirt", "20m");
        }
        // A port keeps its address without any machine.
        BackendConfig::OpenStack(_) => values.replace_default("harvest", "backend openstack", "reserve"),
        _ => {}
    }
    Some(backend)
}

/// The architecture of the machines: on a local libvirt by default that of this computer.
pub(super) fn arch(values: &mut Values<'_>, backend: Option<&BackendConfig>) -> Option<Architecture> {
    if matches!(backend, Some(BackendConfig::Libvirt(config)) if config.is_local()) {
        values.replace_default("arch", "this computer", Architecture::THIS_COMPUTER.as_str());
    }
    values.choice("arch")
}

/// What separates MACs of clusters with the same name, see `ClusterConfig::tenant`.
pub(super) fn tenant(sources: &Sources<'_>, backend: Option<&BackendConfig>) -> String {
    match backend {
        Some(BackendConfig::Kubevirt(config)) => kubevirt::tenant(sources, config),
        _ => String::new(),
    }
}

/// Whether this is the name of an image on the platform, although it looks like a path or a URL.
pub(super) fn is_image_name(backend: Option<&BackendConfig>, text: &str) -> bool {
    matches!(backend, Some(BackendConfig::Kubevirt(_))) && kubevirt::is_image(text)
}

/// Whether `backend` names a platform. Otherwise, settings that depend on it, such as images, cannot be checked.
pub(super) fn is_known(values: &mut Values<'_>) -> bool {
    let backend = values.text("backend").unwrap_or_default();
    choices::<BackendConfig>().contains(&backend.as_str())
}

/// The workers' own platform or libvirt host; `Some(None)` if they are on the masters' platform.
pub(super) fn workers_on(values: &mut Values<'_>, others: Option<&BackendConfig>) -> Option<Option<WorkersOn>> {
    let given = values.text("worker_backend");
    let network = values.text("worker_network");
    let only = values.texts("worker_backend_for");
    let all = others.map(BackendConfig::name);
    let setting = if given.is_some() { "worker_backend" } else { "backend" };
    let on_libvirt = given.as_deref().or(all) == Some("libvirt");
    let has_host = on_libvirt && values.value("libvirt_worker_uri").is_some();
    if !has_host && (given.is_none() || given.as_deref() == all) {
        for name in [
            "worker_network",
            "worker_backend_for",
            "worker_image",
            "worker_harvest_image",
        ] {
            if values.is_given(name) {
                let message = format!(
                    "{name} has no effect unless libvirt_worker_uri is set, or worker_backend differs from backend"
                );
                values.warn(name, &message);
            }
        }
        return Some(None);
    }
    let backend = read(values, setting, true)?;
    if let (BackendConfig::Libvirt(here), Some(BackendConfig::Libvirt(there))) = (&backend, others)
        && here.uri == there.uri
    {
        let message = "libvirt_worker_uri and libvirt_uri are the same host";
        let help = "remove libvirt_worker_uri, or set it to another host";
        values.problem(&["libvirt_worker_uri"], message, help);
        return None;
    }
    if matches!(backend, BackendConfig::Kubevirt(_)) && network.as_deref() == Some("pod") {
        let help = "nodes on the pod network can reach only each other; set it to a NetworkAttachmentDefinition";
        values.problem(&["worker_network"], "worker_network=pod is not supported", help);
        return None;
    }
    if network.is_none() {
        let hint = "set it to the name of the machine network there, e.g. `worker_network=default`";
        values.missing("worker_network", hint);
    }
    Some(Some(WorkersOn {
        backend,
        network: network?,
        only: only?,
    }))
}

/// Checks that the pools in `worker_backend_for` exist.
pub(super) fn check_workers_on(values: &mut Values<'_>, workers: Option<&WorkersOn>, pools: &[Pool]) {
    for name in workers.into_iter().flat_map(|workers| &workers.only) {
        if name != "worker" && pools.iter().all(|pool| pool.name != *name) {
            let message = format!("`worker_backend_for`: `pools` has no pool {name}");
            let help = "use names of pools, and `worker` for the workers outside of pools";
            values.problem(&["worker_backend_for", "pools"], message, help);
        }
    }
}

/// Checks that `machine_network` is set where it is not available from the platform.
pub(super) fn require_machine_network(values: &mut Values<'_>, backend: Option<&BackendConfig>) {
    let is_required = backend.is_some_and(BackendConfig::requires_machine_network);
    if is_required && values.value("machine_network").is_none() {
        let help = "set the subnet of the network, e.g. `machine_network=10.0.0.0/24`; the platform does not report it";
        values.missing("machine_network", help);
    }
}

/// The platform that this setting names, with its own settings.
fn read(values: &mut Values<'_>, setting: &'static str, of_workers: bool) -> Option<BackendConfig> {
    match values.text(setting)?.as_str() {
        "kubevirt" => kubevirt::read(values).map(BackendConfig::Kubevirt),
        "libvirt" => libvirt::read(values, of_workers).map(BackendConfig::Libvirt),
        "openstack" => openstack::read(values).map(BackendConfig::OpenStack),
        "ovirt" => ovirt::read(values).map(BackendConfig::Ovirt),
        "sim" => Some(BackendConfig::Sim(SimConfig {
            state: values.path("sim_state")?,
        })),
        other => {
            let known = choices::<BackendConfig>();
            let meant = parse::most_similar(known.iter().copied(), 0.8, |known| strsim::jaro_winkler(other, known));
            let supported = format!("supported are {}", known.join(", "));
            let help = match meant {
                Some(meant) => format!("did you mean `{meant}`? {supported}"),
                None => supported,
            };
            values.problem(&[setting], format!("`{other}` is not a backend"), &help);
            None
        }
    }
}
