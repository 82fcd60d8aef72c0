//! (interface as the passes use it; the room is being built, replace this file whole)
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cluster::{ClusterConfig, NodeName, Role};
use crate::parameters::Parameters;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Assets {
    pub bootstrap: PathBuf,
    pub master: PathBuf,
    pub worker: PathBuf,
    pub made_at: jiff::Timestamp,
}
impl Assets {
    pub fn read(&self, _role: Role) -> anyhow::Result<Vec<u8>> {
        anyhow::bail!("not built yet")
    }
    pub fn age_hours(&self, _now: jiff::Timestamp) -> i64 {
        0
    }
}
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeReport {
    pub node: NodeName,
}
pub struct WaitContext<'a> {
    pub config: &'a ClusterConfig,
    pub parameters: &'a Parameters,
    pub dir: &'a crate::home::ClusterDir,
    pub guests_answer: bool,
}
pub enum Installer {
    Rehearsal,
}
impl Installer {
    pub fn choose(_config: &ClusterConfig) -> anyhow::Result<Self> {
        Ok(Self::Rehearsal)
    }
    pub async fn make_assets(
        &self,
        _config: &ClusterConfig,
        _parameters: &Parameters,
        _folder: &Path,
    ) -> anyhow::Result<Assets> {
        anyhow::bail!("not built yet")
    }
    pub async fn wait_for_bootstrap(&self, _wait: &WaitContext<'_>) -> anyhow::Result<Vec<NodeReport>> {
        anyhow::bail!("not built yet")
    }
    pub async fn wait_for_install(&self, _wait: &WaitContext<'_>) -> anyhow::Result<Vec<NodeReport>> {
        anyhow::bail!("not built yet")
    }
}
