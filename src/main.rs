//! The program: reads the command line, runs the command, turns a failure into text and an exit code.

use std::process::ExitCode;

use clap::Parser;
use ocpdeploy::cli::Cli;
use ocpdeploy::commands::{self, output};
use ocpdeploy::failure;
use rustix::process::{Resource, Rlimit, setrlimit};

fn main() -> ExitCode {
    leave_no_core();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // An argument may have been pasted from anywhere.
        Err(error) if error.use_stderr() => {
            output::tell(error.render().to_string().trim_end());
            return ExitCode::from(failure::Kind::Usage.exit_code());
        }
        // Help and version.
        Err(error) => error.exit(),
    };
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

/// Memory holds passwords and the pull secret, and a core file would keep them. Children inherit the limit, and
/// systemd-coredump keeps nothing of a process that has it.
fn leave_no_core() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // A limit may always be lowered.
    let _ = setrlimit(Resource::Core, none);
}
