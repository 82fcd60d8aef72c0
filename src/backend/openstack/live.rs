//! Checks whether a machine of pass one really has its address. Nova reports the address that Neutron assigned, even if
//! the guest never boots.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::warn;

use super::auth::Service::Network as NEUTRON;
use super::cloud::{OpenStack, lock};
use super::ports::Port;
use super::security_groups::our_address_towards;
use super::wire::text;
use crate::backend::{BackendError, Machine, Power, SeenNic};
use crate::cluster::Pass;

/// The port of SSH, which runs in every stock image.
const SSH: u16 = 22;
/// The timeout of a connection.
const ANSWER: Duration = Duration::from_secs(1);

impl OpenStack {
    /// Removes the addresses of a machine of pass one until its guest is confirmed to have them.
    pub(super) async fn with_live_addresses(
        &self,
        server: &Value,
        mut machine: Machine,
    ) -> Result<Machine, BackendError> {
        if machine.pass == Pass::One && machine.power == Power::Running {
            let has_address = machine.nics.iter().any(|nic| !nic.addresses.is_empty());
            if has_address && !self.is_live(server, &machine.nics).await? {
                machine.nics.iter_mut().for_each(|nic| nic.addresses.clear());
            }
        }
        Ok(machine)
    }

    /// Whether the guest responds to this computer, or its console contains one of its addresses. Success is cached.
    async fn is_live(&self, server: &Value, nics: &[SeenNic]) -> Result<bool, BackendError> {
        let id = text(server, "id");
        if lock(&self.live).contains(id) {
            return Ok(true);
        }
        let mut is_live = false;
        for nic in nics {
            for ip in &nic.addresses {
                is_live |= has_ssh(*ip).await && !self.is_elsewhere(&nic.network, *ip).await?;
            }
        }
        if !is_live {
            // The complete console, because the line with the address may be far from the end.
            is_live = match self.console_output(server, json!({})).await {
                Ok(answer) => {
                    let addresses: Vec<_> = nics.iter().flat_map(|nic| nic.addresses.clone()).collect();
                    contains_address(text(&answer, "output"), &addresses)
                }
                // Without consoles, the address of Neutron has to be sufficient.
                Err(failure) if has_no_console(&failure) => {
                    let name = text(server, "name");
                    warn!("{name} does not respond and has no console: using the address that Neutron assigned");
                    true
                }
                Err(failure) if matches!(failure.code, Some(404 | 409)) => false,
                Err(failure) => return Err(failure),
            };
        }
        if is_live {
            lock(&self.live).insert(id.to_owned());
        }
        Ok(is_live)
    }
}

impl OpenStack {
    /// Whether this computer is on another network with the same addresses, on which other machines have them: it has an
    /// address of the subnet that Neutron does not know.
    async fn is_elsewhere(&self, network: &str, ip: IpAddr) -> Result<bool, BackendError> {
        let network = self.network(network).await?;
        let (Ok(subnet), Some(IpAddr::V4(own))) = (network.subnet_of(ip), our_address_towards(ip)) else {
            return Ok(false);
        };
        if !subnet.cidr.contains(own) {
            return Ok(false);
        }
        let filter = [("network_id", network.id.as_str())];
        let ports = self.session.list_where(NEUTRON, "/ports", &filter, "ports").await?;
        Ok(!ports.iter().any(|port| Port::read(port).ips.contains(&own)))
    }
}

/// Whether Nova never returns a console: not allowed, not supported by the hypervisor, or none in this machine. Status
/// 404 alone may also mean that the machine is not on its host yet (openstack/nova:
/// `nova/api/openstack/compute/console_output.py`, `get_console_output`; `nova/exception.py`, `ConsoleNotAvailable`).
fn has_no_console(failure: &BackendError) -> bool {
    match failure.code {
        Some(403 | 501) => true,
        Some(404) => failure.message.contains("does not have a console"),
        _ => false,
    }
}

/// Whether an SSH server responds. An accepted or refused connection alone may come from a firewall or proxy.
async fn has_ssh(ip: IpAddr) -> bool {
    let hear = async {
        let mut greeting = [0; 4];
        let mut stream = TcpStream::connect((ip, SSH)).await?;
        stream.read_exact(&mut greeting).await?;
        Ok::<_, std::io::Error>(greeting == *b"SSH-")
    };
    matches!(timeout(ANSWER, hear).await, Ok(Ok(true)))
}

/// Whether the console contains one of the addresses as a separate word, as cloud-init and DHCP clients write it.
fn contains_address(console: &str, addresses: &[IpAddr]) -> bool {
    let mut message = console.split(|c: char| !c.is_ascii_digit() && c != '.');
    message.any(|word| {
        word.trim_matches('.')
            .parse()
            .is_ok_and(|ip: IpAddr| addresses.contains(&ip))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_addresses_in_a_console_count() {
        let ip = [IpAddr::from([10, 20, 1, 5])];
        for (console, tells) in [
            ("ci-info: |  eth0  | True |  10.20.1.5  | 255.255.0.0 |", true),
            ("[4.2] rehearsal: eth0 ip 10.20.1.5/16 from 10.20.1.2", true),
            ("bound to 10.20.1.5.", true),
            ("eth0 ip 10.20.1.50/16", false),
            ("eth0 ip 110.20.1.5/16", false),
            ("login:", false),
        ] {
            assert_eq!(contains_address(console, &ip), tells, "{console}");
        }
    }
}
