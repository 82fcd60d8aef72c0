//! The report: a self-contained page about one cluster, without scripts or network access.
//!
//! A pure function of the cluster's directory and one query of its machines. The template escapes all values as text.
//!
//! More than 500 lines: the values of one template.

mod timeline;
mod topology;
mod views;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::state::{Progress, State};
use super::status::{NodeStatus, Status, Verdict};
use crate::backend::{Machine, ReservationState};
use crate::cluster::{Dhcp, Dns, Lb, NodeName, Pass, Role, Vip};
use crate::openshift::installer::NodeReport;
use crate::openshift::wait::clock::{Certificates, Clock};
use crate::passes::{CarrierLimit, EffectiveSettings};
use crate::printable::{count, printable_text};
use crate::state::durations::{self, Deployment, Estimate};
use crate::state::inventory::Cluster;
use crate::state::journal::{self, Entry, Event, Holder, INSTALLED};
use crate::templates::{TemplateError, render_html};
use timeline::Timeline;
use topology::{Circle, Picture};
use views::{Look, NodeView, VipView};

/// The inputs of a report.
pub struct Input<'a> {
    pub cluster: &'a Cluster,
    pub journal: &'a [Entry],
    pub holder: Option<Holder>,
    /// `Err`: why the platform cannot list its machines.
    pub machines: Result<&'a [Machine], String>,
    /// From the cluster's log.
    pub warnings: &'a [Warning],
    pub now: Timestamp,
    /// The deployments that are known, this one included.
    pub deployments: &'a [Deployment],
}

/// A warning in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    pub time: String,
    pub text: String,
}

/// The values of the template.
#[derive(Debug, Serialize)]
struct Page<'a> {
    css: &'static str,
    title: String,
    deployment: String,
    platforms: String,
    rehearsal: bool,
    state: State,
    state_text: String,
    phase: String,
    now: String,
    network: Option<Network>,
    certificates: Option<String>,
    vips: Vec<VipView>,
    duties: Vec<Duty>,
    nodes: Vec<NodeView>,
    /// Networks of the nodes' additional NICs.
    further: Vec<String>,
    nics: Vec<NicView>,
    counts: String,
    same: usize,
    planned: usize,
    pictures: Vec<Picture>,
    picture_text: String,
    timeline: Timeline,
    /// Phase, its time, the usual and the best one of the other deployments.
    phases: Vec<[String; 4]>,
    ignition: Vec<Size>,
    not_asked: Option<String>,
    failures: Vec<Warning>,
    warnings: &'a [Warning],
    versions: Vec<[String; 2]>,
}

#[derive(Debug, Serialize)]
struct Network {
    name: String,
    range: String,
    gateway: String,
    resolvers: String,
    identity: String,
    harvest: &'static str,
}

/// What provides a service of the cluster.
#[derive(Debug, Serialize)]
struct Duty {
    what: &'static str,
    who: String,
}

/// An additional NIC of a node, as reported by the platform.
#[derive(Debug, Serialize)]
struct NicView {
    node: String,
    network: String,
    mac: String,
    addresses: String,
}

/// The Ignition configs of one role.
#[derive(Debug, Serialize)]
struct Size {
    role: Role,
    carrier: String,
    limit: String,
    largest: String,
    /// Percentage of the limit; `None` without one.
    percent: Option<usize>,
    note: String,
    nodes: Vec<[String; 2]>,
}

#[derive(Deserialize)]
struct Config {
    bytes: usize,
    #[serde(default)]
    packed: bool,
}

/// The page.
pub fn page(input: &Input<'_>) -> Result<String, TemplateError> {
    let page = Page::of(input);
    let page = render_html("report.html", include_str!("templates/report.html"), &page)?;
    // Characters that are hidden in a browser are shown as well: a name could reverse the following text.
    Ok(printable_text(&page))
}

impl<'a> Page<'a> {
    fn of(input: &Input<'a>) -> Self {
        let known = &input.cluster.known;
        let journal = input.journal;
        let parameters = input.cluster.parameters.as_ref();
        let machines = input.machines.as_ref().copied().unwrap_or_default();
        let mut status = Status::of(input.cluster, journal, input.holder.clone(), machines);
        if input.machines.is_err() {
            status.progress = Progress::of(input.cluster, journal, input.holder.as_ref(), None);
        }
        let chosen: Option<EffectiveSettings> = journal::output(journal, EffectiveSettings::STEP);
        let held: BTreeMap<NodeName, ReservationState> = journal::output(journal, "pass-one/hold").unwrap_or_default();
        let nodes = nodes(input, &status, &held);
        let vips = vips(input, chosen.as_ref(), &held);
        let workers_on = known.workers_on.as_ref().map(|on| {
            let some = on.only.join(", ");
            let some = if some.is_empty() { some } else { format!(", {some}") };
            format!("{some} on {}", on.name_beside(&known.backend))
        });
        let circles = circles(&nodes, workers_on.as_deref());
        let nics = nics(input);
        let mut further = chosen
            .as_ref()
            .map_or(Vec::new(), |chosen| chosen.extra_networks.clone());
        if further.is_empty() {
            for nic in &nics {
                if !further.contains(&nic.network) {
                    further.push(nic.network.clone());
                }
            }
        }
        let pictures = match nodes.is_empty() {
            true => Vec::new(),
            false => vec![
                topology::wide(&vips, &circles, &further),
                topology::narrow(&vips, &circles, &further),
            ],
        };
        let mut names: Vec<(NodeName, Role)> = Vec::new();
        if let Some(parameters) = parameters {
            names.extend(parameters.nodes.iter().map(|node| (node.name.clone(), node.role)));
            names.extend(Vip::ALL.map(|vip| (NodeName::vip(vip), Role::Helper)));
        }
        let running = input.holder.is_some().then_some(input.now);
        let of_role = |role| nodes.iter().filter(|node| node.role == role).count();
        let network = parameters.map(|parameters| Network {
            name: parameters.network.clone(),
            range: parameters.machine_network.to_string(),
            gateway: parameters.gateway.map_or("none".to_owned(), |ip| ip.to_string()),
            resolvers: list(&parameters.resolvers),
            identity: parameters.network_identity.clone(),
            harvest: match parameters.harvest {
                crate::cluster::Harvest::Boot => "learned from temporary machines",
                crate::cluster::Harvest::Reserve => "assigned by the platform",
                crate::cluster::Harvest::Static => "set in the env file",
            },
        });
        let made_at = super::status::made_at(journal).filter(|_| !known.rehearsal);
        Self {
            css: include_str!("templates/report.css"),
            title: known.cluster_domain().to_string(),
            deployment: format!("{}, begun by {}", known.deployment.id, known.deployment.creation),
            platforms: known.platforms(),
            rehearsal: known.rehearsal,
            state: status.progress.state,
            state_text: status.progress.text(),
            phase: status.progress.phase.clone(),
            now: format!("{:.0}", input.now),
            network,
            certificates: made_at.map(|at| Clock::at(input.now, at, Certificates::default()).text()),
            duties: duties(chosen.as_ref(), &held),
            counts: [Role::Master, Role::Arbiter, Role::Worker]
                .into_iter()
                .map(|role| (role, of_role(role)))
                .filter(|(role, number)| *role != Role::Arbiter || *number > 0)
                .map(|(role, number)| count(number, &role.to_string()))
                .collect::<Vec<_>>()
                .join(" + "),
            same: nodes.iter().filter(|node| node.look == Look::Same).count(),
            // Nodes that were not seen count as well. External nodes do not: their machines are not on the platform.
            planned: status.nodes.iter().filter(|node| is_expected(node)).count(),
            picture_text: picture_text(&vips, &circles, &further),
            pictures,
            further,
            nics,
            timeline: Timeline::of(journal, &names, running),
            phases: phases(input),
            ignition: ignition(journal, &nodes, chosen.as_ref()),
            not_asked: input.machines.as_ref().err().cloned(),
            failures: failures(journal),
            warnings: input.warnings,
            versions: versions(input, chosen.as_ref()),
            vips,
            nodes,
        }
    }
}

/// The phases of this deployment that have ended, beside those of the others on the same platform.
fn phases(input: &Input<'_>) -> Vec<[String; 4]> {
    let known = &input.cluster.known;
    let id = known.cluster_domain().to_string();
    let is_installed = |entry: &&Entry| entry.event == Event::Done && entry.step == INSTALLED;
    let installed = input.journal.iter().rfind(is_installed).map(|entry| entry.time);
    let others = input.deployments.iter();
    let others = others.filter(|one| one.cluster != id || Some(one.installed) != installed);
    let others: Vec<Deployment> = others.cloned().collect();
    let table = input.cluster.parameters.iter().flat_map(|table| &table.nodes);
    let kind = durations::Kind {
        backend: known.backend.name(),
        rehearsal: known.rehearsal,
        nodes: table.filter(|node| node.role != Role::Bootstrap).count(),
    };
    let estimate = Estimate::of(&others, kind);
    let time = |time: Option<Duration>| time.map_or("unknown".to_owned(), durations::about);
    durations::phases(input.journal)
        .into_iter()
        .map(|(phase, took)| {
            let took = Some(Duration::from_millis(took));
            [
                phase.to_string(),
                time(took),
                time(estimate.usual(phase)),
                time(estimate.best(phase)),
            ]
        })
        .collect()
}

fn nodes(input: &Input<'_>, status: &Status, held: &BTreeMap<NodeName, ReservationState>) -> Vec<NodeView> {
    let reports =
        ["bootstrap-complete", "install-complete"].map(|step| journal::output::<Vec<NodeReport>>(input.journal, step));
    let reports: Vec<NodeReport> = reports.into_iter().flatten().flatten().collect();
    let view = |node: &NodeStatus| {
        let report = reports.iter().find(|report| report.node == node.node);
        let noted = ["pass-two/create", "join"].map(|workflow| format!("{workflow}/{}/address", node.node));
        let noted = noted
            .iter()
            .find_map(|step| journal::output::<IpAddr>(input.journal, step));
        // The address that the node itself reported, otherwise the platform's report when the addresses were compared,
        // otherwise the current one.
        let at_deployment = report.map(|report| report.ip).or(noted);
        let mut seen = node.seen_ips.clone();
        if seen.is_empty() || node.verdict == Verdict::Ok {
            seen = at_deployment
                .or(node.planned_ip.filter(|_| node.verdict == Verdict::Ok))
                .into_iter()
                .collect();
        }
        let look = match node.planned_ip {
            _ if node.verdict == Verdict::Removed => Look::Removed,
            Some(planned) if seen.contains(&planned) && report.is_none_or(|report| report.mac == node.mac) => {
                Look::Same
            }
            Some(_) if !seen.is_empty() => Look::Other,
            _ => Look::Unknown,
        };
        NodeView {
            name: node.node.to_string(),
            role: node.role,
            mac: node.mac.to_string(),
            planned: super::or_nothing(node.planned_ip),
            seen: list(&seen),
            held: held_by(held.get(&node.node)),
            look,
            verdict: match look {
                Look::Same => "same",
                Look::Other => "moved",
                Look::Unknown => "not seen",
                Look::Removed => "removed",
            },
            state: match &input.machines {
                Ok(_) => node.text.clone(),
                Err(_) => "unknown".to_owned(),
            },
        }
    };
    status.nodes.iter().map(view).collect()
}

/// Whether a machine of the node should be seen with its planned address.
fn is_expected(node: &NodeStatus) -> bool {
    node.planned_ip.is_some() && !matches!(node.verdict, Verdict::Removed | Verdict::External)
}

fn nics(input: &Input<'_>) -> Vec<NicView> {
    let table = input.cluster.parameters.as_ref();
    let machines = input.machines.as_ref().copied().unwrap_or_default();
    let of_nodes = table.into_iter().flat_map(|table| &table.nodes).flat_map(|node| {
        let own = machines
            .iter()
            .filter(|machine| machine.pass == Pass::Two && machine.node == node.name);
        let nics = own.flat_map(|machine| &machine.nics);
        nics.filter(|nic| nic.mac != node.mac).map(|nic| NicView {
            node: node.name.to_string(),
            network: nic.network.clone(),
            mac: nic.mac.to_string(),
            addresses: match nic.addresses.as_slice() {
                [] => "none found".to_owned(),
                addresses => list(addresses),
            },
        })
    });
    of_nodes.collect()
}

fn vips(
    input: &Input<'_>,
    chosen: Option<&EffectiveSettings>,
    held: &BTreeMap<NodeName, ReservationState>,
) -> Vec<VipView> {
    let Some(parameters) = &input.cluster.parameters else {
        return Vec::new();
    };
    let lb = chosen.map(|chosen| chosen.lb);
    let view = |vip: Vip| {
        let id = parameters.router_id(vip);
        let ports = match vip {
            Vip::Api => "6443, 22623",
            Vip::Ingress => "80, 443",
        };
        let lease = parameters.vip(vip);
        let by = match lb {
            Some(Lb::User) => "your load balancer".to_owned(),
            Some(Lb::Platform) => "platform's load balancer".to_owned(),
            Some(Lb::Keepalived) | None => format!("VRID {id}"),
        };
        VipView {
            names: vip.to_string(),
            ip: match parameters.external_vips.of(vip) {
                Some(external) => format!("{} ({external})", lease.ip),
                None => lease.ip.to_string(),
            },
            mac: lease.mac.to_string(),
            id,
            held: held_by(held.get(&lease.name)),
            long: format!("ports {ports}, {by}"),
            short: by,
            ports,
        }
    };
    let [mut api, ingress] = Vip::ALL.map(view);
    if api.ip == ingress.ip {
        api.names = "api and ingress".to_owned();
        return vec![api];
    }
    vec![api, ingress]
}

fn held_by(held: Option<&ReservationState>) -> &'static str {
    match held {
        Some(ReservationState::ByPlatform) => "the platform",
        Some(ReservationState::ByUser) => "your DHCP server",
        Some(ReservationState::Static) => "the node's configuration",
        Some(ReservationState::Unreserved) => "not reserved",
        None => "",
    }
}

fn circles<'n>(nodes: &'n [NodeView], workers_on: Option<&str>) -> Vec<Circle<'n>> {
    let circle = |role: Role| {
        let nodes: Vec<&NodeView> = nodes.iter().filter(|node| node.role == role).collect();
        let name = match role {
            Role::Bootstrap => "Bootstrap",
            Role::Master => "Masters",
            Role::Arbiter => "Arbiter",
            Role::Worker | Role::Helper => "Workers",
        };
        let title = match (workers_on, role, nodes.as_slice()) {
            (Some(place), Role::Worker, _) => format!("{name}{place}"),
            (_, Role::Bootstrap, [one]) if one.state == "removed" => format!("{name}, removed"),
            _ => name.to_owned(),
        };
        (!nodes.is_empty()).then_some(Circle { role, title, nodes })
    };
    [Role::Master, Role::Arbiter, Role::Bootstrap, Role::Worker]
        .into_iter()
        .filter_map(circle)
        .collect()
}

fn picture_text(vips: &[VipView], circles: &[Circle<'_>], further: &[String]) -> String {
    let mut text = String::new();
    for vip in vips {
        text += &format!("{} is {}, {}. ", vip.names, vip.ip, vip.long);
    }
    for circle in circles {
        let nodes: Vec<_> = circle
            .nodes
            .iter()
            .map(|node| format!("{} {}", node.name, node.planned))
            .collect();
        text += &format!("{}: {}. ", circle.title, nodes.join(", "));
    }
    for (network, index) in further.iter().zip(0..) {
        text += &format!("Network {network}: {}. ", topology::nic_of_each(index));
    }
    text.trim_end().to_owned()
}

/// What forwards requests to the nodes, resolves names, and reserves addresses.
fn duties(chosen: Option<&EffectiveSettings>, held: &BTreeMap<NodeName, ReservationState>) -> Vec<Duty> {
    let Some(chosen) = chosen else {
        return Vec::new();
    };
    let routers: Vec<_> = chosen.routers.iter().map(|role| format!("{role}s")).collect();
    let routers = routers.join(" and ");
    let [api, ingress] = match chosen.lb {
        Lb::Keepalived => [
            "keepalived: the bootstrap holds the address until bootstrapping is complete, then one of the masters; haproxy there distributes requests to all masters".to_owned(),
            format!("keepalived: one of the nodes with a router ({routers}) holds the address and answers requests; if both virtual IPs are the same, haproxy forwards requests"),
        ],
        Lb::User => ["your load balancer".to_owned(), format!("your load balancer, to the {routers}")],
        Lb::Platform => ["the platform's load balancer".to_owned(), format!("the platform's load balancer, to the {routers}")],
    };
    let names = match chosen.dns {
        Dns::Dnsmasq => "dnsmasq on each node; forwards other names to the network's servers",
        Dns::Coredns => "CoreDNS on each node; forwards other names to the network's servers",
        Dns::User => "your name servers",
    };
    let by = |whom| held.values().filter(|held| **held == whom).count();
    let mut keepers = Vec::new();
    for (count, whom) in [
        (by(ReservationState::ByPlatform), "the platform"),
        (by(ReservationState::ByUser), "your DHCP server"),
        (by(ReservationState::Static), "each node's configuration"),
        (by(ReservationState::Unreserved), "not reserved"),
    ] {
        if count > 0 {
            keepers.push(format!("{whom} ({count})"));
        }
    }
    if keepers.is_empty() {
        match chosen.dhcp {
            Dhcp::Platform => {}
            Dhcp::User => keepers.push("your DHCP server".to_owned()),
            Dhcp::None => keepers.push("each node's configuration".to_owned()),
        }
    }
    let mut duties = vec![
        Duty { what: "API", who: api },
        Duty {
            what: "Routers",
            who: ingress,
        },
        Duty {
            what: "Names",
            who: names.to_owned(),
        },
        Duty {
            what: "First config",
            who: format!("mcs={}", word(&chosen.mcs)),
        },
    ];
    if !keepers.is_empty() {
        duties.push(Duty {
            what: "Addresses reserved by",
            who: keepers.join(", "),
        });
    }
    duties
}

fn ignition(journal: &[Entry], nodes: &[NodeView], chosen: Option<&EffectiveSettings>) -> Vec<Size> {
    let mut configs: BTreeMap<String, Config> = BTreeMap::new();
    let merges = journal
        .iter()
        .filter(|entry| entry.event == Event::Done && entry.step.split('/').next() == Some("merge"));
    for entry in merges {
        let merged = serde_json::from_value::<BTreeMap<String, Config>>(entry.output.clone());
        configs.extend(merged.unwrap_or_default());
    }
    let size = |role: Role| {
        let of_role: Vec<_> = nodes.iter().filter(|node| node.role == role).collect();
        let sizes: Vec<(&str, &Config)> = of_role
            .iter()
            .filter_map(|node| Some((node.name.as_str(), configs.get(&node.name)?)))
            .collect();
        let largest = sizes.iter().map(|(_, config)| config.bytes).max()?;
        let carrier: Option<&CarrierLimit> = chosen.and_then(|chosen| chosen.carriers.get(&role));
        let limit = carrier.and_then(|carrier| carrier.bytes);
        let fetched = carrier.is_some_and(|carrier| carrier.fetches) && limit.is_some_and(|limit| largest > limit);
        let packed = sizes.iter().filter(|(_, config)| config.packed).count();
        let note = match (fetched, packed) {
            (true, _) => "over the limit: the machine fetches it".to_owned(),
            (_, 0) => String::new(),
            (_, packed) => format!("{packed} compressed to fit"),
        };
        Some(Size {
            role,
            carrier: carrier.map_or("unknown".to_owned(), |carrier| carrier.name.clone()),
            limit: match (carrier, limit) {
                (_, Some(limit)) => bytes(limit),
                (Some(_), None) => "no limit".to_owned(),
                (None, None) => "unknown".to_owned(),
            },
            largest: bytes(largest),
            percent: limit
                .filter(|_| !fetched)
                .map(|limit| (largest * 100).div_ceil(limit.max(1))),
            note,
            nodes: sizes
                .iter()
                .map(|(name, config)| [(*name).to_owned(), bytes(config.bytes)])
                .collect(),
        })
    };
    [Role::Bootstrap, Role::Master, Role::Arbiter, Role::Worker]
        .into_iter()
        .filter_map(size)
        .collect()
}

/// Every failed step with its complete error, and the error of the last run if it failed between steps.
fn failures(journal: &[Entry]) -> Vec<Warning> {
    let failed: Vec<&Entry> = journal.iter().filter(|entry| entry.event == Event::Failed).collect();
    let warning = |entry: &&Entry| Warning {
        time: format!("{:.0}", entry.time),
        text: format!("{}: {}", entry.step, entry.error),
    };
    let of_run = journal::failure(journal);
    let of_run = of_run.filter(|(_, error)| failed.iter().all(|entry| !error.contains(&entry.error)));
    let of_run = of_run.map(|(time, text)| Warning {
        time: format!("{time:.0}"),
        text,
    });
    failed.iter().map(warning).chain(of_run).collect()
}

fn versions(input: &Input<'_>, chosen: Option<&EffectiveSettings>) -> Vec<[String; 2]> {
    let mut versions = vec![[
        "Report by".to_owned(),
        concat!("ocpdeploy ", env!("CARGO_PKG_VERSION")).to_owned(),
    ]];
    if let Some(chosen) = chosen {
        versions.push(["Deployed by".to_owned(), format!("ocpdeploy {}", chosen.program)]);
        versions.push(["Installer".to_owned(), chosen.installer.clone()]);
    }
    let done = |step: &str| {
        input
            .journal
            .iter()
            .rfind(|entry| entry.event == Event::Done && entry.step == step)
    };
    let images = done("release").and_then(|entry| entry.output.get("images")?.as_object().cloned());
    for (name, image) in images.unwrap_or_default() {
        versions.push([name, image.as_str().unwrap_or_default().to_owned()]);
    }
    versions
}

/// The keyword of a choice in the settings.
fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// `998 B`, `12.4 KB`, `1.2 MB`, in powers of 1000.
fn bytes(count: usize) -> String {
    match count {
        0..1000 => format!("{count} B"),
        1000..1_000_000 => format!("{:.1} KB", count as f64 / 1e3),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}
