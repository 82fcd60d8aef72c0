//! A load balancer outside of the cluster.

use std::fmt::Write;

use crate::cluster::{NodeName, Role};
use crate::state::parameters::{NodeAddress, Parameters};

/// haproxy.cfg for a load balancer that has the VIPs as its own addresses.
///
/// Every server has a health check, so that nodes without a router, and the deleted bootstrap, get no
/// requests.
pub fn balancer(parameters: &Parameters) -> String {
    let mut text = format!(
        "\
# Load balancer of cluster {id}. It must own the addresses {api} and {ingress}.
{bootstrap}global
    maxconn 20000

defaults
    mode tcp
    option dontlognull
    retries 3
    timeout connect 5s
    timeout check 5s
    timeout queue 1m
    timeout client 24h
    timeout server 24h
    timeout tunnel 24h
",
        id = parameters.id(),
        bootstrap = match parameters.node(&NodeName::bootstrap()) {
            Some(_) => "# You can remove the bootstrap machine when bootstrapping is complete.\n",
            None => "",
        },
        api = parameters.api_ip,
        ingress = parameters.ingress_ip,
    );
    let (control, routers): (Vec<_>, Vec<_>) = (
        parameters
            .nodes
            .iter()
            .filter(|node| node.role != Role::Worker)
            .collect(),
        parameters
            .nodes
            .iter()
            .filter(|node| node.role != Role::Bootstrap)
            .collect(),
    );
    let api = parameters.api_ip.to_string();
    let ingress = parameters.ingress_ip.to_string();
    let secure = "verify none check-ssl inter 2s fall 3 rise 1";
    section(&mut text, "api", &api, 6443, "/readyz", secure, &control, "check");
    text += "\n# Machine config server. With mcs=http, also port 22624, which is not encrypted.";
    section(&mut text, "mcs", &api, 22623, "/healthz", secure, &control, "check");
    let plain = "inter 5s fall 2 rise 1";
    for (name, port) in [("http", 80), ("https", 443)] {
        let check = "check port 1936";
        section(
            &mut text,
            name,
            &ingress,
            port,
            "/healthz/ready",
            plain,
            &routers,
            check,
        );
    }
    text
}

#[expect(clippy::too_many_arguments, reason = "each is a field of the section")]
fn section(
    text: &mut String,
    name: &str,
    address: &str,
    port: u16,
    health: &str,
    defaults: &str,
    nodes: &[&NodeAddress],
    check: &str,
) {
    let _ = write!(
        text,
        "\nlisten {name}\n    bind {address}:{port}\n    balance source\n    option httpchk GET {health} HTTP/1.0\n    default-server {defaults}\n"
    );
    for node in nodes {
        let _ = writeln!(text, "    server {} {}:{port} {check}", node.name, node.ip);
    }
}
