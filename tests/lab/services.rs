//! Real keepalived and haproxy daemons, on nodes that are namespaces on one bridge, with exactly the files
//! that the program creates. The cluster's own services are fakes (`support/fake_node.py`).

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::support::netns::{Node, Watch, Wire};
use crate::support::shape::{Made, Shape};
use crate::support::until::until;
use ocpdeploy::cluster::Role;

const SHAPE: Shape = Shape {
    masters: 3,
    workers: 2,
    one_vip: false,
    prefix: 24,
    use_br: false,
    masters_schedulable: false,
};

/// What the issue of a move promises.
const MOVED: Duration = Duration::from_secs(5);
/// How long keepalived, haproxy and their checks take to reach a stable state.
const SETTLED: Duration = Duration::from_secs(20);

/// haproxy has no healthy server for eleven checks in a row, one each 2 s.
const GIVEN_UP: Duration = Duration::from_secs(60);

/// As OVN-Kubernetes rejects connections to machine config servers (openshift/ovn-kubernetes:
/// `go-controller/pkg/node/OCP_HACKS.go`).
const REJECTS: &str = "nft -f - <<'END'
table inet ovn {
    chain output {
        type filter hook output priority 0
        tcp dport { 22623, 22624 } tcp flags & (fin|syn|rst|ack) == syn reject
    }
    chain forward {
        type filter hook forward priority 0
        tcp dport { 22623, 22624 } tcp flags & (fin|syn|rst|ack) == syn reject
    }
}
END";

/// A cluster whose nodes are on one bridge.
struct Lab {
    made: Made,
    nodes: Vec<Node>,
    folder: PathBuf,
}

/// An empty folder for logs and the fakes' certificate; it is deleted with the test.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let output = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-nodes",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
        ])
        .args(["-subj", "/CN=api-int", "-days", "2"])
        .args([
            "-keyout",
            &format!("{path}/key"),
            "-out",
            &format!("{path}/certificate"),
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let pem = ["key", "certificate"].map(|name| fs::read_to_string(folder.path().join(name)).unwrap());
    fs::write(folder.path().join("pem"), pem.concat()).unwrap();
    folder
}

impl Lab {
    /// Nodes of a cluster that have addresses and run nothing yet.
    fn new(wire: &Wire, made: Made, folder: &tempfile::TempDir) -> Self {
        let prefix = made.parameters.machine_network.prefix();
        let name = |node| format!("{}-{node}", made.config.name);
        let nodes = made.parameters.nodes.iter();
        let nodes = nodes.map(|node| Node::new(wire, &name(&node.name), node.ip, prefix, folder.path()));
        Self {
            nodes: nodes.collect(),
            folder: folder.path().to_owned(),
            made,
        }
    }

    fn boot(&self, role: Role) {
        let parts = self.made.parts(role);
        for node in self.of(role) {
            node.sh(REJECTS);
            node.boot(&parts);
        }
    }

    /// Masters with API servers, and workers with routers.
    fn boot_with_services(&self) {
        for (role, service) in [(Role::Master, "api"), (Role::Worker, "router")] {
            self.boot(role);
            for node in self.of(role) {
                self.fake(service, node);
            }
        }
    }

    fn of(&self, role: Role) -> impl Iterator<Item = &Node> {
        let word = format!("-{role}");
        self.nodes.iter().filter(move |node| node.name.contains(&word))
    }

    fn node(&self, name: &str) -> &Node {
        self.nodes.iter().find(|node| node.name.ends_with(name)).unwrap()
    }

    fn cut(&mut self, name: &str) {
        self.nodes.iter_mut().find(|node| node.name == name).unwrap().cut();
    }

    /// Starts a fake service on a node.
    fn fake(&self, kind: &str, node: &Node) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/fake_node.py");
        let pem = self.folder.join("pem");
        node.start(
            kind,
            &["/usr/bin/python3", script, kind, &node.name, pem.to_str().unwrap()],
        );
    }

    fn holder(&self, ip: IpAddr) -> Option<&Node> {
        self.nodes.iter().find(|node| node.has(ip))
    }

    fn all_logs(&self) -> String {
        let log = |node: &Node| format!("──── {}\n{}", node.name, node.log("keepalived"));
        self.nodes.iter().map(log).collect()
    }
}

/// A failed test prints the logs of its nodes.
impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut files: Vec<_> = fs::read_dir(&self.folder)
                .unwrap()
                .flatten()
                .map(|file| file.path())
                .collect();
            files.sort();
            for file in files
                .iter()
                .filter(|file| file.extension().is_some_and(|extension| extension == "log"))
            {
                eprintln!(
                    "──── {}\n{}",
                    file.display(),
                    fs::read_to_string(file).unwrap_or_default()
                );
            }
        }
    }
}

/// Whether keepalived knows that haproxy has an API behind it.
fn sees_haproxy(master: &Node) -> bool {
    let log = master.log("keepalived");
    let last = log.lines().rfind(|line| line.contains("check: api_balanced "));
    last.is_some_and(|line| line.ends_with("succeeded"))
}

/// An address was on these nodes, one after the other, and never on two at once.
#[track_caller]
fn assert_moves(lab: &Lab, watch: &Watch, expected: &[&str]) {
    let (holders, doubles, gap) = watch.holders();
    println!("{holders:?}, at two at once: {doubles}, longest time between looks: {gap:?}");
    assert!(
        holders == expected && doubles == 0,
        "{holders:?} {doubles}\n{}",
        lab.all_logs()
    );
}

/// The node that answers a URL, queried from the bridge.
fn who(wire: &Wire, url: &str) -> Option<String> {
    let (answered, name) = wire.sh(&format!("curl -kfs --max-time 1 {url}/who"));
    answered.then(|| name.trim().to_owned())
}

/// Prints address and MAC of each gratuitous ARP that passes.
const ARP_WATCH: &str = r#"
import socket
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806))
wire.bind(("br0", 0))
while True:
    arp = wire.recv(2048)[14:]
    if arp[14:18] == arp[24:28]:
        print(socket.inet_ntoa(arp[14:18]), arp[8:14].hex(":"), flush=True)
"#;

#[test]
#[ignore = "needs the lab"]
fn vips_move_from_bootstrap_to_masters_and_with_routers_and_are_never_on_two_nodes() {
    let folder = folder();
    let wire = Wire::new("192.168.122.1/24");
    let arps = folder.path().join("arps");
    wire.start(&["/usr/bin/python3", "-c", ARP_WATCH], &arps);
    let mut lab = Lab::new(
        &wire,
        Made::new("lab", SHAPE, Ipv4Addr::new(192, 168, 122, 10)),
        &folder,
    );
    let (api, ingress) = (lab.made.parameters.api_ip, lab.made.parameters.ingress_ip);
    let [api_watch, ingress_watch] = [api, ingress].map(|ip| Watch::new(&lab.nodes, ip));
    let api_url = format!("https://{api}:6443");

    // The VIP exists before any API: connections are refused immediately.
    lab.boot(Role::Bootstrap);
    let bootstrap = lab.node("bootstrap");
    until(MOVED, "the bootstrap has the api VIP", || bootstrap.has(api));
    assert!(
        wire.sh(&format!("curl -ks --max-time 2 {api_url} || [ $? = 7 ]")).0,
        "refused, not lost"
    );
    lab.boot(Role::Master);
    lab.boot(Role::Worker);
    lab.fake("api", bootstrap);
    until(SETTLED, "the bootstrap's API answers", || {
        who(&wire, &api_url).as_deref() == Some("lab-bootstrap")
    });
    for master in lab.of(Role::Master) {
        lab.fake("api", master);
        until(SETTLED, "the VIP's port is redirected once haproxy has APIs", || {
            master.sh("ls /run/ocpdeploy").contains("api-redirect")
        });
    }
    until(SETTLED, "keepalived has seen haproxy", || {
        lab.of(Role::Master)
            .all(|master| master.log("keepalived").contains("check: api_balanced succeeded"))
    });
    until(SETTLED, "keepalived has seen the machine config servers", || {
        lab.of(Role::Master)
            .all(|master| master.log("keepalived").contains("check: mcs_here succeeded"))
    });
    assert_moves(&lab, &api_watch, &["lab-bootstrap"]);

    // The bootstrap is complete: its API ends, later the machine.
    bootstrap.sh("kill -9 $(cat /run/fake-api.pid)");
    let took = until(MOVED, "a master has the api VIP", || {
        lab.of(Role::Master).any(|node| node.has(api))
    });
    println!("bootstrap to master: {took:?}");
    until(MOVED, "its API answers", || who(&wire, &api_url).is_some());
    lab.cut("lab-bootstrap");
    assert!(who(&wire, &api_url).is_some());

    // Two ways to lose the holder: its keepalived is killed, or the machine loses power.
    let first = lab.holder(api).unwrap().name.clone();
    assert_moves(&lab, &api_watch, &["lab-bootstrap", &first]);
    lab.node(&first).sh("kill -9 $(pgrep keepalived)");
    let took = until(MOVED, "another master has the api VIP", || {
        lab.of(Role::Master).any(|node| node.name != first && node.has(api))
    });
    println!("keepalived killed: {took:?}");
    until(SETTLED, "its keepalived is back", || {
        lab.node(&first)
            .log("keepalived")
            .matches("Entering BACKUP STATE")
            .count()
            > 1
    });
    until(SETTLED, "and everything is healthy again", || {
        lab.of(Role::Master).all(sees_haproxy)
    });
    assert!(who(&wire, &api_url).is_some());
    let second = lab.holder(api).unwrap().name.clone();
    assert_moves(&lab, &api_watch, &["lab-bootstrap", &first, &second]);
    lab.cut(&second);
    let took = until(MOVED, "another master has the api VIP", || lab.holder(api).is_some());
    println!("machine cut off: {took:?}");
    until(MOVED, "its API answers", || who(&wire, &api_url).is_some());

    // The ingress VIP is on a node with a router, and stays there while the router runs.
    assert!(lab.holder(ingress).is_none());
    let ingress_url = format!("http://{ingress}");
    let answers = |name: &str| who(&wire, &ingress_url).as_deref() == Some(name);
    lab.fake("router", lab.node("worker-1"));
    until(SETTLED, "the router answers", || answers("lab-worker-1"));
    lab.fake("router", lab.node("worker-0"));
    until(SETTLED, "keepalived has seen the other router", || {
        lab.node("worker-0")
            .log("keepalived")
            .contains("check: router succeeded")
    });
    lab.node("worker-1").sh("touch /run/fake-router.unready");
    let took = until(MOVED, "the ready one answers", || answers("lab-worker-0"));
    println!("router not ready: {took:?}");
    lab.node("worker-1").sh("rm /run/fake-router.unready");

    let third = lab.holder(api).unwrap().name.clone();
    assert_moves(&lab, &api_watch, &["lab-bootstrap", &first, &second, &third]);
    assert_moves(&lab, &ingress_watch, &["lab-worker-1", "lab-worker-0"]);
    let arps = fs::read_to_string(arps).unwrap();
    let told: BTreeSet<&str> = arps
        .lines()
        .filter(|line| line.starts_with(&format!("{api} ")))
        .collect();
    assert!(told.len() >= 3, "each new holder announces its MAC: {told:?}");
}

/// APIs that answer slowly count as healthy for keepalived and haproxy.
#[test]
#[ignore = "needs the lab"]
fn slow_apis_keep_the_vip_and_their_place_in_haproxy() {
    let folder = folder();
    let wire = Wire::new("192.168.122.1/24");
    let made = Made::new("slow", SHAPE, Ipv4Addr::new(192, 168, 122, 10));
    let lab = Lab::new(&wire, made, &folder);
    let api = lab.made.parameters.api_ip;
    lab.boot(Role::Master);
    for master in lab.of(Role::Master) {
        lab.fake("api", master);
    }
    until(SETTLED, "all masters see haproxy, and one has the api VIP", || {
        lab.of(Role::Master).all(sees_haproxy) && lab.holder(api).is_some()
    });
    let holder = lab.holder(api).unwrap().name.clone();
    let watch = Watch::new(&lab.nodes, api);
    for (master, seconds) in lab.of(Role::Master).zip(["3", "5", "8"]) {
        master.sh(&format!("echo {seconds} >/run/fake-api.slow"));
    }
    // Longer than three of the slowest checks.
    std::thread::sleep(Duration::from_secs(40));
    assert_eq!(lab.holder(api).map(|node| &node.name), Some(&holder));
    assert_moves(&lab, &watch, &[&holder]);
    for master in lab.of(Role::Master) {
        let checks = master.sh("pgrep -cf '[k]eepalived/check api ' || true");
        assert_eq!(checks.trim(), "1", "checks accumulate");
    }
    // A check that ends is restarted: otherwise its last result would count forever.
    let master = lab.of(Role::Master).next().unwrap();
    let check = || master.sh("pgrep -f '[k]eepalived/check api_here ' || true");
    let ended = check();
    master.sh(&format!("kill -9 {}", ended.trim()));
    until(MOVED, "the check runs again", || {
        let now = check();
        !now.trim().is_empty() && now != ended
    });
    // A newer version may check at other intervals: the file changes, and the pod stays.
    master.sh("sed -i 's/^api_here 2,/api_here 7,/' /etc/ocpdeploy/keepalived/checks");
    until(MOVED, "the check has its new interval, and the old one is gone", || {
        let all = master.sh("pgrep -af '[k]eepalived/check api_here ' || true");
        all.lines().count() == 1 && all.contains(" api_here 7 ")
    });
    for master in lab.of(Role::Master) {
        let states = master.sh("curl -s 'http://127.0.0.1:9444/stats;csv' | grep '^apis,slow-\\|^apis,master'");
        let up = states.lines().filter(|line| line.contains(",UP,")).count();
        assert_eq!(up, 3, "{states}");
    }
}

#[test]
#[ignore = "needs the lab"]
fn a_bootstrap_whose_api_was_briefly_unready_gets_the_vip_back() {
    let folder = folder();
    let wire = Wire::new("192.168.122.1/24");
    let shape = Shape {
        masters: 1,
        workers: 0,
        ..SHAPE
    };
    let lab = Lab::new(
        &wire,
        Made::new("lab", shape, Ipv4Addr::new(192, 168, 122, 10)),
        &folder,
    );
    let (bootstrap, master) = (lab.node("bootstrap"), lab.node("master-0"));
    let url = format!("https://{}:6443", lab.made.parameters.api_ip);
    for (role, node) in [(Role::Bootstrap, bootstrap), (Role::Master, master)] {
        lab.fake("api", node);
        lab.boot(role);
    }
    until(SETTLED, "the bootstrap answers", || {
        who(&wire, &url).as_deref() == Some("lab-bootstrap")
    });
    bootstrap.sh("touch /run/fake-api.unready");
    until(MOVED, "the master answers", || {
        who(&wire, &url).as_deref() == Some("lab-master-0")
    });
    bootstrap.sh("rm /run/fake-api.unready");
    until(SETTLED, "the bootstrap answers again", || {
        who(&wire, &url).as_deref() == Some("lab-bootstrap")
    });
    until(MOVED, "and has the VIP alone", || {
        !master.has(lab.made.parameters.api_ip)
    });
}

#[test]
#[ignore = "needs the lab"]
fn three_clusters_on_one_network_do_not_affect_each_other() {
    let folder = folder();
    let wire = Wire::new("192.168.122.1/24");
    // A single worker has no peer, so its advertisements are multicast.
    let one_worker = Shape { workers: 1, ..SHAPE };
    let small = Shape {
        masters: 1,
        ..one_worker
    };
    let labs = [("lab", SHAPE, 10), ("lab1", one_worker, 30), ("lab10", small, 50)].map(|(name, shape, last)| {
        Lab::new(
            &wire,
            Made::new(name, shape, Ipv4Addr::new(192, 168, 122, last)),
            &folder,
        )
    });
    for lab in &labs {
        for role in [Role::Bootstrap, Role::Master, Role::Worker] {
            lab.boot(role);
        }
        lab.fake("router", lab.node("worker-0"));
    }
    let bootstraps = || {
        labs.iter()
            .all(|lab| lab.node("bootstrap").has(lab.made.parameters.api_ip))
    };
    until(SETTLED, "each bootstrap has its cluster's api VIP", bootstraps);
    // Unicast with peers, multicast without: neither may affect other clusters.
    let held = || {
        labs.iter()
            .all(|lab| lab.holder(lab.made.parameters.ingress_ip).is_some())
    };
    until(SETTLED, "each cluster's ingress VIP is held", held);
    for lab in &labs {
        lab.node("bootstrap").sh("kill -9 $(pgrep keepalived)");
    }
    until(SETTLED, "each bootstrap has it again", bootstraps);
    for lab in &labs {
        let logs = lab.all_logs();
        assert!(logs.contains("Entering MASTER STATE"), "{logs}");
        let others = labs
            .iter()
            .filter(|other| other.made.config.name != lab.made.config.name);
        let foreign: Vec<String> = others
            .flat_map(|other| other.made.parameters.leases())
            .map(|lease| format!(" {} ", lease.ip))
            .collect();
        for line in logs.lines() {
            let refused = ["passwd", "not present", "invalid", "mismatch", "incorrect", "bogus"];
            assert!(!refused.iter().any(|word| line.contains(word)), "{line}");
            assert!(!foreign.iter().any(|ip| format!("{line} ").contains(ip)), "{line}");
        }
    }
}

#[test]
#[ignore = "needs the lab"]
fn a_vip_follows_the_address_to_another_interface() {
    let folder = folder();
    let wire = Wire::new("192.168.122.1/24");
    let lab = Lab::new(
        &wire,
        Made::new("lab", SHAPE, Ipv4Addr::new(192, 168, 122, 10)),
        &folder,
    );
    let api = lab.made.parameters.api_ip;
    lab.boot(Role::Bootstrap);
    let node = lab.node("bootstrap");
    until(MOVED, "the bootstrap has the api VIP", || node.has(api));
    let ip = node.ip;
    node.sh(&format!(
        "ip link add br-ex type bridge && ip link set br-ex up && ip link set nic master br-ex && \
         ip addr del {ip}/24 dev nic && ip addr add {ip}/24 dev br-ex"
    ));
    let line = format!("inet {api}/32");
    until(SETTLED, "it is on br-ex", || {
        node.sh("ip -o -4 addr show dev br-ex").contains(&line)
    });
    until(SETTLED, "it is not on the NIC", || {
        !node.sh("ip -o -4 addr show dev nic").contains(&line)
    });
    lab.fake("api", node);
    until(MOVED, "and can be reached there", || {
        who(&wire, &format!("https://{api}:6443")).is_some()
    });
}

#[test]
#[ignore = "needs the lab"]
fn haproxy_removes_a_dead_master_and_keeps_long_connections() {
    let folder = folder();
    let wire = Wire::new("192.168.122.1/24");
    let mut lab = Lab::new(
        &wire,
        Made::new("lab", SHAPE, Ipv4Addr::new(192, 168, 122, 10)),
        &folder,
    );
    let api = lab.made.parameters.api_ip;
    let url = format!("https://{api}:6443");
    for master in lab.of(Role::Master) {
        lab.fake("api", master);
    }
    lab.boot(Role::Master);
    let spread = |wanted: usize| {
        let names: BTreeSet<String> = (0..6).filter_map(|_| who(&wire, &url)).collect();
        names.len() == wanted
    };
    until(SETTLED, "requests to the VIP are spread over all masters", || spread(3));

    until(SETTLED, "keepalived has seen haproxy everywhere", || {
        lab.holder(api).is_some() && lab.of(Role::Master).all(sees_haproxy)
    });
    let stream = folder.path().join("stream");
    wire.start(&["curl", "-ksN", &format!("{url}/stream")], &stream);
    let lines = || fs::read_to_string(&stream).unwrap();
    until(MOVED, "the stream flows", || lines().lines().count() > 2);
    let server = lines().split(' ').next().unwrap().to_owned();
    let holder = lab.holder(api).unwrap().name.clone();
    let other = |node: &&Node| node.name != server && node.name != holder;
    let dead = lab.of(Role::Master).find(other).unwrap().name.clone();
    lab.cut(&dead);
    let short = dead.strip_prefix("lab-").unwrap().to_owned();
    let took = until(Duration::from_secs(15), "haproxy has removed the dead master", || {
        let csv = lab.node(&holder).sh("curl -s 'http://127.0.0.1:9444/stats;csv'");
        csv.lines()
            .any(|line| line.starts_with(&format!("apis,{short},")) && line.contains(",DOWN,"))
    });
    println!("out after {took:?}");
    assert!(
        (0..12).all(|_| who(&wire, &url).is_some()),
        "no request goes to the dead master any more"
    );
    let before = lines().lines().count();
    until(MOVED, "the long connection continues", || {
        lines().lines().count() > before + 2
    });

    // Without haproxy the holder's own API answers.
    lab.node(&holder).sh("kill -9 $(pgrep haproxy)");
    until(SETTLED, "the port is not redirected any more", || {
        !lab.node(&holder)
            .sh("nft list ruleset; ls /run/ocpdeploy")
            .contains("redirect")
    });
    assert_eq!(who(&wire, &url).as_deref(), Some(&holder[..]));
}

#[test]
#[ignore = "needs the lab"]
fn a_single_vip_forwards_requests_to_a_router_on_a_worker() {
    let folder = folder();
    let wire = Wire::new("192.168.122.1/24");
    let shape = Shape {
        masters: 1,
        workers: 1,
        one_vip: true,
        ..SHAPE
    };
    let lab = Lab::new(
        &wire,
        Made::new("lab", shape, Ipv4Addr::new(192, 168, 122, 10)),
        &folder,
    );
    let (master, worker) = (lab.node("master-0"), lab.node("worker-0"));
    let url = format!("http://{}", lab.made.parameters.api_ip);
    // A host without nft has iptables.
    master.sh(
        "mkdir /mnt/bin && for tool in bash curl grep iptables iptables-restore mkdir paste rm sleep; do \
         ln -s $(command -v $tool) /mnt/bin; done",
    );
    let mut parts = lab.made.parts(Role::Master);
    let unit = &mut parts.units[0];
    let start = "/usr/local/bin/ocpdeploy-redirect";
    unit.contents = unit
        .contents
        .take()
        .map(|text| text.replace(start, &format!("/usr/bin/env PATH=/mnt/bin {start}")));
    master.boot(&parts);
    lab.fake("api", master);
    lab.fake("router", worker);
    until(SETTLED, "the router answers through the master", || {
        who(&wire, &url).as_deref() == Some("lab-worker-0")
    });
    assert_eq!(
        master.sh(&format!("curl -s --max-time 2 {url}/who")).trim(),
        "lab-worker-0",
        "from the master too"
    );
    let rules = master.sh("iptables -t nat -S");
    assert!(
        rules.contains("--to-ports 9480") && rules.contains("--to-ports 9483"),
        "{rules}"
    );
    worker.sh("kill -9 $(cat /run/fake-router.pid)");
    until(GIVEN_UP, "without router nothing is redirected", || {
        !master.sh("iptables -t nat -S").contains("--to-ports")
    });
}

/// The addresses of a virtual IP in both families are on one node, and clients of both reach its services.
#[test]
#[ignore = "needs the lab"]
fn virtual_ips_of_both_families_move_together() {
    let folder = folder();
    let wire = Wire::new("192.168.122.1/24");
    wire.sh("ip addr add fd00:1::1/64 dev br0 nodad");
    let made = Made::new("lab", SHAPE, Ipv4Addr::new(192, 168, 122, 10)).with_ipv6();
    let (api, ingress) = (made.parameters.api_ip, made.parameters.ingress_ip);
    let ipv6 = made.parameters.ipv6.clone().unwrap();
    let mut lab = Lab::new(&wire, made, &folder);
    for node in &lab.nodes {
        let own = ipv6.beside(node.ip);
        node.sh(&format!("ip addr add {own}/64 dev nic nodad"));
    }
    let api_urls = [format!("https://{api}:6443"), format!("https://[{}]:6443", ipv6.api_ip)];
    let ingress_urls = [format!("http://{ingress}"), format!("http://[{}]", ipv6.ingress_ip)];
    let all_answer = |urls: &[String; 2]| urls.iter().all(|url| who(&wire, url).is_some());
    lab.boot_with_services();
    until(SETTLED, "the API answers in both families", || all_answer(&api_urls));
    until(SETTLED, "so do the routers", || all_answer(&ingress_urls));
    for master in lab.of(Role::Master) {
        until(SETTLED, "both are redirected to haproxy", || {
            master
                .sh("nft list ruleset")
                .contains(&format!("ip6 daddr {}", ipv6.api_ip))
        });
    }
    assert!(all_answer(&api_urls));
    let both_at_one = |lab: &Lab| {
        let holders = |ip: IpAddr| lab.nodes.iter().filter(|node| node.has(ip)).count();
        let moved = |ip, ip6| lab.holder(ip).is_some_and(|node| node.has(ip6));
        [(api, ipv6.api_ip.into()), (ingress, ipv6.ingress_ip.into())]
            .into_iter()
            .all(|(ip, ip6)| moved(ip, ip6) && holders(ip6) == 1)
    };
    assert!(both_at_one(&lab), "{}", lab.all_logs());

    // keepalived is killed, and `run` removes its address; then the machine is lost.
    let first = lab.holder(api).unwrap().name.clone();
    lab.node(&first).sh("kill -9 $(pgrep keepalived)");
    until(MOVED, "another master has both", || {
        lab.holder(api).is_some_and(|node| node.name != first) && both_at_one(&lab)
    });
    let second = lab.holder(api).unwrap().name.clone();
    lab.cut(&second);
    until(MOVED, "another master has both", || both_at_one(&lab));
    until(MOVED, "the API answers in both families", || all_answer(&api_urls));
    let router = lab.holder(ingress).unwrap().name.clone();
    lab.cut(&router);
    until(MOVED, "the other worker has both", || both_at_one(&lab));
    until(MOVED, "its router answers in both families", || {
        all_answer(&ingress_urls)
    });
}

/// Without IPv4: each virtual IP is on one node, moves when the node is lost, and clients reach its services.
#[test]
#[ignore = "needs the lab"]
fn virtual_ips_of_a_cluster_without_ipv4_move() {
    let folder = folder();
    let wire = Wire::new("192.168.122.1/24");
    wire.sh("ip addr add fd00:1::1/64 dev br0 nodad");
    let made = Made::new("lab", SHAPE, Ipv4Addr::new(192, 168, 122, 10)).of_ipv6();
    let (api, ingress) = (made.parameters.api_ip, made.parameters.ingress_ip);
    let mut lab = Lab::new(&wire, made, &folder);
    let answers = |url: &str| who(&wire, url).is_some();
    let (api_url, ingress_url) = (format!("https://[{api}]:6443"), format!("http://[{ingress}]"));
    lab.boot_with_services();
    until(SETTLED, "the API answers", || answers(&api_url));
    until(SETTLED, "so do the routers", || answers(&ingress_url));
    for master in lab.of(Role::Master) {
        until(SETTLED, "the API is redirected to haproxy", || {
            master.sh("nft list ruleset").contains(&format!("ip6 daddr {api}"))
        });
    }
    assert!(answers(&api_url), "{}", lab.all_logs());
    let one_holder = |lab: &Lab, ip: IpAddr| lab.nodes.iter().filter(|node| node.has(ip)).count() == 1;
    let first = lab.holder(api).unwrap().name.clone();
    // `run` removes what a killed keepalived leaves.
    lab.node(&first).sh("kill -9 $(pgrep keepalived)");
    until(MOVED, "another master has the virtual IP", || {
        lab.holder(api).is_some_and(|node| node.name != first) && one_holder(&lab, api)
    });
    for ip in [api, ingress] {
        let holder = lab.holder(ip).unwrap().name.clone();
        lab.cut(&holder);
        until(MOVED, "another node has the virtual IP", || one_holder(&lab, ip));
    }
    until(MOVED, "the API answers", || answers(&api_url));
    until(MOVED, "the other router answers", || answers(&ingress_url));
}
