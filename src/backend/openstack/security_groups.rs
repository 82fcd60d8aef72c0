//! The security group of a cluster, and its rules.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};
use serde_json::{Value, json};

use super::auth::Service::Network as NEUTRON;
use super::cloud::OpenStack;
use super::network::Subnet;
use super::ports::Port;
use super::wire::{ROUTER_STATUS, TAG, tag_text, text};
use crate::backend::ownership::conflict;
use crate::backend::response::part;
use crate::backend::{BackendError, BackendErrorKind};
use crate::cluster::ClusterId;

impl OpenStack {
    /// The cluster's security group with all its rules.
    pub(super) async fn security_group(
        &self,
        cluster: &ClusterId,
        network: Option<&Subnet>,
        ipv6: Option<Ipv6Network>,
    ) -> Result<String, BackendError> {
        let _alone = self.groups.lock().await;
        let group = match self.security_groups(cluster).await?.into_iter().next() {
            Some(group) => group,
            None => {
                let group = json!({"security_group": {"name": tag_text(cluster), "description": tag_text(cluster)}});
                part(
                    self.session.post(NEUTRON, "/security-groups", &group).await?,
                    "/security_group",
                )
            }
        };
        let id = text(&group, "id").to_owned();
        let there = group["security_group_rules"].as_array().cloned().unwrap_or_default();
        let wanted = self.wanted_rules(Some(cluster), &id, network, ipv6).await?;
        let lacking: Vec<_> = wanted
            .iter()
            .filter(|rule| !there.iter().any(|other| same_rule(other, rule)))
            .collect();
        if !lacking.is_empty() {
            let rules = json!({"security_group_rules": lacking});
            self.session.post(NEUTRON, "/security-group-rules", &rules).await?;
        }
        for rule in there.iter().filter(|rule| is_outdated(rule, &wanted)) {
            let path = format!("/security-group-rules/{}", text(rule, "id"));
            self.session.delete(NEUTRON, &path).await?;
        }
        Ok(id)
    }

    /// The rules of a group, which does not have to exist.
    pub(super) async fn wanted_rules(
        &self,
        cluster: Option<&ClusterId>,
        group: &str,
        network: Option<&Subnet>,
        ipv6: Option<Ipv6Network>,
    ) -> Result<Vec<Value>, BackendError> {
        let mut us = self.our_addresses(cluster, network).await?;
        us.extend(ipv6.and_then(|network| our_address_towards(network.network().into())));
        let (admit, rehearsal) = (&self.config.admit, self.config.rehearsal);
        let balanced = self.config.balancers.is_some();
        let mut wanted = rules(
            group,
            network.map(|subnet| subnet.cidr),
            &us,
            admit,
            rehearsal,
            balanced,
        );
        if let Some(network) = ipv6 {
            wanted.extend(ipv6_rules(group, network, &us, admit, rehearsal));
        }
        Ok(wanted)
    }

    /// The addresses of this computer, as nodes see them on connections to their subnet and to floating IPs of the VIPs.
    pub(super) async fn our_addresses(
        &self,
        cluster: Option<&ClusterId>,
        subnet: Option<&Subnet>,
    ) -> Result<BTreeSet<IpAddr>, BackendError> {
        let gateway = |subnet: &Subnet| IpAddr::V4(subnet.gateway.unwrap_or(subnet.cidr.network()));
        let mut towards: Vec<IpAddr> = subnet.map(gateway).into_iter().collect();
        let given = [self.config.api_floating_ip, self.config.ingress_floating_ip];
        towards.extend(given.into_iter().flatten().map(IpAddr::V4));
        if let Some(cluster) = cluster.filter(|_| self.config.external_network.is_some()) {
            let created = self.floating_ips_of(cluster).await?;
            let ips = created
                .iter()
                .filter_map(|floating| text(floating, "floating_ip_address").parse().ok());
            towards.extend::<Vec<IpAddr>>(ips.collect());
        }
        let ours = towards.into_iter().filter_map(our_address_towards);
        Ok(ours.chain(self.config.client_ip).collect())
    }

    pub(super) async fn security_groups(&self, cluster: &ClusterId) -> Result<Vec<Value>, BackendError> {
        let filter = [("description", &*tag_text(cluster))];
        self.session
            .list_own_where(NEUTRON, "/security-groups", &filter, "security_groups")
            .await
    }

    /// Deletes the cluster's security group if no port uses it.
    pub(super) async fn delete_security_group(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        for group in self.security_groups(cluster).await? {
            let path = format!("/security-groups/{}", text(&group, "id"));
            match self.session.delete(NEUTRON, &path).await {
                Err(failure) if failure.kind == BackendErrorKind::Conflict => {}
                other => drop(other?),
            }
        }
        Ok(())
    }
}

impl OpenStack {
    /// Fails if a port of another owner uses the group, because Neutron would not delete the group. The error names the
    /// port.
    pub(super) async fn refuse_users_of_group(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        for group in self.security_groups(cluster).await? {
            let (name, id) = (text(&group, "name"), text(&group, "id"));
            let ports = self.ports(&[]).await?;
            let is_user = |port: &&Port| !port.is_of(cluster) && port.groups.iter().any(|group| group == id);
            if let Some(port) = ports.iter().find(is_user) {
                let message = format!(
                    "security group {name} is in use by port {} {}, which belongs to another owner",
                    port.id, port.name
                );
                return Err(conflict(message.trim_end()).hint(format!(
                    "remove it from the port with `openstack port unset --security-group {id} {}`, and run the same command \
                     again",
                    port.id
                )));
            }
        }
        Ok(())
    }
}

/// The address of this computer on connections to another one. No packet is sent.
pub(super) fn our_address_towards(destination: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match destination {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((destination, 9)).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

/// The rules of a cluster's security group, without its id.
///
/// Neutron treats the allowed addresses of a port as its own, so a rule for the group's members includes the VIPs.
///
/// API and ingress are open. The machine config server serves secrets, and is reachable by a floating IP: it is open only
/// to the machine network and to `us`, this computer, which embeds its configs and queries the guests of a rehearsal.
/// SSH and node ports are open to the same sources and to the networks of `admit`.
fn rules(
    group: &str,
    network: Option<Ipv4Network>,
    us: &BTreeSet<IpAddr>,
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
    let us = us.iter().copied().filter(IpAddr::is_ipv4);
    let mut rules = family.rules(&near(network.map(IpNetwork::V4), us), admit, rehearsal);
    if let Some(network) = &network {
        rules.push(from(family.rule(Some("112"), None), network));
        // A load balancer in the machine network checks whether routers are ready.
        if balanced {
            rules.push(from(
                family.rule(Some("tcp"), Some((ROUTER_STATUS, ROUTER_STATUS))),
                network,
            ));
        }
    }
    rules
}

/// Like `rules`, for the second address family of the machine network. VRRP uses only the first one.
fn ipv6_rules(
    group: &str,
    network: Ipv6Network,
    us: &BTreeSet<IpAddr>,
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
    let us = us.iter().copied().filter(IpAddr::is_ipv6);
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
            // Distinguishes our rules from those that users may add to the group.
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

/// The machine network, and those addresses of this computer that are elsewhere.
pub(super) fn near(network: Option<IpNetwork>, us: impl IntoIterator<Item = IpAddr>) -> Vec<IpNetwork> {
    let us = us.into_iter();
    let elsewhere = us.filter(|us| network.is_none_or(|network| !network.contains(*us)));
    network.into_iter().chain(elsewhere.map(IpNetwork::from)).collect()
}

/// Whether a rule is ours and no longer required: this computer had another address, or the settings changed.
fn is_outdated(existing: &Value, wanted: &[Value]) -> bool {
    existing["description"] == TAG && !wanted.iter().any(|rule| same_rule(existing, rule))
}

/// To Neutron the same as no prefix (openstack/neutron: `neutron/db/securitygroups_db.py`, `_rule_to_key`, which also
/// ignores descriptions).
fn is_world(prefix: &str) -> bool {
    prefix == "0.0.0.0/0" || prefix == "::/0"
}

/// Whether an existing rule is equal to the required one.
pub(super) fn same_rule(existing: &Value, wanted: &Value) -> bool {
    let keys = [
        "direction",
        "ethertype",
        "protocol",
        "port_range_min",
        "port_range_max",
        "remote_group_id",
        "remote_address_group_id",
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ip: [u8; 4]) -> BTreeSet<IpAddr> {
        [ip.into()].into()
    }

    #[test]
    fn rules_of_the_second_family_open_the_same_services() {
        let (first, second) = ("10.0.0.0/24".parse().unwrap(), "fd00:1::/64".parse().unwrap());
        let us: IpAddr = "2001:db8::7".parse().unwrap();
        let admit = ["198.51.100.0/24", "2001:db8:1::/48"].map(|network| network.parse().unwrap());
        let opened = |rules: &[Value], near: [&str; 3]| {
            let source = |rule: &Value| match rule["remote_ip_prefix"].as_str() {
                Some(prefix) => near.iter().position(|near| *near == prefix).map(|at| at.to_string()),
                None => Some(rule["remote_group_id"].to_string()),
            };
            let service = |rule: &Value| {
                let protocol = rule["protocol"].to_string().replace("ipv6-", "");
                (
                    rule["direction"].to_string(),
                    protocol,
                    rule["port_range_min"].to_string(),
                    source(rule).unwrap(),
                )
            };
            let vrrp = |rule: &&Value| rule["protocol"] != "112";
            BTreeSet::from_iter(rules.iter().filter(vrrp).map(service))
        };
        let near = ["fd00:1::/64", "2001:db8::7/128", "2001:db8:1::/48"];
        let rules_of_second = ipv6_rules("g", second, &[us].into(), &admit, true);
        assert_eq!(
            opened(&rules_of_second, near),
            opened(
                &rules("g", Some(first), &of([192, 0, 2, 7]), &admit, true, false),
                ["10.0.0.0/24", "192.0.2.7/32", "198.51.100.0/24"]
            )
        );
        assert!(rules_of_second.iter().all(|rule| rule["ethertype"] == "IPv6"));
        // This computer is on the machine network.
        let beside = ipv6_rules("g", second, &["fd00:1::9".parse().unwrap()].into(), &admit, true);
        assert_eq!(
            opened(&beside, near),
            opened(&ipv6_rules("g", second, &BTreeSet::new(), &admit, true), near)
        );
        // What Neutron shows for all addresses.
        let mut shown = rules_of_second.last().unwrap().clone();
        shown["remote_ip_prefix"] = json!("::/0");
        assert!(same_rule(&shown, rules_of_second.last().unwrap()));
    }

    #[test]
    fn rules_are_compared_in_neutrons_format() {
        let network = Some("10.0.0.0/24".parse().unwrap());
        let admit = ["198.51.100.0/24".parse().unwrap()];
        let wanted = rules("g", network, &of([192, 0, 2, 7]), &admit, false, false);
        for rule in &wanted {
            let mut there = rule.clone();
            there["id"] = json!("1");
            for key in [
                "protocol",
                "port_range_min",
                "port_range_max",
                "remote_group_id",
                "remote_ip_prefix",
            ] {
                if there.get(key).is_none() {
                    there[key] = Value::Null;
                }
            }
            if there["protocol"] == "112" {
                there["protocol"] = json!("vrrp");
            }
            let same: Vec<_> = wanted.iter().filter(|wanted| same_rule(&there, wanted)).collect();
            assert_eq!(same, [rule]);
        }
        for (protocol, port) in [
            ("112", None),
            ("tcp", Some(22_624)),
            ("tcp", Some(6443)),
            ("tcp", Some(32_767)),
        ] {
            let opens = |rule: &&Value| {
                rule["protocol"] == protocol && port.is_none_or(|port| rule["port_range_max"].as_u64() == Some(port))
            };
            assert!(wanted.iter().any(|rule| opens(&rule)), "{protocol} {port:?}");
        }
        // The machine config server serves secrets: no other source is allowed.
        let served = wanted.iter().filter(|rule| rule["port_range_min"] == 22_623);
        let to: Vec<_> = served.map(|rule| rule["remote_ip_prefix"].as_str()).collect();
        assert_eq!(to, [Some("10.0.0.0/24"), Some("192.0.2.7/32")]);
        // This computer is on the machine network: the machine config server, SSH and two ranges of node ports.
        let beside = rules("g", network, &of([10, 0, 0, 9]), &admit, false, false);
        assert_eq!(beside.len(), wanted.len() - 4);
    }

    #[test]
    fn only_api_and_ingress_are_open_to_everyone() {
        let network = Some("10.0.0.0/24".parse().unwrap());
        let us = &of([192, 0, 2, 7]);
        let admit = ["198.51.100.0/24".parse().unwrap()];
        let open = |rules: &[Value]| {
            let open = rules
                .iter()
                .filter(|rule| rule["direction"] == "ingress")
                .filter(|rule| rule.get("remote_ip_prefix").is_none() && rule.get("remote_group_id").is_none());
            let mut ports: Vec<_> = open.map(|rule| rule["port_range_min"].as_u64()).collect();
            ports.sort_unstable();
            ports
        };
        let sources = |rules: &[Value], port: u64| {
            let of_port = rules
                .iter()
                .filter(|rule| rule["protocol"] == "tcp" && rule["port_range_min"] == port);
            let mut sources: Vec<_> = of_port
                .filter_map(|rule| Some(rule["remote_ip_prefix"].as_str()?.to_owned()))
                .collect();
            sources.sort_unstable();
            sources
        };
        let wanted = rules("g", network, us, &admit, false, false);
        assert_eq!(open(&wanted), [None, Some(80), Some(443), Some(6443)], "and ICMP");
        for port in [22, 30_000] {
            assert_eq!(
                sources(&wanted, port),
                ["10.0.0.0/24", "192.0.2.7/32", "198.51.100.0/24"],
                "{port}"
            );
        }
        assert_eq!(sources(&wanted, 8080), [""; 0]);
        assert_eq!(
            sources(&rules("g", network, us, &[], true, false), 8080),
            ["10.0.0.0/24", "192.0.2.7/32"]
        );
        // SSH and node ports are open to everyone only if the settings say so. Neutron may show no prefix, or this one.
        let world = rules("g", network, us, &["0.0.0.0/0".parse().unwrap()], false, false);
        let ssh = world
            .iter()
            .find(|rule| rule["port_range_min"] == 22 && rule.get("remote_ip_prefix").is_none());
        let mut shown = ssh.unwrap().clone();
        shown["remote_ip_prefix"] = json!("0.0.0.0/0");
        assert!(same_rule(&shown, ssh.unwrap()));
    }

    #[test]
    fn rules_of_an_earlier_address_of_this_computer_are_outdated_and_those_of_the_user_are_not() {
        let network = Some("10.0.0.0/24".parse().unwrap());
        let rules = |us| rules("g", network, &of(us), &[], false, false);
        let (before, now) = (rules([192, 0, 2, 7]), rules([192, 0, 2, 8]));
        let outdated: Vec<_> = before.iter().filter(|rule| is_outdated(rule, &now)).collect();
        assert_eq!(outdated.len(), 4);
        assert!(outdated.iter().all(|rule| rule["remote_ip_prefix"] == "192.0.2.7/32"));
        let mut of_user = outdated[0].clone();
        of_user["description"] = json!("");
        assert!(!is_outdated(&of_user, &now));
    }
}
