//! Selects the openshift-install to use.
//!
//! Search order: the setting `installer`, the cluster's directory, the cache by version, PATH, then a mirror.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use fs_err as fs;
use tracing::{info, warn};

use super::Installer;
use super::mirror::{self, PROGRAM, Published, other_version};
use super::openshift_install::OpenshiftInstall;
use super::programs::{cached, check_pinned, fetch, keep_newest, newest};
use super::rehearsal::Rehearsal;
use crate::PROGRESS;
use crate::artifacts::download::{Cache, DownloadError, Trust};
use crate::cluster::{ClusterConfig, Downloads, InstallerChoice, Wanted};
use crate::state::home::{self, ClusterDir};

/// The installer of a deployment, found locally or in the mirror's list. Selecting it downloads nothing.
#[derive(Debug)]
pub enum Choice {
    Here {
        installer: Installer,
        version: String,
        /// Why it was selected.
        why: &'static str,
    },
    /// It must be downloaded.
    Published(Published),
}

impl Choice {
    /// Its version, e.g. `4.19.3`.
    pub fn version(&self) -> &str {
        match self {
            Self::Here { version, .. } => version,
            Self::Published(published) => &published.version,
        }
    }

    /// The installer itself; downloaded if it is not available locally.
    pub async fn obtain(self, downloads: &Downloads) -> anyhow::Result<Installer> {
        let (found, version, why) = match self {
            Self::Here {
                installer: Installer::OpenshiftInstall(found),
                version,
                why,
            } => (found, version, why),
            Self::Here { installer, .. } => return Ok(installer),
            Self::Published(published) => {
                let cache = Cache::new(&downloads.dir).of_release(downloads.arch);
                let found = fetch(&cache, &Trust::of(downloads)?, &published)
                    .await
                    .with_context(|| format!("download openshift-install {}", published.version))?;
                found.version_for(downloads.arch).await?;
                (found, published.version, "downloaded for the setting version")
            }
        };
        let path = found.path().display();
        info!(target: PROGRESS, step = "installer", "openshift-install {version}, {path}: {why}");
        Ok(Installer::OpenshiftInstall(found))
    }
}

impl Installer {
    /// The installer that the settings select; downloaded if it is not available locally.
    pub async fn obtain(config: &ClusterConfig, dir: &ClusterDir) -> anyhow::Result<Self> {
        Self::find(config, dir).await?.obtain(&config.downloads).await
    }

    /// Which installer the settings select. Queries the mirror if necessary; downloads nothing.
    pub async fn find(config: &ClusterConfig, dir: &ClusterDir) -> anyhow::Result<Choice> {
        let given = match &config.installer {
            InstallerChoice::Rehearsal => {
                let installer = Self::Rehearsal(Rehearsal);
                let version = installer.version().await?;
                return Ok(Choice::Here {
                    installer,
                    version,
                    why: "a rehearsal simulates it",
                });
            }
            InstallerChoice::OpenshiftInstall(given) => given.as_deref(),
        };
        search(&config.downloads, given, dir).await
    }

    /// Makes later runs of this cluster use the same one, even if its channel or PATH changes.
    pub fn pin(&self, config: &ClusterConfig, dir: &ClusterDir) -> io::Result<()> {
        let Self::OpenshiftInstall(installer) = self else {
            return Ok(());
        };
        let bin = bin(dir);
        if !installer.path().starts_with(&config.downloads.dir) || installer.path().starts_with(&bin) {
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

/// The directory of a cluster's own programs.
fn bin(dir: &ClusterDir) -> PathBuf {
    dir.path().join("bin")
}

/// The selected installer, and why it was selected.
async fn search(downloads: &Downloads, given: Option<&Path>, dir: &ClusterDir) -> anyhow::Result<Choice> {
    let wanted = downloads.version.as_ref();
    let here = async |found: OpenshiftInstall, why| {
        Ok(Choice::Here {
            version: found.version_for(downloads.arch).await?,
            installer: Installer::OpenshiftInstall(found),
            why,
        })
    };
    if let Some(path) = given {
        let found = OpenshiftInstall::find(Some(path))?;
        let version = found.version_for(downloads.arch).await?;
        return match wanted {
            Some(wanted) if !wanted.fits(&version) => Err(other_version(path.display(), &version, wanted).into()),
            _ => here(found, "named by the setting installer").await,
        };
    }
    let own = bin(dir).join(PROGRAM);
    let trust = Trust::of(downloads)?;
    if let Some(found) = fitting(&own, downloads, &trust).await {
        return here(found, "found in the cluster's directory").await;
    }
    let Some(wanted) = wanted else {
        return here(OpenshiftInstall::find(None)?, "first in PATH").await;
    };
    let cache = Cache::new(&downloads.dir).of_release(downloads.arch);
    if let Wanted::Exact(version) = wanted
        && let Some(found) = cached(&cache, &trust, version)
    {
        return here(found, "found in the cache").await;
    }
    let in_path = OpenshiftInstall::find(None).ok();
    let of_path = match &in_path {
        Some(found) => found.version_for(downloads.arch).await.ok(),
        None => None,
    };
    if let (Wanted::Exact(version), Some(found)) = (wanted, &in_path)
        && of_path.as_ref() == Some(version)
    {
        return here(found.clone(), "the one in PATH has the requested version").await;
    }
    let not_older = async |version: &str| match wanted.is_channel() {
        true => keep_newest(&cache, &trust, wanted, version, downloads).await,
        false => Ok(()),
    };
    let published = match mirror::published(downloads, wanted).await {
        Ok(published) => published,
        Err(error) => {
            let unreachable = matches!(error.downcast_ref(), Some(DownloadError::Unreachable { .. }));
            let Some(found) = newest(&cache, &trust, wanted).filter(|_| unreachable) else {
                return Err(error.context(format!("look for openshift-install {wanted}")));
            };
            warn!("{error:#}; using the newest {wanted} in the cache");
            let version = found.about().await?.version.clone();
            not_older(&version).await?;
            return here(found, "found in the cache").await;
        }
    };
    not_older(&published.version).await?;
    if let Some(found) = cached(&cache, &trust, &published.version) {
        return here(found, "found in the cache").await;
    }
    if let Some(found) = in_path.filter(|_| of_path.as_ref() == Some(&published.version)) {
        return here(found, "the one in PATH has the requested version").await;
    }
    Ok(Choice::Published(published))
}

/// The cluster's own installer if it exists in the requested version; logs why it is skipped.
async fn fitting(path: &Path, downloads: &Downloads, trust: &Trust) -> Option<OpenshiftInstall> {
    let wanted = downloads.version.as_ref();
    let found = OpenshiftInstall::find(Some(path)).ok()?;
    let is_verified = match check_pinned(path, trust) {
        Ok(is_verified) => is_verified,
        Err(error) => {
            warn!("{error}; skipping it");
            return None;
        }
    };
    let version = match found.version_for(downloads.arch).await {
        Ok(version) => version,
        Err(error) => {
            warn!("{error:#}; skipping it");
            return None;
        }
    };
    match wanted {
        Some(wanted) if !wanted.fits(&version) => {
            warn!("{} is {version}, not {wanted}; skipping it", path.display());
            None
        }
        _ => Some(found.verified(is_verified)),
    }
}
