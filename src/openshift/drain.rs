//! Drains a node: cordons it and evicts its pods, as far as their disruption budgets allow.
//!
//! Evicts the same pods as `kubectl drain`: neither DaemonSet pods, which belong to the node, nor static pods, which
//! the kubelet starts itself. Source: kubernetes/kubernetes: `staging/src/k8s.io/kubectl/pkg/drain/filters.go`.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::PROGRESS;
use crate::openshift::api::{ApiError, ClusterApi, Eviction};

/// Annotation of a static pod.
const STATIC: &str = "kubernetes.io/config.mirror";

/// Time between two queries of the remaining pods.
const PAUSE: Duration = Duration::from_millis(800);

/// The label of a guard pod: it represents a static pod in its disruption budget (openshift/library-go:
/// `pkg/operator/staticpod/controller/guard/manifests/guard-pod.yaml`). Its operator recreates it, without an owner.
const GUARD: (&str, &str) = ("app", "guard");

/// The kind whose operator recreates a pod that it owns without controlling it (operator-framework/
/// operator-lifecycle-manager: `pkg/controller/registry/reconciler/grpc.go`; newer ones control it).
const CATALOG: &str = "CatalogSource";

/// Options of a drain.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    pub limit: Duration,
    /// Delete pods that are not evicted in time or have no controller.
    pub force: bool,
    /// Delete the data of emptyDir volumes.
    pub delete_emptydir_data: bool,
}

/// Why a node could not be drained.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    #[error("draining {node} would delete:{}{}", lines(lonely), lines(local))]
    Loses {
        node: String,
        /// Pods without a controller.
        lonely: Vec<String>,
        /// Pods with data in emptyDir volumes.
        local: Vec<String>,
    },
    #[error("{node} still runs pods after {} s:{}", after.as_secs(), lines(pods))]
    Stuck {
        node: String,
        after: Duration,
        /// With the reason, if the cluster reported one.
        pods: Vec<String>,
    },
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl DrainError {
    /// What a user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Loses { local, .. } if local.is_empty() => {
                Some("nothing was changed; move or delete these pods, or use --force to delete them")
            }
            Self::Loses { lonely, .. } if lonely.is_empty() => Some(
                "nothing was changed; save the data of these pods, then use --delete-emptydir-data to delete the rest",
            ),
            Self::Loses { .. } => Some(
                "nothing was changed; save the data of these pods, then use --force --delete-emptydir-data to delete the rest",
            ),
            Self::Stuck { .. } => Some(
                "nothing was removed, and the node is cordoned; to wait longer, run the same command again with a \
                 larger --drain-timeout; to delete these pods, use --force; to use the node again, run `oc adm uncordon`",
            ),
            Self::Api(_) => None,
        }
    }
}

fn lines(pods: &[String]) -> String {
    pods.iter().map(|pod| format!("\n  {pod}")).collect()
}

/// Drains a node, by its full name. A node that is not in the cluster counts as drained. `is_off` is whether the
/// platform reports its machine as off.
pub async fn drain(api: &ClusterApi, node: &str, is_off: bool, how: Drain) -> Result<(), DrainError> {
    if api.node(node).await?.is_none() {
        return Ok(());
    }
    let begun = Instant::now();
    refuse_losses(node, &leaving(api, node).await?, how)?;
    api.cordon(node).await?;
    // Some pods are recreated at once on this very node: guards are bound to it, and some tolerate every taint. As in
    // kubectl, only the pods that exist now must leave.
    let here: BTreeSet<String> = leaving(api, node).await?.iter().filter_map(ResourceExt::uid).collect();
    let (mut reported, mut silence_reported) = (0, false);
    loop {
        let mut pods = leaving(api, node).await?;
        pods.retain(|pod| pod.uid().is_some_and(|uid| here.contains(&uid)));
        if pods.is_empty() {
            return Ok(());
        }
        if pods.len() != reported {
            reported = pods.len();
            info!(target: PROGRESS, step = "drain", "{node}: evicting {reported} pods");
        }
        let asked = ask(api, &pods).await?;
        // Pods terminate only when their kubelet confirms it. Without a kubelet it is sufficient that they may be
        // evicted.
        let is_silent = is_off || api.node(node).await?.as_ref().is_some_and(is_unreachable);
        let stay = match is_silent {
            true => asked.refused,
            false => [asked.refused, asked.ending].concat(),
        };
        if is_silent && !silence_reported {
            silence_reported = true;
            warn!(target: PROGRESS, step = "drain", "{node}: the kubelet is down; not waiting for its pods to terminate");
        }
        if stay.is_empty() {
            return Ok(());
        }
        if begun.elapsed() + PAUSE > how.limit {
            let (node, after) = (node.to_owned(), begun.elapsed());
            if how.force {
                warn!(target: PROGRESS, step = "drain", "{node}: continuing with {} pods left:{}", stay.len(), lines(&stay));
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

/// Lists the losses that the user has not allowed.
fn refuse_losses(node: &str, pods: &[Pod], how: Drain) -> Result<(), DrainError> {
    let lonely = pods.iter().filter(|pod| is_lonely(pod)).map(name);
    let lonely: Vec<String> = lonely
        .map(|pod| format!("{pod}: not managed by a controller"))
        .collect();
    let local = pods
        .iter()
        .filter_map(|pod| Some(format!("{}: its data in {}", name(pod), local_data(pod)?)));
    let local: Vec<String> = local.collect();
    let (lonely_kept, local_kept) = (
        !how.force && !lonely.is_empty(),
        !how.delete_emptydir_data && !local.is_empty(),
    );
    if lonely_kept || local_kept {
        return Err(DrainError::Loses {
            node: node.to_owned(),
            lonely: if lonely_kept { lonely } else { Vec::new() },
            local: if local_kept { local } else { Vec::new() },
        });
    }
    for lost in lonely.iter().chain(&local) {
        warn!(target: PROGRESS, step = "drain", "{node}: deleting {lost}");
    }
    Ok(())
}

/// Whether the node lifecycle controller has lost contact with a node's kubelet.
///
/// Source: kubernetes/kubernetes: `pkg/controller/nodelifecycle/node_lifecycle_controller.go`, `tryUpdateNodeHealth`.
fn is_unreachable(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "Unknown")
}

/// The state of evicted pods, with the reason.
#[derive(Default)]
struct Asked {
    ending: Vec<String>,
    refused: Vec<String>,
}

/// Evicts each pod that is not terminating yet.
async fn ask(api: &ClusterApi, pods: &[Pod]) -> Result<Asked, ApiError> {
    let mut asked = Asked::default();
    for pod in pods {
        let eviction = match pod.metadata.deletion_timestamp {
            Some(_) => Eviction::Begun,
            None => api.evict(&pod.namespace().unwrap_or_default(), &pod.name_any()).await?,
        };
        match eviction {
            Eviction::Begun => asked.ending.push(format!("{}: is terminating", name(pod))),
            Eviction::Gone => {}
            Eviction::NotNow(why) => asked.refused.push(format!("{}: {why}", name(pod))),
        }
    }
    Ok(asked)
}

/// The pods that must leave a node.
async fn leaving(api: &ClusterApi, node: &str) -> Result<Vec<Pod>, ApiError> {
    let mut pods = api.pods_on(node).await?;
    pods.retain(|pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let ended = matches!(phase, Some("Succeeded" | "Failed"));
        !ended && !pod.annotations().contains_key(STATIC) && owner(pod) != Some("DaemonSet")
    });
    Ok(pods)
}

/// The kind of the owner that would recreate the pod elsewhere.
fn owner(pod: &Pod) -> Option<&str> {
    let owners = pod.owner_references().iter();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    controllers.next().map(|owner| owner.kind.as_str())
}

fn is_lonely(pod: &Pod) -> bool {
    let comes_again = pod.labels().get(GUARD.0).is_some_and(|label| label == GUARD.1) && is_of_openshift(pod)
        || pod.owner_references().iter().any(|owner| owner.kind == CATALOG);
    owner(pod).is_none() && !comes_again
}

/// Only the cluster itself creates pods in these namespaces.
fn is_of_openshift(pod: &Pod) -> bool {
    pod.namespace()
        .is_some_and(|namespace| namespace.starts_with("openshift-"))
}

/// The emptyDir volumes of a pod, by name; `None` without any.
fn local_data(pod: &Pod) -> Option<String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let local = volumes.filter(|volume| volume.empty_dir.is_some());
    let names: Vec<&str> = local.map(|volume| volume.name.as_str()).collect();
    (!names.is_empty()).then(|| format!("emptyDir {}", names.join(", ")))
}

fn name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A pod of `namespace/name` with this metadata and these volumes.
    fn pod(name: &str, mut metadata: Value, volumes: Value) -> Pod {
        let (namespace, name) = name.split_once('/').unwrap();
        metadata["namespace"] = namespace.into();
        metadata["name"] = name.into();
        let pod = json!({"metadata": metadata, "spec": {"containers": [], "volumes": volumes}});
        serde_json::from_value(pod).unwrap()
    }

    fn owned(kind: &str, is_controller: bool) -> Value {
        json!({"ownerReferences": [
            {"apiVersion": "v1", "kind": kind, "name": "owner", "uid": "1", "controller": is_controller},
        ]})
    }

    #[test]
    fn a_pod_that_nothing_recreates_is_lonely() {
        let label = |app: &str| json!({"labels": {"app": app}});
        for (name, metadata, expected) in [
            ("shop/cart", json!({}), true),
            ("shop/cart", owned("ReplicaSet", true), false),
            ("shop/cart", owned("ReplicaSet", false), true),
            ("openshift-marketplace/catalog", owned("CatalogSource", false), false),
            ("openshift-etcd/guard", label("guard"), false),
            ("openshift-etcd/guard", label("other"), true),
            ("openshift-etcd/guard", json!({}), true),
            ("shop/guard", label("guard"), true),
        ] {
            let pod = pod(name, metadata.clone(), json!([]));
            assert_eq!(is_lonely(&pod), expected, "{name} {metadata}");
        }
    }

    #[test]
    fn each_loss_requires_its_own_flag() {
        let volumes = json!([
            {"name": "cache", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}, {"name": "config", "configMap": {"name": "c"}},
        ]);
        let pods = [
            pod("shop/cart", json!({}), json!([])),
            pod("shop/page", owned("ReplicaSet", true), volumes),
            pod("shop/api", owned("ReplicaSet", true), json!([])),
        ];
        let refused = |pods: &[Pod], force, delete_emptydir_data| {
            let limit = Duration::ZERO;
            let how = Drain {
                limit,
                force,
                delete_emptydir_data,
            };
            let error = refuse_losses("worker-0", pods, how).err()?;
            Some((error.to_string(), error.hint().unwrap()))
        };
        let head = "draining worker-0 would delete:";
        let cart = "\n  shop/cart: not managed by a controller";
        let page = "\n  shop/page: its data in emptyDir cache, tmp";
        for (force, delete_data, losses, flags) in [
            (
                false,
                false,
                format!("{head}{cart}{page}"),
                " use --force --delete-emptydir-data to delete ",
            ),
            (
                true,
                false,
                format!("{head}{page}"),
                " use --delete-emptydir-data to delete ",
            ),
            (false, true, format!("{head}{cart}"), " use --force to delete "),
        ] {
            let (text, hint) = refused(&pods, force, delete_data).unwrap();
            assert_eq!(text, losses);
            assert!(hint.contains(flags), "{hint}");
        }
        assert_eq!(refused(&pods, true, true), None);
        assert_eq!(refused(&pods[2..], false, false), None);
    }

    #[test]
    fn a_node_is_unreachable_if_its_ready_condition_is_unknown() {
        for (kind, status, expected) in [
            ("Ready", "Unknown", true),
            ("Ready", "True", false),
            ("Ready", "False", false),
            ("MemoryPressure", "Unknown", false),
        ] {
            let node = json!({"metadata": {}, "status": {"conditions": [{"type": kind, "status": status}]}});
            let node = serde_json::from_value(node).unwrap();
            assert_eq!(is_unreachable(&node), expected, "{kind} {status}");
        }
    }
}
