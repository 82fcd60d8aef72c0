//! The node's addresses and default routes in a network state, on the node's interface.

use std::net::{IpAddr, Ipv6Addr};

use nmstate::{
    Dhcpv4ClientId, DnsClientState, DnsState, InterfaceIpAddr, InterfaceIpv6, NetworkState, RouteEntry, RouteState,
};

use super::document::{AddressFamily, NetworkConfigDocument, NetworkConfigFault};
use crate::cluster::NodeName;

/// How a node gets its address in the machine network.
#[derive(Clone, Copy, Debug)]
pub enum Addressing<'a> {
    /// By DHCP, for the MAC of `nic0`.
    Dhcp,
    Static(StaticAddress<'a>),
    /// Static, but not known yet: the file is checked without it.
    Later(AddressFamily),
}

impl Addressing<'_> {
    /// The family of the node's own address, the first one if it has two.
    pub fn family(&self) -> AddressFamily {
        match self {
            Self::Dhcp => AddressFamily::Ipv4,
            Self::Static(address) => AddressFamily::of(address.ip),
            Self::Later(family) => *family,
        }
    }
}

/// A node's address in the table, and its network's gateway, name servers and search domains.
#[derive(Clone, Copy, Debug)]
pub struct StaticAddress<'a> {
    pub ip: IpAddr,
    pub prefix: u8,
    pub gateway: Option<IpAddr>,
    pub name_servers: &'a [IpAddr],
    pub search: &'a [String],
}

/// A node's static IPv6 address, in the second family or the only one, and its network's gateway. If they are not known
/// yet, the file is checked without them.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6Address {
    pub ip: Option<Ipv6Addr>,
    pub prefix: u8,
    pub gateway: Option<Ipv6Addr>,
}

impl Ipv6Address {
    /// An address that is not known yet; its prefix does not matter.
    pub(super) fn unknown() -> Self {
        Self {
            ip: None,
            prefix: 64,
            gateway: None,
        }
    }
}

pub(super) fn default_routes(state: &NetworkState, family: AddressFamily) -> impl Iterator<Item = &RouteEntry> {
    let routes = state.routes.config.iter().flatten();
    routes.filter(move |route| {
        route.destination.as_deref() == Some(family.everywhere()) && route.state != Some(RouteState::Absent)
    })
}

pub(super) fn by_dhcp(
    document: &NetworkConfigDocument,
    state: &mut NetworkState,
    own: &str,
) -> Result<(), NetworkConfigFault> {
    const HELP: &str = "leave `ipv4: {enabled: true}`, or set dhcp=none to give nodes static addresses";
    for interface in state.interfaces.iter_mut().filter(|interface| interface.name() == own) {
        let Some(ip) = &mut interface.base_iface_mut().ipv4 else {
            continue;
        };
        if ip.addresses.as_ref().is_some_and(|addresses| !addresses.is_empty()) {
            let message = format!("{own} has a static address, but nodes get theirs by DHCP");
            return Err(NetworkConfigFault::new(message)
                .at(document.address(own, AddressFamily::Ipv4, 0))
                .help(HELP));
        }
        if ip.dhcp == Some(false) {
            let message = format!("{own} has `dhcp: false`, but nodes get their addresses by DHCP");
            return Err(NetworkConfigFault::new(message).at(document.interface(own)).help(HELP));
        }
        ip.dhcp = Some(true);
        // The initramfs sends the MAC as its client id, too; for another id, a DHCP server would give another address.
        ip.dhcp_client_id.get_or_insert(Dhcpv4ClientId::LinkLayerAddress);
    }
    Ok(())
}

pub(super) fn by_table(
    document: &NetworkConfigDocument,
    state: &mut NetworkState,
    own: &str,
    node: &NodeName,
    address: &StaticAddress<'_>,
) -> Result<(), NetworkConfigFault> {
    let (ip, prefix) = (address.ip, address.prefix);
    match ip {
        IpAddr::V4(_) => {
            if let Some(given) = set_static(document, state, own, ip, prefix)? {
                let fault = other_address(node, ip, prefix, own, &given);
                return Err(fault.at(document.address(own, AddressFamily::Ipv4, 0)));
            }
            if let Some(gateway) = address.gateway {
                set_gateway(document, state, own, gateway)?;
            }
        }
        IpAddr::V6(ip) => {
            refuse_ipv4(document, state, own)?;
            let gateway = match address.gateway {
                Some(IpAddr::V6(gateway)) => Some(gateway),
                Some(IpAddr::V4(_)) | None => None,
            };
            let ip = Some(ip);
            set_ipv6(document, state, own, node, &Ipv6Address { ip, prefix, gateway })?;
        }
    }
    let dns = state.dns.get_or_insert_with(DnsState::new);
    let dns = dns.config.get_or_insert_with(DnsClientState::new);
    if dns.server.as_ref().is_none_or(Vec::is_empty) && !address.name_servers.is_empty() {
        dns.server = Some(address.name_servers.iter().map(IpAddr::to_string).collect());
    }
    if dns.search.as_ref().is_none_or(Vec::is_empty) && !address.search.is_empty() {
        dns.search = Some(address.search.to_vec());
    }
    Ok(())
}

/// Rejects IPv4 on the interface, because a node without an IPv4 address must not request one.
fn refuse_ipv4(document: &NetworkConfigDocument, state: &NetworkState, own: &str) -> Result<(), NetworkConfigFault> {
    let mut interfaces = state.interfaces.iter().filter(|interface| interface.name() == own);
    if interfaces.any(|interface| interface.base_iface().ipv4.as_ref().is_some_and(|ip| ip.enabled)) {
        let message = format!("{own} has IPv4 enabled, but the machine network is an IPv6 network");
        let help = "remove `ipv4` of this interface from the file";
        return Err(NetworkConfigFault::new(message).at(document.interface(own)).help(help));
    }
    Ok(())
}

/// Sets a static IPv4 address, unless the file has one; returns the address of the file if it differs.
pub(super) fn set_static(
    document: &NetworkConfigDocument,
    state: &mut NetworkState,
    own: &str,
    ip: IpAddr,
    prefix: u8,
) -> Result<Option<InterfaceIpAddr>, NetworkConfigFault> {
    for interface in state.interfaces.iter_mut().filter(|interface| interface.name() == own) {
        let Some(settings) = &mut interface.base_iface_mut().ipv4 else {
            continue;
        };
        if settings.dhcp == Some(true) {
            let message = format!("{own} has `dhcp: true`, but dhcp=none");
            let help = "remove `dhcp` from the file: the address is filled in";
            return Err(NetworkConfigFault::new(message).at(document.interface(own)).help(help));
        }
        let addresses = settings.addresses.get_or_insert_default();
        match addresses.first() {
            None => addresses.push(with_prefix(ip, prefix)),
            Some(given) if given.ip == ip && given.prefix_length == prefix => {}
            Some(given) => return Ok(Some(given.clone())),
        }
        settings.dhcp = Some(false);
    }
    Ok(None)
}

/// Gives the node's interface its IPv6 address and the default route. Any other address is rejected, because the
/// kubelet might choose it.
pub(super) fn set_ipv6(
    document: &NetworkConfigDocument,
    state: &mut NetworkState,
    own: &str,
    node: &NodeName,
    address: &Ipv6Address,
) -> Result<(), NetworkConfigFault> {
    const HELP: &str = "remove `ipv6` of this interface from the file: it is filled in";
    refuse_other_ipv6_routes(document, state, own)?;
    for interface in state.interfaces.iter_mut().filter(|interface| interface.name() == own) {
        let settings = interface.base_iface_mut().ipv6.get_or_insert_with(|| {
            let mut settings = InterfaceIpv6::new();
            settings.enabled = true;
            settings
        });
        let other = match (settings.enabled, settings.dhcp, settings.autoconf) {
            (false, ..) => Some("disabled"),
            (_, Some(true), _) => Some("by DHCP"),
            (.., Some(true)) => Some("by autoconf"),
            _ => None,
        };
        if let Some(other) = other {
            let message = format!("{own} has IPv6 {other}, but nodes have static IPv6 addresses");
            return Err(NetworkConfigFault::new(message).at(document.interface(own)).help(HELP));
        }
        let addresses = settings.addresses.get_or_insert_default();
        let is_it = |given: &InterfaceIpAddr| {
            given.prefix_length == address.prefix && address.ip.is_some_and(|ip| given.ip == ip)
        };
        if let Some((index, given)) = addresses.iter().enumerate().find(|(_, given)| !is_it(given)) {
            let fault = match address.ip {
                Some(ip) => other_address(node, ip, address.prefix, own, given),
                None => NetworkConfigFault::new(format!(
                    "{own} has an IPv6 address, but that of {node} follows from its IPv4 address"
                ))
                .help(HELP),
            };
            return Err(fault.at(document.address(own, AddressFamily::Ipv6, index)));
        }
        if addresses.is_empty() {
            // From a network for documentation, RFC 3849.
            let unknown = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
            addresses.push(with_prefix(address.ip.unwrap_or(unknown), address.prefix));
        }
    }
    match address.gateway {
        Some(gateway) => set_gateway(document, state, own, gateway.into()),
        None => Ok(()),
    }
}

/// Both families must have their default route on one interface, otherwise OVN-Kubernetes does not start
/// (openshift/openshift-docs: modules/nw-ovn-kuberentes-limitations.adoc).
fn refuse_other_ipv6_routes(
    document: &NetworkConfigDocument,
    state: &NetworkState,
    own: &str,
) -> Result<(), NetworkConfigFault> {
    let has_route = |ip: &InterfaceIpv6| {
        let is_announced = ip.enabled && ip.autoconf == Some(true);
        is_announced && ip.auto_gateway != Some(false) && ip.auto_routes != Some(false)
    };
    let mut others = state
        .interfaces
        .iter()
        .filter(|other| other.name() != own && other.is_up());
    if let Some(other) = others.find(|other| other.base_iface().ipv6.as_ref().is_some_and(has_route)) {
        let name = other.name();
        let message = format!("{name} has an IPv6 default route by autoconf, but the node's interface is {own}");
        let help = "add `auto-gateway: false` to its `ipv6`";
        return Err(NetworkConfigFault::new(message).at(document.interface(name)).help(help));
    }
    let mut routes = default_routes(state, AddressFamily::Ipv6);
    if let Some(route) = routes.find(|route| route.next_hop_iface.as_deref() != Some(own)) {
        let other = route.next_hop_iface.as_deref().unwrap_or("no interface");
        let message = format!("the IPv6 default route is on {other}, but the node's interface is {own}");
        let help = "remove this route from the file: that of the node's interface is filled in";
        return Err(NetworkConfigFault::new(message).at(document.gateway(route)).help(help));
    }
    Ok(())
}

fn with_prefix(ip: impl Into<IpAddr>, prefix: u8) -> InterfaceIpAddr {
    let mut address = InterfaceIpAddr::default();
    address.ip = ip.into();
    address.prefix_length = prefix;
    address
}

fn other_address(
    node: &NodeName,
    ip: impl Into<IpAddr>,
    prefix: u8,
    own: &str,
    given: &InterfaceIpAddr,
) -> NetworkConfigFault {
    let (ip, has) = (ip.into(), format!("{}/{}", given.ip, given.prefix_length));
    NetworkConfigFault::new(format!("{node} has address {ip}/{prefix}, but {own} has {has}"))
        .help("remove `address` from the file: it is filled in")
}

/// Adds the default route of a family, unless the file has it.
fn set_gateway(
    document: &NetworkConfigDocument,
    state: &mut NetworkState,
    own: &str,
    gateway: IpAddr,
) -> Result<(), NetworkConfigFault> {
    let family = AddressFamily::of(gateway);
    if let Some(route) = default_routes(state, family).next() {
        let given = route.next_hop_addr.as_deref().unwrap_or_default();
        if given.parse() == Ok(gateway) {
            return Ok(());
        }
        let message = format!("the gateway of the machine network is {gateway}, but the default route has {given}");
        let help = "remove the default route, or set `gateway` in the env file";
        return Err(NetworkConfigFault::new(message).at(document.gateway(route)).help(help));
    }
    let mut route = RouteEntry::default();
    route.destination = Some(family.everywhere().to_owned());
    route.next_hop_iface = Some(own.to_owned());
    route.next_hop_addr = Some(gateway.to_string());
    state.routes.config.get_or_insert_default().push(route);
    Ok(())
}
