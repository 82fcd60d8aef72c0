//! Where the settings of a cloud come from: clouds.yaml with its relatives, and `OS_*`.
//!
//! Names, order and precedence are those of openstack/openstacksdk: `openstack/config/loader.py`. Unlike there, a file
//! that was found is not used if another user can have written it, and a password is only added to a clouds.yaml in the
//! same directory: another user's clouds.yaml could otherwise send it to any `auth_url`.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

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

/// The suffixes of clouds.yaml and its relatives. JSON is YAML, too.
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
        let config = env::var_os("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".config")));
        let mut folders = vec![PathBuf::from(".")];
        folders.extend(config.map(|config| config.join("openstack")));
        folders.push(PathBuf::from("/etc/openstack"));
        Self {
            variables: env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .filter(|(name, value)| name.starts_with("OS_") && !value.is_empty())
                .collect(),
            folders,
        }
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
            let value = serde_saphyr::from_str(&text).map_err(|_| {
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
pub type CloudKeys = BTreeMap<String, String>;

pub fn from_variables(sources: &CloudSources) -> CloudKeys {
    let key = |(name, value): (&String, &String)| Some((name.strip_prefix("OS_")?.to_lowercase(), value.clone()));
    sources.variables.iter().filter_map(key).collect()
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
    let mut keys = CloudKeys::new();
    flatten(&merged, &mut keys);
    flatten(&merged["auth"], &mut keys);
    keys.remove("region_name");
    keys.extend(region.map(|(region, _)| ("region_name".to_owned(), region)));
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
        let list = cloud["regions"].as_array().or(cloud["region_name"].as_array());
        Self(match (list, cloud["region_name"].as_str()) {
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
                // The only one of a cloud is its default, not a list.
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

fn flatten(map: &Value, keys: &mut CloudKeys) {
    for (key, value) in map.as_object().into_iter().flatten() {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Bool(_) | Value::Number(_) => value.to_string(),
            _ => continue,
        };
        keys.insert(key.replace('-', "_"), text);
    }
}
