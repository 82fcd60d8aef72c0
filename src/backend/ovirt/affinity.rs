//! The group that keeps a cluster's masters on different hosts.

use super::Ovirt;
use super::machines::id;
use super::session::{Failure, if_free};
use super::site::Site;
use super::wire;
use crate::cluster::{Affinity, ClusterId};
use crate::xml::Element;

/// Puts a machine into its cluster's group, which is made when it lacks.
pub(super) async fn join(ovirt: &Ovirt, site: &Site, cluster: &ClusterId, vm: &str) -> Result<(), Failure> {
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
                        return Failure::conflict(format!(
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
    let groups = ovirt
        .session
        .get(&format!("/clusters/{}/affinitygroups", site.cluster), &[])
        .await?;
    let (name, mark) = (wire::affinity_name(cluster), wire::mark(cluster));
    let ours = |group: &&Element| {
        group.text_of("name") == Some(name.as_str()) && group.text_of("description") == Some(mark.as_str())
    };
    groups.iter().find(ours).map(id).transpose()
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
