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
