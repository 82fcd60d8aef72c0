//! Independent programs for Ignition configs: Debian's engine, which applies them to a folder, and its validator.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use ocpdeploy::ignition::contents::{self, Contents};
use serde_json::Value;

const ENGINE: &str = "/usr/lib/dracut/modules.d/30ignition/ignition";
const MISSING: &str = "this test needs Debian's Ignition: apt-get install --no-install-recommends ignition";

/// A root file system with only what the engine requires. `core` is root there, so that the engine's user can write.
pub struct Root {
    folder: tempfile::TempDir,
}

impl Root {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = Self { folder };
        for (path, text) in [
            (
                "root/etc/passwd",
                "root:x:0:0:root:/root:/bin/sh\ncore:x:0:0::/home/core:/bin/sh\n",
            ),
            ("root/etc/group", "root:x:0:\n"),
            ("root/etc/shadow", "root:*:18000::::::\ncore:*:18000::::::\n"),
            ("root/etc/motd", "before\n"),
            ("root/etc/selinux/config", "SELINUXTYPE=targeted\n"),
            ("root/etc/selinux/targeted/contexts/files/file_contexts", ""),
            ("bin/setfiles", "#!/bin/sh\ncat >/dev/null\n"),
        ] {
            let path = root.folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let setfiles = root.folder.path().join("bin/setfiles");
        fs::set_permissions(setfiles, fs::Permissions::from_mode(0o755)).unwrap();
        root
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join("root").join(path.trim_start_matches('/'))
    }

    pub fn read(&self, path: &str) -> Vec<u8> {
        fs::read(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub fn mode(&self, path: &str) -> u32 {
        fs::metadata(self.path(path)).unwrap().permissions().mode() & 0o7777
    }

    /// Runs all stages as CoreOS's first boot does.
    #[track_caller]
    pub fn apply(&self, config: &[u8]) {
        self.try_apply(config).unwrap_or_else(|log| panic!("{log}"));
    }

    /// Runs all stages; the error is the engine's output of the failed stage.
    pub fn try_apply(&self, config: &[u8]) -> Result<(), String> {
        ["fetch-offline", "fetch", "files"]
            .into_iter()
            .try_for_each(|stage| self.stage(stage, config))
    }

    /// The config after the engine has merged all configs that this one names, or the engine's output.
    pub fn merged(&self, config: &[u8]) -> Result<Value, String> {
        self.stage("fetch", config)?;
        Ok(json_of(&fs::read(self.folder.path().join("cache.json")).unwrap()))
    }

    fn stage(&self, stage: &str, config: &[u8]) -> Result<(), String> {
        assert!(Path::new(ENGINE).exists(), "{MISSING}");
        let work = self.folder.path();
        fs::write(work.join("node.ign"), config).unwrap();
        // The engine changes owners and stores its state in /run: it runs as root, with a private /run.
        let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
        let own_run = "mount -t tmpfs tmpfs /run && exec \"$0\" \"$@\"";
        let mut command = Command::new("unshare");
        if !is_root {
            command.arg("--map-root-user");
        }
        command.args(["--mount", "sh", "-c", own_run, ENGINE]);
        let output = command
            .args(["--platform", "file", "--log-to-stdout", "--stage", stage])
            .args(["--root".as_ref(), work.join("root").as_os_str()])
            .args(["--config-cache".as_ref(), work.join("cache.json").as_os_str()])
            .args(["--neednet".as_ref(), work.join("neednet").as_os_str()])
            .env("IGNITION_CONFIG_FILE", work.join("node.ign"))
            .env(
                "PATH",
                format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", work.join("bin").display()),
            )
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("stage {stage}:\n{log}")),
        }
    }

    /// Compares files, units and ssh keys of an effective config with this root; returns the number of files.
    #[track_caller]
    pub fn compare(&self, effective: &Value) -> usize {
        let list = |sandbox: &str| {
            effective
                .pointer(sandbox)
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default()
        };
        let files = list("/storage/files");
        for file in &files {
            let path = file["path"].as_str().unwrap();
            let mut expected = match file["contents"]["source"].is_string() {
                true => content(&file["contents"]),
                false if path == "/etc/motd" => b"before\n".to_vec(),
                false => Vec::new(),
            };
            for more in file["append"].as_array().into_iter().flatten() {
                expected.extend(content(more));
            }
            assert_eq!(self.read(path), expected, "{path}");
            assert_eq!(
                u64::from(self.mode(path)),
                file["mode"].as_u64().unwrap_or(0o644),
                "{path}"
            );
        }
        let presets = self.path("/etc/systemd/system-preset/20-ignition.preset");
        let presets = fs::read_to_string(presets).unwrap_or_default();
        for unit in list("/systemd/units") {
            let name = unit["name"].as_str().unwrap();
            let on_disk = self.path(&format!("/etc/systemd/system/{name}"));
            match unit["contents"].as_str() {
                Some(text) if unit["mask"] != true => {
                    assert_eq!(fs::read(&on_disk).unwrap(), text.as_bytes(), "{name}")
                }
                _ if unit["mask"] == true => {
                    assert_eq!(fs::read_link(&on_disk).unwrap(), Path::new("/dev/null"), "{name}")
                }
                _ => assert!(!on_disk.exists(), "{name}"),
            }
            for dropin in unit["dropins"].as_array().into_iter().flatten() {
                let path = format!("/etc/systemd/system/{name}.d/{}", dropin["name"].as_str().unwrap());
                assert_eq!(self.read(&path), dropin["contents"].as_str().unwrap().as_bytes());
            }
            let verbs: Vec<_> = presets
                .lines()
                .filter_map(|line| line.strip_suffix(name).and_then(|verb| verb.strip_suffix(' ')))
                .collect();
            let expected: &[&str] = match unit["enabled"].as_bool() {
                Some(true) => &["enable"],
                Some(false) => &["disable"],
                None => &[],
            };
            assert_eq!(verbs, expected, "{name}");
        }
        let accounts = String::from_utf8(self.read("/etc/passwd")).unwrap();
        for user in list("/passwd/users") {
            let name = user["name"].as_str().unwrap();
            assert!(
                accounts.lines().any(|line| line.starts_with(&format!("{name}:"))),
                "{name}:\n{accounts}"
            );
            let keys: Vec<_> = user["sshAuthorizedKeys"].as_array().into_iter().flatten().collect();
            if keys.is_empty() {
                continue;
            }
            let on_disk = self.read(&format!("/home/{name}/.ssh/authorized_keys.d/ignition"));
            let on_disk = String::from_utf8(on_disk).unwrap();
            let lines: Vec<_> = on_disk.lines().filter(|line| !line.is_empty()).collect();
            assert_eq!(
                lines,
                keys.iter().map(|key| key.as_str().unwrap()).collect::<Vec<_>>(),
                "{name}"
            );
        }
        files.len()
    }
}

/// A server on the loopback, with configs by path, which records requests.
pub struct Server {
    asked: Arc<Mutex<Vec<Vec<String>>>>,
}

impl Server {
    pub fn start(at: (Ipv4Addr, u16), configs: BTreeMap<String, Vec<u8>>) -> Self {
        let listener = TcpListener::bind(at).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let lines: Vec<String> = BufReader::new(&stream)
                    .lines()
                    .map_while(Result::ok)
                    .take_while(|line| !line.is_empty())
                    .collect();
                let path = lines[0].split(' ').nth(1).unwrap().to_owned();
                let (status, body) = match configs.get(&path) {
                    Some(config) => ("200 OK", &config[..]),
                    None => ("404 Not Found", &b""[..]),
                };
                log.lock().unwrap().push(lines.clone());
                write!(
                    stream,
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                )
                .unwrap();
                stream.write_all(body).unwrap();
            }
        });
        Self { asked }
    }

    /// The first line of each request.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|head| head[0].clone()).collect()
    }

    /// The heads of all requests.
    pub fn heads(&self) -> Vec<Vec<String>> {
        self.asked.lock().unwrap().clone()
    }
}

pub fn json_of(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// The bytes in a resource.
pub fn content(resource: &Value) -> Vec<u8> {
    match contents::of(resource).unwrap() {
        Contents::Bytes(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// Fails unless Debian's validator accepts the config without warnings.
#[track_caller]
pub fn validate(config: &[u8]) {
    let mut child = Command::new("ignition-validate")
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect(MISSING);
    // It may stop reading at the first error.
    let _ = child.stdin.take().unwrap().write_all(config);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(!said.to_lowercase().contains("error"), "{said}");
}
