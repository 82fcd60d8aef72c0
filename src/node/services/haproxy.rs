//! haproxy on masters: balances the API, and forwards requests to routers on other nodes than the VIP's.
//!
//! It listens on its own ports, because masters have an API on 6443 and may have routers on 80 and 443. The host
//! redirects the VIP's ports to them, as openshift/baremetal-runtimecfg does (`pkg/monitor`).
//! Ports 9444, 9445, 9454, 9464, 9480 and 9483 are otherwise unused (openshift/enhancements:
//! `dev-guide/host-port-registry.md`).

use std::net::IpAddr;

use serde_json::{Value, json};

use super::input::{Input, ServiceError, static_pod};
use crate::cluster::{Role, Vip};
use crate::digest::sha256;
use crate::node::host::{HostFile, HostParts, HostUnit};
use crate::state::parameters::NodeAddress;
use crate::templates::render;

const FOLDER: &str = "/etc/ocpdeploy/haproxy";

/// The files of all nodes of a role: masters, if there is anything to balance or to forward.
pub fn parts(input: &Input<'_>, role: Role) -> Result<HostParts, ServiceError> {
    let apis: Vec<&NodeAddress> = input.nodes(Role::Master).filter(|_| balances_api(input)).collect();
    let routers = if forwards_requests(input) {
        input.router_nodes()
    } else {
        vec![]
    };
    if role != Role::Master || (apis.is_empty() && routers.is_empty()) {
        return Ok(HostParts::default());
    }
    // All addresses of IPv4, or of both families.
    let (any, family) = match (input.parameters.api_ip, &input.parameters.ipv6) {
        (IpAddr::V4(_), None) => ("", ""),
        (IpAddr::V4(_), Some(_)) | (IpAddr::V6(_), _) => ("::", " v4v6"),
    };
    let servers = |nodes: Vec<&NodeAddress>| -> Value {
        let server = |node: &NodeAddress| match node.ip {
            IpAddr::V4(ip) => json!({"name": node.name, "host": ip}),
            IpAddr::V6(ip) => json!({"name": node.name, "host": format!("[{ip}]")}),
        };
        nodes.into_iter().map(server).collect()
    };
    let values = json!({
        "cluster": input.config.cluster_domain(),
        "apis": servers(apis),
        "routers": servers(routers),
        "any": any,
        "family": family,
    });
    let template = include_str!("templates/haproxy/haproxy.cfg");
    let config = render("haproxy.cfg", template, &values)?;
    let image = input.release.image("haproxy-router")?;
    let pod = static_pod(
        "haproxy",
        image,
        &[
            "/usr/sbin/haproxy",
            "-W",
            "-db",
            "-f",
            "/etc/ocpdeploy/haproxy/haproxy.cfg",
        ],
        &[("config", FOLDER)],
        json!({
            // haproxy reads its configuration only at its start: a new checksum makes the kubelet restart the pod.
            "env": [{"name": "CONFIGURATION_SHA256", "value": sha256(&config)}],
            // The image's own user; allows only the access to host files that SELinux would deny.
            "securityContext": {"seLinuxOptions": {"type": "spc_t"}},
            // With the default of 1 s, an overloaded node restarts it, which ends all of its connections.
            "livenessProbe": {
                "httpGet": {"host": "127.0.0.1", "port": 9444, "path": "/ready"},
                "initialDelaySeconds": 30,
                "timeoutSeconds": 10,
            },
        }),
    );
    let redirect = include_str!("templates/haproxy/ocpdeploy-redirect");
    Ok(HostParts {
        files: vec![
            HostFile::new(format!("{FOLDER}/haproxy.cfg"), 0o644, config),
            HostFile::new(format!("{FOLDER}/redirects"), 0o644, redirects(input)),
            HostFile::new("/usr/local/bin/ocpdeploy-redirect", 0o755, redirect),
            pod,
        ],
        units: vec![HostUnit {
            name: "ocpdeploy-redirect.service".to_owned(),
            enabled: Some(true),
            contents: Some(include_str!("templates/haproxy/ocpdeploy-redirect.service").to_owned()),
            dropins: vec![],
        }],
    })
}

/// Whether haproxy is between clients and the API: with more than one server, or with both address families, because
/// API servers of many releases then listen on IPv4 only (openshift/cluster-kube-apiserver-operator:
/// `pkg/operator/configobservation/network/observe_network.go`).
fn balances_api(input: &Input<'_>) -> bool {
    input.has_several_apis() || input.parameters.ipv6.is_some()
}

/// Whether the VIP's holder may have no router: the VIP is on masters, and routers are on workers or on some masters.
fn forwards_requests(input: &Input<'_>) -> bool {
    input.has_one_vip() && (input.config.all_workers() > 0 || input.has_several_apis())
}

/// One line each: VIP (one address, or one of each family), its port, haproxy's port, and the port at which haproxy
/// reports whether it has a healthy server.
fn redirects(input: &Input<'_>) -> String {
    let mut lines = Vec::new();
    if balances_api(input) {
        lines.push("6443 9445 9454");
    }
    if forwards_requests(input) {
        lines.push("80 9480 9464");
        lines.push("443 9483 9464");
    }
    let ips: Vec<_> = input.parameters.vip_addresses(Vip::Api);
    let ips: Vec<_> = ips.iter().map(ToString::to_string).collect();
    let ips = ips.join(",");
    lines.iter().map(|line| format!("{ips} {line}\n")).collect()
}
