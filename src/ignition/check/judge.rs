//! The judge of one config.

use std::fmt::Display;

use super::at::At;
use crate::ignition::finding::{Finding, Severity, is_refused};

/// More than anybody reads; what is no config at all would give as many as it has bytes.
pub(super) const MOST_FINDINGS: usize = 1000;

/// What is known while a config is judged, and what was found.
pub(super) struct Judge {
    /// The minor version the config is written in: fields that are newer are not there.
    pub spec: u32,
    /// The minor version whose rules hold.
    pub rules: u32,
    pub found: Vec<Finding>,
    /// Places of values of a wrong type. They count as absent, and nothing is said of that where it is missed.
    pub mistyped: Vec<String>,
}

impl Judge {
    pub fn error(&mut self, at: &At, text: impl Display) {
        self.add(Severity::Error, at, text);
    }

    pub fn warning(&mut self, at: &At, text: impl Display) {
        self.add(Severity::Warning, at, text);
    }

    /// An error of newer versions is a warning in older ones: the config alone passes, and what becomes of it is
    /// judged by the newest rules all the same.
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
        // The first error is told in any case: it decides.
        if self.found.len() >= MOST_FINDINGS && (severity == Severity::Warning || is_refused(&self.found)) {
            return;
        }
        let path = at.to_string();
        // The wrong value itself, what is around it and what would be within.
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
