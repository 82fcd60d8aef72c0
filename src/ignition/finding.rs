//! What is found in a config.

use serde::Serialize;

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
