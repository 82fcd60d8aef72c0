//! The types of features that only some platforms have: consoles, load balancers, choices and descriptions.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use super::error::BackendError;
use super::findings::Finding;
use crate::cluster::{AddressAssignment, ApiEndpoint, ClusterId, Mac, Role, Vip};

/// An attached serial console: unmodified bytes in both directions.
pub struct Console {
    /// Input. Dropping it detaches the console.
    pub keys: mpsc::Sender<Vec<u8>>,
    /// Output of the guest, and at its end the reason, if known.
    pub screen: mpsc::Receiver<Result<Vec<u8>, BackendError>>,
}

/// A load balancer for a VIP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancer {
    pub cluster: ClusterId,
    pub network: String,
    pub vip: Vip,
    /// The address of the VIP; `None`: the platform chooses one.
    pub ip: Option<IpAddr>,
    pub ports: Vec<u16>,
    /// The roles whose machines of pass two receive the requests.
    pub roles: Vec<Role>,
    /// The addresses of these machines, for platforms that do not find machines by role. `None`: not known yet, only
    /// the address of the VIP is required.
    pub members: Option<Vec<AddressAssignment>>,
    /// Only machines that report that they are ready receive requests. Those of a rehearsal report nothing.
    pub checked: bool,
}

/// A VIP on a load balancer of the platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalancedVip {
    /// The address for nodes.
    pub ip: IpAddr,
    /// The MAC of this address, if it has one.
    #[serde(default)]
    pub mac: Option<Mac>,
    /// The endpoint for this computer, if it is a different one.
    #[serde(default)]
    pub endpoint: Option<ApiEndpoint>,
}

/// The choices that this user has on a platform.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlatformChoices {
    /// Findings about the platform: version, permissions, capacity.
    pub seen: Vec<Finding>,
    /// In the order of the questions.
    pub settings: Vec<SettingChoices>,
    /// The capacity of the host; `None` for a platform with several hosts.
    pub host: Option<HostCapacity>,
}

/// The memory and CPUs of one host, or of a cluster's machines on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCapacity {
    pub memory_mib: u64,
    /// For a host `None` if unlimited; for machines those of the largest one.
    pub cpus: Option<u64>,
}

/// The choices for one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingChoices {
    pub setting: &'static str,
    pub choices: Vec<Choice>,
    /// The choices after this one depend on its value, and must be queried again with it.
    pub decides: bool,
    /// May be left out.
    pub optional: bool,
}

impl SettingChoices {
    pub fn new(setting: &'static str, choices: Vec<Choice>) -> Self {
        Self {
            setting,
            choices,
            decides: false,
            optional: false,
        }
    }

    pub fn decides(self) -> Self {
        Self { decides: true, ..self }
    }

    pub fn optional(self) -> Self {
        Self { optional: true, ..self }
    }
}

/// One value that a setting may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// As written in an env file.
    pub value: String,
    /// A short description: range, free space, size.
    pub about: String,
    /// Why it may be a bad choice.
    pub warning: Option<String>,
}

impl Choice {
    pub fn new(value: impl Into<String>, about: impl Into<String>) -> Self {
        Self {
            value: value.into(),
            about: about.into(),
            warning: None,
        }
    }

    pub fn warn(self, warning: impl Into<String>) -> Self {
        Self {
            warning: Some(warning.into()),
            ..self
        }
    }
}

/// Properties by name, in lower case with underscores.
pub type Properties = BTreeMap<String, Value>;

/// The platform's description of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Description {
    /// Where it may run: `cluster`, `affinity`, `hosts`, …
    pub scheduling: Properties,
    /// What it is doing: `status`, `host`, `console`, …
    pub dynamic: Properties,
    pub form: Option<Form>,
}

/// The platform's own description of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Form {
    /// E.g. `domain XML`.
    pub name: &'static str,
    pub text: String,
}
