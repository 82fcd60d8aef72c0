//! KubeVirt's release, from the version that it reports; pure.

/// A release of KubeVirt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// Major and minor number.
    Known(u32, u32),
    /// Built without a version: `v0.0.0-master+…` (kubevirt/kubevirt: `staging/src/kubevirt.io/client-go/version/base.go`).
    SelfBuilt,
    Unknown,
}

/// The first supported release is 1.0.
pub(super) fn read(version: &str) -> Release {
    let mut numbers = version.trim_start_matches('v').splitn(3, '.');
    let mut number = || numbers.next()?.parse().ok();
    match (number(), number()) {
        (Some(0), Some(0)) => Release::SelfBuilt,
        (Some(major), Some(minor)) => Release::Known(major, minor),
        _ => Release::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_version_with_numbers_has_a_release() {
        for (version, release) in [
            ("v1.6.0", Release::Known(1, 6)),
            ("v1.10.0-rc.1", Release::Known(1, 10)),
            ("v1.2", Release::Known(1, 2)),
            ("v0.59.2", Release::Known(0, 59)),
            ("v0.0.0-master+$Format:%h$", Release::SelfBuilt),
            ("of unknown version", Release::Unknown),
            ("", Release::Unknown),
        ] {
            assert_eq!(read(version), release, "{version}");
        }
    }
}
