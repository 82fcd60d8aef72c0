//! The checks of Ignition configs, compared with Debian's `ignition-validate` as the reference.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use ocpdeploy::ignition::check::{Finding, Severity, check, is_refused};
use ocpdeploy::ignition::document;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

/// The result of Debian's ignition-validate (2.14, specs 3.0 to 3.3): whether it rejects a config, and where.
fn validate(config: impl AsRef<[u8]>) -> (bool, BTreeSet<String>) {
    let spawned = Command::new("ignition-validate")
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = spawned.expect("ignition-validate: `apt-get install ignition`, or tests/lab/install.sh");
    child.stdin.take().unwrap().write_all(config.as_ref()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    // A line that quotes a percent sign has no line break.
    let places = text
        .split("error at ")
        .skip(1)
        .map(|rest| rest.split([',', ':']).next().unwrap_or_default().to_owned());
    let refused = match output.status.code() {
        Some(0) => false,
        Some(1) => true,
        other => panic!("ignition-validate ended with {other:?}: {text}"),
    };
    (refused, places.collect())
}

/// The result of our check.
fn ours(config: impl AsRef<[u8]>) -> (bool, BTreeSet<String>) {
    let findings = match document::read(config.as_ref()) {
        Ok(document) => check(&document.config),
        Err(_) => return (true, BTreeSet::new()),
    };
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
    // A check that 2.14 does not have yet.
    let known = |finding: &&Finding| !finding.text.contains("drop-in of `systemd.units`");
    let places: BTreeSet<String> = errors.filter(known).map(|finding| finding.path.clone()).collect();
    (!places.is_empty(), places)
}

/// A valid config with one of everything.
fn rich(minor: u32) -> Value {
    let mut config = json!({
        "ignition": {
            "version": format!("3.{minor}.0"),
            "config": {
                "merge": [{"source": "https://host/a"}, {"source": "data:,b", "verification": {"hash": format!("sha512-{}", "0".repeat(128))}}],
                "replace": {"source": "http://host/c"},
            },
            "security": {"tls": {"certificateAuthorities": [{"source": "http://host/ca"}]}},
            "timeouts": {"httpResponseHeaders": 10, "httpTotal": 20},
        },
        "passwd": {
            "users": [
                {"name": "core", "sshAuthorizedKeys": ["ssh-rsa AAAA", "ssh-rsa BBBB"], "groups": ["wheel", "adm"], "uid": 1000,
                 "gecos": "g", "homeDir": "/h", "noCreateHome": true, "passwordHash": "$6$x", "primaryGroup": "p", "shell": "/bin/sh", "system": false},
                {"name": "other"},
            ],
            "groups": [{"name": "g", "gid": 5, "system": true}, {"name": "h"}],
        },
        "storage": {
            "directories": [{"path": "/d", "mode": 493, "overwrite": true, "user": {"id": 0}, "group": {"name": "root"}}, {"path": "/d/e"}],
            "files": [
                {"path": "/d/f", "mode": 420, "overwrite": true, "contents": {"source": "data:,x", "compression": "", "verification": {}},
                 "append": [{"source": "data:;base64,QUI="}, {"source": "data:;base64,QUI="}], "user": {"name": "core"}, "group": {"id": 1}},
                {"path": "/etc/a/b", "contents": {"source": "s3://bucket/key?versionId=1", "verification": {"hash": format!("sha512-{}", "a".repeat(128))}}},
                {"path": "/h"},
            ],
            "links": [{"path": "/l", "target": "/t", "user": {"id": 3}}, {"path": "/m", "target": "../d/f", "hard": true, "overwrite": false}],
            "disks": [{"device": "/dev/vda", "wipeTable": true, "partitions": [
                {"label": "one", "number": 1, "startMiB": 1, "sizeMiB": 100, "guid": "01234567-89AB-CDEF-EDCB-A98765432101", "typeGuid": ""},
                {"label": "two", "number": 2, "startMiB": 101, "sizeMiB": 0, "wipePartitionEntry": true},
                {"label": "three", "startMiB": 0, "sizeMiB": 50, "shouldExist": true},
                {"number": 4, "startMiB": 5000, "sizeMiB": 50},
            ]}],
            "filesystems": [
                {"device": "/dev/vdb", "format": "ext4", "path": "/var", "label": "var", "uuid": "u", "options": ["-a", "-a"], "wipeFilesystem": true},
                {"device": "/dev/vdc", "format": "swap"},
                {"device": "/dev/vdd"},
            ],
            "raid": [{"name": "md", "level": "raid1", "devices": ["/dev/vde", "/dev/vdf"], "spares": 1, "options": ["-x", "-x"]},
                     {"name": "ms", "level": "stripe", "devices": ["/dev/vdg"], "spares": 0}],
        },
        "systemd": {"units": [
            {"name": "a.service", "enabled": true, "contents": "[Service]\nExecStart=/x\n[Install]\nWantedBy=a.target\n",
             "dropins": [{"name": "10-a.conf", "contents": "[Service]\nType=oneshot\n"}, {"name": "20.conf"}]},
            {"name": "b.timer", "mask": true},
        ]},
    });
    if minor >= 1 {
        config["ignition"]["proxy"] =
            json!({"httpProxy": "http://p", "httpsProxy": "https://p", "noProxy": ["a", "b"]});
        config["storage"]["files"][2]["contents"] = json!({"source": "https://host/x", "compression": "gzip",
            "httpHeaders": [{"name": "A", "value": "1"}, {"name": "B", "value": null}],
            "verification": {"hash": format!("sha256-{}", "f".repeat(64))}});
        config["storage"]["filesystems"][0]["mountOptions"] = json!(["ro", "ro"]);
        config["ignition"]["config"]["merge"][0]["compression"] = json!("gzip");
    }
    if minor >= 2 {
        config["storage"]["luks"] = json!([
            {"name": "l", "device": "/dev/vdh", "label": "lab", "keyFile": {"source": "data:,k"}, "options": ["-o", "-o"], "uuid": "u", "wipeVolume": true},
            {"name": "m", "device": "/dev/vdi", "clevis": {"tpm2": true, "threshold": 1, "tang": [{"url": "http://tang", "thumbprint": "t"}]}},
            {"name": "n", "device": "/dev/vdj", "clevis": {"custom": {"pin": "sss", "config": "c", "needsNetwork": true}}},
        ]);
        config["passwd"]["users"][1]["shouldExist"] = json!(false);
        config["storage"]["disks"][0]["partitions"][1]["resize"] = json!(true);
    }
    if minor >= 3 {
        config["kernelArguments"] = json!({"shouldExist": ["a", "b"], "shouldNotExist": ["c"]});
        config["storage"]["filesystems"][2]["format"] = json!("none");
    }
    config
}

/// Every place in a value.
fn places(value: &Value, here: &str, found: &mut Vec<String>) {
    if !here.is_empty() {
        found.push(here.to_owned());
    }
    match value {
        Value::Object(fields) => fields
            .iter()
            .for_each(|(key, child)| places(child, &format!("{here}/{key}"), found)),
        Value::Array(items) => {
            let each = |(index, child): (usize, &Value)| places(child, &format!("{here}/{index}"), found);
            items.iter().enumerate().for_each(each);
        }
        _ => {}
    }
}

/// Values that are valid in some places and invalid in others.
fn any_value() -> impl Strategy<Value = Value> {
    let texts = [
        "",
        "/",
        "/d",
        "/d/f",
        "/d/f/g",
        "/l/x",
        "/m/../n",
        "/x/",
        "//",
        "a",
        "a/b",
        "/h/i",
        "gzip",
        "xz",
        "core",
        "ssh-rsa AAAA",
        "wheel",
        "data:,",
        "data:,x y",
        "data:,x\ny",
        "data:,ü",
        "data:,%zz",
        "data:;base64,QUI",
        "data:;base64,QUI=",
        "data:text/plain;charset=utf-8;base64,QUJD",
        "data:what/ever,a",
        "http://host/x",
        "https://ho st/",
        "http://host:1x/",
        "tftp://a/b",
        "gs://b/o",
        "s3://b/o?versionId=",
        "arn:aws:s3:::b/o",
        "oem:///x",
        "file:///x",
        "http://",
        "://",
        "HTTP://x",
        "md5-00",
        "sha512-00",
        "sha512",
        "sha256-0519a9826023338828942b081814355d55301b9bc82042390f9afaf75cd3a707",
        "a.service",
        "b.timer",
        "c.foo",
        "service",
        ".service",
        "x@.service",
        "10-a.conf",
        "a.config",
        "[Unit\n",
        "[Unit]x",
        "[Unit]\nA",
        "[Unit]\nA=b",
        "#\\",
        "x",
        "ext4",
        "btrfs",
        "xfs",
        "swap",
        "vfat",
        "none",
        "ntfs",
        "a label of more than sixteen bytes",
        "thirteen-long",
        "twelve-bytes",
        "with:colon",
        "label-of-exactly-36-bytes-0123456789",
        "label-of-rather-more-than-48-bytes-0123456789-0123456789-01234",
        "raid0",
        "linear",
        "5",
        "raid7",
        "one",
        "two",
        "tpm2",
        "tang",
        "other",
        "01234567-89ab-cdef-edcb-a98765432101",
        "01234567-89AB-CDEF-EDCB-A9876543210",
        "/dev/vda",
        "/dev/vdb",
        "dev/vdx",
        "3.1.0",
        "3.2",
        "3.4.0",
        "2.2.0",
        "3.0.1",
        "3.3.0-experimental",
        "03.2.0",
        "4.0.0",
    ];
    prop_oneof![
        6 => prop::sample::select(texts.to_vec()).prop_map(Value::from),
        2 => prop::sample::select(vec![0_i64, 1, 2, 4, 50, 101, 420, 644, 4095, 4096, -1, i64::MAX]).prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => prop::sample::select(vec![json!(null), json!({}), json!([]), json!([null]), json!([{}]), json!([[]]), json!(["a", "a"]), json!(1.5),
            json!(u64::MAX), json!({"source": "data:,q"}), json!({"source": null}), json!({"hash": null}), json!({"id": 0, "name": "x"}),
            json!([{"path": "/q"}]), json!([{"name": "A", "value": ""}]), json!([{"name": "", "value": "1"}]), json!({"pin": "tang"}), json!({"needsNetwork": true})]),
    ]
}

/// One change of a config.
#[derive(Clone, Debug)]
enum Change {
    Set(Value),
    Remove,
    /// Appends a copy of the entry to its list.
    Repeat,
    /// Adds a key next to it.
    Beside(&'static str, Value),
}

fn any_change() -> impl Strategy<Value = (prop::sample::Index, Change)> {
    let names = vec![
        "path",
        "source",
        "mode",
        "name",
        "contents",
        "compression",
        "overwrite",
        "append",
        "target",
        "hard",
        "user",
        "httpHeaders",
        "verification",
        "shouldExist",
        "label",
        "format",
        "device",
        "enabled",
        "luks",
        "clevis",
        "custom",
        "pin",
        "Path",
        "filesystem",
    ];
    let change = prop_oneof![
        8 => any_value().prop_map(Change::Set),
        2 => Just(Change::Remove),
        2 => Just(Change::Repeat),
        2 => (prop::sample::select(names), any_value()).prop_map(|(name, value)| Change::Beside(name, value)),
    ];
    (any::<prop::sample::Index>(), change)
}

fn apply(config: &mut Value, (index, change): (prop::sample::Index, Change)) {
    let mut all = Vec::new();
    places(config, "", &mut all);
    if all.is_empty() {
        return;
    }
    let sandbox = index.get(&all);
    let (above, last) = sandbox.rsplit_once('/').unwrap();
    let Some(parent) = config.pointer_mut(above) else {
        return;
    };
    match (change, parent) {
        (Change::Set(value), parent) => match parent {
            Value::Object(fields) => drop(fields.insert(last.to_owned(), value)),
            Value::Array(items) => items[last.parse::<usize>().unwrap()] = value,
            _ => {}
        },
        (Change::Remove, Value::Object(fields)) => drop(fields.remove(last)),
        (Change::Remove | Change::Repeat, Value::Array(items)) => {
            let copy = items[last.parse::<usize>().unwrap()].clone();
            items.push(copy);
        }
        (Change::Beside(name, value), Value::Object(fields)) => drop(fields.insert(name.to_owned(), value)),
        _ => {}
    }
}

#[test]
fn a_complete_config_of_every_version_is_valid() {
    for minor in 0..=6 {
        let config = rich(minor).to_string();
        let findings = check(&document::parse(config.as_bytes()).unwrap());
        assert!(!is_refused(&findings), "3.{minor}: {findings:#?}");
        if minor <= 3 {
            assert_eq!(validate(&config), (false, BTreeSet::new()), "3.{minor}");
        }
    }
}

/// Random values of a strategy, the same in each run.
fn samples<S: Strategy>(count: usize, strategy: S) -> Vec<S::Value> {
    let mut runner = TestRunner::deterministic();
    (0..count)
        .map(|_| strategy.new_tree(&mut runner).unwrap().current())
        .collect()
}

#[test]
fn changed_configs_are_rejected_exactly_when_the_reference_rejects_them() {
    let changes = (0_u32..=3, prop::collection::vec(any_change(), 1..4));
    let mut refused = 0;
    for (minor, changes) in samples(600, changes) {
        let mut config = rich(minor);
        let told = format!("3.{minor} {changes:?}");
        changes.into_iter().for_each(|change| apply(&mut config, change));
        let config = config.to_string();
        let (theirs, ours) = (validate(&config), ours(&config));
        assert_eq!(theirs.0, ours.0, "{told}\n  reference {theirs:?}\n  ours      {ours:?}");
        refused += usize::from(theirs.0);
    }
    assert!((100..500).contains(&refused), "{refused} of 600 show nothing");
}

#[test]
fn texts_are_accepted_exactly_when_the_reference_accepts_them() {
    let head = r#"{"ignition": {"version": "3.2.0"}"#;
    let texts = [
        "",
        "\n",
        "{}",
        "[]",
        "null",
        "0",
        "\"a\"",
        "\u{feff}{}",
        "ignition:\n  version: 3.2.0\n",
        "{ nope",
        "{'a': 1}",
        r#"{"Ignition": {"VERSION": "3.2.0"}}"#,
        r#"{"ignition": {"version": 3.2}}"#,
        r#"{"ignition": {"version": null}}"#,
        r#"{"ignition": {"version": "3.2.0"}, "ignition": {"timeouts": {}}}"#,
        r#"{"ignition": {"version": "3.2.0"}, "ignition": null}"#,
        r#"{"ignition": {"version": "2.2.0", "version": "3.2.0"}}"#,
    ];
    let mut texts: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    for tail in [
        "}",
        "} ",
        "}\n{}",
        "} x",
        "",
        ",}",
        "} // x",
        r#", "x": [1, 2.5e3, -0.1, "\u00fc"]}"#,
        r#", "x": 01}"#,
        r#", "x": .5}"#,
        r#", "x": 1.}"#,
        r#", "x": NaN}"#,
        r#", "x": "\x41"}"#,
        ", \"x\": \"\t\"}",
        ", \"x\": \"\u{7f}\"}",
        r#", "storage": {"FILES": [{"Path": "a"}]}}"#,
        r#", "storage": {"FILES": [{"Path": "/a"}]}}"#,
        r#", "storage": {"files": [{"path": "a", "Path": "/a"}]}}"#,
        r#", "storage": {"files": [{"Path": "/a", "path": "a"}]}}"#,
        r#", "storage": {"files": [{"path": "a"}], "links": []}, "storage": {"files": [{"path": "/a"}]}}"#,
        r#", "storage": {"files": [{"path": "a"}]}, "storage": {"links": []}}"#,
        r#", "storage": {"files": [{"path": "/a", "mode": 1, "mode": null}]}}"#,
        r#", "storage": {"files": [{"path": "/a", "mode": 5000}]}, "storage": null}"#,
    ] {
        texts.push(format!("{head}{tail}").into_bytes());
    }
    texts.push([head.as_bytes(), b", \"x\": \"\xff\"}"].concat());
    texts.push([head.as_bytes(), b", \xff\"x\": 1}"].concat());
    // One character of a valid config changed, removed or inserted.
    let whole = rich(2).to_string();
    let signs: &[u8] = b"{}[]:,\"\\ 0-.eat\n\xff";
    let edits = (any::<prop::sample::Index>(), prop::sample::select(signs), 0..3);
    for (index, sign, kind) in samples(400, edits) {
        let mut text = whole.clone().into_bytes();
        let at = index.index(text.len());
        match kind {
            0 => text[at] = sign,
            1 => drop(text.remove(at)),
            _ => text.insert(at, sign),
        }
        texts.push(text);
    }
    for text in texts {
        let (theirs, ours) = (validate(&text), ours(&text));
        assert_eq!(
            theirs.0,
            ours.0,
            "{}\n  reference {theirs:?}\n  ours      {ours:?}",
            String::from_utf8_lossy(&text)
        );
    }
}

/// Texts made of pieces that are significant in their place.
fn pieced(pieces: &'static [&'static str], most: usize) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(pieces), 0..most).prop_map(|pieces| pieces.concat())
}

/// Checks up to 900 texts in one config, each in its own place: at most a thousand findings are reported.
fn judge_together(count: usize, config: &Value) {
    let config = config.to_string();
    let ((_, theirs), (_, ours)) = (validate(&config), ours(&config));
    let differ: Vec<_> = theirs.symmetric_difference(&ours).collect();
    let text = |sandbox: &String| {
        let config: Value = serde_json::from_str(&config).unwrap();
        config.pointer(&sandbox[1..].replace('.', "/")).cloned()
    };
    let told: Vec<_> = differ
        .iter()
        .map(|sandbox| (theirs.contains(*sandbox), sandbox, text(sandbox)))
        .collect();
    assert!(
        differ.is_empty(),
        "the reference rejects (true) or accepts (false): {told:#?}"
    );
    assert!(!theirs.is_empty() && theirs.len() < count);
}

#[test]
fn urls_are_rejected_exactly_when_the_reference_rejects_them() {
    const DATA: &[&str] = &[
        "data:",
        "DATA:",
        ",",
        ",",
        ";",
        ";",
        "=",
        "\"",
        "\\",
        "base64",
        ";base64,",
        ";base64,",
        "text/plain",
        "text/plain",
        "application",
        "/",
        "x-a/b",
        "X",
        "charset=utf-8",
        ";charset=utf-8",
        ";a=\"b\"",
        "a",
        "QUI=",
        "QUJD",
        "QQ==",
        "QR==",
        "=",
        "%41",
        "%zz",
        "%",
        "\\x41",
        "\\n",
        "\\u0041",
        "\\101",
        "+",
        "#",
        "?",
        " ",
        "\n",
        "\u{7f}",
        "ü",
        "[",
        "|",
        "~",
        "-_",
        "<>",
    ];
    const URLS: &[&str] = &[
        "http://",
        "https://",
        "HTTP:",
        "tftp://",
        "s3://",
        "gs://",
        "arn:aws:s3:::",
        "oem:",
        "file://",
        "http:",
        "//",
        "/",
        "/",
        ":",
        ":",
        "@",
        "host",
        "host",
        "h-1.x",
        "[::1]",
        "[",
        "]",
        "[fe80::1%25eth0]",
        "%25",
        "%41",
        "%ff",
        "%zz",
        "%2",
        "80",
        ":80",
        "?",
        "?versionId=",
        "&versionId=1",
        ";",
        "#",
        "#f%41",
        " ",
        "\t",
        "ü",
        "\\",
        "^",
        "!$&'()*+",
        "<",
        "\"",
        "user:pa%41ss@",
        "us{er@",
        "bucket/object",
        "1",
        "-",
    ];
    for (minor, head, pieces) in [
        (0, "data:", DATA),
        (1, "", DATA),
        (2, "", URLS),
        (3, "", URLS),
        (3, "http://", URLS),
        (2, "s3://b/o?", URLS),
    ] {
        let texts = samples(900, pieced(pieces, 8))
            .into_iter()
            .map(|text| format!("{head}{text}"));
        let files: Vec<_> = texts
            .enumerate()
            .map(|(index, text)| json!({"path": format!("/{index}"), "contents": {"source": text}}))
            .collect();
        let config = json!({"ignition": {"version": format!("3.{minor}.0")}, "storage": {"files": files}});
        judge_together(900, &config);
    }
}

#[test]
fn units_are_rejected_exactly_when_the_reference_rejects_them() {
    const PIECES: &[&str] = &[
        "[Unit]",
        "[Service]\n",
        "[Install]\n",
        "[",
        "]",
        "\n",
        "\n",
        "\r\n",
        "\r",
        "=",
        "A=b\n",
        "WantedBy=x\n",
        "A=b \\\n",
        "\\",
        "\\\n",
        "#",
        ";",
        "# c\n",
        " ",
        "\t",
        "word",
        "ü",
        "\u{a0}",
        "\u{2003}",
    ];
    let long = (
        prop::sample::select(vec![
            1900_usize, 2040, 2047, 2048, 2049, 2100, 4000, 4095, 4096, 4097, 9000,
        ]),
        -3_isize..4,
    )
        .prop_map(|(length, more)| "x".repeat(length.saturating_add_signed(more)));
    let texts = (
        pieced(PIECES, 10),
        prop::option::of(long.clone()),
        pieced(PIECES, 6),
        prop::option::of(long),
        pieced(PIECES, 4),
    );
    let texts = texts.prop_map(|(a, b, c, d, e)| [a, b.unwrap_or_default(), c, d.unwrap_or_default(), e].concat());
    // Half as many, because a text may have an error and a warning.
    for texts in samples(3000, texts).chunks(450) {
        let unit = |(index, text)| json!({"name": format!("{index}.service"), "enabled": true, "contents": text});
        let units: Vec<_> = texts.iter().enumerate().map(unit).collect();
        judge_together(
            450,
            &json!({"ignition": {"version": "3.2.0"}, "systemd": {"units": units}}),
        );
    }
}
