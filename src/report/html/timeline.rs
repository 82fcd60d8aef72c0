//! When each step and machine was active: bars over the active time, without pauses.
//!
//! More than 500 lines: a fifth are tests, and rows, bars and axis are one calculation.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::cluster::{NodeName, Role};
use crate::state::journal::{BOOTSTRAP_REMOVED, Entry, Event, RUN};

/// A pause: at least this time without activity between two runs.
const PAUSE: SignedDuration = SignedDuration::from_secs(60);

/// Machines that are created within this time of each other count as one group.
const TOGETHER: SignedDuration = SignedDuration::from_secs(5);

/// Grid lines of the axis, including both ends.
const TICKS: usize = 5;

/// A chart for the template; positions are percent of its width.
#[derive(Debug, Default, Serialize)]
pub struct Timeline {
    /// The steps, then the machines of each role.
    pub groups: Vec<Group>,
    pub ticks: Vec<Tick>,
    /// Positions of the pauses, and their durations.
    pub pauses: Vec<Tick>,
    /// The active time.
    pub worked: String,
}

/// A group of rows.
#[derive(Debug, Serialize)]
pub struct Group {
    pub title: &'static str,
    /// Contains steps, not machines.
    pub steps: bool,
    pub open: bool,
    pub rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub struct Row {
    pub label: String,
    /// The duration, as text.
    pub took: String,
    /// The row as text, for users who cannot see the bars.
    pub text: String,
    pub bars: Vec<Bar>,
}

#[derive(Debug, Serialize)]
pub struct Bar {
    /// `one`, `two`, `wait`, `prepare`, `failed`, `cut`, and thin ones: `boot-one`, `boot-two`.
    pub kind: &'static str,
    pub x: String,
    pub width: String,
    pub title: String,
}

#[derive(Debug, Serialize)]
pub struct Tick {
    pub x: String,
    pub label: String,
    pub anchor: &'static str,
}

/// A period of activity.
#[derive(Clone, Debug)]
struct Span {
    step: String,
    from: Timestamp,
    to: Timestamp,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Done,
    Failed,
    /// The process ended unexpectedly.
    Cut,
    /// Still running.
    Open,
}

impl Timeline {
    /// From a journal; `now` is set while a process works on the cluster.
    pub fn of(journal: &[Entry], nodes: &[(NodeName, Role)], now: Option<Timestamp>) -> Self {
        // Entries before a restart from scratch belong to another deployment.
        let begin = journal
            .iter()
            .rposition(|entry| entry.event == Event::Forgotten && entry.step.is_empty());
        let journal = &journal[begin.map_or(0, |at| at + 1)..];
        let mut spans = spans(journal, now);
        spans.extend(comparison(journal, &spans));
        let axis = Axis::of(&spans, &runs(journal, now));
        let machines = Machines {
            journal,
            spans: &spans,
            axis: &axis,
        };
        Self {
            groups: std::iter::once(Group {
                title: "Steps",
                steps: true,
                open: true,
                rows: steps(&spans, &axis),
            })
            .chain(machines.groups(nodes))
            .collect(),
            ticks: axis.ticks(),
            pauses: axis.pauses(),
            worked: duration(axis.worked()),
        }
    }
}

/// Every execution of every step.
fn spans(journal: &[Entry], now: Option<Timestamp>) -> Vec<Span> {
    let mut spans = Vec::<Span>::new();
    let mut open = BTreeMap::<&str, usize>::new();
    let mut last = None;
    for entry in journal {
        let again = entry.event == Event::Begun && open.contains_key(entry.step.as_str());
        if let Some(to) = last.filter(|_| again || (entry.is_note() && entry.step == RUN)) {
            // The process ended when the last line was written, or later; the exact time is unknown.
            for (_, index) in std::mem::take(&mut open) {
                (spans[index].to, spans[index].end) = (to, End::Cut);
            }
        }
        match entry.event {
            Event::Begun => {
                open.insert(&entry.step, spans.len());
                spans.push(Span {
                    step: entry.step.clone(),
                    from: entry.time,
                    to: entry.time,
                    end: End::Open,
                });
            }
            Event::Done | Event::Failed => {
                if let Some(index) = open.remove(entry.step.as_str()) {
                    spans[index].to = entry.time;
                    spans[index].end = match entry.event {
                        Event::Done => End::Done,
                        _ => End::Failed,
                    };
                }
            }
            Event::Forgotten => {}
        }
        last = Some(entry.time);
    }
    for index in open.into_values() {
        spans[index].to = now.or(last).unwrap_or(spans[index].from);
        spans[index].end = if now.is_some() { End::Open } else { End::Cut };
    }
    spans
}

/// From the first to the last line of each run: the time between counts as active, even without a step.
fn runs(journal: &[Entry], now: Option<Timestamp>) -> Vec<(Timestamp, Timestamp)> {
    let mut runs: Vec<(Timestamp, Timestamp)> = Vec::new();
    for entry in journal {
        match runs.last_mut() {
            _ if entry.is_note() && entry.step == RUN => runs.push((entry.time, entry.time)),
            Some((_, end)) => *end = entry.time,
            // The note of this run is before the restart from scratch.
            None => {}
        }
    }
    if let (Some((_, end)), Some(now)) = (runs.last_mut(), now) {
        *end = now;
    }
    runs
}

/// The comparison of addresses in pass two, which is not a step because every run repeats it.
fn comparison(journal: &[Entry], spans: &[Span]) -> Option<Span> {
    const MADE: &str = "pass-two/create/";
    let made = spans
        .iter()
        .filter(|span| span.step.starts_with(MADE) && span.end == End::Done);
    let seen = journal
        .iter()
        .filter(|entry| entry.is_note() && entry.step.starts_with(MADE));
    Some(Span {
        step: "pass-two/addresses".to_owned(),
        from: made.map(|span| span.to).min()?,
        to: seen.map(|entry| entry.time).max()?,
        end: End::Done,
    })
}

/// One row for each step; the creation of single machines is one step here.
fn steps(spans: &[Span], axis: &Axis) -> Vec<Row> {
    let mut rows: Vec<(String, Vec<&Span>)> = Vec::new();
    let mut spans: Vec<&Span> = spans.iter().collect();
    spans.sort_by_key(|span| span.from);
    for span in spans {
        let name = step_name(&span.step);
        match rows.iter_mut().find(|(known, _)| *known == name) {
            Some((_, spans)) => spans.push(span),
            None => rows.push((name, vec![span])),
        }
    }
    let row = |(label, spans): (String, Vec<&Span>)| {
        let many = spans.iter().any(|span| span.step != label);
        let bars: Vec<_> = match many {
            true => merged(&spans)
                .into_iter()
                .map(|span| axis.bar(&span, kind(&label, span.end)))
                .collect(),
            false => spans
                .iter()
                .map(|span| axis.bar(span, kind(&label, span.end)))
                .collect(),
        };
        let took = axis.worked_in(&spans);
        Row {
            text: texts(&bars),
            took: duration(took),
            label,
            bars,
        }
    };
    rows.into_iter().map(row).collect()
}

/// Joins spans that overlap or nearly overlap.
fn merged(spans: &[&Span]) -> Vec<Span> {
    let mut spans: Vec<Span> = spans.iter().copied().cloned().collect();
    spans.sort_by_key(|span| span.from);
    let mut merged: Vec<Span> = Vec::new();
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.from.duration_since(last.to) <= TOGETHER => {
                last.to = last.to.max(span.to);
                if span.end != End::Done {
                    last.end = span.end;
                }
            }
            _ => merged.push(span),
        }
    }
    merged
}

/// The step that includes the steps of single nodes: `pass-two/create` for `pass-two/create/master-0`.
fn step_name(step: &str) -> String {
    for parent in ["pass-two/create", "join"] {
        if step.strip_prefix(parent).is_some_and(|rest| rest.starts_with('/')) {
            return parent.to_owned();
        }
    }
    step.to_owned()
}

fn kind(step: &str, end: End) -> &'static str {
    match end {
        End::Failed => "failed",
        End::Cut => "cut",
        End::Done | End::Open => match step.split('/').next().unwrap_or(step) {
            _ if step.ends_with("/image") => "prepare",
            _ if step.ends_with("/addresses") => "boot-two",
            "pass-one" | "scale" => "one",
            "pass-two" | "join" => "two",
            "bootstrap-complete" | "bootstrap-member-removed" | BOOTSTRAP_REMOVED | "install-complete" => "wait",
            _ => "prepare",
        },
    }
}

/// The recorded data of machines.
struct Machines<'a> {
    journal: &'a [Entry],
    spans: &'a [Span],
    axis: &'a Axis,
}

impl Machines<'_> {
    fn groups(&self, nodes: &[(NodeName, Role)]) -> Vec<Group> {
        let open = nodes.len() <= 12;
        let group = |(role, title): (Role, &'static str)| {
            let of_role = nodes.iter().filter(|(_, its)| *its == role);
            let rows: Vec<_> = of_role.filter_map(|(node, _)| self.row(node.as_str())).collect();
            (!rows.is_empty()).then_some(Group {
                title,
                steps: false,
                open,
                rows,
            })
        };
        let roles = [
            (Role::Bootstrap, "Bootstrap"),
            (Role::Master, "Masters"),
            (Role::Arbiter, "Arbiter"),
            (Role::Worker, "Workers"),
            (Role::Helper, "Helpers for virtual IPs"),
        ];
        roles.into_iter().filter_map(group).collect()
    }

    fn row(&self, node: &str) -> Option<Row> {
        let mut bars = Vec::new();
        let mut took = Vec::new();
        let made_and_seen = [
            (
                "pass one",
                "pass-one/create",
                "pass-one/create",
                "pass-one/leases",
                ["one", "boot-one"],
            ),
            (
                "pass one",
                "scale/create",
                "scale/create",
                "scale/leases",
                ["one", "boot-one"],
            ),
        ];
        for (pass, step, made, seen, kinds) in made_and_seen {
            let made = self.note(&format!("{made}/{node}"));
            let seen = self.note(&format!("{seen}/{node}"));
            took.extend(self.life(pass, self.first(step), made, seen, kinds, &mut bars));
        }
        let create = format!("pass-two/create/{node}");
        let seen = self.note(&format!("{create}/address"));
        let made = self.done(&create);
        took.extend(self.life(
            "pass two",
            self.first(&create),
            made,
            seen,
            ["two", "boot-two"],
            &mut bars,
        ));
        let join = format!("join/{node}");
        let from = self.first(&format!("{join}/begun"));
        let seen = self.note(&format!("{join}/address"));
        took.extend(self.life(
            "joining",
            from,
            seen,
            self.done(&format!("{join}/ready")),
            ["two", "boot-two"],
            &mut bars,
        ));
        (!bars.is_empty()).then(|| Row {
            label: node.to_owned(),
            took: took.join(" + "),
            text: texts(&bars),
            bars,
        })
    }

    /// A machine's bars in one pass: until it was created, and from then until its address was stable.
    fn life(
        &self,
        pass: &str,
        from: Option<Timestamp>,
        made: Option<Timestamp>,
        seen: Option<Timestamp>,
        [making, booting]: [&'static str; 2],
        bars: &mut Vec<Bar>,
    ) -> Option<String> {
        let (from, made) = from.zip(made)?;
        let axis = self.axis;
        let how = |what: &str, from, to| format!("{pass}: {what} {}", duration(axis.between(from, to)));
        bars.push(axis.place(making, from, made, how("created in", from, made)));
        if let Some(seen) = seen {
            bars.push(axis.place(booting, made, seen, how("address stable after", made, seen)));
        }
        Some(duration(axis.between(from, seen.unwrap_or(made))))
    }

    /// The begin of a step's last execution.
    fn first(&self, step: &str) -> Option<Timestamp> {
        self.spans.iter().rfind(|span| span.step == step).map(|span| span.from)
    }

    fn done(&self, step: &str) -> Option<Timestamp> {
        let mut spans = self.spans.iter();
        spans
            .rfind(|span| span.step == step && span.end == End::Done)
            .map(|span| span.to)
    }

    fn note(&self, name: &str) -> Option<Timestamp> {
        let note = self.journal.iter().rfind(|entry| entry.is_note() && entry.step == name);
        note.map(|entry| entry.time)
    }
}

fn texts(bars: &[Bar]) -> String {
    bars.iter().map(|bar| bar.title.as_str()).collect::<Vec<_>>().join("; ")
}

/// Converts times to positions: only active times count.
struct Axis {
    /// Sorted and disjoint.
    worked: Vec<(Timestamp, Timestamp)>,
}

impl Axis {
    fn of(spans: &[Span], runs: &[(Timestamp, Timestamp)]) -> Self {
        let spans = spans.iter().map(|span| (span.from, span.to));
        let mut times: Vec<_> = spans.chain(runs.iter().copied()).collect();
        times.sort();
        let mut worked: Vec<(Timestamp, Timestamp)> = Vec::new();
        for (from, to) in times {
            match worked.last_mut() {
                Some((_, end)) if from.duration_since(*end) <= PAUSE => *end = to.max(*end),
                _ => worked.push((from, to)),
            }
        }
        Self { worked }
    }

    fn worked(&self) -> SignedDuration {
        self.worked.iter().map(|(from, to)| to.duration_since(*from)).sum()
    }

    /// The active time between two times.
    fn between(&self, from: Timestamp, to: Timestamp) -> SignedDuration {
        let within = |(begin, end): &(Timestamp, Timestamp)| {
            let within = (*end).min(to).duration_since((*begin).max(from));
            within.max(SignedDuration::ZERO)
        };
        self.worked.iter().map(within).sum()
    }

    /// The active time in these spans, which may overlap.
    fn worked_in(&self, spans: &[&Span]) -> SignedDuration {
        merged(spans).iter().map(|span| self.between(span.from, span.to)).sum()
    }

    fn percent(&self, time: Timestamp) -> f64 {
        let all = self.worked().as_secs_f64();
        let begin = self.worked.first().map_or(time, |(from, _)| *from);
        match all > 0.0 {
            true => self.between(begin, time).as_secs_f64() / all * 100.0,
            false => 0.0,
        }
    }

    fn bar(&self, span: &Span, kind: &'static str) -> Bar {
        let took = duration(self.between(span.from, span.to));
        let title = match span.end {
            End::Done => format!("{:.0}, {took}", span.from),
            End::Failed => format!("{:.0}, failed after {took}", span.from),
            End::Cut => format!("{:.0}, interrupted after {took} or later", span.from),
            End::Open => format!("{:.0}, running for {took}", span.from),
        };
        self.place(kind, span.from, span.to, title)
    }

    fn place(&self, kind: &'static str, from: Timestamp, to: Timestamp, title: String) -> Bar {
        let x = self.percent(from);
        let end = self.percent(to);
        // A minimum width keeps short spans visible.
        let width = (end - x).max(0.4);
        Bar {
            kind,
            x: percent(x.min(100.0 - width)),
            width: percent(width),
            title,
        }
    }

    fn ticks(&self) -> Vec<Tick> {
        let all = self.worked();
        let tick = |index: usize| {
            let part = index as f64 / (TICKS - 1) as f64;
            Tick {
                x: percent(part * 100.0),
                label: clock(all.as_secs_f64() * part, all.as_secs_f64()),
                anchor: match index {
                    0 => "start",
                    _ if index + 1 == TICKS => "end",
                    _ => "middle",
                },
            }
        };
        match all.is_zero() {
            true => Vec::new(),
            false => (0..TICKS).map(tick).collect(),
        }
    }

    fn pauses(&self) -> Vec<Tick> {
        let pause = |pair: &[(Timestamp, Timestamp)]| Tick {
            x: percent(self.percent(pair[1].0)),
            label: duration(pair[1].0.duration_since(pair[0].1)),
            anchor: "middle",
        };
        self.worked.windows(2).map(pause).collect()
    }
}

fn percent(number: f64) -> String {
    format!("{number:.2}%")
}

/// `0.4 s`, `12 s`, `3 min 20 s`, `1 h 05 min`.
pub fn duration(time: SignedDuration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// A time on an axis of this length: `0.4 s`, `40 s`, `2:30`, `1:02:30`.
fn clock(seconds: f64, all: f64) -> String {
    let whole = seconds as u64;
    match all as u64 {
        _ if seconds == 0.0 => "0".to_owned(),
        0..10 => format!("{seconds:.1} s"),
        10..60 => format!("{whole} s"),
        60..3600 => format!("{}:{:02}", whole / 60, whole % 60),
        _ => format!("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    fn entry(seconds: i64, event: Event, step: &str) -> Entry {
        let value = serde_json::json!({
            "v": 1, "seq": 1, "time": at(seconds), "event": event, "step": step, "input": "0123",
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_time_between_two_runs_has_no_width() {
        let night = 60 * 60 * 9;
        let journal = [
            entry(0, Event::Begun, "release"),
            entry(20, Event::Done, "release"),
            entry(20, Event::Begun, "assets"),
            // Killed here, and started again.
            entry(30, Event::Begun, "merge"),
            entry(night, Event::Begun, "assets"),
            entry(night + 50, Event::Failed, "assets"),
        ];
        let line = Timeline::of(&journal, &[], None);
        assert_eq!(line.worked, "1 min 20 s");
        let rows: Vec<_> = line.groups[0]
            .rows
            .iter()
            .map(|row| {
                let bars: Vec<_> = row
                    .bars
                    .iter()
                    .map(|bar| format!("{} {}+{}", bar.kind, bar.x, bar.width))
                    .collect();
                format!("{} {}: {}", row.label, row.took, bars.join(", "))
            })
            .collect();
        assert_eq!(
            rows,
            [
                "release 20 s: prepare 0.00%+25.00%",
                "assets 1 min 00 s: cut 25.00%+12.50%, failed 37.50%+62.50%",
                "merge 0.0 s: cut 37.50%+0.40%",
            ]
        );
        assert_eq!(line.pauses.len(), 1);
        assert_eq!(
            (line.pauses[0].x.as_str(), line.pauses[0].label.as_str()),
            ("37.50%", "8 h 59 min")
        );
    }

    #[test]
    fn time_of_a_run_without_an_open_step_is_active() {
        let mut run = entry(0, Event::Done, RUN);
        run.input.clear();
        let mut seen = entry(600, Event::Done, "pass-two/create/master-0/address");
        seen.input.clear();
        let journal = [
            run,
            entry(0, Event::Begun, "pass-two/create/master-0"),
            entry(1, Event::Begun, "pass-two/create/master-1"),
            entry(4, Event::Done, "pass-two/create/master-1"),
            entry(5, Event::Done, "pass-two/create/master-0"),
            seen,
            entry(610, Event::Begun, "bootstrap-complete"),
            entry(1000, Event::Done, "bootstrap-complete"),
        ];
        let line = Timeline::of(&journal, &[], None);
        assert_eq!((line.worked.as_str(), line.pauses.len()), ("16 min 40 s", 0));
        let rows: Vec<_> = line.groups[0]
            .rows
            .iter()
            .map(|row| (row.label.as_str(), row.took.as_str()))
            .collect();
        assert_eq!(
            rows,
            [
                ("pass-two/create", "5.0 s"),
                ("pass-two/addresses", "9 min 56 s"),
                ("bootstrap-complete", "6 min 30 s")
            ]
        );
    }

    #[test]
    fn earlier_deployments_are_left_out_and_a_running_one_ends_now() {
        let journal = [
            entry(0, Event::Begun, "release"),
            entry(5, Event::Done, "release"),
            entry(6, Event::Forgotten, ""),
            entry(10, Event::Begun, "assets"),
        ];
        let line = Timeline::of(&journal, &[], Some(at(25)));
        assert_eq!(line.groups[0].rows.len(), 1);
        assert_eq!(line.groups[0].rows[0].text, "1970-01-01T00:00:10Z, running for 15 s");
        assert_eq!(Timeline::of(&[], &[], None).ticks.len(), 0);
    }

    #[test]
    fn durations_are_easy_to_read() {
        for (seconds, words, on_axis) in [
            (0, "0.0 s", "0"),
            (9, "9.0 s", "9.0 s"),
            (75, "1 min 15 s", "1:15"),
            (3725, "1 h 02 min", "1:02:05"),
        ] {
            assert_eq!(duration(SignedDuration::from_secs(seconds)), words);
            assert_eq!(clock(seconds as f64, seconds as f64), on_axis);
        }
    }
}
