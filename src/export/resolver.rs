//! The cluster's names as configuration for the resolver of a computer outside of it.

use std::net::IpAddr;

use crate::cluster::{Role, Vip};
use crate::state::parameters::Parameters;

/// For NetworkManager's dnsmasq: contains the names, so they resolve before the cluster runs.
pub fn dnsmasq(parameters: &Parameters) -> String {
    let id = parameters.cluster_domain();
    let listed = |ips: Vec<IpAddr>| ips.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(",");
    let (outside, inside) = (
        parameters.client_addresses(Vip::Api),
        parameters.vip_addresses(Vip::Api),
    );
    let mut text = format!("# Names of cluster {id}, by `ocpdeploy dns apply`.\nlocal=/{id}/\n");
    text += &match outside == inside {
        true => format!("host-record=api.{id},api-int.{id},{}\n", listed(inside)),
        false => format!(
            "host-record=api.{id},{}\nhost-record=api-int.{id},{}\n",
            listed(outside),
            listed(inside)
        ),
    };
    for ip in parameters.client_addresses(Vip::Ingress) {
        text += &format!("address=/apps.{id}/{ip}\n");
    }
    text += &format!("local=/apps.{id}/\n");
    for node in parameters.all_nodes() {
        let (name, ips) = (id.fqdn(node.name.as_str()), listed(parameters.both(node.ip)));
        text += &format!("host-record={name},{ips}\n");
    }
    text
}

/// For systemd-resolved: the servers to query for the cluster's names, and only for those. It contains no names itself.
///
/// It is a delegate (systemd.dns-delegate(5), since 258). The servers of a global `DNS=` would also get all other
/// queries, whatever `Domains=` says (systemd/systemd: `src/resolve/resolved-dns-scope.c`,
/// `dns_scope_is_default_route`), and servers that are set for a link replace the link's own.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::ExternalVips;
    use crate::state::parameters::tests::example;

    #[test]
    fn only_the_names_for_clients_have_the_floating_ips() {
        let mut table = example();
        assert!(dnsmasq(&table).contains("host-record=api.lab.example.com,api-int.lab.example.com,192.168.122.10\n"));
        table.external_vips = ExternalVips {
            api: Some([203, 0, 113, 7].into()),
            ingress: Some([203, 0, 113, 8].into()),
        };
        let text = dnsmasq(&table);
        for line in [
            "host-record=api.lab.example.com,203.0.113.7",
            "host-record=api-int.lab.example.com,192.168.122.10",
            "address=/apps.lab.example.com/203.0.113.8",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line}: {text}");
        }
    }
}
