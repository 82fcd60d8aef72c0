//! The table as fixed addresses of a DHCP server.
//!
//! Entries bear the machines' names, which differ from cluster to cluster; the MAC alone decides, whatever client id
//! a guest sends.

use crate::cluster::{AddressAssignment, MachineName};
use crate::state::parameters::Parameters;

/// Lines of dnsmasq's configuration.
pub fn dnsmasq(parameters: &Parameters) -> String {
    let line = |lease: AddressAssignment| {
        let name = MachineName::of_node(&parameters.cluster, &lease.name);
        format!("dhcp-host={},{},{name},infinite\n", lease.mac, lease.ip)
    };
    // Else a client id, which differs between the initramfs and the system, would make two leases of one machine.
    let head = format!("# Addresses of cluster {}.\ndhcp-ignore-clid\n", parameters.id());
    head + &leases(parameters).into_iter().map(line).collect::<String>()
}

/// Declarations of ISC's dhcpd.conf.
pub fn isc(parameters: &Parameters) -> String {
    let declaration = |lease: AddressAssignment| {
        let name = MachineName::of_node(&parameters.cluster, &lease.name);
        format!(
            "host {name} {{\n    hardware ethernet {};\n    fixed-address {};\n}}\n",
            lease.mac, lease.ip
        )
    };
    let head = format!("# Addresses of cluster {}.\n", parameters.id());
    head + &leases(parameters).into_iter().map(declaration).collect::<String>()
}

/// Every address once: both VIPs may be one.
fn leases(parameters: &Parameters) -> Vec<AddressAssignment> {
    let mut leases: Vec<AddressAssignment> = Vec::new();
    for lease in parameters.leases() {
        if !leases
            .iter()
            .any(|other| other.ip == lease.ip || other.mac == lease.mac)
        {
            leases.push(lease);
        }
    }
    leases
}
