//! Tells before the first boot what Ignition would refuse, and what it would take without doing what was meant.

use serde::Serialize;
use serde_json::Value;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Ignition takes the config, but it does not do what it looks like.
    Warning,
    /// Ignition refuses the config: the machine would not boot.
    Error,
}

/// One thing that was found in a config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// The place, in Ignition's own form: `$.storage.files.0.mode`.
    pub path: String,
    pub text: String,
}

/// Whether Ignition would refuse the config.
pub fn is_refused(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.severity == Severity::Error)
}

/// Judges one config by the rules of the version it is written in.
pub fn check(_config: &Value) -> Vec<Finding> {
    Vec::new()
}

/// Judges the result of a merge: as Ignition does, by the rules of the newest version it knows.
pub fn check_merged(_config: &Value) -> Vec<Finding> {
    Vec::new()
}

/// Tells what a merge of exactly these two will do that neither of them says. Paths are the child's.
pub fn traps(_parent: &Value, _child: &Value) -> Vec<Finding> {
    Vec::new()
}
