//! Downloads from a server with cut connections, wrong headers and changing files: a complete file or a clear error.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ocpdeploy::artifacts::catalogue::Artifact;
use ocpdeploy::artifacts::download::{Cache, Cached, DownloadError, RetryPolicy};
use ocpdeploy::digest::sha256;

use crate::support::mirror::{Mirror, Served};
use crate::support::sandbox::Sandbox;

/// Pseudorandom numbers, the same for the same seed.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Bytes that compress to about half their size.
fn content(bytes: usize, seed: u64) -> Vec<u8> {
    let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    (0..bytes).map(|_| (chance.next() >> 24) as u8 & 0x0f).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(future)
}

/// A cache with few and short retries.
fn cache(folder: &Path) -> Cache {
    Cache::new(folder).with_retries(RetryPolicy {
        tries: 3,
        first_pause: Duration::from_millis(5),
    })
}

/// A gzipped file on a mirror, with both checksums.
struct Bench {
    mirror: Mirror,
    folder: tempfile::TempDir,
    content: Vec<u8>,
    artifact: Artifact,
}

const FILE: &str = "/images/a.qcow2.gz";

impl Bench {
    fn new(bytes: usize) -> Self {
        let mirror = Mirror::start();
        let content = content(bytes, 7);
        let packed = gzip(&content);
        let artifact = Artifact {
            url: mirror.url(FILE),
            sha256: Some(sha256(&packed)),
            content_sha256: Some(sha256(&content)),
            unpack: true,
        };
        mirror.serve(FILE, Served::new(packed));
        Self {
            mirror,
            folder: tempfile::tempdir().unwrap(),
            content,
            artifact,
        }
    }

    fn packed(&self) -> usize {
        gzip(&self.content).len()
    }

    fn cache(&self) -> Cache {
        cache(self.folder.path())
    }

    fn fetch(&self) -> Result<Cached, DownloadError> {
        run(self.cache().fetch(&self.artifact))
    }

    fn fetch_right(&self) -> Cached {
        let cached = self.fetch().unwrap_or_else(|error| panic!("{error}"));
        self.is_right(&cached);
        cached
    }

    fn is_right(&self, cached: &Cached) {
        assert!(
            fs::read(&cached.path).unwrap() == self.content,
            "{}",
            cached.path.display()
        );
        assert_eq!(cached.sha256, sha256(&self.content));
        assert_eq!(cached.path.file_name().unwrap(), "a.qcow2");
        assert_eq!(
            fs::metadata(&cached.path).unwrap().permissions().mode() & 0o222,
            0,
            "nobody writes it"
        );
        assert!(self.left().is_empty(), "{:?}", self.left());
    }

    /// The number of complete files in the cache.
    fn whole(&self) -> usize {
        fs::read_dir(self.folder.path().join("files")).map_or(0, Iterator::count)
    }

    /// Folders of partial downloads.
    fn left(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path().join("partial")).into_iter().flatten();
        entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir())
            .collect()
    }

    /// Runs the program itself.
    fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ocpdeploy"));
        let url = format!(
            "{}#sha256={}",
            self.artifact.url,
            self.artifact.content_sha256.as_ref().unwrap()
        );
        command
            .args(["image", "pull", "--image", &url, "--downloads-dir"])
            .arg(self.folder.path())
            .env("HOME", self.folder.path())
            .env_remove("OCPDEPLOY_HOME")
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

#[test]
fn a_named_image_comes_from_the_image_mirror_of_the_settings_and_over_plain_http_only_with_its_digest() {
    const NAME: &str = "/CentOS-Stream-GenericCloud-10-latest.x86_64.qcow2";
    let (mirror, content) = (Mirror::start(), content(1 << 16, 7));
    mirror.serve(NAME, Served::new(content.clone()));
    let sandbox = Sandbox::new(serde_json::json!({}));
    let folder = mirror.url("");
    sandbox.env("with", &format!("image_mirror={folder}"));
    sandbox.env("without", "");
    let set = format!("image_mirror={folder}");
    for (asked, cache, source) in [
        (0, "one", &["with.sh"][..]),
        (1, "two", &["without.sh", "--set", set.as_str()][..]),
    ] {
        let pull = |image: &str| {
            let command = [
                "image",
                "pull",
                "--rehearse",
                "--image",
                image,
                "--downloads-dir",
                cache,
            ];
            sandbox.run(&[&command[..], source].concat())
        };
        let refused = pull("centos10stream");
        assert_eq!(refused.code, Some(4), "{}", refused.stderr);
        assert_eq!(mirror.asked().len(), asked, "{}", refused.stderr);
        assert!(
            refused.stderr.contains("plain http does not protect"),
            "{}",
            refused.stderr
        );
        let url = format!("{folder}{NAME}");
        assert!(
            refused.stderr.contains(&format!(" {url}#sha256=…")),
            "{}",
            refused.stderr
        );
        assert_eq!(pull(&url).code, Some(4));
        let path = pull(&format!("{url}#sha256={}", sha256(&content))).succeeded().stdout;
        assert!(
            fs::read(sandbox.path().join(path.trim_end())).unwrap() == content,
            "{path}"
        );
    }
}

#[test]
fn a_download_is_verified_decompressed_and_cached() {
    let bench = Bench::new(3 << 20);
    let first = bench.fetch_right();
    let second = bench.fetch_right();
    assert_eq!(first.path, second.path);
    assert_eq!(bench.mirror.asked().len(), 1, "the second request uses the cache");

    let packed = [
        ("a.xz", xz(&bench.content)),
        ("a.zst", zstd::encode_all(&*bench.content, 1).unwrap()),
    ];
    for (name, packed) in packed {
        let path = format!("/images/{name}");
        let folder = tempfile::tempdir().unwrap();
        let artifact = Artifact {
            url: bench.mirror.url(&path),
            sha256: Some(sha256(&packed)),
            ..bench.artifact.clone()
        };
        bench.mirror.serve(&path, Served::new(packed));
        let cached = run(cache(folder.path()).fetch(&artifact)).unwrap();
        assert!(fs::read(cached.path).unwrap() == bench.content, "{name}");
    }
    // As early CoreOS images are published: compressed, under the name of a plain file.
    bench.mirror.serve("/images/b.qcow2", Served::new(gzip(&bench.content)));
    let folder = tempfile::tempdir().unwrap();
    let url = bench.mirror.url("/images/b.qcow2");
    let artifact = Artifact {
        url,
        ..bench.artifact.clone()
    };
    let cached = run(cache(folder.path()).fetch(&artifact)).unwrap();
    assert!(fs::read(cached.path).unwrap() == bench.content);
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut out = liblzma::write::XzEncoder::new(Vec::new(), 0);
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

#[test]
fn a_download_that_is_cut_fifty_times_is_complete() {
    let seed = u64::from(std::process::id());
    let mut chance = Chance(seed | 1);
    let bench = Bench::new(8 << 20);
    // Each cut leaves some bytes to download, so that all fifty happen.
    let mut missing = bench.packed();
    let cuts: Vec<usize> = (0..50)
        .map(|_| {
            let cut = 1 + (chance.next() as usize % (missing / 8));
            missing -= cut;
            cut
        })
        .collect();
    bench.mirror.change(FILE, |served| served.cuts = cuts);
    bench.fetch_right();
    let asked = bench.mirror.asked();
    assert_eq!(asked.len(), 51, "seed {seed}");
    assert!(
        asked[1..].iter().all(|asked| asked.range.is_some()),
        "seed {seed}: {asked:?}"
    );
}

#[test]
fn without_range_requests_the_download_restarts() {
    let bench = Bench::new(1 << 20);
    bench.mirror.change(FILE, |served| {
        served.ranges = false;
        served.cuts = vec![1000, 200_000, 300_000];
    });
    bench.fetch_right();
}

#[test]
fn a_checksum_mismatch_names_both_sums_and_leaves_no_file() {
    for content in [false, true] {
        let mut bench = Bench::new(1 << 20);
        let wrong = "0".repeat(64);
        let (found, what) = if content {
            bench.artifact.content_sha256 = Some(wrong.clone());
            (sha256(&bench.content), "the decompressed content")
        } else {
            bench.artifact.sha256 = Some(wrong.clone());
            (sha256(gzip(&bench.content)), "the download")
        };
        let error = bench.fetch().unwrap_err();
        let url = &bench.artifact.url;
        assert_eq!(
            error.to_string(),
            format!("checksum mismatch for {url}: {what} has sha256 {found}, expected {wrong}")
        );
        assert!(error.hint().is_some());
        assert_eq!((bench.whole(), bench.mirror.asked().len()), (0, 1));
        for folder in bench.left() {
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "{}", folder.display());
        }
    }
}

#[test]
fn a_wrong_content_length_is_reported() {
    // Too large: each connection ends before the file.
    let bench = Bench::new(1 << 20);
    let packed = bench.packed() as u64;
    bench.mirror.change(FILE, |served| served.claims = Some(packed + 1000));
    let error = bench.fetch().unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "cannot download {}: received {packed} bytes, but the server announced {}",
            bench.artifact.url,
            packed + 1000
        )
    );
    assert_eq!(bench.whole(), 0);

    // Too small: the received bytes are not the published file.
    let bench = Bench::new(1 << 20);
    bench.mirror.change(FILE, |served| served.claims = Some(packed - 1000));
    let error = bench.fetch().unwrap_err();
    assert!(matches!(error, DownloadError::WrongSum { .. }), "{error}");
    assert_eq!(bench.whole(), 0);
}

#[test]
fn a_file_that_changes_between_two_parts_is_downloaded_again() {
    for heeds in [true, false] {
        let mut bench = Bench::new(1 << 20);
        let old = gzip(&content(1 << 20, 99));
        bench.mirror.change(FILE, |served| {
            served.body = old.into();
            served.etag = Some("\"old\"".to_owned());
            served.cuts = vec![150_000];
            served.statuses = vec![];
        });
        // The first run is cut, and no further connection succeeds.
        let new = gzip(&bench.content);
        let first = bench.artifact.sha256.replace(sha256(&new));
        assert!(first.is_some());
        bench.mirror.change(FILE, |served| served.cuts = vec![150_000, 0, 0, 0]);
        let error = bench.fetch().unwrap_err();
        assert!(
            matches!(error, DownloadError::Unreachable { .. } | DownloadError::Short { .. }),
            "{error}"
        );
        assert_eq!(bench.left().len(), 1, "the received bytes are kept");

        bench.mirror.change(FILE, |served| {
            served.body = new.into();
            served.etag = Some("\"new\"".to_owned());
            served.if_range = heeds;
            served.cuts = vec![];
        });
        bench.fetch_right();
        let asked = bench.mirror.asked();
        assert!(
            asked
                .iter()
                .any(|asked| asked.range.as_deref() == Some("bytes=150000-")),
            "{asked:?}"
        );
    }
}

#[test]
fn without_an_etag_the_download_resumes_and_the_checksum_decides() {
    let bench = Bench::new(1 << 20);
    bench.mirror.change(FILE, |served| {
        served.etag = None;
        served.cuts = vec![100_000];
    });
    bench.fetch_right();
    assert_eq!(bench.mirror.asked()[1].range.as_deref(), Some("bytes=100000-"));
}

#[test]
fn a_file_shorter_than_the_partial_download_is_downloaded_again() {
    // The same strong ETag, and a file that was truncated: the server returns 416.
    let mut bench = Bench::new(1 << 20);
    let new = gzip(&bench.content[..1000]);
    let expected = bench.content[..1000].to_vec();
    bench.artifact.sha256 = Some(sha256(&new));
    bench.artifact.content_sha256 = Some(sha256(&expected));
    bench.mirror.change(FILE, |served| served.cuts = vec![100_000, 0, 0, 0]);
    bench.fetch().unwrap_err();
    bench.mirror.change(FILE, |served| {
        served.body = new.into();
        served.cuts = vec![];
    });
    let cached = bench.fetch().unwrap();
    assert!(fs::read(cached.path).unwrap() == expected);
}

#[test]
fn a_request_is_repeated_after_busy_and_not_after_a_rejection() {
    let bench = Bench::new(1 << 20);
    bench.mirror.change(FILE, |served| served.statuses = vec![503, 429]);
    bench.fetch_right();

    let bench = Bench::new(1 << 20);
    bench.mirror.change(FILE, |served| served.statuses = vec![403; 9]);
    let error = bench.fetch().unwrap_err();
    assert!(matches!(error, DownloadError::Refused { status: 403, .. }), "{error}");
    assert_eq!(bench.mirror.asked().len(), 1);

    let bench = Bench::new(1 << 20);
    bench.mirror.change(FILE, |served| served.statuses = vec![500; 9]);
    let error = bench.fetch().unwrap_err();
    assert!(matches!(error, DownloadError::Unreachable { tries: 3, .. }), "{error}");
    assert_eq!(bench.mirror.asked().len(), 3);
}

#[test]
fn invalid_compressed_data_is_reported() {
    let mut bench = Bench::new(1 << 20);
    let mut damaged = gzip(&bench.content);
    let middle = damaged.len() / 2;
    damaged[middle..middle + 100].fill(0xff);
    bench.artifact.sha256 = Some(sha256(&damaged));
    bench.mirror.change(FILE, |served| served.body = damaged.into());
    let error = bench.fetch().unwrap_err();
    assert!(
        matches!(error, DownloadError::Damaged { .. } | DownloadError::WrongSum { .. }),
        "{error}"
    );
    assert_eq!(bench.whole(), 0);
}

#[test]
fn a_local_file_is_decompressed_again_only_after_a_change() {
    let bench = Bench::new(1 << 20);
    let path = bench.folder.path().join("local.qcow2.gz");
    fs::write(&path, gzip(&bench.content)).unwrap();
    let url = format!("file://{}?1", path.display());
    let artifact = Artifact {
        url: url.clone(),
        sha256: None,
        content_sha256: None,
        unpack: true,
    };
    let cached = run(bench.cache().fetch(&artifact)).unwrap();
    assert!(fs::read(&cached.path).unwrap() == bench.content);
    fs::remove_file(&path).unwrap();
    assert_eq!(run(bench.cache().fetch(&artifact)).unwrap().path, cached.path);
    let other = Artifact {
        url: format!("file://{}?2", path.display()),
        ..artifact
    };
    let error = run(bench.cache().fetch(&other)).unwrap_err();
    assert!(matches!(error, DownloadError::Local { .. }), "{error}");
}

#[test]
fn pruning_removes_unused_and_partial_files() {
    let bench = Bench::new(1 << 20);
    let cached = bench.fetch_right();
    bench.mirror.serve(
        "/b.gz",
        Served {
            cuts: vec![100, 0, 0, 0],
            ..Served::new(gzip(&bench.content))
        },
    );
    let url = bench.mirror.url("/b.gz");
    let broken = Artifact {
        url,
        sha256: None,
        content_sha256: None,
        unpack: true,
    };
    run(bench.cache().fetch(&broken)).unwrap_err();
    let cache = bench.cache();
    assert_eq!(cache.prune(Duration::from_secs(3600), false).unwrap(), []);
    assert_eq!(cache.list().len(), 1);
    assert_eq!(cache.prune(Duration::ZERO, true).unwrap().len(), 2);
    assert!(cached.path.exists());
    assert_eq!(cache.prune(Duration::ZERO, false).unwrap().len(), 2);
    assert_eq!((cache.list().len(), bench.whole(), bench.left().len()), (0, 0, 0));
}

#[test]
fn a_damaged_cache_file_is_downloaded_again() {
    let bench = Bench::new(1 << 20);
    let cached = bench.fetch_right();
    fs::set_permissions(&cached.path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(&cached.path, "cut").unwrap();
    bench.fetch_right();
    assert_eq!(bench.mirror.asked().len(), 2);
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[test]
fn two_parallel_processes_download_once() {
    let bench = Bench::new(8 << 20);
    bench.mirror.change(FILE, |served| served.slow = 5);
    let start = |_| bench.program().spawn().unwrap();
    let children: Vec<Child> = (0..2).map(start).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert!(fs::read(&path).unwrap() == bench.content, "{path}");
    }
    assert_eq!(bench.mirror.asked().len(), 1);
    assert_eq!((bench.whole(), bench.left().len()), (1, 0));
}

#[test]
fn a_killed_download_is_resumed() {
    let bench = Bench::new(16 << 20);
    bench.mirror.change(FILE, |served| served.slow = 10);
    for round in 1..=3u64 {
        let mut child = bench.program().spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        let enough =
            |path: &PathBuf| fs::metadata(path.join("packed")).is_ok_and(|data| data.len() > round * 1_000_000);
        while !bench.left().iter().any(enough) {
            assert!(
                Instant::now() < end && child.try_wait().unwrap().is_none(),
                "round {round}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert_eq!(bench.whole(), 0);
    }
    bench.mirror.change(FILE, |served| served.slow = 0);
    let output = bench.program().output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let asked = bench.mirror.asked();
    assert_eq!(asked.len(), 4);
    let begins = |range: &Option<String>| {
        range
            .as_deref()
            .map(|range| range[6..range.len() - 1].parse::<u64>().unwrap())
    };
    for (index, asked) in asked[1..].iter().enumerate() {
        assert!(
            begins(&asked.range).is_some_and(|start| start > (index as u64 + 1) * 1_000_000),
            "{asked:?}"
        );
    }
    bench.is_right(&bench.cache().list()[0]);
}

#[test]
fn a_full_disk_is_reported_with_a_hint_and_leaves_no_file() {
    let bench = Bench::new(8 << 20);
    // A file size limit of the shell, in KiB, plays the full disk: the kernel rejects writes beyond it.
    let mut limited = Command::new("sh");
    let program = bench.program();
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f 2048; exec \"$@\"", "sh"])
        .arg(program.get_program())
        .args(program.get_args())
        .env("HOME", bench.folder.path())
        .current_dir(bench.folder.path());
    let output = limited.output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", text(&output));
    let text = text(&output);
    assert!(
        text.contains("cannot write ") && text.contains("ocpdeploy image prune"),
        "{text}"
    );
    assert_eq!(bench.whole(), 0);

    let output = bench.program().output().unwrap();
    assert!(output.status.success());
    bench.is_right(&bench.cache().list()[0]);
}
