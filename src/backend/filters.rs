//! Filters of listings, applied again on our side.
//!
//! A server may ignore a filter:
//!
//! * Contrail's Neutron compares few fields, never `description`; with `network_id` it lists other projects' ports, too
//!   (tungstenfabric/tf-controller: src/config/vnc_openstack/vnc_openstack/neutron_plugin_db.py).
//! * Neutron drops a filter without a value (openstack/neutron: neutron/api/api_common.py).
//! * Neutron, Nova and Glance on MariaDB compare without case and without spaces at the end (tests/lab/openstack).
//! * Nova drops parameters that it does not know up to microversion 2.74 (openstack/nova:
//!   nova/api/openstack/compute/schemas/servers.py).
//! * An aggregated Kubernetes API may not look at label selectors (antrea-io/antrea#1432).
//! * oVirt searches for nobody but administrators; others get a list of all that is theirs (oVirt/ovirt-engine:
//!   BackendInstanceTypesResource.list and its like, by `isFiltered`).
//!
//! So every backend compares each listed object with the whole of what it asked for before it uses it. An object that
//! does not match is dropped, and the user is warned once per server. The command goes on, as in carvel-dev/kapp#160:
//!
//! * Stopping protects nothing more: what does not match is neither changed nor deleted in either case.
//! * A cluster on such a server could never be destroyed, and ordinary users of oVirt could do nothing.
//! * Since databases match loosely, whoever makes a similar object could block every command.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tracing::warn;

/// Servers that the user was warned of in this run.
static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// The listed objects that were asked for; `request` is the path with its filter.
pub(super) fn matching<T>(server: &str, request: &str, listed: Vec<T>, is_asked_for: impl Fn(&T) -> bool) -> Vec<T> {
    let (asked_for, others): (Vec<T>, Vec<T>) = listed.into_iter().partition(is_asked_for);
    if !others.is_empty() && is_first(server) {
        let others = others.len();
        warn!(
            "this server ignores filters: {server} returned {others} other objects for {request}; \
             they are left alone, since every object is compared here"
        );
    }
    asked_for
}

fn is_first(server: &str) -> bool {
    // A set is whole whenever its lock is free.
    let mut warned = WARNED.lock().unwrap_or_else(PoisonError::into_inner);
    warned.insert(server.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_for_is_left() {
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
    fn a_server_is_warned_of_once() {
        assert!(is_first("one server of this test"));
        assert!(!is_first("one server of this test"));
        assert!(is_first("another server of this test"));
    }
}
