//! Ignition's translation of a config to a newer spec, before a merge.
//!
//! Before a merge Ignition translates every config to the newest spec it supports, which changes some values. Every
//! node does so, so the values here are the ones that it will use.
//! Source: coreos/ignition: `config/v3_*/translate/translate.go`.

use serde_json::{Map, Value};

use super::spec::{self, Field, Shape};
use super::{Major, Version};

/// A config's values in the newest spec of the merged configs; the version text is unchanged.
///
/// One effect is not reproduced: from 3.4 to 3.5 the reference implementation loses a Tang server's `advertisement`.
pub(super) fn up(mut config: Value, version: Version, newest: Version) -> Value {
    if version.major == Major::Two {
        return config;
    }
    drop_later(spec::CONFIG, &mut config, version.minor);
    each(&mut config, "/storage/disks", |disk| {
        let partitions = disk.get_mut("partitions").and_then(Value::as_array_mut);
        for partition in partitions.into_iter().flatten().filter_map(Value::as_object_mut) {
            // The reference implementation does not distinguish no number from 0.
            if partition.get("number").is_some_and(|number| number == 0) {
                partition.shift_remove("number");
            }
        }
    });
    if version.minor < 1 {
        let authorities = "/ignition/security/tls/certificateAuthorities";
        each(&mut config, authorities, |authority| say(authority, "source"));
    }
    if version.minor < 3 {
        each(&mut config, "/storage/links", |link| say(link, "target"));
        each(&mut config, "/storage/raid", |raid| say(raid, "level"));
        each(&mut config, "/storage/luks", |luks| {
            let custom = luks.get_mut("clevis").and_then(|clevis| clevis.get_mut("custom"));
            if let Some(Value::Object(custom)) = custom {
                say(custom, "config");
                say(custom, "pin");
            }
        });
    }
    // Ignition 2.15 to 2.20 accept these bits from 3.4 on; later ones from 3.6 on.
    if version.minor < 4 || (version.minor < 6 && newest.minor >= 6) {
        each(&mut config, "/storage/files", without_special_bits);
        each(&mut config, "/storage/directories", without_special_bits);
    }
    config
}

/// A field of a later spec is not part of the config: if it were kept, a child of that spec would make it effective.
fn drop_later(fields: &'static [Field], value: &mut Value, minor: u32) {
    let Value::Object(object) = value else { return };
    object.retain(|name, value| {
        let Some(field) = spec::find(fields, name) else {
            return true;
        };
        match field.shape {
            Shape::Object(fields) => drop_later(fields, value, minor),
            Shape::Keyed(_, fields) | Shape::Series(fields) => {
                for entry in value.as_array_mut().into_iter().flatten() {
                    drop_later(fields, entry, minor);
                }
            }
            Shape::Text | Shape::Integer | Shape::Bool | Shape::Set | Shape::Texts => {}
        }
        field.since <= minor
    });
}

fn each(config: &mut Value, list: &str, change: impl Fn(&mut Map<String, Value>)) {
    let entries = config.pointer_mut(list).and_then(Value::as_array_mut);
    entries
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
        .for_each(change);
}

/// A text that cannot be missing in the older spec: it is "", and overrides a parent's.
fn say(object: &mut Map<String, Value>, field: &str) {
    let value = object.entry(field).or_insert(Value::Null);
    if value.is_null() {
        *value = "".into();
    }
}

fn without_special_bits(entry: &mut Map<String, Value>) {
    if let Some(mode) = entry.get_mut("mode")
        && let Some(bits) = mode.as_i64()
    {
        *mode = (bits & !0o7000).into();
    }
}
