//! Authorization: a tenant has `edit` in its namespace, with the rights that KubeVirt and CDI aggregate into it.

use std::collections::BTreeSet;

/// A user with a token.
#[derive(Clone, Debug, Default)]
pub struct User {
    pub name: String,
    /// Namespaces in which it is `edit`; `*` is an administrator.
    pub edits: BTreeSet<String>,
    /// Rights taken away: `verb resource`.
    pub lacks: BTreeSet<String>,
    /// Rights beyond: `verb resource namespace`.
    pub more: BTreeSet<String>,
}

const ALL: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];
const LOOK: &[&str] = &["get", "list", "watch"];

/// What is aggregated into `edit`: kubernetes bootstrappolicy (neither roles nor pod templates), kubevirt pkg/virt-operator/resource/generate/rbac, CDI
/// pkg/operator/resources/cluster/rbac.
const EDIT: &[(&str, &[&str])] = &[
    ("configmaps", ALL),
    ("secrets", ALL),
    ("services", ALL),
    ("persistentvolumeclaims", ALL),
    ("networkpolicies", ALL),
    ("routes", ALL),
    ("routes/custom-host", &["create"]),
    ("pods", ALL),
    ("pods/log", &["get"]),
    ("resourcequotas", LOOK),
    ("limitranges", LOOK),
    ("serviceaccounts", ALL),
    ("endpoints", LOOK),
    ("events", ALL),
    ("endpointslices", LOOK),
    ("leases", ALL),
    ("namespaces", &["get"]),
    ("virtualmachines", ALL),
    ("virtualmachineinstances", ALL),
    ("virtualmachines/start", &["update"]),
    ("virtualmachines/stop", &["update"]),
    ("virtualmachines/restart", &["update"]),
    ("virtualmachineinstances/console", &["get"]),
    ("virtualmachinesnapshots", ALL),
    ("virtualmachinerestores", ALL),
    ("datavolumes", ALL),
    ("datavolumes/source", &["create"]),
    ("datasources", ALL),
    ("uploadtokenrequests", &["create"]),
    ("network-attachment-definitions", LOOK),
    ("kubevirts", &["get", "list"]),
];

/// The rights of all authenticated users.
const EVERYBODY: &[(&str, &[&str])] = &[("cdiconfigs", LOOK), ("selfsubjectaccessreviews", &["create"])];

impl User {
    pub fn tenant(name: &str, namespace: &str) -> Self {
        Self {
            name: name.to_owned(),
            edits: BTreeSet::from([namespace.to_owned()]),
            lacks: BTreeSet::new(),
            more: BTreeSet::new(),
        }
    }

    pub fn may(&self, verb: &str, resource: &str, namespace: &str) -> bool {
        if self.lacks.contains(&format!("{verb} {resource}")) {
            return false;
        }
        let table = |table: &[(&str, &[&str])]| {
            table
                .iter()
                .any(|(name, verbs)| *name == resource && verbs.contains(&verb))
        };
        self.edits.contains("*")
            || table(EVERYBODY)
            || self.more.contains(&format!("{verb} {resource} {namespace}"))
            || (self.edits.contains(namespace) && table(EDIT))
    }
}
