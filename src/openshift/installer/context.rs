//! Inputs and results of the waits.

use std::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::cluster::{ClusterConfig, Mac, NodeName, Role};
use crate::local::reach;
use crate::openshift::api::{ApiError, ClusterApi};
use crate::openshift::wait;
use crate::state::home::ClusterDir;
use crate::state::parameters::Parameters;

/// The inputs of a wait.
#[derive(Clone, Copy)]
pub struct WaitContext<'a> {
    pub config: &'a ClusterConfig,
    pub parameters: &'a Parameters,
    pub dir: &'a ClusterDir,
    /// Whether machines really run and can be queried over the network.
    pub guests_answer: bool,
}

impl<'a> WaitContext<'a> {
    /// The API of the cluster that the installer's files belong to.
    pub async fn api(&self) -> Result<ClusterApi, ApiError> {
        ClusterApi::open(&self.dir.kubeconfig(), reach::api_endpoint(self.parameters)).await
    }

    pub(super) fn cluster(&self, api: &'a ClusterApi) -> wait::Cluster<'a> {
        let table = self.parameters;
        let pools = &self.config.pools;
        wait::Cluster { api, table, pools }
    }
}

/// The observed state of a running node. Contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    pub node: NodeName,
    pub role: Role,
    pub mac: Mac,
    pub ip: IpAddr,
    /// If the cluster has two address families.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Ipv6Addr>,
    /// Fully qualified.
    pub hostname: String,
    /// SHA-512 of its Ignition config, in hex.
    pub config_sha512: String,
    pub ignition_bytes: usize,
    /// All of this was read from the machine itself, not from local files.
    pub checked: bool,
}
