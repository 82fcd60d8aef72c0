//! What `ocpdeploy audit` finds on a platform, and that `destroy` deletes only the cluster's own objects.

use crate::support::cluster::id_of;
use crate::support::sandbox::{DOMAIN, Sandbox};
use serde_json::{Value, json};

const SMALL: &str = "masters=1\nworkers=1\nimage=coreos\nharvest_image=helper";

/// A simulated platform with one cluster on it.
fn with_lab() -> Sandbox {
    let sandbox = Sandbox::new(json!({}));
    sandbox.env("lab", SMALL);
    sandbox.deploy("lab").succeeded();
    sandbox
}

/// The audit's JSON, and its exit code.
fn audit(sandbox: &Sandbox, more: &[&str]) -> (Value, Option<i32>) {
    let outcome = sandbox.run(&[&["audit", "--format", "json"], more].concat());
    let json = serde_json::from_str(&outcome.stdout).unwrap_or_else(|_| panic!("{}", outcome.stderr));
    (json, outcome.code)
}

/// The name and state of each cluster that was found.
fn states(audit: &Value) -> Vec<(String, String)> {
    let platforms = audit["platforms"].as_array().unwrap().iter();
    let clusters = platforms.flat_map(|platform| platform["clusters"].as_array().unwrap());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    clusters
        .map(|found| {
            (
                format!("{}.{}", text(&found["cluster"]), text(&found["domain"])),
                text(&found["state"]),
            )
        })
        .collect()
}

fn state_of(audit: &Value, cluster: &str) -> String {
    let id = format!("{cluster}.{DOMAIN}");
    let found = states(audit).into_iter().find(|(found, _)| *found == id);
    found.unwrap_or_else(|| panic!("{id} is not in {audit}")).1
}

/// All objects of the simulated platform except those `of` a cluster, without faults and counters.
fn things_not_of(sandbox: &Sandbox, of: &str) -> Value {
    let mut world = sandbox.state();
    let domain = format!("{of}.{DOMAIN}.");
    let is_its = |thing: &Value| thing["cluster"].as_str().is_some_and(|tag| tag.starts_with(&domain));
    world["machines"]
        .as_object_mut()
        .unwrap()
        .retain(|_, machine| !is_its(machine));
    for network in world["networks"].as_object_mut().unwrap().values_mut() {
        network["reservations"]
            .as_object_mut()
            .unwrap()
            .retain(|_, kept| !is_its(kept));
        // A lease outlives its machine.
        network["leases"] = json!({});
    }
    json!([
        world["machines"],
        world["networks"],
        world["images"],
        world["foreign_machines"]
    ])
}

#[test]
fn a_running_cluster_is_reported_as_alive() {
    let sandbox = with_lab();
    let (found, code) = audit(&sandbox, &[]);
    assert_eq!(states(&found), [("lab.example.com".to_owned(), "alive".to_owned())]);
    assert_eq!(code, Some(0));
    let text = sandbox.run(&["audit"]).succeeded().stdout;
    assert!(
        text.contains("lab.example.com: alive; id ") && !text.contains("hint"),
        "{text}"
    );
    sandbox.run(&["destroy", "lab", "--yes"]).succeeded();
    let (found, code) = audit(&sandbox, &["--env", "lab.sh"]);
    assert_eq!((states(&found), code), (vec![], Some(0)));
}

#[test]
fn leftovers_are_classified_and_deleted_by_the_command_in_their_hint() {
    let sandbox = with_lab();
    for cluster in ["half", "lost", "begun"] {
        sandbox.env(cluster, SMALL);
    }
    sandbox.deploy("half").succeeded();
    sandbox.deploy("lost").succeeded();
    // A `destroy` that was interrupted after its first machines.
    sandbox.edit(|world| {
        world["machines"].as_object_mut().unwrap().remove("half-master-0");
    });
    std::fs::remove_dir_all(sandbox.home().cluster("lost").path()).unwrap();
    sandbox.run(&["harvest", "begun.sh", "--rehearse"]).succeeded();
    // A machine of pass one that was created late.
    sandbox.edit(|world| {
        let mut machine = world["machines"]["lab-worker-0"].clone();
        machine["pass"] = json!("one");
        world["machines"]["lab-harvest-worker-0"] = machine;
    });
    let (found, code) = audit(&sandbox, &[]);
    assert_eq!(code, Some(1));
    for (cluster, state) in [
        ("lab", "alive"),
        ("half", "incomplete"),
        ("lost", "unrecorded"),
        ("begun", "unfinished"),
    ] {
        assert_eq!(state_of(&found, cluster), state, "{cluster}");
    }
    let lab = found["platforms"][0]["clusters"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["cluster"] == "lab");
    assert_eq!(lab.unwrap()["should_be_gone"], json!(["lab-harvest-worker-0"]));

    // Each hint is a command that works.
    let text = sandbox.run(&["audit"]).stdout;
    let mut done = 0;
    for command in text.split('`').filter(|part| part.starts_with("ocpdeploy destroy ")) {
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        sandbox.run(&[&words[..], &["--yes"]].concat()).succeeded();
        done += 1;
    }
    assert_eq!(done, 3, "{text}");
    assert!(
        text.contains("`ocpdeploy verify lab --repair` removes machines that are no longer needed"),
        "{text}"
    );
    let repaired = sandbox.run(&["verify", "lab", "--repair"]).succeeded();
    let told = "removed: lab-harvest-worker-0, no longer needed";
    assert!(repaired.stdout.contains(told), "{}", repaired.stdout);
    let (found, code) = audit(&sandbox, &[]);
    assert_eq!(states(&found), [("lab.example.com".to_owned(), "alive".to_owned())]);
    assert_eq!(code, Some(0), "{found}");
}

#[test]
fn a_cluster_of_another_computer_is_found_and_destroyed_only_by_its_id() {
    let sandbox = with_lab();
    let elsewhere = ["--home", sandbox.path().join("other-home").to_str().unwrap()].map(str::to_owned);
    let there = |arguments: &[&str]| {
        let home: Vec<&str> = elsewhere.iter().map(String::as_str).collect();
        sandbox.run(&[arguments, &home].concat())
    };
    let told = there(&["audit", "--env", "lab.sh"]);
    assert_eq!(told.code, Some(1), "{}", told.stderr);
    assert!(
        told.stdout.contains("lab.example.com: not in the state directory"),
        "{}",
        told.stdout
    );
    let id = id_of(&sandbox.home(), "lab").deployment().to_string();
    let destroy = format!("ocpdeploy destroy lab.example.com --from-backend --id {id} --env lab.sh");
    assert!(
        told.stdout.contains(&format!("`{destroy}` shows its objects and asks")),
        "{}",
        told.stdout
    );

    for arguments in [
        &["destroy", "lab.example.com", "--from-backend", "--yes"][..],
        &["audit"],
    ] {
        let nowhere = there(arguments);
        assert_eq!(nowhere.code, Some(2), "{arguments:?}: {}", nowhere.stderr);
        let why = "no platform to search: the state directory has no clusters";
        assert!(nowhere.stderr.contains(why), "{}", nowhere.stderr);
    }

    let words: Vec<&str> = destroy.split(' ').skip(1).collect();
    let before = sandbox.state();
    let shown = there(&[&words[..], &["--dry-run"]].concat()).succeeded().stdout;
    assert_eq!(sandbox.state()["machines"], before["machines"]);
    assert_eq!(sandbox.state()["networks"], before["networks"]);
    for (name, _) in sandbox.machines(Some("lab")) {
        assert!(shown.contains(&name), "{name} is not in {shown}");
    }
    // Without a local record, `destroy` requires the id.
    let without_id = ["destroy", "lab.example.com", "--from-backend", "--env", "lab.sh"];
    for (arguments, refusal) in [
        (&["--yes"][..], "--yes requires --id for lab.example.com"),
        (&[], "stdin is not a terminal"),
        (&["--yes", "--id", "zzzzzzzz"], ""),
    ] {
        let outcome = there(&[&without_id[..], arguments].concat());
        assert!(outcome.stderr.contains(refusal), "{arguments:?}: {}", outcome.stderr);
        assert_eq!(sandbox.state()["machines"], before["machines"], "{arguments:?}");
    }
    there(&[&words[..], &["--yes"]].concat()).succeeded();
    assert_eq!(sandbox.machines(Some("lab")), []);
    assert_eq!(sandbox.reservations(Some("lab")), []);
}

#[test]
fn a_cluster_with_a_record_can_be_destroyed_from_the_backend() {
    let sandbox = with_lab();
    sandbox
        .run(&["destroy", "lab.example.com", "--from-backend", "--yes"])
        .succeeded();
    assert_eq!(sandbox.machines(None), []);
    assert_eq!(sandbox.home().cluster_names().unwrap(), [""; 0]);
    let again = sandbox.run(&[
        "destroy",
        "lab.example.com",
        "--from-backend",
        "--env",
        "lab.sh",
        "--yes",
    ]);
    again.succeeded();
}

#[test]
fn the_folder_of_another_cluster_of_the_same_name_is_kept() {
    let sandbox = with_lab();
    let other = sandbox.path().join("other.json").display().to_string();
    let env = std::fs::read_to_string(sandbox.path().join("lab.sh")).unwrap();
    let here = sandbox.path().join("sim.json").display().to_string();
    for (file, text) in [
        ("domain.sh", env.replace("domain=example.com", "domain=example.org")),
        ("platform.sh", env.replace(&here, &other)),
    ] {
        std::fs::write(sandbox.path().join(file), text).unwrap();
        let before = sandbox.state();
        let outcome = sandbox.run(&["destroy", "lab", "--env", file, "--yes"]);
        assert_eq!(outcome.code, Some(2), "{file}");
        assert!(
            outcome.stderr.contains("no record of cluster"),
            "{file}: {}",
            outcome.stderr
        );
        assert!(sandbox.home().cluster("lab").journal().exists(), "{file}");
        assert_eq!(sandbox.state()["machines"], before["machines"], "{file}");
    }
    let id = "lab.example.org";
    sandbox
        .run(&["destroy", id, "--from-backend", "--env", "domain.sh", "--yes"])
        .succeeded();
    assert!(sandbox.home().cluster("lab").journal().exists());
    sandbox.run(&["status", "lab"]).succeeded();
}

/// Objects that resemble the cluster's and are not: by prefix, suffix, name and domain.
#[test]
fn decoys_of_every_kind_survive() {
    let sandbox = with_lab();
    for cluster in ["lab2", "lab-master", "la", "b"] {
        sandbox.env(cluster, SMALL);
        sandbox.deploy(cluster).succeeded();
    }
    let env = std::fs::read_to_string(sandbox.path().join("lab2.sh")).unwrap();
    let nested = env
        .replace("cluster=lab2", "cluster=a")
        .replace("domain=example.com", "domain=lab.example.com");
    std::fs::write(sandbox.path().join("a.sh"), nested).unwrap();
    sandbox.deploy("a").succeeded();
    sandbox.edit(|world| {
        for name in [
            "lab",
            "lab-",
            "lab-master-00",
            "lab-bootstrap",
            "lab-harvest-helper-7",
            "lab.example.com",
        ] {
            world["foreign_machines"][name] = json!({"macs": []});
        }
        let network = world["networks"]["default"]["reservations"].as_object_mut().unwrap();
        for (index, name) in ["lab-master-0", "api", "lab"].iter().enumerate() {
            let mac = format!("52:54:01:00:00:0{index}");
            let host = format!("{name}.lab.example.com");
            network.insert(
                format!("192.168.122.{}", 240 + index),
                json!({"mac": mac, "name": name, "cluster": null, "dns_names": [host]}),
            );
        }
        let images = world["images"].as_array_mut().unwrap();
        images.extend(["lab", "lab-coreos", "ocpdeploy-lab.example.com"].map(|name| json!(name)));
        // Unfiltered listings contain all of them.
        world["script"]["ignores_filters"] = json!(true);
    });
    let before = things_not_of(&sandbox, "lab");
    let its: Vec<String> = sandbox
        .machines(Some("lab"))
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let shown = sandbox.run(&["destroy", "lab", "--dry-run"]).succeeded().stdout;
    let listed: Vec<&str> = shown
        .lines()
        .filter_map(|line| line.strip_prefix("machine "))
        .map(str::trim)
        .collect();
    assert_eq!(listed, its, "{shown}");

    let destroyed = sandbox.run(&["destroy", "lab", "--yes"]).succeeded();
    assert_eq!(
        destroyed.stderr.matches("this server ignores filters").count(),
        1,
        "{}",
        destroyed.stderr
    );
    assert_eq!(sandbox.machines(Some("lab")), []);
    assert_eq!(sandbox.reservations(Some("lab")), []);
    assert_eq!(things_not_of(&sandbox, "lab"), before);
    println!("reliability: 0 wrong deletions among {} decoys", decoys(&before));
    println!(
        "reliability: {} foreign objects among unfiltered listings",
        decoys(&before)
    );
    println!("reliability: 0 foreign objects changed");
    // None of them is reported as a cluster.
    let (found, code) = audit(&sandbox, &[]);
    assert_eq!(code, Some(0), "{found}");
    assert_eq!(states(&found).len(), 5, "{found}");
}

fn decoys(things: &Value) -> usize {
    let count =
        |value: &Value| value.as_object().map_or(0, serde_json::Map::len) + value.as_array().map_or(0, Vec::len);
    let reserved = things[1]
        .as_object()
        .unwrap()
        .values()
        .map(|network| count(&network["reservations"]));
    count(&things[0]) + reserved.sum::<usize>() + count(&things[2]) + count(&things[3])
}

#[test]
fn an_unresponsive_platform_does_not_hide_the_others() {
    let sandbox = with_lab();
    let broken = sandbox.path().join("broken.json");
    std::fs::write(&broken, "not JSON").unwrap();
    let env = std::fs::read_to_string(sandbox.path().join("lab.sh")).unwrap();
    let here = sandbox.path().join("sim.json").display().to_string();
    std::fs::write(
        sandbox.path().join("env.sh"),
        env.replace(&here, &broken.display().to_string()),
    )
    .unwrap();
    let outcome = sandbox.run(&["audit"]);
    assert_eq!(outcome.code, Some(5), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("lab.example.com: alive"), "{}", outcome.stdout);
    assert!(outcome.stderr.contains("broken.json"), "{}", outcome.stderr);
}
