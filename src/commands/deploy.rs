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
    let mut config = session.load(&command.source)?.config;
    config.keep_bootstrap |= command.keep_bootstrap;
    let options = DeployOptions {
        harvest_again: command.harvest,
    };
    let dir = session.home.cluster(&config.name);
    session.progress.log_to(&dir);
    let deployed = session.finish_or_stop(async {
        let backend = connect_for(&config).await?;
        passes::deploy(&backend, &config, &session.home, options).await
    })?;
    saved_settings::keep(session, &command.source, &config)?;
    let installed = Installed::new(&config, &deployed, &dir);
    print_result(&command.output, &installed, || installed.text())
}
