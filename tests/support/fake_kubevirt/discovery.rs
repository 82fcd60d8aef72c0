//! Discovery documents of the server.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::resources::RESOURCES;
use super::world::World;

/// Resources in discovery that are not stored objects: group and version, name, kind, verbs.
/// kubernetes/kubernetes: `pkg/registry/core/rest/storage_core.go`; kubernetes-sigs/metrics-server: `pkg/api/install.go`;
/// kubevirt/kubevirt: `pkg/virt-api/api.go`, which names no verbs.
const BESIDE: [(&str, &str, &str, &[&str]); 4] = [
    ("v1", "bindings", "Binding", &["create"]),
    ("v1", "pods/log", "Pod", &["get"]),
    ("metrics.k8s.io/v1beta1", "pods", "PodMetrics", &["get", "list"]),
    ("subresources.kubevirt.io/v1", "expand-vm-spec", "", &[]),
];

/// `/version`, `/api`, `/apis` and the lists of kinds below.
pub fn answer(world: &World, path: &str) -> Option<Value> {
    match path {
        "/version" => return Some(json!({"major": "1", "minor": "33", "gitVersion": "v1.33.0"})),
        "/api" => return Some(json!({"kind": "APIVersions", "versions": ["v1"]})),
        "/apis" => {
            let groups: Vec<Value> = groups(world)
                .into_iter()
                .map(|(name, version)| group(name, world.older.get(name).unwrap_or(&version)))
                .collect();
            return Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}));
        }
        "/apis/subresources.kubevirt.io/v1/version" => {
            return world.kubevirt_version.map(|version| json!({"gitVersion": version}));
        }
        _ => {}
    }
    let sandbox = path
        .strip_prefix("/apis/")
        .or(path.strip_prefix("/api/").filter(|version| *version == "v1"))?;
    let mut of: Vec<Value> = RESOURCES
        .iter()
        .filter(|resource| resource.api_version() == sandbox && !world.groups_absent.contains(resource.group))
        .map(|resource| {
            json!({"name": resource.plural, "singularName": "", "kind": resource.kind, "verbs": resource.verbs(),
                "namespaced": resource.namespaced})
        })
        .collect();
    let more = BESIDE.iter().filter(|(version, ..)| *version == sandbox);
    of.extend(more.map(|(_, name, kind, verbs)| {
        json!({"name": name, "singularName": "", "kind": kind, "namespaced": true,
            "verbs": (!verbs.is_empty()).then_some(verbs)})
    }));
    let is_served = groups(world)
        .iter()
        .any(|(name, version)| sandbox == format!("{name}/{version}"));
    (is_served || !of.is_empty())
        .then(|| json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": sandbox, "resources": of}))
}

fn groups(world: &World) -> BTreeSet<(&'static str, &'static str)> {
    let all = RESOURCES.iter().map(|resource| (resource.group, resource.version));
    let extra = [
        ("authorization.k8s.io", "v1"),
        ("metrics.k8s.io", "v1beta1"),
        ("subresources.kubevirt.io", "v1"),
    ];
    all.chain(extra)
        .filter(|(group, _)| !group.is_empty() && !world.groups_absent.contains(group))
        .collect()
}

fn group(name: &str, version: &str) -> Value {
    let version = json!({"groupVersion": format!("{name}/{version}"), "version": version});
    json!({"name": name, "versions": [version], "preferredVersion": version})
}
