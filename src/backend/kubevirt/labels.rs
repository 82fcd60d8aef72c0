//! Labels and other metadata of objects.

use serde_json::{Value, json};

use crate::cluster::{ClusterId, MachineName};

/// The cluster that owns an object; on every object.
pub(super) const CLUSTER: &str = "ocpdeploy.io/cluster";
/// The machine that an object belongs to.
pub(super) const MACHINE: &str = "ocpdeploy.io/machine";
pub(super) const NODE: &str = "ocpdeploy.io/node";
pub(super) const ROLE: &str = "ocpdeploy.io/role";
pub(super) const PASS: &str = "ocpdeploy.io/pass";
/// An image that clusters share; the value is a prefix of the image's digest.
pub(super) const IMAGE: &str = "ocpdeploy.io/image";
/// The fingerprint of the machine's spec.
pub(super) const FINGERPRINT: &str = "ocpdeploy.io/fingerprint";
/// Who began the deployment, and when.
pub(super) const CREATION: &str = "ocpdeploy.io/creation";
pub(super) const CONTROL_PLANE: &str = "ocpdeploy.io/control-plane";
/// The name of a snapshot, and its time in milliseconds.
pub(super) const SNAPSHOT: &str = "ocpdeploy.io/snapshot";
pub(super) const TAKEN: &str = "ocpdeploy.io/taken";
/// On masters and workers on the pod network: both may have routers, and selectors of Services have no "or".
pub(super) const STAYS: &str = "ocpdeploy.io/stays";

pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

pub(super) fn label<'a>(object: &'a Value, label: &str) -> Option<&'a str> {
    object["metadata"]["labels"][label].as_str()
}

/// Whether an object matches a selector: terms `key=value` or `key`, separated by commas.
pub(super) fn meets(object: &Value, selector: &str) -> bool {
    let terms = selector.split(',').filter(|term| !term.is_empty());
    terms.into_iter().all(|term| match term.split_once('=') {
        Some((key, value)) => label(object, key) == Some(value),
        None => label(object, term).is_some(),
    })
}

/// Whether an object is being deleted.
pub(super) fn is_going(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The cluster that an object belongs to.
pub(super) fn owner(object: &Value) -> Option<ClusterId> {
    ClusterId::read(label(object, CLUSTER)?)
}

/// The owners of an object; it is deleted with them.
pub(super) fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

pub(super) fn of_cluster(cluster: &ClusterId) -> String {
    format!("{CLUSTER}={}", cluster.tag())
}

pub(super) fn of_machine(cluster: &ClusterId, machine: &MachineName) -> String {
    format!("{CLUSTER}={},{MACHINE}={machine}", cluster.tag())
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
