//! A platform whose machines cannot be asked over the network, for whole runs on a pretend one.

use std::collections::BTreeSet;
use std::time::Duration;

use ocpdeploy::backend::{
    Action, Backend, BackendError, Balanced, Balancer, Description, Finding, Held, Hold, ImageHandle, ImageRequest,
    Limits, Machine, MachineSpec, Needs, NetworkFacts, Owned, Stop,
};
use ocpdeploy::cluster::{ClusterId, Lease, MachineName};

/// A real backend in all but one: its guests are not asked whether they are up, and it is looked at this often.
pub struct Quiet<B> {
    pub backend: B,
    pub poll_interval: Duration,
}

impl<B: Backend> Backend for Quiet<B> {
    fn limits(&self) -> Limits {
        Limits {
            guests_answer: false,
            poll_interval: self.poll_interval,
            ..self.backend.limits()
        }
    }

    async fn preflight(&self, needs: &Needs) -> Result<Vec<Finding>, BackendError> {
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

    async fn hold_address(&self, hold: &Hold) -> Result<Held, BackendError> {
        self.backend.hold_address(hold).await
    }

    async fn balance(&self, balancer: &Balancer) -> Result<Option<Balanced>, BackendError> {
        self.backend.balance(balancer).await
    }

    async fn list_held(&self, cluster: &ClusterId) -> Result<Vec<Lease>, BackendError> {
        self.backend.list_held(cluster).await
    }

    async fn release_address(&self, hold: &Hold) -> Result<Action<()>, BackendError> {
        self.backend.release_address(hold).await
    }

    async fn release_addresses(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        self.backend.release_addresses(cluster).await
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
