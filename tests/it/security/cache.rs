//! A cache that several users may write in: another user must neither have files outside it written, nor have wrong
//! bytes accepted, nor have a program run.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use ocpdeploy::artifacts::catalogue::Artifact;
use ocpdeploy::artifacts::download::Cache;
use ocpdeploy::digest::sha256;

use crate::security::release;
use crate::security::users::{ALICE, MALLORY, Users, mode};
use crate::support::left_out::is_root;
use crate::support::mirror::{Mirror, Served};

const IMAGE: &[u8] = b"the right image";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(future)
}

/// What a user has in the cache, as this program would have put it there.
fn plant(cache: &Path, owner: u32, digest: &str, packed: &str, content: &[u8]) {
    let folder = cache.join(format!("{owner}/files/{digest}"));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("a.qcow2"), content).unwrap();
    let about = serde_json::json!({
        "v": 1, "url": "http://x/a.qcow2.gz", "file": "a.qcow2", "sha256": digest, "packed_sha256": packed,
        "bytes": content.len(), "fetched": "2026-01-01T00:00:00Z",
    });
    fs::write(folder.join("about.json"), about.to_string()).unwrap();
    for path in [&folder, &folder.join("a.qcow2"), &folder.join("about.json")] {
        chown(path, Some(owner), Some(owner)).unwrap();
    }
}

fn shared(folder: &Path) {
    mode(folder, 0o1777);
}

#[test]
fn links_in_place_of_locks_and_folders_are_not_followed_and_the_sticky_bit_stays() {
    let Some(users) = Users::new() else { return };
    let cache = users.make("cache", 0, 0o1777);
    let mirror = Mirror::start();
    mirror.serve("/a.qcow2.gz", Served::new(gzip(IMAGE)));
    let url = mirror.url("/a.qcow2.gz");
    let key = &sha256(format!("{url}\n\n{}", sha256(IMAGE)))[..32];
    // Mallory was here first.
    for name in ["partial", "files", "installers"] {
        let folder = cache.join(name);
        fs::create_dir(&folder).unwrap();
        mode(&folder, 0o777);
    }
    symlink(users.path("alice/.ssh/id"), cache.join(format!("partial/{key}.lock"))).unwrap();
    fs::create_dir(cache.join(format!("partial/{key}"))).unwrap();
    mode(&cache.join(format!("partial/{key}")), 0o777);
    for (name, victim) in [("packed", ".bashrc"), ("origin.json", ".ssh/authorized_keys")] {
        symlink(
            users.path("alice").join(victim),
            cache.join(format!("partial/{key}/{name}")),
        )
        .unwrap();
    }
    let before = users.of_alice();
    let named = format!("{url}#sha256={}", sha256(IMAGE));
    let cache_flag = cache.to_str().unwrap();
    let output = users
        .alice(&["image", "pull", "--image", &named, "--cache", cache_flag])
        .output()
        .unwrap();
    assert_eq!(users.of_alice(), before, "{}", said(&output));
    assert!(output.status.success(), "{}", said(&output));
    let path = String::from_utf8(output.stdout).unwrap();
    assert_eq!(fs::read(path.trim()).unwrap(), IMAGE);
    let own = cache.join(ALICE.to_string());
    assert!(Path::new(path.trim()).starts_with(&own), "{path}");
    assert_eq!(fs::metadata(&own).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(fs::metadata(&cache).unwrap().mode() & 0o7777, 0o1777);
}

#[test]
fn a_cache_that_others_control_is_refused_with_what_to_do() {
    let Some(users) = Users::new() else { return };
    let theirs = users.make("theirs", MALLORY, 0o1777);
    let open = users.make("open", ALICE, 0o777);
    let squatted = users.make("squatted", 0, 0o1777);
    users.make(&format!("squatted/{ALICE}"), MALLORY, 0o777);
    let linked = users.make("linked", 0, 0o1777);
    symlink(users.path("alice"), linked.join(ALICE.to_string())).unwrap();
    for (cache, why) in [
        (theirs, format!("it belongs to user {MALLORY}")),
        (open, "everyone can write to it".to_owned()),
        (squatted, format!("it belongs to user {MALLORY}")),
        (linked, "is a link or not a directory".to_owned()),
    ] {
        let flag = cache.to_str().unwrap();
        let url = "http://127.0.0.1:1/a.qcow2";
        let output = users
            .alice(&["image", "pull", "--image", url, "--cache", flag])
            .output()
            .unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(4), "{said}");
        assert!(
            said.contains(&why) && said.contains("hint: set cache to a directory"),
            "{said}"
        );
        assert!(said.contains(flag), "{said}");
    }
}

#[test]
fn what_another_user_says_of_a_file_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    shared(folder.path());
    if !is_root("act as two users") {
        return;
    }
    let mirror = Mirror::start();
    let packed = gzip(IMAGE);
    mirror.serve("/a.qcow2.gz", Served::new(packed.clone()));
    let by_sums = |sha256: Option<String>, content_sha256: Option<String>| Artifact {
        url: mirror.url("/a.qcow2.gz"),
        sha256,
        content_sha256,
        unpack: true,
    };
    let wrong = b"the wrong image";
    // Right by its name, and it claims to come from the published archive.
    plant(folder.path(), MALLORY, &sha256(wrong), &sha256(&packed), wrong);
    // Wrong by its name.
    plant(folder.path(), MALLORY, &sha256(IMAGE), &sha256(&packed), wrong);
    let cache = Cache::new(folder.path());
    for artifact in [
        by_sums(Some(sha256(&packed)), None),
        by_sums(Some(sha256(&packed)), Some(sha256(IMAGE))),
    ] {
        let cached = run(cache.fetch(&artifact)).unwrap();
        assert_eq!(fs::read(&cached.path).unwrap(), IMAGE);
        cache.forget(&cached);
    }
    assert_eq!(mirror.asked().len(), 2);
    // A right one is copied, not used where it is.
    plant(folder.path(), MALLORY, &sha256(IMAGE), "", IMAGE);
    let cached = run(cache.fetch(&by_sums(None, Some(sha256(IMAGE))))).unwrap();
    assert_eq!(mirror.asked().len(), 2, "nothing is downloaded that is here");
    assert!(
        cached.path.starts_with(folder.path().join("0")),
        "{}",
        cached.path.display()
    );
    plant(folder.path(), MALLORY, &sha256(IMAGE), "", wrong);
    assert_eq!(fs::read(&cached.path).unwrap(), IMAGE);
}

#[test]
fn a_program_that_another_user_left_or_changed_is_not_run() {
    let Some(users) = Users::new() else { return };
    let cache = users.make("cache", 0, 0o1777);
    let markers = users.make("markers", 0, 0o1777);
    let evil = format!(
        "#!/bin/sh\ntouch {}/$$\necho openshift-install 4.19.3\n",
        markers.display()
    );
    for sandbox in ["installers/4.19.3".to_owned(), format!("{MALLORY}/installers/4.19.3")] {
        let folder = cache.join(sandbox);
        fs::create_dir_all(&folder).unwrap();
        for name in ["openshift-install", "oc"] {
            fs::write(folder.join(name), &evil).unwrap();
            mode(&folder.join(name), 0o755);
        }
        let digests = serde_json::json!({"openshift-install": sha256(&evil), "oc": sha256(&evil)});
        fs::write(folder.join("sha256.json"), digests.to_string()).unwrap();
        for path in [
            &folder,
            folder.parent().unwrap(),
            &folder.join("openshift-install"),
            &folder.join("oc"),
        ] {
            chown(path, Some(MALLORY), Some(MALLORY)).unwrap();
        }
    }
    let mirror = Mirror::start();
    let pin = release::publish(
        &mirror,
        "ocp/4.19.3",
        "4.19.3",
        &release::installer("4.19.3"),
        release::OC,
    );
    let env = release::env(&users, &cache, &mirror, &format!("mirror_sha256={pin}\n"));
    let payload = || {
        users
            .alice(&["image", "payload", env.to_str().unwrap()])
            .output()
            .unwrap()
    };
    let output = payload();
    assert_eq!(fs::read_dir(&markers).unwrap().count(), 0, "{}", said(&output));
    assert!(output.status.success(), "{}", said(&output));
    // oc beside a right openshift-install was changed, by whatever means.
    let own = cache.join(format!("{ALICE}/installers/4.19.3"));
    fs::write(own.join("oc"), &evil).unwrap();
    let output = payload();
    assert_eq!(fs::read_dir(&markers).unwrap().count(), 0, "{}", said(&output));
    assert!(
        said(&output).contains("oc has changed since it was verified"),
        "{}",
        said(&output)
    );
    assert_eq!(
        fs::read_to_string(own.join("oc")).unwrap(),
        release::OC,
        "it was fetched anew"
    );
}

/// Swaps what is in the cache for all that could hurt, as Mallory, until it is killed.
const ATTACK: &str = r#"
import itertools, json, os, random, sys
cache, alice, digest, key, wrong, evil = sys.argv[1:7]
victims = [alice + '/' + name for name in ('.ssh/authorized_keys', '.ssh/id', '.bashrc')]
about = json.dumps({'v': 1, 'url': 'x', 'file': 'a.qcow2', 'sha256': digest, 'packed_sha256': digest,
                    'bytes': len(wrong), 'fetched': '2026-01-01T00:00:00Z'})
def attempt(work, *arguments):
    try: work(*arguments)
    except OSError: pass
def write(path, text):
    # A FIFO of our own must not hold us up.
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK, 0o777)
    os.write(file, text.encode())
    os.fchmod(file, 0o777)
    os.close(file)
def gone(path):
    attempt(os.rename, path, 'trash%d' % random.randrange(10**12))
    attempt(os.unlink, path)
def folder(path):
    attempt(os.mkdir, path)
    attempt(os.chmod, path, 0o777)
def anything(path):
    random.choice([
        lambda: attempt(write, path, wrong),
        lambda: attempt(os.symlink, random.choice(victims), path),
        lambda: attempt(os.link, random.choice(victims), path),
        lambda: attempt(os.mkfifo, path),
        lambda: folder(path),
    ])()
def links(root):
    partial = root + '/partial'
    folder(partial)
    folder(root + '/files')
    folder(partial + '/' + key)
    for name in (key + '.lock', key + '/packed', key + '/content', key + '/origin.json', key + '/whole'):
        gone(partial + '/' + name)
        attempt(os.symlink, random.choice(victims), partial + '/' + name)
def lies(root):
    place = '%s/files/%s' % (root, digest)
    attempt(os.makedirs, place)
    attempt(write, place + '/about.json', about)
    gone(place + '/a.qcow2')
    anything(place + '/a.qcow2')
def programs(root):
    place = root + '/installers'
    folder(place)
    real, moved = place + '/4.19.3', place + '/4.19.2'
    attempt(os.rename, real, moved)
    folder(real)
    # The one that is looked at is right, oc beside it is not.
    attempt(os.symlink, moved + '/openshift-install', real + '/openshift-install')
    attempt(write, real + '/oc', evil)
def chaos():
    paths = [cache + '/' + name for name in ('61001', '61002', 'files', 'partial', 'installers')]
    for place, folders, files in os.walk(cache):
        paths += [place + '/' + name for name in folders + files]
    for path in random.sample(paths, min(len(paths), 12)):
        attempt(os.chmod, path, 0o777)
        gone(path)
        anything(path)
for turn in itertools.count():
    for root in (cache, cache + '/61002', cache + '/61001'):
        if turn % 50 < 5 or not root.endswith('61001'): folder(root)
        random.choice([links, lies, programs])(root)
    if turn % 50 >= 45: chaos()
    # Whole at any moment: this may be killed between two lines.
    write('turns.new', str(turn))
    os.replace('turns.new', 'turns')
"#;

/// 5 s; `OCPDEPLOY_ATTACK=60` attacks for a minute.
#[test]
fn a_minute_of_swapped_files_changes_nothing_outside_and_gets_nothing_accepted_or_run() {
    let Some(users) = Users::new() else { return };
    let seconds = std::env::var("OCPDEPLOY_ATTACK").map_or(5, |text| text.parse().unwrap());
    let cache = users.make("cache", 0, 0o1777);
    let markers = users.make("markers", 0, 0o1777);
    let evil = format!(
        "#!/bin/sh\ntouch {}/$$\necho openshift-install 4.19.3\n",
        markers.display()
    );
    let mirror = Mirror::start();
    let packed = gzip(IMAGE);
    mirror.serve("/a.qcow2.gz", Served::new(packed));
    let pin = release::publish(
        &mirror,
        "ocp/4.19.3",
        "4.19.3",
        &release::installer("4.19.3"),
        release::OC,
    );
    let image = format!("{}#sha256={}", mirror.url("/a.qcow2.gz"), sha256(IMAGE));
    let lines = format!("mirror_sha256={pin}\nimage={image}\nhelper_image={image}\n");
    let env = release::env(&users, &cache, &mirror, &lines);
    let (env, flag) = (env.to_str().unwrap(), cache.to_str().unwrap());
    let before = users.of_alice();

    let mut attack = users.mallory("python3");
    attack.args(["-c", ATTACK, flag, users.path("alice").to_str().unwrap()]);
    let wrong = "the wrong image";
    let key = &sha256(format!("{}\n\n{}", mirror.url("/a.qcow2.gz"), sha256(IMAGE)))[..32];
    let mut attack = attack.args([&sha256(IMAGE), key, wrong, &evil]).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut tried, mut succeeded) = (0, 0);
    while Instant::now() < end || tried < 8 {
        let pull = ["image", "pull", "--image", &image, "--cache", flag];
        let arguments: &[&str] = match tried % 4 {
            0 | 2 => &pull,
            1 => &["image", "payload", env],
            _ => &["deploy", env, "--rehearse"],
        };
        let output = users.alice(arguments).output().unwrap();
        let said = said(&output);
        tried += 1;
        match output.status.code() {
            Some(0) => succeeded += 1,
            // What Mallory put where Alice's own folder would be made is named; 7 is the same amid a deployment.
            Some(4 | 7) => assert!(said.contains("error: ") && said.contains(flag), "{said}"),
            code => panic!("{arguments:?} ended with {code:?}: {said}"),
        }
        if output.status.success() && arguments == pull {
            let path = String::from_utf8(output.stdout).unwrap();
            assert_eq!(fs::read(path.trim()).unwrap(), IMAGE, "{path}");
        }
        assert_eq!(users.of_alice(), before, "{said}");
        assert_eq!(fs::read_dir(&markers).unwrap().count(), 0, "{said}");
        // So that everything is recreated during the attack; sometimes root has created Alice's folder.
        if tried % 4 == 0 {
            for entry in fs::read_dir(&cache).unwrap() {
                let path = entry.unwrap().path();
                let is_folder = path.is_dir() && !path.is_symlink();
                drop(if is_folder {
                    fs::remove_dir_all(&path)
                } else {
                    fs::remove_file(&path)
                });
            }
            let own = cache.join(ALICE.to_string());
            if tried % 8 == 4 && fs::create_dir(&own).is_ok() {
                chown(&own, Some(ALICE), Some(ALICE)).unwrap();
            }
            drop(fs::remove_dir_all(users.path("alice/state")));
            drop(fs::remove_file(users.path("alice/sim.json")));
        }
        assert!(attack.try_wait().unwrap().is_none(), "the attack has stopped");
    }
    attack.kill().unwrap();
    attack.wait().unwrap();
    assert_eq!(fs::metadata(&cache).unwrap().mode() & 0o7777, 0o1777);
    let turns = fs::read_to_string(users.path("mallory/turns")).unwrap();
    assert!(
        turns.parse::<usize>().unwrap() > tried,
        "{turns} turns in {tried} commands"
    );
    assert!(succeeded > 0, "of {tried} commands");
    println!("reliability: {tried} inputs tried: commands in {turns} turns of an attack, {succeeded} succeeded");
}
