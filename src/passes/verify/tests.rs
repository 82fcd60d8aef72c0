use super::*;
use crate::state::parameters::tests::example;

fn node(name: &str, is_ready: bool, ip: &str) -> ClusterNode {
    ClusterNode {
        name: format!("{name}.lab.example.com"),
        is_ready,
        addresses: BTreeSet::from([ip.to_owned()]),
    }
}

fn of_nodes(nodes: Vec<ClusterNode>) -> Vec<String> {
    let table = example();
    let cluster = &ClusterConfig::example().id();
    let look = Look {
        cluster,
        table: &table,
        bootstrap_is_gone: true,
        by_agents: false,
        machines: Vec::new(),
        held: None,
        nodes: Some(nodes),
    };
    let mut found = Vec::new();
    look.nodes(&mut found);
    found
        .iter()
        .map(|found| format!("{} {}", found.name, found.text))
        .collect()
}

#[test]
fn the_clusters_nodes_are_compared_by_name_address_and_state() {
    let whole = |but: &[ClusterNode]| {
        let mut nodes: Vec<_> = example()
            .nodes
            .iter()
            .filter(|node| node.role != Role::Bootstrap)
            .map(|planned| node(planned.name.as_str(), true, &planned.ip.to_string()))
            .filter(|node| but.iter().all(|other| other.name != node.name))
            .collect();
        nodes.extend(but.iter().cloned());
        nodes
    };
    assert_eq!(of_nodes(whole(&[])), [""; 0]);
    let unplanned = node("worker-9", true, "192.168.122.77");
    assert_eq!(
        of_nodes(whole(&[unplanned])),
        ["worker-9.lab.example.com is in the cluster, but not in the table"]
    );
    let sick = node("worker-0", false, "192.168.122.77");
    assert_eq!(
        of_nodes(whole(&[sick])),
        [
            "worker-0 is not Ready",
            "worker-0 reports 192.168.122.77, the table has 192.168.122.15"
        ]
    );
    let mut nodes = whole(&[]);
    nodes.retain(|node| !node.name.starts_with("master-2"));
    assert_eq!(of_nodes(nodes), ["master-2 is not in the cluster"]);
}

#[test]
fn one_reservation_suffices_for_two_vips_at_one_address() {
    let mut table = example();
    (table.ingress_ip, table.ingress_mac) = (table.api_ip, table.api_mac);
    let wanted: Vec<_> = wanted(&ClusterConfig::example().id(), &table)
        .iter()
        .map(|hold| hold.assignment.name.to_string())
        .collect();
    assert_eq!(
        wanted,
        ["api", "master-0", "master-1", "master-2", "worker-0", "worker-1"]
    );
}
