//! The permits of this user, and the restrictions of ordinary users.
//!
//! An ordinary user sees owned objects only. Tags, affinity, filters and image transfers are for administrators
//! (oVirt/ovirt-engine: `QueryType`, `QueriesCommandBase`).

use std::collections::{BTreeMap, BTreeSet};

use super::engine::Ovirt;
use super::engine::OvirtSite;
use super::wire::id;
use crate::backend::{BackendError, BackendErrorKind, Finding};
use crate::cluster::Affinity;
use crate::xml::Element;

/// Required for machines (oVirt/ovirt-engine: PermitType).
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

/// Also required for uploaded images and for masters on different hosts.
const OF_ADMINISTRATORS: [&str; 4] = [
    "create_template",
    "delete_template",
    "manipulate_affinity_groups",
    "tag_management",
];

pub(super) const TEMPLATE_HINT: &str = "an administrator assigns UserTemplateBasedVm on the template; a role on the \
     oVirt cluster does not apply to templates";

/// One role of this user, and the object that has it.
struct Grant {
    permission: Element,
    permits: BTreeSet<String>,
}

impl Grant {
    fn on(&self, kind: &str) -> Option<&str> {
        self.permission.value(kind, "id")
    }

    /// Whether it applies to a new cluster's machines.
    fn counts(&self, site: &OvirtSite) -> bool {
        let elsewhere = ["vm", "template", "disk", "host", "vm_pool"];
        if elsewhere.iter().any(|kind| self.on(kind).is_some()) {
            return false;
        }
        match (self.on("data_center"), self.on("cluster")) {
            (Some(center), _) => center == site.data_center,
            (_, Some(cluster)) => cluster == site.cluster,
            // Of the whole system, or of a storage domain or network.
            (None, None) => true,
        }
    }

    /// Whether it permits machines of a template. The parents of a template are its data center and the
    /// system, not the oVirt cluster (oVirt/ovirt-engine: `AddVmCommand.getPermissionCheckSubjects`).
    fn counts_for_template(&self, site: &OvirtSite, template: &str) -> bool {
        let elsewhere = [
            "vm",
            "disk",
            "host",
            "vm_pool",
            "cluster",
            "storage_domain",
            "vnic_profile",
            "network",
        ];
        self.permits.contains("create_vm")
            && !elsewhere.iter().any(|kind| self.on(kind).is_some())
            && self.on("template").is_none_or(|id| id == template)
            && self.on("data_center").is_none_or(|id| id == site.data_center)
    }
}

impl Ovirt {
    /// `None` if only administrators may read it, and this user is not one.
    pub(super) fn if_permitted<T>(&self, answer: Result<T, BackendError>) -> Result<Option<T>, BackendError> {
        match answer {
            Err(failure) if failure.kind == BackendErrorKind::Denied && self.session.is_filtered() => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// The roles of this user, without those of groups. `None` if the engine does not list them.
    async fn grants(&self) -> Result<Option<Vec<Grant>>, BackendError> {
        let api = self.session.get("", &[]).await?;
        let Some(user) = api.value("authenticated_user", "id") else {
            return Ok(None);
        };
        let path = format!("/users/{user}/permissions");
        let Some(permissions) = self.if_permitted(self.session.get(&path, &[]).await)? else {
            return Ok(None);
        };
        let (mut known, mut grants) = (BTreeMap::new(), Vec::new());
        for permission in permissions.into_children() {
            let Some(role) = permission.find("role") else { continue };
            let role = id(role)?;
            if !known.contains_key(&role) {
                let permits = self.session.get(&format!("/roles/{role}/permits"), &[]).await?;
                let names = permits.iter().filter_map(|permit| permit.text_of("name"));
                known.insert(role.clone(), names.map(str::to_owned).collect::<BTreeSet<_>>());
            }
            let permits = known.get(&role).cloned().unwrap_or_default();
            grants.push(Grant { permission, permits });
        }
        Ok(Some(grants))
    }

    /// The permits that this user's own roles lack.
    pub(super) async fn check_rights(
        &self,
        site: &OvirtSite,
        templates: &[String],
    ) -> Result<Vec<Finding>, BackendError> {
        let Some(grants) = self.grants().await? else {
            return Ok(Vec::new());
        };
        let counting = grants.iter().filter(|grant| grant.counts(site));
        let permits: BTreeSet<_> = counting.flat_map(|grant| &grant.permits).map(String::as_str).collect();
        let missing = |wanted: &[&str]| {
            let missing = wanted.iter().filter(|permit| !permits.contains(*permit));
            missing.copied().collect::<Vec<_>>().join(", ")
        };
        let of_all = match self.session.is_filtered() {
            // Owners of machines and disks have the other permits.
            true => vec!["create_vm", "create_disk"],
            false => OF_ALL.to_vec(),
        };
        let user = &self.config.user;
        let mut findings = Vec::new();
        let lacks = missing(&of_all);
        if !lacks.is_empty() {
            findings.push(Finding::warn(format!("the roles of {user} lack these permits: {lacks}")).hint(
                "an administrator assigns PowerUserRole on the oVirt cluster and the storage domain and VnicProfileUser \
                 on the network's profile, or DataCenterAdmin and TagManager; roles of a group are not checked",
            ));
        }
        if !self.session.is_filtered() {
            let mut of_administrators = OF_ADMINISTRATORS.to_vec();
            // oVirt/ovirt-engine: `AddVmCommand.getPermissionCheckSubjects`, host-specific parameters.
            if !self.config.hosts.is_empty() {
                of_administrators.push("edit_admin_vm_properties");
            }
            let lacks = missing(&of_administrators);
            if !lacks.is_empty() {
                let text = format!("the roles of {user} lack these permits for images, affinity and hosts: {lacks}");
                findings.push(Finding::warn(text));
            }
            return Ok(findings);
        }
        findings.extend(self.restrictions());
        for name in templates {
            // A missing template is reported later.
            let Some(template) = self.find_template(name).await? else {
                continue;
            };
            let template = id(&template)?;
            if !grants.iter().any(|grant| grant.counts_for_template(site, &template)) {
                let text = format!("the roles of {user} do not permit machines of template {name}");
                findings.push(Finding::warn(text).hint(format!("{TEMPLATE_HINT}; roles of a group are not checked")));
            }
        }
        Ok(findings)
    }

    /// The settings and features that require an administrator.
    fn restrictions(&self) -> Vec<Finding> {
        let user = &self.config.user;
        let settings = [
            (self.config.affinity == Affinity::Hard, "ovirt_affinity=hard"),
            (self.config.worker_label.is_some(), "ovirt_worker_label"),
            (!self.config.hosts.is_empty(), "ovirt_hosts"),
        ];
        let requires = |setting| {
            let text = format!("{setting} requires an administrator, and {user} is not an administrator");
            Finding::fail(text)
        };
        let set = settings.into_iter().filter(|(is_set, _)| *is_set);
        let mut findings: Vec<_> = set.map(|(_, setting)| requires(setting)).collect();
        findings.push(
            Finding::warn(format!(
                "{user} is not an administrator: images must be templates, and nodes may share a host"
            ))
            .hint("an administrator creates templates of the images; set image and harvest_image to their names"),
        );
        findings
    }
}
