//! Reads values by their kind, and records their origins and which of them were read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use ipnetwork::IpNetwork;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::problem::{Place, Problem, Problems, SettingsError};
use super::sources::Sources;
use super::variables::{self, Kind, VARIABLES, Variable};
use super::{choices, envfile, parse};
use crate::cluster::FragmentSource;

/// One setting's value and its origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResolvedValue {
    pub name: String,
    /// Empty if there is none; `***` for a secret.
    pub value: String,
    /// Such as `env.sh:12`, `flag --workers`, `environment OCPDEPLOY_WORKERS`, `profile standard`, `default`.
    pub origin: String,
}

/// The layer of a value; later layers take precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Layer {
    Default,
    Profile,
    Rehearsal,
    EnvFile,
    Environment,
    Flag,
    /// A value that a rehearsal or a backend requires.
    Forced,
}

/// A value before it is parsed.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub text: String,
    pub layer: Layer,
    pub place: Place,
    /// The directory of a relative path.
    pub folder: PathBuf,
    /// The name as written, possibly an alias.
    pub written: String,
}

impl Value {
    /// Whether the user set it for this cluster; otherwise it is a default.
    pub fn is_given(&self) -> bool {
        matches!(self.layer, Layer::EnvFile | Layer::Environment | Layer::Flag)
    }

    pub fn path(&self) -> PathBuf {
        self.folder.join(&self.text)
    }
}

/// Creates a struct, or ends the function if a field is missing, but only after all fields were read: so all problems
/// are reported. A field is read by the expression after its name; without one, it is a variable of this name.
macro_rules! read_all {
    ($name:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {{
        $($(let $field = $value;)?)*
        $name { $($field: $field?),* }
    }};
}
pub(super) use read_all;

/// All values, with the names of those that were read.
pub(super) struct Values<'a> {
    pub sources: &'a Sources<'a>,
    pub warnings: Vec<String>,
    /// Directories of Ignition configs in the user's own profiles, base first.
    pub profile_fragments: Vec<FragmentSource>,
    pub problems: Problems<'a>,
    pub values: BTreeMap<&'static str, Value>,
    pub read: BTreeSet<&'static str>,
}

impl<'a> Values<'a> {
    pub fn set(&mut self, name: &'static str, layer: Layer, place: &str, text: String, folder: PathBuf) {
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

    /// Overrides all layers; `place` is the reason.
    pub fn replace(&mut self, name: &'static str, place: &str, text: String) {
        self.read.insert(name);
        self.set(name, Layer::Forced, place, text, PathBuf::new());
    }

    /// The default, parsed as in an env file.
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
            // Downloads have a directory even without HOME.
            "HOME" if variable.name == "downloads_dir" => self.sources.variable(name).or(Some(String::new())),
            _ => self.sources.variable(name),
        };
        let text = match envfile::parse(&line, &lookup) {
            Ok(assignments) => assignments.into_iter().next()?.value,
            Err(errors) => {
                for error in errors {
                    let message = format!("the default of `{}`: {}", variable.name, error.message);
                    let help = format!("set `{}`", variable.name);
                    self.problems.add(message, std::slice::from_ref(&place), Some(help));
                }
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

    /// The value of a setting from the highest layer that has one; marks the setting as read.
    pub fn value(&mut self, name: &'static str) -> Option<Value> {
        debug_assert!(variables::find(name).is_some_and(|v| v.name == name), "{name}");
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

    /// A value, parsed by a function whose error becomes a problem.
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

    /// The values of a list; empty if it is not set, `None` if one is invalid.
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

    pub fn texts(&mut self, name: &'static str) -> Option<Vec<String>> {
        self.list(name, |text| Ok::<_, String>(text.to_owned()))
    }

    pub fn switch(&mut self, name: &'static str) -> Option<bool> {
        self.read(name, |text| match text.to_ascii_lowercase().as_str() {
            "true" | "yes" => Ok(true),
            "false" | "no" => Ok(false),
            _ => Err(format!("`{text}` is not true or false")),
        })
    }

    pub fn number(&mut self, name: &'static str) -> Option<u64> {
        self.read(name, |text| parse::number(text, kind_of(name)))
    }

    pub fn numbers(&mut self, name: &'static str) -> Option<Vec<u64>> {
        self.list(name, |text| parse::number(text, kind_of(name)))
    }

    /// The unit of a number, with a space before it; empty without one.
    pub fn unit(&self, name: &'static str) -> &'static str {
        kind_of(name).unit()
    }

    pub fn ip(&mut self, name: &'static str) -> Option<IpAddr> {
        self.read(name, parse::ip)
    }

    pub fn ips(&mut self, name: &'static str) -> Option<Vec<IpAddr>> {
        self.list(name, parse::ip)
    }

    pub fn ip4(&mut self, name: &'static str) -> Option<Ipv4Addr> {
        self.read(name, parse::ip4)
    }

    /// The first item of a setting that may have one for each address family.
    pub fn first_ip(&mut self, name: &'static str) -> Option<IpAddr> {
        self.read(name, |text| parse::addresses(text).map(|(first, _)| first))
    }

    /// As `first_ip`, for a network.
    pub fn first_network(&mut self, name: &'static str) -> Option<IpNetwork> {
        self.read(name, |text| parse::networks(text).map(|(first, _)| first))
    }

    pub fn duration(&mut self, name: &'static str) -> Option<Duration> {
        self.read(name, parse::duration)
    }

    /// One of the setting's choices, which are the variants of the enum.
    pub fn choice<T: DeserializeOwned>(&mut self, name: &'static str) -> Option<T> {
        self.read(name, choices::choice)
    }

    /// An optional value: `Some(None)` if it is not set, `None` if it is invalid.
    pub fn optional<T, E: Display>(
        &mut self,
        name: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<Option<T>> {
        match self.value(name) {
            None => Some(None),
            Some(_) => self.read(name, parse).map(Some),
        }
    }

    /// Whether the user set it: in the env file, in the environment or by a flag.
    pub fn is_given(&mut self, name: &'static str) -> bool {
        self.value(name).is_some_and(|value| value.is_given())
    }

    /// Sets a default that depends on other settings, unless the user set a value.
    pub fn replace_default(&mut self, name: &'static str, place: &str, text: &str) {
        if !self.is_given(name) {
            self.replace(name, place, text.to_owned());
        }
    }

    /// A path, made absolute with the directory of its source.
    pub fn path(&mut self, name: &'static str) -> Option<PathBuf> {
        let path = self.value(name)?.path();
        if let Some(value) = self.values.get_mut(name) {
            value.text = path.display().to_string();
            value.folder = PathBuf::new();
        }
        Some(path)
    }

    /// The path of a file that must exist; an empty `help` means no hint.
    pub fn file(&mut self, name: &'static str, help: &str) -> Option<PathBuf> {
        let path = self.path(name)?;
        if !(self.sources.is_file)(&path) {
            self.problem(&[name], format!("the file {} does not exist", path.display()), help);
        }
        Some(path)
    }

    /// Adds a problem at the places of these settings; an empty `help` means no hint.
    pub fn problem(&mut self, names: &[&'static str], message: impl Into<String>, help: &str) {
        let of = |name: &&'static str| self.values.get(*name);
        // The place of a default is listed only if there is no other place.
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

    /// As `problem`, for credentials in whose place the configuration has a placeholder.
    pub fn placeholder(&mut self, name: &'static str, message: String, help: &str) {
        self.problem(&[name], message, help);
        self.problems.replaced();
    }

    /// Adds a problem about a required setting that is not set.
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

    /// Adds a warning about a setting, with its place.
    pub fn warn(&mut self, name: &'static str, message: &str) {
        let place = self
            .values
            .get(name)
            .map_or("default".to_owned(), |value| self.problems.in_words(&value.place));
        self.warnings.push(format!("{place}: {message}"));
    }

    /// Whether the value is a secret that was only set for the deployment: secrets are not stored. Then adds a problem.
    pub fn is_lost(&mut self, name: &'static str) -> bool {
        let is_lost = self.value(name).is_some_and(|value| is_left_out(&value.text));
        if is_lost && let Some(variable) = variables::find(name) {
            self.missing(name, &variables::how_to_set(variable));
        }
        is_lost
    }

    #[cfg(test)]
    pub fn names_read(&self) -> BTreeSet<&'static str> {
        self.read.clone()
    }

    /// Warns about settings that the user set without effect.
    fn warn_of_idle(&mut self) {
        let idle: Vec<(&'static Variable, Value)> = VARIABLES
            .iter()
            .filter(|variable| !self.read.contains(variable.name))
            .filter_map(|variable| Some((variable, self.values.get(variable.name)?.clone())))
            .filter(|(_, value)| value.is_given())
            .collect();
        for (variable, value) in idle {
            let message = format!("`{}` has no effect with the other settings", value.written);
            self.warn(variable.name, &message);
        }
    }

    /// As `settled`, if there is no problem.
    pub fn finish(self) -> Result<Finished, SettingsError> {
        let finished = self.settled();
        match finished.problems.is_empty() {
            true => Ok(finished),
            false => Err(SettingsError {
                problems: finished.problems,
            }),
        }
    }

    /// Every setting with its value and origin, without secrets, and the problems.
    pub fn settled(mut self) -> Finished {
        self.warn_of_idle();
        let mut resolved = Vec::new();
        for variable in VARIABLES {
            let value = match self.values.get(variable.name) {
                Some(value) if !value.text.is_empty() => value.clone(),
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
            let hide = variable.is_secret() && !is_path_of_secret(variable.name, &value.written, &value.text);
            resolved.push(ResolvedValue {
                name: variable.name.to_owned(),
                value: match without_password(value.text) {
                    text if hide || is_secret(&value.written, &text) => LEFT_OUT.to_owned(),
                    text => text,
                },
                origin: self.problems.in_words(&value.place),
            });
        }
        Finished {
            values: resolved,
            warnings: self.warnings,
            problems: self.problems.into_found(),
        }
    }
}

/// A URL without user and password; any other text is unchanged.
fn without_password(text: String) -> String {
    match user_of(&text) {
        Some((scheme, _, rest)) => format!("{scheme}://{LEFT_OUT}@{rest}"),
        None => text,
    }
}

/// The scheme of a URL, its user with the password, and the rest; `None` without a user.
fn user_of(url: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.find(['/', '?', '#']).map_or(rest, |end| &rest[..end]);
    let (user, _) = host.rsplit_once('@')?;
    Some((scheme, user, &rest[user.len() + 1..]))
}

/// All values.
pub(super) struct Finished {
    pub values: Vec<ResolvedValue>,
    pub warnings: Vec<String>,
    pub problems: Vec<Problem>,
}

/// Whether the value of a secret, written with this name, is the name of its file.
pub(super) fn is_path_of_secret(name: &str, written: &str, text: &str) -> bool {
    // A pull secret is JSON; any other text is the name of its file.
    written.ends_with("_file") || (name == "pull_secret" && !text.contains(['{', '"']))
}

/// Whether a setting's value, written with this name, is a secret or a URL with a password.
pub(super) fn is_secret(written: &str, text: &str) -> bool {
    let variable = variables::find(written).filter(|variable| variable.is_secret());
    let is_file = |variable: &Variable| is_path_of_secret(variable.name, written, text);
    let is_with_password = |url: &str| user_of(url).is_some_and(|(_, user, _)| user.contains(':'));
    let has_password = is_with_password(text) || parse::list(text).any(is_with_password);
    !text.is_empty() && (variable.is_some_and(|variable| !is_file(variable)) || has_password)
}

/// What is stored and shown in place of a secret.
const LEFT_OUT: &str = "***";

/// The value of a setting, written with this name, as it may be stored: without secrets.
pub fn storable<'a>(written: &str, text: &'a str) -> &'a str {
    match is_secret(written, text) {
        true => LEFT_OUT,
        false => text,
    }
}

/// Whether this is stored or shown in place of a secret.
pub fn is_left_out(stored: &str) -> bool {
    stored == LEFT_OUT
}

pub(super) fn kind_of(name: &str) -> Kind {
    variables::find(name).map_or(Kind::Text, |variable| variable.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_stored() {
        for (name, text, is_secret) in [
            ("ovirt_password", "word", true),
            ("ovirt_password", "", false),
            ("ovirt_password_file", "~/word", false),
            ("pull_secret", r#"{"auths":{}}"#, true),
            ("pullsecret", r#"{"auths":{}}"#, true),
            ("pull_secret", "pull.json", false),
            ("pullsecret_file", "pull.json", false),
            ("http_proxy", "http://me:word@proxy.example.com:3128", true),
            ("https_proxy", "http://:word@[fd00::1]:3128/", true),
            ("http_proxy", "http://proxy.example.com:3128", false),
            ("installer_mirror", "https://mirror.example.com:8443/a:b@c", false),
            ("image", "docker://registry.example.com:5000/rhcos@sha256:ab", false),
            ("libvirt_uri", "qemu+ssh://root@host:22/system", false),
            (
                "manifests_url",
                "https://a.example.com/x https://me:word@b.example.com/y",
                true,
            ),
            ("workers", "3", false),
        ] {
            let stored = storable(name, text);
            assert_eq!(is_left_out(stored), is_secret, "{name}={text}");
            assert_eq!(stored == text, !is_secret, "{name}={text}");
        }
    }
}
