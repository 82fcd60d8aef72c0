//! `ocpdeploy list`.

use anyhow::Result;
use jiff::Timestamp;

use super::{Session, print, print_json, terminal};
use crate::cli::{Format, List};
use crate::report::list;
use crate::{inventory, journal};

pub fn run(session: &Session, command: &List) -> Result<()> {
    let mut clusters = Vec::new();
    for cluster in inventory::clusters(&session.home)? {
        let dir = session.home.cluster(&cluster.known.name);
        let entries = journal::read(&dir.journal())?;
        let holder = journal::holder(&dir);
        clusters.push(list::Entry::of(&cluster, &entries, holder.as_ref(), Timestamp::now()));
    }
    let list = list::List { clusters };
    match command.output.output {
        Format::Text => print(&list.text(terminal::width())),
        Format::Json => print_json(&list),
    }
}
