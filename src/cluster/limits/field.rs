//! Fields of an install-config.

use serde_json::Value;

/// The text at a JSON pointer; empty if there is none.
pub(super) fn text<'a>(install_config: &'a Value, pointer: &str) -> &'a str {
    install_config
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The items of the list at a JSON pointer.
pub(super) fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}
