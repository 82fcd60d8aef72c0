//! Settings of the oVirt backend.

use crate::cluster::OvirtConfig;
use crate::settings::access;
use crate::settings::values::{Values, read_all};

pub(super) fn read(values: &mut Values<'_>) -> Option<OvirtConfig> {
    const CA: &str = "save <ovirt_url>/services/pki-resource?resource=ca-certificate&format=X509-PEM-CA to this file, and \
                      verify its fingerprint with the administrator";
    if values.value("ovirt_url").is_none() {
        let help = "set the URL of the engine, such as `ovirt_url=https://engine.example.com/ovirt-engine`";
        values.missing("ovirt_url", help);
    }
    let url = values.read("ovirt_url", engine_url);
    let user = values.text("ovirt_user");
    let (password, password_file) = access::ovirt_password(values).unzip();
    Some(read_all!(OvirtConfig {
        url,
        user,
        password,
        password_file,
        ca: Some(values.file("ovirt_ca", CA)),
        affinity: values.choice("ovirt_affinity"),
        cluster: values.text("ovirt_cluster"),
        storage_domain: Some(values.text("ovirt_storage_domain")),
        vnic_profile: Some(values.text("ovirt_vnic_profile")),
        hosts: values.texts("ovirt_hosts"),
        worker_label: Some(values.text("ovirt_worker_label")),
        clone: values.switch("ovirt_clone"),
    }))
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
