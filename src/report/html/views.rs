//! The page's view of nodes and virtual IPs.

use serde::Serialize;

use crate::cluster::Role;

/// A virtual IP, or both if they are the same.
#[derive(Debug, Serialize)]
pub struct VipView {
    pub(super) names: String,
    pub(super) ip: String,
    pub(super) mac: String,
    pub(super) id: u8,
    pub(super) held: &'static str,
    pub(super) short: String,
    pub(super) ports: &'static str,
    pub(super) long: String,
}

/// A node in both passes.
#[derive(Debug, Serialize)]
pub struct NodeView {
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) mac: String,
    pub(super) planned: String,
    pub(super) seen: String,
    pub(super) held: &'static str,
    pub(super) look: Look,
    /// `look` as text.
    pub(super) verdict: &'static str,
    pub(super) state: String,
}

/// Whether pass two observed the address of pass one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Look {
    Same,
    Other,
    Unknown,
    /// The bootstrap, when it is no longer needed.
    Removed,
}
