//! `ocpdeploy stop` and `ocpdeploy start`.

use anyhow::Result;

use super::output::print_result;
use super::platform::connect_known;
use super::session::Session;
use crate::cli::{Output, Start, Stop};
use crate::passes::{self, StopOptions};
use crate::plan::Change;
use crate::report::changes::{Preview, Switched};
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
    let id = known.id();
    let confirmed = |changes: &[Change]| {
        let preview = Preview::new(id.domain(), changes);
        if command.dry_run {
            print_result(&command.output, &preview, || preview.text())?;
        }
        Ok(!command.dry_run)
    };
    let was_on = session.finish_or_stop(async {
        let backend = connect_known(&known).await?;
        passes::stop(&backend, &known, &session.home, options, confirmed).await
    })?;
    match was_on {
        Some(was_on) => switched(&command.output, &known, false, was_on),
        None => Ok(()),
    }
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
