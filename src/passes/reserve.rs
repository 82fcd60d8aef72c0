//! Reservations on the platform: of the table's addresses, and of addresses that are chosen before a machine has them.
//! With `harvest=reserve`, all addresses are chosen. Otherwise, the virtual IPs are chosen if the platform is the DHCP
//! server of the network, and on the libvirt host also the addresses of pass one's machines.
//!
//! Reserving is atomic: of two clusters that choose the same address, the platform rejects the second one.

use std::collections::{BTreeMap, BTreeSet, btree_set};
use std::net::{IpAddr, Ipv6Addr};

use anyhow::Result;
use serde::Serialize;
use tracing::info;

use super::error::FEW_ADDRESSES;
use super::free_addresses::{Answering, Silent};
use super::run::{Run, leased_vips};
use crate::PROGRESS;
use crate::backend::{AddressReservation, BackendErrorKind, Machine, NetworkFacts, ReservationState};
use crate::cluster::{AddressAssignment, ClusterId, Dhcp, Harvest, Mac, NodeName, Vip};
use crate::error::{ErrorKind, OperationError};
use crate::local::network_probe;
use crate::plan::address_ranges;
use crate::plan::addresses::free_addresses;
use crate::plan::machines::{MacTable, VipSource};
use crate::printable::count;
use crate::state::journal::Step;
use crate::state::parameters::Parameters;

/// The name of `hold_step`.
pub(super) const HOLD: &str = "pass-one/hold";

/// The step that finds the addresses of all nodes and VIPs, from its inputs: the machines, or their MACs.
pub(super) fn leases_step(workflow: &str, of: &impl Serialize) -> Result<Step> {
    Step::new(format!("{workflow}/leases"), of)
}

/// The step that reserves the VIPs which no helper leases.
pub(super) fn vips_step(vips: &MacTable) -> Result<Step> {
    Step::new("pass-one/vips", vips)
}

/// The step that reserves the table's addresses on the platform.
fn hold_step(holds: &[AddressReservation]) -> Result<Step> {
    Step::new(HOLD, &holds)
}

/// The addresses from which reservations are chosen.
pub(super) struct AddressChoice<P> {
    /// The reservations that exist.
    held: Vec<AddressAssignment>,
    /// The addresses that the DHCP server has leased.
    leased: BTreeMap<Mac, IpAddr>,
    free: Silent<btree_set::IntoIter<IpAddr>, P>,
}

impl Run<'_> {
    /// The reservation of an address of the cluster.
    pub(super) fn hold_of(&self, lease: &AddressAssignment) -> AddressReservation {
        let ipv6 = self.config.ipv6.as_ref();
        let ipv6 = ipv6.map(|ipv6| ipv6.address_of(&lease.name, lease.ip));
        hold(&self.config.id(), &self.config.network, lease, ipv6)
    }

    pub(super) fn judge_held(&self, parameters: &Parameters) -> Result<()> {
        match self.config.dhcp {
            Dhcp::User | Dhcp::None => Ok(()),
            Dhcp::Platform => Ok(self.journal.judge(&hold_step(&holds(&self.config.id(), parameters))?)?),
        }
    }

    /// Chooses and reserves the addresses of all nodes and VIPs that are not set.
    pub(super) async fn reserve(&self, workflow: &str, macs: &MacTable) -> Result<Vec<AddressAssignment>> {
        let choose = async {
            let mut leases = Vec::new();
            let mut rest = macs.clone();
            // Those of `address_ranges` are chosen when the table is written.
            for name in address_ranges::names(self.config) {
                rest.remove(&name);
            }
            for vip in Vip::ALL {
                let name = NodeName::vip(vip);
                let Some(mac) = macs.get(&name).copied() else {
                    continue;
                };
                let balanced = self.balanced(vip).await?.map(|balanced| balanced.ip);
                if let Some(ip) = balanced.or(self.config.given.vip(vip)) {
                    rest.remove(&name);
                    leases.push(AddressAssignment { name, mac, ip });
                }
            }
            leases.extend(self.reserve_free(&rest).await?);
            Ok(leases)
        };
        self.journal.run(&leases_step(workflow, macs)?, choose).await
    }

    /// Reserves VIPs that no helper leases.
    pub(super) async fn reserve_vips(&self, vips: &MacTable) -> Result<Vec<AddressAssignment>> {
        if vips.is_empty() {
            return Ok(Vec::new());
        }
        self.journal.run(&vips_step(vips)?, self.reserve_free(vips)).await
    }

    /// Whether the addresses of pass one's machines are reserved before these boot.
    ///
    /// dnsmasq pings an address for three seconds before it offers it, and answers no other request meanwhile. It
    /// offers a reserved address at once (dnsmasq: `src/dhcp.c`, `do_icmp_ping`; `src/rfc2131.c`, `dhcp_reply`), so
    /// this computer must be on the network and probe the addresses itself.
    pub(super) fn reserves_before_boot(&self) -> bool {
        let capabilities = self.backend.common_capabilities();
        let ranges = &self.facts.dhcp_ranges;
        // In a container, it may not be.
        let is_near = |(first, _): &(IpAddr, IpAddr)| network_probe::device_to(*first).is_some();
        self.vip_source() == VipSource::Reserved
            && capabilities.host_is_here
            && (capabilities.simulated || ranges.iter().all(is_near))
    }

    /// Chooses and reserves an address for each of these MACs.
    async fn reserve_free(&self, macs: &MacTable) -> Result<Vec<AddressAssignment>> {
        let mut choice = self.choose(macs).await?;
        let mut leases = Vec::new();
        for (name, mac) in macs {
            leases.push(self.reserve_next(&mut choice, name, *mac).await?);
        }
        Ok(leases)
    }

    /// Prepares the choice among unused addresses for these MACs.
    pub(super) async fn choose(
        &self,
        macs: &MacTable,
    ) -> Result<AddressChoice<impl AsyncFnMut(&[IpAddr]) -> Answering>> {
        let network = self.machine_network()?;
        let neighbours = self.neighbours()?;
        let ours = self.backend.list_reservations(&self.config.id()).await?;
        // Addresses in the table are not chosen, including the bootstrap's, which is free after its removal.
        let table = Parameters::read(&self.dir.parameters()).ok().flatten();
        let leases = table.iter().flat_map(Parameters::leases);
        let kept = leases
            .filter(|lease| !macs.contains_key(&lease.name))
            .map(|lease| lease.ip);
        let given = Vip::ALL.into_iter().filter_map(|vip| self.config.given.vip(vip));
        let not: BTreeSet<IpAddr> = kept.chain(given).collect();
        // Queried again: addresses of an earlier pass one may have been released since the run began.
        let now = self.backend.network_facts(&self.config.network).await?;
        let facts = NetworkFacts {
            taken: now.taken,
            ..self.facts.clone()
        };
        let mut leased = BTreeMap::new();
        for (ip, mac) in facts.taken.iter().filter(|(ip, _)| !not.contains(ip)) {
            if let Some(mac) = mac {
                leased.entry(*mac).or_insert(*ip);
            }
        }
        let mut free = free_addresses(network, &facts, &neighbours.addresses);
        free.retain(|ip| !not.contains(ip));
        Ok(AddressChoice {
            held: ours.into_iter().map(|held| held.assignment).collect(),
            leased,
            free: self.silent(free.into_iter()),
        })
    }

    /// Reserves an address that no machine uses, or that an earlier machine with this MAC has leased, as the DHCP
    /// server would. An existing reservation of the MAC is kept.
    pub(super) async fn reserve_next(
        &self,
        choice: &mut AddressChoice<impl AsyncFnMut(&[IpAddr]) -> Answering>,
        name: &NodeName,
        mac: Mac,
    ) -> Result<AddressAssignment> {
        if let Some(held) = choice.held.iter().find(|held| held.mac == mac) {
            return Ok(AddressAssignment {
                name: name.clone(),
                ..held.clone()
            });
        }
        let mut leased = choice.leased.remove(&mac);
        let mut refused = None;
        while let Some(ip) = match leased.take() {
            Some(ip) => Some(ip),
            None => choice.free.next().await,
        } {
            let lease = AddressAssignment {
                name: name.clone(),
                mac,
                ip,
            };
            // After each change of a network, dnsmasq runs a program of libvirt for each lease, one after the other,
            // and reports new leases only after them (dnsmasq: `src/dnsmasq.c`, `async_event`; `src/lease.c`,
            // `rerun_scripts`).
            let reservation = AddressReservation {
                dns_later: true,
                ..self.hold_of(&lease)
            };
            match self.backend.reserve_address(&reservation).await {
                Ok(_) => {
                    match Vip::ALL.into_iter().any(|vip| *name == NodeName::vip(vip)) {
                        true => info!(target: PROGRESS, step = "pass one", "{ip} is reserved for {name}"),
                        false => {
                            info!(target: PROGRESS, step = "pass one", node = %name, state = "reserved", "{ip} is reserved")
                        }
                    }
                    return Ok(lease);
                }
                // If the MAC is in use, every address would conflict.
                Err(error) if error.kind() == BackendErrorKind::Conflict => {
                    let facts = self.backend.network_facts(&self.config.network).await?;
                    if facts.taken.values().any(|other| *other == Some(mac)) {
                        return Err(error.into());
                    }
                    refused = Some(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(match refused {
            // The platform's own reason is more specific.
            Some(error) => error.into(),
            None => {
                let text = format!("no free address is left on network {} for {name}", self.config.network);
                OperationError::new(ErrorKind::Platform, text)
                    .hint(FEW_ADDRESSES)
                    .into()
            }
        })
    }

    /// Reserves every address of the table on the platform, unless something else provides it. Each machine of
    /// `throwaway` is deleted as soon as its node's address is reserved.
    pub(super) async fn hold(
        &self,
        parameters: &Parameters,
        throwaway: &[Machine],
    ) -> Result<BTreeMap<NodeName, ReservationState>> {
        if let Some(state) = ReservationState::without_platform(self.config.dhcp) {
            let leases = parameters.leases().into_iter();
            return Ok(leases.map(|lease| (lease.name, state)).collect());
        }
        let holds = holds(&self.config.id(), parameters);
        let hold_all = async {
            let total = holds.len();
            info!(target: PROGRESS, step = "addresses", total, "reserving {}", count(total, "address"));
            if self.reserves_before_boot() {
                self.release_declined(&holds).await?;
            }
            let hold = async |hold: &AddressReservation| self.hold_and_delete(hold, throwaway).await;
            let held = self.backend.concurrently(&holds, hold).await?;
            Ok(held.into_iter().collect())
        };
        self.journal.run(&hold_step(&holds)?, hold_all).await
    }

    /// Releases the reservations of machines that have another address than the reserved one: a client declines an
    /// address at which another machine answers (RFC 2131, section 3.1).
    async fn release_declined(&self, holds: &[AddressReservation]) -> Result<()> {
        for reserved in self.backend.list_reservations(&self.config.id()).await? {
            let AddressAssignment { mac, ip, .. } = reserved.assignment;
            let mut tables = holds.iter().map(|hold| &hold.assignment);
            if tables.any(|lease| lease.mac == mac && lease.ip != ip) {
                let reservation = self.hold_of(&reserved.assignment);
                self.backend.release_address(&reservation).await?;
            }
        }
        Ok(())
    }

    async fn hold_and_delete(
        &self,
        hold: &AddressReservation,
        throwaway: &[Machine],
    ) -> Result<(NodeName, ReservationState)> {
        let name = &hold.assignment.name;
        let state = self.backend.reserve_address(hold).await?;
        if let Some(machine) = throwaway.iter().find(|machine| machine.node == *name) {
            self.backend.delete_machine(&self.config.id(), &machine.name).await?;
        }
        info!(target: PROGRESS, step = "addresses", node = %name, state = "reserved", done = true, "{}", hold.assignment.ip);
        Ok((name.clone(), state))
    }

    /// The virtual IPs that are leased because the platform does not reserve them. Does not wait for other
    /// reservations.
    pub(super) async fn unreserved_vips(&self, parameters: &Parameters) -> Result<Vec<AddressAssignment>> {
        let held = match self.journal.output(HOLD)? {
            Some(held) => held,
            None => self.hold_vips(parameters).await?,
        };
        Ok(leased_vips(self.config, parameters, &held))
    }

    async fn hold_vips(&self, parameters: &Parameters) -> Result<BTreeMap<NodeName, ReservationState>> {
        let mut held = BTreeMap::new();
        if self.config.harvest != Harvest::Boot || self.config.dhcp != Dhcp::Platform {
            return Ok(held);
        }
        let chosen = Vip::ALL.into_iter().filter(|vip| self.config.given.vip(*vip).is_none());
        let chosen: Vec<NodeName> = chosen.map(NodeName::vip).collect();
        for hold in holds(&self.config.id(), parameters) {
            if chosen.contains(&hold.assignment.name) {
                let state = self.backend.reserve_address(&hold).await?;
                held.insert(hold.assignment.name, state);
            }
        }
        Ok(held)
    }
}

/// The reservation of an address of this table.
pub(super) fn hold_in(cluster: &ClusterId, table: &Parameters, lease: &AddressAssignment) -> AddressReservation {
    let ipv6 = table.ipv6.as_ref().map(|ipv6| ipv6.address_of(&lease.name, lease.ip));
    hold(cluster, &table.network, lease, ipv6)
}

/// The reservation of an address, with its DNS names.
fn hold(cluster: &ClusterId, network: &str, lease: &AddressAssignment, ipv6: Option<Ipv6Addr>) -> AddressReservation {
    let hosts: Vec<&str> = match lease.name.as_str() {
        "api" => vec!["api", "api-int"],
        "ingress" => vec!["console-openshift-console.apps", "oauth-openshift.apps"],
        node => vec![node],
    };
    AddressReservation {
        cluster: cluster.clone(),
        network: network.to_owned(),
        assignment: lease.clone(),
        ipv6,
        dns_names: hosts.into_iter().map(|host| cluster.domain().fqdn(host)).collect(),
        dns_later: false,
        allowed: Vec::new(),
    }
}

/// The reservations: one for each address, even if both VIPs are the same.
pub(super) fn holds(cluster: &ClusterId, parameters: &Parameters) -> Vec<AddressReservation> {
    let mut holds: Vec<AddressReservation> = Vec::new();
    for lease in parameters.leases() {
        let hold = hold_in(cluster, parameters, &lease);
        match holds.iter_mut().find(|other| other.assignment.ip == hold.assignment.ip) {
            Some(other) => other.dns_names.extend(hold.dns_names),
            None => holds.push(hold),
        }
    }
    holds
}
