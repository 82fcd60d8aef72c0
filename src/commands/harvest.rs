//! `ocpdeploy harvest`.

use anyhow::Result;

use super::output::print_result;
use super::platform::connect_for;
use super::saved_settings;
use super::session::Session;
use crate::cli::Harvest;
use crate::passes::{self, DeployOptions};
use crate::report::changes::Harvested;

pub fn run(session: &Session, command: &Harvest) -> Result<()> {
    let (sources, loaded) = saved_settings::settings_of(session, &command.source)?;
    let record = saved_settings::record(session, &sources, &loaded)?;
    let config = loaded.config;
    let dir = session.home.cluster(&config.name);
    session.progress.log_to(&dir);
    let options = DeployOptions {
        harvest_again: true,
        settings: Some(&record),
    };
    let parameters = session.finish_or_stop(async {
        let backend = connect_for(&config).await?;
        passes::harvest(&backend, &config, &session.home, options).await
    })?;
    let harvested = Harvested::new(&parameters, dir.parameters());
    print_result(&command.output, &harvested, || harvested.text())
}
