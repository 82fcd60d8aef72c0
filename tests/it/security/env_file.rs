//! Env files that try to exhaust the memory or the stack.

use std::fmt::Write;
use std::process::{Command, Stdio};

/// Exit code and output of `config` with this env file, with at most 2 GiB of memory.
fn config(text: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("env.sh"), text).unwrap();
    let output = Command::new("sh")
        .args([
            "-c",
            "ulimit -v 2097152; exec \"$0\" config --rehearse",
            env!("CARGO_BIN_EXE_ocpdeploy"),
        ])
        .env_clear()
        .env("HOME", folder.path())
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[track_caller]
fn is_refused(text: &str, message: &str, sandbox: &str) {
    let (code, said) = config(text);
    let shown: String = said.chars().take(2_000).collect();
    assert_eq!(code, Some(3), "{shown}");
    assert!(said.contains(message) && said.contains(sandbox), "{shown}");
    assert!(said.len() < 400_000, "{} bytes of output", said.len());
}

#[test]
fn nested_defaults_do_not_crash_the_program() {
    let deep = |depth| format!("cluster=lab\n_a={}x{}\n", "${_x:-".repeat(depth), "}".repeat(depth));
    is_refused(&deep(30_000), "defaults are nested too deeply", "env.sh:2:");
    is_refused(&deep(17), "defaults are nested too deeply", "env.sh:2:");
    assert!(!config(&deep(16)).1.contains("nested too deeply"));
}

#[test]
fn nested_variables_do_not_exhaust_memory() {
    for quote in ["", "\""] {
        let mut bomb = format!("cluster=lab\n_a0={quote}xxxxxxxxxx{quote}\n");
        for level in 1..12 {
            let value = format!("$_a{}", level - 1).repeat(10);
            writeln!(bomb, "_a{level}={quote}{value}{quote}").unwrap();
        }
        // The fifth has a hundred thousand characters.
        is_refused(&bomb, "this value is longer than 64 KiB", "env.sh:6:");
    }
}

#[test]
fn long_files_and_values_and_many_lines_are_rejected_with_their_position() {
    is_refused(
        &format!("_a={}\n", "x".repeat(70_000)),
        "longer than 64 KiB",
        "env.sh:1:",
    );
    is_refused(&"_a=x\n".repeat(1_001), "more than 1000 assignments", "env.sh:1001:");
    is_refused(&"# x\n".repeat(100_000), "larger than 256 KiB", "env.sh:1:");
}
