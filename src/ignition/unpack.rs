//! Extracts the configs that are embedded in a config, e.g. the overlay in a pointer.

use serde_json::{Value, json};

use super::contents::{self, Contents};
use super::origins::Layer;
use super::{IgnitionError, document, version};

/// The parts of a config, as far as they are embedded.
#[derive(Clone, Debug)]
pub struct Unpacked {
    /// The config itself and all embedded ones, in the order in which a node merges them.
    pub layers: Vec<Layer>,
    /// URLs that a node also fetches and merges, in their order.
    pub fetched: Vec<String>,
}

/// Deeper nesting is not a valid use.
const DEEPEST: usize = 8;

/// Extracts as Ignition merges: depth first, and `replace` replaces everything around it.
///
/// Embedded configs are named after their position, e.g. `master.ign merge.1`. An error if one is not a config.
/// Source: coreos/ignition, `internal/exec/config_fetcher.go`.
pub fn unpack(origin: &str, config: &Value) -> Result<Unpacked, IgnitionError> {
    let mut found = Unpacked {
        layers: Vec::new(),
        fetched: Vec::new(),
    };
    add(&mut found, origin, config.clone(), DEEPEST)?;
    Ok(found)
}

fn add(found: &mut Unpacked, origin: &str, mut config: Value, deepest: usize) -> Result<(), IgnitionError> {
    let version = version(&config)?;
    let list = version.major.merge_list();
    let replace = &config["ignition"]["config"]["replace"];
    if let Some(source) = replace["source"].as_str().filter(|source| !source.is_empty()) {
        return match packed(replace, "replace", deepest)? {
            Some(config) => add(found, &format!("{origin} replace"), config, deepest - 1),
            None => {
                found.fetched.push(source.to_owned());
                found.layers.push(Layer {
                    origin: origin.to_owned(),
                    config: json!({"ignition": {"version": version.to_string()}}),
                });
                Ok(())
            }
        };
    }
    let mut within = Vec::new();
    if let Some(Value::Array(entries)) = config.pointer_mut(&format!("/ignition/config/{list}")) {
        for (index, entry) in std::mem::take(entries).into_iter().enumerate() {
            let name = format!("{list}.{index}");
            match packed(&entry, &name, deepest)? {
                Some(config) => within.push((format!("{origin} {name}"), config)),
                None => {
                    found.fetched.extend(entry["source"].as_str().map(str::to_owned));
                    entries.push(entry);
                }
            }
        }
    }
    found.layers.push(Layer {
        origin: origin.to_owned(),
        config,
    });
    within
        .into_iter()
        .try_for_each(|(origin, config)| add(found, &origin, config, deepest - 1))
}

/// The config embedded in a reference; `None` if it is fetched.
fn packed(reference: &Value, name: &str, deepest: usize) -> Result<Option<Value>, IgnitionError> {
    let shape = |wanted| IgnitionError::Shape {
        path: format!("$.ignition.config.{name}.source"),
        wanted,
    };
    match contents::of(reference) {
        Ok(Contents::Bytes(_)) if deepest == 0 => Err(shape("nested at most 8 configs deep")),
        Ok(Contents::Bytes(bytes)) => Ok(Some(document::parse(&bytes)?)),
        Ok(Contents::Remote(_) | Contents::Nothing) => Ok(None),
        Err(_) => Err(shape("a valid data URL")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ignition::contents::data_url;

    fn config(files: &[&str], section: Value) -> Value {
        let files: Vec<_> = files.iter().map(|path| json!({"path": path})).collect();
        json!({"ignition": {"version": "3.2.0", "config": section}, "storage": {"files": files}})
    }

    fn data(config: &Value) -> Value {
        json!({"source": data_url(config.to_string().as_bytes())})
    }

    fn origins_and_paths(found: &Unpacked) -> Vec<(String, Value)> {
        let path = |layer: &Layer| {
            let path = layer.config.pointer("/storage/files/0/path").cloned();
            (layer.origin.clone(), path.unwrap_or_default())
        };
        found.layers.iter().map(path).collect()
    }

    #[test]
    fn layers_come_in_the_order_in_which_a_node_merges_them() {
        let leaf = config(&["/leaf"], json!({}));
        let inner = config(&["/inner"], json!({"merge": [{"source": "http://b/"}, data(&leaf)]}));
        let whole = config(
            &["/base"],
            json!({"merge": [data(&inner), {"source": "http://a/"}, data(&leaf)]}),
        );
        let found = unpack("x.ign", &whole).unwrap();
        let expected = [
            ("x.ign", "/base"),
            ("x.ign merge.0", "/inner"),
            ("x.ign merge.0 merge.1", "/leaf"),
            ("x.ign merge.2", "/leaf"),
        ];
        assert_eq!(
            origins_and_paths(&found),
            expected.map(|(origin, path)| (origin.to_owned(), json!(path)))
        );
        assert_eq!(found.fetched, ["http://a/", "http://b/"]);
        let left = &found.layers[0].config["ignition"]["config"]["merge"];
        assert_eq!(*left, json!([{"source": "http://a/"}]), "what is fetched stays");
    }

    #[test]
    fn replace_discards_everything_around_it() {
        let inner = config(&["/inner"], json!({}));
        let found = unpack("x.ign", &config(&["/base"], json!({"replace": data(&inner)}))).unwrap();
        assert_eq!(
            origins_and_paths(&found),
            [("x.ign replace".to_owned(), json!("/inner"))]
        );
        let far = config(&["/base"], json!({"replace": {"source": "http://a/"}}));
        let found = unpack("x.ign", &far).unwrap();
        assert_eq!(origins_and_paths(&found), [("x.ign".to_owned(), json!(null))]);
        assert_eq!(found.fetched, ["http://a/"]);
    }

    #[test]
    fn an_invalid_or_deeply_nested_config_is_an_error() {
        for broken in ["data:,%zz", "data:,[]", "data:;base64,e30"] {
            let whole = config(&[], json!({"merge": [{"source": broken}]}));
            assert!(unpack("x.ign", &whole).is_err(), "{broken}");
        }
        let mut deep = config(&[], json!({}));
        for _ in 0..=DEEPEST {
            deep = config(&[], json!({"merge": [data(&deep)]}));
        }
        let error = unpack("x.ign", &deep).unwrap_err();
        assert!(error.to_string().contains("nested at most"), "{error}");
    }
}
