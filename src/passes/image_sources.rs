//! Image sources: from the settings to a local file and the request to a backend.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use fs_err as fs;
use tracing::{info, warn};

use crate::PROGRESS;
use crate::artifacts::catalogue::{self, Artifact, CoreOs};
use crate::artifacts::download::{self, Cache, Cached, DownloadError};
use crate::artifacts::format::Format;
use crate::backend::{Finding, ImageRequest};
use crate::cluster::{Architecture, ClusterConfig, Downloads, ImageSource, Role, major_minor};
use crate::digest;
use crate::error::{ErrorKind, OperationError};
use crate::ignition::Version;
use crate::openshift::installer::Installer;

/// Why an image cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("image {image} is the CoreOS of {}.{}, and openshift-install is {version}", release.0, release.1)]
    Newer {
        image: String,
        release: (u32, u32),
        version: String,
    },
    #[error("image {image} is CoreOS of {}.{}, which cannot read the configs of openshift-install {version}", release.0, release.1)]
    Older {
        image: String,
        release: (u32, u32),
        version: String,
    },
    #[error("image {image} is for {architecture}; the machines are {wanted}")]
    OtherArchitecture {
        image: String,
        architecture: Architecture,
        wanted: Architecture,
    },
    #[error("image {image} {why}")]
    NoDisk { image: String, why: String },
    #[error("image {image} is for {platform}; this platform requires the image for {wanted}")]
    OtherPlatform {
        image: String,
        platform: &'static str,
        wanted: &'static str,
    },
    #[error("{url} has no checksum of {file}")]
    NoSum { url: String, file: String },
    #[error("find the CoreOS of openshift-install {version}: {why}")]
    NoCoreOs { version: String, why: String },
    #[error("no image {name} for {arch} in the catalog")]
    NotInCatalogue { name: String, arch: Architecture },
}

impl ImageError {
    /// What a user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Newer { .. } => {
                "use an image of the same or an older minor version, or image=auto for the installer's own"
            }
            Self::Older { .. } => "set image=auto for the installer's own",
            Self::OtherArchitecture { .. } => "set image=auto for the installer's own, or arch to that of the image",
            Self::NoDisk { .. } => "use a qcow2 image of CoreOS, and compare it with its checksum",
            Self::OtherPlatform { .. } => {
                "the image would read its Ignition config from another source than this platform's; set image=auto"
            }
            Self::NoSum { .. } => "the checksum file must be in the same directory as the image on image_mirror",
            Self::NoCoreOs { .. } => "set image to a file, a URL or a name on the platform",
            Self::NotInCatalogue { .. } => "list all images with `ocpdeploy image list`",
        })
    }
}

/// What is known about a CoreOS image before it is used: by its name, and by the first bytes of a file.
pub fn check(
    image: &ImageSource,
    version: &str,
    wanted: &'static str,
    arch: Architecture,
) -> Result<Finding, ImageError> {
    let Some(name) = file_name(image) else {
        return Ok(match image {
            ImageSource::Release => Finding::ok(format!("{image} is compatible with {version}")),
            _ => Finding::ok(format!(
                "{image} is not compared with {version}: its name has no release"
            )),
        });
    };
    let by_name = check_name(&name, version, wanted, arch)?;
    match image {
        ImageSource::File(path) => Ok(check_content(path)?.unwrap_or(by_name)),
        _ => Ok(by_name),
    }
}

fn check_name(image: &str, version: &str, wanted: &'static str, arch: Architecture) -> Result<Finding, ImageError> {
    let named = catalogue::named(image);
    if let Some(architecture) = Architecture::in_name(image).filter(|named| *named != arch) {
        return Err(ImageError::OtherArchitecture {
            image: image.to_owned(),
            architecture,
            wanted: arch,
        });
    }
    if let (Some(release), Some(ours)) = (named.release, major_minor(version)) {
        let (image, version) = (image.to_owned(), version.to_owned());
        let spec = |release| Version::newest_of_release(release).major;
        if release > ours {
            return Err(ImageError::Newer {
                image,
                release,
                version,
            });
        }
        if spec(release) != spec(ours) {
            return Err(ImageError::Older {
                image,
                release,
                version,
            });
        }
    }
    if let Some(platform) = named.platform.filter(|platform| *platform != wanted) {
        return Err(ImageError::OtherPlatform {
            image: image.to_owned(),
            platform,
            wanted,
        });
    }
    let is_okd = version.contains("okd");
    Ok(match (named.build, named.release) {
        (Some(build), _) if is_okd == (build == "rhcos") => Finding::warn(format!(
            "{image} is {build}, and the nodes of openshift-install {version} are {}",
            if is_okd {
                "scos, before 4.16 fedora-coreos"
            } else {
                "rhcos"
            }
        ))
        .hint("set image=auto for the installer's own"),
        (Some(_), Some(_)) => Finding::ok(format!("{image} is compatible with {version}")),
        (None, _) if catalogue::names_other_distribution(image) => Finding::warn(format!(
            "{image} is not CoreOS by its name, and only CoreOS applies Ignition configs"
        ))
        .hint("set image=auto for the installer's own"),
        _ => Finding::ok(format!(
            "{image} is not compared with {version}: its name has no release"
        )),
    })
}

/// Rejects a file that no platform can boot from. A finding if its format is unknown.
fn check_content(path: &Path) -> Result<Option<Finding>, ImageError> {
    let image = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let bytes = fs::metadata(path).map_or(0, |data| data.len());
    let is_packed = local_artifact(path, "").is_packed();
    let why = match Format::of_file(path, is_packed) {
        Ok(Format::Qcow2 | Format::Disk) => return Ok(None),
        Ok(Format::Unknown) => {
            let text = format!("{image} begins neither as a qcow2 image nor as a disk with partitions");
            return Ok(Some(Finding::warn(text).hint("compare it with its checksum")));
        }
        Ok(Format::Iso) => "is an ISO image, not a disk".to_owned(),
        Ok(Format::Foreign(format)) => format!("is a disk of format {format}; qcow2 is required"),
        Ok(Format::Compressed(format)) => {
            format!("is compressed with {format}, and its name does not end in .gz, .xz or .zst")
        }
        Ok(Format::Page) => format!("is a text of {bytes} bytes, such as the error page of a web server"),
        Ok(Format::Empty) => "is empty".to_owned(),
        Err(error) => format!("cannot be read: {error}"),
    };
    Err(ImageError::NoDisk { image, why })
}

/// The newest spec that the Ignition of a role's CoreOS reads. An image may be older than the installed release.
pub fn newest_spec(config: &ClusterConfig, role: Role, installed: (u32, u32)) -> Version {
    let images = config.boot_images((role, config.arch));
    Version::newest_of_release(release(&images.coreos).unwrap_or(installed))
}

/// A failure for an image that anyone on the network could replace: over plain http, and without a digest from elsewhere.
///
/// The CoreOS image of a release is named by digest in openshift-install.
pub fn unprotected(image: &ImageSource, downloads: &Downloads, arch: Architecture) -> Option<Finding> {
    let is_plain = |url: &str| url.to_ascii_lowercase().starts_with("http:");
    let (url, sums) = match image {
        ImageSource::Url(url) if is_plain(url) && !url.contains("#sha") => (
            url.trim_end_matches('#').to_owned(),
            "a source that you trust".to_owned(),
        ),
        // KubeVirt's own download compares no digest.
        ImageSource::Platform(name) => (
            name.strip_prefix("import:").filter(|url| is_plain(url))?.to_owned(),
            "its publisher".to_owned(),
        ),
        ImageSource::Catalogue(name) => {
            let folder = downloads.image_mirror.as_deref().filter(|folder| is_plain(folder))?;
            let image = catalogue::harvest_image(name)?;
            (
                format!("{folder}/{}", catalogue::file_name(&image.url(arch))),
                image.sums(arch),
            )
        }
        _ => return None,
    };
    let text = format!("cannot verify image {image}: plain http does not protect against modification");
    Some(Finding::fail(text).hint(format!(
        "use https, or append the SHA-256 of the uncompressed image, from {sums}, to its URL: {url}#sha256=…"
    )))
}

/// The release of OpenShift in the file name of a CoreOS image.
fn release(image: &ImageSource) -> Option<(u32, u32)> {
    catalogue::named(&file_name(image)?).release
}

fn file_name(image: &ImageSource) -> Option<String> {
    match image {
        ImageSource::File(path) => Some(path.file_name()?.to_string_lossy().into_owned()),
        ImageSource::Url(url) => Some(catalogue::file_name(url).to_owned()),
        ImageSource::Platform(_) | ImageSource::Release | ImageSource::Catalogue(_) => None,
    }
}

/// Where images are downloaded from and stored, and for which platform.
#[derive(Clone, Copy)]
pub struct Shop<'a> {
    pub downloads: &'a Downloads,
    /// Provides the CoreOS of its release.
    pub installer: Option<&'a Installer>,
    /// Of the machines.
    pub arch: Architecture,
    /// `qemu`, `openstack` or `kubevirt`.
    pub platform: &'static str,
    /// The platform itself downloads images given by URL.
    pub fetched_there: bool,
}

impl Shop<'_> {
    /// Provides an image, downloading it if necessary, with its digest, which identifies it on every platform.
    pub async fn request(&self, source: &ImageSource) -> Result<ImageRequest> {
        if let Some(Finding { text, hint, .. }) = unprotected(source, self.downloads, self.arch) {
            let hints = hint.into_iter().collect();
            return Err(OperationError {
                hints,
                ..OperationError::new(ErrorKind::Tool, text)
            }
            .into());
        }
        match source {
            ImageSource::Platform(name) => Ok(ImageRequest::Platform(name.clone())),
            ImageSource::Url(url) if self.fetched_there => Ok(ImageRequest::Platform(url.clone())),
            ImageSource::File(path) => self.file(path).await,
            ImageSource::Url(url) => Ok(self.stored(self.url(url).await?)),
            ImageSource::Catalogue(name) => Ok(self.stored(self.listed(name).await?)),
            ImageSource::Release => match self.coreos().await? {
                CoreOs::Container(image) => Ok(ImageRequest::Platform(image)),
                CoreOs::Disk(artifact) => Ok(self.stored(self.cache().fetch(&artifact).await?)),
            },
        }
    }

    fn cache(&self) -> Cache {
        Cache::new(&self.downloads.dir)
    }

    fn stored(&self, cached: Cached) -> ImageRequest {
        ImageRequest::File {
            path: cached.path,
            sha256: cached.sha256,
            bytes: cached.bytes,
            arch: self.arch,
        }
    }

    /// A plain file is used in place; a compressed one is unpacked into the cache once per state of the file.
    async fn file(&self, path: &Path) -> Result<ImageRequest> {
        let data = fs::metadata(path)?;
        let state = format!("{}-{}.{}", data.len(), data.mtime(), data.mtime_nsec());
        let artifact = local_artifact(path, &state);
        if artifact.is_packed() {
            return Ok(self.stored(self.cache().fetch(&artifact).await?));
        }
        let (path, bytes, arch) = (path.to_owned(), data.len(), self.arch);
        let read = move || {
            let sha256 = digest::sha256_of(fs::File::open(&path)?)?;
            Ok(ImageRequest::File {
                path,
                sha256,
                bytes,
                arch,
            })
        };
        let request: io::Result<ImageRequest> = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?;
        Ok(request?)
    }

    /// Downloads an image from the user's URL, verified by its checksum if the URL has one.
    async fn url(&self, url: &str) -> Result<Cached, DownloadError> {
        let (url, sum) = match url.split_once("#sha256=") {
            Some((url, sum)) => (url, Some(sum.to_ascii_lowercase())),
            None => (url, None),
        };
        if sum.is_none() {
            warn!("{url} is not verified; append #sha256=… to verify it");
        }
        let artifact = Artifact {
            url: url.to_owned(),
            sha256: None,
            content_sha256: sum,
            unpack: true,
        };
        self.cache().fetch(&artifact).await
    }

    /// A pass-one image of the catalog, in its publisher's current version.
    async fn listed(&self, name: &str) -> Result<Cached> {
        let image = catalogue::harvest_image(name).filter(|image| image.architectures.contains(&self.arch));
        let image = image.ok_or_else(|| ImageError::NotInCatalogue {
            name: name.to_owned(),
            arch: self.arch,
        })?;
        let folder = self.downloads.image_mirror.as_deref();
        let mut artifact = Artifact {
            url: image.url(self.arch),
            sha256: None,
            content_sha256: None,
            unpack: true,
        }
        .in_folder(folder);
        let mut sums = image.sums(self.arch);
        if let Some(folder) = folder {
            sums = format!("{folder}/{}", catalogue::file_name(&sums));
        }
        let cache = self.cache();
        let (list, unreachable) = match download::text(&sums, cache.retries()).await {
            Ok(list) => (list, None),
            // To harvest addresses, an older version with a list from the same URL is sufficient.
            Err(error @ DownloadError::Unreachable { .. }) => match cache.kept_list(&sums) {
                Some(list) => (list, Some(error)),
                None => return Err(error.into()),
            },
            Err(error) => return Err(error.into()),
        };
        let file = artifact.file_name();
        artifact.sha256 = Some(catalogue::sum_of(&list, file).ok_or_else(|| ImageError::NoSum {
            url: sums.clone(),
            file: file.to_owned(),
        })?);
        if let Some(error) = unreachable {
            let known = cache.find(&artifact).ok_or(error)?;
            warn!("{sums} cannot be reached; using image {name} of {}", known.fetched);
            return Ok(known);
        }
        let cached = cache.fetch(&artifact).await?;
        cache.keep_list(&sums, &list)?;
        Ok(cached)
    }

    /// The CoreOS image of the installer's release for this platform.
    pub async fn coreos(&self) -> Result<CoreOs> {
        let installer = self
            .installer
            .context("the CoreOS version is unknown without openshift-install")?;
        let version = installer.version().await?;
        let stream = installer.coreos_stream(self.downloads).await?;
        let found = catalogue::coreos(&stream, self.platform, self.arch);
        let found = found.map_err(|why| ImageError::NoCoreOs {
            version: version.clone(),
            why,
        })?;
        let name = match &found {
            CoreOs::Disk(artifact) => artifact.content_name(),
            CoreOs::Container(image) => image,
        };
        info!(target: PROGRESS, "image {name} is the CoreOS of openshift-install {version} for {}", self.platform);
        Ok(match found {
            CoreOs::Disk(artifact) => CoreOs::Disk(artifact.in_folder(self.downloads.image_mirror.as_deref())),
            container => container,
        })
    }
}

/// A file of the user; `state` changes with its content.
fn local_artifact(path: &Path, state: &str) -> Artifact {
    Artifact {
        url: format!("file://{}?{state}", path.display()),
        sha256: None,
        content_sha256: None,
        unpack: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::ClusterConfig;

    #[test]
    fn plain_http_needs_a_digest_for_every_kind_of_image() {
        let downloads = |folder: &str| Downloads {
            image_mirror: Some(folder.to_owned()),
            ..ClusterConfig::example().downloads
        };
        let catalogue = || ImageSource::Catalogue(catalogue::DEFAULT_HARVEST_IMAGE.to_owned());
        let url = |url: &str| ImageSource::Url(url.to_owned());
        let platform = |name: &str| ImageSource::Platform(name.to_owned());
        for (image, folder, hint) in [
            (url("http://a/x.qcow2"), "https://m", Some(": http://a/x.qcow2#sha256=")),
            (
                url("http://a/x.qcow2#"),
                "https://m",
                Some(": http://a/x.qcow2#sha256="),
            ),
            (url("http://a/x.qcow2#sha256=00"), "http://m", None),
            (url("https://a/x.qcow2"), "http://m", None),
            (
                catalogue(),
                "http://m/i",
                Some("SHA256SUM, to its URL: http://m/i/CentOS"),
            ),
            (catalogue(), "https://m", None),
            (
                platform("import:http://a/x.qcow2"),
                "https://m",
                Some(": http://a/x.qcow2#sha256="),
            ),
            (
                platform("import:HTTP://a/x.qcow2"),
                "https://m",
                Some(": HTTP://a/x.qcow2#sha256="),
            ),
            (platform("import:https://a/x.qcow2"), "http://m", None),
            (platform("rhcos"), "http://m", None),
            // openshift-install names its digest.
            (ImageSource::Release, "http://m", None),
        ] {
            let found = unprotected(&image, &downloads(folder), Architecture::X86_64);
            let found = found.map(|finding| finding.hint.unwrap_or_default());
            assert_eq!(found.is_some(), hint.is_some(), "{image} {folder}: {found:?}");
            assert!(
                found.unwrap_or_default().contains(hint.unwrap_or_default()),
                "{image} {folder}"
            );
        }
    }

    #[test]
    fn an_image_of_a_later_release_or_another_platform_is_rejected_by_its_name() {
        for (image, expected) in [
            ("/i/rhcos-4.19.0-x86_64-qemu.x86_64.qcow2", None),
            ("/i/rhcos-418.94.202410090804-0-qemu.x86_64.qcow2", None),
            ("/i/mine.qcow2", None),
            (
                "/i/rhcos-4.20.1-x86_64-qemu.x86_64.qcow2",
                Some(
                    "image rhcos-4.20.1-x86_64-qemu.x86_64.qcow2 is the CoreOS of 4.20, and openshift-install is 4.19.3",
                ),
            ),
            (
                "/i/rhcos-4.19.0-x86_64-openstack.x86_64.qcow2",
                Some(
                    "image rhcos-4.19.0-x86_64-openstack.x86_64.qcow2 is for openstack; this platform requires the image \
                     for qemu",
                ),
            ),
        ] {
            let name = file_name(&ImageSource::File(image.into())).unwrap();
            let error = check_name(&name, "4.19.3", "qemu", Architecture::X86_64).err();
            assert_eq!(error.map(|error| error.to_string()).as_deref(), expected);
        }
    }

    #[test]
    fn only_a_coreos_of_a_known_release_is_called_compatible() {
        for (image, version, expected) in [
            ("rhcos-4.18.1-x86_64-qemu.x86_64.qcow2", "4.19.3", "ok"),
            ("rhcos-9.6.20250523-0-qemu.x86_64.qcow2.gz", "4.19.3", "not compared"),
            ("mine.qcow2", "4.19.3", "not compared"),
            (
                "rhcos-43.81.202001142154.0-qemu.x86_64.qcow2",
                "4.19.3",
                "cannot read the configs",
            ),
            (
                "rhcos-4.5.6-x86_64-qemu.x86_64.qcow2",
                "4.6.0",
                "cannot read the configs",
            ),
            ("rhcos-4.19.0-aarch64-qemu.aarch64.qcow2", "4.19.3", "for aarch64"),
            (
                "fedora-coreos-42.20250609.3.0-qemu.x86_64.qcow2",
                "4.19.3",
                "nodes of openshift-install 4.19.3 are rhcos",
            ),
            (
                "scos-9.0.20250510-0-qemu.x86_64.qcow2",
                "4.19.0-okd-scos.3",
                "not compared",
            ),
            ("rhcos-4.18.1-x86_64-qemu.x86_64.qcow2", "4.19.0-okd-scos.3", "are scos"),
            (
                "CentOS-Stream-GenericCloud-9-latest.x86_64.qcow2",
                "4.19.3",
                "is not CoreOS",
            ),
        ] {
            let text = match check_name(image, version, "qemu", Architecture::X86_64) {
                Ok(found) if found.text == format!("{image} is compatible with {version}") => "ok".to_owned(),
                Ok(found) => found.text,
                Err(error) => error.to_string(),
            };
            assert!(text.contains(expected), "{image}: {text}");
        }
    }

    #[test]
    fn a_file_that_is_no_disk_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        for (name, content, expected) in [
            ("a.qcow2", &b"QFI\xfb"[..], None),
            ("b.qcow2", b"", Some("image b.qcow2 is empty")),
            (
                "c.qcow2",
                b"<html>404",
                Some("image c.qcow2 is a text of 9 bytes, such as the error page of a web server"),
            ),
            (
                "d.qcow2.gz",
                b"<html>404",
                Some("image d.qcow2.gz is a text of 9 bytes, such as the error page of a web server"),
            ),
            (
                "e.vmdk",
                b"KDMV",
                Some("image e.vmdk is a disk of format VMDK; qcow2 is required"),
            ),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, content).unwrap();
            let error = check_content(&path).err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), expected, "{name}");
        }
    }
}
