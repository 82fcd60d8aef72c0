//! Settings of the oVirt backend.

use crate::cluster::OvirtConfig;
use crate::settings::access;
use crate::settings::values::Values;

pub(super) fn read(values: &mut Values<'_>) -> Option<OvirtConfig> {
    const CA: &str = "save <ovirt_url>/services/pki-resource?resource=ca-certificate&format=X509-PEM-CA to this file, and \
                      verify its fingerprint with the administrator";
    if values.value("ovirt_url").is_none() {
        let help = "set the URL of the engine, such as `ovirt_url=https://engine.example.com/ovirt-engine`";
        values.missing("ovirt_url", help);
    }
    let url = values.read("ovirt_url", engine_url);
    let user = values.text("ovirt_user");
    let password = access::ovirt_password(values);
    let ca = values.file("ovirt_ca", CA);
    let affinity = values.choice("ovirt_affinity");
    let cluster = values.text("ovirt_cluster");
    let storage_domain = values.text("ovirt_storage_domain");
    let vnic_profile = values.text("ovirt_vnic_profile");
    let hosts = values.texts("ovirt_hosts");
    let worker_label = values.text("ovirt_worker_label");
    let clone = values.switch("ovirt_clone");
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
        hosts: hosts?,
        worker_label,
        clone: clone?,
    })
}

/// The engine's URL, without a trailing `/api`.
fn engine_url(text: &str) -> Result<String, String> {
    let plain = text.trim_end_matches('/');
    let plain = plain.strip_suffix("/api").unwrap_or(plain);
    let host = plain.strip_prefix("https://").ok_or_else(|| {
        format!("`{text}` does not begin with https://; without https, the password would be sent unencrypted")
    })?;
    let (host, path) = host.split_once('/').unwrap_or((host, "ovirt-engine"));
    if host.is_empty() || host.contains(['@', '?', '#', ' ']) || path.contains(['?', '#', ' ']) {
        return Err(format!(
            "`{text}` is not a URL such as https://engine.example.com/ovirt-engine"
        ));
    }
    Ok(format!("https://{host}/{path}"))
}
