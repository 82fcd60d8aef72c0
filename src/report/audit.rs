//! All objects of clusters on the platforms, and which of them should not exist.

use serde::Serialize;

use super::status::{Status, Verdict};
use super::{row, table};
use crate::backend::{Machine, Owned};
use crate::cluster::{ClusterDomain, Creation, DeploymentId, MachineName, Role};
use crate::passes::DeploymentOnPlatform;
use crate::printable::{count, printable_line};
use crate::state::inventory::Cluster;
use crate::state::journal::{BOOTSTRAP_REMOVED, Entry, INSTALLED, is_done};

/// All searched platforms.
#[derive(Clone, Debug, Serialize)]
pub struct Audit {
    pub platforms: Vec<OnPlatform>,
}

/// The clusters on one platform.
#[derive(Clone, Debug, Serialize)]
pub struct OnPlatform {
    pub platform: String,
    pub clusters: Vec<Found>,
}

/// The objects of one cluster.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    #[serde(flatten, serialize_with = "ClusterDomain::as_keys")]
    pub cluster: ClusterDomain,
    pub id: DeploymentId,
    /// Who began the deployment, and when, as far as its machines say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation: Option<Creation>,
    pub state: State,
    /// All objects with its tag.
    pub objects: Vec<Owned>,
    /// Machines that are no longer needed: those of pass one, the bootstrap.
    pub should_be_gone: Vec<MachineName>,
    /// The next commands; empty if nothing is to be done.
    pub hints: Vec<String>,
}

/// The state of a cluster, as far as this computer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Deployed from here, and all of its machines exist.
    Alive,
    /// Its deployment is not complete, or is running.
    Unfinished,
    /// Created machines are missing: a `destroy` was interrupted, or others deleted them.
    Incomplete,
    /// In the state directory, but without any objects.
    Gone,
    /// From another computer, or its directory is lost.
    Unrecorded,
}

impl State {
    fn words(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Unfinished => "deployment not finished",
            Self::Incomplete => "incomplete: some of its machines are missing",
            Self::Gone => "in the state directory, but has no objects on the platform",
            Self::Unrecorded => "not in the state directory",
        }
    }
}

impl Found {
    /// A cluster with a directory in the state directory.
    pub fn known(cluster: &Cluster, journal: &[Entry], machines: &[Machine], objects: Vec<Owned>) -> Self {
        let name = &cluster.known.name;
        let status = Status::of(cluster, journal, None, machines);
        let is_missing = |verdict: Verdict| verdict == Verdict::Missing;
        let state = match () {
            () if objects.is_empty() => State::Gone,
            () if status.nodes.iter().any(|node| is_missing(node.verdict)) => State::Incomplete,
            () if is_done(journal, INSTALLED) => State::Alive,
            () => State::Unfinished,
        };
        let mut should_be_gone = Vec::new();
        // Before there is a table, the machines of pass one are needed.
        if cluster.parameters.is_some() {
            should_be_gone.clone_from(&status.pass_one);
        }
        if is_done(journal, BOOTSTRAP_REMOVED) {
            let left = machines.iter().filter(|machine| machine.role == Role::Bootstrap);
            should_be_gone.extend(left.map(|machine| machine.name.clone()));
        }
        let mut hints = Vec::new();
        match state {
            State::Alive | State::Unrecorded => {}
            State::Unfinished => hints.push(format!(
                "not installed yet: `ocpdeploy deploy` resumes the deployment, `ocpdeploy destroy {name}` removes the cluster"
            )),
            State::Incomplete if is_done(journal, INSTALLED) => hints.extend([
                format!(
                    "if the cluster is in use, recreate the missing node: `ocpdeploy node replace {name} NODE`"
                ),
                format!("if `ocpdeploy destroy {name}` was interrupted, run it again to remove the rest"),
            ]),
            State::Incomplete => hints.push(format!(
                "not installed yet: `ocpdeploy destroy {name}` removes the rest"
            )),
            State::Gone => hints.push(format!("`ocpdeploy destroy {name}` removes its directory")),
        }
        if !should_be_gone.is_empty() && state == State::Alive {
            hints.push(format!(
                "`ocpdeploy verify {name} --repair` removes machines that are no longer needed"
            ));
        }
        Self {
            cluster: cluster.known.cluster_domain(),
            id: cluster.known.deployment.id.clone(),
            creation: Some(cluster.known.deployment.creation.clone()),
            state,
            objects,
            should_be_gone,
            hints,
        }
    }

    /// A cluster without a directory; `env` is the env file of the platform, as a word of a command.
    pub fn unknown(deployment: DeploymentOnPlatform, objects: Vec<Owned>, env: Option<&str>) -> Self {
        let cluster = deployment.id.domain().clone();
        let id = deployment.id.deployment().clone();
        let more = env.map(|env| format!(" --env {env}")).unwrap_or_default();
        let hints = vec![
            "find out who owns the cluster first: it may be in use".to_owned(),
            format!(
                "if it is yours, `{}` rebuilds its record",
                deployment.adopt_command(env.unwrap_or("ENV"))
            ),
            format!(
                "if it is not needed any more, `ocpdeploy destroy {cluster} --from-backend --id {id}{more}` shows its \
                 objects and asks"
            ),
        ];
        Self {
            cluster,
            id,
            creation: deployment.creation,
            state: State::Unrecorded,
            objects,
            should_be_gone: Vec::new(),
            hints,
        }
    }

    fn is_as_it_should(&self) -> bool {
        self.state == State::Alive && self.should_be_gone.is_empty()
    }

    fn text(&self) -> String {
        let mut text = format!("\n{}: {}; id {}", self.cluster, self.state.words(), self.id);
        if let Some(creation) = &self.creation {
            text += &format!(", begun by {creation}");
        }
        if self.is_as_it_should() {
            return text + &format!(", {}\n", count(self.objects.len(), "object"));
        }
        text += "\n";
        if !self.objects.is_empty() {
            let rows = self.objects.iter().map(|owned| row([&owned.kind, &owned.name]));
            let head = row([&"KIND", &"NAME"]);
            text += &table(&std::iter::once(head).chain(rows).collect::<Vec<_>>());
        }
        for machine in &self.should_be_gone {
            text += &format!("{} is no longer needed\n", printable_line(machine.as_str()));
        }
        for hint in &self.hints {
            text += &format!("hint: {}\n", printable_line(hint));
        }
        text
    }
}

impl Audit {
    /// Whether all clusters are in the state directory with all their machines, and none that is no longer needed.
    pub fn is_clean(&self) -> bool {
        let mut all = self.platforms.iter().flat_map(|platform| &platform.clusters);
        all.all(Found::is_as_it_should)
    }

    /// The text, platform by platform.
    pub fn text(&self) -> String {
        let texts = self.platforms.iter().map(|on| {
            let clusters: String = on.clusters.iter().map(Found::text).collect();
            let platform = printable_line(&on.platform);
            match clusters.as_str() {
                "" => format!("{platform}\n\nno objects of any cluster\n"),
                clusters => format!("{platform}\n{clusters}"),
            }
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}
