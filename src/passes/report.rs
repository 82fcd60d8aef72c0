//! What was looked at before anything is made: for a deployment, which an error ends, and for people.

use anyhow::Result;
use serde::Serialize;

use super::error::PassError;
use crate::PROGRESS;
use crate::backend::{Finding, NetworkFacts, Verdict};
use crate::node::config::Fragment;
use crate::state::parameters::Parameters;

/// One thing that was looked at, and under which name a person finds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckResult {
    pub check: &'static str,
    #[serde(flatten)]
    pub finding: Finding,
}

impl CheckResult {
    /// Puts findings under one name.
    pub fn at(check: &'static str) -> impl Fn(Finding) -> Self {
        move |finding| Self { check, finding }
    }
}

/// What is found, in the order in which it was looked at.
///
/// The same looks are for a deployment, which an error ends, and for people, to whom an error is one of the findings.
pub(super) struct Report<'t> {
    pub looked: Vec<CheckResult>,
    to_finding: Option<&'t ToFinding<'t>>,
}

/// Turns an error into a finding.
pub(super) type ToFinding<'t> = dyn Fn(&anyhow::Error) -> Finding + Sync + 't;

impl<'t> Report<'t> {
    pub(super) fn for_people(to_finding: &'t ToFinding<'t>) -> Self {
        let (looked, to_finding) = (Vec::new(), Some(to_finding));
        Self { looked, to_finding }
    }

    pub(super) fn for_deployment() -> Self {
        let (looked, to_finding) = (Vec::new(), None);
        Self { looked, to_finding }
    }

    pub(super) fn add(&mut self, check: &'static str, findings: impl IntoIterator<Item = Finding>) {
        self.looked.extend(findings.into_iter().map(CheckResult::at(check)));
    }

    /// The value, or `None` where an error became a finding.
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

    /// Warnings go to the screen; failures end a deployment, all of them at once.
    pub(super) fn judged(self) -> Result<()> {
        let mut findings: Vec<Finding> = self.looked.into_iter().map(|looked| looked.finding).collect();
        for finding in &findings {
            if finding.verdict == Verdict::Warn {
                tracing::warn!(target: PROGRESS, step = "checks", "{}", finding.text);
            }
        }
        findings.retain(|finding| finding.verdict == Verdict::Fail);
        match findings.is_empty() {
            true => Ok(()),
            false => Err(PassError::Preflight { findings }.into()),
        }
    }
}

/// What the looks at settings, files and platform brought, for those that come later.
#[derive(Default)]
pub(super) struct Seen {
    /// `None` where the platform will not do and does not know the network.
    pub facts: Option<NetworkFacts>,
    /// Of the user's, one after the other.
    pub fragments: Vec<Fragment>,
    /// The addresses that pass one found.
    pub table: Option<Parameters>,
}
