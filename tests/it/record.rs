//! A cluster's record matches the platform: a rejected command changes no file, a rehearsal and a
//! real cluster never share a name, and the reported state is that of the machines.

use crate::support::folder::{files, platform};
use crate::support::lab_site::{LINES, Site};
use crate::support::sandbox::{Outcome, Sandbox};
use ocpdeploy::state::journal::Journal;
use serde_json::{Value, json};

const SMALL: &str = "masters=1\nworkers=1\nimage=coreos\nharvest_image=helper";

const REAL: &str = "masters=1\nworkers=1\nimage=./node.qcow2\nharvest_image=./helper.qcow2\n";

/// The record and the platform, which a rejected command must not change.
fn all(sandbox: &Sandbox) -> Value {
    json!([files(sandbox.home().cluster("lab").path()), platform(&sandbox.state())])
}

/// The command is rejected for this reason and changes no byte of the cluster's record.
#[track_caller]
fn refused(sandbox: &Sandbox, arguments: &[&str], words: &str) -> Outcome {
    let before = all(sandbox);
    let outcome = sandbox.run(arguments);
    assert!(
        outcome.message().contains(words),
        "{arguments:?}: {words}\n{}",
        outcome.stderr
    );
    let after = all(sandbox);
    assert_eq!(after, before, "{arguments:?} was rejected and changed a record");
    outcome
}

fn list(sandbox: &Sandbox) -> Value {
    let list = sandbox.run(&["list", "--format", "json"]).succeeded();
    let list: Value = serde_json::from_str(&list.stdout).unwrap();
    let status = sandbox.run(&["status", "--format", "json"]).succeeded();
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    let (list, status) = (&list["clusters"][0], &status["clusters"][0]);
    for field in ["state", "power", "off", "phase"] {
        assert_eq!(list[field], status[field], "list and status differ in {field}");
    }
    json!([list["state"], list["power"], list["off"]])
}

#[test]
fn deploy_rejects_a_rehearsed_cluster_and_says_how_to_continue() {
    let site = Site::new("96.1");
    let sandbox = &site.sandbox;
    sandbox.env("lab", &format!("{LINES}{SMALL}"));
    sandbox.deploy("lab").succeeded();
    let known =
        || -> Value { serde_json::from_slice(&std::fs::read(sandbox.home().cluster("lab").known()).unwrap()).unwrap() };
    assert_eq!(known()["rehearsal"], true);
    let outcome = refused(
        sandbox,
        &["deploy", "lab.sh"],
        "cluster lab is a rehearsal; a real cluster cannot be",
    );
    assert_eq!(outcome.code, Some(3));
    assert!(
        outcome.message().contains("`ocpdeploy destroy lab` removes it"),
        "{}",
        outcome.stderr
    );
    assert!(outcome.message().contains("`--cluster NAME`"), "{}", outcome.stderr);
    refused(sandbox, &["harvest", "lab.sh"], "is a rehearsal");
    // Nor has it become a partial deployment.
    sandbox.run(&["stop", "lab"]).succeeded();
    sandbox
        .run(&["destroy", "lab", "--yes", "--keep-addresses"])
        .succeeded();
    sandbox.env("lab", &format!("{LINES}{REAL}version=4.99\n"));
    // Only the addresses of the rehearsal remain, which a real cluster can use.
    let outcome = refused(sandbox, &["deploy", "lab.sh"], "openshift-install");
    assert!(!outcome.message().contains("is a rehearsal"), "{}", outcome.stderr);
}

#[test]
fn a_rehearsal_of_an_installed_cluster_is_rejected_without_suggesting_destroy() {
    let mut site = Site::new("96.2");
    site.sandbox.env("lab", &format!("{LINES}{REAL}"));
    site.run(&["deploy", "lab.sh"]).succeeded();
    let sandbox = &site.sandbox;
    for command in [
        &["deploy", "lab.sh", "--rehearse"][..],
        &["harvest", "lab.sh", "--rehearse"],
    ] {
        let outcome = refused(
            sandbox,
            command,
            "cluster lab is a real cluster; it cannot be rehearsed",
        );
        assert!(
            outcome.message().contains("--cluster lab-rehearsal`"),
            "{}",
            outcome.stderr
        );
        assert!(!outcome.message().contains("destroy"), "{}", outcome.stderr);
    }
    // The checks of an installed cluster still apply.
    refused(sandbox, &["stop", "lab"], "must not be stopped yet");
    refused(sandbox, &["deploy", "lab.sh", "--harvest"], "cannot be harvested again");
}

#[test]
fn a_rejected_command_changes_no_byte() {
    let sandbox = Sandbox::new(json!({}));
    sandbox.env("lab", SMALL);
    sandbox.deploy("lab").succeeded();
    // A rejected command also leaves a torn line and a temporary file of a crash unchanged.
    let dir = sandbox.home().cluster("lab");
    let mut journal = std::fs::read(dir.journal()).unwrap();
    journal.extend(b"{\"v\":1,\"seq\":9,\"ti");
    std::fs::write(dir.journal(), journal).unwrap();
    std::fs::write(dir.path().join(".new-file"), "half").unwrap();
    std::fs::write(
        sandbox.path().join("a.ign"),
        r#"{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/etc/a"}]}}"#,
    )
    .unwrap();
    std::fs::write(
        sandbox.path().join("b.pub"),
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvT2Wdq2dMbFf8hh+o/a4HZMBbqvP6vpsXfB4pMJ6Ma b\n",
    )
    .unwrap();
    for (lines, flags) in [
        ("domain=example.org", &[][..]),
        ("sim_state=other.json", &[]),
        ("worker_memory=777", &[]),
        ("bootstrap_memory=777", &[]),
        ("masters=3", &[]),
        ("workers=2", &[]),
        ("workers=0", &[]),
        ("network=other", &[]),
        ("image=./helper.qcow2", &[]),
        ("pub_key=b.pub", &[]),
        ("ignition_extra=a.ign", &[]),
        ("", &["--harvest"]),
        ("worker_memory=777", &["--harvest"]),
    ] {
        sandbox.env("lab", &format!("{SMALL}\n{lines}"));
        let arguments: Vec<&str> = ["deploy", "lab.sh", "--rehearse"]
            .iter()
            .chain(flags)
            .copied()
            .collect();
        let outcome = refused(&sandbox, &arguments, "");
        assert_ne!(outcome.code, Some(0), "{lines} {flags:?} was not rejected");
    }
    sandbox.env("lab", SMALL);
    for command in [
        &["harvest", "lab.sh", "--rehearse"][..],
        &["scale", "lab", "--workers", "0"],
        &["node", "replace", "lab", "worker-7"],
        &["destroy", "lab", "--dry-run"],
        &["destroy", "lab"],
        &["verify", "lab"],
        &["check", "lab.sh", "--rehearse"],
    ] {
        refused(&sandbox, command, "");
    }
    // Without the lock, not even this computer's names are removed.
    let lock = Journal::open(&dir, "lab").unwrap();
    std::fs::write(dir.client_dns(), r#"{"v":1,"how":"hosts"}"#).unwrap();
    refused(&sandbox, &["destroy", "lab", "--yes"], "is locked by");
    drop(lock);
}

#[test]
fn a_table_with_more_nodes_than_the_settings_is_rejected_before_anything_is_created() {
    let sandbox = Sandbox::new(json!({}));
    sandbox.env("lab", SMALL);
    sandbox.run(&["harvest", "lab.sh", "--rehearse"]).succeeded();
    sandbox.env("lab", &SMALL.replace("workers=1", "workers=0"));
    refused(
        &sandbox,
        &["deploy", "lab.sh", "--rehearse"],
        "it has worker-0, which is not in the settings",
    );
    sandbox.env("lab", SMALL);
    sandbox.deploy("lab").succeeded();
}

#[test]
fn a_failed_second_harvest_loses_nothing() {
    let sandbox = Sandbox::new(json!({}));
    sandbox.env("lab", SMALL);
    sandbox.run(&["harvest", "lab.sh", "--rehearse"]).succeeded();
    sandbox.edit(|world| world["images"] = json!(["coreos"]));
    for command in [
        &["harvest", "lab.sh", "--rehearse"][..],
        &["deploy", "lab.sh", "--rehearse", "--harvest"],
    ] {
        refused(&sandbox, command, "no image helper");
    }
    sandbox.edit(|world| world["images"] = json!(["coreos", "helper"]));
    sandbox.deploy("lab").succeeded();
}

#[test]
fn the_recorded_sizes_are_those_of_the_machines() {
    let sandbox = Sandbox::new(json!({}));
    sandbox.env("lab", SMALL);
    let memory = |role: &str| -> Value {
        let known: Value =
            serde_json::from_slice(&std::fs::read(sandbox.home().cluster("lab").known()).unwrap()).unwrap();
        known["sizes"][role]["memory_mib"].clone()
    };
    sandbox.run(&["harvest", "lab.sh", "--rehearse"]).succeeded();
    let planned = memory("worker");
    // The second machine is rejected: the first exists in its requested size.
    sandbox.env(
        "lab",
        &format!("{SMALL}\nmaster_memory=555\nworker_memory=666\nbootstrap_memory=444"),
    );
    sandbox.edit(|world| {
        world["script"] = json!({"faults": [{"call": "create_machine", "about": "lab-worker-0", "what": "denied"}]})
    });
    assert_eq!(sandbox.deploy("lab").code, Some(5));
    assert_eq!((memory("bootstrap"), memory("master")), (json!(444), json!(555)));
    // Other sizes are rejected, and the record still matches the machines.
    sandbox.env(
        "lab",
        &format!("{SMALL}\nmaster_memory=556\nworker_memory=667\nbootstrap_memory=444"),
    );
    refused(&sandbox, &["deploy", "lab.sh", "--rehearse"], "");
    sandbox.env(
        "lab",
        &format!("{SMALL}\nmaster_memory=555\nworker_memory=668\nbootstrap_memory=444"),
    );
    sandbox.deploy("lab").succeeded();
    assert_eq!((memory("master"), memory("worker")), (json!(555), json!(668)));
    assert_ne!(planned, json!(668));
}

#[test]
fn a_stopped_cluster_is_not_started_by_deploy() {
    let sandbox = Sandbox::new(json!({}));
    sandbox.env("lab", SMALL);
    sandbox.deploy("lab").succeeded();
    sandbox.run(&["stop", "lab"]).succeeded();
    let outcome = refused(
        &sandbox,
        &["deploy", "lab.sh", "--rehearse"],
        "2 machines of cluster lab are switched off",
    );
    assert!(
        outcome.message().contains("`ocpdeploy start lab`"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn the_state_of_a_cluster_is_that_of_its_machines() {
    let mut site = Site::new("96.3");
    site.sandbox.env("lab", &format!("{LINES}{REAL}"));
    site.run(&["harvest", "lab.sh"]).succeeded();
    assert_eq!(list(&site.sandbox), json!(["harvested", null, null]));
    site.run(&["deploy", "lab.sh"]).succeeded();
    assert_eq!(list(&site.sandbox), json!(["running", "running", null]));
    let again = site.run(&["start", "lab"]).succeeded();
    assert!(
        again.stdout.contains("cluster lab.example.com runs already"),
        "{}",
        again.stdout
    );
    assert!(!again.stderr.contains("booting"), "{}", again.stderr);
    let sandbox = &site.sandbox;
    sandbox.edit(|world| world["machines"]["lab-worker-0"]["off"] = json!(true));
    assert_eq!(list(sandbox), json!(["partly-stopped", "partly-stopped", ["worker-0"]]));
    let text = sandbox.run(&["list"]).succeeded().stdout;
    assert!(text.contains("  partly stopped\n"), "{text}");
    let text = sandbox.run(&["status"]).succeeded().stdout;
    assert!(
        text.contains("phase   partly stopped: powered off: worker-0\n"),
        "{text}"
    );
    sandbox.run(&["stop", "lab", "--force"]).succeeded();
    assert_eq!(list(sandbox), json!(["stopped", "stopped", ["master-0", "worker-0"]]));
    let again = sandbox.run(&["stop", "lab"]).succeeded();
    assert!(again.stdout.contains("is already off"), "{}", again.stdout);
    let page = sandbox.run(&["report", "lab", "-o", "-"]).succeeded().stdout;
    assert!(page.contains(r#"<span class="mark stopped">stopped</span>"#), "{page}");
    // If the platform does not answer, the state is as `stop` left it.
    let state = sandbox.path().join("sim.json");
    let world = std::fs::read(&state).unwrap();
    std::fs::write(&state, "nonsense").unwrap();
    let text = sandbox.run(&["list"]).succeeded().stdout;
    assert!(text.contains("  stopped\n"), "{text}");
    std::fs::write(&state, world).unwrap();
    sandbox.edit(|world| _ = world["machines"].as_object_mut().unwrap().remove("lab-worker-0"));
    assert_eq!(list(sandbox)[0], "failed");
}

#[test]
fn a_rehearsal_is_listed_as_such_with_its_power_state() {
    let sandbox = Sandbox::new(json!({}));
    sandbox.env("lab", SMALL);
    sandbox.deploy("lab").succeeded();
    assert_eq!(list(&sandbox), json!(["rehearsal", "running", null]));
    sandbox.run(&["stop", "lab"]).succeeded();
    assert_eq!(
        list(&sandbox),
        json!(["rehearsal", "stopped", ["master-0", "worker-0"]])
    );
    let text = sandbox.run(&["list"]).succeeded().stdout;
    assert!(text.contains("  rehearsal, stopped\n"), "{text}");
}
