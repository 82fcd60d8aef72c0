//! Puts our overlay together with the installer's configs.
//!
//! First form: an overlay is the last thing a pointer fetches, or goes flat into bootstrap.ign when both
//! write different paths. Ignition's own merge of equal keys comes with its own room.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde_json::{Map, Value, json};

use super::{IgnitionError, overlay::data_url, version};

/// Where masters and workers fetch what the machine config server has for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McsAddress {
    /// `https://api-int.<cluster>.<domain>:22623`, as the installer wrote it.
    AsInstalled,
    /// `http://<api_ip>:22624`.
    Http(Ipv4Addr),
}

/// Makes the overlay the last thing that a pointer merges, so that it wins over what the MCS serves.
pub fn into_pointer(mut pointer: Value, overlay: &Value, mcs: &McsAddress) -> Result<Value, IgnitionError> {
    let major = check_majors(&pointer, overlay)?;
    let list = major.merge_list();
    let entries = list_at(&mut pointer, &["ignition", "config", list])?;
    if let McsAddress::Http(api_ip) = mcs {
        let mut found = false;
        for entry in entries.iter_mut() {
            if let Some(path) = entry["source"].as_str().and_then(mcs_path) {
                let url = format!("http://{api_ip}:22624/{path}");
                entry["source"] = json!(url);
                found = true;
            }
        }
        if !found {
            return Err(IgnitionError::NoMcs);
        }
    }
    // No entry before ours has this source, so there is no compression or hash to inherit.
    entries.push(json!({"source": data_url(&serde_json::to_vec(overlay)?)}));
    Ok(pointer)
}

/// The path in a URL of the machine config server, without its first slash.
fn mcs_path(url: &str) -> Option<&str> {
    let (host, path) = url.strip_prefix("https://")?.split_once('/')?;
    host.ends_with(":22623").then_some(path)
}

/// Lists of `storage` that share one name space: the path.
const PATH_LISTS: [(&str, &str); 3] = [("files", "file"), ("directories", "directory"), ("links", "link")];

/// Puts the overlay's entries beside the installer's; a path or unit on both sides is a conflict.
pub fn into_bootstrap(mut bootstrap: Value, overlay: &Value) -> Result<Value, IgnitionError> {
    check_majors(&bootstrap, overlay)?;
    refuse_what_would_be_lost(overlay)?;

    let mut taken = BTreeMap::new();
    for (list, kind) in PATH_LISTS {
        for entry in read_list(&bootstrap, &["storage", list])? {
            taken.insert(key(entry, "path", list)?.to_owned(), kind);
        }
    }
    for (list, kind) in PATH_LISTS {
        let ours = read_list(overlay, &["storage", list])?;
        for entry in ours {
            let path = key(entry, "path", list)?;
            if let Some(other) = taken.get(path) {
                let what = if *other == kind {
                    format!("{kind} {path}")
                } else {
                    format!("{path} ({other} and {kind})")
                };
                return Err(IgnitionError::Conflict { what });
            }
        }
        append(&mut bootstrap, &["storage", list], ours)?;
    }

    let ours = read_list(overlay, &["systemd", "units"])?;
    for unit in ours {
        let name = key(unit, "name", "units")?;
        for theirs in read_list(&bootstrap, &["systemd", "units"])? {
            if key(theirs, "name", "units")? == name {
                let what = format!("unit {name}");
                return Err(IgnitionError::Conflict { what });
            }
        }
    }
    append(&mut bootstrap, &["systemd", "units"], ours)?;

    for user in read_list(overlay, &["passwd", "users"])? {
        add_user(list_at(&mut bootstrap, &["passwd", "users"])?, user)?;
    }
    Ok(bootstrap)
}

/// Adds a user, or to the user of that name what is new: ssh keys are a set.
fn add_user(users: &mut Vec<Value>, user: &Value) -> Result<(), IgnitionError> {
    let name = key(user, "name", "users")?;
    let Some(known) = users.iter_mut().find(|known| known["name"] == name) else {
        users.push(user.clone());
        return Ok(());
    };
    for (field, value) in user.as_object().into_iter().flatten() {
        match (&mut known[field], value) {
            (Value::Array(keys), Value::Array(ours)) if field == "sshAuthorizedKeys" => {
                for key in ours {
                    if !keys.contains(key) {
                        keys.push(key.clone());
                    }
                }
            }
            (_, Value::Null) => {}
            (theirs @ Value::Null, ours) => *theirs = ours.clone(),
            (theirs, ours) if theirs == ours => {}
            _ => {
                let what = format!("{field} of user {name}");
                return Err(IgnitionError::Conflict { what });
            }
        }
    }
    Ok(())
}

fn check_majors(theirs: &Value, ours: &Value) -> Result<super::Major, IgnitionError> {
    let (theirs, ours) = (version(theirs)?, version(ours)?);
    if theirs.major == ours.major {
        Ok(ours.major)
    } else {
        Err(IgnitionError::Majors { ours, theirs })
    }
}

/// A flat merge carries these sections; another one would be dropped without a word.
fn refuse_what_would_be_lost(overlay: &Value) -> Result<(), IgnitionError> {
    let carried = [
        ("", &["ignition", "storage", "systemd", "passwd"][..]),
        ("/ignition", &["version"]),
        ("/storage", &["files", "directories", "links"]),
        ("/systemd", &["units"]),
        ("/passwd", &["users"]),
    ];
    for (section, known) in carried {
        let fields = overlay
            .pointer(section)
            .and_then(Value::as_object)
            .into_iter()
            .flatten();
        for (field, value) in fields {
            if !known.contains(&field.as_str()) && !value.is_null() {
                let path = format!("${}.{field}", section.replace('/', "."));
                return Err(IgnitionError::NotMergeable { path });
            }
        }
    }
    Ok(())
}

/// An entry's key within its list.
fn key<'a>(entry: &'a Value, field: &str, list: &str) -> Result<&'a str, IgnitionError> {
    let shape = || IgnitionError::Shape {
        path: format!("`{field}` of an entry in `{list}`"),
        wanted: "a string",
    };
    entry.get(field).and_then(Value::as_str).ok_or_else(shape)
}

/// The list at a path; empty where it is absent or null.
fn read_list<'a>(config: &'a Value, path: &[&str]) -> Result<&'a [Value], IgnitionError> {
    let mut here = config;
    for (depth, name) in path.iter().enumerate() {
        here = match here {
            Value::Object(fields) => fields.get(*name).unwrap_or(&Value::Null),
            Value::Null => &Value::Null,
            _ => return Err(not_an_object(&path[..depth])),
        };
    }
    match here {
        Value::Array(entries) => Ok(entries),
        Value::Null => Ok(&[]),
        _ => Err(not_a_list(path)),
    }
}

/// The list at a path, made where it is absent or null.
fn list_at<'a>(config: &'a mut Value, path: &[&str]) -> Result<&'a mut Vec<Value>, IgnitionError> {
    let mut here = config;
    for (depth, name) in path.iter().enumerate() {
        if here.is_null() {
            *here = Value::Object(Map::new());
        }
        here = match here {
            Value::Object(fields) => fields.entry(*name).or_insert(Value::Null),
            _ => return Err(not_an_object(&path[..depth])),
        };
    }
    if here.is_null() {
        *here = Value::Array(Vec::new());
    }
    here.as_array_mut().ok_or_else(|| not_a_list(path))
}

/// Adds entries; a list that nothing is added to is not made.
fn append(config: &mut Value, path: &[&str], entries: &[Value]) -> Result<(), IgnitionError> {
    if !entries.is_empty() {
        list_at(config, path)?.extend_from_slice(entries);
    }
    Ok(())
}

fn not_an_object(path: &[&str]) -> IgnitionError {
    shape(path, "an object")
}

fn not_a_list(path: &[&str]) -> IgnitionError {
    shape(path, "a list")
}

fn shape(path: &[&str], wanted: &'static str) -> IgnitionError {
    let path = path.iter().fold("$".to_owned(), |text, name| text + "." + name);
    IgnitionError::Shape { path, wanted }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const API: McsAddress = McsAddress::Http(Ipv4Addr::new(192, 168, 122, 10));

    fn pointer() -> Value {
        json!({"ignition": {
            "config": {"merge": [{"source": "https://api-int.lab.example.com:22623/config/worker"}]},
            "later": {"kept": [1, null]},
            "version": "3.2.0",
        }})
    }

    fn overlay(version: &str) -> Value {
        json!({"ignition": {"version": version}, "storage": {"files": [{"path": "/etc/hostname"}]}})
    }

    #[test]
    fn the_overlay_is_the_last_entry_and_the_rest_stays() {
        let ours = json!({"source": data_url(&serde_json::to_vec(&overlay("3.2.0")).unwrap())});
        for (mcs, source) in [
            (
                McsAddress::AsInstalled,
                "https://api-int.lab.example.com:22623/config/worker",
            ),
            (API, "http://192.168.122.10:22624/config/worker"),
        ] {
            let mut expected = pointer();
            expected["ignition"]["config"]["merge"] = json!([{"source": source}, ours]);
            let merged = into_pointer(pointer(), &overlay("3.2.0"), &mcs).unwrap();
            // As text, since the order of keys counts too.
            assert_eq!(merged.to_string(), expected.to_string());
        }
    }

    #[test]
    fn spec_2_appends() {
        let url = "https://api-int.lab.example.com:22623/config/master";
        let pointer = json!({"ignition": {"config": {"append": [{"source": url, "verification": {}}]}, "version": "2.2.0"},
            "networkd": {}, "passwd": {}, "storage": {}, "systemd": {}});
        let merged = into_pointer(pointer, &overlay("2.2.0"), &API).unwrap();
        let entries = merged["ignition"]["config"]["append"].as_array().unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!(
            entries[0],
            json!({"source": "http://192.168.122.10:22624/config/master", "verification": {}})
        );
        assert_eq!(merged["ignition"]["config"].get("merge"), None);
        assert_eq!(merged["networkd"], json!({}));
    }

    #[test]
    fn faulty_pointers_are_refused() {
        let no_mcs = json!({"ignition": {"version": "3.2.0", "config": {"merge": [{"source": "https://a:6443/x"}]}}});
        let odd = json!({"ignition": {"version": "3.2.0", "config": {"merge": {}}}});
        let odder = json!({"ignition": {"version": "3.2.0", "config": "x"}});
        for (pointer, ours, text) in [
            (
                no_mcs,
                "3.2.0",
                "the pointer has no entry of the machine config server, https://<host>:22623/config/<role>",
            ),
            (
                pointer(),
                "2.2.0",
                "Ignition 2.2.0 cannot be merged into Ignition 3.2.0",
            ),
            (odd, "3.2.0", "$.ignition.config.merge is not a list"),
            (odder, "3.2.0", "$.ignition.config is not an object"),
            (
                json!({}),
                "3.2.0",
                "the config has no Ignition version at $.ignition.version",
            ),
        ] {
            assert_eq!(
                into_pointer(pointer, &overlay(ours), &API).unwrap_err().to_string(),
                text
            );
        }
    }

    /// A bootstrap config with one entry of each kind.
    fn bootstrap() -> Value {
        json!({
            "ignition": {"version": "3.2.0"},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["a", "b"], "gecos": "x"}], "groups": [{"name": "g"}]},
            "storage": {
                "files": [{"path": "/f", "mode": 420}], "directories": [{"path": "/d"}], "links": [{"path": "/l"}],
                "disks": [{"device": "/dev/vda"}],
            },
            "systemd": {"units": [{"name": "kubelet.service", "enabled": true}]},
            "later": 1,
        })
    }

    fn ours(storage: Value, units: Value, users: Value) -> Value {
        json!({"ignition": {"version": "3.2.0"}, "storage": storage, "systemd": {"units": units}, "passwd": {"users": users}})
    }

    #[test]
    fn users_are_merged_by_name_and_keys_are_a_set() {
        let core = json!({"name": "core", "sshAuthorizedKeys": ["c", "a"], "shell": "/bin/sh", "gecos": "x"});
        let merged = into_bootstrap(bootstrap(), &ours(json!({}), json!([]), json!([core, {"name": "new"}]))).unwrap();
        assert_eq!(
            merged["passwd"],
            json!({
                "users": [
                    {"name": "core", "sshAuthorizedKeys": ["a", "b", "c"], "gecos": "x", "shell": "/bin/sh"},
                    {"name": "new"},
                ],
                "groups": [{"name": "g"}],
            })
        );
    }

    #[test]
    fn what_both_write_is_a_conflict_that_names_it() {
        let none = || json!([]);
        for (overlay, text) in [
            (ours(json!({"files": [{"path": "/f"}]}), none(), none()), "file /f"),
            (
                ours(json!({"directories": [{"path": "/d"}]}), none(), none()),
                "directory /d",
            ),
            (
                ours(json!({"files": [{"path": "/l"}]}), none(), none()),
                "/l (link and file)",
            ),
            (
                ours(json!({}), json!([{"name": "kubelet.service"}]), none()),
                "unit kubelet.service",
            ),
            (
                ours(json!({}), none(), json!([{"name": "core", "gecos": "y"}])),
                "gecos of user core",
            ),
        ] {
            let error = into_bootstrap(bootstrap(), &overlay).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("{text} is written by the installer's config and by ocpdeploy's overlay")
            );
        }
    }

    #[test]
    fn nothing_of_the_overlay_is_dropped_in_silence() {
        for (overlay, path) in [
            (
                json!({"ignition": {"version": "3.2.0"}, "kernelArguments": {}}),
                "$.kernelArguments",
            ),
            (
                json!({"ignition": {"version": "3.2.0", "proxy": {}}}),
                "$.ignition.proxy",
            ),
            (
                json!({"ignition": {"version": "3.2.0"}, "storage": {"disks": []}}),
                "$.storage.disks",
            ),
            (
                json!({"ignition": {"version": "3.2.0"}, "passwd": {"groups": []}}),
                "$.passwd.groups",
            ),
        ] {
            let error = into_bootstrap(bootstrap(), &overlay).unwrap_err();
            assert!(
                matches!(&error, IgnitionError::NotMergeable { path: at } if at == path),
                "{error}"
            );
        }
    }

    #[test]
    fn null_and_absent_are_the_same() {
        let bootstrap = json!({"ignition": {"version": "3.2.0"}, "storage": null, "passwd": {"users": null}});
        let overlay = ours(
            json!({"files": [{"path": "/f"}], "links": null}),
            Value::Null,
            json!([{"name": "core"}]),
        );
        let merged = into_bootstrap(bootstrap, &overlay).unwrap();
        assert_eq!(
            merged,
            json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [{"path": "/f"}]}, "passwd": {"users": [{"name": "core"}]}})
        );
    }

    /// Entries with fields this program knows nothing of.
    fn entries(prefix: &'static str) -> impl Strategy<Value = Vec<Value>> {
        prop::collection::btree_map("[a-z]{1,6}", ("[a-z]{1,8}", any::<i64>(), ".{0,5}"), 0..12).prop_map(
            move |entries| {
                let entry = |(path, (field, number, text)): (String, (String, i64, String))| {
                    let mut entry = json!({"path": format!("{prefix}{path}")});
                    entry[format!("x-{field}")] = json!({"n": number, "t": [text]});
                    entry
                };
                entries.into_iter().map(entry).collect()
            },
        )
    }

    proptest! {
        #[test]
        fn every_file_of_both_sides_is_kept_in_order(theirs in entries("/i/"), mine in entries("/o/"), extra in ".{0,8}") {
            let bootstrap = json!({"x-unknown": extra, "ignition": {"version": "3.2.0"}, "storage": {"files": theirs, "x": 1}});
            let overlay = json!({"ignition": {"version": "3.2.0"}, "storage": {"files": mine}});
            let merged = into_bootstrap(bootstrap.clone(), &overlay).unwrap();
            let mut expected = bootstrap;
            expected["storage"]["files"] = Value::from([theirs, mine].concat());
            prop_assert_eq!(merged.to_string(), expected.to_string());
        }

        #[test]
        fn any_json_is_merged_or_refused(odd in any_json()) {
            let mut odd = json!({"storage": odd, "systemd": odd, "passwd": odd});
            let _ = into_bootstrap(odd.clone(), &bootstrap());
            odd["ignition"] = json!({"version": "3.2.0"});
            for config in [odd.clone(), json!({"ignition": {"version": "3.2.0", "config": odd["storage"]}})] {
                let _ = into_bootstrap(config.clone(), &bootstrap());
                let _ = into_bootstrap(bootstrap(), &config);
                let _ = into_pointer(config, &bootstrap(), &API);
            }
        }
    }

    const NAMES: [&str; 10] = [
        "files",
        "links",
        "units",
        "users",
        "merge",
        "path",
        "name",
        "source",
        "sshAuthorizedKeys",
        "core",
    ];

    /// Any JSON, with the names that matter in any place.
    fn any_json() -> impl Strategy<Value = Value> {
        let name = || prop::sample::select(&NAMES[..]).prop_map(str::to_owned);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            name().prop_map(Value::from)
        ];
        leaf.prop_recursive(5, 40, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((name(), inner), 0..4).prop_map(|fields| fields.into_iter().collect()),
            ]
        })
    }
}
