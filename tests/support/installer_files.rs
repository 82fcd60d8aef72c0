//! Files as openshift-install writes them: real paths and sizes, with filler as content.

use ocpdeploy::cluster::Role;
use ocpdeploy::ignition::contents::data_url;
use serde_json::{Value, json};

/// The paths and sizes of a real bootstrap.ign.
const SHAPE: &str = include_str!("../fixtures/bootstrap-4.15.txt");

pub const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBvT2Wdq2dMbFf8hh+o/a4HZMBbqvP6vpsXfB4pMJ6Ma lab";

/// A file of this size as the installer writes it; with a `+` before the size, it is appended.
pub fn file(path: &str, mode: &str, bytes: &str) -> Value {
    let text: Vec<u8> = format!("# in place of {path}\n")
        .bytes()
        .cycle()
        .take(bytes.trim_start_matches('+').parse().unwrap())
        .collect();
    let resource = json!({"source": data_url(&text)});
    let mode = u32::from_str_radix(mode, 8).unwrap();
    match bytes.starts_with('+') {
        true => json!({"overwrite": false, "path": path, "user": {"name": "root"}, "append": [resource], "mode": mode}),
        false => json!({"overwrite": true, "path": path, "user": {"name": "root"}, "contents": resource, "mode": mode}),
    }
}

pub fn unit(name: &str, enabled: &str, bytes: &str, dropins: &[&str]) -> Value {
    let mut unit = json!({"name": name});
    if enabled == "enabled" {
        unit["enabled"] = json!(true);
    }
    let bytes: usize = bytes.parse().unwrap();
    if bytes > 0 {
        let section = if name.ends_with(".socket") {
            "[Socket]\nListenStream=1\n"
        } else {
            "[Service]\nExecStart=/bin/true\n"
        };
        unit["contents"] = json!(format!(
            "{section}{}[Install]\nWantedBy=multi-user.target\n",
            "# filler\n".repeat(bytes / 9)
        ));
    }
    if !dropins.is_empty() {
        unit["dropins"] = dropins
            .iter()
            .map(|name| json!({"name": name, "contents": "[Unit]\n# filler\n"}))
            .collect();
    }
    unit
}

pub fn bootstrap(version: &str) -> Value {
    let (mut files, mut units) = (Vec::new(), Vec::new());
    for line in SHAPE.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["unit", name, enabled, bytes, ref dropins @ ..] => units.push(unit(name, enabled, bytes, dropins)),
            [path, mode, bytes] => files.push(file(path, mode, bytes)),
            _ => panic!("{line}"),
        }
    }
    assert_eq!((files.len(), units.len()), (99, 11));
    json!({
        "ignition": {"version": version},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [KEY]}]},
        "storage": {"files": files},
        "systemd": {"units": units},
    })
}

pub fn pointer(role: Role, version: &str) -> Value {
    let url = format!("https://api-int.lab.example.com:22623/config/{role}");
    json!({"ignition": {"config": {"merge": [{"source": url}]}, "version": version}})
}
