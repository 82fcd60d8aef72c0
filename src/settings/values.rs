//! Puts the layers over one another and reads values out by their kind, remembering where each came from.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnetwork::Ipv4Network;

use super::envfile;
use super::problem::{Place, Problems, SettingsError};
use super::variables::{self, Kind, Status, VARIABLES, Variable};
use super::{ResolvedValue, Sources, parse, profile};
use crate::cluster::FragmentSource;

/// Prefix of settings in the environment.
pub(crate) const ENVIRONMENT: &str = "OCPDEPLOY_";

/// What a rehearsal puts in place of large sizes and of an env file, above profiles and below all that the user says.
const REHEARSAL: [(&str, &str); 11] = [
    ("cluster", "rehearsal"),
    ("domain", "example.com"),
    ("master_memory", "256"),
    ("worker_memory", "256"),
    ("bootstrap_memory", "256"),
    ("helper_memory", "192"),
    ("numcpus", "1"),
    ("bootstrap_numcpus", "1"),
    ("helper_numcpus", "1"),
    ("disk_size", "1"),
    ("helper_disk_size", "1"),
];

/// Which layer a value is from; later ones win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Layer {
    Default,
    Profile,
    Rehearsal,
    EnvFile,
    Environment,
    Flag,
    /// What a rehearsal or a backend does not leave to the user.
    Forced,
}

/// A value before it is read by its kind.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub text: String,
    pub layer: Layer,
    pub place: Place,
    /// Where a relative path begins.
    pub folder: PathBuf,
    /// The name as it was written, an alias perhaps.
    pub written: String,
}

impl Value {
    /// Said by the user for this cluster, not by a default.
    pub fn is_given(&self) -> bool {
        matches!(self.layer, Layer::EnvFile | Layer::Environment | Layer::Flag)
    }

    pub fn path(&self) -> PathBuf {
        self.folder.join(&self.text)
    }
}

/// All values, with the names of those that were read.
pub(super) struct Values<'a> {
    pub sources: &'a Sources<'a>,
    pub warnings: Vec<String>,
    /// Folders of Ignition configs in profiles of the user's own, base first.
    pub profile_fragments: Vec<FragmentSource>,
    problems: Problems<'a>,
    values: BTreeMap<&'static str, Value>,
    read: BTreeSet<&'static str>,
}

impl<'a> Values<'a> {
    /// Reads the layers. Fails at once only when the env file cannot be understood.
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
        // Lower layers first, so that both of two equals in one layer are seen before a higher one hides them.
        let mut given = Vec::new();
        if let Some((path, text)) = env_file {
            let folder = sources.current_dir.join(path.parent().unwrap_or(Path::new("")));
            match envfile::parse(text, &|name| sources.variable(name)) {
                // A leading underscore marks what is for use in the file only.
                Ok(assignments) => {
                    given.extend(assignments.into_iter().filter(|a| !a.name.starts_with('_')).map(|a| {
                        // The caret goes to the value where there is one.
                        let span = if a.value_span.is_empty() {
                            a.name_span
                        } else {
                            a.value_span
                        };
                        (a.name, a.value, Layer::EnvFile, Place::EnvFile(span), folder.clone())
                    }))
                }
                Err(error) => {
                    values.problems.add(
                        error.message,
                        &[Place::EnvFile(error.span)],
                        Some(error.help.to_owned()),
                    );
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

    /// Whether `OCPDEPLOY_<X>` is meant as a setting; the prefix is shared with what steers the program itself.
    fn is_setting_in_environment(&mut self, name: &str, setting: &str) -> bool {
        if variables::find(setting).is_some() {
            return true;
        }
        if setting != "home"
            && let Some(near) = variables::nearest(setting)
        {
            let near = near.to_ascii_uppercase();
            self.warnings.push(format!(
                "`{name}` in the environment is not a setting; there is `{ENVIRONMENT}{near}`"
            ));
        }
        false
    }

    fn take_given(&mut self, name: String, text: String, layer: Layer, place: Place, folder: PathBuf) {
        let Some(variable) = variables::find(&name) else {
            let help = match (variables::nearest(&name), layer) {
                (Some(near), _) => Some(format!("there is `{near}`")),
                (None, Layer::EnvFile) => Some(format!("write `_{name}` for a variable that only this file uses")),
                _ => None,
            };
            let message = format!("`{name}` is not a variable of ocpdeploy");
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
                    format!("`{}` and `{}` are the same variable", other.written, value.written)
                };
                let places = [
                    self.name_place(&value.written, &value.place),
                    self.name_place(&other.written, &other.place),
                ];
                self.problems.add(message, &places, Some("keep one of them".to_owned()));
            }
            // An empty value is no value, as in the POC's `${x:-default}`.
            Some(_) if value.text.is_empty() => {}
            _ => {
                self.values.insert(variable.name, value);
            }
        }
    }

    /// The place of a name rather than of its value.
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

    fn set(&mut self, name: &'static str, layer: Layer, place: &str, text: String, folder: PathBuf) {
        let place = Place::Named(place.to_owned());
        let written = name.to_owned();
        self.values.insert(
            name,
            Value {
                text,
                layer,
                place,
                folder,
                written,
            },
        );
    }

    /// Puts a value above all layers; `place` says why.
    pub fn replace(&mut self, name: &'static str, place: &str, text: String) {
        self.read.insert(name);
        self.set(name, Layer::Forced, place, text, PathBuf::new());
    }

    /// The default as it would be read from an env file.
    fn default_of(&mut self, variable: &Variable) -> Option<Value> {
        let line = format!("{}={}", variable.name, variable.default);
        let place = Place::Named("default".to_owned());
        let images_dir = variable
            .default
            .contains("$images_dir")
            .then(|| self.path("images_dir"))
            .flatten();
        let lookup = |name: &str| match name {
            "images_dir" => images_dir.as_ref().map(|path| path.display().to_string()),
            "XDG_CACHE_HOME" => Some(self.sources.cache_folder().display().to_string()),
            // A cache has a place without it, too.
            "HOME" if variable.name == "cache" => self.sources.variable(name).or(Some(String::new())),
            _ => self.sources.variable(name),
        };
        let text = match envfile::parse(&line, &lookup) {
            Ok(assignments) => assignments.into_iter().next()?.value,
            Err(error) => {
                let message = format!("the default of `{}`: {}", variable.name, error.message);
                self.problems
                    .add(message, &[place], Some(format!("set `{}`", variable.name)));
                return None;
            }
        };
        let folder = self.sources.folder();
        (!text.is_empty()).then(|| Value {
            text,
            layer: Layer::Default,
            place,
            folder,
            written: variable.name.to_owned(),
        })
    }

    /// The value of a variable, from whichever layer has one; remembered as read.
    pub fn value(&mut self, name: &'static str) -> Option<Value> {
        debug_assert!(
            variables::find(name).is_some_and(|v| v.name == name && v.status == Status::Used),
            "{name}"
        );
        self.read.insert(name);
        if self.values.get(name).is_none_or(|value| value.text.is_empty())
            && let Some(variable) = variables::find(name)
        {
            match self.default_of(variable) {
                Some(value) => self.values.insert(name, value),
                None => self.values.remove(name),
            };
        }
        let value = self.values.get(name).cloned()?;
        let is_control = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
        if value.text.contains(is_control) {
            self.problem(&[name], format!("`{name}` contains a control character"), "");
            return None;
        }
        Some(value)
    }

    /// A value read by a function that says what is wrong in words.
    pub fn read<T, E: Display>(&mut self, name: &'static str, parse: impl Fn(&str) -> Result<T, E>) -> Option<T> {
        let value = self.value(name)?;
        match parse(&value.text) {
            Ok(parsed) => Some(parsed),
            Err(reason) => {
                self.problem(&[name], format!("`{name}`: {reason}"), "");
                None
            }
        }
    }

    /// Several values read one by one; empty when not given, `None` when one is wrong.
    pub fn list<T, E: Display>(&mut self, name: &'static str, parse: impl Fn(&str) -> Result<T, E>) -> Option<Vec<T>> {
        if self.value(name).is_none() {
            return Some(Vec::new());
        }
        self.read(name, |text| {
            parse::list(text).map(&parse).collect::<Result<Vec<T>, E>>()
        })
    }

    pub fn text(&mut self, name: &'static str) -> Option<String> {
        self.value(name).map(|value| value.text)
    }

    pub fn switch(&mut self, name: &'static str) -> Option<bool> {
        self.read(name, |text| match text.to_ascii_lowercase().as_str() {
            "true" | "yes" => Ok(true),
            "false" | "no" => Ok(false),
            _ => Err(format!("`{text}` is neither true nor false")),
        })
    }

    pub fn number(&mut self, name: &'static str) -> Option<u64> {
        self.read(name, |text| parse::number(text, kind_of(name)))
    }

    pub fn numbers(&mut self, name: &'static str) -> Option<Vec<u64>> {
        let kind = match kind_of(name) {
            Kind::List(kind) => *kind,
            kind => kind,
        };
        self.list(name, |text| parse::number(text, kind))
    }

    pub fn ip(&mut self, name: &'static str) -> Option<Ipv4Addr> {
        self.read(name, parse::ip)
    }

    pub fn ips(&mut self, name: &'static str) -> Option<Vec<Ipv4Addr>> {
        self.list(name, parse::ip)
    }

    pub fn network(&mut self, name: &'static str) -> Option<Ipv4Network> {
        self.read(name, parse::network)
    }

    pub fn duration(&mut self, name: &'static str) -> Option<Duration> {
        self.read(name, parse::duration)
    }

    /// One of the words of its kind.
    pub fn choice<T: Copy>(&mut self, name: &'static str, words: &[(&str, T)]) -> Option<T> {
        self.read(name, |text| {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            words
                .iter()
                .find(|(word, _)| *word == text)
                .map(|(_, value)| *value)
                .ok_or_else(|| format!("`{text}` is none of {}", known.join(", ")))
        })
    }

    /// A path, made absolute by the folder that it was written in.
    pub fn path(&mut self, name: &'static str) -> Option<PathBuf> {
        let path = self.value(name)?.path();
        if let Some(value) = self.values.get_mut(name) {
            value.text = path.display().to_string();
            value.folder = PathBuf::new();
        }
        Some(path)
    }

    /// Adds a problem at the places of these variables; an empty hint is none.
    pub fn problem(&mut self, names: &[&'static str], message: impl Into<String>, help: &str) {
        let of = |name: &&'static str| self.values.get(*name);
        // Defaults are not where a person would look, unless there is nothing else.
        let mut places: Vec<Place> = Vec::new();
        for value in names.iter().filter_map(of).filter(|value| value.layer > Layer::Default) {
            if !places.contains(&value.place) {
                places.push(value.place.clone());
            }
        }
        if let (true, Some(name)) = (places.is_empty(), names.first()) {
            places.push(Place::Named(format!("default of {name}")));
        }
        self.problems
            .add(message, &places, (!help.is_empty()).then(|| help.to_owned()));
    }

    /// Adds a problem about a variable that must be set and is not.
    pub fn missing(&mut self, name: &'static str, help: &str) {
        let place = match &self.sources.env_file {
            Some((path, _)) => path.display().to_string(),
            None => "no env file".to_owned(),
        };
        self.problems.add(
            format!("`{name}` is not set"),
            &[Place::Named(place)],
            Some(help.to_owned()),
        );
    }

    /// Adds a warning about a variable, with its place.
    pub fn warn(&mut self, name: &'static str, message: &str) {
        let place = self
            .values
            .get(name)
            .map_or("default".to_owned(), |value| self.problems.in_words(&value.place));
        self.warnings.push(format!("{place}: {message}"));
    }

    #[cfg(test)]
    pub fn names_read(&self) -> BTreeSet<&'static str> {
        self.read.clone()
    }

    /// Warns of what the user set to no effect.
    fn warn_of_idle(&mut self) {
        let idle: Vec<(&'static Variable, Value)> = VARIABLES
            .iter()
            .filter(|variable| !self.read.contains(variable.name))
            .filter_map(|variable| Some((variable, self.values.get(variable.name)?.clone())))
            .filter(|(_, value)| value.is_given())
            .collect();
        for (variable, value) in idle {
            let message = match variable.status {
                Status::NoEffect(reason) => format!("`{}` has no effect: {reason}", value.written),
                Status::Used => format!("`{}` has no effect with these settings", value.written),
            };
            self.warn(variable.name, &message);
        }
    }

    /// Every used variable and those set to no effect, with value and origin; secrets hidden.
    pub fn finish(mut self) -> Result<Finished, SettingsError> {
        if !self.problems.is_empty() {
            return Err(self.problems.into_error());
        }
        self.warn_of_idle();
        let mut resolved = Vec::new();
        for variable in VARIABLES {
            let value = match self.values.get(variable.name) {
                Some(value) if !value.text.is_empty() => value.clone(),
                _ if variable.status != Status::Used => continue,
                _ => match self.default_of(variable) {
                    Some(value) => value,
                    None => Value {
                        text: String::new(),
                        layer: Layer::Default,
                        place: Place::Named("default".to_owned()),
                        folder: PathBuf::new(),
                        written: variable.name.to_owned(),
                    },
                },
            };
            let hide = variable.secret && !is_path_of_secret(variable.name, &value);
            resolved.push(ResolvedValue {
                name: variable.name.to_owned(),
                value: if hide {
                    "***".to_owned()
                } else {
                    without_password(value.text)
                },
                origin: self.problems.in_words(&value.place),
            });
        }
        Ok(Finished {
            values: resolved,
            warnings: self.warnings,
        })
    }
}

/// A URL without user and password in it; all else as it is.
fn without_password(text: String) -> String {
    let masked = text.split_once("://").and_then(|(scheme, rest)| {
        let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (_, host) = host.rsplit_once('@')?;
        Some(format!("{scheme}://***@{host}{path}"))
    });
    masked.unwrap_or(text)
}

/// What remains to be told about the values after all is well.
pub(super) struct Finished {
    pub values: Vec<ResolvedValue>,
    pub warnings: Vec<String>,
}

/// Whether a secret's value is only the name of its file.
pub(super) fn is_path_of_secret(name: &str, value: &Value) -> bool {
    // A pull secret is JSON, so that what is none can only be the name of its file.
    value.written.ends_with("_file") || (name == "pull_secret" && !value.text.contains(['{', '"']))
}

fn kind_of(name: &str) -> Kind {
    variables::find(name).map_or(Kind::Text, |variable| variable.kind)
}

/// Why a file could not be read, in our words where the reason is a plain one.
pub(super) fn io_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
        io::ErrorKind::InvalidData => "it is not text".to_owned(),
        _ => error.to_string(),
    }
}
