//! The projects of the fake cloud's objects, and who sees them in lists. Objects that tests add without a project
//! belong to the token's project.
//!
//! Sources: openstack/neutron: neutron/db/db_base_plugin_v2.py: _port_filter_hook (the owner of a network sees all of its
//! ports), neutron/extensions/security_groups_shared_filtering.py (`shared`); openstack/glance:
//! glance/db/sqlalchemy/api.py: _select_images_query; openstack/octavia: octavia/api/v2/controllers/base.py:
//! _auth_get_all; openstack/nova: nova/api/openstack/compute/servers.py: _get_servers, server_groups.py: index;
//! openstack/cinder: cinder/volume/api.py: get_all.

use serde_json::{Value, json};

/// The project of all tokens.
pub const OURS: &str = "project-1";
/// Another project.
pub const THEIRS: &str = "project-2";

/// Lists of objects with the field of their project, and whether an administrator gets those of all projects.
const LISTS: [(&str, &str, bool); 11] = [
    ("ports", "project_id", true),
    ("floatingips", "project_id", true),
    ("security_groups", "project_id", true),
    ("images", "owner", true),
    ("loadbalancers", "project_id", true),
    ("listeners", "project_id", true),
    ("pools", "project_id", true),
    ("healthmonitors", "project_id", true),
    ("servers", "tenant_id", false),
    ("server_groups", "project_id", false),
    ("volumes", "os-vol-tenant-attr:tenant_id", false),
];

fn is_shared(object: &Value) -> bool {
    object["shared"] == true || object["visibility"] == "public" || object["network_id"] == "net-1"
}

/// Filters a list by the objects that this token sees, and by its query.
pub fn show(mut answer: Value, is_admin: bool, query: &[(String, String)]) -> Value {
    for (list, field, is_of_all) in LISTS {
        let Some(objects) = answer.get_mut(list).and_then(Value::as_array_mut) else {
            continue;
        };
        let wanted = query.iter().find(|(key, _)| key == field && is_of_all);
        objects.retain_mut(|object| {
            if object[field].is_null() {
                object[field] = json!(OURS);
            }
            let is_seen = object[field] == OURS || is_of_all && (is_admin || is_shared(object));
            is_seen && wanted.is_none_or(|(_, project)| object[field] == project.as_str())
        });
    }
    answer
}
