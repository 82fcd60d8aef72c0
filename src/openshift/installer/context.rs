//! What the waits need to know, and what they tell.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::cluster::{ClusterConfig, Mac, NodeName, Role};
use crate::openshift::api::{ApiError, ClusterApi};
use crate::openshift::wait;
use crate::state::home::ClusterDir;
use crate::state::parameters::Parameters;

/// What the waits need to know.
#[derive(Clone, Copy)]
pub struct WaitContext<'a> {
    pub config: &'a ClusterConfig,
    pub parameters: &'a Parameters,
    pub dir: &'a ClusterDir,
    /// Whether machines really run, so that one can be asked over the network.
    pub guests_answer: bool,
}

impl<'a> WaitContext<'a> {
    /// The API of the cluster that the installer's files are for.
    pub async fn api(&self) -> Result<ClusterApi, ApiError> {
        ClusterApi::open(&self.dir.kubeconfig(), self.parameters.api_endpoint()).await
    }

    pub(super) fn cluster(&self, api: &'a ClusterApi) -> wait::Cluster<'a> {
        let table = self.parameters;
        wait::Cluster { api, table }
    }
}

/// What is known of a node once it is up. No secret is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    pub node: NodeName,
    pub role: Role,
    pub mac: Mac,
    pub ip: Ipv4Addr,
    /// Fully qualified.
    pub hostname: String,
    /// sha512 of its Ignition config, hex.
    pub config_sha512: String,
    pub ignition_bytes: usize,
    /// All of this was read from the machine itself, not taken from our own files.
    pub checked: bool,
}
