//! The state of a cluster, as a keyword and as a sentence.

use std::collections::BTreeMap;

use serde::Serialize;

use super::snapshots::restored_text;
use crate::backend::{Machine, Power as MachinePower};
use crate::cluster::{NodeName, Pass, Role};
use crate::passes::SwitchedOff;
use crate::passes::snapshot::Restored;
use crate::state::inventory::Cluster;
use crate::state::journal::{self, Entry, Event, Holder, INSTALLED, is_done};

/// The state of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It has a directory, but no step has begun.
    New,
    /// A process installs it.
    Installing,
    /// A process that installed it ended without a result, for example because of a signal.
    Interrupted,
    /// The last run of its installation failed, or machines of an installed cluster are missing.
    Failed,
    /// Pass one is done.
    Harvested,
    /// Installed, and all of its machines are on.
    Running,
    /// Installed, and all of its machines are switched off.
    Stopped,
    /// Installed, and some of its machines are switched off.
    PartlyStopped,
    /// A complete rehearsal, whatever the state of its machines.
    Rehearsal,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Installing => "installing",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
            Self::Harvested => "harvested",
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::PartlyStopped => "partly stopped",
            Self::Rehearsal => "rehearsal",
        }
    }
}

/// Whether the machines of an installed cluster or a complete rehearsal are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Power {
    Running,
    Stopped,
    PartlyStopped,
}

/// The progress of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Progress {
    pub state: State,
    /// `None` before the cluster is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power: Option<Power>,
    /// Nodes of a complete cluster whose machines are switched off.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub off: Vec<NodeName>,
    /// The last restoration from a snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restored: Option<Restored>,
    /// The state as a sentence, and what is running or was interrupted.
    pub phase: String,
}

impl Progress {
    /// From the journal and one query of the platform; without a query, from the last `start` or `stop`.
    pub fn of(cluster: &Cluster, journal: &[Entry], holder: Option<&Holder>, machines: Option<&[Machine]>) -> Self {
        match is_done(journal, INSTALLED) {
            true => Self::complete(cluster, journal, holder, machines),
            false => Self::before(journal, holder),
        }
    }

    /// The state for tables, including that of a rehearsal's machines.
    pub fn text(&self) -> String {
        let text = match (self.state, self.power) {
            (State::Rehearsal, Some(Power::Stopped)) => "rehearsal, stopped",
            (State::Rehearsal, Some(Power::PartlyStopped)) => "rehearsal, partly stopped",
            _ => self.state.as_str(),
        };
        let restored = if self.restored.is_some() { ", restored" } else { "" };
        format!("{text}{restored}")
    }

    fn before(journal: &[Entry], holder: Option<&Holder>) -> Self {
        let at = at(journal);
        let last = last(journal);
        let (state, phase) = match (holder, last) {
            (Some(Holder { pid, host, .. }), _) => {
                let words = format!("installing (process {pid} on {host}): {at}");
                (State::Installing, words)
            }
            (None, None) => (State::New, "not started".to_owned()),
            (None, Some(last)) => match (last.event, journal::failure(journal)) {
                (Event::Failed, _) => (State::Failed, failed(last)),
                (_, Some((_, error))) => (State::Failed, format!("failed {at}: {}", first_line(&error))),
                (Event::Done, _) if last.step == "pass-one/gone" && open_steps(journal).is_empty() => {
                    (State::Harvested, "pass one is complete".to_owned())
                }
                _ => {
                    let words = format!("interrupted {at}; to resume, run the same command again");
                    (State::Interrupted, words)
                }
            },
        };
        Self {
            state,
            power: None,
            off: Vec::new(),
            restored: None,
            phase,
        }
    }

    fn complete(cluster: &Cluster, journal: &[Entry], holder: Option<&Holder>, machines: Option<&[Machine]>) -> Self {
        let nodes: Vec<&NodeName> = cluster
            .parameters
            .iter()
            .flat_map(|parameters| &parameters.nodes)
            .filter(|node| node.role != Role::Bootstrap)
            .map(|node| &node.name)
            .collect();
        let Seen { on, off, mut missing } = match machines {
            Some(machines) => Seen::of(&nodes, journal, machines),
            None => Seen::last(&nodes, journal),
        };
        if holder.is_some() {
            // While a process works on it, a machine may be missing temporarily.
            missing.clear();
        }
        let power = match (on, off.len() + missing.len()) {
            (_, 0) => Power::Running,
            (0, _) => Power::Stopped,
            _ => Power::PartlyStopped,
        };
        let state = match power {
            _ if !missing.is_empty() => State::Failed,
            _ if cluster.known.rehearsal => State::Rehearsal,
            Power::Running => State::Running,
            Power::Stopped => State::Stopped,
            Power::PartlyStopped => State::PartlyStopped,
        };
        let mut phase = match state {
            State::Failed => format!("failed: no machine on the platform for {}", names(&missing)),
            State::Rehearsal => "rehearsal succeeded".to_owned(),
            state => state.as_str().to_owned(),
        };
        match power {
            Power::Stopped if missing.is_empty() => phase += ": all machines are powered off",
            _ if !off.is_empty() => phase += &format!(": powered off: {}", names(&off)),
            _ => {}
        }
        let restored = journal::output(journal, Restored::NOTE);
        if let Some(restored) = &restored {
            phase += &format!("; {}", restored_text(restored));
        }
        if machines.is_none() {
            phase += ", as last seen: the platform could not be reached";
        }
        let last = last(journal).filter(|last| last.event == Event::Failed);
        match (holder, last, journal::failure(journal)) {
            (Some(Holder { pid, host, .. }), ..) => {
                phase += &format!("; process {pid} on {host} is working on it: {}", at(journal));
            }
            (None, Some(last), _) => phase += &format!("; {}", failed(last)),
            (None, None, Some((_, error))) => phase += &format!("; failed {}: {}", at(journal), first_line(&error)),
            (None, None, None) if !open_steps(journal).is_empty() => {
                phase += &format!("; interrupted {}; to resume, run the same command again", at(journal));
            }
            _ => {}
        }
        Self {
            state,
            power: Some(power),
            off,
            restored,
            phase,
        }
    }
}

/// The machines of a complete cluster's nodes.
#[derive(Default)]
struct Seen {
    /// The number of machines that are not off.
    on: usize,
    off: Vec<NodeName>,
    /// Nodes whose machines were created and are missing.
    missing: Vec<NodeName>,
}

impl Seen {
    fn of(nodes: &[&NodeName], journal: &[Entry], machines: &[Machine]) -> Self {
        let second = machines.iter().filter(|machine| machine.pass == Pass::Two);
        let power: BTreeMap<&NodeName, &MachinePower> = second.map(|machine| (&machine.node, &machine.power)).collect();
        let mut seen = Self::default();
        for node in nodes {
            match power.get(node) {
                Some(MachinePower::Off) => seen.off.push((*node).clone()),
                Some(_) => seen.on += 1,
                None if was_made(journal, node) => seen.missing.push((*node).clone()),
                None => {}
            }
        }
        seen
    }

    /// As the last `start` or `stop` recorded them.
    fn last(nodes: &[&NodeName], journal: &[Entry]) -> Self {
        let note = journal
            .iter()
            .rfind(|entry| entry.is_note() && entry.step == SwitchedOff::NOTE);
        let seen = note.and_then(|note| serde_json::from_value::<SwitchedOff>(note.output.clone()).ok());
        let off = seen.unwrap_or_default().off;
        let on = nodes.iter().filter(|node| !off.contains(node)).count();
        Self {
            on,
            off,
            missing: Vec::new(),
        }
    }
}

/// Whether a machine was created for a node.
pub(super) fn was_made(journal: &[Entry], node: &NodeName) -> bool {
    is_done(journal, &format!("pass-two/create/{node}")) || is_done(journal, &format!("join/{node}/begun"))
}

/// The last event of a step.
fn last(journal: &[Entry]) -> Option<&Entry> {
    let is_step = |entry: &&Entry| entry.event != Event::Forgotten && !entry.is_note();
    journal.iter().rfind(is_step)
}

/// The first line describes the failure; the rest, such as a console's text, is in the journal.
fn failed(last: &Entry) -> String {
    format!("failed at {}: {}", last.step, first_line(&last.error))
}

fn first_line(error: &str) -> &str {
    error.lines().next().unwrap_or_default()
}

fn at(journal: &[Entry]) -> String {
    match (several(&open_steps(journal)), last(journal)) {
        (Some(open), _) => format!("at {open}"),
        (None, Some(last)) => format!("after {}", last.step),
        (None, None) => "before the first step".to_owned(),
    }
}

/// Steps that have begun and not ended.
fn open_steps(journal: &[Entry]) -> Vec<&str> {
    let mut open: Vec<&str> = Vec::new();
    for entry in journal {
        match entry.event {
            Event::Begun if open.contains(&entry.step.as_str()) => {}
            Event::Begun => open.push(&entry.step),
            Event::Done | Event::Failed => open.retain(|step| *step != entry.step),
            Event::Forgotten => open.retain(|step| !Event::forgets(&entry.step, step)),
        }
    }
    open
}

/// The first few of many; `None` if empty.
fn several(steps: &[&str]) -> Option<String> {
    const SHOWN: usize = 2;
    let shown = steps.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match steps.len().checked_sub(SHOWN) {
        Some(more @ 1..) => Some(format!("{shown} and {more} more")),
        _ => Some(shown).filter(|shown| !shown.is_empty()),
    }
}

fn names(nodes: &[NodeName]) -> String {
    nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::status::tests::{cluster, entry, machine};
    use super::*;

    fn holder() -> Holder {
        Holder {
            host: "here".to_owned(),
            pid: 42,
            since: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    fn text_of(journal: &[Entry], holder: Option<&Holder>) -> String {
        let progress = Progress::of(&cluster(), journal, holder, Some(&[]));
        format!("{}: {}", progress.state.as_str(), progress.phase)
    }

    #[test]
    fn an_installation_runs_while_its_lock_is_held_and_is_interrupted_afterwards() {
        let holder = holder();
        let mut journal = vec![entry(Event::Begun, "pass-one/leases", "")];
        assert_eq!(
            text_of(&[], Some(&holder)),
            "installing: installing (process 42 on here): before the first step"
        );
        assert_eq!(
            text_of(&journal, Some(&holder)),
            "installing: installing (process 42 on here): at pass-one/leases"
        );
        assert_eq!(
            text_of(&journal, None),
            "interrupted: interrupted at pass-one/leases; to resume, run the same command again"
        );
        journal.push(entry(Event::Failed, "pass-one/leases", "no lease\nconsole"));
        assert_eq!(text_of(&journal, None), "failed: failed at pass-one/leases: no lease");
        for node in 0..4 {
            journal.push(entry(Event::Begun, &format!("pass-two/create/worker-{node}"), ""));
        }
        assert_eq!(
            text_of(&journal, Some(&holder)),
            "installing: installing (process 42 on here): at pass-two/create/worker-0, pass-two/create/worker-1 and 2 more"
        );
        let mut note = entry(Event::Done, "chosen", "");
        note.input.clear();
        assert_eq!(text_of(&[note], None), "new: not started", "a note is not a step");
        let harvested = [entry(Event::Done, "pass-one/gone", "")];
        assert_eq!(text_of(&harvested, None), "harvested: pass one is complete");
    }

    #[test]
    fn a_step_that_was_reset_is_not_done() {
        let mut journal = vec![entry(Event::Done, "install-complete", "")];
        assert!(text_of(&journal, None).starts_with("rehearsal: "));
        journal.push(entry(Event::Forgotten, "", ""));
        journal.push(entry(Event::Begun, "pass-one/create", ""));
        assert!(text_of(&journal, None).starts_with("interrupted: interrupted "));
    }

    #[test]
    fn a_run_that_failed_between_two_steps_is_not_interrupted() {
        let note = |name: &str, output: serde_json::Value| {
            let mut note = entry(Event::Done, name, "");
            (note.input, note.output) = (String::new(), output);
            note
        };
        let time = jiff::Timestamp::UNIX_EPOCH;
        let failed = serde_json::json!([time, "pass two: 1 machine of 6 without address\n  console: tail"]);
        let mut journal = vec![
            note(journal::RUN, serde_json::json!([1, time])),
            entry(Event::Done, "pass-two/create/worker-1", ""),
            note(journal::FAILED, failed),
        ];
        let words = "failed after pass-two/create/worker-1: pass two: 1 machine of 6 without address";
        assert_eq!(text_of(&journal, None), format!("failed: {words}"));
        assert!(text_of(&journal, Some(&holder())).starts_with("installing: installing (process 42 on here)"));
        journal.push(note(journal::RUN, serde_json::json!([2, time])));
        assert!(text_of(&journal, None).starts_with("interrupted: interrupted after pass-two/create/worker-1"));
    }

    #[test]
    fn the_state_of_a_complete_cluster_is_that_of_its_machines() {
        let all = ["master-0", "master-1", "master-2", "worker-0", "worker-1"];
        let mut journal: Vec<Entry> = all
            .iter()
            .map(|node| entry(Event::Done, &format!("pass-two/create/{node}"), ""))
            .collect();
        journal.push(entry(Event::Done, "install-complete", ""));
        let machines = |off: &[&str], gone: &[&str]| -> Vec<Machine> {
            let there = all.iter().filter(|node| !gone.contains(node));
            let power = |node| match off.contains(node) {
                true => MachinePower::Off,
                false => MachinePower::Running,
            };
            there
                .map(|node| machine(Pass::Two, node, Role::Worker, 1, power(node), &[]))
                .collect()
        };
        let text_of = |journal: &[Entry], rehearsal, machines: Option<Vec<Machine>>, holder: Option<&Holder>| {
            let mut cluster = cluster();
            cluster.known.rehearsal = rehearsal;
            let progress = Progress::of(&cluster, journal, holder, machines.as_deref());
            format!("{}: {}", progress.text(), progress.phase)
        };
        for (off, gone, real, rehearsal) in [
            (&[][..], &[][..], "running: running", "rehearsal: rehearsal succeeded"),
            (
                &all,
                &[],
                "stopped: stopped: all machines are powered off",
                "rehearsal, stopped: rehearsal succeeded: all machines are powered off",
            ),
            (
                &["worker-0", "worker-1"],
                &[],
                "partly stopped: partly stopped: powered off: worker-0, worker-1",
                "rehearsal, partly stopped: rehearsal succeeded: powered off: worker-0, worker-1",
            ),
            (
                &[],
                &["worker-0"],
                "failed: failed: no machine on the platform for worker-0",
                "failed: failed: no machine on the platform for worker-0",
            ),
        ] {
            assert_eq!(text_of(&journal, false, Some(machines(off, gone)), None), real);
            assert_eq!(text_of(&journal, true, Some(machines(off, gone)), None), rehearsal);
        }
        // A node that is being replaced is not missing.
        let holder = holder();
        assert_eq!(
            text_of(&journal, false, Some(machines(&[], &["worker-0"])), Some(&holder)),
            "running: running; process 42 on here is working on it: after install-complete"
        );
        // Later steps do not change the state.
        journal.push(entry(Event::Begun, "scale/create", ""));
        assert_eq!(
            text_of(&journal, false, Some(machines(&[], &[])), None),
            "running: running; interrupted at scale/create; to resume, run the same command again"
        );
        journal.push(entry(Event::Failed, "scale/create", "no room\nconsole"));
        assert_eq!(
            text_of(&journal, false, Some(machines(&[], &[])), None),
            "running: running; failed at scale/create: no room"
        );
        // Without a query the state is as `stop` left it.
        journal.pop();
        journal.pop();
        let mut note = entry(Event::Done, SwitchedOff::NOTE, "");
        (note.input, note.output) = (String::new(), serde_json::json!({"off": all}));
        journal.push(note);
        assert_eq!(
            text_of(&journal, false, None, None),
            "stopped: stopped: all machines are powered off, as last seen: the platform could not be reached"
        );
    }
}
