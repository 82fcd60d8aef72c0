//! The findings of a preflight.

use serde::Serialize;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub verdict: Verdict,
    /// What was checked, and its result: lower case, no full stop.
    pub text: String,
    pub hint: Option<String>,
}

impl Finding {
    /// Without a hint.
    pub fn new(verdict: Verdict, text: impl Into<String>) -> Self {
        Self {
            verdict,
            text: text.into(),
            hint: None,
        }
    }

    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    pub fn ok(text: impl Into<String>) -> Self {
        Self::new(Verdict::Ok, text)
    }

    pub fn warn(text: impl Into<String>) -> Self {
        Self::new(Verdict::Warn, text)
    }

    pub fn fail(text: impl Into<String>) -> Self {
        Self::new(Verdict::Fail, text)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// Findings in their order.
#[derive(Default)]
pub(super) struct Findings(pub Vec<Finding>);

impl Findings {
    pub fn add(&mut self, verdict: Verdict, text: impl Into<String>, hint: Option<&str>) {
        self.0.push(Finding {
            verdict,
            text: text.into(),
            hint: hint.filter(|hint| !hint.is_empty()).map(str::to_owned),
        });
    }

    pub fn ok(&mut self, text: impl Into<String>) {
        self.add(Verdict::Ok, text, None);
    }

    pub fn fail(&mut self, text: impl Into<String>, hint: &str) {
        self.add(Verdict::Fail, text, Some(hint));
    }
}
