//! `lb=platform` on OpenStack: the program with the fake cloud's Octavia.

use std::process::Output;

use serde_json::{Value, json};

use super::openstack::{Sandbox, answer, cloud_with, is_empty, succeeded, told};
use crate::support::fake_cloud::{FakeCloud, Trouble, World};

const API: &str = "api.lab.example.com";
const INGRESS: &str = "ingress.lab.example.com";
const LISTENERS: &str = "POST /load-balancer/v2/lbaas/listeners";
const BALANCERS: &str = "POST /load-balancer/v2/lbaas/loadbalancers";

/// A cloud with Octavia, and the folder of a cluster.
fn cloud() -> (FakeCloud, Sandbox) {
    cloud_with(&["load-balancer"])
}

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

/// The complete load balancers of a cluster with three masters and two workers before its bootstrap is removed.
#[track_caller]
fn are_complete(world: &World) {
    let masters = names(&["bootstrap", "master-0", "master-1", "master-2"]);
    let api = [6443, 22623, 22624].map(|port| (port, masters.clone()));
    assert_eq!(world.octavia.members(API, "name"), api);
    let ingress = [80, 443].map(|port| (port, names(&["worker-0", "worker-1"])));
    assert_eq!(world.octavia.members(INGRESS, "name"), ingress);
    assert_eq!(world.octavia.load_balancers.len(), 2);
    assert_eq!(world.octavia.pools.len(), 5);
}

const LINES: &str = "lb=platform\nmasters=3\nworkers=2\n";

#[track_caller]
fn nothing_is_left(world: &World) {
    let octavia = &world.octavia;
    for left in [
        &octavia.load_balancers,
        &octavia.listeners,
        &octavia.pools,
        &octavia.monitors,
        &world.ports,
    ] {
        assert_eq!(*left, [Value::Null; 0]);
    }
    is_empty(&world.stores);
}

#[test]
fn each_vip_is_a_load_balancer_with_the_nodes_as_members() {
    let (cloud, sandbox) = cloud();
    cloud.with(|world| world.octavia.slowness = 1);
    sandbox.deploy_in_vain(LINES);
    cloud.with(|world| {
        are_complete(world);
        assert_eq!(world.octavia.refused, 0, "each change is waited for");
        // Only some networks may connect to the machine config server.
        for listener in &world.octavia.listeners {
            let is_mcs = matches!(listener["protocol_port"].as_u64(), Some(22623 | 22624));
            let cidrs = listener["allowed_cidrs"].as_array().cloned().unwrap_or_default();
            assert_eq!(cidrs.contains(&json!("10.20.0.0/24")), is_mcs, "{listener}");
            assert!(is_mcs || cidrs.is_empty(), "{listener}");
        }
        // Guests of a rehearsal have no services to monitor.
        assert_eq!(world.octavia.monitors, [Value::Null; 0]);
        for pool in &world.octavia.pools {
            assert_eq!(pool["lb_algorithm"], "ROUND_ROBIN");
            for member in pool["its members"].as_array().unwrap() {
                assert_eq!(member["subnet_id"], "sub-1");
                let node = format!("{}.lab.example.com", member["name"].as_str().unwrap());
                let port = world.ports.iter().find(|port| port["name"] == node.as_str()).unwrap();
                assert_eq!(member["address"], port["fixed_ips"][0]["ip_address"]);
            }
        }
        // The ports of the VIPs are Octavia's, and no node may take their addresses.
        assert!(
            world
                .ports
                .iter()
                .all(|port| port["name"] != API && port["name"] != INGRESS)
        );
        for port in &world.ports {
            assert_eq!(port["allowed_address_pairs"], Value::Null, "{port}");
        }
        let rules = world.stores.groups[0]["security_group_rules"].as_array().unwrap();
        let of_routers: Vec<_> = rules.iter().filter(|rule| rule["port_range_min"] == 1936).collect();
        assert_eq!(of_routers.len(), 1, "{rules:?}");
        assert_eq!(of_routers[0]["remote_ip_prefix"], "10.20.0.0/24");
    });
    let listed = sandbox.run(&["destroy", "lab", "--dry-run"], &[]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    for name in [API, INGRESS] {
        let is_it = |line: &str| line.starts_with("load balancer ") && line.ends_with(name);
        assert!(listed.lines().any(is_it), "{listed}");
    }
    sandbox.destroy();
    nothing_is_left(&cloud.finish());
}

#[test]
fn a_second_run_changes_no_load_balancer() {
    let (cloud, sandbox) = cloud();
    sandbox.deploy_in_vain(LINES);
    let changes = |cloud: &FakeCloud| {
        let put = cloud.asked("PUT /load-balancer") + cloud.asked("DELETE /load-balancer");
        // One request only tests whether this user may create a load balancer.
        (
            put,
            cloud.asked(LISTENERS),
            cloud.with(|world| world.octavia.load_balancers.clone()),
        )
    };
    let before = changes(&cloud);
    sandbox.deploy_in_vain(LINES);
    assert_eq!(changes(&cloud), before);
    sandbox.destroy();
    nothing_is_left(&cloud.finish());
}

#[test]
fn removed_and_added_members_are_corrected() {
    let (cloud, sandbox) = cloud();
    sandbox.deploy_in_vain(LINES);
    cloud.with(|world| {
        for pool in &mut world.octavia.pools {
            let members = pool["its members"].as_array_mut().unwrap();
            members.pop();
            members.push(json!({"id": "theirs", "name": "theirs", "address": "10.20.0.99", "protocol_port": 6443}));
        }
        for listener in &mut world.octavia.listeners {
            listener["allowed_cidrs"] = Value::Null;
        }
    });
    sandbox.deploy_in_vain(LINES);
    cloud.with(|world| {
        are_complete(world);
        let open = |listener: &&Value| listener["allowed_cidrs"].is_null();
        let open = world.octavia.listeners.iter().filter(open);
        let open: Vec<_> = open
            .map(|listener| listener["protocol_port"].as_u64().unwrap())
            .collect();
        assert_eq!(open, [6443, 80, 443]);
    });
    sandbox.destroy();
    nothing_is_left(&cloud.finish());
}

#[test]
fn a_change_of_a_busy_load_balancer_is_repeated() {
    let (cloud, sandbox) = cloud();
    let busy = || {
        let message = "Load Balancer lb-1 is immutable and cannot be updated.";
        Trouble::Status(
            409,
            json!({"debuginfo": null, "faultcode": "Client", "faultstring": message}),
        )
    };
    cloud.trouble(LISTENERS, [busy(), busy()]);
    cloud.trouble("PUT /load-balancer/v2/lbaas/pools/", [busy()]);
    sandbox.deploy_in_vain(LINES);
    cloud.with(|world| are_complete(world));
    let message = "Invalid state PENDING_UPDATE of loadbalancer resource lb-1";
    let pending = json!({"debuginfo": null, "faultcode": "Client", "faultstring": message});
    cloud.trouble(
        "DELETE /load-balancer/v2/lbaas/loadbalancers/",
        [Trouble::Status(409, pending)],
    );
    sandbox.destroy();
    nothing_is_left(&cloud.finish());
}

#[test]
fn a_run_that_is_cut_off_at_any_change_continues() {
    let (cloud, sandbox) = cloud();
    // The first such request of each run only tests whether it is allowed.
    cloud.trouble(BALANCERS, [Trouble::None, Trouble::Half, Trouble::None, Trouble::Half]);
    let cut = |sandbox: &Sandbox| {
        let output = sandbox.begin_to_deploy(LINES);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(matches!(output.status.code(), Some(5 | 7)), "{text}");
        assert!(text.contains("was cut off"), "{text}");
    };
    cut(&sandbox);
    cut(&sandbox);
    for request in [
        LISTENERS,
        "POST /load-balancer/v2/lbaas/pools",
        "PUT /load-balancer/v2/lbaas/pools/",
        LISTENERS,
    ] {
        // A PUT is repeated at once.
        let troubles = if request.starts_with("PUT") { 5 } else { 1 };
        cloud.trouble(request, (0..troubles).map(|_| Trouble::Half));
        cut(&sandbox);
    }
    sandbox.deploy_in_vain(LINES);
    cloud.with(|world| are_complete(world));
    cloud.trouble("DELETE /load-balancer/", (0..3).map(|_| Trouble::Half));
    sandbox.destroy();
    nothing_is_left(&cloud.finish());
}

#[test]
fn a_load_balancer_of_another_owner_with_the_same_name_is_not_changed() {
    let (cloud, sandbox) = cloud();
    let foreign = |index: usize, tags: &[&str]| {
        json!({"id": format!("theirs-{index}"), "name": API, "description": "ocpdeploy lab.example.com.zzzzzzzz", "tags": tags,
            "provider": "amphora", "provisioning_status": "ACTIVE", "operating_status": "ONLINE",
            "vip_address": format!("10.20.0.{}", 30 + index), "vip_port_id": "their-port"})
    };
    let all = [
        foreign(0, &[]),
        foreign(1, &["ocpdeploy"]),
        foreign(2, &["ocpdeploy", "lab2.example.com.x7k2pqrs"]),
        foreign(3, &["lab.example.com.zzzzzzzz"]),
    ];
    cloud.with(|world| {
        // Its lists are not filtered.
        world.ignores_filters = true;
        world.octavia.load_balancers.extend(all.clone());
    });
    sandbox.deploy_in_vain("lb=platform\n");
    cloud.with(|world| assert_eq!(world.octavia.load_balancers.len(), all.len() + 2));
    sandbox.destroy();
    let world = cloud.finish();
    assert_eq!(world.octavia.load_balancers, all);
}

#[test]
fn a_load_balancer_that_failed_at_its_creation_is_created_again() {
    let (cloud, sandbox) = cloud();
    cloud.with(|world| world.octavia.failing = vec![API]);
    let output = sandbox.begin_to_deploy(LINES);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(5), "{text}");
    assert!(
        text.contains("load balancer api.lab.example.com has provisioning_status ERROR"),
        "{text}"
    );
    assert!(text.contains("run the same command again"), "{text}");
    let text = sandbox.deploy_in_vain(LINES);
    assert!(text.contains("it is deleted and created again"), "{text}");
    cloud.with(|world| are_complete(world));
    sandbox.destroy();
    nothing_is_left(&cloud.finish());
}

/// It may still serve a cluster.
#[test]
fn a_load_balancer_that_failed_later_is_left_to_the_user() {
    let (cloud, sandbox) = cloud();
    sandbox.deploy_in_vain(LINES);
    cloud.with(|world| {
        world.octavia.load_balancers[0]["provisioning_status"] = json!("ERROR");
        world.octavia.pools[0]["provisioning_status"] = json!("ERROR");
    });
    let before = cloud.asked("DELETE /load-balancer");
    let output = sandbox.begin_to_deploy(LINES);
    let text = String::from_utf8(output.stderr).unwrap();
    // All previous steps are done.
    assert_eq!(output.status.code(), Some(5), "{text}");
    for part in [
        "has provisioning_status ERROR, and so have pool api.lab.example.com:6443",
        "openstack loadbalancer failover lb-",
        "openstack loadbalancer delete --cascade lb-",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(cloud.asked("DELETE /load-balancer"), before);
    // The user deletes it; its address stays that of the table.
    let ip = cloud.with(|world| {
        let balancer = world.octavia.load_balancers.remove(0);
        let id = balancer["id"].clone();
        world.octavia.listeners.retain(|listener| listener["of"] != id);
        world.octavia.pools.retain(|pool| pool["of"] != id);
        world.ports.retain(|port| port["id"] != balancer["vip_port_id"]);
        balancer["vip_address"].clone()
    });
    sandbox.deploy_in_vain(LINES);
    cloud.with(|world| {
        are_complete(world);
        let api = world
            .octavia
            .load_balancers
            .iter()
            .find(|balancer| balancer["name"] == API);
        assert_eq!(api.unwrap()["vip_address"], ip);
    });
    sandbox.destroy();
    nothing_is_left(&cloud.finish());
}

#[test]
fn ovn_gets_only_what_it_supports() {
    let (cloud, sandbox) = cloud();
    sandbox.deploy_in_vain(&format!("{LINES}os_lb_provider=ovn\n"));
    cloud.with(|world| {
        are_complete(world);
        for pool in &world.octavia.pools {
            assert_eq!(pool["lb_algorithm"], "SOURCE_IP_PORT");
        }
        for listener in &world.octavia.listeners {
            assert_eq!(listener["allowed_cidrs"], Value::Null, "OVN keeps the client's address");
        }
    });
    sandbox.destroy();
    nothing_is_left(&cloud.finish());
}

#[test]
fn a_provider_that_would_open_the_machine_config_server_is_refused() {
    let (cloud, sandbox) = cloud();
    cloud.with(|world| world.octavia.provider = "other");
    let output = sandbox.begin_to_deploy(LINES);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("provider other cannot restrict port 22623"), "{text}");
    cloud.with(|world| {
        let ports = world
            .octavia
            .listeners
            .iter()
            .map(|listener| listener["protocol_port"].as_u64());
        assert_eq!(ports.collect::<Vec<_>>(), [Some(6443)]);
    });
    sandbox.destroy();
    nothing_is_left(&cloud.finish());
}

#[test]
fn one_address_for_both_vips_is_one_load_balancer() {
    let (cloud, sandbox) = cloud();
    let lines = format!("{LINES}api_ip=10.20.0.240\ningress_ip=10.20.0.240\n");
    sandbox.deploy_in_vain(&lines);
    cloud.with(|world| {
        let ports: Vec<_> = world
            .octavia
            .members(API, "name")
            .into_iter()
            .map(|(port, _)| port)
            .collect();
        assert_eq!(ports, [6443, 22623, 22624, 80, 443]);
        assert_eq!(world.octavia.load_balancers.len(), 1);
        assert_eq!(world.octavia.load_balancers[0]["vip_address"], "10.20.0.240");
    });
    // The cluster itself uses the address now.
    sandbox.deploy_in_vain(&lines);
    sandbox.destroy();
    nothing_is_left(&cloud.finish());
}

#[test]
fn a_floating_ip_is_on_the_port_of_the_load_balancer() {
    let (cloud, sandbox) = cloud();
    cloud.with(|world| {
        let floating = json!({"id": "own", "floating_ip_address": "203.0.113.9", "port_id": null, "description": "",
            "floating_network_id": "ext-1"});
        world.stores.floating_ips.push(floating);
    });
    let lines = format!("{LINES}os_api_floating_ip=203.0.113.9\n");
    sandbox.deploy_in_vain(&lines);
    // It belongs to this cluster now.
    sandbox.deploy_in_vain(&lines);
    cloud.with(|world| {
        let balancer = world
            .octavia
            .load_balancers
            .iter()
            .find(|balancer| balancer["name"] == API);
        assert_eq!(
            world.stores.floating_ips[0]["port_id"],
            balancer.unwrap()["vip_port_id"]
        );
    });
    sandbox.destroy();
    let world = cloud.finish();
    assert_eq!(world.stores.floating_ips.len(), 1, "the user's own is kept");
    nothing_is_left(&world);
}

#[test]
fn a_harvest_boots_no_machine_for_a_vip() {
    let (cloud, sandbox) = cloud();
    cloud.with(|world| {
        world.stores.consoles_tell = true;
        let image = json!({"id": "centos", "name": "centos", "status": "active", "tags": []});
        world.stores.images.push(image);
    });
    let lines = "lb=platform\nharvest=boot\nharvest_image=centos\n";
    sandbox.add(lines);
    succeeded(&sandbox.harvest());
    cloud.with(|world| {
        let made = world
            .stores
            .bodies
            .iter()
            .map(|body| body["server"]["name"].as_str().unwrap());
        let mut made: Vec<_> = made.collect();
        made.sort_unstable();
        assert_eq!(made, ["lab-harvest-bootstrap-0", "lab-harvest-master-0"]);
        assert_eq!(world.octavia.load_balancers.len(), 2);
    });
    let table = std::fs::read_to_string(sandbox.0.path().join("home/clusters/lab/parameters.yaml")).unwrap();
    cloud.with(|world| {
        for balancer in &world.octavia.load_balancers {
            assert!(table.contains(balancer["vip_address"].as_str().unwrap()), "{table}");
            let port = world
                .ports
                .iter()
                .find(|port| port["id"] == balancer["vip_port_id"])
                .unwrap();
            assert!(table.contains(port["mac_address"].as_str().unwrap()), "{table}");
        }
    });
    // The reservations are as in the table.
    let output = sandbox.run(&["verify", "lab"], &[]);
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(!text.contains("is not reserved"), "{text}");
    cloud.finish();
}

/// What the checks report before anything is created.
#[test]
fn missing_requirements_of_load_balancers_are_reported_before_anything_is_created() {
    type Lack = (&'static str, &'static str, fn(&FakeCloud));
    let lacks: [Lack; 8] = [
        ("no service", "", |cloud| cloud.with(|world| world.more.clear())),
        ("no role", "", |cloud| cloud.with(|world| world.octavia.role = None)),
        ("observer", "", |cloud| {
            cloud.with(|world| world.octavia.role = Some("load-balancer_observer"))
        }),
        ("quota", "", |cloud| cloud.with(|world| world.octavia.quota = 1)),
        ("unknown provider", "os_lb_provider=f5\n", |_| {}),
        ("old Octavia", "", |cloud| {
            cloud.with(|world| world.octavia.version = 11)
        }),
        (
            "address in use",
            "api_ip=10.20.0.77\ningress_ip=10.20.0.78\n",
            |cloud| {
                cloud.with(|world| {
                    world.ports.push(
                        json!({"id": "their-port", "name": "", "description": "", "network_id": "net-1",
                    "mac_address": "fa:16:3e:00:00:77", "device_id": "",
                    "fixed_ips": [{"subnet_id": "sub-1", "ip_address": "10.20.0.77"}]}),
                    );
                });
            },
        ),
        ("no port security", "os_api_floating_ip=203.0.113.9\n", |cloud| {
            let network = json!({"id": "net-1", "name": "private", "project_id": "project-1",
                "router:external": false, "port_security_enabled": false});
            answer(cloud, "/network/v2.0/networks", json!({"networks": [network]}));
            let floating = json!({"id": "own", "floating_ip_address": "203.0.113.9", "port_id": null,
                "description": "", "floating_network_id": "ext-1"});
            cloud.with(|world| world.stores.floating_ips.push(floating));
        }),
    ];
    let mut all = String::new();
    for (name, lines, make) in lacks {
        let (cloud, sandbox) = cloud();
        make(&cloud);
        sandbox.add(&format!("lb=platform\n{lines}"));
        all += &format!("-- {name}\n{}\n", told(&sandbox.refusal(4), &sandbox));
        let world = cloud.finish();
        assert_eq!(world.octavia.load_balancers, [Value::Null; 0], "{name}");
    }
    insta::assert_snapshot!(all);
}

/// An Octavia that this user may not use does not affect clusters without it.
#[test]
fn clusters_without_load_balancers_need_no_right_to_them() {
    let (cloud, sandbox) = cloud();
    cloud.with(|world| world.octavia.role = None);
    sandbox.deploy_in_vain("");
    sandbox.destroy();
    let listed: Output = sandbox.run(&["list"], &[]);
    succeeded(&listed);
    nothing_is_left(&cloud.finish());
}
