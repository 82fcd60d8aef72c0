//! What openshift-install accepts: its recorded verdicts, and settings that are accepted before it runs.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use ocpdeploy::cluster::limits::rejections;
use ocpdeploy::openshift::installer;
use ocpdeploy::settings::{self, Sources};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use crate::support::cluster::deployment;

#[derive(Deserialize)]
struct Recorded {
    release: (u32, u32),
    base: Value,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    /// Values by their JSON pointers.
    set: BTreeMap<String, Value>,
    /// Of openshift-install; empty if it accepts the file.
    verdict: String,
}

fn recorded() -> Recorded {
    serde_json::from_str(include_str!("../fixtures/install-configs.json")).unwrap()
}

/// Sets a value; its parents are created if they are missing.
fn set(config: &mut Value, pointer: &str, value: Value) {
    let mut here = config;
    for part in pointer.split('/').skip(1) {
        here = match part.parse::<usize>() {
            Ok(index) => &mut here[index],
            Err(_) => &mut here[part],
        };
    }
    *here = value;
}

/// What this program rejects though the installer accepts it: OpenSSH reads no such key, and `update-ca-trust` of nodes
/// reads a trusted certificate only with its trailing data, which the installer rejects.
const STRICTER: [&str; 2] = ["SSH key of another type", "CA with a trusted certificate"];

#[test]
fn the_verdicts_of_openshift_install_are_known() {
    let recorded = recorded();
    let (mut accepted, mut rejected) = (0, 0);
    let mut wrong = Vec::new();
    for Case {
        name,
        set: changes,
        verdict,
    } in recorded.cases
    {
        let mut config = recorded.base.clone();
        changes
            .into_iter()
            .for_each(|(pointer, value)| set(&mut config, &pointer, value));
        let found = rejections(&config, recorded.release);
        match verdict.is_empty() {
            true => accepted += 1,
            false => rejected += 1,
        }
        if found.is_empty() != verdict.is_empty() && !STRICTER.contains(&name.as_str()) {
            wrong.push(format!("{name}: {verdict:?}, here {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        accepted > 80 && rejected > 80,
        "{accepted} accepted, {rejected} rejected"
    );
}

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";
const CA: &str = include_str!("../fixtures/ca-one.pem");

/// The files that settings may name.
fn file(name: &str) -> Option<String> {
    Some(match name {
        "pull.json" => r#"{"auths":{"quay.io":{"auth":"YTpi"}}}"#.to_owned(),
        "key.pub" => format!("{KEY} me\n"),
        "options.pub" => format!("from=\"10.0.0.0/8\",command=\"echo \\\"a b\\\"\" {KEY} me\n"),
        "cut.pub" => format!("{}\n", &KEY[..KEY.len() - 4]),
        "ca.pem" => CA.to_owned(),
        "blank.pem" => format!("# ours\n{CA}\n\n# end\n"),
        "crlf.pem" => CA.replace('\n', "\r\n"),
        "damaged.pem" => "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n".to_owned(),
        _ => return None,
    })
}

/// Values of settings that people have, right and wrong.
const VALUES: &[(&str, &[&str])] = &[
    ("masters", &["1", "3", "5"]),
    ("workers", &["0", "2"]),
    ("domain", &["com", "123.45", "Example.com", "example.com."]),
    ("network_type", &["ovnkubernetes", "OpenShiftSDN", "kuryr", "Calico"]),
    (
        "cluster_network",
        &[
            "10.0.0.0/8",
            "100.64.0.0/14",
            "0.0.0.0/8",
            "10.128.0.0/14,fd01::/48",
            "fd01::/48",
        ],
    ),
    (
        "service_network",
        &[
            "10.0.0.0/8",
            "172.16.0.0/11",
            "100.64.0.0/16",
            "172.30.0.0/16,fd02::/107",
            "fd02::/108",
        ],
    ),
    (
        "machine_network",
        &[
            "192.168.122.0/24",
            "100.64.7.0/24",
            "100.88.0.0/24",
            "192.168.122.0/24,fd00:1::/64",
            "fd00:1::/64",
            "fd98::/64",
        ],
    ),
    ("cluster_host_prefix", &["13", "24", "26", "30", "64", "56"]),
    (
        "ovn_join_network",
        &[
            "100.65.0.0/16",
            "100.65.0.0/23",
            "192.168.0.0/16",
            "100.64.7.0/24",
            "0.0.0.0/8",
            "fd96::/64",
        ],
    ),
    (
        "http_proxy",
        &[
            "http://proxy.example.com:3128",
            "https://proxy.example.com",
            "http://172.30.0.9:3128",
            "http://me:p#ss@a.b",
            "http://[fd01::9]:1",
            "http://100.65.0.9",
        ],
    ),
    (
        "https_proxy",
        &[
            "https://me:p%40ss@proxy.example.com",
            "socks5://a.b",
            "http://10.128.7.9:3128",
            "http://a.b:port",
            "http://me:p^ss@a.b",
        ],
    ),
    (
        "no_proxy",
        &[
            "*",
            ".example.com,10.0.0.0/8",
            "*.example.com",
            "10.0.0.0/33",
            "fd00:1::/64",
            "a_b.com",
        ],
    ),
    (
        "registry_mirrors",
        &[
            "quay.io/a=m.example.com:5000/a",
            "quay.io=m.example.com",
            "quay.io/A=m.example.com",
            "quay.io/a:b=m.example.com",
            "ocp/release=m.example.com/a",
            "quay.io/a=m_1.example.com/a",
            "Quay.io=m.example.com",
        ],
    ),
    ("capabilities", &["None", "vCurrent", "v4.11", "v4.18"]),
    (
        "additional_capabilities",
        &[
            "Ingress",
            "Ingress,marketplace",
            "ClusterAPI",
            "Ingress,baremetal",
            "Console",
        ],
    ),
    ("ca", &["ca.pem", "blank.pem", "crlf.pem", "damaged.pem"]),
    ("pub_key", &["key.pub", "options.pub", "cut.pub"]),
    ("fips", &["true"]),
];

/// The rules that depend on the release, and so are compared when the installer is known.
fn depends_on_the_release(text: &str) -> bool {
    [
        "networking.networkType",
        "networking.ovnKubernetesConfig: it has no such field",
        "capabilities",
    ]
    .iter()
    .any(|field| text.contains(&format!("rejects {field}")))
        || text.ends_with("network of OVN-Kubernetes")
        || text.starts_with("OpenShift 4.")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn openshift_install_accepts_the_settings_that_are_accepted(
        choices in prop::collection::vec(prop::option::weighted(0.25, any::<prop::sample::Index>()), VALUES.len()),
        minor in 12_u32..24,
    ) {
        let mut env = "cluster=lab\ndomain=example.com\nbackend=sim\npull_secret=pull.json\npub_key=key.pub\n".to_owned();
        for ((name, values), choice) in VALUES.iter().zip(choices) {
            if let Some(choice) = choice {
                let value = choice.get(values);
                env = env.lines().filter(|line| !line.starts_with(&format!("{name}="))).map(|line| format!("{line}\n")).collect();
                env += &format!("{name}=\"{value}\"\n");
            }
        }
        let sources = Sources {
            env_file: Some(("env.sh".into(), env.clone())),
            environment: BTreeMap::from([("HOME".to_owned(), "/home/u".to_owned())]),
            flags: BTreeMap::new(),
            current_dir: "".into(),
            home: "/state".into(),
            rehearse: false,
            allow_downgrade: false,
            deployment: deployment(),
            read_file: &|path: &Path| file(&path.to_string_lossy()).ok_or(io::ErrorKind::NotFound.into()),
            is_file: &|_| true,
            is_dir: &|_| false,
        };
        if let Ok(loaded) = settings::load(&sources) {
            let config = loaded.config;
            let network = config.given.machine_network.unwrap_or("198.18.0.0/24".parse().unwrap());
            for finding in installer::check_settings(&config, network, &format!("4.{minor}.1")) {
                prop_assert!(depends_on_the_release(&finding.text), "{}\n{env}", finding.text);
            }
        }
    }
}
