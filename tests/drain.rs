//! A node is emptied through an API that is strict and has disruption budgets.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use ocpdeploy::cluster_api::ClusterApi;
use ocpdeploy::drain::{Drain, DrainError, drain};
use ocpdeploy::parameters::Parameters;
use serde_json::{Value, json};

#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/fake_kube/mod.rs"]
mod fake_kube;

use fake_kube::authority::Authority;
use fake_kube::server::FakeKube;
use fake_kube::world::{MACHINE_CONFIGS, NODES, PODS, Stage, World};

const NODE: &str = "worker-1.lab.example.com";

struct Bench {
    kube: FakeKube,
    authority: Authority,
    table: Parameters,
    folder: tempfile::TempDir,
}

impl Bench {
    /// A cluster that only answers, with one node and these pods on it.
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
        let limit = Duration::from_secs(2);
        run(async { drain(&self.api().await, node, Drain { limit, force }).await })
    }

    /// Names of the pods that are left, and whether the node takes new ones; the API was asked nothing strange.
    fn finish(self) -> (Vec<String>, bool) {
        let left = self.kube.with(|world| {
            let all = ["app", "agent", "static", "done", "alone", "kept"];
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

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(future)
}

/// A pod of a controller of this kind on the node; of none where the kind is empty.
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
fn only_what_must_leave_is_evicted() {
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
fn a_pod_that_nothing_would_start_again_is_lost_only_on_demand() {
    let bench = Bench::new(2, &[app(), pod("alone", "", json!({}), "Running")]);
    let refused = bench.drain(NODE, false).unwrap_err();
    assert!(
        matches!(&refused, DrainError::Lonely { pods, .. } if pods == &["shop/alone"]),
        "{refused}"
    );
    let untouched = bench
        .kube
        .with(|world| world.get(NODES, NODE).unwrap()["spec"] == json!({}));
    assert!(untouched, "a refusal changes nothing");
    bench.drain(NODE, true).unwrap();
    assert_eq!(bench.finish(), (vec![], false));
}

#[test]
fn a_disruption_budget_is_heeded_until_it_is_overruled() {
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
fn a_node_that_is_not_there_is_empty() {
    let bench = Bench::new(4, &[app()]);
    bench.drain("worker-9.lab.example.com", false).unwrap();
    assert_eq!(bench.finish(), (vec!["app".to_owned()], true));
}

#[test]
fn applying_tells_whether_it_changed_anything() {
    let bench = Bench::new(5, &[]);
    let manifest = |mode: u32| {
        let object = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": "99-worker-ocpdeploy"}, "spec": {"config": {"mode": mode}}});
        serde_json::from_value(object).unwrap()
    };
    run(async {
        let api = bench.api().await;
        assert!(api.apply(manifest(1)).await.unwrap());
        assert!(!api.apply(manifest(1)).await.unwrap());
        assert!(api.apply(manifest(2)).await.unwrap());
    });
    let world = bench.kube.finish();
    assert_eq!(
        world.get(MACHINE_CONFIGS, "99-worker-ocpdeploy").unwrap()["spec"]["config"]["mode"],
        2
    );
}
