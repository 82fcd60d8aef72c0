//! Two computers, as two state folders, and one real libvirt with one network.

#![cfg(feature = "libvirt")]

use std::collections::BTreeSet;

use ocpdeploy::state::parameters::Parameters;

use crate::two_passes::{Lab, awaited, succeeded};

/// Whether a command was rejected by a check before it changed anything.
#[track_caller]
fn is_refused(lab: &Lab, words: &[&str], why: &str) {
    let output = lab.start(words).wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert_eq!(output.status.code(), Some(4), "{words:?}: {said}");
    assert!(said.contains(why), "{words:?}: {said}");
    // Only with the id, which requires a confirmation.
    let unasked = said.contains("ocpdeploy destroy") && !said.contains("--from-backend --id");
    assert!(!unasked, "{words:?}: {said}");
}

#[test]
#[ignore = "needs the lab"]
fn clusters_of_the_same_or_another_name_on_one_network_keep_their_objects() {
    let [first, second] = [Lab::new(), Lab::new()];
    let (cluster, other) = (first.cluster("d", 1, 0), second.cluster("e", 1, 0));
    second.cluster("d", 1, 0);
    let env = second.env(&cluster);
    let again = ["deploy", env.to_str().unwrap(), "--rehearse"];
    let another = format!("another deployment of cluster {cluster}.example.com");

    // In parallel: the same name, which is rejected, and another name.
    let mut deployed = first.start_deploy(&cluster);
    awaited(&mut deployed, "a machine", || {
        (!first.domains(&cluster).is_empty()).then_some(())
    });
    is_refused(&second, &again, &another);
    let beside = second.start_deploy(&other);
    for run in [deployed, beside] {
        let table = succeeded(run);
        assert_eq!(table.matches(" yes ").count(), 2, "a guest is not as planned:\n{table}");
    }
    let tables = [(&first, &cluster), (&second, &other)].map(|(lab, name)| lab.parameters(name).unwrap());
    let leases: Vec<_> = tables.iter().flat_map(Parameters::leases).collect();
    let ips: BTreeSet<_> = leases.iter().map(|lease| lease.ip).collect();
    let vrids = tables
        .iter()
        .flat_map(|table| [table.virtual_router_id, table.ingress_virtual_router_id]);
    assert_eq!((ips.len(), vrids.collect::<BTreeSet<_>>().len()), (leases.len(), 4));

    // The cluster runs: no command on the second computer changes it.
    let before = first.inventory(&cluster);
    let ip = tables[0].nodes[1].ip.to_string();
    let static_addresses = [
        "harvest=static".to_owned(),
        format!("bootstrap_ip={ip}"),
        format!("master_ips={ip}"),
        format!("api_ip={}", tables[0].api_ip),
        format!("ingress_ip={}", tables[0].ingress_ip),
    ];
    let set = static_addresses.iter().flat_map(|setting| ["--set", setting]);
    for words in [
        again.to_vec(),
        ["check"].into_iter().chain(again[1..].iter().copied()).collect(),
        ["harvest"].into_iter().chain(again[1..].iter().copied()).collect(),
        again.into_iter().chain(["--set", "harvest=reserve"]).collect(),
    ] {
        is_refused(&second, &words, &another);
        assert_eq!(first.inventory(&cluster), before, "{words:?}");
    }
    let output = second.start(&again.into_iter().chain(set).collect::<Vec<_>>());
    assert!(!output.wait_with_output().unwrap().status.success());
    let unknown = second
        .start(&["destroy", &cluster, "--yes"])
        .wait_with_output()
        .unwrap();
    assert_eq!(unknown.status.code(), Some(2), "the second computer has no record");
    assert_eq!(first.inventory(&cluster), before);

    // The first computer is lost; the second takes the cluster over.
    std::fs::remove_dir_all(first.home().root()).unwrap();
    let adopted = succeeded(second.start(&["adopt", env.to_str().unwrap(), "--rehearse"]));
    assert!(adopted.contains("has a new record"), "{adopted}");
    assert_eq!(first.inventory(&cluster), before);
    succeeded(second.start(&["verify", &cluster]));
    let others = second.inventory(&other);
    second.destroy(&cluster);
    assert_eq!(first.inventory(&cluster), BTreeSet::new());
    assert_eq!(second.inventory(&other), others);
    second.destroy(&other);
    assert_eq!(second.inventory(&other), BTreeSet::new());
}
