//! Networks, subnets and ports of the fake cloud, with the addresses that Neutron assigns to ports (openstack/neutron:
//! neutron/db/ipam_pluggable_backend.py: _allocate_ips_for_port, _update_ips_for_port; neutron/db/ipam_backend_mixin.py:
//! _get_changed_ips_for_port).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use ocpdeploy::cluster::Mac;
use serde_json::{Value, json};

use super::filter;
use super::stores::Answer;

/// The IPv4 subnet of network `private`.
const SUBNET: &str = "sub-1";

#[derive(Default)]
pub struct Ports {
    /// Networks of other projects that this project sees, and their subnets.
    pub others: Vec<Value>,
    pub more_subnets: Vec<Value>,
    /// IPv6 subnets of the network, in addition to its IPv4 subnet.
    pub ipv6_subnets: Vec<Value>,
    made: usize,
}

/// An IPv6 subnet, as a user gets it with these modes.
pub fn ipv6_subnet(id: &str, cidr: &str, gateway: &str, [address, ra]: [&str; 2]) -> Value {
    let mode = |mode: &str| Some(mode.to_owned()).filter(|mode| !mode.is_empty());
    json!({
        "id": id, "network_id": "net-1", "ip_version": 6, "cidr": cidr, "enable_dhcp": true,
        "gateway_ip": Some(gateway).filter(|gateway| !gateway.is_empty()), "allocation_pools": [],
        "dns_nameservers": [], "ipv6_address_mode": mode(address), "ipv6_ra_mode": mode(ra),
    })
}

/// neutron/common/ipv6_utils.py: is_auto_address_subnet.
fn is_automatic(subnet: &Value) -> bool {
    let is_automatic = |mode: &str| ["slaac", "dhcpv6-stateless"].iter().any(|auto| subnet[mode] == *auto);
    is_automatic("ipv6_address_mode") || is_automatic("ipv6_ra_mode")
}

fn fault(status: u16, kind: &str, message: &str) -> Answer {
    (
        status,
        json!({"NeutronError": {"type": kind, "message": message, "detail": ""}}),
    )
}

/// neutron_lib/exceptions: NetworkNotFound, PortNotFound.
fn no_port() -> Answer {
    fault(404, "PortNotFound", "Port could not be found.")
}

fn fixed_ips(port: &Value) -> Vec<Value> {
    port["fixed_ips"].as_array().cloned().unwrap_or_default()
}

fn cidr(subnet: &Value) -> IpNetwork {
    subnet["cidr"].as_str().unwrap().parse().unwrap()
}

/// A pair has the port's MAC if it is sent without one (neutron/db/allowedaddresspairs_db.py:
/// _process_create_allowed_address_pairs).
fn complete_pairs(port: &mut Value) -> Result<(), Answer> {
    let mac = port["mac_address"].clone();
    let mut seen: Vec<Value> = Vec::new();
    for pair in port["allowed_address_pairs"].as_array_mut().into_iter().flatten() {
        if pair["mac_address"].is_null() {
            pair["mac_address"] = mac.clone();
        }
        if seen.contains(pair) {
            let (mac, ip) = (&pair["mac_address"], &pair["ip_address"]);
            let message = format!("Request contains duplicate address pair: mac_address {mac} ip_address {ip}.");
            return Err(fault(400, "DuplicateAddressPairInRequest", &message));
        }
        seen.push(pair.clone());
    }
    Ok(())
}

/// oslo_utils/netutils.py: get_ipv6_addr_by_EUI64.
fn eui64(subnet: &Value, mac: &Mac) -> Value {
    let [a, b, c, d, e, f] = mac.0;
    ipv6_of(subnet, u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]))
}

/// The address of an IPv6 subnet with these lowest bits.
fn ipv6_of(subnet: &Value, low: u64) -> Value {
    let IpNetwork::V6(network) = cidr(subnet) else {
        unreachable!()
    };
    let ip = Ipv6Addr::from_bits(network.network().to_bits() | u128::from(low));
    json!({"subnet_id": subnet["id"], "ip_address": ip})
}

impl Ports {
    pub fn answer(
        &mut self,
        (method, path): (&str, &str),
        query: &[(String, String)],
        body: &Value,
        (ports, others): (&mut Vec<Value>, &mut Vec<Value>),
    ) -> Option<Answer> {
        let parts: Vec<_> = path.strip_prefix("/network/v2.0/")?.split('/').collect();
        Some(match (method, parts.as_slice()) {
            ("GET", ["networks"]) => {
                let network = json!({
                    "id": "net-1", "name": "private", "project_id": "project-1", "router:external": false,
                    "port_security_enabled": true,
                });
                let networks: Vec<_> = self.others.iter().cloned().chain([network]).collect();
                (200, json!({"networks": filter(&networks, query)}))
            }
            ("GET", ["subnets"]) => (200, json!({"subnets": filter(&self.subnets(), query)})),
            ("GET", ["ports"]) => (200, json!({"ports": filter(ports, query)})),
            ("GET", ["ports", id]) => match ports.iter().find(|port| port["id"] == *id) {
                Some(port) => (200, json!({"port": port})),
                None => no_port(),
            },
            ("POST", ["ports"]) => {
                ports.append(others);
                self.create(&body["port"], ports).unwrap_or_else(|fault| fault)
            }
            ("PUT", ["ports", id]) => self.update(id, &body["port"], ports).unwrap_or_else(|fault| fault),
            ("DELETE", ["ports", id]) => {
                let before = ports.len();
                ports.retain(|port| port["id"] != *id);
                match ports.len() < before {
                    true => (204, Value::Null),
                    false => no_port(),
                }
            }
            _ => return None,
        })
    }

    fn subnets(&self) -> Vec<Value> {
        let ipv4 = json!({
            "id": SUBNET, "network_id": "net-1", "ip_version": 4, "cidr": "10.20.0.0/24", "gateway_ip": "10.20.0.1",
            "enable_dhcp": true, "allocation_pools": [{"start": "10.20.0.2", "end": "10.20.0.254"}],
            "dns_nameservers": [], "ipv6_address_mode": null, "ipv6_ra_mode": null,
        });
        let more = self.ipv6_subnets.iter().chain(&self.more_subnets);
        std::iter::once(ipv4).chain(more.cloned()).collect()
    }

    fn create(&mut self, wanted: &Value, ports: &mut Vec<Value>) -> Result<Answer, Answer> {
        let mut port = wanted.clone();
        if ports.iter().any(|other| other["mac_address"] == port["mac_address"]) {
            return Err(fault(409, "MacAddressInUse", "in use"));
        }
        let mut ips = match port["fixed_ips"].as_array() {
            Some(wanted) => {
                let mut ips = Vec::new();
                for ip in wanted {
                    let ip = match ip["ip_address"].is_null() {
                        true => self.next(&ip["subnet_id"], ports)?,
                        false => ip.clone(),
                    };
                    self.check(&ip, ports)?;
                    ips.push(ip);
                }
                ips
            }
            // One of each family, which is not of a subnet with automatic addresses.
            None => {
                let made = self.made + 100;
                let stateful = self.ipv6_subnets.iter().find(|subnet| !is_automatic(subnet));
                let second = stateful.map(|subnet| ipv6_of(subnet, made as u64));
                let first = json!({"subnet_id": SUBNET, "ip_address": format!("10.20.0.{made}")});
                std::iter::once(first).chain(second).collect()
            }
        };
        ips.extend(self.automatic(&port));
        complete_pairs(&mut port)?;
        port["fixed_ips"] = json!(ips);
        port["id"] = json!(format!("port-{}", self.made));
        port["device_id"] = json!("");
        self.made += 1;
        ports.push(port.clone());
        Ok((201, json!({"port": port})))
    }

    fn update(&self, id: &str, changes: &Value, ports: &mut [Value]) -> Result<Answer, Answer> {
        let Some(at) = ports.iter().position(|port| port["id"] == id) else {
            return Err(no_port());
        };
        let mut port = ports[at].clone();
        for (key, value) in changes.as_object().unwrap() {
            port[key] = value.clone();
        }
        complete_pairs(&mut port)?;
        if changes["fixed_ips"].is_array() {
            let (before, mut ips) = (fixed_ips(&ports[at]), fixed_ips(changes));
            for ip in ips.iter().filter(|ip| !before.contains(ip)) {
                self.check(ip, ports)?;
            }
            ips.extend(self.automatic(&port));
            port["fixed_ips"] = json!(ips);
        }
        ports[at] = port.clone();
        Ok((200, json!({"port": port})))
    }

    /// The addresses that each port has without a request.
    fn automatic(&self, port: &Value) -> Vec<Value> {
        let mac: Mac = port["mac_address"].as_str().unwrap().parse().unwrap();
        let subnets = self.ipv6_subnets.iter().filter(|subnet| is_automatic(subnet));
        subnets.map(|subnet| eui64(subnet, &mac)).collect()
    }

    /// A free address of the pools of a subnet (openstack/neutron: neutron/ipam/drivers/neutrondb_ipam/driver.py:
    /// _generate_ips).
    fn next(&self, subnet: &Value, ports: &[Value]) -> Result<Value, Answer> {
        let subnets = self.subnets();
        let pools = subnets.iter().filter(|one| one["id"] == *subnet);
        let pools = pools.flat_map(|one| one["allocation_pools"].as_array().unwrap());
        let bits = |pool: &Value, end: &str| pool[end].as_str().unwrap().parse::<Ipv4Addr>().unwrap().to_bits();
        let mut all = pools.flat_map(|pool| bits(pool, "start")..=bits(pool, "end"));
        let is_free = |ip: &Value| !ports.iter().flat_map(fixed_ips).any(|used| used["ip_address"] == *ip);
        let free = all.find_map(|bits| Some(json!(Ipv4Addr::from_bits(bits))).filter(is_free));
        let message = format!("No more IP addresses available on subnet {subnet}.");
        let free = free.ok_or_else(|| fault(409, "IpAddressGenerationFailure", &message))?;
        Ok(json!({"subnet_id": subnet, "ip_address": free}))
    }

    /// Whether a port can have this address (openstack/neutron: neutron/ipam/exceptions.py).
    fn check(&self, fixed: &Value, ports: &[Value]) -> Result<(), Answer> {
        let subnets = self.subnets();
        let Some(subnet) = subnets.iter().find(|subnet| subnet["id"] == fixed["subnet_id"]) else {
            let message =
                "Invalid input for operation: Failed to create port, because fixed_ips included invalid subnet.";
            return Err(fault(400, "InvalidInput", message));
        };
        let (ip, id) = (fixed["ip_address"].as_str().unwrap(), subnet["id"].as_str().unwrap());
        let address: IpAddr = ip.parse().unwrap();
        if !cidr(subnet).contains(address) {
            let message = format!("IP address {ip} does not belong to subnet {id}");
            return Err(fault(400, "InvalidIpForSubnet", &message));
        }
        if is_automatic(subnet) {
            let message = format!(
                "IPv6 address {ip} cannot be directly assigned to a port on subnet {id} as the subnet is configured for \
                 automatic addresses"
            );
            return Err(fault(400, "AllocationOnAutoAddressSubnet", &message));
        }
        let is_used = |port: &Value| fixed_ips(port).iter().any(|other| other["ip_address"] == ip);
        if ports.iter().any(is_used) {
            let message = format!("IP address {ip} already allocated in subnet {id}");
            return Err(fault(409, "IpAddressAlreadyAllocated", &message));
        }
        Ok(())
    }
}
