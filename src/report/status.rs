//! A cluster's nodes: planned and actual state.
//!
//! More than 500 lines with its tests.

use std::net::{IpAddr, Ipv6Addr};

use jiff::Timestamp;
use serde::Serialize;

use super::deployed::Access;
use super::state::{Progress, was_made};
use super::{fitted, labelled, or_nothing, row};
use crate::backend::{Capabilities, Machine, Power};
use crate::cluster::{DeploymentId, Mac, MachineName, NodeName, Pass, Role, Vip};
use crate::openshift::wait::clock::Clock;
use crate::passes::SwitchedOff;
use crate::plan::harvest::{Seen, judge};
use crate::printable::printable_line;
use crate::state::inventory::Cluster;
use crate::state::journal::{BOOTSTRAP_REMOVED, Entry, Event, Holder, is_done};

/// The current state of several clusters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatusList {
    pub clusters: Vec<Status>,
}

impl StatusList {
    pub fn new(clusters: Vec<Status>) -> Self {
        Self { clusters }
    }

    /// One cluster after the other, with a limited width.
    pub fn text(&self, limit: Option<usize>) -> String {
        if self.clusters.is_empty() {
            return "no clusters in the state directory\n".to_owned();
        }
        let texts: Vec<String> = self.clusters.iter().map(|status| status.text(limit)).collect();
        texts.join("\n\n")
    }
}

/// The current state of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    pub cluster: String,
    pub domain: String,
    /// Of its deployment.
    pub id: DeploymentId,
    pub backend: String,
    pub rehearsal: bool,
    #[serde(flatten)]
    pub progress: Progress,
    /// The process that works on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<Holder>,
    pub network: Option<String>,
    pub vips: Vec<VipStatus>,
    pub nodes: Vec<NodeStatus>,
    /// Existing machines of pass one.
    pub pass_one: Vec<MachineName>,
    /// `None` in a rehearsal and before the installer's files exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificates: Option<Clock>,
    /// When `stop` switched all machines off, if they still are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub off_since: Option<Timestamp>,
    /// `None` in a rehearsal and until the cluster is installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
}

/// A virtual IP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VipStatus {
    pub name: NodeName,
    pub ip: IpAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Ipv6Addr>,
    /// Where computers outside of the network reach it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_ip: Option<IpAddr>,
    pub mac: Mac,
    pub virtual_router_id: u8,
}

/// A node, planned or observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    pub node: NodeName,
    pub role: Role,
    pub mac: Mac,
    /// `None` for a machine that is not in the parameter file.
    pub planned_ip: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned_ipv6: Option<Ipv6Addr>,
    pub seen_ips: Vec<IpAddr>,
    /// `None` without a machine.
    pub power: Option<&'static str>,
    pub verdict: Verdict,
    /// The verdict as text.
    pub text: String,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Runs with its planned address.
    Ok,
    /// Runs with another address.
    Moved,
    /// Its machine was created and does not exist.
    Missing,
    /// Pass two has not created it.
    NotMade,
    /// The bootstrap, after bootstrap-complete.
    Removed,
    /// The machine exists, but has no address to compare.
    Unready,
    /// An external node: its machine is not on the platform.
    External,
}

impl Status {
    /// Compares the parameter file and the journal with one bulk query of the platform.
    pub fn of(cluster: &Cluster, journal: &[Entry], holder: Option<Holder>, machines: &[Machine]) -> Self {
        let progress = Progress::of(cluster, journal, holder.as_ref(), Some(machines));
        let off_since = progress
            .power
            .filter(|power| *power == super::state::Power::Stopped)
            .and_then(|_| stopped_at(journal));
        let known = &cluster.known;
        let parameters = cluster.parameters.as_ref();
        let second: Vec<&Machine> = machines.iter().filter(|machine| machine.pass == Pass::Two).collect();
        let ipv6 = parameters.and_then(|parameters| parameters.ipv6.as_ref());
        let planned = parameters.iter().flat_map(|parameters| {
            let network = Some(parameters.machine_network);
            let second = &second;
            parameters.nodes.iter().map(move |node| {
                let machine = second.iter().copied().find(|machine| machine.node == node.name);
                let by_agents = Capabilities::of(known.backend_of(&node.name)).addresses_from_agent;
                let seen = judge(machine, node.mac, network).reported(by_agents);
                let is_silent = matches!(seen, Seen::NoLease | Seen::Silent);
                let status = node_status(node.name.clone(), node.role, node.mac, Some(node.ip), machine, seen);
                let earlier = shown_at(journal, &node.name).filter(|_| is_silent);
                NodeStatus {
                    planned_ipv6: ipv6.map(|ipv6| ipv6.beside(node.ip)),
                    text: match earlier {
                        Some(time) => format!("{}; it showed its address at {time:.0}", status.text),
                        None => status.text,
                    },
                    ..status
                }
            })
        });
        let unplanned = second.iter().filter_map(|machine| {
            let planned = parameters.is_some_and(|parameters| parameters.node(&machine.node).is_some());
            let nic = machine.nics.first().filter(|_| !planned)?;
            let seen = judge(Some(machine), nic.mac, None);
            Some(node_status(
                machine.node.clone(),
                machine.role,
                nic.mac,
                None,
                Some(machine),
                seen,
            ))
        });
        let mut nodes: Vec<NodeStatus> = planned.chain(unplanned).collect();
        let removed = is_done(journal, BOOTSTRAP_REMOVED);
        for node in nodes.iter_mut().filter(|node| node.power.is_none()) {
            (node.verdict, node.text) = if removed && node.role == Role::Bootstrap {
                (Verdict::Removed, "removed".to_owned())
            } else if was_made(journal, &node.node) {
                (Verdict::Missing, "missing".to_owned())
            } else {
                (Verdict::NotMade, "not created yet".to_owned())
            };
        }
        let external = parameters.iter().flat_map(|parameters| &parameters.external);
        nodes.extend(external.map(|node| NodeStatus {
            node: node.name.clone(),
            role: node.role,
            mac: node.mac,
            planned_ip: Some(node.ip),
            planned_ipv6: ipv6.map(|ipv6| ipv6.beside(node.ip)),
            seen_ips: Vec::new(),
            power: None,
            verdict: Verdict::External,
            text: "external".to_owned(),
        }));
        let vips = parameters.iter().flat_map(|parameters| {
            Vip::ALL.into_iter().map(|vip| {
                let lease = parameters.vip(vip);
                VipStatus {
                    name: lease.name,
                    ip: lease.ip,
                    ipv6: ipv6.map(|ipv6| ipv6.vip(vip)),
                    external_ip: parameters.external_vips.of(vip),
                    mac: lease.mac,
                    virtual_router_id: parameters.router_id(vip),
                }
            })
        });
        Self {
            cluster: known.name.clone(),
            domain: known.domain.clone(),
            id: known.deployment.id.clone(),
            backend: known.platforms(),
            rehearsal: known.rehearsal,
            progress,
            process: holder,
            network: parameters.map(|parameters| parameters.network.clone()),
            vips: vips.collect(),
            nodes,
            pass_one: machines
                .iter()
                .filter(|machine| machine.pass == Pass::One)
                .map(|machine| machine.name.clone())
                .collect(),
            certificates: None,
            off_since,
            access: None,
        }
    }

    /// The text for users, with a limited width.
    pub fn text(&self, limit: Option<usize>) -> String {
        let rehearsal = if self.rehearsal { ", rehearsal" } else { "" };
        let mut text = labelled(
            "cluster ",
            &format!("{}.{} on {}{rehearsal}", self.cluster, self.domain, self.backend),
            limit,
        );
        text += &labelled("phase   ", &self.progress.phase, limit);
        if let Some(network) = &self.network {
            text += &labelled("network ", network, limit);
        }
        match (&self.certificates, self.off_since) {
            (clock, Some(since)) => {
                let certificates = clock.map(|clock| clock.certificates).unwrap_or_default();
                text += &labelled("off     ", &certificates.off_text(since), limit);
            }
            (Some(clock), None) => text += &labelled("certificates ", &clock.text(), limit),
            (None, None) => {}
        }
        for (label, value) in self.access.iter().flat_map(Access::rows) {
            text += &labelled(label, &value, limit);
        }
        if !self.vips.is_empty() {
            let has_ipv6 = self.vips.iter().any(|vip| vip.ipv6.is_some());
            let has_external = self.vips.iter().any(|vip| vip.external_ip.is_some());
            let mut head = row([&"VIP", &"MAC", &"IP", &"VRID"]);
            head.extend(has_ipv6.then(|| "IPV6".to_owned()));
            head.extend(has_external.then(|| "EXTERNAL IP".to_owned()));
            let vips = self.vips.iter().map(|vip| {
                let mut cells = row([&vip.name, &vip.mac, &vip.ip, &vip.virtual_router_id]);
                cells.extend(has_ipv6.then(|| or_nothing(vip.ipv6)));
                cells.extend(has_external.then(|| or_nothing(vip.external_ip)));
                cells
            });
            let rows: Vec<_> = std::iter::once(head).chain(vips).collect();
            text += &format!("\n{}", fitted(&rows, limit, &[]));
        }
        if !self.nodes.is_empty() {
            let head = row([&"NODE", &"ROLE", &"MAC", &"PLANNED", &"SEEN", &"POWER", &"STATE"]);
            let nodes = self.nodes.iter().map(NodeStatus::row);
            let mut rows: Vec<_> = std::iter::once(head).chain(nodes).collect();
            let mut spare = vec![1, 5];
            if self.nodes.iter().any(|node| node.planned_ipv6.is_some()) {
                let ipv6 = self.nodes.iter().map(|node| or_nothing(node.planned_ipv6));
                let column = std::iter::once("PLANNED IPV6".to_owned()).chain(ipv6);
                rows.iter_mut().zip(column).for_each(|(row, cell)| row.insert(4, cell));
                spare = vec![1, 6, 4];
            }
            text += &format!("\n{}", fitted(&rows, limit, &spare));
        }
        if !self.pass_one.is_empty() {
            text += "\nmachines of pass one:\n";
            for name in &self.pass_one {
                text += &format!("  {}\n", printable_line(name.as_str()));
            }
        }
        text
    }
}

/// The changes since the previous status, one line each: for output without a terminal.
pub fn changes(before: &[Status], now: &[Status]) -> Vec<String> {
    let mut lines = Vec::new();
    for status in now {
        let name = &status.cluster;
        let old = before.iter().find(|old| old.cluster == *name);
        if old.is_none_or(|old| old.progress.phase != status.progress.phase) {
            lines.push(format!("{name}: {}", status.progress.phase));
        }
        let old = old.map(|old| old.nodes.as_slice()).unwrap_or_default();
        for node in status.nodes.iter().filter(|node| !old.contains(node)) {
            lines.push(
                format!("{name} {}: {} {}", node.node, node.text, node.seen())
                    .trim_end()
                    .to_owned(),
            );
        }
    }
    lines.iter().map(|line| printable_line(line)).collect()
}

impl NodeStatus {
    /// The observed addresses; the planned one is shown as `same`.
    fn seen(&self) -> String {
        let word = |ip: &IpAddr| match Some(*ip) == self.planned_ip {
            true => "same".to_owned(),
            false => ip.to_string(),
        };
        self.seen_ips.iter().map(word).collect::<Vec<_>>().join(",")
    }

    fn row(&self) -> Vec<String> {
        row([
            &self.node,
            &self.role,
            &self.mac,
            &or_nothing(self.planned_ip),
            &self.seen(),
            &or_nothing(self.power),
            &self.text,
        ])
    }
}

fn node_status(
    node: NodeName,
    role: Role,
    mac: Mac,
    planned_ip: Option<IpAddr>,
    machine: Option<&Machine>,
    seen: Seen,
) -> NodeStatus {
    let seen_ips: Vec<IpAddr> = match &seen {
        Seen::Address(ip) | Seen::WrongNetwork(ip, _) => vec![*ip],
        Seen::Several(ips) => ips.clone(),
        _ => Vec::new(),
    };
    // A node that holds a virtual IP shows it in addition to its own address.
    let (verdict, text) = match planned_ip {
        Some(ip) if seen_ips.contains(&ip) => (Verdict::Ok, "ok".to_owned()),
        Some(_) if !seen_ips.is_empty() => (Verdict::Moved, "moved".to_owned()),
        _ => match seen {
            Seen::Absent => (Verdict::Missing, "missing".to_owned()),
            Seen::Address(_) | Seen::Several(_) => (Verdict::Unready, "not planned".to_owned()),
            other => {
                let text = other.to_string();
                (Verdict::Unready, text.strip_prefix("is ").unwrap_or(&text).to_owned())
            }
        },
    };
    NodeStatus {
        node,
        role,
        mac,
        planned_ip,
        planned_ipv6: None,
        seen_ips,
        power: machine.map(|machine| power(&machine.power)),
        verdict,
        text,
    }
}

fn power(power: &Power) -> &'static str {
    match power {
        Power::Building => "building",
        Power::Waiting(_) => "waiting",
        Power::Running => "running",
        Power::Off => "off",
        Power::Paused(_) => "paused",
        Power::Broken(_) => "broken",
    }
}

/// When a deployment last saw the address of a node's machine: it may know more than the platform reports.
fn shown_at(journal: &[Entry], node: &NodeName) -> Option<Timestamp> {
    let mut steps = ["join", "pass-two/create"]
        .map(|workflow| format!("{workflow}/{node}/address"))
        .into_iter();
    let step = steps.find(|step| is_done(journal, step))?;
    let entry = journal
        .iter()
        .rfind(|entry| entry.event == Event::Done && entry.step == step)?;
    Some(entry.time)
}

/// When the last `stop` ended.
fn stopped_at(journal: &[Entry]) -> Option<Timestamp> {
    let is_note = |entry: &&Entry| entry.is_note() && entry.step == SwitchedOff::NOTE;
    let last = journal.iter().rfind(is_note)?;
    let off: SwitchedOff = serde_json::from_value(last.output.clone()).ok()?;
    (!off.off.is_empty()).then_some(last.time)
}

/// When the installer's current files were created.
pub fn made_at(journal: &[Entry]) -> Option<Timestamp> {
    let done = |entry: &&Entry| entry.event == Event::Done && entry.step == "assets";
    let last = journal.iter().rfind(done).filter(|_| is_done(journal, "assets"))?;
    last.output.get("made_at")?.as_str()?.parse().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::backend::SeenNic;
    use crate::cluster::ClusterConfig;
    use crate::state::inventory::Known;
    use crate::state::parameters::Parameters;

    pub(in super::super) fn cluster() -> Cluster {
        let known = serde_json::json!({
            "v": 2, "name": "lab", "domain": "example.com", "rehearsal": true,
            "deployment": {"id": "x7k2pqrs", "creation": "anna@laptop 2026-11-28T09:12:13Z"},
            "backend": { "sim": { "state": "/sim.json" } },
            "sizes": ClusterConfig::example().sizes(), "platform_timeout": 120,
        });
        let known: Known = serde_json::from_value(known).unwrap();
        let node = |name: &str, role: &str, last: u8| {
            serde_json::json!({
                "name": name, "role": role, "mac": format!("52:54:00:00:00:{last:02x}"), "ip": format!("192.168.122.{last}"),
            })
        };
        let parameters = serde_json::json!({
            "v": 1, "written_by": "a test", "cluster": "lab", "domain": "example.com", "backend": "sim",
            "network": "default", "network_identity": "sim:default", "machine_network": "192.168.122.0/24",
            "gateway": "192.168.122.1", "resolvers": [], "harvest": "boot",
            "api_ip": "192.168.122.200", "api_mac": "52:54:00:00:00:c8",
            "ingress_ip": "192.168.122.201", "ingress_mac": "52:54:00:00:00:c9",
            "virtual_router_id": 200, "ingress_virtual_router_id": 201,
            "nodes": [
                node("bootstrap", "bootstrap", 10), node("master-0", "master", 11), node("master-1", "master", 12),
                node("master-2", "master", 13), node("worker-0", "worker", 14), node("worker-1", "worker", 15),
            ],
        });
        let parameters: Parameters = serde_json::from_value(parameters).unwrap();
        Cluster {
            known,
            parameters: Some(parameters),
        }
    }

    pub(in super::super) fn machine(
        pass: Pass,
        node: &str,
        role: Role,
        mac: u8,
        power: Power,
        ips: &[&str],
    ) -> Machine {
        Machine {
            creation: None,
            name: format!("lab-{node}").parse().unwrap(),
            node: serde_json::from_value(node.into()).unwrap(),
            role,
            pass,
            fingerprint: String::new(),
            power,
            nics: vec![SeenNic {
                network: "default".to_owned(),
                mac: Mac([0x52, 0x54, 0, 0, 0, mac]),
                addresses: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
            }],
        }
    }

    pub(in super::super) fn entry(event: Event, step: &str, error: &str) -> Entry {
        Entry {
            v: 1,
            seq: 1,
            time: jiff::Timestamp::UNIX_EPOCH,
            event,
            step: step.to_owned(),
            input: "0123".to_owned(),
            output: serde_json::Value::Null,
            error: error.to_owned(),
        }
    }

    #[test]
    fn each_node_is_compared_with_its_planned_address() {
        let machines = [
            // A node that holds a VIP shows two addresses.
            machine(
                Pass::Two,
                "master-0",
                Role::Master,
                11,
                Power::Running,
                &["192.168.122.11", "192.168.122.200"],
            ),
            machine(
                Pass::Two,
                "master-1",
                Role::Master,
                12,
                Power::Running,
                &["192.168.122.99"],
            ),
            machine(
                Pass::Two,
                "master-2",
                Role::Master,
                13,
                Power::Paused("no KVM".to_owned()),
                &[],
            ),
            machine(Pass::Two, "worker-0", Role::Worker, 14, Power::Running, &[]),
            machine(
                Pass::Two,
                "worker-7",
                Role::Worker,
                77,
                Power::Running,
                &["192.168.122.77"],
            ),
            machine(
                Pass::One,
                "harvest-worker-1",
                Role::Worker,
                15,
                Power::Running,
                &["192.168.122.15"],
            ),
        ];
        let journal = [
            entry(Event::Done, "pass-two/create/worker-1", ""),
            entry(Event::Done, "bootstrap-removed", ""),
            entry(Event::Failed, "install-complete", "waited too long\n  console: tail"),
        ];
        insta::assert_snapshot!(Status::of(&cluster(), &journal, None, &machines).text(None), @r"
        cluster lab.example.com on sim, rehearsal
        phase   failed at install-complete: waited too long
        network default

        VIP      MAC                IP               VRID
        api      52:54:00:00:00:c8  192.168.122.200  200
        ingress  52:54:00:00:00:c9  192.168.122.201  201

        NODE       ROLE       MAC                PLANNED         SEEN                  POWER    STATE
        bootstrap  bootstrap  52:54:00:00:00:0a  192.168.122.10  -                     -        removed
        master-0   master     52:54:00:00:00:0b  192.168.122.11  same,192.168.122.200  running  ok
        master-1   master     52:54:00:00:00:0c  192.168.122.12  192.168.122.99        running  moved
        master-2   master     52:54:00:00:00:0d  192.168.122.13  -                     paused   paused: no KVM
        worker-0   worker     52:54:00:00:00:0e  192.168.122.14  -                     running  running, but has no DHCP lease
        worker-1   worker     52:54:00:00:00:0f  192.168.122.15  -                     -        missing
        worker-7   worker     52:54:00:00:00:4d  -               192.168.122.77        running  not planned

        machines of pass one:
          lab-harvest-worker-1
        ");
    }

    #[test]
    fn a_narrow_terminal_shows_all_nodes_and_no_line_is_too_long() {
        let machines = [machine(
            Pass::Two,
            "master-0",
            Role::Master,
            11,
            Power::Running,
            &["192.168.122.11"],
        )];
        let mut status = Status::of(&cluster(), &[], None, &machines);
        status.progress.phase = "failed at pass-one/leases: 3 of 8 machines have no address after 600 s".to_owned();
        status.nodes[2].text = "paused: KVM does not work on this host: set libvirt_virt_type=qemu".to_owned();
        for limit in [36, 40, 60, 80, 100] {
            let text = status.text(Some(limit));
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= limit, "{widest} > {limit}\n{text}");
            for node in &status.nodes {
                assert!(
                    text.contains(node.node.as_str()) && text.contains(&node.mac.to_string()),
                    "{limit}\n{text}"
                );
            }
        }
    }

    #[test]
    fn changes_are_reported_line_by_line() {
        let before = Status::of(&cluster(), &[], None, &[]);
        let machines = [machine(
            Pass::Two,
            "master-0",
            Role::Master,
            11,
            Power::Running,
            &["192.168.122.11"],
        )];
        let now = Status::of(&cluster(), &[entry(Event::Failed, "merge", "no room")], None, &machines);
        let lines = changes(&[before], std::slice::from_ref(&now));
        assert_eq!(lines, ["lab: failed at merge: no room", "lab master-0: ok same"]);
        assert_eq!(changes(std::slice::from_ref(&now), std::slice::from_ref(&now)), [""; 0]);
    }
}
