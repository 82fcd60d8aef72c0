//! The affinity groups that place a cluster's masters, and its workers, on different hosts, and the affinity label of its
//! workers.

use std::collections::BTreeSet;

use tokio::time::sleep;

use super::engine::{Ovirt, OvirtSite};
use super::session::pauses;
use super::wire;
use super::wire::id;
use crate::backend::error::if_exists;
use crate::backend::{BackendError, BackendErrorKind};
use crate::cluster::{Affinity, ClusterId};
use crate::xml::Element;

/// How often members are read and changed; after that, the last rejection is the error.
const ATTEMPTS: usize = 8;

/// Masters with the arbiter.
pub(super) const MASTERS: &str = "masters";
/// Workers. The rule is soft, because there can be more workers than hosts; it separates the two ingress routers.
pub(super) const WORKERS: &str = "workers";

/// Adds a machine to an affinity group of its cluster, which is created if it is missing.
///
/// The engine takes no lock for this: two requests can create two groups of one name, and before 4.4.8 each new member
/// rewrites the list of members (oVirt/ovirt-engine: `AddAffinityGroupCommand`, `EditAffinityGroupCommand`). So requests
/// are sent one at a time, groups and members are read again after each, and a second group is merged into the first.
pub(super) async fn join(
    ovirt: &Ovirt,
    site: &OvirtSite,
    cluster: &ClusterId,
    kind: &str,
    vm: &str,
) -> Result<(), BackendError> {
    let is_hard = ovirt.config.affinity == Affinity::Hard && kind == MASTERS;
    if ovirt.session.is_filtered() && !is_hard {
        return Ok(());
    }
    let name = wire::affinity_name(cluster, kind);
    let _one_at_a_time = ovirt.affinity.lock().await;
    let collection = collection(site);
    let (mut rejected, mut backoff) = (None, pauses());
    for _ in 0..ATTEMPTS {
        if rejected.is_some() {
            sleep(backoff.pause(None)).await;
        }
        let groups = groups(ovirt, site, cluster).await?;
        let mut groups: Vec<_> = groups.into_iter().filter(|(known, _)| *known == name).collect();
        groups.sort();
        let ids: Vec<_> = groups.into_iter().map(|(_, id)| id).collect();
        let Some((group, surplus)) = ids.split_first() else {
            let created = ovirt
                .session
                .post(&collection, &[], &group(cluster, &name, is_hard))
                .await;
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
    let unknown = || BackendError::new(BackendErrorKind::Conflict, "its members keep changing");
    let failure = rejected.unwrap_or_else(unknown);
    Err(BackendError {
        kind: BackendErrorKind::Conflict,
        message: format!("affinity group {name} cannot be used: {}", failure.message),
        ..failure
    }
    .hint(format!(
        "if affinity group {name} is not owned by this cluster, remove it in the Administration Portal, or set \
         ovirt_affinity=off"
    )))
}

fn group(cluster: &ClusterId, name: &str, is_hard: bool) -> Element {
    let rule = Element::new("vms_rule")
        .with("enabled", true)
        .with("enforcing", is_hard)
        .with("positive", false);
    Element::new("affinity_group")
        .with("description", wire::mark(cluster))
        .with("name", name)
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

/// All groups of this program, with the cluster of each.
async fn all_groups(ovirt: &Ovirt, site: &OvirtSite) -> Result<Vec<(ClusterId, Element)>, BackendError> {
    let groups = ovirt.if_permitted(ovirt.session.get(&collection(site), &[]).await)?;
    let of = |group: Element| {
        let cluster = wire::marked(group.text_of("description")?)?;
        let name = group.text_of("name");
        let is_ours = [MASTERS, WORKERS]
            .iter()
            .any(|kind| name == Some(wire::affinity_name(&cluster, kind).as_str()));
        is_ours.then_some((cluster, group))
    };
    let groups = groups.map(Element::into_children).unwrap_or_default();
    Ok(groups.into_iter().filter_map(of).collect())
}

/// Name and id of each of a cluster's groups. After a race, several groups can have the same name.
pub(super) async fn groups(
    ovirt: &Ovirt,
    site: &OvirtSite,
    cluster: &ClusterId,
) -> Result<Vec<(String, String)>, BackendError> {
    let all = all_groups(ovirt, site).await?.into_iter();
    all.filter(|(of, _)| of == cluster)
        .map(|(_, group)| Ok((group.text_of("name").unwrap_or_default().to_owned(), id(&group)?)))
        .collect()
}

/// The clusters that have a group.
pub(super) async fn clusters(ovirt: &Ovirt, site: &OvirtSite) -> Result<Vec<ClusterId>, BackendError> {
    let all = all_groups(ovirt, site).await?;
    Ok(all.into_iter().map(|(cluster, _)| cluster).collect())
}

/// The group's name, if a machine is a member.
pub(super) async fn of(
    ovirt: &Ovirt,
    site: &OvirtSite,
    cluster: &ClusterId,
    vm: &str,
) -> Result<Option<String>, BackendError> {
    for (name, group) in groups(ovirt, site, cluster).await? {
        let path = format!("{}/{group}/vms", collection(site));
        if members(ovirt, &path).await?.contains(vm) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

pub(super) async fn remove(ovirt: &Ovirt, site: &OvirtSite, cluster: &ClusterId) -> Result<(), BackendError> {
    for (_, group) in groups(ovirt, site, cluster).await? {
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
    let (mut rejected, mut backoff) = (None, pauses());
    for _ in 0..ATTEMPTS {
        if rejected.is_some() {
            sleep(backoff.pause(None)).await;
        }
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

/// The worker label, if a machine has it. `None` also if the label does not exist, or this user may not read it.
pub(super) async fn label_of(ovirt: &Ovirt, name: &str, vm: &str) -> Result<Option<String>, BackendError> {
    let Some(labels) = ovirt.if_permitted(ovirt.session.get("/affinitylabels", &[]).await)? else {
        return Ok(None);
    };
    let Some(label) = named(&labels, name) else {
        return Ok(None);
    };
    let members = members(ovirt, &format!("/affinitylabels/{}/vms", id(label)?)).await?;
    Ok(members.contains(vm).then(|| name.to_owned()))
}

fn named<'a>(labels: &'a Element, name: &str) -> Option<&'a Element> {
    labels.iter().find(|label| label.text_of("name") == Some(name))
}

/// Whether a label determines the hosts of its machines without an affinity group.
///
/// oVirt/ovirt-engine: `FeatureSupported.isImplicitAffinityGroupSupported`, `AffinityRulesUtils.affinityGroupsFromLabels`;
/// oVirt/ovirt-engine-api-model: `types/AffinityLabel.java`, `hasImplicitAffinityGroup`, `@since 4.3.6`. Before, each label
/// did.
fn is_implicit(site: &OvirtSite, label: &Element) -> bool {
    site.compatibility < (4, 4) && label.text_of("has_implicit_affinity_group") != Some("false")
}

/// A label that determines the hosts of its machines.
pub(super) async fn placing_label(ovirt: &Ovirt, site: &OvirtSite, name: &str) -> Result<Element, BackendError> {
    // A label has links to its hosts and machines, and lists none of them (oVirt/ovirt-engine: `AffinityLabelMapper`).
    let labels = ovirt.session.get("/affinitylabels", &[("follow", "hosts")]).await?;
    let label = named(&labels, name).ok_or_else(|| {
        let words = format!("affinity label {name} does not exist");
        let hint = "an administrator creates it and assigns it to hosts: Affinity Labels of the oVirt cluster";
        BackendError::new(BackendErrorKind::NotFound, words).hint(hint)
    })?;
    let has_hosts = |thing: &Element| !thing.all("hosts/host").is_empty();
    let selects_hosts = match is_implicit(site, label) {
        true => has_hosts(label),
        false => {
            let group = placing_group(ovirt, site, label).await?;
            let is_of_group = |label: &&Element| {
                let ids = group.all("host_labels/affinity_label");
                ids.iter().any(|known| known.get("id") == label.get("id"))
            };
            // A group lists its hosts and labels (oVirt/ovirt-engine: `AffinityGroupMapper`).
            has_hosts(&group) || labels.iter().filter(is_of_group).any(has_hosts)
        }
    };
    match selects_hosts {
        true => Ok(label.clone()),
        false => Err(BackendError::new(
            BackendErrorKind::NotFound,
            format!("affinity label {name} selects no host"),
        )
        .hint("an administrator assigns the label to hosts of the oVirt cluster")),
    }
}

/// The affinity group that assigns the machines of a label to hosts.
async fn placing_group(ovirt: &Ovirt, site: &OvirtSite, label: &Element) -> Result<Element, BackendError> {
    let leads = |group: &Element| {
        let is = |rule: &str| group.text_of(&format!("hosts_rule/{rule}")) == Some("true");
        let is_labelled = |other: &&Element| other.get("id") == label.get("id");
        ["enabled", "positive", "enforcing"].into_iter().all(is)
            && group.all("vm_labels/affinity_label").iter().any(is_labelled)
    };
    let groups = ovirt.session.get(&collection(site), &[]).await?.into_children();
    groups.into_iter().find(leads).ok_or_else(|| {
        let (major, minor) = site.compatibility;
        let name = label.text_of("name").unwrap_or_default();
        let (exception, other) = match site.compatibility < (4, 4) {
            true => (
                " for a label without an implicit affinity group",
                "sets `Implicit affinity group` of the label, or ",
            ),
            false => ("", ""),
        };
        let words = format!(
            "no affinity group assigns machines with label {name} to hosts, which clusters of compatibility \
             {major}.{minor} require{exception}"
        );
        let hint = format!(
            "an administrator {other}creates an affinity group of the oVirt cluster with the VM label {name}, a host \
             label, and the host rule Positive and Enforcing"
        );
        BackendError::new(BackendErrorKind::NotFound, words).hint(hint)
    })
}
