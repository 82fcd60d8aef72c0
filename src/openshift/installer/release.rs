//! The release that an openshift-install installs: its version and the images in its payload, read with `oc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::Value;

use super::child::{self, not_run, program};
use crate::cluster::{ClusterConfig, RegistryMirror, ReleaseArchitecture, major_minor};
use crate::error::{ErrorKind, OperationError};
use crate::limited_file;
use crate::local::subprocess;
use crate::node::services::{self, Release};

/// Variables of `oc`, whose other settings are arguments here.
const VARIABLES: &[&[&str]] = &[subprocess::PROXY, subprocess::CERTIFICATES];

/// Limit for one small document from one registry.
const LIMIT: Duration = Duration::from_secs(120);

/// The output of `openshift-install version`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildInfo {
    /// E.g. `4.19.0`.
    pub version: String,
    /// The release's own image, `None` if not reported.
    pub release_image: Option<String>,
    /// The commit of its source.
    pub commit: Option<String>,
    /// `None` if not reported, or not reliable.
    pub arch: Option<ReleaseArchitecture>,
}

/// Reads the lines of `openshift-install version`.
pub(super) fn about(text: &str) -> Option<BuildInfo> {
    // The path of the program comes first, and may contain blanks.
    let version = text.lines().next()?.trim_end().rsplit_once(' ')?.1;
    let after = |start| {
        text.lines()
            .find_map(|line| Some(line.strip_prefix(start)?.trim().to_owned()))
    };
    let is_hex = |commit: &String| commit.bytes().all(|b| b.is_ascii_hexdigit());
    let arch = after("release architecture ");
    Some(BuildInfo {
        // OKD's says `multi` of a list of images with one for amd64 only (okd-project/okd: issue 1165).
        arch: arch
            .filter(|_| !version.contains("okd"))
            .and_then(|arch| ReleaseArchitecture::read(&arch)),
        version: version.trim_start_matches('v').to_owned(),
        release_image: after("release image "),
        commit: after("built from commit ").filter(is_hex),
    })
}

/// The required part of the output of `oc adm release info --output=json`.
#[derive(Deserialize)]
struct Info {
    #[serde(default)]
    config: ImageConfig,
    metadata: Metadata,
    references: References,
}

/// The config of the release's own image; of a list, of one of its images.
#[derive(Default, Deserialize)]
struct ImageConfig {
    #[serde(default)]
    architecture: String,
}

#[derive(Deserialize)]
struct Metadata {
    version: String,
    #[serde(default)]
    metadata: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct References {
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    tags: Vec<Tag>,
}

#[derive(Deserialize)]
struct Tag {
    name: String,
    from: From,
}

#[derive(Deserialize)]
struct From {
    name: String,
}

/// Reads `oc`'s description of a release, with the images that the services need; `None` for anything else. Its
/// architecture is `None` if it is not known.
pub(super) fn release(json: &[u8]) -> Option<(Release, Option<ReleaseArchitecture>)> {
    let info: Info = serde_json::from_slice(json).ok()?;
    // Only releases for several architectures have it (openshift-eng/art-tools: `pyartcd/pyartcd/pipelines/promote.py`).
    let named = info.metadata.metadata.get("release.openshift.io/architecture");
    let arch = named.and_then(Value::as_str).unwrap_or(&info.config.architecture);
    let arch = ReleaseArchitecture::read(arch);
    let release = Release {
        version: major_minor(&info.metadata.version)?,
        images: info
            .references
            .spec
            .tags
            .into_iter()
            .map(|tag| (tag.name, tag.from.name))
            .filter(|(name, _)| services::IMAGES.contains(&name.as_str()))
            .collect(),
    };
    Some((release, arch))
}

/// All images of `oc`'s description of a release, each once.
pub(super) fn payload(json: &[u8]) -> Option<Vec<String>> {
    let info: Info = serde_json::from_slice(json).ok()?;
    let images: BTreeSet<String> = info.references.spec.tags.into_iter().map(|tag| tag.from.name).collect();
    Some(images.into_iter().collect())
}

/// The cause of an error if each registry rejected the pull secret, which `ocpdeploy check` reports separately.
///
/// The text of the error already contains this text, so `failure::explain` does not repeat it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PullSecretRejected(String);

/// Reads the images of the payload with `read` from a mirror of the release's registry or from the registry itself,
/// with the pull secret.
///
/// The mirrors are tried here, because `oc` has options for them only in some versions (`--icsp-file`, `--idms-file`;
/// openshift/oc `pkg/cli/admin/release/info.go`), and they compare whole repositories where nodes compare prefixes.
pub(super) async fn ask<T>(
    oc: &Path,
    image: &str,
    config: &ClusterConfig,
    read: fn(&[u8]) -> Option<T>,
) -> Result<T, OperationError> {
    let places = places(image, &config.mirrors());
    let mut reasons = Vec::new();
    for place in &places {
        match ask_one(oc, place, config).await {
            Ok(output) if output.is_none() => reasons.push((place, format!("no answer within {} s", LIMIT.as_secs()))),
            Ok(Some(output)) if output.status.success() => match read(&output.stdout) {
                Some(release) => return Ok(release),
                None => reasons.push((place, "its output is not a release".to_owned())),
            },
            Ok(output) => {
                let words = output.map(|output| output.stderr).unwrap_or_default();
                let words = String::from_utf8_lossy(&words).into_owned();
                reasons.push((place, words.lines().last().unwrap_or("no reason given").to_owned()));
            }
            Err(source) => return Err(not_run(oc, source)),
        }
    }
    let why = match reasons.as_slice() {
        [(_, why)] => why.clone(),
        several => several
            .iter()
            .map(|(place, why)| format!("{}: {why}", repository(place)))
            .collect::<Vec<_>>()
            .join("; "),
    };
    let error = OperationError::new(
        ErrorKind::Tool,
        format!("cannot read the images of release {image}: {why}"),
    );
    Err(match reasons.iter().all(|(_, why)| is_denied(why)) {
        true => error
            .hint("download the pull secret again; for a mirror, add its credentials to the pull secret")
            .source(PullSecretRejected(why)),
        false => error.hint(
            "check that this computer reaches the registry; to use a mirror, set registry_mirrors, and ca for its \
             certificate, or OPENSHIFT_INSTALL_RELEASE_IMAGE_OVERRIDE in the environment",
        ),
    })
}

/// Runs `oc`. It reads the pull secret from memory, so that no file of it can be left behind.
async fn ask_one(oc: &Path, image: &str, config: &ClusterConfig) -> io::Result<Option<Output>> {
    let secret = config.node_pull_secret();
    let secret = in_memory("pull-secret", MemfdFlags::CLOEXEC, secret.expose_secret().as_bytes())?;
    let mut command = program(oc, VARIABLES);
    command
        .args(["adm", "release", "info", image, "--output=json"])
        .arg("--registry-config=/proc/self/fd/0")
        .stdin(secret);
    let mut authorities = None;
    if let Some(ca) = config.trusted() {
        // Inherited: a child cannot open the files of this process, which is not dumpable (proc_pid_fd(5)).
        let file = in_memory(
            "ca",
            MemfdFlags::empty(),
            &[trusted().as_slice(), b"\n", ca.as_bytes()].concat(),
        )?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // Unlike `--certificate-authority`, all versions of oc support it (golang/go: `src/crypto/x509/root_unix.go`).
        command.env(CERTIFICATES, path);
        authorities = Some(file);
    }
    let output = child::output(&mut command, LIMIT).await;
    drop(authorities);
    output
}

/// A file without a path.
fn in_memory(name: &str, flags: MemfdFlags, content: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(name, flags)?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file)
}

/// The variable with the file of trusted certificates, which replaces the system's.
const CERTIFICATES: &str = "SSL_CERT_FILE";

/// The certificates that oc trusts without `ca`: the files of golang/go `src/crypto/x509/root_linux.go`.
fn trusted() -> Vec<u8> {
    const FILES: [&str; 6] = [
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem",
        "/etc/pki/tls/cacert.pem",
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/ssl/cert.pem",
    ];
    let given = std::env::var_os(CERTIFICATES).filter(|path| !path.is_empty());
    let paths = given.into_iter().map(PathBuf::from);
    let mut paths = paths.chain(FILES.iter().map(PathBuf::from));
    paths
        .find_map(|path| limited_file::read(&path).ok())
        .unwrap_or_default()
}

/// Where a release image may be: in the mirrors of the longest matching source, then in its own registry. Mirrors are
/// only for images by digest, as on the nodes (containers/image: `docs/containers-registries.conf.5.md`).
fn places(image: &str, mirrors: &[RegistryMirror]) -> Vec<String> {
    let rest = |mirror: &RegistryMirror| {
        let rest = image.strip_prefix(mirror.source.as_str())?;
        let is_tag = rest.starts_with(':') && !rest.contains('/');
        (image.contains('@') && (is_tag || rest.starts_with(['/', '@']))).then(|| rest.to_owned())
    };
    let matching = mirrors.iter().filter_map(|mirror| Some((mirror, rest(mirror)?)));
    let longest = matching.max_by_key(|(mirror, _)| mirror.source.len());
    let of_mirror = |(mirror, rest): (&RegistryMirror, String)| {
        mirror.mirrors.iter().map(|mirror| format!("{mirror}{rest}")).collect()
    };
    let mut places: Vec<String> = longest.map(of_mirror).unwrap_or_default();
    places.push(image.to_owned());
    places
}

/// An image without its digest.
fn repository(image: &str) -> &str {
    image.split('@').next().unwrap_or(image)
}

/// Whether a registry rejected the credentials (distribution/distribution: `registry/api/errcode/register.go`).
fn is_denied(why: &str) -> bool {
    let why = why.to_lowercase();
    ["unauthorized", "authentication required", "is denied", "forbidden"]
        .iter()
        .any(|word| why.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Architecture;

    #[test]
    fn the_version_output_of_real_installers_is_parsed() {
        for (text, version, image) in [
            (
                "openshift-install v4.19.0\nbuilt from commit 7ad0e35651\nrelease image registry.example.com/origin/release:4.19\nrelease architecture unknown\n",
                "4.19.0",
                Some("registry.example.com/origin/release:4.19"),
            ),
            (
                "openshift-install v4.5.0\nbuilt from commit e30ca92797\nrelease image registry.example.com/origin/release:4.5\n",
                "4.5.0",
                Some("registry.example.com/origin/release:4.5"),
            ),
            ("./openshift-install 4.15.3\n", "4.15.3", None),
            ("/home/me/my files/openshift-install 4.5.0\n", "4.5.0", None),
        ] {
            let found = about(text).unwrap();
            assert_eq!(
                (found.version.as_str(), found.release_image.as_deref()),
                (version, image)
            );
            assert_eq!(found.arch, None);
        }
        let multi = "openshift-install 4.19.0\nrelease image x@sha256:0\nrelease architecture multi\ndefault architecture amd64\n";
        assert_eq!(about(multi).unwrap().arch, Some(ReleaseArchitecture::Multi));
        let okd = multi.replace("4.19.0", "4.19.0-okd-scos.9");
        assert_eq!(about(&okd).unwrap().arch, None);
        for bad in ["", "\n", "openshift-install\n"] {
            assert_eq!(about(bad), None);
        }
    }

    #[test]
    fn a_release_is_its_version_and_its_images() {
        let json = br#"{"image": "x", "metadata": {"kind": "cincinnati-metadata-v0", "version": "4.19.3-rc.1"},
            "references": {"kind": "ImageStream", "spec": {"tags": [
                {"name": "etcd", "from": {"kind": "DockerImage", "name": "registry.example.com/a@sha256:0"}},
                {"name": "coredns", "from": {"kind": "DockerImage", "name": "registry.example.com/a@sha256:1"}},
                {"name": "haproxy-router", "annotations": {}, "from": {"kind": "DockerImage", "name": "registry.example.com/a@sha256:2"}}
            ]}}}"#;
        let (found, arch) = release(json).unwrap();
        assert_eq!((found.version, arch), ((4, 19), None));
        assert_eq!(found.images.len(), 2);
        assert_eq!(found.images["haproxy-router"], "registry.example.com/a@sha256:2");
        let all = [
            "registry.example.com/a@sha256:0",
            "registry.example.com/a@sha256:1",
            "registry.example.com/a@sha256:2",
        ];
        assert_eq!(payload(json).unwrap(), all);
        let arch_of = |config: &str, metadata: &str| {
            let json = format!(
                "{{\"config\": {config}, \"metadata\": {{\"version\": \"4.19.3\", \"metadata\": {metadata}}}, \
                 \"references\": {{\"spec\": {{\"tags\": []}}}}}}"
            );
            release(json.as_bytes()).unwrap().1
        };
        let url = r#"{"url": "https://access.example.com/errata/RHSA-2025:1"}"#;
        let single = Some(ReleaseArchitecture::Single(Architecture::Aarch64));
        assert_eq!(arch_of(r#"{"architecture": "arm64"}"#, url), single);
        let multi = r#"{"release.openshift.io/architecture": "multi"}"#;
        assert_eq!(
            arch_of(r#"{"architecture": "amd64"}"#, multi),
            Some(ReleaseArchitecture::Multi)
        );
        for bad in [
            "",
            "{}",
            "[]",
            r#"{"metadata": {"version": "latest"}, "references": {"spec": {"tags": []}}}"#,
        ] {
            assert_eq!(release(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_release_is_looked_up_in_the_mirrors_of_its_longest_source() {
        let mirror = |source: &str, mirrors: &[&str]| RegistryMirror {
            source: source.to_owned(),
            mirrors: mirrors.iter().map(|&mirror| mirror.to_owned()).collect(),
        };
        let mirrors = [
            mirror("quay.io", &["far.example.com"]),
            mirror("quay.io/ocp/release", &["a.example.com:5000/r", "b.example.com/r"]),
            mirror("quay.io/ocp/rel", &["c.example.com"]),
        ];
        for (image, expected) in [
            (
                "quay.io/ocp/release@sha256:1",
                &[
                    "a.example.com:5000/r@sha256:1",
                    "b.example.com/r@sha256:1",
                    "quay.io/ocp/release@sha256:1",
                ][..],
            ),
            (
                "quay.io/other@sha256:1",
                &["far.example.com/other@sha256:1", "quay.io/other@sha256:1"],
            ),
            ("quay.io/ocp/release:4.19", &["quay.io/ocp/release:4.19"]),
            ("quay.iox/ocp@sha256:1", &["quay.iox/ocp@sha256:1"]),
        ] {
            assert_eq!(places(image, &mirrors), expected);
        }
    }

    #[test]
    fn rejected_credentials_differ_from_a_registry_that_does_not_answer() {
        for (why, denied) in [
            (
                "error: unable to read image q: unauthorized: authentication required",
                true,
            ),
            (
                "error: unable to read image q: denied: requested access to the resource is denied",
                true,
            ),
            ("error: dial tcp 192.0.2.1:443: connect: no route to host", false),
            ("error: x509: certificate signed by unknown authority", false),
        ] {
            assert_eq!(is_denied(why), denied, "{why}");
        }
    }
}
