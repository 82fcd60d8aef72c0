//! Measures work on Ignition configs, compared with the minimum for any program: `make bench-ignition`.
//!
//! Prints the result as JSON, for `record.py`. `SMALL=1` runs everything once, as a test of the benchmark.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench may panic and print"
)]

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use ocpdeploy::cluster::{NodeSpec, Role};
use ocpdeploy::ignition::check::{check_merged, is_refused};
use ocpdeploy::ignition::document::parse;
use ocpdeploy::ignition::merge::merge;
use ocpdeploy::node::config::NodeConfigs;
use ocpdeploy::node::host::HostParts;
use ocpdeploy::state::home::{Home, write_private_unsynced};
use serde_json::{Value, json};

#[allow(dead_code, reason = "the bench uses settings and table alone")]
#[path = "../support/cluster.rs"]
mod cluster;
#[path = "../support/installer_files.rs"]
mod installer_files;

use installer_files::{bootstrap, file, pointer};

fn main() {
    let (parent, child) = (large(bootstrap("3.2.0")), overlay(&bootstrap("3.2.0")));
    let (parent, child) = (parent.to_string(), child.to_string());
    let (mut theirs, mut ours) = (Value::Null, Value::Null);
    let read = best(100, || (theirs, ours) = (read_json(&parent), read_json(&child)));
    let mut merged = Value::Null;
    let merging = best(100, || merged = merge(&theirs, &ours).unwrap());
    let mut text = String::new();
    let written = best(100, || text = merged.to_string());
    let parsing = best(100, || drop(parse(parent.as_bytes()).unwrap()));
    let checking = best(100, || assert!(!is_refused(&check_merged(&merged))));
    let floor = read + written;

    let folder = tempfile::tempdir().unwrap();
    let nodes = best(5, || five_hundred(folder.path()));
    let copies = best(5, || five_hundred_copies(folder.path()));
    let result = json!({
        "columns": ["operation", "time, ms", "ratio to the floor"],
        "rows": [
            row("one node: JSON read and written (floor)", floor, floor),
            row("one node: merge", merging, floor),
            row("one node: check", checking, floor),
            row("one node: strict reading of bootstrap.ign", parsing, floor),
            row("500 nodes: the same bytes written (floor)", copies, copies),
            row("500 nodes: merged, checked and written", nodes, copies),
        ],
        "notes": [
            format!("One node: bootstrap.ign of {} KB, an overlay of 60 files in {} KB.", parent.len() / 1000, child.len() / 1000),
            format!("500 nodes: {} KB on disk.", folder_size(&folder.path().join("copies")) / 1000),
            format!("Peak memory: {} MiB.", peak_memory().unwrap_or_default()),
        ],
    });
    println!("{result}");
}

/// A bootstrap config of 300 KB, as in a larger release.
fn large(mut bootstrap: Value) -> Value {
    let more = (0..28).map(|number| file(&format!("/opt/openshift/more/{number}"), "0600", "1000"));
    bootstrap["storage"]["files"].as_array_mut().unwrap().extend(more);
    bootstrap
}

/// 60 files: every third replaces one of the installer's, the others are new.
fn overlay(bootstrap: &Value) -> Value {
    let theirs = bootstrap["storage"]["files"].as_array().unwrap();
    let files = (0..60).map(|number| match number % 3 {
        0 => json!({"path": theirs[number]["path"], "mode": 384, "user": {"name": "root"}}),
        _ => file(&format!("/etc/ours/{number}"), "0644", "1000"),
    });
    json!({"ignition": {"version": "3.2.0"}, "storage": {"files": files.collect::<Vec<_>>()}})
}

fn read_json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// All configs of a cluster of 500 nodes, as pass two writes them.
fn five_hundred(folder: &Path) {
    let mut config = cluster::config();
    config.workers = 500 - 1 - config.masters;
    let parameters = cluster::parameters(&config, Ipv4Addr::new(10, 0, 0, 10));
    let installer = |role| match role {
        Role::Bootstrap => bootstrap("3.2.0"),
        role => pointer(role, "3.2.0"),
    };
    let roles = [Role::Bootstrap, Role::Master, Role::Worker];
    let files: BTreeMap<_, _> = roles
        .map(|role| (role, installer(role).to_string().into_bytes()))
        .into();
    let dir = Home::new(folder).cluster("lab");
    let all = NodeConfigs::new(&config, &parameters, &files, &[], &HostParts::default()).unwrap();
    for NodeSpec { name: node, role, .. } in config.nodes() {
        let config = all.node_config(&node, role).unwrap();
        write_private_unsynced(&dir.ignition(node.as_str()), &config).unwrap();
    }
}

/// Writes copies of the existing files.
fn five_hundred_copies(folder: &Path) {
    let copies = folder.join("copies");
    fs::create_dir_all(&copies).unwrap();
    for entry in fs::read_dir(Home::new(folder).cluster("lab").ignition_folder()).unwrap() {
        let entry = entry.unwrap();
        let copy = copies.join(entry.file_name());
        write_private_unsynced(&copy, &fs::read(entry.path()).unwrap()).unwrap();
    }
}

fn folder_size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

/// The shortest time of several runs: other load can only add to it.
fn best(runs: usize, mut run: impl FnMut()) -> Duration {
    let time = |_| {
        let begun = Instant::now();
        run();
        begun.elapsed()
    };
    let runs = if env::var_os("SMALL").is_some() { 1 } else { runs };
    (0..runs).map(time).min().unwrap()
}

fn row(operation: &str, took: Duration, floor: Duration) -> Value {
    let (took, floor) = (took.as_secs_f64(), floor.as_secs_f64());
    json!([operation, took * 1000.0, took / floor])
}

/// The peak memory of this process in MiB, as Linux reports it.
fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib / 1024)
}
