//! Our manifests with the definitions of each OpenShift release, on a real API server.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use ocpdeploy::node::services;
use serde_json::Value;

use super::{admin, kubectl};
use crate::support::shape::{Made, Shape};
use crate::support::until::until;

/// The manifests for a cluster inside another one, in this order.
const WRITTEN: [&str; 7] = [
    "MachineConfig",
    "MachineConfig",
    "IngressController",
    "Network",
    "Scheduler",
    "Config",
    "MachineConfiguration",
];

/// Releases, and kinds that are not tested with them: the folder has no definition of 4.7's machine config operator and
/// of 4.20's registry, a nested cluster's network requires fields that 4.7 does not have, and `renew` writes policies for
/// 4.17 and later.
const RELEASES: [((u32, u32), &[&str]); 4] = [
    ((4, 7), &["MachineConfig", "Network", "MachineConfiguration"]),
    ((4, 12), &["MachineConfiguration"]),
    ((4, 16), &["MachineConfiguration"]),
    ((4, 20), &["Config"]),
];

/// The kinds of our manifests, by the plural names of their definitions.
const KINDS: [&str; 6] = [
    "machineconfigs.machineconfiguration.openshift.io",
    "ingresscontrollers.operator.openshift.io",
    "networks.operator.openshift.io",
    "schedulers.config.openshift.io",
    "configs.imageregistry.operator.openshift.io",
    "machineconfigurations.operator.openshift.io",
];
const NAMESPACE: &str = "openshift-ingress-operator";

/// Defines kinds, by the plural names of their definitions, as a release does; the last definition of a kind counts.
/// Returns those that the release has. Objects of these kinds are deleted.
pub(super) fn define((major, minor): (u32, u32), kinds: &[&'static str]) -> Vec<&'static str> {
    let folder = std::env::var_os("OCPDEPLOY_TEST_CRDS").expect("the folder of upstream's CRDs");
    let folder = PathBuf::from(folder).join(format!("openshift/{major}.{minor}"));
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    for kind in kinds {
        kubectl(&["delete", "crd", kind, "--ignore-not-found", "--timeout=60s"]);
    }
    let mut defined = Vec::new();
    for kind in kinds {
        let name = format!("name: {kind}");
        let is_its = |file: &&PathBuf| {
            fs::read_to_string(file)
                .unwrap()
                .lines()
                .any(|line| line.trim() == name)
        };
        let Some(file) = files.iter().rfind(is_its) else {
            continue;
        };
        // Kubernetes 1.20 knows no rules in CEL, and drops them.
        kubectl(&["create", "--validate=false", "-f", &file.display().to_string()]);
        let definition = format!("crd/{kind}");
        // `kubectl wait` fails while a definition has no condition yet.
        until(Duration::from_secs(60), &format!("{definition} is established"), || {
            admin(&["wait", "--for=condition=Established", "--timeout=60s", &definition])
                .status
                .success()
        });
        defined.push(*kind);
    }
    defined
}

/// The paths of `ours` that are not in `stored`.
pub(super) fn pruned(ours: &Value, stored: &Value, place: &str) -> Vec<String> {
    match (ours, stored) {
        (Value::Object(ours), Value::Object(stored)) => {
            let each = ours.iter().flat_map(|(key, value)| {
                let place = format!("{place}.{key}");
                match stored.get(key) {
                    Some(other) => pruned(value, other, &place),
                    None => vec![place],
                }
            });
            each.collect()
        }
        (ours, stored) if ours == stored => Vec::new(),
        _ => vec![place.to_owned()],
    }
}

#[test]
#[ignore = "needs the lab"]
fn manifests_are_accepted_by_each_release_and_nothing_is_pruned() {
    let shape = Shape {
        masters: 3,
        workers: 2,
        one_vip: false,
        prefix: 24,
        use_br: false,
        masters_schedulable: true,
    };
    let mut made = Made::new("lab", shape, Ipv4Addr::new(192, 168, 122, 10));
    // An earlier attempt may have left some.
    admin(&["create", "namespace", NAMESPACE]);
    for (release, left_out) in RELEASES {
        let (defined, folder) = (define(release, &KINDS), tempfile::tempdir().unwrap());
        made.release.version = release;
        // A cluster inside another one writes its network, too.
        made.parameters.peer_domain = (!left_out.contains(&"Network")).then(|| "lab.svc.cluster.local".to_owned());
        let input = made.input();
        let mut judged = Vec::new();
        let mut manifests = services::manifests(&input).unwrap();
        if !left_out.contains(&"MachineConfiguration") {
            manifests.push(services::disruption_policy(&input).unwrap().unwrap());
        }
        for manifest in manifests {
            let ours: Value = serde_json::from_str(&manifest.content).unwrap();
            let kind = ours["kind"].as_str().unwrap();
            let group = ours["apiVersion"].as_str().unwrap().split('/').next().unwrap();
            let resource = format!("{}s.{group}", kind.to_lowercase());
            assert!(
                KINDS.contains(&&*resource),
                "{resource} is not among the kinds of this test"
            );
            if !defined.contains(&&*resource) {
                continue;
            }
            let file = folder.path().join("manifest.json");
            fs::write(&file, ours.to_string()).unwrap();
            // kubectl may have cached the previous release's kind: the server decides, and `pruned` compares.
            let stored = kubectl(&[
                "create",
                "--validate=false",
                "-o",
                "json",
                "-f",
                &file.display().to_string(),
            ]);
            let stored: Value = serde_json::from_str(&stored).unwrap();
            assert_eq!(pruned(&ours, &stored, kind), [""; 0], "{release:?}");
            judged.push(kind.to_owned());
        }
        let expected = WRITTEN.into_iter().filter(|kind| !left_out.contains(kind));
        assert_eq!(judged, expected.collect::<Vec<_>>(), "{release:?}");
    }
}

#[test]
fn what_a_server_drops_or_changes_is_found() {
    let ours = serde_json::json!({"spec": {"a": {"b": 1}, "c": [1]}});
    for (stored, places) in [
        (
            serde_json::json!({"spec": {"a": {"b": 1, "x": 2}, "c": [1]}, "status": {}}),
            vec![],
        ),
        (serde_json::json!({"spec": {"a": {}, "c": [1]}}), vec!["K.spec.a.b"]),
        (
            serde_json::json!({"spec": {"a": {"b": 2}, "c": []}}),
            vec!["K.spec.a.b", "K.spec.c"],
        ),
    ] {
        assert_eq!(pruned(&ours, &stored, "K"), places);
    }
}
