//! `ocpdeploy plan`.

use std::collections::BTreeSet;

use anyhow::Result;

use super::output::print_result;
use super::session::Session;
use crate::cli::Plan;
use crate::plan::machines;
use crate::report;
use crate::state::inventory;
use crate::state::parameters::Parameters;

pub fn run(session: &Session, command: &Plan) -> Result<()> {
    let config = session.load(&command.source)?.config;
    let parameters = Parameters::read(&session.home.cluster(&config.name).parameters())?;
    if let Some(what) = parameters.as_ref().and_then(|known| machines::mismatch(&config, known)) {
        tracing::warn!("`deploy` would fail: the parameter file does not match the settings: {what}");
    }
    let taken: BTreeSet<_> = inventory::clusters(&session.home)?
        .iter()
        .filter_map(|cluster| cluster.parameters.as_ref())
        .filter(|parameters| parameters.id() != config.id())
        .flat_map(|parameters| parameters.leases())
        .map(|lease| lease.mac)
        .collect();
    #[cfg(not(feature = "kubevirt"))]
    if command.write_manifests.is_some() {
        crate::backend::connect::require("kubevirt")?;
    }
    #[cfg(feature = "kubevirt")]
    if let Some(folder) = &command.write_manifests {
        let macs = machines::macs(&config, &taken);
        let count = super::manifests::write(session, &config, parameters.as_ref(), &macs, folder)?;
        tracing::info!("wrote {count} manifests to {}", folder.display());
    }
    let plan = machines::plan(&config, parameters.as_ref(), &taken);
    print_result(&command.output, &plan, || report::plan::text(&plan))
}
