//! One file for each subcommand. `output` writes their results, `progress` their progress.

mod adopt;
mod audit;
mod cache;
mod check;
pub mod completion;
pub mod config;
mod confirm;
mod console;
#[cfg(feature = "kubevirt")]
mod csi;
mod deploy;
mod destroy;
mod dns;
mod export;
mod external;
mod harvest;
mod ignition;
mod image;
mod init;
mod kubeconfig;
mod list;
mod logs;
mod machine;
#[cfg(feature = "kubevirt")]
mod manifests;
mod node;
pub mod output;
mod output_file;
mod plan;
mod platform;
mod power;
mod progress;
mod renew;
mod report;
mod saved_settings;
mod scale;
mod session;
mod snapshot;
mod state;
mod status;
mod terminal;
pub mod usage;
mod util;
mod verify;

use std::process::ExitCode;

use anyhow::Result;

use self::session::Session;
use crate::cli::{Cli, Command};

/// Runs one command and returns its exit code.
pub fn run(cli: Cli) -> Result<ExitCode> {
    let session = || Session::new(&cli.global);
    match &cli.command {
        Command::Init(command) => init::run(&session()?, command),
        Command::Check(command) => return check::run(&session()?, command),
        Command::Deploy(command) => deploy::run(&session()?, command),
        Command::Plan(command) => plan::run(&session()?, command),
        Command::Harvest(command) => harvest::run(&session()?, command),
        Command::Config(command) => config::run(&session()?, command),
        Command::Status(command) => return status::run(&session()?, command),
        Command::List(command) => list::run(&session()?, command),
        Command::Logs(command) => logs::run(&session()?, command),
        Command::Report(command) => report::run(&session()?, command),
        Command::Destroy(command) => destroy::run(&session()?, command),
        Command::Audit(command) => return audit::run(&session()?, command),
        Command::Adopt(command) => adopt::run(&session()?, command),
        Command::Image(command) => image::run(&session()?, command),
        Command::Cache(command) => cache::run(&session()?, command),
        Command::Export(command) => export::run(&session()?, command),
        Command::Dns(command) => dns::run(&session()?, command),
        Command::Scale(command) => scale::run(&session()?, command),
        Command::Renew(command) => renew::run(&session()?, command),
        Command::Node(command) => return node::run(&session()?, command),
        Command::Stop(command) => power::stop(&session()?, command),
        Command::Start(command) => power::start(&session()?, command),
        Command::Snapshot(command) => snapshot::run(&session()?, command),
        Command::State(command) => state::run(&session()?, command),
        Command::Verify(command) => return verify::run(&session()?, command),
        Command::Kubeconfig(command) => kubeconfig::run(&session()?, command),
        // Most of their subcommands require no state directory.
        Command::Ignition(command) => return ignition::run(&cli.global, command),
        Command::Util(command) => util::run(command),
    }?;
    Ok(ExitCode::SUCCESS)
}
