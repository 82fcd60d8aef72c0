//! The cluster's names as DNS zones, and as the updates that put them into a server.

use std::fmt::Write;

use crate::cluster::Role;
use crate::parameters::Parameters;

/// The zone `<cluster>.<domain>` as a file; with `etcd` also the names that releases up to 4.3 need.
pub fn forward(parameters: &Parameters, etcd: bool, serial: u32) -> String {
    let mut text = head(&parameters.id().to_string(), &parameters.domain, serial);
    for (name, kind, value) in records(parameters, etcd) {
        let _ = writeln!(text, "{name:<24} IN {kind:<4} {value}");
    }
    text
}

/// Start of authority. The name server's own name is a guess that the user replaces.
fn head(origin: &str, domain: &str, serial: u32) -> String {
    format!(
        "$ORIGIN {origin}.\n$TTL 60\n\
         @                        IN SOA  ns.{domain}. hostmaster.{domain}. {serial} 3600 600 604800 60\n\
         @                        IN NS   ns.{domain}.\n"
    )
}

/// Name beneath the cluster's own, type and value.
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
        records.push((name.clone(), "A", node.ip.to_string()));
        let target = format!("0 10 2380 {}.", parameters.id().fqdn(&name));
        records.push(("_etcd-server-ssl._tcp".to_owned(), "SRV", target));
    }
    records
}
