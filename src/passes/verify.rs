//! Compares the table with the platform, its DHCP server, the cluster and its nodes; repairs reservations.

mod nodes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde::Serialize;
use tracing::info;

use super::adopt;
use super::destroy::delete_machines;
use super::effective_settings::EffectiveSettings;
use super::error::not_installed;
use super::guest_addresses::with_answers;
use super::reserve::{HOLD, hold_in, holds};
use super::services::RenewedRelease;
use super::simulated::refuse_simulated;
use crate::PROGRESS;
use crate::backend::platforms::Platforms;
use crate::backend::{AddressReservation, Machine, ReservationState, Reserved};
use crate::cluster::{AddressAssignment, ClusterConfig, ClusterId, MachineName, NodeName, Pass, Role, Vip};
use crate::error::{ErrorKind, OperationError};
use crate::local::reach;
use crate::openshift::api::ClusterApi;
use crate::openshift::releases::{ClusterRelease, Releases};
use crate::plan::harvest::{Seen, judge_planned};
use crate::state::home::Home;
use crate::state::inventory::Known;
use crate::state::journal::{BOOTSTRAP_REMOVED, INSTALLED, Journal};
use crate::state::parameters::{NodeAddress, Parameters};

/// Where something differs from the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DifferencePlace {
    Machine,
    AddressAssignment,
    Reservation,
    Node,
    Release,
    Settings,
}

impl fmt::Display for DifferencePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Machine => "machine",
            Self::AddressAssignment => "lease",
            Self::Reservation => "reservation",
            Self::Node => "node",
            Self::Release => "release",
            Self::Settings => "settings",
        })
    }
}

/// One difference from the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct TableDifference {
    /// Node or VIP.
    pub name: String,
    pub place: DifferencePlace,
    /// The observed value, and why it is wrong.
    pub text: String,
}

impl TableDifference {
    fn new(name: impl fmt::Display, place: DifferencePlace, text: String) -> Self {
        Self {
            name: name.to_string(),
            place,
            text,
        }
    }
}

/// The result of `verify`.
#[derive(Clone, Debug, Serialize)]
pub struct Verified {
    /// The number of compared lines of the table.
    pub lines: usize,
    pub differences: Vec<TableDifference>,
    /// What could not be compared, and why.
    pub left_out: Vec<String>,
    /// Workers that were added to the table.
    pub adopted: Vec<NodeAddress>,
    /// Reservations that were recreated or completed.
    pub repaired: Vec<AddressAssignment>,
    /// Machines that were no longer needed and still existed.
    pub removed: Vec<MachineName>,
}

/// Asks whether to add these nodes to the table; an error declines.
pub type ConfirmNodes<'a> = dyn Fn(&[NodeAddress]) -> Result<()> + 'a;

/// What `verify` changes before it compares.
pub struct VerifyOptions<'a> {
    /// Corrects reservations, and removes machines that are no longer needed.
    pub repair: bool,
    /// Adds workers that the table lacks, after this function has confirmed them.
    pub adopt: Option<&'a ConfirmNodes<'a>>,
}

/// Compares, and changes what the options say. `settings` reads the current settings.
pub async fn verify(
    backend: &Platforms,
    known: &Known,
    home: &Home,
    settings: Result<ClusterConfig>,
    VerifyOptions { repair, adopt }: VerifyOptions<'_>,
) -> Result<Verified> {
    let dir = home.cluster(&known.name);
    let journal = Journal::open(&dir, &known.name)?;
    let mut table = Parameters::read(&dir.parameters())?.ok_or_else(|| {
        let text = format!("cluster {} has no addresses yet", known.name);
        OperationError::new(ErrorKind::Tool, text).hint("run `ocpdeploy harvest` or `ocpdeploy deploy`")
    })?;
    let held: BTreeMap<NodeName, ReservationState> = journal.output(HOLD)?.unwrap_or_default();
    let is_held = held.values().any(|held| *held == ReservationState::ByPlatform);
    let cluster = &known.id();
    let machines = backend.list_machines(cluster).await?;
    let mut adopted = Vec::new();
    if let Some(confirm) = adopt {
        journal.done_at(INSTALLED).ok_or_else(|| not_installed(&known.name))?;
        adopted = adopt::unrecorded(backend, cluster, &table, &machines).await?;
        if !adopted.is_empty() {
            confirm(&adopted)?;
            adopt::record_nodes(home, &journal, &mut table, &adopted)?;
        }
    }
    let mut seen = Look {
        cluster,
        table: &table,
        bootstrap_is_gone: journal.done_at(BOOTSTRAP_REMOVED).is_some(),
        by_agents: backend.common_capabilities().addresses_from_agent,
        machines: with_answers(backend, &table, machines).await,
        held: match is_held {
            true => Some(backend.list_reservations(cluster).await?),
            false => None,
        },
        nodes: None,
    };
    let mut left_out = Vec::new();
    let mut outdated = None;
    let mut of_nodes = Vec::new();
    if !is_held {
        left_out.push("reservations: the platform reserves no address of this cluster".to_owned());
    }
    for node in &table.external {
        left_out.push(format!("machine: {} is an external node", node.name));
    }
    if known.rehearsal {
        left_out.push("nodes: a rehearsal has no API".to_owned());
    } else if journal.done_at(INSTALLED).is_none() {
        left_out.push("nodes: the cluster is not installed yet".to_owned());
    } else {
        let asked = async {
            refuse_simulated(&known.name, &known.backend, table.api_ip)?;
            let api = ClusterApi::open(&dir.kubeconfig(), reach::api_endpoint(&table)).await?;
            Ok::<_, anyhow::Error>((api.nodes().await?, api.cluster_version().await?))
        };
        match asked.await {
            Ok((nodes, version)) => {
                seen.nodes = Some(nodes.iter().map(ClusterNode::of).collect());
                let renewed = RenewedRelease::read(&journal)?.map(|renewed| renewed.of);
                let chosen: Option<EffectiveSettings> = journal.output(EffectiveSettings::STEP)?;
                let has_pods = chosen.is_none_or(|chosen| chosen.has_static_pods());
                let releases = version.as_ref().and_then(Releases::of).filter(|_| has_pods);
                outdated = releases.and_then(|releases| outdated_pods(&known.name, &releases, renewed));
            }
            Err(error) => left_out.push(format!("nodes: {error}")),
        }
        match settings {
            Ok(config) => {
                let (texts, unknown) = nodes::compare(&dir, &table, &config).await;
                let texts = texts.into_iter();
                of_nodes.extend(texts.map(|(node, text)| TableDifference::new(node, DifferencePlace::Settings, text)));
                left_out.extend(unknown);
            }
            Err(error) => {
                // `check` shows the whole error with its location.
                let why = error.to_string();
                left_out.push(format!(
                    "settings of the nodes: {}",
                    why.lines().next().unwrap_or_default()
                ));
            }
        }
    }
    let mut removed = Vec::new();
    if repair {
        let machines = seen.machines.iter();
        let left: Vec<_> = machines
            .filter(|machine| seen.has_done_its_work(machine))
            .cloned()
            .collect();
        delete_machines(backend, cluster, &left).await?;
        seen.machines.retain(|machine| !left.contains(machine));
        removed.extend(left.into_iter().map(|machine| machine.name));
    }
    let mut repaired = Vec::new();
    if repair && let Some(held) = seen.held.take() {
        repaired = correct_reservations(backend, &seen, &held).await?;
        seen.held = Some(backend.list_reservations(cluster).await?);
    }
    let mut differences = seen.differences();
    differences.extend(outdated);
    differences.extend(of_nodes);
    Ok(Verified {
        lines: table.leases().len(),
        differences,
        left_out,
        adopted,
        repaired,
        removed,
    })
}

/// Whether the static pods have the images of an older release than the cluster.
fn outdated_pods(cluster: &str, releases: &Releases, renewed: Option<ClusterRelease>) -> Option<TableDifference> {
    let used = renewed.as_ref().unwrap_or(&releases.installed);
    let current = &releases.current;
    (used.image != current.image).then(|| {
        let text = format!(
            "have the images of {}, the cluster runs {}: `ocpdeploy renew {cluster}`",
            used.version, current.version
        );
        TableDifference::new("static pods", DifferencePlace::Release, text)
    })
}

impl Look<'_> {
    /// Machines of pass one, and the bootstrap after its removal: the platform may complete a killed run's request
    /// late.
    fn has_done_its_work(&self, machine: &Machine) -> bool {
        machine.pass == Pass::One || (machine.role == Role::Bootstrap && self.bootstrap_is_gone)
    }
}

/// Releases wrong reservations, creates missing ones and completes others; returns those of the last two kinds.
async fn correct_reservations(
    backend: &Platforms,
    seen: &Look<'_>,
    held: &[Reserved],
) -> Result<Vec<AddressAssignment>> {
    let table = seen.table;
    let leases = seen.table.leases();
    let held_leases = held.iter().map(|reserved| &reserved.assignment);
    // A machine that the table lacks was created by another computer, which has changed the cluster since.
    let is_used = |lease: &&AddressAssignment| {
        let mut nics = seen.machines.iter().flat_map(|machine| &machine.nics);
        !is_known(table, lease) && nics.any(|nic| nic.mac == lease.mac)
    };
    for lease in held_leases.filter(|lease| !leases.contains(lease) && !is_used(lease)) {
        backend.release_address(&hold_in(seen.cluster, table, lease)).await?;
        info!(target: PROGRESS, step = "repair", "released {} for {}", lease.ip, lease.mac);
    }
    let mut made = Vec::new();
    for mut hold in wanted(seen.cluster, table) {
        if let Some(reserved) = held.iter().find(|reserved| reserved.assignment == hold.assignment) {
            hold.allowed = seen.forbidden(held, reserved).into_iter().map(|(_, ip)| ip).collect();
            if !hold.ipv6.is_some_and(|ip| reserved.lacks(ip)) && hold.allowed.is_empty() {
                continue;
            }
        }
        backend.reserve_address(&hold).await?;
        info!(target: PROGRESS, step = "repair", "reserved {} for {}", hold.assignment.ip, hold.assignment.name);
        made.push(hold.assignment);
    }
    Ok(made)
}

/// A node as the cluster reports it.
#[derive(Clone, Debug)]
struct ClusterNode {
    name: String,
    is_ready: bool,
    addresses: BTreeSet<String>,
}

impl ClusterNode {
    fn of(node: &Node) -> Self {
        let status = node.status.as_ref();
        let conditions = status.into_iter().flat_map(|status| status.conditions.iter().flatten());
        let addresses = status.into_iter().flat_map(|status| status.addresses.iter().flatten());
        Self {
            name: node.name_any(),
            is_ready: conditions
                .into_iter()
                .any(|seen| seen.type_ == "Ready" && seen.status == "True"),
            addresses: addresses
                .filter(|address| address.type_ == "InternalIP")
                .map(|address| address.address.clone())
                .collect(),
        }
    }
}

/// All observed values, to be compared with the table.
struct Look<'a> {
    cluster: &'a ClusterId,
    table: &'a Parameters,
    bootstrap_is_gone: bool,
    /// Guest agents report the addresses.
    by_agents: bool,
    machines: Vec<Machine>,
    /// `None`: the platform reserves nothing.
    held: Option<Vec<Reserved>>,
    /// `None`: the cluster was not queried.
    nodes: Option<Vec<ClusterNode>>,
}

impl Look<'_> {
    fn differences(&self) -> Vec<TableDifference> {
        let mut found = Vec::new();
        self.machines(&mut found);
        self.reservations(&mut found);
        self.nodes(&mut found);
        found.sort();
        found
    }

    fn expected(&self) -> impl Iterator<Item = &NodeAddress> {
        let is_due = |node: &&NodeAddress| node.role != Role::Bootstrap || !self.bootstrap_is_gone;
        self.table.nodes.iter().filter(is_due)
    }

    fn machines(&self, found: &mut Vec<TableDifference>) {
        let mut differs = |name: &NodeName, place, text| found.push(TableDifference::new(name, place, text));
        for node in self.expected() {
            let mut machines = self.machines.iter().filter(|machine| machine.pass == Pass::Two);
            let machine = machines.find(|machine| machine.node == node.name);
            match judge_planned(machine, node.mac, node.ip).reported(self.by_agents) {
                Seen::Address(ip) if ip != node.ip => {
                    let why = why_moved(self.held.as_deref(), node);
                    differs(
                        &node.name,
                        DifferencePlace::AddressAssignment,
                        format!("has {ip}, the table has {}: {why}", node.ip),
                    );
                }
                Seen::Several(ips) if !ips.contains(&node.ip) => {
                    let ips: Vec<_> = ips.iter().map(IpAddr::to_string).collect();
                    differs(
                        &node.name,
                        DifferencePlace::AddressAssignment,
                        format!("has {}, the table has {}", ips.join(" and "), node.ip),
                    );
                }
                Seen::Address(_) | Seen::Several(_) => {}
                silent @ (Seen::NoLease | Seen::Silent) => {
                    differs(&node.name, DifferencePlace::AddressAssignment, silent.to_string());
                }
                other => differs(&node.name, DifferencePlace::Machine, other.to_string()),
            }
        }
        for machine in &self.machines {
            let text = match (machine.pass, self.expected().any(|node| node.name == machine.node)) {
                (Pass::Two, true) => continue,
                (Pass::One, _) => format!("{} is left over from pass one", machine.name),
                (Pass::Two, false) if machine.role == Role::Bootstrap => {
                    "still exists and is no longer needed".to_owned()
                }
                (Pass::Two, false) if machine.role == Role::Worker => format!(
                    "{} is not in the table: `ocpdeploy verify {} --adopt` adds it",
                    machine.name, self.table.cluster
                ),
                (Pass::Two, false) => format!("{} is not in the table", machine.name),
            };
            differs(&machine.node, DifferencePlace::Machine, text);
        }
    }

    fn reservations(&self, found: &mut Vec<TableDifference>) {
        let Some(held) = &self.held else { return };
        let mut differs = |lease: &AddressAssignment, text| {
            found.push(TableDifference::new(&lease.name, DifferencePlace::Reservation, text));
        };
        for AddressReservation {
            assignment: lease,
            ipv6,
            ..
        } in wanted(self.cluster, self.table)
        {
            let AddressAssignment { ip, mac, .. } = lease;
            if let Some(reserved) = held.iter().find(|reserved| reserved.assignment == lease) {
                if let Some(ip) = ipv6.filter(|ip| reserved.lacks(*ip)) {
                    differs(&lease, format!("{ip} is not reserved for {mac}"));
                }
                for (vip, ip) in self.forbidden(held, reserved) {
                    differs(
                        &lease,
                        format!("may not use {ip} of {vip}: the platform drops its packets"),
                    );
                }
                continue;
            }
            let mut others = held.iter().map(|reserved| &reserved.assignment);
            let text = match others.find(|other| other.name == lease.name) {
                Some(other) => format!("has {} for {}, the table has {ip} for {mac}", other.ip, other.mac),
                None => format!("{ip} is not reserved for {mac}"),
            };
            differs(&lease, text);
        }
        let held = held.iter().map(|reserved| &reserved.assignment);
        for lease in held.filter(|lease| !is_known(self.table, lease)) {
            let text = format!("{} is reserved for {}, which is not in the table", lease.ip, lease.mac);
            differs(lease, text);
        }
    }

    /// The VIP addresses that the machine with this reservation must use, but may not. Addresses of the platform's load
    /// balancers are not reserved for machines, and a missing machine gets its rights when it is created.
    fn forbidden(&self, held: &[Reserved], reserved: &Reserved) -> Vec<(Vip, IpAddr)> {
        let name = &reserved.assignment.name;
        let mut machines = self.machines.iter().filter(|machine| machine.pass == Pass::Two);
        let Some(machine) = machines.find(|machine| machine.node == *name) else {
            return Vec::new();
        };
        let is_held = |vip: &&Vip| held.iter().any(|held| held.assignment.name == NodeName::vip(**vip));
        let vips = machine.role.vips().iter().filter(is_held);
        let addresses = vips.flat_map(|vip| self.table.vip_addresses(*vip).into_iter().map(|ip| (*vip, ip)));
        addresses.filter(|(_, ip)| reserved.forbids(*ip)).collect()
    }

    fn nodes(&self, found: &mut Vec<TableDifference>) {
        let Some(nodes) = &self.nodes else { return };
        let mut differs = |name: &dyn fmt::Display, text| {
            found.push(TableDifference::new(name, DifferencePlace::Node, text));
        };
        let id = self.table.cluster_domain();
        let of_cluster = |node: &&NodeAddress| node.role != Role::Bootstrap;
        for planned in self.table.all_nodes().filter(of_cluster) {
            let host = id.fqdn(planned.name.as_str());
            let Some(node) = nodes.iter().find(|node| node.name == host) else {
                differs(&planned.name, "is not in the cluster".to_owned());
                continue;
            };
            if !node.is_ready {
                differs(&planned.name, "is not Ready".to_owned());
            }
            let ips: Vec<_> = self.table.both(planned.ip).iter().map(IpAddr::to_string).collect();
            if !node.addresses.is_empty() && !ips.iter().all(|ip| node.addresses.contains(ip)) {
                let theirs: Vec<_> = node.addresses.iter().map(String::as_str).collect();
                differs(
                    &planned.name,
                    format!("reports {}, the table has {}", theirs.join(" and "), ips.join(" and ")),
                );
            }
        }
        for node in nodes {
            let mut planned = self.table.all_nodes().filter(of_cluster);
            if planned.all(|planned| id.fqdn(planned.name.as_str()) != node.name) {
                differs(&node.name, "is in the cluster, but not in the table".to_owned());
            }
        }
    }
}

/// The required reservations: each address once, even if both VIPs are the same. The bootstrap's is released with it.
fn wanted(cluster: &ClusterId, table: &Parameters) -> Vec<AddressReservation> {
    let mut holds = holds(cluster, table);
    holds.retain(|hold| hold.assignment.name != NodeName::bootstrap());
    holds
}

fn is_known(table: &Parameters, lease: &AddressAssignment) -> bool {
    table.leases().iter().any(|known| known.name == lease.name)
}

fn why_moved(held: Option<&[Reserved]>, node: &NodeAddress) -> &'static str {
    match held {
        None => "it is not reserved",
        Some(held) if held.iter().any(|reserved| reserved.assignment == node.lease()) => {
            "the reservation was not honoured; another DHCP server may answer first"
        }
        Some(_) => "its reservation is missing; `--repair` creates it, and the machine uses it after its next start",
    }
}

#[cfg(test)]
mod tests;
