//! The spec version of a config: 2 or 3.

use std::fmt;

/// A version of Ignition's spec, with major version 2 or 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: Major,
    pub minor: u32,
    pub patch: u32,
}

/// The two incompatible major versions; no config, merge or CoreOS mixes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Major {
    /// OpenShift 4.1 to 4.5.
    Two,
    /// OpenShift 4.6 and later.
    Three,
}

impl Major {
    /// The list in `ignition.config` of the configs that are fetched and merged.
    pub fn merge_list(self) -> &'static str {
        match self {
            Major::Two => "append",
            Major::Three => "merge",
        }
    }
}

/// The first release with each newest spec that its machine config operator reads in MachineConfigs and serves; the
/// release's CoreOS reads it, too.
///
/// Source: openshift/machine-config-operator, `pkg/server/api.go` and `pkg/controller/common/helpers.go` of release-4.5
/// to release-5.2 (7ff337a4ff, 2026-08-20).
const OF_RELEASES: [((u32, u32), Version); 5] = [
    ((4, 1), Version::new(Major::Two, 2)),
    ((4, 6), Version::new(Major::Three, 1)),
    ((4, 7), Version::new(Major::Three, 2)),
    ((4, 13), Version::new(Major::Three, 4)),
    ((4, 19), Version::new(Major::Three, 5)),
];

impl Version {
    const fn new(major: Major, minor: u32) -> Self {
        Self { major, minor, patch: 0 }
    }

    /// The newest spec that a release of OpenShift reads.
    pub fn newest_of_release(release: (u32, u32)) -> Self {
        let [(_, first), ..] = OF_RELEASES;
        let known = OF_RELEASES.iter().rfind(|(since, _)| *since <= release);
        known.map_or(first, |(_, version)| *version)
    }
}

impl fmt::Display for Major {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Major::Two => "2",
            Major::Three => "3",
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

pub(super) fn parse_version(text: &str) -> Option<Version> {
    let mut parts = text.split('.').map(|part| {
        let plain = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| part.parse::<u32>().ok()).flatten()
    });
    let major = match parts.next()?? {
        2 => Major::Two,
        3 => Major::Three,
        _ => return None,
    };
    let version = Version {
        major,
        minor: parts.next()??,
        patch: parts.next()??,
    };
    parts.next().is_none().then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_spec_of_a_release_is_that_of_its_machine_config_operator() {
        for (release, newest) in [
            ((4, 5), "2.2.0"),
            ((4, 6), "3.1.0"),
            ((4, 12), "3.2.0"),
            ((4, 13), "3.4.0"),
            ((4, 18), "3.4.0"),
            ((4, 19), "3.5.0"),
            ((5, 2), "3.5.0"),
        ] {
            assert_eq!(Version::newest_of_release(release).to_string(), newest, "{release:?}");
        }
    }
}
