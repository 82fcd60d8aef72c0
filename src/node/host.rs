//! Files and units on a node, independent of how they get there.

use serde::Serialize;

/// A file owned by root; replaces an existing one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostFile {
    /// Absolute.
    pub path: String,
    /// Permission bits, e.g. `0o644`.
    pub mode: u32,
    pub content: String,
}

impl HostFile {
    pub fn new(path: impl Into<String>, mode: u32, content: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            mode,
            content: content.into(),
        }
    }
}

/// A systemd unit, or changes of an existing one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostUnit {
    /// With its suffix, e.g. `ocpdeploy-vip.service`.
    pub name: String,
    /// `None` does not change it.
    pub enabled: Option<bool>,
    pub contents: Option<String>,
    /// File name, ending in `.conf`, and text.
    pub dropins: Vec<(String, String)>,
}

/// All files and units of one node, or of every node of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostParts {
    pub files: Vec<HostFile>,
    pub units: Vec<HostUnit>,
}

impl HostParts {
    /// Appends further files and units.
    pub fn extend(&mut self, more: Self) {
        self.files.extend(more.files);
        self.units.extend(more.units);
    }
}
