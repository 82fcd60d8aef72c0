//! The guests: the configuration that each got at its start, and the addresses that its agent reports.
//!
//! Their DHCP server assigns addresses by client-id: CentOS with cloud-init sends a DUID unless told to send its MAC,
//! CoreOS sends the MAC. So a pass-one machine without this setting gets another address than its node.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::world::{Agent, Instant, Vm, World};

/// How one guest behaves; times count from the start of its machine.
#[derive(Clone, Debug)]
pub struct Guest {
    /// The address from DHCP; `None`: the next free one, the same for the same client-id.
    pub address: Option<Ipv4Addr>,
    /// When it has its lease and its agent reports it.
    pub after: Instant,
    /// It never gets a lease.
    pub gets_none: bool,
    /// The time at which its address changes, and the new one.
    pub moves: Option<(Instant, Ipv4Addr)>,
    /// A virtual IP that it has in addition. The agent reports all addresses of an interface (qemu/qemu:
    /// `qga/commands-posix.c`, `qmp_guest_network_get_interfaces`).
    pub virtual_ip: Option<Ipv4Addr>,
    /// It does not react to a shutdown, only to a loss of power.
    pub ignores_shutdown: bool,
    /// Its machine shuts itself down, this often, this long after its start.
    pub dies: Option<(usize, Instant)>,
}

impl Default for Guest {
    fn default() -> Self {
        Self {
            address: None,
            after: 12_000,
            gets_none: false,
            moves: None,
            virtual_ip: None,
            ignores_shutdown: false,
            dies: None,
        }
    }
}

/// One start of a machine.
#[derive(Clone, Debug)]
pub struct Boot {
    pub vm: String,
    pub name: String,
    pub at: Instant,
    pub host: String,
    pub os_type: String,
    pub macs: Vec<String>,
    pub given: Given,
}

/// The configuration that a guest finds.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    /// No config drive at all, and why.
    Nothing(&'static str),
    /// A config drive; the text is `openstack/latest/user_data` as the engine edits it.
    Ignition(String),
    CloudInit {
        user_data: String,
        host_name: Option<String>,
        authorized_ssh_keys: Option<String>,
        /// Static addresses.
        networks: Vec<String>,
    },
}

impl Given {
    /// The Ignition config that CoreOS would find.
    pub fn ignition(&self) -> Option<&str> {
        match self {
            Self::Ignition(text) => Some(text),
            _ => None,
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::CloudInit { user_data, .. } => user_data,
            _ => self.ignition().unwrap_or_default(),
        }
    }
}

/// A DHCP server that assigns addresses by client-id.
#[derive(Clone, Debug)]
pub struct Dhcp {
    next: Ipv4Addr,
    pub leases: BTreeMap<String, Ipv4Addr>,
}

impl Dhcp {
    pub fn from(next: Ipv4Addr) -> Self {
        Self {
            next,
            leases: BTreeMap::new(),
        }
    }

    pub fn lease(&mut self, client: String) -> Ipv4Addr {
        let next = &mut self.next;
        *self.leases.entry(client).or_insert_with(|| {
            let given = *next;
            *next = Ipv4Addr::from(u32::from(given) + 1);
            given
        })
    }
}

impl World {
    /// The addresses that a machine's guest has now, by MAC.
    pub fn addresses(&mut self, vm: &Vm) -> Vec<(String, Ipv4Addr)> {
        let Some(boot) = vm.boot.map(|boot| self.boots[boot].clone()) else {
            return Vec::new();
        };
        if !["powering_up", "up", "powering_down"].contains(&vm.status.as_str()) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for nic in vm.nics.iter().filter(|nic| nic.plugged && nic.linked) {
            let guest = self.guest(&nic.mac);
            let age = self.now - boot.at;
            if guest.gets_none || age < guest.after {
                continue;
            }
            let is_static = match &boot.given {
                Given::CloudInit { networks, .. } => networks.first().and_then(|address| address.parse().ok()),
                _ => None,
            };
            let first = guest.address.or(is_static).unwrap_or_else(|| {
                let by_mac = ["dhcp-client-id", "dhcp-identifier", "dhcp-client-identifier"];
                let tells = by_mac.iter().any(|words| boot.given.text().contains(words));
                let is_coreos = boot.os_type == "rhcos_x64" || boot.given.ignition().is_some();
                let kind = if tells || is_coreos { "mac" } else { "duid" };
                self.dhcp.lease(format!("{kind} {}", nic.mac))
            });
            let moved = guest
                .moves
                .filter(|(after, _)| age >= *after)
                .map(|(_, address)| address);
            found.push((nic.mac.clone(), moved.unwrap_or(first)));
        }
        found
    }

    /// The addresses that the guest's agent reports to the engine.
    pub fn reported(&mut self, vm: &Vm) -> Vec<(String, Ipv4Addr)> {
        if vm.status != "up" || !self.has_agent(vm) {
            return Vec::new();
        }
        self.addresses(vm)
    }

    pub fn has_agent(&self, vm: &Vm) -> bool {
        match vm.agent {
            Agent::Installed => true,
            Agent::Never => false,
            Agent::ByCloudInit => vm.boot.is_some_and(|boot| {
                matches!(&self.boots[boot].given, Given::CloudInit { user_data, .. } if user_data.contains("qemu-guest-agent"))
            }),
        }
    }
}
