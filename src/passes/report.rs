//! Results of the checks: `deploy` stops at the first error, `check` shows all findings.

use anyhow::Result;
use serde::Serialize;

use super::error::refuse;
use crate::PROGRESS;
use crate::backend::{Finding, NetworkFacts, Verdict};
use crate::node::config::Fragment;
use crate::state::parameters::Parameters;

/// One finding, with the name of its check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckResult {
    pub check: &'static str,
    #[serde(flatten)]
    pub finding: Finding,
}

impl CheckResult {
    /// Assigns findings to a check.
    pub fn at(check: &'static str) -> impl Fn(Finding) -> Self {
        move |finding| Self { check, finding }
    }
}

/// The findings, in the order of the checks.
///
/// A deployment stops at the first error; for `check` an error becomes a finding.
pub(super) struct CheckReport<'t> {
    pub looked: Vec<CheckResult>,
    to_finding: Option<&'t ToFinding<'t>>,
}

/// Converts an error into a finding.
pub(super) type ToFinding<'t> = dyn Fn(&anyhow::Error) -> Finding + Sync + 't;

impl<'t> CheckReport<'t> {
    pub(super) fn for_people(to_finding: &'t ToFinding<'t>) -> Self {
        Self {
            looked: Vec::new(),
            to_finding: Some(to_finding),
        }
    }

    pub(super) fn for_deployment() -> Self {
        Self {
            looked: Vec::new(),
            to_finding: None,
        }
    }

    pub(super) fn add(&mut self, check: &'static str, findings: impl IntoIterator<Item = Finding>) {
        self.looked.extend(findings.into_iter().map(CheckResult::at(check)));
    }

    /// The value, or `None` if the error became a finding.
    pub(super) fn take<T>(&mut self, check: &'static str, outcome: Result<T>) -> Result<Option<T>> {
        match (outcome, self.to_finding) {
            (Ok(value), _) => Ok(Some(value)),
            (Err(error), Some(to_finding)) => {
                let finding = to_finding(&error);
                self.add(check, [finding]);
                Ok(None)
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Prints warnings; failures stop a deployment, all of them together.
    pub(super) fn judged(self) -> Result<()> {
        let mut findings: Vec<Finding> = self.looked.into_iter().map(|looked| looked.finding).collect();
        for finding in &findings {
            if finding.verdict == Verdict::Warn {
                tracing::warn!(target: PROGRESS, step = "checks", "{}", finding.text);
            }
        }
        findings.retain(|finding| finding.verdict == Verdict::Fail);
        Ok(refuse(findings)?)
    }
}

/// Results of the checks of settings, files and platform, for later checks.
#[derive(Default)]
pub(super) struct CheckedFacts {
    /// `None` if the platform is unusable and does not know the network.
    pub facts: Option<NetworkFacts>,
    /// The user's configs, in order.
    pub fragments: Vec<Fragment>,
    /// The addresses of pass one.
    pub table: Option<Parameters>,
}
