//! The files and units that the machine config operator will own on each role's nodes, as far as known before the first
//! boot.
//!
//! bootstrap.ign contains every manifest of openshift-install; source: openshift/installer,
//! `pkg/asset/ignition/bootstrap/common.go`. The operator's own templates are not in it, see `operator_files`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::cluster::Role;
use crate::ignition::contents::{self, Contents};

/// The manifests' folder on the bootstrap machine, as in the installer's own folder.
const FOLDER: &str = "/opt/openshift/";

/// A MachineConfig among the manifests.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineConfig {
    pub name: String,
    /// Its manifest, e.g. `openshift/99_y.yaml`.
    pub file: String,
    pub role: Role,
    /// An Ignition config.
    pub config: Value,
}

impl MachineConfig {
    /// For messages.
    pub fn origin(&self) -> String {
        format!("MachineConfig {} ({})", self.name, self.file)
    }
}

/// The MachineConfigs of a bootstrap.ign.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineConfigs {
    pub configs: Vec<MachineConfig>,
    /// Manifests that look like a MachineConfig and cannot be parsed.
    pub unread: Vec<String>,
}

/// Finds the MachineConfigs for masters, the arbiter and workers.
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
    /// `None` for other kinds and other roles.
    fn read(self, file: &str) -> Option<MachineConfig> {
        let metadata = self
            .metadata
            .filter(|_| self.kind.as_deref() == Some("MachineConfig"))?;
        let labels = metadata.labels?;
        let role = labels.get("machineconfiguration.openshift.io/role")?.as_str()?;
        let role = role
            .parse()
            .ok()
            .filter(|role| matches!(role, Role::Master | Role::Arbiter | Role::Worker))?;
        Some(MachineConfig {
            name: metadata.name?,
            file: file.to_owned(),
            role,
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
        let names: Vec<_> = found.configs.iter().map(|found| (found.origin(), found.role)).collect();
        let name = |name: &str, role| (format!("MachineConfig {name}"), role);
        assert_eq!(
            names,
            [
                name("99-worker-a (openshift/99_both.yaml)", Role::Worker),
                name("99-master-b (openshift/99_both.yaml)", Role::Master),
                name("j (manifests/j.json)", Role::Worker),
            ]
        );
        assert_eq!(found.configs[0].config["storage"]["files"][0]["path"], "/etc/x");
        assert_eq!(found.unread, ["openshift/broken.yaml"]);
        assert_eq!(find(&json!({"storage": {"files": 7}})), MachineConfigs::default());
    }
}
