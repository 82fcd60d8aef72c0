//! Registry mirrors: pairs in the settings, and the files that oc-mirror writes.

use std::path::Path;

use serde::Deserialize;

use super::problem::Place;
use super::profile::yaml_message;
use super::sources::io_reason;
use super::values::Values;
use crate::cluster::RegistryMirror;

/// An object of oc-mirror's output (openshift/oc-mirror: `v2/internal/pkg/clusterresources/clusterresources.go`); its
/// fields are those of openshift/api: `config/v1` and `operator/v1alpha1`.
#[derive(Deserialize)]
struct MirrorSet {
    kind: String,
    #[serde(default)]
    spec: Spec,
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

/// The mirrors of all entries: `SOURCE=MIRROR`, or a file. Those of one source are gathered.
pub(super) fn registry_mirrors(values: &mut Values<'_>) -> Option<Vec<RegistryMirror>> {
    let entries = values.list("registry_mirrors", |text| match text.split_once('=') {
        Some((source, mirror)) if is_repository(source) && is_repository(mirror) => {
            Ok((source.to_owned(), Some(mirror.to_owned())))
        }
        None => Ok((text.to_owned(), None)),
        Some(_) => Err(format!(
            "`{text}` is neither SOURCE=MIRROR, both without https://, nor a file"
        )),
    })?;
    let folder = values.value("registry_mirrors").map(|value| value.folder);
    let mut all = Vec::new();
    let mut is_read = true;
    for (source, mirror) in entries {
        match mirror {
            Some(mirror) => add(&mut all, source, mirror),
            None => {
                let path = folder
                    .as_ref()
                    .map_or(source.clone().into(), |folder| folder.join(&source));
                is_read &= add_file(values, &path, &mut all);
            }
        }
    }
    is_read.then_some(all)
}

fn is_repository(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '/');
    !text.is_empty() && text.chars().all(is_plain) && !text.contains("//")
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

/// Adds the mirrors of a file; `false` after a problem.
fn add_file(values: &mut Values<'_>, path: &Path, all: &mut Vec<RegistryMirror>) -> bool {
    const HELP: &str = "write SOURCE=MIRROR, or name the idms-oc-mirror.yaml that oc-mirror wrote";
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
    for set in sets {
        match set.kind.as_str() {
            "ImageDigestMirrorSet" => rules.extend(set.spec.image_digest_mirrors),
            "ImageContentSourcePolicy" => rules.extend(set.spec.repository_digest_mirrors),
            // The installer has no setting for it.
            "ImageTagMirrorSet" => {
                let message = format!("{name} has mirrors of tags, which are not used before the cluster is installed");
                values.problem(&["registry_mirrors"], message, "add its folder to `manifests` instead");
                return false;
            }
            kind => {
                let message = format!("{name} has an object of kind {kind}, which has no registry mirrors");
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
        if let Some(wrong) = std::iter::once(&rule.source)
            .chain(&rule.mirrors)
            .find(|text| !is_repository(text))
        {
            let message = format!("{name}: `{wrong}` is not a repository");
            values.problem(&["registry_mirrors"], message, HELP);
            return false;
        }
        for mirror in rule.mirrors {
            add(all, rule.source.clone(), mirror);
        }
    }
    true
}
