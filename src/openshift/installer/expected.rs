//! The expected content of a rehearsal guest's disk, derived from its config.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::digest::sha512;
use crate::ignition::IgnitionError;
use crate::ignition::contents::{self, Contents};
use crate::ignition::origins::{Layer, merge_layers};
use crate::ignition::unpack::unpack;

/// A guest's report of its disk; only hashes, because contents may be secret.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct OnDisk {
    pub files: Vec<FileOnDisk>,
    pub units: Vec<UnitOnDisk>,
    pub users: Vec<UserOnDisk>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct FileOnDisk {
    path: String,
    /// Octal, 4 digits; `None`: not on disk.
    mode: Option<String>,
    sha512: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct UnitOnDisk {
    name: String,
    /// `enabled`, `disabled`, `masked`; `None` if not specified.
    on_disk: Option<String>,
    #[serde(default)]
    sha512: Option<String>,
    /// File name and SHA-512.
    #[serde(default)]
    dropins: BTreeMap<String, Option<String>>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct UserOnDisk {
    name: String,
    /// SHA-512 of each authorized key's line.
    #[serde(default)]
    key_sha512: Vec<String>,
}

/// A node's final config: its own, merged with the one that the machine config server serves.
///
/// A pointer merges the node's own config last, so it overrides the served one.
pub(super) fn effective(given: &Value, served: Option<Value>) -> Result<Value, IgnitionError> {
    let served = served.map(|config| Layer {
        origin: "served".to_owned(),
        config,
    });
    let layers = served.into_iter().chain(unpack("given", given)?.layers);
    merge_layers(&layers.collect::<Vec<_>>())
}

/// Each difference between the effective config and the disk, as text.
pub(super) fn differences(effective: &Value, disk: &OnDisk) -> Vec<String> {
    let mut found = Vec::new();
    let mut compare = |what: String, is: Option<&str>, should: &str| {
        let is = is.unwrap_or("absent");
        if is != should {
            found.push(format!("{what} is {is}, expected {should}"));
        }
    };
    let files: BTreeMap<_, _> = disk.files.iter().map(|file| (file.path.as_str(), file)).collect();
    for file in list(effective, "/storage/files") {
        let Some(path) = text(file, "path") else { continue };
        let is = files.get(path);
        if let Some(mode) = file.get("mode").and_then(Value::as_u64) {
            let mode = format!("{mode:04o}");
            compare(format!("mode of {path}"), is.and_then(|is| is.mode.as_deref()), &mode);
        }
        // The original content of an appended file belongs to the image.
        let is_whole = list(file, "/append").next().is_none();
        if let (Some(Ok(Contents::Bytes(bytes))), true) = (file.get("contents").map(contents::of), is_whole) {
            let hash = is.and_then(|is| is.sha512.as_deref());
            compare(format!("sha512 of {path}"), hash, &sha512(bytes));
        }
    }
    let units: BTreeMap<_, _> = disk.units.iter().map(|unit| (unit.name.as_str(), unit)).collect();
    for unit in list(effective, "/systemd/units") {
        let Some(name) = text(unit, "name") else { continue };
        let is = units.get(name);
        let flag = |field| unit.get(field).and_then(Value::as_bool);
        let state = match (flag("mask"), flag("enabled")) {
            (Some(true), _) => Some("masked"),
            (_, Some(true)) => Some("enabled"),
            (_, Some(false)) => Some("disabled"),
            (_, None) => None,
        };
        if let Some(state) = state {
            compare(format!("unit {name}"), is.and_then(|is| is.on_disk.as_deref()), state);
        }
        if let (Some(contents), false) = (text(unit, "contents"), state == Some("masked")) {
            let hash = is.and_then(|is| is.sha512.as_deref());
            compare(format!("sha512 of unit {name}"), hash, &sha512(contents));
        }
        for dropin in list(unit, "/dropins") {
            let (Some(file), Some(contents)) = (text(dropin, "name"), text(dropin, "contents")) else {
                continue;
            };
            let hash = is.and_then(|is| is.dropins.get(file)?.as_deref());
            compare(
                format!("sha512 of drop-in {file} of unit {name}"),
                hash,
                &sha512(contents),
            );
        }
    }
    let users: BTreeMap<_, _> = disk.users.iter().map(|user| (user.name.as_str(), user)).collect();
    for user in list(effective, "/passwd/users") {
        let Some(name) = text(user, "name") else { continue };
        compare(format!("user {name}"), users.get(name).map(|_| "present"), "present");
        for (index, key) in list(user, "/sshAuthorizedKeys").enumerate() {
            let hash = sha512(key.as_str().unwrap_or_default().trim());
            let is = users.get(name).filter(|is| is.key_sha512.contains(&hash));
            compare(
                format!("ssh key {} of user {name}", index + 1),
                is.map(|_| "present"),
                "present",
            );
        }
    }
    found
}

fn list<'a>(value: &'a Value, place: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(place).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(entry: &'a Value, field: &str) -> Option<&'a str> {
    entry.get(field).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ignition::contents::data_url;

    /// A pointer with one entry of each kind embedded in it.
    fn config() -> Value {
        let inner = json!({
            "ignition": {"version": "3.2.0"},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-rsa a", "ssh-rsa b"]}]},
            "storage": {"files": [
                {"path": "/etc/a", "mode": 420, "contents": {"source": "data:,x"}},
                {"path": "/etc/motd", "append": [{"source": "data:,x"}]},
                {"path": "/etc/far", "contents": {"source": "http://far.example.com/"}},
            ]},
            "systemd": {"units": [
                {"name": "a.service", "enabled": true, "contents": "A", "dropins": [{"name": "1.conf", "contents": "D"}]},
                {"name": "b.service", "enabled": false},
                {"name": "c.service", "mask": true, "contents": "C"},
            ]},
        });
        json!({"ignition": {"version": "3.2.0", "config": {"merge": [
            {"source": "http://192.168.122.10:22624/config/master"},
            {"source": data_url(inner.to_string().as_bytes())},
        ]}}})
    }

    fn disk() -> Value {
        json!({
            "files": [
                {"path": "/etc/a", "mode": "0644", "sha512": sha512("x")},
                {"path": "/etc/motd", "mode": "0600", "sha512": sha512("more")},
                {"path": "/etc/far", "mode": "0644", "sha512": sha512("far")},
                {"path": "/etc/others", "mode": null, "sha512": null},
            ],
            "units": [
                {"name": "a.service", "enabled": true, "on_disk": "enabled", "sha512": sha512("A"),
                    "dropins": {"1.conf": sha512("D"), "2.conf": null}},
                {"name": "b.service", "enabled": false, "on_disk": "disabled", "sha512": null, "dropins": {}},
                {"name": "c.service", "enabled": null, "on_disk": "masked", "sha512": null, "dropins": {}},
            ],
            "users": [
                {"name": "core", "keys": 3, "key_sha512": [sha512("ssh-rsa b"), sha512("ssh-rsa c"), sha512("ssh-rsa a")]},
            ],
        })
    }

    fn found(disk: Value) -> Vec<String> {
        let effective = effective(&config(), None).unwrap();
        differences(&effective, &serde_json::from_value(disk).unwrap())
    }

    #[test]
    fn the_served_config_applies_unless_the_node_s_own_overrides_it() {
        let served = json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [
            {"path": "/etc/a", "mode": 384, "contents": {"source": "data:,other"}},
            {"path": "/etc/role", "mode": 420, "contents": {"source": "data:,role"}},
        ]}});
        let effective = effective(&config(), Some(served)).unwrap();
        let found = |disk: Value| differences(&effective, &serde_json::from_value(disk).unwrap());
        let missing = found(disk());
        assert_eq!(missing.len(), 2, "{missing:?}");
        assert!(missing[0].starts_with("mode of /etc/role is absent"), "{missing:?}");
        let mut whole = disk();
        let role = json!({"path": "/etc/role", "mode": "0644", "sha512": sha512("role")});
        whole["files"].as_array_mut().unwrap().push(role);
        assert_eq!(found(whole), [""; 0]);
    }

    #[test]
    fn a_disk_that_matches_the_config_has_no_differences() {
        assert_eq!(found(disk()), [""; 0]);
    }

    #[test]
    fn each_difference_is_reported() {
        for (place, value, text) in [
            ("/files/0/mode", json!("0600"), "mode of /etc/a is 0600, expected 0644"),
            ("/files/0/sha512", json!("ff"), "sha512 of /etc/a is ff, expected "),
            (
                "/units/0/on_disk",
                json!("disabled"),
                "unit a.service is disabled, expected enabled",
            ),
            (
                "/units/0/sha512",
                json!("ff"),
                "sha512 of unit a.service is ff, expected ",
            ),
            (
                "/units/0/dropins/1.conf",
                json!(null),
                "sha512 of drop-in 1.conf of unit a.service is absent, expected ",
            ),
            (
                "/units/1/on_disk",
                json!(null),
                "unit b.service is absent, expected disabled",
            ),
            (
                "/units/2/on_disk",
                json!(null),
                "unit c.service is absent, expected masked",
            ),
            (
                "/users/0/key_sha512",
                json!([sha512("ssh-rsa b")]),
                "ssh key 1 of user core is absent, expected present",
            ),
        ] {
            let mut disk = disk();
            *disk.pointer_mut(place).unwrap() = value;
            let found = found(disk);
            assert!(found.len() == 1 && found[0].starts_with(text), "{place}: {found:?}");
        }
        let nothing = json!({"files": [], "units": [], "users": []});
        assert_eq!(found(nothing).len(), 2 + 3 + 1 + 1 + 3);
    }
}
