//! What is looked at before anything is made.

use std::collections::BTreeSet;

use anyhow::Result;
use serde::Serialize;
use tracing::info;

use super::complete::refuse_changes;
use super::{DeployOptions, PassError, fragments};
use crate::PROGRESS;
use crate::addresses::{vip_problem, vip_taken};
use crate::backend::{Backend, Carrier, Finding, NetworkFacts, Verdict};
use crate::cluster::{ClusterConfig, Dns, Harvest, Lb, Lease, Mac, Mcs, NodeName, Role, Vip, platform_names};
use crate::home::Home;
use crate::ignition;
use crate::inventory::{self, Known};
use crate::journal::{self, Entry};
use crate::lan;
use crate::machines;

/// One thing that was looked at, and under which name a person finds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Looked {
    pub check: &'static str,
    #[serde(flatten)]
    pub finding: Finding,
}

impl Looked {
    /// Puts findings under one name.
    pub fn at(check: &'static str) -> impl Fn(Finding) -> Self {
        move |finding| Self { check, finding }
    }
}

/// Looks at everything that can be looked at before anything is made.
pub async fn check<B: Backend>(
    backend: &B,
    config: &ClusterConfig,
    home: &Home,
    options: DeployOptions,
) -> Result<NetworkFacts> {
    info!(target: PROGRESS, step = "checks", "looking at {} before anything is made", platform_names(&config.backend, config.workers_on.as_ref()));
    let (facts, looked) = look_around(backend, config, home, options).await?;
    let mut findings: Vec<Finding> = looked.into_iter().map(|looked| looked.finding).collect();
    for finding in &findings {
        if finding.verdict == Verdict::Warn {
            tracing::warn!(target: PROGRESS, step = "checks", "{}", finding.text);
        }
    }
    findings.retain(|finding| finding.verdict == Verdict::Fail);
    match facts {
        Some(facts) if findings.is_empty() => Ok(facts),
        _ => Err(PassError::Preflight { findings }.into()),
    }
}

/// What settings, platform and network show. The network stays unknown where the platform will not do and does not know it.
pub(super) async fn look_around<B: Backend>(
    backend: &B,
    config: &ClusterConfig,
    home: &Home,
    options: DeployOptions,
) -> Result<(Option<NetworkFacts>, Vec<Looked>)> {
    let mut looked = Vec::new();
    let own = fragments::read(config)?;
    let warnings = ignition::node::check_fragments(&own)?;
    looked.extend(warnings.into_iter().map(warn).map(Looked::at("ignition")));
    fragments::refuse_too_large(config, &own, |role| backend.limits_for(role).carrier)?;
    let clusters = inventory::clusters(home)?;
    let known = clusters.iter().find(|cluster| cluster.known.name == config.name);
    if let Some(known) = known {
        refuse_other_cluster(config, &known.known)?;
        let journal = journal::read(&home.cluster(&config.name).journal())?;
        refuse_other_kind(backend, config, &known.known, &journal).await?;
        refuse_changes(config, known, &journal, options)?;
    }
    let parameters = known
        .and_then(|cluster| cluster.parameters.as_ref())
        .filter(|_| !options.harvest_again);
    if let Some(what) = parameters.and_then(|parameters| machines::mismatch(config, parameters)) {
        return Err(PassError::Mismatch {
            cluster: config.name.clone(),
            what,
        }
        .into());
    }
    let macs = machines::macs(config, &Default::default());
    let one = if config.harvest == Harvest::Boot {
        machines::pass_one(config, &macs)
    } else {
        Vec::new()
    };
    let two = machines::pass_two(config, &macs, parameters);
    let found = backend.preflight(&machines::needs(config, &one, &two)).await?;
    looked.extend(found.into_iter().map(Looked::at("platform")));
    let facts = match look(backend, config).await {
        Ok(facts) => facts,
        // A platform that will not do may well not know the network.
        Err(_) if looked.iter().any(|looked| looked.finding.verdict == Verdict::Fail) => return Ok((None, looked)),
        Err(error) => return Err(error),
    };
    let neighbours = inventory::neighbours(&clusters, &facts.identity, &config.id());
    let table = known.and_then(|cluster| cluster.parameters.as_ref());
    let own = machines::vip_macs(&macs, table);
    let mut findings = given_vip_findings(config, &facts, &neighbours, backend.limits().holds_addresses, &own);
    findings.extend(given_router_id_finding(config, &neighbours));
    match parameters {
        Some(parameters) => findings.extend(neighbours.clashes(parameters).into_iter().map(fail)),
        None if backend.limits().guests_answer => findings.extend(answered_for(config).await),
        None => {}
    }
    looked.extend(findings.into_iter().map(Looked::at("addresses")));
    Ok((Some(facts), looked))
}

/// What is known of the cluster's network.
pub(super) async fn look<B: Backend>(backend: &B, config: &ClusterConfig) -> Result<NetworkFacts> {
    let mut facts = backend.look_at_network(&config.network).await?;
    facts.cidr = facts.cidr.or(config.given.machine_network);
    Ok(facts)
}

/// The carrier with the least room for a node's config.
pub(super) fn carrier<B: Backend>(backend: &B) -> Carrier {
    let [masters, workers] = [Role::Master, Role::Worker].map(|role| backend.limits_for(role).carrier);
    match (masters.room(), workers.room()) {
        (Some(masters_room), Some(workers_room)) if workers_room < masters_room => workers,
        (None, Some(_)) => workers,
        _ => masters,
    }
}

/// The configuration with its way to the machine config server decided.
pub(super) fn settled(config: &ClusterConfig, facts: &NetworkFacts, carrier: Carrier) -> ClusterConfig {
    let dns_knows = facts.answers_dns || config.dns == Dns::User;
    let mcs = config.mcs.settled(dns_knows, carrier.room());
    if config.mcs == Mcs::Auto && mcs == Mcs::Http {
        let reason = "the network's DNS does not know api-int, and a rendered config is too large for";
        let clear = "secrets travel in clear";
        tracing::warn!(target: PROGRESS, step = "checks", "mcs=http, for {reason} {}: {clear}", carrier.name);
    }
    ClusterConfig { mcs, ..config.clone() }
}

fn fail(text: String) -> Finding {
    Finding {
        verdict: Verdict::Fail,
        text,
        hint: None,
    }
}

fn warn(text: impl ToString) -> Finding {
    Finding {
        verdict: Verdict::Warn,
        text: text.to_string(),
        hint: None,
    }
}

/// Addresses of the settings that something on the network answers for, before this cluster has any machine.
async fn answered_for(config: &ClusterConfig) -> Vec<Finding> {
    let mut leases = machines::static_leases(config, &machines::macs(config, &Default::default()));
    if config.lb == Lb::User {
        // The user's balancer has the VIPs already.
        leases.retain(|lease| Vip::ALL.iter().all(|vip| lease.name != NodeName::vip(*vip)));
    }
    let addresses: BTreeSet<_> = leases.iter().map(|lease| lease.ip).collect();
    let answering = lan::answering(&Vec::from_iter(addresses)).await;
    let finding = |lease: &Lease| {
        let who = match answering.get(&lease.ip)? {
            Some(mac) => mac.to_string(),
            None => "something".to_owned(),
        };
        Some(fail(format!(
            "{} {} is in use: {who} answers for it",
            lease.name, lease.ip
        )))
    };
    leases.iter().filter_map(finding).collect()
}

/// A rehearsal and a real cluster never share a name. Where nothing was begun and no machine is there, it is neither: its
/// addresses were kept.
pub(super) async fn refuse_other_kind<B: Backend>(
    backend: &B,
    config: &ClusterConfig,
    known: &Known,
    journal: &[Entry],
) -> Result<()> {
    if known.rehearsal == config.is_rehearsal() {
        return Ok(());
    }
    if !journal::has_steps(journal) && backend.list_machines(&known.id()).await?.is_empty() {
        return Ok(());
    }
    let (cluster, rehearsal) = (known.name.clone(), known.rehearsal);
    Err(PassError::OtherKind { cluster, rehearsal }.into())
}

pub(super) fn refuse_other_cluster(config: &ClusterConfig, known: &Known) -> Result<(), PassError> {
    let what = if known.domain != config.domain {
        format!("domain {}", known.domain)
    } else if known.backend != config.backend {
        format!("other settings of backend {}", known.backend.name())
    } else if known.workers_on != config.workers_on {
        format!("another place of its workers: it is on {}", known.platforms())
    } else {
        return Ok(());
    };
    Err(PassError::OtherCluster {
        cluster: config.name.clone(),
        what,
    })
}

fn given_vip_findings(
    config: &ClusterConfig,
    facts: &NetworkFacts,
    neighbours: &inventory::Neighbours,
    can_hold: bool,
    own: &BTreeSet<Mac>,
) -> Vec<Finding> {
    let problem = |vip| {
        let ip = machines::given_vip(config, vip)?;
        if let Some(problem) = vip_problem(vip, ip, facts, can_hold, &neighbours.addresses) {
            return Some(fail(problem));
        }
        // The user's balancer has them already.
        let taken = vip_taken(vip, ip, facts, own).filter(|_| config.lb != Lb::User)?;
        let hint = format!("give another {vip}_ip, or have it given back: it is never taken from who has it");
        Some(Finding {
            hint: Some(hint),
            ..fail(taken)
        })
    };
    Vip::ALL.into_iter().filter_map(problem).collect()
}

fn given_router_id_finding(config: &ClusterConfig, neighbours: &inventory::Neighbours) -> Option<Finding> {
    let id = config.given.virtual_router_id?;
    let owner = neighbours.virtual_router_ids.get(&id)?;
    Some(fail(format!("virtual_router_id {id} belongs to {owner}")))
}
