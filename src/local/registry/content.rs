//! The content of a registry on disk: its blobs, and which are removed first.
//!
//! The layout is that of distribution/distribution: `registry/storage/paths.go`. A registry finds a blob by the file
//! with its content. If that is removed while the registry runs, the blob is fetched again when it is needed; a node
//! that is reading the file still receives all of it.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fs_err as fs;

const VERSION_2: &str = "docker/registry/v2";

/// A download that has written nothing for this time has failed. Registries leave its file behind, even if it filled
/// the disk.
const STALE: Duration = Duration::from_secs(15 * 60);

/// One blob: a layer, or a small document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    pub file: PathBuf,
    pub bytes: u64,
    /// As precise as the file system's access times.
    pub used: SystemTime,
}

/// Whether a repository has a blob. A blob that only another repository has is fetched again, so it does not count.
pub fn has(storage: &Path, repository: &str, digest: &str) -> bool {
    let files = || {
        let (algorithm, hex) = digest.split_once(':')?;
        let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let is_name = |part: &str| !part.is_empty() && part != "." && part != "..";
        if !is_plain(algorithm) || !is_plain(hex) || !repository.split('/').all(is_name) {
            return None;
        }
        let root = storage.join(VERSION_2);
        let layers = root.join("repositories").join(repository).join("_layers");
        let blob = root.join("blobs").join(algorithm).join(hex.get(..2)?).join(hex);
        Some([layers.join(algorithm).join(hex).join("link"), blob.join("data")])
    };
    files().is_some_and(|files| files.iter().all(|file| file.is_file()))
}

/// All complete blobs.
pub fn blobs(storage: &Path) -> io::Result<Vec<Blob>> {
    let mut folders = vec![storage.join(VERSION_2).join("blobs")];
    // Algorithm, first byte, digest.
    for _ in 0..3 {
        let mut below = Vec::new();
        for folder in &folders {
            below.extend(entries(folder)?);
        }
        folders = below;
    }
    let mut blobs = Vec::new();
    for folder in folders {
        let file = folder.join("data");
        // It may just have been removed.
        let Ok(data) = fs::symlink_metadata(&file) else {
            continue;
        };
        if data.is_file() {
            blobs.push(Blob {
                bytes: data.len(),
                used: data.accessed()?.max(data.modified()?),
                file,
            });
        }
    }
    Ok(blobs)
}

/// The paths in a directory; none if it does not exist.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The blobs to remove so that at most `most` bytes remain, the least recently used first.
pub fn surplus(mut blobs: Vec<Blob>, most: u64) -> Vec<Blob> {
    let mut total: u64 = blobs.iter().map(|blob| blob.bytes).sum();
    blobs.sort_by_key(|blob| blob.used);
    let mut surplus = Vec::new();
    for blob in blobs {
        if total <= most {
            break;
        }
        total -= blob.bytes;
        surplus.push(blob);
    }
    surplus
}

/// Removes one blob. Missing is success.
pub fn remove(blob: &Blob) -> io::Result<()> {
    match fs::remove_file(&blob.file) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Not empty if the registry has just stored it again.
    if let Some(folder) = blob.file.parent() {
        let _ = fs::remove_dir(folder);
    }
    Ok(())
}

/// The directories of downloads that a killed registry left incomplete.
pub fn stale_uploads(storage: &Path, now: SystemTime) -> io::Result<Vec<PathBuf>> {
    let mut folders = vec![storage.join(VERSION_2).join("repositories")];
    let mut stale = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in entries(&folder)? {
            match path.file_name().and_then(OsStr::to_str) {
                Some("_uploads") => {
                    let is_old = |path: &PathBuf| {
                        let changed = fs::symlink_metadata(path.join("data")).and_then(|data| data.modified());
                        changed.is_ok_and(|changed| now.duration_since(changed).is_ok_and(|age| age > STALE))
                    };
                    stale.extend(entries(&path)?.into_iter().filter(is_old));
                }
                // A repository's name never begins with it.
                Some(name) if name.starts_with('_') => {}
                _ => folders.push(path),
            }
        }
    }
    Ok(stale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn blob(name: &str, bytes: u64, used: u64) -> Blob {
        Blob {
            file: name.into(),
            bytes,
            used: at(used),
        }
    }

    #[test]
    fn the_least_recently_used_are_removed_and_no_more_than_necessary() {
        let all = || vec![blob("new", 40, 3), blob("old", 10, 1), blob("middle", 30, 2)];
        let removed = |most| {
            let surplus = surplus(all(), most);
            surplus
                .iter()
                .map(|blob| blob.file.display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(removed(80), [""; 0]);
        assert_eq!(removed(79), ["old"]);
        assert_eq!(removed(70), ["old"]);
        assert_eq!(removed(69), ["old", "middle"]);
        assert_eq!(removed(0), ["old", "middle", "new"]);
    }

    #[test]
    fn blobs_and_stale_uploads_are_found_in_the_layout_of_a_registry() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(blobs(folder.path()).unwrap(), []);
        assert_eq!(stale_uploads(folder.path(), at(0)).unwrap(), [""; 0].map(PathBuf::from));
        let write = |path: &str, bytes: usize| {
            let path = folder.path().join(VERSION_2).join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, vec![0; bytes]).unwrap();
            path
        };
        let file = write("blobs/sha256/ab/abcd/data", 7);
        write("repositories/ocp/release/_layers/sha256/abcd/link", 71);
        let upload = write("repositories/ocp/release/_uploads/1/data", 3);
        let found = blobs(folder.path()).unwrap();
        assert_eq!(
            found
                .iter()
                .map(|blob| (blob.file.as_path(), blob.bytes))
                .collect::<Vec<_>>(),
            [(file.as_path(), 7)]
        );
        let now = SystemTime::now();
        assert_eq!(stale_uploads(folder.path(), now).unwrap(), [""; 0].map(PathBuf::from));
        let later = now + STALE + Duration::from_secs(60);
        assert_eq!(stale_uploads(folder.path(), later).unwrap(), [upload.parent().unwrap()]);
        assert!(has(folder.path(), "ocp/release", "sha256:abcd"));
        for (repository, digest) in [
            ("ocp/other", "sha256:abcd"),
            ("ocp/release", "sha256:abce"),
            ("ocp/./release", "sha256:abcd"),
            ("x/../ocp/release", "sha256:abcd"),
            ("ocp/release", "sha256:../sha256/abcd"),
            ("ocp/release", "abcd"),
            ("ocp/release", "sha256:a"),
        ] {
            assert!(!has(folder.path(), repository, digest), "{repository} {digest}");
        }
        remove(&found[0]).unwrap();
        remove(&found[0]).unwrap();
        assert!(!file.parent().unwrap().exists());
        assert!(!has(folder.path(), "ocp/release", "sha256:abcd"));
    }
}
