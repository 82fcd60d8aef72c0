//! Systemd units and drop-ins.

use std::collections::HashMap;

use super::at::{At, quoted};
use super::coreos;
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
        if let Some(place) = read.as_ref().and_then(|read| read.mount_point) {
            mount_point(judge, &unit, name, place);
        }
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
fn text<'v>(judge: &mut Judge, at: &At<'_, 'v>) -> Option<unit_text::UnitText<'v>> {
    let text = at.text("contents").unwrap_or_default();
    if text.contains("\r\n") {
        judge.warning(&at.get("contents"), "the lines end in CR LF, as on Windows; use LF");
    }
    match unit_text::read(text) {
        Ok(read) => Some(read),
        Err(fault) => {
            judge.error(&at.get("contents"), fault);
            None
        }
    }
}

/// What systemd requires of `Where` (systemd/systemd: `src/core/mount.c`, `mount_verify` and `mount_enter_mounting`).
fn mount_point(judge: &mut Judge, unit: &At, name: &str, place: &str) {
    // Specifiers have a value only on the node.
    if place.contains('%') || !matches!(suffix(name), ".mount" | ".automount") {
        return;
    }
    let expected = escape_path(place) + suffix(name);
    if expected != name {
        let (place, expected) = (quoted(&format!("Where={place}")), quoted(&expected));
        let text = format!("systemd rejects this unit: the unit of {place} is named {expected}");
        judge.warning(&unit.get("name"), text);
    }
    if let Some((link, target)) = coreos::through_link(place) {
        let text = format!(
            "`Where` is behind {link}, a link in CoreOS, and systemd mounts nothing behind a link: use {}",
            quoted(&target)
        );
        judge.warning(&unit.get("contents"), text);
    }
}

/// As `systemd-escape --path` (systemd/systemd: `src/basic/unit-name.c`, `unit_name_path_escape`).
fn escape_path(path: &str) -> String {
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
    let path = parts.join("/");
    if path.is_empty() {
        return "-".to_owned();
    }
    let mut escaped = String::new();
    for (index, byte) in path.bytes().enumerate() {
        match byte {
            b'/' => escaped.push('-'),
            b'.' if index == 0 => escaped += "\\x2e",
            byte if byte.is_ascii_alphanumeric() || b":_.".contains(&byte) => escaped.push(char::from(byte)),
            byte => escaped += &format!("\\x{byte:02x}"),
        }
    }
    escaped
}

/// The text from the last dot on, or nothing.
fn suffix(name: &str) -> &str {
    let last = name.rsplit('/').next().unwrap_or_default();
    last.rfind('.').map_or("", |dot| &last[dot..])
}
