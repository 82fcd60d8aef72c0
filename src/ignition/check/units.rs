//! Systemd units and drop-ins.

use std::collections::HashMap;

use super::at::{At, quoted};
use super::judge::Judge;
use super::unit_text;

const SUFFIXES: [&str; 12] = [
    ".service",
    ".socket",
    ".device",
    ".mount",
    ".automount",
    ".swap",
    ".target",
    ".path",
    ".timer",
    ".snapshot",
    ".slice",
    ".scope",
];

pub fn systemd(judge: &mut Judge, systemd: &At) {
    // Templates whose instances can be enabled, and whether they have an [Install] section.
    let mut templates = HashMap::new();
    for unit in systemd.entries("units") {
        let name = unit.text("name").unwrap_or_default();
        if !SUFFIXES.contains(&suffix(name)) {
            judge.error(
                &unit.get("name"),
                "the name must end in the suffix of a systemd unit, such as `.service`",
            );
        }
        let read = text(judge, &unit);
        if let (Some(stem), Some(read), true) =
            (name.strip_suffix("@.service"), &read, unit.words("contents").is_some())
        {
            templates.insert(stem, read.has_install);
        }
        let enabled = unit.flag("enabled") == Some(true);
        let installs = read.is_none_or(|read| read.has_install);
        if enabled && unit.words("contents").is_some() && !installs {
            let text = format!(
                "{} is enabled but has no [Install] section, so enabling it has no effect",
                quoted(name)
            );
            judge.warning(&unit.get("contents"), text);
        }
        if enabled && unit.flag("mask") == Some(true) {
            judge.warning(
                &unit.get("mask"),
                "the unit is enabled and masked, so systemd does not start it",
            );
        }
        for dropin in unit.entries("dropins") {
            if suffix(dropin.text("name").unwrap_or_default()) != ".conf" {
                judge.error(&dropin.get("name"), "a drop-in's name must end in `.conf`");
            }
            text(judge, &dropin);
        }
    }
    for unit in systemd
        .entries("units")
        .filter(|unit| unit.flag("enabled") == Some(true))
    {
        let name = unit.text("name").and_then(|name| name.strip_suffix(".service"));
        let instance = name
            .and_then(|name| name.split_once('@'))
            .filter(|(_, instance)| !instance.is_empty());
        let Some((stem, _)) = instance else { continue };
        if templates.get(stem) == Some(&false) {
            let template = quoted(&format!("{stem}@.service"));
            let text = format!("{template} has no [Install] section, so enabling its instance has no effect");
            judge.warning(&unit.get("contents"), text);
        }
    }
}

/// Parses the text of a unit or drop-in; a missing text counts as empty.
fn text(judge: &mut Judge, at: &At) -> Option<unit_text::UnitText> {
    match unit_text::read(at.text("contents").unwrap_or_default()) {
        Ok(read) => Some(read),
        Err(fault) => {
            judge.error(&at.get("contents"), fault);
            None
        }
    }
}

/// The text from the last dot on, or nothing.
fn suffix(name: &str) -> &str {
    let last = name.rsplit('/').next().unwrap_or_default();
    last.rfind('.').map_or("", |dot| &last[dot..])
}
