//! The platforms of one cluster: one for all machines, or another for its workers, which may be another host of the same
//! kind.

#![deny(clippy::missing_trait_methods)]

use std::collections::BTreeSet;

use async_trait::async_trait;

use crate::backend::{
    Action, AddressReservation, Backend, BackendError, BackendErrorKind, Capabilities, Diagnostics, Discovery, Finding,
    ImageHandle, ImageRequest, LoadBalancers, Machine, MachineSpec, NetworkFacts, Owned, Requirements,
    ReservationState, Reserved, SerialConsole, Snapshots, Stop,
};
use crate::cluster::{ClusterId, MachineName, NodeName, Role, WorkersOn, place_of};

/// A cluster's platforms as one backend. Where these differ, `place_of` says which machine is
/// on which platform.
///
/// If the workers are on another platform, all machines still share one network. Its facts come from both platforms.
pub struct Platforms {
    all: Box<dyn Backend>,
    workers: Option<Workers>,
}

struct Workers {
    platform: Box<dyn Backend>,
    on: WorkersOn,
}

impl Platforms {
    /// All machines on one platform.
    pub fn on(all: Box<dyn Backend>) -> Self {
        Self { all, workers: None }
    }

    /// Workers on another platform.
    pub fn with_workers_on(self, platform: Box<dyn Backend>, on: WorkersOn) -> Self {
        Self {
            workers: Some(Workers { platform, on }),
            ..self
        }
    }

    fn platform_at(&self, place: Role) -> &dyn Backend {
        match (&self.workers, place) {
            (Some(workers), Role::Worker) => &*workers.platform,
            _ => &*self.all,
        }
    }

    /// The platform of a machine of either pass.
    fn platform_of_machine(&self, name: &MachineName) -> &dyn Backend {
        self.platform_at(self.place(name))
    }

    fn place_of(&self, node: &NodeName) -> Role {
        place_of(
            node.role(),
            node.pool(),
            self.workers.as_ref().map(|workers| &workers.on),
        )
    }

    /// Where an address of a worker is reserved first: its own platform, if that can reserve addresses.
    fn workers_reservation(&self, reservation: &AddressReservation) -> Option<(&dyn Backend, AddressReservation)> {
        let workers = self.workers.as_ref()?;
        let can = self.place_of(&reservation.assignment.name) == Role::Worker
            && workers.platform.capabilities(Role::Worker).reserves_addresses;
        can.then(|| {
            let network = workers.on.network.clone();
            let there = AddressReservation {
                network,
                ..reservation.clone()
            };
            (&*workers.platform, there)
        })
    }

    fn platforms(&self) -> impl Iterator<Item = &dyn Backend> {
        let workers = self.workers.as_ref().map(|workers| &*workers.platform);
        std::iter::once(&*self.all).chain(workers)
    }
}

#[async_trait(?Send)]
impl Backend for Platforms {
    fn place(&self, machine: &MachineName) -> Role {
        let on = self.workers.as_ref().map(|workers| &workers.on);
        place_of(machine.role(), machine.pool(), on)
    }

    fn capabilities(&self, role: Role) -> Capabilities {
        self.platform_at(role).capabilities(role)
    }

    async fn preflight(&self, needs: &Requirements) -> Result<Vec<Finding>, BackendError> {
        let mut findings = self.all.preflight(needs).await?;
        if let (Some(workers), Some(needs)) = (&self.workers, &needs.workers) {
            findings.extend(workers.platform.preflight(needs).await?);
        }
        Ok(findings)
    }

    async fn network_facts(&self, network: &str) -> Result<NetworkFacts, BackendError> {
        let mut facts = self.all.network_facts(network).await?;
        let Some(workers) = self.workers.as_ref() else {
            return Ok(facts);
        };
        let there = workers.platform.network_facts(&workers.on.network).await?;
        let refused = |reason: String, hint: &str| {
            let operation = format!(
                "compare network {network} with the workers' network {}",
                workers.on.network
            );
            Err(BackendError::new(BackendErrorKind::Rejected, operation)
                .because(reason)
                .hint(hint))
        };
        if let (Some(here), Some(cidr)) = (facts.cidr, there.cidr)
            && here != cidr
        {
            return refused(
                format!("{network} has subnet {here}, {} has subnet {cidr}", workers.on.network),
                "masters and workers must share one network: set network and worker_network to its names on the two platforms",
            );
        }
        let are_libvirt = [&facts, &there]
            .iter()
            .all(|facts| facts.identity.starts_with("libvirt:"));
        if are_libvirt && facts.identity == there.identity {
            return refused(
                "both are the same network of the same host".to_owned(),
                "remove worker_libvirt_uri, or set it to another host; two hosts must have different host names",
            );
        }
        // A network of libvirt's is a bridge on its host, so two hosts that both serve DHCP have two networks.
        if are_libvirt && !facts.dhcp_ranges.is_empty() && !there.dhcp_ranges.is_empty() {
            return refused(
                "each host has a DHCP server of its own, so these are two networks".to_owned(),
                "connect both hosts to one network, and set network and worker_network to it, e.g. bridge:br0",
            );
        }
        facts.mtu = [facts.mtu, there.mtu].into_iter().flatten().min();
        // Each platform may know facts that the other does not.
        facts.cidr = facts.cidr.or(there.cidr);
        facts.gateway = facts.gateway.or(there.gateway);
        facts.dhcp_ranges.extend(there.dhcp_ranges);
        for (ip, mac) in there.taken {
            facts.taken.entry(ip).or_insert(mac);
        }
        if facts.resolvers.is_empty() {
            facts.resolvers = there.resolvers;
        }
        Ok(facts)
    }

    async fn ensure_image(
        &self,
        role: Role,
        cluster: &ClusterId,
        image: &ImageRequest,
    ) -> Result<ImageHandle, BackendError> {
        self.platform_at(role).ensure_image(role, cluster, image).await
    }

    async fn create_machine(&self, spec: &MachineSpec) -> Result<Action<Machine>, BackendError> {
        self.platform_at(self.place_of(&spec.node)).create_machine(spec).await
    }

    async fn list_machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError> {
        let all = self.platforms().map(|platform| platform.list_machines(cluster));
        Ok(futures::future::try_join_all(all).await?.concat())
    }

    async fn delete_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        self.platform_of_machine(name).delete_machine(cluster, name).await
    }

    async fn start_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        self.platform_of_machine(name).start_machine(cluster, name).await
    }

    async fn stop_machine(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError> {
        self.platform_of_machine(name).stop_machine(cluster, name, how).await
    }

    /// Both platforms are on one network: what the workers' cannot reserve there, the other one may.
    async fn reserve_address(&self, reservation: &AddressReservation) -> Result<ReservationState, BackendError> {
        if let Some((platform, there)) = self.workers_reservation(reservation) {
            let state = platform.reserve_address(&there).await?;
            if state != ReservationState::Unreserved {
                return Ok(state);
            }
        }
        self.all.reserve_address(reservation).await
    }

    async fn list_reservations(&self, cluster: &ClusterId) -> Result<Vec<Reserved>, BackendError> {
        let all = self.platforms().map(|platform| platform.list_reservations(cluster));
        Ok(futures::future::try_join_all(all).await?.concat())
    }

    async fn release_address(&self, reservation: &AddressReservation) -> Result<Action<()>, BackendError> {
        if let Some((platform, there)) = self.workers_reservation(reservation) {
            let released = platform.release_address(&there).await?;
            if matches!(released, Action::Done(())) {
                return Ok(released);
            }
        }
        self.all.release_address(reservation).await
    }

    async fn delete_remaining(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        for platform in self.platforms() {
            platform.delete_remaining(cluster).await?;
        }
        Ok(())
    }

    async fn delete_fetched_configs(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        for platform in self.platforms() {
            platform.delete_fetched_configs(cluster).await?;
        }
        Ok(())
    }

    async fn list_owned(&self, cluster: &ClusterId) -> Result<Vec<Owned>, BackendError> {
        let all = self.platforms().map(|platform| platform.list_owned(cluster));
        Ok(futures::future::try_join_all(all).await?.concat())
    }

    async fn list_clusters(&self) -> Result<BTreeSet<ClusterId>, BackendError> {
        let all = self.platforms().map(|platform| platform.list_clusters());
        Ok(futures::future::try_join_all(all)
            .await?
            .into_iter()
            .flatten()
            .collect())
    }

    fn serial_console(&self, role: Role) -> Option<&dyn SerialConsole> {
        self.platform_at(role).serial_console(role)
    }

    /// A network with load balancers is on one platform only.
    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        self.all.load_balancers()
    }

    fn discovery(&self) -> Option<&dyn Discovery> {
        self.all.discovery()
    }

    fn diagnostics(&self, role: Role) -> Option<&dyn Diagnostics> {
        self.platform_at(role).diagnostics(role)
    }

    fn snapshots(&self, role: Role) -> Option<&dyn Snapshots> {
        self.platform_at(role).snapshots(role)
    }
}
