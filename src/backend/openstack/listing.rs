//! Lists whose entries are compared with the filter again (see `backend/filters.rs`), and lists of only this project's
//! objects.
//!
//! Some lists contain objects of other projects, where anyone can choose names, tags, descriptions and properties:
//!
//! * Administrators get those of all projects from Neutron, Glance and Octavia (openstack/neutron:
//!   `neutron/db/db_base_plugin_v2.py`, `_port_filter_hook`; openstack/glance: `glance/db/sqlalchemy/api.py`,
//!   `_select_images_query`; openstack/octavia: `octavia/api/v2/controllers/base.py`, `_auth_get_all`).
//! * Members get shared security groups and networks (openstack/neutron: `neutron/conf/policies/rbac.py`,
//!   `create_rbac_policy`), all ports of their networks (`_port_filter_hook`), and public and shared images.
//!
//! So all objects that this program treats as its own are listed by `list_own`.

use serde_json::Value;

use super::auth::Service;
use super::session::OpenStackSession;
use super::wire::query;
use crate::backend::BackendError;
use crate::backend::filters::matching;

impl OpenStackSession {
    /// The entries that match the filter. If a field has several values, any of them matches.
    pub async fn list_where(
        &self,
        service: Service,
        path: &str,
        filter: &[(&str, &str)],
        key: &str,
    ) -> Result<Vec<Value>, BackendError> {
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
    ) -> Result<Vec<Value>, BackendError> {
        let listed = self.list(service, path, key).await?;
        let server = format!("{} of {}", service.name(), self.name());
        Ok(matching(&server, path, listed, is_asked_for))
    }

    /// Like `list_matching`, without objects of other projects.
    pub async fn list_own(
        &self,
        service: Service,
        path: &str,
        key: &str,
        is_asked_for: impl Fn(&Value) -> bool,
    ) -> Result<Vec<Value>, BackendError> {
        let project = self.token().await?.project;
        let filter = match service {
            Service::Image => Some(("owner", &*project)),
            // They list only this project's objects, even for administrators (openstack/nova:
            // `nova/api/openstack/compute/servers.py`, `_get_servers`, which ignores `tenant_id`; `server_groups.py`,
            // `index`; openstack/cinder: `cinder/volume/api.py`, `get_all`).
            Service::Compute | Service::Volume => None,
            _ => Some(("project_id", &*project)),
        };
        let path = query(path, filter.as_slice());
        let is_ours = |entry: &Value| belongs_to(service, entry, &project) && is_asked_for(entry);
        self.list_matching(service, &path, key, is_ours).await
    }

    /// Like `list_where`, without objects of other projects.
    pub async fn list_own_where(
        &self,
        service: Service,
        path: &str,
        filter: &[(&str, &str)],
        key: &str,
    ) -> Result<Vec<Value>, BackendError> {
        let is_asked_for = |entry: &Value| matches_filter(entry, filter);
        self.list_own(service, &query(path, filter), key, is_asked_for).await
    }

    /// The objects that a user means by a name: those of this project, or if it has none, those of other projects.
    pub async fn list_named(
        &self,
        service: Service,
        path: &str,
        name: &str,
        key: &str,
    ) -> Result<Vec<Value>, BackendError> {
        let mut found = self.list_where(service, path, &[("name", name)], key).await?;
        let project = self.token().await?.project;
        let is_own = |entry: &Value| belongs_to(service, entry, &project);
        if found.iter().any(is_own) {
            found.retain(is_own);
        }
        Ok(found)
    }
}

/// Whether a listed object belongs to the project. Its users cannot change these fields.
fn belongs_to(service: Service, entry: &Value, project: &str) -> bool {
    let field = |name: &str| entry.get(name).and_then(Value::as_str);
    match service {
        // Its other fields may be properties that a user has chosen.
        Service::Image => field("owner") == Some(project),
        // An administrator can hide it (openstack/cinder: `cinder/api/contrib/volume_tenant_attribute.py`).
        Service::Volume => field("os-vol-tenant-attr:tenant_id").is_none_or(|owner| owner == project),
        // Servers have `tenant_id`, server groups `project_id`.
        _ => field("project_id").or(field("tenant_id")) == Some(project),
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
    fn only_an_object_of_the_project_belongs_to_it() {
        for (service, entry, expected) in [
            (Service::Network, json!({"project_id": "a"}), true),
            (Service::Network, json!({"tenant_id": "a"}), true),
            (Service::Network, json!({"project_id": "b", "tenant_id": "a"}), false),
            (Service::Network, json!({"project_id": ""}), false),
            (Service::Network, json!({}), false),
            (Service::Balancer, json!({"project_id": "b"}), false),
            (Service::Compute, json!({"tenant_id": "a"}), true),
            (Service::Compute, json!({"tenant_id": "b"}), false),
            (Service::Image, json!({"owner": "a"}), true),
            (Service::Image, json!({"owner": "b", "project_id": "a"}), false),
            (Service::Image, json!({"owner": null, "project_id": "a"}), false),
            (Service::Volume, json!({"os-vol-tenant-attr:tenant_id": "b"}), false),
            (Service::Volume, json!({}), true),
        ] {
            assert_eq!(belongs_to(service, &entry, "a"), expected, "{service:?} {entry}");
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
