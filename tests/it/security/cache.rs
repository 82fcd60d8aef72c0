//! The cache belongs to one user: nothing in a directory that others own or can write to is used.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::time::Duration;

use ocpdeploy::artifacts::catalogue::Artifact;
use ocpdeploy::artifacts::download::{Cache, Cached, DownloadError};
use ocpdeploy::digest::sha256;

use crate::security::{MALLORY, mode};
use crate::support::left_out::is_root;
use crate::support::mirror::{Mirror, Served};

const IMAGE: &[u8] = b"the image";

/// A cache with one image, and the mirror of the image.
struct Bench {
    folder: tempfile::TempDir,
    mirror: Mirror,
    cache: Cache,
    artifact: Artifact,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mirror = Mirror::start();
        mirror.serve("/a.qcow2", Served::new(IMAGE));
        let artifact = Artifact {
            url: mirror.url("/a.qcow2"),
            sha256: Some(sha256(IMAGE)),
            content_sha256: None,
            unpack: true,
        };
        let cache = Cache::new(folder.path().join("cache"));
        let bench = Self {
            folder,
            mirror,
            cache,
            artifact,
        };
        bench.fetch().unwrap();
        bench
    }

    fn fetch(&self) -> Result<Cached, DownloadError> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(self.cache.fetch(&self.artifact))
    }

    fn me(&self) -> u32 {
        owner(self.folder.path())
    }
}

fn owner(path: &Path) -> u32 {
    fs::metadata(path).unwrap().uid()
}

#[test]
fn a_cache_that_others_own_or_can_write_to_is_rejected_with_a_command_that_fixes_it() {
    let bench = Bench::new();
    let root = bench.cache.root();
    assert_eq!(
        fs::metadata(root).unwrap().mode() & 0o7777,
        0o700,
        "a new one is private"
    );
    let me = bench.me();
    for (owner, bits, why) in [
        (me, 0o770, "members of group "),
        (me, 0o777, "everyone can write to"),
        (me, 0o1777, "everyone can write to"),
        (MALLORY, 0o700, "belongs to user 61002"),
        (MALLORY, 0o1777, "belongs to user 61002"),
    ] {
        if owner != me {
            if !is_root("give a cache to another user") {
                continue;
            }
            chown(root, Some(owner), None).unwrap();
        }
        mode(root, bits);
        assert!(bench.cache.find(&bench.artifact).is_none() && bench.cache.list().is_empty());
        let pruned = bench.cache.prune(Duration::ZERO, false).map(drop);
        for error in [bench.fetch().map(drop).unwrap_err(), pruned.unwrap_err()] {
            assert!(matches!(error, DownloadError::Unsafe { .. }), "{error}");
            let (text, path) = (error.to_string(), root.display());
            assert!(text.contains(why) && text.contains(&path.to_string()), "{text}");
            let command = format!("`sudo chown $(id -u) {path} && chmod go-w {path}`");
            assert!(error.hint().unwrap().contains(&command), "{:?}", error.hint());
        }
        chown(root, Some(me), None).unwrap();
        mode(root, bits & !0o1022);
        bench.fetch().unwrap();
    }
    assert_eq!(bench.mirror.asked().len(), 1, "its content was kept and is used again");
}

#[test]
fn files_of_another_user_in_the_cache_are_replaced() {
    let bench = Bench::new();
    if !is_root("leave a file of another user") {
        return;
    }
    let cached = bench.fetch().unwrap();
    let entry = cached.path.parent().unwrap();
    fs::remove_file(&cached.path).unwrap();
    fs::write(&cached.path, [b'x'; IMAGE.len()]).unwrap();
    chown(entry, Some(MALLORY), None).unwrap();
    let again = bench.fetch().unwrap();
    assert_eq!(again.path, cached.path);
    assert_eq!(fs::read(&again.path).unwrap(), IMAGE);
    assert_eq!(owner(entry), bench.me());
    assert_eq!(bench.mirror.asked().len(), 2);
    // Nor is anything written to a directory of another user.
    let files = entry.parent().unwrap();
    chown(files, Some(MALLORY), None).unwrap();
    let error = bench.fetch().unwrap_err().to_string();
    assert!(error.contains("files belongs to user 61002"), "{error}");
}
