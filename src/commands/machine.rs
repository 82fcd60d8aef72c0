//! `ocpdeploy machine`.

use anyhow::Result;

use super::output::{print, print_json};
use super::platform::connect_known;
use super::session::Session;
use crate::backend::{BackendError, BackendErrorKind, Description};
use crate::cli::{Format, Machine, MachineShow, MachineVerb};
use crate::cluster::{MachineName, NodeName};
use crate::report::machine::Shown;

pub fn run(session: &Session, command: &Machine) -> Result<()> {
    match &command.verb {
        MachineVerb::Show(command) => show(session, command),
    }
}

fn show(session: &Session, command: &MachineShow) -> Result<()> {
    let known = session.known(&session.cluster_name(command.cluster.as_deref())?)?;
    let name = MachineName::of_node(&known.name, &NodeName::from_platform(&command.node));
    let shown = session.finish_or_stop(async {
        let backend = connect_known(&known).await?;
        let machines = backend.list_machines(&known.id()).await?;
        let machine = machines
            .into_iter()
            .find(|machine| machine.name == name)
            .ok_or_else(|| {
                BackendError::new(BackendErrorKind::NotFound, format!("show machine {name}"))
                    .because(format!("cluster {} has no machine {name}", known.id()))
            })?;
        let described = match backend.diagnostics(machine.role) {
            Some(diagnostics) => diagnostics.describe_machine(&known.id(), &name).await?,
            None => Description::default(),
        };
        let platform = known.backend_of(machine.role).name();
        Ok(Shown::new(platform, &machine, known.sizes.as_ref(), described))
    })?;
    match command.output.output {
        Format::Text => print(&shown.text()),
        Format::Json => print_json(&shown),
    }
}
