//! Addresses of running guests that the platform does not report, such as those on a bridge whose DHCP server is not
//! the platform's.
//!
//! What the platform reports takes precedence. A guest without a reported address is searched for at its planned
//! address, then on the network if this computer is on it, then on its serial console.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use futures::future::join_all;
use ipnetwork::IpNetwork;
use tokio::time::{Instant, sleep};

use super::run::Run;
use crate::backend::Machine;
use crate::backend::platforms::Platforms;
use crate::cluster::{Dhcp, Evidence, Mac, MachineName, Pass};
use crate::local::network_probe;
use crate::plan::harvest::{Seen, console_address, judge, judge_planned};
use crate::plan::machines::Planned;
use crate::state::parameters::Parameters;

/// How long a running guest may have no address before it is searched for: a platform that reports addresses is faster.
const SILENCE: Duration = Duration::from_secs(10);

/// Time between two probes of the planned addresses and of the network: a guest on a /24 is found within a second.
const INTERVAL: Duration = Duration::from_millis(600);

/// Time to wait for the replies to one probe.
const ANSWER: Duration = Duration::from_millis(200);

/// Time between two reads of the consoles, which the platform transfers as a whole.
const CONSOLES: Duration = Duration::from_secs(2);

/// Time between two sweeps of the network, and between two reads of the consoles, if the platform is the DHCP server:
/// most guests without an address are still booting. Every guest receives each broadcast of a sweep, and the platform
/// is not queried while consoles are read.
const SELDOM: Duration = Duration::from_secs(10);

/// Addresses resolved in one sweep, each with a broadcast. Linux keeps up to 1024 neighbours by default
/// (`neigh/default/gc_thresh3`).
const SWEEP: usize = 256;

/// Adds what the platform does not report: a machine of pass two that answers at its planned address has it. For
/// commands that look once.
pub async fn with_answers(backend: &Platforms, table: &Parameters, mut machines: Vec<Machine>) -> Vec<Machine> {
    if !backend.common_capabilities().guests_reachable {
        return machines;
    }
    let is_silent = |machine: &Machine| {
        let node = table.nodes.iter().find(|node| node.name == machine.node)?;
        let seen = judge_planned(Some(machine), node.mac, node.ip);
        (machine.pass == Pass::Two && seen == Seen::NoLease).then_some((node.ip, node.mac))
    };
    let silent = machines.iter().filter_map(is_silent).collect();
    for (ip, mac) in network_probe::machines_at(silent, network_probe::ANSWER).await {
        let nics = machines.iter_mut().flat_map(|machine| &mut machine.nics);
        nics.filter(|nic| nic.mac == mac).for_each(|nic| nic.addresses.push(ip));
    }
    machines
}

/// Finds the addresses of guests with repeated probes.
pub(super) struct GuestAddresses {
    network: Option<IpNetwork>,
    /// A node may hold these in addition to its own address.
    virtual_ips: Vec<IpAddr>,
    /// When each guest was first seen running without an address.
    silent_since: BTreeMap<MachineName, Instant>,
    found: BTreeMap<Mac, (IpAddr, Evidence)>,
    last_look: Option<Instant>,
    last_sweep: Option<Instant>,
    last_consoles: Option<Instant>,
    /// The addresses that this computer reaches without a router, once they are known.
    neighbours: Option<Vec<IpAddr>>,
    /// The index in `neighbours` at which the next sweep begins.
    next: usize,
}

impl GuestAddresses {
    /// `network` is where the guests are; without it, only planned addresses and consoles are checked.
    pub fn new(network: Option<IpNetwork>, virtual_ips: Vec<IpAddr>) -> Self {
        Self {
            network,
            virtual_ips,
            silent_since: BTreeMap::new(),
            found: BTreeMap::new(),
            last_look: None,
            last_sweep: None,
            last_consoles: None,
            neighbours: None,
            next: 0,
        }
    }

    /// How the address of this MAC became known.
    pub fn evidence(&self, mac: Mac) -> Evidence {
        self.found
            .get(&mac)
            .map_or(Evidence::Platform, |(_, evidence)| *evidence)
    }

    /// Adds to the machines what the platform does not report, and removes virtual IPs, which agents report.
    pub async fn complete(&mut self, run: &Run<'_>, planned: &[Planned], machines: &mut [Machine]) {
        for nic in machines.iter_mut().flat_map(|machine| &mut machine.nics) {
            nic.addresses.retain(|ip| !self.virtual_ips.contains(ip));
        }
        let capabilities = run.backend.common_capabilities();
        if !capabilities.guests_reachable {
            return;
        }
        // Waiting for a guest agent gains nothing: agents start late, and the CoreOS of OKD has none. Nor does waiting
        // for a platform that is not the DHCP server of these machines.
        let serves = run.config.dhcp != Dhcp::None && !run.facts.dhcp_ranges.is_empty();
        let (patience, sweeps, consoles) = match capabilities.addresses_from_agent || !serves {
            true => (Duration::ZERO, INTERVAL, CONSOLES),
            false => (SILENCE, SELDOM, SELDOM),
        };
        let silent = self.silent(planned, machines, patience);
        if silent.is_empty() {
            return;
        }
        let is_due = |last: Option<Instant>, interval| last.is_none_or(|last| last.elapsed() >= interval);
        if is_due(self.last_look, INTERVAL) {
            let now = Some(Instant::now());
            self.last_look = now;
            let answered = self.at_planned_addresses(&silent).await;
            if is_due(self.last_sweep, sweeps) {
                self.last_sweep = now;
                let elsewhere = silent.iter().map(|plan| plan.mac);
                let elsewhere = elsewhere.filter(|mac| !answered.contains(mac)).collect();
                self.on_network(elsewhere).await;
            }
        }
        if is_due(self.last_consoles, consoles) {
            self.last_consoles = Some(Instant::now());
            self.on_consoles(run, &silent).await;
        }
        for plan in silent {
            let machine = machines.iter_mut().find(|machine| machine.name == plan.name);
            if let Some((ip, _)) = self.found.get(&plan.mac)
                && let Some(nic) = machine.and_then(|machine| machine.nics.iter_mut().find(|nic| nic.mac == plan.mac))
            {
                nic.addresses.push(*ip);
            }
        }
    }

    /// The guests that have run without an address for at least `patience`.
    fn silent<'p>(&mut self, planned: &'p [Planned], machines: &[Machine], patience: Duration) -> Vec<&'p Planned> {
        let mut silent = Vec::new();
        for plan in planned {
            let machine = machines.iter().find(|machine| machine.name == plan.name);
            if judge(machine, plan.mac, self.network) == Seen::NoLease {
                let since = self.silent_since.entry(plan.name.clone()).or_insert_with(Instant::now);
                if since.elapsed() >= patience {
                    silent.push(plan);
                }
            } else {
                self.silent_since.remove(&plan.name);
                self.found.remove(&plan.mac);
            }
        }
        silent
    }

    /// The MACs of the guests that answer at their planned addresses.
    async fn at_planned_addresses(&mut self, silent: &[&Planned]) -> Vec<Mac> {
        let planned = silent.iter().filter_map(|plan| Some((plan.ip?, plan.mac)));
        let answered = network_probe::machines_at(planned.collect(), ANSWER).await;
        for (ip, mac) in &answered {
            self.found.insert(*mac, (*ip, Evidence::PlannedAddress));
        }
        answered.into_iter().map(|(_, mac)| mac).collect()
    }

    /// Looks for these MACs among this computer's neighbours, and confirms each, since entries outlive guests.
    async fn on_network(&mut self, wanted: Vec<Mac>) {
        let Some(network) = self.network else { return };
        let all = self
            .neighbours
            .get_or_insert_with(|| network_probe::direct_neighbours(network));
        let begin = if self.next < all.len() { self.next } else { 0 };
        let end = all.len().min(begin + SWEEP);
        self.next = end;
        network_probe::resolve(&all[begin..end]);
        if begin < end {
            sleep(ANSWER).await;
        }
        let entries = network_probe::neighbours().into_iter();
        let candidates: Vec<(IpAddr, Mac)> = entries
            .filter(|(ip, mac)| network.contains(*ip) && !self.virtual_ips.contains(ip) && wanted.contains(mac))
            .collect();
        let addresses: Vec<_> = candidates.iter().map(|(ip, _)| *ip).collect();
        let answers = network_probe::answering_tcp(&addresses).await;
        for (ip, mac) in candidates {
            if answers.get(&ip) == Some(&Some(mac)) {
                self.found.insert(mac, (ip, Evidence::Network));
            }
        }
    }

    async fn on_consoles(&mut self, run: &Run<'_>, silent: &[&Planned]) {
        let id = run.config.id();
        let unknown = silent.iter().filter(|plan| !self.found.contains_key(&plan.mac));
        // A console that cannot be read gives no address; the error of the wait names the guest.
        let read = unknown.map(async |plan| {
            let text = run.backend.console_tail(&id, &plan.name).await.ok()??;
            Some((plan.mac, text))
        });
        // Concurrently: reading a console without a log takes seconds.
        let texts = join_all(read).await;
        for (mac, text) in texts.into_iter().flatten() {
            let ip = console_address(&text, mac);
            if let Some(ip) = ip.filter(|ip| self.network.is_none_or(|network| network.contains(*ip))) {
                self.found.insert(mac, (ip, Evidence::Console));
            }
        }
    }
}
