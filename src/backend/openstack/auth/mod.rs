//! Credentials and endpoints: clouds.yaml, `OS_*`, the token request, and the service catalog.
//!
//! The keys are the same as in openstacksdk (openstack/openstacksdk: `doc/source/user/config/configuration.rst`).

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};

/// Credentials are missing or invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AuthConfigError {
    pub message: String,
    pub hint: String,
}

impl AuthConfigError {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
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

/// The credentials for one cloud, and the selection of its endpoints.
#[derive(Debug)]
pub(super) struct Access {
    /// The name in messages, e.g. `cloud lab`.
    pub name: String,
    /// The URL of Keystone with `/v3`.
    pub auth_url: String,
    identity: Identity,
    pub region: Option<String>,
    /// `public`, `internal` or `admin`.
    pub interface: String,
    /// PEM file of the CA of the services.
    pub ca: Option<PathBuf>,
    /// Configured endpoints, by the service's type with underscores.
    overrides: BTreeMap<String, String>,
}

#[derive(Debug)]
enum Identity {
    Password {
        user: Value,
        password: SecretString,
        scope: Value,
    },
    /// Has its own scope. Keystone rejects requests with a scope.
    Application {
        credential: Value,
        secret: SecretString,
    },
    Token {
        token: SecretString,
        scope: Value,
    },
}

/// The sources of cloud configurations.
pub(super) struct Sources {
    /// The environment variables of this process that begin with `OS_`.
    pub variables: BTreeMap<String, String>,
    /// The folders in which clouds.yaml is searched, in this order.
    pub folders: Vec<PathBuf>,
    /// Reads a file; `None` if it does not exist.
    pub read: fn(&Path) -> std::io::Result<String>,
}

impl Sources {
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
            read: |path| std::fs::read_to_string(path),
        }
    }

    fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// The first file of this name, or the one that a variable refers to.
    pub fn find(&self, name: &str, variable: &str) -> Result<Option<(PathBuf, Value)>, AuthConfigError> {
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
type Keys = BTreeMap<String, String>;

impl Access {
    /// Reads the credentials: of `cloud` or `OS_CLOUD` in clouds.yaml, else `OS_*`, else of the only cloud in clouds.yaml.
    pub fn read(cloud: Option<&str>, region: Option<&str>, sources: &Sources) -> Result<Self, AuthConfigError> {
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

    fn of_keys(name: String, keys: &Keys) -> Result<Self, AuthConfigError> {
        let get = |key: &str| keys.get(key).map(String::as_str).filter(|text| !text.is_empty());
        let missing = |what: &str| {
            let message = format!("{name} has no {what}");
            AuthConfigError::new(
                message,
                "download a complete clouds.yaml or openrc file from the dashboard of the cloud",
            )
        };
        if get("verify").is_some_and(is_no) || get("insecure").is_some_and(|text| !is_no(text)) {
            return Err(AuthConfigError::new(
                format!("{name} disables the verification of certificates, which is not supported"),
                "set `cacert` (OS_CACERT) to the PEM file of the CA that signed its certificate, and remove `verify: false`",
            ));
        }
        if get("cert").is_some() {
            return Err(AuthConfigError::new(
                format!("{name} requires a client certificate, which is not supported"),
                "use a password, a token or an application credential",
            ));
        }
        let auth_url = v3(get("auth_url").ok_or_else(|| missing("auth_url"))?);
        if !auth_url.starts_with("https://") && !auth_url.starts_with("http://") {
            return Err(AuthConfigError::new(
                format!("auth_url `{auth_url}` of {name} is not a URL"),
                "set a URL such as https://keystone.example.com:5000/v3",
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

    /// The body of `POST /v3/auth/tokens`. Contains the secret.
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

    /// The URL of a service, without a slash at its end.
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
            // Catalog entries of these services may or may not end in a version.
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
    /// The present and former types of the service (openstack/service-types-authority).
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

/// Whether the last part of a URL is a version such as `v2.0`.
fn ends_in_version(url: &str) -> bool {
    let last = url.rsplit('/').next().unwrap_or_default();
    last.strip_prefix('v')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// The URL of Keystone with version 3, which may be missing or an older one.
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

/// The cloud of clouds.yaml, merged over the profile of its vendor and under its part of secure.yaml.
fn from_file(cloud: Option<&str>, sources: &Sources) -> Result<(String, Keys), AuthConfigError> {
    let Some((path, clouds)) = sources.find("clouds.yaml", "OS_CLIENT_CONFIG_FILE")? else {
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
    if let Some((_, secure)) = sources.find("secure.yaml", "OS_CLIENT_SECURE_FILE")? {
        merge(&mut merged, &secure["clouds"][name]);
    }
    if let Some(profile) = merged["profile"].as_str().or(merged["cloud"].as_str())
        && let Some((_, public)) = sources.find("clouds-public.yaml", "OS_CLIENT_VENDOR_FILE")?
    {
        let mut vendor = public["public-clouds"][profile].clone();
        merge(&mut vendor, &merged);
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
