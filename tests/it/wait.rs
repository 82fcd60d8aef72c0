//! The waits of an installation and the approval of nodes, with an API that is slow, restarts and has hostile requests.

use crate::support::{cluster, fake_kube};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ocpdeploy::cluster::{ClusterConfig, NodeName, Role};
use ocpdeploy::failure::explain;
use ocpdeploy::openshift::api::ClusterApi;
use ocpdeploy::openshift::wait::Cluster;
use ocpdeploy::state::parameters::Parameters;
use serde_json::json;

use crate::support::fake_kube::authority::Authority;
use crate::support::fake_kube::server::FakeKube;
use crate::support::fake_kube::world::{
    CONFIG_MAPS, EtcdOperator, Faults, LEASES, MANAGED, NODES, OPERATORS, REQUESTS, Stage, World,
};

const LONG: Duration = Duration::from_secs(60);

struct Bench {
    kube: FakeKube,
    authority: Authority,
    table: Parameters,
    folder: tempfile::TempDir,
}

impl Bench {
    /// A cluster of the usual table in `127.92.<network>.0/24`, with every hostile request there is.
    fn new(network: u8, gate: Stage) -> Self {
        Self::of(&cluster::config(), network, gate)
    }

    fn of(config: &ClusterConfig, network: u8, gate: Stage) -> Self {
        let vip = Ipv4Addr::new(127, 92, network, 10);
        let table = cluster::parameters(config, vip);
        let authority = Authority::new();
        let certificate = authority.server("api.lab.example.com", |_| {});
        let mut world = World::new(table.clone()).hostile();
        world.gate = gate;
        let kube = FakeKube::start(world, SocketAddr::from((vip, 0)), &authority, &certificate);
        Self {
            kube,
            authority,
            table,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    async fn api(&self) -> ClusterApi {
        let path = self.folder.path().join("kubeconfig");
        let server = format!("https://api.lab.example.com:{}", self.kube.address().port());
        std::fs::write(&path, self.authority.kubeconfig("lab", &server)).unwrap();
        ClusterApi::open(&path, self.table.api_ip).await.unwrap()
    }

    fn install(&self, limit: Duration) -> anyhow::Result<()> {
        run(async {
            let (api, table) = (self.api().await, &self.table);
            Ok(Cluster {
                api: &api,
                table,
                pools: &[],
            }
            .install_complete(limit)
            .await?)
        })
    }

    fn bootstrap(&self, limit: Duration) -> anyhow::Result<()> {
        run(async {
            let (api, table) = (self.api().await, &self.table);
            Ok(Cluster {
                api: &api,
                table,
                pools: &[],
            }
            .bootstrap_complete(limit)
            .await?)
        })
    }

    /// Ends the server; exactly the valid requests were approved, each once.
    #[track_caller]
    fn finish(self) -> World {
        let world = self.kube.finish();
        let mut approved = world.approved.clone();
        approved.sort();
        assert_eq!(
            approved,
            [
                "csr-client-worker-0",
                "csr-client-worker-1",
                "csr-serving-worker-0",
                "csr-serving-worker-1"
            ]
        );
        world
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(future)
}

/// Changes the world as soon as the condition holds.
fn when(
    world: &Arc<Mutex<World>>,
    is: impl Fn(&World) -> bool + Send + 'static,
    then: impl FnOnce(&mut World) + Send + 'static,
) -> std::thread::JoinHandle<()> {
    let world = world.clone();
    std::thread::spawn(move || {
        let begun = Instant::now();
        loop {
            let mut world = world.lock().unwrap();
            if is(&world) {
                return then(&mut world);
            }
            drop(world);
            assert!(begun.elapsed() < LONG, "the moment did not come");
            std::thread::sleep(Duration::from_millis(2));
        }
    })
}

#[test]
fn a_cluster_is_installed_and_only_its_own_nodes_are_approved() {
    let bench = Bench::new(1, Stage::Installed);
    bench.bootstrap(LONG).unwrap();
    bench.install(LONG).unwrap();
    let world = bench.finish();
    assert!(world.watched > 0, "requests were not watched");
    let hostile = fake_kube::requests::hostile(&cluster::parameters(&cluster::config(), Ipv4Addr::new(127, 92, 1, 10)));
    assert_eq!(hostile.len(), 16);
    for request in hostile {
        let name = request["metadata"]["name"].as_str().unwrap();
        assert_eq!(
            world.get(REQUESTS, name).unwrap()["status"],
            json!({}),
            "{name} was changed"
        );
    }
}

#[test]
fn a_second_client_certificate_waits_until_the_first_is_used() {
    let bench = Bench::new(27, Stage::Installed);
    let host = bench.table.cluster_domain().fqdn("worker-0");
    let mut taken = fake_kube::requests::client(&host).object("csr-taken-worker-0");
    taken["status"] = json!({"conditions": [{"type": "Approved", "status": "True", "reason": "OcpdeployApproved"}]});
    bench.kube.with(|world| world.put(REQUESTS, taken));
    bench.bootstrap(LONG).unwrap();
    bench.install(Duration::from_secs(6)).unwrap_err();
    bench.kube.with(|world| {
        let approved = |name: &str| world.approved.iter().any(|approved| approved == name);
        assert!(approved("csr-client-worker-1"), "{:?}", world.approved);
        assert!(!approved("csr-client-worker-0"), "{:?}", world.approved);
        world.delete(REQUESTS, "csr-taken-worker-0");
    });
    bench.install(LONG).unwrap();
    bench.finish();
}

#[test]
fn an_installation_survives_a_busy_server_that_resets_connections() {
    let bench = Bench::new(2, Stage::Installed);
    let faults = || Faults {
        too_many: 4,
        unavailable: 4,
        resets: 3,
        conflicts: 3,
        ..Faults::default()
    };
    bench.kube.with(|world| world.faults = faults());
    bench.bootstrap(LONG).unwrap();
    bench.kube.with(|world| world.faults = faults());
    let again = when(
        &bench.kube.world,
        |world| world.approved.len() == 2,
        move |world| {
            world.forget();
            world.faults = faults();
        },
    );
    bench.install(LONG).unwrap();
    again.join().unwrap();
    bench.finish();
}

#[test]
fn an_installation_survives_a_restart_of_the_server() {
    let mut bench = Bench::new(3, Stage::Installed);
    bench.kube.with(|world| world.gate = Stage::Workers);
    let table = bench.table.clone();
    let api = run(bench.api());
    drop(api);
    let path = bench.folder.path().join("kubeconfig");
    let waiting = std::thread::spawn(move || {
        run(async {
            let api = ClusterApi::open(&path, table.api_ip).await.unwrap();
            let cluster = Cluster {
                api: &api,
                table: &table,
                pools: &[],
            };
            cluster.install_complete(LONG).await.unwrap();
        });
    });
    for count in [1, 3, 4] {
        when(&bench.kube.world, move |world| world.approved.len() >= count, |_| {})
            .join()
            .unwrap();
        bench.kube.stop();
        std::thread::sleep(Duration::from_millis(300));
        bench.kube.again();
    }
    bench.kube.with(|world| world.gate = Stage::Installed);
    waiting.join().unwrap();
    bench.finish();
}

#[test]
fn a_timeout_reports_the_last_observed_state() {
    let bench = Bench::new(4, Stage::Masters);
    let error = bench.bootstrap(Duration::from_secs(2)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "timed out waiting for bootstrap-complete after 2 s; last status:\n  masters: all 3 Ready\n  etcd: 3 members are available"
    );
    bench.kube.with(|world| world.gate = Stage::Workers);
    let error = bench.install(Duration::from_secs(3)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "timed out waiting for install-complete after 3 s; last status:\n  nodes: all 5 Ready\n  \
         operators: 0 of 5 available; waiting for authentication, console, dns, etcd, ingress\n  \
         operator authentication not available: no replicas are available\n  \
         operator console not available: no replicas are available\n  \
         operator dns not available: no replicas are available\n  \
         version: Working towards 4.19.0: 0 of 900 done (0% complete)"
    );
    assert_eq!(explain(&error).kind.exit_code(), 6);
}

#[test]
fn an_arbiter_is_waited_for_as_masters_are() {
    let config = ClusterConfig {
        masters: 2,
        arbiter: true,
        workers: 0,
        ..cluster::config()
    };
    let bench = Bench::of(&config, 60, Stage::Installed);
    let host = "arbiter-0.lab.example.com".to_owned();
    bench.kube.with(|world| world.sick.insert(host));
    let error = bench.bootstrap(Duration::from_secs(2)).unwrap_err().to_string();
    let last = "\n  masters: all 2 Ready\n  arbiter: 0 of 1 Ready; arbiter-0 not Ready";
    assert!(error.contains(last), "{error}");
    bench.kube.with(|world| world.sick.clear());
    bench.bootstrap(LONG).unwrap();
    bench.install(LONG).unwrap();
}

/// Also after a long wait, when the status is queried rarely.
#[test]
fn bootstrap_complete_is_noticed_within_a_second() {
    let bench = Bench::new(28, Stage::Masters);
    let world = bench.kube.world.clone();
    let opened = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(4));
        world.lock().unwrap().gate = Stage::Bootstrapped;
        when(&world, |world| world.get(CONFIG_MAPS, "bootstrap").is_some(), |_| {})
            .join()
            .unwrap();
        Instant::now()
    });
    bench.bootstrap(LONG).unwrap();
    let delay = opened.join().unwrap().elapsed();
    println!("bootstrap-complete: noticed after at most {} ms", delay.as_millis());
    assert!(delay < Duration::from_secs(1), "{delay:?}");
}

/// As openshift-install, which only waits until no operator is progressing.
#[test]
fn an_installation_waits_for_progressing_operators_but_not_for_degraded_ones() {
    let bench = Bench::new(5, Stage::Installed);
    bench.bootstrap(LONG).unwrap();
    let set = |world: &mut World, condition: usize, status: &str| {
        world.edit(OPERATORS, "ingress", |seen| {
            seen["status"]["conditions"][condition]["status"] = json!(status)
        });
    };
    let busy = when(
        &bench.kube.world,
        |world| {
            world
                .get(OPERATORS, "ingress")
                .is_some_and(|seen| seen["status"]["conditions"][0]["status"] == "True")
        },
        move |world| set(world, 1, "True"),
    );
    let error = bench.install(Duration::from_secs(5)).unwrap_err();
    busy.join().unwrap();
    assert!(error.to_string().contains("waiting for ingress"), "{error}");
    bench.kube.with(|world| {
        set(world, 1, "False");
        set(world, 2, "True");
    });
    bench.install(LONG).unwrap();
    bench.finish();
}

/// A recreated node has the same name, and the requests of the previous node still exist.
#[test]
fn a_serving_certificate_of_the_previous_machine_does_not_count() {
    let bench = Bench::new(19, Stage::Installed);
    bench.bootstrap(LONG).unwrap();
    bench.install(LONG).unwrap();
    let host = bench.table.cluster_domain().fqdn("worker-0");
    bench.kube.with(|world| {
        world.edit(REQUESTS, "csr-serving-worker-0", |request| {
            request["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z")
        });
    });
    let request =
        fake_kube::requests::serving(&host, bench.table.node(&worker(0)).unwrap()).object("csr-serving-worker-0-again");
    let world = bench.kube.world.clone();
    let asks = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        let mut world = world.lock().unwrap();
        world.rightful.push("csr-serving-worker-0-again".to_owned());
        world.put(REQUESTS, request);
    });
    run(async {
        let (api, table) = (bench.api().await, &bench.table);
        assert!(api.node(&host).await.unwrap().is_some());
        let nodes = [worker(0)].into();
        Cluster {
            api: &api,
            table,
            pools: &[],
        }
        .nodes_ready(&nodes, LONG)
        .await
        .unwrap();
    });
    asks.join().unwrap();
    let approved = bench.kube.with(|world| world.approved.clone());
    assert!(
        approved.contains(&"csr-serving-worker-0-again".to_owned()),
        "{approved:?}"
    );
}

#[test]
fn the_kubeconfig_gets_the_routers_ca_as_from_openshift_install() {
    let bench = Bench::new(20, Stage::Installed);
    bench.bootstrap(LONG).unwrap();
    bench.install(LONG).unwrap();
    let path = bench.folder.path().join("kubeconfig");
    let trust = || -> anyhow::Result<()> {
        run(async {
            let (api, table) = (bench.api().await, &bench.table);
            Ok(Cluster {
                api: &api,
                table,
                pools: &[],
            }
            .trust_routers(&path, LONG)
            .await?)
        })
    };
    trust().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let read: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    let data = read["clusters"][0]["cluster"]["certificate-authority-data"]
        .as_str()
        .unwrap();
    let both = String::from_utf8(STANDARD.decode(data).unwrap()).unwrap();
    let published = bench.kube.with(|world| {
        let map = world.get(MANAGED, "default-ingress-cert").unwrap();
        map["data"]["ca-bundle.crt"].as_str().unwrap().to_owned()
    });
    assert_eq!(both, published + bench.authority.pem());
    // The API is still trusted, and a cluster without an ingress operator has no such CA.
    run(async {
        let api = ClusterApi::open(&path, bench.table.api_ip).await.unwrap();
        api.version().await.unwrap();
    });
    bench.kube.with(|world| world.delete(MANAGED, "default-ingress-cert"));
    trust().unwrap();
}

#[test]
fn an_unresponsive_vip_is_reported_with_cause_and_hint() {
    let mut bench = Bench::new(6, Stage::Api);
    bench.kube.stop();
    let error = bench.bootstrap(Duration::from_secs(1)).unwrap_err();
    let port = bench.kube.address().port().to_string();
    let failure = explain(&error);
    assert_eq!(failure.kind.exit_code(), 6);
    insta::assert_snapshot!(failure.render(false).replace(&port, "<port>"));
}

#[test]
fn the_bootstrap_is_kept_until_etcd_runs_without_it() {
    for (network, words) in [(10, EtcdOperator::New), (11, EtcdOperator::Old)] {
        let bench = Bench::new(network, Stage::Bootstrapped);
        bench.kube.with(|world| world.etcd_operator = words);
        bench.bootstrap(LONG).unwrap();
        let removed = |limit| -> anyhow::Result<()> {
            run(async {
                let (api, table) = (bench.api().await, &bench.table);
                Ok(Cluster {
                    api: &api,
                    table,
                    pools: &[],
                }
                .bootstrap_member_removed(limit)
                .await?)
            })
        };
        let error = removed(Duration::from_secs(1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "timed out waiting for bootstrap-member-removed after 1 s; last status:\n  \
             etcd: the operator has not removed the bootstrap member yet: enough members found"
        );
        bench.kube.with(|world| world.gate = Stage::MemberRemoved);
        removed(LONG).unwrap();
    }
}

#[test]
fn without_etcds_operator_there_is_no_wait_for_etcd() {
    let bench = Bench::new(12, Stage::Bootstrapped);
    bench.kube.with(|world| world.etcd_operator = EtcdOperator::Absent);
    bench.bootstrap(LONG).unwrap();
    run(async {
        let (api, table) = (bench.api().await, &bench.table);
        assert!(api.etcd().await.unwrap().is_none(), "404 in plain text is absence, too");
        let cluster = Cluster {
            api: &api,
            table,
            pools: &[],
        };
        cluster.bootstrap_member_removed(LONG).await.unwrap();
    });
}

/// An installed cluster that is partly off and starts again.
struct Resting {
    bench: Bench,
    /// Nodes whose machines are off.
    off: Arc<Mutex<BTreeSet<NodeName>>>,
}

impl Resting {
    fn new(network: u8) -> Self {
        let bench = Bench::new(network, Stage::Installed);
        bench.bootstrap(LONG).unwrap();
        bench.install(LONG).unwrap();
        let off = Arc::new(Mutex::new(BTreeSet::new()));
        let seen = off.clone();
        bench.kube.with(|world| {
            world.present = Some(Box::new(move |node| !seen.lock().unwrap().contains(node)));
            world.certificates_ended = true;
            // As in a cluster that was off as a whole.
            world.nobody_watches = true;
        });
        Self { bench, off }
    }

    /// Switches a machine off, and optionally on again once its kubelet has ended.
    fn off(&self, node: &NodeName, and_on: bool) {
        self.off.lock().unwrap().insert(node.clone());
        let host = self.bench.table.cluster_domain().fqdn(node.as_str());
        when(&self.bench.kube.world, move |world| world.is_lost(&host), |_| {})
            .join()
            .unwrap();
        if and_on {
            self.off.lock().unwrap().remove(node);
        }
    }

    /// Waits until all nodes are Ready; `off` are those that were seen off.
    fn start(&self, off: &[&NodeName], limit: Duration) -> anyhow::Result<()> {
        let nodes = self
            .bench
            .table
            .nodes
            .iter()
            .filter(|node| node.role != Role::Bootstrap);
        let nodes: BTreeSet<NodeName> = nodes.map(|node| node.name.clone()).collect();
        let off = off.iter().copied().cloned().collect();
        run(async {
            let (api, table) = (self.bench.api().await, &self.bench.table);
            Ok(Cluster {
                api: &api,
                table,
                pools: &[],
            }
            .nodes_back(&nodes, &off, limit)
            .await?)
        })
    }

    /// Requests a client certificate in the name of a node.
    fn forge(&self, node: &NodeName, name: &str, is_approved: bool) {
        let mut request =
            fake_kube::requests::client(&self.bench.table.cluster_domain().fqdn(node.as_str())).object(name);
        if is_approved {
            request["status"] =
                json!({"conditions": [{"type": "Approved", "status": "True", "reason": "OcpdeployApproved"}]});
        }
        self.bench.kube.with(|world| world.put(REQUESTS, request));
    }

    fn approved(&self, name: &str) -> bool {
        self.bench
            .kube
            .with(|world| world.approved.iter().any(|approved| approved == name))
    }
}

fn master(index: usize) -> NodeName {
    NodeName::node(Role::Master, index)
}

fn worker(index: usize) -> NodeName {
    NodeName::node(Role::Worker, index)
}

#[test]
fn an_outdated_ready_condition_is_ignored() {
    let resting = Resting::new(13);
    // Clock skew has no effect, not even of a year.
    resting
        .bench
        .kube
        .with(|world| world.skew = jiff::SignedDuration::from_hours(9000));
    resting.off(&worker(1), false);
    let error = resting.start(&[], Duration::from_secs(4)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "timed out waiting for Ready nodes after 4 s; last status:\n  \
         nodes: 4 of 5 Ready; worker-1 not Ready (kubelet has not renewed its Lease yet)"
    );
    resting.off.lock().unwrap().clear();
    resting.start(&[], LONG).unwrap();
    assert!(resting.approved("csr-again-worker-1"));
}

#[test]
fn only_silent_nodes_get_a_new_client_certificate() {
    let resting = Resting::new(14);
    resting.off(&worker(0), true);
    resting.forge(&worker(1), "csr-forged-worker-1", false);
    resting.forge(&master(0), "csr-forged-master-0", false);
    resting.start(&[&master(0)], LONG).unwrap();
    assert!(resting.approved("csr-again-worker-0"));
    for forged in ["csr-forged-worker-1", "csr-forged-master-0"] {
        assert!(!resting.approved(forged), "{forged} is of a running node");
    }
}

#[test]
fn start_approves_no_request_of_a_node_that_left_the_cluster() {
    let resting = Resting::new(15);
    resting.off(&worker(0), false);
    let host = "worker-0.lab.example.com";
    resting.bench.kube.with(|world| world.delete(NODES, host));
    resting.forge(&worker(0), "csr-forged-worker-0", false);
    resting.start(&[&worker(0)], Duration::from_secs(6)).unwrap_err();
    assert!(!resting.approved("csr-forged-worker-0"));
}

#[test]
fn a_master_gets_a_new_client_certificate_only_if_its_machine_was_off() {
    let resting = Resting::new(16);
    resting.off(&master(2), true);
    resting.start(&[&master(1)], Duration::from_secs(6)).unwrap_err();
    assert!(!resting.approved("csr-again-master-2"));
    resting.start(&[&master(2)], LONG).unwrap();
    assert!(resting.approved("csr-again-master-2"));
}

#[test]
fn a_node_with_a_certificate_that_it_has_not_used_gets_no_second() {
    let resting = Resting::new(17);
    resting
        .bench
        .kube
        .with(|world| world.skew = jiff::SignedDuration::from_secs(-5));
    let renewed = |world: &World| world.get(LEASES, "worker-0.lab.example.com").unwrap()["spec"]["renewTime"].clone();
    let before = resting.bench.kube.with(|world| renewed(world));
    when(&resting.bench.kube.world, move |world| renewed(world) != before, |_| {})
        .join()
        .unwrap();
    resting.off(&worker(0), false);
    resting.forge(&worker(0), "csr-granted", true);
    resting.off.lock().unwrap().clear();
    resting.start(&[], Duration::from_secs(6)).unwrap_err();
    assert!(!resting.approved("csr-again-worker-0"));
    // It was used: the kubelet has renewed its Lease since.
    resting.bench.kube.with(|world| {
        world.edit(LEASES, "worker-0.lab.example.com", |lease| {
            lease["spec"]["renewTime"] = json!("2040-01-01T00:00:00.000000Z")
        })
    });
    resting.start(&[], LONG).unwrap();
    assert!(resting.approved("csr-again-worker-0"));
}

#[test]
fn a_node_of_the_cluster_gets_no_first_certificate_when_others_join() {
    let resting = Resting::new(18);
    resting.off(&worker(1), false);
    resting.forge(&worker(1), "csr-forged-worker-1", false);
    run(async {
        let (api, table) = (resting.bench.api().await, &resting.bench.table);
        let workers = [worker(0), worker(1)].into();
        Cluster {
            api: &api,
            table,
            pools: &[],
        }
        .nodes_ready(&workers, LONG)
        .await
        .unwrap();
    });
    assert!(!resting.approved("csr-forged-worker-1"));
}
