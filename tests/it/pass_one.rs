//! Pass one on the simulated platform: virtual IPs that no machine leases, what overlaps, and how soon an address is noticed.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ocpdeploy::state::journal::{self, Entry, Event};
use serde_json::{Value, json};

use crate::support::addresses::ipv4;
use crate::support::sandbox::Sandbox;
use crate::two_passes::{NODES, is_deployed};

const VIPS: [&str; 2] = ["api", "ingress"];

fn lab(world: Value) -> Sandbox {
    let sandbox = Sandbox::new(world);
    sandbox.env("lab", "");
    sandbox
}

fn journal(sandbox: &Sandbox) -> Vec<Entry> {
    journal::read(&sandbox.home().cluster("lab").journal()).unwrap()
}

/// The nodes and virtual IPs for which pass one has created a machine.
fn booted(sandbox: &Sandbox) -> BTreeSet<String> {
    let entries = journal(sandbox).into_iter();
    let created = entries.filter_map(|entry| Some(entry.step.strip_prefix("pass-one/create/")?.to_owned()));
    created.collect()
}

/// The names of the reserved addresses.
fn reserved(sandbox: &Sandbox) -> BTreeSet<String> {
    let all = sandbox.reservations(Some("lab")).into_iter();
    all.map(|(_, kept)| kept["name"].as_str().unwrap().to_owned()).collect()
}

fn names<'a>(all: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    all.into_iter().map(str::to_owned).collect()
}

/// A network with the DHCP range from .10 to .99.
fn network(more: &Value) -> Value {
    let mut network =
        json!({"cidr": "10.9.0.0/24", "gateway": "10.9.0.1", "dhcp_from": "10.9.0.10", "dhcp_to": "10.9.0.99"});
    let (all, more) = (network.as_object_mut().unwrap(), more.as_object().unwrap());
    all.extend(more.clone());
    json!({"default": network})
}

#[test]
fn virtual_ips_are_reserved_in_the_dhcp_range_and_no_machine_is_booted_for_them() {
    let theirs = json!({"mac": "52:54:00:00:00:98", "name": "printer"});
    let leased = json!({"mac": "52:54:00:00:00:99", "client": "theirs", "since_ms": 0});
    let taken = json!({"reservations": {"10.9.0.10": theirs}, "leases": {"10.9.0.11": leased}});
    let sandbox = lab(json!({"networks": network(&taken)}));
    sandbox.run(&["harvest", "lab.sh", "--rehearse"]).succeeded();
    assert_eq!(booted(&sandbox), names(NODES));
    assert_eq!(reserved(&sandbox), names(NODES.into_iter().chain(VIPS)));
    for (ip, kept) in sandbox.reservations(Some("lab")) {
        assert_ne!(kept["dns_names"], json!([]), "{ip}");
    }
    let table = sandbox.parameters("lab").unwrap();
    for ip in [table.api_ip, table.ingress_ip] {
        assert!((12..=99).contains(&ipv4(ip).octets()[3]), "{ip}");
    }
    assert_eq!(sandbox.machines(None), []);
    sandbox.run(&["destroy", "lab", "--yes"]).succeeded();
    assert_eq!(sandbox.reservations(None).len(), 1, "only the printer's remains");
}

#[test]
fn one_virtual_ip_that_is_set_is_not_chosen_for_the_other() {
    let sandbox = Sandbox::new(json!({"networks": network(&json!({"dhcp_from": "10.9.0.11"}))}));
    sandbox.env("lab", "masters=1\nworkers=0\napi_ip=10.9.0.11");
    sandbox.deploy("lab").succeeded();
    let table = sandbox.parameters("lab").unwrap();
    assert_eq!(
        [table.api_ip, table.nodes[0].ip, table.nodes[1].ip, table.ingress_ip],
        [11, 12, 13, 14].map(|last| Ipv4Addr::new(10, 9, 0, last))
    );
}

#[test]
fn a_helper_leases_each_virtual_ip_where_the_platform_reserves_no_address() {
    for (world, lines) in [
        (json!({"limits": {"reserves_addresses": false}}), ""),
        (json!({}), "dhcp=user"),
    ] {
        let sandbox = Sandbox::new(world);
        sandbox.env("lab", &format!("masters=1\nworkers=0\n{lines}"));
        sandbox.run(&["harvest", "lab.sh", "--rehearse"]).succeeded();
        assert_eq!(
            booted(&sandbox),
            names(["bootstrap", "master-0"].into_iter().chain(VIPS))
        );
    }
}

#[test]
fn killed_while_virtual_ips_are_reserved() {
    let script = json!({"boot_ms": 1000, "latency_ms": {"reserve_address": 200}});
    let sandbox = lab(json!({"script": script}));
    sandbox.kill_deployment("lab", |sandbox| {
        sandbox.is_within("lab", "pass-one/vips") && reserved(sandbox).len() == NODES.len() + 1
    });
    sandbox.edit(|world| world["script"] = json!({}));
    sandbox.deploy("lab").succeeded();
    is_deployed(&sandbox, "lab");
}

#[test]
fn a_machine_is_created_as_soon_as_its_own_address_is_reserved() {
    let script = json!({"latency_ms": {"reserve_address": 200}});
    let sandbox = lab(json!({"script": script}));
    sandbox.kill_deployment("lab", |sandbox| reserved(sandbox).len() == 3);
    let machines = sandbox.machines(Some("lab")).into_iter();
    let created: BTreeSet<_> = machines
        .map(|(_, machine)| machine["node"].as_str().unwrap().to_owned())
        .collect();
    assert!(created.is_subset(&reserved(&sandbox)), "{created:?}");
    assert!(!created.is_empty(), "machines wait for each other's addresses");
    // They belong to the cluster, though it has no table yet.
    let shown = sandbox.run(&["destroy", "lab", "--dry-run"]).succeeded();
    assert!(shown.stdout.contains("dhcp host  master-0"), "{}", shown.stdout);
    sandbox.edit(|world| world["script"] = json!({}));
    sandbox.deploy("lab").succeeded();
    is_deployed(&sandbox, "lab");
}

/// As the DHCP server itself would: the lease of an earlier cluster's machine is still valid.
#[test]
fn a_machine_gets_the_address_that_its_mac_has_leased_before() {
    let sandbox = lab(json!({}));
    sandbox.run(&["harvest", "lab.sh", "--rehearse"]).succeeded();
    let mac = sandbox.parameters("lab").unwrap().nodes[2].mac;
    sandbox.run(&["destroy", "lab", "--yes"]).succeeded();
    sandbox.edit(|world| {
        let lease = json!({"mac": mac.to_string(), "client": "earlier", "since_ms": 0});
        world["networks"]["default"]["leases"] = json!({"192.168.122.77": lease});
    });
    sandbox.deploy("lab").succeeded();
    let table = sandbox.parameters("lab").unwrap();
    assert_eq!(table.nodes[2].ip.to_string(), "192.168.122.77");
    assert_eq!(table.nodes[3].ip.to_string(), "192.168.122.4");
}

/// A machine that was off when the address was chosen uses it; the client of pass one declines it.
#[test]
fn a_machine_that_declined_its_reserved_address_keeps_the_other_one() {
    let sandbox = lab(json!({"networks": network(&json!({"squatters": ["10.9.0.11"]}))}));
    sandbox.deploy("lab").succeeded();
    is_deployed(&sandbox, "lab");
    // Which one it is depends on whether the virtual IPs are reserved at that moment.
    let ip = sandbox.parameters("lab").unwrap().nodes[1].ip;
    assert_ne!(ip, Ipv4Addr::new(10, 9, 0, 11));
    let kept = sandbox.reservations(Some("lab")).into_iter();
    let masters: Vec<_> = kept
        .filter(|(_, kept)| kept["name"] == "master-0")
        .map(|(ip, _)| ip)
        .collect();
    assert_eq!(masters, [ip.to_string()]);
}

/// On another host: the addresses are reserved when the table has them.
#[test]
fn machines_are_deleted_while_addresses_are_reserved_and_keep_their_leases() {
    let limits = json!({"host_is_here": false});
    let sandbox = lab(json!({"limits": limits, "script": {"latency_ms": {"reserve_address": 1500}}}));
    sandbox.kill_deployment("lab", |sandbox| {
        sandbox.is_within("lab", "pass-one/hold") && sandbox.of_pass("lab", "one").is_empty()
    });
    let reserved = reserved(&sandbox).len();
    assert!(reserved < NODES.len() + VIPS.len(), "some addresses are only leased");
    let table = sandbox.parameters("lab").unwrap();
    sandbox.edit(|world| world["script"] = json!({}));
    sandbox.deploy("lab").succeeded();
    is_deployed(&sandbox, "lab");
    assert_eq!(sandbox.parameters("lab").unwrap().nodes, table.nodes);
}

#[test]
fn the_installer_runs_while_the_machines_of_pass_one_are_deleted() {
    let sandbox = lab(json!({"script": {"latency_ms": {"delete_machine": 200}}}));
    sandbox.deploy("lab").succeeded();
    let entries = journal(&sandbox);
    let at = |event, step: &str| {
        let is_it = |entry: &Entry| entry.event == event && entry.step == step && !entry.is_note();
        entries.iter().position(is_it).unwrap()
    };
    assert!(at(Event::Begun, "assets") < at(Event::Done, "pass-one/gone"));
    assert!(at(Event::Done, "pass-one/hold") < at(Event::Begun, "pass-one/gone"));
    // A MAC is on one machine at a time, and memory is required for one pass at a time.
    assert!(at(Event::Done, "pass-one/gone") < at(Event::Begun, "pass-two/create/bootstrap"));
}

/// The interval of a cloud: an address is noticed within a second, though it must be seen twice.
#[test]
fn an_address_is_noticed_within_a_second_of_its_lease() {
    let late = json!({"lab-harvest-master-0": {"late_ms": 1750}, "lab-harvest-bootstrap-0": {"late_ms": 1100}});
    let sandbox = Sandbox::new(json!({"limits": {"poll_interval_ms": 700}, "script": {"boot_ms": 0, "guests": late}}));
    sandbox.env("lab", "masters=1\nworkers=0");
    let child = sandbox.start(&["harvest", "lab.sh", "--rehearse"]);
    let mut leased = Vec::new();
    while leased.len() < 2 {
        leased = ["bootstrap-0", "master-0"]
            .iter()
            .filter_map(|name| sandbox.state()["machines"][format!("lab-harvest-{name}")]["boots_ms"].as_i64())
            .collect();
    }
    crate::support::sandbox::outcome(child).succeeded();
    for (node, leased) in ["bootstrap", "master-0"].into_iter().zip(leased) {
        let step = format!("pass-one/leases/{node}");
        let noticed = journal(&sandbox).into_iter().find(|entry| entry.step == step).unwrap();
        let delay = noticed.time.as_millisecond() - leased;
        println!("{node}: noticed after {delay} ms");
        assert!((0..1000).contains(&delay), "{node}: noticed after {delay} ms");
    }
}

/// A platform that creates one machine at a time.
fn slow_lab(guests: &Value) -> Sandbox {
    let script = json!({"boot_ms": 0, "latency_ms": {"create_machine": 500}, "guests": guests});
    lab(json!({"limits": {"concurrency": 1}, "script": script}))
}

#[test]
fn an_address_is_noticed_while_other_machines_are_created() {
    let sandbox = slow_lab(&json!({}));
    sandbox.run(&["harvest", "lab.sh", "--rehearse"]).succeeded();
    let done = |entry: &Entry| (entry.event == Event::Done).then(|| entry.step.clone());
    let steps: Vec<_> = journal(&sandbox).iter().filter_map(done).collect();
    let at = |step: &str| steps.iter().position(|done| done == step).unwrap();
    assert!(at("pass-one/leases/bootstrap") < at("pass-one/create"), "{steps:?}");
}

#[test]
fn a_machine_that_cannot_run_ends_pass_one_before_the_others_are_created() {
    let sandbox = slow_lab(&json!({"lab-harvest-bootstrap-0": {"does": "paused"}}));
    let failed = sandbox.deploy("lab");
    let text = failed.message();
    assert!(text.contains("lab-harvest-bootstrap-0"), "{text}");
    assert!(booted(&sandbox).len() < NODES.len(), "{:?}", booted(&sandbox));
}

/// The network is queried only because of machines without an address: a denied query does not end the wait.
#[test]
fn a_network_query_that_is_denied_does_not_end_the_wait_for_addresses() {
    let denied = json!([{"call": "network_facts", "nth": 2, "times": 9, "what": "denied"}]);
    let late = json!({"lab-harvest-master-0": {"late_ms": 10_500}});
    // If no address is reserved, only the checks and the wait query the network.
    let limits = json!({"reserves_addresses": false});
    let sandbox = Sandbox::new(json!({"limits": limits, "script": {"guests": late, "faults": denied}}));
    sandbox.env("lab", "masters=1\nworkers=0");
    sandbox.run(&["harvest", "lab.sh", "--rehearse"]).succeeded();
    assert_eq!(sandbox.state()["script"]["faults"][0]["seen"], 2, "the queries");
}
