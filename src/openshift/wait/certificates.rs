//! Approves the certificate requests of the table's nodes, the client's first, then the serving one.
//!
//! Required on platform `none`. `csr` decides; this module acts. Approving twice is harmless, so no state is stored.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::cluster::{Cluster, LATEST, PollInterval, is_hopeless};
use super::heartbeats::{Heartbeats, node_of};
use super::seen::Nodes;
use crate::PROGRESS;
use crate::cluster::NodeName;
use crate::openshift::api::{ApiError, Approval};
use crate::openshift::csr::{self, Judgement, Request, Wave};

/// The longest time between two queries, even without a trigger.
const LOOK: Duration = Duration::from_secs(10);

/// Kubernetes keeps approved requests for this time.
const KEPT: SignedDuration = SignedDuration::from_hours(1);

/// A kubelet may request its serving certificate this long before the API has its Node: both happen at its start.
const EARLY: SignedDuration = SignedDuration::from_secs(10);

/// After this time without a request, returning nodes that already had all certificates need no others.
const SETTLED: Duration = Duration::from_secs(20);

/// Whether a node that is already in the cluster may request a first certificate.
#[derive(Clone, Copy, Debug)]
pub enum Rejoin<'a> {
    /// Not allowed: it has one.
    Refuse,
    /// Allowed, because its own expired while it was off.
    ///
    /// The token of joining nodes can request a certificate in the name of any node. So requests are only approved for
    /// nodes whose kubelets are silent. A member of etcd must also be in `off`, the recorded powered-off machines.
    Allow { off: &'a BTreeSet<NodeName> },
}

/// The decision about a node's client certificate request.
enum Entry {
    Allowed,
    /// It is not known yet whether the node's kubelet runs.
    NotYet,
    Refused(String),
}

/// Approves pending requests until all nodes have their certificates.
pub struct Approver<'a> {
    cluster: Cluster<'a>,
    rejoin: Rejoin<'a>,
    heartbeats: Heartbeats,
    /// Rejected requests that were already reported.
    refused: BTreeSet<String>,
    last_approval: Instant,
}

impl<'a> Approver<'a> {
    pub fn new(cluster: Cluster<'a>, rejoin: Rejoin<'a>) -> Self {
        Self {
            cluster,
            rejoin,
            heartbeats: Heartbeats::default(),
            refused: BTreeSet::new(),
            last_approval: Instant::now(),
        }
    }

    /// Returns when each of these nodes is Ready and has its serving certificate. Retries API errors, and fails if one
    /// lasts, for example because the API has no certificate requests.
    pub async fn run(&mut self, wanted: &BTreeSet<NodeName>) -> Result<(), ApiError> {
        let mut interval = PollInterval::default();
        let mut doubt = None;
        loop {
            match self.round(wanted).await {
                Ok(Round::Complete) => return Ok(()),
                Ok(Round::Open { version }) => {
                    doubt = None;
                    // A server that triggers continuously must not be queried continuously.
                    sleep(interval.next(true)).await;
                    self.cluster.api.requests_change(&version, self.look()).await;
                }
                Err(error) => {
                    let is_passing = match self.rejoin {
                        Rejoin::Refuse => ApiError::is_passing,
                        Rejoin::Allow { .. } => ApiError::is_passing_at_start,
                    };
                    let since = *doubt.get_or_insert_with(Instant::now);
                    if is_hopeless(&error, is_passing, since.elapsed()) {
                        return Err(error);
                    }
                    if is_passing(&error) {
                        doubt = None;
                    }
                    self.heartbeats.interrupted(Instant::now());
                    sleep(interval.next(false)).await;
                }
            }
        }
    }

    /// The longest time between two queries: a kubelet that becomes silent does not trigger one.
    fn look(&self) -> Duration {
        match self.rejoin {
            Rejoin::Refuse => LOOK,
            Rejoin::Allow { .. } => LATEST,
        }
    }

    async fn round(&mut self, wanted: &BTreeSet<NodeName>) -> Result<Round, ApiError> {
        let nodes = self.cluster.api.nodes().await?;
        let (mut requests, version) = self.cluster.api.requests().await?;
        let mut seen = Nodes::of(self.cluster.table, &nodes);
        if let Rejoin::Allow { .. } = self.rejoin {
            let leases = self.cluster.api.node_leases().await?;
            self.heartbeats.look(self.cluster.table, &leases, Instant::now());
            seen = seen.believing(&self.heartbeats);
        }
        // A kubelet waits for its newest request: it sends a new one if there is no answer.
        requests.sort_by_key(|request| Reverse(request.creation_timestamp().map(|created| created.0)));
        let mut unused = self.unused(&requests, &seen);
        let mut serving = self.old_enough(&nodes);
        serving.extend(self.served(&requests, &nodes));
        for request in &requests {
            match self.consider(request, &seen, &mut unused).await {
                // A request that cannot be approved must not delay the others.
                Err(error @ ApiError::Refused { .. }) if !error.is_passing() => {
                    self.tell_once(request, &error.to_string())
                }
                considered => considered?,
            }
        }
        let is_quiet = matches!(self.rejoin, Rejoin::Refuse) || self.last_approval.elapsed() >= SETTLED;
        let complete = is_quiet && seen.are_ready(wanted) && wanted.iter().all(|node| serving.contains(node));
        Ok(if complete {
            Round::Complete
        } else {
            Round::Open { version }
        })
    }

    async fn consider(
        &mut self,
        object: &CertificateSigningRequest,
        seen: &Nodes,
        unused: &mut BTreeMap<NodeName, String>,
    ) -> Result<(), ApiError> {
        if !matches!(decision(object), Decision::Open) {
            return Ok(());
        }
        let (name, table) = (object.name_any(), self.cluster.table);
        let (node, wave) = match self.judge(object, seen) {
            Judgement::Approve(node, wave) => (node, wave),
            Judgement::Leave => return Ok(()),
            Judgement::Refuse(why) => {
                self.tell_once(object, &why);
                return Ok(());
            }
        };
        if wave == Wave::Client {
            match self.entry(&node, seen, unused) {
                Entry::Allowed => {}
                Entry::NotYet => return Ok(()),
                Entry::Refused(why) => {
                    self.tell_once(object, &why);
                    return Ok(());
                }
            }
        }
        let reason = format!("{node} is in the parameter file of {}", table.cluster_domain());
        if self.cluster.api.approve(object, &reason).await? == Approval::Given {
            self.last_approval = Instant::now();
            info!(target: PROGRESS, %node, state = "joining", "{wave} certificate approved ({name})");
            if wave == Wave::Client {
                unused.insert(node, name);
            }
        }
        Ok(())
    }

    fn judge(&self, object: &CertificateSigningRequest, seen: &Nodes) -> Judgement {
        let joined = match self.rejoin {
            Rejoin::Refuse => seen.joined(),
            Rejoin::Allow { .. } => BTreeSet::new(),
        };
        csr::judge(&request(object), self.cluster.table, &joined)
    }

    /// Whether a node with a valid client certificate request gets the certificate now.
    fn entry(&self, node: &NodeName, seen: &Nodes, unused: &BTreeMap<NodeName, String>) -> Entry {
        let refused = Entry::Refused;
        let previous = unused
            .get(node)
            .map(|other| format!("{node} has not used its previous certificate {other} yet"));
        let Rejoin::Allow { off } = self.rejoin else {
            return match (previous, unused.get(node)) {
                (Some(why), Some(other)) => refused(format!(
                    "{why}; if its machine was recreated since, run `oc delete certificatesigningrequest {other}`"
                )),
                _ => Entry::Allowed,
            };
        };
        let has_etcd = self.cluster.table.node(node).is_some_and(|node| node.role.has_etcd());
        if !seen.joined().contains(node) {
            let cluster = &self.cluster.table.cluster;
            return refused(format!(
                "{node} is not in the cluster; recreate it with `ocpdeploy node replace {cluster} {node}`"
            ));
        }
        if has_etcd && !off.contains(node) {
            return refused(format!(
                "neither `stop` nor `start` saw the machine of {node} powered off"
            ));
        }
        if let Some(why) = previous {
            return refused(why);
        }
        match (
            self.heartbeats.is_silent(node, Instant::now()),
            self.heartbeats.has_renewed(node),
        ) {
            (true, _) => Entry::Allowed,
            (false, true) => refused(format!("the kubelet of {node} is running: it renews its Lease")),
            (false, false) => Entry::NotYet,
        }
    }

    /// Requests for client certificates that were granted, by node, and that no kubelet has used yet. A joining kubelet
    /// uses its certificate to request the serving one, a rejoining kubelet also to renew its Lease.
    fn unused(&self, requests: &[CertificateSigningRequest], seen: &Nodes) -> BTreeMap<NodeName, String> {
        let created = |object: &CertificateSigningRequest| object.creation_timestamp().map(|created| created.0);
        let mut unused = BTreeMap::new();
        for object in requests
            .iter()
            .filter(|object| matches!(decision(object), Decision::Approved))
        {
            let judged = csr::judge(&request(object), self.cluster.table, &BTreeSet::new());
            let Judgement::Approve(node, Wave::Client) = judged else {
                continue;
            };
            let is_used = match self.rejoin {
                Rejoin::Refuse => {
                    let user = csr::user_of(&node, self.cluster.table);
                    let by_node = |other: &&CertificateSigningRequest| other.spec.username.as_ref() == Some(&user);
                    let mut later = requests.iter().filter(by_node).map(created);
                    seen.joined().contains(&node) || later.any(|later| later >= created(object))
                }
                // Without a Lease, the certificate is unused.
                Rejoin::Allow { .. } => self.heartbeats.renewed(&node) >= created(object),
            };
            if !is_used {
                unused.insert(node, object.name_any());
            }
        }
        unused
    }

    fn tell_once(&mut self, request: &CertificateSigningRequest, why: &str) {
        let name = request.name_any();
        if self.refused.insert(name.clone()) {
            let who = request.spec.username.as_deref().unwrap_or_default();
            warn!(target: PROGRESS, step = "certificates", "not approving request {name} of {who}: {why}");
        }
    }

    /// Nodes whose serving certificate was granted, by any approver, since they joined: an earlier request belongs to a
    /// deleted node with the same name.
    fn served(&self, requests: &[CertificateSigningRequest], nodes: &[Node]) -> BTreeSet<NodeName> {
        let joined = self.joined_at(nodes);
        let is_of_node = |object: &CertificateSigningRequest, node: &NodeName| {
            let created = object.creation_timestamp().map(|created| created.0);
            matches!((created, joined.get(node)), (Some(created), Some(joined)) if created + EARLY >= *joined)
        };
        let mut served = BTreeSet::new();
        for object in requests
            .iter()
            .filter(|object| matches!(decision(object), Decision::Approved))
        {
            match csr::judge(&request(object), self.cluster.table, &BTreeSet::new()) {
                Judgement::Approve(node, Wave::Serving) if is_of_node(object, &node) => {
                    served.insert(node);
                }
                _ => {}
            }
        }
        served
    }

    /// Nodes that exist for longer than their requests are kept.
    fn old_enough(&self, nodes: &[Node]) -> BTreeSet<NodeName> {
        let now = Timestamp::now();
        let joined = self.joined_at(nodes).into_iter();
        let old = joined.filter(|(_, joined)| now.duration_since(*joined) > KEPT);
        old.map(|(node, _)| node).collect()
    }

    /// When each of the table's nodes joined the cluster.
    fn joined_at(&self, nodes: &[Node]) -> BTreeMap<NodeName, Timestamp> {
        let table = self.cluster.table;
        let joined = |node: &Node| Some((node_of(table, &node.name_any())?, node.creation_timestamp()?.0));
        nodes.iter().filter_map(joined).collect()
    }
}

enum Round {
    Complete,
    /// Some are missing; with the version of the list of requests.
    Open {
        version: String,
    },
}

enum Decision {
    Open,
    Approved,
    Denied,
}

/// An earlier decision, by this program or another approver.
fn decision(request: &CertificateSigningRequest) -> Decision {
    let conditions = request
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let kinds: BTreeSet<&str> = conditions.map(|condition| condition.type_.as_str()).collect();
    match (
        kinds.contains("Denied") || kinds.contains("Failed"),
        kinds.contains("Approved"),
    ) {
        (true, _) => Decision::Denied,
        (false, true) => Decision::Approved,
        (false, false) => Decision::Open,
    }
}

/// The parts of the object that the decision needs.
fn request(object: &CertificateSigningRequest) -> Request {
    let spec = &object.spec;
    Request {
        signer: spec.signer_name.clone(),
        username: spec.username.clone().unwrap_or_default(),
        groups: spec.groups.clone().unwrap_or_default(),
        usages: spec.usages.clone().unwrap_or_default(),
        pem: spec.request.0.clone(),
    }
}
