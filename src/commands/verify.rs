//! `ocpdeploy verify`.

use std::process::ExitCode;

use anyhow::Result;

use super::confirm::{self, Loss};
use super::output::print_result;
use super::platform::connect_known;
use super::saved_settings::{self, Counts};
use super::session::Session;
use crate::cli::{Again, Verify};
use crate::failure::DIFFERENT;
use crate::passes::{self, VerifyOptions};
use crate::printable::count;
use crate::report;
use crate::state::parameters::NodeAddress;

pub fn run(session: &Session, command: &Verify) -> Result<ExitCode> {
    let known = session.cluster(&command.of)?;
    let id = known.id();
    let confirm = |nodes: &[NodeAddress]| {
        let line = |node: &NodeAddress| format!("{} {} {} will be added to the table\n", node.name, node.mac, node.ip);
        let unnamed = command.of.cluster.is_none().then_some(known.name.as_str());
        Loss {
            operation: &format!("add {} to the record of {id}", count(nodes.len(), "worker")),
            cluster: &id,
            text: &nodes.iter().map(line).collect::<String>(),
            hint: &confirm::hint(&["--yes"], unnamed, None),
            canceled: "nothing was changed",
            typed: None,
        }
        .confirm(&command.confirmation)
    };
    let options = VerifyOptions {
        repair: command.repair,
        adopt: command.adopt.then_some(&confirm),
    };
    let settings = saved_settings::load(session, &known.name, &Again::default(), &Counts::default());
    let settings = settings.map(|recalled| recalled.config);
    let verified = session.finish_or_stop(async {
        let backend = connect_known(&known).await?;
        passes::verify(&backend, &known, &session.home, settings, options).await
    })?;
    print_result(&command.output, &verified, || report::verified(&verified))?;
    Ok(match verified.differences.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(DIFFERENT),
    })
}
