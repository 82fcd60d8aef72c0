//! Available images: those for pass one in `images/catalogue.yaml`, and the CoreOS images of a release.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cluster::Architecture;

/// The default pass-one image.
pub const DEFAULT_HARVEST_IMAGE: &str = "centos9stream";

/// Suffixes of files that are decompressed.
const PACKED: [&str; 3] = [".gz", ".xz", ".zst"];

/// A file that can be downloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// `http`, `https` or `file`.
    pub url: String,
    /// SHA-256 of the downloaded file, in hex.
    pub sha256: Option<String>,
    /// SHA-256 of the decompressed content, in hex.
    pub content_sha256: Option<String>,
    /// Gzip, xz and zstd are decompressed, and the content is stored.
    pub unpack: bool,
}

impl Artifact {
    /// The last part of the URL, without the query.
    pub fn file_name(&self) -> &str {
        file_name(&self.url)
    }

    /// The name of its content: without `.gz`, `.xz` and `.zst` if these are decompressed.
    pub fn content_name(&self) -> &str {
        let name = self.file_name();
        let unpacked = PACKED.iter().find_map(|end| name.strip_suffix(end));
        unpacked.filter(|_| self.unpack).unwrap_or(name)
    }

    /// Whether it is compressed, by its name or its checksums: some early CoreOS files have no suffix.
    pub fn is_packed(&self) -> bool {
        let named = PACKED.iter().any(|end| self.file_name().ends_with(end));
        let summed = self.content_sha256.is_some() && self.content_sha256 != self.sha256;
        self.unpack && (named || summed)
    }

    /// The same file name in another directory.
    pub fn in_folder(mut self, folder: Option<&str>) -> Self {
        if let Some(folder) = folder {
            self.url = format!("{folder}/{}", self.file_name());
        }
        self
    }
}

/// The last part of a URL.
pub fn file_name(url: &str) -> &str {
    let path = url.split(['?', '#']).next().unwrap_or(url);
    path.rsplit('/').next().unwrap_or(path)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "v")]
    _version: u32,
    images: Vec<HarvestImage>,
}

/// A pass-one image of the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HarvestImage {
    pub name: String,
    pub about: String,
    pub architectures: Vec<Architecture>,
    /// Contains `{arch}`.
    url: String,
    /// URL of the published checksums, which contains `{arch}`, too.
    sums: String,
}

impl HarvestImage {
    pub fn url(&self, arch: Architecture) -> String {
        self.url.replace("{arch}", arch.as_str())
    }

    pub fn sums(&self, arch: Architecture) -> String {
        self.sums.replace("{arch}", arch.as_str())
    }
}

static HARVEST_IMAGES: LazyLock<Vec<HarvestImage>> = LazyLock::new(|| {
    let file = serde_saphyr::from_str::<File>(include_str!("../../images/catalogue.yaml"));
    // A test validates the file.
    file.map(|file| file.images).unwrap_or_default()
});

/// All pass-one images, the default first.
pub fn harvest_images() -> &'static [HarvestImage] {
    &HARVEST_IMAGES
}

/// The pass-one image of this name.
pub fn harvest_image(name: &str) -> Option<&'static HarvestImage> {
    HARVEST_IMAGES.iter().find(|image| image.name == name)
}

/// The SHA-256 of a file in a checksum list, in the format of `sha256sum` or BSD's `sha256`; in lower case.
pub fn sum_of(sums: &str, file: &str) -> Option<String> {
    let is_sum = |sum: &&str| sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit());
    let line = |line: &str| {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("SHA256 (") {
            let (name, sum) = rest.rsplit_once(") = ")?;
            return (name == file).then(|| sum.trim().to_owned());
        }
        let (sum, name) = line.split_once(char::is_whitespace)?;
        // A star indicates a file that was read as binary.
        let name = name.trim_start().trim_start_matches('*').trim_start_matches("./");
        (name == file).then(|| sum.to_owned())
    };
    let found = sums.lines().find_map(line)?;
    Some(found.to_ascii_lowercase()).filter(|sum| is_sum(&sum.as_str()))
}

/// The CoreOS image of a platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreOs {
    Disk(Artifact),
    /// KubeVirt's container disk, by digest.
    Container(String),
}

/// Reads the CoreOS image of a release for the platform `qemu`, `openstack` or `kubevirt`.
///
/// Accepts the stream of `openshift-install coreos print-stream-json` (from 4.8) and the older `rhcos.json`
/// (openshift/installer: `data/data/rhcos.json`).
pub fn coreos(json: &[u8], platform: &str, arch: Architecture) -> Result<CoreOs, String> {
    let json: Value = serde_json::from_slice(json).map_err(|error| format!("not valid JSON: {error}"))?;
    if let Some(architectures) = json.get("architectures") {
        let ours = &architectures[arch.as_str()];
        if let Some(image) = ours["images"][platform]["digest-ref"].as_str() {
            return Ok(CoreOs::Container(image.to_owned()));
        }
        let formats = ours["artifacts"][platform]["formats"].as_object();
        let disk = formats.into_iter().flatten().find_map(|(format, parts)| {
            let disk = &parts["disk"];
            format
                .starts_with("qcow2")
                .then(|| artifact(disk["location"].as_str()?, disk))?
        });
        return disk.map(CoreOs::Disk).ok_or_else(|| {
            let stream = json["stream"].as_str().unwrap_or("without a name");
            format!("stream {stream} has no image for {platform} on {arch}")
        });
    }
    let image = &json["images"][platform];
    let url = json["baseURI"].as_str().zip(image["path"].as_str());
    url.and_then(|(base, path)| artifact(&format!("{}/{path}", base.trim_end_matches('/')), image))
        .map(CoreOs::Disk)
        .ok_or_else(|| format!("it has no image for {platform}"))
}

fn artifact(url: &str, sums: &Value) -> Option<Artifact> {
    // Without a checksum a modified file cannot be detected.
    let sha256 = sums["sha256"].as_str()?.to_ascii_lowercase();
    let content = sums["uncompressed-sha256"].as_str().map(str::to_ascii_lowercase);
    Some(Artifact {
        url: url.to_owned(),
        sha256: Some(sha256),
        content_sha256: content,
        unpack: true,
    })
}

/// Builds of CoreOS, by the first part of their images' names.
const BUILDS: [&str; 3] = ["rhcos", "scos", "fedora-coreos"];

/// Parts of the names of other distributions' images: these do not read Ignition configs.
const OTHERS: [&str; 13] = [
    "alma",
    "centos",
    "cirros",
    "cloudimg",
    "debian",
    "fedora-cloud",
    "fedora-server",
    "genericcloud",
    "opensuse",
    "oraclelinux",
    "rhel-",
    "rocky",
    "ubuntu",
];

/// Properties in the name of a CoreOS image, e.g. `rhcos-4.19.0-x86_64-qemu.x86_64.qcow2`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamedCoreOs {
    /// `rhcos`, `scos` or `fedora-coreos`.
    pub build: Option<&'static str>,
    /// The OpenShift release it was built for.
    pub release: Option<(u32, u32)>,
    /// `qemu`, `openstack`, …: determines where it reads its Ignition config.
    pub platform: Option<&'static str>,
}

/// Parses the name of a CoreOS build: `rhcos-4.19.0-…`, or `rhcos-418.94.…` for 4.18.
pub fn named(file: &str) -> NamedCoreOs {
    let found = BUILDS
        .iter()
        .find_map(|build| Some((*build, file.strip_prefix(build)?.strip_prefix('-')?)));
    let Some((build, rest)) = found else {
        return NamedCoreOs::default();
    };
    let release = match crate::cluster::major_minor(rest) {
        Some((4, minor)) => Some((4, minor)),
        // Since 4.19 it is the version of the underlying RHEL, not of OpenShift.
        Some((joined @ 40.., _)) => {
            let joined = joined.to_string();
            joined
                .strip_prefix('4')
                .and_then(|minor| Some((4, minor.parse().ok()?)))
        }
        _ => None,
    };
    let platforms = [
        "qemu",
        "openstack",
        "kubevirt",
        "metal",
        "vmware",
        "azure",
        "gcp",
        "aws",
        "nutanix",
    ];
    let platform = platforms.into_iter().find(|platform| {
        let after = rest.split_once(&format!("-{platform}"));
        after.is_some_and(|(_, after)| after.starts_with(['.', '-']))
    });
    NamedCoreOs {
        build: Some(build),
        release: release.filter(|_| build == "rhcos"),
        platform,
    }
}

/// Whether a name is that of another distribution's image.
pub fn names_other_distribution(file: &str) -> bool {
    let file = file.to_ascii_lowercase();
    named(&file).build.is_none() && OTHERS.iter().any(|other| file.contains(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUM: &str = "aa0e1c2f0b8a0e6bd0f9a1f3a2c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6";

    #[test]
    fn the_catalog_is_valid_and_starts_with_the_default() {
        let names: Vec<&str> = harvest_images().iter().map(|image| image.name.as_str()).collect();
        assert_eq!(
            names,
            [
                DEFAULT_HARVEST_IMAGE,
                "centos10stream",
                "almalinux9",
                "rocky9",
                "centos7"
            ]
        );
        for image in harvest_images() {
            for arch in &image.architectures {
                let (url, sums) = (image.url(*arch), image.sums(*arch));
                assert!(url.starts_with("https://") && sums.starts_with("https://"), "{image:?}");
                assert!(file_name(&url).contains(".qcow2") && !url.contains('{'), "{image:?}");
                assert_eq!(Architecture::in_name(file_name(&url)), Some(*arch), "{image:?}");
            }
        }
    }

    #[test]
    fn checksums_are_found_in_both_formats_and_only_for_the_whole_name() {
        let gnu = format!("{SUM}  a.qcow2\n{}  *b.qcow2\n", "b".repeat(64));
        let bsd = format!("# a.qcow2: 12 bytes\nSHA256 (a.qcow2) = {}\n", SUM.to_ascii_uppercase());
        assert_eq!(sum_of(&gnu, "a.qcow2").as_deref(), Some(SUM));
        assert_eq!(sum_of(&gnu, "b.qcow2"), Some("b".repeat(64)));
        assert_eq!(sum_of(&bsd, "a.qcow2").as_deref(), Some(SUM));
        for (sums, file) in [(&gnu, "qcow2"), (&gnu, "xa.qcow2"), (&bsd, "b.qcow2")] {
            assert_eq!(sum_of(sums, file), None, "{file}");
        }
        assert_eq!(sum_of("<html>a.qcow2</html>", "a.qcow2"), None);
        assert_eq!(sum_of("0123  a.qcow2", "a.qcow2"), None, "too short");
    }

    #[test]
    fn coreos_is_found_in_a_stream_and_in_the_older_format() {
        let disk = serde_json::json!({"location": "https://a.example.com/rhcos-9.6.2-0-qemu.x86_64.qcow2.gz",
            "sha256": "AB", "uncompressed-sha256": "cd"});
        let stream = serde_json::json!({"stream": "rhcos-4.19", "architectures": {"x86_64": {
            "artifacts": {"qemu": {"release": "9.6", "formats": {"raw.gz": {"disk": {}}, "qcow2.gz": {"disk": disk}}}},
            "images": {"kubevirt": {"image": "registry.example.com/rhcos:x", "digest-ref": "registry.example.com/rhcos@sha256:0"}}}}});
        let stream = serde_json::to_vec(&stream).unwrap();
        let expected = Artifact {
            url: "https://a.example.com/rhcos-9.6.2-0-qemu.x86_64.qcow2.gz".to_owned(),
            sha256: Some("ab".to_owned()),
            content_sha256: Some("cd".to_owned()),
            unpack: true,
        };
        assert_eq!(expected.content_name(), "rhcos-9.6.2-0-qemu.x86_64.qcow2");
        assert_eq!(
            coreos(&stream, "qemu", Architecture::X86_64),
            Ok(CoreOs::Disk(expected))
        );
        let container = CoreOs::Container("registry.example.com/rhcos@sha256:0".to_owned());
        assert_eq!(coreos(&stream, "kubevirt", Architecture::X86_64), Ok(container));
        assert_eq!(
            coreos(&stream, "openstack", Architecture::X86_64),
            Err("stream rhcos-4.19 has no image for openstack on x86_64".to_owned())
        );
        // OKD's (openshift/installer: `data/data/coreos/scos.json`).
        let okd = serde_json::json!({"stream": "c10s", "architectures": {"x86_64": {"artifacts": {"openstack": {
            "release": "10.0.20250628-0", "formats": {"qcow2.gz": {"disk": {
                "location": "https://a.example.com/c10s/scos-10.0.20250628-0-openstack.x86_64.qcow2.gz",
                "sha256": SUM, "uncompressed-sha256": SUM}}}}}}}});
        let Ok(CoreOs::Disk(okd)) = coreos(&serde_json::to_vec(&okd).unwrap(), "openstack", Architecture::X86_64)
        else {
            panic!("not found")
        };
        assert_eq!(okd.content_name(), "scos-10.0.20250628-0-openstack.x86_64.qcow2");
        let old = br#"{"baseURI": "https://b.example.com/43.80/", "buildid": "43.80", "images": {
            "openstack": {"path": "rhcos-43.80-openstack.x86_64.qcow2", "sha256": "01", "uncompressed-sha256": "02", "size": 3}}}"#;
        let Ok(CoreOs::Disk(found)) = coreos(old, "openstack", Architecture::X86_64) else {
            panic!("not found")
        };
        assert_eq!(
            found.url,
            "https://b.example.com/43.80/rhcos-43.80-openstack.x86_64.qcow2"
        );
        assert_eq!(
            (found.sha256.as_deref(), found.content_sha256.as_deref()),
            (Some("01"), Some("02"))
        );
        for bad in ["", "[]", "{}", r#"{"architectures": 3}"#] {
            assert!(coreos(bad.as_bytes(), "qemu", Architecture::X86_64).is_err(), "{bad}");
        }
    }

    #[test]
    fn image_names_contain_release_and_platform() {
        let named_as = |release, platform| (release, platform);
        for (file, expected) in [
            (
                "rhcos-4.19.0-x86_64-qemu.x86_64.qcow2",
                named_as(Some((4, 19)), Some("qemu")),
            ),
            (
                "rhcos-418.94.202410090804-0-openstack.x86_64.qcow2.gz",
                named_as(Some((4, 18)), Some("openstack")),
            ),
            (
                "rhcos-43.80.20191002.1-metal.x86_64.raw.gz",
                named_as(Some((4, 3)), Some("metal")),
            ),
            (
                "rhcos-9.6.20250523-0-qemu.x86_64.qcow2.gz",
                named_as(None, Some("qemu")),
            ),
            (
                "scos-10.0.20250628-0-openstack.x86_64.qcow2.gz",
                named_as(None, Some("openstack")),
            ),
            (
                "fedora-coreos-30.20191014.0-qemu.x86_64.qcow2.xz",
                named_as(None, Some("qemu")),
            ),
            ("rhcos.qcow2", named_as(None, None)),
            ("mine-4.19.qcow2", named_as(None, None)),
        ] {
            let found = named(file);
            assert_eq!((found.release, found.platform), expected, "{file}");
        }
    }

    #[test]
    fn image_names_contain_distribution() {
        for (file, build, is_other) in [
            ("rhcos-4.19.0-x86_64-qemu.x86_64.qcow2", Some("rhcos"), false),
            (
                "fedora-coreos-42.20250609.3.0-qemu.s390x.qcow2.xz",
                Some("fedora-coreos"),
                false,
            ),
            ("scos-9.0.20250510-0-qemu.x86_64.qcow2", Some("scos"), false),
            ("CentOS-Stream-GenericCloud-9-latest.x86_64.qcow2", None, true),
            ("debian-12-genericcloud-arm64.qcow2", None, true),
            ("rhel-9.4-x86_64-kvm.qcow2", None, true),
            ("mine.qcow2", None, false),
        ] {
            assert_eq!(named(file).build, build, "{file}");
            assert_eq!(names_other_distribution(file), is_other, "{file}");
        }
    }
}
