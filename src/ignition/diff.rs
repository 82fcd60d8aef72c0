//! Differences in the meaning of two configs, independent of their notation.
//!
//! The order of JSON keys, keyed lists and sets is ignored, and so is the encoding of data URLs. Missing, `null`, `{}`
//! and `[]` are equal.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::contents::{self, Contents};
use super::spec::{self, Field, Key, Shape};

/// One place where two configs differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// E.g. `$.storage.files[/etc/hostname].mode`; the path within an embedded config follows a second `$`.
    pub path: String,
    pub change: Change,
}

/// The kind of a difference. The values may be secrets.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    Added(Value),
    Removed(Value),
    Changed {
        old: Value,
        new: Value,
    },
    /// Decoded and decompressed bytes, or text of several lines.
    Contents {
        old: Vec<u8>,
        new: Vec<u8>,
    },
    /// The same entries in a different order, by their keys, in an ordered list.
    Order {
        old: Vec<String>,
        new: Vec<String>,
    },
}

/// Lists whose order matters: what is fetched last overrides the others, and a partition without a number
/// follows the previous one.
const ORDERED: &[&str] = &["merge", "append", "partitions"];

/// All differences, in the order of the first config, then of the second.
pub fn diff(old: &Value, new: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    object(&mut found, "$", spec::CONFIG, old, new);
    found
}

fn tell(found: &mut Vec<Difference>, path: &str, change: Change) {
    let path = path.to_owned();
    found.push(Difference { path, change });
}

fn object(found: &mut Vec<Difference>, path: &str, fields: &'static [Field], old: &Value, new: &Value) {
    let (Some(olds), Some(news)) = (fields_of(old), fields_of(new)) else {
        return plain(found, path, old, new);
    };
    let same_bytes = contents(found, path, fields, old, new);
    let only_new = news.keys().filter(|name| !olds.contains_key(*name));
    for name in olds.keys().chain(only_new) {
        if same_bytes && ["source", "compression"].contains(&name.as_str()) {
            continue;
        }
        let (old, new) = (&old[name.as_str()], &new[name.as_str()]);
        value(found, &format!("{path}.{name}"), shape(path, name, fields), old, new);
    }
}

/// The shape of a field; `None` for unknown fields.
fn shape(path: &str, name: &str, fields: &'static [Field]) -> Option<&'static Shape> {
    // Spec 2 has another name for it.
    let name = match path.ends_with(".config") && name == "append" {
        true => "merge",
        false => name,
    };
    fields.iter().find(|field| field.name == name).map(|field| &field.shape)
}

/// The fields of an object; empty if it is missing, `None` for another type.
fn fields_of(value: &Value) -> Option<&serde_json::Map<String, Value>> {
    static NONE: std::sync::LazyLock<serde_json::Map<String, Value>> = std::sync::LazyLock::new(Default::default);
    match value {
        Value::Object(fields) => Some(fields),
        Value::Null => Some(&NONE),
        _ => None,
    }
}

fn entries_of(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(entries) => Some(entries),
        Value::Null => Some(&[]),
        _ => None,
    }
}

fn value(found: &mut Vec<Difference>, path: &str, shape: Option<&'static Shape>, old: &Value, new: &Value) {
    let lists = entries_of(old).zip(entries_of(new));
    match (shape, lists) {
        (Some(Shape::Object(fields)), _) => object(found, path, fields, old, new),
        (Some(Shape::Keyed(key, fields)), Some((old, new))) => keyed(found, path, *key, fields, old, new),
        (Some(Shape::Series(fields)), Some((old, new))) => series(found, path, fields, old, new),
        (Some(Shape::Set), Some((old, new))) => set(found, path, old, new),
        _ => plain(found, path, old, new),
    }
}

/// Compares two values of unknown shape.
fn plain(found: &mut Vec<Difference>, path: &str, old: &Value, new: &Value) {
    let change = match (old, new) {
        _ if old == new || (is_nothing(old) && is_nothing(new)) => return,
        (Value::String(old), Value::String(new)) if old.contains('\n') || new.contains('\n') => Change::Contents {
            old: old.as_bytes().to_vec(),
            new: new.as_bytes().to_vec(),
        },
        _ if is_nothing(old) => Change::Added(new.clone()),
        _ if is_nothing(new) => Change::Removed(old.clone()),
        _ => Change::Changed {
            old: old.clone(),
            new: new.clone(),
        },
    };
    tell(found, path, change);
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(entries) => entries.is_empty(),
        Value::Object(fields) => fields.values().all(is_nothing),
        _ => false,
    }
}

/// Compares the content of two resources; false if one of them is not embedded.
fn contents(found: &mut Vec<Difference>, path: &str, fields: &[Field], old: &Value, new: &Value) -> bool {
    if !fields.iter().any(|field| field.name == "source") {
        return false;
    }
    let (Ok(Contents::Bytes(old)), Ok(Contents::Bytes(new))) = (contents::of(old), contents::of(new)) else {
        return false;
    };
    if old == new {
        return true;
    }
    let config = |bytes: &[u8]| -> Option<Value> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        value.pointer("/ignition/version").is_some().then_some(value)
    };
    // Embedded configs, e.g. an overlay in a pointer, are compared as configs.
    match (config(&old), config(&new)) {
        (Some(old), Some(new)) if path.starts_with("$.ignition.config") => {
            object(found, &format!("{path} $"), spec::CONFIG, &old, &new);
        }
        _ => tell(found, path, Change::Contents { old, new }),
    }
    true
}

fn keyed(found: &mut Vec<Difference>, path: &str, key: Key, fields: &'static [Field], old: &[Value], new: &[Value]) {
    let (olds, news) = (labelled(key, old), labelled(key, new));
    let find = |labels: &[(String, &'_ Value)]| -> HashMap<String, usize> {
        let numbered = labels.iter().enumerate();
        numbered.map(|(index, (label, _))| (label.clone(), index)).collect()
    };
    let (in_old, in_new) = (find(&olds), find(&news));
    for (label, old) in &olds {
        let path = format!("{path}[{label}]");
        match in_new.get(label).and_then(|index| news.get(*index)) {
            Some((_, new)) => object(found, &path, fields, old, new),
            None => tell(found, &path, Change::Removed((*old).clone())),
        }
    }
    for (label, new) in news.iter().filter(|(label, _)| !in_old.contains_key(label)) {
        tell(found, &format!("{path}[{label}]"), Change::Added((*new).clone()));
    }
    if ORDERED.iter().any(|list| path.ends_with(&format!(".{list}"))) {
        let common = |labels: &[(String, &Value)], other: &HashMap<String, usize>| -> Vec<String> {
            let labels = labels.iter().map(|(label, _)| label.clone());
            labels.filter(|label| other.contains_key(label)).collect()
        };
        let (old, new) = (common(&olds, &in_new), common(&news, &in_old));
        if old != new {
            tell(found, path, Change::Order { old, new });
        }
    }
}

/// The entries of a list with unique labels: their key, numbered if it occurs more than once.
fn labelled(key: Key, entries: &[Value]) -> Vec<(String, &Value)> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let label = |entry| {
        let label = match key_of(key, entry) {
            // Embedded data has no name; it is matched by order.
            Some(source) if contents::is_data(&source) => "data".to_owned(),
            Some(key) => key,
            None => "?".to_owned(),
        };
        let count = seen.entry(label.clone()).or_default();
        *count += 1;
        match *count {
            1 => (label, entry),
            count => (format!("{label} #{count}"), entry),
        }
    };
    entries.iter().map(label).collect()
}

fn key_of(key: Key, entry: &Value) -> Option<String> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).map(str::to_owned);
    match key {
        Key::Field(name) => text(name),
        Key::NumberOrLabel => match entry.get("number").and_then(Value::as_i64) {
            Some(number) if number != 0 => Some(number.to_string()),
            _ => text("label"),
        },
    }
}

fn series(found: &mut Vec<Difference>, path: &str, fields: &'static [Field], old: &[Value], new: &[Value]) {
    for index in 0..old.len().max(new.len()) {
        let path = format!("{path}.{index}");
        match (old.get(index), new.get(index)) {
            (Some(old), Some(new)) => object(found, &path, fields, old, new),
            (Some(old), None) => tell(found, &path, Change::Removed(old.clone())),
            (None, Some(new)) => tell(found, &path, Change::Added(new.clone())),
            (None, None) => {}
        }
    }
}

fn set(found: &mut Vec<Difference>, path: &str, old: &[Value], new: &[Value]) {
    let (olds, news): (HashSet<_>, HashSet<_>) = (old.iter().collect(), new.iter().collect());
    for gone in old.iter().filter(|value| !news.contains(value)) {
        tell(found, path, Change::Removed(gone.clone()));
    }
    for come in new.iter().filter(|value| !olds.contains(value)) {
        tell(found, path, Change::Added(come.clone()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ignition::contents::data_url;

    fn config(rest: Value) -> Value {
        let mut config = json!({"ignition": {"version": "3.2.0"}});
        for (section, value) in rest.as_object().unwrap() {
            config[section] = value.clone();
        }
        config
    }

    fn paths(old: &Value, new: &Value) -> Vec<String> {
        let sign = |difference: Difference| match difference.change {
            Change::Added(_) => format!("+ {}", difference.path),
            Change::Removed(_) => format!("- {}", difference.path),
            Change::Changed { old, new } => format!("~ {} {old} {new}", difference.path),
            Change::Contents { old, new } => format!(
                "~ {} {:?} {:?}",
                difference.path,
                String::from_utf8(old).unwrap(),
                String::from_utf8(new).unwrap()
            ),
            Change::Order { old, new } => format!("~ {} {old:?} {new:?}", difference.path),
        };
        diff(old, new).into_iter().map(sign).collect()
    }

    #[test]
    fn equivalent_configs_have_no_differences() {
        let one = config(json!({
            "storage": {"files": [
                {"path": "/a", "mode": 420, "contents": {"source": "data:,a%0A", "verification": {}}},
                {"path": "/b"},
            ], "links": []},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k1", "k2"]}]},
            "unknown": {"x": [1, 2], "y": null},
        }));
        let other = json!({
            "unknown": {"y": null, "x": [1, 2]},
            "passwd": {"users": [{"sshAuthorizedKeys": ["k2", "k1"], "name": "core", "groups": []}]},
            "storage": {"files": [
                {"path": "/b", "contents": {"source": null}},
                {"contents": {"compression": "", "source": data_url(b"a\n")}, "path": "/a", "mode": 420},
            ]},
            "systemd": {},
            "ignition": {"version": "3.2.0", "config": {"merge": []}},
        });
        assert_eq!(diff(&one, &other), []);
        assert_eq!(diff(&other, &one), []);
    }

    #[test]
    fn each_difference_is_reported_with_its_path() {
        let old = config(json!({
            "storage": {
                "files": [
                    {"path": "/gone"},
                    {"path": "/a", "mode": 420, "append": [{"source": "data:,1"}, {"source": "data:,2"}],
                     "contents": {"source": "data:,old"}},
                    {"path": "/far", "contents": {"source": "http://a/", "compression": "gzip"}},
                ],
                "disks": [{"device": "/dev/vda", "partitions": [{"number": 1}, {"label": "var"}]}],
            },
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k1", "k2"]}]},
            "systemd": {"units": [{"name": "x.service", "enabled": true, "contents": "[Unit]\n"}]},
        }));
        let new = config(json!({
            "storage": {
                "files": [
                    {"path": "/a", "mode": 384, "append": [{"source": "data:,1"}], "contents": {"source": "data:,new"}},
                    {"path": "/far", "contents": {"source": "http://b/", "compression": "gzip"}},
                    {"path": "/come"},
                ],
                "disks": [{"device": "/dev/vda", "partitions": [{"label": "var"}, {"number": 1, "sizeMiB": 5}]}],
            },
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k2", "k3"]}]},
            "systemd": {"units": [{"name": "x.service", "enabled": false, "contents": "[Unit]\nAfter=y\n"}]},
            "unknown": 1,
        }));
        assert_eq!(
            paths(&old, &new),
            [
                "- $.storage.files[/gone]",
                "~ $.storage.files[/a].mode 420 384",
                "- $.storage.files[/a].append.1",
                "~ $.storage.files[/a].contents \"old\" \"new\"",
                "~ $.storage.files[/far].contents.source \"http://a/\" \"http://b/\"",
                "+ $.storage.files[/come]",
                "+ $.storage.disks[/dev/vda].partitions[1].sizeMiB",
                "~ $.storage.disks[/dev/vda].partitions [\"1\", \"var\"] [\"var\", \"1\"]",
                "- $.passwd.users[core].sshAuthorizedKeys",
                "+ $.passwd.users[core].sshAuthorizedKeys",
                "~ $.systemd.units[x.service].enabled true false",
                "~ $.systemd.units[x.service].contents \"[Unit]\\n\" \"[Unit]\\nAfter=y\\n\"",
                "+ $.unknown",
            ]
        );
    }

    #[test]
    fn an_overlay_within_a_pointer_is_compared_as_a_config() {
        for (version, list) in [("3.2.0", "merge"), ("2.2.0", "append")] {
            let pointer = |host: &str, mode: u32| {
                let file =
                    json!({"path": "/etc/hostname", "mode": mode, "contents": {"source": data_url(host.as_bytes())}});
                let overlay = json!({"ignition": {"version": version}, "storage": {"files": [file]}});
                let entries = json!([
                    {"source": "https://api-int.lab.example.com:22623/config/master"},
                    {"source": data_url(overlay.to_string().as_bytes())},
                ]);
                json!({"ignition": {"version": version, "config": {list: entries}}})
            };
            let place = format!("$.ignition.config.{list}[data] $.storage.files[/etc/hostname]");
            assert_eq!(
                paths(&pointer("master-0", 420), &pointer("master-1", 384)),
                [
                    format!("~ {place}.mode 420 384"),
                    format!("~ {place}.contents \"master-0\" \"master-1\"")
                ]
            );
        }
    }

    #[test]
    fn the_order_of_fetched_configs_matters() {
        let merge = |sources: [&str; 2]| {
            let entries: Vec<_> = sources.iter().map(|source| json!({"source": source})).collect();
            json!({"ignition": {"version": "3.2.0", "config": {"merge": entries}}})
        };
        assert_eq!(
            paths(&merge(["http://a/", "http://b/"]), &merge(["http://b/", "http://a/"])),
            ["~ $.ignition.config.merge [\"http://a/\", \"http://b/\"] [\"http://b/\", \"http://a/\"]"]
        );
    }

    #[test]
    fn entries_of_one_key_are_compared_in_their_order() {
        let files = |contents: &[&str]| {
            let file = |text: &&str| json!({"path": "/a", "contents": {"source": format!("data:,{text}")}});
            let files: Vec<_> = contents.iter().map(file).collect();
            json!({"ignition": {"version": "2.2.0"}, "storage": {"files": files}})
        };
        assert_eq!(
            paths(&files(&["1", "2"]), &files(&["1", "3", "4"])),
            [
                "~ $.storage.files[/a #2].contents \"2\" \"3\"",
                "+ $.storage.files[/a #3]"
            ]
        );
    }

    #[test]
    fn any_json_is_compared() {
        let odd = [
            json!(null),
            json!(7),
            json!([1]),
            json!({"storage": 7}),
            json!({"storage": {"files": {"path": 1}}}),
            json!({"storage": {"files": [7, null, {"path": 7}, {"contents": []}]}}),
        ];
        for old in &odd {
            assert_eq!(diff(old, old), [], "{old}");
            for new in odd.iter().filter(|new| *new != old) {
                assert_ne!(diff(old, new), [], "{old} {new}");
            }
        }
    }
}
