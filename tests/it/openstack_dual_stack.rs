//! Two address families on OpenStack: the ports and rules of a cluster, on the fake cloud that assigns addresses as
//! Neutron does.

use ocpdeploy::cluster::Vip;
use ocpdeploy::state::home::Home;
use ocpdeploy::state::parameters::Parameters;
use serde_json::{Value, json};

use crate::openstack::{Sandbox, cloud, is_empty, succeeded};
use crate::support::addresses::ipv4;
use crate::support::fake_cloud::{FakeCloud, Trouble, World, ipv6_subnet};

const BOTH: &str = "machine_network=10.20.0.0/24,fd00:20::/64\n";
const STATEFUL: [&str; 2] = ["dhcpv6-stateful", "dhcpv6-stateful"];

/// A cloud whose network has both families.
fn lab(subnets: impl IntoIterator<Item = Value>) -> (FakeCloud, Sandbox) {
    let (cloud, sandbox) = cloud();
    cloud.with(|world| {
        world.neutron.ipv6_subnets.extend(subnets);
        world.stores.consoles_tell = true;
    });
    (cloud, sandbox)
}

fn second() -> Value {
    ipv6_subnet("sub-6", "fd00:20::/64", "fd00:20::1", STATEFUL)
}

fn table(sandbox: &Sandbox) -> Parameters {
    let home = Home::new(sandbox.0.path().join("home"));
    Parameters::read(&home.cluster("lab").parameters()).unwrap().unwrap()
}

fn port<'a>(world: &'a World, name: &str) -> &'a Value {
    let name = format!("{name}.lab.example.com");
    let mut named = world.ports.iter().filter(|port| port["name"] == name.as_str());
    let port = named.next().unwrap_or_else(|| panic!("{name}: {:#?}", world.ports));
    assert!(named.next().is_none(), "{name} has two ports");
    port
}

/// Each node and VIP has a port with both addresses of the table, and nodes may use the VIPs of their role.
#[track_caller]
fn ports_are_those_of_the_table(world: &World, table: &Parameters) {
    let ipv6 = table.ipv6.as_ref().unwrap();
    for lease in table.leases() {
        let port = port(world, lease.name.as_str());
        let second = ipv6.address_of(&lease.name, lease.ip);
        let chosen: Vec<_> = port["fixed_ips"].as_array().unwrap().iter().take(2).collect();
        assert_eq!(
            chosen,
            [
                &json!({"subnet_id": "sub-1", "ip_address": lease.ip}),
                &json!({"subnet_id": "sub-6", "ip_address": second}),
            ],
            "{}",
            lease.name
        );
    }
    assert_eq!(world.ports.len(), table.leases().len(), "{:#?}", world.ports);
    let pairs = port(world, "master-0")["allowed_address_pairs"].as_array().unwrap();
    let pairs: Vec<_> = pairs.iter().map(|pair| pair["ip_address"].as_str().unwrap()).collect();
    let (api, ingress) = (table.api_ip.to_string(), table.ingress_ip.to_string());
    let (api6, ingress6) = (ipv6.api_ip.to_string(), ipv6.ingress_ip.to_string());
    assert_eq!(pairs, [&api, &api6, &ingress, &ingress6]);
}

/// What a group's rules open to IPv6: port and source.
fn opened(world: &World) -> Vec<(Option<u64>, Option<&str>)> {
    let rules = world.stores.groups[0]["security_group_rules"].as_array().unwrap();
    let rules = rules.iter().filter(|rule| rule["ethertype"] == "IPv6");
    rules
        .filter(|rule| rule["direction"] == "ingress" && rule["protocol"] == "tcp")
        .map(|rule| (rule["port_range_min"].as_u64(), rule["remote_ip_prefix"].as_str()))
        .collect()
}

#[test]
fn nodes_and_vips_have_ports_with_both_addresses_after_either_harvest() {
    // Neutron also assigns each port an address of this subnet, which is not used.
    let automatic = || ipv6_subnet("sub-auto", "fd00:99::/64", "fd00:99::1", ["slaac", "slaac"]);
    for (lines, subnets) in [
        ("os_admit=192.0.2.0/24,2001:db8:1::/48\n", vec![second()]),
        ("harvest=boot\n", vec![second()]),
        ("harvest=boot\n", vec![automatic(), second()]),
        ("api_ip=10.20.0.8,fd00:20::8\n", vec![second()]),
    ] {
        let (cloud, sandbox) = lab(subnets);
        let begin = || sandbox.deploy_in_vain(&format!("{BOTH}{lines}"));
        begin();
        let table = table(&sandbox);
        let changes = || ["POST", "PUT", "DELETE"].map(|method| cloud.asked(&format!("{method} /network/v2.0/")));
        cloud.with(|world| {
            ports_are_those_of_the_table(world, &table);
            let opened = opened(world);
            for expected in [
                (Some(6443), None),
                (Some(443), None),
                (Some(22_623), Some("fd00:20::/64")),
                (Some(22), Some("fd00:20::/64")),
            ] {
                assert!(opened.contains(&expected), "{expected:?}: {opened:?}");
            }
            let admitted = (Some(22), Some("2001:db8:1::/48"));
            assert_eq!(opened.contains(&admitted), lines.starts_with("os_admit"), "{opened:?}");
        });
        let ipv6 = table.ipv6.as_ref().unwrap();
        assert_eq!(ipv6.gateway.to_string(), "fd00:20::1", "the subnet's");
        if lines.starts_with("api_ip") {
            assert_eq!(ipv6.api_ip.to_string(), "fd00:20::8");
        }
        let before = changes();
        begin();
        assert_eq!(changes(), before, "{lines}: a second run changes nothing");
        sandbox.destroy();
        let world = cloud.finish();
        assert_eq!(world.ports, [Value::Null; 0]);
        is_empty(&world.stores);
    }
}

#[test]
fn an_interrupted_run_gives_the_ports_of_pass_one_their_second_address_later() {
    let (cloud, sandbox) = lab([second()]);
    cloud.trouble(
        "PUT /network/v2.0/ports",
        [Trouble::Half, Trouble::Status(502, Value::Null), Trouble::Half],
    );
    // Until the wait for the bootstrap times out.
    let ends: Vec<_> = (0..4)
        .map(|_| sandbox.begin_to_deploy(&format!("{BOTH}harvest=boot\n")).status.code())
        .take_while(|code| *code != Some(6))
        .collect();
    assert!(ends.len() < 4, "{ends:?}");
    let table = table(&sandbox);
    cloud.with(|world| ports_are_those_of_the_table(world, &table));
    sandbox.destroy();
    let world = cloud.finish();
    assert_eq!(world.ports, [Value::Null; 0]);
    is_empty(&world.stores);
}

/// In one family and in two.
#[test]
fn verify_notices_and_repairs_what_was_removed_from_ports() {
    for (lines, subnets) in [("", vec![]), (BOTH, vec![second()])] {
        let (cloud, sandbox) = lab(subnets);
        sandbox.deploy_in_vain(lines);
        let table = table(&sandbox);
        let verify = |arguments: &[&str]| -> Vec<String> {
            let arguments = [&["verify", "lab", "--format", "json"], arguments].concat();
            let verified: Value = serde_json::from_slice(&sandbox.run(&arguments, &[]).stdout).unwrap();
            let differences = verified["differences"].as_array().unwrap().iter();
            let reservations = differences.filter(|found| found["place"] == "reservation");
            let text = |found: &Value| {
                format!(
                    "{} {}",
                    found["name"].as_str().unwrap(),
                    found["text"].as_str().unwrap()
                )
            };
            reservations.map(text).collect()
        };
        assert_eq!(verify(&[]), [""; 0]);
        let users = json!({"ip_address": "10.20.0.99", "mac_address": "fa:16:3e:00:00:99"});
        let before = cloud.with(|world| {
            let before = world.ports.clone();
            for port in &mut world.ports {
                let name = port["name"].as_str().unwrap().to_owned();
                if name.starts_with("master-0.") {
                    port["allowed_address_pairs"] = json!([users]);
                }
                if !name.starts_with("ingress.") {
                    port["fixed_ips"].as_array_mut().unwrap().truncate(1);
                }
            }
            before
        });
        let mut expected = Vec::new();
        for vip in Vip::ALL {
            let vips = table.vip_addresses(vip).into_iter();
            expected
                .extend(vips.map(|ip| format!("master-0 may not use {ip} of {vip}: the platform drops its packets")));
        }
        for lease in table.leases() {
            if let Some(ipv6) = &table.ipv6
                && ["api", "master-0"].contains(&lease.name.as_str())
            {
                let ip = ipv6.address_of(&lease.name, lease.ip);
                expected.push(format!("{} {ip} is not reserved for {}", lease.name, lease.mac));
            }
        }
        expected.sort();
        let mut found = verify(&[]);
        found.sort();
        assert_eq!(found, expected);
        assert_eq!(verify(&["--repair"]), [""; 0]);
        cloud.with(|world| {
            for (port, before) in world.ports.iter().zip(&before) {
                let has_both = !port["name"].as_str().unwrap().starts_with("bootstrap.");
                assert_eq!(
                    port["fixed_ips"] == before["fixed_ips"],
                    has_both || lines.is_empty(),
                    "{port}"
                );
            }
            let pairs = |world: &[Value]| {
                let mut named = world
                    .iter()
                    .filter(|port| port["name"].as_str().unwrap().starts_with("master-0."));
                named.next().unwrap()["allowed_address_pairs"]
                    .as_array()
                    .unwrap()
                    .clone()
            };
            let kept = [vec![users], pairs(&before)].concat();
            assert_eq!(pairs(&world.ports), kept, "the user's own pair is kept");
        });
        sandbox.destroy();
        is_empty(&cloud.finish().stores);
    }
}

#[test]
fn a_cluster_with_one_family_ignores_the_networks_second_one() {
    let (cloud, sandbox) = lab([second()]);
    sandbox.deploy_in_vain("");
    cloud.with(|world| {
        assert_eq!(opened(world), []);
        for port in &world.ports {
            assert_eq!(port["fixed_ips"].as_array().unwrap().len(), 1, "{port}");
            let pairs = port["allowed_address_pairs"].to_string();
            assert!(!pairs.contains("fd00:"), "{pairs}");
        }
    });
    sandbox.destroy();
    is_empty(&cloud.finish().stores);
}

#[test]
fn networks_that_cannot_have_the_second_family_are_rejected_before_anything_is_created() {
    let subnet = |modes| ipv6_subnet("sub-6", "fd00:20::/64", "fd00:20::1", modes);
    let automatic = "subnet fd00:20::/64 of network private has automatic addresses (SLAAC): Neutron rejects the \
                     addresses of nodes";
    for (subnets, lines, words) in [
        (
            vec![],
            "",
            "network private has no IPv6 subnet, but machine_network has fd00:20::/64",
        ),
        (
            vec![
                ipv6_subnet("a", "fd00:21::/64", "", STATEFUL),
                ipv6_subnet("b", "fd00:22::/64", "", STATEFUL),
            ],
            "",
            "the IPv6 network of private is fd00:21::/64 or fd00:22::/64, but machine_network has fd00:20::/64",
        ),
        (vec![subnet(["slaac", "slaac"])], "", automatic),
        (vec![subnet(["dhcpv6-stateless", ""])], "", automatic),
        (vec![subnet(["", "slaac"])], "", automatic),
        (
            vec![ipv6_subnet("sub-6", "fd00:20::/64", "", STATEFUL)],
            "",
            "network private has no IPv6 gateway that the platform knows",
        ),
        (
            vec![second()],
            "api_ip=10.20.0.8,fd00:20::1\n",
            "api_ip has the IPv6 gateway of network private",
        ),
        (
            vec![second()],
            "ingress_ip=10.20.0.9,fd00:20::7\n",
            "ingress_ip fd00:20::7 is already reserved on the network",
        ),
    ] {
        let (cloud, sandbox) = lab(subnets);
        let other = json!({"id": "theirs", "name": "", "description": "", "network_id": "net-1", "device_id": "",
            "mac_address": "fa:16:3e:00:00:07", "fixed_ips": [{"subnet_id": "sub-6", "ip_address": "fd00:20::7"}]});
        cloud.with(|world| world.ports.push(other));
        sandbox.add(&format!("{BOTH}{lines}"));
        let refusal = sandbox.refusal(4);
        assert!(refusal.contains(words), "{words}: {refusal}");
        let world = cloud.finish();
        assert_eq!(world.ports.len(), 1, "{words}");
        is_empty(&world.stores);
    }
    // Neither kind of subnet assigns an address that was not asked for.
    for modes in [STATEFUL, ["", ""], ["dhcpv6-stateful", ""]] {
        let (cloud, sandbox) = lab([subnet(modes)]);
        sandbox.add(BOTH);
        succeeded(&sandbox.harvest());
        assert_eq!(cloud.finish().ports.len(), 4, "{modes:?}");
    }
}

/// The address of a VIP is free on OpenStack only if it is in both families.
#[test]
fn a_free_address_is_free_in_both_families() {
    let (cloud, sandbox) = lab([second()]);
    // Beside 10.20.0.2 and 10.20.0.3.
    let others = [2, 3].map(|number| {
        json!({"id": format!("theirs-{number}"), "name": "", "description": "", "network_id": "net-1", "device_id": "",
            "mac_address": format!("fa:16:3e:00:00:0{number}"),
            "fixed_ips": [{"subnet_id": "sub-6", "ip_address": format!("fd00:20::a14:{number}")}]})
    });
    cloud.with(|world| world.ports.extend(others));
    sandbox.add(BOTH);
    succeeded(&sandbox.harvest());
    let ips: Vec<_> = table(&sandbox)
        .leases()
        .iter()
        .map(|lease| ipv4(lease.ip).octets()[3])
        .collect();
    assert!(ips.iter().all(|number| *number > 3), "{ips:?}");
    assert_eq!(cloud.finish().ports.len(), 6);
}
