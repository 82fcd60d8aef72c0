//! The registry cache of this computer: its directory in the state directory, and the file that describes it.
//!
//! `$OCPDEPLOY_HOME/registry-cache/` outlives the clusters and is shared by them.

use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::{Deserialize, Serialize};

use super::dir::Dir;
use super::home::{Home, create_state_dir, write_private};

/// Version of the file.
const VERSION: u32 = 1;

/// The user that nodes pull as.
pub const USER: &str = "ocpdeploy";

/// The directory with the CA certificates of the upstream registries. A registry's directory is named after its host, which
/// has no underscore.
pub const AUTHORITIES: &str = "upstream_ca";

/// The directory of the cache.
#[derive(Clone, Debug)]
pub struct CacheDir {
    path: PathBuf,
}

/// The content of `cache.json`. It contains a secret.
#[derive(Clone, Deserialize, PartialEq, Eq, Serialize)]
pub struct RegistryCache {
    v: u32,
    /// False after `cache down`: later clusters do not use it.
    pub enabled: bool,
    /// The address at which nodes reach this computer.
    pub address: Ipv4Addr,
    /// The directory of the content.
    pub storage: PathBuf,
    /// The password of `USER`; nodes get it in their pull secret.
    pub password: String,
    pub registries: Vec<CachedRegistry>,
}

/// One upstream registry. A separate process caches it, on its own port.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct CachedRegistry {
    /// E.g. `quay.io`, with a port if it is not 443.
    pub upstream: String,
    pub port: u16,
    /// What nodes pull through the cache, e.g. `quay.io/openshift-release-dev`.
    pub repositories: Vec<String>,
}

impl RegistryCache {
    pub fn new(address: Ipv4Addr, storage: PathBuf, password: String) -> Self {
        Self {
            v: VERSION,
            enabled: true,
            address,
            storage,
            password,
            registries: Vec::new(),
        }
    }

    /// Reads the file's text.
    pub fn parse(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Version {
            v: u32,
        }
        let Version { v } = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if v != VERSION {
            return Err(format!(
                "another version of ocpdeploy wrote it (version {v} of the file)"
            ));
        }
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// Where nodes find a registry's content, e.g. `192.168.122.1:5443`.
    pub fn endpoint(&self, registry: &CachedRegistry) -> String {
        format!("{}:{}", self.address, registry.port)
    }
}

impl CachedRegistry {
    /// The name of its directory: without a port's colon.
    pub fn folder_name(&self) -> String {
        self.upstream.replace(':', "_")
    }

    /// The part of a repository after the registry's name; empty for the whole registry.
    pub fn path_of<'a>(&self, repository: &'a str) -> &'a str {
        repository.strip_prefix(self.upstream.as_str()).unwrap_or_default()
    }
}

impl CacheDir {
    /// The directory in a state directory, which need not exist.
    pub fn of(home: &Home) -> Self {
        Self::at(home.root())
    }

    /// As `of`, by the state directory's path.
    pub fn at(home: &Path) -> Self {
        Self {
            path: home.join("registry-cache"),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn description(&self) -> PathBuf {
        self.path.join("cache.json")
    }

    /// The certificate that nodes trust; its key is not kept.
    pub fn authority(&self) -> PathBuf {
        self.path.join("ca.pem")
    }

    /// The CA certificates of the upstream registries, in a directory of their own.
    pub fn upstream_authorities(&self) -> PathBuf {
        self.path.join(AUTHORITIES).join("ca.pem")
    }

    pub fn certificate(&self) -> PathBuf {
        self.path.join("server.pem")
    }

    pub fn key(&self) -> PathBuf {
        self.path.join("server.key")
    }

    /// Whether the cache runs on this computer. Of another computer's cache, only the description and the authority's
    /// certificate were copied here.
    pub fn is_own(&self) -> bool {
        self.key().exists()
    }

    /// User and hashed password, in Apache's format.
    pub fn users(&self) -> PathBuf {
        self.path.join("htpasswd")
    }

    /// The content's directory unless another one was chosen.
    pub fn storage(&self) -> PathBuf {
        self.path.join("storage")
    }

    /// The files of one registry: configuration, log, process.
    pub fn registry(&self, registry: &CachedRegistry) -> PathBuf {
        self.path.join(registry.folder_name())
    }

    pub fn create(&self) -> io::Result<()> {
        create_state_dir(&self.path)?;
        Dir::open_no_link(&self.path)?.set_mode(0o700)
    }

    /// The cache that this directory describes, of this computer or copied from another one; `None` if there is none.
    pub fn read(&self) -> io::Result<Option<RegistryCache>> {
        let path = self.description();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let bad = |why| io::Error::new(ErrorKind::InvalidData, format!("cannot use {}: {why}", path.display()));
        RegistryCache::parse(&text).map(Some).map_err(bad)
    }

    pub fn write(&self, cache: &RegistryCache) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(cache)?;
        text.push(b'\n');
        write_private(&self.description(), &text)
    }

    /// Locks the cache against changes by other processes; waits for the lock.
    pub fn lock(&self) -> io::Result<std::fs::File> {
        self.create()?;
        let path = self.path.join("lock");
        let file =
            Dir::open_no_link(&self.path)?.file("lock", rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CREATE)?;
        file.lock()
            .map_err(|error| io::Error::new(error.kind(), format!("cannot lock {}: {error}", path.display())))?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_version_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let dir = CacheDir::of(&Home::new(folder.path()));
        assert!(dir.read().unwrap().is_none());
        let mut cache = RegistryCache::new(Ipv4Addr::LOCALHOST, dir.storage(), "secret".to_owned());
        cache.registries.push(CachedRegistry {
            upstream: "registry.example.com:8443".to_owned(),
            port: 5443,
            repositories: vec!["registry.example.com:8443/ocp".to_owned()],
        });
        dir.create().unwrap();
        dir.write(&cache).unwrap();
        assert!(dir.read().unwrap() == Some(cache.clone()));
        let registry = &cache.registries[0];
        assert_eq!(registry.folder_name(), "registry.example.com_8443");
        assert_eq!(registry.path_of(&registry.repositories[0]), "/ocp");
        assert_eq!(cache.endpoint(registry), "127.0.0.1:5443");
        for (text, expected) in [
            (r#"{"v": 2}"#, "version 2 of the file"),
            ("{", "EOF"),
            (r#"{"v": 1}"#, "missing field"),
        ] {
            std::fs::write(dir.description(), text).unwrap();
            let error = dir.read().err().unwrap().to_string();
            assert!(error.contains(expected) && error.contains("cache.json"), "{error}");
        }
    }
}
