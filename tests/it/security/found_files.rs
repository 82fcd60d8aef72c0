//! Files that were not named: an env file or lock file of another user, in the current directory, is not used.

use std::fs;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::security::{MALLORY, mode};
use crate::support::left_out::is_root;

const LOCK: &str = "ocpdeploy.lock.yaml";

/// A current directory with an env file, and a home of its own.
struct Sandbox {
    current: tempfile::TempDir,
    home: tempfile::TempDir,
}

impl Sandbox {
    fn new() -> Self {
        let sandbox = Self {
            current: tempfile::tempdir().unwrap(),
            home: tempfile::tempdir().unwrap(),
        };
        let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f lab";
        fs::write(sandbox.path("key.pub"), key).unwrap();
        let env = "cluster=lab\ndomain=example.com\nbackend=sim\nsim_state=sim.json\nimage=coreos\npub_key=key.pub\n\
                   pull_secret='{\"auths\":{\"registry.example.com\":{\"auth\":\"eDp5\"}}}'\n";
        fs::write(sandbox.path("env.sh"), env).unwrap();
        mode(&sandbox.path("env.sh"), 0o600);
        sandbox
    }

    fn path(&self, name: &str) -> PathBuf {
        self.current.path().join(name)
    }

    /// The exit code and all output.
    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_ocpdeploy"))
            .args(arguments)
            .env_clear()
            .env("HOME", self.home.path())
            .env("OCPDEPLOY_HOME", self.home.path().join("state"))
            .envs(variables.iter().copied())
            .current_dir(self.current.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    }

    #[track_caller]
    fn accepts(&self, arguments: &[&str], variables: &[(&str, &str)]) {
        let (code, said) = self.run(arguments, variables);
        assert_eq!(code, Some(0), "{arguments:?}: {said}");
    }

    /// The env file is rejected, unless the hint of a command is followed.
    #[track_caller]
    fn refuses(&self, why: &str) {
        for (arguments, hint) in [
            (&["config"][..], "name it: `ocpdeploy config ./env.sh`"),
            (
                &["config", "--rehearse"],
                "name it: `ocpdeploy config --rehearse ./env.sh`",
            ),
            (&["audit"], "name it: `ocpdeploy audit --env ./env.sh`"),
            (&["verify"], "give the name of the cluster as the first argument"),
        ] {
            let (code, said) = self.run(arguments, &[]);
            assert_eq!(code, Some(3), "{arguments:?}: {said}");
            let text = format!("the env file env.sh in this directory is not safe to use: {why}");
            assert!(said.contains(&text) && said.contains(hint), "{arguments:?}: {said}");
        }
        self.accepts(&["config", "./env.sh"], &[]);
        self.accepts(&["config", "--rehearse", "./env.sh"], &[]);
        self.accepts(&["audit", "--env", "./env.sh"], &[]);
    }
}

#[test]
fn a_found_env_file_that_everyone_can_change_is_rejected_unless_named() {
    let sandbox = Sandbox::new();
    sandbox.accepts(&["config"], &[]);
    for (name, bits, usual, why) in [
        ("env.sh", 0o606, 0o600, "everyone can write to it"),
        (".", 0o777, 0o700, "everyone can write to its directory"),
        (".", 0o1777, 0o700, "everyone can write to its directory"),
    ] {
        mode(&sandbox.path(name), bits);
        sandbox.refuses(why);
        mode(&sandbox.path(name), usual);
    }
    sandbox.accepts(&["config"], &[]);
}

#[test]
fn a_found_env_file_of_another_user_is_rejected_unless_named() {
    if !is_root("make files of another user") {
        return;
    }
    let sandbox = Sandbox::new();
    let mallory = MALLORY.to_string();
    for (name, why) in [
        ("env.sh", format!("it belongs to user {MALLORY}")),
        (".", format!("its directory belongs to user {MALLORY}")),
    ] {
        let path = sandbox.path(name);
        chown(&path, Some(MALLORY), None).unwrap();
        sandbox.refuses(&why);
        // With sudo, root may use the calling user's files.
        sandbox.accepts(&["config"], &[("SUDO_UID", mallory.as_str())]);
        chown(&path, Some(0), None).unwrap();
    }
    // A group that is not private.
    chown(sandbox.path("env.sh"), None, Some(MALLORY)).unwrap();
    mode(&sandbox.path("env.sh"), 0o660);
    sandbox.refuses(&format!("members of group {MALLORY} can write to it"));
}

#[test]
fn a_lock_file_that_others_can_change_is_rejected_unless_the_env_file_is_theirs_too() {
    const REJECTED: &str = "not safe to use: everyone can write to it";
    let sandbox = Sandbox::new();
    // Not a lock file: the error shows whether it was read.
    fs::write(sandbox.path(LOCK), "not a lock").unwrap();
    // The mode of the env file, and of the lock file.
    for (of_env, of_lock, is_read) in [(0o600, 0o644, true), (0o600, 0o646, false), (0o606, 0o646, true)] {
        mode(&sandbox.path("env.sh"), of_env);
        mode(&sandbox.path(LOCK), of_lock);
        let (code, said) = sandbox.run(&["config", "./env.sh"], &[]);
        assert_eq!(code, Some(3), "{said}");
        assert!(said.contains(LOCK), "{said}");
        assert_eq!(!said.contains(REJECTED), is_read, "{of_env:o} {of_lock:o}: {said}");
    }
}
