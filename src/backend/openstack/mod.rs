//! OpenStack: Keystone, Glance, Neutron and Nova, for a plain member of a project.
//!
//! A port reserves the MAC and the address of each node and VIP, also without a server. So pass one needs no machines.
//! The tag of a cluster is in the metadata and tags of servers, in the metadata of volumes, in the tags of images, and in
//! the description or name of other objects.

mod answers;
mod auth;
mod balancers;
mod check_balancers;
mod choices;
mod cloud;
mod content;
mod describe;
mod flavors;
mod groups;
mod images;
mod listing;
mod live;
mod network;
mod networks;
mod ports;
mod preflight;
mod servers;
mod session;
mod transport;
mod volumes;
mod wire;

use std::collections::BTreeSet;
use std::time::SystemTime;

use async_trait::async_trait;
use serde_json::Value;

use self::auth::Service::{Compute as COMPUTE, Network as NETWORK};
pub use self::choices::clouds;
pub use self::cloud::OpenStack;
use self::cloud::turn;
use self::wire::{Flavor, tag_text, text};
use crate::backend::failure::{During, Failure};
use crate::backend::{
    Action, AddressReservation, Backend, BackendError, BalancedVip, Capabilities, Description, Diagnostics, Discovery,
    Finding, ImageHandle, ImageRequest, LoadBalancer, LoadBalancers, Machine, MachineSpec, NetworkFacts, Owned,
    PlatformChoices, Requirements, ReservationState, Reserved, SerialConsole, Stop,
};
use crate::cluster::{AddressAssignment, ClusterId, MachineName, Role};

/// How often `delete_remaining` checks for objects that a pending request may have created meanwhile.
const DELETE_ROUNDS: u32 = 5;

impl OpenStack {
    async fn owned(&self, cluster: &ClusterId) -> Result<BTreeSet<Owned>, Failure> {
        let mut all = BTreeSet::new();
        let mut add = |kind: &str, name: &str| {
            all.insert(Owned {
                kind: kind.to_owned(),
                name: name.to_owned(),
            });
        };
        let tag = tag_text(cluster);
        let by_tag = [("description", tag.as_str())];
        let (servers, ports, floating, groups, server_groups, images, volumes, objects, balancers) = futures::try_join!(
            self.servers_of(cluster),
            self.ports_of(cluster),
            self.floating_ips(&by_tag),
            self.security_groups(cluster),
            self.server_groups(cluster),
            self.images_of(cluster),
            self.volumes_of(cluster),
            self.objects_of(cluster),
            self.balancers_of(cluster),
        )?;
        objects.iter().for_each(|name| add("object", name));
        ports.iter().for_each(|port| add("port", &port.name));
        for (kind, key, all) in [
            ("server", "name", servers),
            ("floating ip", "floating_ip_address", floating),
            ("security group", "name", groups),
            ("server group", "name", server_groups),
            ("image", "name", images),
            ("volume", "name", volumes),
            ("load balancer", "name", balancers),
        ] {
            all.iter().for_each(|one| add(kind, text(one, key)));
        }
        Ok(all)
    }

    /// The clusters that have objects in the project.
    async fn clusters(&self) -> Result<BTreeSet<ClusterId>, Failure> {
        let (ports, floating, groups, servers, server_groups, images, volumes, containers, balancers) = futures::try_join!(
            self.ports(&[]),
            self.floating_ips(&[]),
            self.session.list(NETWORK, "/security-groups", "security_groups"),
            self.servers_of_any(),
            self.session.list(COMPUTE, "/os-server-groups", "server_groups"),
            self.images_of_any(),
            self.all_volumes(),
            self.containers(),
            self.balancers_of_any(),
        )?;
        let described = floating.iter().chain(&groups).map(|object| text(object, "description"));
        let described = described.chain(ports.iter().map(|port| port.description.as_str()));
        let named = server_groups.iter().map(|group| text(group, "name"));
        let by_text = described
            .filter_map(wire::cluster_of_tag)
            .chain(named.filter_map(wire::group_of));
        let by_metadata = servers.iter().chain(&volumes).filter_map(wire::cluster_of);
        let tagged = images.iter().chain(&balancers);
        let tags = tagged.flat_map(|object| object["tags"].as_array()).flatten();
        let tagged = tags.filter_map(|tag| ClusterId::read(tag.as_str()?));
        Ok(by_text.chain(by_metadata).chain(tagged).chain(containers).collect())
    }

    /// Deletes all objects except machines, in the order of their dependencies.
    async fn delete_objects(&self, cluster: &ClusterId) -> Result<(), Failure> {
        self.delete_content(cluster, None).await?;
        let servers = self.servers_of(cluster).await?;
        self.delete_floating_ips(cluster, None).await?;
        self.delete_balancers(cluster).await?;
        // A server without its port has no network. Servers are deleted by `delete_machine`.
        let mut ports = self.ports_of(cluster).await?;
        ports.retain(|port| !servers.iter().any(|server| server["id"] == port.device.as_str()));
        self.delete_kept_servers(cluster, &ports).await?;
        for port in ports {
            self.delete_port(&port.id).await?;
        }
        // The volumes of a server are deleted with it.
        self.delete_volumes(cluster, None, &servers).await?;
        if servers.is_empty() {
            let _exclusive = self.in_use.write().await;
            self.delete_security_group(cluster).await?;
            self.delete_server_groups(cluster).await?;
        }
        self.release_images(cluster).await
    }
}

/// Parses a text like the responses of the services, for `fuzz/`.
#[doc(hidden)]
pub fn read_answer(text: &str) -> Option<Machine> {
    wire::fault(text.as_bytes());
    let value: Value = serde_json::from_str(text).ok()?;
    let _ = wire::next_marker(&value, "servers");
    wire::cluster_of(&value);
    let port = wire::Port::read(&value);
    port.allowed();
    wire::pairs_of(crate::cluster::Role::Worker, &ClusterId::from_tag(text), &[port], None);
    wire::same_rule(&value, &value);
    wire::too_small(&Flavor::read(&value), 1, &value);
    wire::power(&value);
    wire::cluster_of_tag(self::text(&value, "description"));
    wire::group_of(self::text(&value, "name"));
    let machine = wire::machine(&value);
    wire::without_payload(value);
    machine
}

#[async_trait(?Send)]
impl Backend for OpenStack {
    fn capabilities(&self, _: Role) -> Capabilities {
        (&self.config).into()
    }

    async fn preflight(&self, requirements: &Requirements) -> Result<Vec<Finding>, BackendError> {
        let operation = || format!("check {}", self.session.name());
        self.check(requirements).await.during(operation())
    }

    async fn network_facts(&self, network: &str) -> Result<NetworkFacts, BackendError> {
        let facts = self.network_facts(network).await;
        facts.during(format!("query network {network}"))
    }

    async fn ensure_image(
        &self,
        _: Role,
        cluster: &ClusterId,
        image: &ImageRequest,
    ) -> Result<ImageHandle, BackendError> {
        let operation = || match image {
            ImageRequest::Platform(url) if url.contains("://") => format!("import image {url}"),
            ImageRequest::Platform(name) => format!("find image {name}"),
            ImageRequest::File { path, .. } => format!("upload image {}", path.display()),
        };
        self.image(cluster, image).await.during(operation())
    }

    async fn create_machine(&self, spec: &MachineSpec) -> Result<Action<Machine>, BackendError> {
        let _turn = turn(&self.busy, &spec.name).await;
        let created = self.create(spec).await;
        created.during(format!("create machine {}", spec.name))
    }

    async fn list_machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError> {
        let machines = self.machines(cluster).await;
        machines.during(format!("list the machines of cluster {cluster}"))
    }

    async fn delete_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        let _turn = turn(&self.busy, name).await;
        let deleted = self.delete(cluster, name).await;
        deleted.during(format!("delete machine {name}"))
    }

    async fn start_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        let started = self.start(cluster, name).await;
        started.during(format!("start machine {name}"))
    }

    async fn stop_machine(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError> {
        let stopped = self.stop(cluster, name, how).await;
        stopped.during(format!("stop machine {name}"))
    }

    async fn reserve_address(&self, reservation: &AddressReservation) -> Result<ReservationState, BackendError> {
        let AddressAssignment { name, ip, .. } = &reservation.assignment;
        let result = self.reserve(reservation).await;
        result.during(format!(
            "reserve address {ip} for {name} on network {}",
            reservation.network
        ))
    }

    async fn list_reservations(&self, cluster: &ClusterId) -> Result<Vec<Reserved>, BackendError> {
        let result = self.reservations(cluster).await;
        result.during(format!("list the reserved addresses of cluster {cluster}"))
    }

    async fn release_address(&self, reservation: &AddressReservation) -> Result<Action<()>, BackendError> {
        let AddressAssignment { name, ip, .. } = &reservation.assignment;
        let released = self.release(reservation).await;
        released.during(format!("release address {ip} of {name}"))
    }

    async fn delete_remaining(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        let failed = |failure: Failure| failure.during(format!("delete what remains of cluster {cluster}"));
        // Empty twice: a request without a response may be performed after the first query.
        let mut empty = 0;
        for _ in 0..DELETE_ROUNDS {
            let remaining = self.owned(cluster).await.map_err(failed)?;
            if remaining.iter().all(|owned| owned.kind == "server") {
                empty += 1;
            } else {
                empty = 0;
                self.delete_objects(cluster).await.map_err(failed)?;
            }
            if empty == 2 {
                break;
            }
        }
        Ok(())
    }

    async fn delete_fetched_configs(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        let deleted = self.delete_content(cluster, None).await;
        deleted
            .map(drop)
            .during(format!("delete the stored configs of cluster {cluster}"))
    }

    async fn list_owned(&self, cluster: &ClusterId) -> Result<Vec<Owned>, BackendError> {
        let owned = self.owned(cluster).await;
        let owned = owned.during(format!("list the objects of cluster {cluster}"))?;
        Ok(owned.into_iter().collect())
    }

    async fn list_clusters(&self) -> Result<BTreeSet<ClusterId>, BackendError> {
        let found = self.clusters().await;
        found.during(format!("list the clusters of {}", self.session.name()))
    }

    fn serial_console(&self, _: Role) -> Option<&dyn SerialConsole> {
        Some(self)
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        Some(self)
    }

    fn discovery(&self) -> Option<&dyn Discovery> {
        Some(self)
    }

    fn diagnostics(&self, _: Role) -> Option<&dyn Diagnostics> {
        Some(self)
    }
}

#[async_trait(?Send)]
impl SerialConsole for OpenStack {
    async fn tail(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<String>, BackendError> {
        let console = self.console(cluster, name).await;
        console.during(format!("read the console of machine {name}"))
    }
}

#[async_trait(?Send)]
impl LoadBalancers for OpenStack {
    async fn ensure(&self, balancer: &LoadBalancer) -> Result<Option<BalancedVip>, BackendError> {
        let LoadBalancer { cluster, vip, .. } = balancer;
        let balanced = self.ensure_balancer(balancer).await;
        balanced.map(Some).during(format!(
            "create or change the load balancer of {vip} of cluster {cluster}"
        ))
    }
}

#[async_trait(?Send)]
impl Discovery for OpenStack {
    async fn choices(&self) -> Result<PlatformChoices, BackendError> {
        let operation = format!("check {}", self.session.name());
        self.all_choices().await.during(operation)
    }
}

#[async_trait(?Send)]
impl Diagnostics for OpenStack {
    async fn server_time(&self) -> Result<Option<SystemTime>, BackendError> {
        let operation = format!("query the time of {}", self.session.name());
        self.server_date().await.during(operation)
    }

    async fn describe_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Description, BackendError> {
        let described = self.describe(cluster, name).await;
        described.during(format!("describe machine {name}"))
    }
}
