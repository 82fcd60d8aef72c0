//! Settings of the platforms, one file each.

mod kubevirt;
mod libvirt;
mod openstack;
mod ovirt;

pub(super) use kubevirt::{is_image as is_kubevirt_image, on_pods, tenant as kubevirt_tenant};

use super::choices::choices;
use super::values::Values;
use crate::cluster::{BackendConfig, SimConfig, WorkersOn};

pub(super) fn backend(values: &mut Values<'_>) -> Option<BackendConfig> {
    read(values, "backend")
}

/// The workers' own platform; `Some(None)` when they are on the same platform as the masters.
pub(super) fn workers_on(values: &mut Values<'_>, others: Option<&BackendConfig>) -> Option<Option<WorkersOn>> {
    let name = values.text("worker_backend");
    let network = values.text("worker_network");
    if name.is_none() || name.as_deref() == others.map(BackendConfig::name) {
        for name in ["worker_network", "worker_image", "worker_helper_image"] {
            if values.is_given(name) {
                let message = format!("{name} has no effect unless worker_backend is set and differs from backend");
                values.warn(name, &message);
            }
        }
        return Some(None);
    }
    let backend = read(values, "worker_backend")?;
    if network.is_none() {
        let hint = "set it to the name of the machine network on that platform, e.g. `worker_network=default`";
        values.missing("worker_network", hint);
    }
    Some(Some(WorkersOn {
        backend,
        network: network?,
    }))
}

/// The platform that this setting names, with its own settings.
fn read(values: &mut Values<'_>, setting: &'static str) -> Option<BackendConfig> {
    match values.text(setting)?.as_str() {
        "kubevirt" => kubevirt::read(values).map(BackendConfig::Kubevirt),
        "libvirt" => libvirt::read(values).map(BackendConfig::Libvirt),
        "openstack" => openstack::read(values).map(BackendConfig::OpenStack),
        "ovirt" => ovirt::read(values).map(BackendConfig::Ovirt),
        "sim" => Some(BackendConfig::Sim(SimConfig {
            state: values.path("sim_state")?,
        })),
        other => {
            let help = format!("supported are {}", choices::<BackendConfig>().join(", "));
            values.problem(&[setting], format!("`{other}` is not a backend"), &help);
            None
        }
    }
}
