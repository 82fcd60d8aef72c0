//! Progress lines on a terminal.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::note::{Note, seconds};

/// The progress lines on a terminal: the step, and below it each machine.
pub(super) struct Bars {
    all: MultiProgress,
    step: Option<Step>,
}

struct Step {
    name: String,
    begun: Instant,
    head: ProgressBar,
    machines: BTreeMap<String, Line>,
}

struct Line {
    bar: ProgressBar,
    done: bool,
}

impl Bars {
    pub(super) fn new() -> Self {
        Self {
            all: MultiProgress::with_draw_target(ProgressDrawTarget::stderr()),
            step: None,
        }
    }

    pub(super) fn show(&mut self, note: &Note, elapsed: Duration) {
        let open = self.step.as_ref().map(|step| step.name.as_str());
        if self.step.is_none() || (!note.step.is_empty() && open != Some(&note.step)) {
            self.close_step();
            self.step = Some(self.open_step(&note.step));
        }
        let Some(step) = &mut self.step else { return };
        if let Some(total) = note.total {
            step.head
                .set_style(style("{spinner} {prefix} {bar:24} {pos}/{len} {elapsed} {wide_msg}"));
            step.head.set_length(total);
        }
        if let Some(done) = note.done {
            step.head.set_position(done);
        }
        if note.machine.is_empty() {
            step.head.set_message(note.text().to_owned());
            return;
        }
        let line = step.machines.entry(note.machine.clone()).or_insert_with(|| {
            let bar = self.all.add(ProgressBar::no_length());
            bar.set_style(style("  {prefix:24} {wide_msg}"));
            bar.set_prefix(note.machine.clone());
            Line { bar, done: false }
        });
        line.bar.set_message(format!("{}  {}", note.text(), seconds(elapsed)));
        if note.machine_done && !line.done {
            line.done = true;
            step.head.inc(1);
        }
    }

    fn open_step(&self, name: &str) -> Step {
        let head = self.all.add(ProgressBar::no_length());
        head.set_style(style("{spinner} {prefix} {elapsed} {wide_msg}"));
        head.set_prefix(name.to_owned());
        head.enable_steady_tick(Duration::from_millis(120));
        Step {
            name: name.to_owned(),
            begun: Instant::now(),
            head,
            machines: BTreeMap::new(),
        }
    }

    /// Shows a line above the others.
    pub(super) fn line(&self, text: &str) {
        drop(self.all.println(text));
    }

    /// Removes all lines and prints a final line of the step.
    pub(super) fn clear(&mut self) {
        self.close_step();
        drop(self.all.clear());
    }

    /// Prints a final line of the step.
    fn close_step(&mut self) {
        let Some(step) = self.step.take() else { return };
        for line in step.machines.values().map(|line| &line.bar).chain([&step.head]) {
            line.finish_and_clear();
            self.all.remove(line);
        }
        if !step.name.is_empty() {
            self.line(&format!("{:<40} {:>7}", step.name, seconds(step.begun.elapsed())));
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants; an invalid one falls back to indicatif's default.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}
