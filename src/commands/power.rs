//! `ocpdeploy stop` and `ocpdeploy start`.

use anyhow::Result;

use super::output::print_result;
use super::platform::connect_known;
use super::session::Session;
use crate::cli::{Output, Start, Stop};
use crate::passes::{self, StopOptions};
use crate::report::changes::Switched;
use crate::state::inventory::Known;

pub fn stop(session: &Session, command: &Stop) -> Result<()> {
    let known = session.cluster(&command.of)?;
    let options = StopOptions {
        limit: command.timeout,
        force: command.force,
        power_off: command.power_off,
        backup: command.backup.as_deref(),
    };
    session.progress.log_to(&session.home.cluster(&known.name));
    let was_on = session.finish_or_stop(async {
        let backend = connect_known(&known).await?;
        passes::stop(&backend, &known, &session.home, options).await
    })?;
    switched(&command.output, &known, false, was_on)
}

pub fn start(session: &Session, command: &Start) -> Result<()> {
    let known = session.cluster(&command.of)?;
    session.progress.log_to(&session.home.cluster(&known.name));
    let was_off = session.finish_or_stop(async {
        let backend = connect_known(&known).await?;
        passes::start(&backend, &known, &session.home, command.timeout).await
    })?;
    switched(&command.output, &known, true, was_off)
}

fn switched(output: &Output, known: &Known, running: bool, changed: bool) -> Result<()> {
    let switched = Switched {
        cluster: known.cluster_domain(),
        running,
        changed,
        rehearsal: known.rehearsal,
    };
    print_result(output, &switched, || switched.text())
}
