//! `ocpdeploy export csi`: the rights, compared with those of kubevirt-csi-driver's own manifests, and the volumes.

use std::collections::BTreeSet;

use crate::support::cluster::{cluster_id, id_of};
use crate::support::fake_kubevirt::World;
use crate::support::kubevirt_sandbox::Sandbox;
use ocpdeploy::backend::kubevirt::csi::Csi;
use serde_json::{Value, json};

fn documents(text: &str) -> Vec<Value> {
    let documents = text.split("\n---\n");
    documents.map(|text| serde_saphyr::from_str(text).unwrap()).collect()
}

fn texts(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|text| text.as_str().unwrap())
        .collect()
}

/// `place verb resource` of all roles.
fn granted(text: &str) -> BTreeSet<String> {
    let mut rights = BTreeSet::new();
    for role in documents(text) {
        let place = match (
            role["kind"].as_str().unwrap(),
            role["metadata"]["name"].as_str().unwrap(),
        ) {
            ("Role", _) => "platform",
            ("ClusterRole", "kubevirt-csi-controller") => "controller",
            ("ClusterRole", "kubevirt-csi-node") => "node",
            _ => continue,
        };
        for rule in role["rules"].as_array().unwrap() {
            for (group, resource) in texts(&rule["apiGroups"]).into_iter().flat_map(|group| {
                texts(&rule["resources"])
                    .into_iter()
                    .map(move |resource| (group, resource))
            }) {
                let dot = if group.is_empty() { "" } else { "." };
                let verbs = texts(&rule["verbs"]).into_iter();
                rights.extend(verbs.map(|verb| format!("{place} {verb} {resource}{dot}{group}")));
            }
        }
    }
    rights
}

#[test]
fn the_rights_are_those_of_the_drivers_own_manifests_or_the_difference_has_a_reason() {
    let cluster = cluster_id("lab", "example.com");
    let csi = Csi {
        cluster: &cluster,
        server: "https://api.infra.example.com:6443",
        namespace: "mine",
        class: Some("fast"),
        nodes: Vec::new(),
    };
    let ours = granted(&[csi.platform().unwrap(), csi.cluster().unwrap()].join("\n---\n"));
    let recorded = include_str!("../fixtures/kubevirt-csi-rights.txt");
    let mut expected = BTreeSet::new();
    for line in recorded.lines().filter(|line| !line.starts_with('#')) {
        let (right, reason) = line.split_once(" - ").unwrap_or((line, ""));
        let (right, is_more) = right.strip_prefix('+').map_or((right, false), |right| (right, true));
        assert!(!is_more || !reason.is_empty(), "{line}");
        let [place, verbs, resource] = right.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        if reason.is_empty() || is_more {
            expected.extend(verbs.split(',').map(|verb| format!("{place} {verb} {resource}")));
        }
    }
    let difference: Vec<_> = ours.symmetric_difference(&expected).collect();
    assert_eq!(difference, [""; 0]);
}

#[test]
fn the_drivers_volumes_belong_to_the_cluster_and_are_destroyed_with_it() {
    let sandbox = Sandbox::new(World::with_tenants(&["blue", "red"]));
    sandbox.env("lab", "masters=1\nworkers=1\nkubevirt_storage_class=fast");
    let before = sandbox.inventory("blue");
    sandbox.deploy("lab").unwrap();
    let exported = |part: &str| {
        let exported = sandbox.run(&["export", "csi", "lab", "--part", part]);
        assert!(
            exported.status.success(),
            "{}",
            String::from_utf8_lossy(&exported.stderr)
        );
        documents(&String::from_utf8(exported.stdout).unwrap())
    };
    let all = exported("cluster");
    let of_kind = |kind: &str| -> Vec<&Value> { all.iter().filter(|one| one["kind"] == kind).collect() };
    let nodes: Vec<_> = of_kind("Node")
        .into_iter()
        .map(|node| {
            (
                node["metadata"]["name"].clone(),
                node["metadata"]["annotations"].clone(),
            )
        })
        .collect();
    let node = |name: &str| {
        let annotations = json!({"csi.kubevirt.io/infra-vm-name": format!("lab-{name}"),
            "csi.kubevirt.io/infra-vm-namespace": "blue"});
        (json!(format!("{name}.lab.example.com")), annotations)
    };
    assert_eq!(nodes, [node("master-0"), node("worker-0")]);
    assert_eq!(
        of_kind("StorageClass")[0]["parameters"]["infraStorageClassName"],
        "fast"
    );
    let kubeconfig = of_kind("ConfigMap")[0]["data"]["kubeconfig"].as_str().unwrap();
    let kubeconfig: Value = serde_json::from_str(kubeconfig).unwrap();
    let server = format!("https://localhost:{}", sandbox.server.address.port());
    assert_eq!(kubeconfig["clusters"][0]["cluster"]["server"], json!(server));
    let arguments = &of_kind("Deployment")[0]["spec"]["template"]["spec"]["containers"][0]["args"];
    let argument = |name: &str| {
        let found = texts(arguments).into_iter().find_map(|one| one.strip_prefix(name));
        found.unwrap_or_else(|| panic!("{name}: {arguments}"))
    };
    assert_eq!(argument("--infra-cluster-namespace="), "blue");
    let (label, tag) = argument("--infra-cluster-labels=").split_once('=').unwrap();
    assert_eq!(tag, id_of(&sandbox.home(), "lab").tag());
    // The driver's account on the platform has the same label, and its token ends with the cluster.
    let secret = exported("platform")
        .into_iter()
        .find(|one| one["kind"] == "Secret")
        .unwrap();
    assert_eq!(secret["metadata"]["labels"][label], tag);
    let about = json!({"namespace": "blue", "name": "pvc-1", "labels": {label: tag}});
    let storage = json!({"resources": {"requests": {"storage": "1Gi"}}});
    sandbox.server.with(|world| {
        world.force("secrets", secret);
        world.force(
            "datavolumes",
            json!({"metadata": about, "spec": {"source": {"blank": {}}, "storage": storage}}),
        )
    });
    let told = sandbox.run(&["destroy", "lab", "--dry-run"]);
    let told = String::from_utf8(told.stdout).unwrap();
    let rows: Vec<_> = told
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for row in ["data volume pvc-1", "secret lab-csi"] {
        assert!(rows.iter().any(|shown| shown == row), "{told}");
    }
    sandbox.destroy("lab");
    assert_eq!(sandbox.inventory("blue"), before);
}
