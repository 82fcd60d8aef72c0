//! Every call of a platform fails in every way, once or always: silent faults are retried, all others are reported.
//!
//! The commands run on the simulated platform behind a wrapper that injects faults. A usual test run takes
//! samples; `OCPDEPLOY_FAULTS=all` takes every call and every fault (`make reliability`).

use crate::support::cluster::{cluster_id, deployment};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::support::backup::Backup;
use crate::support::faulty::{Failing, Faults, When};
use crate::support::sandbox::Sandbox;
use ocpdeploy::backend::platforms::Platforms;
use ocpdeploy::backend::sim::Sim;
use ocpdeploy::backend::{
    AddressReservation, Backend, BackendErrorKind as Kind, ImageHandle, ImageRequest, LoadBalancer, MachineSpec, Nic,
    Payload, PlatformError, Requirements, Stop,
};
use ocpdeploy::cluster::{
    AddressAssignment, Architecture, ClusterConfig, Lb, Mac, MachineName, NodeName, Pass, Role, SimConfig, Vip,
};
use ocpdeploy::failure::explain;
use ocpdeploy::openshift::drain::Drain;
use ocpdeploy::passes::{self, DeployOptions, ScaleOptions, StopOptions};
use ocpdeploy::settings::{self, Sources};
use ocpdeploy::state::inventory::Known;
use serde_json::{Value, json};

const fn fault(name: &'static str, kind: Kind) -> Failing {
    Failing {
        name,
        kind,
        done: false,
        pause: None,
    }
}

const fn done(name: &'static str, kind: Kind) -> Failing {
    Failing {
        done: true,
        ..fault(name, kind)
    }
}

/// Faults without an answer, as clients report them; a requested pause is kept.
const SILENCES: [Failing; 6] = [
    fault("no route to host", Kind::Unreachable),
    fault("HTTP 503", Kind::Unreachable),
    done("half a body", Kind::Unreachable),
    fault("no answer, and it was not done", Kind::Timeout),
    done("no answer, but it was done", Kind::Timeout),
    Failing {
        pause: Some(Duration::from_millis(15)),
        ..fault("HTTP 429, Retry-After", Kind::Quota)
    },
];

const REFUSALS: [Failing; 5] = [
    fault("denied", Kind::Denied),
    fault("over quota", Kind::Quota),
    fault("in the way", Kind::Conflict),
    fault("too large", Kind::TooLarge),
    fault("HTTP 500", Kind::Rejected),
];

/// The platform timeout where a test waits for it; 2 minutes by default.
const PATIENCE: Duration = Duration::from_millis(200);

/// The platform timeout where no test waits for it: longer than any call takes.
const MORE: Duration = Duration::from_secs(3);

/// More calls than can be made within the timeout, for all operations that run at once.
const MOST_CALLS: usize = 40 * 8;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operation {
    Harvest,
    Deploy,
    ScaleUp,
    ScaleDown,
    Replace,
    Stop,
    Start,
    Destroy,
}

/// A simulated platform with two clusters, which can be restored to an earlier state.
struct Ground {
    sandbox: Sandbox,
    backup: Backup,
}

impl Ground {
    async fn after(operations: &[Operation]) -> Self {
        let sandbox = Sandbox::new(json!({"script": {"boot_ms": 0}}));
        let backup = Backup::of(sandbox.path());
        let mut ground = Self { sandbox, backup };
        // Another cluster, which must not change.
        ground.undisturbed(Operation::Deploy, "lab-2").await;
        for operation in operations {
            ground.undisturbed(*operation, "lab").await;
        }
        ground.backup = Backup::of(ground.sandbox.path());
        ground
    }

    fn restore(&self) {
        self.backup.restore(self.sandbox.path());
    }

    fn sim(&self) -> Sim {
        let state = self.sandbox.path().join("sim.json");
        Sim::open(&SimConfig { state }).unwrap()
    }

    async fn undisturbed(&self, operation: Operation, cluster: &str) {
        let outcome = self.run(operation, cluster, &Rc::default(), MORE).await;
        outcome.unwrap_or_else(|error| panic!("{operation:?} {cluster}: {}", explain(&error)));
    }

    async fn run(
        &self,
        operation: Operation,
        cluster: &str,
        faults: &Rc<Faults>,
        patience: Duration,
    ) -> anyhow::Result<()> {
        let backend = &platforms(self.sim(), faults, patience);
        let workers = match operation {
            Operation::ScaleUp => 3,
            _ => 1,
        };
        let (config, home) = (config(self.sandbox.path(), cluster, workers), self.sandbox.home());
        let drain = Drain {
            limit: Duration::from_secs(1),
            force: false,
            delete_emptydir_data: false,
        };
        match operation {
            Operation::Harvest => {
                let options = DeployOptions {
                    harvest_again: true,
                    settings: None,
                };
                passes::harvest(backend, &config, &home, options).await.map(drop)
            }
            Operation::Deploy => passes::deploy(backend, &config, &home, DeployOptions::default())
                .await
                .map(drop),
            Operation::ScaleUp | Operation::ScaleDown => {
                let options = ScaleOptions {
                    drain,
                    installed_workers: 1,
                };
                passes::scale(backend, &config, &home, options, |_| Ok(true))
                    .await
                    .map(drop)
            }
            Operation::Replace => {
                let node = NodeName::node(Role::Worker, 0);
                passes::replace(backend, &config, &home, &node, drain, |_| Ok(true))
                    .await
                    .map(drop)
            }
            Operation::Stop => {
                let options = StopOptions {
                    limit: Duration::from_secs(60),
                    force: false,
                    power_off: false,
                    backup: None,
                };
                passes::stop(backend, &Known::of(&config), &home, options, |_| Ok(true))
                    .await
                    .map(drop)
            }
            Operation::Start => {
                let limit = Duration::from_secs(60);
                passes::start(backend, &Known::of(&config), &home, limit)
                    .await
                    .map(drop)
            }
            Operation::Destroy => {
                passes::destroy(
                    backend,
                    &config.id(),
                    &config.name,
                    Some(&home.cluster(cluster)),
                    false,
                    || {},
                )
                .await
            }
        }
    }

    /// Everything that must be the same whatever failed.
    fn state(&self) -> Value {
        let machines: BTreeMap<_, _> = self.sandbox.machines(None).into_iter().collect();
        let machines: BTreeMap<_, _> = machines
            .into_iter()
            .map(|(name, machine)| {
                let kept = ["cluster", "node", "pass", "off", "nics"].map(|key| machine[key].clone());
                (name, kept)
            })
            .collect();
        let reserved: BTreeMap<_, _> = self.sandbox.reservations(None).into_iter().collect();
        let state = self.sandbox.state();
        json!({
            "machines": machines,
            "reserved": reserved,
            "images": state["uploads"],
            "files": files(self.sandbox.home().root()),
        })
    }
}

fn platforms(sim: Sim, faults: &Rc<Faults>, patience: Duration) -> Platforms {
    let hook = Rc::<Faults>::clone(faults);
    Platforms::on("sim", Box::new(sim))
        .for_at_most(patience)
        .with_hook(hook)
}

fn config(folder: &Path, cluster: &str, workers: usize) -> ClusterConfig {
    let state = folder.join("sim.json");
    let text = format!(
        "cluster={cluster}\ndomain=example.com\nbackend=sim\nsim_state={}\nmasters=1\nworkers={workers}\n\
         image=coreos\nharvest_image=helper\n",
        state.display()
    );
    let sources = Sources {
        env_file: Some((folder.join("lab.sh"), text)),
        environment: BTreeMap::from([("HOME".to_owned(), folder.display().to_string())]),
        flags: BTreeMap::new(),
        current_dir: folder.to_owned(),
        home: folder.join("home"),
        rehearse: true,
        allow_downgrade: false,
        deployment: deployment(),
        read_file: &|path| std::fs::read_to_string(path),
        is_file: &Path::is_file,
        is_dir: &Path::is_dir,
    };
    settings::load(&sources)
        .unwrap_or_else(|error| panic!("{error}"))
        .config
}

fn files(root: &Path) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => _ = files.insert(path.strip_prefix(root).unwrap().to_owned()),
            }
        }
    }
    files
}

/// Reports only the differences.
#[track_caller]
fn same(state: &Value, expected: &Value, why: &str) {
    for (part, value) in state.as_object().unwrap() {
        assert_eq!(value, &expected[part], "{why}: {part}");
    }
}

/// The step between two calls that are tried.
fn stride(usual: usize) -> usize {
    match std::env::var("OCPDEPLOY_FAULTS").as_deref() {
        Ok("all") => 1,
        _ => usual,
    }
}

/// `disturbed` on a larger stack: an unoptimized deployment requires more than a test's thread has.
fn disturb(operation: Operation, before: &'static [Operation], usual: usize) {
    let thread = std::thread::Builder::new().stack_size(8 << 20);
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(disturbed(operation, before, usual));
    };
    if let Err(panic) = thread.spawn(run).unwrap().join() {
        std::panic::resume_unwind(panic);
    }
}

/// Makes each call of an operation fail in each way, and repeats the operation, which must have the usual result.
async fn disturbed(operation: Operation, before: &[Operation], usual: usize) {
    let ground = Ground::after(before).await;
    let calm = Rc::default();
    ground.run(operation, "lab", &calm, MORE).await.unwrap();
    let calls = calm.calls().len();
    let expected = ground.state();

    // Each call fails first and is repeated, also if it was already done.
    for fault in SILENCES {
        ground.restore();
        let faults = Faults::new(fault, When::EachFirst);
        let outcome = ground.run(operation, "lab", &faults, MORE).await;
        let why = format!("{operation:?}: {} at each call's first time", fault.name);
        outcome.unwrap_or_else(|error| panic!("{why}: {}", explain(&error)));
        assert!(
            faults.failed() * 3 > calls,
            "{why}: {} of {calls} failed",
            faults.failed()
        );
        same(&ground.state(), &expected, &why);
    }

    let every = (0..calls).flat_map(|call| {
        let silences = SILENCES.map(|fault| (fault, When::Ever(call)));
        let once = REFUSALS.map(|fault| (fault, When::Once(call)));
        let ever = REFUSALS.map(|fault| (fault, When::Ever(call)));
        let silent_once = SILENCES.map(|fault| (fault, When::Once(call)));
        [&silences[..], &once[..], &ever[..], &silent_once[..]].concat()
    });
    let mut tried = 0;
    for (fault, when) in every.step_by(stride(usual)) {
        ground.restore();
        tried += 1;
        let faults = Faults::new(fault, when);
        let patience = if matches!(when, When::Ever(_)) { PATIENCE } else { MORE };
        let begun = Instant::now();
        let outcome = ground.run(operation, "lab", &faults, patience).await;
        let why = format!("{operation:?}: {} {when:?} ({:?})", fault.name, faults.failing());
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{why}: {:?}",
            begun.elapsed()
        );
        assert!(
            faults.failed() > 0 && faults.failed() < MOST_CALLS,
            "{why}: {} failed",
            faults.failed()
        );
        let verb = faults.failing().unwrap();
        match outcome {
            Ok(()) => {
                let is_silence = SILENCES.iter().any(|silence| silence.name == fault.name);
                assert!(is_silence && matches!(when, When::Once(_)), "{why}: nobody noticed");
            }
            Err(error) => {
                is_well_told(&ground, operation, verb, &fault, &error, &why).await;
                ground.undisturbed(operation, "lab").await;
            }
        }
        same(&ground.state(), &expected, &why);
        if tried % 10 == 1 && operation != Operation::Destroy {
            ground.undisturbed(Operation::Destroy, "lab").await;
            assert_eq!(ground.sandbox.machines(Some("lab")), [], "{why}");
            assert_eq!(ground.sandbox.reservations(Some("lab")), [], "{why}");
            assert_eq!(ground.sandbox.home().cluster_names().unwrap(), ["lab-2"], "{why}");
        }
    }
    println!(
        "reliability: {} faults of {operation:?}",
        tried + SILENCES.len() * calls
    );
    assert!(tried > 5, "{tried} faults are too few");
}

/// The message names the operation, the platform's message, the existing objects and the next command; the exit code fits.
async fn is_well_told(
    ground: &Ground,
    operation: Operation,
    verb: &str,
    fault: &Failing,
    error: &anyhow::Error,
    why: &str,
) {
    let told = explain(error);
    let text = told.to_string();
    assert!(text.contains(verb) && text.contains(fault.name), "{why}: {text}");
    assert!(text.contains("\nhint: "), "{why}: {text}");
    let owned = ground.sim().list_owned(&cluster_id("lab", "example.com")).await;
    let nothing_is_there = owned.unwrap().is_empty();
    let first_look = match operation {
        Operation::Deploy | Operation::Harvest => ["check", "query network", "list the clusters on"].contains(&verb),
        // The same query is made again later; the first one is before the start.
        Operation::ScaleUp | Operation::ScaleDown | Operation::Replace => {
            ["query network", "list the clusters on", "list the machines of cluster"].contains(&verb)
        }
        Operation::Stop | Operation::Start => verb == "list the machines of cluster",
        Operation::Destroy => false,
    };
    // The code is the same before and after the first object exists.
    let code = if fault.kind == Kind::Timeout { 6 } else { 5 };
    assert_eq!(told.kind.exit_code(), code, "{why}: {text}");
    if text.contains(" failed; ") {
        assert!(text.contains("existing objects"), "{why}: {text}");
        assert!(text.contains("run the same command again"), "{why}: {text}");
    } else {
        let is_first = operation == Operation::Destroy && verb == "list the machines of cluster";
        assert!(nothing_is_there || first_look || is_first, "{why}: {text}");
    }
}

#[test]
fn a_harvest_survives_every_fault() {
    disturb(Operation::Harvest, &[], 41);
}

#[test]
fn a_deployment_survives_every_fault() {
    disturb(Operation::Deploy, &[], 43);
}

#[test]
fn scaling_up_survives_every_fault() {
    disturb(Operation::ScaleUp, &[Operation::Deploy], 53);
}

#[test]
fn scaling_down_survives_every_fault() {
    disturb(Operation::ScaleDown, &[Operation::Deploy, Operation::ScaleUp], 13);
}

#[test]
fn replacing_a_node_survives_every_fault() {
    disturb(Operation::Replace, &[Operation::Deploy], 23);
}

#[test]
fn stopping_survives_every_fault() {
    disturb(Operation::Stop, &[Operation::Deploy], 11);
}

#[test]
fn starting_survives_every_fault() {
    disturb(Operation::Start, &[Operation::Deploy, Operation::Stop], 11);
}

#[test]
fn destroying_survives_every_fault() {
    disturb(Operation::Destroy, &[Operation::Deploy], 11);
}

/// Tries one call of the trait against every fault.
macro_rules! survives {
    ($sim:expr, |$backend:ident| $call:expr) => {{
        let calm = {
            let $backend = platforms($sim, &Rc::default(), MORE);
            format!("{:?}", $call.await.unwrap())
        };
        for fault in SILENCES {
            let faults = Faults::new(fault, When::EachFirst);
            let answer = {
                let $backend = platforms($sim, &faults, MORE);
                $call.await
            };
            let answer = format!("{:?}", answer.unwrap());
            // If only the answer was lost, the repeated call finds the operation done.
            let found_done = calm.replace("Done(", "Unchanged(");
            assert!(
                answer == calm || (fault.done && answer == found_done),
                "{fault:?}: {answer}, not {calm}"
            );
            assert_eq!(faults.calls().len(), 2, "{fault:?}");

            let faults = Faults::new(fault, When::Ever(0));
            let answer: Result<_, PlatformError> = {
                let $backend = platforms($sim, &faults, MORE);
                $call.await
            };
            assert_eq!(answer.unwrap_err().kind(), fault.kind);
            assert_eq!(faults.calls().len(), 3, "{fault:?}: no call was answered");
        }
        for fault in REFUSALS {
            let faults = Faults::new(fault, When::Ever(0));
            let answer = {
                let $backend = platforms($sim, &faults, PATIENCE);
                $call.await
            };
            assert_eq!(answer.unwrap_err().kind(), fault.kind);
            assert_eq!(faults.calls().len(), 1, "{fault:?}: a rejected call is not repeated");
        }
    }};
}

#[tokio::test]
async fn every_method_is_repeated_after_silence_and_never_after_a_rejection() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("sim.json");
    std::fs::write(&state, r#"{"v": 1, "script": {"boot_ms": 0}}"#).unwrap();
    let sim = || Sim::open(&SimConfig { state: state.clone() }).unwrap();
    let cluster = cluster_id("lab", "example.com");
    let node = NodeName::node(Role::Worker, 0);
    let name = MachineName::of_node("lab", &node);
    let mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
    let spec = MachineSpec {
        cluster: cluster.clone(),
        name: name.clone(),
        node: node.clone(),
        role: Role::Worker,
        pass: Pass::Two,
        arch: Architecture::X86_64,
        cpus: 1,
        memory_mib: 1024,
        disk_gib: 1,
        extra_disks_gib: vec![],
        image: ImageHandle("coreos".to_owned()),
        nics: vec![Nic {
            network: "default".to_owned(),
            mac,
        }],
        payload: Payload::Ignition(b"{}".to_vec()),
        autostart: false,
        ipv6: None,
        creation: "anna@laptop 2026-11-28T09:12:13Z".parse().unwrap(),
    };
    let hold = AddressReservation {
        cluster: cluster.clone(),
        network: "default".to_owned(),
        assignment: AddressAssignment {
            name: node,
            mac,
            ip: [192, 168, 122, 77].into(),
        },
        ipv6: None,
        dns_names: vec!["worker-0.lab.example.com".to_owned()],
        dns_later: false,
        allowed: vec![],
    };
    let balancer = LoadBalancer {
        cluster: cluster.clone(),
        network: "default".to_owned(),
        vip: Vip::Api,
        ip: None,
        ports: vec![6443],
        roles: vec![Role::Master],
        members: None,
        checked: true,
    };
    let image = ImageRequest::Platform("coreos".to_owned());
    survives!(sim(), |backend| backend.preflight(&Requirements::default()));
    survives!(sim(), |backend| backend.network_facts("default"));
    survives!(sim(), |backend| backend.ensure_image(Role::Worker, &cluster, &image));
    survives!(sim(), |backend| backend.reserve_address(&hold));
    survives!(sim(), |backend| backend.list_reservations(&cluster));
    sim().create_machine(&spec).await.unwrap();
    survives!(sim(), |backend| backend.create_machine(&spec));
    survives!(sim(), |backend| backend.list_machines(&cluster));
    survives!(sim(), |backend| backend.describe_machine(&cluster, &name));
    survives!(sim(), |backend| backend.console_tail(&cluster, &name));
    survives!(sim(), |backend| backend.list_owned(&cluster));
    survives!(sim(), |backend| backend.list_clusters());
    survives!(sim(), |backend| async {
        let attached = backend.attach_console(&cluster, &name).await;
        attached.map(|console| console.is_some())
    });
    sim().stop_machine(&cluster, &name, Stop::Force).await.unwrap();
    survives!(sim(), |backend| backend.stop_machine(&cluster, &name, Stop::Graceful));
    sim().start_machine(&cluster, &name).await.unwrap();
    survives!(sim(), |backend| backend.start_machine(&cluster, &name));
    sim().delete_machine(&cluster, &name).await.unwrap();
    survives!(sim(), |backend| backend.delete_machine(&cluster, &name));
    sim().release_address(&hold).await.unwrap();
    survives!(sim(), |backend| backend.release_address(&hold));
    survives!(sim(), |backend| backend.delete_remaining(&cluster));
    survives!(sim(), |backend| backend.ensure_load_balancer(&balancer));
    survives!(sim(), |backend| backend.choices());
    survives!(sim(), |backend| backend.local_disk_dir());
    survives!(sim(), |backend| backend.server_time());
}

/// Which nodes the platform's load balancers have after each command.
#[tokio::test]
async fn load_balancers_follow_the_table() {
    let sandbox = Sandbox::new(json!({"script": {"boot_ms": 0}}));
    let home = sandbox.home();
    let drain = Drain {
        limit: Duration::from_secs(1),
        force: false,
        delete_emptydir_data: false,
    };
    let run = async |workers: Option<usize>| {
        let state = sandbox.path().join("sim.json");
        let calls = Rc::<Faults>::default();
        let backend = &platforms(Sim::open(&SimConfig { state }).unwrap(), &calls, MORE);
        let mut config = config(sandbox.path(), "lab", workers.unwrap_or(1));
        config.lb = Lb::Platform;
        let vip = |last| Some([192, 168, 122, last].into());
        (config.given.api_ip, config.given.ingress_ip) = (vip(240), vip(241));
        let options = ScaleOptions {
            drain,
            installed_workers: 1,
        };
        let outcome = match workers {
            None => passes::deploy(backend, &config, &home, DeployOptions::default())
                .await
                .map(drop),
            Some(_) => passes::scale(backend, &config, &home, options, |_| Ok(true))
                .await
                .map(drop),
        };
        outcome.unwrap_or_else(|error| panic!("{}", explain(&error)));
        let of_balancer = |(verb, _): &(&str, String)| *verb == "set the load balancer of";
        let mut all: Vec<String> = calls
            .calls()
            .into_iter()
            .filter(of_balancer)
            .map(|(_, to)| to)
            .collect();
        all.dedup();
        all
    };
    let mut deployed = run(None).await;
    deployed.retain(|to| to.contains(" to "));
    let pair = [
        "api at 192.168.122.240 to master-0",
        "ingress at 192.168.122.241 to worker-0",
    ];
    let with_bootstrap = "api at 192.168.122.240 to bootstrap, master-0";
    assert_eq!(deployed, [&[with_bootstrap, pair[1]], &pair[..]].concat());
    let both = "ingress at 192.168.122.241 to worker-0, worker-1";
    assert_eq!(run(Some(2)).await, [pair[0], both]);
    // A removed worker gets no more requests before it is drained.
    assert_eq!(run(Some(1)).await, [pair, pair].concat());
}

#[tokio::test]
async fn a_requested_pause_is_kept_within_the_platform_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("sim.json");
    for (asked, calls) in [(50, 2), (60_000, 1)] {
        let fault = Failing {
            pause: Some(Duration::from_millis(asked)),
            ..SILENCES[5]
        };
        let sim = Sim::open(&SimConfig { state: state.clone() }).unwrap();
        let faults = Faults::new(fault, When::Once(0));
        let patient = platforms(sim, &faults, MORE);
        let begun = Instant::now();
        let answer = patient.network_facts("default").await;
        assert_eq!((answer.is_ok(), faults.calls().len()), (calls == 2, calls));
        assert!(calls == 1 || begun.elapsed() >= Duration::from_millis(asked));
    }
}

/// As the API server of Kubernetes after a restart.
#[tokio::test]
async fn a_denial_after_silence_is_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("sim.json");
    for (faults, expected) in [
        (&["unreachable", "denied", "denied"][..], None),
        (&["denied"], Some(Kind::Denied)),
        (&["unreachable", "rejected"], Some(Kind::Rejected)),
    ] {
        let fault = |(index, what)| json!({"call": "network_facts", "nth": index + 2, "what": what});
        let faults: Vec<_> = faults.iter().enumerate().map(fault).collect();
        std::fs::write(&state, json!({"v": 1, "script": {"faults": faults}}).to_string()).unwrap();
        let sim = Sim::open(&SimConfig { state: state.clone() }).unwrap();
        let patient = platforms(sim, &Rc::default(), MORE);
        patient.network_facts("default").await.unwrap();
        let answer = patient.network_facts("default").await;
        assert_eq!(answer.err().map(|error| error.kind()), expected, "{faults:?}");
    }
}

#[tokio::test]
async fn an_unresponsive_platform_is_waited_for_once() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("sim.json");
    let sim = Sim::open(&SimConfig { state }).unwrap();
    let faults = Faults::new(SILENCES[0], When::Ever(1));
    let patient = platforms(sim, &faults, PATIENCE);
    let asked = || faults.calls().len();
    patient.network_facts("default").await.unwrap();
    patient.network_facts("default").await.unwrap_err();
    let with_patience = asked() - 1;
    patient.network_facts("default").await.unwrap_err();
    let without = asked() - 1 - with_patience;
    assert!(with_patience > 5 && without == 3, "{with_patience}, then {without}");
}

/// Commands with only a cluster's name wait as long as its settings say, and not the default two minutes.
#[test]
fn commands_by_name_wait_as_long_as_the_clusters_settings_say() {
    let sandbox = Sandbox::new(json!({"script": {"boot_ms": 0}}));
    sandbox.env("lab", "masters=1\nworkers=1\nplatform_timeout=1s");
    sandbox.deploy("lab").succeeded();
    let mut all = String::new();
    for (call, words) in [
        ("stop_machine", &["stop", "lab"][..]),
        ("start_machine", &["start", "lab"]),
        ("console_tail", &["node", "console", "master-0"]),
        ("delete_machine", &["destroy", "lab", "--yes"]),
    ] {
        sandbox.edit(|world| {
            let fault = json!({"call": call, "nth": 1, "times": 9_999, "what": "unreachable"});
            world["script"] = json!({"boot_ms": 0, "faults": [fault]});
        });
        let begun = Instant::now();
        let failed = sandbox.run(words);
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(60), "{words:?}: {took:?}");
        all += &format!(
            "$ ocpdeploy {}\nexit code {}\n{}\n",
            words.join(" "),
            failed.code.unwrap_or(-1),
            failed.message()
        );
        sandbox.edit(|world| world["script"] = json!({"boot_ms": 0}));
        if words[0] != "node" {
            sandbox.run(words).succeeded();
        }
    }
    // Both machines are deleted in parallel: either of them may be reported.
    let filters = [(r"delete machine lab-(master|worker)-0", "delete machine <machine>")];
    insta::with_settings!({filters => filters}, { insta::assert_snapshot!(all) });
}

#[test]
fn an_image_push_survives_every_fault() {
    let kinds = [
        ("unreachable", 5),
        ("timeout_before", 6),
        ("timeout_after", 6),
        ("denied", 5),
        ("quota", 5),
        ("rejected", 5),
    ];
    for (what, code) in kinds {
        for nth in [1, 2] {
            let silent = !["denied", "quota", "rejected"].contains(&what);
            for times in [1, 99] {
                let fault = json!({"call": "ensure_image", "nth": nth, "times": times, "what": what});
                let sandbox = Sandbox::new(json!({"script": {"faults": [fault]}}));
                for (name, text) in [
                    ("coreos.qcow2", "QFI\u{fb} a node"),
                    ("helper.qcow2", "QFI\u{fb} a helper"),
                ] {
                    std::fs::write(sandbox.path().join(name), text).unwrap();
                }
                let secret = r#"{"auths": {"registry.example.com": {"auth": "YTpi"}}}"#;
                std::fs::write(sandbox.path().join("pull-secret.json"), secret).unwrap();
                let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEtleSBvZiBhIHRlc3QsIG5vdCBhIHJlYWwgb25lLi4u a test";
                std::fs::write(sandbox.path().join("key.pub"), key).unwrap();
                sandbox.env(
                    "lab",
                    "image=./coreos.qcow2\nharvest_image=./helper.qcow2\npull_secret=pull-secret.json\n\
                     pub_key=key.pub\nplatform_timeout=1s",
                );
                let push = || sandbox.run(&["image", "push", "lab.sh"]);
                let why = format!("{what} at {nth}, {times} times");
                let first = push();
                // The first image may exist although its answer was lost.
                let is_there = nth == 2 || what == "timeout_after";
                let expected = match (silent && times == 1, is_there) {
                    (true, _) => 0,
                    (false, true) => code,
                    (false, false) if what.starts_with("timeout") => 6,
                    (false, false) => 5,
                };
                assert_eq!(first.code, Some(expected), "{why}: {}", first.stderr);
                if expected != 0 && is_there {
                    assert!(first.stderr.contains("existing objects: "), "{why}: {}", first.stderr);
                }
                sandbox.edit(|world| world["script"] = json!({}));
                push().succeeded();
                assert_eq!(sandbox.state()["uploads"].as_object().unwrap().len(), 2, "{why}");
            }
        }
    }
}
