//! The fake engine as a process: `cargo run --example fake-engine [CA_FILE [OVIRT_IMAGEIO]]`.
//!
//! It writes its CA to the file (`fake-engine-ca.pem`), prints its URL and credentials, and ends with its standard input.
//! With a program `ovirt-imageio`, that daemon receives image data. Each request takes a second of the engine's clock;
//! `control.rs` has the interface besides the API.

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
    if let Some(program) = std::env::args().nth(2) {
        engine.start_imageio(program.as_ref());
    }
    println!(
        "url {}\nuser {}\npassword {}\nca {file}",
        engine.url, engine.user, engine.password
    );
    std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink())?;
    Ok(())
}
