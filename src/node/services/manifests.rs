//! The manifests that are added to openshift-install's own.

use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use super::input::{Input, Release, STATIC_PODS, ServiceError};
use super::parts::parts;
use crate::cluster::capabilities::IMAGE_REGISTRY;
use crate::cluster::{ClusterConfig, Lb, Registry, Role};
use crate::ignition::{Major, Version};
use crate::node::host::{HostFile, HostParts};
use crate::node::machine_configs::own_name;
use crate::node::overlay::document;
use crate::templates::yaml;

/// A manifest as a file of the installer's directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Manifest {
    /// Below the installer's directory: `openshift/…` is new, `manifests/…` replaces the installer's own.
    pub path: String,
    /// YAML.
    pub content: String,
}

impl Manifest {
    pub(super) fn new(path: &str, content: &Value) -> Self {
        Self {
            path: path.to_owned(),
            content: yaml(content) + "\n",
        }
    }
}

/// All manifests of this program.
pub fn manifests(input: &Input<'_>) -> Result<Vec<Manifest>, ServiceError> {
    let config = input.config;
    let mut manifests = Vec::new();
    // Workers may be added later, so their MachineConfig always exists.
    for role in config.node_roles() {
        let mut parts = parts(input, role)?;
        parts.extend(time(config));
        if parts != HostParts::default() {
            manifests.push(machine_config(role, &parts, input.release));
        }
    }
    manifests.push(ingress_controller(config));
    if input.parameters.peer_domain.is_some() {
        manifests.push(network(config));
    }
    if config.masters_schedulable && config.all_workers() > 0 {
        manifests.push(scheduler());
    }
    // Without the capability its kind does not exist, and the bootstrap would wait for it until its time limit.
    let has_registry = config.capabilities.has(IMAGE_REGISTRY, input.release.version);
    if config.registry == Registry::EmptyDir && has_registry {
        manifests.push(registry());
    }
    Ok(manifests)
}

/// Whether a node runs a static pod of this program.
pub fn has_static_pods(input: &Input<'_>) -> Result<bool, ServiceError> {
    has_file(input, |path| Path::new(path).starts_with(STATIC_PODS))
}

/// Whether a MachineConfig has a matching file of the services.
pub(super) fn has_file(input: &Input<'_>, is_such: impl Fn(&str) -> bool) -> Result<bool, ServiceError> {
    for role in input.config.node_roles() {
        if parts(input, role)?.files.iter().any(|file| is_such(&file.path)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The files of all nodes of a role, including those that join later.
fn machine_config(role: Role, parts: &HostParts, release: &Release) -> Manifest {
    let name = own_name(&role.to_string());
    let content = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": role.to_string()}},
        "spec": {"config": document(parts, machine_config_version(release))},
    });
    Manifest::new(&format!("openshift/99_ocpdeploy-machineconfig-{role}.yaml"), &content)
}

/// The spec version of our MachineConfigs, which every operator of these releases accepts: 3.1 from 4.6, earlier 2.2.
fn machine_config_version(release: &Release) -> Version {
    let (major, minor) = match release.version >= (4, 6) {
        true => (Major::Three, 1),
        false => (Major::Two, 2),
    };
    Version { major, minor, patch: 0 }
}

/// The routers: at most one for each node, because each uses its node's ports 80 and 443.
fn ingress_controller(config: &ClusterConfig) -> Manifest {
    let (nodes, role) = match config.all_workers() {
        0 => (config.masters, "master"),
        _ => (config.router_workers(), "worker"),
    };
    // The platform's load balancer checks only a master's API, so that each node which may have a router must have one.
    let replicas = match config.lb {
        Lb::Platform if config.masters_schedulable && config.all_workers() > 0 => config.masters + nodes,
        Lb::Platform => nodes,
        _ => nodes.clamp(1, 2),
    };
    let content = json!({
        "apiVersion": "operator.openshift.io/v1",
        "kind": "IngressController",
        "metadata": {"name": "default", "namespace": "openshift-ingress-operator"},
        "spec": {
            "replicas": replicas,
            "endpointPublishingStrategy": {"type": "HostNetwork"},
            "nodePlacement": {"nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{role}"): ""}}},
        },
    });
    Manifest::new("openshift/99_ocpdeploy-ingress-controller.yaml", &content)
}

/// The overlay network of a nested cluster: on its own port, because hosts process packets on the usual ones
/// (VXLAN 4789, Geneve 6081) themselves, and through the host's own stack, which finds peers (`peers`).
///
/// Fields: openshift/api `operator/v1/types_network.go`; file of the installer: openshift/installer
/// `pkg/asset/manifests/network.go`.
fn network(config: &ClusterConfig) -> Manifest {
    let kind = config.networks.network_type.as_str();
    let mut network = match kind {
        "OVNKubernetes" => json!({
            "type": kind,
            "ovnKubernetesConfig": {"genevePort": 6082, "gatewayConfig": {"routingViaHost": true}},
        }),
        "OpenShiftSDN" => json!({"type": kind, "openshiftSDNConfig": {"vxlanPort": 9898}}),
        kind => json!({"type": kind}),
    };
    // The installer creates this object for the join network.
    let path = match config.networks.ovn_join_network {
        Some(join) => {
            network["ovnKubernetesConfig"]["ipv4"] = json!({"internalJoinSubnet": join});
            "manifests/cluster-network-03-config.yml"
        }
        None => "openshift/99_ocpdeploy-network.yaml",
    };
    let content = json!({
        "apiVersion": "operator.openshift.io/v1",
        "kind": "Network",
        "metadata": {"name": "cluster"},
        "spec": {"defaultNetwork": network},
    });
    Manifest::new(path, &content)
}

/// Allows user pods on masters; without workers the installer itself does.
fn scheduler() -> Manifest {
    let content = json!({
        "apiVersion": "config.openshift.io/v1",
        "kind": "Scheduler",
        "metadata": {"name": "cluster"},
        "spec": {"mastersSchedulable": true, "policy": {"name": ""}},
    });
    Manifest::new("manifests/cluster-scheduler-02-config.yml", &content)
}

/// On platform `none` there is no registry unless its storage is configured.
fn registry() -> Manifest {
    let content = json!({
        "apiVersion": "imageregistry.operator.openshift.io/v1",
        "kind": "Config",
        "metadata": {"name": "cluster"},
        "spec": {"managementState": "Managed", "replicas": 1, "storage": {"emptyDir": {}}},
    });
    Manifest::new("openshift/99_ocpdeploy-registry.yaml", &content)
}

/// The user's time servers in place of CoreOS's defaults.
fn time(config: &ClusterConfig) -> HostParts {
    let mut parts = HostParts::default();
    if !config.ntp_servers.is_empty() {
        let servers: String = config
            .ntp_servers
            .iter()
            .map(|server| format!("server {server} iburst\n"))
            .collect();
        let rest = "driftfile /var/lib/chrony/drift\nmakestep 1.0 3\nrtcsync\nlogdir /var/log/chrony\n";
        parts
            .files
            .push(HostFile::new("/etc/chrony.conf", 0o644, servers + rest));
    }
    parts
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::cluster::{Capabilities, Effect, Pool, Taint};
    use crate::state::parameters::tests::example;

    fn made(config: &ClusterConfig, version: (u32, u32)) -> Vec<(String, Value)> {
        let (parameters, release) = (example(), Release::example(version));
        let input = Input {
            config,
            parameters: &parameters,
            release: &release,
            leased: &[],
        };
        manifests(&input)
            .unwrap()
            .into_iter()
            .map(|manifest| (manifest.path, serde_saphyr::from_str(&manifest.content).unwrap()))
            .collect()
    }

    fn with(masters: usize, workers: usize) -> ClusterConfig {
        ClusterConfig {
            masters,
            workers,
            ..ClusterConfig::example()
        }
    }

    fn find<'a>(manifests: &'a [(String, Value)], path: &str) -> Option<&'a Value> {
        Some(&manifests.iter().find(|manifest| manifest.0 == path)?.1)
    }

    #[test]
    fn each_role_has_its_machine_config_in_the_spec_that_its_operator_reads() {
        for (version, spec) in [
            ((4, 5), "2.2.0"),
            ((4, 6), "3.1.0"),
            ((4, 19), "3.1.0"),
            ((5, 0), "3.1.0"),
        ] {
            let manifests = made(&with(3, 2), version);
            for role in ["master", "worker"] {
                let path = format!("openshift/99_ocpdeploy-machineconfig-{role}.yaml");
                let found = find(&manifests, &path).unwrap();
                assert_eq!(found["metadata"]["name"], format!("99-{role}-ocpdeploy"));
                assert_eq!(
                    found["metadata"]["labels"]["machineconfiguration.openshift.io/role"],
                    role
                );
                let config = &found["spec"]["config"];
                assert_eq!(config["ignition"]["version"], spec);
                let files = config["storage"]["files"].as_array().unwrap();
                let has = |path: &str| files.iter().any(|file| file["path"] == path);
                assert!(has("/etc/ocpdeploy/dnsmasq.conf"), "{role}: {files:#?}");
                assert_eq!(has("/etc/ocpdeploy/haproxy/haproxy.cfg"), role == "master", "{role}");
            }
        }
    }

    #[test]
    fn each_router_has_its_own_node() {
        for (masters, workers, replicas, role) in [
            (1, 0, 1, "master"),
            (3, 0, 2, "master"),
            (1, 1, 1, "worker"),
            (3, 1, 1, "worker"),
            (3, 2, 2, "worker"),
            (5, 50, 2, "worker"),
        ] {
            let manifests = made(&with(masters, workers), (4, 19));
            let spec = &find(&manifests, "openshift/99_ocpdeploy-ingress-controller.yaml").unwrap()["spec"];
            assert_eq!(spec["replicas"], replicas, "{masters}+{workers}");
            let labels = json!({format!("node-role.kubernetes.io/{role}"): ""});
            assert_eq!(spec["nodePlacement"]["nodeSelector"]["matchLabels"], labels);
        }
    }

    #[test]
    fn nodes_that_repel_routers_get_no_router() {
        let taint = |effect| {
            let (key, value) = ("dedicated".to_owned(), String::new());
            [Taint { key, value, effect }].into()
        };
        for (workers, effect, lb, replicas) in [
            (0, Effect::PreferNoSchedule, Lb::Platform, 3),
            (1, Effect::NoSchedule, Lb::Platform, 1),
            (1, Effect::NoExecute, Lb::Keepalived, 1),
            (0, Effect::PreferNoSchedule, Lb::Keepalived, 2),
        ] {
            let mut config = with(3, workers);
            config.pools = vec![Pool {
                taints: taint(effect),
                ..Pool::example("infra", 3)
            }];
            config.lb = lb;
            let manifests = made(&config, (4, 19));
            let spec = &find(&manifests, "openshift/99_ocpdeploy-ingress-controller.yaml").unwrap()["spec"];
            assert_eq!(spec["replicas"], replicas, "{workers} workers, {effect}");
            assert_eq!(config.router_roles(), [Role::Worker]);
        }
    }

    #[test]
    fn a_nested_cluster_has_its_overlay_network_on_its_own_port() {
        let path = "openshift/99_ocpdeploy-network.yaml";
        assert_eq!(find(&made(&with(3, 2), (4, 19)), path), None);
        let release = Release::example((4, 19));
        let mut parameters = example();
        parameters.peer_domain = Some("mine.svc".to_owned());
        for (network_type, field, port) in [
            ("OVNKubernetes", "/ovnKubernetesConfig/genevePort", 6082),
            ("OpenShiftSDN", "/openshiftSDNConfig/vxlanPort", 9898),
        ] {
            let mut config = with(3, 0);
            config.networks.network_type = network_type.to_owned();
            config.lb = Lb::Platform;
            let input = Input {
                config: &config,
                parameters: &parameters,
                release: &release,
                leased: &[],
            };
            let made = manifests(&input).unwrap();
            let read = |path: &str| -> Value {
                let manifest = made.iter().find(|manifest| manifest.path == path).unwrap();
                serde_saphyr::from_str(&manifest.content).unwrap()
            };
            let network = read(path)["spec"]["defaultNetwork"].clone();
            assert_eq!(network["type"], network_type);
            assert_eq!(network.pointer(field), Some(&json!(port)));
            let ingress = read("openshift/99_ocpdeploy-ingress-controller.yaml");
            assert_eq!(ingress["spec"]["replicas"], 3, "each master gets a router");
            let master = read("openshift/99_ocpdeploy-machineconfig-master.yaml").to_string();
            assert!(!master.contains("keepalived") && !master.contains("haproxy"));
            assert!(master.contains("ocpdeploy-peers"));
        }
    }

    #[test]
    fn the_scheduler_is_changed_only_when_the_installer_would_not() {
        let path = "manifests/cluster-scheduler-02-config.yml";
        for (workers, asked, changed) in [(2, false, false), (2, true, true), (0, true, false), (0, false, false)] {
            let config = ClusterConfig {
                masters_schedulable: asked,
                ..with(3, workers)
            };
            let manifests = made(&config, (4, 19));
            assert_eq!(find(&manifests, path).is_some(), changed, "{workers} workers, {asked}");
        }
    }

    #[test]
    fn all_nodes_get_the_time_servers_and_the_registry_is_optional() {
        let config = ClusterConfig {
            ntp_servers: vec!["ntp.example.com".to_owned(), "192.0.2.1".to_owned()],
            registry: Registry::Removed,
            ..with(3, 0)
        };
        let manifests = made(&config, (4, 19));
        assert_eq!(find(&manifests, "openshift/99_ocpdeploy-registry.yaml"), None);
        for role in ["master", "worker"] {
            let path = format!("openshift/99_ocpdeploy-machineconfig-{role}.yaml");
            let files = &find(&manifests, &path).unwrap()["spec"]["config"]["storage"]["files"];
            let files = files.as_array().unwrap();
            let chrony = files.iter().find(|file| file["path"] == "/etc/chrony.conf").unwrap();
            let source = chrony["contents"]["source"].as_str().unwrap();
            let text = STANDARD.decode(source.split_once("base64,").unwrap().1).unwrap();
            let text = String::from_utf8(text).unwrap();
            assert!(
                text.starts_with("server ntp.example.com iburst\nserver 192.0.2.1 iburst\n"),
                "{text}"
            );
        }
        assert!(find(&made(&with(3, 2), (4, 19)), "openshift/99_ocpdeploy-registry.yaml").is_some());
    }

    #[test]
    fn a_cluster_without_the_registry_gets_no_manifest_for_it() {
        for (baseline, additional, version, expected) in [
            ("None", "Ingress", (4, 19), false),
            ("None", IMAGE_REGISTRY, (4, 19), true),
            ("None", "Console", (4, 13), true),
            ("vCurrent", "Console", (4, 19), true),
        ] {
            let config = ClusterConfig {
                capabilities: Capabilities {
                    baseline: Some(baseline.to_owned()),
                    additional: vec![additional.to_owned()],
                },
                ..with(3, 2)
            };
            let manifests = made(&config, version);
            let found = find(&manifests, "openshift/99_ocpdeploy-registry.yaml").is_some();
            assert_eq!(found, expected, "{baseline} {additional} {version:?}");
            // The cluster always has these kinds: without Ingress the installer rejects the configuration.
            let others = manifests.iter().filter(|(path, _)| !path.ends_with("registry.yaml"));
            let mut kinds: Vec<_> = others.map(|(_, content)| content["kind"].as_str().unwrap()).collect();
            kinds.sort_unstable();
            assert_eq!(kinds, ["IngressController", "MachineConfig", "MachineConfig"]);
        }
    }
}
