//! Properties of the merge on generated configs, and a comparison with Debian's Ignition.

use crate::support::{clean, configs, engine};
use std::collections::BTreeSet;

use ocpdeploy::ignition::contents::data_url;
use ocpdeploy::ignition::merge::merge;
use ocpdeploy::ignition::origins::{Layer, merge_layers, origins};
use ocpdeploy::ignition::spec::{self, Field, Shape};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

fn layer(config: Value) -> Layer {
    let origin = String::new();
    Layer { origin, config }
}

/// The first place where two values differ, and both.
fn difference(left: &Value, right: &Value, at: &str) -> Option<String> {
    match (left, right) {
        (Value::Object(l), Value::Object(r)) if l.keys().collect::<BTreeSet<_>>() == r.keys().collect() => l
            .iter()
            .find_map(|(name, value)| difference(value, &r[name], &format!("{at}.{name}"))),
        (Value::Array(l), Value::Array(r)) if l.len() == r.len() => {
            let mut pairs = l.iter().zip(r).enumerate();
            pairs.find_map(|(index, (l, r))| difference(l, r, &format!("{at}.{index}")))
        }
        _ => (left != right).then(|| format!("{at}: {left} here, {right} there")),
    }
}

#[test]
fn debian_s_ignition_merges_to_the_same_config() {
    let mut runner = TestRunner::deterministic();
    // Debian's Ignition knows 3.0 to 3.3.
    let strategy = prop::collection::vec(configs::config(3), 2..4);
    for _ in 0..60 {
        let configs = strategy.new_tree(&mut runner).unwrap().current();
        let source = |config: &Value| json!({"source": data_url(config.to_string().as_bytes())});
        let sources: Vec<_> = configs.iter().map(source).collect();
        let pointer = json!({"ignition": {"version": "3.0.0", "config": {"merge": sources}}});
        let root = engine::Root::new();
        let merged = root.merged(pointer.to_string().as_bytes());
        let expected = merged.unwrap_or_else(|log| panic!("{log}\n{}", Value::from(configs.clone())));

        let layers: Vec<_> = [pointer].into_iter().chain(configs.clone()).map(layer).collect();
        let merged = merge_layers(&layers).unwrap();
        let without_pointer = |mut config: Value| {
            config["ignition"].as_object_mut().unwrap().remove("config");
            clean::clean(config)
        };
        let different = difference(&without_pointer(merged), &without_pointer(expected), "$");
        assert_eq!(different, None, "{}", Value::from(configs));
    }
}

/// Valid configs of one version, in which no path or argument changes its kind and no header is removed.
fn plain() -> impl Strategy<Value = Value> {
    fn keep_headers(value: &mut Value) {
        match value {
            Value::Array(entries) => entries.iter_mut().for_each(keep_headers),
            Value::Object(fields) => {
                if let Some(Value::Array(headers)) = fields.get_mut("httpHeaders") {
                    headers.iter_mut().for_each(|header| header["value"] = json!("v"));
                }
                fields.values_mut().for_each(keep_headers);
            }
            _ => {}
        }
    }
    configs::config(5).prop_map(|mut config| {
        config["ignition"]["version"] = json!("3.5.0");
        for (object, lists) in [
            ("/storage", ["directories", "links"]),
            ("/kernelArguments", ["shouldNotExist", ""]),
        ] {
            if let Some(Value::Object(object)) = config.pointer_mut(object) {
                object.retain(|name, _| !lists.contains(&name.as_str()));
            }
        }
        keep_headers(&mut config);
        config
    })
}

/// Adds to every object a field that no spec has, with a unique number.
fn mark(value: &mut Value, name: &str, next: &mut u64) {
    match value {
        Value::Array(entries) => entries.iter_mut().for_each(|entry| mark(entry, name, next)),
        Value::Object(fields) => {
            fields.values_mut().for_each(|value| mark(value, name, next));
            *next += 1;
            fields.insert(name.to_owned(), json!({"number": *next}));
        }
        _ => {}
    }
}

fn marks(value: &Value, name: &str, found: &mut BTreeSet<u64>) {
    match value {
        Value::Array(entries) => entries.iter().for_each(|entry| marks(entry, name, found)),
        Value::Object(fields) => {
            found.extend(fields.get(name).and_then(|mark| mark["number"].as_u64()));
            fields.values().for_each(|value| marks(value, name, found));
        }
        _ => {}
    }
}

fn without_concatenated(fields: &'static [Field], value: &mut Value) {
    let Value::Object(object) = value else { return };
    object.retain(|name, value| match spec::find(fields, name).map(|field| &field.shape) {
        Some(Shape::Texts | Shape::Series(_)) => false,
        Some(Shape::Object(fields)) => {
            without_concatenated(fields, value);
            true
        }
        Some(Shape::Keyed(_, fields)) => {
            let entries = value.as_array_mut().into_iter().flatten();
            entries.for_each(|entry| without_concatenated(fields, entry));
            true
        }
        _ => true,
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_empty_config_changes_nothing(config in configs::config(6)) {
        let empty = json!({"ignition": {"version": "3.0.0"}});
        let alone = clean::clean(merge_layers(&[layer(config.clone())]).unwrap());
        prop_assert_eq!(&clean::clean(merge(&config, &empty).unwrap()), &alone);
        prop_assert_eq!(&clean::clean(merge(&empty, &config).unwrap()), &alone);
    }

    #[test]
    fn merging_layers_is_associative(a in plain(), b in plain(), c in plain()) {
        let from_below = merge(&merge(&a, &b).unwrap(), &c).unwrap();
        let from_above = merge(&a, &merge(&b, &c).unwrap()).unwrap();
        prop_assert_eq!(difference(&clean::clean(from_below), &clean::clean(from_above), "$"), None);
    }

    #[test]
    fn merging_a_config_with_itself_changes_only_appended_lists(mut config in plain()) {
        without_concatenated(spec::CONFIG, &mut config);
        let twice = merge(&config, &config).unwrap();
        let once = merge_layers(&[layer(config)]).unwrap();
        prop_assert_eq!(clean::clean(twice), clean::clean(once));
    }

    #[test]
    fn unknown_fields_are_kept(mut parent in plain(), mut child in plain()) {
        let (mut parents, mut children) = (0, 0);
        mark(&mut parent, "x-parent", &mut parents);
        mark(&mut child, "x-child", &mut children);
        let merged = merge(&parent, &child).unwrap();
        for (name, last) in [("x-parent", parents), ("x-child", children)] {
            let mut found = BTreeSet::new();
            marks(&merged, name, &mut found);
            prop_assert_eq!(found, (1..=last).collect(), "{}", name);
        }
    }

    #[test]
    fn fields_are_in_the_parents_order_then_the_childs(parent in plain(), child in plain()) {
        let merged = merge(&parent, &child).unwrap();
        for object in ["", "/ignition", "/storage", "/passwd"] {
            let names = |config: &Value| {
                let fields = config.pointer(object).and_then(Value::as_object).into_iter().flatten();
                let present = fields.filter(|(_, value)| !value.is_null());
                present.map(|(name, _)| name.clone()).collect::<Vec<_>>()
            };
            let (mut expected, ours) = (names(&parent), names(&child));
            let held = |name: &String| parent.pointer(object).is_some_and(|object| object.get(name).is_some());
            expected.extend(ours.into_iter().filter(|name| !held(name)));
            let mut found = names(&merged);
            // A null in the parent only keeps its position.
            found.retain(|name| expected.contains(name));
            prop_assert_eq!(found, expected, "{}", object);
        }
    }

    #[test]
    fn each_value_comes_from_the_layer_named_as_its_origin(configs in prop::collection::vec(configs::config(5), 1..4)) {
        let named = |(number, config): (char, Value)| Layer { origin: number.to_string(), config };
        let layers: Vec<_> = ('0'..).zip(configs.clone()).map(named).collect();
        let effective = merge_layers(&layers).unwrap();
        for origin in origins(&layers).unwrap() {
            let entry = effective.pointer(&origin.pointer).unwrap();
            prop_assert!(!origin.layers.is_empty(), "{:?}", origin);
            if origin.kind != "user" {
                continue;
            }
            for (field, value) in entry.as_object().unwrap().iter().filter(|(_, value)| value.is_number() || value.is_boolean()) {
                let from = origin.fields.iter().find(|(name, _)| name == field).map_or(&origin.layers, |(_, from)| from);
                prop_assert_eq!(from.len(), 1, "{} of {:?}", field, &origin);
                let layer: usize = from[0].parse().unwrap();
                let users = configs[layer]["passwd"]["users"].as_array().unwrap();
                let user = users.iter().find(|user| user["name"] == *origin.key).unwrap();
                prop_assert_eq!(&user[field], value);
            }
        }
    }

    #[test]
    fn any_json_is_merged_or_rejected(a in odd_config(), b in odd_config(), c in odd_config()) {
        let layers = [a, b, c].map(layer);
        let merged = merge_layers(&layers).map(|merged| merged.to_string()).map_err(|error| error.to_string());
        let told = origins(&layers).map(|_| ()).map_err(|error| error.to_string());
        prop_assert_eq!(merged.is_ok(), told.is_ok(), "{:?} {:?}", merged, told);
    }
}

/// Any JSON, with the names of the spec in any place.
fn odd_config() -> impl Strategy<Value = Value> {
    const NAMES: [&str; 24] = [
        "ignition",
        "config",
        "merge",
        "storage",
        "files",
        "directories",
        "links",
        "path",
        "contents",
        "httpHeaders",
        "value",
        "append",
        "disks",
        "partitions",
        "number",
        "label",
        "passwd",
        "users",
        "name",
        "sshAuthorizedKeys",
        "kernelArguments",
        "shouldExist",
        "shouldNotExist",
        "mode",
    ];
    let name = || prop::sample::select(&NAMES[..]).prop_map(str::to_owned);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        name().prop_map(Value::from),
    ];
    let odd = leaf.prop_recursive(6, 60, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((name(), inner), 0..5).prop_map(|fields| fields.into_iter().collect()),
        ]
    });
    let version = prop::sample::select(vec!["3.0.0", "3.2.0", "3.6.0", "2.2.0"]);
    // Half are arbitrary as a whole, half are arbitrary somewhere in a valid config.
    let within =
        (configs::config(6), any::<prop::sample::Index>(), odd.clone()).prop_map(|(mut config, sandbox, odd)| {
            let count = places(&mut config, &mut |_, _| {});
            let chosen = sandbox.index(count);
            places(&mut config, &mut |index, value| {
                if index == chosen {
                    *value = odd.clone();
                }
            });
            config
        });
    let whole = (odd, version).prop_map(|(odd, version)| {
        let mut config = json!({"storage": odd, "passwd": odd, "kernelArguments": odd});
        config["ignition"] = json!({"version": version, "config": odd});
        config
    });
    prop_oneof![within, whole]
}

/// Visits every value except the config itself, and counts them.
fn places(value: &mut Value, seen: &mut impl FnMut(usize, &mut Value)) -> usize {
    fn walk(value: &mut Value, next: &mut usize, seen: &mut impl FnMut(usize, &mut Value)) {
        let mut visit = |value: &mut Value| {
            seen(*next, value);
            *next += 1;
            walk(value, next, seen);
        };
        match value {
            Value::Array(entries) => entries.iter_mut().for_each(&mut visit),
            Value::Object(fields) => fields.values_mut().for_each(&mut visit),
            _ => {}
        }
    }
    let mut count = 0;
    walk(value, &mut count, seen);
    count
}
