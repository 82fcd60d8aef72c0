//! Labels and taints of the nodes in pools.
//!
//! They are set through the API, as soon as a node exists: a kubelet may neither give its node the label of a role, nor
//! change its taints later (kubernetes/kubernetes: `plugin/pkg/admission/noderestriction/admission.go`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::ResourceExt;
use tracing::info;

use super::cluster::Cluster;
use crate::PROGRESS;
use crate::cluster::Pool;
use crate::openshift::api::ApiError;

/// What a node lacks of its pool's labels and taints.
#[derive(Clone, Debug, PartialEq)]
struct Lack {
    labels: BTreeMap<String, String>,
    /// All taints that the node must have, others' included; `None` if it has those of its pool.
    taints: Option<Vec<Taint>>,
}

/// Compares a node with its pool; `None` if it lacks nothing. Taints of the same key and effect are one taint, as for
/// `kubectl taint` (kubernetes/kubernetes: `staging/src/k8s.io/api/core/v1/taint.go`, `MatchTaint`).
fn lack(node: &Node, pool: &Pool) -> Option<Lack> {
    let mut labels = pool.node_labels();
    labels.retain(|key, value| node.labels().get(key) != Some(value));
    let wanted: Vec<Taint> = pool
        .taints
        .iter()
        .map(|taint| Taint {
            key: taint.key.clone(),
            value: Some(taint.value.clone()).filter(|value| !value.is_empty()),
            effect: taint.effect.to_string(),
            time_added: None,
        })
        .collect();
    let has = node.spec.as_ref().and_then(|spec| spec.taints.clone());
    let mut taints = has.unwrap_or_default();
    let is_there = |taint: &Taint| {
        let same =
            |other: &Taint| (&other.key, &other.effect, &other.value) == (&taint.key, &taint.effect, &taint.value);
        taints.iter().any(same)
    };
    let are_there = wanted.iter().all(is_there);
    if labels.is_empty() && are_there {
        return None;
    }
    taints.retain(|other| {
        let is_other = |taint: &Taint| (&other.key, &other.effect) != (&taint.key, &taint.effect);
        wanted.iter().all(is_other)
    });
    taints.extend(wanted);
    Some(Lack {
        labels,
        taints: (!are_there).then_some(taints),
    })
}

impl Cluster<'_> {
    /// Sets the labels and taints that nodes of pools lack. Returns the nodes to check again: they were
    /// changed in the meantime.
    pub(super) async fn label_pools(self, nodes: &[Node]) -> Result<Vec<String>, ApiError> {
        let id = self.table.cluster_domain();
        let mut overtaken = Vec::new();
        for node in nodes {
            let name = node.name_any();
            let known = id
                .host_of(&name)
                .map(|host| self.table.all_nodes().find(|known| known.name.as_str() == host));
            let Some(known) = known.flatten() else { continue };
            let pool = known
                .name
                .pool()
                .and_then(|of| self.pools.iter().find(|pool| pool.name == of));
            let Some((pool, lack)) = pool.and_then(|pool| Some((pool, lack(node, pool)?))) else {
                continue;
            };
            match self.api.label_node(node, &lack.labels, lack.taints.as_deref()).await? {
                true => {
                    info!(target: PROGRESS, node = %known.name, state = "joining", "labels and taints of pool {} are set", pool.name)
                }
                false => overtaken.push(known.name.to_string()),
            }
        }
        Ok(overtaken)
    }
}

/// What a wait reports of these nodes.
pub(super) fn pending(overtaken: &[String]) -> String {
    format!("pools: labels and taints of {} are not set yet", overtaken.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::Effect;

    fn node(labels: Value, taints: Value) -> Node {
        let node =
            json!({"metadata": {"name": "infra-0.lab.example.com", "labels": labels}, "spec": {"taints": taints}});
        serde_json::from_value(node).unwrap()
    }

    fn infra() -> Pool {
        let taint = |effect| crate::cluster::Taint {
            key: "dedicated".to_owned(),
            value: "infra".to_owned(),
            effect,
        };
        Pool {
            labels: [("tier".to_owned(), "one".to_owned())].into(),
            taints: [taint(Effect::NoSchedule), taint(Effect::NoExecute)].into(),
            ..Pool::example("infra", 1)
        }
    }

    #[test]
    fn missing_labels_and_taints_are_added_and_others_are_kept() {
        let foreign =
            json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule", "timeAdded": "2026-11-24T08:00:00Z"});
        let stale = json!({"key": "dedicated", "value": "other", "effect": "NoSchedule"});
        let new = lack(&node(json!({"tier": "two"}), json!([foreign, stale])), &infra()).unwrap();
        let labels: BTreeMap<String, String> = [("node-role.kubernetes.io/infra", ""), ("tier", "one")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        assert_eq!(new.labels, labels);
        let taints = serde_json::to_value(new.taints.unwrap()).unwrap();
        assert_eq!(
            taints,
            json!([foreign, {"key": "dedicated", "value": "infra", "effect": "NoSchedule"},
                {"key": "dedicated", "value": "infra", "effect": "NoExecute"}])
        );
        let whole = node(json!(labels), taints);
        assert_eq!(lack(&whole, &infra()), None);
        let mut only_labels = infra();
        only_labels.labels.insert("zone".to_owned(), "a".to_owned());
        let lack = lack(&whole, &only_labels).unwrap();
        assert_eq!((lack.labels.len(), lack.taints), (1, None));
    }
}
