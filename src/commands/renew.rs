//! `ocpdeploy renew`.

use anyhow::Result;

use super::output::print_result;
use super::platform::connect_for;
use super::saved_settings::{self, Counts};
use super::session::Session;
use crate::cli::Renew;
use crate::passes;

pub fn run(session: &Session, command: &Renew) -> Result<()> {
    let cluster = session.cluster_name(command.of.cluster.as_deref())?;
    let recalled = saved_settings::load(session, &cluster, &command.again, &Counts::default())?;
    let config = &recalled.config;
    session.progress.log_to(&session.home.cluster(&config.name));
    let renewed = session.finish_or_stop(async {
        let backend = connect_for(config).await?;
        passes::renew(&backend, config, &session.home, recalled.installed_workers).await
    })?;
    recalled.keep(session)?;
    print_result(&command.output, &renewed, || renewed.text())
}
