//! The program: reads the command line, runs the command, converts a failure to text and an exit code.

use std::process::ExitCode;

use clap::Parser;
use ocpdeploy::cli::Cli;
use ocpdeploy::commands::{self, completion, output, usage};
use ocpdeploy::error::ErrorKind;
use ocpdeploy::failure;
use rustix::process::{Resource, Rlimit, setrlimit};

fn main() -> ExitCode {
    leave_no_core();
    completion::answer();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            output::fail(&usage::failure(error, std::env::args_os()));
            return ExitCode::from(ErrorKind::Usage.exit_code());
        }
        // Help and version.
        Err(error) => error.exit(),
    };
    output::configure(&cli.global);
    failure::report_panics(output::fail);
    // The hook has reported a panic; only the exit code remains.
    match std::panic::catch_unwind(|| commands::run(cli)) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => {
            let failure = failure::explain(&error);
            output::fail(&failure);
            ExitCode::from(failure.kind.exit_code())
        }
        Err(_) => ExitCode::from(ErrorKind::Bug.exit_code()),
    }
}

/// A core file would store the passwords and the pull secret in memory. Child processes inherit the limit, and
/// systemd-coredump stores no core of a process with this limit.
fn leave_no_core() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // A limit can always be lowered.
    let _ = setrlimit(Resource::Core, none);
}
