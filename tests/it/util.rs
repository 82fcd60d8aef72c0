//! Manual pages.

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
