//! A mirror's release: which files it has, and whether its checksum list is trusted.
//!
//! A mirror's folder has `sha256sum.txt`, its signature, `release.txt` and archives with the version in their names
//! (mirror.openshift.com: `pub/openshift-v4/clients/ocp/<version>/`; OKD: the assets of a release on GitHub). The
//! programs in the archives are run on this computer, so whoever can change the list can run any code: see
//! `check_list`.

use std::path::PathBuf;
use std::time::Instant;

use jiff::Timestamp;
use tracing::{info, warn};

use super::error::InstallerError;
use super::signature::Keys;
use crate::PROGRESS;
use crate::artifacts::catalogue::{self, Artifact};
use crate::artifacts::download::{self, Cache, DownloadError};
use crate::cluster::{Downloads, Wanted};
use crate::digest::sha256;

pub(super) const PROGRAM: &str = "openshift-install";

/// The archives of a release: the prefix of their names, and the programs to extract.
pub(super) const ARCHIVES: [(&str, &[&str]); 2] = [(PROGRAM, &[PROGRAM]), ("openshift-client", &["oc", "kubectl"])];

const OCP: &str = "https://mirror.openshift.com/pub/openshift-v4/clients";
const OKD: &str = "https://github.com/okd-project/okd/releases";
const LIST: &str = "sha256sum.txt";
/// Names of the list's signature: on the public mirror, and from `oc adm release extract --tools --signing-key`.
const SIGNATURES: [&str; 2] = ["sha256sum.txt.gpg", "sha256sum.txt.asc"];

/// A mirror's files of the requested release.
#[derive(Debug, PartialEq, Eq)]
pub struct Published {
    pub version: String,
    /// In the order of `ARCHIVES`.
    pub archives: Vec<Artifact>,
}

/// Possible folders of a release, the most probable first.
fn folders(wanted: &Wanted, mirror: Option<&str>) -> Vec<String> {
    let (ocp, okd) = (mirror.unwrap_or(OCP), mirror.unwrap_or(OKD));
    match wanted {
        Wanted::Stable => vec![format!("{ocp}/ocp/stable")],
        Wanted::Candidate => vec![format!("{ocp}/ocp/candidate")],
        Wanted::Nightly => vec![format!("{ocp}/ocp-dev-preview/latest")],
        Wanted::Minor(major, minor) => vec![format!("{ocp}/ocp/stable-{major}.{minor}")],
        Wanted::Okd => vec![format!("{okd}/latest/download")],
        Wanted::Exact(version) if wanted.is_okd() => vec![format!("{okd}/download/{version}")],
        Wanted::Exact(version) => vec![
            format!("{ocp}/ocp/{version}"),
            format!("{ocp}/ocp-dev-preview/{version}"),
        ],
    }
}

/// A mirror being queried, with one limit for all requests.
struct Asked<'a> {
    downloads: &'a Downloads,
    wanted: &'a Wanted,
    until: Instant,
}

impl Asked<'_> {
    async fn bytes(&self, url: &str) -> Result<Vec<u8>, DownloadError> {
        let retries = Cache::new(&self.downloads.cache).retries();
        let announce = || info!(target: PROGRESS, step = "installer", "looking up {} at {url}", self.wanted);
        download::bytes_until(url, retries, self.until, announce).await
    }
}

/// Queries the mirror for its files, by its checksum list, which is verified first.
pub(super) async fn published(downloads: &Downloads, wanted: &Wanted) -> anyhow::Result<Published> {
    let asked = Asked {
        downloads,
        wanted,
        until: Instant::now() + downloads.mirror_timeout,
    };
    let mut refused = None;
    for folder in folders(wanted, downloads.mirror.as_deref()) {
        let sums = format!("{folder}/{LIST}");
        let list = match asked.bytes(&sums).await {
            Ok(list) => list,
            Err(error) if error.is_absent() => {
                refused = refused.or(Some(error));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        check_list(&asked, &folder, &list).await?;
        let text = String::from_utf8_lossy(&list).into_owned();
        let named = match named_version(&text) {
            Some(version) => Some(version),
            // A private mirror may have only the short names.
            None => release_name(&String::from_utf8_lossy(
                &asked.bytes(&format!("{folder}/release.txt")).await?,
            )),
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
        None => anyhow::bail!("no mirror for {wanted}"),
    }
}

/// Whether the list of a folder is authentic.
///
/// The setting `mirror_sha256` decides alone. Otherwise a trusted key must have signed the list: the vendor's, or that
/// of `mirror_key`. `mirror_insecure` accepts a missing signature and plain http, but never a wrong signature. OKD
/// publishes no key for its lists: without `mirror_key`, https and GitHub are trusted.
async fn check_list(asked: &Asked<'_>, folder: &str, list: &[u8]) -> anyhow::Result<()> {
    let Asked { downloads, wanted, .. } = asked;
    let url = format!("{folder}/{LIST}");
    if let Some(pinned) = &downloads.mirror_sha256 {
        let found = sha256(list);
        return match found == *pinned {
            true => Ok(()),
            false => Err(InstallerError::NotPinned { url, found }.into()),
        };
    }
    if folder.starts_with("http:") && !downloads.mirror_insecure {
        return Err(InstallerError::PlainHttp { url }.into());
    }
    if downloads.mirror.is_none() && downloads.mirror_key.is_none() && wanted.is_okd() {
        warn!("{url} is verified only by its server's certificate: OKD has no published signing key");
        return Ok(());
    }
    let keys = match &downloads.mirror_key {
        Some(path) => Keys::of_file(path)?,
        None => Keys::vendor()?,
    };
    for name in SIGNATURES {
        let url = format!("{folder}/{name}");
        match asked.bytes(&url).await {
            Ok(signature) => {
                let verified = keys.verify(list, &signature, Timestamp::now());
                let key = verified.map_err(|why| InstallerError::Signature { url: url.clone(), why })?;
                info!("{url} is signed with key {key}");
                return Ok(());
            }
            Err(error) if error.is_absent() => {}
            Err(error) => return Err(error.into()),
        }
    }
    if downloads.mirror_insecure {
        warn!("{url} is not signed; its programs are run because of mirror_insecure=true");
        return Ok(());
    }
    Err(InstallerError::Unsigned { url }.into())
}

/// The part of archive names after the program's name, for this computer.
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
        // `-linux-arm64-…` and `-linux-amd64-rhel9-…` begin the same.
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

/// Whether it can be the name of a folder.
pub(super) fn is_plain(version: &str) -> bool {
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
                // The archive is read in place.
                unpack: false,
            })
        })
    };
    let archives = ARCHIVES.iter().map(archive).collect::<Option<_>>()?;
    Some(Published { version, archives })
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
}
