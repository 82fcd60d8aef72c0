//! Many clusters on one network, each deployed by a process of its own, all at the same time.

use std::collections::BTreeSet;

use place::{Place, outcome};
use serde_json::json;

#[path = "support/place.rs"]
#[expect(dead_code, reason = "not everything is wanted here")]
mod place;

const CLUSTERS: usize = 20;

#[test]
fn twenty_at_once_share_nothing_and_go_as_they_came() {
    let place = Place::new(json!({"networks": {"default": {
        "cidr": "10.0.0.0/22", "gateway": "10.0.0.1", "dhcp_from": "10.0.1.0", "dhcp_to": "10.0.3.200",
    }}}));
    // Each name begins with another's.
    let names: Vec<String> = (1..=CLUSTERS).map(|index| format!("m{}", "1".repeat(index))).collect();
    let all = |run: &dyn Fn(&str) -> Vec<String>| {
        let runs: Vec<_> = names
            .iter()
            .map(|name| {
                let arguments = run(name);
                place.start(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
            })
            .collect();
        runs.into_iter().for_each(|run| _ = outcome(run).succeeded());
    };
    for name in &names {
        place.env(name, "masters=1\nworkers=1");
    }
    all(&|name| vec!["deploy".to_owned(), format!("{name}.sh"), "--rehearse".to_owned()]);

    let tables: Vec<_> = names.iter().map(|name| place.parameters(name).unwrap()).collect();
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
    assert_eq!(place.machines(None).len(), 2 * CLUSTERS);

    all(&|name| vec!["destroy".to_owned(), name.to_owned(), "--yes".to_owned()]);
    assert_eq!((place.machines(None), place.reservations(None)), (vec![], vec![]));
    assert_eq!(place.home().cluster_names().unwrap(), [""; 0]);
}
