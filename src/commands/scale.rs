//! `ocpdeploy scale`.

use anyhow::Result;

use super::output::print_result;
use super::platform::connect_for;
use super::saved_settings::{self, Counts};
use super::session::Session;
use crate::cli::{self, Scale};
use crate::openshift::drain::Drain;
use crate::passes::{self, ScaleOptions};

pub fn run(session: &Session, command: &Scale) -> Result<()> {
    let cluster = session.cluster_name(command.of.cluster.as_deref())?;
    let counts = Counts {
        workers: command.workers,
        pools: &command.pools,
    };
    let recalled = saved_settings::load(session, &cluster, &command.again, &counts)?;
    let config = recalled.config;
    let options = ScaleOptions {
        drain: drain(&command.drain),
        installed_workers: recalled.installed_workers,
    };
    session.progress.log_to(&session.home.cluster(&config.name));
    let scaled = session.finish_or_stop(async {
        let backend = connect_for(&config).await?;
        passes::scale(&backend, &config, &session.home, options).await
    })?;
    print_result(&command.output, &scaled, || scaled.text())
}

pub(super) fn drain(drain: &cli::Drain) -> Drain {
    Drain {
        limit: drain.drain_timeout,
        force: drain.force,
        delete_emptydir_data: drain.delete_emptydir_data,
    }
}
