//! Applies the filters of listings again on the client.
//!
//! Some servers ignore filters:
//!
//! * Contrail's Neutron compares few fields, never `description`. With `network_id` it also lists ports of other
//!   projects (tungstenfabric/tf-controller: src/config/vnc_openstack/vnc_openstack/neutron_plugin_db.py).
//! * Neutron ignores a filter without a value (openstack/neutron: neutron/api/api_common.py).
//! * Neutron, Nova and Glance on MariaDB compare without case and without spaces at the end (tests/lab/openstack).
//! * Nova ignores unknown parameters up to microversion 2.74 (openstack/nova:
//!   nova/api/openstack/compute/schemas/servers.py).
//! * An aggregated Kubernetes API may ignore label selectors (antrea-io/antrea#1432).
//! * oVirt searches only for administrators; others get a list of all their objects (oVirt/ovirt-engine:
//!   BackendInstanceTypesResource.list and its like, by `isFiltered`).
//!
//! Therefore every backend compares each listed object with the complete filter before it uses it. An object that does
//! not match is ignored, and the user is warned once for each server. The command continues, as in
//! carvel-dev/kapp#160:
//!
//! * Stopping would protect nothing: an object that does not match is neither changed nor deleted in either case.
//! * A cluster on such a server could never be destroyed, and oVirt users without administrator role could do nothing.
//! * Since databases match loosely, anyone who creates a similar object could block every command.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tracing::warn;

use crate::printable::count;

/// Servers about which the user was warned in this run.
static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// The listed objects that match the filter; `request` is the path with its filter.
pub(super) fn matching<T>(server: &str, request: &str, listed: Vec<T>, matches: impl Fn(&T) -> bool) -> Vec<T> {
    let (matching, others): (Vec<T>, Vec<T>) = listed.into_iter().partition(matches);
    if !others.is_empty() && is_first(server) {
        let others = count(others.len(), "other object");
        warn!(
            "this server ignores filters: {server} returned {others} for {request}; \
             they are ignored, since every object is compared again"
        );
    }
    matching
}

fn is_first(server: &str) -> bool {
    // The set is valid even after a panic.
    let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
    warned.insert(server.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_matching_objects_remain() {
        let is_ours = |tag: &&str| *tag == "ocpdeploy lab.example.com";
        let listed = vec![
            "ocpdeploy lab.example.com",
            "ocpdeploy lab.example.com.au",
            "ocpdeploy xlab.example.com",
            "OCPDEPLOY lab.example.com",
            " ocpdeploy lab.example.com",
            "",
        ];
        let left = matching("a test", "/ports?description=…", listed, is_ours);
        assert_eq!(left, ["ocpdeploy lab.example.com"]);
    }

    #[test]
    fn each_server_is_warned_about_once() {
        assert!(is_first("one server of this test"));
        assert!(!is_first("one server of this test"));
        assert!(is_first("another server of this test"));
    }
}
