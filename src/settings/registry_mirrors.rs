//! Registry mirrors: pairs in the settings, and files of oc-mirror.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::problem::Place;
use super::profile::yaml_message;
use super::sources::io_reason;
use super::values::Values;
use crate::cluster::RegistryMirror;
use crate::cluster::limits::repository;

/// An object of oc-mirror's output (openshift/oc-mirror: `v2/internal/pkg/clusterresources/clusterresources.go`), whose
/// fields are those of openshift/api: `config/v1` and `operator/v1alpha1`; a list of them, as `oc get` prints it; or a
/// part of an install-config, as `oc adm release mirror` prints it (openshift/oc: `pkg/cli/admin/release/mirror.go`).
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MirrorSet {
    kind: String,
    spec: Spec,
    items: Vec<MirrorSet>,
    image_digest_sources: Vec<Rule>,
    image_content_sources: Vec<Rule>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    /// Of an ImageDigestMirrorSet.
    image_digest_mirrors: Vec<Rule>,
    /// Of an ImageContentSourcePolicy, its predecessor.
    repository_digest_mirrors: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    source: String,
    #[serde(default)]
    mirrors: Vec<String>,
    mirror_source_policy: Option<String>,
}

/// The files of oc-mirror's directory with mirrors by digest, which the installer accepts as settings
/// (openshift/oc-mirror: `v2/internal/pkg/clusterresources/clusterresources.go`).
const DIGESTS: &str = "idms-oc-mirror.yaml";
/// The same file of oc-mirror v1 (openshift/oc-mirror: `pkg/cli/mirror/manifests.go`).
const DIGESTS_V1: &str = "imageContentSourcePolicy.yaml";
/// The files that become manifests: mirrors by tag, and the signatures of releases, as YAML and as JSON.
const TAGS: &str = "itms-oc-mirror.yaml";
const SIGNATURES: [&str; 2] = ["signature-configmap.yaml", "signature-configmap.json"];
/// Where these files are, relative to a directory that the user may name.
const RESOURCES: [&str; 3] = ["", "cluster-resources", "working-dir/cluster-resources"];

/// The content of `registry_mirrors`.
#[derive(Default)]
struct Mirrors {
    mirrors: Vec<RegistryMirror>,
    manifests: Vec<PathBuf>,
}

/// The mirrors of all entries, grouped by source, and files to add to the installer's manifests. An entry is
/// `SOURCE=MIRROR`, a file, or oc-mirror's directory.
pub(super) fn registry_mirrors(values: &mut Values<'_>) -> Option<(Vec<RegistryMirror>, Vec<PathBuf>)> {
    let entries = values.list("registry_mirrors", |text| -> Result<_, String> {
        let Some((source, mirror)) = text.split_once('=') else {
            return Ok((text.to_owned(), None));
        };
        for name in [source, mirror] {
            repository(name).map_err(|why| format!("`{name}` {why}; write SOURCE=MIRROR, both without https://"))?;
        }
        Ok((source.to_owned(), Some(mirror.to_owned())))
    })?;
    let folder = values.value("registry_mirrors").map(|value| value.folder);
    let mut all = Mirrors::default();
    let mut is_read = true;
    for (source, mirror) in entries {
        match mirror {
            Some(mirror) => add(&mut all.mirrors, source, mirror),
            None => {
                let path = folder
                    .as_ref()
                    .map_or(source.clone().into(), |folder| folder.join(&source));
                is_read &= match (values.sources.is_dir)(&path) {
                    true => add_folder(values, &path, &mut all),
                    false => add_file(values, &path, &mut all.mirrors),
                };
            }
        }
    }
    is_read.then_some((all.mirrors, all.manifests))
}

fn add(all: &mut Vec<RegistryMirror>, source: String, mirror: String) {
    match all.iter_mut().find(|known| known.source == source) {
        Some(known) if known.mirrors.contains(&mirror) => {}
        Some(known) => known.mirrors.push(mirror),
        None => all.push(RegistryMirror {
            source,
            mirrors: vec![mirror],
        }),
    }
}

/// Adds what oc-mirror wrote to a directory; `false` after a problem.
fn add_folder(values: &mut Values<'_>, path: &Path, all: &mut Mirrors) -> bool {
    let is_file = values.sources.is_file;
    let folders = RESOURCES.iter().map(|below| path.join(below));
    let has_mirrors = |folder: &PathBuf| {
        [DIGESTS, DIGESTS_V1, TAGS]
            .iter()
            .any(|name| is_file(&folder.join(name)))
    };
    let Some(folder) = folders.into_iter().find(has_mirrors) else {
        let message = format!("{} has no {DIGESTS}", path.display());
        let help = "name the directory working-dir/cluster-resources that oc-mirror wrote";
        values.problem(&["registry_mirrors"], message, help);
        return false;
    };
    let tags = Some(folder.join(TAGS)).filter(|path| is_file(path));
    let signatures = SIGNATURES
        .iter()
        .map(|name| folder.join(name))
        .find(|path| is_file(path));
    for manifest in tags.into_iter().chain(signatures) {
        if !all.manifests.contains(&manifest) {
            all.manifests.push(manifest);
        }
    }
    let digests = [DIGESTS, DIGESTS_V1].map(|name| folder.join(name));
    let digests = digests.iter().find(|path| is_file(path));
    digests.is_none_or(|path| add_file(values, path, &mut all.mirrors))
}

/// Adds the mirrors of a file; `false` after a problem.
fn add_file(values: &mut Values<'_>, path: &Path, all: &mut Vec<RegistryMirror>) -> bool {
    const HELP: &str = "write SOURCE=MIRROR, or name the idms-oc-mirror.yaml that oc-mirror wrote, or its directory";
    let name = path.display();
    let text = match (values.sources.read_file)(path) {
        Ok(text) => text,
        Err(error) => {
            let message = format!("cannot read the registry mirrors {name}: {}", io_reason(&error));
            values.problem(&["registry_mirrors"], message, HELP);
            return false;
        }
    };
    let sets: Vec<MirrorSet> = match serde_saphyr::from_multiple(&text) {
        Ok(sets) => sets,
        Err(error) => {
            let place = error
                .location()
                .map_or(name.to_string(), |at| format!("{name}:{}:{}", at.line(), at.column()));
            values
                .problems
                .add(yaml_message(&error), &[Place::Named(place)], Some(HELP.to_owned()));
            return false;
        }
    };
    let mut rules = Vec::new();
    let is_list = |set: &MirrorSet| set.kind.ends_with("List");
    let sets = sets.into_iter().flat_map(|set| match is_list(&set) {
        true => set.items,
        false => vec![set],
    });
    for set in sets {
        match set.kind.as_str() {
            "" if !set.image_digest_sources.is_empty() || !set.image_content_sources.is_empty() => {
                rules.extend(set.image_digest_sources);
                rules.extend(set.image_content_sources);
            }
            "ImageDigestMirrorSet" => rules.extend(set.spec.image_digest_mirrors),
            "ImageContentSourcePolicy" => rules.extend(set.spec.repository_digest_mirrors),
            // The installer has no setting for it.
            "ImageTagMirrorSet" => {
                let message = format!("{name} has mirrors of tags, which are not used before the cluster is installed");
                values.problem(
                    &["registry_mirrors"],
                    message,
                    "name its directory instead, so that this file becomes a manifest",
                );
                return false;
            }
            kind => {
                let message = match kind {
                    "" => format!("{name} has an object without a kind and without registry mirrors"),
                    kind => format!("{name} has an object of kind {kind}, which has no registry mirrors"),
                };
                values.problem(&["registry_mirrors"], message, HELP);
                return false;
            }
        }
    }
    if rules.iter().any(|rule| rule.mirror_source_policy.is_some()) {
        let message = format!("mirrorSourcePolicy of {name} is not used: nodes may contact the source as well");
        values.warn("registry_mirrors", &message);
    }
    for rule in rules {
        let mut names = std::iter::once(&rule.source).chain(&rule.mirrors);
        if let Some((wrong, why)) = names.find_map(|text| Some((text, repository(text).err()?))) {
            let message = format!("{name}: `{wrong}` {why}");
            values.problem(&["registry_mirrors"], message, HELP);
            return false;
        }
        for mirror in rule.mirrors {
            add(all, rule.source.clone(), mirror);
        }
    }
    true
}
