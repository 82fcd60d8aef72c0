//! Listings whose entries are compared with the filter again; see `backend/filters.rs`.

use serde_json::Value;

use super::auth::Service;
use super::session::Session;
use super::wire::query;
use crate::backend::failure::Failure;
use crate::backend::filters::matching;

impl Session {
    /// The entries that match the filter. If a field has several values, any of them matches.
    pub async fn list_where(
        &self,
        service: Service,
        path: &str,
        filter: &[(&str, &str)],
        key: &str,
    ) -> Result<Vec<Value>, Failure> {
        self.list_matching(service, &query(path, filter), key, |entry| {
            matches_filter(entry, filter)
        })
        .await
    }

    /// Like `list_where`, for filters that are not fields.
    pub async fn list_matching(
        &self,
        service: Service,
        path: &str,
        key: &str,
        is_asked_for: impl Fn(&Value) -> bool,
    ) -> Result<Vec<Value>, Failure> {
        let listed = self.list(service, path, key).await?;
        let server = format!("{} of {}", service.name(), self.name());
        Ok(matching(&server, path, listed, is_asked_for))
    }
}

fn matches_filter(entry: &Value, filter: &[(&str, &str)]) -> bool {
    let has = |field: &str, wanted: &str| match &entry[field] {
        // MACs are compared without case.
        Value::String(text) if field == "mac_address" => text.eq_ignore_ascii_case(wanted),
        Value::String(text) => text == wanted,
        Value::Number(number) => number.to_string() == wanted,
        _ => false,
    };
    filter.iter().all(|(field, _)| {
        let mut values = filter.iter().filter(|(other, _)| other == field);
        values.any(|(_, wanted)| has(field, wanted))
    })
}

/// Whether an image or a server has all of these tags.
pub(super) fn has_tags(entry: &Value, tags: &[&str]) -> bool {
    let there = entry["tags"].as_array().map(Vec::as_slice).unwrap_or_default();
    tags.iter().all(|tag| there.iter().any(|other| other == tag))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entry_matches_only_the_complete_filter() {
        let port = json!({
            "name": "api.lab.example.com", "description": "ocpdeploy lab.example.com", "network_id": "n",
            "mac_address": "FA:16:3E:00:00:01", "port_id": null, "ip_version": 4,
        });
        for (filter, expected) in [
            (&[][..], true),
            (&[("description", "ocpdeploy lab.example.com")], true),
            (&[("description", "ocpdeploy lab.example.co")], false),
            (&[("description", "ocpdeploy LAB.example.com")], false),
            (&[("name", "x"), ("name", "api.lab.example.com")], true),
            (&[("name", "api.lab.example.com"), ("network_id", "m")], false),
            (&[("network_id", "n"), ("mac_address", "fa:16:3e:00:00:01")], true),
            (&[("port_id", "")], false),
            (&[("absent", "")], false),
            (&[("ip_version", "4")], true),
            (&[("ip_version", "6")], false),
        ] {
            assert_eq!(matches_filter(&port, filter), expected, "{filter:?}");
        }
    }

    #[test]
    fn tags_are_compared_completely() {
        let image = json!({"tags": ["ocpdeploy", "lab.example.com.au", "LAB.example.com"]});
        assert!(has_tags(&image, &["ocpdeploy"]));
        assert!(!has_tags(&image, &["ocpdeploy", "lab.example.com"]));
        assert!(!has_tags(&json!({}), &["ocpdeploy"]));
    }
}
