//! Node pools on a real API server: a kubelet's rights, and the stored labels, taints and pools.

use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;

use ocpdeploy::cluster::Role;

use super::cluster::{Cluster, OF_KUBELET, Site, fresh, host};
use super::*;
use crate::support::until::until;

fn get(arguments: &[&str]) -> Value {
    serde_json::from_str(&kubectl(&[&["get", "-o", "json"], arguments].concat())).unwrap()
}

fn names(list: &Value) -> BTreeSet<String> {
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

/// The generation of each object, which changes with its spec.
fn versions(list: &Value) -> BTreeMap<String, u64> {
    let items = list["items"].as_array().unwrap().iter();
    let of = |item: &Value| {
        (
            item["metadata"]["name"].as_str().unwrap().to_owned(),
            item["metadata"]["generation"].as_u64().unwrap(),
        )
    };
    items.map(of).collect()
}

/// The nodes that have these labels, without the cluster's name.
fn selected(selector: &str) -> BTreeSet<String> {
    let found = names(&get(&["nodes", "-l", selector])).into_iter();
    found.map(|name| name.replace(".lab.example.com", "")).collect()
}

/// Labels that no kubelet sets, and taints that no controller does, by node; as `key=value` and `key=value:effect`.
fn marks() -> BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)> {
    let nodes = get(&["nodes"]);
    let of = |node: &Value| {
        let labels = node["metadata"]["labels"].as_object().unwrap();
        // The node lifecycle controller copies those of the kubelet to their former names.
        let is_others = |key: &str| !OF_KUBELET.contains(&key) && !key.starts_with("beta.kubernetes.io/");
        let labels = labels.iter().filter(|(key, _)| is_others(key));
        let labels = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap()));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let taints = node["spec"]["taints"]
            .as_array()
            .cloned()
            .unwrap_or_default()
            .into_iter();
        let taints = taints.map(|taint| {
            format!(
                "{}={}:{}",
                text(&taint["key"]),
                text(&taint["value"]),
                text(&taint["effect"])
            )
        });
        (
            labels.collect(),
            taints
                .filter(|taint| !taint.starts_with("node.kubernetes.io/"))
                .collect(),
        )
    };
    let name = |node: &Value| {
        node["metadata"]["name"]
            .as_str()
            .unwrap()
            .replace(".lab.example.com", "")
    };
    nodes["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| (name(node), of(node)))
        .collect()
}

/// The labels and taints that the nodes must have, from the settings and from OpenShift.
fn wanted(nodes: &[&str]) -> BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)> {
    let of = |node: &&str| {
        let (labels, taints): (&[&str], &[&str]) = match node.split('-').next().unwrap() {
            "master" => (
                &["node-role.kubernetes.io/master="],
                &["node-role.kubernetes.io/master=:NoSchedule"],
            ),
            "infra" => (
                &["node-role.kubernetes.io/worker=", "node-role.kubernetes.io/infra="],
                &["node-role.kubernetes.io/infra=:NoSchedule"],
            ),
            "gpu" => (
                &[
                    "node-role.kubernetes.io/worker=",
                    "node-role.kubernetes.io/gpu=",
                    "example.com/accelerator=a100",
                    "node-restriction.kubernetes.io/tenant=research",
                ],
                &["nvidia.com/gpu=present:NoSchedule"],
            ),
            _ => (&["node-role.kubernetes.io/worker="], &[]),
        };
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        ((*node).to_owned(), (owned(labels), owned(taints)))
    };
    nodes.iter().map(of).collect()
}

/// Creates a pod on a node, as its controller would, for an eviction.
fn put_pod(node: &str) {
    let create = |object: Value| {
        let mut child = Command::new("kubectl")
            .args(["create", "-o", "jsonpath={.metadata.uid}", "-f", "-"])
            .env("KUBECONFIG", folder().join("state/admin.kubeconfig"))
            .env("HOME", folder().join("state"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        write!(child.stdin.take().unwrap(), "{object}").unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let labels = json!({"app": "cart"});
    let spec = json!({"containers": [{"name": "cart", "image": "registry.example.com/cart"}], "nodeName": host(node)});
    let uid = create(json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "cart", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }));
    let owner =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "cart", "uid": uid, "controller": true}]);
    create(json!({
        "apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": {"name": "cart-0", "namespace": "shop", "labels": labels, "ownerReferences": owner},
    }));
}

#[test]
#[ignore = "needs the lab"]
fn pools_on_two_platforms_have_their_labels_and_taints_and_no_other_node_has_them() {
    const FIRST: [&str; 8] = [
        "gpu-0", "infra-0", "infra-1", "master-0", "master-1", "master-2", "worker-0", "worker-1",
    ];
    const THEN: [&str; 8] = [
        "gpu-0", "gpu-1", "infra-0", "master-0", "master-1", "master-2", "worker-0", "worker-1",
    ];
    fresh();
    let site = Arc::new(Site::new());
    let mut cluster = Cluster::new(site.clone());
    let mut run = |line: &str| {
        let outcome = site.run(line);
        cluster.is_well();
        outcome.succeeded().stdout
    };
    run("deploy lab.sh");
    assert_eq!(marks(), wanted(&FIRST));
    // All nodes are in one table, with the addresses of the API; one of them is on the other platform.
    let table = site.table();
    let mut seen = BTreeMap::new();
    for node in get(&["nodes"])["items"].as_array().unwrap() {
        let address = node["status"]["addresses"][0]["address"].as_str().unwrap().to_owned();
        seen.insert(node["metadata"]["name"].as_str().unwrap().to_owned(), address);
    }
    let nodes = table.nodes.iter().filter(|node| node.role != Role::Bootstrap);
    let planned: BTreeMap<_, _> = nodes
        .map(|node| (host(node.name.as_str()), node.ip.to_string()))
        .collect();
    assert_eq!(seen, planned);
    for node in FIRST {
        let is_here = site.machine(node).unwrap().starts_with("sim ");
        assert_eq!(is_here, node == "gpu-0", "{node}");
    }

    // The stored MachineConfigPool selects the pool's nodes and the workers' files.
    let pools = get(&["machineconfigpools"]);
    assert_eq!(names(&pools), ["infra"].map(str::to_owned).into());
    let spec = &pools["items"][0]["spec"];
    let labels = spec["nodeSelector"]["matchLabels"].as_object().unwrap().iter();
    let labels: Vec<_> = labels
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap()))
        .collect();
    assert_eq!(
        selected(&labels.join(",")),
        ["infra-0", "infra-1"].map(str::to_owned).into()
    );
    let files = &spec["machineConfigSelector"]["matchExpressions"][0];
    let roles: Vec<_> = files["values"]
        .as_array()
        .unwrap()
        .iter()
        .map(|role| role.as_str().unwrap())
        .collect();
    let roles = format!("{} in ({})", files["key"].as_str().unwrap(), roles.join(","));
    assert_eq!(
        names(&get(&["machineconfigs", "-l", &roles])),
        ["99-worker-ocpdeploy"].map(str::to_owned).into()
    );

    // The node itself cannot leave its pool.
    let (node, key) = (host("infra-0"), "node-role.kubernetes.io/infra-");
    let kubelet = format!("--as=system:node:{node}");
    for kind in ["taint", "label"] {
        let refused = admin(&[&kubelet, "--as-group=system:nodes", kind, "node", &node, key]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains("is not allowed to modify"), "{kind}: {said}");
    }

    put_pod("infra-1");
    let scaled = run("scale lab --pool infra=1 --pool gpu=2 --yes");
    assert!(
        scaled.contains("the infra nodes are now updated one by one, without reboots"),
        "{scaled}"
    );
    assert_eq!(names(&get(&["pods", "-n", "shop"])), BTreeSet::new());
    assert_eq!(marks(), wanted(&THEN));
    assert!(site.machine("gpu-1").unwrap().starts_with("sim "));

    // The same numbers change nothing, so that no node reboots.
    let versions = || ["machineconfigs", "machineconfigpools"].map(|kind| versions(&get(&[kind])));
    let before = versions();
    let again = run("scale lab --pool infra=1 --pool gpu=2");
    assert!(!again.contains("oc get mcp"), "{again}");
    assert_eq!(versions(), before);

    run("scale lab --pool infra=2 --pool gpu=1 --yes");
    assert_eq!(marks(), wanted(&FIRST));
    // Taints of controllers are not restored with ours.
    until(LONG, "the nodes are ready", || {
        let nodes = get(&["nodes"]).to_string();
        !nodes.contains("node.kubernetes.io/not-ready") && !nodes.contains("node.kubernetes.io/unreachable")
    });
    run("destroy lab --yes");
    let vms = site.engine.look(|world| world.vms.len());
    assert_eq!((vms, site.sandbox.machines(None)), (0, vec![]));
}
