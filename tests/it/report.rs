//! The page of `ocpdeploy report`: a golden file for a small cluster, and checks in a browser.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::left_out::left_out;
use crate::support::sandbox::{Sandbox, outcome};
use jiff::{SignedDuration, Timestamp};
use ocpdeploy::backend::{Machine, Power, SeenNic};
use ocpdeploy::cluster::{MachineName, Pass};
use ocpdeploy::report::html::{Input, Warning, page};
use ocpdeploy::state::durations::{Deployment, Phase};
use ocpdeploy::state::inventory::Cluster;
use ocpdeploy::state::journal::Entry;
use serde_json::{Value, json};

const PASSWORD: &str = "vrrppass";

fn at(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
}

fn entry(seconds: i64, event: &str, step: &str, output: Value) -> Entry {
    serde_json::from_value(json!({
        "v": 1, "seq": 1, "time": at(seconds), "event": event, "step": step, "input": "0123", "output": output,
    }))
    .unwrap()
}

fn note(seconds: i64, name: &str, fact: Value) -> Entry {
    Entry {
        input: String::new(),
        ..entry(seconds, "done", name, fact)
    }
}

/// A cluster with these numbers of masters and workers, on a network of this name.
fn cluster(masters: u32, workers: u32, network: &str) -> Cluster {
    let node = |role: &str, name: String, last: u32| {
        json!({
            "name": name, "role": role, "mac": format!("52:54:00:00:{:02x}:{:02x}", last / 256, last % 256),
            "ip": format!("10.0.{}.{}", last / 256, last % 256),
        })
    };
    let masters = (0..masters).map(|n| node("master", format!("master-{n}"), 11 + n));
    let workers = (0..workers).map(|n| node("worker", format!("worker-{n}"), 21 + n));
    let bootstrap = node("bootstrap", "bootstrap".to_owned(), 10);
    let nodes: Vec<_> = std::iter::once(bootstrap).chain(masters).chain(workers).collect();
    let size = json!({"cpus": 4, "memory_mib": 16384, "disk_gib": 100, "extra_disks_gib": []});
    Cluster {
        known: serde_json::from_value(json!({
            "v": 2, "name": "lab", "domain": "example.com", "rehearsal": true,
            "deployment": {"id": "x7k2pqrs", "creation": "anna@laptop 2026-11-28T09:12:13Z"},
            "backend": { "sim": { "state": "/sim.json" } },
            "sizes": {"bootstrap": size, "master": size, "worker": size, "pools": {}}, "platform_timeout": 120,
        }))
        .unwrap(),
        parameters: serde_json::from_value(json!({
            "v": 1, "written_by": "a test", "cluster": "lab", "domain": "example.com", "backend": "sim",
            "network": network, "network_identity": "sim:default", "machine_network": "10.0.0.0/22",
            "gateway": "10.0.0.1", "resolvers": ["10.0.0.1", "10.0.0.2"], "harvest": "boot",
            "api_ip": "10.0.0.200", "api_mac": "52:54:00:01:00:c8",
            "ingress_ip": "10.0.0.201", "ingress_mac": "52:54:00:01:00:c9",
            "virtual_router_id": 200, "ingress_virtual_router_id": 201, "vrrp_password": PASSWORD, "nodes": nodes,
        }))
        .unwrap(),
    }
}

/// A deployment with round times; master-1 has moved, and a night lies between two runs.
fn journal(cluster: &Cluster) -> Vec<Entry> {
    let nodes = &cluster.parameters.as_ref().unwrap().nodes;
    let carrier = json!({"name": "Secret", "bytes": 1_048_576, "fetches": false});
    let mut journal = vec![
        note(0, "run", json!(1)),
        note(
            0,
            "chosen",
            json!({
                "program": "0.1.0", "installer": "4.19.3", "lb": "keepalived", "dns": "dnsmasq", "dhcp": "platform",
                "mcs": "tls", "routers": ["worker"],
                "carriers": {"bootstrap": carrier, "master": carrier, "worker": carrier},
            }),
        ),
        entry(0, "begun", "release", Value::Null),
        entry(
            3,
            "done",
            "release",
            json!({"version": [4, 19], "images": {"coredns": "registry.example.com/release@sha256:00"}}),
        ),
        entry(3, "begun", "pass-one/create", Value::Null),
    ];
    journal.extend(
        nodes
            .iter()
            .map(|node| note(8, &format!("pass-one/create/{}", node.name), Value::Null)),
    );
    journal.push(entry(8, "done", "pass-one/create", Value::Null));
    journal.push(entry(8, "begun", "pass-one/leases", Value::Null));
    let seen = nodes
        .iter()
        .zip(0..)
        .map(|(node, n)| note(30 + n, &format!("pass-one/leases/{}", node.name), json!(node.ip)));
    journal.extend(seen);
    let held: serde_json::Map<_, _> = nodes
        .iter()
        .map(|node| (node.name.to_string(), json!("byplatform")))
        .collect();
    let night = 60 * 60 * 9;
    let sizes = nodes.iter().map(|node| {
        (
            node.name.to_string(),
            json!({"sha512": "00", "bytes": if node.name.as_str() == "bootstrap" { 421_000 } else { 2_400 }}),
        )
    });
    journal.extend([
        entry(90, "done", "pass-one/leases", json!([])),
        entry(90, "begun", "pass-one/hold", Value::Null),
        entry(92, "done", "pass-one/hold", Value::Object(held)),
        entry(92, "begun", "assets", Value::Null),
        note(night, "run", json!(2)),
        entry(night, "begun", "assets", Value::Null),
        entry(night + 9, "done", "assets", json!({"made_at": at(night + 9)})),
        entry(night + 9, "begun", "merge", Value::Null),
        entry(night + 10, "done", "merge", Value::Object(sizes.collect())),
    ]);
    for (node, n) in nodes.iter().zip(0..) {
        let create = format!("pass-two/create/{}", node.name);
        let seen = if node.name.as_str() == "master-1" {
            json!("10.0.3.99")
        } else {
            json!(node.ip)
        };
        journal.extend([
            entry(night + 10 + n, "begun", &create, Value::Null),
            entry(night + 13 + n, "done", &create, Value::Null),
            note(night + 50 + n, &format!("{create}/address"), seen),
        ]);
    }
    let mut failed = entry(night + 160, "failed", "bootstrap-complete", Value::Null);
    failed.error = "the API of the cluster is not reached\n  console: <b>tail</b>".to_owned();
    journal.extend([entry(night + 110, "begun", "bootstrap-complete", Value::Null), failed]);
    journal
}

/// Other deployments, on the same platform and on another one.
fn deployments(cluster: &Cluster) -> Vec<Deployment> {
    let one = |name: &str, backend: &str, seconds: u64| Deployment {
        nodes: 5,
        cluster: format!("{name}.example.com"),
        installed: at(5),
        backend: backend.to_owned(),
        rehearsal: cluster.known.rehearsal,
        phases: [(Phase::PassOne, seconds * 1000), (Phase::PassTwo, 1000)].into(),
    };
    let here = cluster.known.backend.name();
    vec![
        one("slow", here, 600),
        one("fast", here, 60),
        one("other", "elsewhere", 1),
    ]
}

fn made(cluster: &Cluster, journal: &[Entry], warnings: &[Warning]) -> String {
    let deployments = deployments(cluster);
    page(&Input {
        cluster,
        journal,
        holder: None,
        machines: Err("connect to the platform: refused".to_owned()),
        warnings,
        now: at(60 * 60 * 10),
        deployments: &deployments,
    })
    .unwrap()
}

/// A deployment with two further NICs on each node, the last of which has no address, as a platform reports them.
fn on_more_networks() -> String {
    let cluster = cluster(3, 2, "default");
    let mut journal = journal(&cluster);
    for chosen in journal.iter_mut().filter(|entry| entry.step == "chosen") {
        chosen.output["extra_networks"] = json!(["storage-of-the-datacenter", "backup"]);
    }
    let nodes = &cluster.parameters.as_ref().unwrap().nodes;
    let machine = |(node, n): (&ocpdeploy::state::parameters::NodeAddress, u8)| {
        let nic = |network: &str, third: u8| SeenNic {
            network: network.to_owned(),
            mac: format!("52:54:00:0{third}:00:{n:02x}").parse().unwrap(),
            addresses: (third == 1).then(|| [10, 9, 0, n].into()).into_iter().collect(),
        };
        let own = SeenNic {
            mac: node.mac,
            addresses: vec![node.ip],
            ..nic("default", 0)
        };
        Machine {
            name: MachineName::of_node("lab", &node.name),
            node: node.name.clone(),
            role: node.role,
            pass: Pass::Two,
            fingerprint: String::new(),
            power: Power::Running,
            nics: vec![own, nic("storage-of-the-datacenter", 1), nic("backup", 2)],
            creation: None,
        }
    };
    let machines: Vec<Machine> = nodes.iter().zip(10..).map(machine).collect();
    page(&Input {
        cluster: &cluster,
        journal: &journal,
        holder: None,
        machines: Ok(&machines),
        warnings: &[],
        now: at(60 * 60 * 10),
        deployments: &[],
    })
    .unwrap()
}

#[test]
fn further_networks_are_in_the_picture_and_their_nics_in_a_table() {
    let page = on_more_networks();
    let text = "Network storage-of-the-datacenter: second NIC of each node. Network backup: third NIC of each node.";
    assert_eq!(
        page.matches(text).count(),
        2,
        "both pictures have it as a text alternative"
    );
    assert_eq!(page.matches("<g class=\"net\">").count(), 4, "two bars at each width");
    for of_master_0 in ["52:54:00:01:00:0b", "10.9.0.11", "52:54:00:02:00:0b"] {
        assert!(page.contains(of_master_0), "{of_master_0} is not in the table");
    }
    assert_eq!(page.matches("none found").count(), 6, "one for each node");
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots/report.html")
}

/// Updated with UPDATE_GOLDEN=1.
#[test]
fn the_page_of_a_small_cluster_is_unchanged() {
    let cluster = cluster(3, 2, "default");
    let warnings = [Warning {
        time: "1970-01-01T00:00:05Z".to_owned(),
        text: "the network has no DHCP range".to_owned(),
    }];
    let page = made(&cluster, &journal(&cluster), &warnings);
    assert!(!page.contains(PASSWORD), "the page has a secret");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(golden(), &page).unwrap();
    }
    let kept = std::fs::read_to_string(golden()).unwrap_or_default();
    assert!(
        page == kept,
        "the page differs; check it, and UPDATE_GOLDEN=1 updates the golden file"
    );
}

/// Hostile text in names of networks, in logs and in messages of an engine.
const HOSTILE: &str = "<script>alert(1)</script><img src=x onerror=alert(2)>'\"</style></title><xss>&amp;{{ 7 * 7 }}";

fn hostile() -> String {
    let mut cluster = cluster(3, 2, HOSTILE);
    cluster.known.name = HOSTILE.to_owned();
    let mut journal = journal(&cluster);
    for entry in &mut journal {
        if !entry.error.is_empty() {
            entry.error = HOSTILE.to_owned();
        }
        if entry.step == "chosen" {
            entry.output["extra_networks"] = json!([HOSTILE]);
        }
    }
    journal.push(entry(60 * 60 * 9 + 170, "begun", HOSTILE, Value::Null));
    let warning = Warning {
        time: HOSTILE.to_owned(),
        text: HOSTILE.to_owned(),
    };
    made(&cluster, &journal, &[warning])
}

#[test]
fn external_text_is_escaped() {
    let page = hostile();
    for markup in ["<script", "<img", "<xss", "'\"</style>"] {
        assert!(!page.contains(markup), "{markup} is in the page");
    }
    assert!(page.contains("{{ 7 * 7 }}"), "it is not rendered");
    assert_eq!(page.matches("</style>").count(), 1);
    assert!(page.matches("&lt;script&gt;").count() > 5, "it is shown as text");
}

#[test]
fn a_cluster_without_data_has_a_page() {
    let mut cluster = cluster(1, 0, "default");
    cluster.parameters = None;
    let page = made(&cluster, &[], &[]);
    assert!(
        page.contains("no addresses are known yet") && page.contains("Not started"),
        "{page}"
    );
}

#[test]
fn the_command_writes_a_private_page_of_the_deployment() {
    use std::os::unix::fs::PermissionsExt;
    let network = |part: u8| {
        let ip = |last: u8| format!("10.77.{part}.{last}");
        json!({"cidr": format!("10.77.{part}.0/24"), "gateway": ip(1), "dhcp_from": ip(2), "dhcp_to": ip(254)})
    };
    let sandbox = Sandbox::new(json!({"networks": {"default": network(0), "storage": network(1)}}));
    sandbox.env("lab", "masters=1\nworkers=1\nextra_networks=storage");
    sandbox.deploy("lab").succeeded();
    sandbox.run(&["report", "lab", "-o", "lab.html"]).succeeded();
    let path = sandbox.path().join("lab.html");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let page = std::fs::read_to_string(&path).unwrap();
    let parameters = sandbox.parameters("lab").unwrap();
    for node in &parameters.nodes {
        assert!(
            page.contains(&node.mac.to_string()) && page.contains(&node.ip.to_string()),
            "{}",
            node.name
        );
    }
    assert!(
        page.contains("2 of 2"),
        "master and worker are as planned, and the bootstrap is removed"
    );
    assert!(page.contains("address stable after"), "the machines' times are known");
    assert!(
        page.contains("Network storage: second NIC of each node."),
        "the further network is in the picture"
    );
    assert_eq!(page.matches("<span>storage</span>").count(), 2, "master and worker");
    assert_eq!(
        sandbox
            .run(&["report", "lab", "-o", "-"])
            .succeeded()
            .stdout
            .lines()
            .next(),
        Some("<!DOCTYPE html>")
    );
    // An existing file is replaced, and not written into.
    let other = sandbox.path().join("other.html");
    std::fs::hard_link(&path, &other).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    // The platform becomes unreachable; the page is still written, and reports that.
    std::fs::write(sandbox.path().join("sim.json"), "{").unwrap();
    sandbox.run(&["report", "lab", "-o", "lab.html"]).succeeded();
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page.contains("Cannot get the current state of the machines"));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_ne!(std::fs::read_to_string(&other).unwrap(), page);
}

#[test]
fn a_watch_reports_changes_and_ends_with_the_deployment() {
    // The watch must start within the time of two boots.
    let sandbox = Sandbox::new(json!({"script": {"boot_ms": 4000}}));
    sandbox.env("lab", "masters=1\nworkers=1");
    let deployment = sandbox.start(&["deploy", "lab.sh", "--rehearse"]);
    let (pid, begin) = (deployment.id(), Instant::now());
    while !sandbox.is_within("lab", "pass-one/leases") {
        assert!(begin.elapsed() < Duration::from_secs(60), "pass one did not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    let watched = sandbox.run(&["status", "lab", "--watch"]).succeeded().stdout;
    outcome(deployment).succeeded();
    let running = format!("phase   installing (process {pid} on ");
    assert!(watched.contains(&running), "{running}\n{watched}");
    let lines: Vec<&str> = watched
        .lines()
        .filter_map(|line| line.split_once("Z "))
        .map(|(_, line)| line)
        .collect();
    assert!(
        lines.contains(&"lab: rehearsal succeeded") && lines.contains(&"lab master-0: ok same"),
        "{watched}"
    );

    sandbox.env("cut", "masters=1\nworkers=0");
    sandbox.kill_deployment("cut", |sandbox| sandbox.is_within("cut", "pass-one/leases"));
    let watched = sandbox.run(&["status", "cut", "--watch"]);
    assert_eq!(watched.code, Some(1), "{}", watched.stderr);
    // The image upload may or may not be running, too.
    let phase = watched.stdout.lines().find(|line| line.starts_with("phase "));
    let phase = phase.unwrap_or_else(|| panic!("{}", watched.stdout));
    assert!(phase.contains("interrupted at pass-one/leases"), "{phase}");
    assert!(phase.ends_with("; to resume, run the same command again"), "{phase}");
}

/// What the browser measured of a page, by width and scheme.
fn looked_at(name: &str, page: &str) -> Option<Value> {
    let Some(browser) = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| {
            let found = Command::new(name).arg("--version").output();
            found.is_ok_and(|output| output.status.success())
        })
    else {
        left_out("chromium is not installed: nobody looked at the pages");
        return None;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("{name}.html"));
    std::fs::write(&path, page).unwrap();
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/browser.py");
    let mut command = Command::new("python3");
    command.arg(driver).arg(browser).arg(&path);
    // Keeps screenshots if requested.
    command.args(std::env::var_os("OCPDEPLOY_TEST_PICTURES"));
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn a_removed_bootstrap_is_not_shown_as_running() {
    let cluster = cluster(3, 2, "default");
    let mut journal = journal(&cluster);
    let with_bootstrap = made(&cluster, &journal, &[]);
    journal.extend([
        entry(60 * 60 * 9 + 200, "begun", "bootstrap-removed", Value::Null),
        entry(60 * 60 * 9 + 201, "done", "bootstrap-removed", Value::Null),
    ]);
    let without = made(&cluster, &journal, &[]);
    for (page, looks, verdict, same) in [
        (&with_bootstrap, "same", "same", "5 of 6"),
        (&without, "removed", "removed", "4 of 5"),
    ] {
        assert!(
            page.contains(&format!("<g class=\"node {looks}\"><title>bootstrap,")),
            "{looks}"
        );
        let row = page
            .lines()
            .find(|line| line.contains("scope=\"row\">bootstrap<"))
            .unwrap();
        assert!(
            row.contains(&format!("<span class=\"{looks}-text\">{verdict}</span>")),
            "{row}"
        );
        assert!(page.contains(&format!("<dd>{same}</dd>")), "{same}");
    }
}

#[test]
fn a_browser_renders_the_page_at_each_width_in_light_and_dark() {
    let (small, large) = (cluster(3, 2, "default"), cluster(3, 47, "default"));
    let pages = [
        ("small", made(&small, &journal(&small), &[]), 2 + 10 + 24),
        ("large", made(&large, &journal(&large), &[]), 2 + 10 + 200),
        ("networks", on_more_networks(), 2 + 10 + 24),
        ("hostile", hostile(), 2 + 10 + 24),
    ];
    for (name, page, bars) in pages {
        let Some(measured) = looked_at(name, &page) else { return };
        for width in [1280, 390] {
            let [light, dark] = ["light", "dark"].map(|scheme| &measured[format!("{width} {scheme}")]);
            assert_ne!(
                light["background"], dark["background"],
                "{name} at {width}: dark mode looks the same"
            );
            for seen in [light, dark] {
                let told = format!("{name} at {width}: {seen:#}");
                assert_eq!(seen["overflow"], 0, "{told}");
                for nothing in ["beyond", "dead_links", "twice", "outside"] {
                    assert_eq!(seen[nothing], json!([]), "{nothing}, {told}");
                }
                if name != "hostile" {
                    assert_eq!(seen["texts_beyond"], json!([]), "{told}");
                }
                for none in ["nameless", "scripts", "foreign"] {
                    assert_eq!(seen[none], 0, "{none}, {told}");
                }
                assert_eq!(seen["landmarks"].as_array().map(Vec::len), Some(4), "{told}");
                assert_eq!(seen["lang"], "en", "{told}");
                assert!(seen["pictures"].as_u64() > Some(5), "{told}");
                assert!(seen["bars"].as_u64() > Some(bars), "{told}");
            }
        }
        let tab = measured["tab"].to_string();
        for link in [
            "A #content",
            "A #topology",
            "A #timeline",
            "A #addresses",
            "SUMMARY Masters",
            "SUMMARY Each node",
        ] {
            assert!(tab.contains(link), "{name}: the keyboard does not reach {link}: {tab}");
        }
    }
}
