//! The releases that a cluster has run, from its ClusterVersion. Pure.
//!
//! The newest entry of the history is the first (openshift/api: `config/v1/types_cluster_version.go`, `UpdateHistory`).
//! The oldest one, the installation, is kept when the history is shortened (openshift/cluster-version-operator:
//! `pkg/cvo/status.go`, `pruneStatusHistory`).

use kube::api::DynamicObject;
use serde::{Deserialize, Serialize};

use crate::cluster::major_minor;

/// A release in the history of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRelease {
    /// E.g. `4.19.3`; empty if the release's image has none.
    #[serde(default)]
    pub version: String,
    /// Its image, usually by digest.
    pub image: String,
    /// The cluster version operator has verified its signature; it does not verify the installed release.
    #[serde(default)]
    pub verified: bool,
}

#[derive(Deserialize)]
struct Update {
    #[serde(flatten)]
    release: ClusterRelease,
    state: String,
}

/// The releases of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Releases {
    /// The newest one that was rolled out completely.
    pub current: ClusterRelease,
    pub installed: ClusterRelease,
    /// The one that the cluster is being updated to.
    pub updating_to: Option<ClusterRelease>,
}

impl Releases {
    /// The releases of a ClusterVersion; `None` while none was rolled out completely.
    pub fn of(version: &DynamicObject) -> Option<Self> {
        let history = version.data.get("status")?.get("history")?.clone();
        let history: Vec<Update> = serde_json::from_value(history).ok()?;
        let is_complete = |update: &&Update| update.state == "Completed";
        let updating_to = history.first().filter(|update| !is_complete(update));
        Some(Self {
            current: history.iter().find(is_complete)?.release.clone(),
            installed: history.last()?.release.clone(),
            updating_to: updating_to.map(|update| update.release.clone()),
        })
    }
}

impl ClusterRelease {
    /// Whether the machine config operator applies node disruption policies: by default since 4.17 (openshift/api:
    /// `features/features.go`, `FeatureGateNodeDisruptionPolicy`).
    pub fn has_disruption_policies(&self) -> bool {
        major_minor(&self.version).is_some_and(|version| version >= (4, 17))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn history(entries: &[(&str, &str)]) -> Option<Releases> {
        let entries: Vec<Value> = entries
            .iter()
            .map(|(version, state)| {
                json!({"version": version, "image": format!("example.com/ocp@{version}"), "state": state,
                    "startedTime": "2026-01-01T00:00:00Z", "completionTime": null, "verified": true})
            })
            .collect();
        let version = json!({"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion",
            "metadata": {"name": "version"}, "status": {"history": entries}});
        Releases::of(&serde_json::from_value(version).unwrap())
    }

    #[test]
    fn an_update_counts_when_it_is_complete() {
        const DONE: &str = "Completed";
        let found = |entries: &[(&str, &str)]| {
            history(entries).map(|found| {
                let updating_to = found.updating_to.map(|release| release.version);
                (found.current.version, found.installed.version, updating_to)
            })
        };
        let expected = |current: &str, installed: &str, to: Option<&str>| {
            Some((current.to_owned(), installed.to_owned(), to.map(str::to_owned)))
        };
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[("4.19.0", "Partial")]), None);
        assert_eq!(found(&[("4.19.0", DONE)]), expected("4.19.0", "4.19.0", None));
        assert_eq!(
            found(&[("4.19.9", DONE), ("4.19.3", "Partial"), ("4.19.0", DONE)]),
            expected("4.19.9", "4.19.0", None)
        );
        assert_eq!(
            found(&[("4.20.1", "Partial"), ("4.19.9", DONE), ("4.19.0", DONE)]),
            expected("4.19.9", "4.19.0", Some("4.20.1"))
        );
    }

    #[test]
    fn policies_exist_from_the_release_that_has_them() {
        for (version, expected) in [
            ("4.16.9", false),
            ("4.17.0", true),
            ("4.17.0-rc.1", true),
            ("5.0.1", true),
            ("", false),
        ] {
            let release = ClusterRelease {
                version: version.to_owned(),
                image: String::new(),
                verified: true,
            };
            assert_eq!(release.has_disruption_policies(), expected, "{version}");
        }
    }
}
