//! Ports, security groups and floating IPs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::Arc;

use ipnetwork::Ipv6Network;
use serde_json::{Value, json};
use tracing::info;

use super::auth::Service::Network as NEUTRON;
use super::cloud::OpenStack;
use super::network::{Network, Subnet};
use super::wire::{self, Port, tag_text, text};
use crate::backend::ownership::conflict;
use crate::backend::{
    Action, AddressReservation, BackendError, BackendErrorKind, MachineSpec, Nic, ReservationState, Reserved,
};
use crate::cluster::{AddressAssignment, ClusterId, NodeName, Vip};

impl OpenStack {
    /// The ports of this project.
    pub(super) async fn ports(&self, filter: &[(&str, &str)]) -> Result<Vec<Port>, BackendError> {
        let ports = self.session.list_own_where(NEUTRON, "/ports", filter, "ports").await?;
        Ok(ports.iter().map(Port::read).collect())
    }

    pub(super) async fn ports_of(&self, cluster: &ClusterId) -> Result<Vec<Port>, BackendError> {
        self.ports(&[("description", &tag_text(cluster))]).await
    }

    /// The cluster's ports with one of these names, without listing all ports of a large cluster.
    pub(super) async fn ports_named(&self, cluster: &ClusterId, names: &[String]) -> Result<Vec<Port>, BackendError> {
        let tag = tag_text(cluster);
        let mut filter = vec![("description", tag.as_str())];
        filter.extend(names.iter().map(|name| ("name", name.as_str())));
        self.ports(&filter).await
    }

    /// Creates a tagged port with the MAC and address, which remains when machines are deleted.
    pub(super) async fn reserve(&self, reservation: &AddressReservation) -> Result<ReservationState, BackendError> {
        let AddressReservation {
            cluster, assignment, ..
        } = reservation;
        let vip = Vip::ALL.into_iter().find(|vip| NodeName::vip(*vip) == assignment.name);
        if let (Some(vip), Some(_)) = (vip, &self.config.balancers) {
            // Octavia has its port.
            let balancer = self.balancer_of(cluster, vip, Some(assignment.ip)).await?;
            return match balancer {
                Some(_) => Ok(ReservationState::ByPlatform),
                None => Err(conflict(format!(
                    "no load balancer of cluster {cluster} has {}",
                    assignment.ip
                ))),
            };
        }
        let network = self.network(&reservation.network).await?;
        let name = cluster.domain().fqdn(assignment.name.as_str());
        let mac = assignment.mac.to_string();
        let by_mac = [("network_id", network.id.as_str()), ("mac_address", &mac)];
        let mut by_name: Vec<_> = reservation
            .dns_names
            .iter()
            .map(|name| ("name", name.as_str()))
            .collect();
        by_name.push(("name", &name));
        let (mut there, named) = futures::try_join!(self.ports(&by_mac), self.ports(&by_name))?;
        let port = match there.pop() {
            Some(port) => self.adopt_port(reservation, &name, port, &network).await?,
            None => {
                let is_others = |port: &&Port| !port.description.is_empty() && !port.is_of(cluster);
                if let Some(other) = named.iter().find(is_others) {
                    return Err(conflict(format!("{} belongs to `{}`", other.name, other.description)));
                }
                self.create_reserved_port(reservation, &name, &network).await?
            }
        };
        if let Some(vip) = vip {
            self.assign_floating_ip(cluster, vip, &port.id).await?;
        }
        Ok(ReservationState::ByPlatform)
    }

    /// Adopts an existing port with this MAC: a former reservation, or the port of a pass-one machine.
    async fn adopt_port(
        &self,
        reservation: &AddressReservation,
        name: &str,
        port: Port,
        network: &Network,
    ) -> Result<Port, BackendError> {
        let AddressAssignment { mac, ip, .. } = reservation.assignment;
        if !port.is_of(&reservation.cluster) {
            return Err(conflict(format!(
                "port {} with MAC {mac} belongs to another owner",
                port.id
            )));
        }
        if port.ips != [ip] {
            return Err(conflict(format!(
                "port {} with MAC {mac} has {:?} instead of {ip}",
                port.name, port.ips
            )));
        }
        let mut changes = json!({});
        match port.reserved_for(&reservation.cluster) {
            Some(holder) if holder == reservation.assignment.name => {}
            Some(holder) => return Err(conflict(format!("{ip} is already reserved for {holder}"))),
            None => changes["name"] = json!(name),
        }
        // For the port of a pass-one machine, Neutron has chosen another one, or none.
        if reservation.ipv6.is_some_and(|ipv6| !port.ipv6.contains(&ipv6)) {
            changes["fixed_ips"] = fixed_ips(reservation, network)?;
        }
        let forbidden = reservation.allowed.iter().filter(|ip| port.forbids(**ip));
        let added: Vec<_> = forbidden.map(|ip| json!({"ip_address": ip})).collect();
        if !added.is_empty() {
            changes["allowed_address_pairs"] = json!([port.pairs.as_slice(), &added].concat());
        }
        if changes == json!({}) {
            return Ok(port);
        }
        let path = format!("/ports/{}", port.id);
        let changed = self.session.put(NEUTRON, &path, &json!({"port": changes})).await;
        changed.map_err(with_policy_hint)?;
        Ok(port)
    }

    async fn create_reserved_port(
        &self,
        reservation: &AddressReservation,
        name: &str,
        network: &Network,
    ) -> Result<Port, BackendError> {
        let AddressReservation {
            cluster, assignment, ..
        } = reservation;
        let port = json!({"port": {
            "network_id": network.id,
            "name": name,
            "description": tag_text(cluster),
            "mac_address": assignment.mac,
            "fixed_ips": fixed_ips(reservation, network)?,
            // The port of a machine gets the group when the machine is created. The port of a VIP has no traffic.
            "security_groups": [],
        }});
        let created = self
            .session
            .post(NEUTRON, "/ports", &port)
            .await
            .map_err(with_policy_hint)?;
        Ok(Port::read(&created["port"]))
    }

    pub(super) async fn reservations(&self, cluster: &ClusterId) -> Result<Vec<Reserved>, BackendError> {
        // Otherwise the load balancers have the VIPs, not the machines.
        let is_filtered = self.config.balancers.is_none();
        let reserved = |port: &Port| {
            Some(Reserved {
                assignment: AddressAssignment {
                    name: port.reserved_for(cluster)?,
                    mac: port.mac?,
                    ip: IpAddr::V4(*port.ips.first()?),
                },
                ipv6: Some(port.ipv6.clone()),
                allowed: port.allowed().filter(|_| is_filtered),
            })
        };
        let (ports, balanced) = futures::try_join!(self.ports_of(cluster), self.balanced_vips(cluster))?;
        let balanced = balanced.into_iter().map(Reserved::from);
        Ok(ports.iter().filter_map(reserved).chain(balanced).collect())
    }

    /// Deletes one reservation. A port in use by a machine is kept, and is deleted with that machine.
    pub(super) async fn release(&self, reservation: &AddressReservation) -> Result<Action<()>, BackendError> {
        let name = reservation.cluster.domain().fqdn(reservation.assignment.name.as_str());
        let assignment = &reservation.assignment;
        let is_it = |port: &Port| port.name == name && port.mac == Some(assignment.mac) && port.ips == [assignment.ip];
        let Some(port) = self.ports_of(&reservation.cluster).await?.into_iter().find(is_it) else {
            return Ok(Action::Unchanged(()));
        };
        let server = self.server_on(&port).await?;
        let server = server.filter(|server| wire::cluster_of(server).as_ref() == Some(&reservation.cluster));
        match server.as_ref().and_then(wire::machine) {
            Some(machine) => {
                let body = json!({"port": {"name": wire::port_of(&machine.name, 0)}});
                self.session.put(NEUTRON, &format!("/ports/{}", port.id), &body).await?;
            }
            None => {
                for port in self.unused_ports(&reservation.cluster, vec![port]).await? {
                    self.delete_floating_ips(&reservation.cluster, Some(&port.id)).await?;
                    self.delete_port(&port.id).await?;
                }
            }
        }
        Ok(Action::Done(()))
    }

    pub(super) async fn delete_port(&self, id: &str) -> Result<bool, BackendError> {
        self.session.delete(NEUTRON, &format!("/ports/{id}")).await
    }

    /// The ports of a new machine, one for each NIC, with the cluster's group and the VIPs that it may use.
    pub(super) async fn ports_for(
        &self,
        spec: &MachineSpec,
        networks: &[Arc<Network>],
        groups: &[String],
    ) -> Result<Vec<Port>, BackendError> {
        let names = Vip::ALL.map(|vip| spec.cluster.domain().fqdn(NodeName::vip(vip).as_str()));
        let vips = self.ports_named(&spec.cluster, &names).await?;
        let vips = wire::pairs_of(spec.role, &spec.cluster, &vips, spec.ipv6);
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
        vips: &[IpAddr],
    ) -> Result<Port, BackendError> {
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
                    "port {} with MAC {} belongs to another owner",
                    there.id, nic.mac
                )));
            }
            let has_pairs = !vips.iter().any(|ip| there.forbids(*ip));
            if network.port_security && there.device.is_empty() && (there.groups != groups || !has_pairs) {
                let path = format!("/ports/{}", there.id);
                self.session
                    .put(NEUTRON, &path, &json!({"port": port}))
                    .await
                    .map_err(with_policy_hint)?;
            }
            return Ok(there);
        }
        port["network_id"] = json!(network.id);
        port["name"] = json!(name);
        port["description"] = json!(tag_text(cluster));
        port["mac_address"] = json!(nic.mac);
        let created = self
            .session
            .post(NEUTRON, "/ports", &json!({"port": port}))
            .await
            .map_err(with_policy_hint)?;
        Ok(Port::read(&created["port"]))
    }

    /// The cluster's security group with all its rules.
    pub(super) async fn security_group(
        &self,
        cluster: &ClusterId,
        network: Option<&Subnet>,
        ipv6: Option<Ipv6Network>,
    ) -> Result<String, BackendError> {
        let _alone = self.groups.lock().await;
        let group = match self.security_groups(cluster).await?.into_iter().next() {
            Some(group) => group,
            None => {
                let group = json!({"security_group": {"name": tag_text(cluster), "description": tag_text(cluster)}});
                self.session.post(NEUTRON, "/security-groups", &group).await?["security_group"].take()
            }
        };
        let id = text(&group, "id").to_owned();
        let there = group["security_group_rules"].as_array().cloned().unwrap_or_default();
        let mut wanted = wire::rules(
            &id,
            network.map(|subnet| subnet.cidr),
            network.and_then(our_address),
            &self.config.admit,
            self.config.rehearsal,
            self.config.balancers.is_some(),
        );
        if let Some(network) = ipv6 {
            let us = our_address_towards(network.network().into());
            wanted.extend(wire::ipv6_rules(
                &id,
                network,
                us,
                &self.config.admit,
                self.config.rehearsal,
            ));
        }
        let lacking: Vec<_> = wanted
            .iter()
            .filter(|rule| !there.iter().any(|other| wire::same_rule(other, rule)))
            .collect();
        if !lacking.is_empty() {
            let rules = json!({"security_group_rules": lacking});
            self.session.post(NEUTRON, "/security-group-rules", &rules).await?;
        }
        for rule in there.iter().filter(|rule| wire::is_outdated(rule, &wanted)) {
            let path = format!("/security-group-rules/{}", text(rule, "id"));
            self.session.delete(NEUTRON, &path).await?;
        }
        Ok(id)
    }

    pub(super) async fn security_groups(&self, cluster: &ClusterId) -> Result<Vec<Value>, BackendError> {
        let filter = [("description", &*tag_text(cluster))];
        self.session
            .list_own_where(NEUTRON, "/security-groups", &filter, "security_groups")
            .await
    }

    /// Deletes the cluster's security group if no port uses it.
    pub(super) async fn delete_security_group(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        for group in self.security_groups(cluster).await? {
            let path = format!("/security-groups/{}", text(&group, "id"));
            match self.session.delete(NEUTRON, &path).await {
                Err(failure) if failure.kind == BackendErrorKind::Conflict => {}
                other => drop(other?),
            }
        }
        Ok(())
    }

    /// Assigns the configured floating IP to a VIP.
    pub(super) async fn assign_floating_ip(
        &self,
        cluster: &ClusterId,
        vip: Vip,
        port: &str,
    ) -> Result<(), BackendError> {
        let given = match vip {
            Vip::Api => self.config.api_floating_ip,
            Vip::Ingress => self.config.ingress_floating_ip,
        };
        if given.is_none() && self.config.external_network.is_none() {
            return Ok(());
        }
        let on_port = self.floating_ips(&[("port_id", port)]).await?;
        if let Some(there) = on_port.first() {
            info!("floating IP of {vip}: {}", text(there, "floating_ip_address"));
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
                    BackendError::new(BackendErrorKind::NotFound, format!("floating IP {ip} does not exist in this project"))
                        .hint("create one with `openstack floating ip create NETWORK`, or remove this setting and set os_external_network")
                })?;
                if !text(&found, "port_id").is_empty() {
                    return Err(conflict(format!("floating IP {ip} is in use by another port")));
                }
                let path = format!("/floatingips/{}", text(&found, "id"));
                self.session
                    .put(NEUTRON, &path, &json!({"floatingip": {"port_id": port}}))
                    .await?
            }
            (None, Some(external)) => {
                let network = self.network(external).await?;
                let floating = json!({"floatingip": {
                    "floating_network_id": network.id,
                    "port_id": port,
                    "description": tag_text(cluster),
                }});
                self.session.post(NEUTRON, "/floatingips", &floating).await?
            }
            (None, None) => return Ok(()),
        };
        info!(
            "floating IP of {vip}: {}",
            text(&address["floatingip"], "floating_ip_address")
        );
        Ok(())
    }

    /// The floating IPs of this project.
    pub(super) async fn floating_ips(&self, filter: &[(&str, &str)]) -> Result<Vec<Value>, BackendError> {
        self.session
            .list_own_where(NEUTRON, "/floatingips", filter, "floatingips")
            .await
    }

    /// Deletes floating IPs that were created for this cluster, all or those of one port. Others are kept.
    pub(super) async fn delete_floating_ips(
        &self,
        cluster: &ClusterId,
        port: Option<&str>,
    ) -> Result<(), BackendError> {
        let tag = tag_text(cluster);
        let mut filter = vec![("description", tag.as_str())];
        filter.extend(port.map(|port| ("port_id", port)));
        for floating in self.floating_ips(&filter).await? {
            self.session
                .delete(NEUTRON, &format!("/floatingips/{}", text(&floating, "id")))
                .await?;
        }
        Ok(())
    }
}

/// The address of this computer on connections to a subnet. No packet is sent.
pub(super) fn our_address(subnet: &Subnet) -> Option<IpAddr> {
    our_address_towards(subnet.gateway.unwrap_or(subnet.cidr.network()).into())
}

fn our_address_towards(destination: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match destination {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((destination, 9)).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

/// The addresses of a reserved port, with their subnets.
fn fixed_ips(reservation: &AddressReservation, network: &Network) -> Result<Value, BackendError> {
    let ip = reservation.assignment.ip;
    let mut all = vec![json!({"subnet_id": network.subnet_of(ip)?.id, "ip_address": ip})];
    if let Some(ip) = reservation.ipv6 {
        all.push(json!({"subnet_id": network.ipv6_subnet_of(ip)?.id, "ip_address": ip}));
    }
    Ok(json!(all))
}

/// Adds a hint if Neutron does not allow members to choose.
pub(super) fn with_policy_hint(failure: BackendError) -> BackendError {
    match failure.code {
        Some(403) if failure.kind == BackendErrorKind::Denied => failure.hint(WAYS_OUT),
        _ => failure,
    }
}

/// On a network of another project, members can choose neither MACs nor addresses nor address pairs.
pub(super) const WAYS_OUT: &str = "use a network that this project owns, with a router to the other one; or let the \
     administrator make the network's policy allow members to set mac_address, fixed_ips and allowed_address_pairs";

/// Up to 12 names for a hint.
pub(super) fn some_of(names: &[&str]) -> String {
    match names {
        [] => "none".to_owned(),
        names if names.len() > 12 => format!("{} and {} more", names[..12].join(", "), names.len() - 12),
        names => names.join(", "),
    }
}
