//! `ocpdeploy init` without a terminal: questions on stderr, answers as lines on stdin, an env file as the result.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::fake_cloud::{FakeCloud, PASSWORD};
use crate::support::fake_engine::FakeEngine;
use crate::support::fake_kubevirt::{FakeKubevirt, World};
use serde_json::json;

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f lab";

/// A home folder with a key and a pull secret, in which the program is run.
struct Sandbox(tempfile::TempDir);

struct Ran {
    code: Option<i32>,
    out: String,
    /// Without the parts that differ from run to run.
    err: String,
}

impl Sandbox {
    fn new() -> Self {
        let sandbox = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(sandbox.path(".ssh")).unwrap();
        sandbox.write(".ssh/id_ed25519.pub", KEY);
        sandbox.write("pull.json", r#"{"auths":{"registry.example.com":{"auth":"eDp5"}}}"#);
        sandbox
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ocpdeploy"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.0.path())
            .env("OCPDEPLOY_HOME", self.path("state"))
            .current_dir(self.0.path());
        command
    }

    fn run(&self, arguments: &[&str], answers: &[&str]) -> Ran {
        self.ended(self.command(arguments), answers)
    }

    fn ended(&self, mut command: Command, answers: &[&str]) -> Ran {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines: String = answers.iter().map(|answer| format!("{answer}\n")).collect();
        // The program closes the pipe when it needs no more answers.
        let _ = child.stdin.take().unwrap().write_all(lines.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let folder = self.0.path().display().to_string();
        Ran {
            code: output.status.code(),
            out: text(output.stdout),
            err: stable(&text(output.stderr).replace(&folder, "FOLDER")),
        }
    }

    /// Creates an env file with these answers, and checks that the program accepts it.
    #[track_caller]
    fn asked(&self, arguments: &[&str], answers: &[&str]) -> Ran {
        let ran = self.run(arguments, answers);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        assert_eq!(ran.out, "written to env.sh\n");
        let mode = std::fs::metadata(self.path("env.sh")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let plan = self.run(&["plan"], &[]);
        assert_eq!(plan.code, Some(0), "{}", plan.err);
        assert!(plan.out.contains("lab-master-0"), "{}", plan.out);
        ran
    }

    /// The settings of the env file, as bash reads them.
    fn settings(&self) -> String {
        let script = "set -a; . ./env.sh; unset PWD OLDPWD SHLVL; env -0 | sort -z | tr '\\0' '\\n'";
        let output = Command::new("bash")
            .args(["--norc", "-c", script])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .current_dir(self.0.path())
            .output()
            .unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        let folder = self.0.path().display().to_string();
        let lines = text
            .lines()
            .filter(|line| !line.starts_with("PATH=") && !line.starts_with("_="));
        stable(
            &lines
                .map(|line| format!("{}\n", line.replace(&folder, "FOLDER")))
                .collect::<String>(),
        )
    }

    /// All files that contain this text, with their modes.
    fn holders(&self, text: &str) -> Vec<(String, u32)> {
        let mut found = Vec::new();
        let mut folders = vec![self.0.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false if String::from_utf8_lossy(&std::fs::read(&path).unwrap()).contains(text) => {
                        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
                        found.push((path.strip_prefix(self.0.path()).unwrap().display().to_string(), mode));
                    }
                    false => {}
                }
            }
        }
        found.sort();
        found
    }
}

/// Without ports and values of the host.
fn stable(text: &str) -> String {
    let mut stable = String::new();
    for line in text.split_inclusive('\n') {
        let line = match line.split_once("the host has ") {
            Some((before, _)) => format!("{before}the host has …\n"),
            None => line.to_owned(),
        };
        let line = match line.split_once("SHA-256 ") {
            Some((before, _)) => format!("{before}SHA-256 …\n"),
            None => line,
        };
        let line = match line.split_once(", until ") {
            Some((before, _)) => format!("{before}, until …\n"),
            None => line,
        };
        let mut rest = line.as_str();
        let host = |text: &str| {
            ["127.0.0.1:", "localhost:"]
                .iter()
                .filter_map(|host| Some((text.find(host)?, host.len())))
                .min()
        };
        while let Some((at, length)) = host(rest) {
            stable += &rest[..at + length];
            stable += "PORT";
            rest = rest[at + length..].trim_start_matches(|c: char| c.is_ascii_digit());
        }
        stable += rest;
    }
    stable
}

/// Name and domain, and the defaults for the rest.
const CLUSTER: [&str; 5] = ["lab", "example.com", "compact", "", ""];
/// No VIPs, default sizes, release, key, pull secret, no further settings.
const REST: [&str; 10] = ["", "", "", "", "", "", "stable", "", "pull.json", ""];

fn answers<'a>(platform: &[&'a str]) -> Vec<&'a str> {
    [platform, &CLUSTER, &REST].concat()
}

#[test]
fn after_an_invalid_answer_the_question_is_repeated_with_the_reason() {
    let sandbox = Sandbox::new();
    let ran = sandbox.asked(
        &["init"],
        &[
            "lxd",
            "sim",
            "",
            "absent",
            "1", // backend, state, network
            "",
            "Lab",
            "lab",
            "a..b",
            "example.com",
            "huge",
            "compact",
            "2",
            "",
            "1000000",
            "1", // cluster
            "10.1.1.1",
            "192.168.122.1",
            "192.168.122.9",
            "192.168.122.9", // VIPs
            "none",
            "8",
            "",
            "",
            "0",
            "50", // sizes
            "5.1",
            "stable",
            "absent.pub",
            "",
            "absent.json",
            "pull.json",
            "everything",
            "none", // nothing further
        ],
    );
    insta::assert_snapshot!("bad_answers", ran.err);
    insta::assert_snapshot!(
        "bad_answers_env",
        sandbox
            .read("env.sh")
            .replace(&sandbox.0.path().display().to_string(), "FOLDER")
    );
}

/// A simulated platform with further networks.
fn three_networks(sandbox: &Sandbox) {
    let network = |part: u8| {
        let ip = |last: u8| format!("10.77.{part}.{last}");
        json!({"cidr": format!("10.77.{part}.0/24"), "gateway": ip(1), "dhcp_from": ip(2), "dhcp_to": ip(99)})
    };
    let world = json!({"v": 1, "networks": {"backup": network(2), "default": network(0), "storage": network(1)}});
    std::fs::create_dir(sandbox.path("state")).unwrap();
    sandbox.write("state/sim.json", &world.to_string());
}

#[test]
fn further_settings_are_asked_for_only_if_chosen() {
    let sandbox = Sandbox::new();
    three_networks(&sandbox);
    let further = [
        &["extra_networks", "absent", "2, backup"][..],
        &["extra_disks", "0", "100,50"],
        // Without a harvest, all addresses are asked for, including VIPs that were left open.
        &["harvest", "by chance", "static", "", "10.77.0.5", "10.77.0.6"],
        &[
            "10.77.0.10",
            "10.77.0.11",
            "10.77.0.11 10.77.1.12 10.77.0.13",
            "10.77.0.11 10.77.0.12 10.77.0.13",
        ],
        &["dns", "user", "dhcp", "", "ntp_servers", "time.example.com"],
        &[
            "http_proxy",
            "proxy.example.com",
            "http://proxy.example.com:3128",
            "",
            ".example.com",
        ],
        &["none"],
    ]
    .concat();
    let rest = &REST[..REST.len() - 1];
    let ran = sandbox.asked(
        &["init", "--backend", "sim"],
        &[&["", ""][..], &CLUSTER, rest, &further].concat(),
    );
    insta::assert_snapshot!("further", ran.err);
    insta::assert_snapshot!("further_settings", sandbox.settings());
    let checked = sandbox.run(&["check"], &[]);
    assert!(
        checked.out.contains("all settings are valid"),
        "{}\n{}",
        checked.out,
        checked.err
    );

    // Given addresses are dropped with the method that required them.
    let further = [
        "harvest",
        "static",
        "10.77.0.5",
        "10.77.0.6",
        "10.77.0.10",
        "10.77.0.11 10.77.0.12 10.77.0.13",
    ];
    let again = ["harvest", "boot", "lb", "user", ""];
    sandbox.asked(
        &["init", "--backend", "sim"],
        &[&["yes", "", ""][..], &CLUSTER, rest, &further, &again].concat(),
    );
    let settings = sandbox.settings();
    assert!(
        !settings.contains("master_ips") && settings.contains("harvest=boot\n"),
        "{settings}"
    );
    assert!(
        settings.contains("lb=user\n") && settings.contains("api_ip=10.77.0.5\n"),
        "{settings}"
    );
}

#[test]
fn choices_for_workers_come_from_their_own_platform() {
    let sandbox = Sandbox::new();
    let server = FakeKubevirt::start(World::with_tenants(&["blue", "red"]));
    server.kubeconfig(&sandbox.path("blue.kubeconfig"), "blue-token", "blue");
    let mut cluster = CLUSTER;
    cluster[4] = "1";
    let further = [
        "worker_backend",
        "sim",
        "kubevirt",
        "blue.kubeconfig",
        "",
        "",
        "lan",
        "",
        "",
    ];
    let ran = sandbox.asked(
        &["init", "--backend", "sim"],
        &[&["", ""][..], &cluster, &REST[..REST.len() - 1], &further].concat(),
    );
    insta::assert_snapshot!("workers", ran.err);
    insta::assert_snapshot!("workers_settings", sandbox.settings());
    server.was_asked_well();
}

#[test]
fn choices_come_from_libvirt() {
    let sandbox = Sandbox::new();
    let ran = sandbox.asked(
        &["init", "--backend", "libvirt"],
        &answers(&["test:///default", "", ""]),
    );
    insta::assert_snapshot!("libvirt", ran.err);
    insta::assert_snapshot!("libvirt_settings", sandbox.settings());
}

/// Other processors have the library linked.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_libvirt_library_is_loaded_only_to_query_a_libvirt() {
    for program in [
        PathBuf::from(env!("CARGO_BIN_EXE_ocpdeploy")),
        std::env::current_exe().unwrap(),
    ] {
        // The dynamic linker lists the libraries instead of starting the program.
        let listed = Command::new(&program)
            .env("LD_TRACE_LOADED_OBJECTS", "1")
            .output()
            .unwrap();
        let libraries = String::from_utf8(listed.stdout).unwrap();
        assert!(
            libraries.contains("libc.so") && !libraries.contains("libvirt"),
            "{libraries}"
        );
    }
    let sandbox = Sandbox::new();
    // The dynamic linker first finds a file that is not a library.
    sandbox.write("libvirt.so.0", "");
    let mut command = sandbox.command(&["init", "--backend", "libvirt"]);
    command.env("LD_LIBRARY_PATH", sandbox.path("."));
    let ran = sandbox.ended(command, &["test:///default"]);
    assert_eq!(ran.code, Some(4), "{}", ran.err);
    for part in [
        "connect to libvirt test:///default, pool default: a library is missing on this computer",
        "libvirt.so.0: file too short",
        "`sudo apt install libvirt0`",
    ] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
}

#[test]
fn an_unreachable_platform_ends_the_session_at_once() {
    let sandbox = Sandbox::new();
    sandbox.write("refused.kubeconfig", &kubeconfig("https://127.0.0.1:1"));
    sandbox.write("clouds.yaml", &clouds("http://127.0.0.1:1/v3"));
    let refused = |arguments: &[&str], answers: &[&str]| {
        let ran = sandbox.run(arguments, answers);
        assert!(!sandbox.path("env.sh").exists());
        assert!(!ran.err.contains(PASSWORD), "{}", ran.err);
        let at = ran.err.find("error: ").unwrap_or_else(|| panic!("{}", ran.err));
        format!("{:?}: {}\n", ran.code, &ran.err[at..])
    };
    let told = [
        refused(&["init", "--backend", "lxd"], &[]),
        refused(&["init", "--backend", "libvirt"], &["test:///absent/file.xml"]),
        refused(
            &["init", "--backend", "ovirt"],
            &["https://127.0.0.1:1/ovirt-engine", "", PASSWORD, "fetch"],
        ),
        refused(&["init", "--backend", "openstack"], &["lab"]),
        refused(&["init", "--backend", "kubevirt"], &["refused.kubeconfig", ""]),
        refused(&["init", "--backend", "kubevirt"], &["clouds.yaml"]),
    ];
    insta::assert_snapshot!("out_of_reach", told.join("\n"));
}

#[test]
fn the_end_of_input_ends_the_session() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run(&["init"], &["sim", "", "", "lab"]);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    assert!(
        ran.err
            .contains("error: the input ended at the question `domain`; no env file was written\n"),
        "{}",
        ran.err
    );
    assert!(!sandbox.path("env.sh").exists());
}

#[test]
fn an_existing_file_is_replaced_only_after_confirmation() {
    let sandbox = Sandbox::new();
    sandbox.write("env.sh", "cluster=old\n");
    for answer in [&["no"][..], &[""], &["perhaps", "no"], &[]] {
        let ran = sandbox.run(&["init", "--backend", "sim"], answer);
        assert_eq!(ran.code, Some(2), "{}", ran.err);
        assert_eq!(sandbox.read("env.sh"), "cluster=old\n");
    }
    sandbox.asked(
        &["init", "--backend", "sim"],
        &[&["yes"], &answers(&["", ""])[..]].concat(),
    );
    assert!(sandbox.read("env.sh").contains("\ncluster=lab\n"));
}

#[test]
fn a_pasted_pull_secret_is_stored_in_a_private_file() {
    let sandbox = Sandbox::new();
    let secret = r#"{"auths":{"registry.example.com":{"auth":"bWU6Y2FuYXJ5"}}}"#;
    let mut given = answers(&["", ""]);
    *given.iter_mut().rfind(|answer| **answer == "pull.json").unwrap() = secret;
    let ran = sandbox.asked(&["init", "--backend", "sim"], &given);
    assert!(!ran.err.contains("Y2FuYXJ5"), "{}", ran.err);
    assert_eq!(sandbox.holders("Y2FuYXJ5"), [("env.sh".to_owned(), 0o600)]);
}

fn clouds(auth_url: &str) -> String {
    format!(
        "clouds:\n  lab:\n    region_name: one\n    auth:\n      auth_url: {auth_url}\n      username: demo\n      \
         project_name: demo\n      password: {PASSWORD}\n"
    )
}

fn kubeconfig(server: &str) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "infra", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": {"token": "x"}}],
        "contexts": [{"name": "mine", "context": {"cluster": "infra", "user": "me"}}],
        "current-context": "mine",
    })
    .to_string()
}

#[test]
fn choices_come_from_openstack() {
    let sandbox = Sandbox::new();
    let cloud = FakeCloud::start();
    cloud.with(|world| {
        let answers = [
            (
                "/network/v2.0/networks",
                json!({"networks": [
                    {"id": "net-1", "name": "private", "project_id": "project-1", "router:external": false},
                    {"id": "net-2", "name": "lan", "project_id": "admin", "router:external": false, "shared": true,
                     "provider:network_type": "vlan"},
                    {"id": "net-3", "name": "public", "project_id": "admin", "router:external": true},
                ]}),
            ),
            (
                "/network/v2.0/subnets",
                json!({"subnets": [
                    {"id": "sub-1", "network_id": "net-1", "ip_version": 4, "cidr": "10.20.0.0/24", "gateway_ip": "10.20.0.1",
                     "enable_dhcp": true, "allocation_pools": [{"start": "10.20.0.2", "end": "10.20.0.254"}]},
                    {"id": "sub-2", "network_id": "net-2", "ip_version": 4, "cidr": "10.30.0.0/24", "enable_dhcp": true},
                ]}),
            ),
            (
                "/image/v2/images",
                json!({"images": [{"id": "i", "name": "rhcos", "status": "active", "disk_format": "qcow2",
                                   "size": 1_500_000_000u64}]}),
            ),
        ];
        world
            .answers
            .extend(answers.map(|(path, answer)| (path.to_owned(), answer)));
    });
    sandbox.write("clouds.yaml", &clouds(&cloud.auth_url()));
    let ran = sandbox.asked(
        &["init", "--backend", "openstack"],
        &answers(&["lab", "private", "public", "small", "", "", "rhcos"]),
    );
    insta::assert_snapshot!("openstack", ran.err);
    insta::assert_snapshot!("openstack_settings", sandbox.settings());
    assert_eq!(sandbox.holders(PASSWORD).len(), 1, "clouds.yaml alone");
    cloud.finish();
}

#[test]
fn ovirts_certificate_is_trusted_only_by_consent_and_choices_come_from_ovirt() {
    const CANARY: &str = "canary-of-the-engine";
    let sandbox = Sandbox::new();
    let engine = FakeEngine::with(|world| world.password = CANARY.to_owned());
    let (url, user) = (engine.url.clone(), engine.user.clone());
    let way = [url.as_str(), &user, CANARY, "fetch"];
    let ran = sandbox.run(&["init", "--backend", "ovirt"], &[&way[..], &["no"]].concat());
    assert_eq!(ran.code, Some(5), "{}", ran.err);
    assert!(ran.err.contains("is not trusted; no password was sent"), "{}", ran.err);
    assert!(engine.look(|world| world.tokens.is_empty()));

    let wrong = [url.as_str(), &user, "wrong", "fetch", "yes"];
    let ran = sandbox.run(&["init", "--backend", "ovirt"], &wrong);
    assert_eq!(ran.code, Some(5), "{}", ran.err);
    insta::assert_snapshot!("ovirt_wrong_password", &ran.err[ran.err.find("error: ").unwrap()..]);

    let platform = [
        &way[..],
        &["yes", "Default", "data", "ovirtmgmt", "", "rhcos", "centos"],
    ]
    .concat();
    let mut given = [&platform[..], &CLUSTER, &["10.0.0.0/24"], &REST, &["file"]].concat();
    let ran = sandbox.asked(&["init", "--backend", "ovirt"], &given);
    insta::assert_snapshot!("ovirt", ran.err);
    insta::assert_snapshot!("ovirt_settings", sandbox.settings());
    assert!(!ran.err.contains(CANARY) && !ran.out.contains(CANARY));
    assert_eq!(sandbox.holders(CANARY), [("env-ovirt-password".to_owned(), 0o600)]);
    assert_eq!(sandbox.read("env-ovirt-ca.pem"), engine.ca_pem);

    // In the env file, and with existing files.
    std::fs::remove_file(sandbox.path("env-ovirt-password")).unwrap();
    *given.last_mut().unwrap() = "env";
    given.insert(0, "yes");
    sandbox.asked(&["init", "--backend", "ovirt"], &given);
    assert_eq!(sandbox.holders(CANARY), [("env.sh".to_owned(), 0o600)]);
}

#[test]
fn choices_come_from_kubevirt() {
    let sandbox = Sandbox::new();
    let server = FakeKubevirt::start(World::with_tenants(&["blue", "red"]));
    server.kubeconfig(&sandbox.path("blue.kubeconfig"), "blue-token", "blue");
    let ran = sandbox.asked(
        &["init", "--backend", "kubevirt"],
        &[
            &["blue.kubeconfig", "", "", "lan", ""],
            &CLUSTER[..],
            &["10.7.0.0/24"],
            &REST,
        ]
        .concat(),
    );
    insta::assert_snapshot!("kubevirt", ran.err);
    insta::assert_snapshot!("kubevirt_settings", sandbox.settings());
    server.was_asked_well();
}

#[test]
fn the_pod_network_is_offered_to_a_user_who_cannot_list_networks() {
    let sandbox = Sandbox::new();
    let mut world = World::with_tenants(&["blue"]);
    let lacks = "list network-attachment-definitions".to_owned();
    world.users.get_mut("blue-token").unwrap().lacks.insert(lacks);
    let server = FakeKubevirt::start(world);
    server.kubeconfig(&sandbox.path("blue.kubeconfig"), "blue-token", "blue");
    let ran = sandbox.run(
        &["init", "--backend", "kubevirt"],
        &[
            &["blue.kubeconfig", "", "", "pod", ""],
            &CLUSTER[..],
            &["10.0.2.0/24"],
            &REST,
        ]
        .concat(),
    );
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let told = "warning: this user cannot list the networks of namespace blue: enter the name of a \
                NetworkAttachmentDefinition, or pod";
    assert!(ran.err.contains(told), "{}", ran.err);
    assert!(sandbox.settings().contains("network=pod\n"), "{}", sandbox.settings());
}

#[test]
fn missing_rights_are_listed() {
    let sandbox = Sandbox::new();
    let mut world = World::with_tenants(&["blue"]);
    let lacks = ["create virtualmachines", "delete secrets"].map(str::to_owned);
    world.users.get_mut("blue-token").unwrap().lacks.extend(lacks);
    let server = FakeKubevirt::start(world);
    server.kubeconfig(&sandbox.path("blue.kubeconfig"), "blue-token", "blue");
    let ran = sandbox.run(&["init", "--backend", "kubevirt"], &["blue.kubeconfig", "", ""]);
    let told =
        "missing: this user lacks permissions in namespace blue: create virtualmachines.kubevirt.io; delete secrets";
    assert!(ran.err.contains(told), "{}", ran.err);
}

#[test]
fn a_session_on_a_terminal_is_answered_with_arrow_keys() {
    let sandbox = Sandbox::new();
    three_networks(&sandbox);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/terminal.py");
    let output = Command::new("python3")
        .arg(script)
        .arg(env!("CARGO_BIN_EXE_ocpdeploy"))
        .env("HOME", sandbox.0.path())
        .env("OCPDEPLOY_HOME", sandbox.path("state"))
        .env("TERM", "xterm")
        .current_dir(sandbox.0.path())
        .output()
        .unwrap();
    let seen = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{seen}");
    let settings = sandbox.settings();
    for line in [
        "backend=sim",
        "cluster=lab",
        "domain=example.com",
        "profile=standard",
        "version=stable",
        "extra_networks=backup,storage",
        "extra_disks=100",
    ] {
        assert!(
            settings.lines().any(|found| found == line),
            "{line} is not in {settings}\n{seen}"
        );
    }
}

/// If the terminal does not control the session, as under some supervisors, no signal is sent.
#[test]
fn a_lost_terminal_ends_the_session() {
    use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
    let sandbox = Sandbox::new();
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let outside = openpt(flags).unwrap();
    grantpt(&outside).unwrap();
    unlockpt(&outside).unwrap();
    let inside = || ioctl_tiocgptpeer(&outside, flags).unwrap();
    let mut command = sandbox.command(&["init"]);
    command
        .env("TERM", "xterm")
        .stdin(inside())
        .stdout(inside())
        .stderr(inside());
    let mut child = command.spawn().unwrap();
    // Now only the program has the inner end of the terminal open.
    drop(command);
    let mut outside = std::fs::File::from(outside);
    let (mut shown, mut bytes) = (String::new(), [0; 1024]);
    while !shown.contains("backend") {
        let count = outside.read(&mut bytes).unwrap();
        shown += &String::from_utf8_lossy(&bytes[..count]);
    }
    drop(outside);
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it still waits for an answer");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.code(), Some(7));
    assert!(!sandbox.path("env.sh").exists());
}
