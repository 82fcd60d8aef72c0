//! Ports and security groups.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};
use serde_json::{Value, json};

use super::balancers::ROUTER_STATUS;
use super::common::{TAG, tag_text, text};
use crate::backend::is_forbidden;
use crate::cluster::{ClusterId, Mac, MachineName, NodeName, Role, Vip};

/// A port of Neutron.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub id: String,
    pub name: String,
    pub description: String,
    pub network: String,
    pub mac: Option<Mac>,
    pub ips: Vec<Ipv4Addr>,
    pub ipv6: Vec<Ipv6Addr>,
    /// The server that uses it; empty if none.
    pub device: String,
    pub device_owner: String,
    pub groups: Vec<String>,
    /// Whether Neutron filters its packets.
    pub port_security: bool,
    /// The allowed address pairs, as Neutron stores them.
    pub pairs: Vec<Value>,
}

impl Port {
    pub fn read(port: &Value) -> Self {
        let list = |key: &str| port[key].as_array().into_iter().flatten();
        let ips = || list("fixed_ips").filter_map(|address| address["ip_address"].as_str());
        Self {
            id: text(port, "id").to_owned(),
            name: text(port, "name").to_owned(),
            description: text(port, "description").to_owned(),
            network: text(port, "network_id").to_owned(),
            mac: text(port, "mac_address").parse().ok(),
            ips: ips().filter_map(|ip| ip.parse().ok()).collect(),
            ipv6: ips().filter_map(|ip| ip.parse().ok()).collect(),
            device: text(port, "device_id").to_owned(),
            device_owner: text(port, "device_owner").to_owned(),
            groups: list("security_groups")
                .filter_map(|id| Some(id.as_str()?.to_owned()))
                .collect(),
            port_security: port["port_security_enabled"] != false,
            pairs: list("allowed_address_pairs").cloned().collect(),
        }
    }

    pub fn is_of(&self, cluster: &ClusterId) -> bool {
        self.description == tag_text(cluster)
    }

    /// The further addresses that Neutron lets through; `None` if it filters nothing. A pair is an address or a network,
    /// with the MAC of a sender (openstack/neutron: `neutron/db/allowedaddresspairs_db.py`).
    pub fn allowed(&self) -> Option<Vec<IpNetwork>> {
        let network = |pair: &Value| {
            let mac: Option<Mac> = pair["mac_address"].as_str().and_then(|mac| mac.parse().ok());
            let is_ours = mac.is_none() || mac == self.mac;
            text(pair, "ip_address").parse().ok().filter(|_| is_ours)
        };
        self.port_security
            .then(|| self.pairs.iter().filter_map(network).collect())
    }

    /// Whether Neutron drops packets from this further address.
    pub fn forbids(&self, ip: IpAddr) -> bool {
        is_forbidden(self.allowed().as_deref(), ip)
    }

    /// The node or VIP for which it reserves an address; `None`: it belongs to a machine and is deleted with it.
    pub fn reserved_for(&self, cluster: &ClusterId) -> Option<NodeName> {
        let host = cluster.domain().host_of(&self.name)?;
        serde_json::from_value(json!(host)).ok()
    }
}

/// The name of a port that is deleted with its machine. Host names contain no colon.
pub fn port_of(machine: &MachineName, index: usize) -> String {
    format!("{machine}:{index}")
}

/// The addresses of the VIPs that nodes of this role may use, in one or two families.
pub fn pairs_of(role: Role, cluster: &ClusterId, ports: &[Port], ipv6: Option<Ipv6Network>) -> Vec<IpAddr> {
    let of_vip = |vip: &Vip| {
        let name = NodeName::vip(*vip);
        ports
            .iter()
            .filter(move |port| port.reserved_for(cluster).as_ref() == Some(&name))
    };
    let addresses = |port: &Port| {
        let second = port
            .ipv6
            .iter()
            .filter(|ip| ipv6.is_some_and(|network| network.contains(**ip)));
        let first = port.ips.iter().map(|ip| IpAddr::V4(*ip));
        first.chain(second.map(|ip| IpAddr::V6(*ip))).collect::<Vec<_>>()
    };
    role.vips().iter().flat_map(of_vip).flat_map(addresses).collect()
}

/// The rules of a cluster's security group, without its id.
///
/// Neutron treats the allowed addresses of a port as its own, so a rule for the group's members includes the VIPs.
///
/// API and ingress are open. The machine config server serves secrets, and is reachable by a floating IP: it is open only
/// to the machine network and to `us`, this computer, which embeds its configs and queries the guests of a rehearsal. So
/// are SSH and node ports, and to the networks of `admit`.
pub fn rules(
    group: &str,
    network: Option<Ipv4Network>,
    us: Option<IpAddr>,
    admit: &[IpNetwork],
    rehearsal: bool,
    balanced: bool,
) -> Vec<Value> {
    let family = Family {
        group,
        name: "IPv4",
        icmp: "icmp",
    };
    let admit = admit.iter().copied().filter(IpNetwork::is_ipv4);
    let mut rules = family.rules(&near(network.map(IpNetwork::V4), us), admit, rehearsal);
    if let Some(network) = &network {
        rules.push(from(family.rule(Some("112"), None), network));
        // A load balancer in the machine network asks routers whether they are ready.
        if balanced {
            rules.push(from(
                family.rule(Some("tcp"), Some((ROUTER_STATUS, ROUTER_STATUS))),
                network,
            ));
        }
    }
    rules
}

/// As `rules`, in the second address family of the machine network. VRRP is of the first one.
pub fn ipv6_rules(
    group: &str,
    network: Ipv6Network,
    us: Option<IpAddr>,
    admit: &[IpNetwork],
    rehearsal: bool,
) -> Vec<Value> {
    // The name that Neutron stores (openstack/neutron: `neutron/db/securitygroups_db.py`,
    // `_make_canonical_ipv6_icmp_protocol`).
    let family = Family {
        group,
        name: "IPv6",
        icmp: "ipv6-icmp",
    };
    let admit = admit.iter().copied().filter(IpNetwork::is_ipv6);
    family.rules(&near(Some(network.into()), us), admit, rehearsal)
}

/// The rules of one address family.
struct Family<'a> {
    group: &'a str,
    name: &'static str,
    icmp: &'static str,
}

impl Family<'_> {
    fn rule(&self, protocol: Option<&str>, ports: Option<(u16, u16)>) -> Value {
        let mut rule = json!({
            "direction": "ingress",
            "ethertype": self.name,
            "security_group_id": self.group,
            // Tells our rules from those of the user, who may add some to the group.
            "description": TAG,
        });
        if let Some(protocol) = protocol {
            rule["protocol"] = json!(protocol);
        }
        if let Some((first, last)) = ports {
            rule["port_range_min"] = json!(first);
            rule["port_range_max"] = json!(last);
        }
        rule
    }

    fn rules(&self, near: &[IpNetwork], admit: impl Iterator<Item = IpNetwork>, rehearsal: bool) -> Vec<Value> {
        // Everything between the nodes: etcd, kubelet, the network plugin, and VRRP.
        let mut among = self.rule(None, None);
        among["remote_group_id"] = json!(self.group);
        let mut rules = vec![among];
        for prefix in near {
            rules.push(from(self.rule(Some("tcp"), Some((22_623, 22_624))), prefix));
        }
        let admitted = near.iter().copied().chain(admit);
        let admitted: BTreeSet<_> = admitted.map(|network| network.to_string()).collect();
        // SSH, node ports, and the report of a rehearsal's guests.
        let mut served = vec![("tcp", (22, 22)), ("tcp", (30_000, 32_767)), ("udp", (30_000, 32_767))];
        if rehearsal {
            served.push(("tcp", (8080, 8080)));
        }
        for prefix in &admitted {
            for (protocol, ports) in &served {
                let rule = self.rule(Some(protocol), Some(*ports));
                rules.push(if is_world(prefix) { rule } else { from(rule, prefix) });
            }
        }
        // A new group has this rule, unless the administrator changed the default ones (openstack/neutron:
        // `neutron/extensions/security_groups_default_rules.py`).
        let mut out = self.rule(None, None);
        out["direction"] = json!("egress");
        rules.push(out);
        rules.push(self.rule(Some(self.icmp), None));
        for port in [80, 443, 6443] {
            rules.push(self.rule(Some("tcp"), Some((port, port))));
        }
        rules
    }
}

/// The rule for packets from this network only.
fn from(mut rule: Value, network: &dyn Display) -> Value {
    rule["remote_ip_prefix"] = json!(network.to_string());
    rule
}

/// The machine network, and this computer if it is elsewhere.
pub fn near(network: Option<IpNetwork>, us: Option<IpAddr>) -> Vec<IpNetwork> {
    let us = us.filter(|us| network.is_none_or(|network| !network.contains(*us)));
    network.into_iter().chain(us.map(IpNetwork::from)).collect()
}

/// Whether a rule is ours and no longer required: this computer had another address, or the settings changed.
pub fn is_outdated(existing: &Value, wanted: &[Value]) -> bool {
    existing["description"] == TAG && !wanted.iter().any(|rule| same_rule(existing, rule))
}

/// To Neutron the same as no prefix (openstack/neutron: `neutron/db/securitygroups_db.py`, `_rule_to_key`, which also
/// ignores descriptions).
fn is_world(prefix: &str) -> bool {
    prefix == "0.0.0.0/0" || prefix == "::/0"
}

/// Whether an existing rule is equal to the required one.
pub fn same_rule(existing: &Value, wanted: &Value) -> bool {
    let keys = [
        "direction",
        "ethertype",
        "protocol",
        "port_range_min",
        "port_range_max",
        "remote_group_id",
        "remote_ip_prefix",
    ];
    let value = |rule: &Value, key: &str| match &rule[key] {
        Value::String(prefix) if is_world(prefix) => Value::Null,
        value => value.clone(),
    };
    let is_vrrp = |rule: &Value| rule["protocol"] == "112" || rule["protocol"] == "vrrp";
    keys.iter().all(|key| {
        value(existing, key) == value(wanted, key) || *key == "protocol" && is_vrrp(existing) && is_vrrp(wanted)
    })
}
