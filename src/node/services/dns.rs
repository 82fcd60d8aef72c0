//! A name server on every node, so that the cluster's names do not depend on the network's DNS.
//!
//! It answers for the VIPs, everything below `apps`, and the nodes. For other names of the cluster it returns NXDOMAIN.
//! If an existing name has no address of the queried family, it returns NODATA, because musl and Go stop at NXDOMAIN
//! for either family. Other queries go to the resolvers that DHCP provides; each node detects these itself
//! (`resolver`).

use std::net::IpAddr;

use serde_json::json;

use super::input::{Input, ServiceError, static_pod};
use crate::cluster::{Dns, Role, Vip};
use crate::digest::sha256;
use crate::export::zone;
use crate::node::host::{HostFile, HostParts, HostUnit};
use crate::templates::render;

/// The files of every node, for any role.
pub fn parts(input: &Input<'_>) -> Result<HostParts, ServiceError> {
    match input.config.dns {
        Dns::Dnsmasq => dnsmasq(input),
        Dns::Coredns => coredns(input),
        Dns::User => Ok(HostParts::default()),
    }
}

/// A process on the host, which works before any image is pulled.
fn dnsmasq(input: &Input<'_>) -> Result<HostParts, ServiceError> {
    let parameters = input.parameters;
    let id = parameters.cluster_domain();
    let etcd = needs_etcd_names(input);
    let mut masters = 0;
    let mut etcd_names = Vec::new();
    let nodes: Vec<_> = parameters
        .all_nodes()
        .map(|node| {
            let mut names = vec![id.fqdn(node.name.as_str())];
            if etcd && node.role == Role::Master {
                etcd_names.push(id.fqdn(&format!("etcd-{masters}")));
                names.extend(etcd_names.last().cloned());
                masters += 1;
            }
            json!({"names": names, "ips": parameters.both(node.ip)})
        })
        .collect();
    let values = json!({
        "cluster": id,
        "api_ips": parameters.vip_addresses(Vip::Api),
        "ingress_ips": parameters.vip_addresses(Vip::Ingress),
        "nodes": nodes,
        "etcd": etcd_names,
    });
    let template = include_str!("templates/dns/dnsmasq.conf");
    let config = render("dnsmasq.conf", template, &values)?;
    let script = include_str!("templates/dns/ocpdeploy-dns");
    Ok(HostParts {
        files: vec![
            HostFile::new("/etc/ocpdeploy/dnsmasq.conf", 0o644, config),
            HostFile::new("/usr/local/bin/ocpdeploy-dns", 0o755, script),
        ],
        units: vec![HostUnit {
            name: "ocpdeploy-dns.service".to_owned(),
            enabled: Some(true),
            contents: Some(include_str!("templates/dns/ocpdeploy-dns.service").to_owned()),
            dropins: vec![],
        }],
    })
}

/// The release's own CoreDNS. Its zone is the same as that of `ocpdeploy export dns`.
fn coredns(input: &Input<'_>) -> Result<HostParts, ServiceError> {
    let parameters = input.parameters;
    let id = parameters.cluster_domain();
    let template = include_str!("templates/dns/Corefile.in");
    let reverse_zones = match (parameters.api_ip, &parameters.ipv6) {
        (IpAddr::V6(_), _) => "ip6.arpa",
        (IpAddr::V4(_), None) => "in-addr.arpa",
        (IpAddr::V4(_), Some(_)) => "in-addr.arpa ip6.arpa",
    };
    let values = json!({"cluster": id, "reverse_zones": reverse_zones});
    let corefile = render("Corefile.in", template, &values)?;
    let etcd = needs_etcd_names(input);
    // CoreDNS reads the zone again if this number changes.
    let zone = zone::forward(parameters, etcd, 0);
    let serial = u32::from_str_radix(&sha256(&zone)[..7], 16).unwrap_or_default();
    let of_api = parameters
        .vip_addresses(Vip::Api)
        .into_iter()
        .map(|ip| (ip, id.fqdn("api")));
    let of_nodes = parameters.all_nodes().flat_map(|node| {
        let ips = parameters.both(node.ip).into_iter();
        ips.map(|ip| (ip, id.fqdn(node.name.as_str())))
    });
    let hosts: String = of_api
        .chain(of_nodes)
        .map(|(ip, name)| format!("{ip} {name}\n"))
        .collect();
    let pod = static_pod(
        "coredns",
        input.release.image("coredns")?,
        &["/usr/bin/coredns", "-conf", "/run/ocpdeploy/dns/Corefile"],
        &[("config", "/etc/ocpdeploy/dns"), ("state", "/run/ocpdeploy/dns")],
        // Allows only the access to host files that SELinux would deny.
        json!({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}),
    );
    Ok(HostParts {
        files: vec![
            HostFile::new("/etc/ocpdeploy/dns/Corefile.in", 0o644, corefile),
            HostFile::new(
                "/etc/ocpdeploy/dns/zone",
                0o644,
                zone::forward(parameters, etcd, serial),
            ),
            HostFile::new("/etc/ocpdeploy/dns/hosts", 0o644, hosts),
            pod,
        ],
        units: vec![],
    })
}

/// Up to 4.3, masters find each other's etcd by SRV records, and etcd's certificates contain these names.
fn needs_etcd_names(input: &Input<'_>) -> bool {
    let (major, minor) = input.release.version;
    major == 4 && minor <= 3
}
