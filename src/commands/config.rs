//! `ocpdeploy config`: every setting, its value and its origin; the versions of the last deployment.

use std::path::Path;

use anyhow::Result;

use super::output::{print, print_result};
use super::saved_settings;
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
        let sources = saved_settings::sources(session, source)?;
        return print_lock(session, &settings::load_whereabouts(&sources)?.cluster);
    }
    let print = |settings: Settings| print_result(&command.output, &settings, || settings.text());
    if source.env.is_none() && !Path::new(ENV_FILE).exists() {
        // Without an env file, required settings have no value.
        return print(Settings::unchecked(settings::resolve(&session.flags(source)?)?));
    }
    let sources = saved_settings::sources(session, source)?;
    let is_record = saved_settings::named_cluster(session, source)?.is_some();
    let print = |settings: Settings| {
        print(if is_record {
            settings.of_record(&sources, &source.overrides())
        } else {
            settings
        })
    };
    match session.load_from(&sources) {
        Ok(loaded) => print(Settings::from(loaded)),
        // The values show what is wrong.
        Err(error) => match settings::resolve_in_spite_of_problems(&sources) {
            Ok(values) => print(Settings::unchecked(values)).and(Err(error)),
            Err(_) => Err(error),
        },
    }
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
