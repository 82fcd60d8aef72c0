//! `ocpdeploy harvest`.

use anyhow::Result;

use super::output::print_result;
use super::platform::connect_for;
use super::session::Session;
use crate::cli::Harvest;
use crate::passes::{self, DeployOptions};
use crate::report::changes::Harvested;

pub fn run(session: &Session, command: &Harvest) -> Result<()> {
    let config = session.load(&command.source)?.config;
    let dir = session.home.cluster(&config.name);
    session.progress.log_to(&dir);
    let options = DeployOptions { harvest_again: true };
    let parameters = session.finish_or_stop(async {
        let backend = connect_for(&config).await?;
        passes::harvest(&backend, &config, &session.home, options).await
    })?;
    let harvested = Harvested::new(&parameters, dir.parameters());
    print_result(&command.output, &harvested, || harvested.text())
}
