//! `ocpdeploy list`.

use anyhow::Result;

use super::{Session, print};
use crate::cli::{Format, List};
use crate::{inventory, report};

pub fn run(session: &Session, command: &List) -> Result<()> {
    let list = report::list::List::of(&inventory::clusters(&session.home)?);
    match command.output.output {
        Format::Text => print(&list.text()),
        Format::Json => print(&report::json(&list)?),
    }
}
