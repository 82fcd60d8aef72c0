//! All commands are consistent: arguments, exit codes, formats, completion, errors.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::process::Command as Process;

use clap::{Command, CommandFactory};
use ocpdeploy::cli::Cli;
use serde_json::{Map, Value, json};

use crate::support::fake_kubevirt::schema::type_name;
use crate::support::sandbox::Sandbox;

/// The commands without subcommands, by their names.
fn leaves() -> BTreeMap<Vec<String>, Command> {
    fn collect(words: &[String], command: &Command, found: &mut BTreeMap<Vec<String>, Command>) {
        let mut subcommands = command.get_subcommands().peekable();
        if subcommands.peek().is_none() {
            found.insert(words.to_vec(), command.clone());
        }
        for subcommand in subcommands {
            collect(
                &[words, &[subcommand.get_name().to_owned()]].concat(),
                subcommand,
                found,
            );
        }
    }
    let mut found = BTreeMap::new();
    collect(&[], &Cli::command(), &mut found);
    found
}

fn positionals(command: &Command) -> Vec<String> {
    let arguments = command.get_positionals();
    let names = arguments.flat_map(|argument| argument.get_value_names().unwrap_or_default());
    names.map(ToString::to_string).collect()
}

#[test]
fn the_readme_names_exactly_the_commands_that_exist() {
    let readme = include_str!("../../README.md");
    let quoted = |text: &str| {
        text.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| `ocpdeploy "));
    let rows = rows.flat_map(|row| quoted(&format!("`ocpdeploy {}", row.split(" |").next().unwrap())));
    let rows = rows.map(|command| command.trim_start_matches("ocpdeploy ").to_owned());
    let (_, others) = readme.split_once("\nAlso: ").unwrap();
    let others = quoted(others.split(". ").next().unwrap());
    let named: BTreeSet<String> = rows.chain(others).collect();
    let program = Cli::command();
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set());
    let exist: BTreeSet<String> = commands.map(|command| command.get_name().to_owned()).collect();
    assert_eq!(named, exist);
}

/// Commands that write files or use the terminal: their output is not a result.
const WITHOUT_FORMAT: [&str; 17] = [
    "export ansible",
    "export csi",
    "export dhcp",
    "export dns",
    "export haproxy",
    "export hosts",
    "export kcli",
    "ignition merge",
    "init",
    "kubeconfig",
    "logs",
    "node console",
    "node ssh",
    "report",
    "state export",
    "state import",
    "util man",
];

#[test]
fn arguments_mean_the_same_in_all_commands() {
    let mut table = String::from("COMMAND            ARGUMENTS                 --format  -o\n");
    for (words, command) in leaves() {
        let name = words.join(" ");
        let places = positionals(&command);
        let option = |name: &str| {
            command
                .get_arguments()
                .find(|argument| argument.get_long() == Some(name))
        };
        // The cluster is never an option, except as a setting. `cache up` reads only the pull secret.
        let is_of_settings = places.first().is_some_and(|place| place == "ENV") || name == "image pull";
        let is_of_settings = is_of_settings && name != "cache up";
        assert_eq!(option("cluster").is_some(), is_of_settings, "{name}");
        if let Some(at) = places.iter().position(|place| place == "CLUSTER") {
            assert_eq!(at, 0, "{name}: {places:?}");
        }
        if let Some(at) = places.iter().position(|place| place == "NODE") {
            assert_eq!(places[at - 1], "CLUSTER", "{name}: {places:?}");
        }
        let format = option("format").map(|argument| {
            let values = argument.get_possible_values();
            values
                .iter()
                .map(|value| value.get_name().to_owned())
                .collect::<Vec<_>>()
        });
        let prints = format
            .as_ref()
            .is_some_and(|values| values.starts_with(&["text".to_owned()]));
        if prints {
            assert_eq!(format.clone().unwrap(), ["text", "json", "yaml"], "{name}");
        }
        assert_eq!(
            prints,
            !WITHOUT_FORMAT.contains(&name.as_str()) && name != "util completion",
            "{name}"
        );
        let short = command
            .get_arguments()
            .find(|argument| argument.get_short() == Some('o'));
        if let Some(short) = short {
            assert_eq!(short.get_long(), Some("output"), "{name}");
            assert_eq!(short.get_value_names().unwrap()[0].as_str(), "FILE", "{name}");
        }
        assert_eq!(short.is_some(), option("output").is_some(), "{name}");
        let yes = |is| if is { "yes" } else { "" };
        let line = format!(
            "{name:<18} {:<25} {:<9} {}",
            places.join(" "),
            yes(prints),
            yes(short.is_some())
        );
        writeln!(table, "{}", line.trim_end()).unwrap();
    }
    insta::assert_snapshot!(table);
}

fn lab() -> Sandbox {
    let sandbox = Sandbox::new(json!({}));
    sandbox.env("lab", "masters=3\nworkers=1\nimage=coreos\nharvest_image=helper");
    sandbox
}

/// Further arguments that a command requires.
fn required(name: &str) -> &'static [&'static str] {
    match name {
        "scale" => &["--workers", "1"],
        "destroy" => &["--dry-run"],
        "dns apply" | "dns remove" => &["--dry-run"],
        "state export" => &["-o", "lab.age", "--passphrase-file", "lab.sh"],
        _ => &[],
    }
}

#[test]
fn an_unknown_cluster_or_node_is_an_error_of_the_command_line() {
    let sandbox = lab();
    let run = |words: &[String], names: &[&str]| {
        let more = required(&words.join(" "));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        sandbox.run(&[&words, names, more].concat())
    };
    let commands: Vec<(Vec<String>, Vec<String>)> = leaves()
        .into_iter()
        .map(|(words, command)| (words, positionals(&command)))
        .filter(|(_, places)| places.iter().any(|place| place == "CLUSTER"))
        .collect();
    assert!(commands.len() >= 20, "{commands:?}");
    let node = |places: &[String]| places.iter().any(|place| place == "NODE");
    let object = |places: &[String]| match places.iter().any(|place| place == "NAME") {
        true => Some("before"),
        false => node(places).then_some("worker-0"),
    };
    for (words, places) in &commands {
        let names: Vec<&str> = std::iter::once("nosuch").chain(object(places)).collect();
        let outcome = run(words, &names);
        assert_eq!(outcome.code, Some(2), "{words:?}: {}", outcome.stderr);
        assert!(
            outcome.message().contains("no cluster nosuch in the state directory"),
            "{words:?}: {}",
            outcome.stderr
        );
        // `status` is about all clusters, even if there are none.
        if words[0] != "status" {
            let outcome = run(words, &names[1..]);
            assert_eq!(outcome.code, Some(2), "{words:?}: {}", outcome.stderr);
            assert!(
                outcome.message().contains("no cluster in the state directory"),
                "{words:?}: {}",
                outcome.stderr
            );
        }
    }
    sandbox.deploy("lab").succeeded();
    // Its node does not exist yet.
    let is_new = |words: &[String]| words.join(" ") == "node join-file";
    for (words, places) in commands.iter().filter(|(words, places)| node(places) && !is_new(words)) {
        let outcome = run(words, &["lab", "worker-7"]);
        assert_eq!(outcome.code, Some(2), "{words:?}: {}", outcome.stderr);
        let known = "worker-7 is not a node of the cluster: bootstrap, master-0, master-1, master-2, worker-0";
        // The bootstrap cannot be recreated.
        let known = known.replace(
            "bootstrap, ",
            if words.join(" ") == "node replace" {
                ""
            } else {
                "bootstrap, "
            },
        );
        assert!(
            outcome.message().contains(&known),
            "{words:?} {places:?}: {}",
            outcome.stderr
        );
    }
}

/// The JSON Schema of these documents: a field that all of them have is required.
pub fn schema(values: &[&Value]) -> Value {
    let kinds: BTreeSet<&str> = values.iter().map(|value| type_name(value)).collect();
    let mut schema = Map::new();
    match kinds.iter().collect::<Vec<_>>().as_slice() {
        [] => return json!({}),
        [one] => schema.insert("type".to_owned(), json!(one)),
        several => schema.insert("type".to_owned(), json!(several)),
    };
    let items: Vec<&Value> = values.iter().filter_map(|value| value.as_array()).flatten().collect();
    if kinds.contains("array") {
        schema.insert("items".to_owned(), self::schema(&items));
    }
    let objects: Vec<&Map<String, Value>> = values.iter().filter_map(|value| value.as_object()).collect();
    let keys: BTreeSet<&String> = objects.iter().flat_map(|object| object.keys()).collect();
    if kinds.contains("object") {
        let property = |key: &String| {
            let values: Vec<&Value> = objects.iter().filter_map(|object| object.get(key)).collect();
            (key.clone(), self::schema(&values))
        };
        let always = |key: &&&String| objects.iter().all(|object| object.contains_key(key.as_str()));
        let required: Vec<_> = keys.iter().filter(always).collect();
        schema.insert("required".to_owned(), json!(required));
        let properties: Map<String, Value> = keys.iter().map(|key| property(key)).collect();
        schema.insert("properties".to_owned(), Value::Object(properties));
    }
    Value::Object(schema)
}

/// Runs every command that prints a result on a simulated platform, and compares its documents with the schemas of the
/// reference. `UPDATE_GOLDEN=1` writes these.
#[test]
fn every_result_is_a_document_of_its_schema() {
    let sandbox = lab();
    std::fs::create_dir_all(sandbox.path().join("etc")).unwrap();
    std::fs::write(sandbox.path().join("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
    std::fs::write(sandbox.path().join("a.ign"), r#"{"ignition": {"version": "3.2.0"}}"#).unwrap();
    let config = r#"{"ignition": {"version": "3.2.0"}, "storage": {"files": [{"path": "/etc/a", "mode": 420, "contents": {"source": "data:,a"}}]}}"#;
    std::fs::write(sandbox.path().join("b.ign"), config).unwrap();
    std::fs::write(sandbox.path().join("bad.ign"), r#"{"ignition": {"version": "9.0.0"}}"#).unwrap();
    let root = sandbox.path().display().to_string();
    let mut documents: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let mut run = |name: &str, more: &[&str], code: i32| {
        let words: Vec<&str> = name.split(' ').chain(more.iter().copied()).collect();
        let outcome = sandbox.run(&[&words[..], &["--format", "json"]].concat());
        assert_eq!(outcome.code, Some(code), "{words:?}: {}", outcome.stderr);
        let document: Value = serde_json::from_str(&outcome.stdout).unwrap_or_else(|_| panic!("{}", outcome.stdout));
        assert_eq!(document["v"], 1, "{name}");
        documents.entry(name.to_owned()).or_default().push(document);
    };
    let env = ["lab.sh", "--rehearse"];
    run("config", &env, 0);
    run("plan", &env, 0);
    run("check", &env, 0);
    run("list", &[], 0);
    run("status", &[], 0);
    run("harvest", &env, 0);
    run("plan", &env, 0);
    run("deploy", &env, 0);
    run("deploy", &env, 0);
    run("plan", &env, 0);
    run("list", &[], 0);
    run("status", &["lab"], 0);
    run("verify", &["lab"], 0);
    run("audit", &[], 0);
    run("node show", &["lab", "master-0"], 0);
    run("node replace", &["lab", "worker-0", "--yes"], 0);
    run("scale --dry-run", &["lab", "--workers", "2"], 0);
    run("scale", &["lab", "--workers", "2"], 0);
    run("scale --dry-run", &["lab", "--workers", "1"], 0);
    run("scale", &["lab", "--workers", "1", "--yes"], 0);
    let external = [
        "lab",
        "metal-0",
        "--mac",
        "02:00:00:00:00:01",
        "--ip",
        "192.168.122.250",
    ];
    run("node join-file", &external, 0);
    run("status", &["lab"], 0);
    run("node join", &external[..2], 0);
    run("node remove", &external[..2], 0);
    run("stop", &["lab"], 0);
    run("start", &["lab"], 0);
    run("snapshot save", &["lab", "before"], 0);
    run("snapshot list", &["lab"], 0);
    run("snapshot restore", &["lab", "before", "--yes"], 0);
    run("status", &["lab"], 0);
    run("list", &[], 0);
    run("snapshot delete", &["lab", "before", "--yes"], 0);
    run("ignition show", &["lab", "master-0"], 0);
    run("ignition check", &["a.ign", "b.ign"], 0);
    run("ignition check", &["bad.ign"], 3);
    run("ignition diff", &["a.ign", "b.ign"], 1);
    run("dns show", &["lab", "--root", &root], 0);
    run("dns apply", &["lab", "--root", &root], 0);
    run("dns remove", &["lab", "--root", &root], 0);
    run("image list", &[], 0);
    run("image prune", &["--dry-run"], 0);
    run("destroy", &["lab", "--dry-run"], 0);
    std::fs::remove_dir_all(sandbox.home().cluster("lab").path()).unwrap();
    run("adopt", &env, 0);
    run("destroy", &["lab", "--yes"], 0);

    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/schemas");
    for (name, documents) in &documents {
        let documents: Vec<&Value> = documents.iter().collect();
        let mut schema = schema(&documents);
        schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
        schema["title"] = json!(format!("ocpdeploy {name} --format json"));
        let text = format!("{schema:#}\n");
        let path = folder.join(format!("{}.json", name.replace(" --", "-").replace(' ', "-")));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text, kept, "{name}: UPDATE_GOLDEN=1 writes {}", path.display());
    }
    // Requires a release, an image server or a registry.
    let elsewhere = [
        "cache down",
        "cache prune",
        "cache status",
        "cache up",
        "cache warm",
        "image payload",
        "image pull",
        "image push",
        "renew",
    ];
    for (words, command) in leaves() {
        let name = words.join(" ");
        let prints =
            command.get_arguments().any(|argument| argument.get_id() == "format") && !name.starts_with("export ");
        assert_eq!(
            prints,
            documents.contains_key(&name) || elsewhere.contains(&name.as_str()),
            "{name}"
        );
    }
}

#[test]
fn a_plan_is_compared_with_the_platform() {
    let sandbox = lab();
    let plan = |more: &[&str]| {
        let words = [&["plan", "lab.sh", "--rehearse"], more].concat();
        let text = sandbox.run(&words).succeeded().stdout;
        let compared = text
            .split_once("compared with the platform: ")
            .map(|(_, compared)| compared.to_owned());
        compared.unwrap_or_default()
    };
    assert_eq!(plan(&[]), "10 to create\n");
    assert_eq!(plan(&["--offline"]), "");
    sandbox.deploy("lab").succeeded();
    assert_eq!(plan(&[]), "10 to keep\n");
    let larger = plan(&["--set", "worker_memory=512"]);
    assert!(larger.starts_with("9 to keep, 1 that differ\n"), "{larger}");
    assert!(
        larger.contains("`ocpdeploy node replace lab worker-0 --env lab.sh` changes it"),
        "{larger}"
    );
    sandbox.edit(|world| {
        let machines = world["machines"].as_object_mut().unwrap();
        let worker = machines.remove("lab-worker-0").unwrap();
        machines.insert("lab-bootstrap".to_owned(), worker);
    });
    insta::assert_snapshot!(plan(&[]));
}

#[test]
fn a_missing_pull_secret_does_not_hide_everything_else() {
    let sandbox = Sandbox::new(json!({}));
    // No server listens there: without an answer, the version query is repeated until the time limit.
    sandbox.env(
        "lab",
        "masters=3\nworkers=1\nimage=coreos\nharvest_image=helper\nversion=4.18.1\ninstaller_mirror=https://127.0.0.1:1\n\
         installer_mirror_timeout=1s",
    );
    let missing = format!("cannot read the pull secret {}", sandbox.path().display());
    let check = sandbox.run(&["check", "lab.sh", "--format", "json"]);
    assert_eq!(check.code, Some(4), "{}", check.stderr);
    let said = check.stderr;
    let check: Value = serde_json::from_str(&check.stdout).unwrap();
    let rows = check["looked"].as_array().unwrap();
    let of_settings = |row: &&Value| row["check"] == "settings";
    let secret = rows
        .iter()
        .filter(of_settings)
        .find(|row| row["text"].as_str().unwrap().starts_with(&missing));
    assert_eq!(secret.unwrap()["verdict"], "fail", "{check:#}");
    assert!(rows.iter().filter(|row| !of_settings(row)).count() > 3, "{check:#}");
    assert_eq!(said.matches("looking up 4.18.1 at ").count(), 1, "{said}");
    let plan = sandbox.run(&["plan", "lab.sh", "--offline"]).succeeded();
    assert!(plan.stdout.contains("peak usage: "), "{}", plan.stdout);
    assert!(
        plan.stderr.contains(&format!("`deploy` would fail: {missing}")),
        "{}",
        plan.stderr
    );
    let config = sandbox.run(&["config", "lab.sh"]);
    assert_eq!(config.code, Some(3), "{}", config.stderr);
    assert!(config.message().contains(&missing), "{}", config.stderr);
    assert!(config.stdout.contains("harvest_image"), "{}", config.stdout);
    let deploy = sandbox.run(&["deploy", "lab.sh"]);
    assert_eq!(deploy.code, Some(3), "{}", deploy.stderr);
    assert_eq!(sandbox.machines(None), []);
}

#[test]
fn yaml_and_json_have_the_same_content() {
    let sandbox = lab();
    let run = |format| {
        sandbox
            .run(&["plan", "lab.sh", "--rehearse", "--format", format])
            .succeeded()
            .stdout
    };
    let json: Value = serde_json::from_str(&run("json")).unwrap();
    let yaml: Value = serde_saphyr::from_str(&run("yaml")).unwrap();
    assert_eq!(json, yaml);
}

#[test]
fn colors_follow_the_users_choice() {
    let sandbox = lab();
    let run = |arguments: &[&str]| {
        let outcome = sandbox.run(&[&["check", "lab.sh", "--rehearse"], arguments].concat());
        outcome.succeeded().stdout
    };
    let (plain, colored) = (run(&[]), run(&["--color", "always"]));
    assert!(!plain.contains('\x1b'), "not a terminal: {plain}");
    assert!(colored.contains("\x1b[32mok\x1b[0m"), "{colored}");
    let uncolored = colored
        .replace("\x1b[32m", "")
        .replace("\x1b[33m", "")
        .replace("\x1b[0m", "");
    assert_eq!(uncolored, plain);
    assert!(!run(&["--color", "always", "--format", "json"]).contains('\x1b'));
}

#[test]
fn usage_errors_look_like_all_other_errors() {
    let sandbox = lab();
    for (words, error, hint) in [
        (
            "plan --fromat json",
            "unexpected argument '--fromat' found",
            "a similar argument exists: '--format'",
        ),
        (
            "plan --workers",
            "a value is required for '--workers <N>' but none was supplied",
            "`ocpdeploy plan --help` shows the arguments",
        ),
        (
            "deply",
            "unrecognized subcommand 'deply'",
            "a similar subcommand exists: 'deploy'",
        ),
        (
            "node ssh",
            "the following required arguments were not provided",
            "`ocpdeploy node ssh --help` shows the arguments",
        ),
        (
            "plan --bogus",
            "unexpected argument '--bogus' found",
            "`ocpdeploy plan --help` shows the arguments",
        ),
        (
            "plan --workers=-1",
            "invalid value '-1' for '--workers <N>': expected a whole number",
            "`ocpdeploy plan --help` shows the arguments",
        ),
        (
            "destroy --yes",
            "the following required arguments were not provided",
            "`ocpdeploy destroy --help` shows the arguments",
        ),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let outcome = sandbox.run(&words);
        assert_eq!(outcome.code, Some(2), "{words:?}");
        assert!(
            outcome.stderr.starts_with(&format!("error: {error}")),
            "{words:?}: {}",
            outcome.stderr
        );
        assert!(
            outcome.stderr.contains(&format!("\nhint: {hint}")),
            "{words:?}: {}",
            outcome.stderr
        );
        assert!(!outcome.stderr.contains("Usage"), "{words:?}: {}", outcome.stderr);
        assert!(!outcome.stderr.contains("as a value"), "{words:?}: {}", outcome.stderr);
    }
}

#[test]
fn help_is_found_where_users_look_for_it() {
    let sandbox = lab();
    let alone = sandbox.run(&[]);
    assert_eq!(alone.code, Some(2));
    assert!(alone.stderr.contains("\nCommands:\n  init "), "{}", alone.stderr);
    let help = sandbox.run(&["help", "deploy"]).succeeded().stdout;
    assert_eq!(help, sandbox.run(&["deploy", "--help"]).succeeded().stdout);
    let version = sandbox.run(&["version"]).succeeded().stdout;
    assert_eq!(version, sandbox.run(&["--version"]).succeeded().stdout);
}

#[test]
fn an_empty_variable_counts_as_not_set() {
    let sandbox = lab();
    for (words, variable) in [
        (&["list"][..], "OCPDEPLOY_HOME"),
        (&["image", "list"], "OCPDEPLOY_DOWNLOADS_DIR"),
        (&["config", "--sample", "-v"], "OCPDEPLOY_DOWNLOADS_DIR"),
    ] {
        let output = sandbox.command(words).env(variable, "").output().unwrap();
        assert!(
            output.status.success(),
            "{words:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn a_cluster_is_found_by_the_name_that_list_shows() {
    let sandbox = lab();
    sandbox.deploy("lab").succeeded();
    for words in [
        &["status", "lab.example.com"][..],
        &["node", "show", "lab.example.com", "worker-0"],
    ] {
        sandbox.run(words).succeeded();
    }
    let other = sandbox.run(&["status", "lab.example.org"]);
    assert!(
        other.message().contains("no cluster lab.example.org"),
        "{}",
        other.stderr
    );
}

#[test]
fn a_mistyped_name_leads_to_the_right_one() {
    let sandbox = lab();
    // Later it is the name of a cluster whose settings are recorded.
    let outcome = sandbox.run(&["plan", "lab"]);
    assert!(
        outcome.stderr.contains("hint: did you mean `lab.sh`?"),
        "{}",
        outcome.stderr
    );
    sandbox.deploy("lab").succeeded();
    for (words, hint) in [
        (&["node", "show", "lab", "worker0"][..], "did you mean worker-0?"),
        (&["node", "show", "lab", "lab-worker-0"], "did you mean worker-0?"),
        (
            &["node", "show", "lab"],
            "after the cluster, name one of its nodes: `lab NODE`",
        ),
    ] {
        let outcome = sandbox.run(words);
        assert!(
            outcome.stderr.contains(&format!("hint: {hint}")),
            "{words:?}: {}",
            outcome.stderr
        );
    }
}

/// What bash completes for the last of these words, with the program's own script.
fn completed(sandbox: &Sandbox, words: &[&str]) -> Vec<String> {
    let script = sandbox.run(&["util", "completion", "bash"]).succeeded().stdout;
    let program = Path::new(env!("CARGO_BIN_EXE_ocpdeploy")).parent().unwrap();
    let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let ask = format!(
        "{script}\nCOMP_WORDS=(ocpdeploy {}); COMP_CWORD={}; COMP_TYPE=9\n\
         function=$(complete -p ocpdeploy | sed 's/.*-F \\([^ ]*\\).*/\\1/'); $function ocpdeploy \"${{COMP_WORDS[COMP_CWORD]}}\"\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        words.join(" "),
        words.len()
    );
    let output = Process::new("bash")
        .args(["--norc", "-c", &ask])
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", program.display()))
        .env("HOME", sandbox.path())
        .env("OCPDEPLOY_HOME", sandbox.home().root())
        .current_dir(sandbox.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let offers = text.lines().map(str::trim).filter(|line| !line.is_empty());
    offers.map(str::to_owned).collect()
}

#[test]
fn bash_completes_clusters_nodes_settings_profiles_and_backends() {
    let sandbox = lab();
    sandbox.deploy("lab").succeeded();
    assert_eq!(completed(&sandbox, &["status", "l"]), ["lab"]);
    assert_eq!(completed(&sandbox, &["node", "console", "lab", "wor"]), ["worker-0"]);
    assert_eq!(completed(&sandbox, &["node", "show", "wor"]), ["worker-0"]);
    assert_eq!(completed(&sandbox, &["node", "ssh", "la"]), ["lab"]);
    assert_eq!(completed(&sandbox, &["logs", "lab", "worker-0", "bo"]), ["bootstrap"]);
    for name in ["first", "second"] {
        sandbox.run(&["snapshot", "save", "lab", name]).succeeded();
    }
    sandbox
        .run(&["snapshot", "delete", "lab", "second", "--yes"])
        .succeeded();
    assert_eq!(completed(&sandbox, &["snapshot", "restore", "lab", "fi"]), ["first"]);
    assert_eq!(completed(&sandbox, &["snapshot", "restore", "lab", "se"]), [""; 0]);
    assert_eq!(
        completed(&sandbox, &["deploy", "--set", "profile=com"]),
        ["profile=compact"]
    );
    assert_eq!(
        completed(&sandbox, &["deploy", "--set", "libvirt_virt_type=k"]),
        ["libvirt_virt_type=kvm"]
    );
    assert_eq!(completed(&sandbox, &["deploy", "--profile", "com"]), ["compact"]);
    assert_eq!(completed(&sandbox, &["init", "--backend", "open"]), ["openstack"]);
    assert_eq!(completed(&sandbox, &["stat"]), ["status", "state"]);
    assert_eq!(completed(&sandbox, &["image", "pu"]), ["pull", "push"]);
    assert_eq!(completed(&sandbox, &["status", "--format", "j"]), ["json"]);
    let options = completed(&sandbox, &["destroy", "--"]);
    assert!(options.contains(&"--dry-run".to_owned()), "{options:?}");
    assert!(!options.contains(&"--root".to_owned()), "hidden: {options:?}");
}
