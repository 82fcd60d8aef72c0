//! `ocpdeploy renew`.

use anyhow::Result;

use super::output::print;
use super::platform::connect_for;
use super::saved_settings;
use super::session::Session;
use crate::cli::Renew;
use crate::passes;
use crate::report;

pub fn run(session: &Session, command: &Renew) -> Result<()> {
    let recalled = saved_settings::load(session, &command.cluster, &command.again, None)?;
    let config = recalled.config;
    session.progress.log_to(&session.home.cluster(&config.name));
    let renewed = session.finish_or_stop(async {
        let backend = connect_for(&config).await?;
        passes::renew(&*backend, &config, &session.home, recalled.installed_workers).await
    })?;
    print(&report::renewed(&config.id(), &renewed))
}
