//! Stops and starts a cluster: machines are switched off in order, and return with the same addresses.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::backup;
use super::deployments;
use super::error::{names, not_installed};
use super::partial_failure::with_leftovers;
use super::simulated::refuse_simulated;
use crate::PROGRESS;
use crate::backend::platforms::Platforms;
use crate::backend::{self, Machine, PlatformError, Power, SnapshotName, Stop};
use crate::cluster::{MachineName, NodeName, Pass, Role};
use crate::error::{ErrorKind, OperationError};
use crate::local::reach;
use crate::openshift::api::ClusterApi;
use crate::openshift::installer::{self, Assets};
use crate::openshift::wait::{
    self,
    clock::{Certificates, Clock},
};
use crate::plan::harvest::{Seen, judge_planned};
use crate::plan::{Action, Change};
use crate::printable::count;
use crate::state::home::{ClusterDir, Home};
use crate::state::inventory::Known;
use crate::state::journal::{INSTALLED, Journal, Step};
use crate::state::parameters::{NodeAddress, Parameters};

/// A guest ignores the power button in its first seconds.
const ASK_AGAIN: Duration = Duration::from_secs(20);

/// A machine that was powered off stops at once.
const AT_ONCE: Duration = Duration::from_secs(60);

/// Which machines are shut down together, one group after the other; they are started in the opposite order.
const STOP_ORDER: [&[Role]; 2] = [&[Role::Worker], &[Role::Master, Role::Arbiter]];

/// The journal steps that record which machines were off, one for each node.
const OFF: &str = "off";

/// The journal steps of `snapshot save` and `snapshot restore`, with the snapshot's name below them, as in `save/NAME`.
/// While `revert` is not complete, the disks of the nodes are from different times.
pub(super) const SAVE: &str = "save";
pub(super) const RESTORE: &str = "restore";
pub(super) const REVERT: &str = "revert";

/// Options of `stop`.
#[derive(Clone, Copy, Debug)]
pub struct StopOptions<'a> {
    /// Limit for the machines of one role.
    pub limit: Duration,
    /// Stop even if the cluster still uses the installer's certificates.
    pub force: bool,
    /// Power off machines that do not shut down in time.
    pub power_off: bool,
    /// The directory for a backup of etcd.
    pub backup: Option<&'a Path>,
}

/// Nodes whose machines were off when `start` or `stop` ended: a note of the journal, for readers that do not query the
/// platform.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct SwitchedOff {
    pub off: Vec<NodeName>,
}

impl SwitchedOff {
    /// The note's name.
    pub const NOTE: &str = "power";
}

/// Nodes that `stop` cordoned: a note of the journal, for `start`. Nodes that users cordoned remain so.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Cordoned {
    pub nodes: BTreeSet<NodeName>,
}

impl Cordoned {
    pub const NOTE: &str = "cordoned";
}

/// An installed cluster and its local state.
pub(super) struct InstalledCluster<'a> {
    pub backend: &'a Platforms,
    pub known: &'a Known,
    pub dir: ClusterDir,
    pub journal: Journal,
    pub table: Parameters,
}

/// Shuts a cluster down, workers before masters; idempotent. Returns whether any machine was on.
///
/// `confirm` is called with the changes before the first one. If it returns false, nothing is changed, and there is no
/// result.
pub async fn stop(
    backend: &Platforms,
    known: &Known,
    home: &Home,
    options: StopOptions<'_>,
    confirm: impl FnOnce(&[Change]) -> Result<bool>,
) -> Result<Option<bool>> {
    let cluster = InstalledCluster::open(backend, known, home)?;
    let machines = cluster.current_machines().await?;
    let was_on = !machines.iter().all(is_off);
    if was_on && !options.force {
        cluster.refuse_young(true, true).await?;
    }
    let in_order = STOP_ORDER.iter().flat_map(|roles| {
        let of_roles = machines.iter().filter(|machine| roles.contains(&machine.role));
        of_roles.filter(|machine| !is_off(machine))
    });
    let stopped: Vec<_> = in_order
        .map(|machine| Change::of_machine(Action::Stop, &machine.name, None))
        .collect();
    if !confirm(&stopped)? {
        return Ok(None);
    }
    if let Some(folder) = options.backup {
        cluster.back_up(folder, was_on).await?;
    }
    if was_on {
        with_leftovers(backend, &known.id(), "stop", true, cluster.off(options).await).await?;
        for node in &cluster.table.external {
            warn!(target: PROGRESS, step = "stop", "{} at {} is an external node: shut it down yourself", node.name, node.ip);
        }
    }
    cluster.note_all_off()?;
    Ok(Some(was_on))
}

/// Starts a cluster, masters before workers, and waits until its nodes are Ready. Returns whether any machine was off.
pub async fn start(backend: &Platforms, known: &Known, home: &Home, limit: Duration) -> Result<bool> {
    let cluster = InstalledCluster::open(backend, known, home)?;
    cluster.refuse_half_restored(None)?;
    let was_off = cluster.current_machines().await?.iter().any(is_off);
    with_leftovers(backend, &known.id(), "start", true, cluster.on(limit).await).await?;
    for node in &cluster.table.external {
        let name = &node.name;
        warn!(target: PROGRESS, step = "start",
            "{name} at {} is an external node: switch it on yourself, then run `ocpdeploy node join {} {name}`", node.ip, known.name);
    }
    cluster.note(Vec::new())?;
    // Snapshot commands that were interrupted before are not resumed, because the disks change now.
    for interrupted in [SAVE, RESTORE] {
        if cluster.journal.was_begun(&format!("{interrupted}/")) {
            cluster.journal.forget(interrupted)?;
        }
    }
    Ok(was_off)
}

pub(super) fn is_off(machine: &Machine) -> bool {
    machine.power == Power::Off
}

impl<'a> InstalledCluster<'a> {
    pub fn open(backend: &'a Platforms, known: &'a Known, home: &Home) -> Result<Self> {
        let dir = home.cluster(&known.name);
        let journal = Journal::open(&dir, &known.name)?;
        let table = Parameters::read(&dir.parameters())?;
        match table.filter(|_| journal.done_at(INSTALLED).is_some()) {
            Some(table) => Ok(Self {
                backend,
                known,
                dir,
                journal,
                table,
            }),
            None => Err(not_installed(&known.name).into()),
        }
    }

    /// As `machines`, before the first change: fails if another computer has changed the cluster since.
    pub async fn current_machines(&self) -> Result<Vec<Machine>> {
        let all = self.backend.list_machines(&self.known.id()).await?;
        deployments::require_current(&self.table, &all)?;
        Ok(self.of_nodes(all))
    }

    fn of_nodes(&self, mut machines: Vec<Machine>) -> Vec<Machine> {
        machines.retain(|machine| machine.pass == Pass::Two && self.table.node(&machine.node).is_some());
        machines
    }

    /// The machines of the table's nodes.
    pub async fn machines(&self) -> Result<Vec<Machine>, PlatformError> {
        Ok(self.of_nodes(self.backend.list_machines(&self.known.id()).await?))
    }

    /// Fails if the restoration of a snapshot was interrupted: until it is repeated, the disks are from different
    /// times. `except` is the snapshot that is about to be restored.
    pub fn refuse_half_restored(&self, except: Option<&SnapshotName>) -> Result<(), OperationError> {
        let step = self.journal.first_begun(&format!("{REVERT}/"));
        let half = step.and_then(|step| Some(step.split('/').nth(1)?.to_owned()));
        match half.filter(|half| except.is_none_or(|except| except.as_str() != half)) {
            Some(snapshot) => {
                let cluster = &self.known.name;
                let text = format!(
                    "the restoration of snapshot {snapshot} of cluster {cluster} was interrupted: the disks of its nodes \
                     are from different times"
                );
                let hint = format!("complete it first: `ocpdeploy snapshot restore {cluster} {snapshot}`");
                Err(OperationError::new(ErrorKind::Tool, text).hint(hint))
            }
            None => Ok(()),
        }
    }

    /// Records which machines are off, for readers that do not query the platform.
    pub fn note(&self, off: Vec<NodeName>) -> Result<()> {
        self.journal.note(SwitchedOff::NOTE, &SwitchedOff { off })
    }

    pub fn note_all_off(&self) -> Result<()> {
        self.note(self.nodes().map(|node| node.name.clone()).collect())
    }

    async fn api(&self) -> Result<ClusterApi> {
        refuse_simulated(&self.known.name, &self.known.backend, self.table.api_ip)?;
        Ok(ClusterApi::open(&self.dir.kubeconfig(), reach::api_endpoint(&self.table)).await?)
    }

    /// Rejects a cluster that still uses the installer's certificates: it must run to replace them. For a cluster that
    /// is off, `stop` has recorded which certificates it uses.
    pub async fn refuse_young(&self, is_on: bool, may_force: bool) -> Result<()> {
        let assets: Option<Assets> = self.journal.output("assets")?;
        let (Some(assets), false) = (assets, self.known.rehearsal) else {
            return Ok(());
        };
        let certificates = match is_on {
            true => Certificates::query(&self.api().await?).await,
            false => self.journal.output(Certificates::NOTE)?.unwrap_or_default(),
        };
        let clock = Clock::at(Timestamp::now(), assets.made_at, certificates);
        let may_stop = certificates.rotated.unwrap_or(clock.minutes_left <= 0);
        if !may_stop {
            let cluster = &self.known.name;
            let text = format!("cluster {cluster} must not be stopped yet: {}", clock.text());
            let hint = match may_force {
                true => format!(
                    "the requests of nodes that are off when these certificates expire must be approved by hand; to stop \
                     anyway, run `ocpdeploy stop {cluster} --force`"
                ),
                false => format!(
                    "the cluster replaces them within a day while it runs; `ocpdeploy status {cluster}` shows when it has, \
                     then run the same command again"
                ),
            };
            return Err(OperationError::new(ErrorKind::Tool, text).hint(hint).into());
        }
        self.journal.note_at_first_line(Certificates::NOTE, &certificates)
    }

    async fn back_up(&self, folder: &Path, is_on: bool) -> Result<()> {
        refuse_simulated(&self.known.name, &self.known.backend, self.table.api_ip)?;
        let without = format!("stop {}", self.known.name);
        let without_etcd = match (self.known.rehearsal, is_on) {
            (true, _) => "a rehearsal has no etcd",
            (false, false) => "all machines are off",
            (false, true) => {
                for file in backup::back_up(&self.dir, &self.table, folder, &without).await? {
                    info!(target: PROGRESS, step = "backup", "{}", file.display());
                }
                return Ok(());
            }
        };
        Err(backup::no_backup(&self.known.name, &[without_etcd.to_owned()], &without).into())
    }

    /// Cordons all nodes, so that pods do not move from node to node while these shut down one after the other. If the
    /// API does not respond, the nodes are stopped anyway.
    async fn cordon(&self) -> Result<()> {
        let simulated = refuse_simulated(&self.known.name, &self.known.backend, self.table.api_ip);
        if self.known.rehearsal || simulated.is_err() {
            return Ok(());
        }
        let api = self.api().await?;
        let cordoned = async {
            let there = api.nodes().await?;
            let is_schedulable = |host: &str| {
                let node = there.iter().find(|node| node.metadata.name.as_deref() == Some(host));
                node.is_some_and(|node| node.spec.as_ref().and_then(|spec| spec.unschedulable) != Some(true))
            };
            let mut note: Cordoned = self.journal.output(Cordoned::NOTE)?.unwrap_or_default();
            let nodes: Vec<_> = self
                .nodes()
                .map(|node| (node.name.clone(), self.table.cluster_domain().fqdn(node.name.as_str())))
                .filter(|(_, host)| is_schedulable(host))
                .collect();
            note.nodes.extend(nodes.iter().map(|(name, _)| name.clone()));
            // Noted first, so that no node stays cordoned after an interruption.
            self.journal.note(Cordoned::NOTE, &note)?;
            for (_, host) in &nodes {
                api.cordon(host).await?;
            }
            anyhow::Ok(())
        };
        if let Err(error) = cordoned.await {
            warn!(target: PROGRESS, step = "stop", "not all nodes are cordoned, pods may move meanwhile: {error:#}");
        }
        Ok(())
    }

    /// Uncordons the nodes that `stop` cordoned.
    async fn uncordon(&self, api: &ClusterApi) -> Result<()> {
        let note: Cordoned = self.journal.output(Cordoned::NOTE)?.unwrap_or_default();
        for name in note.nodes.iter().filter(|name| self.table.node(name).is_some()) {
            api.uncordon(&self.table.cluster_domain().fqdn(name.as_str())).await?;
        }
        self.journal.note(Cordoned::NOTE, &Cordoned::default())
    }

    /// Cordons all nodes, and shuts them down in order.
    pub async fn off(&self, options: StopOptions<'_>) -> Result<()> {
        self.cordon().await?;
        // Only this stop counts, not an earlier one whose end was not recorded.
        if !self.known.rehearsal {
            self.journal.forget(OFF)?;
        }
        for roles in STOP_ORDER {
            self.shut_down(roles, options).await?;
        }
        Ok(())
    }

    /// Powers all machines off at once.
    pub async fn power_off(&self) -> Result<()> {
        let mut left = Vec::new();
        for roles in STOP_ORDER {
            left.extend(self.stop_all(roles, Stop::Force, AT_ONCE).await?);
        }
        self.all_off(left, AT_ONCE)
    }

    /// Starts the machines in order, and waits until the nodes have their addresses and are Ready.
    pub async fn on(&self, limit: Duration) -> Result<()> {
        if !self.known.rehearsal {
            for machine in self.machines().await?.iter().filter(|machine| is_off(machine)) {
                self.note_off(machine).await?;
            }
        }
        for roles in STOP_ORDER.iter().rev() {
            self.switch_on(roles).await?;
        }
        self.addresses_are_back(limit).await?;
        self.nodes_are_back(limit).await
    }

    async fn shut_down(&self, roles: &[Role], options: StopOptions<'_>) -> Result<()> {
        let mut left = self.stop_all(roles, Stop::Graceful, options.limit).await?;
        if !left.is_empty() && options.power_off {
            warn!(target: PROGRESS, step = "stop", "powering off {} that did not shut down", count(left.len(), "machine"));
            left = self.stop_all(roles, Stop::Force, AT_ONCE).await?;
        }
        self.all_off(left, options.limit)
    }

    fn all_off(&self, left: Vec<MachineName>, after: Duration) -> Result<()> {
        if left.is_empty() {
            return Ok(());
        }
        let text = format!(
            "{} still on after {} s: {}",
            count(left.len(), "machine"),
            after.as_secs(),
            names(&left)
        );
        let hint = format!(
            "run the same command again to wait longer, or power them off with `ocpdeploy stop {} --power-off`",
            self.known.name
        );
        Err(OperationError::new(ErrorKind::Waited, text).hint(hint).into())
    }

    /// Stops the machines of these roles; returns those that still run when the time is over.
    async fn stop_all(&self, roles: &[Role], how: Stop, limit: Duration) -> Result<Vec<MachineName>> {
        let id = self.known.id();
        let begun = Instant::now();
        let mut asked = None::<Instant>;
        let mut reported = BTreeSet::new();
        let mut broken = BTreeSet::new();
        loop {
            let queried = Instant::now();
            let machines = self.machines().await?;
            let query = queried.elapsed();
            let of_roles = machines.iter().filter(|machine| roles.contains(&machine.role));
            let (off, on): (Vec<_>, Vec<_>) =
                of_roles.partition(|machine| is_off(machine) || broken.contains(&machine.name));
            for machine in off {
                if reported.insert(machine.name.clone()) {
                    self.note_off(machine).await?;
                    info!(target: PROGRESS, step = "stop", node = %machine.node, state = "off", done = true);
                }
            }
            if on.is_empty() || begun.elapsed() >= limit {
                return Ok(on.into_iter().map(|machine| machine.name.clone()).collect());
            }
            if asked.is_none_or(|when| when.elapsed() >= ASK_AGAIN) {
                asked = Some(Instant::now());
                let ask = async |machine: &Machine| {
                    // One that is off after a failure is reported as broken.
                    let is_broken = matches!(machine.power, Power::Broken(_));
                    let stopped = self.backend.stop_machine(&id, &machine.name, how).await?;
                    let is_broken_and_off = is_broken && stopped == backend::Action::Unchanged(());
                    Ok::<_, PlatformError>(is_broken_and_off.then(|| machine.name.clone()))
                };
                let asked = self.backend.concurrently(on, ask).await?;
                broken.extend(asked.into_iter().flatten());
            }
            sleep(self.backend.common_capabilities().pause_after(query)).await;
        }
    }

    /// Records that a machine was off: its node may need a new first certificate, and no other machine uses its name
    /// meanwhile.
    ///
    /// Recorded before the machine is switched on, so that the record survives an interruption.
    async fn note_off(&self, machine: &Machine) -> Result<()> {
        // A rehearsal has no certificates.
        if self.known.rehearsal {
            return Ok(());
        }
        self.journal.mark(&Step::named(format!("{OFF}/{}", machine.node))).await
    }

    /// Nodes whose machines were off since they were last Ready.
    fn seen_off(&self) -> BTreeSet<NodeName> {
        let off = |node: &&NodeAddress| self.journal.done_at(&format!("{OFF}/{}", node.name)).is_some();
        self.nodes().filter(off).map(|node| node.name.clone()).collect()
    }

    async fn switch_on(&self, roles: &[Role]) -> Result<()> {
        let id = self.known.id();
        let nodes = self.table.nodes.iter().filter(|node| roles.contains(&node.role));
        let switch = async |node: &NodeAddress| {
            if let backend::Action::Done(()) = self.backend.start_machine(&id, &self.name_of(node)).await? {
                info!(target: PROGRESS, step = "start", node = %node.name, state = "booting");
            }
            Ok::<_, PlatformError>(())
        };
        self.backend.concurrently(nodes, switch).await?;
        Ok(())
    }

    pub fn name_of(&self, node: &NodeAddress) -> MachineName {
        MachineName::of_node(&self.known.name, &node.name)
    }

    pub fn nodes(&self) -> impl Iterator<Item = &NodeAddress> {
        self.table.nodes.iter().filter(|node| node.role != Role::Bootstrap)
    }

    /// Waits until each machine has its planned address; additional addresses are allowed.
    async fn addresses_are_back(&self, limit: Duration) -> Result<()> {
        let begun = Instant::now();
        let mut before = Vec::new();
        loop {
            let queried = Instant::now();
            let machines = self.machines().await?;
            let query = queried.elapsed();
            let mut away = Vec::new();
            for node in self.nodes() {
                let machine = machines.iter().find(|machine| machine.node == node.name);
                let seen = judge_planned(machine, node.mac, node.ip);
                match &seen {
                    Seen::Address(ip) if *ip == node.ip => {}
                    Seen::Several(ips) if ips.contains(&node.ip) => {}
                    _ => away.push((node.clone(), seen)),
                }
            }
            if away.is_empty() {
                return Ok(());
            }
            // A machine that shows another address twice in a row keeps it.
            for (node, seen) in &away {
                if let (Seen::Address(ip), true) = (seen, before.contains(&(node.clone(), seen.clone()))) {
                    let text = format!("{} started with {ip}, the table has {}", self.name_of(node), node.ip);
                    let hint = format!(
                        "`ocpdeploy verify {} --repair` corrects the reservations; restart the machine afterwards",
                        self.known.name
                    );
                    return Err(OperationError::new(ErrorKind::Platform, text).hint(hint).into());
                }
            }
            if begun.elapsed() >= limit {
                let line = |(node, seen): &(NodeAddress, Seen)| format!("\n  {} {seen}", self.name_of(node));
                let lines: String = away.iter().map(line).collect();
                let number = count(away.len(), "machine");
                let text = format!("{number} not running after {} s:{lines}", begun.elapsed().as_secs());
                let cluster = &self.known.name;
                let hint = format!(
                    "run the same command again to wait longer; `ocpdeploy status {cluster}` shows the machines, and \
                     `ocpdeploy node console {cluster} NODE` a node's console"
                );
                return Err(OperationError::new(ErrorKind::Waited, text).hint(hint).into());
            }
            before = away;
            sleep(self.backend.common_capabilities().pause_after(query)).await;
        }
    }

    /// Approves the certificates of the nodes, which may have expired meanwhile, and waits until they are Ready.
    async fn nodes_are_back(&self, limit: Duration) -> Result<()> {
        if !self.known.rehearsal {
            let api = self.api().await?;
            let nodes = self.nodes().map(|node| node.name.clone()).collect();
            let cluster = wait::Cluster {
                api: &api,
                table: &self.table,
                pools: &[],
            };
            cluster.nodes_back(&nodes, &self.seen_off(), limit).await?;
            self.uncordon(&api).await?;
            return self.journal.forget(OFF);
        }
        if self.backend.common_capabilities().guests_reachable {
            let guests: Vec<_> = self.nodes().map(|node| (node.name.clone(), node.ip)).collect();
            installer::guests_answer(&guests, limit).await?;
        }
        Ok(())
    }
}
