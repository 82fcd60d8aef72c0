//! Addresses if libvirt is not the DHCP server: reported by the guest agent, else from the ARP table of the host.

use std::net::Ipv4Addr;

use serde::Deserialize;
use virt::domain::Domain;
use virt::sys;

use crate::cluster::Mac;

/// In seconds. The call fails at once if the agent does not run.
const PATIENCE: i32 = 2;

#[derive(Deserialize)]
struct Answer {
    #[serde(rename = "return")]
    interfaces: Vec<Interface>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Interface {
    hardware_address: Option<String>,
    #[serde(default)]
    ip_addresses: Vec<Address>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Address {
    ip_address: String,
}

pub(super) fn addresses(domain: &Domain) -> Vec<(Mac, Ipv4Addr)> {
    let asked = domain.qemu_agent_command(r#"{"execute":"guest-network-get-interfaces"}"#, PATIENCE, 0);
    if let Ok(answer) = asked {
        return read(&answer);
    }
    // Some versions of libvirt return an error for an empty table.
    let seen = domain.interface_addresses(sys::VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_ARP, 0);
    let interfaces = seen.unwrap_or_default().into_iter().filter_map(|interface| {
        let mac: Mac = interface.hwaddr?.parse().ok()?;
        let ips = interface
            .addrs
            .into_iter()
            .filter_map(|address| address.addr.parse().ok());
        Some(ips.map(|ip| (mac, ip)).collect::<Vec<_>>())
    });
    interfaces.flatten().collect()
}

fn read(answer: &str) -> Vec<(Mac, Ipv4Addr)> {
    let interfaces = serde_json::from_str(answer).map_or_else(|_| Vec::new(), |answer: Answer| answer.interfaces);
    let mut found = Vec::new();
    for interface in interfaces {
        let Some(Ok(mac)) = interface.hardware_address.map(|mac| mac.parse::<Mac>()) else {
            continue;
        };
        let ips = interface
            .ip_addresses
            .iter()
            .filter_map(|ip| ip.ip_address.parse().ok());
        found.extend(ips.filter(|ip: &Ipv4Addr| !ip.is_loopback()).map(|ip| (mac, ip)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agents_response_is_read() {
        let answer = r#"{"return":[
            {"name":"lo","hardware-address":"00:00:00:00:00:00","ip-addresses":[{"ip-address":"127.0.0.1","ip-address-type":"ipv4","prefix":8}]},
            {"name":"ens3","hardware-address":"52:54:00:AA:bb:cc","ip-addresses":[
                {"ip-address":"10.0.0.5","ip-address-type":"ipv4","prefix":24},{"ip-address":"fe80::1","ip-address-type":"ipv6","prefix":64}]},
            {"name":"tun0"},{"name":"ens4","hardware-address":"52:54:00:aa:bb:cd"}]}"#;
        let mac = "52:54:00:aa:bb:cc".parse().unwrap();
        assert_eq!(read(answer), [(mac, Ipv4Addr::new(10, 0, 0, 5))]);
        assert!(read("{}").is_empty());
    }
}
