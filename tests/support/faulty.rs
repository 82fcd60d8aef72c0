//! A platform that fails where it is told to, or whose guests are not asked whether they are up.

#![deny(clippy::missing_trait_methods)]

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use ocpdeploy::backend::{
    Action, AddressReservation, Backend, BackendError, BackendErrorKind, BalancedVip, Capabilities, Console,
    Description, Diagnostics, Discovery, Finding, ImageHandle, ImageRequest, LoadBalancer, LoadBalancers, Machine,
    MachineSnapshot, MachineSpec, NetworkFacts, Owned, PlatformChoices, Requirements, ReservationState, Reserved,
    SerialConsole, Snapshot, Snapshots, Stop,
};
use ocpdeploy::cluster::{AddressAssignment, ClusterId, MachineName, Role};

/// How a call fails.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub name: &'static str,
    pub kind: BackendErrorKind,
    /// It was done all the same; only the answer is lost.
    pub done: bool,
    /// What the platform asks for.
    pub pause: Option<Duration>,
}

/// Which calls fail.
#[derive(Clone, Copy, Debug)]
pub enum When {
    Never,
    /// The one with this number among all calls, from 0.
    Once(usize),
    /// From that one on, each of the same method.
    Ever(usize),
    /// Each one, the first time that it is made, the third, the fifth, …
    EachFirst,
}

/// A real backend between the faults, looked at this often.
pub struct Faulty<B> {
    pub backend: B,
    poll_interval: Duration,
    guests_answer: bool,
    fault: Fault,
    when: When,
    calls: RefCell<Vec<&'static str>>,
    balancers: RefCell<Vec<LoadBalancer>>,
    made: RefCell<BTreeMap<String, usize>>,
    failing: Cell<Option<&'static str>>,
    failed: Cell<usize>,
}

impl<B> Faulty<B> {
    pub fn new(backend: B, fault: Fault, when: When) -> Self {
        Self {
            backend,
            poll_interval: Duration::from_millis(1),
            guests_answer: true,
            fault,
            when,
            calls: RefCell::default(),
            balancers: RefCell::default(),
            made: RefCell::default(),
            failing: Cell::default(),
            failed: Cell::default(),
        }
    }

    /// A backend that never fails and whose guests are not asked over the network whether they are up.
    pub fn no_guest_probe(backend: B, poll_interval: Duration) -> Self {
        let fault = Fault {
            name: "none",
            kind: BackendErrorKind::Timeout,
            done: false,
            pause: None,
        };
        Self {
            poll_interval,
            guests_answer: false,
            ..Self::new(backend, fault, When::Never)
        }
    }

    /// The methods that were called, in order.
    pub fn calls(&self) -> Vec<&'static str> {
        self.calls.borrow().clone()
    }

    /// The load balancers that were asked for, in order.
    pub fn balancers(&self) -> Vec<LoadBalancer> {
        self.balancers.borrow().clone()
    }

    /// How many calls were made to fail.
    pub fn failed(&self) -> usize {
        self.failed.get()
    }

    pub fn is_for_ever(&self) -> bool {
        matches!(self.when, When::Ever(_))
    }

    /// The method that was made to fail first.
    pub fn failing(&self) -> Option<&'static str> {
        self.failing.get()
    }

    fn fails(&self, method: &'static str, about: &str) -> bool {
        let number = self.calls.borrow().len();
        self.calls.borrow_mut().push(method);
        let mut made = self.made.borrow_mut();
        let made = made.entry(format!("{method} {about}")).or_default();
        *made += 1;
        let fails = match self.when {
            When::Never => false,
            When::Once(at) => number == at,
            When::Ever(at) => number == at || self.failing.get() == Some(method),
            When::EachFirst => *made % 2 == 1,
        };
        if fails {
            self.failing.set(self.failing.get().or(Some(method)));
            self.failed.set(self.failed.get() + 1);
        }
        fails
    }

    async fn call<T>(
        &self,
        method: &'static str,
        about: impl ToString,
        work: impl AsyncFnOnce(&B) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        let about = about.to_string();
        if !self.fails(method, &about) {
            return work(&self.backend).await;
        }
        if self.fault.done {
            work(&self.backend).await?;
        }
        let error = BackendError::new(self.fault.kind, format!("{method} {about}")).because(self.fault.name);
        Err(match self.fault.pause {
            Some(pause) => error.pause(pause),
            None => error,
        })
    }
}

#[async_trait(?Send)]
impl<B: Backend> Backend for &Faulty<B> {
    fn place(&self, machine: &MachineName) -> Role {
        self.backend.place(machine)
    }

    fn capabilities(&self, role: Role) -> Capabilities {
        let capabilities = self.backend.capabilities(role);
        Capabilities {
            poll_interval: self.poll_interval,
            guests_reachable: self.guests_answer && capabilities.guests_reachable,
            ..capabilities
        }
    }

    async fn preflight(&self, needs: &Requirements) -> Result<Vec<Finding>, BackendError> {
        self.call("preflight", "", async |backend| backend.preflight(needs).await)
            .await
    }

    async fn network_facts(&self, network: &str) -> Result<NetworkFacts, BackendError> {
        self.call("network_facts", network, async |backend| {
            backend.network_facts(network).await
        })
        .await
    }

    async fn ensure_image(
        &self,
        role: Role,
        cluster: &ClusterId,
        image: &ImageRequest,
    ) -> Result<ImageHandle, BackendError> {
        self.call("ensure_image", format!("{role} {image:?}"), async |backend| {
            backend.ensure_image(role, cluster, image).await
        })
        .await
    }

    async fn create_machine(&self, spec: &MachineSpec) -> Result<Action<Machine>, BackendError> {
        self.call("create_machine", &spec.name, async |backend| {
            backend.create_machine(spec).await
        })
        .await
    }

    async fn list_machines(&self, cluster: &ClusterId) -> Result<Vec<Machine>, BackendError> {
        self.call("list_machines", cluster, async |backend| {
            backend.list_machines(cluster).await
        })
        .await
    }

    async fn delete_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        self.call("delete_machine", name, async |backend| {
            backend.delete_machine(cluster, name).await
        })
        .await
    }

    async fn start_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        self.call("start_machine", name, async |backend| {
            backend.start_machine(cluster, name).await
        })
        .await
    }

    async fn stop_machine(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError> {
        self.call("stop_machine", name, async |backend| {
            backend.stop_machine(cluster, name, how).await
        })
        .await
    }

    async fn reserve_address(&self, hold: &AddressReservation) -> Result<ReservationState, BackendError> {
        self.call("reserve_address", &hold.assignment.name, async |backend| {
            backend.reserve_address(hold).await
        })
        .await
    }

    async fn list_reservations(&self, cluster: &ClusterId) -> Result<Vec<Reserved>, BackendError> {
        self.call("list_reservations", cluster, async |backend| {
            backend.list_reservations(cluster).await
        })
        .await
    }

    async fn release_address(&self, hold: &AddressReservation) -> Result<Action<()>, BackendError> {
        self.call("release_address", &hold.assignment.name, async |backend| {
            backend.release_address(hold).await
        })
        .await
    }

    async fn delete_remaining(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        self.call("delete_remaining", cluster, async |backend| {
            backend.delete_remaining(cluster).await
        })
        .await
    }

    async fn delete_fetched_configs(&self, cluster: &ClusterId) -> Result<(), BackendError> {
        self.backend.delete_fetched_configs(cluster).await
    }

    async fn list_owned(&self, cluster: &ClusterId) -> Result<Vec<Owned>, BackendError> {
        self.call("list_owned", cluster, async |backend| backend.list_owned(cluster).await)
            .await
    }

    async fn list_clusters(&self) -> Result<BTreeSet<ClusterId>, BackendError> {
        self.call("list_clusters", "", async |backend| backend.list_clusters().await)
            .await
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

    fn snapshots(&self, _: Role) -> Option<&dyn Snapshots> {
        Some(self)
    }
}

#[async_trait(?Send)]
impl<B: Backend> SerialConsole for &Faulty<B> {
    async fn tail(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<String>, BackendError> {
        self.call("console_tail", name, async |backend| {
            match backend.serial_console(name.role()) {
                Some(facet) => facet.tail(cluster, name).await,
                None => Ok(None),
            }
        })
        .await
    }

    async fn attach(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<Console>, BackendError> {
        self.call("console", name, async |backend| {
            match backend.serial_console(name.role()) {
                Some(facet) => facet.attach(cluster, name).await,
                None => Ok(None),
            }
        })
        .await
    }
}

#[async_trait(?Send)]
impl<B: Backend> LoadBalancers for &Faulty<B> {
    async fn ensure(&self, balancer: &LoadBalancer) -> Result<Option<BalancedVip>, BackendError> {
        self.balancers.borrow_mut().push(balancer.clone());
        self.call("balance", balancer.vip, async |backend| {
            match backend.load_balancers() {
                Some(facet) => facet.ensure(balancer).await,
                None => Ok(None),
            }
        })
        .await
    }
}

#[async_trait(?Send)]
impl<B: Backend> Discovery for &Faulty<B> {
    async fn choices(&self) -> Result<PlatformChoices, BackendError> {
        self.call("offers", "", async |backend| match backend.discovery() {
            Some(facet) => facet.choices().await,
            None => Ok(PlatformChoices::default()),
        })
        .await
    }
}

#[async_trait(?Send)]
impl<B: Backend> Diagnostics for &Faulty<B> {
    async fn describe_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Description, BackendError> {
        self.call("describe_machine", name, async |backend| {
            match backend.diagnostics(name.role()) {
                Some(facet) => facet.describe_machine(cluster, name).await,
                None => Ok(Description::default()),
            }
        })
        .await
    }

    async fn server_time(&self) -> Result<Option<SystemTime>, BackendError> {
        self.call("clock", "", async |backend| match backend.diagnostics(Role::Master) {
            Some(facet) => facet.server_time().await,
            None => Ok(None),
        })
        .await
    }

    async fn local_disk_dir(&self) -> Result<Option<PathBuf>, BackendError> {
        self.call("disks_here", "", async |backend| {
            match backend.diagnostics(Role::Master) {
                Some(facet) => facet.local_disk_dir().await,
                None => Ok(None),
            }
        })
        .await
    }
}

#[async_trait(?Send)]
impl<B: Backend> Snapshots for &Faulty<B> {
    async fn check_snapshots(&self, cluster: &ClusterId, names: &[MachineName]) -> Result<Vec<Finding>, BackendError> {
        self.call("check_snapshots", cluster, async |backend| {
            let facet = backend.snapshots(Role::Master).expect("snapshots");
            facet.check_snapshots(cluster, names).await
        })
        .await
    }

    async fn save_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<Action<()>, BackendError> {
        self.call("save_snapshot", name, async |backend| {
            let facet = backend.snapshots(name.role()).expect("snapshots");
            facet.save_snapshot(cluster, name, snapshot).await
        })
        .await
    }

    async fn list_snapshots(&self, cluster: &ClusterId) -> Result<Vec<MachineSnapshot>, BackendError> {
        self.call("list_snapshots", cluster, async |backend| {
            let facet = backend.snapshots(Role::Master).expect("snapshots");
            facet.list_snapshots(cluster).await
        })
        .await
    }

    async fn check_restore(
        &self,
        cluster: &ClusterId,
        names: &[MachineName],
        snapshot: &Snapshot,
    ) -> Result<Vec<Finding>, BackendError> {
        self.call("check_restore", cluster, async |backend| {
            let facet = backend.snapshots(Role::Master).expect("snapshots");
            facet.check_restore(cluster, names, snapshot).await
        })
        .await
    }

    async fn revert_to_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<(), BackendError> {
        self.call("revert_to_snapshot", name, async |backend| {
            let facet = backend.snapshots(name.role()).expect("snapshots");
            facet.revert_to_snapshot(cluster, name, snapshot).await
        })
        .await
    }

    async fn delete_snapshot(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        snapshot: &Snapshot,
    ) -> Result<Action<()>, BackendError> {
        self.call("delete_snapshot", name, async |backend| {
            let facet = backend.snapshots(name.role()).expect("snapshots");
            facet.delete_snapshot(cluster, name, snapshot).await
        })
        .await
    }
}
