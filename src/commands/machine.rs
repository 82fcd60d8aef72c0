//! `ocpdeploy node show`.

use anyhow::Result;

use super::output::print_result;
use super::platform::connect_known;
use super::session::Session;
use crate::backend::{BackendError, BackendErrorKind};
use crate::cli::NodeShow;
use crate::cluster::MachineName;
use crate::report::machine::Shown;

pub(super) fn show(session: &Session, command: &NodeShow) -> Result<()> {
    let (known, node) = session.node(&command.node)?;
    let name = MachineName::of_node(&known.name, &node);
    let shown = session.finish_or_stop(async {
        let backend = connect_known(&known).await?;
        let machines = backend.list_machines(&known.id()).await?;
        let machine = machines
            .into_iter()
            .find(|machine| machine.name == name)
            .ok_or_else(|| {
                let text = format!("cluster {} has no machine {name}", known.id());
                BackendError::new(BackendErrorKind::NotFound, text).during(format!("show machine {name}"))
            })?;
        let described = backend.describe_machine(&known.id(), &name).await?;
        let platform = known.backend_of(&machine.node).name();
        Ok(Shown::new(platform, &machine, &known.sizes, described))
    })?;
    print_result(&command.output, &shown, || shown.text())
}
