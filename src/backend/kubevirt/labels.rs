//! Whose an object is and what it stands for: on each as a label.

use serde_json::{Value, json};

use crate::cluster::{ClusterId, MachineName};

/// Whose an object is; on everything.
pub(super) const CLUSTER: &str = "ocpdeploy.io/cluster";
/// Which machine an object was made for alone.
pub(super) const MACHINE: &str = "ocpdeploy.io/machine";
pub(super) const NODE: &str = "ocpdeploy.io/node";
pub(super) const ROLE: &str = "ocpdeploy.io/role";
pub(super) const PASS: &str = "ocpdeploy.io/pass";
/// An image that clusters share; its value begins the image's digest.
pub(super) const IMAGE: &str = "ocpdeploy.io/image";
/// Of the spec a machine was made from.
pub(super) const FINGERPRINT: &str = "ocpdeploy.io/fingerprint";
pub(super) const CONTROL_PLANE: &str = "ocpdeploy.io/control-plane";
/// On the pods' own network: one label for all that remain when the bootstrap is gone.
pub(super) const STAYS: &str = "ocpdeploy.io/stays";

pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

pub(super) fn label<'a>(object: &'a Value, label: &str) -> Option<&'a str> {
    object["metadata"]["labels"][label].as_str()
}

/// Whether an object has what a selector of ours asks for: labels, `key=value` or `key`, between commas.
pub(super) fn meets(object: &Value, selector: &str) -> bool {
    let terms = selector.split(',').filter(|term| !term.is_empty());
    terms.into_iter().all(|term| match term.split_once('=') {
        Some((key, value)) => label(object, key) == Some(value),
        None => label(object, term).is_some(),
    })
}

/// The cluster an object belongs to.
pub(super) fn owner(object: &Value) -> Option<ClusterId> {
    label(object, CLUSTER).map(ClusterId::from_tag)
}

pub(super) fn of_cluster(cluster: &ClusterId) -> String {
    format!("{CLUSTER}={cluster}")
}

pub(super) fn of_machine(cluster: &ClusterId, machine: &MachineName) -> String {
    format!("{CLUSTER}={cluster},{MACHINE}={machine}")
}

fn owned_by(anchor: &Value) -> Value {
    json!([{
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": anchor["metadata"]["name"],
        "uid": anchor["metadata"]["uid"],
    }])
}

pub(super) fn metadata(name: String, labels: &Value, anchor: Option<&Value>) -> Value {
    let mut metadata = json!({"name": name, "labels": labels});
    if let Some(anchor) = anchor {
        metadata["ownerReferences"] = owned_by(anchor);
    }
    metadata
}
