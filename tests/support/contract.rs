//! The guarantees of every backend; each promise is one function over a `Stage`.
//!
//! A promise creates its own clusters with unique names, so that all promises can run in parallel on one shared
//! platform. Their objects are deleted afterwards, even if the promise is broken.

use crate::support::cluster::cluster_id;
use std::collections::BTreeSet;
use std::error::Error;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::stream::{self, StreamExt};
use ocpdeploy::backend::platforms::Platforms;
use ocpdeploy::backend::{
    Action, AddressReservation, BackendErrorKind, ImageHandle, ImageRequest, Machine, MachineSpec, Nic, Payload,
    PlatformError, Power, Requirements, ReservationState, Snapshot, Stop, Verdict,
};
use ocpdeploy::cluster::{AddressAssignment, Architecture, ClusterId, Mac, MachineName, NodeName, Pass, Role};
use ocpdeploy::digest;
use ocpdeploy::plan::addresses::{Others, free_addresses};

#[path = "contract_foreign.rs"]
mod foreign;
#[path = "contract_snapshots.rs"]
mod snapshots;

pub use foreign::{Foreign, Mark, foreign_objects_in_a_listing_are_never_changed};
pub use snapshots::{
    a_machine_is_reverted_to_what_it_was, snapshots_are_of_machines_of_this_cluster_that_are_off,
    snapshots_are_saved_listed_and_deleted,
};

/// A platform under test.
pub trait Ground {
    fn name(&self) -> &'static str;
    fn backend(&self) -> &Platforms;
    fn network(&self) -> String;
    fn image(&self) -> ImageRequest;

    /// A small Ignition config; a guest that boots with it does nothing.
    fn config(&self) -> Vec<u8> {
        br#"{"ignition":{"version":"3.1.0"}}"#.to_vec()
    }

    /// Creates what this machine requires. It is removed when the cluster's addresses are released.
    fn prepare(&self, _: &MachineSpec) -> impl Future<Output = ()> {
        async {}
    }

    /// Why the platform, not the backend, cannot do this. The promise is then left out, with this reason.
    fn lacks(&self, ability: Ability) -> Option<&'static str>;

    /// Creates, finds and removes a machine that is not owned by a cluster, without the backend.
    fn put_unowned(&self, name: &MachineName);
    fn has_unowned(&self, name: &MachineName) -> bool;
    fn remove_unowned(&self, name: &MachineName);

    /// Creates objects of each kind without the backend, and makes listings return them, whatever their filter.
    fn put_foreign(&self, _: &[Foreign]) {
        unimplemented!("it lacks `Foreign`");
    }

    /// The current state of those objects, without changes by the platform itself.
    fn foreign(&self) -> Vec<String> {
        Vec::new()
    }

    fn remove_foreign(&self) {}

    /// Writes to the disk of a machine that is off, without the backend.
    fn write_disk(&self, _: &MachineName, _: u8) {}

    /// What `write_disk` wrote; `None` if it writes nothing.
    fn read_disk(&self, _: &MachineName) -> Option<u8> {
        None
    }

    /// Creates a snapshot without the backend, without the tag and under the name that the backend would choose.
    fn put_foreign_snapshot(&self, _: &MachineName, _: &Snapshot) {}

    /// The number of a machine's snapshots, of any owner.
    fn count_snapshots(&self, _: &MachineName) -> usize {
        0
    }
}

/// What a promise requires of the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// Answers calls.
    Answer,
    /// Images can be uploaded.
    Images,
    /// Machines can be created.
    Machines,
    /// Addresses can be reserved.
    Holds,
    /// Configs are carried to machines.
    Configs,
    /// Machines really boot and get addresses.
    Leases,
    /// Machines can have more than one disk. Without it, promises are tested with one.
    ExtraDisks,
    /// Foreign objects can be put into its listings.
    Foreign,
}

/// Tests one promise on one platform, and cleans up.
pub fn keep<G: Ground>(
    promise: &str,
    needs: &[Ability],
    ground: Option<G>,
    run: impl for<'a> AsyncFnOnce(&'a Stage<G>),
) {
    let Some(ground) = ground else { return };
    if let Some(why) = needs.iter().find_map(|ability| ground.lacks(*ability)) {
        // Not through the test harness, which hides the output of a passing test.
        let _ = writeln!(std::io::stderr(), "left out on {}: {promise}: {why}", ground.name());
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let stage = Stage::new(ground);
        let outcome = AssertUnwindSafe(run(&stage)).catch_unwind().await;
        let left = stage.clean_up().await;
        if let Err(broken) = outcome {
            resume_unwind(broken);
        }
        assert_eq!(left, [""; 0], "the promise was kept, but this could not be removed");
    });
}

/// A platform under test, and the objects that one promise creates on it.
pub struct Stage<G> {
    pub ground: G,
    /// Short and unique.
    unique: String,
    clusters: Mutex<BTreeSet<ClusterId>>,
    unowned: Mutex<BTreeSet<MachineName>>,
}

/// Numbers the objects of the promises of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

fn next() -> u32 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl<G: Ground> Stage<G> {
    fn new(ground: G) -> Self {
        Self {
            ground,
            unique: format!("c{}x{}", std::process::id(), next()),
            clusters: Mutex::default(),
            unowned: Mutex::default(),
        }
    }

    fn backend(&self) -> &Platforms {
        self.ground.backend()
    }

    /// A cluster whose name and domain derive from `unique`.
    fn cluster_named(&self, name: &str, domain: &str) -> Owner {
        let id = cluster_id(name, domain);
        self.clusters.lock().unwrap().insert(id.clone());
        Owner {
            id,
            name: name.to_owned(),
        }
    }

    fn cluster(&self) -> Owner {
        self.cluster_named(&self.unique, "contract.test")
    }

    /// Another deployment with the same name, as from a second computer.
    fn redeployed(&self, owner: &Owner) -> Owner {
        let deployment = "zzzzzzzz".parse().unwrap();
        let id = ClusterId::new(owner.id.domain().clone(), deployment);
        self.clusters.lock().unwrap().insert(id.clone());
        Owner {
            id,
            name: owner.name.clone(),
        }
    }

    fn other_cluster(&self) -> Owner {
        self.cluster_named(&format!("{}b", self.unique), "contract.test")
    }

    fn put_unowned(&self, name: &MachineName) {
        self.unowned.lock().unwrap().insert(name.clone());
        self.ground.put_unowned(name);
    }

    fn mac(&self) -> Mac {
        let digest = digest::sha256(format!("{} {}", self.unique, next()));
        format!("52:54:00:{}:{}:{}", &digest[..2], &digest[2..4], &digest[4..6])
            .parse()
            .unwrap()
    }

    /// A free address of the network; from the top, where DHCP servers seldom start.
    async fn free_ip(&self) -> IpAddr {
        // Promises that are tested in parallel, each in its process, seldom start at the same address.
        static TAKEN: LazyLock<AtomicU32> = LazyLock::new(|| (std::process::id() % 32 * 4).into());
        let facts = self.backend().network_facts(&self.ground.network()).await.unwrap();
        let cidr = facts.cidr.expect("the network's CIDR is known");
        let IpAddr::V4(broadcast) = cidr.broadcast() else {
            panic!("{cidr}");
        };
        loop {
            let last = u32::from(broadcast) - 1;
            let ip = IpAddr::V4(Ipv4Addr::from(last - TAKEN.fetch_add(1, Ordering::Relaxed)));
            assert!(cidr.contains(ip), "no free address on {cidr}");
            if !facts.taken.contains_key(&ip) && facts.gateway != Some(ip) {
                return ip;
            }
        }
    }

    async fn image(&self, owner: &Owner) -> ImageHandle {
        let request = self.ground.image();
        self.backend()
            .ensure_image(Role::Worker, &owner.id, &request)
            .await
            .expect("upload the image")
    }

    async fn spec(&self, owner: &Owner, index: usize) -> MachineSpec {
        let node = NodeName::node(Role::Worker, index);
        let spec = MachineSpec {
            cluster: owner.id.clone(),
            name: MachineName::of_node(&owner.name, &node),
            node,
            role: Role::Worker,
            pass: Pass::Two,
            arch: Architecture::X86_64,
            cpus: 1,
            memory_mib: 192,
            disk_gib: 1,
            extra_disks_gib: vec![],
            image: self.image(owner).await,
            nics: vec![Nic {
                network: self.ground.network(),
                mac: self.mac(),
            }],
            payload: Payload::Ignition(self.ground.config()),
            autostart: false,
            ipv6: None,
            creation: "anna@laptop 2026-11-28T09:12:13Z".parse().unwrap(),
        };
        self.ground.prepare(&spec).await;
        spec
    }

    /// Extra disks of these sizes, if the platform supports them.
    fn extra_disks(&self, gib: &[u64]) -> Vec<u64> {
        match self.ground.lacks(Ability::ExtraDisks) {
            Some(_) => vec![],
            None => gib.to_vec(),
        }
    }

    async fn create(&self, owner: &Owner, index: usize) -> MachineSpec {
        let spec = self.spec(owner, index).await;
        let made = self.backend().create_machine(&spec).await.expect("create a machine");
        assert!(matches!(made, Action::Done(_)), "{} was there before", spec.name);
        spec
    }

    async fn hold(&self, owner: &Owner, node: &str) -> AddressReservation {
        AddressReservation {
            cluster: owner.id.clone(),
            network: self.ground.network(),
            assignment: AddressAssignment {
                name: serde_json::from_value(node.into()).unwrap(),
                mac: self.mac(),
                ip: self.free_ip().await,
            },
            ipv6: None,
            dns_names: vec![owner.id.domain().fqdn(node)],
            dns_later: false,
            allowed: vec![],
        }
    }

    async fn names_of(&self, owner: &Owner) -> Vec<String> {
        let machines = self.backend().list_machines(&owner.id).await.unwrap();
        let mut names: Vec<_> = machines.iter().map(|machine| machine.name.to_string()).collect();
        names.sort();
        names
    }

    async fn held_by(&self, owner: &Owner) -> Vec<AddressAssignment> {
        let reserved = self.backend().list_reservations(&owner.id).await.unwrap();
        let mut held: Vec<_> = reserved.into_iter().map(|reserved| reserved.assignment).collect();
        held.sort_by(|a, b| a.name.cmp(&b.name));
        held
    }

    async fn owns_nothing(&self, owner: &Owner) {
        let owned = self.backend().list_owned(&owner.id).await.unwrap();
        assert_eq!(owned, [], "{} still owns something", owner.id);
    }

    /// Deletes everything that this stage created, and returns what could not be deleted.
    async fn clean_up(&self) -> Vec<String> {
        let clusters = self.clusters.lock().unwrap().clone();
        let mut left = Vec::new();
        for cluster in &clusters {
            for machine in self.backend().list_machines(cluster).await.unwrap_or_default() {
                if let Err(error) = self.backend().delete_machine(cluster, &machine.name).await {
                    left.push(words(&error));
                }
            }
            if let Err(error) = self.backend().delete_remaining(cluster).await {
                left.push(words(&error));
            }
            match self.backend().list_owned(cluster).await {
                Ok(owned) => left.extend(owned.iter().map(|thing| format!("{} {}", thing.kind, thing.name))),
                Err(error) => left.push(words(&error)),
            }
        }
        for name in self.unowned.lock().unwrap().iter() {
            self.ground.remove_unowned(name);
        }
        self.ground.remove_foreign();
        left
    }
}

/// A cluster of a promise.
struct Owner {
    id: ClusterId,
    name: String,
}

/// An error with all its causes.
fn words(error: &PlatformError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, PlatformError>, kind: BackendErrorKind, names: &str) {
    let error = outcome.expect_err("the call should have failed");
    let text = words(&error);
    assert_eq!(error.kind(), kind, "{text}");
    assert!(text.contains(names), "`{text}` does not name {names}");
}

/// The machine matches its spec, except for power and addresses.
fn as_asked(machine: &Machine, spec: &MachineSpec) {
    assert_eq!(machine.name, spec.name);
    assert_eq!(machine.node, spec.node);
    assert_eq!(machine.role, spec.role);
    assert_eq!(machine.pass, spec.pass);
    assert_eq!(machine.fingerprint, spec.fingerprint());
    let nics: Vec<_> = machine.nics.iter().map(|nic| (&nic.network, nic.mac)).collect();
    let asked: Vec<_> = spec.nics.iter().map(|nic| (&nic.network, nic.mac)).collect();
    assert_eq!(nics, asked);
}

pub async fn a_created_machine_is_listed_as_asked<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let mut spec = stage.spec(&owner, 0).await;
    spec.role = Role::Master;
    spec.node = NodeName::node(Role::Master, 0);
    spec.nics[0].mac = stage.mac();
    stage.ground.prepare(&spec).await;
    spec.pass = Pass::One;
    spec.extra_disks_gib = stage.extra_disks(&[1, 2]);
    spec.nics.push(Nic {
        network: stage.ground.network(),
        mac: stage.mac(),
    });
    let made = stage.backend().create_machine(&spec).await.unwrap();
    assert!(matches!(made, Action::Done(_)));
    as_asked(&made.into_inner(), &spec);
    let listed = stage.backend().list_machines(&owner.id).await.unwrap();
    assert_eq!(listed.len(), 1);
    as_asked(&listed[0], &spec);
}

pub async fn creating_twice_makes_one<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let spec = stage.create(&owner, 0).await;
    let owned = stage.backend().list_owned(&owner.id).await.unwrap();
    let again = stage.backend().create_machine(&spec).await.unwrap();
    assert!(matches!(again, Action::Unchanged(_)), "{again:?}");
    as_asked(&again.into_inner(), &spec);
    assert_eq!(stage.names_of(&owner).await, [spec.name.as_str()]);
    assert_eq!(stage.backend().list_owned(&owner.id).await.unwrap(), owned);
}

pub async fn another_spec_under_a_name_is_a_conflict<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let first = stage.create(&owner, 0).await;
    let mut payload = first.clone();
    payload.payload = Payload::Ignition(br#"{"ignition":{"version":"3.2.0"}}"#.to_vec());
    let mut memory = first.clone();
    memory.memory_mib += 64;
    let mut nic = first.clone();
    nic.nics[0].mac = stage.mac();
    for other in [payload, memory, nic] {
        let outcome = stage.backend().create_machine(&other).await;
        refused(outcome, BackendErrorKind::Conflict, first.name.as_str());
    }
    let listed = stage.backend().list_machines(&owner.id).await.unwrap();
    assert_eq!(listed.len(), 1);
    as_asked(&listed[0], &first);
}

pub async fn a_machine_of_another_owner_is_left_alone<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let name = MachineName::of_node(&owner.name, &NodeName::node(Role::Worker, 0));
    stage.put_unowned(&name);
    let deleted = stage.backend().delete_machine(&owner.id, &name).await;
    refused(deleted, BackendErrorKind::Conflict, name.as_str());
    assert_eq!(stage.names_of(&owner).await, [""; 0]);
    stage.owns_nothing(&owner).await;
    stage.backend().delete_remaining(&owner.id).await.unwrap();
    assert!(stage.ground.has_unowned(&name), "{name} was deleted");
}

pub async fn a_name_of_another_owner_is_not_taken<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let spec = stage.spec(&owner, 0).await;
    stage.put_unowned(&spec.name);
    let created = stage.backend().create_machine(&spec).await;
    refused(created, BackendErrorKind::Conflict, spec.name.as_str());
    assert!(stage.ground.has_unowned(&spec.name), "{} was replaced", spec.name);
    assert_eq!(stage.names_of(&owner).await, [""; 0]);
}

pub async fn another_clusters_machine_is_left_alone<G: Ground>(stage: &Stage<G>) {
    let (owner, other) = (stage.cluster(), stage.other_cluster());
    let spec = stage.create(&owner, 0).await;
    let mut same_name = stage.spec(&other, 0).await;
    same_name.name = spec.name.clone();
    let created = stage.backend().create_machine(&same_name).await;
    refused(created, BackendErrorKind::Conflict, spec.name.as_str());
    let deleted = stage.backend().delete_machine(&other.id, &spec.name).await;
    refused(deleted, BackendErrorKind::Conflict, spec.name.as_str());
    let listed = stage.backend().list_machines(&owner.id).await.unwrap();
    assert_eq!(listed.len(), 1);
    as_asked(&listed[0], &spec);
}

pub async fn machines_of_another_deployment_of_this_name_are_left_alone<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let spec = stage.create(&owner, 0).await;
    let other = stage.redeployed(&owner);
    let owned = stage.backend().list_owned(&owner.id).await.unwrap();
    assert_eq!(stage.names_of(&other).await, [""; 0]);
    stage.owns_nothing(&other).await;
    let found = stage.backend().list_clusters().await.unwrap();
    assert!(found.contains(&owner.id) && !found.contains(&other.id), "{found:?}");
    let mut same = spec.clone();
    same.cluster = other.id.clone();
    let created = stage.backend().create_machine(&same).await;
    refused(created, BackendErrorKind::Conflict, spec.name.as_str());
    for answer in [
        stage.backend().delete_machine(&other.id, &spec.name).await,
        stage.backend().start_machine(&other.id, &spec.name).await,
        stage.backend().stop_machine(&other.id, &spec.name, Stop::Force).await,
    ] {
        refused(answer, BackendErrorKind::Conflict, spec.name.as_str());
    }
    stage.backend().delete_fetched_configs(&other.id).await.unwrap();
    stage.backend().delete_remaining(&other.id).await.unwrap();
    let listed = stage.backend().list_machines(&owner.id).await.unwrap();
    assert_eq!(listed.len(), 1);
    as_asked(&listed[0], &spec);
    assert_ne!(listed[0].power, Power::Off);
    assert_eq!(stage.backend().list_owned(&owner.id).await.unwrap(), owned);
}

pub async fn reservations_of_another_deployment_of_this_name_are_left_alone<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let hold = stage.hold(&owner, "master-0").await;
    stage.backend().reserve_address(&hold).await.unwrap();
    let other = stage.redeployed(&owner);
    let owned = stage.backend().list_owned(&owner.id).await.unwrap();
    assert_eq!(stage.held_by(&other).await, []);
    let mut same = hold.clone();
    same.cluster = other.id.clone();
    let reserved = stage.backend().reserve_address(&same).await;
    refused(reserved, BackendErrorKind::Conflict, &hold.assignment.ip.to_string());
    let released = stage.backend().release_address(&same).await.unwrap();
    assert_eq!(released, Action::Unchanged(()));
    stage.backend().delete_remaining(&other.id).await.unwrap();
    assert_eq!(stage.held_by(&owner).await, [hold.assignment]);
    assert_eq!(stage.backend().list_owned(&owner.id).await.unwrap(), owned);
}

pub async fn deleting_what_is_absent_is_success<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let name = MachineName::of_node(&owner.name, &NodeName::bootstrap());
    let deleted = stage.backend().delete_machine(&owner.id, &name).await.unwrap();
    assert_eq!(deleted, Action::Unchanged(()));
}

pub async fn deleting_removes_all_that_was_made<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let mut spec = stage.spec(&owner, 0).await;
    spec.extra_disks_gib = stage.extra_disks(&[1]);
    let before = stage.backend().list_owned(&owner.id).await.unwrap();
    stage.backend().create_machine(&spec).await.unwrap();
    let deleted = stage.backend().delete_machine(&owner.id, &spec.name).await.unwrap();
    assert_eq!(deleted, Action::Done(()));
    assert_eq!(stage.names_of(&owner).await, [""; 0]);
    // The image and the affinity group are shared and are deleted with the cluster, not with a machine.
    let mut after = stage.backend().list_owned(&owner.id).await.unwrap();
    after.retain(|thing| thing.kind != "affinity group");
    assert_eq!(after, before);
    stage.backend().delete_remaining(&owner.id).await.unwrap();
    stage.owns_nothing(&owner).await;
    let again = stage.backend().delete_machine(&owner.id, &spec.name).await.unwrap();
    assert_eq!(again, Action::Unchanged(()));
}

pub async fn a_deleted_machine_can_be_made_again<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let mut spec = stage.create(&owner, 0).await;
    stage.backend().delete_machine(&owner.id, &spec.name).await.unwrap();
    // As between the passes: other name and payload, same MAC.
    spec.name = MachineName::of_harvest(&owner.name, Role::Worker, 0);
    let made = stage.backend().create_machine(&spec).await.unwrap();
    assert!(matches!(made, Action::Done(_)));
    assert_eq!(stage.names_of(&owner).await, [spec.name.as_str()]);
}

/// Three clusters whose names start with, end with or contain each other.
fn lookalikes<G: Ground>(stage: &Stage<G>) -> [Owner; 3] {
    let lab = stage.unique.clone();
    [
        stage.cluster_named(&lab, "contract.test"),
        stage.cluster_named(&format!("{lab}-2"), "contract.test"),
        stage.cluster_named(&format!("a{lab}"), &format!("{lab}.contract.test")),
    ]
}

pub async fn clusters_with_similar_names_stay_apart<G: Ground>(stage: &Stage<G>) {
    let owners = lookalikes(stage);
    let mut names = Vec::new();
    for owner in &owners {
        names.push(stage.create(owner, 2).await.name);
    }
    for (owner, name) in owners.iter().zip(&names) {
        assert_eq!(stage.names_of(owner).await, [name.as_str()]);
    }
    for gone in 0..owners.len() {
        let owner = &owners[gone];
        stage.backend().delete_machine(&owner.id, &names[gone]).await.unwrap();
        stage.backend().delete_remaining(&owner.id).await.unwrap();
        stage.owns_nothing(owner).await;
        for (owner, name) in owners.iter().zip(&names).skip(gone + 1) {
            assert_eq!(stage.names_of(owner).await, [name.as_str()]);
        }
    }
}

pub async fn reservations_of_clusters_with_similar_names_stay_apart<G: Ground>(stage: &Stage<G>) {
    let owners = lookalikes(stage);
    let mut leases = Vec::new();
    for owner in &owners {
        let hold = stage.hold(owner, "master-0").await;
        stage.backend().reserve_address(&hold).await.unwrap();
        leases.push(hold.assignment);
    }
    for gone in 0..owners.len() {
        for (owner, lease) in owners.iter().zip(&leases).skip(gone) {
            assert_eq!(stage.held_by(owner).await, std::slice::from_ref(lease), "{}", owner.id);
        }
        stage.backend().delete_remaining(&owners[gone].id).await.unwrap();
        assert_eq!(stage.held_by(&owners[gone]).await, []);
        stage.owns_nothing(&owners[gone]).await;
    }
}

pub async fn reserving_an_address_twice_reserves_it_once<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let hold = stage.hold(&owner, "api").await;
    assert_eq!(
        stage.backend().reserve_address(&hold).await.unwrap(),
        ReservationState::ByPlatform
    );
    let owned = stage.backend().list_owned(&owner.id).await.unwrap();
    assert_eq!(
        stage.backend().reserve_address(&hold).await.unwrap(),
        ReservationState::ByPlatform
    );
    assert_eq!(stage.held_by(&owner).await, [hold.assignment]);
    assert_eq!(stage.backend().list_owned(&owner.id).await.unwrap(), owned);
}

pub async fn a_reserved_address_is_reported_as_taken<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let hold = stage.hold(&owner, "api").await;
    stage.backend().reserve_address(&hold).await.unwrap();
    let facts = stage.backend().network_facts(&hold.network).await.unwrap();
    assert_eq!(facts.taken.get(&hold.assignment.ip), Some(&Some(hold.assignment.mac)));
    stage.backend().delete_remaining(&owner.id).await.unwrap();
    let facts = stage.backend().network_facts(&hold.network).await.unwrap();
    assert_eq!(facts.taken.get(&hold.assignment.ip), None);
}

/// Others may belong to devices that the platform does not know.
pub async fn an_address_without_a_choice_of_the_user_is_one_that_the_platform_assigns<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let mut hold = stage.hold(&owner, "api").await;
    let facts = stage.backend().network_facts(&hold.network).await.unwrap();
    let free = free_addresses(facts.cidr.unwrap(), &facts, &Others::new());
    let assigns = |ip: &IpAddr| {
        let mut ranges = facts.dhcp_ranges.iter();
        ranges.any(|(first, last)| (*first..=*last).contains(ip))
    };
    assert!(!free.is_empty() && free.iter().all(assigns), "{:?}", facts.dhcp_ranges);
    // In promises that are tested in parallel, others may be chosen from the top.
    for ip in free {
        hold.assignment.ip = ip;
        match stage.backend().reserve_address(&hold).await {
            Err(error) if error.kind() == BackendErrorKind::Conflict => {}
            reserved => {
                assert_eq!(reserved.unwrap(), ReservationState::ByPlatform);
                break;
            }
        }
    }
    assert_eq!(stage.held_by(&owner).await, [hold.assignment]);
}

pub async fn a_reservation_of_another_cluster_is_a_conflict<G: Ground>(stage: &Stage<G>) {
    let (owner, other) = (stage.cluster(), stage.other_cluster());
    let theirs = stage.hold(&owner, "master-0").await;
    stage.backend().reserve_address(&theirs).await.unwrap();
    let owned = stage.backend().list_owned(&owner.id).await.unwrap();
    let mut ip = stage.hold(&other, "master-0").await;
    ip.assignment.ip = theirs.assignment.ip;
    let mut mac = stage.hold(&other, "master-0").await;
    mac.assignment.mac = theirs.assignment.mac;
    let mut name = stage.hold(&other, "master-0").await;
    name.dns_names = theirs.dns_names.clone();
    let mut later = name.clone();
    later.dns_later = true;
    for (what, clash) in [("address", ip), ("MAC", mac), ("name", name), ("name", later)] {
        match stage.backend().reserve_address(&clash).await {
            Ok(held) => panic!("a second reservation of one {what} was granted: {held:?}"),
            refusal => refused(refusal, BackendErrorKind::Conflict, &clash.assignment.ip.to_string()),
        }
        // A rejected reservation leaves no part of itself.
        assert_eq!(stage.held_by(&other).await, [], "{what}");
        stage.owns_nothing(&other).await;
    }
    assert_eq!(stage.held_by(&owner).await, [theirs.assignment]);
    assert_eq!(stage.backend().list_owned(&owner.id).await.unwrap(), owned);
}

pub async fn releasing_is_exact_and_may_be_repeated<G: Ground>(stage: &Stage<G>) {
    let (owner, other) = (stage.cluster(), stage.other_cluster());
    let kept = stage.hold(&other, "api").await;
    stage.backend().reserve_address(&kept).await.unwrap();
    for node in ["api", "ingress", "master-0"] {
        let hold = stage.hold(&owner, node).await;
        stage.backend().reserve_address(&hold).await.unwrap();
    }
    assert_eq!(stage.held_by(&owner).await.len(), 3);
    for _ in 0..2 {
        stage.backend().delete_remaining(&owner.id).await.unwrap();
        stage.owns_nothing(&owner).await;
        assert_eq!(stage.held_by(&other).await, std::slice::from_ref(&kept.assignment));
    }
}

pub async fn a_released_address_can_be_reserved_by_another_cluster<G: Ground>(stage: &Stage<G>) {
    let (owner, other) = (stage.cluster(), stage.other_cluster());
    let first = stage.hold(&owner, "api").await;
    stage.backend().reserve_address(&first).await.unwrap();
    stage.backend().delete_remaining(&owner.id).await.unwrap();
    let second = AddressReservation {
        cluster: other.id.clone(),
        ..first
    };
    stage.backend().reserve_address(&second).await.unwrap();
    assert_eq!(stage.held_by(&other).await, [second.assignment]);
}

pub async fn all_that_is_owned_is_listed<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let spec = stage.create(&owner, 0).await;
    let hold = stage.hold(&owner, "ingress").await;
    stage.backend().reserve_address(&hold).await.unwrap();
    let owned = stage.backend().list_owned(&owner.id).await.unwrap();
    for part in [spec.name.as_str(), "ingress", &hold.dns_names[0]] {
        assert!(
            owned.iter().any(|thing| thing.name.contains(part)),
            "no {part} in {owned:?}"
        );
    }
    assert_eq!(owned.iter().collect::<BTreeSet<_>>().len(), owned.len(), "{owned:?}");
    // The machine first: the reservation belongs to it.
    stage.backend().delete_machine(&owner.id, &spec.name).await.unwrap();
    stage.backend().delete_remaining(&owner.id).await.unwrap();
    stage.owns_nothing(&owner).await;
}

pub async fn every_cluster_that_has_something_is_found<G: Ground>(stage: &Stage<G>) {
    let found = async || {
        let all = stage.backend().list_clusters().await.unwrap();
        all.into_iter()
            .filter(|id| id.tag().contains(&stage.unique))
            .collect::<BTreeSet<_>>()
    };
    let owners = lookalikes(stage);
    stage.put_unowned(&MachineName::of_node(
        &format!("{}x", stage.unique),
        &NodeName::node(Role::Master, 0),
    ));
    assert_eq!(found().await, BTreeSet::new());
    let mut expected = BTreeSet::new();
    for owner in &owners {
        stage.create(owner, 0).await;
        expected.insert(owner.id.clone());
        assert_eq!(found().await, expected);
    }
    for owner in &owners {
        for name in stage.names_of(owner).await {
            let name = name.parse().unwrap();
            stage.backend().delete_machine(&owner.id, &name).await.unwrap();
        }
        // Only its image remains, or nothing.
        let owned = stage.backend().list_owned(&owner.id).await.unwrap();
        assert_eq!(found().await.contains(&owner.id), !owned.is_empty(), "{owned:?}");
        stage.backend().delete_remaining(&owner.id).await.unwrap();
        expected.remove(&owner.id);
        assert_eq!(found().await, expected);
    }
}

pub async fn a_cluster_with_only_a_reservation_is_found<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let hold = stage.hold(&owner, "api").await;
    stage.backend().reserve_address(&hold).await.unwrap();
    assert!(stage.backend().list_clusters().await.unwrap().contains(&owner.id));
    stage.backend().delete_remaining(&owner.id).await.unwrap();
    assert!(!stage.backend().list_clusters().await.unwrap().contains(&owner.id));
}

pub async fn machines_can_be_created_in_parallel<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let at_once = stage.backend().capabilities(Role::Worker).concurrency;
    assert!(at_once > 0);
    let count = (2 * at_once).min(10);
    let mut specs = Vec::new();
    for index in 0..count {
        specs.push(stage.spec(&owner, index).await);
    }
    let made: Vec<_> = stream::iter(&specs)
        .map(|spec| stage.backend().create_machine(spec))
        .buffer_unordered(at_once)
        .collect()
        .await;
    for machine in made {
        machine.expect("each machine is created");
    }
    assert_eq!(stage.names_of(&owner).await.len(), count);
    let deleted: Vec<_> = stream::iter(&specs)
        .map(|spec| stage.backend().delete_machine(&owner.id, &spec.name))
        .buffer_unordered(at_once)
        .collect()
        .await;
    for outcome in deleted {
        assert_eq!(outcome.expect("each machine is deleted"), Action::Done(()));
    }
    assert_eq!(stage.names_of(&owner).await, [""; 0]);
}

pub async fn two_parallel_requests_for_one_machine_create_it_once<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let spec = stage.spec(&owner, 0).await;
    let (first, second) = futures::join!(
        stage.backend().create_machine(&spec),
        stage.backend().create_machine(&spec)
    );
    // The slower one may be rejected, but never changes what the quicker one has created.
    assert!(first.is_ok() || second.is_ok(), "{first:?} {second:?}");
    stage
        .backend()
        .create_machine(&spec)
        .await
        .expect("a repetition succeeds");
    assert_eq!(stage.names_of(&owner).await, [spec.name.as_str()]);
}

fn needs<G: Ground>(stage: &Stage<G>, owner: &Owner, name: &MachineName) -> Requirements {
    Requirements {
        networks: vec![stage.ground.network()],
        machines: vec![(name.clone(), vec![stage.mac()])],
        cluster: Some(owner.id.clone()),
        memory_mib: 192,
        cpus_per_machine: 1,
        disk_gib: 1,
        ..Requirements::default()
    }
}

async fn failures<G: Ground>(stage: &Stage<G>, needs: &Requirements) -> Vec<String> {
    let findings = stage.backend().preflight(needs).await.unwrap();
    assert!(!findings.is_empty(), "a preflight reports its checks");
    let fails = findings.into_iter().filter(|finding| finding.verdict == Verdict::Fail);
    fails.map(|finding| finding.text).collect()
}

pub async fn preflight_reports_name_conflicts_and_missing_networks<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let name = MachineName::of_node(&owner.name, &NodeName::node(Role::Worker, 0));
    let mut needs = needs(stage, &owner, &name);
    assert_eq!(failures(stage, &needs).await, [""; 0], "there are no conflicts");
    stage.put_unowned(&name);
    let fails = failures(stage, &needs).await;
    assert!(fails.len() == 1 && fails[0].contains(name.as_str()), "{fails:?}");
    needs.machines.clear();
    needs.networks.push("no-such-network".to_owned());
    let fails = failures(stage, &needs).await;
    assert!(fails.len() == 1 && fails[0].contains("no-such-network"), "{fails:?}");
    stage.owns_nothing(&owner).await;
}

pub async fn preflight_accepts_machines_of_this_cluster<G: Ground>(stage: &Stage<G>) {
    let (owner, other) = (stage.cluster(), stage.other_cluster());
    let spec = stage.create(&owner, 0).await;
    let mut needs = needs(stage, &owner, &spec.name);
    needs.machines[0].1 = vec![spec.nics[0].mac];
    assert_eq!(failures(stage, &needs).await, [""; 0]);
    needs.cluster = Some(other.id.clone());
    let fails = failures(stage, &needs).await;
    assert!(fails.iter().any(|text| text.contains(spec.name.as_str())), "{fails:?}");
}

pub async fn a_config_over_the_limit_is_too_large<G: Ground>(stage: &Stage<G>) {
    let Some(limit) = stage.backend().capabilities(Role::Worker).carrier.max_stored_bytes() else {
        return;
    };
    let owner = stage.cluster();
    let mut spec = stage.spec(&owner, 0).await;
    spec.payload = Payload::Ignition(vec![b' '; limit + 1]);
    let created = stage.backend().create_machine(&spec).await;
    refused(created, BackendErrorKind::TooLarge, spec.name.as_str());
    assert_eq!(stage.names_of(&owner).await, [""; 0]);
}

pub async fn missing_networks_and_images_are_named<G: Ground>(stage: &Stage<G>) {
    let looked = stage.backend().network_facts("no-such-network").await;
    refused(looked, BackendErrorKind::NotFound, "no-such-network");
    let owner = stage.cluster();
    let image = ImageRequest::Platform("no-such-image".to_owned());
    let found = stage.backend().ensure_image(Role::Worker, &owner.id, &image).await;
    refused(found, BackendErrorKind::NotFound, "no-such-image");
    stage.owns_nothing(&owner).await;
}

pub async fn a_machine_on_a_missing_network_leaves_nothing<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let mut spec = stage.spec(&owner, 0).await;
    let before = stage.backend().list_owned(&owner.id).await.unwrap();
    spec.nics[0].network = "no-such-network".to_owned();
    let created = stage.backend().create_machine(&spec).await;
    refused(created, BackendErrorKind::NotFound, "no-such-network");
    stage.backend().delete_machine(&owner.id, &spec.name).await.unwrap();
    assert_eq!(stage.backend().list_owned(&owner.id).await.unwrap(), before);
}

pub async fn an_image_is_uploaded_once_and_shared<G: Ground>(stage: &Stage<G>) {
    let (owner, other) = (stage.cluster(), stage.other_cluster());
    let first = stage.image(&owner).await;
    assert_eq!(stage.image(&owner).await, first);
    assert_eq!(stage.image(&other).await, first);
    stage.backend().delete_remaining(&owner.id).await.unwrap();
    stage.owns_nothing(&owner).await;
    // The machine of the other cluster still boots.
    let mut spec = stage.spec(&other, 0).await;
    spec.image = first;
    stage.backend().create_machine(&spec).await.unwrap();
}

pub async fn the_console_of_another_clusters_machine_is_not_read<G: Ground>(stage: &Stage<G>) {
    let (owner, other) = (stage.cluster(), stage.other_cluster());
    let spec = stage.create(&owner, 0).await;
    stage.backend().console_tail(&owner.id, &spec.name).await.unwrap();
    let console = stage.backend().console_tail(&other.id, &spec.name).await;
    assert!(!matches!(console, Ok(Some(_))), "{console:?}");
}

pub async fn a_machine_is_described_to_its_own_cluster_only<G: Ground>(stage: &Stage<G>) {
    let (owner, other) = (stage.cluster(), stage.other_cluster());
    let spec = stage.create(&owner, 0).await;
    let described = stage.backend().describe_machine(&owner.id, &spec.name).await.unwrap();
    let form = described.form.expect("the platform's own description");
    assert!(form.text.contains(spec.node.as_str()), "{}", form.text);
    let absent = MachineName::of_node(&owner.name, &NodeName::bootstrap());
    for (cluster, name, kind) in [
        (&other.id, &spec.name, BackendErrorKind::Conflict),
        (&owner.id, &absent, BackendErrorKind::NotFound),
    ] {
        let described = stage.backend().describe_machine(cluster, name).await;
        refused(described, kind, name.as_str());
    }
}

pub async fn a_machine_gets_its_reserved_address<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let spec = stage.spec(&owner, 0).await;
    let mut hold = stage.hold(&owner, spec.node.as_str()).await;
    hold.assignment.mac = spec.nics[0].mac;
    stage.backend().reserve_address(&hold).await.unwrap();
    stage.backend().create_machine(&spec).await.unwrap();
    let begin = Instant::now();
    let addresses = loop {
        let machine = stage.backend().list_machines(&owner.id).await.unwrap().remove(0);
        if !machine.nics[0].addresses.is_empty() {
            break machine.nics[0].addresses.clone();
        }
        let console = stage.backend().console_tail(&owner.id, &spec.name).await.unwrap();
        assert!(
            begin.elapsed() < Duration::from_secs(120),
            "no address; its console: {console:?}"
        );
        tokio::time::sleep(stage.backend().capabilities(Role::Worker).poll_interval).await;
    };
    assert_eq!(addresses, [hold.assignment.ip]);
}

pub async fn one_address_is_released_alone<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let (goes, stays) = (
        stage.hold(&owner, "worker-1").await,
        stage.hold(&owner, "worker-10").await,
    );
    for hold in [&goes, &stays] {
        stage.backend().reserve_address(hold).await.unwrap();
    }
    let owned = stage.backend().list_owned(&owner.id).await.unwrap();
    let released = stage.backend().release_address(&goes).await.unwrap();
    assert_eq!(released, Action::Done(()));
    assert_eq!(stage.held_by(&owner).await, std::slice::from_ref(&stays.assignment));
    // Its names were deleted with it, those of the other cluster were kept.
    let left = stage.backend().list_owned(&owner.id).await.unwrap();
    assert!(
        left.len() < owned.len() && left.iter().all(|thing| owned.contains(thing)),
        "{left:?}"
    );
    assert!(left.iter().all(|thing| !thing.name.contains("worker-1.")), "{left:?}");
    let again = stage.backend().release_address(&goes).await.unwrap();
    assert_eq!(again, Action::Unchanged(()));
    // Address, MAC and name are free.
    stage.backend().reserve_address(&goes).await.unwrap();
    assert_eq!(stage.held_by(&owner).await, [goes.assignment, stays.assignment]);
}

pub async fn releasing_the_reservation_of_another_owner_changes_nothing<G: Ground>(stage: &Stage<G>) {
    let (owner, other) = (stage.cluster(), stage.other_cluster());
    let hold = stage.hold(&owner, "master-0").await;
    stage.backend().reserve_address(&hold).await.unwrap();
    let mut of_another_cluster = hold.clone();
    of_another_cluster.cluster = other.id.clone();
    let mut of_another_node = hold.clone();
    of_another_node.assignment.name = serde_json::from_value("master-1".into()).unwrap();
    let mut of_another_mac = hold.clone();
    of_another_mac.assignment.mac = stage.mac();
    let mut of_another_ip = hold.clone();
    of_another_ip.assignment.ip = stage.free_ip().await;
    for wrong in [of_another_cluster, of_another_node, of_another_mac, of_another_ip] {
        let released = stage.backend().release_address(&wrong).await.unwrap();
        assert_eq!(released, Action::Unchanged(()), "{wrong:?}");
    }
    assert_eq!(stage.held_by(&owner).await, [hold.assignment]);
}

pub async fn a_machine_is_stopped_and_started_again<G: Ground>(stage: &Stage<G>) {
    let owner = stage.cluster();
    let spec = stage.create(&owner, 0).await;
    let other = stage.create(&owner, 1).await;
    let backend = stage.backend();
    let power = async |name: &MachineName| {
        let machines = backend.list_machines(&owner.id).await.unwrap();
        machines
            .into_iter()
            .find(|machine| machine.name == *name)
            .unwrap()
            .power
    };
    let started = backend.start_machine(&owner.id, &spec.name).await.unwrap();
    assert_eq!(started, Action::Unchanged(()), "it has been running since its creation");
    // A guest without a config may ignore a shutdown, so the power is switched off.
    backend
        .stop_machine(&owner.id, &spec.name, Stop::Graceful)
        .await
        .unwrap();
    backend.stop_machine(&owner.id, &spec.name, Stop::Force).await.unwrap();
    assert_eq!(power(&spec.name).await, Power::Off);
    assert_ne!(power(&other.name).await, Power::Off);
    for how in [Stop::Graceful, Stop::Force] {
        let again = backend.stop_machine(&owner.id, &spec.name, how).await.unwrap();
        assert_eq!(again, Action::Unchanged(()));
    }
    let started = backend.start_machine(&owner.id, &spec.name).await.unwrap();
    assert_eq!(started, Action::Done(()));
    assert_ne!(power(&spec.name).await, Power::Off);
    // A machine that is off is still the same machine, and adopting it starts it.
    backend.stop_machine(&owner.id, &spec.name, Stop::Force).await.unwrap();
    let adopted = backend.create_machine(&spec).await.unwrap();
    as_asked(&adopted.into_inner(), &spec);
    assert_ne!(power(&spec.name).await, Power::Off);
}

pub async fn only_machines_of_this_cluster_are_stopped_and_started<G: Ground>(stage: &Stage<G>) {
    let (owner, other) = (stage.cluster(), stage.other_cluster());
    let spec = stage.create(&owner, 0).await;
    let absent = MachineName::of_node(&owner.name, &NodeName::bootstrap());
    let unowned = MachineName::of_node(&owner.name, &NodeName::node(Role::Worker, 7));
    stage.put_unowned(&unowned);
    for (cluster, name, kind) in [
        (&other.id, &spec.name, BackendErrorKind::Conflict),
        (&owner.id, &unowned, BackendErrorKind::Conflict),
        (&owner.id, &absent, BackendErrorKind::NotFound),
    ] {
        let started = stage.backend().start_machine(cluster, name).await;
        refused(started, kind, name.as_str());
        for how in [Stop::Graceful, Stop::Force] {
            let stopped = stage.backend().stop_machine(cluster, name, how).await;
            refused(stopped, kind, name.as_str());
        }
    }
    let machines = stage.backend().list_machines(&owner.id).await.unwrap();
    assert_ne!(machines[0].power, Power::Off);
}
