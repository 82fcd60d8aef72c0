//! The release that an openshift-install installs: its version and the images in its payload, read with `oc`.

use std::io::{self, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use secrecy::ExposeSecret;
use serde::Deserialize;
use tempfile::NamedTempFile;
use tokio::process::Command;
use tokio::time::timeout;

use super::error::InstallerError;
use crate::cluster::{ClusterConfig, major_minor};
use crate::node::services::{self, Release};

/// Limit for one small document from one registry.
const LIMIT: Duration = Duration::from_secs(120);

/// The output of `openshift-install version`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// E.g. `4.19.0`.
    pub version: String,
    /// The release's own image, `None` if not reported.
    pub release_image: Option<String>,
    /// The commit of its source.
    pub commit: Option<String>,
}

/// Reads the lines of `openshift-install version`.
pub(super) fn about(text: &str) -> Option<About> {
    // The path of the program comes first, and may contain blanks.
    let version = text.lines().next()?.trim_end().rsplit_once(' ')?.1;
    let after = |start| {
        text.lines()
            .find_map(|line| Some(line.strip_prefix(start)?.trim().to_owned()))
    };
    let is_hex = |commit: &String| commit.bytes().all(|b| b.is_ascii_hexdigit());
    Some(About {
        version: version.trim_start_matches('v').to_owned(),
        release_image: after("release image "),
        commit: after("built from commit ").filter(is_hex),
    })
}

/// The required part of the output of `oc adm release info --output=json`.
#[derive(Deserialize)]
struct Info {
    metadata: Metadata,
    references: References,
}

#[derive(Deserialize)]
struct Metadata {
    version: String,
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

/// Reads `oc`'s description of a release, with the images that the services need; `None` for anything else.
fn release(json: &[u8]) -> Option<Release> {
    let info: Info = serde_json::from_slice(json).ok()?;
    Some(Release {
        version: major_minor(&info.metadata.version)?,
        images: info
            .references
            .spec
            .tags
            .into_iter()
            .map(|tag| (tag.name, tag.from.name))
            .filter(|(name, _)| services::IMAGES.contains(&name.as_str()))
            .collect(),
    })
}

/// Reads the images of the payload from the release's registry, with the pull secret.
pub(super) async fn ask(
    oc: &Path,
    image: &str,
    config: &ClusterConfig,
    private: &Path,
) -> Result<Release, InstallerError> {
    let failed = |why: String| InstallerError::Payload {
        image: image.to_owned(),
        why,
    };
    let registry_config = secret_file(private, config).map_err(|error| failed(error.to_string()))?;
    let mut command = program(oc);
    command
        .args(["adm", "release", "info", image, "--output=json", "--registry-config"])
        .arg(registry_config.path())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(LIMIT, command.output()).await;
    let output = output.map_err(|_| failed(format!("no answer within {} s", LIMIT.as_secs())))?;
    let output = output.map_err(|source| InstallerError::NotRun {
        path: oc.to_owned(),
        source,
    })?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(failed(words.lines().last().unwrap_or("no reason given").to_owned()));
    }
    release(&output.stdout).ok_or_else(|| failed("its output is not a release".to_owned()))
}

/// The pull secret as a file with mode 0600, which is deleted when dropped.
fn secret_file(private: &Path, config: &ClusterConfig) -> io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new()
        .prefix("registry-config")
        .tempfile_in(private)?;
    file.write_all(config.pull_secret.expose_secret().as_bytes())?;
    Ok(file)
}

/// A program without those of our secrets that may be in the environment.
#[expect(
    clippy::disallowed_methods,
    reason = "the installer needs variables that are unknown here"
)]
pub(super) fn program(path: &Path) -> Command {
    let mut command = Command::new(path);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("OCPDEPLOY_") || text.starts_with("OS_") {
            command.env_remove(name);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_real_installers_say_of_themselves_is_understood() {
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
        }
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
        let found = release(json).unwrap();
        assert_eq!(found.version, (4, 19));
        assert_eq!(found.images.len(), 2);
        assert_eq!(found.images["haproxy-router"], "registry.example.com/a@sha256:2");
        for bad in [
            "",
            "{}",
            "[]",
            r#"{"metadata": {"version": "latest"}, "references": {"spec": {"tags": []}}}"#,
        ] {
            assert_eq!(release(bad.as_bytes()), None, "{bad}");
        }
    }
}
