//! The settings that a deployment uses, recorded in the journal for later readers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::backend::platforms::Platforms;
use crate::cluster::{ClusterConfig, Dhcp, Dns, Lb, Mcs, Role};

/// Chosen settings and facts of the platform; contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectiveSettings {
    /// Version of this program.
    pub program: String,
    pub installer: String,
    /// `None` if the installer does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_image: Option<String>,
    pub lb: Lb,
    pub dns: Dns,
    pub dhcp: Dhcp,
    pub mcs: Mcs,
    /// Roles on which routers may run.
    pub routers: Vec<Role>,
    pub carriers: BTreeMap<Role, CarrierLimit>,
    /// Networks of the nodes' additional NICs, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_networks: Vec<String>,
}

/// How Ignition reaches the machines of a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarrierLimit {
    pub name: String,
    /// Largest size of a config in bytes; `None` if there is no limit.
    pub bytes: Option<usize>,
    /// A larger config is stored where the machine fetches it.
    pub fetches: bool,
}

impl EffectiveSettings {
    /// Whether services run on the nodes as static pods, with images of the release.
    pub(super) fn has_static_pods(&self) -> bool {
        self.lb == Lb::Keepalived || self.dns == Dns::Coredns
    }

    /// The note's name in the journal.
    pub const STEP: &str = "chosen";

    pub(super) fn of(
        backend: &Platforms,
        config: &ClusterConfig,
        installer: &str,
        release_image: Option<String>,
    ) -> Self {
        let room = |role| {
            let carrier = backend.capabilities(role).carrier;
            let room = CarrierLimit {
                name: carrier.name.to_owned(),
                bytes: carrier.max_config_bytes(),
                fetches: carrier.fetches,
            };
            (role, room)
        };
        Self {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            installer: installer.to_owned(),
            release_image,
            lb: config.lb,
            dns: config.dns,
            dhcp: config.dhcp,
            mcs: config.mcs,
            routers: config.router_roles(),
            carriers: std::iter::once(Role::Bootstrap)
                .chain(config.node_roles())
                .map(room)
                .collect(),
            extra_networks: config.extra_networks.clone(),
        }
    }
}
