//! What the nodes run themselves, so that VIPs, DNS and load balancing need nobody else's help.
//!
//! Every function takes the finished harvest and returns files and units; what a whole role shares becomes a
//! MachineConfig, what only bootstrap has goes into its Ignition config.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cluster::ClusterConfig;
use crate::parameters::Parameters;

pub mod manifests;

/// Images of the payload that the services run, by their names in it.
pub const IMAGES: [&str; 3] = ["keepalived-ipfailover", "haproxy-router", "coredns"];

/// What the services are made from.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub config: &'a ClusterConfig,
    pub parameters: &'a Parameters,
    pub release: &'a Release,
}

/// The OpenShift release to be installed, as far as the services need to know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// Major and minor, e.g. `(4, 19)`.
    pub version: (u32, u32),
    /// Images of the payload by name (`keepalived-ipfailover`, `haproxy-router`, `coredns`, …), each by digest.
    pub images: BTreeMap<String, String>,
}
