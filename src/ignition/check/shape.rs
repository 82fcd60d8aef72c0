//! Types, unknown keys and duplicate entries, according to the spec's table.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;

use super::at::{At, shown};
use super::judge::Judge;
use crate::ignition::spec::{CONFIG, Field, Key, SHARED_KEYS, Shape};

pub fn config(judge: &mut Judge, root: &At) {
    object(judge, root, CONFIG);
}

fn object(judge: &mut Judge, at: &At, fields: &[Field]) {
    let Value::Object(entries) = at.value else {
        return wants(judge, at, "an object");
    };
    for key in entries.keys() {
        match fields.iter().find(|field| field.name == key) {
            None => unknown(judge, &at.get(key), key, fields),
            Some(field) if field.since > judge.spec => {
                let (ours, theirs) = (judge.spec, field.since);
                let text = format!("3.{ours} ignores `{key}`, which was added in 3.{theirs}");
                judge.warning(&at.get(key), text);
            }
            Some(_) => {}
        }
    }
    // In the order of the table, which is Ignition's: of two entries with one key the later one is reported.
    let mut shared: Vec<HashSet<Cow<str>>> = vec![HashSet::new(); SHARED_KEYS.len()];
    for field in fields {
        let child = at.get(field.name);
        if field.since > judge.spec || child.value.is_null() {
            continue;
        }
        value(judge, &child, &field.shape);
        let key = match field.shape {
            Shape::Keyed(key, _) => Some(key),
            Shape::Set => None,
            _ => continue,
        };
        let mut own = HashSet::new();
        let seen = match SHARED_KEYS.iter().position(|names| names.contains(&field.name)) {
            Some(group) => &mut shared[group],
            None => &mut own,
        };
        for item in child.items() {
            if !seen.insert(key_of(&item, key)) {
                judge.error(&item, "duplicate entry");
            }
        }
    }
}

fn value(judge: &mut Judge, at: &At, shape: &Shape) {
    match shape {
        Shape::Text if !at.value.is_string() => wants(judge, at, "a string"),
        Shape::Integer if !at.value.is_i64() => integer(judge, at),
        Shape::Bool if !at.value.is_boolean() => wants(judge, at, "true or false"),
        Shape::Text | Shape::Integer | Shape::Bool => {}
        Shape::Object(fields) => object(judge, at, fields),
        Shape::Keyed(_, fields) | Shape::Series(fields) => list(judge, at, |judge, item| object(judge, item, fields)),
        Shape::Set | Shape::Texts => list(judge, at, |judge, item| value(judge, item, &Shape::Text)),
    }
}

fn list(judge: &mut Judge, at: &At, each: impl Fn(&mut Judge, &At)) {
    if !at.value.is_array() {
        return wants(judge, at, "a list");
    }
    for item in at.items().filter(|item| !item.value.is_null()) {
        each(judge, &item);
    }
}

fn integer(judge: &mut Judge, at: &At) {
    match at.value {
        Value::Number(_) => wants(judge, at, "a 64-bit integer without fraction or exponent"),
        Value::String(_) => wants(judge, at, "a decimal number without quotes: octal 0644 is 420"),
        _ => wants(judge, at, "an integer"),
    }
}

fn wants(judge: &mut Judge, at: &At, wanted: &str) {
    let found = match at.value {
        // As if it were missing.
        Value::Null => return,
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    judge.mistyped(at, format_args!("expected {wanted}, found {found}"));
}

fn unknown(judge: &mut Judge, at: &At, key: &str, fields: &[Field]) {
    let mut text = format!("unknown key {}: Ignition ignores it", shown(key));
    let distance = |field: &&Field| strsim::damerau_levenshtein(&field.name.to_lowercase(), &key.to_lowercase());
    let known = fields.iter().filter(|field| field.since <= judge.spec);
    if let Some(near) = known
        .min_by_key(distance)
        .filter(|near| distance(near) <= 2 && key.len() > 2)
    {
        text += &format!("; did you mean `{}`?", near.name);
    }
    judge.warning(at, text);
}

/// What identifies an entry in its list; without a `key`, the entry itself.
fn key_of<'v>(item: &At<'_, 'v>, key: Option<Key>) -> Cow<'v, str> {
    match key {
        None => item.value.as_str().unwrap_or_default().into(),
        Some(Key::Field(name)) => item.text(name).unwrap_or_default().into(),
        Some(Key::NumberOrLabel) => match (item.number("number"), item.text("label")) {
            (Some(number), _) if number != 0 => format!("number {number}").into(),
            (_, Some(label)) => format!("label {label}").into(),
            _ => "".into(),
        },
    }
}
