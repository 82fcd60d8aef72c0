//! The memory of the program holds the pull secret: it is written to no file, and no other process reads it.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::security::{MALLORY, mode};
use crate::support::left_out::left_out;

/// The program, which waits for more lines of an env file, and the writer of this file.
fn waiting(folder: &Path, prepare: impl FnOnce(&mut Command)) -> std::io::Result<(Child, File)> {
    let env = folder.join("env.sh");
    assert!(Command::new("mkfifo").arg(&env).status().unwrap().success());
    let mut program = Command::new("sh");
    program
        .args([
            "-c",
            "ulimit -c unlimited; exec \"$0\" config",
            env!("CARGO_BIN_EXE_ocpdeploy"),
        ])
        .env_clear()
        .env("HOME", folder)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    prepare(&mut program);
    let program = program.spawn()?;
    // Opens once the program opens it, too.
    let mut file = File::options().write(true).open(&env)?;
    file.write_all(b"pull_secret='{}'\n")?;
    Ok((program, file))
}

#[test]
fn no_other_process_of_the_user_can_read_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let me = folder.path().metadata().unwrap().uid();
    let user = if me == 0 { MALLORY } else { me };
    let version = Command::new(env!("CARGO_BIN_EXE_ocpdeploy"))
        .arg("--version")
        .uid(user)
        .output();
    if !version.is_ok_and(|version| version.status.success()) {
        return left_out("other users cannot run the program");
    }
    mode(folder.path(), 0o755);
    let (mut program, _file) = waiting(folder.path(), |program| {
        program.uid(user);
    })
    .unwrap();
    // The files of a process whose memory must not be read belong to root (proc_pid(5)).
    let environ = std::fs::metadata(format!("/proc/{}/environ", program.id())).unwrap();
    assert_eq!(environ.uid(), 0);
    program.kill().unwrap();
    program.wait().unwrap();
}

/// However large the user's shell allows core files to be.
#[test]
fn a_killed_program_leaves_no_core_file() {
    let folder = tempfile::tempdir().unwrap();
    let (mut program, _file) = waiting(folder.path(), |_| {}).unwrap();
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
