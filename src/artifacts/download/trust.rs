//! How the programs of a mirror are verified, according to the settings.

use super::error::DownloadError;
use crate::cluster::{Downloads, Wanted};
use crate::digest::sha256;
use crate::limited_file;

/// How the checksum list of a release is verified, and so the programs in it.
///
/// The cache stores programs separately for each: after a change of these settings they are downloaded again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The list has this SHA-256 (`installer_mirror_sha256`).
    Pin(String),
    /// A key of the file with this SHA-256 has signed the list (`installer_mirror_key`).
    KeyFile(String),
    /// A key of the vendor has signed the list.
    Vendor,
    /// The certificate of OKD's server, which has no signed lists.
    Https,
    /// Not verified (`installer_mirror_insecure`); with the mirror, empty for the public one.
    Insecure(String),
}

impl Trust {
    /// What the settings require.
    ///
    /// # Errors
    /// The key file cannot be read.
    pub fn of(downloads: &Downloads) -> Result<Self, DownloadError> {
        let is_okd = downloads.version.as_ref().is_some_and(Wanted::is_okd);
        Ok(
            match (&downloads.installer_mirror_sha256, &downloads.installer_mirror_key) {
                (Some(sum), _) => Self::Pin(sum.clone()),
                (None, _) if downloads.installer_mirror_insecure => {
                    Self::Insecure(downloads.installer_mirror.clone().unwrap_or_default())
                }
                (None, Some(path)) => {
                    let unreadable = |source| DownloadError::KeyFile {
                        path: path.clone(),
                        source,
                    };
                    Self::KeyFile(sha256(limited_file::read(path).map_err(unreadable)?))
                }
                (None, None) if is_okd && downloads.installer_mirror.is_none() => Self::Https,
                (None, None) => Self::Vendor,
            },
        )
    }

    /// Whether the list is signed or pinned. This also verifies the release image that its openshift-install names.
    pub fn is_verified(&self) -> bool {
        matches!(self, Self::Pin(_) | Self::KeyFile(_) | Self::Vendor)
    }

    /// The name of its directory of programs.
    pub fn folder_name(&self) -> String {
        match self {
            Self::Pin(sum) => format!("pin-{sum}"),
            Self::KeyFile(sum) => format!("key-{sum}"),
            Self::Vendor => "vendor".to_owned(),
            Self::Https => "https".to_owned(),
            Self::Insecure(mirror) => format!("insecure-{}", sha256(mirror)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cluster::ClusterConfig;

    fn trust(version: &str, change: impl FnOnce(&mut Downloads)) -> Result<Trust, DownloadError> {
        let mut downloads = ClusterConfig::example().downloads;
        downloads.version = Some(version.parse().unwrap());
        change(&mut downloads);
        Trust::of(&downloads)
    }

    #[test]
    fn each_setting_that_changes_the_trust_changes_the_folder_of_programs() {
        let folder = tempfile::tempdir().unwrap();
        let key = |content: &str| {
            let path = folder.path().join(content);
            std::fs::write(&path, content).unwrap();
            Some(path)
        };
        let url = |name: &str| Some(format!("https://{name}.example.com"));
        let sum = |digit: &str| digit.repeat(64);
        let insecure = |settings: &mut Downloads, mirror| {
            settings.installer_mirror_insecure = true;
            settings.installer_mirror = mirror;
        };
        type Case<'c> = (&'c str, &'c dyn Fn(&mut Downloads), Trust);
        let cases: [Case; 9] = [
            ("4.19.3", &|_| (), Trust::Vendor),
            (
                "4.19.3",
                &|it| it.installer_mirror_key = key("one"),
                Trust::KeyFile(sha256("one")),
            ),
            (
                "4.19.3",
                &|it| it.installer_mirror_key = key("two"),
                Trust::KeyFile(sha256("two")),
            ),
            (
                "4.19.3",
                &|it| it.installer_mirror_sha256 = Some(sum("a")),
                Trust::Pin(sum("a")),
            ),
            (
                "4.19.3",
                &|it| it.installer_mirror_sha256 = Some(sum("b")),
                Trust::Pin(sum("b")),
            ),
            ("4.19.3", &|it| insecure(it, None), Trust::Insecure(String::new())),
            (
                "4.19.3",
                &|it| insecure(it, url("a")),
                Trust::Insecure(url("a").unwrap()),
            ),
            (
                "4.19.3",
                &|it| insecure(it, url("b")),
                Trust::Insecure(url("b").unwrap()),
            ),
            ("okd", &|_| (), Trust::Https),
        ];
        let mut names = BTreeSet::new();
        for (version, change, expected) in &cases {
            let found = trust(version, change).unwrap();
            assert_eq!(&found, expected);
            names.insert(found.folder_name());
        }
        assert_eq!(names.len(), cases.len(), "{names:?}");
    }

    #[test]
    fn the_pin_decides_alone_and_only_okds_own_server_needs_no_signature() {
        let both = trust("4.19.3", |it| {
            it.installer_mirror_insecure = true;
            it.installer_mirror_sha256 = Some("a".repeat(64));
        });
        assert_eq!(both.unwrap(), Trust::Pin("a".repeat(64)));
        let mirror = trust("okd-4.20", |it| {
            it.installer_mirror = Some("https://a.example.com".to_owned())
        });
        assert_eq!(mirror.unwrap(), Trust::Vendor);
        let missing = trust("4.19.3", |it| it.installer_mirror_key = Some("/missing/key.asc".into()));
        assert!(matches!(missing, Err(DownloadError::KeyFile { .. })), "{missing:?}");
    }

    #[test]
    fn only_a_signed_or_pinned_list_verifies_the_release_that_it_leads_to() {
        for (trust, is_verified) in [
            (Trust::Pin(String::new()), true),
            (Trust::KeyFile(String::new()), true),
            (Trust::Vendor, true),
            (Trust::Https, false),
            (Trust::Insecure(String::new()), false),
        ] {
            assert_eq!(trust.is_verified(), is_verified, "{trust:?}");
        }
    }
}
