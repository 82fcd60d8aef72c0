//! A cluster's nodes: what was planned and what the platform shows.

use std::net::Ipv4Addr;

use jiff::Timestamp;
use serde::Serialize;

use super::{or_nothing, row, table};
use crate::backend::{Machine, Power};
use crate::cluster::{Mac, MachineName, NodeName, Pass, Role, Vip};
use crate::harvest::{Seen, judge};
use crate::inventory::Cluster;
use crate::journal::{Entry, Event};
use crate::wait::clock::Clock;

/// Several clusters as they are now.
#[derive(Clone, Debug, Serialize)]
pub struct StatusList {
    pub clusters: Vec<Status>,
}

impl StatusList {
    pub fn new(clusters: Vec<Status>) -> Self {
        Self { clusters }
    }

    /// One cluster after the other.
    pub fn text(&self) -> String {
        if self.clusters.is_empty() {
            return "no cluster is known here\n".to_owned();
        }
        let texts: Vec<String> = self.clusters.iter().map(Status::text).collect();
        texts.join("\n\n")
    }
}

/// One cluster as it is now.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub cluster: String,
    pub domain: String,
    pub backend: String,
    pub rehearsal: bool,
    /// Where the last run got to, in words.
    pub phase: String,
    pub network: Option<String>,
    pub vips: Vec<VipStatus>,
    pub nodes: Vec<NodeStatus>,
    /// Throwaway machines that are there now.
    pub pass_one: Vec<MachineName>,
    /// Absent in a rehearsal and before the installer has made its files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificates: Option<Clock>,
}

/// A virtual IP.
#[derive(Clone, Debug, Serialize)]
pub struct VipStatus {
    pub name: NodeName,
    pub ip: Ipv4Addr,
    pub mac: Mac,
    pub virtual_router_id: u8,
}

/// A node, planned or seen.
#[derive(Clone, Debug, Serialize)]
pub struct NodeStatus {
    pub node: NodeName,
    pub role: Role,
    pub mac: Mac,
    /// `None` for a machine that the parameter file does not know.
    pub planned_ip: Option<Ipv4Addr>,
    pub seen_ips: Vec<Ipv4Addr>,
    /// `None` without a machine.
    pub power: Option<&'static str>,
    pub verdict: Verdict,
    /// The verdict in words.
    pub text: String,
}

/// How a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Runs with its planned address.
    Ok,
    /// Runs with another address.
    Moved,
    /// There was a machine, and there is none.
    Missing,
    /// Pass two has not made it.
    NotMade,
    /// The bootstrap, once it has done its work.
    Removed,
    /// There is a machine, but no address to compare.
    Unready,
}

impl Status {
    /// Compares the parameter file and the journal with one bulk look at the platform.
    pub fn of(cluster: &Cluster, journal: &[Entry], machines: &[Machine]) -> Self {
        let (known, parameters) = (&cluster.known, cluster.parameters.as_ref());
        let second: Vec<&Machine> = machines.iter().filter(|machine| machine.pass == Pass::Two).collect();
        let planned = parameters.iter().flat_map(|parameters| {
            let network = Some(parameters.machine_network);
            let second = &second;
            parameters.nodes.iter().map(move |node| {
                let machine = second.iter().copied().find(|machine| machine.node == node.name);
                let seen = judge(machine, node.mac, network);
                node_status(node.name.clone(), node.role, node.mac, Some(node.ip), machine, seen)
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
        let removed = is_done(journal, "bootstrap-removed");
        for node in nodes.iter_mut().filter(|node| node.power.is_none()) {
            (node.verdict, node.text) = if removed && node.role == Role::Bootstrap {
                (Verdict::Removed, "removed".to_owned())
            } else if is_done(journal, &format!("pass-two/create/{}", node.node))
                || is_done(journal, &format!("join/{}/begun", node.node))
            {
                (Verdict::Missing, "missing".to_owned())
            } else {
                (Verdict::NotMade, "not made yet".to_owned())
            };
        }
        let vips = parameters.iter().flat_map(|parameters| {
            let ids = [parameters.virtual_router_id, parameters.ingress_virtual_router_id];
            Vip::ALL.into_iter().zip(ids).map(|(vip, virtual_router_id)| {
                let lease = parameters.vip(vip);
                VipStatus {
                    name: lease.name,
                    ip: lease.ip,
                    mac: lease.mac,
                    virtual_router_id,
                }
            })
        });
        Self {
            cluster: known.name.clone(),
            domain: known.domain.clone(),
            backend: known.platforms(),
            rehearsal: known.rehearsal,
            phase: phase(journal),
            network: parameters.map(|parameters| parameters.network.clone()),
            vips: vips.collect(),
            nodes,
            pass_one: machines
                .iter()
                .filter(|machine| machine.pass == Pass::One)
                .map(|machine| machine.name.clone())
                .collect(),
            certificates: None,
        }
    }

    pub fn text(&self) -> String {
        let rehearsal = if self.rehearsal { ", a rehearsal" } else { "" };
        let mut text = format!(
            "cluster {}.{} on {}{rehearsal}\nphase   {}\n",
            self.cluster, self.domain, self.backend, self.phase
        );
        if let Some(network) = &self.network {
            text += &format!("network {network}\n");
        }
        if let Some(clock) = &self.certificates {
            text += &format!("certificates {}\n", clock.text());
        }
        if !self.vips.is_empty() {
            let head = row([&"VIP", &"MAC", &"IP", &"VRID"]);
            let vips = self
                .vips
                .iter()
                .map(|vip| row([&vip.name, &vip.mac, &vip.ip, &vip.virtual_router_id]));
            text += &format!("\n{}", table(&std::iter::once(head).chain(vips).collect::<Vec<_>>()));
        }
        if !self.nodes.is_empty() {
            let head = row([&"NODE", &"MAC", &"PLANNED", &"SEEN", &"POWER", &"STATE"]);
            let nodes = self.nodes.iter().map(NodeStatus::row);
            text += &format!("\n{}", table(&std::iter::once(head).chain(nodes).collect::<Vec<_>>()));
        }
        if !self.pass_one.is_empty() {
            text += "\nmachines of pass one:\n";
            for name in &self.pass_one {
                text += &format!("  {name}\n");
            }
        }
        text
    }
}

impl NodeStatus {
    fn row(&self) -> Vec<String> {
        let seen: Vec<String> = self.seen_ips.iter().map(Ipv4Addr::to_string).collect();
        row([
            &self.node,
            &self.mac,
            &or_nothing(self.planned_ip),
            &seen.join(","),
            &or_nothing(self.power),
            &self.text,
        ])
    }
}

fn node_status(
    node: NodeName,
    role: Role,
    mac: Mac,
    planned_ip: Option<Ipv4Addr>,
    machine: Option<&Machine>,
    seen: Seen,
) -> NodeStatus {
    let seen_ips: Vec<Ipv4Addr> = match &seen {
        Seen::Address(ip) | Seen::WrongNetwork(ip, _) => vec![*ip],
        Seen::Several(ips) => ips.clone(),
        _ => Vec::new(),
    };
    // A node that carries a virtual IP shows it beside its own address.
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
        seen_ips,
        power: machine.map(|machine| power(&machine.power)),
        verdict,
        text,
    }
}

fn power(power: &Power) -> &'static str {
    match power {
        Power::Building => "building",
        Power::Running => "running",
        Power::Off => "off",
        Power::Paused(_) => "paused",
        Power::Broken(_) => "broken",
    }
}

/// When the installer made the files that are used now.
pub fn made_at(journal: &[Entry]) -> Option<Timestamp> {
    let done = |entry: &&Entry| entry.event == Event::Done && entry.step == "assets";
    let last = journal.iter().rfind(done).filter(|_| is_done(journal, "assets"))?;
    last.output.get("made_at")?.as_str()?.parse().ok()
}

/// Where the last run got to.
fn phase(journal: &[Entry]) -> String {
    let Some(last) = journal.iter().rfind(|entry| entry.event != Event::Forgotten) else {
        return "nothing was done yet".to_owned();
    };
    match last.event {
        _ if is_done(journal, "install-complete") => "complete".to_owned(),
        // The first line says what happened; the rest, such as a console's text, is in the journal.
        Event::Failed => format!(
            "failed at {}: {}",
            last.step,
            last.error.lines().next().unwrap_or_default()
        ),
        Event::Done if last.step == "pass-one/gone" => "pass one is done".to_owned(),
        Event::Begun => format!("at {}, or stopped there", last.step),
        _ => format!("after {}, or stopped there", last.step),
    }
}

/// Whether a step was done and not forgotten since.
pub(super) fn is_done(journal: &[Entry], step: &str) -> bool {
    let told = journal.iter().rev().find(|entry| match entry.event {
        Event::Done => entry.step == step,
        Event::Forgotten => Event::forgets(&entry.step, step),
        _ => false,
    });
    told.is_some_and(|entry| entry.event == Event::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::SeenNic;
    use crate::inventory::Known;
    use crate::parameters::Parameters;

    fn cluster() -> Cluster {
        let known = serde_json::json!({
            "v": 1, "name": "lab", "domain": "example.com", "rehearsal": true,
            "backend": { "sim": { "state": "/sim.json" } },
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

    fn machine(pass: Pass, node: &str, role: Role, mac: u8, power: Power, ips: &[&str]) -> Machine {
        Machine {
            name: MachineName::from_platform(&format!("lab-{node}")),
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

    fn entry(event: Event, step: &str, error: &str) -> Entry {
        Entry {
            v: 1,
            seq: 1,
            time: jiff::Timestamp::UNIX_EPOCH,
            event,
            step: step.to_owned(),
            input: String::new(),
            output: serde_json::Value::Null,
            error: error.to_owned(),
        }
    }

    #[test]
    fn each_node_is_judged_by_its_planned_address() {
        let machines = [
            // A node with a VIP on it shows two addresses.
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
        insta::assert_snapshot!(Status::of(&cluster(), &journal, &machines).text(), @r"
        cluster lab.example.com on sim, a rehearsal
        phase   failed at install-complete: waited too long
        network default

        VIP      MAC                IP               VRID
        api      52:54:00:00:00:c8  192.168.122.200  200
        ingress  52:54:00:00:00:c9  192.168.122.201  201

        NODE       MAC                PLANNED         SEEN                            POWER    STATE
        bootstrap  52:54:00:00:00:0a  192.168.122.10  -                               -        removed
        master-0   52:54:00:00:00:0b  192.168.122.11  192.168.122.11,192.168.122.200  running  ok
        master-1   52:54:00:00:00:0c  192.168.122.12  192.168.122.99                  running  moved
        master-2   52:54:00:00:00:0d  192.168.122.13  -                               paused   paused: no KVM
        worker-0   52:54:00:00:00:0e  192.168.122.14  -                               running  runs, but has no lease
        worker-1   52:54:00:00:00:0f  192.168.122.15  -                               -        missing
        worker-7   52:54:00:00:00:4d  -               192.168.122.77                  running  not planned

        machines of pass one:
          lab-harvest-worker-1
        ");
    }

    #[test]
    fn a_forgotten_step_is_not_done() {
        let mut journal = vec![entry(Event::Done, "install-complete", "")];
        assert_eq!(phase(&journal), "complete");
        journal.push(entry(Event::Forgotten, "", ""));
        journal.push(entry(Event::Begun, "pass-one/create", ""));
        assert_eq!(phase(&journal), "at pass-one/create, or stopped there");
        assert_eq!(phase(&[]), "nothing was done yet");
    }
}
