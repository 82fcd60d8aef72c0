//! The program: reads the command line, runs the command, turns a failure into text and an exit code.

use std::process::ExitCode;

use clap::Parser;
use ocpdeploy::cli::Cli;
use ocpdeploy::commands::{self, output};
use ocpdeploy::failure;

fn main() -> ExitCode {
    let cli = Cli::parse();
    failure::report_panics(output::fail);
    // A panic has been told by the hook; what is left is the exit code.
    match std::panic::catch_unwind(|| commands::run(cli)) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => {
            let failure = failure::explain(&error);
            output::fail(&failure);
            ExitCode::from(failure.kind.exit_code())
        }
        Err(_) => ExitCode::from(failure::Kind::Bug.exit_code()),
    }
}
