//! The binary from nothing to a running cluster: pretend machines, a strict fake of openshift-install, and a fake API on the VIP.

#[path = "support/fake_kube/mod.rs"]
mod fake_kube;
#[path = "support/mcs_server.rs"]
mod mcs_server;
#[expect(dead_code, reason = "rehearsals are other tests")]
#[path = "support/place.rs"]
mod place;

use std::cell::RefCell;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Child;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fake_kube::authority::Authority;
use fake_kube::server::FakeKube;
use fake_kube::world::{SIGNERS, Stage, World};
use ocpdeploy::cluster::NodeName;
use place::{Outcome, Place, outcome, pretend_platform};
use serde_json::{Value, json};

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvT2Wdq2dMbFf8hh+o/a4HZMBbqvP6vpsXfB4pMJ6Ma lab\n";
const NODES: [&str; 5] = [
    "lab-master-0",
    "lab-master-1",
    "lab-master-2",
    "lab-worker-0",
    "lab-worker-1",
];

/// A place whose pretend network is on the loopback, with all that a real deployment needs beside it.
struct Site {
    place: Place,
    authority: Authority,
}

impl Site {
    fn new(network: u8, lines: &str) -> Self {
        let ip = |last: u8| format!("127.93.{network}.{last}");
        let place = Place::new(json!({"script": {"boot_ms": 10}, "networks": {"default": {
            "cidr": format!("{}/24", ip(0)), "gateway": ip(1), "dhcp_from": ip(2), "dhcp_to": ip(254)}}}));
        for program in ["openshift-install", "oc"] {
            let fake = format!("{}/tests/fixtures/{program}", env!("CARGO_MANIFEST_DIR"));
            symlink(fake, place.path().join(program)).unwrap();
        }
        let authority = Authority::new();
        for (name, text) in [
            (
                "kubeconfig",
                authority.kubeconfig("lab", "https://api.lab.example.com:6443").as_str(),
            ),
            (
                "pull-secret.json",
                r#"{"auths":{"a.example.com":{"auth":"Zm9vOmJhcg=="}}}"#,
            ),
            ("root-ca.crt", authority.pem()),
            ("key.pub", KEY),
            ("node.qcow2", "QFI\u{fb} a node"),
            ("helper.qcow2", "QFI\u{fb} a helper"),
        ] {
            std::fs::write(place.path().join(name), text).unwrap();
        }
        place.env(
            "lab",
            &format!(
                "installer=openshift-install\npull_secret=pull-secret.json\npub_key=key.pub\nimage=./node.qcow2\n\
                 helper_image=./helper.qcow2\n{lines}"
            ),
        );
        Self { place, authority }
    }

    fn start(&self, flags: &[&str]) -> Child {
        let arguments: Vec<&str> = ["deploy", "lab.sh"].iter().chain(flags).copied().collect();
        self.place.start(&arguments)
    }

    fn deploy(&self) -> Outcome {
        outcome(self.start(&[]))
    }

    /// The cluster's API on its VIP, as soon as that is known; nodes are there when their machines are.
    fn kube(&self, child: &mut Child, gate: Stage) -> FakeKube {
        until("the parameter file", || {
            self.place.parameters("lab").is_some() || child.try_wait().unwrap().is_some()
        });
        let Some(table) = self.place.parameters("lab") else {
            let mut text = String::new();
            child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
            panic!("{text}");
        };
        let address = SocketAddr::from((table.api_ip, 6443));
        let certificate = self.authority.server("api.lab.example.com", |_| {});
        let mut world = World::new(table).hostile();
        world.gate = gate;
        let file = self.place.path().join("sim.json");
        // Read again only when it has changed: this is asked hundreds of times a second.
        let seen = RefCell::new((None, Value::Null));
        world.present = Some(Box::new(move |node: &NodeName| {
            let now = std::fs::metadata(&file)
                .ok()
                .map(|file| (file.len(), file.modified().unwrap()));
            let (then, state) = &mut *seen.borrow_mut();
            if *then != now {
                (*then, *state) = (now, pretend_platform(&file).unwrap_or_default());
            }
            state["machines"][format!("lab-{node}")]["pass"] == "two"
        }));
        FakeKube::start(world, address, &self.authority, &certificate)
    }

    fn machines(&self) -> Vec<String> {
        self.place.of_pass("lab", "two")
    }

    fn holds_bootstrap(&self) -> bool {
        self.place
            .reservations(Some("lab"))
            .iter()
            .any(|(_, kept)| kept["name"] == "bootstrap")
    }

    /// Kills a deployment in this step, once it has asked the API there.
    fn kill_within(&self, mut child: Child, kube: &FakeKube, step: &str) {
        until(step, || {
            self.place.is_within("lab", step) || child.try_wait().unwrap().is_some()
        });
        let before = kube.with(|world| world.asked);
        until("questions", || {
            kube.with(|world| world.asked) > before + 5 || child.try_wait().unwrap().is_some()
        });
        child.kill().unwrap();
        let outcome = outcome(child);
        assert_eq!(outcome.code, None, "it was not killed: {}", outcome.stderr);
    }

    /// Makes the files as old as these hours, behind everybody's back.
    fn age_assets(&self, hours: i64) {
        let path = self.place.home().cluster("lab").journal();
        let made_at = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(hours);
        let aged = |line: &str| {
            let mut entry: Value = serde_json::from_str(line).unwrap();
            if entry["step"] == "assets" && entry["event"] == "done" {
                entry["output"]["made_at"] = json!(made_at);
            }
            format!("{entry}\n")
        };
        let text: String = std::fs::read_to_string(&path).unwrap().lines().map(aged).collect();
        std::fs::write(&path, text).unwrap();
    }
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends the API; all rightful requests were approved, each once, and no other.
#[track_caller]
fn finish(kube: FakeKube) {
    let mut world = kube.finish();
    world.approved.sort();
    world.rightful.sort();
    assert_eq!(world.rightful.len(), 4);
    assert_eq!(world.approved, world.rightful);
}

/// What a master or a worker finds at its first boot, where its own config has all of it.
fn config_of(site: &Site, node: &str) -> Value {
    let path = site.place.home().cluster("lab").ignition(node);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn without_a_dns_the_machine_config_server_is_asked_for_the_nodes() {
    let site = Site::new(7, "mcs=embed\n");
    let mut child = site.start(&[]);
    let kube = site.kube(&mut child, Stage::Installed);
    let table = site.place.parameters("lab").unwrap();
    let certificate = site.authority.server("api-int.lab.example.com", |_| {});
    let mut asked = 0;
    let address = SocketAddr::from((table.api_ip, 22623));
    let rendered = |path: &str| {
        let file = json!({"path": "/etc/served", "mode": 420, "contents": {"source": format!("data:,{path}"), "compression": ""}});
        json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [file]}}).to_string()
    };
    let server = mcs_server::McsServer::start(address, &certificate.certificate, &certificate.key, move |path| {
        asked += 1;
        // Bootstrap's server takes a while, and never has anything for workers.
        (asked > 2)
            .then(|| (200, rendered(path).into_bytes()))
            .or(Some((500, Vec::new())))
    });
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
    let shown = site
        .place
        .run(&["ignition", "show", "worker-1", "--cluster", "lab"])
        .succeeded();
    assert!(
        shown.stdout.contains("the machine config server's worker"),
        "{}",
        shown.stdout
    );
}

#[test]
fn a_cluster_comes_up_from_machines_to_its_kubeconfig() {
    let site = Site::new(1, "");
    let mut child = site.start(&[]);
    let kube = site.kube(&mut child, Stage::Installed);
    let outcome = outcome(child).succeeded();
    for (days, words) in [
        (1, "before the first rotation: 23 h left"),
        (29, "the first rotation is done"),
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
        until(words, || {
            let status = site.place.run(&["status", "lab"]).succeeded();
            status.stdout.contains(words)
        });
    }
    finish(kube);
    let silent = site.place.run(&["status", "lab"]).succeeded();
    assert!(
        silent.stdout.contains("whether the cluster has its own is not known"),
        "{}",
        silent.stdout
    );
    assert_eq!(site.machines(), NODES);
    assert!(!site.holds_bootstrap());
    let folder = site.place.home().cluster("lab");
    let told = [
        format!("kubeconfig {}\n", folder.kubeconfig().display()),
        "console    https://console-openshift-console.apps.lab.example.com\n".to_owned(),
        format!("kubeadmin's password is in {}\n", folder.kubeadmin_password().display()),
        " api.lab.example.com\n".to_owned(),
    ];
    for told in told {
        assert!(outcome.stdout.contains(&told), "{told}\n{}", outcome.stdout);
    }
    let all = outcome.stdout + &outcome.stderr;
    assert!(!all.contains("pqrst"), "the password is told");
    for told in [
        "lab-worker-0: client certificate approved (csr-client-worker-0)",
        "lab-worker-1: serving certificate approved (csr-serving-worker-1)",
        "request csr-hostile-foreign-ip of system:node:worker-1.lab.example.com is not approved: 192.0.2.66 is not the address of worker-1",
    ] {
        assert!(all.contains(told), "{told}\n{all}");
    }
    let refusals = all.matches("csr-hostile-foreign-ip").count();
    assert_eq!(refusals, 1, "it is told once\n{all}");
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
        (Stage::Bootstrapped, "install-complete", 5),
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
fn workers_may_be_made_when_the_masters_are_ready() {
    let site = Site::new(3, "workers_when=ready");
    let mut child = site.start(&[]);
    let kube = site.kube(&mut child, Stage::Masters);
    until("the wait", || site.place.is_within("lab", "bootstrap-complete"));
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
fn the_bootstrap_stays_as_long_as_it_is_asked_to() {
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
fn files_that_are_too_old_are_made_anew_unless_machines_have_them() {
    let site = Site::new(5, "");
    let mut child = site.start(&[]);
    let kube = site.kube(&mut child, Stage::Api);
    site.kill_within(child, &kube, "bootstrap-complete");
    site.age_assets(21);
    let refused = site.deploy();
    assert_eq!(refused.code, Some(4));
    insta::assert_snapshot!(refused.message());

    site.place.edit(|world| world["machines"] = json!({}));
    kube.with(|world| world.gate = Stage::Installed);
    let anew = site.deploy().succeeded();
    assert!(
        anew.stderr
            .contains("the files are 21 hours old; no machine has them, so they are made anew"),
        "{}",
        anew.stderr
    );
    finish(kube);
    assert_eq!(site.machines(), NODES);

    // A cluster that carries itself is not bound to the files' age.
    site.age_assets(100);
    site.deploy().succeeded();
}

#[test]
fn a_cluster_that_does_not_come_up_leaves_a_bundle() {
    let site = Site::new(6, "bootstrap_timeout=1s");
    let failed = site.deploy();
    assert_eq!(failed.code, Some(6));
    let folder = site.place.home().cluster("lab");
    let mut bundles = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let bundle = bundles
        .find(|path| path.extension().is_some_and(|extension| extension == "tar"))
        .unwrap();
    assert_eq!(std::fs::metadata(&bundle).unwrap().permissions().mode() & 0o777, 0o600);
    let mut tar = tar::Archive::new(std::fs::File::open(&bundle).unwrap());
    let names: Vec<String> = tar
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().path().unwrap().display().to_string())
        .collect();
    for name in [
        "journal.jsonl",
        "log/openshift-install-gather-bootstrap.log",
        "log-bundle-20261121100000.tar.gz",
    ] {
        assert!(names.iter().any(|found| found == name), "{name} is not in {names:?}");
    }
    let text = failed.message().replace(&bundle.display().to_string(), "<bundle>");
    let ip = site.place.parameters("lab").unwrap().api_ip.to_string();
    insta::assert_snapshot!(text.replace(&ip, "<vip>"));
}
