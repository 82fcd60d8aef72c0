//! Merges and errors compared with the reference Ignition: the same values, the same outcome, the same position.
//!
//! `ignition-corpus.json` was recorded from Ignition 2.20; `ignition-merges.json` has further merges, one for each kind
//! of list and value. Both say in `about` where their answers are from.

use crate::support::clean;
use ocpdeploy::ignition::Major;
use ocpdeploy::ignition::check::{self, Finding, Severity};
use ocpdeploy::ignition::document;
use ocpdeploy::ignition::origins::{Layer, merge_layers};
use serde::Deserialize;
use serde_json::Value;

const CORPUS: &str = include_str!("../fixtures/ignition-corpus.json");
const MERGES: &str = include_str!("../fixtures/ignition-merges.json");

#[derive(Deserialize)]
struct Corpus {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    #[serde(default)]
    inputs: Vec<Value>,
    /// Bytes that are no JSON object.
    #[serde(default)]
    raw_inputs: Vec<String>,
    #[serde(default)]
    outcome: String,
    #[serde(default)]
    reports: Vec<String>,
    merged: Option<Value>,
}

fn cases(corpus: &str) -> Vec<Case> {
    let corpus: Corpus = serde_json::from_str(corpus).unwrap();
    assert!(!corpus.cases.is_empty());
    corpus.cases
}

impl Case {
    fn inputs(&self) -> impl Iterator<Item = String> {
        let configs = self.inputs.iter().map(Value::to_string);
        configs.chain(self.raw_inputs.iter().cloned())
    }

    fn merge(&self) -> Value {
        let layers = self.inputs().map(|text| Layer {
            origin: String::new(),
            config: document::parse(text.as_bytes()).unwrap(),
        });
        merge_layers(&layers.collect::<Vec<_>>()).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// The positions that the reference reports for `error`s or `warning`s whose text starts with `text`.
    fn places(&self, severity: &str, text: &str) -> Vec<String> {
        let sandbox = |report: &String| {
            let (sandbox, said) = report.split_once(&format!(": {severity} at "))?.1.split_once(": ")?;
            said.starts_with(text).then(|| sandbox.to_owned())
        };
        self.reports.iter().filter_map(sandbox).collect()
    }

    /// The outcome in the corpus's terms, and the positions of the errors.
    fn judge(&self) -> (&'static str, Vec<String>) {
        for text in self.inputs() {
            let Ok(config) = document::parse(text.as_bytes()) else {
                return ("parse-error", vec!["$".to_owned()]);
            };
            let mut findings = check::check(&config);
            findings.extend(check::other_major(&config, Major::Three));
            if check::is_refused(&findings) {
                return ("parse-error", errors(&findings));
            }
        }
        match errors(&check::check_merged(&self.merge())) {
            none if none.is_empty() => ("ok", none),
            errors => ("merged-invalid", errors),
        }
    }
}

fn errors(findings: &[Finding]) -> Vec<String> {
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
    errors.map(|finding| finding.path.clone()).collect()
}

#[test]
fn every_merge_has_the_reference_s_values() {
    for case in cases(CORPUS).iter().chain(&cases(MERGES)) {
        let Some(expected) = &case.merged else { continue };
        let mut merged = case.merge();
        // The reference drops unknown fields with a warning; this program keeps them.
        for sandbox in case.places("warning", "Unused key") {
            let (object, field) = sandbox.rsplit_once('.').unwrap();
            let object = merged.pointer_mut(&object[1..].replace('.', "/")).unwrap();
            assert!(
                object.as_object_mut().unwrap().remove(field).is_some(),
                "{}: {sandbox}",
                case.name
            );
        }
        assert_eq!(clean::clean(merged), clean::clean(expected.clone()), "{}", case.name);
    }
}

#[test]
fn every_case_has_the_result_of_the_reference_and_errors_the_same_position() {
    let mut wrong = Vec::new();
    for case in &cases(CORPUS) {
        let (outcome, places) = case.judge();
        let expected = case.places("error", "");
        // If the reference reports only the whole file, any position is accepted.
        let same_place = expected.iter().all(|sandbox| sandbox == "$") || expected == places;
        if !case.outcome.starts_with(outcome) || !same_place {
            wrong.push(format!(
                "{}: {} {expected:?}, here {outcome} {places:?}",
                case.name, case.outcome
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
