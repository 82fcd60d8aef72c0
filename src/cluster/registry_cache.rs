//! Registry mirrors, and the registry cache that a cluster's nodes pull through.

use std::net::Ipv4Addr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// An alternative location of a registry's images.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RegistryMirror {
    pub source: String,
    /// In the order of attempts.
    pub mirrors: Vec<String>,
}

/// Whether nodes pull through the registry cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheUse {
    /// If this computer has one.
    Auto,
    Off,
}

/// The registry cache. Nodes pull from the source if it does not answer.
///
/// It is not part of `asset_fingerprint`: the installer's files remain valid when a cache is added or removed.
#[derive(Clone, Debug)]
pub struct NodeCache {
    pub address: Ipv4Addr,
    /// PEM text of its certificate.
    pub ca: String,
    pub user: String,
    pub password: SecretString,
    pub mirrors: Vec<RegistryMirror>,
}

impl NodeCache {
    /// Adds its mirrors after the existing mirrors of each source.
    pub fn add_mirrors(&self, all: &mut Vec<RegistryMirror>) {
        for cached in &self.mirrors {
            match all.iter_mut().find(|known| known.source == cached.source) {
                Some(known) => known.mirrors.extend(cached.mirrors.iter().cloned()),
                None => all.push(cached.clone()),
            }
        }
    }

    /// A pull secret, extended by the credentials for the cache.
    pub fn add_credentials(&self, pull_secret: &SecretString) -> SecretString {
        let mut secret: Value = serde_json::from_str(pull_secret.expose_secret()).unwrap_or_default();
        let auth = STANDARD.encode(format!("{}:{}", self.user, self.password.expose_secret()));
        for mirror in self.mirrors.iter().flat_map(|mirror| &mirror.mirrors) {
            let endpoint = mirror.split('/').next().unwrap_or_default();
            secret["auths"][endpoint] = json!({"auth": auth});
        }
        secret.to_string().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::ClusterConfig;

    fn mirror(source: &str, mirrors: &[&str]) -> RegistryMirror {
        RegistryMirror {
            source: source.to_owned(),
            mirrors: mirrors.iter().map(|&mirror| mirror.to_owned()).collect(),
        }
    }

    #[test]
    fn the_cache_is_added_to_what_the_user_has_set() {
        let mut config = ClusterConfig::example();
        let before = config.asset_fingerprint();
        assert_eq!((config.mirrors(), config.trusted()), (vec![], None));
        assert_eq!(config.node_pull_secret().expose_secret(), r#"{"auths":{}}"#);
        config.registry_cache = Some(NodeCache {
            address: Ipv4Addr::new(192, 0, 2, 1),
            ca: "CACHE\n".to_owned(),
            user: "ocpdeploy".to_owned(),
            password: "secret".into(),
            mirrors: vec![
                mirror("quay.io/okd", &["192.0.2.1:5443/okd"]),
                mirror("registry.example.com", &["192.0.2.1:5444"]),
            ],
        });
        assert_eq!(config.asset_fingerprint(), before);
        assert_eq!(config.trusted().as_deref(), Some("CACHE\n"));
        config.ca = Some("OWN\n".to_owned());
        config.registry_mirrors = vec![mirror("quay.io/okd", &["m.example.com/okd"])];
        assert_eq!(config.trusted().as_deref(), Some("OWN\nCACHE\n"));
        assert_eq!(
            config.mirrors(),
            [
                mirror("quay.io/okd", &["m.example.com/okd", "192.0.2.1:5443/okd"]),
                mirror("registry.example.com", &["192.0.2.1:5444"]),
            ]
        );
        let secret: Value = serde_json::from_str(config.node_pull_secret().expose_secret()).unwrap();
        let auth = json!({"auth": "b2NwZGVwbG95OnNlY3JldA=="});
        assert_eq!(
            secret,
            json!({"auths": {"192.0.2.1:5443": auth, "192.0.2.1:5444": auth}})
        );
    }
}
