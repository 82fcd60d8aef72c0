//! Whole runs on the fake KubeVirt: both passes, interruptions between any two changes, several clusters at once, and
//! the messages about missing requirements. `kubectl` checks the objects.

use std::time::{Duration, Instant};

use crate::support::cluster::{cluster_id, id_of};

use crate::support::fake_kubevirt::World;
use crate::support::fake_kubevirt::controllers::CLAIM_FINALIZER;
use crate::support::fake_kubevirt::resources::Resource;
use crate::support::fake_kubevirt::rights::User;
use crate::support::fake_kubevirt::world::{Fault, Meanwhile};
use crate::support::kubevirt_sandbox::{Sandbox, documented, kubectl, told};
use ocpdeploy::backend::{Backend, ImageRequest, Power};
use serde_json::{Value, json};

const SMALL: &str = "masters=1\nworkers=1";

fn sandbox() -> Sandbox {
    Sandbox::new(World::with_tenants(&["blue", "red"]))
}

/// What a deployed cluster of one master and one worker has in its namespace.
fn small(cluster: &str) -> Vec<String> {
    let mut all = vec![format!("configmaps/ocpdeploy.{cluster}.example.com")];
    for node in ["master-0", "worker-0"] {
        all.push(format!("datavolumes/{cluster}-{node}-root"));
        all.push(format!("persistentvolumeclaims/{cluster}-{node}-root"));
        all.push(format!("pods/virt-launcher-{cluster}-{node}"));
        all.push(format!("secrets/{cluster}-{node}-first-boot"));
        all.push(format!("virtualmachineinstances/{cluster}-{node}"));
        all.push(format!("virtualmachines/{cluster}-{node}"));
    }
    all
}

fn without_images(inventory: Vec<String>) -> Vec<String> {
    inventory
        .into_iter()
        .filter(|name| !name.contains("ocpdeploy-image-"))
        .collect()
}

#[track_caller]
fn is_deployed(sandbox: &Sandbox, cluster: &str) {
    let mut expected = small(cluster);
    expected.sort();
    let mut found = without_images(sandbox.inventory("blue"));
    // Names of other clusters may start or end in the same way.
    let parts = ["bootstrap", "harvest", "master", "worker"].map(|part| format!("{cluster}-{part}"));
    let of_machine = |name: &str| parts.iter().any(|part| name.starts_with(part));
    found.retain(|name| {
        let name = name.split_once('/').unwrap().1;
        name == format!("ocpdeploy.{cluster}.example.com") || of_machine(name.trim_start_matches("virt-launcher-"))
    });
    found.sort();
    assert_eq!(found, expected);
    for node in sandbox
        .parameters(cluster)
        .nodes
        .iter()
        .filter(|node| node.name.as_str() != "bootstrap")
    {
        let instance = sandbox.object("virtualmachineinstances", "blue", &format!("{cluster}-{}", node.name));
        let nic = &instance["status"]["interfaces"][0];
        assert_eq!(
            (&nic["mac"], &nic["ipAddress"]),
            (&json!(node.mac.to_string()), &json!(node.ip.to_string()))
        );
    }
}

#[test]
fn a_cluster_is_deployed_and_destroyed_with_the_rights_of_a_tenant() {
    let sandbox = sandbox();
    sandbox.env("lab", SMALL);
    let before = sandbox.inventory("blue");
    sandbox.deploy("lab").unwrap();
    is_deployed(&sandbox, "lab");
    let again = sandbox.deploy("lab").unwrap();
    assert!(again.skipped_pass_one);
    is_deployed(&sandbox, "lab");
    sandbox.destroy("lab");
    assert_eq!(sandbox.inventory("blue"), before);
    sandbox.server.was_asked_well();
}

/// The kind of a machine's anti-affinity rules.
fn rules(sandbox: &Sandbox, machine: &str) -> Vec<String> {
    let machine = sandbox.object("virtualmachines", "blue", machine);
    let rules = machine["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"].as_object();
    rules.into_iter().flat_map(|rules| rules.keys().cloned()).collect()
}

#[test]
fn machines_get_the_affinity_rules_of_the_settings() {
    for (affinity, rule) in [("soft", Some("preferred")), ("hard", Some("required")), ("off", None)] {
        let sandbox = sandbox();
        sandbox.env("lab", &format!("{SMALL}\nkubevirt_affinity={affinity}"));
        sandbox.deploy("lab").unwrap();
        for node in ["lab-master-0", "lab-worker-0"] {
            let found = rules(&sandbox, node);
            let expected = rule.map(|rule| format!("{rule}DuringSchedulingIgnoredDuringExecution"));
            assert_eq!(found, Vec::from_iter(expected), "{affinity}");
        }
    }
}

#[test]
fn an_arbiter_keeps_apart_from_the_masters_and_gets_no_requests() {
    let sandbox = sandbox();
    let lines = SMALL.replace("masters=1", "masters=2\narbiter=1");
    sandbox.env("lab", &format!("{lines}\nkubevirt_affinity=hard"));
    sandbox.deploy("lab").unwrap();
    let [arbiter, master] = ["lab-arbiter-0", "lab-master-0"]
        .map(|name| sandbox.object("virtualmachines", "blue", name)["spec"]["template"].clone());
    let labels = |template: &Value| template["metadata"]["labels"].as_object().unwrap().clone();
    let terms = &arbiter["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let avoided = terms[0]["labelSelector"]["matchLabels"].as_object().unwrap();
    let selects = |template: &Value| {
        avoided
            .iter()
            .all(|(key, value)| labels(template).get(key) == Some(value))
    };
    assert!(selects(&master) && !selects(&arbiter), "{avoided:?}");
    assert!(labels(&master).contains_key("ocpdeploy.io/control-plane"));
    assert!(!labels(&arbiter).contains_key("ocpdeploy.io/control-plane"));
}

/// A user who may create and delete namespace `fresh`, or request it as a project.
fn who_makes_namespaces(is_project: bool) -> Sandbox {
    let sandbox = sandbox();
    sandbox.server.with(|world| {
        let user = world.users.get_mut("blue-token").unwrap();
        if is_project {
            user.more.insert("create projectrequests ".to_owned());
        } else {
            let rights = ["create namespaces ", "delete namespaces fresh"].map(str::to_owned);
            user.more.extend(rights);
            // A user who creates namespaces has its rights in all of them.
            user.edits.insert("fresh".to_owned());
        }
        may_list_everything(user, "fresh");
    });
    for cluster in ["lab", "other"] {
        sandbox.env(cluster, IN_FRESH);
    }
    sandbox
}

const IN_FRESH: &str = "masters=1\nworkers=1\nkubevirt_namespace=fresh\nkubevirt_make_namespace=true\nnetwork=blue/lan";

/// Grants listing of all kinds, which the role `edit` does not include.
fn may_list_everything(user: &mut User, namespace: &str) {
    let kinds = ["podtemplates", "roles", "rolebindings", "volumesnapshots"];
    let rights = kinds.map(|kind| format!("list {kind} {namespace}"));
    user.more.extend(rights);
}

fn is_namespace(sandbox: &Sandbox, name: &str) -> bool {
    sandbox
        .server
        .with(|world| world.names("namespaces", "").contains(&name.to_owned()))
}

/// The program's message about a namespace when it destroys a cluster.
#[track_caller]
fn destroyed(sandbox: &Sandbox, cluster: &str) -> String {
    let destroyed = sandbox.run(&["destroy", cluster, "--yes"]);
    let text = String::from_utf8(destroyed.stderr).unwrap();
    assert!(destroyed.status.success(), "{text}");
    let about = text.lines().filter_map(|line| line.split_once("namespace "));
    about.map(|(_, about)| about.to_owned()).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_namespace_that_this_program_created_is_deleted_with_its_last_cluster() {
    for is_project in [false, true] {
        let sandbox = who_makes_namespaces(is_project);
        for cluster in ["lab", "other"] {
            sandbox.deploy(cluster).unwrap();
        }
        assert!(is_namespace(&sandbox, "fresh") && sandbox.inventory("blue").is_empty());
        // Events do not keep the namespace.
        sandbox.server.with(|world| {
            for kind in ["endpoints", "endpointslices", "events", "leases"] {
                world.force(kind, json!({"metadata": {"namespace": "fresh", "name": "record"}}));
            }
        });
        for (cluster, stays) in [("lab", true), ("other", false)] {
            assert_eq!(destroyed(&sandbox, cluster), "", "{cluster}");
            assert_eq!(is_namespace(&sandbox, "fresh"), stays, "after {cluster}");
        }
        assert!(sandbox.inventory("fresh").is_empty());
    }
}

/// Deleting the namespace would delete everything in it.
#[test]
fn a_namespace_that_this_program_created_stays_while_it_has_objects_of_others() {
    let claim = json!({"resources": {"requests": {"storage": "1Gi"}}});
    let objects = [
        ("configmaps", "ConfigMap", json!({})),
        (
            "network-attachment-definitions",
            "NetworkAttachmentDefinition",
            json!({}),
        ),
        ("persistentvolumeclaims", "PersistentVolumeClaim", claim),
        ("pods", "Pod", json!({"containers": []})),
        ("roles", "Role", json!({})),
        ("secrets", "Secret", json!({})),
        ("services", "Service", json!({"ports": [{"port": 80}]})),
        ("volumesnapshots", "VolumeSnapshot", json!({})),
    ];
    for is_project in [false, true] {
        let sandbox = who_makes_namespaces(is_project);
        sandbox.deploy("lab").unwrap();
        // An owner outside the namespace does not make an object a dependent.
        let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "host-0", "uid": "1"}]);
        let about = json!({"namespace": "fresh", "name": "theirs", "ownerReferences": owner});
        for (plural, _, spec) in &objects {
            sandbox
                .server
                .with(|world| world.force(plural, json!({"metadata": about, "spec": spec})));
        }
        let uid = |plural: &str| {
            let object = sandbox.object(plural, "fresh", "theirs");
            assert_eq!(object["metadata"]["deletionTimestamp"], json!(null), "{plural}");
            object["metadata"]["uid"].clone()
        };
        let before = objects.each_ref().map(|(plural, ..)| uid(plural));
        let said = destroyed(&sandbox, "lab");
        assert!(is_namespace(&sandbox, "fresh"), "project: {is_project}");
        assert_eq!(
            objects.each_ref().map(|(plural, ..)| uid(plural)),
            before,
            "project: {is_project}"
        );
        let all: Vec<String> = objects.iter().map(|(_, kind, _)| format!("{kind} theirs")).collect();
        assert_eq!(said, format!("fresh is not deleted: it has {}", all.join(", ")));
    }
}

#[test]
fn a_namespace_that_this_program_created_stays_if_its_contents_are_unknown() {
    let sandbox = who_makes_namespaces(true);
    sandbox.deploy("lab").unwrap();
    sandbox.server.with(|world| {
        let user = world.users.get_mut("blue-token").unwrap();
        let lacks = ["list podtemplates", "list volumesnapshots"].map(str::to_owned);
        user.lacks.extend(lacks);
        for number in 0..14 {
            let about = json!({"namespace": "fresh", "name": format!("theirs-{number:02}")});
            world.force("configmaps", json!({"metadata": about}));
        }
    });
    let first: Vec<String> = (0..12).map(|number| format!("ConfigMap theirs-{number:02}")).collect();
    let expected = format!(
        "fresh is not deleted: it has {} and 2 more; this user cannot list podtemplates, volumesnapshots",
        first.join(", ")
    );
    assert_eq!(destroyed(&sandbox, "lab"), expected);
    assert!(is_namespace(&sandbox, "fresh"));
}

/// Another client deletes namespace `fresh` and creates its own namespace with that name.
fn recreate(world: &mut World) {
    let there = world.get(Resource::of("namespaces"), "", "fresh").unwrap();
    world
        .delete(Resource::of("namespaces"), "", "fresh", &json!({}))
        .unwrap();
    let made = world.force("namespaces", json!({"metadata": {"name": "fresh"}}));
    assert_ne!(made["metadata"]["uid"], there["metadata"]["uid"]);
    world.force("secrets", json!({"metadata": {"namespace": "fresh", "name": "theirs"}}));
}

#[test]
fn a_namespace_that_was_recreated_meanwhile_is_not_deleted() {
    for is_project in [false, true] {
        let sandbox = who_makes_namespaces(is_project);
        sandbox.deploy("lab").unwrap();
        sandbox.server.with(|world| {
            world.meanwhile.push(Meanwhile {
                method: "DELETE",
                path: "/namespaces/fresh",
                change: recreate,
            });
        });
        let said = destroyed(&sandbox, "lab");
        assert!(said.contains("was deleted or changed by another client"), "{said}");
        assert_eq!(sandbox.inventory("fresh"), ["secrets/theirs"]);
    }
}

#[test]
fn a_namespace_of_the_user_stays() {
    let sandbox = who_makes_namespaces(false);
    sandbox.deploy("lab").unwrap();
    let mark = |namespace: &str| sandbox.object("configmaps", namespace, "ocpdeploy.namespace");
    let mut copied = mark("fresh");
    sandbox.env(
        "other",
        &IN_FRESH.replace("kubevirt_namespace=fresh", "kubevirt_namespace=blue"),
    );
    sandbox.deploy("other").unwrap();
    assert_eq!(mark("blue"), json!(null), "it was not created by the program");
    // A copied mark has no effect.
    copied["metadata"]["namespace"] = "blue".into();
    sandbox.server.with(|world| {
        let user = world.users.get_mut("blue-token").unwrap();
        user.more.insert("delete namespaces blue".to_owned());
        may_list_everything(user, "blue");
        let lan = ("network-attachment-definitions", "blue".to_owned(), "lan".to_owned());
        world.objects.remove(&lan);
        world.force("configmaps", copied);
    });
    destroyed(&sandbox, "other");
    assert!(is_namespace(&sandbox, "blue"));
    assert_eq!(sandbox.inventory("blue"), ["configmaps/ocpdeploy.namespace"]);
}

/// KubeVirt reports it as condition `Failure` of a machine without an instance, and as `Synchronized` of an instance
/// without a pod (kubevirt/kubevirt: staging/src/kubevirt.io/api/core/v1/types.go, `VirtualMachineFailure`).
#[test]
fn a_quota_that_is_reached_during_a_run_ends_it_with_the_machine_and_the_reason() {
    for (kind, prefix) in [("virtualmachineinstances", ""), ("pods", "virt-launcher-")] {
        let sandbox = sandbox();
        sandbox.env("lab", &format!("{SMALL}\nharvest_timeout=120s"));
        sandbox.server.with(|world| world.quota = Some((kind, 2)));
        let run = sandbox.run(&["deploy", "lab.sh", "--rehearse"]);
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        // A run that waits for too long has another exit code.
        assert_eq!(run.status.code(), Some(5), "{kind}: {said}");
        let (started, refused): (Vec<_>, Vec<_>) = sandbox.server.with(|world| {
            let made = world.names(kind, "blue");
            let machines = world.names("virtualmachines", "blue").into_iter();
            machines.partition(|name| made.contains(&format!("{prefix}{name}")))
        });
        assert_eq!(started.len(), 2, "{kind}: {started:?}");
        let is_report = |line: &str| {
            let names_it = |name: &String| line.trim_start().starts_with(&format!("{name} is in error state: "));
            line.contains("exceeded quota: late") && refused.iter().any(names_it)
        };
        assert!(said.lines().any(is_report), "{kind}: {refused:?}: {said}");
        destroyed(&sandbox, "lab");
        assert_eq!(sandbox.inventory("blue"), [""; 0], "{kind}");
    }
}

#[test]
fn a_server_that_limits_requests_is_asked_again_in_the_same_run() {
    let sandbox = sandbox();
    sandbox.env("lab", SMALL);
    let busy = |method: &'static str, path: &str| Fault {
        method,
        path: path.to_owned(),
        code: 429,
        done: false,
    };
    sandbox.server.with(|world| {
        world.faults = vec![busy("GET", "/virtualmachines"), busy("POST", "/virtualmachines")];
        world
            .faults
            .extend([busy("POST", "/secrets"), busy("DELETE", "/virtualmachines")]);
    });
    sandbox.deploy("lab").unwrap();
    is_deployed(&sandbox, "lab");
    sandbox
        .server
        .with(|world| assert!(world.faults.is_empty(), "{:?}", world.faults));
}

/// Another client deletes machine lab-master-0 and creates one with that name.
fn replace_machine(world: &mut World) {
    let key = ("virtualmachines", "blue".to_owned(), "lab-master-0".to_owned());
    let there = world.objects[&key].clone();
    world.store(key, there, "DELETED");
    let about = json!({"namespace": "blue", "name": "lab-master-0"});
    world.force(
        "virtualmachines",
        json!({"metadata": about, "spec": {"runStrategy": "Always"}}),
    );
}

#[test]
fn a_machine_that_was_replaced_meanwhile_is_neither_stopped_nor_deleted() {
    let sandbox = sandbox();
    sandbox.env("lab", SMALL);
    sandbox.deploy("lab").unwrap();
    sandbox.server.with(|world| {
        world.meanwhile.push(Meanwhile {
            method: "GET",
            path: "/virtualmachinerestores",
            change: replace_machine,
        });
    });
    let (owner, name) = (cluster_id("lab", "example.com"), "lab-master-0".parse().unwrap());
    sandbox
        .on_backend(async |backend| backend.delete_machine(&owner, &name).await)
        .unwrap();
    let machine = sandbox.object("virtualmachines", "blue", "lab-master-0");
    assert_eq!(machine["spec"]["runStrategy"], "Always");
    let asked = sandbox.server.with(|world| world.asked.clone());
    let stops = asked.iter().filter(|asked| asked.ends_with("lab-master-0/stop"));
    assert_eq!(stops.count(), 0, "{asked:?}");
}

/// CDI may create a claim after its machine was deleted, and a deleted claim stays until its finalizer is removed.
#[test]
fn a_claim_that_was_created_late_no_longer_exists_when_all_is_deleted() {
    let sandbox = sandbox();
    sandbox.env("lab", SMALL);
    let owner = cluster_id("lab", "example.com");
    let labels = json!({"ocpdeploy.io/cluster": owner.tag(), "ocpdeploy.io/machine": "lab-master-0"});
    let about =
        json!({"namespace": "blue", "name": "lab-master-0-root", "labels": labels, "finalizers": [CLAIM_FINALIZER]});
    sandbox.server.with(|world| {
        world.step_ms = 200;
        world.force("persistentvolumeclaims", json!({"metadata": about, "spec": {}}));
    });
    sandbox
        .on_backend(async |backend| backend.delete_remaining(&owner).await)
        .unwrap();
    assert_eq!(sandbox.inventory("blue"), [""; 0]);
}

/// As after an eviction or a shutdown from within: KubeVirt keeps it off.
#[test]
fn a_machine_that_has_shut_down_is_started_again() {
    let sandbox = sandbox();
    sandbox.env("lab", SMALL);
    sandbox.deploy("lab").unwrap();
    sandbox
        .server
        .with(|world| world.power("blue", "lab-worker-0", "stop").unwrap());
    let (owner, name) = (cluster_id("lab", "example.com"), "lab-worker-0".parse().unwrap());
    let power = |sandbox: &Sandbox| {
        let machines = sandbox.on_backend(async |backend| backend.list_machines(&owner).await.unwrap());
        machines.into_iter().find(|machine| machine.name == name).unwrap().power
    };
    let wait = |expected: Power| {
        let begin = Instant::now();
        while power(&sandbox) != expected {
            assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", power(&sandbox));
        }
    };
    wait(Power::Off);
    sandbox
        .on_backend(async |backend| backend.start_machine(&owner, &name).await)
        .unwrap();
    wait(Power::Running);
}

#[test]
fn a_machine_is_shown_as_its_kubernetes_object() {
    let sandbox = sandbox();
    sandbox.env("lab", SMALL);
    sandbox.deploy("lab").unwrap();
    let shown = sandbox.run(&["node", "show", "lab", "master-0", "--format", "json"]);
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["scheduling"], json!({"affinity": "soft", "namespace": "blue"}));
    let form = &shown["platform_form"];
    assert_eq!(form["name"], "VirtualMachine");
    let object: Value = serde_json::from_str(form["text"].as_str().unwrap()).unwrap();
    assert_eq!(object["metadata"]["name"], "lab-master-0");
    assert_eq!(object["kind"], "VirtualMachine");
}

/// `fast` has a StorageProfile without access mode.
#[test]
fn a_volume_that_cannot_be_claimed_ends_the_run_with_cdis_reason() {
    let fast = format!("{SMALL}\nkubevirt_storage_class=fast\nharvest_timeout=120s");
    for (lines, code, who) in [
        ("", 5, "CDI cannot fill data volume ocpdeploy-image-"),
        (
            "image=pvc:rhcos\nharvest_image=pvc:rhcos",
            5,
            "is in error state: data volume lab-",
        ),
    ] {
        let sandbox = sandbox();
        sandbox.server.with(|world| {
            world.without_profile.insert("fast");
            let size = json!({"resources": {"requests": {"storage": "16Gi"}}});
            let about = json!({"namespace": "blue", "name": "rhcos"});
            world.force("persistentvolumeclaims", json!({"metadata": about, "spec": size}));
        });
        sandbox.env("lab", &format!("{fast}\n{lines}"));
        let run = sandbox.run(&["deploy", "lab.sh", "--rehearse"]);
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        // A run that waits for too long has another exit code.
        assert_eq!(run.status.code(), Some(code), "{said}");
        let why = "no accessMode specified in StorageProfile fast; set kubevirt_storage_class, kubevirt_access_mode";
        assert!(said.contains(who) && said.contains(why), "{said}");
        // An image that was not claimed is no obstacle for other settings.
        let modes = "kubevirt_access_mode=ReadWriteMany\nkubevirt_volume_mode=Block";
        sandbox.env("other", &format!("{fast}\n{lines}\n{modes}"));
        sandbox.deploy("other").unwrap();
        is_deployed(&sandbox, "other");
        let claim = sandbox.object("persistentvolumeclaims", "blue", "other-master-0-root");
        let spec = &claim["spec"];
        assert_eq!(
            (&spec["accessModes"], &spec["volumeMode"]),
            (&json!(["ReadWriteMany"]), &json!("Block"))
        );
    }
}

#[test]
fn machines_get_the_eviction_strategy_of_the_settings() {
    for (line, expected) in [
        ("", "LiveMigrateIfPossible"),
        ("kubevirt_eviction_strategy=LiveMigrate", "LiveMigrate"),
        ("kubevirt_eviction_strategy=None", "None"),
    ] {
        let sandbox = sandbox();
        sandbox.env("lab", &format!("{SMALL}\n{line}"));
        sandbox.deploy("lab").unwrap();
        let instance = sandbox.object("virtualmachineinstances", "blue", "lab-master-0");
        assert_eq!(instance["spec"]["evictionStrategy"], expected);
    }
}

#[test]
fn storage_that_waits_for_its_first_consumer_is_no_obstacle() {
    let sandbox = sandbox();
    sandbox.env("lab", &format!("{SMALL}\nkubevirt_storage_class=late"));
    sandbox.deploy("lab").unwrap();
    is_deployed(&sandbox, "lab");
}

#[test]
fn a_run_in_which_every_change_fails_once_has_the_same_result() {
    let (untouched, sandbox) = (sandbox(), sandbox());
    for sandbox in [&untouched, &sandbox] {
        sandbox.env("lab", SMALL);
    }
    untouched.deploy("lab").unwrap();
    sandbox.deploy_through_faults("lab", &untouched);
    is_deployed(&sandbox, "lab");
    assert_eq!(sandbox.inventory("blue"), untouched.inventory("blue"));
}

#[test]
fn a_run_that_is_killed_is_continued() {
    let sandbox = sandbox();
    sandbox.env("lab", SMALL);
    let deploy = ["deploy", "lab.sh", "--rehearse"];
    let machines = |world: &World, part: &str| {
        let names = world.names("virtualmachines", "blue");
        names
            .iter()
            .filter(|name| name.contains("harvest") == (part == "one"))
            .count()
    };
    sandbox.kill(&deploy, |world| !world.names("datavolumes", "blue").is_empty());
    sandbox.kill(&deploy, |world| machines(world, "one") >= 2);
    sandbox.kill(&deploy, |world| {
        machines(world, "one") == 0 && machines(world, "two") >= 1
    });
    sandbox.deploy("lab").unwrap();
    is_deployed(&sandbox, "lab");
}

#[test]
fn three_clusters_at_once_share_only_images() {
    let sandbox = sandbox();
    let clusters = ["lab", "lab-2", "blab"];
    std::thread::scope(|scope| {
        for cluster in clusters {
            sandbox.env(cluster, SMALL);
            let sandbox = &sandbox;
            scope.spawn(move || sandbox.deploy(cluster).unwrap());
        }
    });
    for cluster in clusters {
        is_deployed(&sandbox, cluster);
    }
    let inventory = sandbox.inventory("blue");
    let images = inventory
        .iter()
        .filter(|name| name.starts_with("datavolumes/ocpdeploy-image"));
    assert_eq!(images.count(), 2);
    for (gone, cluster) in clusters.iter().enumerate() {
        sandbox.destroy(cluster);
        for left in &clusters[gone + 1..] {
            is_deployed(&sandbox, left);
        }
    }
    assert_eq!(sandbox.inventory("blue"), [""; 0]);
}

#[test]
fn kubectl_reads_every_object_and_finds_nothing_to_change() {
    let sandbox = sandbox();
    sandbox.env("lab", SMALL);
    sandbox.deploy("lab").unwrap();
    let label = format!("ocpdeploy.io/cluster={}", id_of(&sandbox.home(), "lab").tag());
    for asked in [
        "virtualmachines.kubevirt.io",
        "datavolumes.cdi.kubevirt.io",
        "secrets",
        "configmaps",
    ] {
        let (succeeded, text) = kubectl(&sandbox, &["get", asked, "-l", &label, "-o", "json"]);
        assert!(succeeded, "{text}");
        let list: Value = serde_json::from_str(&text).unwrap();
        assert!(!list["items"].as_array().unwrap().is_empty(), "no {asked}");
    }
    let planned = sandbox.run(&["plan", "lab.sh", "--rehearse", "--manifests", "manifests"]);
    assert!(planned.status.success(), "{}", String::from_utf8_lossy(&planned.stderr));
    let folder = sandbox.path().join("manifests");
    let written = std::fs::read_dir(&folder).unwrap().count();
    // The bootstrap is complete and deleted, and is not brought back.
    assert_eq!(written, 1 + 2 * 2);
    let before = sandbox.server.with(|world| world.version());
    let folder = folder.display().to_string();
    let diff = [
        "diff",
        "--server-side",
        "--force-conflicts",
        "--field-manager=ocpdeploy",
        "-f",
        &folder,
    ];
    let (succeeded, text) = kubectl(&sandbox, &diff);
    assert!(succeeded, "{text}");
    let dry = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "--validate=false",
        "-f",
        &folder,
    ];
    let (succeeded, text) = kubectl(&sandbox, &dry);
    assert!(succeeded, "{text}");
    assert_eq!(text.lines().count(), 5, "{text}");
    assert_eq!(sandbox.server.with(|world| world.version()), before);
}

macro_rules! tells {
    ($($name:ident: $lines:expr, |$world:ident, $sandbox:ident| $change:expr;)+) => {
        $(
            #[test]
            fn $name() {
                let $sandbox = sandbox();
                $sandbox.server.with(|$world: &mut World| { $change; });
                insta::assert_snapshot!(told(&$sandbox, &format!("{SMALL}\n{}", $lines)));
            }
        )+
    };
}

tells! {
    kubevirt_is_not_installed: "", |world, sandbox| world.groups_absent.insert("kubevirt.io");
    cdi_is_not_installed: "", |world, sandbox| world.groups_absent.insert("cdi.kubevirt.io");
    the_network_is_missing: "network=blue/no-such-lan", |world, sandbox| world.faults.clear();
    the_pod_network_is_a_further_one: "extra_networks=pod", |world, sandbox| world.faults.clear();
    hosts_for_hard_affinity: "kubevirt_affinity=hard", |world, sandbox| {
        world.users.get_mut("blue-token").unwrap().more.insert("list nodes ".to_owned());
        for name in ["host-0", "host-1"] {
            let about = json!({"name": name, "labels": {"kubevirt.io/schedulable": "false"}});
            world.force("nodes", json!({"metadata": about, "status": {"allocatable": {"memory": "64Gi"}}}));
        }
    };
    hosts_of_another_architecture: "", |world, sandbox| {
        world.users.get_mut("blue-token").unwrap().more.insert("list nodes ".to_owned());
        // kubernetes/api: core/v1/well_known_labels.go, `LabelArchStable`
        let about = json!({"name": "host-0", "labels": {"kubevirt.io/schedulable": "true", "kubernetes.io/arch": "arm64"}});
        world.force("nodes", json!({"metadata": about, "status": {"allocatable": {"memory": "64Gi"}}}));
    };
    a_namespace_that_may_not_be_made: "kubevirt_namespace=fresh\nkubevirt_make_namespace=true", |world, sandbox| world.faults.clear();
    the_storage_class_is_unknown: "kubevirt_storage_class=slow", |world, sandbox| {
        let more = ["list storageclasses ".to_owned()];
        world.users.get_mut("blue-token").unwrap().more.extend(more);
    };
    a_right_is_missing: "", |world, sandbox| {
        let lacks = ["create secrets".to_owned(), "delete datavolumes".to_owned()];
        world.users.get_mut("blue-token").unwrap().lacks.extend(lacks);
    };
    the_quota_is_short: "", |world, sandbox| {
        let hard = json!({"requests.memory": "1Gi", "requests.storage": "1Gi", "limits.memory": "100Gi", "limits.cpu": "500m"});
        let about = json!({"namespace": "blue", "name": "small"});
        world.force("resourcequotas", json!({"metadata": about, "status": {"hard": hard, "used": {"requests.memory": "512Mi"}}}))
    };
    the_token_has_expired: "", |world, sandbox| world.users.remove("blue-token");
    a_mac_of_another_tenant: "master_macs=52:54:00:00:00:77", |world, sandbox| {
        let nic = json!({"name": "net0", "macAddress": "52:54:00:00:00:77"});
        let spec = json!({"template": {"spec": {"domain": {"devices": {"interfaces": [nic]}}}}});
        world.force("virtualmachines", json!({"metadata": {"namespace": "red", "name": "theirs"}, "spec": spec}))
    };
    an_upload_that_is_refused: "", |world, sandbox| {
        world.faults.push(Fault { method: "POST", path: "uploadtokenrequests".to_owned(), code: 403, done: false });
    };
}

/// The findings of a check of the settings. Columns are as wide as they need to be, so their spaces are left out.
fn checked(sandbox: &Sandbox) -> String {
    let checked = sandbox.run(&["check", "lab.sh", "--rehearse"]);
    let text = String::from_utf8(checked.stdout).unwrap();
    let text = text.replace(&sandbox.server.address.port().to_string(), "<port>");
    let lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("\n")
}

/// The findings of a check about KubeVirt and CDI themselves.
fn versions(change: impl FnOnce(&mut World)) -> Vec<String> {
    let sandbox = sandbox();
    sandbox.server.with(change);
    sandbox.env("lab", SMALL);
    let text = checked(&sandbox);
    let about = |line: &&str| line.contains("KubeVirt") || line.contains("CDI");
    text.lines().filter(about).map(str::to_owned).collect()
}

#[test]
fn versions_and_feature_gates_are_reported_if_they_can_be_read() {
    let administrator = |world: &mut World| {
        let more = ["list kubevirts ", "list cdis "].map(str::to_owned);
        world.users.get_mut("blue-token").unwrap().more.extend(more);
    };
    let installed = |world: &mut World, gates: Value, options: Value| {
        administrator(world);
        let developer = json!({"featureGates": gates});
        let configuration = json!({"developerConfiguration": developer, "virtualMachineOptions": options});
        world.force(
            "kubevirts",
            json!({"metadata": {"namespace": "kubevirt", "name": "kubevirt"}, "spec": {"configuration": configuration}}),
        );
        let about = json!({"metadata": {"name": "cdi"}, "status": {"observedVersion": "v1.63.0"}});
        world.force("cdis", about);
    };
    let mut told = String::new();
    let mut tell = |what: &str, lines: Vec<String>| told += &format!("{what}\n  {}\n", lines.join("\n  "));
    tell(
        "a tenant may not read them",
        versions(|world| {
            drop(
                world
                    .objects
                    .remove(&("cdiconfigs", String::new(), "config".to_owned())),
            )
        }),
    );
    tell(
        "gates are on",
        versions(|world| {
            installed(world, json!(["HotplugVolumes", "Snapshot"]), json!({}));
            let config = ("cdiconfigs", String::new(), "config".to_owned());
            let mut about = Value::clone(&world.objects[&config]);
            about["spec"] = json!({"featureGates": ["HonorWaitForFirstConsumer"]});
            world.store(config, about, "MODIFIED");
        }),
    );
    tell(
        "no gate is on",
        versions(|world| installed(world, json!([]), json!({}))),
    );
    tell(
        "consoles are off",
        versions(|world| installed(world, json!([]), json!({"disableSerialConsoleLog": {}}))),
    );
    tell(
        "KubeVirt is old",
        versions(|world| world.kubevirt_version = Some("v0.59.2")),
    );
    tell(
        "KubeVirt reports no version",
        versions(|world| world.kubevirt_version = None),
    );
    tell(
        "KubeVirt is self-built",
        versions(|world| world.kubevirt_version = Some("v0.0.0-master+$Format:%h$")),
    );
    tell(
        "their interfaces are too old",
        versions(|world| {
            world.older.insert("kubevirt.io", "v1alpha3");
            world.older.insert("cdi.kubevirt.io", "v1alpha1");
        }),
    );
    insta::assert_snapshot!(told);
}

#[test]
fn an_exec_plugin_that_fails_or_is_missing_is_reported() {
    for (snapshot, command) in [
        ("an_exec_plugin_that_fails", "false"),
        ("an_exec_plugin_that_is_not_there", "no-such-plugin"),
    ] {
        let sandbox = sandbox();
        let exec = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": command,
            "interactiveMode": "Never"}});
        sandbox
            .server
            .kubeconfig_with(&sandbox.kubeconfig("blue"), &exec, "blue");
        insta::assert_snapshot!(snapshot, told(&sandbox, SMALL));
    }
}

#[test]
fn a_server_that_drops_unknown_fields_is_noticed() {
    let sandbox = sandbox();
    sandbox.server.with(|world| {
        world.ignores_field_validation = true;
        world.prunes = vec!["rng".to_owned()];
    });
    sandbox.env("lab", SMALL);
    // Machines that were created in parallel are detected when they are adopted.
    for _ in 0..2 {
        let error = format!("{:#}", sandbox.deploy("lab").unwrap_err());
        assert!(
            error.contains("spec.template.spec.domain.devices.rng is missing"),
            "{error}"
        );
    }
}

#[test]
fn the_documented_role_is_enough() {
    let sandbox = sandbox();
    sandbox.server.with(|world| {
        let user = world.users.get_mut("blue-token").unwrap();
        user.edits.clear();
        user.more.extend(documented(&[0], "blue"));
    });
    sandbox.env("lab", SMALL);
    sandbox.deploy("lab").unwrap();
    is_deployed(&sandbox, "lab");
    sandbox.destroy("lab");
}

/// The result of using an image of the platform.
fn image(sandbox: &Sandbox, image: &str) -> Result<String, String> {
    let request = ImageRequest::Platform(image.to_owned());
    let owner = cluster_id("lab", "example.com");
    let found = sandbox.on_backend(async |backend| backend.ensure_image(&owner, &request).await);
    found
        .map(|handle| handle.0)
        .map_err(|error| format!("{:?}: {error}", error.kind))
}

#[test]
fn images_of_each_kind_are_found_or_imported() {
    let sandbox = sandbox();
    sandbox.server.with(|world| {
        let size = json!({"resources": {"requests": {"storage": "16Gi"}}});
        for namespace in ["blue", "red"] {
            let about = json!({"namespace": namespace, "name": "rhcos"});
            world.force("persistentvolumeclaims", json!({"metadata": about, "spec": size}));
        }
        let source = json!({"source": {"pvc": {"namespace": "blue", "name": "rhcos"}}});
        world.force(
            "datasources",
            json!({"metadata": {"namespace": "blue", "name": "newest"}, "spec": source}),
        );
    });
    for (name, expected) in [
        ("rhcos", Ok("pvc:blue/rhcos")),
        ("pvc:rhcos", Ok("pvc:blue/rhcos")),
        ("newest", Ok("datasource:blue/newest")),
        (
            "containerdisk:registry.example.com/rhcos",
            Ok("containerdisk:registry.example.com/rhcos"),
        ),
        ("docker://registry.example.com/rhcos", Ok("pvc:blue/ocpdeploy-image-")),
        (
            "import:https://mirror.example.com/rhcos.qcow2.gz",
            Ok("pvc:blue/ocpdeploy-image-"),
        ),
        ("pvc:red/rhcos", Ok("pvc:red/rhcos")),
        (
            "datasource:blue/older",
            Err("NotFound: no data source or volume claim older"),
        ),
        (
            "import:https://mirror.example.com/missing.qcow2",
            Err("expected status code 200, got 404"),
        ),
    ] {
        match (image(&sandbox, name), expected) {
            (Ok(handle), Ok(expected)) => assert!(handle.starts_with(expected), "{name}: {handle}"),
            (Err(words), Err(expected)) => assert!(words.contains(expected), "{name}: {words}"),
            (other, _) => panic!("{name}: {other:?}"),
        }
    }
}

const FROM_RED: &str = "masters=1\nworkers=1\nimage=pvc:red/rhcos\nharvest_image=pvc:red/rhcos\nharvest_timeout=120s";
const ALLOWS: &str =
    "kubectl -n red create rolebinding clone-images-blue --role=clone-images --serviceaccount=blue:default";

/// An image in namespace red, and who may clone it.
fn with_image_of_red(cloner: &str) -> Sandbox {
    let sandbox = sandbox();
    sandbox.server.with(|world| {
        let size = json!({"resources": {"requests": {"storage": "16Gi"}}});
        let about = json!({"namespace": "red", "name": "rhcos"});
        world.force("persistentvolumeclaims", json!({"metadata": about, "spec": size}));
        let known = world.users.values_mut().find(|user| user.name == cloner);
        let mut user = known.map(std::mem::take).unwrap_or_default();
        user.name = cloner.to_owned();
        user.more.insert("create datavolumes/source red".to_owned());
        let token = if cloner == "blue" { "blue-token" } else { "cloner-token" };
        world.users.insert(token.to_owned(), user);
    });
    sandbox.env("lab", FROM_RED);
    sandbox
}

/// KubeVirt asks for the rights of the machine's service account (kubevirt/kubevirt: pkg/virt-controller/watch/vm/vm.go,
/// `authorizeDataVolume`).
#[test]
fn an_image_of_another_namespace_is_cloned_with_the_right_of_the_service_account() {
    let sandbox = with_image_of_red("system:serviceaccount:blue:default");
    sandbox.deploy("lab").unwrap();
    is_deployed(&sandbox, "lab");
    // The user's own right does not help, and waiting does not help either.
    let sandbox = with_image_of_red("blue");
    let run = sandbox.run(&["deploy", "lab.sh", "--rehearse"]);
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(5), "{said}");
    let why = "User system:serviceaccount:blue:default has insufficient permissions in clone source namespace red";
    assert!(said.contains(why) && said.contains(ALLOWS), "{said}");
    // After the administrator has allowed it, the same command goes on at once.
    sandbox.server.with(|world| {
        let mut user = world.users["blue-token"].clone();
        user.name = "system:serviceaccount:blue:default".to_owned();
        world.users.insert("cloner-token".to_owned(), user);
    });
    sandbox.deploy("lab").unwrap();
    is_deployed(&sandbox, "lab");
    sandbox.destroy("lab");
    assert_eq!(sandbox.inventory("blue"), [""; 0]);
}

#[test]
fn check_says_who_must_be_allowed_to_clone_an_image_of_another_namespace() {
    for (may_ask, cloner, expected) in [
        (
            false,
            "blue",
            "warn platform KubeVirt clones pvc:red/rhcos with the rights of service account default",
        ),
        (
            true,
            "blue",
            "FAIL platform service account default of namespace blue, with whose rights KubeVirt clones",
        ),
        (
            true,
            "system:serviceaccount:blue:default",
            "ok platform service account default of namespace blue may clone pvc:red/rhcos",
        ),
    ] {
        let sandbox = with_image_of_red(cloner);
        sandbox.server.with(|world| {
            let user = world.users.get_mut("blue-token").unwrap();
            user.more
                .extend(may_ask.then(|| "create localsubjectaccessreviews red".to_owned()));
        });
        let told = checked(&sandbox);
        assert!(told.contains(expected), "{expected}: {told}");
        assert_eq!(told.contains(ALLOWS), !expected.starts_with("ok"), "{told}");
    }
    let sandbox = sandbox();
    sandbox.env(
        "lab",
        "masters=1\nworkers=1\nimage=pvc:no-such\nharvest_image=pvc:no-such",
    );
    let told = checked(&sandbox);
    assert!(
        told.contains("FAIL platform no data source or volume claim no-such"),
        "{told}"
    );
}

#[test]
fn an_ignition_config_that_no_secret_takes() {
    let sandbox = sandbox();
    // Random bytes cannot be compressed.
    let noise: String = (0..40_000u32)
        .map(|n| ocpdeploy::digest::sha256(n.to_be_bytes()))
        .collect();
    let file = json!({"path": "/etc/noise", "contents": {"source": format!("data:,{noise}")}});
    let config = json!({"ignition": {"version": "3.1.0"}, "storage": {"files": [file]}});
    std::fs::write(sandbox.path().join("noise.ign"), config.to_string()).unwrap();
    let text = told(&sandbox, &format!("{SMALL}\nignition_extra=noise.ign"));
    insta::with_settings!({filters => [(r"\d{4,}", "<n>")]}, { insta::assert_snapshot!(text) });
}

/// Makes a valid object invalid.
type Change = fn(&mut Value);

/// The fake server is as strict as real ones: it rejects each of these objects with the given message.
#[test]
fn the_fake_server_rejects_what_real_servers_reject() {
    let sandbox = sandbox();
    let machine = |change: fn(&mut Value)| {
        let devices = json!({
            "disks": [{"name": "first-boot", "cdrom": {"bus": "sata"}}],
            "interfaces": [{"name": "net0", "macAddress": "52:54:00:00:00:01", "bridge": {}}],
        });
        let mut object = json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": {"name": "odd"},
            "spec": {"runStrategy": "Halted", "template": {"spec": {
                "domain": {"devices": devices},
                "networks": [{"name": "net0", "multus": {"networkName": "lan"}}],
                "volumes": [{"name": "first-boot", "cloudInitConfigDrive": {"userData": "{}"}}],
            }}},
        });
        change(&mut object);
        object.to_string()
    };
    let create = |text: &str| {
        let file = sandbox.path().join("object.json");
        std::fs::write(&file, text).unwrap();
        let path = "/apis/kubevirt.io/v1/namespaces/blue/virtualmachines?fieldValidation=Strict";
        kubectl(&sandbox, &["create", "--raw", path, "-f", &file.display().to_string()])
    };
    let cases: [(Change, &str); 7] = [
        (
            |vm| vm["spec"]["template"]["spec"]["domain"]["cpus"] = json!(4),
            "unknown field",
        ),
        (|vm| vm["spec"]["runStrategy"] = json!(4), "must be of type string"),
        (
            |vm| vm["spec"]["running"] = json!(true),
            "one of running and runStrategy",
        ),
        (
            |vm| {
                vm["spec"]["template"]["spec"]["volumes"][0]["cloudInitConfigDrive"]["userData"] =
                    "x".repeat(2049).into()
            },
            "exceeds 2048 byte limit",
        ),
        (
            |vm| {
                let nic = &mut vm["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"][0];
                nic["masquerade"] = json!({});
            },
            "2 bindings",
        ),
        (
            |vm| vm["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"][0]["macAddress"] = json!("52:54"),
            "malformed MAC",
        ),
        (
            |vm| vm["spec"]["template"]["spec"]["networks"][0] = json!({"name": "net0", "pod": {}}),
            "bridge interface is not enabled",
        ),
    ];
    for (change, words) in cases {
        let (succeeded, text) = create(&machine(change));
        assert!(!succeeded && text.contains(words), "{words}: {text}");
    }
    let (succeeded, text) = create(&machine(|_| {}));
    assert!(succeeded, "{text}");
}
