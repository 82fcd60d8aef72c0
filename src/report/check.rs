//! The results of `ocpdeploy check` as a table.

use std::collections::BTreeSet;

use serde::Serialize;

use super::table;
use crate::backend::Verdict;
use crate::passes::CheckResult;
use crate::printable::{count, printable_line};

/// The failed checks, and the number of passed ones.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    pub looked: Vec<CheckResult>,
    pub passed: usize,
    pub warnings: usize,
    pub failures: usize,
    /// What only a deployment on a real platform can confirm.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub unverified: &'static [&'static str],
}

impl Checked {
    pub fn of(looked: Vec<CheckResult>) -> Self {
        let count = |verdict| looked.iter().filter(|looked| looked.finding.verdict == verdict).count();
        Self {
            passed: count(Verdict::Ok),
            warnings: count(Verdict::Warn),
            failures: count(Verdict::Fail),
            unverified: &[],
            looked,
        }
    }
}

/// One row for each finding, with its hint below. A hint of several findings is below the first of them.
pub fn text(checked: &Checked) -> String {
    let word = |verdict| match verdict {
        Verdict::Ok => "ok",
        Verdict::Warn => "warn",
        Verdict::Fail => "FAIL",
    };
    // A row is one line, whatever the platform's text.
    let one_line = |text: &str| printable_line(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    let rows = checked.looked.iter().map(|CheckResult { check, finding }| {
        vec![
            word(finding.verdict).to_owned(),
            (*check).to_owned(),
            one_line(&finding.text),
        ]
    });
    let head = ["RESULT", "CHECK", "WHAT"].map(str::to_owned).to_vec();
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    let hints = std::iter::once(None).chain(checked.looked.iter().map(|looked| looked.finding.hint.as_deref()));
    let mut text = String::new();
    let mut shown = BTreeSet::new();
    for (row, hint) in table(&rows).lines().zip(hints) {
        text += &format!("{row}\n");
        if let Some(hint) = hint.filter(|hint| shown.insert(*hint)) {
            text += &format!("        hint: {}\n", one_line(hint));
        }
    }
    let warnings = count(checked.warnings, "warning");
    let failures = count(checked.failures, "failure");
    text += &format!("\n{} ok, {warnings}, {failures}\n", checked.passed);
    if !checked.unverified.is_empty() {
        text += "\nNot yet tested on a real platform. Confirm with your first cluster:\n";
        text.extend(checked.unverified.iter().map(|point| format!("  [ ] {point}\n")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Finding;

    #[test]
    fn a_hint_of_several_findings_is_shown_once() {
        let finding = |text: &str, hint: &str| Finding::fail(text).hint(hint);
        let found = [
            finding("one", "free it"),
            finding("two", "free it"),
            finding("three", "wait"),
        ];
        let looked = found.into_iter().map(CheckResult::at("platform")).collect();
        insta::assert_snapshot!(text(&Checked::of(looked)), @r"
        RESULT  CHECK     WHAT
        FAIL    platform  one
                hint: free it
        FAIL    platform  two
        FAIL    platform  three
                hint: wait

        0 ok, 0 warnings, 3 failures
        ");
    }
}
