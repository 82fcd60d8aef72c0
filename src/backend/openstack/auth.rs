//! Who we are and where the services are: clouds.yaml, `OS_*`, Keystone's token and its catalog.
//!
//! The keys are those of openstacksdk (openstack/openstacksdk: `doc/source/user/config/configuration.rst`).

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};

/// Why it is not known how to sign in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unclear {
    pub words: String,
    pub hint: String,
}

impl Unclear {
    fn new(words: impl Into<String>, hint: impl Into<String>) -> Self {
        let (words, hint) = (words.into(), hint.into());
        Self { words, hint }
    }
}

impl fmt::Display for Unclear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for Unclear {}

/// How to sign in to one cloud, and which of its endpoints to use.
#[derive(Debug)]
pub(super) struct Access {
    /// The cloud in a user's words, e.g. `cloud lab`.
    pub name: String,
    /// Keystone with its `/v3`.
    pub auth_url: String,
    identity: Identity,
    pub region: Option<String>,
    /// `public`, `internal` or `admin`.
    pub interface: String,
    /// PEM file of who signs the services' certificates.
    pub ca: Option<PathBuf>,
    /// Endpoints given by hand, by the service's type with underscores.
    overrides: BTreeMap<String, String>,
}

#[derive(Debug)]
enum Identity {
    Password {
        user: Value,
        password: SecretString,
        scope: Value,
    },
    /// It has its own scope, and Keystone refuses another.
    Application {
        credential: Value,
        secret: SecretString,
    },
    Token {
        token: SecretString,
        scope: Value,
    },
}

/// Where settings of clouds are looked for.
pub(super) struct Sources {
    /// Variables of this process that begin with `OS_`.
    pub variables: BTreeMap<String, String>,
    /// Folders in which a clouds.yaml may be, first one first.
    pub folders: Vec<PathBuf>,
    /// Reads a file; `None`: there is none.
    pub read: fn(&Path) -> std::io::Result<String>,
}

impl Sources {
    /// Those of this process.
    pub fn here() -> Self {
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
            read: |path| std::fs::read_to_string(path),
        }
    }

    fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// The first file of this name, or the one that a variable names.
    pub fn find(&self, name: &str, variable: &str) -> Result<Option<(PathBuf, Value)>, Unclear> {
        let named = self.variable(variable).map(PathBuf::from);
        let places = match &named {
            Some(path) => vec![path.clone()],
            None => self.folders.iter().map(|folder| folder.join(name)).collect(),
        };
        for path in places {
            let text = match (self.read)(&path) {
                Ok(text) => text,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && named.is_none() => continue,
                Err(error) => {
                    let words = format!("cannot read {}: {error}", path.display());
                    return Err(Unclear::new(
                        words,
                        format!("it is named by {variable} or found by its name"),
                    ));
                }
            };
            // The parser's own words would show the lines around, and there are passwords in them.
            let value = serde_saphyr::from_str(&text).map_err(|_| {
                Unclear::new(
                    format!("{} is not YAML", path.display()),
                    "`openstack configuration show` tells what is wrong with it",
                )
            })?;
            return Ok(Some((path, value)));
        }
        Ok(None)
    }
}

/// Settings of one cloud, flat: `auth` is no level of its own.
type Keys = BTreeMap<String, String>;

impl Access {
    /// Reads how to sign in: `cloud` or `OS_CLOUD` in clouds.yaml, else `OS_*`, else the only cloud of clouds.yaml.
    pub fn read(cloud: Option<&str>, region: Option<&str>, sources: &Sources) -> Result<Self, Unclear> {
        let cloud = cloud.or(sources.variable("OS_CLOUD"));
        let (name, mut keys) = match cloud {
            None if sources.variable("OS_AUTH_URL").is_some() => (None, from_variables(sources)),
            _ => {
                let (name, keys) = from_file(cloud, sources)?;
                (Some(name), keys)
            }
        };
        if let Some(region) = region {
            keys.insert("region_name".to_owned(), region.to_owned());
        }
        let name = name.map_or("the cloud of OS_AUTH_URL".to_owned(), |name| format!("cloud {name}"));
        Self::of_keys(name, &keys)
    }

    fn of_keys(name: String, keys: &Keys) -> Result<Self, Unclear> {
        let get = |key: &str| keys.get(key).map(String::as_str).filter(|text| !text.is_empty());
        let missing = |what: &str| {
            let words = format!("{name} has no {what}");
            Unclear::new(
                words,
                "the cloud's own dashboard offers a clouds.yaml and an openrc file that are complete",
            )
        };
        if get("verify").is_some_and(is_no) || get("insecure").is_some_and(|text| !is_no(text)) {
            return Err(Unclear::new(
                format!("{name} shall not be verified, and passwords are told to nobody unknown"),
                "set `cacert` (OS_CACERT) to the PEM file of who signed its certificate, and take `verify: false` away",
            ));
        }
        if get("cert").is_some() {
            return Err(Unclear::new(
                format!("{name} asks for a client certificate, which this version cannot show"),
                "use a password, a token or an application credential",
            ));
        }
        let auth_url = v3(get("auth_url").ok_or_else(|| missing("auth_url"))?);
        if !auth_url.starts_with("https://") && !auth_url.starts_with("http://") {
            return Err(Unclear::new(
                format!("auth_url `{auth_url}` of {name} is no address"),
                "one looks like https://keystone.example.com:5000/v3",
            ));
        }
        let domain = |of: &str| {
            let named = |kind: &str| {
                get(&format!("{of}_domain_{kind}")).or_else(|| get(&format!("domain_{kind}")).filter(|_| of == "user"))
            };
            match (named("id"), named("name")) {
                (Some(id), _) => json!({"id": id}),
                (None, Some(name)) => json!({"name": name}),
                (None, None) => json!({"id": get("default_domain").unwrap_or("default")}),
            }
        };
        let user = || match (get("user_id"), get("username")) {
            (Some(id), _) => Some(json!({"id": id})),
            (None, Some(name)) => Some(json!({"name": name, "domain": domain("user")})),
            (None, None) => None,
        };
        let project = match (
            get("project_id").or(get("tenant_id")),
            get("project_name").or(get("tenant_name")),
        ) {
            (Some(id), _) => Some(json!({"project": {"id": id}})),
            (None, Some(name)) => Some(json!({"project": {"name": name, "domain": domain("project")}})),
            (None, None) => None,
        };
        let secret = |key: &str| get(key).map(SecretString::from);
        let identity = if let Some(secret) = secret("application_credential_secret") {
            let credential = match (get("application_credential_id"), get("application_credential_name")) {
                (Some(id), _) => json!({"id": id}),
                (None, Some(name)) => {
                    json!({"name": name, "user": user().ok_or_else(|| missing("user for its application credential"))?})
                }
                (None, None) => return Err(missing("application_credential_id")),
            };
            Identity::Application { credential, secret }
        } else {
            let scope = project.ok_or_else(|| missing("project_name"))?;
            match (secret("token").or(secret("auth_token")), secret("password")) {
                (Some(token), None) => Identity::Token { token, scope },
                (_, Some(password)) => {
                    let user = user().ok_or_else(|| missing("username"))?;
                    Identity::Password { user, password, scope }
                }
                (None, None) => return Err(missing("password, token or application credential")),
            }
        };
        let interface = get("interface").or(get("endpoint_type")).unwrap_or("public");
        let suffix = "_endpoint_override";
        let overrides = keys.iter().filter_map(|(key, url)| {
            let service = key.strip_suffix(suffix)?;
            Some((service.to_owned(), url.clone()))
        });
        Ok(Self {
            auth_url,
            identity,
            region: get("region_name").map(str::to_owned),
            interface: interface.trim_end_matches("URL").to_owned(),
            ca: get("cacert").map(expand),
            overrides: overrides.collect(),
            name,
        })
    }

    /// The body of `POST /v3/auth/tokens`; it holds the secret.
    pub fn sign_in(&self) -> Value {
        let (method, scope) = match &self.identity {
            Identity::Password { user, password, scope } => {
                let mut user = user.clone();
                user["password"] = json!(password.expose_secret());
                (
                    json!({"methods": ["password"], "password": {"user": user}}),
                    Some(scope),
                )
            }
            Identity::Token { token, scope } => {
                let token = json!({"id": token.expose_secret()});
                (json!({"methods": ["token"], "token": token}), Some(scope))
            }
            Identity::Application { credential, secret } => {
                let mut credential = credential.clone();
                credential["secret"] = json!(secret.expose_secret());
                let method = json!({"methods": ["application_credential"], "application_credential": credential});
                (method, None)
            }
        };
        let mut auth = json!({"identity": method});
        if let Some(scope) = scope {
            auth["scope"] = scope.clone();
        }
        json!({"auth": auth})
    }

    /// The address of a service, without a slash at its end.
    pub fn endpoint(&self, service: Service, interface: &str, catalog: &Value) -> Option<String> {
        let given = service
            .types()
            .iter()
            .find_map(|name| self.overrides.get(&name.replace('-', "_")));
        let found = || {
            let of_type = |name: &&str| find_endpoint(catalog, name, interface, self.region.as_deref());
            service.types().iter().find_map(of_type)
        };
        let url = given.map(String::as_str).or_else(found)?.trim_end_matches('/');
        Some(match service {
            // Their catalog entries may or may not end in a version.
            Service::Network if !ends_in_version(url) => format!("{url}/v2.0"),
            Service::Image if !ends_in_version(url) => format!("{url}/v2"),
            _ => url.to_owned(),
        })
    }
}

/// A service of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Service {
    Compute,
    Network,
    Image,
    Volume,
    Object,
}

impl Service {
    /// Its type and the older ones of the same thing (openstack/service-types-authority).
    fn types(self) -> &'static [&'static str] {
        match self {
            Service::Compute => &["compute"],
            Service::Network => &["network"],
            Service::Image => &["image"],
            Service::Volume => &["block-storage", "volumev3", "block-store"],
            Service::Object => &["object-store"],
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Service::Compute => "compute (Nova)",
            Service::Network => "network (Neutron)",
            Service::Image => "image (Glance)",
            Service::Volume => "block storage (Cinder)",
            Service::Object => "object storage (Swift)",
        }
    }
}

fn find_endpoint<'a>(catalog: &'a Value, kind: &str, interface: &str, region: Option<&str>) -> Option<&'a str> {
    let services = catalog.as_array()?.iter().filter(|service| service["type"] == kind);
    let endpoints = services.filter_map(|service| service["endpoints"].as_array()).flatten();
    let fits = |endpoint: &&Value| {
        let of_region = |region: &str| endpoint["region"] == region || endpoint["region_id"] == region;
        endpoint["interface"] == interface && region.is_none_or(of_region)
    };
    endpoints.filter(fits).find_map(|endpoint| endpoint["url"].as_str())
}

/// Whether the last part of an address is such as `v2.0`.
fn ends_in_version(url: &str) -> bool {
    let last = url.rsplit('/').next().unwrap_or_default();
    last.strip_prefix('v')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Keystone's address with its version, which may be missing or an older one.
fn v3(url: &str) -> String {
    let url = url.trim_end_matches('/');
    match ends_in_version(url) {
        true => format!("{}/v3", url.rsplit_once('/').map_or(url, |(before, _)| before)),
        false => format!("{url}/v3"),
    }
}

fn is_no(text: &str) -> bool {
    ["false", "no", "off", "0"].contains(&text.to_lowercase().as_str())
}

fn expand(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    }
}

fn from_variables(sources: &Sources) -> Keys {
    let key = |(name, value): (&String, &String)| Some((name.strip_prefix("OS_")?.to_lowercase(), value.clone()));
    sources.variables.iter().filter_map(key).collect()
}

/// The cloud of clouds.yaml, over its vendor's profile and under its part of secure.yaml.
fn from_file(cloud: Option<&str>, sources: &Sources) -> Result<(String, Keys), Unclear> {
    let Some((path, clouds)) = sources.find("clouds.yaml", "OS_CLIENT_CONFIG_FILE")? else {
        let places: Vec<_> = sources
            .folders
            .iter()
            .map(|folder| folder.display().to_string())
            .collect();
        return Err(Unclear::new(
            format!(
                "there is no clouds.yaml in {}, and OS_AUTH_URL is not set",
                places.join(", ")
            ),
            "download clouds.yaml from the cloud's dashboard and name the cloud by os_cloud, or source its openrc file",
        ));
    };
    let none = Map::new();
    let all = clouds["clouds"].as_object().unwrap_or(&none);
    let name = match (cloud, all.keys().next()) {
        (Some(name), _) => name,
        (None, Some(only)) if all.len() == 1 => only,
        (None, _) => {
            let words = format!("{} has {} clouds, and none of them is named", path.display(), all.len());
            return Err(Unclear::new(words, format!("set os_cloud to one of {}", names(all))));
        }
    };
    let Some(found) = all.get(name) else {
        let words = format!("there is no cloud {name} in {}", path.display());
        return Err(Unclear::new(words, format!("it has {}", names(all))));
    };
    let mut merged = found.clone();
    if let Some((_, secure)) = sources.find("secure.yaml", "OS_CLIENT_SECURE_FILE")? {
        overlay(&mut merged, &secure["clouds"][name]);
    }
    if let Some(profile) = merged["profile"].as_str().or(merged["cloud"].as_str())
        && let Some((_, public)) = sources.find("clouds-public.yaml", "OS_CLIENT_VENDOR_FILE")?
    {
        let mut vendor = public["public-clouds"][profile].clone();
        overlay(&mut vendor, &merged);
        merged = vendor;
    }
    let mut keys = Keys::new();
    flatten(&merged, &mut keys);
    flatten(&merged["auth"], &mut keys);
    Ok((name.to_owned(), keys))
}

fn names(all: &Map<String, Value>) -> String {
    match all.is_empty() {
        true => "none".to_owned(),
        false => all.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
    }
}

/// Lays `above` over `below`, maps into maps.
fn overlay(below: &mut Value, above: &Value) {
    match (below, above) {
        (_, Value::Null) => {}
        (Value::Object(below), Value::Object(above)) => {
            for (key, value) in above {
                overlay(below.entry(key.as_str()).or_insert(Value::Null), value);
            }
        }
        (below, above) => *below = above.clone(),
    }
}

fn flatten(map: &Value, keys: &mut Keys) {
    for (key, value) in map.as_object().into_iter().flatten() {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Bool(_) | Value::Number(_) => value.to_string(),
            _ => continue,
        };
        keys.insert(key.replace('-', "_"), text);
    }
}

#[cfg(test)]
mod tests;
