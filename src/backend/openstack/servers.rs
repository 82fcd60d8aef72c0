//! Servers: made, looked at and deleted.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::try_join_all;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::auth::Service::{Compute as NOVA, Image as GLANCE, Volume as CINDER};
use super::cloud::{OpenStack, PAUSE, turn};
use super::listing::has_tags;
use super::wire::{self, Flavor, Parts, Wanted, query, text};
use crate::backend::failure::Failure;
use crate::backend::{Action, BackendErrorKind, Carrier, Machine, MachineSpec, Payload, Power, SeenNic, Stop};
use crate::cluster::{Affinity, ClusterId, MachineName, OsBoot, Role};

/// How long a server or volume may take to come or go.
pub(super) const GOING: Duration = Duration::from_secs(600);
/// How long a server's host may stay unknown before the next of its group is asked for all the same, and between looks.
const PLACING: Duration = Duration::from_secs(60);
const LOOK_AT_HOST: Duration = Duration::from_millis(250);
/// Lines of a console.
const TAIL: u32 = 50;
/// More NICs than a machine has.
const NICS: usize = 16;
/// Nova's default for members of one server group.
const MEMBERS: i64 = 10;

impl OpenStack {
    pub(super) async fn create(&self, spec: &MachineSpec) -> Result<Action<Machine>, Failure> {
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
        if let Some(words) = wire::too_small(&flavor, disk_gib, &image) {
            let hint = match self.config.boot {
                OsBoot::Image => format!("os_{}_flavor names a larger one", spec.role),
                OsBoot::Volume => "make disk_size larger, or choose a larger flavor".to_owned(),
            };
            return Err(Failure::new(BackendErrorKind::Quota, words).hint(hint));
        }
        let user_data = self.user_data(spec).await?;

        // While this goes on nobody deletes groups that look unused.
        let _groups = self.in_use.read().await;
        let main = networks.first().and_then(|network| network.main());
        let groups = match networks.iter().any(|network| network.port_security) {
            true => vec![self.security_group(&spec.cluster, main).await?],
            false => Vec::new(),
        };
        let ports = self.ports_for(spec, &networks, &groups).await?;
        if let Some(port) = ports.iter().find(|port| !port.device.is_empty()) {
            let words = format!("server {} has port {} of {}", port.device, port.name, spec.name);
            return Err(Failure::new(BackendErrorKind::Conflict, words));
        }
        let ports: Vec<_> = ports.into_iter().map(|port| port.id).collect();
        let group = self.server_group(spec).await?;
        let volumes = match has_volumes {
            true => self.volumes_for(spec).await,
            false => Ok(Vec::new()),
        };
        let volumes = match volumes {
            Ok(volumes) => volumes,
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
            zone: self.config.zone.as_deref(),
            group: group.as_deref(),
        };
        // Nova keeps a soft group's members apart from those only that have their host.
        let turn = match &group {
            Some(id) if self.config.affinity == Affinity::Soft => Some(turn(&self.placing, id).await),
            _ => None,
        };
        match self.session.post(NOVA, "/servers", &wire::server(spec, &parts)).await {
            Ok(made) => {
                if turn.is_some() {
                    self.wait_for_host(text(&made["server"], "id")).await?;
                }
                Ok(Action::Done(new(spec)))
            }
            Err(failure) => {
                // Refused, and not merely unanswered: nothing of it shall stay.
                if failure.code.is_some_and(|status| status < 500) {
                    self.delete_parts(&spec.cluster, &spec.name).await?;
                }
                Err(failure)
            }
        }
    }

    /// Until a server has a host, or will have none, or it takes too long for a mere preference.
    async fn wait_for_host(&self, id: &str) -> Result<(), Failure> {
        let begun = Instant::now();
        while begun.elapsed() < PLACING {
            let found = self.session.find(NOVA, &format!("/servers/{id}")).await?;
            let Some(server) = found.map(|mut answer| answer["server"].take()) else {
                break;
            };
            if !text(&server, "hostId").is_empty() || text(&server, "status") != "BUILD" {
                break;
            }
            sleep(LOOK_AT_HOST).await;
        }
        Ok(())
    }

    /// The server for a spec, by its name or on its port; one that is not what is asked for is a conflict.
    async fn server_for(&self, spec: &MachineSpec) -> Result<Option<Value>, Failure> {
        let conflict = |words| Err(Failure::new(BackendErrorKind::Conflict, words));
        let servers = self.servers_named(&spec.name).await?;
        let Some(server) = servers.first() else { return Ok(None) };
        if wire::cluster_of(server).as_ref() != Some(&spec.cluster) {
            return conflict(format!(
                "a server {} that is not of cluster {} is there",
                spec.name, spec.cluster
            ));
        }
        // A run that was killed may have deleted it, and Nova shows it for a while as if nothing were.
        if text(server, "OS-EXT-STS:task_state") == "deleting" {
            self.delete_server(server).await?;
            return Ok(None);
        }
        match wire::machine(server) {
            Some(machine) if machine.fingerprint == spec.fingerprint() => Ok(Some(server.clone())),
            Some(_) => conflict(format!("machine {} of this cluster has other settings", spec.name)),
            None => conflict(format!("a server {} is on its way out", spec.name)),
        }
    }

    async fn adopt(&self, spec: &MachineSpec, server: &Value) -> Result<Action<Machine>, Failure> {
        let machine = wire::machine(server).unwrap_or_else(|| new(spec));
        match machine.power {
            Power::Off => {
                self.act(server, &json!({"os-start": null})).await?;
                Ok(Action::Done(machine))
            }
            _ => Ok(Action::Unchanged(machine)),
        }
    }

    /// Servers of exactly this name; Nova's filter is a pattern.
    async fn servers_named(&self, name: &MachineName) -> Result<Vec<Value>, Failure> {
        let path = query("/servers/detail", &[("name", &format!("^{name}$"))]);
        let is_named = |server: &Value| server["name"] == name.as_str();
        let mut servers = self.session.list_matching(NOVA, &path, "servers", is_named).await?;
        servers.retain(|server| !is_gone(server));
        Ok(servers)
    }

    pub(super) async fn servers_of(&self, cluster: &ClusterId) -> Result<Vec<Value>, Failure> {
        let tags = [wire::TAG, cluster.as_str()];
        let path = query("/servers/detail", &[("tags", &tags.join(","))]);
        let is_tagged = |server: &Value| has_tags(server, &tags);
        let mut servers = self.session.list_matching(NOVA, &path, "servers", is_tagged).await?;
        servers.retain(|server| wire::cluster_of(server).as_ref() == Some(cluster) && !is_gone(server));
        Ok(servers)
    }

    /// Servers of all clusters.
    pub(super) async fn servers_of_any(&self) -> Result<Vec<Value>, Failure> {
        let path = query("/servers/detail", &[("tags", wire::TAG)]);
        let is_tagged = |server: &Value| has_tags(server, &[wire::TAG]);
        let mut servers = self.session.list_matching(NOVA, &path, "servers", is_tagged).await?;
        servers.retain(|server| !is_gone(server));
        Ok(servers)
    }

    pub(super) async fn machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, Failure> {
        let servers = self.servers_of(cluster).await?;
        let looks = servers.iter().filter_map(|server| {
            let machine = wire::machine(server)?;
            Some(self.with_live_addresses(server, machine))
        });
        let mut machines = try_join_all(looks).await?;
        machines.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(machines)
    }

    /// The name of a server of ours.
    pub(super) async fn machine_of_server(&self, id: &str) -> Result<Option<MachineName>, Failure> {
        let server = self.session.find(NOVA, &format!("/servers/{id}")).await?;
        Ok(server.and_then(|answer| Some(wire::machine(&answer["server"])?.name)))
    }

    /// The cluster's server of this name; a stranger's is a conflict.
    async fn server_of(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<Value>, Failure> {
        let servers = self.servers_named(name).await?;
        let is_ours = |server: &&Value| wire::cluster_of(server).as_ref() == Some(cluster);
        match servers.iter().find(is_ours) {
            Some(server) => Ok(Some(server.clone())),
            None if servers.is_empty() => Ok(None),
            None => Err(Failure::new(
                BackendErrorKind::Conflict,
                format!("server {name} is not of cluster {cluster}"),
            )),
        }
    }

    pub(super) async fn delete(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, Failure> {
        let mut changed = false;
        // Names are not unique: a call whose answer was lost may have made one more.
        while let Some(server) = self.server_of(cluster, name).await? {
            self.delete_server(&server).await?;
            changed = true;
        }
        changed |= self.delete_parts(cluster, name).await?;
        let _alone = self.in_use.write().await;
        self.leave_security_group(cluster).await?;
        self.leave_server_groups(cluster).await?;
        Ok(match changed {
            true => Action::Done(()),
            false => Action::Unchanged(()),
        })
    }

    /// Deletes a server and waits until it is gone: its ports can be used only then.
    async fn delete_server(&self, server: &Value) -> Result<(), Failure> {
        let path = format!("/servers/{}", text(server, "id"));
        let begun = Instant::now();
        let mut asked = Instant::now();
        self.session.delete(NOVA, &path).await?;
        while let Some(left) = self.session.find(NOVA, &path).await? {
            if begun.elapsed() > GOING {
                let left = &left["server"];
                let task = left["OS-EXT-STS:task_state"].as_str().unwrap_or("no task");
                let words = format!(
                    "server {} is still {}, {task}",
                    text(left, "name"),
                    text(left, "status")
                );
                return Err(Failure::new(BackendErrorKind::Timeout, words));
            }
            // A deletion that came in the middle of something else may have been lost.
            if asked.elapsed() > GOING / 5 {
                asked = Instant::now();
                self.session.delete(NOVA, &path).await?;
            }
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Deletes what was made for one machine alone beside its server: ports that hold no address, volumes, its config.
    async fn delete_parts(&self, cluster: &ClusterId, name: &MachineName) -> Result<bool, Failure> {
        let mut changed = self.delete_content(cluster, Some(name)).await?;
        let names: Vec<_> = (0..NICS).map(|index| wire::port_of(name, index)).collect();
        for port in self.ports_named(cluster, &names).await? {
            changed |= self.delete_port(&port.id).await?;
        }
        // Nova deletes them with the server, unless there never was one.
        changed |= self.delete_volumes(cluster, Some(name), &[]).await?;
        Ok(changed)
    }

    /// A machine's image, which must be whole.
    async fn bootable(&self, spec: &MachineSpec) -> Result<Value, Failure> {
        let id = &spec.image.0;
        let image = self
            .session
            .find(GLANCE, &format!("/images/{}", wire::escape(id)))
            .await?;
        let image = image.ok_or_else(|| Failure::new(BackendErrorKind::NotFound, format!("there is no image {id}")))?;
        super::images::check_active(&image)?;
        Ok(image)
    }

    /// All flavors that this project may use.
    pub(super) async fn flavors(&self) -> Result<&[Flavor], Failure> {
        let read = async {
            let flavors = self.session.list(NOVA, "/flavors/detail", "flavors").await?;
            Ok::<_, Failure>(flavors.iter().map(Flavor::read).collect::<Vec<_>>())
        };
        Ok(self.flavors.get_or_try_init(|| read).await?)
    }

    async fn flavor_for(&self, spec: &MachineSpec, has_volumes: bool) -> Result<Flavor, Failure> {
        let (cpus, memory_mib, disk_gib) = (spec.cpus, spec.memory_mib, spec.disk_gib);
        let wanted = Wanted::of(
            cpus,
            memory_mib,
            disk_gib,
            &spec.extra_disks_gib,
            self.config.boot,
            has_volumes,
        );
        self.choose_flavor(spec.role, &wanted).await
    }

    /// The flavor that the settings name for a role, else the smallest that is large enough.
    pub(super) async fn choose_flavor(&self, role: Role, wanted: &Wanted) -> Result<Flavor, Failure> {
        let flavors = self.flavors().await?;
        let chosen = match self.config.flavors.of(role) {
            Some(name) => wanted.named(name, flavors),
            None => wanted.choose(flavors),
        };
        chosen.cloned().map_err(|words| {
            let names: Vec<_> = flavors.iter().map(|flavor| flavor.name.as_str()).collect();
            let mut hint = format!("there are {}; os_{role}_flavor names one", super::ports::told(&names));
            if wanted.ephemeral_gib > 0 {
                hint += "; without block storage (Cinder) extra disks must be in the flavor";
            } else if self.config.boot == OsBoot::Image {
                hint += "; os_boot=volume takes the disk from block storage";
            }
            Failure::new(BackendErrorKind::Quota, words).hint(hint)
        })
    }

    /// What Nova hands to the machine, in base64; a bootstrap's config that is too large becomes one that fetches it.
    async fn user_data(&self, spec: &MachineSpec) -> Result<String, Failure> {
        let bytes = match &spec.payload {
            Payload::CloudInit { user_data, .. } => user_data.as_bytes(),
            Payload::Ignition(config) => config,
        };
        let fits = |bytes: &[u8]| Carrier::USER_DATA.room().is_none_or(|room| bytes.len() <= room);
        if fits(bytes) {
            return Ok(STANDARD.encode(bytes));
        }
        let too_large = |bytes: usize| {
            let room = Carrier::USER_DATA.room().unwrap_or_default();
            let words = format!("{} has {bytes} bytes of user_data, and Nova takes {room}", spec.name);
            Failure::new(BackendErrorKind::TooLarge, words)
        };
        if spec.role != Role::Bootstrap || !matches!(spec.payload, Payload::Ignition(_)) {
            return Err(too_large(bytes.len()));
        }
        let stub = self.put_content(spec, bytes).await?;
        match fits(&stub) {
            true => Ok(STANDARD.encode(stub)),
            false => Err(too_large(stub.len())),
        }
    }

    /// Keeps masters, and workers, on different hosts as far as the settings want it.
    async fn server_group(&self, spec: &MachineSpec) -> Result<Option<String>, Failure> {
        let policy = match self.config.affinity {
            Affinity::Soft => "soft-anti-affinity",
            Affinity::Hard => "anti-affinity",
            Affinity::Off => return Ok(None),
        };
        let most = self.absolute_limits().await?["maxServerGroupMembers"]
            .as_i64()
            .unwrap_or(MEMBERS);
        let members = usize::try_from(most).unwrap_or(usize::MAX);
        let Some(name) = wire::group_name(spec, members) else {
            return Ok(None);
        };
        let _alone = self.groups.lock().await;
        let there = self.server_groups(&spec.cluster).await?;
        if let Some(group) = there.iter().find(|group| group["name"] == name.as_str()) {
            return Ok(Some(text(group, "id").to_owned()));
        }
        let body = json!({"server_group": {"name": name, "policy": policy}});
        let made = self.session.post(NOVA, "/os-server-groups", &body).await?;
        Ok(Some(text(&made["server_group"], "id").to_owned()))
    }

    pub(super) async fn server_groups(&self, cluster: &ClusterId) -> Result<Vec<Value>, Failure> {
        let mut groups = self.session.list(NOVA, "/os-server-groups", "server_groups").await?;
        groups.retain(|group| wire::group_of(text(group, "name")).as_ref() == Some(cluster));
        Ok(groups)
    }

    /// Deletes server groups that no server is in.
    pub(super) async fn leave_server_groups(&self, cluster: &ClusterId) -> Result<(), Failure> {
        for group in self.server_groups(cluster).await? {
            if group["members"].as_array().is_none_or(Vec::is_empty) {
                let path = format!("/os-server-groups/{}", text(&group, "id"));
                self.session.delete(NOVA, &path).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn absolute_limits(&self) -> Result<&Value, Failure> {
        let read = async {
            let mut answer = self.session.get(NOVA, "/limits").await?;
            Ok::<_, Failure>(answer["limits"]["absolute"].take())
        };
        self.limits.get_or_try_init(|| read).await
    }

    pub(super) async fn act(&self, server: &Value, action: &Value) -> Result<Value, Failure> {
        let path = format!("/servers/{}/action", text(server, "id"));
        self.session.post(NOVA, &path, action).await
    }

    pub(super) async fn there(&self, cluster: &ClusterId, name: &MachineName) -> Result<Value, Failure> {
        let server = self.server_of(cluster, name).await?;
        server.ok_or_else(|| Failure::new(BackendErrorKind::NotFound, format!("there is no server {name}")))
    }

    pub(super) async fn start(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, Failure> {
        let server = self.there(cluster, name).await?;
        if wire::power(&server).is_some_and(|power| power != Power::Off) {
            return Ok(Action::Unchanged(()));
        }
        self.act(&server, &json!({"os-start": null})).await?;
        Ok(Action::Done(()))
    }

    /// Nova knows one way: it asks the guest, and takes its power when that does not go by itself within a minute.
    ///
    /// Nova does not stop a server that is being built, so that is waited for; `Stop::Force` waits for the end, too.
    pub(super) async fn stop(&self, cluster: &ClusterId, name: &MachineName, how: Stop) -> Result<Action<()>, Failure> {
        let server = self.there(cluster, name).await?;
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

    /// Looks at a server until it is no longer so.
    async fn wait_while(&self, mut server: Value, is_so: impl Fn(&Power) -> bool) -> Result<Value, Failure> {
        let begun = Instant::now();
        while wire::power(&server).is_some_and(|power| is_so(&power)) {
            if begun.elapsed() > GOING {
                let words = format!("server {} is still {}", text(&server, "name"), text(&server, "status"));
                return Err(Failure::new(BackendErrorKind::Timeout, words));
            }
            sleep(PAUSE).await;
            let path = format!("/servers/{}", text(&server, "id"));
            server = self.session.get(NOVA, &path).await?["server"].take();
        }
        Ok(server)
    }

    pub(super) async fn console(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<String>, Failure> {
        let server = self.there(cluster, name).await?;
        match self
            .act(&server, &json!({"os-getConsoleOutput": {"length": TAIL}}))
            .await
        {
            Ok(answer) => Ok(answer["output"]
                .as_str()
                .filter(|text| !text.is_empty())
                .map(str::to_owned)),
            // A server without a host has no console yet, and some hypervisors have none at all.
            Err(failure) if matches!(failure.code, Some(404 | 409 | 501)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Names that strangers have among those that this cluster is going to use.
    pub(super) async fn name_conflicts(
        &self,
        cluster: Option<&ClusterId>,
        names: &[&MachineName],
    ) -> Result<Vec<String>, Failure> {
        let servers = self.session.list(NOVA, "/servers/detail", "servers").await?;
        let is_stranger = |server: &&Value| {
            let named = names.iter().any(|name| server["name"] == name.as_str());
            named && !is_gone(server) && (cluster.is_none() || wire::cluster_of(server).as_ref() != cluster)
        };
        Ok(servers
            .iter()
            .filter(is_stranger)
            .map(|server| text(server, "name").to_owned())
            .collect())
    }
}

fn is_gone(server: &Value) -> bool {
    matches!(text(server, "status"), "DELETED" | "SOFT_DELETED")
}

/// A machine that was just asked for.
fn new(spec: &MachineSpec) -> Machine {
    let nic = |nic: &crate::backend::Nic| SeenNic {
        network: nic.network.clone(),
        mac: nic.mac,
        addresses: Vec::new(),
    };
    Machine {
        name: spec.name.clone(),
        node: spec.node.clone(),
        role: spec.role,
        pass: spec.pass,
        fingerprint: spec.fingerprint(),
        power: Power::Building,
        nics: spec.nics.iter().map(nic).collect(),
    }
}
