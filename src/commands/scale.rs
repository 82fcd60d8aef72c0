//! `ocpdeploy scale`.

use anyhow::Result;

use super::output::print;
use super::platform::connect_for;
use super::saved_settings;
use super::session::Session;
use crate::cli::{self, Scale};
use crate::openshift::drain::Drain;
use crate::passes::{self, ScaleOptions};
use crate::report;

pub fn run(session: &Session, command: &Scale) -> Result<()> {
    let recalled = saved_settings::load(session, &command.cluster, &command.again, Some(command.workers))?;
    let config = recalled.config;
    let options = ScaleOptions {
        drain: drain(&command.drain),
        installed_workers: recalled.installed_workers,
    };
    session.progress.log_to(&session.home.cluster(&config.name));
    let scaled = session.finish_or_stop(async {
        let backend = connect_for(&config).await?;
        passes::scale(&*backend, &config, &session.home, options).await
    })?;
    print(&report::scaled(&scaled))
}

pub(super) fn drain(drain: &cli::Drain) -> Drain {
    Drain {
        limit: drain.drain_timeout,
        force: drain.force,
        delete_emptydir_data: drain.delete_emptydir_data,
    }
}
