//! Which request means what.

use super::devices::done;
use super::faults::{Outcome, Refusal, html};
use super::http::{Answer, Request};
use super::search::select;
use super::show::{API, Follow, entity, reference, time};
use super::world::*;
use super::xml::{Node, node};
use super::{images, shapes, vms};

/// A status and a document; actions and removals have one of their own.
enum Reply {
    Shown(Node),
    /// 201, or 202 when it goes on behind.
    Made(Node, bool),
    Done,
    /// Refused inside of an `<action>`.
    Act(Outcome<()>),
}

use Reply::{Act, Done, Made, Shown};

impl World {
    /// Answers one request of the API, whose token was seen.
    pub fn answer(&mut self, request: &Request) -> Answer {
        let Some(path) = request.path.strip_prefix(API) else {
            return self.surprise(request);
        };
        let path: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
        if let Some(strange) = request.query.keys().find(|key| !QUERIES.contains(&key.as_str())) {
            let strange = format!("{} {}: the query {strange}", request.method, request.path);
            self.surprises.push(strange);
        }
        let collection = format!("{} /{}", request.method, path.first().unwrap_or(&""));
        if self
            .forbidden
            .iter()
            .any(|(method, path)| format!("{method} {path}") == collection)
        {
            let denied = Refusal::failed(403, "User is not authorized to perform this action.");
            return denied.answer(false);
        }
        let correlation = request.query.get("correlation_id").cloned().unwrap_or_default();
        let is_plain = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
        if correlation.len() > 50 || !correlation.chars().all(is_plain) {
            return Refusal::failed(400, "Correlation id is not valid.").answer(false);
        }
        self.correlation = correlation;
        if ["POST", "PUT"].contains(&request.method.as_str())
            && !request
                .headers
                .get("content-type")
                .is_some_and(|kind| kind.starts_with("application/xml"))
        {
            return Answer::new(415, "", "");
        }
        let jobs = self.jobs.len();
        let (status, body) = match self.route(request, &path) {
            Ok(Shown(body)) => (200, body),
            Ok(Made(body, is_async)) => {
                let href = body.href.clone().unwrap_or_default();
                let id = body.id.clone().unwrap_or_default();
                match is_async {
                    true => (
                        202,
                        body.link("creation_status", format!("{href}/creation_status/{id}")),
                    ),
                    false => (201, body),
                }
            }
            Ok(Done | Act(Ok(()))) => (200, done(self.jobs.get(jobs))),
            Ok(Act(Err(Refusal::Unknown))) | Err(Refusal::Unknown) => return self.surprise(request),
            Ok(Act(Err(refusal))) => return refusal.answer(true),
            Err(refusal) => return refusal.answer(false),
        };
        Answer::new(
            status,
            "application/xml;charset=UTF-8",
            format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>{body}"),
        )
    }

    fn surprise(&mut self, request: &Request) -> Answer {
        self.surprises.push(format!("{} {}", request.method, request.path));
        html(404, "The fake engine does not know this")
    }

    fn route(&mut self, request: &Request, path: &[&str]) -> Outcome<Reply> {
        let follow = |known: &[&str]| Follow::read(request.query.get("follow"), known);
        let query = &request.query;
        Ok(match (request.method.as_str(), path) {
            ("GET", []) => Shown(self.show_api()),
            ("GET", ["vms"]) => {
                let follow = follow(vms::FOLLOWED)?;
                let found = select(self.vms.clone(), query, vms::SEARCHED, |vm| self.vm_fields(vm))?;
                let shown: Vec<_> = found.iter().map(|vm| self.show_vm(vm, &follow)).collect();
                Shown(node("vms").all(shown))
            }
            ("POST", ["vms"]) => {
                let (vm, is_async) = self.add_vm(request)?;
                Made(vm, is_async)
            }
            ("GET", ["vms", id]) => {
                let (vm, follow) = (self.vm(id)?.clone(), follow(vms::FOLLOWED)?);
                Shown(self.show_vm(&vm, &follow))
            }
            ("PUT", ["vms", id]) => Shown(self.update_vm(id, request)?),
            ("DELETE", ["vms", id]) => {
                self.remove_vm(id, request)?;
                Done
            }
            ("POST", ["vms", id, "start"]) => Act(self.start_vm(id, request)),
            ("POST", ["vms", id, "stop"]) => Act(self.stop_vm(id, false, request)),
            ("POST", ["vms", id, "shutdown"]) => Act(self.stop_vm(id, true, request)),
            ("GET", ["vms", id, "nics"]) => {
                let vm = self.vm(id)?;
                Shown(self.show_nics(vm))
            }
            ("POST", ["vms", id, "nics"]) => Made(self.add_nic(id, request)?, false),
            ("GET", ["vms", id, "nics", nic]) => {
                let vm = self.vm(id)?;
                let nic = vm.nics.iter().find(|known| known.id == *nic).ok_or(Refusal::NotFound)?;
                Shown(self.show_nic("vms", id, nic))
            }
            ("PUT", ["vms", id, "nics", nic]) => Shown(self.update_nic(id, nic, request)?),
            ("DELETE", ["vms", id, "nics", nic]) => {
                self.remove_nic(id, nic)?;
                Done
            }
            ("GET", ["vms", id, "diskattachments"]) => {
                let with_disk = follow(&["disk"])?.has("disk");
                let vm = self.vm(id)?;
                Shown(self.show_attachments(&format!("vms/{id}"), &vm.disks, with_disk))
            }
            ("POST", ["vms", id, "diskattachments"]) => {
                let (attachment, is_async) = self.attach_disk(id, request)?;
                Made(attachment, is_async)
            }
            ("GET", ["vms", id, "diskattachments", disk]) => {
                let vm = self.vm(id)?;
                Shown(self.attachment(&format!("vms/{id}"), &vm.disks, disk)?)
            }
            ("PUT", ["vms", id, "diskattachments", disk]) => Shown(self.update_attachment(id, disk, request)?),
            ("DELETE", ["vms", id, "diskattachments", disk]) => {
                self.detach_disk(id, disk)?;
                Done
            }
            ("GET", ["vms", id, "reporteddevices"]) => {
                let vm = self.vm(id)?.clone();
                Shown(self.show_reported(&vm))
            }
            ("GET", ["vms", id, "graphicsconsoles"]) => {
                // Its id is the protocol's name in hex.
                let console = "766e63";
                let vm = self.vm(id)?;
                let shown = node("graphics_console")
                    .href(format!("{API}/vms/{id}/graphicsconsoles/{console}"))
                    .id(console)
                    .text("protocol", "vnc")
                    .add(reference("vm", "vms", id));
                let host = self.hosts.iter().find(|host| Some(&host.name) == vm.host.as_ref());
                Shown(node("graphics_consoles").add(match host {
                    Some(host) => shown.text("address", &host.address).text("port", 5900),
                    None => shown,
                }))
            }
            ("GET", ["vms", id, "tags"]) => {
                let vm = self.vm(id)?;
                Shown(self.show_tags_of(vm))
            }
            ("POST", ["vms", id, "tags"]) => Made(self.tag_vm(id, request)?, false),
            ("DELETE", ["vms", id, "tags", tag]) => {
                self.vm(id)?;
                let vm = self.vm_mut(id).ok_or(Refusal::NotFound)?;
                let count = vm.tags.len();
                vm.tags.retain(|known| known != tag);
                if vm.tags.len() == count {
                    return Err(Refusal::NotFound);
                }
                Done
            }

            ("GET", ["templates"]) => {
                let follow = follow(images::TEMPLATE_FOLLOWED)?;
                let known = ["name", "description", "comment", "id", "status", "cluster"];
                let found = select(self.templates.clone(), query, &known, |template| {
                    self.template_fields(template)
                })?;
                Shown(node("templates").all(found.iter().map(|template| self.show_template(template, &follow))))
            }
            ("POST", ["templates"]) => Made(self.add_template(request)?, true),
            ("GET", ["templates", id]) => {
                let follow = follow(images::TEMPLATE_FOLLOWED)?;
                Shown(self.show_template(self.template(id)?, &follow))
            }
            ("PUT", ["templates", id]) => Shown(self.update_template(id, request)?),
            ("DELETE", ["templates", id]) => {
                self.remove_template(id)?;
                Done
            }
            ("GET", ["templates", id, "nics"]) => {
                let nics = &self.template(id)?.nics;
                Shown(node("nics").all(nics.iter().map(|nic| self.show_nic("templates", id, nic))))
            }
            ("GET", ["templates", id, "diskattachments"]) => {
                let with_disk = follow(&["disk"])?.has("disk");
                let disks = &self.template(id)?.disks;
                Shown(self.show_attachments(&format!("templates/{id}"), disks, with_disk))
            }

            ("GET", ["disks"]) => {
                let known = ["alias", "name", "id", "description", "status", "vm_names"];
                let found = select(self.disks.clone(), query, &known, |disk| self.disk_fields(disk))?;
                Shown(node("disks").all(found.iter().map(|disk| self.show_disk(disk))))
            }
            ("POST", ["disks"]) => Made(self.add_disk(request)?, true),
            ("GET", ["disks", id]) => Shown(self.show_disk(self.find_disk(id)?)),
            ("PUT", ["disks", id]) => Shown(self.update_disk(id, request)?),
            ("DELETE", ["disks", id]) => {
                self.remove_disk(id)?;
                Done
            }

            ("GET", ["imagetransfers"]) => {
                Shown(node("image_transfers").all(self.transfers.iter().map(|transfer| self.show_transfer(transfer))))
            }
            ("POST", ["imagetransfers"]) => Made(self.add_transfer(request)?, false),
            ("GET", ["imagetransfers", id]) => Shown(self.show_transfer(self.transfer(id)?)),
            (
                "POST",
                [
                    "imagetransfers",
                    id,
                    act @ ("finalize" | "cancel" | "pause" | "resume" | "extend"),
                ],
            ) => Act(self.act_on_transfer(id, act, request)),

            _ => return self.route_around(request, path),
        })
    }

    /// What is around the machines, and changes seldom.
    fn route_around(&mut self, request: &Request, path: &[&str]) -> Outcome<Reply> {
        let query = &request.query;
        let follow = |known: &[&str]| Follow::read(request.query.get("follow"), known);
        Ok(match (request.method.as_str(), path) {
            ("GET", ["clusters"]) => {
                let fields = |cluster: &Cluster| vec![("name", cluster.name.clone()), ("id", cluster.id.clone())];
                let found = select(self.clusters.clone(), query, &["name", "id"], fields)?;
                Shown(node("clusters").all(found.iter().map(|cluster| self.show_cluster(cluster))))
            }
            ("GET", ["clusters", id]) => Shown(self.show_cluster(self.cluster(id)?)),
            ("GET", ["clusters", id, "networks"]) => {
                let center = &self.cluster(id)?.data_center;
                let of = self.networks.iter().filter(|network| network.data_center == *center);
                Shown(node("networks").all(of.map(|network| self.show_network(network))))
            }
            ("GET", ["clusters", id, "affinitygroups"]) => {
                self.cluster(id)?;
                let of = self.affinity_groups.iter().filter(|group| group.cluster == *id);
                Shown(node("affinity_groups").all(of.map(|group| self.show_group(group))))
            }
            ("POST", ["clusters", id, "affinitygroups"]) => Made(self.add_group(id, request)?, false),
            ("GET", ["clusters", id, "affinitygroups", group]) => Shown(self.show_group(self.group(id, group)?)),
            ("PUT", ["clusters", id, "affinitygroups", group]) => Shown(self.update_group(id, group, request)?),
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
            ("DELETE", ["clusters", id, "affinitygroups", group, "vms", vm]) => {
                self.group(id, group)?;
                let known = self.affinity_groups.iter_mut().find(|known| known.id == *group);
                known.ok_or(Refusal::NotFound)?.vms.retain(|member| member != vm);
                Done
            }
            ("GET", ["affinitylabels"]) => {
                Shown(node("affinity_labels").all(self.affinity_labels.iter().map(|label| self.show_label(label))))
            }
            ("POST", ["affinitylabels"]) => Made(self.add_label(request)?, false),
            ("GET", ["affinitylabels", id]) => Shown(self.show_label(self.label(id)?)),
            ("DELETE", ["affinitylabels", id]) => {
                self.label(id)?;
                self.affinity_labels.retain(|label| label.id != *id);
                Done
            }
            ("GET", ["affinitylabels", id, "vms"]) => {
                Shown(node("vms").all(self.label(id)?.vms.iter().map(|vm| reference("vm", "vms", vm))))
            }
            ("POST", ["affinitylabels", id, "vms"]) => {
                let vm = self.member(request)?;
                self.label(id)?;
                let label = self
                    .affinity_labels
                    .iter_mut()
                    .find(|label| label.id == *id)
                    .ok_or(Refusal::NotFound)?;
                if !label.vms.contains(&vm) {
                    label.vms.push(vm.clone());
                }
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

            ("GET", ["datacenters"]) => {
                let fields = |center: &DataCenter| vec![("name", center.name.clone()), ("id", center.id.clone())];
                let found = select(self.data_centers.clone(), query, &["name", "id"], fields)?;
                Shown(node("data_centers").all(found.iter().map(|center| self.show_data_center(center))))
            }
            ("GET", ["datacenters", id]) => Shown(self.show_data_center(self.data_center(id)?)),
            ("GET", ["datacenters", id, "storagedomains"]) => {
                self.data_center(id)?;
                let of = self.storage_domains.iter().filter(|domain| domain.data_center == *id);
                Shown(node("storage_domains").all(of.map(|domain| self.show_storage_domain(domain, true))))
            }
            ("GET", ["datacenters", id, "networks"]) => {
                self.data_center(id)?;
                let of = self.networks.iter().filter(|network| network.data_center == *id);
                Shown(node("networks").all(of.map(|network| self.show_network(network))))
            }
            ("GET", ["datacenters", id, "quotas"]) => {
                self.data_center(id)?;
                let of = self.quotas.iter().filter(|quota| quota.data_center == *id);
                Shown(node("quotas").all(of.map(|quota| {
                    node("quota")
                        .href(format!("{API}/datacenters/{id}/quotas/{}", quota.id))
                        .id(&quota.id)
                        .text("name", &quota.name)
                        .add(reference("data_center", "datacenters", id))
                })))
            }
            ("GET", ["storagedomains"]) => {
                let known = ["name", "id", "status", "datacenter", "type"];
                let center = |id: &str| {
                    self.data_centers
                        .iter()
                        .find(|center| center.id == id)
                        .map(|center| center.name.clone())
                };
                let fields = |domain: &StorageDomain| {
                    vec![
                        ("name", domain.name.clone()),
                        ("id", domain.id.clone()),
                        ("status", domain.status.clone()),
                        ("type", domain.kind.clone()),
                        ("datacenter", center(&domain.data_center).unwrap_or_default()),
                    ]
                };
                let found = select(self.storage_domains.clone(), query, &known, fields)?;
                Shown(node("storage_domains").all(found.iter().map(|domain| self.show_storage_domain(domain, false))))
            }
            ("GET", ["storagedomains", id]) => {
                let domain = self
                    .storage_domains
                    .iter()
                    .find(|domain| domain.id == *id)
                    .ok_or(Refusal::NotFound)?;
                Shown(self.show_storage_domain(domain, false))
            }
            ("GET", ["hosts"]) => {
                let fields = |host: &Host| {
                    vec![
                        ("name", host.name.clone()),
                        ("id", host.id.clone()),
                        ("status", host.status.clone()),
                    ]
                };
                let found = select(self.hosts.clone(), query, &["name", "id", "status"], fields)?;
                Shown(node("hosts").all(found.iter().map(|host| self.show_host(host))))
            }
            ("GET", ["hosts", id]) => {
                let host = self.hosts.iter().find(|host| host.id == *id).ok_or(Refusal::NotFound)?;
                Shown(self.show_host(host))
            }
            ("GET", ["networks"]) => {
                let fields = |network: &Network| vec![("name", network.name.clone()), ("id", network.id.clone())];
                let found = select(self.networks.clone(), query, &["name", "id"], fields)?;
                Shown(node("networks").all(found.iter().map(|network| self.show_network(network))))
            }
            ("GET", ["networks", id]) => {
                let network = self
                    .networks
                    .iter()
                    .find(|network| network.id == *id)
                    .ok_or(Refusal::NotFound)?;
                Shown(self.show_network(network))
            }
            ("GET", ["networkfilters"]) => Shown(node("network_filters").all(self.filters.iter().map(show_filter))),
            ("GET", ["networkfilters", id]) => {
                let filter = self
                    .filters
                    .iter()
                    .find(|filter| filter.id == *id)
                    .ok_or(Refusal::NotFound)?;
                Shown(show_filter(filter))
            }
            ("GET", ["vnicprofiles"]) => {
                let follow = follow(&["network", "network_filter"])?;
                Shown(
                    node("vnic_profiles").all(self.profiles.iter().map(|profile| self.show_profile(profile, &follow))),
                )
            }
            ("GET", ["vnicprofiles", id]) => {
                let follow = follow(&["network", "network_filter"])?;
                let profile = self
                    .profiles
                    .iter()
                    .find(|profile| profile.id == *id)
                    .ok_or(Refusal::NotFound)?;
                Shown(self.show_profile(profile, &follow))
            }
            ("GET", ["macpools"]) => Shown(node("mac_pools").all(self.mac_pools.iter().map(show_mac_pool))),
            ("GET", ["macpools", id]) => {
                let pool = self
                    .mac_pools
                    .iter()
                    .find(|pool| pool.id == *id)
                    .ok_or(Refusal::NotFound)?;
                Shown(show_mac_pool(pool))
            }
            ("GET", ["operatingsystems"]) => Shown(node("operation_systems").all(self.systems().into_iter().map(
                |(id, name)| {
                    entity("operating_system", "operatingsystems", &id.to_string())
                        .text("name", name)
                        .text("description", name)
                        .text("architecture", "x86_64")
                },
            ))),
            ("GET", ["users", _, "permissions"] | ["permissions"]) => {
                Shown(node("permissions").all(self.permissions.iter().map(show_permission)))
            }
            ("GET", ["roles"]) => Shown(
                node("roles")
                    .add(show_role("SuperUser"))
                    .add(show_role("UserVmManager")),
            ),
            ("GET", ["jobs"]) => {
                let fields = |job: &Job| {
                    vec![
                        ("correlation_id", job.correlation.clone()),
                        ("status", job.status.clone()),
                    ]
                };
                let found = select(self.jobs.clone(), query, &["correlation_id", "status"], fields)?;
                Shown(node("jobs").all(found.iter().map(|job| self.show_job(job))))
            }
            ("GET", ["jobs", id]) => {
                let job = self.jobs.iter().find(|job| job.id == *id).ok_or(Refusal::NotFound)?;
                Shown(self.show_job(job))
            }
            ("GET", ["events"]) => {
                let from = query.get("from").and_then(|from| from.parse::<u64>().ok()).unwrap_or(0);
                let later: Vec<_> = self
                    .events
                    .iter()
                    .rev()
                    .filter(|event| event.index > from)
                    .cloned()
                    .collect();
                let fields = |event: &Event| {
                    vec![
                        ("correlation_id", event.correlation.clone()),
                        ("severity", event.severity.to_owned()),
                    ]
                };
                let found = select(later, query, &["correlation_id", "severity"], fields)?;
                Shown(node("events").all(found.iter().map(|event| self.show_event(event))))
            }
            _ => return Err(Refusal::Unknown),
        })
    }

    fn show_api(&self) -> Node {
        let [major, minor, build] = self.version;
        let version = node("version")
            .text("full_version", format!("{major}.{minor}.{build}-1.el8"))
            .text("major", major)
            .text("minor", minor)
            .text("build", build)
            .text("revision", 0);
        let mut api = node("api");
        for rel in COLLECTIONS {
            api = api.link(rel, format!("{API}/{rel}"));
        }
        let user = "00000000-0000-4000-8000-00000000ad41";
        api.add(
            node("product_info")
                .text("name", "oVirt Engine")
                .text("vendor", "ovirt.org")
                .add(version),
        )
        .add(
            node("special_objects")
                .add(reference("blank_template", "templates", BLANK))
                .add(reference("root_tag", "tags", BLANK)),
        )
        .text("time", time(self.now))
        .add(reference("authenticated_user", "users", user))
        .add(reference("effective_user", "users", user))
    }

    fn cluster(&self, id: &str) -> Outcome<&Cluster> {
        super::check_guid(id)?;
        self.clusters
            .iter()
            .find(|cluster| cluster.id == id)
            .ok_or(Refusal::NotFound)
    }

    fn data_center(&self, id: &str) -> Outcome<&DataCenter> {
        super::check_guid(id)?;
        self.data_centers
            .iter()
            .find(|center| center.id == id)
            .ok_or(Refusal::NotFound)
    }

    fn show_cluster(&self, cluster: &Cluster) -> Node {
        let [major, minor] = cluster.version;
        entity("cluster", "clusters", &cluster.id)
            .text("name", &cluster.name)
            .text("description", "")
            .text("ballooning_enabled", true)
            .add(
                node("cpu")
                    .text("architecture", "x86_64")
                    .text("type", &cluster.cpu_type),
            )
            .add(node("version").text("major", major).text("minor", minor))
            .add(reference("data_center", "datacenters", &cluster.data_center))
            .add(reference("mac_pool", "macpools", &cluster.mac_pool))
            .link(
                "affinitygroups",
                format!("{API}/clusters/{}/affinitygroups", cluster.id),
            )
            .link("networks", format!("{API}/clusters/{}/networks", cluster.id))
    }

    fn show_data_center(&self, center: &DataCenter) -> Node {
        let link = |rel: &str| format!("{API}/datacenters/{}/{rel}", center.id);
        entity("data_center", "datacenters", &center.id)
            .text("name", &center.name)
            .text("local", false)
            .text("quota_mode", &center.quota_mode)
            .text("status", "up")
            .text("storage_format", "v5")
            .add(reference("mac_pool", "macpools", &center.mac_pool))
            .link("storagedomains", link("storagedomains"))
            .link("networks", link("networks"))
            .link("quotas", link("quotas"))
    }

    /// Outside of a data center a domain has no status, but says which it is in.
    fn show_storage_domain(&self, domain: &StorageDomain, is_attached: bool) -> Node {
        let shown = entity("storage_domain", "storagedomains", &domain.id)
            .text("name", &domain.name)
            .text("available", domain.available)
            .text("used", domain.used)
            .text("committed", domain.used)
            .text("master", domain.name == "data")
            .add(node("storage").text("type", "nfs"))
            .text("storage_format", "v5")
            .text("type", &domain.kind)
            .text("external_status", "ok");
        match is_attached {
            true => {
                shown
                    .text("status", &domain.status)
                    .add(reference("data_center", "datacenters", &domain.data_center))
            }
            false => shown.add(node("data_centers").add(reference("data_center", "datacenters", &domain.data_center))),
        }
    }

    fn show_host(&self, host: &Host) -> Node {
        entity("host", "hosts", &host.id)
            .text("name", &host.name)
            .text("address", &host.address)
            .text("memory", host.memory)
            .text("max_scheduling_memory", host.memory)
            .text("status", &host.status)
            .text("type", "ovirt_node")
            .add(node("cpu").add(node("topology").text("cores", 16).text("sockets", 2).text("threads", 2)))
            .add(reference("cluster", "clusters", &host.cluster))
    }

    fn show_network(&self, network: &Network) -> Node {
        let usage = |name: &str| {
            let mut usage = node("usage");
            usage.text = name.to_owned();
            usage
        };
        entity("network", "networks", &network.id)
            .text("name", &network.name)
            .text("mtu", 0)
            .text("stp", false)
            .add(node("usages").add(usage("vm")))
            .add(reference("data_center", "datacenters", &network.data_center))
            .link("vnicprofiles", format!("{API}/networks/{}/vnicprofiles", network.id))
    }

    fn show_profile(&self, profile: &Profile, follow: &Follow) -> Node {
        let network = self.networks.iter().find(|network| network.id == profile.network);
        let filter = self
            .filters
            .iter()
            .find(|filter| Some(&filter.id) == profile.filter.as_ref());
        let network = match network {
            Some(network) if follow.has("network") => self.show_network(network),
            _ => reference("network", "networks", &profile.network),
        };
        let filter = filter.map(|filter| match follow.has("network_filter") {
            true => show_filter(filter),
            false => reference("network_filter", "networkfilters", &filter.id),
        });
        entity("vnic_profile", "vnicprofiles", &profile.id)
            .text("name", &profile.name)
            .add(node("pass_through").text("mode", "disabled"))
            .text("port_mirroring", false)
            .add(network)
            .all(filter)
    }

    fn tag(&self, id: &str) -> Outcome<&Named> {
        super::check_guid(id)?;
        self.tags.iter().find(|tag| tag.id == id).ok_or(Refusal::NotFound)
    }

    fn add_tag(&mut self, request: &Request) -> Outcome<Node> {
        let body = super::read(request, "tag", shapes::TAG, "tags/methods/add")?;
        let Some(name) = body.get("name") else {
            return Refusal::incomplete("Tag", "name", "add");
        };
        if name.chars().count() > 50 || name.contains([' ', '"']) {
            return Refusal::bad("Cannot add Tag. The given name is too long or has special characters.");
        }
        if self.tags.iter().any(|tag| tag.name == name) {
            return Refusal::conflict(
                "Cannot add Tag. The Tag name is already in use, please choose a unique name and try again.",
            );
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
        let tag = self.tags.iter_mut().find(|tag| tag.id == id).ok_or(Refusal::NotFound)?;
        tag.name = body.get("name").unwrap_or(tag.name.clone());
        tag.description = body.get("description").unwrap_or(tag.description.clone());
        let tag = tag.clone();
        Ok(self.show_tag(&tag))
    }

    fn tag_vm(&mut self, vm: &str, request: &Request) -> Outcome<Node> {
        let body = super::read(request, "tag", shapes::TAG, "assigned_tags/methods/add")?;
        let by = |tag: &&Named| Some(&tag.id) == body.id.as_ref() || Some(&tag.name) == body.get("name").as_ref();
        let tag = self.tags.iter().find(by).ok_or(Refusal::NotFound)?.clone();
        self.vm(vm)?;
        let known = self.vm_mut(vm).ok_or(Refusal::NotFound)?;
        if known.tags.contains(&tag.id) {
            return Refusal::conflict("Cannot attach Tag to VM. The tag is already attached.");
        }
        known.tags.push(tag.id.clone());
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
        if self
            .affinity_groups
            .iter()
            .any(|group| group.name == name && group.cluster == cluster)
        {
            return Refusal::conflict("Cannot add Affinity Group. Affinity Group with the same name already exists.");
        }
        let mut group = AffinityGroup {
            id: self.new_id(),
            name,
            description: String::new(),
            cluster: cluster.to_owned(),
            enabled: true,
            positive: false,
            enforcing: false,
            vms: Vec::new(),
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

    fn update_group(&mut self, cluster: &str, id: &str, request: &Request) -> Outcome<Node> {
        let body = super::read(
            request,
            "affinity_group",
            shapes::AFFINITY_GROUP,
            "affinity_group/methods/update",
        )?;
        let mut group = self.group(cluster, id)?.clone();
        self.change_group(&mut group, &body)?;
        if let Some(known) = self.affinity_groups.iter_mut().find(|known| known.id == id) {
            known.clone_from(&group);
        }
        Ok(self.show_group(&group))
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
        if self.vm(&vm)?.cluster != group.cluster {
            return Refusal::conflict("Cannot edit Affinity Group. The VM is in a different cluster.");
        }
        let group = self
            .affinity_groups
            .iter_mut()
            .find(|group| group.id == id)
            .ok_or(Refusal::NotFound)?;
        if group.vms.contains(&vm) {
            return Refusal::conflict("Cannot edit Affinity Group. The VM is already part of the Affinity Group.");
        }
        group.vms.push(vm.clone());
        Ok(reference("vm", "vms", &vm))
    }

    fn label(&self, id: &str) -> Outcome<&AffinityLabel> {
        super::check_guid(id)?;
        self.affinity_labels
            .iter()
            .find(|label| label.id == id)
            .ok_or(Refusal::NotFound)
    }

    fn add_label(&mut self, request: &Request) -> Outcome<Node> {
        let body = super::read(request, "affinity_label", shapes::LABEL, "affinity_labels/methods/add")?;
        let Some(name) = body.get("name") else {
            return Refusal::incomplete("AffinityLabel", "name", "add");
        };
        if self.affinity_labels.iter().any(|label| label.name == name) {
            return Refusal::conflict(
                "Cannot add Affinity Label. The Affinity Label name is already in use, please choose a unique name and try again.",
            );
        }
        let label = AffinityLabel {
            id: self.new_id(),
            name,
            vms: Vec::new(),
            hosts: Vec::new(),
        };
        self.affinity_labels.push(label.clone());
        Ok(self.show_label(&label))
    }
}

fn show_filter(filter: &Named) -> Node {
    let version = node("version")
        .text("major", 4)
        .text("minor", 0)
        .text("build", -1)
        .text("revision", -1);
    entity("network_filter", "networkfilters", &filter.id)
        .text("name", &filter.name)
        .add(version)
}

fn show_mac_pool(pool: &MacPool) -> Node {
    let text = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
    let range = node("range")
        .text("from", text(pool.range.0))
        .text("to", text(pool.range.1));
    entity("mac_pool", "macpools", &pool.id)
        .text("name", &pool.name)
        .text("allow_duplicates", pool.allow_duplicates)
        .text("default_pool", true)
        .add(node("ranges").add(range))
}

fn show_permission(permission: &Permission) -> Node {
    let shown = entity("permission", "permissions", &permission.id).add(show_role(&permission.role));
    shown.all(permission.on.iter().map(|(kind, id)| node(kind).id(id)))
}

fn show_role(name: &str) -> Node {
    let number = name
        .bytes()
        .fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let id = format!("{number:08x}-0000-4000-8000-000000000000");
    entity("role", "roles", &id)
        .text("name", name)
        .text("administrative", name == "SuperUser")
}

/// Queries that are known; whether a request takes one is not told apart.
const QUERIES: &[&str] = &[
    "async",
    "case_sensitive",
    "clone",
    "correlation_id",
    "current",
    "detach_only",
    "filter",
    "follow",
    "force",
    "from",
    "max",
    "search",
    "unregister",
];

const COLLECTIONS: &[&str] = &[
    "affinitylabels",
    "clusters",
    "datacenters",
    "disks",
    "events",
    "hosts",
    "imagetransfers",
    "jobs",
    "macpools",
    "networkfilters",
    "networks",
    "operatingsystems",
    "permissions",
    "roles",
    "storagedomains",
    "tags",
    "templates",
    "users",
    "vms",
    "vnicprofiles",
];
