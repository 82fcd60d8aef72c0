//! A mirror's release: which files it has, and whether its checksum list is trusted.
//!
//! A mirror's directory has `sha256sum.txt`, its signature, `release.txt` and archives with the version in their names
//! (mirror.openshift.com: `pub/openshift-v4/<architecture>/clients/ocp/<version>/`; OKD: the assets of a release on
//! GitHub). That of a release for several architectures has one directory for the computers of each architecture, and a
//! list of their lists (openshift-eng/art-tools: `pyartcd/pyartcd/pipelines/promote.py`, `publish_client`,
//! `publish_multi_client`). The programs in the archives are run on this computer, so whoever can change the list can run
//! any code: see `check_list`.

use std::fmt::Display;
use std::time::Instant;

use jiff::Timestamp;
use serde::Deserialize;
use tracing::{info, warn};

use super::signature::SigningKeys;
use crate::PROGRESS;
use crate::artifacts::catalogue::{self, Artifact};
use crate::artifacts::download::{self, Cache, DownloadError};
use crate::cluster::{Architecture, Downloads, Precedence, ReleaseArchitecture, Wanted};
use crate::digest::sha256;
use crate::error::{ErrorKind, OperationError};
use crate::printable::shell_word;

pub(super) const PROGRAM: &str = "openshift-install";

/// The archives of a release: the prefix of their names, and the programs to extract.
pub(super) const ARCHIVES: [(&str, &[&str]); 2] = [(PROGRAM, &[PROGRAM]), ("openshift-client", &["oc", "kubectl"])];

const OCP: &str = "https://mirror.openshift.com/pub/openshift-v4";
const OKD: &str = "https://github.com/okd-project/okd/releases";
/// GitHub's list of OKD's releases, the newest first: more than a year of them (docs.github.com: `rest/releases`).
const OKD_RELEASES: &str = "https://api.github.com/repos/okd-project/okd/releases?per_page=50";
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

/// Possible directories of a release, the most probable first.
fn folders(wanted: &Wanted, arch: ReleaseArchitecture, mirror: Option<&str>) -> Vec<String> {
    let ocp = mirror.map_or_else(|| format!("{OCP}/{arch}/clients"), str::to_owned);
    let okd = mirror.unwrap_or(OKD);
    match wanted {
        Wanted::Stable => vec![format!("{ocp}/ocp/stable")],
        Wanted::Candidate => vec![format!("{ocp}/ocp/candidate")],
        Wanted::Nightly => vec![format!("{ocp}/ocp-dev-preview/latest")],
        Wanted::Minor(major, minor) => vec![format!("{ocp}/ocp/stable-{major}.{minor}")],
        // A mirror has no list of its releases.
        Wanted::Okd | Wanted::OkdMinor(..) => vec![format!("{okd}/latest/download")],
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
        let retries = Cache::new(&self.downloads.dir).retries();
        info!(target: PROGRESS, step = "installer", "looking up {} at {url}", self.wanted);
        download::bytes_until(url, retries, self.until).await
    }
}

/// Queries the mirror for its files, by its checksum list, which is verified first.
pub(super) async fn published(downloads: &Downloads, wanted: &Wanted) -> anyhow::Result<Published> {
    let asked = Asked {
        downloads,
        wanted,
        until: Instant::now() + downloads.installer_mirror_timeout,
    };
    let listed_okd = match (wanted, &downloads.installer_mirror) {
        (Wanted::OkdMinor(..), None) => Some(newest_okd(&asked).await?),
        _ => None,
    };
    let mut refused = None;
    let wanted_here = listed_okd.as_ref().unwrap_or(wanted);
    for mut folder in folders(wanted_here, downloads.arch, downloads.installer_mirror.as_deref()) {
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
        let mut text = String::from_utf8_lossy(&list).into_owned();
        let mut ends = ends(match downloads.arch {
            ReleaseArchitecture::Single(arch) if !wanted.is_okd() => arch,
            // OKD's releases have no directories of architectures.
            _ => Architecture::X86_64,
        });
        let of_computer = Architecture::THIS_COMPUTER.go();
        if let Some(sum) = catalogue::sum_of(&text, &format!("{of_computer}/{LIST}")) {
            folder = format!("{folder}/{of_computer}");
            let url = format!("{folder}/{LIST}");
            let list = asked.bytes(&url).await?;
            if sha256(&list) != sum {
                let text = format!("cannot verify {url}: its sha256 differs from that in {sums}");
                return Err(OperationError::new(ErrorKind::Tool, text)
                    .hint("no program of this mirror was run; use another mirror")
                    .into());
            }
            text = String::from_utf8_lossy(&list).into_owned();
            ends = self::ends(Architecture::THIS_COMPUTER);
        }
        let named = match named_version(&text, &ends) {
            Some(version) => Some(version),
            // A private mirror may have only the short names.
            None => release_name(&String::from_utf8_lossy(
                &asked.bytes(&format!("{folder}/release.txt")).await?,
            )),
        };
        let found = named.and_then(|version| listed(&folder, &text, &ends, version));
        let not_listed = || {
            let text = format!("{sums} has no openshift-install and client for this computer");
            OperationError::new(ErrorKind::Tool, text)
                .hint("set installer_mirror to the directory that contains ocp/, or OKD's releases")
        };
        let found = found.ok_or_else(not_listed)?;
        if !wanted.fits(&found.version) {
            return Err(other_version(folder, &found.version, wanted).into());
        }
        return Ok(found);
    }
    match refused {
        Some(error) => Err(error.into()),
        None => anyhow::bail!("no mirror for {wanted}"),
    }
}

/// The newest stable OKD of a minor version, by GitHub's list.
async fn newest_okd(asked: &Asked<'_>) -> anyhow::Result<Wanted> {
    let list = asked.bytes(OKD_RELEASES).await?;
    let found = newest_tag(&list, asked.wanted);
    let absent = || {
        let text = format!("{OKD_RELEASES} lists no stable release of {}", asked.wanted);
        OperationError::new(ErrorKind::Tool, text)
            .hint("set version to a release of https://github.com/okd-project/okd/releases, or version=okd")
    };
    Ok(Wanted::Exact(found.ok_or_else(absent)?))
}

/// The error of a release or program that is not the requested one; `place` is a path or URL.
pub(super) fn other_version(place: impl Display, version: &str, wanted: impl Display) -> OperationError {
    let text = format!("{place} is openshift-install {version}, but version={wanted}");
    OperationError::new(ErrorKind::Tool, text)
        .hint("remove one of the settings version, installer and installer_mirror")
}

/// The error of an installer whose release does not have the architectures of the machines.
pub(super) fn other_architecture(
    installer: impl Display,
    is: ReleaseArchitecture,
    wanted: ReleaseArchitecture,
) -> OperationError {
    let (text, hint) = match wanted {
        ReleaseArchitecture::Single(arch) => (
            format!("{installer} installs a release for {is}, and the machines are {arch}"),
            format!("set version, without installer, to download that for {arch}; or set arch={is}"),
        ),
        ReleaseArchitecture::Multi => (
            format!("{installer} installs a release for {is} only, and a pool has another architecture"),
            "set version, without installer, to download one for several architectures; or remove pool_arch".to_owned(),
        ),
    };
    OperationError::new(ErrorKind::Tool, text).hint(hint)
}

/// The error of a channel whose newest version is older than before.
pub fn downgrade(wanted: &Wanted, version: &str, newest: &str) -> OperationError {
    let text = format!("version={wanted} selects {version}, which is older than {newest}, which it selected before");
    OperationError::new(ErrorKind::Tool, text).hint(format!(
        "the mirror may be out of date, or serve an old release with known faults on purpose; to use it, set \
         version={version}, or run the same command with --allow-downgrade"
    ))
}

/// The newest wanted release of a list, without previews such as `4.21.0-okd-scos.ec.5`.
fn newest_tag(list: &[u8], wanted: &Wanted) -> Option<String> {
    #[derive(Deserialize)]
    struct Release {
        tag_name: String,
        #[serde(default)]
        draft: bool,
        #[serde(default)]
        prerelease: bool,
    }
    let releases: Vec<Release> = serde_json::from_slice(list).ok()?;
    let is_preview = |tag: &str| [".ec.", ".rc.", "-ec.", "-rc."].iter().any(|part| tag.contains(part));
    releases
        .into_iter()
        .filter(|release| !release.draft && !release.prerelease && !is_preview(&release.tag_name))
        .map(|release| release.tag_name)
        .filter(|tag| is_plain(tag) && wanted.fits(tag))
        .max_by_key(|tag| Precedence::of(tag))
}

/// Whether the list of a directory is authentic.
///
/// The setting `installer_mirror_sha256` decides alone. Otherwise a trusted key must have signed the list: the vendor's,
/// or that of `installer_mirror_key`. `installer_mirror_insecure` accepts a missing signature and plain http, but never a
/// wrong signature. OKD publishes no key for its lists: without `installer_mirror_key`, https and GitHub are trusted.
async fn check_list(asked: &Asked<'_>, folder: &str, list: &[u8]) -> anyhow::Result<()> {
    let Asked { downloads, wanted, .. } = asked;
    let url = format!("{folder}/{LIST}");
    if let Some(pinned) = &downloads.installer_mirror_sha256 {
        let found = sha256(list);
        return match found == *pinned {
            true => Ok(()),
            false => {
                let text = format!("{url} has sha256 {found}, which differs from installer_mirror_sha256");
                let error = OperationError::new(ErrorKind::Tool, text);
                Err(error
                    .hint(
                        "the list has changed since it was pinned; review it before you update installer_mirror_sha256",
                    )
                    .into())
            }
        };
    }
    let untrusted = |text: String| {
        OperationError::new(ErrorKind::Tool, text).hint(format!(
            "use a mirror with https and sha256sum.txt.gpg, or pin this one with installer_mirror_sha256=$(curl -s {} | \
             sha256sum); installer_mirror_insecure=true runs its programs without verification",
            shell_word(&url)
        ))
    };
    if folder.starts_with("http:") && !downloads.installer_mirror_insecure {
        let why = "plain http does not protect against modification";
        return Err(untrusted(format!("cannot trust {url}: {why}")).into());
    }
    if downloads.installer_mirror.is_none() && downloads.installer_mirror_key.is_none() && wanted.is_okd() {
        warn!("{url} is verified only by its server's certificate: OKD has no published signing key");
        return Ok(());
    }
    let keys = match &downloads.installer_mirror_key {
        Some(path) => SigningKeys::of_file(path)?,
        None => SigningKeys::vendor()?,
    };
    for name in SIGNATURES {
        let url = format!("{folder}/{name}");
        match asked.bytes(&url).await {
            Ok(signature) => {
                let verified = keys.verify(list, &signature, Timestamp::now());
                let key = verified.map_err(|why| {
                    let text = format!("cannot verify signature {url}: {why}");
                    OperationError::new(ErrorKind::Tool, text).hint(
                        "no program of this mirror was run; if it signs with its own key, set installer_mirror_key=FILE to the \
                         public key",
                    )
                })?;
                info!("{url} is signed with key {key}");
                return Ok(());
            }
            Err(error) if error.is_absent() => {}
            Err(error) => return Err(error.into()),
        }
    }
    if downloads.installer_mirror_insecure {
        warn!("{url} is not signed; its programs are run because of installer_mirror_insecure=true");
        return Ok(());
    }
    Err(untrusted(format!("cannot verify {url}: it is neither signed nor pinned")).into())
}

/// The parts of archive names after the program's name, for this computer. Names without an architecture are those of the
/// directory's own (openshift/oc: `pkg/cli/admin/release/extract_tools.go`, `targetReleaseArch`).
fn ends(directory: Architecture) -> Vec<String> {
    let named = format!("-linux-{}", Architecture::THIS_COMPUTER.go());
    match directory == Architecture::THIS_COMPUTER {
        true => vec!["-linux".to_owned(), named],
        false => vec![named],
    }
}

/// The version in the name of the installer's archive for this computer.
fn named_version(sums: &str, ends: &[String]) -> Option<String> {
    let names = || sums.lines().filter_map(|line| line.split_whitespace().last());
    let mut versions = ends.iter().flat_map(|end| {
        let start = format!("{PROGRAM}{end}-");
        names().filter_map(move |name| {
            let name = name.trim_start_matches('*').strip_prefix(&start)?;
            let version = name.strip_suffix(".tar.gz")?;
            // `-linux-arm64-…` and `-linux-amd64-rhel9-…` start with it, too.
            let is_version = version.starts_with(|c: char| c.is_ascii_digit());
            is_version.then(|| version.to_owned())
        })
    });
    versions.next().filter(|version| is_plain(version))
}

/// The line `Name:` of a `release.txt`.
fn release_name(text: &str) -> Option<String> {
    let name = text.lines().find_map(|line| line.trim().strip_prefix("Name:"))?;
    Some(name.trim().to_owned()).filter(|version| is_plain(version))
}

/// Whether it can be the name of a directory.
pub(super) fn is_plain(version: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    version.starts_with(|c: char| c.is_ascii_digit()) && version.chars().all(plain)
}

fn listed(folder: &str, sums: &str, ends: &[String], version: String) -> Option<Published> {
    let archive = |(start, _): &(&str, _)| {
        let names = ends
            .iter()
            .flat_map(|end| [format!("{start}{end}-{version}"), format!("{start}{end}")]);
        let mut names = names.map(|name| format!("{name}.tar.gz"));
        names.find_map(|name| {
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
        let own = ends(Architecture::THIS_COMPUTER);
        assert_eq!(named_version(&real, &own).as_deref(), Some("4.19.3"));
        let found = listed("https://m.example.com/x", &real, &own, "4.19.3".to_owned()).unwrap();
        let urls: Vec<&str> = found.archives.iter().map(|archive| archive.url.as_str()).collect();
        assert_eq!(
            urls,
            [
                "https://m.example.com/x/openshift-install-linux-4.19.3.tar.gz",
                "https://m.example.com/x/openshift-client-linux-4.19.3.tar.gz"
            ]
        );
        let alone = sums(&["openshift-install-linux.tar.gz"]);
        assert_eq!(listed("x", &alone, &own, "4.1.1".to_owned()), None);
        let outside = sums(&["openshift-install-linux-4.1/../../x.tar.gz"]);
        assert_eq!(named_version(&outside, &own), None);
        assert_eq!(
            release_name("Client tools\n\nName:           4.19.3\nDigest:  sha256:0\n").as_deref(),
            Some("4.19.3")
        );
        assert_eq!(release_name("Name: ../x"), None);
    }

    /// Names of files of mirror.openshift.com: the programs of a release for s390x that run on other computers.
    #[test]
    fn the_programs_of_a_release_for_another_architecture_are_those_of_this_computer() {
        let computer = Architecture::THIS_COMPUTER;
        let directory = if computer == Architecture::S390x {
            Architecture::Ppc64le
        } else {
            Architecture::S390x
        };
        let names = ["openshift-install", "openshift-client"].map(|name| {
            [
                format!("{name}-linux-4.19.3.tar.gz"),
                format!("{name}-linux-{}-4.19.3.tar.gz", computer.go()),
            ]
        });
        let names: Vec<&str> = names.iter().flatten().map(String::as_str).collect();
        let listed = listed("x", &sums(&names), &ends(directory), "4.19.3".to_owned()).unwrap();
        let urls = listed.archives.into_iter().map(|archive| archive.url);
        let expected = names
            .iter()
            .filter(|name| name.contains(computer.go()))
            .map(|name| format!("x/{name}"));
        assert!(urls.eq(expected));
    }

    #[test]
    fn the_newest_stable_okd_of_a_minor_version_is_found_by_its_numbers() {
        // As GitHub lists them (docs.github.com: `rest/releases`), the newest first.
        let release = |tag: &str, prerelease: bool| {
            serde_json::json!({"url": "https://api.github.com/repos/okd-project/okd/releases/1", "tag_name": tag,
                "target_commitish": "master", "name": tag, "draft": false, "prerelease": prerelease,
                "assets": [{"name": "sha256sum.txt", "state": "uploaded"}], "body": null})
        };
        let list = serde_json::json!([
            release("4.21.0-okd-scos.ec.5", true),
            release("4.20.0-okd-scos.9", false),
            release("4.20.0-okd-scos.15", false),
            release("4.20.0-okd-scos.ec.14", false),
            release("4.19.0-okd-scos.19", false),
            release("4.20.0-okd-scos.16/../x", false),
            release("4.20.0-okd-scos.17", true),
        ])
        .to_string();
        let newest = |wanted: &str| newest_tag(list.as_bytes(), &wanted.parse().unwrap());
        assert_eq!(newest("okd-4.20").as_deref(), Some("4.20.0-okd-scos.15"));
        assert_eq!(newest("okd-scos-4.19").as_deref(), Some("4.19.0-okd-scos.19"));
        assert_eq!(newest("okd-4.21"), None);
        assert_eq!(
            newest_tag(b"{\"message\": \"API rate limit exceeded\"}", &Wanted::OkdMinor(4, 20)),
            None
        );
    }

    #[test]
    fn releases_are_looked_up_where_they_are_published() {
        for (wanted, expected) in [
            (
                "stable",
                "https://mirror.openshift.com/pub/openshift-v4/x86_64/clients/ocp/stable",
            ),
            (
                "4.18",
                "https://mirror.openshift.com/pub/openshift-v4/x86_64/clients/ocp/stable-4.18",
            ),
            (
                "nightly",
                "https://mirror.openshift.com/pub/openshift-v4/x86_64/clients/ocp-dev-preview/latest",
            ),
            (
                "4.19.3",
                "https://mirror.openshift.com/pub/openshift-v4/x86_64/clients/ocp/4.19.3",
            ),
            ("okd", "https://github.com/okd-project/okd/releases/latest/download"),
            (
                "4.19.0-okd-scos.9",
                "https://github.com/okd-project/okd/releases/download/4.19.0-okd-scos.9",
            ),
        ] {
            let single = ReleaseArchitecture::Single(Architecture::X86_64);
            assert_eq!(folders(&wanted.parse().unwrap(), single, None)[0], expected);
        }
        let of = |arch, mirror| folders(&Wanted::Candidate, arch, mirror);
        for (arch, directory) in [
            (ReleaseArchitecture::Single(Architecture::Aarch64), "aarch64"),
            (ReleaseArchitecture::Multi, "multi"),
        ] {
            let expected = format!("https://mirror.openshift.com/pub/openshift-v4/{directory}/clients/ocp/candidate");
            assert_eq!(of(arch, None), [expected]);
        }
        assert_eq!(
            of(ReleaseArchitecture::Multi, Some("https://m.example.com")),
            ["https://m.example.com/ocp/candidate"]
        );
    }
}
