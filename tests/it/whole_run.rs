//! The binary deploys a whole cluster: fake machines, a strict fake of openshift-install, and a fake API
//! on the VIP.

use crate::support::mcs_server;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::support::fake_installer;
use crate::support::fake_kube::server::FakeKube;
use crate::support::fake_kube::world::{EtcdOperator, SIGNERS, Stage};
use crate::support::sandbox::outcome;
use crate::support::site::Site;
use crate::support::until::{LONG, until};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ocpdeploy::cluster::Role;
use serde_json::{Value, json};

const NODES: [&str; 5] = [
    "lab-master-0",
    "lab-master-1",
    "lab-master-2",
    "lab-worker-0",
    "lab-worker-1",
];

/// Ends the API; all valid requests were approved, each once, and no other.
#[track_caller]
fn finish(kube: FakeKube) {
    let mut world = kube.finish();
    world.approved.sort();
    world.rightful.sort();
    assert_eq!(world.rightful.len(), 4);
    assert_eq!(world.approved, world.rightful);
}

/// The complete config of a master or a worker at its first boot.
fn config_of(site: &Site, node: &str) -> Value {
    let path = site.sandbox.home().cluster("lab").ignition(node);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn without_dns_the_nodes_configs_come_from_the_machine_config_server() {
    let site = Site::new(7, "mcs=embed\n");
    let mut child = site.start(&[]);
    let kube = site.kube(&mut child, Stage::Installed);
    let table = site.sandbox.parameters("lab").unwrap();
    let certificate = site.authority.server("api-int.lab.example.com", |_| {});
    let mut asked = 0;
    let address = SocketAddr::from((table.api_ip, 22623));
    let rendered = |path: &str, version: &str| {
        let file = json!({"path": "/etc/served", "mode": 420, "contents": {"source": format!("data:,{path}"), "compression": ""}});
        json!({"ignition": {"version": version}, "storage": {"files": [file]}}).to_string()
    };
    let server = mcs_server::McsServer::start(
        address,
        &certificate.certificate,
        &certificate.key,
        move |path, version| {
            asked += 1;
            // The bootstrap's server takes a while, and never serves workers.
            (asked > 2)
                .then(|| (200, rendered(path, version).into_bytes()))
                .or(Some((500, Vec::new())))
        },
    );
    outcome(child).succeeded();
    let heads = server.heads();
    let first_words: Vec<_> = heads
        .iter()
        .map(|head| head.lines().next().unwrap_or_default())
        .collect();
    assert_eq!(
        first_words,
        [
            "get /config/master http/1.1",
            "get /config/master http/1.1",
            "get /config/master http/1.1",
            "get /config/worker http/1.1"
        ]
    );
    finish(kube);
    assert_eq!(site.machines(), NODES);
    for (node, role) in [("master-2", "master"), ("worker-1", "worker")] {
        let config = config_of(&site, node);
        assert_eq!(
            config["ignition"]["config"]["merge"],
            json!([]),
            "{node} fetches something"
        );
        let files = config["storage"]["files"].as_array().unwrap();
        let content = |path: &str| {
            files
                .iter()
                .find(|file| file["path"] == path)
                .map(|file| file["contents"]["source"].clone())
        };
        assert_eq!(content("/etc/served").unwrap(), format!("data:,/config/{role}"));
        assert!(content("/etc/hostname").is_some());
    }
    let shown = site.sandbox.run(&["ignition", "show", "lab", "worker-1"]).succeeded();
    assert!(
        shown.stdout.contains("the machine config server's worker"),
        "{}",
        shown.stdout
    );
}

/// The platform has its address before it runs, and only the platform reports that it is off.
#[test]
fn a_machine_that_stops_during_the_installation_is_started_again() {
    let site = Site::new(15, "restart_limit=1\n");
    let mut child = site.start(&[]);
    until(LONG, "the wait for the cluster", || {
        site.sandbox.is_within("lab", "bootstrap-complete") || child.try_wait().unwrap().is_some()
    });
    let starts = || site.sandbox.state()["machines"]["lab-master-1"]["starts"].clone();
    let stop = || {
        site.sandbox
            .edit(|world| world["machines"]["lab-master-1"]["off"] = json!(true));
    };
    let is_told = |words: &str| {
        let logs = std::fs::read_dir(site.sandbox.home().cluster("lab").log()).unwrap();
        logs.flatten()
            .any(|log| std::fs::read_to_string(log.path()).unwrap().contains(words))
    };
    stop();
    until(LONG, "its second start", || starts() == 2);
    stop();
    until(LONG, "the end of the restarts", || {
        is_told("lab-master-1 stopped and is not started again")
    });
    // The user has followed the hint.
    site.sandbox
        .edit(|world| world["machines"]["lab-master-1"]["off"] = json!(false));
    let kube = site.kube(&mut child, Stage::Installed);
    let outcome = outcome(child).succeeded();
    finish(kube);
    assert_eq!(starts(), 2);
    for told in [
        "lab-master-1 stopped and is started again (2 of 2)",
        "lab-master-1 stopped and is not started again: check its console",
    ] {
        assert_eq!(outcome.stderr.matches(told).count(), 1, "{told}: {}", outcome.stderr);
    }
}

const ARBITER: &str = "masters=2\narbiter=1\nworkers=0\n";
const WITH_ARBITER: [&str; 3] = ["lab-arbiter-0", "lab-master-0", "lab-master-1"];

#[test]
fn two_masters_and_an_arbiter_become_a_cluster() {
    let site = Site::new(13, ARBITER);
    // A version that only the installer reports is rejected before anything is created.
    fake_installer::release(site.sandbox.path(), "4.21.0");
    let refused = site.deploy();
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    for words in [
        "openshift-install is 4.21.0: OpenShift 4.21 does not support an arbiter on platform none",
        "use OpenShift 4.22 or later, or 3 masters without an arbiter",
    ] {
        assert!(refused.message().contains(words), "{}", refused.stderr);
    }
    assert!(site.sandbox.machines(None).is_empty() && site.sandbox.parameters("lab").is_none());

    fake_installer::release(site.sandbox.path(), "4.22.0");
    let mut child = site.start(&[]);
    let kube = site.kube(&mut child, Stage::Installed);
    outcome(child).succeeded();
    assert_eq!(site.machines(), WITH_ARBITER);
    let machine = &site.sandbox.state()["machines"]["lab-arbiter-0"];
    assert_eq!(
        [&machine["cpus"], &machine["memory_mib"], &machine["disk_gib"]],
        [2, 8192, 50]
    );
    let table = site.sandbox.parameters("lab").unwrap();
    let arbiter = table.of_role(Role::Arbiter).next().unwrap();
    assert_eq!(machine["nics"][0]["mac"], arbiter.mac.to_string());
    let pointer = config_of(&site, "arbiter-0")["ignition"]["config"]["merge"][0]["source"].clone();
    assert_eq!(pointer, "https://api-int.lab.example.com:22623/config/arbiter");
    let record = |name: &str| -> Value {
        serde_json::from_slice(&std::fs::read(site.sandbox.path().join(name)).unwrap()).unwrap()
    };
    let given = record("install-config.json");
    assert_eq!(given["arbiter"], json!({"name": "arbiter", "replicas": 1}));
    assert_eq!(
        [&given["controlPlane"]["replicas"], &given["compute"][0]["replicas"]],
        [2, 0]
    );
    // It resolves names, but balances no requests and has no VIP.
    let manifests = record("openshift.json");
    let paths = |role: &str| -> Vec<String> {
        let manifest = manifests[format!("99_ocpdeploy-machineconfig-{role}.yaml")]
            .as_str()
            .unwrap();
        let manifest: Value = serde_saphyr::from_str(manifest).unwrap();
        let label = &manifest["metadata"]["labels"]["machineconfiguration.openshift.io/role"];
        assert_eq!(label, role);
        let files = manifest["spec"]["config"]["storage"]["files"].as_array().unwrap();
        files
            .iter()
            .map(|file| file["path"].as_str().unwrap().to_owned())
            .collect()
    };
    let has = |paths: &[String], part: &str| paths.iter().any(|path| path.contains(part));
    let (master, arbiter) = (paths("master"), paths("arbiter"));
    for (part, on_arbiter) in [("dnsmasq", true), ("keepalived", false), ("haproxy", false)] {
        assert!(has(&master, part), "{part}: {master:?}");
        assert_eq!(has(&arbiter, part), on_arbiter, "{part}: {arbiter:?}");
    }
    let listed = site.sandbox.run(&["list"]).succeeded().stdout;
    assert!(listed.contains(" 2+1+0 "), "{listed}");
    let status = site.sandbox.run(&["status", "lab"]).succeeded().stdout;
    assert!(status.contains("arbiter-0"), "{status}");
    // A second run does not change it.
    let made = machine["created_ms"].clone();
    site.deploy().succeeded();
    assert_eq!(site.sandbox.state()["machines"]["lab-arbiter-0"]["created_ms"], made);
    // A cluster keeps its arbiter.
    let env = site.sandbox.path().join("lab.sh");
    let settings = std::fs::read_to_string(&env).unwrap().replace("arbiter=1", "arbiter=0");
    std::fs::write(env, settings.replace("masters=2", "masters=3")).unwrap();
    let refused = site.deploy();
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    let what = "it has 2 masters, the settings say 3; it has an arbiter, the settings say no arbiter";
    assert!(refused.message().contains(what), "{}", refused.stderr);
    kube.finish();
}

#[test]
fn the_arbiters_config_comes_from_the_bootstraps_machine_config_server() {
    let site = Site::new(14, &format!("{ARBITER}mcs=embed\n"));
    fake_installer::release(site.sandbox.path(), "4.22.0");
    let mut child = site.start(&[]);
    let kube = site.kube(&mut child, Stage::Installed);
    let table = site.sandbox.parameters("lab").unwrap();
    let certificate = site.authority.server("api-int.lab.example.com", |_| {});
    let address = SocketAddr::from((table.api_ip, 22623));
    let rendered = |path: &str, version: &str| {
        let file = json!({"path": "/etc/served", "mode": 420, "contents": {"source": format!("data:,{path}")}});
        json!({"ignition": {"version": version}, "storage": {"files": [file]}}).to_string()
    };
    let server = mcs_server::McsServer::start(
        address,
        &certificate.certificate,
        &certificate.key,
        move |path, version| Some((200, rendered(path, version).into_bytes())),
    );
    outcome(child).succeeded();
    let heads = server.heads();
    let first_lines: Vec<_> = heads.iter().filter_map(|head| head.lines().next()).collect();
    assert_eq!(
        first_lines,
        ["get /config/master http/1.1", "get /config/arbiter http/1.1"]
    );
    for (node, role) in [("master-1", "master"), ("arbiter-0", "arbiter")] {
        let files = config_of(&site, node)["storage"]["files"].clone();
        let served = files
            .as_array()
            .unwrap()
            .iter()
            .find(|file| file["path"] == "/etc/served");
        assert_eq!(served.unwrap()["contents"]["source"], format!("data:,/config/{role}"));
    }
    kube.finish();
    assert_eq!(site.machines(), WITH_ARBITER);
}

#[test]
fn a_cluster_is_deployed_from_machines_to_its_kubeconfig() {
    let site = Site::new(1, "");
    let mut child = site.start(&[]);
    let kube = site.kube(&mut child, Stage::Installed);
    let outcome = outcome(child).succeeded();
    for (days, words) in [
        (1, "not rotated yet, valid for 23 h"),
        (29, "rotated; the cluster can be stopped"),
    ] {
        let signer = site.authority.server("signer", |params| {
            params.not_before = rcgen::date_time_ymd(2026, 11, 1);
            params.not_after = rcgen::date_time_ymd(2026, 11, 1 + days);
        });
        let certificate = STANDARD.encode(signer.certificate);
        kube.with(|world| {
            world.put(
                SIGNERS,
                json!({"metadata": {"name": "csr-signer"}, "data": {"tls.crt": certificate}}),
            )
        });
        // `status` gives the API a few seconds; a busy machine may want more.
        until(LONG, words, || {
            let status = site.sandbox.run(&["status", "lab"]).succeeded();
            status.stdout.contains(words)
        });
    }
    finish(kube);
    let silent = site.sandbox.run(&["status", "lab"]).succeeded();
    assert!(silent.stdout.contains("rotation status unknown"), "{}", silent.stdout);
    assert_eq!(site.machines(), NODES);
    assert!(!site.holds_bootstrap());
    let folder = site.sandbox.home().cluster("lab");
    let told = [
        format!("kubeconfig {}\n", folder.kubeconfig().display()),
        "console    https://console-openshift-console.apps.lab.example.com\n".to_owned(),
        format!("kubeadmin  password in {}\n", folder.kubeadmin_password().display()),
        " api.lab.example.com\n".to_owned(),
    ];
    for told in told {
        assert!(outcome.stdout.contains(&told), "{told}\n{}", outcome.stdout);
    }
    let all = outcome.stdout + &outcome.stderr;
    assert!(!all.contains("pqrst"), "the password is shown");
    for told in [
        "worker-0: client certificate approved (csr-client-worker-0)",
        "worker-1: serving certificate approved (csr-serving-worker-1)",
        "not approving request csr-hostile-foreign-ip of system:node:worker-1.lab.example.com: 192.0.2.66 is not the address of worker-1",
    ] {
        assert!(all.contains(told), "{told}\n{all}");
    }
    let refusals = all.matches("csr-hostile-foreign-ip").count();
    assert_eq!(refusals, 1, "it is reported once\n{all}");
}

#[test]
fn killed_in_the_middle_of_each_wait() {
    let site = Site::new(2, "");
    let mut child = site.start(&[]);
    let kube = site.kube(&mut child, Stage::Api);
    site.kill_within(child, &kube, "bootstrap-complete");
    assert_eq!(site.machines().len(), 6);
    for (gate, step, machines) in [
        (Stage::Masters, "bootstrap-complete", 6),
        (Stage::Bootstrapped, "bootstrap-member-removed", 6),
        (Stage::Bootstrapped, "bootstrap-member-removed", 6),
        (Stage::MemberRemoved, "install-complete", 5),
        (Stage::Workers, "install-complete", 5),
        (Stage::Operators, "install-complete", 5),
    ] {
        kube.with(|world| world.gate = gate);
        site.kill_within(site.start(&[]), &kube, step);
        assert_eq!(site.machines().len(), machines, "{step}");
    }
    kube.with(|world| world.gate = Stage::Installed);
    site.deploy().succeeded();
    finish(kube);
    assert_eq!(site.machines(), NODES);
    let again = site.deploy().succeeded();
    assert!(again.stderr.contains("pass one: skipped"), "{}", again.stderr);
}

#[test]
fn workers_can_be_created_when_the_masters_are_ready() {
    let site = Site::new(3, "workers_when=ready");
    let mut child = site.start(&[]);
    let kube = site.kube(&mut child, Stage::Masters);
    until(LONG, "the wait", || site.sandbox.is_within("lab", "bootstrap-complete"));
    assert_eq!(
        site.machines(),
        ["lab-bootstrap", "lab-master-0", "lab-master-1", "lab-master-2"]
    );
    kube.with(|world| world.gate = Stage::Installed);
    outcome(child).succeeded();
    finish(kube);
    assert_eq!(site.machines(), NODES);
}

#[test]
fn the_bootstrap_is_kept_as_long_as_the_settings_say() {
    let site = Site::new(4, "");
    let mut child = site.start(&["--keep-bootstrap"]);
    let kube = site.kube(&mut child, Stage::Installed);
    outcome(child).succeeded();
    assert_eq!(site.machines().len(), 6);
    assert!(site.holds_bootstrap());
    site.deploy().succeeded();
    finish(kube);
    assert_eq!(site.machines(), NODES);
    assert!(!site.holds_bootstrap());
}

#[test]
fn the_bootstrap_of_a_single_master_is_deleted_only_after_it_left_etcd() {
    for (network, words) in [(8, EtcdOperator::New), (9, EtcdOperator::Old)] {
        let site = Site::new(network, "masters=1\nworkers=0");
        let mut child = site.start(&[]);
        let kube = site.kube(&mut child, Stage::Bootstrapped);
        kube.with(|world| world.etcd_operator = words);
        until(LONG, "the wait", || {
            site.sandbox.is_within("lab", "bootstrap-member-removed")
        });
        let asked = kube.with(|world| world.asked);
        until(LONG, "questions", || kube.with(|world| world.asked) > asked + 5);
        assert_eq!(site.machines(), ["lab-bootstrap", "lab-master-0"]);
        kube.with(|world| world.gate = Stage::Installed);
        let told = outcome(child).succeeded().stderr;
        for words in [
            "waiting until the etcd operator has removed the bootstrap from etcd",
            "etcd: the operator has not removed the bootstrap member yet: enough members found",
        ] {
            assert!(told.contains(words), "{told}");
        }
        kube.finish();
        assert_eq!(site.machines(), ["lab-master-0"]);
    }
}

#[test]
fn a_cluster_without_etcds_operator_is_installed_too() {
    let site = Site::new(10, "masters=1\nworkers=0");
    let mut child = site.start(&[]);
    let kube = site.kube(&mut child, Stage::Api);
    kube.with(|world| {
        world.etcd_operator = EtcdOperator::Absent;
        world.gate = Stage::Installed;
    });
    outcome(child).succeeded();
    kube.finish();
    assert_eq!(site.machines(), ["lab-master-0"]);
}

#[test]
fn expired_installer_files_are_recreated_unless_machines_have_them() {
    let site = Site::new(5, "");
    let mut child = site.start(&[]);
    let kube = site.kube(&mut child, Stage::Api);
    site.kill_within(child, &kube, "bootstrap-complete");
    site.age_assets(21);
    let refused = site.deploy();
    assert_eq!(refused.code, Some(4));
    insta::assert_snapshot!(refused.message());

    site.sandbox.edit(|world| world["machines"] = json!({}));
    kube.with(|world| world.gate = Stage::Installed);
    let anew = site.deploy().succeeded();
    assert!(
        anew.stderr
            .contains("the files are 21 hours old; no machine uses them, so they are created again"),
        "{}",
        anew.stderr
    );
    finish(kube);
    assert_eq!(site.machines(), NODES);

    // A bootstrapped cluster does not depend on the files' age.
    site.age_assets(100);
    site.deploy().succeeded();
}

/// The bundle of a failed deployment, and its files.
fn bundle(site: &Site) -> (PathBuf, Vec<String>) {
    let folder = site.sandbox.home().cluster("lab");
    let mut bundles = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let bundle = bundles
        .find(|path| path.extension().is_some_and(|extension| extension == "tar"))
        .unwrap();
    assert_eq!(std::fs::metadata(&bundle).unwrap().permissions().mode() & 0o777, 0o600);
    let mut tar = tar::Archive::new(std::fs::File::open(&bundle).unwrap());
    let names = tar
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().path().unwrap().display().to_string())
        .collect();
    (bundle, names)
}

#[test]
fn a_bundle_contains_the_objects_of_the_api() {
    let site = Site::new(11, "masters=1\nworkers=0\nbootstrap_timeout=5s");
    let mut child = site.start(&[]);
    let kube = site.kube(&mut child, Stage::Masters);
    assert_eq!(outcome(child).code, Some(6));
    let (_, names) = bundle(&site);
    for kind in ["nodes", "clusteroperators", "etcd", "machineconfigpools", "events"] {
        assert!(
            names.contains(&format!("api/{kind}.json")),
            "{kind} is not in {names:?}"
        );
    }
    kube.finish();
}

#[test]
fn a_failed_installation_leaves_a_bundle() {
    let site = Site::new(6, "bootstrap_timeout=1s");
    let failed = site.deploy();
    assert_eq!(failed.code, Some(6));
    let (bundle, names) = bundle(&site);
    for name in [
        "journal.jsonl",
        "log/openshift-install-gather-bootstrap.log",
        "log-bundle-20261121100000/gather.log",
    ] {
        assert!(names.iter().any(|found| found == name), "{name} is not in {names:?}");
    }
    let text = failed.message().replace(&bundle.display().to_string(), "<bundle>");
    let ip = site.sandbox.parameters("lab").unwrap().api_ip.to_string();
    insta::assert_snapshot!(text.replace(&ip, "<vip>"));
}
