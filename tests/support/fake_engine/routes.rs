//! Maps requests to operations.

use super::faults::{Outcome, Refusal, html};
use super::http::{Answer, Request};
use super::search::select;
use super::shapes;
use super::show::{API, Follow, NIC_PARAMETERS};
use super::world::*;
use super::xml::{Node, node};
use super::{images, vms};

/// A status and a document; actions and removals have one of their own.
pub(super) enum Reply {
    Shown(Node),
    /// 201, or 202 if the operation continues in the background.
    Made(Node, bool),
    Done,
    /// The result inside of an `<action>`.
    Act(Outcome<()>),
}

use Reply::{Act, Done, Made, Shown};

impl World {
    /// Answers one authorized request of the API.
    pub fn answer(&mut self, request: &Request) -> Answer {
        let Some(path) = request.path.strip_prefix(API) else {
            return self.surprise(request);
        };
        let path: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
        if let Some(strange) = request.query.keys().find(|key| !QUERIES.contains(&key.as_str())) {
            let strange = format!("{} {}: the query {strange}", request.method, request.path);
            self.surprises.push(strange);
        }
        if let Some(refused) = self.refused_to_users(request, &path) {
            return refused.answer(false);
        }
        let newer = super::xml::parse(&request.body).and_then(|body| shapes::newer(&body, self.version));
        if let Some(newer) = newer {
            return Refusal::syntax("versions", newer).answer(false);
        }
        let mut request = request.clone();
        if self.ignores_filters {
            request.query.remove("search");
        }
        let request = &request;
        let correlation = request.query.get("correlation_id").cloned().unwrap_or_default();
        let is_plain = |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
        if correlation.len() > 50 || !correlation.chars().all(is_plain) {
            return Refusal::engine("VALIDATION_INVALID_CORRELATION_ID", "", &[]).answer(false);
        }
        // Assumed: a change without a content type is HTTP 415.
        if ["POST", "PUT"].contains(&request.method.as_str())
            && !request
                .headers
                .get("content-type")
                .is_some_and(|kind| kind.starts_with("application/xml"))
        {
            return Answer::new(415, "", "");
        }
        // Assumed: a rejected request changes nothing, even if it was partly executed.
        let before = (self.disks.clone(), self.storage_domains.clone());
        let outcome = self.route(request, &path);
        if outcome.is_err() {
            (self.disks, self.storage_domains) = before;
        }
        let (status, body) = match outcome {
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
            Ok(Done | Act(Ok(()))) => (200, node("action").text("status", "complete")),
            Ok(Act(Err(Refusal::Unknown))) | Err(Refusal::Unknown) => return self.surprise(request),
            Ok(Act(Err(refusal))) => return refusal.answer(true),
            Err(refusal) => return refusal.answer(false),
        };
        let body = shapes::of_version(body, self.version);
        Answer::new(
            status,
            "application/xml;charset=UTF-8",
            format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>{body}"),
        )
    }

    /// What an engine refuses to those who are no administrators (oVirt/ovirt-engine: QueriesCommandBase, QueryType).
    fn refused_to_users(&self, request: &Request, path: &[&str]) -> Option<Refusal> {
        if self.is_administrator || path.is_empty() {
            return None;
        }
        let is_for_administrators = matches!(
            path,
            ["tags" | "affinitylabels" | "macpools" | "networkfilters", ..]
                | ["imagetransfers"]
                | ["clusters", _, "affinitygroups", ..]
                | ["vms", _, "tags", ..]
        );
        // oVirt/ovirt-engine: `ENGINE_API_FILTER_BY_DEFAULT` applies if the request has no header.
        let asks_for_theirs = match request.headers.get("filter") {
            Some(value) => value == "true",
            None => self.filters_by_default,
        };
        match (request.method.as_str(), is_for_administrators) {
            ("POST" | "PUT" | "DELETE", true) => {
                Some(Refusal::engine("USER_NOT_AUTHORIZED_TO_PERFORM_ACTION", "", &[]))
            }
            _ if is_for_administrators || !asks_for_theirs => Some(Refusal::failed(
                400,
                "Query execution failed due to insufficient permissions.",
            )),
            _ => None,
        }
    }

    fn surprise(&mut self, request: &Request) -> Answer {
        self.surprises.push(format!("{} {}", request.method, request.path));
        html(404, "The fake engine does not know this")
    }

    fn route(&mut self, request: &Request, path: &[&str]) -> Outcome<Reply> {
        let is_administrator = self.is_administrator;
        let follow = |known: &[&str]| Follow::read(request.query.get("follow"), known, is_administrator);
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
                let nic = by_id(&vm.nics, nic).ok_or(Refusal::NotFound)?;
                Shown(self.show_nic("vms", id, nic))
            }
            // oVirt/ovirt-engine: BackendVmNicFilterParametersResource; no one sets any here.
            ("GET", ["vms", _, "nics", _, NIC_PARAMETERS]) => Shown(node("network_filter_parameters")),
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
            ("GET", ["vms", id, "snapshots"]) => Shown(self.show_snapshots(id)?),
            ("POST", ["vms", id, "snapshots"]) => Made(self.add_snapshot(id, request)?, true),
            ("GET", ["vms", id, "snapshots", snapshot]) => Shown(self.show_snapshot(id, snapshot)?),
            ("DELETE", ["vms", id, "snapshots", snapshot]) => {
                self.remove_snapshot(id, snapshot)?;
                Done
            }
            ("GET", ["vms", id, "snapshots", snapshot, "disks"]) => Shown(self.show_snapshot_disks(id, snapshot)?),
            ("POST", ["vms", id, "snapshots", snapshot, "restore"]) => {
                Act(self.restore_snapshot(id, snapshot, request))
            }
            ("POST", ["vms", id, "commitsnapshot"]) => Act(self.commit_snapshot(id, request)),
            ("GET", ["vms", id, "reporteddevices"]) => {
                let vm = self.vm(id)?.clone();
                Shown(self.show_reported(&vm))
            }
            ("GET", ["vms", id, "numanodes"]) => {
                self.vm(id)?;
                Shown(node("vm_numa_nodes"))
            }
            ("GET", ["vms", id, "tags"]) => {
                let vm = self.vm(id)?;
                Shown(self.show_tags_of(vm))
            }
            ("POST", ["vms", id, "tags"]) => Made(self.tag_vm(id, request)?, false),

            ("GET", ["templates"]) => {
                let follow = follow(images::TEMPLATE_FOLLOWED)?;
                let known = [
                    "name",
                    "description",
                    "comment",
                    "id",
                    "status",
                    "cluster",
                    "datacenter",
                    "vm.name",
                ];
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
            ("DELETE", ["templates", id]) => {
                self.remove_template(id)?;
                Done
            }
            ("GET", ["templates", id, "diskattachments"]) => {
                let with_disk = follow(&["disk"])?.has("disk");
                let disks = &self.template(id)?.disks;
                Shown(self.show_attachments(&format!("templates/{id}"), disks, with_disk))
            }

            ("GET", ["disks"]) => {
                let known = [
                    "alias",
                    "name",
                    "id",
                    "description",
                    "status",
                    "vm_names",
                    "storage.name",
                ];
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
            ("POST", ["imagetransfers", id, act @ ("finalize" | "cancel" | "resume")]) => {
                Act(self.act_on_transfer(id, act, request))
            }

            _ => return self.route_around(request, path),
        })
    }
}

/// Known query parameters; they are accepted in every request.
const QUERIES: &[&str] = &[
    "all_content",
    "async",
    "case_sensitive",
    "clone",
    "clone_permissions",
    "correlation_id",
    "filter",
    "follow",
    "force",
    "max",
    "search",
];
