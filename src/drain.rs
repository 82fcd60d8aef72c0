//! Empties a node: no new pods, and those there leave as far as their disruption budgets allow.
//!
//! What leaves is what `kubectl drain` takes away: not the pods of DaemonSets, which belong to the node, nor static ones,
//! which the kubelet runs by itself. Source: kubernetes/kubernetes: `staging/src/k8s.io/kubectl/pkg/drain/filters.go`.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::PROGRESS;
use crate::cluster_api::{ApiError, ClusterApi, Eviction};

/// Marks a pod of the kubelet's own.
const STATIC: &str = "kubernetes.io/config.mirror";

/// Between two looks at the pods that still are there.
const PAUSE: Duration = Duration::from_secs(1);

/// How a node is emptied.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    pub limit: Duration,
    /// Pods that do not leave in time, or that nothing would start elsewhere, are lost.
    pub force: bool,
}

/// Why a node is not empty.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    #[error("{node} has pods that nothing would start elsewhere:{}", lines(pods))]
    Lonely { node: String, pods: Vec<String> },
    #[error("{node} is not empty after {} s:{}", after.as_secs(), lines(pods))]
    Stuck {
        node: String,
        after: Duration,
        /// With the reason, where the cluster gave one.
        pods: Vec<String>,
    },
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl DrainError {
    /// What a user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Lonely { .. } => Some("move or delete them, or lose them with --force"),
            Self::Stuck { .. } => Some(
                "nothing was removed and the node takes no new pods: run the same command again to wait longer \
                 (--drain-timeout), or lose these pods with --force; `oc adm uncordon` takes it back",
            ),
            Self::Api(_) => None,
        }
    }
}

fn lines(pods: &[String]) -> String {
    pods.iter().map(|pod| format!("\n  {pod}")).collect()
}

/// Empties a node, by its full name. One that is not in the cluster is empty.
pub async fn drain(api: &ClusterApi, node: &str, how: Drain) -> Result<(), DrainError> {
    if api.node(node).await?.is_none() {
        return Ok(());
    }
    let begun = Instant::now();
    let lonely: Vec<String> = leaving(api, node).await?.iter().filter(is_lonely).map(name).collect();
    if !lonely.is_empty() && !how.force {
        let node = node.to_owned();
        return Err(DrainError::Lonely { node, pods: lonely });
    }
    api.cordon(node).await?;
    let mut told = 0;
    loop {
        let pods = leaving(api, node).await?;
        if pods.is_empty() {
            return Ok(());
        }
        if pods.len() != told {
            told = pods.len();
            info!(target: PROGRESS, step = "drain", "{node}: {told} pods are to leave");
        }
        let stay = ask(api, &pods).await?;
        if begun.elapsed() + PAUSE > how.limit {
            let (node, after) = (node.to_owned(), begun.elapsed());
            if how.force {
                warn!(target: PROGRESS, step = "drain", "{node}: left with {} pods:{}", stay.len(), lines(&stay));
                return Ok(());
            }
            return Err(DrainError::Stuck {
                node,
                after,
                pods: stay,
            });
        }
        sleep(PAUSE).await;
    }
}

/// Asks each pod to leave that is not about to; gives all of them, with the reason where one may not.
async fn ask(api: &ClusterApi, pods: &[Pod]) -> Result<Vec<String>, ApiError> {
    let mut stay = Vec::new();
    for pod in pods {
        let why = match pod.metadata.deletion_timestamp {
            Some(_) => "is ending".to_owned(),
            None => match api.evict(&pod.namespace().unwrap_or_default(), &pod.name_any()).await? {
                Eviction::Begun => "is ending".to_owned(),
                Eviction::Gone => continue,
                Eviction::NotNow(why) => why,
            },
        };
        stay.push(format!("{}: {why}", name(pod)));
    }
    Ok(stay)
}

/// The pods that must leave a node before it goes.
async fn leaving(api: &ClusterApi, node: &str) -> Result<Vec<Pod>, ApiError> {
    let mut pods = api.pods_on(node).await?;
    pods.retain(|pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let ended = matches!(phase, Some("Succeeded" | "Failed"));
        !ended && !pod.annotations().contains_key(STATIC) && owner(pod) != Some("DaemonSet")
    });
    Ok(pods)
}

/// The kind of what would start the pod elsewhere.
fn owner(pod: &Pod) -> Option<&str> {
    let owners = pod.owner_references().iter();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    controllers.next().map(|owner| owner.kind.as_str())
}

fn is_lonely(pod: &&Pod) -> bool {
    owner(pod).is_none()
}

fn name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}
