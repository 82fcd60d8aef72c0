//! Inputs and common parts of the services.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cluster::{AddressAssignment, ClusterConfig, Role, Vip};
use crate::node::host::HostFile;
use crate::state::parameters::{NodeAddress, Parameters};
use crate::templates::{TemplateError, yaml};

/// Images of the release that the services run, by their names in it.
pub const IMAGES: [&str; 3] = ["keepalived-ipfailover", "haproxy-router", "coredns"];

/// The inputs of the services.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub config: &'a ClusterConfig,
    pub parameters: &'a Parameters,
    pub release: &'a Release,
    /// Virtual IPs that are unreserved leases; the node that holds one renews it.
    pub leased: &'a [AddressAssignment],
}

impl<'a> Input<'a> {
    /// The nodes of a role, in the order of the table.
    pub(super) fn nodes(&self, role: Role) -> impl Iterator<Item = &'a NodeAddress> + use<'a> {
        self.parameters.nodes.iter().filter(move |node| node.role == role)
    }

    /// Whether there are several API servers to balance between.
    pub(super) fn has_several_apis(&self) -> bool {
        self.nodes(Role::Master).count() > 1
    }

    /// The nodes that may run routers, masters first, external ones last.
    pub(super) fn router_nodes(&self) -> Vec<&'a NodeAddress> {
        let roles = self.config.router_roles();
        let ours = roles.into_iter().flat_map(|role| self.nodes(role));
        ours.chain(&self.parameters.external).collect()
    }

    /// The IPv6 address of a VIP, if the cluster has two address families.
    pub(super) fn ipv6(&self, vip: Vip) -> Option<Ipv6Addr> {
        self.parameters.ipv6.as_ref().map(|ipv6| ipv6.vip(vip))
    }

    /// Both VIPs are the same address.
    pub(super) fn has_one_vip(&self) -> bool {
        self.parameters.api_ip == self.parameters.ingress_ip
    }
}

/// Why a service cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error("release {}.{} has no image {name}", version.0, version.1)]
    NoImage { name: &'static str, version: (u32, u32) },
    #[error(transparent)]
    Template(#[from] TemplateError),
}

impl ServiceError {
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoImage { .. } => Some("use a release of OpenShift 4 or OKD, version 4.2 or later"),
            Self::Template(_) => None,
        }
    }
}

/// The OpenShift release to install, as far as the services need it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// Major and minor, e.g. `(4, 19)`.
    pub version: (u32, u32),
    /// Images of the release by name (`keepalived-ipfailover`, `haproxy-router`, `coredns`, …), each by digest.
    pub images: BTreeMap<String, String>,
}

impl Release {
    /// A release with all images of the services.
    #[cfg(test)]
    pub(super) fn example(version: (u32, u32)) -> Self {
        let image = |name: &&str| {
            (
                (*name).to_owned(),
                format!("registry.example.com/release@sha256:{name}"),
            )
        };
        let images = IMAGES.iter().map(image).collect();
        Self { version, images }
    }

    /// The image of this name in the release, by digest.
    pub(super) fn image(&self, name: &'static str) -> Result<&str, ServiceError> {
        let version = self.version;
        let image = self.images.get(name).map(String::as_str);
        image.ok_or(ServiceError::NoImage { name, version })
    }
}

/// The directory that the kubelet watches.
pub(super) const STATIC_PODS: &str = "/etc/kubernetes/manifests";

/// A static pod, which the kubelet starts without an API: one container in the host's network.
///
/// `folders` of the host are mounted at the same paths. `more` are further fields of the container. The namespace
/// exists in every cluster, so that the pod is visible there. The requests are those of
/// openshift/machine-config-operator (`templates/master/00-master/on-prem/files/haproxy.yaml`): with less, an
/// overloaded node's checks end too late, and it releases its VIP.
pub(super) fn static_pod(name: &str, image: &str, command: &[&str], folders: &[(&str, &str)], more: Value) -> HostFile {
    let mount = |(name, path): &(&str, &str)| json!({"name": name, "mountPath": path});
    let volume =
        |(name, path): &(&str, &str)| json!({"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}});
    let mut container = json!({
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "resources": {"requests": {"cpu": "100m", "memory": "200Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": folders.iter().map(mount).collect::<Value>(),
    });
    if let (Some(container), Value::Object(more)) = (container.as_object_mut(), more) {
        container.extend(more);
    }
    let name = format!("ocpdeploy-{name}");
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "kube-system", "labels": {"app": name}},
        "spec": {
            "hostNetwork": true,
            "priorityClassName": "system-node-critical",
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
            "volumes": folders.iter().map(volume).collect::<Value>(),
        },
    });
    HostFile::new(format!("{STATIC_PODS}/{name}.yaml"), 0o644, yaml(&pod) + "\n")
}
