//! `ocpdeploy check`: all that was looked at, what fails beside what does not, for people and for programs.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

#[path = "support/fake_cloud.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod fake_cloud;
#[path = "support/fake_kubevirt/mod.rs"]
mod fake_kubevirt;

use fake_cloud::{FakeCloud, PASSWORD};
use fake_kubevirt::{FakeKubevirt, World};
use serde_json::{Value, json};

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f lab";

struct Place(tempfile::TempDir);

impl Place {
    /// A folder with an env file of these lines, a key and a pull secret.
    fn new(lines: &str) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let usual = "cluster=lab\ndomain=ocpdeploy.invalid\npub_key=key.pub\npull_secret=pull.json\n";
        place.write("env.sh", &format!("{usual}{lines}\n"));
        place.write("key.pub", KEY);
        place.write("pull.json", r#"{"auths":{"registry.example.com":{"auth":"Y2FuYXJ5"}}}"#);
        place
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    fn program(&self, name: &str, text: &str) {
        self.write(name, &format!("#!/bin/sh\n{text}\n"));
        std::fs::set_permissions(self.0.path().join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn check(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_ocpdeploy"))
            .arg("check")
            .args(arguments)
            .env_clear()
            .env("HOME", self.0.path())
            .env("PATH", "/usr/bin:/bin")
            .env("OCPDEPLOY_HOME", self.0.path().join("state"))
            .current_dir(self.0.path())
            .output()
            .unwrap()
    }

    /// The table, without what differs from run to run.
    #[track_caller]
    fn table(&self, arguments: &[&str], code: i32) -> String {
        let output = self.check(arguments);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{out}{err}");
        assert!(!out.contains("Y2FuYXJ5") && !out.contains(PASSWORD), "{out}");
        let folder = self.0.path().display().to_string();
        let mut stable = String::new();
        for line in out.replace(&folder, "FOLDER").lines() {
            // What a host says of itself, and ports.
            let cut = ["the host has ", "the platform's are ", "127.0.0.1:", "localhost:"].into_iter();
            let cut = cut.filter_map(|words| Some(line.find(words)? + words.len())).min();
            stable += &line[..cut.unwrap_or(line.len())];
            stable += if cut.is_some() { "…\n" } else { "\n" };
        }
        stable
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_rehearsal_on_the_pretend_platform_is_well() {
    let place = Place::new("backend=sim\nsim_state=sim.json\napi_ip=192.168.122.9");
    insta::assert_snapshot!("well", place.table(&["--rehearse"], 0));
    let output = place.check(&["--rehearse", "--output", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["v"], &report["failures"]), (&json!(1), &json!(0)));
    let looked = report["looked"].as_array().unwrap();
    assert!(
        looked
            .iter()
            .all(|one| one["check"].is_string() && one["text"].is_string()),
        "{report}"
    );
    assert!(
        looked
            .iter()
            .any(|one| one["verdict"] == "ok" && one["check"] == "addresses"),
        "{report}"
    );
}

#[test]
fn a_virtual_ip_that_a_stranger_has_is_shown() {
    let place = Place::new("backend=sim\nsim_state=sim.json\napi_ip=192.168.122.9");
    let lease = json!({"mac": "52:54:00:00:00:99", "client": "theirs", "since_ms": 0});
    let network = json!({
        "cidr": "192.168.122.0/24", "gateway": "192.168.122.1",
        "dhcp_from": "192.168.122.2", "dhcp_to": "192.168.122.254", "leases": {"192.168.122.9": lease},
    });
    place.write(
        "sim.json",
        &json!({"v": 1, "networks": {"default": network}}).to_string(),
    );
    let table = place.table(&["--rehearse"], 4);
    let addresses: Vec<_> = table
        .lines()
        .skip_while(|line| !line.contains(" addresses   "))
        .take(2)
        .collect();
    insta::assert_snapshot!("a_virtual_ip_that_is_taken", addresses.join("\n"));
}

#[test]
fn what_fails_does_not_hide_what_comes_after_it() {
    // Installer and image of another release, a registry that the pull secret does not know.
    let place = Place::new(
        "backend=sim\nsim_state=sim.json\nnetwork=absent\ninstaller=./openshift-install\nimage=./rhcos-4.20.0-x86_64-qemu.x86_64.qcow2",
    );
    place.write("rhcos-4.20.0-x86_64-qemu.x86_64.qcow2", "");
    place.program(
        "openshift-install",
        "echo openshift-install 4.19.3\necho release image other.example.com/release:4.19.3",
    );
    place.program("oc", "echo 'error: unauthorized: authentication required' >&2; exit 1");
    insta::assert_snapshot!("several", place.table(&[], 4));
    let output = place.check(&["--output", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["failures"], json!(3), "{report}");
}

#[test]
fn a_platform_out_of_reach_is_one_finding() {
    let place = Place::new("backend=openstack\nos_cloud=lab\nversion=4.19.3");
    place.write(
        "clouds.yaml",
        &format!(
            "clouds:\n  lab:\n    auth:\n      auth_url: http://127.0.0.1:1/v3\n      username: demo\n      project_name: demo\n      \
             password: {PASSWORD}\n"
        ),
    );
    insta::assert_snapshot!("out_of_reach", place.table(&[], 4));
}

#[test]
fn a_pool_that_is_not_there_for_etcd_is_told() {
    let place = Place::new(
        "backend=libvirt\nlibvirt_uri=test:///default\npool=default-pool\nmasters=1\nworkers=0\nimages_dir=.",
    );
    place.write("coreos.qcow2", "");
    place.write("helper.qcow2", "");
    let table = place.table(&["--rehearse"], 0);
    let wanted = "warn    etcd disk   how fast /default-pool is for etcd was not measured: ";
    assert!(table.lines().any(|line| line.starts_with(wanted)), "{table}");
}

#[test]
fn clocks_quotas_and_rights_are_asked_of_the_platform() {
    let place = Place::new("backend=openstack\nos_cloud=lab\nnetwork=private\nimage=rhcos\nworkers=40\nversion=4.19.3");
    let cloud = FakeCloud::start();
    place.write(
        "clouds.yaml",
        &format!(
            "clouds:\n  lab:\n    region_name: one\n    auth:\n      auth_url: {}\n      username: demo\n      project_name: demo\n      \
             password: {PASSWORD}\n",
            cloud.auth_url()
        ),
    );
    insta::assert_snapshot!("openstack", place.table(&[], 4));
    cloud.finish();

    let mut world = World::with_tenants(&["blue"]);
    world
        .users
        .get_mut("blue-token")
        .unwrap()
        .lacks
        .insert("create virtualmachines".to_owned());
    let server = FakeKubevirt::start(world);
    let place = Place::new(
        "backend=kubevirt\nkubeconfig=blue.kubeconfig\nnetwork=lan\nmachine_network=10.7.0.0/24\nimages_dir=.",
    );
    place.write("coreos.qcow2", "");
    place.write("helper.qcow2", "");
    server.kubeconfig(&place.0.path().join("blue.kubeconfig"), "blue-token", "blue");
    insta::assert_snapshot!("kubevirt", place.table(&["--rehearse"], 4));
    server.was_asked_well();
}
