//! The journal of one cluster: the completed steps with their inputs, and the cluster's lock.
//!
//! `journal.jsonl` has one JSON object in each line: `{v, seq, time, event, step, input, output|error}`.
//! Effects come first, then `done`: after a crash the step is repeated, so every effect must be repeatable.
//!
//! Nothing is written before the first line of a run, not even the file itself: a rejected command leaves the cluster's
//! records unchanged. A run's other records are registered (`at_first_line`, `note_at_first_line`) and written just
//! before that line.
//!
//! More than 500 lines: steps, lock and reader share one file format.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use fs_err::os::unix::fs::OpenOptionsExt;
use fs_err::{File, OpenOptions};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::digest::sha256;
use crate::state::dir::NO_LINK;
use crate::state::home::ClusterDir;

/// Version of a line's format.
const VERSION: u32 = 1;

/// The note at the beginning of each run: steps that were open before are no longer running.
pub const RUN: &str = "run";

/// The note of a run that failed, with the time and the error. A failure between two steps leaves no other line, so the
/// run would look interrupted.
pub const FAILED: &str = "failed";

/// The step that deletes the bootstrap.
pub const BOOTSTRAP_REMOVED: &str = "bootstrap-removed";

/// When this step is done, the cluster is installed.
pub const INSTALLED: &str = "install-complete";

/// When this step is done, the nodes of the cluster may be others than those of its installation.
pub const SCALED: &str = "scaled";

/// Errors of the journal itself.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cluster {cluster} is locked by {holder}")]
    Locked { cluster: String, holder: String },
    #[error("the journal {} is corrupt at byte {at}", path.display())]
    Damaged {
        path: PathBuf,
        at: u64,
        source: serde_json::Error,
    },
    #[error("the journal {} has an entry of unsupported version {v}, expected {VERSION}", path.display())]
    Version { path: PathBuf, v: u32 },
    #[error("step {step} was done with other settings")]
    OtherInput {
        cluster: String,
        step: String,
        /// An installed cluster works, and must not be created again.
        installed: bool,
    },
    #[error("cannot write the journal in {}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
}

impl JournalError {
    /// What a user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Locked { .. } => "wait until that process ends, which releases the lock".to_owned(),
            Self::Damaged { path, .. } => format!(
                "restore the file from a backup; the cluster itself is not affected. If it is not installed yet, \
                 remove it without the journal: `ocpdeploy destroy {}`",
                cluster_of(path)
            ),
            Self::Version { .. } => "use the version of ocpdeploy that wrote it, or a newer one".to_owned(),
            Self::OtherInput {
                cluster,
                installed: true,
                ..
            } => format!(
                "restore the settings: cluster {cluster} is installed, and `deploy` does not change it. \
                 To change the number of workers, run `ocpdeploy scale {cluster} --workers N`"
            ),
            Self::OtherInput { cluster, .. } => format!(
                "restore the settings. To apply the new ones, because the cluster is not installed yet: run \
                 `ocpdeploy destroy {cluster} --keep-addresses`, then deploy again"
            ),
            Self::Io { .. } => "check the directory's permissions and the free disk space".to_owned(),
        }
    }
}

/// An event of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    Begun,
    Done,
    Failed,
    /// `step` and the steps below it count as not done from here on.
    Forgotten,
}

impl Event {
    /// Whether a step is `forgotten` or below it, as `a/b` is below `a`; all are below the empty name.
    pub fn forgets(forgotten: &str, step: &str) -> bool {
        forgotten.is_empty()
            || step
                .strip_prefix(forgotten)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// One line of the journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    pub v: u32,
    pub seq: u64,
    pub time: Timestamp,
    pub event: Event,
    pub step: String,
    /// A digest of the step's input.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub input: String,
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub output: serde_json::Value,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
}

impl Entry {
    /// Whether it is a fact stored by `note`, not a step.
    pub fn is_note(&self) -> bool {
        self.event == Event::Done && self.input.is_empty()
    }
}

/// A step of a workflow: its name, and a digest of its input. `judge` and `run` get the same value, so that both use
/// the same input.
#[derive(Clone, Debug)]
pub struct Step {
    name: String,
    input: String,
}

impl Step {
    pub fn new(name: impl Into<String>, input: &impl Serialize) -> anyhow::Result<Self> {
        Ok(Self {
            name: name.into(),
            input: digest(serde_json::to_vec(input)?),
        })
    }

    /// A step whose input never changes.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            input: digest("null"),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// A line that is not a step.
    fn without_input(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            input: String::new(),
        }
    }
}

/// The digest of an input, in the form in which existing journals have it.
fn digest(input: impl AsRef<[u8]>) -> String {
    sha256(input)[..16].to_owned()
}

/// An open journal; locked by one process.
pub struct Journal {
    dir: ClusterDir,
    path: PathBuf,
    open: Mutex<Open>,
    _lock: Lock,
}

/// Writes a record before a run's first line.
type Record = Box<dyn Fn() -> anyhow::Result<()> + Send>;

struct Open {
    /// `None` before the first line of this run.
    file: Option<File>,
    /// The end of the complete lines of earlier runs; at most one torn line follows.
    good: u64,
    seq: u64,
    done: BTreeMap<String, Entry>,
    /// Steps that earlier runs began and that were not forgotten later, completed or not.
    begun: BTreeSet<String>,
    records: Vec<Record>,
    notes: Vec<(String, serde_json::Value)>,
}

impl Journal {
    /// Locks the cluster's directory and reads the completed steps. Writes nothing but the lock.
    pub fn open(dir: &ClusterDir, cluster: &str) -> Result<Self, JournalError> {
        let path = dir.journal();
        let lock = Lock::take(dir, cluster)?;
        let (entries, good) = match OpenOptions::new().read(true).custom_flags(NO_LINK).open(&path) {
            Ok(mut file) => read_entries(&mut file, &path)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (Vec::new(), 0),
            Err(source) => return Err(JournalError::Io { path, source }),
        };
        let open = Open {
            file: None,
            good,
            seq: entries.last().map_or(0, |entry| entry.seq),
            begun: begun_steps(&entries),
            done: done_steps(entries),
            records: Vec::new(),
            notes: Vec::new(),
        };
        Ok(Self {
            dir: dir.clone(),
            path,
            open: Mutex::new(open),
            _lock: lock,
        })
    }

    /// Writes a record just before this run's first line, or never if the run writes none.
    pub fn at_first_line(&self, record: impl Fn() -> anyhow::Result<()> + Send + 'static) {
        self.locked().records.push(Box::new(record));
    }

    /// As `note`, just before this run's first line.
    pub fn note_at_first_line(&self, name: &str, fact: &impl Serialize) -> anyhow::Result<()> {
        let fact = serde_json::to_value(fact)?;
        self.locked().notes.push((name.to_owned(), fact));
        Ok(())
    }

    /// Whether an earlier run began a step with this prefix that was not forgotten later.
    pub fn was_begun(&self, beginning: &str) -> bool {
        self.first_begun(beginning).is_some()
    }

    /// The first step with this prefix that an earlier run began and that was not forgotten later.
    pub fn first_begun(&self, beginning: &str) -> Option<String> {
        let locked = self.locked();
        locked.begun.iter().find(|step| step.starts_with(beginning)).cloned()
    }

    /// Whether this run has written a line.
    pub fn is_begun(&self) -> bool {
        self.locked().file.is_some()
    }

    /// Rejects a step that was completed with another input; one that is not completed may have any.
    pub fn judge(&self, step: &Step) -> Result<(), JournalError> {
        match self.is_outdated(step) {
            true => Err(JournalError::OtherInput {
                cluster: cluster_of(&self.path).to_owned(),
                step: step.name.clone(),
                installed: self.done_before(INSTALLED).is_some(),
            }),
            false => Ok(()),
        }
    }

    /// Runs `work` once for one input: a completed step returns its stored output.
    ///
    /// The output must contain no secret. An input that differs from the last one is an error, and `work` is not run.
    pub async fn run<T: Serialize + DeserializeOwned>(
        &self,
        step: &Step,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        self.judge(step)?;
        if let Some(output) = self.output(&step.name)? {
            return Ok(output);
        }
        self.append(Event::Begun, step, serde_json::Value::Null, String::new())?;
        match work.await {
            Ok(output) => {
                self.append(Event::Done, step, serde_json::to_value(&output)?, String::new())?;
                Ok(output)
            }
            Err(error) => {
                self.append(Event::Failed, step, serde_json::Value::Null, format!("{error:#}"))?;
                Err(error)
            }
        }
    }

    /// Records a step that requires no work.
    pub async fn mark(&self, step: &Step) -> anyhow::Result<()> {
        self.run(step, async { Ok(()) }).await
    }

    /// Stores a fact for readers of the journal, as a step without an input. An unchanged fact is not stored again.
    ///
    /// No run depends on it, so it is not synced to the disk.
    pub fn note(&self, name: &str, fact: &impl Serialize) -> anyhow::Result<()> {
        let fact = serde_json::to_value(fact)?;
        if self.done_before(name).is_none_or(|before| before.output != fact) {
            let mut open = self.locked();
            self.begin(&mut open)?;
            self.write(&mut open, Event::Done, &Step::without_input(name), fact, String::new())?;
        }
        Ok(())
    }

    /// Whether a step was completed with another input.
    pub fn is_outdated(&self, step: &Step) -> bool {
        let before = self.done_before(&step.name);
        before.is_some_and(|before| before.input != step.input)
    }

    /// When a step was done; `None` if it was not.
    pub fn done_at(&self, step: &str) -> Option<Timestamp> {
        self.done_before(step).map(|entry| entry.time)
    }

    /// The output of a completed step.
    pub fn output<T: DeserializeOwned>(&self, step: &str) -> anyhow::Result<Option<T>> {
        let done = self.done_before(step);
        Ok(done.map(|entry| serde_json::from_value(entry.output)).transpose()?)
    }

    /// Makes a step and the steps below it count as not done; the empty name means all.
    pub fn forget(&self, forgotten: &str) -> anyhow::Result<()> {
        let line = Step::without_input(forgotten);
        self.append(Event::Forgotten, &line, serde_json::Value::Null, String::new())?;
        self.locked().done.retain(|step, _| !Event::forgets(forgotten, step));
        Ok(())
    }

    fn done_before(&self, step: &str) -> Option<Entry> {
        self.locked().done.get(step).cloned()
    }

    fn locked(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, event: Event, step: &Step, output: serde_json::Value, error: String) -> anyhow::Result<()> {
        let mut open = self.locked();
        self.begin(&mut open)?;
        self.write(&mut open, event, step, output, error)?;
        match open.file.as_ref().map(File::sync_data) {
            Some(Err(source)) => Err(self.io(source).into()),
            _ => Ok(()),
        }
    }

    fn io(&self, source: std::io::Error) -> JournalError {
        let path = self.path.clone();
        JournalError::Io { path, source }
    }

    /// Writes what precedes this run's first line: the records, a file without a torn line, and the notes.
    ///
    /// Repeated from its start after a failure, because no line may be written without its records.
    fn begin(&self, open: &mut Open) -> anyhow::Result<()> {
        if open.file.is_some() {
            return Ok(());
        }
        self.dir.create().context("create the cluster's directory")?;
        self.dir
            .sweep()
            .context("remove unfinished files from the cluster's directory")?;
        for record in &open.records {
            record()?;
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .custom_flags(NO_LINK)
            .open(&self.path);
        let file = file.map_err(|source| self.io(source))?;
        file.set_len(open.good).map_err(|source| self.io(source))?;
        open.file = Some(file);
        for (name, fact) in std::mem::take(&mut open.notes) {
            if open.done.get(&name).is_none_or(|before| before.output != fact) {
                self.write(open, Event::Done, &Step::without_input(&name), fact, String::new())?;
            }
        }
        Ok(())
    }

    fn write(
        &self,
        open: &mut Open,
        event: Event,
        step: &Step,
        output: serde_json::Value,
        error: String,
    ) -> Result<(), JournalError> {
        open.seq += 1;
        let entry = Entry {
            v: VERSION,
            seq: open.seq,
            time: Timestamp::now(),
            event,
            step: step.name.clone(),
            input: step.input.clone(),
            output,
            error,
        };
        let mut line = serde_json::to_vec(&entry).map_err(|error| self.io(error.into()))?;
        line.push(b'\n');
        if let Some(file) = &mut open.file {
            file.write_all(&line).map_err(|source| self.io(source))?;
        }
        if event == Event::Done {
            open.done.insert(step.name.clone(), entry);
        }
        Ok(())
    }
}

/// Whether a step is done and was not forgotten later.
pub fn is_done(journal: &[Entry], step: &str) -> bool {
    let last = journal.iter().rev().find(|entry| match entry.event {
        Event::Done => entry.step == step,
        Event::Forgotten => Event::forgets(&entry.step, step),
        _ => false,
    });
    last.is_some_and(|entry| entry.event == Event::Done)
}

/// The output of a step or note, unless it was forgotten or has another type.
pub fn output<T: DeserializeOwned>(journal: &[Entry], step: &str) -> Option<T> {
    let last = journal
        .iter()
        .rfind(|entry| entry.event == Event::Done && entry.step == step)?;
    let last = Some(last).filter(|_| is_done(journal, step))?;
    serde_json::from_value(last.output.clone()).ok()
}

/// When and why the last run failed; `None` if it did not, or ended without a result.
pub fn failure(journal: &[Entry]) -> Option<(Timestamp, String)> {
    let last = |name: &str| journal.iter().rposition(|entry| entry.is_note() && entry.step == name);
    let failed = last(FAILED)?;
    let failure = serde_json::from_value(journal.get(failed)?.output.clone()).ok()?;
    (last(RUN) < Some(failed)).then_some(failure)
}

/// The cluster of a journal: the name of its directory.
fn cluster_of(journal: &Path) -> &str {
    let folder = journal.parent().and_then(Path::file_name);
    folder.and_then(|name| name.to_str()).unwrap_or_default()
}

/// Reads a journal without locking it, for `status` and reports.
pub fn read(path: &Path) -> Result<Vec<Entry>, JournalError> {
    match File::open(path) {
        Ok(mut file) => Ok(read_entries(&mut file, path)?.0),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(JournalError::Io {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Whether any step was begun and not forgotten later.
pub fn has_steps(entries: &[Entry]) -> bool {
    !begun_steps(entries).is_empty()
}

/// The complete lines of a journal, and the position of their end; `path` is for errors.
pub fn read_entries(file: impl Read, path: &Path) -> Result<(Vec<Entry>, u64), JournalError> {
    let io = |source| JournalError::Io {
        path: path.to_owned(),
        source,
    };
    let (mut entries, mut good) = (Vec::<Entry>::new(), 0u64);
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        reader.read_until(b'\n', &mut line).map_err(io)?;
        if !line.ends_with(b"\n") {
            // The end, or a line torn by a crash: its step was not recorded.
            return Ok((entries, good));
        }
        let entry: Entry = serde_json::from_slice(&line).map_err(|source| JournalError::Damaged {
            path: path.to_owned(),
            at: good,
            source,
        })?;
        if entry.v != VERSION {
            return Err(JournalError::Version {
                path: path.to_owned(),
                v: entry.v,
            });
        }
        good += line.len() as u64;
        entries.push(entry);
    }
}

fn done_steps(entries: Vec<Entry>) -> BTreeMap<String, Entry> {
    let mut done = BTreeMap::new();
    for entry in entries {
        match entry.event {
            Event::Done => drop(done.insert(entry.step.clone(), entry)),
            Event::Forgotten => done.retain(|step: &String, _| !Event::forgets(&entry.step, step)),
            Event::Begun | Event::Failed => {}
        }
    }
    done
}

fn begun_steps(entries: &[Entry]) -> BTreeSet<String> {
    let mut begun = BTreeSet::new();
    for entry in entries {
        match entry.event {
            Event::Forgotten => begun.retain(|step: &String| !Event::forgets(&entry.step, step)),
            _ if entry.is_note() => {}
            _ => _ = begun.insert(entry.step.clone()),
        }
    }
    begun
}

/// Locks a cluster's directory without reading its journal, which may be damaged.
pub fn lock(dir: &ClusterDir, cluster: &str) -> Result<Lock, JournalError> {
    Lock::take(dir, cluster)
}

/// An exclusive lock on a cluster's directory; the kernel releases it when the process ends.
pub struct Lock {
    _file: File,
}

/// The process that holds a cluster's lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub host: String,
    pub pid: u32,
    pub since: Timestamp,
}

/// The process that works on a cluster now, without taking its lock; `None` if there is none.
pub fn holder(dir: &ClusterDir) -> Option<Holder> {
    let mut file = File::open(dir.lock()).ok()?;
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    let holder: Holder = serde_json::from_str(&text).ok()?;
    // Trying the lock could make a process that is starting fail; here its process id is sufficient.
    if holder.host == host_name() && !Path::new("/proc").join(holder.pid.to_string()).exists() {
        return None;
    }
    let is_free = file.file().try_lock_shared().is_ok();
    (!is_free).then_some(holder)
}

impl Lock {
    fn take(dir: &ClusterDir, cluster: &str) -> Result<Self, JournalError> {
        let path = dir.lock();
        let io = |source| JournalError::Io {
            path: path.clone(),
            source,
        };
        loop {
            dir.create_bare().map_err(io)?;
            let mut file = OpenOptions::new()
                .create(true)
                .read(true)
                .write(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(NO_LINK)
                .open(&path)
                .map_err(io)?;
            match file.file().try_lock() {
                Ok(()) => {}
                Err(std::fs::TryLockError::WouldBlock) => {
                    return Err(JournalError::Locked {
                        cluster: cluster.to_owned(),
                        holder: read_holder(&mut file),
                    });
                }
                Err(std::fs::TryLockError::Error(source)) => return Err(io(source)),
            }
            // `destroy` may have removed the directory between opening and locking; then this file is no longer the
            // lock.
            let same =
                fs_err::metadata(&path).is_ok_and(|now| file.metadata().is_ok_and(|ours| ours.ino() == now.ino()));
            if !same {
                continue;
            }
            let holder = Holder {
                host: host_name(),
                pid: std::process::id(),
                since: Timestamp::now(),
            };
            let text = serde_json::to_vec(&holder).map_err(|error| io(error.into()))?;
            file.set_len(0).map_err(io)?;
            file.write_all(&text).map_err(io)?;
            return Ok(Self { _file: file });
        }
    }
}

fn read_holder(file: &mut File) -> String {
    let mut text = String::new();
    match file
        .read_to_string(&mut text)
        .ok()
        .and_then(|_| serde_json::from_str::<Holder>(&text).ok())
    {
        Some(Holder { host, pid, since }) => format!("process {pid} on {host} since {since:.0}"),
        None => "a process that has just started".to_owned(),
    }
}

pub(super) fn host_name() -> String {
    fs_err::read_to_string("/proc/sys/kernel/hostname").map_or("this host".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::home::Home;
    use std::cell::Cell;

    fn home() -> (tempfile::TempDir, ClusterDir) {
        let folder = tempfile::tempdir().unwrap();
        let dir = Home::new(folder.path()).cluster("lab");
        (folder, dir)
    }

    async fn run(journal: &Journal, input: u32, runs: &Cell<u32>) -> anyhow::Result<u32> {
        let work = async {
            runs.set(runs.get() + 1);
            Ok(input * 10)
        };
        journal.run(&Step::new("one", &input)?, work).await
    }

    #[tokio::test]
    async fn a_step_runs_once_for_its_input_even_after_a_torn_line() {
        let (_folder, dir) = home();
        let runs = Cell::new(0);
        assert_eq!(run(&Journal::open(&dir, "lab").unwrap(), 4, &runs).await.unwrap(), 40);
        let mut file = OpenOptions::new().append(true).open(dir.journal()).unwrap();
        file.write_all(b"{\"v\":1,\"seq\":9,\"ti").unwrap();
        drop(file);
        let journal = Journal::open(&dir, "lab").unwrap();
        assert_eq!(run(&journal, 4, &runs).await.unwrap(), 40);
        assert_eq!(runs.get(), 1);
        let error = run(&journal, 5, &runs).await.unwrap_err();
        assert!(
            matches!(error.downcast_ref(), Some(JournalError::OtherInput { .. })),
            "{error}"
        );
        journal.forget("on").unwrap();
        assert_eq!(journal.output("one").unwrap(), Some(40), "`one` is not below `on`");
        journal.forget("one").unwrap();
        drop(journal);
        assert_eq!(run(&Journal::open(&dir, "lab").unwrap(), 5, &runs).await.unwrap(), 50);
        assert_eq!(runs.get(), 2);
        assert!(
            read(&dir.journal())
                .unwrap()
                .windows(2)
                .all(|pair| pair[0].seq < pair[1].seq)
        );
    }

    #[tokio::test]
    async fn a_note_is_kept_once_and_is_no_step() {
        let (_folder, dir) = home();
        let journal = Journal::open(&dir, "lab").unwrap();
        run(&journal, 4, &Cell::new(0)).await.unwrap();
        for fact in ["a", "a", "b"] {
            journal.note("made/master-0", &fact).unwrap();
        }
        let entries = read(&dir.journal()).unwrap();
        let notes: Vec<_> = entries.iter().filter(|entry| entry.is_note()).collect();
        assert_eq!(notes.len(), 2, "{entries:?}");
        assert_eq!(notes[1].output, "b");
        assert_eq!(entries.len(), 4, "begun and done of the step, and two notes");
    }

    #[tokio::test]
    async fn a_run_that_writes_no_line_changes_no_file() {
        let (_folder, dir) = home();
        let files = || {
            let mut files: Vec<_> = std::fs::read_dir(dir.path())
                .unwrap()
                .map(|file| file.unwrap().path())
                .collect();
            files.sort();
            files
        };
        drop(Journal::open(&dir, "lab").unwrap());
        assert_eq!(files(), [dir.lock()], "a new cluster has its lock, and nothing else");
        let runs = Cell::new(0);
        run(&Journal::open(&dir, "lab").unwrap(), 4, &runs).await.unwrap();
        let mut file = OpenOptions::new().append(true).open(dir.journal()).unwrap();
        file.write_all(b"{\"v\":1,\"seq\":9,\"ti").unwrap();
        std::fs::write(dir.path().join(".new-x"), "torn").unwrap();
        let (before, journal) = (files(), std::fs::read(dir.journal()).unwrap());
        let open = Journal::open(&dir, "lab").unwrap();
        let path = dir.path().join("record");
        let record = path.clone();
        open.at_first_line(move || Ok(std::fs::write(&record, "record")?));
        open.note_at_first_line(RUN, &1).unwrap();
        // Done with this input, then rejected for another.
        run(&open, 4, &runs).await.unwrap();
        let other = Step::new("one", &5).unwrap();
        assert!(open.judge(&other).is_err() && run(&open, 5, &runs).await.is_err());
        assert_eq!((files(), std::fs::read(dir.journal()).unwrap()), (before, journal));
        // The first line writes all records.
        open.forget("one").unwrap();
        assert_eq!(std::fs::read(path).unwrap(), b"record");
        assert!(!dir.path().join(".new-x").exists());
        let steps: Vec<_> = read(&dir.journal())
            .unwrap()
            .into_iter()
            .map(|entry| entry.step)
            .collect();
        assert_eq!(
            steps,
            ["one", "one", "run", "one"],
            "the torn line is removed, the note precedes the line"
        );
    }

    #[test]
    fn no_line_is_written_without_its_records() {
        let (_folder, dir) = home();
        let journal = Journal::open(&dir, "lab").unwrap();
        journal.at_first_line(|| anyhow::bail!("disk full"));
        assert!(journal.forget("one").is_err() && journal.note("two", &2).is_err());
        assert!(!dir.journal().exists());
    }

    #[test]
    fn the_holder_of_a_lock_is_visible_only_while_it_runs() {
        let (_folder, dir) = home();
        assert_eq!(holder(&dir), None);
        let lock = Lock::take(&dir, "lab").unwrap();
        let found = holder(&dir).unwrap();
        assert_eq!((found.pid, found.host), (std::process::id(), host_name()));
        drop(lock);
        assert_eq!(holder(&dir), None, "this process runs, but has no lock");
        let gone = Holder {
            host: host_name(),
            pid: u32::MAX,
            since: Timestamp::UNIX_EPOCH,
        };
        std::fs::write(dir.lock(), serde_json::to_vec(&gone).unwrap()).unwrap();
        assert_eq!(holder(&dir), None, "there is no such process");
    }

    #[test]
    fn forgetting_a_step_forgets_the_steps_below_it_and_no_others() {
        for (forgotten, step, forgets) in [
            ("", "any", true),
            ("join/worker-1", "join/worker-1", true),
            ("join/worker-1", "join/worker-1/ready", true),
            ("join/worker-1", "join/worker-10/ready", false),
            ("join/worker-1/ready", "join/worker-1", false),
        ] {
            assert_eq!(Event::forgets(forgotten, step), forgets, "{forgotten}, {step}");
        }
    }

    #[test]
    fn inputs_are_digested_as_in_existing_journals() {
        for (step, input) in [
            (Step::named("pass-one/gone"), "74234e98afe7498f"),
            (Step::new("pass-one/gone", &()).unwrap(), "74234e98afe7498f"),
            (Step::new("scaled", &2).unwrap(), "d4735e3a265e16ee"),
        ] {
            assert_eq!(step.input, input, "{}", step.name);
        }
    }

    #[tokio::test]
    async fn a_failed_step_is_run_again() {
        let (_folder, dir) = home();
        let journal = Journal::open(&dir, "lab").unwrap();
        let step = Step::named("one");
        let failed: anyhow::Result<u32> = journal.run(&step, async { anyhow::bail!("no luck") }).await;
        assert!(failed.is_err());
        assert_eq!(journal.run(&step, async { Ok(7) }).await.unwrap(), 7);
    }

    #[test]
    fn the_lock_names_its_holder() {
        let (_folder, dir) = home();
        let _held = Journal::open(&dir, "lab").unwrap();
        let Err(error) = Journal::open(&dir, "lab") else {
            panic!("two processes have the lock")
        };
        assert!(
            error.to_string().contains(&format!("process {}", std::process::id())),
            "{error}"
        );
    }

    #[test]
    fn damage_is_reported_with_its_position_and_what_to_do() {
        let (_folder, dir) = home();
        dir.create().unwrap();
        fs_err::write(dir.journal(), "nonsense\n{}\n").unwrap();
        let Err(error) = Journal::open(&dir, "lab") else {
            panic!("a damaged journal was accepted")
        };
        assert!(matches!(error, JournalError::Damaged { at: 0, .. }), "{error}");
        assert_eq!(
            error.hint(),
            "restore the file from a backup; the cluster itself is not affected. If it is not installed yet, remove it \
             without the journal: `ocpdeploy destroy lab`"
        );
    }
}
