//! A libvirt URI in an untrusted env file that runs a program on this computer.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

/// `check` never starts a program that libvirt would run instead of ssh, or as a transport.
#[test]
fn no_uri_runs_a_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (program, ran) = (path("program"), path("ran"));
    std::fs::write(&program, format!("#!/bin/sh\necho ran >> {}\n", ran.display())).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    for image in ["coreos.qcow2", "helper.qcow2"] {
        std::fs::write(path(image), "").unwrap();
    }
    let program = program.display();
    for uri in [
        format!("qemu+ext:///system?command={program}"),
        format!("qemu+ssh://localhost/system?command={program}"),
        format!("qemu+ssh://localhost/system?COMMAND={program}"),
        format!("qemu+ssh://localhost/system?no_tty=1&command={program}"),
        format!("qemu+ssh://localhost/system?no_tty=1;command={program}"),
        format!("qemu+ssh://localhost/system?%63ommand={program}"),
        format!("test+ext:///default?command={program}"),
        format!("qemu+ssh://-oProxyCommand={program}/system"),
        format!("qemu+ssh://localhost/system?netcat={program}"),
    ] {
        let env = format!(
            "cluster=lab\ndomain=example.com\nbackend=libvirt\nmasters=1\nworkers=0\nimages_dir=.\nlibvirt_uri='{uri}'\n"
        );
        std::fs::write(path("env.sh"), env).unwrap();
        let output = Command::new("timeout")
            .args(["60", env!("CARGO_BIN_EXE_ocpdeploy"), "check", "--rehearse"])
            .env_clear()
            .env("HOME", folder.path())
            .env("PATH", std::env::var_os("PATH").unwrap())
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!ran.exists(), "{uri} ran a program: {said}");
        assert_eq!(output.status.code(), Some(3), "{uri}: {said}");
        assert!(said.contains("env.sh:7:"), "{uri}: {said}");
    }
}
