//! What this user may do, and who is an ordinary user.
//!
//! Only administrators are shown all there is; anybody else is shown what is theirs, and tags, affinity and transfers not at
//! all (oVirt/ovirt-engine: QueryType, QueriesCommandBase).

use std::collections::BTreeSet;

use super::engine::Ovirt;
use super::engine::Site;
use super::wire::id;
use crate::backend::failure::Failure;
use crate::backend::{BackendErrorKind, Finding, Verdict};
use crate::cluster::{Affinity, OvirtIgnition};
use crate::xml::Element;

/// What making and removing machines takes (oVirt/ovirt-engine: PermitType).
const OF_ALL: [&str; 12] = [
    "create_vm",
    "delete_vm",
    "edit_vm_properties",
    "run_vm",
    "stop_vm",
    "shut_down_vm",
    "configure_vm_network",
    "configure_vm_storage",
    "create_disk",
    "attach_disk",
    "edit_disk_properties",
    "delete_disk",
];

/// What bringing images and keeping masters apart takes besides.
const OF_ADMINISTRATORS: [&str; 4] = [
    "create_template",
    "delete_template",
    "manipulate_affinity_groups",
    "tag_management",
];

impl Ovirt {
    /// Nothing, where only administrators are shown it and this is none.
    pub(super) fn shown_to_users<T>(&self, answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
        match answer {
            Err(failure) if failure.kind == BackendErrorKind::Denied && self.session.is_filtered() => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// What this user lacks, as far as their own roles tell.
    pub(super) async fn look_at_rights(&self, site: &Site) -> Result<Vec<Finding>, Failure> {
        let api = self.session.get("", &[]).await?;
        let Some(user) = api.value("authenticated_user", "id") else {
            // Before 4.2 the engine does not say who asks.
            return Ok(Vec::new());
        };
        let path = format!("/users/{user}/permissions");
        let Some(permissions) = self.shown_to_users(self.session.get(&path, &[]).await)? else {
            return Ok(Vec::new());
        };
        let mut permits = BTreeSet::new();
        let mut roles = BTreeSet::new();
        for permission in permissions.iter().filter(|permission| is_of(permission, site)) {
            let Some(role) = permission.find("role") else { continue };
            let role = id(role)?;
            if roles.insert(role.clone()) {
                let list = self.session.get(&format!("/roles/{role}/permits"), &[]).await?;
                permits.extend(
                    list.iter()
                        .filter_map(|permit| permit.text_of("name"))
                        .map(str::to_owned),
                );
            }
        }
        let lacking = |wanted: &[&'static str]| {
            let lacks = wanted.iter().copied().filter(|name| !permits.contains(*name));
            lacks.collect::<Vec<_>>().join(", ")
        };
        // Who makes something as an ordinary user owns it, and may do all with it.
        let mut of_all = match self.session.is_filtered() {
            true => vec!["create_vm", "create_disk"],
            false => OF_ALL.to_vec(),
        };
        if self.config.ignition == OvirtIgnition::Hook {
            of_all.push("change_vm_custom_properties");
        }
        let user = &self.config.user;
        let mut findings = Vec::new();
        let lacks = lacking(&of_all);
        if !lacks.is_empty() {
            findings.push(Finding {
                hint: Some("PowerUserRole on cluster and storage domain and VnicProfileUser on the network, or DataCenterAdmin and TagManager, let it; a group's roles are not looked at".to_owned()),
                ..Finding::new(Verdict::Warn, format!("the roles of {user} here do not let it: {lacks}"))
            });
        }
        if self.session.is_filtered() {
            findings.extend(self.look_at_user());
        } else {
            let lacks = lacking(&OF_ADMINISTRATORS);
            if !lacks.is_empty() {
                let text =
                    format!("the roles of {user} here do not let it: {lacks}; images and affinity may be refused");
                findings.push(Finding::new(Verdict::Warn, text));
            }
        }
        Ok(findings)
    }

    /// What an ordinary user must do without.
    fn look_at_user(&self) -> Vec<Finding> {
        let user = &self.config.user;
        let needs = [
            (self.config.affinity == Affinity::Hard, "ovirt_affinity=hard"),
            (self.config.worker_label.is_some(), "ovirt_worker_label"),
            (!self.config.hosts.is_empty(), "ovirt_hosts"),
        ];
        let mut findings: Vec<_> = needs
            .into_iter()
            .filter(|(is_wished, _)| *is_wished)
            .map(|(_, setting)| {
                Finding::new(
                    Verdict::Fail,
                    format!("{setting} needs an administrator's role, and {user} has none"),
                )
            })
            .collect();
        findings.push(Finding {
            hint: Some(
                "an administrator makes templates of the images; name them by image and helper_image".to_owned(),
            ),
            ..Finding::new(
                Verdict::Warn,
                format!("{user} is no administrator: images must be templates, and masters may share a host"),
            )
        });
        findings
    }
}

/// Whether a permission counts for what a cluster is made of.
fn is_of(permission: &Element, site: &Site) -> bool {
    let on = |name: &str| permission.value(name, "id");
    let elsewhere = ["vm", "template", "disk", "host", "vm_pool"];
    if elsewhere.iter().any(|name| on(name).is_some()) {
        return false;
    }
    match (on("data_center"), on("cluster")) {
        (Some(center), _) => center == site.data_center,
        (_, Some(cluster)) => cluster == site.cluster,
        // Of the whole system, or of a storage domain or network.
        (None, None) => true,
    }
}
