//! The cluster's names as DNS zones, and as updates for a server.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::Ipv4Addr;

use crate::cluster::Role;
use crate::state::parameters::Parameters;

/// Seconds for which an answer may be cached.
const TTL: u32 = 60;

/// The zone `<cluster>.<domain>` as a file; with `etcd` also the names that releases up to 4.3 require.
pub fn forward(parameters: &Parameters, etcd: bool, serial: u32) -> String {
    let mut text = head(&parameters.id().to_string(), &parameters.domain, serial);
    for (name, kind, value) in records(parameters, etcd) {
        let _ = writeln!(text, "{name:<24} IN {kind:<4} {value}");
    }
    text
}

/// The smallest zone on an octet boundary that has every address of the cluster.
pub fn reverse(parameters: &Parameters, serial: u32) -> String {
    let names = reverse_names(parameters);
    let octets: Vec<[u8; 4]> = names.iter().map(|(ip, _)| ip.octets()).collect();
    let common = (1..=3)
        .rev()
        .find(|count| octets.iter().all(|o| o[..*count] == octets[0][..*count]));
    let common = common.unwrap_or_default();
    let backwards = |part: &[u8]| {
        let labels: Vec<String> = part.iter().rev().map(u8::to_string).collect();
        labels.join(".")
    };
    let origin = match octets.first() {
        Some(first) if common > 0 => backwards(&first[..common]) + ".in-addr.arpa",
        _ => "in-addr.arpa".to_owned(),
    };
    let mut text = head(&origin, &parameters.domain, serial);
    for ((_, name), octets) in names.iter().zip(&octets) {
        let _ = writeln!(text, "{:<24} IN PTR  {name}.", backwards(&octets[common..]));
    }
    text
}

/// Input of `nsupdate`: deletes the existing records of all names, and adds those of the nodes that are left.
pub fn nsupdate(all: &Parameters, left: &Parameters, etcd: bool) -> String {
    let id = all.id();
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

/// As [`nsupdate`], for the addresses' names, which are in another zone.
pub fn nsupdate_reverse(all: &Parameters, left: &Parameters) -> String {
    let left = reverse_names(left);
    let mut text = String::new();
    for (ip, name) in reverse_names(all) {
        let [a, b, c, d] = ip.octets();
        let address = format!("{d}.{c}.{b}.{a}.in-addr.arpa.");
        let _ = writeln!(text, "update delete {address} PTR");
        if left.iter().any(|(other, _)| *other == ip) {
            let _ = writeln!(text, "update add {address} {TTL} PTR {name}.");
        }
    }
    text + "send\n"
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
    let (api, ingress) = (parameters.api_ip.to_string(), parameters.ingress_ip.to_string());
    let mut records = vec![
        ("api".to_owned(), "A", api.clone()),
        ("api-int".to_owned(), "A", api),
        ("apps".to_owned(), "A", ingress.clone()),
        ("*.apps".to_owned(), "A", ingress),
    ];
    for node in &parameters.nodes {
        records.push((node.name.to_string(), "A", node.ip.to_string()));
    }
    let masters = parameters.nodes.iter().filter(|node| node.role == Role::Master);
    for (index, node) in masters.enumerate().filter(|_| etcd) {
        let name = format!("etcd-{index}");
        let target = format!("0 10 2380 {}.", parameters.id().fqdn(&name));
        records.push((name, "A", node.ip.to_string()));
        records.push(("_etcd-server-ssl._tcp".to_owned(), "SRV", target));
    }
    records
}

/// The name of each address that has one.
fn reverse_names(parameters: &Parameters) -> Vec<(Ipv4Addr, String)> {
    let id = parameters.id();
    let nodes = parameters
        .nodes
        .iter()
        .map(|node| (node.ip, id.fqdn(node.name.as_str())));
    std::iter::once((parameters.api_ip, id.fqdn("api")))
        .chain(nodes)
        .collect()
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
            let zone = reverse(&parameters, 1);
            assert!(zone.starts_with(&format!("$ORIGIN {origin}.\n")), "{zone}");
            let ptr = zone.lines().find(|text| text.ends_with(" master-0.lab.example.com."));
            assert!(ptr.is_some_and(|text| text.starts_with(line)), "{zone}");
        }
    }
}
