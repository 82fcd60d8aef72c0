//! The registry cache with real registry processes: pulls of nodes through it, and failures of its upstream,
//! its process or its disk.

mod computer;
mod node;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ocpdeploy::cluster::Architecture;
use ocpdeploy::local::registry;
use ocpdeploy::local::registry::warm::{Warmed, Warmer};

use self::computer::{Computer, LOGIN, failed, settled, succeeded};
use self::node::{is_installed, nodes};
use crate::support::fake_registry::FakeRegistry;
use crate::support::left_out::is_root;
use crate::support::until::{LONG, until};

/// `None`, with a message, if programs that the tests require are missing.
fn upstream_and_computer() -> Option<(FakeRegistry, Computer)> {
    is_installed().then(|| {
        let upstream = FakeRegistry::start(LOGIN);
        let computer = Computer::new(&upstream);
        (upstream, computer)
    })
}

#[test]
fn a_second_cluster_pulls_nothing_from_upstream() {
    let Some((mut upstream, computer)) = upstream_and_computer() else {
        return;
    };
    let image = upstream.add_image("ocp/release", &[300_000, 5_000]);
    let host = upstream.host();
    assert!(computer.cluster("lab").registry_cache.is_none());
    let said = computer.start(&upstream);
    assert!(
        said.contains("running") && said.contains(&format!("later clusters pull through it: {host}/ocp")),
        "{said}"
    );
    let [bootstrap, master] = nodes(&computer, &computer.cluster("first"));
    bootstrap.pull(&host, &image).unwrap();
    computer.stored(&image, &image.layers);
    let sent = settled(&upstream);
    assert!(sent >= image.bytes, "{sent}");
    master.pull(&host, &image).unwrap();
    assert_eq!(upstream.sent(), sent, "bytes from upstream");

    upstream.cut_off();
    for node in nodes(&computer, &computer.cluster("second")) {
        node.pull(&host, &image).unwrap();
    }
    // Running it again changes nothing, even without upstream.
    let pid = computer.pid();
    computer.run(&["cache", "up"]);
    assert_eq!((computer.pid(), computer.state().as_str()), (pid, "running"));
    // Started without upstream, it serves what it has.
    computer.kill();
    let again = computer.command(&["cache", "up"]).output().unwrap();
    let warning = failed(&again);
    succeeded(again);
    assert!(
        warning.contains("cannot be reached") && computer.state() == "offline",
        "{warning}"
    );
    master.pull(&host, &image).unwrap();
    upstream.restore();
    computer.run(&["cache", "up"]);
    assert_eq!(computer.state(), "running");
    master.pull(&host, &image).unwrap();
    assert_eq!(upstream.sent(), sent, "bytes from upstream");

    // Removed blobs are fetched again.
    let pruned = computer.run(&["cache", "prune", "--max", "0MiB", "--dry-run"]);
    assert!(pruned.contains("would remove 4 blobs"), "{pruned}");
    let pruned = computer.run(&["cache", "prune", "--max", "0MiB"]);
    assert!(
        pruned.contains("removed 4 blobs") && pruned.contains("0 MiB remain"),
        "{pruned}"
    );
    master.pull(&host, &image).unwrap();
    computer.stored(&image, &image.layers);
    assert!(settled(&upstream) > sent);

    let pid = computer.pid();
    assert!(
        computer
            .run(&["cache", "down"])
            .contains("stopped the cache of localhost")
    );
    assert!(!Path::new(&format!("/proc/{pid}/exe")).exists() && computer.state() == "stopped");
    assert!(computer.cluster("third").registry_cache.is_none());
    computer.run(&["cache", "up"]);
    assert!(computer.cluster("third").registry_cache.is_some());
    computer.run(&["cache", "down", "--delete"]);
    assert!(!computer.dir().path().exists());
}

#[test]
fn the_cache_trusts_the_authorities_of_the_env_file() {
    let Some((upstream, computer)) = upstream_and_computer() else {
        return;
    };
    let image = upstream.add_image("ocp/release", &[1_000]);
    let env = fs::read_to_string(computer.path("env.sh")).unwrap();
    computer.write("env.sh", &(env + "ca=upstream.pem\n"));
    let words = computer.up(&upstream);
    let run = |words: &[&str]| {
        let output = computer.command(words).env_remove("SSL_CERT_FILE").output().unwrap();
        succeeded(output)
    };
    run(&words.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(computer.state(), "running");
    let [node, _] = nodes(&computer, &computer.cluster("first"));
    node.pull(&upstream.host(), &image).unwrap();
    // Later runs remember them.
    computer.kill();
    run(&["cache", "up"]);
    assert_eq!(computer.state(), "running");
}

#[test]
fn an_upstream_registry_that_rejects_the_login_is_an_error() {
    let Some((upstream, computer)) = upstream_and_computer() else {
        return;
    };
    let words = computer.up(&upstream);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let host = upstream.host();
    let secret = fs::read_to_string(computer.path("pull.json")).unwrap();
    computer.write("pull.json", &secret.replace("bWU6", "eW86"));
    let rejected = failed(&computer.command(&words).output().unwrap());
    let expected = format!("the cache cannot log in to {host}: it rejects the credentials of the pull secret");
    assert!(rejected.contains(&expected), "{rejected}");
    assert_eq!(computer.state(), "stopped");
    assert!(computer.cluster("first").registry_cache.is_none());

    computer.write("pull.json", &secret);
    upstream.require_basic();
    let output = computer.command(&words).output().unwrap();
    // Version 3 has it.
    if registry::Program::find().unwrap().fetches_twice() {
        let rejected = failed(&output);
        assert!(rejected.contains("it requires HTTP Basic authentication"), "{rejected}");
    } else {
        succeeded(output);
    }
}

#[test]
fn nodes_pull_from_the_source_when_the_cache_is_killed_in_the_middle() {
    let Some((upstream, computer)) = upstream_and_computer() else {
        return;
    };
    let image = upstream.add_image("ocp/release", &[200_000, 3_000_000]);
    let (host, [small, large, ..]) = (upstream.host(), &image.layers[..]) else {
        unreachable!()
    };
    computer.start(&upstream);
    let [bootstrap, master] = nodes(&computer, &computer.cluster("first"));
    upstream.hold_above(1_000_000);
    let pulling = bootstrap.pulling(&format!("{host}/{}", image.name)).spawn().unwrap();
    computer.stored(&image, std::slice::from_ref(small));
    until(LONG, "half of the large layer", || upstream.sent() > 1_500_000);
    computer.kill();
    let cut = pulling.wait_with_output().unwrap();
    assert!(!cut.status.success(), "{}", failed(&cut));
    assert_eq!(computer.state(), "stopped");
    upstream.hold_above(usize::MAX);

    // kubelet and the bootstrap's services repeat a pull that fails.
    let sent = settled(&upstream);
    bootstrap.pull(&host, &image).unwrap();
    master.pull(&host, &image).unwrap();
    assert_eq!(upstream.sent() - sent, 2 * image.bytes, "bytes from upstream");
    let check = computer.command(&["check"]).output().unwrap();
    let check = failed(&check);
    assert!(
        check.contains("does not answer; nodes pull from") && check.contains("ocpdeploy cache up"),
        "{check}"
    );
    let plan = computer.run(&["plan", "--offline"]);
    assert!(plan.contains("through the registry cache at 127.0.0.1"), "{plan}");

    // Only the interrupted layer is fetched again, and the configuration, which comes last.
    computer.run(&["cache", "up"]);
    let sent = settled(&upstream);
    master.pull(&host, &image).unwrap();
    computer.stored(&image, &image.layers);
    let sent = settled(&upstream) - sent;
    let (large, small) = (upstream.size(large), upstream.size(small));
    assert!((large..2 * large + small).contains(&sent), "{sent}");
}

#[test]
fn nodes_reject_a_damaged_layer_of_the_cache() {
    let Some((upstream, computer)) = upstream_and_computer() else {
        return;
    };
    let image = upstream.add_image("ocp/release", &[200_000]);
    let host = upstream.host();
    computer.start(&upstream);
    let [_, master] = nodes(&computer, &computer.cluster("lab"));
    master.pull(&host, &image).unwrap();
    computer.stored(&image, &image.layers);
    let digest = image.layers[0].strip_prefix("sha256:").unwrap();
    let blob = computer
        .storage()
        .join("docker/registry/v2/blobs/sha256")
        .join(&digest[..2])
        .join(digest)
        .join("data");
    let mut bytes = fs::read(&blob).unwrap();
    bytes[100_000] ^= 1;
    fs::write(&blob, bytes).unwrap();
    let refused = master.pull(&host, &image).unwrap_err();
    assert!(refused.contains("igest"), "{refused}");
    // As the documentation says.
    computer.run(&["cache", "prune", "--max", "0MiB"]);
    master.pull(&host, &image).unwrap();
}

#[test]
fn only_the_cache_has_the_credentials_and_only_nodes_have_its_password() {
    let Some((mut upstream, computer)) = upstream_and_computer() else {
        return;
    };
    let image = upstream.add_image("ocp/release", &[1000]);
    let host = upstream.host();
    computer.start(&upstream);
    let mut config = computer.cluster("lab");
    let [_, mut master] = nodes(&computer, &config);
    master.pull(&host, &image).unwrap();
    computer.stored(&image, &image.layers);
    upstream.cut_off();
    master.pull(&host, &image).unwrap();
    master.without_trust();
    let refused = master.pull(&host, &image).unwrap_err();
    assert!(refused.contains("certificate signed by unknown authority"), "{refused}");
    config.registry_cache.as_mut().unwrap().password = "wrong".into();
    let [_, master] = nodes(&computer, &config);
    let refused = master.pull(&host, &image).unwrap_err();
    assert!(refused.contains("authentication required"), "{refused}");

    let cache = computer.cache();
    // Its password, hashed or not, and the pull secret's credentials are in private files only.
    let mut folders = vec![computer.dir().path().to_owned()];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        assert_eq!(
            fs::metadata(&folder).unwrap().permissions().mode() & 0o077,
            0,
            "{}",
            folder.display()
        );
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path == cache.storage {
                continue;
            }
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    files += 1;
                    assert_eq!(
                        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
                        0o600,
                        "{}",
                        path.display()
                    );
                }
            }
        }
    }
    assert!(files >= 7, "{files}");
    let pid = computer.pid();
    for file in ["cmdline", "environ"] {
        let text = String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/{file}")).unwrap()).into_owned();
        assert!(!text.contains("canary") && !text.contains(&cache.password), "{text}");
    }
    let status = computer.run(&["cache", "status", "--format", "json"]);
    assert!(
        !status.contains("canary") && !status.contains(&cache.password),
        "{status}"
    );
}

#[test]
fn warming_fetches_each_layer_once_and_resumes() {
    let Some((upstream, computer)) = upstream_and_computer() else {
        return;
    };
    let sizes: &[usize] = &[3_000_000, 200_000];
    let images = [
        upstream.add_image("ocp/art", sizes),
        upstream.add_image("ocp/release", &[1000]),
    ];
    computer.start(&upstream);
    let (dir, cache) = (computer.dir(), computer.cache());
    let warmer = Warmer {
        architectures: [Architecture::THIS_COMPUTER].into(),
        client: registry::client(&dir).unwrap(),
        cache: &cache,
        fetches_twice: registry::Program::find().unwrap().fetches_twice(),
    };
    let host = upstream.host();
    let mut names: Vec<String> = images.iter().map(|image| format!("{host}/{}", image.name)).collect();
    names.push("other.example.com/a@sha256:0".to_owned());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let warmed = runtime.block_on(warmer.warm(&names)).unwrap();
    assert_eq!((warmed.images, warmed.skipped, warmed.layers), (2, 1, 5));
    assert!(warmed.total > 3_201_000 && warmed.fetched == warmed.total, "{warmed:?}");
    let sent = settled(&upstream);
    let again = runtime.block_on(warmer.warm(&names)).unwrap();
    assert_eq!(again, Warmed { fetched: 0, ..warmed });
    assert_eq!(upstream.sent(), sent);
    let [_, master] = nodes(&computer, &computer.cluster("lab"));
    for image in &images {
        master.pull(&host, image).unwrap();
    }
    assert_eq!(upstream.sent(), sent);
    names[0] = names[0].replace("sha256:", "sha256:0");
    let error = format!("{:#}", runtime.block_on(warmer.warm(&names)).unwrap_err());
    assert!(error.contains(&names[0]), "{error}");
}

#[test]
fn a_full_disk_is_reported_and_nodes_still_get_their_images() {
    let Some((upstream, computer)) = upstream_and_computer() else {
        return;
    };
    if !is_root("mount a small disk") {
        return;
    }
    let (small, large) = (
        upstream.add_image("ocp/a", &[100_000]),
        upstream.add_image("ocp/b", &[4_000_000]),
    );
    let (host, storage) = (upstream.host(), computer.path("storage"));
    fs::create_dir(&storage).unwrap();
    // A disk of 1 MiB that only the registry's process sees; it ends with it.
    let script = "mount -t tmpfs -o size=1m none storage && exec \"$@\" --storage storage";
    let mut arguments: Vec<PathBuf> = ["/usr/bin/unshare", "-m", "sh", "-c", script, "sh"]
        .map(PathBuf::from)
        .to_vec();
    arguments.extend(computer.program());
    arguments.extend(computer.up(&upstream).iter().map(PathBuf::from));
    succeeded(computer.prepared(&arguments).output().unwrap());
    let [_, master] = nodes(&computer, &computer.cluster("lab"));
    master.pull(&host, &small).unwrap();
    // Version 3 serves and stores the same stream, which ends there.
    let pulled = master.pull(&host, &large);
    assert!(
        pulled.is_ok() || !registry::Program::find().unwrap().fetches_twice(),
        "{pulled:?}"
    );
    until(LONG, "the error", || {
        let said = computer.run(&["cache", "status"]);
        said.contains("last error of localhost") && said.contains("no space left on device")
    });
    let sent = settled(&upstream);
    master.pull(&host, &small).unwrap();
    assert_eq!(upstream.sent(), sent, "what was stored before is still there");
}

#[test]
fn a_cache_that_cannot_start_is_an_error_with_the_reason() {
    let Some((upstream, computer)) = upstream_and_computer() else {
        return;
    };
    let failed = |arguments: &[&str]| {
        let output = computer.command(arguments).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let said = failed(&["cache", "status"]);
    assert!(said.contains("there is no registry cache on this computer"), "{said}");
    let said = failed(&["cache", "up", "--repository", "https://quay.io/okd"]);
    assert!(said.contains("is not a repository"), "{said}");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let up = computer.up_at(&upstream, taken.local_addr().unwrap().port());
    let up: Vec<_> = up.iter().map(String::as_str).collect();
    let said = failed(&up);
    assert!(
        said.contains("address already in use") && said.contains("--port"),
        "{said}"
    );
    assert!(computer.cluster("lab").registry_cache.is_none());
    let mut nowhere = computer.command(&up);
    let said = nowhere.env("PATH", "/nonexistent").output().unwrap().stderr;
    let said = String::from_utf8(said).unwrap();
    assert!(
        said.contains("no registry program is installed") && said.contains("docker-registry"),
        "{said}"
    );
    // A file of an unknown version is an error.
    fs::write(computer.dir().description(), r#"{"v": 9}"#).unwrap();
    let said = failed(&["plan", "--offline"]);
    assert!(
        said.contains("cannot use the registry cache") && said.contains("cache.json: another version of ocpdeploy"),
        "{said}"
    );
    assert!(said.contains("registry_cache=off"), "{said}");
    computer.run(&["plan", "--offline", "--set", "registry_cache=off"]);
    fs::remove_file(computer.dir().description()).unwrap();
}

#[test]
fn another_computer_uses_the_cache_by_its_description_and_certificate() {
    let Some((mut upstream, computer)) = upstream_and_computer() else {
        return;
    };
    let image = upstream.add_image("ocp/release", &[1000]);
    let host = upstream.host();
    computer.start(&upstream);
    let [bootstrap, _] = nodes(&computer, &computer.cluster("first"));
    bootstrap.pull(&host, &image).unwrap();
    computer.stored(&image, &image.layers);
    let without_ipv4 = [
        ("backend", "libvirt"),
        ("dhcp", "none"),
        ("machine_network", "fd00:1::/64"),
        ("address_ranges", "fd00:1::20-fd00:1::60"),
    ];
    assert!(computer.cluster_with("six", &without_ipv4).registry_cache.is_none());
    upstream.cut_off();

    let other = Computer::new(&upstream);
    let here = other.dir();
    here.create().unwrap();
    for path in [computer.dir().description(), computer.dir().authority()] {
        fs::copy(&path, here.path().join(path.file_name().unwrap())).unwrap();
    }
    for node in nodes(&other, &other.cluster("second")) {
        node.pull(&host, &image).unwrap();
    }
    assert_eq!(other.state(), "remote");
    let check = failed(&other.command(&["check"]).output().unwrap());
    assert!(
        check.contains(&format!("nodes pull images of {host} through")),
        "{check}"
    );
    for verb in [&["up"][..], &["warm"], &["prune", "--max", "0MiB"]] {
        let refused = other.command(&[&["cache"], verb].concat()).output().unwrap();
        let said = failed(&refused);
        assert!(
            !refused.status.success() && said.contains("the registry cache at 127.0.0.1 is on another computer"),
            "{said}"
        );
    }
    // Nothing of the other cache is stopped or deleted.
    other.run(&["cache", "down", "--delete"]);
    assert!(!here.path().exists() && other.cluster("third").registry_cache.is_none());
    assert_eq!(computer.state(), "running");
    bootstrap.pull(&host, &image).unwrap();
}

/// A fake podman: it accepts only arguments of `podman run`, records them, and runs the registry.
const PODMAN: &str = r#"#!/usr/bin/python3
import json, os, sys
with open(os.path.join(os.path.dirname(sys.argv[0]), 'seen'), 'a') as seen:
    seen.write(json.dumps(sys.argv[1:]) + '\n')
words = sys.argv[1:]
assert words[:2] == ['run', '--rm'], words
at = next(n for n, word in enumerate(words[1:], 1) if not word.startswith('--'))
options, image, command = words[1:at], words[at], words[at + 1:]
name, digest = image.split('@')
assert name == 'docker.io/library/registry' and digest.startswith('sha256:') and len(digest) == 71, image
for option in options:
    name, _, value = option.partition('=')
    assert name in ('--rm', '--replace', '--name', '--network', '--security-opt', '--volume', '--env'), option
    if name == '--volume':
        source, target = value.split(':')[:2]
        assert source == target and os.path.exists(source), option
os.execv('/usr/bin/docker-registry', ['/bin/registry', *command])
"#;

#[test]
fn podman_runs_the_registry_where_it_is_not_installed() {
    let Some((upstream, computer)) = upstream_and_computer() else {
        return;
    };
    let image = upstream.add_image("ocp/release", &[1000]);
    let bin = computer.path("bin");
    fs::create_dir(&bin).unwrap();
    computer.write("bin/podman", PODMAN);
    fs::set_permissions(bin.join("podman"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut up = computer.command(&[]);
    let up = up.args(computer.up(&upstream)).env("PATH", &bin).output().unwrap();
    succeeded(up);
    let [_, master] = nodes(&computer, &computer.cluster("lab"));
    master.pull(&upstream.host(), &image).unwrap();
    computer.stored(&image, &image.layers);

    let seen = fs::read_to_string(bin.join("seen")).unwrap();
    let seen: Vec<Vec<String>> = seen.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let image_of_registry = &seen[0][2];
    assert_eq!(seen[0], ["run", "--rm", image_of_registry, "--version"]);
    let (folder, trusted) = (
        computer.dir().path().display().to_string(),
        computer.path("upstream.pem"),
    );
    let (registry, trusted) = (
        computer.dir().registry(&computer.cache().registries[0]),
        trusted.display(),
    );
    // containers/podman: `docs/source/markdown/podman-run.1.md.in`
    let name = seen[1][5].strip_prefix("--name=ocpdeploy-cache-").unwrap();
    assert_eq!(
        seen[1],
        [
            "run",
            "--rm",
            "--replace",
            "--network=host",
            "--security-opt=label=disable",
            &format!("--name=ocpdeploy-cache-{name}"),
            &format!("--volume={folder}:{folder}:ro"),
            &format!("--volume={folder}/storage:{folder}/storage"),
            "--env=OTEL_TRACES_EXPORTER=none",
            &format!("--volume={trusted}:{trusted}:ro"),
            "--env=SSL_CERT_FILE",
            image_of_registry,
            "serve",
            registry.join("config.yml").to_str().unwrap(),
        ]
    );
    assert!(name.len() == 12 && !name.contains('/'), "{name}");
    assert!(
        computer
            .run(&["cache", "down"])
            .contains("stopped the cache of localhost")
    );

    computer.write("bin/podman", "#!/bin/sh\necho 'Error: short read' >&2\nexit 125\n");
    let failing = computer.command(&["cache", "up"]).env("PATH", &bin).output().unwrap();
    let said = failed(&failing);
    assert!(
        said.contains("podman cannot run the registry: Error: short read") && said.contains("podman pull"),
        "{said}"
    );
}
