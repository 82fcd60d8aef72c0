//! Finds networks, with their subnets and the addresses in use.

use std::net::IpAddr;
use std::sync::Arc;

use super::auth::Service::Network as NEUTRON;
use super::cloud::{OpenStack, lock};
use super::network::{Ipv6Subnet, NeutronNetwork, Subnet};
use super::ports::Port;
use super::wire::{some_of, text};
use crate::backend::{BackendError, BackendErrorKind, Ipv6Facts, NetworkFacts};
use crate::cluster::overlap;

impl OpenStack {
    /// The network with this name or id.
    pub(super) async fn network(&self, name: &str) -> Result<Arc<NeutronNetwork>, BackendError> {
        let known = lock(&self.networks).get(name).cloned();
        if let Some(network) = known {
            return Ok(network);
        }
        let network = Arc::new(self.find_network(name).await?);
        lock(&self.networks).insert(name.to_owned(), Arc::clone(&network));
        Ok(network)
    }

    async fn find_network(&self, name: &str) -> Result<NeutronNetwork, BackendError> {
        let mut found = self.session.list_named(NEUTRON, "/networks", name, "networks").await?;
        if found.is_empty() {
            found = self
                .session
                .list_where(NEUTRON, "/networks", &[("id", name)], "networks")
                .await?;
        }
        let network = match found.as_slice() {
            [network] => network,
            [] => {
                let all = self.session.list(NEUTRON, "/networks?fields=name", "networks").await?;
                let names: Vec<_> = all.iter().map(|network| text(network, "name")).collect();
                let failure = BackendError::new(BackendErrorKind::NotFound, format!("network {name} does not exist"));
                return Err(failure.hint(format!("existing networks: {}", some_of(&names))));
            }
            several => {
                let message = format!("{} networks have the name {name}", several.len());
                return Err(BackendError::new(BackendErrorKind::Conflict, message)
                    .hint("set the id of the network: list the ids with `openstack network list`"));
            }
        };
        let id = text(network, "id").to_owned();
        let filter = [("network_id", id.as_str())];
        let subnets = self.session.list_where(NEUTRON, "/subnets", &filter, "subnets").await?;
        let ipv6_subnets = subnets.iter().filter_map(Ipv6Subnet::read).collect();
        let mut subnets: Vec<_> = subnets.iter().filter_map(Subnet::read).collect();
        // The subnets are sorted, because Neutron lists them by their random ids.
        let is_chosen = |subnet: &Subnet| {
            self.config
                .machine_network
                .is_some_and(|chosen| overlap(chosen, subnet.cidr))
        };
        subnets.sort_by_key(|subnet| (!is_chosen(subnet), !subnet.dhcp));
        Ok(NeutronNetwork {
            name: text(network, "name").to_owned(),
            project: text(network, "project_id").to_owned(),
            is_external: network["router:external"] == true,
            port_security: network["port_security_enabled"] != false,
            mtu: network["mtu"]
                .as_u64()
                .and_then(|mtu| mtu.try_into().ok())
                .filter(|mtu| *mtu > 0),
            subnets,
            ipv6_subnets,
            id,
        })
    }

    pub(super) async fn facts_of_network(&self, name: &str) -> Result<NetworkFacts, BackendError> {
        let network = self.network(name).await?;
        // All ports, because those of other projects have addresses, too.
        let filter = [("network_id", network.id.as_str())];
        let ports = self.session.list_where(NEUTRON, "/ports", &filter, "ports").await?;
        let ports: Vec<_> = ports.iter().map(Port::read).collect();
        let taken = ports
            .iter()
            .flat_map(|port| port.ips.iter().map(|ip| (IpAddr::V4(*ip), port.mac)));
        let taken_ipv6 = || ports.iter().flat_map(|port| port.ipv6.iter().map(|ip| (*ip, port.mac)));
        let ipv6 = |subnet: &Ipv6Subnet| Ipv6Facts {
            cidr: subnet.cidr,
            gateway: subnet.gateway,
            taken: taken_ipv6().filter(|(ip, _)| subnet.cidr.contains(*ip)).collect(),
            resolvers: Vec::new(),
        };
        let main = network.main();
        Ok(NetworkFacts {
            // The id is globally unique.
            identity: format!("openstack network {}", network.id),
            cidr: main.map(|subnet| subnet.cidr.into()),
            gateway: main.and_then(|subnet| subnet.gateway).map(IpAddr::V4),
            dhcp_ranges: main
                .filter(|subnet| subnet.dhcp)
                .into_iter()
                .flat_map(|subnet| &subnet.pools)
                .map(|(first, last)| (IpAddr::V4(*first), IpAddr::V4(*last)))
                .collect(),
            taken: taken.collect(),
            resolvers: main
                .into_iter()
                .flat_map(|subnet| &subnet.resolvers)
                .map(|ip| IpAddr::V4(*ip))
                .collect(),
            mtu: network.mtu,
            answers_dns: false,
            peer_domain: None,
            ipv6: network.ipv6_subnets.iter().map(ipv6).collect(),
        })
    }
}
