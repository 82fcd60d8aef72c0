//! The user data of servers. Configs that are too large for it are stored where their machines fetch them.
//!
//! In Glance: a private image, fetched with a token. In Swift: an object with a random name, fetched by a temporary URL
//! (openstack/swift: `swift/common/middleware/tempurl.py`).

use std::io::Cursor;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tracing::warn;

use super::auth::Service::{Image as GLANCE, Object as SWIFT};
use super::cloud::{OpenStack, lock};
use super::images::CONTENT;
use super::session::OpenStackSession;
use super::wire::{TAG, escape, text};
use crate::backend::{BackendError, BackendErrorKind, Carrier, MachineSpec, Payload};
use crate::cluster::{ClusterId, MachineName, OsIgnition};
use crate::digest::{hex, hmac_sha256, sha512};
use crate::ignition::stub::{Stub, stub};
use crate::ignition::version;

/// A token in user data must be valid for this many minutes: the machine is created, boots and fetches its config. Some
/// clouds have tokens of 30 minutes (`expiration` of openstack/keystone: `keystone/conf/token.py`).
pub(super) const TOKEN_MINUTES: i64 = 20;
/// The validity of a temporary URL in seconds. The config is fetched at the first boot.
const FETCHABLE: i64 = 2 * 3600;
/// The header with the key of a container's temporary URLs. Only members who may write to the container see it.
const KEY: &str = "X-Container-Meta-Temp-URL-Key";

/// Where a config is stored.
struct Place {
    url: String,
    /// The header that authorizes the request.
    token: Option<String>,
}

fn rejected(message: String) -> BackendError {
    BackendError::new(BackendErrorKind::Rejected, message)
}

/// The container for the objects of a cluster.
fn container(cluster: &ClusterId) -> String {
    format!("{TAG}-{}", cluster.tag())
}

impl OpenStack {
    /// The user data in base64. A config that is too large is replaced by one that fetches it.
    pub(super) async fn user_data(&self, spec: &MachineSpec) -> Result<String, BackendError> {
        let bytes = match &spec.payload {
            Payload::CloudInit { user_data, .. } => user_data.as_bytes(),
            Payload::Ignition(config) => config,
        };
        let fits = |bytes: &[u8]| {
            Carrier::USER_DATA
                .max_config_bytes()
                .is_none_or(|room| bytes.len() <= room)
        };
        if fits(bytes) {
            return Ok(STANDARD.encode(bytes));
        }
        let too_large = |bytes: usize| {
            let room = Carrier::USER_DATA.max_config_bytes().unwrap_or_default();
            let message = format!(
                "the user data of {} has {bytes} bytes, the limit of Nova is {room}",
                spec.name
            );
            BackendError::new(BackendErrorKind::TooLarge, message)
        };
        if !matches!(spec.payload, Payload::Ignition(_)) {
            return Err(too_large(bytes.len()));
        }
        let stub = self.store_config(spec, bytes).await?;
        match fits(&stub) {
            true => Ok(STANDARD.encode(stub)),
            false => Err(too_large(stub.len())),
        }
    }

    /// Stores a config, and returns a small config that fetches it.
    ///
    /// The small config verifies the digest. Token and URL expire; the content is deleted with the machine.
    async fn store_config(&self, spec: &MachineSpec, config: &[u8]) -> Result<Vec<u8>, BackendError> {
        let document: Value = serde_json::from_slice(config)
            .map_err(|error| rejected(format!("the config of {} is not JSON: {error}", spec.name)))?;
        let version = version(&document).map_err(|error| rejected(error.to_string()))?;
        // Content of an interrupted attempt may be incomplete.
        self.delete_images(&spec.cluster, Some(&spec.name)).await?;
        let place = match self.config.ignition {
            OsIgnition::Swift => self.put_object(spec, config).await?,
            OsIgnition::Glance => self.put_image(spec, config).await?,
            OsIgnition::Auto => match self.put_image(spec, config).await {
                Err(failure)
                    if matches!(failure.kind, BackendErrorKind::Denied | BackendErrorKind::Quota)
                        && self.session.has(SWIFT).await? =>
                {
                    self.put_object(spec, config).await?
                }
                place => place?,
            },
        };
        let headers: Vec<_> = place
            .token
            .iter()
            .map(|token| ("X-Auth-Token", token.as_str()))
            .collect();
        let stub = stub(&Stub {
            version,
            url: &place.url,
            headers: &headers,
            sha512: &sha512(config),
            gzip: false,
            ca: self.session.ca(),
        });
        Ok(stub
            .map_err(|error| rejected(error.to_string()))?
            .to_string()
            .into_bytes())
    }

    async fn put_image(&self, spec: &MachineSpec, config: &[u8]) -> Result<Place, BackendError> {
        let token = self.session.separate_token().await?;
        if token.minutes_left() < TOKEN_MINUTES {
            self.revoke(&token.value).await;
            return Err(short_lived(&self.session, token.minutes_left()));
        }
        let key = (spec.cluster.clone(), spec.name.clone());
        lock(&self.content_tokens).insert(key, Arc::clone(&token.value));
        let image = json!({
            "name": format!("{}-ignition", spec.name),
            "disk_format": "raw",
            "container_format": "bare",
            "visibility": "private",
            "tags": [TAG, spec.cluster],
            CONTENT: spec.name,
        });
        let created = match self.session.post(GLANCE, "/images", &image).await {
            Ok(created) => created,
            Err(failure) => {
                self.revoke_tokens(&spec.cluster, Some(&spec.name)).await;
                return Err(failure);
            }
        };
        let id = text(&created, "id");
        if let Err(failure) = self.send_image(id, body(config)).await {
            self.delete_images(&spec.cluster, Some(&spec.name)).await?;
            return Err(failure);
        }
        Ok(Place {
            url: format!("{}/images/{id}/file", self.session.public_endpoint(GLANCE).await?),
            token: Some(token.value.expose_secret().to_owned()),
        })
    }

    async fn put_object(&self, spec: &MachineSpec, config: &[u8]) -> Result<Place, BackendError> {
        let _turn = self.swift.lock().await;
        self.delete_objects_in_turn(&spec.cluster, Some(&spec.name)).await?;
        let container = container(&spec.cluster);
        let (key, name) = (self.key_of(&container).await?, random()?);
        let object = format!("{container}/{}/{name}", spec.name);
        let seconds = FETCHABLE.to_string();
        let headers = [
            ("Content-Type", "application/json"),
            ("X-Delete-After", seconds.as_str()),
        ];
        self.session
            .send_bytes(SWIFT, &format!("/{object}"), body(config), &headers)
            .await?;
        let endpoint = self.session.public_endpoint(SWIFT).await?;
        let path = format!("{}/{object}", path_of(&endpoint));
        let expires = Timestamp::now().as_second() + FETCHABLE;
        let signature = hmac_sha256(key, format!("GET\n{expires}\n{path}"));
        let url = format!("{endpoint}/{object}?temp_url_sig={signature}&temp_url_expires={expires}");
        // Without access, the bootstrap machine would retry forever.
        if !self.session.is_fetchable(&url).await? {
            let message = format!(
                "{} does not support temporary URLs",
                super::auth::Service::Object.name()
            );
            return Err(BackendError::new(BackendErrorKind::Denied, message).hint(
                "set os_ignition=glance; Swift supports them with the middleware tempurl and sha256 in its proxy, \
                     Ceph's RADOS Gateway only with a key of the account, which is shared with its other users and not \
                     set by this program",
            ));
        }
        Ok(Place { url, token: None })
    }

    /// The key of the temporary URLs of a container, which is created if it does not exist.
    ///
    /// A new key would invalidate the URLs of machines that have not fetched their config yet
    /// (openstack/swift: `swift/common/middleware/tempurl.py`, `_get_keys`).
    async fn key_of(&self, container: &str) -> Result<String, BackendError> {
        let path = format!("/{container}");
        if let Some(key) = self.session.header(SWIFT, &path, KEY).await? {
            return Ok(key);
        }
        let key = random()?;
        let headers = [(KEY, key.as_str())];
        self.session.send_bytes(SWIFT, &path, body(&[]), &headers).await?;
        Ok(key)
    }

    /// A list of Swift; `None` if nothing can have been stored there.
    async fn listed_in_swift(&self, path: &str) -> Result<Option<Value>, BackendError> {
        match self.config.ignition {
            OsIgnition::Glance => Ok(None),
            OsIgnition::Swift | OsIgnition::Auto => {
                Ok(self.if_used(SWIFT, self.session.find(SWIFT, path)).await?.flatten())
            }
        }
    }

    /// The names of the cluster's objects with their container, then the name of the container.
    pub(super) async fn objects_of(&self, cluster: &ClusterId) -> Result<Vec<String>, BackendError> {
        let container = container(cluster);
        let Some(found) = self.listed_in_swift(&format!("/{container}?format=json")).await? else {
            return Ok(Vec::new());
        };
        let objects = found.as_array().into_iter().flatten();
        let (ours, others): (Vec<_>, Vec<_>) = objects
            .map(|object| text(object, "name"))
            .partition(|name| is_ours(name));
        let mut names: Vec<_> = ours.iter().map(|name| format!("{container}/{name}")).collect();
        // Objects of other users keep the container.
        if others.is_empty() {
            names.push(container);
        }
        Ok(names)
    }

    /// The clusters that have a container.
    pub(super) async fn containers(&self) -> Result<Vec<ClusterId>, BackendError> {
        let found = self.listed_in_swift("?format=json").await?;
        let all = found.as_ref().and_then(Value::as_array).into_iter().flatten();
        let of = |container: &Value| ClusterId::read(text(container, "name").strip_prefix(TAG)?.strip_prefix('-')?);
        Ok(all.filter_map(of).collect())
    }

    /// Deletes the stored configs of one machine, or of all machines of a cluster.
    pub(super) async fn delete_content(
        &self,
        cluster: &ClusterId,
        name: Option<&MachineName>,
    ) -> Result<bool, BackendError> {
        let images = self.delete_images(cluster, name).await?;
        Ok(self.delete_objects_of(cluster, name).await? || images)
    }

    async fn delete_images(&self, cluster: &ClusterId, name: Option<&MachineName>) -> Result<bool, BackendError> {
        let mut changed = false;
        for image in self.images_of(cluster).await? {
            let fetched_by = image[CONTENT].as_str();
            if fetched_by.is_some_and(|machine| name.is_none_or(|name| name.as_str() == machine)) {
                changed |= self
                    .session
                    .delete(GLANCE, &format!("/images/{}", text(&image, "id")))
                    .await?;
            }
        }
        self.revoke_tokens(cluster, name).await;
        Ok(changed)
    }

    /// Revokes the tokens in the user data of one machine, or of all machines of a cluster. Those of an interrupted run
    /// are unknown, and expire.
    async fn revoke_tokens(&self, cluster: &ClusterId, name: Option<&MachineName>) {
        let is_meant =
            |(of, machine): &(ClusterId, MachineName)| of == cluster && name.is_none_or(|name| name == machine);
        let tokens: Vec<_> = {
            let mut all = lock(&self.content_tokens);
            let keys: Vec<_> = all.keys().filter(|key| is_meant(key)).cloned().collect();
            keys.iter().filter_map(|key| all.remove(key)).collect()
        };
        for token in tokens {
            self.revoke(&token).await;
        }
    }

    /// A token that cannot be revoked expires: that is no reason to fail.
    pub(super) async fn revoke(&self, token: &SecretString) {
        if let Err(failure) = self.session.revoke(token).await {
            warn!(
                "the token of a machine was not revoked, and is valid until it expires: {}",
                failure.message
            );
        }
    }

    async fn delete_objects_of(&self, cluster: &ClusterId, name: Option<&MachineName>) -> Result<bool, BackendError> {
        let _turn = self.swift.lock().await;
        self.delete_objects_in_turn(cluster, name).await
    }

    async fn delete_objects_in_turn(
        &self,
        cluster: &ClusterId,
        name: Option<&MachineName>,
    ) -> Result<bool, BackendError> {
        let mut changed = false;
        for object in self.objects_of(cluster).await? {
            let machine = object.split('/').nth(1);
            let is_meant = name.is_none_or(|name| machine.is_none_or(|machine| machine == name.as_str()));
            if is_meant {
                let path = object.split('/').map(escape).collect::<Vec<_>>().join("/");
                changed |= match self.session.delete(SWIFT, &format!("/{path}")).await {
                    // The container still has objects of other machines.
                    Err(failure) if failure.kind == BackendErrorKind::Conflict && machine.is_none() => false,
                    deleted => deleted?,
                };
            }
        }
        Ok(changed)
    }
}

/// A machine may not have fetched its config when this token expires.
pub(super) fn short_lived(session: &OpenStackSession, minutes: i64) -> BackendError {
    let cloud = session.name();
    let message = format!(
        "a new token of {cloud} is valid for {minutes} min; machines need {TOKEN_MINUTES} min to fetch their configs with it"
    );
    BackendError::new(BackendErrorKind::Denied, message).hint(match session.has_only_a_token() {
        true => {
            "sign in with a password or an application credential instead of a token, or set os_ignition=swift, which \
             needs no token"
        }
        false => {
            "ask the administrator of the cloud for a longer `expiration` of Keystone's tokens, or set \
             os_ignition=swift, which needs no token"
        }
    })
}

/// The bytes of an upload, and their number.
fn body(bytes: &[u8]) -> (Cursor<Vec<u8>>, u64) {
    (Cursor::new(bytes.to_vec()), bytes.len() as u64)
}

/// Whether `put_object` creates such names: the name of a machine and 32 digits.
fn is_ours(object: &str) -> bool {
    let digits = |text: &str| text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    object
        .split_once('/')
        .is_some_and(|(machine, rest)| !machine.is_empty() && digits(rest))
}

/// 32 random hex digits.
fn random() -> Result<String, BackendError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| rejected(format!("get random bytes: {error}")))?;
    Ok(hex(&bytes))
}

/// The path of a URL, which is part of the signature of a temporary URL.
fn path_of(url: &str) -> &str {
    let from = url.find("://").map_or(0, |at| at + 3);
    url[from..].find('/').map_or("", |at| &url[from + at..])
}
