//! Who makes the cluster's Ignition files and says when it is up: openshift-install, or its stand-in in a rehearsal.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use fs_err as fs;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::cluster::{ClusterConfig, Downloads, InstallerChoice, Mac, NodeName, Role};
use crate::digest::{sha256, sha512};
use crate::ignition::document;
use crate::node::services::{self, Release};
use crate::openshift::api::{ApiError, ClusterApi};
use crate::openshift::wait;
use crate::state::home::{self, ClusterDir};
use crate::state::parameters::{NodeAddress, Parameters};

mod expected;
mod fetch;
mod install_config;
mod mask;
mod mirror;
mod openshift_install;
mod probe;
mod programs;
mod rehearsal;
mod release;
mod signature;

pub use fetch::Choice;
pub use mask::Mask;
pub use openshift_install::OpenshiftInstall;
pub use probe::guests_answer;
pub use rehearsal::Rehearsal;

/// The chosen installer.
#[derive(Clone, Debug)]
pub enum Installer {
    OpenshiftInstall(OpenshiftInstall),
    Rehearsal(Rehearsal),
}

/// The Ignition files of a cluster, one for each role. They hold secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assets {
    pub bootstrap: PathBuf,
    pub master: PathBuf,
    pub worker: PathBuf,
    /// The certificates in them last 24 hours from then on.
    pub made_at: Timestamp,
}

impl Assets {
    fn in_folder(folder: &Path) -> Self {
        Self {
            bootstrap: folder.join("bootstrap.ign"),
            master: folder.join("master.ign"),
            worker: folder.join("worker.ign"),
            made_at: Timestamp::now(),
        }
    }

    fn path(&self, role: Role) -> &Path {
        match role {
            Role::Bootstrap => &self.bootstrap,
            Role::Master => &self.master,
            Role::Worker | Role::Helper => &self.worker,
        }
    }

    /// The installer's file for a role.
    pub fn read(&self, role: Role) -> io::Result<Vec<u8>> {
        fs::read(self.path(role))
    }

    /// Whole hours since they were made.
    pub fn age_hours(&self, now: Timestamp) -> i64 {
        now.duration_since(self.made_at).as_hours()
    }
}

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

    fn cluster(&self, api: &'a ClusterApi) -> wait::Cluster<'a> {
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
    pub ip: std::net::Ipv4Addr,
    /// Fully qualified.
    pub hostname: String,
    /// sha512 of its Ignition config, hex.
    pub config_sha512: String,
    pub ignition_bytes: usize,
    /// All of this was read from the machine itself, not taken from our own files.
    pub checked: bool,
}

/// Why an installer did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum InstallerError {
    #[error("cannot find openshift-install {place}")]
    NotFound { place: String },
    #[error("{} is openshift-install {version}, but version={wanted}", path.display())]
    OtherVersion {
        /// Or the URL of a mirror's folder.
        path: PathBuf,
        version: String,
        wanted: String,
    },
    #[error("{url} has no openshift-install and client for this computer")]
    NotListed { url: String },
    #[error("cannot verify {url}: it is neither signed nor pinned")]
    Unsigned { url: String },
    #[error("cannot verify signature {url}: {why}")]
    Signature { url: String, why: String },
    #[error("cannot trust {url}: plain http does not protect against modification")]
    PlainHttp { url: String },
    #[error("{url} has sha256 {found}, which differs from mirror_sha256")]
    NotPinned { url: String, found: String },
    #[error("cannot use public key {path}: {why}")]
    Key { path: String, why: String },
    #[error("cannot unpack archive {name}: {why}")]
    Archive { name: String, why: String },
    #[error("{0}")]
    Unsupported(String),
    #[error("cannot run {}", path.display())]
    NotRun { path: PathBuf, source: io::Error },
    #[error("{operation} failed with {status}{}", indented(tail))]
    Failed {
        operation: String,
        /// `exit status: 1`, `signal: 9 (SIGKILL)`.
        status: String,
        /// The last lines it wrote, secrets masked.
        tail: Vec<String>,
        log: PathBuf,
    },
    #[error("{operation} timed out after {} s and was stopped{}", after.as_secs(), indented(tail))]
    TooLong {
        operation: String,
        after: Duration,
        tail: Vec<String>,
        log: PathBuf,
    },
    #[error("cannot find oc next to openshift-install or in PATH")]
    NoOc,
    #[error("cannot read the images of release {image}: {why}")]
    Payload { image: String, why: String },
    #[error("openshift-install did not create {}", path.display())]
    NoAsset { path: PathBuf },
    #[error("manifest {} would replace the installer's own {name}", path.display())]
    Manifest { path: PathBuf, name: String },
    #[error("no report within {} s from:{}", after.as_secs(), indented(silent))]
    Silent { silent: Vec<String>, after: Duration },
    #[error("{node} differs from its planned configuration:{}", indented(differences))]
    Differs { node: NodeName, differences: Vec<String> },
}

impl InstallerError {
    /// What a user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotFound { .. } => Some(
                "set version=stable (or 4.19, okd, …) in the env file to download it; or get it from \
                 https://mirror.openshift.com/pub/openshift-v4/clients/ocp/ (OKD: the releases of \
                 github.com/okd-project/okd) and put it in PATH, or set installer=PATH"
                    .to_owned(),
            ),
            Self::OtherVersion { .. } => Some("remove one of the settings version, installer and mirror".to_owned()),
            Self::NotListed { .. } => {
                Some("set mirror to the directory that contains ocp/, or OKD's releases".to_owned())
            }
            Self::Unsigned { url } | Self::PlainHttp { url } => Some(format!(
                "use a mirror with https and sha256sum.txt.gpg, or pin this one with mirror_sha256=$(curl -s {url} | \
                 sha256sum); mirror_insecure=true runs its programs without verification"
            )),
            Self::Signature { .. } => Some(
                "no program of this mirror was run; if it signs with its own key, set mirror_key=FILE to the public key"
                    .to_owned(),
            ),
            Self::NotPinned { .. } => {
                Some("the list has changed since it was pinned; review it before you update mirror_sha256".to_owned())
            }
            Self::Key { .. } => Some("create the file for mirror_key with `gpg --export --armor KEY`".to_owned()),
            Self::Archive { .. } => Some("the mirror's archive is not one of openshift-install; use another mirror".to_owned()),
            Self::Unsupported(_) => Some("change the setting, or choose another version".to_owned()),
            Self::NotRun { .. } => {
                Some("check that it is an executable for this computer: run `openshift-install version`".to_owned())
            }
            Self::Failed { log, .. } | Self::TooLong { log, .. } => Some(format!(
                "its output is in {}; to resume, run the same command again",
                log.display()
            )),
            Self::NoOc => Some(
                "download openshift-client from the same place as openshift-install, and put it in PATH or next to openshift-install"
                    .to_owned(),
            ),
            Self::Payload { .. } => Some(
                "check that this computer reaches the registry and that the pull secret is valid; to use a mirror, set \
                 OPENSHIFT_INSTALL_RELEASE_IMAGE_OVERRIDE"
                    .to_owned(),
            ),
            Self::Manifest { .. } => Some("rename your manifest".to_owned()),
            Self::Silent { .. } => {
                Some("the machines are kept; check their consoles, then run the same command again".to_owned())
            }
            Self::NoAsset { .. } | Self::Differs { .. } => None,
        }
    }

    /// Something was waited for too long.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::TooLong { .. } | Self::Silent { .. })
    }
}

fn indented(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n  {line}")).collect()
}

impl Installer {
    /// Finds the installer the settings ask for.
    pub fn choose(config: &ClusterConfig) -> anyhow::Result<Self> {
        Ok(match &config.installer {
            InstallerChoice::Rehearsal => Self::Rehearsal(Rehearsal),
            InstallerChoice::OpenshiftInstall(given) => {
                Self::OpenshiftInstall(OpenshiftInstall::find(given.as_deref())?)
            }
        })
    }

    /// What it calls itself, e.g. `4.19.0`.
    pub async fn version(&self) -> anyhow::Result<String> {
        match self {
            Self::OpenshiftInstall(real) => Ok(real.about().await?.version),
            Self::Rehearsal(_) => Ok(rehearsal::VERSION.to_owned()),
        }
    }

    /// The image of the release that it installs, where it tells one.
    pub async fn release_image(&self) -> Option<String> {
        match self {
            Self::OpenshiftInstall(real) => real.about().await.ok()?.release_image,
            Self::Rehearsal(_) => None,
        }
    }

    /// What its release says of CoreOS images, as JSON; see `catalogue::coreos`.
    pub async fn coreos_stream(&self, downloads: &Downloads) -> anyhow::Result<Vec<u8>> {
        match self {
            Self::OpenshiftInstall(real) => real.coreos_stream(downloads).await,
            Self::Rehearsal(_) => anyhow::bail!("a rehearsal uses its own image instead of CoreOS"),
        }
    }

    /// The release it installs. The real one's registry is asked, with the pull secret, a copy of which lies in the
    /// private folder while it is asked.
    pub async fn release(&self, config: &ClusterConfig, private: &Path) -> anyhow::Result<Release> {
        match self {
            Self::OpenshiftInstall(real) => real.release(config, private).await,
            Self::Rehearsal(stand_in) => Ok(stand_in.release()),
        }
    }

    /// Makes the cluster's Ignition files anew in the installer's folder; there are all of them or none.
    ///
    /// Files of an earlier cluster in that folder are kept beside it, in `installer.old`.
    pub async fn make_assets(
        &self,
        config: &ClusterConfig,
        parameters: &Parameters,
        ours: &[services::Manifest],
        dir: &ClusterDir,
    ) -> anyhow::Result<Assets> {
        let folder = dir.installer();
        let partial = folder.with_extension("partial");
        remove_folder(&partial)?;
        home::create_private_dir(&partial)?;
        let users = read_manifests(config.manifests.as_deref())?;
        let manifests = Manifests { users: &users, ours };
        match self {
            Self::OpenshiftInstall(real) => {
                real.write_assets(config, parameters, manifests, &partial, &dir.log())
                    .await?
            }
            Self::Rehearsal(stand_in) => stand_in.write_assets(config, parameters, manifests, &partial)?,
        }
        let made = Assets::in_folder(&partial);
        for path in [made.bootstrap, made.master, made.worker] {
            if !path.is_file() {
                return Err(InstallerError::NoAsset { path }.into());
            }
        }
        if folder.exists() {
            let old = dir.old_installer();
            remove_folder(&old)?;
            fs::rename(&folder, &old)?;
        }
        fs::rename(&partial, &folder)?;
        Ok(Assets::in_folder(&folder))
    }

    /// Waits until the masters carry the cluster without the bootstrap machine; tells of both.
    pub async fn wait_for_bootstrap(&self, wait: &WaitContext<'_>) -> anyhow::Result<Vec<NodeReport>> {
        let nodes = nodes(wait, &[Role::Bootstrap, Role::Master]);
        match self {
            Self::OpenshiftInstall(_) => {
                let api = wait.api().await?;
                let limit = wait.config.timeouts.bootstrap;
                wait.cluster(&api).bootstrap_complete(limit).await?;
                planned_reports(wait, &nodes)
            }
            Self::Rehearsal(_) => self.ask(wait, &nodes, wait.config.timeouts.bootstrap).await,
        }
    }

    /// Waits until the bootstrap machine may go: until etcd does without it.
    pub async fn wait_for_etcd(&self, wait: &WaitContext<'_>) -> anyhow::Result<()> {
        if let Self::OpenshiftInstall(_) = self {
            let api = wait.api().await?;
            let limit = wait.config.timeouts.bootstrap;
            wait.cluster(&api).bootstrap_member_removed(limit).await?;
        }
        Ok(())
    }

    /// Waits until the cluster is whole; tells of the workers.
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
                let reports = self.ask(wait, &nodes, wait.config.timeouts.install).await?;
                if wait.guests_answer {
                    probe::ask_vip(wait, wait.config.timeouts.install).await?;
                }
                Ok(reports)
            }
        }
    }

    /// Fetches the logs of the bootstrap and the masters into the installer's folder, where the installer can.
    pub async fn gather(&self, wait: &WaitContext<'_>, limit: Duration) -> Result<(), InstallerError> {
        match self {
            Self::OpenshiftInstall(real) => real.gather(wait, limit).await,
            Self::Rehearsal(_) => Ok(()),
        }
    }

    async fn ask(
        &self,
        wait: &WaitContext<'_>,
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
        Ok(probe::ask_all(wait, planned, limit).await?)
    }
}

fn nodes<'a>(wait: &WaitContext<'a>, roles: &[Role]) -> Vec<&'a NodeAddress> {
    wait.parameters
        .nodes
        .iter()
        .filter(|node| roles.contains(&node.role))
        .collect()
}

/// What each node should be, by the parameter file and the config written for it.
fn planned_reports(wait: &WaitContext<'_>, nodes: &[&NodeAddress]) -> anyhow::Result<Vec<NodeReport>> {
    let report = |node: &&NodeAddress| {
        let path = wait.dir.ignition(node.name.as_str());
        let config = fs::read(&path).with_context(|| format!("read the Ignition config of {}", node.name))?;
        Ok(NodeReport {
            node: node.name.clone(),
            role: node.role,
            mac: node.mac,
            ip: node.ip,
            hostname: wait.config.id().fqdn(node.name.as_str()),
            config_sha512: sha512(&config),
            ignition_bytes: config.len(),
            checked: false,
        })
    };
    nodes.iter().map(report).collect()
}

/// Refuses settings that a release of OpenShift does not know. A rehearsal takes all.
pub fn check_settings(config: &ClusterConfig, version: &str) -> Result<(), InstallerError> {
    match config.installer {
        InstallerChoice::OpenshiftInstall(_) => install_config::check(config, version),
        InstallerChoice::Rehearsal => Ok(()),
    }
}

/// A manifest of the user's: file name and content.
struct Manifest {
    path: PathBuf,
    name: String,
    content: Vec<u8>,
}

/// What the installer takes beside its own manifests.
#[derive(Clone, Copy)]
struct Manifests<'a> {
    users: &'a [Manifest],
    ours: &'a [services::Manifest],
}

/// The user's manifests by name. The installer reads no other files than these.
fn read_manifests(folder: Option<&Path>) -> anyhow::Result<Vec<Manifest>> {
    let mut manifests = Vec::new();
    let Some(folder) = folder else { return Ok(manifests) };
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        let name = path.file_name().and_then(|name| name.to_str());
        match (name, extension) {
            (Some(name), Some("yaml" | "yml" | "json")) => manifests.push(Manifest {
                name: name.to_owned(),
                content: fs::read(&path)?,
                path,
            }),
            _ => tracing::warn!("ignoring {}: not a manifest (.yaml, .yml, .json)", path.display()),
        }
    }
    manifests.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(manifests)
}

/// The user's manifests by their names.
pub fn users_manifests(config: &ClusterConfig) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let manifests = read_manifests(config.manifests.as_deref())?.into_iter();
    Ok(manifests.map(|manifest| (manifest.name, manifest.content)).collect())
}

/// Names the user's manifests, all their content included.
pub fn manifests_digest(config: &ClusterConfig) -> anyhow::Result<String> {
    let mut all = String::new();
    for manifest in read_manifests(config.manifests.as_deref())? {
        all += &format!("{} {}\n", sha256(&manifest.content), manifest.name);
    }
    Ok(sha256(all))
}

/// A program that is not told the secrets of ours that may be in the environment.
fn program(path: &Path) -> Command {
    let mut command = Command::new(path);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("OCPDEPLOY_") || text.starts_with("OS_") {
            command.env_remove(name);
        }
    }
    command
}

fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
