//! Credentials and endpoints: clouds.yaml, `OS_*`, the token request, and the service catalog.
//!
//! The keys are the same as in openstacksdk (openstack/openstacksdk: `doc/source/user/config/configuration.rst`).

mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::PathBuf;

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

pub(super) use self::sources::{AuthConfigError, CloudSources};
use self::sources::{CloudKeys, from_file, from_variables};

/// The credentials for one cloud, and the selection of its endpoints.
#[derive(Debug)]
pub(super) struct CloudAccess {
    /// The name in messages, e.g. `cloud lab`.
    pub name: String,
    /// The URL of Keystone with `/v3`.
    pub auth_url: String,
    identity: Identity,
    pub region: Option<String>,
    /// `public`, `internal` or `admin`.
    pub interface: String,
    /// The interfaces of single services, by the service's type with underscores.
    interfaces: BTreeMap<String, String>,
    /// PEM file of the CA of the services.
    pub ca: Option<PathBuf>,
    /// Configured endpoints, by the service's type with underscores.
    overrides: BTreeMap<String, String>,
}

/// The suffix of a setting with the endpoint of one service.
const OVERRIDE: &str = "_endpoint_override";

/// The settings that are sent or compared as text.
const TEXTS: [&str; 27] = [
    "application_credential_id",
    "application_credential_name",
    "application_credential_secret",
    "auth_token",
    "auth_type",
    "auth_url",
    "cacert",
    "default_domain",
    "default_domain_id",
    "default_domain_name",
    "domain_id",
    "domain_name",
    "interface",
    "password",
    "project_domain_id",
    "project_domain_name",
    "project_id",
    "project_name",
    "tenant_id",
    "tenant_name",
    "token",
    "trust_id",
    "user_domain_id",
    "user_domain_name",
    "user_id",
    "user_name",
    "username",
];

/// A method of Keystone.
#[derive(Clone, Copy)]
enum Method {
    Password,
    Token,
    Application,
}

impl Method {
    /// The method of an `auth_type`, a plugin of openstack/keystoneauth (`setup.cfg`, `keystoneauth1.plugin`). `None`
    /// without an `auth_type`: then the given secrets determine the method.
    fn of(name: &str, auth_type: Option<&str>) -> Result<Option<Self>, AuthConfigError> {
        Ok(Some(match auth_type {
            None => return Ok(None),
            Some("password" | "v3password") => Self::Password,
            Some("token" | "v3token") => Self::Token,
            Some("v3applicationcredential") => Self::Application,
            Some(other) => {
                return Err(AuthConfigError::new(
                    format!("{name} has auth_type {other}, which is not supported"),
                    "create an application credential with `openstack application credential create ocpdeploy`, and set \
                     auth_type to v3applicationcredential with its id and secret",
                ));
            }
        }))
    }
}

#[derive(Debug)]
enum Identity {
    Password {
        user: Value,
        password: SecretString,
        scope: Value,
    },
    /// An application credential has its own scope, so Keystone rejects requests that contain one.
    Application {
        credential: Value,
        secret: SecretString,
    },
    Token {
        token: SecretString,
        scope: Value,
    },
}

impl CloudAccess {
    /// Reads the credentials: of `cloud` or `OS_CLOUD` in clouds.yaml, else `OS_*`, else of the only cloud in clouds.yaml.
    pub fn read(cloud: Option<&str>, region: Option<&str>, sources: &CloudSources) -> Result<Self, AuthConfigError> {
        let cloud = cloud.or(sources.variable("OS_CLOUD"));
        // As `openstack --os-region-name`, also for a named cloud (openstack/osc-lib: `osc_lib/shell.py`).
        let region = region.or(sources.variable("OS_REGION_NAME"));
        let (name, keys) = match cloud {
            None if sources.variable("OS_AUTH_URL").is_some() => {
                let mut keys = from_variables(sources);
                keys.texts
                    .extend(region.map(|region| ("region_name".to_owned(), region.to_owned())));
                (None, keys)
            }
            _ => {
                let (name, keys) = from_file(cloud, region, sources)?;
                (Some(name), keys)
            }
        };
        let name = name.map_or("the cloud of OS_AUTH_URL".to_owned(), |name| format!("cloud {name}"));
        Self::of_keys(name, &keys)
    }

    fn of_keys(name: String, keys: &CloudKeys) -> Result<Self, AuthConfigError> {
        let get = |key: &str| keys.get(key);
        let missing = |what: &str| {
            let message = format!("{name} has no {what}");
            AuthConfigError::new(
                message,
                "download a complete clouds.yaml or openrc file from the dashboard of the cloud; secure.yaml must be in the \
                 directory of clouds.yaml, or set OS_CLIENT_SECURE_FILE to its path",
            )
        };
        let of_file = |key: &&str| TEXTS.contains(key) || key.ends_with(OVERRIDE);
        if let Some(key) = keys.not_texts.iter().map(String::as_str).find(of_file) {
            return Err(AuthConfigError::new(
                format!("the value of {key} in {name} is not text in YAML, but a boolean, a number or a date"),
                format!("write it in quotes: {key}: '...'"),
            ));
        }
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
        let method = Method::of(&name, get("auth_type").or(get("auth_plugin")))?;
        let auth_url = get("auth_url").ok_or_else(|| match get("profile").or(get("cloud")) {
            Some(profile) => AuthConfigError::new(
                format!("{name} has no auth_url, and clouds-public.yaml has no profile {profile}"),
                format!(
                    "the profiles that openstacksdk contains are not read: copy the settings that `python3 -c \"import \
                     openstack.config.vendors as v; print(v.get_profile('{profile}'))\"` prints to this cloud"
                ),
            ),
            None => missing("auth_url"),
        })?;
        // openstack/openstacksdk: `openstack/config/loader.py`, `magic_fixes`.
        let auth_url = v3(&auth_url.replace("{region_name}", get("region_name").unwrap_or_default()));
        if !auth_url.starts_with("https://") && !auth_url.starts_with("http://") {
            return Err(AuthConfigError::new(
                format!("auth_url `{auth_url}` of {name} is not a URL"),
                "set a URL such as https://keystone.example.com:5000/v3",
            ));
        }
        // A domain without a role is that of user and project (openstack/openstacksdk: `openstack/config/loader.py`,
        // `_handle_domain_id`), as is the default domain (openstack/keystoneauth: `keystoneauth1/identity/generic/base.py`).
        let domain = |of: &str| {
            let prefixes = [
                format!("{of}_domain_"),
                "domain_".to_owned(),
                "default_domain_".to_owned(),
            ];
            let named = |prefix: &String| match (get(&format!("{prefix}id")), get(&format!("{prefix}name"))) {
                (Some(id), _) => Some(json!({"id": id})),
                (None, Some(name)) => Some(json!({"name": name})),
                (None, None) => None,
            };
            let found = prefixes.iter().find_map(named);
            found.unwrap_or_else(|| json!({"id": get("default_domain").unwrap_or("default")}))
        };
        let user = || match (get("user_id"), get("username").or(get("user_name"))) {
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
            // openstack/keystoneauth: `keystoneauth1/identity/v3/base.py`, `get_auth_ref`.
            (None, None) => get("trust_id").map(|id| json!({"OS-TRUST:trust": {"id": id}})),
        };
        let secret = |key: &str| get(key).map(SecretString::from);
        let token = || secret("token").or(secret("auth_token"));
        let method = match method {
            Some(method) => method,
            None if get("application_credential_secret").is_some() => Method::Application,
            None if get("password").is_none() && token().is_some() => Method::Token,
            None if get("password").is_some() => Method::Password,
            None => return Err(missing("password, token or application credential")),
        };
        let scope = || project.clone().ok_or_else(|| missing("project_name"));
        let identity = match method {
            Method::Application => {
                let secret =
                    secret("application_credential_secret").ok_or_else(|| missing("application_credential_secret"))?;
                let credential = match (get("application_credential_id"), get("application_credential_name")) {
                    (Some(id), _) => json!({"id": id}),
                    (None, Some(name)) => {
                        json!({"name": name, "user": user().ok_or_else(|| missing("user for its application credential"))?})
                    }
                    (None, None) => return Err(missing("application_credential_id")),
                };
                Identity::Application { credential, secret }
            }
            Method::Token => Identity::Token {
                scope: scope()?,
                token: token().ok_or_else(|| missing("token"))?,
            },
            Method::Password => Identity::Password {
                scope: scope()?,
                user: user().ok_or_else(|| missing("username"))?,
                password: secret("password").ok_or_else(|| missing("password"))?,
            },
        };
        // openstack/openstacksdk: `openstack/config/loader.py`, `_fix_backwards_interface`.
        let interface = get("interface").or(get("endpoint_type")).unwrap_or("public");
        let of_services = |suffixes: [&str; 2]| {
            let each = suffixes.into_iter().rev().flat_map(|suffix| {
                let pairs = keys.texts.iter();
                pairs.filter_map(move |(key, value)| Some((key.strip_suffix(suffix)?.to_owned(), value.clone())))
            });
            each.collect::<BTreeMap<_, _>>()
        };
        Ok(Self {
            auth_url,
            identity,
            region: get("region_name").map(str::to_owned),
            interface: interface.trim_end_matches("URL").to_owned(),
            interfaces: of_services(["_interface", "_endpoint_type"]),
            ca: get("cacert").map(expand),
            overrides: of_services([OVERRIDE, "_endpoint"]),
            name,
        })
    }

    pub fn has_only_a_token(&self) -> bool {
        matches!(self.identity, Identity::Token { .. })
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

    /// The sign-in, and what selects the endpoints of the services.
    pub fn shown(&self) -> Value {
        let services = [
            Service::Compute,
            Service::Network,
            Service::Image,
            Service::Volume,
            Service::Object,
            Service::Balancer,
        ];
        json!({
            "url": format!("{}/auth/tokens", self.auth_url),
            "body": self.sign_in(),
            "region": self.region,
            "interfaces": services.map(|service| self.interface_of(service)),
            "endpoints": services.map(|service| self.given(service)),
        })
    }

    /// The regions of a service, if there are several and none is selected: any of them could be the wrong one.
    pub fn undecided_regions<'a>(&self, service: Service, interface: &str, catalog: &'a Value) -> BTreeSet<&'a str> {
        let mut regions = BTreeSet::new();
        if self.region.is_none() && self.given(service).is_none() {
            for kind in service.types() {
                let endpoints = endpoints(catalog, kind, interface, None);
                regions.extend(
                    endpoints.filter_map(|endpoint| endpoint["region_id"].as_str().or(endpoint["region"].as_str())),
                );
            }
        }
        if regions.len() < 2 {
            regions.clear();
        }
        regions
    }

    /// The configured URL of a service.
    fn given(&self, service: Service) -> Option<&str> {
        service.of(&self.overrides)
    }

    /// The interface of a service.
    pub fn interface_of(&self, service: Service) -> &str {
        let own = service
            .of(&self.interfaces)
            .map(|interface| interface.trim_end_matches("URL"));
        own.unwrap_or(&self.interface)
    }

    /// The URL of a service, without a slash at its end.
    pub fn endpoint(&self, service: Service, interface: &str, catalog: &Value) -> Option<String> {
        let found = || {
            let of_type = |name: &&str| {
                endpoints(catalog, name, interface, self.region.as_deref())
                    .find_map(|endpoint| endpoint["url"].as_str())
            };
            service.types().iter().find_map(of_type)
        };
        // A configured URL is used only for the configured interface, because machines need a public one.
        let given = self.given(service).filter(|_| interface == self.interface_of(service));
        let url = given.or_else(found)?.trim_end_matches('/');
        Some(match service {
            // Catalog entries of these services may or may not end in a version.
            Service::Network if !ends_in_version(url) => format!("{url}/v2.0"),
            Service::Image if !ends_in_version(url) => format!("{url}/v2"),
            Service::Balancer if ends_in_version(url) => {
                url.rsplit_once('/').map_or(url, |(before, _)| before).to_owned()
            }
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
    Balancer,
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
            Service::Balancer => &["load-balancer"],
        }
    }

    /// Its entry, by any name of its type (openstack/os-service-types: `os_service_types/data/service-types.json`).
    fn of(self, all: &BTreeMap<String, String>) -> Option<&str> {
        let former: &[&str] = match self {
            Service::Volume => &["volumev2", "volume"],
            _ => &[],
        };
        let mut types = self.types().iter().chain(former);
        types.find_map(|name| all.get(&name.replace('-', "_")).map(String::as_str))
    }

    pub fn name(self) -> &'static str {
        match self {
            Service::Compute => "compute (Nova)",
            Service::Network => "network (Neutron)",
            Service::Image => "image (Glance)",
            Service::Volume => "block storage (Cinder)",
            Service::Object => "object storage (Swift)",
            Service::Balancer => "load balancer (Octavia)",
        }
    }
}

fn endpoints<'a>(
    catalog: &'a Value,
    kind: &str,
    interface: &str,
    region: Option<&str>,
) -> impl Iterator<Item = &'a Value> {
    let services = catalog.as_array().into_iter().flatten();
    let services = services.filter(move |service| service["type"] == kind);
    let endpoints = services.filter_map(|service| service["endpoints"].as_array()).flatten();
    endpoints.filter(move |endpoint| {
        let of_region = |region: &str| endpoint["region"] == region || endpoint["region_id"] == region;
        endpoint["interface"] == interface && region.is_none_or(of_region)
    })
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

#[cfg(test)]
mod tests;
