//! Which openshift-install is taken, and how one is fetched that is not here yet.
//!
//! The search: the setting `installer`, the cluster's folder, the cache by version, PATH. A mirror's folder has
//! `sha256sum.txt`, `release.txt` and archives that bear the version in their names (mirror.openshift.com:
//! `pub/openshift-v4/clients/ocp/<version>/`; OKD: the assets of a release on GitHub).

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use fs_err as fs;
use tracing::{info, warn};

use super::{Installer, InstallerError, OpenshiftInstall, Rehearsal};
use crate::PROGRESS;
use crate::catalogue::{self, Artifact};
use crate::cluster::{ClusterConfig, Downloads, InstallerChoice, Wanted};
use crate::download::{self, Cache, DownloadError};
use crate::home::{self, ClusterDir};

const OCP: &str = "https://mirror.openshift.com/pub/openshift-v4/clients";
const OKD: &str = "https://github.com/okd-project/okd/releases";
const PROGRAM: &str = "openshift-install";

/// The archives of a release: how their names begin, and what is taken out of them.
const ARCHIVES: [(&str, &[&str]); 2] = [(PROGRAM, &[PROGRAM]), ("openshift-client", &["oc", "kubectl"])];

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
    let published = match published(downloads, wanted).await {
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

/// The installer at a path when it is there and its version is the wanted one; told when it is not.
async fn fitting(path: &Path, wanted: Option<&Wanted>) -> Option<OpenshiftInstall> {
    let found = OpenshiftInstall::find(Some(path)).ok()?;
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

/// What a mirror has of the wanted release.
#[derive(Debug, PartialEq, Eq)]
struct Published {
    version: String,
    /// In the order of `ARCHIVES`.
    archives: Vec<Artifact>,
}

/// The folders in which a release may be, the likeliest first.
fn folders(wanted: &Wanted, mirror: Option<&str>) -> Vec<String> {
    let (ocp, okd) = (mirror.unwrap_or(OCP), mirror.unwrap_or(OKD));
    match wanted {
        Wanted::Stable => vec![format!("{ocp}/ocp/stable")],
        Wanted::Candidate => vec![format!("{ocp}/ocp/candidate")],
        Wanted::Nightly => vec![format!("{ocp}/ocp-dev-preview/latest")],
        Wanted::Minor(major, minor) => vec![format!("{ocp}/ocp/stable-{major}.{minor}")],
        Wanted::Okd => vec![format!("{okd}/latest/download")],
        Wanted::Exact(version) if version.contains("okd") => vec![format!("{okd}/download/{version}")],
        Wanted::Exact(version) => vec![
            format!("{ocp}/ocp/{version}"),
            format!("{ocp}/ocp-dev-preview/{version}"),
        ],
    }
}

/// Asks the mirror what it has, by its list of sums.
async fn published(downloads: &Downloads, wanted: &Wanted) -> anyhow::Result<Published> {
    let patience = Cache::new(&downloads.cache).patience();
    let mut refused = None;
    for folder in folders(wanted, downloads.mirror.as_deref()) {
        let sums = format!("{folder}/sha256sum.txt");
        let text = match download::text(&sums, patience).await {
            Ok(text) => text,
            Err(error @ DownloadError::Refused { status: 404, .. }) => {
                refused = refused.or(Some(error));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let named = match named_version(&text) {
            Some(version) => Some(version),
            // A mirror of the user's own may have the short names only.
            None => release_name(&download::text(&format!("{folder}/release.txt"), patience).await?),
        };
        let found = named.and_then(|version| listed(&folder, &text, version));
        let found = found.ok_or(InstallerError::NotListed { url: sums })?;
        if !wanted.fits(&found.version) {
            return Err(InstallerError::OtherVersion {
                path: PathBuf::from(folder),
                version: found.version,
                wanted: wanted.to_string(),
            }
            .into());
        }
        return Ok(found);
    }
    match refused {
        Some(error) => Err(error.into()),
        None => anyhow::bail!("no mirror is known for {wanted}"),
    }
}

/// How the names of archives for this computer go on after the program's name.
const fn computer() -> &'static str {
    match cfg!(target_arch = "aarch64") {
        true => "-linux-arm64",
        false => "-linux",
    }
}

/// The version in the name of the installer's archive for this computer.
fn named_version(sums: &str) -> Option<String> {
    let start = format!("{PROGRAM}{}-", computer());
    let names = sums.lines().filter_map(|line| line.split_whitespace().last());
    let mut versions = names.filter_map(|name| {
        let version = name
            .trim_start_matches('*')
            .strip_prefix(&start)?
            .strip_suffix(".tar.gz")?;
        // `-linux-arm64-…` and `-linux-amd64-rhel9-…` begin alike.
        version
            .starts_with(|c: char| c.is_ascii_digit())
            .then(|| version.to_owned())
    });
    versions.next().filter(|version| is_plain(version))
}

/// The line `Name:` of a `release.txt`.
fn release_name(text: &str) -> Option<String> {
    let name = text.lines().find_map(|line| line.trim().strip_prefix("Name:"))?;
    Some(name.trim().to_owned()).filter(|version| is_plain(version))
}

/// Fit for the name of a folder.
fn is_plain(version: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    version.starts_with(|c: char| c.is_ascii_digit()) && version.chars().all(plain)
}

fn listed(folder: &str, sums: &str, version: String) -> Option<Published> {
    let archive = |(start, _): &(&str, _)| {
        let names = [
            format!("{start}{}-{version}.tar.gz", computer()),
            format!("{start}{}.tar.gz", computer()),
        ];
        names.into_iter().find_map(|name| {
            Some(Artifact {
                sha256: Some(catalogue::sum_of(sums, &name)?),
                url: format!("{folder}/{name}"),
                content_sha256: None,
                // The archive is read where it lies.
                unpack: false,
            })
        })
    };
    let archives = ARCHIVES.iter().map(archive).collect::<Option<_>>()?;
    Some(Published { version, archives })
}

fn place(cache: &Cache, version: &str) -> PathBuf {
    cache.root().join("installers").join(version)
}

/// An installer in the cache that nobody but this user or root has put there: it is going to be run.
fn cached(cache: &Cache, version: &str) -> Option<OpenshiftInstall> {
    let path = place(cache, version).join(PROGRAM);
    let owner = fs::metadata(&path).ok()?.uid();
    if !download::is_trusted(owner) {
        warn!("{} belongs to user {owner} and is not run", path.display());
        return None;
    }
    OpenshiftInstall::find(Some(&path)).ok()
}

/// The newest one in the cache that fits.
fn newest(cache: &Cache, wanted: &Wanted) -> Option<OpenshiftInstall> {
    let entries = fs::read_dir(cache.root().join("installers")).ok()?.flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut versions: Vec<String> = names.filter(|name| is_plain(name) && wanted.fits(name)).collect();
    versions.sort_by_cached_key(|version| numbers(version));
    versions.iter().rev().find_map(|version| cached(cache, version))
}

/// A version for sorting: `4.9.1` before `4.10.0`.
fn numbers(version: &str) -> Vec<u64> {
    let digits = version.split(|c: char| !c.is_ascii_digit());
    digits.filter_map(|part| part.parse().ok()).collect()
}

/// Downloads, verifies and unpacks; the whole folder appears at once.
async fn fetch(cache: &Cache, published: &Published) -> anyhow::Result<OpenshiftInstall> {
    let version = &published.version;
    let (folder, mode) = cache.place("installers")?;
    // Not of the form of a version.
    let lock = folder.join(format!("lock-{version}"));
    let _lock = download::lock(&lock, mode, &format!("openshift-install {version}")).await?;
    if let Some(found) = cached(cache, version) {
        return Ok(found);
    }
    let partial = folder.join(format!("partial-{version}"));
    super::remove_folder(&partial)?;
    home::create_private_dir(&partial)?;
    for (archive, (_, members)) in published.archives.iter().zip(ARCHIVES) {
        let packed = cache.fetch(archive).await?;
        let (path, into) = (packed.path.clone(), partial.clone());
        tokio::task::spawn_blocking(move || unpack(&path, &into, members)).await??;
        cache.forget(&packed);
    }
    let found = OpenshiftInstall::find(Some(&partial.join(PROGRAM)))?;
    let told = found.about().await?.version;
    if told != *version {
        return Err(InstallerError::OtherVersion {
            path: PathBuf::from(&published.archives[0].url),
            version: told,
            wanted: version.clone(),
        }
        .into());
    }
    fs::set_permissions(&partial, std::os::unix::fs::PermissionsExt::from_mode(mode & 0o755))?;
    let target = place(cache, version);
    if target.exists() {
        // Damaged, or somebody else's.
        super::remove_folder(&target)?;
    }
    fs::rename(&partial, &target)?;
    Ok(OpenshiftInstall::find(Some(&target.join(PROGRAM)))?)
}

/// Takes the named programs out of a gzipped archive; one whose members lead elsewhere is refused as a whole.
fn unpack(archive: &Path, into: &Path, members: &[&str]) -> anyhow::Result<()> {
    let refused = |why: String| InstallerError::Archive {
        name: archive.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        why,
    };
    let unreadable = |error: io::Error| refused(error.to_string());
    let file = BufReader::with_capacity(1 << 20, File::open(archive)?);
    let mut tar = tar::Archive::new(flate2::bufread::MultiGzDecoder::new(file));
    for entry in tar.entries().map_err(unreadable)? {
        let mut entry = entry.map_err(unreadable)?;
        let path = entry.path().map_err(unreadable)?.into_owned();
        let shown = path.display().to_string();
        let parts: Vec<_> = path
            .components()
            .filter(|part| *part != std::path::Component::CurDir)
            .collect();
        if !parts.iter().all(|part| matches!(part, std::path::Component::Normal(_))) {
            return Err(refused(format!("its member {shown} leads out of it")).into());
        }
        let Some(name) = members
            .iter()
            .find(|name| parts.len() == 1 && parts[0].as_os_str() == **name)
        else {
            continue;
        };
        let kind = entry.header().entry_type();
        let target = into.join(name);
        if kind.is_hard_link() {
            // kubectl and oc may be one file.
            let first = entry.link_name().map_err(unreadable)?.unwrap_or_default().into_owned();
            let first = members
                .iter()
                .find(|name| first.strip_prefix("./").unwrap_or(&first) == Path::new(name));
            let first = first.ok_or_else(|| refused(format!("its member {shown} is a link to elsewhere")))?;
            fs::hard_link(into.join(first), &target)?;
        } else if kind.is_file() {
            let mut out = File::options().write(true).create_new(true).mode(0o755).open(&target)?;
            let wanted = entry.size();
            let copied = io::copy(&mut (&mut entry).take(wanted), &mut out).map_err(unreadable)?;
            if copied != wanted {
                return Err(refused(format!("its member {shown} is cut")).into());
            }
            out.sync_all()?;
        } else {
            return Err(refused(format!("its member {shown} is no file")).into());
        }
    }
    match members.first().filter(|name| !into.join(name).is_file()) {
        Some(name) => Err(refused(format!("it has no {name}")).into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(names: &[&str]) -> String {
        names
            .iter()
            .map(|name| format!("{}  {name}\n", "a".repeat(64)))
            .collect()
    }

    #[test]
    fn the_version_is_in_the_names_of_the_archives() {
        let real = sums(&[
            "ccoctl-linux-4.19.3.tar.gz",
            "openshift-client-linux-4.19.3.tar.gz",
            "openshift-client-linux-amd64-rhel9-4.19.3.tar.gz",
            "openshift-client-linux.tar.gz",
            "openshift-install-linux-amd64-4.19.3.tar.gz",
            "openshift-install-linux-arm64-4.19.3.tar.gz",
            "openshift-install-linux-4.19.3.tar.gz",
            "openshift-install-linux.tar.gz",
            "release.txt",
        ]);
        assert_eq!(named_version(&real).as_deref(), Some("4.19.3"));
        let found = listed("https://m.example.com/x", &real, "4.19.3".to_owned()).unwrap();
        let urls: Vec<&str> = found.archives.iter().map(|archive| archive.url.as_str()).collect();
        if cfg!(target_arch = "x86_64") {
            assert_eq!(
                urls,
                [
                    "https://m.example.com/x/openshift-install-linux-4.19.3.tar.gz",
                    "https://m.example.com/x/openshift-client-linux-4.19.3.tar.gz"
                ]
            );
        }
        assert_eq!(
            listed("x", &sums(&["openshift-install-linux.tar.gz"]), "4.1.1".to_owned()),
            None
        );
        assert_eq!(
            named_version(&sums(&["openshift-install-linux-4.1/../../x.tar.gz"])),
            None
        );
        assert_eq!(
            release_name("Client tools\n\nName:           4.19.3\nDigest:  sha256:0\n").as_deref(),
            Some("4.19.3")
        );
        assert_eq!(release_name("Name: ../x"), None);
    }

    #[test]
    fn releases_are_looked_for_where_they_are_published() {
        for (wanted, expected) in [
            (
                "stable",
                "https://mirror.openshift.com/pub/openshift-v4/clients/ocp/stable",
            ),
            (
                "4.18",
                "https://mirror.openshift.com/pub/openshift-v4/clients/ocp/stable-4.18",
            ),
            (
                "nightly",
                "https://mirror.openshift.com/pub/openshift-v4/clients/ocp-dev-preview/latest",
            ),
            (
                "4.19.3",
                "https://mirror.openshift.com/pub/openshift-v4/clients/ocp/4.19.3",
            ),
            ("okd", "https://github.com/okd-project/okd/releases/latest/download"),
            (
                "4.19.0-okd-scos.9",
                "https://github.com/okd-project/okd/releases/download/4.19.0-okd-scos.9",
            ),
        ] {
            assert_eq!(folders(&wanted.parse().unwrap(), None)[0], expected);
        }
        assert_eq!(
            folders(&Wanted::Candidate, Some("https://m.example.com")),
            ["https://m.example.com/ocp/candidate"]
        );
    }

    #[test]
    fn versions_are_sorted_by_their_numbers() {
        let mut versions = ["4.10.0", "4.9.12", "4.9.2", "4.20.0-rc.1"];
        versions.sort_by_cached_key(|version| numbers(version));
        assert_eq!(versions, ["4.9.2", "4.9.12", "4.10.0", "4.20.0-rc.1"]);
    }
}
