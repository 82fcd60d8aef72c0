//! Reports parts of tests that a computer cannot run.

use std::fmt::Display;
use std::fs::File;
use std::io::Write;

/// Reports that a part is left out. `make test` prints the file `TEST_LEFT_OUT` when it ends: nextest hides the
/// output of a passing test.
pub fn left_out(why: impl Display) {
    let line = format!("LEFT OUT: {why}\n");
    match std::env::var_os("TEST_LEFT_OUT") {
        Some(path) => File::options()
            .append(true)
            .create(true)
            .open(path)
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .unwrap(),
        // Not through the test harness, which would hide it.
        None => std::io::stderr().write_all(line.as_bytes()).unwrap(),
    }
}

/// Reports that a reference program is not installed; fails with `JUDGES=required`, as in `make test` as root.
#[track_caller]
pub fn no_judge(missing: &str) {
    assert!(std::env::var("JUDGES").as_deref() != Ok("required"), "{missing}");
    left_out(missing);
}

/// Whether this is root. If not, reports what requires root.
pub fn is_root(only_root_can: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        left_out(format!("only root can {only_root_can}"));
    }
    is_root
}
