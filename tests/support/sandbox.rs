//! A folder with a simulated platform and a state folder, in which the program is run.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ocpdeploy::cluster::{ClusterDomain, ClusterId};
use ocpdeploy::state::home::Home;
use ocpdeploy::state::journal::{self, Event};
use ocpdeploy::state::parameters::Parameters;
use serde_json::{Value, json};

pub const DOMAIN: &str = "example.com";

pub struct Sandbox {
    folder: tempfile::TempDir,
}

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// `None` when a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self
    }

    /// The message at the end, without the progress before it.
    pub fn message(&self) -> &str {
        self.stderr.find("error: ").map_or("", |at| &self.stderr[at..])
    }
}

impl Sandbox {
    /// A simulated platform whose file has `world` and its version.
    pub fn new(mut world: Value) -> Self {
        let sandbox = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        world["v"] = json!(1);
        sandbox.write_state(&world);
        sandbox
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn home(&self) -> Home {
        Home::new(self.path().join("home"))
    }

    fn state_file(&self) -> PathBuf {
        self.path().join("sim.json")
    }

    /// Atomically: a fake that reads an empty file finds no machines.
    fn write_state(&self, world: &Value) {
        let new = self.path().join("sim.json.edited");
        std::fs::write(&new, world.to_string()).unwrap();
        std::fs::rename(&new, self.state_file()).unwrap();
    }

    /// The platform as its file has it now.
    pub fn state(&self) -> Value {
        pretend_platform(&self.state_file()).unwrap()
    }

    /// Changes the platform directly.
    pub fn edit(&self, change: impl FnOnce(&mut Value)) {
        let lock = std::fs::File::create(self.path().join("sim.json.lock")).unwrap();
        lock.lock().unwrap();
        let mut world = self.state();
        change(&mut world);
        self.write_state(&world);
    }

    /// Writes `<cluster>.sh` with these lines after the usual ones.
    pub fn env(&self, cluster: &str, lines: &str) -> PathBuf {
        let path = self.path().join(format!("{cluster}.sh"));
        let state = self.state_file();
        let text = format!(
            "cluster={cluster}\ndomain={DOMAIN}\nbackend=sim\nsim_state={}\n{lines}\n",
            state.display()
        );
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The program, with only its home folders in the environment.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ocpdeploy"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.path())
            .env("OCPDEPLOY_HOME", self.home().root())
            .current_dir(self.path())
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Outcome {
        outcome(self.start(arguments))
    }

    pub fn start(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// `ocpdeploy deploy <cluster>.sh --rehearse`.
    pub fn deploy(&self, cluster: &str) -> Outcome {
        self.run(&["deploy", &format!("{cluster}.sh"), "--rehearse"])
    }

    /// Kills a deployment (SIGKILL) once `moment` holds.
    pub fn kill_deployment(&self, cluster: &str, moment: impl Fn(&Sandbox) -> bool) {
        let mut child = self.start(&["deploy", &format!("{cluster}.sh"), "--rehearse"]);
        let begin = Instant::now();
        while !moment(self) {
            if child.try_wait().unwrap().is_some() {
                panic!("it ended before the moment came: {:?}", outcome(child));
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "the moment did not come");
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        let outcome = outcome(child);
        assert_eq!(outcome.code, None, "it was not killed: {}", outcome.stderr);
    }

    /// Whether a step was started and has not ended.
    pub fn is_within(&self, cluster: &str, step: &str) -> bool {
        let entries = journal::read(&self.home().cluster(cluster).journal()).unwrap();
        let last = entries.iter().rfind(|entry| entry.step == step);
        last.is_some_and(|entry| entry.event == Event::Begun)
    }

    pub fn parameters(&self, cluster: &str) -> Option<Parameters> {
        Parameters::read(&self.home().cluster(cluster).parameters()).unwrap()
    }

    /// The machines of a cluster, or all, by name.
    pub fn machines(&self, cluster: Option<&str>) -> Vec<(String, Value)> {
        let state = self.state();
        let machines = state["machines"].as_object().cloned().unwrap_or_default();
        let wanted = |machine: &Value| cluster.is_none_or(|cluster| belongs(machine, cluster));
        machines.into_iter().filter(|(_, machine)| wanted(machine)).collect()
    }

    /// Machines of one pass, by name.
    pub fn of_pass(&self, cluster: &str, pass: &str) -> Vec<String> {
        let machines = self.machines(Some(cluster)).into_iter();
        machines
            .filter(|(_, machine)| machine["pass"] == pass)
            .map(|(name, _)| name)
            .collect()
    }

    /// Reservations of a cluster, or all, on all networks, by address.
    pub fn reservations(&self, cluster: Option<&str>) -> Vec<(String, Value)> {
        let state = self.state();
        let networks = state["networks"].as_object().into_iter().flatten();
        let all = networks.flat_map(|(_, network)| network["reservations"].as_object().cloned().unwrap_or_default());
        all.filter(|(_, kept)| cluster.is_none_or(|cluster| belongs(kept, cluster)))
            .collect()
    }
}

/// Whether an object of the simulated platform belongs to a deployment of this cluster.
fn belongs(object: &Value, cluster: &str) -> bool {
    let id = object["cluster"].as_str().and_then(ClusterId::read);
    id.is_some_and(|id| *id.domain() == ClusterDomain::new(cluster, DOMAIN))
}

/// The state in the file of a simulated platform: a document, then one merge patch a line. `None` if it is missing.
pub fn pretend_platform(file: &Path) -> Option<Value> {
    let text = std::fs::read_to_string(file).ok()?;
    let whole = &text[..text.rfind('\n').map_or(text.len(), |at| at + 1)];
    let mut documents = serde_json::Deserializer::from_str(whole).into_iter::<Value>();
    let mut world = documents.next()?.unwrap();
    documents.for_each(|patch| merge(&mut world, patch.unwrap()));
    Some(world)
}

/// RFC 7396.
fn merge(value: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *value = patch;
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    for (name, patch) in patch {
        match patch {
            Value::Null => _ = value.as_object_mut().unwrap().remove(&name),
            patch => merge(&mut value[name.as_str()], patch),
        }
    }
}

/// Faults of the simulated platform: the first and the second of each call fail, once each. For the second it is unknown
/// whether it was done.
pub fn each_fails_twice(calls: &[&str]) -> Vec<Value> {
    let of_call = |call: &&str| {
        let first = json!({"call": call, "nth": 1, "what": "unreachable"});
        [first, json!({"call": call, "nth": 2, "what": "timeout_after"})]
    };
    calls.iter().flat_map(of_call).collect()
}

pub fn outcome(child: Child) -> Outcome {
    let output = child.wait_with_output().unwrap();
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
