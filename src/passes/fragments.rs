//! Reads the user's own Ignition configs.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fs_err as fs;
use serde_json::Value;

use crate::backend::{Carrier, Finding};
use crate::cluster::{ClusterConfig, Dhcp, FragmentSource, NodeName, Role};
use crate::digest::sha256;
use crate::error::{ErrorKind, OperationError};
use crate::ignition::contents;
use crate::limited_file;
use crate::node::budget::{self, TooLarge};
use crate::node::config::Fragment;

/// A profile's directories of Ignition configs, in the order in which they are merged.
const FOLDERS: [(&str, Option<Role>); 5] = [
    ("all", None),
    ("bootstrap", Some(Role::Bootstrap)),
    ("master", Some(Role::Master)),
    ("arbiter", Some(Role::Arbiter)),
    ("worker", Some(Role::Worker)),
];

/// All fragments, lowest precedence first. They may contain secrets.
pub(super) fn read(config: &ClusterConfig) -> Result<Vec<Fragment>> {
    let mut fragments = Vec::new();
    for source in &config.fragments {
        match source {
            FragmentSource::File { role, path } => {
                fragments.push(read_one(format!("ignition_extra: {}", path.display()), *role, path)?);
            }
            FragmentSource::Folder { profile, path } => {
                for (name, role) in FOLDERS {
                    for file in ign_files(&path.join(name))? {
                        let shown = file.strip_prefix(path).unwrap_or(&file).display();
                        fragments.push(read_one(format!("profile {profile}, nodes/{shown}"), role, &file)?);
                    }
                }
            }
        }
    }
    Ok(fragments)
}

/// Rejects a fragment that exceeds the carrier's limit by itself. Whether a node's config fits is checked after the
/// merge.
pub(super) fn refuse_too_large(
    config: &ClusterConfig,
    fragments: &[Fragment],
    carrier: impl Fn(Role) -> Carrier,
) -> Result<(), OperationError> {
    for node in config.nodes() {
        let carrier = carrier(node.place);
        if carrier.fetches {
            continue;
        }
        let of_role = fragments
            .iter()
            .filter(|fragment| fragment.role.is_none_or(|only| only == node.role));
        for fragment in of_role {
            if let Err(too_large) = budget::fit(&carrier, fragment.content.clone()) {
                return Err(self::too_large(&node.name, &too_large));
            }
        }
    }
    Ok(())
}

/// The error for a node's config that exceeds the carrier's limit.
pub(super) fn too_large(node: &NodeName, why: &TooLarge) -> OperationError {
    OperationError::new(ErrorKind::Tool, format!("the Ignition config of {node} is {why}"))
        .hint("remove files from your own configs, or make them smaller")
}

/// The fragments from which nodes would fetch before they have an address, on a network without a DHCP server.
pub(super) fn fetched(config: &ClusterConfig, fragments: &[Fragment]) -> Vec<Finding> {
    if config.dhcp != Dhcp::None {
        return Vec::new();
    }
    let fetched = |fragment: &Fragment| {
        let value: Value = serde_json::from_slice(&fragment.content).ok()?;
        let url = contents::fetched(&value)?;
        Some(
            Finding::fail(format!("{}: fetches {url}, but dhcp=none", fragment.origin))
                .hint("embed the content as a data URL: nodes have no address before they apply it"),
        )
    };
    fragments.iter().filter_map(fetched).collect()
}

fn read_one(origin: String, role: Option<Role>, path: &Path) -> Result<Fragment> {
    let content = limited_file::read(path);
    let content = content.with_context(|| format!("read your Ignition config {}", path.display()))?;
    Ok(Fragment { origin, role, content })
}

/// The directory's files that end in `.ign`, by name; a missing directory has none.
fn ign_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "ign") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Identifies the user's own files for nodes without revealing their content.
pub(super) fn fingerprints(config: &ClusterConfig, fragments: &[Fragment]) -> Vec<(String, Option<Role>, String)> {
    let fragments = fragments.iter().map(|fragment| {
        let origin = fragment.origin.clone();
        (origin, fragment.role, sha256(&fragment.content))
    });
    let networks = config.network_config.iter().map(|file| {
        let origin = format!("network_config of {}", file.nodes);
        (origin, None, sha256(&file.text))
    });
    fragments.chain(networks).collect()
}
