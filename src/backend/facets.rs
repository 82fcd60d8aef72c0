//! Abilities that only some platforms have, and the values that pass through them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::SystemTime;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::error::BackendError;
use super::findings::Finding;
use crate::cluster::{ApiEndpoint, ClusterId, MachineName, Role, Vip};

/// The serial consoles of machines.
#[async_trait(?Send)]
pub trait SerialConsole {
    /// The last lines, where the platform keeps them.
    async fn tail(&self, cluster: &ClusterId, name: &MachineName) -> Result<Option<String>, BackendError>;

    /// Attaches to the console of a machine that runs. `None` where the platform only keeps lines.
    async fn attach(&self, _: &ClusterId, _: &MachineName) -> Result<Option<Console>, BackendError> {
        Ok(None)
    }
}

/// A serial console with somebody before it: bytes as they are, both ways.
pub struct Console {
    /// What is typed. When this is dropped, the console is left.
    pub keys: mpsc::Sender<Vec<u8>>,
    /// What the guest writes, and last, where that is known, why there is no more.
    pub screen: mpsc::Receiver<Result<Vec<u8>, BackendError>>,
}

/// Load balancers of the platform's own.
#[async_trait(?Send)]
pub trait LoadBalancers {
    /// Gives a VIP to the balancer of its network; the same call again is success. `None` where that network has none.
    async fn ensure(&self, balancer: &LoadBalancer) -> Result<Option<BalancedVip>, BackendError>;
}

/// What there is to choose from.
#[async_trait(?Send)]
pub trait Discovery {
    /// What the platform has for the settings that choose among it; changes nothing there.
    async fn choices(&self) -> Result<PlatformChoices, BackendError>;
}

/// What helps to find out why something is as it is.
#[async_trait(?Send)]
pub trait Diagnostics {
    /// A machine in the platform's own words, without its payload. An absent one is `NotFound`, not ours `Conflict`.
    async fn describe_machine(&self, cluster: &ClusterId, name: &MachineName) -> Result<Description, BackendError>;

    /// What time it is on the platform, by an answer of it; `None` where answers bear no time.
    async fn server_time(&self) -> Result<Option<SystemTime>, BackendError> {
        Ok(None)
    }

    /// The folder of this very computer in which disks will be, where there is one.
    async fn local_disk_dir(&self) -> Result<Option<PathBuf>, BackendError> {
        Ok(None)
    }
}

/// What the platform's own balancer is to do for a VIP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancer {
    pub cluster: ClusterId,
    pub network: String,
    pub vip: Vip,
    pub ports: Vec<u16>,
    /// Whose machines of pass two take the requests.
    pub roles: Vec<Role>,
    /// Only machines that say themselves that they can take requests get any; those of a rehearsal say nothing.
    pub checked: bool,
}

/// A VIP that the platform's own balancer has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BalancedVip {
    /// Where nodes reach it.
    pub ip: Ipv4Addr,
    /// Where this computer does, if elsewhere.
    #[serde(default, alias = "door")]
    pub endpoint: Option<ApiEndpoint>,
}

/// What a platform has, as far as this user sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlatformChoices {
    /// The platform itself: version, rights, room.
    pub seen: Vec<Finding>,
    /// In the order in which they are best asked.
    pub settings: Vec<SettingChoices>,
}

/// What there is for one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingChoices {
    pub setting: &'static str,
    pub choices: Vec<Choice>,
    /// The offers after this one hang on its value, and are to be read again with it.
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
    /// As it stands in an env file.
    pub value: String,
    /// What one knows it by: range, free space, size.
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

/// A machine in its platform's own words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Description {
    /// Where it may run: `cluster`, `affinity`, `hosts`, …
    pub scheduling: BTreeMap<String, String>,
    /// What it is doing: `status`, `host`, `console`, …
    pub dynamic: BTreeMap<String, String>,
    pub form: Option<Form>,
}

/// The platform's own description of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Form {
    /// E.g. `domain XML`.
    pub name: &'static str,
    pub text: String,
}
