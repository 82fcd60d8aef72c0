//! Ignition's own merge of two configs: the child overrides the parent, field by field.
//!
//! The table in `spec.rs` defines how each field is merged; the reference is coreos/ignition: `config/merge/merge.go`.
//! Fields have the parent's order, then the child's new ones: the same input gives the same bytes.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Number, Value};

use super::spec::{self, Field, Key, Shape};
use super::{IgnitionError, Major, translate, version};

type Object = Map<String, Value>;

/// Merges the child over the parent, at the higher of their versions.
///
/// Null counts as missing everywhere. An unknown field is kept: objects are merged field by field, other values and
/// lists are the child's, because their entries cannot be identified. Neither config is checked.
pub fn merge(parent: &Value, child: &Value) -> Result<Value, IgnitionError> {
    let (theirs, ours) = (version(parent)?, version(child)?);
    if theirs.major != ours.major {
        return Err(IgnitionError::Majors { ours, theirs });
    }
    let newest = theirs.max(ours);
    let parent = translate::up(parent.clone(), theirs, newest);
    let child = translate::up(child.clone(), ours, newest);
    let mut merged = over(newest.major, parent, &child)?;
    if let Some(version) = merged.pointer_mut("/ignition/version") {
        *version = newest.to_string().into();
    }
    Ok(merged)
}

/// Merges a child over a parent of the same version.
pub(super) fn over(major: Major, parent: Value, child: &Value) -> Result<Value, IgnitionError> {
    match major {
        Major::Two => Ok(append(parent, child)),
        Major::Three => object(spec::CONFIG, parent, child),
    }
}

/// Version 2 has no keys: lists are concatenated, and at first boot the last of two entries is effective.
///
/// coreos/ignition, branch spec2x: `config/v2_4/append.go`. When Ignition appends a
/// config, it has already fetched the parent's `ignition.config`, so only the child's is kept. The child's proxies also
/// replace the parent's, even if the child sets none: in that version, a proxy cannot be missing.
fn append(mut parent: Value, child: &Value) -> Value {
    for (object, field) in [
        ("/ignition", "config"),
        ("/ignition/proxy", "httpProxy"),
        ("/ignition/proxy", "httpsProxy"),
    ] {
        if let Some(object) = parent.pointer_mut(object).and_then(Value::as_object_mut) {
            object.shift_remove(field);
        }
    }
    appended(parent, child)
}

fn appended(parent: Value, child: &Value) -> Value {
    match (parent, child) {
        (Value::Object(mut parent), Value::Object(child)) => {
            for (name, ours) in child {
                let theirs = parent.entry(name.as_str()).or_insert(Value::Null);
                *theirs = appended(theirs.take(), ours);
            }
            Value::Object(parent)
        }
        (Value::Array(mut entries), Value::Array(more)) => {
            entries.extend_from_slice(more);
            Value::Array(entries)
        }
        (parent, Value::Null) => parent,
        (_, child) => child.clone(),
    }
}

fn object(fields: &'static [Field], parent: Value, child: &Value) -> Result<Value, IgnitionError> {
    let (mut parent, child) = match (parent, child) {
        (Value::Object(parent), Value::Object(child)) => (parent, child),
        (parent, Value::Null) => return Ok(parent),
        (Value::Null, child) => return Ok(child.clone()),
        _ => return Err(shape("an object")),
    };
    for lists in spec::SHARED_KEYS {
        give_way(fields, lists, &mut parent, child)?;
    }
    for (name, ours) in child.iter().filter(|(_, ours)| !ours.is_null()) {
        let theirs = parent.entry(name.as_str()).or_insert(Value::Null);
        *theirs = match (theirs.take(), spec::find(fields, name)) {
            (Value::Null, _) => ours.clone(),
            (theirs, Some(field)) => value(field, theirs, ours).map_err(|error| beneath(name, error))?,
            (theirs, None) => unknown(theirs, ours),
        };
    }
    Ok(Value::Object(parent))
}

/// Removes the parent's entries that the child has in another list with shared keys.
fn give_way(
    fields: &'static [Field],
    lists: &[&str],
    parent: &mut Object,
    child: &Object,
) -> Result<(), IgnitionError> {
    let Some(shared) = lists
        .iter()
        .map(|list| spec::find(fields, list))
        .collect::<Option<Vec<_>>>()
    else {
        return Ok(());
    };
    let ours = shared.iter().map(|field| {
        let entries = child.get(field.name).unwrap_or(&Value::Null);
        keys(&field.shape, entries).map_err(|error| beneath(field.name, error))
    });
    let ours = ours.collect::<Result<Vec<_>, _>>()?;
    for (field, own) in shared.iter().zip(&ours) {
        let Some(Value::Array(theirs)) = parent.get_mut(field.name) else {
            continue;
        };
        for (index, entry) in std::mem::take(theirs).into_iter().enumerate() {
            let at = |error| beneath(field.name, beneath(&index.to_string(), error));
            let key = EntryKey::of(&field.shape, &entry).map_err(at)?;
            if own.contains_key(&key) || !ours.iter().any(|list| list.contains_key(&key)) {
                theirs.push(entry);
            }
        }
    }
    Ok(())
}

/// Merges one field that both have.
fn value(field: &Field, parent: Value, child: &Value) -> Result<Value, IgnitionError> {
    let (mut entries, more) = match (&field.shape, parent, child) {
        (Shape::Text | Shape::Integer | Shape::Bool, ..) => return Ok(child.clone()),
        (Shape::Object(fields), parent, _) => return object(fields, parent, child),
        (_, Value::Array(entries), Value::Array(more)) => (entries, more),
        _ => return Err(shape("a list")),
    };
    if matches!(field.shape, Shape::Texts | Shape::Series(_)) {
        entries.extend_from_slice(more);
        return Ok(Value::Array(entries));
    }
    keyed(field, entries, child, more)
}

/// Each of the parent's entries merged with the child's, then the child's other entries.
fn keyed(field: &Field, parent: Vec<Value>, child: &Value, entries: &[Value]) -> Result<Value, IgnitionError> {
    let ours = keys(&field.shape, child)?;
    let mut merged = Vec::with_capacity(parent.len() + entries.len());
    let mut taken = HashSet::new();
    for (index, theirs) in parent.into_iter().enumerate() {
        let at = |error| beneath(&index.to_string(), error);
        let Some(&found) = ours.get(&EntryKey::of(&field.shape, &theirs).map_err(at)?) else {
            merged.push(theirs);
            continue;
        };
        taken.insert(found);
        match field.shape {
            // A child removes a parent's header with a header without a value.
            Shape::Keyed(..) if field.name == "httpHeaders" && entries[found]["value"].is_null() => {}
            Shape::Keyed(_, fields) => merged.push(object(fields, theirs, &entries[found]).map_err(at)?),
            _ => merged.push(theirs),
        }
    }
    for entry in entries {
        let last = ours.get(&EntryKey::of(&field.shape, entry)?);
        if !last.is_some_and(|last| taken.contains(last)) {
            merged.push(entry.clone());
        }
    }
    Ok(Value::Array(merged))
}

fn unknown(parent: Value, child: &Value) -> Value {
    match (parent, child) {
        (Value::Object(mut parent), Value::Object(child)) => {
            for (name, ours) in child.iter().filter(|(_, ours)| !ours.is_null()) {
                let theirs = parent.entry(name.as_str()).or_insert(Value::Null);
                *theirs = unknown(theirs.take(), ours);
            }
            Value::Object(parent)
        }
        (_, child) => child.clone(),
    }
}

/// What identifies an entry in its list.
#[derive(PartialEq, Eq, Hash)]
enum EntryKey<'a> {
    Text(&'a str),
    Number(&'a Number),
    /// A partition with neither number nor label.
    Nothing,
}

impl<'a> EntryKey<'a> {
    fn of(list: &Shape, entry: &'a Value) -> Result<Self, IgnitionError> {
        let Shape::Keyed(key, _) = list else {
            return text(entry).map(Self::Text);
        };
        if !entry.is_object() && !entry.is_null() {
            return Err(shape("an object"));
        }
        let field = |name: &str| entry.get(name).unwrap_or(&Value::Null);
        match key {
            Key::Field(name) => text(field(name)).map(Self::Text).map_err(|error| beneath(name, error)),
            Key::NumberOrLabel => match (field("number"), field("label")) {
                // 0 is no number: `translate` has removed it.
                (Value::Number(number), _) => Ok(Self::Number(number)),
                (Value::Null, Value::Null) => Ok(Self::Nothing),
                (Value::Null, label) => text(label).map(Self::Text).map_err(|error| beneath("label", error)),
                _ => Err(beneath("number", shape("a number"))),
            },
        }
    }
}

/// Each key of a list, with the index of its last entry.
fn keys<'a>(list: &Shape, entries: &'a Value) -> Result<HashMap<EntryKey<'a>, usize>, IgnitionError> {
    let entries = match entries {
        Value::Array(entries) => entries.as_slice(),
        Value::Null => &[],
        _ => return Err(shape("a list")),
    };
    let key = |(index, entry): (usize, &'a Value)| match EntryKey::of(list, entry) {
        Ok(key) => Ok((key, index)),
        Err(error) => Err(beneath(&index.to_string(), error)),
    };
    entries.iter().enumerate().map(key).collect()
}

/// A text; a missing one is empty, as in Ignition.
fn text(value: &Value) -> Result<&str, IgnitionError> {
    match value {
        Value::String(text) => Ok(text),
        Value::Null => Ok(""),
        _ => Err(shape("a string")),
    }
}

fn shape(wanted: &'static str) -> IgnitionError {
    let path = "$".to_owned();
    IgnitionError::Shape { path, wanted }
}

/// The same error, with a path from one level above.
fn beneath(step: &str, error: IgnitionError) -> IgnitionError {
    match error {
        IgnitionError::Shape { path, wanted } => {
            let path = format!("$.{step}{}", path.strip_prefix('$').unwrap_or(&path));
            IgnitionError::Shape { path, wanted }
        }
        other => other,
    }
}

// For each kind of field see `tests/fixtures/ignition-merges.json`.
#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn v3(mut config: Value) -> Value {
        config["ignition"] = json!({"version": "3.2.0"});
        config
    }

    #[test]
    fn the_same_input_gives_the_same_bytes_in_the_parent_s_order() {
        let parent = json!({
            "x": {"b": 1, "a": [1]}, "storage": {"files": [{"mode": 1, "path": "/f", "x": 1}], "raid": null},
            "ignition": {"version": "3.2.0"},
        });
        let child = json!({
            "ignition": {"version": "3.3.0"}, "new": null, "newer": false,
            "storage": {"links": [], "raid": [{"name": "r"}], "files": [{"path": "/g"}, {"y": 2, "path": "/f", "mode": 2, "x": null}]},
            "x": {"c": null, "a": [2], "d": {"e": null}},
        });
        assert_eq!(
            merge(&parent, &child).unwrap().to_string(),
            r#"{"x":{"b":1,"a":[2],"d":{"e":null}},"storage":{"files":[{"mode":2,"path":"/f","x":1,"y":2},{"path":"/g"}],"#
                .to_owned()
                + r#""raid":[{"name":"r"}],"links":[]},"ignition":{"version":"3.3.0"},"newer":false}"#
        );
    }

    #[test]
    fn spec_2_concatenates_lists() {
        let parent = json!({
            "ignition": {
                "version": "2.2.0", "config": {"append": [{"source": "a"}]}, "timeouts": {"httpTotal": 1, "httpResponseHeaders": 2},
                "security": {"tls": {"certificateAuthorities": [{"source": "c"}]}}, "proxy": {"httpProxy": "p", "noProxy": ["n"]},
            },
            "storage": {"files": [{"filesystem": "root", "path": "/f", "mode": 1}]},
            "networkd": {"units": [{"name": "n"}]},
        });
        let child = json!({
            "ignition": {
                "version": "2.4.0", "config": {"replace": {"source": "b"}}, "timeouts": {"httpTotal": 0, "httpResponseHeaders": null},
                "security": {"tls": {"certificateAuthorities": [{"source": "c"}]}}, "proxy": {"httpsProxy": "q", "noProxy": ["n"]},
            },
            "storage": {"files": [{"filesystem": "root", "path": "/f", "append": true}], "links": [{"path": "/f"}]},
            "networkd": {"units": [{"name": "n"}]},
        });
        let expected = json!({
            "ignition": {
                "version": "2.4.0", "config": {"replace": {"source": "b"}}, "timeouts": {"httpTotal": 0, "httpResponseHeaders": 2},
                "security": {"tls": {"certificateAuthorities": [{"source": "c"}, {"source": "c"}]}},
                "proxy": {"httpsProxy": "q", "noProxy": ["n", "n"]},
            },
            "storage": {
                "files": [{"filesystem": "root", "path": "/f", "mode": 1}, {"filesystem": "root", "path": "/f", "append": true}],
                "links": [{"path": "/f"}],
            },
            "networkd": {"units": [{"name": "n"}, {"name": "n"}]},
        });
        assert_eq!(merge(&parent, &child).unwrap(), expected);
    }

    #[test]
    fn major_versions_are_not_mixed() {
        let (two, three) = (json!({"ignition": {"version": "2.2.0"}}), v3(json!({})));
        let error = merge(&three, &two).unwrap_err();
        assert_eq!(error.to_string(), "Ignition 2.2.0 cannot be merged into Ignition 3.2.0");
        assert!(error.hint().unwrap().contains("no CoreOS reads both"));
        assert!(merge(&two, &three).is_err());
    }

    #[test]
    fn a_null_entry_counts_as_one_without_fields() {
        let users = |users: Value| v3(json!({"passwd": {"users": users}}));
        let merged = merge(
            &users(json!([null, {"name": "u"}])),
            &users(json!([{"name": "u", "uid": 1}, null])),
        );
        assert_eq!(
            merged.unwrap()["passwd"]["users"],
            json!([null, {"name": "u", "uid": 1}])
        );
        let merged = merge(&users(json!([null])), &users(json!([{"name": "", "uid": 1}])));
        assert_eq!(merged.unwrap()["passwd"]["users"], json!([{"name": "", "uid": 1}]));
    }

    #[test]
    fn a_value_of_a_wrong_type_is_reported_with_its_path() {
        let file = |file: Value| v3(json!({"storage": {"files": [{"path": "/a"}, file]}}));
        for (parent, child, text) in [
            (
                file(json!(1)),
                file(json!({"path": "/b"})),
                "$.storage.files.1 must be an object",
            ),
            (
                file(json!({"path": "/b"})),
                file(json!({"path": 1})),
                "$.storage.files.1.path must be a string",
            ),
            (
                file(json!({"path": "/b", "contents": []})),
                file(json!({"path": "/b", "contents": {}})),
                "$.storage.files.1.contents must be an object",
            ),
            (
                v3(json!({"storage": {"raid": {}}})),
                v3(json!({"storage": {"raid": []}})),
                "$.storage.raid must be a list",
            ),
            (
                v3(json!({"storage": {"files": []}})),
                v3(json!({"storage": {"links": {}}})),
                "$.storage.links must be a list",
            ),
            (
                v3(json!({"storage": {"disks": [{"device": "/d", "partitions": [{"number": "1"}]}]}})),
                v3(json!({"storage": {"disks": [{"device": "/d", "partitions": []}]}})),
                "$.storage.disks.0.partitions.0.number must be a number",
            ),
            (
                v3(json!({"passwd": {"users": [{"name": "u", "groups": [[]]}]}})),
                v3(json!({"passwd": {"users": [{"name": "u", "groups": []}]}})),
                "$.passwd.users.0.groups.0 must be a string",
            ),
        ] {
            assert_eq!(merge(&parent, &child).unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn a_null_entry_leaves_the_parent_s_as_it_is() {
        let users = |users: Value| v3(json!({"passwd": {"users": users}}));
        let parent = users(json!([{"name": "", "uid": 1}]));
        assert_eq!(merge(&parent, &users(json!([null]))).unwrap(), parent);
    }

    #[test]
    fn a_partition_without_a_label_is_not_one_with_an_empty_label() {
        let partitions =
            |partitions: Value| v3(json!({"storage": {"disks": [{"device": "/d", "partitions": partitions}]}}));
        let merged = merge(
            &partitions(json!([{"label": "", "sizeMiB": 1}])),
            &partitions(json!([{"sizeMiB": 2}])),
        );
        assert_eq!(
            merged.unwrap()["storage"]["disks"][0]["partitions"],
            json!([{"label": "", "sizeMiB": 1}, {"sizeMiB": 2}])
        );
    }
}
