//! The configuration of a load balancer outside of the cluster.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

use crate::cluster::{NodeName, Role, Vip};
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
        id = parameters.cluster_domain(),
        bootstrap = match parameters.node(&NodeName::bootstrap()) {
            Some(_) => "# You can remove the bootstrap machine when bootstrapping is complete.\n",
            None => "",
        },
        api = listed(&parameters.vip_addresses(Vip::Api)),
        ingress = listed(&parameters.vip_addresses(Vip::Ingress)),
    );
    let (control, routers): (Vec<_>, Vec<_>) = (
        parameters
            .nodes
            .iter()
            .filter(|node| matches!(node.role, Role::Bootstrap | Role::Master))
            .collect(),
        parameters
            .all_nodes()
            .filter(|node| matches!(node.role, Role::Master | Role::Worker))
            .collect(),
    );
    let api = parameters.vip_addresses(Vip::Api);
    let ingress = parameters.vip_addresses(Vip::Ingress);
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

fn listed(ips: &[IpAddr]) -> String {
    ips.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
}

#[expect(clippy::too_many_arguments, reason = "each is a field of the section")]
fn section(
    text: &mut String,
    name: &str,
    addresses: &[IpAddr],
    port: u16,
    health: &str,
    defaults: &str,
    nodes: &[&NodeAddress],
    check: &str,
) {
    let bind = |ip: &IpAddr| format!("    bind {}\n", SocketAddr::new(*ip, port));
    let binds: String = addresses.iter().map(bind).collect();
    let _ = write!(
        text,
        "\nlisten {name}\n{binds}    balance source\n    option httpchk GET {health} HTTP/1.0\n    default-server {defaults}\n"
    );
    for node in nodes {
        let _ = writeln!(
            text,
            "    server {} {} {check}",
            node.name,
            SocketAddr::new(node.ip, port)
        );
    }
}
