//! `ocpdeploy stop` and `ocpdeploy start`.

use anyhow::Result;

use super::output::print;
use super::platform::connect_known;
use super::session::Session;
use crate::cli::{Start, Stop};
use crate::passes::{self, StopOptions};

pub fn stop(session: &Session, command: &Stop) -> Result<()> {
    let known = session.known(&command.cluster)?;
    let options = StopOptions {
        limit: command.timeout,
        force: command.force,
        power_off: command.power_off,
        backup: command.backup.as_deref(),
    };
    session.progress.log_to(&session.home.cluster(&known.name));
    let was_on = session.finish_or_stop(async {
        let backend = connect_known(&known).await?;
        passes::stop(&*backend, &known, &session.home, options).await
    })?;
    let already = if was_on { "" } else { "already " };
    print(&format!(
        "cluster {} is {already}off; `ocpdeploy start {}` starts it\n",
        known.id(),
        known.name
    ))
}

pub fn start(session: &Session, command: &Start) -> Result<()> {
    let known = session.known(&command.cluster)?;
    session.progress.log_to(&session.home.cluster(&known.name));
    let was_off = session.finish_or_stop(async {
        let backend = connect_known(&known).await?;
        passes::start(&*backend, &known, &session.home, command.timeout).await
    })?;
    let runs = if was_off { "runs" } else { "runs already" };
    let ready = if known.rehearsal {
        ""
    } else {
        ", and its nodes are Ready"
    };
    print(&format!(
        "cluster {} {runs}, with the addresses it had{ready}\n",
        known.id()
    ))
}
