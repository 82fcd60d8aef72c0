//! Load balancers of Octavia.

use std::collections::BTreeSet;

use ipnetwork::{IpNetwork, Ipv4Network};
use serde_json::{Value, json};

use super::common::{TAG, tag_text, text};
use crate::backend::LoadBalancer;
use crate::cluster::{AddressAssignment, NodeName, Vip};

/// The port where a router reports whether it is ready, by HTTP.
pub const ROUTER_STATUS: u16 = 1936;

/// Ports of the machine config server, which serves secrets.
const MCS: [u16; 2] = [22_623, 22_624];

/// The name of a load balancer, and of its VIP in DNS.
pub fn balancer_name(wanted: &LoadBalancer) -> String {
    wanted.cluster.domain().fqdn(NodeName::vip(wanted.vip).as_str())
}

/// Whether a load balancer is OVN's. It forwards packets with the client's address, and supports only the algorithm
/// SOURCE_IP_PORT, no `allowed_cidrs`, no `monitor_port` and no HTTP monitors (openstack/ovn-octavia-provider:
/// `ovn_octavia_provider/driver.py`, `_check_for_allowed_cidrs`, `_check_member_monitor_options`;
/// `common/constants.py`, `OVN_NATIVE_LB_ALGORITHMS`, `SUPPORTED_HEALTH_MONITOR_TYPES`).
pub fn is_ovn(balancer: &Value) -> bool {
    balancer["provider"] == "ovn"
}

/// A load balancer on a subnet. Octavia creates the port of its VIP: the provider of OVN ignores an existing one
/// (openstack/ovn-octavia-provider: `ovn_octavia_provider/helper.py`, `create_vip_port`).
pub fn balancer(wanted: &LoadBalancer, subnet: &str, provider: Option<&str>) -> Value {
    let mut balancer = json!({
        "name": balancer_name(wanted),
        "description": tag_text(&wanted.cluster),
        "tags": [TAG, wanted.cluster],
        "vip_subnet_id": subnet,
    });
    if let Some(ip) = wanted.ip {
        balancer["vip_address"] = json!(ip);
    }
    if let Some(provider) = provider {
        balancer["provider"] = json!(provider);
    }
    json!({"loadbalancer": balancer})
}

/// The only sources that may send requests to a port; empty: any source.
///
/// The nodes' security group restricts the machine config server, but a load balancer that is a proxy hides the client.
pub fn allowed_cidrs(balancer: &Value, port: u16, near: &[IpNetwork]) -> Vec<String> {
    match MCS.contains(&port) && !is_ovn(balancer) {
        true => near.iter().map(IpNetwork::to_string).collect(),
        false => Vec::new(),
    }
}

pub fn listener(wanted: &LoadBalancer, balancer: &Value, port: u16, cidrs: &[String]) -> Value {
    let mut listener = json!({
        "name": format!("{}:{port}", balancer_name(wanted)),
        "loadbalancer_id": text(balancer, "id"),
        "protocol": "TCP",
        "protocol_port": port,
    });
    if !cidrs.is_empty() {
        listener["allowed_cidrs"] = json!(cidrs);
    }
    json!({"listener": listener})
}

/// Whether a listener accepts exactly these sources.
pub fn has_cidrs(listener: &Value, cidrs: &[String]) -> bool {
    let there = listener["allowed_cidrs"].as_array().into_iter().flatten();
    let there: BTreeSet<_> = there.filter_map(Value::as_str).collect();
    there == cidrs.iter().map(String::as_str).collect()
}

/// The pool of a listener, with the algorithm that upstream uses, too (kubernetes/cloud-provider-openstack:
/// `pkg/openstack/openstack.go`, `LBMethod`), except with OVN.
pub fn pool(wanted: &LoadBalancer, balancer: &Value, listener: &str, port: u16) -> Value {
    json!({"pool": {
        "name": format!("{}:{port}", balancer_name(wanted)),
        "listener_id": listener,
        "protocol": "TCP",
        "lb_algorithm": if is_ovn(balancer) { "SOURCE_IP_PORT" } else { "ROUND_ROBIN" },
    }})
}

/// All members of a pool. Those outside of the subnet are reached through its router.
pub fn members(
    wanted: &LoadBalancer,
    balancer: &Value,
    members: &[AddressAssignment],
    port: u16,
    subnet: (&str, Ipv4Network),
) -> Vec<Value> {
    let status = wanted.checked && wanted.vip == Vip::Ingress && !is_ovn(balancer);
    let member = |member: &AddressAssignment| {
        let mut value = json!({"name": member.name, "address": member.ip, "protocol_port": port});
        if IpNetwork::V4(subnet.1).contains(member.ip) {
            value["subnet_id"] = json!(subnet.0);
        }
        if status {
            value["monitor_port"] = json!(ROUTER_STATUS);
        }
        value
    };
    members.iter().map(member).collect()
}

/// Whether a pool has exactly these members.
pub fn has_members(there: &[Value], wanted: &[Value]) -> bool {
    let key = |member: &Value| {
        ["address", "protocol_port", "monitor_port"]
            .map(|key| member[key].to_string())
            .join(" ")
    };
    let [there, wanted] = [there, wanted].map(|members| members.iter().map(key).collect::<BTreeSet<_>>());
    there == wanted
}

/// The health monitor of a pool, with the paths and intervals of OpenShift's documentation (openshift/openshift-docs:
/// `modules/nw-osp-configuring-external-load-balancer.adoc`).
pub fn monitor(wanted: &LoadBalancer, balancer: &Value, pool: &str, port: u16) -> Value {
    let mut monitor = json!({
        "name": format!("{}:{port}", balancer_name(wanted)),
        "pool_id": pool,
        "type": "TCP",
        "delay": 10,
        "timeout": 5,
        "max_retries": 2,
        "max_retries_down": 2,
    });
    let request = match port {
        _ if is_ovn(balancer) => None,
        6443 => Some(("HTTPS", "/readyz")),
        80 | 443 => Some(("HTTP", "/healthz/ready")),
        _ => None,
    };
    if let Some((kind, path)) = request {
        monitor["type"] = json!(kind);
        monitor["http_method"] = json!("GET");
        monitor["url_path"] = json!(path);
        monitor["expected_codes"] = json!("200");
    }
    json!({"healthmonitor": monitor})
}

/// The parts of a load balancer that have failed, as part of a message. Octavia stores no reason.
pub fn failed_parts(statuses: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    collect_failed(&statuses["statuses"]["loadbalancer"], &mut found);
    found
}

fn collect_failed(whole: &Value, found: &mut BTreeSet<String>) {
    for (key, kind) in [("listeners", "listener"), ("pools", "pool"), ("members", "member")] {
        for part in whole[key].as_array().into_iter().flatten() {
            if part["provisioning_status"] == "ERROR" {
                found.insert(format!("{kind} {}", text(part, "name")));
            }
            collect_failed(part, found);
        }
    }
}

/// The newest version of the API, e.g. `(2, 13)`.
pub fn newest_version(root: &Value) -> Option<(u32, u32)> {
    let versions = root["versions"].as_array().into_iter().flatten();
    let parse = |version: &Value| {
        let (major, minor) = text(version, "id").strip_prefix('v')?.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    versions.filter_map(parse).max()
}
