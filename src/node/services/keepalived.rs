//! keepalived: which node holds each VIP.
//!
//! One set of files is used by every node of a role, so that it can be a MachineConfig: the node selects its own lines
//! by its address (`templates/keepalived/run`). A node that is not in the table holds no VIP; when nodes are added,
//! the table is updated everywhere, and `run` reloads it.
//!
//! * A node that can no longer serve releases the VIP itself before the next one takes it, so that two never have
//!   it at once. A VIP is never taken from a node that serves: each move interrupts every connection.
//! * Each VIP has the label `vip`, so that OVN-Kubernetes does not mistake it for the node's address
//!   (ovn-kubernetes/ovn-kubernetes: `go-controller/pkg/util/net_linux.go`, `IsAddressAddedByKeepAlived`).
//! * Without IPv4, advertisements have no password: VRRP 3 has none, and keepalived rejects one (acassen/keepalived:
//!   `keepalived/vrrp/vrrp.c`, `vrrp_complete_instance`). Nodes send them to each other only.
//! * With two address families, the IPv6 address of a VIP moves with its IPv4 address, which VRRP advertises.
//!   Advertisements have addresses of one family; others are `excluded` from them (keepalived.conf(5)). An IPv6 address
//!   has no label; keepalived marks it as deprecated, which has the same effect as the label `vip`.
//! * All nodes have different priorities, otherwise two would replace a failed holder.
//! * The bootstrap has a higher priority than all masters, and gets the VIP back after a temporary failure of its API
//!   (openshift/machine-config-operator issue 2586).
//!
//! The health checks are those of openshift/machine-config-operator on other platforms (`templates/common/on-prem`).

use std::net::{IpAddr, Ipv6Addr};

use serde::Serialize;
use serde_json::json;

use super::input::{Input, ServiceError, static_pod};
use crate::cluster::{Role, Vip};
use crate::digest::sha256;
use crate::node::host::{HostFile, HostParts};
use crate::state::parameters::NodeAddress;
use crate::templates::render;

const FOLDER: &str = "/etc/ocpdeploy/keepalived";

/// Higher than any master's.
const BOOTSTRAP_PRIORITY: u8 = 240;

/// A check that a node runs on itself every `interval` seconds: a function of the script `check`.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
struct Check {
    name: &'static str,
    interval: u8,
    /// Consecutive failures that count as down.
    fall: u8,
    /// Consecutive successes that count as up.
    rise: u8,
    /// Added to the priority on success; 0: a failure removes the VIP from the node.
    weight: u8,
    /// Whether it counts as up before its first result.
    first: bool,
}

impl Check {
    /// A line of the file `checks`: name, arguments of the script, and the state before its first result.
    ///
    /// keepalived multiplies a state by the weight; without a weight, any state but 0 is a failure
    /// (acassen/keepalived: `doc/man/man5/keepalived.conf.5.in`, "Track files").
    fn line(&self) -> String {
        let state = |up: bool| u8::from(up == (self.weight > 0));
        let Self {
            name,
            interval,
            fall,
            rise,
            first,
            ..
        } = self;
        format!(
            "{name} {interval},{fall},{rise},{},{} {}\n",
            state(true),
            state(false),
            state(*first)
        )
    }
}

/// A rejected connection is detected after 3 failures within 3 seconds, so that another node has the VIP before 5
/// seconds have passed. A slow API is not a failed one: see the script.
const API: Check = Check {
    name: "api",
    interval: 1,
    fall: 3,
    rise: 2,
    weight: 0,
    first: true,
};

/// The weights only determine the order. Each is larger than the difference between the ranks of five masters.
const API_BALANCED: Check = Check {
    name: "api_balanced",
    interval: 2,
    fall: 3,
    rise: 3,
    weight: 100,
    first: false,
};

const API_HERE: Check = Check {
    name: "api_here",
    weight: 50,
    ..API_BALANCED
};

/// The MCS is not balanced: clients use the one on the VIP's holder.
const MCS_HERE: Check = Check {
    name: "mcs_here",
    weight: 40,
    ..API_BALANCED
};

const ROUTER: Check = Check {
    name: "router",
    interval: 1,
    fall: 2,
    rise: 2,
    weight: 0,
    first: false,
};

/// A VIP and all nodes that may hold it.
#[derive(Serialize)]
struct Instance<'a> {
    name: Vip,
    ip: IpAddr,
    /// Moves with `ip`.
    ipv6: Option<Ipv6Addr>,
    virtual_router_id: u8,
    /// Takes the VIP from a node with lower priority.
    preempts: bool,
    nodes: Vec<Candidate<'a>>,
    checks: Vec<&'static str>,
}

#[derive(Serialize)]
struct Candidate<'a> {
    #[serde(flatten)]
    node: &'a NodeAddress,
    priority: u8,
}

/// The files of all nodes of a role; empty if the role holds no VIP.
///
/// The configuration contains the VRRP password, so its file has mode 0600.
pub fn parts(input: &Input<'_>, role: Role) -> Result<HostParts, ServiceError> {
    let mut instances = Vec::new();
    let mut checks = Vec::new();
    if matches!(role, Role::Bootstrap | Role::Master) {
        let own = api_checks(input, role);
        instances.push(api(input, role, &own));
        checks.extend(own);
    }
    if !input.has_one_vip() && input.router_nodes().iter().any(|node| node.role == role) {
        let own = ingress_checks(input);
        instances.push(ingress(input, &own));
        checks.extend(own);
    }
    if instances.is_empty() {
        return Ok(HostParts::default());
    }
    let values = json!({
        "cluster": input.config.cluster_domain(),
        "role": role,
        "checks": checks,
        "instances": instances,
        "password": input.parameters.vrrp_password.as_ref().map(|password| password.expose()),
    });
    let template = include_str!("templates/keepalived/keepalived.conf.in");
    let config = render("keepalived.conf.in", template, &values)?;
    let image = input.release.image("keepalived-ipfailover")?;
    let (run, check) = (
        include_str!("templates/keepalived/run"),
        include_str!("templates/keepalived/check"),
    );
    let script = |name: &str, text: &str| HostFile::new(format!("{FOLDER}/{name}"), 0o755, text);
    let mut files = vec![
        HostFile::new(format!("{FOLDER}/keepalived.conf.in"), 0o600, config),
        script("run", run),
    ];
    if !checks.is_empty() {
        files.push(script("check", check));
    }
    let lines: String = checks.iter().map(Check::line).collect();
    files.push(HostFile::new(format!("{FOLDER}/checks"), 0o644, lines));
    files.push(static_pod(
        "keepalived",
        image,
        &["/bin/bash", "/etc/ocpdeploy/keepalived/run"],
        &[("config", FOLDER), ("state", "/run/ocpdeploy")],
        json!({
            "securityContext": {"privileged": true},
            // Running scripts do not notice changes of their files: a new checksum makes the kubelet restart the pod.
            "env": [{"name": "SCRIPTS_SHA256", "value": sha256(format!("{run}{check}"))}],
        }),
    ));
    Ok(HostParts { files, units: vec![] })
}

/// Nothing is checked if no other node can have the VIP.
fn api_checks(input: &Input<'_>, role: Role) -> Vec<Check> {
    match role {
        Role::Bootstrap => vec![API],
        _ if input.has_several_apis() => vec![API, API_BALANCED, API_HERE, MCS_HERE],
        _ => vec![],
    }
}

fn ingress_checks(input: &Input<'_>) -> Vec<Check> {
    match input.router_nodes().len() {
        1 => vec![],
        _ => vec![ROUTER],
    }
}

fn api<'a>(input: &Input<'a>, role: Role, checks: &[Check]) -> Instance<'a> {
    let bootstrap = input.nodes(Role::Bootstrap).map(|node| Candidate {
        node,
        priority: BOOTSTRAP_PRIORITY,
    });
    let masters = ranked(input.nodes(Role::Master), 40, 8);
    Instance {
        name: Vip::Api,
        ip: input.parameters.api_ip,
        ipv6: input.ipv6(Vip::Api),
        virtual_router_id: input.parameters.virtual_router_id,
        preempts: role == Role::Bootstrap,
        nodes: bootstrap.chain(masters).collect(),
        checks: checks.iter().map(|check| check.name).collect(),
    }
}

fn ingress<'a>(input: &Input<'a>, checks: &[Check]) -> Instance<'a> {
    Instance {
        name: Vip::Ingress,
        ip: input.parameters.ingress_ip,
        ipv6: input.ipv6(Vip::Ingress),
        virtual_router_id: input.parameters.ingress_virtual_router_id,
        preempts: false,
        nodes: ranked(input.router_nodes(), 250, 4).collect(),
        checks: checks.iter().map(|check| check.name).collect(),
    }
}

/// Priorities from `first` downwards in steps: of two nodes that wait to replace a failed holder, the higher is first
/// by 1/256 s for each point (RFC 3768: skew time).
fn ranked<'a>(
    nodes: impl IntoIterator<Item = &'a NodeAddress>,
    first: u8,
    step: u8,
) -> impl Iterator<Item = Candidate<'a>> {
    let priorities = std::iter::successors(Some(first), move |last| Some(last.saturating_sub(step).max(1)));
    nodes
        .into_iter()
        .zip(priorities)
        .map(|(node, priority)| Candidate { node, priority })
}
