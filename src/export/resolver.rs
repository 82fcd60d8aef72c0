//! The cluster's names as configuration for the resolver of a computer outside of it.

use std::net::IpAddr;

use crate::cluster::{Role, Vip};
use crate::state::parameters::Parameters;

/// For NetworkManager's dnsmasq: contains the names, so they resolve before the cluster runs.
pub fn dnsmasq(parameters: &Parameters) -> String {
    let id = parameters.cluster_domain();
    let listed = |ips: Vec<IpAddr>| ips.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(",");
    let mut text = format!(
        "# Names of cluster {id}, by `ocpdeploy dns apply`.\n\
         local=/{id}/\n\
         host-record=api.{id},api-int.{id},{}\n",
        listed(parameters.vip_addresses(Vip::Api))
    );
    for ip in parameters.vip_addresses(Vip::Ingress) {
        text += &format!("address=/apps.{id}/{ip}\n");
    }
    text += &format!("local=/apps.{id}/\n");
    for node in parameters.all_nodes() {
        let (name, ips) = (id.fqdn(node.name.as_str()), listed(parameters.both(node.ip)));
        text += &format!("host-record={name},{ips}\n");
    }
    text
}

/// For systemd-resolved, which contains no names: the servers to query for the cluster's names, and only for those.
///
/// A delegate (systemd.dns-delegate(5), since 258), because a global `DNS=` gets all other queries as well, whatever
/// `Domains=` says (systemd/systemd: `src/resolve/resolved-dns-scope.c`, `dns_scope_is_default_route`), and settings of a
/// link replace its own servers.
pub fn resolved(parameters: &Parameters) -> String {
    let masters = parameters.nodes.iter().filter(|node| node.role == Role::Master);
    let servers: Vec<String> = masters.map(|node| node.ip.to_string()).collect();
    format!(
        "# Names of cluster {id}, by `ocpdeploy dns apply`; resolved by its masters.\n\
         [Delegate]\nDNS={}\nDomains=~{id}\nDefaultRoute=no\n",
        servers.join(" "),
        id = parameters.cluster_domain(),
    )
}
