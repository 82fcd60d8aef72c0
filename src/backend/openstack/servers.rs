//! Creates, starts, stops, lists, describes and deletes servers.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::try_join_all;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::auth::Service::{Compute as NOVA, Image as GLANCE, Volume as CINDER};
use super::cloud::{OpenStack, PAUSE, turn};
use super::listing::has_tags;
use super::ports::{Port, port_of};
use super::wire::{self, Parts, query, text};
use crate::backend::ownership::{Ownership, conflict};
use crate::backend::response::part;
use crate::backend::{Action, BackendError, BackendErrorKind, Description, Form, Machine, MachineSpec, Power, Stop};
use crate::cluster::{Affinity, ClusterId, MachineName, OsBoot};

/// The longest time for creating or deleting a server or volume.
pub(super) const CHANGE_TIMEOUT: Duration = Duration::from_secs(600);
/// The number of console lines.
const TAIL: u32 = 50;
/// The maximum number of NICs of a machine.
const NICS: usize = 16;
/// Fields about placement: our name and Nova's.
const SCHEDULING: [(&str, &str); 2] = [("zone", "OS-EXT-AZ:availability_zone"), ("host id", "hostId")];
/// Fields about the present state.
const DYNAMIC: [(&str, &str); 5] = [
    ("status", "status"),
    ("task", "OS-EXT-STS:task_state"),
    ("id", "id"),
    // Only for administrators.
    ("host", "OS-EXT-SRV-ATTR:host"),
    ("instance", "OS-EXT-SRV-ATTR:instance_name"),
];

impl OpenStack {
    pub(super) async fn create(&self, spec: &MachineSpec) -> Result<Action<Machine>, BackendError> {
        if let Some(server) = self.server_for(spec).await? {
            return self.adopt(spec, &server).await;
        }
        let mut networks = Vec::new();
        for nic in &spec.nics {
            networks.push(self.network(&nic.network).await?);
        }
        let image = self.bootable(spec).await?;
        let has_volumes = self.session.has(CINDER).await?;
        let flavor = self.flavor_for(spec, has_volumes).await?;
        let disk_gib = match self.config.boot {
            OsBoot::Image => flavor.disk_gib,
            OsBoot::Volume => spec.disk_gib,
        };
        if let Some(message) = wire::too_small(&flavor, disk_gib, &image) {
            let hint = match self.config.boot {
                OsBoot::Image => format!("set os_{}_flavor to a larger flavor", spec.role),
                OsBoot::Volume => "increase disk_size or set a larger flavor".to_owned(),
            };
            return Err(BackendError::new(BackendErrorKind::Quota, message).hint(hint));
        }
        let user_data = self.user_data(spec).await?;

        // Prevents the deletion of groups that are not used yet.
        let _groups = self.in_use.read().await;
        let main = networks.first().and_then(|network| network.main());
        let groups = match networks.iter().any(|network| network.port_security) {
            true => vec![self.security_group(&spec.cluster, main, spec.ipv6).await?],
            false => Vec::new(),
        };
        let mut ports = self.ports_for(spec, &networks, &groups).await?;
        if ports.iter().any(|port| !port.device.is_empty()) {
            self.unused_ports(&spec.cluster, ports).await?;
            ports = self.ports_for(spec, &networks, &groups).await?;
        }
        if let Some(port) = ports.iter().find(|port| !port.device.is_empty()) {
            let message = format!(
                "port {1} of {2} is in use by server {0}",
                port.device, port.name, spec.name
            );
            return Err(BackendError::new(BackendErrorKind::Conflict, message));
        }
        let ports: Vec<_> = ports.into_iter().map(|port| port.id).collect();
        let group = self.server_group(spec).await?;
        let volumes = match has_volumes {
            true => self.volumes_for(spec).await,
            false => Ok(Vec::new()),
        };
        let volumes = match volumes {
            Ok(volumes) => volumes,
            // Cinder does not delete a volume in creation (openstack/cinder: `cinder/volume/api.py`, `delete`).
            Err(failure) if failure.kind == BackendErrorKind::Timeout => return Err(failure),
            Err(failure) => {
                self.delete_parts(&spec.cluster, &spec.name).await?;
                return Err(failure);
            }
        };
        let parts = Parts {
            flavor: &flavor,
            ports: &ports,
            user_data: &user_data,
            boot: self.config.boot,
            volumes: &volumes,
            zone: wire::zone_of(spec, self.config.zone.as_deref()),
            group: group.as_deref(),
        };
        // With soft affinity, Nova considers only members that already have a host.
        let turn = match &group {
            Some(id) if self.config.affinity == Affinity::Soft => Some(turn(&self.placing, id).await),
            _ => None,
        };
        match self.session.post(NOVA, "/servers", &wire::server(spec, &parts)).await {
            Ok(created) => {
                if turn.is_some() {
                    self.wait_for_host(text(&created["server"], "id")).await?;
                }
                Ok(Action::Done(
                    Ownership::of(spec).machine(Power::Building, &BTreeMap::new()),
                ))
            }
            Err(failure) => {
                // A rejection, not a lost response, so the server does not exist: its parts are deleted.
                if failure.code.is_some_and(|status| status < 500) {
                    self.delete_parts(&spec.cluster, &spec.name).await?;
                }
                Err(failure)
            }
        }
    }

    /// The server of a spec. One that belongs to another owner or differs from the spec is a conflict. One that Nova could
    /// not schedule or start has done nothing yet, and is deleted.
    async fn server_for(&self, spec: &MachineSpec) -> Result<Option<Value>, BackendError> {
        let Some(server) = self.server_of(&spec.cluster, &spec.name).await? else {
            return Ok(None);
        };
        // A killed run may have deleted it. Nova lists it with its old status for a while.
        if text(&server, "OS-EXT-STS:task_state") == "deleting" {
            self.delete_server(&server).await?;
            return Ok(None);
        }
        Ownership::adopt(wire::ownership(&server), spec)?;
        if let Some(Power::Broken(reason)) = wire::power(&server).filter(|_| wire::never_ran(&server)) {
            warn!("server {} never ran and is created again: {reason}", spec.name);
            self.delete_server(&server).await?;
            return Ok(None);
        }
        Ok(Some(server))
    }

    async fn adopt(&self, spec: &MachineSpec, server: &Value) -> Result<Action<Machine>, BackendError> {
        let deleted = || conflict(format!("server {} is being deleted", spec.name));
        let machine = wire::machine(server).ok_or_else(deleted)?;
        match machine.power {
            Power::Off => {
                self.act(server, &wire::start(server)).await?;
                Ok(Action::Done(machine))
            }
            _ => Ok(Action::Unchanged(machine)),
        }
    }

    /// Servers of exactly this name. Nova's filter is a regular expression.
    async fn servers_named(&self, name: &MachineName) -> Result<Vec<Value>, BackendError> {
        let path = query("/servers/detail", &[("name", &format!("^{name}$"))]);
        let is_named = |server: &Value| server["name"] == name.as_str();
        let mut servers = self.session.list_own(NOVA, &path, "servers", is_named).await?;
        servers.retain(|server| !is_gone(server));
        Ok(servers)
    }

    pub(super) async fn servers_of(&self, cluster: &ClusterId) -> Result<Vec<Value>, BackendError> {
        let tags = [wire::TAG, cluster.tag()];
        let path = query("/servers/detail", &[("tags", &tags.join(","))]);
        let is_tagged = |server: &Value| has_tags(server, &tags);
        let mut servers = self.session.list_own(NOVA, &path, "servers", is_tagged).await?;
        servers.retain(|server| wire::cluster_of(server).as_ref() == Some(cluster) && !is_gone(server));
        Ok(servers)
    }

    /// Servers of all clusters.
    pub(super) async fn servers_of_any(&self) -> Result<Vec<Value>, BackendError> {
        let path = query("/servers/detail", &[("tags", wire::TAG)]);
        let is_tagged = |server: &Value| has_tags(server, &[wire::TAG]);
        let mut servers = self.session.list_own(NOVA, &path, "servers", is_tagged).await?;
        servers.retain(|server| !is_gone(server));
        Ok(servers)
    }

    pub(super) async fn machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError> {
        let servers = self.servers_of(cluster).await?;
        let looks = servers.iter().filter_map(|server| {
            let machine = wire::machine(server)?;
            Some(self.with_live_addresses(server, machine))
        });
        let mut machines = try_join_all(looks).await?;
        machines.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(machines)
    }

    /// The server that uses a port; `None` if there is none, or if it is deleted.
    pub(super) async fn server_on(&self, port: &Port) -> Result<Option<Value>, BackendError> {
        if port.device.is_empty() {
            return Ok(None);
        }
        let path = format!("/servers/{}", wire::escape(&port.device));
        let found = self.session.find(NOVA, &path).await?;
        Ok(found.map(|answer| part(answer, "/server")))
    }

    /// The cluster's server of this name. One that it does not own is a conflict.
    async fn server_of(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<Value>, BackendError> {
        let servers = self.servers_named(name).await?;
        let is_ours = |server: &&Value| wire::cluster_of(server).as_ref() == Some(cluster);
        // Names are not unique.
        let Some(server) = servers.iter().find(is_ours).or(servers.first()) else {
            return Ok(None);
        };
        Ownership::require(wire::ownership(server), cluster, name)?;
        Ok(Some(server.clone()))
    }

    pub(super) async fn delete(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        let mut changed = false;
        // Names are not unique: a repeated call without a response may have created a second server.
        while let Some(server) = self.server_of(cluster, name).await? {
            self.delete_server(&server).await?;
            changed = true;
        }
        changed |= self.delete_parts(cluster, name).await?;
        let _alone = self.in_use.write().await;
        self.delete_security_group(cluster).await?;
        self.delete_server_groups(cluster).await?;
        Ok(match changed {
            true => Action::Done(()),
            false => Action::Unchanged(()),
        })
    }

    /// Deletes a server and waits until its ports can be used again.
    ///
    /// With `reclaim_instance_interval`, Nova keeps a deleted server as SOFT_DELETED for that time, with its ports and
    /// volumes, until its owner forces the deletion (openstack/nova: `nova/api/openstack/compute/servers.py`, `_delete`;
    /// `deferred_delete.py`, `forceDelete`).
    async fn delete_server(&self, server: &Value) -> Result<(), BackendError> {
        let path = format!("/servers/{}", text(server, "id"));
        let begun = Instant::now();
        let mut asked = begun;
        let mut is_forced = false;
        if !is_kept(server) {
            self.session.delete(NOVA, &path).await?;
        }
        while let Some(left) = self.session.find(NOVA, &path).await? {
            let left = &left["server"];
            if begun.elapsed() > CHANGE_TIMEOUT {
                let task = left["OS-EXT-STS:task_state"].as_str().unwrap_or("no task");
                let message = format!(
                    "server {} is still {}, {task}",
                    text(left, "name"),
                    text(left, "status")
                );
                return Err(BackendError::new(BackendErrorKind::Timeout, message));
            }
            // A deletion during another operation may have been lost.
            let is_lost = asked.elapsed() > CHANGE_TIMEOUT / 5;
            if is_lost {
                asked = Instant::now();
            }
            if is_kept(left) && (is_lost || !is_forced) {
                is_forced = true;
                self.force_delete(left).await?;
            } else if is_lost {
                self.session.delete(NOVA, &path).await?;
            }
            sleep(PAUSE).await;
        }
        Ok(())
    }

    async fn force_delete(&self, server: &Value) -> Result<(), BackendError> {
        match self.act(server, &json!({"forceDelete": null})).await {
            // It is being deleted, or does not exist.
            Err(failure) if matches!(failure.code, Some(404 | 409)) => Ok(()),
            Err(failure) if failure.code == Some(403) => {
                let (name, id) = (text(server, "name"), text(server, "id"));
                Err(failure.hint(format!(
                    "Nova keeps deleted server {name}: have an administrator run `openstack server delete --force {id}`, \
                     or allow os_compute_api:os-deferred-delete:force to members"
                )))
            }
            other => other.map(drop),
        }
    }

    /// Those of the cluster's ports that none of its machines uses. A port in use by another server is a conflict.
    ///
    /// Servers that an interrupted run deleted and Nova keeps are deleted. They are found only by their ports: a
    /// member's lists do not contain them (openstack/nova: `nova/db/main/api.py`, `instance_get_all_by_filters`,
    /// `not_soft_deleted`).
    pub(super) async fn unused_ports(&self, cluster: &ClusterId, ports: Vec<Port>) -> Result<Vec<Port>, BackendError> {
        let mut unused = Vec::new();
        for port in ports {
            match self.server_on(&port).await? {
                Some(server) if wire::cluster_of(&server).as_ref() != Some(cluster) => {
                    let (name, device) = (text(&server, "name"), &port.device);
                    let message = format!(
                        "port {} is in use by server {name}, which belongs to another owner",
                        port.name
                    );
                    return Err(BackendError::new(BackendErrorKind::Conflict, message).hint(format!(
                        "detach it with `openstack server remove port {device} {}`, and run the same command again",
                        port.id
                    )));
                }
                Some(server) if !is_kept(&server) => continue,
                Some(server) => self.delete_server(&server).await?,
                None => {}
            }
            unused.push(port);
        }
        Ok(unused)
    }

    /// Deletes all objects of a machine except its server and reserved ports: other ports, volumes, its stored config.
    async fn delete_parts(&self, cluster: &ClusterId, name: &MachineName) -> Result<bool, BackendError> {
        let mut changed = self.delete_content(cluster, Some(name)).await?;
        let names: Vec<_> = (0..NICS).map(|index| port_of(name, index)).collect();
        let ports = self.ports_named(cluster, &names).await?;
        for port in self.unused_ports(cluster, ports).await? {
            changed |= self.delete_port(&port.id).await?;
        }
        // Nova deletes them with the server, if there was one.
        changed |= self.delete_volumes(cluster, Some(name), &[]).await?;
        Ok(changed)
    }

    /// The image of a machine, which must be complete.
    async fn bootable(&self, spec: &MachineSpec) -> Result<Value, BackendError> {
        let id = &spec.image.0;
        let image = self
            .session
            .find(GLANCE, &format!("/images/{}", wire::escape(id)))
            .await?;
        let image =
            image.ok_or_else(|| BackendError::new(BackendErrorKind::NotFound, format!("image {id} does not exist")))?;
        super::images::check_active(&image)?;
        Ok(image)
    }

    pub(super) async fn absolute_limits(&self) -> Result<&Value, BackendError> {
        let read = async {
            let answer = self.session.get(NOVA, "/limits").await?;
            Ok::<_, BackendError>(part(answer, "/limits/absolute"))
        };
        self.limits.get_or_try_init(|| read).await
    }

    pub(super) async fn act(&self, server: &Value, action: &Value) -> Result<Value, BackendError> {
        let path = format!("/servers/{}/action", text(server, "id"));
        self.session.post(NOVA, &path, action).await
    }

    /// The response with the output of the console: the complete one, or the last lines.
    pub(super) async fn console_output(&self, server: &Value, lines: Value) -> Result<Value, BackendError> {
        let path = format!("/servers/{}/action", text(server, "id"));
        self.session
            .post_query(NOVA, &path, &json!({"os-getConsoleOutput": lines}))
            .await
    }

    pub(super) async fn existing(&self, cluster: &ClusterId, name: &MachineName) -> Result<Value, BackendError> {
        let server = self.server_of(cluster, name).await?;
        server.ok_or_else(|| BackendError::new(BackendErrorKind::NotFound, format!("server {name} does not exist")))
    }

    pub(super) async fn start(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        let server = self.existing(cluster, name).await?;
        if wire::power(&server).is_some_and(|power| power != Power::Off) {
            return Ok(Action::Unchanged(()));
        }
        self.act(&server, &wire::start(&server)).await?;
        Ok(Action::Done(()))
    }

    /// Stops a server. Nova requests a shutdown, and switches it off after a minute; there is no other way to stop it.
    ///
    /// Nova does not stop a server that is being built, so this waits until it is built. `Stop::Force` also waits until
    /// it is off.
    pub(super) async fn stop(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError> {
        let server = self.existing(cluster, name).await?;
        let server = self.wait_while(server, |power| *power == Power::Building).await?;
        if wire::power(&server) == Some(Power::Off) {
            return Ok(Action::Unchanged(()));
        }
        if text(&server, "OS-EXT-STS:task_state") != "powering-off" {
            self.act(&server, &json!({"os-stop": null})).await?;
        }
        if how == Stop::Force {
            self.wait_while(server, |power| *power != Power::Off).await?;
        }
        Ok(Action::Done(()))
    }

    /// Waits while the condition is true.
    async fn wait_while(&self, mut server: Value, condition: impl Fn(&Power) -> bool) -> Result<Value, BackendError> {
        let begun = Instant::now();
        while wire::power(&server).is_some_and(|power| condition(&power)) {
            if begun.elapsed() > CHANGE_TIMEOUT {
                let message = format!("server {} is still {}", text(&server, "name"), text(&server, "status"));
                return Err(BackendError::new(BackendErrorKind::Timeout, message));
            }
            sleep(PAUSE).await;
            let path = format!("/servers/{}", text(&server, "id"));
            server = part(self.session.get(NOVA, &path).await?, "/server");
        }
        Ok(server)
    }

    pub(super) async fn console(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
    ) -> Result<Option<String>, BackendError> {
        let server = self.existing(cluster, name).await?;
        match self.console_output(&server, json!({"length": TAIL})).await {
            Ok(answer) => Ok(answer["output"]
                .as_str()
                .filter(|text| !text.is_empty())
                .map(str::to_owned)),
            // A server without a host has no console yet. Some hypervisors have no consoles.
            Err(failure) if matches!(failure.code, Some(404 | 409 | 501)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    pub(super) async fn describe(&self, cluster: &ClusterId, name: &MachineName) -> Result<Description, BackendError> {
        let server = self.existing(cluster, name).await?;
        let mut described = Description::default();
        let text = |path: &Value| path.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        for (message, map) in [
            (&SCHEDULING[..], &mut described.scheduling),
            (&DYNAMIC[..], &mut described.dynamic),
        ] {
            map.extend(
                message
                    .iter()
                    .filter_map(|(ours, novas)| Some(((*ours).to_owned(), text(&server[*novas])?.into()))),
            );
        }
        let scheduling = &mut described.scheduling;
        scheduling.extend(text(&server["flavor"]["original_name"]).map(|name| ("flavor".to_owned(), name.into())));
        let groups = self.server_groups(cluster).await?;
        let is_member = |group: &&Value| {
            let mut members = group["members"].as_array().into_iter().flatten();
            members.any(|member| *member == server["id"])
        };
        if let Some(group) = groups.iter().find(is_member) {
            let (name, policy) = (wire::text(group, "name"), wire::text(group, "policy"));
            scheduling.insert("affinity".to_owned(), format!("{policy} ({name})").into());
        }
        described.form = Some(Form {
            name: "Nova JSON",
            text: format!("{:#}", wire::without_payload(server)),
        });
        Ok(described)
    }

    /// The names of planned machines that are in use by servers of other owners.
    pub(super) async fn name_conflicts(
        &self,
        cluster: Option<&ClusterId>,
        names: &[&MachineName],
    ) -> Result<Vec<String>, BackendError> {
        let servers = self.session.list(NOVA, "/servers/detail", "servers").await?;
        let is_conflict = |server: &&Value| {
            let named = names.iter().any(|name| server["name"] == name.as_str());
            named && !is_gone(server) && (cluster.is_none() || wire::cluster_of(server).as_ref() != cluster)
        };
        Ok(servers
            .iter()
            .filter(is_conflict)
            .map(|server| text(server, "name").to_owned())
            .collect())
    }
}

/// Whether Nova keeps a deleted server until its owner forces the deletion.
fn is_kept(server: &Value) -> bool {
    text(server, "status") == "SOFT_DELETED"
}

fn is_gone(server: &Value) -> bool {
    matches!(text(server, "status"), "DELETED" | "SOFT_DELETED")
}
