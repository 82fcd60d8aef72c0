//! The merge held to its promises on made-up configs, and to what Debian's Ignition makes of the same ones.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use ocpdeploy::ignition::origins::{Layer, merge_layers};
use ocpdeploy::ignition::overlay::data_url;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

#[path = "support/clean.rs"]
mod clean;
#[path = "support/configs.rs"]
mod configs;

const ENGINE: &str = "/usr/lib/dracut/modules.d/30ignition/ignition";
const MISSING: &str = "this test needs Debian's Ignition: apt-get install --no-install-recommends ignition";

/// The merged config that Ignition's fetch stage leaves in its cache; its log where it refuses.
fn engine(pointer: &Value) -> Result<Value, String> {
    assert!(Path::new(ENGINE).exists(), "{MISSING}");
    let work = tempfile::tempdir().unwrap();
    let config = work.path().join("node.ign");
    let cache = work.path().join("cache.json");
    fs::write(&config, pointer.to_string()).unwrap();
    // It keeps its state in /run: it is root, and sees a /run of its own.
    let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    let user: &[&str] = if is_root { &[] } else { &["--map-root-user"] };
    let own_run = "mount -t tmpfs tmpfs /run && exec \"$0\" \"$@\"";
    let output = Command::new("unshare")
        .args(user)
        .args(["--mount", "sh", "-c", own_run, ENGINE])
        .args(["--platform", "file", "--log-to-stdout", "--stage", "fetch"])
        .args(["--root".as_ref(), work.path().as_os_str()])
        .args(["--config-cache".as_ref(), cache.as_os_str()])
        .args(["--neednet".as_ref(), work.path().join("neednet").as_os_str()])
        .env("IGNITION_CONFIG_FILE", &config)
        .output()
        .unwrap();
    if !output.status.success() {
        return Err((String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr)).into_owned());
    }
    Ok(serde_json::from_slice(&fs::read(cache).unwrap()).unwrap())
}

/// The first place where two values differ, and both.
fn difference(left: &Value, right: &Value, at: &str) -> Option<String> {
    match (left, right) {
        (Value::Object(l), Value::Object(r)) if l.keys().collect::<BTreeSet<_>>() == r.keys().collect() => l
            .iter()
            .find_map(|(name, value)| difference(value, &r[name], &format!("{at}.{name}"))),
        (Value::Array(l), Value::Array(r)) if l.len() == r.len() => {
            let mut pairs = l.iter().zip(r).enumerate();
            pairs.find_map(|(index, (l, r))| difference(l, r, &format!("{at}.{index}")))
        }
        _ => (left != right).then(|| format!("{at}: {left} here, {right} there")),
    }
}

#[test]
fn debian_s_ignition_merges_to_the_same_config() {
    let mut runner = TestRunner::deterministic();
    // Debian's Ignition knows 3.0 to 3.3.
    let strategy = prop::collection::vec(configs::config(3), 2..4);
    for _ in 0..60 {
        let configs = strategy.new_tree(&mut runner).unwrap().current();
        let source = |config: &Value| json!({"source": data_url(config.to_string().as_bytes())});
        let sources: Vec<_> = configs.iter().map(source).collect();
        let pointer = json!({"ignition": {"version": "3.0.0", "config": {"merge": sources}}});
        let expected = engine(&pointer).unwrap_or_else(|log| panic!("{log}\n{}", Value::from(configs.clone())));

        let layers = [pointer].into_iter().chain(configs.clone()).map(|config| Layer {
            origin: String::new(),
            config,
        });
        let merged = merge_layers(&layers.collect::<Vec<_>>()).unwrap();
        let without_pointer = |mut config: Value| {
            config["ignition"].as_object_mut().unwrap().remove("config");
            clean::clean(config)
        };
        let different = difference(&without_pointer(merged), &without_pointer(expected), "$");
        assert_eq!(different, None, "{}", Value::from(configs));
    }
}
