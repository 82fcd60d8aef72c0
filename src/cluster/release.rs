//! The requested release, and which clusters it supports.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::names::major_minor;
use super::networks::ClusterNetworks;
use super::platform::BackendConfig;

/// The requested release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Wanted {
    /// The newest production release.
    Stable,
    /// The newest release candidate.
    Candidate,
    /// The newest development build.
    Nightly,
    /// The newest stable release of this minor version.
    Minor(u32, u32),
    /// Exactly this one, e.g. `4.19.3`.
    Exact(String),
    /// The newest OKD.
    Okd,
    /// The newest stable OKD of this minor version.
    OkdMinor(u32, u32),
}

impl Wanted {
    /// Whether it is a release of OKD.
    pub fn is_okd(&self) -> bool {
        match self {
            Self::Okd | Self::OkdMinor(..) => true,
            Self::Exact(version) => version.contains("okd"),
            _ => false,
        }
    }

    /// Major and minor version, if known before a mirror is queried.
    pub fn release(&self) -> Option<(u32, u32)> {
        match self {
            Self::Minor(major, minor) | Self::OkdMinor(major, minor) => Some((*major, *minor)),
            Self::Exact(version) => major_minor(version),
            _ => None,
        }
    }

    /// Whether it selects other versions over time.
    pub fn is_channel(&self) -> bool {
        !matches!(self, Self::Exact(_))
    }

    /// Whether a version matches; any version may have been the newest of a channel.
    pub fn fits(&self, version: &str) -> bool {
        let is_okd = version.contains("okd");
        match self {
            Self::Stable | Self::Candidate | Self::Nightly => !is_okd,
            Self::Okd => is_okd,
            Self::Minor(major, minor) => !is_okd && major_minor(version) == Some((*major, *minor)),
            Self::OkdMinor(major, minor) => is_okd && major_minor(version) == Some((*major, *minor)),
            Self::Exact(wanted) => wanted == version,
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stable => f.write_str("stable"),
            Self::Candidate => f.write_str("candidate"),
            Self::Nightly => f.write_str("nightly"),
            Self::Okd => f.write_str("okd"),
            Self::OkdMinor(major, minor) => write!(f, "okd-{major}.{minor}"),
            Self::Minor(major, minor) => write!(f, "{major}.{minor}"),
            Self::Exact(version) => f.write_str(version),
        }
    }
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // It becomes part of URLs and directory names.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        // SCOS is the only variant of OKD since 4.16.
        let okd = text.strip_prefix("okd-");
        if let Some(minor) = okd.map(|rest| rest.strip_prefix("scos-").unwrap_or(rest))
            && let Some((major @ 4..10, minor)) =
                major_minor(minor).filter(|found| minor == format!("{}.{}", found.0, found.1))
        {
            return Ok(Self::OkdMinor(major, minor));
        }
        match (text, major_minor(text)) {
            ("stable", _) => Ok(Self::Stable),
            ("candidate", _) => Ok(Self::Candidate),
            ("nightly", _) => Ok(Self::Nightly),
            ("okd", _) => Ok(Self::Okd),
            (_, Some((major @ 4..10, minor))) if text.chars().all(is_plain) && !text.contains("..") => {
                Ok(match text.matches('.').count() {
                    1 => Self::Minor(major, minor),
                    _ => Self::Exact(text.to_owned()),
                })
            }
            _ => Err(format!(
                "unknown version `{text}`: use stable, candidate, nightly, okd, a minor version such as 4.19 or okd-4.19, or a version such as 4.19.3"
            )),
        }
    }
}

/// A version's place among others (semver.org, section 11): `4.9.12` comes before `4.10.0-rc.2`, and this before `4.10.0`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Precedence {
    release: Vec<Identifier>,
    is_final: bool,
    preview: Vec<Identifier>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Text(String),
}

impl Precedence {
    pub fn of(version: &str) -> Self {
        let (release, preview) = version.split_once('-').unwrap_or((version, ""));
        let identifier = |part: &str| match part.parse() {
            Ok(number) => Identifier::Number(number),
            Err(_) => Identifier::Text(part.to_owned()),
        };
        let identifiers = |text: &str| text.split('.').map(identifier).collect();
        Self {
            release: identifiers(release),
            is_final: preview.is_empty(),
            preview: identifiers(preview),
        }
    }
}

/// Why a release may not accept the domain of a cluster at the end of its installation.
///
/// The Ingress API has the hosts of the console and of authentication since 4.8. Until its patch releases of spring 2022,
/// it accepted only letters in the last label (openshift/api: `config/v1/types_ingress.go`, `Hostname`; pull request 1120).
pub fn domain_problem(release: (u32, u32), domain: &str) -> Option<String> {
    let last = domain.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let is_accepted = last.len() >= 2 && last.bytes().all(|byte| byte.is_ascii_alphabetic());
    let (major, minor) = release;
    (((4, 8)..=(4, 10)).contains(&release) && !is_accepted).then(|| {
        format!(
            "OpenShift {major}.{minor} before its patch releases of spring 2022 does not accept a domain that ends in \
             `.{last}`: console and authentication do not become available"
        )
    })
}

/// Why a cluster of a release cannot be installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedRelease {
    pub why: String,
    pub hint: &'static str,
    /// The settings that decide it.
    pub settings: &'static [&'static str],
}

/// Why this release does not support a cluster with this number of masters, an arbiter, the pod network, or two address
/// families; `None` if it does.
///
/// * The API has `certificates.k8s.io/v1` since Kubernetes 1.19, which is OpenShift 4.6 (kubernetes/kubernetes:
///   `CHANGELOG/CHANGELOG-1.19.md`); no other version of certificate requests is supported here.
/// * etcd and the routers run with one replica since 4.8, by the topology in the Infrastructure resource
///   (openshift/installer: `pkg/asset/manifests/topologies.go`).
/// * OVN-Kubernetes has `gatewayConfig`, which the pod network requires, since 4.10 (openshift/api: pull request 1033);
///   before, the field is dropped without an error.
/// * Kubernetes enables two address families since 1.21, which is OpenShift 4.8 (kubernetes/website:
///   `content/en/docs/concepts/services-networking/dual-stack.md`).
/// * The installer accepts an arbiter on platform `none` since 4.22 (openshift/installer: pull request 10236;
///   openshift/openshift-docs: pull request 110815).
pub fn unsupported_release(
    (major, minor): (u32, u32),
    masters: usize,
    arbiter: bool,
    backend: &BackendConfig,
    networks: &ClusterNetworks,
    has_ipv6: bool,
) -> Option<UnsupportedRelease> {
    if (major, minor) < (4, 6) {
        return Some(UnsupportedRelease {
            why: format!(
                "OpenShift {major}.{minor} is not supported: its API has no certificates.k8s.io/v1, \
                 so its nodes' certificates cannot be approved"
            ),
            hint: "use OpenShift 4.6 or later",
            settings: &["version"],
        });
    }
    if backend.pod_network().is_some() && networks.network_type == "OVNKubernetes" && (major, minor) < (4, 10) {
        return Some(UnsupportedRelease {
            why: format!("OpenShift {major}.{minor} does not support network=pod: OVN-Kubernetes has no gatewayConfig"),
            hint: "use OpenShift 4.10 or later, or another network",
            settings: &["version", "network"],
        });
    }
    if has_ipv6 && (major, minor) < (4, 8) {
        return Some(UnsupportedRelease {
            why: format!("OpenShift {major}.{minor} does not support two address families"),
            hint: "use OpenShift 4.8 or later, or one IPv4 network",
            settings: &["version", "machine_network"],
        });
    }
    if arbiter && (major, minor) < (4, 22) {
        return Some(UnsupportedRelease {
            why: format!("OpenShift {major}.{minor} does not support an arbiter on platform none"),
            hint: "use OpenShift 4.22 or later, or 3 masters without an arbiter",
            settings: &["version", "arbiter"],
        });
    }
    (masters == 1 && (major, minor) < (4, 8)).then(|| UnsupportedRelease {
        why: format!("OpenShift {major}.{minor} does not support a single master"),
        hint: "use 3 masters, or OpenShift 4.8 or later",
        settings: &["version", "masters"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{ClusterConfig, KubevirtConfig, PodNetwork};

    #[test]
    fn releases_without_a_required_feature_are_not_supported() {
        let (mut networks, sim) = (ClusterConfig::example().networks, ClusterConfig::example().backend);
        let pods = BackendConfig::Kubevirt(KubevirtConfig {
            pods: Some(PodNetwork::default()),
            ..KubevirtConfig::default()
        });
        let why = |release, masters, backend: &BackendConfig, networks: &ClusterNetworks| {
            unsupported_release(release, masters, false, backend, networks, false).map(|found| found.settings)
        };
        assert_eq!(why((4, 5), 3, &sim, &networks), Some(&["version"][..]));
        assert_eq!(why((4, 6), 3, &sim, &networks), None);
        assert_eq!(why((4, 7), 1, &sim, &networks), Some(&["version", "masters"][..]));
        assert_eq!(why((4, 8), 1, &sim, &networks), None);
        assert_eq!(why((4, 9), 3, &pods, &networks), Some(&["version", "network"][..]));
        assert_eq!(why((4, 10), 3, &pods, &networks), None);
        networks.network_type = "OpenShiftSDN".to_owned();
        assert_eq!(why((4, 9), 3, &pods, &networks), None);
        let with_ipv6 =
            |release| unsupported_release(release, 3, false, &sim, &networks, true).map(|found| found.settings);
        assert_eq!(with_ipv6((4, 7)), Some(&["version", "machine_network"][..]));
        assert_eq!(with_ipv6((4, 8)), None);
        let with_arbiter =
            |release| unsupported_release(release, 2, true, &sim, &networks, false).map(|found| found.settings);
        assert_eq!(with_arbiter((4, 21)), Some(&["version", "arbiter"][..]));
        assert_eq!(with_arbiter((4, 22)), None);
    }

    #[test]
    fn a_domain_that_ends_in_digits_is_a_problem_of_the_releases_whose_api_rejects_it() {
        for (release, domain, is_problem) in [
            ((4, 7), "example.k8s", false),
            ((4, 8), "example.k8s", true),
            ((4, 10), "example.xn--p1ai", true),
            ((4, 10), "example.x", true),
            ((4, 10), "k8s.example.com", false),
            ((4, 11), "example.k8s", false),
        ] {
            assert_eq!(
                domain_problem(release, domain).is_some(),
                is_problem,
                "{release:?} {domain}"
            );
        }
    }

    #[test]
    fn versions_are_sorted_as_their_publishers_number_them() {
        let sorted = [
            "4.9.2",
            "4.9.12",
            "4.10.0",
            "4.20.0-0.nightly-2025-09-30-101010",
            "4.20.0-0.nightly-2025-10-01-001122",
            "4.20.0-ec.3",
            "4.20.0-okd-scos.9",
            "4.20.0-okd-scos.15",
            "4.20.0-rc.2",
            "4.20.0-rc.10",
            "4.20.0",
        ];
        let mut versions = sorted;
        versions.reverse();
        versions.sort_by_cached_key(|version| Precedence::of(version));
        assert_eq!(versions, sorted);
    }

    #[test]
    fn a_release_is_requested_by_channel_or_version() {
        for (text, fits, not) in [
            ("stable", "4.19.3", "4.19.0-okd-scos.3"),
            ("okd", "4.19.0-okd-scos.3", "4.19.3"),
            ("4.19", "4.19.3", "4.1.9"),
            ("4.19", "4.19.3", "4.19.0-okd-scos.3"),
            ("okd-4.19", "4.19.0-okd-scos.3", "4.19.3"),
            ("okd-4.19", "4.19.0-okd-scos.3", "4.20.0-okd-scos.3"),
            ("4.20.0-rc.1", "4.20.0-rc.1", "4.20.0"),
        ] {
            let wanted: Wanted = text.parse().unwrap();
            assert_eq!(wanted.to_string(), text);
            assert!(wanted.fits(fits) && !wanted.fits(not), "{text}");
        }
        for bad in [
            "",
            "okd-",
            "okd-4",
            "okd-4.19.0",
            "okd-scos",
            "okd-4.19/..",
            "latest",
            "4",
            "3.11",
            "4.x",
            "4.19/..",
            "4.19..1",
            "v4.19.1",
            "4.19 ",
        ] {
            assert!(bad.parse::<Wanted>().is_err(), "{bad}");
        }
        assert_eq!("okd-scos-4.20".parse(), Ok(Wanted::OkdMinor(4, 20)));
    }
}
