//! The registry cache.

use std::path::PathBuf;

use serde::Serialize;

use super::{row, table};
use crate::local::registry::warm::Warmed;
use crate::printable::{count, printable_line};

/// What `cache status` shows.
#[derive(Debug, Serialize)]
pub struct CacheReport {
    /// Whether later clusters use it.
    pub enabled: bool,
    /// `None` if it is on another computer.
    pub storage: Option<PathBuf>,
    /// Free bytes on the disk of `storage`.
    pub free: Option<u64>,
    pub registries: Vec<RegistryReport>,
}

#[derive(Debug, Serialize)]
pub struct RegistryReport {
    pub upstream: String,
    pub endpoint: String,
    pub state: &'static str,
    pub repositories: Vec<String>,
    pub blobs: usize,
    pub bytes: u64,
    /// Errors since its last start, the latest one last.
    pub errors: Vec<String>,
}

impl CacheReport {
    pub fn text(&self) -> String {
        let head = row([&"REGISTRY", &"ENDPOINT", &"STATE", &"BLOBS", &"SIZE"]);
        let rows = self.registries.iter().map(|registry| {
            row([
                &printable_line(&registry.upstream),
                &registry.endpoint,
                &registry.state,
                &registry.blobs,
                &size(registry.bytes),
            ])
        });
        let mut text = table(&std::iter::once(head).chain(rows).collect::<Vec<_>>());
        if let Some(storage) = &self.storage {
            let used: u64 = self.registries.iter().map(|registry| registry.bytes).sum();
            text += &format!("\n{} in {}", size(used), printable_line(&storage.display().to_string()));
            let free = self.free.map(|free| format!(", {} free", size(free)));
            text += &free.unwrap_or_default();
        }
        let repositories = self.registries.iter().flat_map(|registry| &registry.repositories);
        let repositories: Vec<String> = repositories.map(|name| printable_line(name)).collect();
        text += &match self.enabled {
            true => format!("\nlater clusters pull through it: {}\n", repositories.join(", ")),
            false => "\nlater clusters do not use it\n".to_owned(),
        };
        for registry in &self.registries {
            let upstream = printable_line(&registry.upstream);
            if registry.state == "offline" {
                text += &format!("{upstream} could not be reached; to fetch from it again, run `ocpdeploy cache up`\n");
            }
            if let Some(error) = registry.errors.last() {
                text += &format!("last error of {upstream}: {}\n", printable_line(error));
            }
        }
        text
    }
}

/// What `cache prune` removed or would remove.
#[derive(Debug, Serialize)]
pub struct Pruned {
    pub dry_run: bool,
    pub blobs: usize,
    /// In bytes, without incomplete downloads.
    pub freed: u64,
    pub incomplete: usize,
    /// In bytes.
    pub remaining: u64,
}

impl Pruned {
    pub fn text(&self) -> String {
        let verb = if self.dry_run { "would remove" } else { "removed" };
        let incomplete = match self.incomplete {
            0 => String::new(),
            many => format!(" and {}", count(many, "incomplete download")),
        };
        format!(
            "{verb} {}, {}{incomplete}; {} remain\n",
            count(self.blobs, "blob"),
            size(self.freed),
            size(self.remaining)
        )
    }
}

/// The result of `cache down`.
#[derive(Debug, Serialize)]
pub struct Stopped {
    /// Upstream registries.
    pub stopped: Vec<String>,
    pub deleted: bool,
}

impl Stopped {
    pub fn text(&self) -> String {
        let mut text: String = self
            .stopped
            .iter()
            .map(|upstream| format!("stopped the cache of {}\n", printable_line(upstream)))
            .collect();
        if self.stopped.is_empty() {
            text += "the cache was not running\n";
        }
        if self.deleted {
            text += "deleted its images, certificate and credentials\n";
        }
        text
    }
}

/// The result of `cache warm`.
pub fn warmed(warmed: &Warmed) -> String {
    let skipped = match warmed.skipped {
        0 => String::new(),
        many => format!("; skipped {} of registries that are not cached", count(many, "image")),
    };
    format!(
        "the cache has {} with {}, {}; {} fetched{skipped}\n",
        count(warmed.images, "image"),
        count(warmed.layers, "layer"),
        size(warmed.total),
        size(warmed.fetched)
    )
}

/// In GiB, or MiB below one.
fn size(bytes: u64) -> String {
    match bytes >> 30 {
        0 => format!("{} MiB", bytes.div_ceil(1 << 20)),
        _ => format!("{}.{} GiB", bytes >> 30, ((bytes & ((1 << 30) - 1)) * 10) >> 30),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_sizes_are_not_rounded_to_zero() {
        for (bytes, expected) in [
            (0, "0 MiB"),
            (1, "1 MiB"),
            ((1 << 30) - 1, "1024 MiB"),
            (1 << 30, "1.0 GiB"),
            ((3 << 30) - 1, "2.9 GiB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }

    #[test]
    fn the_status_shows_what_does_not_work() {
        let mut report = CacheReport {
            enabled: true,
            storage: Some("/srv/cache".into()),
            free: Some(200 << 30),
            registries: vec![RegistryReport {
                upstream: "quay.io".to_owned(),
                endpoint: "192.0.2.1:5443".to_owned(),
                state: "running",
                repositories: vec!["quay.io/okd".to_owned()],
                blobs: 560,
                bytes: 18 << 30,
                errors: vec![],
            }],
        };
        insta::assert_snapshot!(report.text(), @r"
        REGISTRY  ENDPOINT        STATE    BLOBS  SIZE
        quay.io   192.0.2.1:5443  running  560    18.0 GiB

        18.0 GiB in /srv/cache, 200.0 GiB free
        later clusters pull through it: quay.io/okd
        ");
        report.enabled = false;
        report.registries[0].state = "offline";
        report.registries[0].errors = vec!["x".to_owned(), "no space left on device".to_owned()];
        insta::assert_snapshot!(report.text(), @r"
        REGISTRY  ENDPOINT        STATE    BLOBS  SIZE
        quay.io   192.0.2.1:5443  offline  560    18.0 GiB

        18.0 GiB in /srv/cache, 200.0 GiB free
        later clusters do not use it
        quay.io could not be reached; to fetch from it again, run `ocpdeploy cache up`
        last error of quay.io: no space left on device
        ");
    }
}
