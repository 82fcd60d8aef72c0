//! The open steps of a command, and what each waits for; pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;
use tracing::Level;

use super::note::{Note, expected, line, seconds};

/// The steps that have begun and not ended, in the order of their beginnings.
#[derive(Default)]
pub struct Steps {
    open: Vec<Step>,
}

struct Step {
    name: String,
    begun: Instant,
    total: Option<u64>,
    estimate: String,
    message: String,
    rows: BTreeMap<RowName, Row>,
}

/// `worker-2` is before `worker-10`.
type RowName = (String, usize);

struct Row {
    name: String,
    state: String,
    text: String,
    /// Since when it is in this state.
    since: Instant,
    is_node: bool,
    is_complete: bool,
}

/// A step that has ended.
#[derive(Serialize)]
pub struct Ended {
    pub step: String,
    /// In seconds.
    pub took: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
}

impl Ended {
    /// One line of JSON.
    pub fn json(&self, elapsed: Duration) -> String {
        line("end", Level::INFO, elapsed, self)
    }

    /// The line that stays on a terminal.
    pub fn text(&self) -> String {
        let took = seconds(Duration::from_secs_f64(self.took));
        let line = format!("{:<40} {took:>7}", self.step);
        match (self.done, self.total) {
            (Some(done), Some(total)) if done < total => format!("{line}  {done} of {total} complete"),
            _ => line,
        }
    }
}

impl Step {
    fn new(name: &str, now: Instant) -> Self {
        Self {
            name: name.to_owned(),
            begun: now,
            total: None,
            estimate: String::new(),
            message: String::new(),
            rows: BTreeMap::new(),
        }
    }

    /// The complete nodes; `None` without a total.
    fn done(&self) -> Option<u64> {
        let complete = self.rows.values().filter(|row| row.is_node && row.is_complete).count();
        Some((complete as u64).min(self.total?))
    }

    fn is_waiting(&self) -> bool {
        self.done() < self.total
    }

    fn end(self, now: Instant) -> Ended {
        Ended {
            took: (now.duration_since(self.begun).as_secs_f64() * 10.0).round() / 10.0,
            done: self.done(),
            total: self.total,
            step: self.name,
        }
    }
}

impl Steps {
    /// Applies an event, and completes it with its step and the step's numbers. Returns the steps that it ends: a step
    /// ends when another one begins, but not while it waits for nodes.
    pub fn apply(&mut self, note: &mut Note, now: Instant) -> Vec<Ended> {
        let mut ended = Vec::new();
        if note.step.is_empty() {
            // A node that is not ready yet, or a download: part of what is waited for.
            let Some(step) = self.open.last().filter(|_| note.subject().is_some()) else {
                return ended;
            };
            note.step.clone_from(&step.name);
        }
        let at = match self.open.iter().position(|step| step.name == note.step) {
            Some(at) => at,
            None => {
                ended = self.end_if(now, |step| !step.is_waiting());
                self.open.push(Step::new(&note.step, now));
                self.open.len() - 1
            }
        };
        let Some(step) = self.open.get_mut(at) else {
            return ended;
        };
        step.total = note.total.or(step.total);
        if note.estimate.is_some() {
            step.estimate = expected(note.estimate, &note.estimate_source);
        }
        match note.subject() {
            Some(name) => {
                let row = step.rows.entry(row_name(name)).or_insert_with(|| Row {
                    name: name.to_owned(),
                    state: note.state.clone(),
                    text: String::new(),
                    since: now,
                    is_node: !note.node.is_empty(),
                    is_complete: false,
                });
                if row.state != note.state {
                    row.state.clone_from(&note.state);
                    row.since = now;
                }
                row.text = note.text().to_owned();
                row.is_complete = note.complete.unwrap_or(row.is_complete);
            }
            None if !note.message.is_empty() => step.message.clone_from(&note.message),
            None => {}
        }
        (note.done, note.total) = (step.done(), step.total);
        // The newest step remains open: it is what the command does.
        let newest = self.open.last().map(|step| step.name.clone());
        ended.extend(self.end_if(now, |step| Some(&step.name) != newest.as_ref() && !step.is_waiting()));
        ended
    }

    /// Ends all steps.
    pub fn end_all(&mut self, now: Instant) -> Vec<Ended> {
        self.end_if(now, |_| true)
    }

    fn end_if(&mut self, now: Instant, is_over: impl Fn(&Step) -> bool) -> Vec<Ended> {
        let over = self.open.extract_if(.., |step| is_over(step));
        over.map(|step| step.end(now)).collect()
    }

    /// The lines for a terminal of this size: each step, and below it what it waits for.
    pub fn lines(&self, spinner: &str, now: Instant, (columns, rows): (usize, usize)) -> Vec<String> {
        // The last row is for the cursor.
        let mut free = rows.saturating_sub(1 + self.open.len());
        let mut blocks: Vec<Vec<String>> = Vec::new();
        // The newest step is shown if there is not enough room for all.
        for step in self.open.iter().rev() {
            let below = step.rows(now, free);
            free -= below.len().min(free);
            blocks.push(
                std::iter::once(format!("{spinner} {}", step.head(now)))
                    .chain(below)
                    .collect(),
            );
        }
        let lines = blocks.into_iter().rev().flatten();
        // A wrapped line would be two.
        lines.map(|line| line.chars().take(columns).collect()).collect()
    }
}

impl Step {
    fn head(&self, now: Instant) -> String {
        const WIDTH: u64 = 24;
        let elapsed = whole_seconds(now.duration_since(self.begun));
        let numbers = match (self.done(), self.total) {
            (Some(done), Some(total)) => {
                let filled = (done * WIDTH).checked_div(total).unwrap_or(WIDTH) as usize;
                let bar = "█".repeat(filled) + &"░".repeat(WIDTH as usize - filled);
                format!(" {bar} {done}/{total}")
            }
            _ => String::new(),
        };
        let line = format!("{}{numbers} {elapsed}{} {}", self.name, self.estimate, self.message);
        line.trim_end().to_owned()
    }

    /// The rows in this number of lines. If there are more, those that wait are first.
    fn rows(&self, now: Instant, free: usize) -> Vec<String> {
        let mut rows: Vec<&Row> = self
            .rows
            .values()
            .filter(|row| row.is_node || !row.is_complete)
            .collect();
        let hidden = match rows.len() > free {
            true => rows.len() - free.saturating_sub(1),
            false => 0,
        };
        let mut more = Vec::new();
        if hidden > 0 {
            rows.sort_by_key(|row| row.is_complete);
            let waiting = rows
                .iter()
                .skip(rows.len() - hidden)
                .filter(|row| !row.is_complete)
                .count();
            rows.truncate(rows.len() - hidden);
            let these = match waiting {
                0 => "complete".to_owned(),
                waiting => format!("{waiting} of them not complete"),
            };
            more.extend((free > 0).then(|| format!("  … {hidden} more, {these}")));
        }
        let wide = rows
            .iter()
            .map(|row| row.name.chars().count())
            .max()
            .unwrap_or(0)
            .min(40);
        let line = |row: &&Row| {
            // A complete row does not wait.
            let waits = (!row.is_complete).then(|| whole_seconds(now.duration_since(row.since)));
            format!("  {:wide$}  {:>6}  {}", row.name, waits.unwrap_or_default(), row.text)
        };
        rows.iter().map(line).chain(more).collect()
    }
}

/// Shown several times in a second, so without tenths.
fn whole_seconds(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..60 => format!("{s}s"),
        _ => seconds(time),
    }
}

fn row_name(name: &str) -> RowName {
    let text = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name.get(text.len()..).and_then(|number| number.parse().ok());
    (text.to_owned(), number.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(step: &str, node: &str, state: &str, complete: Option<bool>) -> Note {
        Note {
            step: step.to_owned(),
            node: node.to_owned(),
            state: state.to_owned(),
            complete,
            ..Note::default()
        }
    }

    fn total(step: &str, total: u64) -> Note {
        Note {
            total: Some(total),
            ..note(step, "", "", None)
        }
    }

    /// The steps after these events, one each second, and the steps that ended.
    fn after(events: Vec<Note>) -> (Steps, Vec<String>, Instant) {
        let (mut steps, mut now, mut ended) = (Steps::default(), Instant::now(), Vec::new());
        for mut note in events {
            ended.extend(steps.apply(&mut note, now).iter().map(Ended::text));
            if let (Some(done), Some(total)) = (note.done, note.total) {
                assert!(done <= total, "{note:?}");
            }
            now += Duration::from_secs(1);
        }
        (steps, ended, now)
    }

    fn pass_one(nodes: usize) -> Vec<Note> {
        let mut events = vec![total("pass one", nodes as u64)];
        events.extend((0..nodes).map(|at| note("pass one", &format!("worker-{at}"), "creating", None)));
        events
    }

    #[test]
    fn a_node_counts_once_and_only_when_it_is_complete() {
        let mut events = pass_one(2);
        for (node, state, complete) in [
            ("worker-0", "address", Some(true)),
            ("worker-0", "deleted", None),
            ("worker-0", "address", Some(true)),
            ("api", "reserved", None),
        ] {
            events.push(note("pass one", node, state, complete));
        }
        let (steps, ended, now) = after(events);
        assert_eq!(ended, [""; 0]);
        let lines = steps.lines("*", now, (80, 24));
        assert_eq!(lines[0], "* pass one ████████████░░░░░░░░░░░░ 1/2 7s");
        // An address that is lost is waited for again.
        let mut events = pass_one(1);
        events.push(note("pass one", "worker-0", "address", Some(true)));
        events.push(note("pass one", "worker-0", "booting", Some(false)));
        let (steps, _, now) = after(events);
        assert!(steps.lines("*", now, (80, 24))[0].contains(" 0/1 "));
    }

    #[test]
    fn a_row_has_its_state_and_the_time_in_it() {
        let mut events = pass_one(2);
        events.push(note("pass one", "worker-0", "address", Some(true)));
        events.push(Note {
            message: "booting, no address yet".to_owned(),
            ..note("", "worker-1", "booting", Some(false))
        });
        let (steps, _, now) = after(events);
        insta::assert_snapshot!(steps.lines("*", now + Duration::from_secs(61), (80, 24)).join("\n"), @r"
        * pass one ████████████░░░░░░░░░░░░ 1/2 1m06s
          worker-0          address
          worker-1   1m02s  booting, no address yet
        ");
    }

    #[test]
    fn rows_that_wait_are_first_if_the_terminal_is_too_small() {
        let mut events = pass_one(12);
        events.extend((0..9).map(|at| note("pass one", &format!("worker-{at}"), "address", Some(true))));
        let (steps, _, now) = after(events);
        let lines = |rows| steps.lines("*", now, (60, rows));
        assert_eq!(lines(14).len(), 13);
        insta::assert_snapshot!(lines(7).join("\n"), @r"
        * pass one ██████████████████░░░░░░ 9/12 22s
          worker-9      12s  creating
          worker-10     11s  creating
          worker-11     10s  creating
          worker-0           address
          … 8 more, complete
        ");
        assert_eq!(lines(4)[2], "  … 11 more, 2 of them not complete");
        for rows in 0..14 {
            assert!(lines(rows).len() <= rows.saturating_sub(1).max(1), "{rows}");
        }
        assert!(
            steps
                .lines("*", now, (10, 24))
                .iter()
                .all(|line| line.chars().count() <= 10)
        );
    }

    #[test]
    fn a_step_ends_when_another_begins_unless_it_waits_for_nodes() {
        let mut events = vec![note("checks", "", "", None), total("addresses", 1)];
        events.push(note("addresses", "api", "reserved", None));
        events.push(note("assets", "", "", None));
        let (steps, ended, now) = after(events);
        assert_eq!(
            ended
                .iter()
                .map(|line| line.split_whitespace().next().unwrap())
                .collect::<Vec<_>>(),
            ["checks"]
        );
        assert_eq!(steps.lines("*", now, (80, 24)).len(), 3, "both steps and a row");
        let mut steps = steps;
        let ended = steps.apply(&mut note("addresses", "api", "reserved", Some(true)), now);
        assert_eq!((ended[0].step.as_str(), ended[0].took), ("addresses", 3.0));
        assert!(ended[0].text().ends_with(" 3.0s"), "{}", ended[0].text());
        assert_eq!(steps.end_all(now)[0].step, "assets");
    }

    #[test]
    fn an_interrupted_step_says_how_far_it_came() {
        let (mut steps, _, now) = after(pass_one(3));
        let ended = steps.end_all(now);
        assert!(
            ended[0].text().ends_with(" 4.0s  0 of 3 complete"),
            "{}",
            ended[0].text()
        );
    }
}
