//! What Ignition does to a config of an older spec before it merges it.
//!
//! Before a merge Ignition rewrites every config in the newest spec it knows, and some values do not come through as
//! they were. A node does so in any case, whatever wrote its config, so the values here are those it will use.
//! Source: coreos/ignition: `config/v3_*/translate/translate.go`.

use serde_json::{Map, Value};

use super::spec::{self, Field, Shape};
use super::{Major, Version};

/// A config's values as they are in the newest of the specs it is merged with; its version text stays.
///
/// One thing is not taken over: from 3.4 to 3.5 the reference loses a Tang server's `advertisement`.
pub(super) fn up(mut config: Value, version: Version, newest: Version) -> Value {
    if version.major == Major::Two {
        return config;
    }
    drop_later(spec::CONFIG, &mut config, version.minor);
    each(&mut config, "/storage/disks", |disk| {
        let partitions = disk.get_mut("partitions").and_then(Value::as_array_mut);
        for partition in partitions.into_iter().flatten().filter_map(Value::as_object_mut) {
            // To the reference no number and 0 are one.
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
    // Ignition 2.15 to 2.20 take these bits from 3.4 on; what came later takes them from 3.6 on.
    if version.minor < 4 || (version.minor < 6 && newest.minor >= 6) {
        each(&mut config, "/storage/files", without_special_bits);
        each(&mut config, "/storage/directories", without_special_bits);
    }
    config
}

/// A field of a later spec is no part of the config: were it kept, a child of that spec would bring it to life.
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

/// A text that could not be absent in the older spec: it says "", and so overrides a parent's.
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
