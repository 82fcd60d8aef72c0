//! Structural schemas: unknown fields are rejected or pruned, wrong types rejected.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::{Map, Value, json};

/// The fields we use, in a short form: a leaf names its type, `*` any key, `!` behind a key that it must be there.
const SHORT: &str = include_str!("schemas.yaml");

/// The schema of a kind, as in a CRD's `openAPIV3Schema`; upstream's where `OCPDEPLOY_TEST_CRDS` names a folder.
pub fn of_kind(kind: &str) -> Option<&'static Value> {
    static ALL: OnceLock<BTreeMap<String, Value>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let short: BTreeMap<String, Value> = serde_saphyr::from_str(SHORT).unwrap();
        let mut all: BTreeMap<_, _> = short.into_iter().map(|(kind, short)| (kind, long(&short))).collect();
        if let Some(folder) = std::env::var_os("OCPDEPLOY_TEST_CRDS") {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|extension| extension == "yaml") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    all.extend(upstream(&text));
                }
            }
        }
        all
    });
    all.get(kind)
}

fn upstream(text: &str) -> Option<(String, Value)> {
    let document: Value = serde_saphyr::from_str(text).unwrap();
    let kind = document["spec"]["names"]["kind"].as_str()?.to_owned();
    let versions = document["spec"]["versions"].as_array()?;
    let served = ["v1", "v1beta1"];
    let version = versions
        .iter()
        .find(|version| served.iter().any(|name| version["name"] == *name))?;
    Some((kind, version["schema"]["openAPIV3Schema"].clone()))
}

fn long(short: &Value) -> Value {
    match short {
        Value::String(leaf) => match leaf.as_str() {
            "any" => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            "quantity" => json!({"x-kubernetes-int-or-string": true}),
            leaf => match leaf.split_once('=') {
                Some(("string", words)) => json!({"type": "string", "enum": words.split('|').collect::<Vec<_>>()}),
                _ => json!({"type": leaf}),
            },
        },
        Value::Array(items) => json!({"type": "array", "items": long(&items[0])}),
        Value::Object(fields) => {
            let mut schema = json!({"type": "object"});
            let mut required = Vec::new();
            for (key, short) in fields {
                let (name, must) = key.strip_suffix('!').map_or((key.as_str(), false), |name| (name, true));
                match name {
                    "*" => schema["additionalProperties"] = long(short),
                    name => schema["properties"][name] = long(short),
                }
                if must {
                    required.push(name);
                }
            }
            schema["required"] = json!(required);
            schema
        }
        other => panic!("no schema is {other}"),
    }
}

/// What is wrong with an object.
#[derive(Debug, Default)]
pub struct Findings {
    pub unknown: Vec<String>,
    pub invalid: Vec<String>,
}

/// Checks an object and prunes fields that are not in the schema.
pub fn check(schema: &Value, object: &mut Value) -> Findings {
    let mut findings = Findings::default();
    let Some(fields) = object.as_object_mut() else {
        findings.invalid.push("the object is no object".to_owned());
        return findings;
    };
    let empty = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&empty);
    let keys: Vec<String> = fields.keys().cloned().collect();
    for key in keys {
        match (key.as_str(), properties.get(&key)) {
            ("apiVersion" | "kind", _) => {}
            ("metadata", _) => walk("metadata", &long(&metadata()), &mut fields["metadata"], &mut findings),
            (_, Some(schema)) => walk(&key, schema, &mut fields[&key], &mut findings),
            (_, None) => {
                fields.remove(&key);
                findings.unknown.push(key);
            }
        }
    }
    require("", schema, fields, &mut findings);
    findings
}

fn metadata() -> Value {
    json!({
        "name": "string", "namespace": "string", "uid": "string", "resourceVersion": "string", "generateName": "string",
        "creationTimestamp": "string", "deletionTimestamp": "string", "deletionGracePeriodSeconds": "integer",
        "generation": "integer", "labels": {"*": "string"}, "annotations": {"*": "string"}, "finalizers": ["string"],
        "managedFields": ["any"],
        "ownerReferences": [{
            "apiVersion!": "string", "kind!": "string", "name!": "string", "uid!": "string", "controller": "boolean",
            "blockOwnerDeletion": "boolean",
        }],
    })
}

fn require(path: &str, schema: &Value, fields: &Map<String, Value>, findings: &mut Findings) {
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap();
        if !fields.contains_key(name) && schema["properties"][name]["default"].is_null() {
            let path = if path.is_empty() {
                name.to_owned()
            } else {
                format!("{path}.{name}")
            };
            findings.invalid.push(format!("{path}: Required value"));
        }
    }
}

fn walk(path: &str, schema: &Value, value: &mut Value, findings: &mut Findings) {
    let flag = |name: &str| schema[name] == true;
    if value.is_null() && flag("nullable") {
        return;
    }
    // kubernetes/apiextensions-apiserver: pkg/apiserver/validation/validation.go.
    let wrong = |value: &Value, wanted: &str| {
        let is = type_name(value);
        format!("{path}: Invalid value: \"{is}\": {path} in body must be of type {wanted}: \"{is}\"")
    };
    if flag("x-kubernetes-int-or-string") {
        if !value.is_string() && !value.is_u64() && !value.is_i64() {
            findings.invalid.push(wrong(value, "integer or string"));
        }
        return;
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        findings.invalid.push(format!("{path}: Unsupported value: {value}"));
    }
    match (schema["type"].as_str().unwrap_or("object"), &mut *value) {
        ("object", Value::Object(fields)) => {
            require(path, schema, fields, findings);
            let keys: Vec<String> = fields.keys().cloned().collect();
            for key in keys {
                let path = format!("{path}.{key}");
                if let Some(schema) = schema["properties"].get(&key) {
                    walk(&path, schema, &mut fields[&key], findings);
                } else if schema["additionalProperties"].is_object() {
                    walk(&path, &schema["additionalProperties"], &mut fields[&key], findings);
                } else if !flag("x-kubernetes-preserve-unknown-fields") {
                    fields.remove(&key);
                    findings.unknown.push(path);
                }
            }
        }
        ("array", Value::Array(items)) => {
            for (index, item) in items.iter_mut().enumerate() {
                walk(&format!("{path}[{index}]"), &schema["items"], item, findings);
            }
        }
        ("string", Value::String(_)) | ("boolean", Value::Bool(_)) => {}
        ("integer", Value::Number(number)) if number.is_i64() || number.is_u64() => {}
        ("number", Value::Number(_)) => {}
        (wanted, value) => findings.invalid.push(wrong(value, wanted)),
    }
}

/// JSON Schema's name of the value's type.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
