//! Ignition configs generated from the table of the spec: each field is optional, and every config is valid.

use std::collections::HashSet;

use ocpdeploy::ignition::spec::{self, Field, Key, Shape};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// A valid config of a version 3.0 to 3.`newest`, which stays valid when it is merged with others generated here.
pub fn config(newest: u32) -> impl Strategy<Value = Value> {
    let minor = prop_oneof![0..=newest, Just(newest)];
    (minor, object("", spec::CONFIG)).prop_map(|(minor, mut fields)| {
        let ignition = fields.entry("ignition").or_insert_with(|| json!({}));
        ignition["version"] = json!(format!("3.{minor}.0"));
        let mut config = Value::Object(fields);
        legalize(&mut config);
        config
    })
}

/// Some of the fields, each with some value or null.
fn object(at: &str, fields: &'static [Field]) -> BoxedStrategy<Map<String, Value>> {
    let fields: Vec<_> = fields
        .iter()
        .filter(|field| field.name != "version")
        .map(|field| {
            let at = format!("{at}.{}", field.name);
            let value = value(&at, &field.shape);
            let some = match field.shape {
                _ if is_key(&at) => Just(true).boxed(),
                Shape::Text | Shape::Integer | Shape::Bool => prop::bool::weighted(0.4).boxed(),
                _ => prop::bool::weighted(0.85).boxed(),
            };
            let nothing = prop::bool::weighted(0.1).prop_map(|null| null.then_some(Value::Null));
            (Just(field.name), some, value, nothing)
        })
        .collect();
    let strategy = fields.prop_map(|fields| {
        let field = |(name, some, value, nothing): (&str, bool, Value, Option<Value>)| {
            let value = if some { Some(value) } else { nothing };
            value.map(|value| (name.to_owned(), value))
        };
        fields.into_iter().filter_map(field).collect()
    });
    strategy.boxed()
}

fn value(at: &str, shape: &'static Shape) -> BoxedStrategy<Value> {
    let list = |entry: BoxedStrategy<Value>| prop::collection::vec(entry, 1..6).prop_map(Value::from).boxed();
    match shape {
        Shape::Bool => any::<bool>().prop_map(Value::from).boxed(),
        Shape::Text | Shape::Integer => prop::sample::select(pool(at)).boxed(),
        Shape::Set | Shape::Texts => list(prop::sample::select(pool(at)).boxed()),
        Shape::Object(fields) => object(at, fields).prop_map(Value::Object).boxed(),
        Shape::Keyed(_, fields) | Shape::Series(fields) => list(object(at, fields).prop_map(Value::Object).boxed()),
    }
}

/// Whether a field is required: keys, and fields that no entry of its kind may lack.
fn is_key(at: &str) -> bool {
    let (above, name) = at.rsplit_once('.').unwrap_or_default();
    let list = above.rsplit('.').next().unwrap_or_default();
    match name {
        "path" => list != "filesystems",
        "name" => !matches!(list, "user" | "group"),
        "device" | "url" | "thumbprint" | "level" | "target" | "format" | "number" | "label" => true,
        "devices" => true,
        _ => false,
    }
}

/// The values that a field can have.
fn pool(at: &str) -> Vec<Value> {
    let words = |words: &[&str]| words.iter().map(|word| json!(word)).collect();
    let (above, name) = at.rsplit_once('.').unwrap_or_default();
    let list = above.rsplit('.').next().unwrap_or_default();
    match (list, name) {
        ("files" | "directories" | "links", "path") => words(&["/p1", "/p2", "/p3", "/p4", "/p5", "/p6"]),
        (_, "mode") => [0, 0o600, 0o644, 644, 0o755, 0o4755].map(Value::from).to_vec(),
        ("user" | "group", "id") => [0, 1, 1000].map(Value::from).to_vec(),
        ("user" | "group", "name") => words(&["root", "core"]),
        (_, "target") => words(&["/t1", "/t2"]),
        (_, "source") => words(&["http://s/1", "http://s/2"]),
        (_, "compression") => words(&["", "gzip"]),
        (_, "hash") => vec![
            json!(format!("sha512-{}", "a".repeat(128))),
            json!(format!("sha512-{}", "b".repeat(128))),
        ],
        ("httpHeaders", "name") => words(&["A", "B", "C"]),
        ("httpHeaders", "value") => words(&["1", "2"]),
        ("disks", "device") => words(&["/dev/da", "/dev/db"]),
        ("partitions", "number") => [0, 1, 2, 3].map(Value::from).to_vec(),
        ("partitions", "label") => words(&["la", "lb", "lc"]),
        (_, "guid" | "typeGuid" | "uuid") => words(&["", "01234567-89ab-cdef-0123-456789abcdef"]),
        (_, "sizeMiB") => [10, 20].map(Value::from).to_vec(),
        (_, "startMiB") => [0, 1].map(Value::from).to_vec(),
        ("filesystems", "device") => words(&["/dev/fa", "/dev/fb", "/dev/fc"]),
        ("filesystems", "path") => words(&["", "/mnt"]),
        (_, "format") => words(&["ext4", "xfs", "btrfs"]),
        ("luks", "name") => words(&["custom", "bound", "keyed"]),
        ("luks", "device") => words(&["/dev/la", "/dev/lb"]),
        ("raid", "name") => words(&["ra", "rb"]),
        (_, "level") => words(&["raid1", "raid10"]),
        (_, "devices") => words(&["/dev/ra", "/dev/rb", "/dev/rc"]),
        (_, "spares" | "threshold" | "gid" | "uid" | "httpResponseHeaders" | "httpTotal") => {
            [0, 1, 5].map(Value::from).to_vec()
        }
        ("tang", "url") => words(&["http://t1", "http://t2"]),
        ("tang", "advertisement") => words(&["{\"payload\": \"a\"}"]),
        ("custom", "pin") => words(&["tpm2", "sss"]),
        ("units", "name") => words(&["a.service", "b.service", "c.socket"]),
        ("dropins", "name") => words(&["10-a.conf", "20-b.conf", "30-c.conf"]),
        (_, "contents") => words(&["", "[Unit]\nDescription=1\n", "[Unit]\nDescription=2\n"]),
        (_, "httpProxy" | "httpsProxy") => words(&["http://p:1", "http://p:2"]),
        (_, "homeDir" | "shell") => words(&["/a", "/b"]),
        _ => words(&["u", "v", "w", "x"]),
    }
}

/// Changes a generated config so that Ignition accepts it, alone and merged.
fn legalize(config: &mut Value) {
    // The sources of these are fetched immediately.
    for (object, field) in [("/ignition", "config"), ("/ignition", "security")] {
        config
            .pointer_mut(object)
            .and_then(Value::as_object_mut)
            .and_then(|object| object.remove(field));
    }
    distinct(spec::CONFIG, config);
    for list in ["files", "directories", "links"] {
        for entry in entries(config, &format!("/storage/{list}")) {
            // An owner by id in one layer and by name in another is an error of the merge.
            let other = if entry["path"].as_str() < Some("/p4") {
                "id"
            } else {
                "name"
            };
            for owner in ["user", "group"] {
                entry
                    .get_mut(owner)
                    .and_then(Value::as_object_mut)
                    .and_then(|owner| owner.remove(other));
            }
            if entry.pointer("/contents/source").is_none_or(Value::is_null) {
                entry.as_object_mut().unwrap().remove("overwrite");
            }
        }
    }
    for disk in entries(config, "/storage/disks") {
        for partition in entries(disk, "/partitions") {
            let number = partition["number"].as_u64().unwrap();
            if number != 0 {
                partition["label"] = json!(format!("l{number}"));
            }
            let fields = partition.as_object_mut().unwrap();
            fields.remove("shouldExist");
            fields.remove("resize");
            fields.remove("startMiB");
        }
    }
    for filesystem in entries(config, "/storage/filesystems") {
        if filesystem["path"] == "/mnt" {
            filesystem["path"] = json!(format!("/mnt{}", filesystem["device"].as_str().unwrap()));
        }
    }
    for luks in entries(config, "/storage/luks") {
        let name = luks["name"].as_str().unwrap().to_owned();
        let fields = luks.as_object_mut().unwrap();
        fields.remove("cex");
        let custom = json!({"pin": "tpm2", "config": "{}"});
        match name.as_str() {
            "custom" => {
                let theirs = fields.get("clevis").and_then(|clevis| clevis.get("custom")).cloned();
                let mut custom = custom;
                if let Some(Value::Object(theirs)) = theirs {
                    custom.as_object_mut().unwrap().extend(
                        theirs
                            .into_iter()
                            .filter(|(name, value)| name != "config" && !value.is_null()),
                    );
                }
                fields.insert("clevis".to_owned(), json!({"custom": custom}));
            }
            "bound" => {
                if let Some(clevis) = fields.get_mut("clevis").and_then(Value::as_object_mut) {
                    clevis.remove("custom");
                    clevis.remove("threshold");
                }
            }
            _ => {
                fields.remove("clevis");
            }
        }
    }
    for raid in entries(config, "/storage/raid") {
        if raid["devices"].as_array().is_none_or(Vec::is_empty) {
            raid["devices"] = json!(["/dev/ra"]);
        }
    }
    give_sources(config);
}

/// Headers and a hash require a source.
fn give_sources(value: &mut Value) {
    match value {
        Value::Array(entries) => entries.iter_mut().for_each(give_sources),
        Value::Object(fields) => {
            let of_something = ["httpHeaders", "verification"]
                .iter()
                .any(|name| fields.contains_key(*name));
            if of_something && fields.get("source").is_none_or(Value::is_null) {
                fields.insert("source".to_owned(), json!("http://s/1"));
            }
            fields.values_mut().for_each(give_sources);
        }
        _ => {}
    }
}

fn entries<'a>(config: &'a mut Value, list: &str) -> Vec<&'a mut Value> {
    config
        .pointer_mut(list)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .collect()
}

/// Leaves one entry for each key of a list, and of the lists that share theirs.
fn distinct(fields: &'static [Field], value: &mut Value) {
    let Value::Object(object) = value else { return };
    let mut seen: Vec<(&[&str], HashSet<String>)> = Vec::new();
    for (name, value) in object.iter_mut() {
        let Some(field) = spec::find(fields, name) else {
            continue;
        };
        if let Shape::Object(fields) = &field.shape {
            distinct(fields, value);
        }
        let Value::Array(entries) = value else { continue };
        if let Shape::Keyed(_, fields) | Shape::Series(fields) = &field.shape {
            entries.iter_mut().for_each(|entry| distinct(fields, entry));
        }
        let key = |entry: &Value| match &field.shape {
            Shape::Keyed(Key::Field(name), _) => entry[name].to_string(),
            Shape::Keyed(Key::NumberOrLabel, _) if entry["number"] != 0 => entry["number"].to_string(),
            Shape::Keyed(Key::NumberOrLabel, _) => entry["label"].to_string(),
            _ => entry.to_string(),
        };
        if matches!(field.shape, Shape::Keyed(..) | Shape::Set) {
            let own = std::slice::from_ref(&field.name);
            let handle = spec::SHARED_KEYS
                .iter()
                .find(|lists| lists.contains(&field.name))
                .copied()
                .unwrap_or(own);
            let index = seen.iter().position(|(lists, _)| *lists == handle).unwrap_or_else(|| {
                seen.push((handle, HashSet::new()));
                seen.len() - 1
            });
            entries.retain(|entry| seen[index].1.insert(key(entry)));
        }
    }
}
