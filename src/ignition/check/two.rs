//! Checks the parts of spec 2 (OpenShift 4.1 to 4.5) that this program writes and merges.
//!
//! Source: coreos/ignition, branch spec2x, `config/v2_*/types/*.go`. Disks and similar parts are not checked.

use serde_json::Value;

use super::at::At;
use super::judge::Judge;
use super::nodes::path_fault;
use super::{resource, units, url};

pub fn config(judge: &mut Judge, root: &At) {
    // Common parts are checked by spec 3's oldest rules.
    judge.rules = 0;
    let ignition = root.get("ignition");
    let text = "spec 2 is for CoreOS of OpenShift 4.1 to 4.5; later releases reject it as an unsupported version";
    judge.warning(&ignition.get("version"), text);
    for (section, lists) in LISTS {
        let at = root.get(section);
        if !matches!(at.value, Value::Null | Value::Object(_)) {
            judge.mistyped(&at, "expected an object");
        }
        for list in *lists {
            let at = at.get(list);
            match at.value {
                Value::Null => {}
                Value::Array(_) => {
                    for entry in at.items().filter(|entry| !entry.value.is_object()) {
                        judge.mistyped(&entry, "expected an object");
                    }
                }
                _ => judge.mistyped(&at, "expected a list"),
            }
        }
    }

    let fetched = ignition.get("config");
    for entry in fetched.entries("append") {
        source(judge, &entry, true);
    }
    if fetched.has("replace") {
        source(judge, &fetched.get("replace"), true);
    }
    let storage = root.get("storage");
    for list in ["files", "directories", "links"] {
        for node in storage.entries(list) {
            one_node(judge, &node);
        }
    }
    for file in storage.entries("files") {
        source(judge, &file.get("contents"), false);
        if file.flag("append") == Some(true) && file.flag("overwrite") == Some(true) {
            judge.error(&file, "both append and overwrite are set");
        }
    }
    units::systemd(judge, &root.get("systemd"));
}

const LISTS: &[(&str, &[&str])] = &[
    ("ignition", &[]),
    ("networkd", &["units"]),
    ("passwd", &["groups", "users"]),
    (
        "storage",
        &["directories", "disks", "files", "filesystems", "links", "raid"],
    ),
    ("systemd", &["units"]),
];

fn one_node(judge: &mut Judge, node: &At) {
    if node.words("filesystem").is_none() {
        judge.error(
            &node.get("filesystem"),
            "spec 2 requires the filesystem's name; the root filesystem is `root`",
        );
    }
    // Spec 2 accepts unnormalized paths.
    match node.text("path").unwrap_or_default() {
        path if path.starts_with('/') => {}
        path => judge.error(&node.get("path"), path_fault(path).unwrap_or_default()),
    }
    let mode = node.get("mode");
    match (mode.value, node.number("mode")) {
        (Value::Null, _) | (_, Some(0..=0o7777)) => {}
        (_, Some(_)) => judge.error(&mode, "a mode is 0 to 4095, octal 07777"),
        (_, None) => judge.error(&mode, "a mode is a decimal number without quotes: octal 0644 is 420"),
    }
    for owner in ["user", "group"] {
        let owner = node.get(owner);
        if owner.has("id") && owner.words("name").is_some() {
            judge.error(&owner, "both id and name are set");
        }
    }
}

fn source(judge: &mut Judge, at: &At, required: bool) {
    match at.words("source") {
        None if required => judge.error(&at.get("source"), "a source is required"),
        None => {}
        Some(text) => {
            let scheme = url::parse(text).map(|url| url.scheme);
            let fault = match scheme.as_deref() {
                Ok("oem") => None,
                Ok("gs") if judge.spec >= 4 => None,
                _ => url::source(text, 0).err(),
            };
            if let Some(fault) = fault {
                judge.error(&at.get("source"), fault);
            }
        }
    }
    if !matches!(at.text("compression"), None | Some("" | "gzip")) {
        judge.error(&at.get("compression"), "the compression must be `gzip` or empty");
    }
    let hash = at.get("verification").text("hash");
    if let Some(hash) = hash {
        resource::hash(judge, &at.get("verification").get("hash"), hash);
    }
}
