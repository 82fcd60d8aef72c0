//! The files and units that the machine config operator will own on each role's nodes, as far as known before the first
//! boot.
//!
//! bootstrap.ign contains every manifest of openshift-install; source: openshift/installer,
//! `pkg/asset/ignition/bootstrap/common.go`. The operator's own templates are not in it, see `operator_files`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::claims::Claims;
use crate::cluster::Role;
use crate::ignition::IgnitionError;
use crate::ignition::contents::{self, Contents};

/// The manifests' directory on the bootstrap machine, as in the installer's own directory.
const FOLDER: &str = "/opt/openshift/";

/// A MachineConfig among the manifests.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineConfig {
    pub name: String,
    /// Its manifest, e.g. `openshift/99_y.yaml`.
    pub file: String,
    /// The pool that applies it: a role, or a pool of the user, whose nodes also apply those of the workers.
    pub pool: String,
    /// An Ignition config.
    pub config: Value,
}

impl MachineConfig {
    /// For messages.
    pub fn origin(&self) -> String {
        format!("MachineConfig {} ({})", self.name, self.file)
    }

    /// Whether all nodes of a role apply it.
    pub fn is_for(&self, role: Role) -> bool {
        self.pool == role.to_string()
    }

    /// Whether this program created it.
    fn is_own(&self) -> bool {
        own_name(&self.pool) == self.name
    }
}

/// The name of the MachineConfig of this program for a role. It sorts after the cluster's own, so that it takes
/// precedence; source: openshift/machine-config-operator, `pkg/controller/common/helpers.go`, `MergeMachineConfigs`.
pub fn own_name(role: &str) -> String {
    format!("99-{role}-ocpdeploy")
}

/// The MachineConfigs of a bootstrap.ign.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineConfigs {
    pub configs: Vec<MachineConfig>,
    /// Manifests that look like a MachineConfig and cannot be parsed.
    pub unread: Vec<String>,
}

impl MachineConfigs {
    /// Fails if a MachineConfig of the user sets an entry that one of this program sets: the operator uses the one
    /// whose name sorts last. Returns warnings about MachineConfigs of the user that set the same entry.
    pub fn refuse_conflicts(&self) -> Result<Vec<String>, IgnitionError> {
        let mut sorted: Vec<&MachineConfig> = self.configs.iter().collect();
        sorted.sort_by(|a, b| a.name.cmp(&b.name));
        let pools: BTreeSet<&str> = self.configs.iter().map(|config| config.pool.as_str()).collect();
        let mut warnings = Vec::new();
        for pool in pools {
            let is_custom = pool.parse::<Role>().is_err();
            let of_pool = |config: &&&MachineConfig| config.pool == pool || is_custom && config.is_for(Role::Worker);
            let mut own = Claims::default();
            let mut users = Claims::default();
            for config in sorted.iter().filter(of_pool) {
                let (same, other) = match config.is_own() {
                    true => (&mut own, &users),
                    false => (&mut users, &own),
                };
                other.refuse(&config.origin(), &config.config)?;
                if let Err(conflict) = same.refuse(&config.origin(), &config.config) {
                    let warning = format!("{conflict}; nodes use that of {}", config.name);
                    if !warnings.contains(&warning) {
                        warnings.push(warning);
                    }
                }
                same.add(&config.origin(), &config.config);
            }
        }
        Ok(warnings)
    }
}

/// Finds all MachineConfigs.
pub fn find(bootstrap: &Value) -> MachineConfigs {
    let mut found = MachineConfigs::default();
    let files = bootstrap.pointer("/storage/files").and_then(Value::as_array);
    for file in files.into_iter().flatten() {
        let path = file.get("path").and_then(Value::as_str).unwrap_or_default();
        let Some(name) = path.strip_prefix(FOLDER).filter(|name| is_manifest(name)) else {
            continue;
        };
        let Some(Ok(Contents::Bytes(bytes))) = file.get("contents").map(contents::of) else {
            continue;
        };
        // Most manifests are of other kinds, and parsing YAML is slow.
        let text = String::from_utf8_lossy(&bytes);
        if !text.contains("MachineConfig") {
            continue;
        }
        match serde_saphyr::from_multiple::<Manifest>(&text) {
            Ok(manifests) => found
                .configs
                .extend(manifests.into_iter().filter_map(|manifest| manifest.read(name))),
            Err(_) => found.unread.push(name.to_owned()),
        }
    }
    found
}

fn is_manifest(name: &str) -> bool {
    let folder = ["manifests/", "openshift/"]
        .iter()
        .any(|folder| name.starts_with(folder));
    folder && [".yaml", ".yml", ".json"].iter().any(|end| name.ends_with(end))
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    metadata: Option<Metadata>,
    #[serde(default)]
    spec: Option<Value>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    labels: Option<BTreeMap<String, Value>>,
}

impl Manifest {
    /// `None` for other kinds.
    fn read(self, file: &str) -> Option<MachineConfig> {
        let metadata = self
            .metadata
            .filter(|_| self.kind.as_deref() == Some("MachineConfig"))?;
        let labels = metadata.labels?;
        let pool = labels.get("machineconfiguration.openshift.io/role")?.as_str()?;
        Some(MachineConfig {
            name: metadata.name?,
            file: file.to_owned(),
            pool: pool.to_owned(),
            config: self.spec?.get_mut("config").map(Value::take)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ignition::contents::data_url;

    fn bootstrap(files: &[(&str, &str)]) -> Value {
        let file =
            |(path, text): &(&str, &str)| json!({"path": path, "contents": {"source": data_url(text.as_bytes())}});
        json!({"storage": {"files": files.iter().map(file).collect::<Vec<_>>()}})
    }

    fn manifest(name: &str, role: &str) -> String {
        format!(
            "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata:\n  name: {name}\n  \
             labels:\n    machineconfiguration.openshift.io/role: {role}\nspec:\n  config:\n    ignition:\n      \
             version: 3.2.0\n    storage:\n      files:\n      - path: /etc/x\n        mode: 420\n"
        )
    }

    #[test]
    fn machine_configs_are_found_among_all_files_of_bootstrap_ign() {
        let both = format!(
            "{}---\n{}",
            manifest("99-worker-a", "worker"),
            manifest("99-master-b", "master")
        );
        let json = r#"{"kind": "MachineConfig", "metadata": {"name": "j", "labels":
            {"machineconfiguration.openshift.io/role": "worker"}}, "spec": {"config": {"ignition": {"version": "3.2.0"}}}}"#;
        let found = find(&bootstrap(&[
            ("/opt/openshift/openshift/99_both.yaml", &both),
            ("/opt/openshift/manifests/j.json", json),
            ("/opt/openshift/openshift/99_infra.yaml", &manifest("99-infra", "infra")),
            (
                "/opt/openshift/openshift/pool.yaml",
                "kind: MachineConfigPool\nmetadata:\n  name: worker\n",
            ),
            ("/opt/openshift/openshift/empty.yaml", ""),
            (
                "/opt/openshift/openshift/broken.yaml",
                "kind: MachineConfig\n  metadata: {",
            ),
            ("/opt/openshift/openshift/notes.txt", &manifest("no", "worker")),
            ("/usr/local/share/x.yaml", &manifest("no", "worker")),
        ]));
        let names: Vec<_> = found
            .configs
            .iter()
            .map(|found| (found.origin(), found.pool.as_str()))
            .collect();
        let name = |name: &str, pool| (format!("MachineConfig {name}"), pool);
        assert_eq!(
            names,
            [
                name("99-worker-a (openshift/99_both.yaml)", "worker"),
                name("99-master-b (openshift/99_both.yaml)", "master"),
                name("j (manifests/j.json)", "worker"),
                name("99-infra (openshift/99_infra.yaml)", "infra"),
            ]
        );
        assert_eq!(found.configs[0].config["storage"]["files"][0]["path"], "/etc/x");
        assert_eq!(found.unread, ["openshift/broken.yaml"]);
        assert_eq!(find(&json!({"storage": {"files": 7}})), MachineConfigs::default());
    }

    #[test]
    fn machine_configs_that_set_the_same_are_compared_in_the_order_of_their_names() {
        let all = |configs: &[(&str, &str, &str)]| {
            let config = |(name, pool, path): &(&str, &str, &str)| MachineConfig {
                name: (*name).to_owned(),
                file: "m.yaml".to_owned(),
                pool: (*pool).to_owned(),
                config: json!({"storage": {"files": [{"path": path}]}}),
            };
            let configs = configs.iter().map(config).collect();
            let unread = Vec::new();
            MachineConfigs { configs, unread }
                .refuse_conflicts()
                .map_err(|error| error.to_string())
        };
        let ours = ("99-worker-ocpdeploy", "worker", "/a");
        assert_eq!(
            all(&[ours, ("99-worker-a", "worker", "/b"), ("99-master-a", "master", "/a")]),
            Ok(vec![])
        );
        for (name, pool) in [
            ("99-worker-a", "worker"),
            ("99-worker-zz", "worker"),
            ("50-infra", "infra"),
        ] {
            let error = all(&[ours, (name, pool, "/a")]).unwrap_err();
            assert!(
                error.contains("file /a is set by MachineConfig") && error.contains(name),
                "{error}"
            );
        }
        let users = [
            ("99-b", "worker", "/a"),
            ("99-a", "worker", "/a"),
            ("99-c", "infra", "/a"),
        ];
        let two = "conflict: file /a is set by MachineConfig 99-a (m.yaml) and by MachineConfig 99-b (m.yaml); nodes use \
                   that of 99-b";
        assert_eq!(all(&users[..2]), Ok(vec![two.to_owned()]));
        let three = two.replace("99-b", "99-c");
        assert_eq!(all(&users), Ok(vec![two.to_owned(), three]));
        assert_eq!(all(&[users[2], ("99-d", "gpu", "/a")]), Ok(vec![]));
    }
}
