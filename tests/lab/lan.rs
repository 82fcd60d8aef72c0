//! Network probes of this computer, tested with two network namespaces as computers.
//!
//! Needs root; `tests/lab/test.sh` runs it. The second half of each test runs in the namespace, as a child.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ocpdeploy::local::network_probe;

/// Two namespaces with a cable between: `us`, 10.99.0.1, and `them`, 10.99.0.2 and 10.99.0.4.
struct Cable {
    us: String,
    them: String,
}

impl Cable {
    fn new(name: &str) -> Self {
        let mark = format!("{name}{}", std::process::id());
        let cable = Self {
            us: format!("us-{mark}"),
            them: format!("them-{mark}"),
        };
        let (us, them) = (&cable.us, &cable.them);
        ip(&format!("netns add {us}"));
        ip(&format!("netns add {them}"));
        ip(&format!("-n {us} link add lan0 type veth peer name lan0 netns {them}"));
        for (namespace, address) in [(us, "10.99.0.1/24"), (them, "10.99.0.2/24"), (them, "10.99.0.4/32")] {
            ip(&format!("-n {namespace} link set lo up"));
            ip(&format!("-n {namespace} address add {address} dev lan0"));
            ip(&format!("-n {namespace} link set lan0 up"));
        }
        cable
    }

    /// Runs the child test of this name in namespace `us`.
    fn ask(&self, child: &str) -> String {
        let program = std::env::current_exe().unwrap();
        let output = Command::new("ip")
            .args(["netns", "exec", &self.us])
            .arg(program)
            .args(["--exact", &format!("lan::{child}"), "--ignored", "--nocapture"])
            .env("OCPDEPLOY_LAN_CHILD", "1")
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        text.lines()
            .find_map(|line| line.strip_prefix("saw "))
            .unwrap()
            .to_owned()
    }

    fn mac_of_them(&self) -> String {
        let output = Command::new("ip")
            .args(["-n", &self.them, "-o", "link", "show", "lan0"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split_once("link/ether ").unwrap().1[..17].to_owned()
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for namespace in [&self.us, &self.them] {
            let _ = Command::new("ip").args(["netns", "delete", namespace]).status();
        }
    }
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split_whitespace()).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// Whether this process is the half that runs in a namespace.
fn is_child() -> bool {
    std::env::var_os("OCPDEPLOY_LAN_CHILD").is_some()
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(future)
}

#[test]
#[ignore = "needs root"]
fn addresses_in_use_are_found_and_free_ones_are_not() {
    let cable = Cable::new("arp");
    let mac = cable.mac_of_them();
    let both = format!("10.99.0.2 {mac}, 10.99.0.4 {mac}");
    assert_eq!(cable.ask("child_asks_who_has"), both);

    // ARP alone is sufficient: other answers have no route back.
    ip(&format!("-n {} route delete 10.99.0.0/24 dev lan0", cable.them));
    ip(&format!("-n {} neighbour flush dev lan0", cable.us));
    assert_eq!(cable.ask("child_asks_who_has"), both);

    // Stale entries of the ARP table do not count.
    ip(&format!("-n {} route add 10.99.0.0/24 dev lan0", cable.them));
    ip(&format!("-n {} address delete 10.99.0.4/32 dev lan0", cable.them));
    assert_eq!(cable.ask("child_asks_who_has"), format!("10.99.0.2 {mac}"));
}

#[test]
#[ignore = "child of the test above"]
fn child_asks_who_has() {
    if !is_child() {
        return;
    }
    let asked = [2, 3, 4, 200].map(|last| IpAddr::from([10, 99, 0, last]));
    let begun = Instant::now();
    let seen = run(network_probe::answering(
        &[asked.as_slice(), &[IpAddr::from([203, 0, 113, 1])]].concat(),
    ));
    assert!(begun.elapsed() < Duration::from_secs(15));
    let seen: Vec<String> = seen
        .iter()
        .map(|(ip, mac)| format!("{ip} {}", mac.map_or("-".to_owned(), |mac| mac.to_string())))
        .collect();
    println!("saw {}", seen.join(", "));
}

/// A router of another cluster, which advertises id 51 once a second.
struct Router(Child);

impl Router {
    fn new(namespace: &str) -> Self {
        let script = "import socket, time\n\
            s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 112)\n\
            s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton('10.99.0.2'))\n\
            while True:\n    s.sendto(bytes([0x21, 51, 100, 1, 0, 1, 0, 0, 10, 99, 0, 9]), ('224.0.0.18', 0)); time.sleep(1)";
        let python = Command::new("ip")
            .args(["netns", "exec", namespace, "python3", "-c", script])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self(python)
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "needs root"]
fn virtual_router_ids_of_others_are_found() {
    let cable = Cable::new("vrrp");
    assert_eq!(cable.ask("child_listens_for_vrrp"), "{}");
    let _router = Router::new(&cable.them);
    assert_eq!(cable.ask("child_listens_for_vrrp"), "{51: 10.99.0.2}");
}

#[test]
#[ignore = "child of the test above"]
fn child_listens_for_vrrp() {
    if !is_child() {
        return;
    }
    let near = IpAddr::from([10, 99, 0, 7]);
    let heard: BTreeMap<u8, Ipv4Addr> = run(network_probe::virtual_router_ids(near, Duration::from_secs(4)));
    println!("saw {heard:?}");
}
