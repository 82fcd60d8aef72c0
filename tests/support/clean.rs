//! Normalizes configs for comparison.

use serde_json::Value;

/// Without null, `{}`, `[]` and the version: the reference writes the newest it knows.
pub fn clean(mut config: Value) -> Value {
    if let Some(version) = config.pointer_mut("/ignition/version") {
        version.take();
    }
    prune(&mut config);
    config
}

/// Whether anything is left.
fn prune(value: &mut Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(entries) => {
            entries.retain_mut(prune);
            !entries.is_empty()
        }
        Value::Object(fields) => {
            fields.retain(|_, value| prune(value));
            !fields.is_empty()
        }
        _ => true,
    }
}
