//! `ocpdeploy config`: every setting, its value and its origin; the versions of the last deployment.

use std::path::Path;

use anyhow::Result;

use super::output::{print, print_result};
use super::session::{ENV_FILE, Session};
use crate::cli::Config;
use crate::error::{ErrorKind, OperationError};
use crate::report::settings::Settings;
use crate::state::journal;
use crate::{passes, report, settings};

/// All settings with their defaults.
const SAMPLE: &str = include_str!("../../env.sh.sample");

pub fn run(session: &Session, command: &Config) -> Result<()> {
    if command.sample {
        return print(SAMPLE);
    }
    let source = &command.source;
    if command.lock {
        return print_lock(session, &session.load_whereabouts(source)?.cluster);
    }
    let settings = match source.env.is_none() && !Path::new(ENV_FILE).exists() {
        // Without an env file, required settings have no value.
        true => Settings::unchecked(settings::resolve(&session.flags(source)?)?),
        false => Settings::from(session.load(source)?),
    };
    print_result(&command.output, &settings, || settings.text())
}

fn print_lock(session: &Session, cluster: &str) -> Result<()> {
    let journal = journal::read(&session.home.cluster(cluster).journal())?;
    let Some(lock) = passes::version_lock(&journal) else {
        let text = format!("no deployment of cluster {cluster} has provided the nodes' image yet");
        return Err(OperationError::new(ErrorKind::Tool, text)
            .hint("run `ocpdeploy deploy`")
            .into());
    };
    print(&report::yaml(&lock)?)
}
