//! A node's connections from the user's `network_config`: nmstate YAML to files of NetworkManager.
//!
//! The crate `nmstate` writes the files, as `nmstatectl gc` does. Here the file is completed with what differs between
//! nodes: the MACs of `nic0`, `nic1`, … and the addresses in the table.

mod addresses;
mod document;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use nmstate::{
    BondMode, EthernetInterface, Interface, InterfaceIdentifier, InterfaceState, InterfaceType, NetworkState,
};

pub use self::addresses::{Addressing, Ipv6Address, StaticAddress};
use self::addresses::{by_dhcp, by_table, default_routes, set_ipv6, set_static};
use self::document::nic_number;
pub use self::document::{AddressFamily, NetworkConfigDocument, NetworkConfigFault};
use crate::backend::Nic;
use crate::cluster::{Mac, NodeName};
use crate::node::host::HostFile;

/// The node whose connections a file describes.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionTarget<'a> {
    pub node: &'a NodeName,
    /// `nic0`, the one in the machine network, and so on.
    pub nics: &'a [Nic],
    pub addressing: Addressing<'a>,
    /// With two address families.
    pub ipv6: Option<Ipv6Address>,
    /// `None`: the file or the network determines it.
    pub mtu: Option<u16>,
    pub has_ovn_kubernetes: bool,
}

/// The bridge that OVN-Kubernetes creates over a node's interface (openshift/machine-config-operator:
/// templates/common/_base/files/configure-ovs-network.yaml).
const OVN_BRIDGE: &str = "br-ex";

/// The files of a node's connections, by name.
pub fn connections(
    document: &NetworkConfigDocument,
    target: &ConnectionTarget<'_>,
) -> Result<Vec<HostFile>, NetworkConfigFault> {
    let mut state = document.state.clone();
    match_nics(document, &mut state, target)?;
    let own = own_interface(document, &state, target.addressing.family())?;
    let beneath = beneath(&state, &own);
    check_own(document, &state, &own, &beneath, target)?;
    share_mac(document, &mut state, &beneath, target)?;
    share_mtu(document, &mut state, &beneath, target)?;
    match target.addressing {
        Addressing::Dhcp => by_dhcp(document, &mut state, &own)?,
        Addressing::Static(address) => by_table(document, &mut state, &own, target.node, &address)?,
        Addressing::Later(AddressFamily::Ipv4) => {
            // From a network for documentation, RFC 5737.
            let ip = IpAddr::from([192, 0, 2, 1]);
            set_static(document, &mut state, &own, ip, 24)?;
        }
        Addressing::Later(AddressFamily::Ipv6) => {
            set_ipv6(document, &mut state, &own, target.node, &Ipv6Address::unknown())?
        }
    }
    if let Some(address) = &target.ipv6 {
        set_ipv6(document, &mut state, &own, target.node, address)?;
    }
    let generated = state.gen_conf().map_err(|error| {
        let message = error.msg();
        NetworkConfigFault::new(message).at(document.named_in(message))
    })?;
    let files: BTreeMap<_, _> = generated.into_values().flatten().collect();
    let file = |(name, text): (String, String)| {
        let path = format!("/etc/NetworkManager/system-connections/{name}");
        // NetworkManager ignores files that others can read.
        HostFile::new(path, 0o600, text)
    };
    Ok(files.into_iter().map(file).collect())
}

/// Gives each `nicN` its MAC, by which NetworkManager finds it (nmstate 2.2.10: `identifier: mac-address`). An
/// interface that the file identifies by a MAC itself must be one of the machine.
fn match_nics(
    document: &NetworkConfigDocument,
    state: &mut NetworkState,
    target: &ConnectionTarget<'_>,
) -> Result<(), NetworkConfigFault> {
    let known: BTreeSet<String> = state
        .interfaces
        .iter()
        .map(|interface| interface.name().to_owned())
        .collect();
    for number in &document.nics {
        let name = format!("nic{number}");
        let at = document.interface(&name);
        if target.nics.get(*number).is_none() {
            let message = format!("{} has no {name}: its NICs are {}", target.node, listed(target.nics));
            let help = "each network of `extra_networks` adds a NIC; the same network may be listed several times";
            return Err(NetworkConfigFault::new(message).at(at).help(help));
        }
        if !known.contains(&name) {
            let mut nic = EthernetInterface::default();
            nic.base.name = name;
            nic.base.iface_type = InterfaceType::Ethernet;
            nic.base.state = InterfaceState::Up;
            state.interfaces.push(Interface::Ethernet(Box::new(nic)));
        }
    }
    for interface in state.interfaces.iter_mut() {
        let name = interface.name().to_owned();
        let is_nic = matches!(interface.iface_type(), InterfaceType::Ethernet | InterfaceType::Unknown);
        let nic = nic_number(&name).and_then(|number| target.nics.get(number));
        let base = interface.base_iface_mut();
        let given = base.mac_address.as_ref().map(|mac| mac.parse::<Mac>());
        let is_matched = base.identifier == Some(InterfaceIdentifier::MacAddress);
        let wanted = match nic {
            Some(_) if !is_nic => {
                let message = format!("{name} is a NIC of the machine, but has type {}", base.iface_type);
                return Err(NetworkConfigFault::new(message)
                    .at(document.interface(&name))
                    .help("use another name"));
            }
            Some(nic) => {
                base.identifier = Some(InterfaceIdentifier::MacAddress);
                base.mac_address = Some(nic.mac.to_string());
                given.is_none_or(|given| given.as_ref() == Ok(&nic.mac))
            }
            None => !is_matched || target.nics.iter().any(|nic| given.as_ref() == Some(&Ok(nic.mac))),
        };
        if !wanted {
            let message = format!(
                "`{name}`: {} has no NIC with this MAC: its NICs are {}",
                target.node,
                listed(target.nics)
            );
            let help = "name an interface nic0, nic1 and so on, without `mac-address`: its MAC is filled in";
            return Err(NetworkConfigFault::new(message)
                .at(document.interface(&name))
                .help(help));
        }
    }
    Ok(())
}

fn listed(nics: &[Nic]) -> String {
    let one = |(number, nic): (usize, &Nic)| format!("nic{number} ({}, {})", nic.mac, nic.network);
    nics.iter().enumerate().map(one).collect::<Vec<_>>().join(", ")
}

/// The interface with the node's address: that of the default route, otherwise the only one with this family that may
/// have a default route.
fn own_interface(
    document: &NetworkConfigDocument,
    state: &NetworkState,
    family: AddressFamily,
) -> Result<String, NetworkConfigFault> {
    let help = || {
        let key = family.to_string().to_lowercase();
        format!(
            "the node's interface is the one with the default route in `routes`, or else the only one with \
             `{key}: {{enabled: true}}` and without `auto-gateway: false`"
        )
    };
    // Whether it is enabled, and may have a default route.
    let enabled = |interface: &Interface| {
        let base = interface.base_iface();
        let (enabled, gateway) = match family {
            AddressFamily::Ipv4 => base.ipv4.as_ref().map(|ip| (ip.enabled, ip.auto_gateway)),
            AddressFamily::Ipv6 => base.ipv6.as_ref().map(|ip| (ip.enabled, ip.auto_gateway)),
        }?;
        (interface.is_up() && enabled).then_some(gateway != Some(false))
    };
    let names = |wanted: &[bool]| -> BTreeSet<&str> {
        let interfaces = state.interfaces.iter();
        let found = interfaces.filter(|interface| enabled(interface).is_some_and(|routed| wanted.contains(&routed)));
        found.map(Interface::name).collect()
    };
    let (enabled, candidates) = (names(&[true, false]), names(&[true]));
    let routed: BTreeSet<&str> = default_routes(state, family)
        .filter_map(|route| route.next_hop_iface.as_deref())
        .collect();
    let listed = |names: &BTreeSet<&str>| Vec::from_iter(names.iter().copied()).join(", ");
    let route = || document.gateway(default_routes(state, family).next()?);
    let one = match (routed.len(), candidates.len()) {
        (0, 1) => &candidates,
        (1, _) => &routed,
        (0, 0) => return Err(NetworkConfigFault::new(format!("no interface has {family} enabled")).help(help())),
        (0, _) => {
            let message = format!(
                "several interfaces have {family} enabled ({}) and none has a default route",
                listed(&candidates)
            );
            return Err(NetworkConfigFault::new(message).help(help()));
        }
        _ => {
            let message = format!("several interfaces have a default route: {}", listed(&routed));
            return Err(NetworkConfigFault::new(message).at(route()).help(help()));
        }
    };
    let name = listed(one);
    if !enabled.contains(name.as_str()) {
        let message = format!("the default route is on {name}, which does not have {family} enabled");
        return Err(NetworkConfigFault::new(message).at(route()).help(help()));
    }
    Ok(name)
}

/// An interface and all interfaces below it, itself first.
fn beneath(state: &NetworkState, own: &str) -> Vec<String> {
    let mut names = vec![own.to_owned()];
    let mut next = 0;
    while let Some(name) = names.get(next) {
        let mut below: Vec<String> = Vec::new();
        for interface in state.interfaces.iter().filter(|interface| interface.name() == name) {
            below.extend(interface.ports().into_iter().flatten().map(str::to_owned));
            if let Interface::Vlan(vlan) = interface {
                below.extend(vlan.vlan.as_ref().and_then(|vlan| vlan.base_iface.clone()));
            }
        }
        below.retain(|name| !names.contains(name));
        names.extend(below);
        next += 1;
    }
    names
}

/// Whether the node can have its address on this interface.
fn check_own(
    document: &NetworkConfigDocument,
    state: &NetworkState,
    own: &str,
    beneath: &[String],
    target: &ConnectionTarget<'_>,
) -> Result<(), NetworkConfigFault> {
    let at = |name: &str| document.interface(name);
    let of_type = |name: &str| {
        let found = state.interfaces.iter().find(|interface| interface.name() == name);
        found.map_or(InterfaceType::Unknown, Interface::iface_type)
    };
    if target.has_ovn_kubernetes {
        if state.interfaces.iter().any(|interface| interface.name() == OVN_BRIDGE) {
            let message = format!("{OVN_BRIDGE} is created by OVN-Kubernetes");
            return Err(NetworkConfigFault::new(message)
                .at(at(OVN_BRIDGE))
                .help("use another name"));
        }
        let kind = of_type(own);
        // The script would create an ethernet connection for any other type.
        let is_taken = matches!(
            kind,
            InterfaceType::Ethernet | InterfaceType::Unknown | InterfaceType::Bond | InterfaceType::Vlan
        );
        if !is_taken {
            let message =
                format!("OVN-Kubernetes cannot move the node's interface {own} of type {kind} into {OVN_BRIDGE}");
            let help = "give the address to a NIC, a bond or a VLAN; OVN-Kubernetes creates a bridge over it";
            return Err(NetworkConfigFault::new(message).at(at(own)).help(help));
        }
    }
    // An interface that the file does not match by its MAC may be any NIC.
    let first = |name: &String| nic_number(name) == Some(0);
    let is_unmatched = |name: &String| {
        let found = state.interfaces.iter().find(|interface| interface.name() == name);
        let is_matched =
            found.is_some_and(|found| found.base_iface().identifier == Some(InterfaceIdentifier::MacAddress));
        !is_matched && matches!(of_type(name), InterfaceType::Ethernet | InterfaceType::Unknown)
    };
    let is_first_by_mac = |name: &String| {
        let found = state.interfaces.iter().find(|interface| interface.name() == name);
        let mac = found.and_then(|found| found.base_iface().mac_address.as_ref()?.parse::<Mac>().ok());
        mac.is_some() && mac == target.nics.first().map(|nic| nic.mac)
    };
    if !beneath
        .iter()
        .any(|name| first(name) || is_unmatched(name) || is_first_by_mac(name))
    {
        let network = target.nics.first().map_or("", |nic| &nic.network);
        let message = format!("the node's interface {own} does not use nic0, the NIC in network {network}");
        return Err(NetworkConfigFault::new(message).at(at(own)));
    }
    if !matches!(target.addressing, Addressing::Dhcp) {
        return Ok(());
    }
    for name in beneath {
        let help = "set dhcp=none: the nodes then have their addresses and their whole configuration without a network";
        let found = state.interfaces.iter().find(|interface| interface.name() == name);
        match found {
            // Pass one and Ignition run before the node has the file.
            Some(Interface::Vlan(_)) => {
                let message =
                    format!("the node's interface is on the VLAN {name}, but its address is from DHCP without a VLAN");
                return Err(NetworkConfigFault::new(message).at(at(name)).help(help));
            }
            Some(Interface::Bond(bond)) if bond.bond.as_ref().and_then(|bond| bond.mode) == Some(BondMode::LACP) => {
                let message = format!(
                    "{name} has mode 802.3ad, but its NICs are not bonded while a node gets its first address and its \
                     configuration"
                );
                return Err(NetworkConfigFault::new(message)
                    .at(at(name))
                    .help(format!("use mode active-backup, or {help}")));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Bonds and bridges under the node's address get the MAC of its NIC, to which the address belongs: otherwise they
/// would get the MAC of any of their ports.
fn share_mac(
    document: &NetworkConfigDocument,
    state: &mut NetworkState,
    beneath: &[String],
    target: &ConnectionTarget<'_>,
) -> Result<(), NetworkConfigFault> {
    let Some(nic) = target.nics.first() else {
        return Ok(());
    };
    for interface in state
        .interfaces
        .iter_mut()
        .filter(|interface| beneath.iter().any(|name| name == interface.name()))
    {
        if !matches!(interface, Interface::Bond(_) | Interface::LinuxBridge(_)) {
            continue;
        }
        let base = interface.base_iface_mut();
        match base.mac_address.as_ref().map(|mac| mac.parse::<Mac>()) {
            None => base.mac_address = Some(nic.mac.to_string()),
            Some(given) if given.as_ref() == Ok(&nic.mac) => {}
            Some(_) => {
                let message = format!(
                    "`{}` has a MAC that is not the one of {}: {}",
                    base.name, target.node, nic.mac
                );
                let fault = NetworkConfigFault::new(message).at(document.interface(&base.name));
                return Err(fault.help("remove `mac-address`: it is filled in"));
            }
        }
    }
    Ok(())
}

/// Gives the node's interface its MTU, and all interfaces below it at least this MTU.
fn share_mtu(
    document: &NetworkConfigDocument,
    state: &mut NetworkState,
    beneath: &[String],
    target: &ConnectionTarget<'_>,
) -> Result<(), NetworkConfigFault> {
    let Some(mtu) = target.mtu.map(u64::from) else {
        return Ok(());
    };
    // Upper interfaces come first.
    let mut least = mtu;
    for (depth, name) in beneath.iter().enumerate() {
        for interface in state.interfaces.iter_mut().filter(|interface| interface.name() == name) {
            let base = interface.base_iface_mut();
            match base.mtu {
                None => base.mtu = Some(least),
                Some(given) if given == mtu || (given > mtu && depth > 0) => least = least.max(given),
                Some(given) => {
                    let message = format!("`{name}` has MTU {given}, but mtu={mtu} in the settings");
                    let fault = NetworkConfigFault::new(message).at(document.interface(name));
                    return Err(fault.help("remove `mtu` from the file: it is filled in"));
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
