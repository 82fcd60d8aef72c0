//! The nouns of what we put on a node: files and units, whatever way they get there.

use serde::Serialize;

/// A file, owned by root, in place of any that is there.
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

/// A systemd unit, or what we change in one that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostUnit {
    /// With its suffix, e.g. `ocpdeploy-vip.service`.
    pub name: String,
    /// `None` leaves it as it is.
    pub enabled: Option<bool>,
    pub contents: Option<String>,
    /// File name, ending in `.conf`, and text.
    pub dropins: Vec<(String, String)>,
}

/// All that goes onto one node, or onto every node of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostParts {
    pub files: Vec<HostFile>,
    pub units: Vec<HostUnit>,
}

impl HostParts {
    /// Puts more behind what is there.
    pub fn extend(&mut self, more: Self) {
        self.files.extend(more.files);
        self.units.extend(more.units);
    }
}
