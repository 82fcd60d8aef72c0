//! Tags, affinity groups and affinity labels.

use super::faults::{Outcome, Refusal};
use super::http::Request;
use super::routes::Reply::{self, Done, Made, Shown};
use super::shapes;
use super::show::{API, Follow, reference, show_members};
use super::world::*;
use super::xml::{Node, node};

impl World {
    pub(super) fn route_groups(&mut self, request: &Request, path: &[&str]) -> Outcome<Reply> {
        Ok(match (request.method.as_str(), path) {
            ("GET", ["clusters", id, "affinitygroups"]) => {
                self.cluster(id)?;
                let of = self.affinity_groups.iter().filter(|group| group.cluster == *id);
                Shown(node("affinity_groups").all(of.map(|group| self.show_group(group))))
            }
            ("POST", ["clusters", id, "affinitygroups"]) => Made(self.add_group(id, request)?, false),
            ("GET", ["clusters", id, "affinitygroups", group]) => Shown(self.show_group(self.group(id, group)?)),
            ("DELETE", ["clusters", id, "affinitygroups", group]) => {
                self.group(id, group)?;
                self.affinity_groups.retain(|known| known.id != *group);
                Done
            }
            ("GET", ["clusters", id, "affinitygroups", group, "vms"]) => {
                let members = &self.group(id, group)?.vms;
                Shown(node("vms").all(members.iter().map(|vm| reference("vm", "vms", vm))))
            }
            ("POST", ["clusters", id, "affinitygroups", group, "vms"]) => {
                Made(self.join_group(id, group, request)?, false)
            }
            ("GET", ["affinitylabels"]) => {
                let follow = Follow::read(request.query.get("follow"), &["hosts", "vms"], true)?;
                let shown = self.affinity_labels.iter().map(|label| self.show_label(label, &follow));
                Shown(node("affinity_labels").all(shown))
            }
            ("GET", ["affinitylabels", id]) => Shown(self.show_label(self.label(id)?, &Follow::default())),
            ("GET", ["affinitylabels", id, "vms"]) => Shown(show_members("vms", "vm", &self.label(id)?.vms)),
            ("GET", ["affinitylabels", id, "hosts"]) => Shown(show_members("hosts", "host", &self.label(id)?.hosts)),
            ("POST", ["affinitylabels", id, "vms"]) => {
                let vm = self.member(request)?;
                // oVirt/ovirt-engine: BackendAffinityLabelVmsResource.add writes the whole list as it read it.
                let mut vms = match self
                    .seen
                    .iter()
                    .flat_map(|seen| &seen.labels)
                    .find(|label| label.id == *id)
                {
                    Some(label) => label.vms.clone(),
                    None => self.label(id)?.vms.clone(),
                };
                if !vms.contains(&vm) {
                    vms.push(vm.clone());
                }
                let label = by_id_mut(&mut self.affinity_labels, id);
                label.ok_or(Refusal::NotFound)?.vms = vms;
                Made(reference("vm", "vms", &vm), false)
            }

            ("GET", ["tags"]) => Shown(node("tags").all(self.tags.iter().map(|tag| self.show_tag(tag)))),
            ("POST", ["tags"]) => Made(self.add_tag(request)?, false),
            ("GET", ["tags", id]) => Shown(self.show_tag(self.tag(id)?)),
            ("PUT", ["tags", id]) => Shown(self.update_tag(id, request)?),
            ("DELETE", ["tags", id]) => {
                self.tag(id)?;
                self.tags.retain(|tag| tag.id != *id);
                for vm in &mut self.vms {
                    vm.tags.retain(|tag| tag != id);
                }
                Done
            }
            _ => return Err(Refusal::Unknown),
        })
    }

    fn tag(&self, id: &str) -> Outcome<&Named> {
        super::check_guid(id)?;
        by_id(&self.tags, id).ok_or(Refusal::NotFound)
    }

    fn add_tag(&mut self, request: &Request) -> Outcome<Node> {
        let body = super::read(request, "tag", shapes::TAG, "tags/methods/add")?;
        let Some(name) = body.get("name") else {
            return Refusal::incomplete("Tag", "name", "add");
        };
        if name.chars().count() > 50 || name.contains([' ', '"']) {
            return Refusal::because("VALIDATION_TAGS_INVALID_TAG_NAME", "add Tag", &[]);
        }
        if self.tags.iter().any(|tag| tag.name == name) {
            return Refusal::because("TAGS_SPECIFY_TAG_IS_IN_USE", "add Tag", &[]);
        }
        let tag = Named {
            id: self.new_id(),
            name,
            description: body.get("description").unwrap_or_default(),
        };
        self.tags.push(tag.clone());
        Ok(self.show_tag(&tag))
    }

    fn update_tag(&mut self, id: &str, request: &Request) -> Outcome<Node> {
        let body = super::read(request, "tag", shapes::TAG, "tag/methods/update")?;
        self.tag(id)?;
        let tag = by_id_mut(&mut self.tags, id).ok_or(Refusal::NotFound)?;
        tag.name = body.get("name").unwrap_or(tag.name.clone());
        tag.description = body.get("description").unwrap_or(tag.description.clone());
        let tag = tag.clone();
        Ok(self.show_tag(&tag))
    }

    pub fn tag_vm(&mut self, vm: &str, request: &Request) -> Outcome<Node> {
        let body = super::read(request, "tag", shapes::TAG, "assigned_tags/methods/add")?;
        let by = |tag: &&Named| Some(&tag.id) == body.id.as_ref() || Some(&tag.name) == body.get("name").as_ref();
        let tag = self.tags.iter().find(by).ok_or(Refusal::NotFound)?.clone();
        self.vm(vm)?;
        let known = self.vm_mut(vm).ok_or(Refusal::NotFound)?;
        // oVirt/ovirt-engine: AttachVmsToTagCommand succeeds if the machine has it already.
        if !known.tags.contains(&tag.id) {
            known.tags.push(tag.id.clone());
        }
        Ok(self
            .show_tag(&tag)
            .href(format!("{API}/vms/{vm}/tags/{}", tag.id))
            .add(reference("vm", "vms", vm)))
    }

    fn group(&self, cluster: &str, id: &str) -> Outcome<&AffinityGroup> {
        self.cluster(cluster)?;
        super::check_guid(id)?;
        let of = |group: &&AffinityGroup| group.id == id && group.cluster == cluster;
        self.affinity_groups.iter().find(of).ok_or(Refusal::NotFound)
    }

    fn add_group(&mut self, cluster: &str, request: &Request) -> Outcome<Node> {
        let body = super::read(
            request,
            "affinity_group",
            shapes::AFFINITY_GROUP,
            "affinity_groups/methods/add",
        )?;
        self.cluster(cluster)?;
        let Some(name) = body.get("name") else {
            return Refusal::incomplete("AffinityGroup", "name", "add");
        };
        // oVirt/ovirt-engine: AddAffinityGroupCommand looks by name in all clusters, and takes no lock; the table has
        // no unique name.
        let groups = self.seen.as_ref().map_or(&self.affinity_groups, |seen| &seen.groups);
        if groups.iter().any(|group| group.name == name) {
            return Refusal::because(
                "ACTION_TYPE_FAILED_AFFINITY_GROUP_NAME_EXISTS",
                "add Affinity Group",
                &[],
            );
        }
        let mut group = AffinityGroup {
            id: self.new_id(),
            name,
            description: String::new(),
            cluster: cluster.to_owned(),
            enabled: true,
            positive: false,
            ..AffinityGroup::default()
        };
        self.change_group(&mut group, &body)?;
        self.affinity_groups.push(group.clone());
        Ok(self.show_group(&group))
    }

    fn change_group(&self, group: &mut AffinityGroup, body: &Node) -> Outcome<()> {
        group.name = body.get("name").unwrap_or(group.name.clone());
        group.description = body.get("description").unwrap_or(group.description.clone());
        if body.at("vms_rule").is_some() {
            group.enabled = body.is_true("vms_rule/enabled");
            group.positive = body.is_true("vms_rule/positive");
            group.enforcing = body.is_true("vms_rule/enforcing");
        }
        if let Some(vms) = body.at("vms") {
            let ids = vms.nodes.iter().filter_map(|vm| vm.id.clone());
            group.vms = ids
                .map(|id| self.vm(&id).map(|vm| vm.id.clone()))
                .collect::<Outcome<_>>()?;
        }
        Ok(())
    }

    /// The machine of `<vm id="…"/>`.
    fn member(&self, request: &Request) -> Outcome<String> {
        let body = super::read(request, "vm", shapes::MEMBER, "affinity_group_vms/methods/add")?;
        let Some(id) = &body.id else {
            return Refusal::incomplete("Vm", "id|name", "add");
        };
        self.vm(id).map(|vm| vm.id.clone())
    }

    fn join_group(&mut self, cluster: &str, id: &str, request: &Request) -> Outcome<Node> {
        let vm = self.member(request)?;
        let group = self.group(cluster, id)?;
        // oVirt/ovirt-engine: before 4.4.8 BackendAffinityGroupVmsResource.add was EditAffinityGroup with the whole
        // list; since then AddVmToAffinityGroupCommand inserts one row.
        let seen = self
            .seen
            .iter()
            .flat_map(|seen| &seen.groups)
            .find(|group| group.id == id);
        let mut vms = match seen.filter(|_| self.version < [4, 4, 8]) {
            Some(seen) => seen.vms.clone(),
            None => group.vms.clone(),
        };
        if vms.contains(&vm) {
            let code = "ACTION_TYPE_FAILED_DUPLICATE_ENTITY_IN_AFFINITY_GROUP";
            return Refusal::because(code, "edit Affinity Group", &[("entity", "VM")]);
        }
        vms.push(vm.clone());
        let group = by_id_mut(&mut self.affinity_groups, id);
        group.ok_or(Refusal::NotFound)?.vms = vms;
        Ok(reference("vm", "vms", &vm))
    }

    fn label(&self, id: &str) -> Outcome<&AffinityLabel> {
        super::check_guid(id)?;
        by_id(&self.affinity_labels, id).ok_or(Refusal::NotFound)
    }
}
