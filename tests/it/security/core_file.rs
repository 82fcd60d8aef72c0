//! A killed program leaves no core file.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

/// Memory holds the pull secret: no core file, however large the user's shell allows them to be.
#[test]
fn a_killed_program_leaves_no_core_file() {
    let folder = tempfile::tempdir().unwrap();
    let env = folder.path().join("env.sh");
    assert!(Command::new("mkfifo").arg(&env).status().unwrap().success());
    let mut program = Command::new("sh")
        .args([
            "-c",
            "ulimit -c unlimited; exec \"$0\" config",
            env!("CARGO_BIN_EXE_ocpdeploy"),
        ])
        .env_clear()
        .env("HOME", folder.path())
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Opens once the program opens it, too; then the program waits for more input.
    let mut file = File::options().write(true).open(&env).unwrap();
    file.write_all(b"pull_secret='{}'\n").unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", program.id())).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .unwrap();
    let core: Vec<&str> = core.split_whitespace().skip(4).collect();
    // With 0, the kernel would still start a program that collects core files.
    assert_eq!(core, ["1", "1", "bytes"], "{limits}");
    let pid = program.id().to_string();
    assert!(Command::new("kill").args(["-ABRT", &pid]).status().unwrap().success());
    let status = program.wait().unwrap();
    assert_eq!(status.signal(), Some(6));
    assert!(!status.core_dumped());
}
