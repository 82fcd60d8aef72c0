//! The MachineConfigs of clusters of many shapes, checked by `ignition-validate`, and what changes with their size.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use crate::support::shape::{Made, Shape};
use ocpdeploy::cluster::{Dns, Mcs, NodeSpec, Role};
use ocpdeploy::ignition::{Major, Version};
use ocpdeploy::node::config::{Fragment, NodeConfigs};
use ocpdeploy::node::overlay::document;
use ocpdeploy::node::services;
use serde_json::{Value, json};

/// 1, 3 and 5 masters with 0, 1, 2 and 50 workers, and each DNS setting; the other values alternate.
fn shapes() -> impl Iterator<Item = (Shape, Dns)> {
    let sizes = [1, 3, 5]
        .into_iter()
        .flat_map(|masters| [0, 1, 2, 50].map(|workers| (masters, workers)));
    let with_dns = sizes.flat_map(|size| [Dns::Dnsmasq, Dns::Coredns, Dns::User].map(|dns| (size, dns)));
    with_dns.enumerate().map(|(turn, ((masters, workers), dns))| {
        let shape = Shape {
            masters,
            workers,
            one_vip: turn % 2 == 1,
            prefix: if workers == 50 { 23 } else { [24, 23, 26][turn % 3] },
            use_br: turn % 4 > 1,
            masters_schedulable: turn % 5 == 4,
        };
        (shape, dns)
    })
}

fn refused(config: &Value) -> Option<String> {
    let mut validator = Command::new("ignition-validate")
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this test needs ignition-validate: apt-get install ignition");
    validator
        .stdin
        .take()
        .unwrap()
        .write_all(config.to_string().as_bytes())
        .unwrap();
    let output = validator.wait_with_output().unwrap();
    let words = [output.stdout, output.stderr].concat();
    // It prints nothing for a valid config; warnings count as failures here.
    (!output.status.success() || !words.is_empty()).then(|| String::from_utf8_lossy(&words).into_owned())
}

#[test]
fn every_config_of_every_shape_is_valid_ignition() {
    let mut judged = 0;
    for (shape, dns) in shapes() {
        let mut made = Made::new("lab", shape, Ipv4Addr::new(192, 168, 122, 10));
        made.config.dns = dns;
        let input = made.input();
        let mut configs = Vec::new();
        for manifest in services::manifests(&input).unwrap() {
            let value: Value = serde_saphyr::from_str(&manifest.content).unwrap();
            if value["kind"] == "MachineConfig" {
                assert!(
                    value["metadata"]["name"].as_str().unwrap().starts_with("99-"),
                    "{value}"
                );
                configs.push((manifest.path, value["spec"]["config"].clone()));
            }
        }
        // A role without files gets no MachineConfig; with our DNS every role has files.
        assert!(
            configs.len() == 2 || dns == Dns::User,
            "{shape}, {dns:?}: {}",
            configs.len()
        );
        let parts = services::parts(&input, Role::Bootstrap).unwrap();
        let version = Version {
            major: Major::Three,
            minor: 2,
            patch: 0,
        };
        configs.push(("bootstrap".to_owned(), document(&parts, version)));
        for (name, config) in configs {
            if let Some(why) = refused(&config) {
                panic!("{shape}, {dns:?}: {name}: {why}");
            }
            judged += 1;
        }
    }
    assert!(judged >= 12 * (3 + 3 + 1), "{judged}");
}

#[test]
fn node_configs_of_every_mode_are_valid_ignition() {
    const SPEC: &str = "3.2.0";
    let version = Version::newest_of_release((4, 7));
    assert_eq!(version.to_string(), SPEC);
    let mut judged = 0;
    for mcs in [Mcs::Tls, Mcs::Http, Mcs::Embed] {
        for (masters, workers) in [(1, 0), (2, 1), (3, 2)] {
            let shape = Shape {
                masters,
                workers,
                one_vip: false,
                prefix: 24,
                use_br: false,
                masters_schedulable: false,
            };
            let mut made = Made::new("lab", shape, Ipv4Addr::new(192, 168, 122, 10));
            made.config.mcs = mcs;
            let bootstrap = services::parts(&made.input(), Role::Bootstrap).unwrap();
            let mut files = BTreeMap::new();
            for role in made.config.node_roles() {
                let url = format!("https://api-int.lab.example.com:22623/config/{role}");
                let pointer = json!({"ignition": {"version": SPEC, "config": {"merge": [{"source": url}]}}});
                files.insert(role, pointer.to_string().into_bytes());
            }
            let empty = json!({"ignition": {"version": SPEC}});
            files.insert(Role::Bootstrap, empty.to_string().into_bytes());
            let unit = json!({"name": "a.service", "dropins": [{"name": "10.conf", "contents": "[Service]\n"}]});
            let file = json!({"path": "/etc/mine", "mode": 420, "contents": {"source": "data:,x"}});
            let own =
                json!({"ignition": {"version": SPEC}, "storage": {"files": [file]}, "systemd": {"units": [unit]}});
            let fragment = Fragment {
                origin: "a.ign".to_owned(),
                role: None,
                content: own.to_string().into_bytes(),
            };
            let fragments = [fragment];
            let mut all = NodeConfigs::new(&made.config, &made.parameters, &files, &fragments, &bootstrap).unwrap();
            for minor in 6..24 {
                all.refuse_operator_files((4, minor)).unwrap();
            }
            if mcs == Mcs::Embed {
                for role in made.config.node_roles() {
                    let parts = services::parts(&made.input(), role).unwrap();
                    all.serve(role, document(&parts, version).to_string().as_bytes())
                        .unwrap();
                }
            }
            for NodeSpec { name: node, role, .. } in made.config.nodes() {
                let config = serde_json::from_slice(&all.node_config(&node, role).unwrap()).unwrap();
                if let Some(why) = refused(&config) {
                    panic!("{shape}, {mcs:?}: {node}: {why}");
                }
                judged += 1;
            }
        }
    }
    assert_eq!(judged, 3 * (2 + 5 + 6));
}

/// The specs of the MachineConfigs of a cluster of this shape, by name.
fn specs(shape: Shape, dns: Dns) -> BTreeMap<String, Value> {
    let mut made = Made::new("lab", shape, Ipv4Addr::new(192, 168, 122, 10));
    made.config.dns = dns;
    let manifests = services::manifests(&made.input()).unwrap().into_iter();
    let objects = manifests.map(|manifest| serde_json::from_str::<Value>(&manifest.content).unwrap());
    let configs = objects.filter(|object| object["kind"] == "MachineConfig");
    let spec = |config: Value| {
        (
            config["metadata"]["name"].as_str().unwrap().to_owned(),
            config["spec"].clone(),
        )
    };
    configs.map(spec).collect()
}

#[test]
fn another_worker_changes_only_files_that_nodes_apply_without_a_reboot() {
    let mut changed = 0;
    for (shape, dns) in shapes().filter(|(shape, _)| shape.workers > 0) {
        let workers = shape.workers + 1;
        let (before, after) = (specs(shape, dns), specs(Shape { workers, ..shape }, dns));
        assert!(before.keys().eq(after.keys()), "{shape}, {dns:?}");
        for (name, spec) in &before {
            assert!(!services::needs_reboot(spec, &after[name]), "{shape}, {dns:?}: {name}");
            changed += usize::from(*spec != after[name]);
        }
    }
    assert!(changed > 40, "{changed}");
}

#[test]
fn a_changed_unit_or_script_of_the_host_reboots_nodes() {
    let (shape, dns) = shapes().next().unwrap();
    let before = &specs(shape, dns)["99-master-ocpdeploy"];
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut after = before.clone();
        change(&mut after["config"]);
        services::needs_reboot(before, &after)
    };
    assert!(!changed(&|_| {}));
    assert!(changed(
        &|config| config["systemd"]["units"][0]["enabled"] = Value::Bool(false)
    ));
    let edit = |path: &'static str| {
        move |config: &mut Value| {
            let files = config["storage"]["files"].as_array_mut().unwrap();
            let file = files.iter_mut().find(|file| file["path"] == path).unwrap();
            file["contents"]["source"] = "data:,changed".into();
        }
    };
    assert!(!changed(&edit("/etc/ocpdeploy/dnsmasq.conf")));
    assert!(changed(&edit("/usr/local/bin/ocpdeploy-dns")));
}
