//! Findings in a config.

use serde::Serialize;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Ignition accepts the config, but with an unexpected result.
    Warning,
    /// Ignition rejects the config, or fails on it at the first boot: the machine would not boot.
    Error,
}

/// One finding in a config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// The path in Ignition's own form: `$.storage.files.0.mode`.
    pub path: String,
    pub text: String,
}

/// Whether Ignition would reject the config.
pub fn is_refused(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.severity == Severity::Error)
}
