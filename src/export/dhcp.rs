//! The address table as fixed addresses of a DHCP server.
//!
//! Entries have the machines' names, which are unique across clusters. Only the MAC is compared: the client ID that a
//! guest sends is ignored.

use crate::cluster::{AddressAssignment, MachineName};
use crate::state::parameters::Parameters;

/// Lines of dnsmasq's configuration.
pub fn dnsmasq(parameters: &Parameters) -> String {
    let line = |lease: AddressAssignment| {
        let name = MachineName::of_node(&parameters.cluster, &lease.name);
        format!("dhcp-host={},{},{name},infinite\n", lease.mac, lease.ip)
    };
    // Otherwise the initramfs and the system would get two leases, because they send different client IDs.
    let head = format!(
        "# Addresses of cluster {}.\ndhcp-ignore-clid\n",
        parameters.cluster_domain()
    );
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
    let head = format!("# Addresses of cluster {}.\n", parameters.cluster_domain());
    head + &leases(parameters).into_iter().map(declaration).collect::<String>()
}

/// Every address once: both VIPs may be the same.
fn leases(parameters: &Parameters) -> Vec<AddressAssignment> {
    let mut leases: Vec<AddressAssignment> = Vec::new();
    for lease in parameters.all_leases() {
        if !leases
            .iter()
            .any(|other| other.ip == lease.ip || other.mac == lease.mac)
        {
            leases.push(lease);
        }
    }
    leases
}
