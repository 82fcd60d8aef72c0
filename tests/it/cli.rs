//! The binary as a user or a script sees it: output, exit codes, and the files that remain.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use assert_cmd::Command;
use ocpdeploy::state::home::Home;
use ocpdeploy::state::journal::Journal;
use serde_json::Value;

const SECRET: &str = "bWU6c2VjcmV0LW9mLXRoZS10ZXN0";

/// A separate environment: a home, a working folder with an env file, a state folder, a simulated platform.
struct Sandbox(tempfile::TempDir);

/// What one command did.
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Sandbox {
    fn new() -> Self {
        let sandbox = Self(tempfile::tempdir().unwrap());
        for folder in ["home", "current"] {
            fs::create_dir(sandbox.path(folder)).unwrap();
        }
        sandbox
    }

    /// A cluster with all addresses in its settings, so that pass one boots nothing.
    fn with_cluster(name: &str) -> Self {
        let sandbox = Self::new();
        sandbox.write("current/env.sh", &env_file(name, 10));
        sandbox
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ocpdeploy"));
        command
            .args(arguments.split_whitespace())
            .current_dir(self.path("current"))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.path("home"))
            .env("OCPDEPLOY_HOME", self.path("state"))
            .timeout(Duration::from_secs(60));
        command
    }

    fn run(&self, arguments: &str) -> Ran {
        self.ran(&mut self.command(arguments))
    }

    fn ran(&self, command: &mut Command) -> Ran {
        let output = command.output().unwrap();
        let sandbox = self.0.path().to_str().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(sandbox, "$PLACE");
        Ran {
            code: output.status.code().unwrap(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// Runs commands in order and returns the output of each.
    fn transcript(&self, commands: &[&str]) -> String {
        let mut text = String::new();
        for command in commands {
            let Ran { code, out, err } = self.run(command);
            text += &format!("$ ocpdeploy {command}\n{out}");
            text.extend(err.lines().map(|line| format!("2> {}\n", timeless(line))));
            text += &format!("=> {code}\n\n");
        }
        text
    }
}

impl Ran {
    fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}", self.err);
        self.out
    }

    fn json(self) -> Value {
        serde_json::from_str(&self.ok()).unwrap()
    }
}

/// A progress line without its time.
fn timeless(line: &str) -> &str {
    match line.strip_prefix('[').and_then(|line| line.split_once("s] ")) {
        Some((time, rest)) if time.parse::<f64>().is_ok() => rest,
        _ => line,
    }
}

fn env_file(name: &str, first: u8) -> String {
    let ip = |n: u8| format!("192.168.122.{}", first + n);
    format!(
        "cluster={name}\ndomain=example.com\nbackend=sim\nmasters=3\nworkers=1\nharvest=static\n\
         machine_network=192.168.122.0/24\napi_ip={}\ningress_ip={}\nbootstrap_ip={}\n\
         master_ips='{} {} {}'\nworker_ips={}\n",
        ip(0),
        ip(1),
        ip(2),
        ip(3),
        ip(4),
        ip(5),
        ip(6)
    )
}

/// The same cluster without addresses, so that pass one finds them.
fn without_addresses(name: &str) -> String {
    let given = env_file(name, 10);
    let lines = given
        .lines()
        .filter(|line| !line.contains("_ip") && !line.contains("harvest"));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_harvested_cluster_is_planned_listed_and_destroyed() {
    let sandbox = Sandbox::with_cluster("lab");
    let text = sandbox.transcript(&[
        "plan --rehearse",
        "list",
        "harvest --rehearse",
        "list",
        "plan --rehearse",
        "status lab",
        "destroy lab --dry-run",
        "destroy lab",
        "destroy lab --yes",
        "status",
    ]);
    insta::assert_snapshot!(text);
    assert!(!sandbox.path("state/clusters/lab").exists());
}

#[test]
fn a_deployment_ends_with_a_table_and_a_second_one_skips_pass_one() {
    let sandbox = Sandbox::with_cluster("lab");
    sandbox.write("current/env.sh", &without_addresses("lab"));
    let first = sandbox.run("deploy --rehearse").ok();
    let rows: Vec<Vec<&str>> = first
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect())
        .collect();
    for row in &rows[..5] {
        assert_eq!(row[2], row[3], "{first}");
        assert_eq!(row[4], "yes", "{first}");
    }
    assert!(
        first.ends_with("\nrehearsal of cluster lab.example.com succeeded\n"),
        "{first}"
    );
    let second = sandbox.run("deploy --rehearse").ok();
    let table = |text: &str| text.lines().take(6).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(table(&first), table(&second));
    assert!(
        second.contains("\npass one was skipped: the addresses were already known\n"),
        "{second}"
    );
    let status = sandbox.run("status lab").ok();
    assert!(status.contains("\nphase   rehearsal succeeded\n"), "{status}");
    assert_eq!(status.matches("  running  ok\n").count(), 4, "{status}");
    sandbox.run("destroy lab --yes --keep-addresses").ok();
    let plan = sandbox.run("plan --rehearse").ok();
    assert!(plan.contains("pass one is skipped"), "{plan}");
    sandbox.run("destroy lab --yes").ok();
    let world: Value = serde_json::from_slice(&fs::read(sandbox.path("state/sim.json")).unwrap()).unwrap();
    assert_eq!(world["machines"].as_object().unwrap().len(), 0);
}

#[test]
fn json_and_tables_have_the_same_content() {
    let sandbox = Sandbox::with_cluster("lab");
    sandbox.run("harvest --rehearse --quiet").ok();
    let plan = sandbox.run("plan --rehearse --format json").json();
    assert_eq!(plan["v"], 1);
    assert_eq!(plan["pass_two"].as_array().unwrap().len(), 5);
    assert_eq!(plan["pass_two"][1]["name"], "lab-master-0");
    assert_eq!(plan["pass_two"][1]["ip"], "192.168.122.13");
    let list = sandbox.run("list --format json").json();
    assert_eq!(list["clusters"][0]["addresses"]["api_ip"], "192.168.122.10");
    assert_eq!(list["clusters"][0]["addresses"]["masters"], 3);
    let status = sandbox.run("status lab --format json").json();
    assert_eq!(status["v"], 1);
    assert_eq!(status["clusters"][0]["nodes"][4]["node"], "worker-0");
    assert_eq!(status["clusters"][0]["nodes"][4]["verdict"], "not-made");
    let config = sandbox.run("config --rehearse --format json").json();
    assert!(config["settings"].as_array().unwrap().len() > 20);
}

#[test]
fn plan_reports_nodes_without_an_address() {
    let sandbox = Sandbox::with_cluster("lab");
    sandbox.run("harvest --rehearse").ok();
    assert_eq!(sandbox.run("plan --rehearse").err, "");
    sandbox.write(
        "current/more.sh",
        &(without_addresses("lab") + "\nworkers=4\n").replace("workers=1\n", ""),
    );
    let plan = sandbox.run("plan more.sh --rehearse");
    assert_eq!(plan.code, 0, "{}", plan.err);
    assert!(plan.err.contains("no address for worker-1"), "{}", plan.err);
    assert_eq!(sandbox.run("deploy more.sh --rehearse").code, 3);
}

#[test]
fn plan_config_list_and_status_write_no_file() {
    let sandbox = Sandbox::with_cluster("lab");
    for command in ["plan --rehearse", "config --rehearse", "list", "status"] {
        sandbox.run(command).ok();
    }
    assert!(!sandbox.path("state").exists());
    assert_eq!(fs::read_dir(sandbox.path("home")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(sandbox.path("current")).unwrap().count(), 1);
}

#[test]
fn a_flag_overrides_the_environment_which_overrides_the_file() {
    let sandbox = Sandbox::with_cluster("lab");
    let origin = |command: &mut Command| {
        let config: Value = sandbox.ran(command).json();
        let settings = config["settings"].as_array().unwrap().clone();
        let found = settings
            .into_iter()
            .find(|setting| setting["name"] == "numcpus")
            .unwrap();
        format!(
            "{} from {}",
            found["value"].as_str().unwrap(),
            found["origin"].as_str().unwrap()
        )
    };
    let config = "config --rehearse --format json";
    sandbox.write("current/env.sh", &(env_file("lab", 10) + "numcpus=3\n"));
    assert_eq!(origin(&mut sandbox.command(config)), "3 from env.sh:13");
    let environment = |command: &str| {
        let mut command = sandbox.command(command);
        command.env("OCPDEPLOY_NUMCPUS", "5");
        command
    };
    assert_eq!(origin(&mut environment(config)), "5 from environment OCPDEPLOY_NUMCPUS");
    let flag = origin(&mut environment(&format!("{config} --set numcpus=7")));
    assert!(flag.starts_with("7 from flag"), "{flag}");
}

#[test]
fn each_failure_has_its_message_and_exit_code() {
    let sandbox = Sandbox::with_cluster("lab");
    sandbox.write("current/faulty.sh", "cluster=lab\nworkrs=2\ndomain=$(touch pwned)\n");
    sandbox.write("current/file", "");
    let text = sandbox.transcript(&[
        "deply",
        "plan --set workers",
        "plan nosuch.sh",
        "plan faulty.sh",
        "status nosuch",
        "destroy nosuch --yes",
        "destroy nosuch --env env.sh",
        "harvest --rehearse --home file",
        "harvest --rehearse --set network=nosuch",
    ]);
    insta::assert_snapshot!(text);
    assert!(!sandbox.path("current/pwned").exists());
    assert!(!sandbox.path("state/clusters").exists(), "nothing was started");
}

#[test]
fn a_denial_and_a_timeout_have_different_exit_codes() {
    for (what, code) in [("denied", 5), ("timeout_before", 6)] {
        let sandbox = Sandbox::with_cluster("lab");
        fs::create_dir(sandbox.path("state")).unwrap();
        let fault = format!(
            r#"{{ "v": 1, "script": {{ "faults": [ {{ "call": "preflight", "what": "{what}", "times": 99 }} ] }} }}"#
        );
        sandbox.write("state/sim.json", &fault);
        let ran = sandbox.run("harvest --rehearse");
        assert_eq!(ran.code, code, "{}", ran.err);
        assert!(ran.err.contains("\nerror: check sim "), "{}", ran.err);
        assert!(ran.err.contains("\n\nhint: "), "{}", ran.err);
    }
}

#[test]
fn a_second_run_on_the_same_cluster_is_rejected() {
    let sandbox = Sandbox::with_cluster("lab");
    sandbox.run("harvest --rehearse").ok();
    let dir = Home::new(sandbox.path("state")).cluster("lab");
    let _lock = Journal::open(&dir, "lab").unwrap();
    for command in ["harvest --rehearse", "destroy lab --yes"] {
        let ran = sandbox.run(command);
        assert_eq!(ran.code, 8, "{}", ran.err);
        assert!(
            ran.err.contains(&format!("process {} ", std::process::id())),
            "{}",
            ran.err
        );
    }
    assert_eq!(sandbox.run("status lab").code, 0);
}

#[test]
fn quiet_prints_nothing_and_the_private_log_is_complete() {
    let sandbox = Sandbox::with_cluster("lab");
    let ran = sandbox.run("harvest --rehearse --quiet");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let path = sandbox.path("state/clusters/lab/log/ocpdeploy.jsonl");
    let log = fs::read_to_string(&path).unwrap();
    let steps: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(steps.iter().any(|line| line["fields"]["step"] == "addresses"), "{log}");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_secret_is_in_no_output_and_no_state_file() {
    let sandbox = Sandbox::with_cluster("lab");
    let secret = format!(r#"{{"auths":{{"quay.io":{{"auth":"{SECRET}"}}}}}}"#);
    sandbox.write("current/pull.json", &secret);
    sandbox.write("current/env.sh", &(env_file("lab", 10) + "pull_secret=pull.json\n"));
    let said = sandbox.transcript(&[
        "config --rehearse",
        "harvest --rehearse -v",
        "plan --rehearse",
        "status lab",
    ]);
    assert!(!said.contains(SECRET), "{said}");
    for file in [
        "cluster.json",
        "parameters.yaml",
        "journal.jsonl",
        "log/ocpdeploy.jsonl",
    ] {
        let text = fs::read_to_string(sandbox.path("state/clusters/lab").join(file)).unwrap();
        assert!(!text.contains(SECRET), "{file}");
    }
}

#[test]
fn two_clusters_can_share_a_network() {
    let sandbox = Sandbox::with_cluster("lab");
    sandbox.write("current/other.sh", &env_file("other", 30));
    sandbox.run("harvest --rehearse").ok();
    sandbox.run("harvest other.sh --rehearse").ok();
    insta::assert_snapshot!(sandbox.run("list").ok());
    sandbox.run("destroy lab --yes").ok();
    let left = sandbox.run("destroy other --dry-run").ok();
    assert!(left.contains("192.168.122.30"), "{left}");
}

#[test]
fn destroy_works_without_the_clusters_folder() {
    let sandbox = Sandbox::with_cluster("lab");
    sandbox.run("harvest --rehearse").ok();
    fs::remove_dir_all(sandbox.path("state/clusters/lab")).unwrap();
    assert_eq!(sandbox.run("destroy lab --yes").code, 2);
    assert_eq!(sandbox.run("destroy lab --env env.sh --yes").code, 2);
    let sample = "destroy lab.example.com --from-backend --env env.sh --dry-run";
    let owned = sandbox.run(sample).ok();
    assert!(owned.contains("192.168.122.10"), "{owned}");
    let found: Value = serde_json::from_str(&sandbox.run("audit --env env.sh --format json").out).unwrap();
    let id = found["platforms"][0]["clusters"][0]["id"].as_str().unwrap();
    let destroy = format!("destroy lab.example.com --from-backend --id {id} --env env.sh --yes");
    sandbox.run(&destroy).ok();
    assert!(
        sandbox
            .run(sample)
            .ok()
            .starts_with("no objects of lab.example.com on the platform")
    );
}

#[test]
fn an_interrupted_run_prints_how_to_resume_and_resumes() {
    let sandbox = Sandbox::with_cluster("lab");
    fs::create_dir(sandbox.path("state")).unwrap();
    let slow = r#"{ "v": 1, "script": { "latency_ms": { "reserve_address": 60000 } } }"#;
    for signal in ["-INT", "-TERM"] {
        sandbox.write("state/sim.json", slow);
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_ocpdeploy"))
            .args(["harvest", "--rehearse"])
            .current_dir(sandbox.path("current"))
            .env_clear()
            .env("OCPDEPLOY_HOME", sandbox.path("state"))
            .env("HOME", sandbox.path("home"))
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let waits = lines.find(|line| line.as_ref().unwrap().contains("addresses"));
        assert!(waits.is_some(), "it ended too early");
        let kill = std::process::Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status();
        assert!(kill.unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(7), "{signal}");
        let last = lines.last().unwrap().unwrap();
        assert_eq!(last, "interrupted; to resume, run the same command again");
    }
    let world = fs::read_to_string(sandbox.path("state/sim.json")).unwrap();
    sandbox.write("state/sim.json", &world.replace("60000", "0"));
    sandbox.run("harvest --rehearse").ok();
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let sandbox = Sandbox::with_cluster("lab");
    for argument in ["--version", "--help", "list"] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_ocpdeploy"))
            .arg(argument)
            .env_clear()
            .env("OCPDEPLOY_HOME", sandbox.path("state"))
            .env("HOME", sandbox.path("home"))
            .stdout(fs::File::options().write(true).open("/dev/full").unwrap())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap()
            .wait_with_output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{argument}: {said}");
        assert!(said.contains("write the result"), "{argument}: {said}");
    }
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let sandbox = Sandbox::with_cluster("lab");
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_ocpdeploy"))
        .args(["plan", "--rehearse"])
        .current_dir(sandbox.path("current"))
        .env_clear()
        .env("OCPDEPLOY_HOME", sandbox.path("state"))
        .env("HOME", sandbox.path("home"))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
