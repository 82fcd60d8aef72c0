//! The group that keeps a cluster's masters on different hosts, and the label that leads workers to theirs.

use super::engine::{Ovirt, Site};
use super::session::{conflict, if_free};
use super::wire;
use super::wire::id;
use crate::backend::BackendErrorKind;
use crate::backend::failure::Failure;
use crate::cluster::{Affinity, ClusterId};
use crate::xml::Element;

/// Puts a machine into its cluster's group, which is made when it lacks.
pub(super) async fn join(ovirt: &Ovirt, site: &Site, cluster: &ClusterId, vm: &str) -> Result<(), Failure> {
    if ovirt.session.is_filtered() && ovirt.config.affinity == Affinity::Soft {
        return Ok(());
    }
    let group = match find(ovirt, site, cluster).await? {
        Some(group) => group,
        None => {
            let path = format!("/clusters/{}/affinitygroups", site.cluster);
            let rule = Element::new("vms_rule")
                .with("enabled", true)
                .with("enforcing", ovirt.config.affinity == Affinity::Hard)
                .with("positive", false);
            let group = Element::new("affinity_group")
                .with("description", wire::mark(cluster))
                .with("name", wire::affinity_name(cluster))
                .child(rule);
            match if_free(ovirt.session.post(&path, &[], &group).await)? {
                Some(made) => id(&made)?,
                // Another master of the cluster was quicker.
                None => match find(ovirt, site, cluster).await? {
                    Some(group) => group,
                    None => {
                        return conflict(format!(
                            "affinity group {} is a stranger's",
                            wire::affinity_name(cluster)
                        ));
                    }
                },
            }
        }
    };
    let path = format!("/clusters/{}/affinitygroups/{group}/vms", site.cluster);
    let members = ovirt.session.get(&path, &[]).await?;
    if !members.iter().any(|member| member.get("id") == Some(vm)) {
        if_free(ovirt.session.post(&path, &[], &wire::reference("vm", vm)).await)?;
    }
    Ok(())
}

/// The id of a cluster's group.
pub(super) async fn find(ovirt: &Ovirt, site: &Site, cluster: &ClusterId) -> Result<Option<String>, Failure> {
    let path = format!("/clusters/{}/affinitygroups", site.cluster);
    let Some(groups) = ovirt.shown_to_users(ovirt.session.get(&path, &[]).await)? else {
        return Ok(None);
    };
    let (name, mark) = (wire::affinity_name(cluster), wire::mark(cluster));
    let ours = |group: &&Element| {
        group.text_of("name") == Some(name.as_str()) && group.text_of("description") == Some(mark.as_str())
    };
    groups.iter().find(ours).map(id).transpose()
}

/// The clusters that have a group.
pub(super) async fn clusters(ovirt: &Ovirt, site: &Site) -> Result<Vec<ClusterId>, Failure> {
    let path = format!("/clusters/{}/affinitygroups", site.cluster);
    let groups = ovirt.shown_to_users(ovirt.session.get(&path, &[]).await)?;
    let of = |group: &Element| {
        let cluster = wire::marked(group.text_of("description")?)?;
        (group.text_of("name") == Some(wire::affinity_name(&cluster).as_str())).then_some(cluster)
    };
    Ok(groups.iter().flat_map(Element::iter).filter_map(of).collect())
}

/// The group's name, when a machine is in it.
pub(super) async fn of(ovirt: &Ovirt, site: &Site, cluster: &ClusterId, vm: &str) -> Result<Option<String>, Failure> {
    let Some(group) = find(ovirt, site, cluster).await? else {
        return Ok(None);
    };
    let path = format!("/clusters/{}/affinitygroups/{group}/vms", site.cluster);
    let members = ovirt.session.get(&path, &[]).await?;
    let is_in = members.iter().any(|member| member.get("id") == Some(vm));
    Ok(is_in.then(|| wire::affinity_name(cluster)))
}

pub(super) async fn remove(ovirt: &Ovirt, site: &Site, cluster: &ClusterId) -> Result<(), Failure> {
    if let Some(group) = find(ovirt, site, cluster).await? {
        ovirt
            .session
            .delete(&format!("/clusters/{}/affinitygroups/{group}", site.cluster))
            .await?;
    }
    Ok(())
}

/// Gives a worker the label of the hosts that are meant for it; the engine takes it away with the machine.
pub(super) async fn label(ovirt: &Ovirt, name: &str, vm: &str) -> Result<(), Failure> {
    let label = id(&find_label(ovirt, name).await?)?;
    let path = format!("/affinitylabels/{label}/vms");
    let members = ovirt.session.get(&path, &[]).await?;
    if !members.iter().any(|member| member.get("id") == Some(vm)) {
        if_free(ovirt.session.post(&path, &[], &wire::reference("vm", vm)).await)?;
    }
    Ok(())
}

/// A label by its name, which must be on a host: a machine with it runs nowhere else.
pub(super) async fn find_label(ovirt: &Ovirt, name: &str) -> Result<Element, Failure> {
    let wrong = |words: String| {
        let hint = "an administrator makes it and gives it to hosts: Affinity Labels of the cluster";
        Err(Failure::new(BackendErrorKind::NotFound, words).hint(hint))
    };
    let labels = ovirt.session.get("/affinitylabels", &[]).await?.into_children();
    match labels.into_iter().find(|label| label.text_of("name") == Some(name)) {
        Some(label) if !label.all("hosts/host").is_empty() => Ok(label),
        Some(_) => wrong(format!("no host has the affinity label {name}")),
        None => wrong(format!("there is no affinity label {name}")),
    }
}
