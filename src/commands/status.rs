//! `ocpdeploy status`.

use anyhow::Result;

use super::{Session, print, runtime, with_backend};
use crate::backend::{Backend, Machine};
use crate::cli::{Format, Status};
use crate::inventory::{self, Cluster, InventoryError};
use crate::report::status::{Status as ClusterStatus, StatusList};
use crate::{journal, report};

pub fn run(session: &Session, command: &Status) -> Result<()> {
    let clusters = match &command.cluster {
        Some(name) => vec![find(session, name)?],
        None => inventory::clusters(&session.home)?,
    };
    let runtime = runtime()?;
    let (mut seen, mut failed) = (Vec::new(), None);
    for cluster in &clusters {
        let entries = journal::read(&session.home.cluster(&cluster.known.name).journal())?;
        match runtime.block_on(look(cluster)) {
            Ok(machines) => seen.push(ClusterStatus::of(cluster, &entries, &machines)),
            // The others are shown all the same.
            Err(error) => failed = failed.or(Some(error.context(format!("look at cluster {}", cluster.known.name)))),
        }
    }
    let list = StatusList::new(seen);
    match command.output.output {
        Format::Text => print(&list.text())?,
        Format::Json => print(&report::json(&list)?)?,
    }
    failed.map_or(Ok(()), Err)
}

async fn look(cluster: &Cluster) -> Result<Vec<Machine>> {
    with_backend!(&cluster.known.backend, backend => Ok(backend.list_machines(&cluster.known.id()).await?))
}

fn find(session: &Session, name: &str) -> Result<Cluster> {
    let unknown = || InventoryError::Unknown {
        cluster: name.to_owned(),
    };
    Ok(inventory::find(&session.home, name)?.ok_or_else(unknown)?)
}
