//! Completions and manual pages, judged by the shells and by man.

use std::path::Path;
use std::process::{Command, Output};

fn ocpdeploy(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ocpdeploy"))
        .args(arguments)
        .env_clear()
        .current_dir(folder)
        .output()
        .unwrap()
}

#[test]
fn bash_completes_commands_and_flags() {
    let folder = tempfile::tempdir().unwrap();
    let script = ocpdeploy(&["util", "completion", "bash"], folder.path());
    assert!(script.status.success());
    std::fs::write(folder.path().join("completion"), script.stdout).unwrap();
    for (words, expected) in [
        ("ocpdeploy dep", "deploy"),
        ("ocpdeploy image pu", "pull push"),
        ("ocpdeploy deploy --rehe", "--rehearse"),
        ("ocpdeploy status --output j", "json"),
    ] {
        let ask = format!(
            "source ./completion; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _ocpdeploy ocpdeploy \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; echo ${{COMPREPLY[*]}}"
        );
        let answer = Command::new("bash")
            .arg("-c")
            .arg(ask)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&answer.stdout).trim(),
            expected,
            "{words}: {answer:?}"
        );
    }
}

#[test]
fn each_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    assert!(ocpdeploy(&["util", "man", "deep/man1"], folder.path()).status.success());
    for page in [
        "ocpdeploy",
        "ocpdeploy-deploy",
        "ocpdeploy-ignition-merge",
        "ocpdeploy-util-man",
    ] {
        let text = std::fs::read_to_string(folder.path().join(format!("deep/man1/{page}.1"))).unwrap();
        assert!(text.contains(".SH SYNOPSIS") && text.contains("Examples"), "{page}");
    }
}
