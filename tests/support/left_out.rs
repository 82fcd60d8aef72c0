//! Parts of tests that a computer cannot run, which are never passed over in silence.

use std::fmt::Display;
use std::fs::File;
use std::io::Write;

/// Says that a part is left out. `make test` lists what is in the file `TEST_LEFT_OUT` when it ends: nextest keeps the
/// output of a passing test to itself.
pub fn left_out(why: impl Display) {
    let line = format!("LEFT OUT: {why}\n");
    match std::env::var_os("TEST_LEFT_OUT") {
        Some(path) => File::options()
            .append(true)
            .create(true)
            .open(path)
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .unwrap(),
        // Past the test harness, which would keep it.
        None => std::io::stderr().write_all(line.as_bytes()).unwrap(),
    }
}

/// Says that the judge of a test is not installed; with `JUDGES=required`, as `make test` has it as root, that is a failure.
#[track_caller]
pub fn no_judge(missing: &str) {
    assert!(std::env::var("JUDGES").as_deref() != Ok("required"), "{missing}");
    left_out(missing);
}

/// Whether this is root. If not, says what only root can do.
pub fn is_root(only_root_can: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        left_out(format!("only root can {only_root_can}"));
    }
    is_root
}
