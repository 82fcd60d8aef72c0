//! The cluster's names as DNS zones, and as dynamic updates.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;

use crate::cluster::{Role, Vip};
use crate::state::parameters::Parameters;

/// How long a response may be cached, in seconds.
const TTL: u32 = 60;

/// The zone `<cluster>.<domain>` as a file; with `etcd` also the names that releases up to 4.3 require.
pub fn forward(parameters: &Parameters, etcd: bool, serial: u32) -> String {
    let mut text = head(&parameters.cluster_domain().to_string(), &parameters.domain, serial);
    for (name, kind, value) in records(parameters, etcd) {
        let _ = writeln!(text, "{name:<24} IN {kind:<4} {value}");
    }
    text
}

/// The smallest zone on an octet boundary that has every IPv4 address of the cluster; `None` if it has no IPv4.
pub fn reverse(parameters: &Parameters, serial: u32) -> Option<String> {
    let names = reverse_names_ipv4(parameters);
    let octets: Vec<[u8; 4]> = names.iter().map(|(ip, _)| ip.octets()).collect();
    octets.first()?;
    let common = (1..=3)
        .rev()
        .find(|count| octets.iter().all(|o| o[..*count] == octets[0][..*count]));
    let common = common.unwrap_or_default();
    let backwards = |part: &[u8]| {
        let labels: Vec<String> = part.iter().rev().map(u8::to_string).collect();
        labels.join(".")
    };
    let origin = match common {
        0 => "in-addr.arpa".to_owned(),
        _ => backwards(&octets.first()?[..common]) + ".in-addr.arpa",
    };
    let mut text = head(&origin, &parameters.domain, serial);
    for ((_, name), octets) in names.iter().zip(&octets) {
        let _ = writeln!(text, "{:<24} IN PTR  {name}.", backwards(&octets[common..]));
    }
    Some(text)
}

/// The zone of the IPv6 machine network, on a boundary of four bits; `None` if the cluster has no IPv6.
pub fn reverse_ipv6(parameters: &Parameters, serial: u32) -> Option<String> {
    let network = match (&parameters.ipv6, parameters.machine_network) {
        (Some(ipv6), _) => ipv6.machine_network,
        (None, IpNetwork::V6(network)) => network,
        (None, IpNetwork::V4(_)) => return None,
    };
    // One label for four bits, and a dot after each.
    let outside = (32 - usize::from(network.prefix() / 4)) * 2;
    let origin = reverse_name(network.network()).split_off(outside);
    let mut text = head(origin.trim_end_matches('.'), &parameters.domain, serial);
    for (ip, name) in reverse_names_ipv6(parameters) {
        let _ = writeln!(text, "{:<24} IN PTR  {name}.", &reverse_name(ip)[..outside - 1]);
    }
    Some(text)
}

/// Input of `nsupdate`: deletes the records of all names in `all`, and adds those of the nodes in `left`.
pub fn nsupdate(all: &Parameters, left: &Parameters, etcd: bool) -> String {
    let id = all.cluster_domain();
    let mut text = String::new();
    let mut cleared = BTreeSet::new();
    for (name, kind, _) in records(all, etcd) {
        if cleared.insert((name.clone(), kind)) {
            let _ = writeln!(text, "update delete {}. {kind}", id.fqdn(&name));
        }
    }
    for (name, kind, value) in records(left, etcd) {
        let _ = writeln!(text, "update add {}. {TTL} {kind} {value}", id.fqdn(&name));
    }
    text + "send\n"
}

/// As [`nsupdate`], for the PTR records, which are in another zone for each address family.
pub fn nsupdate_reverse(all: &Parameters, left: &Parameters) -> String {
    let ipv4 = |table: &Parameters| -> Vec<_> {
        let name = |(ip, name): (Ipv4Addr, String)| {
            let [a, b, c, d] = ip.octets();
            (format!("{d}.{c}.{b}.{a}.in-addr.arpa."), name)
        };
        reverse_names_ipv4(table).into_iter().map(name).collect()
    };
    let ipv6 = |table: &Parameters| -> Vec<_> {
        let name = |(ip, name)| (reverse_name(ip), name);
        reverse_names_ipv6(table).into_iter().map(name).collect()
    };
    let mut text = String::new();
    for (all, left) in [(ipv4(all), ipv4(left)), (ipv6(all), ipv6(left))] {
        for (address, name) in &all {
            let _ = writeln!(text, "update delete {address} PTR");
            if left.iter().any(|(other, _)| other == address) {
                let _ = writeln!(text, "update add {address} {TTL} PTR {name}.");
            }
        }
        if !all.is_empty() {
            text += "send\n";
        }
    }
    text
}

/// The name of an IPv6 address's PTR record: a label for each four bits (RFC 3596, section 2.5).
fn reverse_name(ip: Ipv6Addr) -> String {
    let digits = ip.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
    let labels: String = digits.map(|digit| format!("{digit:x}.")).collect();
    labels + "ip6.arpa."
}

/// Start of authority. The name server's name is a placeholder for the user to replace.
fn head(origin: &str, domain: &str, serial: u32) -> String {
    format!(
        "$ORIGIN {origin}.\n$TTL {TTL}\n\
         @                        IN SOA  ns.{domain}. hostmaster.{domain}. {serial} 3600 600 604800 {TTL}\n\
         @                        IN NS   ns.{domain}.\n"
    )
}

/// Relative name, type and value.
fn records(parameters: &Parameters, etcd: bool) -> Vec<(String, &'static str, String)> {
    let mut records = Vec::new();
    let mut add = |name: &str, ips: Vec<IpAddr>| {
        for ip in ips {
            let kind = if ip.is_ipv4() { "A" } else { "AAAA" };
            records.push((name.to_owned(), kind, ip.to_string()));
        }
    };
    add("api", parameters.client_addresses(Vip::Api));
    add("api-int", parameters.vip_addresses(Vip::Api));
    for name in ["apps", "*.apps"] {
        add(name, parameters.client_addresses(Vip::Ingress));
    }
    for node in parameters.all_nodes() {
        add(node.name.as_str(), parameters.both(node.ip));
    }
    let masters = parameters.nodes.iter().filter(|node| node.role == Role::Master);
    for (index, node) in masters.enumerate().filter(|_| etcd) {
        let name = format!("etcd-{index}");
        let target = format!("0 10 2380 {}.", parameters.cluster_domain().fqdn(&name));
        let kind = if node.ip.is_ipv4() { "A" } else { "AAAA" };
        records.push((name, kind, node.ip.to_string()));
        records.push(("_etcd-server-ssl._tcp".to_owned(), "SRV", target));
    }
    records
}

/// The host name of each address that has one.
fn reverse_names(parameters: &Parameters) -> Vec<(IpAddr, String)> {
    let id = parameters.cluster_domain();
    let api = parameters.vip_addresses(Vip::Api).into_iter();
    let nodes = parameters.all_nodes().flat_map(|node| {
        let ips = parameters.both(node.ip).into_iter();
        ips.map(|ip| (ip, id.fqdn(node.name.as_str())))
    });
    api.map(|ip| (ip, id.fqdn("api"))).chain(nodes).collect()
}

fn reverse_names_ipv4(parameters: &Parameters) -> Vec<(Ipv4Addr, String)> {
    let names = reverse_names(parameters).into_iter();
    let ipv4 = names.filter_map(|(ip, name)| match ip {
        IpAddr::V4(ip) => Some((ip, name)),
        IpAddr::V6(_) => None,
    });
    ipv4.collect()
}

fn reverse_names_ipv6(parameters: &Parameters) -> Vec<(Ipv6Addr, String)> {
    let names = reverse_names(parameters).into_iter();
    let ipv6 = names.filter_map(|(ip, name)| match ip {
        IpAddr::V6(ip) => Some((ip, name)),
        IpAddr::V4(_) => None,
    });
    ipv6.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::parameters::tests::example;

    #[test]
    fn a_reverse_zone_is_as_small_as_bytes_allow() {
        for (moved, origin, line) in [
            ("192.168.122.12", "122.168.192.in-addr.arpa", "12 "),
            ("192.168.123.12", "168.192.in-addr.arpa", "12.123 "),
            ("192.169.122.12", "192.in-addr.arpa", "12.122.169 "),
            ("10.0.0.12", "in-addr.arpa", "12.0.0.10 "),
        ] {
            let mut parameters = example();
            parameters.nodes[1].ip = moved.parse().unwrap();
            let zone = reverse(&parameters, 1).unwrap();
            assert!(zone.starts_with(&format!("$ORIGIN {origin}.\n")), "{zone}");
            let ptr = zone.lines().find(|text| text.ends_with(" master-0.lab.example.com."));
            assert!(ptr.is_some_and(|text| text.starts_with(line)), "{zone}");
        }
    }
}
