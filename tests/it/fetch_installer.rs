//! Finding and downloading openshift-install, from a mirror with the folders of the real one.

use crate::support::cluster;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ocpdeploy::artifacts::download::Trust;
use ocpdeploy::backend::ImageRequest;
use ocpdeploy::cluster::{Architecture, ClusterConfig, ImageSource, InstallerChoice, ReleaseArchitecture};
use ocpdeploy::digest::sha256;
use ocpdeploy::failure::explain;
use ocpdeploy::openshift::installer::Installer;
use ocpdeploy::passes::image_sources::Shop;
use ocpdeploy::state::home::{ClusterDir, Home};
use serde_json::json;

use crate::support::mirror::{Mirror, Served};

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(future)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

/// A program that prints a version, and a CoreOS stream if it has one.
fn program(version: &str, stream: Option<&str>) -> String {
    let stream = match stream {
        Some(stream) => format!("cat <<'EOF'\n{stream}\nEOF\n"),
        None => "echo unknown command >&2; exit 1".to_owned(),
    };
    format!(
        "#!/bin/sh\ncase \"$*\" in\nversion) echo \"openshift-install {version}\"; echo 'built from commit 0a1b2c3d';;\n\
         'coreos print-stream-json') {stream};;\n*) exit 9;;\nesac\n"
    )
}

/// An archive of files; paths are written unchanged, so that they may point anywhere.
fn archive(members: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (path, content) in members {
        let mut header = tar::Header::new_ustar();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_mode(0o755);
        match content.strip_prefix("link:") {
            Some(target) => {
                header.set_entry_type(tar::EntryType::Link);
                header.set_link_name(target).unwrap();
                header.set_size(0);
                header.set_cksum();
                tar.append(&header, &b""[..]).unwrap();
            }
            None => {
                header.set_entry_type(tar::EntryType::Regular);
                header.set_size(content.len() as u64);
                header.set_cksum();
                tar.append(&header, content.as_bytes()).unwrap();
            }
        }
    }
    gzip(&tar.into_inner().unwrap())
}

struct Bench {
    mirror: Mirror,
    folder: tempfile::TempDir,
    config: ClusterConfig,
    dir: ClusterDir,
}

impl Bench {
    fn new(version: &str) -> Self {
        let mirror = Mirror::start();
        let folder = tempfile::tempdir().unwrap();
        let mut config = cluster::config();
        config.installer = InstallerChoice::OpenshiftInstall(None);
        config.downloads.dir = folder.path().join("cache");
        config.downloads.installer_mirror = Some(mirror.url("/clients"));
        // The lists are not signed here: signatures are tested in tests/security.
        config.downloads.installer_mirror_insecure = true;
        config.downloads.image_mirror = None;
        config.downloads.version = Some(version.parse().unwrap());
        let dir = Home::new(folder.path().join("home")).cluster("lab");
        dir.create().unwrap();
        Self {
            mirror,
            folder,
            config,
            dir,
        }
    }

    /// Publishes a release the way the real mirror does.
    fn publish(&self, sandbox: &str, version: &str, members: &[(&str, &str)]) {
        let client = archive(&[
            ("README.md", "x"),
            ("oc", "#!/bin/sh\necho oc\n"),
            ("kubectl", "link:oc"),
        ]);
        let mut sums = String::new();
        for (start, content) in [("openshift-client", client), ("openshift-install", archive(members))] {
            for end in ["-linux-amd64", "-linux-arm64", "-linux"] {
                let name = format!("{start}{end}-{version}.tar.gz");
                sums += &format!("{}  {name}\n", sha256(&content));
                self.mirror
                    .serve(&format!("/clients/{sandbox}/{name}"), Served::new(content.clone()));
            }
        }
        sums += &format!("{}  release.txt\n", "0".repeat(64));
        self.mirror
            .serve(&format!("/clients/{sandbox}/sha256sum.txt"), Served::new(sums));
    }

    fn obtain(&self) -> anyhow::Result<Installer> {
        run(Installer::obtain(&self.config, &self.dir))
    }

    fn version(&self) -> String {
        run(self.obtain().unwrap_or_else(|error| panic!("{error:#}")).version()).unwrap()
    }

    fn fails(&self) -> String {
        let failure = explain(&self.obtain().unwrap_err());
        assert_eq!(failure.kind.exit_code(), 4, "{failure}");
        assert!(!failure.hints.is_empty(), "{failure}");
        assert!(self.installers().is_empty(), "{:?}", self.installers());
        failure.render(false)
    }

    /// Complete installers in the cache.
    fn installers(&self) -> Vec<String> {
        let trusts = fs::read_dir(self.config.downloads.dir.join("installers"));
        let trusts = trusts.into_iter().flatten();
        let entries = trusts.flat_map(|trust| fs::read_dir(trust.unwrap().path()).unwrap());
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name.starts_with('4')).collect();
        names.sort();
        names
    }

    fn write(&self, path: &Path, text: &str) -> PathBuf {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

#[test]
fn a_version_is_downloaded_once_verified_and_kept_beside_others() {
    let mut bench = Bench::new("4.19.3");
    for version in ["4.19.3", "4.18.7"] {
        let real = program(version, None);
        bench.publish(
            &format!("ocp/{version}"),
            version,
            &[("README.md", "x"), ("openshift-install", &real)],
        );
    }
    assert_eq!(bench.version(), "4.19.3");
    let asked = bench.mirror.asked().len();
    assert_eq!(bench.version(), "4.19.3");
    assert_eq!(
        bench.mirror.asked().len(),
        asked,
        "no server is queried for a cached version"
    );
    bench.config.downloads.version = Some("4.18.7".parse().unwrap());
    assert_eq!(bench.version(), "4.18.7");
    assert_eq!(bench.installers(), ["4.18.7", "4.19.3"]);
    let trust = Trust::of(&bench.config.downloads).unwrap().folder_name();
    let folder = bench.config.downloads.dir.join(format!("installers/{trust}/4.19.3"));
    for name in ["openshift-install", "oc", "kubectl"] {
        let mode = fs::metadata(folder.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{name}");
    }
    assert_eq!(
        fs::read_dir(&folder).unwrap().count(),
        4,
        "programs, their digests, nothing else"
    );
    assert_eq!(
        fs::read_dir(bench.config.downloads.dir.join("files")).unwrap().count(),
        0
    );
}

#[test]
fn a_channel_selects_its_published_version() {
    for (wanted, sandbox, version) in [
        ("stable", "ocp/stable", "4.19.3"),
        ("candidate", "ocp/candidate", "4.20.0-rc.1"),
        (
            "nightly",
            "ocp-dev-preview/latest",
            "4.21.0-0.nightly-2026-11-01-012345",
        ),
        ("4.18", "ocp/stable-4.18", "4.18.30"),
        ("4.21.0-ec.1", "ocp-dev-preview/4.21.0-ec.1", "4.21.0-ec.1"),
        ("okd", "latest/download", "4.19.0-okd-scos.9"),
        ("okd-4.19", "latest/download", "4.19.0-okd-scos.9"),
    ] {
        let bench = Bench::new(wanted);
        bench.publish(sandbox, version, &[("openshift-install", &program(version, None))]);
        assert_eq!(bench.version(), version, "{wanted}");
    }
    let bench = Bench::new("4.18");
    bench.publish(
        "ocp/stable-4.18",
        "4.19.3",
        &[("openshift-install", &program("4.19.3", None))],
    );
    assert!(bench.fails().contains("is openshift-install 4.19.3, but version=4.18"));
    let bench = Bench::new("okd-4.20");
    bench.publish(
        "latest/download",
        "4.19.0-okd-scos.9",
        &[("openshift-install", &program("4.19.0-okd-scos.9", None))],
    );
    let text = bench.fails();
    assert!(
        text.contains("is openshift-install 4.19.0-okd-scos.9, but version=okd-4.20"),
        "{text}"
    );
}

#[test]
fn a_cluster_keeps_its_installer_when_the_channel_advances() {
    let bench = Bench::new("stable");
    bench.publish(
        "ocp/stable",
        "4.19.3",
        &[("openshift-install", &program("4.19.3", None))],
    );
    let installer = bench.obtain().unwrap();
    installer.pin(&bench.config, &bench.dir).unwrap();
    bench.publish(
        "ocp/stable",
        "4.19.4",
        &[("openshift-install", &program("4.19.4", None))],
    );
    assert_eq!(bench.version(), "4.19.3");
    fs::remove_dir_all(bench.dir.path().join("bin")).unwrap();
    assert_eq!(bench.version(), "4.19.4");
    // The mirror is not queried for a cached version.
    let mut bench = bench;
    bench.config.downloads.version = Some("4.19.3".parse().unwrap());
    let asked = bench.mirror.asked().len();
    assert_eq!(bench.version(), "4.19.3");
    assert_eq!(bench.mirror.asked().len(), asked);
}

#[test]
fn a_given_installer_of_another_version_is_rejected() {
    let mut bench = Bench::new("4.19.3");
    let path = bench.write(Path::new("mine/openshift-install"), &program("4.18.1", None));
    bench.write(Path::new("mine/oc"), "#!/bin/sh\n");
    bench.config.installer = InstallerChoice::OpenshiftInstall(Some(path.clone()));
    let text = bench.fails();
    let expected = format!(
        "error: {} is openshift-install 4.18.1, but version=4.19.3\n",
        path.display()
    );
    assert!(text.starts_with(&expected), "{text}");
    assert!(
        text.contains("hint: remove one of the settings version, installer and installer_mirror"),
        "{text}"
    );
    assert!(bench.mirror.asked().is_empty());
}

#[test]
fn invalid_files_of_a_mirror_are_rejected_and_not_kept() {
    let real = program("4.19.3", None);
    let evil = |members: &[(&str, &str)]| {
        let bench = Bench::new("4.19.3");
        bench.publish("ocp/4.19.3", "4.19.3", members);
        let text = bench.fails();
        assert!(!bench.folder.path().join("cache/evil").exists() && !bench.folder.path().join("evil").exists());
        text
    };
    let text = evil(&[("openshift-install", &real), ("../../evil", "x")]);
    assert!(
        text.contains("its member ../../evil has a path outside the archive"),
        "{text}"
    );
    let text = evil(&[("/tmp/openshift-install", &real)]);
    assert!(text.contains("has a path outside the archive"), "{text}");
    let text = evil(&[("openshift-install", "link:../../../etc/passwd")]);
    assert!(text.contains("is a link to outside the archive"), "{text}");
    let text = evil(&[("README.md", "x"), ("sub/openshift-install", &real)]);
    assert!(text.contains("it has no openshift-install"), "{text}");
    let text = evil(&[("openshift-install", &program("4.19.2", None))]);
    assert!(
        text.contains("is openshift-install 4.19.2, but version=4.19.3"),
        "{text}"
    );

    let bench = Bench::new("4.19.3");
    bench.publish("ocp/4.19.3", "4.19.3", &[("openshift-install", &real)]);
    for name in [
        "openshift-install-linux-4.19.3.tar.gz",
        "openshift-install-linux-arm64-4.19.3.tar.gz",
    ] {
        let other = archive(&[("openshift-install", "#!/bin/sh\nrm -rf /\n")]);
        bench.mirror.change(&format!("/clients/ocp/4.19.3/{name}"), |served| {
            served.body = other.into()
        });
    }
    let text = bench.fails();
    assert!(text.contains("checksum mismatch for "), "{text}");

    let bench = Bench::new("4.19.3");
    let text = bench.fails();
    assert!(
        text.contains("/clients/ocp/4.19.3/sha256sum.txt: the server returned 404"),
        "{text}"
    );
    bench
        .mirror
        .serve("/clients/ocp/4.19.3/sha256sum.txt", Served::new("<html>login</html>"));
    bench
        .mirror
        .serve("/clients/ocp/4.19.3/release.txt", Served::new("<html>login</html>"));
    let text = bench.fails();
    assert!(
        text.contains("has no openshift-install and client for this computer"),
        "{text}"
    );
}

#[test]
fn a_release_for_several_architectures_has_its_programs_in_the_directory_of_this_computer() {
    let mut bench = Bench::new("4.19.3");
    bench.config.downloads.arch = ReleaseArchitecture::Multi;
    let multi = program("4.19.3", None).replace("echo 'built", "echo 'release architecture multi'; echo 'built");
    let computer = Architecture::THIS_COMPUTER.go();
    bench.publish(
        &format!("ocp/4.19.3/{computer}"),
        "4.19.3",
        &[("openshift-install", &multi)],
    );
    let list = format!("/clients/ocp/4.19.3/{computer}/sha256sum.txt");
    let mut sums = Vec::new();
    bench.mirror.change(&list, |served| sums = served.body.to_vec());
    let all = format!(
        "{}  {computer}/sha256sum.txt\n{}  other/sha256sum.txt\n",
        sha256(&sums),
        "0".repeat(64)
    );
    bench
        .mirror
        .serve("/clients/ocp/4.19.3/sha256sum.txt", Served::new(all));
    assert_eq!(bench.version(), "4.19.3");
    let installers = bench.config.downloads.dir.join("installers-multi");
    assert!(installers.is_dir(), "beside those of a single architecture");
    assert!(!bench.config.downloads.dir.join("installers").exists());
    // The signed list is that of the lists.
    fs::remove_dir_all(&bench.config.downloads.dir).unwrap();
    bench.mirror.change(&list, |served| {
        served.body = [served.body.as_slice(), b"\n"].concat().into()
    });
    let text = bench.fails();
    assert!(
        text.contains(&format!("{computer}/sha256sum.txt: its sha256 differs")),
        "{text}"
    );
}

#[test]
fn an_installer_in_the_cache_is_that_of_the_architecture() {
    let mut bench = Bench::new("4.19.3");
    let of = |arch: &str| {
        program("4.19.3", None).replace(
            "echo 'built",
            &format!("echo 'release architecture {arch}'; echo 'built"),
        )
    };
    bench.publish("ocp/4.19.3", "4.19.3", &[("openshift-install", &of("amd64"))]);
    bench.config.downloads.arch = ReleaseArchitecture::Single(Architecture::X86_64);
    assert_eq!(bench.version(), "4.19.3");
    bench.config.downloads.arch = ReleaseArchitecture::Single(Architecture::S390x);
    let text = explain(&bench.obtain().unwrap_err()).render(false);
    assert!(
        text.contains("installs a release for x86_64, and the machines are s390x"),
        "{text}"
    );
}

#[test]
fn the_coreos_image_of_the_release_is_downloaded_for_the_platform() {
    let content = b"a disk".repeat(10_000);
    let packed = gzip(&content);
    for old in [false, true] {
        let mut bench = Bench::new("4.19.3");
        let name = "rhcos-9.6.2-0-qemu.x86_64.qcow2.gz";
        bench
            .mirror
            .serve(&format!("/images/{name}"), Served::new(packed.clone()));
        let (sha, content_sha) = (sha256(&packed), sha256(&content));
        bench.config.downloads.image_mirror = Some(bench.mirror.url("/images"));
        let stream = if old {
            let data = json!({"baseURI": "https://unreachable.invalid/", "images": {"qemu":
                {"path": name, "sha256": sha, "uncompressed-sha256": content_sha}}});
            bench.mirror.serve("/images/rhcos.json", Served::new(data.to_string()));
            None
        } else {
            let disk = json!({"location": format!("https://unreachable.invalid/art/{name}"), "sha256": sha,
                "uncompressed-sha256": content_sha});
            Some(
                json!({"stream": "rhcos-4.19", "architectures": {"x86_64": {"artifacts": {"qemu": {"formats":
                {"qcow2.gz": {"disk": disk}}}}}}})
                .to_string(),
            )
        };
        let real = program("4.19.3", stream.as_deref());
        bench.publish("ocp/4.19.3", "4.19.3", &[("openshift-install", &real)]);
        let installer = bench.obtain().unwrap();
        let shop = Shop {
            downloads: &bench.config.downloads,
            installer: Some(&installer),
            arch: Architecture::X86_64,
            platform: "qemu",
            fetched_there: false,
        };
        let request = run(shop.request(&ImageSource::Release));
        if old {
            // Nothing vouches for the list, unlike for the stream in openshift-install.
            let error = format!("{:#}", request.unwrap_err());
            assert!(error.contains("plain http does not protect"), "{error}");
            continue;
        }
        let ImageRequest::File {
            path, sha256, bytes, ..
        } = request.unwrap()
        else {
            panic!("not a file");
        };
        assert_eq!(path.file_name().unwrap(), "rhcos-9.6.2-0-qemu.x86_64.qcow2");
        assert_eq!((sha256, bytes), (content_sha, content.len() as u64));
    }
}
