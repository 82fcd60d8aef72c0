//! Whether a machine of pass one really has its address: Nova tells what Neutron planned, also of a guest that never boots.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::warn;

use super::cloud::{OpenStack, lock};
use super::wire::text;
use crate::backend::failure::Failure;
use crate::backend::{Machine, Power};
use crate::cluster::Pass;

/// Where SSH listens, which every stock image has running.
const SSH: u16 = 22;
/// A guest that is reached at all answers sooner.
const ANSWER: Duration = Duration::from_secs(1);

impl OpenStack {
    /// A machine of pass one without the addresses of which nothing shows that its guest has taken them.
    pub(super) async fn with_live_addresses(&self, server: &Value, mut machine: Machine) -> Result<Machine, Failure> {
        if machine.pass == Pass::One && machine.power == Power::Running {
            let all: Vec<_> = machine.nics.iter().flat_map(|nic| nic.addresses.clone()).collect();
            if !all.is_empty() && !self.is_live(server, &all).await? {
                machine.nics.iter_mut().for_each(|nic| nic.addresses.clear());
            }
        }
        Ok(machine)
    }

    /// Whether the guest answers from this computer or its console tells of one of its addresses; asked until it was so.
    async fn is_live(&self, server: &Value, addresses: &[Ipv4Addr]) -> Result<bool, Failure> {
        let id = text(server, "id");
        if lock(&self.live).contains(id) {
            return Ok(true);
        }
        let mut is_live = false;
        for ip in addresses {
            is_live |= answers(*ip).await;
        }
        if !is_live {
            // The whole of it: what tells of the address may be far up.
            is_live = match self.act(server, &json!({"os-getConsoleOutput": {}})).await {
                Ok(answer) => tells_of(text(&answer, "output"), addresses),
                // There are no consoles here, so Neutron's word must do.
                Err(failure) if matches!(failure.code, Some(403 | 501)) => {
                    let name = text(server, "name");
                    warn!("{name} neither answers nor shows a console; that it has its address is Neutron's word");
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

/// Whether the guest speaks SSH. That a connection is taken or refused proves nothing: what is on the way may do it.
async fn answers(ip: Ipv4Addr) -> bool {
    let hear = async {
        let mut greeting = [0; 4];
        let mut stream = TcpStream::connect((ip, SSH)).await?;
        stream.read_exact(&mut greeting).await?;
        Ok::<_, std::io::Error>(greeting == *b"SSH-")
    };
    matches!(timeout(ANSWER, hear).await, Ok(Ok(true)))
}

/// Whether a console has one of the addresses as a word of its own, as cloud-init and DHCP clients write it.
fn tells_of(console: &str, addresses: &[Ipv4Addr]) -> bool {
    let mut words = console.split(|c: char| !c.is_ascii_digit() && c != '.');
    words.any(|word| {
        word.trim_matches('.')
            .parse()
            .is_ok_and(|ip: Ipv4Addr| addresses.contains(&ip))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_console_tells_of_whole_addresses_only() {
        let ip = [Ipv4Addr::new(10, 20, 1, 5)];
        for (console, tells) in [
            ("ci-info: |  eth0  | True |  10.20.1.5  | 255.255.0.0 |", true),
            ("[4.2] rehearsal: eth0 ip 10.20.1.5/16 from 10.20.1.2", true),
            ("bound to 10.20.1.5.", true),
            ("eth0 ip 10.20.1.50/16", false),
            ("eth0 ip 110.20.1.5/16", false),
            ("login:", false),
        ] {
            assert_eq!(tells_of(console, &ip), tells, "{console}");
        }
    }
}
