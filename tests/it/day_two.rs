//! Day two of a cluster on the simulated platform with the binary, also with faults and kills.

use crate::support::sandbox;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::cluster::without_ids;
use crate::support::left_out::left_out;
use crate::support::sandbox::{DOMAIN, Outcome, Sandbox};
use ocpdeploy::cluster::Role;
use ocpdeploy::state::journal;
use ocpdeploy::state::parameters::Parameters;
use serde_json::{Value, json};

const LAB: &str = "masters=3\nworkers=2\nimage=coreos\nharvest_image=helper";

/// An installed cluster of 3 masters and 2 workers.
fn lab() -> Sandbox {
    lab_on(json!({}))
}

fn lab_on(world: Value) -> Sandbox {
    let sandbox = Sandbox::new(world);
    sandbox.env("lab", LAB);
    sandbox.deploy("lab").succeeded();
    sandbox
}

/// An installed cluster with addresses on the loopback, which no other computer has.
fn lab_on_the_loopback() -> Sandbox {
    lab_on(on_the_loopback())
}

fn on_the_loopback() -> Value {
    let network =
        json!({"cidr": "127.94.0.0/24", "gateway": "127.94.0.1", "dhcp_from": "127.94.0.2", "dhcp_to": "127.94.0.254"});
    json!({"networks": {"default": network}})
}

fn table(sandbox: &Sandbox) -> Parameters {
    sandbox.parameters("lab").unwrap()
}

fn workers(table: &Parameters) -> Vec<String> {
    table.of_role(Role::Worker).map(|node| node.name.to_string()).collect()
}

/// Everything of the cluster that must be the same however often a command is interrupted.
fn whole(sandbox: &Sandbox) -> Value {
    let machines: BTreeMap<_, _> = sandbox
        .machines(None)
        .into_iter()
        .map(|(name, machine)| {
            (
                name,
                json!([
                    machine["node"],
                    machine["pass"],
                    machine["off"],
                    machine["nics"][0]["mac"]
                ]),
            )
        })
        .collect();
    let reservations = sandbox.reservations(None).into_iter();
    let reservations: BTreeMap<_, _> = reservations
        .map(|(ip, kept)| (ip, without_ids(&kept.to_string(), DOMAIN)))
        .collect();
    json!({"table": table(sandbox).leases(), "machines": machines, "reservations": reservations})
}

/// When each machine was created.
fn made(sandbox: &Sandbox) -> BTreeMap<String, u64> {
    let machines = sandbox.machines(None).into_iter();
    machines
        .map(|(name, machine)| (name, machine["created_ms"].as_u64().unwrap()))
        .collect()
}

fn set_script(sandbox: &Sandbox, script: &Value) {
    sandbox.edit(|world| world["script"] = script.clone());
}

#[test]
fn scaling_up_harvests_the_new_nodes_and_changes_no_other() {
    let sandbox = lab();
    let (before, made_before) = (table(&sandbox), made(&sandbox));
    let said = sandbox.run(&["scale", "lab", "--workers", "4"]).succeeded();
    assert!(said.stdout.contains("added: worker-2, worker-3"), "{}", said.stdout);
    assert!(
        said.stdout.contains("cluster lab.example.com has 4 workers"),
        "{}",
        said.stdout
    );
    assert!(
        said.stderr.contains("the addresses of 2 throwaway machines"),
        "{}",
        said.stderr
    );
    let after = table(&sandbox);
    assert_eq!(after.nodes[..before.nodes.len()], before.nodes);
    assert_eq!(workers(&after), ["worker-0", "worker-1", "worker-2", "worker-3"]);
    assert_eq!(sandbox.of_pass("lab", "one"), [""; 0]);
    let made_after = made(&sandbox);
    assert!(
        made_before.iter().all(|(name, when)| made_after[name] == *when),
        "an old machine was changed"
    );
    for node in after.of_role(Role::Worker) {
        let kept = sandbox.reservations(Some("lab"));
        let kept = kept.iter().find(|(ip, _)| *ip == node.ip.to_string()).unwrap();
        assert_eq!(kept.1["mac"], node.mac.to_string());
        assert_eq!(kept.1["dns_names"], json!([format!("{}.lab.example.com", node.name)]));
    }
    let again = sandbox.run(&["scale", "lab", "--workers", "4"]).succeeded();
    assert!(!again.stdout.contains("came"), "{}", again.stdout);
    assert_eq!(made(&sandbox), made_after);
}

#[test]
fn scaling_down_removes_the_highest_numbers_and_all_their_objects() {
    let sandbox = lab();
    let original = whole(&sandbox);
    sandbox.run(&["scale", "lab", "--workers", "4"]).succeeded();
    let ignition = sandbox.home().cluster("lab").ignition("worker-3");
    assert!(ignition.exists());
    let said = sandbox.run(&["scale", "lab", "--workers", "2", "--yes"]).succeeded();
    assert!(said.stdout.contains("removed: worker-3, worker-2"), "{}", said.stdout);
    assert_eq!(whole(&sandbox), original);
    assert!(!ignition.exists());
    // The numbers can be used again.
    sandbox.run(&["scale", "lab", "--workers", "3"]).succeeded();
    assert_eq!(workers(&table(&sandbox)), ["worker-0", "worker-1", "worker-2"]);
    let none = sandbox.run(&["scale", "lab", "--workers", "0"]);
    assert_eq!(none.code, Some(2), "{}", none.stderr);
    assert!(none.message().contains("one worker must remain"), "{}", none.stderr);
}

#[test]
fn without_room_on_the_platform_nothing_is_created() {
    let sandbox = lab();
    let before = whole(&sandbox);
    sandbox.edit(|world| world["limits"] = json!({"memory_mib": 3000}));
    let refused = sandbox.run(&["scale", "lab", "--workers", "40"]);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    assert!(
        refused.message().contains("MiB of memory required"),
        "{}",
        refused.stderr
    );
    assert_eq!(whole(&sandbox), before);
}

#[test]
fn deploy_of_a_scaled_cluster_succeeds_if_its_nodes_are_those_of_the_settings() {
    let sandbox = lab();
    // Nothing changes, so the steps of the deployment still describe it.
    sandbox.run(&["scale", "lab", "--workers", "2"]).succeeded();
    let journal = || journal::read(&sandbox.home().cluster("lab").journal()).unwrap();
    assert!(!journal::is_done(&journal(), journal::SCALED));
    sandbox.deploy("lab").succeeded();
    sandbox.run(&["scale", "lab", "--workers", "3"]).succeeded();
    let before = (whole(&sandbox), made(&sandbox));
    let refused = sandbox.deploy("lab");
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    let words = "it has 3 workers, the settings say 2";
    assert!(refused.message().contains(words), "{}", refused.stderr);
    let deployed = ["deploy", "lab.sh", "--rehearse", "--workers", "3", "--format", "json"];
    let deployed = sandbox.run(&deployed).succeeded().stdout;
    let deployed: Value = serde_json::from_str(&deployed).unwrap();
    let nodes = deployed["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 6, "{deployed:#}");
    assert!(nodes.iter().all(|node| node["same"] == true), "{deployed:#}");
    assert_eq!((whole(&sandbox), made(&sandbox)), before);
    sandbox.edit(|world| drop(world["machines"].as_object_mut().unwrap().remove("lab-worker-2")));
    let missing = sandbox.run(&["deploy", "lab.sh", "--rehearse", "--workers", "3"]);
    assert_eq!(missing.code, Some(5), "{}", missing.stderr);
    let hint = "`ocpdeploy node replace lab worker-2` creates it again";
    assert!(missing.message().contains(hint), "{}", missing.stderr);
    sandbox.run(&["destroy", "lab", "--yes"]).succeeded();
    assert_eq!((sandbox.machines(None), sandbox.reservations(None)), (vec![], vec![]));
}

#[test]
fn a_dry_run_shows_the_changes_and_makes_none() {
    let sandbox = lab();
    let journal = || std::fs::read_to_string(sandbox.home().cluster("lab").journal()).unwrap();
    let before = (whole(&sandbox), made(&sandbox), journal());
    let delete = |node: &str| format!("delete  machine  lab-{node}  its node is drained first; all its disks are lost");
    let create = |node: &str| format!("create  machine  lab-{node}");
    for (words, lines) in [
        (
            &["scale", "lab", "--workers", "2"][..],
            vec!["nothing to change in cluster lab.example.com".to_owned()],
        ),
        (&["scale", "lab", "--workers", "1"], vec![delete("worker-1")]),
        (
            &["scale", "lab", "--workers", "4"],
            vec![create("worker-2"), create("worker-3")],
        ),
        (
            &["node", "replace", "lab", "worker-0"],
            vec![delete("worker-0"), format!("{}  with empty disks", create("worker-0"))],
        ),
        (
            &["stop", "lab"],
            ["worker-0", "worker-1", "master-0", "master-1", "master-2"]
                .map(|node| format!("stop    machine  lab-{node}"))
                .to_vec(),
        ),
    ] {
        let shown = sandbox.run(&[words, &["--dry-run"]].concat()).succeeded().stdout;
        let shown = shown
            .lines()
            .map(|line| line.trim_end().trim_end_matches(" -").trim_end());
        let shown: Vec<&str> = shown.filter(|line| !line.starts_with("ACTION")).collect();
        assert_eq!(shown, lines, "{words:?}");
        let json = sandbox
            .run(&[words, &["--dry-run", "--format", "json"]].concat())
            .succeeded();
        let json: Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!(json["dry_run"], true, "{json:#}");
        assert!(
            (whole(&sandbox), made(&sandbox), journal()) == before,
            "{words:?} changed something"
        );
    }
}

#[test]
fn a_plan_of_an_installed_cluster_proposes_commands_that_work() {
    let sandbox = lab();
    let plan = |setting: &str, number: &str| {
        let words = ["plan", "lab.sh", "--rehearse", setting, number];
        sandbox.run(&words).succeeded().stdout
    };
    for (number, node) in [
        ("4", "lab-worker-3  not in the cluster; "),
        ("1", "lab-worker-1  not in the settings; "),
    ] {
        let shown = plan("--workers", number);
        let command = format!("`ocpdeploy scale lab --workers {number}` changes it");
        assert!(shown.contains(node) && shown.contains(&command), "{shown}");
        assert!(!shown.contains("node replace"), "{shown}");
        let words = ["scale", "lab", "--workers", number, "--yes"];
        sandbox.run(&words).succeeded();
        assert!(!plan("--workers", number).contains("differs"), "{number}");
    }
    let fewer = plan("--masters", "1");
    assert!(
        fewer.contains("an installed cluster keeps its master nodes: restore the settings"),
        "{fewer}"
    );
}

#[test]
fn the_name_of_a_cluster_may_include_its_domain_and_is_not_that_of_a_snapshot() {
    let sandbox = lab();
    let status = |name: &str| sandbox.run(&["status", name, "--format", "json"]).succeeded().stdout;
    assert_eq!(status("lab.example.com"), status("lab"));
    sandbox.run(&["verify", "lab.example.com"]).succeeded();
    sandbox
        .run(&["node", "show", "lab.example.com", "worker-0"])
        .succeeded();
    let other = sandbox.run(&["status", "lab.example.org"]);
    assert_eq!(other.code, Some(2), "{}", other.stderr);
    let before = power(&sandbox);
    for verb in ["save", "restore", "delete"] {
        let refused = sandbox.run(&["snapshot", verb, "lab"]);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(refused.message().contains("lab is a cluster"), "{}", refused.stderr);
    }
    assert_eq!(power(&sandbox), before);
    let saved = sandbox.run(&["snapshot", "list", "lab"]).succeeded().stdout;
    assert!(!saved.contains("complete"), "{saved}");
}

#[test]
fn a_deployment_keeps_its_settings_and_shows_what_has_changed_since() {
    let sandbox = Sandbox::new(json!({}));
    let word = "c2VjcmV0";
    let secret = format!("_word={word}\nhttp_proxy=http://me:$_word@proxy:8080\n");
    let write = |lines: &str| sandbox.env("lab", &format!("masters=1\nworkers=1\n{secret}{lines}"));
    let env = write("worker_memory=300\nntp_servers=\"10.0.0.1 10.0.0.2\"");
    // It is recorded before anything is created.
    sandbox.kill_deployment("lab", |sandbox| sandbox.is_within("lab", "pass-one/leases"));
    let kept = std::fs::read_to_string(sandbox.home().cluster("lab").settings()).unwrap();
    assert!(!kept.contains(word), "{kept}");
    sandbox.run(&["deploy", "lab", "--rehearse"]).succeeded();
    let scale = |workers: &str| sandbox.run(&["scale", "lab", "--workers", workers]).succeeded().stderr;
    assert!(!scale("2").contains("deployed"), "nothing has changed");
    write("worker_memory=400\nmtu=1400");
    let said = scale("3");
    let changed =
        "has changed since cluster lab was deployed (mtu, ntp_servers, worker_memory): its former settings are used";
    assert!(said.contains(changed), "{said}");
    let verified = sandbox.run(&["verify", "lab"]).succeeded().stderr;
    assert!(verified.contains(changed), "{verified}");
    let shown = sandbox.run(&["config", "lab", "--format", "json"]).succeeded().stdout;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let of = |name: &str| {
        shown["settings"]
            .as_array()
            .unwrap()
            .iter()
            .find(|it| it["name"] == name)
            .unwrap()
            .clone()
    };
    assert_eq!(of("worker_memory")["value"], "300");
    assert_eq!(
        of("worker_memory")["origin"],
        format!("{} when deployed", env.display())
    );
    let plan = sandbox.run(&["plan", "lab"]).succeeded().stdout;
    assert!(!plan.contains("differs"), "{plan}");
    // The proxy's password is not stored.
    std::fs::remove_file(&env).unwrap();
    let asked = sandbox.run(&["scale", "lab", "--workers", "4"]);
    assert_eq!(asked.code, Some(3), "{}", asked.stderr);
    assert!(asked.message().contains("`http_proxy` is not set"), "{}", asked.stderr);
    let mut given = sandbox.command(&["scale", "lab", "--workers", "4"]);
    let given = given
        .env("OCPDEPLOY_HTTP_PROXY", "http://me:other@proxy:8080")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&given.stderr);
    assert!(given.status.success(), "{said}");
    let words = "the settings that cluster lab was deployed with are used";
    assert!(said.contains("cannot read ") && said.contains(words), "{said}");
    let machines: BTreeMap<_, _> = sandbox.machines(None).into_iter().collect();
    assert_eq!(machines["lab-worker-3"]["memory_mib"], 300);
}

#[test]
fn a_path_that_cannot_be_recorded_is_refused_before_anything_is_created() {
    use std::os::unix::ffi::OsStrExt;
    let sandbox = Sandbox::new(json!({}));
    let env = sandbox.env("lab", LAB);
    let odd = sandbox.path().join(std::ffi::OsStr::from_bytes(b"odd-\xff"));
    std::fs::create_dir(&odd).unwrap();
    let mut deploy = sandbox.command(&["deploy", env.to_str().unwrap(), "--rehearse"]);
    let refused = deploy.current_dir(&odd).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("is not UTF-8"), "{said}");
    assert_eq!(sandbox.machines(None), []);
}

#[test]
fn later_commands_use_the_settings_of_the_deployment() {
    let sandbox = Sandbox::new(json!({}));
    sandbox.env("lab", LAB);
    let deploy = [
        "deploy",
        "lab.sh",
        "--rehearse",
        "--workers",
        "1",
        "--set",
        "worker_memory=777",
    ];
    sandbox.run(&deploy).succeeded();
    sandbox.run(&["scale", "lab", "--workers", "2"]).succeeded();
    let machines: BTreeMap<_, _> = sandbox.machines(None).into_iter().collect();
    assert_eq!(machines["lab-worker-1"]["memory_mib"], 777);
    // Another env file must describe the same cluster.
    sandbox.env("other", LAB);
    let other = sandbox.run(&["scale", "lab", "--workers", "3", "--env", "other.sh"]);
    assert_eq!(other.code, Some(3), "{}", other.stderr);
    assert!(
        other
            .message()
            .contains("the settings describe cluster other.example.com"),
        "{}",
        other.stderr
    );
    let unknown = sandbox.run(&["scale", "ghost", "--workers", "3"]);
    assert_eq!(unknown.code, Some(2), "{}", unknown.stderr);
}

#[test]
fn a_rehearsal_without_an_env_file_ignores_one_that_appears_later() {
    let sandbox = Sandbox::new(json!({}));
    let deploy = [
        "deploy",
        "--rehearse",
        "--backend",
        "sim",
        "--set",
        "sim_state=sim.json",
        "--workers",
        "1",
    ];
    sandbox.run(&deploy).succeeded();
    std::fs::write(sandbox.path().join("env.sh"), "cluster=other\n").unwrap();
    sandbox.run(&["scale", "rehearsal", "--workers", "2"]).succeeded();
}

#[test]
fn a_cluster_that_is_not_installed_is_neither_scaled_nor_stopped() {
    let sandbox = Sandbox::new(json!({}));
    sandbox.env("lab", LAB);
    sandbox.run(&["harvest", "lab.sh", "--rehearse"]).succeeded();
    for command in [
        &["scale", "lab", "--workers", "3", "--env", "lab.sh"][..],
        &["node", "replace", "lab", "worker-0", "--env", "lab.sh"],
        &["stop", "lab"],
        &["start", "lab"],
    ] {
        let refused = sandbox.run(command);
        assert_eq!(refused.code, Some(4), "{}", refused.stderr);
        assert!(refused.message().contains("is not installed yet"), "{}", refused.stderr);
    }
    assert_eq!(sandbox.machines(None), vec![]);
}

#[test]
fn a_node_that_is_replaced_keeps_name_mac_and_address() {
    let sandbox = lab();
    let (before, made_before) = (whole(&sandbox), made(&sandbox));
    for node in ["worker-1", "master-2"] {
        let said = sandbox.run(&["node", "replace", "lab", node, "--yes"]).succeeded();
        assert!(
            said.stdout
                .contains(&format!("{node} of cluster lab.example.com recreated")),
            "{}",
            said.stdout
        );
    }
    assert_eq!(whole(&sandbox), before);
    let renewed: Vec<_> = made(&sandbox)
        .into_iter()
        .filter(|(name, when)| made_before[name] != *when)
        .collect();
    let names: Vec<_> = renewed.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["lab-master-2", "lab-worker-1"]);
    for absent in ["worker-7", "bootstrap", "api"] {
        let refused = sandbox.run(&["node", "replace", absent]);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(
            refused.message().contains("is not a node of the cluster: master-0, "),
            "{}",
            refused.stderr
        );
    }
}

#[test]
fn a_record_with_former_names_of_settings_is_replaced_by_the_env_file() {
    let sandbox = lab();
    let path = sandbox.home().cluster("lab").settings();
    let record = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, record.replacen("\"v\": 3", "\"v\": 2", 1)).unwrap();
    let refused = sandbox.run(&["scale", "lab", "--workers", "3"]);
    assert_eq!(refused.code, Some(3), "{}", refused.stderr);
    for part in [
        "unsupported version 2, expected 3",
        "hint: remove this file, then set the cluster's env file with --env",
    ] {
        assert!(refused.message().contains(part), "{}", refused.stderr);
    }
    std::fs::remove_file(&path).unwrap();
    sandbox
        .run(&["scale", "lab", "--workers", "3", "--env", "lab.sh"])
        .succeeded();
}

#[test]
fn a_removed_bootstrap_is_not_looked_for_on_the_platform() {
    let sandbox = lab();
    for verb in ["show", "console", "ssh"] {
        let refused = sandbox.run(&["node", verb, "lab", "bootstrap"]);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(
            refused
                .message()
                .contains("the bootstrap machine of cluster lab was removed"),
            "{}",
            refused.stderr
        );
    }
}

#[test]
fn an_arbiter_is_kept_when_workers_scale_and_stops_with_the_masters() {
    let sandbox = Sandbox::new(json!({}));
    sandbox.env(
        "lab",
        "masters=2\narbiter=1\nworkers=1\nimage=coreos\nharvest_image=helper",
    );
    sandbox.deploy("lab").succeeded();
    let made_first = made(&sandbox);
    let before = whole(&sandbox);
    for workers in ["3", "1"] {
        sandbox
            .run(&["scale", "lab", "--workers", workers, "--yes"])
            .succeeded();
    }
    assert_eq!((whole(&sandbox), made(&sandbox)), (before.clone(), made_first.clone()));
    sandbox.run(&["stop", "lab"]).succeeded();
    let all = |on: bool| made_first.keys().map(|name| (name.clone(), on)).collect();
    assert_eq!(power(&sandbox), all(false));
    sandbox.run(&["start", "lab"]).succeeded();
    assert_eq!(power(&sandbox), all(true));
    sandbox
        .run(&["node", "replace", "lab", "arbiter-0", "--yes"])
        .succeeded();
    assert_eq!(whole(&sandbox), before);
    assert_ne!(made(&sandbox)["lab-arbiter-0"], made_first["lab-arbiter-0"]);
    sandbox.run(&["destroy", "lab", "--yes"]).succeeded();
    assert_eq!(sandbox.machines(None), vec![]);
}

fn power(sandbox: &Sandbox) -> BTreeMap<String, bool> {
    let machines = sandbox.machines(None).into_iter();
    machines
        .map(|(name, machine)| (name, machine["off"] == json!(false)))
        .collect()
}

#[test]
fn a_stopped_cluster_starts_with_its_addresses() {
    let sandbox = lab();
    let before = whole(&sandbox);
    let said = sandbox.run(&["stop", "lab"]).succeeded();
    assert!(
        said.stdout.contains("cluster lab.example.com is off"),
        "{}",
        said.stdout
    );
    assert!(power(&sandbox).values().all(|on| !on));
    sandbox.run(&["stop", "lab"]).succeeded();
    sandbox.run(&["start", "lab"]).succeeded();
    assert_eq!(whole(&sandbox), before);
    sandbox.run(&["start", "lab"]).succeeded();
    sandbox.run(&["verify", "lab"]).succeeded();
}

#[test]
fn masters_stay_on_until_all_workers_are_off() {
    let sandbox = lab();
    set_script(&sandbox, &json!({"guests": {"lab-worker-1": {"does": "deaf"}}}));
    let late = sandbox.run(&["stop", "lab", "--timeout", "1s"]);
    assert_eq!(late.code, Some(6), "{}", late.stderr);
    assert!(
        late.message().contains("1 machine still on after 1 s: lab-worker-1"),
        "{}",
        late.stderr
    );
    let on: Vec<_> = power(&sandbox)
        .into_iter()
        .filter(|(_, on)| *on)
        .map(|(name, _)| name)
        .collect();
    assert_eq!(on, ["lab-master-0", "lab-master-1", "lab-master-2", "lab-worker-1"]);
    sandbox
        .run(&["stop", "lab", "--timeout", "1s", "--power-off"])
        .succeeded();
    assert!(power(&sandbox).values().all(|on| !on));
}

#[test]
fn a_machine_that_returns_with_another_address_is_reported() {
    let sandbox = lab();
    sandbox.run(&["stop", "lab"]).succeeded();
    set_script(&sandbox, &json!({"guests": {"lab-worker-0": {"does": "moves"}}}));
    let moved = sandbox.run(&["start", "lab"]);
    assert_eq!(moved.code, Some(5), "{}", moved.stderr);
    assert!(
        moved.message().contains("lab-worker-0 started with"),
        "{}",
        moved.stderr
    );
    let verified = sandbox.run(&["verify", "lab"]);
    assert_eq!(verified.code, Some(1));
    assert!(
        verified.stdout.contains("the reservation was not honoured"),
        "{}",
        verified.stdout
    );
}

#[test]
fn verify_tells_each_difference_and_repairs_reservations() {
    let sandbox = lab();
    let clean = sandbox.run(&["verify", "lab"]).succeeded();
    assert!(
        clean
            .stdout
            .starts_with("no differences in 8 entries of the parameter file\n"),
        "{}",
        clean.stdout
    );
    let before = whole(&sandbox);
    let (worker_0, worker_1) = (table(&sandbox).nodes[4].clone(), table(&sandbox).nodes[5].clone());
    sandbox.edit(|world| {
        let kept = world["networks"]["default"]["reservations"].as_object_mut().unwrap();
        kept.remove(&worker_0.ip.to_string()).unwrap();
        let mut moved = kept.remove(&worker_1.ip.to_string()).unwrap();
        moved["mac"] = json!("52:54:00:00:00:99");
        kept.insert("192.168.122.251".to_owned(), moved);
        world["machines"]["lab-master-1"]["off"] = json!(true);
        world["machines"].as_object_mut().unwrap().remove("lab-master-2");
        let mut forgotten = world["machines"]["lab-worker-0"].clone();
        forgotten["nics"] = json!([]);
        forgotten["pass"] = json!("one");
        world["machines"]["lab-harvest-worker-0"] = forgotten;
    });
    let found = sandbox.run(&["verify", "lab"]);
    assert_eq!(found.code, Some(1), "{}", found.stderr);
    let lines: Vec<_> = found
        .stdout
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let (ip_0, mac_0, ip_1, mac_1) = (worker_0.ip, worker_0.mac, worker_1.ip, worker_1.mac);
    assert_eq!(
        lines,
        [
            "NAME WHERE DIFFERENCE".to_owned(),
            "master-1 machine is powered off".to_owned(),
            "master-2 machine does not exist on the platform".to_owned(),
            "worker-0 machine lab-harvest-worker-0 is left over from pass one".to_owned(),
            format!("worker-0 reservation {ip_0} is not reserved for {mac_0}"),
            format!("worker-1 reservation has 192.168.122.251 for 52:54:00:00:00:99, the table has {ip_1} for {mac_1}"),
            "not checked: nodes: a rehearsal has no API".to_owned(),
        ]
    );
    let json = sandbox.run(&["verify", "lab", "--format", "json"]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["differences"][4]["place"], "reservation");
    let repaired = sandbox.run(&["verify", "lab", "--repair"]);
    assert_eq!(repaired.code, Some(1), "machines are not repaired: {}", repaired.stdout);
    assert!(!repaired.stdout.contains(" reservation "), "{}", repaired.stdout);
    assert_eq!(whole(&sandbox)["reservations"], before["reservations"]);
}

/// Commands that must succeed; an interrupted command is repeated until it does.
type Story<'a> = &'a [&'a [&'a str]];

const STORIES: [Story; 3] = [
    &[
        &["scale", "lab", "--workers", "4"],
        &["scale", "lab", "--workers", "1", "--yes"],
    ],
    &[&["node", "replace", "lab", "worker-0", "--yes"]],
    &[&["stop", "lab"], &["start", "lab"]],
];

/// The result of a story without faults.
fn undisturbed(story: Story) -> Value {
    let sandbox = lab();
    for command in story {
        sandbox.run(command).succeeded();
    }
    whole(&sandbox)
}

#[test]
fn killed_at_any_moment_the_same_command_finishes() {
    let slow = json!({"latency_ms": {"create_machine": 20, "delete_machine": 20, "reserve_address": 10, "release_address": 10,
        "list_machines": 4, "stop_machine": 10, "start_machine": 10}, "boot_ms": 20});
    for story in STORIES {
        let wanted = undisturbed(story);
        let sandbox = lab();
        set_script(&sandbox, &slow);
        for command in story {
            let mut lives = 0;
            // Each run may last a little longer, so that it is killed in every part of the command.
            loop {
                lives += 1;
                let (begun, mut child) = (Instant::now(), sandbox.start(command));
                let life = Duration::from_millis(15 * lives);
                while begun.elapsed() < life && child.try_wait().unwrap().is_none() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                child.kill().unwrap();
                let ended = sandbox::outcome(child);
                match ended.code {
                    Some(0) => break,
                    None => {}
                    Some(_) => panic!("{command:?}: {}", ended.stderr),
                }
            }
            assert!(lives > 3, "{command:?} was killed only {lives} times");
        }
        assert_eq!(whole(&sandbox), wanted, "{story:?}");
    }
}

#[test]
fn whichever_call_fails_the_same_command_finishes() {
    let calls = [
        "preflight",
        "network_facts",
        "ensure_image",
        "create_machine",
        "list_machines",
        "delete_machine",
        "start_machine",
        "stop_machine",
        "reserve_address",
        "release_address",
    ];
    let faults = sandbox::each_fails_twice(&calls);
    for story in STORIES {
        let wanted = undisturbed(story);
        let sandbox = lab();
        set_script(&sandbox, &json!({"faults": faults}));
        let (mut failures, mut hit) = (0, 0);
        for command in story {
            loop {
                let ended = sandbox.run(command);
                match ended.code {
                    Some(0) => break,
                    // Most faults are silent, so the call is repeated.
                    Some(5..=7) => failures += 1,
                    _ => panic!("{command:?}: {}", ended.stderr),
                }
                assert!(
                    failures <= faults.len(),
                    "{command:?} never succeeded: {}",
                    ended.stderr
                );
            }
        }
        for fault in sandbox.state()["script"]["faults"].as_array().unwrap() {
            hit += usize::from(fault["seen"].as_u64() >= fault["nth"].as_u64());
        }
        assert!(hit >= 6, "{story:?}: only {hit} calls failed");
        assert_eq!(whole(&sandbox), wanted, "{story:?}");
    }
}

#[test]
fn two_commands_never_work_on_one_cluster() {
    let sandbox = lab();
    set_script(&sandbox, &json!({"latency_ms": {"create_machine": 400}}));
    let first = sandbox.start(&["scale", "lab", "--workers", "3"]);
    let begun = Instant::now();
    while !sandbox.is_within("lab", "scale/create") {
        assert!(begun.elapsed() < Duration::from_secs(30), "it did not start");
        std::thread::sleep(Duration::from_millis(2));
    }
    for command in [
        &["stop", "lab"][..],
        &["verify", "lab"],
        &["scale", "lab", "--workers", "5"],
    ] {
        let refused = sandbox.run(command);
        assert_eq!(refused.code, Some(8), "{}", refused.stderr);
        assert!(refused.message().contains("is locked by"), "{}", refused.stderr);
    }
    sandbox::outcome(first).succeeded();
}

#[test]
fn the_journal_records_day_two_without_secrets() {
    let sandbox = lab();
    sandbox.run(&["scale", "lab", "--workers", "3"]).succeeded();
    let entries = journal::read(&sandbox.home().cluster("lab").journal()).unwrap();
    let steps: Vec<_> = entries.iter().map(|entry| entry.step.as_str()).collect();
    assert!(
        steps.contains(&"join/worker-2/ready") && steps.contains(&"scale/leases"),
        "{steps:?}"
    );
    for name in ["settings.json", "parameters.yaml", "journal.jsonl"] {
        let mode = std::fs::metadata(sandbox.home().cluster("lab").path().join(name))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

/// What `node ssh worker-1` ends with where `ssh` prints its arguments, and this when it is asked for its
/// configuration.
fn ssh(sandbox: &Sandbox, configuration: &str) -> std::process::Output {
    let tools = sandbox.path().join("tools");
    std::fs::create_dir_all(&tools).unwrap();
    let ssh = tools.join("ssh");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = -G ] && {{ echo '{configuration}'; exit; }}\nfor word; do echo \"$word\"; done\nexit 42\n"
    );
    std::fs::write(&ssh, script).unwrap();
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    Command::new(env!("CARGO_BIN_EXE_ocpdeploy"))
        .args(["node", "ssh", "lab", "worker-1"])
        .env("OCPDEPLOY_HOME", sandbox.home().root())
        .env("PATH", format!("{}:/usr/bin:/bin", tools.display()))
        .current_dir(sandbox.path())
        .output()
        .unwrap()
}

#[test]
fn addresses_of_the_simulated_platform_are_never_contacted() {
    let sandbox = lab();
    let kubeconfig = sandbox.home().cluster("lab").kubeconfig();
    std::fs::create_dir_all(kubeconfig.parent().unwrap()).unwrap();
    std::fs::write(
        &kubeconfig,
        "clusters:\n- cluster:\n    server: https://api.lab.example.com:6443\n  name: lab\n",
    )
    .unwrap();
    let refused = ssh(&sandbox, "connecttimeout none");
    assert_eq!(refused.status.code(), Some(2), "ssh was run: {refused:?}");
    // A separate hosts file, in case that the program writes one after all.
    std::fs::write(sandbox.path().join("hosts"), "127.0.0.1 localhost\n").unwrap();
    let program = env!("CARGO_BIN_EXE_ocpdeploy");
    let apply = format!("mount --bind hosts /etc/hosts && exec {program} dns apply lab");
    let dns = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", &apply])
        .env("OCPDEPLOY_HOME", sandbox.home().root())
        .current_dir(sandbox.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&dns.stderr).into_owned();
    match said.contains("unshare") || said.contains("mount:") {
        true => left_out(format!("there is no mount namespace: {said}")),
        false => assert_eq!(dns.status.code(), Some(2), "{said}"),
    }
    let hosts = std::fs::read_to_string(sandbox.path().join("hosts")).unwrap();
    assert_eq!(hosts, "127.0.0.1 localhost\n");
    for arguments in [
        &["kubeconfig", "lab"][..],
        &["export", "hosts", "lab"],
        &["export", "dns", "lab", "--format", "nsupdate"],
        &["export", "haproxy", "lab"],
        &["export", "dhcp", "lab"],
        &["export", "kcli", "lab"],
        &["export", "ansible", "lab"],
    ] {
        let refused = sandbox.run(arguments);
        assert_eq!(refused.code, Some(2), "{arguments:?}: {}", refused.stderr);
        assert_eq!(refused.stdout, "", "{arguments:?}");
        let api = table(&sandbox).api_ip;
        let words = format!("error: cluster lab is on the simulated platform: none of its real machines has {api}\n");
        assert!(refused.stderr.starts_with(&words), "{arguments:?}: {}", refused.stderr);
    }
    // A cluster on the loopback can be contacted.
    sandbox.run(&["kubeconfig", "lab", "--by-name"]).succeeded();
    sandbox.run(&["verify", "lab"]).succeeded();
    let own = lab_on_the_loopback();
    own.run(&["export", "hosts", "lab"]).succeeded();
    let file = own.path().join("lab.hosts");
    std::fs::write(&file, "old").unwrap();
    own.run(&["export", "hosts", "lab", "-o", "lab.hosts"]).succeeded();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_removed_bootstrap_is_not_exported() {
    let sandbox = Sandbox::new(on_the_loopback());
    sandbox.env("lab", LAB);
    let exported = || {
        let bootstrap = table(&sandbox).of_role(Role::Bootstrap).next().unwrap().clone();
        let ends = |c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | ':');
        let is_it = |word: &str| {
            let word = word.trim_end_matches(':').trim_end_matches(":6443");
            word == bootstrap.ip.to_string() || word == bootstrap.mac.to_string()
        };
        ["hosts", "dns", "haproxy", "dhcp", "kcli", "ansible --format inventory"].map(|what| {
            let arguments: Vec<&str> = ["export"].into_iter().chain(what.split(' ')).collect();
            let text = sandbox.run(&arguments).succeeded().stdout;
            text.split(ends).any(is_it)
        })
    };
    sandbox.run(&["harvest", "lab.sh", "--rehearse"]).succeeded();
    assert_eq!(exported(), [true; 6]);
    sandbox.deploy("lab").succeeded();
    assert_eq!(exported(), [false; 6]);
}

#[test]
fn no_hint_suggests_destroying_a_complete_cluster() {
    let sandbox = lab();
    let before = (
        whole(&sandbox),
        std::fs::read(sandbox.home().cluster("lab").known()).unwrap(),
    );
    for (changes, words, hint) in [
        (
            &["--workers", "5"][..],
            "it has 2 workers, the settings say 5",
            "hint: `ocpdeploy scale lab --workers 5`\n",
        ),
        (
            &["--workers", "1"],
            "it has 2 workers, the settings say 1",
            "hint: `ocpdeploy scale lab --workers 1`\n",
        ),
        (
            &["--masters", "5"],
            "it has 3 masters, the settings say 5",
            "hint: restore the settings.",
        ),
        (
            &["--set", "master_memory=20000"],
            "its masters have ",
            "`ocpdeploy node replace lab NODE --env ENV`",
        ),
        (&["--harvest"], "its addresses are in use", "hint: omit `--harvest`"),
        (
            &["--network", "other"],
            "it was harvested on network default",
            "hint: restore the settings.",
        ),
    ] {
        let refused = sandbox.run(&[&["deploy", "lab.sh", "--rehearse"][..], changes].concat());
        assert_eq!(refused.code, Some(2), "{changes:?}: {}", refused.stderr);
        let message = refused.message();
        let begin = match changes {
            ["--harvest"] => "error: cluster lab is installed: ",
            _ => "error: cluster lab is installed, and the settings differ from it: ",
        };
        assert!(
            message.starts_with(begin) && message.contains(words),
            "{changes:?}: {message}"
        );
        assert!(
            message.contains(hint) && !message.contains("destroy"),
            "{changes:?}: {message}"
        );
        if !changes.contains(&"--harvest") {
            let check = sandbox.run(&[&["check", "lab.sh", "--rehearse"][..], changes].concat());
            assert_eq!(check.code, Some(4), "{changes:?}: {}", check.stdout);
            assert!(check.stdout.contains(words), "{changes:?}: {}", check.stdout);
        }
        let now = (
            whole(&sandbox),
            std::fs::read(sandbox.home().cluster("lab").known()).unwrap(),
        );
        assert_eq!(now, before, "{changes:?}");
    }
    // The command in the hint works.
    sandbox.run(&["scale", "lab", "--workers", "5"]).succeeded();
    assert_eq!(workers(&table(&sandbox)).len(), 5);
}

#[test]
fn ssh_runs_the_users_ssh_and_accepts_node_names() {
    let sandbox = lab_on_the_loopback();
    let output = ssh(&sandbox, "connecttimeout none");
    assert_eq!(output.status.code(), Some(42), "the exit code is that of ssh");
    let said = String::from_utf8(output.stdout).unwrap();
    let ip = table(&sandbox).nodes[5].ip;
    assert!(said.ends_with(&format!("core@{ip}\n")), "{said}");
    assert!(said.contains("HostKeyAlias=worker-1.lab.example.com\n"), "{said}");
    assert!(
        said.contains("\nConnectTimeout=10\n"),
        "a removed node is not waited for: {said}"
    );
    let said = String::from_utf8(ssh(&sandbox, "connecttimeout 60").stdout).unwrap();
    assert!(
        !said.contains("ConnectTimeout"),
        "the user's configuration has precedence: {said}"
    );
    let absent = sandbox.run(&["node", "ssh", "lab", "worker-9"]);
    assert_eq!(absent.code, Some(2), "{}", absent.stderr);
}

#[test]
fn a_console_is_shown_and_followed() {
    let sandbox = lab();
    let said = sandbox.run(&["node", "console", "worker-1"]).succeeded();
    assert!(said.stdout.contains("lab-worker-1 starts"), "{}", said.stdout);
    let absent = sandbox.run(&["node", "console", "worker-9"]);
    assert_eq!(absent.code, Some(2), "{}", absent.stderr);
}

#[test]
fn logs_are_written_without_those_that_are_missing() {
    let sandbox = lab();
    sandbox.edit(|world| _ = world["machines"].as_object_mut().unwrap().remove("lab-worker-1"));
    let said = sandbox.run(&["logs", "lab", "-o", "logs"]).succeeded().stdout;
    assert_eq!(
        said,
        "not fetched:\n  console of lab-worker-1: the platform does not have this machine\n  journals: the guests of a \
         rehearsal have no SSH server\nlogs written to logs\n"
    );
    let consoles = std::fs::read_dir(sandbox.path().join("logs/consoles")).unwrap();
    assert_eq!(consoles.count(), 4);
    sandbox.run(&["logs", "worker-0", "-o", "one"]).succeeded();
    let console = std::fs::read_to_string(sandbox.path().join("one/consoles/lab-worker-0.txt")).unwrap();
    assert!(console.contains("lab-worker-0 starts"), "{console}");
}

#[test]
fn the_name_of_a_node_is_enough_if_only_one_cluster_has_it() {
    let sandbox = lab();
    sandbox.env("other", "masters=1\nworkers=1\nimage=coreos\nharvest_image=helper");
    sandbox.deploy("other").succeeded();
    let said = sandbox.run(&["node", "console", "worker-1"]).succeeded();
    assert!(said.stdout.contains("lab-worker-1 starts"), "{}", said.stdout);
    let of_both = sandbox.run(&["node", "ssh", "worker-0"]);
    assert_eq!(of_both.code, Some(2), "{}", of_both.stderr);
    let words = "several clusters have a node worker-0: lab, other";
    assert!(of_both.stderr.contains(words), "{}", of_both.stderr);
    // What deletes a machine always needs the cluster's name.
    let replace = sandbox.run(&["node", "replace", "worker-1"]);
    assert!(
        replace.stderr.contains("there are several clusters"),
        "{}",
        replace.stderr
    );
}

fn kubeconfig(sandbox: &Sandbox, arguments: &[&str]) -> Outcome {
    sandbox.run(&[&["kubeconfig", "lab"], arguments].concat())
}

#[test]
fn the_kubeconfig_points_to_the_vip_and_is_private() {
    let sandbox = lab_on_the_loopback();
    let none = kubeconfig(&sandbox, &[]);
    assert_eq!(none.code, Some(4), "{}", none.stderr);
    assert!(none.stderr.contains("a rehearsal has no API"), "{}", none.stderr);
    let path = sandbox.home().cluster("lab").kubeconfig();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let text = "clusters:\n- cluster:\n    server: https://api.lab.example.com:6443\n  name: lab\n";
    std::fs::write(path, text).unwrap();
    assert_eq!(kubeconfig(&sandbox, &["--by-name"]).succeeded().stdout, text);
    kubeconfig(&sandbox, &["-o", "mine"]).succeeded();
    let mine = sandbox.path().join("mine");
    assert_eq!(std::fs::metadata(&mine).unwrap().permissions().mode() & 0o777, 0o600);
    let mine = std::fs::read_to_string(mine).unwrap();
    assert!(
        mine.contains(&format!("https://{}:6443", table(&sandbox).api_ip)),
        "{mine}"
    );
    assert!(mine.contains("\"tls-server-name\": \"api.lab.example.com\""), "{mine}");
}

#[test]
fn destroy_reports_and_removes_the_names_on_this_computer() {
    let sandbox = lab();
    let root = sandbox.path().join("root");
    std::fs::create_dir_all(root.join("etc")).unwrap();
    std::fs::write(root.join("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
    let root_flag = ["--root", root.to_str().unwrap()];
    sandbox
        .run(&[&["dns", "apply", "lab"][..], &root_flag].concat())
        .succeeded();
    let shown = sandbox
        .run(&[&["destroy", "lab", "--dry-run"][..], &root_flag].concat())
        .succeeded();
    let hosts = root.join("etc/hosts").display().to_string();
    let lines: Vec<_> = shown
        .stdout
        .lines()
        .filter(|line| line.starts_with("client dns"))
        .collect();
    assert!(
        !lines.is_empty() && lines.iter().all(|line| line.contains(&hosts)),
        "{}",
        shown.stdout
    );
    assert!(
        lines.iter().any(|line| line.contains(" api.lab.example.com")),
        "{lines:?}"
    );
    sandbox
        .run(&[&["destroy", "lab", "--yes"][..], &root_flag].concat())
        .succeeded();
    assert_eq!(
        std::fs::read_to_string(root.join("etc/hosts")).unwrap(),
        "127.0.0.1 localhost\n"
    );
}
