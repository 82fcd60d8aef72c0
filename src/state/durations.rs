//! Durations of earlier deployments, for estimates of the next one.
//!
//! `durations.json` in the state directory outlives the clusters: `destroy` removes their journals.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::home::{Home, write_private};
use super::inventory;
use super::journal::{Entry, Event, INSTALLED, RUN};
use crate::cluster::ClusterConfig;
use crate::printable::count;

/// Version of the file.
const VERSION: u32 = 1;

/// Number of deployments that are kept.
const KEPT: usize = 50;

/// Number of deployments, the newest ones, that an estimate is based on.
const NEWEST: usize = 5;

/// A phase of a deployment. The phases follow each other and cover the whole deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Temporary machines are booted and deleted; the node image is uploaded meanwhile.
    PassOne,
    /// From the installer's files until each machine has its address.
    PassTwo,
    /// Until bootstrap-complete.
    Bootstrap,
    /// Until install-complete.
    Install,
}

impl Phase {
    pub const ALL: [Phase; 4] = [Phase::PassOne, Phase::PassTwo, Phase::Bootstrap, Phase::Install];
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::PassOne => "pass one",
            Phase::PassTwo => "pass two",
            Phase::Bootstrap => "bootstrap",
            Phase::Install => "install",
        })
    }
}

/// One complete deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// Name and domain of the cluster.
    pub cluster: String,
    pub installed: Timestamp,
    pub backend: String,
    pub rehearsal: bool,
    /// Nodes, without the bootstrap; 0 in records of earlier versions, which did not store it.
    #[serde(default)]
    pub nodes: usize,
    /// In milliseconds; without phases that were skipped or interrupted.
    pub phases: BTreeMap<Phase, u64>,
}

#[derive(Serialize, Deserialize)]
struct File {
    v: u32,
    deployments: Vec<Deployment>,
}

/// The phases of a journal that began and ended in one run, in milliseconds: pauses between runs do not count.
pub fn phases(journal: &[Entry]) -> BTreeMap<Phase, u64> {
    let begin = journal
        .iter()
        .rposition(|entry| entry.event == Event::Forgotten && entry.step.is_empty());
    let journal = &journal[begin.map_or(0, |at| at + 1)..];
    // Run and time of the first line of this event.
    let first = |event, step: &str| {
        let at = journal
            .iter()
            .position(|entry| entry.event == event && entry.step == step && !entry.is_note())?;
        let is_run = |entry: &&Entry| entry.is_note() && entry.step == RUN;
        let run = journal[..at].iter().rfind(is_run)?.time;
        Some((run, journal[at].time))
    };
    let assets = first(Event::Begun, "assets");
    let bootstrap = first(Event::Begun, "bootstrap-complete");
    let bootstrapped = first(Event::Done, "bootstrap-complete");
    let begun = first(Event::Begun, "pass-one/create").map(|(run, _)| (run, run));
    [
        (Phase::PassOne, begun, assets),
        (Phase::PassTwo, assets, bootstrap),
        (Phase::Bootstrap, bootstrap, bootstrapped),
        (Phase::Install, bootstrapped, first(Event::Done, INSTALLED)),
    ]
    .into_iter()
    .filter_map(|(phase, from, to)| {
        let ((run, from), (same_run, to)) = (from?, to?);
        let took = u64::try_from(to.duration_since(from).as_millis()).ok()?;
        (run == same_run).then_some((phase, took))
    })
    .collect()
}

/// The kind of a deployment. Only deployments of the same kind are compared.
#[derive(Clone, Copy, Debug)]
pub struct Kind<'a> {
    pub backend: &'a str,
    pub rehearsal: bool,
    /// Nodes, without the bootstrap.
    pub nodes: usize,
}

impl<'a> Kind<'a> {
    pub fn of(config: &'a ClusterConfig) -> Self {
        Self {
            backend: config.backend.name(),
            rehearsal: config.is_rehearsal(),
            nodes: config.nodes().len() - 1,
        }
    }

    /// Whether a deployment is of this kind: with at least half, and at most twice the nodes.
    fn is_alike(&self, one: &Deployment) -> bool {
        let is_near = one.nodes <= 2 * self.nodes && self.nodes <= 2 * one.nodes;
        is_near && one.backend == self.backend && one.rehearsal == self.rehearsal
    }
}

/// The estimated duration of a deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Number of deployments that it is based on.
    pub deployments: usize,
    /// Their smallest and largest number of nodes.
    pub nodes: [usize; 2],
    phases: BTreeMap<Phase, Duration>,
    best: BTreeMap<Phase, Duration>,
}

impl Estimate {
    /// From the newest deployments of this kind: the median of each phase. The best time is that of all recorded
    /// deployments of this kind.
    pub fn of(deployments: &[Deployment], kind: Kind<'_>) -> Self {
        let alike: Vec<_> = deployments.iter().rev().filter(|one| kind.is_alike(one)).collect();
        let newest = &alike[..alike.len().min(NEWEST)];
        let times = |of: &[&Deployment], phase| -> Vec<u64> {
            let times = of.iter().filter_map(|one| one.phases.get(&phase).copied());
            times.collect()
        };
        let usual = |phase| Some((phase, Duration::from_millis(median(times(newest, phase))?)));
        let best = |phase| {
            let best = times(&alike, phase).into_iter().min()?;
            Some((phase, Duration::from_millis(best)))
        };
        let nodes = || newest.iter().map(|one| one.nodes);
        Self {
            deployments: newest.len(),
            nodes: [nodes().min(), nodes().max()].map(Option::unwrap_or_default),
            phases: Phase::ALL.into_iter().filter_map(usual).collect(),
            best: Phase::ALL.into_iter().filter_map(best).collect(),
        }
    }

    /// How long a phase usually takes.
    pub fn usual(&self, phase: Phase) -> Option<Duration> {
        self.phases.get(&phase).copied()
    }

    /// The shortest time that a phase has taken.
    pub fn best(&self, phase: Phase) -> Option<Duration> {
        self.best.get(&phase).copied()
    }

    /// Of all phases, with or without pass one; `None` unless each is known.
    pub fn total(&self, with_pass_one: bool) -> Option<Duration> {
        let one = with_pass_one.then_some(Phase::PassOne);
        let phases = one
            .into_iter()
            .chain([Phase::PassTwo, Phase::Bootstrap, Phase::Install]);
        phases.map(|phase| self.phases.get(&phase)).sum()
    }

    /// How long a phase usually takes, in seconds.
    pub fn seconds(&self, phase: Phase) -> Option<u64> {
        let time = *self.phases.get(&phase)?;
        // A phase of less than a second counts as one second, not as zero.
        Some((time + Duration::from_millis(500)).as_secs().max(1))
    }

    /// What the estimate is based on: `3 deployments of 5 to 7 nodes`; `None` without an estimate.
    pub fn source(&self) -> Option<String> {
        let nodes = match self.nodes {
            [_, 0] => return None,
            [least, most] if least == most => count(most, "node"),
            [least, most] => format!("{least} to {most} nodes"),
        };
        Some(format!("{} of {nodes}", count(self.deployments, "deployment")))
    }
}

/// The middle one, or the mean of the two in the middle.
fn median(mut times: Vec<u64>) -> Option<u64> {
    times.sort_unstable();
    let upper = *times.get(times.len() / 2)?;
    Some(match times.len() % 2 {
        0 => times[times.len() / 2 - 1].midpoint(upper),
        _ => upper,
    })
}

/// `about 20 s`, `about 12 min`, `about 1 h 05 min`.
pub fn about(time: Duration) -> String {
    let seconds = (time.as_millis() + 500) / 1000;
    let minutes = (seconds + 30) / 60;
    match seconds {
        0..60 => format!("about {} s", seconds.max(1)),
        _ if minutes < 60 => format!("about {minutes} min"),
        _ => format!("about {} h {:02} min", minutes / 60, minutes % 60),
    }
}

fn file(home: &Home) -> PathBuf {
    home.root().join("durations.json")
}

/// All recorded deployments, oldest first. A file that cannot be read counts as missing: nothing depends on it.
pub fn read(home: &Home) -> Vec<Deployment> {
    let text = std::fs::read(file(home)).unwrap_or_default();
    match serde_json::from_slice::<File>(&text) {
        Ok(file) if file.v == VERSION => file.deployments,
        _ => Vec::new(),
    }
}

/// Adds a deployment once, and drops the oldest ones.
pub fn record(home: &Home, deployment: Deployment) -> Result<()> {
    let _lock = inventory::allocate(home)?;
    home.sweep()?;
    let Some(deployments) = added(read(home), deployment) else {
        return Ok(());
    };
    let content = serde_json::to_vec_pretty(&File {
        v: VERSION,
        deployments,
    })?;
    Ok(write_private(&file(home), &content)?)
}

/// `None` if it is already recorded: a repeated command installs nothing.
fn added(mut deployments: Vec<Deployment>, deployment: Deployment) -> Option<Vec<Deployment>> {
    let is_same = |one: &Deployment| (&one.cluster, one.installed) == (&deployment.cluster, deployment.installed);
    if deployment.phases.is_empty() || deployments.iter().any(is_same) {
        return None;
    }
    deployments.push(deployment);
    deployments.drain(..deployments.len().saturating_sub(KEPT));
    Some(deployments)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    /// Lines as `seconds event step`; a run is a note.
    fn journal(lines: &[(i64, &str, &str)]) -> Vec<Entry> {
        let entry = |(seconds, event, step): &(i64, &str, &str)| {
            let (event, input) = match *event {
                "run" => ("done", ""),
                event => (event, "0123"),
            };
            let value = serde_json::json!({
                "v": 1, "seq": 1, "time": at(*seconds), "event": event, "step": step, "input": input,
            });
            serde_json::from_value(value).unwrap()
        };
        lines.iter().map(entry).collect()
    }

    #[test]
    fn phases_are_those_of_one_run() {
        const DAY: i64 = 24 * 60 * 60;
        let whole = [
            (0, "run", "run"),
            (5, "begun", "pass-one/create"),
            (60, "done", "pass-one/gone"),
            (70, "begun", "assets"),
            (80, "done", "assets"),
            (200, "begun", "bootstrap-complete"),
            (900, "done", "bootstrap-complete"),
            (910, "begun", "install-complete"),
            (2000, "done", "install-complete"),
        ];
        let of = |lines: &[(i64, &str, &str)]| -> Vec<(Phase, u64)> {
            let phases = phases(&journal(lines)).into_iter();
            phases.map(|(phase, took)| (phase, took / 1000)).collect()
        };
        let all = [
            (Phase::PassOne, 70),
            (Phase::PassTwo, 130),
            (Phase::Bootstrap, 700),
            (Phase::Install, 1100),
        ];
        assert_eq!(of(&whole), all);
        // Earlier lines belong to another deployment.
        let again = [
            &[(-50, "run", "run"), (-40, "begun", "assets"), (-30, "forgotten", "")],
            &whole[..],
        ]
        .concat();
        assert_eq!(of(&again), all);
        // The night between two runs belongs to no phase.
        for (cut, left) in [
            (4, &[Phase::PassTwo, Phase::Bootstrap, Phase::Install][..]),
            (5, &[Phase::PassOne, Phase::Bootstrap, Phase::Install]),
            (6, &[Phase::PassOne, Phase::PassTwo, Phase::Install]),
            (8, &[Phase::PassOne, Phase::PassTwo, Phase::Bootstrap]),
        ] {
            // The unfinished step begins again.
            let cut = if cut == 4 { 3 } else { cut };
            let later = whole[cut..]
                .iter()
                .map(|(time, event, step)| (time + DAY, *event, *step));
            let open = match whole[cut - 1] {
                (_, "begun", step) => Some((DAY + whole[cut - 1].0, "begun", step)),
                _ => None,
            };
            let lines: Vec<_> = whole[..cut]
                .iter()
                .copied()
                .chain([(DAY, "run", "run")])
                .chain(open)
                .chain(later)
                .collect();
            let phases: Vec<Phase> = of(&lines).into_iter().map(|(phase, _)| phase).collect();
            assert_eq!(phases, left, "{lines:?}");
        }
        // Known addresses: no machines of pass one.
        assert_eq!(of(&[&whole[..1], &whole[3..]].concat()), all[1..]);
        assert_eq!(of(&[]), []);
    }

    fn deployment(day: i64, backend: &str, rehearsal: bool, phases: &[(Phase, u64)]) -> Deployment {
        let phases = phases.iter().map(|(phase, seconds)| (*phase, seconds * 1000));
        Deployment {
            cluster: "lab.example.com".to_owned(),
            installed: at(day * 86400),
            backend: backend.to_owned(),
            rehearsal,
            nodes: 5,
            phases: phases.collect(),
        }
    }

    const FIVE_NODES: Kind<'_> = Kind {
        backend: "libvirt",
        rehearsal: false,
        nodes: 5,
    };

    #[test]
    fn an_estimate_is_based_on_the_newest_deployments_of_the_same_kind() {
        let all = |seconds| {
            [
                (Phase::PassTwo, seconds),
                (Phase::Bootstrap, 2 * seconds),
                (Phase::Install, 3 * seconds),
            ]
        };
        let with_pass_one = [&[(Phase::PassOne, 90)], &all(100)[..]].concat();
        for (deployments, count, bootstrap, total, with_one) in [
            (vec![], 0, None, None, None),
            (vec![deployment(1, "ovirt", false, &all(100))], 0, None, None, None),
            (vec![deployment(1, "libvirt", true, &all(100))], 0, None, None, None),
            (
                vec![deployment(1, "libvirt", false, &all(100))],
                1,
                Some(200),
                Some(600),
                None,
            ),
            (
                vec![deployment(1, "libvirt", false, &with_pass_one)],
                1,
                Some(200),
                Some(600),
                Some(690),
            ),
            // The median, of two the mean.
            (
                vec![
                    deployment(1, "libvirt", false, &all(10)),
                    deployment(2, "libvirt", false, &all(20)),
                ],
                2,
                Some(30),
                Some(90),
                None,
            ),
            (
                [10, 9000, 20]
                    .map(|seconds| deployment(1, "libvirt", false, &all(seconds)))
                    .to_vec(),
                3,
                Some(40),
                Some(120),
                None,
            ),
            // Five, not the six oldest.
            (
                [900, 900, 900, 900, 10, 10, 10, 10, 10]
                    .map(|s| deployment(1, "libvirt", false, &all(s)))
                    .to_vec(),
                5,
                Some(20),
                Some(60),
                None,
            ),
            (
                vec![deployment(1, "libvirt", false, &all(100)[..1])],
                1,
                None,
                None,
                None,
            ),
        ] {
            let estimate = Estimate::of(&deployments, FIVE_NODES);
            assert_eq!(estimate.deployments, count, "{deployments:?}");
            assert_eq!(estimate.seconds(Phase::Bootstrap), bootstrap, "{deployments:?}");
            // Also if it is too old for an estimate.
            let best = deployments
                .iter()
                .filter(|one| one.backend == "libvirt" && !one.rehearsal);
            let best = best.filter_map(|one| one.phases.get(&Phase::PassTwo)).min();
            assert_eq!(estimate.best(Phase::PassTwo), best.copied().map(Duration::from_millis));
            let totals = [estimate.total(false), estimate.total(true)];
            assert_eq!(
                totals,
                [total, with_one].map(|time| time.map(Duration::from_secs)),
                "{deployments:?}"
            );
        }
    }

    #[test]
    fn a_small_cluster_is_not_compared_with_a_large_one() {
        let sizes = |sizes: &[usize]| {
            let deployments = sizes.iter().map(|nodes| Deployment {
                nodes: *nodes,
                ..deployment(1, "libvirt", false, &[(Phase::PassTwo, 60)])
            });
            Estimate::of(&deployments.collect::<Vec<_>>(), FIVE_NODES).source()
        };
        assert_eq!(sizes(&[0, 2, 11, 50]), None);
        assert_eq!(sizes(&[50, 5]).unwrap(), "1 deployment of 5 nodes");
        assert_eq!(sizes(&[3, 50, 10]).unwrap(), "2 deployments of 3 to 10 nodes");
    }

    #[test]
    fn times_are_rounded() {
        for (seconds, text) in [
            (0.2, "about 1 s"),
            (59.4, "about 59 s"),
            (60.0, "about 1 min"),
            (89.0, "about 1 min"),
            (91.0, "about 2 min"),
            (3599.0, "about 1 h 00 min"),
            (3900.0, "about 1 h 05 min"),
        ] {
            assert_eq!(about(Duration::from_secs_f64(seconds)), text, "{seconds}");
        }
    }

    #[test]
    fn the_file_is_limited_and_a_damaged_one_counts_as_missing() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::new(folder.path().join("state"));
        let one = |day| deployment(day, "sim", true, &[(Phase::PassTwo, 1)]);
        assert_eq!(read(&home), []);
        for day in 0..60 {
            record(&home, one(day)).unwrap();
            record(&home, one(day)).unwrap();
        }
        assert_eq!(read(&home), (10..60).map(one).collect::<Vec<_>>());
        for broken in [
            "",
            "{",
            "[]",
            r#"{"v": 2, "deployments": []}"#,
            r#"{"v": 1, "deployments": [{}]}"#,
        ] {
            std::fs::write(file(&home), broken).unwrap();
            assert_eq!(read(&home), [], "{broken}");
        }
        record(&home, one(1)).unwrap();
        assert_eq!(read(&home), [one(1)]);
        record(&home, deployment(2, "sim", true, &[])).unwrap();
        assert_eq!(read(&home).len(), 1, "a deployment without phases is not recorded");
    }
}
