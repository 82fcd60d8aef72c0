//! The engine, with what all modules of this backend share.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::{Mutex, OnceCell};

use super::session::OvirtSession;
use super::wire::{EngineVersion, IgnitionMethod};
use crate::backend::BackendError;
use crate::cluster::{MachineName, OvirtConfig};
use crate::xml::Element;

/// An engine, as one of its users.
#[derive(Debug)]
pub struct Ovirt {
    pub(super) session: OvirtSession,
    pub(super) config: OvirtConfig,
    pub(super) site: OnceCell<OvirtSite>,
    /// Held while the cluster's tag is read and written.
    pub(super) tags: Mutex<()>,
    /// Held while members of affinity groups and labels are read and changed.
    pub(super) affinity: Mutex<()>,
    /// Id of the host on which each machine last ran.
    pub(super) ran_on: Mutex<BTreeMap<MachineName, String>>,
}

impl Ovirt {
    /// Reads the CA and the password. The first operation sends the first request.
    pub async fn connect(config: &OvirtConfig) -> Result<Self, BackendError> {
        Ok(Self {
            session: OvirtSession::new(config)?,
            config: config.clone(),
            site: OnceCell::new(),
            tags: Mutex::new(()),
            affinity: Mutex::new(()),
            ran_on: Mutex::default(),
        })
    }
}

/// Facts that do not change while the program runs.
#[derive(Debug)]
pub(super) struct OvirtSite {
    pub version: EngineVersion,
    pub way: IgnitionMethod,
    /// The compatibility version of the oVirt cluster: major and minor.
    pub compatibility: (u32, u32),
    /// The id of the oVirt cluster.
    pub cluster: String,
    /// The id of its data center.
    pub data_center: String,
    /// `undefined` before its first host.
    pub architecture: String,
    /// Whether the engine counts the threads of a host's cores (oVirt/ovirt-engine: `SlaValidator.getEffectiveCpuCores`).
    pub threads_as_cores: bool,
    /// Of all clusters in the data center.
    pub clusters: BTreeSet<String>,
}

impl OvirtSite {
    /// Whether a machine or template is in the data center. Names are unique only there (oVirt/ovirt-engine:
    /// `AddVmCommand.isVmWithSameNameExists`, `AddVmTemplateCommand.isVmTemplateWithSameNameExist`), and machines are
    /// created only from its templates (`AddVmCommand.isTemplateInValidDc`).
    ///
    /// Who may use a machine or template sees its cluster (`create_views.sql`, `user_cluster_permissions_view_base`); only
    /// the template Blank has none, and is in all data centers.
    pub fn has(&self, entity: &Element) -> bool {
        entity
            .value("cluster", "id")
            .is_none_or(|cluster| self.clusters.contains(cluster))
    }
}
