//! The registry cache of this computer, as the nodes of a cluster use it.

use std::io;

use secrecy::SecretString;

use super::sources::io_reason;
use super::values::Values;
use crate::cluster::{CacheUse, NodeCache, RegistryMirror};
use crate::state::registry_cache::{CacheDir, RegistryCache, USER};

/// The cache, if the setting allows it and `cache up` has set it up. A rehearsal pulls no images.
///
/// Nodes without IPv4 cannot reach it: an image name cannot contain an IPv6 address (containers/image:
/// `docker/reference/regexp.go`).
pub(super) fn registry_cache(values: &mut Values<'_>, is_ipv6_only: bool) -> Option<Option<NodeCache>> {
    let wanted: CacheUse = values.choice("registry_cache")?;
    if wanted == CacheUse::Off || values.sources.rehearse {
        return Some(None);
    }
    let dir = CacheDir::at(&values.sources.home);
    let read = |path| (values.sources.read_file)(path);
    let path = dir.description();
    let text = match read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(None),
        text => text,
    };
    let parsed = text
        .map_err(|error| io_reason(&error))
        .and_then(|text| RegistryCache::parse(&text));
    let cache = match parsed {
        Ok(cache) if !cache.enabled => return Some(None),
        Ok(_) if is_ipv6_only => {
            values.warn(
                "registry_cache",
                "the registry cache is not used: nodes without IPv4 cannot reach it",
            );
            return Some(None);
        }
        Ok(cache) => read(&dir.authority())
            .map(|ca| node_cache(&cache, ca))
            .map_err(|error| (dir.authority(), io_reason(&error))),
        Err(why) => Err((path, why)),
    };
    match cache {
        Ok(cache) => Some(Some(cache)),
        Err((path, why)) => {
            let message = format!("cannot use the registry cache: {}: {why}", path.display());
            let help = "run `ocpdeploy cache up` again, or set registry_cache=off";
            values.problem(&["registry_cache"], message, help);
            None
        }
    }
}

fn node_cache(cache: &RegistryCache, ca: String) -> NodeCache {
    let mirrors = cache.registries.iter().flat_map(|registry| {
        registry.repositories.iter().map(|source| RegistryMirror {
            source: source.clone(),
            mirrors: vec![format!("{}{}", cache.endpoint(registry), registry.path_of(source))],
        })
    });
    NodeCache {
        address: cache.address,
        ca,
        user: USER.to_owned(),
        password: SecretString::from(cache.password.clone()),
        mirrors: mirrors.collect(),
    }
}
