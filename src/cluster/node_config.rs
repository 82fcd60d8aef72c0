//! The user's own configuration of nodes.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::names::{NodeName, Role};

/// The location of the user's own Ignition configs, and the nodes they apply to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FragmentSource {
    /// A file of `ignition_extra`; without a role it applies to all nodes.
    File { role: Option<Role>, path: PathBuf },
    /// The directory `nodes` of a profile: `<role>/*.ign`, and `all/*.ign` for all nodes.
    Folder { profile: String, path: PathBuf },
}

/// A file of `network_config`: the connections of nodes, as nmstate YAML.
#[derive(Clone, PartialEq, Eq)]
pub struct NetworkConfig {
    pub nodes: NodeSelector,
    /// As the user wrote it, for messages.
    pub path: PathBuf,
    /// May contain passwords, for example for 802.1X.
    pub text: String,
}

impl fmt::Debug for NetworkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {:?}", self.path.display(), self.nodes)
    }
}

/// All nodes, or some. A later variant is more specific.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeSelector {
    All,
    Role(Role),
    Node(NodeName),
}

impl NodeSelector {
    pub fn selects(&self, node: &NodeName) -> bool {
        match self {
            Self::All => true,
            Self::Role(role) => node.role() == *role,
            Self::Node(name) => name == node,
        }
    }
}

impl fmt::Display for NodeSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all nodes"),
            Self::Role(role) => role.fmt(f),
            Self::Node(name) => name.fmt(f),
        }
    }
}
