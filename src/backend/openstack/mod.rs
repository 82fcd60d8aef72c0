//! OpenStack: Keystone, Glance, Neutron and Nova, for a plain member of a project.
//!
//! A port reserves the MAC and the address of each node and VIP, even without a server. So pass one needs no machines.
//! The tag of a cluster is in the metadata and tags of servers, in the metadata of volumes, in the tags of images, and in
//! the description or name of other objects.

mod auth;
mod balancers;
mod check_balancers;
mod choices;
mod cloud;
mod content;
mod flavors;
mod floating_ips;
mod groups;
mod images;
mod listing;
mod live;
mod network;
mod networks;
mod ports;
mod preflight;
mod security_groups;
mod servers;
mod session;
mod transport;
mod volumes;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::SystemTime;

use async_trait::async_trait;
use serde_json::Value;

use self::auth::Service::Network as NETWORK;
pub use self::choices::clouds;
pub use self::cloud::OpenStack;
use self::cloud::turn;
use self::wire::{Flavor, text};
use crate::backend::{
    Action, AddressReservation, Backend, BackendError, BalancedVip, Capabilities, Description, Finding, ImageHandle,
    ImageRequest, LoadBalancer, Machine, MachineSpec, NetworkFacts, Owned, PlatformChoices, Requirements,
    ReservationState, Reserved, Stop,
};
use crate::cluster::{ClusterId, ExternalVips, MachineName, Vip};

/// How often `delete_remaining` checks for objects that a pending request may still create.
const DELETE_ROUNDS: u32 = 5;

impl OpenStack {
    async fn owned(&self, cluster: &ClusterId) -> Result<BTreeSet<Owned>, BackendError> {
        let mut all = BTreeSet::new();
        let mut add = |kind: &str, name: &str| {
            all.insert(Owned {
                kind: kind.to_owned(),
                name: name.to_owned(),
            });
        };
        let (servers, ports, floating, groups, server_groups, images, volumes, objects, balancers) = futures::try_join!(
            self.servers_of(cluster),
            self.ports_of(cluster),
            self.floating_ips_of(cluster),
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
    async fn clusters(&self) -> Result<BTreeSet<ClusterId>, BackendError> {
        let (ports, floating, groups, servers, server_groups, images, volumes, containers, balancers) = futures::try_join!(
            self.ports(&[]),
            self.floating_ips(&[]),
            self.session
                .list_own_where(NETWORK, "/security-groups", &[], "security_groups"),
            self.servers_of_any(),
            self.all_server_groups(),
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
    async fn delete_objects(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        self.delete_content(cluster, None).await?;
        let servers = self.servers_of(cluster).await?;
        self.delete_floating_ips(cluster, None).await?;
        self.delete_balancers(cluster).await?;
        // A server without its port has no network. Servers are deleted by `delete_machine`.
        let ports = self.ports_of(cluster).await?;
        for port in self.unused_ports(cluster, ports).await? {
            self.delete_port(&port.id).await?;
        }
        // The volumes of a server are deleted with it.
        self.delete_volumes(cluster, None, &servers).await?;
        if servers.is_empty() {
            let _exclusive = self.in_use.write().await;
            self.delete_security_group(cluster).await?;
            self.refuse_users_of_group(cluster).await?;
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
    let port = ports::Port::read(&value);
    port.allowed();
    if let Some(cluster) = ClusterId::read(text) {
        ports::pairs_of(crate::cluster::Role::Worker, &cluster, &[port], None);
    }
    security_groups::same_rule(&value, &value);
    wire::too_small(&Flavor::read(&value), 1, &value);
    wire::power(&value);
    wire::cluster_of_tag(self::text(&value, "description"));
    wire::group_of(self::text(&value, "name"));
    let machine = wire::machine(&value);
    wire::without_payload(value);
    machine
}

/// What this program reads from clouds.yaml and `OS_*` with these variables in this folder, for a comparison with
/// openstacksdk. Contains the secret.
#[doc(hidden)]
pub fn read_cloud(
    variables: BTreeMap<String, String>,
    folder: &Path,
    cloud: Option<&str>,
    region: Option<&str>,
) -> Result<Value, String> {
    let access = auth::CloudAccess::read(cloud, region, &auth::CloudSources::of(variables, folder));
    access.map(|access| access.shown()).map_err(|error| error.message)
}

#[async_trait(?Send)]
impl Backend for OpenStack {
    fn capabilities(&self) -> Capabilities {
        (&self.config).into()
    }

    async fn preflight(&self, requirements: &Requirements) -> Result<Vec<Finding>, BackendError> {
        self.check(requirements).await
    }

    async fn network_facts(&self, network: &str) -> Result<NetworkFacts, BackendError> {
        self.facts_of_network(network).await
    }

    async fn ensure_image(&self, cluster: &ClusterId, image: &ImageRequest) -> Result<ImageHandle, BackendError> {
        self.image(cluster, image).await
    }

    async fn create_machine(&self, spec: &MachineSpec) -> Result<Action<Machine>, BackendError> {
        let _turn = turn(&self.busy, &spec.name).await;
        self.create(spec).await
    }

    async fn list_machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError> {
        self.machines(cluster).await
    }

    async fn delete_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        let _turn = turn(&self.busy, name).await;
        self.delete(cluster, name).await
    }

    async fn start_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        self.start(cluster, name).await
    }

    async fn stop_machine(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError> {
        self.stop(cluster, name, how).await
    }

    async fn reserve_address(&self, reservation: &AddressReservation) -> Result<ReservationState, BackendError> {
        self.reserve(reservation).await
    }

    async fn list_reservations(&self, cluster: &ClusterId) -> Result<Vec<Reserved>, BackendError> {
        self.reservations(cluster).await
    }

    async fn release_address(&self, reservation: &AddressReservation) -> Result<Action<()>, BackendError> {
        self.release(reservation).await
    }

    async fn delete_remaining(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        // Ends after two queries without objects: a request whose response was lost may be performed after the first.
        let mut empty = 0;
        for _ in 0..DELETE_ROUNDS {
            let remaining = self.owned(cluster).await?;
            if remaining.iter().all(|owned| owned.kind == "server") {
                empty += 1;
            } else {
                empty = 0;
                self.delete_objects(cluster).await?;
            }
            if empty == 2 {
                break;
            }
        }
        Ok(())
    }

    async fn delete_fetched_configs(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        self.delete_content(cluster, None).await.map(drop)
    }

    async fn list_owned(&self, cluster: &ClusterId) -> Result<Vec<Owned>, BackendError> {
        Ok(self.owned(cluster).await?.into_iter().collect())
    }

    async fn list_clusters(&self) -> Result<BTreeSet<ClusterId>, BackendError> {
        self.clusters().await
    }

    async fn console_tail(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<String>, BackendError> {
        self.console(cluster, name).await
    }

    async fn ensure_load_balancer(&self, balancer: &LoadBalancer) -> Result<Option<BalancedVip>, BackendError> {
        self.ensure_balancer(balancer).await.map(Some)
    }

    async fn external_vips(
        &self,
        cluster: &ClusterId,
        vips: &[Vip],
        create: bool,
    ) -> Result<ExternalVips, BackendError> {
        self.floating_ips_of_vips(cluster, vips, create).await
    }

    async fn choices(&self) -> Result<PlatformChoices, BackendError> {
        self.all_choices().await
    }

    async fn describe_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Description, BackendError> {
        self.describe(cluster, name).await
    }

    async fn server_time(&self) -> Result<Option<SystemTime>, BackendError> {
        self.server_date().await
    }
}
