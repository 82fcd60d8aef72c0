//! Recreates the lost record of a cluster from its objects on the platform, or completes an outdated one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::{Context, Result};
use tracing::info;

use super::check;
use super::deployments::{DeploymentOnPlatform, deployments_of, env_word};
use super::error::{no_range, no_router_id, preflight, refuse};
use super::one::external_vips;
use super::reserve::HOLD;
use crate::PROGRESS;
use crate::backend::platforms::Platforms;
use crate::backend::{Finding, Machine, ReservationState};
use crate::cluster::{AddressAssignment, ClusterConfig, ClusterId, DeploymentId, Lb, Mac, NodeName, Pass, Role, Vip};
use crate::error::{ErrorKind, OperationError};
use crate::plan::addresses::{self, free_addresses, preferred_router_id, virtual_router_ids};
use crate::plan::machines::{self, MacTable};
use crate::plan::mismatch::mismatch;
use crate::state::home::Home;
use crate::state::inventory::{self, Known};
use crate::state::journal::{BOOTSTRAP_REMOVED, INSTALLED, Journal, SCALED};
use crate::state::parameters::{NodeAddress, Parameters, ParametersError};

/// A cluster with a new record.
pub struct Adopted {
    pub table: Parameters,
    /// What is not available from the platform, and the consequences.
    pub missing: Vec<String>,
}

/// Writes the record of an installed cluster: its identity, its table, and that it is installed. `config` has the id of
/// the deployment.
///
/// Nothing on the platform is changed. A deployment that is not complete cannot be adopted: the installer's files, with
/// the cluster's keys, were only in its record.
pub async fn adopt(backend: &Platforms, config: &ClusterConfig, home: &Home) -> Result<Adopted> {
    info!(target: PROGRESS, step = "adopt", "reading the machines and addresses of {}", config.id());
    let machines = backend.list_machines(&config.id()).await?;
    let nodes: Vec<&Machine> = machines.iter().filter(|machine| machine.pass == Pass::Two).collect();
    if nodes.iter().any(|machine| machine.role == Role::Bootstrap) || nodes.is_empty() {
        let domain = config.cluster_domain();
        let id = &config.deployment.id;
        return Err(refused(
            format!(
                "the deployment of cluster {domain} with id {id} is not complete, and cannot be continued without its record"
            ),
            &format!(
                "import its record with `ocpdeploy state import FILE`; without it, `ocpdeploy destroy {domain} \
                 --from-backend --id {id} --env {}` shows its objects and asks",
                env_word(config)
            ),
        ));
    }
    let facts = check::look(backend, config).await?;
    let reserved = backend.list_reservations(&config.id()).await?;
    let reserved: Vec<&AddressAssignment> = reserved.iter().map(|reserved| &reserved.assignment).collect();
    let macs = machines::macs(config, &Default::default());
    let mut missing = Vec::new();
    let mut table = Vec::new();
    for machine in &nodes {
        table.push(node_of(machine, &reserved)?);
    }
    let vip = |vip: Vip| {
        let name = NodeName::vip(vip);
        if let Some(lease) = reserved.iter().find(|lease| lease.name == name) {
            return Ok((*lease).clone());
        }
        // Both VIPs may be one address, which has one reservation.
        let ip = config.given.vip(vip).or(reserved
            .iter()
            .find(|lease| Vip::ALL.iter().any(|other| lease.name == NodeName::vip(*other)))
            .map(|lease| lease.ip));
        let unknown = || {
            let text = format!("the platform does not know the virtual IP {vip}");
            refused(
                text,
                &format!("set {vip}_ip in the env file, then run the same command again"),
            )
        };
        let mac = macs
            .get(&name)
            .copied()
            .with_context(|| format!("derive the MAC of {name}"))?;
        Ok::<_, anyhow::Error>(AddressAssignment {
            ip: ip.ok_or_else(unknown)?,
            name,
            mac,
        })
    };
    let vips @ [api, ingress] = &[vip(Vip::Api)?, vip(Vip::Ingress)?];
    let neighbours = inventory::neighbours(&inventory::clusters(home)?, &facts.identity, &config.cluster_domain());
    let range = config.given.machine_network.or(facts.cidr);
    let range = range.ok_or_else(|| no_range(&config.network))?;
    table.push(bootstrap(
        config,
        &macs,
        free_addresses(range, &facts, &neighbours.addresses),
        &table,
        vips,
    ));
    table.sort_by_key(|node| (node.role, node.name.number(), node.name.clone()));
    let wishes = [
        config
            .given
            .api_virtual_router_id
            .unwrap_or(preferred_router_id(api.ip)),
        preferred_router_id(ingress.ip),
    ];
    let ids = virtual_router_ids(wishes, &neighbours.virtual_router_ids.keys().copied().collect());
    let mut parameters = Parameters::new(
        &config.name,
        &config.domain,
        config.backend.name(),
        &config.network,
        &facts,
        range,
        config.harvest,
        vips.clone(),
        ids.ok_or_else(|| no_router_id(&config.network))?,
        table,
    );
    parameters.tenant.clone_from(&config.tenant);
    let addresses = [api, ingress].map(|vip| Some(vip.ip));
    parameters.external_vips = external_vips(backend, config, addresses, false).await?;
    parameters.ipv6 = addresses::ipv6_table(config, &facts, [api.ip, ingress.ip]);
    let settings = config.with_workers_of(parameters.nodes.iter().map(|node| &node.name));
    if let Some(what) = mismatch(&settings, &parameters) {
        let text = format!("the settings do not match the cluster: {what}");
        return Err(refused(text, "correct the env file, then run the same command again"));
    }
    if config.lb == Lb::Keepalived {
        missing.push(format!(
            "the VRRP ids, assumed to be {} and {}, and the VRRP password, which the nodes have",
            parameters.router_id(Vip::Api),
            parameters.router_id(Vip::Ingress)
        ));
    }
    missing.push("the installer's files, without which nodes cannot be added or replaced".to_owned());
    missing.push("external nodes, whose machines are not on the platform".to_owned());
    let held = reserved
        .iter()
        .map(|lease| (lease.name.clone(), ReservationState::ByPlatform));
    record(&settings, home, &parameters, &held.collect())?;
    Ok(Adopted {
        table: parameters,
        missing,
    })
}

fn refused(text: String, hint: &str) -> anyhow::Error {
    preflight(vec![Finding::fail(text).hint(hint)]).into()
}

/// The table's line for a machine, with its address: the reserved one, otherwise the only one that it shows.
fn node_of(machine: &Machine, reserved: &[&AddressAssignment]) -> Result<NodeAddress> {
    let address = || {
        let nic = machine.nics.first()?;
        let is_its_own = |lease: &&&AddressAssignment| lease.name == machine.node && lease.mac == nic.mac;
        match (reserved.iter().find(is_its_own), nic.addresses.as_slice()) {
            (Some(lease), _) => Some((nic.mac, lease.ip)),
            (None, [ip]) => Some((nic.mac, *ip)),
            (None, _) => None,
        }
    };
    let unknown = || {
        let text = format!("the address of machine {} is unknown", machine.name);
        refused(
            text,
            "start the machine on the platform, then run the same command again",
        )
    };
    let (mac, ip) = address().ok_or_else(unknown)?;
    Ok(NodeAddress {
        name: machine.node.clone(),
        role: machine.role,
        mac,
        ip,
        evidence: None,
    })
}

/// The table's line for the bootstrap, which was deleted and has no address any longer: each planned node needs a line.
fn bootstrap(
    config: &ClusterConfig,
    macs: &MacTable,
    free: BTreeSet<IpAddr>,
    nodes: &[NodeAddress],
    vips: &[AddressAssignment; 2],
) -> NodeAddress {
    let is_used = |ip: &IpAddr| nodes.iter().any(|node| node.ip == *ip) || vips.iter().any(|vip| vip.ip == *ip);
    let name = NodeName::bootstrap();
    NodeAddress {
        mac: macs.get(&name).copied().unwrap_or(Mac([0; 6])),
        ip: config
            .given
            .bootstrap_ip
            .or_else(|| free.into_iter().find(|ip| !is_used(ip)))
            .unwrap_or(vips[0].ip),
        name,
        role: Role::Bootstrap,
        evidence: None,
    }
}

fn record(
    config: &ClusterConfig,
    home: &Home,
    table: &Parameters,
    held: &BTreeMap<NodeName, ReservationState>,
) -> Result<()> {
    let dir = home.cluster(&config.name);
    let journal = Journal::open(&dir, &config.name)?;
    let (known, to) = (Known::of(config), dir.clone());
    journal.at_first_line(move || Ok(known.write(&to)?));
    journal.note("adopted", &config.id())?;
    table.write(&dir.parameters())?;
    journal.note(HOLD, held)?;
    // As `deploy` records them, so that a machine that is missing later counts as deleted, not as never created.
    for node in table.nodes.iter().filter(|node| node.role != Role::Bootstrap) {
        journal.note(&format!("pass-two/create/{}", node.name), &())?;
    }
    journal.note(BOOTSTRAP_REMOVED, &())?;
    // The settings of the installation are unknown, so `deploy` has nothing to compare.
    journal.note(SCALED, &())?;
    journal.note(INSTALLED, &())
}

/// The workers of a deployment on the platform that its table lacks: another computer has added them since this record
/// was written. Machines that do not have the deployment's full tag are not listed.
pub(super) async fn unrecorded(
    backend: &Platforms,
    cluster: &ClusterId,
    table: &Parameters,
    machines: &[Machine],
) -> Result<Vec<NodeAddress>> {
    let is_unrecorded = |machine: &&Machine| {
        machine.pass == Pass::Two && machine.role == Role::Worker && table.node(&machine.node).is_none()
    };
    let mut machines = machines.iter().filter(is_unrecorded).peekable();
    if machines.peek().is_none() {
        return Ok(Vec::new());
    }
    let reserved = backend.list_reservations(cluster).await?;
    let reserved: Vec<&AddressAssignment> = reserved.iter().map(|reserved| &reserved.assignment).collect();
    let mut nodes: Vec<NodeAddress> = machines
        .map(|machine| node_of(machine, &reserved))
        .collect::<Result<_>>()?;
    nodes.sort_by_key(|node| (node.name.number(), node.name.clone()));
    Ok(nodes)
}

/// Adds these nodes to the table of a cluster, as `scale` does.
pub(super) fn record_nodes(
    home: &Home,
    journal: &Journal,
    table: &mut Parameters,
    nodes: &[NodeAddress],
) -> Result<()> {
    let _allocation = inventory::allocate(home)?;
    table.nodes.extend_from_slice(nodes);
    let clusters = inventory::clusters(home)?;
    let neighbours = inventory::neighbours(&clusters, &table.network_identity, &table.cluster_domain());
    refuse(neighbours.clashes(table).into_iter().map(Finding::fail).collect())?;
    table
        .write(&home.cluster(&table.cluster).parameters())
        .map_err(|error| match error {
            ParametersError::Content { problem, .. } => {
                let text = format!(
                    "cannot add workers to the table of cluster {}: {problem}",
                    table.cluster
                );
                OperationError::new(ErrorKind::Tool, text)
                    .hint("import the newer record with `ocpdeploy state import FILE --replace`")
                    .into()
            }
            other => anyhow::Error::from(other),
        })?;
    for node in nodes {
        journal.note(&format!("pass-two/create/{}", node.name), &())?;
    }
    match journal.done_at(SCALED) {
        Some(_) => Ok(()),
        None => journal.note(SCALED, &()),
    }
}

/// The deployment of a cluster on the platform: the one with this id, or the only one.
pub async fn adoptable(
    backend: &Platforms,
    config: &ClusterConfig,
    id: Option<&DeploymentId>,
) -> Result<DeploymentOnPlatform> {
    let domain = config.cluster_domain();
    let found = deployments_of(backend, &domain).await?;
    let is_chosen = |deployment: &&DeploymentOnPlatform| id.is_none_or(|id| deployment.id.deployment() == id);
    match (
        found.iter().filter(is_chosen).collect::<Vec<_>>().as_slice(),
        found.as_slice(),
    ) {
        ([one], _) if one.creation.is_some() && one.is_rehearsal() != config.is_rehearsal() => {
            let kind = if one.is_rehearsal() {
                "a rehearsal"
            } else {
                "a real cluster"
            };
            let text = format!(
                "the deployment of cluster {domain} with id {} is {kind}",
                one.id.deployment()
            );
            Err(refused(text, &format!("`{}`", one.adopt_command(&env_word(config)))))
        }
        ([one], _) => Ok((*one).clone()),
        (_, []) => Err(refused(
            format!("no objects of cluster {domain} on {}", config.backend.place()),
            &format!(
                "`ocpdeploy audit --env {}` lists the clusters on the platform",
                env_word(config)
            ),
        )),
        (_, several) => {
            let all: Vec<String> = several.iter().map(DeploymentOnPlatform::summary).collect();
            let text = format!(
                "the platform has these deployments of cluster {domain}: {}",
                all.join("; ")
            );
            Err(refused(text, "select one with --id ID"))
        }
    }
}
