//! `ocpdeploy scale`.

use anyhow::Result;

use super::confirm::{self, Loss};
use super::output::print_result;
use super::platform::connect_for;
use super::saved_settings::{self, Counts};
use super::session::Session;
use crate::cli::{self, Scale};
use crate::cluster::MachineName;
use crate::openshift::drain::Drain;
use crate::passes::{self, ScaleOptions};
use crate::printable::count;
use crate::state::parameters::NodeAddress;

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
    let id = config.id();
    let confirmed = |removed: &[NodeAddress]| {
        let text = |node: &NodeAddress| {
            let machine = MachineName::of_node(&config.name, &node.name);
            format!("machine {machine} and all its disks will be deleted\n")
        };
        let unnamed = command.of.cluster.is_none().then_some(cluster.as_str());
        Loss {
            operation: &format!("remove {} of {id}", count(removed.len(), "worker")),
            cluster: &id,
            text: &removed.iter().map(text).collect::<String>(),
            hint: &confirm::hint(&["--yes"], unnamed, None),
            canceled: "nothing was changed",
            typed: None,
        }
        .confirm(&command.confirmation)
    };
    session.progress.log_to(&session.home.cluster(&config.name));
    let scaled = session.finish_or_stop(async {
        let backend = connect_for(&config).await?;
        passes::scale(&backend, &config, &session.home, options, confirmed).await
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
