//! Random sequences of commands on one cluster, including rejected, failing and killed ones: the record
//! describes what is on the platform, a rejected command changes nothing, and a complete cluster is lost by `destroy`
//! only.
//!
//! `OCPDEPLOY_SEQUENCES=n` sets their number (`make reliability`); a failing one is shortened and printed as commands.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::backup::Backup;
use crate::support::folder::{files, platform};
use crate::support::lab_site::{LINES, Site};
use crate::support::sandbox::{DOMAIN, Outcome};
use ocpdeploy::backend::Backend;
use ocpdeploy::backend::sim::Sim;
use ocpdeploy::cluster::{ClusterDomain, Role, SimConfig};
use ocpdeploy::report::state::{Power, Progress, State};
use ocpdeploy::state::inventory::{self, Cluster};
use ocpdeploy::state::journal;
use ocpdeploy::state::parameters::Parameters;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestError, TestRunner};
use serde_json::{Value, json};

/// The settings of every cluster here; a twist comes after them, and the later line counts.
const BASE: &str = "masters=1\nworkers=1\nimage=./node.qcow2\nharvest_image=./helper.qcow2\nplatform_timeout=1s\n";

/// The state at the start of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Start {
    Nothing,
    Harvested,
    Rehearsed,
    Installed,
}

impl Start {
    const ALL: [Self; 4] = [Self::Nothing, Self::Harvested, Self::Rehearsed, Self::Installed];

    fn commands(self) -> Vec<Command> {
        match self {
            Self::Nothing => vec![],
            Self::Harvested => vec![Command::Harvest { rehearse: false }],
            Self::Rehearsed => vec![Command::Deploy {
                rehearse: true,
                harvest: false,
            }],
            Self::Installed => vec![Command::Deploy {
                rehearse: false,
                harvest: false,
            }],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Deploy { rehearse: bool, harvest: bool },
    Harvest { rehearse: bool },
    Scale { workers: usize },
    Replace { node: &'static str },
    Stop { force: bool },
    Start,
    Verify { repair: bool },
    Destroy { how: &'static str },
}

impl Command {
    fn arguments(self) -> Vec<String> {
        let mut words = match self {
            Self::Deploy { .. } => vec!["deploy", "lab.sh"],
            Self::Harvest { .. } => vec!["harvest", "lab.sh"],
            Self::Scale { .. } => vec!["scale", "lab", "--yes", "--workers"],
            Self::Replace { node } => vec!["node", "replace", "lab", node, "--yes"],
            Self::Stop { .. } => vec!["stop", "lab", "--timeout", "5s"],
            Self::Start => vec!["start", "lab", "--timeout", "10s"],
            Self::Verify { .. } => vec!["verify", "lab"],
            Self::Destroy { how } => vec!["destroy", "lab", how],
        };
        match self {
            Self::Deploy { rehearse, harvest } => {
                words.extend(rehearse.then_some("--rehearse"));
                words.extend(harvest.then_some("--harvest"));
            }
            Self::Harvest { rehearse: true } => words.push("--rehearse"),
            Self::Stop { force: true } => words.push("--force"),
            Self::Verify { repair: true } => words.push("--repair"),
            Self::Destroy {
                how: "--keep-addresses",
            } => words.push("--yes"),
            _ => {}
        }
        let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        if let Self::Scale { workers } = self {
            words.push(workers.to_string());
        }
        words
    }

    /// Whether it may delete machines for good.
    fn destroys(self) -> bool {
        matches!(
            self,
            Self::Destroy {
                how: "--yes" | "--keep-addresses"
            }
        )
    }

    /// The nodes that it may remove and recreate.
    fn touches(self, node: &str) -> bool {
        match self {
            Self::Scale { workers } => {
                let number = node
                    .strip_prefix("worker-")
                    .and_then(|number| number.parse::<usize>().ok());
                number.is_some_and(|number| number >= workers)
            }
            Self::Replace { node: replaced } => node == replaced,
            _ => self.destroys(),
        }
    }
}

/// A special condition while one command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Twist {
    None,
    /// A line of the env file.
    Setting(&'static str),
    /// The platform rejects the first such call.
    Fault {
        call: &'static str,
        nth: u32,
        what: &'static str,
    },
    /// The platform has no room left.
    Full,
    /// It is killed after so many milliseconds.
    Kill(u64),
}

/// Lines with which a command must be rejected, or which do not affect existing objects.
const SETTINGS: [&str; 13] = [
    "domain=example.org",
    "master_memory=7777",
    "worker_memory=7777",
    "bootstrap_memory=7777",
    "network=elsewhere",
    "masters=3",
    "workers=2",
    "workers=0",
    "image=./missing.qcow2",
    "image=./helper.qcow2",
    "harvest_image=gone",
    "pub_key=other.pub",
    "ignition_extra=extra.ign",
];

#[derive(Clone, Copy, Debug)]
struct Step {
    command: Command,
    twist: Twist,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ocpdeploy {}", self.command.arguments().join(" "))?;
        match self.twist {
            Twist::None => Ok(()),
            Twist::Setting(line) => write!(f, "    # with {line}"),
            Twist::Fault { call, nth, what } => write!(f, "    # call {nth} of {call}: {what}"),
            Twist::Full => write!(f, "    # no memory is left"),
            Twist::Kill(ms) => write!(f, "    # killed after {ms} ms"),
        }
    }
}

#[derive(Clone)]
struct Sequence {
    start: Start,
    steps: Vec<Step>,
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n  # {:?}", self.start)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "  {step}"))
    }
}

/// Whether a command has the other kind, rehearsal or real cluster, than the existing cluster.
fn flip() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.25)
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        6 => (flip(), prop::bool::weighted(0.2)).prop_map(|(rehearse, harvest)| Command::Deploy { rehearse, harvest }),
        2 => flip().prop_map(|rehearse| Command::Harvest { rehearse }),
        3 => (0usize..3).prop_map(|workers| Command::Scale { workers }),
        3 => prop::sample::select(vec!["master-0", "worker-0", "worker-1"]).prop_map(|node| Command::Replace { node }),
        3 => any::<bool>().prop_map(|force| Command::Stop { force }),
        3 => Just(Command::Start),
        1 => any::<bool>().prop_map(|repair| Command::Verify { repair }),
        2 => prop::sample::select(vec!["--yes", "--keep-addresses", "--dry-run"]).prop_map(|how| Command::Destroy { how }),
    ]
}

fn twist() -> impl Strategy<Value = Twist> {
    let calls = vec![
        "preflight",
        "network_facts",
        "ensure_image",
        "create_machine",
        "list_machines",
        "delete_machine",
        "start_machine",
        "stop_machine",
        "reserve_address",
        "release_address",
        "delete_remaining",
        "list_owned",
    ];
    let fault = (
        prop::sample::select(calls),
        1u32..4,
        prop::sample::select(vec!["denied", "quota", "rejected", "timeout_after"]),
    );
    prop_oneof![
        9 => Just(Twist::None),
        5 => prop::sample::select(SETTINGS.to_vec()).prop_map(Twist::Setting),
        3 => fault.prop_map(|(call, nth, what)| Twist::Fault { call, nth, what }),
        1 => Just(Twist::Full),
        2 => (5u64..400).prop_map(Twist::Kill),
    ]
}

fn sequence() -> impl Strategy<Value = Sequence> {
    let step = (command(), twist()).prop_map(|(command, twist)| Step { command, twist });
    let starts = prop::sample::select(Start::ALL.to_vec());
    (starts, any::<bool>(), prop::collection::vec(step, 3..7)).prop_map(|(start, kind, mut steps)| {
        let kind = match start {
            Start::Nothing => kind,
            start => start == Start::Rehearsed,
        };
        // Most commands match the existing cluster; otherwise most would be rejected.
        for step in &mut steps {
            if let Command::Deploy { rehearse, .. } | Command::Harvest { rehearse } = &mut step.command {
                *rehearse ^= kind;
            }
        }
        Sequence { start, steps }
    })
}

/// Everything that a rejected command must not change.
#[derive(Clone, PartialEq, Eq)]
struct Whole {
    files: BTreeMap<String, String>,
    platform: Value,
}

/// The number of rejected commands in all sequences.
#[derive(Default)]
struct Counts {
    refused: AtomicUsize,
    changed: AtomicUsize,
    succeeded: AtomicUsize,
}

struct Ground {
    site: Site,
    starts: BTreeMap<Start, Backup>,
    runtime: tokio::runtime::Runtime,
}

impl Ground {
    fn new(network: &str) -> Self {
        let mut ground = Self {
            site: Site::new(network),
            starts: BTreeMap::new(),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap(),
        };
        let sandbox = &ground.site.sandbox;
        let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvT2Wdq2dMbFf8hh+o/a4HZMBbqvP6vpsXfB4pMJ6Mb other\n";
        std::fs::write(sandbox.path().join("other.pub"), key).unwrap();
        let extra = r#"{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/etc/extra"}]}}"#;
        std::fs::write(sandbox.path().join("extra.ign"), extra).unwrap();
        let nothing = Backup::of(sandbox.path());
        for start in Start::ALL {
            nothing.restore(ground.site.sandbox.path());
            ground.site.restore_api();
            for command in start.commands() {
                let outcome = ground.run(Step {
                    command,
                    twist: Twist::None,
                });
                outcome.succeeded();
            }
            let backup = Backup::of(ground.site.sandbox.path());
            ground.starts.insert(start, backup);
        }
        ground
    }

    fn run(&mut self, step: Step) -> Outcome {
        let line = match step.twist {
            Twist::Setting(line) => line,
            _ => "",
        };
        self.site.sandbox.env("lab", &format!("{LINES}{BASE}{line}"));
        let script = match step.twist {
            Twist::Fault { call, nth, what } => {
                json!({"boot_ms": 1, "faults": [{"call": call, "nth": nth, "what": what}]})
            }
            _ => json!({"boot_ms": 1}),
        };
        let limits = match step.twist {
            Twist::Full => json!({"memory_mib": 1}),
            _ => json!({}),
        };
        self.site
            .sandbox
            .edit(|world| (world["script"], world["limits"]) = (script, limits));
        let life = match step.twist {
            Twist::Kill(ms) => Some(Duration::from_millis(ms)),
            _ => None,
        };
        let arguments = step.command.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let outcome = self.site.run_for(&arguments, life);
        // Later queries are not affected.
        self.site
            .sandbox
            .edit(|world| (world["script"], world["limits"]) = (json!({"boot_ms": 1}), json!({})));
        outcome
    }

    fn whole(&self) -> Whole {
        Whole {
            files: files(self.site.sandbox.home().cluster("lab").path()),
            platform: platform(&self.site.sandbox.state()),
        }
    }

    fn cluster(&self) -> Option<Cluster> {
        inventory::find(&self.site.sandbox.home(), "lab").unwrap()
    }

    fn progress(&self, cluster: &Cluster) -> Progress {
        let dir = self.site.sandbox.home().cluster("lab");
        let sim = SimConfig {
            state: self.site.sandbox.path().join("sim.json"),
        };
        let id = cluster.known.id();
        let machines = self
            .runtime
            .block_on(async { Sim::open(&sim).unwrap().list_machines(&id).await.unwrap() });
        let entries = journal::read(&dir.journal()).unwrap();
        Progress::of(cluster, &entries, journal::holder(&dir).as_ref(), Some(&machines))
    }

    /// The machines of pass two, by node.
    fn machines(&self) -> BTreeMap<String, Value> {
        let machines = self.site.sandbox.machines(None).into_iter();
        let second = machines.filter(|(_, machine)| machine["pass"] == "two");
        second
            .map(|(_, machine)| (machine["node"].as_str().unwrap().to_owned(), machine))
            .collect()
    }

    /// Runs a sequence from its start; an error names the command and what is wrong after it.
    fn try_one(&mut self, sequence: &Sequence, counts: &Counts) -> Result<(), String> {
        self.starts[&sequence.start].restore(self.site.sandbox.path());
        self.site.restore_api();
        let mut rehearsed = self
            .cluster()
            .filter(|_| !self.machines().is_empty())
            .map(|it| it.known.rehearsal);
        for step in &sequence.steps {
            let before = self.whole();
            let (was, machines) = (self.cluster(), self.machines());
            let was = was.map(|cluster| (self.progress(&cluster), cluster));
            let outcome = self.run(*step);
            let after = self.whole();
            let mut wrong = Vec::new();
            if is_refusal(*step, &outcome) {
                counts.refused.fetch_add(1, Ordering::Relaxed);
                if after != before {
                    counts.changed.fetch_add(1, Ordering::Relaxed);
                    wrong.push(format!("it was refused, and changed {}", difference(&before, &after)));
                }
            }
            if outcome.code == Some(0) {
                counts.succeeded.fetch_add(1, Ordering::Relaxed);
            }
            let now = self.machines();
            // The kind of the command that created the first of these machines.
            rehearsed = match step.command {
                _ if now.is_empty() => None,
                Command::Deploy { rehearse, .. } => rehearsed.or(Some(rehearse)),
                _ => rehearsed,
            };
            wrong.extend(self.record_is_true(rehearsed));
            if outcome.code == Some(0) {
                wrong.extend(self.fits_success(step.command));
            }
            if let Some((progress, cluster)) = was.filter(|(progress, _)| progress.power.is_some())
                && !step.command.destroys()
            {
                let _ = progress;
                wrong.extend(self.is_lost(step.command, &cluster, &before, &machines));
            }
            if !wrong.is_empty() {
                return Err(format!("after `{step}`: {}\n{}", wrong.join("; "), outcome.stderr));
            }
        }
        Ok(())
    }

    /// Compares the record with the platform after the last command, whatever its result.
    fn record_is_true(&self, rehearsed: Option<bool>) -> Vec<String> {
        let (machines, mut wrong) = (self.machines(), Vec::new());
        let sandbox = &self.site.sandbox;
        let domain = ClusterDomain::new("lab", DOMAIN);
        let on_platform = sandbox.machines(None).len() + sandbox.reservations(None).len();
        let Some(cluster) = self.cluster() else {
            if on_platform > 0 {
                wrong.push(format!(
                    "{on_platform} objects are on the platform without a cluster.json"
                ));
            }
            return wrong;
        };
        let known = &cluster.known;
        if known.cluster_domain() != domain
            || known.backend.place() != format!("sim {}", sandbox.path().join("sim.json").display())
        {
            wrong.push(format!("the record is of {} on {}", known.id(), known.backend.place()));
        }
        if rehearsed.is_some_and(|rehearsed| rehearsed != known.rehearsal) {
            wrong.push(format!(
                "the record says rehearsal: {}, and the machines are not",
                known.rehearsal
            ));
        }
        for (role, size) in [
            ("bootstrap", &known.sizes.bootstrap),
            ("master", &known.sizes.master),
            ("worker", &known.sizes.worker),
        ] {
            let of_role = machines.values().filter(|machine| machine["role"] == role);
            let newest = of_role.max_by_key(|machine| machine["created_ms"].as_u64());
            if let Some(newest) = newest
                && newest["memory_mib"] != json!(size.memory_mib)
            {
                let there = &newest["memory_mib"];
                wrong.push(format!("a {role} has {there} MiB, the record says {}", size.memory_mib));
            }
        }
        let settings: Option<Value> = std::fs::read(sandbox.home().cluster("lab").settings())
            .ok()
            .map(|text| serde_json::from_slice(&text).unwrap());
        if let Some(settings) = settings
            && settings["rehearse"] != json!(known.rehearsal)
        {
            wrong.push("settings.json and cluster.json differ in what was rehearsed".to_owned());
        }
        let table = cluster.parameters.as_ref();
        for (node, machine) in &machines {
            let planned = table.and_then(|table| table.nodes.iter().find(|planned| planned.name.as_str() == node));
            if planned.is_none_or(|planned| machine["nics"][0]["mac"] != planned.mac.to_string()) {
                wrong.push(format!("machine {node} is not as in the table"));
            }
        }
        let progress = self.progress(&cluster);
        let off: BTreeSet<_> = progress.off.iter().map(|node| node.to_string()).collect();
        let is_off = machines.iter().filter(|(_, machine)| machine["off"] == true);
        let is_off: BTreeSet<_> = is_off
            .map(|(node, _)| node.clone())
            .filter(|node| node != "bootstrap")
            .collect();
        let is_complete = progress.power.is_some();
        let on = machines
            .iter()
            .filter(|(node, machine)| *node != "bootstrap" && machine["off"] != true)
            .count();
        let expected = match progress.state {
            // Missing machines are not on either.
            State::Failed => progress.power,
            _ if is_off.is_empty() => Some(Power::Running),
            _ if on == 0 => Some(Power::Stopped),
            _ => Some(Power::PartlyStopped),
        };
        if is_complete && (off != is_off || progress.power != expected) {
            wrong.push(format!(
                "{} is reported for a cluster of which {is_off:?} are off",
                progress.phase
            ));
        }
        if matches!(progress.state, State::New | State::Harvested) && !machines.is_empty() {
            wrong.push(format!("{} is said of a cluster that has machines", progress.phase));
        }
        wrong
    }

    /// The errors of a state after a successful command.
    fn fits_success(&self, command: Command) -> Vec<String> {
        let (cluster, machines) = (self.cluster(), self.machines());
        let table = cluster.as_ref().and_then(|cluster| cluster.parameters.as_ref());
        let nodes = |table: Option<&Parameters>| -> BTreeSet<String> {
            let nodes = table.iter().flat_map(|table| &table.nodes);
            let nodes = nodes.filter(|node| node.role != Role::Bootstrap);
            nodes.map(|node| node.name.to_string()).collect()
        };
        let there: BTreeSet<_> = machines.keys().cloned().collect();
        let power = cluster.as_ref().and_then(|cluster| self.progress(cluster).power);
        let is_so = match command {
            Command::Deploy { rehearse, .. } => {
                there == nodes(table)
                    && power == Some(Power::Running)
                    && cluster.is_some_and(|cluster| cluster.known.rehearsal == rehearse)
            }
            Command::Harvest { .. } => there.is_empty() && table.is_some() && power.is_none(),
            // It does not repair a master that an earlier command lost.
            Command::Scale { workers } => {
                let of_workers = |nodes: &BTreeSet<String>| -> BTreeSet<String> {
                    nodes
                        .iter()
                        .filter(|node| node.starts_with("worker-"))
                        .cloned()
                        .collect()
                };
                of_workers(&there).len() == workers && of_workers(&there) == of_workers(&nodes(table))
            }
            Command::Replace { node } => there.contains(node),
            Command::Stop { .. } => power == Some(Power::Stopped),
            Command::Start => power == Some(Power::Running),
            Command::Verify { .. } | Command::Destroy { how: "--dry-run" } => true,
            Command::Destroy {
                how: "--keep-addresses",
            } => there.is_empty() && cluster.is_some(),
            Command::Destroy { .. } => there.is_empty() && cluster.is_none(),
        };
        match is_so {
            true => vec![],
            false => vec![format!("it succeeded, and there are {there:?}, power {power:?}")],
        }
    }

    /// The objects of a complete cluster that a command lost, although it does not destroy the cluster.
    fn is_lost(
        &self,
        command: Command,
        was: &Cluster,
        before: &Whole,
        machines: &BTreeMap<String, Value>,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        let Some(now) = self.cluster() else {
            return vec!["the record of a complete cluster is gone".to_owned()];
        };
        if self.progress(&now).power.is_none() {
            wrong.push("a complete cluster is complete no more".to_owned());
        }
        let after = self.machines();
        for (node, machine) in machines.iter().filter(|(node, _)| !command.touches(node)) {
            // One that is left of the installation goes with its end.
            let stays = after
                .get(node)
                .is_some_and(|now| now["created_ms"] == machine["created_ms"]);
            if !stays && node != "bootstrap" {
                wrong.push(format!("machine {node} of a complete cluster is gone"));
            }
        }
        let nodes = was.parameters.iter().flat_map(|table| &table.nodes);
        for node in
            nodes.filter(|node| !matches!(command, Command::Scale { .. }) || !command.touches(node.name.as_str()))
        {
            let same = now.parameters.as_ref().and_then(|table| table.node(&node.name)) == Some(node);
            if !same {
                wrong.push(format!("the table has lost {}", node.name));
            }
        }
        let files = files(self.site.sandbox.home().cluster("lab").path());
        let secrets = before.files.iter().filter(|(name, _)| name.starts_with("installer/"));
        for (name, content) in secrets {
            if files.get(name) != Some(content) {
                wrong.push(format!("{name} of a complete cluster is gone or other"));
            }
        }
        wrong
    }
}

/// Whether a command ended before it started anything, from its message, because many errors share an exit code; a twist
/// of the settings never gets further on an existing cluster.
fn is_refusal(step: Step, outcome: &Outcome) -> bool {
    if matches!(outcome.code, None | Some(0)) || (outcome.code == Some(1) && outcome.stderr.is_empty()) {
        return false;
    }
    let words = [
        "found before anything was created",
        "is a rehearsal; ",
        "is a real cluster; ",
        "exists with",
        "does not match the settings",
        "has machines of pass two",
        "was done with other settings",
        "is not installed yet",
        "is installed, and `deploy` does not change it",
        "the addresses of cluster lab are not known yet",
        "one worker must remain",
        "is not a node of the cluster",
        "cannot be replaced now",
        "must not be stopped yet",
        "switched off: ",
        "no cluster lab in the state directory",
        "the settings describe cluster",
        "no such file",
        "no network elsewhere",
    ];
    // Pass one queries the network again, before it reserves addresses.
    let is_before = match step.twist {
        Twist::Fault { call, nth, .. } => call == "preflight" || (call == "network_facts" && nth == 1),
        _ => false,
    };
    let message = outcome.message();
    let refused_words = words.iter().any(|words| message.contains(words));
    let is_new = message.contains(" failed; ");
    refused_words || (is_before && !is_new) || outcome.code == Some(2) || outcome.code == Some(3)
}

fn difference(before: &Whole, after: &Whole) -> String {
    let names: BTreeSet<_> = before.files.keys().chain(after.files.keys()).collect();
    let changed = names
        .into_iter()
        .filter(|name| before.files.get(*name) != after.files.get(*name));
    let mut changed: Vec<String> = changed.cloned().collect();
    if before.platform != after.platform {
        changed.push("the platform".to_owned());
    }
    changed.join(", ")
}

/// The number of parallel workers: a sequence mostly waits.
const MOST_WORKERS: usize = 4;

/// Each worker prepares the start states once, which takes as long as this many sequences.
const OF_ONE: usize = 6;

#[test]
fn no_sequence_of_commands_makes_the_record_wrong() {
    let all = std::env::var("OCPDEPLOY_SEQUENCES")
        .ok()
        .and_then(|number| number.parse().ok());
    let all: usize = all.unwrap_or(24);
    let number = (all / OF_ONE).clamp(1, MOST_WORKERS);
    let counts = Counts::default();
    let failures: Vec<String> = std::thread::scope(|scope| {
        let counts = &counts;
        let worker = |index: usize| move || tried(index, all.div_ceil(number), counts);
        let workers: Vec<_> = (0..number).map(|index| scope.spawn(worker(index))).collect();
        workers
            .into_iter()
            .filter_map(|worker| worker.join().unwrap())
            .collect()
    });
    let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
    println!("reliability: {} sequences of commands", all.div_ceil(number) * number);
    println!(
        "reliability: {} commands of sequences were refused, {} succeeded",
        count(&counts.refused),
        count(&counts.succeeded)
    );
    println!("reliability: {} refusals that changed a file", count(&counts.changed));
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert!(count(&counts.refused) > 0 && count(&counts.succeeded) > 0);
}

/// Runs this many sequences in a separate folder; returns the error of the shortest that fails.
fn tried(index: usize, cases: usize, counts: &Counts) -> Option<String> {
    let mut ground = Ground::new(&format!("97.{}", index + 1));
    let ground = std::cell::RefCell::new(&mut ground);
    let config = ProptestConfig {
        cases: u32::try_from(cases).unwrap(),
        failure_persistence: None,
        max_shrink_iters: 60,
        ..ProptestConfig::default()
    };
    let tried = TestRunner::new(config).run(&sequence(), |sequence| {
        let tried = ground.borrow_mut().try_one(&sequence, counts);
        tried.map_err(TestCaseError::fail)
    });
    match tried {
        Ok(()) => None,
        Err(TestError::Fail(why, sequence)) => Some(format!("{sequence:?}{why}")),
        Err(abort) => Some(abort.to_string()),
    }
}

/// The files are compared in place.
#[test]
fn a_change_of_one_byte_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let path: &Path = folder.path();
    std::fs::write(path.join("a"), "1").unwrap();
    let before = files(path);
    std::fs::write(path.join("a"), "2").unwrap();
    assert_ne!(files(path), before);
}
