//! Progress for programs: `--progress json`, and a page that is drawn from it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::commands::schema;
use crate::support::sandbox::Sandbox;
use serde_json::{Value, json};

/// A progress page, drawn as a user's program would do it from docs/reference/formats.md.
#[derive(Default)]
struct Page {
    /// The open steps, in the order of their beginnings.
    steps: Vec<Step>,
    ended: Vec<String>,
    error: Option<String>,
}

#[derive(Default)]
struct Step {
    name: String,
    total: Option<u64>,
    done: u64,
    /// Each node with its state, and whether it is complete.
    nodes: BTreeMap<String, (String, bool)>,
}

impl Page {
    fn read(&mut self, line: &Value) {
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let at = self.steps.iter().position(|step| step.name == text("step"));
        match line["event"].as_str().unwrap() {
            "step" | "node" | "item" => {
                let at = at.unwrap_or_else(|| {
                    let name = text("step");
                    self.steps.push(Step {
                        name,
                        ..Step::default()
                    });
                    self.steps.len() - 1
                });
                let step = &mut self.steps[at];
                step.total = line["total"].as_u64();
                step.done = line["done"].as_u64().unwrap_or(0);
                if line["event"] == "node" {
                    let (state, complete) = step.nodes.entry(text("node")).or_default();
                    *state = text("state");
                    *complete = line["complete"].as_bool().unwrap_or(*complete);
                }
            }
            "end" => self.ended.push(self.steps.remove(at.expect("an open step")).name),
            "error" => self.error = Some(text("error")),
            _ => {}
        }
    }

    /// `pass one 3/6: master-1 booting, worker-0 creating`
    fn draw(&self) -> Vec<String> {
        let draw = |step: &Step| {
            let total = step
                .total
                .map(|total| format!(" {}/{total}", step.done))
                .unwrap_or_default();
            let waits = step.nodes.iter().filter(|(_, (_, complete))| !complete);
            let waits: Vec<_> = waits.map(|(node, (state, _))| format!("{node} {state}")).collect();
            format!("{}{total}: {}", step.name, waits.join(", "))
        };
        self.steps.iter().map(draw).collect()
    }
}

fn lab(world: Value) -> Sandbox {
    let sandbox = Sandbox::new(world);
    sandbox.env("lab", "image=coreos\nharvest_image=helper\nmasters=3\nworkers=2");
    sandbox
}

fn lines(text: &str) -> Vec<Value> {
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")));
    lines.collect()
}

const DEPLOY: [&str; 5] = ["deploy", "lab.sh", "--rehearse", "--progress", "json"];

#[test]
fn a_progress_page_is_right_at_every_moment() {
    let sandbox = lab(json!({}));
    let (mut page, mut drawn, mut ends) = (Page::default(), BTreeSet::new(), BTreeMap::new());
    for line in lines(&sandbox.run(&DEPLOY).succeeded().stderr) {
        page.read(&line);
        drawn.extend(page.draw());
        if line["event"] == "end" {
            let numbers = (line["done"].as_u64(), line["total"].as_u64());
            ends.insert(line["step"].as_str().unwrap().to_owned(), numbers);
        }
        for step in &page.steps {
            let complete = step.nodes.values().filter(|(_, complete)| *complete).count() as u64;
            if let Some(total) = step.total {
                assert!(step.done <= total && step.done == complete, "{line}: {:?}", page.draw());
            }
        }
    }
    assert_eq!(page.draw(), [""; 0], "every step ends: {:?}", page.ended);
    assert_eq!(page.error, None);
    let six = (Some(6), Some(6));
    assert_eq!(
        (ends["pass one"], ends["pass two"]),
        (six, six),
        "the VIPs are no machines"
    );
    assert_eq!(ends["addresses"], (Some(8), Some(8)), "the VIPs are addresses");
    assert_eq!(ends["checks"], (None, None));
    let booting = |page: &&String| page.starts_with("pass one ") && page.contains("master-1 booting");
    assert!(drawn.iter().any(|page| booting(&page)), "{drawn:#?}");
}

#[test]
fn a_failed_deployment_ends_with_its_error_and_open_numbers() {
    let sandbox = lab(json!({"script": {"guests": {"lab-harvest-worker-0": {"does": "paused"}}}}));
    let outcome = sandbox.run(&DEPLOY);
    let (mut page, lines) = (Page::default(), lines(&outcome.stderr));
    lines.iter().for_each(|line| page.read(line));
    assert_eq!(page.draw(), [""; 0]);
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["event"], &last["exit_code"]),
        (&json!("error"), &json!(outcome.code))
    );
    let end = lines.iter().rfind(|line| line["event"] == "end").unwrap();
    assert_eq!(end["step"], "pass one");
    assert!(end["done"].as_u64() < end["total"].as_u64(), "{end}");
    let last = lines.iter().rfind(|line| line["node"] == "worker-0").unwrap();
    assert_eq!(last["state"], "problem", "{last}");
}

#[test]
fn every_line_is_as_documented() {
    let sandbox = lab(json!({}));
    let mut all = Vec::new();
    for (words, code) in [
        (&DEPLOY[..], 0),
        (&["scale", "lab", "--workers", "1", "--yes", "--progress", "json"], 0),
        (&["stop", "lab", "--progress", "json"], 0),
        (&["start", "lab", "--progress", "json"], 0),
        (&["destroy", "lab", "--yes", "--progress", "json"], 0),
        // With an estimate.
        (&DEPLOY[..], 0),
        (&["status", "nosuch", "--progress", "json"], 2),
        (&["deploy", "--bogus", "--progress", "json"], 2),
        (&["deploy", "--bogus", "--progress=json"], 2),
        (&["deploy", "nosuch.sh", "--progress", "json"], 3),
    ] {
        let outcome = sandbox.run(words);
        assert_eq!(outcome.code, Some(code), "{words:?}: {}", outcome.stderr);
        let lines = lines(&outcome.stderr);
        if code > 0 {
            let error = lines.last().unwrap();
            assert_eq!(
                (&error["event"], &error["exit_code"]),
                (&json!("error"), &json!(code)),
                "{words:?}"
            );
        }
        all.extend(lines);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference");
    let page = std::fs::read_to_string(folder.join("formats.md")).unwrap();
    let keys: BTreeSet<&String> = all.iter().flat_map(|line| line.as_object().unwrap().keys()).collect();
    let states: BTreeSet<&str> = all.iter().filter_map(|line| line["state"].as_str()).collect();
    let events: BTreeSet<&str> = all.iter().map(|line| line["event"].as_str().unwrap()).collect();
    for word in keys.into_iter().map(String::as_str).chain(states).chain(events) {
        assert!(page.contains(&format!("`{word}`")), "formats.md lacks `{word}`");
    }
    let mut schema = schema(&all.iter().collect::<Vec<_>>());
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("ocpdeploy --progress json, one line");
    let (text, path) = (format!("{schema:#}\n"), folder.join("schemas/progress.json"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, kept, "UPDATE_GOLDEN=1 writes {}", path.display());
}
