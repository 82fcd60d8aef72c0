//! Creates the cluster's Ignition files and waits for the cluster: openshift-install, or its fake in a rehearsal.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use fs_err as fs;
use ipnetwork::IpNetwork;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::backend::Finding;
use crate::cluster::{ClusterConfig, Downloads, InstallerChoice, Role};
use crate::digest::sha512;
use crate::error::{ErrorKind, OperationError};
use crate::ignition::document;
use crate::node::services::{self, Release};
use crate::state::home::{self, ClusterDir};
use crate::state::parameters::{NodeAddress, Parameters};

mod child;
mod context;
mod expected;
pub mod fetch;
pub mod fips;
mod install_config;
mod manifests;
mod mask;
mod mirror;
mod openshift_install;
mod probe;
mod programs;
mod rehearsal;
mod release;
mod release_signature;
#[cfg_attr(not(feature = "openpgp"), path = "signature_absent.rs")]
mod signature;

use child::Unfinished;
pub use child::end_all;
pub use context::{NodeReport, WaitContext};
pub use manifests::{combined_manifests, manifests_digest};
pub use mask::Mask;
pub use mirror::downgrade;
pub use openshift_install::OpenshiftInstall;
pub use probe::guests_answer;
pub use rehearsal::Rehearsal;
pub use release::PullSecretRejected;

/// The chosen installer.
#[derive(Clone, Debug)]
pub enum Installer {
    OpenshiftInstall(OpenshiftInstall),
    Rehearsal(Rehearsal),
}

/// The Ignition files of a cluster, one for each role. They contain secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assets {
    pub bootstrap: PathBuf,
    pub master: PathBuf,
    /// Only if there is an arbiter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arbiter: Option<PathBuf>,
    pub worker: PathBuf,
    /// The certificates in them are valid for 24 hours from this time.
    pub made_at: Timestamp,
}

impl Assets {
    fn in_folder(folder: &Path, has_arbiter: bool, made_at: Timestamp) -> Self {
        Self {
            bootstrap: folder.join("bootstrap.ign"),
            master: folder.join("master.ign"),
            arbiter: has_arbiter.then(|| folder.join("arbiter.ign")),
            worker: folder.join("worker.ign"),
            made_at,
        }
    }

    /// The same files where the cluster's directory is now: it may have been moved since they were recorded.
    pub fn moved_to(&self, dir: &ClusterDir) -> Self {
        Self::in_folder(&dir.installer(), self.arbiter.is_some(), self.made_at)
    }

    /// The installer's file for a role.
    pub fn read(&self, role: Role) -> io::Result<Vec<u8>> {
        let path = match role {
            Role::Bootstrap => Some(&self.bootstrap),
            Role::Master => Some(&self.master),
            Role::Arbiter => self.arbiter.as_ref(),
            Role::Worker | Role::Helper => Some(&self.worker),
        };
        fs::read(path.ok_or(io::ErrorKind::NotFound)?)
    }

    /// Whole hours since they were created.
    pub fn age_hours(&self, now: Timestamp) -> i64 {
        now.duration_since(self.made_at).as_hours()
    }
}

impl Installer {
    /// Selects the installer of the settings.
    pub fn choose(config: &ClusterConfig) -> anyhow::Result<Self> {
        Ok(match &config.installer {
            InstallerChoice::Rehearsal => Self::Rehearsal(Rehearsal),
            InstallerChoice::OpenshiftInstall(given) => {
                Self::OpenshiftInstall(OpenshiftInstall::find(given.as_deref())?)
            }
        })
    }

    /// Its own version, e.g. `4.19.0`.
    pub async fn version(&self) -> anyhow::Result<String> {
        match self {
            Self::OpenshiftInstall(real) => Ok(real.about().await?.version.clone()),
            Self::Rehearsal(_) => Ok(rehearsal::VERSION.to_owned()),
        }
    }

    /// The image of the release that it installs, if it reports one.
    pub async fn release_image(&self) -> Option<String> {
        match self {
            Self::OpenshiftInstall(real) => real.about().await.ok()?.release_image.clone(),
            Self::Rehearsal(_) => None,
        }
    }

    /// The CoreOS images of its release, as JSON; see `catalogue::coreos`.
    pub async fn coreos_stream(&self, downloads: &Downloads) -> anyhow::Result<Vec<u8>> {
        match self {
            Self::OpenshiftInstall(real) => real.coreos_stream(downloads).await,
            Self::Rehearsal(_) => anyhow::bail!("a rehearsal uses its own image instead of CoreOS"),
        }
    }

    /// The release it installs. The real installer's registry is queried with the pull secret.
    pub async fn release(&self, config: &ClusterConfig) -> anyhow::Result<Release> {
        match self {
            Self::OpenshiftInstall(real) => {
                child::end_leftovers().await;
                real.release(config).await
            }
            Self::Rehearsal(stand_in) => Ok(stand_in.release()),
        }
    }

    /// All images of the release it installs, by digest. A rehearsal has none.
    pub async fn payload(&self, config: &ClusterConfig) -> anyhow::Result<Vec<String>> {
        match self {
            Self::OpenshiftInstall(real) => real.payload(config).await,
            Self::Rehearsal(_) => Ok(Vec::new()),
        }
    }

    /// Another release by its image, which is read in the same way.
    pub async fn release_at(&self, image: &str, is_verified: bool, config: &ClusterConfig) -> anyhow::Result<Release> {
        match self {
            Self::OpenshiftInstall(real) => {
                child::end_leftovers().await;
                Ok(real.release_at(image, is_verified, config).await?)
            }
            Self::Rehearsal(stand_in) => Ok(stand_in.release()),
        }
    }

    /// Creates the cluster's Ignition files in the installer's directory; either all of them exist afterwards or none.
    ///
    /// Files of an earlier cluster in that directory are moved to `installer.old` beside it.
    pub async fn make_assets(
        &self,
        config: &ClusterConfig,
        parameters: &Parameters,
        ours: &[services::Manifest],
        dir: &ClusterDir,
    ) -> anyhow::Result<Assets> {
        child::end_leftovers().await;
        let folder = dir.installer();
        let unfinished = Unfinished::new(folder.with_extension("partial"));
        let partial = unfinished.path();
        home::remove_folder(partial)?;
        home::create_private_dir(partial)?;
        let manifests = combined_manifests(config, ours.to_vec())?;
        match self {
            Self::OpenshiftInstall(real) => {
                real.write_assets(config, parameters, &manifests, partial, &dir.log())
                    .await?
            }
            Self::Rehearsal(stand_in) => stand_in.write_assets(config, parameters, &manifests, partial)?,
        }
        let made = Assets::in_folder(partial, config.arbiter, Timestamp::now());
        for path in [made.bootstrap, made.master, made.worker]
            .into_iter()
            .chain(made.arbiter)
        {
            if !path.is_file() {
                let text = format!("openshift-install did not create {}", path.display());
                return Err(OperationError::new(ErrorKind::Tool, text).into());
            }
        }
        if folder.exists() {
            let old = dir.old_installer();
            home::remove_folder(&old)?;
            fs::rename(&folder, &old)?;
        }
        fs::rename(partial, &folder)?;
        Ok(Assets::in_folder(&folder, config.arbiter, Timestamp::now()))
    }

    /// Waits until the control plane runs without the bootstrap machine; reports bootstrap, masters and arbiter.
    pub async fn wait_for_bootstrap(&self, wait: &WaitContext<'_>) -> anyhow::Result<Vec<NodeReport>> {
        let nodes = nodes(wait, &[Role::Bootstrap, Role::Master, Role::Arbiter]);
        match self {
            Self::OpenshiftInstall(_) => {
                let api = wait.api().await?;
                let limit = wait.config.timeouts.bootstrap;
                wait.cluster(&api).bootstrap_complete(limit).await?;
                planned_reports(wait, &nodes)
            }
            Self::Rehearsal(_) => {
                let limit = wait.config.timeouts.bootstrap;
                self.ask(wait, "bootstrap-complete", &nodes, limit).await
            }
        }
    }

    /// Waits until the bootstrap machine may be deleted: until it is no longer a member of etcd.
    pub async fn wait_for_etcd(&self, wait: &WaitContext<'_>) -> anyhow::Result<()> {
        if let Self::OpenshiftInstall(_) = self {
            let api = wait.api().await?;
            let limit = wait.config.timeouts.bootstrap;
            wait.cluster(&api).bootstrap_member_removed(limit).await?;
        }
        Ok(())
    }

    /// Waits until the cluster is complete; reports the workers.
    pub async fn wait_for_install(&self, wait: &WaitContext<'_>) -> anyhow::Result<Vec<NodeReport>> {
        let nodes = nodes(wait, &[Role::Worker]);
        match self {
            Self::OpenshiftInstall(_) => {
                let api = wait.api().await?;
                let limit = wait.config.timeouts.install;
                wait.cluster(&api).install_complete(limit).await?;
                planned_reports(wait, &nodes)
            }
            Self::Rehearsal(_) => {
                let reports = self
                    .ask(wait, "install-complete", &nodes, wait.config.timeouts.install)
                    .await?;
                if wait.guests_answer {
                    probe::ask_vip(wait, wait.config.timeouts.install).await?;
                }
                Ok(reports)
            }
        }
    }

    /// Collects the logs of the bootstrap and the masters in the installer's directory, if the installer can.
    pub async fn gather(&self, wait: &WaitContext<'_>, limit: Duration) -> Result<(), OperationError> {
        match self {
            Self::OpenshiftInstall(real) => real.gather(wait, limit).await,
            Self::Rehearsal(_) => Ok(()),
        }
    }

    async fn ask(
        &self,
        wait: &WaitContext<'_>,
        step: &'static str,
        nodes: &[&NodeAddress],
        limit: Duration,
    ) -> anyhow::Result<Vec<NodeReport>> {
        let planned = planned_reports(wait, nodes)?;
        if !wait.guests_answer {
            return Ok(planned);
        }
        let bootstrap = document::parse(&fs::read(wait.dir.installer().join("bootstrap.ign"))?)?;
        let with_config = |node: NodeReport| {
            let bytes = fs::read(wait.dir.ignition(node.node.as_str()))?;
            let served = rehearsal::served_to(&bootstrap, node.role);
            Ok((node, expected::effective(&document::parse(&bytes)?, served)?))
        };
        let planned = planned.into_iter().map(with_config).collect::<anyhow::Result<_>>()?;
        Ok(probe::ask_all(step, planned, limit).await?)
    }
}

fn nodes<'a>(wait: &WaitContext<'a>, roles: &[Role]) -> Vec<&'a NodeAddress> {
    wait.parameters
        .nodes
        .iter()
        .filter(|node| roles.contains(&node.role))
        .collect()
}

/// The planned state of each node, from the parameter file and its config.
fn planned_reports(wait: &WaitContext<'_>, nodes: &[&NodeAddress]) -> anyhow::Result<Vec<NodeReport>> {
    let report = |node: &&NodeAddress| {
        let path = wait.dir.ignition(node.name.as_str());
        let config = fs::read(&path).with_context(|| format!("read the Ignition config of {}", node.name))?;
        Ok(NodeReport {
            node: node.name.clone(),
            role: node.role,
            mac: node.mac,
            ip: node.ip,
            ipv6: wait.parameters.ipv6.as_ref().map(|ipv6| ipv6.beside(node.ip)),
            hostname: wait.config.cluster_domain().fqdn(node.name.as_str()),
            config_sha512: sha512(&config),
            ignition_bytes: config.len(),
            checked: false,
        })
    };
    nodes.iter().map(report).collect()
}

/// Settings that a release of OpenShift does not support. A rehearsal accepts all.
pub fn check_settings(config: &ClusterConfig, machine_network: IpNetwork, version: &str) -> Vec<Finding> {
    match config.installer {
        InstallerChoice::OpenshiftInstall(_) => install_config::check(config, machine_network, version),
        InstallerChoice::Rehearsal => Vec::new(),
    }
}
