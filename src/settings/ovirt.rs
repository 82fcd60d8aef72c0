//! Settings of the oVirt backend.

use super::values::Values;
use super::{access, checks};
use crate::cluster::{Affinity, OvirtConfig, OvirtIgnition};

pub(super) fn read(values: &mut Values<'_>) -> Option<OvirtConfig> {
    if values.value("ovirt_url").is_none() {
        values.missing(
            "ovirt_url",
            "the engine's address, such as `ovirt_url=https://engine.example.com/ovirt-engine`",
        );
    }
    let url = values.read("ovirt_url", checks::ovirt_url);
    let user = values.text("ovirt_user");
    let password = access::ovirt_password(values);
    let ca = values.value("ovirt_ca").and_then(|_| values.path("ovirt_ca"));
    let affinity = values.choice(
        "ovirt_affinity",
        &[
            ("soft", Affinity::Soft),
            ("hard", Affinity::Hard),
            ("off", Affinity::Off),
        ],
    );
    let cluster = values.text("ovirt_cluster");
    let storage_domain = values.text("ovirt_storage_domain");
    let vnic_profile = values.text("ovirt_vnic_profile");
    let hosts = values.list("ovirt_hosts", |text| Ok::<_, String>(text.to_owned()));
    let worker_label = values.text("ovirt_worker_label");
    let clone = values.switch("ovirt_clone");
    let ignition = values.choice(
        "ovirt_ignition",
        &[("auto", OvirtIgnition::Auto), ("hook", OvirtIgnition::Hook)],
    );
    if let Some(path) = ca.as_ref().filter(|path| !(values.sources.is_file)(path)) {
        let message = format!("there is no file {}", path.display());
        let hint = "save <ovirt_url>/services/pki-resource?resource=ca-certificate&format=X509-PEM-CA there, and compare its fingerprint with the administrator's";
        values.problem(&["ovirt_ca"], message, hint);
        return None;
    }
    let (password, password_file) = password?;
    Some(OvirtConfig {
        url: url?,
        user: user?,
        password,
        password_file,
        ca,
        cluster: cluster?,
        storage_domain,
        vnic_profile,
        affinity: affinity?,
        hosts: hosts.unwrap_or_default(),
        worker_label,
        clone: clone?,
        ignition: ignition?,
    })
}
