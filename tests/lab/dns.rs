//! The nodes' name servers and /etc/resolv.conf: real dnsmasq, on nodes that are namespaces on one bridge,
//! with exactly the files that the program creates. NetworkManager is played by the files that it would write.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::support::netns::{Node, Wire};
use crate::support::shape::{Made, Shape};
use crate::support::until::until;
use ocpdeploy::cluster::Role;
use ocpdeploy::node::host::HostParts;
use ocpdeploy::node::services::{dns, resolver};

const SHAPE: Shape = Shape {
    masters: 3,
    workers: 2,
    one_vip: false,
    prefix: 24,
    use_br: false,
    masters_schedulable: false,
};
/// The network's own resolver.
const OUTSIDE: &str = "10.77.0.1";
const SOON: Duration = Duration::from_secs(10);

/// A network with a resolver that knows example.org and nothing else.
struct Outside {
    wire: Wire,
    folder: tempfile::TempDir,
}

impl Outside {
    /// `answers`: the resolver's arguments of dnsmasq.
    fn new(answers: &[&str]) -> Self {
        let outside = Self::silent();
        let listen = format!("--listen-address={OUTSIDE}");
        let fixed = [
            "dnsmasq",
            "-k",
            "-C",
            "/dev/null",
            "-R",
            "-h",
            "-q",
            "--log-facility=-",
            "--bind-dynamic",
        ];
        let arguments = [&fixed, &[listen.as_str(), "--user=root"][..], answers].concat();
        outside.wire.start(&arguments, &outside.log_file());
        until(SOON, "the network's resolver answers", || {
            let (_, text) = outside
                .wire
                .sh(&format!("dig +time=1 +tries=1 @{OUTSIDE} up.example.org"));
            text.contains("status: ")
        });
        outside
    }

    /// A network whose resolver gets queries and never answers.
    fn silent() -> Self {
        Self {
            wire: Wire::new(&format!("{OUTSIDE}/24")),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn knowing_example_org() -> Self {
        Self::new(&["--address=/example.org/203.0.113.7", "--address=/#/"])
    }

    fn until_it_listens(&self) {
        until(SOON, "the network's resolver listens", || {
            self.wire.sh("ss -Hlun sport = :53").1.contains(OUTSIDE)
        });
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("outside.log")
    }

    /// The number of queries for this name.
    fn questions(&self, name: &str) -> usize {
        let log = fs::read_to_string(self.log_file()).unwrap_or_default();
        log.lines()
            .filter(|line| line.contains("query[") && line.contains(name))
            .count()
    }

    /// A node with these resolvers from DHCP, before it gets any of our files.
    fn node(&self, made: &Made, index: usize, resolvers: &[&str]) -> Node {
        let node = &made.parameters.nodes[index];
        let name = format!("{}-{}", made.config.name, node.name);
        let prefix = made.parameters.machine_network.prefix();
        let node = Node::new(&self.wire, &name, node.ip, prefix, self.folder.path());
        tell(&node, resolvers);
        node
    }

    fn booted(&self, made: &Made, index: usize, resolvers: &[&str]) -> Node {
        let node = self.node(made, index, resolvers);
        node.boot(&parts(made));
        // Both units start at once here, so the name server may run before it has upstream resolvers.
        let name = format!("api.{}", made.parameters.cluster_domain());
        let own = format!("nameserver {}", node.ip);
        until(SOON, "the node's name server runs, and the node uses it", || {
            let asks = node
                .log("ocpdeploy-dns.service")
                .contains(&format!("using nameserver {OUTSIDE}#53"));
            ask(&node, &name, "A").0 == "NOERROR"
                && (asks || !resolvers.contains(&OUTSIDE))
                && resolv_conf(&node).contains(&own)
        });
        node
    }
}

/// Writes NetworkManager's resolv.conf.
fn tell(node: &Node, resolvers: &[&str]) {
    let lines: String = resolvers.iter().map(|ip| format!("nameserver {ip}\\n")).collect();
    node.sh(&format!(
        "mkdir -p /run/NetworkManager && printf 'search lan.example.org\\n{lines}' >/run/NetworkManager/resolv.conf"
    ));
}

fn made(name: &str, first: [u8; 4]) -> Made {
    Made::new(name, SHAPE, Ipv4Addr::from(first))
}

fn parts(made: &Made) -> HostParts {
    let input = made.input();
    let mut parts = dns::parts(&input).unwrap();
    parts.extend(resolver::parts(&input));
    parts
}

/// Status and answers of one query to the first name server in the node's /etc/resolv.conf.
fn ask(node: &Node, name: &str, kind: &str) -> (String, Vec<String>) {
    ask_at(node, name, kind, &node.ip.to_string())
}

fn ask_at(node: &Node, name: &str, kind: &str, server: &str) -> (String, Vec<String>) {
    let text = node.sh(&format!(
        "dig +noall +comments +answer +tries=1 +time=2 @{server} {name} {kind} || true"
    ));
    let status = text.split("status: ").nth(1).and_then(|rest| rest.split(',').next());
    let answers = text.lines().filter(|line| !line.is_empty() && !line.starts_with(';'));
    let value = |line: &str| line.split_whitespace().skip(4).collect::<Vec<_>>().join(" ");
    (status.unwrap_or("none").to_owned(), answers.map(value).collect())
}

/// As a resolver queries: repeated if there is no answer.
fn patiently(node: &Node, name: &str, kind: &str) -> (String, Vec<String>) {
    let mut answers = (0..3).map(|_| ask(node, name, kind));
    let answered = answers.find(|(status, _)| status != "none");
    answered.unwrap_or_else(|| ("none".to_owned(), Vec::new()))
}

fn resolv_conf(node: &Node) -> Vec<String> {
    let text = node.sh("cat /etc/resolv.conf");
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

#[test]
#[ignore = "needs the lab"]
fn every_node_resolves_the_clusters_names_and_forwards_other_queries() {
    let outside = Outside::knowing_example_org();
    let mut made = made("lab", [10, 77, 0, 10]);
    made.release.version = (4, 3);
    let parameters = &made.parameters;
    let (api, ingress) = (parameters.api_ip.to_string(), parameters.ingress_ip.to_string());
    let nodes: Vec<Node> = (0..parameters.nodes.len())
        .map(|index| outside.booted(&made, index, &[OUTSIDE]))
        .collect();
    for node in &nodes {
        let mut cases: Vec<(String, &str, &str, Vec<String>)> = vec![
            ("api.lab.example.com".into(), "A", "NOERROR", vec![api.clone()]),
            ("api-int.lab.example.com".into(), "A", "NOERROR", vec![api.clone()]),
            ("apps.lab.example.com".into(), "A", "NOERROR", vec![ingress.clone()]),
            (
                "a.b.c.apps.lab.example.com".into(),
                "A",
                "NOERROR",
                vec![ingress.clone()],
            ),
            ("deep.example.org".into(), "A", "NOERROR", vec!["203.0.113.7".into()]),
            ("api.lab2.example.com".into(), "A", "NXDOMAIN", vec![]),
            (
                "_etcd-server-ssl._tcp.lab.example.com".into(),
                "SRV",
                "NOERROR",
                (0..3).map(|n| format!("0 10 2380 etcd-{n}.lab.example.com.")).collect(),
            ),
            (
                "etcd-0.lab.example.com".into(),
                "A",
                "NOERROR",
                vec![nodes[1].ip.to_string()],
            ),
        ];
        for known in &parameters.nodes {
            let name = format!("{}.lab.example.com", known.name);
            cases.push((format!("-x {}", known.ip), "", "NOERROR", vec![format!("{name}.")]));
            cases.push((name, "A", "NOERROR", vec![known.ip.to_string()]));
        }
        cases.push((format!("-x {api}"), "", "NOERROR", vec!["api.lab.example.com.".into()]));
        for known in ["api", "api-int", "apps", "x.y.apps", "worker-1"] {
            for other in ["AAAA", "TXT", "TYPE65"] {
                cases.push((format!("{known}.lab.example.com"), other, "NOERROR", vec![]));
            }
        }
        for unknown in ["nope", "worker-2", "x.api", "xapps", "x.worker-0"] {
            for kind in ["A", "AAAA"] {
                cases.push((format!("{unknown}.lab.example.com"), kind, "NXDOMAIN", vec![]));
            }
        }
        for (name, kind, status, mut answers) in cases {
            let (seen, mut values) = patiently(node, &name, kind);
            answers.sort();
            values.sort();
            assert_eq!(
                (seen.as_str(), values),
                (status, answers),
                "{} asked {name} {kind}",
                node.name
            );
        }
        // Through the node's own resolution: with search domain, name server and order of /etc/resolv.conf.
        let found = node.sh("getent ahostsv4 worker-0");
        assert!(found.starts_with(&nodes[4].ip.to_string()), "{found}");
    }
    let asked = outside.questions("lab.example.com");
    assert_eq!(asked, 0, "the network got queries for the cluster's own names");
}

#[test]
#[ignore = "needs the lab"]
fn two_clusters_on_one_network_do_not_resolve_each_others_names() {
    let outside = Outside::knowing_example_org();
    let [lab, lab2] = [made("lab", [10, 77, 0, 10]), made("lab2", [10, 77, 0, 100])];
    let nodes = [
        outside.booted(&lab, 1, &[OUTSIDE]),
        outside.booted(&lab2, 1, &[OUTSIDE]),
    ];
    for (node, own, other) in [(&nodes[0], &lab, &lab2), (&nodes[1], &lab2, &lab)] {
        for name in ["api", "x.apps", "master-0", "nope"] {
            let (status, _) = ask(node, &format!("{name}.{}", other.parameters.cluster_domain()), "A");
            assert_eq!(status, "NXDOMAIN", "{name} from {}", node.name);
        }
        let (_, answers) = ask(node, &format!("master-0.{}", own.parameters.cluster_domain()), "A");
        assert_eq!(answers, [node.ip.to_string()]);
        assert!(node.sh("getent ahostsv4 master-0").starts_with(&node.ip.to_string()));
    }
}

#[test]
#[ignore = "needs the lab"]
fn a_dead_resolver_is_queried_once_and_the_clusters_names_still_resolve() {
    let outside = Outside::silent();
    // Counts the queries to the network's resolver, and never answers.
    let listener = "import socket,sys\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\ns.bind(('10.77.0.1',53))\n\
                    while 1: print('query[', s.recv(4096), flush=True)";
    outside.wire.start(&["python3", "-c", listener], &outside.log_file());
    outside.until_it_listens();
    let made = made("lab", [10, 77, 0, 10]);
    let node = outside.booted(&made, 1, &[OUTSIDE]);
    for n in 0..5 {
        let (status, _) = ask(&node, &format!("dead{n}.example.org"), "A");
        // dnsmasq lets the client decide how long to wait.
        assert_eq!(status, "none");
    }
    for n in 0..5 {
        assert_eq!(outside.questions(&format!("dead{n}")), 1, "dead{n}");
    }
    let begun = Instant::now();
    assert_eq!(ask(&node, "x.apps.lab.example.com", "A").0, "NOERROR");
    assert_eq!(ask(&node, "nope.lab.example.com", "A").0, "NXDOMAIN");
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[test]
#[ignore = "needs the lab"]
fn queries_do_not_loop_when_the_network_offers_the_clusters_own_addresses() {
    let outside = Outside::knowing_example_org();
    let made = made("lab", [10, 77, 0, 10]);
    let parameters = &made.parameters;
    let vip = parameters.api_ip.to_string();
    let (first, second) = (parameters.nodes[1].ip.to_string(), parameters.nodes[2].ip.to_string());
    // Each node is offered the other one, the VIP and itself.
    let offered = [vip.as_str(), &first, &second, "127.0.0.1", "127.0.0.53"];
    let nodes = [outside.booted(&made, 1, &offered), outside.booted(&made, 2, &offered)];
    for node in &nodes {
        let begun = Instant::now();
        assert_eq!(ask(node, "www.example.org", "A").0, "REFUSED", "{}", node.name);
        assert!(begun.elapsed() < Duration::from_secs(1));
        assert_eq!(node.sh("cat /run/ocpdeploy/dns/upstreams").trim(), "");
        assert_eq!(resolv_conf(node).last().unwrap(), &format!("nameserver {}", node.ip));
    }
}

#[test]
#[ignore = "needs the lab"]
fn a_resolver_that_forwards_to_the_node_is_not_used() {
    let made = made("lab", [10, 77, 0, 10]);
    let node = made.parameters.nodes[1].ip;
    let forward = format!("--server={node}");
    let outside = Outside::silent();
    let node = outside.node(&made, 1, &[OUTSIDE]);
    let log = outside.log_file();
    let listen = format!("--listen-address={OUTSIDE}");
    let fixed = [
        "dnsmasq",
        "-k",
        "-C",
        "/dev/null",
        "-R",
        "-h",
        "-q",
        "--log-facility=-",
        "--bind-dynamic",
    ];
    outside
        .wire
        .start(&[&fixed[..], &[&listen, "--user=root", &forward]].concat(), &log);
    outside.until_it_listens();
    node.boot(&parts(&made));
    // Without upstream resolvers, it also returns REFUSED.
    until(SOON, "the loop is detected", || {
        ask(&node, "www.example.org", "A").0 == "REFUSED"
            && node.log("ocpdeploy-dns.service").contains("query loop detected")
    });
    let before = outside.questions("once.example.org");
    assert_eq!(ask(&node, "once.example.org", "A").0, "REFUSED");
    assert_eq!(outside.questions("once.example.org"), before);
    assert_eq!(ask(&node, "api.lab.example.com", "A").0, "NOERROR");
}

#[test]
#[ignore = "needs the lab"]
fn the_nodes_own_resolver_is_first_and_those_of_dhcp_follow() {
    let outside = Outside::knowing_example_org();
    let made = made("lab", [10, 77, 0, 10]);
    let node = outside.booted(&made, 1, &[OUTSIDE, "10.77.0.2", "10.77.0.3", "fe80::1%nic"]);
    let own = format!("nameserver {}", node.ip);
    let first = [
        "search lab.example.com lan.example.org",
        &own,
        "nameserver 10.77.0.1",
        "nameserver 10.77.0.2",
    ];
    assert_eq!(resolv_conf(&node), first);

    // No change: the file is not replaced.
    let seen = node.sh("stat -c '%i %a %U' /etc/resolv.conf");
    assert!(seen.ends_with(" 644 root\n"), "{seen}");
    // systemd does not run here: the test runs the service's command.
    node.sh(
        "printf '#!/bin/sh\\necho \"$*\" >>/run/systemctl.log\\nexec /usr/local/bin/ocpdeploy-resolver\\n' \
         >/usr/local/bin/systemctl && chmod 755 /usr/local/bin/systemctl",
    );
    let call = |interface: &str, action: &str| {
        node.sh(&format!(
            "rm -f /run/systemctl.log; /etc/NetworkManager/dispatcher.d/30-ocpdeploy-resolver '{interface}' {action}"
        ));
        node.sh("cat /run/systemctl.log || true")
    };
    let restarted = "restart --no-block ocpdeploy-resolver.service\n";
    assert_eq!(call("nic", "up"), restarted);
    assert_eq!(node.sh("stat -c '%i %a %U' /etc/resolv.conf"), seen);

    // A VIP or an address of a pod is not the node's, and other events have no name servers.
    node.sh(&format!(
        "ip addr add {}/32 dev nic && ip link add pod0 type veth peer name pod1 && ip addr add 10.128.0.2/23 dev pod0",
        made.parameters.api_ip
    ));
    tell(&node, &["10.77.0.9"]);
    for (interface, action) in [("nic", "down"), ("", "connectivity-change"), ("", "hostname")] {
        assert_eq!(call(interface, action), "", "{interface} {action}");
        assert_eq!(resolv_conf(&node), first, "{interface} {action}");
    }
    for (interface, action, resolver) in [
        ("pod0", "up", "10.77.0.7"),
        ("nic", "dhcp4-change", "10.77.0.9"),
        ("nic", "reapply", "10.77.0.8"),
        ("", "dns-change", OUTSIDE),
    ] {
        tell(&node, &[resolver]);
        assert_eq!(call(interface, action), restarted, "{interface} {action}");
        let changed = [first[0], &own, &format!("nameserver {resolver}")];
        assert_eq!(resolv_conf(&node), changed, "{interface} {action}");
    }

    // OVN-Kubernetes moves the address to a bridge, where the name server keeps its current resolvers.
    let ip = node.ip;
    node.sh(&format!(
        "ip link add br-ex type bridge && ip addr del {ip}/24 dev nic && ip link set nic master br-ex \
         && ip link set br-ex up && ip addr add {ip}/24 dev br-ex"
    ));
    call("br-ex", "up");
    until(SOON, "the name server answers on br-ex", || {
        ask(&node, "www.example.org", "A") == ("NOERROR".to_owned(), vec!["203.0.113.7".to_owned()])
    });
    assert_eq!(resolv_conf(&node)[1], own);
}

#[test]
#[ignore = "needs the lab"]
fn resolv_conf_has_content_before_the_node_has_its_address_and_kubelet_waits() {
    let outside = Outside::knowing_example_org();
    let made = made("lab", [10, 77, 0, 10]);
    let node = outside.node(&made, 1, &[OUTSIDE]);
    let ip = node.ip;
    node.sh(&format!("ip addr del {ip}/24 dev nic && rm -f /etc/resolv.conf"));
    let all = parts(&made);
    node.boot(&HostParts {
        files: all.files.clone(),
        units: vec![],
    });
    let run = "/usr/local/bin/ocpdeploy-resolver";
    assert_eq!(
        node.sh(&format!("! {run} 2>&1")).trim(),
        format!(
            "ocpdeploy-resolver: this node has no address in {} yet",
            made.parameters.machine_network
        )
    );
    assert_eq!(
        resolv_conf(&node),
        ["search lab.example.com lan.example.org", "nameserver 10.77.0.1"]
    );

    let kubelet = all.units.iter().find(|unit| unit.name == "kubelet.service").unwrap();
    let before = kubelet.dropins[0]
        .1
        .lines()
        .find_map(|line| line.strip_prefix("ExecStartPre="));
    node.sh(&format!(
        "({} && touch /run/kubelet) >/dev/null 2>&1 &",
        before.unwrap()
    ));
    std::thread::sleep(Duration::from_secs(2));
    node.sh("! test -e /run/kubelet");
    node.sh(&format!("ip addr add {ip}/24 dev nic"));
    until(SOON, "kubelet starts", || node.sh("ls /run").contains("kubelet"));
    assert_eq!(resolv_conf(&node)[1], format!("nameserver {ip}"));
}

#[test]
#[ignore = "needs the lab"]
fn where_systemd_resolved_is_in_use_it_is_configured_and_its_file_kept() {
    let outside = Outside::knowing_example_org();
    let made = made("lab", [10, 77, 0, 10]);
    let node = outside.node(&made, 1, &[OUTSIDE]);
    node.sh(
        "mkdir -p /run/systemd/resolve && echo nameserver 127.0.0.53 >/run/systemd/resolve/stub-resolv.conf \
         && ln -sf ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf \
         && printf '#!/bin/sh\\necho \"$*\" >>/run/systemctl.log\\n' >/usr/local/bin/systemctl && chmod 755 /usr/local/bin/systemctl",
    );
    node.boot(&HostParts {
        files: parts(&made).files,
        units: vec![],
    });
    for _ in 0..2 {
        node.sh("/usr/local/bin/ocpdeploy-resolver");
    }
    assert_eq!(
        node.sh("cat /etc/systemd/resolved.conf.d/60-ocpdeploy.conf"),
        format!("[Resolve]\nDNS={}\nDomains=lab.example.com\n", node.ip)
    );
    assert_eq!(
        node.sh("cat /run/systemctl.log"),
        "try-restart systemd-resolved.service\n"
    );
    assert_eq!(resolv_conf(&node), ["nameserver 127.0.0.53"]);
    assert_eq!(node.sh("cat /run/ocpdeploy/dns/upstreams"), "nameserver 10.77.0.1\n");
}

/// The file of the payload's CoreDNS: the daemon is not packaged here, so only the file is checked.
#[test]
#[ignore = "needs the lab"]
fn coredns_gets_the_node_s_address_and_the_network_s_resolvers() {
    let outside = Outside::knowing_example_org();
    let mut made = made("lab", [10, 77, 0, 10]);
    made.config.dns = ocpdeploy::cluster::Dns::Coredns;
    let node = outside.node(&made, 1, &[OUTSIDE, "10.77.0.2"]);
    let mut files = parts(&made).files;
    files.retain(|file| !file.path.starts_with("/etc/kubernetes/"));
    node.boot(&HostParts { files, units: vec![] });
    node.sh("/usr/local/bin/ocpdeploy-resolver");
    let corefile = node.sh("cat /run/ocpdeploy/dns/Corefile");
    assert!(corefile.contains(&format!("    bind {}\n", node.ip)), "{corefile}");
    assert!(corefile.contains("    forward . 10.77.0.1 10.77.0.2 {\n"), "{corefile}");
    tell(&node, &[]);
    node.sh("/usr/local/bin/ocpdeploy-resolver");
    let corefile = node.sh("cat /run/ocpdeploy/dns/Corefile");
    assert!(!corefile.contains("forward .") && !corefile.contains('@'), "{corefile}");
    let (opened, closed) = (corefile.matches('{').count(), corefile.matches('}').count());
    assert_eq!(opened, closed, "{corefile}");
    assert_eq!(made.parameters.nodes[1].role, Role::Master);
}
