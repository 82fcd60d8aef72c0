//! A platform whose machines cannot be asked over the network, for whole runs on a pretend one.

use std::collections::BTreeSet;
use std::time::Duration;

use ocpdeploy::backend::{
    Action, AddressReservation, Backend, BackendError, BalancedVip, Capabilities, Description, Finding, ImageHandle,
    ImageRequest, LoadBalancer, Machine, MachineSpec, NetworkFacts, Owned, Requirements, ReservationState, Stop,
};
use ocpdeploy::cluster::{AddressAssignment, ClusterId, MachineName};

/// A real backend in all but one: its guests are not asked whether they are up, and it is looked at this often.
pub struct NoGuestProbe<B> {
    pub backend: B,
    pub poll_interval: Duration,
}

impl<B: Backend> Backend for NoGuestProbe<B> {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            guests_answer: false,
            poll_interval: self.poll_interval,
            ..self.backend.capabilities()
        }
    }

    async fn preflight(&self, needs: &Requirements) -> Result<Vec<Finding>, BackendError> {
        self.backend.preflight(needs).await
    }

    async fn look_at_network(&self, network: &str) -> Result<NetworkFacts, BackendError> {
        self.backend.look_at_network(network).await
    }

    async fn ensure_image(&self, cluster: &ClusterId, image: &ImageRequest) -> Result<ImageHandle, BackendError> {
        self.backend.ensure_image(cluster, image).await
    }

    async fn create_machine(&self, spec: &MachineSpec) -> Result<Action<Machine>, BackendError> {
        self.backend.create_machine(spec).await
    }

    async fn list_machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError> {
        self.backend.list_machines(cluster).await
    }

    async fn delete_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        self.backend.delete_machine(cluster, name).await
    }

    async fn start_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        self.backend.start_machine(cluster, name).await
    }

    async fn stop_machine(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError> {
        self.backend.stop_machine(cluster, name, how).await
    }

    async fn reserve_address(&self, hold: &AddressReservation) -> Result<ReservationState, BackendError> {
        self.backend.reserve_address(hold).await
    }

    async fn ensure_load_balancer(&self, balancer: &LoadBalancer) -> Result<Option<BalancedVip>, BackendError> {
        self.backend.ensure_load_balancer(balancer).await
    }

    async fn list_reservations(&self, cluster: &ClusterId) -> Result<Vec<AddressAssignment>, BackendError> {
        self.backend.list_reservations(cluster).await
    }

    async fn release_address(&self, hold: &AddressReservation) -> Result<Action<()>, BackendError> {
        self.backend.release_address(hold).await
    }

    async fn delete_remaining(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        self.backend.delete_remaining(cluster).await
    }

    async fn list_owned(&self, cluster: &ClusterId) -> Result<Vec<Owned>, BackendError> {
        self.backend.list_owned(cluster).await
    }

    async fn list_clusters(&self) -> Result<BTreeSet<ClusterId>, BackendError> {
        self.backend.list_clusters().await
    }

    async fn console_tail(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<String>, BackendError> {
        self.backend.console_tail(cluster, name).await
    }

    async fn describe_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Description, BackendError> {
        self.backend.describe_machine(cluster, name).await
    }
}
