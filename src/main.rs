//! The program: reads the command line, runs the command, converts a failure to text and an exit code.

use std::process::ExitCode;

use clap::Parser;
use ocpdeploy::cli::Cli;
use ocpdeploy::commands::{self, completion, output, usage};
use ocpdeploy::error::ErrorKind;
use ocpdeploy::failure;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

fn main() -> ExitCode {
    leave_no_core();
    completion::answer();
    let cli = match Cli::try_parse_from(usage::arguments(std::env::args_os())) {
        Ok(cli) => cli,
        Err(error) if usage::lacks_subcommand(&error) => {
            output::tell(&usage::help(std::env::args_os()));
            return ExitCode::from(ErrorKind::Usage.exit_code());
        }
        Err(error) if error.use_stderr() => {
            output::configure_unparsed(std::env::args_os());
            output::fail(&usage::failure(error, std::env::args_os()));
            return ExitCode::from(ErrorKind::Usage.exit_code());
        }
        // Help and version.
        Err(error) => return output::print_help(&error),
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

/// A core file would store the passwords and the pull secret in memory. Child processes inherit the limit.
///
/// With a limit of 1 byte, the kernel neither writes a file nor starts the program of `core_pattern` (torvalds/linux:
/// fs/coredump.c). With 0 it starts the program, and apport stores a core of a packaged program (canonical/apport:
/// data/apport).
fn leave_no_core() {
    let limit = |bytes| Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    };
    // Without root, a hard limit of 0 cannot be raised to 1, but a limit can always be lowered.
    if setrlimit(Resource::Core, limit(1)).is_err() {
        let _ = setrlimit(Resource::Core, limit(0));
    }
    // This applies only to this process, because `execve` resets it. It also prevents other processes of this user from
    // reading the memory.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}
