//! Tests of all checks, a table for each section of a config: therefore more than 500 lines.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::judge::MOST_FINDINGS;
use super::*;
use crate::digest::sha256;

/// A config of spec 3 with these sections.
fn config(minor: u32, sections: &Value) -> Value {
    let mut config = json!({"ignition": {"version": format!("3.{minor}.0")}});
    for (name, section) in sections.as_object().unwrap() {
        match (name.as_str(), section) {
            ("ignition", Value::Object(fields)) => config["ignition"].as_object_mut().unwrap().extend(fields.clone()),
            _ => config[name] = section.clone(),
        }
    }
    config
}

fn files(files: Value) -> Value {
    json!({"storage": {"files": files}})
}

fn reported(findings: &[Finding]) -> Vec<String> {
    let mark = |severity| if severity == Severity::Error { "!" } else { "?" };
    findings
        .iter()
        .map(|it| format!("{}{}", mark(it.severity), it.path.trim_start_matches("$.")))
        .collect()
}

/// Each line: minor version, sections, and the expected findings: `!` an error, `?` a warning, with the path.
fn assert_reported(cases: &[(u32, Value, &[&str])]) {
    for (minor, sections, expected) in cases {
        let findings = check(&config(*minor, sections));
        assert_eq!(reported(&findings), *expected, "3.{minor} {sections}\n{findings:#?}");
    }
}

#[test]
fn values_have_the_types_of_the_spec() {
    assert_reported(&[
        (2, json!({"storage": []}), &["!storage"]),
        (2, json!({"storage": null, "passwd": {"users": null}}), &[]),
        (2, json!({"storage": {"files": {}}}), &["!storage.files"]),
        (2, files(json!([{"path": 5}])), &["!storage.files.0.path"]),
        (
            2,
            files(json!([{"path": "/a", "mode": "0644"}])),
            &["!storage.files.0.mode"],
        ),
        (
            2,
            files(json!([{"path": "/a", "mode": 420.5}])),
            &["!storage.files.0.mode"],
        ),
        (
            2,
            files(json!([{"path": "/a", "mode": 1e3}])),
            &["!storage.files.0.mode"],
        ),
        (
            2,
            files(json!([{"path": "/a", "mode": u64::MAX}])),
            &["!storage.files.0.mode"],
        ),
        (
            2,
            files(json!([{"path": "/a", "overwrite": "true"}])),
            &["!storage.files.0.overwrite"],
        ),
        (2, files(json!(["/a"])), &["!storage.files.0"]),
        (
            2,
            json!({"passwd": {"users": [{"name": "a", "groups": [1]}]}}),
            &["!passwd.users.0.groups.0"],
        ),
        // A required value of a wrong type is reported once.
        (
            2,
            json!({"ignition": {"config": {"merge": [{"source": 5}]}}}),
            &["!ignition.config.merge.0.source"],
        ),
    ]);
}

#[test]
fn keys_without_effect_are_reported() {
    assert_reported(&[
        (2, json!({"x": 1}), &["?x"]),
        (2, json!({"x\u{1b}[2J": 1}), &["?…"]),
        (
            2,
            files(json!([{"path": "/a", "filesystem": "root"}])),
            &["?storage.files.0.filesystem"],
        ),
        (
            1,
            json!({"storage": {"luks": [{"nonsense": true}]}}),
            &["?storage.luks"],
        ),
        (2, json!({"kernelArguments": 5}), &["?kernelArguments"]),
        (
            0,
            json!({"ignition": {"config": {"replace": {"source": "http://a", "compression": 7}}}}),
            &["?ignition.config.replace.compression"],
        ),
        (
            1,
            json!({"storage": {"disks": [{"device": "/d", "partitions": [{"number": 1, "resize": true}]}]}}),
            &["?storage.disks.0.partitions.0.resize"],
        ),
    ]);
    let findings = check(&config(
        2,
        &json!({"systemd": {"units": [{"name": "a.service", "enable": true}]}}),
    ));
    assert_eq!(
        findings[0].text,
        "unknown key enable: Ignition ignores it; did you mean `enabled`?"
    );
    let findings = check(&config(2, &json!({"kernelArguments": {}})));
    assert_eq!(
        findings[0].text,
        "3.2 ignores `kernelArguments`, which was added in 3.3"
    );
}

#[test]
fn duplicate_entries_are_rejected() {
    assert_reported(&[
        (
            2,
            json!({"storage": {"files": [{"path": "/a"}], "directories": [{"path": "/a"}]}}),
            &["!storage.files.0"],
        ),
        (
            2,
            json!({"storage": {"files": [{"path": "/a"}], "links": [{"path": "/a", "target": "b"}]}}),
            &["!storage.links.0"],
        ),
        (
            2,
            json!({"systemd": {"units": [{"name": "a.service", "mask": true}, {"name": "a.service"}]}}),
            &["!systemd.units.1"],
        ),
        (
            2,
            json!({"passwd": {"users": [{"name": "a", "sshAuthorizedKeys": ["ssh-rsa A", "ssh-rsa A"]}]}}),
            &["!passwd.users.0.sshAuthorizedKeys.1"],
        ),
        (
            3,
            json!({"kernelArguments": {"shouldExist": ["a"], "shouldNotExist": ["a"]}}),
            &["!kernelArguments.shouldNotExist.0"],
        ),
        (
            2,
            json!({"ignition": {"security": {"tls": {"certificateAuthorities": [{"source": "http://a"}, {"source": "http://a"}]}}}}),
            &["!ignition.security.tls.certificateAuthorities.1"],
        ),
        (
            2,
            json!({"storage": {"disks": [{"device": "/d", "partitions": [{"number": 1, "label": "a"}, {"number": 1}]}]}}),
            &["!storage.disks.0.partitions.1"],
        ),
        // These are not sets.
        (
            2,
            files(json!([{"path": "/a", "append": [{"source": "data:,a"}, {"source": "data:,a"}]}])),
            &[],
        ),
        (
            2,
            json!({"storage": {"filesystems": [{"device": "/d", "format": "xfs", "options": ["a", "a"]}]}}),
            &[],
        ),
    ]);
}

#[test]
fn paths_are_absolute_normalized_and_unused() {
    assert_reported(&[
        (2, files(json!([{"path": "/"}, {"path": "/a/b.c/..d"}])), &[]),
        (2, files(json!([{}])), &["!storage.files.0.path"]),
        (2, files(json!([{"path": "a"}])), &["!storage.files.0.path"]),
        (
            2,
            files(json!([{"path": "/a/../b"}, {"path": "/c//d"}, {"path": "/e/"}, {"path": "/./f"}])),
            &[
                "!storage.files.0.path",
                "!storage.files.1.path",
                "!storage.files.2.path",
                "!storage.files.3.path",
            ],
        ),
        (
            2,
            json!({"storage": {"links": [{"path": "/a", "target": "/t"}], "files": [{"path": "/a/b/c"}, {"path": "/ab"}]}}),
            &["!storage.files.0"],
        ),
        (
            2,
            json!({"storage": {"links": [{"path": "/l", "target": "/d/../d", "hard": true}], "directories": [{"path": "/d"}]}}),
            &["!storage.links.0"],
        ),
        (
            2,
            json!({"storage": {"links": [{"path": "/l", "target": "a", "hard": true, "user": {"id": 0}}]}}),
            &["?storage.links.0.user.id"],
        ),
        (
            2,
            files(json!([{"path": "/a", "user": {"id": 0, "name": "root"}}])),
            &["!storage.files.0.user"],
        ),
        (
            2,
            files(json!([{"path": "/a", "user": {"id": 0, "name": ""}, "group": {"id": null, "name": "a"}}])),
            &[],
        ),
        (
            2,
            files(json!([{"path": "/a", "overwrite": true}])),
            &["!storage.files.0.overwrite"],
        ),
        (
            2,
            files(json!([{"path": "/a", "overwrite": true, "contents": {"source": ""}}])),
            &[],
        ),
        (
            2,
            files(json!([{"path": "/a", "contents": {"source": "data:,a"}, "append": [{"source": "data:,b"}, {}]}])),
            &["?storage.files.0.append.1", "?storage.files.0.append"],
        ),
        (
            3,
            json!({"storage": {"links": [{"path": "/l"}]}}),
            &["!storage.links.0.target"],
        ),
        (
            2,
            json!({"storage": {"links": [{"path": "/l"}]}}),
            &["?storage.links.0.target"],
        ),
    ]);
}

#[test]
fn a_mode_that_was_meant_in_octal_is_reported() {
    let said = |minor, mode: i64| {
        let findings = check(&config(minor, &files(json!([{"path": "/a", "mode": mode}]))));
        findings.first().map(|it| it.text.clone())
    };
    for octal in [
        0o600, 0o640, 0o644, 0o664, 0o666, 0o700, 0o750, 0o755, 0o777, 0o440, 0o1777, 0o2755, 0o4755,
    ] {
        let typed = format!("{octal:o}").parse().unwrap();
        let text = said(2, typed).unwrap_or_default();
        assert!(
            text.ends_with(&format!("; for octal {octal:04o}, write {octal}")),
            "{typed}: {text}"
        );
        // The suggested number is valid.
        assert_eq!(said(6, octal), None, "{octal:o}");
    }
    for mode in [0, 0o400, 0o500, 0o444, 0o555, 0o111] {
        assert_eq!(said(2, mode), None, "{mode:o}");
    }
    assert!(said(5, 0o1777).is_some_and(|text| text.contains("before spec 3.6")));
    assert!(said(2, 4096).is_some_and(|text| text.starts_with("a mode is 0 to 4095")));
    assert!(said(2, -1).is_some());
    assert_reported(&[
        (
            2,
            json!({"storage": {"directories": [{"path": "/a", "mode": 420}]}}),
            &["?storage.directories.0.mode"],
        ),
        (
            2,
            json!({"storage": {"directories": [{"path": "/a", "mode": 493}]}}),
            &[],
        ),
    ]);
}

#[test]
fn resources_are_checked_by_the_rules_of_their_spec() {
    let hash = |function: &str, digits: usize| format!("{function}-{}", "a".repeat(digits));
    let file = |contents: Value| files(json!([{"path": "/a", "contents": contents}]));
    let merge = |entry: Value| json!({"ignition": {"config": {"merge": [entry]}}});
    const AT: &str = "storage.files.0.contents";
    let cases = [
        (
            2,
            file(json!({"source": "data:,", "compression": "xz"})),
            "!",
            ".compression",
        ),
        (
            2,
            file(json!({"source": "data:;base64,H4sIAAAAAAAAAwMAAAAAAAAAAAA=", "compression": "gzip"})),
            "",
            "",
        ),
        (
            2,
            file(json!({"source": "http://a", "verification": {"hash": "md5-00"}})),
            "!",
            ".verification.hash",
        ),
        (
            2,
            file(json!({"source": "http://a", "verification": {"hash": "sha512"}})),
            "!",
            ".verification.hash",
        ),
        (
            2,
            file(json!({"source": "http://a", "verification": {"hash": hash("sha512", 127)}})),
            "!",
            ".verification.hash",
        ),
        (
            2,
            file(json!({"source": "http://a", "verification": {"hash": hash("sha512", 128)}})),
            "",
            "",
        ),
        (
            2,
            file(json!({"source": "http://a", "verification": {"hash": hash("sha256", 64)}})),
            "",
            "",
        ),
        (
            0,
            file(json!({"source": "http://a", "verification": {"hash": hash("sha256", 64)}})),
            "!",
            ".verification.hash",
        ),
        (
            2,
            file(json!({"verification": {"hash": hash("sha512", 128)}})),
            "!",
            ".verification.hash",
        ),
        (
            2,
            file(json!({"source": "data:,a", "verification": {"hash": hash("sha512", 128)}})),
            "",
            "",
        ),
        (
            2,
            file(json!({"source": "data:,a", "verification": {"hash": format!("sha256-{}", sha256(b"a"))}})),
            "",
            "",
        ),
        (
            2,
            file(json!({"source": "data:,a", "httpHeaders": [{"name": "A", "value": "1"}]})),
            "!",
            ".httpHeaders",
        ),
        (2, file(json!({"httpHeaders": [{"name": "A"}]})), "!", ".httpHeaders"),
        (
            2,
            file(json!({"source": "http://a", "httpHeaders": [{"name": "A"}]})),
            "",
            "",
        ),
        (
            2,
            file(json!({"source": "http://a", "httpHeaders": [{"value": "1"}]})),
            "!",
            ".httpHeaders.0.name",
        ),
        (
            2,
            file(json!({"source": "http://a", "httpHeaders": [{"name": "A", "value": ""}]})),
            "!",
            ".httpHeaders.0.value",
        ),
        (1, file(json!({"source": "gs://a/b"})), "!", ".source"),
        (2, file(json!({"source": "gs://a/b"})), "", ""),
        (2, file(json!({"source": "/a"})), "!", ".source"),
        (2, file(json!({"source": "data:,a b"})), "!", ".source"),
    ];
    for (minor, sections, mark, place) in cases {
        let expected = if mark.is_empty() {
            vec![]
        } else {
            vec![format!("{mark}{AT}{place}")]
        };
        assert_eq!(
            reported(&check(&config(minor, &sections))),
            expected,
            "3.{minor} {sections}"
        );
    }
    assert_reported(&[
        (2, merge(json!({})), &["!ignition.config.merge.0"]),
        (2, merge(json!({"source": ""})), &["!ignition.config.merge.0"]),
        (0, merge(json!({})), &["?ignition.config.merge.0"]),
        (2, merge(json!(null)), &["!ignition.config.merge.0"]),
        (
            0,
            json!({"ignition": {"security": {"tls": {"certificateAuthorities": [{}]}}}}),
            &["!ignition.security.tls.certificateAuthorities.0"],
        ),
        (
            1,
            json!({"ignition": {"proxy": {"httpProxy": "http://a", "httpsProxy": "http://a"}}}),
            &["?ignition.proxy.httpsProxy"],
        ),
        (
            1,
            json!({"ignition": {"proxy": {"httpProxy": "ftp://a", "httpsProxy": ""}}}),
            &["!ignition.proxy.httpProxy", "!ignition.proxy.httpsProxy"],
        ),
        (
            2,
            json!({"ignition": {"config": {"replace": {"source": "http://a"}}}, "storage": {"files": []}}),
            &["?storage"],
        ),
    ]);
}

#[test]
fn units_have_names_and_texts_that_systemd_accepts() {
    let units = |units: Value| json!({"systemd": {"units": units}});
    assert_reported(&[
        (
            2,
            units(json!([{"name": "a.service"}, {"name": "b@x.timer", "mask": true}])),
            &[],
        ),
        (
            2,
            units(json!([{"name": "a.foo"}, {}, {"name": "a.service/b"}])),
            &[
                "!systemd.units.0.name",
                "!systemd.units.1.name",
                "!systemd.units.2.name",
            ],
        ),
        (
            2,
            units(json!([{"name": "a.service", "contents": "[Unit\n"}])),
            &["!systemd.units.0.contents"],
        ),
        (
            2,
            units(json!([{"name": "a.service", "enabled": true, "contents": "[Service]\nExecStart=/x\n"}])),
            &["?systemd.units.0.contents"],
        ),
        (
            2,
            units(json!([{"name": "a.service", "enabled": true, "mask": true}])),
            &["?systemd.units.0.mask"],
        ),
        (
            2,
            units(json!([{"name": "a@.service", "contents": "[Unit]\nA=b"}, {"name": "a@b.service", "enabled": true}])),
            &["?systemd.units.1.contents"],
        ),
        (
            2,
            units(
                json!([{"name": "a.service", "dropins": [{"name": "a.config"}, {"name": "b.conf", "contents": "[A]b"}]}]),
            ),
            &["!systemd.units.0.dropins.0.name", "!systemd.units.0.dropins.1.contents"],
        ),
        (
            2,
            json!({"systemd": {"units": [{"name": "a.service", "contents": "[A]", "dropins": [{"name": "b.conf", "contents": "[A]"}, {"name": "c.conf"}]}]},
            "storage": {"files": [{"path": "/etc/systemd/system/a.service"}, {"path": "/etc/systemd/system/a.service.d/c.conf"}],
                "directories": [{"path": "/etc/systemd/system/a.service.d/b.conf"}]}}),
            &["!storage.directories.0.path", "!storage.files.0.path"],
        ),
    ]);
}

#[test]
fn disks_and_filesystems_are_valid() {
    let partitions = |partitions: Value| json!({"storage": {"disks": [{"device": "/d", "partitions": partitions}]}});
    let storage = |list: &str, entry: Value| json!({"storage": {list: [entry]}});
    assert_reported(&[
        (2, storage("disks", json!({})), &["!storage.disks.0.device"]),
        (2, partitions(json!([{}])), &["!storage.disks.0.partitions.0"]),
        (
            2,
            partitions(
                json!([{"number": 1, "startMiB": 1, "sizeMiB": 10}, {"number": 2, "startMiB": 11, "sizeMiB": 0}]),
            ),
            &[],
        ),
        (
            2,
            partitions(
                json!([{"number": 1, "startMiB": 1, "sizeMiB": 10}, {"number": 2, "startMiB": 10, "sizeMiB": 0}]),
            ),
            &["!storage.disks.0.partitions.1"],
        ),
        (
            2,
            partitions(
                json!([{"number": 1, "startMiB": 0, "sizeMiB": 10}, {"number": 2, "startMiB": 0, "sizeMiB": 0}]),
            ),
            &[],
        ),
        (
            2,
            partitions(json!([{"number": 1, "label": "a"}, {"number": 2, "label": "a"}])),
            &["!storage.disks.0.partitions.1"],
        ),
        (
            2,
            partitions(json!([{"number": 1, "shouldExist": false}, {"label": "a"}])),
            &["!storage.disks.0.partitions"],
        ),
        (
            2,
            partitions(json!([{"number": 1, "shouldExist": false, "sizeMiB": 1}])),
            &["!storage.disks.0.partitions.0"],
        ),
        (
            2,
            partitions(json!([{"number": 1, "label": "a:b"}, {"number": 2, "label": "x".repeat(37)}])),
            &[
                "!storage.disks.0.partitions.0.label",
                "!storage.disks.0.partitions.1.label",
            ],
        ),
        (
            2,
            partitions(json!([{"number": 1, "guid": "x", "typeGuid": ""}])),
            &["!storage.disks.0.partitions.0.guid"],
        ),
        (
            2,
            storage("raid", json!({"name": "a"})),
            &["!storage.raid.0.level", "!storage.raid.0.devices"],
        ),
        (
            2,
            storage(
                "raid",
                json!({"name": "a", "level": "stripe", "spares": 1, "devices": ["/d"]}),
            ),
            &["!storage.raid.0.level"],
        ),
        (
            2,
            storage("raid", json!({"name": "a", "level": "raid7", "devices": ["d"]})),
            &["!storage.raid.0.level", "!storage.raid.0.devices.0"],
        ),
        (2, storage("filesystems", json!({"device": "/d"})), &[]),
        (
            2,
            storage("filesystems", json!({"device": "/d", "path": "/a"})),
            &["!storage.filesystems.0.format"],
        ),
        (
            0,
            storage("filesystems", json!({"device": "/d", "mountOptions": ["a"]})),
            &["?storage.filesystems.0.mountOptions"],
        ),
        (
            2,
            storage("filesystems", json!({"device": "/d", "format": "none"})),
            &["!storage.filesystems.0.format"],
        ),
        (
            3,
            storage("filesystems", json!({"device": "/d", "format": "none"})),
            &[],
        ),
        (
            2,
            storage(
                "filesystems",
                json!({"device": "/d", "format": "vfat", "label": "twelve-bytes"}),
            ),
            &["!storage.filesystems.0.label"],
        ),
        (
            2,
            json!({"storage": {"disks": [{"device": "/d", "partitions": [{"number": 1}]}], "filesystems": [{"device": "/d"}]}}),
            &["?storage.filesystems.0.device"],
        ),
        (
            2,
            storage("luks", json!({"name": "a/b"})),
            &["!storage.luks.0.name", "!storage.luks.0.device"],
        ),
        (
            2,
            storage(
                "luks",
                json!({"name": "a", "device": "/d", "clevis": {"custom": {}, "tpm2": true}}),
            ),
            &["!storage.luks.0.clevis"],
        ),
        (
            3,
            storage(
                "luks",
                json!({"name": "a", "device": "/d", "clevis": {"custom": {}, "tpm2": true}}),
            ),
            &[],
        ),
        (
            2,
            storage(
                "luks",
                json!({"name": "a", "device": "/d", "clevis": {"custom": {"needsNetwork": true}}}),
            ),
            &["?storage.luks.0.clevis.custom.pin"],
        ),
        (
            3,
            storage(
                "luks",
                json!({"name": "a", "device": "/d", "clevis": {"custom": {"pin": "x"}}}),
            ),
            &[
                "!storage.luks.0.clevis.custom.pin",
                "!storage.luks.0.clevis.custom.config",
            ],
        ),
        (
            4,
            storage(
                "luks",
                json!({"name": "a", "device": "/d", "clevis": {"tang": [{"url": "a", "advertisement": "{"}]}}),
            ),
            &[
                "!storage.luks.0.clevis.tang.0.url",
                "!storage.luks.0.clevis.tang.0.thumbprint",
                "!storage.luks.0.clevis.tang.0.advertisement",
            ],
        ),
        (
            5,
            storage(
                "luks",
                json!({"name": "a", "device": "/d", "cex": {"enabled": true}, "clevis": {"tpm2": true}}),
            ),
            &["!storage.luks.0.cex"],
        ),
    ]);
}

#[test]
fn users_have_valid_keys_and_passwords() {
    assert_reported(&[
        (
            2,
            json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 A b", "from=\"a\" ssh-rsa A"]}], "groups": [{"name": "a_b-1$"}]}}),
            &[],
        ),
        (
            2,
            json!({"passwd": {"users": [
                {"name": "a", "passwordHash": "$6$salt$hash"},
                {"name": "b", "passwordHash": "$y$j9T$salt$hash"},
                {"name": "c", "passwordHash": "rqXexS6ZhobKA"},
                {"name": "d", "passwordHash": "!"},
                {"name": "e", "passwordHash": ""},
                {"name": "f", "passwordHash": "secret"},
                {"name": "g", "passwordHash": "$6$"},
            ]}}),
            &["?passwd.users.5.passwordHash", "?passwd.users.6.passwordHash"],
        ),
        (
            2,
            json!({"passwd": {"users": [{"name": "a", "sshAuthorizedKeys": ["", "ssh-rsa A\nssh-rsa B"]}]}}),
            &[
                "?passwd.users.0.sshAuthorizedKeys.0",
                "?passwd.users.0.sshAuthorizedKeys.1",
            ],
        ),
    ]);
}

#[test]
fn a_mount_unit_has_the_name_of_its_mount_point() {
    let unit = |name: &str, place: &str| {
        let contents = format!("[Mount]\nWhat=/dev/vdb\nWhere={place}\n");
        let findings = check(&config(
            2,
            &json!({"systemd": {"units": [{"name": name, "contents": contents}]}}),
        ));
        reported(&findings)
    };
    for (name, place) in [
        ("var-lib-a.mount", "/var/lib/a"),
        ("var-lib-a\\x2db.mount", "/var/lib//a-b/"),
        ("-.mount", "/"),
        ("\\x2ea.mount", "/.a"),
        ("var-%i.mount", "/var/%I"),
        ("a.service", "/b"),
    ] {
        assert_eq!(unit(name, place), [""; 0], "{name} {place}");
    }
    assert_eq!(unit("data.mount", "/var/lib/data"), ["?systemd.units.0.name"]);
    assert_eq!(unit("mnt-a.mount", "/mnt/a"), ["?systemd.units.0.contents"]);
}

#[test]
fn line_ends_of_windows_are_reported() {
    assert_reported(&[(
        2,
        json!({"systemd": {"units": [{
            "name": "a.service", "contents": "[Service]\r\nExecStart=/x\r\n",
            "dropins": [{"name": "b.conf", "contents": "[Unit]\r\n"}],
        }]}}),
        &["?systemd.units.0.contents", "?systemd.units.0.dropins.0.contents"],
    )]);
}

/// What CoreOS rejects at its first boot, in addition to `check`.
fn at_first_boot(sections: &Value) -> Vec<String> {
    let config = config(2, sections);
    let known = check(&config);
    let mut findings = check_first_boot(&config);
    findings.retain(|finding| !known.contains(finding));
    reported(&findings)
}

#[test]
fn what_ignition_fails_on_is_an_error() {
    let file = |contents: Value| files(json!([{"path": "/etc/a", "contents": contents}]));
    let hash = |digit: &str| format!("sha256-{}", digit.repeat(64));
    for (sections, expected) in [
        (
            json!({"storage": {"files": [{"path": "/etc/a"}, {"path": "/etc/a/b"}], "directories": [{"path": "/etc/a/c"}]}}),
            &["!storage.directories.0.path", "!storage.files.1.path"][..],
        ),
        (
            file(json!({"source": "data:,plain", "compression": "gzip"})),
            &["!storage.files.0.contents.compression"],
        ),
        (
            file(json!({"source": "http://a", "verification": {"hash": hash("x")}})),
            &["!storage.files.0.contents.verification.hash"],
        ),
        (
            file(json!({"source": "data:,a", "verification": {"hash": hash("0")}})),
            &["!storage.files.0.contents.verification.hash"],
        ),
        (
            json!({"passwd": {
                "users": [{}, {"name": "A b"}, {"name": "Admin.2"}, {"name": "-a"}],
                "groups": [{"name": "1"}, {"name": ".."}, {"name": "a-1$"}],
            }}),
            &[
                "!passwd.users.0.name",
                "!passwd.users.1.name",
                "!passwd.users.3.name",
                "!passwd.groups.0.name",
                "!passwd.groups.1.name",
            ],
        ),
        (
            json!({"passwd": {"users": [{"name": "a", "gecos": "b:c", "passwordHash": "$6$a$b\n"}]}}),
            &["!passwd.users.0.passwordHash", "!passwd.users.0.gecos"],
        ),
        (
            json!({"ignition": {"security": {"tls": {"certificateAuthorities": [{"source": "data:,MIIB"}]}}}}),
            &["!ignition.security.tls.certificateAuthorities.0.source"],
        ),
        // The interpreter is not found, but the machine boots.
        (
            file(json!({"source": "data:,%23!/bin/sh%0D%0A"})),
            &["?storage.files.0.contents.source"],
        ),
        (
            file(json!({"source": "data:,a%0D%0A", "verification": {"hash": format!("sha256-{}", sha256(b"a\r\n"))}})),
            &[],
        ),
    ] {
        assert_eq!(at_first_boot(&sections), expected, "{sections}");
    }
}

#[test]
fn paths_that_coreos_does_not_have_or_forbids_are_reported() {
    let source = || json!({"source": "data:,x"});
    let file = |path: &str| files(json!([{"path": path, "contents": source()}]));
    let filesystem =
        |path: &str| json!({"storage": {"filesystems": [{"device": "/dev/vdb", "format": "xfs", "path": path}]}});
    const FILE: &str = "!storage.files.0.path";
    const FILESYSTEM: &str = "!storage.filesystems.0.path";
    for (sections, expected) in [
        // Ignition follows links of directories, and only for files.
        (file("/usr/local/bin/a"), &[][..]),
        (file("/opt/a/b"), &[]),
        (file("/root/.bashrc"), &[]),
        (file("/opt"), &[FILE]),
        (filesystem("/var/mnt/a"), &[]),
        (filesystem("/var"), &[]),
        (filesystem("/"), &[]),
        (filesystem("/mnt/external"), &[FILESYSTEM]),
        (filesystem("/home"), &[FILESYSTEM]),
        (
            json!({"storage": {"filesystems": [{"device": "/dev/vdb", "format": "swap", "path": "/mnt/a"}]}}),
            &[],
        ),
        (file("/data/a"), &[FILE]),
        (file("/homes/a"), &[FILE]),
        (filesystem("/data"), &[FILESYSTEM]),
        (file("/usr/bin/a"), &[FILE]),
        (file("/lib/systemd/system/a.service"), &[FILE]),
        (file("/run/a"), &["?storage.files.0.path"]),
        (file("/media/a"), &["?storage.files.0.path"]),
        (file("/tmp/a"), &["?storage.files.0.path"]),
        (file("/var/tmp/a"), &[]),
        (file("/boot/a"), &["?storage.files.0.path"]),
        (
            json!({"storage": {
                "files": [{"path": "/boot/a", "contents": source()}],
                "filesystems": [{"device": "/dev/disk/by-label/boot", "format": "ext4", "path": "/boot"}],
            }}),
            &[],
        ),
        (file("/etc/chrony.conf"), &[FILE]),
        (file("/etc/hostname"), &[]),
        (
            files(json!([{"path": "/etc/hosts", "overwrite": true, "contents": source()}])),
            &[],
        ),
        (
            files(json!([{"path": "/etc/hosts", "append": [source()]}, {"path": "/etc/shells", "mode": 420}])),
            &[],
        ),
        (
            json!({"storage": {"links": [{"path": "/etc/resolv.conf", "target": "/run/a"}]}}),
            &["!storage.links.0.path"],
        ),
        (
            json!({"storage": {"disks": [
                {"device": "/dev/disk/by-id/coreos-boot-disk", "wipeTable": true},
                {"device": "/dev/vda", "wipeTable": true},
                {"device": "/dev/vdb", "wipeTable": true},
            ]}}),
            &["!storage.disks.0.wipeTable", "?storage.disks.1.wipeTable"],
        ),
        (
            json!({"storage": {
                "disks": [{"device": "/dev/vda", "wipeTable": true}],
                "filesystems": [{"device": "/dev/md/md-root", "format": "xfs", "label": "root"}],
            }}),
            &[],
        ),
    ] {
        assert_eq!(at_first_boot(&sections), expected, "{sections}");
    }
}

#[test]
fn a_config_is_written_in_an_older_version_only_if_that_has_all_its_fields() {
    let newest = |minor| Version {
        major: Major::Three,
        minor,
        patch: 0,
    };
    let plain = || files(json!([{"path": "/etc/a", "mode": 420}]));
    for (minor, sections, most, expected) in [
        (6, plain(), 4, Ok("3.4.0")),
        (2, plain(), 4, Ok("3.2.0")),
        (4, plain(), 4, Ok("3.4.0")),
        // What is wrong in both versions is reported elsewhere.
        (4, json!({"x": 1}), 2, Ok("3.2.0")),
        (3, json!({"kernelArguments": {}}), 2, Err("?kernelArguments")),
        (
            5,
            json!({"storage": {"luks": [{"name": "a", "device": "/d", "cex": {}}]}}),
            4,
            Err("?storage.luks.0.cex"),
        ),
        (
            6,
            files(json!([{"path": "/etc/a", "mode": 2541}])),
            5,
            Err("?storage.files.0.mode"),
        ),
        (
            4,
            files(json!([{"path": "/etc/a", "contents": {"source": "arn:aws:s3:::b/o"}}])),
            3,
            Err("!storage.files.0.contents.source"),
        ),
        (
            3,
            json!({"storage": {"filesystems": [{"device": "/d", "format": "none"}]}}),
            2,
            Err("!storage.filesystems.0.format"),
        ),
    ] {
        let found = in_version(&config(minor, &sections), newest(most));
        let found = found.map(|config| config["ignition"]["version"].as_str().unwrap().to_owned());
        let found = found.map_err(|findings| reported(&findings).join(" "));
        assert_eq!(
            found.as_ref().map(String::as_str).map_err(String::as_str),
            expected,
            "3.{minor} {sections}"
        );
    }
}

#[test]
fn a_merged_config_is_checked_by_the_newest_rules() {
    for (minor, sections, expected) in [
        (
            2,
            json!({"storage": {"links": [{"path": "/l"}]}}),
            &["!storage.links.0.target"][..],
        ),
        (
            0,
            json!({"ignition": {"config": {"merge": [{}]}}}),
            &["!ignition.config.merge.0"],
        ),
        (
            2,
            json!({"storage": {"filesystems": [{"device": "/d", "format": "none"}]}}),
            &[],
        ),
        (
            2,
            json!({"storage": {"luks": [{"name": "a", "device": "/d", "clevis": {"custom": {"needsNetwork": true}}}]}}),
            &["!storage.luks.0.clevis.custom.pin"],
        ),
        // Unknown keys were already reported for each part.
        (2, json!({"unknown": 1}), &[]),
        (1, json!({"storage": {"luks": [{}]}}), &[]),
    ] {
        assert_eq!(
            reported(&check_merged(&config(minor, &sections))),
            expected,
            "3.{minor} {sections}"
        );
    }
}

#[test]
fn spec_2_has_its_own_rules() {
    let two = |minor: u32, sections: Value| {
        let mut config = json!({"ignition": {"version": format!("2.{minor}.0")}});
        config
            .as_object_mut()
            .unwrap()
            .extend(sections.as_object().unwrap().clone());
        reported(&check(&config))[1..].to_vec()
    };
    let file = |more: Value| {
        let mut file = json!({"filesystem": "root", "path": "/a"});
        file.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        files(json!([file]))
    };
    // A duplicate path, unknown keys and unnormalized paths are allowed.
    assert!(two(2, json!({"storage": {"files": [{"filesystem": "root", "path": "/a//b", "x": 1}, {"filesystem": "root", "path": "/a//b"}]}})).is_empty());
    for (sections, expected) in [
        (files(json!({})), "!storage.files"),
        (files(json!(["/a"])), "!storage.files.0"),
        (json!({"systemd": []}), "!systemd"),
        (file(json!({"filesystem": ""})), "!storage.files.0.filesystem"),
        (file(json!({"path": "a"})), "!storage.files.0.path"),
        (file(json!({"mode": "0644"})), "!storage.files.0.mode"),
        (file(json!({"mode": 4096})), "!storage.files.0.mode"),
        (file(json!({"append": true, "overwrite": true})), "!storage.files.0"),
        (file(json!({"user": {"id": 0, "name": "a"}})), "!storage.files.0.user"),
        (
            file(json!({"contents": {"source": "data:,a b"}})),
            "!storage.files.0.contents.source",
        ),
        (
            file(json!({"contents": {"source": "data:,", "verification": {"hash": "sha256-00"}}})),
            "!storage.files.0.contents.verification.hash",
        ),
        (json!({"systemd": {"units": [{"name": "a"}]}}), "!systemd.units.0.name"),
    ] {
        assert_eq!(two(2, sections.clone()), [expected], "{sections}");
    }
    assert!(two(2, file(json!({"contents": {"source": "oem:///a"}}))).is_empty());
}

#[test]
fn an_unknown_version_is_the_only_finding() {
    for version in [json!("3.2"), json!("3.7.0"), json!("2.5.0"), json!(3), json!(null)] {
        let findings = check(&json!({"ignition": {"version": version}, "storage": 5}));
        assert_eq!(reported(&findings), ["!ignition.version"], "{version}");
    }
    assert_eq!(reported(&check(&json!([]))), ["!ignition.version"]);
}

#[test]
fn findings_are_limited_but_the_first_error_is_kept() {
    let many = config(2, &files(json!(vec![1; 100_000])));
    assert_eq!(check(&many).len(), MOST_FINDINGS);
    let mut warnings: Vec<_> = (0..2000)
        .map(|number| json!({"path": format!("/{number}"), "x": 1}))
        .collect();
    warnings.push(json!({"path": "a"}));
    let findings = check(&config(2, &files(json!(warnings))));
    assert_eq!(reported(&findings[MOST_FINDINGS..]), ["!storage.files.2000.path"]);
}

#[test]
fn unexpected_effects_of_a_merge_are_reported() {
    let gzip = json!({"source": "http://a", "compression": "gzip", "verification": {"hash": "sha512-00"}, "httpHeaders": [{"name": "A", "value": "1"}]});
    let file = |more: Value| {
        let mut file = json!({"path": "/a"});
        file.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        files(json!([{"path": "/before"}, file]))
    };
    let unit = |more: Value| {
        let mut unit = json!({"name": "a.service"});
        unit.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"systemd": {"units": [unit]}})
    };
    for (parent, child, expected) in [
        (file(json!({"contents": gzip})), file(json!({"mode": 420})), &[][..]),
        (
            file(json!({"contents": gzip})),
            file(json!({"contents": {"source": "data:,a"}})),
            &[
                "?storage.files.1.contents.compression",
                "?storage.files.1.contents.verification.hash",
                "?storage.files.1.contents.httpHeaders",
            ],
        ),
        (
            file(json!({"contents": gzip})),
            file(
                json!({"contents": {"source": "https://b", "compression": "", "verification": {"hash": "sha512-11"}}}),
            ),
            &[],
        ),
        (
            file(json!({"contents": gzip})),
            file(
                json!({"contents": {"source": "data:,a", "compression": "", "verification": {"hash": "sha512-11"}, "httpHeaders": [{"name": "A"}]}}),
            ),
            &[],
        ),
        (
            file(json!({"user": {"id": 0}})),
            file(json!({"user": {"name": "core"}})),
            &["?storage.files.1.user"],
        ),
        (
            file(json!({"group": {"name": "core"}})),
            file(json!({"group": {"id": 0}})),
            &["?storage.files.1.group"],
        ),
        (
            file(json!({"user": {"name": "root"}})),
            file(json!({"user": {"name": "core"}})),
            &[],
        ),
        (
            file(json!({"append": [{"source": "data:,a"}]})),
            file(json!({"contents": {"source": "data:,b"}})),
            &["?storage.files.1.contents"],
        ),
        (
            json!({"storage": {"directories": [{"path": "/a"}]}}),
            file(json!({})),
            &["?storage.files.1.path"],
        ),
        (
            unit(json!({"enabled": true})),
            unit(json!({"mask": true})),
            &["?systemd.units.0.mask"],
        ),
        (
            unit(json!({"enabled": true})),
            unit(json!({"mask": true, "enabled": false})),
            &[],
        ),
        (
            unit(json!({"mask": true})),
            unit(json!({"enabled": true})),
            &["?systemd.units.0.mask"],
        ),
        (
            json!({"ignition": {"config": {"replace": gzip}}}),
            json!({"ignition": {"config": {"replace": {"source": "http://b"}}}}),
            &[
                "?ignition.config.replace.compression",
                "?ignition.config.replace.verification.hash",
            ],
        ),
    ] {
        assert_eq!(
            reported(&traps(&config(2, &parent), &config(2, &child))),
            expected,
            "{parent} {child}"
        );
    }
    let two = json!({"ignition": {"version": "2.2.0"}, "storage": {"files": [{"path": "/a"}]}});
    assert_eq!(reported(&traps(&two, &two)), ["?storage.files.0.path"]);
    assert!(traps(&two, &config(2, &json!({}))).is_empty());
}

const NAMES: &[&str] = &[
    "ignition",
    "version",
    "config",
    "merge",
    "replace",
    "security",
    "tls",
    "certificateAuthorities",
    "proxy",
    "httpProxy",
    "passwd",
    "users",
    "groups",
    "name",
    "sshAuthorizedKeys",
    "storage",
    "files",
    "directories",
    "links",
    "disks",
    "partitions",
    "filesystems",
    "raid",
    "luks",
    "clevis",
    "custom",
    "tang",
    "url",
    "cex",
    "path",
    "contents",
    "append",
    "source",
    "verification",
    "hash",
    "httpHeaders",
    "value",
    "mode",
    "user",
    "group",
    "id",
    "target",
    "hard",
    "device",
    "devices",
    "level",
    "label",
    "number",
    "startMiB",
    "sizeMiB",
    "format",
    "systemd",
    "units",
    "dropins",
    "enabled",
    "mask",
    "kernelArguments",
    "shouldExist",
    "Path",
    "x",
];

const TEXTS: &[&str] = &[
    "",
    "/",
    "/a",
    "/a/b",
    "a",
    "//",
    "data:",
    "data:,%",
    "data:;base64,===",
    "data:;a=\"\\",
    "http://[",
    "http://%",
    "arn:a:s3:::",
    "s3://?versionId",
    "sha512-",
    "sha256-é",
    "[",
    "[Install]\nA=\\",
    "\u{2003}=",
    "é@é.service",
    ".service",
    "a@.service",
    "ext4",
    "raid0",
    "tpm2",
    "é",
];

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0_i64..5000).prop_map(Value::from),
        prop::sample::select(TEXTS).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(7, 60, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(NAMES), inner), 0..6).prop_map(|fields| fields
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()),
        ]
    })
}

proptest! {
    #[test]
    fn nothing_panics_on_any_json(mut parent in any_json(), mut child in any_json(), minor in 0_u32..7, major in 2_u32..4) {
        for config in [&mut parent, &mut child] {
            let _ = check(config);
            if config.is_object() {
                config["ignition"] = json!({"version": format!("{major}.{minor}.0")});
            }
            let _ = check_first_boot(config);
            let _ = check_merged(config);
        }
        let _ = traps(&parent, &child);
    }

    #[test]
    fn nothing_panics_on_any_text(text in any::<String>(), head in prop::sample::select(TEXTS)) {
        let text = format!("{head}{text}");
        let _ = check_first_boot(&config(5, &json!({
            "passwd": {"users": [{"name": text, "passwordHash": text}]},
            "storage": {"files": [{"path": text, "contents": {"source": text, "verification": {"hash": text}}}], "links": [{"path": text, "target": text, "hard": true}]},
            "systemd": {"units": [{"name": text, "contents": text}, {"name": "a.mount", "contents": format!("[Mount]\nWhere={text}")}]},
            "ignition": {"proxy": {"httpProxy": text}},
        })));
    }
}
