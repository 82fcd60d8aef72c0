//! The program is killed at every change that it makes, and is given a full disk at every write; then it is run again.
//!
//! strace stops the process at the n-th call of a kind that changes something: a write, a rename, a folder, a sync, a
//! child. On the simulated platform, whose state is a file, that is also before and after each call of the backend. A
//! usual test run takes samples; `OCPDEPLOY_CUTS=all` takes every one (`make reliability`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::backup::Backup;
use crate::support::cluster::without_ids;
use crate::support::sandbox::{DOMAIN, Outcome, Sandbox, outcome};
use serde_json::{Value, json};

/// The system calls by which the program or its children change anything.
const CHANGES: [&str; 16] = [
    "chmod",
    "execve",
    "fchmod",
    "fdatasync",
    "fsync",
    "ftruncate",
    "linkat",
    "mkdir",
    "mkdirat",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "unlink",
    "unlinkat",
    "write",
];

/// One master and one worker are enough: every kind of change is in it.
const SMALL: &str = "masters=1\nworkers=1\nimage=coreos\nharvest_image=helper";

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEtleSBvZiBhIHRlc3QsIG5vdCBhIHJlYWwgb25lLi4u a test";

/// A folder that can be restored to an earlier state; its paths stay the same.
struct Ground {
    sandbox: Sandbox,
    backup: Backup,
}

impl Ground {
    /// The folder after these commands.
    fn after(commands: &[&[&str]]) -> Self {
        let sandbox = Sandbox::new(json!({}));
        sandbox.env("lab", SMALL);
        // Another cluster, which must not change.
        sandbox.env("lab-2", SMALL);
        sandbox.deploy("lab-2").succeeded();
        for command in commands {
            sandbox.run(command).succeeded();
        }
        let backup = Backup::of(sandbox.path());
        Self { sandbox, backup }
    }

    fn restore(&self) {
        self.backup.restore(self.sandbox.path());
    }

    /// Everything that must be the same however often a command was interrupted.
    fn state(&self) -> Value {
        let machines: BTreeMap<_, _> = self
            .sandbox
            .machines(None)
            .into_iter()
            .map(|(name, machine)| {
                let all = json!([
                    machine["cluster"]
                        .as_str()
                        .map(|tag| tag.rsplit_once('.').unwrap().0.to_owned()),
                    machine["node"],
                    machine["pass"],
                    machine["off"],
                    machine["nics"][0]["mac"],
                    machine["snapshots"].as_array().map(Vec::len)
                ]);
                (name, all)
            })
            .collect();
        let reservations = self.sandbox.reservations(None).into_iter();
        let reserved: BTreeSet<String> = reservations.map(|(_, kept)| format!("{}", kept["name"])).collect();
        let state = self.sandbox.state();
        json!({
            "machines": machines,
            "reserved": reserved,
            "images": [state["images"], without_ids(&state["uploads"].to_string(), DOMAIN)],
            "files": self.files(),
        })
    }

    /// The names of the files in the state folder; no temporary file may be among them.
    fn files(&self) -> BTreeSet<String> {
        let mut files = BTreeSet::new();
        let mut folders = vec![self.sandbox.home().root().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => _ = files.insert(path.strip_prefix(self.sandbox.path()).unwrap().display().to_string()),
                }
            }
        }
        files
    }

    /// Each machine of pass two has its address of the table, which no other machine has.
    #[track_caller]
    fn is_consistent(&self, why: &str) {
        let mut taken = BTreeSet::new();
        for cluster in ["lab", "lab-2"] {
            let Some(table) = self.sandbox.parameters(cluster) else {
                continue;
            };
            for lease in table.leases() {
                assert!(taken.insert(lease.ip), "{why}: {} is used twice", lease.ip);
            }
            let machines: BTreeMap<_, _> = self.sandbox.machines(Some(cluster)).into_iter().collect();
            for node in &table.nodes {
                if let Some(machine) = machines.get(&format!("{cluster}-{}", node.name)) {
                    assert_eq!(machine["nics"][0]["mac"], node.mac.to_string(), "{why}: {}", node.name);
                }
            }
        }
    }

    /// Runs the program under strace with this `inject`, on the file `only` if it is given.
    fn disturbed(&self, arguments: &[&str], inject: &str, only: Option<&Path>) -> Outcome {
        let call = inject.split(':').next().unwrap_or_default();
        let program = self.sandbox.command(arguments);
        // A program that hangs is a failure, too.
        let mut strace = Command::new("timeout");
        strace.args(["60", "strace", "-f", "-qq", "-o", "/dev/null", "-e"]);
        strace.args([format!("trace={call}"), "-e".to_owned(), format!("inject={inject}")]);
        if let Some(path) = only {
            strace.arg("-P").arg(path);
        }
        strace.arg(program.get_program()).args(program.get_args()).env_clear();
        strace.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        strace.env("PATH", std::env::var_os("PATH").unwrap());
        strace.current_dir(self.sandbox.path()).stdin(Stdio::null());
        let child = strace.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        outcome(child.expect("timeout and strace are installed"))
    }
}

/// The step between two calls that are tried.
fn stride(usual: usize) -> usize {
    match std::env::var("OCPDEPLOY_CUTS").as_deref() {
        Ok("all") => 1,
        _ => usual,
    }
}

/// Interrupts a command at each change; a second run must have the usual result. Returns the number of interruptions.
fn cut_everywhere(ground: &Ground, arguments: &[&str], usual: usize, done: impl Fn(&Outcome) -> bool) -> usize {
    let quiet: Vec<&str> = ["-q"].iter().chain(arguments).copied().collect();
    ground.sandbox.run(&quiet).succeeded();
    let expected = ground.state();
    let (mut cuts, stride) = (0, stride(usual));
    for (offset, call) in CHANGES.iter().enumerate() {
        // The first of its own kind, too.
        for n in (1 + offset % stride..).step_by(stride) {
            ground.restore();
            let cut = ground.disturbed(&quiet, &format!("{call}:signal=SIGKILL:when={n}"), None);
            if cut.code == Some(0) {
                break;
            }
            assert_eq!(cut.code, None, "{arguments:?} was not killed: {}", cut.stderr);
            cuts += 1;
            let why = format!("{arguments:?} killed at {call} {n}");
            if *call == "fdatasync" {
                tear(&ground.sandbox.home().cluster("lab").journal());
            }
            let again = ground.sandbox.run(&quiet);
            assert!(done(&again), "{why}: {}", again.stderr);
            same(&ground.state(), &expected, &why);
            ground.is_consistent(&why);
        }
    }
    cuts
}

/// Reports only the differences.
#[track_caller]
fn same(state: &Value, expected: &Value, why: &str) {
    for (part, value) in state.as_object().unwrap() {
        assert_eq!(value, &expected[part], "{why}: {part}");
    }
}

/// Data that was written and not synced may be stored in part.
fn tear(journal: &PathBuf) {
    let Ok(text) = std::fs::read_to_string(journal) else {
        return;
    };
    let last = text.lines().last().map_or(0, str::len);
    let file = std::fs::OpenOptions::new().write(true).open(journal).unwrap();
    file.set_len((text.len() - last / 2) as u64).unwrap();
}

fn succeeded(outcome: &Outcome) -> bool {
    outcome.code == Some(0)
}

/// Prints the number for `make reliability`.
fn tell(what: &str, number: usize) {
    println!("reliability: {number} {what}");
    assert!(number > 10, "{number} {what}: too few");
}

#[test]
fn a_deployment_interrupted_anywhere_has_the_same_result() {
    let ground = Ground::after(&[]);
    let cuts = cut_everywhere(&ground, &["deploy", "lab.sh", "--rehearse"], 13, succeeded);
    tell("cuts of deploy", cuts);
}

#[test]
fn a_harvest_interrupted_anywhere_has_the_same_result() {
    let ground = Ground::after(&[]);
    let cuts = cut_everywhere(&ground, &["harvest", "lab.sh", "--rehearse"], 9, succeeded);
    tell("cuts of harvest", cuts);
}

#[test]
fn scaling_interrupted_anywhere_has_the_same_result() {
    let deploy: &[&str] = &["deploy", "lab.sh", "--rehearse"];
    let up: &[&str] = &["scale", "lab", "--workers", "3"];
    let ground = Ground::after(&[deploy]);
    let mut cuts = cut_everywhere(&ground, up, 9, succeeded);
    let ground = Ground::after(&[deploy, up]);
    cuts += cut_everywhere(&ground, &["scale", "lab", "--workers", "1", "--yes"], 5, succeeded);
    tell("cuts of scale, up and down", cuts);
}

#[test]
fn replacing_a_node_interrupted_anywhere_has_the_same_result() {
    let ground = Ground::after(&[&["deploy", "lab.sh", "--rehearse"]]);
    let cuts = cut_everywhere(&ground, &["node", "replace", "lab", "worker-0", "--yes"], 5, succeeded);
    tell("cuts of node replace", cuts);
}

#[test]
fn destroying_interrupted_anywhere_leaves_nothing() {
    let ground = Ground::after(&[&["deploy", "lab.sh", "--rehearse"]]);
    // Interrupted after its last change, the cluster has no record any more.
    let done = |again: &Outcome| succeeded(again) || again.stderr.contains("no cluster lab in the state directory");
    let cuts = cut_everywhere(&ground, &["destroy", "lab", "--yes"], 2, done);
    assert_eq!(ground.sandbox.machines(Some("lab")), []);
    assert_eq!(ground.sandbox.reservations(Some("lab")), []);
    assert_eq!(ground.sandbox.home().cluster_names().unwrap(), ["lab-2"]);
    println!("reliability: 0 objects left");
    tell("cuts of destroy", cuts);
}

#[test]
fn a_snapshot_interrupted_anywhere_has_the_same_result() {
    let deploy: &[&str] = &["deploy", "lab.sh", "--rehearse"];
    let save: &[&str] = &["snapshot", "save", "lab", "before"];
    let restore: &[&str] = &["snapshot", "restore", "lab", "before", "--yes"];
    let ground = Ground::after(&[deploy]);
    // Interrupted after its last change, everything is done.
    let saved = |again: &Outcome| succeeded(again) || again.stderr.contains("has a snapshot before already");
    let mut cuts = cut_everywhere(&ground, save, 9, saved);
    let ground = Ground::after(&[deploy, save]);
    cuts += cut_everywhere(&ground, restore, 9, succeeded);
    let deleted = |again: &Outcome| succeeded(again) || again.stderr.contains("has no snapshot before");
    cuts += cut_everywhere(&ground, &["snapshot", "delete", "lab", "before", "--yes"], 5, deleted);
    tell("cuts of snapshot save, restore and delete", cuts);
}

#[test]
fn an_image_push_interrupted_anywhere_has_the_same_result() {
    let mut ground = Ground::after(&[]);
    for (name, text) in [
        ("coreos.qcow2", "QFI\u{fb} a node"),
        ("helper.qcow2", "QFI\u{fb} a helper"),
        (
            "pull-secret.json",
            r#"{"auths": {"registry.example.com": {"auth": "YTpi"}}}"#,
        ),
        ("key.pub", KEY),
    ] {
        std::fs::write(ground.sandbox.path().join(name), text).unwrap();
    }
    let images = "image=./coreos.qcow2\nharvest_image=./helper.qcow2\npull_secret=pull-secret.json\npub_key=key.pub";
    ground.sandbox.env("lab", images);
    ground.backup = Backup::of(ground.sandbox.path());
    let cuts = cut_everywhere(&ground, &["image", "push", "lab.sh"], 1, succeeded);
    tell("cuts of image push", cuts);
}

#[test]
fn a_full_disk_is_reported_and_nothing_is_lost() {
    let ground = Ground::after(&[]);
    let deploy = ["deploy", "lab.sh", "--rehearse"];
    ground.sandbox.run(&deploy).succeeded();
    let expected = ground.state();
    let (mut faults, stride) = (0, stride(4));
    let journal = ground.sandbox.home().cluster("lab").journal();
    for (call, only) in [
        ("write", Some(journal.as_path())),
        ("fdatasync", None),
        ("fsync", None),
        ("mkdir", None),
        ("renameat", None),
    ] {
        for n in (1..).step_by(stride) {
            ground.restore();
            let full = ground.disturbed(&deploy, &format!("{call}:error=ENOSPC:when={n}"), only);
            let why = format!("no room at {call} {n}");
            if full.code != Some(0) {
                faults += 1;
                let told = full.message().contains("No space left on device");
                assert!(told && full.code != Some(70), "{why}: {:?} {}", full.code, full.stderr);
            }
            ground.sandbox.run(&deploy).succeeded();
            same(&ground.state(), &expected, &why);
            if full.code == Some(0) {
                break;
            }
        }
    }
    tell("full disks", faults);
}
