//! The pointer config: the installer's small `master.ign`, `arbiter.ign` or `worker.ign`, and its machine config
//! server.

use std::net::{IpAddr, SocketAddr};

use serde_json::{Map, Value, json};

use crate::ignition::contents::{self, Contents};
use crate::ignition::{IgnitionError, Major, version};

/// The server of a pointer config, and the CAs it trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The only name in its certificate, `api-int.<cluster>.<domain>`.
    pub host: String,
    pub port: u16,
    /// `/config/master`.
    pub path: String,
    /// PEM, each with one or more certificates.
    pub authorities: Vec<Vec<u8>>,
    /// Without TLS: the server of a rehearsal, whose configs have no secrets.
    pub in_clear: bool,
}

impl Server {
    /// The same server in a rehearsal.
    pub fn of_rehearsal(self) -> Self {
        Self {
            port: HTTP_PORT,
            in_clear: true,
            ..self
        }
    }
}

/// The machine config server of a pointer config.
pub fn server(pointer: &Value) -> Result<Server, IgnitionError> {
    let list = version(pointer)?.major.merge_list();
    let sources = |place: &str| {
        let entries = pointer.pointer(place).and_then(Value::as_array);
        entries.into_iter().flatten().cloned().collect::<Vec<_>>()
    };
    let entries = sources(&format!("/ignition/config/{list}"));
    let mut urls = entries
        .iter()
        .filter_map(|entry| entry.get("source").and_then(Value::as_str));
    let (host, path) = urls.find_map(named).ok_or(IgnitionError::NoMcs)?;
    let mut authorities = Vec::new();
    for authority in sources("/ignition/security/tls/certificateAuthorities") {
        if let Ok(Contents::Bytes(pem)) = contents::of(&authority) {
            authorities.push(pem);
        }
    }
    Ok(Server {
        host: host.to_owned(),
        port: TLS_PORT,
        path: format!("/{path}"),
        authorities,
        in_clear: false,
    })
}

/// The machine config server's ports with and without TLS; source: openshift/machine-config-operator,
/// `pkg/server/api.go`.
const TLS_PORT: u16 = 22623;
const HTTP_PORT: u16 = 22624;

/// Changes a pointer config to fetch from `http://<api_ip>:22624` instead of
/// `https://api-int.<cluster>.<domain>:22623`.
pub(super) fn fetch_by_http(pointer: &mut Value, api_ip: IpAddr) -> Result<(), IgnitionError> {
    let major = version(pointer)?.major;
    let mut found = false;
    for entry in entries(pointer, major)? {
        if let Some((_, path)) = entry.get("source").and_then(Value::as_str).and_then(named) {
            let url = format!("http://{}/{path}", SocketAddr::new(api_ip, HTTP_PORT));
            entry["source"] = json!(url);
            found = true;
        }
    }
    if found { Ok(()) } else { Err(IgnitionError::NoMcs) }
}

/// A pointer config without the machine config server.
pub(super) fn without_server(pointer: &Value) -> Result<Value, IgnitionError> {
    let mut pointer = pointer.clone();
    let major = version(&pointer)?.major;
    entries(&mut pointer, major)?.retain(|entry| {
        let url = entry.get("source").and_then(Value::as_str);
        url.and_then(named).is_none()
    });
    Ok(pointer)
}

/// The host and the path, without its leading slash, in a URL of the machine config server.
fn named(url: &str) -> Option<(&str, &str)> {
    let (host, path) = url.strip_prefix("https://")?.split_once('/')?;
    let host = host.strip_suffix(&format!(":{TLS_PORT}"))?;
    Some((host, path))
}

/// The list of configs that a config merges; created if missing.
pub(super) fn entries(config: &mut Value, major: Major) -> Result<&mut Vec<Value>, IgnitionError> {
    let shape = |path: &str, wanted| IgnitionError::Shape {
        path: path.to_owned(),
        wanted,
    };
    let mut here = config;
    for (path, name) in [("$.ignition", "ignition"), ("$.ignition.config", "config")] {
        here = here
            .as_object_mut()
            .ok_or(shape("$", "an object"))?
            .entry(name)
            .or_insert(Value::Null);
        if here.is_null() {
            *here = Value::Object(Map::new());
        }
        if !here.is_object() {
            return Err(shape(path, "an object"));
        }
    }
    let list = &mut here[major.merge_list()];
    if list.is_null() {
        *list = Value::Array(Vec::new());
    }
    list.as_array_mut().ok_or(shape("$.ignition.config.merge", "a list"))
}
