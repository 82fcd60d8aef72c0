//! The program against a fake OpenStack that misbehaves on demand.
//!
//! The real services in tests/lab/openstack verify what they accept and return.

use crate::support::cluster::id_of;
use crate::support::qcow2;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::fake_cloud::{ACCOUNT, FakeCloud, PASSWORD, Stores, Trouble, World, flavor};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ocpdeploy::state::home::Home;
use ocpdeploy::state::parameters::Parameters;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A folder with an env file of a small cluster, in which the program is run.
pub(crate) struct Sandbox(pub(crate) tempfile::TempDir);

impl Sandbox {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let env = "cluster=lab\ndomain=example.com\nbackend=openstack\nmasters=1\nworkers=0\nnetwork=private\n\
                   pull_secret='{\"auths\":{\"registry.example.com\":{\"auth\":\"eDp5\"}}}'\npub_key=key.pub\nimage=rhcos\n";
        std::fs::write(folder.path().join("env.sh"), env).unwrap();
        let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f lab";
        std::fs::write(folder.path().join("key.pub"), key).unwrap();
        Self(folder)
    }

    /// The output of a rehearsal that fails with these lines.
    #[track_caller]
    fn failed_rehearsal(&self, lines: &str, code: i32) -> String {
        let output = self.begin_to_deploy(lines);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        text
    }

    /// The tag of a deployment that has a record and no machines: others who know it can copy it.
    pub(crate) fn known_tag(&self, lines: &str) -> String {
        self.deploy_in_vain(lines);
        let output = self.run(&["destroy", "lab", "--keep-addresses", "--yes"], &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.tag()
    }

    /// The tag of the cluster's deployment.
    pub(crate) fn tag(&self) -> String {
        let home = Home::new(self.0.path().join("home"));
        id_of(&home, "lab").tag().to_owned()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> &Self {
        std::fs::write(self.0.path().join(name), text).unwrap();
        self
    }

    /// Adds lines to the env file.
    pub(crate) fn add(&self, lines: &str) -> &Self {
        self.write("env.sh", &env(self, lines))
    }

    pub(crate) fn clouds(&self, auth_url: &str, more: &str) -> &Self {
        self.write(
            "clouds.yaml",
            &format!(
                "clouds:\n  lab:\n    region_name: one\n{more}    auth:\n      auth_url: {auth_url}\n      username: demo\n      \
                 project_name: demo\n      password: {PASSWORD}\n"
            ),
        )
    }

    pub(crate) fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_ocpdeploy"))
            .args(arguments)
            .env_clear()
            .env("HOME", self.0.path())
            .env("OCPDEPLOY_HOME", self.0.path().join("home"))
            // Only the retries of the client itself are tested.
            .env("OCPDEPLOY_PLATFORM_TIMEOUT", "0s")
            .envs(variables.iter().copied())
            .current_dir(self.0.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// A rehearsal whose guests never report, because the fake cloud runs no guests.
    pub(crate) fn deploy_in_vain(&self, lines: &str) -> String {
        let output = self.begin_to_deploy(lines);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(6), "{text}");
        text
    }

    /// As `deploy_in_vain`, with any result.
    pub(crate) fn begin_to_deploy(&self, lines: &str) -> Output {
        self.add(&format!("bootstrap_timeout=1s\n{lines}"));
        std::fs::create_dir_all(self.0.path().join("images")).unwrap();
        for (name, end) in [("coreos", "c"), ("helper", "h")] {
            let image = [&qcow2::empty()[..], end.as_bytes()].concat();
            std::fs::write(self.0.path().join(format!("images/{name}.qcow2")), image).unwrap();
        }
        self.run(&["deploy", "--rehearse", "--set", "images_dir=images"], &[])
    }

    pub(crate) fn destroy(&self) {
        succeeded(&self.run(&["destroy", "lab", "--yes"], &[]));
    }

    pub(crate) fn harvest(&self) -> Output {
        // Whole configs do not fit into Nova's user data, so nodes fetch them from a name that the user's DNS resolves.
        self.run(&["harvest"], &[("OCPDEPLOY_DNS", "user")])
    }

    /// The message of a failing harvest, without ports and folders of this run.
    pub(crate) fn refusal(&self, code: i32) -> String {
        let output = self.harvest();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(!text.contains(PASSWORD), "it shows the password: {text}");
        text.find("error: ").map_or(String::new(), |at| text[at..].to_owned())
    }
}

pub(crate) fn told(text: &str, sandbox: &Sandbox) -> String {
    let folder = sandbox.0.path().display().to_string();
    let text = text.replace(&folder, "FOLDER");
    let mut told = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find("127.0.0.1:") {
        told += &rest[..at];
        told += "127.0.0.1:PORT";
        rest = rest[at + 10..].trim_start_matches(|c: char| c.is_ascii_digit());
    }
    told + rest
}

#[track_caller]
pub(crate) fn succeeded(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}{printed}");
    text
}

/// A fake cloud, and a cluster with settings for it.
pub(crate) fn cloud() -> (FakeCloud, Sandbox) {
    cloud_with(&[])
}

/// As `cloud`, with these services in addition.
pub(crate) fn cloud_with(services: &[&'static str]) -> (FakeCloud, Sandbox) {
    let (cloud, sandbox) = (FakeCloud::start(), Sandbox::new());
    sandbox.clouds(&cloud.auth_url(), "");
    cloud.with(|world| world.more = services.to_vec());
    (cloud, sandbox)
}

/// Destroys the cluster: nothing of it remains, and the cloud got no unknown request.
#[track_caller]
fn destroys_all(cloud: FakeCloud, sandbox: &Sandbox) {
    sandbox.destroy();
    is_empty(&cloud.finish().stores);
}

/// Nothing of the cluster, by whatever name.
#[track_caller]
pub(crate) fn is_empty(stores: &Stores) {
    let kinds = [
        &stores.images,
        &stores.groups,
        &stores.server_groups,
        &stores.servers,
        &stores.volumes,
    ];
    assert!(kinds.iter().all(|kind| kind.is_empty()), "{kinds:#?}");
    assert!(stores.containers.is_empty() && stores.objects.is_empty());
}

#[test]
fn a_harvest_makes_one_port_for_each_node_and_vip() {
    let (cloud, sandbox) = cloud();
    succeeded(&sandbox.harvest());
    let world = cloud.finish();
    let names: Vec<_> = world.ports.iter().map(|port| port["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["api", "bootstrap", "ingress", "master-0"].map(|name| format!("{name}.lab.example.com"))
    );
    for port in &world.ports {
        assert_eq!(port["description"], format!("ocpdeploy {}", sandbox.tag()));
        assert_eq!(port["fixed_ips"][0]["subnet_id"], "sub-1");
    }
}

/// The second subnet of the network, with the addresses of its pool only.
#[test]
fn machine_network_selects_the_subnet_of_all_ports() {
    for (lines, subnet, first) in [
        ("", "sub-1", "10.20.0."),
        ("machine_network=10.50.0.0/24\n", "sub-2", "10.50.0.10"),
        (
            "machine_network=10.50.0.0/24\nharvest=boot\nharvest_image=centos\n",
            "sub-2",
            "10.50.0.10",
        ),
    ] {
        let (cloud, sandbox) = cloud();
        sandbox.add(lines);
        image(&cloud, json!({"status": "active"}));
        cloud.with(|world| {
            world.stores.consoles_tell = true;
            world.neutron.more_subnets.push(
                json!({"id": "sub-2", "network_id": "net-1", "ip_version": 4, "cidr": "10.50.0.0/24",
                "gateway_ip": "10.50.0.1", "enable_dhcp": true, "dns_nameservers": [],
                "allocation_pools": [{"start": "10.50.0.100", "end": "10.50.0.109"}]}),
            );
        });
        let said = succeeded(&sandbox.harvest());
        let world = cloud.finish();
        assert_eq!(world.ports.len(), 4);
        for port in &world.ports {
            let [ip] = port["fixed_ips"].as_array().unwrap().as_slice() else {
                panic!("{port}")
            };
            assert_eq!(ip["subnet_id"], subnet, "{lines}");
            assert!(ip["ip_address"].as_str().unwrap().starts_with(first), "{lines}: {ip}");
        }
        let home = Home::new(sandbox.0.path().join("home"));
        let table = Parameters::read(&home.cluster("lab").parameters()).unwrap().unwrap();
        let gateway = if lines.is_empty() { "10.20.0.1" } else { "10.50.0.1" };
        assert_eq!(table.gateway, Some(gateway.parse().unwrap()), "{lines}");
        let warning = "network private has 2 IPv4 subnets: 10.20.0.0/24, 10.50.0.0/24";
        assert_eq!(said.contains(warning), lines.is_empty(), "{said}");
    }
}

#[test]
fn a_retry_after_header_is_obeyed() {
    let (cloud, sandbox) = cloud();
    cloud.trouble("GET /network/v2.0/networks", [Trouble::Later(429, 1)]);
    cloud.trouble(
        "POST /network/v2.0/ports",
        [Trouble::Later(503, 1), Trouble::Later(429, 1)],
    );
    let begin = Instant::now();
    succeeded(&sandbox.harvest());
    assert!(begin.elapsed() >= Duration::from_secs(3), "{:?}", begin.elapsed());
    assert_eq!(cloud.finish().ports.len(), 4);
}

#[test]
fn queries_are_repeated_after_a_fault_and_changes_are_not() {
    let (cloud, sandbox) = cloud();
    let broken = || Trouble::Status(502, json!("<html><h1>Bad Gateway</h1></html>"));
    cloud.trouble("GET /compute/v2.1/limits", [broken(), broken()]);
    cloud.trouble("POST /network/v2.0/ports", [broken()]);
    let refusal = sandbox.refusal(5);
    assert!(
        refusal.contains("Bad Gateway") && refusal.contains("reserve address"),
        "{refusal}"
    );
    assert_eq!(cloud.asked("POST /network/v2.0/ports"), 1);
    // The same command goes on.
    succeeded(&sandbox.harvest());
    assert_eq!(cloud.finish().ports.len(), 4);
}

#[test]
fn a_port_whose_response_was_cut_off_is_not_created_twice() {
    let (cloud, sandbox) = cloud();
    cloud.trouble("POST /network/v2.0/ports", [Trouble::Half]);
    let refusal = sandbox.refusal(5);
    assert!(refusal.contains("was cut off"), "{refusal}");
    succeeded(&sandbox.harvest());
    let world = cloud.finish();
    assert_eq!(world.ports.len(), 4, "{:?}", world.ports);
}

#[test]
fn a_token_that_expires_during_a_run_is_renewed() {
    let (cloud, sandbox) = cloud();
    cloud.trouble("GET /compute/v2.1/flavors", [Trouble::Expired]);
    cloud.trouble("POST /network/v2.0/ports", [Trouble::Expired]);
    succeeded(&sandbox.harvest());
    assert_eq!(cloud.asked("POST /identity/v3/auth/tokens"), 3);
    assert_eq!(cloud.finish().ports.len(), 4);
}

#[test]
fn a_token_is_renewed_before_it_expires_and_not_for_each_request() {
    for (lifetime, pause, signed_in) in [(200, 0, 1), (6, 4, 2)] {
        let (cloud, sandbox) = cloud_with(&["object-store"]);
        // A token of this length does not fit into user data.
        sandbox.add("os_ignition=swift\n");
        cloud.with(|world| world.lifetime = Some(lifetime));
        cloud.trouble("POST /network/v2.0/ports", [Trouble::Slow(Duration::from_secs(pause))]);
        succeeded(&sandbox.harvest());
        assert_eq!(cloud.asked("POST /identity/"), signed_in, "tokens of {lifetime} s");
        cloud.finish();
    }
}

#[test]
fn slow_answers_are_waited_for() {
    let (cloud, sandbox) = cloud();
    cloud.trouble("POST /network/v2.0/ports", [Trouble::Slow(Duration::from_secs(3))]);
    succeeded(&sandbox.harvest());
    assert_eq!(cloud.asked("POST /network/v2.0/ports"), 4);
    cloud.finish();
}

#[test]
fn variables_and_application_credentials_authenticate_too() {
    let (cloud, sandbox) = (FakeCloud::start(), Sandbox::new());
    let url = cloud.auth_url();
    let plain = url.trim_end_matches("/v3");
    let ways: [&[(&str, &str)]; 2] = [
        &[
            ("OS_AUTH_URL", plain),
            ("OS_USERNAME", "demo"),
            ("OS_PASSWORD", PASSWORD),
            ("OS_PROJECT_NAME", "demo"),
            ("OS_USER_DOMAIN_NAME", "Default"),
        ],
        &[
            ("OS_AUTH_URL", &url),
            ("OS_APPLICATION_CREDENTIAL_ID", "abc"),
            ("OS_APPLICATION_CREDENTIAL_SECRET", PASSWORD),
        ],
    ];
    for way in ways {
        let variables = [way, &[("OCPDEPLOY_DNS", "user")]].concat();
        succeeded(&sandbox.run(&["harvest"], &variables));
    }
    // The password may be in a separate file.
    sandbox.clouds(&url, "").write(
        "secure.yaml",
        &format!("clouds:\n  lab:\n    auth:\n      password: {PASSWORD}\n"),
    );
    let clouds = std::fs::read_to_string(sandbox.0.path().join("clouds.yaml")).unwrap();
    sandbox.write(
        "clouds.yaml",
        &clouds.replace(&format!("      password: {PASSWORD}\n"), ""),
    );
    succeeded(&sandbox.harvest());
    cloud.finish();
}

#[test]
fn a_floating_ip_without_a_router_to_its_network_is_a_warning_of_the_checks() {
    for gateway in ["ext-1", "ext-2"] {
        let (cloud, sandbox) = cloud();
        sandbox.add("os_api_floating_ip=203.0.113.9\n");
        cloud.with(|world| {
            world
                .stores
                .floating_ips
                .push(json!({"id": "f", "floating_ip_address": "203.0.113.9", "port_id": null,
                "floating_network_id": "ext-1", "description": ""}));
            let gateway = json!({"network_id": gateway});
            world
                .stores
                .routers
                .push(json!({"id": "router-1", "external_gateway_info": gateway}));
            world.ports.push(
                json!({"id": "gateway", "name": "", "description": "", "network_id": "net-1",
                "mac_address": "fa:16:3e:00:00:01", "device_id": "router-1", "device_owner": "network:router_interface",
                "fixed_ips": [{"subnet_id": "sub-1", "ip_address": "10.20.0.1"}]}),
            );
        });
        let output = sandbox.run(&["check"], &[]);
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let warning = "no router of this project connects network private with external network ext-1";
        assert_eq!(text.contains(warning), gateway == "ext-2", "{gateway}: {text}");
        assert!(!text.contains("203.0.113.9 is in use"), "{text}");
        cloud.finish();
    }
}

fn user_data(server: &Value) -> Value {
    let text = server["server"]["user_data"].as_str().unwrap();
    serde_json::from_slice(&STANDARD.decode(text).unwrap()).unwrap()
}

#[test]
fn volumes_have_the_clusters_tag_and_are_deleted_with_it() {
    let (cloud, sandbox) = cloud_with(&["volumev3"]);
    sandbox.deploy_in_vain("os_boot=volume\nos_volume_type=ssd\nextra_disks=5,6\n");
    cloud.with(|world| {
        let mut volumes: Vec<_> = world
            .stores
            .volumes
            .iter()
            .map(|volume| {
                assert_eq!(volume["metadata"], json!({"ocpdeploy.cluster": sandbox.tag()}));
                assert_eq!(
                    (volume["status"].as_str(), volume["volume_type"].as_str()),
                    (Some("in-use"), Some("ssd"))
                );
                let has_image = if volume["imageRef"].is_null() {
                    ""
                } else {
                    " of an image"
                };
                format!("{} {}{has_image}", volume["name"].as_str().unwrap(), volume["size"])
            })
            .collect();
        volumes.sort();
        assert_eq!(
            volumes,
            [
                "lab-bootstrap:disk0 1 of an image",
                "lab-master-0:disk0 1 of an image",
                "lab-master-0:disk1 5",
                "lab-master-0:disk2 6",
            ]
        );
        for body in &world.stores.bodies {
            assert_eq!(body["server"]["imageRef"], Value::Null);
            let devices = body["server"]["block_device_mapping_v2"].as_array().unwrap();
            assert!(devices.iter().all(|device| device["delete_on_termination"] == true));
        }
        // A volume that Nova left: its server is deleted, and its name identifies the owner.
        let mut lost = world.stores.volumes[0].clone();
        lost["id"] = json!("volume-lost");
        lost["status"] = json!("available");
        lost["attachments"] = json!([]);
        world.stores.volumes.push(lost);
        let mut strangers = world.stores.volumes[0].clone();
        strangers["id"] = json!("volume-stranger");
        strangers["metadata"] = json!({});
        strangers["attachments"] = json!([]);
        world.stores.volumes.push(strangers);
    });
    let listed = sandbox.run(&["destroy", "lab", "--dry-run"], &[]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert_eq!(
        listed.lines().filter(|line| line.starts_with("volume ")).count(),
        4,
        "{listed}"
    );
    sandbox.destroy();
    cloud.with(|world| {
        let left: Vec<_> = world
            .stores
            .volumes
            .drain(..)
            .map(|volume| volume["id"].clone())
            .collect();
        assert_eq!(left, ["volume-stranger"]);
    });
    let world = cloud.finish();
    assert_eq!(world.ports, [Value::Null; 0]);
    is_empty(&world.stores);
}

#[test]
fn servers_that_nova_keeps_after_their_deletion_are_deleted_for_good() {
    let (cloud, sandbox) = cloud();
    cloud.with(|world| world.stores.keeps_deleted = true);
    sandbox.deploy_in_vain("");
    // A `destroy` that was killed deleted one of them: no list has it, and its port is in use.
    cloud.with(|world| world.stores.servers[0]["status"] = json!("SOFT_DELETED"));
    sandbox.destroy();
    let forced = cloud.asked("POST /compute/v2.1/servers/server-");
    let world = cloud.finish();
    assert!(forced >= 2, "{forced}");
    assert_eq!(world.ports, [Value::Null; 0]);
    is_empty(&world.stores);
}

#[test]
fn an_unreachable_swift_that_is_not_used_is_skipped() {
    for (lines, is_skipped) in [("os_ignition=glance\n", false), ("", true)] {
        let (cloud, sandbox) = cloud_with(&["object-store"]);
        // Nothing listens there.
        cloud.with(|world| {
            world.elsewhere.insert("object-store", "http://127.0.0.1:1/v1/AUTH_1");
        });
        sandbox.deploy_in_vain(lines);
        let output = sandbox.run(&["destroy", "lab", "--yes"], &[]);
        let text = succeeded(&output);
        let told = text.matches("object storage (Swift) is skipped").count();
        assert_eq!(told, usize::from(is_skipped), "{lines}: {text}");
        is_empty(&cloud.finish().stores);
    }
    // If the settings require it, its failure is an error.
    let (cloud, sandbox) = cloud_with(&["object-store"]);
    sandbox.deploy_in_vain("os_ignition=swift\n");
    cloud.with(|world| {
        world.elsewhere.insert("object-store", "http://127.0.0.1:1/v1/AUTH_1");
    });
    let output = sandbox.run(&["destroy", "lab", "--yes"], &[]);
    assert_ne!(output.status.code(), Some(0));
    cloud.with(|world| world.elsewhere.clear());
    destroys_all(cloud, &sandbox);
}

/// Services that the settings do not use may be closed to this user, broken or missing.
#[test]
fn services_that_are_not_used_are_skipped_with_one_warning() {
    let optional = [
        ("load-balancer", "load balancer (Octavia) is skipped"),
        ("volumev3", "block storage (Cinder) is skipped"),
        ("object-store", "object storage (Swift) is skipped"),
    ];
    let kinds = optional.map(|(kind, _)| kind);
    let broken = |status: Option<u16>| {
        let (cloud, sandbox) = cloud_with(&kinds);
        cloud.with(|world| match status {
            Some(status) => world.optional_fail = Some(status),
            // Nothing listens there.
            None => world.elsewhere.extend(kinds.map(|kind| (kind, "http://127.0.0.1:1/x"))),
        });
        for arguments in [&["check"][..], &["harvest"], &["destroy", "lab", "--yes"]] {
            let output = sandbox.run(arguments, &[("OCPDEPLOY_DNS", "user")]);
            let said = String::from_utf8_lossy(&output.stderr);
            let results = String::from_utf8_lossy(&output.stdout);
            let failed: Vec<_> = results.lines().filter(|line| line.starts_with("FAIL")).collect();
            let is_as_usual = match arguments {
                ["check"] => failed.len() == 1 && failed[0].contains("cannot find openshift-install"),
                _ => output.status.success(),
            };
            assert!(is_as_usual, "{status:?} {arguments:?}: {said}{results}");
            for (_, warning) in optional {
                let told = said.matches(warning).count();
                // Of Swift, not found also means that there is no container.
                let may_be_empty = status == Some(404) && warning.starts_with("object storage");
                let is_told_once = told == 1 || told == 0 && may_be_empty;
                assert!(is_told_once, "{status:?} {arguments:?} {warning}: {said}");
            }
        }
        assert_eq!(cloud.finish().ports, [Value::Null; 0], "{status:?}");
    };
    std::thread::scope(|scope| {
        for status in [Some(401), Some(403), Some(404), Some(503), None] {
            scope.spawn(move || broken(status));
        }
    });
}

#[test]
fn a_service_that_is_used_must_work_to_destroy_the_cluster() {
    for (kind, lines, name) in [
        ("volumev3", "os_boot=volume\n", "block storage (Cinder)"),
        ("volumev3", "extra_disks=5\n", "block storage (Cinder)"),
        ("load-balancer", "lb=platform\n", "load balancer (Octavia)"),
    ] {
        let (cloud, sandbox) = cloud_with(&[kind]);
        sandbox.add(lines);
        succeeded(&sandbox.harvest());
        cloud.with(|world| {
            world.elsewhere.insert(kind, "http://127.0.0.1:1/x");
        });
        let output = sandbox.run(&["destroy", "lab", "--yes"], &[]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_ne!(output.status.code(), Some(0), "{lines}: {said}");
        assert!(said.contains(name) && !said.contains("is skipped"), "{lines}: {said}");
        cloud.with(|world| world.elsewhere.clear());
        sandbox.destroy();
        cloud.finish();
    }
}

/// Nova had no host for a server: the cause is gone, and perhaps the server, too.
#[test]
fn a_server_that_never_ran_is_created_again() {
    for is_deleted_by_the_user in [false, true] {
        let (cloud, sandbox) = cloud();
        cloud.with(|world| world.stores.unschedulable = vec!["lab-master-0"]);
        let output = sandbox.begin_to_deploy("");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_ne!(output.status.code(), Some(0), "{said}");
        assert!(
            said.contains("No valid host was found") && said.contains("run the same command again"),
            "{said}"
        );
        let bootstrap = cloud.with(|world| {
            world.stores.unschedulable.clear();
            let of_master = |server: &Value| server["name"] == "lab-master-0";
            if is_deleted_by_the_user {
                let id = world.stores.servers.iter().find(|server| of_master(server)).unwrap()["id"].clone();
                world.stores.servers.retain(|server| !of_master(server));
                for port in world.ports.iter_mut().filter(|port| port["device_id"] == id) {
                    port["device_id"] = json!("");
                }
            }
            id_of_server(world, "lab-bootstrap")
        });
        let said = sandbox.deploy_in_vain("");
        let warning = "server lab-master-0 never ran and is created again: No valid host was found";
        assert_eq!(said.contains(warning), !is_deleted_by_the_user, "{said}");
        cloud.with(|world| {
            let names = |server: &Value| server["name"].as_str().unwrap().to_owned();
            let mut servers: Vec<_> = world.stores.servers.iter().map(names).collect();
            servers.sort();
            assert_eq!(servers, ["lab-bootstrap", "lab-master-0"]);
            assert_eq!(id_of_server(world, "lab-bootstrap"), bootstrap, "the other one is kept");
            assert_eq!(world.ports.len(), 4);
        });
        destroys_all(cloud, &sandbox);
    }
}

fn id_of_server(world: &World, name: &str) -> Value {
    let mut servers = world.stores.servers.iter();
    servers.find(|server| server["name"] == name).unwrap()["id"].clone()
}

/// A floating IP of the user for the API, and one that is created for ingress.
#[test]
fn floating_ips_are_in_the_table_and_in_all_results() {
    let (cloud, sandbox) = cloud();
    sandbox.add("os_external_network=public\nos_api_floating_ip=203.0.113.9\n");
    cloud.with(|world| {
        world.stores.floating_ips.push(
            json!({"id": "own", "floating_ip_address": "203.0.113.9", "port_id": null, "description": "",
            "floating_network_id": "ext-1"}),
        );
        world.neutron.others.push(
            json!({"id": "ext-1", "name": "public", "project_id": "project-2", "router:external": true,
            "port_security_enabled": true}),
        );
    });
    succeeded(&sandbox.harvest());
    let home = Home::new(sandbox.0.path().join("home"));
    let table = Parameters::read(&home.cluster("lab").parameters()).unwrap().unwrap();
    let ingress = cloud.with(|world| {
        let port_of = |vip: &str| {
            let name = format!("{vip}.lab.example.com");
            world.ports.iter().find(|port| port["name"] == name).unwrap()["id"].clone()
        };
        let [own, made] = world.stores.floating_ips.as_slice() else {
            panic!("{:?}", world.stores.floating_ips)
        };
        assert_eq!(
            (&own["port_id"], &made["port_id"]),
            (&port_of("api"), &port_of("ingress"))
        );
        made["floating_ip_address"].as_str().unwrap().to_owned()
    });
    let external = table.external_vips;
    assert_eq!(external.api, Some([203, 0, 113, 9].into()));
    assert_eq!(external.ingress.map(|ip| ip.to_string()), Some(ingress.clone()));

    let (api, int) = ("203.0.113.9".to_owned(), table.api_ip.to_string());
    let said = |arguments: &[&str]| {
        let output = sandbox.run(arguments, &[]);
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    for (arguments, wanted) in [
        (&["status", "lab"][..], vec![api.clone(), ingress.clone()]),
        (
            &["list"],
            vec![format!("{int} ({api})"), format!("{} ({ingress})", table.ingress_ip)],
        ),
        (
            &["export", "hosts", "lab"],
            vec![
                format!("{api} api.lab.example.com\n"),
                format!("{int} api-int.lab.example.com\n"),
                format!("{ingress} console-openshift-console.apps.lab.example.com\n"),
            ],
        ),
        (
            &["export", "dns", "lab"],
            vec![
                format!("api                      IN A    {api}\n"),
                format!("api-int                  IN A    {int}\n"),
                format!("*.apps                   IN A    {ingress}\n"),
            ],
        ),
        (
            &["dns", "apply", "lab", "--dry-run", "--root", "."],
            vec![format!("+{api} api.lab.example.com\n")],
        ),
        (&["export", "kcli", "lab"], vec![format!("public_api_ip: \"{api}\"\n")]),
    ] {
        let said = said(arguments);
        for wanted in wanted {
            assert!(said.contains(&wanted), "{arguments:?}: {wanted}: {said}");
        }
    }
    let kubeconfig = home.cluster("lab").kubeconfig();
    std::fs::create_dir_all(kubeconfig.parent().unwrap()).unwrap();
    let text = "clusters:\n- cluster:\n    certificate-authority-data: QQ==\n    server: https://api.lab.example.com:6443\n  name: lab\n";
    std::fs::write(&kubeconfig, text).unwrap();
    assert!(said(&["kubeconfig", "lab"]).contains("https://203.0.113.9:6443"));

    sandbox.destroy();
    let left: Vec<_> = cloud
        .finish()
        .stores
        .floating_ips
        .iter()
        .map(|one| one["id"].clone())
        .collect();
    assert_eq!(left, ["own"], "only the one that was created is deleted");
}

#[test]
fn a_failed_volume_is_reported_and_deleted() {
    let (cloud, sandbox) = cloud_with(&["volumev3"]);
    cloud.with(|world| world.stores.bad_volumes = vec!["lab-bootstrap:disk0", "lab-master-0:disk0"]);
    let text = sandbox.failed_rehearsal("os_boot=volume\n", 5);
    assert!(text.contains("of 1 GiB has status error"), "{text}");
    cloud.with(|world| assert_eq!(world.stores.volumes, [Value::Null; 0]));
    destroys_all(cloud, &sandbox);
}

#[test]
fn the_wait_for_a_volume_is_limited() {
    let (cloud, sandbox) = cloud_with(&["volumev3"]);
    cloud.with(|world| world.stores.slow_volumes = true);
    let text = sandbox.failed_rehearsal("os_boot=volume\nos_volume_timeout=2s\n", 6);
    assert!(
        text.contains("is still creating after 2 s") && text.contains("hint: set os_volume_timeout to a longer time"),
        "{text}"
    );
    cloud.with(|world| world.stores.slow_volumes = false);
    destroys_all(cloud, &sandbox);
}

#[test]
fn a_mac_that_was_taken_after_the_checks_is_reported() {
    let (cloud, sandbox) = cloud();
    let mac = "52:54:00:aa:bb:01";
    sandbox.add(&format!("master_macs={mac}\n"));
    let port = json!({"id": "their-port", "network_id": "net-1", "mac_address": mac, "name": "", "description": "",
        "fixed_ips": [{"subnet_id": "sub-1", "ip_address": "10.20.0.250"}]});
    cloud.with(|world| world.others_ports.push(port));
    let refusal = sandbox.refusal(5);
    let expected = format!("port their-port with MAC {mac} belongs to another owner");
    assert!(refusal.contains(&expected), "{refusal}");
    // At most one for each other node and VIP: the subnet has 250 addresses.
    assert!(cloud.asked("POST /network/v2.0/ports") <= 3);
    cloud.finish();
}

#[test]
fn outdated_rules_are_deleted_and_rules_of_users_are_kept() {
    let (cloud, sandbox) = cloud();
    let rule = |id: &str, description: &str| {
        json!({"id": id, "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": 9999,
            "port_range_max": 9999, "description": description, "security_group_id": "sg-old"})
    };
    let tag = format!("ocpdeploy {}", sandbox.known_tag(""));
    let group = json!({"id": "sg-old", "name": tag, "description": tag,
        "security_group_rules": [rule("ours", "ocpdeploy"), rule("theirs", "monitoring")]});
    cloud.with(|world| world.stores.groups = vec![group]);
    sandbox.deploy_in_vain("");
    cloud.with(|world| {
        let rules = world.stores.groups[0]["security_group_rules"].as_array().unwrap();
        let has = |id: &str| rules.iter().any(|rule| rule["id"] == id);
        assert_eq!((has("ours"), has("theirs")), (false, true), "{rules:?}");
        let out: Vec<_> = rules.iter().filter(|rule| rule["direction"] == "egress").collect();
        assert_eq!(
            out.len(),
            1,
            "an administrator may have removed the default rule: {rules:?}"
        );
    });
    destroys_all(cloud, &sandbox);
}

#[test]
fn the_bootstraps_config_is_a_private_image_or_an_object_with_a_random_name() {
    for (lines, refusal, in_swift) in [
        ("", None, false),
        ("os_ignition=glance\n", None, false),
        ("os_ignition=swift\n", None, true),
        // Glance rejects one more image, and Swift stores it.
        ("", Some(Trouble::Status(413, json!("quota of images"))), true),
    ] {
        let (cloud, sandbox) = cloud_with(&["object-store"]);
        if let Some(refusal) = refusal {
            // The system's image is the first.
            cloud.trouble("POST /image/v2/images", [Trouble::None, refusal]);
        }
        sandbox.deploy_in_vain(lines);
        cloud.with(|world| {
            let stores = &world.stores;
            let bodies = &stores.bodies;
            let bootstrap = bodies
                .iter()
                .find(|body| body["server"]["name"] == "lab-bootstrap")
                .unwrap();
            let fetched = &user_data(bootstrap)["ignition"]["config"]["merge"][0];
            let source = fetched["source"].as_str().unwrap();
            let contents: Vec<_> = stores
                .images
                .iter()
                .filter(|image| !image["ocpdeploy_content"].is_null())
                .collect();
            let hash = match in_swift {
                true => {
                    assert_eq!(contents, [&Value::Null; 0]);
                    let (name, config) = stores.objects.first_key_value().unwrap();
                    assert!(source.contains(&format!("{ACCOUNT}/{name}?temp_url_sig=")), "{source}");
                    assert_eq!(fetched["httpHeaders"], Value::Null, "it needs no token");
                    assert_eq!(
                        stores.fetched,
                        [name.as_str()],
                        "it was fetched once, as a machine does"
                    );
                    let random = name.rsplit('/').next().unwrap();
                    assert!(random.len() == 32 && !name.contains(stores.containers.values().next().unwrap()));
                    ocpdeploy::digest::sha512(config)
                }
                false => {
                    assert!(stores.objects.is_empty() && stores.containers.is_empty());
                    assert_eq!(
                        (contents.len(), contents[0]["visibility"].as_str()),
                        (1, Some("private"))
                    );
                    assert!(source.ends_with(&format!("/images/{}/file", contents[0]["id"].as_str().unwrap())));
                    contents[0]["os_hash_value"].as_str().unwrap().to_owned()
                }
            };
            assert_eq!(fetched["verification"]["hash"], format!("sha512-{hash}"));
        });
        sandbox.destroy();
        let world = cloud.finish();
        assert_eq!(world.ports, [Value::Null; 0]);
        is_empty(&world.stores);
    }
}

#[test]
fn objects_of_others_in_the_container_survive() {
    let (cloud, sandbox) = cloud_with(&["object-store"]);
    sandbox.deploy_in_vain("os_ignition=swift\n");
    let container = format!("ocpdeploy-{}", sandbox.tag());
    let foreign = ["notes", "lab-bootstrap/backup.ign"].map(|name| format!("{container}/{name}"));
    cloud.with(|world| {
        for name in &foreign {
            world.stores.objects.insert(name.clone(), b"theirs".to_vec());
        }
    });
    sandbox.destroy();
    let stores = cloud.finish().stores;
    assert_eq!(stores.objects.keys().collect::<Vec<_>>(), [&foreign[1], &foreign[0]]);
    assert_eq!(stores.containers.len(), 1);
}

#[test]
fn an_object_store_without_temporary_urls_is_reported_before_a_machine_needs_it() {
    let (cloud, sandbox) = cloud_with(&["object-store"]);
    let tag = sandbox.known_tag("os_ignition=swift\n");
    let object = format!("HEAD {ACCOUNT}/ocpdeploy-{tag}/");
    cloud.trouble(&object, [Trouble::Status(401, Value::Null)]);
    let text = sandbox.failed_rehearsal("os_ignition=swift\n", 5);
    assert!(text.contains("does not support temporary URLs"), "{text}");
    assert!(!text.contains("temp_url_sig"), "{text}");
    destroys_all(cloud, &sandbox);
}

#[test]
fn the_temporary_urls_of_other_machines_stay_valid() {
    let (cloud, sandbox) = cloud_with(&["object-store"]);
    let container = format!("ocpdeploy-{}", sandbox.known_tag("os_ignition=swift\n"));
    cloud.with(|world| {
        let stores = &mut world.stores;
        stores.fetched.clear();
        stores.objects.clear();
        stores.containers.insert(container.clone(), "their-key".to_owned());
        let config = format!("{container}/lab-worker-0/{}", "0".repeat(32));
        stores.objects.insert(config, b"{}".to_vec());
    });
    sandbox.deploy_in_vain("os_ignition=swift\n");
    cloud.with(|world| {
        let stores = &world.stores;
        assert_eq!(stores.containers.values().collect::<Vec<_>>(), ["their-key"]);
        assert_eq!((stores.objects.len(), stores.fetched.len()), (2, 1));
    });
    destroys_all(cloud, &sandbox);
}

#[test]
fn members_of_a_soft_group_are_created_one_after_the_other() {
    let (cloud, sandbox) = cloud();
    sandbox.deploy_in_vain("masters=3\n");
    cloud.with(|world| {
        let servers = world.stores.servers.iter();
        let masters = servers.filter(|server| server["name"].as_str().unwrap().contains("-master-"));
        let mut hosts: Vec<_> = masters.map(|server| server["hostId"].as_str().unwrap()).collect();
        hosts.sort_unstable();
        assert_eq!(hosts, ["host-0", "host-0", "host-1"]);
    });
    destroys_all(cloud, &sandbox);
}

#[test]
fn a_machine_is_shown_as_nova_json_without_its_payload() {
    let (cloud, sandbox) = cloud();
    sandbox.deploy_in_vain("");
    let shown = sandbox.run(&["node", "show", "lab", "master-0", "--format", "json"], &[]);
    let text = String::from_utf8(shown.stdout).unwrap();
    let shown: Value = serde_json::from_str(&text).unwrap();
    let form = &shown["platform_form"];
    assert_eq!(form["name"], "Nova JSON", "{text}");
    let server: Value = serde_json::from_str(form["text"].as_str().unwrap()).unwrap();
    assert_eq!(
        (server["name"].as_str(), server["status"].as_str()),
        (Some("lab-master-0"), Some("ACTIVE"))
    );
    assert!(!text.contains("user_data"), "{text}");
    destroys_all(cloud, &sandbox);
}

#[test]
fn an_address_of_pass_one_counts_when_its_guest_has_reported_it() {
    let (cloud, sandbox) = cloud();
    cloud.with(|world| {
        world
            .stores
            .images
            .push(json!({"id": "centos", "name": "centos", "status": "active", "tags": []}))
    });
    let lines = "harvest=boot\nharvest_image=centos\nharvest_timeout=5s\n";
    sandbox.add(lines);
    let refusal = sandbox.refusal(6);
    assert!(refusal.contains("lab-harvest-master-0"), "{refusal}");
    cloud.with(|world| world.stores.consoles_tell = true);
    succeeded(&sandbox.harvest());
    let world = cloud.finish();
    assert_eq!(world.ports.len(), 4);
    assert_eq!(world.stores.servers, [Value::Null; 0], "pass one leaves only its ports");
}

/// Nova has no console for the machine, or its host does not respond at once.
#[test]
fn a_console_that_is_missing_or_fails_once_does_not_end_pass_one() {
    let status =
        |code: u16, kind: &str, message: &str| Trouble::Status(code, json!({kind: {"code": code, "message": message}}));
    let none = || status(404, "itemNotFound", "Guest does not have a console available.");
    let slow = || status(500, "computeFault", "Unexpected API Error. MessagingTimeout");
    let early = || status(404, "itemNotFound", "Instance server-1 could not be found.");
    for (troubles, is_warned) in [(vec![none(), none()], true), (vec![slow(), early()], false)] {
        let (cloud, sandbox) = cloud();
        image(&cloud, json!({"status": "active"}));
        sandbox.add("harvest=boot\nharvest_image=centos\nharvest_timeout=20s\n");
        cloud.with(|world| world.stores.consoles_tell = true);
        cloud.trouble("POST /compute/v2.1/servers/server-", troubles);
        let said = succeeded(&sandbox.harvest());
        let warning = "has no console: using the address that Neutron assigned";
        assert_eq!(said.contains(warning), is_warned, "{said}");
        assert_eq!(cloud.finish().ports.len(), 4);
    }
}

#[test]
fn a_volume_with_snapshots_and_a_group_on_a_port_of_the_user_are_named() {
    let (cloud, sandbox) = cloud_with(&["volumev3"]);
    sandbox.deploy_in_vain("os_boot=volume\n");
    cloud.with(|world| {
        let mut lost = world.stores.volumes[0].clone();
        (lost["id"], lost["status"]) = (json!("volume-lost"), json!("available"));
        (lost["attachments"], lost["snapshots"]) = (json!([]), json!(["s"]));
        world.stores.volumes.push(lost);
    });
    let refused = || {
        let output = sandbox.run(&["destroy", "lab", "--yes"], &[]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_ne!(output.status.code(), Some(0), "{said}");
        said
    };
    let said = refused();
    assert!(
        said.contains("have snapshots") && said.contains("snapshot list --volume volume-lost"),
        "{said}"
    );
    cloud.with(|world| {
        let lost = world
            .stores
            .volumes
            .iter_mut()
            .find(|volume| volume["id"] == "volume-lost")
            .unwrap();
        (lost["status"], lost["snapshots"]) = (json!("error_extending"), Value::Null);
        let group = &world.stores.groups[0]["id"];
        world.ports.push(
            json!({"id": "their-port", "name": "database", "description": "", "network_id": "net-1",
            "mac_address": "fa:16:3e:00:00:09", "device_id": "", "fixed_ips": [], "security_groups": [group]}),
        );
    });
    let said = refused();
    let expected = "is in use by port their-port database, which belongs to another owner";
    assert!(
        said.contains(expected) && said.contains("openstack port unset --security-group"),
        "{said}"
    );
    cloud.with(|world| world.ports.retain(|port| port["id"] != "their-port"));
    destroys_all(cloud, &sandbox);
}

/// Each mistake, on a separate cloud, and the program's message.
#[test]
fn each_mistake_has_its_message() {
    type Mistake = (&'static str, i32, fn(&FakeCloud, &Sandbox));
    let mistakes: [Mistake; 24] = [
        ("unknown cloud", 5, |_, sandbox| {
            sandbox.add("os_cloud=lbo\n");
        }),
        ("wrong password", 5, |cloud, sandbox| {
            let url = cloud.auth_url();
            sandbox
                .clouds(&url, "")
                .write("secure.yaml", "clouds:\n  lab:\n    auth:\n      password: other\n");
        }),
        ("missing catalog entry", 4, |cloud, _| {
            cloud.with(|world| world.lacking = vec!["image"])
        }),
        ("unknown region", 4, |_, sandbox| {
            sandbox.add("os_region=two\n");
        }),
        ("not verified", 5, |cloud, sandbox| {
            sandbox.clouds(&cloud.auth_url(), "    verify: false\n");
        }),
        ("flavor too small", 4, |cloud, _| {
            let flavors = json!({"flavors": [flavor("tiny", 1, 512, 10), flavor("large", 8, 32768, 80)]});
            answer(cloud, "/compute/v2.1/flavors/detail", flavors);
        }),
        ("named flavor too small", 4, |cloud, sandbox| {
            sandbox.add("os_master_flavor=tiny\n");
            let flavors = json!({"flavors": [flavor("tiny", 1, 512, 10), flavor("large", 8, 32768, 120)]});
            answer(cloud, "/compute/v2.1/flavors/detail", flavors);
        }),
        ("machine network of no subnet", 4, |_, sandbox| {
            sandbox.add("machine_network=10.99.0.0/24\n");
        }),
        ("network without DHCP", 4, |cloud, _| {
            let subnet = json!({"id": "sub-1", "network_id": "net-1", "ip_version": 4, "cidr": "10.20.0.0/24",
                "enable_dhcp": false});
            answer(cloud, "/network/v2.0/subnets", json!({"subnets": [subnet]}));
        }),
        ("quota short by one", 4, |cloud, _| {
            let limits =
                json!({"maxTotalCores": 20, "totalCoresUsed": 13, "maxTotalInstances": -1, "maxTotalRAMSize": -1});
            answer(cloud, "/compute/v2.1/limits", json!({"limits": {"absolute": limits}}));
        }),
        ("quota of rules", 4, |cloud, _| {
            let quota = json!({"security_group_rule": {"limit": 100, "used": 90, "reserved": 0}});
            answer(
                cloud,
                "/network/v2.0/quotas/project-1/details.json",
                json!({"quota": quota}),
            );
        }),
        ("quota of a volume type", 4, |cloud, sandbox| {
            sandbox.add("os_boot=volume\nos_volume_type=ssd\ndisk_size=300\nmasters=3\nworkers=6\n");
            cloud.with(|world| world.more = vec!["volumev3"]);
        }),
        ("role reader", 4, |cloud, _| {
            cloud.with(|world| world.roles = vec!["reader"]);
        }),
        ("image still queued", 5, |cloud, sandbox| {
            sandbox.add("harvest=boot\nharvest_image=centos\n");
            image(cloud, json!({"status": "queued"}));
        }),
        ("flavor too small for the image", 5, |cloud, sandbox| {
            sandbox.add("harvest=boot\nharvest_image=centos\n");
            image(cloud, json!({"status": "active", "min_disk": 200}));
        }),
        ("floating IP in use", 4, |cloud, sandbox| {
            sandbox.add("os_api_floating_ip=203.0.113.9\n");
            let floating = json!({"id": "f", "floating_ip_address": "203.0.113.9", "port_id": "their-port",
                "floating_network_id": "ext-1", "description": ""});
            cloud.with(|world| world.stores.floating_ips.push(floating));
        }),
        ("floating IP without port security", 4, |cloud, sandbox| {
            sandbox.add("os_ingress_floating_ip=203.0.113.9\n");
            let network = json!({"id": "net-1", "name": "private", "project_id": "project-1", "router:external": false,
                "port_security_enabled": false});
            answer(cloud, "/network/v2.0/networks", json!({"networks": [network]}));
            let floating = json!({"id": "f", "floating_ip_address": "203.0.113.9", "port_id": null,
                "floating_network_id": "ext-1", "description": ""});
            cloud.with(|world| world.stores.floating_ips.push(floating));
        }),
        ("one VIP with two floating IPs", 3, |_, sandbox| {
            let lines = "api_ip=10.20.0.9\ningress_ip=10.20.0.9\nos_ingress_floating_ip=203.0.113.9\n";
            sandbox.add(lines);
        }),
        ("unknown zone", 4, |cloud, sandbox| {
            sandbox.add("os_zone=az1,az9\n");
            let zone = json!({"zoneName": "az1", "zoneState": {"available": true}, "hosts": null});
            answer(
                cloud,
                "/compute/v2.1/os-availability-zone",
                json!({"availabilityZoneInfo": [zone]}),
            );
        }),
        ("unknown volume type and zone", 4, |cloud, sandbox| {
            let lines = "os_boot=volume\nos_volume_type=fast\nos_volume_zone=far,farther\n";
            sandbox.add(lines);
            cloud.with(|world| world.more = vec!["volumev3"]);
        }),
        ("API without microversions", 4, |cloud, _| {
            let version = json!({"id": "v2.0", "status": "SUPPORTED", "version": "", "min_version": ""});
            answer(cloud, "/compute/v2.1/", json!({"version": version}));
        }),
        ("unified limit", 5, |cloud, _| {
            let fault = "Project project-1 is over a limit for [Resource port is over limit of 2 due to current usage 2 and delta 1]";
            let fault = json!({"NeutronError": {"type": "ProjectOverLimit", "message": fault, "detail": ""}});
            cloud.trouble("POST /network/v2.0/ports", [Trouble::Status(403, fault)]);
        }),
        ("token too short-lived for user data", 4, |cloud, _| {
            cloud.with(|world| world.lifetime = Some(600));
        }),
        ("another project's network", 4, |cloud, _| {
            let network = json!({"id": "net-1", "name": "private", "project_id": "project-2"});
            answer(cloud, "/network/v2.0/networks", json!({"networks": [network]}));
            let fault = "((rule:create_port and rule:create_port:mac_address)) is disallowed by policy";
            let fault = json!({"NeutronError": {"type": "PolicyNotAuthorized", "message": fault, "detail": ""}});
            cloud.trouble("POST /network/v2.0/ports", [Trouble::Status(403, fault)]);
        }),
    ];
    let mut all = String::new();
    for (name, code, make) in mistakes {
        let (cloud, sandbox) = cloud();
        make(&cloud, &sandbox);
        let said = told(&sandbox.refusal(code), &sandbox);
        let said = match name {
            "flavor too small for the image" => without_machine(said),
            _ => said,
        };
        all += &format!("-- {name}\n{said}\n");
        let made = cloud.finish().ports;
        // The checks fail before anything is created; the platform may reject requests later.
        assert!(code != 4 || made.is_empty(), "{name}: {made:?} was created");
    }
    insta::assert_snapshot!(all);
}

/// All machines of pass one are created in parallel: any of them may be reported.
fn without_machine(mut said: String) -> String {
    for (role, number) in [("bootstrap", 0), ("master", 0), ("helper", 0), ("helper", 1)] {
        said = said
            .replace(&format!("lab-harvest-{role}-{number}"), "MACHINE")
            .replace(&format!("os_{role}_flavor"), "os_ROLE_flavor");
    }
    said
}

/// Without the setting, nobody on the network can become root on the nodes.
#[test]
fn nodes_get_their_config_unencrypted_only_on_request() {
    for lines in ["", "mcs=auto\n", "mcs=http\n", "dns=user\n"] {
        let (cloud, sandbox) = cloud();
        // After the checks, the run fails at this image.
        sandbox.add(&format!("harvest=boot\nharvest_image=centos\n{lines}"));
        image(&cloud, json!({"status": "queued"}));
        let output = sandbox.run(&["harvest"], &[]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(5), "{lines}: {text}");
        let risk = "mcs=http is not encrypted: anyone on the network can read the secrets";
        assert_eq!(text.contains(risk), lines.starts_with("mcs=http"), "{lines}: {text}");
        cloud.finish();
    }
}

/// A node's whole configuration is too large for user data.
#[test]
fn a_large_config_is_fetched_with_a_token_of_its_own() {
    let (cloud, sandbox) = cloud();
    // It cannot be compressed.
    let noise: Vec<u8> = (0..1700_u32)
        .flat_map(|n| ocpdeploy::digest::sha256(n.to_string()).into_bytes())
        .collect();
    let file =
        json!({"path": "/etc/noise", "contents": {"source": format!("data:,{}", String::from_utf8(noise).unwrap())}});
    let config = json!({"ignition": {"version": "3.1.0"}, "storage": {"files": [file]}});
    sandbox.write("noise.ign", &config.to_string());
    sandbox.deploy_in_vain("ignition_extra=master:noise.ign\n");
    let tokens = cloud.with(|world| {
        let stores = &world.stores;
        let mut tokens = Vec::new();
        for name in ["lab-bootstrap", "lab-master-0"] {
            let body = stores
                .bodies
                .iter()
                .find(|body| body["server"]["name"] == name)
                .unwrap();
            let fetched = &user_data(body)["ignition"]["config"]["merge"][0];
            let image = stores
                .images
                .iter()
                .find(|image| image["ocpdeploy_content"] == name)
                .unwrap();
            assert_eq!(image["visibility"], "private");
            let file = format!("/images/{}/file", image["id"].as_str().unwrap());
            assert!(fetched["source"].as_str().unwrap().ends_with(&file), "{fetched}");
            let header = &fetched["httpHeaders"][0];
            assert_eq!(header["name"], "X-Auth-Token");
            let token = header["value"].as_str().unwrap().strip_prefix("token-").unwrap();
            tokens.push(token.parse::<usize>().unwrap());
        }
        tokens
    });
    assert_ne!(tokens[0], tokens[1]);
    // Nothing else uses these tokens: revoking them breaks nothing else.
    cloud.with(|world| world.revoked.extend(&tokens));
    destroys_all(cloud, &sandbox);
}

#[test]
fn a_token_of_a_machine_that_is_not_created_is_revoked() {
    let (cloud, sandbox) = cloud();
    // The system's image is the first, the config of the bootstrap the second.
    let refusal = Trouble::Status(413, json!("quota of images"));
    cloud.trouble("POST /image/v2/images", [Trouble::None, refusal]);
    let output = sandbox.begin_to_deploy("");
    assert_ne!(output.status.code(), Some(0));
    let (revoked, tokens) = cloud.with(|world| (world.revoked.clone(), world.tokens));
    assert_eq!(revoked.len(), 1, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(revoked[0] <= tokens);
    destroys_all(cloud, &sandbox);
}

fn image(cloud: &FakeCloud, more: Value) {
    let mut image = json!({"id": "centos", "name": "centos", "tags": []});
    image.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    cloud.with(|world| world.stores.images.push(image));
}

/// The env file with these lines, which replace those of the same settings.
pub(crate) fn env(sandbox: &Sandbox, lines: &str) -> String {
    let name = |line: &str| line.split('=').next().unwrap_or_default().to_owned();
    let usual = std::fs::read_to_string(sandbox.0.path().join("env.sh")).unwrap();
    let is_kept = |line: &&str| lines.lines().all(|new| name(new) != name(line));
    let kept = usual.lines().filter(is_kept).map(|line| format!("{line}\n"));
    kept.collect::<String>() + lines
}

pub(crate) fn answer(cloud: &FakeCloud, path: &str, value: Value) {
    cloud.with(|world| world.answers.insert(path.to_owned(), value));
}

#[test]
fn an_untrusted_server_gets_no_request() {
    let sandbox = Sandbox::new();
    let (ours, others) = (certificate(), certificate());
    let (address, heard) = serve_tls(&ours);
    let url = format!("https://localhost:{}/v3", address.port());
    sandbox
        .write("ours.pem", &ours.cert.pem())
        .write("others.pem", &others.cert.pem());
    let mut all = String::new();
    for (name, more) in [
        ("no CA", ""),
        ("wrong CA", "    cacert: others.pem\n"),
        ("no file", "    cacert: none.pem\n"),
    ] {
        sandbox.clouds(&url, more);
        let text = sandbox.refusal(5).replace(&address.port().to_string(), "PORT");
        all += &format!("-- {name}\n{text}\n");
        assert_eq!(heard.load(std::sync::atomic::Ordering::SeqCst), 0, "{name}");
    }
    insta::assert_snapshot!(all);
    sandbox.clouds(&url, "    cacert: ours.pem\n");
    let text = sandbox.refusal(5);
    assert!(text.contains("authentication to cloud lab failed"), "{text}");
    assert_eq!(heard.load(std::sync::atomic::Ordering::SeqCst), 1);
}

fn certificate() -> rcgen::CertifiedKey<rcgen::KeyPair> {
    rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap()
}

/// Rejects all requests, and counts them.
fn serve_tls(
    certificate: &rcgen::CertifiedKey<rcgen::KeyPair>,
) -> (std::net::SocketAddr, Arc<std::sync::atomic::AtomicUsize>) {
    use rustls::pki_types::PrivateKeyDer;
    let key = PrivateKeyDer::try_from(certificate.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let (address, heard) = (listener.local_addr().unwrap(), Arc::default());
    let count: Arc<std::sync::atomic::AtomicUsize> = Arc::clone(&heard);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let mut request = [0; 4096];
                if stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                    count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    let answer = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                    let _ = stream.write_all(answer).await;
                    let _ = stream.shutdown().await;
                }
            }
        });
    });
    (address, heard)
}
