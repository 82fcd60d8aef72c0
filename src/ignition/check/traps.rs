//! Unexpected effects of merging two configs.

use std::collections::HashMap;

use serde_json::Value;

use super::at::{At, quoted};
use super::judge::Judge;
use crate::ignition::finding::Finding;
use crate::ignition::{Major, version};

/// Reports the unexpected effects of merging exactly these two. Paths are the child's.
///
/// Empty if the two cannot be merged.
pub fn traps(parent: &Value, child: &Value) -> Vec<Finding> {
    let (Ok(theirs), Ok(ours)) = (version(parent), version(child)) else {
        return Vec::new();
    };
    let minor = theirs.minor.max(ours.minor);
    let mut judge = Judge {
        spec: minor,
        rules: minor,
        found: Vec::new(),
        mistyped: Vec::new(),
    };
    let (parent, child) = (At::root(parent), At::root(child));
    match (theirs.major, ours.major) {
        (Major::Three, Major::Three) => {
            nodes(&mut judge, &parent.get("storage"), &child.get("storage"));
            units(&mut judge, &parent.get("systemd"), &child.get("systemd"));
            let (theirs, ours) = (parent.get("ignition"), child.get("ignition"));
            let (theirs, ours) = (theirs.get("config"), ours.get("config"));
            resource(&mut judge, &theirs.get("replace"), &ours.get("replace"));
        }
        (Major::Two, Major::Two) => twice(&mut judge, &parent, &child),
        _ => {}
    }
    judge.found
}

const KINDS: [(&str, &str); 3] = [("files", "file"), ("directories", "directory"), ("links", "link")];

fn nodes(judge: &mut Judge, parent: &At, child: &At) {
    let mut there = HashMap::new();
    for (list, kind) in KINDS {
        for node in parent.list(list) {
            let node = At::root(node);
            there.insert(node.text("path").unwrap_or_default(), (kind, node));
        }
    }
    for (list, kind) in KINDS {
        for node in child.entries(list) {
            let path = node.text("path").unwrap_or_default();
            match there.get(path) {
                None => {}
                Some((other, _)) if *other != kind => {
                    judge.warning(
                        &node.get("path"),
                        format_args!("replaces the parent's {other} {}", quoted(path)),
                    );
                }
                Some((_, theirs)) => same_node(judge, theirs, &node),
            }
        }
    }
}

fn same_node(judge: &mut Judge, theirs: &At, ours: &At) {
    for owner in ["user", "group"] {
        let (theirs, ours) = (theirs.get(owner), ours.get(owner));
        for (mine, other) in [("name", "id"), ("id", "name")] {
            let given = |at: &At, field| match field {
                "id" => at.has("id"),
                _ => at.words("name").is_some(),
            };
            if given(&ours, mine) && given(&theirs, other) && !ours.has(other) {
                let text =
                    format!("the parent's {other} is kept next to this {mine}: Ignition rejects the combination");
                judge.warning(&ours, text);
            }
        }
    }
    let contents = ours.get("contents");
    resource(judge, &theirs.get("contents"), &contents);
    if contents.text("source").is_some() && !theirs.list("append").is_empty() {
        judge.warning(
            &contents,
            "data that the parent appends to this file is kept and follows these contents",
        );
    }
}

/// A resource of the child over one of the parent: fields that the child does not set are inherited.
fn resource(judge: &mut Judge, theirs: &At, ours: &At) {
    if ours.text("source").is_none() {
        return;
    }
    if theirs.words("compression").is_some() && !ours.has("compression") {
        let text = "the parent's compression is kept and applies to this source; for uncompressed data, set `\"compression\": \"\"`";
        judge.warning(&ours.get("compression"), text);
    }
    if theirs.get("verification").has("hash") && !ours.get("verification").has("hash") {
        let verification = ours.get("verification");
        judge.warning(
            &verification.get("hash"),
            "the parent's hash is kept and applies to this source; it can be replaced, but not removed",
        );
    }
    let kept = |header: &At| {
        let gone = |mine: At| mine.text("name") == header.text("name") && !mine.has("value");
        !ours.entries("httpHeaders").any(gone)
    };
    let fetched = ours.text("source").is_some_and(|source| source.starts_with("http"));
    if !fetched && theirs.entries("httpHeaders").any(|header| kept(&header)) {
        judge.warning(
            &ours.get("httpHeaders"),
            "the parent's headers are kept: Ignition rejects them with this source",
        );
    }
}

fn units(judge: &mut Judge, parent: &At, child: &At) {
    let there: HashMap<_, _> = parent
        .list("units")
        .iter()
        .map(|unit| (At::root(unit).text("name").unwrap_or_default(), At::root(unit)))
        .collect();
    for unit in child.entries("units") {
        let Some(theirs) = there.get(unit.text("name").unwrap_or_default()) else {
            continue;
        };
        if unit.flag("mask") == Some(true) && theirs.flag("enabled") == Some(true) && !unit.has("enabled") {
            judge.warning(
                &unit.get("mask"),
                "the parent's `enabled` is kept: the unit is enabled and masked",
            );
        }
        let wanted = unit.flag("enabled") == Some(true) || unit.words("contents").is_some();
        if theirs.flag("mask") == Some(true) && !unit.has("mask") && wanted {
            judge.warning(&unit.get("mask"), "the parent's mask is kept: the unit cannot start");
        }
    }
}

/// Spec 2 has no keys: a second entry for a path or unit is added to the first.
fn twice(judge: &mut Judge, parent: &At, child: &At) {
    for (section, list, key) in [
        ("storage", "files", "path"),
        ("storage", "directories", "path"),
        ("storage", "links", "path"),
        ("systemd", "units", "name"),
    ] {
        let theirs = parent.get(section);
        let section = child.get(section);
        for entry in section.entries(list) {
            let name = entry.text(key);
            if name.is_some() && theirs.list(list).iter().any(|other| At::root(other).text(key) == name) {
                judge.warning(
                    &entry.get(key),
                    "the parent has it too: spec 2 keeps both and writes the child's entry last",
                );
            }
        }
    }
}
