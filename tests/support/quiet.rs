//! A platform whose machines cannot be asked over the network, for whole runs on a pretend one.

use ocpdeploy::backend::{
    Action, Backend, BackendError, Balanced, Balancer, Description, Finding, Held, Hold, ImageHandle, ImageRequest,
    Limits, Machine, MachineSpec, Needs, NetworkFacts, Owned, Stop,
};
use ocpdeploy::cluster::{ClusterId, Lease, MachineName};

/// A real backend in all but one: its guests are not asked whether they are up.
pub struct Quiet<B>(pub B);

impl<B: Backend> Backend for Quiet<B> {
    fn limits(&self) -> Limits {
        Limits {
            guests_answer: false,
            ..self.0.limits()
        }
    }

    async fn preflight(&self, needs: &Needs) -> Result<Vec<Finding>, BackendError> {
        self.0.preflight(needs).await
    }

    async fn look_at_network(&self, network: &str) -> Result<NetworkFacts, BackendError> {
        self.0.look_at_network(network).await
    }

    async fn ensure_image(&self, cluster: &ClusterId, image: &ImageRequest) -> Result<ImageHandle, BackendError> {
        self.0.ensure_image(cluster, image).await
    }

    async fn create_machine(&self, spec: &MachineSpec) -> Result<Action<Machine>, BackendError> {
        self.0.create_machine(spec).await
    }

    async fn list_machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError> {
        self.0.list_machines(cluster).await
    }

    async fn delete_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        self.0.delete_machine(cluster, name).await
    }

    async fn start_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        self.0.start_machine(cluster, name).await
    }

    async fn stop_machine(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError> {
        self.0.stop_machine(cluster, name, how).await
    }

    async fn hold_address(&self, hold: &Hold) -> Result<Held, BackendError> {
        self.0.hold_address(hold).await
    }

    async fn balance(&self, balancer: &Balancer) -> Result<Option<Balanced>, BackendError> {
        self.0.balance(balancer).await
    }

    async fn list_held(&self, cluster: &ClusterId) -> Result<Vec<Lease>, BackendError> {
        self.0.list_held(cluster).await
    }

    async fn release_address(&self, hold: &Hold) -> Result<Action<()>, BackendError> {
        self.0.release_address(hold).await
    }

    async fn release_addresses(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        self.0.release_addresses(cluster).await
    }

    async fn list_owned(&self, cluster: &ClusterId) -> Result<Vec<Owned>, BackendError> {
        self.0.list_owned(cluster).await
    }

    async fn console_tail(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<String>, BackendError> {
        self.0.console_tail(cluster, name).await
    }

    async fn describe_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Description, BackendError> {
        self.0.describe_machine(cluster, name).await
    }
}
