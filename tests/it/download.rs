//! Downloads from a server that cuts, lies and changes its mind: the right file or a clear error, never a half one.

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

/// Numbers without a pattern, the same for one seed.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Bytes that compress to about a half.
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

/// A cache that gives up soon.
fn cache(folder: &Path) -> Cache {
    Cache::new(folder).with_retries(RetryPolicy {
        tries: 3,
        first_pause: Duration::from_millis(5),
    })
}

/// A gzipped file on a mirror, with both sums.
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

    /// What a failed download left among the whole files.
    fn whole(&self) -> usize {
        fs::read_dir(self.folder.path().join("files")).map_or(0, Iterator::count)
    }

    /// Folders of downloads that are not whole.
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
            .args(["image", "pull", "--image", &url, "--cache"])
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
fn what_is_served_is_verified_unpacked_and_kept() {
    let bench = Bench::new(3 << 20);
    let first = bench.fetch_right();
    let second = bench.fetch_right();
    assert_eq!(first.path, second.path);
    assert_eq!(bench.mirror.asked().len(), 1, "the second comes from the cache");

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
    // As early CoreOS is published: packed, under the name of a plain file.
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
fn connections_that_are_cut_at_fifty_random_bytes_end_in_the_right_file() {
    let seed = u64::from(std::process::id());
    let mut chance = Chance(seed | 1);
    let bench = Bench::new(8 << 20);
    // Each cut leaves some of what is missing then, so that all fifty happen.
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
fn a_server_without_ranges_is_asked_for_the_whole_again() {
    let bench = Bench::new(1 << 20);
    bench.mirror.change(FILE, |served| {
        served.ranges = false;
        served.cuts = vec![1000, 200_000, 300_000];
    });
    bench.fetch_right();
}

#[test]
fn a_wrong_sum_names_both_and_leaves_nothing() {
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
fn a_mirror_that_lies_about_the_length_is_told_of() {
    // Too long: the connection ends before the file does, every time.
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

    // Too short: what comes is not the file that was published.
    let bench = Bench::new(1 << 20);
    bench.mirror.change(FILE, |served| served.claims = Some(packed - 1000));
    let error = bench.fetch().unwrap_err();
    assert!(matches!(error, DownloadError::WrongSum { .. }), "{error}");
    assert_eq!(bench.whole(), 0);
}

#[test]
fn a_file_that_changes_between_two_parts_is_begun_anew() {
    for heeds in [true, false] {
        let mut bench = Bench::new(1 << 20);
        let old = gzip(&content(1 << 20, 99));
        bench.mirror.change(FILE, |served| {
            served.body = old.into();
            served.etag = Some("\"old\"".to_owned());
            served.cuts = vec![150_000];
            served.statuses = vec![];
        });
        // The first run is cut and finds nobody any more.
        let new = gzip(&bench.content);
        let first = bench.artifact.sha256.replace(sha256(&new));
        assert!(first.is_some());
        bench.mirror.change(FILE, |served| served.cuts = vec![150_000, 0, 0, 0]);
        let error = bench.fetch().unwrap_err();
        assert!(
            matches!(error, DownloadError::Unreachable { .. } | DownloadError::Short { .. }),
            "{error}"
        );
        assert_eq!(bench.left().len(), 1, "what came is kept");

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
fn a_server_that_tells_no_state_of_the_file_is_gone_on_with_and_the_sum_decides() {
    let bench = Bench::new(1 << 20);
    bench.mirror.change(FILE, |served| {
        served.etag = None;
        served.cuts = vec![100_000];
    });
    bench.fetch_right();
    assert_eq!(bench.mirror.asked()[1].range.as_deref(), Some("bytes=100000-"));
}

#[test]
fn a_shorter_file_than_what_is_here_already_is_begun_anew() {
    // A strong state that stays the same, and a file that lost its end: the answer is 416.
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
fn a_server_that_is_busy_is_asked_again_and_one_that_refuses_is_not() {
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
fn bytes_that_cannot_be_decompressed_are_told_as_such() {
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
fn a_file_of_this_computer_is_unpacked_once_for_each_of_its_states() {
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
fn the_cache_is_pruned_of_what_is_not_used_and_of_what_broke() {
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
fn what_another_program_damaged_is_fetched_again() {
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
fn two_processes_at_once_fetch_once() {
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
fn a_process_that_was_killed_leaves_what_the_next_goes_on_with() {
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
fn a_disk_that_is_full_is_told_with_what_to_do_and_nothing_is_shown() {
    let bench = Bench::new(8 << 20);
    // A limit of the shell, in KiB, stands in for the disk: the kernel refuses to write what is beyond.
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
