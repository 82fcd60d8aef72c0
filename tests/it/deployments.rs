//! Several deployments with the same name: a second computer, a lost state directory, another user.

use serde_json::{Value, json};

use crate::support::cluster::id_of;
use crate::support::fake_installer::PULL_SECRET;
use crate::support::fake_kube::authority::Authority;
use crate::support::sandbox::{Outcome, Sandbox};

const SMALL: &str = "masters=1\nworkers=1\nimage=coreos\nharvest_image=helper\npub_key=key.pub";
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvT2Wdq2dMbFf8hh+o/a4HZMBbqvP6vpsXfB4pMJ6Ma lab\n";

/// A platform with a rehearsed cluster, and a second computer with the same settings.
fn two_computers() -> Sandbox {
    let sandbox = Sandbox::new(json!({}));
    std::fs::write(sandbox.path().join("key.pub"), KEY).unwrap();
    sandbox.env("lab", SMALL);
    sandbox.deploy("lab").succeeded();
    sandbox
}

/// Runs a command on the second computer.
fn elsewhere(sandbox: &Sandbox, arguments: &[&str]) -> Outcome {
    let home = sandbox.path().join("second");
    sandbox.run(&[arguments, &["--home", home.to_str().unwrap()]].concat())
}

/// What commands on another computer must not change.
fn objects(sandbox: &Sandbox) -> Value {
    let world = sandbox.state();
    json!([
        world["machines"],
        world["networks"]["default"]["reservations"],
        world["uploads"]
    ])
}

#[test]
fn a_second_computer_changes_nothing_of_a_cluster_of_the_same_name() {
    let sandbox = two_computers();
    let id = id_of(&sandbox.home(), "lab").deployment().to_string();
    let before = objects(&sandbox);
    for (arguments, code) in [
        (&["check", "lab.sh", "--rehearse"][..], 4),
        (&["plan", "lab.sh", "--rehearse"], 0),
        (&["harvest", "lab.sh", "--rehearse"], 4),
        (&["deploy", "lab.sh", "--rehearse"], 4),
        (&["deploy", "lab.sh", "--rehearse", "--set", "harvest=reserve"], 4),
        (
            &[
                "deploy",
                "lab.sh",
                "--rehearse",
                "--set",
                "harvest=static",
                "--set",
                "api_ip=192.168.122.52",
                "--set",
                "ingress_ip=192.168.122.53",
                "--set",
                "bootstrap_ip=192.168.122.54",
                "--set",
                "master_ips=192.168.122.55",
                "--set",
                "worker_ips=192.168.122.56",
            ],
            4,
        ),
        (&["scale", "lab", "--workers", "2"], 2),
        (&["destroy", "lab", "--yes"], 2),
        (&["destroy", "lab", "--env", "lab.sh", "--yes"], 2),
        (
            &[
                "destroy",
                "lab.example.com",
                "--from-backend",
                "--env",
                "lab.sh",
                "--yes",
            ],
            2,
        ),
    ] {
        let outcome = elsewhere(&sandbox, arguments);
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert_eq!(outcome.code, Some(code), "{arguments:?}: {said}");
        if ["check", "plan", "harvest", "deploy"].contains(&arguments[0]) {
            let words =
                format!("another deployment of cluster lab.example.com is on sim: id {id}, 2 machines, begun by ");
            assert!(said.contains(&words), "{arguments:?}: {said}");
            assert!(!said.contains("`ocpdeploy destroy lab`"), "{arguments:?}: {said}");
        }
        assert_eq!(objects(&sandbox), before, "{arguments:?}");
    }
    assert!(!sandbox.path().join("second/clusters").exists());
    sandbox.run(&["verify", "lab"]).succeeded();
}

#[test]
fn an_adopted_cluster_is_managed_like_one_with_its_first_record() {
    let sandbox = two_computers();
    let lost = sandbox.parameters("lab").unwrap();
    let (id, before) = (id_of(&sandbox.home(), "lab"), objects(&sandbox));
    std::fs::remove_dir_all(sandbox.home().cluster("lab").path()).unwrap();
    let adopted = sandbox.run(&["adopt", "lab.sh", "--rehearse"]).succeeded();
    assert!(
        adopted.stdout.contains("has a new record: 2 nodes"),
        "{}",
        adopted.stdout
    );
    assert_eq!(objects(&sandbox), before);
    assert_eq!(id_of(&sandbox.home(), "lab"), id);
    let table = sandbox.parameters("lab").unwrap();
    let nodes = |of: &[_]| serde_json::to_value(of).unwrap().as_array().unwrap()[1..].to_vec();
    assert_eq!(nodes(&table.nodes), nodes(&lost.nodes));
    assert_eq!(
        (
            table.api_ip,
            table.ingress_ip,
            table.virtual_router_id,
            table.ingress_virtual_router_id
        ),
        (
            lost.api_ip,
            lost.ingress_ip,
            lost.virtual_router_id,
            lost.ingress_virtual_router_id
        )
    );
    sandbox.run(&["verify", "lab"]).succeeded();
    let again = sandbox.run(&["adopt", "lab.sh", "--rehearse"]);
    assert_eq!(again.code, Some(2), "{}", again.stderr);
    let deployed = sandbox.deploy("lab").succeeded();
    assert_eq!(objects(&sandbox), before, "{}", deployed.stderr);
    sandbox.run(&["stop", "lab"]).succeeded();
    sandbox.run(&["start", "lab"]).succeeded();
    let before = objects(&sandbox);
    let scaled = sandbox.run(&["scale", "lab", "--workers", "2"]);
    assert_eq!(scaled.code, Some(4), "{}", scaled.stderr);
    assert!(
        scaled.stderr.contains("ocpdeploy state import FILE"),
        "{}",
        scaled.stderr
    );
    assert_eq!(objects(&sandbox), before);
    sandbox.run(&["destroy", "lab", "--yes"]).succeeded();
    assert_eq!(sandbox.machines(None), []);
    assert_eq!(sandbox.reservations(None), []);
}

#[test]
fn a_deployment_is_adopted_only_as_the_kind_that_it_is() {
    let sandbox = two_computers();
    std::fs::write(sandbox.path().join("openshift_pull.json"), PULL_SECRET).unwrap();
    let refused = elsewhere(&sandbox, &["adopt", "lab.sh"]);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    assert!(refused.message().contains("is a rehearsal"), "{}", refused.stderr);
    assert!(!sandbox.path().join("second/clusters").exists());
    // `audit` names the command that works.
    let audit = elsewhere(&sandbox, &["audit", "--env", "lab.sh"]).stdout;
    for said in [&refused.stderr, &audit] {
        let command = said.split('`').find(|part| part.starts_with("ocpdeploy adopt"));
        assert!(
            command.is_some_and(|command| command.starts_with("ocpdeploy adopt lab.sh --rehearse --id ")),
            "{said}"
        );
    }
    sandbox.edit(|world| {
        for (_, machine) in world["machines"].as_object_mut().unwrap() {
            machine["creation"] = json!("anna@laptop 2026-11-28T09:12:13Z");
        }
    });
    let refused = elsewhere(&sandbox, &["adopt", "lab.sh", "--rehearse"]);
    assert!(refused.message().contains("is a real cluster"), "{}", refused.stderr);
}

#[test]
fn without_a_record_destroy_shows_the_command_that_works() {
    let sandbox = two_computers();
    let hint = |outcome: &Outcome| {
        assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
        outcome.message().split_once("hint: ").unwrap().1.to_owned()
    };
    let unknown = hint(&elsewhere(&sandbox, &["destroy", "lab"]));
    assert!(unknown.contains("`ocpdeploy audit --env ENV`"), "{unknown}");
    let named = sandbox.run(&["destroy", "lab.example.com", "--dry-run"]).succeeded();
    assert!(named.stdout.contains("lab-master-0"), "{}", named.stdout);
    std::fs::copy(sandbox.path().join("lab.sh"), sandbox.path().join("env.sh")).unwrap();
    for arguments in [
        &["destroy"][..],
        &["destroy", "lab"],
        &["destroy", "lab.example.com"],
        &["destroy", "lab.example.com", "--env", "env.sh"],
        &["destroy", "lab", "--env", "env.sh"],
    ] {
        let hint = hint(&elsewhere(&sandbox, arguments));
        let command = hint.split('`').nth(1).unwrap().strip_prefix("ocpdeploy ").unwrap();
        let command: Vec<&str> = command.split(' ').chain(["--dry-run"]).collect();
        let shown = elsewhere(&sandbox, &command).succeeded();
        assert!(shown.stdout.contains("lab-master-0"), "{arguments:?}: {}", shown.stdout);
    }
}

#[test]
fn an_outdated_record_changes_nothing() {
    let sandbox = two_computers();
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .args([sandbox.home().root(), &sandbox.path().join("second")])
        .status();
    assert!(copied.unwrap().success());
    elsewhere(&sandbox, &["scale", "lab", "--workers", "2"]).succeeded();
    let before = objects(&sandbox);
    let refused = |arguments: &[&str], why: &str| {
        let outcome = sandbox.run(arguments);
        assert_eq!(outcome.code, Some(4), "{arguments:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(why), "{arguments:?}: {}", outcome.stderr);
    };
    for arguments in [
        &["stop", "lab"][..],
        &["start", "lab"],
        &["scale", "lab", "--workers", "2"],
        &["node", "replace", "lab", "master-0"],
        &["snapshot", "save", "lab", "before"],
    ] {
        refused(arguments, "it lacks lab-worker-1, which is on the platform");
        assert_eq!(objects(&sandbox), before, "{arguments:?}");
    }
    sandbox.run(&["verify", "lab", "--repair"]);
    assert_eq!(
        objects(&sandbox),
        before,
        "the address of a machine of the other computer"
    );
    elsewhere(&sandbox, &["destroy", "lab", "--yes"]).succeeded();
    refused(
        &["scale", "lab", "--workers", "2"],
        "cluster lab has no master left on the platform",
    );
    refused(&["stop", "lab"], "cluster lab has no master left on the platform");
    assert_eq!(sandbox.machines(None), []);
    sandbox.run(&["destroy", "lab", "--yes"]).succeeded();
    assert!(!sandbox.home().cluster("lab").path().exists());
}

#[test]
fn adopt_accepts_only_a_kubeconfig_of_its_cluster_that_protects_the_connection() {
    let sandbox = two_computers();
    let (authority, path) = (Authority::new(), sandbox.path().join("kubeconfig"));
    let good = authority.kubeconfig("lab", "https://api.lab.example.com:6443");
    let adopt = ["adopt", "lab.sh", "--rehearse", "--kubeconfig", "kubeconfig"];
    for (text, why) in [
        ("nonsense".to_owned(), "it is not a kubeconfig"),
        (
            good.replace(
                "certificate-authority-data: ",
                "certificate-authority: /ca.pem\n    x: ",
            ),
            "it refers to another file, /ca.pem",
        ),
        (
            good.replace(
                "certificate-authority-data: ",
                "insecure-skip-tls-verify: true\n    x: ",
            ),
            "sets insecure-skip-tls-verify",
        ),
        (
            good.replace("certificate-authority-data: ", "x: "),
            "it has no CA certificate",
        ),
        (
            good.replace("api.lab", "api.other"),
            "it is for api.other.example.com, not for api.lab.example.com",
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        let refused = elsewhere(&sandbox, &adopt);
        assert_eq!(refused.code, Some(3), "{}", refused.stderr);
        assert!(refused.stderr.contains(why), "{why}: {}", refused.stderr);
        assert!(!sandbox.path().join("second/clusters").exists(), "{why}");
    }
    std::fs::write(&path, &good).unwrap();
    elsewhere(&sandbox, &adopt).succeeded();
    let copied = ocpdeploy::state::home::Home::new(sandbox.path().join("second")).cluster("lab");
    assert_eq!(std::fs::read_to_string(copied.kubeconfig()).unwrap(), good);
}

/// The state directory was restored from a backup after a scale-up.
#[test]
fn an_older_record_takes_over_the_workers_that_the_platform_has_more() {
    let sandbox = two_computers();
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .args([sandbox.home().root(), &sandbox.path().join("second")])
        .status();
    assert!(copied.unwrap().success());
    elsewhere(&sandbox, &["scale", "lab", "--workers", "3"]).succeeded();
    // A machine of another deployment of this name.
    sandbox.edit(|world| {
        let mut other = world["machines"]["lab-worker-2"].clone();
        other["cluster"] = json!("lab.example.com.zzzzzzzz");
        other["node"] = json!("worker-3");
        world["machines"]["lab-worker-3"] = other;
    });
    let before = objects(&sandbox);
    let verified = sandbox.run(&["verify", "lab"]);
    assert_eq!(verified.code, Some(1), "{}", verified.stderr);
    for lacking in ["worker-1", "worker-2"] {
        let text = format!("lab-{lacking} is not in the table: `ocpdeploy verify lab --adopt` adds it");
        assert!(verified.stdout.contains(&text), "{}", verified.stdout);
    }
    assert!(!verified.stdout.contains("worker-3"), "{}", verified.stdout);
    let table = sandbox.parameters("lab").unwrap();
    let refused = sandbox.run(&["verify", "lab", "--adopt"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("`ocpdeploy verify lab --adopt --yes`"),
        "{}",
        refused.stderr
    );
    assert_eq!(sandbox.parameters("lab").unwrap(), table);

    let adopted = sandbox.run(&["verify", "lab", "--adopt", "--yes"]).succeeded();
    let there = ocpdeploy::state::home::Home::new(sandbox.path().join("second")).cluster("lab");
    let there = ocpdeploy::state::parameters::Parameters::read(&there.parameters())
        .unwrap()
        .unwrap();
    let table = sandbox.parameters("lab").unwrap();
    assert_eq!(table.nodes, there.nodes);
    for node in &table.nodes[3..] {
        let line = format!("added to the table: {} {} {}\n", node.name, node.mac, node.ip);
        assert!(adopted.stdout.contains(&line), "{}", adopted.stdout);
    }
    assert_eq!(objects(&sandbox), before);
    sandbox.edit(|world| {
        world["machines"].as_object_mut().unwrap().remove("lab-worker-3");
    });
    sandbox.run(&["verify", "lab", "--adopt", "--yes"]).succeeded();
    sandbox.run(&["stop", "lab"]).succeeded();
    sandbox.run(&["start", "lab"]).succeeded();
    sandbox.run(&["scale", "lab", "--workers", "1", "--yes"]).succeeded();
    assert_eq!(sandbox.machines(None).len(), 2);
}

#[test]
fn missing_machines_of_an_adopted_cluster_are_reported() {
    let sandbox = two_computers();
    elsewhere(&sandbox, &["adopt", "lab.sh", "--rehearse"]).succeeded();
    sandbox.edit(|world| {
        world["machines"].as_object_mut().unwrap().remove("lab-worker-0");
    });
    let status = elsewhere(&sandbox, &["status", "lab"]);
    assert!(status.stdout.contains("missing"), "{}", status.stdout);
    let list = elsewhere(&sandbox, &["list"]);
    assert!(list.stdout.contains("failed"), "{}", list.stdout);
}

#[test]
fn an_unknown_id_destroys_nothing_and_is_an_error() {
    let sandbox = two_computers();
    let before = objects(&sandbox);
    let command = ["destroy", "lab.example.com", "--from-backend", "--id", "zzzzzzzz"];
    let outcome = elsewhere(&sandbox, &[&command[..], &["--env", "lab.sh", "--yes"]].concat());
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    let id = id_of(&sandbox.home(), "lab");
    assert!(
        outcome.stderr.contains(&format!("found id {}", id.deployment())),
        "{}",
        outcome.stderr
    );
    assert_eq!(objects(&sandbox), before);
}

#[test]
fn hints_about_another_deployment_are_commands_that_work() {
    let sandbox = two_computers();
    let refused = elsewhere(&sandbox, &["deploy", "lab.sh", "--rehearse"]).stderr;
    let commands: Vec<&str> = refused
        .split('`')
        .filter(|part| part.starts_with("ocpdeploy "))
        .collect();
    let of = |verb: &str| -> Vec<&str> {
        let command = commands.iter().find(|command| command.contains(verb));
        command
            .unwrap_or_else(|| panic!("no {verb} in {refused}"))
            .split(' ')
            .skip(1)
            .collect()
    };
    let destroy = elsewhere(&sandbox, &[&of(" destroy ")[..], &["--dry-run"]].concat()).succeeded();
    assert!(destroy.stdout.contains("lab-master-0"), "{}", destroy.stdout);
    elsewhere(&sandbox, &of(" adopt ")).succeeded();
}

#[test]
fn a_cluster_that_cannot_be_adopted_is_an_error_with_the_reason() {
    let sandbox = two_computers();
    sandbox.env("next", SMALL);
    sandbox.run(&["harvest", "next.sh", "--rehearse"]).succeeded();
    std::fs::remove_dir_all(sandbox.home().cluster("next").path()).unwrap();
    sandbox.env("none", SMALL);
    for (env, id, refusal) in [
        (
            "next.sh",
            None,
            "is not complete, and cannot be continued without its record",
        ),
        ("none.sh", None, "no objects of cluster none.example.com"),
        (
            "lab.sh",
            Some("zzzzzzzz"),
            "has these deployments of cluster lab.example.com: id ",
        ),
    ] {
        let id = id.map(|id| ["--id", id]);
        let more = id.iter().flatten().copied().collect::<Vec<_>>();
        let outcome = elsewhere(&sandbox, &[&["adopt", env, "--rehearse"][..], &more].concat());
        assert_eq!(outcome.code, Some(4), "{env}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(refusal), "{env}: {}", outcome.stderr);
        assert!(!sandbox.path().join("second/clusters").exists(), "{env}");
    }
}

#[test]
fn two_computers_that_deploy_one_name_at_once_keep_each_others_objects() {
    let sandbox = Sandbox::new(json!({"script": {"latency_ms": {"create_machine": 20}}}));
    std::fs::write(sandbox.path().join("key.pub"), KEY).unwrap();
    sandbox.env("lab", SMALL);
    let homes = ["first", "second"].map(|name| sandbox.path().join(name));
    let children = homes
        .each_ref()
        .map(|home| sandbox.start(&["deploy", "lab.sh", "--rehearse", "--home", home.to_str().unwrap()]));
    let ends = children.map(|child| child.wait_with_output().unwrap());
    assert!(
        ends.iter().any(|end| !end.status.success()),
        "both deployments succeeded: {ends:?}"
    );
    for home in &homes {
        let home = ocpdeploy::state::home::Home::new(home);
        if !home.cluster("lab").known().exists() {
            continue;
        }
        let id = id_of(&home, "lab").tag().to_owned();
        let of_others = |world: &Value| -> Vec<String> {
            let machines = world["machines"].as_object().unwrap().iter();
            let others = machines.filter(|(_, machine)| machine["cluster"] != id.as_str());
            others.map(|(name, _)| name.clone()).collect()
        };
        let before = of_others(&sandbox.state());
        let home = home.root().to_str().unwrap();
        sandbox.run(&["destroy", "lab", "--yes", "--home", home]).succeeded();
        assert_eq!(of_others(&sandbox.state()), before);
    }
    assert_eq!(sandbox.machines(None), []);
    assert_eq!(sandbox.reservations(None), []);
}

#[test]
fn a_copied_record_cannot_inject_paths_or_lines() {
    let sandbox = two_computers();
    let dir = sandbox.home().cluster("lab");
    for (file, from, to) in [
        (dir.parameters(), "example.com", "x/../../../etc/evil"),
        (
            dir.parameters(),
            "example.com",
            "example.com\\n6.6.6.6 www.bank.example #",
        ),
        (dir.parameters(), "master-0", "../master-0"),
        (dir.known(), "example.com", "x/../../../etc/evil"),
        (dir.known(), "\"lab\"", "\"..\""),
    ] {
        let whole = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, whole.replace(from, to)).unwrap();
        let root = tempfile::tempdir().unwrap();
        for how in ["hosts", "networkmanager", "resolved"] {
            let arguments = [
                "dns",
                "apply",
                "lab",
                "--how",
                how,
                "--root",
                root.path().to_str().unwrap(),
            ];
            let outcome = sandbox.run(&arguments);
            assert!(matches!(outcome.code, Some(3 | 4)), "{to} {how}: {}", outcome.stderr);
            assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0, "{to} {how}");
        }
        std::fs::write(&file, whole).unwrap();
    }
}
