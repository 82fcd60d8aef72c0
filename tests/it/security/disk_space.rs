//! A small download that decompresses to many zeros must not fill the disk.

use std::fs;
use std::io::Write;
use std::process::Command;
use std::time::Duration;

use ocpdeploy::artifacts::catalogue::Artifact;
use ocpdeploy::artifacts::download::{Cache, DownloadError, RetryPolicy};
use ocpdeploy::digest::sha256;

use crate::support::left_out::is_root;
use crate::support::mirror::{Mirror, Served};

/// This many MiB of zeros, compressed.
fn bomb(mib: usize) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let zeros = vec![0; 1 << 20];
    for _ in 0..mib {
        out.write_all(&zeros).unwrap();
    }
    out.finish().unwrap()
}

fn fetch(cache: &Cache, artifact: &Artifact) -> Result<ocpdeploy::artifacts::download::Cached, DownloadError> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(cache.fetch(artifact))
}

#[test]
fn a_file_that_exceeds_the_size_limit_is_rejected_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let retries = RetryPolicy {
        tries: 2,
        first_pause: Duration::from_millis(5),
    };
    let cache = Cache::new(folder.path()).with_retries(retries).with_largest(8 << 20);
    let mirror = Mirror::start();
    mirror.serve("/packed.gz", Served::new(bomb(9)));
    mirror.serve("/plain", Served::new(vec![0; 9 << 20]));
    mirror.serve("/right.gz", Served::new(bomb(8)));
    let artifact = |name: &str| Artifact {
        url: mirror.url(name),
        sha256: None,
        content_sha256: None,
        unpack: true,
    };
    for name in ["/packed.gz", "/plain"] {
        let error = fetch(&cache, &artifact(name)).unwrap_err().to_string();
        assert!(
            error.contains(name) && error.contains("it is larger than 8 MiB"),
            "{error}"
        );
        let left = fs::read_dir(folder.path().join("partial")).unwrap();
        let left = left.flat_map(|entry| fs::read_dir(entry.unwrap().path()).into_iter().flatten());
        assert_eq!(left.count(), 0, "{name}");
    }
    assert_eq!(fetch(&cache, &artifact("/right.gz")).unwrap().bytes, 8 << 20);
}

#[test]
fn a_download_leaves_some_of_the_disk_free() {
    if !is_root("mount a small disk") {
        return;
    }
    let mirror = Mirror::start();
    let packed = bomb(400);
    let url = format!("{}#sha256={}", mirror.url("/a.qcow2.gz"), sha256(&packed));
    mirror.serve("/a.qcow2.gz", Served::new(packed));
    let folder = tempfile::tempdir().unwrap();
    // A disk of 320 MiB in its own mount namespace; the last line is the least free space at any time.
    let script = r#"
        mount -t tmpfs -o size=320m,mode=700 none "$1"; shift
        free() { df -B1M --output=avail cache | tail -1; }
        "$@" & least=$(free)
        while kill -0 $! 2>/dev/null; do now=$(free); [ "$now" -ge "$least" ] || least=$now; done
        wait $!; code=$?; echo "$code $least $(free)"
    "#;
    fs::create_dir(folder.path().join("cache")).unwrap();
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh", "cache"])
        .arg(env!("CARGO_BIN_EXE_ocpdeploy"))
        .args(["image", "pull", "--image", &url, "--downloads-dir", "cache"])
        .current_dir(folder.path())
        .env("HOME", folder.path())
        .env_remove("OCPDEPLOY_HOME")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&[&output.stderr[..], &output.stdout[..]].concat()).into_owned();
    let numbers: Vec<u64> = said
        .lines()
        .last()
        .unwrap()
        .split_whitespace()
        .map(|n| n.parse().unwrap())
        .collect();
    let [code, least, after] = numbers[..] else {
        panic!("{said}")
    };
    assert_eq!(code, 4, "{said}");
    assert!(
        said.contains("would remain free on this disk") && said.contains("ocpdeploy image prune"),
        "{said}"
    );
    assert!(least > 200, "{said}");
    // The compressed bytes are kept for the next run; their content is not.
    assert!(after > 310, "{said}");
}
