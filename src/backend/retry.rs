//! Asks a platform again that did not answer: every call of a backend may be made again, by the trait's promise.
//!
//! Only silence is met with patience (`Unreachable`, `Timeout`) and a pause that the platform itself asked for; a
//! refusal stands. A platform that never answered is most likely not there, so it is not waited for.

#![deny(clippy::missing_trait_methods)]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use crate::PROGRESS;
use crate::backend::{
    Action, AddressReservation, Backend, BackendError, BackendErrorKind, BalancedVip, Capabilities, Console,
    Description, Diagnostics, Discovery, Finding, ImageHandle, ImageRequest, LoadBalancer, LoadBalancers, Machine,
    MachineSpec, NetworkFacts, Owned, PlatformChoices, Requirements, ReservationState, SerialConsole, Stop,
};
use crate::backoff::Backoff;
use crate::cluster::{AddressAssignment, ClusterId, MachineName, Role};

/// How long a call is repeated where the settings do not say; an engine or API server that restarts is back by then.
pub const USUAL: Duration = Duration::from_secs(120);

/// The first pause, and the longest of our own choice, as parts of the limit: half a second and 15 seconds of 2 minutes.
const PAUSES: [u32; 2] = [240, 8];

/// How often a platform is asked again that has not answered yet.
const STRANGER: u32 = 2;

/// A backend whose calls are repeated while the platform is silent, for a bounded time.
pub struct Retrying<B> {
    backend: B,
    limit: Duration,
    /// It answered, and has not been given up since.
    answers: AtomicBool,
}

impl<B> Retrying<B> {
    pub fn new(backend: B) -> Self {
        Self {
            backend,
            limit: USUAL,
            answers: AtomicBool::new(false),
        }
    }

    /// With this limit from a call's first failure to its last repetition; zero repeats nothing.
    pub fn for_at_most(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    async fn again<T>(&self, call: impl AsyncFn(&B) -> Result<T, BackendError>) -> Result<T, BackendError> {
        let mut failing_since = None;
        let mut repeated = 0;
        let [first, longest] = PAUSES.map(|part| self.limit / part);
        let mut backoff = Backoff::doubling(first, longest);
        loop {
            let begun = Instant::now();
            let error = match call(&self.backend).await {
                Ok(value) => {
                    self.answers.store(true, Ordering::Relaxed);
                    return Ok(value);
                }
                Err(error) => error,
            };
            let silent_for = failing_since.get_or_insert_with(Instant::now).elapsed();
            let pause = backoff.pause(error.pause);
            if !self.is_repeated(&error, repeated, begun.elapsed(), silent_for.saturating_add(pause)) {
                let is_answer = !is_silence(&error);
                self.answers.store(is_answer, Ordering::Relaxed);
                return Err(error);
            };
            repeated += 1;
            let seconds = pause.as_secs_f32();
            match repeated {
                1 => warn!(target: PROGRESS, "{error}; asking again"),
                _ => debug!(target: PROGRESS, "{error}; asking again in {seconds:.1} s"),
            }
            sleep(pause).await;
        }
    }

    /// Whether a call is made again after which the platform will have been silent for so long.
    fn is_repeated(&self, error: &BackendError, repeated: u32, took: Duration, silent_for: Duration) -> bool {
        let knows_it = self.answers.load(Ordering::Relaxed);
        // What was waited for as long as the limit already will not come by asking again.
        let is_slow = error.kind == BackendErrorKind::Timeout && took > self.limit;
        is_silence(error) && (knows_it || repeated < STRANGER) && !is_slow && silent_for <= self.limit
    }
}

fn is_silence(error: &BackendError) -> bool {
    matches!(error.kind, BackendErrorKind::Unreachable | BackendErrorKind::Timeout) || error.pause.is_some()
}

#[async_trait(?Send)]
impl<B: Backend> Backend for Retrying<B> {
    fn capabilities(&self, role: Role) -> Capabilities {
        self.backend.capabilities(role)
    }

    async fn preflight(&self, needs: &Requirements) -> Result<Vec<Finding>, BackendError> {
        self.again(async |backend| backend.preflight(needs).await).await
    }

    async fn look_at_network(&self, network: &str) -> Result<NetworkFacts, BackendError> {
        self.again(async |backend| backend.look_at_network(network).await).await
    }

    async fn ensure_image(
        &self,
        role: Role,
        cluster: &ClusterId,
        image: &ImageRequest,
    ) -> Result<ImageHandle, BackendError> {
        self.again(async |backend| backend.ensure_image(role, cluster, image).await)
            .await
    }

    async fn create_machine(&self, spec: &MachineSpec) -> Result<Action<Machine>, BackendError> {
        self.again(async |backend| backend.create_machine(spec).await).await
    }

    async fn list_machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError> {
        self.again(async |backend| backend.list_machines(cluster).await).await
    }

    async fn delete_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        self.again(async |backend| backend.delete_machine(cluster, name).await)
            .await
    }

    async fn start_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        self.again(async |backend| backend.start_machine(cluster, name).await)
            .await
    }

    async fn stop_machine(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError> {
        self.again(async |backend| backend.stop_machine(cluster, name, how).await)
            .await
    }

    async fn reserve_address(&self, hold: &AddressReservation) -> Result<ReservationState, BackendError> {
        self.again(async |backend| backend.reserve_address(hold).await).await
    }

    async fn list_reservations(&self, cluster: &ClusterId) -> Result<Vec<AddressAssignment>, BackendError> {
        self.again(async |backend| backend.list_reservations(cluster).await)
            .await
    }

    async fn release_address(&self, hold: &AddressReservation) -> Result<Action<()>, BackendError> {
        self.again(async |backend| backend.release_address(hold).await).await
    }

    async fn delete_remaining(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        self.again(async |backend| backend.delete_remaining(cluster).await)
            .await
    }

    async fn list_owned(&self, cluster: &ClusterId) -> Result<Vec<Owned>, BackendError> {
        self.again(async |backend| backend.list_owned(cluster).await).await
    }

    async fn list_clusters(&self) -> Result<BTreeSet<ClusterId>, BackendError> {
        self.again(async |backend| backend.list_clusters().await).await
    }

    fn serial_console(&self, role: Role) -> Option<&dyn SerialConsole> {
        self.backend.serial_console(role).map(|_| self as _)
    }

    fn load_balancers(&self) -> Option<&dyn LoadBalancers> {
        self.backend.load_balancers().map(|_| self as _)
    }

    fn discovery(&self) -> Option<&dyn Discovery> {
        self.backend.discovery().map(|_| self as _)
    }

    fn diagnostics(&self, role: Role) -> Option<&dyn Diagnostics> {
        self.backend.diagnostics(role).map(|_| self as _)
    }
}

// Each facet is there when the backend has it; without one there is nothing to ask.

#[async_trait(?Send)]
impl<B: Backend> SerialConsole for Retrying<B> {
    async fn tail(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<String>, BackendError> {
        self.again(async |backend| match backend.serial_console(name.role()) {
            Some(console) => console.tail(cluster, name).await,
            None => Ok(None),
        })
        .await
    }

    async fn attach(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<Console>, BackendError> {
        self.again(async |backend| match backend.serial_console(name.role()) {
            Some(console) => console.attach(cluster, name).await,
            None => Ok(None),
        })
        .await
    }
}

#[async_trait(?Send)]
impl<B: Backend> LoadBalancers for Retrying<B> {
    async fn ensure(&self, balancer: &LoadBalancer) -> Result<Option<BalancedVip>, BackendError> {
        self.again(async |backend| match backend.load_balancers() {
            Some(balancers) => balancers.ensure(balancer).await,
            None => Ok(None),
        })
        .await
    }
}

#[async_trait(?Send)]
impl<B: Backend> Discovery for Retrying<B> {
    async fn choices(&self) -> Result<PlatformChoices, BackendError> {
        self.again(async |backend| match backend.discovery() {
            Some(discovery) => discovery.choices().await,
            None => Ok(PlatformChoices::default()),
        })
        .await
    }
}

#[async_trait(?Send)]
impl<B: Backend> Diagnostics for Retrying<B> {
    async fn describe_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Description, BackendError> {
        self.again(async |backend| match backend.diagnostics(name.role()) {
            Some(diagnostics) => diagnostics.describe_machine(cluster, name).await,
            None => Ok(Description::default()),
        })
        .await
    }

    async fn server_time(&self) -> Result<Option<SystemTime>, BackendError> {
        self.again(async |backend| match backend.diagnostics(Role::Master) {
            Some(diagnostics) => diagnostics.server_time().await,
            None => Ok(None),
        })
        .await
    }

    async fn local_disk_dir(&self) -> Result<Option<PathBuf>, BackendError> {
        self.again(async |backend| match backend.diagnostics(Role::Master) {
            Some(diagnostics) => diagnostics.local_disk_dir().await,
            None => Ok(None),
        })
        .await
    }
}
