//! Other deployments of a cluster's name on its platform: from another computer, or with a lost record.

use anyhow::Result;

use super::error::{is_or_are, names, refuse};
use crate::backend::platforms::Platforms;
use crate::backend::{Finding, Machine, PlatformError};
use crate::cluster::{ClusterConfig, ClusterDomain, ClusterId, Creation, Pass, Role};
use crate::error::{ErrorKind, OperationError};
use crate::printable::{count, shell_path};
use crate::state::parameters::Parameters;

/// A deployment as the platform shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeploymentOnPlatform {
    pub id: ClusterId,
    pub machines: usize,
    /// Who began it, if its machines record this.
    pub creation: Option<Creation>,
}

impl DeploymentOnPlatform {
    /// Reads the machines of a deployment.
    pub async fn read(backend: &Platforms, id: ClusterId) -> Result<Self, PlatformError> {
        let machines = backend.list_machines(&id).await?;
        Ok(Self {
            id,
            machines: machines.len(),
            creation: machines.into_iter().find_map(|machine| machine.creation),
        })
    }

    /// Whether its machines record that it is a rehearsal.
    pub fn is_rehearsal(&self) -> bool {
        self.creation.as_ref().is_some_and(Creation::is_rehearsal)
    }

    /// The command that adopts it; `env` is the env file as a word of a command.
    pub fn adopt_command(&self, env: &str) -> String {
        let rehearse = if self.is_rehearsal() { " --rehearse" } else { "" };
        format!("ocpdeploy adopt {env}{rehearse} --id {}", self.id.deployment())
    }

    /// E.g. `id x7k2pqrs, 6 machines, begun by anna@laptop 2026-11-28T09:12:13Z`.
    pub fn summary(&self) -> String {
        let id = self.id.deployment();
        let machines = count(self.machines, "machine");
        match &self.creation {
            Some(creation) => format!("id {id}, {machines}, begun by {creation}"),
            None => format!("id {id}, {machines}"),
        }
    }
}

/// All deployments of a name that have objects on the platform.
pub async fn deployments_of(
    backend: &Platforms,
    domain: &ClusterDomain,
) -> Result<Vec<DeploymentOnPlatform>, PlatformError> {
    read_all(backend, |id| id.domain() == domain).await
}

/// A failure for each deployment of this name that is not the one of this record.
pub async fn other_deployments(backend: &Platforms, config: &ClusterConfig) -> Result<Vec<Finding>, PlatformError> {
    let own = config.id();
    let others = read_all(backend, |id| id.domain() == own.domain() && *id != own).await?;
    Ok(others.iter().map(|other| finding(other, config)).collect())
}

async fn read_all(
    backend: &Platforms,
    is_wanted: impl Fn(&ClusterId) -> bool,
) -> Result<Vec<DeploymentOnPlatform>, PlatformError> {
    let mut found = Vec::new();
    for id in backend.list_clusters().await?.into_iter().filter(is_wanted) {
        found.push(DeploymentOnPlatform::read(backend, id).await?);
    }
    Ok(found)
}

/// As `other_deployments`, for commands that skip the other checks.
pub(super) async fn refuse_others(backend: &Platforms, config: &ClusterConfig) -> Result<()> {
    Ok(refuse(other_deployments(backend, config).await?)?)
}

/// Fails if another computer has changed this deployment since its record here was written: the record lacks a machine,
/// or no master is left.
pub(super) fn require_current(table: &Parameters, machines: &[Machine]) -> Result<(), OperationError> {
    let nodes = machines
        .iter()
        .filter(|machine| machine.pass == Pass::Two && machine.role != Role::Bootstrap);
    let (known, unknown): (Vec<_>, Vec<_>) = nodes.partition(|machine| table.node(&machine.node).is_some());
    let cluster = &table.cluster;
    if !unknown.is_empty() {
        let unknown: Vec<_> = unknown.iter().map(|machine| &machine.name).collect();
        let text = format!(
            "the record of cluster {cluster} is out of date: it lacks {}, which {} on the platform",
            names(&unknown),
            is_or_are(unknown.len())
        );
        return Err(OperationError::new(ErrorKind::Tool, text).hint(format!(
            "another computer has changed the cluster, or this record was restored from an older backup: import the \
             newer record with `ocpdeploy state import FILE --replace`; without it, `ocpdeploy verify {cluster} --adopt` \
             adds the machines to this one"
        )));
    }
    if known.iter().any(|machine| machine.role == Role::Master) {
        return Ok(());
    }
    let text = format!("cluster {cluster} has no master left on the platform");
    Err(OperationError::new(ErrorKind::Tool, text).hint(format!(
        "another computer may have removed the cluster, or its platform is another one: `ocpdeploy verify {cluster}` \
         shows what is left of it"
    )))
}

fn finding(other: &DeploymentOnPlatform, config: &ClusterConfig) -> Finding {
    let domain = other.id.domain();
    let id = other.id.deployment();
    let platform = config.backend.name();
    let env = env_word(config);
    Finding::fail(format!(
        "another deployment of cluster {domain} is on {platform}: {}; this computer has no record of it",
        other.summary()
    ))
    .hint(format!(
        "choose another cluster name. If that cluster is yours, take it over: `ocpdeploy state import FILE` with \
         its exported record, or `{}`. If it is not needed any more, \
         `ocpdeploy destroy {domain} --from-backend --id {id} --env {env}` shows its objects and asks",
        other.adopt_command(&env)
    ))
}

/// The env file as a word of a command.
pub(super) fn env_word(config: &ClusterConfig) -> String {
    config.env_file.as_deref().map_or("ENV".to_owned(), shell_path)
}
