//! Draining a node through a strict API with disruption budgets.

use crate::support::cluster;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use ocpdeploy::openshift::api::ClusterApi;
use ocpdeploy::openshift::drain::{Drain, DrainError, drain};
use ocpdeploy::state::parameters::Parameters;
use serde_json::{Value, json};

use crate::support::fake_kube::authority::Authority;
use crate::support::fake_kube::server::FakeKube;
use crate::support::fake_kube::world::{MACHINE_CONFIGS, NODES, PODS, Stage, World};

const NODE: &str = "worker-1.lab.example.com";
const GUARD: &str = "etcd-guard-worker-1.lab.example.com";

struct Bench {
    kube: FakeKube,
    authority: Authority,
    table: Parameters,
    folder: tempfile::TempDir,
}

impl Bench {
    /// A cluster whose API only answers, with one node and these pods on it.
    fn new(network: u8, pods: &[Value]) -> Self {
        let vip = Ipv4Addr::new(127, 93, network, 10);
        let table = cluster::parameters(&cluster::config(), vip);
        let authority = Authority::new();
        let certificate = authority.server("api.lab.example.com", |_| {});
        let mut world = World::new(table.clone());
        world.gate = Stage::Api;
        world.put(
            NODES,
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}, "spec": {}, "status": {}}),
        );
        for pod in pods {
            world.put(PODS, pod.clone());
        }
        let kube = FakeKube::start(world, SocketAddr::from((vip, 0)), &authority, &certificate);
        let folder = tempfile::tempdir().unwrap();
        Self {
            kube,
            authority,
            table,
            folder,
        }
    }

    async fn api(&self) -> ClusterApi {
        let path = self.folder.path().join("kubeconfig");
        let server = format!("https://api.lab.example.com:{}", self.kube.address().port());
        std::fs::write(&path, self.authority.kubeconfig("lab", &server)).unwrap();
        ClusterApi::open(&path, self.table.api_ip).await.unwrap()
    }

    fn drain(&self, node: &str, force: bool) -> Result<(), DrainError> {
        self.drain_as(node, false, how(force))
    }

    fn drain_as(&self, node: &str, is_off: bool, how: Drain) -> Result<(), DrainError> {
        run(async { drain(&self.api().await, node, is_off, how).await })
    }

    /// The names of the remaining pods, and whether the node is schedulable; the API got no unknown request.
    fn finish(self) -> (Vec<String>, bool) {
        let left = self.kube.with(|world| {
            let all = ["app", "agent", "static", "done", "alone", "kept", GUARD];
            all.into_iter()
                .filter(|name| world.get(PODS, name).is_some())
                .map(str::to_owned)
                .collect()
        });
        let world = self.kube.finish();
        let unschedulable = world.get(NODES, NODE).unwrap()["spec"]["unschedulable"] == json!(true);
        (left, !unschedulable)
    }
}

fn how(force: bool) -> Drain {
    Drain {
        limit: Duration::from_secs(2),
        force,
        delete_emptydir_data: false,
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(future)
}

/// A pod on the node with a controller of this kind; an empty kind means no controller.
fn pod(name: &str, owner: &str, annotations: Value, phase: &str) -> Value {
    let owners = match owner {
        "" => json!([]),
        kind => json!([{"apiVersion": "apps/v1", "kind": kind, "name": "it", "uid": "1", "controller": true}]),
    };
    json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": NODE, "containers": []}, "status": {"phase": phase},
        "metadata": {"name": name, "namespace": "shop", "annotations": annotations, "ownerReferences": owners}})
}

fn app() -> Value {
    pod("app", "ReplicaSet", json!({}), "Running")
}

#[test]
fn only_pods_that_must_leave_are_evicted() {
    let bench = Bench::new(
        1,
        &[
            app(),
            pod("agent", "DaemonSet", json!({}), "Running"),
            pod("static", "", json!({"kubernetes.io/config.mirror": "1"}), "Running"),
            pod("done", "", json!({}), "Succeeded"),
        ],
    );
    bench.drain(NODE, false).unwrap();
    assert_eq!(
        bench.finish(),
        (["agent", "static", "done"].map(str::to_owned).to_vec(), false)
    );
}

#[test]
fn pods_of_other_nodes_are_kept_even_if_the_api_lists_them() {
    let mut other = pod("kept", "ReplicaSet", json!({}), "Running");
    other["spec"]["nodeName"] = json!("worker-0.lab.example.com");
    let mut pending = pod("alone", "", json!({}), "Pending");
    pending["spec"].as_object_mut().unwrap().remove("nodeName");
    let bench = Bench::new(6, &[app(), other, pending]);
    bench.kube.with(|world| world.ignores_filters = true);
    bench.drain(NODE, false).unwrap();
    assert_eq!(bench.finish(), (["alone", "kept"].map(str::to_owned).to_vec(), false));
}

#[test]
fn a_pod_without_a_controller_is_deleted_only_on_request() {
    let bench = Bench::new(2, &[app(), pod("alone", "", json!({}), "Running")]);
    let refused = bench.drain(NODE, false).unwrap_err();
    assert!(
        matches!(&refused, DrainError::Loses { lonely, local, .. } if local.is_empty()
            && lonely == &["shop/alone: not managed by a controller"]),
        "{refused}"
    );
    let untouched = bench
        .kube
        .with(|world| world.get(NODES, NODE).unwrap()["spec"] == json!({}));
    assert!(untouched, "a rejected drain changes nothing");
    bench.drain(NODE, true).unwrap();
    assert_eq!(bench.finish(), (vec![], false));
}

#[test]
fn a_disruption_budget_is_respected_unless_overridden() {
    let bench = Bench::new(
        3,
        &[
            app(),
            pod("kept", "StatefulSet", json!({"test/budget": "none"}), "Running"),
        ],
    );
    let stuck = bench.drain(NODE, false).unwrap_err();
    let words = stuck.to_string();
    assert!(
        words.contains("shop/kept: Cannot evict pod as it would violate"),
        "{words}"
    );
    assert!(!words.contains("shop/app"), "{words}");
    assert!(stuck.hint().unwrap().contains("--drain-timeout"));
    bench.drain(NODE, true).unwrap();
    assert_eq!(bench.finish(), (vec!["kept".to_owned()], false));
}

#[test]
fn draining_a_missing_node_does_nothing() {
    let bench = Bench::new(4, &[app()]);
    bench.drain("worker-9.lab.example.com", false).unwrap();
    assert_eq!(bench.finish(), (vec!["app".to_owned()], true));
}

#[test]
fn guard_and_catalog_pods_need_no_controller() {
    // openshift/library-go: guard-pod.yaml; operator-framework/operator-lifecycle-manager: reconciler/grpc.go.
    let mut guard = pod(GUARD, "", json!({}), "Running");
    guard["metadata"]["namespace"] = json!("openshift-etcd");
    guard["metadata"]["labels"] = json!({"app": "guard"});
    let mut catalog = pod("kept", "CatalogSource", json!({}), "Running");
    catalog["metadata"]["ownerReferences"][0]["controller"] = json!(false);
    let bench = Bench::new(6, &[guard.clone(), catalog]);
    let uid = || {
        bench
            .kube
            .with(|world| world.get(PODS, GUARD).unwrap()["metadata"]["uid"].clone())
    };
    let before = uid();
    bench.drain(NODE, false).unwrap();
    assert_ne!(
        uid(),
        before,
        "the guard, whose budget protects etcd, was evicted; the present one is new"
    );
    assert_eq!(bench.finish(), (vec![GUARD.to_owned()], false));

    // Any user can label a pod as a guard.
    guard["metadata"]["namespace"] = json!("shop");
    let bench = Bench::new(7, &[guard]);
    assert!(matches!(bench.drain(NODE, false), Err(DrainError::Loses { .. })));
}

#[test]
fn data_in_empty_dirs_is_deleted_only_on_request() {
    let mut with_data = app();
    with_data["spec"]["volumes"] =
        json!([{"name": "cache", "emptyDir": {}}, {"name": "config", "configMap": {"name": "c"}}]);
    let bench = Bench::new(8, &[with_data, pod("alone", "", json!({}), "Running")]);
    let refused = bench.drain(NODE, true).unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("draining {NODE} would delete:\n  shop/app: its data in emptyDir cache")
    );
    assert!(refused.hint().unwrap().contains("--delete-emptydir-data"));
    let both = bench.drain(NODE, false).unwrap_err();
    assert_eq!(
        both.to_string(),
        format!(
            "draining {NODE} would delete:\n  shop/alone: not managed by a controller\n  shop/app: its data in emptyDir cache"
        )
    );
    assert!(both.hint().unwrap().contains("--force --delete-emptydir-data"));
    let anyway = Drain {
        delete_emptydir_data: true,
        ..how(true)
    };
    bench.drain_as(NODE, false, anyway).unwrap();
    assert_eq!(bench.finish(), (vec![], false));
}

#[test]
fn pods_of_a_dead_kubelet_are_not_waited_for() {
    for (network, is_off, ready) in [(9, true, "True"), (10, false, "Unknown")] {
        let bench = Bench::new(
            network,
            &[pod("app", "ReplicaSet", json!({"test/ends": "never"}), "Running")],
        );
        bench.kube.with(|world| {
            world.edit(NODES, NODE, |node| {
                node["status"]["conditions"] = json!([{"type": "Ready", "status": ready}]);
            })
        });
        bench.drain_as(NODE, is_off, how(false)).unwrap();
        let told = bench
            .kube
            .with(|world| world.get(PODS, "app").unwrap()["metadata"]["deletionTimestamp"].clone());
        assert!(told.is_string(), "it was evicted");
        bench.finish();
    }
    // The kubelet of a running node is waited for.
    let bench = Bench::new(
        11,
        &[pod("app", "ReplicaSet", json!({"test/ends": "never"}), "Running")],
    );
    assert!(matches!(bench.drain(NODE, false), Err(DrainError::Stuck { .. })));
}

#[test]
fn a_disruption_budget_is_respected_even_if_the_machine_is_off() {
    let bench = Bench::new(
        12,
        &[pod("kept", "StatefulSet", json!({"test/budget": "none"}), "Running")],
    );
    let stuck = bench.drain_as(NODE, true, how(false)).unwrap_err();
    assert!(matches!(stuck, DrainError::Stuck { .. }), "{stuck}");
    bench.drain_as(NODE, true, how(true)).unwrap();
}

#[test]
fn apply_reports_whether_it_changed_anything() {
    let bench = Bench::new(5, &[]);
    let object = |mode: u32| {
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": "99-worker-ocpdeploy"}, "spec": {"config": {"mode": mode}}})
    };
    let manifest = |mode: u32| serde_json::from_value(object(mode)).unwrap();
    bench.kube.with(|world| {
        // Before this stage, the API server does not know the kind.
        world.gate = Stage::Masters;
        // As the bootstrap created it.
        world.put(MACHINE_CONFIGS, object(0));
    });
    run(async {
        let api = bench.api().await;
        assert!(!api.apply(manifest(0)).await.unwrap().is_change());
        assert!(api.apply(manifest(1)).await.unwrap().is_change());
        assert!(!api.apply(manifest(1)).await.unwrap().is_change());
        assert!(api.apply(manifest(2)).await.unwrap().is_change());
    });
    let world = bench.kube.finish();
    assert_eq!(
        world.get(MACHINE_CONFIGS, "99-worker-ocpdeploy").unwrap()["spec"]["config"]["mode"],
        2
    );
}
