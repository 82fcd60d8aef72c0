//! The pretend engine as a process of its own, for trying the program by hand: `cargo run --example fake-engine [CA_FILE]`.
//!
//! It writes its CA to the file (`fake-engine-ca.pem`), says how it is reached, and lives until its standard input ends.
//! Each request takes a second of its clock; see `control.rs` for what can be asked of it beside the API.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it serves tests"
)]

#[path = "mod.rs"]
mod fake_engine;

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).unwrap_or("fake-engine-ca.pem".to_owned());
    let engine = fake_engine::FakeEngine::start();
    std::fs::write(&file, &engine.ca_pem)?;
    println!(
        "url {}\nuser {}\npassword {}\nca {file}",
        engine.url, engine.user, engine.password
    );
    std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink())?;
    Ok(())
}
