//! Commands on a node, over a real sshd.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::json;

use crate::support::sandbox::Sandbox;
use crate::support::sshd::Sshd;

/// `node ssh worker-1 -- <words>` with `hello` on its stdin.
fn run(sandbox: &Sandbox, sshd: &Sshd, words: &[&str]) -> Output {
    let temporary = sandbox.path().join("temporary");
    std::fs::create_dir_all(&temporary).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_ocpdeploy"))
        .args(["node", "ssh", "lab", "worker-1", "--"])
        .args(words)
        .env_clear()
        .env("HOME", sandbox.path())
        .env("OCPDEPLOY_HOME", sandbox.home().root())
        .env("PATH", format!("{}:/usr/bin:/bin", sshd.tools.display()))
        .env("TMPDIR", &temporary)
        .current_dir(sandbox.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"hello").unwrap();
    let output = child.wait_with_output().unwrap();
    let left: Vec<_> = std::fs::read_dir(&temporary)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(left.is_empty(), "{left:?}");
    output
}

#[test]
fn a_command_passes_on_its_output_and_exit_code() {
    let network =
        json!({"cidr": "127.94.9.0/24", "gateway": "127.94.9.1", "dhcp_from": "127.94.9.2", "dhcp_to": "127.94.9.254"});
    let sandbox = Sandbox::new(json!({"networks": {"default": network}}));
    sandbox.env("lab", "masters=1\nworkers=2\nimage=coreos\nharvest_image=helper");
    sandbox.deploy("lab").succeeded();
    let table = sandbox.parameters("lab").unwrap();
    let node = table
        .nodes
        .iter()
        .find(|node| node.name.as_str() == "worker-1")
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let Some(sshd) = Sshd::start(folder.path(), &[node.ip], folder.path()) else {
        return;
    };

    let done = run(&sandbox, &sshd, &["cat; echo \" $0\";", "echo told >&2;", "exit 42"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(42), "{said}");
    assert!(String::from_utf8_lossy(&done.stdout).starts_with("hello "), "{done:?}");
    assert!(said.contains("told\n"), "{said}");
    assert_eq!(run(&sandbox, &sshd, &["true"]).status.code(), Some(0));

    // The cluster's known_hosts has the node's key, and no other key is accepted.
    let known = sandbox.home().cluster("lab").known_hosts();
    let lines = std::fs::read_to_string(&known).unwrap();
    assert!(lines.starts_with("worker-1.lab.example.com ssh-ed25519 "), "{lines}");
    let other = std::fs::read_to_string(folder.path().join("user.pub")).unwrap();
    std::fs::write(&known, format!("worker-1.lab.example.com {other}")).unwrap();
    let refused = run(&sandbox, &sshd, &["true"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(4), "{said}");
    assert!(said.contains("Host key verification failed"), "{said}");

    std::fs::remove_file(known).unwrap();
    std::fs::write(folder.path().join("user.pub"), "").unwrap();
    let refused = run(&sandbox, &sshd, &["true"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(4), "{said}");
    assert!(said.contains("Permission denied (publickey)"), "{said}");
}
