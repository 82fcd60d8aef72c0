//! Repeats calls to an unresponsive platform. By the contract of the trait, every call can be repeated.
//!
//! Repeated are `Unreachable`, `Timeout`, and calls for which the platform requested a pause. A rejection is final, except
//! a denial by a platform that has just started. A platform that has never responded is probably not running or has another
//! address, so it is asked only a few times.

#![deny(clippy::missing_trait_methods)]

use std::cell::Cell;
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
    MachineSnapshot, MachineSpec, NetworkFacts, Owned, PlatformChoices, Requirements, ReservationState, Reserved,
    SerialConsole, Snapshot, Snapshots, Stop,
};
use crate::backoff::Backoff;
use crate::cluster::{ClusterId, MachineName, Role};

/// How long a call is repeated without a setting. It is enough for a restart of an engine or API server.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(120);

/// The first and the longest pause as fractions of the limit: half a second and 15 seconds of 2 minutes.
const PAUSES: [u32; 2] = [240, 8];

/// How often a call is repeated if the platform has never responded.
const REPEATS_BEFORE_FIRST_RESPONSE: u32 = 2;

/// How long after it was unresponsive a platform may deny what it permits: an API server that has just started finds no
/// bindings of roles until it has read them (kubernetes/kubernetes: `plugin/pkg/auth/authorizer/rbac/rbac.go`,
/// `VisitRulesFor`).
const STARTING: Duration = Duration::from_secs(30);

/// A backend whose calls are repeated for a limited time while the platform is unresponsive.
pub struct Retrying<B> {
    backend: B,
    limit: Duration,
    /// The platform has responded, and no call has failed finally since.
    has_responded: AtomicBool,
    /// When a call had no response last.
    unresponsive_at: Cell<Option<Instant>>,
}

impl<B> Retrying<B> {
    pub fn new(backend: B) -> Self {
        Self {
            backend,
            limit: DEFAULT_LIMIT,
            has_responded: AtomicBool::new(false),
            unresponsive_at: Cell::new(None),
        }
    }

    /// Sets the limit from the first failure of a call to its last repetition. Zero disables repetition.
    pub fn for_at_most(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    async fn repeat<T>(&self, call: impl AsyncFn(&B) -> Result<T, BackendError>) -> Result<T, BackendError> {
        let mut failing_since = None;
        let mut repeated = 0;
        let [first, longest] = PAUSES.map(|part| self.limit / part);
        let mut backoff = Backoff::doubling(first, longest);
        loop {
            let begun = Instant::now();
            let error = match call(&self.backend).await {
                Ok(value) => {
                    self.has_responded.store(true, Ordering::Relaxed);
                    return Ok(value);
                }
                Err(error) => error,
            };
            if is_unresponsive(&error) {
                self.unresponsive_at.set(Some(Instant::now()));
            }
            let failing_for = failing_since.get_or_insert_with(Instant::now).elapsed();
            let pause = backoff.pause(error.pause);
            if !self.is_repeated(&error, repeated, begun.elapsed(), failing_for.saturating_add(pause)) {
                let has_responded = !is_unresponsive(&error);
                self.has_responded.store(has_responded, Ordering::Relaxed);
                return Err(error);
            };
            repeated += 1;
            let seconds = pause.as_secs_f32();
            match repeated {
                1 => warn!(target: PROGRESS, "{error}; retrying"),
                _ => debug!(target: PROGRESS, "{error}; retrying in {seconds:.1} s"),
            }
            sleep(pause).await;
        }
    }

    /// Whether a failed call is repeated; `failing_for` includes the pause before it.
    fn is_repeated(&self, error: &BackendError, repeated: u32, took: Duration, failing_for: Duration) -> bool {
        let has_responded = self.has_responded.load(Ordering::Relaxed);
        // A call that took longer than the limit would fail again.
        let is_slow = error.kind == BackendErrorKind::Timeout && took > self.limit;
        (is_unresponsive(error) || self.is_starting(error))
            && (has_responded || repeated < REPEATS_BEFORE_FIRST_RESPONSE)
            && !is_slow
            && failing_for <= self.limit
    }

    /// Whether a denial may be due to a start of the platform.
    fn is_starting(&self, error: &BackendError) -> bool {
        let unresponsive_at = self.unresponsive_at.get();
        error.kind == BackendErrorKind::Denied && unresponsive_at.is_some_and(|at| at.elapsed() < STARTING)
    }
}

fn is_unresponsive(error: &BackendError) -> bool {
    matches!(error.kind, BackendErrorKind::Unreachable | BackendErrorKind::Timeout) || error.pause.is_some()
}

#[async_trait(?Send)]
impl<B: Backend> Backend for Retrying<B> {
    fn place(&self, machine: &MachineName) -> Role {
        self.backend.place(machine)
    }

    fn capabilities(&self, role: Role) -> Capabilities {
        self.backend.capabilities(role)
    }

    async fn preflight(&self, needs: &Requirements) -> Result<Vec<Finding>, BackendError> {
        self.repeat(async |backend| backend.preflight(needs).await).await
    }

    async fn network_facts(&self, network: &str) -> Result<NetworkFacts, BackendError> {
        self.repeat(async |backend| backend.network_facts(network).await).await
    }

    async fn ensure_image(
        &self,
        role: Role,
        cluster: &ClusterId,
        image: &ImageRequest,
    ) -> Result<ImageHandle, BackendError> {
        self.repeat(async |backend| backend.ensure_image(role, cluster, image).await)
            .await
    }

    async fn create_machine(&self, spec: &MachineSpec) -> Result<Action<Machine>, BackendError> {
        self.repeat(async |backend| backend.create_machine(spec).await).await
    }

    async fn list_machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError> {
        self.repeat(async |backend| backend.list_machines(cluster).await).await
    }

    async fn delete_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        self.repeat(async |backend| backend.delete_machine(cluster, name).await)
            .await
    }

    async fn start_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        self.repeat(async |backend| backend.start_machine(cluster, name).await)
            .await
    }

    async fn stop_machine(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError> {
        self.repeat(async |backend| backend.stop_machine(cluster, name, how).await)
            .await
    }

    async fn reserve_address(&self, reservation: &AddressReservation) -> Result<ReservationState, BackendError> {
        self.repeat(async |backend| backend.reserve_address(reservation).await)
            .await
    }

    async fn list_reservations(&self, cluster: &ClusterId) -> Result<Vec<Reserved>, BackendError> {
        self.repeat(async |backend| backend.list_reservations(cluster).await)
            .await
    }

    async fn release_address(&self, reservation: &AddressReservation) -> Result<Action<()>, BackendError> {
        self.repeat(async |backend| backend.release_address(reservation).await)
            .await
    }

    async fn delete_remaining(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        self.repeat(async |backend| backend.delete_remaining(cluster).await)
            .await
    }

    async fn delete_fetched_configs(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        self.repeat(async |backend| backend.delete_fetched_configs(cluster).await)
            .await
    }

    async fn list_owned(&self, cluster: &ClusterId) -> Result<Vec<Owned>, BackendError> {
        self.repeat(async |backend| backend.list_owned(cluster).await).await
    }

    async fn list_clusters(&self) -> Result<BTreeSet<ClusterId>, BackendError> {
        self.repeat(async |backend| backend.list_clusters().await).await
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

    fn snapshots(&self, role: Role) -> Option<&dyn Snapshots> {
        self.backend.snapshots(role).map(|_| self as _)
    }
}

// A facet is returned only if the backend has it, so the other arms are never reached.

#[async_trait(?Send)]
impl<B: Backend> SerialConsole for Retrying<B> {
    async fn tail(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<String>, BackendError> {
        self.repeat(async |backend| match backend.serial_console(backend.place(name)) {
            Some(console) => console.tail(cluster, name).await,
            None => Ok(None),
        })
        .await
    }

    async fn attach(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<Console>, BackendError> {
        self.repeat(async |backend| match backend.serial_console(backend.place(name)) {
            Some(console) => console.attach(cluster, name).await,
            None => Ok(None),
        })
        .await
    }
}

#[async_trait(?Send)]
impl<B: Backend> LoadBalancers for Retrying<B> {
    async fn ensure(&self, balancer: &LoadBalancer) -> Result<Option<BalancedVip>, BackendError> {
        self.repeat(async |backend| match backend.load_balancers() {
            Some(balancers) => balancers.ensure(balancer).await,
            None => Ok(None),
        })
        .await
    }
}

#[async_trait(?Send)]
impl<B: Backend> Discovery for Retrying<B> {
    async fn choices(&self) -> Result<PlatformChoices, BackendError> {
        self.repeat(async |backend| match backend.discovery() {
            Some(discovery) => discovery.choices().await,
            None => Ok(PlatformChoices::default()),
        })
        .await
    }
}

#[async_trait(?Send)]
impl<B: Backend> Diagnostics for Retrying<B> {
    async fn describe_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Description, BackendError> {
        self.repeat(async |backend| match backend.diagnostics(backend.place(name)) {
            Some(diagnostics) => diagnostics.describe_machine(cluster, name).await,
            None => Ok(Description::default()),
        })
        .await
    }

    async fn server_time(&self) -> Result<Option<SystemTime>, BackendError> {
        self.repeat(async |backend| match backend.diagnostics(Role::Master) {
            Some(diagnostics) => diagnostics.server_time().await,
            None => Ok(None),
        })
        .await
    }

    async fn local_disk_dir(&self) -> Result<Option<PathBuf>, BackendError> {
        self.repeat(async |backend| match backend.diagnostics(Role::Master) {
            Some(diagnostics) => diagnostics.local_disk_dir().await,
            None => Ok(None),
        })
        .await
    }
}

#[async_trait(?Send)]
impl<B: Backend> Snapshots for Retrying<B> {
    async fn check_snapshots(&self, cluster: &ClusterId, names: &[MachineName]) -> Result<Vec<Finding>, BackendError> {
        self.repeat(
            async |backend| match names.first().and_then(|name| backend.snapshots(backend.place(name))) {
                Some(snapshots) => snapshots.check_snapshots(cluster, names).await,
                None => Ok(Vec::new()),
            },
        )
        .await
    }

    async fn save_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<Action<()>, BackendError> {
        self.repeat(async |backend| match backend.snapshots(backend.place(name)) {
            Some(snapshots) => snapshots.save_snapshot(cluster, name, snapshot).await,
            None => Ok(Action::Unchanged(())),
        })
        .await
    }

    async fn list_snapshots(&self, cluster: &ClusterId) -> Result<Vec<MachineSnapshot>, BackendError> {
        // One platform behind this has the facet for all roles or for none.
        self.repeat(async |backend| match backend.snapshots(Role::Master) {
            Some(snapshots) => snapshots.list_snapshots(cluster).await,
            None => Ok(Vec::new()),
        })
        .await
    }

    async fn check_restore(
        &self,
        cluster: &ClusterId,
        names: &[MachineName],
        snapshot: &Snapshot,
    ) -> Result<Vec<Finding>, BackendError> {
        self.repeat(
            async |backend| match names.first().and_then(|name| backend.snapshots(backend.place(name))) {
                Some(snapshots) => snapshots.check_restore(cluster, names, snapshot).await,
                None => Ok(Vec::new()),
            },
        )
        .await
    }

    async fn revert_to_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<(), BackendError> {
        self.repeat(async |backend| match backend.snapshots(backend.place(name)) {
            Some(snapshots) => snapshots.revert_to_snapshot(cluster, name, snapshot).await,
            None => Ok(()),
        })
        .await
    }

    async fn delete_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<Action<()>, BackendError> {
        self.repeat(async |backend| match backend.snapshots(backend.place(name)) {
            Some(snapshots) => snapshots.delete_snapshot(cluster, name, snapshot).await,
            None => Ok(Action::Unchanged(())),
        })
        .await
    }
}
