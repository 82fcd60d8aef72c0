//! Clusters of real nodes on a real libvirt: Ignition, systemd, NetworkManager, containerd, kubelet, etcd and the
//! Kubernetes control plane. `tests/lab/nodes/README.md` says what of the release is played.

#![cfg(feature = "libvirt")]

mod checks;
mod cluster;
mod faults;
mod life;
mod native;
mod pulls;
mod rollout;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use cluster::Nodes;
use pulls::Pulls;

use super::static_addresses::{VLAN_OF_A_BOND, Vlan, WithoutDhcp};

#[test]
#[ignore = "needs the lab"]
fn a_cluster_of_real_nodes_lives_from_both_passes_to_its_end() {
    let nodes = Nodes::new(1, 1, "").with_native_control_plane();
    nodes.deploy();
    nodes.check_all();
    nodes.check_certificates();
    assert_eq!(nodes.lab.domains(&nodes.name).len(), 2, "the bootstrap remains");
    nodes.move_to_bridge(&nodes.node("worker-0"));
    nodes.run(&["verify", &nodes.name]);
    nodes.destroy();
}

#[test]
#[ignore = "needs the lab"]
fn real_nodes_join_leave_reboot_and_stop() {
    let nodes = Nodes::new(1, 1, "").with_native_control_plane();
    nodes.fail_to_install();
    nodes.deploy();
    nodes.check_all();
    nodes.check_the_checks(&nodes.node("worker-0"));

    nodes.request_certificates(&nodes.node("worker-0"));
    let scaled = nodes.run(&["scale", &nodes.name, "--workers", "3"]);
    assert!(scaled.contains("one by one, without reboots"), "{scaled}");
    nodes.roll_out();
    nodes.check_requested_certificates();
    nodes.check_all();
    nodes.check_certificates();
    nodes.with_busy_pods();
    nodes.run(&["node", "replace", &nodes.name, "worker-0", "--yes"]);
    nodes.roll_out();
    until("both pods are available", LONG, || nodes.available() == 2);
    // A kubelet that does not answer; the budget blocks evictions until the other pod is available again.
    nodes.lab.virsh(&["suspend", &nodes.domain(&nodes.node("worker-1"))]);
    nodes.run(&["scale", &nodes.name, "--workers", "1", "--yes"]);
    nodes.roll_out();
    until("both pods are on the last worker", LONG, || nodes.available() == 2);
    assert_eq!(nodes.lab.domains(&nodes.name).len(), 2);

    let worker = nodes.node("worker-0");
    nodes.check_the_order_of_units(&worker);
    nodes.move_to_bridge(&worker);
    nodes.reboot_and_check(&worker);
    nodes.run(&["stop", &nodes.name]);
    let running = nodes.lab.virsh(&["list", "--name"]);
    assert!(!running.contains(&nodes.name), "{running}");
    nodes.start_and_destroy();
}

#[test]
#[ignore = "needs the lab"]
fn three_masters_and_two_workers_join() {
    let nodes = Nodes::new(3, 2, "").with_native_control_plane();
    nodes.deploy();
    nodes.check_all();
    nodes.check_balancing();
    nodes.destroy();
}

/// Masters are lost and replaced.
#[test]
#[ignore = "needs the lab"]
fn three_masters_survive_losses() {
    let nodes = Nodes::new(3, 0, "").with_native_control_plane();
    nodes.deploy();
    nodes.check_all();
    nodes.check_balancing();
    nodes.check_the_checks_of_keepalived();

    nodes.lose_an_api_server();
    let lost = nodes.lose_the_holder();
    nodes.remove_etcd_member(&lost);
    nodes.run(&["node", "replace", &nodes.name, lost.name.as_str(), "--yes"]);
    nodes.check_balancing();

    nodes.run(&["stop", &nodes.name]);
    nodes.start_and_destroy();
}

#[test]
#[ignore = "needs the lab"]
fn kubelets_whose_certificates_expired_while_off_are_approved() {
    let nodes = Nodes::new(1, 1, "").with_native_control_plane();
    nodes.deploy();
    nodes.stop_until_certificates_end();
    nodes.start_and_destroy();
}

/// A deployment is killed at random moments, with each carrier of pointer configs; the same command succeeds.
#[test]
#[ignore = "needs the lab"]
fn killed_deployments_of_real_nodes_are_completed() {
    for carrier in ["tls", "embed", "http"] {
        let nodes = Nodes::new(1, 1, &format!("mcs={carrier}\n")).with_native_control_plane();
        for limit in [60, 200, 400] {
            nodes.kill_a_deployment(limit);
        }
        nodes.deploy();
        nodes.check_all();
        nodes.destroy();
    }
}

/// Ignition reads its config without a network, and NetworkManager gives the node the address in it, also after a reboot.
#[test]
#[ignore = "needs the lab"]
fn nodes_on_a_network_without_dhcp_join_and_reboot() {
    // The second NIC has no connection, and requests no address either.
    let settings = "network=ocpd-nodes\nextra_networks=ocpd-nodes\ndhcp=none\nmachine_network=192.168.141.0/24\ngateway=192.168.141.1\n\
                    name_servers=192.168.141.1\napi_ip=192.168.141.10\ningress_ip=192.168.141.11\n\
                    bootstrap_ip=192.168.141.20\nmaster_ips=192.168.141.21\nworker_ips=192.168.141.31\n";
    let nodes = Nodes::new(1, 1, settings).with_native_control_plane();
    let mut network = WithoutDhcp::new(&nodes.lab, "ocpd-nodes", 141);
    nodes.deploy();
    nodes.check_all();
    nodes.check_certificates();
    nodes.reboot_and_check(&nodes.node("worker-0"));
    nodes.check_all();
    network.assert_silent();
    nodes.destroy();
}

/// No node has an IPv4 address outside of its pods.
#[test]
#[ignore = "needs the lab"]
fn nodes_without_ipv4_join_and_reboot() {
    let settings = "network=ocpd-nodes6\ndhcp=none\nmachine_network=fd00:146::/64\n\
                    address_ranges=fd00:146::10-fd00:146::29\n";
    let nodes = Nodes::new(1, 1, settings).with_native_control_plane_at("[fd00:146::1]:7443");
    let ip = "<ip family='ipv6' address='fd00:146::1' prefix='64'/>";
    let mut network = WithoutDhcp::of(&nodes.lab, "ocpd-nodes6", ip);
    nodes.deploy();
    nodes.check_all();
    nodes.check_certificates();
    for node in nodes.nodes() {
        let ipv4 = nodes.on(&node, "ip -4 -o addr show scope global | awk '$2 != \"cni0\"'");
        assert_eq!(ipv4, "", "{}", node.name);
    }
    nodes.reboot_and_check(&nodes.node("worker-0"));
    network.assert_silent();
    nodes.destroy();
}

/// Two NICs in a bond, the nodes' address on a VLAN of it, and nothing on the network without that VLAN.
#[test]
#[ignore = "needs the lab"]
fn nodes_on_a_vlan_of_a_bond_join_and_reboot() {
    let settings = "network=ocpd-vlan\nextra_networks=ocpd-vlan\nnetwork_config=bond.yaml\ndhcp=none\n\
                    machine_network=192.168.142.0/24\ngateway=192.168.142.1\nname_servers=192.168.142.1\n\
                    address_ranges=192.168.142.10-192.168.142.29\n";
    let nodes = Nodes::new(1, 1, settings).with_native_control_plane();
    std::fs::write(nodes.path("bond.yaml"), VLAN_OF_A_BOND).unwrap();
    let mut network = Vlan::new(&nodes.lab, "ocpd-vlan", 100, "192.168.142.1/24");
    nodes.deploy();
    nodes.check_all();
    for round in ["installed", "rebooted"] {
        let worker = nodes.node("worker-0");
        let bond = nodes.on(&worker, "cat /proc/net/bonding/bond0; ip -4 -o addr show bond0.100");
        assert_eq!(bond.matches("Slave Interface:").count(), 2, "{round}: {bond}");
        assert!(bond.contains(&format!(" {}/24 ", worker.ip)), "{round}: {bond}");
        if round == "installed" {
            // The other NIC carries the node's address with the same MAC.
            nodes
                .lab
                .virsh(&["domif-setlink", &nodes.domain(&worker), &worker.mac.to_string(), "down"]);
            until("the node answers by its second NIC", LONG, || {
                nodes
                    .try_on(&worker, "grep -q 'MII Status: down' /proc/net/bonding/bond0")
                    .status
                    .success()
            });
            nodes
                .lab
                .virsh(&["domif-setlink", &nodes.domain(&worker), &worker.mac.to_string(), "up"]);
            nodes.reboot(&worker);
        }
    }
    nodes.check_all();
    network.assert_silent();
    nodes.destroy();
}

/// The control plane is in the guests, too: the bootstrap's etcd gets members, the masters' API takes over.
#[test]
#[ignore = "needs the lab"]
fn the_masters_take_over_from_the_bootstrap() {
    let nodes = Nodes::new(1, 1, "bootstrap_numcpus=2\nnumcpus=2\n");
    nodes.deploy();
    nodes.check_all();
    nodes.check_certificates();
    nodes.destroy();
}

/// etcd is in the guests, so the API has the objects that were deleted after the snapshot, and a broken node is back.
#[test]
#[ignore = "needs the lab"]
fn a_snapshot_restores_objects_and_a_disk() {
    let nodes = Nodes::new(1, 1, "bootstrap_numcpus=2\nnumcpus=2\n");
    nodes.deploy();
    nodes.check_all();
    nodes.save_break_and_restore();
    nodes.destroy();
}

/// A cluster, and its repeat on the same addresses, which pulls without the upstream registry what the first one pulled.
#[test]
#[ignore = "needs the lab"]
fn a_repeat_skips_pass_one_and_pulls_through_the_registry_cache() {
    let mut nodes = Nodes::new(1, 0, "ca=upstream.pem\n").with_native_control_plane();
    let mut pulls = Pulls::new(&mut nodes);
    nodes.deploy();
    pulls.fill(&nodes);

    pulls.upstream.cut_off();
    nodes.deploy_again();
    pulls.pull_without_upstream(&nodes);
    pulls.upstream.restore();
    pulls.kill_the_cache_in_the_middle(&nodes);
    nodes.run(&["cache", "down", "--delete"]);
    nodes.destroy();
}

/// A boot, and what follows it, of an emulated guest on a busy computer.
const LONG: Duration = Duration::from_secs(900);

fn answers(url: &str) -> bool {
    answers_within(url, 5)
}

fn answers_within(url: &str, seconds: u32) -> bool {
    let curl = Command::new("curl")
        .args(["-kfs", "-o", "/dev/null", "--max-time", &seconds.to_string(), url])
        .status();
    curl.unwrap().success()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[track_caller]
fn until(what: &str, limit: Duration, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < limit, "{what}: not within {} s", limit.as_secs());
        std::thread::sleep(Duration::from_millis(500));
    }
    eprintln!("{what}: after {:.1} s", begun.elapsed().as_secs_f64());
}
