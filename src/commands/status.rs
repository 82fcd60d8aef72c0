//! `ocpdeploy status`.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use tokio::time::timeout;

use super::{Session, connect, print, runtime};
use crate::backend::{Backend, Machine};
use crate::cli::{Format, Status};
use crate::cluster_api::ClusterApi;
use crate::inventory::{self, Cluster, InventoryError};
use crate::report::status::{Status as ClusterStatus, StatusList, made_at};
use crate::wait::clock::{self, Clock};
use crate::{journal, report};

/// A cluster's API is asked no longer: most of what is shown needs no API.
const PATIENCE: Duration = Duration::from_secs(3);

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
            Ok(machines) => {
                let mut status = ClusterStatus::of(cluster, &entries, &machines);
                if let Some(made_at) = made_at(&entries).filter(|_| !cluster.known.rehearsal) {
                    let asked = async { timeout(PATIENCE, rotated(session, cluster)).await };
                    let rotated = runtime.block_on(asked).ok().flatten();
                    status.certificates = Some(Clock::at(Timestamp::now(), made_at, rotated));
                }
                seen.push(status);
            }
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

/// Whether the cluster has replaced the installer's certificates; `None` when it does not say.
async fn rotated(session: &Session, cluster: &Cluster) -> Option<bool> {
    let door = cluster.parameters.as_ref()?.api_door();
    let kubeconfig = session.home.cluster(&cluster.known.name).kubeconfig();
    let api = ClusterApi::open(&kubeconfig, door).await.ok()?;
    let (namespace, name) = clock::SIGNER;
    clock::is_rotated(&api.secret(namespace, name).await.ok()??)
}

async fn look(cluster: &Cluster) -> Result<Vec<Machine>> {
    let known = &cluster.known;
    let backend = connect(&known.backend, known.workers_on.as_ref()).await?;
    Ok(backend.list_machines(&known.id()).await?)
}

fn find(session: &Session, name: &str) -> Result<Cluster> {
    let unknown = || InventoryError::Unknown {
        cluster: name.to_owned(),
    };
    Ok(inventory::find(&session.home, name)?.ok_or_else(unknown)?)
}
