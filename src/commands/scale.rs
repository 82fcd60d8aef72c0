//! `ocpdeploy scale`.

use anyhow::Result;

use super::confirm::{self, Loss, with_dry_run};
use super::output::print_result;
use super::platform::connect_for;
use super::saved_settings::{self, Counts};
use super::session::Session;
use crate::cli::{self, Scale};
use crate::openshift::drain::Drain;
use crate::passes::{self, ScaleOptions};
use crate::plan::Change;
use crate::printable::count;
use crate::report::changes::Preview;

pub fn run(session: &Session, command: &Scale) -> Result<()> {
    let cluster = session.cluster_name(command.of.cluster.as_deref())?;
    let counts = Counts {
        workers: command.workers,
        pools: &command.pools,
    };
    let recalled = saved_settings::load(session, &cluster, &command.again, &counts)?;
    let config = &recalled.config;
    let options = ScaleOptions {
        drain: drain(&command.drain),
        installed_workers: recalled.installed_workers,
    };
    let id = config.id();
    let confirmed = |changes: &[Change]| {
        let preview = Preview::new(id.domain(), changes);
        if command.dry_run {
            return print_result(&command.output, &preview, || preview.text()).map(|()| false);
        }
        let removed = preview.losses();
        if removed > 0 {
            let unnamed = command.of.cluster.is_none().then_some(cluster.as_str());
            let loss = Loss {
                operation: &format!("remove {} of {id}", count(removed, "worker")),
                cluster: &id,
                text: &preview.text(),
                hint: &with_dry_run(&confirm::hint(&["--yes"], unnamed, None)),
                canceled: "nothing was changed",
                typed: None,
            };
            loss.confirm(&command.confirmation)?;
        }
        Ok(true)
    };
    session.progress.log_to(&session.home.cluster(&config.name));
    let scaled = session.finish_or_stop(async {
        let backend = connect_for(config).await?;
        passes::scale(&backend, config, &session.home, options, confirmed).await
    })?;
    match scaled {
        Some(scaled) => {
            recalled.keep(session)?;
            print_result(&command.output, &scaled, || scaled.text())
        }
        None => Ok(()),
    }
}

pub(super) fn drain(drain: &cli::Drain) -> Drain {
    Drain {
        limit: drain.drain_timeout,
        force: drain.force,
        delete_emptydir_data: drain.delete_emptydir_data,
    }
}
