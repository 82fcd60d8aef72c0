//! MachineConfigPools of the pools that have MachineConfigs of their own.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tracing::info;

use super::run::Run;
use crate::PROGRESS;
use crate::cluster::{Pool, Role};
use crate::openshift::api::ClusterApi;
use crate::openshift::wait;
use crate::state::parameters::Parameters;

impl Run<'_> {
    /// The cluster, as waits know it.
    pub(super) fn cluster<'a>(&'a self, api: &'a ClusterApi, table: &'a Parameters) -> wait::Cluster<'a> {
        let pools = &self.config.pools;
        wait::Cluster { api, table, pools }
    }

    /// The pools with a MachineConfigPool.
    pub(super) fn config_pools(&self) -> impl Iterator<Item = &Pool> {
        self.config.pools.iter().filter(|pool| pool.own_configs)
    }

    /// Creates the MachineConfigPools. Without MachineConfigs of their own, they render the same configuration as that
    /// of the workers, so that no node is updated.
    pub(super) async fn make_config_pools(&self, api: &ClusterApi) -> Result<()> {
        for pool in self.config_pools() {
            let object = serde_json::from_value(config_pool(pool)).context("create a MachineConfigPool")?;
            if api.apply(object).await?.is_change() {
                info!(target: PROGRESS, step = "pools", "MachineConfigPool {} is created", pool.name);
            }
        }
        Ok(())
    }
}

/// A pool that inherits the workers' MachineConfigs (openshift/machine-config-operator: `docs/custom-pools.md`), with
/// the label by which a KubeletConfig selects it (`docs/KubeletConfigDesign.md`).
fn config_pool(pool: &Pool) -> Value {
    let name = &pool.name;
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "metadata": {
            "name": name,
            "labels": {format!("pools.operator.machineconfiguration.openshift.io/{name}"): ""},
        },
        "spec": {
            "machineConfigSelector": {"matchExpressions": [{
                "key": "machineconfiguration.openshift.io/role",
                "operator": "In",
                "values": [Role::Worker.to_string(), name],
            }]},
            "nodeSelector": {"matchLabels": {pool.role_label(): ""}},
        },
    })
}
