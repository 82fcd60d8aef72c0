//! Manifests of kubevirt-csi-driver for one cluster; pure.
//!
//! The driver runs in the deployed cluster and creates data volumes in the namespace of its machines, to which it attaches
//! them. Requirements: kubevirt/csi-driver: `cmd/kubevirt-csi-driver/kubevirt-csi-driver.go` (options; `resolveNodeID` for
//! the annotations of nodes), `pkg/kubevirt/client.go` (requests to the platform), `deploy/` (its own manifests).
//! Snapshots and larger volumes are left out: they require further rights on the platform, also outside of the namespace.

use serde_json::{Value, json};

use super::labels;
use crate::cluster::{ClusterId, MachineName};
use crate::templates::{self, TemplateError};

/// What the manifests depend on.
pub struct Csi<'a> {
    pub cluster: &'a ClusterId,
    /// The platform's API server, and the namespace of the machines.
    pub server: &'a str,
    pub namespace: &'a str,
    /// The platform's storage class; `None`: its default one.
    pub class: Option<&'a str>,
    /// Names of nodes in the deployed cluster, and their machines.
    pub nodes: Vec<(String, MachineName)>,
}

impl Csi<'_> {
    /// A service account on the platform, with the driver's rights.
    pub fn platform(&self) -> Result<String, TemplateError> {
        templates::render("platform.yaml", include_str!("csi/platform.yaml"), &self.values())
    }

    /// The driver in the deployed cluster, its storage class, and annotations of the nodes.
    pub fn cluster(&self) -> Result<String, TemplateError> {
        templates::render("cluster.yaml", include_str!("csi/cluster.yaml"), &self.values())
    }

    fn values(&self) -> Value {
        let folder = "/var/run/secrets/infracluster";
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "platform", "cluster": {
                "server": self.server,
                "certificate-authority": format!("{folder}/ca.crt"),
            }}],
            "users": [{"name": "driver", "user": {"tokenFile": format!("{folder}/token")}}],
            "contexts": [{"name": "platform", "context": {"cluster": "platform", "user": "driver"}}],
            "current-context": "platform",
        });
        let nodes = self
            .nodes
            .iter()
            .map(|(name, machine)| json!({"name": name, "machine": machine.as_str()}));
        json!({
            "cluster": self.cluster.domain().as_str(),
            "name": format!("{}-csi", self.cluster.domain().name()),
            "tag": self.cluster.tag(),
            "server": self.server,
            "namespace": self.namespace,
            "class": self.class,
            "place": format!("--infra-cluster-namespace={}", self.namespace),
            "labels": format!("--infra-cluster-labels={}={}", labels::CLUSTER, self.cluster.tag()),
            "kubeconfig": kubeconfig.to_string(),
            "nodes": nodes.collect::<Vec<_>>(),
        })
    }
}
