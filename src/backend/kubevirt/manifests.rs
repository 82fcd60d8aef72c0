//! The objects of a cluster as `plan --manifests` writes them, without a server.

use std::net::IpAddr;

use serde_json::Value;

use super::objects::{self, Root, Site};
use super::pods;
use crate::backend::{LoadBalancer, MachineSpec};
use crate::cluster::{AddressAssignment, ClusterId, Expose, KubevirtConfig, Routes, Vip};

/// The object that owns all others.
pub fn anchor(cluster: &ClusterId) -> Value {
    objects::anchor(cluster)
}

/// The Service of a node on the pod network.
pub fn of_node(cluster: &ClusterId, lease: &AddressAssignment) -> Value {
    pods::of_node(cluster, lease, None)
}

/// The Service of a virtual IP on the pod network, its policies, and the Routes of ingress.
///
/// Values that the platform chooses are omitted while they are `auto`: the Service's type, and the Routes. See
/// `Kubevirt::resolve_config`.
pub fn of_vip(config: &KubevirtConfig, wanted: &LoadBalancer) -> Vec<Value> {
    let Some(site) = &config.pods else { return vec![] };
    let mut service = pods::of_vip(wanted, site.expose, None);
    if let (Expose::Auto, Some(spec)) = (site.expose, service["spec"].as_object_mut()) {
        spec.remove("type");
    }
    let mut all = vec![service];
    if !site.pod_networks.is_empty() {
        all.extend(pods::policies(wanted, site, &site.pod_networks, None));
    }
    if wanted.vip == Vip::Ingress {
        let route = |host| pods::route(&wanted.cluster, host, None);
        match site.routes {
            Routes::Wildcard => all.push(route(None)),
            Routes::Names => all.extend(site.route_names.iter().map(|host| route(Some(host)))),
            Routes::Auto | Routes::Off => {}
        }
    }
    all
}

/// A machine, and its first-boot Secret if the configuration `is_known`. Without owner: only the server knows its uid.
///
/// `address` is the guest's on the pod network.
pub fn of_machine(
    config: &KubevirtConfig,
    spec: &MachineSpec,
    image_bytes: u64,
    address: Option<IpAddr>,
    is_known: bool,
) -> Vec<Value> {
    let root = Root::read(&spec.image).unwrap_or_else(|| Root::Claim {
        namespace: config.namespace.clone().unwrap_or_default(),
        name: spec.image.0.clone(),
    });
    let site = Site {
        config,
        image_bytes,
        address,
    };
    let mut machine = objects::machine(spec, &root, &site, None);
    if is_known {
        return vec![objects::secret(spec, None), machine];
    }
    // The fingerprint depends on a configuration that does not exist yet.
    if let Some(metadata) = machine["metadata"].as_object_mut() {
        metadata.remove("annotations");
    }
    vec![machine]
}
