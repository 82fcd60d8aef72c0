//! `ocpdeploy ignition …` as a user or a script sees it: output, exit codes, and the files that remain.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use assert_cmd::Command;
use serde_json::{Value, json};

use crate::support::clean::clean;

/// A folder with configs, in which the program is run.
struct Sandbox(tempfile::TempDir);

/// What one command did.
#[derive(Debug)]
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Sandbox {
    fn new() -> Self {
        let sandbox = Self(tempfile::tempdir().unwrap());
        fs::create_dir(sandbox.path("work")).unwrap();
        sandbox
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path("work").join(name), content).unwrap();
    }

    fn config(&self, name: &str, content: &Value) {
        self.write(name, content.to_string());
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path("work").join(name)).unwrap()
    }

    fn run(&self, arguments: &str) -> Ran {
        self.run_with(arguments, b"")
    }

    fn run_with(&self, arguments: &str, stdin: &[u8]) -> Ran {
        let output = Command::new(env!("CARGO_BIN_EXE_ocpdeploy"))
            .args(arguments.split_whitespace())
            .current_dir(self.path("work"))
            .env_clear()
            .env("HOME", self.path("home"))
            .env("OCPDEPLOY_HOME", self.path("state"))
            .write_stdin(stdin)
            .timeout(Duration::from_secs(60))
            .output()
            .unwrap();
        let sandbox = self.0.path().to_str().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(sandbox, "$PLACE");
        Ran {
            code: output.status.code().unwrap_or(-1),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// Every file with its content, mode and time of change.
    fn files(&self) -> BTreeMap<PathBuf, (Vec<u8>, u32, i64)> {
        fn add(files: &mut BTreeMap<PathBuf, (Vec<u8>, u32, i64)>, folder: &Path) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let metadata = fs::symlink_metadata(&path).unwrap();
                let content = match metadata.is_file() && metadata.len() < 1 << 20 {
                    true => fs::read(&path).unwrap_or_default(),
                    false => Vec::new(),
                };
                files.insert(path.clone(), (content, metadata.mode(), metadata.mtime_nsec()));
                if metadata.is_dir() {
                    add(files, &path);
                }
            }
        }
        let mut files = BTreeMap::new();
        add(&mut files, self.0.path());
        files
    }
}

impl Ran {
    #[track_caller]
    fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        self.out
    }

    #[track_caller]
    fn refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        let said = format!("{}{}", self.out, self.err);
        for word in words {
            assert!(said.contains(word), "`{word}` is missing: {said}");
        }
        assert!(!said.contains("internal error in ocpdeploy"), "{said}");
        assert!(self.err.starts_with("error: "), "{said}");
    }
}

fn config(files: Value) -> Value {
    json!({"ignition": {"version": "3.2.0"}, "storage": {"files": files}})
}

fn hostname(name: &str) -> Value {
    config(
        json!([{"path": "/etc/hostname", "mode": 420, "contents": {"compression": "", "source": format!("data:,{name}")}}]),
    )
}

/// Where this program deliberately differs from the reference that produced the corpus.
const KEPT: &str = "unknown-key"; // A field that is not known may be of a newer spec.

#[test]
fn every_corpus_case_has_the_result_of_the_reference() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ignition-corpus.json");
    let corpus: Value = serde_json::from_slice(&fs::read(corpus).unwrap()).unwrap();
    let cases = corpus["cases"].as_array().unwrap();
    assert!(cases.len() > 50);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let sandbox = Sandbox::new();
        let inputs: Vec<String> = match (&case["inputs"], &case["raw_inputs"]) {
            (Value::Array(inputs), _) if !inputs.is_empty() => inputs.iter().map(Value::to_string).collect(),
            (_, Value::Array(inputs)) => inputs.iter().map(|text| text.as_str().unwrap().to_owned()).collect(),
            _ => panic!("{name} has no inputs"),
        };
        let mut command = "ignition merge".to_owned();
        for (index, text) in inputs.iter().enumerate() {
            sandbox.write(&format!("{index}.ign"), text);
            command += &format!(" {index}.ign");
        }
        let before = sandbox.files();
        let ran = sandbox.run(&command);
        assert_eq!(sandbox.files(), before, "{name}");
        if case["outcome"] == "ok" {
            let merged = serde_json::from_str(&ran.ok()).unwrap_or_else(|error| panic!("{name}: {error}"));
            let mut expected = case["merged"].clone();
            if name == KEPT {
                expected["storage"]["files"][0]["filesystem"] = json!("root");
            }
            assert_eq!(clean(merged), clean(expected), "{name}");
        } else {
            ran.refused(3, &[]);
            assert_eq!(ran.out, "", "{name}");
        }
    }
}

#[test]
fn a_config_is_checked_for_the_coreos_that_reads_it() {
    let sandbox = Sandbox::new();
    sandbox.config("two.ign", &json!({"ignition": {"version": "2.2.0"}}));
    sandbox.config("three.ign", &json!({"ignition": {"version": "3.2.0"}}));
    sandbox.run("ignition check three.ign").ok();
    sandbox.run("ignition check two.ign --spec 2").ok();
    for (command, words) in [
        ("check two.ign", "spec 2 is for OpenShift 4.1 to 4.5"),
        ("check three.ign --spec 2", "spec 3 is for OpenShift 4.6 and later"),
    ] {
        let ran = sandbox.run(&format!("ignition {command}"));
        assert!(
            ran.out.contains(words) && ran.out.contains("$.ignition.version"),
            "{}",
            ran.out
        );
        ran.refused(3, &[]);
    }
    // Two configs of spec 2 can be merged.
    sandbox.run("ignition merge two.ign two.ign").ok();
    sandbox.run("ignition merge two.ign").refused(3, &["two.ign", "spec 2"]);
}

#[test]
fn every_subcommand_rejects_an_invalid_file_with_name_and_position() {
    let sandbox = Sandbox::new();
    sandbox.config("good.ign", &hostname("a"));
    sandbox.write("old.ign", "before");
    let deep = "[".repeat(100_000);
    let deep_config = format!("{{\"ignition\":{{\"version\":\"3.2.0\"}},\"x\":{deep}");
    let cases: &[(&str, &[u8])] = &[
        ("truncated:2:", b"{\"ignition\":\n{\"version\":\"3.2.0\""),
        ("yaml:1:", b"ignition:\n  version: 3.2.0\n"),
        ("empty", b""),
        ("bom", b"\xef\xbb\xbf{\"ignition\":{\"version\":\"3.2.0\"}}"),
        ("binary", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\xff\xfe"),
        ("utf16", b"{\0\"\0i\0"),
        ("short", b"{\"ignition\":{\"version\":\"3.2\"}}"),
        ("future", b"{\"ignition\":{\"version\":\"3.99.0\"}}"),
        ("none", b"{}"),
        ("list", b"[1]"),
        ("deep", deep.as_bytes()),
        ("deeper", deep_config.as_bytes()),
        ("trailing:2:", b"{\"ignition\":{\"version\":\"3.2.0\"}}\nx"),
    ];
    for (name, bytes) in cases {
        let (file, at) = (name.split(':').next().unwrap(), name);
        sandbox.write(file, bytes);
        let before = sandbox.files();
        for verb in [
            "check FILE",
            "check good.ign FILE --format json",
            "merge FILE",
            "merge good.ign FILE -o old.ign",
            "merge FILE good.ign -o new.ign",
            "diff good.ign FILE",
            "show ./FILE --decode",
        ] {
            let ran = sandbox.run(&format!("ignition {}", verb.replace("FILE", file)));
            let words = if verb.contains("json") { file } else { at };
            ran.refused(3, &[words]);
            if !verb.starts_with("check") {
                assert_eq!(ran.out, "", "{verb} {name}");
            }
        }
        assert_eq!(sandbox.files(), before, "{name}");
    }
}

#[test]
fn an_unreadable_file_is_rejected_with_the_reason() {
    let sandbox = Sandbox::new();
    sandbox.config("good.ign", &hostname("a"));
    fs::create_dir(sandbox.path("work/folder")).unwrap();
    let large = fs::File::create(sandbox.path("work/large")).unwrap();
    large.set_len(50 << 20).unwrap();
    let mut whole = hostname("a").to_string();
    whole.insert_str(whole.find("data:,").unwrap() + 6, &"a".repeat(50 << 20));
    sandbox.write("whole", whole);
    sandbox.write("secret", "");
    fs::set_permissions(sandbox.path("work/secret"), fs::Permissions::from_mode(0o000)).unwrap();
    let before = sandbox.files();
    for (file, reason) in [
        ("missing", "no such file"),
        ("folder", "it is a directory"),
        ("large", "larger than 16 MiB"),
        ("whole", "larger than 16 MiB"),
        ("good.ign/x", "Not a directory"),
        ("/dev/zero", "larger than 16 MiB"),
    ] {
        for verb in [
            "check FILE",
            "merge good.ign FILE -o new.ign",
            "diff FILE good.ign",
            "show ./FILE",
        ] {
            if file.starts_with('/') && verb.starts_with("show") {
                continue;
            }
            let ran = sandbox.run(&format!("ignition {}", verb.replace("FILE", file)));
            ran.refused(3, &[&format!("{file}: "), reason]);
        }
    }
    // Root may read every file; for root, the file is empty.
    let reason = match fs::read(sandbox.path("work/secret")) {
        Ok(_) => "secret",
        Err(_) => "permission denied",
    };
    sandbox.run("ignition merge secret").refused(3, &[reason]);
    assert_eq!(sandbox.files(), before);
}

#[test]
fn an_unwritable_output_is_an_error_and_changes_nothing() {
    let sandbox = Sandbox::new();
    sandbox.config("a.ign", &hostname("a"));
    fs::create_dir(sandbox.path("work/folder")).unwrap();
    let before = sandbox.files();
    for (target, reason) in [
        ("missing/x.ign", "no such directory"),
        ("folder", "it is a directory"),
        ("folder/", "it is a directory"),
        ("a.ign/x", "Not a directory"),
        ("/dev/null", "not a regular file"),
        // Not even root can create a file there.
        ("/proc/x.ign", "cannot write /proc/x.ign"),
    ] {
        let ran = sandbox.run(&format!("ignition merge a.ign -o {target}"));
        ran.refused(4, &[target, reason]);
        assert_eq!(ran.out, "", "{target}");
    }
    assert_eq!(sandbox.files(), before);
}

#[test]
fn spec_2_and_spec_3_are_not_mixed() {
    let sandbox = Sandbox::new();
    sandbox.config("three.ign", &hostname("a"));
    sandbox.config("two.ign", &json!({"ignition": {"version": "2.2.0"}}));
    for (verb, words) in [
        ("merge three.ign two.ign -o x.ign", ["two.ign", "2.2.0", "3.2.0"]),
        ("merge two.ign three.ign -o x.ign", ["three.ign", "2.2.0", "3.2.0"]),
        ("diff two.ign three.ign", ["three.ign", "2.2.0", "3.2.0"]),
    ] {
        let ran = sandbox.run(&format!("ignition {verb}"));
        ran.refused(3, &words);
        assert!(ran.err.contains("\nhint: "), "{}", ran.err);
    }
    assert!(!sandbox.path("work/x.ign").exists());
}

#[test]
fn the_output_is_complete_and_private_even_over_an_input() {
    let sandbox = Sandbox::new();
    sandbox.config("a.ign", &hostname("a"));
    sandbox.config("b.ign", &hostname("b"));
    fs::set_permissions(sandbox.path("work/a.ign"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::hard_link(sandbox.path("work/a.ign"), sandbox.path("work/other-name")).unwrap();
    std::os::unix::fs::symlink("a.ign", sandbox.path("work/link")).unwrap();
    let old = sandbox.read("a.ign");
    let shown = sandbox.run("ignition merge a.ign b.ign").ok();
    assert_eq!(shown, hostname("b").to_string(), "minified, without a line break");
    assert_eq!(sandbox.run("ignition merge a.ign b.ign -o link").ok(), "");
    assert_eq!(sandbox.read("a.ign"), shown, "the same bytes as on stdout");
    assert_eq!(sandbox.read("other-name"), old, "the old file was not written into");
    assert!(fs::symlink_metadata(sandbox.path("work/link")).unwrap().is_symlink());
    let mode = fs::metadata(sandbox.path("work/a.ign")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600, "it may contain secrets");
    assert_eq!(
        fs::read_dir(sandbox.path("work")).unwrap().count(),
        4,
        "no other file is left"
    );
    let pretty = sandbox.run("ignition merge a.ign --pretty").ok();
    assert!(
        pretty.starts_with("{\n  \"ignition\"") && pretty.ends_with("}\n"),
        "{pretty}"
    );
    assert_eq!(serde_json::from_str::<Value>(&pretty).unwrap(), hostname("b"));
}

#[test]
fn one_input_may_come_from_stdin() {
    let sandbox = Sandbox::new();
    sandbox.config("a.ign", &hostname("a"));
    let b = hostname("b").to_string();
    assert_eq!(sandbox.run_with("ignition merge a.ign -", b.as_bytes()).ok(), b);
    assert_eq!(sandbox.run_with("ignition merge - -o -", b.as_bytes()).ok(), b);
    assert_eq!(sandbox.run_with("ignition diff - a.ign", b.as_bytes()).code, 1);
    let ok = sandbox.run_with("ignition check -", b.as_bytes()).ok();
    assert!(ok.starts_with("stdin: ok, Ignition 3.2.0, "), "{ok}");
    sandbox.run_with("ignition merge -", b"{").refused(3, &["stdin:1:"]);
    for twice in ["merge - -", "diff - -", "check - -"] {
        sandbox
            .run_with(&format!("ignition {twice}"), b.as_bytes())
            .refused(2, &["stdin"]);
    }
}

#[test]
fn an_invalid_input_or_result_is_reported_with_position_and_files() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "bad.ign",
        "{\"ignition\": {\"version\": \"3.2.0\"},\n \"storage\": {\"files\": [\n  {\"path\": \"relative\"},\n  {\"path\": \"/a\",\n   \"mode\": 99999}]}}\n",
    );
    let ran = sandbox.run("ignition merge bad.ign -o x.ign");
    ran.refused(
        3,
        &[
            "bad.ign:3:12: error at $.storage.files.0.path: ",
            "bad.ign:5:12: error at $.storage.files.1.mode: ",
        ],
    );
    let owner = |owner: Value| config(json!([{"path": "/other"}, {"path": "/a", "user": owner}]));
    sandbox.config("id.ign", &owner(json!({"id": 7})));
    sandbox.config("name.ign", &owner(json!({"name": "core"})));
    sandbox.config("third.ign", &hostname("c"));
    let ran = sandbox.run("ignition merge third.ign id.ign name.ign -o x.ign");
    ran.refused(
        3,
        &[
            "merging third.ign and id.ign and name.ign gives an invalid config",
            "$.storage.files.2.user",
            "(from id.ign and name.ign)",
        ],
    );
    assert!(!sandbox.path("work/x.ign").exists());
}

#[test]
fn warnings_do_not_stop_a_merge_and_go_to_stderr() {
    let sandbox = Sandbox::new();
    sandbox.config(
        "a.ign",
        &config(json!([{"path": "/etc/a", "mode": 644, "contents": {"source": "data:,a"}}])),
    );
    let ran = sandbox.run("ignition merge a.ign");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(
        ran.err.contains("a.ign:1:") && ran.err.contains("warning at $.storage.files.0.mode: "),
        "{}",
        ran.err
    );
    assert_eq!(ran.err.lines().count(), 1, "each once: {}", ran.err);
    assert_eq!(sandbox.run("ignition merge a.ign --quiet").err, "");
    let check = sandbox.run("ignition check a.ign");
    assert_eq!((check.code, check.err.as_str()), (0, ""));
    assert_eq!(check.out, ran.err);
    sandbox
        .run("ignition check a.ign --strict")
        .refused(3, &["1 of 1 configs failed the check"]);
}

#[test]
fn check_reports_every_file_in_text_and_json() {
    let sandbox = Sandbox::new();
    sandbox.config("good.ign", &hostname("a"));
    sandbox.config("bad.ign", &config(json!([{"path": "relative"}])));
    let ran = sandbox.run("ignition check good.ign bad.ign missing.ign");
    ran.refused(3, &["2 of 3 configs failed the check"]);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines.len(), 3, "{}", ran.out);
    assert_eq!(
        lines[0],
        format!(
            "good.ign: ok, Ignition 3.2.0, {} bytes, 1 file",
            sandbox.read("good.ign").len()
        )
    );
    assert!(
        lines[1].starts_with("bad.ign:1:61: error at $.storage.files.0.path: "),
        "{}",
        ran.out
    );
    assert_eq!(lines[2], "missing.ign: error: no such file");
    let ran = sandbox.run("ignition check good.ign bad.ign missing.ign --format json");
    assert_eq!(ran.code, 3);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["v"], 1);
    assert_eq!(report["files"][0]["ok"], true);
    assert_eq!(report["files"][0]["version"], "3.2.0");
    let finding = &report["files"][1]["findings"][0];
    assert_eq!(finding["severity"], "error");
    assert_eq!(finding["path"], "$.storage.files.0.path");
    assert_eq!((&finding["line"], &finding["column"]), (&json!(1), &json!(61)));
    assert_eq!(report["files"][2]["ok"], false);
}

#[test]
fn diff_sets_its_exit_code_and_hides_possible_secrets() {
    let sandbox = Sandbox::new();
    sandbox.config("a.ign", &hostname("one%0Atwo%0A"));
    sandbox.write("same.ign", "{\"storage\": {\"links\": [], \"files\": [{\"contents\": {\"source\": \"data:;base64,b25lCnR3bwo=\"}, \"mode\": 420,\n\"path\": \"/etc/hostname\"}]}, \"ignition\": {\"version\": \"3.2.0\"}}");
    sandbox.config("b.ign", &hostname("one%0Atopsecret%0A"));
    let same = sandbox.run("ignition diff a.ign same.ign");
    assert_eq!((same.code, same.out.as_str(), same.err.as_str()), (0, "", ""));
    let differs = sandbox.run("ignition diff a.ign b.ign");
    assert_eq!((differs.code, differs.err.as_str()), (1, ""));
    assert!(
        differs
            .out
            .starts_with("~ $.storage.files[/etc/hostname].contents: 8 → 14 bytes (sha256 "),
        "{}",
        differs.out
    );
    let json = sandbox.run("ignition diff a.ign b.ign --format json");
    assert_eq!(json.code, 1);
    for said in [&differs.out, &json.out] {
        assert!(!said.contains("topsecret"), "{said}");
    }
    let report: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(report["equal"], false);
    assert_eq!(report["differences"][0]["new"]["bytes"], 14);
    let decoded = sandbox.run("ignition diff a.ign b.ign --decode").out;
    assert!(decoded.contains("\n    -two\n    +topsecret\n"), "{decoded}");
}

/// A cluster whose addresses are all given, on a simulated platform.
fn env_file(name: &str) -> String {
    format!(
        "cluster={name}\ndomain=example.com\nbackend=sim\nmasters=1\nworkers=1\nharvest=static\n\
         machine_network=192.168.122.0/24\napi_ip=192.168.122.10\ningress_ip=192.168.122.11\n\
         bootstrap_ip=192.168.122.12\nmaster_ips=192.168.122.13\nworker_ips=192.168.122.14\n"
    )
}

#[test]
fn a_nodes_config_is_shown_with_the_origin_of_each_part() {
    let sandbox = Sandbox::new();
    sandbox
        .run("ignition show master-0")
        .refused(2, &["no cluster in the state directory", "`ocpdeploy deploy`"]);
    sandbox.write("env.sh", env_file("lab"));
    sandbox
        .run("ignition show master-0")
        .refused(2, &["no cluster lab in the state directory"]);
    sandbox.run("harvest --rehearse").ok();
    sandbox
        .run("ignition show master-0")
        .refused(4, &["has no Ignition config yet", "`ocpdeploy deploy`"]);
    sandbox.run("deploy --rehearse").ok();

    let master = sandbox.run("ignition show master-0").ok();
    assert!(master.starts_with("node     master-0 of lab.example.com\n"), "{master}");
    assert!(
        master.contains("\nfetches  http://192.168.122.10:22624/config/master\n"),
        "{master}"
    );
    let row = |text: &str, key: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(key));
        let words = line
            .unwrap_or_else(|| panic!("{key} is missing: {text}"))
            .split_whitespace();
        words.map(str::to_owned).collect()
    };
    assert_eq!(row(&master, "/etc/hostname")[1..4], ["0644", "root", "25"], "{master}");
    let stored = sandbox.path("state/clusters/lab/ignition/master-0.ign");
    let bytes = fs::read(&stored).unwrap();
    assert!(
        master.contains(&format!("\nsha512   {}\n", ocpdeploy::digest::sha512(&bytes))),
        "{master}"
    );
    assert!(
        !master.contains("master-0.lab.example.com"),
        "contents only on request: {master}"
    );
    let decoded = sandbox.run("ignition show lab master-0 --decode").ok();
    assert!(
        decoded.contains("\n== /etc/hostname\nmaster-0.lab.example.com\n"),
        "{decoded}"
    );
    let one = sandbox.run("ignition show worker-0 --file /etc/hostname").ok();
    assert_eq!(one, "worker-0.lab.example.com\n");
    let json: Value = serde_json::from_str(&sandbox.run("ignition show master-0 --format json").ok()).unwrap();
    let files = json["files"].as_array().unwrap();
    let hostname = files.iter().find(|file| file["path"] == "/etc/hostname").unwrap();
    assert_eq!(hostname["bytes"], 25);
    assert!(hostname.get("contents").is_none(), "{hostname}");
    assert_eq!(json["node"], "master-0");

    let bootstrap = sandbox.run("ignition show bootstrap").ok();
    assert!(
        row(&bootstrap, "/etc/motd")[3].starts_with('+'),
        "it is appended to: {bootstrap}"
    );
    let from = |key: &str| row(&bootstrap, key)[4..].join(" ");
    assert_ne!(from("/etc/motd"), from("/etc/hostname"), "{bootstrap}");

    sandbox
        .run("ignition show master-7")
        .refused(2, &["master-7 is not a node", "bootstrap, master-0, worker-0"]);
    sandbox
        .run("ignition show master-0 --file /nosuch")
        .refused(2, &["has no file /nosuch"]);
    sandbox
        .run("ignition show nosuch master-0")
        .refused(2, &["no cluster nosuch in the state directory"]);
    let by_path = sandbox.run(&format!("ignition show {}", stored.display())).ok();
    assert_eq!(row(&by_path, "/etc/hostname")[..4], row(&master, "/etc/hostname")[..4]);
    assert!(by_path.starts_with("file     "), "{by_path}");
}

#[test]
fn the_cluster_may_be_omitted_only_if_there_is_one() {
    let sandbox = Sandbox::new();
    sandbox.write("lab.sh", env_file("lab"));
    sandbox.run("deploy lab.sh --rehearse").ok();
    assert!(
        sandbox
            .run("ignition show bootstrap")
            .ok()
            .starts_with("node     bootstrap of lab.example.com\n")
    );
    sandbox.write("other.sh", env_file("other").replace("192.168.122.1", "192.168.122.2"));
    sandbox.run("harvest other.sh --rehearse").ok();
    sandbox
        .run("ignition show bootstrap")
        .refused(2, &["lab, other", "first argument"]);
    sandbox.run("ignition show lab bootstrap").ok();
}

#[test]
fn a_users_config_needs_no_state_and_no_home() {
    let sandbox = Sandbox::new();
    sandbox.config("a.ign", &hostname("a"));
    for verb in ["check a.ign", "merge a.ign", "diff a.ign a.ign", "show a.ign"] {
        let output = Command::new(env!("CARGO_BIN_EXE_ocpdeploy"))
            .args(format!("ignition {verb}").split_whitespace())
            .current_dir(sandbox.path("work"))
            .env_clear()
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{verb}: {output:?}");
    }
    assert!(!sandbox.path("state").exists());
    let long = config(json!([{"path": "/a\u{1b}[2J", "contents": {"source": "data:,x"}}]));
    sandbox.config("evil.ign", &long);
    for verb in ["show evil.ign --decode", "check evil.ign", "diff a.ign evil.ign"] {
        let ran = sandbox.run(&format!("ignition {verb}"));
        assert!(!ran.out.contains('\u{1b}') && !ran.err.contains('\u{1b}'), "{ran:?}");
    }
}
