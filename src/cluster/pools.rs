//! Node pools: named groups of workers with sizes, networks, labels and taints of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

use super::architecture::Architecture;
use super::names::Mac;
use super::size::Size;

/// A named group of workers. Its nodes are `<pool>-0`, `<pool>-1` and so on, and join as workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pool {
    pub name: String,
    pub nodes: usize,
    /// That of the cluster, unless the release is for several architectures.
    #[serde(skip_serializing_if = "Architecture::is_default")]
    pub arch: Architecture,
    pub size: Size,
    /// Networks of the additional NICs of its nodes.
    pub extra_networks: Vec<String>,
    /// In addition to the label of its role: see `node_labels`.
    pub labels: BTreeMap<String, String>,
    pub taints: BTreeSet<Taint>,
    /// It has a MachineConfigPool, so that a MachineConfig can apply to its nodes only.
    pub own_configs: bool,
    /// By number; empty if not set.
    pub macs: Vec<Mac>,
    pub ips: Vec<IpAddr>,
}

impl Pool {
    /// The label of its role, by which `oc get nodes` and a MachineConfigPool identify its nodes.
    ///
    /// A kubelet may not set it on its own node (kubernetes/kubernetes:
    /// `plugin/pkg/admission/noderestriction/admission.go`, `getForbiddenLabels`).
    pub fn role_label(&self) -> String {
        format!("node-role.kubernetes.io/{}", self.name)
    }

    /// All labels of its nodes.
    pub fn node_labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.labels.clone();
        labels.insert(self.role_label(), String::new());
        labels
    }

    /// Whether its taints exclude pods without a toleration, such as the routers.
    pub fn repels_pods(&self) -> bool {
        self.taints.iter().any(|taint| taint.effect != Effect::PreferNoSchedule)
    }
}

#[cfg(test)]
impl Pool {
    /// A pool of workers that differ in nothing but their names.
    pub(crate) fn example(name: &str, nodes: usize) -> Self {
        let config = super::ClusterConfig::example();
        Self {
            name: name.to_owned(),
            nodes,
            arch: config.arch,
            size: config.worker_size,
            extra_networks: config.extra_networks,
            labels: BTreeMap::new(),
            taints: BTreeSet::new(),
            own_configs: false,
            macs: vec![],
            ips: vec![],
        }
    }
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Taint {
    pub key: String,
    pub effect: Effect,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
}

/// The effect of a taint on pods that do not tolerate it (kubernetes/api: `core/v1/types.go`, `TaintEffect`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Effect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

impl Effect {
    pub const ALL: [Effect; 3] = [Effect::NoSchedule, Effect::PreferNoSchedule, Effect::NoExecute];
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, effect, value } = self;
        match value.is_empty() {
            true => write!(f, "{key}:{effect}"),
            false => write!(f, "{key}={value}:{effect}"),
        }
    }
}
