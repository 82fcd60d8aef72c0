//! Whole runs of the program on the simulated platform: both passes, interruptions and failures.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::addresses::ipv4;
use crate::support::cluster::without_ids;
use crate::support::sandbox::{Outcome, Sandbox, outcome};
use ocpdeploy::digest;
use ocpdeploy::ignition::contents::{self, Contents};
use ocpdeploy::ignition::origins::merge_layers;
use ocpdeploy::ignition::unpack::unpack;
use serde_json::{Value, json};

/// The nodes of the default profile; the bootstrap is deleted at the end.
pub const NODES: [&str; 6] = ["bootstrap", "master-0", "master-1", "master-2", "worker-0", "worker-1"];

fn lab(world: Value) -> Sandbox {
    let sandbox = Sandbox::new(world);
    sandbox.env("lab", "");
    sandbox
}

/// A deployed cluster as it must be, whatever happened on the way.
pub fn is_deployed(sandbox: &Sandbox, cluster: &str) {
    let parameters = sandbox.parameters(cluster).expect("a parameter file");
    assert_eq!(sandbox.of_pass(cluster, "one"), [""; 0], "machines of pass one remain");
    let machines: BTreeMap<String, Value> = sandbox.machines(Some(cluster)).into_iter().collect();
    let names: Vec<&str> = machines
        .values()
        .map(|machine| machine["node"].as_str().unwrap())
        .collect();
    assert_eq!(names, NODES[1..], "{cluster} has other machines");
    for node in &parameters.nodes {
        let Some(machine) = machines.get(&format!("{cluster}-{}", node.name)) else {
            continue;
        };
        let nic = &machine["nics"][0];
        assert_eq!(nic["mac"], node.mac.to_string());
        assert_eq!(
            nic["addresses"],
            json!([node.ip.to_string()]),
            "{} has moved",
            node.name
        );
        let config = sandbox.home().cluster(cluster).ignition(node.name.as_str());
        let written = std::fs::read(config).unwrap();
        assert_eq!(machine["payload"]["kind"], "ignition");
        assert_eq!(
            machine["payload"]["sha512"],
            digest::sha512(&written),
            "{} got another config",
            node.name
        );
    }
    let held: BTreeMap<String, String> = sandbox
        .reservations(Some(cluster))
        .into_iter()
        .map(|(ip, kept)| (kept["name"].as_str().unwrap().to_owned(), ip))
        .collect();
    // The bootstrap's reservation was deleted with it.
    let planned = parameters
        .leases()
        .into_iter()
        .filter(|lease| lease.name.as_str() != "bootstrap")
        .map(|lease| (lease.name.to_string(), lease.ip.to_string()));
    assert_eq!(held, planned.collect());
}

/// The platform as it is, without times and digests, which differ from run to run.
fn essence(sandbox: &Sandbox) -> Value {
    let mut state = sandbox.state();
    let object = |value: &mut Value| value.as_object_mut().cloned().unwrap_or_default();
    for (name, mut machine) in object(&mut state["machines"]) {
        for key in ["created_ms", "boots_ms", "fingerprint", "payload", "creation"] {
            machine.as_object_mut().unwrap().remove(key);
        }
        state["machines"][name] = machine;
    }
    for (name, _) in object(&mut state["networks"]) {
        for (_, lease) in state["networks"][name]["leases"].as_object_mut().unwrap() {
            *lease = lease["mac"].clone();
        }
    }
    state["script"] = Value::Null;
    state["limits"] = Value::Null;
    serde_json::from_str(&without_ids(&state.to_string(), "lab.example.com")).unwrap()
}

#[test]
fn a_deployment_succeeds() {
    let sandbox = lab(json!({}));
    let outcome = sandbox.deploy("lab").succeeded();
    is_deployed(&sandbox, "lab");
    insta::with_settings!({filters => FILTERS}, { insta::assert_snapshot!(outcome.stdout) });
}

/// What differs from run to run: passwords are chosen at random, and a wait may last longer.
const FILTERS: [(&str, &str); 2] = [(r"(?m) [0-9a-f]{8}$", " <sha512>"), (r"after \d+ s", "after <n> s")];

#[test]
fn a_second_run_finds_all_done() {
    let sandbox = lab(json!({}));
    sandbox.deploy("lab").succeeded();
    let (state, table) = (sandbox.state(), sandbox.parameters("lab"));
    let second = sandbox.deploy("lab").succeeded();
    assert!(second.stderr.contains("pass one: skipped"), "{}", second.stderr);
    assert_eq!(sandbox.state(), state);
    assert_eq!(sandbox.parameters("lab"), table);
}

#[test]
fn with_the_users_dhcp_server_no_address_is_reserved() {
    let sandbox = lab(json!({}));
    sandbox.env("lab", "masters=1\nworkers=0\ndhcp=user");
    let outcome = sandbox.deploy("lab").succeeded();
    assert_eq!(sandbox.reservations(Some("lab")), []);
    assert!(!outcome.stdout.contains("held by nobody"), "{}", outcome.stdout);
}

#[test]
fn addresses_outlive_the_cluster_when_they_are_kept() {
    let sandbox = lab(json!({}));
    sandbox.deploy("lab").succeeded();
    let table = sandbox.parameters("lab");
    sandbox
        .run(&["destroy", "lab", "--yes", "--keep-addresses"])
        .succeeded();
    assert_eq!(sandbox.machines(None), []);
    // After a long time: all leases have expired, only the reservations keep the addresses.
    sandbox.edit(|world| world["networks"]["default"]["leases"] = json!({}));
    let again = sandbox.deploy("lab").succeeded();
    assert!(again.stderr.contains("pass one: skipped"), "{}", again.stderr);
    assert_eq!(sandbox.parameters("lab"), table);
    is_deployed(&sandbox, "lab");
}

/// Each is killed (SIGKILL) at its moment, then run again.
fn survives(latency: Value, boot_ms: u64, moment: impl Fn(&Sandbox) -> bool) {
    let untouched = lab(json!({}));
    untouched.deploy("lab").succeeded();

    let script = json!({"boot_ms": boot_ms, "latency_ms": latency});
    let sandbox = lab(json!({"limits": {"concurrency": 2}, "script": script}));
    sandbox.kill_deployment("lab", moment);
    sandbox.edit(|world| world["script"] = json!({}));
    sandbox.deploy("lab").succeeded();
    is_deployed(&sandbox, "lab");
    assert_eq!(essence(&sandbox), essence(&untouched));
}

#[test]
fn killed_while_pass_one_makes_machines() {
    survives(json!({"create_machine": 100}), 30, |sandbox| {
        let made = sandbox.of_pass("lab", "one").len();
        (3..8).contains(&made) && sandbox.is_within("lab", "pass-one/create")
    });
}

#[test]
fn killed_while_pass_one_waits_for_addresses() {
    survives(json!({}), 1000, |sandbox| sandbox.is_within("lab", "pass-one/leases"));
}

#[test]
fn killed_while_addresses_are_reserved() {
    survives(json!({"reserve_address": 100}), 30, |sandbox| {
        (2..7).contains(&sandbox.reservations(Some("lab")).len())
    });
}

#[test]
fn killed_while_machines_of_pass_one_are_deleted() {
    survives(json!({"delete_machine": 100}), 30, |sandbox| {
        sandbox.parameters("lab").is_some() && (1..6).contains(&sandbox.of_pass("lab", "one").len())
    });
}

#[test]
fn killed_while_pass_two_makes_machines() {
    survives(json!({"create_machine": 100}), 30, |sandbox| {
        (2..5).contains(&sandbox.of_pass("lab", "two").len())
    });
}

#[test]
fn killed_while_pass_two_boots() {
    survives(json!({}), 600, |sandbox| sandbox.of_pass("lab", "two").len() == 6);
}

#[test]
fn killed_while_the_bootstrap_is_removed() {
    survives(json!({"delete_machine": 400}), 30, |sandbox| {
        sandbox.is_within("lab", "bootstrap-removed")
    });
}

const CLUSTERS: [&str; 3] = ["lab", "lab-2", "blab"];

/// All three in parallel, each in its own process.
fn three_at_once(sandbox: &Sandbox) {
    let children: Vec<_> = CLUSTERS
        .iter()
        .map(|cluster| {
            sandbox.env(cluster, "");
            sandbox.start(&["deploy", &format!("{cluster}.sh"), "--rehearse"])
        })
        .collect();
    for child in children {
        outcome(child).succeeded();
    }
}

#[test]
fn three_clusters_at_once_share_nothing() {
    let sandbox = Sandbox::new(json!({}));
    three_at_once(&sandbox);
    let mut taken = BTreeSet::new();
    for cluster in CLUSTERS {
        is_deployed(&sandbox, cluster);
        let parameters = sandbox.parameters(cluster).unwrap();
        let ids = [parameters.virtual_router_id, parameters.ingress_virtual_router_id];
        let mut mine: Vec<String> = ids.iter().map(|id| format!("VRID {id}")).collect();
        for lease in parameters.leases() {
            mine.extend([lease.mac.to_string(), lease.ip.to_string()]);
        }
        for (_, kept) in sandbox.reservations(Some(cluster)) {
            let names = kept["dns_names"].as_array().unwrap();
            mine.extend(names.iter().map(|name| name.as_str().unwrap().to_owned()));
        }
        for thing in mine {
            assert!(
                taken.insert(thing.clone()),
                "{thing} is used twice, the second time by {cluster}"
            );
        }
    }
    assert_eq!(sandbox.machines(None).len(), 15);
}

/// All data of a cluster on the platform and in its folder, byte for byte.
fn belongings(sandbox: &Sandbox, cluster: &str) -> (String, BTreeMap<String, Vec<u8>>) {
    let on_platform = json!([sandbox.machines(Some(cluster)), sandbox.reservations(Some(cluster))]);
    let mut files = BTreeMap::new();
    let mut folders = vec![sandbox.home().cluster(cluster).path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.display().to_string(), std::fs::read(&path).unwrap());
            }
        }
    }
    (on_platform.to_string(), files)
}

#[test]
fn destroying_one_cluster_leaves_the_others_as_they_were() {
    let strangers = json!({"foreign_machines": {"lab-master-9": {"macs": ["52:54:00:00:00:99"]}}});
    let sandbox = Sandbox::new(strangers.clone());
    three_at_once(&sandbox);
    let mut left: Vec<&str> = CLUSTERS.to_vec();
    while let Some(cluster) = left.pop() {
        let before: Vec<_> = left.iter().map(|other| belongings(&sandbox, other)).collect();
        let shown = sandbox.run(&["destroy", cluster, "--dry-run"]).succeeded();
        for (name, _) in sandbox.machines(Some(cluster)) {
            assert!(shown.stdout.contains(&name), "{name} is not shown:\n{}", shown.stdout);
        }
        sandbox.run(&["destroy", cluster, "--yes"]).succeeded();
        assert_eq!(sandbox.machines(Some(cluster)), []);
        assert_eq!(sandbox.reservations(Some(cluster)), []);
        assert!(!sandbox.home().cluster(cluster).exists());
        let after: Vec<_> = left.iter().map(|other| belongings(&sandbox, other)).collect();
        assert!(before == after, "destroying {cluster} changed something of {left:?}");
    }
    let state = sandbox.state();
    assert_eq!(state["machines"], json!({}));
    assert_eq!(sandbox.reservations(None), []);
    assert_eq!(state["uploads"], json!({}));
    assert_eq!(state["foreign_machines"], strangers["foreign_machines"]);
}

#[test]
fn a_cluster_in_use_is_not_deployed_twice() {
    let sandbox = lab(json!({"script": {"latency_ms": {"create_machine": 1500}}}));
    let first = sandbox.start(&["deploy", "lab.sh", "--rehearse"]);
    let pid = first.id().to_string();
    let begin = std::time::Instant::now();
    while !sandbox.is_within("lab", "pass-one/create") {
        assert!(begin.elapsed().as_secs() < 60);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let second = sandbox.deploy("lab");
    assert_eq!(second.code, Some(8), "{}", second.stderr);
    let message = second.message();
    assert!(
        message.contains("cluster lab is locked by") && message.contains(&pid),
        "{message}"
    );
    outcome(first).succeeded();
    is_deployed(&sandbox, "lab");
}

/// A run with one master and one worker that must fail; its exit code and message.
fn failure(sandbox: &Sandbox) -> (Option<i32>, String) {
    sandbox.env(
        "lab",
        "masters=1\nworkers=1\nharvest_timeout=1s\naddress_timeout=1s\nplatform_timeout=0s",
    );
    let outcome: Outcome = sandbox.deploy("lab");
    (
        outcome.code,
        outcome
            .message()
            .replace(&sandbox.path().display().to_string(), "<place>"),
    )
}

/// The run must fail with the message of the snapshot, exit code first.
#[track_caller]
fn fails_with_words(snapshot: &str, sandbox: &Sandbox) {
    let (code, message) = failure(sandbox);
    let text = format!("exit code {}\n{message}", code.unwrap_or(-1));
    insta::with_settings!({filters => FILTERS}, { insta::assert_snapshot!(snapshot, text) });
}

#[test]
fn a_node_that_moves_where_addresses_cannot_be_reserved() {
    let sandbox = Sandbox::new(json!({"limits": {"reserves_addresses": false}}));
    sandbox.env("lab", "masters=1\nworkers=1");
    sandbox.run(&["harvest", "lab.sh", "--rehearse"]).succeeded();
    let parameters = sandbox.parameters("lab").unwrap();
    let worker = parameters
        .nodes
        .iter()
        .find(|node| node.name.as_str() == "worker-0")
        .unwrap();
    // Between the passes, another machine takes the address.
    sandbox.edit(|world| {
        world["networks"]["default"]["leases"]
            .as_object_mut()
            .unwrap()
            .remove(&worker.ip.to_string());
        world["networks"]["default"]["squatters"] = json!([worker.ip.to_string()]);
    });
    fails_with_words("a_node_that_moves_where_addresses_cannot_be_reserved", &sandbox);
}

#[test]
fn what_the_checks_find_ends_a_run_before_anything_is_made() {
    let small = json!({"cidr": "10.9.0.0/24", "gateway": "10.9.0.1", "dhcp_from": "10.9.0.2", "dhcp_to": "10.9.0.4"});
    for (snapshot, world) in [
        (
            "a_network_with_too_few_addresses",
            json!({"networks": {"default": small}}),
        ),
        (
            "a_name_of_another_owner",
            json!({"foreign_machines": {"lab-master-0": {}}}),
        ),
        ("a_network_that_does_not_exist", json!({"networks": {}})),
    ] {
        let sandbox = Sandbox::new(world);
        fails_with_words(snapshot, &sandbox);
        assert_eq!(sandbox.machines(None), [], "{snapshot}: something was created");
    }
}

#[test]
fn a_late_guest_is_waited_for() {
    let sandbox = lab(
        json!({"script": {"guests": {"lab-harvest-worker-0": {"late_ms": 700}, "lab-master-1": {"late_ms": 700}}}}),
    );
    sandbox.deploy("lab").succeeded();
    is_deployed(&sandbox, "lab");
}

/// A guest that shuts itself down after this many starts.
fn dying(name: &str, starts: u32) -> Sandbox {
    lab(json!({"script": {"boot_ms": 0, "guests": {name: {"dies": starts}}}}))
}

#[test]
fn a_machine_that_goes_down_is_started_again_and_reported() {
    for name in ["lab-harvest-worker-0", "lab-master-1"] {
        let sandbox = dying(name, 2);
        let outcome = sandbox.deploy("lab").succeeded();
        is_deployed(&sandbox, "lab");
        for words in ["(2 of 3)", "(3 of 3)"] {
            let told = format!("{name} stopped and is started again {words}");
            assert!(outcome.stderr.contains(&told), "{told}: {}", outcome.stderr);
        }
    }
}

#[test]
fn a_machine_that_is_not_to_be_started_again() {
    let sandbox = dying("lab-harvest-worker-0", 1);
    sandbox.env("lab", "restart_limit=0");
    let outcome: Outcome = sandbox.deploy("lab");
    let text = format!("exit code {}\n{}", outcome.code.unwrap_or(-1), outcome.message());
    insta::with_settings!({filters => FILTERS}, { insta::assert_snapshot!(text) });
    sandbox.env("lab", "restart_limit=1");
    sandbox.deploy("lab").succeeded();
}

#[test]
fn a_machine_is_shown_as_the_platform_describes_it() {
    let sandbox = lab(json!({}));
    sandbox.deploy("lab").succeeded();
    let shown = sandbox
        .run(&["node", "show", "master-0", "--format", "json"])
        .succeeded();
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(shown["dynamic"]["status"], "running", "{shown}");
    let form = shown["platform_form"]["text"].as_str().unwrap_or_default();
    let form: Value = serde_json::from_str(form).unwrap_or_else(|_| panic!("{shown}"));
    assert_eq!(form["role"], "master");
}

#[test]
fn an_unreachable_platform_interrupts_a_run() {
    let sandbox = Sandbox::new(json!({"script": {"faults": [
        {"call": "create_machine", "about": "lab-worker-0", "what": "unreachable"},
    ]}}));
    fails_with_words("an_unreachable_platform_interrupts_a_run", &sandbox);
    sandbox.deploy("lab").succeeded();
    assert_eq!(sandbox.of_pass("lab", "one"), [""; 0]);
    assert_eq!(sandbox.state()["script"]["faults"][0]["seen"], 2);
}

#[test]
fn a_lost_response_interrupts_a_run() {
    let sandbox = Sandbox::new(json!({"script": {"faults": [
        {"call": "create_machine", "about": "lab-harvest-master-0", "what": "timeout_after"},
        {"call": "delete_machine", "about": "lab-harvest-master-0", "what": "timeout_after"},
        {"call": "delete_remaining", "what": "timeout_after"},
    ]}}));
    fails_with_words("a_lost_response_interrupts_a_run", &sandbox);
    assert_ne!(sandbox.deploy("lab").code, Some(0), "the lost answer of the deletion");
    sandbox.deploy("lab").succeeded();
    // The platform timeout in the settings is zero, also for `destroy`.
    let lost = sandbox.run(&["destroy", "lab", "--yes"]);
    assert_eq!(lost.code, Some(6), "{}", lost.stderr);
    sandbox.run(&["destroy", "lab", "--yes"]).succeeded();
    assert_eq!(sandbox.machines(None), []);
    assert_eq!(sandbox.reservations(None), []);
    let seen: Vec<_> = sandbox.state()["script"]["faults"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["seen"].clone())
        .collect();
    assert!(seen.iter().all(|seen| seen.as_u64() > Some(0)), "{seen:?}");
}

#[test]
fn both_virtual_ips_may_be_one_address() {
    let sandbox = lab(json!({}));
    sandbox.env("lab", "api_ip=192.168.122.9\ningress_ip=192.168.122.9");
    sandbox.deploy("lab").succeeded();
    let table = sandbox.parameters("lab").expect("a parameter file");
    assert_eq!(table.api_ip, table.ingress_ip);
    assert_ne!(table.virtual_router_id, table.ingress_virtual_router_id);
    let names = |kept: &Value| kept["dns_names"].as_array().map_or(0, Vec::len);
    let held: Vec<_> = sandbox
        .reservations(Some("lab"))
        .into_iter()
        .filter(|(ip, _)| ip == "192.168.122.9")
        .collect();
    assert_eq!(held.len(), 1);
    assert_eq!(names(&held[0].1), 4, "api, api-int, console and oauth: {}", held[0].1);
    // One VRRP instance announces it, with one id.
    for arguments in [["plan", "lab.sh", "--rehearse"].as_slice(), &["status", "lab"]] {
        let shown = sandbox.run(arguments).succeeded().stdout;
        let ids: Vec<&str> = shown
            .lines()
            .filter(|line| line.contains(" 192.168.122.9 "))
            .filter_map(|line| line.split_whitespace().last())
            .collect();
        let id = table.virtual_router_id.to_string();
        assert_eq!(ids, [id.as_str(), id.as_str()], "{shown}");
    }
}

#[test]
fn each_run_is_recorded_whatever_its_process_id() {
    let sandbox = lab(json!({}));
    sandbox.deploy("lab").succeeded();
    let journal = ocpdeploy::state::journal::read(&sandbox.home().cluster("lab").journal()).unwrap();
    let run = journal
        .iter()
        .find(|entry| entry.is_note() && entry.step == "run")
        .unwrap();
    // In a container, all processes have the same id, and a record is written again only if it changes.
    let (_, begun): (u32, jiff::Timestamp) = serde_json::from_value(run.output.clone()).unwrap();
    assert!(begun <= run.time);
}

#[test]
fn earlier_deployments_tell_how_long_the_next_one_takes() {
    const WAIT: &str = "bootstrap-complete: waiting for the control plane (about ";
    let sandbox = lab(json!({}));
    let plan = |arguments: &[&str]| {
        let arguments = [&["plan", "lab.sh", "--rehearse"], arguments].concat();
        sandbox.run(&arguments).succeeded().stdout
    };
    assert!(!plan(&[]).contains("takes about"));
    let first = sandbox.deploy("lab").succeeded();
    assert!(!first.stderr.contains("(about "), "{}", first.stderr);
    // An installed cluster has no estimate, and a repetition is not a deployment.
    assert!(!plan(&[]).contains("takes about"));
    sandbox.deploy("lab").succeeded();
    sandbox.run(&["destroy", "lab", "--yes"]).succeeded();
    let takes = plan(&[]);
    let like = ", like 1 deployment of 5 nodes on sim\n";
    assert!(takes.contains("\ntakes about ") && takes.contains(like), "{takes}");
    let json: Value = serde_json::from_str(&plan(&["--format", "json"])).unwrap();
    assert_eq!(json["expected"]["deployments"], 1, "{json}");
    assert!(json["expected"]["seconds"].as_u64() > Some(0), "{json}");
    let phases = json["expected"]["phases"].as_array().unwrap().iter();
    let phases: Vec<_> = phases.map(|phase| phase["phase"].as_str().unwrap()).collect();
    assert_eq!(phases, ["pass one", "pass two", "bootstrap", "install"]);
    assert_eq!(
        json["expected"]["phases"][1]["best_seconds"],
        json["expected"]["phases"][1]["seconds"]
    );
    assert!(takes.contains("\nPHASE      USUALLY"), "{takes}");
    let second = sandbox.deploy("lab").succeeded();
    for told in [
        WAIT,
        "throwaway machines (about ",
        "creating 6 machines (about ",
        "install-complete: waiting for the cluster operators (about ",
    ] {
        assert!(second.stderr.contains(told), "no `{told}` in {}", second.stderr);
    }
    // Nothing depends on the file.
    std::fs::write(sandbox.home().root().join("durations.json"), "{").unwrap();
    sandbox.run(&["destroy", "lab", "--yes"]).succeeded();
    assert!(!plan(&[]).contains("takes about"));
    sandbox.deploy("lab").succeeded();
}

#[test]
fn a_vrrp_id_of_another_cluster_is_refused_before_anything_is_made() {
    let sandbox = lab(json!({}));
    sandbox.deploy("lab").succeeded();
    let taken = sandbox.parameters("lab").expect("a parameter file").virtual_router_id;
    sandbox.env("other", &format!("api_virtual_router_id={taken}"));
    let before = sandbox.state();
    let refused = sandbox.deploy("other");
    assert_eq!(refused.code, Some(4));
    assert!(refused.message().contains(&format!(
        "virtual_router_id {taken} is already used by api of cluster lab"
    )));
    assert_eq!(sandbox.state(), before);
    assert!(!sandbox.home().cluster("other").exists());
}

#[test]
fn a_table_edited_by_hand_is_refused_where_it_takes_from_another_cluster() {
    let sandbox = lab(json!({}));
    sandbox.env("lab", "");
    sandbox.env("other", "");
    sandbox.deploy("lab").succeeded();
    sandbox.deploy("other").succeeded();
    let theirs = sandbox.parameters("lab").expect("a parameter file");
    let ours = sandbox.parameters("other").expect("a parameter file");
    let file = sandbox.home().cluster("other").parameters();
    let table = std::fs::read_to_string(&file).unwrap();
    let edits = [
        (
            format!("\nvirtual_router_id: {}", ours.virtual_router_id),
            format!("\nvirtual_router_id: {}", theirs.virtual_router_id),
            format!(
                "virtual_router_id {} is already used by api of cluster lab",
                theirs.virtual_router_id
            ),
        ),
        (
            format!("api_ip: '{}'", ours.api_ip),
            format!("api_ip: '{}'", theirs.nodes[1].ip),
            format!("api {} is already used by master-0 of cluster lab", theirs.nodes[1].ip),
        ),
    ];
    for (from, to, words) in edits {
        assert_eq!(table.matches(&from).count(), 1, "{from} in {table}");
        std::fs::write(&file, table.replace(&from, &to)).unwrap();
        let before = sandbox.state();
        let refused = sandbox.deploy("other");
        assert_eq!(refused.code, Some(4), "{}", refused.message());
        assert!(refused.message().contains(&words), "{}", refused.message());
        assert_eq!(sandbox.state(), before, "nothing was created");
    }
}

#[test]
fn addresses_can_be_reserved_without_a_boot() {
    let sandbox = lab(json!({}));
    sandbox.env("lab", "harvest=reserve");
    let run = sandbox.deploy("lab").succeeded();
    assert!(!run.stderr.contains("-harvest-"), "{}", run.stderr);
    is_deployed(&sandbox, "lab");
    // On the same network, the address that a node got is that of a VIP.
    let first = sandbox.parameters("lab").unwrap().nodes[0].ip;
    let sandbox = lab(json!({}));
    sandbox.env("lab", &format!("harvest=reserve\napi_ip={first}"));
    sandbox.deploy("lab").succeeded();
    is_deployed(&sandbox, "lab");
    let table = sandbox.parameters("lab").unwrap();
    assert!(table.nodes.iter().all(|node| node.ip != first), "{:?}", table.nodes);
}

#[test]
fn a_table_in_the_env_file_needs_no_harvest() {
    let sandbox = lab(json!({}));
    let table = "harvest=static\nmasters=1\nworkers=0\nbootstrap_ip=192.168.122.20\nmaster_ips=192.168.122.21\n\
                 api_ip=192.168.122.22\ningress_ip=192.168.122.23";
    sandbox.env("lab", table);
    let run = sandbox.deploy("lab").succeeded();
    assert!(!run.stderr.contains("-harvest-"), "{}", run.stderr);
    let parameters = sandbox.parameters("lab").expect("a parameter file");
    let ips: Vec<String> = parameters.leases().iter().map(|lease| lease.ip.to_string()).collect();
    assert_eq!(
        ips,
        ["192.168.122.22", "192.168.122.23", "192.168.122.20", "192.168.122.21"]
    );
}

#[test]
fn clusters_with_one_pool_choose_different_addresses_and_new_workers_the_next() {
    let sandbox = lab(json!({}));
    let pool = "harvest=static\nmasters=1\nworkers=1\naddress_ranges=192.168.122.20-192.168.122.28,192.168.122.40\n";
    let addresses = |cluster: &str| -> Vec<String> {
        let table = sandbox.parameters(cluster).expect("a parameter file");
        table
            .leases()
            .iter()
            .map(|lease| ipv4(lease.ip).octets()[3].to_string())
            .collect()
    };
    sandbox.env("lab", pool);
    sandbox.deploy("lab").succeeded();
    assert_eq!(addresses("lab"), ["20", "21", "22", "23", "24"]);
    sandbox.env("other", &format!("{pool}api_ip=192.168.122.60\n"));
    sandbox.deploy("other").succeeded();
    assert_eq!(addresses("other"), ["60", "25", "26", "27", "28"]);
    let before = sandbox.parameters("lab");
    sandbox.run(&["scale", "lab", "--workers", "2"]).succeeded();
    assert_eq!(addresses("lab"), ["20", "21", "22", "23", "24", "40"]);
    let refused = sandbox.run(&["scale", "lab", "--workers", "3"]);
    let words = "no free address is left in address_ranges 192.168.122.20-192.168.122.28, 192.168.122.40 for worker-2";
    assert!(refused.message().contains(words), "{}", refused.message());
    sandbox.run(&["scale", "lab", "--workers", "1", "--yes"]).succeeded();
    assert_eq!(sandbox.parameters("lab"), before);
    sandbox.env("third", pool);
    let refused = sandbox.deploy("third");
    // The lease of the removed worker has not expired.
    let words = "address_ranges has 0 addresses that no other machine has, too few for 5";
    assert!(refused.message().contains(words), "{}", refused.message());
}

#[test]
fn with_a_dhcp_server_virtual_ips_are_from_the_pool() {
    let sandbox = lab(json!({}));
    sandbox.env("lab", "address_ranges=192.168.122.200-192.168.122.210\n");
    let run = sandbox.deploy("lab").succeeded();
    assert!(!run.stderr.contains("harvest-helper"), "{}", run.stderr);
    is_deployed(&sandbox, "lab");
    let table = sandbox.parameters("lab").unwrap();
    assert_eq!(table.api_ip.to_string(), "192.168.122.200");
    assert_eq!(table.ingress_ip.to_string(), "192.168.122.201");
}

const BOND: &str = "interfaces:
- name: bond0
  type: bond
  link-aggregation: {mode: active-backup, port: [nic0, nic1]}
  ipv4: {enabled: true}
";

#[test]
fn connections_of_the_user_reach_the_nodes() {
    let folder = "/etc/NetworkManager/system-connections";
    let sandbox = lab(json!({}));
    write(&sandbox, "bond.yaml", BOND);
    write(&sandbox, "first.yaml", &BOND.replace("bond0", "bond7"));
    sandbox.env(
        "lab",
        "extra_networks=default\nnetwork_config=worker:bond.yaml,worker-0:first.yaml\n",
    );
    let planned = sandbox.run(&["plan", "lab.sh", "--rehearse"]).succeeded();
    assert!(
        planned.stdout.contains("nodes: connections of worker-1: "),
        "{}",
        planned.stdout
    );
    sandbox.deploy("lab").succeeded();
    is_deployed(&sandbox, "lab");
    let table = sandbox.parameters("lab").unwrap();
    for (node, bond) in [
        ("master-0", None),
        ("worker-0", Some("bond7")),
        ("worker-1", Some("bond0")),
    ] {
        let mut files = files_of(&sandbox, node);
        files.retain(|path, _| path.starts_with(folder));
        let Some(bond) = bond else {
            assert!(files.is_empty(), "{node}: {files:?}");
            continue;
        };
        let names: Vec<_> = files.keys().map(|path| path.rsplit('/').next().unwrap()).collect();
        assert_eq!(
            names,
            [
                &format!("{bond}.nmconnection"),
                "nic0.nmconnection",
                "nic1.nmconnection"
            ]
        );
        let mac = table
            .nodes
            .iter()
            .find(|known| known.name.as_str() == node)
            .unwrap()
            .mac;
        let nic = &files[&format!("{folder}/nic0.nmconnection")];
        assert!(nic.to_lowercase().contains(&format!("mac-address={mac}")), "{nic}");
        assert!(nic.contains(&format!("master={bond}")), "{nic}");
    }
    // Nodes that exist keep their config.
    write(&sandbox, "bond.yaml", &BOND.replace("active-backup", "balance-alb"));
    let state = sandbox.state();
    sandbox.deploy("lab");
    assert_eq!(sandbox.state(), state);
}

#[test]
fn a_connection_has_one_author() {
    let path = "/etc/NetworkManager/system-connections/nic0.nmconnection";
    let sandbox = lab(json!({}));
    write(&sandbox, "bond.yaml", BOND);
    write(&sandbox, "extra.ign", &extra(path, "mine"));
    sandbox.env(
        "lab",
        "extra_networks=default\nnetwork_config=bond.yaml\nignition_extra=worker:extra.ign\n",
    );
    let before = sandbox.state();
    let refused = sandbox.deploy("lab");
    let words = format!("conflict: file {path} is set by ignition_extra: ");
    assert!(refused.message().contains(&words), "{}", refused.message());
    assert_eq!(sandbox.state(), before, "nothing was created");
}

// The user's Ignition configs.

fn extra(path: &str, text: &str) -> String {
    let contents = json!({"source": format!("data:,{text}")});
    json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [{"path": path, "contents": contents}]}}).to_string()
}

fn write(sandbox: &Sandbox, file: &str, text: &str) {
    let path = sandbox.path().join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// All files in a node's config, with their contents.
pub fn files_of(sandbox: &Sandbox, node: &str) -> BTreeMap<String, String> {
    let bytes = std::fs::read(sandbox.home().cluster("lab").ignition(node)).unwrap();
    let unpacked = unpack(node, &serde_json::from_slice(&bytes).unwrap()).unwrap();
    let whole = merge_layers(&unpacked.layers).unwrap();
    let file = |file: &Value| {
        let Ok(Contents::Bytes(bytes)) = contents::of(&file["contents"]) else {
            return (file["path"].as_str().unwrap().to_owned(), String::new());
        };
        (
            file["path"].as_str().unwrap().to_owned(),
            String::from_utf8(bytes).unwrap(),
        )
    };
    whole["storage"]["files"].as_array().unwrap().iter().map(file).collect()
}

#[test]
fn configs_of_the_user_reach_the_nodes_of_their_role() {
    let sandbox = lab(json!({}));
    write(&sandbox, "extra.ign", &extra("/etc/extra", "worker"));
    write(&sandbox, "mine/profile.yaml", "about: mine\nextends: standard\n");
    write(&sandbox, "mine/nodes/all/a.ign", &extra("/etc/a", "first"));
    write(&sandbox, "mine/nodes/all/b.ign", &extra("/etc/a", "second"));
    write(&sandbox, "mine/nodes/master/m.ign", &extra("/etc/m", "master"));
    write(&sandbox, "mine/nodes/master/notes.txt", "not one");
    sandbox.env("lab", "profile=./mine\nignition_extra=worker:extra.ign");
    sandbox.deploy("lab").succeeded();
    is_deployed(&sandbox, "lab");
    for (node, paths) in [
        ("bootstrap", &["/etc/a"][..]),
        ("master-0", &["/etc/a", "/etc/m"]),
        ("worker-1", &["/etc/a", "/etc/extra"]),
    ] {
        let files = files_of(&sandbox, node);
        assert_eq!(files["/etc/a"], "second", "{node}");
        assert_eq!(files["/etc/hostname"], format!("{node}.lab.example.com\n"));
        let mine = ["/etc/a", "/etc/extra", "/etc/m"]
            .into_iter()
            .filter(|path| files.contains_key(*path));
        assert_eq!(mine.collect::<Vec<_>>(), paths, "{node}");
    }
}

#[test]
fn an_invalid_config_of_the_user_is_rejected_before_anything_is_made() {
    let sandbox = lab(json!({}));
    sandbox.env("lab", "ignition_extra=worker:extra.ign");
    let before = sandbox.state();
    for (text, words) in [
        ("{\n  \"ignition\": {", "line 2"),
        (
            r#"{"ignition": {"version": "3.2.0"}, "storage": {"files": [{"path": "etc/x"}]}}"#,
            "$.storage.files.0",
        ),
        (
            r#"{"ignition": {"version": "3.2.0", "config": {"replace": {"source": "http://x/"}}}}"#,
            "$.ignition.config",
        ),
    ] {
        write(&sandbox, "extra.ign", text);
        let run = sandbox.deploy("lab");
        assert_eq!(run.code, Some(3), "{}", run.stderr);
        let message = run.message();
        assert!(
            message.starts_with("error: ignition_extra: ") && message.contains("extra.ign"),
            "{message}"
        );
        assert!(message.contains(words), "{words}: {message}");
        assert_eq!(sandbox.state(), before, "something was created");
        assert!(!sandbox.home().cluster("lab").exists());
    }
}

#[test]
fn a_conflict_names_both_sides() {
    let sandbox = lab(json!({}));
    write(&sandbox, "extra.ign", &extra("/etc/motd", "mine"));
    sandbox.env("lab", "ignition_extra=bootstrap:extra.ign");
    let run = sandbox.deploy("lab");
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    let words = "error: conflict: file /etc/motd is set by installer's bootstrap.ign and by ignition_extra: ";
    assert!(run.message().starts_with(words), "{}", run.message());
    assert!(
        run.message().contains("a MachineConfig to `manifests`"),
        "{}",
        run.message()
    );
}

/// A manifest of the user.
const MANIFEST: &str = "apiVersion: v1\nkind: Mine\nmetadata: {name: a}\n";

/// A cluster of one master and one worker whose worker cannot be created at the first attempt.
fn stopped_before_the_worker(lines: &str) -> Sandbox {
    let sandbox = Sandbox::new(json!({"script": {"faults": [
        {"call": "create_machine", "about": "lab-worker-0", "what": "unreachable"},
    ]}}));
    write(&sandbox, "extra.ign", &extra("/etc/extra", "before"));
    write(&sandbox, "more/a.yaml", MANIFEST);
    sandbox.env("lab", &format!("masters=1\nworkers=1\nplatform_timeout=0s\n{lines}"));
    assert_eq!(sandbox.deploy("lab").code, Some(5));
    sandbox
}

#[test]
fn a_changed_config_of_the_user_is_merged_again() {
    let sandbox = stopped_before_the_worker("ignition_extra=worker:extra.ign");
    assert_eq!(files_of(&sandbox, "worker-0")["/etc/extra"], "before");
    write(&sandbox, "extra.ign", &extra("/etc/extra", "after"));
    sandbox.deploy("lab").succeeded();
    assert_eq!(files_of(&sandbox, "worker-0")["/etc/extra"], "after");
    let written = std::fs::read(sandbox.home().cluster("lab").ignition("worker-0")).unwrap();
    let machine = &sandbox.state()["machines"]["lab-worker-0"];
    assert_eq!(machine["payload"]["sha512"], digest::sha512(&written));
    // Too late: the worker runs with the previous config.
    write(&sandbox, "extra.ign", &extra("/etc/extra", "late"));
    let late = sandbox.deploy("lab");
    assert_eq!(late.code, Some(3), "{}", late.stderr);
    let words = "step pass-two/create/worker-0 was done with other settings";
    assert!(late.message().contains(words), "{}", late.message());
}

#[test]
fn a_torn_config_of_a_node_is_written_again() {
    let sandbox = stopped_before_the_worker("");
    let path = sandbox.home().cluster("lab").ignition("worker-0");
    let whole = std::fs::read(&path).unwrap();
    for torn in [Some(&whole[..100]), Some(&[]), None] {
        match torn {
            Some(part) => std::fs::write(&path, part).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        sandbox.deploy("lab").succeeded();
        assert!(std::fs::read(&path).unwrap() == whole);
    }
    let machine = &sandbox.state()["machines"]["lab-worker-0"];
    assert_eq!(machine["payload"]["sha512"], digest::sha512(&whole));
}

#[test]
fn manifests_that_changed_after_the_installer_read_them_are_reported() {
    let sandbox = stopped_before_the_worker("manifests=more");
    // The same file at another path is unchanged.
    std::fs::rename(sandbox.path().join("more"), sandbox.path().join("elsewhere")).unwrap();
    sandbox.env("lab", "masters=1\nworkers=1\nmanifests=elsewhere");
    write(&sandbox, "elsewhere/a.yaml", &MANIFEST.replace("Mine", "Other"));
    let run = sandbox.deploy("lab");
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    assert!(
        run.message().contains("step assets was done with other settings"),
        "{}",
        run.message()
    );
    write(&sandbox, "elsewhere/a.yaml", MANIFEST);
    sandbox.deploy("lab").succeeded();
}

#[test]
fn a_config_that_does_not_fit_its_carrier_is_packed() {
    let sandbox = lab(json!({"limits": {"carrier_bytes": 200_000}}));
    let run = sandbox.deploy("lab").succeeded();
    is_deployed(&sandbox, "lab");
    assert!(
        run.stderr.contains("bootstrap: compressed to fit fw_cfg"),
        "{}",
        run.stderr
    );
    assert!(!run.stderr.contains("worker-0: packed"), "{}", run.stderr);
    assert_eq!(
        files_of(&sandbox, "bootstrap")["/etc/hostname"],
        "bootstrap.lab.example.com\n"
    );
}

#[test]
fn a_config_that_fits_in_no_form() {
    let sandbox = Sandbox::new(json!({"limits": {"carrier_bytes": 5_000}}));
    let (code, message) = failure(&sandbox);
    assert_eq!(code, Some(4), "{message}");
    // Sizes change with what the nodes get.
    let filters = [
        (r"\d+ bytes", "<n> bytes"),
        (r"\d+ compressed", "<n> compressed"),
        (r"\d+ %", "<n> %"),
    ];
    insta::with_settings!({filters => filters}, { insta::assert_snapshot!(message) });
    assert_eq!(sandbox.of_pass("lab", "two"), [""; 0]);
}
