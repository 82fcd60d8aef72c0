//! The user's manifests as OpenShift reads them when the cluster is installed. An invalid manifest keeps bootstrapping
//! from completing, and the installer reports no error.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::error::{ErrorKind, OperationError};
use crate::ignition::check::{Severity, check};
use crate::ignition::{Major, Version, document};

/// The label by which pools select MachineConfigs.
const ROLE: &str = "machineconfiguration.openshift.io/role";
/// The fields of a MachineConfig's spec that change a node (openshift/api: `machineconfiguration/v1/types.go`).
const EFFECTS: [&str; 7] = [
    "config",
    "kernelArguments",
    "extensions",
    "kernelType",
    "fips",
    "osImageURL",
    "baseOSExtensionsContainerImage",
];
/// The first release whose operator rejects modes with set-user-ID, set-group-ID or sticky bit (commit 3ab2c314a of
/// 2022-01-12).
const PLAIN_MODES: (u32, u32) = (4, 11);

/// The objects of a manifest; there is at least one.
///
/// All readers require a kind: the installer (openshift/installer: `pkg/asset/ignition/bootstrap/cvoignore.go`), the
/// machine config operator (openshift/machine-config-operator: `pkg/controller/bootstrap/bootstrap.go`) and the creation
/// in the cluster, which accepts no list and requires a name (openshift/library-go: `pkg/assets/create/creater.go`).
pub fn objects(path: &Path, content: &[u8]) -> Result<Vec<Value>, OperationError> {
    let path = path.display();
    let refuse =
        |why: String, hint: &str| OperationError::new(ErrorKind::Settings, format!("manifest {path} {why}")).hint(hint);
    let text =
        std::str::from_utf8(content).map_err(|_| refuse("is not text in UTF-8".to_owned(), "convert it to UTF-8"))?;
    // Kubernetes reads YAML 1.1 (kubernetes-sigs/yaml: `goyaml.v2/resolve.go`), where 0644 is octal.
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let read = serde_saphyr::from_multiple_with_options::<Value>(text, options);
    let mut objects = read.map_err(|error| {
        let why = format!("is not YAML or JSON: {}", error.without_snippet());
        refuse(why, "correct it; a file with templates must be rendered first")
    })?;
    objects.retain(|object| !object.is_null());
    if objects.is_empty() {
        return Err(refuse("is empty".to_owned(), "remove it"));
    }
    for object in &objects {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        if text("/kind").is_empty() || text("/apiVersion").is_empty() {
            return Err(match () {
                () if object.get("variant").is_some() => refuse(
                    "is a Butane config, not an object of Kubernetes".to_owned(),
                    "translate it: `butane FILE.bu -o FILE.yaml` writes a MachineConfig",
                ),
                () if object.get("ignition").is_some() => refuse(
                    "is an Ignition config, not an object of Kubernetes".to_owned(),
                    "set ignition_extra to it, or write it into a MachineConfig as spec.config",
                ),
                () => refuse(
                    "is not an object of Kubernetes: it has no kind or no apiVersion".to_owned(),
                    "remove it, or correct it",
                ),
            });
        }
        if object.get("items").is_some_and(Value::is_array) && text("/kind").ends_with("List") {
            return Err(refuse(
                format!("is a {}, which OpenShift does not create", text("/kind")),
                "write each object into a file of its own",
            ));
        }
        if text("/metadata/name").is_empty() && text("/metadata/generateName").is_empty() {
            return Err(refuse(
                format!("has a {} without metadata.name", text("/kind")),
                "set its name, or remove the file",
            ));
        }
    }
    Ok(objects)
}

/// Rejects MachineConfigs that the machine config operator of a release would reject; returns warnings. `pools` are
/// those besides the roles'.
///
/// Source: openshift/machine-config-operator: `pkg/controller/common/helpers.go`, `ValidateMachineConfig`, and
/// `pkg/controller/render/render_controller.go`.
pub fn check_machine_configs(
    manifests: &[(&Path, &[u8])],
    release: (u32, u32),
    pools: impl Iterator<Item = String>,
) -> Result<Vec<String>, OperationError> {
    let mut roles: BTreeSet<String> = ["master", "worker", "arbiter"]
        .map(str::to_owned)
        .into_iter()
        .chain(pools)
        .collect();
    let mut configs = Vec::new();
    for (path, content) in manifests {
        for object in objects(path, content)? {
            match object["kind"].as_str() {
                Some("MachineConfig") => configs.push((*path, object)),
                Some("MachineConfigPool") => add_texts(&object["spec"]["machineConfigSelector"], &mut roles),
                _ => {}
            }
        }
    }
    let mut warnings = Vec::new();
    for (path, object) in configs {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let origin = format!("MachineConfig {name} ({})", path.display());
        let role = object["metadata"]["labels"][ROLE].as_str().unwrap_or_default();
        match role {
            "" => warnings.push(format!("{origin} has no label {ROLE}, so no node applies it")),
            role if !roles.contains(role) => warnings.push(format!(
                "{origin} is for role {role}, which no MachineConfigPool has, so no node applies it"
            )),
            _ => {}
        }
        let spec = &object["spec"];
        let is_set = |field: &&str| !spec[*field].is_null();
        if !EFFECTS.iter().any(is_set) {
            warnings.push(format!(
                "{origin} has no effect: its spec has no config and no other known field"
            ));
        }
        if is_set(&"config") {
            let found = ignition(&spec["config"], release).map_err(|why| {
                OperationError::new(ErrorKind::Settings, format!("{origin}: {why}"))
                    .hint("correct it: the machine config operator rejects it, and the cluster would not be installed")
            })?;
            warnings.extend(found.into_iter().map(|what| format!("{origin}: {what}")));
        }
    }
    Ok(warnings)
}

/// The warnings about a MachineConfig's Ignition config; the error is the reason why the operator rejects it.
fn ignition(config: &Value, release: (u32, u32)) -> Result<Vec<String>, String> {
    if !config.is_object() {
        return Err("spec.config is not a mapping".to_owned());
    }
    let version = document::known_version(config).map_err(|why| format!("spec.config.ignition.version: {why}"))?;
    let newest = Version::newest_of_release(release);
    if version > newest {
        let (major, minor) = release;
        return Err(format!(
            "it is Ignition {version}, and OpenShift {major}.{minor} reads at most {newest}"
        ));
    }
    let mut warnings = Vec::new();
    if version.major == Major::Two && newest.major == Major::Three {
        warnings.push(format!(
            "it is Ignition {version}, which the operator translates to Ignition 3"
        ));
    }
    for finding in check(config) {
        let text = format!("{}: {}", finding.path.replacen('$', "spec.config", 1), finding.text);
        match finding.severity {
            Severity::Error => return Err(text),
            Severity::Warning => warnings.push(text),
        }
    }
    let files = config.pointer("/storage/files").and_then(Value::as_array);
    for file in files.into_iter().flatten() {
        let path = file["path"].as_str().unwrap_or_default();
        let Some(mode) = file["mode"].as_i64() else { continue };
        let text = format!(
            "file {path} has mode {mode}, which is octal {mode:04o}; if {mode} is meant in octal, write 0{mode}"
        );
        match mode {
            _ if mode > 0o777 && release >= PLAIN_MODES => return Err(text),
            400 | 500 => warnings.push(text),
            _ => {}
        }
    }
    Ok(warnings)
}

/// Adds all texts in a value.
fn add_texts(value: &Value, texts: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => drop(texts.insert(text.clone())),
        Value::Array(values) => values.iter().for_each(|value| add_texts(value, texts)),
        Value::Object(values) => values.values().for_each(|value| add_texts(value, texts)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine_config(version: &str, mode: &str) -> String {
        format!(
            "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata:\n  name: 99-a\n  labels:\n    \
             {ROLE}: worker\nspec:\n  config:\n    ignition:\n      version: {version}\n    storage:\n      files:\n      \
             - path: /etc/a\n        mode: {mode}\n        overwrite: true\n        contents:\n          source: data:,a\n"
        )
    }

    fn checked(text: &str, release: (u32, u32)) -> Result<Vec<String>, String> {
        let pools = ["gpu".to_owned()].into_iter();
        let checked = check_machine_configs(&[(Path::new("m/a.yaml"), text.as_bytes())], release, pools);
        checked.map_err(|error| error.to_string())
    }

    #[test]
    fn a_manifest_is_an_object_of_kubernetes() {
        for (text, expected) in [
            ("", "is empty"),
            ("# later\n---\n", "is empty"),
            ("kind: {{ kind }}\n", "is not YAML or JSON"),
            ("- a\n", "is not an object of Kubernetes"),
            (
                "kind: ConfigMap\nmetadata: {name: a}\n",
                "is not an object of Kubernetes",
            ),
            (
                "variant: openshift\nversion: 4.19.0\nmetadata: {name: a}\n",
                "is a Butane config",
            ),
            ("{\"ignition\": {\"version\": \"3.2.0\"}}", "is an Ignition config"),
            ("apiVersion: v1\nkind: List\nitems: []\n", "is a List"),
            (
                "apiVersion: v1\nkind: ConfigMap\n",
                "has a ConfigMap without metadata.name",
            ),
            (
                "apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\nb: 1\n",
                "is not an object of Kubernetes",
            ),
        ] {
            let error = objects(Path::new("m/a.yaml"), text.as_bytes()).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("manifest m/a.yaml {expected}")),
                "{text:?}: {error}"
            );
        }
        let utf16: Vec<u8> = "kind: A"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .chain([0xff])
            .collect();
        objects(Path::new("a"), &utf16).unwrap_err();
        let good = "---\n# a\n---\napiVersion: v1\nkind: A\nmetadata: {generateName: a-}\n---\n";
        assert_eq!(objects(Path::new("a"), good.as_bytes()).unwrap().len(), 1);
    }

    #[test]
    fn a_machine_config_is_one_that_the_operator_of_the_release_reads() {
        let good = machine_config("3.2.0", "0644");
        let without_config = format!("{}spec: {{}}\n", good.split("spec:").next().unwrap_or_default());
        for (text, release, expected) in [
            (good.clone(), (4, 19), Ok("")),
            (machine_config("3.2.0", "420"), (4, 19), Ok("")),
            (machine_config("3.5.0", "420"), (4, 19), Ok("")),
            (
                machine_config("2.2.0", "420")
                    .replace("        overwrite", "        filesystem: root\n        overwrite"),
                (4, 19),
                Ok("which the operator translates"),
            ),
            (
                good.replace(&format!("{ROLE}: worker"), "a: b"),
                (4, 19),
                Ok("has no label"),
            ),
            (
                good.replace(": worker", ": workers"),
                (4, 19),
                Ok("is for role workers"),
            ),
            (good.replace(": worker", ": gpu"), (4, 19), Ok("")),
            (without_config, (4, 19), Ok("has no effect")),
            (machine_config("3.2.0", "400"), (4, 19), Ok("write 0400")),
            (machine_config("3.4.0", "420"), (4, 12), Err("reads at most 3.2.0")),
            (machine_config("3.6.0", "420"), (4, 19), Err("reads at most 3.5.0")),
            (
                machine_config("3.6.0-experimental", "420"),
                (4, 19),
                Err("experimental"),
            ),
            (machine_config("\"3.2\"", "420"), (4, 19), Err("write `3.2.0`")),
            (
                machine_config("3.2.0", "\"0644\""),
                (4, 19),
                Err("spec.config.storage.files.0.mode"),
            ),
            (machine_config("3.2.0", "644"), (4, 19), Err("write 0644")),
            (machine_config("3.2.0", "644"), (4, 10), Ok("for octal 0644")),
            (
                good.replace("/etc/a", "etc/a"),
                (4, 19),
                Err("spec.config.storage.files.0.path"),
            ),
        ] {
            let found = checked(&text, release);
            let is_expected = match (&found, expected) {
                (Ok(warnings), Ok("")) => warnings.is_empty(),
                (Ok(warnings), Ok(words)) => warnings.iter().any(|warning| warning.contains(words)),
                (Err(error), Err(words)) => error.contains(words),
                _ => false,
            };
            assert!(is_expected, "{text}: {found:?}, not {expected:?}");
        }
    }

    #[test]
    fn a_pool_of_the_user_has_machine_configs() {
        let pool = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata: {name: infra}\n\
                    spec:\n  machineConfigSelector:\n    matchExpressions:\n    - {key: role, operator: In, values: [worker, \
                    infra]}\n---\n";
        let both = format!(
            "{pool}{}",
            machine_config("3.2.0", "420").replace(": worker", ": infra")
        );
        assert_eq!(checked(&both, (4, 19)), Ok(vec![]));
    }
}
