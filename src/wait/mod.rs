//! Bounded waits for a cluster that is being installed, which say what they see.
//!
//! They mean what `openshift-install wait-for bootstrap-complete` and `install-complete` mean, and need no DNS here.
//! Source: openshift/installer, `cmd/openshift-install/command/waitfor.go`.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use futures::try_join;
use jiff::Timestamp;
use tokio::time::{Instant, sleep, timeout};
use tracing::info;

use crate::PROGRESS;
use crate::cluster::{NodeName, Role};
use crate::cluster_api::{ApiError, ClusterApi};
use crate::parameters::Parameters;

pub mod certificates;
pub mod clock;
pub mod seen;
pub mod symptoms;

use certificates::{Approver, Rejoin};
use seen::{Nodes, Operators, Version};

/// Pause between two looks: short after news, then longer.
const SOONEST: Duration = Duration::from_millis(200);
const LATEST: Duration = Duration::from_secs(5);

/// So long a server may be another than it should, or refuse us: a VIP moves, and an API server starts.
const DOUBT: Duration = Duration::from_secs(60);

/// Why a wait ended without what was waited for.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    #[error("no {what} within {} s{}", after.as_secs(), indented(seen))]
    TooLong {
        /// `bootstrap-complete`, `install-complete`, `Ready nodes`.
        what: &'static str,
        after: Duration,
        /// What was seen last.
        seen: Vec<String>,
        source: Option<ApiError>,
    },
    #[error("the wait for {what} is hopeless")]
    Hopeless { what: &'static str, source: ApiError },
}

impl WaitError {
    /// What a user can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::TooLong { .. } => {
                "the machines are kept: the same command waits on, longer with bootstrap_timeout or install_timeout"
            }
            Self::Hopeless { .. } => "mend the cause and run the same command again: it goes on from here",
        }
    }
}

fn indented(lines: &[String]) -> String {
    let lines: String = lines.iter().map(|line| format!("\n  {line}")).collect();
    if lines.is_empty() {
        lines
    } else {
        format!("; seen last:{lines}")
    }
}

/// A cluster that is waited for.
#[derive(Clone, Copy)]
pub struct Cluster<'a> {
    pub api: &'a ClusterApi,
    pub table: &'a Parameters,
}

/// What one look brought.
enum Look {
    Done,
    /// With what is to be told of it, one line a matter.
    NotYet(Vec<String>),
}

impl Cluster<'_> {
    /// Waits until the masters carry the cluster without the bootstrap machine.
    pub async fn bootstrap_complete(self, limit: Duration) -> Result<(), WaitError> {
        let masters = self.of_roles(&[Role::Master]);
        let look = async || {
            let (done, nodes, etcd) = try_join!(
                self.api.config_map("kube-system", "bootstrap"),
                self.api.nodes(),
                self.api.etcd()
            )?;
            if done.is_some_and(|done| seen::is_complete(&done)) {
                return Ok(Look::Done);
            }
            let nodes = Nodes::of(self.table, &nodes);
            let mut lines = vec![nodes.text("masters", &masters)];
            lines.extend(etcd.as_ref().and_then(seen::etcd_text));
            Ok(Look::NotYet(lines))
        };
        until("bootstrap-complete", limit, look).await
    }

    /// Waits until the cluster is whole, and lets its nodes in meanwhile.
    pub async fn install_complete(self, limit: Duration) -> Result<(), WaitError> {
        let all = self.of_roles(&[Role::Master, Role::Worker]);
        let mut steady = Steady::default();
        let look = async || {
            let (nodes, operators, version) = try_join!(
                self.api.nodes(),
                self.api.cluster_operators(),
                self.api.cluster_version()
            )?;
            let nodes = Nodes::of(self.table, &nodes);
            let operators = Operators::of(&operators);
            let version = version.as_ref().map(Version::of);
            let whole = nodes.are_ready(&all) && version.as_ref().is_some_and(|version| version.is_done);
            if whole && steady.is_reached(&operators) {
                return Ok(Look::Done);
            }
            let mut lines = vec![nodes.text("nodes", &all), operators.text()];
            lines.extend(operators.details());
            lines.extend(version.map(|version| version.text));
            Ok(Look::NotYet(lines))
        };
        self.beside(Rejoin::Refuse, &all, limit, until("install-complete", limit, look))
            .await
    }

    /// Waits until these nodes are Ready, and lets them in meanwhile.
    pub async fn nodes_ready(
        self,
        nodes: &BTreeSet<NodeName>,
        rejoin: Rejoin,
        limit: Duration,
    ) -> Result<(), WaitError> {
        let look = async || {
            let seen = Nodes::of(self.table, &self.api.nodes().await?);
            Ok(match seen.are_ready(nodes) {
                true => Look::Done,
                false => Look::NotYet(vec![seen.text("nodes", nodes)]),
            })
        };
        self.beside(rejoin, nodes, limit, until("Ready nodes", limit, look))
            .await
    }

    fn of_roles(&self, roles: &[Role]) -> BTreeSet<NodeName> {
        let nodes = self.table.nodes.iter();
        nodes
            .filter(|node| roles.contains(&node.role))
            .map(|node| node.name.clone())
            .collect()
    }

    /// Waits with an approver beside, which may take as long as the wait.
    async fn beside(
        self,
        rejoin: Rejoin,
        nodes: &BTreeSet<NodeName>,
        limit: Duration,
        wait: impl Future<Output = Result<(), WaitError>>,
    ) -> Result<(), WaitError> {
        let approved = async {
            let mut approver = Approver::new(self, rejoin);
            // What it did not get done shows in the nodes.
            let _ = timeout(limit, approver.run(nodes)).await;
            Ok(())
        };
        try_join!(wait, approved).map(drop)
    }
}

/// Looks until it is done, and tells what is new. What an API server in its first minutes does is no reason to stop.
async fn until(
    what: &'static str,
    limit: Duration,
    mut look: impl AsyncFnMut() -> Result<Look, ApiError>,
) -> Result<(), WaitError> {
    let end = Instant::now() + limit;
    let mut pace = Pace::default();
    let (mut shown, mut doubt, mut last_error) = (Vec::new(), None, None);
    loop {
        let looked = timeout(end.saturating_duration_since(Instant::now()), look()).await;
        let lines = match looked {
            Ok(Ok(Look::Done)) => return Ok(()),
            Ok(Ok(Look::NotYet(lines))) => {
                (doubt, last_error) = (None, None);
                lines
            }
            Ok(Err(source)) if source.is_final() => return Err(WaitError::Hopeless { what, source }),
            Ok(Err(error)) => {
                let since = doubt.get_or_insert_with(Instant::now);
                if !error.is_passing() && since.elapsed() > DOUBT {
                    return Err(WaitError::Hopeless { what, source: error });
                }
                if error.is_passing() {
                    doubt = None;
                }
                let line = error.to_string();
                last_error = Some(error);
                vec![line]
            }
            Err(_) => shown.clone(),
        };
        for line in lines.iter().filter(|line| !shown.contains(*line)) {
            info!(target: PROGRESS, step = what, "{line}");
        }
        let pause = pace.next(lines != shown);
        shown = lines;
        if Instant::now() + pause >= end {
            // The error says itself what was seen last.
            let seen = if last_error.is_some() { Vec::new() } else { shown };
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

/// Pauses that grow while nothing happens.
pub struct Pace(Duration);

impl Default for Pace {
    fn default() -> Self {
        Self(SOONEST)
    }
}

impl Pace {
    /// The pause after a look.
    pub fn next(&mut self, news: bool) -> Duration {
        self.0 = if news { SOONEST } else { (self.0 * 3 / 2).min(LATEST) };
        self.0
    }
}

/// Whether operators have kept still for a while, by their own clock or by ours.
#[derive(Default)]
struct Steady(Option<(Instant, Operators)>);

impl Steady {
    /// As long as openshift-install wants it.
    const TIME: Duration = Duration::from_secs(30);

    fn is_reached(&mut self, operators: &Operators) -> bool {
        if operators.are_steady(Timestamp::now(), Self::TIME) {
            return true;
        }
        match &self.0 {
            Some((since, before)) if before == operators => operators.lag.is_empty() && since.elapsed() >= Self::TIME,
            _ => {
                self.0 = Some((Instant::now(), operators.clone()));
                false
            }
        }
    }
}
