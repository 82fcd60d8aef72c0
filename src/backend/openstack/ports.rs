//! Ports, which reserve the MACs and addresses of nodes and VIPs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnetwork::{IpNetwork, Ipv6Network};
use serde_json::{Value, json};

use super::auth::Service::Network as NEUTRON;
use super::cloud::OpenStack;
use super::network::NeutronNetwork;
use super::wire::{self, tag_text, text};
use crate::backend::ownership::conflict;
use crate::backend::{
    Action, AddressReservation, BackendError, BackendErrorKind, MachineSpec, Nic, ReservationState, Reserved,
    is_forbidden,
};
use crate::cluster::{AddressAssignment, ClusterId, Mac, MachineName, NodeName, Role, Vip};

/// A port of Neutron.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Port {
    pub id: String,
    pub name: String,
    pub description: String,
    pub network: String,
    pub mac: Option<Mac>,
    pub ips: Vec<Ipv4Addr>,
    pub ipv6: Vec<Ipv6Addr>,
    /// The server that uses it; empty if none.
    pub device: String,
    pub device_owner: String,
    pub groups: Vec<String>,
    /// Whether Neutron filters its packets.
    pub port_security: bool,
    /// The allowed address pairs, as Neutron stores them.
    pub pairs: Vec<Value>,
}

impl Port {
    pub fn read(port: &Value) -> Self {
        let list = |key: &str| port[key].as_array().into_iter().flatten();
        let ips = || list("fixed_ips").filter_map(|address| address["ip_address"].as_str());
        Self {
            id: text(port, "id").to_owned(),
            name: text(port, "name").to_owned(),
            description: text(port, "description").to_owned(),
            network: text(port, "network_id").to_owned(),
            mac: text(port, "mac_address").parse().ok(),
            ips: ips().filter_map(|ip| ip.parse().ok()).collect(),
            ipv6: ips().filter_map(|ip| ip.parse().ok()).collect(),
            device: text(port, "device_id").to_owned(),
            device_owner: text(port, "device_owner").to_owned(),
            groups: list("security_groups")
                .filter_map(|id| Some(id.as_str()?.to_owned()))
                .collect(),
            port_security: port["port_security_enabled"] != false,
            pairs: list("allowed_address_pairs").cloned().collect(),
        }
    }

    pub fn is_of(&self, cluster: &ClusterId) -> bool {
        self.description == tag_text(cluster)
    }

    /// The further addresses that Neutron accepts; `None` if it filters nothing. A pair is an address or a network,
    /// with the MAC of a sender (openstack/neutron: `neutron/db/allowedaddresspairs_db.py`).
    pub fn allowed(&self) -> Option<Vec<IpNetwork>> {
        let network = |pair: &Value| {
            let mac: Option<Mac> = pair["mac_address"].as_str().and_then(|mac| mac.parse().ok());
            let is_ours = mac.is_none() || mac == self.mac;
            text(pair, "ip_address").parse().ok().filter(|_| is_ours)
        };
        self.port_security
            .then(|| self.pairs.iter().filter_map(network).collect())
    }

    /// Whether Neutron drops packets from this further address.
    pub fn forbids(&self, ip: IpAddr) -> bool {
        is_forbidden(self.allowed().as_deref(), ip)
    }

    /// The node or VIP for which it reserves an address; `None`: it is the port of a machine and is deleted with it.
    pub fn reserved_for(&self, cluster: &ClusterId) -> Option<NodeName> {
        let host = cluster.domain().host_of(&self.name)?;
        serde_json::from_value(json!(host)).ok()
    }
}

/// The name of a port that is deleted with its machine. Host names contain no colon.
pub(super) fn port_of(machine: &MachineName, index: usize) -> String {
    format!("{machine}:{index}")
}

/// The addresses of the VIPs that nodes of this role may use, in one or two families.
pub(super) fn pairs_of(role: Role, cluster: &ClusterId, ports: &[Port], ipv6: Option<Ipv6Network>) -> Vec<IpAddr> {
    let of_vip = |vip: &Vip| {
        let name = NodeName::vip(*vip);
        ports
            .iter()
            .filter(move |port| port.reserved_for(cluster).as_ref() == Some(&name))
    };
    let addresses = |port: &Port| {
        let second = port
            .ipv6
            .iter()
            .filter(|ip| ipv6.is_some_and(|network| network.contains(**ip)));
        let first = port.ips.iter().map(|ip| IpAddr::V4(*ip));
        first.chain(second.map(|ip| IpAddr::V6(*ip))).collect::<Vec<_>>()
    };
    role.vips().iter().flat_map(of_vip).flat_map(addresses).collect()
}

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
            // The VIP's port belongs to Octavia, which has created it with the load balancer.
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
            self.refuse_exposure(vip, &network)?;
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
        network: &NeutronNetwork,
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
        // For the port of a pass-one machine, Neutron has chosen another IPv6 address, or none.
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
        network: &NeutronNetwork,
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
        // With load balancers, machines do not have the VIPs and so require no address pairs.
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
                let body = json!({"port": {"name": port_of(&machine.name, 0)}});
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
        networks: &[Arc<NeutronNetwork>],
        groups: &[String],
    ) -> Result<Vec<Port>, BackendError> {
        let names = Vip::ALL.map(|vip| spec.cluster.domain().fqdn(NodeName::vip(vip).as_str()));
        let vips = self.ports_named(&spec.cluster, &names).await?;
        let vips = pairs_of(spec.role, &spec.cluster, &vips, spec.ipv6);
        let mut ports = Vec::new();
        for (index, (nic, network)) in spec.nics.iter().zip(networks).enumerate() {
            let vips = if index == 0 { vips.as_slice() } else { &[] };
            let name = port_of(&spec.name, index);
            ports.push(self.port_for(&spec.cluster, &name, nic, network, groups, vips).await?);
        }
        Ok(ports)
    }

    async fn port_for(
        &self,
        cluster: &ClusterId,
        name: &str,
        nic: &Nic,
        network: &NeutronNetwork,
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
        // Neutron would choose any of them.
        if let Some(main) = network.main().filter(|_| network.subnets.len() > 1) {
            port["fixed_ips"] = json!([{"subnet_id": main.id}]);
        }
        let created = self
            .session
            .post(NEUTRON, "/ports", &json!({"port": port}))
            .await
            .map_err(with_policy_hint)?;
        Ok(Port::read(&created["port"]))
    }
}

/// The addresses of a reserved port, with their subnets.
fn fixed_ips(reservation: &AddressReservation, network: &NeutronNetwork) -> Result<Value, BackendError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn lab() -> ClusterId {
        ClusterId::read("lab.example.com.x7k2pqrs").unwrap()
    }

    #[test]
    fn nodes_may_use_the_vips_of_their_role_and_cluster() {
        let port = |name: &str, ip: [u8; 4]| {
            Port::read(&json!({"name": name, "fixed_ips": [{"ip_address": Ipv4Addr::from(ip)}]}))
        };
        let ports = [
            port("api.lab.example.com", [10, 0, 0, 2]),
            port("ingress.lab.example.com", [10, 0, 0, 3]),
            port("api.b.lab.example.com", [10, 0, 0, 4]),
            port("lab-master-0:0", [10, 0, 0, 5]),
        ];
        let pairs = |role| {
            let pairs = pairs_of(role, &lab(), &ports, None);
            pairs.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(pairs(Role::Master), ["10.0.0.2", "10.0.0.3"]);
        assert_eq!(pairs(Role::Bootstrap), ["10.0.0.2", "10.0.0.3"]);
        assert_eq!(pairs(Role::Worker), ["10.0.0.3"]);
        assert_eq!(pairs(Role::Arbiter), [""; 0]);
        assert_eq!(pairs(Role::Helper), [""; 0]);
        assert_eq!(ports[3].reserved_for(&lab()), None);
    }

    /// Neutron adds an address of each subnet with automatic addresses to every port.
    #[test]
    fn nodes_may_use_the_vips_of_the_second_family_in_the_machine_network_only() {
        let ips = ["10.0.0.3", "fd00:1::a00:3", "fd00:2::5054:ff:fe00:1"];
        let ips = ips.map(|ip| json!({"ip_address": ip}));
        let port = Port::read(&json!({"name": "ingress.lab.example.com", "fixed_ips": ips}));
        for (network, expected) in [
            (None, &["10.0.0.3"][..]),
            (Some("fd00:1::/64"), &["10.0.0.3", "fd00:1::a00:3"]),
        ] {
            let network = network.map(|network| network.parse().unwrap());
            let pairs = pairs_of(Role::Worker, &lab(), std::slice::from_ref(&port), network);
            let pairs: Vec<_> = pairs.iter().map(ToString::to_string).collect();
            assert_eq!(pairs, expected, "{network:?}");
        }
    }

    /// A pair is an address or a network, for packets with its MAC.
    #[test]
    fn pairs_of_a_port_allow_addresses_to_its_own_mac() {
        let mac = "fa:16:3e:00:00:01";
        let port = |filtered: bool| {
            let pairs = json!([
                {"ip_address": "10.0.0.2"},
                {"ip_address": "fd00:1::/120", "mac_address": "FA:16:3E:00:00:01"},
                {"ip_address": "10.0.0.3", "mac_address": "fa:16:3e:00:00:02"},
            ]);
            Port::read(&json!({"mac_address": mac, "port_security_enabled": filtered, "allowed_address_pairs": pairs}))
        };
        for (ip, expected) in [
            ("10.0.0.2", true),
            ("fd00:1::2", true),
            ("10.0.0.3", false),
            ("fd00:1::1:2", false),
        ] {
            let ip = ip.parse().unwrap();
            assert_eq!(port(true).forbids(ip), !expected, "{ip}");
            assert!(!port(false).forbids(ip), "without a filter");
        }
    }
}
