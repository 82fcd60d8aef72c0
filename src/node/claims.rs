//! The exclusive parts of configs: paths, units and similar entries that only one config may set.
//!
//! In Ignition the later config overrides silently. Here two configs must not set the same entry.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::ignition::IgnitionError;

/// One entry that a config sets.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    /// What only one config may set; for everything that becomes a file, its path.
    key: String,
    kind: &'static str,
    /// For messages, e.g. `unit kubelet.service`.
    what: String,
}

/// The owner of each entry.
#[derive(Clone, Debug, Default)]
pub struct Claims(BTreeMap<String, (Claim, String)>);

impl Claims {
    /// Adds all entries of a config. An entry that was added before keeps its first owner.
    pub fn add(&mut self, owner: &str, config: &Value) {
        for claim in claims(config) {
            self.0
                .entry(claim.key.clone())
                .or_insert_with(|| (claim, owner.to_owned()));
        }
    }

    /// Fails if a config sets an entry of another owner.
    pub fn refuse(&self, owner: &str, config: &Value) -> Result<(), IgnitionError> {
        for claim in claims(config) {
            let Some((first, other)) = self.0.get(&claim.key) else {
                continue;
            };
            if other == owner {
                continue;
            }
            let what = match first.kind == claim.kind {
                true => claim.what,
                false => format!("{} ({} and {})", claim.key, first.kind, claim.kind),
            };
            return Err(IgnitionError::Conflict {
                what,
                one: other.clone(),
                other: owner.to_owned(),
            });
        }
        Ok(())
    }
}

/// Lists of `storage` whose entries are identified by one field.
const STORAGE: [(&str, &str, &str); 7] = [
    ("files", "path", "file"),
    ("directories", "path", "directory"),
    ("links", "path", "link"),
    ("disks", "device", "disk"),
    ("filesystems", "device", "filesystem"),
    ("luks", "name", "LUKS volume"),
    ("raid", "name", "RAID array"),
];

/// Fields that identify an entry, or that several configs may extend.
const SHARED: [&str; 3] = ["name", "sshAuthorizedKeys", "groups"];

fn claims(config: &Value) -> Vec<Claim> {
    let mut all = Vec::new();
    let mut claim = |key: String, kind, what| all.push(Claim { key, kind, what });
    for (list, field, kind) in STORAGE {
        for name in entries(config, "storage", list).filter_map(|entry| text(entry, field)) {
            let key = match field {
                "path" => name.to_owned(),
                _ => format!("{kind} {name}"),
            };
            claim(key, kind, format!("{kind} {name}"));
        }
    }
    for unit in entries(config, "systemd", "units") {
        let Some(name) = text(unit, "name") else { continue };
        let dropins: Vec<&str> = list(unit, "dropins")
            .filter_map(|dropin| text(dropin, "name"))
            .collect();
        let says = |field| unit.get(field).is_some_and(|value| !value.is_null());
        let is_whole = dropins.is_empty() || ["contents", "enabled", "enable", "mask"].into_iter().any(says);
        if is_whole {
            claim(format!("/etc/systemd/system/{name}"), "unit", format!("unit {name}"));
        }
        // Several configs may add drop-ins to one unit.
        for dropin in dropins {
            let key = format!("/etc/systemd/system/{name}.d/{dropin}");
            claim(key, "drop-in", format!("drop-in {dropin} of unit {name}"));
        }
    }
    for (list, kind) in [("users", "user"), ("groups", "group")] {
        for entry in entries(config, "passwd", list) {
            let Some(name) = text(entry, "name") else { continue };
            for (field, value) in entry.as_object().into_iter().flatten() {
                if !value.is_null() && !SHARED.contains(&field.as_str()) {
                    claim(
                        format!("{kind} {name} {field}"),
                        kind,
                        format!("{field} of {kind} {name}"),
                    );
                }
            }
        }
    }
    all
}

fn entries<'a>(config: &'a Value, section: &str, name: &str) -> impl Iterator<Item = &'a Value> {
    config
        .get(section)
        .into_iter()
        .flat_map(move |section| list(section, name))
}

fn list<'a>(parent: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    parent.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(entry: &'a Value, field: &str) -> Option<&'a str> {
    entry.get(field).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn clash(first: Value, second: Value) -> Option<String> {
        let mut claims = Claims::default();
        claims.add("a.ign", &first);
        claims
            .refuse("a.ign", &first)
            .expect("a config does not conflict with itself");
        claims.refuse("b.ign", &second).err().map(|error| error.to_string())
    }

    #[test]
    fn an_entry_that_two_configs_set_is_reported_with_both_names() {
        let storage = |list: &str, entry: Value| json!({"storage": {list: [entry]}});
        let unit = |unit: Value| json!({"systemd": {"units": [unit]}});
        let user = |user: Value| json!({"passwd": {"users": [user]}});
        let file = |path: &str| storage("files", json!({"path": path}));
        let dropin = |name: &str| unit(json!({"name": "k.service", "dropins": [{"name": name, "contents": ""}]}));
        for (first, second, what) in [
            (file("/a"), file("/a"), Some("file /a")),
            (
                storage("links", json!({"path": "/a"})),
                file("/a"),
                Some("/a (link and file)"),
            ),
            (file("/a"), file("/b"), None),
            (
                storage("disks", json!({"device": "/dev/vda"})),
                storage("disks", json!({"device": "/dev/vda"})),
                Some("disk /dev/vda"),
            ),
            // A disk may contain a filesystem.
            (
                storage("disks", json!({"device": "/dev/vda"})),
                storage("filesystems", json!({"device": "/dev/vda"})),
                None,
            ),
            (
                unit(json!({"name": "k.service", "contents": "x"})),
                unit(json!({"name": "k.service", "enabled": false})),
                Some("unit k.service"),
            ),
            (
                unit(json!({"name": "k.service", "contents": "x"})),
                dropin("10-a.conf"),
                None,
            ),
            (dropin("10-a.conf"), dropin("20-b.conf"), None),
            (
                dropin("10-a.conf"),
                dropin("10-a.conf"),
                Some("drop-in 10-a.conf of unit k.service"),
            ),
            (
                dropin("10-a.conf"),
                file("/etc/systemd/system/k.service.d/10-a.conf"),
                Some("/etc/systemd/system/k.service.d/10-a.conf (drop-in and file)"),
            ),
            (
                unit(json!({"name": "k.service"})),
                file("/etc/systemd/system/k.service"),
                Some("/etc/systemd/system/k.service (unit and file)"),
            ),
            (
                user(json!({"name": "core", "sshAuthorizedKeys": ["a"]})),
                user(json!({"name": "core", "sshAuthorizedKeys": ["b"], "groups": ["wheel"]})),
                None,
            ),
            (
                user(json!({"name": "core", "passwordHash": "a"})),
                user(json!({"name": "core", "passwordHash": "b"})),
                Some("passwordHash of user core"),
            ),
        ] {
            let expected = what.map(|what| format!("conflict: {what} is set by a.ign and by b.ign"));
            assert_eq!(clash(first.clone(), second.clone()), expected, "{first} {second}");
        }
    }

    #[test]
    fn unexpected_json_claims_nothing() {
        for odd in [
            json!(null),
            json!([]),
            json!({"storage": []}),
            json!({"storage": {"files": {"path": "/a"}}}),
            json!({"systemd": {"units": [7, {"name": 7}]}}),
        ] {
            assert_eq!(claims(&odd), [], "{odd}");
        }
    }

    #[test]
    fn a_unit_with_drop_ins_is_claimed_only_if_it_sets_more() {
        let unit = |mut unit: Value| {
            unit["name"] = "k.service".into();
            json!({"systemd": {"units": [unit]}})
        };
        let whole = || unit(json!({"contents": "x"}));
        let dropins = json!([{"name": "10-a.conf", "contents": ""}]);
        let enabled = unit(json!({"enabled": true, "dropins": dropins}));
        assert_eq!(
            clash(whole(), enabled).as_deref(),
            Some("conflict: unit k.service is set by a.ign and by b.ign")
        );
        let null = unit(json!({"contents": null, "dropins": dropins}));
        assert_eq!(clash(whole(), null), None);
    }
}
