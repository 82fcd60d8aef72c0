//! The lock file beside an env file: it fixes the versions that the settings leave open.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Name of the file.
pub const LOCK_FILE: &str = "ocpdeploy.lock.yaml";

/// The versions that a deployment used, as printed by `config --lock`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct VersionLock {
    /// Version of this format; the report adds it.
    #[serde(skip_serializing)]
    pub v: u32,
    /// Version of this program.
    pub ocpdeploy: String,
    /// Version of openshift-install, oc and OpenShift.
    pub installer: String,
    /// The image of the release; `None` if the installer does not report it.
    pub release_image: Option<String>,
    /// The nodes' images by setting: the SHA-256 of a disk's content, otherwise the name on the platform.
    pub images: BTreeMap<String, String>,
}

impl VersionLock {
    pub const VERSION: u32 = 1;
}
