//! The connections of nodes, read by NetworkManager's own reader of keyfiles.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::left_out::no_judge;
use crate::support::shape::{Made, Shape};
use ocpdeploy::cluster::{Dhcp, NetworkConfig, NodeName, NodeSelector, Role};
use ocpdeploy::node::host::HostFile;
use ocpdeploy::node::overlay;
use ocpdeploy::plan::connections::connections;

/// nmcli, which reads and writes keyfiles without a running NetworkManager (`nmcli(1)`, `--offline`).
struct Nmcli {
    program: PathBuf,
    /// The folder of its library.
    folder: PathBuf,
}

impl Nmcli {
    /// `None` when it is not installed.
    fn find() -> Option<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/nmcli");
        for program in [folder.join("nmcli"), "nmcli".into()] {
            let folder = folder.clone();
            let nmcli = Self { program, folder };
            let version = nmcli.command().arg("--version").output();
            if version.is_ok_and(|version| version.status.success()) {
                return Some(nmcli);
            }
        }
        no_judge("nmcli is not installed: run tests/nmcli.sh");
        None
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("LD_LIBRARY_PATH", &self.folder);
        command
    }

    /// The settings of a keyfile that NetworkManager drops when it reads the file.
    fn lost(&self, keyfile: &str) -> Vec<String> {
        let id = keyfile.lines().find_map(|line| line.strip_prefix("id=")).unwrap();
        let mut child = self
            .command()
            .args(["--offline", "connection", "modify", "connection.id", id])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(keyfile.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}\n{keyfile}");
        let read = settings(&String::from_utf8(output.stdout).unwrap());
        settings(keyfile).difference(&read).cloned().collect()
    }
}

/// Defaults, which NetworkManager omits when it writes a file.
const DEFAULTS: [&str; 9] = [
    "connection.autoconnect=true",
    "connection.autoconnect-slaves=-1",
    "bridge.vlan-filtering=false",
    "ipv4.dhcp-send-hostname=true",
    "ipv6.dhcp-send-hostname=true",
    "ipv4.ignore-auto-dns=false",
    "ipv4.ignore-auto-routes=false",
    "ipv6.ignore-auto-dns=false",
    "ipv6.ignore-auto-routes=false",
];

/// The settings of a keyfile as `section.key=value`, in a normalized spelling.
fn settings(keyfile: &str) -> BTreeSet<String> {
    let mut section = "";
    let mut all = BTreeSet::new();
    for line in keyfile.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some((key, value)) = line.split_once('=') {
            // Addresses and routes are numbered from 0 or 1.
            let key: String = match key.starts_with("address") || key.starts_with("route") {
                true => key.chars().filter(|c| !c.is_ascii_digit()).collect(),
                false => key.to_owned(),
            };
            let value = match (key.as_str(), value) {
                ("type", "802-3-ethernet") => "ethernet",
                ("addr-gen-mode", "0") => "eui64",
                (_, value) => value.trim_end_matches(';'),
            };
            // MACs are written in capital letters.
            all.insert(format!("{section}.{key}={value}").to_lowercase());
        }
    }
    let is_default =
        |setting: &String| DEFAULTS.contains(&setting.as_str()) || setting.ends_with(".never-default=false");
    all.retain(|setting| !is_default(setting));
    all
}

const BOND: &str = "interfaces:
- name: bond0
  type: bond
  link-aggregation: {mode: active-backup, options: {miimon: '100'}, port: [nic0, nic1]}
  ipv4: {enabled: true}
";

const VLAN: &str = "interfaces:
- name: bond0
  type: bond
  link-aggregation: {mode: 802.3ad, port: [nic0, nic1]}
- name: bond0.100
  type: vlan
  vlan: {base-iface: bond0, id: 100}
  ipv4: {enabled: true}
routes:
  config:
  - {destination: 172.20.0.0/16, next-hop-address: 192.168.122.254, next-hop-interface: bond0.100}
";

const BRIDGE: &str = "interfaces:
- name: br1
  type: linux-bridge
  ipv4: {enabled: true}
  ipv6: {enabled: true, autoconf: true, dhcp: true}
  bridge: {options: {stp: {enabled: false}}, port: [{name: nic0}]}
- name: nic1
  type: ethernet
  ipv4: {enabled: true, dhcp: true, auto-gateway: false}
";

#[test]
fn networkmanager_understands_every_setting() {
    let Some(nmcli) = Nmcli::find() else { return };
    let mut read = 0;
    for (families, dhcp, network_type, mtu, file) in [
        (2, Dhcp::None, "OVNKubernetes", None, None),
        (2, Dhcp::None, "OVNKubernetes", Some(9000), None),
        (2, Dhcp::Platform, "OVNKubernetes", Some(1400), None),
        (1, Dhcp::None, "OpenShiftSDN", Some(9000), None),
        (1, Dhcp::User, "OpenShiftSDN", None, None),
        (1, Dhcp::Platform, "OVNKubernetes", Some(9000), Some(BOND)),
        (1, Dhcp::None, "OVNKubernetes", Some(9000), Some(VLAN)),
        (1, Dhcp::None, "OpenShiftSDN", None, Some(BRIDGE)),
        (2, Dhcp::Platform, "OVNKubernetes", Some(9000), Some(BOND)),
        (2, Dhcp::None, "OVNKubernetes", None, Some(BOND)),
        (2, Dhcp::None, "OVNKubernetes", Some(9000), Some(VLAN)),
    ] {
        let shape = Shape {
            masters: 1,
            workers: 1,
            one_vip: false,
            prefix: 24,
            use_br: file.is_none(),
            masters_schedulable: false,
        };
        let mut made = Made::new("lab", shape, [192, 168, 122, 10].into());
        if families == 2 {
            made = made.with_ipv6();
        }
        made.parameters.gateway = Some([192, 168, 122, 1].into());
        made.parameters.resolvers = vec![[192, 0, 2, 53].into(), [192, 0, 2, 54].into()];
        let config = &mut made.config;
        (config.dhcp, config.mtu) = (dhcp, mtu);
        config.networks.network_type = network_type.to_owned();
        config.dns_search = vec!["example.net".to_owned(), "example.org".to_owned()];
        config.extra_networks = vec!["storage".to_owned()];
        config.network_config = Vec::from_iter(file.map(|text| NetworkConfig {
            nodes: NodeSelector::All,
            path: "net.yaml".into(),
            text: text.to_owned(),
        }));
        let node = NodeName::node(Role::Worker, 0);
        let configured = connections(&made.config, Some(&made.parameters)).unwrap();
        let files = overlay::own_parts(&made.config, &made.parameters, &node, configured.get(&node)).files;
        let is_connection = |file: &&HostFile| file.path.ends_with(".nmconnection");
        let with_ipv6 = files.iter().filter(|file| file.content.contains("=fd00:1::"));
        assert_eq!(with_ipv6.count(), families - 1, "connections with an IPv6 address");
        for file in files.iter().filter(is_connection) {
            assert_eq!(nmcli.lost(&file.content), [""; 0], "{}\n{}", file.path, file.content);
            read += 1;
        }
    }
    assert_eq!(read, 27, "connections of all cases");
}

#[test]
fn a_setting_that_networkmanager_does_not_know_is_noticed() {
    let Some(nmcli) = Nmcli::find() else { return };
    let keyfile = "[connection]\nid=a\ntype=ethernet\n\n[ethernet]\nmac-address=no\n\n[ipv4]\nmethod=manual\n\
                   address1=10.0.0.1/24\ndns-serch=example.net;\n";
    assert_eq!(
        nmcli.lost(keyfile),
        ["ethernet.mac-address=no", "ipv4.dns-serch=example.net"]
    );
}
