//! Exported files are checked with their programs: dnsmasq, haproxy, BIND's and ISC's checkers, Python's YAML.
//! Complete texts are golden files.

use crate::support::{cluster, shape};
use std::io::Write;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use ocpdeploy::cluster::{ClusterConfig, Dns, Role, Size, Sizes};
use ocpdeploy::export::{ansible, dhcp, haproxy, hosts, kcli, resolver, zone};
use ocpdeploy::node::host::HostParts;
use ocpdeploy::node::services::{self, IMAGES, Input, Release};
use ocpdeploy::state::inventory::Known;
use ocpdeploy::state::parameters::Parameters;
use serde_json::{Value, json};

/// Masters, workers, whether both VIPs are one, and prefix length.
const SHAPES: [(usize, usize, bool, u8); 20] = [
    (1, 0, false, 24),
    (1, 0, true, 24),
    (1, 1, false, 24),
    (1, 2, true, 26),
    (3, 0, false, 24),
    (3, 0, true, 23),
    (3, 1, false, 24),
    (3, 1, true, 26),
    (3, 2, false, 24),
    (3, 2, true, 24),
    (3, 2, false, 23),
    (3, 2, true, 26),
    (3, 50, false, 24),
    (3, 50, true, 23),
    (5, 0, false, 26),
    (5, 0, true, 24),
    (5, 2, false, 23),
    (5, 2, true, 26),
    (5, 50, false, 24),
    (5, 50, true, 23),
];

struct Made {
    config: ClusterConfig,
    parameters: Parameters,
}

impl Made {
    fn new((masters, workers, one_vip, prefix): (usize, usize, bool, u8)) -> Self {
        let config = ClusterConfig {
            masters,
            workers,
            ..cluster::config()
        };
        let mut parameters = cluster::parameters(&config, Ipv4Addr::new(10, 0, 4, 8));
        parameters.machine_network = format!("10.0.4.0/{prefix}").parse().unwrap();
        if one_vip {
            parameters.ingress_ip = parameters.api_ip;
            parameters.ingress_mac = parameters.api_mac;
        }
        if prefix == 23 {
            // One node is in the network's second half.
            parameters.nodes.last_mut().unwrap().ip = [10, 0, 5, 200].into();
        }
        Self { config, parameters }
    }

    fn standard() -> Self {
        Self::new((3, 2, false, 24))
    }

    fn parts(&self, dns: Dns, version: (u32, u32)) -> HostParts {
        let image = |name: &&str| ((*name).to_owned(), format!("registry.example.com/{name}@sha256:0"));
        let release = Release {
            version,
            images: IMAGES.iter().map(image).collect(),
        };
        let config = ClusterConfig {
            dns,
            ..self.config.clone()
        };
        let input = Input {
            config: &config,
            parameters: &self.parameters,
            release: &release,
            leased: &[],
        };
        let mut parts = services::dns::parts(&input).unwrap();
        parts.extend(services::resolver::parts(&input));
        parts
    }
}

fn content<'a>(parts: &'a HostParts, path: &str) -> &'a str {
    let file = parts.files.iter().find(|file| file.path == path);
    &file.unwrap_or_else(|| panic!("there is no {path}")).content
}

fn sizes() -> Sizes {
    let size = |memory_mib, extra: &[u64]| Size {
        cpus: 4,
        memory_mib,
        disk_gib: 120,
        extra_disks_gib: extra.to_vec(),
    };
    Sizes {
        bootstrap: size(8192, &[]),
        master: size(16384, &[10]),
        arbiter: None,
        worker: size(12288, &[10, 200]),
        pools: Default::default(),
    }
}

/// Writes `text` to a file and runs a checker with its path as the last argument.
#[track_caller]
fn judge(command: &[&str], text: &str) -> String {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let mut command = command.to_vec();
    let path = file.path().to_str().unwrap();
    let last = command.pop().unwrap();
    let output = Command::new(command[0])
        .args(&command[1..])
        .arg(format!("{last}{path}"))
        .output()
        .unwrap_or_else(|error| panic!("{} is missing ({error}); tests/lab/install.sh installs it", command[0]));
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{said}\n{text}");
    said
}

/// The value that Python's YAML, which Ansible and kcli use, reads from a text.
#[track_caller]
fn python_reads(text: &str) -> Value {
    let script = "import json,sys,yaml\nprint(json.dumps(yaml.safe_load(sys.stdin)))";
    let mut python = Command::new("python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    python.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn the_files_of_every_shape_are_accepted_by_their_programs() {
    for (turn, shape) in SHAPES.into_iter().enumerate() {
        let mut made = Made::new(shape);
        let (has_ipv4, has_ipv6) = [(true, false), (true, true), (false, true)][turn % 3];
        match (has_ipv4, has_ipv6) {
            (true, true) => shape::add_ipv6(&mut made.parameters),
            (false, _) => shape::remove_ipv4(&mut made.parameters),
            (true, false) => {}
        }
        let parameters = &made.parameters;
        for version in [(4, 3), (4, 19)] {
            let parts = made.parts(Dns::Dnsmasq, version);
            judge(
                &["dnsmasq", "--test", "--conf-file="],
                content(&parts, "/etc/ocpdeploy/dnsmasq.conf"),
            );
            let parts = made.parts(Dns::Coredns, version);
            let text = content(&parts, "/etc/ocpdeploy/dns/zone");
            judge(&["named-checkzone", "-q", "lab.example.com", ""], text);
        }
        judge(&["dnsmasq", "--test", "--conf-file="], &resolver::dnsmasq(parameters));
        if has_ipv4 {
            judge(&["dnsmasq", "--test", "--conf-file="], &dhcp::dnsmasq(parameters));
        }
        judge(&["haproxy", "-c", "-f", ""], &haproxy::balancer(parameters));
        for etcd in [false, true] {
            let text = zone::forward(parameters, etcd, 7);
            let said = judge(&["named-checkzone", "lab.example.com", ""], &text);
            assert!(said.contains("loaded serial 7"), "{said}");
        }
        let text = zone::reverse(parameters, 1);
        assert_eq!(text.is_some(), has_ipv4);
        if let Some(text) = text {
            let head = text.lines().next().unwrap();
            let origin = head.trim_start_matches("$ORIGIN ").trim_end_matches('.');
            judge(&["named-checkzone", "-q", origin, ""], &text);
        }
        let text = zone::reverse_ipv6(parameters, 1);
        assert_eq!(text.is_some(), has_ipv6);
        if let Some(text) = text {
            let origin = "0.0.0.0.0.0.0.0.1.0.0.0.0.0.d.f.ip6.arpa";
            assert!(text.starts_with(&format!("$ORIGIN {origin}.\n")), "{text}");
            judge(&["named-checkzone", "-q", origin, ""], &text);
        }
        // `show` instead of the last `send`: everything is parsed, and nothing is sent.
        for text in [
            zone::nsupdate(parameters, parameters, true),
            zone::nsupdate_reverse(parameters, parameters),
        ] {
            assert!(text.ends_with("send\n"));
            let said = judge(&["nsupdate", ""], &(text.replace("send\n", "") + "show\n"));
            assert_eq!(
                said.lines()
                    .filter(|line| line.split_whitespace().nth(2) == Some("IN"))
                    .count(),
                text.matches("update add").count(),
                "{said}"
            );
        }
        python_reads(&kcli::parameter_file(parameters, &sizes()));
        python_reads(&ansible::inventory(
            parameters,
            &on_ovirt("", sizes()),
            "/home/u/ignition",
        ));
    }
}

/// Requires ISC's server, which not every distribution packages any more.
#[test]
#[ignore = "needs the lab"]
fn isc_dhcpd_accepts_its_declarations() {
    for shape in SHAPES {
        judge(
            &["dhcpd", "-4", "-t", "-cf", ""],
            &dhcp::isc(&Made::new(shape).parameters),
        );
    }
}

#[test]
fn bash_and_shellcheck_accept_the_scripts() {
    let parts = made_all();
    let mut scripts = 0;
    for file in parts.files.iter().filter(|file| file.content.starts_with("#!")) {
        assert_eq!(file.mode, 0o755, "{}", file.path);
        judge(&["bash", "-n", ""], &file.content);
        judge(&["shellcheck", ""], &file.content);
        scripts += 1;
    }
    assert_eq!(scripts, 3);
}

fn made_all() -> HostParts {
    Made::standard().parts(Dns::Dnsmasq, (4, 19))
}

#[test]
fn with_the_users_dns_nothing_is_put_on_nodes() {
    assert_eq!(Made::standard().parts(Dns::User, (4, 19)), HostParts::default());
}

#[test]
fn etcd_has_names_up_to_4_3_only() {
    let made = Made::standard();
    for (version, expected) in [
        ((4, 1), true),
        ((4, 3), true),
        ((4, 4), false),
        ((4, 19), false),
        ((0, 0), false),
    ] {
        for (dns, path) in [
            (Dns::Dnsmasq, "/etc/ocpdeploy/dnsmasq.conf"),
            (Dns::Coredns, "/etc/ocpdeploy/dns/zone"),
        ] {
            let parts = made.parts(dns, version);
            assert_eq!(
                content(&parts, path).contains("_etcd-server-ssl"),
                expected,
                "{version:?} {path}"
            );
        }
    }
}

#[test]
fn the_files_of_a_standard_cluster() {
    let made = Made::standard();
    let text = |parts: HostParts| -> String {
        let files = parts.files.into_iter().filter(|file| !file.content.starts_with("#!"));
        files
            .map(|file| format!("==> {} {:o}\n{}", file.path, file.mode, file.content))
            .collect()
    };
    insta::assert_snapshot!("nodes_dnsmasq", text(made.parts(Dns::Dnsmasq, (4, 3))));
    insta::assert_snapshot!("nodes_coredns", text(made.parts(Dns::Coredns, (4, 19))));
}

#[test]
fn the_texts_of_a_standard_cluster() {
    let parameters = &Made::standard().parameters;
    insta::assert_snapshot!("hosts", hosts::block(parameters));
    insta::assert_snapshot!("zone", zone::forward(parameters, true, 1));
    insta::assert_snapshot!("zone_reverse", zone::reverse(parameters, 1).unwrap());
    // The names of removed nodes are deleted.
    let mut left = parameters.clone();
    left.nodes.retain(|node| node.role != Role::Bootstrap);
    insta::assert_snapshot!(
        "nsupdate",
        zone::nsupdate(parameters, &left, false) + &zone::nsupdate_reverse(parameters, &left)
    );
    insta::assert_snapshot!("haproxy", haproxy::balancer(parameters));
    insta::assert_snapshot!("dhcp_isc", dhcp::isc(parameters));
    insta::assert_snapshot!("dhcp_dnsmasq", dhcp::dnsmasq(parameters));
    insta::assert_snapshot!("kcli", kcli::parameter_file(parameters, &sizes()));
}

/// What the second address family adds to the texts of the previous tests.
#[test]
fn the_texts_of_two_address_families() {
    let one = Made::standard();
    let mut two = Made::standard();
    shape::add_ipv6(&mut two.parameters);
    let nodes = |made: &Made, dns| -> String {
        let files = made.parts(dns, (4, 19)).files.into_iter();
        let files = files.filter(|file| !file.content.starts_with("#!"));
        files.map(|file| file.content).collect()
    };
    let texts = |made: &Made| {
        let parameters = &made.parameters;
        [
            nodes(made, Dns::Dnsmasq),
            nodes(made, Dns::Coredns),
            hosts::block(parameters),
            zone::forward(parameters, false, 1),
            zone::reverse_ipv6(parameters, 1).unwrap_or_default(),
            zone::nsupdate(parameters, parameters, false),
            zone::nsupdate_reverse(parameters, parameters),
            haproxy::balancer(parameters),
            resolver::dnsmasq(parameters),
        ]
    };
    let changes = texts(&one).into_iter().zip(texts(&two)).map(|(one, two)| {
        let changes = similar::TextDiff::from_lines(&one, &two);
        changes.unified_diff().context_radius(1).to_string()
    });
    insta::assert_snapshot!("two_address_families", changes.collect::<Vec<_>>().join("════\n"));
}

#[test]
fn kcli_finds_each_mac_by_its_own_machine_names() {
    let made = Made::new((3, 11, false, 24));
    let read = python_reads(&kcli::parameter_file(&made.parameters, &sizes()));
    assert_eq!((&read["ctlplanes"], &read["workers"]), (&3.into(), &11.into()));
    assert_eq!(read["bootstrap_mac"], made.parameters.nodes[0].mac.to_string());
    let rules = read["vmrules"].as_array().unwrap();
    assert_eq!(rules.len(), 14);
    for node in &made.parameters.nodes[1..] {
        let name = node.name.as_str().replace("master", "ctlplane");
        // A rule's key is a pattern from the name's start: worker-1 must not be worker-10's.
        let pattern = format!("lab-{name}$");
        let rule = rules.iter().find_map(|rule| rule.get(&pattern)).unwrap();
        assert_eq!(rule["nets"][0]["mac"], node.mac.to_string());
        assert_eq!(rule["nets"][0]["name"], "default");
    }
}

#[test]
fn an_arbiter_is_a_machine_but_no_load_balancer_target() {
    let config = ClusterConfig {
        masters: 2,
        arbiter: true,
        workers: 1,
        ..cluster::config()
    };
    let parameters = cluster::parameters(&config, Ipv4Addr::new(10, 0, 4, 8));
    let arbiter = parameters.of_role(Role::Arbiter).next().unwrap();
    let sizes = Sizes {
        arbiter: Some(config.arbiter_size.clone()),
        ..sizes()
    };
    let balancer = haproxy::balancer(&parameters);
    assert!(!balancer.contains(&arbiter.ip.to_string()), "{balancer}");
    let read = python_reads(&kcli::parameter_file(&parameters, &sizes));
    assert_eq!((&read["ctlplanes"], &read["arbiters"]), (&2.into(), &1.into()));
    assert_eq!(read["arbiter_memory"], config.arbiter_size.memory_mib);
    let rules = read["vmrules"].as_array().unwrap().iter();
    let mut macs = rules.filter_map(|rule| rule.pointer("/lab-arbiter-0$/nets/0/mac"));
    assert_eq!(macs.next().unwrap(), &arbiter.mac.to_string());
    let inventory = python_reads(&ansible::inventory(&parameters, &on_ovirt("", sizes), "/ignition"));
    // In the group of masters, which are on different hosts.
    let group = &inventory["all"]["children"]["masters"]["children"]["arbiter"];
    assert_eq!(group["hosts"]["lab-arbiter-0"]["mac"], arbiter.mac.to_string());
    assert_eq!(group["vars"]["memory_mib"], config.arbiter_size.memory_mib);
}

/// A cluster on oVirt with these lines of its env file.
pub fn ovirt_config(lines: &str) -> ClusterConfig {
    cluster::config_of(&format!(
        "backend=ovirt\novirt_url=https://engine.example.com/ovirt-engine\novirt_password=secret\n\
         machine_network=192.168.99.0/24\n{lines}"
    ))
}

fn on_ovirt(lines: &str, sizes: Sizes) -> Known {
    let mut known = Known::of(&ovirt_config(lines));
    known.sizes = sizes;
    known
}

/// A setting of the env file that is not in the inventory would be ignored without a message.
#[test]
fn the_inventory_has_the_settings_of_the_env_file() {
    let lines = "ovirt_cluster=prod\novirt_storage_domain=ssd\novirt_vnic_profile=nofilter\novirt_hosts=a,b\n\
                 ovirt_worker_label=workers\novirt_clone=true\novirt_affinity=off\nautostart=true\n\
                 extra_networks=storage\npools=infra:1\npool_extra_networks=infra:backup\n";
    let config = ovirt_config(lines);
    let parameters = cluster::parameters(&config, Ipv4Addr::new(10, 0, 4, 8));
    let inventory = python_reads(&ansible::inventory(&parameters, &Known::of(&config), "/ignition"));
    let all = &inventory["all"]["vars"];
    for (name, value) in [
        ("ovirt_cluster", json!("prod")),
        ("ovirt_storage_domain", json!("ssd")),
        ("ovirt_vnic_profile", json!("nofilter")),
        ("ovirt_hosts", json!(["a", "b"])),
        ("ovirt_worker_label", json!("workers")),
        ("ovirt_clone", json!(true)),
        ("apart", json!(false)),
        ("ansible_python_interpreter", json!("{{ ansible_playbook_python }}")),
    ] {
        assert_eq!(all[name], value, "{name}");
    }
    assert!(!inventory.to_string().contains("secret"));
    let groups = &inventory["all"]["children"];
    let extra = |vars: &Value| vars["extra_nics"][0]["network"].clone();
    assert_eq!(groups["masters"]["vars"]["high_availability"], true);
    assert_eq!(extra(&groups["masters"]["vars"]), "storage");
    assert_eq!(extra(&groups["workers"]["children"]["infra"]["vars"]), "backup");
    // Variables of a play override those of the inventory.
    let playbook = python_reads(ansible::playbook());
    assert!(playbook.as_array().unwrap().iter().all(|play| play["vars"].is_null()));
}

#[test]
fn ansible_creates_each_machine_of_the_table_with_its_mac_and_size() {
    let made = Made::standard();
    let known = on_ovirt("ovirt_affinity=hard\nautostart=true\n", sizes());
    let inventory = python_reads(&ansible::inventory(&made.parameters, &known, "/home/u/ignition"));
    let groups = &inventory["all"]["children"];
    for node in &made.parameters.nodes {
        let (group, memory) = match node.role {
            Role::Bootstrap => ("bootstrap", 8192),
            Role::Master => ("masters", 16384),
            _ => ("workers", 12288),
        };
        let host = &groups[group]["hosts"][format!("lab-{}", node.name)];
        assert_eq!(host["mac"], node.mac.to_string());
        assert_eq!(host["ip"], node.ip.to_string());
        assert_eq!(groups[group]["vars"]["memory_mib"], memory);
        let restarts = node.role != Role::Bootstrap;
        assert_eq!(groups[group]["vars"]["high_availability"], restarts);
    }
    let all = &inventory["all"]["vars"];
    assert_eq!(
        (&all["apart"], &all["masters_apart_always"]),
        (&true.into(), &true.into())
    );
    // Every variable in the playbook is defined by the inventory, by a task, or by Ansible.
    let playbook = python_reads(ansible::playbook());
    let plays = playbook.as_array().unwrap();
    let mut known: Vec<&str> = vec![
        "inventory_hostname",
        "item",
        "number",
        "lookup",
        "groups",
        "group_names",
        "if",
        "else",
        "in",
        "is",
        "defined",
        "default",
        "omit",
        // Results of tasks, and a setting without a value.
        "clusters",
        "disk",
        "found",
        "labelled",
        "machine",
        "shown",
        "source",
        "system",
        "template",
        "ovirt_hosts",
        "ovirt_storage_domain",
        "ovirt_vnic_profile",
        "ovirt_worker_label",
        // Filters and their arguments.
        "difference",
        "first",
        "list",
        "map",
        "attribute",
        "selectattr",
        "skip_missing",
        "subelements",
        "union",
    ];
    known.extend(inventory["all"]["vars"].as_object().unwrap().keys().map(String::as_str));
    known.extend(
        groups["masters"]["vars"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str),
    );
    known.extend(["node", "mac", "ip", "coreos_image"]);
    let text = ansible::playbook();
    let mut used = 0;
    for expression in text.split("{{ ").skip(1).filter_map(|rest| rest.split(" }}").next()) {
        for word in expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '\'' || c == '.')) {
            let is_name = word.starts_with(|c: char| c.is_ascii_lowercase()) && !word.ends_with('\'');
            let word = word.split('.').next().unwrap();
            if is_name {
                assert!(known.contains(&word), "{word} in {expression}");
                used += 1;
            }
        }
    }
    assert!(used > 15, "{used}");
    let all = plays.iter().flat_map(|play| play["tasks"].as_array().unwrap());
    let flat = all.flat_map(|task| {
        task["block"]
            .as_array()
            .map_or(vec![task], |block| block.iter().collect())
    });
    for task in flat {
        let modules: Vec<&String> = task
            .as_object()
            .unwrap()
            .keys()
            .filter(|key| key.contains('.'))
            .collect();
        assert_eq!(modules.len(), 1, "{task}");
        let known = [
            "affinity_group",
            "affinity_label",
            "cluster_info",
            "disk",
            "nic",
            "template",
            "template_info",
            "vm",
            "vm_info",
        ];
        let known = known.map(|name| format!("ovirt.ovirt.ovirt_{name}"));
        assert!(
            known.contains(modules[0]) || modules[0] == "ansible.builtin.assert",
            "{modules:?}"
        );
    }
}
