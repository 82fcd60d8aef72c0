//! Output while a command runs: progress and warnings to stderr, all events to the cluster's log.
//!
//! Modules emit tracing events. Those of target `ocpdeploy::progress` have the fields `step`, `total` (its nodes),
//! `estimate` and `estimate_source`, or `node` or `item`, `state` and `done` (it is no longer waited for in this step),
//! and a message. A terminal shows them as one line for each node under a line for the step, anything else as plain
//! lines.

#![expect(clippy::disallowed_methods, reason = "lines of progress where there is no terminal")]

mod bars;
mod note;
mod steps;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use super::terminal;
use crate::PROGRESS;
use crate::cli::ProgressStyle;
use crate::printable::printable_json;
use crate::state::home::ClusterDir;
use bars::Bars;
use note::{Note, plain, seconds};
use steps::{Ended, Steps};

/// The level of detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbosity {
    Quiet,
    Normal,
    Verbose,
}

/// The two destinations of events.
#[derive(Clone)]
pub struct Progress {
    screen: Arc<Screen>,
    log: Log,
}

impl Progress {
    /// Registers for events; once for each process.
    pub fn start(verbosity: Verbosity, style: ProgressStyle) -> Self {
        let view = match (style, verbosity) {
            (_, Verbosity::Quiet) => View::Silent,
            (ProgressStyle::Json, _) => View::Json(Box::new(io::stderr()), Steps::default()),
            (ProgressStyle::Auto, _) if is_terminal() => View::Bars(Bars::new()),
            _ => View::Plain(Box::new(io::stderr())),
        };
        let progress = Self {
            screen: Arc::new(Screen::new(view, verbosity)),
            log: Log::default(),
        };
        let _ = SCREEN.set(progress.screen.clone());
        let file = tracing_subscriber::fmt::layer()
            .json()
            .with_writer(progress.log.clone())
            .with_filter(ours(Level::DEBUG));
        // Fails only if it is called twice, which no command does.
        let _ = tracing_subscriber::registry()
            .with(progress.layer())
            .with(file)
            .try_init();
        progress
    }

    fn layer(&self) -> impl Layer<Registry> + use<> {
        let level = match self.screen.verbosity {
            Verbosity::Verbose => Level::DEBUG,
            _ => Level::INFO,
        };
        Listener(self.screen.clone()).with_filter(ours(level))
    }

    /// Also writes all further events to `log/ocpdeploy.jsonl` of this cluster, as soon as its directory exists.
    pub fn log_to(&self, dir: &ClusterDir) {
        // With a second cluster in one process, the log remains that of the first.
        let _ = self.log.dir.set(dir.clone());
    }

    /// Ends all steps, and removes the progress lines from the terminal.
    pub fn finish(&self) {
        let elapsed = self.screen.begun.elapsed();
        match &mut *self.screen.view() {
            View::Json(out, steps) => write_ended(out, &steps.end_all(Instant::now()), elapsed),
            view => view.clear(),
        }
    }
}

/// The screen of this process, from the start of the first command: the process has one terminal.
static SCREEN: OnceLock<Arc<Screen>> = OnceLock::new();

/// How long to wait for another thread's use of the screen, e.g. a write to a reader that does not read.
const BUSY: Duration = Duration::from_millis(500);

/// Uses the terminal while it has no progress lines, and none can be drawn.
///
/// Never waits long, so it can be called to end the program: on a signal, or by a panic during drawing.
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    let Some(screen) = SCREEN.get() else { return work() };
    let begin = Instant::now();
    let mut view = loop {
        match screen.view.try_lock() {
            Ok(view) => break Some(view),
            Err(TryLockError::Poisoned(view)) => break Some(view.into_inner()),
            Err(TryLockError::WouldBlock) if begin.elapsed() > BUSY => break None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    if let Some(view) = &mut view {
        view.clear();
    }
    work()
}

/// Only this program's events: libraries may log secrets.
fn ours(level: Level) -> Targets {
    Targets::new().with_target("ocpdeploy", level)
}

fn is_terminal() -> bool {
    terminal::is_for_errors() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// The log of one cluster. Events before its directory exists are not stored: a read-only command writes nothing.
#[derive(Clone, Default)]
struct Log {
    dir: Arc<OnceLock<ClusterDir>>,
    file: Arc<OnceLock<File>>,
}

impl Log {
    fn file(&self) -> Option<&File> {
        if let (None, Some(dir)) = (self.file.get(), self.dir.get())
            && dir.exists()
        {
            let _ = self.file.set(open_log(dir).ok()?);
        }
        self.file.get()
    }
}

fn open_log(dir: &ClusterDir) -> io::Result<File> {
    crate::state::home::append_private(&dir.log().join("ocpdeploy.jsonl"))
}

impl tracing_subscriber::fmt::MakeWriter<'_> for Log {
    type Writer = Log;

    fn make_writer(&self) -> Log {
        self.clone()
    }
}

impl Write for Log {
    /// Writes one complete event of tracing.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(mut file) = self.file() {
            // Logs are also displayed in terminals.
            file.write_all(printable_json(&String::from_utf8_lossy(bytes)).as_bytes())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Listener(Arc<Screen>);

impl<S: Subscriber> Layer<S> for Listener {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut note = Note::default();
        event.record(&mut note);
        let metadata = event.metadata();
        let is_progress = metadata.target() == PROGRESS && *metadata.level() == Level::INFO;
        if self.0.json(&mut note, is_progress, *metadata.level()) {
            return;
        }
        match (metadata.target(), *metadata.level()) {
            (_, Level::ERROR | Level::WARN) => self.0.line(&format!("warning: {}{}", note.message, note.others)),
            (PROGRESS, _) if note.subject().is_none() && note.step.is_empty() => self.0.line(&note.message),
            (PROGRESS, _) => self.0.progress(&mut note),
            (module, _) => {
                let module = module.trim_start_matches("ocpdeploy::");
                self.0.line(&format!("{module}: {}{}", note.message, note.others));
            }
        }
    }
}

/// The destination and style of progress.
struct Screen {
    begun: Instant,
    verbosity: Verbosity,
    view: Mutex<View>,
    /// The last line of each node and item in each step: a poll that finds no change must not repeat it.
    last: Mutex<BTreeMap<[String; 2], String>>,
}

enum View {
    Silent,
    Plain(Box<dyn Write + Send>),
    /// Each event as a JSON object, for programs.
    Json(Box<dyn Write + Send>, Steps),
    Bars(Bars),
}

impl View {
    fn clear(&mut self) {
        if let View::Bars(bars) = self {
            bars.clear();
        }
    }
}

fn write_ended(out: &mut impl Write, ended: &[Ended], elapsed: Duration) {
    for ended in ended {
        // A closed stderr is not an error.
        let _ = out.write_all(ended.json(elapsed).as_bytes());
    }
}

impl Screen {
    fn new(view: View, verbosity: Verbosity) -> Self {
        Self {
            begun: Instant::now(),
            verbosity,
            view: Mutex::new(view),
            last: Mutex::default(),
        }
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn progress(&self, note: &mut Note) {
        let elapsed = self.begun.elapsed();
        if let Some(subject) = note.subject() {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            let before = last.insert([note.step.clone(), subject.to_owned()], note.text().to_owned());
            if before.as_deref() == Some(note.text()) {
                return;
            }
        }
        match &mut *self.view() {
            View::Silent | View::Json(..) => {}
            View::Plain(out) => {
                if let Some(text) = plain(note) {
                    // A closed stderr is not an error.
                    let _ = writeln!(out, "[{}] {text}", seconds(elapsed));
                }
            }
            View::Bars(bars) => bars.show(note),
        }
    }

    /// Writes the event as JSON if programs read it; returns whether they do.
    fn json(&self, note: &mut Note, is_progress: bool, level: Level) -> bool {
        let elapsed = self.begun.elapsed();
        match &mut *self.view() {
            View::Json(out, steps) => {
                let ended = match is_progress {
                    true => steps.apply(note, Instant::now()),
                    false => Vec::new(),
                };
                // The end of its own step follows the event that ends it.
                let (own, others): (Vec<_>, Vec<_>) = ended.into_iter().partition(|ended| ended.step == note.step);
                write_ended(out, &others, elapsed);
                // A closed stderr is not an error.
                let _ = out.write_all(note.json(level, elapsed).as_bytes());
                write_ended(out, &own, elapsed);
                true
            }
            _ => false,
        }
    }

    fn line(&self, text: &str) {
        match &mut *self.view() {
            View::Silent | View::Json(..) => {}
            View::Plain(out) => drop(writeln!(out, "[{}] {text}", seconds(self.begun.elapsed()))),
            View::Bars(bars) => bars.line(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The output of `work`, with every time replaced.
    fn shown(verbosity: Verbosity, work: impl FnOnce()) -> String {
        let buffer = Buffer::default();
        let progress = Progress {
            screen: Arc::new(Screen::new(View::Plain(Box::new(buffer.clone())), verbosity)),
            log: Log::default(),
        };
        let registry = tracing_subscriber::registry().with(progress.layer());
        tracing::subscriber::with_default(registry, work);
        let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().map(|line| match line.split_once("s] ") {
            Some((time, rest)) if time.starts_with('[') => format!("[t] {rest}\n"),
            _ => panic!("no time: {line}"),
        });
        lines.collect()
    }

    fn emit() {
        let estimate_source = Some("2 deployments of 3 nodes".to_owned());
        tracing::info!(target: PROGRESS, step = "pass one", total = 2_u64, estimate = Some(70_u64), estimate_source, "boots 2 machines");
        for _look in 0..2 {
            tracing::info!(target: PROGRESS, step = "pass one", node = %"master-0", state = "address", "192.168.122.15");
        }
        tracing::info!(target: PROGRESS, step = "pass one", node = "master-1", state = "creating");
        tracing::info!(target: PROGRESS, step = "pass one", total = 2, estimate = None::<u64>);
        tracing::warn!(target: "ocpdeploy::passes", "the \x1b[31mnetwork\n[0.1s] has no DHCP range");
        tracing::debug!(target: "ocpdeploy::backend::sim", machines = 3, "looked");
        tracing::error!(target: "hyper", "an event of a library");
    }

    #[test]
    fn plain_lines_show_each_state_of_a_machine_once() {
        insta::assert_snapshot!(shown(Verbosity::Normal, emit), @r"
        [t] pass one: boots 2 machines (about 1 min, like 2 deployments of 3 nodes)
        [t] master-0: 192.168.122.15
        [t] master-1: creating
        [t] warning: the \u{1b}[31mnetwork\n[0.1s] has no DHCP range
        ");
    }

    #[test]
    fn verbose_adds_events_of_this_program_and_none_of_libraries() {
        let text = shown(Verbosity::Verbose, emit);
        assert!(text.contains("[t] backend::sim: looked machines=3\n"), "{text}");
        assert!(!text.contains("library"), "{text}");
    }

    #[test]
    fn the_log_is_private_and_appended() {
        let folder = tempfile::tempdir().unwrap();
        let dir = crate::state::home::Home::new(folder.path()).cluster("lab");
        for _run in 0..2 {
            let log = Log::default();
            let progress = Progress {
                screen: Arc::new(Screen::new(View::Silent, Verbosity::Quiet)),
                log: log.clone(),
            };
            progress.log_to(&dir);
            dir.create().unwrap();
            let layer = tracing_subscriber::fmt::layer().json().with_writer(log);
            tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
                tracing::info!(machine = "lab-master-0", "line\nwith \x1b[2J\u{9b}2J\u{202e}");
            });
        }
        let path = dir.log().join("ocpdeploy.jsonl");
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1]["fields"]["machine"], "lab-master-0");
        assert!(!text.contains(['\x1b', '\u{9b}', '\u{202e}']), "{text}");
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
    }
}
