//! External nodes: machines that this program did not create join, are listed by name and address, and never changed.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::support::fake_kube::server::FakeKube;
use crate::support::fake_kube::world::{LEASES, MACHINE_CONFIGS, NODES, Stage};
use crate::support::sandbox::{Outcome, Sandbox, outcome};
use crate::support::site::Site;
use crate::support::until::{LONG, until};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ocpdeploy::cluster::NodeName;
use serde_json::{Value, json};

const LAB: &str = "masters=3\nworkers=2\nimage=coreos\nharvest_image=helper";
const MAC: &str = "02:00:00:00:00:01";

/// An installed cluster on the loopback, whose addresses no other computer has.
fn lab() -> Sandbox {
    let network =
        json!({"cidr": "127.94.0.0/24", "gateway": "127.94.0.1", "dhcp_from": "127.94.0.2", "dhcp_to": "127.94.0.199"});
    let sandbox = Sandbox::new(json!({"networks": {"default": network}}));
    sandbox.env("lab", LAB);
    sandbox.deploy("lab").succeeded();
    sandbox
}

fn join_file(sandbox: &Sandbox, node: &str, more: &[&str]) -> Outcome {
    sandbox.run(&[&["node", "join-file", "lab", node], more].concat())
}

/// All objects on the platform.
fn platform(sandbox: &Sandbox) -> Value {
    let state = sandbox.state();
    json!([state["machines"], state["reservations"]])
}

#[track_caller]
fn assert_private(path: &Path) {
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600, "{}", path.display());
}

#[test]
fn a_node_that_cannot_join_is_rejected_and_not_recorded() {
    let sandbox = lab();
    let before = sandbox.parameters("lab").unwrap();
    let worker = before.nodes.last().unwrap();
    let (taken_ip, taken_mac) = (worker.ip.to_string(), worker.mac.to_string());
    let free = "127.94.0.220";
    for (node, mac, ip, words) in [
        ("metal-0", "", "", "the MAC address of its NIC is unknown"),
        ("metal-0", MAC, "", "its address is unknown"),
        ("metal-0", MAC, "10.0.0.1", "outside the machine network"),
        ("metal-0", MAC, "127.94.0.1", "is the gateway"),
        ("metal-0", MAC, "127.94.0.255", "network or broadcast address"),
        ("metal-0", MAC, &taken_ip, "worker-1 has"),
        ("metal-0", &taken_mac, free, "worker-1 has"),
        ("metal-0", "01:00:00:00:00:01", free, "not a unicast MAC"),
        ("worker-1", MAC, free, "a node whose machine ocpdeploy created"),
        ("master-7", MAC, free, "it must be a worker"),
        ("metal", MAC, free, "NAME-NUMBER"),
    ] {
        let given = [("--mac", mac), ("--ip", ip)];
        let given = given.iter().filter(|(_, value)| !value.is_empty());
        let given: Vec<&str> = given.flat_map(|(option, value)| [*option, *value]).collect();
        let refused = join_file(&sandbox, node, &given);
        assert_eq!(refused.code, Some(2), "{node} {given:?}: {}", refused.stderr);
        assert!(refused.message().contains(words), "{words}: {}", refused.stderr);
    }
    assert_eq!(sandbox.parameters("lab").unwrap(), before);
    assert!(!sandbox.path().join("lab-metal-0.ign").exists());
    for verb in ["join", "remove"] {
        let unknown = sandbox.run(&["node", verb, "lab", "metal-0"]);
        assert!(
            unknown.message().contains("metal-0 is not a node"),
            "{}",
            unknown.stderr
        );
        let ours = sandbox.run(&["node", verb, "lab", "worker-1"]);
        assert!(
            ours.message().contains("ocpdeploy created its machine"),
            "{}",
            ours.stderr
        );
    }
}

#[test]
fn an_external_node_is_listed_and_its_machine_never_changed() {
    let sandbox = lab();
    let before = platform(&sandbox);
    let made = join_file(&sandbox, "metal-0", &["--mac", MAC, "--ip", "127.94.0.220"]).succeeded();
    let file = sandbox.path().join("lab-metal-0.ign");
    assert_private(&file);
    for words in [
        "the DHCP server must assign 127.94.0.220 to 02:00:00:00:00:01",
        "coreos-installer iso customize --dest-device /dev/DISK --dest-ignition lab-metal-0.ign -o lab-metal-0.iso COREOS-LIVE.iso",
        "ocpdeploy node join lab metal-0",
    ] {
        assert!(made.stdout.contains(words), "{words}: {}", made.stdout);
    }
    let text = std::fs::read_to_string(&file).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    let merged = config["ignition"]["config"]["merge"].as_array().unwrap();
    let own = merged.last().unwrap()["source"].as_str().unwrap();
    let own = STANDARD.decode(own.split_once(',').unwrap().1).unwrap();
    let own: Value = serde_json::from_slice(&own).unwrap();
    let name = own["storage"]["files"].as_array().unwrap().iter();
    let name = name.filter(|file| file["path"] == "/etc/hostname").count();
    assert_eq!(name, 1, "{own}");
    // The same command without the address is a repetition; with another address it is not.
    std::fs::remove_file(&file).unwrap();
    join_file(&sandbox, "metal-0", &[]).succeeded();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    let other = join_file(&sandbox, "metal-0", &["--ip", "127.94.0.221"]);
    assert!(other.message().contains("the table has it with"), "{}", other.stderr);

    // Commands with node names accept it.
    let said = |words: &[&str]| sandbox.run(words).succeeded().stdout;
    assert!(said(&["export", "hosts", "lab"]).contains("127.94.0.220 metal-0.lab.example.com"));
    assert!(said(&["export", "dhcp", "lab"]).contains(&format!("{MAC},127.94.0.220")));
    assert!(said(&["export", "haproxy", "lab"]).contains("127.94.0.220:443"));
    assert!(!said(&["export", "ansible", "lab", "--format", "inventory"]).contains("metal-0"));
    let status = said(&["status", "lab"]);
    let row = status.lines().find(|line| line.contains("metal-0")).unwrap();
    assert!(row.contains("external"), "{status}");
    let verified = said(&["verify", "lab"]);
    assert!(verified.contains("metal-0 is an external node"), "{verified}");
    let shown = said(&["ignition", "show", "lab", "metal-0", "--file", "/etc/hostname"]);
    assert_eq!(shown, "metal-0.lab.example.com\n");
    for verb in ["show", "console", "replace"] {
        let refused = sandbox.run(&["node", verb, "lab", "metal-0"]);
        assert_eq!(refused.code, Some(2), "{verb}: {}", refused.stderr);
        assert!(refused.message().contains("is an external node"), "{}", refused.stderr);
    }
    let env = sandbox.env("lab", &format!("{LAB}\nmtu=1400"));
    let recorded = || std::fs::read_to_string(sandbox.home().cluster("lab").settings()).unwrap();
    assert!(!recorded().contains("1400"));
    said(&["node", "join", "lab", "metal-0", "--env", env.to_str().unwrap()]);
    assert!(recorded().contains("\"mtu\": \"1400\""), "{}", recorded());
    assert_eq!(platform(&sandbox), before, "the platform was changed");

    // Workers can be added and removed, but none with its name.
    join_file(
        &sandbox,
        "worker-3",
        &["--mac", "02:00:00:00:00:02", "--ip", "127.94.0.221"],
    )
    .succeeded();
    let grown = said(&["scale", "lab", "--workers", "3"]);
    assert!(grown.contains("added: worker-2\n"), "{grown}");
    let table = sandbox.parameters("lab").unwrap();
    let refused = sandbox.run(&["scale", "lab", "--workers", "4"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(
        refused.message().contains("worker-3: an external node"),
        "{}",
        refused.stderr
    );
    assert_eq!(sandbox.parameters("lab").unwrap(), table);
    let removed = said(&["node", "remove", "lab", "worker-3"]);
    assert!(removed.contains("wipe its disk"), "{removed}");
    let shrunk = said(&["scale", "lab", "--workers", "2", "--yes"]);
    assert!(shrunk.contains("removed: worker-2\n"), "{shrunk}");
    assert_eq!(platform(&sandbox), before);

    // The user switches it off and on, and wipes it.
    let stopped = sandbox.run(&["stop", "lab"]).succeeded();
    assert!(stopped.stderr.contains("shut it down yourself"), "{}", stopped.stderr);
    let started = sandbox.run(&["start", "lab"]).succeeded();
    assert!(
        started.stderr.contains("`ocpdeploy node join lab metal-0`"),
        "{}",
        started.stderr
    );
    let table = sandbox.parameters("lab").unwrap();
    let external: Vec<_> = table.external.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(external, ["metal-0"]);
    let destroyed = said(&["destroy", "lab", "--yes"]);
    assert!(destroyed.contains("metal-0 was an external node"), "{destroyed}");
    assert_eq!(sandbox.machines(None), []);
}

#[test]
fn an_address_is_the_next_free_one_of_the_pool() {
    let sandbox = Sandbox::new(json!({}));
    let pool = "harvest=static\naddress_ranges=192.168.122.210-192.168.122.220";
    sandbox.env("lab", &format!("{LAB}\n{pool}"));
    sandbox.deploy("lab").succeeded();
    let of = |node: &str, mac: &str| {
        join_file(&sandbox, node, &["--mac", mac]).succeeded();
        let table = sandbox.parameters("lab").unwrap();
        table.node(&node.parse().unwrap()).unwrap().ip.to_string()
    };
    // VIPs, bootstrap and five nodes have the first eight.
    assert_eq!(of("metal-0", MAC), "192.168.122.218");
    assert_eq!(of("metal-1", "02:00:00:00:00:02"), "192.168.122.219");
    sandbox.run(&["node", "remove", "lab", "metal-0"]).succeeded();
    assert_eq!(of("metal-2", "02:00:00:00:00:03"), "192.168.122.218");
    of("metal-3", "02:00:00:00:00:04");
    let none = join_file(&sandbox, "metal-4", &["--mac", "02:00:00:00:00:05"]);
    assert_eq!(none.code, Some(5), "{}", none.stderr);
    // Another cluster does not get it either.
    let network = sandbox.parameters("lab").unwrap();
    assert!(
        network
            .all_leases()
            .iter()
            .any(|lease| lease.ip.to_string() == "192.168.122.220")
    );
}

/// Behaves as `coreos-installer iso customize -o`: a new file, readable by all, of an image that was not customized
/// before (coreos/coreos-installer: `src/live/mod.rs`).
const CUSTOMIZER: &str = r#"#!/bin/sh
echo "$@" >> "$HOME/argv"
[ "$1 $2" = "iso customize" ] || exit 2
shift 2
while [ $# -gt 1 ]; do
  case "$1" in
    --dest-ignition) ignition=$2 ;;
    -o) output=$2 ;;
  esac
  shift 2
done
[ -e "$output" ] && { echo "Error: $output exists" >&2; exit 1; }
grep -q pristine "$1" || { echo "Error: This image has already been customized." >&2; exit 1; }
umask 022
cat "$1" "$ignition" | sed s/pristine/customized/ > "$output"
"#;

#[test]
fn the_iso_is_built_by_coreos_installer() {
    let sandbox = lab();
    let folder = sandbox.path();
    std::fs::write(folder.join("live.iso"), "pristine\n").unwrap();
    let words = [
        "node",
        "join-file",
        "lab",
        "metal-0",
        "--mac",
        MAC,
        "--ip",
        "127.94.0.220",
        "-o",
        "box.ign",
        "--iso",
        "live.iso",
        "--device",
        "/dev/nvme0n1",
    ];
    // Without it, the command is complete.
    let without = sandbox.run(&words).succeeded();
    let command = "iso customize --dest-device /dev/nvme0n1 --dest-ignition box.ign -o box.iso live.iso";
    assert!(without.stdout.contains(command), "{}", without.stdout);
    assert!(
        without.stderr.contains("coreos-installer is not installed"),
        "{}",
        without.stderr
    );
    assert!(!folder.join("box.iso").exists());

    let bin = folder.join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::write(bin.join("coreos-installer"), CUSTOMIZER).unwrap();
    std::fs::set_permissions(bin.join("coreos-installer"), Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let run = |words: &[&str]| {
        let mut command = sandbox.command(words);
        let output = command.env("PATH", &path).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap(),
        )
    };
    for _ in 0..2 {
        let (code, said) = run(&words);
        assert_eq!(code, Some(0), "{said}");
        assert!(
            said.contains("wrote box.iso") && !said.contains("iso customize"),
            "{said}"
        );
        assert_private(&folder.join("box.iso"));
    }
    let image = std::fs::read_to_string(folder.join("box.iso")).unwrap();
    let config = std::fs::read_to_string(folder.join("box.ign")).unwrap();
    assert_eq!(image, format!("customized\n{config}"));
    let argv = std::fs::read_to_string(folder.join("argv")).unwrap();
    assert!(
        argv.contains("--dest-device /dev/nvme0n1 --dest-ignition box.ign"),
        "{argv}"
    );

    std::fs::write(folder.join("live.iso"), "customized\n").unwrap();
    let (code, said) = run(&words);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("has already been customized"), "{said}");
    let left: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    let left = left
        .iter()
        .filter(|name| name.to_string_lossy().starts_with("box."))
        .count();
    assert_eq!(left, 2, "a folder remains");
    let (code, said) = run(&["node", "join-file", "lab", "metal-0", "-o", "box.iso"]);
    assert_eq!(code, Some(2), "{said}");
}

fn node(kube: &FakeKube, name: &str) -> Option<Value> {
    kube.with(|world| world.get(NODES, &format!("{name}.lab.example.com")).cloned())
}

/// The files that a MachineConfig of this program sets on workers, decoded; those of the installation are not in the API.
fn worker_files(kube: &FakeKube) -> String {
    let config = kube.with(|world| world.get(MACHINE_CONFIGS, "99-worker-ocpdeploy").cloned());
    let files = config.map(|config| config["spec"]["config"]["storage"]["files"].clone());
    let decode = |file: &Value| {
        let source = file["contents"]["source"].as_str().unwrap();
        String::from_utf8(STANDARD.decode(source.split_once(',').unwrap().1).unwrap()).unwrap()
    };
    let files = files.iter().flat_map(|files| files.as_array().unwrap());
    files.map(decode).collect()
}

#[test]
fn an_external_nodes_certificates_are_approved_and_its_pools_labels_set() {
    let site = Site::new(41, "workers=1\npools=gpu:0\npool_labels=gpu:example.com/gpu=yes");
    let mut child = site.start(&[]);
    let kube = site.kube(&mut child, Stage::Installed);
    outcome(child).succeeded();
    let machines = site.machines();
    let ip = "127.93.41.220";
    let name = NodeName::of_pool("gpu", 100);
    join_file(&site.sandbox, "gpu-100", &["--mac", MAC, "--ip", ip]).succeeded();
    let pointer = std::fs::read_to_string(site.sandbox.path().join("lab-gpu-100.ign")).unwrap();
    assert!(
        pointer.contains("22623/config/worker") || pointer.contains("storage"),
        "{pointer}"
    );
    assert!(
        !worker_files(&kube).contains(ip),
        "no node restarts before it has joined"
    );

    let join = || site.sandbox.start(&["node", "join", "lab", "gpu-100"]);
    kube.with(|world| {
        world.learn(site.sandbox.parameters("lab").unwrap());
        world.switched_on.insert(name.clone());
    });
    let joined = outcome(join()).succeeded();
    assert!(
        joined.stdout.contains("gpu-100 joined cluster lab.example.com"),
        "{}",
        joined.stdout
    );
    assert!(joined.stdout.contains("`oc get mcp worker`"), "{}", joined.stdout);
    let labels = node(&kube, "gpu-100").unwrap()["metadata"]["labels"].clone();
    assert_eq!(labels["example.com/gpu"], "yes");
    assert!(worker_files(&kube).contains(ip));

    const HOST: &str = "gpu-100.lab.example.com";
    until(LONG, "its Lease", || {
        kube.with(|world| world.get(LEASES, HOST).is_some())
    });
    // While it was off, its certificate expired: `start` does not wait for it, `node join` approves a new one.
    kube.with(|world| {
        world.certificates_ended = true;
        world.switched_on.remove(&name);
    });
    until(LONG, "its end", || kube.with(|world| world.is_lost(HOST)));
    kube.with(|world| world.switched_on.insert(name.clone()));
    outcome(join()).succeeded();
    let again = kube.with(|world| {
        world
            .approved
            .iter()
            .filter(|name| *name == "csr-again-gpu-100")
            .count()
    });
    assert_eq!(again, 1);

    let removed = site.sandbox.run(&["node", "remove", "lab", "gpu-100"]).succeeded();
    assert!(removed.stdout.contains("is removed from cluster"), "{}", removed.stdout);
    assert_eq!(node(&kube, "gpu-100"), None);
    assert!(!worker_files(&kube).contains(ip));
    assert_eq!(site.sandbox.parameters("lab").unwrap().external, []);
    assert_eq!(site.machines(), machines);
    let world = kube.finish();
    assert_eq!(world.wrongly_approved(), [""; 0]);
}
