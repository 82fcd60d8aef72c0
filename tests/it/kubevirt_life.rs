//! The life of a cluster on the pods' own network of the fake KubeVirt, with the binary: a fake of openshift-install, and
//! behind the api Service, on the loopback, a fake API and a machine config server.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::fake_installer;
use crate::support::fake_kube::authority::Authority;
use crate::support::fake_kube::server::FakeKube;
use crate::support::fake_kube::world::{NODES, SECRETS, World as Cluster};
use crate::support::fake_kubevirt::World;
use crate::support::kubevirt_sandbox::Sandbox;
use crate::support::mcs_server::McsServer;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ocpdeploy::cluster::{NodeName, Role};
use ocpdeploy::state::parameters::Parameters;
use serde_json::{Value, json};

const ON_PODS: &str = "network=pod\nkubevirt_pod_networks=10.128.0.0/14\nmasters=1\nworkers=1";

/// A cluster on the pod network, with its API and machine config server.
struct Life {
    sandbox: Sandbox,
    kube: Option<FakeKube>,
    _mcs: McsServer,
    ends: Arc<AtomicBool>,
}

impl Life {
    /// Deploys it; its virtual IPs are of this /24.
    fn begun(range: &'static str) -> Self {
        let sandbox = Sandbox::new(World::with_tenants(&["blue", "red"]));
        sandbox.server.with(|world| world.balancers_at = range);
        let authority = fake_installer::install(sandbox.path());
        sandbox.env(
            "lab",
            &format!(
                "{ON_PODS}\n{}image=containerdisk:registry.example.com/rhcos\nharvest_image=containerdisk:registry.example.com/centos",
                fake_installer::LINES
            ),
        );
        let mut child = sandbox.start(&["deploy", "lab.sh"]);
        let begun = Instant::now();
        let path = sandbox.home().cluster("lab").parameters();
        let table = loop {
            match Parameters::read(&path).unwrap() {
                Some(table) => break table,
                None if child.try_wait().unwrap().is_some() => {
                    panic!("{}", String::from_utf8_lossy(&child.wait_with_output().unwrap().stderr))
                }
                None => assert!(begun.elapsed() < Duration::from_secs(60), "no table"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let certificate = authority.server("api-int.lab.example.com", |_| {});
        let served = |path: &str, version: &str| {
            let file = json!({"path": "/etc/served", "mode": 420,
                "contents": {"source": format!("data:,{path}"), "compression": ""}});
            json!({"ignition": {"version": version}, "storage": {"files": [file]}}).to_string()
        };
        let address = SocketAddr::from((table.api_ip, 22623));
        let mcs = McsServer::start(
            address,
            &certificate.certificate,
            &certificate.key,
            move |path, version| Some((200, served(path, version).into_bytes())),
        );
        let (kube, ends) = cluster(&sandbox, table, &authority);
        let deployed = child.wait_with_output().unwrap();
        assert!(
            deployed.status.success(),
            "{}",
            String::from_utf8_lossy(&deployed.stderr)
        );
        Self {
            sandbox,
            kube: Some(kube),
            _mcs: mcs,
            ends,
        }
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.sandbox.run(arguments);
        assert!(status.success(), "{arguments:?}\n{}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    }

    /// Names and ids of the machines.
    fn machines(&self) -> BTreeMap<String, String> {
        self.sandbox.server.with(|world| {
            let all = world.all("virtualmachines").into_iter();
            all.map(|((.., name), object)| (name, object["metadata"]["uid"].to_string()))
                .collect()
        })
    }

    /// Names of the nodes that have joined.
    fn nodes(&self) -> BTreeSet<String> {
        let table = self.sandbox.parameters("lab");
        let kube = self.kube.as_ref().unwrap();
        let names = table.nodes.iter().map(|node| node.name.as_str());
        let joined = |name: &&str| kube.with(|world| world.get(NODES, &format!("{name}.lab.example.com")).is_some());
        names.filter(joined).map(str::to_owned).collect()
    }

    /// The config that a node reads at its first boot, from its Secret.
    fn config(&self, node: &str) -> Value {
        let secret = self
            .sandbox
            .object("secrets", "blue", &format!("lab-{node}-first-boot"));
        let bytes = STANDARD.decode(secret["data"]["userdata"].as_str().unwrap()).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    /// Each node has a Service that keeps its address, and its config is complete.
    fn is_whole(&self, nodes: &[&str]) {
        let machines: BTreeSet<String> = self.machines().into_keys().collect();
        assert_eq!(machines, nodes.iter().map(|node| format!("lab-{node}")).collect());
        assert_eq!(self.nodes(), nodes.iter().map(|node| (*node).to_owned()).collect());
        let services = self.sandbox.server.with(|world| world.names("services", "blue"));
        let mut expected: Vec<String> = nodes.iter().map(|node| format!("lab-{node}")).collect();
        expected.extend(["lab-api-vip", "lab-ingress-vip"].map(str::to_owned));
        expected.sort();
        assert_eq!(services, expected);
        for node in nodes {
            let config = self.config(node);
            assert_eq!(
                config["ignition"]["config"]["merge"],
                json!([]),
                "{node} fetches something"
            );
            let role = node.split('-').next().unwrap();
            assert!(
                config.to_string().contains(&format!("data:,/config/{role}")),
                "{node} lacks what the machine config server has"
            );
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// The API of the cluster; its nodes exist while their machines run. Nodes that are added later join.
fn cluster(sandbox: &Sandbox, table: Parameters, authority: &Authority) -> (FakeKube, Arc<AtomicBool>) {
    let address = SocketAddr::from((table.api_ip, 6443));
    let mut world = Cluster::new(table);
    let pointer = json!({"ignition": {"version": "3.2.0",
        "config": {"merge": [{"source": "https://api-int.lab.example.com:22623/config/worker"}]},
        "security": {"tls": {"certificateAuthorities": [
            {"source": format!("data:text/plain;charset=utf-8;base64,{}", STANDARD.encode(authority.pem()))}]}}}});
    world.put(
        SECRETS,
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": "worker-user-data-managed", "namespace": "openshift-machine-api"},
            "data": {"userData": STANDARD.encode(pointer.to_string()), "disableTemplating": STANDARD.encode("true\n")},
        }),
    );
    let platform = sandbox.server.world.clone();
    world.present = Some(Box::new(move |node: &NodeName| {
        let platform = platform.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        platform
            .names("virtualmachineinstances", "blue")
            .contains(&format!("lab-{node}"))
    }));
    let certificate = authority.server("api.lab.example.com", |_| {});
    let kube = FakeKube::start(world, address, authority, &certificate);
    let (world, ends) = (kube.world.clone(), Arc::new(AtomicBool::new(false)));
    let (path, seen) = (sandbox.home().cluster("lab").parameters(), ends.clone());
    std::thread::spawn(move || {
        while !seen.load(Ordering::Relaxed) {
            if let Ok(Some(table)) = Parameters::read(&path) {
                world.lock().unwrap().learn(table);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    (kube, ends)
}

#[test]
fn a_cluster_on_pods_is_scaled_and_a_node_of_it_replaced() {
    let mut life = Life::begun("127.94.1");
    life.is_whole(&["master-0", "worker-0"]);
    let first = life.sandbox.parameters("lab");
    life.run(&["scale", "lab", "--workers", "3"]);
    life.is_whole(&["master-0", "worker-0", "worker-1", "worker-2"]);
    let table = life.sandbox.parameters("lab");
    assert_eq!(table.nodes[..first.nodes.len()], first.nodes);
    let addresses: BTreeSet<_> = table.nodes.iter().map(|node| node.ip).collect();
    assert_eq!(addresses.len(), table.nodes.len());
    life.run(&["scale", "lab", "--workers", "2", "--yes"]);
    life.is_whole(&["master-0", "worker-0", "worker-1"]);
    assert_eq!(life.sandbox.parameters("lab").of_role(Role::Worker).count(), 2);
    let (before, machines) = (life.sandbox.parameters("lab"), life.machines());
    life.run(&["node", "replace", "lab", "worker-1", "--yes"]);
    life.is_whole(&["master-0", "worker-0", "worker-1"]);
    assert_eq!(life.sandbox.parameters("lab").nodes, before.nodes);
    for (name, id) in life.machines() {
        assert_eq!(machines[&name] != id, name == "lab-worker-1", "{name}");
    }
    life.run(&["destroy", "lab", "--yes"]);
    assert_eq!(life.sandbox.inventory("blue"), [""; 0]);
    life.sandbox.server.was_asked_well();
    let world = life.kube.take().unwrap().finish();
    assert_eq!(
        world.wrongly_approved(),
        [""; 0],
        "a request was approved that should not be"
    );
}
