//! Settings of the platforms, one file each.

mod kubevirt;
mod libvirt;
mod openstack;
mod ovirt;
mod static_addresses;

pub(super) use kubevirt::{is_image as is_kubevirt_image, on_pods, tenant as kubevirt_tenant};
pub(super) use static_addresses::{with_dhcp, without_dhcp};

use super::choices::choices;
use super::parse;
use super::values::Values;
use crate::cluster::{BackendConfig, Pool, SimConfig, WorkersOn};

pub(super) fn backend(values: &mut Values<'_>) -> Option<BackendConfig> {
    read(values, "backend", false)
}

/// Whether there is such a platform. Without one, nothing can be said about what depends on it, such as images.
pub(super) fn is_known(values: &mut Values<'_>) -> bool {
    let backend = values.text("backend").unwrap_or_default();
    choices::<BackendConfig>().contains(&backend.as_str())
}

/// The workers' own platform, or libvirt host; `Some(None)` when they are where the masters are.
pub(super) fn workers_on(values: &mut Values<'_>, others: Option<&BackendConfig>) -> Option<Option<WorkersOn>> {
    let given = values.text("worker_backend");
    let network = values.text("worker_network");
    let only = values.texts("worker_backend_for");
    let all = others.map(BackendConfig::name);
    let setting = if given.is_some() { "worker_backend" } else { "backend" };
    let on_libvirt = given.as_deref().or(all) == Some("libvirt");
    let has_host = on_libvirt && values.value("worker_libvirt_uri").is_some();
    if !has_host && (given.is_none() || given.as_deref() == all) {
        for name in [
            "worker_network",
            "worker_backend_for",
            "worker_image",
            "worker_helper_image",
        ] {
            if values.is_given(name) {
                let message = format!(
                    "{name} has no effect unless worker_libvirt_uri is set, or worker_backend differs from backend"
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
        let message = "worker_libvirt_uri and libvirt_uri are the same host";
        let help = "remove worker_libvirt_uri, or set it to another host";
        values.problem(&["worker_libvirt_uri"], message, help);
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

/// The pools on the workers' own platform exist, and there is a platform for the others.
pub(super) fn check_workers_on(values: &mut Values<'_>, workers: Option<&WorkersOn>, pools: &[Pool]) {
    for name in workers.into_iter().flat_map(|workers| &workers.only) {
        if name != "worker" && pools.iter().all(|pool| pool.name != *name) {
            let message = format!("`worker_backend_for`: `pools` has no pool {name}");
            let help = "use names of pools, and `worker` for the workers outside of pools";
            values.problem(&["worker_backend_for", "pools"], message, help);
        }
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
