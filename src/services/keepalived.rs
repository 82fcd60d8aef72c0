//! keepalived: which node holds each VIP.
//!
//! One set of files serves every node of a role, so that they can be a MachineConfig: the node finds its own lines
//! by its address (`templates/services/keepalived/run`). Priorities and checks follow what
//! openshift/machine-config-operator does on other platforms (`templates/common/on-prem`), spread wider so that no
//! two nodes are ever equal.

use std::net::Ipv4Addr;

use serde::Serialize;
use serde_json::json;

use super::{Input, ServiceError, static_pod};
use crate::cluster::{Role, Vip};
use crate::host::{HostFile, HostParts};
use crate::parameters::NodeAddress;
use crate::templates::render;

const FOLDER: &str = "/etc/ocpdeploy/keepalived";

/// Beats every master, whatever its checks say.
const BOOTSTRAP_PRIORITY: u8 = 240;

/// A script that keepalived runs every `interval` seconds.
#[derive(Serialize)]
struct Check {
    name: &'static str,
    command: &'static str,
    interval: u8,
    /// Failures in a row that count as one.
    fall: u8,
    /// Successes in a row that count as one.
    rise: u8,
    /// Added to the priority on success; 0: a failure takes the node out.
    weight: u8,
}

/// A VIP and all nodes that may hold it.
#[derive(Serialize)]
struct Instance<'a> {
    name: Vip,
    ip: Ipv4Addr,
    virtual_router_id: u8,
    nodes: Vec<Candidate<'a>>,
    checks: Vec<&'static str>,
}

#[derive(Serialize)]
struct Candidate<'a> {
    #[serde(flatten)]
    node: &'a NodeAddress,
    priority: u8,
}

/// What all nodes of a role get; nothing where the role holds no VIP.
///
/// The configuration holds the VRRP password, so its file is 0600.
pub fn parts(input: &Input<'_>, role: Role) -> Result<HostParts, ServiceError> {
    let mut instances = Vec::new();
    let mut checks = Vec::new();
    if matches!(role, Role::Bootstrap | Role::Master) {
        let own = api_checks(input, role);
        instances.push(api(input, &own));
        checks.extend(own);
    }
    if !input.has_one_vip() && input.router_nodes().iter().any(|node| node.role == role) {
        instances.push(ingress(input));
        checks.push(ROUTER);
    }
    if instances.is_empty() {
        return Ok(HostParts::default());
    }
    let values = json!({
        "cluster": input.config.id(),
        "role": role,
        "checks": checks,
        "instances": instances,
        "password": input.parameters.vrrp_password.as_ref().map(|password| password.expose()),
    });
    let template = include_str!("../templates/services/keepalived/keepalived.conf.in");
    let config = render("keepalived.conf.in", template, &values)?;
    let image = input.release.image("keepalived-ipfailover")?;
    let script = |name: &str, text: &str| HostFile::new(format!("{FOLDER}/{name}"), 0o755, text);
    let mut files = vec![
        HostFile::new(format!("{FOLDER}/keepalived.conf.in"), 0o600, config),
        script("run", include_str!("../templates/services/keepalived/run")),
    ];
    if checks.iter().any(|check| check.name == BOOTSTRAP_API.name) {
        let text = include_str!("../templates/services/keepalived/check-bootstrap-api");
        files.push(script("check-bootstrap-api", text));
    }
    if checks.iter().any(|check| check.name == BALANCED_API.name) {
        let text = include_str!("../templates/services/keepalived/check-api-balanced");
        files.push(script("check-api-balanced", text));
    }
    files.push(static_pod(
        "keepalived",
        image,
        &["/bin/bash", "/etc/ocpdeploy/keepalived/run"],
        &[("config", FOLDER), ("state", "/run/ocpdeploy")],
        json!({"securityContext": {"privileged": true}}),
    ));
    Ok(HostParts { files, units: vec![] })
}

/// Fails 3 times within 3 seconds when the API ends, so that a master has the VIP before 5 have gone by.
const BOOTSTRAP_API: Check = Check {
    name: "bootstrap_api",
    command: "/etc/ocpdeploy/keepalived/check-bootstrap-api",
    interval: 1,
    fall: 3,
    rise: 2,
    weight: 0,
};

const BALANCED_API: Check = Check {
    name: "api_balanced",
    command: "/etc/ocpdeploy/keepalived/check-api-balanced",
    interval: 2,
    fall: 3,
    rise: 3,
    weight: 80,
};

const OWN_API: Check = Check {
    name: "api_here",
    command: "/usr/bin/curl -kfs --max-time 2 -o /dev/null https://127.0.0.1:6443/readyz",
    interval: 2,
    fall: 3,
    rise: 3,
    weight: 40,
};

/// The MCS is not balanced: its clients meet the one of the VIP's holder.
const OWN_MCS: Check = Check {
    name: "mcs_here",
    command: "/usr/bin/curl -kfs --max-time 2 -o /dev/null https://127.0.0.1:22623/healthz",
    interval: 2,
    fall: 3,
    rise: 3,
    weight: 20,
};

/// Weighs more than any difference of rank, so that the VIP is where a router is, and somewhere when there is none.
const ROUTER: Check = Check {
    name: "router_here",
    command: "/usr/bin/curl -fs --max-time 2 -o /dev/null http://127.0.0.1:1936/healthz/ready",
    interval: 1,
    fall: 2,
    rise: 3,
    weight: 150,
};

fn api_checks(input: &Input<'_>, role: Role) -> Vec<Check> {
    match role {
        Role::Bootstrap => vec![BOOTSTRAP_API],
        _ if super::haproxy::balances_api(input) => vec![BALANCED_API, OWN_API, OWN_MCS],
        _ => vec![OWN_API, OWN_MCS],
    }
}

fn api<'a>(input: &Input<'a>, checks: &[Check]) -> Instance<'a> {
    let parameters = input.parameters;
    let bootstrap = input.nodes(Role::Bootstrap).map(|node| Candidate {
        node,
        priority: BOOTSTRAP_PRIORITY,
    });
    let masters = ranked(input.nodes(Role::Master), 26, 4);
    Instance {
        name: Vip::Api,
        ip: parameters.api_ip,
        virtual_router_id: parameters.virtual_router_id,
        nodes: bootstrap.chain(masters).collect(),
        checks: checks.iter().map(|check| check.name).collect(),
    }
}

fn ingress<'a>(input: &Input<'a>) -> Instance<'a> {
    let parameters = input.parameters;
    Instance {
        name: Vip::Ingress,
        ip: parameters.ingress_ip,
        virtual_router_id: parameters.ingress_virtual_router_id,
        nodes: ranked(input.router_nodes().into_iter(), 100, 2).collect(),
        checks: vec![ROUTER.name],
    }
}

/// Priorities from `first` downwards in steps: of two that wait for a dead holder, the higher is first by
/// 1/256 s a step (RFC 3768, skew time).
fn ranked<'a>(
    nodes: impl Iterator<Item = &'a NodeAddress>,
    first: u8,
    step: u8,
) -> impl Iterator<Item = Candidate<'a>> {
    let priorities = std::iter::successors(Some(first), move |last| Some(last.saturating_sub(step).max(2)));
    nodes
        .zip(priorities)
        .map(|(node, priority)| Candidate { node, priority })
}
