//! Waits with a time limit for a cluster that is being installed; they report the observed state.
//!
//! Equivalent to `openshift-install wait-for bootstrap-complete` and `install-complete`, without DNS on this computer.
//! Source: openshift/installer, `cmd/openshift-install/command/waitfor.go`.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use futures::try_join;
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::PROGRESS;
use crate::cluster::{NodeName, Role};
use crate::export;
use crate::openshift::api::ApiError;
use crate::state::home::write_private;
use crate::state::parameters::NodeAddress;

pub mod certificates;
pub mod clock;
mod cluster;
pub mod heartbeats;
mod pools;
pub mod seen;
pub mod symptoms;

use certificates::{Approver, Rejoin};
pub use cluster::Cluster;
use cluster::{LATEST, PROMPT, PollInterval, PolledStatus, is_hopeless, prompt_for};
use heartbeats::Heartbeats;
use seen::{Nodes, Operators, Status, VersionProgress};

/// How long the Etcd resource must be missing before the cluster counts as having none: an API server that has just
/// started may not have all kinds yet.
const ABSENT: Duration = Duration::from_secs(5);

/// Why a wait failed.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    #[error("timed out waiting for {what} after {} s{}", after.as_secs(), indented(seen))]
    TooLong {
        /// `bootstrap-complete`, `bootstrap-member-removed`, `install-complete`, `the CA of the routers`,
        /// `Ready nodes`, `etcd members`, `the labels of pools`.
        what: &'static str,
        after: Duration,
        /// The last observed state.
        seen: Vec<String>,
        source: Option<ApiError>,
    },
    #[error("cannot continue waiting for {what}")]
    Hopeless { what: &'static str, source: ApiError },
}

impl WaitError {
    /// What a user can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::TooLong { .. } => {
                "the machines are kept; to continue waiting, run the same command again (settings: bootstrap_timeout, install_timeout)"
            }
            Self::Hopeless { .. } => "fix the cause; to resume, run the same command again",
        }
    }
}

fn indented(lines: &[String]) -> String {
    let lines: String = lines.iter().map(|line| format!("\n  {line}")).collect();
    if lines.is_empty() {
        lines
    } else {
        format!("; last status:{lines}")
    }
}

/// The result of one query.
enum Look {
    /// With the last status, of waits that observe one.
    Done(Status),
    NotYet(Status),
}

impl Cluster<'_> {
    /// Waits until the control plane runs without the bootstrap machine.
    pub async fn bootstrap_complete(self, limit: Duration) -> Result<(), WaitError> {
        let groups = [("masters", Role::Master), ("arbiter", Role::Arbiter)];
        let groups = groups.map(|(name, role)| (name, self.of_roles(&[role])));
        let mut status = PolledStatus::default();
        let look = async || {
            let done = self.api.config_map("kube-system", "bootstrap").await?;
            if done.is_some_and(|done| seen::is_complete(&done)) {
                return Ok(Look::Done(Status::default()));
            }
            let query = async {
                let (nodes, etcd) = try_join!(self.api.nodes(), self.api.etcd())?;
                let seen = Nodes::of(self.table, &nodes);
                let groups = groups.iter().filter(|(_, wanted)| !wanted.is_empty());
                let mut status = Status::default();
                for (name, wanted) in groups {
                    status.add_nodes(name, &seen, wanted);
                }
                status.lines.extend(etcd.as_ref().and_then(seen::etcd_text));
                Ok::<_, ApiError>(status)
            };
            Ok(Look::NotYet(status.get(query).await?))
        };
        until("bootstrap-complete", limit, PROMPT, ApiError::is_passing, look).await
    }

    /// Waits until the bootstrap is no longer a member of etcd; before that its machine must not be deleted.
    ///
    /// The etcd operator removes it only after the ConfigMap says `complete`. openshift-install waits for the same
    /// (openshift/installer, `cmd/openshift-install/command/waitfor.go`: `EtcdBootstrapMemberRemoved`).
    pub async fn bootstrap_member_removed(self, limit: Duration) -> Result<(), WaitError> {
        let mut absent_since = None;
        let look = async || {
            let Some(etcd) = self.api.etcd().await? else {
                let since: &mut Instant = absent_since.get_or_insert_with(Instant::now);
                return Ok(match since.elapsed() >= ABSENT {
                    true => Look::Done(Status::default()),
                    false => Look::NotYet("etcd: the cluster has no etcd operator".to_owned().into()),
                });
            };
            absent_since = None;
            Ok(match seen::has_no_bootstrap(&etcd) {
                true => Look::Done(Status::default()),
                false => Look::NotYet(seen::bootstrap_in_etcd_text(&etcd).into()),
            })
        };
        until("bootstrap-member-removed", limit, PROMPT, ApiError::is_passing, look).await
    }

    /// Waits until the machine config operator has accepted these node disruption policies for files.
    pub async fn disruption_policies(self, policies: &[Value], limit: Duration) -> Result<(), WaitError> {
        let look = async || {
            let configuration = self.api.machine_configuration().await?;
            let missing = seen::missing_policies(configuration.as_ref(), policies);
            Ok(match missing.is_empty() {
                true => Look::Done(Status::default()),
                false => {
                    let missing = missing.join(", ");
                    Look::NotYet(format!("MachineConfiguration cluster: no policy for {missing} in its status").into())
                }
            })
        };
        until("node-disruption-policy", limit, PROMPT, ApiError::is_passing, look).await
    }

    /// Waits until each of these nodes is a voting member of etcd, and enough members are healthy.
    pub async fn etcd_members(self, nodes: &[NodeAddress], limit: Duration) -> Result<(), WaitError> {
        let look = async || {
            Ok(match self.etcd_lacks(nodes).await? {
                None => Look::Done(Status::default()),
                Some(lack) => Look::NotYet(lack.into()),
            })
        };
        until("etcd members", limit, PROMPT, ApiError::is_passing, look).await
    }

    /// What etcd needs until each of these nodes is a voting member and enough members are healthy.
    pub async fn etcd_lacks(self, nodes: &[NodeAddress]) -> Result<Option<String>, ApiError> {
        let (endpoints, etcd) = try_join!(self.api.etcd_endpoints(), self.api.etcd())?;
        Ok(match (endpoints, etcd) {
            (Some(endpoints), Some(etcd)) => seen::etcd_lacks(&endpoints, &etcd, nodes),
            _ => Some("etcd's operator does not report its members".to_owned()),
        })
    }

    /// Waits until the cluster is complete, and approves its nodes' certificates meanwhile.
    pub async fn install_complete(self, limit: Duration) -> Result<(), WaitError> {
        let all = self.of_roles(&[Role::Master, Role::Arbiter, Role::Worker]);
        let (mut steady, mut status) = (Steady::default(), PolledStatus::default());
        let look = async || {
            let version = self.api.cluster_version().await?.as_ref().map(VersionProgress::of);
            let is_done = version.as_ref().is_some_and(|version| version.is_done);
            if is_done {
                // From now on, the lists of nodes and operators decide. Before, they are only for the status, and are
                // queried less often because they are large.
                status = PolledStatus::default();
            }
            let mut degraded = None;
            let query = async {
                let (nodes, operators) = try_join!(self.api.nodes(), self.api.cluster_operators())?;
                let overtaken = self.label_pools(&nodes).await?;
                let (nodes, operators) = (Nodes::of(self.table, &nodes), Operators::of(&operators));
                let are_ready = nodes.are_ready(&all) && overtaken.is_empty();
                if is_done && are_ready && steady.is_reached(&operators) {
                    degraded = Some(operators.details());
                }
                let mut status = Status::default();
                status.add_nodes("nodes", &nodes, &all);
                status.add_operators(&operators);
                Ok::<_, ApiError>(status)
            };
            let mut status = status.get(query).await?;
            if let Some(degraded) = degraded {
                for line in degraded {
                    warn!(target: PROGRESS, step = "install-complete", "{line}");
                }
                return Ok(Look::Done(status));
            }
            status.lines.extend(version.map(|version| version.text));
            Ok(Look::NotYet(status))
        };
        let prompt = prompt_for(all.len());
        let wait = until("install-complete", limit, prompt, ApiError::is_passing, look);
        self.beside(Rejoin::Refuse, &all, limit, wait).await
    }

    /// Adds the CA of the routers to the admin's kubeconfig, so that `oc login` trusts the cluster's OAuth server.
    /// Without an ingress operator there is none (openshift/cluster-ingress-operator:
    /// `pkg/operator/controller/certificate-publisher`).
    pub async fn trust_routers(self, kubeconfig: &Path, limit: Duration) -> Result<(), WaitError> {
        const WHAT: &str = "the CA of the routers";
        let mut found = None;
        let look = async || {
            found = self
                .api
                .config_map("openshift-config-managed", "default-ingress-cert")
                .await?;
            Ok(Look::Done(Status::default()))
        };
        until(WHAT, limit, LATEST, ApiError::is_passing, look).await?;
        let Some(ca) = found.and_then(|found| found.data?.remove("ca-bundle.crt")) else {
            return Ok(());
        };
        let unusable = |why: String| WaitError::Hopeless {
            what: WHAT,
            source: ApiError::Kubeconfig {
                path: kubeconfig.to_owned(),
                why,
            },
        };
        let text = fs_err::read_to_string(kubeconfig).map_err(|error| unusable(error.to_string()))?;
        match export::kubeconfig::with_router_ca(&text, &ca).map_err(unusable)? {
            Some(text) => write_private(kubeconfig, text.as_bytes()).map_err(|error| unusable(error.to_string())),
            None => Ok(()),
        }
    }

    /// Waits until these new nodes are Ready, and approves their certificates meanwhile.
    pub async fn nodes_ready(self, nodes: &BTreeSet<NodeName>, limit: Duration) -> Result<(), WaitError> {
        let look = async || {
            let objects = self.api.nodes().await?;
            let overtaken = self.label_pools(&objects).await?;
            let seen = Nodes::of(self.table, &objects);
            Ok(match overtaken.is_empty() {
                true => ready(&seen, nodes),
                false => Look::NotYet(pools::pending(&overtaken).into()),
            })
        };
        let wait = until(
            "Ready nodes",
            limit,
            prompt_for(self.table.nodes.len()),
            ApiError::is_passing,
            look,
        );
        self.beside(Rejoin::Refuse, nodes, limit, wait).await
    }

    /// Waits until every existing node of a pool has its labels and taints.
    pub async fn pools_labeled(self, limit: Duration) -> Result<(), WaitError> {
        let look = async || {
            let nodes = self.api.nodes().await?;
            let overtaken = self.label_pools(&nodes).await?;
            Ok(match overtaken.is_empty() {
                true => Look::Done(Status::default()),
                false => Look::NotYet(pools::pending(&overtaken).into()),
            })
        };
        until("the labels of pools", limit, LATEST, ApiError::is_passing, look).await
    }

    /// Waits until these nodes, which were off, are Ready again, and approves their certificates meanwhile. `off` are
    /// those whose machines were recorded as off.
    pub async fn nodes_back(
        self,
        nodes: &BTreeSet<NodeName>,
        off: &BTreeSet<NodeName>,
        limit: Duration,
    ) -> Result<(), WaitError> {
        let mut heartbeats = Heartbeats::default();
        let look = async || {
            let (objects, leases) = try_join!(self.api.nodes(), self.api.node_leases())?;
            heartbeats.look(self.table, &leases, Instant::now());
            let seen = Nodes::of(self.table, &objects).believing(&heartbeats);
            Ok(ready(&seen, nodes))
        };
        let wait = until(
            "Ready nodes",
            limit,
            prompt_for(self.table.nodes.len()),
            ApiError::is_passing_at_start,
            look,
        );
        self.beside(Rejoin::Allow { off }, nodes, limit, wait).await
    }

    fn of_roles(&self, roles: &[Role]) -> BTreeSet<NodeName> {
        let nodes = self.table.nodes.iter();
        nodes
            .filter(|node| roles.contains(&node.role))
            .map(|node| node.name.clone())
            .collect()
    }

    /// Waits with a concurrent approver, which may take as long as the wait.
    async fn beside(
        self,
        rejoin: Rejoin<'_>,
        nodes: &BTreeSet<NodeName>,
        limit: Duration,
        wait: impl Future<Output = Result<(), WaitError>>,
    ) -> Result<(), WaitError> {
        let approved = async {
            let mut approver = Approver::new(self, rejoin);
            match timeout(limit, approver.run(nodes)).await {
                Ok(Err(source)) => Err(WaitError::Hopeless {
                    what: "certificate requests",
                    source,
                }),
                // Its unfinished work is visible in the nodes.
                _ => Ok(()),
            }
        };
        try_join!(wait, approved).map(drop)
    }
}

fn ready(seen: &Nodes, nodes: &BTreeSet<NodeName>) -> Look {
    let mut status = Status::default();
    status.add_nodes("nodes", seen, nodes);
    match seen.are_ready(nodes) {
        true => Look::Done(status),
        false => Look::NotYet(status),
    }
}

/// Polls until done, at least once in `latest`, and reports changes. Errors of an API server in its first minutes do
/// not end the wait.
async fn until(
    what: &'static str,
    limit: Duration,
    latest: Duration,
    is_passing: fn(&ApiError) -> bool,
    mut look: impl AsyncFnMut() -> Result<Look, ApiError>,
) -> Result<(), WaitError> {
    let end = Instant::now() + limit;
    let mut interval = PollInterval::up_to(latest);
    let (mut shown, mut doubt, mut last_error) = (Status::default(), None, None);
    loop {
        let looked = timeout(end.saturating_duration_since(Instant::now()), look()).await;
        let status = match looked {
            Ok(Ok(Look::Done(status))) => {
                report(what, &status, &shown);
                return Ok(());
            }
            Ok(Ok(Look::NotYet(status))) => {
                (doubt, last_error) = (None, None);
                status
            }
            Ok(Err(source)) if source.is_final() => return Err(WaitError::Hopeless { what, source }),
            Ok(Err(error)) => {
                let since = doubt.get_or_insert_with(Instant::now);
                if is_hopeless(&error, is_passing, since.elapsed()) {
                    return Err(WaitError::Hopeless { what, source: error });
                }
                if is_passing(&error) {
                    doubt = None;
                }
                let text = error.to_string();
                last_error = Some(error);
                // Nothing newer is known of the nodes and operators.
                let mut status = shown.clone();
                status.lines = vec![text];
                status
            }
            Err(_) => shown.clone(),
        };
        report(what, &status, &shown);
        let pause = interval.next(status != shown);
        shown = status;
        if Instant::now() + pause >= end {
            // The error itself contains the last state.
            let seen = if last_error.is_some() {
                Vec::new()
            } else {
                shown.summary()
            };
            return Err(WaitError::TooLong {
                what,
                after: limit,
                seen,
                source: last_error,
            });
        }
        sleep(pause).await;
    }
}

/// Reports what has changed: a row for each node, for each operator that is not ready, and for each operator that has
/// become ready.
///
/// openshift-install shows the message of the ClusterVersion, which names some of the operators (openshift/installer:
/// `cmd/openshift-install/command/waitfor.go`, `waitForInitializedCluster`).
fn report(step: &'static str, status: &Status, before: &Status) {
    let nodes = status.nodes.len();
    if nodes != before.nodes.len() && nodes > 0 {
        info!(target: PROGRESS, step, total = nodes);
    }
    for (node, lacks) in &status.nodes {
        if before.nodes.get(node) != Some(lacks) {
            let (state, text) = match lacks {
                None => ("ready", ""),
                Some(why) => ("joining", why.as_str()),
            };
            info!(target: PROGRESS, step, %node, state, done = lacks.is_none(), "{text}");
        }
    }
    for (operator, why) in &status.operators {
        if before.operators.get(operator) != Some(why) {
            info!(target: PROGRESS, step, item = %format_args!("operator {operator}"), state = "waiting", "{why}");
        }
    }
    for operator in before
        .operators
        .keys()
        .filter(|name| !status.operators.contains_key(*name))
    {
        info!(target: PROGRESS, step, item = %format_args!("operator {operator}"), state = "available", done = true);
    }
    for line in status.lines.iter().filter(|line| !before.lines.contains(line)) {
        info!(target: PROGRESS, step, "{line}");
    }
}

/// Whether no operator has been progressing for a while, by their own clock or by this computer's.
#[derive(Default)]
struct Steady(Option<(Instant, BTreeMap<String, Timestamp>)>);

impl Steady {
    /// The time that openshift-install requires.
    const TIME: Duration = Duration::from_secs(30);

    fn is_reached(&mut self, operators: &Operators) -> bool {
        if operators.are_steady(Timestamp::now(), Self::TIME) {
            return true;
        }
        if !operators.busy.is_empty() {
            self.0 = None;
            return false;
        }
        match &self.0 {
            Some((since, before)) if *before == operators.still_since => since.elapsed() >= Self::TIME,
            _ => {
                self.0 = Some((Instant::now(), operators.still_since.clone()));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::cluster::DOUBT;
    use super::*;

    #[test]
    fn an_expired_certificate_is_hopeless_in_an_installation_but_not_at_a_start() {
        let ended = ApiError::ServerExpired {
            operation: "list the nodes".to_owned(),
            address: ([192, 0, 2, 10], 6443).into(),
            name: "api.lab.example.com".to_owned(),
            why: "certificate expired".to_owned(),
        };
        let long = DOUBT * 20;
        assert!(is_hopeless(&ended, ApiError::is_passing, long));
        assert!(!is_hopeless(&ended, ApiError::is_passing, DOUBT));
        assert!(!is_hopeless(&ended, ApiError::is_passing_at_start, long));
    }

    #[test]
    fn an_api_without_certificate_requests_is_hopeless() {
        let missing = ApiError::Refused {
            operation: "list certificate requests".to_owned(),
            name: "api.lab.example.com".to_owned(),
            code: 404,
            why: "404 page not found".to_owned(),
        };
        for is_passing in [ApiError::is_passing, ApiError::is_passing_at_start] {
            assert!(is_hopeless(&missing, is_passing, DOUBT * 2));
            assert!(!is_hopeless(&missing, is_passing, DOUBT));
        }
    }
}
