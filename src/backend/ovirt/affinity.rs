//! The affinity group that keeps a cluster's masters on different hosts, and the affinity label of its workers.

use std::collections::BTreeSet;

use super::engine::{Ovirt, OvirtSite};
use super::wire;
use super::wire::id;
use crate::backend::error::if_exists;
use crate::backend::{BackendError, BackendErrorKind};
use crate::cluster::{Affinity, ClusterId};
use crate::xml::Element;

/// How often membership is read and changed before the last rejection is an error.
const ATTEMPTS: usize = 8;

/// Adds a machine to its cluster's affinity group, which is created if it is missing.
///
/// The engine takes no lock for this: two requests can create two groups of one name, and before 4.4.8 each new member
/// rewrites the list of members (oVirt/ovirt-engine: `AddAffinityGroupCommand`, `EditAffinityGroupCommand`). So requests
/// are sent one at a time, groups and members are read again after each, and a second group is merged into the first.
pub(super) async fn join(ovirt: &Ovirt, site: &OvirtSite, cluster: &ClusterId, vm: &str) -> Result<(), BackendError> {
    if ovirt.session.is_filtered() && ovirt.config.affinity == Affinity::Soft {
        return Ok(());
    }
    let _one_at_a_time = ovirt.affinity.lock().await;
    let collection = collection(site);
    let mut rejected = None;
    for _ in 0..ATTEMPTS {
        let mut groups = groups(ovirt, site, cluster).await?;
        groups.sort();
        let Some((group, surplus)) = groups.split_first() else {
            let created = ovirt.session.post(&collection, &[], &group(ovirt, cluster)).await;
            rejected = tolerated(created)?;
            continue;
        };
        let mut wanted = BTreeSet::from([vm.to_owned()]);
        for other in surplus {
            wanted.extend(members(ovirt, &format!("{collection}/{other}/vms")).await?);
        }
        let path = format!("{collection}/{group}/vms");
        let present = members(ovirt, &path).await?;
        let missing: Vec<_> = wanted.difference(&present).collect();
        if missing.is_empty() && surplus.is_empty() {
            return Ok(());
        }
        for vm in &missing {
            let added = ovirt.session.post(&path, &[], &wire::reference("vm", vm)).await;
            rejected = tolerated(added)?;
        }
        if missing.is_empty() {
            for other in surplus {
                ovirt.session.delete(&format!("{collection}/{other}")).await?;
            }
        }
    }
    let name = wire::affinity_name(cluster);
    let unknown = || BackendError::new(BackendErrorKind::Conflict, "its members keep changing");
    let failure = rejected.unwrap_or_else(unknown);
    Err(BackendError {
        kind: BackendErrorKind::Conflict,
        message: format!("affinity group {name} cannot be used: {}", failure.message),
        ..failure
    }
    .hint(format!(
        "remove affinity group {name} in the Administration Portal if it is not of this cluster, or set ovirt_affinity=off"
    )))
}

fn group(ovirt: &Ovirt, cluster: &ClusterId) -> Element {
    let rule = Element::new("vms_rule")
        .with("enabled", true)
        .with("enforcing", ovirt.config.affinity == Affinity::Hard)
        .with("positive", false);
    Element::new("affinity_group")
        .with("description", wire::mark(cluster))
        .with("name", wire::affinity_name(cluster))
        .child(rule)
}

/// A rejection after which groups or members are read again: a taken name and a second membership are HTTP 400
/// (oVirt/ovirt-engine: `EngineMessage.java`, `ErrorType.BAD_PARAMETERS`), a deleted group 404.
fn tolerated<T>(answer: Result<T, BackendError>) -> Result<Option<BackendError>, BackendError> {
    use BackendErrorKind::{Conflict, NotFound, Rejected};
    match answer {
        Ok(_) => Ok(None),
        Err(failure) if [Conflict, NotFound, Rejected].contains(&failure.kind) => Ok(Some(failure)),
        Err(failure) => Err(failure),
    }
}

fn collection(site: &OvirtSite) -> String {
    format!("/clusters/{}/affinitygroups", site.cluster)
}

/// The ids of a group's or label's machines; empty if it was deleted.
async fn members(ovirt: &Ovirt, path: &str) -> Result<BTreeSet<String>, BackendError> {
    let members = if_exists(ovirt.session.get(path, &[]).await)?;
    Ok(members
        .iter()
        .flat_map(Element::iter)
        .filter_map(|member| member.get("id"))
        .map(str::to_owned)
        .collect())
}

/// The ids of a cluster's groups: one, or several after a race.
async fn groups(ovirt: &Ovirt, site: &OvirtSite, cluster: &ClusterId) -> Result<Vec<String>, BackendError> {
    let Some(groups) = ovirt.if_permitted(ovirt.session.get(&collection(site), &[]).await)? else {
        return Ok(Vec::new());
    };
    let (name, mark) = (wire::affinity_name(cluster), wire::mark(cluster));
    let ours = |group: &&Element| {
        group.text_of("name") == Some(name.as_str()) && group.text_of("description") == Some(mark.as_str())
    };
    groups.iter().filter(ours).map(id).collect()
}

/// Whether a cluster has a group.
pub(super) async fn exists(ovirt: &Ovirt, site: &OvirtSite, cluster: &ClusterId) -> Result<bool, BackendError> {
    Ok(!groups(ovirt, site, cluster).await?.is_empty())
}

/// The clusters that have a group.
pub(super) async fn clusters(ovirt: &Ovirt, site: &OvirtSite) -> Result<Vec<ClusterId>, BackendError> {
    let groups = ovirt.if_permitted(ovirt.session.get(&collection(site), &[]).await)?;
    let of = |group: &Element| {
        let cluster = wire::marked(group.text_of("description")?)?;
        (group.text_of("name") == Some(wire::affinity_name(&cluster).as_str())).then_some(cluster)
    };
    Ok(groups.iter().flat_map(Element::iter).filter_map(of).collect())
}

/// The group's name, if a machine is a member.
pub(super) async fn of(
    ovirt: &Ovirt,
    site: &OvirtSite,
    cluster: &ClusterId,
    vm: &str,
) -> Result<Option<String>, BackendError> {
    for group in groups(ovirt, site, cluster).await? {
        let path = format!("{}/{group}/vms", collection(site));
        if members(ovirt, &path).await?.contains(vm) {
            return Ok(Some(wire::affinity_name(cluster)));
        }
    }
    Ok(None)
}

pub(super) async fn remove(ovirt: &Ovirt, site: &OvirtSite, cluster: &ClusterId) -> Result<(), BackendError> {
    for group in groups(ovirt, site, cluster).await? {
        ovirt.session.delete(&format!("{}/{group}", collection(site))).await?;
    }
    Ok(())
}

/// Gives a worker the label of its hosts. The engine removes it with the machine.
///
/// Each addition rewrites the label's list of machines (oVirt/ovirt-engine: `BackendAffinityLabelVmsResource.add`), so
/// additions are sent one at a time and read again.
pub(super) async fn label(ovirt: &Ovirt, site: &OvirtSite, name: &str, vm: &str) -> Result<(), BackendError> {
    let path = format!("/affinitylabels/{}/vms", id(&placing_label(ovirt, site, name).await?)?);
    let _one_at_a_time = ovirt.affinity.lock().await;
    let mut rejected = None;
    for _ in 0..ATTEMPTS {
        if members(ovirt, &path).await?.contains(vm) {
            return Ok(());
        }
        let added = ovirt.session.post(&path, &[], &wire::reference("vm", vm)).await;
        rejected = tolerated(added)?;
    }
    let lost = || {
        BackendError::new(
            BackendErrorKind::Conflict,
            format!("the machine was removed from affinity label {name} again"),
        )
    };
    Err(rejected.unwrap_or_else(lost))
}

/// A label by its name.
pub(super) async fn find_label(ovirt: &Ovirt, name: &str) -> Result<Element, BackendError> {
    let labels = ovirt.session.get("/affinitylabels", &[]).await?.into_children();
    let named = |label: &Element| label.text_of("name") == Some(name);
    labels.into_iter().find(named).ok_or_else(|| {
        let hint = "an administrator creates it and assigns it to hosts: Affinity Labels of the oVirt cluster";
        BackendError::new(
            BackendErrorKind::NotFound,
            format!("affinity label {name} does not exist"),
        )
        .hint(hint)
    })
}

/// A label that determines the hosts of its machines.
///
/// In clusters of compatibility 4.4 and later a label alone has no effect: it requires an affinity group
/// (oVirt/ovirt-engine: `FeatureSupported.isImplicitAffinityGroupSupported`).
pub(super) async fn placing_label(ovirt: &Ovirt, site: &OvirtSite, name: &str) -> Result<Element, BackendError> {
    let label = find_label(ovirt, name).await?;
    if site.compatibility < (4, 4) {
        return match label.all("hosts/host").is_empty() {
            false => Ok(label),
            true => Err(no_host(name)),
        };
    }
    let label_id = id(&label)?;
    let groups = ovirt.session.get(&collection(site), &[]).await?;
    let leads = |group: &&Element| {
        let is = |rule: &str| group.text_of(&format!("hosts_rule/{rule}")) == Some("true");
        let is_labelled = |label: &&Element| label.get("id") == Some(label_id.as_str());
        ["enabled", "positive", "enforcing"].into_iter().all(is)
            && group.all("vm_labels/affinity_label").iter().any(is_labelled)
    };
    let Some(group) = groups.iter().find(leads) else {
        let (major, minor) = site.compatibility;
        let words = format!(
            "no affinity group assigns machines with label {name} to hosts, which clusters of compatibility \
             {major}.{minor} require"
        );
        let hint = format!(
            "an administrator creates an affinity group of the oVirt cluster with the VM label {name}, a host label, and \
             the host rule Positive and Enforcing"
        );
        return Err(BackendError::new(BackendErrorKind::NotFound, words).hint(hint));
    };
    let host_labels: BTreeSet<_> = group
        .all("host_labels/affinity_label")
        .into_iter()
        .map(|label| label.get("id"))
        .collect();
    let labels = ovirt.session.get("/affinitylabels", &[]).await?;
    let has_hosts = |label: &Element| host_labels.contains(&label.get("id")) && !label.all("hosts/host").is_empty();
    match labels.iter().any(has_hosts) || !group.all("hosts/host").is_empty() {
        true => Ok(label),
        false => Err(no_host(name)),
    }
}

fn no_host(label: &str) -> BackendError {
    let words = format!("affinity label {label} selects no host");
    BackendError::new(BackendErrorKind::NotFound, words)
        .hint("an administrator assigns the label to hosts of the oVirt cluster")
}
