//! Lets the table's nodes into the cluster: approves their certificate requests, the client's first, then the serving one.
//!
//! On platform `none` nobody else does. `csr` judges; here is the doing. Approving again is no harm, so nothing is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use tokio::time::sleep;
use tracing::{info, warn};

use super::seen::Nodes;
use super::{Cluster, Pace};
use crate::PROGRESS;
use crate::cluster::{MachineName, NodeName};
use crate::cluster_api::{ApiError, Approval};
use crate::csr::{self, Judgement, Request, Wave};

/// The longest time between two looks, whatever the server rings.
const LOOK: Duration = Duration::from_secs(10);

/// Requests that were approved are kept so long by Kubernetes.
const KEPT: SignedDuration = SignedDuration::from_hours(1);

/// So long nothing was asked any more of nodes that come back and have asked for all this before.
const SETTLED: Duration = Duration::from_secs(20);

/// What a node may ask for that is in the cluster already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejoin {
    /// No first certificate: it has one.
    Refuse,
    /// A first certificate again: it was off when its own ended.
    Allow,
}

/// Approves what is due, until all have what they need.
pub struct Approver<'a> {
    cluster: Cluster<'a>,
    rejoin: Rejoin,
    /// Requests whose refusal was told.
    refused: BTreeSet<String>,
    /// Nodes whose serving certificate was granted, by whomever.
    serving: BTreeSet<NodeName>,
    last_approval: Instant,
}

impl<'a> Approver<'a> {
    pub fn new(cluster: Cluster<'a>, rejoin: Rejoin) -> Self {
        Self {
            cluster,
            rejoin,
            refused: BTreeSet::new(),
            serving: BTreeSet::new(),
            last_approval: Instant::now(),
        }
    }

    /// Returns when each of these nodes is Ready and has its serving certificate. Faults of the API are waited out.
    pub async fn run(&mut self, wanted: &BTreeSet<NodeName>) {
        let mut pace = Pace::default();
        loop {
            match self.round(wanted).await {
                Ok(Round::Complete) => return,
                Ok(Round::Open { version }) => {
                    // A server that rings at once and for ever must not be asked at once and for ever.
                    sleep(pace.next(true)).await;
                    self.cluster.api.requests_change(&version, LOOK).await;
                }
                // Whoever waits beside says what is wrong with the API.
                Err(_) => sleep(pace.next(false)).await,
            }
        }
    }

    async fn round(&mut self, wanted: &BTreeSet<NodeName>) -> Result<Round, ApiError> {
        let nodes = self.cluster.api.nodes().await?;
        let (requests, version) = self.cluster.api.requests().await?;
        let seen = Nodes::of(self.cluster.table, &nodes);
        let joined = match self.rejoin {
            Rejoin::Refuse => seen.joined(),
            Rejoin::Allow => BTreeSet::new(),
        };
        for request in &requests {
            match self.consider(request, &joined).await {
                // One that cannot be approved keeps nobody else waiting.
                Err(error @ ApiError::Refused { .. }) if !error.is_passing() => {
                    self.tell_once(request, &error.to_string())
                }
                considered => considered?,
            }
        }
        self.serving.extend(self.old_enough(&nodes));
        let settled = self.rejoin == Rejoin::Refuse || self.last_approval.elapsed() >= SETTLED;
        let complete = settled && seen.are_ready(wanted) && wanted.iter().all(|node| self.serving.contains(node));
        Ok(if complete {
            Round::Complete
        } else {
            Round::Open { version }
        })
    }

    async fn consider(
        &mut self,
        object: &CertificateSigningRequest,
        joined: &BTreeSet<NodeName>,
    ) -> Result<(), ApiError> {
        let (name, table) = (object.name_any(), self.cluster.table);
        let request = request(object);
        match decision(object) {
            Decision::Denied => return Ok(()),
            Decision::Approved => {
                if let Judgement::Approve(node, Wave::Serving) = csr::judge(&request, table, joined) {
                    self.serving.insert(node);
                }
                return Ok(());
            }
            Decision::Open => {}
        }
        match csr::judge(&request, table, joined) {
            Judgement::Leave => {}
            Judgement::Refuse(why) => self.tell_once(object, &why),
            Judgement::Approve(node, wave) => {
                let reason = format!("{node} is in the parameter file of {}", table.id());
                if self.cluster.api.approve(object, &reason).await? == Approval::Given {
                    self.last_approval = Instant::now();
                    let machine = MachineName::of_node(&table.cluster, &node);
                    info!(target: PROGRESS, machine = %machine, state = "joining", "{wave} certificate approved ({name})");
                    if wave == Wave::Serving {
                        self.serving.insert(node);
                    }
                }
            }
        }
        Ok(())
    }

    fn tell_once(&mut self, request: &CertificateSigningRequest, why: &str) {
        let name = request.name_any();
        if self.refused.insert(name.clone()) {
            let who = request.spec.username.as_deref().unwrap_or_default();
            warn!(target: PROGRESS, step = "certificates", "request {name} of {who} is not approved: {why}");
        }
    }

    /// Nodes that have been there for longer than their requests are kept.
    fn old_enough(&self, nodes: &[Node]) -> BTreeSet<NodeName> {
        let created: BTreeMap<String, Timestamp> = nodes
            .iter()
            .filter_map(|node| Some((node.name_any(), node.creation_timestamp()?.0)))
            .collect();
        let (id, now) = (self.cluster.table.id(), Timestamp::now());
        let planned = self.cluster.table.nodes.iter().filter(|node| {
            let created = created.get(&id.fqdn(node.name.as_str()));
            created.is_some_and(|created| now.duration_since(*created) > KEPT)
        });
        planned.map(|node| node.name.clone()).collect()
    }
}

enum Round {
    Complete,
    /// Something is missing; with the version of the list of requests.
    Open {
        version: String,
    },
}

enum Decision {
    Open,
    Approved,
    Denied,
}

/// What was decided already, here or elsewhere.
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

/// What of the object is judged.
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
