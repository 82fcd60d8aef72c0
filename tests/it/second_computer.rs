//! `ocpdeploy state`: a cluster's record is written to one file, and read on another computer, which is another state
//! folder here; hostile, damaged and interrupted imports; and the program `age` on the same files.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use age::secrecy::ExposeSecret;
use age::x25519;
use ocpdeploy::state::home::{ClusterDir, Home};
use ocpdeploy::state::inventory::Known;
use ocpdeploy::state::{archive, journal};
use serde_json::json;
use tar::EntryType;

use crate::support::left_out::left_out;
use crate::support::sandbox::{Outcome, Sandbox};
use crate::support::terminal::{Terminal, ended};

const LAB: &str = "masters=3\nworkers=1\nimage=coreos\nharvest_image=helper";

/// A deployed cluster, a key, and a second computer.
struct Computers {
    first: Sandbox,
    key: x25519::Identity,
}

impl Computers {
    /// Without a cluster.
    fn bare() -> Self {
        let first = Sandbox::new(json!({}));
        let key = x25519::Identity::generate();
        fs::write(first.path().join("key.txt"), key.to_string().expose_secret()).unwrap();
        fs::write(first.path().join("team.keys"), format!("# us\n{}\n", key.to_public())).unwrap();
        Self { first, key }
    }

    fn new() -> Self {
        let computers = Self::bare();
        computers.first.env("lab", LAB);
        computers.first.deploy("lab").succeeded();
        computers
    }

    fn path(&self, name: &str) -> PathBuf {
        self.first.path().join(name)
    }

    fn second(&self) -> Home {
        Home::new(self.path("second"))
    }

    fn here(&self, arguments: &[&str]) -> Outcome {
        self.first.run(arguments)
    }

    fn there(&self, arguments: &[&str]) -> Outcome {
        self.first.run(&[arguments, &["--home", "second"]].concat())
    }

    fn export(&self, more: &[&str]) -> Outcome {
        let command = [
            "state",
            "export",
            "lab",
            "-o",
            "lab.age",
            "--recipients-file",
            "team.keys",
        ];
        self.here(&[&command, more].concat())
    }

    fn import(&self, more: &[&str]) -> Outcome {
        self.there(&[&["state", "import", "lab.age", "--identity", "key.txt"], more].concat())
    }

    /// The import is rejected for this reason, and leaves nothing on the second computer.
    #[track_caller]
    fn rejected(&self, imported: &Outcome, code: i32, why: &str) {
        assert_eq!(imported.code, Some(code), "{why}: {}", imported.stderr);
        assert!(imported.message().contains(why), "{why}\n{}", imported.stderr);
        assert_eq!(imported.stdout, "", "{why}");
        assert!(!self.second().clusters().exists(), "{why}");
        assert!(!self.second().importing().exists(), "{why}");
    }

    /// Writes an archive as anyone who knows the public key can.
    fn write_archive(&self, tar: &[u8]) {
        let packed = age::encrypt(&self.key.to_public(), &gzip(tar)).unwrap();
        fs::write(self.path("lab.age"), packed).unwrap();
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

/// A member of a tar, with a name that a builder might reject.
fn member(kind: EntryType, name: &str, content: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(kind);
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.set_size(content.len() as u64);
    if matches!(kind, EntryType::Symlink | EntryType::Link) {
        header.set_link_name("/etc/passwd").unwrap();
    }
    header.set_cksum();
    let padding = content.len().next_multiple_of(512) - content.len();
    [header.as_bytes(), content, &vec![0; padding]].concat()
}

fn file(name: &str, content: &[u8]) -> Vec<u8> {
    member(EntryType::Regular, name, content)
}

/// The files of a cluster's record, as `pack` would write them, without the end of the archive.
fn record(dir: &ClusterDir, without: &[&str]) -> Vec<u8> {
    let files = archive::files(dir).unwrap().into_iter();
    let kept = files.filter(|path| !without.contains(&path.as_str()));
    kept.flat_map(|path| file(&path, &archive::read(dir, &path).unwrap()))
        .collect()
}

/// All files below a folder with their modes, folders included.
fn modes(folder: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = vec![(
        folder.to_owned(),
        fs::metadata(folder).unwrap().permissions().mode() & 0o7777,
    )];
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(modes(&path)),
            false => found.push((path.clone(), fs::metadata(&path).unwrap().permissions().mode() & 0o7777)),
        }
    }
    found
}

#[test]
fn a_second_computer_takes_over_a_cluster_after_the_first_is_lost() {
    let computers = Computers::new();
    let said = computers.export(&[]).succeeded().stdout;
    assert!(said.contains("record of cluster lab.example.com"), "{said}");
    // A rehearsal has no kubeconfig.
    let content = "content: addresses, journal, origin of the settings, Ignition configs\n";
    assert!(said.contains(content), "{said}");
    assert!(said.contains("secrets: it contains those of the cluster"), "{said}");
    let mode = fs::metadata(computers.path("lab.age")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);

    let said = computers.import(&[]).succeeded().stdout;
    for line in [
        "cluster: lab.example.com\n",
        "nodes: 3 masters, 1 worker\n",
        "next: ocpdeploy status lab\n",
    ] {
        assert!(said.contains(line), "{line}{said}");
    }
    assert!(!said.contains("missing: "), "{said}");
    let (here, there) = (computers.first.home().cluster("lab"), computers.second().cluster("lab"));
    let files = archive::files(&here).unwrap();
    assert_eq!(files, archive::files(&there).unwrap());
    for path in [
        "cluster.json",
        "ignition/layers.json",
        "ignition/master-0.ign",
        "installer/worker.ign",
    ] {
        assert!(files.iter().any(|file| file == path), "{path} is not among {files:?}");
    }
    for path in &files {
        assert_eq!(
            archive::read(&here, path).unwrap(),
            archive::read(&there, path).unwrap()
        );
    }
    for (path, mode) in modes(there.path()) {
        let wanted = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode, wanted, "{}", path.display());
    }

    fs::remove_dir_all(computers.first.home().root()).unwrap();
    let status = computers.there(&["status", "lab"]).succeeded().stdout;
    assert!(status.contains("worker-0"), "{status}");
    computers.there(&["scale", "lab", "--workers", "2"]).succeeded();
    computers
        .there(&["node", "replace", "lab", "worker-0", "--yes"])
        .succeeded();
    computers.there(&["destroy", "lab", "--yes"]).succeeded();
    assert_eq!(computers.first.machines(None), []);
    assert!(!there.exists());
}

#[test]
fn an_interrupted_deployment_is_resumed_on_a_second_computer() {
    let computers = Computers::bare();
    let first = &computers.first;
    first.env("lab", LAB);
    first.kill_deployment("lab", |sandbox| !sandbox.of_pass("lab", "two").is_empty());
    computers.export(&[]).succeeded();
    computers.import(&[]).succeeded();
    fs::remove_dir_all(first.home().root()).unwrap();
    computers.there(&["deploy", "lab.sh", "--rehearse"]).succeeded();
    assert_eq!(first.of_pass("lab", "two").len(), 4);
    assert_eq!(
        first.machines(Some("lab")).len(),
        4,
        "nothing of another attempt remains"
    );
}

#[test]
fn the_command_for_the_second_computer_quotes_the_path() {
    let computers = Computers::new();
    let export = [
        "state",
        "export",
        "lab",
        "-o",
        "it's lab.age",
        "--recipients-file",
        "team.keys",
    ];
    let exported = computers.here(&export).succeeded().stdout;
    let command = r"`ocpdeploy state import 'it'\''s lab.age'`";
    assert!(exported.contains(command), "{exported}");
}

#[test]
fn the_second_computer_has_the_settings_without_the_env_file() {
    let computers = Computers::new();
    computers.export(&[]).succeeded();
    fs::rename(computers.path("lab.sh"), computers.path("moved.sh")).unwrap();
    let said = computers.import(&[]).succeeded().stdout;
    assert!(!said.contains("missing: "), "{said}");
    let scaled = computers.there(&["scale", "lab", "--workers", "1", "--dry-run"]);
    assert_eq!(scaled.code, Some(0), "{}", scaled.stderr);
}

#[test]
fn only_the_right_key_decrypts_the_file() {
    let computers = Computers::new();
    fs::write(computers.path("right"), "correct horse\n").unwrap();
    fs::write(computers.path("wrong"), "correct horse \n").unwrap();
    fs::write(computers.path("empty"), "\n").unwrap();
    let export = ["state", "export", "lab", "-o", "lab.age", "--passphrase-file"];
    computers.here(&[&export[..], &["right"]].concat()).succeeded();
    let import = |more: &[&str]| computers.there(&[&["state", "import", "lab.age"], more].concat());
    computers.rejected(&import(&["--passphrase-file", "wrong"]), 3, "the passphrase is wrong");
    computers.rejected(&import(&["--passphrase-file", "empty"]), 3, "the passphrase is empty");
    computers.rejected(&import(&["--passphrase-file", "none"]), 3, "cannot read none");
    computers.rejected(&import(&["--identity", "key.txt"]), 2, "is encrypted with a passphrase");
    computers.rejected(&import(&[]), 2, "stdin is not a terminal");
    import(&["--passphrase-file", "right"]).succeeded();
    fs::remove_dir_all(computers.second().root()).unwrap();

    computers.export(&["--force"]).succeeded();
    let other = x25519::Identity::generate();
    fs::write(computers.path("other.txt"), other.to_string().expose_secret()).unwrap();
    computers.rejected(
        &import(&["--identity", "other.txt"]),
        3,
        "not encrypted to this identity",
    );
    computers.rejected(&import(&["--identity", "team.keys"]), 3, "cannot read team.keys");
    computers.rejected(&import(&["--passphrase-file", "right"]), 2, "add --identity FILE");
}

#[test]
fn recipients_that_are_no_keys_are_rejected() {
    let computers = Computers::new();
    fs::write(computers.path("bad.keys"), "# us\n\nssh-ed25519 AAAA\n").unwrap();
    fs::write(computers.path("no.keys"), "# none yet\n").unwrap();
    let export = ["state", "export", "lab", "-o", "lab.age"];
    for (more, code, why) in [
        (&["--recipient", "age1x"][..], 2, "a key begins with `age1`"),
        (&["--recipients-file", "bad.keys"], 3, "bad.keys: line 3"),
        (&["--recipients-file", "no.keys"], 3, "it contains no key"),
        (
            &["--recipients-file", "team.keys", "--passphrase-file", "no.keys"],
            2,
            "cannot be used with",
        ),
    ] {
        let outcome = computers.here(&[&export, more].concat());
        assert_eq!(outcome.code, Some(code), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(why), "{why}\n{}", outcome.stderr);
        assert!(!computers.path("lab.age").exists());
    }
}

#[test]
fn an_existing_file_is_replaced_only_with_force_and_never_through_a_link() {
    let computers = Computers::new();
    let path = computers.path("lab.age");
    fs::write(computers.path("precious"), "precious").unwrap();
    symlink(computers.path("precious"), &path).unwrap();
    let outcome = computers.export(&[]);
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(
        outcome.message().contains("lab.age already exists"),
        "{}",
        outcome.stderr
    );
    computers.export(&["--force"]).succeeded();
    assert_eq!(fs::read(computers.path("precious")).unwrap(), b"precious");
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
}

#[test]
fn a_cluster_in_use_is_neither_exported_nor_replaced() {
    let computers = Computers::new();
    computers.export(&[]).succeeded();
    let lock = journal::lock(&computers.first.home().cluster("lab"), "lab").unwrap();
    let import = ["state", "import", "lab.age", "--identity", "key.txt", "--replace"];
    for outcome in [computers.export(&["--force"]), computers.here(&import)] {
        assert_eq!(outcome.code, Some(8), "{}", outcome.stderr);
        assert!(
            outcome.message().contains("cluster lab is locked by"),
            "{}",
            outcome.stderr
        );
    }
    drop(lock);
    computers.here(&import).succeeded();
}

#[test]
fn an_existing_record_is_replaced_only_on_request_and_keeps_its_local_parts() {
    let computers = Computers::new();
    computers.export(&[]).succeeded();
    computers.import(&[]).succeeded();
    let again = computers.import(&[]);
    assert_eq!(again.code, Some(2), "{}", again.stderr);
    let message = again.message();
    assert!(
        message.contains("already in the state directory; both records are the same"),
        "{message}"
    );
    assert!(
        message.contains("`ocpdeploy state import lab.age --replace`"),
        "{message}"
    );

    computers.here(&["scale", "lab", "--workers", "2"]).succeeded();
    computers.export(&["--force"]).succeeded();
    let there = computers.second().cluster("lab");
    fs::write(there.client_dns(), r#"{"v":1,"how":"hosts"}"#).unwrap();
    fs::write(there.journal().with_file_name("known_hosts"), "old").unwrap();
    let newer = computers.import(&[]);
    let message = newer.message();
    assert!(message.contains("files differ: "), "{message}");
    assert!(
        message.contains("journal.jsonl, known_hosts, parameters.yaml"),
        "{message}"
    );
    assert!(
        fs::read_to_string(there.parameters())
            .unwrap()
            .matches("worker-1")
            .count()
            == 0
    );

    let said = computers.import(&["--replace"]).succeeded().stdout;
    assert!(
        said.contains("nodes: 3 masters, 2 workers\nreplaced: last change "),
        "{said}"
    );
    assert!(there.client_dns().exists() && !there.known_hosts().exists());
    assert!(!computers.second().importing().exists(), "the previous record remains");
    computers.there(&["status", "lab"]).succeeded();
}

#[test]
fn another_deployment_of_the_same_name_is_never_replaced() {
    let computers = Computers::new();
    computers.export(&[]).succeeded();
    let here = computers.first.home().cluster("lab");
    let deployment = Known::read(&here).unwrap().unwrap().deployment.id;
    let known = fs::read_to_string(here.known()).unwrap();
    for (old, new) in [("example.com", "example.org"), (deployment.as_str(), "bcdf2456")] {
        let dir = computers.second().cluster("lab");
        dir.create().unwrap();
        fs::write(dir.known(), known.replace(old, new)).unwrap();
        let before = modes(dir.path());
        let outcome = computers.import(&["--replace"]);
        assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
        let message = outcome.message();
        assert!(
            message.contains("another deployment of cluster lab: lab.example."),
            "{message}"
        );
        assert!(
            message.contains(&format!("not lab.example.com.{deployment}")),
            "{message}"
        );
        assert!(message.contains("--home DIR"), "{message}");
        fs::remove_file(dir.lock()).unwrap();
        assert_eq!(modes(dir.path()), before);
    }
}

#[test]
fn an_archive_with_anything_but_a_record_is_rejected_as_a_whole() {
    let computers = Computers::new();
    let dir = computers.first.home().cluster("lab");
    let whole = record(&dir, &[]);
    let read = |path: &str| archive::read(&dir, path).unwrap();
    let changed = |path: &str, old: &str, new: &str| {
        let text = String::from_utf8(read(path)).unwrap();
        assert!(text.contains(old), "{text}");
        text.replacen(old, new, 1)
    };
    let with = |path: &str, content: &str| [record(&dir, &[path]), file(path, content.as_bytes())].concat();
    let long = "ignition/".to_owned() + &"a".repeat(64) + ".ign";
    let claims = |size: u64| {
        let mut header = tar::Header::new_ustar();
        header.set_path("ignition/master-0.ign").unwrap();
        header.set_size(size);
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    let many: Vec<u8> = (0..=10_000)
        .flat_map(|n| file(&format!("ignition/worker-{n}.ign"), b""))
        .collect();
    let other = changed("parameters.yaml", "domain: 'example.com'", "domain: 'example.org'");
    let two_lines = changed("cluster.json", "example.com", "example.com\\n192.0.2.1 host");
    let elsewhere = changed("cluster.json", r#""lab""#, r#""../elsewhere""#);
    let table = changed("parameters.yaml", "cluster: 'lab'", "cluster: '../elsewhere'");
    let elsewhere = [
        record(&dir, &["cluster.json", "parameters.yaml"]),
        file("cluster.json", elsewhere.as_bytes()),
        file("parameters.yaml", table.as_bytes()),
    ];
    let not_of_a_record = "is not a file of a cluster's record";
    let added = |entry: Vec<u8>| [entry, whole.clone()].concat();
    let mut tried = 0;
    for (what, tar, why) in [
        ("a path upwards", added(file("../cluster.json", b"x")), not_of_a_record),
        (
            "an absolute path",
            added(file("/tmp/cluster.json", b"x")),
            not_of_a_record,
        ),
        (
            "a path upwards inside",
            added(file("ignition/../../x.ign", b"x")),
            not_of_a_record,
        ),
        ("a current folder", added(file("./cluster.json", b"x")), not_of_a_record),
        (
            "a file of ours that is left out",
            added(file("lock", b"x")),
            not_of_a_record,
        ),
        ("a program", added(file("bin/openshift-install", b"x")), not_of_a_record),
        (
            "a file in a folder of its own",
            added(file("ignition/a/b.ign", b"x")),
            not_of_a_record,
        ),
        ("a hidden file", added(file("ignition/.ign", b"x")), not_of_a_record),
        ("a long name", added(file(&long, b"x")), not_of_a_record),
        (
            "a name with control characters",
            added(file("a\x1b[2Jb", b"x")),
            "a\\u{1b}[2Jb in it",
        ),
        (
            "a link",
            added(member(EntryType::Symlink, "known_hosts", b"")),
            not_of_a_record,
        ),
        (
            "a hard link",
            added(member(EntryType::Link, "known_hosts", b"")),
            not_of_a_record,
        ),
        (
            "a folder",
            added(member(EntryType::Directory, "ignition", b"")),
            not_of_a_record,
        ),
        (
            "a pipe",
            added(member(EntryType::Fifo, "known_hosts", b"")),
            not_of_a_record,
        ),
        (
            "a device",
            added(member(EntryType::Block, "known_hosts", b"")),
            not_of_a_record,
        ),
        (
            "a sparse file",
            added(member(EntryType::GNUSparse, "known_hosts", b"")),
            not_of_a_record,
        ),
        (
            "a long name of GNU",
            added(member(EntryType::GNULongName, "././@LongLink", b"known_hosts\0")),
            not_of_a_record,
        ),
        (
            "another name of pax",
            added(member(EntryType::XHeader, "known_hosts", b"18 path=../escape\n")),
            not_of_a_record,
        ),
        (
            "one file twice",
            [whole.clone(), file("cluster.json", b"{}")].concat(),
            "cluster.json is in it twice",
        ),
        (
            "a file too large",
            claims((64 << 20) + 1),
            "ignition/master-0.ign in it is too large",
        ),
        (
            "a file of any size",
            claims(1 << 40),
            "ignition/master-0.ign in it is too large",
        ),
        (
            "too many files",
            many,
            "worker-10000.ign in it is too large, or it has too many files",
        ),
        (
            "a member cut off",
            whole[..whole.len() - 512].to_vec(),
            "truncated or damaged",
        ),
        ("no tar", b"nonsense".repeat(100), "truncated or damaged"),
        ("nothing", Vec::new(), "it has no cluster.json"),
        ("no cluster", record(&dir, &["cluster.json"]), "it has no cluster.json"),
        ("no JSON", with("cluster.json", "{"), "its cluster.json is invalid"),
        (
            "a later version",
            with("cluster.json", r#"{"v": 99}"#),
            "unsupported version 99",
        ),
        (
            "no YAML",
            with("parameters.yaml", "{"),
            "its parameters.yaml is invalid",
        ),
        (
            "a corrupt journal",
            with("journal.jsonl", "nonsense\n{}\n"),
            "its journal.jsonl is invalid",
        ),
        (
            "two clusters",
            with("parameters.yaml", &other),
            "its cluster.json is for lab.example.com, its parameters.yaml for lab.example.org",
        ),
        (
            "a domain of two lines",
            with("cluster.json", &two_lines),
            "its cluster.json is invalid: ",
        ),
        (
            "a cluster whose name is a path",
            elsewhere.concat(),
            "`../elsewhere` is not a cluster's name",
        ),
    ] {
        computers.write_archive(&tar);
        println!("{what}");
        computers.rejected(&computers.import(&[]), 3, why);
        tried += 1;
    }
    assert!(!computers.path("elsewhere").exists() && !computers.second().root().join("elsewhere").exists());
    println!("reliability: {tried} hostile records tried");
    computers.write_archive(&whole);
    computers.import(&[]).succeeded();
}

#[test]
fn a_truncated_changed_or_different_file_is_rejected() {
    let computers = Computers::new();
    let dir = computers.first.home().cluster("lab");
    // More than one block of age, each of which is decrypted by itself.
    let noise: Vec<u8> = (0..200_000_u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[..1].to_vec())
        .collect();
    let tar = [record(&dir, &[]), file("ignition/noise.ign", &noise), vec![0; 1024]].concat();
    computers.write_archive(&tar);
    let whole = fs::read(computers.path("lab.age")).unwrap();
    assert!(whole.len() > 2 * (64 << 10), "{} bytes", whole.len());
    let header = whole.windows(5).position(|bytes| bytes == b"\n--- ").unwrap();
    let payload = whole[header + 1..].iter().position(|byte| *byte == b'\n').unwrap() + header + 2 + 16;
    let block = payload + (64 << 10) + 16;
    let lengths = [
        0,
        1,
        10,
        header,
        payload,
        payload + 1,
        block - 1,
        block,
        block + 1,
        whole.len() - 1,
    ];
    let cut = lengths.map(|length| (format!("cut to {length}"), whole[..length].to_vec()));
    let places = [
        0,
        10,
        header - 3,
        header + 10,
        payload - 1,
        payload,
        payload + 5000,
        block,
        whole.len() - 1,
    ];
    let flipped = places.map(|place| {
        let mut bytes = whole.clone();
        bytes[place] ^= 1;
        (format!("changed at {place}"), bytes)
    });
    let more = [
        ("with more at its end".to_owned(), [&whole[..], b"x"].concat()),
        ("a text".to_owned(), b"masters=3\n".to_vec()),
        ("only a tar".to_owned(), gzip(&tar)),
    ];
    let behind = age::encrypt(&computers.key.to_public(), &[gzip(&tar), b"behind".to_vec()].concat()).unwrap();
    let behind = [("with something behind the tar".to_owned(), behind)];
    for (what, bytes) in cut.into_iter().chain(flipped).chain(more).chain(behind) {
        fs::write(computers.path("lab.age"), bytes).unwrap();
        println!("{what}");
        computers.rejected(&computers.import(&[]), 3, "cannot import lab.age");
    }
    fs::write(computers.path("lab.age"), whole).unwrap();
    computers.import(&[]).succeeded();
}

#[test]
fn an_interrupted_import_is_invisible_and_can_be_repeated() {
    let computers = Computers::new();
    let dir = computers.first.home().cluster("lab");
    let noise: Vec<u8> = (0..400_000_u32)
        .map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect();
    let [first, last] = [file("ignition/noise.ign", &noise), record(&dir, &["cluster.json"])];
    computers.write_archive(
        &[
            file("cluster.json", &archive::read(&dir, "cluster.json").unwrap()),
            first,
            last,
        ]
        .concat(),
    );
    let whole = fs::read(computers.path("lab.age")).unwrap();
    let pipe = computers.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let import = ["state", "import", "pipe", "--identity", "key.txt", "--home", "second"];
    let mut child = computers.first.start(&import);
    let mut writer = fs::File::options().write(true).open(&pipe).unwrap();
    writer.write_all(&whole[..whole.len() / 2]).unwrap();
    let importing = computers.second().importing();
    let begin = Instant::now();
    while !importing.known().exists() {
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing was unpacked");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(importing.exists(), "it was interrupted too late");
    let listed = computers.there(&["list"]).succeeded().stdout;
    assert_eq!(listed, "no clusters in the state directory\n");
    assert!(!computers.second().clusters().exists());
    computers.import(&[]).succeeded();
    assert!(!importing.exists());
    computers.there(&["status", "lab"]).succeeded();
}

#[test]
fn a_passphrase_is_typed_twice_and_never_shown() {
    let computers = Computers::new();
    let export = ["state", "export", "lab", "-o", "lab.age"];
    let typed = |keys: [&str; 2]| {
        let mut terminal = Terminal::new();
        let child = terminal.start(computers.first.command(&export).env("TERM", "xterm"));
        terminal.shows("Passphrase:");
        terminal.types(&format!("{}\r", keys[0]));
        terminal.shows("Repeat the passphrase:");
        terminal.types(&format!("{}\r", keys[1]));
        (terminal, child)
    };
    let (terminal, child) = typed(["correct horse", "correct horse"]);
    assert!(ended(child).success(), "{}", terminal.shown());
    let shown = terminal.shown_at_last();
    assert!(shown.contains("record of cluster lab.example.com"), "{shown}");
    assert!(!shown.contains("horse"), "{shown}");
    fs::write(computers.path("passphrase"), "correct horse").unwrap();
    computers
        .there(&["state", "import", "lab.age", "--passphrase-file", "passphrase"])
        .succeeded();

    fs::remove_file(computers.path("lab.age")).unwrap();
    let (mut terminal, child) = typed(["correct horse", "battery staple"]);
    terminal.shows("don't match");
    terminal.types("\x03");
    assert_eq!(ended(child).code(), Some(7), "{}", terminal.shown());
    assert!(!computers.path("lab.age").exists());
}

/// Each step of the work factor doubles memory and time.
#[test]
fn a_passphrase_that_takes_too_long_to_verify_is_rejected() {
    let computers = Computers::new();
    fs::write(computers.path("passphrase"), "correct horse").unwrap();
    let mut recipient = age::scrypt::Recipient::new("correct horse".to_owned().into());
    recipient.set_work_factor(2);
    let sealed = age::encrypt(&recipient, b"x").unwrap();
    let header = sealed.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let end = header + sealed[header..].iter().position(|byte| *byte == b'\n').unwrap();
    assert!(sealed[header..end].starts_with(b"-> scrypt ") && sealed[..end].ends_with(b" 2"));
    fs::write(
        computers.path("lab.age"),
        [&sealed[..end - 1], b"30", &sealed[end..]].concat(),
    )
    .unwrap();
    let import = ["state", "import", "lab.age", "--passphrase-file", "passphrase"];
    computers.rejected(&computers.there(&import), 3, "cannot import lab.age");
}

/// Runs `age` with this input; `None` without the program.
fn real_age(computers: &Computers, arguments: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let mut age = Command::new("age");
    age.args(arguments).current_dir(computers.first.path());
    let started = age.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = match started {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            left_out("age is not installed");
            return None;
        }
        started => started.unwrap(),
    };
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(&input).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "age {arguments:?}");
    Some(output.stdout)
}

#[test]
fn the_program_age_reads_what_is_exported_and_writes_what_is_imported() {
    let computers = Computers::new();
    computers.export(&[]).succeeded();
    let Some(unzipped) = real_age(&computers, &["--decrypt", "-i", "key.txt", "lab.age"], b"") else {
        return;
    };
    let folder = computers.path("unpacked");
    fs::create_dir(&folder).unwrap();
    let mut tar = Command::new("tar")
        .args(["-xz", "-C"])
        .arg(&folder)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    tar.stdin.take().unwrap().write_all(&unzipped).unwrap();
    assert!(tar.wait().unwrap().success());
    let dir = computers.first.home().cluster("lab");
    for path in archive::files(&dir).unwrap() {
        assert_eq!(
            fs::read(folder.join(&path)).unwrap(),
            archive::read(&dir, &path).unwrap(),
            "{path}"
        );
    }
    let packed = real_age(&computers, &["-R", "team.keys"], &unzipped).unwrap();
    fs::write(computers.path("lab.age"), packed).unwrap();
    computers.import(&[]).succeeded();

    // The same with a passphrase, which it reads from a terminal.
    fs::remove_dir_all(computers.second().root()).unwrap();
    fs::write(computers.path("passphrase"), "correct horse").unwrap();
    let export = [
        "state",
        "export",
        "lab",
        "--force",
        "-o",
        "lab.age",
        "--passphrase-file",
        "passphrase",
    ];
    computers.here(&export).succeeded();
    let typed = |arguments: &[&str], times: usize| {
        let mut terminal = Terminal::new();
        let mut age = Command::new("age");
        let child = terminal.start(age.args(arguments).current_dir(computers.first.path()));
        for prompt in ["Enter passphrase", "Confirm passphrase"].iter().take(times) {
            terminal.shows(prompt);
            terminal.types("correct horse\r");
        }
        assert!(ended(child).success(), "{}", terminal.shown());
    };
    typed(&["--decrypt", "-o", "lab.tar.gz", "lab.age"], 1);
    assert!(
        fs::read(computers.path("lab.tar.gz"))
            .unwrap()
            .starts_with(&[0x1f, 0x8b])
    );
    fs::remove_file(computers.path("lab.age")).unwrap();
    typed(&["--passphrase", "-o", "lab.age", "lab.tar.gz"], 2);
    computers
        .there(&["state", "import", "lab.age", "--passphrase-file", "passphrase"])
        .succeeded();
}
