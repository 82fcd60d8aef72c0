//! Where the settings of a cloud come from: clouds.yaml, the files that it is merged with, and `OS_*`.
//!
//! Names, order and precedence are those of openstack/openstacksdk: `openstack/config/loader.py`. Unlike there, a file
//! that was found is not used if another user can have written it, and a password is only added to a clouds.yaml in the
//! same directory: another user's clouds.yaml could otherwise send it to any `auth_url`. Invalid files are errors, and so
//! are values that YAML does not read as the text that the user sees.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{Spanned, from_str_with_options, with_deserializer_from_str_with_options};

use crate::backend::{BackendError, BackendErrorKind};
use crate::found_file;
use crate::limited_file;
use crate::printable::shell_path;

/// Credentials are missing or invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthConfigError {
    pub message: String,
    pub hint: String,
}

impl AuthConfigError {
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        let (message, hint) = (message.into(), hint.into());
        Self { message, hint }
    }
}

impl fmt::Display for AuthConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for AuthConfigError {}

impl From<AuthConfigError> for BackendError {
    fn from(error: AuthConfigError) -> Self {
        BackendError::new(BackendErrorKind::Denied, error.message).hint(error.hint)
    }
}

/// The suffixes of clouds.yaml and the files that it is merged with. JSON is YAML, too.
const SUFFIXES: [&str; 3] = ["yaml", "yml", "json"];

/// The sources of cloud configurations.
pub struct CloudSources {
    /// The environment variables of this process that begin with `OS_`.
    pub variables: BTreeMap<String, String>,
    /// The directories in which clouds.yaml is searched, in this order.
    pub folders: Vec<PathBuf>,
}

impl CloudSources {
    /// The sources of this process.
    pub fn of_process() -> Self {
        let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        Self::of(env::vars_os().filter_map(text).collect(), Path::new("."))
    }

    /// The sources of a process with these environment variables in this folder.
    pub fn of(mut variables: BTreeMap<String, String>, current: &Path) -> Self {
        let folder = |name: &str| variables.get(name).map(Path::new).filter(|path| path.is_absolute());
        let home = folder("HOME").map(|home| home.join(".config"));
        let user = folder("XDG_CONFIG_HOME").map(Path::to_owned).or(home.clone());
        let site = folder("XDG_CONFIG_DIRS").unwrap_or(Path::new("/etc/xdg")).to_owned();
        let mut folders = vec![current.to_owned()];
        let all = user.into_iter().chain(home).chain([site, PathBuf::from("/etc")]);
        folders.extend(all.map(|folder| folder.join("openstack")));
        variables.retain(|name, value| name.starts_with("OS_") && !value.is_empty());
        Self { variables, folders }
    }

    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// The first `name` with one of the suffixes in the directories, or the file that a variable refers to.
    pub fn find(&self, name: &str, variable: &str) -> Result<Option<(PathBuf, Value)>, AuthConfigError> {
        self.find_in(&self.folders, name, variable)
    }

    fn find_in(
        &self,
        folders: &[PathBuf],
        name: &str,
        variable: &str,
    ) -> Result<Option<(PathBuf, Value)>, AuthConfigError> {
        let named = self.variable(variable).map(PathBuf::from);
        let in_folder = |folder: &PathBuf| SUFFIXES.map(|suffix| folder.join(format!("{name}.{suffix}")));
        let places = match &named {
            Some(path) => vec![path.clone()],
            None => folders.iter().flat_map(in_folder).collect(),
        };
        for path in places {
            let text = match &named {
                Some(path) => limited_file::read(path),
                None => found_file::open(&path).and_then(limited_file::read_open),
            };
            let text = match text.and_then(limited_file::text) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => continue,
                Err(error) if found_file::is_untrusted(&error) => {
                    return Err(AuthConfigError::new(
                        format!("{} is {error}", path.display()),
                        format!("if you trust it, name it: `export {variable}={}`", shell_path(&path)),
                    ));
                }
                Err(error) => {
                    let message = format!("cannot read {}: {error}", path.display());
                    return Err(AuthConfigError::new(
                        message,
                        format!("check the file; its path is set by {variable} or found by its name"),
                    ));
                }
            };
            // The parser's message would contain the lines around, which may include passwords.
            let value = yaml(&text).map_err(|_| {
                AuthConfigError::new(
                    format!("{} is not valid YAML", path.display()),
                    "check it with `openstack configuration show`",
                )
            })?;
            return Ok(Some((path, value)));
        }
        Ok(None)
    }
}

/// The settings of one cloud, flat: those of `auth` are on the same level.
#[derive(Default)]
pub struct CloudKeys {
    pub texts: BTreeMap<String, String>,
    /// Those that YAML reads as a boolean, number or date.
    pub not_texts: BTreeSet<String>,
}

impl CloudKeys {
    pub fn get(&self, key: &str) -> Option<&str> {
        self.texts.get(key).map(String::as_str).filter(|text| !text.is_empty())
    }

    fn set(&mut self, key: &str, value: &Value) {
        let key = key.replace('-', "_");
        let text = match value {
            Value::String(text) => {
                self.not_texts.remove(&key);
                text.clone()
            }
            Value::Bool(_) | Value::Number(_) => {
                self.not_texts.insert(key.clone());
                value.to_string()
            }
            _ => return,
        };
        self.texts.insert(key, text);
    }
}

/// Of these, a setting of the cloud itself counts more than one in its `auth` (openstack/openstacksdk:
/// `openstack/config/loader.py`, `_fix_backwards_auth`: only those may be overridden); of all others, that in `auth`
/// (`_validate_auth`).
const OVERRIDING: [&str; 12] = [
    "domain_id",
    "domain_name",
    "user_domain_id",
    "user_domain_name",
    "project_domain_id",
    "project_domain_name",
    "project_id",
    "project_name",
    "tenant_id",
    "tenant_name",
    "token",
    "auth_token",
];

pub fn from_variables(sources: &CloudSources) -> CloudKeys {
    let key = |(name, value): (&String, &String)| Some((name.strip_prefix("OS_")?.to_lowercase(), value.clone()));
    let texts = sources.variables.iter().filter_map(key).collect();
    CloudKeys {
        texts,
        ..CloudKeys::default()
    }
}

/// The cloud of clouds.yaml, merged over the profile of its vendor and under its part of secure.yaml, with one region.
pub fn from_file(
    cloud: Option<&str>,
    region: Option<&str>,
    sources: &CloudSources,
) -> Result<(String, CloudKeys), AuthConfigError> {
    let Some((path, clouds)) = sources.find("clouds", "OS_CLIENT_CONFIG_FILE")? else {
        let places: Vec<_> = sources
            .folders
            .iter()
            .map(|folder| folder.display().to_string())
            .collect();
        return Err(AuthConfigError::new(
            format!("no clouds.yaml in {}, and OS_AUTH_URL is not set", places.join(", ")),
            "download clouds.yaml from the dashboard of the cloud and set os_cloud, or source its openrc file",
        ));
    };
    let none = Map::new();
    let all = clouds["clouds"].as_object().unwrap_or(&none);
    let name = match (cloud, all.keys().next()) {
        (Some(name), _) => name,
        (None, Some(only)) if all.len() == 1 => only,
        (None, _) => {
            let message = format!("{} has {} clouds, and os_cloud is not set", path.display(), all.len());
            return Err(AuthConfigError::new(
                message,
                format!("set os_cloud to one of {}", names(all)),
            ));
        }
    };
    let Some(found) = all.get(name) else {
        let message = format!("{} has no cloud {name}", path.display());
        return Err(AuthConfigError::new(
            message,
            format!("set os_cloud to one of {}", names(all)),
        ));
    };
    let mut merged = found.clone();
    // openstacksdk searches secure.yaml in all directories (`SECURE_FILES`).
    let beside = path.parent().unwrap_or(Path::new("")).to_owned();
    if let Some((_, secure)) = sources.find_in(&[beside], "secure", "OS_CLIENT_SECURE_FILE")? {
        merge(&mut merged, &secure["clouds"][name]);
    }
    let mut known = Regions::of(&merged);
    if let Some(profile) = merged["profile"].as_str().or(merged["cloud"].as_str())
        && let Some((_, public)) = sources.find("clouds-public", "OS_CLIENT_VENDOR_FILE")?
    {
        let mut vendor = public["public-clouds"][profile].clone();
        if known.0.is_empty() {
            known = Regions::of(&vendor);
        }
        merge(&mut vendor, &merged);
        merged = vendor;
    }
    let region = known.choose(name, region)?;
    if let Some((_, values)) = &region {
        merge(&mut merged, values);
    }
    let mut keys = CloudKeys::default();
    let pairs = |map: &Value| map.as_object().cloned().unwrap_or_default();
    pairs(&merged).iter().for_each(|(key, value)| keys.set(key, value));
    for (key, value) in &pairs(&merged["auth"]) {
        let name = key.replace('-', "_");
        if !OVERRIDING.contains(&name.as_str()) || keys.get(&name).is_none() {
            keys.set(key, value);
        }
    }
    keys.texts.remove("region_name");
    keys.texts
        .extend(region.map(|(region, _)| ("region_name".to_owned(), region)));
    Ok((name.to_owned(), keys))
}

/// The regions of a cloud with the settings of each (openstack/openstacksdk: `openstack/config/loader.py`,
/// `_get_known_regions`).
struct Regions(Vec<(String, Value)>);

impl Regions {
    fn of(cloud: &Value) -> Self {
        let region = |entry: &Value| match entry.as_str() {
            Some(name) => Some((name.to_owned(), Value::Null)),
            None => Some((entry["name"].as_str()?.to_owned(), entry["values"].clone())),
        };
        let named = cloud.get("region_name").unwrap_or(&cloud["region-name"]);
        let list = cloud["regions"].as_array().or(named.as_array());
        Self(match (list, named.as_str()) {
            (Some(list), _) => list.iter().filter_map(region).collect(),
            // A list with commas is obsolete.
            (None, Some(names)) => names.split(',').map(|name| (name.to_owned(), Value::Null)).collect(),
            (None, None) => Vec::new(),
        })
    }

    /// The named region, or the only one. openstacksdk takes the first of several, which can be the wrong one.
    fn choose(self, cloud: &str, wanted: Option<&str>) -> Result<Option<(String, Value)>, AuthConfigError> {
        let names = self
            .0
            .iter()
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>()
            .join(", ");
        let count = self.0.len();
        let hint = format!("set os_region to one of {names}");
        let mut known = self.0.into_iter();
        match wanted {
            Some(wanted) if count == 0 => Ok(Some((wanted.to_owned(), Value::Null))),
            Some(wanted) => match known.find(|(name, _)| name == wanted) {
                Some(region) => Ok(Some(region)),
                // If a cloud has one region, that is only its default, and another one can be named.
                None if count == 1 => Ok(Some((wanted.to_owned(), Value::Null))),
                None => Err(AuthConfigError::new(
                    format!("cloud {cloud} has no region {wanted}"),
                    hint,
                )),
            },
            None if count > 1 => {
                let message = format!("cloud {cloud} has {count} regions, and os_region is not set");
                Err(AuthConfigError::new(message, hint))
            }
            None => Ok(known.next()),
        }
    }
}

fn names(all: &Map<String, Value>) -> String {
    match all.is_empty() {
        true => "none".to_owned(),
        false => all.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
    }
}

/// Merges `above` into `below`, maps recursively.
fn merge(below: &mut Value, above: &Value) {
    match (below, above) {
        (_, Value::Null) => {}
        (Value::Object(below), Value::Object(above)) => {
            for (key, value) in above {
                merge(below.entry(key.as_str()).or_insert(Value::Null), value);
            }
        }
        (below, above) => *below = above.clone(),
    }
}

/// The value of a YAML document, in which plain scalars are texts as they are written, unless openstacksdk reads them as
/// another text or type. If a key occurs several times, the last one counts, as in openstacksdk.
fn yaml(text: &str) -> Result<Value, Box<serde_saphyr::Error>> {
    let read = || serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    let shape: Value = from_str_with_options(text, read()).map_err(Box::new)?;
    with_deserializer_from_str_with_options(text, read(), |read| Texts { shape: &shape, text }.deserialize(read))
        .map_err(Box::new)
}

/// Reads a node whose shape is known, with its scalars as texts.
struct Texts<'a> {
    shape: &'a Value,
    text: &'a str,
}

impl<'de> DeserializeSeed<'de> for Texts<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.shape {
            Value::Null => IgnoredAny::deserialize(deserializer).map(|_| Value::Null),
            Value::Object(_) => deserializer.deserialize_map(self),
            Value::Array(_) => deserializer.deserialize_seq(self),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                let scalar = Spanned::<String>::deserialize(deserializer)?;
                let offset = scalar.defined.span().byte_offset();
                let around = offset.and_then(|offset| self.text.split_at_checked(usize::try_from(offset).ok()?));
                let is_plain = around.is_some_and(|(before, from)| {
                    from.starts_with(&scalar.value) && !before.trim_end().ends_with("!!str")
                });
                Ok(match is_plain && !is_text(&scalar.value) {
                    true => other_than_text(self.shape),
                    false => Value::String(scalar.value),
                })
            }
        }
    }
}

impl<'de> Visitor<'de> for Texts<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the same document")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = pairs.next_key::<String>()? {
            let shape = self.shape.get(&key).unwrap_or(&Value::Null);
            map.insert(key, pairs.next_value_seed(Texts { shape, ..self })?);
        }
        Ok(Value::Object(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        let mut shapes = self.shape.as_array().into_iter().flatten();
        while let Some(entry) = entries.next_element_seed(Texts {
            shape: shapes.next().unwrap_or(&Value::Null),
            ..self
        })? {
            list.push(entry);
        }
        Ok(Value::Array(list))
    }
}

/// A plain scalar that is not a text, as a value that is not a string.
fn other_than_text(shape: &Value) -> Value {
    match shape {
        Value::Bool(_) | Value::Number(_) => shape.clone(),
        _ => Value::Bool(true),
    }
}

/// Whether openstacksdk reads a plain scalar as this text: as a string, or as an integer that is written in the same way.
/// Its parser implements YAML 1.1 (yaml/pyyaml: `lib/yaml/resolver.py`), and it converts numbers back to text
/// (openstack/openstacksdk: `openstack/config/_util.py`, `normalize_keys`). A few texts that only look like numbers,
/// times or dates are treated like these.
fn is_text(plain: &str) -> bool {
    let words = [
        "yes", "no", "on", "off", "true", "false", "=", ".nan", ".inf", "+.inf", "-.inf",
    ];
    if words.contains(&plain.to_lowercase().as_str()) {
        return false;
    }
    let digits = plain.strip_prefix(['+', '-']).unwrap_or(plain);
    let only = |text: &str, allowed: &str| text.chars().all(|c| c == '_' || allowed.contains(c));
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return true;
    }
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return match digits.starts_with('0') && digits != "0" {
            // An octal number has no other digits.
            true => digits.contains(['8', '9']),
            false => !plain.starts_with('+'),
        };
    }
    let has = |prefix: &str, allowed: &str| digits.strip_prefix(prefix).is_some_and(|rest| only(rest, allowed));
    let is_numeric = only(digits, "0123456789.:+-eEtTzZ ")
        && (digits.contains(['_', ':', '-']) || digits.bytes().filter(|byte| *byte == b'.').count() == 1);
    !(is_numeric || has("0b", "01") || has("0x", "0123456789abcdefABCDEF"))
}
