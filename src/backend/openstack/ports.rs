//! Networks, ports, security groups and floating IPs.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;

use serde_json::{Value, json};
use tracing::info;

use super::auth::Service::Network as NEUTRON;
use super::cloud::{OpenStack, lock};
use super::network::{Network, Subnet};
use super::wire::{self, Port, mark, text};
use crate::backend::failure::Failure;
use crate::backend::{Action, AddressReservation, BackendErrorKind, MachineSpec, NetworkFacts, Nic, ReservationState};
use crate::cluster::{AddressAssignment, ClusterId, NodeName, Vip};

fn conflict(words: String) -> Failure {
    Failure::new(BackendErrorKind::Conflict, words)
}

impl OpenStack {
    /// The network of this name or id.
    pub(super) async fn network(&self, name: &str) -> Result<Arc<Network>, Failure> {
        let known = lock(&self.networks).get(name).cloned();
        if let Some(network) = known {
            return Ok(network);
        }
        let network = Arc::new(self.find_network(name).await?);
        lock(&self.networks).insert(name.to_owned(), Arc::clone(&network));
        Ok(network)
    }

    async fn find_network(&self, name: &str) -> Result<Network, Failure> {
        let mut found = self
            .session
            .list_where(NEUTRON, "/networks", &[("name", name)], "networks")
            .await?;
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
                let failure = Failure::new(BackendErrorKind::NotFound, format!("there is no network {name}"));
                return Err(failure.hint(format!("this project sees {}", told(&names))));
            }
            several => {
                let words = format!("{} networks are called {name}", several.len());
                return Err(conflict(words).hint("name it by its id; `openstack network list` shows it"));
            }
        };
        let id = text(network, "id").to_owned();
        let filter = [("network_id", id.as_str()), ("ip_version", "4")];
        let subnets = self.session.list_where(NEUTRON, "/subnets", &filter, "subnets").await?;
        Ok(Network {
            name: text(network, "name").to_owned(),
            project: text(network, "project_id").to_owned(),
            is_external: network["router:external"] == true,
            port_security: network["port_security_enabled"] != false,
            subnets: subnets.iter().filter_map(Subnet::read).collect(),
            id,
        })
    }

    pub(super) async fn network_facts(&self, name: &str) -> Result<NetworkFacts, Failure> {
        let network = self.network(name).await?;
        let mut taken = BTreeMap::new();
        for port in self.ports(&[("network_id", &network.id)]).await? {
            taken.extend(port.ips.iter().map(|ip| (*ip, port.mac)));
        }
        let main = network.main();
        Ok(NetworkFacts {
            // An id is unique everywhere, and clouds have no name of their own.
            identity: format!("openstack network {}", network.id),
            cidr: main.map(|subnet| subnet.cidr),
            gateway: main.and_then(|subnet| subnet.gateway),
            dhcp_ranges: main
                .filter(|subnet| subnet.dhcp)
                .map(|subnet| subnet.pools.clone())
                .unwrap_or_default(),
            taken,
            resolvers: main.map(|subnet| subnet.resolvers.clone()).unwrap_or_default(),
            answers_dns: false,
            peer_domain: None,
        })
    }

    pub(super) async fn ports(&self, filter: &[(&str, &str)]) -> Result<Vec<Port>, Failure> {
        let ports = self.session.list_where(NEUTRON, "/ports", filter, "ports").await?;
        Ok(ports.iter().map(Port::read).collect())
    }

    pub(super) async fn ports_of(&self, cluster: &ClusterId) -> Result<Vec<Port>, Failure> {
        self.ports(&[("description", &mark(cluster))]).await
    }

    /// Those of the cluster's ports that have one of these names; a large cluster has many others.
    pub(super) async fn ports_named(&self, cluster: &ClusterId, names: &[String]) -> Result<Vec<Port>, Failure> {
        let mark = mark(cluster);
        let mut filter = vec![("description", mark.as_str())];
        filter.extend(names.iter().map(|name| ("name", name.as_str())));
        self.ports(&filter).await
    }

    /// A port with the lease's MAC and address, which is ours and goes with no machine.
    pub(super) async fn hold(&self, hold: &AddressReservation) -> Result<ReservationState, Failure> {
        let AddressReservation { cluster, lease, .. } = hold;
        let network = self.network(&hold.network).await?;
        let name = cluster.fqdn(lease.name.as_str());
        let mac = lease.mac.to_string();
        let by_mac = [("network_id", network.id.as_str()), ("mac_address", &mac)];
        let mut by_name: Vec<_> = hold.dns_names.iter().map(|name| ("name", name.as_str())).collect();
        by_name.push(("name", &name));
        let (mut there, named) = futures::try_join!(self.ports(&by_mac), self.ports(&by_name))?;
        let port = match there.pop() {
            Some(port) => self.keep(hold, &name, port).await?,
            None => {
                let is_others = |port: &&Port| !port.description.is_empty() && !port.is_of(cluster);
                if let Some(other) = named.iter().find(is_others) {
                    return Err(conflict(format!("{} belongs to `{}`", other.name, other.description)));
                }
                self.make_held(hold, &name, &network).await?
            }
        };
        if let Some(vip) = Vip::ALL.into_iter().find(|vip| NodeName::vip(*vip) == lease.name) {
            self.float(cluster, vip, &port).await?;
        }
        Ok(ReservationState::ByPlatform)
    }

    /// A port with this MAC that is there already: ours from before, or the one of a pass-one machine.
    async fn keep(&self, hold: &AddressReservation, name: &str, port: Port) -> Result<Port, Failure> {
        let AddressAssignment { mac, ip, .. } = hold.lease;
        if !port.is_of(&hold.cluster) {
            return Err(conflict(format!(
                "port {} has MAC {mac} and is not of cluster {}",
                port.id, hold.cluster
            )));
        }
        if port.ips != [ip] {
            return Err(conflict(format!(
                "port {} has MAC {mac} and {:?} in place of {ip}",
                port.name, port.ips
            )));
        }
        match port.held_for(&hold.cluster) {
            Some(holder) if holder == hold.lease.name => Ok(port),
            Some(holder) => Err(conflict(format!("{ip} is held for {holder} already"))),
            None => {
                let body = json!({"port": {"name": name}});
                self.session.put(NEUTRON, &format!("/ports/{}", port.id), &body).await?;
                Ok(port)
            }
        }
    }

    async fn make_held(&self, hold: &AddressReservation, name: &str, network: &Network) -> Result<Port, Failure> {
        let AddressReservation { cluster, lease, .. } = hold;
        let subnet = network.subnet_of(lease.ip)?;
        let port = json!({"port": {
            "network_id": network.id,
            "name": name,
            "description": mark(cluster),
            "mac_address": lease.mac,
            "fixed_ips": [{"subnet_id": subnet.id, "ip_address": lease.ip}],
            // A machine's port gets the cluster's group when the machine comes; a VIP's has no traffic of its own.
            "security_groups": [],
        }});
        let made = self
            .session
            .post(NEUTRON, "/ports", &port)
            .await
            .map_err(with_ways_out)?;
        Ok(Port::read(&made["port"]))
    }

    pub(super) async fn held(&self, cluster: &ClusterId) -> Result<Vec<AddressAssignment>, Failure> {
        let lease = |port: &Port| {
            Some(AddressAssignment {
                name: port.held_for(cluster)?,
                mac: port.mac?,
                ip: *port.ips.first()?,
            })
        };
        Ok(self.ports_of(cluster).await?.iter().filter_map(lease).collect())
    }

    /// Gives one held address back; a port that a machine uses goes with that machine from now on.
    pub(super) async fn release_one(&self, hold: &AddressReservation) -> Result<Action<()>, Failure> {
        let name = hold.cluster.fqdn(hold.lease.name.as_str());
        let lease = &hold.lease;
        let is_it = |port: &Port| port.name == name && port.mac == Some(lease.mac) && port.ips == [lease.ip];
        let Some(port) = self.ports_of(&hold.cluster).await?.into_iter().find(is_it) else {
            return Ok(Action::Unchanged(()));
        };
        let machine = match port.device.is_empty() {
            true => None,
            false => self.machine_of_server(&port.device).await?,
        };
        match machine {
            Some(machine) => {
                let body = json!({"port": {"name": wire::port_of(&machine, 0)}});
                self.session.put(NEUTRON, &format!("/ports/{}", port.id), &body).await?;
            }
            None => {
                self.sink(&hold.cluster, Some(&port.id)).await?;
                self.delete_port(&port.id).await?;
            }
        }
        Ok(Action::Done(()))
    }

    pub(super) async fn delete_port(&self, id: &str) -> Result<bool, Failure> {
        self.session.delete(NEUTRON, &format!("/ports/{id}")).await
    }

    /// The ports of a machine to be made, one for each NIC, with the cluster's group and the VIPs it may answer for.
    pub(super) async fn ports_for(
        &self,
        spec: &MachineSpec,
        networks: &[Arc<Network>],
        groups: &[String],
    ) -> Result<Vec<Port>, Failure> {
        let names = Vip::ALL.map(|vip| spec.cluster.fqdn(NodeName::vip(vip).as_str()));
        let vips = self.ports_named(&spec.cluster, &names).await?;
        let vips = wire::pairs_of(spec.role, &spec.cluster, &vips);
        let mut ports = Vec::new();
        for (index, (nic, network)) in spec.nics.iter().zip(networks).enumerate() {
            let vips = if index == 0 { vips.as_slice() } else { &[] };
            let name = wire::port_of(&spec.name, index);
            ports.push(self.port_for(&spec.cluster, &name, nic, network, groups, vips).await?);
        }
        Ok(ports)
    }

    async fn port_for(
        &self,
        cluster: &ClusterId,
        name: &str,
        nic: &Nic,
        network: &Network,
        groups: &[String],
        vips: &[Ipv4Addr],
    ) -> Result<Port, Failure> {
        let pairs: Vec<_> = vips.iter().map(|ip| json!({"ip_address": ip})).collect();
        let mut port = json!({});
        if network.port_security {
            port["security_groups"] = json!(groups);
            if !pairs.is_empty() {
                port["allowed_address_pairs"] = json!(pairs);
            }
        }
        let filter = [
            ("network_id", network.id.as_str()),
            ("mac_address", &nic.mac.to_string()),
        ];
        if let Some(there) = self.ports(&filter).await?.pop() {
            if !there.is_of(cluster) {
                return Err(conflict(format!(
                    "port {} has MAC {} and is not of cluster {cluster}",
                    there.id, nic.mac
                )));
            }
            let has_pairs = vips.iter().all(|ip| there.pairs.contains(&ip.to_string()));
            if network.port_security && (there.groups != groups || !has_pairs) {
                let path = format!("/ports/{}", there.id);
                self.session
                    .put(NEUTRON, &path, &json!({"port": port}))
                    .await
                    .map_err(with_ways_out)?;
            }
            return Ok(there);
        }
        port["network_id"] = json!(network.id);
        port["name"] = json!(name);
        port["description"] = json!(mark(cluster));
        port["mac_address"] = json!(nic.mac);
        let made = self
            .session
            .post(NEUTRON, "/ports", &json!({"port": port}))
            .await
            .map_err(with_ways_out)?;
        Ok(Port::read(&made["port"]))
    }

    /// The cluster's security group with all its rules.
    pub(super) async fn security_group(
        &self,
        cluster: &ClusterId,
        network: Option<&Subnet>,
    ) -> Result<String, Failure> {
        let _alone = self.groups.lock().await;
        let group = match self.security_groups(cluster).await?.into_iter().next() {
            Some(group) => group,
            None => {
                let group = json!({"security_group": {"name": mark(cluster), "description": mark(cluster)}});
                self.session.post(NEUTRON, "/security-groups", &group).await?["security_group"].take()
            }
        };
        let id = text(&group, "id").to_owned();
        let there = group["security_group_rules"].as_array().cloned().unwrap_or_default();
        let wanted = wire::rules(&id, network.map(|subnet| subnet.cidr), network.and_then(our_address)).into_iter();
        let lacking: Vec<_> = wanted
            .filter(|rule| !there.iter().any(|other| wire::same_rule(other, rule)))
            .collect();
        if !lacking.is_empty() {
            let rules = json!({"security_group_rules": lacking});
            self.session.post(NEUTRON, "/security-group-rules", &rules).await?;
        }
        Ok(id)
    }

    pub(super) async fn security_groups(&self, cluster: &ClusterId) -> Result<Vec<Value>, Failure> {
        let filter = [("description", &*mark(cluster))];
        self.session
            .list_where(NEUTRON, "/security-groups", &filter, "security_groups")
            .await
    }

    /// Deletes the cluster's security group where no port has it any more.
    pub(super) async fn leave_security_group(&self, cluster: &ClusterId) -> Result<(), Failure> {
        for group in self.security_groups(cluster).await? {
            let path = format!("/security-groups/{}", text(&group, "id"));
            match self.session.delete(NEUTRON, &path).await {
                Err(failure) if failure.kind == BackendErrorKind::Conflict => {}
                other => drop(other?),
            }
        }
        Ok(())
    }

    /// Gives a VIP the floating IP that the settings ask for.
    async fn float(&self, cluster: &ClusterId, vip: Vip, port: &Port) -> Result<(), Failure> {
        let given = match vip {
            Vip::Api => self.config.api_floating_ip,
            Vip::Ingress => self.config.ingress_floating_ip,
        };
        if given.is_none() && self.config.external_network.is_none() {
            return Ok(());
        }
        let on_port = self.floating_ips(&[("port_id", &port.id)]).await?;
        if let Some(there) = on_port.first() {
            info!("{vip} is reached at {}", text(there, "floating_ip_address"));
            return Ok(());
        }
        let address = match (given, &self.config.external_network) {
            (Some(ip), _) => {
                let found = self
                    .floating_ips(&[("floating_ip_address", &ip.to_string())])
                    .await?
                    .into_iter()
                    .next();
                let found = found.ok_or_else(|| {
                    Failure::new(BackendErrorKind::NotFound, format!("this project has no floating IP {ip}"))
                        .hint("`openstack floating ip create NETWORK` makes one; or leave it out, and one is made on os_external_network")
                })?;
                if !text(&found, "port_id").is_empty() {
                    return Err(conflict(format!("floating IP {ip} is on another port already")));
                }
                let path = format!("/floatingips/{}", text(&found, "id"));
                self.session
                    .put(NEUTRON, &path, &json!({"floatingip": {"port_id": port.id}}))
                    .await?
            }
            (None, Some(external)) => {
                let network = self.network(external).await?;
                let floating = json!({"floatingip": {
                    "floating_network_id": network.id,
                    "port_id": port.id,
                    "description": mark(cluster),
                }});
                self.session.post(NEUTRON, "/floatingips", &floating).await?
            }
            (None, None) => return Ok(()),
        };
        info!(
            "{vip} is reached at {}",
            text(&address["floatingip"], "floating_ip_address")
        );
        Ok(())
    }

    pub(super) async fn floating_ips(&self, filter: &[(&str, &str)]) -> Result<Vec<Value>, Failure> {
        self.session
            .list_where(NEUTRON, "/floatingips", filter, "floatingips")
            .await
    }

    /// Deletes floating IPs that were made for this cluster, all or those of one port. The user's own stay.
    pub(super) async fn sink(&self, cluster: &ClusterId, port: Option<&str>) -> Result<(), Failure> {
        let mark = mark(cluster);
        let mut filter = vec![("description", mark.as_str())];
        filter.extend(port.map(|port| ("port_id", port)));
        for floating in self.floating_ips(&filter).await? {
            self.session
                .delete(NEUTRON, &format!("/floatingips/{}", text(&floating, "id")))
                .await?;
        }
        Ok(())
    }
}

/// The address with which this computer goes to a subnet; nothing is sent to find out.
fn our_address(subnet: &Subnet) -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket
        .connect((subnet.gateway.unwrap_or(subnet.cidr.network()), 9))
        .ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(ip) if !ip.is_loopback() && !ip.is_unspecified() => Some(ip),
        _ => None,
    }
}

/// Says what can be done where Neutron does not let a member choose.
pub(super) fn with_ways_out(failure: Failure) -> Failure {
    match failure.code {
        Some(403) if failure.kind == BackendErrorKind::Denied => failure.hint(WAYS_OUT),
        _ => failure,
    }
}

/// On a network of another project a member may choose neither MAC nor address, and no further addresses for a port.
pub(super) const WAYS_OUT: &str = "use a network that this project owns, with a router to the other one; or let the \
     administrator make the network's policy allow members to set mac_address, fixed_ips and allowed_address_pairs";

/// Some names for a hint.
pub(super) fn told(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        names if names.len() > 12 => format!("{} and {} more", names[..12].join(", "), names.len() - 12),
        names => names.join(", "),
    }
}
