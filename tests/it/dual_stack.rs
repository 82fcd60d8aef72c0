//! Clusters with two address families, on the simulated platform.

use crate::support::sandbox::Sandbox;
use crate::two_passes::{files_of, is_deployed};
use serde_json::{Value, json};

const BOTH: &str = "machine_network=192.168.122.0/24,fd00:122::/64";

/// A platform whose network has both families, with or without an IPv6 gateway.
fn lab(gateway: Option<&str>) -> Sandbox {
    let network = json!({
        "cidr": "192.168.122.0/24", "gateway": "192.168.122.1",
        "dhcp_from": "192.168.122.2", "dhcp_to": "192.168.122.254",
        "ipv6": {"cidr": "fd00:122::/64", "gateway": gateway},
    });
    let sandbox = Sandbox::new(json!({"networks": {"default": network}}));
    sandbox.env("lab", BOTH);
    sandbox
}

#[test]
fn each_node_has_both_addresses_after_both_passes() {
    let sandbox = lab(Some("fd00:122::1"));
    let planned = sandbox.run(&["plan", "lab.sh", "--rehearse"]).succeeded().stdout;
    let line = "nodes: static IPv6 addresses in fd00:122::/64, ending in the IPv4 address\n";
    assert!(planned.contains(line), "{planned}");
    sandbox.deploy("lab").succeeded();
    is_deployed(&sandbox, "lab");
    let table = sandbox.parameters("lab").unwrap();
    let ipv6 = table.ipv6.clone().unwrap();
    assert_eq!(ipv6.api_ip, ipv6.beside(table.api_ip));
    assert_eq!(ipv6.gateway.to_string(), "fd00:122::1");
    let path = "/etc/NetworkManager/system-connections/ocpdeploy-nic.nmconnection";
    for node in &table.nodes {
        let files = files_of(&sandbox, node.name.as_str());
        let expected = format!("method=manual\naddress1={}/64,fd00:122::1\n", ipv6.beside(node.ip));
        assert!(files[path].ends_with(&expected), "{}: {}", node.name, files[path]);
    }
    // Both VIPs and all nodes, as a table and as JSON.
    let (planned, status) = (
        sandbox.run(&["plan", "lab.sh", "--rehearse"]).succeeded().stdout,
        sandbox.run(&["status", "lab"]).succeeded().stdout,
    );
    let json = |arguments: &[&str]| -> Value {
        let outcome = sandbox.run(&[arguments, &["--format", "json"]].concat()).succeeded();
        serde_json::from_str(&outcome.stdout).unwrap()
    };
    let plan = json(&["plan", "lab.sh", "--rehearse"]);
    assert_eq!(plan["vips"][0]["ipv6"], ipv6.api_ip.to_string());
    let cluster = json(&["status", "lab"])["clusters"][0].clone();
    assert_eq!(cluster["vips"][1]["ipv6"], ipv6.ingress_ip.to_string());
    for (name, ip) in table.ipv6_addresses() {
        assert!(planned.contains(&ip.to_string()), "{name} {ip}: {planned}");
        // The bootstrap is deleted, but still in the table.
        assert!(status.contains(&ip.to_string()), "{name} {ip}: {status}");
    }
    let state = sandbox.state();
    sandbox.deploy("lab").succeeded();
    assert_eq!(sandbox.state(), state, "a second run changes nothing");

    sandbox.run(&["scale", "lab", "--workers", "3"]).succeeded();
    let table = sandbox.parameters("lab").unwrap();
    let worker = table
        .nodes
        .iter()
        .find(|node| node.name.as_str() == "worker-2")
        .unwrap();
    let connection = &files_of(&sandbox, "worker-2")[path];
    assert!(connection.contains(&ipv6.beside(worker.ip).to_string()), "{connection}");
}

const BOND: &str = "interfaces:
- name: bond0
  type: bond
  link-aggregation: {mode: active-backup, port: [nic0, nic1]}
  ipv4: {enabled: true}
";

#[test]
fn the_users_own_connection_has_the_ipv6_address() {
    let sandbox = lab(Some("fd00:122::1"));
    std::fs::write(sandbox.path().join("bond.yaml"), BOND).unwrap();
    let lines = format!("{BOTH}\nmasters=1\nworkers=1\nextra_networks=default\nnetwork_config=bond.yaml");
    sandbox.env("lab", &lines);
    sandbox.deploy("lab").succeeded();
    let table = sandbox.parameters("lab").unwrap();
    let ipv6 = table.ipv6.as_ref().unwrap();
    for node in &table.nodes {
        let mut files = files_of(&sandbox, node.name.as_str());
        files.retain(|path, _| path.starts_with("/etc/NetworkManager/system-connections/"));
        let (address, route) = (ipv6.beside(node.ip), "\nroute0=::/0,fd00:122::1,");
        for (path, text) in &files {
            let is_bond = path.ends_with("/bond0.nmconnection");
            assert_eq!(
                text.contains(&format!("\naddress0={address}/64\n")),
                is_bond,
                "{path}: {text}"
            );
            assert_eq!(text.contains(route), is_bond, "{path}: {text}");
        }
        assert_eq!(files.len(), 3, "{files:?}");
    }
}

#[test]
fn another_default_route_in_the_users_file_is_rejected_with_its_position() {
    let sandbox = lab(Some("fd00:122::1"));
    let route = "routes:\n  config:\n  - {destination: ::/0, next-hop-address: fe80::7, next-hop-interface: bond0}\n";
    std::fs::write(sandbox.path().join("bond.yaml"), format!("{BOND}{route}")).unwrap();
    sandbox.env(
        "lab",
        &format!("{BOTH}\nextra_networks=default\nnetwork_config=bond.yaml"),
    );
    let state = sandbox.state();
    let refused = sandbox.deploy("lab");
    let words = "bond.yaml:8:43: the gateway of the machine network is fd00:122::1, but the default route has fe80::7";
    assert!(refused.message().contains(words), "{}", refused.stderr);
    assert_eq!(sandbox.state(), state, "nothing was created");
}

#[test]
fn a_cluster_keeps_its_address_families() {
    let sandbox = lab(Some("fd00:122::1"));
    sandbox.run(&["harvest", "lab.sh", "--rehearse"]).succeeded();
    for (lines, words) in [
        ("", "it has IPv6 network fd00:122::/64, but the settings have none"),
        (
            "machine_network=192.168.122.0/24,fd00:122::/64\ngateway=fe80::1",
            "its gateway is fd00:122::1, but the settings have fe80::1",
        ),
    ] {
        sandbox.env("lab", lines);
        let refused = sandbox.deploy("lab");
        assert!(refused.message().contains(words), "{}", refused.stderr);
    }
}

#[test]
fn missing_network_properties_are_reported_before_anything_is_created() {
    for (gateway, lines, words) in [
        (
            None,
            BOTH,
            "network default has no IPv6 gateway that the platform knows",
        ),
        (
            Some("fd00:122::1"),
            "machine_network=192.168.122.0/24,fd00:123::/64",
            "the IPv6 network of default is fd00:122::/64, but machine_network has fd00:123::/64",
        ),
        (
            Some("fd00:122::1"),
            "machine_network=192.168.122.0/24,fd00:122::/64\napi_ip=192.168.122.10,fd00:122::1",
            "api_ip has the IPv6 gateway of network default",
        ),
    ] {
        let sandbox = lab(gateway);
        sandbox.env("lab", lines);
        let state = sandbox.state();
        let refused = sandbox.deploy("lab");
        assert!(refused.message().contains(words), "{}", refused.stderr);
        assert_eq!(sandbox.state(), state);
    }
    // The platform need not know it.
    let sandbox = lab(None);
    sandbox.env("lab", &format!("{BOTH}\ngateway=fe80::1"));
    sandbox.deploy("lab").succeeded();
    let ipv6 = sandbox.parameters("lab").unwrap().ipv6.unwrap();
    assert_eq!(ipv6.gateway.to_string(), "fe80::1");
}

#[test]
fn an_ipv6_address_of_another_cluster_is_rejected() {
    let sandbox = lab(Some("fd00:122::1"));
    let env = |cluster: &str, api_ip: &str| {
        let lines =
            format!("{BOTH}\nmasters=1\nworkers=0\napi_ip={api_ip}\naddress_ranges=192.168.122.200-192.168.122.210");
        sandbox.env(cluster, &lines);
    };
    env("lab", "192.168.122.220,fd00:122::10");
    sandbox.deploy("lab").succeeded();
    env("prod", "192.168.122.221,fd00:122::10");
    let state = sandbox.state();
    let refused = sandbox.deploy("prod");
    let words = "api_ip fd00:122::10 is already used by api of cluster lab";
    assert!(refused.message().contains(words), "{}", refused.stderr);
    assert_eq!(sandbox.state(), state);
    env("prod", "192.168.122.221,fd00:122::11");
    sandbox.deploy("prod").succeeded();
}
