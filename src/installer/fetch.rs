//! Which openshift-install is taken.
//!
//! The search: the setting `installer`, the cluster's folder, the cache by version, PATH; else a mirror is asked.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use fs_err as fs;
use tracing::{info, warn};

use super::programs::{PROGRAM, cached, check_pinned, fetch, newest};
use super::{Installer, InstallerError, OpenshiftInstall, Rehearsal, mirror};
use crate::PROGRESS;
use crate::cluster::{ClusterConfig, Downloads, InstallerChoice, Wanted};
use crate::download::{Cache, DownloadError};
use crate::home::{self, ClusterDir};

impl Installer {
    /// The installer that the settings ask for; fetched where `version` says which and it is not here.
    pub async fn obtain(config: &ClusterConfig, dir: &ClusterDir) -> anyhow::Result<Self> {
        let given = match &config.installer {
            InstallerChoice::Rehearsal => return Ok(Self::Rehearsal(Rehearsal)),
            InstallerChoice::OpenshiftInstall(given) => given.as_deref(),
        };
        let (found, why) = search(&config.downloads, given, dir).await?;
        let version = found.about().await?.version;
        let path = found.path().display();
        info!(target: PROGRESS, step = "installer", "openshift-install {version}, {path}: {why}");
        Ok(Self::OpenshiftInstall(found))
    }

    /// As `obtain`, but `None` where that would fetch one.
    pub async fn at_hand(config: &ClusterConfig, dir: &ClusterDir) -> anyhow::Result<Option<Self>> {
        let given = match &config.installer {
            InstallerChoice::OpenshiftInstall(given) => given.as_deref(),
            InstallerChoice::Rehearsal => return Ok(Some(Self::Rehearsal(Rehearsal))),
        };
        let wanted = match &config.downloads.version {
            Some(wanted) if given.is_none() => wanted,
            _ => {
                return Ok(Some(Self::OpenshiftInstall(
                    search(&config.downloads, given, dir).await?.0,
                )));
            }
        };
        if let Some(own) = fitting(&bin(dir).join(PROGRAM), Some(wanted)).await {
            return Ok(Some(Self::OpenshiftInstall(own)));
        }
        let kept = newest(&Cache::new(&config.downloads.cache), wanted);
        Ok(kept.map(Self::OpenshiftInstall))
    }

    /// Makes later runs for this cluster take the same one, whatever its channel or PATH has by then.
    pub fn pin(&self, config: &ClusterConfig, dir: &ClusterDir) -> io::Result<()> {
        let Self::OpenshiftInstall(installer) = self else {
            return Ok(());
        };
        let bin = bin(dir);
        if !installer.path().starts_with(&config.downloads.cache) || installer.path().starts_with(&bin) {
            return Ok(());
        }
        home::create_private_dir(&bin)?;
        for (name, target) in [(PROGRAM, installer.path()), ("oc", installer.oc())] {
            let link = bin.join(name);
            match fs::remove_file(&link) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => fs_err::os::unix::fs::symlink(target, &link)?,
            }
        }
        Ok(())
    }
}

/// Where a cluster has programs of its own.
fn bin(dir: &ClusterDir) -> PathBuf {
    dir.path().join("bin")
}

/// The installer, and why it is this one.
async fn search(
    downloads: &Downloads,
    given: Option<&Path>,
    dir: &ClusterDir,
) -> anyhow::Result<(OpenshiftInstall, &'static str)> {
    let wanted = downloads.version.as_ref();
    if let Some(path) = given {
        let found = OpenshiftInstall::find(Some(path))?;
        let version = found.about().await?.version;
        return match wanted {
            Some(wanted) if !wanted.fits(&version) => Err(InstallerError::OtherVersion {
                path: path.to_owned(),
                version,
                wanted: wanted.to_string(),
            }
            .into()),
            _ => Ok((found, "the setting installer names it")),
        };
    }
    let own = bin(dir).join(PROGRAM);
    if let Some(found) = fitting(&own, wanted).await {
        return Ok((found, "it is in the cluster's folder"));
    }
    let Some(wanted) = wanted else {
        return Ok((OpenshiftInstall::find(None)?, "it is the first in PATH"));
    };
    let cache = Cache::new(&downloads.cache);
    if let Wanted::Exact(version) = wanted
        && let Some(found) = cached(&cache, version)
    {
        return Ok((found, "it was fetched before"));
    }
    let in_path = OpenshiftInstall::find(None).ok();
    let of_path = match &in_path {
        Some(found) => found.about().await.ok().map(|about| about.version),
        None => None,
    };
    if let (Wanted::Exact(version), Some(found)) = (wanted, &in_path)
        && of_path.as_ref() == Some(version)
    {
        return Ok((found.clone(), "the one in PATH is the wanted version"));
    }
    let published = match mirror::published(downloads, wanted).await {
        Ok(published) => published,
        Err(error) => {
            let unreachable = matches!(error.downcast_ref(), Some(DownloadError::Unreachable { .. }));
            return match newest(&cache, wanted).filter(|_| unreachable) {
                Some(found) => {
                    warn!("{error:#}; the newest {wanted} that was fetched before is taken");
                    Ok((found, "it was fetched before"))
                }
                None => Err(error.context(format!("look for openshift-install {wanted}"))),
            };
        }
    };
    if let Some(found) = cached(&cache, &published.version) {
        return Ok((found, "it was fetched before"));
    }
    if let Some(found) = in_path.filter(|_| of_path.as_ref() == Some(&published.version)) {
        return Ok((found, "the one in PATH is the wanted version"));
    }
    let found = fetch(&cache, &published)
        .await
        .with_context(|| format!("fetch openshift-install {}", published.version))?;
    Ok((found, "it was fetched for version"))
}

/// The cluster's own installer when it is there and its version is the wanted one; told when it is not.
async fn fitting(path: &Path, wanted: Option<&Wanted>) -> Option<OpenshiftInstall> {
    let found = OpenshiftInstall::find(Some(path)).ok()?;
    if let Err(error) = check_pinned(path) {
        warn!("{error}; it is passed over");
        return None;
    }
    let version = match found.about().await {
        Ok(about) => about.version,
        Err(error) => {
            warn!("{error:#}; it is passed over");
            return None;
        }
    };
    match wanted {
        Some(wanted) if !wanted.fits(&version) => {
            warn!("{} is {version}, not {wanted}, and is passed over", path.display());
            None
        }
        _ => Some(found),
    }
}
