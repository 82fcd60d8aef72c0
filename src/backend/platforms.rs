//! The platforms of one cluster: one for all machines, or another for its workers, which may be another host of the same
//! kind.
//!
//! Each call goes to the platform of its machine, its errors name the operation, and it is repeated while the platform is
//! unresponsive; by the contract of `Backend`, every call can be repeated. A call is repeated after `Unreachable` and
//! `Timeout`, and if the platform requested a pause. A rejection is final, except a denial by a platform that has just
//! started. A platform that has never responded probably is not running or has another address, so there are only a few
//! attempts.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use futures::future::try_join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::{
    Action, AddressReservation, Backend, BackendError, BackendErrorKind, BalancedVip, Capabilities, Console,
    Description, Finding, ImageHandle, ImageRequest, LoadBalancer, Machine, MachineSnapshot, MachineSpec, NetworkFacts,
    Owned, PlatformChoices, PlatformError, Requirements, ReservationState, Reserved, Snapshot, Stop,
};
use crate::PROGRESS;
use crate::backoff::Backoff;
use crate::cluster::{
    AddressAssignment, ClusterId, ExternalVips, MachineName, NodeName, Role, Vip, WorkersOn, place_of,
};

/// How long a call is repeated without a setting. It is enough for a restart of an engine or API server.
pub const DEFAULT_LIMIT: Duration = Duration::from_secs(120);

/// The first and the longest pause as fractions of the limit: half a second and 15 seconds of 2 minutes.
const PAUSES: [u32; 2] = [240, 8];

/// How often a call is repeated if the platform has never responded.
const REPEATS_BEFORE_FIRST_RESPONSE: u32 = 2;

/// How long a platform may deny permitted requests after it was unresponsive: an API server that has just started has
/// no role bindings until it has read them (kubernetes/kubernetes: `plugin/pkg/auth/authorizer/rbac/rbac.go`,
/// `VisitRulesFor`).
const STARTING: Duration = Duration::from_secs(30);

/// A cluster's platforms. If the workers are on another platform, all machines still share one network, whose facts come
/// from both platforms.
pub struct Platforms {
    all: Platform,
    workers: Option<Workers>,
    limit: Duration,
    hook: Option<Rc<dyn Hook>>,
}

struct Workers {
    platform: Platform,
    on: WorkersOn,
}

struct Platform {
    backend: Box<dyn Backend>,
    /// As `BackendConfig::place`.
    place: String,
    /// Whether the last call, including its repetitions, ended with a response: a result or a rejection.
    has_responded: Cell<bool>,
    /// When a call last had no response.
    unresponsive_at: Cell<Option<Instant>>,
}

/// An operation and its object, e.g. `create machine` and `lab-master-0`.
pub struct Operation {
    pub verb: &'static str,
    pub object: String,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.object)
    }
}

/// What tests change in calls to backends.
pub trait Hook {
    fn capabilities(&self, real: Capabilities) -> Capabilities {
        real
    }

    /// Whether this call fails, and how.
    fn fault(&self, operation: &Operation) -> Option<Fault>;
}

/// A failure of one call.
pub struct Fault {
    pub error: BackendError,
    /// The call is made, and only its response is lost.
    pub is_done: bool,
}

impl Platform {
    fn new(place: String, backend: Box<dyn Backend>) -> Self {
        Self {
            backend,
            place,
            has_responded: Cell::new(false),
            unresponsive_at: Cell::new(None),
        }
    }

    /// Whether a failed call is repeated; `failing_for` includes the pause before it.
    fn repeats(
        &self,
        error: &BackendError,
        limit: Duration,
        repeated: u32,
        took: Duration,
        failing_for: Duration,
    ) -> bool {
        // A call that took longer than the limit would fail again.
        let is_slow = error.kind == BackendErrorKind::Timeout && took > limit;
        (is_unresponsive(error) || self.is_starting(error))
            && (self.has_responded.get() || repeated < REPEATS_BEFORE_FIRST_RESPONSE)
            && !is_slow
            && failing_for <= limit
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

impl Platforms {
    /// One platform for all machines; `place` is that of `BackendConfig::place`.
    pub fn on(place: impl Into<String>, all: Box<dyn Backend>) -> Self {
        Self {
            all: Platform::new(place.into(), all),
            workers: None,
            limit: DEFAULT_LIMIT,
            hook: None,
        }
    }

    /// Workers on another platform.
    pub fn with_workers_on(self, platform: Box<dyn Backend>, on: WorkersOn) -> Self {
        let platform = Platform::new(on.backend.place(), platform);
        Self {
            workers: Some(Workers { platform, on }),
            ..self
        }
    }

    /// Sets the limit from the first failure of a call to its last repetition. Zero disables repetition.
    pub fn for_at_most(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// For tests.
    pub fn with_hook(self, hook: Rc<dyn Hook>) -> Self {
        Self {
            hook: Some(hook),
            ..self
        }
    }

    fn at(&self, place: Role) -> &Platform {
        match (&self.workers, place) {
            (Some(workers), Role::Worker) => &workers.platform,
            _ => &self.all,
        }
    }

    /// The platform of a machine of either pass.
    fn of_machine(&self, name: &MachineName) -> &Platform {
        self.at(self.place(name.role(), name.pool()))
    }

    fn of_node(&self, node: &NodeName) -> &Platform {
        self.at(self.place(node.role(), node.pool()))
    }

    fn place(&self, role: Role, pool: Option<&str>) -> Role {
        place_of(role, pool, self.workers.as_ref().map(|workers| &workers.on))
    }

    fn each(&self) -> impl Iterator<Item = &Platform> {
        std::iter::once(&self.all).chain(self.workers.as_ref().map(|workers| &workers.platform))
    }

    /// One call to one platform, repeated while it is unresponsive.
    async fn call<T>(
        &self,
        platform: &Platform,
        verb: &'static str,
        object: impl fmt::Display,
        work: impl AsyncFn(&dyn Backend) -> Result<T, BackendError>,
    ) -> Result<T, PlatformError> {
        let object = object.to_string();
        let operation = Operation { verb, object };
        let [first, longest] = PAUSES.map(|part| self.limit / part);
        let mut backoff = Backoff::doubling(first, longest);
        let mut failing_since = None;
        let mut repeated = 0;
        loop {
            let begun = Instant::now();
            let fault = self.hook.as_ref().and_then(|hook| hook.fault(&operation));
            let result = match fault {
                None => work(&*platform.backend).await,
                Some(Fault { error, is_done: false }) => Err(error),
                Some(Fault { error, is_done: true }) => work(&*platform.backend).await.and(Err(error)),
            };
            let error = match result {
                Ok(value) => {
                    platform.has_responded.set(true);
                    return Ok(value);
                }
                Err(error) => error,
            };
            if is_unresponsive(&error) {
                platform.unresponsive_at.set(Some(Instant::now()));
            }
            let failing_for = failing_since.get_or_insert_with(Instant::now).elapsed();
            let pause = backoff.pause(error.pause);
            let failing_for = failing_for.saturating_add(pause);
            if !platform.repeats(&error, self.limit, repeated, begun.elapsed(), failing_for) {
                platform.has_responded.set(!is_unresponsive(&error));
                return Err(error.during(operation.to_string()));
            }
            repeated += 1;
            let error = error.during(operation.to_string());
            match repeated {
                1 => warn!(target: PROGRESS, "{error}; retrying"),
                _ => debug!(target: PROGRESS, "{error}; retrying in {:.1} s", pause.as_secs_f32()),
            }
            sleep(pause).await;
        }
    }

    /// The same call to each platform.
    async fn call_each<T>(
        &self,
        verb: &'static str,
        cluster: &ClusterId,
        work: impl AsyncFn(&dyn Backend) -> Result<T, BackendError>,
    ) -> Result<Vec<T>, PlatformError> {
        try_join_all(self.each().map(|platform| self.call(platform, verb, cluster, &work))).await
    }

    /// The same call to each platform of these machines, with the machines of that platform.
    async fn call_with_machines<T>(
        &self,
        verb: &'static str,
        cluster: &ClusterId,
        names: &[MachineName],
        work: impl AsyncFn(&dyn Backend, &[MachineName]) -> Result<Vec<T>, BackendError>,
    ) -> Result<Vec<T>, PlatformError> {
        let mut all = Vec::new();
        for platform in self.each() {
            let is_there = |name: &&MachineName| std::ptr::eq(self.of_machine(name), platform);
            let names: Vec<MachineName> = names.iter().filter(is_there).cloned().collect();
            if !names.is_empty() {
                let call = async |backend: &dyn Backend| work(backend, &names).await;
                all.extend(self.call(platform, verb, cluster, call).await?);
            }
        }
        Ok(all)
    }

    /// The capabilities for machines of one role, which may be on a platform of their own.
    pub fn capabilities(&self, role: Role) -> Capabilities {
        let real = self.at(role).backend.capabilities();
        match &self.hook {
            Some(hook) => hook.capabilities(real),
            None => real,
        }
    }

    /// Capabilities that are valid for all roles: the lower rate, and what all platforms support.
    pub fn common_capabilities(&self) -> Capabilities {
        let (masters, workers) = (self.capabilities(Role::Master), self.capabilities(Role::Worker));
        Capabilities {
            concurrency: masters.concurrency.min(workers.concurrency),
            poll_interval: masters.poll_interval.max(workers.poll_interval),
            leases_outlive_machines: masters.leases_outlive_machines && workers.leases_outlive_machines,
            guests_reachable: masters.guests_reachable && workers.guests_reachable,
            addresses_from_agent: masters.addresses_from_agent || workers.addresses_from_agent,
            snapshots: masters.snapshots.and(workers.snapshots),
            ..masters
        }
    }

    /// Runs `work` on these items, on as many at once as all platforms can handle.
    pub async fn concurrently<I, T, E>(
        &self,
        items: impl IntoIterator<Item = I>,
        work: impl AsyncFn(I) -> Result<T, E>,
    ) -> Result<Vec<T>, E> {
        stream::iter(items)
            .map(|item| work(item))
            .buffer_unordered(self.common_capabilities().concurrency)
            .try_collect()
            .await
    }

    pub async fn preflight(&self, needs: &Requirements) -> Result<Vec<Finding>, PlatformError> {
        let check = async |platform: &Platform, needs: &Requirements| {
            let call = async |backend: &dyn Backend| backend.preflight(needs).await;
            self.call(platform, "check", &platform.place, call).await
        };
        let mut findings = check(&self.all, needs).await?;
        if let (Some(workers), Some(needs)) = (&self.workers, &needs.workers) {
            findings.extend(check(&workers.platform, needs).await?);
        }
        Ok(findings)
    }

    pub async fn network_facts(&self, network: &str) -> Result<NetworkFacts, PlatformError> {
        let query = async |platform: &Platform, network: &str| {
            let call = async |backend: &dyn Backend| backend.network_facts(network).await;
            self.call(platform, "query network", network, call).await
        };
        let facts = query(&self.all, network).await?;
        let Some(Workers { platform, on }) = &self.workers else {
            return Ok(facts);
        };
        let there = query(platform, &on.network).await?;
        let operation = format!("compare network {network} with the workers' network {}", on.network);
        merge_facts([network, &on.network], facts, there).map_err(|error| error.during(operation))
    }

    pub async fn ensure_image(
        &self,
        role: Role,
        cluster: &ClusterId,
        image: &ImageRequest,
    ) -> Result<ImageHandle, PlatformError> {
        let (verb, object) = match image {
            ImageRequest::Platform(url) if url.contains("://") => ("import image", url.clone()),
            ImageRequest::Platform(name) => ("find image", name.clone()),
            ImageRequest::File { path, .. } => ("upload image", path.display().to_string()),
        };
        let call = async |backend: &dyn Backend| backend.ensure_image(cluster, image).await;
        self.call(self.at(role), verb, object, call).await
    }

    pub async fn create_machine(&self, spec: &MachineSpec) -> Result<Action<Machine>, PlatformError> {
        let call = async |backend: &dyn Backend| backend.create_machine(spec).await;
        self.call(self.of_node(&spec.node), "create machine", &spec.name, call)
            .await
    }

    pub async fn list_machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, PlatformError> {
        let call = async |backend: &dyn Backend| backend.list_machines(cluster).await;
        Ok(self
            .call_each("list the machines of cluster", cluster, call)
            .await?
            .concat())
    }

    pub async fn delete_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, PlatformError> {
        let call = async |backend: &dyn Backend| backend.delete_machine(cluster, name).await;
        self.call(self.of_machine(name), "delete machine", name, call).await
    }

    pub async fn start_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, PlatformError> {
        let call = async |backend: &dyn Backend| backend.start_machine(cluster, name).await;
        self.call(self.of_machine(name), "start machine", name, call).await
    }

    pub async fn stop_machine(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, PlatformError> {
        let call = async |backend: &dyn Backend| backend.stop_machine(cluster, name, how).await;
        self.call(self.of_machine(name), "stop machine", name, call).await
    }

    pub async fn reserve_address(&self, reservation: &AddressReservation) -> Result<ReservationState, PlatformError> {
        let mut state = ReservationState::Unreserved;
        for (platform, there) in self.reservations_for(reservation) {
            let AddressAssignment { name, ip, .. } = &there.assignment;
            let object = format!("{ip} for {name} on network {}", there.network);
            let call = async |backend: &dyn Backend| backend.reserve_address(&there).await;
            state = self.call(platform, "reserve address", object, call).await?;
            if state != ReservationState::Unreserved {
                break;
            }
        }
        Ok(state)
    }

    pub async fn list_reservations(&self, cluster: &ClusterId) -> Result<Vec<Reserved>, PlatformError> {
        let call = async |backend: &dyn Backend| backend.list_reservations(cluster).await;
        let verb = "list the reserved addresses of cluster";
        Ok(self.call_each(verb, cluster, call).await?.concat())
    }

    pub async fn release_address(&self, reservation: &AddressReservation) -> Result<Action<()>, PlatformError> {
        let mut released = Action::Unchanged(());
        for (platform, there) in self.reservations_for(reservation) {
            let AddressAssignment { name, ip, .. } = &there.assignment;
            let object = format!("{ip} of {name} on network {}", there.network);
            let call = async |backend: &dyn Backend| backend.release_address(&there).await;
            released = self.call(platform, "release address", object, call).await?;
            if released == Action::Done(()) {
                break;
            }
        }
        Ok(released)
    }

    /// Where an address may be reserved: for a worker first on its own platform, if that can reserve addresses. Both
    /// platforms are on one network, so the other one may succeed if the first one does not.
    fn reservations_for(&self, reservation: &AddressReservation) -> Vec<(&Platform, AddressReservation)> {
        let mut all = vec![(&self.all, reservation.clone())];
        if let Some(Workers { platform, on }) = &self.workers
            && std::ptr::eq(self.of_node(&reservation.assignment.name), platform)
            && platform.backend.capabilities().reserves_addresses
        {
            let network = on.network.clone();
            let there = AddressReservation {
                network,
                ..reservation.clone()
            };
            all.insert(0, (platform, there));
        }
        all
    }

    pub async fn delete_remaining(&self, cluster: &ClusterId) -> Result<(), PlatformError> {
        let call = async |backend: &dyn Backend| backend.delete_remaining(cluster).await;
        let verb = "delete the remaining objects of cluster";
        self.call_each(verb, cluster, call).await.map(drop)
    }

    pub async fn delete_fetched_configs(&self, cluster: &ClusterId) -> Result<(), PlatformError> {
        let call = async |backend: &dyn Backend| backend.delete_fetched_configs(cluster).await;
        let verb = "delete the stored configs of cluster";
        self.call_each(verb, cluster, call).await.map(drop)
    }

    pub async fn list_owned(&self, cluster: &ClusterId) -> Result<Vec<Owned>, PlatformError> {
        let call = async |backend: &dyn Backend| backend.list_owned(cluster).await;
        Ok(self
            .call_each("list the objects of cluster", cluster, call)
            .await?
            .concat())
    }

    pub async fn list_clusters(&self) -> Result<BTreeSet<ClusterId>, PlatformError> {
        let list = async |backend: &dyn Backend| backend.list_clusters().await;
        let verb = "list the clusters on";
        let calls = self
            .each()
            .map(|platform| self.call(platform, verb, &platform.place, &list));
        Ok(try_join_all(calls).await?.into_iter().flatten().collect())
    }

    pub async fn console_tail(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<String>, PlatformError> {
        let call = async |backend: &dyn Backend| backend.console_tail(cluster, name).await;
        let verb = "read the console of machine";
        self.call(self.of_machine(name), verb, name, call).await
    }

    pub async fn attach_console(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
    ) -> Result<Option<Console>, PlatformError> {
        let call = async |backend: &dyn Backend| backend.attach_console(cluster, name).await;
        let verb = "open the console of machine";
        self.call(self.of_machine(name), verb, name, call).await
    }

    /// A network with load balancers is on one platform only.
    pub async fn ensure_load_balancer(&self, balancer: &LoadBalancer) -> Result<Option<BalancedVip>, PlatformError> {
        let at = balancer.ip.map(|ip| format!(" at {ip}")).unwrap_or_default();
        let members = balancer.members.iter().flatten();
        let members: Vec<&str> = members.map(|member| member.name.as_str()).collect();
        let to = match members.is_empty() {
            true => String::new(),
            false => format!(" to {}", members.join(", ")),
        };
        let object = format!("{}{at}{to}", balancer.vip);
        let call = async |backend: &dyn Backend| backend.ensure_load_balancer(balancer).await;
        self.call(&self.all, "set the load balancer of", object, call).await
    }

    /// The VIPs are on the masters' platform.
    pub async fn external_vips(
        &self,
        cluster: &ClusterId,
        vips: &[Vip],
        create: bool,
    ) -> Result<ExternalVips, PlatformError> {
        let call = async |backend: &dyn Backend| backend.external_vips(cluster, vips, create).await;
        let verb = "get the external addresses of cluster";
        self.call(&self.all, verb, cluster, call).await
    }

    pub async fn choices(&self) -> Result<PlatformChoices, PlatformError> {
        let call = async |backend: &dyn Backend| backend.choices().await;
        self.call(&self.all, "check", &self.all.place, call).await
    }

    pub async fn describe_machine(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
    ) -> Result<Description, PlatformError> {
        let call = async |backend: &dyn Backend| backend.describe_machine(cluster, name).await;
        self.call(self.of_machine(name), "describe machine", name, call).await
    }

    pub async fn server_time(&self) -> Result<Option<SystemTime>, PlatformError> {
        let call = async |backend: &dyn Backend| backend.server_time().await;
        self.call(&self.all, "query the time of", &self.all.place, call).await
    }

    pub async fn local_disk_dir(&self) -> Result<Option<PathBuf>, PlatformError> {
        let call = async |backend: &dyn Backend| backend.local_disk_dir().await;
        let verb = "query the directory of the disks of";
        self.call(&self.all, verb, &self.all.place, call).await
    }

    pub async fn check_snapshots(
        &self,
        cluster: &ClusterId,
        names: &[MachineName],
    ) -> Result<Vec<Finding>, PlatformError> {
        let verb = "check the disks of cluster";
        self.call_with_machines(verb, cluster, names, async |backend, names| {
            backend.check_snapshots(cluster, names).await
        })
        .await
    }

    pub async fn save_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<Action<()>, PlatformError> {
        let object = format!("{} of machine {name}", snapshot.name);
        let call = async |backend: &dyn Backend| backend.save_snapshot(cluster, name, snapshot).await;
        self.call(self.of_machine(name), "save snapshot", object, call).await
    }

    pub async fn list_snapshots(&self, cluster: &ClusterId) -> Result<Vec<MachineSnapshot>, PlatformError> {
        let call = async |backend: &dyn Backend| backend.list_snapshots(cluster).await;
        Ok(self
            .call_each("list the snapshots of cluster", cluster, call)
            .await?
            .concat())
    }

    pub async fn check_restore(
        &self,
        cluster: &ClusterId,
        names: &[MachineName],
        snapshot: &Snapshot,
    ) -> Result<Vec<Finding>, PlatformError> {
        let verb = "check the snapshots of cluster";
        self.call_with_machines(verb, cluster, names, async |backend, names| {
            backend.check_restore(cluster, names, snapshot).await
        })
        .await
    }

    pub async fn revert_to_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<(), PlatformError> {
        let object = format!("{} of machine {name}", snapshot.name);
        let call = async |backend: &dyn Backend| backend.revert_to_snapshot(cluster, name, snapshot).await;
        self.call(self.of_machine(name), "restore snapshot", object, call).await
    }

    pub async fn delete_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<Action<()>, PlatformError> {
        let object = format!("{} of machine {name}", snapshot.name);
        let call = async |backend: &dyn Backend| backend.delete_snapshot(cluster, name, snapshot).await;
        self.call(self.of_machine(name), "delete snapshot", object, call).await
    }
}

/// The facts of one network on two platforms. Each platform may know facts that the other does not.
fn merge_facts(names: [&str; 2], mut facts: NetworkFacts, there: NetworkFacts) -> Result<NetworkFacts, BackendError> {
    let refused = |reason: String, hint: &str| Err(BackendError::new(BackendErrorKind::Rejected, reason).hint(hint));
    if let (Some(here), Some(cidr)) = (facts.cidr, there.cidr)
        && here != cidr
    {
        return refused(
            format!("{} has subnet {here}, {} has subnet {cidr}", names[0], names[1]),
            "masters and workers must share one network: set network and worker_network to its names on the two platforms",
        );
    }
    let are_libvirt = [&facts, &there]
        .iter()
        .all(|facts| facts.identity.starts_with("libvirt:"));
    if are_libvirt && facts.identity == there.identity {
        return refused(
            "both are the same network of the same host".to_owned(),
            "remove libvirt_worker_uri, or set it to another host; two hosts must have different host names",
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
