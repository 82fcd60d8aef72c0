//! The platforms of one cluster: one for all machines, or another for its workers.

#![deny(clippy::missing_trait_methods)]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::SystemTime;

use crate::backend::kubevirt::Kubevirt;
#[cfg(feature = "libvirt")]
use crate::backend::libvirt::Libvirt;
use crate::backend::openstack::OpenStack;
use crate::backend::ovirt::Ovirt;
use crate::backend::sim::Sim;
use crate::backend::{
    Action, AddressReservation, Backend, BackendError, BackendErrorKind, BalancedVip, Capabilities, Console,
    Description, Finding, ImageHandle, ImageRequest, LoadBalancer, Machine, MachineSpec, NetworkFacts, Owned,
    PlatformChoices, Requirements, ReservationState, Stop,
};
use crate::cluster::{AddressAssignment, ClusterId, MachineName, NodeName, Role};

/// One of the platforms that this program knows.
pub enum Platform {
    #[cfg(feature = "libvirt")]
    Libvirt(Libvirt),
    Kubevirt(Box<Kubevirt>),
    OpenStack(Box<OpenStack>),
    Ovirt(Box<Ovirt>),
    Sim(Sim),
}

/// Calls `$body` with the backend of a `Platform`, bound to `$backend`.
macro_rules! on {
    ($platform:expr, $backend:ident => $body:expr) => {
        match $platform {
            #[cfg(feature = "libvirt")]
            Platform::Libvirt($backend) => $body,
            Platform::Kubevirt($backend) => $body,
            Platform::OpenStack($backend) => $body,
            Platform::Ovirt($backend) => $body,
            Platform::Sim($backend) => $body,
        }
    };
}

impl Backend for Platform {
    fn capabilities(&self) -> Capabilities {
        on!(self, backend => backend.capabilities())
    }

    fn capabilities_for(&self, role: Role) -> Capabilities {
        on!(self, backend => backend.capabilities_for(role))
    }

    async fn preflight(&self, needs: &Requirements) -> Result<Vec<Finding>, BackendError> {
        on!(self, backend => backend.preflight(needs).await)
    }

    async fn choices(&self) -> Result<PlatformChoices, BackendError> {
        on!(self, backend => backend.choices().await)
    }

    async fn server_time(&self) -> Result<Option<SystemTime>, BackendError> {
        on!(self, backend => backend.server_time().await)
    }

    async fn local_disk_dir(&self) -> Result<Option<PathBuf>, BackendError> {
        on!(self, backend => backend.local_disk_dir().await)
    }

    async fn look_at_network(&self, network: &str) -> Result<NetworkFacts, BackendError> {
        on!(self, backend => backend.look_at_network(network).await)
    }

    async fn ensure_image(&self, cluster: &ClusterId, image: &ImageRequest) -> Result<ImageHandle, BackendError> {
        on!(self, backend => backend.ensure_image(cluster, image).await)
    }

    async fn ensure_image_for(
        &self,
        role: Role,
        cluster: &ClusterId,
        image: &ImageRequest,
    ) -> Result<ImageHandle, BackendError> {
        on!(self, backend => backend.ensure_image_for(role, cluster, image).await)
    }

    async fn create_machine(&self, spec: &MachineSpec) -> Result<Action<Machine>, BackendError> {
        on!(self, backend => backend.create_machine(spec).await)
    }

    async fn list_machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError> {
        on!(self, backend => backend.list_machines(cluster).await)
    }

    async fn delete_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        on!(self, backend => backend.delete_machine(cluster, name).await)
    }

    async fn start_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        on!(self, backend => backend.start_machine(cluster, name).await)
    }

    async fn stop_machine(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError> {
        on!(self, backend => backend.stop_machine(cluster, name, how).await)
    }

    async fn reserve_address(&self, hold: &AddressReservation) -> Result<ReservationState, BackendError> {
        on!(self, backend => backend.reserve_address(hold).await)
    }

    async fn ensure_load_balancer(&self, balancer: &LoadBalancer) -> Result<Option<BalancedVip>, BackendError> {
        on!(self, backend => backend.ensure_load_balancer(balancer).await)
    }

    async fn list_reservations(&self, cluster: &ClusterId) -> Result<Vec<AddressAssignment>, BackendError> {
        on!(self, backend => backend.list_reservations(cluster).await)
    }

    async fn release_address(&self, hold: &AddressReservation) -> Result<Action<()>, BackendError> {
        on!(self, backend => backend.release_address(hold).await)
    }

    async fn delete_remaining(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        on!(self, backend => backend.delete_remaining(cluster).await)
    }

    async fn list_owned(&self, cluster: &ClusterId) -> Result<Vec<Owned>, BackendError> {
        on!(self, backend => backend.list_owned(cluster).await)
    }

    async fn list_clusters(&self) -> Result<BTreeSet<ClusterId>, BackendError> {
        on!(self, backend => backend.list_clusters().await)
    }

    async fn console_tail(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<String>, BackendError> {
        on!(self, backend => backend.console_tail(cluster, name).await)
    }

    async fn console(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<Console>, BackendError> {
        on!(self, backend => backend.console(cluster, name).await)
    }

    async fn describe_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Description, BackendError> {
        on!(self, backend => backend.describe_machine(cluster, name).await)
    }
}

/// A cluster's platforms behind one face: which machine is where is known here and nowhere else.
///
/// With workers elsewhere, all machines still share one network; its facts come from both sides.
pub struct Platforms {
    all: Platform,
    workers: Option<Workers>,
}

struct Workers {
    platform: Platform,
    /// The machine network's name there.
    network: String,
}

impl Platforms {
    /// Everything on one platform.
    pub fn on(all: Platform) -> Self {
        Self { all, workers: None }
    }

    /// Workers on a platform of their own, where the machine network has this name.
    pub fn with_workers_on(self, platform: Platform, network: String) -> Self {
        Self {
            workers: Some(Workers { platform, network }),
            ..self
        }
    }

    fn of(&self, role: Role) -> &Platform {
        match (&self.workers, role) {
            (Some(workers), Role::Worker) => &workers.platform,
            _ => &self.all,
        }
    }

    /// The platform of a machine of either pass: its name ends in its role and number.
    fn of_machine(&self, name: &MachineName) -> &Platform {
        let mut parts = name.as_str().rsplit('-');
        let is_number = parts.next().is_some_and(|last| last.parse::<usize>().is_ok());
        match is_number && parts.next() == Some(&Role::Worker.to_string()) {
            true => self.of(Role::Worker),
            false => self.of(Role::Master),
        }
    }

    /// Who holds an address: the machine's own platform, or where that cannot, the other one on the same network.
    fn holder(&self, hold: &AddressReservation) -> (&Platform, AddressReservation) {
        if let Some(workers) = &self.workers
            && is_workers(&hold.lease.name)
            && workers.platform.capabilities().holds_addresses
        {
            let network = workers.network.clone();
            return (
                &workers.platform,
                AddressReservation {
                    network,
                    ..hold.clone()
                },
            );
        }
        (&self.all, hold.clone())
    }

    fn platforms(&self) -> impl Iterator<Item = &Platform> {
        std::iter::once(&self.all).chain(self.workers.as_ref().map(|workers| &workers.platform))
    }
}

fn is_workers(node: &NodeName) -> bool {
    let role = node.as_str().split('-').next();
    role == Some(Role::Worker.to_string().as_str())
}

impl Backend for Platforms {
    /// Of both together: the slower pace, and what both can do.
    fn capabilities(&self) -> Capabilities {
        let all = self.all.capabilities();
        let Some(workers) = self.workers.as_ref().map(|workers| workers.platform.capabilities()) else {
            return all;
        };
        Capabilities {
            concurrency: all.concurrency.min(workers.concurrency),
            poll_interval: all.poll_interval.max(workers.poll_interval),
            guests_answer: all.guests_answer && workers.guests_answer,
            agent_reports: all.agent_reports || workers.agent_reports,
            ..all
        }
    }

    fn capabilities_for(&self, role: Role) -> Capabilities {
        self.of(role).capabilities_for(role)
    }

    async fn preflight(&self, needs: &Requirements) -> Result<Vec<Finding>, BackendError> {
        let mut findings = self.all.preflight(needs).await?;
        if let (Some(workers), Some(needs)) = (&self.workers, &needs.workers) {
            findings.extend(workers.platform.preflight(needs).await?);
        }
        Ok(findings)
    }

    async fn choices(&self) -> Result<PlatformChoices, BackendError> {
        self.all.choices().await
    }

    async fn server_time(&self) -> Result<Option<SystemTime>, BackendError> {
        self.all.server_time().await
    }

    async fn local_disk_dir(&self) -> Result<Option<PathBuf>, BackendError> {
        self.all.local_disk_dir().await
    }

    async fn look_at_network(&self, network: &str) -> Result<NetworkFacts, BackendError> {
        let mut facts = self.all.look_at_network(network).await?;
        let Some(workers) = self.workers.as_ref() else {
            return Ok(facts);
        };
        let there = workers.platform.look_at_network(&workers.network).await?;
        if let (Some(here), Some(cidr)) = (facts.cidr, there.cidr)
            && here != cidr
        {
            let operation = format!("find one network behind {network} and the workers' {}", workers.network);
            return Err(BackendError::new(BackendErrorKind::Rejected, operation)
                .because(format!("{network} is {here}, and {} is {cidr}", workers.network))
                .hint(
                    "masters and workers share one machine network; set network and worker_network to its two names",
                ));
        }
        // What one side knows of the network, the other may not.
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

    async fn ensure_image(&self, cluster: &ClusterId, image: &ImageRequest) -> Result<ImageHandle, BackendError> {
        self.all.ensure_image(cluster, image).await
    }

    async fn ensure_image_for(
        &self,
        role: Role,
        cluster: &ClusterId,
        image: &ImageRequest,
    ) -> Result<ImageHandle, BackendError> {
        self.of(role).ensure_image_for(role, cluster, image).await
    }

    async fn create_machine(&self, spec: &MachineSpec) -> Result<Action<Machine>, BackendError> {
        self.of(spec.role).create_machine(spec).await
    }

    async fn list_machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError> {
        let all = self.platforms().map(|platform| platform.list_machines(cluster));
        Ok(futures::future::try_join_all(all).await?.concat())
    }

    async fn delete_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        self.of_machine(name).delete_machine(cluster, name).await
    }

    async fn start_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        self.of_machine(name).start_machine(cluster, name).await
    }

    async fn stop_machine(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError> {
        self.of_machine(name).stop_machine(cluster, name, how).await
    }

    async fn reserve_address(&self, hold: &AddressReservation) -> Result<ReservationState, BackendError> {
        let (holder, hold) = self.holder(hold);
        holder.reserve_address(&hold).await
    }

    /// A network that has balancers of its own is on one platform.
    async fn ensure_load_balancer(&self, balancer: &LoadBalancer) -> Result<Option<BalancedVip>, BackendError> {
        self.all.ensure_load_balancer(balancer).await
    }

    async fn list_reservations(&self, cluster: &ClusterId) -> Result<Vec<AddressAssignment>, BackendError> {
        let all = self.platforms().map(|platform| platform.list_reservations(cluster));
        Ok(futures::future::try_join_all(all).await?.concat())
    }

    async fn release_address(&self, hold: &AddressReservation) -> Result<Action<()>, BackendError> {
        let (holder, hold) = self.holder(hold);
        holder.release_address(&hold).await
    }

    async fn delete_remaining(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        for platform in self.platforms() {
            platform.delete_remaining(cluster).await?;
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

    async fn console_tail(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<String>, BackendError> {
        self.of_machine(name).console_tail(cluster, name).await
    }

    async fn console(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<Console>, BackendError> {
        self.of_machine(name).console(cluster, name).await
    }

    async fn describe_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Description, BackendError> {
        self.of_machine(name).describe_machine(cluster, name).await
    }
}
