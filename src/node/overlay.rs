//! The overlay: the parts of a node's Ignition config that belong to this node only. Common parts of a role are in a
//! MachineConfig.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Map, Value, json};

use crate::cluster::{ClusterConfig, Dhcp, Ipv6Table, NodeName, Role};
use crate::ignition::contents::data_url;
use crate::ignition::{Major, Version};
use crate::node::host::{HostFile, HostParts, HostUnit};
use crate::state::parameters::{NodeAddress, Parameters};

/// NetworkManager requests an address on each NIC without a connection, unless this file forbids it
/// (NetworkManager/NetworkManager: man/NetworkManager.conf.xml, `no-auto-default`).
///
/// The initramfs requests no address: it starts the network only if Ignition needs it (coreos/fedora-coreos-config:
/// overlay.d/05core/usr/lib/dracut/modules.d/35coreos-network/coreos-enable-network.sh), and `settings` and `check`
/// reject configs that do. None of its connections remain (coreos-teardown-initramfs.sh).
const NO_AUTO_DEFAULT: (&str, &str) = (
    "/etc/NetworkManager/conf.d/90-ocpdeploy-no-dhcp.conf",
    "# A NIC without a connection stays without an address: there is no DHCP server.\n[main]\nno-auto-default=*\n",
);

/// The node's own files: its name, a hint which address is a VIP, and its connections, possibly from `network_config`.
pub fn own_parts(
    config: &ClusterConfig,
    parameters: &Parameters,
    node: &NodeName,
    configured: Option<&Vec<HostFile>>,
) -> HostParts {
    // Otherwise kubelet and etcd would bind a VIP that is on the node. The address in the hint counts as a VIP: another
    // address of its subnet is chosen. The first file is read from 4.8, the second from 4.12.
    // Behind its own NAT, a node's gateway is the next lower address.
    let near = match (&parameters.peer_domain, parameters.node(node).map(|node| node.ip)) {
        (Some(_), Some(IpAddr::V4(ip))) => Ipv4Addr::from_bits(ip.to_bits().saturating_sub(1)).into(),
        _ => parameters.api_ip,
    };
    let hint = format!("KUBELET_NODEIP_HINT={near}\nNODEIP_HINT={near}\n");
    let mut files = vec![
        HostFile::new(
            "/etc/hostname",
            0o644,
            config.cluster_domain().fqdn(node.as_str()) + "\n",
        ),
        HostFile::new("/etc/default/nodeip-configuration", 0o644, hint),
    ];
    if config.dhcp == Dhcp::None {
        let (path, text) = NO_AUTO_DEFAULT;
        files.push(HostFile::new(path, 0o644, text));
    }
    match (configured, parameters.node(node)) {
        (Some(configured), _) => files.extend(configured.iter().cloned()),
        (None, Some(planned)) => files.extend(connections(config, parameters, planned)),
        (None, None) => {}
    }
    HostParts { files, units: vec![] }
}

/// The node's connections; none if CoreOS's own for a network with a DHCP server are sufficient.
///
/// A bridge has the MAC of its NIC, so that it gets the same address. The bridge of OVN-Kubernetes takes over a static
/// address and the MTU (openshift/machine-config-operator: templates/common/_base/files/configure-ovs-network.yaml,
/// which clones a connection whose method is manual, and reads the MTU of the NIC).
///
/// NetworkManager, `nm-settings-keyfile(5)`. It reads such files only if other users cannot.
fn connections(config: &ClusterConfig, parameters: &Parameters, node: &NodeAddress) -> Vec<HostFile> {
    let file = |name: &str, text: String| {
        let path = format!("/etc/NetworkManager/system-connections/{name}.nmconnection");
        HostFile::new(path, 0o600, text)
    };
    let mac = node.mac;
    let ipv4 = match config.dhcp {
        _ if node.ip.is_ipv6() => "[ipv4]\nmethod=disabled\n".to_owned(),
        Dhcp::None => format!("[ipv4]\n{}", static_address(config, parameters, node)),
        Dhcp::Platform | Dhcp::User => "[ipv4]\nmethod=auto\ndhcp-client-id=mac\n".to_owned(),
    };
    let ipv6 = match &parameters.ipv6 {
        _ if node.ip.is_ipv6() => format!("[ipv6]\n{}", static_address(config, parameters, node)),
        Some(ipv6) => static_ipv6(ipv6, node),
        None => "[ipv6]\nmethod=auto\n".to_owned(),
    };
    let addresses = format!("{ipv4}\n{ipv6}");
    let mtu = config.mtu.map(|mtu| format!("mtu={mtu}\n")).unwrap_or_default();
    match config.bridge().filter(|_| node.role != Role::Bootstrap) {
        Some(bridge) => {
            let of_bridge = match mtu.as_str() {
                "" => String::new(),
                mtu => format!("[ethernet]\n{mtu}\n"),
            };
            let over = format!(
                "[connection]\nid=ocpdeploy-bridge\ntype=bridge\ninterface-name={bridge}\nautoconnect-priority=10\n\n\
                 [bridge]\nstp=false\nmac-address={mac}\n\n{of_bridge}{addresses}"
            );
            let under = format!(
                "[connection]\nid=ocpdeploy-bridge-nic\ntype=ethernet\nmaster={bridge}\nslave-type=bridge\n\
                 autoconnect-priority=10\n\n[ethernet]\nmac-address={mac}\n{mtu}"
            );
            vec![file("ocpdeploy-bridge", over), file("ocpdeploy-bridge-nic", under)]
        }
        None if config.dhcp == Dhcp::None || config.mtu.is_some() || parameters.ipv6.is_some() => {
            let nic = format!(
                "[connection]\nid=ocpdeploy-nic\ntype=ethernet\nautoconnect-priority=10\n\n\
                 [ethernet]\nmac-address={mac}\n{mtu}\n{addresses}"
            );
            vec![file("ocpdeploy-nic", nic)]
        }
        None => Vec::new(),
    }
}

/// The node's address in the table, and its network's gateway, name servers and search domains.
fn static_address(config: &ClusterConfig, parameters: &Parameters, node: &NodeAddress) -> String {
    let gateway = parameters.gateway.map(|ip| format!(",{ip}")).unwrap_or_default();
    let servers: String = parameters.resolvers.iter().map(|ip| format!("{ip};")).collect();
    let search = match config.dns_search.as_slice() {
        [] => String::new(),
        domains => format!("dns-search={};\n", domains.join(";")),
    };
    format!(
        "method=manual\naddress1={}/{}{gateway}\ndns={servers}\n{search}may-fail=false\n",
        node.ip,
        parameters.machine_network.prefix()
    )
}

/// The node's second address and its network's gateway. Router advertisements are ignored, so that the node has no
/// other address; the bridge of OVN-Kubernetes takes the connection over as a whole, because it has a static address.
fn static_ipv6(ipv6: &Ipv6Table, node: &NodeAddress) -> String {
    format!(
        "[ipv6]\nmethod=manual\naddress1={}/{},{}\n",
        ipv6.beside(node.ip),
        ipv6.machine_network.prefix(),
        ipv6.gateway
    )
}

/// Our part of a node's config: files, units, and the SSH keys of `core`.
pub fn overlay(config: &ClusterConfig, parts: &HostParts, version: Version) -> Value {
    let mut overlay = document(parts, version);
    let keys = ssh_keys(config);
    if !keys.is_empty() {
        overlay["passwd"] = json!({"users": [{"name": "core", "sshAuthorizedKeys": keys}]});
    }
    overlay
}

/// Files and units as an Ignition config.
///
/// It has the given version, but uses only fields of 3.0, or of 2.2.
pub fn document(parts: &HostParts, version: Version) -> Value {
    let mut document = json!({"ignition": {"version": version.to_string()}});
    if !parts.files.is_empty() {
        let files: Vec<_> = parts.files.iter().map(|file| file_entry(file, version.major)).collect();
        document["storage"] = json!({"files": files});
    }
    if !parts.units.is_empty() {
        let units: Vec<_> = parts.units.iter().map(unit_entry).collect();
        document["systemd"] = json!({"units": units});
    }
    document
}

/// The authorized keys without duplicates, which Ignition rejects.
pub fn ssh_keys(config: &ClusterConfig) -> Vec<&str> {
    let mut keys = Vec::new();
    for key in config.ssh_keys.iter().map(|key| key.trim()) {
        if !key.is_empty() && !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

fn file_entry(file: &HostFile, major: Major) -> Value {
    let mut entry = json!({
        "path": file.path,
        "overwrite": true,
        "user": {"name": "root"},
        // Explicit: otherwise the compression of a lower entry for this path would apply to this plain text.
        "contents": {"compression": "", "source": data_url(file.content.as_bytes())},
        "mode": file.mode,
    });
    if major == Major::Two {
        entry["filesystem"] = json!("root");
    }
    entry
}

fn unit_entry(unit: &HostUnit) -> Value {
    let mut entry = Map::new();
    entry.insert("name".to_owned(), json!(unit.name));
    if let Some(enabled) = unit.enabled {
        entry.insert("enabled".to_owned(), json!(enabled));
    }
    if let Some(contents) = &unit.contents {
        entry.insert("contents".to_owned(), json!(contents));
    }
    if !unit.dropins.is_empty() {
        let dropin = |(name, contents): &(String, String)| json!({"name": name, "contents": contents});
        entry.insert("dropins".to_owned(), unit.dropins.iter().map(dropin).collect());
    }
    Value::Object(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(version: Version, keys: &[&str]) -> Value {
        let mut config = ClusterConfig::example();
        config.ssh_keys = keys.iter().map(|key| (*key).to_owned()).collect();
        let node = NodeName::node(Role::Master, 0);
        let parts = own_parts(&config, &crate::state::parameters::tests::example(), &node, None);
        overlay(&config, &parts, version)
    }

    const V3: Version = Version {
        major: Major::Three,
        minor: 2,
        patch: 0,
    };
    const V2: Version = Version {
        major: Major::Two,
        minor: 2,
        patch: 0,
    };

    #[test]
    fn the_overlay_of_a_master() {
        let expected = json!({
            "ignition": {"version": "3.2.0"},
            "storage": {"files": [
                {
                    "path": "/etc/hostname", "overwrite": true, "user": {"name": "root"},
                    "contents": {"compression": "", "source": data_url(b"master-0.lab.example.com\n")},
                    "mode": 420,
                },
                {
                    "path": "/etc/default/nodeip-configuration", "overwrite": true, "user": {"name": "root"},
                    "contents": {"compression": "", "source":
                        data_url(b"KUBELET_NODEIP_HINT=192.168.122.10\nNODEIP_HINT=192.168.122.10\n")},
                    "mode": 420,
                },
            ]},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a", "ssh-rsa BBBB b"]}]},
        });
        let keys = ["ssh-ed25519 AAAA a", " ssh-ed25519 AAAA a\n", "ssh-rsa BBBB b", ""];
        // Compared as text: the order matters, because the same input must give the same bytes.
        assert_eq!(at(V3, &keys).to_string(), expected.to_string());
    }

    #[test]
    fn a_bridge_has_its_nics_mac_and_exists_only_if_the_network_plugin_creates_none() {
        let parameters = crate::state::parameters::tests::example();
        let connections = |network_type: &str, use_br, node: NodeName| {
            let mut config = ClusterConfig::example();
            config.networks.network_type = network_type.to_owned();
            config.use_br = use_br;
            let files = own_parts(&config, &parameters, &node, None).files;
            let mut files = files.into_iter();
            files.by_ref().take(2).for_each(drop);
            files.collect::<Vec<_>>()
        };
        let worker = NodeName::node(Role::Worker, 1);
        let files = connections("OpenShiftSDN", true, worker.clone());
        let mac = parameters.node(&worker).unwrap().mac.to_string();
        assert_eq!(files.len(), 2);
        for file in &files {
            assert_eq!(file.mode, 0o600, "NetworkManager ignores files that others can read");
            assert!(
                file.content.contains(&format!("mac-address={mac}\n")),
                "{}",
                file.content
            );
            assert!(file.content.contains("br-node"), "{}", file.content);
        }
        assert_eq!(connections("OpenShiftSDN", false, worker.clone()), []);
        assert_eq!(connections("OVNKubernetes", true, worker), []);
        assert_eq!(connections("OpenShiftSDN", true, NodeName::bootstrap()), []);
    }

    #[test]
    fn without_dhcp_the_nic_or_the_bridge_over_it_has_the_tables_address() {
        let mut parameters = crate::state::parameters::tests::example();
        parameters.gateway = Some(IpAddr::from([192, 168, 122, 1]));
        parameters.resolvers = vec![IpAddr::from([192, 0, 2, 53]), IpAddr::from([192, 0, 2, 54])];
        let worker = parameters.node(&NodeName::node(Role::Worker, 1)).unwrap().clone();
        let static_ipv4 = format!(
            "[ipv4]\nmethod=manual\naddress1={}/24,192.168.122.1\ndns=192.0.2.53;192.0.2.54;\nmay-fail=false\n",
            worker.ip
        );
        for (network_type, use_br, name, files) in [
            ("OVNKubernetes", false, &worker.name, &["ocpdeploy-nic"][..]),
            (
                "OpenShiftSDN",
                true,
                &worker.name,
                &["ocpdeploy-bridge", "ocpdeploy-bridge-nic"],
            ),
            ("OpenShiftSDN", true, &NodeName::bootstrap(), &["ocpdeploy-nic"]),
        ] {
            let mut config = ClusterConfig::example();
            config.dhcp = Dhcp::None;
            config.networks.network_type = network_type.to_owned();
            config.use_br = use_br;
            let node = parameters.node(name).unwrap();
            let found = connections(&config, &parameters, node);
            let names: Vec<_> = found.iter().map(|file| file.path.rsplit('/').next().unwrap()).collect();
            assert_eq!(
                names,
                files
                    .iter()
                    .map(|name| format!("{name}.nmconnection"))
                    .collect::<Vec<_>>()
            );
            assert_eq!(
                found[0].mode, 0o600,
                "NetworkManager ignores files that others can read"
            );
            assert!(
                found[0].content.contains(&format!("mac-address={}\n", node.mac)),
                "{}",
                found[0].content
            );
            assert!(!found[0].content.contains("method=auto\ndhcp"), "{}", found[0].content);
            if node == &worker {
                assert!(found[0].content.contains(&static_ipv4), "{}", found[0].content);
            }
        }
    }

    #[test]
    fn without_dhcp_a_nic_without_a_connection_requests_no_address() {
        let parameters = crate::state::parameters::tests::example();
        let of_user = vec![HostFile::new("/etc/NetworkManager/system-connections/a", 0o600, "")];
        for (dhcp, expected) in [(Dhcp::Platform, false), (Dhcp::User, false), (Dhcp::None, true)] {
            let mut config = ClusterConfig::example();
            config.dhcp = dhcp;
            for node in [NodeName::bootstrap(), NodeName::node(Role::Worker, 0)] {
                for configured in [None, Some(&of_user)] {
                    let files = own_parts(&config, &parameters, &node, configured).files;
                    let found = files.iter().find(|file| file.path == NO_AUTO_DEFAULT.0);
                    let text = found.map(|file| (file.mode, file.content.as_str()));
                    let is_there = text
                        .is_some_and(|(mode, text)| mode == 0o644 && text.ends_with("\n[main]\nno-auto-default=*\n"));
                    assert_eq!(is_there, expected, "{dhcp:?} {node} {text:?}");
                }
            }
        }
    }

    #[test]
    fn mtu_and_search_domains_are_in_the_connection() {
        let parameters = crate::state::parameters::tests::example();
        let node = parameters.node(&NodeName::node(Role::Worker, 1)).unwrap();
        for (network_type, dhcp, expected) in [
            ("OVNKubernetes", Dhcp::Platform, "nic-by-dhcp"),
            ("OVNKubernetes", Dhcp::None, "nic-static"),
            ("OpenShiftSDN", Dhcp::None, "bridge-static"),
        ] {
            let mut config = ClusterConfig::example();
            config.networks.network_type = network_type.to_owned();
            (config.dhcp, config.use_br) = (dhcp, true);
            config.mtu = Some(9000);
            config.dns_search = vec!["example.net".to_owned(), "example.org".to_owned()];
            let files = connections(&config, &parameters, node);
            let text: String = files
                .iter()
                .map(|file| format!("# {}\n{}\n", file.path, file.content))
                .collect();
            insta::assert_snapshot!(expected, text);
        }
    }

    #[test]
    fn with_two_address_families_the_nic_has_both_addresses() {
        let mut parameters = crate::state::parameters::tests::example();
        parameters.ipv6 = Some(Ipv6Table {
            machine_network: "fd00:1::/64".parse().unwrap(),
            gateway: "fe80::1".parse().unwrap(),
            api_ip: "fd00:1::10".parse().unwrap(),
            ingress_ip: "fd00:1::9".parse().unwrap(),
        });
        parameters.gateway = Some(IpAddr::from([192, 168, 122, 1]));
        parameters.resolvers = vec![IpAddr::from([192, 0, 2, 53])];
        let node = parameters.node(&NodeName::bootstrap()).unwrap();
        let ipv6 = "\n[ipv6]\nmethod=manual\naddress1=fd00:1::c0a8:7a0b/64,fe80::1\n";
        for (dhcp, ipv4) in [
            (Dhcp::Platform, "[ipv4]\nmethod=auto\ndhcp-client-id=mac\n"),
            (
                Dhcp::None,
                "[ipv4]\nmethod=manual\naddress1=192.168.122.11/24,192.168.122.1\ndns=192.0.2.53;\nmay-fail=false\n",
            ),
        ] {
            let config = ClusterConfig {
                dhcp,
                ..ClusterConfig::example()
            };
            let files = connections(&config, &parameters, node);
            let [file] = &files[..] else { panic!("{files:#?}") };
            let addresses = file
                .content
                .split_once("[ipv4]")
                .map(|(_, rest)| format!("[ipv4]{rest}"));
            assert_eq!(addresses, Some(format!("{ipv4}{ipv6}")));
        }
    }

    #[test]
    fn spec_2_names_the_file_system() {
        let (two, three) = (at(V2, &[]), at(V3, &[]));
        assert_eq!(two["ignition"]["version"], "2.2.0");
        assert_eq!(two.get("passwd"), None);
        let files = two["storage"]["files"].as_array().unwrap();
        assert!(files.iter().all(|file| file["filesystem"] == "root"), "{files:#?}");
        let files = three["storage"]["files"].as_array().unwrap();
        assert!(files.iter().all(|file| file.get("filesystem").is_none()), "{files:#?}");
    }

    #[test]
    fn data_urls_are_padded() {
        for (bytes, url) in [
            ("", ""),
            ("a", "YQ=="),
            ("ab", "YWI="),
            ("abc", "YWJj"),
            ("\u{fe}?", "w74/"),
        ] {
            assert_eq!(
                data_url(bytes.as_bytes()),
                format!("data:text/plain;charset=utf-8;base64,{url}")
            );
        }
    }
}
