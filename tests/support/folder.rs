//! What a rejected command must not change: a cluster's folder except its log and lock, and the platform.

use std::collections::BTreeMap;
use std::path::Path;

use ocpdeploy::digest::sha256;
use serde_json::{Value, json};

/// The simulated platform without changes by itself: machines that boot get addresses. A missing field counts as
/// empty.
pub fn platform(state: &Value) -> Value {
    let all = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let mut machines = all(&state["machines"]);
    for machine in machines.values_mut() {
        for nic in machine["nics"].as_array_mut().unwrap() {
            nic["addresses"].take();
        }
    }
    let networks = all(&state["networks"]);
    let reserved: Vec<_> = networks.values().map(|network| all(&network["reservations"])).collect();
    json!([machines, reserved, all(&state["uploads"])])
}

/// The digest of each file, and where each link leads, by the path in the folder; folders with a slash.
pub fn files(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if ["log", "lock"].contains(&name.as_str()) {
                continue;
            }
            let is_folder = path.is_dir() && !path.is_symlink();
            let content = match std::fs::read_link(&path) {
                Ok(target) => target.display().to_string(),
                Err(_) if is_folder => "folder".to_owned(),
                Err(_) => sha256(std::fs::read(&path).unwrap()),
            };
            found.insert(name, content);
            if is_folder {
                folders.push(path);
            }
        }
    }
    found
}
