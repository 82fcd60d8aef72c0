//! Combines the layers of settings: flags, environment, env file, profile, defaults.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::problem::{Place, Problems, SettingsError};
use super::sources::Sources;
use super::values::{Layer, Value, Values, is_secret};
use super::variables::ENVIRONMENT;
use super::{envfile, profile, variables};

/// A rehearsal's defaults: small sizes, and values that an env file would set. They override profiles; the user's
/// settings override them.
const REHEARSAL: [(&str, &str); 14] = [
    ("cluster", "rehearsal"),
    ("domain", "example.com"),
    ("master_memory", "256"),
    ("arbiter_memory", "256"),
    ("worker_memory", "256"),
    ("bootstrap_memory", "256"),
    ("harvest_memory", "192"),
    ("numcpus", "1"),
    ("arbiter_numcpus", "1"),
    ("bootstrap_numcpus", "1"),
    ("harvest_numcpus", "1"),
    ("disk_size", "1"),
    ("arbiter_disk_size", "1"),
    ("harvest_disk_size", "1"),
];

impl<'a> Values<'a> {
    /// Reads the layers. Stops only at an env file with syntax errors.
    pub fn collect(sources: &'a Sources<'a>) -> Result<Self, SettingsError> {
        let env_file = sources.env_file.as_ref();
        let mut values = Self {
            sources,
            warnings: Vec::new(),
            profile_fragments: Vec::new(),
            problems: Problems::new(env_file.map(|(path, text)| (path.display().to_string(), text.as_str()))),
            values: BTreeMap::new(),
            read: BTreeSet::new(),
        };
        // Lower layers first: a setting that is set twice in one layer is found before a higher layer overrides it.
        let mut given = Vec::new();
        if let Some((_, text)) = env_file {
            let folder = sources.folder();
            match envfile::parse(text, &|name| sources.variable(name)) {
                // A leading underscore marks a variable for use within the file.
                Ok(assignments) => {
                    given.extend(assignments.into_iter().filter(|a| !a.name.starts_with('_')).map(|a| {
                        // The caret points to the value if there is one.
                        let span = if a.value_span.is_empty() {
                            a.name_span
                        } else {
                            a.value_span
                        };
                        (a.name, a.value, Layer::EnvFile, Place::EnvFile(span), folder.clone())
                    }))
                }
                Err(errors) => {
                    for error in errors {
                        let place = Place::EnvFile(error.span);
                        values
                            .problems
                            .add(error.message, &[place], Some(error.help.to_owned()));
                    }
                    return Err(values.problems.into_error());
                }
            }
        }
        for (name, text) in &sources.environment {
            if let Some(setting) = name.strip_prefix(ENVIRONMENT) {
                let place = Place::Named(format!("environment {name}"));
                let setting = setting.to_ascii_lowercase();
                if values.is_setting_in_environment(name, &setting) {
                    given.push((
                        setting,
                        text.clone(),
                        Layer::Environment,
                        place,
                        sources.current_dir.clone(),
                    ));
                }
            }
        }
        for (name, text) in &sources.flags {
            let place = Place::Named(match variables::OWN_FLAGS.contains(&name.as_str()) {
                true => format!("flag --{}", name.replace('_', "-")),
                false => format!("flag --set {name}"),
            });
            if let Some(variable) = variables::find(name)
                && is_secret(name, text)
            {
                let message =
                    format!("`{name}` contains a secret, and other users can read the arguments of a command");
                let help = variables::how_to_set(variable);
                values.problems.add(message, std::slice::from_ref(&place), Some(help));
            }
            given.push((
                name.clone(),
                text.clone(),
                Layer::Flag,
                place,
                sources.current_dir.clone(),
            ));
        }
        for (name, text, layer, place, folder) in given {
            values.take_given(name, text, layer, place, folder);
        }
        values.take_defaults();
        Ok(values)
    }

    /// Whether `OCPDEPLOY_<X>` is a setting, or the former name of one, which is an error: the variable would have no
    /// effect. Variables that control the program itself have the same prefix.
    fn is_setting_in_environment(&mut self, name: &str, setting: &str) -> bool {
        if variables::find(setting).is_some() || variables::renamed(setting).is_some() {
            return true;
        }
        if setting != "home"
            && let Some(near) = variables::nearest(setting)
        {
            let near = near.to_ascii_uppercase();
            self.warnings.push(format!(
                "`{name}` in the environment is not a setting; did you mean `{ENVIRONMENT}{near}`?"
            ));
        }
        false
    }

    fn take_given(&mut self, name: String, text: String, layer: Layer, place: Place, folder: PathBuf) {
        let Some(variable) = variables::find(&name) else {
            let help = match (variables::hint(&name), layer) {
                (Some(hint), _) => Some(hint),
                (None, Layer::EnvFile) => Some(format!("for a variable that only this file uses, write `_{name}`")),
                _ => None,
            };
            let message = format!("`{name}` is not a setting of ocpdeploy");
            self.problems.add(message, &[self.name_place(&name, &place)], help);
            return;
        };
        let value = Value {
            text,
            layer,
            place,
            folder,
            written: name,
        };
        match self.values.get(variable.name) {
            Some(other) if other.layer == layer => {
                let message = if other.written == value.written {
                    format!("`{}` is set twice", value.written)
                } else {
                    format!("`{}` and `{}` are the same setting", other.written, value.written)
                };
                let places = [
                    self.name_place(&value.written, &value.place),
                    self.name_place(&other.written, &other.place),
                ];
                self.problems
                    .add(message, &places, Some("remove one of them".to_owned()));
            }
            // An empty value counts as not set, as in `${x:-default}` of the proof of concept.
            Some(_) if value.text.is_empty() => {}
            _ => {
                self.values.insert(variable.name, value);
            }
        }
    }

    /// The place of a setting's name, not of its value.
    fn name_place(&self, name: &str, place: &Place) -> Place {
        match (place, &self.sources.env_file) {
            (Place::EnvFile(span), Some((_, text))) => {
                let start = text[..span.end].rfind(name).unwrap_or(span.start);
                Place::EnvFile(start..start + name.len())
            }
            _ => place.clone(),
        }
    }

    fn take_defaults(&mut self) {
        if self.sources.rehearse {
            for (name, text) in REHEARSAL {
                self.take_lower(name, Layer::Rehearsal, "rehearsal", text.to_owned(), PathBuf::new());
            }
        }
        if let Some(value) = self.value("profile") {
            let problems = &mut self.problems;
            let loaded = profile::load(&value.text, &value.folder, &value.place, self.sources, problems);
            self.profile_fragments = loaded.fragments;
            for (name, found) in loaded.values {
                let place = format!("profile {}", found.origin);
                self.take_lower(name, Layer::Profile, &place, found.value, found.folder);
            }
        }
    }

    fn take_lower(&mut self, name: &'static str, layer: Layer, place: &str, text: String, folder: PathBuf) {
        let taken = self
            .values
            .get(name)
            .is_some_and(|value| value.layer > layer && !value.text.is_empty());
        if !taken && !text.is_empty() {
            self.set(name, layer, place, text, folder);
        }
    }
}
