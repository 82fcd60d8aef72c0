//! Several projects of one OpenStack: objects of other projects with our names, tags and properties are neither used nor
//! deleted, whichever user sees them.

use ocpdeploy::digest::{sha256, sha512};
use serde_json::{Value, json};

use super::openstack::{self, Sandbox, env};
use crate::support::fake_cloud::{FakeCloud, THEIRS, World};
use crate::support::qcow2;

fn cloud(is_admin: bool) -> (FakeCloud, Sandbox) {
    let (cloud, sandbox) = openstack::cloud();
    cloud.with(|world| world.is_admin = is_admin);
    (cloud, sandbox)
}

/// All objects with this id, as text.
fn planted(world: &World, id: &str) -> Vec<String> {
    let stores = &world.stores;
    let kinds = [
        &world.ports,
        &stores.floating_ips,
        &stores.groups,
        &stores.images,
        &world.octavia.load_balancers,
    ];
    let all = kinds.into_iter().flatten();
    all.filter(|one| one["id"] == id).map(Value::to_string).collect()
}

/// The first image that machines of `begin_to_deploy` boot, as another user stores it under our name.
fn image(owner: &str, hash: &str) -> Value {
    json!({"id": "planted", "name": "coreos", "status": "active", "owner": owner, "visibility": "public",
        "tags": ["ocpdeploy"], "ocpdeploy_sha256": sha256(coreos()), "os_hash_algo": "sha512", "os_hash_value": hash})
}

fn coreos() -> Vec<u8> {
    [&qcow2::empty()[..], b"c"].concat()
}

/// Whether a server was created from the image.
fn boots(world: &World, id: &str) -> bool {
    assert!(!world.stores.bodies.is_empty(), "no server was created");
    world.stores.bodies.iter().any(|body| body["server"]["imageRef"] == id)
}

#[test]
fn destroy_with_an_admins_token_leaves_the_cluster_of_the_same_name_in_another_project() {
    let (cloud, sandbox) = cloud(true);
    cloud.with(|world| world.more = vec!["load-balancer"]);
    sandbox.deploy_in_vain("");
    let tag = sandbox.tag();
    let text = format!("ocpdeploy {tag}");
    cloud.with(|world| {
        let (id, project) = ("planted", THEIRS);
        world.ports.push(
            json!({"id": id, "project_id": project, "name": "lab-master-0:0", "description": text, "network_id": "net-2",
            "mac_address": "fa:16:3e:00:00:99", "device_id": "their-server", "fixed_ips": []}),
        );
        world.stores.floating_ips.push(
            json!({"id": id, "project_id": project, "floating_ip_address": "203.0.113.77", "port_id": id,
            "floating_network_id": "ext-1", "description": text}),
        );
        world.stores.groups.push(
            json!({"id": id, "project_id": project, "name": text, "description": text, "security_group_rules": []}),
        );
        let mut image = image(project, &sha512(coreos()));
        image["tags"] = json!(["ocpdeploy", tag]);
        image["visibility"] = json!("private");
        world.stores.images.push(image);
        world.octavia.load_balancers.push(
            json!({"id": id, "project_id": project, "name": "api.lab.example.com", "description": "",
            "tags": ["ocpdeploy", tag], "provider": "amphora", "provisioning_status": "ACTIVE",
            "operating_status": "ONLINE", "vip_address": "10.30.0.9", "vip_port_id": "their-vip"}),
        );
    });
    let before = cloud.with(|world| planted(world, "planted"));
    sandbox.destroy();
    let world = cloud.finish();
    assert_eq!(planted(&world, "planted"), before);
    let left = [world.ports.len(), world.stores.images.len(), world.stores.groups.len()];
    assert_eq!(
        left,
        [1; 3],
        "ours remain: {:#?}",
        (&world.ports, &world.stores.images, &world.stores.groups)
    );
}

#[test]
fn clusters_of_other_projects_are_not_listed() {
    let (cloud, sandbox) = cloud(true);
    let text = "ocpdeploy lab.example.com.x7k2pqrs";
    let group = json!({"id": "planted", "project_id": THEIRS, "name": text, "description": text,
        "security_group_rules": []});
    cloud.with(|world| world.stores.groups.push(group.clone()));
    let listed = || {
        let output = sandbox.run(&["audit", "--env", "env.sh"], &[]);
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let without = listed();
    cloud.with(|world| world.stores.groups[0]["project_id"] = Value::Null);
    assert!(
        listed().contains("lab"),
        "the same group in this project is one of ours"
    );
    assert!(!without.contains("lab.example.com"), "{without}");
    cloud.finish();
}

#[test]
fn a_floating_ip_of_another_project_cannot_be_given_to_the_api() {
    let (cloud, sandbox) = cloud(true);
    sandbox.add("os_api_floating_ip=203.0.113.77\n");
    let floating = json!({"id": "planted", "project_id": THEIRS, "floating_ip_address": "203.0.113.77", "port_id": null,
        "floating_network_id": "ext-1", "description": ""});
    cloud.with(|world| world.stores.floating_ips.push(floating));
    let refusal = sandbox.refusal(4);
    assert!(
        refusal.contains("203.0.113.77 does not exist in this project"),
        "{refusal}"
    );
    cloud.finish();
}

#[test]
fn a_security_group_shared_by_another_project_is_not_used() {
    let (cloud, sandbox) = cloud(false);
    let text = format!("ocpdeploy {}", sandbox.known_tag(""));
    let open = json!({"id": "open", "direction": "ingress", "ethertype": "IPv4", "description": "",
        "security_group_id": "planted"});
    let group = json!({"id": "planted", "project_id": THEIRS, "shared": true, "name": text, "description": text,
        "security_group_rules": [open]});
    // First in the list.
    cloud.with(|world| world.stores.groups.insert(0, group));
    let before = cloud.with(|world| planted(world, "planted"));
    sandbox.deploy_in_vain("");
    cloud.with(|world| {
        let groups: Vec<_> = world
            .ports
            .iter()
            .filter_map(|port| port["security_groups"][0].as_str())
            .collect();
        assert!(!groups.is_empty() && !groups.contains(&"planted"), "{groups:?}");
    });
    sandbox.destroy();
    let world = cloud.finish();
    assert_eq!(planted(&world, "planted"), before);
    assert_eq!(world.stores.groups.len(), 1, "our group is deleted");
}

#[test]
fn an_image_of_another_project_is_not_used() {
    for is_admin in [false, true] {
        let (cloud, sandbox) = cloud(is_admin);
        cloud.with(|world| world.stores.images.push(image(THEIRS, &sha512(coreos()))));
        let before = cloud.with(|world| planted(world, "planted"));
        sandbox.deploy_in_vain("");
        cloud.with(|world| assert!(!boots(world, "planted"), "admin: {is_admin}"));
        sandbox.destroy();
        assert_eq!(planted(&cloud.finish(), "planted"), before, "admin: {is_admin}");
    }
}

#[test]
fn an_image_of_this_project_is_booted_if_its_bytes_are_those_of_the_file() {
    for (hash, is_used) in [(sha512(coreos()), true), (sha512("other bytes"), false)] {
        let (cloud, sandbox) = cloud(false);
        let ours = cloud.with(|world| {
            let mut image = image("", &hash);
            image["owner"] = Value::Null;
            world.stores.images.push(image);
            world.stores.images[0]["id"].clone()
        });
        let said = sandbox.deploy_in_vain("");
        let warning = format!("image {} is not used", ours.as_str().unwrap());
        assert_eq!(said.contains(&warning), !is_used, "{said}");
        cloud.with(|world| assert_eq!(boots(world, "planted"), is_used));
        sandbox.destroy();
        // If it was used, it has no other user.
        assert_eq!(planted(&cloud.finish(), "planted").is_empty(), is_used);
    }
}

#[test]
fn a_network_of_this_project_is_preferred_to_a_shared_one_of_the_same_name() {
    let theirs = |name: &str| {
        json!({"id": "net-2", "name": name, "project_id": THEIRS, "shared": true, "router:external": false,
            "port_security_enabled": true})
    };
    let subnet = json!({"id": "sub-2", "network_id": "net-2", "ip_version": 4, "cidr": "10.30.0.0/24",
        "enable_dhcp": true, "gateway_ip": "10.30.0.1", "allocation_pools": [], "dns_nameservers": []});
    for (name, wanted) in [("private", "10.20.0.0/24"), ("provider", "10.30.0.0/24")] {
        let (cloud, sandbox) = cloud(false);
        sandbox.write(
            "env.sh",
            &env(&sandbox, "").replace("network=private", &format!("network={name}")),
        );
        cloud.with(|world| {
            world.neutron.others.push(theirs(name));
            world.neutron.more_subnets.push(subnet.clone());
        });
        let output = sandbox.run(&["check"], &[]);
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(text.contains(&format!("network {name} is {wanted}")), "{text}");
        cloud.finish();
    }
}

#[test]
fn an_administrator_is_warned_of_hypervisors_of_another_architecture() {
    for (is_admin, arch, is_warned) in [
        (true, "aarch64", true),
        (true, "x86_64", false),
        // Nova does not list hypervisors for others.
        (false, "aarch64", false),
    ] {
        let (cloud, sandbox) = cloud(is_admin);
        sandbox.add(&format!("arch={arch}\n"));
        let output = sandbox.run(&["check"], &[]);
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let warning = format!("the hypervisors are of architecture x86_64: they reject machines of {arch}");
        assert_eq!(text.contains(&warning), is_warned, "{is_admin} {arch}: {text}");
        cloud.finish();
    }
}

#[test]
fn a_port_in_use_by_a_server_of_another_owner_is_not_deleted() {
    let (cloud, sandbox) = cloud(false);
    sandbox.deploy_in_vain("");
    let port = cloud.with(|world| {
        let server = json!({"id": "db", "name": "database", "status": "ACTIVE", "hostId": "host-0", "tags": [],
            "addresses": {}, "metadata": {}});
        world.stores.servers.push(server);
        let of_vip = |port: &&mut Value| port["name"] == "api.lab.example.com";
        let port = world.ports.iter_mut().find(of_vip).unwrap();
        port["device_id"] = json!("db");
        port["id"].as_str().unwrap().to_owned()
    });
    let output = sandbox.run(&["destroy", "lab", "--yes"], &[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_ne!(output.status.code(), Some(0), "{said}");
    let expected = "port api.lab.example.com is in use by server database, which belongs to another owner";
    let hint = format!("openstack server remove port db {port}");
    assert!(said.contains(expected) && said.contains(&hint), "{said}");
    cloud.with(|world| {
        assert_eq!(planted(world, &port).len(), 1, "it still exists");
        world.stores.servers.retain(|server| server["id"] != "db");
    });
    sandbox.destroy();
    assert_eq!(cloud.finish().ports, [Value::Null; 0]);
}
