//! Collects the findings of one config.

use std::fmt::Display;

use super::at::At;
use crate::ignition::finding::{Finding, Severity, is_refused};

/// Limit of findings; a file that is not a config would have as many as it has bytes.
pub(super) const MOST_FINDINGS: usize = 1000;

/// State and results while a config is checked.
pub(super) struct Judge {
    /// The minor version of the config: newer fields do not exist in it.
    pub spec: u32,
    /// The minor version whose rules apply.
    pub rules: u32,
    pub found: Vec<Finding>,
    /// Paths of values of a wrong type. They count as not set, without a further error if they are required.
    pub mistyped: Vec<String>,
}

impl Judge {
    pub fn error(&mut self, at: &At, text: impl Display) {
        self.add(Severity::Error, at, text);
    }

    pub fn warning(&mut self, at: &At, text: impl Display) {
        self.add(Severity::Warning, at, text);
    }

    /// An error that only newer versions report is a warning in older ones: Ignition accepts the config alone, but the
    /// newest rules apply after the merge.
    pub fn error_since(&mut self, minor: u32, at: &At, text: impl Display) {
        if self.rules >= minor {
            self.error(at, text);
        } else {
            let ours = self.spec;
            self.warning(
                at,
                format_args!("{text}: allowed in 3.{ours}, but Ignition rejects it after the merge"),
            );
        }
    }

    pub fn mistyped(&mut self, at: &At, text: impl Display) {
        self.error(at, text);
        if self.found.len() < MOST_FINDINGS {
            self.mistyped.push(at.to_string());
        }
    }

    fn add(&mut self, severity: Severity, at: &At, text: impl Display) {
        // The first error is always kept: it decides the result.
        if self.found.len() >= MOST_FINDINGS && (severity == Severity::Warning || is_refused(&self.found)) {
            return;
        }
        let path = at.to_string();
        // The wrong value itself, its parents and its children.
        let same = |mistyped: &String| {
            let (short, long) = if mistyped.len() < path.len() {
                (mistyped, &path)
            } else {
                (&path, mistyped)
            };
            long.strip_prefix(short)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if !self.mistyped.iter().any(same) {
            let text = text.to_string();
            self.found.push(Finding { severity, path, text });
        }
    }
}
