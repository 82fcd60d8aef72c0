//! The objects of a cluster without a server: what `plan` writes.

use serde_json::Value;

use super::objects::{self, Root, Site};
use crate::backend::MachineSpec;
use crate::cluster::{ClusterId, KubevirtConfig};

/// The owner of all else.
pub fn anchor(cluster: &ClusterId) -> Value {
    objects::anchor(cluster)
}

/// A machine, and what it reads at its first boot where that `is_known`. No owner is named: only the server knows its id.
pub fn of_machine(config: &KubevirtConfig, spec: &MachineSpec, is_known: bool) -> Vec<Value> {
    let root = Root::read(&spec.image).unwrap_or_else(|| Root::Claim {
        namespace: config.namespace.clone().unwrap_or_default(),
        name: spec.image.0.clone(),
    });
    let site = Site {
        storage_class: config.storage_class.as_deref(),
        image_bytes: 0,
    };
    let mut machine = objects::machine(spec, &root, &site, None);
    if is_known {
        return vec![objects::secret(spec, None), machine];
    }
    // It names a config that is not there yet.
    if let Some(metadata) = machine["metadata"].as_object_mut() {
        metadata.remove("annotations");
    }
    vec![machine]
}
