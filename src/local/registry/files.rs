//! The files of a registry process: its configuration, the certificate, and the nodes' password.

use std::io;
use std::net::Ipv4Addr;

use anyhow::{Result, anyhow};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::state::home::write_private;
use crate::state::registry_cache::{CacheDir, CachedRegistry, RegistryCache, USER};

/// Random bytes of a password: too many to be guessed, even with a fast hash.
const PASSWORD_BYTES: usize = 24;

/// bcrypt's lowest cost, because each request of a node computes the hash.
const HASH_COST: u32 = 4;

/// User and password for an upstream registry.
#[derive(Clone, Deserialize, PartialEq, Eq, Serialize)]
pub struct Credentials {
    pub username: String,
    pub password: String,
}

/// The configuration of a registry (distribution/distribution: `docs/configuration.md`), as JSON, which is YAML.
///
/// * `storage.delete` stays off: a cache deletes what it fetched after 7 days, but only where deletion is enabled
///   (`registry/proxy/proxyregistry.go`, `registry/storage/linkedblobstore.go`). `cache prune` decides instead.
/// * `storage.cache` stays off: it would remember blobs that `cache prune` has removed.
/// * Without the upstream registry the process does not start (`registry/proxy/proxyauth.go` queries it). Offline it is
///   a plain registry of the same content, which accepts no uploads.
pub(super) fn configuration(
    dir: &CacheDir,
    cache: &RegistryCache,
    registry: &CachedRegistry,
    upstream: Option<&Upstream>,
) -> Value {
    let root = cache.storage.join(registry.folder_name());
    let mut configuration = json!({
        "version": "0.1",
        "log": {"level": "warn", "accesslog": {"disabled": true}},
        "storage": {
            "filesystem": {"rootdirectory": root},
            "maintenance": {"uploadpurging": {"enabled": true, "age": "24h", "interval": "24h", "dryrun": false}},
        },
        "http": {
            "addr": cache.endpoint(registry),
            "tls": {"certificate": dir.certificate(), "key": dir.key()},
        },
        "auth": {"htpasswd": {"realm": "ocpdeploy", "path": dir.users()}},
    });
    match upstream {
        Some(upstream) => configuration["proxy"] = json!(upstream),
        None => configuration["storage"]["maintenance"]["readonly"] = json!({"enabled": true}),
    }
    configuration
}

/// The part of the configuration that makes a registry a cache.
#[derive(Clone, Deserialize, PartialEq, Eq, Serialize)]
pub struct Upstream {
    pub(super) remoteurl: String,
    #[serde(flatten)]
    pub credentials: Option<Credentials>,
}

impl Upstream {
    pub fn new(registry: &CachedRegistry, credentials: Option<Credentials>) -> Self {
        Self {
            remoteurl: format!("https://{}", registry.upstream),
            credentials,
        }
    }

    /// Reads it from the text of a configuration.
    pub(super) fn of(configuration: &str) -> Option<Self> {
        let configuration: Value = serde_json::from_str(configuration).ok()?;
        serde_json::from_value(configuration.get("proxy")?.clone()).ok()
    }
}

/// The credentials of a registry in a pull secret (containers/image: `docs/containers-auth.json.5.md`): those of the
/// registry, else those of the first of its namespaces.
pub fn credentials(pull_secret: &str, upstream: &str) -> Option<Credentials> {
    use base64::Engine as _;
    let secret: Value = serde_json::from_str(pull_secret).ok()?;
    let auths = secret.get("auths")?.as_object()?;
    let of_namespace = |name: &&String| {
        let rest = name.strip_prefix(upstream);
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    let entry = auths
        .get(upstream)
        .or_else(|| auths.get(auths.keys().find(of_namespace)?));
    let auth = base64::engine::general_purpose::STANDARD
        .decode(entry?.get("auth")?.as_str()?)
        .ok()?;
    let (username, password) = std::str::from_utf8(&auth).ok()?.split_once(':')?;
    Some(Credentials {
        username: username.to_owned(),
        password: password.to_owned(),
    })
}

/// A new password.
pub(super) fn password() -> io::Result<String> {
    let mut bytes = [0; PASSWORD_BYTES];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes the password's hash, the only kind that registries read (distribution/distribution:
/// `registry/auth/htpasswd/htpasswd.go`).
pub(super) fn write_users(dir: &CacheDir, password: &str) -> Result<()> {
    let hash = bcrypt::hash(password, HASH_COST)
        .map_err(|error| anyhow!("hash the password of the registry cache: {error}"))?;
    write_private(&dir.users(), format!("{USER}:{hash}\n").as_bytes())?;
    Ok(())
}

/// Writes a certificate for the address, its key, and the authority that signed it.
///
/// Clusters trust the authority for every name, so its key is discarded: nothing else can be signed with it. It is a
/// CA because OpenShift trusts no other certificates. Both certificates are valid long enough for nodes with wrong
/// clocks; after they have expired, a cluster pulls from upstream.
pub(super) fn write_certificates(dir: &CacheDir, address: Ipv4Addr) -> Result<()> {
    let params = |name: &str, hosts: Vec<String>| {
        let mut params = CertificateParams::new(hosts)?;
        params.distinguished_name.push(DnType::OrganizationName, "ocpdeploy");
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2049, 12, 31);
        anyhow::Ok(params)
    };
    let mut authority = params(&format!("registry cache {address} CA"), vec![])?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority_key = KeyPair::generate()?;
    let ca = authority.self_signed(&authority_key)?;
    let mut server = params(&format!("registry cache {address}"), vec![address.to_string()])?;
    server.use_authority_key_identifier_extension = true;
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = server.signed_by(&key, &Issuer::new(authority, authority_key))?;
    write_private(&dir.key(), key.serialize_pem().as_bytes())?;
    write_private(&dir.certificate(), certificate.pem().as_bytes())?;
    write_private(&dir.authority(), ca.pem().as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::home::Home;

    #[test]
    fn credentials_are_those_of_the_registry() {
        let secret = r#"{"auths": {
            "quay.io": {"auth": "bWU6c2VjOnJldA=="},
            "registry.example.com:8443/ocp": {"auth": "YTpi"},
            "broken.example.com": {"auth": "!"},
            "fake": {"auth": "aWQ6cGFzcwo="}}}"#;
        let found =
            |upstream| credentials(secret, upstream).map(|found| format!("{} {}", found.username, found.password));
        assert_eq!(found("quay.io").as_deref(), Some("me sec:ret"));
        assert_eq!(found("registry.example.com:8443").as_deref(), Some("a b"));
        for none in ["quay.io:443", "registry.example.com", "broken.example.com", "quay"] {
            assert_eq!(found(none), None, "{none}");
        }
    }

    #[test]
    fn a_registry_never_deletes_and_is_read_only_without_upstream() {
        let dir = CacheDir::of(&Home::new("/home"));
        let mut cache = RegistryCache::new(Ipv4Addr::new(192, 0, 2, 1), "/big".into(), String::new());
        let registry = CachedRegistry {
            upstream: "quay.io".to_owned(),
            port: 5443,
            repositories: vec!["quay.io/okd".to_owned()],
        };
        cache.registries.push(registry.clone());
        let upstream = Upstream::new(
            &registry,
            Some(Credentials {
                username: "me".to_owned(),
                password: "secret".to_owned(),
            }),
        );
        let online = configuration(&dir, &cache, &registry, Some(&upstream));
        assert_eq!(
            online["proxy"],
            json!({"remoteurl": "https://quay.io", "username": "me", "password": "secret"})
        );
        assert_eq!(online["http"]["addr"], "192.0.2.1:5443");
        assert_eq!(online["storage"]["filesystem"]["rootdirectory"], "/big/quay.io");
        assert!(Upstream::of(&online.to_string()) == Some(upstream));
        let offline = configuration(&dir, &cache, &registry, None);
        assert_eq!(offline["storage"]["maintenance"]["readonly"]["enabled"], true);
        assert!(offline.get("proxy").is_none() && Upstream::of(&offline.to_string()).is_none());
        for configuration in [online, offline] {
            let storage = &configuration["storage"];
            assert!(storage.get("delete").is_none() && storage.get("cache").is_none());
        }
    }
}
