//! Many clusters on one network, each deployed by a process of its own, all at the same time.

use std::collections::BTreeSet;

use crate::support::sandbox::{Sandbox, outcome};
use serde_json::json;

const CLUSTERS: usize = 20;

#[test]
fn twenty_parallel_clusters_share_nothing() {
    let sandbox = Sandbox::new(json!({"networks": {"default": {
        "cidr": "10.0.0.0/22", "gateway": "10.0.0.1", "dhcp_from": "10.0.1.0", "dhcp_to": "10.0.3.200",
    }}}));
    // Each name starts with another cluster's name.
    let names: Vec<String> = (1..=CLUSTERS).map(|index| format!("m{}", "1".repeat(index))).collect();
    let all = |run: &dyn Fn(&str) -> Vec<String>| {
        let runs: Vec<_> = names
            .iter()
            .map(|name| {
                let arguments = run(name);
                sandbox.start(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
            })
            .collect();
        runs.into_iter().for_each(|run| _ = outcome(run).succeeded());
    };
    for name in &names {
        sandbox.env(name, "masters=1\nworkers=1");
    }
    all(&|name| vec!["deploy".to_owned(), format!("{name}.sh"), "--rehearse".to_owned()]);

    let tables: Vec<_> = names.iter().map(|name| sandbox.parameters(name).unwrap()).collect();
    let leases: Vec<_> = tables.iter().flat_map(|table| table.leases()).collect();
    let addresses: BTreeSet<_> = leases.iter().map(|lease| lease.ip).collect();
    let macs: BTreeSet<_> = leases.iter().map(|lease| lease.mac).collect();
    let routers = tables
        .iter()
        .flat_map(|table| [table.virtual_router_id, table.ingress_virtual_router_id]);
    let routers: BTreeSet<_> = routers.collect();
    assert_eq!(
        (addresses.len(), macs.len(), routers.len()),
        (5 * CLUSTERS, 5 * CLUSTERS, 2 * CLUSTERS)
    );
    assert_eq!(sandbox.machines(None).len(), 2 * CLUSTERS);

    all(&|name| vec!["destroy".to_owned(), name.to_owned(), "--yes".to_owned()]);
    assert_eq!((sandbox.machines(None), sandbox.reservations(None)), (vec![], vec![]));
    assert_eq!(sandbox.home().cluster_names().unwrap(), [""; 0]);
}

/// Files of processes that were killed while they wrote: a lock that names one of them, and partial files.
#[test]
fn torn_files_of_killed_runs_block_no_other_cluster_and_free_no_address() {
    let sandbox = Sandbox::new(json!({}));
    for name in ["lab", "other", "third"] {
        sandbox.env(name, "masters=1\nworkers=1");
    }
    sandbox.deploy("other").succeeded();
    let other = sandbox.home().cluster("other");
    let dead = json!({"host": "elsewhere", "pid": 1, "since": "2026-01-01T00:00:00Z"}).to_string();
    std::fs::write(other.lock(), &dead).unwrap();
    std::fs::write(sandbox.home().root().join("inventory.lock"), &dead).unwrap();
    let whole = std::fs::read(other.parameters()).unwrap();
    std::fs::write(other.path().join(".new-torn"), &whole[..whole.len() / 2]).unwrap();
    let mut journal = std::fs::read(other.journal()).unwrap();
    journal.extend(br#"{"v":1,"seq":99,"time":"2026-"#);
    std::fs::write(other.journal(), journal).unwrap();
    // Killed before its lock was complete.
    let third = sandbox.home().cluster("third");
    std::fs::create_dir_all(third.path()).unwrap();
    std::fs::write(third.lock(), &dead[..20]).unwrap();
    // The simulated platform's own file, too.
    let state = sandbox.path().join("sim.json");
    let mut text = std::fs::read_to_string(&state).unwrap();
    text.push_str(r#"{"machines":{"lab-mas"#);
    std::fs::write(&state, text).unwrap();

    for name in ["lab", "third", "other"] {
        sandbox.deploy(name).succeeded();
    }
    let tables: Vec<_> = ["lab", "third", "other"]
        .map(|name| sandbox.parameters(name).unwrap())
        .into();
    let addresses: BTreeSet<_> = tables
        .iter()
        .flat_map(|table| table.leases())
        .map(|lease| lease.ip)
        .collect();
    assert_eq!(addresses.len(), 15);
    for name in ["lab", "third", "other"] {
        sandbox.run(&["destroy", name, "--yes"]).succeeded();
    }
    assert_eq!((sandbox.machines(None), sandbox.reservations(None)), (vec![], vec![]));
}
