//! The clusters in the state directory, grouped by network, because their ids must be unique there.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::Serialize;

use super::state::Progress;
use super::status::made_at;
use super::{fitted, row};
use crate::backend::Machine;
use crate::cluster::{DeploymentId, ExternalVips, Role, Vip};
use crate::openshift::wait::clock::{Certificates, Clock};
use crate::printable::printable_line;
use crate::state::inventory::Cluster;
use crate::state::journal::{self, Holder};

/// All clusters, in the order of their names.
#[derive(Clone, Debug, Serialize)]
pub struct List {
    pub clusters: Vec<Entry>,
}

/// One cluster.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    pub cluster: String,
    pub domain: String,
    /// Of its deployment.
    pub id: DeploymentId,
    pub backend: String,
    pub rehearsal: bool,
    /// `None` before pass one is complete.
    pub addresses: Option<Addresses>,
    #[serde(flatten)]
    pub progress: Progress,
    /// `None` in a rehearsal and before the installer's files exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificates: Option<Clock>,
}

/// A cluster's addresses and ids on its network.
#[derive(Clone, Debug, Serialize)]
pub struct Addresses {
    pub network: String,
    pub network_identity: String,
    pub api_ip: IpAddr,
    pub ingress_ip: IpAddr,
    /// Where computers outside of the network reach them.
    #[serde(skip_serializing_if = "ExternalVips::is_empty")]
    pub external_vips: ExternalVips,
    pub virtual_router_id: u8,
    pub ingress_virtual_router_id: u8,
    pub masters: usize,
    pub arbiters: usize,
    pub workers: usize,
}

impl List {
    /// One table for each network, with a limited width.
    pub fn text(&self, limit: Option<usize>) -> String {
        if self.clusters.is_empty() {
            return "no clusters in the state directory\n".to_owned();
        }
        let mut networks = BTreeMap::<Option<(&str, &str)>, Vec<&Entry>>::new();
        for entry in &self.clusters {
            let network = entry
                .addresses
                .as_ref()
                .map(|known| (known.network.as_str(), known.network_identity.as_str()));
            networks.entry(network).or_default().push(entry);
        }
        let tables = networks.into_iter().map(|(network, entries)| {
            let title = match network {
                Some((name, identity)) => printable_line(&format!("network {name} ({identity})")) + "\n",
                None => "pass one not finished\n".to_owned(),
            };
            let head = row([
                &"CLUSTER", &"BACKEND", &"API", &"VRID", &"INGRESS", &"VRID", &"NODES", &"CERTS", &"STATE",
            ]);
            let rows = entries.into_iter().map(Entry::row);
            title
                + &fitted(
                    &std::iter::once(head).chain(rows).collect::<Vec<_>>(),
                    limit,
                    &[1, 7, 6],
                )
        });
        tables.collect::<Vec<_>>().join("\n")
    }
}

impl Entry {
    /// From the cluster's directory, and its machines if the platform was queried.
    pub fn of(
        cluster: &Cluster,
        journal: &[journal::Entry],
        holder: Option<&Holder>,
        machines: Option<&[Machine]>,
        now: Timestamp,
    ) -> Self {
        let known = &cluster.known;
        let made_at = made_at(journal).filter(|_| !known.rehearsal);
        Self {
            cluster: known.name.clone(),
            domain: known.domain.clone(),
            id: known.deployment.id.clone(),
            backend: known.platforms(),
            rehearsal: known.rehearsal,
            addresses: cluster.parameters.as_ref().map(|parameters| {
                let count = |role| parameters.all_nodes().filter(|node| node.role == role).count();
                Addresses {
                    network: parameters.network.clone(),
                    network_identity: parameters.network_identity.clone(),
                    api_ip: parameters.api_ip,
                    ingress_ip: parameters.ingress_ip,
                    external_vips: parameters.external_vips,
                    virtual_router_id: parameters.router_id(Vip::Api),
                    ingress_virtual_router_id: parameters.router_id(Vip::Ingress),
                    masters: count(Role::Master),
                    arbiters: count(Role::Arbiter),
                    workers: count(Role::Worker),
                }
            }),
            progress: Progress::of(cluster, journal, holder, machines),
            certificates: made_at.map(|made_at| Clock::at(now, made_at, Certificates::default())),
        }
    }

    fn row(&self) -> Vec<String> {
        let name = format!("{}.{}", self.cluster, self.domain);
        let backend = match self.rehearsal {
            true => format!("{} (rehearsal)", self.backend),
            false => self.backend.to_owned(),
        };
        // By the time these expire, a complete cluster has replaced them.
        let certificates = match &self.certificates {
            Some(clock) if clock.minutes_left > 0 => format!("{} h", clock.minutes_left / 60),
            Some(_) if self.progress.power.is_none() => "ended".to_owned(),
            _ => String::new(),
        };
        let state = self.progress.text();
        match &self.addresses {
            Some(known) => row([
                &name,
                &backend,
                &shown(known.api_ip, known.external_vips.api),
                &known.virtual_router_id,
                &shown(known.ingress_ip, known.external_vips.ingress),
                &known.ingress_virtual_router_id,
                &match known.arbiters {
                    0 => format!("{}+{}", known.masters, known.workers),
                    arbiters => format!("{}+{arbiters}+{}", known.masters, known.workers),
                },
                &certificates,
                &state,
            ]),
            None => row([&name, &backend, &"", &"", &"", &"", &"", &certificates, &state]),
        }
    }
}

/// A VIP, with its external address if it has one.
fn shown(ip: IpAddr, external: Option<IpAddr>) -> String {
    match external {
        Some(external) => format!("{ip} ({external})"),
        None => ip.to_string(),
    }
}
