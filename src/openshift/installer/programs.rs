//! The programs of a release in the cache: unpacked from a verified archive, stored with their digests, and compared
//! with these before they are run.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use fs_err as fs;
use rustix::fs::OFlags;
use tracing::warn;

use super::mirror::{ARCHIVES, PROGRAM, Published, downgrade, is_plain, other_version};
use super::openshift_install::OpenshiftInstall;
use crate::artifacts::download::{self, Cache, Space, Trust};
use crate::cluster::{Downloads, Precedence, Wanted};
use crate::digest;
use crate::error::{ErrorKind, OperationError};
use crate::printable::shell_path;
use crate::state::dir::{self, Dir};
use crate::state::home::write_private;

/// In the directory of a release: SHA-256 of each program, from the time when its archive was verified.
const DIGESTS: &str = "sha256.json";
const LONGEST_DIGESTS: u64 = 64 << 10;
/// In the cache's directory for one `Trust`: the newest version that each channel has selected.
const CHANNELS: &str = "channels.json";
const LONGEST_CHANNELS: u64 = 64 << 10;
/// openshift-install 4.20 has 0.7 GB.
const LARGEST_PROGRAM: u64 = 4 << 30;

/// An installer in the cache that was downloaded with this trust.
pub(super) fn cached(cache: &Cache, trust: &Trust, version: &str) -> Option<OpenshiftInstall> {
    let folder = cache.existing_programs(trust)?.look(version).ok()?;
    if let Err(error) = check_programs(&folder) {
        warn!("{error}; skipping it");
        return None;
    }
    announce(&folder, trust);
    let found = OpenshiftInstall::find(Some(&folder.join(PROGRAM))).ok()?;
    Some(found.verified(trust.is_verified()))
}

/// Warns whenever unverified programs are used.
fn announce(folder: &Dir, trust: &Trust) {
    if matches!(trust, Trust::Insecure(_)) {
        let path = folder.path().display();
        warn!("the programs in {path} are run without verification because of installer_mirror_insecure=true");
    }
}

/// Compares the programs of a directory with their digests from the time of verification.
///
/// # Errors
/// Names the directory or program: other users can change it, it has changed, or it was never verified.
fn check_programs(folder: &Dir) -> io::Result<()> {
    let refuse = |why: String| io::Error::other(format!("not running {}: {why}", folder.path().display()));
    folder.judge(dir::me_or_root).map_err(refuse)?;
    let digests = folder
        .read(DIGESTS, LONGEST_DIGESTS)
        .map_err(|error| refuse(error.to_string()))?;
    let digests: BTreeMap<String, String> = serde_json::from_slice(&digests)?;
    for name in [PROGRAM, "oc"] {
        let file = folder.file(name, OFlags::RDONLY)?;
        if !dir::is_ours(&file)? {
            return Err(refuse(format!("other users can write to {name}")));
        }
        if digests.get(name) != Some(&digest::sha256_of(file)?) {
            return Err(refuse(format!("{name} has changed since it was verified")));
        }
    }
    Ok(())
}

/// Rejects linked programs of the cluster's directory that other users can replace, or that were downloaded with
/// another trust. Returns whether they are verified, see `Trust::is_verified`.
pub(super) fn check_pinned(path: &Path, trust: &Trust) -> io::Result<bool> {
    let mut is_verified = trust.is_verified();
    for name in [PROGRAM, "oc"] {
        let Ok(real) = fs::canonicalize(path.with_file_name(name)) else {
            continue;
        };
        let refuse = |why: &str| io::Error::other(format!("not running {}: {why}", real.display()));
        let parent = real.parent().unwrap_or(Path::new("/"));
        let folder = Dir::open_no_link(parent)?;
        if folder.has(DIGESTS) {
            // The cache has a directory of programs for each trust.
            let stored = parent.parent().and_then(Path::file_name);
            if stored != Some(OsStr::new(&trust.folder_name())) {
                return Err(refuse(
                    "it was downloaded with other settings (installer_mirror, installer_mirror_sha256, installer_mirror_key or installer_mirror_insecure)",
                ));
            }
            check_programs(&folder)?;
            if name == PROGRAM {
                announce(&folder, trust);
            }
            continue;
        }
        // A program that the user has added.
        is_verified = false;
        let file = folder.file(real.file_name().unwrap_or_default(), OFlags::RDONLY)?;
        if folder.judge(dir::me_or_root).is_err() || !dir::is_ours(&file)? {
            return Err(refuse("other users can write to it or its directory"));
        }
    }
    Ok(is_verified)
}

/// The newest one in the cache that matches.
pub(super) fn newest(cache: &Cache, trust: &Trust, wanted: &Wanted) -> Option<OpenshiftInstall> {
    let names = cache.existing_programs(trust)?.names().unwrap_or_default().into_iter();
    let names = names.filter_map(|name| name.into_string().ok());
    let mut versions: Vec<String> = names.filter(|name| is_plain(name) && wanted.fits(name)).collect();
    versions.sort_by_cached_key(|version| Precedence::of(version));
    versions.iter().rev().find_map(|version| cached(cache, trust, version))
}

/// Records the version that a channel selects.
///
/// # Errors
/// It is older than the one that the channel has selected before, with the same trust and from any mirror: a signature
/// does not show that a list is the current one.
pub(super) async fn keep_newest(
    cache: &Cache,
    trust: &Trust,
    wanted: &Wanted,
    version: &str,
    downloads: &Downloads,
) -> anyhow::Result<()> {
    let folder = cache.programs(trust)?;
    let _lock = download::lock(&folder, "lock-channels", "the newest versions").await?;
    let mut newest: BTreeMap<String, String> = match folder.read(CHANNELS, LONGEST_CHANNELS) {
        Ok(text) => serde_json::from_slice(&text).map_err(|error| {
            let path = folder.join(CHANNELS);
            let text = format!("cannot parse {}: {error}", path.display());
            OperationError::new(ErrorKind::Tool, text).hint(format!(
                "it has the newest version of each channel; to start without it: `rm {}`",
                shell_path(&path)
            ))
        })?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
        Err(error) => return Err(error.into()),
    };
    match newest.get(&wanted.to_string()) {
        Some(before) if before == version => return Ok(()),
        Some(before) if Precedence::of(version) < Precedence::of(before) && !downloads.allow_downgrade => {
            return Err(downgrade(wanted, version, before).into());
        }
        _ => {}
    }
    newest.insert(wanted.to_string(), version.to_owned());
    let path = folder.join(CHANNELS);
    write_private(&path, &serde_json::to_vec(&newest)?).with_context(|| format!("write {}", path.display()))
}

/// Downloads, verifies and unpacks; the whole directory appears atomically.
pub(super) async fn fetch(cache: &Cache, trust: &Trust, published: &Published) -> anyhow::Result<OpenshiftInstall> {
    let version = &published.version;
    let folder = cache.programs(trust)?;
    // Cannot be mistaken for a version.
    let lock = format!("lock-{version}");
    let _lock = download::lock(&folder, &lock, &format!("openshift-install {version}")).await?;
    if let Some(found) = cached(cache, trust, version) {
        return Ok(found);
    }
    let name = format!("partial-{version}");
    let partial = Arc::new(folder.fresh(&name)?);
    let mut digests = BTreeMap::new();
    for (archive, (_, members)) in published.archives.iter().zip(ARCHIVES) {
        let packed = cache.fetch(archive).await?;
        let (path, into) = (packed.path.clone(), Arc::clone(&partial));
        digests.extend(tokio::task::spawn_blocking(move || unpack(&path, &into, members)).await??);
        cache.forget(&packed);
    }
    let mut file = partial.create(DIGESTS)?;
    file.write_all(&serde_json::to_vec(&digests)?)?;
    dir::set_mode(&file, 0o644)?;
    file.sync_all()?;
    let found = OpenshiftInstall::find(Some(&partial.join(PROGRAM)))?;
    let reported = &found.about().await?.version;
    if reported != version {
        return Err(other_version(&published.archives[0].url, reported, version).into());
    }
    // An existing directory is damaged.
    folder.remove(version)?;
    folder.rename(&name, &folder, version)?;
    let found = OpenshiftInstall::find(Some(&folder.join(version).join(PROGRAM)))?;
    Ok(found.verified(trust.is_verified()))
}

/// Extracts the named programs from a gzipped archive and returns their digests; an archive with paths outside of the
/// target is rejected as a whole.
fn unpack(archive: &Path, into: &Dir, members: &[&str]) -> anyhow::Result<BTreeMap<String, String>> {
    let refused = |why: String| {
        let name = archive.file_name().unwrap_or_default().to_string_lossy();
        OperationError::new(ErrorKind::Tool, format!("cannot unpack archive {name}: {why}"))
            .hint("the mirror's archive is not one of openshift-install; use another mirror")
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
            return Err(refused(format!("its member {shown} has a path outside the archive")).into());
        }
        let Some(name) = members
            .iter()
            .find(|name| parts.len() == 1 && parts[0].as_os_str() == **name)
        else {
            continue;
        };
        let kind = entry.header().entry_type();
        if kind.is_hard_link() {
            // kubectl and oc may be the same file.
            let first = entry.link_name().map_err(unreadable)?.unwrap_or_default().into_owned();
            let first = members
                .iter()
                .find(|name| first.strip_prefix("./").unwrap_or(&first) == Path::new(name));
            let first = first.ok_or_else(|| refused(format!("its member {shown} is a link to outside the archive")))?;
            into.link(first, name)?;
        } else if kind.is_file() {
            let mut out = into.file(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
            let wanted = entry.size();
            Space::new(LARGEST_PROGRAM)
                .take(&out, usize::try_from(wanted)?)
                .map_err(unreadable)?;
            let copied = io::copy(&mut (&mut entry).take(wanted), &mut out).map_err(unreadable)?;
            if copied != wanted {
                return Err(refused(format!("its member {shown} is truncated")).into());
            }
            dir::set_mode(&out, 0o755)?;
            out.sync_all()?;
        } else {
            return Err(refused(format!("its member {shown} is not a file")).into());
        }
    }
    if let Some(name) = members.first().filter(|name| !into.has(name)) {
        return Err(refused(format!("it has no {name}")).into());
    }
    let present = members.iter().filter(|name| into.has(name));
    let digests = present.map(|name| {
        let digest = digest::sha256_of(into.file(name, OFlags::RDONLY)?)?;
        Ok(((*name).to_owned(), digest))
    });
    Ok(digests.collect::<io::Result<_>>()?)
}
