//! Manifests added to the installer's own.

use std::path::PathBuf;

use anyhow::Context;
use fs_err as fs;

use crate::cluster::ClusterConfig;
use crate::digest::sha256;
use crate::limited_file;
use crate::node::services::{Combined, Manifest, UserManifest, combine};

/// The user's manifests by name, and those of oc-mirror. The installer reads only files with these extensions.
fn read_manifests(config: &ClusterConfig) -> anyhow::Result<Vec<UserManifest>> {
    let mut paths = Vec::new();
    if let Some(folder) = &config.manifests {
        for entry in fs::read_dir(folder)? {
            paths.push(entry?.path());
        }
    }
    // A file of the user with the same name is a copy, perhaps a modified one.
    let is_new = |path: &&PathBuf| paths.iter().all(|known| known.file_name() != path.file_name());
    let of_mirror: Vec<PathBuf> = config.mirror_manifests.iter().filter(is_new).cloned().collect();
    paths.extend(of_mirror);
    let mut manifests = Vec::new();
    for path in paths {
        let extension = path.extension().and_then(|extension| extension.to_str());
        let name = path.file_name().and_then(|name| name.to_str());
        match (name, extension) {
            (Some(name), Some("yaml" | "yml" | "json")) => manifests.push(UserManifest {
                name: name.to_owned(),
                content: limited_file::read(&path).with_context(|| format!("read your manifest {}", path.display()))?,
                path,
            }),
            _ => tracing::warn!("ignoring {}: not a manifest (.yaml, .yml, .json)", path.display()),
        }
    }
    manifests.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(manifests)
}

/// The manifests that are added to the installer's own: those of this program and of the user.
pub fn combined_manifests(config: &ClusterConfig, ours: Vec<Manifest>) -> anyhow::Result<Combined> {
    Ok(combine(config, ours, read_manifests(config)?)?)
}

/// A digest of the user's manifests with their content.
pub fn manifests_digest(config: &ClusterConfig) -> anyhow::Result<String> {
    let mut all = String::new();
    for manifest in read_manifests(config)? {
        all += &format!("{} {}\n", sha256(&manifest.content), manifest.name);
    }
    Ok(sha256(all))
}
