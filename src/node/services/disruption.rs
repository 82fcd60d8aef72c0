//! Changes of this program's files on running nodes: which files take effect without a reboot, and how.
//!
//! The machine config operator writes a changed MachineConfig's files on one node after the other, and reboots the node
//! unless a node disruption policy names each file that differs (openshift/machine-config-operator:
//! `pkg/daemon/update.go`, `calculatePostConfigChangeNodeDisruptionActionFromMCDiffs`). It writes all files in the
//! order of the MachineConfig, each one atomically, then takes the actions of the policies
//! (`pkg/daemon/file_writers.go`).

use serde_json::{Value, json};

use super::input::{Input, ServiceError};
use super::manifests::{Manifest, has_file};

/// Files that a running node applies without a reboot, each with the service that must be restarted for it.
///
/// Without a service, a program on the node notices the change itself:
///
/// * the kubelet restarts a static pod whose manifest changes; the manifest has the checksum of files that the program
///   reads only once: haproxy's configuration, keepalived's scripts;
/// * `run`, `ocpdeploy-redirect` and `ocpdeploy-peers` read their tables again every few seconds, `ocpdeploy-resolver`
///   each time it is called;
/// * CoreDNS reads `hosts` again when its time changes, and a zone when its serial number does (coredns/coredns:
///   `plugin/hosts/hostsfile.go`, `plugin/file/file.go`).
const TAKEN_OVER: [(&str, Option<&str>); 14] = [
    ("/etc/kubernetes/manifests/ocpdeploy-coredns.yaml", None),
    ("/etc/kubernetes/manifests/ocpdeploy-haproxy.yaml", None),
    ("/etc/kubernetes/manifests/ocpdeploy-keepalived.yaml", None),
    ("/etc/ocpdeploy/dns/hosts", None),
    ("/etc/ocpdeploy/dns/zone", None),
    ("/etc/ocpdeploy/dnsmasq.conf", Some("ocpdeploy-dns.service")),
    ("/etc/ocpdeploy/haproxy/haproxy.cfg", None),
    ("/etc/ocpdeploy/haproxy/redirects", None),
    ("/etc/ocpdeploy/keepalived/check", None),
    ("/etc/ocpdeploy/keepalived/checks", None),
    ("/etc/ocpdeploy/keepalived/keepalived.conf.in", None),
    ("/etc/ocpdeploy/keepalived/run", None),
    ("/etc/ocpdeploy/peers", None),
    ("/etc/ocpdeploy/resolver", None),
];

fn is_taken_over(path: &str) -> bool {
    TAKEN_OVER.iter().any(|(file, _)| *file == path)
}

/// The policies of all these files. Fields: openshift/api `operator/v1/types_machineconfiguration.go`.
pub fn disruption_policies() -> Vec<Value> {
    let policy = |(path, service): &(&str, Option<&str>)| {
        let action = match service {
            Some(service) => json!({"type": "Restart", "restart": {"serviceName": service}}),
            None => json!({"type": "None"}),
        };
        json!({"path": path, "actions": [action]})
    };
    TAKEN_OVER.iter().map(policy).collect()
}

/// The manifest with these policies; `None` if no node has such a file.
pub fn disruption_policy(input: &Input<'_>) -> Result<Option<Manifest>, ServiceError> {
    let content = json!({
        "apiVersion": "operator.openshift.io/v1",
        "kind": "MachineConfiguration",
        "metadata": {"name": "cluster"},
        "spec": {"nodeDisruptionPolicy": {"files": disruption_policies()}},
    });
    let manifest = Manifest::new("openshift/99_ocpdeploy-disruption-policy.yaml", &content);
    Ok(has_file(input, is_taken_over)?.then_some(manifest))
}

/// Whether a node with these policies reboots when the spec of our MachineConfig changes: it does if anything besides
/// these files differs.
pub fn needs_reboot(before: &Value, after: &Value) -> bool {
    let rest = |spec: &Value| {
        let mut spec = spec.clone();
        let files = spec.pointer_mut("/config/storage/files").and_then(Value::as_array_mut);
        if let Some(files) = files {
            files.retain(|file| !file["path"].as_str().is_some_and(is_taken_over));
        }
        spec
    };
    rest(before) != rest(after)
}
