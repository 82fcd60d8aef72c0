//! Masters on one platform and workers on another: one journal, one table, one `destroy`.
//!
//! The workers are on a fake oVirt engine, everything else is on the program's simulated platform.

use crate::support::qcow2;
use std::collections::BTreeSet;

use crate::support::fake_engine::{Agent, FakeEngine};
use crate::support::sandbox::Sandbox;
use ocpdeploy::digest;
use serde_json::{Value, json};

struct Two {
    masters: Sandbox,
    workers: FakeEngine,
}

impl Two {
    /// Both platforms on one network, in which each assigns other addresses.
    fn new() -> Self {
        let masters = Sandbox::new(json!({"networks": {"default": {
            "cidr": "192.168.99.0/24", "gateway": "192.168.99.1",
            "dhcp_from": "192.168.99.100", "dhcp_to": "192.168.99.200",
        }}}));
        let workers = FakeEngine::with(|world| {
            world.tick = 3_000;
            world.uploaded_agent = Agent::Installed;
        });
        let file = |name: &str, bytes: &[u8]| std::fs::write(masters.path().join(name), bytes).unwrap();
        file("helper.qcow2", &qcow2::empty());
        file("coreos.qcow2", &[qcow2::empty(), vec![0; 512]].concat());
        file("ca.pem", workers.ca_pem.as_bytes());
        file("password", workers.password.as_bytes());
        let two = Self { masters, workers };
        two.env("lab", "");
        two
    }

    fn env(&self, cluster: &str, lines: &str) {
        let (url, user) = (&self.workers.url, &self.workers.user);
        let usual = format!(
            "masters=1\nworkers=2\nworker_backend=ovirt\nworker_network=ovirtmgmt\novirt_url={url}\n\
             ovirt_user={user}\novirt_password_file=password\novirt_ca=ca.pem\novirt_storage_domain=data\n\
             images_dir=.\n"
        );
        let name = |line: &str| line.split('=').next().unwrap_or_default().to_owned();
        let given: BTreeSet<_> = lines.lines().map(name).collect();
        let kept = usual.lines().filter(|line| !given.contains(&name(line)));
        let text: Vec<&str> = kept.chain(lines.lines()).collect();
        self.masters.env(cluster, &text.join("\n"));
    }

    fn vms(&self) -> BTreeSet<String> {
        self.workers
            .look(|world| world.vms.iter().map(|vm| vm.name.clone()).collect())
    }

    /// Each machine is on its platform, with its config and its address, and nothing of pass one remains.
    #[track_caller]
    fn is_deployed(&self, cluster: &str, workers: usize) {
        let table = self.masters.parameters(cluster).expect("a parameter file");
        let machines = self.masters.machines(Some(cluster));
        let names: Vec<&str> = machines.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, [format!("{cluster}-master-0")]);
        let expected: BTreeSet<_> = (0..workers).map(|index| format!("{cluster}-worker-{index}")).collect();
        assert_eq!(self.vms(), expected);
        for node in table.nodes.iter().filter(|node| node.name.as_str() != "bootstrap") {
            let name = format!("{cluster}-{}", node.name);
            let config = self.masters.home().cluster(cluster).ignition(node.name.as_str());
            let written = std::fs::read_to_string(config).unwrap();
            if let Some((_, machine)) = machines.iter().find(|(known, _)| *known == name) {
                assert_eq!(machine["nics"][0]["mac"], node.mac.to_string());
                assert_eq!(machine["payload"]["sha512"], digest::sha512(written.as_bytes()));
            } else {
                let boot = self.workers.last_boot(&name).expect("it was started");
                assert_eq!(boot.macs, [node.mac.to_string()]);
                assert_eq!(
                    boot.given.ignition(),
                    Some(written.as_str()),
                    "{name} got another config"
                );
            }
        }
        let addresses: BTreeSet<_> = table.leases().iter().map(|lease| lease.ip).collect();
        assert_eq!(addresses.len(), table.nodes.len() + 2, "addresses are used twice");
        // The engine cannot reserve addresses; the other platform, on the same network, also reserves theirs.
        let held: BTreeSet<_> = self
            .masters
            .reservations(Some(cluster))
            .into_iter()
            .map(|(ip, _)| ip)
            .collect();
        let lasting = table
            .leases()
            .into_iter()
            .filter(|lease| lease.name.as_str() != "bootstrap");
        assert_eq!(held, lasting.map(|lease| lease.ip.to_string()).collect());
    }
}

#[test]
fn workers_on_another_platform_are_part_of_the_cluster() {
    let two = Two::new();
    let outcome = two.masters.deploy("lab").succeeded();
    assert_eq!(outcome.stdout.matches(" yes ").count(), 4, "{}", outcome.stdout);
    two.is_deployed("lab", 2);

    let status = two.masters.run(&["status", "lab"]).succeeded().stdout;
    assert!(status.contains("sim, workers on ovirt"), "{status}");
    assert!(status.contains("worker-1"), "{status}");
    for (node, platform) in [("master-0", "sim"), ("worker-0", "ovirt")] {
        let shown = two.masters.run(&["node", "show", node, "--format", "json"]).succeeded();
        let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
        assert_eq!(shown["platform"], platform, "{node}: {shown:#}");
    }
    let verified = two.masters.run(&["verify", "lab"]);
    assert_eq!(verified.code, Some(0), "{}\n{}", verified.stdout, verified.stderr);

    let owned = two.masters.run(&["destroy", "lab", "--dry-run"]).succeeded().stdout;
    assert!(
        owned.contains("lab-master-0") && owned.contains("lab-worker-1"),
        "{owned}"
    );
    two.masters.run(&["destroy", "lab", "--yes"]).succeeded();
    assert_eq!(two.vms(), BTreeSet::new());
    assert_eq!(two.masters.machines(None), []);
    assert_eq!(two.masters.reservations(None), []);
    let disks = two.workers.look(|world| world.disks.len() + world.templates.len());
    let before = FakeEngine::with(|_| ()).look(|world| world.disks.len() + world.templates.len());
    assert_eq!(disks, before, "an image remains");
}

#[test]
fn interrupted_in_either_pass_the_same_command_finishes() {
    for step in ["pass-one/create", "pass-one/leases", "pass-two/create/worker-0"] {
        let two = Two::new();
        two.masters
            .kill_deployment("lab", |sandbox| sandbox.is_within("lab", step));
        two.masters.deploy("lab").succeeded();
        two.is_deployed("lab", 2);
        two.masters.run(&["destroy", "lab", "--yes"]).succeeded();
        assert_eq!(
            (two.vms(), two.masters.machines(None)),
            (BTreeSet::new(), vec![]),
            "cut in {step}"
        );
    }
}

#[test]
fn workers_are_added_and_removed_on_their_platform() {
    let two = Two::new();
    two.masters.deploy("lab").succeeded();
    two.masters.run(&["scale", "lab", "--workers", "3"]).succeeded();
    two.is_deployed("lab", 3);
    two.masters
        .run(&["scale", "lab", "--workers", "1", "--yes"])
        .succeeded();
    two.is_deployed("lab", 1);
}

#[test]
fn pools_are_on_the_platform_of_the_workers() {
    let two = Two::new();
    two.env("lab", "workers=1\npools=infra:1");
    two.masters.deploy("lab").succeeded();
    let vms = |nodes: &[&str]| -> BTreeSet<String> { nodes.iter().map(|node| format!("lab-{node}")).collect() };
    assert_eq!(two.vms(), vms(&["worker-0", "infra-0"]));
    let shown = two
        .masters
        .run(&["node", "show", "infra-0", "--format", "json"])
        .succeeded();
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(shown["platform"], "ovirt", "{shown:#}");
    two.masters.run(&["scale", "lab", "--pool", "infra=2"]).succeeded();
    two.masters
        .run(&["node", "replace", "lab", "infra-1", "--yes"])
        .succeeded();
    assert_eq!(two.vms(), vms(&["worker-0", "infra-0", "infra-1"]));
    two.masters.run(&["destroy", "lab", "--yes"]).succeeded();
    assert_eq!(two.vms(), BTreeSet::new());
    assert_eq!(two.masters.reservations(None), []);
}

/// Three masters, two workers, two nodes of one pool and one of another, which is on the other platform.
const ONE_POOL_ELSEWHERE: &str = "masters=3\nworkers=2\npools=infra:2,gpu:1\nworker_backend_for=gpu";

fn here(two: &Two) -> BTreeSet<String> {
    let machines = two.masters.machines(Some("lab"));
    machines.into_iter().map(|(name, _)| name).collect()
}

fn named(nodes: &[&str]) -> BTreeSet<String> {
    nodes.iter().map(|node| format!("lab-{node}")).collect()
}

#[test]
fn one_pool_is_on_another_platform_and_all_nodes_are_in_one_table() {
    const HERE: [&str; 7] = [
        "master-0", "master-1", "master-2", "worker-0", "worker-1", "infra-0", "infra-1",
    ];
    let two = Two::new();
    two.env("lab", ONE_POOL_ELSEWHERE);
    two.masters.deploy("lab").succeeded();
    assert_eq!((here(&two), two.vms()), (named(&HERE), named(&["gpu-0"])));
    let table = two.masters.parameters("lab").unwrap();
    let addresses: BTreeSet<_> = table.nodes.iter().map(|node| node.ip).collect();
    assert_eq!(addresses.len(), 9, "the bootstrap and eight nodes: {addresses:?}");
    let boot = two.workers.last_boot("lab-gpu-0").unwrap();
    let config = two.masters.home().cluster("lab").ignition("gpu-0");
    assert_eq!(
        boot.given.ignition(),
        Some(std::fs::read_to_string(config).unwrap().as_str())
    );

    let run = |words: &[&str]| two.masters.run(words).succeeded().stdout;
    let status = run(&["status", "lab"]);
    assert!(status.contains("sim, gpu on ovirt"), "{status}");
    for (node, platform, carrier) in [("infra-0", "sim", "fw_cfg"), ("gpu-0", "ovirt", "custom_script")] {
        let shown: Value = serde_json::from_str(&run(&["node", "show", node, "--format", "json"])).unwrap();
        assert_eq!(shown["platform"], platform, "{node}: {shown:#}");
        let shown: Value = serde_json::from_str(&run(&["ignition", "show", "lab", node, "--format", "json"])).unwrap();
        assert_eq!(shown["carrier"], carrier, "{node}: {shown}");
    }
    run(&["verify", "lab"]);

    run(&[
        "scale",
        "lab",
        "--pool",
        "gpu=2",
        "--pool",
        "infra=1",
        "--workers",
        "3",
        "--yes",
    ]);
    run(&["node", "replace", "lab", "gpu-1", "--yes"]);
    run(&["node", "replace", "lab", "infra-0", "--yes"]);
    let nodes = [
        "master-0", "master-1", "master-2", "worker-0", "worker-1", "worker-2", "infra-0",
    ];
    assert_eq!((here(&two), two.vms()), (named(&nodes), named(&["gpu-0", "gpu-1"])));
    run(&["stop", "lab"]);
    run(&["start", "lab"]);
    run(&["verify", "lab"]);

    // A pool cannot change its platform.
    two.env("lab", &ONE_POOL_ELSEWHERE.replace("for=gpu", "for=infra"));
    let refused = two
        .masters
        .run(&["scale", "lab", "--pool", "gpu=1", "--yes", "--env", "lab.sh"]);
    let message = "another platform of its workers: it is on sim, gpu on ovirt";
    assert!(refused.message().contains(message), "{}", refused.stderr);
    run(&["destroy", "lab", "--yes"]);
    assert_eq!((two.vms(), two.masters.machines(None)), (BTreeSet::new(), vec![]));
    assert_eq!(two.masters.reservations(None), []);
}

#[test]
fn with_a_pool_on_another_platform_an_interrupted_pass_is_finished() {
    for step in ["pass-one/create", "pass-one/leases", "pass-two/create/gpu-0"] {
        let two = Two::new();
        two.env("lab", "workers=1\npools=gpu:1\nworker_backend_for=gpu");
        two.masters
            .kill_deployment("lab", |sandbox| sandbox.is_within("lab", step));
        two.masters.deploy("lab").succeeded();
        assert_eq!(
            (here(&two), two.vms()),
            (named(&["master-0", "worker-0"]), named(&["gpu-0"])),
            "{step}"
        );
        two.masters.run(&["destroy", "lab", "--yes"]).succeeded();
        assert_eq!(
            (two.vms(), two.masters.machines(None)),
            (BTreeSet::new(), vec![]),
            "{step}"
        );
    }
}

#[test]
fn both_platforms_are_checked_before_anything_is_created() {
    let two = Two::new();
    for (lines, message) in [
        ("worker_network=", "`worker_network` is not set"),
        ("worker_network=nowhere", "nowhere"),
        (
            "worker_backend=kubevirt\nworker_network=pod",
            "worker_network=pod is not supported",
        ),
        ("worker_backend=vmware", "`vmware` is not a backend"),
        ("worker_backend_for=gpu", "`pools` has no pool gpu"),
        ("ovirt_user=nobody@internal", "permission denied"),
    ] {
        two.env("lab", lines);
        let outcome = two.masters.deploy("lab");
        assert_ne!(outcome.code, Some(0), "{lines}");
        assert!(outcome.message().contains(message), "{lines}: {}", outcome.stderr);
        assert_eq!((two.vms(), two.masters.machines(None)), (BTreeSet::new(), vec![]));
    }
}

#[test]
fn a_config_is_shown_with_the_carrier_of_its_own_platform() {
    let two = Two::new();
    two.masters.deploy("lab").succeeded();
    for (node, carrier) in [
        ("bootstrap", "fw_cfg"),
        ("master-0", "fw_cfg"),
        ("worker-0", "custom_script"),
    ] {
        let shown = two.masters.run(&["ignition", "show", "lab", node, "--format", "json"]);
        let shown: Value = serde_json::from_str(&shown.succeeded().stdout).unwrap();
        assert_eq!(shown["carrier"], carrier, "{node}: {shown}");
    }
}

#[test]
fn the_plan_names_both_platforms_and_counts_each() {
    let two = Two::new();
    let plan = two.masters.run(&["plan", "lab.sh", "--rehearse"]).succeeded().stdout;
    insta::assert_snapshot!(plan);
}

#[test]
fn a_cluster_does_not_move_its_workers() {
    let two = Two::new();
    two.masters.deploy("lab").succeeded();
    two.env("lab", "worker_backend=sim");
    let refused = two.masters.deploy("lab");
    assert!(
        refused.message().contains("another platform of its workers"),
        "{}",
        refused.stderr
    );
}
