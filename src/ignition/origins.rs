//! Which layers the parts of an effective config come from.
//!
//! The layers are merged a second time with each value replaced by its layer's number: the result gives the origin of
//! every effective value, by the same rules.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::spec::{self, Field, Key, Shape};
use super::{IgnitionError, merge, translate, version};

/// One of several merged configs and its origin: a file, or a description such as `ocpdeploy's overlay`.
#[derive(Clone, Debug)]
pub struct Layer {
    pub origin: String,
    pub config: Value,
}

/// The origin of one entry of the effective config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// `file`, `directory`, `link`, `unit`, `drop-in`, `user`, `ssh key` and so on.
    pub kind: &'static str,
    /// Its path, name, device, number or source; an ssh key itself.
    pub key: String,
    /// The key of the entry it is part of: a drop-in's unit, a partition's disk, an ssh key's user.
    pub part_of: Option<String>,
    /// Its position in the result of [`merge_layers`], as a JSON pointer.
    pub pointer: String,
    /// Origins of the layers that contribute to it, lowest first.
    pub layers: Vec<String>,
    /// If there are several layers: each field (`contents.source`, `mode`) and its origins.
    pub fields: Vec<(String, Vec<String>)>,
}

/// Merges all layers, the first being the lowest; an error without any.
///
/// The values of a single layer are also translated, as its node would.
pub fn merge_layers(layers: &[Layer]) -> Result<Value, IgnitionError> {
    let [first, others @ ..] = layers else {
        return Err(IgnitionError::NoVersion);
    };
    let version = version(&first.config)?;
    let lowest = translate::up(first.config.clone(), version, version);
    let over = |below: Value, layer: &Layer| merge::merge(&below, &layer.config);
    others.iter().try_fold(lowest, over)
}

/// The origin of every keyed list entry, SSH key and kernel argument; in the effective order.
pub fn origins(layers: &[Layer]) -> Result<Vec<Origin>, IgnitionError> {
    let effective = merge_layers(layers)?;
    let newest = version(&effective)?;
    let mut stamped = json!({});
    for (number, layer) in layers.iter().enumerate() {
        let config = translate::up(layer.config.clone(), version(&layer.config)?, newest);
        stamped = merge::over(newest.major, stamped, &stamp(spec::CONFIG, config, number))?;
    }
    let mut reader = Reader { layers, found: vec![] };
    reader.read(spec::CONFIG, &effective, &stamped, "", None);
    Ok(reader.found)
}

/// Prefix of a layer's number that no config contains; alone, the name of the field that lists an entry's layers.
const MARK: &str = "\0";

fn mark(number: usize) -> Value {
    format!("{MARK}{number}").into()
}

/// One field for each layer: unknown objects are merged field by field, so all are kept.
fn marks(number: usize) -> Value {
    json!({number.to_string(): mark(number)})
}

/// A config with each value replaced by its layer's number; keys are unchanged.
fn stamp(fields: &'static [Field], value: Value, number: usize) -> Value {
    let Value::Object(object) = value else {
        return mark(number);
    };
    let present = object.into_iter().filter(|(_, value)| !value.is_null());
    let stamped = present.map(
        |(name, value)| match (spec::find(fields, &name).map(|field| &field.shape), value) {
            (Some(Shape::Keyed(key, fields)), Value::Array(entries)) => {
                let entry = |entry| stamp_entry(*key, fields, entry, number);
                (name, entries.into_iter().map(entry).collect())
            }
            // In an unknown field, so that each text can be assigned to its layers.
            (Some(Shape::Set), Value::Array(entries)) => {
                let texts = entries.iter().filter_map(Value::as_str);
                let texts = texts.map(|text| (text.to_owned(), marks(number)));
                (set_name(&name), texts.collect())
            }
            (_, Value::Array(entries)) => (name, entries.iter().map(|_| mark(number)).collect()),
            (Some(Shape::Object(fields)), value) => (name, stamp(fields, value, number)),
            (_, value) => (name, stamp(&[], value, number)),
        },
    );
    stamped.collect()
}

fn stamp_entry(key: Key, fields: &'static [Field], mut entry: Value, number: usize) -> Value {
    if entry.is_null() {
        entry = json!({});
    }
    let names: &[&str] = match &key {
        Key::Field(name) => &[*name],
        Key::NumberOrLabel => &["number", "label"],
    };
    let kept: Vec<_> = names.iter().map(|name| (*name, entry[*name].clone())).collect();
    let mut stamped = stamp(fields, entry, number);
    if let Value::Object(stamped) = &mut stamped {
        for (name, value) in kept.into_iter().filter(|(_, value)| !value.is_null()) {
            stamped.insert(name.to_owned(), value);
        }
        stamped.insert(MARK.to_owned(), marks(number));
    }
    stamped
}

fn set_name(field: &str) -> String {
    format!("{MARK}{field}")
}

/// Reads the effective config and the stamped one together.
struct Reader<'a> {
    layers: &'a [Layer],
    found: Vec<Origin>,
}

impl Reader<'_> {
    fn read(
        &mut self,
        fields: &'static [Field],
        effective: &Value,
        stamped: &Value,
        pointer: &str,
        part_of: Option<&str>,
    ) {
        for (name, value) in effective.as_object().into_iter().flatten() {
            let Some(field) = spec::find(fields, name) else {
                continue;
            };
            let pointer = format!("{pointer}/{name}");
            let entries = value.as_array().into_iter().flatten().enumerate();
            match &field.shape {
                Shape::Object(fields) => self.read(fields, value, &stamped[name], &pointer, part_of),
                Shape::Keyed(key, fields) => {
                    for (index, entry) in entries {
                        let (stamped, pointer) = (&stamped[name][index], format!("{pointer}/{index}"));
                        let key = key_text(*key, entry);
                        self.add(kind(field), &key, part_of, &pointer, stamped, fields);
                        self.read(fields, entry, stamped, &pointer, Some(&key));
                    }
                }
                Shape::Set if matches!(field.name, "sshAuthorizedKeys" | "shouldExist" | "shouldNotExist") => {
                    let stamped = &stamped[set_name(name)];
                    for (index, text) in entries.filter_map(|(index, text)| Some((index, text.as_str()?))) {
                        let pointer = format!("{pointer}/{index}");
                        self.add(kind(field), text, part_of, &pointer, &stamped[text], &[]);
                    }
                }
                _ => {}
            }
        }
    }

    fn add(
        &mut self,
        kind: &'static str,
        key: &str,
        part_of: Option<&str>,
        pointer: &str,
        stamped: &Value,
        fields: &'static [Field],
    ) {
        let layers = contributors(stamped);
        let mut parts = Vec::new();
        if layers.len() > 1 && !fields.is_empty() {
            self.parts(fields, stamped, "", &mut parts);
        }
        self.found.push(Origin {
            kind,
            key: key.to_owned(),
            part_of: part_of.map(str::to_owned),
            pointer: pointer.to_owned(),
            layers: self.names(&layers),
            fields: parts,
        });
    }

    /// Each field and its layers; an object from several layers field by field.
    fn parts(&self, fields: &'static [Field], stamped: &Value, above: &str, parts: &mut Vec<(String, Vec<String>)>) {
        for (name, value) in stamped
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, _)| *name != MARK)
        {
            let layers = contributors(value);
            let path = format!("{above}{}", name.trim_start_matches(MARK));
            match spec::find(fields, name).map(|field| &field.shape) {
                Some(Shape::Object(fields)) if layers.len() > 1 => {
                    self.parts(fields, value, &format!("{path}."), parts)
                }
                // All layers have the key.
                _ if layers.is_empty() => {}
                _ => parts.push((path, self.names(&layers))),
            }
        }
    }

    fn names(&self, layers: &BTreeSet<usize>) -> Vec<String> {
        let names = layers.iter().filter_map(|&number| self.layers.get(number));
        names.map(|layer| layer.origin.clone()).collect()
    }
}

/// The layers that set values in an entry; for an entry without values besides its key, the layers that contain it.
fn contributors(stamped: &Value) -> BTreeSet<usize> {
    match stamped {
        Value::String(text) => {
            let number = text.strip_prefix(MARK).and_then(|number| number.parse().ok());
            number.into_iter().collect()
        }
        Value::Array(entries) => entries.iter().flat_map(contributors).collect(),
        Value::Object(object) => {
            let values = object.iter().filter(|(name, _)| *name != MARK);
            let layers: BTreeSet<_> = values.flat_map(|(_, value)| contributors(value)).collect();
            if layers.is_empty() {
                object.get(MARK).map(contributors).unwrap_or_default()
            } else {
                layers
            }
        }
        _ => BTreeSet::new(),
    }
}

fn key_text(key: Key, entry: &Value) -> String {
    let key = match key {
        Key::Field(name) => &entry[name],
        Key::NumberOrLabel if entry["number"].is_number() => &entry["number"],
        Key::NumberOrLabel => &entry["label"],
    };
    key.as_str().map_or_else(|| key.to_string(), str::to_owned)
}

fn kind(field: &Field) -> &'static str {
    match field.name {
        "certificateAuthorities" => "certificate authority",
        "directories" => "directory",
        "disks" => "disk",
        "dropins" => "drop-in",
        "files" => "file",
        "filesystems" => "file system",
        "groups" => "group",
        "httpHeaders" => "HTTP header",
        "links" => "link",
        "luks" => "LUKS volume",
        "merge" => "config to merge",
        "partitions" => "partition",
        "raid" => "RAID array",
        "shouldExist" => "kernel argument",
        "shouldNotExist" => "unwanted kernel argument",
        "sshAuthorizedKeys" => "ssh key",
        "tang" => "tang server",
        "units" => "unit",
        "users" => "user",
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(configs: &[Value]) -> Vec<Layer> {
        let layer = |(origin, config): (char, &Value)| {
            let mut config = config.clone();
            if config.get("ignition").is_none() {
                config["ignition"] = json!({"version": "3.2.0"});
            }
            Layer {
                origin: origin.to_string(),
                config,
            }
        };
        ('a'..).zip(configs).map(layer).collect()
    }

    /// One line for each entry: kind, key, parent, layers, fields; its pointer must be valid.
    fn lines(configs: &[Value]) -> Vec<String> {
        let layers = layers(configs);
        let effective = merge_layers(&layers).unwrap();
        let line = |origin: Origin| {
            assert!(effective.pointer(&origin.pointer).is_some(), "{origin:?}");
            let part_of = origin
                .part_of
                .map(|part_of| format!(" of {part_of}"))
                .unwrap_or_default();
            let fields = origin
                .fields
                .iter()
                .map(|(field, layers)| format!(" {field}={}", layers.join("+")));
            let fields = fields.collect::<String>();
            format!(
                "{} {}{part_of}: {}{fields}",
                origin.kind,
                origin.key,
                origin.layers.join("+")
            )
        };
        origins(&layers).unwrap().into_iter().map(line).collect()
    }

    #[test]
    fn each_field_comes_from_the_last_layer_that_sets_it() {
        let lowest = json!({"storage": {"files": [
            {"path": "/one", "mode": 420},
            {"path": "/both", "mode": 420, "contents": {"source": "data:,a", "compression": "gzip"}, "user": {"id": 0}},
            {"path": "/covered", "mode": 420},
        ]}});
        let middle = json!({"storage": {"files": [
            {"path": "/both", "contents": {"source": "data:,b", "compression": null}, "append": [{"source": "data:,c"}]},
            {"path": "/covered", "mode": 384},
            {"path": "/bare"},
        ]}});
        let highest = json!({"storage": {"files": [{"path": "/both", "append": [{"source": "data:,d"}]}]}});
        assert_eq!(
            lines(&[lowest, middle, highest]),
            [
                "file /one: a",
                "file /both: a+b+c mode=a contents.source=b contents.compression=a user=a append=b+c",
                "file /covered: b",
                "file /bare: b",
            ]
        );
    }

    #[test]
    fn nested_entries_name_their_parent() {
        let lower = json!({
            "systemd": {"units": [{"name": "u.service", "enabled": true, "dropins": [{"name": "1.conf", "contents": ""}]}]},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k1", "k2"]}]},
        });
        let upper = json!({
            "systemd": {"units": [{"name": "u.service", "dropins": [{"name": "2.conf"}, {"name": "1.conf", "contents": "x"}]}]},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k3", "k1"], "shell": "/bin/sh"}, {"name": "new"}]},
            "storage": {"disks": [{"device": "/dev/vda", "partitions": [{"number": 1}, {"label": "l", "sizeMiB": 1}]}]},
        });
        assert_eq!(
            lines(&[lower, upper]),
            [
                "unit u.service: a+b enabled=a dropins=b",
                "drop-in 1.conf of u.service: b",
                "drop-in 2.conf of u.service: b",
                "user core: a+b sshAuthorizedKeys=a+b shell=b",
                "ssh key k1 of core: a+b",
                "ssh key k2 of core: a",
                "ssh key k3 of core: b",
                "user new: b",
                "disk /dev/vda: b",
                "partition 1 of /dev/vda: b",
                "partition l of /dev/vda: b",
            ]
        );
    }

    #[test]
    fn an_entry_replaced_by_another_kind_has_no_origin() {
        let file = json!({"storage": {"files": [{"path": "/x", "mode": 420}]}});
        let link = json!({"storage": {"links": [{"path": "/x", "target": "/y"}]}});
        assert_eq!(lines(&[file.clone(), link.clone()]), ["link /x: b"]);
        assert_eq!(lines(&[file.clone(), link, file]), ["file /x: c"]);
    }

    #[test]
    fn wanted_and_unwanted_kernel_arguments_are_distinguished() {
        let config = |list: &str, arguments: &[&str]| json!({"ignition": {"version": "3.3.0"}, "kernelArguments": {list: arguments}});
        let wanted = config("shouldExist", &["quiet", "debug"]);
        let unwanted = config("shouldNotExist", &["quiet"]);
        assert_eq!(
            lines(&[wanted, unwanted]),
            ["kernel argument debug: a", "unwanted kernel argument quiet: b"]
        );
    }

    #[test]
    fn spec_2_keeps_every_entry() {
        let config = |mode: u32| json!({"ignition": {"version": "2.2.0"}, "storage": {"files": [{"path": "/x", "filesystem": "root", "mode": mode}]}});
        assert_eq!(lines(&[config(420), config(384)]), ["file /x: a", "file /x: b"]);
    }

    #[test]
    fn missing_and_invalid_layers_are_rejected() {
        assert!(matches!(merge_layers(&[]), Err(IgnitionError::NoVersion)));
        let odd = layers(&[
            json!({"storage": {"files": [1]}}),
            json!({"storage": {"files": [{"path": "/x"}]}}),
        ]);
        assert_eq!(
            origins(&odd).unwrap_err().to_string(),
            "$.storage.files.0 must be an object"
        );
    }
}
