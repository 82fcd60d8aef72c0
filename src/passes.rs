//! The story: two passes, from a checked configuration to a cluster, in straight lines.
//!
//! Every line that changes something is a journal step or bears being done again, so that running the
//! same command after any interruption goes on where it stopped.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::stream::{self, StreamExt, TryStreamExt};
use ipnetwork::Ipv4Network;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tracing::info;

use crate::addresses::{free_addresses, vip_problem, virtual_router_ids};
use crate::backend::{
    Backend, BackendError, BackendErrorKind, Finding, Held, Hold, ImageHandle, Machine, NetworkFacts, Owned, Payload,
    Verdict,
};
use crate::cluster::{ClusterConfig, ClusterId, Harvest, Lease, MachineName, NodeName, Pass, Role, Vip};
use crate::digest::sha512;
use crate::harvest::{Seen, Watch, judge};
use crate::home::Home;
use crate::ignition;
use crate::images;
use crate::installer::{Assets, Installer, NodeReport, WaitContext};
use crate::inventory::{self, Known};
use crate::journal::{self, Journal};
use crate::machines::{self, MacTable, Planned};
use crate::parameters::{NodeAddress, Parameters};
use crate::templates;

/// Target of the events that a person watches.
pub const PROGRESS: &str = "ocpdeploy::progress";

/// How a deployment is to be done.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeployOptions {
    /// Forget the parameter file and harvest anew.
    pub harvest_again: bool,
}

/// A deployment that ended well.
#[derive(Clone, Debug, Serialize)]
pub struct Deployed {
    pub parameters: Parameters,
    /// Pass one was not needed: the parameter file was there.
    pub skipped_pass_one: bool,
    /// One for each node, bootstrap first.
    pub rows: Vec<NodeRow>,
}

/// What was planned for a node in pass one and found in pass two.
#[derive(Clone, Debug, Serialize)]
pub struct NodeRow {
    pub planned: NodeAddress,
    pub held: Held,
    /// sha512 of the Ignition config written for the node, hex.
    pub ignition_sha512: String,
    pub ignition_bytes: usize,
    pub report: NodeReport,
}

/// Why the passes stopped, where it is neither a platform's refusal nor a tool's failure.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    #[error("{} found before anything was made:{}", count(findings.len(), "problem"), lines(findings))]
    Preflight { findings: Vec<Finding> },
    #[error("cluster {cluster} is known here with {what}")]
    OtherCluster { cluster: String, what: String },
    #[error("the parameter file of {cluster} does not fit the settings: {what}")]
    Mismatch { cluster: String, what: String },
    #[error("cluster {cluster} has machines of pass two; it cannot be harvested again under them")]
    Running { cluster: String },
    #[error("pass {pass}: {} of {total} without the expected address after {} s:{}", count(missing.len(), "machine"), waited.as_secs(), missing_lines(missing))]
    Addresses {
        pass: Pass,
        total: usize,
        waited: Duration,
        missing: Vec<Missing>,
    },
    #[error("pass two: {machine} has address {seen}, pass one found {planned}: {why}")]
    Moved {
        machine: MachineName,
        planned: Ipv4Addr,
        seen: String,
        why: &'static str,
    },
    #[error("no free VRRP id is left on network {network}")]
    NoRouterId { network: String },
    #[error("no free address is left on network {network} for {node}")]
    NoAddress { network: String, node: NodeName },
    #[error("network {network} does not tell its address range")]
    NoRange { network: String },
    #[error("the installer's files are {hours} hours old; the certificates in them last 24")]
    StaleAssets { hours: i64 },
    #[error("the Ignition config of {node} is {bytes} bytes, {carrier} carries {limit}")]
    TooLarge {
        node: NodeName,
        bytes: usize,
        carrier: &'static str,
        limit: usize,
    },
    #[error("{} not wanted to go:{}", count(left.len(), "thing"), owned_lines(left))]
    Leftovers { left: Vec<Owned> },
}

impl PassError {
    /// What a user can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Preflight { .. } => "mend these and run the same command again",
            Self::OtherCluster { .. } => "choose another cluster name, or destroy that cluster first",
            Self::Mismatch { .. } => "put the settings back, or run again with `--harvest` to harvest anew",
            Self::Running { .. } => "`ocpdeploy destroy CLUSTER`, then deploy again",
            Self::Addresses { .. } => {
                "the machines are kept: run the same command again to wait longer, or destroy the cluster"
            }
            Self::Moved { .. } => {
                "`ocpdeploy destroy CLUSTER` and deploy again, or reserve the planned address for this MAC"
            }
            Self::NoRouterId { .. } => "destroy a cluster that is not needed, or use another network",
            Self::NoAddress { .. } => "use another network, or give the addresses in the env file with harvest=static",
            Self::NoRange { .. } => "set machine_network in the env file, e.g. machine_network=192.168.122.0/24",
            Self::StaleAssets { .. } => {
                "`ocpdeploy destroy CLUSTER --keep-addresses`, then deploy again: new files are made, addresses stay"
            }
            Self::TooLarge { .. } => "leave out files of your own, or choose another carrier",
            Self::Leftovers { .. } => "run destroy again; the platform's own log may say more",
        }
    }
}

/// A machine that was waited for in vain.
#[derive(Debug)]
pub struct Missing {
    pub name: MachineName,
    pub seen: Seen,
    /// The last lines of its console.
    pub console: Option<String>,
}

/// Deploys a cluster, or goes on with a deployment that was interrupted.
pub async fn deploy<B: Backend>(
    backend: &B,
    config: &ClusterConfig,
    home: &Home,
    options: DeployOptions,
) -> Result<Deployed> {
    let installer = Installer::choose(config)?;
    let facts = check(backend, config, home).await?;
    let run = Run::begin(backend, config, home, &facts)?;
    if options.harvest_again {
        run.start_over().await?;
    }
    let skipped_pass_one = home.cluster(&config.name).parameters().exists();

    // The node image is usually the longest upload; it does not need to wait for the addresses.
    let ((parameters, held), image) = futures::try_join!(run.pass_one(), run.node_image())?;
    let assets = run.assets(&installer, &parameters).await?;
    let configs = run.node_configs(&parameters, &assets).await?;
    run.pass_two(&parameters, &configs, &image).await?;
    run.compare_addresses(&parameters, &held).await?;

    let wait = WaitContext {
        config,
        parameters: &parameters,
        dir: &run.dir,
        guests_answer: backend.limits().guests_answer,
    };
    let mut reports = run.bootstrap_complete(&installer, &wait, &assets).await?;
    run.remove_bootstrap().await?;
    reports.extend(run.install_complete(&installer, &wait).await?);
    Ok(Deployed {
        rows: rows(&parameters, &held, &configs, reports),
        parameters,
        skipped_pass_one,
    })
}

/// Does pass one alone and keeps its table.
pub async fn harvest<B: Backend>(
    backend: &B,
    config: &ClusterConfig,
    home: &Home,
    options: DeployOptions,
) -> Result<Parameters> {
    let facts = check(backend, config, home).await?;
    let run = Run::begin(backend, config, home, &facts)?;
    if options.harvest_again {
        run.start_over().await?;
    }
    Ok(run.pass_one().await?.0)
}

/// Looks at everything that can be looked at before anything is made.
pub async fn check<B: Backend>(backend: &B, config: &ClusterConfig, home: &Home) -> Result<NetworkFacts> {
    info!(target: PROGRESS, step = "checks", "looking at {} before anything is made", config.backend.name());
    let clusters = inventory::clusters(home)?;
    let known = clusters.iter().find(|cluster| cluster.known.name == config.name);
    if let Some(known) = known {
        refuse_other_cluster(config, &known.known)?;
    }
    let parameters = known.and_then(|cluster| cluster.parameters.as_ref());
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
    let mut findings = backend.preflight(&machines::needs(config, &one, &two)).await?;
    let mut facts = NetworkFacts::default();
    if !findings.iter().any(|finding| finding.verdict == Verdict::Fail) {
        facts = backend.look_at_network(&config.network).await?;
        facts.cidr = facts.cidr.or(config.given.machine_network);
        let neighbours = inventory::neighbours(&clusters, &facts.identity, &config.id());
        findings.extend(given_vip_findings(
            config,
            &facts,
            &neighbours,
            backend.limits().holds_addresses,
        ));
    }
    for finding in &findings {
        if finding.verdict == Verdict::Warn {
            tracing::warn!(target: PROGRESS, step = "checks", "{}", finding.text);
        }
    }
    findings.retain(|finding| finding.verdict == Verdict::Fail);
    if findings.is_empty() {
        Ok(facts)
    } else {
        Err(PassError::Preflight { findings }.into())
    }
}

fn refuse_other_cluster(config: &ClusterConfig, known: &Known) -> Result<(), PassError> {
    let what = if known.domain != config.domain {
        format!("domain {}", known.domain)
    } else if known.backend != config.backend {
        format!("other settings of backend {}", known.backend.name())
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
) -> Vec<Finding> {
    let problem = |vip| {
        let ip = machines::given_vip(config, vip)?;
        let text = vip_problem(vip, ip, facts, can_hold, &neighbours.addresses)?;
        Some(Finding {
            verdict: Verdict::Fail,
            text,
            hint: None,
        })
    };
    Vip::ALL.into_iter().filter_map(problem).collect()
}

/// Destroys exactly what carries the cluster's id, and its folder here.
///
/// With `keep_addresses` the parameter file and what holds the addresses stay for the next deployment.
pub async fn destroy<B: Backend>(
    backend: &B,
    cluster: &ClusterId,
    name: &str,
    home: &Home,
    keep_addresses: bool,
) -> Result<()> {
    let dir = home.cluster(name);
    let _lock = if dir.exists() {
        Some(journal::lock(&dir, name)?)
    } else {
        None
    };
    let machines = backend.list_machines(cluster).await?;
    delete_machines(backend, cluster, &machines).await?;
    if keep_addresses {
        for path in [dir.installer(), dir.ignition_folder(), dir.log()] {
            remove_folder(&path)?;
        }
        remove_file(&dir.journal())?;
        return Ok(());
    }
    backend.release_addresses(cluster).await?;
    let left = backend.list_owned(cluster).await?;
    if !left.is_empty() {
        return Err(PassError::Leftovers { left }.into());
    }
    dir.remove().context("remove the cluster's folder")
}

/// One run over one cluster: what every step needs.
struct Run<'a, B> {
    backend: &'a B,
    config: &'a ClusterConfig,
    home: &'a Home,
    facts: &'a NetworkFacts,
    dir: crate::home::ClusterDir,
    journal: Journal,
}

impl<'a, B: Backend> Run<'a, B> {
    /// Takes the cluster's lock; from here on the cluster is known on this computer.
    fn begin(backend: &'a B, config: &'a ClusterConfig, home: &'a Home, facts: &'a NetworkFacts) -> Result<Self> {
        let dir = home.cluster(&config.name);
        let journal = Journal::open(&dir, &config.name)?;
        Known::of(config).write(&dir)?;
        Ok(Self {
            backend,
            config,
            home,
            facts,
            dir,
            journal,
        })
    }

    /// Forgets pass one, so that it is done anew. Nothing of pass two may exist.
    async fn start_over(&self) -> Result<()> {
        let machines = self.backend.list_machines(&self.config.id()).await?;
        if machines.iter().any(|machine| machine.pass == Pass::Two) {
            return Err(PassError::Running {
                cluster: self.config.name.clone(),
            }
            .into());
        }
        delete_machines(self.backend, &self.config.id(), &machines).await?;
        self.backend.release_addresses(&self.config.id()).await?;
        remove_file(&self.dir.parameters())?;
        self.journal.forget("")?;
        Ok(())
    }

    /// Pass one: the table of addresses, held by the platform where it can, and no machine left.
    async fn pass_one(&self) -> Result<(Parameters, BTreeMap<NodeName, Held>)> {
        let parameters = match Parameters::read(&self.dir.parameters())? {
            Some(parameters) => {
                info!(target: PROGRESS, step = "pass one", "skipped, the addresses are known");
                parameters
            }
            None => {
                let macs = self.macs().await?;
                let leases = match self.config.harvest {
                    Harvest::Boot => self.boot_and_look(&macs).await?,
                    Harvest::Reserve => self.reserve(&macs).await?,
                    Harvest::Static => machines::static_leases(self.config, &macs),
                };
                self.write_parameters(leases)?
            }
        };
        let held = self.hold(&parameters).await?;
        self.sweep_pass_one().await?;
        Ok((parameters, held))
    }

    async fn macs(&self) -> Result<MacTable> {
        let choose = async {
            let clusters = inventory::clusters(self.home)?;
            let neighbours = inventory::neighbours(&clusters, &self.facts.identity, &self.config.id());
            Ok(machines::macs(self.config, &neighbours.macs))
        };
        self.journal.step("pass-one/macs", &self.config.given, choose).await
    }

    /// Boots throwaway machines and waits until each has shown one stable address.
    async fn boot_and_look(&self, macs: &MacTable) -> Result<Vec<Lease>> {
        let planned = machines::pass_one(self.config, macs);
        let total = planned.len();
        let image = self.image("pass-one/image", &self.config.helper_image).await?;
        let create = async {
            info!(target: PROGRESS, step = "pass one", total, "booting {total} throwaway machines");
            stream::iter(&planned)
                .map(|machine| self.create_helper(machine, &image))
                .buffer_unordered(self.backend.limits().concurrency)
                .try_collect::<Vec<()>>()
                .await?;
            Ok(())
        };
        self.journal
            .step("pass-one/create", &(&planned, &image), create)
            .await?;
        let mut leases = self
            .journal
            .step("pass-one/leases", &planned, self.look_for_leases(&planned))
            .await?;
        leases.extend(Vip::ALL.into_iter().filter_map(|vip| {
            let name = NodeName::vip(vip);
            Some(Lease {
                ip: machines::given_vip(self.config, vip)?,
                mac: *macs.get(&name)?,
                name,
            })
        }));
        Ok(leases)
    }

    async fn create_helper(&self, machine: &Planned, image: &ImageHandle) -> Result<()> {
        info!(target: PROGRESS, machine = %machine.name, state = "creating");
        let payload = templates::helper_payload(machine.name.as_str(), &self.config.ssh_keys)?;
        self.backend
            .create_machine(&machine.spec(self.config, image, payload))
            .await?;
        info!(target: PROGRESS, machine = %machine.name, state = "booting");
        Ok(())
    }

    async fn look_for_leases(&self, planned: &[Planned]) -> Result<Vec<Lease>> {
        let begun = Instant::now();
        let mut watch = Watch::new(self.facts.cidr);
        let id = self.config.id();
        loop {
            let machines = self.backend.list_machines(&id).await?;
            for change in watch.look(planned, &machines) {
                let state = if change.stable { "address" } else { "looking" };
                info!(target: PROGRESS, machine = %change.name, state, done = change.stable, "{}", change.seen);
            }
            if watch.is_complete(planned) {
                break;
            }
            let missing = watch.missing(planned);
            let hopeless = missing.iter().any(|(_, seen)| seen.is_final());
            if hopeless || begun.elapsed() >= self.config.timeouts.harvest {
                return Err(self.in_vain(Pass::One, planned.len(), begun.elapsed(), missing).await);
            }
            tokio::time::sleep(self.backend.limits().poll_interval).await;
        }
        let lease = |plan: &Planned| {
            Some(Lease {
                name: plan.node.clone(),
                mac: plan.mac()?,
                ip: watch.address(&plan.name)?,
            })
        };
        Ok(planned.iter().filter_map(lease).collect())
    }

    /// Explains a wait that ended in vain, with the consoles of the first few machines.
    async fn in_vain(
        &self,
        pass: Pass,
        total: usize,
        waited: Duration,
        missing: Vec<(MachineName, Seen)>,
    ) -> anyhow::Error {
        let mut explained = Vec::new();
        for (index, (name, seen)) in missing.into_iter().enumerate() {
            let console = match index {
                0..3 => self.backend.console_tail(&self.config.id(), &name).await.ok().flatten(),
                _ => None,
            };
            explained.push(Missing { name, seen, console });
        }
        PassError::Addresses {
            pass,
            total,
            waited,
            missing: explained,
        }
        .into()
    }

    /// Chooses free addresses; the platform's refusal of a clash makes each choice atomic.
    async fn reserve(&self, macs: &MacTable) -> Result<Vec<Lease>> {
        let choose = async {
            let network = self.machine_network()?;
            let _allocation = inventory::allocate(self.home)?;
            let clusters = inventory::clusters(self.home)?;
            let neighbours = inventory::neighbours(&clusters, &self.facts.identity, &self.config.id());
            let ours = self.backend.list_held(&self.config.id()).await?;
            let mut free = free_addresses(network, self.facts, &neighbours.addresses).into_iter();
            let mut leases = Vec::new();
            for (name, mac) in macs {
                let given = Vip::ALL.into_iter().find(|vip| NodeName::vip(*vip) == *name);
                if let Some(ip) = given.and_then(|vip| machines::given_vip(self.config, vip)) {
                    leases.push(Lease {
                        name: name.clone(),
                        mac: *mac,
                        ip,
                    });
                } else if let Some(held) = ours.iter().find(|lease| lease.mac == *mac) {
                    leases.push(Lease {
                        name: name.clone(),
                        ..held.clone()
                    });
                } else {
                    leases.push(self.reserve_one(name, *mac, &mut free).await?);
                }
            }
            Ok(leases)
        };
        self.journal.step("pass-one/leases", macs, choose).await
    }

    async fn reserve_one(
        &self,
        name: &NodeName,
        mac: crate::cluster::Mac,
        free: &mut impl Iterator<Item = Ipv4Addr>,
    ) -> Result<Lease> {
        for ip in free {
            let lease = Lease {
                name: name.clone(),
                mac,
                ip,
            };
            match self.backend.hold_address(&self.hold_of(&lease)).await {
                Ok(_) => {
                    info!(target: PROGRESS, machine = %name, state = "reserved", done = true, "{ip}");
                    return Ok(lease);
                }
                Err(BackendError {
                    kind: BackendErrorKind::Conflict,
                    ..
                }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(PassError::NoAddress {
            network: self.config.network.clone(),
            node: name.clone(),
        }
        .into())
    }

    fn machine_network(&self) -> Result<Ipv4Network, PassError> {
        let range = self.config.given.machine_network.or(self.facts.cidr);
        range.ok_or_else(|| PassError::NoRange {
            network: self.config.network.clone(),
        })
    }

    /// Chooses VRIDs among all clusters of the network and writes the table, under one lock.
    fn write_parameters(&self, leases: Vec<Lease>) -> Result<Parameters> {
        let network = self.machine_network()?;
        let _allocation = inventory::allocate(self.home)?;
        let clusters = inventory::clusters(self.home)?;
        let neighbours = inventory::neighbours(&clusters, &self.facts.identity, &self.config.id());
        let by_name: BTreeMap<_, _> = leases.into_iter().map(|lease| (lease.name.clone(), lease)).collect();
        let missing = |name: &NodeName| PassError::Mismatch {
            cluster: self.config.name.clone(),
            what: format!("no address is known for {name}"),
        };
        let mut nodes = Vec::new();
        for (name, role) in self.config.nodes() {
            let lease = by_name.get(&name).ok_or_else(|| missing(&name))?;
            nodes.push(NodeAddress {
                name,
                role,
                mac: lease.mac,
                ip: lease.ip,
            });
        }
        let vip = |vip: Vip| {
            by_name
                .get(&NodeName::vip(vip))
                .cloned()
                .ok_or_else(|| missing(&NodeName::vip(vip)))
        };
        let [api, ingress] = [vip(Vip::Api)?, vip(Vip::Ingress)?];
        let findings: Vec<_> = [(Vip::Api, api.ip), (Vip::Ingress, ingress.ip)]
            .into_iter()
            .filter_map(|(vip, ip)| vip_problem(vip, ip, self.facts, true, &neighbours.addresses))
            .map(|text| Finding {
                verdict: Verdict::Fail,
                text,
                hint: None,
            })
            .collect();
        if !findings.is_empty() {
            return Err(PassError::Preflight { findings }.into());
        }
        let taken = neighbours.virtual_router_ids.keys().copied().collect();
        let mut ids = virtual_router_ids(api.ip, ingress.ip, &taken).ok_or_else(|| PassError::NoRouterId {
            network: self.config.network.clone(),
        })?;
        if let Some(given) = self.config.given.virtual_router_id {
            ids[0] = given;
        }
        let parameters = Parameters::new(
            &self.config.name,
            &self.config.domain,
            self.config.backend.name(),
            &self.config.network,
            self.facts,
            network,
            self.config.harvest,
            [api, ingress],
            ids,
            nodes,
        );
        parameters.write(&self.dir.parameters())?;
        Ok(parameters)
    }

    fn hold_of(&self, lease: &Lease) -> Hold {
        let id = self.config.id();
        let hosts: Vec<&str> = match lease.name.as_str() {
            "api" => vec!["api", "api-int"],
            "ingress" => vec!["console-openshift-console.apps", "oauth-openshift.apps"],
            node => vec![node],
        };
        let dns_names = hosts.into_iter().map(|host| id.fqdn(host)).collect();
        Hold {
            cluster: id,
            network: self.config.network.clone(),
            lease: lease.clone(),
            dns_names,
        }
    }

    /// Makes the platform keep every address of the table.
    async fn hold(&self, parameters: &Parameters) -> Result<BTreeMap<NodeName, Held>> {
        let holds: Vec<_> = parameters.leases().iter().map(|lease| self.hold_of(lease)).collect();
        let hold_all = async {
            info!(target: PROGRESS, step = "addresses", "{} addresses to be held", holds.len());
            let one = |hold: &Hold| {
                let (name, hold) = (hold.lease.name.clone(), hold.clone());
                async move { Ok((name, self.backend.hold_address(&hold).await?)) }
            };
            stream::iter(&holds)
                .map(one)
                .buffer_unordered(self.backend.limits().concurrency)
                .try_collect()
                .await
        };
        self.journal.step("pass-one/hold", &holds, hold_all).await
    }

    /// Deletes what pass one booted and looks that none is left.
    async fn sweep_pass_one(&self) -> Result<()> {
        let sweep = async {
            let id = self.config.id();
            let machines = self.backend.list_machines(&id).await?;
            let left: Vec<_> = machines
                .into_iter()
                .filter(|machine| machine.pass == Pass::One)
                .collect();
            delete_machines(self.backend, &id, &left).await
        };
        self.journal.step("pass-one/gone", &(), sweep).await
    }

    async fn image(&self, step: &str, source: &crate::cluster::ImageSource) -> Result<ImageHandle> {
        let request = images::request(source)
            .await
            .with_context(|| format!("read image {source}"))?;
        let ensure = async {
            info!(target: PROGRESS, step = "image", "{source}");
            Ok(self.backend.ensure_image(&self.config.id(), &request).await?)
        };
        self.journal.step(step, &request, ensure).await
    }

    async fn node_image(&self) -> Result<ImageHandle> {
        self.image("pass-two/image", &self.config.image).await
    }

    /// The installer's files; made after pass one, since the certificates in them last 24 hours.
    async fn assets(&self, installer: &Installer, parameters: &Parameters) -> Result<Assets> {
        let make = async {
            info!(target: PROGRESS, step = "assets", "making manifests and Ignition configs");
            installer
                .make_assets(self.config, parameters, &self.dir.installer())
                .await
        };
        self.journal
            .step("assets", &(self.config.asset_fingerprint(), parameters), make)
            .await
    }

    /// One Ignition config for each node: the installer's and our overlay, measured against the carrier.
    async fn node_configs(&self, parameters: &Parameters, assets: &Assets) -> Result<BTreeMap<NodeName, NodeConfig>> {
        let merge = async {
            let limits = self.backend.limits();
            let mut configs = BTreeMap::new();
            for (node, role) in self.config.nodes() {
                let base = assets.read(role)?;
                let bytes = ignition::node_config(&base, self.config, parameters, &node, role)
                    .with_context(|| format!("merge the Ignition config of {node}"))?;
                if let Some(limit) = limits.carrier_bytes.filter(|limit| bytes.len() > *limit) {
                    let too_large = PassError::TooLarge {
                        node,
                        bytes: bytes.len(),
                        carrier: limits.carrier,
                        limit,
                    };
                    return Err(too_large.into());
                }
                let path = self.dir.ignition(node.as_str());
                crate::home::write_private(&path, &bytes)?;
                configs.insert(
                    node,
                    NodeConfig {
                        sha512: sha512(&bytes),
                        bytes: bytes.len(),
                    },
                );
            }
            Ok(configs)
        };
        self.journal.step("merge", &(assets, parameters), merge).await
    }

    /// Pass two: the cluster's machines with the MACs of the table.
    async fn pass_two(
        &self,
        parameters: &Parameters,
        configs: &BTreeMap<NodeName, NodeConfig>,
        image: &ImageHandle,
    ) -> Result<()> {
        let planned = self.planned_nodes(parameters);
        info!(target: PROGRESS, step = "pass two", total = planned.len(), "{} machines", planned.len());
        stream::iter(&planned)
            .map(|machine| self.create_node(machine, configs.get(&machine.node), image))
            .buffer_unordered(self.backend.limits().concurrency)
            .try_collect::<Vec<()>>()
            .await?;
        Ok(())
    }

    fn planned_nodes(&self, parameters: &Parameters) -> Vec<Planned> {
        machines::pass_two(self.config, &MacTable::new(), Some(parameters))
    }

    async fn create_node(&self, machine: &Planned, config: Option<&NodeConfig>, image: &ImageHandle) -> Result<()> {
        let create = async {
            info!(target: PROGRESS, machine = %machine.name, state = "creating");
            let path = self.dir.ignition(machine.node.as_str());
            let ignition = fs_err::read(&path)?;
            let spec = machine.spec(self.config, image, Payload::Ignition(ignition));
            self.backend.create_machine(&spec).await?;
            Ok(())
        };
        self.journal
            .step(
                &format!("pass-two/create/{}", machine.node),
                &(machine, config, image),
                create,
            )
            .await?;
        info!(target: PROGRESS, machine = %machine.name, state = "booting");
        Ok(())
    }

    /// Compares each node's address with the table: same MAC, same address is a hope until it was seen.
    async fn compare_addresses(&self, parameters: &Parameters, held: &BTreeMap<NodeName, Held>) -> Result<()> {
        let mut planned = self.planned_nodes(parameters);
        if self.journal.done_at("bootstrap-removed").is_some() {
            planned.retain(|machine| machine.role != Role::Bootstrap);
        }
        let begun = Instant::now();
        let mut watch = Watch::new(None);
        loop {
            let machines = self.backend.list_machines(&self.config.id()).await?;
            for change in watch.look(&planned, &machines) {
                info!(target: PROGRESS, machine = %change.name, state = "address", "{}", change.seen);
            }
            if let Some(moved) = planned.iter().find_map(|plan| moved(plan, &watch, &machines, held)) {
                return Err(moved.into());
            }
            if watch.is_complete(&planned) {
                return Ok(());
            }
            let missing = watch.missing(&planned);
            let hopeless = missing.iter().any(|(_, seen)| seen.is_final() || *seen == Seen::Absent);
            if hopeless || begun.elapsed() >= self.config.timeouts.address {
                return Err(self.in_vain(Pass::Two, planned.len(), begun.elapsed(), missing).await);
            }
            tokio::time::sleep(self.backend.limits().poll_interval).await;
        }
    }

    async fn bootstrap_complete(
        &self,
        installer: &Installer,
        wait: &WaitContext<'_>,
        assets: &Assets,
    ) -> Result<Vec<NodeReport>> {
        if self.journal.done_at("bootstrap-complete").is_none() {
            let hours = assets.age_hours(jiff::Timestamp::now());
            if hours >= 20 {
                return Err(PassError::StaleAssets { hours }.into());
            }
        }
        info!(target: PROGRESS, step = "bootstrap", "waiting for bootstrap-complete");
        self.journal
            .step("bootstrap-complete", &(), installer.wait_for_bootstrap(wait))
            .await
    }

    async fn remove_bootstrap(&self) -> Result<()> {
        let name = MachineName::of_node(&self.config.name, &NodeName::bootstrap());
        let remove = async {
            self.backend.delete_machine(&self.config.id(), &name).await?;
            info!(target: PROGRESS, machine = %name, state = "removed", done = true);
            Ok(())
        };
        self.journal.step("bootstrap-removed", &(), remove).await
    }

    async fn install_complete(&self, installer: &Installer, wait: &WaitContext<'_>) -> Result<Vec<NodeReport>> {
        info!(target: PROGRESS, step = "install", "waiting for install-complete");
        self.journal
            .step("install-complete", &(), installer.wait_for_install(wait))
            .await
    }
}

/// A node's config as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct NodeConfig {
    sha512: String,
    bytes: usize,
}

/// Whether a machine has settled on another address than planned, and why that may be.
fn moved(plan: &Planned, watch: &Watch, machines: &[Machine], held: &BTreeMap<NodeName, Held>) -> Option<PassError> {
    let planned = plan.ip?;
    let error = |seen: String, why| PassError::Moved {
        machine: plan.name.clone(),
        planned,
        seen,
        why,
    };
    if let Some(seen) = watch.address(&plan.name) {
        let by_platform = held.get(&plan.node) == Some(&Held::ByPlatform);
        let why = match by_platform {
            true => "the platform's reservation was not honoured; another DHCP server may answer first",
            false => "nobody holds the address, and the DHCP server gave another",
        };
        return (seen != planned).then(|| error(seen.to_string(), why));
    }
    let machine = machines.iter().find(|machine| machine.name == plan.name)?;
    match judge(Some(machine), plan.mac()?, None) {
        Seen::Several(all) if !all.contains(&planned) => {
            let all: Vec<_> = all.iter().map(Ipv4Addr::to_string).collect();
            Some(error(
                all.join(" and "),
                "its DHCP client sent more than one client-id, so it got more than one lease",
            ))
        }
        _ => None,
    }
}

async fn delete_machines<B: Backend>(backend: &B, cluster: &ClusterId, machines: &[Machine]) -> Result<()> {
    stream::iter(machines)
        .map(|machine| async move {
            backend.delete_machine(cluster, &machine.name).await?;
            info!(target: PROGRESS, machine = %machine.name, state = "deleted", done = true);
            Ok::<_, BackendError>(())
        })
        .buffer_unordered(backend.limits().concurrency)
        .try_collect::<Vec<()>>()
        .await?;
    let left: Vec<_> = backend.list_machines(cluster).await?;
    let left: Vec<_> = left
        .into_iter()
        .filter(|machine| machines.iter().any(|deleted| deleted.name == machine.name))
        .map(|machine| Owned {
            kind: "machine".to_owned(),
            name: machine.name.to_string(),
        })
        .collect();
    if left.is_empty() {
        Ok(())
    } else {
        Err(PassError::Leftovers { left }.into())
    }
}

fn rows(
    parameters: &Parameters,
    held: &BTreeMap<NodeName, Held>,
    configs: &BTreeMap<NodeName, NodeConfig>,
    reports: Vec<NodeReport>,
) -> Vec<NodeRow> {
    let row = |planned: &NodeAddress| {
        let config = configs.get(&planned.name)?;
        Some(NodeRow {
            planned: planned.clone(),
            held: held.get(&planned.name).copied().unwrap_or(Held::ByLuck),
            ignition_sha512: config.sha512.clone(),
            ignition_bytes: config.bytes,
            report: reports.iter().find(|report| report.node == planned.name)?.clone(),
        })
    };
    parameters.nodes.iter().filter_map(row).collect()
}

fn remove_file(path: &std::path::Path) -> Result<()> {
    match fs_err::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn remove_folder(path: &std::path::Path) -> Result<()> {
    match fs_err::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn count(number: usize, what: &str) -> String {
    if number == 1 {
        format!("1 {what}")
    } else {
        format!("{number} {what}s")
    }
}

fn lines(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("\n  {}", finding.text)).collect()
}

fn owned_lines(owned: &[Owned]) -> String {
    owned
        .iter()
        .map(|owned| format!("\n  {} {}", owned.kind, owned.name))
        .collect()
}

fn missing_lines(missing: &[Missing]) -> String {
    let mut text = String::new();
    for Missing { name, seen, console } in missing {
        text.push_str(&format!("\n  {name} {seen}"));
        for line in console.iter().flat_map(|console| console.lines()) {
            text.push_str(&format!("\n    console: {line}"));
        }
    }
    text
}
