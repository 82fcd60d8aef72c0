//! Node pools: workers in groups, from the deployment to the end, on the simulated platform and with an API.

use std::collections::BTreeMap;
use std::process::Child;

use crate::support::fake_kube::server::FakeKube;
use crate::support::fake_kube::world::{MACHINE_CONFIGS, NODES, POOLS, Stage};
use crate::support::sandbox::{Sandbox, outcome};
use crate::support::site::Site;
use crate::support::until::{LONG, until};
use ocpdeploy::cluster::Role;
use ocpdeploy::state::parameters::Parameters;
use serde_json::{Value, json};

const LAB: &str = "masters=1\nworkers=1\nimage=coreos\nharvest_image=helper\nworker_memory=3000\nextra_networks=lan\n\
    pool_memory=gpu:5000\npool_numcpus=gpu:7\npool_extra_disks=infra:20,infra:30,gpu:0\npool_extra_networks=gpu:fast";

const WORKERS: [&str; 4] = ["worker-0", "infra-0", "infra-1", "gpu-0"];

fn lab() -> Sandbox {
    let network = |subnet: u8| {
        let ip = |last: u8| format!("192.168.{subnet}.{last}");
        json!({"cidr": format!("{}/24", ip(0)), "gateway": ip(1), "dhcp_from": ip(2), "dhcp_to": ip(254)})
    };
    let networks = json!({"default": network(122), "lan": network(123), "fast": network(124)});
    let sandbox = Sandbox::new(json!({"networks": networks}));
    with_pools(&sandbox, "infra:2,gpu:1");
    sandbox.deploy("lab").succeeded();
    sandbox
}

fn with_pools(sandbox: &Sandbox, pools: &str) {
    sandbox.env("lab", &format!("{LAB}\npools={pools}"));
}

fn workers(table: &Parameters) -> Vec<String> {
    table.of_role(Role::Worker).map(|node| node.name.to_string()).collect()
}

fn machine(sandbox: &Sandbox, node: &str) -> Value {
    sandbox.state()["machines"][format!("lab-{node}")].clone()
}

#[test]
fn nodes_of_pools_are_workers_with_names_and_sizes_of_their_own() {
    let sandbox = lab();
    let table = sandbox.parameters("lab").unwrap();
    assert_eq!(workers(&table), WORKERS);
    let shown = |node: &str| {
        let machine = machine(&sandbox, node);
        let networks: Vec<_> = machine["nics"]
            .as_array()
            .unwrap()
            .iter()
            .map(|nic| nic["network"].clone())
            .collect();
        json!([
            machine["memory_mib"],
            machine["cpus"],
            machine["extra_disks_gib"],
            networks
        ])
    };
    let usual = shown("worker-0");
    assert_eq!(usual[0], 3000);
    assert_eq!(usual[3], json!(["default", "lan"]));
    assert_eq!(shown("infra-1"), json!([3000, usual[1], [20, 30], ["default", "lan"]]));
    assert_eq!(shown("gpu-0"), json!([5000, 7, [], ["default", "fast"]]));
    for node in table.of_role(Role::Worker) {
        assert_eq!(
            machine(&sandbox, node.name.as_str())["nics"][0]["mac"],
            node.mac.to_string()
        );
    }
    // The same settings change nothing, and other settings are rejected with the command that applies them.
    let made = machine(&sandbox, "infra-0")["created_ms"].clone();
    sandbox.deploy("lab").succeeded();
    assert_eq!(machine(&sandbox, "infra-0")["created_ms"], made);
    for (pools, what, hint) in [
        (
            "infra:3,gpu:1",
            "its pool infra has 2 nodes, the settings say 3",
            "`ocpdeploy scale lab --pool infra=3`",
        ),
        (
            "infra:1,gpu:2",
            "its pool infra has 2 nodes, the settings say 1; its pool gpu has 1 node, the settings say 2",
            "`ocpdeploy scale lab --pool infra=1 --pool gpu=2`",
        ),
    ] {
        with_pools(&sandbox, pools);
        let refused = sandbox.deploy("lab");
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        for words in [what, hint] {
            assert!(refused.message().contains(words), "{words}\n{}", refused.stderr);
        }
    }
    let other = LAB.replace("gpu:5000", "gpu:6000");
    sandbox.env("lab", &format!("{other}\npools=infra:2,gpu:1"));
    let refused = sandbox.deploy("lab");
    let what = "its nodes of pool gpu have 7 CPUs, 5000 MiB of memory";
    assert!(refused.message().contains(what), "{}", refused.stderr);
}

#[test]
fn a_pool_grows_and_shrinks_and_its_nodes_are_replaced() {
    let sandbox = lab();
    let before = sandbox.parameters("lab").unwrap();
    let run = |words: &[&str]| sandbox.run(words);
    let grown = run(&["scale", "lab", "--pool", "infra=3", "--pool", "gpu=2"]).succeeded();
    assert!(grown.stdout.contains("added: infra-2, gpu-1"), "{}", grown.stdout);
    let counted = "cluster lab.example.com has 6 workers, 2 in pool gpu, 3 in pool infra";
    assert!(grown.stdout.contains(counted), "{}", grown.stdout);
    assert_eq!(machine(&sandbox, "gpu-1")["memory_mib"], 5000);
    let table = sandbox.parameters("lab").unwrap();
    assert_eq!(table.nodes[..before.nodes.len()], before.nodes);

    // Pools that are not named stay unchanged, whatever the env file says.
    let more = run(&["scale", "lab", "--workers", "2"]).succeeded();
    assert!(more.stdout.contains("added: worker-1\n"), "{}", more.stdout);
    let made = machine(&sandbox, "infra-2")["created_ms"].clone();
    let replaced = run(&["node", "replace", "lab", "infra-2", "--yes"]).succeeded();
    assert!(
        replaced.stdout.contains("infra-2 of cluster lab.example.com recreated"),
        "{}",
        replaced.stdout
    );
    assert_ne!(machine(&sandbox, "infra-2")["created_ms"], made);
    let now = sandbox.parameters("lab").unwrap();
    let of_infra = |table: &Parameters| table.nodes.iter().find(|node| node.name.as_str() == "infra-2").cloned();
    assert_eq!(of_infra(&now), of_infra(&table));

    let shrunk = run(&["scale", "lab", "--pool", "infra=1", "--pool", "gpu=0", "--yes"]).succeeded();
    for gone in ["gpu-1", "gpu-0", "infra-2", "infra-1"] {
        assert!(shrunk.stdout.contains(gone), "{gone}\n{}", shrunk.stdout);
    }
    assert_eq!(
        workers(&sandbox.parameters("lab").unwrap()),
        ["worker-0", "infra-0", "worker-1"]
    );
    // A pool can be added later.
    with_pools(&sandbox, "infra:2,gpu:1,disks:3");
    let later = run(&["scale", "lab", "--pool", "disks=1", "--env", "lab.sh"]).succeeded();
    assert!(later.stdout.contains("added: disks-0\n"), "{}", later.stdout);
    let unknown = run(&["scale", "lab", "--pool", "infar=1"]);
    assert_eq!(unknown.code, Some(3), "{}", unknown.stderr);
    assert!(unknown.message().contains("have no pool infar"), "{}", unknown.stderr);

    run(&["destroy", "lab", "--yes"]).succeeded();
    assert_eq!(sandbox.machines(None), []);
    assert_eq!(sandbox.reservations(None), []);
}

const MARKED: &str = "workers=1\npools=infra:1,gpu:1\npool_labels=gpu:example.com/gpu=yes,gpu:fast\n\
    pool_taints=infra:dedicated=infra:NoSchedule\nmachine_config_pools=infra";

fn node(kube: &FakeKube, name: &str) -> Value {
    kube.with(|world| world.get(NODES, &format!("{name}.lab.example.com")).cloned().unwrap())
}

/// Its labels other than those that a kubelet sets, and its taints.
fn marks(kube: &FakeKube, name: &str) -> (BTreeMap<String, String>, Value) {
    let node = node(kube, name);
    let mut labels: BTreeMap<String, String> = serde_json::from_value(node["metadata"]["labels"].clone()).unwrap();
    labels.remove("kubernetes.io/hostname");
    assert_eq!(
        labels.remove("node-role.kubernetes.io/worker").as_deref(),
        Some(""),
        "{name}"
    );
    (labels, node["spec"]["taints"].clone())
}

fn labels(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
    let labels = labels.iter();
    labels
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// Adds new nodes to the cluster as soon as they are in the table.
fn learn(site: &Site, kube: &FakeKube, child: &mut Child, node: &str) {
    let is_there = |table: &Parameters| table.nodes.iter().any(|known| known.name.as_str() == node);
    until(LONG, node, || {
        site.sandbox.parameters("lab").is_some_and(|table| is_there(&table)) || child.try_wait().unwrap().is_some()
    });
    kube.with(|world| world.learn(site.sandbox.parameters("lab").unwrap()));
}

#[test]
fn nodes_of_pools_get_their_labels_and_taints_from_the_api() {
    let site = Site::new(40, MARKED);
    let mut child = site.start(&[]);
    let kube = site.kube(&mut child, Stage::Installed);
    kube.with(|world| world.faults.node_conflicts = 2);
    outcome(child).succeeded();
    let infra = || labels(&[("node-role.kubernetes.io/infra", "")]);
    let taint = json!({"key": "dedicated", "value": "infra", "effect": "NoSchedule"});
    assert_eq!(marks(&kube, "worker-0"), (labels(&[]), Value::Null));
    assert_eq!(marks(&kube, "infra-0"), (infra(), json!([taint])));
    let gpu = labels(&[
        ("node-role.kubernetes.io/gpu", ""),
        ("example.com/gpu", "yes"),
        ("fast", ""),
    ]);
    assert_eq!(marks(&kube, "gpu-0"), (gpu, Value::Null));
    let pools = kube.with(|world| ["infra", "gpu"].map(|pool| world.get(POOLS, pool).cloned()));
    let [Some(infra_pool), None] = pools else {
        panic!("{pools:?}");
    };
    let selector = &infra_pool["spec"]["machineConfigSelector"]["matchExpressions"][0]["values"];
    assert_eq!(*selector, json!(["worker", "infra"]));

    // A taint of another owner is kept; a lost label is restored.
    let foreign = json!({"key": "node.example.com/repair", "effect": "NoExecute"});
    kube.with(|world| {
        world.edit(NODES, "infra-0.lab.example.com", |node| {
            node["metadata"]["labels"]
                .as_object_mut()
                .unwrap()
                .remove("node-role.kubernetes.io/infra");
            node["spec"]["taints"] = json!([foreign]);
        });
    });
    let mut child = site.sandbox.start(&["scale", "lab", "--pool", "infra=2"]);
    learn(&site, &kube, &mut child, "infra-1");
    let said = outcome(child).succeeded();
    assert!(
        said.stdout.contains("`oc get mcp infra` shows the progress"),
        "{}",
        said.stdout
    );
    assert_eq!(marks(&kube, "infra-0"), (infra(), json!([foreign, taint])));
    assert_eq!(marks(&kube, "infra-1"), (infra(), json!([taint])));

    // A recreated node is a new object in the API.
    let version = node(&kube, "infra-1")["metadata"]["uid"].clone();
    site.sandbox
        .run(&["node", "replace", "lab", "infra-1", "--yes"])
        .succeeded();
    assert_ne!(node(&kube, "infra-1")["metadata"]["uid"], version);
    assert_eq!(marks(&kube, "infra-1"), (infra(), json!([taint])));
    let config = kube.with(|world| world.get(MACHINE_CONFIGS, "99-worker-ocpdeploy").cloned());
    assert!(config.is_some(), "the workers' files name the new node");
    let world = kube.finish();
    assert_eq!(world.wrongly_approved(), [""; 0]);
}
