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

mod floating_ips;
mod mistakes;
mod services;

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
