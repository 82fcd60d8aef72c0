//! Guests and DHCP servers that misbehave: the message and exit code of each, and that following the hint succeeds.
//!
//! Each case fails first; then its cause is fixed, and the command in the hint is run.

use crate::support::sandbox::{Outcome, Sandbox};
use serde_json::{Value, json};

const LINES: &str = "masters=1\nworkers=1\nharvest_timeout=1s\naddress_timeout=1s\nplatform_timeout=0s";

const FILTERS: [(&str, &str); 1] = [(r"after \d+ s", "after <n> s")];

/// The command that is run after the cause was fixed.
#[derive(Clone, Copy, PartialEq)]
enum Next {
    /// The same command.
    Again,
    /// `destroy`, then the same command.
    Anew,
}

fn sandbox(world: Value) -> Sandbox {
    let sandbox = Sandbox::new(world);
    sandbox.env("lab", LINES);
    sandbox
}

fn guest(name: &str, guest: Value) -> Value {
    json!({"script": {"boot_ms": 0, "guests": {name: guest}}})
}

/// Fails with the message of the snapshot, then succeeds.
#[track_caller]
fn fails_then_succeeds(sandbox: &Sandbox, snapshot: &str, next: Next) {
    let failed = sandbox.deploy("lab");
    let text = format!("exit code {}\n{}", failed.code.unwrap_or(-1), failed.message());
    insta::with_settings!({filters => FILTERS, prepend_module_to_snapshot => true}, {
        insta::assert_snapshot!(snapshot, text);
    });
    if text.contains("the machines are kept") {
        // The bootstrap, a master and a worker.
        let kept = sandbox.machines(Some("lab"));
        assert!(kept.len() >= 3, "{snapshot}: {kept:?}");
    }
    sandbox.edit(|world| {
        world["script"] = json!({"boot_ms": 0});
        world["foreign_machines"] = json!({});
        world["networks"]["default"]["squatters"] = json!([]);
    });
    let succeeds = |outcome: Outcome| assert_eq!(outcome.code, Some(0), "{snapshot}: {}", outcome.stderr);
    if next == Next::Anew {
        succeeds(sandbox.run(&["destroy", "lab", "--yes"]));
    }
    succeeds(sandbox.deploy("lab"));
    let table = sandbox.parameters("lab").expect("a parameter file");
    assert_eq!(sandbox.of_pass("lab", "one"), [""; 0], "{snapshot}");
    assert_eq!(
        sandbox.of_pass("lab", "two"),
        ["lab-master-0", "lab-worker-0"],
        "{snapshot}"
    );
    for (name, machine) in sandbox.machines(Some("lab")) {
        let node = table
            .nodes
            .iter()
            .find(|node| name == format!("lab-{}", node.name))
            .unwrap();
        let addresses = json!([node.ip.to_string()]);
        assert_eq!(machine["nics"][0]["addresses"], addresses, "{snapshot}: {name}");
    }
    succeeds(sandbox.run(&["destroy", "lab", "--yes"]));
    let left = (sandbox.machines(None), sandbox.reservations(None));
    assert_eq!(left, (vec![], vec![]), "{snapshot}");
}

#[test]
fn a_guest_that_misbehaves_in_pass_one_is_reported() {
    let [bootstrap, master, worker] = ["bootstrap", "master", "worker"].map(|role| format!("lab-harvest-{role}-0"));
    for (snapshot, name, does, next) in [
        (
            "one_never_boots",
            &worker,
            json!({"late_ms": 99_999_999_999u64}),
            Next::Anew,
        ),
        ("one_no_lease", &worker, json!({"does": "no_lease"}), Next::Again),
        ("one_other_wire", &master, json!({"does": "wrong_network"}), Next::Anew),
        ("one_pauses", &bootstrap, json!({"does": "paused"}), Next::Anew),
        ("one_goes_down", &worker, json!({"dies": 99}), Next::Again),
    ] {
        fails_then_succeeds(&sandbox(guest(name, does)), snapshot, next);
    }
}

#[test]
fn a_guest_that_misbehaves_in_pass_two_is_reported() {
    let (master, worker) = ("lab-master-0", "lab-worker-0");
    for (snapshot, name, does, next) in [
        (
            "two_never_boots",
            worker,
            json!({"late_ms": 99_999_999_999u64}),
            Next::Anew,
        ),
        ("two_no_lease", worker, json!({"does": "no_lease"}), Next::Again),
        ("two_moves", worker, json!({"does": "moves"}), Next::Anew),
        ("two_pauses", master, json!({"does": "paused"}), Next::Anew),
        ("two_goes_down", master, json!({"dies": 99}), Next::Again),
    ] {
        fails_then_succeeds(&sandbox(guest(name, does)), snapshot, next);
    }
}

#[test]
fn a_guest_with_a_second_client_id_is_reported_where_addresses_cannot_be_reserved() {
    for (guest_name, snapshot) in [
        ("lab-harvest-worker-0", "one_second_client_id"),
        ("lab-worker-0", "two_second_client_id"),
    ] {
        let mut world = guest(guest_name, json!({"does": "second_address"}));
        world["limits"] = json!({"reserves_addresses": false});
        fails_then_succeeds(&sandbox(world), snapshot, Next::Anew);
    }
}

/// A host that the DHCP server does not know uses a node's reserved address; the node's client declines it.
#[test]
fn a_reserved_address_that_another_host_uses_is_reported() {
    let sandbox = sandbox(json!({"script": {"boot_ms": 0}}));
    sandbox.run(&["harvest", "lab.sh", "--rehearse"]).succeeded();
    let table = sandbox.parameters("lab").expect("a parameter file");
    let worker = table
        .nodes
        .iter()
        .find(|node| node.name.as_str() == "worker-0")
        .unwrap();
    sandbox.edit(|world| {
        let network = &mut world["networks"]["default"];
        network["leases"] = json!({});
        network["squatters"] = json!([worker.ip.to_string()]);
    });
    fails_then_succeeds(&sandbox, "two_stranger_on_its_address", Next::Anew);
}

#[test]
fn a_virtual_ip_that_another_host_has_leased_is_reported_before_anything_is_made() {
    let theirs = json!({"mac": "52:54:00:00:00:99", "client": "theirs", "since_ms": 0});
    let sandbox = sandbox(json!({"networks": {"default": {
        "cidr": "192.168.122.0/24", "gateway": "192.168.122.1",
        "dhcp_from": "192.168.122.2", "dhcp_to": "192.168.122.200", "leases": {"192.168.122.250": theirs},
    }}}));
    sandbox.env("lab", &format!("{LINES}\napi_ip=192.168.122.250"));
    let failed = sandbox.deploy("lab");
    let text = format!("exit code {}\n{}", failed.code.unwrap_or(-1), failed.message());
    insta::assert_snapshot!("vip_of_a_stranger", text);
    assert_eq!(sandbox.machines(None), [], "nothing was created");
    let lease = |sandbox: &Sandbox| sandbox.state()["networks"]["default"]["leases"]["192.168.122.250"].clone();
    assert_eq!(lease(&sandbox)["client"], "theirs");
    // A released address can be taken; then it belongs to the cluster, also in later checks.
    sandbox.edit(|world| world["networks"]["default"]["leases"] = json!({}));
    sandbox.run(&["harvest", "lab.sh", "--rehearse"]).succeeded();
    sandbox.deploy("lab").succeeded();
    sandbox.run(&["check", "lab.sh", "--rehearse"]).succeeded();
    sandbox.run(&["destroy", "lab", "--yes"]).succeeded();
}

/// Between the check and the operation, another host takes it.
#[test]
fn a_virtual_ip_that_is_taken_after_the_checks_is_reported() {
    let fault = json!({"call": "reserve_address", "about": "api", "what": "rejected"});
    let sandbox = sandbox(json!({"script": {"boot_ms": 0, "faults": [fault]}}));
    sandbox.env("lab", &format!("{LINES}\napi_ip=192.168.122.250"));
    fails_then_succeeds(&sandbox, "vip_taken_half_way", Next::Again);
}

#[test]
fn a_mac_of_another_machine_is_rejected_before_anything_is_made() {
    let sandbox = sandbox(json!({"foreign_machines": {"theirs": {"macs": ["52:54:00:00:00:99"]}}}));
    sandbox.env("lab", &format!("{LINES}\nworker_macs=52:54:00:00:00:99"));
    let failed = sandbox.deploy("lab");
    let text = format!("exit code {}\n{}", failed.code.unwrap_or(-1), failed.message());
    insta::assert_snapshot!("mac_of_a_stranger", text);
    assert_eq!(sandbox.machines(None), [], "nothing was created");
}

/// Between the check and the operation, another host takes it.
#[test]
fn a_mac_that_is_rejected_after_the_checks_is_reported() {
    let fault = json!({"call": "create_machine", "about": "lab-worker-0", "what": "rejected"});
    fails_then_succeeds(
        &sandbox(json!({"script": {"boot_ms": 0, "faults": [fault]}})),
        "mac_refused_half_way",
        Next::Again,
    );
}
