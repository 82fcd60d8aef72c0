//! Checks whether a machine of pass one really has its address. Nova reports the address that Neutron assigned, also if
//! the guest never boots.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::warn;

use super::cloud::{OpenStack, lock};
use super::wire::text;
use crate::backend::{BackendError, Machine, Power};
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
            let all: Vec<_> = machine.nics.iter().flat_map(|nic| nic.addresses.clone()).collect();
            if !all.is_empty() && !self.is_live(server, &all).await? {
                machine.nics.iter_mut().for_each(|nic| nic.addresses.clear());
            }
        }
        Ok(machine)
    }

    /// Whether the guest responds to this computer, or its console contains one of its addresses. Success is cached.
    async fn is_live(&self, server: &Value, addresses: &[IpAddr]) -> Result<bool, BackendError> {
        let id = text(server, "id");
        if lock(&self.live).contains(id) {
            return Ok(true);
        }
        let mut is_live = false;
        for ip in addresses {
            is_live |= has_ssh(*ip).await;
        }
        if !is_live {
            // The complete console, because the line with the address may be far from the end.
            is_live = match self.act(server, &json!({"os-getConsoleOutput": {}})).await {
                Ok(answer) => contains_address(text(&answer, "output"), addresses),
                // Without consoles, the address of Neutron has to be sufficient.
                Err(failure) if matches!(failure.code, Some(403 | 501)) => {
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
