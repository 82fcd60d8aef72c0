//! Compares a stored object with the one that was sent; pure.

use serde_json::Value;

/// The first field that was sent and is stored differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// E.g. `spec.template.spec.domain.devices.disks[0].bootOrder`.
    pub path: String,
    pub what: &'static str,
}

/// Finds the first difference. The stored object may have more fields: defaults, status, fields of other managers.
pub(super) fn difference(sent: &Value, stored: &Value) -> Option<Difference> {
    compare("", sent, stored)
}

fn compare(path: &str, sent: &Value, stored: &Value) -> Option<Difference> {
    let differs = |what| {
        let path = path.to_owned();
        Some(Difference { path, what })
    };
    match (sent, stored) {
        // Write-only: the server stores it as base64 in `data`.
        _ if path == "stringData" => None,
        (Value::Object(sent), Value::Object(stored)) => sent.iter().find_map(|(key, value)| {
            let path = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            match stored.get(key) {
                Some(there) => compare(&path, value, there),
                // An empty value means the same as no value, and typed servers omit it.
                None if is_empty(value) || path == "stringData" => None,
                None => Some(Difference {
                    path,
                    what: "is missing",
                }),
            }
        }),
        (Value::Array(sent), Value::Array(stored)) => {
            if sent.len() > stored.len() {
                return differs("has lost entries");
            }
            // A webhook may append entries.
            let pairs = sent.iter().zip(stored).enumerate();
            pairs
                .into_iter()
                .find_map(|(index, (sent, stored))| compare(&format!("{path}[{index}]"), sent, stored))
        }
        (sent, stored) if sent == stored || same_quantity(sent, stored) => None,
        _ => differs("was changed"),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        // `{}` counts as a value: it can select something, such as the binding in `bridge: {}`.
        _ => false,
    }
}

/// Whether both are the same Kubernetes quantity, e.g. `1024Mi` and `1Gi`.
fn same_quantity(sent: &Value, stored: &Value) -> bool {
    match (quantity(sent), quantity(stored)) {
        (Some(sent), Some(stored)) => sent == stored,
        _ => false,
    }
}

/// A Kubernetes quantity in thousandths (kubernetes/apimachinery: pkg/api/resource/quantity.go).
pub(super) fn quantity(value: &Value) -> Option<u128> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return None,
    };
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let unit: u128 = match suffix {
        "m" => 1,
        "" => 1000,
        "k" => 1_000_000,
        "M" => 1_000_000_000,
        "G" => 1_000_000_000_000,
        "T" => 1_000_000_000_000_000,
        "Ki" => 1000 << 10,
        "Mi" => 1000 << 20,
        "Gi" => 1000 << 30,
        "Ti" => 1000 << 40,
        "Pi" => 1000 << 50,
        _ => return None,
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let part = part.get(..part.len().min(9)).unwrap_or_default();
    let scale = 10u128.pow(u32::try_from(part.len()).ok()?);
    let parts = format!("{whole}{part}").parse::<u128>().ok()?;
    Some(parts.checked_mul(unit)? / scale)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_removed_or_changed_field_is_reported() {
        let sent = json!({"spec": {"a": [{"b": 1, "bridge": {}}], "memory": "1024Mi", "none": []}});
        let same = json!({"metadata": {"uid": "x"}, "spec": {"a": [{"b": 1, "bridge": {}, "model": "virtio"}, 7], "memory": "1Gi"}});
        assert_eq!(difference(&sent, &same), None);
        for (stored, path) in [
            (json!({"spec": {"a": [{"b": 1}], "memory": "1Gi"}}), "spec.a[0].bridge"),
            (json!({"spec": {"a": [], "memory": "1Gi"}}), "spec.a"),
            (
                json!({"spec": {"a": [{"b": 2, "bridge": {}}], "memory": "1Gi"}}),
                "spec.a[0].b",
            ),
            (
                json!({"spec": {"a": [{"b": 1, "bridge": {}}], "memory": "2Gi"}}),
                "spec.memory",
            ),
            (json!({}), "spec"),
        ] {
            assert_eq!(
                difference(&sent, &stored).map(|d| d.path).as_deref(),
                Some(path),
                "{stored}"
            );
        }
    }

    #[test]
    fn quantities_are_compared_by_value() {
        for (a, b) in [("1Gi", "1024Mi"), ("0.5", "500m"), ("2k", "2000"), ("1.5Gi", "1536Mi")] {
            assert_eq!(quantity(&json!(a)), quantity(&json!(b)), "{a} {b}");
        }
        assert_eq!(quantity(&json!(4)), quantity(&json!("4")));
        for bad in ["", "x", "1Zi", "."] {
            assert_eq!(quantity(&json!(bad)), None, "{bad}");
        }
    }
}
