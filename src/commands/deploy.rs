//! `ocpdeploy deploy`.

use anyhow::Result;

use super::output::print_result;
use super::platform::connect_for;
use super::saved_settings;
use super::session::Session;
use crate::cli::Deploy;
use crate::passes::{self, DeployOptions};
use crate::report::deployed::Installed;

pub fn run(session: &Session, command: &Deploy) -> Result<()> {
    let (sources, mut loaded) = saved_settings::settings_of(session, &command.source)?;
    loaded.config.keep_bootstrap |= command.keep_bootstrap;
    let record = saved_settings::record(session, &sources, &loaded)?;
    let config = loaded.config;
    let options = DeployOptions {
        harvest_again: command.harvest,
        settings: Some(&record),
    };
    let dir = session.home.cluster(&config.name);
    session.progress.log_to(&dir);
    let deployed = session.finish_or_stop(async {
        let backend = connect_for(&config).await?;
        passes::deploy(&backend, &config, &session.home, options).await
    })?;
    // Also for a cluster that was already installed: the env file may be another one with the same settings.
    saved_settings::keep(&dir, &record)?;
    let installed = Installed::new(&config, &deployed, &dir);
    print_result(&command.output, &installed, || installed.text())
}
