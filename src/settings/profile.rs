//! Profiles: named defaults in YAML, included in the program or in a directory of the user.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, de};
use serde_saphyr::Spanned;

use super::problem::{Place, Problems};
use super::sources::{Sources, io_reason};
use super::variables;
use crate::cluster::FragmentSource;

/// The profiles included in the program.
pub const SHIPPED: [(&str, &str); 6] = [
    ("base", include_str!("../../profiles/base/profile.yaml")),
    ("bridge", include_str!("../../profiles/bridge/profile.yaml")),
    ("compact", include_str!("../../profiles/compact/profile.yaml")),
    ("laptop", include_str!("../../profiles/laptop/profile.yaml")),
    ("rook", include_str!("../../profiles/rook/profile.yaml")),
    ("standard", include_str!("../../profiles/standard/profile.yaml")),
];

/// The description of an included profile: the first line of its file.
pub fn about(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("about: ").unwrap_or(line)
}

/// The content of a `profile.yaml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    #[serde(rename = "about")]
    _about: String,
    /// The profile that this one extends.
    extends: Option<String>,
    #[serde(default)]
    variables: BTreeMap<String, Spanned<Scalar>>,
}

/// A value as text; items of a list are joined by commas.
struct Scalar(String);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Scalar;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string, an integer, true, false, or a list of these")
            }

            fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar(text.to_owned()))
            }

            fn visit_bool<E>(self, on: bool) -> Result<Scalar, E> {
                Ok(Scalar(on.to_string()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
                Ok(Scalar(number.to_string()))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Scalar, A::Error> {
                let mut texts = Vec::new();
                while let Some(Scalar(text)) = items.next_element()? {
                    texts.push(text);
                }
                Ok(Scalar(texts.join(",")))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// One variable of a profile.
pub(super) struct ProfileValue {
    pub value: String,
    /// The profile that sets it, as displayed.
    pub origin: String,
    /// The directory of relative paths in it.
    pub folder: PathBuf,
}

/// The content of a profile and of the profiles that it extends.
pub(super) struct Loaded {
    pub values: BTreeMap<&'static str, ProfileValue>,
    /// Directories of Ignition configs, base first.
    pub fragments: Vec<FragmentSource>,
}

/// Reads a profile and those that it extends. Adds problems, and returns the valid parts.
///
/// A relative path in `name` starts at `folder`.
pub(super) fn load(
    name: &str,
    folder: &Path,
    place: &Place,
    sources: &Sources<'_>,
    problems: &mut Problems<'_>,
) -> Loaded {
    let mut values = BTreeMap::new();
    let mut fragments = Vec::new();
    let mut chain: Vec<String> = Vec::new();
    let mut next = Some((name.to_owned(), folder.to_owned(), place.clone()));
    while let Some((name, folder, place)) = next.take() {
        let Some(found) = find(&name, &folder, &place, sources, problems) else {
            break;
        };
        if chain.contains(&found.label) {
            let message = format!("profile {} extends itself", found.label);
            problems.add(
                message,
                &[place],
                Some(format!("the chain is {} -> {}", chain.join(" -> "), found.label)),
            );
            break;
        }
        chain.push(found.label.clone());
        let file: ProfileFile = match serde_saphyr::from_str(&found.text) {
            Ok(file) => file,
            Err(error) => {
                problems.add(yaml_message(&error), &[found.place(error.location())], None);
                break;
            }
        };
        if let Some(folder) = found.nodes_folder().filter(|folder| (sources.is_dir)(folder)) {
            let profile = found.label.clone();
            // The chain goes from the chosen profile to its base.
            fragments.insert(0, FragmentSource::Folder { profile, path: folder });
        }
        for (name, scalar) in file.variables {
            let place = found.place(Some(scalar.referenced));
            match checked_name(&name) {
                // The profile nearest to the chosen one takes precedence.
                Ok(known) => {
                    values.entry(known).or_insert(ProfileValue {
                        value: scalar.value.0,
                        origin: found.label.clone(),
                        folder: found.folder.clone(),
                    });
                }
                Err((message, help)) => problems.add(message, &[place], help),
            }
        }
        next = file.extends.map(|name| (name, found.folder.clone(), found.place(None)));
    }
    Loaded { values, fragments }
}

/// A profile's text and its location.
struct Found {
    label: String,
    folder: PathBuf,
    text: String,
}

impl Found {
    /// The directory of Ignition configs in the user's own profile; included profiles have none.
    fn nodes_folder(&self) -> Option<PathBuf> {
        self.label.contains('/').then(|| self.folder.join("nodes"))
    }

    fn place(&self, location: Option<serde_saphyr::Location>) -> Place {
        let file = format!("profile {}", self.label);
        Place::Named(match location {
            Some(location) if location.line() > 0 => format!("{file}:{}:{}", location.line(), location.column()),
            _ => file,
        })
    }
}

fn find(name: &str, folder: &Path, place: &Place, sources: &Sources<'_>, problems: &mut Problems<'_>) -> Option<Found> {
    if !name.contains('/') {
        if let Some((_, text)) = SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
            return Some(Found {
                label: name.to_owned(),
                folder: folder.to_owned(),
                text: (*text).to_owned(),
            });
        }
        let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
        let help = format!(
            "available profiles: {}; for a directory of your own, write ./{name}",
            names.join(", ")
        );
        problems.add(
            format!("the profile `{name}` does not exist"),
            std::slice::from_ref(place),
            Some(help),
        );
        return None;
    }
    let folder = folder.join(name);
    let path = folder.join("profile.yaml");
    match (sources.read_file)(&path) {
        Ok(text) => Some(Found {
            label: name.to_owned(),
            folder,
            text,
        }),
        Err(error) => {
            let message = format!("cannot read {}: {}", path.display(), io_reason(&error));
            problems.add(message, std::slice::from_ref(place), None);
            None
        }
    }
}

/// The first line of the parser's message, without the position, which we add ourselves.
pub(super) fn yaml_message(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or_default();
    line.rsplit_once(" at line ")
        .map_or(line, |(message, _)| message)
        .to_owned()
}

fn checked_name(name: &str) -> Result<&'static str, (String, Option<String>)> {
    let Some(variable) = variables::find(name) else {
        let help = variables::hint(name);
        return Err((format!("`{name}` is not a setting"), help));
    };
    if variable.name == "profile" {
        let help = "to build on another profile, use `extends:`".to_owned();
        return Err(("a profile cannot set `profile`".to_owned(), Some(help)));
    }
    if variable.is_secret() {
        let help = "profiles can be shared, so set it in the env file".to_owned();
        return Err((format!("`{name}` is a secret and not allowed in a profile"), Some(help)));
    }
    if variable.name != name {
        return Err((
            format!("`{name}` is not allowed in a profile; use `{}`", variable.name),
            None,
        ));
    }
    Ok(variable.name)
}
