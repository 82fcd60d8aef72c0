//! Runs that are interrupted while openshift-install or oc runs: neither the processes nor secrets remain.

use std::fs;
use std::path::Path;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::sandbox::outcome;
use crate::support::site::Site;
use crate::support::until::{LONG, until};

/// Starts a deployment and waits until the child hangs; returns the child's number.
fn hung(site: &Site) -> (Child, String) {
    let mut deploy = site.start(&[]);
    let pid = site.sandbox.path().join("pid");
    until(LONG, "the child", || {
        pid.exists() || deploy.try_wait().unwrap().is_some()
    });
    let Ok(number) = fs::read_to_string(&pid) else {
        panic!("{}", outcome(deploy).stderr);
    };
    fs::remove_file(pid).unwrap();
    (deploy, number)
}

fn runs(number: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// The files below a folder that contain the pull secret's credential.
fn with_secret(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            continue;
        } else if path.is_dir() {
            found.extend(with_secret(&path));
        } else if String::from_utf8_lossy(&fs::read(&path).unwrap()).contains("Zm9vOmJhcg") {
            found.push(path.display().to_string());
        }
    }
    found
}

#[test]
fn a_signal_ends_the_child_and_leaves_no_secret() {
    let cases = [
        (Signal::TERM, "hang"),
        (Signal::INT, "oc.hang"),
        (Signal::HUP, "oc.hang"),
    ];
    for (network, (signal, file)) in (60..).zip(cases) {
        let site = Site::new(network, "");
        fs::write(site.sandbox.path().join(file), "").unwrap();
        let (deploy, child) = hung(&site);
        kill_process(Pid::from_child(&deploy), signal).unwrap();
        let ended = outcome(deploy);
        assert_eq!(ended.code, Some(7), "{signal:?} {file}: {}", ended.stderr);
        assert!(
            ended
                .stderr
                .ends_with("interrupted; to resume, run the same command again\n"),
            "{}",
            ended.stderr
        );
        assert!(!runs(&child), "{signal:?}: the child of {file} runs");
        let folder = site.sandbox.home().cluster("lab");
        assert_eq!(with_secret(folder.path()), Vec::<String>::new());
    }
}

#[test]
fn leftovers_of_a_killed_run_are_removed_by_the_next() {
    let site = Site::new(66, "");
    let hang = site.sandbox.path().join("hang");
    fs::write(&hang, "").unwrap();
    let (mut deploy, child) = hung(&site);
    deploy.kill().unwrap();
    assert_eq!(outcome(deploy).code, None);
    let folder = site.sandbox.home().cluster("lab").path().to_owned();
    assert_ne!(with_secret(&folder), Vec::<String>::new());
    // The next run gets as far as the first one.
    let (deploy, second) = hung(&site);
    assert!(!runs(&child), "the child of the killed run still runs");
    assert_ne!(second, child);
    kill_process(Pid::from_child(&deploy), Signal::TERM).unwrap();
    assert_eq!(outcome(deploy).code, Some(7));
    assert_eq!(with_secret(&folder), Vec::<String>::new());
}

#[test]
fn a_run_that_was_started_with_nohup_outlives_its_terminal() {
    let site = Site::new(67, "");
    let hang = site.sandbox.path().join("oc.hang");
    fs::write(&hang, "").unwrap();
    let command = site.sandbox.command(&["deploy", "lab.sh"]);
    // A shell ignores the signal for its children.
    let program = command.get_program().to_owned();
    let mut shell = std::process::Command::new("/bin/sh");
    shell
        .args(["-c", "trap '' HUP; exec \"$0\" deploy lab.sh"])
        .arg(program);
    shell
        .env_clear()
        .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell
        .current_dir(site.sandbox.path())
        .stdin(std::process::Stdio::null());
    let mut deploy = shell.stderr(std::process::Stdio::null()).spawn().unwrap();
    let pid = site.sandbox.path().join("pid");
    until(LONG, "the child", || pid.exists());
    kill_process(Pid::from_child(&deploy), Signal::HUP).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(deploy.try_wait().unwrap().is_none(), "it ended");
    kill_process(Pid::from_child(&deploy), Signal::TERM).unwrap();
    assert_eq!(deploy.wait().unwrap().code(), Some(7));
}
